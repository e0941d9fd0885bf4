/* Elementwise functions that are not a single expression: with two results, or by loops until every element is done. Composites
 * of other rows; operands broadcast. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include "graph/special_reference.h"

#include <math.h>
#endif

/* ---- shapes */

/* Infers the result's shape from two operands of one dtype, which broadcast as in NumPy. */
static void infer_broadcast(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0], *b = &infer->operand[1];
    graph_infer_same_dtype(infer, 0, 2);
    if (a->rank < b->rank) {
        const graph_shape *other = a;
        a = b;
        b = other;
    }
    infer->result[0] = *a;
    for (int i = 0; i < b->rank; i++) {
        tir_expr *to = &infer->result[0].dim[a->rank - b->rank + i], one = tir_index(infer->g->pool, 1);
        if (*to == one)
            *to = b->dim[i];
        else if (b->dim[i] != one)
            graph_infer_equal(infer, *to, b->dim[i], "dimensions of the operands, but those of 1,");
    }
}

/* Sets both[] to the operands broadcast to the result's shape, cast to f64 before if in_f64. */
static void broadcast_both(graph_expand *e, bool in_f64, graph_id both[2]) {
    graph *g = e->g;
    const graph_shape a = *graph_shape_of(g, e->input[0]), b = *graph_shape_of(g, e->input[1]);
    const int rank = a.rank > b.rank ? a.rank : b.rank;
    tir_expr dims[DLC_MAX_RANK], one = tir_index(g->pool, 1);
    for (int i = 0; i < rank; i++) {
        const int from_a = i - (rank - a.rank), from_b = i - (rank - b.rank);
        dims[i] = from_a < 0 || a.dim[from_a] == one ? b.dim[from_b < 0 ? 0 : from_b] : a.dim[from_a];
        if (from_b < 0) dims[i] = a.dim[from_a];
    }
    for (int i = 0; i < 2; i++) {
        graph_id x = in_f64 ? graph_cast(g, e->input[i], DLC_F64) : e->input[i];
        both[i] = graph_broadcast_to(g, x, rank, dims);
    }
}

/* ---- loops: carried values, and their condition */

enum { STATE_MAX = 8 };
typedef struct loop {
    int count;
    graph_id outer[STATE_MAX], inner[STATE_MAX];
    graph *condition, *body;
    int64_t condition_number, body_number;
} loop;

/* Begins the condition; l->inner becomes its inputs. */
static void begin_condition(graph *g, loop *l) {
    l->condition = graph_new_subgraph(g, &l->condition_number);
    for (int i = 0; i < l->count; i++)
        l->inner[i] = graph_new_input(l->condition, NULL, graph_shape_of(g, l->outer[i]));
}
/* Ends the condition: the loop goes on while `more`, bools of any shape, is true for any element. Begins the body; l->inner becomes its
 * inputs. */
static void begin_body(graph *g, loop *l, graph_id more) {
    graph_new_output(l->condition, NULL, graph_reduce_or(l->condition, more, 0, NULL, false));
    l->body = graph_new_subgraph(g, &l->body_number);
    for (int i = 0; i < l->count; i++) l->inner[i] = graph_new_input(l->body, NULL, graph_shape_of(g, l->outer[i]));
}
/* Ends the body, whose values for the next iteration are in l->inner. Returns the first of the loop's results. */
static graph_id end_loop(graph *g, loop *l) {
    for (int i = 0; i < l->count; i++) graph_new_output(l->body, NULL, l->inner[i]);
    const graph_setting graphs[] = {graph_set_integer("condition", l->condition_number),
                                    graph_set_integer("body", l->body_number)};
    return graph_emit_with(g, "while", l->count, l->outer, 2, graphs);
}

/* ---- gcd, lcm: Euclid's algorithm. Division by 0 gives 0 (div, rem). */

static graph_id greatest_divisor(graph *g, graph_id a, graph_id b) {
    loop l = {.count = 2, .outer = {graph_abs(g, a), graph_abs(g, b)}};
    begin_condition(g, &l);
    begin_body(g, &l, graph_ne(l.condition, l.inner[1], graph_scalar_like(l.condition, l.inner[1], 0)));
    graph_id divisor = l.inner[1], left = graph_ne(l.body, divisor, graph_scalar_like(l.body, divisor, 0));
    l.inner[1] = graph_rem(l.body, l.inner[0], divisor);
    l.inner[0] = graph_select(l.body, left, divisor, l.inner[0]);
    return graph_abs(g, end_loop(g, &l)); /* the lowest integer is its own magnitude */
}

