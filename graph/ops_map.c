/* Maps: out[i...] = f(a[i...], b[i...], ...). A row's `scalar` or `operation` is the whole definition; graph_compute_row makes the
 * stage. Operands have one shape: broadcasting is done by explicit nodes before a map is emitted. Arithmetic is that of
 * tir: total, integers wrap, f16 and bf16 round after every operator. */
#include "graph/ops_map.h"
#include "graph/build.h"
#include "graph/gradient.h"
#include "tir/math_special.h"

/* ---- scalars */

WIDENED(rsqrt, tir_div(pool, tir_int(pool, tir_dtype_of(pool, a), 1), tir_unary(pool, TIR_SQRT, a)))

/* -1 or 1; zeros and NaN give themselves. */
SCALAR(sign) {
    tir_expr zero = tir_int(pool, dtype, 0);
    tir_expr below = tir_select(pool, tir_lt(pool, x[0], zero), tir_int(pool, dtype, -1), x[0]);
    return tir_select(pool, tir_lt(pool, zero, x[0]), tir_int(pool, dtype, 1), below);
}

/* The remainder of truncating division, plus b if the two have different signs; zeros get the sign of b. */
SCALAR(mod) {
    tir_expr a = x[0], b = x[1], r = tir_rem(pool, a, b), zero = tir_int(pool, dtype, 0);
    if (lib_dtypes[dtype].class_ == 'u') return r;
    tir_expr across = tir_binary(pool, TIR_NE, tir_lt(pool, r, zero), tir_lt(pool, b, zero));
    tir_expr moved = tir_select(pool, across, tir_add(pool, r, b), r), nothing = zero;
    if (lib_dtype_is_float((dlc_dtype)dtype))
        nothing = tir_select(pool, tir_lt(pool, b, zero), tir_float(pool, dtype, -0.0), zero);
    return tir_select(pool, tir_eq(pool, r, zero), nothing, moved);
}

SCALAR(is_nan) {
    return tir_binary(pool, TIR_NE, x[0], x[0]);
}

SCALAR(is_inf) {
    if (!lib_float_of((dlc_dtype)tir_dtype_of(pool, x[0])).infinite) return tir_bool(pool, false);
    return tir_eq(pool, tir_unary(pool, TIR_ABS, x[0]), tir_highest(pool, tir_dtype_of(pool, x[0])));
}

SCALAR(is_finite) {
    if (!lib_float_of((dlc_dtype)tir_dtype_of(pool, x[0])).infinite) return tir_eq(pool, x[0], x[0]);
    return tir_lt(pool, tir_unary(pool, TIR_ABS, x[0]), tir_highest(pool, tir_dtype_of(pool, x[0])));
}

/* The neighbour of a has the next greater or smaller bits: magnitudes of floats are ordered like their bits. */
SCALAR(next_after) {
    tir_dtype bits = lib_dtypes[dtype].bits == 64 ? DLC_I64 : lib_dtypes[dtype].bits == 32 ? DLC_I32 : DLC_I16;
    tir_expr a = x[0], b = x[1], zero = tir_int(pool, dtype, 0), one = tir_int(pool, bits, 1);
    tir_expr number = tir_bitcast(pool, bits, a), up = tir_lt(pool, a, b);
    tir_expr away = tir_eq(pool, up, tir_lt(pool, zero, a));
    tir_expr moved = tir_select(pool, away, tir_add(pool, number, one), tir_sub(pool, number, one));
    tir_expr least = tir_add(pool, tir_bits(pool, bits, UINT64_C(1) << (lib_dtypes[dtype].bits - 1)), one);
    moved = tir_select(pool, tir_eq(pool, a, zero), tir_select(pool, up, one, least), moved);
    tir_expr unordered = tir_or(pool, tir_binary(pool, TIR_NE, a, a), tir_binary(pool, TIR_NE, b, b));
    tir_expr result = tir_select(pool, tir_eq(pool, a, b), b, tir_bitcast(pool, dtype, moved));
    return tir_select(pool, unordered, tir_float(pool, dtype, (double)__builtin_nanf("")), result);
}

