/* Operators whose addresses are data: gather, scatter, their variants with an index for each element or for several axes at once,
 * dynamic_slice, dynamic_update_slice. No index accesses memory outside a tensor: gathers and dynamic slices clamp, scatters
 * drop. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

/* ---- shared ---------------------------------------------------------------------------------------------------- */

/* Sets *out to x's shape with the dimension at `axis` replaced by all dimensions of `indices`. */
static void replace_axis(const graph_infer *infer, const graph_shape *x, int axis, const graph_shape *indices,
                         graph_shape *out) {
    if (x->rank - 1 + indices->rank > DLC_MAX_RANK)
        graph_infer_fail(infer, "ranks %d and %d are too high together, expected a sum of at most %d", x->rank,
                         indices->rank, DLC_MAX_RANK + 1);
    graph_shape shape = {.dtype = x->dtype};
    for (int i = 0; i < axis; i++) shape.dim[shape.rank++] = x->dim[i];
    for (int i = 0; i < indices->rank; i++) shape.dim[shape.rank++] = indices->dim[i];
    for (int i = axis + 1; i < x->rank; i++) shape.dim[shape.rank++] = x->dim[i];
    *out = shape;
}

/* ---- gather ---------------------------------------------------------------------------------------------------- */

static void infer_gather(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1];
    graph_infer_indices(infer, 1);
    int axis = graph_infer_axis(infer, infer->attribute[0].integer, x->rank, "axis");
    replace_axis(infer, x, axis, indices, &infer->result[0]);
    graph_infer_reached(infer, x->dim[axis]);
}

static tir_expr element_gather(graph_compute *c, const tir_expr *axis) {
    const graph_shape *x = &c->operand_shape[0], *indices = &c->operand_shape[1];
    int along = graph_axis_of(c->attribute[0].integer, x->rank);
    tir_expr index[DLC_MAX_RANK], last = tir_sub(c->pool, x->dim[along], tir_index(c->pool, 1));
    for (int i = 0; i < x->rank; i++)
        if (i != along) index[i] = axis[i < along ? i : i - 1 + indices->rank];
    index[along] = graph_limited_index(c->pool, graph_operand_load(c, 1, axis + along), tir_index(c->pool, 0), last);
    return graph_operand_load(c, 0, index);
}

static void compute_gather(graph_compute *c) {
    graph_compute_elements(c, element_gather);
}

/* ---- gather_elements: an index for each element of the result */

static void infer_within(const graph_infer *infer, const graph_shape *indices, int axis) {
    const graph_shape *x = &infer->operand[0];
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            graph_infer_at_most(infer, indices->dim[i], x->dim[i],
                                "indices is larger than x along a dimension beside axis");
}

static void infer_gather_elements(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1];
    graph_infer_indices(infer, 1);
    int axis = graph_infer_axis(infer, infer->attribute[0].integer, x->rank, "axis");
    graph_infer_rank(infer, 1, x->rank);
    infer_within(infer, indices, axis);
    infer->result[0] = *indices;
    infer->result[0].dtype = x->dtype;
    graph_infer_reached(infer, x->dim[axis]);
}

static tir_expr element_gather_elements(graph_compute *c, const tir_expr *axis) {
    const graph_shape *x = &c->operand_shape[0];
    int along = graph_axis_of(c->attribute[0].integer, x->rank);
    tir_expr index[DLC_MAX_RANK], last = tir_sub(c->pool, x->dim[along], tir_index(c->pool, 1));
    for (int i = 0; i < x->rank; i++) index[i] = axis[i];
    index[along] = graph_limited_index(c->pool, graph_operand_load(c, 1, axis), tir_index(c->pool, 0), last);
    return graph_operand_load(c, 0, index);
}

static void compute_gather_elements(graph_compute *c) {
    graph_compute_elements(c, element_gather_elements);
}

/* ---- gather_nd: the last axis of indices holds positions along several axes */

/* The number of axes of x, from `first` on, that an entry of indices addresses: the last dimension of indices. */
static int addressed_axes(const graph_infer *infer, int first) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1];
    int64_t count = 0;
    graph_infer_indices(infer, 1);
    if (indices->rank < 1) graph_infer_fail(infer, "indices has rank 0, expected at least 1");
    if (!tir_is_const(infer->g->pool, indices->dim[indices->rank - 1], &count))
        graph_infer_fail(infer, "the last dimension of indices must be a number");
    if (count < 1 || count > x->rank - first)
        graph_infer_fail(
            infer, "the last dimension of indices is %lld, expected 1 to %d: the axes of x that an index addresses",
            (long long)count, x->rank - first);
    for (int i = 0; i < count; i++) graph_infer_reached(infer, x->dim[first + i]);
    return (int)count;
}

static void infer_gather_nd(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1];
    const int64_t batch = infer->attribute[0].integer;
    if (batch < 0 || batch >= x->rank || (indices->rank > 0 && batch >= indices->rank))
        graph_infer_fail(infer, "batch is %lld, expected 0 or more, and less than the ranks of x and of indices",
                         (long long)batch);
    int count = addressed_axes(infer, (int)batch), left = x->rank - (int)batch - count;
    for (int i = 0; i < batch; i++)
        graph_infer_equal(infer, x->dim[i], indices->dim[i], "batch dimensions of x and of indices");
    if (indices->rank - 1 + left > DLC_MAX_RANK)
        graph_infer_fail(infer, "the result would have a rank above %d", DLC_MAX_RANK);
    graph_shape result = *indices;
    result.dtype = x->dtype;
    result.rank--;
    for (int i = 0; i < left; i++) result.dim[result.rank++] = x->dim[(int)batch + count + i];
    infer->result[0] = result;
}

/* Component `part` of the index at `at`, clamped to x's axis. */
static tir_expr part_of_index(graph_compute *c, const tir_expr *at, int part, tir_expr low, tir_expr high) {
    tir_expr index[DLC_MAX_RANK];
    int last = c->operand_shape[1].rank - 1;
    memcpy(index, at, (size_t)last * sizeof *index);
    index[last] = tir_index(c->pool, part);
    return graph_limited_index(c->pool, graph_operand_load(c, 1, index), low, high);
}

static int parts_of_index(const graph_compute *c) {
    int64_t count = 0;
    const graph_shape *indices = &c->operand_shape[1];
    tir_is_const(c->pool, indices->dim[indices->rank - 1], &count);
    return (int)count;
}

static tir_expr element_gather_nd(graph_compute *c, const tir_expr *axis) {
    const graph_shape *x = &c->operand_shape[0], *indices = &c->operand_shape[1];
    int batch = (int)c->attribute[0].integer, count = parts_of_index(c);
    tir_expr index[DLC_MAX_RANK], zero = tir_index(c->pool, 0), one = tir_index(c->pool, 1);
    for (int i = 0; i < x->rank; i++)
        index[i] = i < batch           ? axis[i]
                   : i < batch + count ? part_of_index(c, axis, i - batch, zero, tir_sub(c->pool, x->dim[i], one))
                                       : axis[indices->rank - 1 + i - batch - count];
    return graph_operand_load(c, 0, index);
}

