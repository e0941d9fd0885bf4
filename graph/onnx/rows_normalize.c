/* Rows of softmax and related operators, norms and quantisation. */
#include "graph/onnx/normalize.h"

/* Before version 13 the dimensions from `axis` on were treated as one. */
static void import_softmax(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int axis = onnx_axis(im, onnx_int(im, "axis", im->opset < 13 ? 1 : -1), x.rank,
                               im->opset < 13 && onnx_int(im, "axis", 1) >= 0);
    if (im->opset >= 13 || axis + 1 == x.rank) {
        onnx_give(im, 0, ONNX_WITH(im, im->row->op, onnx_operand(im, 0), graph_set_integer("axis", axis)));
        return;
    }
    tir_expr flat[2] = {tir_index(im->g->pool, 1), tir_index(im->g->pool, 1)};
    for (int d = 0; d < x.rank; d++) flat[d >= axis] = tir_mul(im->g->pool, flat[d >= axis], x.dim[d]);
    const graph_id y =
        ONNX_WITH(im, im->row->op, graph_reshape(im->g, onnx_operand(im, 0), 2, flat), graph_set_integer("axis", 1));
    onnx_give(im, 0, graph_reshape(im->g, y, x.rank, x.dim));
}

static void import_batch_norm(onnx_import *im) {
    onnx_ignore(im, "momentum"), onnx_ignore(im, "consumed_inputs");
    /* Before version 14 further results say that it is training; the last two are left to the implementation. */
    bool training = im->opset >= 14 && onnx_int(im, "training_mode", 0) != 0;
    for (size_t i = 1; i < 5 && im->opset < 14; i++) training |= onnx_wants(im, i);
    if (im->opset < 7 && onnx_int(im, "is_test", 0) != 0) training = false;
    if (onnx_int(im, "spatial", 1) == 0) onnx_fail(im, DLC_UNSUPPORTED, "statistics by position (spatial=0)");
    const double epsilon = onnx_float(im, "epsilon", 1e-5f), momentum = onnx_float(im, "momentum", 0.9f);
    graph_id in[5];
    for (size_t i = 0; i < 5; i++) in[i] = onnx_operand(im, i);
    /* Version 15 allows parameters of another type than x's: computed in the parameters' type, rounded to x's. */
    const dlc_dtype own = graph_shape_of(im->g, in[0])->dtype, wide = graph_shape_of(im->g, in[3])->dtype;
    in[0] = graph_cast(im->g, in[0], wide);
    for (int i = 1; i < 5; i++) in[i] = graph_cast(im->g, in[i], wide);
    if (!training) {
        onnx_give(im, 0,
                  graph_cast(im->g,
                             onnx_emit(im, "batch_norm", 5, in, 1,
                                       &(graph_setting){"epsilon", graph_set_float("epsilon", epsilon).value}),
                             own));
        return;
    }
    const graph_setting s[] = {graph_set_float("epsilon", epsilon), graph_set_float("momentum", momentum)};
    const graph_id y = onnx_emit(im, "batch_norm_training", 5, in, 2, s);
    onnx_give(im, 0, graph_cast(im->g, y, own));
    onnx_give(im, 1, y + 1);
    onnx_give(im, 2, y + 2);
}

/* A scale or bias of a norm with the normalised dimensions, to which it is broadcast; 0: none. One of greater rank stays as it is. */
static graph_id normalised(onnx_import *im, graph_id p, graph_id x, int axis) {
    const graph_shape shape = *graph_shape_of(im->g, x);
    const graph_shape own = p ? *graph_shape_of(im->g, p) : (graph_shape){0};
    const int count = shape.rank - axis;
    bool same = own.rank >= count;
    int64_t size;
    for (int d = 0; own.rank == count && d < count; d++)
        same &= !tir_is_const(im->g->pool, own.dim[d], &size) || size != 1 ||
                tir_equal(im->g->pool, own.dim[d], shape.dim[axis + d]) == TIR_YES;
    return !p || same ? p : graph_broadcast_to(im->g, p, count, shape.dim + axis);
}

static bool fits_normalised(const onnx_import *im, graph_id p, int count) {
    return !p || graph_shape_of(im->g, p)->rank <= count;
}

