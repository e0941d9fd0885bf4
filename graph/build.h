/* Typed helpers for passes, expansions of composites and tests: graph_add(g, a, b), graph_exp(g, x), ... They emit rows
 * by name (so this header is also the agreement on names of rows and attributes), broadcast like NumPy by explicit
 * `broadcast` nodes, and never convert dtypes: a mismatch raises with what was expected. All run inside the scope of
 * g->arena. */
#ifndef GRAPH_BUILD_H
#define GRAPH_BUILD_H

#include "graph/op.h"

/* ---- emission by name ------------------------------------------------------------------------------------------ */

/* One attribute by name; the rest take the row's defaults. */
typedef struct graph_setting {
    const char *name;
    graph_attribute value;
} graph_setting;
graph_setting graph_set_integer(const char *name,
                                int64_t integer); /* also for dtypes, enumeration indices, sub-graphs, constants */
graph_setting graph_set_bool(const char *name, bool value);
graph_setting graph_set_float(const char *name, double number);
graph_setting graph_set_string(const char *name, const char *string);
graph_setting graph_set_list(const char *name, int count, const int64_t *list); /* copied by emit */
graph_setting graph_set_dims(const char *name, int count, const tir_expr *dims);

/* Raises DLC_INTERNAL for an unknown row or attribute. No broadcasting of operands. */
graph_id graph_emit_with(graph *g, const char *op, int inputs, const graph_id *input, int settings,
                         const graph_setting *setting);
/* Used by public functions and the text form: broadcasts the operands of rows of class MAP to one shape, then graph_emit. */
graph_id graph_emit_broadcast(graph *g, const graph_op *op, int inputs, const graph_id *input,
                              const graph_attribute *attributes);

/* ---- sources ------------------------------------------------------------------------------------------------------
 * input(name, dtype, shape), constant(value, dtype, shape), dimension(size, dtype): an index expression as a rank-0
 * value. */

graph_id graph_new_input(graph *g, const char *name, const graph_shape *shape);
void graph_new_output(graph *g, const char *name, graph_id value);
graph_id graph_literal(graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes); /* copies */
graph_id graph_literal_of(graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes, bool borrow);
graph_id graph_scalar(graph *g, dlc_dtype dtype, double number); /* rank 0; rounded once */
graph_id graph_scalar_i64(graph *g, dlc_dtype dtype, int64_t number);
graph_id graph_whole_number(graph *g, int64_t number); /* rank 0, i64 */
graph_id graph_scalar_like(graph *g, graph_id x,
                           double number); /* rank 0, dtype of x; broadcasts in the helpers below */
graph_id graph_full(graph *g, dlc_dtype dtype, int rank, const tir_expr *dims, double number); /* scalar, broadcast */
graph_id graph_full_like(graph *g, graph_id x, double number); /* shape and dtype of x */
graph_id graph_iota(graph *g, dlc_dtype dtype, int rank, const tir_expr *dims, int axis);
graph_id graph_dimension(graph *g, dlc_dtype dtype, tir_expr size); /* rank 0 */
/* The constant, if the value is a constant node, else NULL. */
const graph_constant *graph_constant_of(const graph *g, graph_id value);
/* Is x a constant whose elements all equal one number, or a broadcast of such a constant? Sets *number. */
bool graph_is_number(const graph *g, graph_id x, double *number);

/* ---- maps ------------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define GRAPH_BUILD_UNARY(X)                                                                                           \
    X(neg)                                                                                                             \
    X(abs)                                                                                                             \
    X(sign) X(sqrt) X(rsqrt) X(exp) X(expm1) X(log) X(log1p) X(sin) X(cos) X(tanh) X(silu) X(logistic) X(floor) X(ceil) \
        X(round) X(not )
#define GRAPH_BUILD_BINARY(X) \
    X(add) X(sub) X(mul) X(div) X(rem) X(min) X(max) X(pow) X(and) X(or) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)
/* clang-format on */
#define X(name) graph_id graph_##name(graph *g, graph_id x);
GRAPH_BUILD_UNARY(X)
#undef X
#define X(name) graph_id graph_##name(graph *g, graph_id a, graph_id b);
GRAPH_BUILD_BINARY(X)
#undef X
/* normal_cdf(x, precise=false): its error is small relative to 1, not to the result: for products with x, as in GELU. */
graph_id graph_normal_cdf(graph *g, graph_id x);
graph_id graph_select(graph *g, graph_id condition, graph_id a, graph_id b);
graph_id graph_clamp(graph *g, graph_id low, graph_id x, graph_id high);
graph_id graph_cast(graph *g, graph_id x, dlc_dtype dtype); /* the same dtype: x itself */
graph_id graph_widen(graph *g, graph_id x);                 /* f16 and bf16 to f32, in which composites compute */
graph_id graph_add_number(graph *g, graph_id x, double number);
graph_id graph_mul_number(graph *g, graph_id x, double number);

