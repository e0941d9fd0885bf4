/* An upper bound on the difference between two legal computations of one graph, for tests. Kernels may sum in another order, and
 * omit roundings if excess precision is allowed; all other arithmetic is identical everywhere. For each value of a graph: the
 * greatest absolute difference of an element that this can cause, 0 if the bits must be identical.
 *
 * A rule of a row (`bound` of graph/op.h) derives the bound of its results from those of its operands. Most rows have no rule:
 * - maps are derived from their f64 reference, evaluated over the operands' range and at points shifted by the operands' error. A result
 *   that jumps there to another integer, or from a number to NaN or infinity (a comparison, a cast, a pole), has no bound;
 * - operators that select elements (class INJECTIVE, SCATTER) have the bound of the elements;
 * - reductions and contractions are sums;
 * - composites have the bound of their expansion.
 * The rules that rows name are declared below; they are compiled for tests only (`reference_objects` of the Makefile). */
#ifndef GRAPH_BOUND_H
#define GRAPH_BOUND_H

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/op.h"

struct graph_bound {
    /* Greatest absolute difference of an element; INFINITY: unknown. */
    double error;
    /* Range of the finite elements; infinite: unknown. */
    double low, high;
    /* May contain NaN or infinities. */
    bool special;
    /* Integers small enough that their sums are exact in any order. */
    bool integral;
};

/* The argument of a rule: one node. */
struct graph_bound_node {
    lib_arena *arena;
    const graph *g;
    const graph_node *node;
    const graph_op *op;
    /* [inputs]; all fields of omitted operands are 0 */
    const graph_bound *in;
    int inputs;
    /* Shapes of the first operand (NULL: none) and the first result. */
    const graph_shape *x, *y;
    /* Roundings of narrow floats between operators may be omitted. */
    bool excess;
};

/* ---- the graph */

/* Sets values[v] for each value v of g from the bounds of its inputs, inputs[i]. excess: roundings of narrow floats may be omitted. The
 * graph has no symbols except counted sizes. */
void graph_bound_values(lib_arena *arena, const graph *g, const graph_bound *inputs, bool excess, graph_bound *values);

/* ---- numbers */

/* The largest magnitude in the range. */
double graph_bound_magnitude(const graph_bound *b);
/* The full range of a dtype. */
graph_bound graph_bound_of_dtype(dlc_dtype dtype);
/* -magnitude..magnitude */
graph_bound graph_bound_within(double magnitude);
double graph_bound_largest(dlc_dtype dtype);
/* Relative distance of neighbouring numbers of the dtype; if `sums`, of the dtype in which its elements are summed. */
double graph_bound_epsilon(dlc_dtype dtype, bool sums);
/* Distance of neighbouring numbers around zero. */
double graph_bound_least(dlc_dtype dtype);
/* The assumed value of a counted size (graph/segment.h). */
enum { GRAPH_BOUND_COUNTED = 1000 };
int64_t graph_bound_dim(const graph *g, const graph_shape *shape, int axis);
double graph_bound_count(const graph *g, const graph_shape *shape);
const graph_attribute *graph_bound_attribute(const graph_bound_node *b, const char *name);
const graph_shape *graph_bound_shape(const graph_bound_node *b, int operand);
bool graph_bound_given(const graph_bound_node *b, int operand);
/* The union of all operands' bounds. */
graph_bound graph_bound_join(const graph_bound_node *b);
/* Elements of operand 0 per result element of a reduction: by attribute axes (none: all), window or axis. */
double graph_bound_terms(const graph_bound_node *b);
/* Bound of a sum, in any order, of `terms` numbers of at most `magnitude`, each with `error`. */
graph_bound graph_bound_summed(const graph_bound_node *b, double terms, double magnitude, double error, bool special,
                               bool integral);
/* Does this machine lack fused multiply-add? Polynomials of functions use fused multiply-add where it exists, as the interpreter does;
 * on other machines kernels may differ from it. */
bool graph_bound_is_apart(void);
/* The greatest difference of a function's results from the interpreter's on such a machine, for exact operands and results of at most
 * `magnitude`: both are within the row's tolerance. */
double graph_bound_apart(const graph_bound_node *b, double magnitude);

/* ---- rules for rows that differ from their class */

/* From the row's f64 reference, element by element; also for composites whose result has the operands' shape. */
graph_bound graph_bound_map(const graph_bound_node *b);
/* The result consists of elements of the operands with its dtype. */
graph_bound graph_bound_picked(const graph_bound_node *b);
/* unpack_bits, pack_bits: the bound of the elements, or, for codes of floats, the full range of the dtype. */
graph_bound graph_bound_codes(const graph_bound_node *b);
/* Sum of graph_bound_terms elements; a product of them; their mean. */
graph_bound graph_bound_sum(const graph_bound_node *b);
graph_bound graph_bound_product(const graph_bound_node *b);
graph_bound graph_bound_mean(const graph_bound_node *b);
/* Maximum or minimum of elements, or the dtype's lowest or highest number. */
graph_bound graph_bound_extreme(const graph_bound_node *b);
/* and, or, xor of elements. */
graph_bound graph_bound_bits(const graph_bound_node *b);
/* Sums of products of two operands, plus a third operand. */
graph_bound graph_bound_contraction(const graph_bound_node *b);
graph_bound graph_bound_einsum(const graph_bound_node *b);
graph_bound graph_bound_convolution(const graph_bound_node *b);
graph_bound graph_bound_convolution_weights(const graph_bound_node *b);
graph_bound graph_bound_convolution_transposed(const graph_bound_node *b);
/* Identical arithmetic everywhere: exact operands give identical bits; for inexact ones the error is unknown. */
graph_bound graph_bound_same_steps(const graph_bound_node *b);
/* graph_bound_same_steps, except that fused multiply-add is used on machines that have it. */
graph_bound graph_bound_fused_steps(const graph_bound_node *b);
/* Identical arithmetic combined with sums of unspecified order: the error is unknown. */
graph_bound graph_bound_any_order(const graph_bound_node *b);
graph_bound graph_bound_scatter(const graph_bound_node *b);
graph_bound graph_bound_window(const graph_bound_node *b);
graph_bound graph_bound_average_pool(const graph_bound_node *b);
graph_bound graph_bound_winograd(const graph_bound_node *b);
graph_bound graph_bound_fft(const graph_bound_node *b);
graph_bound graph_bound_dft(const graph_bound_node *b);
graph_bound graph_bound_softmax(const graph_bound_node *b);
graph_bound graph_bound_log_softmax(const graph_bound_node *b);
graph_bound graph_bound_variance(const graph_bound_node *b);
graph_bound graph_bound_norm(const graph_bound_node *b);
graph_bound graph_bound_attention(const graph_bound_node *b);
graph_bound graph_bound_recurrence(const graph_bound_node *b);
graph_bound graph_bound_resize(const graph_bound_node *b);
graph_bound graph_bound_positions(const graph_bound_node *b);
graph_bound graph_bound_random(const graph_bound_node *b);

#endif
