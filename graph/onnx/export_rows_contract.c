/* Rows of products, windows, sampling, quantisation and recurrent layers. */
#include "graph/onnx/export.h"

#include "graph/build.h"

#include <strings.h>

#define F32 ONNX_TYPE(DLC_F32)
#define BYTES (ONNX_TYPE(DLC_I8) | ONNX_TYPE(DLC_U8))
#define PRODUCTS (ONNX_FLOATS_B | ONNX_TYPE(DLC_I32) | ONNX_TYPE(DLC_I64) | ONNX_TYPE(DLC_U32) | ONNX_TYPE(DLC_U64))

static bool has_own_result(const graph *g, const graph_node *node) {
    const dlc_dtype dtype = graph_shape_of(g, node->first)->dtype;
    for (int i = 0; i < 2; i++)
        if (graph_shape_of(g, node->input[i])->dtype != dtype) return false;
    return true;
}

/* ---- contractions --------------------------------------------------------------------------------------------------------------- */

typedef struct contraction {
    int rank[2];
    int batches, contracts;
    int64_t batch[2][DLC_MAX_RANK], contract[2][DLC_MAX_RANK];
    int free[2];
} contraction;

static contraction contraction_of(const onnx_export *ex) {
    static const char *const names[2][2] = {{"batch_x", "contract_x"}, {"batch_w", "contract_w"}};
    contraction c = {.batches = 0};
    for (int k = 0; k < 2; k++) {
        const graph_attribute *batch = onnx_row_attribute(ex, names[k][0]),
                              *contract = onnx_row_attribute(ex, names[k][1]);
        c.rank[k] = onnx_in_shape(ex, k)->rank;
        c.batches = batch->count, c.contracts = contract->count;
        for (int i = 0; i < c.batches; i++) c.batch[k][i] = (batch->list[i] + c.rank[k]) % c.rank[k];
        for (int i = 0; i < c.contracts; i++) c.contract[k][i] = (contract->list[i] + c.rank[k]) % c.rank[k];
        c.free[k] = c.rank[k] - c.batches - c.contracts;
    }
    return c;
}

/* Can MatMul compute the contraction: batch axes first, in order, in both operands; one contracted axis; several free axes only on the left,
 * and only without batch axes? */
static bool is_matrix_product(const contraction *c) {
    if (c->contracts != 1 || c->free[1] > 1) return false;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < c->batches; i++)
            if (c->batch[k][i] != i) return false;
    if (c->batches) return c->free[0] == 1 && c->free[1] == 1;
    return c->contract[0][0] == c->rank[0] - 1 || c->rank[0] == 2;
}

/* x with its last two axes exchanged, unless the contracted axis is already the wanted one. */
static onnx_label *turned(onnx_export *ex, onnx_label *x, int rank, int64_t contracted, int64_t wanted) {
    int64_t permutation[DLC_MAX_RANK];
    if (contracted == wanted) return x;
    for (int d = 0; d < rank; d++) permutation[d] = d;
    permutation[rank - 1] = rank - 2, permutation[rank - 2] = rank - 1;
    return onnx_transposed(ex, x, rank, permutation);
}

/* The contraction as an equation of Einsum, such as "abc,acd->abd". */
static const char *equation(onnx_export *ex, const contraction *c) {
    char label[2][DLC_MAX_RANK + 1] = {{0}}, result[2 * DLC_MAX_RANK + 1];
    char next = 'a';
    int at = 0;
    for (int i = 0; i < c->batches; i++, next++)
        label[0][c->batch[0][i]] = label[1][c->batch[1][i]] = result[at++] = next;
    for (int i = 0; i < c->contracts; i++, next++) label[0][c->contract[0][i]] = label[1][c->contract[1][i]] = next;
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < c->rank[k]; d++)
            if (!label[k][d]) label[k][d] = result[at++] = next++;
    return lib_arena_format(ex->arena, "%s,%s->%.*s", label[0], label[1], at, result);
}

