/* Special functions as maps: of the error function's family, gamma, Bessel. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_map.h"
#ifdef DLC_REFERENCE
#include "graph/special_reference.h"
#endif
#include "tir/math_special.h"

/* ---- scalars */

SCALAR(normal_cdf) {
    return tir_unary(pool, attribute[0].integer ? TIR_NORMAL_TAIL : TIR_NORMAL_CDF, x[0]);
}

WIDENED(erfinv, tir_math_erfinv(pool, a))
WIDENED(lgamma, tir_math_lgamma(pool, a))
WIDENED(digamma, tir_math_digamma(pool, a))
WIDENED(bessel_i0, tir_math_bessel(pool, 0, false, a))
WIDENED(bessel_i0e, tir_math_bessel(pool, 0, true, a))
WIDENED(bessel_i1, tir_math_bessel(pool, 1, false, a))
WIDENED(bessel_i1e, tir_math_bessel(pool, 1, true, a))

/* ---- derivatives (Abramowitz & Stegun 1964, 6.3.1, 9.6.27, 9.6.28) */

static void partial_erfinv(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id y = graph_rule_result(rule, 0);
    rule->out[0] = graph_mul_number(g, graph_exp(g, graph_mul(g, y, y)), 0.886226925452758); /* sqrt(pi)/2 */
}

static graph_id function_of(graph_rule *rule, const char *name, graph_id x) {
    return graph_emit_with(rule->g, name, 1, &x, 0, NULL);
}

static void partial_lgamma(graph_rule *rule) {
    rule->out[0] = function_of(rule, "digamma", graph_rule_operand(rule, 0));
}

/* i0' = i1, i1' = i0 - i1/x, which is 1/2 at 0; with the factor exp(-|x|) also minus the function, with the sign of x. */
static void partial_bessel(graph_rule *rule, const char *i0, const char *i1, bool first, bool scaled) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0), zero = graph_scalar_like(g, x, 0),
                   half = graph_scalar_like(g, x, 0.5);
    const graph_id a = function_of(rule, i0, x), b = function_of(rule, i1, x), at_zero = graph_eq(g, x, zero);
    graph_id d = b;
    if (first) d = graph_sub(g, a, graph_select(g, at_zero, half, graph_div(g, b, graph_select(g, at_zero, half, x))));
    rule->out[0] = scaled ? graph_sub(g, d, graph_mul(g, graph_sign(g, x), first ? b : a)) : d;
}
static void partial_bessel_i0(graph_rule *rule) {
    partial_bessel(rule, "bessel_i0", "bessel_i1", false, false);
}
static void partial_bessel_i0e(graph_rule *rule) {
    partial_bessel(rule, "bessel_i0e", "bessel_i1e", false, true);
}
static void partial_bessel_i1(graph_rule *rule) {
    partial_bessel(rule, "bessel_i0", "bessel_i1", true, false);
}
static void partial_bessel_i1e(graph_rule *rule) {
    partial_bessel(rule, "bessel_i0e", "bessel_i1e", true, true);
}

/* ---- references, in long double */

#ifdef DLC_REFERENCE

REFERENCE(erf, erf(x[0]))
REFERENCE(normal_cdf, (double)special_normal_cdf((long double)x[0]))
REFERENCE(erfc, (double)erfcl((long double)x[0]))
REFERENCE(lgamma, (double)lgammal((long double)x[0]))

REFERENCE(erfinv, (double)special_erfinv((long double)x[0]))
REFERENCE(digamma, (double)special_digamma((long double)x[0]))
REFERENCE(bessel_i0, (double)special_bessel(0, 0, (long double)x[0]))
REFERENCE(bessel_i0e, (double)special_bessel(0, 1, (long double)x[0]))
REFERENCE(bessel_i1, (double)special_bessel(1, 0, (long double)x[0]))
REFERENCE(bessel_i1e, (double)special_bessel(1, 1, (long double)x[0]))

#endif

/* ---- rows */

static const graph_op row_erf = {
    PLAIN(erf, 1, "x", TIR_ERF),
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {2.8, 1.2, 0},
    .samples = UNARY("erf"),
    .doc = "Error function, 2/sqrt(pi) times the integral of exp(-t*t) over 0..x. CHLO erf.",
};

