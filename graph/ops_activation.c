/* Activations and gated units: maps only. In f16 and bf16 they compute in f32 and round once. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

#define ACTIVATION(name) \
    static graph_id activate_##name(graph *g, graph_id x, __attribute__((unused)) const graph_attribute *attribute)
#define PARAMETER(i) (attribute[i].number)

static graph_id zero_like(graph *g, graph_id x) {
    return graph_full_like(g, x, 0);
}

ACTIVATION(relu) {
    return graph_max(g, x, graph_scalar_like(g, x, 0));
}

ACTIVATION(relu6) {
    return graph_clamp(g, graph_scalar_like(g, x, 0), x, graph_scalar_like(g, x, 6));
}

ACTIVATION(leaky_relu) {
    graph_id negative = graph_lt(g, x, graph_scalar_like(g, x, 0));
    return graph_select(g, negative, graph_mul_number(g, x, PARAMETER(0)), x);
}

ACTIVATION(elu) {
    graph_id negative = graph_lt(g, x, graph_scalar_like(g, x, 0));
    return graph_select(g, negative, graph_mul_number(g, graph_expm1(g, x), PARAMETER(0)), x);
}

ACTIVATION(gelu) {
    /* so that a gate of 0 gives 0, also for x = -inf */
    graph_id factor = graph_max(g, x, graph_scalar_like(g, x, -40));
    if (!attribute[0].integer) return graph_mul(g, factor, graph_normal_cdf(g, x));
    /* (1 + tanh(u)) / 2 = logistic(2u) with u = sqrt(2/pi) (x + 0.044715 x^3) */
    graph_id cubic = graph_add_number(g, graph_mul_number(g, graph_mul(g, x, x), 2 * 0.79788456080286535588 * 0.044715),
                                      2 * 0.79788456080286535588);
    return graph_mul(g, factor, graph_logistic(g, graph_mul(g, x, cubic)));
}

ACTIVATION(hard_sigmoid) {
    graph_id line = graph_add_number(g, graph_mul_number(g, x, PARAMETER(0)), PARAMETER(1));
    return graph_clamp(g, graph_scalar_like(g, x, 0), line, graph_scalar_like(g, x, 1));
}

/* The gate is limited to 0..1 before the product, and x to at least -3: no product overflows or is infinity times 0. */
ACTIVATION(hard_swish) {
    graph_id gate = graph_clamp(g, graph_scalar_like(g, x, 0), graph_add_number(g, x, 3), graph_scalar_like(g, x, 6));
    gate = graph_mul_number(g, gate, 1.0 / 6); /* 6 becomes exactly 1 */
    return graph_mul(g, graph_max(g, x, graph_scalar_like(g, x, -3)), gate);
}

/* log(1 + exp(-|x|)) + max(x, 0) neither overflows nor cancels. */
ACTIVATION(softplus) {
    graph_id tail = graph_log1p(g, graph_exp(g, graph_neg(g, graph_abs(g, x))));
    return graph_add(g, graph_max(g, x, graph_scalar_like(g, x, 0)), tail);
}

ACTIVATION(softsign) {
    return graph_div(g, x, graph_add_number(g, graph_abs(g, x), 1));
}
ACTIVATION(thresholded_relu) {
    return graph_select(g, graph_gt(g, x, graph_scalar_like(g, x, PARAMETER(0))), x, zero_like(g, x));
}
ACTIVATION(shrink) {
    const double lambda = PARAMETER(0), bias = PARAMETER(1);
    graph_id high = graph_select(g, graph_gt(g, x, graph_scalar_like(g, x, lambda)), graph_add_number(g, x, -bias),
                                 zero_like(g, x));
    return graph_select(g, graph_lt(g, x, graph_scalar_like(g, x, -lambda)), graph_add_number(g, x, bias), high);
}
ACTIVATION(celu) {
    const double alpha = PARAMETER(0);
    graph_id low = graph_mul_number(g, graph_expm1(g, graph_div(g, x, graph_scalar_like(g, x, alpha))), alpha);
    return graph_select(g, graph_lt(g, x, graph_scalar_like(g, x, 0)), low, x);
}
ACTIVATION(selu) {
    const double alpha = PARAMETER(0), gamma = PARAMETER(1);
    graph_id low = graph_mul_number(g, graph_expm1(g, x), alpha * gamma);
    return graph_select(g, graph_lt(g, x, graph_scalar_like(g, x, 0)), low, graph_mul_number(g, x, gamma));
}
/* x tanh(log(1 + e)) = x e (e + 2) / (e^2 + 2e + 2) with e = exp(x), and x for large x. With e = h^2, one factor h is multiplied
 * last, so that denormal results are rounded once. For very negative x, and -inf, the result is -0. */