/* Computes in the result's type; narrow integers in i32, whose results wrap alike. */
static void export_dot_general(onnx_export *ex) {
    const contraction c = contraction_of(ex);
    const dlc_dtype result = onnx_result_shape(ex, 0)->dtype;
    const dlc_dtype wanted = ex->widened && result == onnx_in_shape(ex, 0)->dtype ? DLC_F32 : result;
    const dlc_dtype by = onnx_takes(PRODUCTS, wanted) ? wanted : lib_dtype_is_float(wanted) ? DLC_F32 : DLC_I32;
    onnx_label *x[2], *y;
    for (int k = 0; k < 2; k++) x[k] = onnx_in_dtype(ex, k) == by ? onnx_in(ex, k) : onnx_to(ex, onnx_in(ex, k), by);
    if (is_matrix_product(&c)) {
        x[0] = turned(ex, x[0], c.rank[0], c.contract[0][0], c.rank[0] - 1);
        x[1] = turned(ex, x[1], c.rank[1], c.contract[1][0], c.rank[1] == 1 ? 0 : c.rank[1] - 2);
        y = ONNX_ADD(ex, "MatMul", x[0], x[1]);
    } else {
        y = ONNX_ADD(ex, "Einsum", x[0], x[1]);
        onnx_set_text(ex, "equation", equation(ex, &c));
    }
    onnx_export_give_label(ex, 0, by == wanted ? y : onnx_to(ex, y, wanted));
}

/* Has the equation an explicit result and no ellipsis, whose broadcasting not all implementations support? */
static bool is_explicit(const graph *g, const graph_node *node) {
    const char *text = onnx_attribute_named(node, "equation")->string;
    (void)g;
    return strstr(text, "->") && !strchr(text, '.');
}

/* ---- windows -------------------------------------------------------------------------------------------------------------------- */

static int64_t entry(const graph_attribute *list, int i, int64_t fallback) {
    return list->count ? list->list[i] : fallback;
}

static int64_t positive(int64_t number) {
    return number > 0 ? number : 0;
}

static void set_unless(onnx_export *ex, const char *name, const graph_attribute *list, int64_t usual) {
    bool other = false;
    for (int i = 0; i < list->count; i++) other |= list->list[i] != usual;
    if (other) onnx_set_list(ex, name, list->count, list->list);
}

/* Sets the attributes shared by convolutions and pools of `rank` spatial dimensions; negative padding is left to onnx_cropped. */
static void set_window(onnx_export *ex, int rank) {
    const graph_attribute *low = onnx_row_attribute(ex, "low"), *high = onnx_row_attribute(ex, "high");
    int64_t pads[2 * DLC_MAX_RANK];
    bool any = false;
    for (int d = 0; d < rank; d++) {
        pads[d] = positive(entry(low, d, 0)), pads[rank + d] = positive(entry(high, d, 0));
        any |= pads[d] || pads[rank + d];
    }
    set_unless(ex, "strides", onnx_row_attribute(ex, "stride"), 1);
    set_unless(ex, "dilations", onnx_row_attribute(ex, "dilation"), 1);
    if (any) onnx_set_list(ex, "pads", 2 * rank, pads);
}

static bool has_natural_pads(const graph_node *node) {
    static const char *const names[] = {"low", "high"};
    for (int k = 0; k < 2; k++) {
        const graph_attribute *pads = onnx_attribute_named(node, names[k]);
        for (int i = 0; i < pads->count; i++)
            if (pads->list[i] < 0) return false;
    }
    return true;
}

/* The type in which a convolution is exported. Integers of up to 16 bits: f64, in which their products and sums of up to 2^21 products are
 * exact, to be wrapped afterwards. */
static dlc_dtype convolution_dtype(onnx_export *ex) {
    const dlc_dtype own = onnx_in_dtype(ex, 0), result = onnx_result_shape(ex, 0)->dtype;
    if (ex->widened) return DLC_F32;
    if (lib_dtype_is_float(result)) return lib_dtype_is_narrow_float(result) && result != own ? DLC_F32 : result;
    if (lib_dtypes[own].bits > 16) onnx_refuse(ex, "ONNX has no convolution of %s", lib_dtypes[own].name);
    return DLC_F64;
}

static void export_convolution(onnx_export *ex) {
    const graph_shape *w = onnx_in_shape(ex, 1);
    const dlc_dtype by = convolution_dtype(ex), result = onnx_result_shape(ex, 0)->dtype;
    const bool converted = ex->widened && lib_dtype_is_narrow_float(result);
    const int rank = w->rank - 2;
    onnx_label *x[2];
    for (int k = 0; k < 2; k++) x[k] = onnx_in_dtype(ex, k) == by ? onnx_in(ex, k) : onnx_to(ex, onnx_in(ex, k), by);
    x[0] = onnx_cropped(ex, x[0], 2, rank, onnx_row_attribute(ex, "low"), onnx_row_attribute(ex, "high"));
    onnx_label *y = ONNX_ADD(ex, "Conv", x[0], x[1]);
    set_window(ex, rank);
    if (onnx_row_int(ex, "groups") != 1) onnx_set(ex, "group", onnx_row_int(ex, "groups"));
    if (by != result && !converted && !lib_dtype_is_float(result)) y = onnx_to(ex, y, DLC_I64);
    onnx_export_give_label(ex, 0, by == result || converted ? y : onnx_to(ex, y, result));
}

