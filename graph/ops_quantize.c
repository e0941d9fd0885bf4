/* Affine quantisation: an integer q stands for (q - zero_point) * scale (Jacob et al. 2018, arXiv:1712.05877). Composites only.
 * Products of quantised operands are sums of u8 by i8 in i32, whatever the operands' own types and zero points are: an i8 operand on
 * the left is shifted up by 128, a u8 operand on the right down, and the contribution of zero points is subtracted afterwards:
 *
 *   sum (x - a)(w - b) = sum x*w - a*(sum w - K*b) - b*(sum x)
 *
 * where K is the number of terms. The second term usually depends on constants only, and is then added to the bias once, before the first
 * run. The third term (for a convolution with sums of x over its windows) vanishes for weights without zero point. */
#include "graph/build.h"
#include "graph/inference.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- shape rules ------------------------------------------------------------------------------------------------ */

static bool is_byte(dlc_dtype dtype) {
    return dtype == DLC_U8 || dtype == DLC_I8;
}

static void infer_byte(const graph_infer *infer, int operand, const char *name) {
    if (!is_byte(infer->operand[operand].dtype))
        graph_infer_fail(infer, "%s is %s, expected u8 or i8", name, lib_dtypes[infer->operand[operand].dtype].name);
}

/* Checks a parameter, which may be omitted: of rank 0, or with one entry for each of `channels` (0: rank 0 only). */
static void infer_parameter(const graph_infer *infer, int operand, const char *name, dlc_dtype dtype,
                            tir_expr channels) {
    const graph_shape *p = &infer->operand[operand];
    if (p->rank < 0) return;
    if (p->dtype != dtype)
        graph_infer_fail(infer, "%s is %s, expected %s", name, lib_dtypes[p->dtype].name, lib_dtypes[dtype].name);
    if (p->rank > (channels ? 1 : 0))
        graph_infer_fail(infer, "%s has rank %d, expected 0%s", name, p->rank, channels ? " or 1" : "");
    if (p->rank == 1) graph_infer_equal(infer, p->dim[0], channels, "the number of channels and the entries for them");
}

/* Attributes of quantize_linear; dequantize_linear has the first two. */
enum { LINEAR_AXIS, LINEAR_BLOCK, LINEAR_DTYPE };

/* Checks a parameter with one entry for each block of `block` elements along the axis; it may be omitted. */
static void infer_blocks(const graph_infer *infer, int operand, const char *name, dlc_dtype dtype, int axis) {
    const graph_shape *x = &infer->operand[0], *p = &infer->operand[operand];
    const int64_t block = infer->attribute[LINEAR_BLOCK].integer;
    tir_pool *pool = infer->g->pool;
    if (p->rank < 0) return;
    if (p->dtype != dtype)
        graph_infer_fail(infer, "%s is %s, expected %s", name, lib_dtypes[p->dtype].name, lib_dtypes[dtype].name);
    graph_infer_rank(infer, operand, x->rank);
    for (int i = 0; i < x->rank; i++)
        graph_infer_equal(infer, p->dim[i],
                          i == axis ? tir_ceil_div(pool, x->dim[i], tir_index(pool, block)) : x->dim[i],
                          "dimensions of the parameters, and of x with blocks along axis");
}

static void infer_linear_map(graph_infer *infer, dlc_dtype scale, dlc_dtype zero_point, dlc_dtype result) {
    const graph_shape *x = &infer->operand[0];
    const int64_t block = infer->attribute[LINEAR_BLOCK].integer;
    tir_expr channels = 0;
    int axis = 0;
    if (block < 0 || block > INT32_MAX)
        graph_infer_fail(infer, "block is %lld, expected 0 to %d", (long long)block, INT32_MAX);
    if (block && x->rank == DLC_MAX_RANK) graph_infer_fail(infer, "x has rank %d, expected less with blocks", x->rank);
    if (block || infer->operand[1].rank == 1 || infer->operand[2].rank == 1) {
        axis = graph_infer_axis(infer, infer->attribute[LINEAR_AXIS].integer, x->rank, "axis");
        channels = x->dim[axis];
    }
    if (block) {
        infer_blocks(infer, 1, "scale", scale, axis);
        infer_blocks(infer, 2, "zero_point", zero_point, axis);
    } else {
        infer_parameter(infer, 1, "scale", scale, channels);
        infer_parameter(infer, 2, "zero_point", zero_point, channels);
    }
    infer->result[0] = *x;
    infer->result[0].dtype = result;
}

static bool is_quantized(dlc_dtype dtype) {
    const lib_dtype_info *info = &lib_dtypes[dtype];
    return lib_dtype_is_packed(dtype) || (info->bits == 8 && dtype != DLC_BOOL && dtype != DLC_F8E8M0) ||
           dtype == DLC_U16 || dtype == DLC_I16;
}

static void infer_quantize_linear(graph_infer *infer) {
    dlc_dtype dtype = (dlc_dtype)infer->attribute[LINEAR_DTYPE].integer, x = infer->operand[0].dtype;
    if (!is_quantized(dtype))
        graph_infer_fail(
            infer, "dtype is %s, expected u8, i8, u16, i16, u4, i4, u2, i2, f4e2m1 or a float of 8 bits with a sign",
            lib_dtypes[dtype].name);
    infer_linear_map(infer, infer->operand[1].dtype == DLC_F8E8M0 ? DLC_F8E8M0 : x, dtype, dtype);
}

static void infer_dequantize_linear(graph_infer *infer) {
    dlc_dtype x = infer->operand[0].dtype, scale = infer->operand[1].dtype;
    if (scale != DLC_F32 && scale != DLC_F16 && scale != DLC_BF16 && scale != DLC_F8E8M0)
        graph_infer_fail(infer, "scale is %s, expected f32, f16, bf16 or f8e8m0", lib_dtypes[scale].name);
    if (x == DLC_I32 && infer->operand[2].rank >= 0) graph_infer_fail(infer, "x is i32, expected no zero_point");
    infer_linear_map(infer, scale, x, scale == DLC_F8E8M0 ? DLC_F32 : scale);
}

/* Operands of the products. */
enum { Q_X, Q_W, Q_X_SCALE, Q_W_SCALE, Q_Y_SCALE, Q_X_ZERO, Q_W_ZERO, Q_Y_ZERO, Q_BIAS, Q_OPERANDS };

