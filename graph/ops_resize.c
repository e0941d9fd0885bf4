/* resize: resamples axes of a tensor at other positions. Each axis has a table of indices and weights, which depends on positions only, so
 * that it is computed once per shape. Axes are resampled in order, the last one at the end: its elements are read at scattered
 * addresses, and the tensor is then smallest. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

enum {
    RESIZE_SHAPE,
    RESIZE_MODE,
    RESIZE_AXES,
    RESIZE_COORDINATES,
    RESIZE_ROUNDING,
    RESIZE_CUBIC,
    RESIZE_EXCLUDE,
    RESIZE_ANTIALIAS,
    RESIZE_EXTRAPOLATION,
    RESIZE_ASPECT
};
enum { STRETCH, NOT_LARGER, NOT_SMALLER };
enum { NEAREST, LINEAR, CUBIC };
enum { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, CROP, TF_HALF_PIXEL };
enum { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, ROUND_FLOOR, ROUND_CEIL };
enum { X, SCALE, ROI };

/* ---- shape */

/* Sets axes[] to the axes that the entries of `shape` are for; returns their number. */
static int resized_axes(const graph_attribute *attribute, int rank, int *axes) {
    const graph_attribute *list = &attribute[RESIZE_AXES];
    int count = list->count ? list->count : rank;
    for (int i = 0; i < count; i++) axes[i] = list->count ? graph_axis_of(list->list[i], rank) : i;
    return count;
}

/* The aspect policy; STRETCH if the operand `scale` is given, since the policy then does not apply (ONNX). */
static int64_t aspect_of(const graph_attribute *attribute, bool scaled) {
    return scaled ? STRETCH : attribute[RESIZE_ASPECT].integer;
}

/* Sets out[] to the result's sizes along the axes: those of `shape`; with an aspect policy each size times one scale, the least or greatest
 * shape/size of all axes, rounded half up. */
static void resized_dims(tir_pool *pool, const graph_attribute *attribute, bool scaled, const graph_shape *x,
                         const int *axes, int count, tir_expr *out) {
    const tir_expr *shape = attribute[RESIZE_SHAPE].dims, one = tir_index(pool, 1), two = tir_index(pool, 2);
    const int64_t aspect = aspect_of(attribute, scaled);
    for (int i = 0; i < count; i++) {
        out[i] = shape[i];
        for (int k = 0; k < count && aspect != STRETCH; k++) {
            tir_expr size = tir_max(pool, x->dim[axes[k]], one);
            tir_expr twice = tir_mul(pool, two, tir_mul(pool, x->dim[axes[i]], shape[k]));
            tir_expr own = tir_div(pool, tir_add(pool, twice, size), tir_mul(pool, two, size));
            out[i] = k == 0 ? own : aspect == NOT_LARGER ? tir_min(pool, out[i], own) : tir_max(pool, out[i], own);
        }
    }
}

/* Checks an optional operand with one number per axis. */
static void infer_numbers(const graph_infer *infer, int operand, int count) {
    if (operand >= infer->inputs || infer->operand[operand].rank < 0) return;
    graph_infer_dtype(infer, operand, DLC_F32);
    graph_infer_rank(infer, operand, 1);
    graph_infer_equal(infer, infer->operand[operand].dim[0], tir_index(infer->g->pool, count),
                      operand == SCALE ? "the number of axes and the entries of scale"
                                       : "twice the number of axes and the entries of roi");
}

static bool is_given(const graph_infer *infer, int operand) {
    return operand < infer->inputs && infer->operand[operand].rank >= 0;
}

