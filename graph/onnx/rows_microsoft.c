/* Rows of the domain com.microsoft, as ONNX Runtime's exporters and optimizers write it: products, activations, norms, moves. Its attention
 * is in rows_microsoft_attention.c, quantised operators are in rows_microsoft_quantized.c.
 * Source: docs/ContribOperators.md of ONNX Runtime. */
#include "graph/onnx/microsoft.h"
#include "graph/onnx/normalize.h"

graph_id onnx_columns(onnx_import *im, graph_id x, tir_expr from, tir_expr to) {
    const int rank = onnx_rank_of(im, x);
    if (rank < 1) onnx_fail(im, DLC_PARSE_ERROR, "a number in place of a tensor with an axis");
    return graph_slice_axis(im->g, x, rank - 1, from, to);
}

graph_id onnx_part(onnx_import *im, graph_id x, int part, int parts) {
    const graph_shape s = *graph_shape_of(im->g, x);
    if (s.rank < 1) onnx_fail(im, DLC_PARSE_ERROR, "a number in place of a tensor with an axis");
    const tir_expr each = tir_div(im->g->pool, s.dim[s.rank - 1], onnx_size(im, parts));
    return onnx_columns(im, x, tir_mul(im->g->pool, each, onnx_size(im, part)),
                        tir_mul(im->g->pool, each, onnx_size(im, part + 1)));
}

/* ---- products ------------------------------------------------------------------------------------------------------- */

/* batch: moves the first axis to before the last, and those between to the front. last: exchanges the last two axes afterwards. */
static graph_id transposed(onnx_import *im, graph_id x, bool batch, bool last) {
    const int rank = onnx_rank_of(im, x);
    int64_t permutation[DLC_MAX_RANK];
    if (rank < 2) return x;
    for (int d = 0; d < rank; d++) permutation[d] = !batch || d == rank - 1 ? d : d == rank - 2 ? 0 : d + 1;
    if (last) {
        const int64_t row = permutation[rank - 2];
        permutation[rank - 2] = permutation[rank - 1], permutation[rank - 1] = row;
    }
    return batch || last ? graph_transpose(im->g, x, permutation) : x;
}

/* Products of narrow floats are scaled in the wide type and rounded once. */
static void import_fused_matmul(onnx_import *im) {
    const double alpha = onnx_float(im, "alpha", 1);
    graph_id a = transposed(im, onnx_operand(im, 0), onnx_int(im, "transBatchA", 0) != 0,
                            onnx_int(im, "transA", 0) != 0),
             b = transposed(im, onnx_operand(im, 1), onnx_int(im, "transBatchB", 0) != 0,
                            onnx_int(im, "transB", 0) != 0);
    const dlc_dtype dtype = onnx_dtype_of(im, a);
    if (alpha == 1) {
        onnx_give(im, 0, onnx_binary(im, "matmul", a, b));
        return;
    }
    const graph_id y = onnx_binary(im, "matmul", graph_widen(im->g, a), graph_widen(im->g, b));
    onnx_give(im, 0, graph_cast(im->g, graph_mul_number(im->g, y, alpha), dtype));
}

