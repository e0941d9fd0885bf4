/* Rows of losses, signals, integer products with scales, detection, and results with data-dependent sizes. */
#include "graph/onnx/import.h"
#include "graph/onnx/window.h"

#include <math.h>

/* ---- losses ---------------------------------------------------------------------------------------------------------- */

static int loss_settings(onnx_import *im, graph_setting *s) {
    const onnx_attribute *ignored = onnx_attribute_find(im, "ignore_index", ONNX_ATTRIBUTE_INT);
    int n = 0;
    s[n++] = graph_set_integer("reduction", onnx_choice(im, "reduction", "mean sum none", "mean"));
    if (ignored) s[n++] = graph_set_integer("ignore_index", ignored->i);
    return n;
}

static void import_loss(onnx_import *im) {
    graph_setting s[3];
    const int n = loss_settings(im, s);
    const graph_id in[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)};
    onnx_give(im, 0, onnx_emit(im, im->row->op, 3, in, n, s));
    if (onnx_wants(im, 1)) onnx_give(im, 1, ONNX_WITH(im, "log_softmax", in[0], graph_set_integer("axis", 1)));
}

/* ---- signals --------------------------------------------------------------------------------------------------------- */

static void import_window_function(onnx_import *im) {
    const tir_expr size = onnx_operand_size(im, 0);
    const int function = onnx_is(im->node->operator, "HannWindow")      ? 0
                         : onnx_is(im->node->operator, "HammingWindow") ? 1
                                                                        : 2;
    const graph_setting s[] = {graph_set_dims("size", 1, &size), graph_set_integer("function", function),
                               graph_set_bool("periodic", onnx_int(im, "periodic", 1) != 0),
                               graph_set_integer("dtype", onnx_dtype_attribute(im, "output_datatype", DLC_F32))};
    onnx_give(im, 0, onnx_emit(im, "signal_window", 0, NULL, 4, s));
}

static void import_dft(onnx_import *im) {
    const int rank = onnx_operand_rank(im, 0);
    const int64_t given = im->opset < 20 ? onnx_int(im, "axis", 1) : onnx_operand_integer(im, 2, -2);
    const graph_setting s[] = {graph_set_integer("axis", onnx_axis(im, given, rank, false)),
                               graph_set_bool("inverse", onnx_int(im, "inverse", 0) != 0),
                               graph_set_bool("onesided", onnx_int(im, "onesided", 0) != 0),
                               graph_set_integer("length", onnx_operand_integer(im, 1, 0))};
    onnx_give(im, 0, onnx_emit(im, "dft", 1, (graph_id[]){onnx_operand(im, 0)}, 4, s));
}

static void import_stft(onnx_import *im) {
    const graph_setting s[] = {graph_set_integer("frame_step", onnx_operand_integer(im, 1, 1)),
                               graph_set_integer("frame_length", onnx_operand_integer(im, 3, 0)),
                               graph_set_bool("onesided", onnx_int(im, "onesided", 1) != 0)};
    onnx_give(im, 0, onnx_emit(im, "stft", 2, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 2)}, 3, s));
}

static void import_mel(onnx_import *im) {
    const graph_setting s[] = {graph_set_integer("bins", onnx_operand_integer(im, 0, 1)),
                               graph_set_integer("length", onnx_operand_integer(im, 1, 1)),
                               graph_set_integer("rate", onnx_operand_integer(im, 2, 1)),
                               graph_set_float("low", onnx_operand_float(im, 3, 0)),
                               graph_set_float("high", onnx_operand_float(im, 4, 0)),
                               graph_set_integer("dtype", onnx_dtype_attribute(im, "output_datatype", DLC_F32))};
    onnx_give(im, 0, onnx_emit(im, "mel_matrix", 0, NULL, 6, s));
}

/* ---- integers with scales ---------------------------------------------------------------------------------------------- */

/* Sets in[9] to the operands a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias in the order of libdlc's operators. */
static int quantized_operands(onnx_import *im, graph_id *in) {
    static const int places[] = {0, 3, 1, 4, 6, 2, 5, 7, 8};
    for (int i = 0; i < 9; i++)
        in[i] = i < 2 || i == 8 ? onnx_operand(im, (size_t)places[i]) : onnx_operand_or_scalar(im, (size_t)places[i]);
    return 9;
}

