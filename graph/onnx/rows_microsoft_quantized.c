/* Rows of the domain com.microsoft: quantised operators.
 * Source: docs/ContribOperators.md of ONNX Runtime. */
#include "graph/internal.h"
#include "graph/onnx/microsoft.h"

/* ---- dequantised operands, quantised results --------------------------------------------------------------------------- */

graph_id onnx_dequantize(onnx_import *im, graph_id x, size_t scale, size_t zero) {
    const graph_id in[] = {x, onnx_operand_or_scalar(im, scale), onnx_operand_or_scalar(im, zero)};
    if (onnx_rank_of(im, in[1]) != 0) onnx_fail(im, DLC_UNSUPPORTED, "operand %zu: more than one scale", scale);
    return onnx_emit(im, "dequantize_linear", 3, in, 0, NULL);
}

static graph_id dequantized(onnx_import *im, size_t x, size_t scale, size_t zero) {
    return onnx_dequantize(im, onnx_operand(im, x), scale, zero);
}

/* Gives y as result 0, quantised by the operands that are its scale and zero point (omitted: 0). */
static void give_quantized(onnx_import *im, graph_id y, size_t scale, size_t zero, dlc_dtype dtype) {
    const graph_setting s = graph_set_integer("dtype", dtype);
    const graph_id in[] = {y, onnx_operand_or_scalar(im, scale), onnx_operand_or_scalar(im, zero)};
    onnx_give(im, 0, onnx_emit(im, "quantize_linear", 3, in, 1, &s));
}

/* give_quantized for an operator with operands x, its scale and zero point, and the result's scale and zero point. */
static void give_mapped(onnx_import *im, graph_id y) {
    give_quantized(im, y, 3, 4, onnx_operand_shape(im, 0).dtype);
}

static void import_qlinear_binary(onnx_import *im) {
    const graph_id y = onnx_binary(im, im->row->op, dequantized(im, 0, 1, 2), dequantized(im, 3, 4, 5));
    give_quantized(im, y, 6, 7, onnx_operand_shape(im, 0).dtype);
}

static void import_qlinear_where(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0), dequantized(im, 1, 2, 3), dequantized(im, 4, 5, 6)};
    give_quantized(im, onnx_emit(im, "select", 3, in, 0, NULL), 7, 8, onnx_operand_shape(im, 1).dtype);
}

static void import_qlinear_sigmoid(onnx_import *im) {
    give_mapped(im, onnx_unary(im, "logistic", dequantized(im, 0, 1, 2)));
}

static void import_qlinear_leaky_relu(onnx_import *im) {
    const graph_id x = dequantized(im, 0, 1, 2);
    give_mapped(im, onnx_apply(im, "LeakyRelu", 6, 1, &x));
}

/* The attribute opset gives the version of Softmax. */
static void import_qlinear_softmax(onnx_import *im) {
    const graph_id x = dequantized(im, 0, 1, 2);
    const int64_t opset = onnx_int(im, "opset", 13);
    give_mapped(im, onnx_apply(im, "Softmax", opset < 13 ? 1 : 13, 1, &x));
}

static void import_qlinear_mean(onnx_import *im) {
    const graph_id x = dequantized(im, 0, 1, 2);
    give_mapped(im, onnx_apply(im, "ReduceMean", 13, 1, &x));
}

/* Operands: the result's scale and zero point, then each tensor with its own. */
static void import_qlinear_concat(onnx_import *im) {
    const size_t count = onnx_operands(im) < 2 ? 0 : (onnx_operands(im) - 2) / 3;
    if (count < 1 || onnx_operands(im) != 2 + 3 * count)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu operands, not two and three for each tensor", onnx_operands(im));
    graph_id *x = LIB_NEW_ARRAY(im->g->arena, graph_id, count);
    for (size_t i = 0; i < count; i++) x[i] = dequantized(im, 2 + 3 * i, 3 + 3 * i, 4 + 3 * i);
    give_quantized(im, onnx_apply(im, "Concat", 13, (int)count, x), 0, 1, onnx_operand_shape(im, 2).dtype);
}

/* ---- windows: channels_last, the channels are the last axis ---------------------------------------------------------------- */

