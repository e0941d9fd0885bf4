/* Rows of poolings, resizing and sampling; shared code of windows. */
#include "graph/onnx/window.h"

const int64_t *onnx_window_dims(onnx_import *im, const graph_shape *weights) {
    int64_t *window = LIB_NEW_ARRAY(im->g->arena, int64_t, DLC_MAX_RANK);
    if (weights->rank < 3) onnx_fail(im, DLC_UNSUPPORTED, "weights of rank %d", weights->rank);
    for (int d = 2; d < weights->rank; d++)
        if (!tir_is_const(im->g->pool, weights->dim[d], &window[d - 2]))
            onnx_fail(im, DLC_UNSUPPORTED, "weights whose window is not known");
    return window;
}

void onnx_window_list(onnx_import *im, const char *name, int count, int64_t fallback, int64_t least, int64_t *to) {
    int own;
    const int64_t *given = onnx_ints(im, name, &own);
    if (given && own != count) onnx_fail(im, DLC_PARSE_ERROR, "%s has %d numbers, expected %d", name, own, count);
    if (!given && fallback < least) onnx_fail(im, DLC_PARSE_ERROR, "attribute %s is missing", name);
    for (int d = 0; d < count; d++) {
        to[d] = given ? given[d] : fallback;
        if (to[d] < least || to[d] > ONNX_WINDOW_MAX)
            onnx_fail(im, DLC_PARSE_ERROR, "%s has the number %lld", name, (long long)to[d]);
    }
}

/* Sets low[rank] and high[rank] to the attribute pads. */
static void read_pads(onnx_import *im, int rank, int64_t *low, int64_t *high) {
    int64_t pads[2 * DLC_MAX_RANK];
    onnx_window_list(im, "pads", 2 * rank, 0, -ONNX_WINDOW_MAX, pads);
    for (int d = 0; d < rank; d++) low[d] = pads[d], high[d] = pads[rank + d];
}

onnx_window onnx_window_transposed(onnx_import *im, const int64_t *window) {
    const graph_shape x = onnx_operand_shape(im, 0);
    onnx_window w = {.rank = x.rank - 2};
    int64_t low[DLC_MAX_RANK], high[DLC_MAX_RANK];
    if (w.rank < 1) onnx_fail(im, DLC_PARSE_ERROR, "an operand of rank %d has no spatial dimensions", x.rank);
    w.pad = (onnx_pad)onnx_choice(im, "auto_pad", "NOTSET VALID SAME_UPPER SAME_LOWER", "NOTSET");
    onnx_window_list(im, "strides", w.rank, 1, 1, w.stride);
    onnx_window_list(im, "dilations", w.rank, 1, 1, w.dilation);
    for (int d = 0; d < w.rank; d++) {
        w.window[d] = window[d];
        if (window[d] < 1 || window[d] > ONNX_WINDOW_MAX)
            onnx_fail(im, DLC_PARSE_ERROR, "a window of size %lld", (long long)window[d]);
    }
    read_pads(im, w.rank, low, high);
    for (int d = 0; d < w.rank && w.pad == ONNX_PAD_GIVEN; d++) w.low[d] = low[d], w.high[d] = high[d];
    return w;
}

onnx_window onnx_window_of(onnx_import *im, const int64_t *window) {
    onnx_window w = onnx_window_transposed(im, window);
    const graph_shape x = onnx_operand_shape(im, 0);
    for (int d = 0; d < w.rank && (w.pad == ONNX_PAD_UPPER || w.pad == ONNX_PAD_LOWER); d++) {
        const int64_t span = (window[d] - 1) * w.dilation[d] + 1;
        int64_t size, total = span - 1;
        if (tir_is_const(im->g->pool, x.dim[d + 2], &size)) {
            const int64_t rest = size % w.stride[d]; /* the last window begins so many elements before the end */
            total = span - (rest ? rest : w.stride[d]);
        } else if (w.stride[d] != 1)
            onnx_fail(im, DLC_UNSUPPORTED, "auto_pad with a stride where the input's size is not given");
        total = total < 0 ? 0 : total;
        w.low[d] = w.pad == ONNX_PAD_UPPER ? total / 2 : total - total / 2;
        w.high[d] = total - w.low[d];
    }
    return w;
}