static void compute_gather_nd(graph_compute *c) {
    graph_compute_elements(c, element_gather_nd);
}

/* ---- scatter --------------------------------------------------------------------------------------------------- */

/* word of the attribute, operator (TIR_LOAD: none, the update replaces the element) */
#define COMBINE_TABLE(X) \
    X(set, TIR_LOAD)     \
    X(add, TIR_ADD) X(mul, TIR_MUL) X(min, TIR_MIN) X(max, TIR_MAX) X(and, TIR_AND) X(or, TIR_OR) X(xor, TIR_XOR)
enum { SCATTER_AXIS, SCATTER_COMBINE };
#define X(word, op) COMBINE_##word,
enum { COMBINE_TABLE(X) };
#undef X

/* Checks that x and updates have one dtype, to which `combine` applies. */
static void infer_combine(const graph_infer *infer, int64_t combine) {
    const graph_shape *x = &infer->operand[0];
    graph_infer_dtype(infer, 2, x->dtype);
    bool logic = combine == COMBINE_and || combine == COMBINE_or || combine == COMBINE_xor;
    if (x->dtype == DLC_BOOL && combine != COMBINE_set && !logic)
        graph_infer_fail(infer, "bool elements can only be set, or joined by and, or, xor");
    if (logic && x->dtype != DLC_BOOL && !lib_dtype_is_integer(x->dtype))
        graph_infer_fail(infer, "and, or, xor join integers or bools, not %s", lib_dtypes[x->dtype].name);
}

static void infer_scatter(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *updates = &infer->operand[2];
    graph_infer_indices(infer, 1);
    int axis = graph_infer_axis(infer, infer->attribute[SCATTER_AXIS].integer, x->rank, "axis");
    infer_combine(infer, infer->attribute[SCATTER_COMBINE].integer);
    graph_shape expected;
    replace_axis(infer, x, axis, &infer->operand[1], &expected);
    graph_infer_rank(infer, 2, expected.rank);
    for (int i = 0; i < expected.rank; i++)
        graph_infer_equal(infer, updates->dim[i], expected.dim[i],
                          "dimensions of updates and of x with those of indices in the place of axis");
    infer->result[0] = *x;
}

/* Completes the scatter stage: the update at from[] is combined with the element at stage->index[]. */
static void finish_scatter(graph_compute *c, tir_stage *stage, int64_t combine, const tir_expr *from) {
#define X(word, op) op,
    static const tir_op ops[] = {COMBINE_TABLE(X)};
#undef X
    const tir_op op = ops[combine];
    const graph_shape *x = &c->operand_shape[0];
    tir_expr space[DLC_MAX_RANK], update = graph_operand_load(c, 2, from);
    for (int i = 0; i < x->rank; i++) space[i] = stage->axis[i].var;
    if (op != TIR_LOAD) update = tir_binary(c->pool, op, tir_acc(c->pool, (tir_dtype)x->dtype, 0), update);
    stage->exact = op == TIR_MIN || op == TIR_MAX || (op != TIR_LOAD && !lib_dtype_is_float(x->dtype));
    c->result[0] = tir_stage_value(c->region, stage, update, graph_operand_load(c, 0, space), 0);
}

/* The index along the axis; values out of range become -1 or the dimension, which a scatter drops. */
static tir_expr scatter_index(graph_compute *c, tir_expr value, int axis) {
    return graph_limited_index(c->pool, value, tir_index(c->pool, -1), c->operand_shape[0].dim[axis]);
}

/* The update axes are those of indices; every other axis of x is a parallel axis. */
static void compute_scatter(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *indices = &c->operand_shape[1];
    int along = graph_axis_of(c->attribute[SCATTER_AXIS].integer, x->rank);
    tir_stage *stage =
        tir_region_stage(c->region, TIR_SCATTER, c->name, x->rank, NULL, x->dim, indices->rank, NULL, indices->dim);
    tir_expr from[DLC_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        stage->index[i] = stage->axis[i].var;
        if (i != along) from[rank++] = stage->axis[i].var;
        for (int k = 0; i == along && k < indices->rank; k++) from[rank++] = stage->axis[x->rank + k].var;
    }
    stage->index[along] = scatter_index(c, graph_operand_load(c, 1, from + along), along);
    finish_scatter(c, stage, c->attribute[SCATTER_COMBINE].integer, from);
}

/* ---- scatter_elements: an index for each update */

static void infer_scatter_elements(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1], *updates = &infer->operand[2];
    graph_infer_indices(infer, 1);
    int axis = graph_infer_axis(infer, infer->attribute[SCATTER_AXIS].integer, x->rank, "axis");
    infer_combine(infer, infer->attribute[SCATTER_COMBINE].integer);
    graph_infer_rank(infer, 1, x->rank);
    graph_infer_rank(infer, 2, x->rank);
    infer_within(infer, indices, axis);
    for (int i = 0; i < x->rank; i++)
        graph_infer_equal(infer, indices->dim[i], updates->dim[i], "dimensions of indices and of updates");
    infer->result[0] = *x;
}

/* Axes along which updates are as large as x are parallel; over the others, and `axis`, updates are sequential. */
static void compute_scatter_elements(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *updates = &c->operand_shape[2];
    int along = graph_axis_of(c->attribute[SCATTER_AXIS].integer, x->rank), axes[DLC_MAX_RANK], count = 0;
    tir_expr extent[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        if (i != along && tir_equal(c->pool, x->dim[i], updates->dim[i]) == TIR_YES) continue;
        axes[count] = i;
        extent[count++] = updates->dim[i];
    }
    tir_stage *stage = tir_region_stage(c->region, TIR_SCATTER, c->name, x->rank, NULL, x->dim, count, NULL, extent);
    for (int i = 0; i < x->rank; i++) stage->index[i] = from[i] = stage->axis[i].var;
    for (int k = 0; k < count; k++) stage->index[axes[k]] = from[axes[k]] = stage->axis[x->rank + k].var;
    stage->index[along] = scatter_index(c, graph_operand_load(c, 1, from), along);
    finish_scatter(c, stage, c->attribute[SCATTER_COMBINE].integer, from);
}

/* ---- scatter_nd: the last axis of indices holds positions along the first axes of x */