static void infer_quantized(const graph_infer *infer, tir_expr channels, dlc_dtype result) {
    infer_byte(infer, Q_W, "w");
    if (!is_byte(result)) graph_infer_fail(infer, "dtype is %s, expected u8 or i8", lib_dtypes[result].name);
    infer_parameter(infer, Q_X_SCALE, "x_scale", DLC_F32, 0);
    infer_parameter(infer, Q_W_SCALE, "w_scale", DLC_F32, channels);
    infer_parameter(infer, Q_Y_SCALE, "y_scale", DLC_F32, 0);
    infer_parameter(infer, Q_X_ZERO, "x_zero_point", infer->operand[Q_X].dtype, 0);
    infer_parameter(infer, Q_W_ZERO, "w_zero_point", infer->operand[Q_W].dtype, channels);
    infer_parameter(infer, Q_Y_ZERO, "y_zero_point", result, 0);
    infer_parameter(infer, Q_BIAS, "bias", DLC_I32, channels);
}

enum { QMATMUL_DTYPE };

/* The shape of a product of operands 0 and 1, x [..., in] and w [in, out]. */
/* x [..., m, in] and w [in, out], or [..., in, out] whose leading dimensions and those of x broadcast; x may be [in] if w has no
 * leading dimensions. */
static graph_shape infer_rows_by_columns(const graph_infer *infer) {
    const graph_shape *x = &infer->operand[Q_X], *w = &infer->operand[Q_W];
    if (w->rank < 2) graph_infer_fail(infer, "w has rank %d, expected at least 2", w->rank);
    if (x->rank < (w->rank > 2 ? 2 : 1))
        graph_infer_fail(infer, "x has rank %d, expected at least %d", x->rank, w->rank > 2 ? 2 : 1);
    graph_infer_equal(infer, x->dim[x->rank - 1], w->dim[w->rank - 2], "the last dimension of x and the rows of w");
    const int longer = x->rank > w->rank ? x->rank : w->rank;
    graph_shape result = w->rank > x->rank && x->rank > 1 ? *w : *x;
    if (x->rank == 1) {
        result.dim[0] = w->dim[w->rank - 1];
        return result;
    }
    result.dtype = x->dtype;
    for (int i = 3; i <= x->rank && i <= w->rank; i++) { /* from the end */
        tir_expr a = x->dim[x->rank - i], b = w->dim[w->rank - i];
        if (!tir_is_number(infer->g->pool, a, 1) && !tir_is_number(infer->g->pool, b, 1))
            graph_infer_equal(infer, a, b, "leading dimensions of x and w (or one of them 1)");
        result.dim[longer - i] = tir_is_number(infer->g->pool, a, 1) ? b : a;
    }
    result.dim[longer - 2] = x->dim[x->rank - 2];
    result.dim[longer - 1] = w->dim[w->rank - 1];
    return result;
}

static tir_expr channels_of(const graph_infer *infer) {
    const graph_shape *w = &infer->operand[Q_W];
    return w->dim[w->rank - 1];
}

static void infer_qlinear_matmul(graph_infer *infer) {
    infer->result[0] = infer_rows_by_columns(infer);
    infer->result[0].dtype = (dlc_dtype)infer->attribute[QMATMUL_DTYPE].integer;
    infer_quantized(infer, channels_of(infer), infer->result[0].dtype);
}

/* ---- expansions ------------------------------------------------------------------------------------------------- */

static graph_id along(graph *g, graph_id parameter, graph_id like, int64_t axis) {
    const graph_shape shape = *graph_shape_of(g, like);
    if (graph_shape_of(g, parameter)->rank == 0) return graph_broadcast(g, parameter, shape.rank, shape.dim, NULL);
    return graph_broadcast(g, parameter, shape.rank, shape.dim, &axis);
}

/* The zero point plus `shift`, as i32; 0: known to be zero. An omitted zero point (given = 0) is zero. */
static graph_id zero_point_of(graph *g, graph_id given, int64_t shift) {
    double number = 0;
    if (given && !graph_is_number(g, given, &number)) {
        graph_id wide = graph_cast(g, given, DLC_I32);
        return shift ? graph_add(g, wide, graph_scalar_i64(g, DLC_I32, shift)) : wide;
    }
    int64_t value = (int64_t)number + shift;
    return value ? graph_scalar_i64(g, DLC_I32, value) : 0;
}

/* x + shift as `dtype`, the 8-bit type that x is not of. */
static graph_id moved(graph *g, graph_id x, int64_t shift, dlc_dtype dtype) {
    graph_id wide = graph_cast(g, x, DLC_I32);
    return graph_cast(g, graph_add(g, wide, graph_scalar_i64(g, DLC_I32, shift)), dtype);
}

typedef struct quantized {
    /* u8 and i8 */
    graph_id x, w;
    /* i32; 0: none */
    graph_id x_zero, w_zero;
} quantized;

static quantized operands_of(graph_expand *e) {
    enum { HALF = 128 };
    graph *g = e->g;
    bool low = graph_shape_of(g, e->input[Q_X])->dtype == DLC_I8,
         high = graph_shape_of(g, e->input[Q_W])->dtype == DLC_U8;
    return (quantized){.x = low ? moved(g, e->input[Q_X], HALF, DLC_U8) : e->input[Q_X],
                       .w = high ? moved(g, e->input[Q_W], -HALF, DLC_I8) : e->input[Q_W],
                       .x_zero = zero_point_of(g, e->input[Q_X_ZERO], low ? HALF : 0),
                       .w_zero = zero_point_of(g, e->input[Q_W_ZERO], high ? -HALF : 0)};
}

/* round(sums * x_scale * w_scale / y_scale) + y_zero_point, saturated; channels along `axis`. */
static graph_id requantized(graph_expand *e, graph_id sums, int64_t axis, dlc_dtype dtype) {
    graph *g = e->g;
    graph_id factor = graph_div(g, graph_mul(g, e->input[Q_X_SCALE], e->input[Q_W_SCALE]), e->input[Q_Y_SCALE]);
    graph_id y = graph_round(g, graph_mul(g, graph_cast(g, sums, DLC_F32), along(g, factor, sums, axis)));
    graph_id zero = zero_point_of(g, e->input[Q_Y_ZERO], 0);
    if (zero) y = graph_add(g, y, along(g, graph_cast(g, zero, DLC_F32), y, axis));
    return graph_cast(g, y, dtype);
}

