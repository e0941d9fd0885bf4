/* OpenBLAS as a peer, for contractions. A plug-in: built where its header is found. It cannot fuse: bias and activation are a second
 * pass of compiled C; lines with act=gelu are not measured, as the pass would be the C library's erff. */
#include "bench/bench.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

typedef struct gemm {
    const float *x, *w, *bias;
    float *y;
    blasint m, n, k;
    int64_t batch;
    bool relu, vector;
} gemm;

static void describe(char *text, size_t size) {
    snprintf(text, size, "%.48s; core %s", openblas_get_config(), openblas_get_corename());
}

static void set_threads(int count) {
    openblas_set_num_threads(count);
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    const bench_shape *s = problem->shape;
    const char *act = bench_text(s, "act");
    if (strcmp(s->kind, "contraction") != 0 || (act && strcmp(act, "relu") != 0)) return NULL;
    gemm *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    *g = (gemm){.x = problem->operands[0].data, .w = problem->operands[1].data, .y = problem->results[0].data};
    if (bench_flag(s, "bias")) g->bias = problem->operands[2].data;
    g->relu = act != NULL;
    g->batch = bench_number(s, "b", 1);
    g->m = (blasint)bench_number(s, "m", 1), g->n = (blasint)bench_number(s, "n", 1),
    g->k = (blasint)bench_number(s, "k", 1);
    g->vector = g->m == 1;
    snprintf(note, note_size, "%s", g->vector ? "sgemv" : "sgemm");
    return g;
}

static void run(void *state) {
    const gemm *g = state;
    for (int64_t b = 0; b < g->batch; b++) {
        const float *x = g->x + b * g->m * g->k, *w = g->w + b * g->k * g->n;
        float *y = g->y + b * g->m * g->n;
        if (g->vector)
            cblas_sgemv(CblasRowMajor, CblasTrans, g->k, g->n, 1, w, g->n, x, 1, 0, y, 1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, g->m, g->n, g->k, 1, x, g->k, w, g->n, 0, y, g->n);
        for (blasint i = 0; g->bias && i < g->m; i++) {
            for (blasint j = 0; j < g->n; j++) {
                float v = y[i * g->n + j] + g->bias[j];
                y[i * g->n + j] = g->relu && v < 0 ? 0 : v;
            }
        }
    }
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"openblas", describe, set_threads, prepare, run, free};
    return &peer;
}