static void infer_resize(graph_infer *infer) {
    const graph_shape *x = &infer->operand[X];
    const graph_attribute *a = infer->attribute, *shape = &a[RESIZE_SHAPE];
    tir_pool *pool = infer->g->pool;
    int axes[DLC_MAX_RANK];
    graph_infer_axes(infer, &a[RESIZE_AXES], x->rank, "axes");
    int count = resized_axes(a, x->rank, axes);
    if (shape->count != count)
        graph_infer_fail(infer, "shape has %d entries, expected one for each of %d axes", shape->count, count);
    if (a[RESIZE_MODE].integer != NEAREST && !lib_dtype_is_float(x->dtype))
        graph_infer_fail(infer, "x is %s: only floats are interpolated, others take mode=nearest",
                         lib_dtypes[x->dtype].name);
    if (a[RESIZE_ANTIALIAS].integer && a[RESIZE_MODE].integer == NEAREST)
        graph_infer_fail(infer, "antialias is for mode=linear and mode=cubic");
    const bool scaled = is_given(infer, SCALE);
    if (a[RESIZE_ANTIALIAS].integer && x->rank == DLC_MAX_RANK)
        graph_infer_fail(infer, "x has rank %d, expected at most %d with antialias", x->rank, DLC_MAX_RANK - 1);
    if ((a[RESIZE_COORDINATES].integer == CROP) != is_given(infer, ROI))
        graph_infer_fail(infer, "roi goes with coordinates=crop");
    infer_numbers(infer, SCALE, count);
    infer_numbers(infer, ROI, 2 * count);
    infer->result[0] = *x;
    for (int i = 0; i < count; i++) {
        graph_infer_at_most(infer, tir_index(pool, 0), shape->dims[i], "a dimension of shape is negative");
        for (int k = 0; k < count && aspect_of(a, scaled) != STRETCH; k++)
            graph_infer_product(infer, 3, (tir_expr[]){x->dim[axes[i]], shape->dims[k], tir_index(pool, 4)});
    }
    tir_expr out[DLC_MAX_RANK];
    resized_dims(pool, a, scaled, x, axes, count, out);
    for (int i = 0; i < count; i++) {
        graph_infer_at_most(infer, tir_min(pool, out[i], tir_index(pool, 1)), x->dim[axes[i]],
                            "an empty axis has no element to sample");
        infer->result[0].dim[axes[i]] = out[i];
    }
}

/* ---- expansion: tables of one axis, positions in f64 */

typedef struct resized_axis {
    graph *g;
    const graph_attribute *attribute;
    tir_expr in, out;
    /* element types of the tables */
    dlc_dtype index, weight;
    /* ends of the part of the axis that the result covers, CROP only */
    graph_id start, end;
    /* the axis' entry of operand `scale`; 0: the sizes determine the scale */
    graph_id scale;
    /* the result's size is the nearest to scale times size */
    bool rounded;
    /* position of each result element, [out] */
    graph_id at;
} resized_axis;

static graph_id number(const resized_axis *r, double value) {
    return graph_scalar(r->g, DLC_F64, value);
}

/* The size plus `more`, at least `least`, as an f64 value. */
static graph_id size_of(const resized_axis *r, tir_expr size, int64_t more, int64_t least) {
    tir_pool *pool = r->g->pool;
    return graph_dimension(r->g, DLC_F64,
                           tir_max(pool, tir_add(pool, size, tir_index(pool, more)), tir_index(pool, least)));
}

/* i divided by the axis' scale: i/scale, or i*in/out. */
static graph_id unscaled(const resized_axis *r, graph_id i) {
    graph *g = r->g;
    if (r->scale) return graph_div(g, i, r->scale);
    return graph_div(g, graph_mul(g, i, size_of(r, r->in, 0, 0)), size_of(r, r->out, 0, 1));
}

