/* Rows of reductions and other operators along an axis. */
#include "graph/onnx/import.h"

typedef struct reduction {
    int count;
    /* NULL: all axes */
    const int64_t *axes;
    bool keep, nothing;
} reduction;

/* operand_since: the version from which the axes are an operand. */
static reduction read_reduction(onnx_import *im, int operand_since) {
    reduction r = {.keep = onnx_int(im, "keepdims", 1) != 0};
    const bool noop = onnx_int(im, "noop_with_empty_axes", 0) != 0;
    const graph_shape x = onnx_operand_shape(im, 0);
    r.axes = onnx_axes(im, operand_since, 1, x.rank, &r.count);
    if (r.count == 0) r.axes = NULL;
    r.nothing = !r.axes && noop; /* only the elementwise part remains */
    return r;
}

static int operand_since(const onnx_import *im) {
    return onnx_is(im->node->operator, "ReduceSum") ? 13 : 18;
}

static graph_id reduce(onnx_import *im, const char *op, graph_id x, const reduction *r) {
    if (r->nothing) return x;
    return ONNX_WITH(im, op, x, graph_set_list("axes", r->count, r->axes), graph_set_bool("keep", r->keep));
}

static void import_reduce(onnx_import *im) {
    const reduction r = read_reduction(im, operand_since(im));
    onnx_give(im, 0, reduce(im, im->row->op, onnx_operand(im, 0), &r));
}

static void import_extreme(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    const graph_id x = onnx_operand(im, 0);
    const bool most = onnx_is(im->node->operator, "ReduceMax"), logical = graph_shape_of(im->g, x)->dtype == DLC_BOOL;
    onnx_give(im, 0, reduce(im, logical ? (most ? "reduce_or" : "reduce_and") : im->row->op, x, &r));
}

static void import_mean(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype dtype = graph_shape_of(im->g, x)->dtype;
    if (lib_dtype_is_float(dtype))
        onnx_give(im, 0, reduce(im, "mean", x, &r));
    else
        onnx_give(im, 0, graph_cast(im->g, reduce(im, "mean", graph_cast(im->g, x, DLC_F64), &r), dtype));
}

static void import_l1(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    onnx_give(im, 0, reduce(im, "reduce_sum", graph_abs(im->g, onnx_operand(im, 0)), &r));
}

static graph_id sum_of_squares(onnx_import *im, graph_id x, const reduction *r) {
    return reduce(im, "reduce_sum", graph_mul(im->g, x, x), r);
}

static void import_l2(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype dtype = graph_shape_of(im->g, x)->dtype;
    const graph_id wide = lib_dtype_is_float(dtype) ? x : graph_cast(im->g, x, DLC_F64);
    onnx_give(im, 0, graph_cast(im->g, graph_sqrt(im->g, sum_of_squares(im, wide, &r)), dtype));
}

static void import_sum_square(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    onnx_give(im, 0, sum_of_squares(im, onnx_operand(im, 0), &r));
}

/* Imports ReduceLogSum or ReduceLogSumExp; integers are computed in f64. */
static void import_logarithm(onnx_import *im) {
    const reduction r = read_reduction(im, 18);
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype dtype = graph_shape_of(im->g, x)->dtype;
    const graph_id wide = lib_dtype_is_float(dtype) ? x : graph_cast(im->g, x, DLC_F64);
    graph_id y;
    if (onnx_is(im->node->operator, "ReduceLogSum"))
        y = graph_log(im->g, reduce(im, "reduce_sum", wide, &r));
    else
        y = reduce(im, "logsumexp", wide, &r);
    onnx_give(im, 0, graph_cast(im->g, y, dtype));
}

static void import_arg(onnx_import *im) {
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), onnx_operand_rank(im, 0), false);
    onnx_give(im, 0,
              ONNX_WITH(im, im->row->op, onnx_operand(im, 0), graph_set_integer("axis", axis),
                        graph_set_bool("keep", onnx_int(im, "keepdims", 1) != 0), graph_set_integer("dtype", DLC_I64),
                        graph_set_bool("last", onnx_int(im, "select_last_index", 0) != 0)));
}

static void import_cumulative(onnx_import *im) {
    if (!onnx_has(im, 1)) onnx_fail(im, DLC_PARSE_ERROR, "operand 1, the axis, is missing");
    const int axis = onnx_axis(im, onnx_operand_integer(im, 1, 0), onnx_operand_rank(im, 0), false);
    onnx_give(im, 0,
              ONNX_WITH(im, im->row->op, onnx_operand(im, 0), graph_set_integer("axis", axis),
                        graph_set_bool("exclusive", onnx_int(im, "exclusive", 0) != 0),
                        graph_set_bool("reverse", onnx_int(im, "reverse", 0) != 0)));
}

/* Imports TopK of all elements of an axis whose size is a symbol as a sort. False: it is another TopK. */
static bool import_sort(onnx_import *im, int axis) {
    const onnx_known *k = im->opset >= 10 ? onnx_operand_known(im, 1) : NULL;
    const tir_expr size = onnx_operand_shape(im, 0).dim[axis];
    int64_t number;
    if (!k || k->count != 1 || tir_is_const(im->g->pool, size, &number)) return false;
    if (tir_equal(im->g->pool, onnx_operand_size(im, 1), size) != TIR_YES) return false;
    onnx_ignore(im, "sorted");
    const graph_id y = ONNX_WITH(im, "sort", onnx_operand(im, 0), graph_set_integer("axis", axis),
                                 graph_set_bool("descending", onnx_int(im, "largest", 1) != 0));
    onnx_give(im, 0, y);
    onnx_give(im, 1, y + 1);
    return true;
}

static void import_top_k(onnx_import *im) {
    const int axis = onnx_axis(im, onnx_int(im, "axis", -1), onnx_operand_rank(im, 0), false);
    int64_t k = onnx_int(im, "k", 0);
    if (import_sort(im, axis)) return;
    if (im->opset >= 10) k = onnx_operand_integer(im, 1, 0);
    onnx_ignore(im, "sorted");
    const graph_id y =
        ONNX_WITH(im, "top_k", onnx_operand(im, 0), graph_set_integer("k", k), graph_set_integer("axis", axis),
                  graph_set_integer("dtype", DLC_I64), graph_set_bool("least", onnx_int(im, "largest", 1) == 0));
    onnx_give(im, 0, y);
    onnx_give(im, 1, y + 1);
}

const onnx_row onnx_rows_reduce[] = {
    {"ArgMax", 1, 0, import_arg, "arg_max"},
    {"ArgMin", 1, 0, import_arg, "arg_min"},
    {"CumProd", 26, 0, import_cumulative, "cumulative_prod"},
    {"CumSum", 11, 0, import_cumulative, "cumulative_sum"},
    {"ReduceL1", 1, 0, import_l1, NULL},
    {"ReduceL2", 1, 0, import_l2, NULL},
    {"ReduceLogSum", 1, 0, import_logarithm, NULL},
    {"ReduceLogSumExp", 1, 0, import_logarithm, NULL},
    {"ReduceMax", 1, 0, import_extreme, "reduce_max"},
    {"ReduceMean", 1, 0, import_mean, NULL},
    {"ReduceMin", 1, 0, import_extreme, "reduce_min"},
    {"ReduceProd", 1, 0, import_reduce, "reduce_prod"},
    {"ReduceSum", 1, 0, import_reduce, "reduce_sum"},
    {"ReduceSumSquare", 1, 0, import_sum_square, NULL},
    {"TopK", 1, 0, import_top_k, NULL},
    {0},
};
