/* Composites with a result whose size depends on the data. Each expands into ordinary operators, which compute positions padded to
 * the largest possible count, a `cut` of these to the actual count, and operators that compute the results from what is left. */
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

/* The narrowest dtype for positions below `count`. */
static dlc_dtype position_dtype(const graph *g, tir_expr count) {
    return tir_range(g->pool, count).high < INT32_MAX ? DLC_I32 : DLC_I64;
}

/* x in one dimension, row-major. */
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

/* Ascending positions of the true elements of `flags` (bool [n]), padded with n to [n]. *count: their number, a rank-0 value. */
static graph_id positions(graph *g, graph_id flags, graph_id *count) {
    const tir_expr n = graph_shape_of(g, flags)->dim[0];
    const dlc_dtype dtype = position_dtype(g, n);
    graph_id ones = graph_cast(g, flags, dtype);
    *count = graph_reduce_sum(g, ones, 0, NULL, false);
    graph_id before =
        graph_emit_with(g, "cumulative_sum", 1, &ones, 2,
                        (graph_setting[]){graph_set_integer("axis", 0), graph_set_bool("exclusive", true)});
    graph_id to = graph_select(g, flags, before, graph_scalar_i64(g, dtype, -1));
    graph_id from = graph_iota(g, dtype, 1, &n, 0);
    graph_id none = graph_broadcast_to(g, graph_dimension(g, dtype, n), 1, &n);
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

/* Row-major positions `flat` [n] in a tensor of that shape, as an index along each axis: i64 [rank, n]. */
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
    GRAPH_NO_GRADIENT,
    .doc =
        "The indices of the elements that are not zero (NaN counts), in row-major order: i64 [rank, size], a column for "
        "each. ONNX NonZero; NumPy nonzero.",
};

/* ---- unique */

enum { UNIQUE_SIZE, UNIQUE_SORTED };
enum { ALONG_SIZE, ALONG_AXIS, ALONG_SORTED };

/* Sets the shapes of results 1 to 3: index of first occurrence [size], group of each element [all], count [size]. */
static void infer_groups(graph_infer *infer, tir_expr all) {
    tir_expr count = infer->attribute[UNIQUE_SIZE].dims[0];
    infer->result[1] = infer->result[3] = (graph_shape){.dtype = DLC_I64, .rank = 1, .dim = {count}};
    infer->result[2] = (graph_shape){.dtype = DLC_I64, .rank = 1, .dim = {all}};
}

static void infer_unique(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    infer_counted(infer, &infer->attribute[UNIQUE_SIZE]);
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = 1, .dim = {infer->attribute[UNIQUE_SIZE].dims[0]}};
    infer_groups(infer, graph_infer_product(infer, x->rank, x->dim));
}

static void infer_unique_along(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    const int axis = graph_infer_axis(infer, infer->attribute[ALONG_AXIS].integer, x->rank, "axis");
    infer_counted(infer, &infer->attribute[ALONG_SIZE]);
    graph_infer_product(infer, x->rank, x->dim);
    infer->result[0] = *x;
    infer->result[0].dim[axis] = infer->attribute[ALONG_SIZE].dims[0];
    infer_groups(infer, x->dim[axis]);
}

static graph_id take(graph *g, graph_id x, graph_id indices) {
    return graph_gather(g, x, indices, 0);
}

/* Indices that sort x, rank 1, in ascending order, stably. */
static graph_id order_of(graph *g, graph_id x, dlc_dtype dtype) {
    return 1 + graph_emit_with(g, "sort", 1, &x, 2,
                               (graph_setting[]){graph_set_integer("axis", 0), graph_set_integer("dtype", dtype)});
}

/* bool [n]: does element i of `sorted` [n], or column i of `sorted` [rows, n], differ from the one before? True for i = 0; NaNs are
 * equal. number: 0 to n - 1. */
