/* Moves by positions that are sums of multiples of indices, and sums over them: each is the transpose of the other. Subscripts of tensor
 * expressions become these where they are more than a slice (gradient_stage.c). */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

enum { AFFINE_SHAPE, AFFINE_MATRIX, AFFINE_OFFSET };

/* Of offsets, so that positions do not overflow. */
#define FARTHEST ((int64_t)1 << 48)

/* ---- shapes ---------------------------------------------------------------------------------------------------------------- */

/* dims: of the tensor that positions are in; axes: of the one whose indices they are computed from. */
static void infer_affine(const graph_infer *infer, int dims, int axes) {
    const graph_attribute *a = infer->attribute;
    if (a[AFFINE_MATRIX].count != dims * axes)
        graph_infer_fail(infer, "matrix has %d entries, expected %d: a row of %d for each of %d dimensions",
                         a[AFFINE_MATRIX].count, dims * axes, axes, dims);
    if (a[AFFINE_OFFSET].count != dims)
        graph_infer_fail(infer, "offset has %d entries, expected %d", a[AFFINE_OFFSET].count, dims);
    for (int i = 0; i < dims * axes; i++)
        if (a[AFFINE_MATRIX].list[i] > INT32_MAX || a[AFFINE_MATRIX].list[i] < -INT32_MAX)
            graph_infer_fail(infer, "matrix: %lld is too large", (long long)a[AFFINE_MATRIX].list[i]);
    for (int64_t d = 0, number; d < dims; d++)
        if (tir_is_const(infer->g->pool, a[AFFINE_OFFSET].dims[d], &number) &&
            (number > FARTHEST || number < -FARTHEST))
            graph_infer_fail(infer, "offset: %lld is too large", (long long)number);
    infer->result[0] = (graph_shape){.dtype = infer->operand[0].dtype, .rank = a[AFFINE_SHAPE].count};
    for (int i = 0; i < a[AFFINE_SHAPE].count; i++) {
        infer->result[0].dim[i] = a[AFFINE_SHAPE].dims[i];
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), a[AFFINE_SHAPE].dims[i], "shape: a size below 0");
    }
}

static void infer_affine_gather(graph_infer *infer) {
    infer_affine(infer, infer->operand[0].rank, infer->attribute[AFFINE_SHAPE].count);
}
static void infer_affine_scatter(graph_infer *infer) {
    infer_affine(infer, infer->attribute[AFFINE_SHAPE].count, infer->operand[0].rank);
}

/* ---- definitions ------------------------------------------------------------------------------------------------------------- */

/* offset + the sum of multiples of index[axis] for all axes but `without`, in dimension d. */
static tir_expr position(const graph_compute *c, int d, int axes, const tir_expr *index, int without) {
    tir_expr sum = c->attribute[AFFINE_OFFSET].dims[d];
    for (int a = 0; a < axes; a++) {
        const int64_t factor = c->attribute[AFFINE_MATRIX].list[d * axes + a];
        if (factor && a != without) sum = tir_add(c->pool, sum, tir_mul(c->pool, tir_index(c->pool, factor), index[a]));
    }
    return sum;
}

static tir_expr is_inside(tir_pool *pool, tir_expr at, tir_expr size) {
    return tir_and(pool, tir_le(pool, tir_index(pool, 0), at), tir_lt(pool, at, size));
}

static tir_expr load_where(const graph_compute *c, const tir_expr *index, tir_expr guard) {
    const tir_dtype dtype = (tir_dtype)c->operand_shape[0].dtype;
    const tir_expr zero = dtype == DLC_BOOL                      ? tir_bool(c->pool, false)
                          : lib_dtype_is_float((dlc_dtype)dtype) ? tir_float(c->pool, dtype, 0)
                                                                 : tir_int(c->pool, dtype, 0);
    return tir_region_load_guarded(c->region, c->operand[0], index, guard, zero);
}

static void compute_affine_gather(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    tir_expr axis[DLC_MAX_RANK];
    tir_stage *stage = graph_map_stage(c, y, axis);
    tir_expr index[DLC_MAX_RANK], guard = tir_bool(c->pool, true);
    for (int d = 0; d < x->rank; d++) {
        index[d] = position(c, d, y->rank, axis, -1);
        guard = tir_and(c->pool, guard, is_inside(c->pool, index[d], x->dim[d]));
    }
    c->result[0] = tir_stage_value(c->region, stage, load_where(c, index, guard), 0, 0);
}

/* By dimension of the result, the axis of the operand that the position determines: the longest one that no other dimension has; -1: there
 * is none. The other axes are summed. */