/* ---- structure ------------------------------------------------------------------------------------------------- */

graph_id graph_reshape(graph *g, graph_id x, int rank, const tir_expr *dims); /* reshape(x, shape) */
graph_id graph_transpose(graph *g, graph_id x, const int64_t *permutation);   /* transpose(x, permutation) */
/* broadcast(x, shape, axes): result axis axes[i] is operand axis i (of equal extent, or of extent 1, which is repeated); along the
 * other result axes x is repeated. */
graph_id graph_broadcast(graph *g, graph_id x, int rank, const tir_expr *dims, const int64_t *axes);
graph_id graph_broadcast_to(graph *g, graph_id x, int rank,
                            const tir_expr *dims); /* axes aligned at the last, like NumPy */
graph_id graph_broadcast_like(graph *g, graph_id x, graph_id like);
graph_id graph_expand_dims(graph *g, graph_id x, int axis); /* a dimension of 1 before `axis` */
graph_id graph_squeeze(graph *g, graph_id x, int axis);
/* slice(x, start, stop, step); dimension lists may hold symbols in start and stop. step NULL: 1 */
graph_id graph_slice(graph *g, graph_id x, const tir_expr *start, const tir_expr *stop, const int64_t *step);
graph_id graph_slice_axis(graph *g, graph_id x, int axis, tir_expr start, tir_expr stop);
graph_id graph_is_before(graph *g, graph_id a, graph_id b);              /* a < b; NaN comes last, as sort orders it */
graph_id graph_gather(graph *g, graph_id x, graph_id indices, int axis); /* indices are clamped, as by the row */
graph_id graph_gather_elements(graph *g, graph_id x, graph_id indices, int axis);
/* scatter(x, indices, updates, axis, combine=add) */
graph_id graph_scatter_add(graph *g, graph_id x, graph_id indices, graph_id updates, int axis);
graph_id graph_pad(graph *g, graph_id x, graph_id value, const int64_t *low,
                   const int64_t *high); /* pad(x, value, low, high) */
enum { GRAPH_CONCAT_WIDEST = 32 };       /* maximal operands per concat node: larger concats are split */
graph_id graph_concat(graph *g, int count, const graph_id *values, int axis); /* concat(values..., axis) */
graph_id graph_reverse(graph *g, graph_id x, int count, const int64_t *axes); /* reverse(x, axes) */

/* ---- reductions: reduce_sum(x, axes, keep): no axes means all; keep leaves dimensions of 1 --------------------- */

#define GRAPH_BUILD_REDUCE(X) X(sum) X(prod) X(max) X(min) X(and) X(or)
#define X(name) graph_id graph_reduce_##name(graph *g, graph_id x, int count, const int64_t *axes, bool keep);
GRAPH_BUILD_REDUCE(X)
#undef X
graph_id graph_reduce_mean(graph *g, graph_id x, int count, const int64_t *axes,
                           bool keep); /* sum / number of elements */

/* ---- contraction --------------------------------------------------------------------------------------------------
 * dot_general(x, w, batch_x, batch_w, contract_x, contract_w), as StableHLO. Result: batch dimensions, remaining dimensions
 * of a, remaining dimensions of b. */
graph_id graph_contract(graph *g, graph_id a, graph_id b, int batch, const int64_t *a_batch, const int64_t *b_batch,
                        int contract, const int64_t *a_contract, const int64_t *b_contract);
/* The same; `result`: a word of the attribute. */
graph_id graph_contract_as(graph *g, graph_id a, graph_id b, int batch, const int64_t *a_batch, const int64_t *b_batch,
                           int contract, const int64_t *a_contract, const int64_t *b_contract, int64_t result);
graph_id graph_matmul(graph *g, graph_id a, graph_id b); /* NumPy matmul; leading dimensions broadcast */

/* ---- composites, by row name ----------------------------------------------------------------------------------- */
graph_id graph_softmax(graph *g, graph_id x, int axis); /* softmax(x, axis) */

#endif