/* ---- poolings ------------------------------------------------------------------------------------------------------- */

static onnx_window pool_window(onnx_import *im) {
    int64_t window[DLC_MAX_RANK] = {0};
    onnx_window_list(im, "kernel_shape", onnx_operand_rank(im, 0) - 2, 0, 1, window);
    return onnx_window_of(im, window);
}

static int pool_settings(const onnx_window *w, graph_setting *s) {
    s[0] = graph_set_list("window", w->rank, w->window);
    s[1] = graph_set_list("stride", w->rank, w->stride);
    s[2] = graph_set_list("low", w->rank, w->low);
    s[3] = graph_set_list("high", w->rank, w->high);
    s[4] = graph_set_list("dilation", w->rank, w->dilation);
    return 5;
}

static void import_max_pool(onnx_import *im) {
    const onnx_window w = pool_window(im);
    graph_setting s[7];
    int n = pool_settings(&w, s);
    const graph_id x = onnx_operand(im, 0);
    const bool column_major = onnx_int(im, "storage_order", 0) != 0;
    s[n++] = graph_set_bool("ceil", onnx_int(im, "ceil_mode", 0) != 0);
    if (!onnx_wants(im, 1)) {
        onnx_give(im, 0, onnx_emit(im, "max_pool", 1, &x, n, s));
        return;
    }
    s[n++] = graph_set_bool("column_major", column_major);
    const graph_id y = onnx_emit(im, "max_pool_with_indices", 1, &x, n, s);
    onnx_give(im, 0, y);
    onnx_give(im, 1, y + 1);
}

static void import_average_pool(onnx_import *im) {
    const onnx_window w = pool_window(im);
    graph_setting s[7];
    int n = pool_settings(&w, s);
    const graph_id x = onnx_operand(im, 0);
    s[n++] = graph_set_bool("ceil", onnx_int(im, "ceil_mode", 0) != 0);
    s[n++] = graph_set_bool("count_include_pad", onnx_int(im, "count_include_pad", 0) != 0);
    onnx_give(im, 0, onnx_emit(im, "average_pool", 1, &x, n, s));
}

/* The exponent of LpPool and GlobalLpPool, a float in version 1. */
static int64_t exponent_of(onnx_import *im) {
    if (im->opset >= 2) return onnx_int(im, "p", 2);
    const double p = onnx_float(im, "p", 2);
    if (p != 1 && p != 2 && p != 3) onnx_fail(im, DLC_UNSUPPORTED, "p is %g; known: 1, 2, 3", p);
    return (int64_t)p;
}

static void import_lp_pool(onnx_import *im) {
    const onnx_window w = pool_window(im);
    graph_setting s[7];
    int n = pool_settings(&w, s);
    const graph_id x = onnx_operand(im, 0);
    s[n++] = graph_set_bool("ceil", onnx_int(im, "ceil_mode", 0) != 0);
    s[n++] = graph_set_integer("p", exponent_of(im));
    onnx_give(im, 0, onnx_emit(im, "lp_pool", 1, &x, n, s));
}

static void import_global_pool(onnx_import *im) {
    const int mode = onnx_is(im->node->operator, "GlobalAveragePool") ? 0
                     : onnx_is(im->node->operator, "GlobalMaxPool")   ? 1
                                                                      : 2;
    onnx_give(im, 0,
              ONNX_WITH(im, "global_pool", onnx_operand(im, 0), graph_set_integer("mode", mode),
                        graph_set_integer("p", mode == 2 ? exponent_of(im) : 2)));
}