static void infer_scatter_nd(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1], *updates = &infer->operand[2];
    infer_combine(infer, infer->attribute[0].integer);
    graph_infer_indices(infer, 1);
    if (indices->rank < 1) graph_infer_fail(infer, "indices has rank 0, expected at least 1");
    int64_t count = 0;
    if (!tir_is_const(infer->g->pool, indices->dim[indices->rank - 1], &count) || count < 1 || count > x->rank)
        graph_infer_fail(
            infer, "the last dimension of indices must be a number of 1 to %d: the axes of x that an index addresses",
            x->rank);
    graph_infer_rank(infer, 2, indices->rank - 1 + x->rank - (int)count);
    for (int i = 0; i < updates->rank; i++)
        graph_infer_equal(infer, updates->dim[i],
                          i < indices->rank - 1 ? indices->dim[i] : x->dim[i - (indices->rank - 1) + (int)count],
                          "dimensions of updates, and of indices but its last and x behind the addressed axes");
    infer->result[0] = *x;
}

static void compute_scatter_nd(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *indices = &c->operand_shape[1];
    int updates = indices->rank - 1, count = parts_of_index(c), rank = 0;
    tir_stage *stage =
        tir_region_stage(c->region, TIR_SCATTER, c->name, x->rank, NULL, x->dim, updates, NULL, indices->dim);
    tir_expr from[DLC_MAX_RANK];
    for (int k = 0; k < updates; k++) from[rank++] = stage->axis[x->rank + k].var;
    for (int i = 0; i < x->rank; i++) {
        if (i >= count) from[rank++] = stage->axis[i].var;
        stage->index[i] = i < count ? part_of_index(c, from, i, tir_index(c->pool, -1), x->dim[i]) : stage->axis[i].var;
    }
    finish_scatter(c, stage, c->attribute[0].integer, from);
}

/* ---- dynamic slices -------------------------------------------------------------------------------------------- */

/* Sets out[] to the axes that the entries of `start` are for: the list, or all axes if that is empty; returns their number. */
static int dynamic_axes(const graph_attribute *axes, int rank, int *out) {
    int count = axes->count ? axes->count : rank;
    for (int i = 0; i < count; i++) out[i] = axes->count ? graph_axis_of(axes->list[i], rank) : i;
    return count;
}

static int infer_start(const graph_infer *infer, int operand, const graph_attribute *attribute, int *axes) {
    const graph_shape *x = &infer->operand[0], *start = &infer->operand[operand];
    graph_infer_axes(infer, attribute, x->rank, "axes");
    int count = dynamic_axes(attribute, x->rank, axes);
    graph_infer_indices(infer, operand);
    if (start->rank == 0 && count == 1) return count;
    if (start->rank != 1)
        graph_infer_fail(infer, "start has rank %d, expected 1: one number for each axis%s", start->rank,
                         count == 1 ? " (or a scalar)" : "");
    graph_infer_equal(infer, start->dim[0], tir_index(infer->g->pool, count), "size of start and number of axes");
    return count;
}

/* Sets first[] to the first index along each axis of x: the start from `operand`, clamped so that size[] elements lie inside x; 0 along other
 * axes. */
static void dynamic_start(graph_compute *c, int operand, const graph_attribute *attribute, const tir_expr *size,
                          tir_expr *first) {
    const graph_shape *x = &c->operand_shape[0];
    int axes[DLC_MAX_RANK], count = dynamic_axes(attribute, x->rank, axes);
    for (int i = 0; i < x->rank; i++) first[i] = tir_index(c->pool, 0);
    for (int i = 0; i < count; i++) {
        tir_expr number = tir_index(c->pool, i), last = tir_sub(c->pool, x->dim[axes[i]], size[axes[i]]);
        first[axes[i]] =
            graph_limited_index(c->pool, graph_operand_load(c, operand, &number), tir_index(c->pool, 0), last);
    }
}

enum { DYNAMIC_SIZE, DYNAMIC_AXES };

static void infer_dynamic_slice(graph_infer *infer) {
    const graph_attribute *size = &infer->attribute[DYNAMIC_SIZE];
    int axes[DLC_MAX_RANK], count = infer_start(infer, 1, &infer->attribute[DYNAMIC_AXES], axes);
    if (size->count != count)
        graph_infer_fail(infer, "size has %d entries, expected one for each of %d axes", size->count, count);
    graph_shape *result = &infer->result[0];
    *result = infer->operand[0];
    for (int i = 0; i < count; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), size->dims[i], "size is negative");
        graph_infer_at_most(infer, size->dims[i], result->dim[axes[i]], "size is larger than the operand's dimension");
        result->dim[axes[i]] = size->dims[i];
    }
}

static tir_expr element_dynamic_slice(graph_compute *c, const tir_expr *axis) {
    tir_expr index[DLC_MAX_RANK];
    dynamic_start(c, 1, &c->attribute[DYNAMIC_AXES], c->result_shape[0].dim, index);
    for (int i = 0; i < c->result_shape[0].rank; i++) index[i] = tir_add(c->pool, index[i], axis[i]);
    return graph_operand_load(c, 0, index);
}

static void compute_dynamic_slice(graph_compute *c) {
    graph_compute_elements(c, element_dynamic_slice);
}

static void infer_dynamic_update_slice(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *update = &infer->operand[1];
    int axes[DLC_MAX_RANK], count = infer_start(infer, 2, &infer->attribute[0], axes);
    graph_infer_dtype(infer, 1, x->dtype);
    graph_infer_rank(infer, 1, x->rank);
    uint32_t moving = 0;
    for (int i = 0; i < count; i++) moving |= 1u << axes[i];
    for (int i = 0; i < x->rank; i++) {
        if (moving >> i & 1)
            graph_infer_at_most(infer, update->dim[i], x->dim[i], "update is larger than x");
        else
            graph_infer_equal(infer, update->dim[i], x->dim[i], "dimensions of x and update beside the axes");
    }
    infer->result[0] = *x;
}

/* A scatter over the axes of `start`, so that a kernel that works in place writes only the update. No element is written twice: the result
 * does not depend on the order. */
static void compute_dynamic_update_slice(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *update = &c->operand_shape[1];
    int axes[DLC_MAX_RANK], count = dynamic_axes(&c->attribute[0], x->rank, axes);
    tir_expr extent[DLC_MAX_RANK] = {0}, space[DLC_MAX_RANK], from[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) extent[i] = update->dim[axes[i]];
    tir_stage *stage = tir_region_stage(c->region, TIR_SCATTER, c->name, x->rank, NULL, x->dim, count, NULL, extent);
    for (int i = 0; i < x->rank; i++) stage->index[i] = from[i] = space[i] = stage->axis[i].var;
    dynamic_start(c, 2, &c->attribute[0], update->dim, extent);
    for (int i = 0; i < count; i++) {
        from[axes[i]] = stage->axis[x->rank + i].var;
        stage->index[axes[i]] = tir_add(c->pool, extent[axes[i]], from[axes[i]]);
    }
    stage->exact = true;
    c->result[0] =
        tir_stage_value(c->region, stage, graph_operand_load(c, 1, from), graph_operand_load(c, 0, space), 0);
}