ACTIVATION(mish) {
    enum { LARGE = 20, LOWEST = -2000 };
    x = graph_max(g, x, graph_scalar_like(g, x, LOWEST));
    graph_id h = graph_exp(g, graph_mul_number(g, graph_min(g, x, graph_scalar_like(g, x, LARGE)), 0.5));
    graph_id e = graph_mul(g, h, h), two_more = graph_add_number(g, e, 2);
    graph_id ratio = graph_div(g, graph_mul(g, h, two_more), graph_add_number(g, graph_mul(g, e, two_more), 2));
    return graph_mul(g, graph_mul(g, x, ratio), h);
}
/* silu(alpha*x)/alpha, which has the right limits and keeps tiny results; x if alpha*x may overflow. */
ACTIVATION(quick_gelu) {
    const double alpha = PARAMETER(0);
    if (alpha == 0) return graph_mul_number(g, x, 0.5);
    graph_id scaled = graph_mul_number(g, x, alpha);
    graph_id y = graph_mul_number(g, graph_silu(g, scaled), 1 / alpha);
    return graph_select(g, graph_gt(g, scaled, graph_scalar_like(g, scaled, 64)), x, y);
}
/* min(x, 0) - log(1 + exp(-|x|)), which neither overflows nor cancels. */
ACTIVATION(log_sigmoid) {
    graph_id tail = graph_log1p(g, graph_exp(g, graph_neg(g, graph_abs(g, x))));
    return graph_sub(g, graph_min(g, x, graph_scalar_like(g, x, 0)), tail);
}
ACTIVATION(hard_tanh) {
    return graph_clamp(g, graph_scalar_like(g, x, PARAMETER(0)), x, graph_scalar_like(g, x, PARAMETER(1)));
}
ACTIVATION(tanh_shrink) {
    return graph_sub(g, x, graph_tanh(g, x));
}

static void infer_same(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
}

/* ---- prelu: a slope that broadcasts to x */

static void infer_prelu(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *slope = &infer->operand[1];
    graph_infer_same_dtype(infer, 0, 2);
    if (slope->rank > x->rank)
        graph_infer_fail(infer, "slope has rank %d, expected at most that of x, %d", slope->rank, x->rank);
    for (int i = 0; i < slope->rank; i++) {
        if (tir_is_number(infer->g->pool, slope->dim[i], 1)) continue;
        graph_infer_equal(infer, slope->dim[i], x->dim[x->rank - slope->rank + i],
                          "dimensions of slope other than 1 and the last ones of x");
    }
    infer->result[0] = *x;
}

static void expand_prelu(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    graph_id x = graph_widen(g, e->input[0]);
    graph_id slope = graph_broadcast_to(g, graph_widen(g, e->input[1]), shape.rank, shape.dim);
    graph_id below = graph_lt(g, x, graph_scalar_like(g, x, 0));
    e->result[0] = graph_cast(g, graph_select(g, below, graph_mul(g, x, slope), x), shape.dtype);
}

/* ---- glu: the first half along an axis times a function of the second one */

enum { GLU_AXIS, GLU_GATE };
enum { GATE_LOGISTIC, GATE_SILU, GATE_GELU, GATE_RELU, GATE_NONE };

static void infer_glu(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    int axis = graph_infer_axis(infer, infer->attribute[GLU_AXIS].integer, x->rank, "axis");
    tir_expr two = tir_index(pool, 2);
    graph_infer_equal(infer, tir_rem(pool, x->dim[axis], two), tir_index(pool, 0), "the axis' size modulo 2, and 0,");
    infer->result[0] = *x;
    infer->result[0].dim[axis] = tir_div(pool, x->dim[axis], two);
}