/* The activation of a fused node; parameters that are not given have the defaults of the operator of that name. */
static graph_id activated(onnx_import *im, graph_id x, const char *name, int count, const float *given) {
    enum {
        NONE,
        RELU,
        TANH,
        SIGMOID,
        LEAKY_RELU,
        ELU,
        THRESHOLDED_RELU,
        HARD_SIGMOID,
        CLIP,
        SOFTPLUS,
        SOFTSIGN,
        HARD_SWISH
    };
    const int which = onnx_choice(
        im, name, "None Relu Tanh Sigmoid LeakyRelu Elu ThresholdedRelu HardSigmoid Clip Softplus Softsign HardSwish",
        "None");
    static const char *const plain[] = {[RELU] = "relu",         [TANH] = "tanh",         [SIGMOID] = "logistic",
                                        [SOFTPLUS] = "softplus", [SOFTSIGN] = "softsign", [HARD_SWISH] = "hard_swish"};
    const float first = which == LEAKY_RELU ? 0.01f : which == HARD_SIGMOID ? 0.2f : 1, second = 0.5f;
    const double alpha = (double)(count > 0 ? given[0] : first), beta = (double)(count > 1 ? given[1] : second);
    switch (which) {
    case NONE: return x;
    case LEAKY_RELU: return ONNX_WITH(im, "leaky_relu", x, graph_set_float("slope", alpha));
    case ELU: return ONNX_WITH(im, "elu", x, graph_set_float("alpha", alpha));
    case THRESHOLDED_RELU: return ONNX_WITH(im, "thresholded_relu", x, graph_set_float("alpha", alpha));
    case HARD_SIGMOID:
        return ONNX_WITH(im, "hard_sigmoid", x, graph_set_float("alpha", alpha), graph_set_float("beta", beta));
    case CLIP:
        if (count != 2) onnx_fail(im, DLC_PARSE_ERROR, "Clip has %d parameters in place of two", count);
        return graph_clamp(im->g, graph_full_like(im->g, x, alpha), x, graph_full_like(im->g, x, beta));
    default: return onnx_unary(im, plain[which], x);
    }
}

static void import_fused_gemm(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)};
    const onnx_attribute *alpha = onnx_attribute_find(im, "activation_alpha", ONNX_ATTRIBUTE_FLOAT),
                         *beta = onnx_attribute_find(im, "activation_beta", ONNX_ATTRIBUTE_FLOAT);
    const float given[] = {alpha ? alpha->f : 0, beta ? beta->f : 0.5f};
    onnx_ignore(im, "activation_gamma"); /* no activation reads it */
    const graph_id y = onnx_apply(im, "Gemm", 13, 3, in);
    onnx_give(im, 0, activated(im, y, "activation", alpha ? 2 : 0, given));
}

/* The convolution, plus operand 3, then the activation. */
static void import_fused_conv(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)};
    int count;
    const float *given = onnx_floats(im, "activation_params", &count);
    const graph_id y = onnx_sum(im, onnx_apply(im, "Conv", 11, 3, in), onnx_operand(im, 3));
    onnx_give(im, 0, activated(im, y, "activation", count, given));
}

/* ---- activations ---------------------------------------------------------------------------------------------------- */

/* gelu(x + bias), in which narrow floats are rounded once. approximate: 1 for the formula by tanh. */
static graph_id gelu_of_sum(onnx_import *im, graph_id x, graph_id bias, int approximate) {
    const graph_id all = bias ? onnx_sum(im, graph_widen(im->g, x), graph_widen(im->g, bias)) : x;
    return graph_cast(im->g, ONNX_WITH(im, "gelu", all, graph_set_integer("approximate", approximate)),
                      onnx_dtype_of(im, x));
}

static void import_fast_gelu(onnx_import *im) {
    onnx_give(im, 0, gelu_of_sum(im, onnx_operand(im, 0), onnx_operand(im, 1), 1));
}

static void import_bias_gelu(onnx_import *im) {
    onnx_give(im, 0, gelu_of_sum(im, onnx_operand(im, 0), onnx_operand(im, 1), 0));
}

static void import_quick_gelu(onnx_import *im) {
    const graph_setting s = graph_set_float("alpha", onnx_float(im, "alpha", 1.702f));
    onnx_give(im, 0, onnx_emit(im, "quick_gelu", 1, (graph_id[]){onnx_operand(im, 0)}, 1, &s));
}

/* x + bias + skip, the bias along the last axis. */
static void import_bias_add(onnx_import *im) {
    onnx_give(im, 0, onnx_sum(im, onnx_sum(im, onnx_operand(im, 0), onnx_operand(im, 1)), onnx_operand(im, 2)));
}