static void import_qlinear_conv(onnx_import *im) {
    const graph_shape weights = onnx_operand_shape(im, 3);
    const onnx_window w = onnx_window_of(im, onnx_window_dims(im, &weights));
    graph_id in[9];
    const int n = quantized_operands(im, in);
    onnx_ignore(im, "kernel_shape");
    const graph_setting s[] = {graph_set_list("stride", w.rank, w.stride),
                               graph_set_list("low", w.rank, w.low),
                               graph_set_list("high", w.rank, w.high),
                               graph_set_list("dilation", w.rank, w.dilation),
                               graph_set_integer("groups", onnx_int(im, "group", 1)),
                               graph_set_integer("dtype", onnx_operand_shape(im, 7).dtype)};
    onnx_give(im, 0, onnx_emit(im, "qlinear_convolution", n, in, 6, s));
}

/* A scale or zero point of rows for broadcasting: a list is one for each row. */
static graph_id of_rows(onnx_import *im, graph_id p, graph_id rows) {
    const bool list = p && graph_shape_of(im->g, p)->rank == 1 && graph_shape_of(im->g, rows)->rank > 1;
    return list ? graph_expand_dims(im->g, p, 1) : p;
}

/* The axis of the result to which a list of scales belongs: rows, unless there are as many as columns and not as many as rows. */
static int scaled_axis(const onnx_import *im, graph_id scale, const graph_shape *y) {
    if (graph_shape_of(im->g, scale)->rank != 1 || y->rank < 2) return y->rank ? y->rank - 1 : 0;
    const tir_expr count = graph_shape_of(im->g, scale)->dim[0];
    return tir_equal(im->g->pool, count, y->dim[y->rank - 2]) == TIR_NO ? y->rank - 1 : y->rank - 2;
}

/* By libdlc's operator if the weights are [in, out] and scales allow it; else by a product in i32, whose sums are scaled in f32. A list of scales of a is by
 * rows, one of b by columns. */
static void import_qlinear_matmul(onnx_import *im) {
    graph_id in[9];
    quantized_operands(im, in);
    const dlc_dtype dtype = onnx_operand_shape(im, 7).dtype;
    in[8] = 0;
    if (graph_shape_of(im->g, in[1])->rank == 2 && graph_shape_of(im->g, in[2])->rank == 0 &&
        graph_shape_of(im->g, in[4])->rank == 0 && graph_shape_of(im->g, in[2])->dtype == DLC_F32) {
        onnx_give(im, 0,
                  onnx_emit(im, "qlinear_matmul", 9, in, 1,
                            &(graph_setting){"dtype", graph_set_integer("dtype", dtype).value}));
        return;
    }
    graph_id x = graph_cast(im->g, in[0], DLC_I32), w = graph_cast(im->g, in[1], DLC_I32);
    if (in[5]) x = onnx_binary(im, "sub", x, graph_cast(im->g, of_rows(im, in[5], x), DLC_I32));
    if (in[6]) w = onnx_binary(im, "sub", w, graph_cast(im->g, in[6], DLC_I32));
    const graph_id sums = graph_cast(im->g, onnx_binary(im, "matmul", x, w), DLC_F32);
    const graph_id factor =
        onnx_binary(im, "mul", graph_cast(im->g, of_rows(im, in[2], x), DLC_F32), graph_cast(im->g, in[3], DLC_F32));
    const graph_id scaled = onnx_binary(im, "mul", sums, factor);
    const graph_setting s[] = {graph_set_integer("dtype", dtype),
                               graph_set_integer("axis", scaled_axis(im, in[4], graph_shape_of(im->g, scaled)))};
    onnx_give(
        im, 0,
        onnx_emit(im, "quantize_linear", 3, (graph_id[]){scaled, graph_cast(im->g, in[4], DLC_F32), in[7]}, 2, s));
}

/* ---- detection ------------------------------------------------------------------------------------------------------- */