/* The constant that has one number for each channel of a convolution's result, of which `bias` is a broadcast; NULL: it is another value. */
static const graph_constant *channel_constant(const graph *g, graph_id bias, int64_t *channels) {
    const graph_node *node = graph_node_of(g, bias);
    if (!graph_is(g, bias, "broadcast") || !graph_is(g, node->input[0], "constant")) return NULL;
    const graph_shape *from = graph_shape_of(g, node->input[0]);
    const graph_attribute *axes = onnx_attribute_named(node, "axes");
    *channels = 0;
    for (int d = 0; d < from->rank; d++) {
        int64_t size = 0;
        tir_is_const(g->pool, from->dim[d], &size);
        if (axes->list[d] == 1)
            *channels = size;
        else if (size != 1)
            return NULL;
    }
    return *channels ? graph_constant_of(g, node->input[0]) : NULL;
}

static bool fits_bias(const graph *g, const graph_node *node) {
    int64_t channels;
    return graph_is(g, node->input[0], "convolution") && channel_constant(g, node->input[1], &channels);
}

/* Exports a sum. If it adds a number to each channel of a convolution that nothing else reads, the number becomes the convolution's bias. */
static void export_add(onnx_export *ex) {
    int64_t channels;
    onnx_label *x[2];
    const graph_constant *bias = channel_constant(ex->g, ex->node->input[1], &channels);
    onnx_in_maps(ex, x);
    const bool last = ex->last && strcmp(ex->last->op, "Conv") == 0 && ex->last->outputs.data[0] == x[0];
    if (!last || ex->reads[ex->node->input[0]] != 1 || ex->last->inputs.count != 2) {
        onnx_export_give_label(ex, 0, ONNX_ADD(ex, "Add", x[0], x[1]));
        return;
    }
    const void *bytes = graph_constant_bytes(ex->arena->scope, bias);
    onnx_add_input(ex, onnx_export_constant(ex, onnx_result_shape(ex, 0)->dtype, 1, &channels, bytes));
    onnx_export_give_label(ex, 0, x[0]);
}

static void export_transposed(onnx_export *ex) {
    onnx_label *y = ONNX_ADD(ex, "ConvTranspose", onnx_in(ex, 0), onnx_in(ex, 1));
    set_window(ex, onnx_in_shape(ex, 1)->rank - 2);
    set_unless(ex, "output_padding", onnx_row_attribute(ex, "output_padding"), 0);
    if (onnx_row_int(ex, "groups") != 1) onnx_set(ex, "group", onnx_row_int(ex, "groups"));
    onnx_export_give_label(ex, 0, y);
}

static bool fits_transposed(const graph *g, const graph_node *node) {
    return has_own_result(g, node) && has_natural_pads(node);
}

/* With `ceil`: does the last window begin before the padding at the end? Before operator set 22 ONNX counts one that does not. */
static bool has_last_window(const graph *g, const graph_node *node) {
    static const char *const names[] = {"window", "stride", "low", "high", "dilation"};
    const graph_shape *x = graph_shape_of(g, node->input[0]), *y = graph_shape_of(g, node->first);
    const graph_attribute *list[5];
    for (int k = 0; k < 5; k++) list[k] = onnx_attribute_named(node, names[k]);
    for (int d = 0; d < list[0]->count; d++) {
        int64_t size, outputs;
        if (!tir_is_const(g->pool, x->dim[d + 2], &size) || !tir_is_const(g->pool, y->dim[d + 2], &outputs))
            return false;
        const int64_t stride = entry(list[1], d, list[0]->list[d]);
        const int64_t span = (list[0]->list[d] - 1) * entry(list[4], d, 1) + 1;
        const int64_t room = size + entry(list[2], d, 0) + entry(list[3], d, 0) - span;
        if (room < 0 || (room + stride - 1) / stride + 1 != outputs) return false;
    }
    return true;
}

static bool fits_pool(const graph *g, const graph_node *node) {
    const graph_attribute *window = onnx_attribute_named(node, "window"), *low = onnx_attribute_named(node, "low"),
                          *high = onnx_attribute_named(node, "high");
    (void)g;
    if (onnx_attribute_named(node, "ceil")->integer && !has_last_window(g, node)) return false;
    for (int i = 0; i < window->count; i++) /* implementations refuse windows on padding alone */
        if (entry(low, i, 0) >= window->list[i] || entry(high, i, 0) >= window->list[i]) return false;
    return window->count > 0 && has_natural_pads(node);
}

