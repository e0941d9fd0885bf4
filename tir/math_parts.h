/* Parts that the expansions of tir/math.c and tir/math_wide.c share. */
#ifndef TIR_MATH_PARTS_H
#define TIR_MATH_PARTS_H

#include "tir/math.h"

/* c[0] + c[1]*x + ... by Horner, in the dtype of x. */
tir_expr tir_math_polynomial(tir_pool *pool, tir_expr x, const double *c, int count);
/* min(limit, x), which passes NaN in x on. */
tir_expr tir_math_at_most(tir_pool *pool, tir_expr x, double limit);
/* log2 of a finite |x| > 0, f32 or f64, as f64, relative error 2^-38. Denormal f32 are normal f64. */
tir_expr tir_math_log2(tir_pool *pool, tir_expr magnitude);
/* Of a function with one operand, f64; 0: there is none. */
tir_expr tir_math_expand_f64(tir_pool *pool, tir_op op, tir_expr x);

#endif
