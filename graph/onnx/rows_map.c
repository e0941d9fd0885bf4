/* Rows of operators that compute element by element. */
#include "graph/onnx/structure.h"

#include <math.h>

static graph_id like(onnx_import *im, graph_id x, double number) {
    return graph_scalar_like(im->g, x, number);
}

static dlc_dtype dtype_of(const onnx_import *im, graph_id x) {
    return graph_shape_of(im->g, x)->dtype;
}

/* Operand i for broadcasting. Before version 7 it was aligned at `axis`, or without that attribute at the last dimensions. */
static graph_id aligned(onnx_import *im, size_t i) {
    graph_id b = onnx_operand(im, i);
    if (im->opset >= 7) return b;
    const int64_t broadcast = onnx_int(im, "broadcast", 0);
    onnx_ignore(im, "consumed_inputs");
    if (!broadcast) return b;
    const int rank = onnx_operand_rank(im, 0), own = graph_shape_of(im->g, b)->rank;
    const int64_t given = onnx_int(im, "axis", rank - own);
    const int axis = onnx_axis(im, given, rank, true);
    if (axis + own > rank)
        onnx_fail(im, DLC_PARSE_ERROR, "axis %d leaves no room for an operand of rank %d", axis, own);
    for (int d = axis + own; d < rank; d++) b = graph_expand_dims(im->g, b, graph_shape_of(im->g, b)->rank);
    return b;
}

static void import_binary(onnx_import *im) {
    onnx_give(im, 0, onnx_binary(im, im->row->op, onnx_operand(im, 0), aligned(im, 1)));
}

static void import_unary(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    onnx_give(im, 0, onnx_unary(im, im->row->op, onnx_operand(im, 0)));
}

/* Does the float type hold all values of operand i, integers, exactly: those that are known, or all of its type? */
static bool holds_integers(onnx_import *im, size_t i, dlc_dtype to) {
    const onnx_known *known = onnx_operand_known(im, i);
    const int digits = lib_float_of(to).digits;
    const int64_t most = INT64_C(1) << digits;
    int64_t value;
    bool holds = known != NULL;
    for (int64_t k = 0; holds && k < known->count; k++)
        holds = tir_is_const(im->g->pool, known->element[k].index, &value) && value <= most && value >= -most;
    return holds || lib_dtypes[onnx_operand_shape(im, i).dtype].bits <= digits;
}

/* The result has the type of the base. Exponents are not rounded to it if they are integers, whose last bit decides the sign. */
static void import_pow(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0), e = aligned(im, 1);
    const dlc_dtype base = dtype_of(im, x), exponent = dtype_of(im, e);
    dlc_dtype wide = base;
    if (!lib_dtype_is_float(base) && lib_dtype_is_float(exponent))
        wide = exponent;
    else if (lib_dtype_is_float(base) && !lib_dtype_is_float(exponent) && !holds_integers(im, 1, base))
        wide = DLC_F64;
    const graph_id y = onnx_binary(im, "pow", graph_cast(im->g, x, wide), graph_cast(im->g, e, wide));
    onnx_give(im, 0, graph_cast(im->g, y, base));
}

static void import_mod(onnx_import *im) {
    onnx_give(im, 0,
              onnx_binary(im, onnx_int(im, "fmod", 0) ? "rem" : "mod", onnx_operand(im, 0), onnx_operand(im, 1)));
}

static void import_bit_shift(onnx_import *im) {
    const bool left = onnx_choice(im, "direction", "LEFT RIGHT", "") == 0;
    onnx_give(im, 0,
              onnx_binary(im, left ? "shift_left" : "shift_right_logical", onnx_operand(im, 0), onnx_operand(im, 1)));
}

static graph_id fold_operands(onnx_import *im, const char *op) {
    graph_id y = onnx_operand(im, 0);
    onnx_ignore(im, "consumed_inputs");
    if (!onnx_operands(im)) onnx_fail(im, DLC_PARSE_ERROR, "it has no operands");
    for (size_t i = 1; i < onnx_operands(im); i++) y = onnx_binary(im, op, y, onnx_operand(im, i));
    return y;
}

static void import_variadic(onnx_import *im) {
    onnx_give(im, 0, fold_operands(im, im->row->op));
}

static void import_mean(onnx_import *im) {
    const graph_id sum = fold_operands(im, "add");
    onnx_give(im, 0, onnx_binary(im, "div", sum, like(im, sum, (double)onnx_operands(im))));
}