static void import_max_unpool(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    int64_t window[DLC_MAX_RANK] = {0};
    tir_expr dims[DLC_MAX_RANK];
    onnx_window_list(im, "kernel_shape", x.rank - 2, 0, 1, window);
    const onnx_window w = onnx_window_transposed(im, window);
    for (int d = 0; d < x.rank; d++) {
        dims[d] = x.dim[d];
        if (d < 2) continue;
        const tir_expr steps = tir_mul(im->g->pool, tir_sub(im->g->pool, x.dim[d], tir_index(im->g->pool, 1)),
                                       tir_index(im->g->pool, w.stride[d - 2]));
        dims[d] = tir_add(im->g->pool, steps, tir_index(im->g->pool, window[d - 2] - w.low[d - 2] - w.high[d - 2]));
    }
    const graph_setting natural = graph_set_dims("shape", x.rank, dims);
    const graph_id indices = onnx_operand(im, 1);
    if (!onnx_has(im, 2)) {
        onnx_give(im, 0, onnx_emit(im, "max_unpool", 2, (graph_id[]){onnx_operand(im, 0), indices}, 1, &natural));
        return;
    }
    /* Indices refer to the result's default size; a larger result is zero-padded at the end. */
    int out;
    const int64_t *shape = onnx_operand_integers(im, 2, &out);
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0}, own;
    if (out != x.rank) onnx_fail(im, DLC_PARSE_ERROR, "output_shape has %d dimensions", out);
    const graph_id y = onnx_emit(im, "max_unpool", 2, (graph_id[]){onnx_operand(im, 0), indices}, 1, &natural);
    for (int d = 0; d < x.rank; d++) {
        if (!tir_is_const(im->g->pool, dims[d], &own))
            onnx_fail(im, DLC_UNSUPPORTED, "output_shape where the input's size is not given");
        if (shape[d] < own) onnx_fail(im, DLC_PARSE_ERROR, "output_shape has the number %lld", (long long)shape[d]);
        high[d] = shape[d] - own;
    }
    onnx_give(im, 0, graph_pad(im->g, y, graph_scalar_like(im->g, y, 0), low, high));
}

/* ---- sampling ------------------------------------------------------------------------------------------------------- */

/* The type in which operands are computed whose type an operator of floats does not take. */
static dlc_dtype wide_type(dlc_dtype dtype) {
    const bool exact = lib_dtype_is_float(dtype) ? dtype != DLC_F64 : lib_dtype_size(dtype) < 4;
    return exact ? DLC_F32 : DLC_F64;
}

/* Element types of T1 that the operator does not take are converted to wider ones. */
static void import_grid_sample(onnx_import *im) {
    const int mode = im->opset < 20 ? onnx_choice(im, "mode", "nearest bilinear bicubic", "bilinear")
                                    : onnx_choice(im, "mode", "nearest linear cubic", "linear");
    const graph_setting s[] = {
        graph_set_integer("mode", mode),
        graph_set_integer("padding", onnx_choice(im, "padding_mode", "zeros border reflection", "zeros")),
        graph_set_bool("align_corners", onnx_int(im, "align_corners", 0) != 0)};
    const dlc_dtype own = onnx_operand_shape(im, 0).dtype, wide = wide_type(own);
    const graph_id in[] = {graph_cast(im->g, onnx_operand(im, 0), wide), graph_cast(im->g, onnx_operand(im, 1), wide)};
    onnx_give(im, 0, graph_cast(im->g, onnx_emit(im, "grid_sample", 2, in, 3, s), own));
}

static void import_affine_grid(onnx_import *im) {
    int count;
    const tir_expr *size = onnx_operand_sizes(im, 1, &count);
    if (count < 3) onnx_fail(im, DLC_PARSE_ERROR, "a size of %d dimensions", count);
    onnx_give(im, 0,
              ONNX_WITH(im, "affine_grid", onnx_operand(im, 0), graph_set_dims("shape", count - 2, size + 2),
                        graph_set_bool("align_corners", onnx_int(im, "align_corners", 0) != 0)));
}

static void import_col2im(onnx_import *im) {
    int rank, block_rank;
    const tir_expr *image = onnx_operand_sizes(im, 1, &rank);
    const int64_t *block = onnx_operand_integers(im, 2, &block_rank);
    int64_t stride[DLC_MAX_RANK], dilation[DLC_MAX_RANK], low[DLC_MAX_RANK], high[DLC_MAX_RANK];
    if (rank != block_rank || rank > DLC_MAX_RANK)
        onnx_fail(im, DLC_PARSE_ERROR, "images of %d and blocks of %d dimensions", rank, block_rank);
    onnx_window_list(im, "strides", rank, 1, 1, stride);
    onnx_window_list(im, "dilations", rank, 1, 1, dilation);
    read_pads(im, rank, low, high);
    onnx_give(im, 0,
              ONNX_WITH(im, "col2im", onnx_operand(im, 0), graph_set_dims("image", rank, image),
                        graph_set_list("block", rank, block), graph_set_list("stride", rank, stride),
                        graph_set_list("low", rank, low), graph_set_list("high", rank, high),
                        graph_set_list("dilation", rank, dilation)));
}

