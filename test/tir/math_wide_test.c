/* tir/math_wide.c against numbers of mpmath (math_wide.txt: exact values to 1e-4 of a unit in the last place), and against long double where
 * that has more bits than double; with fused multiply-add and without. */
#include "test/share.h"
#include "tir/arith.h"
#include "tir/math.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

typedef struct wide_function {
    const char *name;
    tir_op op;
    long double (*reference)(long double x);
    /* in units in the last place */
    double bound;
    /* where most arguments are drawn */
    double low, high;
} wide_function;
static const wide_function functions[] = {
    {"sinh", TIR_SINH, sinhl, 0.75, 0x1p-6, 711},   {"cosh", TIR_COSH, coshl, 0.75, 0x1p-6, 711},
    {"asinh", TIR_ASINH, asinhl, 0.75, 0x1p-8, 64}, {"acosh", TIR_ACOSH, acoshl, 0.75, 1, 64},
    {"atanh", TIR_ATANH, atanhl, 0.75, 0x1p-8, 1},  {"cbrt", TIR_CBRT, cbrtl, 0.75, 1, 8},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, VARIABLES = 8 };

/* The legal form of a function of one f64. */
typedef struct compiled {
    lib_scope scope;
    lib_arena arena;
    tir_pool pool;
    tir_expr root, x;
    bool has_fma;
} compiled;

static void compile(compiled *c, tir_op op, bool has_fma) {
    lib_arena_init(&c->arena, &lib_libc_allocator, &c->scope);
    if (!LIB_ENTER(&c->scope)) fail_msg("%s", c->scope.error.message);
    tir_pool_init(&c->pool, &c->arena);
    c->has_fma = has_fma;
    c->x = tir_var(&c->pool, "x", TIR_VAR_LET, DLC_F64, 0, 0);
    c->root = tir_legalize(&c->pool, tir_unary(&c->pool, op, c->x), has_fma, false, false);
    assert_true(tir_op_of(&c->pool, c->root) != op); /* arithmetic, no call */
}

static double run(const compiled *c, double x) {
    uint64_t variables[VARIABLES] = {0};
    variables[tir_var_id(&c->pool, c->x)] = tir_bits_from_f64(DLC_F64, x);
    const tir_evaluator evaluator = {.variables = variables, .has_fma = c->has_fma};
    return tir_bits_to_f64(DLC_F64, tir_evaluate(&c->pool, c->root, &evaluator));
}

/* Distance of neighbouring doubles at x. */
static double unit_at(double x) {
    int exponent;
    frexp(x, &exponent);
    if (x == 0 || exponent < -1021) exponent = -1021;
    return ldexp(1, exponent - 53);
}

/* got - exact, where exact = value + rest units at value. */
static double error_of(double got, double value, double rest) {
    if (isnan(value)) return isnan(got) ? 0 : HUGE_VAL;
    if (!isfinite(value)) return got == value ? 0 : HUGE_VAL;
    return fabs((got - value) / unit_at(value) - rest);
}

static void table_holds(void **state) {
    (void)state;
    int lines = 0;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int fused = 0; fused < 2; fused++) {
            compiled c;
            char line[256], name[16];
            double x, value, rest;
            compile(&c, functions[f].op, fused);
            FILE *file = fopen("test/tir/math_wide.txt", "r");
            assert_non_null(file);
            while (fgets(line, sizeof line, file)) {
                if (sscanf(line, "%15s %la %la %lf", name, &x, &value, &rest) != 4) continue;
                if (strcmp(name, functions[f].name) != 0) continue;
                double error = error_of(run(&c, x), value, rest);
                if (!(error <= functions[f].bound))
                    fail_msg("%s(%a) fma=%d: %g units beside %a", name, x, fused, error, value);
                lines++;
            }
            fclose(file);
            lib_arena_free(&c.arena);
        }
    assert_true(lines >= 2 * 300);
}

