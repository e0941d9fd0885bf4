/* Shared by the plug-ins: the choice among several implementations, and the second pass of peers that only multiply. */
#include "bench/peer.h"

#include <math.h>
#include <string.h>

/* The best time of a few runs within 30 ms; long runs are repeated less often. */
static double quick_time(void (*run)(void *), void *state) {
    double best = HUGE_VAL, begin = bench_now();
    for (int i = 0; i < 1000 && (bench_now() - begin < 0.03 || (i < 3 && bench_now() - begin < 0.2)); i++) {
        double start = bench_now();
        run(state);
        double seconds = bench_now() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

void *bench_fastest(int count, bench_attempt *attempt, void (*run)(void *), void (*release)(void *),
                    const bench_problem *problem) {
    void *best = NULL;
    double best_seconds = HUGE_VAL;
    for (int i = 0; i < count; i++) {
        void *state = attempt(i, problem);
        if (!state) continue;
        double seconds = count > 1 ? quick_time(run, state) : 0;
        if (best && seconds >= best_seconds) {
            release(state);
            continue;
        }
        if (best) release(best);
        best = state, best_seconds = seconds;
    }
    return best;
}

bool bench_product_of(bench_product *product, const bench_problem *problem) {
    const bench_shape *s = problem->shape;
    const char *act = bench_text(s, "act");
    dlc_dtype dtype = problem->operands[0].dtype;
    if (strcmp(s->kind, "contraction") != 0 || (act && strcmp(act, "relu") != 0)) return false;
    if ((dtype != DLC_F32 && dtype != DLC_F64) || problem->results[0].dtype != dtype) return false;
    *product = (bench_product){.dtype = dtype,
                               .x = problem->operands[0].data,
                               .w = problem->operands[1].data,
                               .bias = bench_flag(s, "bias") ? problem->operands[2].data : NULL,
                               .y = problem->results[0].data,
                               .batch = bench_number(s, "b", 1),
                               .m = bench_number(s, "m", 1),
                               .n = bench_number(s, "n", 1),
                               .k = bench_number(s, "k", 1),
                               .relu = act != NULL};
    return true;
}

#define FINISH(type)                                             \
    static void finish_##type(const bench_product *p, type *y) { \
        const type *bias = (const void *)p->bias;                \
        for (int64_t i = 0; i < p->m; i++) {                     \
            for (int64_t j = 0; j < p->n; j++) {                 \
                type v = y[i * p->n + j] + (bias ? bias[j] : 0); \
                y[i * p->n + j] = p->relu && v < 0 ? 0 : v;      \
            }                                                    \
        }                                                        \
    }
FINISH(float)
FINISH(double)

void bench_product_finish(const bench_product *product, char *y) {
    if (!product->bias && !product->relu) return;
    if (product->dtype == DLC_F64)
        finish_double(product, (void *)y);
    else
        finish_float(product, (void *)y);
}
