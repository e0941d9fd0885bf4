/* Operators whose number of results depends on data. Each fills as many places as there can be and cuts (`cut`): everything here is
 * an expansion into rows that know nothing of that. */
#include "graph/build.h"
#include "graph/ops_common.h"

/* The attribute that names the counted dimension. */
#define COUNTED_SIZE                                                                     \
    {                                                                                    \
        "size", GRAPH_ATTR_DIMS, NULL, NULL,                                             \
            "a symbol of its own, which no input has: the name of the counted dimension" \
    }

static void infer_counted(const graph_infer *infer, const graph_attribute *size) {
    const tir_pool *pool = infer->g->pool;
    bool symbol = size->count == 1 && tir_op_of(pool, size->dims[0]) == TIR_VAR;
    if (!symbol || tir_variable_of(pool, size->dims[0])->kind != TIR_VAR_PARAM)
        graph_infer_fail(infer, "size must be one symbol, which the count will be the value of");
}

/* Positions in a row of that many: as narrow as they can be. */
static dlc_dtype position_dtype(const graph *g, tir_expr count) {
    return tir_range(g->pool, count).high < INT32_MAX ? DLC_I32 : DLC_I64;
}

static graph_id whole(graph *g, graph_id x) {
    const graph_shape shape = *graph_shape_of(g, x);
    tir_expr count = tir_index(g->pool, 1);
    for (int d = 0; d < shape.rank; d++) count = tir_mul(g->pool, count, shape.dim[d]);
    return graph_reshape(g, x, 1, &count);
}

static graph_id cut(graph *g, graph_id count, graph_id x, const graph_attribute *size) {
    return graph_emit_with(g, "cut", 2, (graph_id[]){count, x}, 1,
                           (graph_setting[]){graph_set_dims("size", 1, size->dims)});
}

/* Where the flags (bool, rank 1) are set, ascending, and behind those anything; *count: how many. */
static graph_id positions(graph *g, graph_id flags, graph_id *count) {
    const tir_expr n = graph_shape_of(g, flags)->dim[0];
    const dlc_dtype dtype = position_dtype(g, n);
    graph_id ones = graph_cast(g, flags, dtype);
    *count = graph_reduce_sum(g, ones, 0, NULL, false);
    graph_id before =
        graph_emit_with(g, "cumulative_sum", 1, &ones, 2,
                        (graph_setting[]){graph_set_integer("axis", 0), graph_set_bool("exclusive", true)});
    graph_id to = graph_select(g, flags, before, graph_scalar_i64(g, dtype, -1));
    graph_id from = graph_iota(g, dtype, 1, &n, 0), none = graph_full(g, dtype, 1, &n, 0);
    return graph_emit_with(g, "scatter", 3, (graph_id[]){none, to, from}, 1,
                           (graph_setting[]){graph_set_integer("axis", 0)});
}

/* ---- non_zero */

enum { NON_ZERO_SIZE };

static void infer_non_zero(graph_infer *infer) {
    graph_shape *result = &infer->result[0];
    infer_counted(infer, &infer->attribute[NON_ZERO_SIZE]);
    graph_infer_product(infer, infer->operand[0].rank, infer->operand[0].dim);
    *result = (graph_shape){.dtype = DLC_I64, .rank = 2};
    result->dim[0] = tir_index(infer->g->pool, infer->operand[0].rank);
    result->dim[1] = infer->attribute[NON_ZERO_SIZE].dims[0];
}

/* Of flat positions, in the result's dtype: the index along each axis is what is left after those before it. */
static graph_id indices_of(graph *g, graph_id flat, const graph_shape *shape) {
    const tir_expr one = tir_index(g->pool, 1), n = graph_shape_of(g, flat)->dim[0];
    const dlc_dtype dtype = graph_shape_of(g, flat)->dtype;
    graph_id rows[DLC_MAX_RANK];
    if (shape->rank == 0) return graph_full(g, DLC_I64, 2, (tir_expr[]){tir_index(g->pool, 0), n}, 0);
    for (int d = shape->rank - 1; d >= 0; d--) {
        graph_id index = flat;
        if (d) {
            tir_expr extent = tir_max(g->pool, shape->dim[d], one); /* an empty tensor has no positions */
            graph_id size = graph_dimension(g, dtype, extent);
            size = graph_broadcast_like(g, size, flat);
            index = graph_rem(g, flat, size);
            flat = graph_div(g, flat, size);
        }
        rows[d] = graph_reshape(g, graph_cast(g, index, DLC_I64), 2, (tir_expr[]){one, n});
    }
    return graph_concat(g, shape->rank, rows, 0);
}

static void expand_non_zero(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    graph_id x = e->input[0], count;
    if (shape.dtype != DLC_BOOL) x = graph_ne(g, x, graph_full_like(g, x, 0));
    graph_id found = positions(g, whole(g, x), &count);
    e->result[0] = indices_of(g, cut(g, count, found, &e->attribute[NON_ZERO_SIZE]), &shape);
}

static const graph_op row_non_zero = {
    .name = "non_zero",
    .class_ = GRAPH_COMPOSITE,
    .algebra = GRAPH_COUNTS,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "x",
    .dtypes = "any",
    .attribute = {COUNTED_SIZE},
    .infer = infer_non_zero,
    .expand = expand_non_zero,
    .doc =
        "The indices of the elements that are not zero (NaN is not), in row-major order: i64 [rank, size], a column for "
        "each. ONNX NonZero; NumPy nonzero.",
};

const graph_op *const graph_ops_counted[] = {&row_non_zero, NULL};