/* ---- rules of differentiation -------------------------------------------------------------------------------------- */

static graph_id zeros_of(const graph_rule *rule, int operand) {
    const graph_shape *x = graph_shape_of(rule->g, rule->input[operand]);
    return graph_full(rule->g, graph_tangent_dtype(x->dtype), x->rank, x->dim, 0);
}

/* indices, clamped to 0 .. size - 1 as gathers do, in i64. */
static graph_id clamped(graph *g, graph_id indices, tir_expr size) {
    graph_id last = graph_dimension(g, DLC_I64, tir_sub(g->pool, size, tir_index(g->pool, 1)));
    if (graph_shape_of(g, indices)->dtype == DLC_U64) /* u64 beyond i64 wraps: clamped before */
        indices = graph_min(g, indices, graph_cast(g, last, DLC_U64));
    return graph_clamp(g, graph_scalar_i64(g, DLC_I64, 0), graph_cast(g, indices, DLC_I64), last);
}

static void transpose_gather(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape *x = graph_shape_of(g, rule->input[0]);
    const int axis = graph_axis_of(rule->attribute[0].integer, x->rank);
    graph_id indices = clamped(g, rule->input[1], x->dim[axis]);
    rule->out[0] = graph_scatter_add(g, zeros_of(rule, 0), indices, rule->cotangent[0], axis);
}

/* The scatter that adds, by name and axis (-1: none). */
static graph_id add_at(graph *g, const char *scatter, graph_id x, graph_id indices, graph_id updates, int axis) {
    const graph_setting setting[] = {graph_set_integer("combine", COMBINE_add), graph_set_integer("axis", axis)};
    return graph_emit_with(g, scatter, 3, (graph_id[]){x, indices, updates}, axis < 0 ? 1 : 2, setting);
}

static void transpose_gather_elements(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape *x = graph_shape_of(g, rule->input[0]);
    const int axis = graph_axis_of(rule->attribute[0].integer, x->rank);
    graph_id indices = clamped(g, rule->input[1], x->dim[axis]);
    rule->out[0] = add_at(g, "scatter_elements", zeros_of(rule, 0), indices, rule->cotangent[0], axis);
}

/* Entry k of the last axis of indices, with that axis of size 1. */
static graph_id index_column(graph *g, graph_id indices, int64_t k) {
    const int last = graph_shape_of(g, indices)->rank - 1;
    return graph_slice_axis(g, indices, last, tir_index(g->pool, k), tir_index(g->pool, k + 1));
}

static void transpose_gather_nd(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]), indices = *graph_shape_of(g, rule->input[1]);
    const int batch = (int)rule->attribute[0].integer, last = indices.rank - 1;
    int64_t count = 0;
    graph_id column[2 * DLC_MAX_RANK];
    graph_shape one = indices;
    tir_is_const(g->pool, indices.dim[last], &count);
    one.dim[last] = tir_index(g->pool, 1);
    for (int b = 0; b < batch; b++) column[b] = graph_iota(g, DLC_I64, one.rank, one.dim, b);
    for (int64_t k = 0; k < count; k++)
        column[batch + k] = clamped(g, index_column(g, rule->input[1], k), x.dim[batch + k]);
    graph_id at = batch + count ? graph_concat(g, batch + (int)count, column, last) : rule->input[1];
    rule->out[0] = add_at(g, "scatter_nd", zeros_of(rule, 0), at, rule->cotangent[0], -1);
}

/* The combine attribute of the three scatters. */
static int64_t combine_of(const graph_rule *rule) {
    return rule->attribute[graph_op_attribute(rule->op, "combine")].integer;
}

/* The same scatter of other values, at the same indices. */
static graph_id scatter_as(const graph_rule *rule, graph_id x, graph_id updates, int64_t combine) {
    const int which = graph_op_attribute(rule->op, "combine");
    graph_attribute attribute[2];
    for (int i = 0; rule->op->attribute[i].name; i++) attribute[i] = rule->attribute[i];
    attribute[which].integer = combine;
    attribute[which].given = true;
    return graph_emit(rule->g, rule->op, 3, (graph_id[]){x, rule->input[1], updates}, attribute);
}

/* The elements of a tensor of x's shape that the updates meet; any where they are dropped. All are dropped if an axis whose size is a symbol
 * is empty; gathers refuse such axes, hence one more element there. */
static graph_id gather_as(const graph_rule *rule, graph_id x) {
    static const char *const gathers[][2] = {
        {"scatter", "gather"}, {"scatter_elements", "gather_elements"}, {"scatter_nd", "gather_nd"}};
    graph *g = rule->g;
    const graph_shape shape = *graph_shape_of(g, x);
    int which = 0;
    while (strcmp(gathers[which][0], rule->op->name) != 0) which++;
    const int axis = graph_op_attribute(rule->op, "axis");
    const int64_t low[DLC_MAX_RANK] = {0};
    int64_t high[DLC_MAX_RANK] = {0}, first = 0, count = 1, size;
    if (axis >= 0)
        first = graph_axis_of(rule->attribute[axis].integer, shape.rank);
    else
        tir_is_const(g->pool, graph_shape_of(g, rule->input[1])->dim[graph_shape_of(g, rule->input[1])->rank - 1],
                     &count);
    bool grows = false;
    for (int64_t i = first; i < first + count; i++) {
        high[i] = !tir_is_const(g->pool, shape.dim[i], &size);
        grows = grows || high[i];
    }
    if (grows) x = graph_pad(g, x, graph_scalar_like(g, x, 0), low, high);
    const graph_setting along = graph_set_integer("axis", axis < 0 ? 0 : rule->attribute[axis].integer);
    return graph_emit_with(g, gathers[which][1], 2, (graph_id[]){x, rule->input[1]}, axis < 0 ? 0 : 1, &along);
}

/* bool, of the updates' shape: the update is not dropped, since all its indices are inside. */
static graph_id is_kept(const graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]), indices = *graph_shape_of(g, rule->input[1]);
    const graph_shape updates = *graph_shape_of(g, rule->input[2]);
    const int along = graph_op_attribute(rule->op, "axis");
    const graph_id zero = graph_scalar_i64(g, indices.dtype, 0);
    graph_id kept = 0;
    int64_t axes[DLC_MAX_RANK], count = 1, last = indices.rank - 1;
    if (along < 0) tir_is_const(g->pool, indices.dim[last], &count);
    for (int64_t k = 0; k < count; k++) {
        graph_id index = along < 0 ? graph_squeeze(g, index_column(g, rule->input[1], k), (int)last) : rule->input[1];
        const tir_expr size = x.dim[along < 0 ? k : graph_axis_of(rule->attribute[along].integer, x.rank)];
        graph_id inside = graph_ge(g, index, zero);
        graph_id wide = indices.dtype == DLC_U64 ? index : graph_cast(g, index, DLC_I64);
        const dlc_dtype dtype = graph_shape_of(g, wide)->dtype;
        inside = graph_and(g, inside, graph_lt(g, wide, graph_dimension(g, dtype, size)));
        kept = kept ? graph_and(g, kept, inside) : inside;
    }
    if (!kept) return graph_full(g, DLC_BOOL, updates.rank, updates.dim, 1);
    const int first =
        strcmp(rule->op->name, "scatter") == 0 ? graph_axis_of(rule->attribute[along].integer, x.rank) : 0;
    for (int i = 0; i < graph_shape_of(g, kept)->rank; i++) axes[i] = first + i;
    return graph_broadcast(g, kept, updates.rank, updates.dim, axes);
}