static graph_id starts_group(graph *g, graph_id sorted, graph_id number) {
    const graph_shape shape = *graph_shape_of(g, sorted);
    graph_id zero = graph_full_like(g, number, 0), one = graph_scalar_like(g, number, 1);
    graph_id before = graph_gather(g, sorted, graph_max(g, graph_sub(g, number, one), zero), shape.rank - 1);
    graph_id differs = graph_ne(g, sorted, before);
    if (lib_dtype_is_float(shape.dtype)) {
        graph_id both = graph_and(g, graph_ne(g, sorted, sorted), graph_ne(g, before, before));
        differs = graph_and(g, differs, graph_not(g, both));
    }
    if (shape.rank > 1) differs = graph_reduce_or(g, differs, 1, (int64_t[]){0}, false);
    return graph_or(g, graph_eq(g, number, zero), differs);
}

/* y[indices[i]] = values[i]; indices are a permutation. */
static graph_id put(graph *g, graph_id indices, graph_id values) {
    graph_id operands[3] = {graph_full_like(g, values, 0), indices, values};
    return graph_emit_with(g, "scatter", 3, operands, 1, (graph_setting[]){graph_set_integer("axis", 0)});
}

/* Computes results 1 to 3. order [n]: indices that sort the elements; first, bool [n]: the i-th of the sorted elements starts a
 * group of equal ones. Returns the index of each group's first element, [size]. */
static graph_id unique_groups(graph_expand *e, graph_id order, graph_id first, bool sorted) {
    graph *g = e->g;
    const tir_expr n = graph_shape_of(g, order)->dim[0];
    const dlc_dtype dtype = graph_shape_of(g, order)->dtype;
    graph_id count, number = graph_iota(g, dtype, 1, &n, 0);
    graph_id group = graph_emit_with(g, "cumulative_sum", 1, (graph_id[]){graph_cast(g, first, dtype)}, 1,
                                     (graph_setting[]){graph_set_integer("axis", 0)});
    group = graph_sub(g, group, graph_scalar_i64(g, dtype, 1));
    graph_id starts = positions(g, first, &count);
    graph_id all = graph_broadcast_like(g, graph_dimension(g, dtype, n), number);
    graph_id next = graph_add(g, number, graph_scalar_i64(g, dtype, 1)), inside = graph_lt(g, next, all);
    graph_id ends = graph_select(g, inside, take(g, starts, graph_select(g, inside, next, number)), all);
    if (!sorted) { /* groups by the index of their first element */
        graph_id known = graph_lt(g, number, graph_cast(g, count, dtype));
        graph_id by_first = order_of(g, graph_select(g, known, take(g, order, starts), all), dtype);
        starts = take(g, starts, by_first);
        ends = take(g, ends, by_first);
        group = take(g, put(g, by_first, number), group);
    }
    graph_id part = graph_emit_with(g, "cut", 3, (graph_id[]){count, starts, ends}, 1,
                                    (graph_setting[]){graph_set_dims("size", 1, e->attribute[UNIQUE_SIZE].dims)});
    graph_id indices = take(g, order, part);
    e->result[1] = graph_cast(g, indices, DLC_I64);
    e->result[2] = graph_cast(g, put(g, order, group), DLC_I64);
    e->result[3] = graph_cast(g, graph_sub(g, part + 1, part), DLC_I64);
    return indices;
}

static void expand_unique(graph_expand *e) {
    graph *g = e->g;
    graph_id x = whole(g, e->input[0]);
    const tir_expr n = graph_shape_of(g, x)->dim[0];
    const dlc_dtype dtype = position_dtype(g, n);
    graph_id order = order_of(g, x, dtype), sorted = order - 1;
    graph_id first = starts_group(g, sorted, graph_iota(g, dtype, 1, &n, 0));
    e->result[0] = take(g, x, unique_groups(e, order, first, e->attribute[UNIQUE_SORTED].integer));
}

/* Lexicographic order of the columns of x [rows, n]: stable sorts by the last row, then the one before, up to the first. */
static graph_id lexicographic_order(graph *g, graph_id x, dlc_dtype dtype) {
    const graph_shape shape = *graph_shape_of(g, x), row = {.dtype = shape.dtype, .rank = 1, .dim = {shape.dim[1]}};
    graph_id start = graph_iota(g, dtype, 1, &shape.dim[1], 0);
    int64_t number;
    graph *body = graph_new_subgraph(g, &number);
    graph_id order = graph_new_input(body, NULL, graph_shape_of(g, start));
    graph_id keys = take(body, graph_new_input(body, NULL, &row), order);
    graph_new_output(body, NULL, take(body, order, order_of(body, keys, dtype)));
    return graph_emit_with(g, "scan", 2, (graph_id[]){start, x}, 4,
                           (graph_setting[]){graph_set_integer("body", number), graph_set_integer("carries", 1),
                                             graph_set_integer("sequences", 1),
                                             graph_set_list("reverse", 1, (int64_t[]){1})});
}