/* The sign bit also covers -0 and NaN. */
SCALAR(copy_sign) {
    tir_dtype bits = lib_dtypes[dtype].bits == 64 ? DLC_I64 : lib_dtypes[dtype].bits == 32 ? DLC_I32 : DLC_I16;
    tir_expr negative = tir_lt(pool, tir_bitcast(pool, bits, x[1]), tir_int(pool, bits, 0));
    tir_expr magnitude = tir_unary(pool, TIR_ABS, x[0]);
    return tir_select(pool, negative, tir_unary(pool, TIR_NEG, magnitude), magnitude);
}

SCALAR(ldexp) {
    return tir_cast(pool, dtype, tir_math_ldexp(pool, graph_map_widened(pool, x[0]), x[1]));
}

SCALAR(select) {
    return tir_select(pool, x[0], x[1], x[2]);
}

SCALAR(clamp) {
    return tir_min(pool, tir_max(pool, x[1], x[0]), x[2]);
}

/* Clamps x to the finite numbers of an 8-bit float, in f32 unless x is f64. Rounding x to f32 moves no number across these limits, which
 * have at most 16 binary digits. */
static tir_expr bounded(tir_pool *pool, dlc_dtype dtype, tir_expr x) {
    const lib_float_info format = lib_float_of(dtype);
    if (tir_dtype_of(pool, x) != DLC_F64) x = tir_cast(pool, DLC_F32, x);
    tir_dtype from = tir_dtype_of(pool, x);
    tir_expr high = tir_float(pool, from, format.greatest), low = tir_float(pool, from, -format.greatest);
    return tir_min(pool, tir_max(pool, x, low), high);
}

enum { CAST_DTYPE, CAST_SATURATE };

SCALAR(cast) {
    bool saturates = attribute[CAST_SATURATE].integer && lib_dtype_is_f8((dlc_dtype)dtype);
    if (!saturates || tir_dtype_of(pool, x[0]) == dtype) return tir_cast(pool, dtype, x[0]);
    return tir_cast(pool, dtype, bounded(pool, (dlc_dtype)dtype, x[0]));
}

SCALAR(bit_cast) {
    return tir_bitcast(pool, dtype, x[0]);
}

/* ---- derivatives that are shorter, or otherwise chosen, than those of the scalars */

static void partial_rsqrt(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id y = graph_rule_result(rule, 0);
    rule->out[0] = graph_div(g, graph_mul_number(g, y, -0.5), graph_rule_operand(rule, 0));
}

/* x has it strictly between the bounds; else the bound that decides. Operands: low, x, high. */
static void partial_clamp(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id low = graph_rule_operand(rule, 0), x = graph_rule_operand(rule, 1),
                   high = graph_rule_operand(rule, 2);
    const graph_id below_high = graph_lt(g, graph_max(g, x, low), high);
    rule->out[0] = rule->operand == 1   ? graph_and(g, graph_lt(g, low, x), graph_lt(g, x, high))
                   : rule->operand == 0 ? graph_and(g, graph_le(g, x, low), graph_lt(g, low, high))
                                        : graph_not(g, below_high);
}

/* ---- shape rules other than graph_infer_map and graph_infer_compare */

static void infer_abs(graph_infer *infer) {
    graph_infer_map(infer);
    if (infer->result[0].dtype == DLC_C64) infer->result[0].dtype = DLC_F32;
}

static void infer_select(graph_infer *infer) {
    graph_infer_dtype(infer, 0, DLC_BOOL);
    graph_infer_same_dtype(infer, 1, 2);
    graph_infer_same_shape(infer, 3);
    infer->result[0] = infer->operand[1];
}

static void infer_ldexp(graph_infer *infer) {
    graph_infer_indices(infer, 1);
    graph_infer_same_shape(infer, 2);
    infer->result[0] = infer->operand[0];
}

static void infer_cast(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = (dlc_dtype)infer->attribute[0].integer;
    if (infer->operand[0].dtype == DLC_C64 && infer->result[0].dtype != DLC_C64)
        graph_infer_fail(infer, "x is c64, which has no cast to %s: cast real or imag of it",
                         lib_dtypes[infer->result[0].dtype].name);
}