/* The left half of x + bias, times GELU of its right half. */
static void import_bias_split_gelu(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0),
                   all = onnx_sum(im, graph_widen(im->g, x), graph_widen(im->g, onnx_operand(im, 1)));
    const graph_id right = onnx_unary(im, "gelu", onnx_part(im, all, 1, 2));
    onnx_give(im, 0, graph_cast(im->g, onnx_binary(im, "mul", onnx_part(im, all, 0, 2), right), onnx_dtype_of(im, x)));
}

/* ---- norms ----------------------------------------------------------------------------------------------------------- */

/* The sum of input, skip and, if present, bias in the wide type. Gives it as result 3. */
static graph_id skip_sum(onnx_import *im, size_t bias) {
    const graph_id x = onnx_operand(im, 0), skip = onnx_operand(im, 1), more = onnx_operand(im, bias);
    graph_id all = onnx_sum(im, graph_widen(im->g, x), graph_widen(im->g, skip));
    if (more) all = onnx_sum(im, all, graph_widen(im->g, more));
    if (onnx_wants(im, 3)) onnx_give(im, 3, graph_cast(im->g, all, onnx_dtype_of(im, x)));
    return all;
}

/* Gives the norm of `all` along the last axis, with operand 2 as the scale, and the statistics. */
static void give_skip_norm(onnx_import *im, graph_id all, size_t bias, bool centred) {
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype;
    if (onnx_rank_of(im, all) < 1) onnx_fail(im, DLC_PARSE_ERROR, "a number in place of a tensor with an axis");
    const onnx_norm n = {.scale = graph_widen(im->g, onnx_operand_of_rank(im, 2, 1)),
                         .bias = bias && onnx_has(im, bias) ? graph_widen(im->g, onnx_operand(im, bias)) : 0,
                         .axis = onnx_rank_of(im, all) - 1,
                         .epsilon = onnx_float(im, "epsilon", 1e-12f),
                         .stash = DLC_F32};
    const bool statistics = onnx_wants(im, 1) || onnx_wants(im, 2);
    const onnx_normalized y = (centred ? onnx_layer_norm : onnx_rms_norm)(im, all, &n, statistics);
    if (onnx_wants(im, 1) && !y.mean) onnx_fail(im, DLC_UNSUPPORTED, "the mean as a result of a norm without mean");
    onnx_give(im, 0, graph_cast(im->g, y.y, dtype));
    onnx_give(im, 1, y.mean);
    onnx_give(im, 2, y.inverse);
}

static void import_skip_layer_norm(onnx_import *im) {
    give_skip_norm(im, skip_sum(im, 4), 3, true);
}

static void import_skip_rms_norm(onnx_import *im) {
    give_skip_norm(im, skip_sum(im, 3), 0, false);
}

static void import_rms_norm(onnx_import *im) {
    onnx_import_as(im, "SimplifiedLayerNormalization", 1);
}

/* The norm of each group of C elements along the last axis, C being the size of scale, times an activation of the gate, which has x's shape.
 * Computed in f32 and rounded once. */
static void import_gated_rms_norm(onnx_import *im) {
    graph *g = im->g;
    const bool sigmoid = onnx_choice(im, "activation", "silu swish sigmoid", "silu") == 2;
    const graph_id x = onnx_operand(im, 0);
    const graph_shape whole = *graph_shape_of(g, x);
    graph_shape groups = whole;
    if (whole.rank < 1 || whole.rank == DLC_MAX_RANK)
        onnx_fail(im, whole.rank ? DLC_UNSUPPORTED : DLC_PARSE_ERROR, "operand 0 has %d dimensions", whole.rank);
    const graph_id scale = onnx_operand_of_rank(im, 1, 1);
    const tir_expr size = graph_shape_of(g, scale)->dim[0];
    groups.dim[whole.rank - 1] = tir_div(g->pool, whole.dim[whole.rank - 1], size), groups.dim[whole.rank] = size;
    const onnx_norm n = {.scale = graph_widen(g, scale),
                         .axis = whole.rank,
                         .epsilon = onnx_float(im, "epsilon", 1e-5f),
                         .stash = DLC_F32};
    const graph_id split = graph_reshape(g, graph_widen(g, x), whole.rank + 1, groups.dim),
                   normed = graph_reshape(g, onnx_rms_norm(im, split, &n, false).y, whole.rank, whole.dim),
                   gate = onnx_unary(im, sigmoid ? "logistic" : "silu", graph_widen(g, onnx_operand(im, 2)));
    onnx_give(im, 0, graph_cast(g, graph_mul(g, normed, gate), whole.dtype));
}