static void find_pivots(const graph_compute *c, int *pivot) {
    const graph_shape *x = &c->operand_shape[0];
    const int dims = c->result_shape[0].rank;
    const int64_t *matrix = c->attribute[AFFINE_MATRIX].list;
    for (int d = 0; d < dims; d++) {
        pivot[d] = -1;
        for (int a = 0; a < x->rank; a++) {
            bool own = matrix[d * x->rank + a] != 0;
            for (int k = 0; k < dims; k++) own = own && (k == d || matrix[k * x->rank + a] == 0);
            if (!own) continue;
            if (pivot[d] < 0 || tir_range(c->pool, x->dim[a]).high > tir_range(c->pool, x->dim[pivot[d]]).high)
                pivot[d] = a;
        }
    }
}

/* Sets the index of the pivot of dimension d, whose position is `at`: i = (at - rest)/factor; returns where that is whole and inside. */
static tir_expr solve(const graph_compute *c, int d, int pivot, tir_expr at, tir_expr *index) {
    const int axes = c->operand_shape[0].rank;
    const int64_t factor = c->attribute[AFFINE_MATRIX].list[d * axes + pivot];
    const tir_expr rest = position(c, d, axes, index, pivot),
                   divisor = tir_index(c->pool, factor < 0 ? -factor : factor);
    const tir_expr distance = factor < 0 ? tir_sub(c->pool, rest, at) : tir_sub(c->pool, at, rest);
    index[pivot] = tir_div(c->pool, distance, divisor);
    const tir_expr whole = tir_eq(c->pool, tir_rem(c->pool, distance, divisor), tir_index(c->pool, 0));
    return tir_and(c->pool, whole, is_inside(c->pool, index[pivot], c->operand_shape[0].dim[pivot]));
}

static void compute_affine_scatter(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    const tir_dtype sum = (tir_dtype)graph_sum_dtype(x->dtype);
    int pivot[DLC_MAX_RANK], summed[DLC_MAX_RANK], count = 0;
    tir_expr extent[DLC_MAX_RANK], index[DLC_MAX_RANK] = {0}, guard = tir_bool(c->pool, true);
    find_pivots(c, pivot);
    for (int a = 0; a < x->rank; a++) {
        bool solved = false;
        for (int d = 0; d < y->rank; d++) solved = solved || pivot[d] == a;
        if (solved) continue;
        extent[count] = x->dim[a];
        summed[count++] = a;
    }
    tir_stage *stage = tir_region_stage(c->region, count ? TIR_REDUCE : TIR_MAP, c->name, y->rank, NULL, y->dim, count,
                                        NULL, count ? extent : NULL);
    for (int i = 0; i < count; i++) index[summed[i]] = stage->axis[y->rank + i].var;
    for (int d = 0; d < y->rank; d++)
        if (pivot[d] >= 0) guard = tir_and(c->pool, guard, solve(c, d, pivot[d], stage->axis[d].var, index));
    for (int d = 0; d < y->rank; d++)
        if (pivot[d] < 0)
            guard = tir_and(c->pool, guard, tir_eq(c->pool, stage->axis[d].var, position(c, d, x->rank, index, -1)));
    const tir_expr element = load_where(c, index, guard);
    if (!count) {
        c->result[0] = tir_stage_value(c->region, stage, element, 0, 0);
        return;
    }
    const uint32_t total = tir_stage_reduce(c->region, stage, TIR_ADD, tir_cast(c->pool, sum, element));
    c->result[0] = graph_compute_cast(c, total, y->dtype, NULL);
}

/* ---- derivatives --------------------------------------------------------------------------------------------------------------- */

static void transpose_to(graph_rule *rule, const char *row) {
    const graph_shape *x = graph_shape_of(rule->g, rule->input[0]);
    rule->out[0] = graph_emit_with(
        rule->g, row, 1, rule->cotangent, 3,
        (graph_setting[]){
            graph_set_dims("shape", x->rank, x->dim),
            graph_set_list("matrix", rule->attribute[AFFINE_MATRIX].count, rule->attribute[AFFINE_MATRIX].list),
            graph_set_dims("offset", rule->attribute[AFFINE_OFFSET].count, rule->attribute[AFFINE_OFFSET].dims)});
}
static void transpose_affine_gather(graph_rule *rule) {
    transpose_to(rule, "affine_scatter");
}
static void transpose_affine_scatter(graph_rule *rule) {
    transpose_to(rule, "affine_gather");
}

/* ---- references ---------------------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE
/* The index in `to` of the position of index[]; -1: outside. */
static int64_t reference_position(const graph_reference *r, const graph_reference_tensor *to, int axes,
                                  const int64_t *index) {
    int64_t at[DLC_MAX_RANK];
    for (int d = 0; d < to->rank; d++) {
        at[d] = r->attribute[AFFINE_OFFSET].list[d];
        for (int a = 0; a < axes; a++) at[d] += r->attribute[AFFINE_MATRIX].list[d * axes + a] * index[a];
        if (at[d] < 0 || at[d] >= to->dim[d]) return -1;
    }
    return graph_reference_at(to, at);
}

