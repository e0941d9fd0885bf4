/* OpenBLAS as a peer, for contractions: a plug-in for each build whose header is found.
 * It cannot fuse: bias and activation are a second pass. */
#include "bench/peer.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

/* PyPI's build has a prefix on every symbol, and is the newer one. */
#ifdef BENCH_OPENBLAS_SCIPY
#define config scipy_openblas_get_config
#define corename scipy_openblas_get_corename
#define set_count scipy_openblas_set_num_threads
#define sgemm scipy_cblas_sgemm
#define sgemv scipy_cblas_sgemv
#define sgemm_batch scipy_cblas_sgemm_batch_strided
#define dgemm scipy_cblas_dgemm
#define dgemv scipy_cblas_dgemv
#define dgemm_batch scipy_cblas_dgemm_batch_strided
#else
#define config openblas_get_config
#define corename openblas_get_corename
#define set_count openblas_set_num_threads
#define sgemm cblas_sgemm
#define sgemv cblas_sgemv
#define dgemm cblas_dgemm
#define dgemv cblas_dgemv
#endif

typedef struct gemm {
    bench_product product;
    int way;
} gemm;

enum { EACH, VECTOR, STRIDED_BATCH, WAYS };
static const char *const way_names[WAYS] = {"gemm", "gemv", "gemm_batch_strided"};

static void describe(char *text, size_t size) {
    snprintf(text, size, "%.48s; core %s", config(), corename());
}

static void set_threads(int count) {
    set_count(count);
}

#ifdef BENCH_OPENBLAS_SCIPY
#define BATCH(name)                                                                                                 \
    name(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, (const void *)p->x, k, m *k, (const void *)p->w, n, \
         k *n, 0, (void *)p->y, n, m *n, (blasint)p->batch)
#else
#define BATCH(name) (void)0
#endif

/* One way of computing, in single or double precision. */
#define EACH_OF(name, gemm, gemv, batch)                                                                           \
    static void name(const bench_product *p, int way, const char *x, const char *w, char *y) {                     \
        blasint m = (blasint)p->m, n = (blasint)p->n, k = (blasint)p->k;                                           \
        const void *a = x, *b = w;                                                                                 \
        if (way == STRIDED_BATCH) BATCH(batch);                                                                    \
        if (way == EACH) gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, (void *)y, n); \
        if (way == VECTOR) gemv(CblasRowMajor, CblasTrans, k, n, 1, b, n, a, 1, 0, (void *)y, 1);                  \
    }
EACH_OF(single, sgemm, sgemv, sgemm_batch)
EACH_OF(doubled, dgemm, dgemv, dgemm_batch)

static void run(void *state) {
    const gemm *g = state;
    const bench_product *p = &g->product;
    void (*multiply)(const bench_product *, int, const char *, const char *, char *) =
        p->dtype == DLC_F64 ? doubled : single;
    int64_t bytes = p->dtype == DLC_F64 ? 8 : 4;
    if (g->way == STRIDED_BATCH) multiply(p, g->way, p->x, p->w, p->y);
    for (int64_t b = 0; b < p->batch; b++) {
        char *y = p->y + bytes * b * p->m * p->n;
        if (g->way != STRIDED_BATCH)
            multiply(p, g->way, p->x + bytes * b * p->m * p->k, p->w + bytes * b * p->k * p->n, y);
        bench_product_finish(p, y);
    }
}

static void *attempt(int way, const bench_problem *problem) {
    gemm g = {.way = way};
    if (!bench_product_of(&g.product, problem)) return NULL;
    if (way == VECTOR && g.product.m != 1) return NULL;
#ifdef BENCH_OPENBLAS_SCIPY
    if (way == STRIDED_BATCH && g.product.batch == 1) return NULL;
#else
    if (way == STRIDED_BATCH) return NULL;
#endif
    gemm *state = malloc(sizeof *state);
    if (!state) return NULL;
    *state = g;
    run(state);
    return state;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    gemm *g = bench_fastest(WAYS, attempt, run, free, problem);
    if (g) snprintf(note, note_size, "%s", way_names[g->way]);
    return g;
}

const bench_peer *bench_peer_get(void) {
#ifdef BENCH_OPENBLAS_SCIPY
    static const char name[] = "openblas";
#else
    static char name[32];
    const char *version = strchr(config(), ' ');
    snprintf(name, sizeof name, "openblas%.*s", version ? (int)strcspn(version + 1, " ") : 0,
             version ? version + 1 : "");
#endif
    static const bench_peer peer = {name, describe, set_threads, prepare, run, free, NULL, NULL, NULL, NULL};
    return &peer;
}
