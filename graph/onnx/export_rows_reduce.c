/* Rows of reductions and other operators along an axis. */
#include "graph/onnx/export.h"

#include "graph/build.h"

/* ---- reductions ---------------------------------------------------------------------------------------------------------------- */

/* The lowest or highest number of the operand's own type, which may have no infinities, as a number of type `by`. */
static onnx_label *lowest_or_highest(onnx_export *ex, dlc_dtype by, bool lowest) {
    const dlc_dtype own = onnx_in_shape(ex, 0)->dtype;
    const tir_expr e = lowest ? tir_lowest(ex->g->pool, (tir_dtype)own) : tir_highest(ex->g->pool, (tir_dtype)own);
    const uint64_t bits = tir_get(ex->g->pool, e)->bits;
    return own == by ? onnx_export_constant(ex, own, 0, NULL, &bits)
                     : onnx_number(ex, by, lib_element_get_f64(own, &bits));
}

/* The reduction `op` of x by the node's axes: an operand of ReduceSum, for other operators an attribute before version 18. No axes: all. */
static onnx_label *reduced(onnx_export *ex, const char *op, onnx_label *x) {
    const graph_attribute *axes = onnx_row_attribute(ex, "axes");
    const bool operand = strcmp(op, "ReduceSum") == 0 || ex->opset >= 18;
    onnx_label *list = axes->count && operand ? onnx_list(ex, axes->count, axes->list) : NULL;
    onnx_label *y = ONNX_ADD(ex, op, x, list);
    if (axes->count && !operand) onnx_set_list(ex, "axes", axes->count, axes->list);
    onnx_set(ex, "keepdims", onnx_row_int(ex, "keep"));
    return y;
}

static const struct reduction {
    const char *row, *op;
    uint32_t types;
} reductions[] = {
    {"reduce_sum", "ReduceSum", 0},
    {"reduce_prod", "ReduceProd", 0},
    {"reduce_max", "ReduceMax", ONNX_TYPE(DLC_I8) | ONNX_TYPE(DLC_U8)},
    {"reduce_min", "ReduceMin", ONNX_TYPE(DLC_I8) | ONNX_TYPE(DLC_U8)},
    {"mean", "ReduceMean", 0},
    {"logsumexp", "ReduceLogSumExp", 0},
};

static const struct reduction *reduction_of(const onnx_export *ex, const char *row) {
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(reductions[i].row, row) == 0) return &reductions[i];
    lib_raise(ex->arena->scope, DLC_INTERNAL, "%s: exported by export_reduce, but no line of `reductions`", row);
}

#define REDUCED (ONNX_FLOATS_B | ONNX_TYPE(DLC_I32) | ONNX_TYPE(DLC_I64) | ONNX_TYPE(DLC_U32) | ONNX_TYPE(DLC_U64))

/* Narrow integers are reduced in i32, whose results wrap alike. The maximum or minimum of no elements is limited to the operand's type. */
static void export_reduce(onnx_export *ex) {
    const struct reduction *by = reduction_of(ex, ex->node->op->name);
    const dlc_dtype dtype = onnx_in_dtype(ex, 0);
    const bool taken = onnx_takes(REDUCED | by->types, dtype);
    onnx_label *x = onnx_in(ex, 0), *y = reduced(ex, by->op, taken ? x : onnx_to(ex, x, DLC_I32));
    const bool most = strcmp(by->op, "ReduceMax") == 0, least = strcmp(by->op, "ReduceMin") == 0;
    if ((most || least) && (ex->widened || !taken))
        y = ONNX_ADD(ex, most ? "Max" : "Min", y, lowest_or_highest(ex, taken ? dtype : DLC_I32, most));
    onnx_export_give_label(ex, 0, taken ? y : onnx_to(ex, y, dtype));
}

/* Reductions of bools as those of numbers: and is the least, or the greatest, xor the sum modulo 2. */
static void export_reduce_logical(onnx_export *ex) {
    const char last = ex->node->op->name[strlen("reduce_")];
    const dlc_dtype by = last == 'x' ? DLC_I32 : DLC_U8;
    onnx_label *x = onnx_in(ex, 0);
    if (onnx_in_dtype(ex, 0) != DLC_BOOL) {
        onnx_refuse(ex, "ONNX has no reduction of the bits of integers");
        return;
    }
    x = onnx_to(ex, x, by);
    x = reduced(ex, last == 'a' ? "ReduceMin" : last == 'o' ? "ReduceMax" : "ReduceSum", x);
    if (last == 'x') x = ONNX_ADD(ex, "Mod", x, onnx_whole(ex, DLC_I32, 2));
    onnx_export_give_label(ex, 0, onnx_to(ex, x, DLC_BOOL));
}

