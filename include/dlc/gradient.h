/* Derivatives: values of a graph with respect to other values of it, as further values of the same graph; mixed precision. Included in
 * addition to <dlc/dlc.h>, whose conventions hold.
 *
 *   dlc_value loss = ...;                                    one element of a float type
 *   dlc_value gradients[2];
 *   dlc_gradient(loss, 2, (dlc_value[]){w, b}, gradients);   ordinary values: outputs, or operands of an update
 *
 * The calls are builder calls: they add operators to the graph that the values belong to, which is then compiled, forward and backward
 * together; derivatives of derivatives are further calls. All operators differentiate by rules of their own or by what they expand to;
 * the operator reference says how, and which have no derivative.
 *
 * Own rules   dlc_with_gradient (<dlc/ops.h>) takes a graph of results and one of cotangents, for one place in a graph: straight-through
 *             estimators, a better form, dlc_custom_call. A registered operator has a function for it (`gradient` in <dlc/extend.h>).
 *
 * Types       Derivatives have the element type of the value that they belong to; between it and the loss, those of f16, bf16 and 8-bit
 *             floats are f32; the derivative of a product rounds them to the type of the operand that it multiplies. c64 counts as two real numbers: the derivative is that in the real part plus i times that in the imaginary one.
 *             Integers and bools have none: nothing passes through them.
 * Kinks       Where there is no derivative: 0 for abs and relu at 0; a half each for min and max of equals; equal shares for the greatest
 *             of a reduction; clamp: the bound; what names a place (sort, top_k, windows, cumulative extremes): the place named.
 * Zeros       A value that does not influence the loss has derivative exactly 0: the side that a select does not take, padding, masked
 *             elements, also where the operator's derivative is infinite or NaN, and in derivatives of derivatives. Contractions and
 *             convolutions add the products of all their terms: an element of an operand that is infinite or NaN makes the sums that it is a
 *             term of infinite or NaN, whatever it is multiplied with. Mask such an operand, not the result.
 * Memory      What derivatives read is kept from where it is computed. dlc_recompute (<dlc/ops.h>) calls a sub-graph of which only the operands
 *             are kept; of dlc_compile_options, `recompute` keeps the values with the fewest bytes from which maps compute the others, and
 *             memory_bytes computes values again wherever it takes the least time, until a limit is kept.
 * Order       Derivatives that meet in one value are added in an order that depends on the graph alone.
 * Errors      The first mistake is recorded in the graph, and results are poisoned: values of different graphs, of a destroyed graph, of a
 *             graph around a sub-graph; wrong shapes or types; DLC_UNSUPPORTED for an operator without a derivative, with the way to it:
 *             `dlc_gradient: custom_call (node 41) has no gradient, on the way loss <- mean <- custom_call <- w`.
 * Ownership   Arrays are read or written before the call returns. */
#ifndef DLC_GRADIENT_H
#define DLC_GRADIENT_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gradients[i] = d loss / d wrt[i], of the shape and type of wrt[i], for i < count; zeros if the loss does not depend on it, which the log
 * reports. loss: one element (of any rank) of a float type. wrt: any values of the loss's graph of float types or c64, inputs or not. */
DLC_API void dlc_gradient(dlc_value loss, int count, const dlc_value *wrt, dlc_value *gradients);
/* The transposed Jacobian times vectors (reverse mode): out[i] = sum over r of (d y[r] / d wrt[i])^T cotangents[r]. cotangents[r]: shape
 * and type of y[r]; out[i]: of wrt[i]. */
DLC_API void dlc_vjp(int results, const dlc_value *y, const dlc_value *cotangents, int count, const dlc_value *wrt,
                     dlc_value *out);
/* The Jacobian times vectors (forward mode): out[r] = sum over i of (d y[r] / d x[i]) tangents[i]. tangents[i]: shape and type of x[i];
 * out[r]: of y[r]. A value may be among x twice, or depend on another one: its tangents are added. */
DLC_API void dlc_jvp(int count, const dlc_value *x, const dlc_value *tangents, int results, const dlc_value *y,
                     dlc_value *out);
/* The Hessian of the loss times a vector: out[i] = sum over k of (d^2 loss / d x[i] d x[k]) direction[k], of the shape and type of x[i]: the
 * jvp of the gradient (Pearlmutter 1994). direction[k]: shape and type of x[k]. */
DLC_API void dlc_hvp(dlc_value loss, int count, const dlc_value *x, const dlc_value *direction, dlc_value *out);

/* out[i] = y[i] computed in mixed precision, of the same type: products (contractions, convolutions, those of attention and of recurrent
 * layers) take operands rounded to `narrow`, DLC_BF16 or DLC_F16, and give f32 sums; so do those in sub-graphs. Everything else is
 * computed in f32 as before: sums of exponentials, statistics, losses, powers. Moves and choices of elements that only products read are
 * narrow, which changes no bit; the operator reference says which. What is not f32 (inputs in other types, f64) stays as it is, and so do
 * operators with effects, and those that count sizes, with what they depend on. y: values of one graph, of any types: what several of them
 * depend on is computed once if one call names them all; out may be y.
 *
 *   dlc_mixed_precision(1, &loss, DLC_BF16, &loss);          inputs and parameters stay f32
 *   dlc_gradient(loss, 2, (dlc_value[]){w, b}, gradients);   f32; products of the derivatives are narrow, too
 *
 * The range of f16 is small: derivatives below 6e-8 in it become 0. Multiply the loss by a power of 2, and divide the gradients by it. */
DLC_API void dlc_mixed_precision(int count, const dlc_value *y, dlc_dtype narrow, dlc_value *out);

#ifdef __cplusplus
}
#endif

#endif