static void import_roi_align(onnx_import *im) {
    const tir_expr shape[] = {tir_index(im->g->pool, onnx_int(im, "output_height", 1)),
                              tir_index(im->g->pool, onnx_int(im, "output_width", 1))};
    const int usual = im->opset < 16; /* version 10 has only the second form */
    const int coordinates =
        usual ? 1 : onnx_choice(im, "coordinate_transformation_mode", "half_pixel output_half_pixel", "half_pixel");
    const graph_setting s[] = {graph_set_dims("shape", 2, shape),
                               graph_set_integer("samples", onnx_int(im, "sampling_ratio", 0)),
                               graph_set_float("spatial_scale", onnx_float(im, "spatial_scale", 1)),
                               graph_set_integer("mode", onnx_choice(im, "mode", "avg max", "avg")),
                               graph_set_integer("coordinates", coordinates)};
    onnx_give(im, 0,
              onnx_emit(im, "roi_align", 3, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)},
                        5, s));
}

/* The cells of each region along one axis of the image, i64 [regions, cells]: their first element, and the one after the last. */
typedef struct roi_cells {
    graph_id from, to;
} roi_cells;

/* Column k of rois, scaled and rounded to the nearest integer, halves away from zero: i64 [regions, 1]. */
static graph_id roi_end(onnx_import *im, graph_id rois, int k, double scale) {
    graph *g = im->g;
    const graph_id end = graph_slice_axis(g, rois, 1, tir_index(g->pool, k), tir_index(g->pool, k + 1));
    const graph_id x = graph_mul_number(g, graph_cast(g, end, DLC_F64), scale);
    const graph_id near = graph_mul(g, graph_sign(g, x), graph_floor(g, graph_add_number(g, graph_abs(g, x), 0.5)));
    const double most = 1 << 30;
    const graph_id least = graph_scalar(g, DLC_F64, -most), greatest = graph_scalar(g, DLC_F64, most);
    return graph_cast(g, onnx_binary(im, "min", onnx_binary(im, "max", near, least), greatest), DLC_I64);
}

/* The cells of regions along an axis. A region includes both ends, and has n elements, at least one; cell i of p goes from element i * n / p to
 * (i + 1) * n / p, rounded outwards. */
static roi_cells cells_of(onnx_import *im, graph_id rois, int axis, int64_t cells, double scale, tir_expr size) {
    graph *g = im->g;
    const graph_id start = roi_end(im, rois, 2 - axis, scale), end = roi_end(im, rois, 4 - axis, scale);
    const tir_expr dims[] = {tir_index(g->pool, 1), tir_index(g->pool, cells)};
    const graph_id i = graph_iota(g, DLC_I64, 2, dims, 1), zero = graph_whole_number(g, 0);
    const graph_id count = graph_whole_number(g, cells), all = graph_dimension(g, DLC_I64, size);
    const graph_id n =
        onnx_binary(im, "max", graph_add_number(g, graph_sub(g, end, start), 1), graph_whole_number(g, 1));
    const graph_id low = onnx_binary(im, "div", onnx_binary(im, "mul", i, n), count);
    const graph_id reach = graph_add_number(g, onnx_binary(im, "mul", graph_add_number(g, i, 1), n), (double)cells - 1);
    const graph_id from = onnx_binary(im, "add", start, low),
                   to = onnx_binary(im, "add", start, onnx_binary(im, "div", reach, count));
    return (roi_cells){onnx_binary(im, "min", onnx_binary(im, "max", from, zero), all),
                       onnx_binary(im, "min", onnx_binary(im, "max", to, zero), all)};
}

/* The list [regions, cells] reshaped to `rank` dimensions: regions first, cells at that axis, 1 elsewhere. */
static graph_id along(onnx_import *im, graph_id list, int axis, int rank) {
    tir_expr dims[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) dims[d] = tir_index(im->g->pool, 1);
    dims[0] = graph_shape_of(im->g, list)->dim[0], dims[axis] = graph_shape_of(im->g, list)->dim[1];
    return graph_reshape(im->g, list, rank, dims);
}

/* The maxima of x [regions, channels, rows, columns] in the cells along the axis, whose size becomes the number of cells; -inf for empty
 * cells. */