static void import_qlinear_average_pool(onnx_import *im) {
    const bool last = onnx_int(im, "channels_last", 0) != 0;
    graph_id x = dequantized(im, 0, 1, 2);
    if (last) x = onnx_channels_first(im, x);
    const graph_id y = onnx_apply(im, "AveragePool", 11, 1, &x);
    give_mapped(im, last ? onnx_channels_last(im, y) : y);
}

static void import_qlinear_global_pool(onnx_import *im) {
    const bool last = onnx_int(im, "channels_last", 0) != 0;
    const graph_id x = dequantized(im, 0, 1, 2);
    const graph_id y =
        ONNX_WITH(im, "global_pool", last ? onnx_channels_first(im, x) : x, graph_set_integer("mode", 0));
    give_mapped(im, last ? onnx_channels_last(im, y) : y);
}

static void import_nhwc_max_pool(onnx_import *im) {
    const graph_id x = onnx_channels_first(im, onnx_operand(im, 0));
    onnx_give(im, 0, onnx_channels_last(im, onnx_apply(im, "MaxPool", 12, 1, &x)));
}

static void import_qlinear_conv(onnx_import *im) {
    enum { OPERANDS = 9 };
    const bool last = onnx_int(im, "channels_last", 0) != 0;
    graph_id in[OPERANDS];
    for (size_t i = 0; i < OPERANDS; i++) in[i] = onnx_operand(im, i);
    if (last) in[0] = onnx_channels_first(im, in[0]);
    const graph_id y = onnx_apply(im, "QLinearConv", 10, OPERANDS, in);
    onnx_give(im, 0, last ? onnx_channels_last(im, y) : y);
}

/* One scale for all, or, with an axis, one for each index along it. */
static void import_quantize(onnx_import *im) {
    onnx_import_as(im, "QuantizeLinear", 13);
}

static void import_dequantize(onnx_import *im) {
    onnx_import_as(im, "DequantizeLinear", 13);
}

/* ---- products of integers ---------------------------------------------------------------------------------------------------- */

graph_id onnx_scaled_product(onnx_import *im, const graph_id *in, graph_id a_scale, graph_id b_scale) {
    if (graph_shape_of(im->g, a_scale)->rank != 0)
        onnx_fail(im, DLC_UNSUPPORTED, "scales of rows of the first operand");
    const graph_id sums = graph_cast(im->g, onnx_emit(im, "matmul_integer", 4, in, 0, NULL), DLC_F32),
                   factor =
                       onnx_binary(im, "mul", graph_cast(im->g, a_scale, DLC_F32), graph_cast(im->g, b_scale, DLC_F32));
    return onnx_binary(im, "mul", sums, factor);
}

static graph_id with_bias(onnx_import *im, graph_id y, size_t bias) {
    return onnx_has(im, bias) ? onnx_binary(im, "add", y, graph_cast(im->g, onnx_operand(im, bias), DLC_F32)) : y;
}

static void import_matmul_integer_to_float(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand_or_scalar(im, 4),
                           onnx_operand_or_scalar(im, 5)};
    const graph_id a_scale = onnx_operand_or_scalar(im, 2), b_scale = onnx_operand_or_scalar(im, 3);
    const graph_id y = with_bias(im, onnx_scaled_product(im, in, a_scale, b_scale), 6);
    onnx_give(im, 0, graph_cast(im->g, y, onnx_dtype_of(im, a_scale)));
}

/* The first operand is quantised to u8 by its own range. */
static void import_dynamic_quantize_matmul(onnx_import *im) {
    const graph_id x = onnx_unary(im, "dynamic_quantize_linear", onnx_operand(im, 0));
    const graph_id in[] = {x, onnx_operand(im, 1), x + 2, onnx_operand_or_scalar(im, 3)};
    onnx_give(im, 0, with_bias(im, onnx_scaled_product(im, in, x + 1, onnx_operand_or_scalar(im, 2)), 4));
}

static graph_id transposed(onnx_import *im, graph_id x, const char *name) {
    if (graph_shape_of(im->g, x)->rank != 2)
        onnx_fail(im, DLC_PARSE_ERROR, "an operand of rank %d in place of a matrix", graph_shape_of(im->g, x)->rank);
    return onnx_int(im, name, 0) ? graph_transpose(im->g, x, (int64_t[]){1, 0}) : x;
}