/* sums + (bias - x_zero * (sums of w over the axes reduced[count] - points * w_zero)), where the part in brackets has one entry for each
 * channel, along `axis` of the sums. points: number of terms of a sum. */
static graph_id corrected(graph_expand *e, graph_id sums, const quantized *q, int count, const int64_t *reduced,
                          graph_id points, int64_t axis) {
    graph *g = e->g;
    graph_id offset = e->input[Q_BIAS];
    if (q->x_zero) {
        graph_id weights = graph_reduce_sum(g, graph_cast(g, q->w, DLC_I32), count, reduced, false);
        if (q->w_zero) weights = graph_sub(g, weights, graph_mul(g, points, q->w_zero));
        graph_id taken = graph_mul(g, q->x_zero, weights);
        offset = offset ? graph_sub(g, offset, taken) : graph_neg(g, taken);
    }
    return offset ? graph_add(g, sums, along(g, offset, sums, axis)) : sums;
}

enum { RESULT_I32 = 3 };

/* matmul_sums if w has leading dimensions: each matrix of w has its own sums of weights. */
static graph_id batched_sums(graph_expand *e, const quantized *q) {
    graph *g = e->g;
    const int64_t last = graph_shape_of(g, q->x)->rank - 1, rows = graph_shape_of(g, q->w)->rank - 2;
    const graph_setting wide = graph_set_integer("result", RESULT_I32);
    graph_id sums = graph_emit_with(g, "matmul", 2, (graph_id[]){q->x, q->w}, 1, &wide);
    if (q->x_zero) {
        graph_id weights = graph_reduce_sum(g, graph_cast(g, q->w, DLC_I32), 1, &rows, true);
        graph_id points = graph_dimension(g, DLC_I32, graph_shape_of(g, q->x)->dim[last]);
        if (q->w_zero) weights = graph_sub(g, weights, graph_mul(g, points, q->w_zero));
        sums = graph_sub(g, sums, graph_mul(g, q->x_zero, weights));
    }
    if (q->w_zero) {
        graph_id lines = graph_reduce_sum(g, graph_cast(g, q->x, DLC_I32), 1, &last, true);
        sums = graph_sub(g, sums, graph_mul(g, lines, q->w_zero));
    }
    return e->input[Q_BIAS] ? graph_add(g, sums, e->input[Q_BIAS]) : sums;
}

/* The i32 sums of products of x and w less their zero points, plus the bias. */
static graph_id matmul_sums(graph_expand *e) {
    graph *g = e->g;
    quantized q = operands_of(e);
    const graph_shape x = *graph_shape_of(g, q.x);
    if (graph_shape_of(g, q.w)->rank > 2) return batched_sums(e, &q);
    int64_t last = x.rank - 1, first = 0;
    graph_id sums = graph_emit_with(g, "dot_general", 2, (graph_id[]){q.x, q.w}, 3,
                                    (graph_setting[]){graph_set_list("contract_x", 1, &last),
                                                      graph_set_list("contract_w", 1, &first),
                                                      graph_set_integer("result", RESULT_I32)});
    graph_id points = graph_dimension(g, DLC_I32, x.dim[last]);
    sums = corrected(e, sums, &q, 1, &first, points, last);
    if (q.w_zero) {
        graph_id rows = graph_reduce_sum(g, graph_cast(g, q.x, DLC_I32), 1, &last, true);
        rows = graph_broadcast_like(g, rows, sums);
        sums = graph_sub(g, sums, graph_mul(g, rows, along(g, q.w_zero, sums, last)));
    }
    return sums;
}

static void expand_qlinear_matmul(graph_expand *e) {
    graph_id sums = matmul_sums(e);
    int64_t last = graph_shape_of(e->g, sums)->rank - 1;
    e->result[0] = requantized(e, sums, last, (dlc_dtype)e->attribute[QMATMUL_DTYPE].integer);
}

/* The parameter, of one entry, one for each channel or one for each block, broadcast to x's shape. */
static graph_id parameter_like(graph_expand *e, graph_id parameter) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    if (!e->attribute[LINEAR_BLOCK].integer)
        return along(g, parameter, e->input[0], graph_axis_of(e->attribute[LINEAR_AXIS].integer, x.rank));
    const int axis = graph_axis_of(e->attribute[LINEAR_AXIS].integer, x.rank);
    graph_shape apart = *graph_shape_of(g, parameter), joined = apart;
    tir_expr block = tir_index(pool, e->attribute[LINEAR_BLOCK].integer);
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < x.rank; i++) axes[i] = i <= axis ? i : i + 1;
    memmove(apart.dim + axis + 2, apart.dim + axis + 1, (size_t)(x.rank - axis - 1) * sizeof *apart.dim);
    apart.dim[axis + 1] = block;
    joined.dim[axis] = tir_mul(pool, joined.dim[axis], block);
    graph_id y = graph_broadcast(g, parameter, x.rank + 1, apart.dim, axes);
    y = graph_reshape(g, y, x.rank, joined.dim);
    if (tir_equal(pool, joined.dim[axis], x.dim[axis]) == TIR_YES) return y;
    return graph_slice_axis(g, y, axis, tir_index(pool, 0), x.dim[axis]);
}

/* The zero point as f32, in x's shape; 0: it is omitted or known to be zero. */
static graph_id zero_point_like(graph_expand *e) {
    double number;
    if (!e->input[2] || (graph_is_number(e->g, e->input[2], &number) && number == 0)) return 0;
    return parameter_like(e, graph_cast(e->g, e->input[2], DLC_F32));
}

static void expand_quantize_linear(graph_expand *e) {
    graph *g = e->g;
    const dlc_dtype dtype = (dlc_dtype)e->attribute[LINEAR_DTYPE].integer;
    graph_id y = graph_div(g, graph_widen(g, e->input[0]), parameter_like(e, graph_widen(g, e->input[1])));
    graph_id zero = zero_point_like(e);
    if (!lib_dtype_is_float(dtype)) y = graph_round(g, y);
    if (zero) y = graph_add(g, y, zero);
    graph_setting setting[] = {graph_set_integer("dtype", dtype), graph_set_bool("saturate", true)};
    e->result[0] = graph_emit_with(g, "cast", 1, &y, lib_dtype_is_float(dtype) ? 2 : 1, setting);
}