static graph_id greatest_in(onnx_import *im, graph_id x, int axis, const roi_cells *cells) {
    graph *g = im->g;
    const graph_id wide = graph_expand_dims(g, x, axis);
    tir_expr dims[5];
    for (int d = 0; d < 5; d++) dims[d] = tir_index(g->pool, 1);
    dims[axis + 1] = graph_shape_of(g, x)->dim[axis];
    const graph_id place = graph_iota(g, DLC_I64, 5, dims, axis + 1);
    const graph_id inside = onnx_binary(im, "and", onnx_binary(im, "le", along(im, cells->from, axis, 5), place),
                                        onnx_binary(im, "lt", place, along(im, cells->to, axis, 5)));
    const graph_id none = graph_scalar_like(g, x, -INFINITY);
    return graph_reduce_max(g, onnx_emit(im, "select", 3, (graph_id[]){inside, wide, none}, 0, NULL), 1,
                            (int64_t[]){axis + 1}, false);
}

/* As in ONNX Runtime, since the standard gives no formula, except that cells are rounded exactly. Cells outside the image give 0. */
static void import_max_roi_pool(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand_of_rank(im, 0, 4), rois = onnx_operand_of_rank(im, 1, 2);
    const double scale = onnx_float(im, "spatial_scale", 1);
    roi_cells cells[2];
    int count;
    const int64_t *shape = onnx_ints(im, "pooled_shape", &count);
    if (count != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > 1 << 20 || shape[1] > 1 << 20)
        onnx_fail(im, DLC_PARSE_ERROR, "pooled_shape is no number of rows and of columns");
    graph_require_equal(g, graph_shape_of(g, rois)->dim[1], tir_index(g->pool, 5),
                        "MaxRoiPool: columns of rois, and 5");
    for (int axis = 0; axis < 2; axis++)
        cells[axis] = cells_of(im, rois, axis, shape[axis], scale, graph_shape_of(g, x)->dim[2 + axis]);
    const graph_id image = graph_slice_axis(g, rois, 1, tir_index(g->pool, 0), tir_index(g->pool, 1));
    graph_id y = graph_gather(g, x, graph_cast(g, graph_squeeze(g, image, 1), DLC_I64), 0);
    for (int axis = 1; axis >= 0; axis--) y = greatest_in(im, y, 2 + axis, &cells[axis]);
    const graph_id rows = onnx_binary(im, "lt", along(im, cells[0].from, 2, 4), along(im, cells[0].to, 2, 4)),
                   any = onnx_binary(im, "lt", along(im, cells[1].from, 3, 4), along(im, cells[1].to, 3, 4));
    const graph_id zero = graph_scalar_like(g, y, 0);
    onnx_give(im, 0, onnx_emit(im, "select", 3, (graph_id[]){onnx_binary(im, "and", rows, any), y, zero}, 0, NULL));
}

/* ---- data-dependent sizes -------------------------------------------------------------------------------------------- */