/* (sums of products + C) * alpha * both scales; if the result is quantised, also divided by its scale, all as one factor. */
static void import_qgemm(onnx_import *im) {
    graph *g = im->g;
    const double alpha = onnx_float(im, "alpha", 1);
    const graph_id in[] = {transposed(im, onnx_operand(im, 0), "transA"), transposed(im, onnx_operand(im, 3), "transB"),
                           onnx_operand_or_scalar(im, 2), onnx_operand_or_scalar(im, 5)};
    const graph_id a_scale = onnx_operand_or_scalar(im, 1), b_scale = onnx_operand_or_scalar(im, 4);
    graph_id sums = onnx_emit(im, "matmul_integer", 4, in, 0, NULL), factor = onnx_binary(im, "mul", a_scale, b_scale);
    if (onnx_has(im, 6)) sums = onnx_binary(im, "add", sums, onnx_operand(im, 6));
    if (alpha != 1) factor = graph_mul_number(g, factor, alpha);
    sums = graph_cast(g, sums, DLC_F32);
    if (!onnx_has(im, 7)) {
        onnx_give(im, 0, onnx_binary(im, "mul", sums, factor));
        return;
    }
    factor = onnx_binary(im, "div", factor, onnx_operand_or_scalar(im, 7));
    const graph_id zero = onnx_operand_or_scalar(im, 8);
    const graph_setting s = graph_set_integer("dtype", zero ? onnx_dtype_of(im, zero) : DLC_U8);
    const graph_id y[] = {onnx_binary(im, "mul", sums, factor), graph_scalar(g, DLC_F32, 1), zero};
    onnx_give(im, 0, onnx_emit(im, "quantize_linear", 3, y, 1, &s));
}

/* ---- numbers packed into bytes along the last axis, from the low bits up -------------------------------------------------------- */

/* The constant bytes x as a constant of `each` times as many elements of that packed type; 0: x is no constant. */
static graph_id as_packed(onnx_import *im, graph_id x, dlc_dtype dtype, int64_t each) {
    const graph_constant *bytes = graph_constant_of(im->g, x);
    const graph_shape s = *graph_shape_of(im->g, x);
    int64_t dims[DLC_MAX_RANK];
    if (!bytes) return 0;
    for (int d = 0; d < s.rank; d++)
        if (!tir_is_const(im->g->pool, s.dim[d], &dims[d])) return 0;
    dims[s.rank - 1] *= each;
    graph_holder *const holder = bytes->holder;
    const void *const data = bytes->bytes;
    const graph_id id = graph_literal_of(im->g, dtype, s.rank, dims, data, holder != NULL);
    graph_constant *constant = &im->g->constants.data[graph_node_of(im->g, id)->attribute[0].integer];
    if (holder && constant->bytes == data) constant->holder = holder;
    return id;
}

/* The numbers of 2, 4 or 8 bits in bytes [..., n], as [..., n * 8 / bits] of u8, or, for fewer than 8 bits in a constant, u2 or u4. */
static graph_id unpacked(onnx_import *im, graph_id x, int64_t bits) {
    graph *g = im->g;
    const graph_shape s = *graph_shape_of(g, x);
    const int64_t each = 8 / bits;
    if (s.dtype != DLC_U8 || s.rank < 1) onnx_fail(im, DLC_PARSE_ERROR, "packed numbers that are no list of u8");
    if (bits == 8) return x;
    const graph_id constant = as_packed(im, x, bits == 4 ? DLC_U4 : DLC_U2, each);
    if (constant) return constant;
    graph_id part[4];
    for (int64_t i = 0; i < each; i++) {
        const graph_id low = onnx_binary(im, "shift_right_logical", x, graph_scalar_i64(g, DLC_U8, i * bits));
        part[i] = graph_expand_dims(
            g, onnx_binary(im, "and", low, graph_scalar_i64(g, DLC_U8, (INT64_C(1) << bits) - 1)), s.rank);
    }
    const graph_id all = graph_concat(g, (int)each, part, s.rank);
    graph_shape y = s;
    y.dim[s.rank - 1] = tir_mul(g->pool, s.dim[s.rank - 1], onnx_size(im, each));
    return graph_reshape(g, all, s.rank, y.dim);
}

static int64_t bits_of(onnx_import *im, bool two) {
    const int64_t bits = onnx_int(im, "bits", 4);
    if (bits != 4 && bits != 8 && !(two && bits == 2))
        onnx_fail(im, DLC_UNSUPPORTED, "bits=%lld, not %s4 or 8", (long long)bits, two ? "2, " : "");
    return bits;
}