static void expand_gcd(graph_expand *e) {
    graph_id both[2];
    broadcast_both(e, false, both);
    e->result[0] = greatest_divisor(e->g, both[0], both[1]);
}

static void expand_lcm(graph_expand *e) {
    graph *g = e->g;
    graph_id both[2];
    broadcast_both(e, false, both);
    graph_id part = graph_div(g, both[0], greatest_divisor(g, both[0], both[1]));
    e->result[0] = graph_abs(g, graph_mul(g, part, both[1]));
}

/* d/dx = x^(a-1) exp(-x) / gamma(a) */
static void tangent_gamma(graph_rule *rule, bool upper) {
    graph *g = rule->g;
    const graph_id y = graph_rule_result(rule, 0);
    if (rule->tangent[0])
        lib_raise(g->arena->scope, DLC_UNSUPPORTED, "%s has no derivative in a, only in x: stop_gradient(a) holds it",
                  rule->op->name);
    const graph_id a = graph_broadcast_like(g, graph_rule_operand(rule, 0), y),
                   x = graph_broadcast_like(g, graph_rule_operand(rule, 1), y);
    const graph_id power = graph_mul(g, graph_add_number(g, a, -1), graph_log(g, x));
    graph_id density = graph_sub(g, graph_sub(g, power, x), graph_emit_with(g, "lgamma", 1, &a, 0, NULL));
    density = graph_exp(g, density);
    const graph_id part = graph_multiply_no_nan(g, graph_broadcast_like(g, rule->tangent[1], y), density);
    rule->out[0] = upper ? graph_neg(g, part) : part;
}
static void tangent_gammainc(graph_rule *rule) {
    tangent_gamma(rule, false);
}
static void tangent_gammaincc(graph_rule *rule) {
    tangent_gamma(rule, true);
}

/* ---- frexp: the exponent's bits taken out; denormal numbers are scaled before */

static void infer_frexp(graph_infer *infer) {
    infer->result[0] = infer->result[1] = infer->operand[0];
    infer->result[1].dtype = DLC_I32;
}

static graph_id bits_as(graph *g, graph_id x, dlc_dtype dtype) {
    const graph_setting setting = graph_set_integer("dtype", dtype);
    return graph_emit_with(g, "bit_cast", 1, &x, 1, &setting);
}

/* mantissa = x 2^-exponent */
static void tangent_frexp(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id down = graph_neg(g, rule->first + 1);
    rule->out[0] = graph_emit_with(g, "ldexp", 2, (graph_id[]){rule->tangent[0], down}, 0, NULL);
}

static void expand_frexp(graph_expand *e) {
    graph *g = e->g;
    const dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    const bool wide = dtype == DLC_F64;
    const dlc_dtype integer = wide ? DLC_I64 : DLC_I32;
    const int digits = wide ? 52 : 23, bias = wide ? 1022 : 126, up = wide ? 54 : 24;
    const int64_t unit = INT64_C(1) << digits, field = (wide ? INT64_C(0x7ff) : 0xff) * unit;
    graph_id x = graph_widen(g, e->input[0]), magnitude = graph_abs(g, x);
    graph_id small = graph_lt(g, magnitude, graph_scalar_like(g, x, wide ? 0x1p-1022 : 0x1p-126));
    graph_id bits = bits_as(g, graph_select(g, small, graph_mul_number(g, x, wide ? 0x1p54 : 0x1p24), x), integer);
    graph_id exponent =
        graph_div(g, graph_and(g, bits, graph_scalar_i64(g, integer, field)), graph_scalar_i64(g, integer, unit));
    exponent =
        graph_sub(g, exponent,
                  graph_select(g, small, graph_scalar_i64(g, integer, bias + up), graph_scalar_i64(g, integer, bias)));
    graph_id mantissa = graph_and(g, bits, graph_scalar_i64(g, integer, ~field));
    mantissa = bits_as(g, graph_or(g, mantissa, graph_scalar_i64(g, integer, bias * unit)), wide ? DLC_F64 : DLC_F32);
    graph_id ordinary = graph_and(g, graph_gt(g, magnitude, graph_scalar_like(g, x, 0)),
                                  graph_lt(g, magnitude, graph_scalar_like(g, x, (double)__builtin_inf())));
    e->result[0] = graph_cast(g, graph_select(g, ordinary, mantissa, x), dtype);
    e->result[1] = graph_cast(g, graph_select(g, ordinary, exponent, graph_scalar_i64(g, integer, 0)), DLC_I32);
}

