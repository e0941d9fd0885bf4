/* Elementary functions as maps. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_map.h"
#ifdef DLC_REFERENCE
#include "graph/special_reference.h"
#endif
#include "tir/math_special.h"

/* ---- scalars */

WIDENED(log2, tir_math_log_of(pool, 2, a))
WIDENED(log10, tir_math_log_of(pool, 10, a))
WIDENED(sinc, tir_math_sinc(pool, a))
WIDENED_BINARY(hypot, tir_math_hypot(pool, a, b))

/* max(a, b) + log(1 + exp(-|a - b|)); equal infinities have difference 0. */
static tir_expr log_add_exp(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_expr zero = tir_int(pool, tir_dtype_of(pool, a), 0), apart = tir_unary(pool, TIR_ABS, tir_sub(pool, a, b));
    apart = tir_select(pool, tir_eq(pool, a, b), zero, apart);
    tir_expr tail = tir_unary(pool, TIR_LOG1P, tir_unary(pool, TIR_EXP, tir_unary(pool, TIR_NEG, apart)));
    return tir_add(pool, tir_max(pool, a, b), tail);
}
WIDENED_BINARY(log_add_exp, log_add_exp(pool, a, b))

/* ---- derivatives that the scalars, which work on bits or by approximations, do not have */

static void partial_log2(graph_rule *rule) {
    const graph_id x = graph_rule_operand(rule, 0);
    rule->out[0] = graph_div(rule->g, graph_scalar_like(rule->g, x, 1.4426950408889634), x); /* 1/log(2) */
}
static void partial_log10(graph_rule *rule) {
    const graph_id x = graph_rule_operand(rule, 0);
    rule->out[0] = graph_div(rule->g, graph_scalar_like(rule->g, x, 0.4342944819032518), x); /* 1/log(10) */
}

/* ---- references */

#ifdef DLC_REFERENCE

static uint64_t power(double base, double exponent) {
    if (exponent < 0) {
        if (base == 1) return 1;
        if (base == -1) return fmod(exponent, 2) == 0 ? 1 : UINT64_MAX;
        return 0;
    }
    uint64_t result = 1, square = word(base);
    for (uint64_t n = word(exponent); n; n >>= 1, square *= square)
        if (n & 1) result *= square;
    return result;
}

REFERENCE(exp, exp(x[0]))
REFERENCE(expm1, expm1(x[0]))
REFERENCE(log, log(x[0]))
REFERENCE(log1p, log1p(x[0]))
REFERENCE(sin, sin(x[0]))
REFERENCE(cos, cos(x[0]))
REFERENCE(tan, tan(x[0]))
REFERENCE(asin, asin(x[0]))
REFERENCE(acos, acos(x[0]))
REFERENCE(atan, atan(x[0]))
/* In long double where math libraries have errors above one unit in the last place in f64. */
REFERENCE(sinh, (double)sinhl((long double)x[0]))
REFERENCE(cosh, (double)coshl((long double)x[0]))
REFERENCE(asinh, (double)asinhl((long double)x[0]))
REFERENCE(acosh, (double)acoshl((long double)x[0]))
REFERENCE(atanh, (double)atanhl((long double)x[0]))
REFERENCE(cbrt, (double)cbrtl((long double)x[0]))
REFERENCE(tanh, tanh(x[0]))
REFERENCE(logistic, (double)(1 / (1 + expl(-(long double)x[0]))))
REFERENCE(silu, x[0] == -INFINITY ? -0.0 : (double)((long double)x[0] / (1 + expl(-(long double)x[0]))))
REFERENCE(atan2, atan2(x[0], x[1]))
REFERENCE(pow, INTEGER(t, power(x[0], x[1]), pow(x[0], x[1])))

REFERENCE(exp2, (double)exp2l((long double)x[0]))
REFERENCE(exp10, (double)powl(10, (long double)x[0]))
REFERENCE(log2, (double)log2l((long double)x[0]))
REFERENCE(log10, (double)log10l((long double)x[0]))
REFERENCE(sinc, (double)special_sinc((long double)x[0]))
REFERENCE(hypot, (double)hypotl((long double)x[0], (long double)x[1]))
REFERENCE(log_add_exp, (double)special_log_add_exp((long double)x[0], (long double)x[1]))

#endif

/* ---- rows */

static const graph_op row_exp = {
    PLAIN(exp, 1, "x", TIR_EXP),
    .dtypes = "float c64",
    .infer = graph_infer_map,
    .accuracy = {2.3, 0.55, 0},
    .samples = UNARY("exp"),
    .doc = "e to the power x; of c64 e^real (cos imag + i sin imag). StableHLO exponential.",
};