/* The zero point of unsigned numbers of so many bits, where the node has none: the middle of their range. */
static double middle_of(int64_t bits) {
    return (double)(INT64_C(1) << (bits - 1));
}

static int64_t positive(onnx_import *im, const char *name, int64_t fallback) {
    const int64_t value = onnx_int(im, name, fallback);
    if (value < 1 || value > 1 << 30) onnx_fail(im, DLC_PARSE_ERROR, "%s=%lld", name, (long long)value);
    return value;
}

/* ---- MatMulNBits ------------------------------------------------------------------------------------------------------------------ */

typedef struct blocks {
    int64_t bits, size, columns, rows, count;
} blocks;

/* x, a list or matrix with `width` entries for each column, as [columns, width]. */
static graph_id by_block(onnx_import *im, graph_id x, const blocks *b, int64_t width) {
    return graph_reshape(im->g, x, 2, (tir_expr[]){onnx_size(im, b->columns), onnx_size(im, width)});
}

/* x [rows, blocks] with each element repeated `size` times, [rows, blocks * size]. */
static graph_id each_of_block(onnx_import *im, graph_id x, int64_t size) {
    const graph_shape s = *graph_shape_of(im->g, x);
    const tir_expr each = onnx_size(im, size), joined = tir_mul(im->g->pool, s.dim[1], each);
    const graph_id y = graph_broadcast(im->g, x, 3, (tir_expr[]){s.dim[0], s.dim[1], each}, (int64_t[]){0, 1});
    return graph_reshape(im->g, y, 2, (tir_expr[]){s.dim[0], joined});
}

/* The zero points [columns, blocks] in the weights' type. In the file they are packed, each column beginning with a byte; omitted: the middle of
 * the range. */
static graph_id zero_points(onnx_import *im, const blocks *b, dlc_dtype dtype) {
    graph *g = im->g;
    const tir_expr dim[] = {onnx_size(im, b->columns), onnx_size(im, b->count)};
    if (!onnx_has(im, 3)) return graph_full(g, dtype, 2, dim, middle_of(b->bits));
    const graph_id bytes = by_block(im, onnx_operand(im, 3), b, (b->count * b->bits + 7) / 8);
    const graph_id zero = unpacked(im, bytes, b->bits);
    return graph_cast(g, graph_slice_axis(g, zero, 1, onnx_size(im, 0), dim[1]), dtype);
}

/* The weights [columns, rows] of these numbers if operand 4 says which block each row belongs to. */
static graph_id grouped_weights(onnx_import *im, const blocks *b, graph_id numbers, graph_id scale, graph_id zero) {
    graph *g = im->g;
    const graph_id groups =
        graph_slice_axis(g, onnx_operand_of_rank(im, 4, 1), 0, onnx_size(im, 0), onnx_size(im, b->rows));
    const graph_id shifted = onnx_binary(im, "sub", graph_cast(g, numbers, DLC_F32),
                                         graph_gather(g, graph_cast(g, zero, DLC_F32), groups, 1));
    const graph_id y = onnx_binary(im, "mul", shifted, graph_gather(g, graph_cast(g, scale, DLC_F32), groups, 1));
    return graph_cast(g, y, onnx_dtype_of(im, scale));
}

/* The weights [columns, rows] in the scales' type: (number - zero point) * scale. */
static graph_id dequantized_weights(onnx_import *im, const blocks *b) {
    graph *g = im->g;
    const tir_expr dim[] = {onnx_size(im, b->columns), onnx_size(im, b->count * b->size)}, all = onnx_size(im, b->rows);
    const graph_id numbers = graph_reshape(g, unpacked(im, onnx_operand(im, 1), b->bits), 2, dim);
    const graph_id w = graph_slice_axis(g, numbers, 1, onnx_size(im, 0), all);
    const graph_id scale = by_block(im, onnx_operand(im, 2), b, b->count);
    const bool floats = onnx_has(im, 3) && lib_dtype_is_float(onnx_operand_shape(im, 3).dtype);
    const graph_setting s[] = {graph_set_integer("axis", 1), graph_set_integer("block", b->size)};
    const graph_id zero = floats ? 0 : zero_points(im, b, onnx_dtype_of(im, w));
    if (onnx_has(im, 4))
        return grouped_weights(im, b, w, scale, zero ? zero : by_block(im, onnx_operand(im, 3), b, b->count));
    const graph_id y = onnx_emit(im, "dequantize_linear", 3, (graph_id[]){w, scale, zero}, 2, s);
    if (!floats) return y;
    /* Zero points that are floats need not be integers. */
    const graph_id shift = onnx_binary(im, "mul", by_block(im, onnx_operand(im, 3), b, b->count), scale);
    return onnx_binary(im, "sub", y, graph_slice_axis(g, each_of_block(im, shift, b->size), 1, onnx_size(im, 0), all));
}