onnx_normalized onnx_layer_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics) {
    const int rank = graph_shape_of(im->g, x)->rank, count = rank - n->axis;
    const dlc_dtype dtype = graph_shape_of(im->g, x)->dtype;
    const graph_setting s[] = {graph_set_integer("axis", n->axis), graph_set_float("epsilon", n->epsilon)};
    if (!statistics && fits_normalised(im, n->scale, count) && fits_normalised(im, n->bias, count)) {
        const graph_id in[] = {x, normalised(im, n->scale, x, n->axis), normalised(im, n->bias, x, n->axis)};
        return (onnx_normalized){.y = onnx_emit(im, "layer_norm", 3, in, 2, s)};
    }
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) axes[i] = n->axis + i;
    const graph_id wide = graph_cast(im->g, x, n->stash), mean = graph_reduce_mean(im->g, wide, count, axes, true);
    const graph_id centred = onnx_binary(im, "sub", wide, mean),
                   variance = graph_reduce_mean(im->g, graph_mul(im->g, centred, centred), count, axes, true);
    const graph_id inverse = graph_rsqrt(im->g, graph_add_number(im->g, variance, n->epsilon));
    graph_id y = onnx_binary(im, "mul", graph_cast(im->g, onnx_binary(im, "mul", centred, inverse), dtype), n->scale);
    if (n->bias) y = onnx_binary(im, "add", y, n->bias);
    return (onnx_normalized){y, mean, inverse};
}

/* Results 1 and 2 are the mean and 1/sqrt(variance + epsilon), computed in stash_type. */
static void import_layer_norm(onnx_import *im) {
    const onnx_norm n = {.scale = onnx_operand(im, 1),
                         .bias = onnx_operand(im, 2),
                         .axis = onnx_axis(im, onnx_int(im, "axis", -1), onnx_operand_rank(im, 0), false),
                         .epsilon = onnx_float(im, "epsilon", 1e-5f),
                         .stash = onnx_dtype_attribute(im, "stash_type", DLC_F32)};
    const onnx_normalized y = onnx_layer_norm(im, onnx_operand(im, 0), &n, onnx_wants(im, 1) || onnx_wants(im, 2));
    onnx_give(im, 0, y.y);
    onnx_give(im, 1, y.mean);
    onnx_give(im, 2, y.inverse);
}

onnx_normalized onnx_rms_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics) {
    const int count = graph_shape_of(im->g, x)->rank - n->axis;
    const dlc_dtype own = graph_shape_of(im->g, x)->dtype, dtype = graph_shape_of(im->g, n->scale)->dtype;
    /* If the two types differ, the norm is computed in the wider one. */
    const bool narrow = lib_dtype_size(own) < lib_dtype_size(dtype);
    const graph_setting s[] = {graph_set_integer("axis", n->axis), graph_set_float("epsilon", n->epsilon)};
    const graph_id wide = narrow ? graph_cast(im->g, x, dtype) : x,
                   scale = graph_cast(im->g, normalised(im, n->scale, x, n->axis), graph_shape_of(im->g, wide)->dtype);
    onnx_normalized y = {.y = graph_cast(im->g, onnx_emit(im, "rms_norm", 2, (graph_id[]){wide, scale}, 2, s), dtype)};
    if (!statistics) return y;
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) axes[i] = n->axis + i;
    const graph_id stashed = graph_cast(im->g, x, n->stash),
                   square = graph_reduce_mean(im->g, graph_mul(im->g, stashed, stashed), count, axes, true);
    y.inverse = graph_rsqrt(im->g, graph_add_number(im->g, square, n->epsilon));
    return y;
}

/* Result 1, which only SimplifiedLayerNormalization has, is 1/sqrt(mean square + epsilon). */
static void import_rms_norm(onnx_import *im) {
    const onnx_norm n = {.scale = onnx_operand(im, 1),
                         .axis = onnx_axis(im, onnx_int(im, "axis", -1), onnx_operand_rank(im, 0), false),
                         .epsilon = onnx_float(im, "epsilon", 1e-5f),
                         .stash = onnx_dtype_attribute(im, "stash_type", DLC_F32)};
    const onnx_normalized y = onnx_rms_norm(im, onnx_operand(im, 0), &n, onnx_wants(im, 1));
    onnx_give(im, 0, y.y);
    onnx_give(im, 1, y.inverse);
}