static void expand_unique_along(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int axis = graph_axis_of(e->attribute[ALONG_AXIS].integer, shape.rank);
    const tir_expr n = shape.dim[axis];
    const dlc_dtype dtype = position_dtype(g, n);
    int64_t permutation[DLC_MAX_RANK];
    tir_expr rows = tir_index(g->pool, 1);
    for (int i = 0, to = 0; i < shape.rank; i++) {
        if (i == axis) continue;
        permutation[to++] = i;
        rows = tir_mul(g->pool, rows, shape.dim[i]);
    }
    permutation[shape.rank - 1] = axis;
    graph_id x = graph_reshape(g, graph_transpose(g, e->input[0], permutation), 2, (tir_expr[]){rows, n});
    graph_id order = lexicographic_order(g, x, dtype);
    graph_id first = starts_group(g, graph_gather(g, x, order, 1), graph_iota(g, dtype, 1, &n, 0));
    graph_id indices = unique_groups(e, order, first, e->attribute[ALONG_SORTED].integer);
    e->result[0] = graph_gather(g, e->input[0], indices, axis);
}

/* Rules would be those of the expansion, whose `cut` counts a size of its own: derivatives would have another size than the row's results. */
static const char use_gather[] =
    "its size is counted in the run, and the node would be counted twice: use gather of x at the index of the first of "
    "each, which is a result";
#define SORTED_ATTRIBUTE                                                 \
    {                                                                    \
        "sorted", GRAPH_ATTR_BOOL, NULL, "true",                         \
            "in ascending order; else in the order in which they first " \
            "occur"                                                      \
    }

static const graph_op row_unique = {
    .name = "unique",
    .class_ = GRAPH_COMPOSITE,
    .algebra = GRAPH_COUNTS,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 4,
    .operands = "x",
    .dtypes = "number",
    .attribute = {COUNTED_SIZE, SORTED_ATTRIBUTE},
    .infer = infer_unique,
    .expand = expand_unique,
    .refused = use_gather,
    .doc =
        "The different elements of x in ascending order [size], as sort orders them: NaN last, and all NaN are one (without "
        "`sorted` in the order of their first occurrence); the index "
        "of the first of each in row-major order, i64 [size]; for each element of x which of them it is, i64 [elements of "
        "x]; how often each occurs, i64 [size]. ONNX Unique without axis; NumPy unique.",
};