static void expand_dequantize_linear(graph_expand *e) {
    graph *g = e->g;
    /* differences of 16-bit integers are exact */
    graph_id y = graph_cast(g, e->input[0], DLC_F32), zero = zero_point_like(e);
    if (zero) y = graph_sub(g, y, zero);
    y = graph_mul(g, y, parameter_like(e, graph_widen(g, e->input[1])));
    const dlc_dtype scale = graph_shape_of(g, e->input[1])->dtype;
    e->result[0] = graph_cast(g, y, scale == DLC_F8E8M0 ? DLC_F32 : scale);
}

/* ---- convolution: attributes 0..4 are those of the row `convolution` ---------------------------------------------- */

enum { QCONV_STRIDE, QCONV_LOW, QCONV_HIGH, QCONV_DILATION, QCONV_GROUPS, QCONV_DTYPE };

/* The convolution of x and w with the given attributes, in i32. `padded`: x already contains its padding. */
static graph_id convolve(graph_expand *e, graph_id x, graph_id w, bool padded) {
    const graph_attribute *a = e->attribute;
    graph_setting setting[6] = {graph_set_list("stride", a[QCONV_STRIDE].count, a[QCONV_STRIDE].list),
                                graph_set_list("dilation", a[QCONV_DILATION].count, a[QCONV_DILATION].list),
                                graph_set_integer("groups", a[QCONV_GROUPS].integer),
                                graph_set_integer("result", RESULT_I32),
                                graph_set_list("low", a[QCONV_LOW].count, a[QCONV_LOW].list),
                                graph_set_list("high", a[QCONV_HIGH].count, a[QCONV_HIGH].list)};
    return graph_emit_with(e->g, "convolution", 2, (graph_id[]){x, w}, padded ? 4 : 6, setting);
}

/* The shape of the result, by the shape rule of `convolution` for i8 operands. */
static graph_shape infer_bytes_convolved(graph_infer *infer) {
    graph_shape shapes[2] = {infer->operand[Q_X], infer->operand[Q_W]}, result[1];
    graph_attribute attributes[6];
    memcpy(attributes, infer->attribute, 5 * sizeof *attributes);
    attributes[5] = (graph_attribute){.integer = 0};
    shapes[0].dtype = shapes[1].dtype = DLC_I8;
    graph_infer inner = *infer;
    inner.operand = shapes;
    inner.inputs = 2;
    inner.attribute = attributes;
    inner.result = result;
    graph_op_find("convolution")->infer(&inner);
    return result[0];
}

static void infer_qlinear_convolution(graph_infer *infer) {
    infer->result[0] = infer_bytes_convolved(infer);
    infer->result[0].dtype = (dlc_dtype)infer->attribute[QCONV_DTYPE].integer;
    infer_quantized(infer, infer->operand[Q_W].dim[0], infer->result[0].dtype);
}

/* Sums of x over each window and the channels of its group, in the shape of the convolution's result. */
static graph_id window_sums(graph_expand *e, graph_id x, const graph_shape *w, const graph_shape *result, bool padded) {
    graph *g = e->g;
    const graph_shape from = *graph_shape_of(g, x);
    const tir_expr one = tir_index(g->pool, 1), groups = tir_index(g->pool, e->attribute[QCONV_GROUPS].integer);
    const int64_t each = 2; /* the channels of a group, an axis of their own */
    tir_expr apart[DLC_MAX_RANK] = {from.dim[0], groups, w->dim[1]}, window[DLC_MAX_RANK] = {groups, one};
    tir_expr wide[DLC_MAX_RANK] = {from.dim[0], groups, tir_div(g->pool, w->dim[0], groups)};
    int64_t axes[DLC_MAX_RANK] = {0, 1};
    for (int i = 2; i < from.rank; i++) {
        apart[i + 1] = from.dim[i];
        window[i] = w->dim[i];
        wide[i + 1] = result->dim[i];
        axes[i] = i + 1;
    }
    x = graph_reduce_sum(g, graph_reshape(g, graph_cast(g, x, DLC_I32), from.rank + 1, apart), 1, &each, false);
    x = convolve(e, x, graph_full(g, DLC_I32, from.rank, window, 1), padded);
    return graph_reshape(g, graph_broadcast(g, x, from.rank + 1, wide, axes), result->rank, result->dim);
}

/* The i32 sums of the convolution, corrected by zero points and bias. Padding has the value x_zero_point: if that is not zero, x is padded
 * first, so that all results of a channel have the same correction. */
static graph_id convolution_sums(graph_expand *e) {
    graph *g = e->g;
    quantized q = operands_of(e);
    const graph_shape x = *graph_shape_of(g, q.x), w = *graph_shape_of(g, q.w);
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0}, reduced[DLC_MAX_RANK];
    bool pads = false;
    for (int i = 2; i < x.rank; i++) {
        low[i] = graph_list_entry(&e->attribute[QCONV_LOW], i - 2, 0);
        high[i] = graph_list_entry(&e->attribute[QCONV_HIGH], i - 2, 0);
        pads = pads || low[i] || high[i];
    }
    bool fills = pads && q.x_zero;
    if (fills) q.x = graph_pad(g, q.x, graph_cast(g, q.x_zero, DLC_U8), low, high);
    tir_expr terms = tir_index(g->pool, 1);
    for (int i = 1; i < w.rank; i++) {
        reduced[i - 1] = i;
        terms = tir_mul(g->pool, terms, w.dim[i]);
    }
    graph_id sums = convolve(e, q.x, q.w, fills);
    const graph_shape result = *graph_shape_of(g, sums);
    if (q.w_zero)
        sums = graph_sub(g, sums, graph_mul(g, window_sums(e, q.x, &w, &result, fills), along(g, q.w_zero, sums, 1)));
    return corrected(e, sums, &q, w.rank - 1, reduced, graph_dimension(g, DLC_I32, terms), 1);
}