static void expand_glu(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int axis = graph_axis_of(e->attribute[GLU_AXIS].integer, shape.rank);
    tir_expr none = tir_index(g->pool, 0), half = tir_div(g->pool, shape.dim[axis], tir_index(g->pool, 2));
    graph_id x = graph_widen(g, e->input[0]);
    graph_id value = graph_slice_axis(g, x, axis, none, half);
    graph_id gate = graph_slice_axis(g, x, axis, half, tir_add(g->pool, half, half));
    switch (e->attribute[GLU_GATE].integer) {
    case GATE_LOGISTIC: gate = graph_logistic(g, gate); break;
    case GATE_SILU: gate = graph_silu(g, gate); break;
    case GATE_GELU:
        gate = graph_mul(g, graph_max(g, gate, graph_scalar_like(g, gate, -40)), graph_normal_cdf(g, gate));
        break;
    case GATE_RELU: gate = graph_max(g, gate, graph_scalar_like(g, gate, 0)); break;
    default: break;
    }
    e->result[0] = graph_cast(g, graph_mul(g, value, gate), shape.dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

#define NUMBER(name, expression)                                                                      \
    static double number_##name(double x, __attribute__((unused)) const graph_attribute *attribute) { \
        return expression;                                                                            \
    }
static double bounded(double x, double low, double high) {
    return isnan(x) ? x : x < low ? low : x > high ? high : x;
}
NUMBER(relu, isnan(x) || x > 0 ? x : 0)
NUMBER(relu6, bounded(x, 0, 6))
NUMBER(leaky_relu, x < 0 ? PARAMETER(0) * x : x)
NUMBER(elu, x < 0 ? PARAMETER(0) * expm1(x) : x)
NUMBER(gelu, x == -INFINITY         ? -0.0
             : attribute[0].integer ? 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                                    : 0.5 * x * erfc(-x / sqrt(2)))
NUMBER(hard_sigmoid, bounded(PARAMETER(0) * x + PARAMETER(1), 0, 1))
NUMBER(hard_swish, x <= -3 ? -0.0 : x * (bounded(x + 3, 0, 6) / 6))
NUMBER(softplus, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
NUMBER(softsign, x / (1 + fabs(x)))
NUMBER(thresholded_relu, x > PARAMETER(0) ? x : 0)
NUMBER(shrink, x<-PARAMETER(0) ? x + PARAMETER(1) : x> PARAMETER(0) ? x - PARAMETER(1) : 0)
NUMBER(celu, x < 0 ? PARAMETER(0) * expm1(x / PARAMETER(0)) : x)
NUMBER(selu, PARAMETER(1) * (x < 0 ? PARAMETER(0) * expm1(x) : x))
NUMBER(mish, x == -INFINITY ? -0.0 : x * tanh(log1p(exp(x))))
NUMBER(quick_gelu, PARAMETER(0) * x == -INFINITY ? -0.0 : x / (1 + exp(-PARAMETER(0) * x)))
NUMBER(log_sigmoid, (x < 0 ? x : 0) - log1p(exp(-fabs(x))))
NUMBER(hard_tanh, fmin(fmax(x, PARAMETER(0)), PARAMETER(1)))
NUMBER(tanh_shrink, x - tanh(x))

static void reference_prelu(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *slope = &r->operand[1];
    int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, at) {
        for (int i = 0; i < slope->rank; i++) from[i] = slope->dim[i] == 1 ? 0 : at[x->rank - slope->rank + i];
        double value = x->data[graph_reference_at(x, at)];
        r->result[0].data[graph_reference_at(x, at)] =
            value < 0 ? value * slope->data[graph_reference_at(slope, from)] : value;
    }
}

static void reference_glu(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t at[DLC_MAX_RANK] = {0};
    const int axis = graph_axis_of(r->attribute[GLU_AXIS].integer, x->rank);
    GRAPH_REFERENCE_EACH(y, at) {
        int64_t from[DLC_MAX_RANK];
        for (int i = 0; i < x->rank; i++) from[i] = at[i];
        double value = x->data[graph_reference_at(x, from)];
        from[axis] += y->dim[axis];
        double t = x->data[graph_reference_at(x, from)], gate = t;
        switch (r->attribute[GLU_GATE].integer) {
        case GATE_LOGISTIC: gate = 1 / (1 + exp(-t)); break;
        case GATE_SILU: gate = t / (1 + exp(-t)); break;
        case GATE_GELU: gate = 0.5 * t * erfc(-t / sqrt(2.0)); break;
        case GATE_RELU: gate = t > 0 ? t : 0; break;
        default: break;
        }
        y->data[graph_reference_at(y, at)] = value * gate;
    }
}

#endif

/* ---- derivatives that are shorter than those of the expansions, or otherwise chosen */

static void partial_relu(graph_rule *rule) {
    const graph_id x = graph_rule_operand(rule, 0);
    rule->out[0] = graph_gt(rule->g, x, graph_scalar_like(rule->g, x, 0));
}

static void partial_softplus(graph_rule *rule) {
    rule->out[0] = graph_logistic(rule->g, graph_rule_operand(rule, 0));
}

/* Of f p(x), f = x: p + f p'; for p = logistic(u), p' = p (1 - p) u'. */
static void partial_gelu(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0), factor = graph_max(g, x, graph_scalar_like(g, x, -40));
    const graph_id square = graph_mul(g, x, x);
    graph_id p, density;
    if (rule->attribute[0].integer) {
        const double a = 2 * 0.79788456080286535588, b = a * 0.044715;
        p = graph_logistic(g, graph_mul(g, x, graph_add_number(g, graph_mul_number(g, square, b), a)));
        const graph_id slope = graph_add_number(g, graph_mul_number(g, square, 3 * b), a);
        density = graph_mul(g, graph_mul(g, p, graph_sub(g, graph_scalar_like(g, x, 1), p)), slope);
    } else {
        p = graph_normal_cdf(g, x);
        density =
            graph_mul_number(g, graph_exp(g, graph_mul_number(g, square, -0.5)), 0.3989422804014327); /* 1/sqrt(2 pi) */
    }
    rule->out[0] = graph_add(g, p, graph_mul(g, factor, density));
}