static graph_id positions(const resized_axis *r) {
    graph *g = r->g;
    graph_id i = graph_iota(g, DLC_F64, 1, &r->out, 0), half = number(r, 0.5);
    graph_id centre = graph_sub(g, unscaled(r, graph_add(g, i, half)), half);
    tir_expr one = tir_index(g->pool, 1);
    graph_id several = graph_dimension(
        g, DLC_F64, tir_min(g->pool, tir_max(g->pool, tir_sub(g->pool, r->out, one), tir_index(g->pool, 0)), one));
    graph_id last = size_of(r, r->in, -1, 0), steps = size_of(r, r->out, -1, 1);
    switch (r->attribute[RESIZE_COORDINATES].integer) {
    case HALF_PIXEL_SYMMETRIC: { /* accounts for the part of the last element lost by rounding the size */
        if (!r->scale) return centre;
        graph_id in = size_of(r, r->in, 0, 0);
        graph_id kept = graph_div(g, size_of(r, r->out, 0, 0), graph_mul(g, in, r->scale));
        return graph_add(g, centre, graph_mul(g, graph_mul(g, in, half), graph_sub(g, number(r, 1), kept)));
    }
    case PYTORCH_HALF_PIXEL: return graph_mul(g, centre, several);
    case ALIGN_CORNERS: return graph_div(g, graph_mul(g, i, last), steps);
    case ASYMMETRIC: return unscaled(r, i);
    case TF_HALF_PIXEL: return unscaled(r, graph_add(g, i, half));
    case CROP: { /* the middle if there is only one element */
        graph_id middle = graph_mul(g, half, graph_sub(g, number(r, 1), several));
        graph_id share = graph_div(g, graph_add(g, i, middle), steps);
        return graph_mul(g, last, graph_add(g, r->start, graph_mul(g, share, graph_sub(g, r->end, r->start))));
    }
    default: return centre;
    }
}

static graph_id rounded_position(const resized_axis *r) {
    graph *g = r->g;
    switch (r->attribute[RESIZE_ROUNDING].integer) {
    case ROUND_PREFER_CEIL: return graph_floor(g, graph_add(g, r->at, number(r, 0.5)));
    case ROUND_FLOOR: return graph_floor(g, r->at);
    case ROUND_CEIL: return graph_ceil(g, r->at);
    default: return graph_ceil(g, graph_sub(g, r->at, number(r, 0.5)));
    }
}

/* Keys 1981: 1 - (a + 3)t^2 + (a + 2)|t|^3 up to 1, a(|t|^3 - 5t^2 + 8|t| - 4) from there to 2; or 1 - |t| up to 1. */
static graph_id kernel_at(const resized_axis *r, graph_id t) {
    graph *g = r->g;
    graph_id one = number(r, 1), zero = number(r, 0);
    t = graph_abs(g, t);
    if (r->attribute[RESIZE_MODE].integer == LINEAR) return graph_max(g, graph_sub(g, one, t), zero);
    double a = r->attribute[RESIZE_CUBIC].number;
    graph_id square = graph_mul(g, t, t);
    graph_id near = graph_sub(g, graph_mul(g, number(r, a + 2), t), number(r, a + 3));
    near = graph_add(g, graph_mul(g, near, square), one);
    graph_id far = graph_mul(g, graph_add(g, graph_mul(g, graph_sub(g, t, number(r, 5)), t), number(r, 8)), t);
    far = graph_mul(g, graph_sub(g, far, number(r, 4)), number(r, a));
    far = graph_select(g, graph_lt(g, t, number(r, 2)), far, graph_broadcast_like(g, zero, far));
    return graph_select(g, graph_le(g, t, one), near, far);
}

/* 1 where the neighbour exists, else 0 */
static graph_id exists(const resized_axis *r, graph_id neighbour) {
    graph *g = r->g;
    graph_id inside =
        graph_and(g, graph_ge(g, neighbour, number(r, 0)), graph_le(g, neighbour, size_of(r, r->in, -1, 0)));
    return graph_cast(g, inside, DLC_F64);
}

/* x resampled along the axis: the sum over 2 or 4 neighbours, each with tables of its own. */
static graph_id sample_near(const resized_axis *r, graph_id x, int axis) {
    graph *g = r->g;
    enum { MOST = 4 };
    int taps = r->attribute[RESIZE_MODE].integer == LINEAR ? 2 : MOST;
    graph_id below = graph_floor(g, r->at), neighbour[MOST], weight[MOST], sum = 0, y = 0;
    for (int k = 0; k < taps; k++) {
        neighbour[k] = graph_add(g, below, number(r, k - taps / 2 + 1));
        weight[k] = kernel_at(r, graph_sub(g, r->at, neighbour[k]));
        if (r->attribute[RESIZE_EXCLUDE].integer) weight[k] = graph_mul(g, weight[k], exists(r, neighbour[k]));
        sum = k ? graph_add(g, sum, weight[k]) : weight[k];
    }
    for (int k = 0; k < taps; k++) {
        if (r->attribute[RESIZE_EXCLUDE].integer) weight[k] = graph_div(g, weight[k], sum);
        graph_id element = graph_gather(g, x, graph_cast(g, neighbour[k], r->index), axis);
        const graph_shape shape = *graph_shape_of(g, element);
        graph_id factor =
            graph_broadcast(g, graph_cast(g, weight[k], r->weight), shape.rank, shape.dim, (int64_t[]){axis});
        graph_id term = graph_mul(g, element, factor);
        y = k ? graph_add(g, y, term) : term;
    }
    return y;
}

