/* What plug-ins share. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/bench.h"

/* A peer has up to `count` ways to do a case: attempt(way) gives a state that has run once, or NULL. Returns the one that is fastest
 * now, the others released; NULL when there is none. */
typedef void *bench_attempt(int way, const bench_problem *problem);
void *bench_fastest(int count, bench_attempt *attempt, void (*run)(void *state), void (*release)(void *state),
                    const bench_problem *problem);

/* What a contraction's case asks for, for peers that multiply and leave bias and activation to a second pass. */
typedef struct bench_product {
    /* f32 or f64, of all */
    dlc_dtype dtype;
    /* bias NULL: none */
    const char *x, *w, *bias;
    char *y;
    int64_t batch, m, n, k;
    bool relu;
} bench_product;

/* False for other kinds, other element types, and for activations that a second pass of compiled C cannot do at speed (GELU would be libm's erff). */
bool bench_product_of(bench_product *product, const bench_problem *problem);
/* The second pass over one matrix of the batch. */
void bench_product_finish(const bench_product *product, char *y);

#endif