/* ---- rows */

#define NONE \
    { 0 }
#define REAL(name_, initial_, doc_) \
    { name_, GRAPH_ATTR_FLOAT, NULL, initial_, doc_ }
#define APPROXIMATE \
    { "approximate", GRAPH_ATTR_ENUM, "none tanh", "none", "none: by erf; tanh: the approximation by tanh" }
#define SAMPLES(name, range) \
    name "(T[17, 23]" range ")\n" name "(T[])\n" name "(T[1])\n" name "(T[3, 0, 2])\n" name "(T[2, 1, 3, 1, 2, 5])"

/* name, dtypes, derivative (NULL: that of the expansion), mixed precision, tolerance in ulp, samples, doc, attributes */
#define ACTIVATION_TABLE(X)                                                                                           \
    X(relu, "number", partial_relu, GRAPH_FOLLOWS, 0, SAMPLES("relu", ""), "max(x, 0); NaN stays NaN. ONNX Relu.",    \
      NONE)                                                                                                           \
    X(relu6, "number", NULL, GRAPH_FOLLOWS, 0, SAMPLES("relu6", ""),                                                  \
      "min(max(x, 0), 6); NaN stays NaN. PyTorch ReLU6.", NONE)                                                       \
    X(leaky_relu, "float", NULL, GRAPH_WIDE, 2, SAMPLES("leaky_relu", "") "\nleaky_relu(T[67], slope=0.3)",           \
      "x < 0 ? slope*x : x. ONNX LeakyRelu.", REAL("slope", "0.01", "factor of negative x"))                          \
    X(elu, "float", NULL, GRAPH_WIDE, 5, SAMPLES("elu", "") "\nelu(T[67], alpha=0.7)",                                \
      "x < 0 ? alpha*(exp(x) - 1) : x. ONNX Elu.", REAL("alpha", "1.0", "what -y tends to for lowest x"))             \
    X(gelu, "float", partial_gelu, GRAPH_WIDE, 64,                                                                    \
      "gelu(T[17, 23] in -2..6)\ngelu(T[] in 0..1)\ngelu(T[3, 0, 2])\ngelu(T[67] in -2..6, approximate=tanh)",        \
      "x*Phi(x), Phi the normal distribution function: 0.5*x*(1 + erf(x/sqrt(2))), or approximately "                 \
      "0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3))). Its error is small beside 1 (exact and in f32: 5 units in "   \
      "the last place, or beside larger results), not beside the tiny results of far negative x. ONNX Gelu; "         \
      "Hendrycks and Gimpel 2016.",                                                                                   \
      APPROXIMATE)                                                                                                    \
    X(hard_sigmoid, "float", NULL, GRAPH_WIDE, 16,                                                                    \
      SAMPLES("hard_sigmoid", " in -2..6") "\nhard_sigmoid(T[67] in -2..6, alpha=0.125, beta=0.25)",                  \
      "min(max(alpha*x + beta, 0), 1). ONNX HardSigmoid.", REAL("alpha", "0.2", "slope"),                             \
      REAL("beta", "0.5", "value at 0"))                                                                              \
    X(hard_swish, "float", NULL, GRAPH_WIDE, 4, SAMPLES("hard_swish", ""),                                            \
      "x*min(max(x + 3, 0), 6)/6; -0 at -inf. ONNX HardSwish.", NONE)                                                 \
    X(softplus, "float", partial_softplus, GRAPH_WIDE, 6, SAMPLES("softplus", ""),                                    \
      "log(1 + exp(x)), without overflow. ONNX Softplus.", NONE)                                                      \
    X(softsign, "float", NULL, GRAPH_WIDE, 4, SAMPLES("softsign", " in -3..6"), "x/(1 + |x|). ONNX Softsign.", NONE)  \
    X(thresholded_relu, "float", NULL, GRAPH_WIDE, 0,                                                                 \
      SAMPLES("thresholded_relu", " in -3..6") "\nthresholded_relu(T[9], alpha=0.25)",                                \
      "x > alpha ? x : 0. ONNX ThresholdedRelu.", REAL("alpha", "1.0", "greatest x that becomes 0"))                  \
    X(shrink, "float", NULL, GRAPH_WIDE, 2,                                                                           \
      SAMPLES("shrink", " in -3..6") "\nshrink(T[67] in -3..3, lambda=1.0, bias=1.0)",                                \
      "x < -lambda ? x + bias : x > lambda ? x - bias : 0: hard without bias, soft with bias lambda. ONNX Shrink.",   \
      REAL("lambda", "0.5", "what is not beyond it becomes 0"), REAL("bias", "0.0", "what the rest moves towards 0")) \
    X(celu, "float", NULL, GRAPH_WIDE, 16, SAMPLES("celu", " in -3..6") "\ncelu(T[67] in -3..3, alpha=0.7)",          \
      "x < 0 ? alpha*(exp(x/alpha) - 1) : x. ONNX Celu; Barron 2017.",                                                \
      REAL("alpha", "1.0", "what -y tends to for lowest x"))                                                          \
    X(selu, "float", NULL, GRAPH_WIDE, 16,                                                                            \
      SAMPLES("selu", " in -3..6") "\nselu(T[67] in -3..3, alpha=0.7, gamma=2.0)",                                    \
      "gamma*(x < 0 ? alpha*(exp(x) - 1) : x). ONNX Selu; Klambauer et al. 2017.",                                    \
      REAL("alpha", "1.6732632423543772", "what -y/gamma tends to for lowest x"),                                     \
      REAL("gamma", "1.0507009873554805", "slope of positive x"))                                                     \
    X(mish, "float", NULL, GRAPH_WIDE, 16, SAMPLES("mish", " in -3..6") "\nmish(T[67] in -120..20)",                  \
      "x*tanh(log(1 + exp(x))); -0 at -inf. ONNX Mish; Misra 2019.", NONE)                                            \
    X(quick_gelu, "float", NULL, GRAPH_WIDE, 16,                                                                      \
      SAMPLES("quick_gelu", " in -3..6") "\nquick_gelu(T[67] in -2..4, alpha=1.0)",                                   \
      "x*logistic(alpha*x); at infinities its limits. Hendrycks and Gimpel 2016.",                                    \
      REAL("alpha", "1.702", "steepness"))                                                                            \
    X(log_sigmoid, "float", NULL, GRAPH_WIDE, 16, SAMPLES("log_sigmoid", " in -3..6"),                                \
      "log(logistic(x)). PyTorch LogSigmoid.", NONE)                                                                  \
    X(hard_tanh, "float", NULL, GRAPH_FOLLOWS, 1,                                                                     \
      SAMPLES("hard_tanh", " in -3..6") "\nhard_tanh(T[67] in -3..3, low=-0.5, high=2.0)",                            \
      "min(max(x, low), high). PyTorch Hardtanh.", REAL("low", "-1.0", "least result"),                               \
      REAL("high", "1.0", "greatest"))                                                                                \
    X(tanh_shrink, "float", NULL, GRAPH_WIDE, 4096, SAMPLES("tanh_shrink", " in -3..6"),                              \
      "x - tanh(x), computed so: exact to units of the last place of x, not of the result. PyTorch Tanhshrink.", NONE)

