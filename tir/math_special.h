/* Functions as plain arithmetic that have no operator of tir: expression builders call them, so that every target computes the same
 * bits, f64 too unless a comment says otherwise. Operands are f32 or f64. By default f32 is computed in f64, with shorter
 * polynomials, and rounded once.
 *
 * Largest errors are those that the operators' rows publish (`accuracy` of graph/op.h); test/api/map_ulp_test.c measures them. */
#ifndef TIR_MATH_SPECIAL_H
#define TIR_MATH_SPECIAL_H

#include "tir/expr.h"

/* math_error.c. The inverse of erf. */
tir_expr tir_math_erfinv(tir_pool *pool, tir_expr x);

/* math_power.c. Logarithms to base 2 or 10; of f64 with the machine's log. */
tir_expr tir_math_log_of(tir_pool *pool, int base, tir_expr x);
/* sqrt(a^2 + b^2), without intermediate overflow or underflow. */
tir_expr tir_math_hypot(tir_pool *pool, tir_expr a, tir_expr b);
/* x 2^n, rounded once; n of an integer type, any. */
tir_expr tir_math_ldexp(tir_pool *pool, tir_expr x, tir_expr n);
/* sin(pi x) / (pi x) */
tir_expr tir_math_sinc(tir_pool *pool, tir_expr x);

/* math_gamma.c. log |gamma(x)| and its derivative; of f64 with the machine's log. */
tir_expr tir_math_lgamma(tir_pool *pool, tir_expr x);
tir_expr tir_math_digamma(tir_pool *pool, tir_expr x);

/* math_bessel.c. The modified Bessel function of the first kind and order 0 or 1; `scaled`: times exp(-|x|). */
tir_expr tir_math_bessel(tir_pool *pool, int order, bool scaled, tir_expr x);

#endif