static void infer_bit_cast(graph_infer *infer) {
    dlc_dtype from = infer->operand[0].dtype, to = (dlc_dtype)infer->attribute[0].integer;
    if (lib_dtype_is_stored_otherwise(from) || lib_dtype_is_stored_otherwise(to))
        graph_infer_fail(infer,
                         "x is %s, to %s: expected neither c64 (as_pairs) nor what is stored as codes (unpack_bits)",
                         lib_dtypes[from].name, lib_dtypes[to].name);
    if (lib_dtypes[from].bits != lib_dtypes[to].bits || (from == DLC_BOOL) != (to == DLC_BOOL))
        graph_infer_fail(infer, "x is %s, expected a dtype of as many bits as %s, neither of them bool",
                         lib_dtypes[from].name, lib_dtypes[to].name);
    infer_cast(infer);
}

/* ---- references: one function of numbers per row; t is the dtype of the first operand */

#ifdef DLC_REFERENCE

/* Quotient or remainder of the whole parts of a and b, which a bound (graph/bound.h) may have moved by their errors. */
static uint64_t divide(dlc_dtype t, double a, double b, bool remainder) {
    if (word(b) == 0) return 0;
    if (lib_dtypes[t].class_ == 'u') return remainder ? word(a) % word(b) : word(a) / word(b);
    int64_t x = (int64_t)a, y = (int64_t)b;
    if (y == -1) return remainder ? 0 : 0 - (uint64_t)x;
    return (uint64_t)(remainder ? x % y : x / y);
}

