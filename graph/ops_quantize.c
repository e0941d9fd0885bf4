/* Affine quantisation: an integer q of 8 bits stands for (q - zero_point) * scale (Jacob et al. 2018, arXiv:1712.05877). Composites only.
 * Products of quantised operands are sums of u8 by i8 in i32, whatever the operands' own types and zero points are: an i8 operand on
 * the left is moved up by 128, a u8 operand on the right down, and what zero points contribute is taken off afterwards:
 *
 *   sum (x - a)(w - b) = sum x*w - a*(sum w - K*b) - b*(sum x)
 *
 * The second term depends on constants as a rule and then joins the bias before the first run; the third one vanishes for weights
 * without zero point. */
#include "graph/build.h"
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

/* One number for all, or one for each of `channels` (0: only one). Left out: fine. */
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

enum { LINEAR_AXIS, LINEAR_DTYPE };

static void infer_linear_map(graph_infer *infer, dlc_dtype zero_point, dlc_dtype result) {
    const graph_shape *x = &infer->operand[0];
    tir_expr channels = 0;
    if (infer->operand[1].rank == 1 || (infer->operand[2].rank == 1))
        channels = x->dim[graph_infer_axis(infer, infer->attribute[LINEAR_AXIS].integer, x->rank, "axis")];
    infer_parameter(infer, 1, "scale", DLC_F32, channels);
    infer_parameter(infer, 2, "zero_point", zero_point, channels);
    infer->result[0] = *x;
    infer->result[0].dtype = result;
}

static void infer_quantize_linear(graph_infer *infer) {
    dlc_dtype dtype = (dlc_dtype)infer->attribute[LINEAR_DTYPE].integer;
    if (!is_byte(dtype) && !lib_dtype_is_packed(dtype))
        graph_infer_fail(infer, "dtype is %s, expected u8, i8, u4 or i4", lib_dtypes[dtype].name);
    infer_linear_map(infer, dtype, dtype);
}