static const graph_op row_expm1 = {
    PLAIN(expm1, 1, "x", TIR_EXPM1), .dtypes = "float",
    .infer = graph_infer_map,        .accuracy = {1.75, 0.9, 0},
    .samples = UNARY("expm1"),       .doc = "exp(x) - 1, accurate near zero. StableHLO exponential_minus_one.",
};

static const graph_op row_log = {
    PLAIN(log, 1, "x", TIR_LOG), .dtypes = "float",
    .infer = graph_infer_map,    .accuracy = {0.9, 0.55, 0},
    .samples = UNARY("log"),     .doc = "Natural logarithm; -inf at zero, NaN below. StableHLO log.",
};

static const graph_op row_log1p = {
    PLAIN(log1p, 1, "x", TIR_LOG1P), .dtypes = "float",
    .infer = graph_infer_map,        .accuracy = {1.65, 0.85, 0},
    .samples = UNARY("log1p"),       .doc = "log(1 + x), accurate near zero. StableHLO log_plus_one.",
};

static const graph_op row_sin = {
    PLAIN(sin, 1, "x", TIR_SIN), .dtypes = "float",       .infer = graph_infer_map,
    .accuracy = {1.6, 0.55, 0},  .samples = UNARY("sin"), .doc = "Sine of x radians. StableHLO sine.",
};

static const graph_op row_cos = {
    PLAIN(cos, 1, "x", TIR_COS), .dtypes = "float",       .infer = graph_infer_map,
    .accuracy = {1.6, 0.55, 0},  .samples = UNARY("cos"), .doc = "Cosine of x radians. StableHLO cosine.",
};

static const graph_op row_tan = {
    PLAIN(tan, 1, "x", TIR_TAN),
    .dtypes = "float",
    .infer = graph_infer_map,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .accuracy = {2.6, 0.6, 0},
    .samples = UNARY("tan"),
    .doc = "Tangent of x radians. StableHLO tan.",
};

static const graph_op row_asin = {
    PLAIN(asin, 1, "x", TIR_ASIN),
    .aliases = "arcsin",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {1.85, 0.55, 0},
    .samples = UNARY("asin"),
    .doc = "Arc sine, in radians; NaN beyond -1..1. CHLO asin.",
};

static const graph_op row_acos = {
    PLAIN(acos, 1, "x", TIR_ACOS),
    .aliases = "arccos",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {1.3, 0.55, 0},
    .samples = UNARY("acos"),
    .doc = "Arc cosine, in radians; NaN beyond -1..1. CHLO acos.",
};

static const graph_op row_atan = {
    PLAIN(atan, 1, "x", TIR_ATAN),
    .aliases = "arctan",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {1.6, 0.55, 0},
    .samples = UNARY("atan"),
    .doc = "Arc tangent, in radians. CHLO atan.",
};

static const graph_op row_sinh = {
    PLAIN(sinh, 1, "x", TIR_SINH), .dtypes = "float",        .infer = graph_infer_map,
    .accuracy = {0.65, 0.6, 0},    .samples = UNARY("sinh"), .doc = "Hyperbolic sine. CHLO sinh.",
};

static const graph_op row_cosh = {
    PLAIN(cosh, 1, "x", TIR_COSH), .dtypes = "float",        .infer = graph_infer_map,
    .accuracy = {0.51, 0.55, 0},   .samples = UNARY("cosh"), .doc = "Hyperbolic cosine. CHLO cosh.",
};

static const graph_op row_asinh = {
    PLAIN(asinh, 1, "x", TIR_ASINH),
    .aliases = "arcsinh",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.6, 0.6, 0},
    .samples = UNARY("asinh"),
    .doc = "Inverse hyperbolic sine. CHLO asinh.",
};

static const graph_op row_acosh = {
    PLAIN(acosh, 1, "x", TIR_ACOSH),
    .aliases = "arccosh",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 0.6, 0},
    .samples = UNARY("acosh"),
    .doc = "Inverse hyperbolic cosine; NaN below 1. CHLO acosh.",
};

static const graph_op row_atanh = {
    PLAIN(atanh, 1, "x", TIR_ATANH),
    .aliases = "arctanh",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.75, 0.6, 0},
    .samples = UNARY("atanh"),
    .doc = "Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond. CHLO atanh.",
};

static const graph_op row_cbrt = {
    PLAIN(cbrt, 1, "x", TIR_CBRT), .dtypes = "float",
    .infer = graph_infer_map,      .accuracy = {0.51, 0.7, 0},
    .samples = UNARY("cbrt"),      .doc = "Cube root, of negative numbers, too. StableHLO cbrt.",
};

