/* Declarations shared by the plug-ins. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/bench.h"

/* A peer has up to `count` implementations of a case: attempt(way) returns a state that has run once, or NULL. Returns the fastest one,
 * the others released; NULL if there is none. */
typedef void *bench_attempt(int way, const bench_problem *problem);
void *bench_fastest(int count, bench_attempt *attempt, void (*run)(void *state), void (*release)(void *state),
                    const bench_problem *problem);

/* The parts of a contraction case, for peers that multiply and apply bias and activation in a second pass. */
typedef struct bench_product {
    /* f32 or f64, the type of all tensors */
    dlc_dtype dtype;
    /* bias NULL: none */
    const char *x, *w, *bias;
    char *y;
    int64_t batch, m, n, k;
    bool relu;
} bench_product;

/* Sets *product. False: another kind of case, another element type, or an activation that is slow in a second pass of compiled C (GELU
 * would be libm's erff). */
bool bench_product_of(bench_product *product, const bench_problem *problem);
/* The second pass over one matrix of the batch. */
void bench_product_finish(const bench_product *product, char *y);

#endif
