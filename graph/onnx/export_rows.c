/* Rows of sources, maps, activations and norms; and the rows that are not exported, with reasons. */
#include "graph/onnx/export.h"

/* ---- sources -------------------------------------------------------------------------------------------------------------- */

static void export_dimension(onnx_export *ex) {
    const graph_shape *y = onnx_result_shape(ex, 0);
    onnx_label *size = onnx_size(ex, onnx_row_attribute(ex, "size")->dims[0]);
    size = onnx_squeezed(ex, size, 1, (int64_t[]){0});
    onnx_export_give_label(ex, 0, y->dtype == DLC_I64 ? size : onnx_to(ex, size, y->dtype));
}

static void export_iota(onnx_export *ex) {
    const graph_shape *y = onnx_result_shape(ex, 0);
    const int axis = onnx_row_axis(ex, "axis", y->rank);
    int64_t ones[DLC_MAX_RANK];
    onnx_label *numbers = onnx_export_counted(ex, y->dim[axis]);
    if (y->dtype != DLC_I64) numbers = onnx_to(ex, numbers, y->dtype);
    for (int d = axis + 1; d < y->rank; d++) ones[d - axis - 1] = d - axis;
    numbers = onnx_unsqueezed(ex, numbers, y->rank - axis - 1, ones);
    if (y->rank > 1)
        onnx_give_narrow(ex, 0, numbers);
    else
        onnx_export_give_label(ex, 0, numbers);
}

/* ---- maps ----------------------------------------------------------------------------------------------------------------- */

/* Is the operand of integers? Floats are exported by the row's scalar expression. */
static bool is_whole(const graph *g, const graph_node *node) {
    return lib_dtype_is_integer(graph_shape_of(g, node->input[0])->dtype);
}

static void export_mod(onnx_export *ex) {
    onnx_label *x[2];
    onnx_in_maps(ex, x);
    onnx_export_give_label(ex, 0, onnx_divided(ex, "Mod", onnx_in_dtype(ex, 0), x, false));
}

/* |a| with the sign of b: b is below 0, or -0, whose reciprocal is. The sign of NaN is not seen. */
static void export_copy_sign(onnx_export *ex) {
    const tir_dtype dtype = (tir_dtype)onnx_in_dtype(ex, 0);
    onnx_label *x[2], *zero = onnx_number(ex, (dlc_dtype)dtype, 0), *one = onnx_number(ex, (dlc_dtype)dtype, 1);
    for (int i = 0; i < 2; i++) x[i] = onnx_in(ex, i);
    onnx_label *reciprocal = onnx_export_apply(ex, TIR_DIV, dtype, (onnx_label *[]){one, x[1]});
    onnx_label *below = onnx_export_apply(ex, TIR_LT, dtype, (onnx_label *[]){x[1], zero});
    onnx_label *is_zero = onnx_export_apply(ex, TIR_EQ, dtype, (onnx_label *[]){x[1], zero});
    onnx_label *under = onnx_export_apply(ex, TIR_LT, dtype, (onnx_label *[]){reciprocal, zero});
    onnx_label *negative = ONNX_ADD(ex, "Or", below, ONNX_ADD(ex, "And", is_zero, under));
    onnx_label *size = onnx_export_apply(ex, TIR_ABS, dtype, x);
    onnx_export_give_label(
        ex, 0,
        onnx_export_apply(ex, TIR_SELECT, dtype,
                          (onnx_label *[]){negative, onnx_export_apply(ex, TIR_NEG, dtype, &size), size}));
}

/* x * 2^n: for f32 and narrower floats by one product in f64, which holds all their results; for f64 by three factors, since 2^n may
 * overflow although the result does not. */