static double smaller(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}
static double larger(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

REFERENCE(neg, INTEGER(t, 0 - word(x[0]), -x[0]))
REFERENCE(abs, INTEGER(t, x[0] < 0 ? 0 - word(x[0]) : word(x[0]), fabs(x[0])))
REFERENCE(sign, isnan(x[0]) ? x[0] : (double)((x[0] > 0) - (x[0] < 0)))
REFERENCE(sqrt, sqrt(x[0]))
REFERENCE(rsqrt, 1 / sqrt(x[0]))
REFERENCE(floor, floor(x[0]))
REFERENCE(ceil, ceil(x[0]))
REFERENCE(round, fmod(fabs(x[0]), 2) == 0.5 ? copysign(floor(fabs(x[0])), x[0]) : round(x[0]))
REFERENCE(trunc, trunc(x[0]))
REFERENCE(add, INTEGER(t, word(x[0]) + word(x[1]), x[0] + x[1]))
REFERENCE(sub, INTEGER(t, word(x[0]) - word(x[1]), x[0] - x[1]))
REFERENCE(mul, INTEGER(t, word(x[0]) * word(x[1]), x[0] * x[1]))
REFERENCE(div, INTEGER(t, divide(t, x[0], x[1], false), x[0] / x[1]))
REFERENCE(rem, INTEGER(t, divide(t, x[0], x[1], true), fmod(x[0], x[1])))
REFERENCE(min, smaller(x[0], x[1]))
REFERENCE(max, larger(x[0], x[1]))
REFERENCE(eq, x[0] == x[1])
REFERENCE(ne, x[0] != x[1])
REFERENCE(lt, x[0] < x[1])
REFERENCE(le, x[0] <= x[1])
REFERENCE(gt, x[0] > x[1])
REFERENCE(ge, x[0] >= x[1])
REFERENCE(select, x[0] != 0 ? x[1] : x[2])
REFERENCE(clamp, smaller(larger(x[1], x[0]), x[2]))

static double floor_mod(dlc_dtype t, double a, double b) {
    if (graph_reference_integral(t)) {
        uint64_t remainder = divide(t, a, b, true);
        if (lib_dtypes[t].class_ == 'u') return (double)remainder;
        int64_t rest = (int64_t)remainder;
        return graph_reference_wrap(t, (uint64_t)(rest && (rest < 0) != (b < 0) ? rest + (int64_t)b : rest));
    }
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

/* The exponent of a finite number; of 0 and numbers below 2^least: least. */
static int exponent_of(double a, int least) {
    return a == 0 || ilogb(a) < least ? least : ilogb(a);
}

/* next_after by the spacing of the dtype's numbers, from its digits and exponents. */
static double neighbour(dlc_dtype t, double a, double b) {
    int digits = t == DLC_F16 ? 11 : t == DLC_BF16 ? 8 : t == DLC_F32 ? 24 : 53;
    int least = t == DLC_F16 ? -14 : t == DLC_F64 ? -1022 : -126, most = 1 - least;
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return b;
    double up = a < b ? 1 : -1, top = ldexp(2 - ldexp(1, 1 - digits), most);
    if (isinf(a)) return copysign(top, a);
    int exponent = exponent_of(a, least);
    bool shrinks = (a < 0) == (a < b);
    if (shrinks && fabs(a) == ldexp(1, exponent) && exponent > least) exponent--;
    if (!shrinks && fabs(a) == top) return copysign(INFINITY, a);
    return a + up * ldexp(1, exponent - digits + 1) + copysign(0, a);
}

REFERENCE(mod, floor_mod(t, x[0], x[1]))
REFERENCE(is_nan, isnan(x[0]) != 0)
REFERENCE(is_inf, isinf(x[0]) != 0)
REFERENCE(is_finite, isfinite(x[0]) != 0)
REFERENCE(next_after, neighbour(t, x[0], x[1]))

REFERENCE(copy_sign, copysign(x[0], x[1]))
REFERENCE(ldexp, ldexp(x[0], x[1] > 4000 ? 4000 : x[1] < -4000 ? -4000 : (int)x[1]))

static double saturate(double x, double low, double high) {
    return isnan(x) ? 0 : x <= low ? low : x >= high ? high : trunc(x);
}

static double convert(dlc_dtype from, dlc_dtype to, double x) {
    if (to == DLC_BOOL) return x != 0;
    if (lib_dtype_is_float(to)) return x;
    if (!lib_dtype_is_float(from)) return graph_reference_wrap(to, word(x));
    switch (to) {
    case DLC_I8: return saturate(x, INT8_MIN, INT8_MAX);
    case DLC_I16: return saturate(x, INT16_MIN, INT16_MAX);
    case DLC_I32: return saturate(x, INT32_MIN, INT32_MAX);
    case DLC_U8: return saturate(x, 0, UINT8_MAX);
    case DLC_U16: return saturate(x, 0, UINT16_MAX);
    case DLC_U32: return saturate(x, 0, UINT32_MAX);
    case DLC_U64: return saturate(x, 0, 0x1p64);  /* 2^64 - 1 reads back as 2^64 */
    default: return saturate(x, -0x1p63, 0x1p63); /* 2^63 - 1 reads back as 2^63 */
    }
}

/* By the table of ONNX Cast. */
static double onto_f8(dlc_dtype to, double x) {
    double greatest = to == DLC_F8E4M3FN ? 448 : to == DLC_F8E4M3FNUZ ? 240 : 57344;
    return x > greatest ? greatest : x < -greatest ? -greatest : x;
}

static void reference_cast(const graph_reference *r) {
    const dlc_dtype from = r->operand[0].dtype, to = r->result[0].dtype;
    const bool saturates = r->attribute[CAST_SATURATE].integer && lib_dtype_is_f8(to) && from != to;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double x = r->operand[0].data[i];
        r->result[0].data[i] = convert(from, to, saturates ? onto_f8(to, x) : x);
    }
}

static void reference_bit_cast(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        union {
            int64_t i64;
            int32_t i32;
            double f64;
            float f32;
        } bits = {.i64 = 0};
        double x = r->operand[0].data[i];
        dlc_dtype from = r->operand[0].dtype, to = r->result[0].dtype;
        if (from == DLC_F64)
            bits.f64 = x;
        else if (from == DLC_F32)
            bits.f32 = (float)x;
        else
            bits.i64 = (int64_t)x;
        r->result[0].data[i] = to == DLC_F64   ? bits.f64
                               : to == DLC_F32 ? (double)bits.f32
                                               : graph_reference_wrap(to, (uint64_t)bits.i64);
    }
}

#endif

/* ---- rows */