static void expand_qlinear_convolution(graph_expand *e) {
    e->result[0] = requantized(e, convolution_sums(e), 1, (dlc_dtype)e->attribute[QCONV_DTYPE].integer);
}

/* ---- products that stay integers: operands are x, w and their zero points, at the positions used by the products above */

enum { INTEGER_X, INTEGER_W, INTEGER_X_ZERO, INTEGER_W_ZERO, INTEGER_OPERANDS };

static void infer_integer(const graph_infer *infer, tir_expr channels) {
    infer_byte(infer, INTEGER_W, "w");
    infer_parameter(infer, INTEGER_X_ZERO, "x_zero_point", infer->operand[INTEGER_X].dtype, 0);
    infer_parameter(infer, INTEGER_W_ZERO, "w_zero_point", infer->operand[INTEGER_W].dtype, channels);
}

static void infer_matmul_integer(graph_infer *infer) {
    infer->result[0] = infer_rows_by_columns(infer);
    infer->result[0].dtype = DLC_I32;
    infer_integer(infer, channels_of(infer));
}

static void infer_convolution_integer(graph_infer *infer) {
    infer->result[0] = infer_bytes_convolved(infer);
    infer->result[0].dtype = DLC_I32;
    infer_integer(infer, infer->operand[INTEGER_W].dim[0]);
}

static graph_id integer_sums(graph_expand *e, graph_id (*sums)(graph_expand *e)) {
    graph_id operand[Q_OPERANDS] = {0};
    operand[Q_X] = e->input[INTEGER_X], operand[Q_W] = e->input[INTEGER_W];
    operand[Q_X_ZERO] = e->input[INTEGER_X_ZERO], operand[Q_W_ZERO] = e->input[INTEGER_W_ZERO];
    graph_expand inner = *e;
    inner.input = operand;
    inner.inputs = Q_OPERANDS;
    return sums(&inner);
}

static void expand_matmul_integer(graph_expand *e) {
    e->result[0] = integer_sums(e, matmul_sums);
}

static void expand_convolution_integer(graph_expand *e) {
    e->result[0] = integer_sums(e, convolution_sums);
}

/* ---- dynamic_quantize_linear */

static void infer_dynamic_quantize_linear(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = DLC_U8;
    infer->result[1] = (graph_shape){.dtype = DLC_F32};
    infer->result[2] = (graph_shape){.dtype = DLC_U8};
}

static void expand_dynamic_quantize_linear(graph_expand *e) {
    graph *g = e->g;
    graph_id x = e->input[0], zero = graph_scalar(g, DLC_F32, 0), levels = graph_scalar(g, DLC_F32, 255);
    graph_id low = graph_min(g, graph_reduce_min(g, x, 0, NULL, false), zero);
    graph_id high = graph_max(g, graph_reduce_max(g, x, 0, NULL, false), zero);
    graph_id scale = graph_div(g, graph_sub(g, high, low), levels);
    graph_id point = graph_clamp(g, zero, graph_neg(g, graph_div(g, low, scale)), levels);
    e->result[1] = scale;
    e->result[2] = graph_cast(g, graph_round(g, point), DLC_U8);
    e->result[0] = graph_emit_with(g, "quantize_linear", 3, (graph_id[]){x, scale, e->result[2]}, 0, NULL);
}

/* ---- references ------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE

static double parameter_at(const graph_reference *r, int operand, int64_t channel, double otherwise) {
    if (!graph_reference_given(r, operand)) return otherwise;
    return r->operand[operand].data[r->operand[operand].rank ? channel : 0];
}

static double saturated(dlc_dtype dtype, double x) {
    const lib_dtype_info *info = &lib_dtypes[dtype];
    double high = ldexp(1, info->bits - (info->class_ == 'i')) - 1, low = info->class_ == 'i' ? -high - 1 : 0;
    if (lib_dtype_is_float(dtype)) {
        high = dtype == DLC_F8E4M3FN ? 448 : dtype == DLC_F8E4M3FNUZ ? 240 : dtype == DLC_F4E2M1 ? 6 : 57344;
        low = -high;
        if (isnan(x)) return x;
    }
    return isnan(x) ? 0 : x < low ? low : x > high ? high : x;
}

static double nearest(double x) {
    double down = floor(x);
    return x - down > 0.5 || (x - down == 0.5 && fmod(down, 2) != 0) ? down + 1 : down;
}

/* The parameter of element i of x. */
static double linear_parameter(const graph_reference *r, int operand, int64_t i, double otherwise) {
    const graph_reference_tensor *x = &r->operand[0], *p = &r->operand[operand];
    const int64_t block = r->attribute[LINEAR_BLOCK].integer;
    if (!graph_reference_given(r, operand)) return otherwise;
    if (p->rank == 0) return p->data[0];
    const graph_reference_rows k = graph_reference_rows_along(x, r->attribute[LINEAR_AXIS].integer);
    const int64_t at = i / k.inner % k.size;
    if (!block) return p->data[at];
    const int64_t blocks = p->dim[graph_axis_of(r->attribute[LINEAR_AXIS].integer, x->rank)];
    return p->data[(i / k.inner / k.size * blocks + at / block) * k.inner + i % k.inner];
}

static void reference_quantize_linear(const graph_reference *r) {
    const dlc_dtype dtype = r->result[0].dtype;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double y = (double)((float)r->operand[0].data[i] / (float)linear_parameter(r, 1, i, 1));
        y = (lib_dtype_is_float(dtype) ? y : nearest(y)) + linear_parameter(r, 2, i, 0);
        r->result[0].data[i] = saturated(dtype, y);
    }
}

static void reference_dequantize_linear(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = (r->operand[0].data[i] - linear_parameter(r, 2, i, 0)) * linear_parameter(r, 1, i, 1);
}

/* The factor is rounded three times, as in the definition: else results next to a tie would differ. */
static double requantize(const graph_reference *r, double sum, int64_t channel) {
    float factor = (float)parameter_at(r, Q_X_SCALE, 0, 1) * (float)parameter_at(r, Q_W_SCALE, channel, 1);
    factor = factor / (float)parameter_at(r, Q_Y_SCALE, 0, 1);
    double y = nearest((double)((float)(sum + parameter_at(r, Q_BIAS, channel, 0)) * factor));
    return saturated(r->result[0].dtype, y + parameter_at(r, Q_Y_ZERO, 0, 0));
}