static void import_instance_norm(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    const graph_setting s = graph_set_float("epsilon", onnx_float(im, "epsilon", 1e-5f));
    onnx_give(im, 0,
              onnx_emit(im, "instance_norm", 3,
                        (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)}, 1, &s));
}

/* Version 18 has a scale for each group, later ones for each channel. */
static void import_group_norm(onnx_import *im) {
    onnx_ignore(im, "stash_type");
    const graph_shape x = onnx_operand_shape(im, 0);
    const int64_t groups = onnx_int(im, "num_groups", 1);
    graph_id in[3] = {onnx_operand(im, 0), onnx_operand_of_rank(im, 1, 1), onnx_operand_of_rank(im, 2, 1)};
    if (groups < 1 || x.rank < 2)
        onnx_fail(im, DLC_PARSE_ERROR, "%lld groups of an operand of rank %d", (long long)groups, x.rank);
    for (int i = 1; i < 3 && im->opset < 21; i++) {
        const tir_expr g = tir_index(im->g->pool, groups), each = tir_div(im->g->pool, x.dim[1], g);
        const graph_id stretched = graph_broadcast(im->g, in[i], 2, (tir_expr[]){g, each}, (int64_t[]){0});
        in[i] = graph_reshape(im->g, stretched, 1, &x.dim[1]);
    }
    const graph_setting s[] = {graph_set_integer("groups", groups),
                               graph_set_float("epsilon", onnx_float(im, "epsilon", 1e-5f))};
    onnx_give(im, 0, onnx_emit(im, "group_norm", 3, in, 2, s));
}

static void import_lrn(onnx_import *im) {
    onnx_give(im, 0,
              ONNX_WITH(im, "local_response_norm", onnx_operand(im, 0),
                        graph_set_integer("size", onnx_int(im, "size", 1)),
                        graph_set_float("alpha", onnx_float(im, "alpha", 1e-4f)),
                        graph_set_float("beta", onnx_float(im, "beta", 0.75)),
                        graph_set_float("bias", onnx_float(im, "bias", 1))));
}

static void import_lp_normalization(onnx_import *im) {
    onnx_give(
        im, 0,
        ONNX_WITH(im, "lp_normalization", onnx_operand(im, 0),
                  graph_set_integer("axis", onnx_axis(im, onnx_int(im, "axis", -1), onnx_operand_rank(im, 0), false)),
                  graph_set_integer("p", onnx_int(im, "p", 2))));
}

static void import_mean_variance(onnx_import *im) {
    static const int64_t usual[] = {0, 2, 3};
    int count;
    const int64_t *axes = onnx_ints(im, "axes", &count);
    onnx_give(im, 0,
              ONNX_WITH(im, "mean_variance_normalization", onnx_operand(im, 0),
                        graph_set_list("axes", axes ? count : 3, axes ? axes : usual)));
}

/* ---- quantisation --------------------------------------------------------------------------------------------------- */

static int quantize_axis(onnx_import *im) {
    const int rank = onnx_operand_rank(im, 0);
    return rank ? onnx_axis(im, onnx_int(im, "axis", 1) < rank ? onnx_int(im, "axis", 1) : 0, rank, false) : 0;
}

/* Operand i, a scale or zero point: for blocks, or else for all elements or for each index of an axis. */
static graph_id quantize_operand(onnx_import *im, size_t i) {
    return onnx_int(im, "block_size", 0) ? onnx_operand(im, i) : onnx_operand_or_scalar(im, i);
}

/* The attribute output_dtype, of which 0 is as if it were absent. */
static dlc_dtype quantize_dtype(onnx_import *im, dlc_dtype fallback) {
    return onnx_int(im, "output_dtype", 0) ? onnx_dtype_attribute(im, "output_dtype", fallback) : fallback;
}

/* Quantisation to a float of 8 bits in which numbers beyond its range become infinite or NaN. */
static graph_id quantize_unsaturated(onnx_import *im, graph_id x, graph_id scale, graph_id zero, dlc_dtype dtype) {
    const graph_shape shape = *graph_shape_of(im->g, x);
    const int64_t axis = quantize_axis(im);
    if (onnx_int(im, "block_size", 0)) onnx_fail(im, DLC_UNSUPPORTED, "blocks that are not saturated (saturate=0)");
    graph_id y = graph_cast(im->g, x, DLC_F32);
    y = graph_div(im->g, y, graph_broadcast(im->g, graph_cast(im->g, scale, DLC_F32), shape.rank, shape.dim, &axis));
    if (zero)
        y = graph_add(im->g, y, graph_broadcast(im->g, graph_cast(im->g, zero, DLC_F32), shape.rank, shape.dim, &axis));
    return ONNX_WITH(im, "cast", y, graph_set_integer("dtype", dtype));
}

