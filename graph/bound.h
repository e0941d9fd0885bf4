/* How far two legal computations of one graph may lie apart, for tests. Kernels may add up in another order, and with excess precision
 * leave out roundings; everything else is the same arithmetic everywhere. Of each value of a bound graph: the greatest absolute
 * difference that order can cause, 0 where the bits must be the same.
 *
 * A rule of a row (`bound` of graph/op.h) makes the bound of its results from those of its operands. Most rows say nothing:
 * - maps are derived from their f64 reference, which is evaluated all over the operands' range and beside it by their error. A result that
 *   jumps there to another integer or to no number (a comparison, a cast, a pole) has no bound;
 * - what picks elements (class INJECTIVE, SCATTER) has the bound of what it picks from;
 * - reductions, contractions are sums;
 * - composites are what they expand to.
 * Rules that rows name stand below; they are compiled for tests only (`reference_objects` of the Makefile). */
#ifndef GRAPH_BOUND_H
#define GRAPH_BOUND_H

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/op.h"

struct graph_bound {
    /* Greatest absolute difference of an element; INFINITY: nothing is known. */
    double error;
    /* Range of the finite elements; infinite: unknown. */
    double low, high;
    /* May hold NaN or infinities. */
    bool special;
    /* Integers so small that sums of them are exact in any order. */
    bool integral;
};

/* One node, for a rule. */
struct graph_bound_node {
    lib_arena *arena;
    const graph *g;
    const graph_node *node;
    const graph_op *op;
    /* [inputs]; of operands left out all fields are 0 */
    const graph_bound *in;
    int inputs;
    /* Shapes of the first operand (NULL: none) and the first result. */
    const graph_shape *x, *y;
    /* Roundings of narrow floats between operators may be left out. */
    bool excess;
};

/* ---- the graph */

/* values: [g->values.count]; inputs: of the graph's inputs. The graph has no symbols but those that a run counts. */
void graph_bound_values(lib_arena *arena, const graph *g, const graph_bound *inputs, bool excess, graph_bound *values);

/* ---- numbers */

double graph_bound_magnitude(const graph_bound *b);
/* Everything that a dtype holds. */
graph_bound graph_bound_of_dtype(dlc_dtype dtype);
/* -magnitude..magnitude */
graph_bound graph_bound_within(double magnitude);
double graph_bound_largest(dlc_dtype dtype);
/* Relative distance of neighbouring numbers; of what narrow types are summed in, with `sums`. */
double graph_bound_epsilon(dlc_dtype dtype, bool sums);
/* Distance of neighbouring numbers around zero. */
double graph_bound_least(dlc_dtype dtype);
/* What a size that a run counts (graph/segment.h) is taken for. */
enum { GRAPH_BOUND_COUNTED = 1000 };
int64_t graph_bound_dim(const graph *g, const graph_shape *shape, int axis);
double graph_bound_count(const graph *g, const graph_shape *shape);
const graph_attribute *graph_bound_attribute(const graph_bound_node *b, const char *name);
const graph_shape *graph_bound_shape(const graph_bound_node *b, int operand);
bool graph_bound_given(const graph_bound_node *b, int operand);
/* The widest of all operands. */
graph_bound graph_bound_join(const graph_bound_node *b);
/* Elements of operand 0 that make one element of a reduction: by attribute axes (none: all), window or axis. */
double graph_bound_terms(const graph_bound_node *b);
/* Sum of `terms` products of that magnitude, each wrong by `error`, in any order. */
graph_bound graph_bound_summed(const graph_bound_node *b, double terms, double magnitude, double error, bool special,
                               bool integral);
/* Are products and sums separate instructions on this machine? Functions are polynomials of fused ones where there are some. */
bool graph_bound_is_apart(void);
/* What a function of exact operands may differ by on such a machine: each side lies within the row's tolerance. */
double graph_bound_apart(const graph_bound_node *b, double magnitude);

/* ---- rules: what rows say that are not as their class is */

/* Derived from the reference, element by element; also of composites whose result has the operands' shape. */
graph_bound graph_bound_map(const graph_bound_node *b);
/* Elements of operands of the result's dtype. */
graph_bound graph_bound_picked(const graph_bound_node *b);
/* Sum of graph_bound_terms elements; a product of them; their mean. */
graph_bound graph_bound_sum(const graph_bound_node *b);
graph_bound graph_bound_product(const graph_bound_node *b);
graph_bound graph_bound_mean(const graph_bound_node *b);
/* The greatest or least of elements, or the lowest or highest number. */
graph_bound graph_bound_extreme(const graph_bound_node *b);
/* Sums of products of two operands, and a third one added. */
graph_bound graph_bound_contraction(const graph_bound_node *b);
/* The same arithmetic everywhere: of exact operands all bits; what it makes of an error is not known. */
graph_bound graph_bound_same_steps(const graph_bound_node *b);
/* Likewise, but for products that are subtracted by fused operations where a machine has them. */
graph_bound graph_bound_fused_steps(const graph_bound_node *b);
/* Sums whose order is not fixed beside steps as those: nothing is known. */
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