static void import_clip(onnx_import *im) {
    graph_id x = onnx_operand(im, 0);
    onnx_ignore(im, "consumed_inputs");
    if (im->opset >= 11) {
        if (onnx_has(im, 1)) x = onnx_binary(im, "max", x, onnx_operand(im, 1));
        if (onnx_has(im, 2)) x = onnx_binary(im, "min", x, onnx_operand(im, 2));
    } else {
        const onnx_attribute *low = onnx_attribute_find(im, "min", ONNX_ATTRIBUTE_FLOAT),
                             *high = onnx_attribute_find(im, "max", ONNX_ATTRIBUTE_FLOAT);
        if (low) x = onnx_binary(im, "max", x, like(im, x, (double)low->f));
        if (high) x = onnx_binary(im, "min", x, like(im, x, (double)high->f));
    }
    onnx_give(im, 0, x);
}

/* Gives operand 0 cast to dtype `to`. Where the standard leaves results open, they follow its reference implementation: floats beyond the range
 * of integers of 4 and 2 bits lose their higher bits. Before version 24 infinity became NaN in floats of 8 bits without negative zero, also
 * with saturate. */
static void give_cast(onnx_import *im, dlc_dtype to) {
    const bool saturate = onnx_int(im, "saturate", 1) != 0 && (lib_dtype_is_f8(to) || to == DLC_F8E8M0);
    const int rounding = onnx_choice(im, "round_mode", "nearest up down", "up"); /* as the row's */
    graph_id x = onnx_operand(im, 0);
    const bool from_float = lib_dtype_is_float(dtype_of(im, x));
    if (from_float && lib_dtype_is_packed(to) && lib_dtype_is_integer(to)) x = graph_cast(im->g, x, DLC_I32);
    if (from_float && saturate && lib_dtype_is_f8(to) && !lib_float_of(to).signed_zero && im->opset < 24)
        x = onnx_emit(im, "select", 3, (graph_id[]){onnx_unary(im, "is_inf", x), like(im, x, (double)NAN), x}, 0, NULL);
    onnx_give(im, 0,
              ONNX_WITH(im, "cast", x, graph_set_integer("dtype", to), graph_set_bool("saturate", saturate),
                        graph_set_integer("rounding", to == DLC_F8E8M0 ? rounding : 0)));
}

/* ONNX's number of the element type, which in early versions was a string. */
static int32_t named_type(onnx_import *im) {
    const char *name = onnx_string(im, "to", "");
    char lower[32] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof lower; i++)
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    for (int32_t t = 1; onnx_element_of(t); t++)
        if (strcmp(lower, onnx_element_of(t)->name) == 0) return t;
    onnx_fail(im, DLC_PARSE_ERROR, "\"%.40s\" is no element type", name);
}

static void import_cast(onnx_import *im) {
    const int64_t to = im->opset < 6 ? named_type(im) : onnx_int(im, "to", 1);
    const dlc_dtype dtype = to == ONNX_STRING ? DLC_F32 : onnx_dtype(im, to);
    if (onnx_casts_text(im, (int32_t)to))
        onnx_cast_text(im, (int32_t)to, dtype);
    else
        give_cast(im, dtype);
}

static void import_cast_like(onnx_import *im) {
    if (!onnx_has(im, 1)) onnx_fail(im, DLC_PARSE_ERROR, "operand 1 is missing");
    const int type = onnx_element_type(im, im->operand[1]);
    const int32_t to = type == ONNX_TEXT ? ONNX_STRING : 0;
    const dlc_dtype dtype = type == ONNX_TEXT ? DLC_F32 : onnx_operand_shape(im, 1).dtype;
    if (onnx_casts_text(im, to))
        onnx_cast_text(im, to, dtype);
    else
        give_cast(im, dtype);
}

static void import_bit_cast(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype to = onnx_dtype_attribute(im, "to", DLC_F32);
    if ((dtype_of(im, x) == DLC_BOOL && to == DLC_U8) || (dtype_of(im, x) == DLC_U8 && to == DLC_BOOL))
        onnx_give(im, 0, graph_cast(im->g, x, to)); /* false is 0, true 1 */
    else
        onnx_give(im, 0, ONNX_WITH(im, "bit_cast", x, graph_set_integer("dtype", to)));
}

static void import_is_inf(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    const bool high = onnx_int(im, "detect_positive", 1) != 0, low = onnx_int(im, "detect_negative", 1) != 0;
    const graph_id infinite = onnx_unary(im, "is_inf", x);
    if (high && low)
        onnx_give(im, 0, infinite);
    else
        onnx_give(im, 0,
                  onnx_binary(im, "and", infinite,
                              high || low ? onnx_binary(im, high ? "gt" : "lt", x, like(im, x, 0))
                                          : graph_not(im->g, onnx_binary(im, "eq", infinite, infinite))));
}

/* Integers are computed in f32, and the result is cast back. */
static void import_erf(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype own = graph_shape_of(im->g, x)->dtype;
    const bool whole = !lib_dtype_is_float(own);
    const graph_id y = onnx_unary(im, "erf", whole ? graph_cast(im->g, x, DLC_F32) : x);
    onnx_give(im, 0, whole ? graph_cast(im->g, y, own) : y);
}