/* What reaches the updates of a value of x's shape; 0 for those that are dropped. */
static graph_id met_by_updates(const graph_rule *rule, graph_id value) {
    graph *g = rule->g;
    return graph_select(g, is_kept(rule), gather_as(rule, value), graph_scalar_like(g, value, 0));
}

/* bool: the update stays: no later one meets the same element. */
static graph_id is_last(const graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]), updates = *graph_shape_of(g, rule->input[2]);
    tir_expr count = tir_index(g->pool, 1);
    for (int i = 0; i < updates.rank; i++) count = tir_mul(g->pool, count, updates.dim[i]);
    graph_id number = graph_reshape(g, graph_iota(g, DLC_I64, 1, &count, 0), updates.rank, updates.dim);
    graph_id last = scatter_as(rule, graph_full(g, DLC_I64, x.rank, x.dim, -1), number, COMBINE_set);
    return graph_and(g, is_kept(rule), graph_eq(g, gather_as(rule, last), number));
}

/* Factors of the tangents of x and of the updates. min and max: the elements that equal the result share evenly. mul: the product of the
 * others, p times that of those others that are 0, where p is the product of all that are not 0. The others that are 0: none, one, which is
 * then their sum, or more, whose product has no first derivative (nor has this, so that derivatives of third order are 0 there). */
static void scatter_factors(const graph_rule *rule, graph_id factor[2]) {
    graph *g = rule->g;
    const graph_id operand[2] = {graph_rule_operand(rule, 0), graph_rule_operand(rule, 2)};
    const dlc_dtype dtype = graph_shape_of(g, operand[0])->dtype;
    const graph_id zero = graph_scalar(g, dtype, 0), one = graph_scalar(g, dtype, 1);
    graph_id is_zero[2], other[2], left[2];
    if (combine_of(rule) != COMBINE_mul) {
        const graph_id y = scatter_as(rule, operand[0], operand[1], combine_of(rule));
        const graph_id in_x = graph_cast(g, graph_eq(g, operand[0], y), dtype);
        const graph_id in_updates = graph_cast(g, graph_eq(g, operand[1], gather_as(rule, y)), dtype);
        const graph_id share = graph_div(g, one, scatter_as(rule, in_x, in_updates, COMBINE_add));
        factor[0] = graph_mul(g, in_x, share);
        factor[1] = graph_mul(g, in_updates, gather_as(rule, share));
        return;
    }
    for (int i = 0; i < 2; i++) {
        is_zero[i] = graph_eq(g, operand[i], zero);
        other[i] = graph_select(g, is_zero[i], one, operand[i]);
        left[i] = graph_select(g, is_zero[i], operand[i], zero);
    }
    const graph_id product = scatter_as(rule, other[0], other[1], COMBINE_mul);
    const graph_id sum = scatter_as(rule, left[0], left[1], COMBINE_add);
    const graph_id zeros =
        scatter_as(rule, graph_cast(g, is_zero[0], dtype), graph_cast(g, is_zero[1], dtype), COMBINE_add);
    for (int i = 0; i < 2; i++) {
        const graph_id p = i ? gather_as(rule, product) : product, z = i ? gather_as(rule, sum) : sum;
        const graph_id n = graph_sub(g, i ? gather_as(rule, zeros) : zeros, graph_cast(g, is_zero[i], dtype));
        const graph_id others = graph_select(g, graph_eq(g, n, zero), one,
                                             graph_select(g, graph_eq(g, n, one), graph_sub(g, z, left[i]), zero));
        factor[i] = graph_multiply_no_nan(g, others, graph_div(g, p, other[i]));
    }
}

/* Has x no element that an update could meet? */
static bool meets_nothing(const graph_rule *rule) {
    const graph_shape *x = graph_shape_of(rule->g, rule->input[0]);
    for (int i = 0; i < x->rank; i++)
        if (tir_is_number(rule->g->pool, x->dim[i], 0)) return true;
    return false;
}

static void tangent_scatter(graph_rule *rule) {
    graph *g = rule->g;
    graph_id x = rule->tangent[0] ? rule->tangent[0] : zeros_of(rule, 0);
    graph_id updates = rule->tangent[2] ? rule->tangent[2] : zeros_of(rule, 2), factor[2];
    int64_t combine = combine_of(rule);
    if (combine != COMBINE_set && combine != COMBINE_add && !meets_nothing(rule)) {
        scatter_factors(rule, factor);
        x = graph_multiply_no_nan(g, x, factor[0]);
        updates = graph_multiply_no_nan(g, updates, factor[1]);
        combine = COMBINE_add;
    }
    rule->out[0] = scatter_as(rule, x, updates, combine);
}

static void cotangent_scatter(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id c = rule->cotangent[0];
    const int64_t combine = combine_of(rule);
    graph_id factor[2] = {0};
    if (meets_nothing(rule)) return;
    if (combine != COMBINE_set && combine != COMBINE_add) scatter_factors(rule, factor);
    if (rule->wanted[0])
        rule->out[0] = combine == COMBINE_set ? scatter_as(rule, c, zeros_of(rule, 2), COMBINE_set)
                       : factor[0]            ? graph_multiply_no_nan(g, c, factor[0])
                                              : c;
    if (!rule->wanted[2]) return;
    graph_id met = met_by_updates(rule, c);
    if (combine == COMBINE_set) met = graph_select(g, is_last(rule), met, graph_scalar_like(g, met, 0));
    rule->out[2] = factor[1] ? graph_multiply_no_nan(g, met, factor[1]) : met;
}

static void transpose_dynamic_slice(graph_rule *rule) {
    const graph_setting axes = {"axes", rule->attribute[DYNAMIC_AXES]};
    rule->out[0] = graph_emit_with(rule->g, "dynamic_update_slice", 3,
                                   (graph_id[]){zeros_of(rule, 0), rule->cotangent[0], rule->input[1]}, 1, &axes);
}