static void export_arg(onnx_export *ex) {
    const bool most = strcmp(ex->node->op->name, "arg_max") == 0;
    const dlc_dtype dtype = onnx_result_shape(ex, 0)->dtype;
    onnx_label *y = ONNX_ADD(ex, most ? "ArgMax" : "ArgMin", onnx_in(ex, 0));
    onnx_set(ex, "axis", onnx_row_axis(ex, "axis", onnx_in_shape(ex, 0)->rank));
    onnx_set(ex, "keepdims", onnx_row_int(ex, "keep"));
    if (onnx_row_int(ex, "last")) onnx_set(ex, "select_last_index", 1);
    onnx_export_give_label(ex, 0, dtype == DLC_I64 ? y : onnx_to(ex, y, dtype));
}

/* ---- running totals ------------------------------------------------------------------------------------------------------------ */

static void export_cumulative_sum(onnx_export *ex) {
    const dlc_dtype dtype = onnx_in_dtype(ex, 0);
    const bool taken = onnx_takes(REDUCED, dtype);
    onnx_label *x = onnx_in(ex, 0);
    const int axis = onnx_row_axis(ex, "axis", onnx_in_shape(ex, 0)->rank);
    onnx_label *y = ONNX_ADD(ex, "CumSum", taken ? x : onnx_to(ex, x, DLC_I32), onnx_whole(ex, DLC_I64, axis));
    if (onnx_row_int(ex, "exclusive")) onnx_set(ex, "exclusive", 1);
    if (onnx_row_int(ex, "reverse")) onnx_set(ex, "reverse", 1);
    onnx_export_give_label(ex, 0, taken ? y : onnx_to(ex, y, dtype));
}

/* The body of a Scan over the axis: combines the total so far with the next element by op. Its result is the new total, or, if exclusive, the
 * total before. */
static onnx_out_graph *total_body(onnx_export *ex, tir_op op, const graph_shape *element, bool exclusive) {
    onnx_out_graph *body = onnx_begin_graph(ex, "total"), *outer = ex->out;
    ex->out = body;
    onnx_label *x[2];
    x[0] = onnx_add_graph_input(ex, "before", element);
    x[1] = onnx_add_graph_input(ex, "element", element);
    onnx_label *next = onnx_export_apply(ex, op, (tir_dtype)element->dtype, x);
    onnx_add_graph_output(ex, next, element);
    onnx_add_graph_output(ex, exclusive ? x[0] : next, element);
    ex->out = outer;
    return body;
}

static void export_cumulative(onnx_export *ex) {
    const char kind = ex->node->op->name[strlen("cumulative_m")]; /* of "max", "min" and "prod" */
    const bool product = strcmp(ex->node->op->name, "cumulative_prod") == 0;
    const tir_op op = product ? TIR_MUL : kind == 'a' ? TIR_MAX : TIR_MIN;
    graph_shape element = *onnx_in_shape(ex, 0);
    const int64_t axis = onnx_row_axis(ex, "axis", element.rank), reverse = onnx_row_int(ex, "reverse");
    element.dtype = onnx_in_dtype(ex, 0);
    for (int d = (int)axis; d + 1 < element.rank; d++) element.dim[d] = element.dim[d + 1];
    element.rank--;
    onnx_label *first =
        product ? onnx_number(ex, element.dtype, 1) : lowest_or_highest(ex, element.dtype, op == TIR_MAX);
    first = onnx_stretched(ex, first, element.rank, element.dim);
    const onnx_out_graph *body = total_body(ex, op, &element, onnx_row_int(ex, "exclusive") != 0);
    ONNX_ADD(ex, "Scan", first, onnx_in(ex, 0));
    onnx_label *y = onnx_add_result(ex);
    onnx_set_graph(ex, "body", body);
    onnx_set(ex, "num_scan_inputs", 1);
    onnx_set_list(ex, "scan_input_axes", 1, &axis);
    onnx_set_list(ex, "scan_output_axes", 1, &axis);
    if (reverse) onnx_set_list(ex, "scan_input_directions", 1, &reverse);
    if (reverse) onnx_set_list(ex, "scan_output_directions", 1, &reverse);
    onnx_export_give_label(ex, 0, y);
}