/* Gives as result 1 the number of ones in each row of the mask, or 0 without a mask. */
static void give_mask_index(onnx_import *im, tir_expr batch) {
    if (!onnx_wants(im, 1)) return;
    if (!onnx_has(im, 7)) {
        onnx_give(im, 1, graph_full(im->g, DLC_I32, 1, &batch, 0));
        return;
    }
    const graph_id mask = onnx_operand_of_rank(im, 7, 2), one = graph_scalar_i64(im->g, onnx_dtype_of(im, mask), 1);
    const graph_id ones = graph_cast(im->g, onnx_binary(im, "eq", mask, one), DLC_I32);
    onnx_give(im, 1, graph_reduce_sum(im->g, ones, 1, (int64_t[]){1}, false));
}

/* The operands that are a table of an embedding and, if it is quantised, its scale and zero point (0: none). */
typedef struct table {
    size_t at, scale, zero;
} table;

/* The table's rows of these ids, or, if ids is 0, the whole table, in a wide type. */
static graph_id rows_of(onnx_import *im, const table *t, graph_id ids) {
    const graph_id x = onnx_operand_of_rank(im, t->at, ids ? 2 : 1);
    const graph_id rows = ids ? graph_gather(im->g, x, ids, 0) : x;
    return graph_widen(im->g, t->scale ? onnx_dequantize(im, rows, t->scale, t->zero) : rows);
}

/* Gives the layer norm of the sum of the rows of the tables word, position and segment. Positions count from 0 unless they are given. */
static void give_embedding(onnx_import *im, const table *t, dlc_dtype dtype) {
    enum { WORD, POSITION, SEGMENT, SCALE, BIAS, POSITIONS = 8 };
    graph *g = im->g;
    const graph_id ids = onnx_operand_of_rank(im, 0, 2);
    const tir_expr batch = graph_shape_of(g, ids)->dim[0], count = graph_shape_of(g, ids)->dim[1];
    const bool given = !t[WORD].scale && onnx_has(im, POSITIONS);
    const graph_id place = given ? onnx_operand(im, POSITIONS) : graph_iota(g, DLC_I32, 1, &count, 0);
    graph_id all = onnx_sum(im, rows_of(im, &t[WORD], ids), rows_of(im, &t[POSITION], place));
    if (onnx_has(im, 1) && onnx_has(im, t[SEGMENT].at))
        all = onnx_sum(im, all, rows_of(im, &t[SEGMENT], onnx_operand_of_rank(im, 1, 2)));
    const onnx_norm n = {.scale = rows_of(im, &t[SCALE], 0),
                         .bias = rows_of(im, &t[BIAS], 0),
                         .axis = 2,
                         .epsilon = onnx_float(im, "epsilon", 1e-12f),
                         .stash = DLC_F32};
    onnx_give(im, 0, graph_cast(g, onnx_layer_norm(im, all, &n, false).y, dtype));
    give_mask_index(im, batch);
    if (onnx_wants(im, 2)) onnx_give(im, 2, graph_cast(g, all, dtype));
}