static const graph_op row_neg = {
    PLAIN(neg, 1, "x", TIR_NEG),
    .aliases = "negative negate",
    .linear = 1,
    .dtypes = "number c64",
    .algebra = GRAPH_INVOLUTION,
    .infer = graph_infer_map,
    .precision = GRAPH_FOLLOWS,
    .samples = UNARY("neg"),
    .doc = "-x; integers wrap (the lowest one is its own negative). StableHLO negate.",
};

static const graph_op row_abs = {
    PLAIN(abs, 1, "x", TIR_ABS),
    .aliases = "absolute fabs",
    .dtypes = "number c64",
    .algebra = GRAPH_IDEMPOTENT,
    .infer = infer_abs,
    .precision = GRAPH_FOLLOWS,
    .samples = UNARY("abs"),
    .doc =
        "|x|; the lowest integer wraps to itself. Of c64 the f32 sqrt(real^2 + imag^2), without overflow on the way. StableHLO abs.",
};

static const graph_op row_sign = {
    MAP(sign, 1, "x"),           .dtypes = "number",
    .algebra = GRAPH_IDEMPOTENT, .infer = graph_infer_map,
    .samples = UNARY("sign"),    .doc = "-1, 0 or 1; zeros and NaN are their own sign. StableHLO sign.",
};

static const graph_op row_sqrt = {
    PLAIN(sqrt, 1, "x", TIR_SQRT), .dtypes = "float",
    .infer = graph_infer_map,      .accuracy = {0.5, 0.5, 0},
    .samples = UNARY("sqrt"),      .doc = "Square root, correctly rounded; NaN below zero. StableHLO sqrt.",
};

static const graph_op row_rsqrt = {
    MAP(rsqrt, 1, "x"),           .partial = partial_rsqrt,
    .aliases = "reciprocal_sqrt", .dtypes = "float",
    .infer = graph_infer_map,     .accuracy = {1.5, 1.5, 0},
    .samples = UNARY("rsqrt"),    .doc = "1 / sqrt(x), two roundings; infinite at zero. StableHLO rsqrt.",
};

static const graph_op row_floor = {
    PLAIN(floor, 1, "x", TIR_FLOOR), .dtypes = "float",
    .algebra = GRAPH_IDEMPOTENT,     .infer = graph_infer_map,
    .samples = UNARY("floor"),       .doc = "Largest integral number not above x. StableHLO floor.",
};

static const graph_op row_ceil = {
    PLAIN(ceil, 1, "x", TIR_CEIL), .dtypes = "float",
    .algebra = GRAPH_IDEMPOTENT,   .infer = graph_infer_map,
    .samples = UNARY("ceil"),      .doc = "Smallest integral number not below x. StableHLO ceil.",
};

static const graph_op row_round = {
    PLAIN(round, 1, "x", TIR_ROUND),
    .aliases = "rint round_half_to_even",
    .dtypes = "float",
    .algebra = GRAPH_IDEMPOTENT,
    .infer = graph_infer_map,
    .samples = UNARY("round"),
    .doc = "Nearest integral number, halves to the even one. StableHLO round_nearest_even.",
};

static const graph_op row_trunc = {
    PLAIN(trunc, 1, "x", TIR_TRUNC),
    .aliases = "fix",
    .dtypes = "float",
    .algebra = GRAPH_IDEMPOTENT,
    .infer = graph_infer_map,
    .samples = UNARY("trunc"),
    .doc = "Nearest integral number towards zero. NumPy trunc.",
};

static const graph_op row_is_nan = {
    MAP(is_nan, 1, "x"), .dtypes = "float",          .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,   .samples = UNARY("is_nan"), .doc = "Is x NaN? Result bool. CHLO is_nan.",
};

static const graph_op row_is_inf = {
    MAP(is_inf, 1, "x"), .dtypes = "float",          .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,   .samples = UNARY("is_inf"), .doc = "Is x infinite, of either sign? Result bool. CHLO is_inf.",
};

static const graph_op row_is_finite = {
    MAP(is_finite, 1, "x"),        .dtypes = "float",
    .infer = graph_infer_compare,  GRAPH_NO_GRADIENT,
    .samples = UNARY("is_finite"), .doc = "Is x neither infinite nor NaN? Result bool. StableHLO is_finite.",
};