static void reference_affine_gather(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t index[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(y, index) {
        const int64_t at = reference_position(r, x, y->rank, index);
        y->data[graph_reference_at(y, index)] = at < 0 ? 0 : x->data[at];
    }
}

static void reference_affine_scatter(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t index[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(x, index) {
        const int64_t at = reference_position(r, y, x->rank, index);
        if (at >= 0) y->data[at] += x->data[graph_reference_at(x, index)];
    }
}
#endif

/* ---- rows ---------------------------------------------------------------------------------------------------------------------- */

#define ATTRIBUTES(axes)                                                                                               \
    .attribute = {                                                                                                     \
        {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"},                                            \
        {"matrix", GRAPH_ATTR_INTEGERS, NULL, NULL, "multiples of the indices, a row of " axes " for each dimension"}, \
        {"offset", GRAPH_ATTR_DIMS, NULL, NULL, "position of the index 0, by dimension; may be negative"}}

static const graph_op row_affine_gather = {
    PRIMITIVE_ROW(affine_gather, GRAPH_INJECTIVE, 1, 1, 1, "x", "any"),
    .structure = GRAPH_PICKS,
    .infer = infer_affine_gather,
    GRAPH_LINEAR(1, transpose_affine_gather),
    ATTRIBUTES("the result's axes"),
    .samples =
        "affine_gather(T[9], shape=[7, 3], matrix=[1, 1], offset=[0])\n"
        "affine_gather(T[9], shape=[4, 3], matrix=[-2, 1], offset=[5])\n"
        "affine_gather(T[4, 4], shape=[4], matrix=[1, 1], offset=[0, 0])\n"
        "affine_gather(T[3, 5], shape=[3, 3], matrix=[1, 0, 1, 1], offset=[0, -1])\n"
        "affine_gather(T[2, 7, 5], shape=[2, 3, 5, 2], matrix=[1, 0, 0, 0, 0, 2, 0, 1, 0, 0, 1, -2], offset=[0, -1, 2])\n"
        "affine_gather(T[], shape=[3], matrix=[], offset=[])\naffine_gather(T[5], shape=[], matrix=[], offset=[3])\n"
        "affine_gather(T[0], shape=[3, 2], matrix=[1, 1], offset=[0])\n"
        "affine_gather(T[6], shape=[0, 2], matrix=[1, 1], offset=[0])",
    .doc =
        "y[i...] = x[p...] with position p = offset + matrix i, and 0 where p is outside of x: windows, diagonals, strides, "
        "padding. The transpose of affine_scatter.",
};
static const graph_op row_affine_scatter = {
    PRIMITIVE_ROW(affine_scatter, GRAPH_REDUCE, 1, 1, 1, "x", "float"),
    .infer = infer_affine_scatter,
    GRAPH_LINEAR(1, transpose_affine_scatter),
    ATTRIBUTES("the operand's axes"),
    .tolerance = 1,
    .samples =
        "affine_scatter(T[7, 3], shape=[9], matrix=[1, 1], offset=[0])\n"
        "affine_scatter(T[4, 3], shape=[9], matrix=[-2, 1], offset=[5])\n"
        "affine_scatter(T[4], shape=[4, 4], matrix=[1, 1], offset=[0, 0])\n"
        "affine_scatter(T[3, 3], shape=[3, 5], matrix=[1, 0, 1, 1], offset=[0, -1])\n"
        "affine_scatter(T[2, 3, 5, 2], shape=[2, 7, 5], matrix=[1, 0, 0, 0, 0, 2, 0, 1, 0, 0, 1, -2], offset=[0, -1, 2])\n"
        "affine_scatter(T[3], shape=[], matrix=[], offset=[])\naffine_scatter(T[], shape=[5], matrix=[], offset=[3])\n"
        "affine_scatter(T[3, 2], shape=[0], matrix=[1, 1], offset=[0])\n"
        "affine_scatter(T[0, 2], shape=[6], matrix=[1, 1], offset=[0])",
    .doc =
        "y[p...] = the sum of x[i...] over all indices i whose position offset + matrix i is p. The indices of a dimension "
        "are solved for one that no other has, i = (p - rest)/multiple where that is whole and inside, and the others "
        "summed, so that each element is computed on its own. The transpose of affine_gather.",
};

const graph_op *const graph_ops_affine[] = {&row_affine_gather, &row_affine_scatter, NULL};