/* ---- resizing ------------------------------------------------------------------------------------------------------- */

/* floor(size * scale) for a scale that is a number. */
static tir_expr scaled(onnx_import *im, tir_expr size, double scale) {
    tir_pool *pool = im->g->pool;
    int64_t own;
    if (!(scale > 0 && scale < 1 << 30)) onnx_fail(im, DLC_PARSE_ERROR, "a scale of %g", scale);
    if (tir_is_const(pool, size, &own) && !((double)own * scale < 0x1p62))
        onnx_fail(im, DLC_PARSE_ERROR, "a scale of %g for the size %lld", scale, (long long)own);
    if (tir_is_const(pool, size, &own)) return tir_index(pool, (int64_t)((double)own * scale));
    for (int64_t over = 1; over <= 1 << 10; over *= 2)
        if (scale * (double)over == (double)(int64_t)(scale * (double)over))
            return tir_div(pool, tir_mul(pool, size, tir_index(pool, (int64_t)(scale * (double)over))),
                           tir_index(pool, over));
    onnx_fail(im, DLC_UNSUPPORTED, "a scale of %g for a size that is not given", scale);
}

typedef struct resizing {
    int count;
    int64_t axes[DLC_MAX_RANK];
    tir_expr shape[DLC_MAX_RANK];
    /* Are the scales of all these axes given as numbers? */
    bool scales;
    float scale[DLC_MAX_RANK];
} resizing;

static void take_scales(onnx_import *im, resizing *r, const graph_shape *x, const onnx_known *known) {
    r->scales = true;
    if (!known || known->count != r->count)
        onnx_fail(im, DLC_UNSUPPORTED, "scales that depend on data, or not one for each axis");
    for (int i = 0; i < r->count; i++) {
        const onnx_number n = known->element[i];
        int64_t whole;
        if (n.index && !tir_is_const(im->g->pool, n.index, &whole))
            onnx_fail(im, DLC_UNSUPPORTED, "scales that depend on sizes");
        r->scale[i] = n.index ? (float)((double)whole / (double)n.over) : (float)n.number;
        r->shape[i] = scaled(im, x->dim[r->axes[i]], (double)r->scale[i]);
    }
}

/* Drops unchanged axes, to avoid useless kernels. */
static void drop_same(onnx_import *im, resizing *r, const graph_shape *x) {
    int kept = 0;
    for (int i = 0; i < r->count; i++) {
        if (tir_equal(im->g->pool, r->shape[i], x->dim[r->axes[i]]) == TIR_YES && (!r->scales || r->scale[i] == 1))
            continue;
        r->axes[kept] = r->axes[i], r->shape[kept] = r->shape[i], r->scale[kept] = r->scale[i];
        kept++;
    }
    r->count = kept;
}

typedef struct sampling {
    int mode, coordinates, rounding;
    /* 0: none */
    graph_id roi;
    int count;
    const graph_setting *more;
} sampling;

/* Interpolated integers, truncated. Their weights have the sum 1 but for rounding: a number that is less than 2^-12 from the next integer is that, so that
 * an image of one colour keeps it. */
static graph_id truncated(onnx_import *im, graph_id y, dlc_dtype dtype) {
    const graph_id more = graph_mul_number(im->g, graph_sign(im->g, y), 0x1p-12);
    return graph_cast(im->g, graph_add(im->g, y, more), dtype);
}