static const graph_op row_add = {
    PLAIN(add, 2, "a b", TIR_ADD),
    .dtypes = "number c64",
    .algebra = SEMIGROUP,
    .infer = graph_infer_map,
    .accuracy = {0.5, 0.5, 0},
    .samples = BINARY("add"),
    .doc = "a + b; integers wrap. StableHLO add.",
};

static const graph_op row_sub = {
    PLAIN(sub, 2, "a b", TIR_SUB),
    .aliases = "subtract",
    .dtypes = "number c64",
    .infer = graph_infer_map,
    .accuracy = {0.5, 0.5, 0},
    .samples = BINARY("sub"),
    .doc = "a - b; integers wrap. StableHLO subtract.",
};

static const graph_op row_mul = {
    PLAIN(mul, 2, "a b", TIR_MUL), .aliases = "multiply",    .linear = 3,
    .dtypes = "number c64",        .algebra = SEMIGROUP,     .infer = graph_infer_map,
    .accuracy = {0.5, 0.5, 0},     .samples = BINARY("mul"), .doc = "a * b; integers wrap. StableHLO multiply.",
};

static const graph_op row_div = {
    PLAIN(div, 2, "a b", TIR_DIV),
    .aliases = "divide true_divide",
    .linear = 1,
    .dtypes = "number c64",
    .infer = graph_infer_map,
    .accuracy = {0.5, 0.5, 0},
    .samples = BINARY("div"),
    .doc = "a / b; floats by IEEE 754; integers truncate, a / 0 = 0, lowest / -1 wraps. StableHLO divide.",
};

static const graph_op row_rem = {
    PLAIN(rem, 2, "a b", TIR_REM),
    .aliases = "fmod",
    .dtypes = "number",
    .infer = graph_infer_map,
    .samples = BINARY("rem"),
    .doc = "a - b * trunc(a / b), sign of a; floats as C fmod; integers: a rem 0 = 0. StableHLO remainder.",
};

static const graph_op row_mod = {
    MAP(mod, 2, "a b"),
    .aliases = "remainder",
    .dtypes = "number",
    .infer = graph_infer_map,
    .tolerance = 0.5,
    .samples = BINARY("mod"),
    .doc =
        "a - b * floor(a / b), sign of b; integers: a mod 0 = 0; floats: NaN for b = 0. NumPy mod, ONNX Mod (with fmod: rem).",
};

static const graph_op row_next_after = {
    MAP(next_after, 2, "a b"),
    .dtypes = "f16 bf16 f32 f64",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("next_after"),
    .doc =
        "The next number of the dtype from a towards b; b where they are equal; NaN if either is NaN. CHLO next_after.",
};

static const graph_op row_copy_sign = {
    MAP(copy_sign, 2, "a b"),
    .dtypes = "f16 bf16 f32 f64",
    .infer = graph_infer_map,
    .samples = BINARY("copy_sign"),
    .doc = "|a| with the sign of b, also of -0. NumPy copysign; C99.",
};

static const graph_op row_ldexp = {
    MAP(ldexp, 2, "x n"),
    .linear = 1,
    .dtypes = "f16 bf16 f32 f64",
    .infer = infer_ldexp,
    .accuracy = {0.5, 0.5, 0},
    .samples = "ldexp(T[17, 23], i32[17, 23] in -40..40)\nldexp(T[67], i64[67] in -2200..2200)\nldexp(T[], i32[])\n"
               "ldexp(T[67] in 1..2, i32[67] in -1080..-120)\nldexp(T[3, 0], u8[3, 0])\nldexp(T[67], i8[67])",
    .doc = "x * 2**n, rounded once, n of an integer dtype. C99 ldexp; NumPy ldexp.",
};

static const graph_op row_min = {
    PLAIN(min, 2, "a b", TIR_MIN),
    .aliases = "minimum",
    .dtypes = "number",
    .algebra = LATTICE,
    .infer = graph_infer_map,
    .samples = BINARY("min"),
    .doc = "Smaller of a and b; NaN if either is NaN; -0 is below +0. StableHLO minimum.",
};