static void export_ldexp(onnx_export *ex) {
    const dlc_dtype dtype = onnx_in_dtype(ex, 0);
    const int steps = dtype == DLC_F64 ? 3 : 1;
    const double most = dtype == DLC_F64 ? 2100 : 400;
    onnx_label *x = onnx_in(ex, 0), *n = onnx_to(ex, onnx_in(ex, 1), DLC_F64), *two = onnx_number(ex, DLC_F64, 2);
    if (dtype != DLC_F64) x = onnx_to(ex, x, DLC_F64);
    n = onnx_clamped(ex, n, onnx_number(ex, DLC_F64, -most), onnx_number(ex, DLC_F64, most));
    for (int left = steps; left > 0; left--) {
        onnx_label *part = n;
        if (left > 1) {
            part = ONNX_ADD(ex, "Floor", ONNX_ADD(ex, "Div", n, onnx_number(ex, DLC_F64, left)));
            n = ONNX_ADD(ex, "Sub", n, part);
        }
        x = ONNX_ADD(ex, "Mul", x, ONNX_ADD(ex, "Pow", two, part));
    }
    onnx_export_give_label(ex, 0, dtype == DLC_F64 ? x : onnx_to(ex, x, dtype));
}

/* ---- norms ---------------------------------------------------------------------------------------------------------------- */

static bool has_scale(const graph *g, const graph_node *node) {
    (void)g;
    return node->input[1] != 0;
}
static bool has_scale_and_bias(const graph *g, const graph_node *node) {
    (void)g;
    return node->input[1] && node->input[2];
}
static bool has_channels_second(const graph *g, const graph_node *node) {
    return onnx_attribute_named(node, "axis")->integer == 1 && graph_shape_of(g, node->input[0])->rank >= 2;
}
static bool has_low_power(const graph *g, const graph_node *node) {
    const int64_t p = onnx_attribute_named(node, "p")->integer;
    (void)g;
    return p == 1 || p == 2;
}
static bool has_usual_epsilon(const graph *g, const graph_node *node) {
    (void)g;
    return onnx_attribute_named(node, "axes")->count && onnx_attribute_named(node, "epsilon")->number == 1e-9;
}

/* Is the size odd and the operand an image? Implementations take no others. */
static bool is_of_images(const graph *g, const graph_node *node) {
    return onnx_attribute_named(node, "size")->integer % 2 == 1 && graph_shape_of(g, node->input[0])->rank == 4;
}

#define F32 ONNX_TYPE(DLC_F32)