/* x resized along at least one axis. */
static graph_id resized(onnx_import *im, graph_id x, const resizing *r, const sampling *by) {
    graph_setting s[12];
    int n = 0;
    const int64_t count = r->count;
    const graph_id scale = r->scales ? graph_literal(im->g, DLC_F32, 1, &count, r->scale) : 0;
    s[n++] = graph_set_dims("shape", r->count, r->shape);
    s[n++] = graph_set_integer("mode", by->mode);
    s[n++] = graph_set_list("axes", r->count, r->axes);
    s[n++] = graph_set_integer("coordinates", by->coordinates);
    s[n++] = graph_set_integer("rounding", by->rounding);
    for (int i = 0; i < by->count; i++) s[n++] = by->more[i];
    const dlc_dtype dtype = graph_shape_of(im->g, x)->dtype;
    const bool whole = by->mode != 0 && !lib_dtype_is_float(dtype);
    if (whole) x = graph_cast(im->g, x, lib_dtypes[dtype].bits == 8 ? DLC_F32 : DLC_F64);
    const graph_id y = onnx_emit(im, "resize", 3, (graph_id[]){x, scale, by->roi}, n, s);
    return whole ? truncated(im, y, dtype) : graph_cast(im->g, y, dtype);
}

/* Gives the resized operand. all: also axes whose size does not change are resampled. */
static void give_resize(onnx_import *im, resizing *r, const sampling *by, bool all) {
    const graph_shape x = onnx_operand_shape(im, 0);
    if (!all) drop_same(im, r, &x);
    if (r->count == 0)
        onnx_give_operand(im, 0, 0);
    else
        onnx_give(im, 0, resized(im, onnx_operand(im, 0), r, by));
}

/* Moves the axes that shrink to another list. */
static void split_shrinking(resizing *r, resizing *shrinking) {
    int kept = 0;
    for (int i = 0; i < r->count; i++) {
        resizing *to = r->scale[i] < 1 ? shrinking : r;
        const int at = to == r ? kept++ : to->count++;
        to->axes[at] = r->axes[i], to->shape[at] = r->shape[i], to->scale[at] = r->scale[i];
    }
    r->count = kept;
}

/* Upsample, and Resize of version 10: sizes from scales, asymmetric coordinates. The nearest element is that below along axes that grow, and since
 * version 10 that above along axes that shrink. */
static void import_upsample(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    resizing r = {.count = x.rank};
    const int mode = onnx_choice(im, "mode", "nearest linear bilinear", "nearest");
    int count;
    for (int d = 0; d < x.rank; d++) r.axes[d] = d;
    if (im->opset >= 9)
        take_scales(im, &r, &x, onnx_operand_asked(im, 1));
    else {
        const float *scales = onnx_floats(im, "scales", &count);
        onnx_known known = {.count = x.rank, .element = LIB_NEW_ARRAY(im->g->arena, onnx_number, DLC_MAX_RANK)};
        for (int d = 0; d < x.rank; d++)
            known.element[d] = (onnx_number){0, 1, scales && d < count ? (double)scales[d] : 1};
        if (!scales) { /* version 1: height and width */
            if (x.rank != 4) onnx_fail(im, DLC_UNSUPPORTED, "an operand of rank %d", x.rank);
            known.element[2].number = onnx_float(im, "height_scale", 1),
            known.element[3].number = onnx_float(im, "width_scale", 1);
        }
        take_scales(im, &r, &x, &known);
    }
    resizing shrinking = {.scales = true};
    drop_same(im, &r, &x);
    if (im->opset >= 10 && !mode) split_shrinking(&r, &shrinking);
    if (!r.count && !shrinking.count) {
        onnx_give_operand(im, 0, 0);
        return;
    }
    graph_id y = onnx_operand(im, 0);
    const int asymmetric = 4, floor = 2, ceil = 3;
    if (shrinking.count)
        y = resized(im, y, &shrinking, &(sampling){.mode = 0, .coordinates = asymmetric, .rounding = ceil});
    if (r.count)
        y = resized(im, y, &r, &(sampling){.mode = mode ? 1 : 0, .coordinates = asymmetric, .rounding = floor});
    onnx_give(im, 0, y);
}

/* Numbers of words of coordinate_transformation_mode, the same as in libdlc's operator. */
enum { ALIGN_CORNERS = 3, CROP = 5, TF_HALF_PIXEL };

/* align_corners with scales uses the unrounded size * scale instead of the result's size n: element i is at i * (size - 1) / (size
 * * scale - 1). It is expressed as a crop whose last element, n - 1, has that position. */