static void import_matmul_nbits(onnx_import *im) {
    blocks b = {.bits = bits_of(im, true),
                .size = positive(im, "block_size", 0),
                .columns = positive(im, "N", 0),
                .rows = positive(im, "K", 0)};
    b.count = (b.rows + b.size - 1) / b.size;
    if (onnx_int(im, "weight_prepacked", 0)) onnx_fail(im, DLC_UNSUPPORTED, "weights in the layout of a GPU's kernel");
    if (b.size * b.bits % 8) onnx_fail(im, DLC_PARSE_ERROR, "block_size=%lld", (long long)b.size);
    onnx_ignore(im, "accuracy_level");
    const graph_id in[] = {onnx_operand(im, 0), dequantized_weights(im, &b), onnx_operand(im, 5)};
    const graph_setting s = graph_set_bool("transposed", true);
    onnx_give(im, 0, onnx_emit(im, "linear", 3, in, 1, &s));
}

/* ---- MatMulBnb4 ------------------------------------------------------------------------------------------------------------------- */

/* The values of numbers of 4 bits: small floats with a sign, or quantiles of the normal distribution (Dettmers et al. 2023). */
static const float small_floats[16] = {
    0,     0.0052083333f,  0.66666667f,  1,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -0.0052083333f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
static const float normal_floats[16] = {
    -1,          -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0,
    0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1};

/* The list of numbers of 4 bits in `bytes`, the higher half of a byte first, as the table's f32. */
static graph_id looked_up(onnx_import *im, graph_id bytes, const float *table) {
    graph *g = im->g;
    const tir_expr count = graph_shape_of(g, bytes)->dim[0], two = onnx_size(im, 2);
    const graph_id pairs = graph_reshape(g, unpacked(im, bytes, 4), 2, (tir_expr[]){count, two}),
                   turned = graph_reverse(g, pairs, 1, (int64_t[]){1});
    const tir_expr all = tir_mul(g->pool, count, two);
    const graph_id places = graph_cast(g, graph_reshape(g, turned, 1, &all), DLC_I32);
    return graph_gather(g, graph_literal(g, DLC_F32, 1, (int64_t[]){16}, table), places, 0);
}

/* The weights [n, k]. Blocks divide the list of all weights, regardless of rows; operand 2 has the greatest magnitude of each block. */
static graph_id bnb4_weights(onnx_import *im, int64_t n, int64_t k, int64_t block, const float *table) {
    graph *g = im->g;
    const tir_expr zero = onnx_size(im, 0), all = onnx_size(im, n * k);
    const graph_id most = graph_expand_dims(g, graph_widen(g, onnx_operand_of_rank(im, 2, 1)), 0),
                   numbers = looked_up(im, onnx_operand_of_rank(im, 1, 1), table);
    const graph_id factors = graph_squeeze(g, each_of_block(im, most, block), 0);
    const graph_id list =
        onnx_binary(im, "mul", graph_slice_axis(g, numbers, 0, zero, all), graph_slice_axis(g, factors, 0, zero, all));
    return graph_reshape(g, list, 2, (tir_expr[]){onnx_size(im, n), onnx_size(im, k)});
}

static void import_matmul_bnb4(onnx_import *im) {
    const int64_t kind = onnx_int(im, "quant_type", 0);
    const graph_id x = onnx_operand(im, 0);
    if (kind != 0 && kind != 1) onnx_fail(im, DLC_PARSE_ERROR, "quant_type=%lld, expected 0 or 1", (long long)kind);
    onnx_ignore(im, "training_mode");
    const graph_id w = bnb4_weights(im, positive(im, "N", 0), positive(im, "K", 0), positive(im, "block_size", 0),
                                    kind ? normal_floats : small_floats);
    const graph_setting s = graph_set_bool("transposed", onnx_int(im, "transB", 1) != 0);
    onnx_give(im, 0, onnx_emit(im, "linear", 2, (graph_id[]){x, graph_cast(im->g, w, onnx_dtype_of(im, x))}, 1, &s));
}

/* ---- DynamicQuantizeLSTM --------------------------------------------------------------------------------------------------------------- */

/* Weights [directions, in, gates] as [directions, gates, in] of floats; a scale and a zero point for each direction, or for each of its
 * columns. */
static graph_id recurrent_weights(onnx_import *im, size_t at, size_t scale_at, size_t zero_at) {
    graph *g = im->g;
    const graph_id x = onnx_operand_of_rank(im, at, 3);
    graph_id scale = onnx_operand(im, scale_at), zero = onnx_operand(im, zero_at);
    const bool by_column = onnx_operand_rank(im, scale_at) == 2;
    int64_t rows;
    if (!tir_is_const(g->pool, graph_shape_of(g, x)->dim[1], &rows))
        onnx_fail(im, DLC_UNSUPPORTED, "weights of unknown size");
    if (by_column) scale = graph_expand_dims(g, scale, 1), zero = zero ? graph_expand_dims(g, zero, 1) : 0;
    const graph_setting s[] = {graph_set_integer("axis", by_column), graph_set_integer("block", by_column ? rows : 0)};
    const graph_id y = onnx_emit(im, "dequantize_linear", 3, (graph_id[]){x, scale, zero}, 2, s);
    return graph_transpose(g, y, (int64_t[]){0, 2, 1});
}

/* Computed in floats: states and inputs are not rounded to integers. */
static void import_dynamic_quantize_lstm(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0),
                           recurrent_weights(im, 1, 8, 9),
                           recurrent_weights(im, 2, 10, 11),
                           onnx_operand(im, 3),
                           onnx_operand(im, 4),
                           onnx_operand(im, 5),
                           onnx_operand(im, 6),
                           onnx_operand(im, 7)};
    onnx_import_with(im, "LSTM", 14, 8, in);
}