static void import_embed_layer_norm(onnx_import *im) {
    static const table tables[] = {{2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {5, 0, 0}, {6, 0, 0}};
    onnx_ignore(im, "mask_index_type");
    give_embedding(im, tables, onnx_operand_shape(im, 2).dtype);
}

static void import_quantized_embed_layer_norm(onnx_import *im) {
    static const table tables[] = {{2, 8, 13}, {3, 9, 14}, {4, 10, 15}, {5, 11, 16}, {6, 12, 17}};
    give_embedding(im, tables, onnx_operand_shape(im, 8).dtype);
}

/* Group norm with its activation; x and the result have channels at the end (channels_last) or after the batch. */
static graph_id group_norm(onnx_import *im, graph_id x) {
    graph *g = im->g;
    const bool last = onnx_int(im, "channels_last", 1) != 0;
    const int64_t activation = onnx_int(im, "activation", 0);
    const dlc_dtype dtype = onnx_dtype_of(im, x);
    if (activation != 0 && activation != 1)
        onnx_fail(im, DLC_PARSE_ERROR, "activation=%lld, expected 0 or 1", (long long)activation);
    const graph_id wide = graph_widen(g, x);
    const graph_setting s[] = {graph_set_integer("groups", onnx_int(im, "groups", 1)),
                               graph_set_float("epsilon", onnx_float(im, "epsilon", 1e-5f))};
    const graph_id in[] = {last ? onnx_channels_first(im, wide) : wide,
                           graph_cast(g, onnx_operand(im, 1), onnx_dtype_of(im, wide)),
                           graph_cast(g, onnx_operand(im, 2), onnx_dtype_of(im, wide))};
    graph_id y = onnx_emit(im, "group_norm", 3, in, 2, s);
    if (activation) y = onnx_unary(im, "silu", y);
    return graph_cast(g, last ? onnx_channels_last(im, y) : y, dtype);
}

static void import_group_norm(onnx_import *im) {
    onnx_give(im, 0, group_norm(im, onnx_operand(im, 0)));
}

/* skip has x's shape, or [batch, channels], or [batch, 1, 1, channels]; bias has [channels]. */
static void import_skip_group_norm(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    const bool last = onnx_int(im, "channels_last", 1) != 0;
    graph_id skip = onnx_operand(im, 3), bias = onnx_operand(im, 4);
    if (!last) onnx_fail(im, DLC_UNSUPPORTED, "channels_last=0");
    if (onnx_rank_of(im, skip) == 2) skip = graph_expand_dims(im->g, graph_expand_dims(im->g, skip, 1), 1);
    graph_id all = onnx_sum(im, graph_widen(im->g, x), graph_widen(im->g, skip));
    if (bias) all = onnx_sum(im, all, graph_widen(im->g, bias));
    all = graph_cast(im->g, all, onnx_dtype_of(im, x));
    onnx_give(im, 0, group_norm(im, all));
    onnx_give(im, 1, all);
}

/* ---- moves ----------------------------------------------------------------------------------------------------------- */

/* Operators that later versions of ONNX have with the same operands. */
static void import_pad(onnx_import *im) {
    onnx_import_as(im, "Pad", 13);
}

static void import_trilu(onnx_import *im) {
    onnx_import_as(im, "Trilu", 14);
}

static void import_gather_nd(onnx_import *im) {
    onnx_import_as(im, "GatherND", 11);
}

static void import_range(onnx_import *im) {
    onnx_import_as(im, "Range", 11);
}

static void import_grid_sample(onnx_import *im) {
    onnx_import_as(im, "GridSample", 16);
}

static void import_expand_dims(onnx_import *im) {
    if (!onnx_has(im, 1)) onnx_fail(im, DLC_PARSE_ERROR, "operand 1, the axis, is missing");
    const int axis = onnx_axis(im, onnx_operand_integer(im, 1, 0), onnx_operand_rank(im, 0), true);
    onnx_give(im, 0, graph_expand_dims(im->g, onnx_operand(im, 0), axis));
}

/* Results: the different elements in the order of first occurrence, for each element of x its index among them, how often each occurs. */
static void import_unique(onnx_import *im) {
    const graph_id x = onnx_operand_of_rank(im, 0, 1);
    const tir_expr size = onnx_counted(im);
    const graph_id y = ONNX_WITH(im, "unique", x, graph_set_dims("size", 1, &size), graph_set_bool("sorted", false));
    onnx_give(im, 0, y);
    onnx_give(im, 1, y + 2);
    onnx_give(im, 2, y + 3);
}

static void import_inverse(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    onnx_give(im, 0, graph_cast(im->g, onnx_unary(im, "inverse", graph_widen(im->g, x)), onnx_dtype_of(im, x)));
}

/* ---- complex numbers as pairs of the last axis ------------------------------------------------------------------------ */

static void check_transform(onnx_import *im) {
    const int64_t dims = onnx_int(im, "signal_ndim", 1);
    if (dims != 1) onnx_fail(im, DLC_UNSUPPORTED, "signal_ndim=%lld, not 1", (long long)dims);
    if (onnx_int(im, "normalized", 0) != 0 || onnx_int(im, "onesided", 1) != 1)
        onnx_fail(im, DLC_UNSUPPORTED, "transforms that are normalized, or not onesided");
}

static void import_rfft(onnx_import *im) {
    check_transform(im);
    const int rank = onnx_operand_rank(im, 0);
    if (rank < 1) onnx_fail(im, DLC_PARSE_ERROR, "a number in place of a signal");
    onnx_give(im, 0,
              ONNX_WITH(im, "dft", graph_expand_dims(im->g, onnx_operand(im, 0), rank),
                        graph_set_integer("axis", rank - 1), graph_set_bool("onesided", true)));
}

/* The inverse of Rfft, divided by n. */
static void import_irfft(onnx_import *im) {
    check_transform(im);
    const int rank = onnx_operand_rank(im, 0);
    if (rank < 2) onnx_fail(im, DLC_PARSE_ERROR, "a spectrum of rank %d", rank);
    const graph_id y = ONNX_WITH(im, "dft", onnx_operand(im, 0), graph_set_integer("axis", rank - 2),
                                 graph_set_bool("onesided", true), graph_set_bool("inverse", true));
    onnx_give(im, 0, graph_squeeze(im->g, y, rank - 1));
}

/* a * b, or a times the conjugate of b. */
static void give_complex_product(onnx_import *im, bool conjugate) {
    graph *g = im->g;
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype;
    graph_id part[2][2];
    for (size_t i = 0; i < 2; i++)
        for (int p = 0; p < 2; p++) part[i][p] = onnx_part(im, graph_widen(g, onnx_operand(im, i)), p, 2);
    if (conjugate) part[1][1] = graph_neg(g, part[1][1]);
    const graph_id real = onnx_binary(im, "sub", onnx_binary(im, "mul", part[0][0], part[1][0]),
                                      onnx_binary(im, "mul", part[0][1], part[1][1])),
                   imaginary = onnx_binary(im, "add", onnx_binary(im, "mul", part[0][0], part[1][1]),
                                           onnx_binary(im, "mul", part[0][1], part[1][0]));
    const graph_id y = graph_concat(g, 2, (graph_id[]){real, imaginary}, onnx_rank_of(im, real) - 1);
    onnx_give(im, 0, graph_cast(g, y, dtype));
}

static void import_complex_product(onnx_import *im) {
    give_complex_product(im, false);
}

static void import_conjugate_product(onnx_import *im) {
    give_complex_product(im, true);
}

/* ---- recurrences ----------------------------------------------------------------------------------------------------- */

/* An integer attribute with which only the standard's form of an operator is known. */
static void need(onnx_import *im, const char *name, int64_t usual) {
    const int64_t given = onnx_int(im, name, usual);
    if (given != usual)
        onnx_fail(im, DLC_UNSUPPORTED, "%s=%lld; only %lld is imported", name, (long long)given, (long long)usual);
}

static void import_causal_convolution(onnx_import *im) {
    need(im, "ndim", 1), need(im, "dilation", 1), need(im, "channels_last", 0), need(im, "state_window", 0);
    need(im, "state_update_capacity", 0), need(im, "state_channels_last", -1), need(im, "state_length", 0);
    need(im, "input_channel_offset", 0), need(im, "input_channels", 0);
    onnx_import_as(im, "CausalConvWithState", 27);
}

static void import_linear_attention(onnx_import *im) {
    need(im, "state_window", 0);
    onnx_import_as(im, "LinearAttention", 27);
}

/* What LinearAttention takes as decay and beta: scale * softplus(a + bias), and sigmoid(b); computed in f32 and rounded once. */
static void import_linear_attention_gate(onnx_import *im) {
    graph *g = im->g;
    if (onnx_wants(im, 1) && !onnx_has(im, 3)) onnx_fail(im, DLC_PARSE_ERROR, "result 1, beta, without operand 3, b");
    const graph_id a = onnx_operand(im, 0), bias = onnx_operand_of_rank(im, 1, 1),
                   scale = onnx_operand_of_rank(im, 2, 1);
    const dlc_dtype dtype = onnx_dtype_of(im, a);
    const graph_id rate = onnx_unary(im, "softplus", onnx_binary(im, "add", graph_widen(g, a), bias));
    onnx_give(im, 0, graph_cast(g, onnx_binary(im, "mul", rate, scale), dtype));
    if (onnx_wants(im, 1))
        onnx_give(im, 1, graph_cast(g, onnx_unary(im, "logistic", graph_widen(g, onnx_operand(im, 3))), dtype));
}

const onnx_row onnx_rows_microsoft[] = {
    {"BiasAdd", 1, 0, import_bias_add, NULL},
    {"BiasGelu", 1, 0, import_bias_gelu, NULL},
    {"BiasSplitGelu", 1, 0, import_bias_split_gelu, NULL},
    {"CausalConvWithState", 1, 0, import_causal_convolution, NULL},
    {"ComplexMul", 1, 0, import_complex_product, NULL},
    {"ComplexMulConj", 1, 0, import_conjugate_product, NULL},
    {"EmbedLayerNormalization", 1, 0, import_embed_layer_norm, NULL},
    {"ExpandDims", 1, 0, import_expand_dims, NULL},
    {"FastGelu", 1, 0, import_fast_gelu, NULL},
    {"FusedConv", 1, 0, import_fused_conv, NULL},
    {"FusedGemm", 1, 0, import_fused_gemm, NULL},
    {"FusedMatMul", 1, 0, import_fused_matmul, NULL},
    {"GatedRMSNorm", 1, 0, import_gated_rms_norm, NULL},
    {"GatherND", 1, 0, import_gather_nd, NULL},
    {"Gelu", 1, 0, NULL, "gelu"},
    {"GridSample", 1, 0, import_grid_sample, NULL},
    {"GroupNorm", 1, 0, import_group_norm, NULL},
    {"Inverse", 1, 0, import_inverse, NULL},
    {"Irfft", 1, 0, import_irfft, NULL},
    {"LinearAttention", 1, 0, import_linear_attention, NULL},
    {"LinearAttentionGate", 1, 0, import_linear_attention_gate, NULL},
    {"Pad", 1, 0, import_pad, NULL},
    {"QEmbedLayerNormalization", 1, 0, import_quantized_embed_layer_norm, NULL},
    {"QuickGelu", 1, 0, import_quick_gelu, NULL},
    {"Range", 1, 0, import_range, NULL},
    {"Rfft", 1, 0, import_rfft, NULL},
    {"SimplifiedLayerNormalization", 1, 0, import_rms_norm, NULL},
    {"SkipGroupNorm", 1, 0, import_skip_group_norm, NULL},
    {"SkipLayerNormalization", 1, 0, import_skip_layer_norm, NULL},
    {"SkipSimplifiedLayerNormalization", 1, 0, import_skip_rms_norm, NULL},
    {"TransposeMatMul", 1, 0, import_fused_matmul, NULL},
    {"Trilu", 1, 0, import_trilu, NULL},
    {"Unique", 1, 0, import_unique, NULL},
    {0},
};

static const char host_loop[] =
    "it runs a model in a loop that decides over tokens: import that model, and let the host run the loop";

const onnx_refusal onnx_refused_microsoft[] = {
    {"BeamSearch", host_loop},
    {"GreedySearch", host_loop},
    {"Sampling", host_loop},
    {"WhisperBeamSearch", host_loop},
    {0},
};