/* x resampled along the axis with antialiasing: the kernel is as wide as the distance of result elements. The sum runs over an axis of
 * neighbours, whose number follows from the sizes; a given scale is limited from below so that the kernel fits them. */
static graph_id sample_wide(const resized_axis *r, graph_id x, int axis) {
    graph *g = r->g;
    tir_pool *pool = g->pool;
    tir_expr reach = tir_index(pool, r->attribute[RESIZE_MODE].integer == LINEAR ? 1 : 2), one = tir_index(pool, 1);
    tir_expr two = tir_index(pool, 2), twice = tir_sub(pool, tir_mul(pool, two, r->out), tir_index(pool, r->rounded));
    tir_expr width = tir_ceil_div(pool, tir_mul(pool, tir_mul(pool, two, reach), r->in), tir_max(pool, twice, one));
    tir_expr side = tir_max(pool, reach, width);
    tir_expr dims[2] = {r->out, tir_mul(pool, side, tir_index(pool, 2))};
    graph_id below = graph_expand_dims(g, graph_floor(g, r->at), 1), at = graph_expand_dims(g, r->at, 1);
    graph_id first = graph_dimension(g, DLC_F64, tir_sub(pool, side, one));
    graph_id neighbour = graph_add(g, below, graph_sub(g, graph_iota(g, DLC_F64, 2, dims, 1), first));
    graph_id narrow = r->scale ? r->scale : graph_div(g, size_of(r, r->out, 0, 0), size_of(r, r->in, 0, 1));
    graph_id least = graph_div(g, graph_dimension(g, DLC_F64, reach), graph_dimension(g, DLC_F64, side));
    narrow = graph_min(g, r->scale ? graph_max(g, narrow, least) : narrow, number(r, 1));
    graph_id weight = kernel_at(r, graph_mul(g, graph_sub(g, at, neighbour), narrow));
    if (r->attribute[RESIZE_EXCLUDE].integer) weight = graph_mul(g, weight, exists(r, neighbour));
    int64_t taps = 1;
    weight = graph_cast(g, graph_div(g, weight, graph_reduce_sum(g, weight, 1, &taps, true)), r->weight);
    graph_id element = graph_gather(g, x, graph_cast(g, neighbour, r->index), axis);
    const graph_shape shape = *graph_shape_of(g, element);
    graph_id factor = graph_broadcast(g, weight, shape.rank, shape.dim, (int64_t[]){axis, axis + 1});
    return graph_reduce_sum(g, graph_mul(g, element, factor), 1, (int64_t[]){axis + 1}, false);
}

static graph_id entry(graph *g, graph_id list, int at) {
    tir_expr from = tir_index(g->pool, at), to = tir_index(g->pool, at + 1);
    return graph_cast(g, graph_squeeze(g, graph_slice(g, list, &from, &to, NULL), 0), DLC_F64);
}

/* The scale of all axes by the aspect policy: the least or the greatest shape/size. */
static graph_id common_scale(graph *g, const graph_attribute *a, const graph_shape *x, const int *axes, int count) {
    graph_id scale = graph_scalar(g, DLC_F64, 1);
    for (int k = 0; k < count; k++) {
        graph_id size = graph_dimension(g, DLC_F64, tir_max(g->pool, x->dim[axes[k]], tir_index(g->pool, 1)));
        graph_id own = graph_div(g, graph_dimension(g, DLC_F64, a[RESIZE_SHAPE].dims[k]), size);
        scale = k == 0                                   ? own
                : a[RESIZE_ASPECT].integer == NOT_LARGER ? graph_min(g, scale, own)
                                                         : graph_max(g, scale, own);
    }
    return scale;
}