static bool is_dilated(const onnx_export *ex) {
    const graph_attribute *dilation = onnx_row_attribute(ex, "dilation");
    for (int i = 0; i < dilation->count; i++)
        if (dilation->list[i] != 1) return true;
    return false;
}

static onnx_label *pooled(onnx_export *ex, const char *op) {
    const graph_attribute *window = onnx_row_attribute(ex, "window");
    onnx_label *y = ONNX_ADD(ex, op, onnx_in(ex, 0));
    onnx_set_list(ex, "kernel_shape", window->count, window->list);
    if (!onnx_row_attribute(ex, "stride")->count) onnx_set_list(ex, "strides", window->count, window->list);
    set_window(ex, window->count);
    if (onnx_row_int(ex, "ceil")) onnx_set(ex, "ceil_mode", 1);
    return y;
}

static void export_max_pool(onnx_export *ex) {
    onnx_export_give_label(ex, 0, pooled(ex, "MaxPool"));
}

static void export_max_pool_indices(onnx_export *ex) {
    onnx_label *y = pooled(ex, "MaxPool"), *places = onnx_add_result(ex);
    if (onnx_row_int(ex, "column_major")) onnx_set(ex, "storage_order", 1);
    onnx_export_give_label(ex, 0, y);
    onnx_export_give_label(ex, 1, places);
}

static void export_average_pool(onnx_export *ex) {
    if (is_dilated(ex)) onnx_need(ex, 19);
    onnx_label *y = pooled(ex, "AveragePool");
    if (onnx_row_int(ex, "count_include_pad")) onnx_set(ex, "count_include_pad", 1);
    onnx_export_give_label(ex, 0, y);
}

static void export_lp_pool(onnx_export *ex) {
    if (is_dilated(ex) || onnx_row_int(ex, "ceil")) onnx_need(ex, 18);
    onnx_label *y = pooled(ex, "LpPool");
    onnx_set(ex, "p", onnx_row_int(ex, "p"));
    onnx_export_give_label(ex, 0, y);
}