static void import_reciprocal(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    onnx_ignore(im, "consumed_inputs");
    onnx_give(im, 0, onnx_binary(im, "div", like(im, x, 1), x));
}

static void import_relu(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    onnx_ignore(im, "consumed_inputs");
    onnx_give(im, 0,
              lib_dtype_is_float(dtype_of(im, x)) ? onnx_unary(im, "relu", x)
                                                  : onnx_binary(im, "max", x, like(im, x, 0)));
}

static void import_leaky_relu(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    onnx_give(
        im, 0,
        ONNX_WITH(im, "leaky_relu", onnx_operand(im, 0), graph_set_float("slope", onnx_float(im, "alpha", 0.01f))));
}

static void import_elu(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    onnx_give(im, 0, ONNX_WITH(im, "elu", onnx_operand(im, 0), graph_set_float("alpha", onnx_float(im, "alpha", 1))));
}

static void import_celu(onnx_import *im) {
    onnx_give(im, 0, ONNX_WITH(im, "celu", onnx_operand(im, 0), graph_set_float("alpha", onnx_float(im, "alpha", 1))));
}

static void import_selu(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    const double alpha = onnx_float(im, "alpha", im->opset < 6 ? 1.6732f : 1.67326319217681884765625f);
    const double gamma = onnx_float(im, "gamma", im->opset < 6 ? 1.0507f : 1.05070102214813232421875f);
    onnx_give(
        im, 0,
        ONNX_WITH(im, "selu", onnx_operand(im, 0), graph_set_float("alpha", alpha), graph_set_float("gamma", gamma)));
}

static void import_hard_sigmoid(onnx_import *im) {
    onnx_ignore(im, "consumed_inputs");
    onnx_give(im, 0,
              ONNX_WITH(im, "hard_sigmoid", onnx_operand(im, 0),
                        graph_set_float("alpha", onnx_float(im, "alpha", 0.2f)),
                        graph_set_float("beta", onnx_float(im, "beta", 0.5))));
}

static void import_thresholded_relu(onnx_import *im) {
    onnx_give(
        im, 0,
        ONNX_WITH(im, "thresholded_relu", onnx_operand(im, 0), graph_set_float("alpha", onnx_float(im, "alpha", 1))));
}

/* Integers are computed by selects in f64, since the operator takes floats only. */
static void import_shrink(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    const double lambda = onnx_float(im, "lambd", 0.5), bias = onnx_float(im, "bias", 0);
    if (lib_dtype_is_float(dtype_of(im, x))) {
        onnx_give(im, 0, ONNX_WITH(im, "shrink", x, graph_set_float("lambda", lambda), graph_set_float("bias", bias)));
        return;
    }
    const graph_id wide = graph_cast(im->g, x, DLC_F64), zero = like(im, wide, 0);
    const graph_id above =
        graph_select(im->g, graph_gt(im->g, wide, like(im, wide, lambda)), graph_add_number(im->g, wide, -bias), zero);
    onnx_give(im, 0,
              graph_cast(im->g,
                         graph_select(im->g, graph_lt(im->g, wide, like(im, wide, -lambda)),
                                      graph_add_number(im->g, wide, bias), above),
                         dtype_of(im, x)));
}

static void import_gelu(onnx_import *im) {
    const int approximate = onnx_choice(im, "approximate", "none tanh", "none");
    onnx_give(im, 0, ONNX_WITH(im, "gelu", onnx_operand(im, 0), graph_set_integer("approximate", approximate)));
}

static void import_swish(onnx_import *im) {
    onnx_give(im, 0,
              ONNX_WITH(im, "quick_gelu", onnx_operand(im, 0), graph_set_float("alpha", onnx_float(im, "alpha", 1))));
}

/* Before version 7 the slope was one number, or one for each channel; since then it is broadcast to the shape of x. */
static void import_prelu(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0);
    graph_id slope = onnx_operand(im, 1);
    onnx_ignore(im, "consumed_inputs");
    const int rank = onnx_operand_rank(im, 0);
    if (im->opset < 7 && graph_shape_of(im->g, slope)->rank == 1)
        while (graph_shape_of(im->g, slope)->rank + 1 < rank)
            slope = graph_expand_dims(im->g, slope, graph_shape_of(im->g, slope)->rank);
    if (lib_dtype_is_float(dtype_of(im, x)))
        onnx_give(im, 0, onnx_binary(im, "prelu", x, slope));
    else
        onnx_give(im, 0, graph_select(im->g, graph_lt(im->g, x, like(im, x, 0)), graph_mul(im->g, x, slope), x));
}