/* ---- incomplete gamma functions, in f64 for all dtypes */

/* x^a exp(-x) / gamma(a + 1); from a = 10 on by the remainder of Stirling's series (Loader 2000), so that no large terms cancel. */
static graph_id gamma_factor(graph *g, graph_id a, graph_id x) {
    graph_id one = graph_scalar_like(g, a, 1), mu = graph_div(g, graph_sub(g, x, a), a);
    graph_id exponent = graph_mul(g, a, graph_sub(g, graph_emit_with(g, "log1p", 1, &mu, 0, NULL), mu));
    static const double series[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                    1.0 / 1188, -691.0 / 360360, 1.0 / 156};
    enum { TERMS = sizeof series / sizeof *series };
    graph_id inverse = graph_div(g, one, a), square = graph_mul(g, inverse, inverse),
             rest = graph_scalar_like(g, a, series[TERMS - 1]);
    for (int i = TERMS - 2; i >= 0; i--) rest = graph_add_number(g, graph_mul(g, rest, square), series[i]);
    graph_id large = graph_exp(g, graph_sub(g, exponent, graph_mul(g, rest, inverse)));
    large = graph_div(g, large, graph_sqrt(g, graph_mul_number(g, a, 6.283185307179586476925)));
    graph_id above = graph_add(g, a, one), gamma = graph_emit_with(g, "lgamma", 1, &above, 0, NULL);
    graph_id small = graph_mul(g, graph_mul(g, graph_pow(g, x, a), graph_exp(g, graph_neg(g, x))),
                               graph_exp(g, graph_neg(g, gamma)));
    return graph_select(g, graph_lt(g, a, graph_scalar_like(g, a, 10)), small, large);
}

/* The incomplete gamma function without the factor of gamma_factor: where x < a + 1 the lower function, by its series; elsewhere the upper
 * function, by a continued fraction (modified Lentz). */
static graph_id gamma_ratio(graph *g, graph_id a, graph_id x, graph_id below) {
    enum { N, A, X, SUM, TERM, C, D, H, COUNT_ };
    const double precision = 0x1p-54;
    graph_id one = graph_full_like(g, a, 1), first = graph_div(g, one, graph_add(g, graph_sub(g, x, a), one));
    loop l = {.count = COUNT_};
    const graph_id outer[] = {graph_scalar(g, DLC_F64, 0), a, x, one, one, graph_full_like(g, a, 1e300), first, first};
    for (int i = 0; i < COUNT_; i++) l.outer[i] = outer[i];
    begin_condition(g, &l);
    graph *s = l.condition;
    graph_id *v = l.inner, is_below = graph_lt(s, v[X], graph_add_number(s, v[A], 1));
    graph_id change = graph_abs(s, graph_add_number(s, graph_mul(s, v[C], v[D]), -1));
    graph_id left = graph_select(s, is_below, graph_gt(s, v[TERM], graph_mul_number(s, v[SUM], precision)),
                                 graph_gt(s, change, graph_scalar_like(s, change, 4 * precision)));
    begin_body(g, &l, graph_and(s, left, graph_lt(s, v[N], graph_scalar_like(s, v[N], 0x1p20))));
    s = l.body;
    v[N] = graph_add_number(s, v[N], 1);
    v[TERM] = graph_div(s, graph_mul(s, v[TERM], v[X]), graph_add(s, v[A], v[N]));
    v[SUM] = graph_add(s, v[SUM], v[TERM]);
    graph_id numerator = graph_mul(s, graph_sub(s, v[A], v[N]), v[N]);
    graph_id denominator = graph_add(s, graph_add_number(s, graph_sub(s, v[X], v[A]), 1), graph_add(s, v[N], v[N]));
    v[D] = graph_div(s, graph_scalar_like(s, v[D], 1), graph_add(s, graph_mul(s, numerator, v[D]), denominator));
    v[C] = graph_add(s, denominator, graph_div(s, numerator, v[C]));
    v[H] = graph_mul(s, v[H], graph_mul(s, v[C], v[D]));
    graph_id end = end_loop(g, &l);
    return graph_select(g, below, end + SUM, graph_mul(g, a, end + H));
}