/* Sets the fields of *r that depend on the axis: type of its indices, scale, the cropped range, positions. The axis is number i of the `count`
 * axes that are resized. scale, roi: operands of the node; 0: not given. */
static void place_axis(resized_axis *r, graph_id scale, graph_id roi, int i, int count) {
    graph *g = r->g;
    r->index = tir_range(g->pool, r->in).high < INT32_MAX ? DLC_I32 : DLC_I64;
    if (scale) r->scale = entry(g, scale, i);
    if (r->attribute[RESIZE_COORDINATES].integer == CROP)
        r->start = entry(g, roi, i), r->end = entry(g, roi, count + i);
    r->at = positions(r);
}

/* x resampled along the axis, by the mode. */
static graph_id resample(const resized_axis *r, graph_id x, int axis) {
    graph *g = r->g;
    return r->attribute[RESIZE_MODE].integer == NEAREST
               ? graph_gather(g, x, graph_cast(g, rounded_position(r), r->index), axis)
           : r->attribute[RESIZE_ANTIALIAS].integer ? sample_wide(r, x, axis)
                                                    : sample_near(r, x, axis);
}

/* Elements of the result that are outside of x along this axis or by `outside`; 0: none so far. */
static graph_id add_outside(const resized_axis *r, graph_id outside, const graph_shape *result, int axis) {
    graph *g = r->g;
    graph_id beyond = graph_or(g, graph_lt(g, r->at, number(r, 0)), graph_gt(g, r->at, size_of(r, r->in, -1, 0)));
    beyond = graph_broadcast(g, beyond, result->rank, result->dim, (int64_t[]){axis});
    return outside ? graph_or(g, outside, beyond) : beyond;
}

static void expand_resize(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    const graph_shape from = *graph_shape_of(g, e->input[X]);
    int axes[DLC_MAX_RANK], count = resized_axes(a, from.rank, axes);
    bool crops = a[RESIZE_COORDINATES].integer == CROP, moves = a[RESIZE_MODE].integer == NEAREST;
    bool shifts = crops || a[RESIZE_COORDINATES].integer == TF_HALF_PIXEL; /* also where sizes stay */
    graph_id y = moves ? e->input[X] : graph_widen(g, e->input[X]), outside = 0;
    graph_id scale = e->inputs > SCALE ? e->input[SCALE] : 0, roi = e->inputs > ROI ? e->input[ROI] : 0;
    graph_shape result = from;
    graph_id common = aspect_of(a, scale != 0) == STRETCH ? 0 : common_scale(g, a, &from, axes, count);
    tir_expr out[DLC_MAX_RANK];
    resized_dims(g->pool, a, scale != 0, &from, axes, count, out);
    for (int i = 0; i < count; i++) result.dim[axes[i]] = out[i];
    for (int axis = 0; axis < from.rank; axis++)
        for (int i = 0; i < count; i++) {
            if (axes[i] != axis) continue;
            resized_axis r = {
                .g = g, .attribute = a, .in = from.dim[axis], .out = out[i], .scale = common, .rounded = common != 0};
            if (!shifts && !scale && !common && tir_equal(g->pool, r.in, r.out) == TIR_YES) continue;
            r.weight = graph_sum_dtype(from.dtype);
            place_axis(&r, scale, roi, i, count);
            y = resample(&r, y, axis);
            if (crops) outside = add_outside(&r, outside, &result, axis);
        }
    y = graph_cast(g, y, from.dtype);
    if (outside) y = graph_select(g, outside, graph_full_like(g, y, a[RESIZE_EXTRAPOLATION].number), y);
    e->result[0] = y;
}

/* ---- reference */

#ifdef DLC_REFERENCE