static void transpose_dynamic_update_slice(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape update = *graph_shape_of(g, rule->input[1]);
    if (rule->operand == 0) {
        const graph_id input[] = {rule->cotangent[0], zeros_of(rule, 1), rule->input[2]};
        rule->out[0] = graph_emit(g, rule->op, 3, input, rule->attribute);
        return;
    }
    int axes[DLC_MAX_RANK], count = dynamic_axes(&rule->attribute[0], update.rank, axes);
    tir_expr size[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) size[i] = update.dim[axes[i]];
    rule->out[0] =
        graph_emit_with(g, "dynamic_slice", 2, (graph_id[]){rule->cotangent[0], rule->input[2]}, 2,
                        (graph_setting[]){graph_set_dims("size", count, size), {"axes", rule->attribute[0]}});
}

/* ---- references ------------------------------------------------------------------------------------------------ */

#ifdef DLC_REFERENCE

static int64_t limit(double value, int64_t last) {
    return value < 0 ? 0 : value > (double)last ? last : (int64_t)value;
}

static void reference_gather(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1], *y = &r->result[0];
    int64_t along = graph_axis_of(r->attribute[0].integer, x->rank);
    int64_t to[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, to) {
        int at = 0;
        for (int i = 0; i < x->rank; i++) {
            if (i != along) {
                from[i] = to[at++];
                continue;
            }
            from[i] = limit(indices->data[graph_reference_at(indices, to + at)], x->dim[i] - 1);
            at += indices->rank;
        }
        y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_gather_elements(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1];
    int64_t along = graph_axis_of(r->attribute[0].integer, x->rank);
    int64_t to[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(indices, to) {
        int64_t at = graph_reference_at(indices, to);
        memcpy(from, to, sizeof from);
        from[along] = limit(indices->data[at], x->dim[along] - 1);
        r->result[0].data[at] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_gather_nd(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1], *y = &r->result[0];
    int64_t batch = r->attribute[0].integer, count = indices->dim[indices->rank - 1], slice = 1, whole = 1;
    for (int64_t i = batch + count; i < x->rank; i++) slice *= x->dim[i];
    for (int64_t i = batch; i < x->rank; i++) whole *= x->dim[i];
    int64_t entries = count ? graph_reference_count(indices) / count : 0, batches = 1;
    for (int64_t i = 0; i < batch; i++) batches *= x->dim[i];
    for (int64_t e = 0; e < entries && slice; e++) {
        int64_t at = 0;
        for (int64_t k = 0; k < count; k++)
            at = at * x->dim[batch + k] + limit(indices->data[e * count + k], x->dim[batch + k] - 1);
        at = at * slice + e / (entries / batches) * whole;
        for (int64_t k = 0; k < slice; k++) y->data[e * slice + k] = x->data[at + k];
    }
}

static double combined(int64_t word, dlc_dtype dtype, double old, double update) {
    bool integral = graph_reference_integral(dtype);
    uint64_t a = integral ? graph_reference_word(old) : 0, b = integral ? graph_reference_word(update) : 0;
    bool nan = old != old || update != update;
    switch (word) {
    case COMBINE_add: return integral ? graph_reference_wrap(dtype, a + b) : old + update;
    case COMBINE_mul: return integral ? graph_reference_wrap(dtype, a * b) : old * update;
    case COMBINE_min: return nan ? old + update : old < update ? old : update;
    case COMBINE_and: return graph_reference_wrap(dtype, a & b);
    case COMBINE_or: return graph_reference_wrap(dtype, a | b);
    case COMBINE_xor: return graph_reference_wrap(dtype, a ^ b);
    case COMBINE_max: return nan ? old + update : old > update ? old : update;
    default: return update;
    }
}

static void reference_scatter(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1], *updates = &r->operand[2];
    const graph_reference_tensor *y = &r->result[0];
    for (int64_t i = 0; i < graph_reference_count(x); i++) y->data[i] = x->data[i];
    int64_t along = graph_axis_of(r->attribute[0].integer, x->rank);
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(updates, from) {
        int at = 0;
        for (int i = 0; i < x->rank; i++) {
            to[i] = i == along ? (int64_t)indices->data[graph_reference_at(indices, from + at)] : from[at];
            at += i == along ? indices->rank : 1;
        }
        if (to[along] < 0 || to[along] >= x->dim[along]) continue;
        double *target = &y->data[graph_reference_at(y, to)];
        *target =
            combined(r->attribute[1].integer, x->dtype, *target, updates->data[graph_reference_at(updates, from)]);
    }
}

static void reference_scatter_elements(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1], *updates = &r->operand[2];
    int64_t along = graph_axis_of(r->attribute[0].integer, x->rank);
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    for (int64_t i = 0; i < graph_reference_count(x); i++) r->result[0].data[i] = x->data[i];
    GRAPH_REFERENCE_EACH(updates, from) {
        int64_t at = graph_reference_at(updates, from);
        memcpy(to, from, sizeof to);
        if (!(indices->data[at] >= 0 && indices->data[at] < (double)x->dim[along])) continue;
        to[along] = (int64_t)indices->data[at];
        double *target = &r->result[0].data[graph_reference_at(x, to)];
        *target = combined(r->attribute[1].integer, x->dtype, *target, updates->data[at]);
    }
}

static void reference_scatter_nd(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *indices = &r->operand[1], *updates = &r->operand[2];
    int64_t count = indices->dim[indices->rank - 1], slice = 1;
    for (int64_t i = count; i < x->rank; i++) slice *= x->dim[i];
    for (int64_t i = 0; i < graph_reference_count(x); i++) r->result[0].data[i] = x->data[i];
    for (int64_t e = 0; slice && e < graph_reference_count(updates) / slice; e++) {
        int64_t at = 0;
        bool inside = true;
        for (int64_t k = 0; k < count && inside; k++) {
            double index = indices->data[e * count + k];
            inside = index >= 0 && index < (double)x->dim[k];
            at = inside ? at * x->dim[k] + (int64_t)index : 0;
        }
        for (int64_t k = 0; k < slice && inside; k++) {
            double *target = &r->result[0].data[at * slice + k];
            *target = combined(r->attribute[0].integer, x->dtype, *target, updates->data[e * slice + k]);
        }
    }
}

/* Where the window of size[] starts along axis i of x. */
static int64_t window_start(const graph_reference_tensor *x, const graph_reference_tensor *start,
                            const graph_attribute *axes, const int64_t *size, int i) {
    if (!axes->count) return limit(start->data[i], x->dim[i] - size[i]);
    for (int k = 0; k < axes->count; k++)
        if (axes->list[k] == i || axes->list[k] + x->rank == i) return limit(start->data[k], x->dim[i] - size[i]);
    return 0;
}