/* ---- GatherBlockQuantized ------------------------------------------------------------------------------------------------------------ */

typedef struct gathered {
    graph_id data, scale, zero;
    int axis, quantized;
} gathered;

/* Reads data, scales and zero points. Zero points for data in bytes are packed like the data, whose blocks are along the last axis; omitted: the
 * middle of the range, for typed integers of 4 bits 0. */
static void take_numbers(onnx_import *im, gathered *x) {
    const int64_t bits = bits_of(im, false);
    const int rank = onnx_operand_rank(im, 0);
    x->data = onnx_operand(im, 0), x->scale = onnx_operand_of_rank(im, 2, rank);
    x->zero = onnx_has(im, 3) ? onnx_operand_of_rank(im, 3, rank) : 0;
    if (onnx_dtype_of(im, x->data) != DLC_U8) return;
    const graph_shape s = *graph_shape_of(im->g, x->scale);
    x->data = unpacked(im, x->data, bits);
    if (!x->zero) {
        x->zero = graph_full(im->g, onnx_dtype_of(im, x->data), s.rank, s.dim, middle_of(bits));
        return;
    }
    x->zero = graph_cast(im->g, unpacked(im, x->zero, bits), onnx_dtype_of(im, x->data));
    if (bits == 4) x->zero = graph_slice_axis(im->g, x->zero, s.rank - 1, onnx_size(im, 0), s.dim[s.rank - 1]);
}

/* Gathers along another axis than the blocks': scales and zero points are gathered with the data. */
static graph_id gather_slices(onnx_import *im, const gathered *x, graph_id indices, int64_t block) {
    graph *g = im->g;
    const int more = graph_shape_of(g, indices)->rank - 1;
    const graph_id in[] = {graph_gather(g, x->data, indices, x->axis), graph_gather(g, x->scale, indices, x->axis),
                           x->zero ? graph_gather(g, x->zero, indices, x->axis) : 0};
    const graph_setting s[] = {graph_set_integer("axis", x->quantized + (x->axis < x->quantized ? more : 0)),
                               graph_set_integer("block", block)};
    return onnx_emit(im, "dequantize_linear", 3, in, 2, s);
}