static double reference_scale(const graph_reference *r, int i, int count, double in, double out) {
    const int64_t aspect = aspect_of(r->attribute, graph_reference_given(r, SCALE));
    double scale = graph_reference_given(r, SCALE) ? r->operand[SCALE].data[i] : out / in;
    for (int k = 0; k < count && aspect != STRETCH; k++) {
        int axes[DLC_MAX_RANK];
        resized_axes(r->attribute, r->operand[0].rank, axes);
        double own = (double)r->attribute[RESIZE_SHAPE].list[k] / (double)r->operand[0].dim[axes[k]];
        scale = k == 0 || (aspect == NOT_LARGER ? own < scale : own > scale) ? own : scale;
    }
    return scale;
}

static double reference_position(const graph_reference *r, int i, int count, double in, double out, double at) {
    const int64_t aspect = aspect_of(r->attribute, graph_reference_given(r, SCALE));
    double scale = reference_scale(r, i, count, in, out);
    bool given = graph_reference_given(r, SCALE) || aspect != STRETCH;
    double centre = given ? (at + 0.5) / scale - 0.5 : (at + 0.5) * in / out - 0.5;
    switch (r->attribute[RESIZE_COORDINATES].integer) {
    case HALF_PIXEL_SYMMETRIC: return in / 2 * (1 - out / (scale * in)) + centre;
    case PYTORCH_HALF_PIXEL: return out > 1 ? centre : 0;
    case ALIGN_CORNERS: return out > 1 ? at * (in - 1) / (out - 1) : 0;
    case ASYMMETRIC: return given ? at / scale : at * in / out;
    case TF_HALF_PIXEL: return given ? (at + 0.5) / scale : (at + 0.5) * in / out;
    case CROP: {
        double start = r->operand[ROI].data[i], end = r->operand[ROI].data[count + i];
        if (out <= 1) return 0.5 * (start + end) * (in - 1);
        return start * (in - 1) + at * (end - start) * (in - 1) / (out - 1);
    }
    default: return centre;
    }
}

static double reference_kernel(const graph_reference *r, double t) {
    double a = r->attribute[RESIZE_CUBIC].number;
    t = fabs(t);
    if (r->attribute[RESIZE_MODE].integer == LINEAR) return t < 1 ? 1 - t : 0;
    if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
    return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
}

/* Sets index[] to the neighbours of the position and weight[] to their weights; returns their number. */
static int64_t reference_taps(const graph_reference *r, double at, double in, double scale, int64_t *index,
                              double *weight) {
    const graph_attribute *a = r->attribute;
    if (a[RESIZE_MODE].integer == NEAREST) {
        double low = floor(at), rest = at - low;
        int64_t rule = a[RESIZE_ROUNDING].integer;
        bool up = rule == ROUND_CEIL ? rest > 0 : rule == ROUND_FLOOR ? false : rest > 0.5;
        if (rule == ROUND_PREFER_CEIL) up = rest >= 0.5;
        index[0] = (int64_t)fmin(fmax(low + up, 0), in - 1);
        weight[0] = 1;
        return 1;
    }
    double reach = a[RESIZE_MODE].integer == LINEAR ? 1 : 2, narrow = 1, sum = 0;
    if (a[RESIZE_ANTIALIAS].integer) narrow = fmin(scale, 1);
    int64_t side = (int64_t)ceil(reach / narrow) + 1, taps = 0;
    for (int64_t k = -side; k <= side; k++) {
        double n = floor(at) + (double)k, w = reference_kernel(r, (at - n) * narrow);
        if (w == 0 || (a[RESIZE_EXCLUDE].integer && (n < 0 || n > in - 1))) continue;
        index[taps] = (int64_t)fmin(fmax(n, 0), in - 1);
        weight[taps++] = w;
        sum += w;
    }
    for (int64_t k = 0; k < taps; k++) weight[k] /= sum;
    return taps;
}