/* x_zero, w_zero: numbers of the operands. integer: the result is the sums, without requantisation. */
static void reference_matmul(const graph_reference *r, int x_zero, int w_zero, bool integer) {
    const graph_reference_tensor *x = &r->operand[Q_X], *w = &r->operand[Q_W], *y = &r->result[0];
    int64_t in = x->dim[x->rank - 1], out = w->dim[w->rank - 1], m = x->rank > 1 ? x->dim[x->rank - 2] : 1;
    for (int64_t i = 0; i < graph_reference_count(y); i++) {
        double sum = 0, b = parameter_at(r, w_zero, i % out, 0), a = parameter_at(r, x_zero, 0, 0);
        int64_t batch = i / out / m, matrix[2] = {0, 0}, step[2] = {1, 1};
        for (int d = y->rank - 3, back = 3; d >= 0; batch /= y->dim[d--], back++)
            for (int k = 0; k < 2; k++) { /* a broadcast dimension of 1 has one matrix */
                const graph_reference_tensor *o = k ? w : x;
                if (o->rank < back) continue;
                if (o->dim[o->rank - back] != 1) matrix[k] += batch % y->dim[d] * step[k];
                step[k] *= o->dim[o->rank - back];
            }
        const double *line = x->data + (matrix[0] * m + i / out % m) * in, *columns = w->data + matrix[1] * in * out;
        for (int64_t k = 0; k < in; k++) sum += (line[k] - a) * (columns[k * out + i % out] - b);
        y->data[i] = integer ? sum : requantize(r, sum, i % out);
    }
}

static void reference_qlinear_matmul(const graph_reference *r) {
    reference_matmul(r, Q_X_ZERO, Q_W_ZERO, false);
}
static void reference_matmul_integer(const graph_reference *r) {
    reference_matmul(r, INTEGER_X_ZERO, INTEGER_W_ZERO, true);
}

static void reference_convolution(const graph_reference *r, int x_zero, int w_zero, bool integer) {
    const graph_reference_tensor *x = &r->operand[Q_X], *w = &r->operand[Q_W], *y = &r->result[0];
    const graph_attribute *lists = r->attribute;
    int64_t to[DLC_MAX_RANK] = {0}, group = w->dim[0] / lists[QCONV_GROUPS].integer;
    GRAPH_REFERENCE_EACH(y, to) {
        double sum = 0, a = parameter_at(r, x_zero, 0, 0), b = parameter_at(r, w_zero, to[1], 0);
        int64_t at[DLC_MAX_RANK] = {0};
        GRAPH_REFERENCE_EACH(w, at) {
            int64_t from[DLC_MAX_RANK] = {to[0], to[1] / group * w->dim[1] + at[1]};
            bool inside = at[0] == to[1];
            for (int i = 2; i < x->rank; i++) {
                from[i] = to[i] * graph_list_entry(&lists[QCONV_STRIDE], i - 2, 1) +
                          at[i] * graph_list_entry(&lists[QCONV_DILATION], i - 2, 1) -
                          graph_list_entry(&lists[QCONV_LOW], i - 2, 0);
                inside = inside && from[i] >= 0 && from[i] < x->dim[i];
            }
            if (inside) sum += (x->data[graph_reference_at(x, from)] - a) * (w->data[graph_reference_at(w, at)] - b);
        }
        y->data[graph_reference_at(y, to)] = integer ? sum : requantize(r, sum, to[1]);
    }
}
static void reference_qlinear_convolution(const graph_reference *r) {
    reference_convolution(r, Q_X_ZERO, Q_W_ZERO, false);
}
static void reference_convolution_integer(const graph_reference *r) {
    reference_convolution(r, INTEGER_X_ZERO, INTEGER_W_ZERO, true);
}

static void reference_dynamic_quantize_linear(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    float low = 0, high = 0, scale;
    for (int64_t i = 0; i < graph_reference_count(x); i++)
        low = fminf(low, (float)x->data[i]), high = fmaxf(high, (float)x->data[i]);
    scale = (high - low) / 255;
    r->result[1].data[0] = (double)scale;
    double point = saturated(DLC_U8, nearest((double)(-low / scale)));
    r->result[2].data[0] = point;
    for (int64_t i = 0; i < graph_reference_count(x); i++)
        r->result[0].data[i] = saturated(DLC_U8, nearest((double)((float)x->data[i] / scale)) + point);
}

#endif

/* ---- rows ------------------------------------------------------------------------------------------------------- */

#define FORM(name_, least_, most_, operands_, dtypes_) \
    COMPOSITE_ROW(name_, least_, most_, 1, operands_, dtypes_), .infer = infer_##name_

#define RESULT_DTYPE \
    { "dtype", GRAPH_ATTR_DTYPE, NULL, "u8", "element type of the result: u8 or i8" }
#define LINEAR_ATTRIBUTES                                                                      \
    {"axis", GRAPH_ATTR_INTEGER, NULL, "1",                                                    \
     "axis of the channels, where scale or zero_point has one entry for each, or of blocks"},  \
    {                                                                                          \
        "block", GRAPH_ATTR_INTEGER, NULL, "0",                                                \
            "elements along axis that share an entry of scale and of zero_point; 0: no blocks" \
    }
#define LINEAR_DOC                                                                                                                     \
    "scale and zero_point have rank 0, or are [channels] for the axis; with blocks both have the rank of x and its dimensions, along " \
    "axis ceil(size/block): element i there takes entry i/block. zero_point left out is 0. "
#define WINDOW_ATTRIBUTES                                                                                     \
    {"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the windows; empty: 1"},                         \
        {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before the first element; empty: 0"},               \
        {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after the last element; empty: 0"},                \
        {"dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a window; empty: 1"}, {    \
        "groups", GRAPH_ATTR_INTEGER, NULL, "1", "channels are divided into as many independent convolutions" \
    }