static void expand_incomplete(graph_expand *e, bool upper) {
    graph *g = e->g;
    const dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    const double infinite = __builtin_inf();
    graph_id both[2];
    broadcast_both(e, true, both);
    graph_id a = both[0], x = both[1], zero = graph_full_like(g, a, 0), one = graph_full_like(g, a, 1);
    graph_id ordinary = graph_and(g, graph_and(g, graph_gt(g, a, zero), graph_gt(g, x, zero)),
                                  graph_and(g, graph_lt(g, a, graph_scalar_like(g, a, infinite)),
                                            graph_lt(g, x, graph_scalar_like(g, x, infinite))));
    graph_id safe_a = graph_select(g, ordinary, a, one), safe_x = graph_select(g, ordinary, x, one);
    graph_id below = graph_lt(g, safe_x, graph_add_number(g, safe_a, 1));
    graph_id part = graph_mul(g, gamma_factor(g, safe_a, safe_x), gamma_ratio(g, safe_a, safe_x, below));
    graph_id y = graph_select(g, upper ? graph_not(g, below) : below, part, graph_sub(g, one, part));
    /* the lower function is 1 if x is infinite or a is 0, and 0 if x is 0 or a infinite; NaN: both hold, or an operand is below 0 */
    graph_id all = graph_or(g, graph_eq(g, x, graph_scalar_like(g, x, infinite)), graph_eq(g, a, zero));
    graph_id nothing = graph_or(g, graph_eq(g, x, zero), graph_eq(g, a, graph_scalar_like(g, a, infinite)));
    graph_id edge = graph_select(g, all, upper ? zero : one, upper ? one : zero);
    graph_id defined =
        graph_and(g, graph_ne(g, all, nothing), graph_and(g, graph_ge(g, a, zero), graph_ge(g, x, zero)));
    edge = graph_select(g, defined, edge, graph_full_like(g, a, (double)__builtin_nanf("")));
    e->result[0] = graph_cast(g, graph_select(g, ordinary, y, edge), dtype);
}