static const graph_op row_max = {
    PLAIN(max, 2, "a b", TIR_MAX),
    .aliases = "maximum",
    .dtypes = "number",
    .algebra = LATTICE,
    .infer = graph_infer_map,
    .samples = BINARY("max"),
    .doc = "Larger of a and b; NaN if either is NaN; +0 is above -0. StableHLO maximum.",
};

static const graph_op row_eq = {
    PLAIN(eq, 2, "a b", TIR_EQ),
    .aliases = "equal",
    .dtypes = "any",
    .algebra = GRAPH_COMMUTES,
    .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("eq"),
    .doc = "a == b as bool; NaN equals nothing. StableHLO compare EQ.",
};

static const graph_op row_ne = {
    PLAIN(ne, 2, "a b", TIR_NE),
    .aliases = "not_equal",
    .dtypes = "any",
    .algebra = GRAPH_COMMUTES,
    .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("ne"),
    .doc = "a != b as bool; NaN differs from everything. StableHLO compare NE.",
};

static const graph_op row_lt = {
    PLAIN(lt, 2, "a b", TIR_LT),
    .aliases = "less",
    .dtypes = "number",
    .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("lt"),
    .doc = "a < b as bool; false where either is NaN. StableHLO compare LT.",
};

static const graph_op row_le = {
    PLAIN(le, 2, "a b", TIR_LE),
    .aliases = "less_equal less_or_equal",
    .dtypes = "number",
    .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("le"),
    .doc = "a <= b as bool; false where either is NaN. StableHLO compare LE.",
};

static const graph_op row_gt = {
    PLAIN(gt, 2, "a b", TIR_LT),  .reversed = true,
    .aliases = "greater",         .dtypes = "number",
    .infer = graph_infer_compare, GRAPH_NO_GRADIENT,
    .samples = BINARY("gt"),      .doc = "a > b as bool; false where either is NaN. StableHLO compare GT.",
};

static const graph_op row_ge = {
    PLAIN(ge, 2, "a b", TIR_LE),
    .reversed = true,
    .aliases = "greater_equal greater_or_equal",
    .dtypes = "number",
    .infer = graph_infer_compare,
    GRAPH_NO_GRADIENT,
    .samples = BINARY("ge"),
    .doc = "a >= b as bool; false where either is NaN. StableHLO compare GE.",
};

static const graph_op row_select = {
    MAP(select, 3, "condition a b"),
    .aliases = "where",
    .dtypes = "all",
    .infer = infer_select,
    .precision = GRAPH_FOLLOWS,
    .samples = CONDITION("select"),
    .doc = "condition ? a : b by elements; condition is bool. StableHLO select.",
};

static const graph_op row_clamp = {
    MAP(clamp, 3, "low x high"), .partial = partial_clamp,
    .aliases = "clip",           .dtypes = "number",
    .infer = graph_infer_map,    .precision = GRAPH_FOLLOWS,
    .samples = TERNARY("clamp"), .doc = "min(max(x, low), high); NaN if any is NaN. StableHLO clamp.",
};