#define PRODUCT_OPERANDS "x w x_scale w_scale y_scale [x_zero_point] [w_zero_point] [y_zero_point] [bias]"
#define PRODUCT_DOC                                                                                                        \
    "scales are f32 and zero points of the type of what they belong to (left out: 0), of rank 0, those of w also [output " \
    "channels]; bias i32 [output channels] in units of x_scale*w_scale. Sums of products are exact in i32 (they wrap), "   \
    "then convert to f32; the factor is x_scale*w_scale/y_scale in f32. "
#define SCALES "f32[] in 0.01..0.02, f32[] in 0.01..0.02, f32[] in 0.5..1"

const graph_op graph_row_quantize_linear = {
    FORM(quantize_linear, 2, 3, "x scale [zero_point]", "f32 f16 bf16"),
    GRAPH_NO_GRADIENT,
    .attribute =
        {LINEAR_ATTRIBUTES,
         {"dtype", GRAPH_ATTR_DTYPE, NULL, "u8",
          "element type of the result: u8, i8, u16, i16, u4, i4, u2, i2, f4e2m1 or a float of 8 bits with a sign"}},
    .tolerance = 0.6,
    .samples =
        "quantize_linear(T[5, 7], f8e8m0[] in 0.01..0.02, u8[] in 0..255)\n"
        "quantize_linear(T[5, 7], T[] in 0.01..0.02, u8[] in 0..255)\n"
        "quantize_linear(T[5, 7], T[] in 0.01..0.02)\n"
        "quantize_linear(f32[5, 7], f32[7] in 0.01..0.02, i8[7] in -20..20, dtype=i8)\n"
        "quantize_linear(T[3, 5, 2], T[5] in 0.01..0.02, dtype=i8)\n"
        "quantize_linear(f32[5, 7], f32[5] in 0.01..0.02, u8[] in 0..9, axis=0)\n"
        "quantize_linear(f32[5, 7], f32[] in 0.00001..0.00002, u16[] in 0..999, dtype=u16)\n"
        "quantize_linear(f32[5, 7], f32[7] in 0.00001..0.00002, dtype=i16)\n"
        "quantize_linear(T[5, 7], T[] in 0.001..0.002, dtype=f8e4m3fn)\n"
        "quantize_linear(f32[5, 7], f32[7] in 0.1..0.2, f8e5m2[7] in 1..2, dtype=f8e5m2)\n"
        "quantize_linear(f32[3, 8], f32[3, 2] in 0.01..0.02, u8[3, 2] in 0..99, block=4)\n"
        "quantize_linear(T[11, 3], T[3, 3] in 0.01..0.02, axis=0, block=5, dtype=i8)\n"
        "quantize_linear(f32[2, 7, 3], f32[2, 1, 3] in 0.01..0.02, f8e4m3fnuz[2, 1, 3] in 0..1, axis=-2, block=64, "
        "dtype=f8e4m3fnuz)\n"
        "quantize_linear(T[], T[] in 0.01..0.02)\nquantize_linear(T[0, 3], T[3] in 0.01..0.02)\n"
        "quantize_linear(T[2, 0], T[2, 0] in 0.01..0.02, block=3)",
    .doc =
        "round(x / scale) + zero_point, saturated to dtype; halves to even, and NaN gives the number 0. To floats: x / scale + "
        "zero_point, cast with saturate. " LINEAR_DOC
        "scale has the type of x or is f8e8m0, zero_point has that of the result; computed in f32. ONNX QuantizeLinear.",
};

const graph_op graph_row_dequantize_linear = {
    FORM(dequantize_linear, 2, 3, "x scale [zero_point]",
         "u8 i8 u16 i16 i32 u4 i4 u2 i2 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f4e2m1"),
    .linear = 2,
    .attribute = {LINEAR_ATTRIBUTES},
    .tolerance = 1,
    .samples =
        "dequantize_linear(T[5, 7], f32[] in 0.01..0.02)\ndequantize_linear(u8[5, 7], f32[] in 0.01..0.02, u8[])\n"
        "dequantize_linear(i8[5, 7], f32[7] in 0.01..0.02, i8[7])\n"
        "dequantize_linear(i16[3, 5, 2], f32[3] in 0.01..0.02, i16[], axis=-3)\n"
        "dequantize_linear(f8e5m2[5, 7], f16[7] in 0.01..0.02, f8e5m2[7])\n"
        "dequantize_linear(T[3, 8], bf16[3, 2] in 0.01..0.02, block=4)\n"
        "dequantize_linear(u8[11, 3], f16[3, 3] in 0.01..0.02, u8[3, 3], axis=0, block=5)\n"
        "dequantize_linear(T[2, 7, 3], f32[2, 1, 3] in 0.01..0.02, axis=-2, block=64)\n"
        "dequantize_linear(f8e4m3fn[3, 8], f8e8m0[3, 2] in 0.01..0.02, block=4)\n"
        "dequantize_linear(T[], f32[] in 0.01..0.02)\ndequantize_linear(T[0, 3], f32[3] in 0.01..0.02)\n"
        "dequantize_linear(T[2, 0], f32[2, 0] in 0.01..0.02, block=3)",
    .doc =
        "(x - zero_point) * scale in f32, rounded once to the type of scale, which the result has: f32, f16 or bf16; f32 if scale is f8e8m0. " LINEAR_DOC
        "zero_point has the type of x; i32 has none, and converts with a rounding. ONNX DequantizeLinear.",
};

#define INTEGER_FORM(name_) \
    FORM(name_, 2, INTEGER_OPERANDS, "x w [x_zero_point] [w_zero_point]", "u8 i8"), GRAPH_NO_GRADIENT
#define INTEGER_DOC                                                                                                                     \
    "w is u8 or i8, zero points have the type of what they belong to (left out: 0) and rank 0, that of w also [output channels]; sums " \
    "are exact in i32 (they wrap). "

static const graph_op row_matmul_integer = {
    INTEGER_FORM(matmul_integer),
    .samples = "matmul_integer(T[5, 16], i8[16, 20])\nmatmul_integer(T[5, 7], i8[7, 20], T[], i8[20])\n"
               "matmul_integer(T[2, 3, 9], u8[9, 5], _, u8[])\nmatmul_integer(T[12], i8[12, 7], T[])\n"
               "matmul_integer(T[0, 4], i8[4, 3])\nmatmul_integer(T[3, 0], i8[0, 2], T[])\n"
               "matmul_integer(T[2, 3, 9], i8[2, 9, 5], T[], i8[5])\nmatmul_integer(T[3, 9], u8[4, 9, 5], T[], u8[])\n"
               "matmul_integer(T[2, 1, 4, 7], u8[3, 7, 2])",
    .doc =
        "Sum of (x - x_zero_point)*(w - w_zero_point) in i32: x [..., in], w [in, out], result i32 [..., out], or w [..., in, out] of leading "
        "dimensions that broadcast with those of x. " INTEGER_DOC "ONNX MatMulInteger.",
};