static void export_global_pool(onnx_export *ex) {
    static const char *const names[] = {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"};
    const int64_t mode = onnx_row_int(ex, "mode");
    onnx_label *y = ONNX_ADD(ex, names[mode], onnx_in(ex, 0));
    if (mode == 2) onnx_set(ex, "p", onnx_row_int(ex, "p"));
    onnx_export_give_label(ex, 0, y);
}

/* ---- Fourier transforms, sampling ------------------------------------------------------------------------------------------------ */

static bool is_one_way(const graph *g, const graph_node *node) {
    (void)g;
    return !onnx_attribute_named(node, "inverse")->integer || !onnx_attribute_named(node, "onesided")->integer;
}

static void export_dft(onnx_export *ex) {
    const int64_t length = onnx_row_int(ex, "length");
    const int axis = onnx_row_axis(ex, "axis", onnx_in_shape(ex, 0)->rank);
    onnx_label *y = ONNX_ADD(ex, "DFT", onnx_in(ex, 0), length ? onnx_whole(ex, DLC_I64, length) : NULL,
                             ex->opset >= 20 ? onnx_whole(ex, DLC_I64, axis) : NULL);
    if (ex->opset < 20) onnx_set(ex, "axis", axis);
    if (onnx_row_int(ex, "inverse")) onnx_set(ex, "inverse", 1);
    if (onnx_row_int(ex, "onesided")) onnx_set(ex, "onesided", 1);
    onnx_export_give_label(ex, 0, y);
}

static void export_grid_sample(onnx_export *ex) {
    static const char *const modes[2][3] = {{"nearest", "bilinear", "bicubic"}, {"nearest", "linear", "cubic"}};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    if (onnx_in_shape(ex, 0)->rank > 4) onnx_need(ex, 20);
    onnx_label *y = ONNX_ADD(ex, "GridSample", onnx_in(ex, 0), onnx_in(ex, 1));
    onnx_set_text(ex, "mode", modes[ex->opset >= 20][onnx_row_int(ex, "mode")]);
    onnx_set_text(ex, "padding_mode", paddings[onnx_row_int(ex, "padding")]);
    onnx_set(ex, "align_corners", onnx_row_int(ex, "align_corners"));
    onnx_export_give_label(ex, 0, y);
}

/* Can Resize compute the node from the sizes of all dimensions? Nodes with a given scale, which need not be the quotient of sizes, are
 * expanded. */
static bool fits_resize(const graph *g, const graph_node *node) {
    enum { ASYMMETRIC = 4, CUBIC = 2 }; /* the last coordinates that all versions of Resize have */
    const int rank = graph_shape_of(g, node->input[0])->rank;
    const graph_attribute *axes = onnx_attribute_named(node, "axes");
    bool images = rank == 2; /* cubic: of the last two dimensions, of 2 or 4 */
    if (rank == 4 && axes->count) images = true;
    for (int i = 0; i < axes->count && rank == 4; i++)
        images &= (axes->list[i] < 0 ? axes->list[i] + rank : axes->list[i]) >= 2;
    if (rank == 0 || (onnx_attribute_named(node, "mode")->integer == CUBIC && !images)) return false;
    return !node->input[1] && !node->input[2] && onnx_attribute_named(node, "coordinates")->integer <= ASYMMETRIC &&
           onnx_attribute_named(node, "aspect")->integer == 0;
}

static void export_resize(onnx_export *ex) {
    enum { SYMMETRIC = 1, NEAREST = 0, CUBIC = 2 };
    static const char *const coordinates[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                              "align_corners", "asymmetric"};
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    const graph_shape *y = onnx_result_shape(ex, 0);
    const int64_t mode = onnx_row_int(ex, "mode"), place = onnx_row_int(ex, "coordinates");
    if (place == SYMMETRIC) onnx_need(ex, 19);
    if (onnx_row_int(ex, "antialias")) onnx_need(ex, 18);
    onnx_label *sizes = onnx_sizes(ex, y->rank, y->dim);
    onnx_label *label = ONNX_ADD(ex, "Resize", onnx_in(ex, 0), NULL, NULL, sizes);
    onnx_set_text(ex, "mode", modes[mode]);
    onnx_set_text(ex, "coordinate_transformation_mode", coordinates[place]);
    if (mode == NEAREST) onnx_set_text(ex, "nearest_mode", roundings[onnx_row_int(ex, "rounding")]);
    if (mode == CUBIC) onnx_set_number(ex, "cubic_coeff_a", onnx_row_attribute(ex, "cubic_coefficient")->number);
    if (onnx_row_int(ex, "exclude_outside")) onnx_set(ex, "exclude_outside", 1);
    if (onnx_row_int(ex, "antialias")) onnx_set(ex, "antialias", 1);
    onnx_export_give_label(ex, 0, label);
}

static bool has_known_cells(const graph *g, const graph_node *node) {
    const graph_attribute *shape = onnx_attribute_named(node, "shape");
    int64_t size;
    return shape->count == 2 && tir_is_const(g->pool, shape->dims[0], &size) &&
           tir_is_const(g->pool, shape->dims[1], &size);
}

static void export_roi_align(onnx_export *ex) {
    const graph_attribute *shape = onnx_row_attribute(ex, "shape");
    int64_t size[2] = {0};
    for (int i = 0; i < 2; i++) tir_is_const(ex->g->pool, shape->dims[i], &size[i]);
    onnx_label *images = onnx_in(ex, 2);
    if (onnx_in_dtype(ex, 2) != DLC_I64) images = onnx_to(ex, images, DLC_I64);
    const tir_expr last = tir_sub(ex->g->pool, onnx_in_shape(ex, 0)->dim[0], tir_index(ex->g->pool, 1));
    images = onnx_clamped(ex, images, onnx_whole(ex, DLC_I64, 0), onnx_size(ex, last));
    onnx_label *y = ONNX_ADD(ex, "RoiAlign", onnx_in(ex, 0), onnx_in(ex, 1), images);
    onnx_set(ex, "output_height", size[0]);
    onnx_set(ex, "output_width", size[1]);
    onnx_set(ex, "sampling_ratio", onnx_row_int(ex, "samples"));
    onnx_set_number(ex, "spatial_scale", onnx_row_attribute(ex, "spatial_scale")->number);
    onnx_set_text(ex, "mode", onnx_row_int(ex, "mode") ? "max" : "avg");
    onnx_set_text(ex, "coordinate_transformation_mode",
                  onnx_row_int(ex, "coordinates") ? "output_half_pixel" : "half_pixel");
    onnx_export_give_label(ex, 0, y);
}

/* ---- integers with scales ---------------------------------------------------------------------------------------------------------- */

/* Requires the operator set that has the element type, scales narrower than f32, and blocks. */
static void need_quantized(onnx_export *ex, dlc_dtype dtype, dlc_dtype scale) {
    if (lib_dtype_is_f8(dtype) || scale == DLC_F16 || scale == DLC_BF16) onnx_need(ex, 19);
    if (lib_dtype_is_packed(dtype) || (lib_dtype_is_integer(dtype) && lib_dtypes[dtype].bits == 16)) onnx_need(ex, 21);
    if (onnx_row_int(ex, "block")) onnx_need(ex, 21);
}

static void set_quantized(onnx_export *ex) {
    const int rank = onnx_in_shape(ex, 0)->rank;
    if (onnx_in_shape(ex, 1)->rank) onnx_set(ex, "axis", onnx_row_axis(ex, "axis", rank));
    if (onnx_row_int(ex, "block")) onnx_set(ex, "block_size", onnx_row_int(ex, "block"));
}

/* ONNX's result has the type of the zero point, which is made if it is omitted. */
static void export_quantize(onnx_export *ex) {
    const graph_shape *scale = onnx_in_shape(ex, 1);
    const dlc_dtype dtype = onnx_result_shape(ex, 0)->dtype;
    onnx_label *zero = onnx_in(ex, 2);
    need_quantized(ex, dtype, onnx_in_shape(ex, 0)->dtype);
    if (!zero) {
        const dlc_dtype by = lib_dtype_is_packed(dtype) || lib_dtype_is_f8(dtype) ? DLC_I8 : dtype;
        zero = onnx_whole(ex, by, 0);
        if (scale->rank) zero = onnx_stretched(ex, zero, scale->rank, scale->dim);
        if (by != dtype) zero = onnx_to(ex, lib_dtype_is_f8(dtype) ? onnx_to(ex, zero, DLC_F32) : zero, dtype);
    }
    onnx_label *y = ONNX_ADD(ex, "QuantizeLinear", onnx_in(ex, 0), onnx_in(ex, 1), zero);
    set_quantized(ex);
    onnx_export_give_label(ex, 0, y);
}

static void export_dequantize(onnx_export *ex) {
    need_quantized(ex, onnx_in_shape(ex, 0)->dtype, onnx_in_shape(ex, 1)->dtype);
    onnx_label *y = ONNX_ADD(ex, "DequantizeLinear", onnx_in(ex, 0), onnx_in(ex, 1), onnx_in(ex, 2));
    set_quantized(ex);
    onnx_export_give_label(ex, 0, y);
}

/* Have scale and zero point one rank, as ONNX requires, or is the zero point omitted? */
static bool fits_quantize(const graph *g, const graph_node *node) {
    return !node->input[2] || graph_shape_of(g, node->input[1])->rank == graph_shape_of(g, node->input[2])->rank;
}

static bool fits_dequantize(const graph *g, const graph_node *node) {
    if (!fits_quantize(g, node)) return false;
    return graph_shape_of(g, node->input[0])->dtype != DLC_I32 || !node->input[2];
}

/* Sets x[8] to the operands in ONNX's order, in which each tensor is followed by its scale and zero point; omitted zero points are made. */
static int quantized_operands(onnx_export *ex, onnx_label **x) {
    static const int places[] = {0, 2, 5, 1, 3, 6, 4, 7};
    const dlc_dtype dtypes[] = {onnx_in_shape(ex, 0)->dtype, onnx_in_shape(ex, 1)->dtype,
                                onnx_result_shape(ex, 0)->dtype};
    for (int i = 0; i < 8; i++) {
        x[i] = onnx_in(ex, places[i]);
        if (!x[i]) x[i] = onnx_whole(ex, dtypes[places[i] - 5], 0);
    }
    return 8;
}

static bool has_plain_scales(const graph *g, const graph_node *node) {
    for (int i = 2; i < 5; i++) {
        const graph_shape *scale = graph_shape_of(g, node->input[i]);
        const graph_id zero = node->input[i + 3];
        if (zero ? graph_shape_of(g, zero)->rank != scale->rank : scale->rank != 0) return false;
    }
    return true;
}

static bool fits_qlinear_matmul(const graph *g, const graph_node *node) {
    return has_plain_scales(g, node) && !(node->inputs > 8 && node->input[8]) &&
           graph_shape_of(g, node->input[1])->rank == 2;
}

/* Has w one zero point, or is it a single matrix, for which ONNX takes one for each column? */
static bool fits_matmul_integer(const graph *g, const graph_node *node) {
    const graph_id zero = node->inputs > 3 ? node->input[3] : 0;
    return !zero || graph_shape_of(g, zero)->rank == 0 || graph_shape_of(g, node->input[1])->rank == 2;
}

static void export_qlinear_matmul(onnx_export *ex) {
    onnx_label *x[9];
    const int count = quantized_operands(ex, x);
    onnx_export_give_label(ex, 0, onnx_add(ex, "QLinearMatMul", count, x));
}

static void set_convolution(onnx_export *ex) {
    set_window(ex, onnx_in_shape(ex, 1)->rank - 2);
    if (onnx_row_int(ex, "groups") != 1) onnx_set(ex, "group", onnx_row_int(ex, "groups"));
}

static void export_qlinear_convolution(onnx_export *ex) {
    onnx_label *x[9];
    int count = quantized_operands(ex, x);
    x[count++] = onnx_in(ex, 8);
    onnx_label *y = onnx_add(ex, "QLinearConv", count, x);
    set_convolution(ex);
    onnx_export_give_label(ex, 0, y);
}

static bool fits_qlinear_convolution(const graph *g, const graph_node *node) {
    return has_plain_scales(g, node) && has_natural_pads(node);
}

static void export_convolution_integer(onnx_export *ex) {
    onnx_label *y = ONNX_ADD(ex, "ConvInteger", onnx_in(ex, 0), onnx_in(ex, 1), onnx_in(ex, 2), onnx_in(ex, 3));
    set_convolution(ex);
    onnx_export_give_label(ex, 0, y);
}

static bool fits_padded(const graph *g, const graph_node *node) {
    (void)g;
    return has_natural_pads(node);
}

/* In ONNX's operands the bias comes before the mask. */
static void export_deformable(onnx_export *ex) {
    onnx_need(ex, 19);
    onnx_label *y =
        ONNX_ADD(ex, "DeformConv", onnx_in(ex, 0), onnx_in(ex, 1), onnx_in(ex, 2), onnx_in(ex, 4), onnx_in(ex, 3));
    set_window(ex, 2);
    if (onnx_row_int(ex, "groups") != 1) onnx_set(ex, "group", onnx_row_int(ex, "groups"));
    if (onnx_row_int(ex, "offset_groups") != 1) onnx_set(ex, "offset_group", onnx_row_int(ex, "offset_groups"));
    onnx_export_give_label(ex, 0, y);
}

/* ---- recurrent layers --------------------------------------------------------------------------------------------------------------- */

static const struct activation {
    const char *row, *name;
} activations[] = {
    {"relu", "Relu"}, {"sigmoid", "Sigmoid"}, {"tanh", "Tanh"}, {"softplus", "Softplus"}, {"softsign", "Softsign"}};

static const char *activation_named(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strlen(activations[i].row) == length && strncasecmp(activations[i].row, word, length) == 0)
            return activations[i].name;
    return NULL;
}

