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
#else
#define config openblas_get_config
#define corename openblas_get_corename
#define set_count openblas_set_num_threads
#define sgemm cblas_sgemm
#define sgemv cblas_sgemv
#endif

typedef struct gemm {
    bench_product product;
    int way;
} gemm;

enum { EACH, VECTOR, STRIDED_BATCH, WAYS };
static const char *const way_names[WAYS] = {"sgemm", "sgemv", "sgemm_batch_strided"};

static void describe(char *text, size_t size) {
    snprintf(text, size, "%.48s; core %s", config(), corename());
}

static void set_threads(int count) {
    set_count(count);
}

static void run(void *state) {
    const gemm *g = state;
    const bench_product *p = &g->product;
    blasint m = (blasint)p->m, n = (blasint)p->n, k = (blasint)p->k;
    if (g->way == STRIDED_BATCH) {
#ifdef BENCH_OPENBLAS_SCIPY
        sgemm_batch(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, p->x, k, m * k, p->w, n, k * n, 0, p->y, n,
                    m * n, (blasint)p->batch);
#endif
    }
    for (int64_t b = 0; b < p->batch; b++) {
        const float *x = p->x + b * m * k, *w = p->w + b * k * n;
        float *y = p->y + b * m * n;
        if (g->way == EACH) sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, x, k, w, n, 0, y, n);
        if (g->way == VECTOR) sgemv(CblasRowMajor, CblasTrans, k, n, 1, w, n, x, 1, 0, y, 1);
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
    static const bench_peer peer = {name, describe, set_threads, prepare, run, free};
    return &peer;
}
