/* Transcendentals, expanded once for all targets into plain arithmetic, so that every target gives the interpreter's bits.
 * f32: polynomials and range reduction in f32 (error bounds per function in math.c); f16, bf16: computed in f32 and
 * rounded; f64: hyperbolic functions, their inverses and cbrt by arithmetic on sums of two doubles
 * (math_wide.c); other f64 functions stay, and targets call libm per lane. Expansions use MULADD (fma or mul+add by machine facts)
 * and stay within their bounds with either. */
#ifndef TIR_MATH_H
#define TIR_MATH_H

#include "tir/expr.h"

/* The expansion of one node of a TIR_MATH operator with f32 operands, or with f64 operands where tir_math_is_call is false, or of logistic
 * and silu of f64. */
tir_expr tir_math_expand(tir_pool *pool, tir_op op, const tir_expr *operands);

/* Whether legalisation leaves a call of the machine's library, which then determines the last bits. */
bool tir_math_is_call(tir_op op, tir_dtype operand);

/* Makes an expression ready for loop IR: f16 and bf16 arithmetic becomes f32 arithmetic with a rounding cast after each
 * operator (with `excess` only the program's casts and stores round), transcendentals are expanded, MULADD becomes
 * FMA or MUL and ADD, LDEXP of an expansion becomes plain arithmetic of the same bits unless the machine `scales`. Loads keep their
 * dtype and are cast. */
tir_expr tir_legalize(tir_pool *pool, tir_expr e, bool has_fma, bool scales, bool excess);

#endif