static graph_id align_by_scales(onnx_import *im, const resizing *r, const graph_shape *x) {
    float roi[2 * DLC_MAX_RANK] = {0};
    for (int i = 0; i < r->count; i++) {
        int64_t size, results;
        if (!tir_is_const(im->g->pool, x->dim[r->axes[i]], &size) || !tir_is_const(im->g->pool, r->shape[i], &results))
            onnx_fail(im, DLC_UNSUPPORTED, "align_corners with scales where the input's size is not given");
        const double last = (double)size * (double)r->scale[i] - 1;
        roi[r->count + i] = results > 1 && last > 0 ? (float)((double)(results - 1) / last) : 0;
    }
    const int64_t count = 2 * r->count;
    return graph_literal(im->g, DLC_F32, 1, &count, roi);
}

static void import_resize(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    resizing r = {.count = x.rank};
    int axis_count, size_count;
    const int mode = onnx_choice(im, "mode", "nearest linear cubic", "nearest");
    static const char coordinates[] =
        "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize tf_half_pixel_for_nn";
    int place = onnx_choice(im, "coordinate_transformation_mode", coordinates, "half_pixel");
    const int rounding =
        onnx_choice(im, "nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil", "round_prefer_floor");
    const int aspect = onnx_choice(im, "keep_aspect_ratio_policy", "stretch not_larger not_smaller", "stretch");
    const int64_t *axes = onnx_ints(im, "axes", &axis_count);
    if (axes) r.count = axis_count;
    if (r.count > x.rank) onnx_fail(im, DLC_PARSE_ERROR, "%d axes of an operand of rank %d", r.count, x.rank);
    const int64_t *distinct = onnx_axis_list(im, axes, r.count, x.rank);
    for (int i = 0; i < r.count; i++) r.axes[i] = distinct[i];
    if (onnx_has(im, 3)) {
        const tir_expr *sizes = onnx_operand_sizes(im, 3, &size_count);
        if (size_count != r.count) onnx_fail(im, DLC_PARSE_ERROR, "%d sizes for %d axes", size_count, r.count);
        for (int i = 0; i < r.count; i++) r.shape[i] = sizes[i];
    } else
        take_scales(im, &r, &x, onnx_operand_asked(im, 2));
    graph_id roi = 0;
    const bool crop = place == CROP || (place == ALIGN_CORNERS && r.scales), shifts = place == TF_HALF_PIXEL;
    if (place == ALIGN_CORNERS && r.scales)
        roi = align_by_scales(im, &r, &x), place = CROP;
    else if (crop) {
        if (!onnx_has(im, 1)) onnx_fail(im, DLC_PARSE_ERROR, "tf_crop_and_resize without roi");
        roi = graph_cast(im->g, onnx_operand(im, 1), DLC_F32);
    }
    const graph_setting more[] = {graph_set_float("cubic_coefficient", onnx_float(im, "cubic_coeff_a", -0.75)),
                                  graph_set_bool("exclude_outside", onnx_int(im, "exclude_outside", 0) != 0),
                                  graph_set_bool("antialias", onnx_int(im, "antialias", 0) != 0),
                                  graph_set_float("extrapolation", onnx_float(im, "extrapolation_value", 0)),
                                  graph_set_integer("aspect", aspect)};
    const sampling by = {mode, place, rounding, roi, 5, more};
    give_resize(im, &r, &by, crop || aspect || shifts);
}

const onnx_row onnx_rows_window[] = {
    {"AffineGrid", 20, 0, import_affine_grid, NULL},  {"AveragePool", 1, 0, import_average_pool, NULL},
    {"Col2Im", 18, 0, import_col2im, NULL},           {"GlobalAveragePool", 1, 0, import_global_pool, NULL},
    {"GlobalLpPool", 1, 0, import_global_pool, NULL}, {"GlobalMaxPool", 1, 0, import_global_pool, NULL},
    {"GridSample", 16, 0, import_grid_sample, NULL},  {"LpPool", 1, 0, import_lp_pool, NULL},
    {"MaxPool", 1, 0, import_max_pool, NULL},         {"MaxUnpool", 9, 0, import_max_unpool, NULL},
    {"Resize", 10, 10, import_upsample, NULL},        {"Resize", 11, 0, import_resize, NULL},
    {"Upsample", 1, 9, import_upsample, NULL},        {0},
};