/* Sums over the neighbours along all axes at once. */
static void reference_resize(const graph_reference *r) {
    enum { TAPS = 256 };
    const graph_reference_tensor *x = &r->operand[X], *y = &r->result[0];
    int axes[DLC_MAX_RANK], count = resized_axes(r->attribute, x->rank, axes);
    int64_t to[DLC_MAX_RANK] = {0}, index[DLC_MAX_RANK][TAPS], taps[DLC_MAX_RANK];
    double weight[DLC_MAX_RANK][TAPS];
    GRAPH_REFERENCE_EACH(y, to) {
        bool outside = false;
        for (int i = 0; i < x->rank; i++) index[i][0] = to[i], weight[i][0] = 1, taps[i] = 1;
        for (int i = 0; i < count; i++) {
            int axis = axes[i];
            double in = (double)x->dim[axis], out = (double)y->dim[axis];
            double at = reference_position(r, i, count, in, out, (double)to[axis]);
            outside = outside || (r->attribute[RESIZE_COORDINATES].integer == CROP && (at < 0 || at > in - 1));
            double scale = reference_scale(r, i, count, in, out);
            taps[axis] = reference_taps(r, at, in, scale, index[axis], weight[axis]);
        }
        int64_t pick[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
        double sum = 0;
        for (bool more = true; more;) {
            double factor = 1;
            for (int i = 0; i < x->rank; i++) from[i] = index[i][pick[i]], factor *= weight[i][pick[i]];
            sum += factor * x->data[graph_reference_at(x, from)];
            more = false;
            for (int i = x->rank - 1; i >= 0 && !more; i--) {
                more = ++pick[i] < taps[i];
                if (!more) pick[i] = 0;
            }
        }
        y->data[graph_reference_at(y, to)] = outside ? r->attribute[RESIZE_EXTRAPOLATION].number : sum;
    }
}

#endif

/* ---- row */

static const graph_op row_resize = {
    COMPOSITE_ROW(resize, 1, 3, 1, "x [scale] [roi]", "any"),
    .attribute =
        {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result along the axes"},
         {"mode", GRAPH_ATTR_ENUM, "nearest linear cubic", NULL,
          "the nearest element, or a sum over 2 or 4 neighbours along each axis"},
         {"axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes that shape, scale and roi speak of; empty: all"},
         {"coordinates", GRAPH_ATTR_ENUM,
          "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric crop tf_half_pixel",
          "half_pixel",
          "position p in x of element i of n, s = n/size or scale; half_pixel: (i + 0.5)/s - 0.5; half_pixel_symmetric: "
          "that plus size/2*(1 - n/(s*size)); pytorch_half_pixel: 0 where n is 1; align_corners: i*(size - 1)/(n - 1); "
          "asymmetric: i/s; crop: (start + (end - start)*i/(n - 1))*(size - 1), with 1/2 for i/(n - 1) where n is 1; tf_half_pixel: "
          "(i + 0.5)/s"},
         {"rounding", GRAPH_ATTR_ENUM, "round_prefer_floor round_prefer_ceil floor ceil", "round_prefer_floor",
          "which element is nearest to p: the nearer one, of two as near the lower or the higher; or that below, or above p"},
         {"cubic_coefficient", GRAPH_ATTR_FLOAT, NULL, "-0.75", "a of the cubic kernel"},
         {"exclude_outside", GRAPH_ATTR_BOOL, NULL, "false",
          "neighbours outside x do not count and the others' weights sum to 1; else the edge stands for them"},
         {"antialias", GRAPH_ATTR_BOOL, NULL, "false",
          "where the result is smaller, the kernel is as much wider; weights sum to 1. For linear and cubic"},
         {"extrapolation", GRAPH_ATTR_FLOAT, NULL, "0.0", "crop: the number for positions outside x"},
         {"aspect", GRAPH_ATTR_ENUM, "stretch not_larger not_smaller", "stretch",
          "not_larger, not_smaller: one scale s for all axes, the least or the greatest of shape over size; the result's sizes are s*size, "
          "halves up, instead of shape. Of no effect with scale"}},
    .infer = infer_resize,
    .tolerance = 32,
    .bound = GRAPH_REFERENCE(graph_bound_resize),
    .samples =
        "resize(T[1, 2, 3, 5], shape=[6, 10], axes=[2, 3], mode=nearest)\n"
        "resize(T[2, 5, 7], shape=[2, 3, 4], mode=nearest, coordinates=align_corners, rounding=ceil)\n"
        "resize(T[13], shape=[29], mode=nearest, coordinates=asymmetric, rounding=floor)\n"
        "resize(T[13], shape=[29], mode=nearest, coordinates=tf_half_pixel, rounding=ceil)\n"
        "resize(f32[9, 6], f32[2] in 0.6..0.61, shape=[5, 3], mode=linear, coordinates=tf_half_pixel)\n"
        "resize(T[13, 3], f32[1] in 0.6..0.61, shape=[7], axes=[0], mode=nearest, rounding=round_prefer_ceil)\n"
        "resize(f32[1, 3, 5, 7], shape=[10, 14], axes=[2, 3], mode=linear)\n"
        "resize(f16[2, 9, 33], shape=[5, 70], axes=[-2, -1], mode=linear, coordinates=pytorch_half_pixel)\n"
        "resize(f32[2, 40, 50], shape=[33, 30], axes=[1, 2], mode=linear)\n"
        "resize(f64[3, 20, 17], shape=[37, 40], axes=[1, 2], mode=cubic)\n"
        "resize(f64[9, 4], shape=[1, 6], mode=linear, coordinates=pytorch_half_pixel)\n"
        "resize(f32[8, 40], f32[2] in 0.7..0.71, shape=[5, 28], mode=linear, coordinates=half_pixel_symmetric)\n"
        "resize(bf16[3, 4, 5], shape=[7, 2], axes=[2, 0], mode=linear, coordinates=align_corners)\n"
        "resize(f32[6, 7], _, f32[4] in -0.2..1.3, shape=[5, 4], mode=linear, coordinates=crop, extrapolation=3.5)\n"
        "resize(f32[6, 7], _, f32[2] in 0.2..0.8, shape=[1], axes=[0], mode=nearest, coordinates=crop)\n"
        "resize(f32[2, 6, 7], shape=[9, 5], axes=[1, 2], mode=cubic)\n"
        "resize(f64[7, 6], shape=[12, 13], mode=cubic, cubic_coefficient=-0.5, exclude_outside=true)\n"
        "resize(f32[2, 13, 20], shape=[5, 7], axes=[1, 2], mode=linear, antialias=true)\n"
        "resize(f32[13, 20], shape=[5, 31], mode=cubic, antialias=true, exclude_outside=true)\n"
        "resize(f32[13, 20], f32[2] in 0.4..0.41, shape=[5, 8], mode=linear, antialias=true)\n"
        "resize(f64[9], f32[1] in 0.45..0.46, shape=[4], mode=cubic, antialias=true, aspect=not_larger)\n"
        "resize(f32[2, 13, 20], shape=[5, 7], axes=[1, 2], mode=linear, antialias=true, aspect=not_larger)\n"
        "resize(f64[9, 33], shape=[4, 3], mode=cubic, antialias=true, aspect=not_smaller)\n"
        "resize(f32[3, 0], shape=[6, 0], mode=linear)\nresize(f32[3, 2], shape=[0, 5], mode=cubic)\n"
        "resize(f32[2, 6, 9], shape=[5, 5], axes=[1, 2], mode=linear, aspect=not_larger)\n"
        "resize(T[6, 9], shape=[8, 8], mode=nearest, aspect=not_smaller)\n"
        "resize(f64[7, 10, 3], shape=[13, 4], axes=[1, 0], mode=cubic, aspect=not_smaller, coordinates=half_pixel_symmetric)\n"
        "resize(T[], shape=[], mode=nearest)\nresize(f32[1, 1], shape=[3, 4], mode=cubic)",
    .doc =
        "x sampled at other positions along the axes. Positions are in f64, in units of elements of x; p of rank axes sees "
        "neighbours n with the weight k(p - n) along each axis, k(t) = 1 - |t| (linear) or Keys' cubic kernel. Beyond the "
        "ends the first or last element stands for all. Floats only, but for mode=nearest. scale: f32 [axes], what s is instead of result size over size; roi: f32 [2 axes], "
        "starts and then ends, 0 the first and 1 the last element. ONNX Resize (crop is tf_crop_and_resize, tf_half_pixel tf_half_pixel_for_nn, aspect keep_aspect_ratio_policy); Keys 1981.",
};

const graph_op *const graph_ops_resize[] = {&row_resize, NULL};
