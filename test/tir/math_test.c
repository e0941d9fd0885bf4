/* tir/math: the expansions against libm in f64 at edges, at sampled bits and around every exponent, with and without
 * fma; integer and 16-bit arithmetic after tir_legalize against plain C. Every input: test/tir/math_ulp.c. */
#include "random.h"
#include "test/share.h"
#include "tir/arith.h"
#include "tir/math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

static lib_scope scope;
static lib_arena arena;
static tir_pool pool;

static int setup(void **unused) {
    (void)unused;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    tir_pool_init(&pool, &arena);
    return 0;
}

static int teardown(void **unused) {
    (void)unused;
    lib_arena_free(&arena);
    return 0;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static float float_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}
static uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- f32 functions */

static double logistic(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double silu(double x) {
    return x == -INFINITY ? -0.0 : x * logistic(x);
}

static double normal_cdf(double x) {
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

#define FUNCTIONS(X) /* operator, reference, bound in ulp */ \
    X(TIR_EXP, exp, 2.5)                                     \
    X(TIR_EXPM1, expm1, 2.0)                                 \
    X(TIR_LOG, log, 1.0)                                     \
    X(TIR_LOG1P, log1p, 2.0)                                 \
    X(TIR_SIN, sin, 2.0)                                     \
    X(TIR_COS, cos, 2.0)                                     \
    X(TIR_TAN, tan, 3.0)                                     \
    X(TIR_ASIN, asin, 3.0)                                   \
    X(TIR_ACOS, acos, 3.0)                                   \
    X(TIR_ATAN, atan, 3.0)                                   \
    X(TIR_SINH, sinh, 1.0)                                   \
    X(TIR_COSH, cosh, 1.0)                                   \
    X(TIR_ASINH, asinh, 1.0)                                 \
    X(TIR_ACOSH, acosh, 1.0)                                 \
    X(TIR_ATANH, atanh, 1.0)                                 \
    X(TIR_CBRT, cbrt, 1.0)                                   \
    X(TIR_TANH, tanh, 4.0)                                   \
    X(TIR_ERF, erf, 3.0)                                     \
    X(TIR_LOGISTIC, logistic, 2.5)                           \
    X(TIR_SILU, silu, 3.5)                                   \
    X(TIR_EXP2, exp2, 1.5)                                   \
    X(TIR_EXP10, exp10, 1.5)                                 \
    X(TIR_ERFC, erfc, 4.8)                                   \
    X(TIR_NORMAL_TAIL, normal_cdf, 4.5)

typedef struct unary_function {
    tir_op op;
    double (*reference)(double x);
    double bound;
} unary_function;
static const unary_function unary_functions[] = {
#define X(op, reference, bound) {op, reference, bound},
    FUNCTIONS(X)
#undef X
};

/* Within `bound` ulp of f32 at `exact`, of the right class, sign of zero included. */
static bool close_to(float got, double exact, double bound) {
    if (isnan(exact)) return isnan(got);
    if (isnan(got)) return false;
    if (exact == 0.0) return got == 0.0f && !signbit(got) == !signbit(exact);
    if (isinf(exact)) return (double)got == exact;
    int exponent;
    frexp(exact, &exponent);
    double value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
    if (exponent > 128) exponent = 128, exact = copysign(0x1p128, exact);
    if (exponent < -125) exponent = -125;
    return fabs(value - exact) <= bound * ldexp(1.0, exponent - 24);
}

/* Legal form of op(x[, y]) as a function of f32 bits. */
typedef struct compiled {
    tir_expr root, x, y;
    bool has_fma;
} compiled;

static compiled compile(tir_op op, tir_dtype dtype, int count, bool has_fma, bool excess) {
    compiled c = {.has_fma = has_fma};
    c.x = tir_var(&pool, "x", TIR_VAR_LET, dtype, 0, 0);
    c.y = tir_var(&pool, "y", TIR_VAR_LET, dtype, 0, 0);
    tir_expr operands[] = {c.x, c.y};
    c.root = tir_legalize(&pool, tir_make(&pool, op, dtype, count, operands), has_fma, false, excess);
    return c;
}

static uint64_t run(const compiled *c, uint64_t x, uint64_t y) {
    uint64_t variables[512] = {0};
    assert_true(tir_var_id(&pool, c->y) < 512);
    variables[tir_var_id(&pool, c->x)] = x;
    variables[tir_var_id(&pool, c->y)] = y;
    tir_evaluator evaluator = {.variables = variables, .has_fma = c->has_fma};
    return tir_evaluate(&pool, c->root, &evaluator);
}

static void check_unary(const unary_function *f, const compiled *c, uint32_t bits) {
    float x = float_of(bits), got = float_of(run(c, bits, 0));
    double exact = f->reference((double)x);
    if (!close_to(got, exact, f->bound))
        fail_msg("%s(%a) fma=%d: %a, exact %a", tir_ops[f->op].text, (double)x, c->has_fma, (double)got, exact);
}

static const float edges[] = {0.0f,           0x1p-149f,
                              0x1p-126f,      0x1.fffffcp-127f,
                              0x1p-25f,       0x1p-24f,
                              0x1p-12f,       0.5f,
                              0x1.fffffep-1f, 1.0f,
                              0x1.000002p0f,  0x1.555554p-1f,
                              0x1.555556p0f,  1.5f,
                              2.0f,           3.0f,
                              4.0f,           8.0f,
                              9.0f,           10.0f,
                              17.0f,          24.0f,
                              87.0f,          88.0f,
                              88.5f,          0x1.62e42ep6f,
                              0x1.62e430p6f,  89.0f,
                              103.0f,         103.9f,
                              103.97f,        103.98f,
                              104.0f,         150.0f,
                              1e5f,           0x1p23f,
                              0x1p24f,        0x1.fffffep30f,
                              1e22f,          0x1p64f,
                              0x1p127f,       0x1.fffffep127f,
                              INFINITY,       NAN};
#define EDGES ((int)(sizeof edges / sizeof *edges))

static void unary_functions_stay_in_bounds(void **unused) {
    (void)unused;
    for (size_t k = 0; k < sizeof unary_functions / sizeof *unary_functions; k++)
        for (int fused = 0; fused < 2; fused++) {
            const unary_function *f = &unary_functions[k];
            compiled c = compile(f->op, DLC_F32, 1, fused, false);
            for (int i = 0; i < EDGES; i++)
                for (uint32_t sign = 0; sign < 2; sign++) check_unary(f, &c, bits_of(edges[i]) ^ sign << 31);
            uint64_t state = k;
            for (uint32_t high = 0; high < 512; high++) /* every sign and exponent */
                for (int i = 0; i < test_some(20); i++)
                    check_unary(f, &c, high << 23 | (uint32_t)(test_random(&state) & 0x7fffff));
            for (int i = 0; i < test_some(4000); i++) /* where most of the curves are */
                check_unary(f, &c,
                            bits_of(ldexpf((float)(int32_t)test_random(&state), -31 + (int)(test_random(&state) % 9))));
        }
}

static void tanh_and_erf_stay_within_one(void **unused) {
    (void)unused;
    static const tir_op ops[] = {TIR_TANH, TIR_ERF};
    for (int k = 0; k < 2; k++)
        for (int fused = 0; fused < 2; fused++) {
            compiled c = compile(ops[k], DLC_F32, 1, fused, false);
            for (int i = 0; i < 20000; i++) {
                float x = 2.5f + (float)i * 0.0004f;
                float got = float_of(run(&c, bits_of(x), 0));
                if (got > 1.0f) fail_msg("%s(%a): %a", tir_ops[ops[k]].text, (double)x, (double)got);
            }
            assert_true(float_of(run(&c, bits_of(10.0f), 0)) == 1.0f);
            assert_true(float_of(run(&c, bits_of(-INFINITY), 0)) == -1.0f);
        }
}

/* Also where it is tiny; it is never above 1, and far out exactly 0 or 1: whatever is multiplied by it. */
static void normal_cdf_keeps_its_tail(void **unused) {
    const int step = 100 / test_some(100);
    (void)unused;
    for (int fused = 0; fused < 2; fused++) {
        compiled c = compile(TIR_NORMAL_TAIL, DLC_F32, 1, fused, false);
        for (int i = -75000; i <= 40000; i += step) {
            float x = (float)i * 2e-4f, got = float_of(run(&c, bits_of(x), 0));
            double exact = normal_cdf((double)x);
            if (!close_to(got, exact, 4.5) || got < 0.0f || got > 1.0f)
                fail_msg("normal_cdf(%a): %a, exact %a", (double)x, (double)got, exact);
        }
        assert_true(float_of(run(&c, bits_of(6.0f), 0)) == 1.0f && float_of(run(&c, bits_of(INFINITY), 0)) == 1.0f);
        assert_true(float_of(run(&c, bits_of(-15.0f), 0)) == 0.0f && float_of(run(&c, bits_of(-1e30f), 0)) == 0.0f);
        assert_true(isnan(float_of(run(&c, bits_of(NAN), 0))));
    }
}

/* Its error is small beside 1, and far out it is exactly 0 or 1: whatever is multiplied by it. */
static void fast_normal_cdf_is_flat_outside(void **unused) {
    const int step = 100 / test_some(100);
    (void)unused;
    for (int fused = 0; fused < 2; fused++) {
        compiled c = compile(TIR_NORMAL_CDF, DLC_F32, 1, fused, false);
        for (int i = -70000; i <= 70000; i += step) {
            float x = (float)i * 1e-4f, got = float_of(run(&c, bits_of(x), 0));
            double exact = normal_cdf((double)x);
            if (fabs((double)got - exact) > 3.0 * 0x1p-24 || got < 0.0f || got > 1.0f)
                fail_msg("normal_cdf(%a): %a, exact %a", (double)x, (double)got, exact);
        }
        assert_true(float_of(run(&c, bits_of(5.5f), 0)) == 1.0f && float_of(run(&c, bits_of(INFINITY), 0)) == 1.0f);
        assert_true(float_of(run(&c, bits_of(-5.5f), 0)) == 0.0f && float_of(run(&c, bits_of(-1e30f), 0)) == 0.0f);
        assert_true(isnan(float_of(run(&c, bits_of(NAN), 0))));
    }
}

/* The classic hardest arguments of range reduction: close to multiples of pi/2. */
static void sin_and_cos_reduce_exactly(void **unused) {
    (void)unused;
    static const float hard[] = {0x1.921fb6p0f,  0x1.2d97c8p2f,  0x1.f9cbe2p7f,   0x1.f6a7a2p29f, 0x1.02e90cp43f,
                                 0x1.35a2c4p97f, 0x1.6c9ca8p74f, 0x1.a9d33ep126f, 0x1.fffffep127f};
    for (int k = 4; k < 6; k++)
        for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
            for (int fused = 0; fused < 2; fused++) {
                compiled c = compile(unary_functions[k].op, DLC_F32, 1, fused, false);
                check_unary(&unary_functions[k], &c, bits_of(hard[i]));
                check_unary(&unary_functions[k], &c, bits_of(-hard[i]));
            }
}

static void check_binary(tir_op op, double (*reference)(double, double), const compiled *c, float x, float y,
                         double bound) {
    float got = float_of(run(c, bits_of(x), bits_of(y)));
    double exact = reference((double)x, (double)y);
    if (!close_to(got, exact, bound))
        fail_msg("%s(%a, %a) fma=%d: %a, exact %a", tir_ops[op].text, (double)x, (double)y, c->has_fma, (double)got,
                 exact);
}

static void binary_functions_stay_in_bounds(void **unused) {
    (void)unused;
    static const struct {
        tir_op op;
        double (*reference)(double, double);
        double bound;
    } functions[] = {{TIR_POW, pow, 0.6}, {TIR_ATAN2, atan2, 2.0}};
    for (int k = 0; k < 2; k++)
        for (int fused = 0; fused < 2; fused++) {
            compiled c = compile(functions[k].op, DLC_F32, 2, fused, false);
            for (int i = 0; i < 4 * EDGES * EDGES; i++) {
                float x = edges[i / 4 % EDGES], y = edges[i / 4 / EDGES];
                check_binary(functions[k].op, functions[k].reference, &c, i & 1 ? -x : x, i & 2 ? -y : y,
                             functions[k].bound);
            }
            uint64_t state = 7;
            for (int i = 0; i < 20000; i++) {
                uint64_t r = test_random(&state);
                float x = float_of(r), y = float_of(r >> 32);
                if (i & 1) y = ldexpf(y, -((int)(bits_of(y) >> 23 & 255) - 127)) * 16.0f; /* pow in range more often */
                if (i & 2) y = rintf(y);
                if (i & 4) x = ldexpf(x, -((int)(bits_of(x) >> 23 & 255) - 127));
                check_binary(functions[k].op, functions[k].reference, &c, x, y, functions[k].bound);
            }
        }
}

static void constant_exponents_agree_with_pow(void **unused) {
    (void)unused;
    static const float exponents[] = {0,  0.5f, 1,     2,  3,  4,  5,  7,   8,    16,  31,
                                      64, 65,   -0.5f, -1, -2, -3, -8, -64, -100, 2.5f};
    for (size_t k = 0; k < sizeof exponents / sizeof *exponents; k++)
        for (int fused = 0; fused < 2; fused++) {
            compiled c = {.has_fma = fused};
            c.x = tir_var(&pool, "x", TIR_VAR_LET, DLC_F32, 0, 0);
            c.y = c.x;
            tir_expr power = tir_binary(&pool, TIR_POW, c.x, tir_float(&pool, DLC_F32, (double)exponents[k]));
            c.root = tir_legalize(&pool, power, fused, false, false);
            uint64_t state = k;
            for (int i = 0; i < 2 * EDGES + 1000; i++) {
                float x = i < 2 * EDGES ? (i & 1 ? -edges[i / 2] : edges[i / 2]) : float_of(test_random(&state));
                if (i > 2 * EDGES && i & 1) x = ldexpf(x, -((int)(bits_of(x) >> 23 & 255) - 127));
                float got = float_of(run(&c, bits_of(x), bits_of(x)));
                if (!close_to(got, pow((double)x, (double)exponents[k]), 1.6))
                    fail_msg("pow(%a, %g): %a", (double)x, (double)exponents[k], (double)got);
            }
        }
}

/* ---- what a legal expression may hold */

static void assert_legal_node(tir_expr e, bool has_fma) {
    const tir_node *node = tir_get(&pool, e);
    tir_op op = (tir_op)node->op;
    assert_true(op != TIR_MULADD && (op != TIR_FMA || has_fma));
    if (node->count == 0 || op == TIR_LOAD || op == TIR_BITCAST) return;
    tir_dtype from = tir_dtype_of(&pool, tir_operand(&pool, e, op == TIR_SELECT)), to = node->dtype;
    bool narrow_from = from == DLC_F16 || from == DLC_BF16, narrow_to = to == DLC_F16 || to == DLC_BF16;
    if (op == TIR_CAST) { /* exact by way of f32 but for its one rounding */
        if (narrow_to)
            assert_true(from == DLC_F32 || from == DLC_I8 || from == DLC_U8 || from == DLC_BOOL || narrow_from);
        return;
    }
    if (tir_ops[op].flags & TIR_MATH) assert_int_equal(to, DLC_F64);
    if (op != TIR_SELECT) assert_false(narrow_from || narrow_to);
}

static void assert_legal(tir_expr root, bool has_fma) {
    uint8_t *used = lib_arena_take(&arena, root + 1);
    used[root] = 1;
    for (tir_expr e = root; e; e--) { /* users before operands */
        if (!used[e]) continue;
        for (int i = 0; i < tir_get(&pool, e)->count; i++) used[tir_operand(&pool, e, i)] = 1;
        assert_legal_node(e, has_fma);
    }
}

static const tir_dtype narrow_dtypes[] = {DLC_F16, DLC_BF16};

/* Any f16 or bf16 value from 16 random bits. */
static void narrow_arithmetic_rounds_once(void **unused) {
    (void)unused;
    static const tir_op ops[] = {TIR_ADD, TIR_SUB,  TIR_MUL, TIR_DIV, TIR_MIN,
                                 TIR_MAX, TIR_SQRT, TIR_NEG, TIR_ABS, TIR_FLOOR};
    for (int d = 0; d < 2; d++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
            tir_dtype dtype = narrow_dtypes[d];
            compiled c = compile(ops[k], dtype, tir_ops[ops[k]].arity, true, false);
            assert_legal(c.root, true);
            uint64_t state = k;
            for (int i = 0; i < 5000; i++) {
                uint64_t r = test_random(&state), operands[] = {r & 0xffff, r >> 16 & 0xffff};
                uint64_t got = run(&c, operands[0], operands[1]);
                uint64_t want = tir_arith(ops[k], dtype, dtype, operands, tir_ops[ops[k]].arity, true);
                double g = tir_bits_to_f64(dtype, got), w = tir_bits_to_f64(dtype, want);
                bool twice = dtype == DLC_BF16 && fabs(w) < 0x1p-126; /* may round twice: stated in math_legalize.c */
                if (isnan(w) ? !isnan(g) : twice ? fabs(g - w) > 0x1p-133 : got != want)
                    fail_msg("%s %s(%04x, %04x): %04x, not %04x", tir_dtype_name(dtype), tir_ops[ops[k]].text,
                             (unsigned)operands[0], (unsigned)operands[1], (unsigned)got, (unsigned)want);
            }
        }
}

static void narrow_functions_are_rounded_f32(void **unused) {
    (void)unused;
    for (int d = 0; d < 2; d++)
        for (size_t k = 0; k < sizeof unary_functions / sizeof *unary_functions; k++) {
            compiled c = compile(unary_functions[k].op, narrow_dtypes[d], 1, false, false);
            assert_legal(c.root, false);
            double ulp = narrow_dtypes[d] == DLC_F16 ? 0x1p-11 : 0x1p-8,
                   least = narrow_dtypes[d] == DLC_F16 ? 0x1p-25 : 0x1p-134;
            for (uint32_t bits = 0; bits < 65536; bits += 7 * (uint32_t)(100 / test_some(100))) {
                double x = tir_bits_to_f64(narrow_dtypes[d], bits), exact = unary_functions[k].reference(x);
                double got = tir_bits_to_f64(narrow_dtypes[d], run(&c, bits, 0));
                if (isnan(exact) ? isnan(got) : got == exact) continue;
                if (isinf(got) && fabs(exact) > (narrow_dtypes[d] == DLC_F16 ? 65519.0 : 3.39e38)) continue;
                if (fabs(got - exact) <= fmax(1.001 * ulp * fabs(exact), least * 1.001)) continue;
                fail_msg("%s(%g): %g, not %g", tir_ops[unary_functions[k].op].text, x, got, exact);
            }
        }
}

static void comparisons_and_selects_of_narrow_floats(void **unused) {
    (void)unused;
    for (int d = 0; d < 2; d++) {
        tir_dtype dtype = narrow_dtypes[d];
        compiled c = {.has_fma = true};
        c.x = tir_var(&pool, "x", TIR_VAR_LET, dtype, 0, 0);
        c.y = tir_var(&pool, "y", TIR_VAR_LET, dtype, 0, 0);
        c.root = tir_legalize(&pool, tir_select(&pool, tir_lt(&pool, c.x, c.y), c.x, c.y), true, false, false);
        assert_legal(c.root, true);
        uint64_t state = 3;
        for (int i = 0; i < 5000; i++) {
            uint64_t r = test_random(&state), x = r & 0xffff, y = r >> 16 & 0xffff;
            bool less = tir_bits_to_f64(dtype, x) < tir_bits_to_f64(dtype, y);
            assert_int_equal(run(&c, x, y), less ? x : y);
        }
    }
}

/* Values whose f32 neighbour is a tie of the narrow dtype, and random ones. */
static void casts_to_narrow_round_once(void **unused) {
    (void)unused;
    static const tir_dtype sources[] = {DLC_F64, DLC_F32, DLC_I64, DLC_U64, DLC_I32, DLC_U32, DLC_I8, DLC_U8, DLC_BOOL};
    for (int d = 0; d < 2; d++)
        for (size_t s = 0; s < sizeof sources / sizeof *sources; s++) {
            compiled c = {.has_fma = true};
            c.x = tir_var(&pool, "x", TIR_VAR_LET, sources[s], 0, 0);
            c.y = c.x;
            c.root = tir_legalize(&pool, tir_cast(&pool, narrow_dtypes[d], c.x), true, false, false);
            assert_legal(c.root, true);
            uint64_t state = s;
            for (int i = 0; i < 20000; i++) {
                uint64_t r = test_random(&state), bits = r;
                if (sources[s] == DLC_F64) {
                    double tie = 1.0 + ldexp((double)(2 * (r >> 50) + 1), -8 - (int)(r & 7));
                    double value = ldexp(tie + (double)((int)(r >> 8 & 3) - 1) * 0x1p-45, (int)(r >> 16 & 63) - 32);
                    bits = i & 1 ? bits_of_double(r & 16 ? value : -value) : r;
                } else if (i & 1 && sources[s] != DLC_F32) {
                    unsigned shift = (unsigned)(r & 63);
                    bits = ((0x101 | (r >> 20 & 0xfe)) << shift) + (r >> 8 & 3) - 1;
                }
                uint64_t x = tir_arith_cast(sources[s], DLC_U64, bits);
                if (sources[s] == DLC_F64) x = bits;
                if (sources[s] == DLC_F32) x = bits & 0xffffffff;
                uint64_t got = run(&c, x, x), want = tir_arith_cast(narrow_dtypes[d], sources[s], x);
                double g = tir_bits_to_f64(narrow_dtypes[d], got), w = tir_bits_to_f64(narrow_dtypes[d], want);
                if (isnan(w) ? !isnan(g) : got != want)
                    fail_msg("%s(%s %llx): %04x, not %04x", tir_dtype_name(narrow_dtypes[d]),
                             tir_dtype_name(sources[s]), (unsigned long long)x, (unsigned)got, (unsigned)want);
            }
        }
}

/* x*y + x - y in f16: with excess rounded once, at the end; an explicit cast rounds in any case. */
static void excess_drops_intermediate_rounding_only(void **unused) {
    (void)unused;
    compiled c = {.has_fma = false};
    c.x = tir_var(&pool, "x", TIR_VAR_LET, DLC_F16, 0, 0);
    c.y = tir_var(&pool, "y", TIR_VAR_LET, DLC_F16, 0, 0);
    tir_expr sum = tir_add(&pool, tir_mul(&pool, c.x, c.y), c.x), e = tir_sub(&pool, sum, c.y);
    tir_expr half =
        tir_cast(&pool, DLC_F16, tir_mul(&pool, tir_cast(&pool, DLC_F32, c.x), tir_cast(&pool, DLC_F32, c.y)));
    tir_expr explicit = tir_sub(&pool, tir_add(&pool, half, c.x), c.y);
    uint64_t state = 5;
    for (int i = 0; i < 5000; i++) {
        uint64_t r = test_random(&state), x = (r & 0x3ff) | 0x3c00, y = (r >> 16 & 0x3ff) | 0x3800;
        double a = tir_bits_to_f64(DLC_F16, x), b = tir_bits_to_f64(DLC_F16, y);
        double product = tir_bits_to_f64(DLC_F16, tir_bits_from_f64(DLC_F16, a * b));
        double rounded = tir_bits_to_f64(DLC_F16, tir_bits_from_f64(DLC_F16, product + a));
        c.root = tir_legalize(&pool, e, false, false, false);
        assert_int_equal(run(&c, x, y), tir_bits_from_f64(DLC_F16, rounded - b));
        c.root = tir_legalize(&pool, e, false, false, true);
        assert_int_equal(run(&c, x, y),
                         tir_bits_from_f64(DLC_F16, (double)((float)((float)(a * b) + (float)a) - (float)b)));
        c.root = tir_legalize(&pool, explicit, false, false, true);
        assert_int_equal(run(&c, x, y), tir_bits_from_f64(DLC_F16, (double)(((float)product + (float)a) - (float)b)));
    }
    assert_legal(tir_legalize(&pool, e, false, false, true), false);
}

static void integer_powers_agree_with_arithmetic(void **unused) {
    (void)unused;
    static const tir_dtype dtypes[] = {DLC_I8, DLC_U8, DLC_I32, DLC_I64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        tir_dtype dtype = dtypes[d];
        compiled c = compile(TIR_POW, dtype, 2, true, false);
        assert_legal(c.root, true);
        uint64_t state = d;
        for (int i = 0; i < 3000; i++) {
            uint64_t r = test_random(&state);
            uint64_t operands[] = {tir_arith_cast(dtype, DLC_I64, i & 1 ? r % 7 - 3 : r),
                                   tir_arith_cast(dtype, DLC_I64, i & 2 ? (r >> 32) % 40 - 4 : r >> 20)};
            assert_int_equal(run(&c, operands[0], operands[1]), tir_arith(TIR_POW, dtype, dtype, operands, 2, true));
        }
    }
    compiled c = {.x = tir_var(&pool, "x", TIR_VAR_LET, DLC_I32, 0, 0)};
    c.y = c.x;
    c.root = tir_legalize(&pool, tir_binary(&pool, TIR_POW, c.x, tir_int(&pool, DLC_I32, 5)), true, false, false);
    uint64_t minus_three = (uint64_t)INT64_C(-3);
    assert_int_equal((int64_t)run(&c, minus_three, minus_three), -243);
}

static void muladd_becomes_what_the_machine_has(void **unused) {
    (void)unused;
    static const tir_dtype dtypes[] = {DLC_F32, DLC_F64, DLC_F16, DLC_BF16, DLC_I32};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        tir_expr x = tir_var(&pool, "x", TIR_VAR_LET, dtypes[d], 0, 0),
                 y = tir_var(&pool, "y", TIR_VAR_LET, dtypes[d], 0, 0);
        for (int fused = 0; fused < 2; fused++)
            assert_legal(tir_legalize(&pool, tir_muladd(&pool, x, y, x), fused, false, false), fused);
    }
    tir_expr x = tir_var(&pool, "x", TIR_VAR_LET, DLC_F64, 0, 0);
    assert_int_equal(tir_op_of(&pool, tir_legalize(&pool, tir_unary(&pool, TIR_EXP, x), true, false, false)), TIR_EXP);
    tir_expr index = tir_var(&pool, "i", TIR_VAR_AXIS, TIR_INDEX, 0, 9);
    assert_int_equal(tir_legalize(&pool, tir_add(&pool, index, index), true, false, false),
                     tir_add(&pool, index, index));
}

/* Shared nodes are visited once: 64 levels of x = exp(x) + exp(x) would be 2^64 otherwise. */
static void shared_nodes_are_legalized_once(void **unused) {
    (void)unused;
    for (int d = 0; d < 2; d++) {
        tir_expr x = tir_var(&pool, "x", TIR_VAR_LET, narrow_dtypes[d], 0, 0), e = x;
        for (int i = 0; i < 64; i++) e = tir_mul(&pool, tir_unary(&pool, TIR_TANH, e), tir_add(&pool, e, x));
        uint32_t before = pool.nodes.count;
        tir_legalize(&pool, e, true, false, d);
        assert_true(pool.nodes.count - before < 64 * 80);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unary_functions_stay_in_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(tanh_and_erf_stay_within_one, setup, teardown),
        cmocka_unit_test_setup_teardown(normal_cdf_keeps_its_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(fast_normal_cdf_is_flat_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(sin_and_cos_reduce_exactly, setup, teardown),
        cmocka_unit_test_setup_teardown(binary_functions_stay_in_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(constant_exponents_agree_with_pow, setup, teardown),
        cmocka_unit_test_setup_teardown(narrow_arithmetic_rounds_once, setup, teardown),
        cmocka_unit_test_setup_teardown(narrow_functions_are_rounded_f32, setup, teardown),
        cmocka_unit_test_setup_teardown(comparisons_and_selects_of_narrow_floats, setup, teardown),
        cmocka_unit_test_setup_teardown(casts_to_narrow_round_once, setup, teardown),
        cmocka_unit_test_setup_teardown(excess_drops_intermediate_rounding_only, setup, teardown),
        cmocka_unit_test_setup_teardown(integer_powers_agree_with_arithmetic, setup, teardown),
        cmocka_unit_test_setup_teardown(muladd_becomes_what_the_machine_has, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_nodes_are_legalized_once, setup, teardown),
    };
    return cmocka_run_group_tests_name("tir math", tests, NULL, NULL);
}