static const graph_op row_convolution_integer = {
    INTEGER_FORM(convolution_integer),
    .attribute = {WINDOW_ATTRIBUTES},
    .samples = "convolution_integer(T[1, 5, 6, 7], i8[20, 5, 3, 3], low=[1, 1], high=[1, 1])\n"
               "convolution_integer(T[2, 3, 9], u8[4, 3, 2], T[], u8[], stride=[2], low=[1])\n"
               "convolution_integer(T[1, 6, 5, 4], i8[6, 1, 3, 3], T[], groups=6, low=[1, 1], high=[1, 1])\n"
               "convolution_integer(T[1, 4, 7, 5], i8[4, 2, 3, 2], T[], i8[4], groups=2, dilation=[2, 1])\n"
               "convolution_integer(T[0, 2, 5], i8[3, 2, 2])",
    .doc =
        "matmul_integer over the windows of a convolution: x [batch, channels, spatial...], w [output channels, channels/groups, "
        "window...], result i32; padding stands for x_zero_point. " INTEGER_DOC "ONNX ConvInteger.",
};

static const graph_op row_dynamic_quantize_linear = {
    COMPOSITE_ROW(dynamic_quantize_linear, 1, 1, 3, "x", "f32"),
    .infer = infer_dynamic_quantize_linear,
    .samples =
        "dynamic_quantize_linear(T[5, 7])\ndynamic_quantize_linear(T[67] in 1..3)\ndynamic_quantize_linear(T[2, 3, 4] in -2..-1)\n"
        "dynamic_quantize_linear(T[])",
    .doc =
        "quantize_linear to u8 by a scale that is found: (high - low)/255, low and high the least and the greatest element and 0. "
        "Results: the integers, scale, f32 of rank 0, and zero_point, u8 of rank 0: round(-low/scale). Zeros alone give zeros "
        "and scale 0. ONNX DynamicQuantizeLinear.",
};

static const graph_op row_qlinear_matmul = {
    FORM(qlinear_matmul, 5, Q_OPERANDS, PRODUCT_OPERANDS, "u8 i8"),
    GRAPH_NO_GRADIENT,
    .attribute = {RESULT_DTYPE},
    .samples =
        "qlinear_matmul(T[5, 16], i8[16, 20], " SCALES ")\n"
        "qlinear_matmul(T[5, 7], i8[7, 20], f32[] in 0.01..0.02, f32[20] in 0.01..0.02, f32[] in 0.5..1, T[], _, "
        "u8[] in 0..99, i32[20] in -999..999)\n"
        "qlinear_matmul(T[3, 9], u8[9, 5], " SCALES ", T[], u8[], i8[] in -9..9, dtype=i8)\n"
        "qlinear_matmul(T[2, 3, 33], i8[33, 17], " SCALES ", T[], i8[17], _, i32[17] in -99..99)\n"
        "qlinear_matmul(T[2, 3, 9], i8[2, 9, 5], " SCALES ", T[], i8[5], _, i32[5] in -99..99)\n"
        "qlinear_matmul(T[12], i8[12, 7], " SCALES ", T[])\nqlinear_matmul(T[0, 4], i8[4, 3], " SCALES ")\n"
        "qlinear_matmul(T[3, 0], i8[0, 2], " SCALES ", T[], _, u8[], i32[2] in -99..99)",
    .doc =
        "round((sum of (x - x_zero_point)*(w - w_zero_point) + bias) * x_scale*w_scale/y_scale) + y_zero_point, saturated to "
        "dtype: x [..., in], w [in, out], result [..., out], or w [..., in, out] of leading dimensions that broadcast with those of x; " PRODUCT_DOC
        "ONNX QLinearMatMul with a bias; operands in "
        "another order.",
};

static const graph_op row_qlinear_convolution = {
    FORM(qlinear_convolution, 5, Q_OPERANDS, PRODUCT_OPERANDS, "u8 i8"),
    GRAPH_NO_GRADIENT,
    .attribute = {WINDOW_ATTRIBUTES, RESULT_DTYPE},
    .samples =
        "qlinear_convolution(T[1, 5, 6, 7], i8[20, 5, 3, 3], " SCALES ", low=[1, 1], high=[1, 1])\n"
        "qlinear_convolution(T[1, 5, 6, 7], i8[20, 5, 3, 3], f32[] in 0.01..0.02, f32[20] in 0.01..0.02, f32[] in "
        "0.5..1, T[], _, u8[] in 0..99, i32[20] in -999..999, low=[1, 1], high=[1, 1])\n"
        "qlinear_convolution(T[2, 3, 9], u8[4, 3, 2], " SCALES ", T[], u8[], stride=[2], low=[1], dtype=i8)\n"
        "qlinear_convolution(T[1, 6, 5, 4], i8[6, 1, 3, 3], " SCALES ", T[], groups=6, low=[1, 1], high=[1, 1])\n"
        "qlinear_convolution(T[1, 4, 7, 5], i8[4, 2, 3, 2], " SCALES ", T[], groups=2, dilation=[2, 1])\n"
        "qlinear_convolution(T[1, 8, 1, 1], i8[3, 8, 1, 1], " SCALES ")",
    .doc = "As qlinear_matmul, over the windows of a convolution: x [batch, channels, spatial...], w [output channels, "
           "channels/groups, window...]; padding stands for x_zero_point. " PRODUCT_DOC
           "ONNX QLinearConv; operands in another "
           "order.",
};

const graph_op *const graph_ops_quantize[] = {
    &graph_row_quantize_linear, &graph_row_dequantize_linear, &row_dynamic_quantize_linear, &row_qlinear_matmul,
    &row_qlinear_convolution,   &row_matmul_integer,          &row_convolution_integer,     NULL};
