/* Helpers common to the expansions of tir/math*.c. */
#ifndef TIR_MATH_PARTS_H
#define TIR_MATH_PARTS_H

#include "tir/math.h"

typedef tir_expr expr; /* local shorthand: expansions are dense */

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* c[0] + c[1]*x + ... by Horner, in the dtype of x. */
tir_expr tir_math_polynomial(tir_pool *pool, tir_expr x, const double *c, int count);
/* min(limit, x); propagates NaN in x. */
tir_expr tir_math_at_most(tir_pool *pool, tir_expr x, double limit);
/* log2 of a finite |x| > 0, f32 or f64, as f64, relative error 2^-38. Denormal f32 are normal f64. */
tir_expr tir_math_log2(tir_pool *pool, tir_expr magnitude);
/* The expansion of a function with one operand, f64; 0: none. */
tir_expr tir_math_expand_f64(tir_pool *pool, tir_op op, tir_expr x);
/* max(limit, x); propagates NaN in x. */
tir_expr tir_math_at_least(tir_pool *pool, tir_expr x, double limit);
/* 2^z as f64, relative error 4e-11, for z of -152..130. */
tir_expr tir_math_exp2(tir_pool *pool, tir_expr z);
/* sin(pi r), f64, |r| <= 1/2 (math_gamma.c). */
tir_expr tir_math_sin_turns(tir_pool *pool, tir_expr r);
/* Expansions for f32 and f64 x: normal_tail and erfc (math_error.c); base^x, base 2 or 10 (math_power.c). */
tir_expr tir_math_normal_tail(tir_pool *pool, tir_expr x);
tir_expr tir_math_erfc(tir_pool *pool, tir_expr x);
tir_expr tir_math_power_of(tir_pool *pool, int base, tir_expr x);

/* ---- f64 (math_wide.c). A pair is an unevaluated sum of two doubles; results called exact are exact with and without fused
 * multiply-adds. */

typedef struct tir_pair {
    tir_expr high, low;
} tir_pair;

/* The first 26 bits: products of such numbers are exact. */
tir_expr tir_math_first_bits(tir_pool *pool, tir_expr x);
/* a + b, exactly; a b, exactly (Dekker 1971); a + b for |a| >= |b|, exactly. */
tir_pair tir_pair_sum(tir_pool *pool, tir_expr a, tir_expr b);
tir_pair tir_pair_product(tir_pool *pool, tir_expr a, tir_expr b);
tir_pair tir_pair_ordered_sum(tir_pool *pool, tir_expr a, tir_expr b);
/* The nearest integer, |x| < 2^51. */
tir_expr tir_math_nearest(tir_pool *pool, tir_expr x);
/* 2^n for an integer n of -1022..1023. */
tir_expr tir_math_power_of_two(tir_pool *pool, tir_expr n);
/* A magnitude with the sign of x. */
tir_expr tir_math_with_sign(tir_pool *pool, tir_expr magnitude, tir_expr x);
/* x - n ln 2 of at most ln(2)/2, and n; |x| < 1400. */
tir_pair tir_math_reduce(tir_pool *pool, tir_expr x, tir_expr *n);
/* exp(r) - 1 of such a reduced argument, some 58 bits. */
tir_pair tir_math_expm1_reduced(tir_pool *pool, tir_pair r);

#endif