/* Are all activations in the list above and without numbers? Otherwise the layer is expanded. */
static bool fits_recurrent(const graph *g, const graph_node *node) {
    const char *at = onnx_attribute_named(node, "activations")->string;
    (void)g;
    for (size_t length; at && *at; at += length + (at[length] != 0)) {
        length = strcspn(at, " ");
        if (length && !activation_named(at, length)) return false;
    }
    return true;
}

static void set_activations(onnx_export *ex) {
    const char *at = onnx_row_attribute(ex, "activations")->string;
    const char **names = LIB_NEW_ARRAY(ex->arena, const char *, 6);
    int count = 0;
    for (size_t length; at && *at && count < 6; at += length + (at[length] != 0)) {
        length = strcspn(at, " ");
        if (length) names[count++] = activation_named(at, length);
    }
    if (!count) return;
    lib_vec_push(
        ex->arena, &ex->last->attributes,
        ((onnx_out_attribute){.name = "activations", .kind = ONNX_OUT_STRINGS, .strings = names, .count = count}));
}

static void export_recurrent(onnx_export *ex) {
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    const bool lstm = strcmp(ex->node->op->name, "lstm") == 0, gru = strcmp(ex->node->op->name, "gru") == 0;
    const graph_shape *r = onnx_in_shape(ex, 2);
    onnx_label *x[8] = {NULL}, *y[3] = {NULL};
    int64_t hidden = 0;
    for (int i = 0; i < ex->node->inputs && i < 8; i++) x[i] = onnx_in(ex, i);
    if (x[4]) {
        onnx_label *steps = onnx_to(ex, onnx_size(ex, onnx_in_shape(ex, 0)->dim[onnx_row_int(ex, "layout")]), DLC_I32);
        if (onnx_in_dtype(ex, 4) != DLC_I32) x[4] = onnx_to(ex, x[4], DLC_I32);
        x[4] = onnx_clamped(ex, x[4], onnx_whole(ex, DLC_I32, 0), steps);
    }
    y[0] = onnx_add(ex, lstm ? "LSTM" : gru ? "GRU" : "RNN", ex->node->inputs, x);
    for (int i = 1; i < ex->node->results; i++) y[i] = onnx_add_result(ex);
    if (tir_is_const(ex->g->pool, r->dim[2], &hidden)) onnx_set(ex, "hidden_size", hidden);
    onnx_set_text(ex, "direction", directions[onnx_row_int(ex, "direction")]);
    set_activations(ex);
    if (onnx_row_int(ex, "layout")) onnx_set(ex, "layout", 1);
    if (onnx_row_attribute(ex, "clip")->number != 0)
        onnx_set_number(ex, "clip", onnx_row_attribute(ex, "clip")->number);
    if (lstm && onnx_row_int(ex, "input_forget")) onnx_set(ex, "input_forget", 1);
    if (gru && onnx_row_int(ex, "linear_before_reset")) onnx_set(ex, "linear_before_reset", 1);
    for (int i = 0; i < ex->node->results; i++) onnx_export_give_label(ex, i, y[i]);
}