static const graph_op row_cast = {
    MAP(cast, 1, "x"),
    .linear = 1,
    .dtypes = "any i4 u4 i2 u2 f4e2m1 f8e8m0 c64",
    .attribute = {{"dtype", GRAPH_ATTR_DTYPE, NULL, NULL, "element type of the result"},
                  {"saturate", GRAPH_ATTR_BOOL, NULL, "false",
                   "to a float of 8 bits: what is beyond its greatest number becomes that number"},
                  {"rounding", GRAPH_ATTR_ENUM, "nearest up down", "nearest",
                   "to f8e8m0: to the nearest power of two, halves up, or to the next one above or below"}},
    .infer = infer_cast,
    .operation = TIR_CAST,
    .tolerance = 0.5,
    .samples =
        "cast(T[17, 23], dtype=f32)\ncast(T[17, 23], dtype=f64)\ncast(T[17, 23], dtype=f16)\n"
        "cast(T[17, 23], dtype=bf16)\ncast(T[17, 23], dtype=bool)\ncast(T[17, 23], dtype=i8)\n"
        "cast(T[17, 23], dtype=u8)\ncast(T[17, 23], dtype=i32)\ncast(T[17, 23], dtype=i64)\n"
        "cast(T[17, 23], dtype=i16)\ncast(T[17, 23], dtype=u16)\ncast(T[17, 23], dtype=u32)\n"
        "cast(T[17, 23], dtype=u64)\ncast(T[17, 23], dtype=f8e4m3fn)\ncast(T[17, 23], dtype=f8e5m2)\n"
        "cast(T[17, 23], dtype=f8e4m3fnuz)\ncast(T[17, 23], dtype=f8e5m2fnuz)\n"
        "cast(T[17, 23], dtype=f8e4m3fn, saturate=true)\ncast(f32[17, 23], dtype=f8e5m2, saturate=true)\n"
        "cast(f32[17, 23], dtype=f8e4m3fnuz, saturate=true)\ncast(f64[17, 23], dtype=f8e5m2fnuz, saturate=true)\n"
        "cast(f16[17, 23], dtype=f8e5m2, saturate=true)\n"
        "cast(T[], dtype=i32)\ncast(T[3, 0, 2], dtype=f32)\ncast(T[2, 1, 3, 1, 2, 5], dtype=f32)",
    .doc =
        "x converted to another dtype, for every pair of them. To a float: one rounding, to nearest even; NaN stays "
        "NaN; what rounds beyond the greatest number becomes infinity, in the dtypes without infinities (f8e4m3fn, "
        "f8e4m3fnuz, f8e5m2fnuz) NaN, as infinity itself; -0 becomes 0 where there is none (fnuz). With saturate it "
        "becomes the greatest number of a float of 8 bits, as infinity does. Float "
        "to integer: truncated, then saturated; NaN gives 0. Integer to integer: modulo two to the number of bits. "
        "i4, u4, i2 and u2 are integers as others are. f4e2m1 has neither infinities nor NaN: what is beyond it becomes its greatest "
        "number, NaN 0. f8e8m0 has powers of two alone: after rounding, what is beyond the greatest becomes NaN or with saturate the greatest, and "
        "what is below the least, as 0 is, NaN or with saturate the least; NaN and numbers below 0 give NaN. A real number to c64 is its real part; of c64, real and imag take the parts. Bool to a number: 0 or 1; to bool: x != 0, true of NaN. To its own dtype: x. StableHLO convert, made total; "
        "saturate is that of ONNX Cast since version 24, rounding its round_mode.",
};

static const graph_op row_bit_cast = {
    MAP(bit_cast, 1, "x"),
    .aliases = "bitcast",
    .dtypes = "any",
    .attribute = {{"dtype", GRAPH_ATTR_DTYPE, NULL, NULL, "element type of the result"}},
    .infer = infer_bit_cast,
    GRAPH_NO_GRADIENT,
    .samples = "bit_cast(f32[17, 23], dtype=i32)\nbit_cast(i32[17, 23], dtype=f32)\nbit_cast(u8[67], dtype=i8)\n"
               "bit_cast(i8[3, 0, 2], dtype=u8)\nbit_cast(i64[5, 7], dtype=f64)\nbit_cast(f64[] in 1..2, dtype=f64)",
    .doc = "The bits of x as another dtype of as many bits; a NaN keeps being one, its bits may change. StableHLO "
           "bitcast_convert.",
};

const graph_op *const graph_ops_map[] = {
    &row_neg,   &row_abs,    &row_sign,   &row_sqrt,   &row_rsqrt,      &row_floor,     &row_ceil,
    &row_round, &row_trunc,  &row_is_nan, &row_is_inf, &row_is_finite,  &row_add,       &row_sub,
    &row_mul,   &row_div,    &row_rem,    &row_mod,    &row_next_after, &row_copy_sign, &row_ldexp,
    &row_min,   &row_max,    &row_eq,     &row_ne,     &row_lt,         &row_le,        &row_gt,
    &row_ge,    &row_select, &row_clamp,  &row_cast,   &row_bit_cast,   NULL,
};