/* ---- sorting --------------------------------------------------------------------------------------------------------------------- */

/* Exports top_k, and sort as the first of all elements, by TopK, which keeps the order of equals. */
static void export_top(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0);
    const bool sort = strcmp(ex->node->op->name, "sort") == 0;
    const int axis = onnx_row_axis(ex, "axis", x->rank);
    const dlc_dtype dtype = onnx_result_shape(ex, 1)->dtype;
    onnx_label *count = onnx_size(ex, onnx_result_shape(ex, 0)->dim[axis]);
    onnx_label *values = ONNX_ADD(ex, "TopK", onnx_in(ex, 0), count), *places = onnx_add_result(ex);
    onnx_set(ex, "axis", axis);
    onnx_set(ex, "largest", sort ? onnx_row_int(ex, "descending") : !onnx_row_int(ex, "least"));
    onnx_export_give_label(ex, 0, values);
    onnx_export_give_label(ex, 1, dtype == DLC_I64 ? places : onnx_to(ex, places, dtype));
}

static void export_unique(onnx_export *ex) {
    onnx_label *y[4];
    y[0] = ONNX_ADD(ex, "Unique", onnx_in(ex, 0));
    for (int i = 1; i < 4; i++) y[i] = onnx_add_result(ex);
    if (graph_op_attribute(ex->node->op, "axis") >= 0)
        onnx_set(ex, "axis", onnx_row_axis(ex, "axis", onnx_in_shape(ex, 0)->rank));
    onnx_set(ex, "sorted", onnx_row_int(ex, "sorted"));
    for (int i = 0; i < 4; i++) onnx_export_give_label(ex, i, y[i]);
}

static void export_suppression(onnx_export *ex) {
    const double score = onnx_row_attribute(ex, "score")->number;
    onnx_label *most = onnx_list(ex, 1, (int64_t[]){onnx_row_int(ex, "most")});
    const int64_t one = 1;
    const float overlap = (float)onnx_row_attribute(ex, "overlap")->number, least = (float)score;
    onnx_label *above = score < -(double)__FLT_MAX__ ? NULL : onnx_export_constant(ex, DLC_F32, 1, &one, &least);
    onnx_label *y = ONNX_ADD(ex, "NonMaxSuppression", onnx_in(ex, 0), onnx_in(ex, 1), most,
                             onnx_export_constant(ex, DLC_F32, 1, &one, &overlap), above);
    if (onnx_row_int(ex, "center")) onnx_set(ex, "center_point_box", 1);
    onnx_export_give_label(ex, 0, y);
}

/* ---- windows --------------------------------------------------------------------------------------------------------------------- */

/* The window's reduction along one axis: for each element of the window a strided slice of x, all combined by op. */
static onnx_label *windowed(onnx_export *ex, onnx_label *x, tir_op op, dlc_dtype dtype, int axis, int64_t window,
                            int64_t stride, int64_t dilation) {
    tir_pool *pool = ex->g->pool;
    const tir_expr outputs = onnx_result_shape(ex, 0)->dim[axis];
    onnx_label *all = NULL, *axes = onnx_list(ex, 1, (int64_t[]){axis}), *steps = onnx_list(ex, 1, &stride);
    if (window == 1 && stride == 1) return x;
    for (int64_t k = 0; k < window; k++) {
        const int64_t at = k * dilation;
        const tir_expr end = tir_add(pool, tir_mul(pool, outputs, tir_index(pool, stride)), tir_index(pool, at));
        onnx_label *part = ONNX_ADD(ex, "Slice", x, onnx_list(ex, 1, &at), onnx_size(ex, end), axes, steps);
        all = all ? onnx_export_apply(ex, op, (tir_dtype)dtype, (onnx_label *[]){all, part}) : part;
    }
    return all;
}

static int64_t entry(const graph_attribute *list, int i, int64_t fallback) {
    return list->count ? list->list[i] : fallback;
}