static void import_where(onnx_import *im) {
    onnx_give(im, 0,
              onnx_emit(im, "select", 3, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2)}, 0,
                        NULL));
}

static void import_identity(onnx_import *im) {
    onnx_give_operand(im, 0, 0);
}

const onnx_row onnx_rows_map[] = {
    {"Abs", 1, 0, import_unary, "abs"},
    {"Acos", 7, 0, NULL, "acos"},
    {"Acosh", 9, 0, NULL, "acosh"},
    {"Add", 1, 0, import_binary, "add"},
    {"And", 1, 0, import_binary, "and"},
    {"Asin", 7, 0, NULL, "asin"},
    {"Asinh", 9, 0, NULL, "asinh"},
    {"Atan", 7, 0, NULL, "atan"},
    {"Atanh", 9, 0, NULL, "atanh"},
    {"BitCast", 26, 0, import_bit_cast, NULL},
    {"BitShift", 11, 0, import_bit_shift, NULL},
    {"BitwiseAnd", 18, 0, NULL, "and"},
    {"BitwiseNot", 18, 0, NULL, "not"},
    {"BitwiseOr", 18, 0, NULL, "or"},
    {"BitwiseXor", 18, 0, NULL, "xor"},
    {"Cast", 1, 0, import_cast, NULL},
    {"CastLike", 15, 0, import_cast_like, NULL},
    {"Ceil", 1, 0, import_unary, "ceil"},
    {"Celu", 12, 0, import_celu, NULL},
    {"Clip", 1, 0, import_clip, NULL},
    {"Cos", 7, 0, NULL, "cos"},
    {"Cosh", 9, 0, NULL, "cosh"},
    {"Div", 1, 0, import_binary, "div"},
    {"Elu", 1, 0, import_elu, NULL},
    {"Equal", 1, 0, import_binary, "eq"},
    {"Erf", 9, 0, import_erf, NULL},
    {"Exp", 1, 0, import_unary, "exp"},
    {"Floor", 1, 0, import_unary, "floor"},
    {"Gelu", 20, 0, import_gelu, NULL},
    {"Greater", 1, 0, import_binary, "gt"},
    {"GreaterOrEqual", 12, 0, NULL, "ge"},
    {"HardSigmoid", 1, 0, import_hard_sigmoid, NULL},
    {"HardSwish", 14, 0, NULL, "hard_swish"},
    {"Identity", 1, 0, import_identity, NULL},
    {"IsInf", 10, 0, import_is_inf, NULL},
    {"IsNaN", 9, 0, NULL, "is_nan"},
    {"LeakyRelu", 1, 0, import_leaky_relu, NULL},
    {"Less", 1, 0, import_binary, "lt"},
    {"LessOrEqual", 12, 0, NULL, "le"},
    {"Log", 1, 0, import_unary, "log"},
    {"Max", 1, 0, import_variadic, "max"},
    {"Mean", 1, 0, import_mean, NULL},
    {"Min", 1, 0, import_variadic, "min"},
    {"Mish", 18, 0, NULL, "mish"},
    {"Mod", 10, 0, import_mod, NULL},
    {"Mul", 1, 0, import_binary, "mul"},
    {"Neg", 1, 0, import_unary, "neg"},
    {"Not", 1, 0, NULL, "not"},
    {"Or", 1, 0, import_binary, "or"},
    {"PRelu", 1, 0, import_prelu, NULL},
    {"Pow", 1, 0, import_pow, NULL},
    {"Reciprocal", 1, 0, import_reciprocal, NULL},
    {"Relu", 1, 0, import_relu, NULL},
    {"Round", 11, 0, NULL, "round"},
    {"Selu", 1, 0, import_selu, NULL},
    {"Shrink", 9, 0, import_shrink, NULL},
    {"Sigmoid", 1, 0, import_unary, "logistic"},
    {"Sign", 9, 0, NULL, "sign"},
    {"Sin", 7, 0, NULL, "sin"},
    {"Sinh", 9, 0, NULL, "sinh"},
    {"Softplus", 1, 0, NULL, "softplus"},
    {"Softsign", 1, 0, NULL, "softsign"},
    {"Sqrt", 1, 0, import_unary, "sqrt"},
    {"Sub", 1, 0, import_binary, "sub"},
    {"Sum", 1, 0, import_variadic, "add"},
    {"Swish", 24, 0, import_swish, NULL},
    {"Tan", 7, 0, NULL, "tan"},
    {"Tanh", 1, 0, import_unary, "tanh"},
    {"ThresholdedRelu", 10, 0, import_thresholded_relu, NULL},
    {"Where", 9, 0, import_where, NULL},
    {"Xor", 1, 0, import_binary, "xor"},
    {0},
};