const onnx_export_row onnx_export_rows[] = {
    {.row = "input", .op = "Identity"},    /* by the frame */
    {.row = "constant", .op = "Identity"}, /* likewise */
    {.row = "dimension", .export = export_dimension},
    {.row = "iota", .export = export_iota},
    {.row = "rng_bits", .export = onnx_export_bits},
    {.row = "sign", .op = "Sign", .types = ONNX_NUMBERS},
    {.row = "mod", .export = export_mod, .types = ONNX_WHOLES, .fits = is_whole},
    {.row = "is_nan", .op = "IsNaN", .types = ONNX_FLOATS_B},
    {.row = "is_inf", .op = "IsInf", .types = F32 | ONNX_TYPE(DLC_F64)},
    {.row = "copy_sign", .export = export_copy_sign, .types = ONNX_FLOATS_B},
    {.row = "ldexp", .export = export_ldexp, .types = ONNX_FLOATS_B},
    {.row = "relu", .op = "Relu", .types = ONNX_FLOATS_B | ONNX_SIGNED},
    {.row = "leaky_relu", .op = "LeakyRelu", .attributes = "slope:alpha", .types = ONNX_FLOATS_B},
    {.row = "elu", .op = "Elu", .attributes = "alpha", .types = ONNX_FLOATS},
    {.row = "celu", .op = "Celu", .attributes = "alpha", .types = F32},
    {.row = "selu", .op = "Selu", .attributes = "alpha gamma", .types = ONNX_FLOATS},
    {.row = "gelu", .op = "Gelu", .since = 20, .attributes = "approximate", .types = ONNX_FLOATS_B},
    {.row = "mish", .op = "Mish", .since = 18, .types = ONNX_FLOATS},
    {.row = "hard_sigmoid", .op = "HardSigmoid", .attributes = "alpha beta", .types = ONNX_FLOATS},
    {.row = "hard_swish", .op = "HardSwish", .types = ONNX_FLOATS},
    {.row = "softplus", .op = "Softplus", .types = ONNX_FLOATS},
    {.row = "softsign", .op = "Softsign", .types = ONNX_FLOATS},
    {.row = "thresholded_relu", .op = "ThresholdedRelu", .attributes = "alpha", .types = ONNX_FLOATS},
    {.row = "shrink", .op = "Shrink", .attributes = "lambda:lambd bias", .types = ONNX_FLOATS},
    {.row = "prelu", .op = "PRelu", .types = ONNX_FLOATS_B},
    {.row = "softmax", .op = "Softmax", .attributes = "axis", .types = ONNX_FLOATS_B},
    {.row = "log_softmax", .op = "LogSoftmax", .attributes = "axis", .types = ONNX_FLOATS_B},
    {.row = "hardmax", .op = "Hardmax", .attributes = "axis", .types = ONNX_FLOATS_B},
    {.row = "layer_norm",
     .op = "LayerNormalization",
     .attributes = "axis epsilon",
     .types = F32 | ONNX_TYPE(DLC_F16) | ONNX_TYPE(DLC_BF16),
     .fits = has_scale},
    {.row = "batch_norm",
     .op = "BatchNormalization",
     .attributes = "epsilon",
     .types = ONNX_FLOATS_B,
     .fits = has_channels_second},
    {.row = "instance_norm",
     .op = "InstanceNormalization",
     .attributes = "epsilon",
     .types = ONNX_FLOATS,
     .fits = has_scale_and_bias},
    {.row = "local_response_norm",
     .op = "LRN",
     .attributes = "size alpha beta bias",
     .types = ONNX_FLOATS_B,
     .fits = is_of_images},
    {.row = "lp_normalization",
     .op = "LpNormalization",
     .attributes = "axis p",
     .types = ONNX_FLOATS,
     .fits = has_low_power},
    {.row = "mean_variance_normalization",
     .op = "MeanVarianceNormalization",
     .attributes = "axes",
     .types = ONNX_FLOATS_B,
     .fits = has_usual_epsilon},
    {0},
};

#define DERIVATIVE "it is a step of derivatives, for which ONNX has no operator"
#define STEPS "its algorithm works on a matrix column by column, for which ONNX has no operator"
#define PASSES "its factors and the order of its results are libdlc's own: export dft"
#define HOST "it is a function of the host"
#define TILES "its points are those of Winograd's algorithm, a step of libdlc's own: export the convolution"

const onnx_export_row onnx_export_rows_none[] = {
    {.row = "convolution_weights", .why = DERIVATIVE},
    {.row = "affine_gather", .why = DERIVATIVE},
    {.row = "affine_scatter", .why = DERIVATIVE},
    {.row = "suppress", .why = "it is a step of non_max_suppression, which is exported as a whole"},
    {.row = "fft", .why = PASSES},
    {.row = "substitute", .why = STEPS},
    {.row = "triangular_solve", .why = STEPS},
    {.row = "winograd_input", .why = TILES},
    {.row = "winograd_output", .why = TILES},
    {.row = "cholesky", .why = STEPS},
    {.row = "qr_columns", .why = STEPS},
    {.row = "qr", .why = STEPS},
    {.row = "lu_panel", .why = STEPS},
    {.row = "lu", .why = STEPS},
    {.row = "solve", .why = STEPS},
    {.row = "inverse", .why = STEPS},
    {.row = "slogdet", .why = STEPS},
    {.row = "expm", .why = STEPS},
    {.row = "jacobi", .why = STEPS},
    {.row = "eigh", .why = STEPS},
    {.row = "svd", .why = STEPS},
    {.row = "pinv", .why = STEPS},
    {.row = "lstsq", .why = STEPS},
    {.row = "custom_call", .why = HOST},
    {.row = "custom_effect", .why = HOST},
    {0},
};