static const graph_op row_normal_cdf = {
    MAP(normal_cdf, 1, "x"),
    .aliases = "ndtr",
    .dtypes = "float",
    .attribute = {{"precise", GRAPH_ATTR_BOOL, NULL, "true",
                   "accurate in the lower tail; false: f32 only to 1.8e-7, in a third of the time"}},
    .infer = graph_infer_map,
    .accuracy = {4.5, 6.5, 0},
    .samples = UNARY("normal_cdf") "\nnormal_cdf(T[67] in -30..30 special)\nnormal_cdf(T[67] in 0..6, precise=false)",
    .doc =
        "Normal distribution function, erfc(-x / sqrt(2)) / 2, accurate in its lower tail. With fused multiply-adds f32 is within 4 units in the last place. SciPy ndtr.",
};

static const graph_op row_erfc = {
    PLAIN(erfc, 1, "x", TIR_ERFC),
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {4.8, 5.2, 0},
    .samples = UNARY("erfc") "\nerfc(T[67] in -30..30)",
    .doc =
        "1 - erf(x), accurate in its upper tail. With fused multiply-adds f32 is within 4 units in the last place. C99 erfc.",
};

static const graph_op row_erfinv = {
    MAP(erfinv, 1, "x"),
    .partial = partial_erfinv,
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.6, 5.5, 0},
    .samples = UNARY("erfinv") "\nerfinv(T[67] in -1..1 special)",
    .doc = "The x of which erf is that; infinite at -1 and 1, NaN beyond. SciPy erfinv.",
};

static const graph_op row_lgamma = {
    MAP(lgamma, 1, "x"),
    .partial = partial_lgamma,
    .aliases = "gammaln",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.6, 64, 1},
    .samples = UNARY("lgamma") "\nlgamma(T[67] in -30..300 special)",
    .doc = "Logarithm of |gamma(x)|; infinite at 0 and negative integers. C99 lgamma.",
};

static const graph_op row_digamma = {
    MAP(digamma, 1, "x"),
    .aliases = "psi",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.51, 64, 1},
    .samples = UNARY("digamma") "\ndigamma(T[67] in -30..300 special)",
    .doc =
        "Derivative of the logarithm of gamma(x); -inf at +0, inf at -0, NaN at negative integers and -inf. SciPy digamma.",
};

static const graph_op row_bessel_i0 = {
    MAP(bessel_i0, 1, "x"),
    .partial = partial_bessel_i0,
    .aliases = "i0",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.75, 5.5, 0},
    .samples = UNARY("bessel_i0") "\nbessel_i0(T[67] in -30..30)",
    .doc = "Modified Bessel function of the first kind, order 0. NumPy i0.",
};

static const graph_op row_bessel_i0e = {
    MAP(bessel_i0e, 1, "x"),
    .partial = partial_bessel_i0e,
    .aliases = "i0e",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.75, 4.5, 0},
    .samples = UNARY("bessel_i0e") "\nbessel_i0e(T[67] in -30..30)",
    .doc = "bessel_i0(x) * exp(-|x|). SciPy i0e.",
};

static const graph_op row_bessel_i1 = {
    MAP(bessel_i1, 1, "x"),
    .partial = partial_bessel_i1,
    .aliases = "i1",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.6, 5.5, 0},
    .samples = UNARY("bessel_i1") "\nbessel_i1(T[67] in -30..30)",
    .doc = "Modified Bessel function of the first kind, order 1. SciPy i1.",
};

static const graph_op row_bessel_i1e = {
    MAP(bessel_i1e, 1, "x"),
    .partial = partial_bessel_i1e,
    .aliases = "i1e",
    .dtypes = "float",
    .infer = graph_infer_map,
    .accuracy = {0.6, 4, 0},
    .samples = UNARY("bessel_i1e") "\nbessel_i1e(T[67] in -30..30)",
    .doc = "bessel_i1(x) * exp(-|x|). SciPy i1e; CHLO bessel_i1e.",
};

const graph_op *const graph_ops_special[] = {
    &row_erf,       &row_normal_cdf, &row_erfc,      &row_erfinv,     &row_lgamma, &row_digamma,
    &row_bessel_i0, &row_bessel_i0e, &row_bessel_i1, &row_bessel_i1e, NULL,
};
