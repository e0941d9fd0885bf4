/* Derivatives of graphs: reverse mode (cotangents, from results back to operands) and forward mode (tangents). Both emit ordinary rows into
 * the graph itself, so that what follows treats forward and backward computations alike, and derivatives can be taken again.
 *
 * A row differentiates in the first of these ways that it has (op.h):
 *   none       GRAPH_NO_GRADIENT: nothing passes
 *   vjp        its function for reverse mode
 *   linear     per operand: `transpose` in reverse mode; in forward mode the row itself, on the tangent
 *   jvp        its function for forward mode; in reverse mode the function is applied to placeholders for the tangents (again), and what
 *              it emits, which is linear in them, is differentiated in turn
 *   partial    maps: the derivative with respect to one operand, element by element
 *   scalar     maps: the derivative of the scalar expression (tir/derivative.h)
 *   expand     composites: the derivative of the expansion; registered tensor expressions: that of their stages as rows (gradient_stage.h)
 * A row with none of these is refused. */
#ifndef GRAPH_GRADIENT_H
#define GRAPH_GRADIENT_H

#include "graph/op.h"

/* The element type of tangents and cotangents of a value: f32 for narrower floats, else its own. */
static inline dlc_dtype graph_tangent_dtype(dlc_dtype dtype) {
    return graph_sum_dtype(dtype);
}

/* Scalar expressions and their derivatives, shared by the maps of a walk (gradient_map.c). */
typedef struct graph_map_pool graph_map_pool;

/* A node whose row's rule is applied, and the rule's arguments. The rule emits into g. */
struct graph_rule {
    graph *g;
    const graph_op *op;
    int inputs, results;
    /* 0: an omitted optional operand */
    const graph_id *input;
    const graph_attribute *attribute;
    /* result i is first + i */
    graph_id first;
    /* transpose, partial: the operand concerned */
    int operand;
    /* transpose, vjp: by result; 0: it is 0. Shapes are the results', element types those of graph_tangent_dtype. */
    const graph_id *cotangent;
    /* jvp: by operand; 0: the operand does not move */
    const graph_id *tangent;
    /* vjp: by operand: its cotangent is wanted */
    const bool *wanted;
    /* To be set. transpose: out[0], the cotangent of the operand; vjp: of each wanted operand; jvp: the tangent of each result; partial:
     * out[0], the derivative, or a bool: whether it is 1, else 0. 0: it is 0. */
    graph_id *out;
    /* the walk's */
    graph_map_pool *maps;
};

/* The operand, a result, of a float type narrower than f32 converted to f32: the type in which rules compute. */
graph_id graph_rule_operand(const graph_rule *rule, int operand);
graph_id graph_rule_result(const graph_rule *rule, int result);

/* For a row whose `vjp` is that of its `jvp` in some cases: sets out[] to the cotangents of the wanted operands by transposing `jvp`. */
void graph_rule_transpose_tangents(graph_rule *rule);
/* A `jvp` for rows whose `vjp` is linear in the cotangents: its transpose. Raises DLC_UNSUPPORTED if it is not linear. */
void graph_rule_transpose_cotangents(graph_rule *rule);

/* Sets out[i] to the cotangent of wrt[i], given those of the values y; 0: it is 0. Cotangents have the types of graph_tangent_dtype.
 * `call` begins messages. Raises DLC_INVALID_ARGUMENT, or DLC_UNSUPPORTED for a row that does not differentiate, with the way from y to
 * it. */
void graph_vjp(graph *g, const char *call, int results, const graph_id *y, const graph_id *cotangents, int count,
               const graph_id *wrt, graph_id *out);
/* Sets out[i] to the tangent of y[i], given those of the values x; 0: it is 0. */
void graph_jvp(graph *g, const char *call, int count, const graph_id *x, const graph_id *tangents, int results,
               const graph_id *y, graph_id *out);
/* Derivatives of the loss, which is one float element, in the types of wrt; zeros where it does not depend on wrt[i]. */
void graph_gradient(graph *g, const char *call, graph_id loss, int count, const graph_id *wrt, graph_id *gradients);

/* Passes. A copy of g with further outputs: of the loss, its first output, the gradient of each input of a float type, "x.gradient"; or
 * with an input "x.tangent" for each of these, and for each output of a float type "y.tangent". */
graph *graph_add_gradients(lib_arena *arena, const graph *g);
graph *graph_add_tangents(lib_arena *arena, const graph *g);

/* gradient_loop.c: rules of the rows of control flow. */
void graph_tangent_if(graph_rule *rule);
void graph_cotangent_if(graph_rule *rule);
void graph_tangent_while(graph_rule *rule);
void graph_tangent_scan(graph_rule *rule);
void graph_cotangent_scan(graph_rule *rule);
void graph_tangent_cut(graph_rule *rule);
void graph_cotangent_cut(graph_rule *rule);
void graph_cotangent_recompute(graph_rule *rule);
void graph_cotangent_with_gradient(graph_rule *rule);

/* gradient_map.c */
graph_map_pool *graph_new_map_pool(lib_arena *arena);
/* The cotangent (or tangent) `given` times the derivative of the map with respect to rule->operand; 0: it is 0. */
graph_id graph_map_scaled(const graph_rule *rule, graph_id given);
/* The row that computes expression e, a number or an operator, of its operands x[]. */
graph_id graph_emit_scalar(graph *g, const tir_pool *pool, tir_expr e, const graph_id *x);
/* a * b, and 0 where a is 0 whatever b is; the operands broadcast. */
graph_id graph_multiply_no_nan(graph *g, graph_id a, graph_id b);

#endif
