/* Maps of f32 as programs, against libm in double precision over the whole range of inputs, denormals included: 10^7 of them, with
 * DLC_TEST_LONG=1 all 2^32. With fused multiply-add and without. test/tir/math_ulp holds the functions below them to tighter bounds. */
#include "api/support.h"

enum { POINTS = 1 << 18 };

static double logistic(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double silu(double x) {
    return x == -INFINITY ? -0.0 : x * logistic(x);
}
static double softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double elu(double x) {
    return x < 0 ? expm1(x) : x;
}
static double mish(double x) {
    return x == -INFINITY ? -0.0 : x * tanh(log1p(exp(x)));
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}
static double gelu(double x) {
    return x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static double normal_cdf(double x) {
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static dlc_value make_elu(dlc_value x) {
    return dlc_elu(x);
}
static dlc_value make_gelu(dlc_value x) {
    return dlc_gelu(x);
}

typedef struct map {
    const char *name;
    dlc_value (*make)(dlc_value x);
    double (*reference)(double x);
    /* in units in the last place of the exact value, or of `least` where that is larger */
    double bound, least;
} map;
static const map maps[] = {
    {"exp", dlc_exp, exp, 4, 0},
    {"expm1", dlc_expm1, expm1, 4, 0},
    {"log", dlc_log, log, 4, 0},
    {"log1p", dlc_log1p, log1p, 4, 0},
    {"sin", dlc_sin, sin, 4, 0},
    {"cos", dlc_cos, cos, 4, 0},
    {"tanh", dlc_tanh, tanh, 4, 0},
    {"erf", dlc_erf, erf, 4, 0},
    {"logistic", dlc_logistic, logistic, 4, 0},
    {"silu", dlc_silu, silu, 4, 0},
    {"softplus", dlc_softplus, softplus, 4, 0},
    {"elu", make_elu, elu, 4, 0},
    {"rsqrt", dlc_rsqrt, rsqrt, 4, 0},
    {"mish", dlc_mish, mish, 12, 0},
    {"sqrt", dlc_sqrt, sqrt, 0.5, 0},
    {"gelu", make_gelu, gelu, 5, 1}, /* cancels below 0 */
    {"normal_cdf", dlc_normal_cdf, normal_cdf, 4.5, 0},
};
enum { MAPS = sizeof maps / sizeof *maps };

static double ulp_error(float got, double exact, double least) {
    const double wrong = 1e9;
    if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : wrong;
    if (isinf(exact)) return (double)got == exact ? 0 : wrong;
    int exponent;
    double value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
    frexp(fmax(fabs(exact), least), &exponent);
    if (exponent > 128) exponent = 128, exact = copysign(0x1p128, exact); /* overflows: inf, or a hair below */
    if (exponent < -125) exponent = -125;
    return fabs(value - exact) * ldexp(1, 24 - exponent);
}

/* The worst of every stride-th input, and where it was. */
static double worst_of(dlc_context *context, const map *m, uint64_t stride, float *at) {
    static float x[POINTS], y[POINTS];
    dlc_graph *graph;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &graph));
    OK(context, dlc_output(graph, "y", m->make(dlc_input(graph, "x", DLC_F32, 1, DIMS(SIZE(POINTS))))));
    OK(context, dlc_compile(context, graph, NULL, &program));
    dlc_graph_destroy(graph);
    tensor tx, ty;
    dlc_output_slot slot = {.tensor = F32(&ty, y, POINTS)};
    const DLTensor *inputs[] = {F32(&tx, x, POINTS)};
    double worst = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        for (int i = 0; i < POINTS; i++, bits += stride) memcpy(&x[i], &(uint32_t){(uint32_t)bits}, sizeof *x);
        OK(context, dlc_run(program, NULL, inputs, 1, &slot, 1));
        for (int i = 0; i < POINTS; i++) {
            double exact = m->reference((double)x[i]), error;
            if (y[i] == (float)exact && worst >= 0.5) continue;
            error = ulp_error(y[i], exact, m->least);
            if (error > worst) worst = error, *at = x[i];
        }
    }
    dlc_program_destroy(program);
    return worst;
}

static void within_bounds(const char *features) {
    const char *longer = getenv("DLC_TEST_LONG"), *only = getenv("DLC_TEST_MAP");
    uint64_t stride = longer && *longer == '1' ? 1 : 429;
    if (features) setenv("DLC_CPU_FEATURES", features, 1);
    dlc_context *context = open_context("cpu", NULL);
    for (int i = 0; i < MAPS && context; i++) {
        float at = 0;
        if (only && strcmp(only, maps[i].name) != 0) continue;
        double worst = worst_of(context, &maps[i], stride, &at);
        printf("%-10s %5.2f at %a\n", maps[i].name, worst, (double)at);
        if (worst > maps[i].bound) fail_msg("%s: %g ulp at %a", maps[i].name, worst, (double)at);
    }
    if (context) dlc_context_destroy(context);
}

static void fused(void **state) {
    (void)state;
    within_bounds(NULL);
}
static void apart(void **state) {
    (void)state;
    within_bounds("sse2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused), cmocka_unit_test(apart)};
    return cmocka_run_group_tests_name("api/map_ulp", tests, NULL, NULL);
}