static void expand_gammainc(graph_expand *e) {
    expand_incomplete(e, false);
}
static void expand_gammaincc(graph_expand *e) {
    expand_incomplete(e, true);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* Sets each element of the result to f(a, b), with operands that broadcast. */
static void reference_both(const graph_reference *r, double (*f)(dlc_dtype t, double a, double b)) {
    const graph_reference_tensor *y = &r->result[0];
    int64_t at[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(y, at) {
        double x[2];
        for (int k = 0; k < 2; k++) {
            const graph_reference_tensor *from = &r->operand[k];
            int64_t index[DLC_MAX_RANK];
            for (int i = 0; i < from->rank; i++) index[i] = from->dim[i] == 1 ? 0 : at[y->rank - from->rank + i];
            x[k] = from->data[graph_reference_at(from, index)];
        }
        y->data[graph_reference_at(y, at)] = f(r->operand[0].dtype, x[0], x[1]);
    }
}

/* Euclid's algorithm on magnitudes. */
static uint64_t divisor_of(double a, double b) {
    uint64_t x = (uint64_t)fabs(a), y = (uint64_t)fabs(b);
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}
static double number_gcd(dlc_dtype t, double a, double b) {
    return graph_reference_wrap(t, divisor_of(a, b));
}
static double number_lcm(dlc_dtype t, double a, double b) {
    const uint64_t divisor = divisor_of(a, b);
    if (divisor == 0) return 0;
    const double wrapped = graph_reference_wrap(t, (uint64_t)fabs(a) / divisor * (uint64_t)fabs(b));
    return graph_reference_wrap(t, graph_reference_word(fabs(wrapped)));
}
static double number_gammainc(dlc_dtype t, double a, double x) {
    (void)t;
    return (double)special_gammainc((long double)a, (long double)x, 0);
}
static double number_gammaincc(dlc_dtype t, double a, double x) {
    (void)t;
    return (double)special_gammainc((long double)a, (long double)x, 1);
}
#define BOTH(name)                                           \
    static void reference_##name(const graph_reference *r) { \
        reference_both(r, number_##name);                    \
    }
BOTH(gcd)
BOTH(lcm)
BOTH(gammainc)
BOTH(gammaincc)

static void reference_frexp(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        int exponent = 0;
        const double x = r->operand[0].data[i];
        r->result[0].data[i] = frexp(x, &exponent);
        r->result[1].data[i] = isfinite(x) ? exponent : 0;
    }
}

#endif

/* ---- rows */

#define FORM(name_, inputs_, results_, operands_, dtypes_) \
    COMPOSITE_ROW(name_, inputs_, inputs_, results_, operands_, dtypes_)

#define BOTH_SAMPLES(name)                                                                                      \
    name "(T[17, 23], T[17, 23])\n" name "(T[5, 7], T[7])\n" name "(T[3, 1], T[4])\n" name "(T[], T[3])\n" name \
         "(T[3, 0], T[1, 1])"

static const graph_op row_gcd = {
    FORM(gcd, 2, 1, "a b", "int"),
    .infer = infer_broadcast,
    GRAPH_NO_GRADIENT,
    .samples = BOTH_SAMPLES("gcd"),
    .doc =
        "Greatest common divisor of |a| and |b|, which broadcast; 0 for zeros; that of lowest integers alone wraps. NumPy gcd.",
};
static const graph_op row_lcm = {
    FORM(lcm, 2, 1, "a b", "int"),
    .infer = infer_broadcast,
    GRAPH_NO_GRADIENT,
    .samples = BOTH_SAMPLES("lcm"),
    .doc = "Least common multiple of |a| and |b|, which broadcast; 0 where either is 0; wraps. NumPy lcm.",
};
static const graph_op row_frexp = {
    FORM(frexp, 1, 2, "x", "f16 bf16 f32 f64"),
    .jvp = tangent_frexp,
    .infer = infer_frexp,
    .samples = "frexp(T[17, 23])\nfrexp(T[])\nfrexp(T[3, 0, 2])\nfrexp(T[67] in -1e-30..1e-30)",
    .doc =
        "x as mantissa * 2**exponent: the mantissa, whose magnitude is in 0.5..1, in the dtype of x, and the exponent, i32. Zeros, infinities and "
        "NaN are their own mantissa, exponent 0. C99 frexp; NumPy frexp.",
};
#define GAMMA_SAMPLES(name)                                                                                  \
    name "(T[17, 23] in 0.125..40, T[17, 23] in 0..60)\n" name "(T[5, 7] in 0.125..3, T[7] in 0..20)\n" name \
         "(T[], T[3])\n" name "(T[67] in 1..4, T[67] in 0..0.125)"
static const graph_op row_gammainc = {
    FORM(gammainc, 2, 1, "a x", "float"),
    .jvp = tangent_gammainc,
    .infer = infer_broadcast,
    .tolerance = 64,
    .samples = GAMMA_SAMPLES("gammainc"),
    .doc =
        "Regularised lower incomplete gamma function, the integral of t**(a-1) exp(-t) over 0..x divided by gamma(a); a and x broadcast. NaN "
        "where either is below 0. Computed in f64, by about sqrt(a) steps where x is near a. SciPy gammainc; JAX igamma.",
    .aliases = "igamma",
};
static const graph_op row_gammaincc = {
    FORM(gammaincc, 2, 1, "a x", "float"),
    .jvp = tangent_gammaincc,
    .infer = infer_broadcast,
    .tolerance = 64,
    .samples = GAMMA_SAMPLES("gammaincc"),
    .doc =
        "1 - gammainc(a, x), accurate where that is small: the integral over x..infinity. SciPy gammaincc; JAX igammac.",
    .aliases = "igammac",
};

const graph_op *const graph_ops_iterated[] = {&row_gcd, &row_lcm, &row_frexp, &row_gammainc, &row_gammaincc, NULL};