static void export_reduce_window(onnx_export *ex) {
    enum { SUM, MAXIMUM, WINDOW_MAX = 1024 };
    const graph_attribute *window = onnx_row_attribute(ex, "window"), *stride = onnx_row_attribute(ex, "stride"),
                          *low = onnx_row_attribute(ex, "low"), *high = onnx_row_attribute(ex, "high"),
                          *dilation = onnx_row_attribute(ex, "dilation");
    const int64_t which = onnx_row_int(ex, "op");
    const tir_op op = which == SUM ? TIR_ADD : which == MAXIMUM ? TIR_MAX : TIR_MIN;
    const dlc_dtype dtype = onnx_in_dtype(ex, 0);
    int64_t pads[2 * DLC_MAX_RANK];
    bool any = false;
    onnx_label *y = onnx_in(ex, 0);
    for (int d = 0; d < window->count; d++) {
        const int64_t before = entry(low, d, 0), after = entry(high, d, 0);
        pads[d] = before > 0 ? before : 0, pads[window->count + d] = after > 0 ? after : 0;
        any |= pads[d] || pads[window->count + d];
        if (window->list[d] > WINDOW_MAX) onnx_refuse(ex, "a window of %lld elements", (long long)window->list[d]);
        if (window->list[d] > WINDOW_MAX) return;
    }
    if (any)
        y = ONNX_ADD(ex, "Pad", y, onnx_list(ex, 2 * window->count, pads),
                     which == SUM ? onnx_number(ex, dtype, 0) : lowest_or_highest(ex, dtype, which == MAXIMUM));
    y = onnx_cropped(ex, y, 0, window->count, low, high);
    for (int d = 0; d < window->count; d++)
        y = windowed(ex, y, op, dtype, d, window->list[d], entry(stride, d, 1), entry(dilation, d, 1));
    /* Sums begin with 0: of -0 alone they are 0. */
    if (which == SUM && lib_dtype_is_float(dtype)) y = ONNX_ADD(ex, "Add", y, onnx_number(ex, dtype, 0));
    onnx_export_give_label(ex, 0, y);
}

#define WIDE (ONNX_WHOLES | ONNX_TYPE(DLC_F32) | ONNX_TYPE(DLC_F64))
#define ARG (ONNX_WHOLES | ONNX_FLOATS_B)

const onnx_export_row onnx_export_rows_reduce[] = {
    {.row = "reduce_sum", .export = export_reduce, .types = ONNX_NUMBERS},
    {.row = "reduce_prod", .export = export_reduce, .types = ONNX_NUMBERS},
    {.row = "reduce_max", .export = export_reduce, .types = ONNX_NUMBERS},
    {.row = "reduce_min", .export = export_reduce, .types = ONNX_NUMBERS},
    {.row = "mean", .export = export_reduce, .types = ONNX_FLOATS_B},
    {.row = "logsumexp", .export = export_reduce, .types = ONNX_FLOATS_B},
    {.row = "reduce_and", .export = export_reduce_logical},
    {.row = "reduce_or", .export = export_reduce_logical},
    {.row = "reduce_xor", .export = export_reduce_logical},
    {.row = "arg_max", .export = export_arg, .types = ARG},
    {.row = "arg_min", .export = export_arg, .types = ARG},
    {.row = "cumulative_sum", .export = export_cumulative_sum, .types = ONNX_NUMBERS},
    {.row = "cumulative_prod", .export = export_cumulative, .types = WIDE},
    {.row = "cumulative_max", .export = export_cumulative, .types = WIDE},
    {.row = "cumulative_min", .export = export_cumulative, .types = WIDE},
    {.row = "top_k", .export = export_top, .types = ONNX_WHOLES | ONNX_FLOATS},
    {.row = "sort", .export = export_top, .types = ONNX_WHOLES | ONNX_FLOATS},
    {.row = "reduce_window", .export = export_reduce_window, .types = WIDE},
    {.row = "non_zero", .op = "NonZero", .types = ONNX_ALL},
    {.row = "unique", .export = export_unique, .types = ONNX_WHOLES | ONNX_FLOATS},
    {.row = "unique_along", .export = export_unique, .types = ONNX_WHOLES | ONNX_FLOATS},
    {.row = "non_max_suppression", .export = export_suppression, .types = ONNX_TYPE(DLC_F32)},
    {0},
};
