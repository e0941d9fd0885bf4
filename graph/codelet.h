/* Discrete Fourier transforms of a few points as expressions: the butterflies of one pass of a longer transform. */
#ifndef GRAPH_CODELET_H
#define GRAPH_CODELET_H

#include "tir/expr.h"

enum { GRAPH_CODELET_MAX = 32 };

typedef struct graph_complex {
    /* im 0: a real number */
    tir_expr re, im;
} graph_complex;

/* y[k] = sum over j of x[j] exp(sign 2 pi i j k / n); sign is 1 or -1, 1 <= n <= GRAPH_CODELET_MAX. Splits n into factors as Cooley
 * and Tukey (1965); a prime n is computed from sums and differences of x[j] and x[n-j]. */
void graph_codelet(tir_pool *pool, tir_dtype dtype, int n, int sign, const graph_complex *x, graph_complex *y);

/* cos and sin of 2 pi k/n, n > 0 and both below 2^40: error at most two units in the last place; 0, 1 and cos = sin are exact. */
double graph_turn_cosine(int64_t k, int64_t n);
double graph_turn_sine(int64_t k, int64_t n);

#endif
