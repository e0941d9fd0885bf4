/* Derivatives of scalar expressions: for gradients of maps and of tensor expressions. */
#ifndef TIR_DERIVATIVE_H
#define TIR_DERIVATIVE_H

#include "tir/expr.h"

/* The derivative of e with respect to the variable `leaf` of a float dtype, at the values of the variables; y: an expression of e's value (e
 * itself, or a variable that holds it). 0: the derivative is 0 everywhere where it exists. Of minima and maxima each operand has half where
 * both are equal; abs has 0 at 0. */
tir_expr tir_derivative(tir_pool *pool, tir_expr e, tir_expr leaf, tir_expr y);

#endif