tir_expr onnx_counted(onnx_import *im) {
    const char *base = "count";
    if (graph_outermost(im->g) != im->g)
        onnx_fail(im, DLC_UNSUPPORTED,
                  "a size that data decide in a branch or body, which only the outermost graph may have");
    for (size_t i = 0; i < im->node->outputs.count; i++)
        if (im->node->outputs.data[i].size) {
            base = lib_arena_format(im->g->arena, "%.*s",
                                    (int)(im->node->outputs.data[i].size < 40 ? im->node->outputs.data[i].size : 40),
                                    im->node->outputs.data[i].data);
            break;
        }
    char *name = lib_arena_format(im->g->arena, "%s_count_%zu", base, im->node_index);
    for (char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9' && c > name))) *c = '_';
    return graph_symbol_named(im->g, name);
}

static void import_non_zero(onnx_import *im) {
    const tir_expr size = onnx_counted(im);
    onnx_give(im, 0, ONNX_WITH(im, "non_zero", onnx_operand(im, 0), graph_set_dims("size", 1, &size)));
}

/* Bools are sorted as u8. */
static void import_unique(onnx_import *im) {
    const onnx_attribute *axis = onnx_attribute_find(im, "axis", ONNX_ATTRIBUTE_INT);
    const tir_expr size = onnx_counted(im);
    const bool sorted = onnx_int(im, "sorted", 1) != 0;
    const dlc_dtype own = onnx_operand_shape(im, 0).dtype;
    graph_id x = graph_cast(im->g, onnx_operand(im, 0), own == DLC_BOOL ? DLC_U8 : own), y;
    if (axis) {
        y = ONNX_WITH(im, "unique_along", x, graph_set_dims("size", 1, &size),
                      graph_set_integer("axis", onnx_axis(im, axis->i, onnx_operand_rank(im, 0), false)),
                      graph_set_bool("sorted", sorted));
    } else
        y = ONNX_WITH(im, "unique", x, graph_set_dims("size", 1, &size), graph_set_bool("sorted", sorted));
    onnx_give(im, 0, graph_cast(im->g, y, own));
    for (size_t i = 1; i < 4; i++) onnx_give(im, i, y + (graph_id)i);
}

/* Gathers the elements or slices whose condition is true, at the indices from non_zero. */
static void import_compress(onnx_import *im) {
    const onnx_attribute *given = onnx_attribute_find(im, "axis", ONNX_ATTRIBUTE_INT);
    const graph_shape shape = onnx_operand_shape(im, 0);
    const tir_expr size = onnx_counted(im);
    graph_id x = onnx_operand(im, 0);
    tir_expr all = tir_index(im->g->pool, 1);
    for (int d = 0; d < shape.rank; d++) all = tir_mul(im->g->pool, all, shape.dim[d]);
    if (!given) x = graph_reshape(im->g, x, 1, &all);
    const int axis = given ? onnx_axis(im, given->i, shape.rank, false) : 0;
    const graph_id indices = ONNX_WITH(im, "non_zero", onnx_operand(im, 1), graph_set_dims("size", 1, &size));
    onnx_give(im, 0, graph_gather(im->g, x, graph_reshape(im->g, indices, 1, &size), axis));
}

static void import_suppression(onnx_import *im) {
    const tir_expr size = onnx_counted(im);
    const int64_t most = onnx_operand_integer(im, 2, 0);
    const graph_shape boxes = onnx_operand_shape(im, 0);
    int64_t there = most;
    if (tir_is_const(im->g->pool, boxes.dim[1], &there) && most < there) there = most;
    graph_setting s[5] = {graph_set_dims("size", 1, &size), graph_set_integer("most", there),
                          graph_set_float("overlap", onnx_operand_float(im, 3, 0)),
                          graph_set_bool("center", onnx_int(im, "center_point_box", 0) != 0)};
    int n = 4;
    if (onnx_has(im, 4)) s[n++] = graph_set_float("score", onnx_operand_float(im, 4, 0));
    onnx_give(im, 0,
              onnx_emit(im, "non_max_suppression", 2, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1)}, n, s));
}

const onnx_row onnx_rows_other[] = {
    {"BlackmanWindow", 17, 0, import_window_function, NULL},
    {"Compress", 9, 0, import_compress, NULL},
    {"DFT", 17, 0, import_dft, NULL},
    {"Det", 11, 0, NULL, "det"},
    {"HammingWindow", 17, 0, import_window_function, NULL},
    {"HannWindow", 17, 0, import_window_function, NULL},
    {"MaxRoiPool", 1, 0, import_max_roi_pool, NULL},
    {"MelWeightMatrix", 17, 0, import_mel, NULL},
    {"NegativeLogLikelihoodLoss", 12, 0, import_loss, "nll_loss"},
    {"NonMaxSuppression", 10, 0, import_suppression, NULL},
    {"NonZero", 9, 0, import_non_zero, NULL},
    {"QLinearConv", 10, 0, import_qlinear_conv, NULL},
    {"QLinearMatMul", 10, 0, import_qlinear_matmul, NULL},
    {"RoiAlign", 10, 0, import_roi_align, NULL},
    {"STFT", 17, 0, import_stft, NULL},
    {"SoftmaxCrossEntropyLoss", 12, 0, import_loss, "class_cross_entropy"},
    {"Unique", 11, 0, import_unique, NULL},
    {0},
};