static void infer_dequantize_linear(graph_infer *infer) {
    infer_linear_map(infer, infer->operand[0].dtype, DLC_F32);
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

static void infer_qlinear_matmul(graph_infer *infer) {
    const graph_shape *x = &infer->operand[Q_X], *w = &infer->operand[Q_W];
    if (x->rank < 1) graph_infer_fail(infer, "x has rank 0, expected at least 1");
    graph_infer_rank(infer, Q_W, 2);
    graph_infer_equal(infer, x->dim[x->rank - 1], w->dim[0], "the last dimension of x and the first of w");
    infer->result[0] = *x;
    infer->result[0].dim[x->rank - 1] = w->dim[1];
    infer->result[0].dtype = (dlc_dtype)infer->attribute[QMATMUL_DTYPE].integer;
    infer_quantized(infer, w->dim[1], infer->result[0].dtype);
}

/* ---- expansions ------------------------------------------------------------------------------------------------- */

static graph_id along(graph *g, graph_id parameter, graph_id like, int64_t axis) {
    const graph_shape shape = *graph_shape_of(g, like);
    if (graph_shape_of(g, parameter)->rank == 0) return graph_broadcast(g, parameter, shape.rank, shape.dim, NULL);
    return graph_broadcast(g, parameter, shape.rank, shape.dim, &axis);
}

/* As i32; 0 where it is left out or known to be zero. */
static graph_id zero_point_of(graph *g, graph_id given, int64_t shift) {
    double number = 0;
    if (given && !graph_is_number(g, given, &number)) {
        graph_id wide = graph_cast(g, given, DLC_I32);
        return shift ? graph_add(g, wide, graph_scalar_i64(g, DLC_I32, shift)) : wide;
    }
    int64_t value = (int64_t)number + shift;
    return value ? graph_scalar_i64(g, DLC_I32, value) : 0;
}

/* x with `shift` added, as the other type of 8 bits. */
static graph_id moved(graph *g, graph_id x, int64_t shift, dlc_dtype dtype) {
    graph_id wide = graph_cast(g, x, DLC_I32);
    return graph_cast(g, graph_add(g, wide, graph_scalar_i64(g, DLC_I32, shift)), dtype);
}

typedef struct quantized {
    graph_id x, w;           /* u8 and i8 */
    graph_id x_zero, w_zero; /* i32; 0: none */
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

/* sums + bias - x_zero * (sums of the weights - count * w_zero); all of the second part per channel. */
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

static void expand_qlinear_matmul(graph_expand *e) {
    enum { RESULT_I32 = 3 };
    graph *g = e->g;
    quantized q = operands_of(e);
    const graph_shape x = *graph_shape_of(g, q.x);
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
    e->result[0] = requantized(e, sums, last, (dlc_dtype)e->attribute[QMATMUL_DTYPE].integer);
}

static graph_id per_channel(graph *g, graph_id x, graph_id parameter, int64_t axis) {
    return parameter ? along(g, parameter, x, axis) : 0;
}

static void expand_quantize_linear(graph_expand *e) {
    graph *g = e->g;
    graph_id x = e->input[0];
    int64_t axis = graph_axis_of(e->attribute[LINEAR_AXIS].integer, graph_shape_of(g, x)->rank);
    graph_id y = graph_round(g, graph_div(g, x, per_channel(g, x, e->input[1], axis)));
    graph_id zero = zero_point_of(g, e->input[2], 0);
    if (zero) y = graph_add(g, y, per_channel(g, x, graph_cast(g, zero, DLC_F32), axis));
    e->result[0] = graph_cast(g, y, (dlc_dtype)e->attribute[LINEAR_DTYPE].integer);
}

static void expand_dequantize_linear(graph_expand *e) {
    graph *g = e->g;
    graph_id x = e->input[0], zero = zero_point_of(g, e->input[2], 0);
    int64_t axis = graph_axis_of(e->attribute[LINEAR_AXIS].integer, graph_shape_of(g, x)->rank);
    graph_id wide = graph_cast(g, x, DLC_F32); /* whole numbers of 9 bits: exact */
    if (zero) wide = graph_sub(g, wide, per_channel(g, x, graph_cast(g, zero, DLC_F32), axis));
    e->result[0] = graph_mul(g, wide, per_channel(g, x, e->input[1], axis));
}

/* ---- convolution: attributes 0..4 are those of the row `convolution` ---------------------------------------------- */

enum { QCONV_STRIDE, QCONV_LOW, QCONV_HIGH, QCONV_DILATION, QCONV_GROUPS, QCONV_DTYPE };

/* The convolution of x and w with the given attributes, in i32. `padded`: x holds its padding already. */
static graph_id convolve(graph_expand *e, graph_id x, graph_id w, bool padded) {
    enum { RESULT_I32 = 3 };
    const graph_attribute *a = e->attribute;
    graph_setting setting[6] = {graph_set_list("stride", a[QCONV_STRIDE].count, a[QCONV_STRIDE].list),
                                graph_set_list("dilation", a[QCONV_DILATION].count, a[QCONV_DILATION].list),
                                graph_set_integer("groups", a[QCONV_GROUPS].integer),
                                graph_set_integer("result", RESULT_I32),
                                graph_set_list("low", a[QCONV_LOW].count, a[QCONV_LOW].list),
                                graph_set_list("high", a[QCONV_HIGH].count, a[QCONV_HIGH].list)};
    return graph_emit_with(e->g, "convolution", 2, (graph_id[]){x, w}, padded ? 4 : 6, setting);
}

/* The shape is that of a convolution of such operands: one of i8 by i8 is inferred in its place. */
static void infer_qlinear_convolution(graph_infer *infer) {
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
    infer->result[0] = result[0];
    infer->result[0].dtype = (dlc_dtype)infer->attribute[QCONV_DTYPE].integer;
    infer_quantized(infer, shapes[1].dim[0], infer->result[0].dtype);
}

/* Padding stands for x_zero_point, which is no zero: there it becomes part of x, so that each channel has one correction. Weights with
 * zero points of their own would need sums of every window; they are rare, and taken as i32. */
static void expand_qlinear_convolution(graph_expand *e) {
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
    if (q.w_zero) {
        q.w = graph_cast(g, q.w, DLC_I32);
        q.w = graph_sub(g, q.w, along(g, q.w_zero, q.w, 0));
        q.x = graph_cast(g, q.x, DLC_I32);
        q.w_zero = 0;
    }
    for (int i = 1; i < w.rank; i++) reduced[i - 1] = i;
    graph_id sums = convolve(e, q.x, q.w, fills);
    sums = corrected(e, sums, &q, w.rank - 1, reduced, 0, 1);
    e->result[0] = requantized(e, sums, 1, (dlc_dtype)e->attribute[QCONV_DTYPE].integer);
}

/* ---- references ------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE

static double parameter_at(const graph_reference *r, int operand, int64_t channel, double otherwise) {
    if (!graph_reference_given(r, operand)) return otherwise;
    return r->operand[operand].data[r->operand[operand].rank ? channel : 0];
}

static double saturated(dlc_dtype dtype, double x) {
    double low = dtype == DLC_I8 ? -128 : 0, high = dtype == DLC_I8 ? 127 : 255;
    return isnan(x) ? 0 : x < low ? low : x > high ? high : x;
}

static double nearest(double x) {
    double down = floor(x);
    return x - down > 0.5 || (x - down == 0.5 && fmod(down, 2) != 0) ? down + 1 : down;
}

static int64_t channel_of(const graph_reference_tensor *x, int64_t axis, int64_t i) {
    int64_t inner = 1;
    if (x->rank == 0) return 0;
    for (int d = graph_axis_of(axis, x->rank) + 1; d < x->rank; d++) inner *= x->dim[d];
    return i / inner % x->dim[graph_axis_of(axis, x->rank)];
}

static void reference_quantize_linear(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        bool one = r->operand[1].rank == 0 && (!graph_reference_given(r, 2) || r->operand[2].rank == 0);
        int64_t channel = one ? 0 : channel_of(&r->operand[0], r->attribute[LINEAR_AXIS].integer, i);
        double y = (double)((float)r->operand[0].data[i] / (float)parameter_at(r, 1, channel, 1));
        r->result[0].data[i] = saturated(r->result[0].dtype, nearest(y) + parameter_at(r, 2, channel, 0));
    }
}

static void reference_dequantize_linear(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        bool one = r->operand[1].rank == 0 && (!graph_reference_given(r, 2) || r->operand[2].rank == 0);
        int64_t channel = one ? 0 : channel_of(&r->operand[0], r->attribute[LINEAR_AXIS].integer, i);
        r->result[0].data[i] =
            (r->operand[0].data[i] - parameter_at(r, 2, channel, 0)) * parameter_at(r, 1, channel, 1);
    }
}

/* The factor has the three roundings that the definition gives it: else results next to a tie would differ. */
static double requantize(const graph_reference *r, double sum, int64_t channel) {
    float factor = (float)parameter_at(r, Q_X_SCALE, 0, 1) * (float)parameter_at(r, Q_W_SCALE, channel, 1);
    factor = factor / (float)parameter_at(r, Q_Y_SCALE, 0, 1);
    double y = nearest((double)((float)(sum + parameter_at(r, Q_BIAS, channel, 0)) * factor));
    return saturated(r->result[0].dtype, y + parameter_at(r, Q_Y_ZERO, 0, 0));
}

static void reference_qlinear_matmul(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[Q_X], *w = &r->operand[Q_W], *y = &r->result[0];
    int64_t in = x->dim[x->rank - 1], out = w->dim[1];
    for (int64_t i = 0; i < graph_reference_count(y); i++) {
        double sum = 0, b = parameter_at(r, Q_W_ZERO, i % out, 0), a = parameter_at(r, Q_X_ZERO, 0, 0);
        for (int64_t k = 0; k < in; k++) sum += (x->data[i / out * in + k] - a) * (w->data[k * out + i % out] - b);
        y->data[i] = requantize(r, sum, i % out);
    }
}

static void reference_qlinear_convolution(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[Q_X], *w = &r->operand[Q_W], *y = &r->result[0];
    const graph_attribute *lists = r->attribute;
    int64_t to[DLC_MAX_RANK] = {0}, group = w->dim[0] / lists[QCONV_GROUPS].integer;
    if (graph_reference_count(y) == 0) return;
    do {
        double sum = 0, a = parameter_at(r, Q_X_ZERO, 0, 0), b = parameter_at(r, Q_W_ZERO, to[1], 0);
        int64_t at[DLC_MAX_RANK] = {0};
        if (graph_reference_count(w)) do {
                int64_t from[DLC_MAX_RANK] = {to[0], to[1] / group * w->dim[1] + at[1]};
                bool inside = at[0] == to[1];
                for (int i = 2; i < x->rank; i++) {
                    from[i] = to[i] * graph_list_entry(&lists[QCONV_STRIDE], i - 2, 1) +
                              at[i] * graph_list_entry(&lists[QCONV_DILATION], i - 2, 1) -
                              graph_list_entry(&lists[QCONV_LOW], i - 2, 0);
                    inside = inside && from[i] >= 0 && from[i] < x->dim[i];
                }
                if (inside)
                    sum += (x->data[graph_reference_at(x, from)] - a) * (w->data[graph_reference_at(w, at)] - b);
            } while (graph_reference_next(w, at));
        y->data[graph_reference_at(y, to)] = requantize(r, sum, to[1]);
    } while (graph_reference_next(y, to));
}

#endif

/* ---- rows ------------------------------------------------------------------------------------------------------- */

#define FORM(name_, min_, max_, operands_, dtypes_)                                                  \
    .name = #name_, .class_ = GRAPH_COMPOSITE, .min_inputs = min_, .max_inputs = max_, .results = 1, \
    .operands = operands_, .dtypes = dtypes_, .infer = infer_##name_, .expand = expand_##name_,      \
    .reference = GRAPH_REFERENCE(reference_##name_)

#define RESULT_DTYPE \
    { "dtype", GRAPH_ATTR_DTYPE, NULL, "u8", "element type of the result: u8 or i8" }
#define CHANNEL_AXIS \
    { "axis", GRAPH_ATTR_INTEGER, NULL, "1", "axis of the channels, where scale or zero_point has one entry for each" }
#define PRODUCT_OPERANDS "x w x_scale w_scale y_scale [x_zero_point] [w_zero_point] [y_zero_point] [bias]"
#define PRODUCT_DOC                                                                                                        \
    "scales are f32 and zero points of the type of what they belong to (left out: 0), of rank 0, those of w also [output " \
    "channels]; bias i32 [output channels] in units of x_scale*w_scale. Sums of products are exact in i32 (they wrap), "   \
    "then convert to f32; the factor is x_scale*w_scale/y_scale in f32. "
#define SCALES "f32[] in 0.01..0.02, f32[] in 0.01..0.02, f32[] in 0.5..1"

static const graph_op row_quantize_linear = {
    FORM(quantize_linear, 2, 3, "x scale [zero_point]", "f32"),
    GRAPH_NO_GRADIENT,
    .attribute = {CHANNEL_AXIS,
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "u8", "element type of the result: u8, i8, u4 or i4"}},
    .samples = "quantize_linear(T[5, 7], f32[] in 0.01..0.02)\n"
               "quantize_linear(T[5, 7], f32[] in 0.01..0.02, u8[] in 0..255)\n"
               "quantize_linear(T[5, 7], f32[7] in 0.01..0.02, i8[7] in -20..20, dtype=i8)\n"
               "quantize_linear(T[3, 5, 2], f32[5] in 0.01..0.02, dtype=i8)\n"
               "quantize_linear(T[5, 7], f32[5] in 0.01..0.02, u8[] in 0..9, axis=0)\n"
               "quantize_linear(T[], f32[] in 0.01..0.02)\nquantize_linear(T[0, 3], f32[3] in 0.01..0.02)",
    .doc = "round(x / scale) + zero_point, saturated: halves to even, NaN gives the number 0. ONNX QuantizeLinear.",
};

static const graph_op row_dequantize_linear = {
    FORM(dequantize_linear, 2, 3, "x scale [zero_point]", "u8 i8 u4 i4"),
    .attribute = {CHANNEL_AXIS},
    .tolerance = 1,
    .samples = "dequantize_linear(T[5, 7], f32[] in 0.01..0.02)\ndequantize_linear(T[5, 7], f32[] in 0.01..0.02, T[])\n"
               "dequantize_linear(T[5, 7], f32[7] in 0.01..0.02, T[7])\n"
               "dequantize_linear(T[3, 5, 2], f32[3] in 0.01..0.02, T[], axis=-3)\n"
               "dequantize_linear(T[], f32[] in 0.01..0.02)\ndequantize_linear(T[0, 3], f32[3] in 0.01..0.02)",
    .doc = "(x - zero_point) * scale, f32. ONNX DequantizeLinear.",
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
        "qlinear_matmul(T[12], i8[12, 7], " SCALES ", T[])\nqlinear_matmul(T[0, 4], i8[4, 3], " SCALES ")\n"
        "qlinear_matmul(T[3, 0], i8[0, 2], " SCALES ", T[], _, u8[], i32[2] in -99..99)",
    .doc =
        "round(sum (x - x_zero_point)*(w - w_zero_point) + bias) * x_scale*w_scale/y_scale) + y_zero_point, saturated to "
        "dtype: x [..., in], w [in, out], result [..., out]; " PRODUCT_DOC
        "ONNX QLinearMatMul with a bias; operands in "
        "another order.",
};

static const graph_op row_qlinear_convolution = {
    FORM(qlinear_convolution, 5, Q_OPERANDS, PRODUCT_OPERANDS, "u8 i8"),
    GRAPH_NO_GRADIENT,
    .attribute = {{"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the windows; empty: 1"},
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before the first element; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after the last element; empty: 0"},
                  {"dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a window; empty: 1"},
                  {"groups", GRAPH_ATTR_INTEGER, NULL, "1",
                   "channels are divided into as many independent convolutions"},
                  RESULT_DTYPE},
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

const graph_op *const graph_ops_quantize[] = {&row_quantize_linear, &row_dequantize_linear, &row_qlinear_matmul,
                                              &row_qlinear_convolution, NULL};
