/* libxsmm as a peer, for small contractions: code made for the shape. It has no threads of its own for one product, and cannot fuse:
 * bias and activation are a second pass. */
#include "bench/peer.h"

#include <libxsmm.h>
#include <stdlib.h>

/* Beyond this many multiply-adds it does not apply: its code is for one tile that stays in the caches. */
enum { MOST_MULTIPLY_ADDS = 128 * 128 * 128 };

typedef struct gemm {
    bench_product product;
    libxsmm_smmfunction kernel;
} gemm;

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s; %s; one thread", LIBXSMM_VERSION, libxsmm_get_target_arch());
}

static void set_threads(int count) {
    (void)count;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    gemm g = {0};
    if (!bench_product_of(&g.product, problem)) return NULL;
    const bench_product *p = &g.product;
    if (p->dtype != DLC_F32 || p->m * p->n * p->k > MOST_MULTIPLY_ADDS) return NULL;
    /* Column-major: y transposed is w transposed times x transposed. */
    const int flags = LIBXSMM_GEMM_FLAG_NONE, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    const float alpha = 1, beta = 0;
    g.kernel = libxsmm_smmdispatch((libxsmm_blasint)p->n, (libxsmm_blasint)p->m, (libxsmm_blasint)p->k, NULL, NULL,
                                   NULL, &alpha, &beta, &flags, &prefetch);
    gemm *state = g.kernel ? malloc(sizeof *state) : NULL;
    if (!state) return NULL;
    *state = g;
    snprintf(note, note_size, "smmdispatch");
    return state;
}

static void run(void *state) {
    const gemm *g = state;
    const bench_product *p = &g->product;
    for (int64_t b = 0; b < p->batch; b++) {
        char *y = p->y + 4 * b * p->m * p->n;
        g->kernel((const void *)(p->w + 4 * b * p->k * p->n), (const void *)(p->x + 4 * b * p->m * p->k), (void *)y);
        bench_product_finish(p, y);
    }
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"libxsmm", describe, set_threads, prepare, run, free, NULL, NULL, NULL, NULL};
    return &peer;
}