const onnx_export_row onnx_export_rows_contract[] = {
    {.row = "dot_general", .export = export_dot_general, .types = ONNX_NUMBERS},
    {.row = "matmul", .op = "MatMul", .types = PRODUCTS, .fits = has_own_result},
    {.row = "einsum",
     .op = "Einsum",
     .attributes = "equation",
     .types = ONNX_FLOATS | ONNX_TYPE(DLC_I32) | ONNX_TYPE(DLC_I64),
     .fits = is_explicit},
    {.row = "convolution", .export = export_convolution, .types = ONNX_FLOATS | ONNX_WHOLES},
    {.row = "add", .export = export_add, .types = ONNX_TYPE(DLC_F32) | ONNX_TYPE(DLC_F64), .fits = fits_bias},
    {.row = "deformable_convolution", .export = export_deformable, .types = ONNX_FLOATS, .fits = fits_padded},
    {.row = "convolution_transposed", .export = export_transposed, .types = ONNX_FLOATS, .fits = fits_transposed},
    {.row = "max_pool", .export = export_max_pool, .types = ONNX_FLOATS | BYTES, .fits = fits_pool},
    {.row = "max_pool_with_indices",
     .export = export_max_pool_indices,
     .types = ONNX_FLOATS | BYTES,
     .fits = fits_pool},
    {.row = "average_pool", .export = export_average_pool, .types = ONNX_FLOATS, .fits = fits_pool},
    {.row = "lp_pool", .export = export_lp_pool, .types = ONNX_FLOATS, .fits = fits_pool},
    {.row = "global_pool", .export = export_global_pool, .types = ONNX_FLOATS},
    {.row = "det", .op = "Det", .types = ONNX_FLOATS},
    {.row = "dft", .export = export_dft, .types = ONNX_FLOATS, .fits = is_one_way},
    {.row = "grid_sample", .export = export_grid_sample, .types = ONNX_FLOATS},
    {.row = "resize", .export = export_resize, .types = ONNX_ALL, .fits = fits_resize},
    {.row = "roi_align", .export = export_roi_align, .types = ONNX_FLOATS, .fits = has_known_cells},
    {.row = "quantize_linear", .export = export_quantize, .fits = fits_quantize},
    {.row = "dequantize_linear", .export = export_dequantize, .fits = fits_dequantize},
    {.row = "dynamic_quantize_linear", .op = "DynamicQuantizeLinear", .types = F32},
    {.row = "qlinear_matmul", .export = export_qlinear_matmul, .types = BYTES, .fits = fits_qlinear_matmul},
    {.row = "qlinear_convolution",
     .export = export_qlinear_convolution,
     .types = BYTES,
     .fits = fits_qlinear_convolution},
    {.row = "matmul_integer", .op = "MatMulInteger", .types = BYTES, .fits = fits_matmul_integer},
    {.row = "convolution_integer", .export = export_convolution_integer, .types = BYTES, .fits = fits_padded},
    {.row = "rnn", .export = export_recurrent, .types = ONNX_FLOATS, .fits = fits_recurrent},
    {.row = "gru", .export = export_recurrent, .types = ONNX_FLOATS, .fits = fits_recurrent},
    {.row = "lstm", .export = export_recurrent, .types = ONNX_FLOATS, .fits = fits_recurrent},
    {0},
};