/* Gathers along the blocks' axis: an element has the scale at index / block. */
static graph_id gather_elements(onnx_import *im, const gathered *x, graph_id indices, int64_t block) {
    graph *g = im->g;
    const graph_id places = onnx_binary(im, "div", indices, graph_scalar_i64(g, onnx_dtype_of(im, indices), block)),
                   scale = graph_gather(g, x->scale, places, x->axis);
    graph_id y = graph_cast(g, graph_gather(g, x->data, indices, x->axis), DLC_F32);
    if (x->zero) y = onnx_binary(im, "sub", y, graph_cast(g, graph_gather(g, x->zero, places, x->axis), DLC_F32));
    return graph_cast(g, onnx_binary(im, "mul", y, graph_widen(g, scale)), onnx_dtype_of(im, scale));
}

/* y with zeros in the slices whose indices are outside the axis. */
static graph_id clear_outside(onnx_import *im, graph_id y, graph_id indices, int axis, tir_expr size) {
    graph *g = im->g;
    const graph_shape at = *graph_shape_of(g, indices), s = *graph_shape_of(g, y);
    const dlc_dtype dtype = at.dtype;
    const graph_id extent = graph_cast(g, graph_dimension(g, DLC_I64, size), dtype),
                   inside = onnx_binary(im, "and", onnx_binary(im, "ge", indices, graph_scalar_i64(g, dtype, 0)),
                                        onnx_binary(im, "lt", indices, extent));
    int64_t axes[DLC_MAX_RANK];
    for (int d = 0; d < at.rank; d++) axes[d] = axis + d;
    return graph_select(g, graph_broadcast(g, inside, s.rank, s.dim, axes), y, graph_scalar_like(g, y, 0));
}

static void import_gather_block_quantized(onnx_import *im) {
    gathered x = {0};
    const int64_t block = positive(im, "block_size", 128);
    take_numbers(im, &x);
    const graph_shape data = *graph_shape_of(im->g, x.data);
    if (!lib_dtype_is_integer(data.dtype)) onnx_fail(im, DLC_UNSUPPORTED, "floats of 8 bits");
    x.axis = onnx_axis(im, onnx_int(im, "gather_axis", 0), data.rank, false);
    x.quantized = onnx_axis(im, onnx_int(im, "quantize_axis", 1), data.rank, false);
    const graph_id indices = onnx_from_start(im, 1, data.dim[x.axis]);
    const graph_id y = (x.axis == x.quantized ? gather_elements : gather_slices)(im, &x, indices, block);
    onnx_give(im, 0, clear_outside(im, y, indices, x.axis, data.dim[x.axis]));
}

const onnx_row onnx_rows_microsoft_quantized[] = {
    {"DequantizeLinear", 1, 0, import_dequantize, NULL},
    {"DynamicQuantizeLSTM", 1, 0, import_dynamic_quantize_lstm, NULL},
    {"DynamicQuantizeMatMul", 1, 0, import_dynamic_quantize_matmul, NULL},
    {"GatherBlockQuantized", 1, 0, import_gather_block_quantized, NULL},
    {"MatMulBnb4", 1, 0, import_matmul_bnb4, NULL},
    {"MatMulIntegerToFloat", 1, 0, import_matmul_integer_to_float, NULL},
    {"MatMulNBits", 1, 0, import_matmul_nbits, NULL},
    {"NhwcMaxPool", 1, 0, import_nhwc_max_pool, NULL},
    {"QGemm", 1, 0, import_qgemm, NULL},
    {"QLinearAdd", 1, 0, import_qlinear_binary, "add"},
    {"QLinearAveragePool", 1, 0, import_qlinear_average_pool, NULL},
    {"QLinearConcat", 1, 0, import_qlinear_concat, NULL},
    {"QLinearConv", 1, 0, import_qlinear_conv, NULL},
    {"QLinearGlobalAveragePool", 1, 0, import_qlinear_global_pool, NULL},
    {"QLinearLeakyRelu", 1, 0, import_qlinear_leaky_relu, NULL},
    {"QLinearMul", 1, 0, import_qlinear_binary, "mul"},
    {"QLinearReduceMean", 1, 0, import_qlinear_mean, NULL},
    {"QLinearSigmoid", 1, 0, import_qlinear_sigmoid, NULL},
    {"QLinearSoftmax", 1, 0, import_qlinear_softmax, NULL},
    {"QLinearWhere", 1, 0, import_qlinear_where, NULL},
    {"QuantizeLinear", 1, 0, import_quantize, NULL},
    {0},
};