/* If the types of x and scale differ, the quotient is computed in f32. A narrower precision that is asked for, or follows from scale's type, is
 * exceeded, as it is of all narrow floats. */
static void import_quantize(onnx_import *im) {
    onnx_ignore(im, "precision");
    const dlc_dtype given = quantize_dtype(im, DLC_U8),
                    dtype = onnx_has(im, 2) ? onnx_operand_shape(im, 2).dtype : given;
    graph_id x = onnx_operand(im, 0), scale = quantize_operand(im, 1), zero = quantize_operand(im, 2);
    if (!onnx_int(im, "saturate", 1) && lib_dtype_is_f8(dtype)) {
        onnx_give(im, 0, quantize_unsaturated(im, x, scale, zero, dtype));
        return;
    }
    const dlc_dtype own = graph_shape_of(im->g, x)->dtype, steps = graph_shape_of(im->g, scale)->dtype;
    const bool powers = steps == DLC_F8E8M0; /* which f16 might not have */
    if (powers ? !lib_dtype_is_float(own) : own != steps) x = graph_cast(im->g, x, DLC_F32);
    if (!powers && own != steps) scale = graph_cast(im->g, scale, DLC_F32);
    const graph_setting s[] = {graph_set_integer("axis", quantize_axis(im)),
                               graph_set_integer("block", onnx_int(im, "block_size", 0)),
                               graph_set_integer("dtype", dtype)};
    onnx_give(im, 0, onnx_emit(im, "quantize_linear", 3, (graph_id[]){x, scale, zero}, 3, s));
}

static void import_dequantize(onnx_import *im) {
    const graph_id scale = quantize_operand(im, 1);
    const dlc_dtype own = graph_shape_of(im->g, scale)->dtype;
    const dlc_dtype dtype = quantize_dtype(im, own == DLC_F8E8M0 ? DLC_F32 : own);
    const graph_setting s[] = {graph_set_integer("axis", quantize_axis(im)),
                               graph_set_integer("block", onnx_int(im, "block_size", 0))};
    graph_id zero = quantize_operand(im, 2);
    if (onnx_operand_shape(im, 0).dtype == DLC_I32) zero = 0; /* it is 0, by the specification */
    onnx_give(im, 0,
              graph_cast(im->g,
                         onnx_emit(im, "dequantize_linear", 3, (graph_id[]){onnx_operand(im, 0), scale, zero}, 2, s),
                         dtype));
}

static void import_dynamic_quantize(onnx_import *im) {
    const graph_id y = onnx_unary(im, "dynamic_quantize_linear", onnx_operand(im, 0));
    for (size_t i = 0; i < 3; i++) onnx_give(im, i, y + (graph_id)i);
}

const onnx_row onnx_rows_normalize[] = {
    {"BatchNormalization", 1, 0, import_batch_norm, NULL},
    {"DequantizeLinear", 10, 0, import_dequantize, NULL},
    {"DynamicQuantizeLinear", 11, 0, import_dynamic_quantize, NULL},
    {"GroupNormalization", 18, 0, import_group_norm, NULL},
    {"Hardmax", 1, 0, import_softmax, "hardmax"},
    {"InstanceNormalization", 1, 0, import_instance_norm, NULL},
    {"LRN", 1, 0, import_lrn, NULL},
    {"LayerNormalization", 17, 0, import_layer_norm, NULL},
    {"LogSoftmax", 1, 0, import_softmax, "log_softmax"},
    {"LpNormalization", 1, 0, import_lp_normalization, NULL},
    {"MeanVarianceNormalization", 9, 0, import_mean_variance, NULL},
    {"QuantizeLinear", 10, 0, import_quantize, NULL},
    {"RMSNormalization", 23, 0, import_rms_norm, NULL},
    /* Not in the standard, but ONNX Runtime defines it in this domain. */
    {"SimplifiedLayerNormalization", 1, 0, import_rms_norm, NULL},
    {"Softmax", 1, 0, import_softmax, "softmax"},
    {0},
};