static void edges_are_right(void **state) {
    static const double inf = HUGE_VAL;
    static const struct {
        tir_op op;
        double x, y;
    } edges[] = {{TIR_SINH, -0.0, -0.0},      {TIR_SINH, HUGE_VAL, HUGE_VAL},  {TIR_SINH, -HUGE_VAL, -HUGE_VAL},
                 {TIR_SINH, 711, HUGE_VAL},   {TIR_COSH, -HUGE_VAL, HUGE_VAL}, {TIR_COSH, -0.0, 1},
                 {TIR_COSH, -711, HUGE_VAL},  {TIR_ASINH, -0.0, -0.0},         {TIR_ASINH, -HUGE_VAL, -HUGE_VAL},
                 {TIR_ACOSH, 1, 0},           {TIR_ACOSH, HUGE_VAL, HUGE_VAL}, {TIR_ACOSH, 0.999, NAN},
                 {TIR_ACOSH, -HUGE_VAL, NAN}, {TIR_ATANH, -0.0, -0.0},         {TIR_ATANH, -1, -HUGE_VAL},
                 {TIR_ATANH, 1.5, NAN},       {TIR_ATANH, HUGE_VAL, NAN},      {TIR_CBRT, -0.0, -0.0},
                 {TIR_CBRT, -27, -3},         {TIR_CBRT, -HUGE_VAL, -HUGE_VAL}};
    (void)state;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        compiled c;
        compile(&c, edges[i].op, true);
        const double got = run(&c, edges[i].x), y = edges[i].y;
        if (!(isnan(y) ? isnan(got) : got == y && !signbit(got) == !signbit(y)))
            fail_msg("%s(%g) is %g, expected %g", tir_ops[edges[i].op].text, edges[i].x, got, y);
        lib_arena_free(&c.arena);
    }
    for (int f = 0; f < FUNCTIONS; f++) {
        compiled c;
        compile(&c, functions[f].op, false);
        assert_true(isnan(run(&c, NAN)));
        assert_true(functions[f].op == TIR_ACOSH || functions[f].op == TIR_ATANH || run(&c, inf) == inf);
        lib_arena_free(&c.arena);
    }
}

static double uniform(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

/* Arguments of all exponents, near 1, and where the function bends. */
static double draw(const wide_function *f, uint64_t *seed, int i) {
    double u = uniform(seed), sign = i & 4 ? -1 : 1;
    switch (i % 3) {
    case 0: return sign * (f->low * pow(f->high / f->low, u));
    case 1: return sign * ldexp(1 + u, (int)(uniform(seed) * 2100) - 1075);
    default:
        return f->op == TIR_ACOSH   ? 1 + ldexp(u, (int)(uniform(seed) * -52))
               : f->op == TIR_ATANH ? sign * (1 - ldexp(u, (int)(uniform(seed) * -52)))
                                    : sign * 3 * u;
    }
}

static void errors_stay_in_bounds(void **state) {
    (void)state;
    if (LDBL_MANT_DIG < 60) skip();
    const char *longer = getenv("DLC_TEST_LONG");
    const int count = longer && *longer == '1' ? 10000000 : test_is_short() ? 3000 : 30000;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int fused = 0; fused < 2; fused++) {
            compiled c;
            compile(&c, functions[f].op, fused);
            double worst = 0, at = 0;
            uint64_t seed = (uint64_t)f;
            for (int i = 0; i < count; i++) {
                const double x = draw(&functions[f], &seed, i);
                const long double exact = functions[f].reference((long double)x);
                const double value = (double)exact;
                const double rest =
                    isfinite(value) ? (double)((exact - (long double)value) / (long double)unit_at(value)) : 0;
                const double error = error_of(run(&c, x), value, rest);
                if (error > worst) worst = error, at = x;
            }
            printf("%-6s fma=%d %.3f at %a\n", functions[f].name, fused, worst, at);
            if (!(worst <= functions[f].bound)) fail_msg("%s(%a): %g units", functions[f].name, at, worst);
            lib_arena_free(&c.arena);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_holds), cmocka_unit_test(edges_are_right),
                                       cmocka_unit_test(errors_stay_in_bounds)};
    return cmocka_run_group_tests_name("tir/math_wide", tests, NULL, NULL);
}
