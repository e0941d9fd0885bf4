/* The errors that rows of the operator table publish (`accuracy` of graph/op.h), measured: maps as programs of the cpu target in f32 and f64, with
 * fused multiply-adds and without, against long double. 10^5 points of each by default, with DLC_TEST_LONG=1 10^7: bits at random, so that denormal
 * numbers, zeros, infinities and NaN are among them, and moderate numbers; half of the points are a search around the worst ones found so far. A
 * result beyond its bound fails; a bound that is twice what was found, and more than one unit above it, is told as lax.
 *      accuracy [points] [row...] */
#include <dlc/dlc.h>
#include <dlc/extend.h>

#include "graph/op.h"
#include "graph/special_reference.h"
#include "random.h"
#include "test/asked.h"
#include "test/share.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

enum { POINTS = 1 << 13, KEPT = 48, OPERANDS = 2 };

/* ---- exact values */

static long double exact_logistic(long double x) {
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static long double exact_silu(long double x) {
    return isinf(x) && x < 0 ? -0.0L : x * exact_logistic(x);
}
static long double exact_rsqrt(long double x) {
    return 1 / sqrtl(x);
}
static long double exact_exp10(long double x) {
    return powl(10, x);
}
static long double exact_i0(long double x) {
    return special_bessel(0, 0, x);
}
static long double exact_i0e(long double x) {
    return special_bessel(0, 1, x);
}
static long double exact_i1(long double x) {
    return special_bessel(1, 0, x);
}
static long double exact_i1e(long double x) {
    return special_bessel(1, 1, x);
}
static long double exact_add(long double a, long double b) {
    return a + b;
}
static long double exact_mul(long double a, long double b) {
    return a * b;
}
static long double exact_div(long double a, long double b) {
    return a / b;
}

typedef struct exact_function {
    const char *name;
    long double (*of_one)(long double x);
    long double (*of_two)(long double x, long double y);
} exact_function;
#define ONE(name, function) \
    { #name, function, NULL }
#define TWO(name, function) \
    { #name, NULL, function }
static const exact_function functions[] = {
    ONE(sqrt, sqrtl),
    ONE(rsqrt, exact_rsqrt),
    ONE(exp, expl),
    ONE(exp2, exp2l),
    ONE(exp10, exact_exp10),
    ONE(expm1, expm1l),
    ONE(log, logl),
    ONE(log2, log2l),
    ONE(log10, log10l),
    ONE(log1p, log1pl),
    ONE(sin, sinl),
    ONE(cos, cosl),
    ONE(tan, tanl),
    ONE(asin, asinl),
    ONE(acos, acosl),
    ONE(atan, atanl),
    ONE(sinh, sinhl),
    ONE(cosh, coshl),
    ONE(asinh, asinhl),
    ONE(acosh, acoshl),
    ONE(atanh, atanhl),
    ONE(cbrt, cbrtl),
    ONE(tanh, tanhl),
    ONE(logistic, exact_logistic),
    ONE(silu, exact_silu),
    ONE(sinc, special_sinc),
    ONE(erf, erfl),
    ONE(erfc, erfcl),
    ONE(erfinv, special_erfinv),
    ONE(normal_cdf, special_normal_cdf),
    ONE(lgamma, lgammal),
    ONE(digamma, special_digamma),
    ONE(bessel_i0, exact_i0),
    ONE(bessel_i0e, exact_i0e),
    ONE(bessel_i1, exact_i1),
    ONE(bessel_i1e, exact_i1e),
    TWO(add, exact_add),
    TWO(mul, exact_mul),
    TWO(div, exact_div),
    TWO(atan2, atan2l),
    TWO(pow, powl),
    TWO(hypot, hypotl),
    TWO(log_add_exp, special_log_add_exp),
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const exact_function *function_of(const char *name) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0) return &functions[i];
    return NULL;
}

static long double exact_of(const exact_function *f, const double *x) {
    return f->of_one ? f->of_one((long double)x[0]) : f->of_two((long double)x[0], (long double)x[1]);
}

/* In units in the last place of the exact value, or of `least` where that is larger; huge when the class (NaN, infinity) is wrong. */
static double error_of(bool wide, double got, long double exact, double least) {
    const double wrong = 1e9;
    const int digits = wide ? 53 : 24, lowest = wide ? -1021 : -125, highest = wide ? 1024 : 128;
    const long double overflow = ldexpl(1, highest);
    int exponent;
    if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : wrong;
    if (isinf(exact) || fabsl(exact) > overflow) exact = copysignl(overflow, exact); /* infinity, or a hair below */
    const long double value = isinf(got) ? copysignl(overflow, (long double)got) : (long double)got;
    frexpl(fmaxl(fabsl(exact), (long double)least), &exponent);
    if (exact == 0 && least == 0) exponent = lowest;
    exponent = exponent > highest ? highest : exponent < lowest ? lowest : exponent;
    return (double)(fabsl(value - exact) * ldexpl(1, digits - exponent));
}

/* ---- points */

typedef struct point {
    double x[OPERANDS], error;
} point;

typedef struct search {
    const graph_op *op;
    const exact_function *exact;
    int inputs;
    bool wide;
    uint64_t state;
    /* worst[0] is the worst of all, the others some of the worst */
    point worst[KEPT];
} search;

static uint64_t draw(search *s) {
    return test_random(&s->state);
}
static double uniform(search *s) {
    return (double)(draw(s) >> 11) * 0x1p-53;
}

static double rounded(const search *s, double x) {
    return s->wide ? x : (double)(float)x;
}

static double any_bits(search *s) {
    uint64_t bits = draw(s);
    double x;
    float narrow;
    memcpy(&x, &bits, sizeof x);
    memcpy(&narrow, &bits, sizeof narrow);
    return s->wide ? x : (double)narrow;
}

static double fresh(search *s) {
    static const double specials[] = {0.0, -0.0, 1, -1, 0.5, 2, HUGE_VAL, -HUGE_VAL, NAN, 8, -8, 1.5};
    const double sign = draw(s) & 1 ? -1 : 1;
    switch (draw(s) % 8) {
    case 0:
    case 1:
    case 2: return any_bits(s);
    case 3: return rounded(s, sign * ldexp(1 + uniform(s), (int)(draw(s) % 24) - 16));
    case 4: return rounded(s, sign * uniform(s) * 4);
    case 5: return rounded(s, 1 + sign * ldexp(uniform(s), -(int)(draw(s) % 54)));
    case 6:
        return draw(s) % 64 ? rounded(s, rint(sign * uniform(s) * 40) + ldexp(uniform(s), -(int)(draw(s) % 54)))
                            : specials[draw(s) % 12];
    default: return rounded(s, sign * uniform(s) * (s->wide ? 760 : 120));
    }
}

/* Near one of the worst: as many bits of the significand changed as chance says. */
static double near(search *s, double x) {
    if (!isfinite(x)) return fresh(s);
    const double step = ldexp(uniform(s) - 0.5, -(int)(draw(s) % (s->wide ? 52 : 23)));
    return rounded(s, x + x * step);
}

static void make_points(search *s, double x[OPERANDS][POINTS]) {
    for (int k = 0; k < POINTS; k++) {
        const point *from = &s->worst[draw(s) % KEPT];
        const bool searches = k % 2 && from->error > 0;
        for (int i = 0; i < s->inputs; i++) x[i][k] = searches ? near(s, from->x[i]) : fresh(s);
    }
}

static void keep(search *s, const double *x, double error) {
    if (error > s->worst[0].error) {
        s->worst[0].error = error;
        memcpy(s->worst[0].x, x, sizeof s->worst[0].x);
        return;
    }
    point *other = &s->worst[1 + draw(s) % (KEPT - 1)];
    if (error <= other->error) return;
    other->error = error;
    memcpy(other->x, x, sizeof other->x);
}

/* ---- programs */

static dlc_context *open_context(void) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    options.target = "cpu";
    if (dlc_context_create(&options, &context) != DLC_OK) fail_msg("%s", dlc_error_message(NULL));
    return context;
}

static dlc_program *compile(dlc_context *context, const search *s) {
    static const char *const names[] = {"x", "y"};
    const dlc_dim dims[] = {{POINTS, NULL}};
    dlc_graph *made = NULL;
    dlc_program *program = NULL;
    dlc_value input[OPERANDS];
    if (dlc_graph_create(context, &made) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    for (int i = 0; i < s->inputs; i++) input[i] = dlc_input(made, names[i], s->wide ? DLC_F64 : DLC_F32, 1, dims);
    dlc_output(made, "z", dlc_apply(made, s->op->name, s->inputs, input, 0, NULL));
    if (dlc_compile(context, made, NULL, &program) != DLC_OK)
        fail_msg("%s: %s", s->op->name, dlc_error_message(context));
    dlc_graph_destroy(made);
    return program;
}

static void run(dlc_context *context, dlc_program *program, const search *s, double x[OPERANDS][POINTS], double *y) {
    static float narrow[OPERANDS + 1][POINTS];
    static const int64_t shape[] = {POINTS};
    DLTensor tensor[OPERANDS + 1];
    const DLTensor *inputs[OPERANDS];
    for (int i = 0; i <= s->inputs; i++) {
        void *data = s->wide ? (i < s->inputs ? (void *)x[i] : (void *)y) : (void *)narrow[i];
        tensor[i] = (DLTensor){.data = data,
                               .device = {kDLCPU, 0},
                               .ndim = 1,
                               .dtype = {kDLFloat, s->wide ? 64 : 32, 1},
                               .shape = (int64_t *)shape};
        if (i < s->inputs) inputs[i] = &tensor[i];
        for (int k = 0; k < POINTS && i < s->inputs; k++) narrow[i][k] = (float)x[i][k];
    }
    dlc_output_slot slot = {.tensor = &tensor[s->inputs]};
    if (dlc_run(program, NULL, inputs, s->inputs, &slot, 1) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    for (int k = 0; k < POINTS && !s->wide; k++) y[k] = (double)narrow[s->inputs][k];
}

/* The worst of `points` points. */
static point measure(dlc_context *context, search *s, int64_t points) {
    static double x[OPERANDS][POINTS], y[POINTS];
    dlc_program *program = compile(context, s);
    for (int64_t done = 0; done < points; done += POINTS) {
        make_points(s, x);
        run(context, program, s, x, y);
        for (int k = 0; k < POINTS; k++) {
            const double at[OPERANDS] = {x[0][k], s->inputs > 1 ? x[1][k] : 0};
            keep(s, at, error_of(s->wide, y[k], exact_of(s->exact, at), s->op->accuracy.least));
        }
    }
    dlc_program_destroy(program);
    return s->worst[0];
}

/* ---- tests */

static int64_t asked_points; /* 0: as the environment says */
static int asked_count;
static char **asked;

static bool is_asked(const char *name) {
    for (int i = 0; i < asked_count; i++)
        if (strcmp(asked[i], name) == 0) return true;
    return asked_count == 0;
}

static int64_t points_wanted(void) {
    const char *longer = getenv("DLC_TEST_LONG");
    if (asked_points > 0) return asked_points;
    return longer && *longer == '1' ? 10000000 : test_is_short() ? POINTS : 100000;
}

/* True where the bounds hold. */
static bool check_row(dlc_context *context, const graph_op *op, const char *how) {
    const exact_function *exact = function_of(op->name);
    const double bound[] = {op->accuracy.f32, op->accuracy.f64};
    bool good = true;
    if (!exact) return true; /* ldexp and such, whose conformance is exact */
    printf("%-12s %-5s", op->name, how);
    for (int wide = 0; wide < 2; wide++) {
        search s = {.op = op, .exact = exact, .inputs = op->max_inputs, .wide = wide, .state = 1};
        const point at = measure(context, &s, points_wanted());
        const bool holds = at.error <= bound[wide] + 0.001,
                   lax = bound[wide] > 2 * at.error && bound[wide] > at.error + 1;
        printf("  f%d %8.3f of %6.3f at %a", wide ? 64 : 32, at.error, bound[wide], at.x[0]);
        if (s.inputs > 1) printf(", %a", at.x[1]);
        printf("%s", !holds ? " EXCEEDED" : lax ? " lax" : "");
        good &= holds;
    }
    printf("\n");
    fflush(stdout);
    return good;
}

static void check_all(const char *features) {
    int bad = 0;
    if (LDBL_MANT_DIG < 60) skip();
#ifndef DLC_TARGET_cpu
    skip();
#endif
    if (features) setenv("DLC_CPU_FEATURES", features, 1);
    dlc_context *context = open_context();
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->class_ == GRAPH_MAP && (*row)->accuracy.f32 > 0 && is_asked((*row)->name))
                bad += !check_row(context, *row, features ? features : "fused");
    dlc_context_destroy(context);
    if (features) unsetenv("DLC_CPU_FEATURES");
    assert_int_equal(bad, 0);
}

static void fused(void **state) {
    (void)state;
    check_all(NULL);
}
static void apart(void **state) {
    (void)state;
    check_all("sse2");
}

/* Of every function above a row publishes its error. */
static void rows_publish(void **state) {
    (void)state;
    for (int i = 0; i < FUNCTIONS; i++) {
        const graph_op *op = graph_op_find(functions[i].name);
        if (!op || op->accuracy.f32 <= 0 || op->accuracy.f64 <= 0) fail_msg("%s publishes no bound", functions[i].name);
    }
}

static const char *refusal(const graph_op *op) {
    if (op->class_ != GRAPH_MAP || op->accuracy.f32 <= 0 || op->accuracy.f64 <= 0)
        return " states no `accuracy`, or is no map";
    return function_of(op->name) ? NULL : " is not in the list of functions";
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused), cmocka_unit_test(apart),
                                       cmocka_unit_test(rows_publish)};
    asked_points = count > 1 ? strtoll(arguments[1], NULL, 10) : 0;
    const int skipped = asked_points > 0 ? 2 : 1;
    asked_count = count - skipped;
    asked = arguments + skipped;
    if (asked_unknown("accuracy", asked_count, asked, refusal)) return 2;
    return cmocka_run_group_tests_name("conformance/accuracy", tests, NULL, NULL);
}