static const graph_op row_unique_along = {
    .name = "unique_along",
    .class_ = GRAPH_COMPOSITE,
    .algebra = GRAPH_COUNTS,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 4,
    .operands = "x",
    .dtypes = "number",
    .attribute = {COUNTED_SIZE,
                  {"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "slices of x across it are compared"},
                  SORTED_ATTRIBUTE},
    .infer = infer_unique_along,
    .expand = expand_unique_along,
    .refused = use_gather,
    .doc =
        "The different slices x[.., i, ..] along an axis, as x with `size` in the place of the axis' size. They are compared by their "
        "elements in row-major order, the first that differs decides; elements as in unique: NaN last and one, both zeros one. "
        "In ascending order, or without `sorted` in that of their first occurrence. Then the index of the first of "
        "each, i64 [size]; for each slice of x which of them it is, i64 [size of the axis]; how often each occurs, i64 [size]. Slices without "
        "elements are equal. One sort of the axis for each element of a slice. ONNX Unique with axis; NumPy unique with axis.",
};

/* ---- non_max_suppression */

enum { NMS_SIZE, NMS_MOST, NMS_OVERLAP, NMS_SCORE, NMS_CENTER };

static void infer_non_max_suppression(graph_infer *infer) {
    const graph_shape *boxes = &infer->operand[0], *scores = &infer->operand[1];
    infer_counted(infer, &infer->attribute[NMS_SIZE]);
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_rank(infer, 0, 3);
    graph_infer_rank(infer, 1, 3);
    graph_infer_equal(infer, boxes->dim[0], scores->dim[0], "batches of boxes and scores");
    graph_infer_equal(infer, boxes->dim[1], scores->dim[2], "numbers of boxes and of their scores");
    graph_infer_equal(infer, boxes->dim[2], tir_index(infer->g->pool, 4), "numbers of a box, expected 4");
    if (infer->attribute[NMS_MOST].integer < 0)
        graph_infer_fail(infer, "most is %lld, expected at least 0", (long long)infer->attribute[NMS_MOST].integer);
    infer->result[0] = (graph_shape){.dtype = DLC_I64, .rank = 2};
    infer->result[0].dim[0] = infer->attribute[NMS_SIZE].dims[0];
    infer->result[0].dim[1] = tir_index(infer->g->pool, 3);
}

static void expand_non_max_suppression(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[1]);
    const tir_expr one = tir_index(g->pool, 1);
    graph_id sorted =
        graph_emit_with(g, "sort", 1, &e->input[1], 3,
                        (graph_setting[]){graph_set_integer("axis", 2), graph_set_bool("descending", true),
                                          graph_set_integer("dtype", DLC_I64)});
    graph_id order = sorted + 1, operands[3] = {e->input[0], sorted, order}, count;
    const graph_attribute *a = e->attribute;
    graph_id keep = graph_emit_with(g, "suppress", 3, operands, 4,
                                    (graph_setting[]){graph_set_integer("most", a[NMS_MOST].integer),
                                                      graph_set_float("overlap", a[NMS_OVERLAP].number),
                                                      graph_set_float("score", a[NMS_SCORE].number),
                                                      graph_set_bool("center", a[NMS_CENTER].integer)});
    graph_id found = positions(g, whole(g, keep), &count), part = cut(g, count, found, &a[NMS_SIZE]);
    const tir_expr n = graph_shape_of(g, part)->dim[0];
    graph_id indices = indices_of(g, part, &shape); /* [3, size]: batch, class, position in the order */
    const tir_expr two = tir_index(g->pool, 2);
    graph_id above = graph_slice_axis(g, indices, 0, tir_index(g->pool, 0), two);
    graph_id box = graph_reshape(g, take(g, whole(g, order), part), 2, (tir_expr[]){one, n});
    e->result[0] = graph_transpose(g, graph_concat(g, 2, (graph_id[]){above, box}, 0), (int64_t[]){1, 0});
}

static const graph_op row_non_max_suppression = {
    .name = "non_max_suppression",
    .class_ = GRAPH_COMPOSITE,
    .algebra = GRAPH_COUNTS,
    .min_inputs = 2,
    .max_inputs = 2,
    .results = 1,
    .operands = "boxes scores",
    .dtypes = "f32 f64",
    .attribute = {COUNTED_SIZE,
                  {"most", GRAPH_ATTR_INTEGER, NULL, NULL, "boxes of one class of one batch, at most"},
                  {"overlap", GRAPH_ATTR_FLOAT, NULL, "0", "a box that overlaps one that is kept by more is dropped"},
                  {"score", GRAPH_ATTR_FLOAT, NULL, "-1.7976931348623157e308",
                   "boxes of no more than this are dropped"},
                  {"center", GRAPH_ATTR_BOOL, NULL, "false",
                   "boxes are x and y of the centre, width, height; else y and x of two opposite corners"}},
    .infer = infer_non_max_suppression,
    .expand = expand_non_max_suppression,
    GRAPH_NO_GRADIENT,
    .doc =
        "Boxes that are kept, i64 [size, 3]: batch, class, box; by batch, class and falling score. boxes [batch, boxes, 4], "
        "scores [batch, classes, boxes]. Of each class the box of the highest score is kept, those are dropped whose area "
        "in common with it over that of both together is above `overlap`, and so on. ONNX NonMaxSuppression.",
};

const graph_op *const graph_ops_counted[] = {&row_non_zero, &row_unique, &row_unique_along, &row_non_max_suppression,
                                             NULL};