#define X(name_, dtypes_, partial_, precision_, tolerance_, samples_, doc_, ...)                                      \
    static void expand_##name_(graph_expand *e) {                                                                     \
        dlc_dtype dtype = graph_shape_of(e->g, e->input[0])->dtype;                                                   \
        e->result[0] = graph_cast(e->g, activate_##name_(e->g, graph_widen(e->g, e->input[0]), e->attribute), dtype); \
    }
ACTIVATION_TABLE(X)
#undef X
#ifdef DLC_REFERENCE
#define X(name_, dtypes_, partial_, precision_, tolerance_, samples_, doc_, ...)        \
    static void reference_##name_(const graph_reference *r) {                           \
        for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)              \
            r->result[0].data[i] = number_##name_(r->operand[0].data[i], r->attribute); \
    }
ACTIVATION_TABLE(X)
#undef X
#endif

#define FORM(name_, inputs_, operands_, dtypes_, tolerance_) \
    COMPOSITE_ROW(name_, inputs_, inputs_, 1, operands_, dtypes_), .tolerance = tolerance_

#define X(name_, dtypes_, partial_, precision_, tolerance_, samples_, doc_, ...)   \
    static const graph_op row_##name_ = {FORM(name_, 1, "x", dtypes_, tolerance_), \
                                         .attribute = {__VA_ARGS__},               \
                                         .partial = partial_,                      \
                                         .precision = precision_,                  \
                                         .infer = infer_same,                      \
                                         .samples = samples_,                      \
                                         .doc = doc_,                              \
                                         .bound = GRAPH_REFERENCE(graph_bound_map)};