static void reference_dynamic_slice(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, to) {
        for (int i = 0; i < x->rank; i++)
            from[i] = to[i] + window_start(x, &r->operand[1], &r->attribute[1], y->dim, i);
        y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_dynamic_update_slice(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *update = &r->operand[1], *y = &r->result[0];
    for (int64_t i = 0; i < graph_reference_count(x); i++) y->data[i] = x->data[i];
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(update, from) {
        for (int i = 0; i < x->rank; i++)
            to[i] = from[i] + window_start(x, &r->operand[2], &r->attribute[0], update->dim, i);
        y->data[graph_reference_at(y, to)] = update->data[graph_reference_at(update, from)];
    }
}

#endif

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* name, class, number and names of operands */
#define FORM(name_, class__, inputs_, operands_)                                                               \
    PRIMITIVE_ROW(name_, class__, inputs_, inputs_, 1, operands_, class__ == GRAPH_INJECTIVE ? "all" : "any"), \
        .infer = infer_##name_

#define COMBINE_ATTRIBUTE \
    { "combine", GRAPH_ATTR_ENUM, "set add mul min max and or xor", "set", "how an update joins the element it meets" }

static const graph_op row_gather = {
    .aliases = "take index_select",
    FORM(gather, GRAPH_INJECTIVE, 2, "x indices"),
    .structure = GRAPH_LOOKS_UP,
    GRAPH_LINEAR(1, transpose_gather),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis of x that the indices address"}},
    .samples = "gather(T[10, 3], i32[4] in 0..10, axis=0)\ngather(T[3, 11], i64[2, 5] in -4..15, axis=1)\n"
               "gather(T[7], i32[] in 0..7, axis=0)\ngather(T[5, 4], i32[0], axis=0)\ngather(T[0, 4], i32[0], axis=0)\n"
               "gather(T[13, 2], i8[6] in -20..20, axis=-2)\ngather(T[300], u8[17] in 0..255, axis=0)\n"
               "gather(T[1, 5, 1], i32[3] in -1..2, axis=2)\ngather(T[2, 3, 1, 4], i64[2, 1, 3] in 0..3, axis=1)\n"
               "gather(T[13, 2], u64[9] in 0..1.8e19, axis=0)",
    .doc = "y[a..., j..., b...] = x[a..., indices[j...], b...]: rows of x along axis, for indices of any integer "
           "dtype and rank. Indices outside are clamped to the first or last row. StableHLO gather, restricted to "
           "one axis.",
};
static const graph_op row_scatter = {
    FORM(scatter, GRAPH_SCATTER, 3, "x indices updates"),
    .jvp = tangent_scatter,
    .vjp = cotangent_scatter,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis of x that the indices address"}, COMBINE_ATTRIBUTE},
    .tolerance = 0.5,
    .samples =
        "scatter(T[10, 3], i32[4] in 0..10, T[4, 3], axis=0, combine=set)\n"
        "scatter(T[3, 11], i64[2, 5] in -4..15, T[3, 2, 5], axis=1)\n"
        "scatter(T[7], i32[] in 0..7, T[], axis=0)\nscatter(T[5, 4], i32[0], T[0, 4], axis=0)\n"
        "scatter(T[0, 4], i32[3], T[3, 4], axis=0)\nscatter(T[2, 1, 5, 2], i8[7] in -2..3, T[2, 7, 5, 2], axis=-3)\n"
        "scatter(T[7, 2], u64[9] in 0..1.8e19, T[9, 2], axis=0)\n"
        "scatter(f32[10, 3], i32[40] in 0..10, f32[40, 3], axis=0, combine=add)\n"
        "scatter(f64[3, 7], i64[5, 4] in -1..8, f64[3, 5, 4], axis=1, combine=add)\n"
        "scatter(f16[7], i32[20] in 0..7, f16[20], axis=0, combine=add)\n"
        "scatter(bf16[7], i32[20] in 0..7, bf16[20], axis=0, combine=mul)\n"
        "scatter(u8[7], i32[50] in 0..7, u8[50], axis=0, combine=add)\n"
        "scatter(u8[7], i32[20] in 0..7, u8[20], axis=0, combine=and)\n"
        "scatter(i64[3, 7], i32[20] in -1..8, i64[3, 20], axis=1, combine=or)\n"
        "scatter(i32[7], i32[20] in 0..7, i32[20], axis=0, combine=xor)\n"
        "scatter(bool[7], i32[9] in 0..7, bool[9], axis=0, combine=xor)\n"
        "scatter(bool[7, 2], i32[9] in 0..7, bool[9, 2], axis=0, combine=and)\n"
        "scatter(i32[7], i32[20] in 0..7, i32[20], axis=0, combine=mul)\n"
        "scatter(f32[7, 2], u8[20] in 0..9, f32[20, 2], axis=0, combine=min)\n"
        "scatter(f32[7, 2], i32[20] in 0..7, f32[20, 2], axis=0, combine=max)\n"
        "scatter(i64[5], i32[20] in 0..7, i64[20], axis=0, combine=max)",
    .doc = "x with updates[a..., j..., b...] combined into element [a..., indices[j...], b...], in row-major "
           "order of j; in the dtype of x. Updates of indices outside x are dropped. StableHLO scatter, "
           "restricted to one axis.",
};
static const graph_op row_gather_elements = {
    .aliases = "take_along_axis",
    FORM(gather_elements, GRAPH_INJECTIVE, 2, "x indices"),
    .structure = GRAPH_PICKS,
    GRAPH_LINEAR(1, transpose_gather_elements),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis of x that the indices address"}},
    .samples = "gather_elements(T[10, 3], i32[4, 3] in 0..10, axis=0)\n"
               "gather_elements(T[3, 11], i64[2, 5] in -4..15, axis=1)\n"
               "gather_elements(T[13], u8[29] in 0..20, axis=0)\ngather_elements(T[5, 4], i32[0, 4], axis=0)\n"
               "gather_elements(T[0, 4], i32[0, 4], axis=0)\n"
               "gather_elements(T[2, 1, 7, 3], i64[2, 1, 5, 2] in 0..7, axis=-2)\n"
               "gather_elements(T[3, 17], u64[3, 4] in 0..1.8e19, axis=-1)",
    .doc =
        "y[i...] = x[i... with indices[i...] in the place of axis]: x and indices of one rank, indices at most as large as x "
        "beside axis; result of the shape of indices. Indices outside are clamped to the first or last element. ONNX "
        "GatherElements (whose negative indices count from the end); NumPy take_along_axis.",
};
static const graph_op row_gather_nd = {
    FORM(gather_nd, GRAPH_INJECTIVE, 2, "x indices"),
    .structure = GRAPH_PICKS,
    GRAPH_LINEAR(1, transpose_gather_nd),
    .attribute = {{"batch", GRAPH_ATTR_INTEGER, NULL, "0", "number of leading axes that x and indices share"}},
    .samples = "gather_nd(T[5, 7], i64[4, 2] in 0..5)\ngather_nd(T[5, 7, 3], i32[2, 4, 1] in -2..7)\n"
               "gather_nd(T[2, 5, 7], i32[2, 3, 1] in 0..5, batch=1)\ngather_nd(T[13], i8[1] in 0..13)\n"
               "gather_nd(T[3, 2, 4, 5], i64[3, 2, 1, 2] in 0..5, batch=2)\ngather_nd(T[4, 3], i64[0, 2])\n"
               "gather_nd(T[4, 0, 3], i64[2, 1] in 0..4)\ngather_nd(T[11, 3], u64[5, 2] in 0..1.8e19)",
    .doc =
        "y[b..., j..., r...] = x[b..., indices[b..., j..., 0], ..., indices[b..., j..., k - 1], r...]: the last dimension k of "
        "indices, a number, says how many axes of x behind the batch an entry addresses. Indices outside are clamped to the "
        "first or last position of their axis. ONNX GatherND.",
};
static const graph_op row_scatter_elements = {
    FORM(scatter_elements, GRAPH_SCATTER, 3, "x indices updates"),
    .jvp = tangent_scatter,
    .vjp = cotangent_scatter,
    .tolerance = 0.5,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis of x that the indices address"}, COMBINE_ATTRIBUTE},
    .samples = "scatter_elements(T[10, 3], i32[4, 3] in 0..10, T[4, 3], axis=0)\n"
               "scatter_elements(T[3, 11], i64[2, 5] in -4..15, T[2, 5], axis=1)\n"
               "scatter_elements(T[7], i32[0], T[0], axis=0)\nscatter_elements(T[0, 4], i32[3, 4], T[3, 4], axis=0)\n"
               "scatter_elements(f32[2, 5, 3], i8[2, 20, 3] in -1..6, f32[2, 20, 3], axis=-2, combine=add)\n"
               "scatter_elements(f16[7, 2], i32[20, 1] in 0..7, f16[20, 1], axis=0, combine=mul)\n"
               "scatter_elements(i32[3, 7], i32[3, 20] in 0..9, i32[3, 20], axis=1, combine=max)\n"
               "scatter_elements(bool[7], i32[9] in 0..7, bool[9], axis=0, combine=xor)\n"
               "scatter_elements(T[7], u64[9] in 0..1.8e19, T[9], axis=0)",
    .doc =
        "x with updates[i...] combined into element [i... with indices[i...] in the place of axis], in row-major order; in "
        "the dtype of x. indices and updates have one shape, of x's rank and at most as large as x beside axis. Updates "
        "of indices outside x are dropped. ONNX ScatterElements (whose negative indices count from the end).",
};
static const graph_op row_scatter_nd = {
    FORM(scatter_nd, GRAPH_SCATTER, 3, "x indices updates"),
    .jvp = tangent_scatter,
    .vjp = cotangent_scatter,
    .tolerance = 0.5,
    .attribute = {COMBINE_ATTRIBUTE},
    .samples =
        "scatter_nd(T[5, 7], i64[4, 2] in 0..5, T[4])\nscatter_nd(T[5, 7, 3], i32[2, 4, 1] in -2..7, T[2, 4, 7, 3])\n"
        "scatter_nd(T[13], i8[1] in 0..13, T[])\nscatter_nd(T[4, 3], i64[0, 2], T[0])\n"
        "scatter_nd(f32[5, 3], i64[40, 2] in -1..6, f32[40], combine=add)\n"
        "scatter_nd(bf16[5, 3], i64[20, 1] in 0..5, bf16[20, 3], combine=mul)\n"
        "scatter_nd(i64[3, 4, 2], i32[30, 2] in 0..4, i64[30, 2], combine=min)\n"
        "scatter_nd(T[11, 3], u64[5, 2] in 0..1.8e19, T[5])",
    .doc =
        "x with updates[j..., r...] combined into element [indices[j..., 0], ..., indices[j..., k - 1], r...], in row-major "
        "order of j; in the dtype of x; the last dimension k of indices is a number. Updates of indices outside x are "
        "dropped. ONNX ScatterND.",
};
static const graph_op row_dynamic_slice = {
    FORM(dynamic_slice, GRAPH_INJECTIVE, 2, "x start"),
    .structure = GRAPH_PICKS,
    GRAPH_LINEAR(1, transpose_dynamic_slice),
    .attribute = {{"size", GRAPH_ATTR_DIMS, NULL, NULL, "elements taken along each of the axes"},
                  {"axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes that start and size speak of; empty: all"}},
    .samples = "dynamic_slice(T[10, 7], i32[2] in -2..9, size=[3, 4])\ndynamic_slice(T[], i32[0], size=[])\n"
               "dynamic_slice(T[13], i64[1] in 0..13, size=[13])\n"
               "dynamic_slice(T[13, 3], i32[] in 0..13, size=[1], axes=[0])\n"
               "dynamic_slice(T[3, 5], i64[1] in 2..9, size=[0], axes=[-1])\n"
               "dynamic_slice(T[0, 2], i32[2] in 0..5, size=[0, 1])\n"
               "dynamic_slice(T[9, 4], u64[2] in 0..1.8e19, size=[3, 2])\n"
               "dynamic_slice(T[2, 1, 3, 4, 1, 5], i8[2] in 0..5, size=[2, 3], axes=[5, 3])",
    .doc = "y[i] = x[start + i] for i below size, along the axes; other axes are taken whole. start: integers "
           "[number of axes], or a scalar for one axis; clamped so that the window lies inside x. StableHLO "
           "dynamic_slice.",
};
static const graph_op row_dynamic_update_slice = {
    FORM(dynamic_update_slice, GRAPH_SCATTER, 3, "x update start"),
    GRAPH_JOINTLY_LINEAR(transpose_dynamic_update_slice),
    .attribute = {{"axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes that start speaks of; empty: all"}},
    .samples = "dynamic_update_slice(T[10, 7], T[3, 4], i32[2] in -2..9)\ndynamic_update_slice(T[], T[], i32[0])\n"
               "dynamic_update_slice(T[13], T[13], i64[1] in 0..13)\n"
               "dynamic_update_slice(T[13, 3], T[1, 3], i32[] in 0..13, axes=[0])\n"
               "dynamic_update_slice(T[3, 5], T[3, 0], i64[1] in 2..9, axes=[-1])\n"
               "dynamic_update_slice(T[2, 1, 3, 4, 1, 5], T[2, 1, 3, 3, 1, 2], i8[2] in 0..5, axes=[5, 3])",
    .doc = "x with the window at start replaced by update, which has x's rank and its size beside the axes. start: "
           "integers [number of axes], or a scalar for one axis; clamped so that the window lies inside x. "
           "StableHLO dynamic_update_slice.",
};

const graph_op *const graph_ops_index[] = {&row_gather,        &row_gather_elements,      &row_gather_nd,
                                           &row_scatter,       &row_scatter_elements,     &row_scatter_nd,
                                           &row_dynamic_slice, &row_dynamic_update_slice, NULL};