static const graph_op row_tanh = {
    PLAIN(tanh, 1, "x", TIR_TANH), .dtypes = "float",        .infer = graph_infer_map,
    .accuracy = {3.75, 2.2, 0},    .samples = UNARY("tanh"), .doc = "Hyperbolic tangent. StableHLO tanh.",
};

static const graph_op row_logistic = {
    PLAIN(logistic, 1, "x", TIR_LOGISTIC),
    .aliases = "sigmoid expit",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {2.5, 2.5, 0},
    .samples = UNARY("logistic"),
    .doc = "1 / (1 + exp(-x)), accurate in both tails. StableHLO logistic.",
};

static const graph_op row_silu = {
    PLAIN(silu, 1, "x", TIR_SILU),
    .aliases = "swish",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {3.3, 4.5, 0},
    .samples = UNARY("silu"),
    .doc = "x*logistic(x), also called swish; 0 at -inf. f32 is within 4 units in the last place of the exact value. "
           "Elfwing, Uchibe, Doya 2017.",
};

static const graph_op row_atan2 = {
    PLAIN(atan2, 2, "y x", TIR_ATAN2),
    .aliases = "arctan2",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {1.6, 0.55, 0},
    .samples = BINARY("atan2"),
    .doc = "Angle of the point (x, y) in radians, in -pi..pi; as C99 atan2 at zeros and infinities. StableHLO atan2.",
};

static const graph_op row_pow = {
    PLAIN(pow, 2, "a b", TIR_POW),
    .aliases = "power float_power",
    .dtypes = "number",
    .infer = graph_infer_map,
    .accuracy = {0.51, 0.55, 0},
    .samples = BINARY("pow"),
    .doc = "a to the power b; floats as C99 pow; integers wrap, a negative exponent gives 1 / a**-b truncated, and 0 "
           "for a = 0. StableHLO power.",
};

static const graph_op row_exp2 = {
    PLAIN(exp2, 1, "x", TIR_EXP2), .dtypes = "float",        .infer = graph_infer_map,
    .accuracy = {1.3, 0.85, 0},    .samples = UNARY("exp2"), .doc = "2 to the power x; exact for integers. C99 exp2.",
};

static const graph_op row_exp10 = {
    PLAIN(exp10, 1, "x", TIR_EXP10), .dtypes = "float",         .infer = graph_infer_map,
    .accuracy = {1.3, 0.85, 0},      .samples = UNARY("exp10"), .doc = "10 to the power x. glibc exp10.",
};

static const graph_op row_log2 = {
    MAP(log2, 1, "x"),
    .partial = partial_log2,
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 2, 0},
    .samples = UNARY("log2"),
    .doc = "Logarithm to base 2; exact for powers of 2; -inf at zero, NaN below. C99 log2.",
};

static const graph_op row_log10 = {
    MAP(log10, 1, "x"),
    .partial = partial_log10,
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 2.5, 0},
    .samples = UNARY("log10"),
    .doc = "Logarithm to base 10; -inf at zero, NaN below. C99 log10.",
};

static const graph_op row_sinc = {
    MAP(sinc, 1, "x"),
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 4, 0},
    .samples = UNARY("sinc") "\nsinc(T[67] in -100..100)",
    .doc = "sin(pi*x) / (pi*x), 1 at zero. NumPy sinc.",
};

static const graph_op row_hypot = {
    MAP(hypot, 2, "a b"),
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 0.51, 0},
    .algebra = GRAPH_COMMUTES,
    .samples = BINARY("hypot"),
    .doc = "sqrt(a*a + b*b) without overflow on the way; infinite if either is, also beside NaN. C99 hypot.",
};

static const graph_op row_log_add_exp = {
    MAP(log_add_exp, 2, "a b"),
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {1.5, 1.2, 1},
    .algebra = GRAPH_COMMUTES,
    .samples = BINARY("log_add_exp"),
    .doc = "log(exp(a) + exp(b)) without overflow. NumPy logaddexp.",
};

const graph_op *const graph_ops_function[] = {
    &row_exp,   &row_expm1,    &row_log,   &row_log1p,       &row_sin,   &row_cos,   &row_tan,   &row_asin,
    &row_acos,  &row_atan,     &row_sinh,  &row_cosh,        &row_asinh, &row_acosh, &row_atanh, &row_cbrt,
    &row_tanh,  &row_logistic, &row_silu,  &row_atan2,       &row_pow,   &row_exp2,  &row_exp10, &row_log2,
    &row_log10, &row_sinc,     &row_hypot, &row_log_add_exp, NULL,
};