ACTIVATION_TABLE(X)
#undef X

static const graph_op row_prelu = {
    FORM(prelu, 2, "x slope", "float", 2),
    .infer = infer_prelu,
    .samples = "prelu(T[5, 7], T[7])\nprelu(T[2, 3, 5, 4], T[3, 1, 1])\nprelu(T[13], T[])\nprelu(T[3, 0], T[1])",
    .doc = "x < 0 ? slope*x : x; slope broadcasts to x. ONNX PRelu; He et al. 2015.",
};

static const graph_op row_glu = {
    FORM(glu, 1, "x", "float", 32),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis that is halved"},
                  {"gate", GRAPH_ATTR_ENUM, "logistic silu gelu relu none", "logistic", "function of the gate"}},
    .infer = infer_glu,
    .samples = "glu(T[5, 14])\nglu(T[6, 7], axis=0, gate=silu)\nglu(T[2, 10] in -2..4, gate=gelu)\n"
               "glu(T[2, 10], gate=relu)\nglu(T[2, 4, 3], axis=-2, gate=none)\nglu(T[0, 4])",
    .doc =
        "a*gate(b) for the first half a and the second half b of x along axis: GLU, SwiGLU (silu), GEGLU (gelu), ReGLU, "
        "bilinear (none). Dauphin et al. 2017; Shazeer 2020.",
};

#define X(name_, dtypes_, partial_, precision_, tolerance_, samples_, doc_, ...) &row_##name_,
const graph_op *const graph_ops_activation[] = {ACTIVATION_TABLE(X) & row_prelu, &row_glu, NULL};
#undef X
