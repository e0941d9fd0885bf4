/* Largest errors of the expansions of tir/math, with and without fused multiply-add: the table in the header of tir/math.c. Over 10^7
 * f32 inputs, with DLC_TEST_LONG=1 over all of them, with DLC_TEST_SHARE=10 over 10^6.      math_ulp [stride [function]]
 * The expansions are run by an evaluator of its own, over blocks of lanes: it shares nothing with tir/arith.c, and it
 * is fast enough for 2^32 inputs. The reference is libm in f64. One process for each processor, each of which takes a share of the
 * inputs of every function. */
#include "random.h"
#include "test/share.h"
#include "tir/math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANES 512
#define MAX_NODES 400

typedef union lanes {
    float f32[LANES];
    double f64[LANES];
    int32_t i32[LANES];
    uint32_t u32[LANES];
    uint64_t u64[LANES];
    uint8_t bit[LANES];
} lanes;

/* An expression flattened: reachable nodes in ascending order, operands by position. */
typedef struct flat_program {
    const tir_pool *pool;
    tir_expr ids[MAX_NODES];
    /* by id */
    uint32_t at[4 * MAX_NODES];
    int count;
    lanes *values;
} flat_program;

#define FOR for (int i = 0; i < LANES; i++)

static void fail(const char *what) {
    fprintf(stderr, "math_ulp: %s\n", what);
    exit(2);
}

/* Loops over lanes as wide as the processor has them; fmaf and fma, floorf and rintf are calls where the compiler may not assume the
 * instructions. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "arch=x86-64-v3"), optimize("O3")))
#else
#define WIDE
#endif

WIDE static void fused_f32(lanes *r, const lanes *a, const lanes *b, const lanes *c) {
    FOR r->f32[i] = fmaf(a->f32[i], b->f32[i], c->f32[i]);
}
WIDE static void fused_f64(lanes *r, const lanes *a, const lanes *b, const lanes *c) {
    FOR r->f64[i] = fma(a->f64[i], b->f64[i], c->f64[i]);
}

static inline double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a 2^n, rounded once: the product of doubles is exact, and beyond these n the result is 0 or infinite. */
static inline float scaled(float a, float n) {
    float power = n > 300 ? 300 : n < -300 ? -300 : n;
    return n != n ? n : (float)((double)a * power_of_two((int)power));
}

WIDE static void run_f32(tir_op op, lanes *r, const lanes *a, const lanes *b, const lanes *c, bool has_fma) {
    switch (op) {
    case TIR_ADD: FOR r->f32[i] = a->f32[i] + b->f32[i]; break;
    case TIR_SUB: FOR r->f32[i] = a->f32[i] - b->f32[i]; break;
    case TIR_MUL: FOR r->f32[i] = a->f32[i] * b->f32[i]; break;
    case TIR_DIV: FOR r->f32[i] = a->f32[i] / b->f32[i]; break;
    case TIR_SQRT: FOR r->f32[i] = sqrtf(a->f32[i]); break;
    case TIR_ABS: FOR r->f32[i] = fabsf(a->f32[i]); break;
    case TIR_NEG: FOR r->f32[i] = -a->f32[i]; break;
    case TIR_FLOOR: FOR r->f32[i] = floorf(a->f32[i]); break;
    case TIR_ROUND: FOR r->f32[i] = rintf(a->f32[i]); break;
    case TIR_LDEXP: FOR r->f32[i] = scaled(a->f32[i], b->f32[i]); break;
    case TIR_LT: FOR r->bit[i] = a->f32[i] < b->f32[i]; break;
    case TIR_LE: FOR r->bit[i] = a->f32[i] <= b->f32[i]; break;
    case TIR_EQ: FOR r->bit[i] = a->f32[i] == b->f32[i]; break;
    case TIR_NE: FOR r->bit[i] = a->f32[i] != b->f32[i]; break;
    case TIR_MULADD:
        if (has_fma)
            fused_f32(r, a, b, c);
        else
            FOR r->f32[i] = a->f32[i] * b->f32[i] + c->f32[i];
        break;
    default: fail(tir_ops[op].text);
    }
}

WIDE static void run_f64(tir_op op, lanes *r, const lanes *a, const lanes *b, const lanes *c, bool has_fma) {
    switch (op) {
    case TIR_ADD: FOR r->f64[i] = a->f64[i] + b->f64[i]; break;
    case TIR_SUB: FOR r->f64[i] = a->f64[i] - b->f64[i]; break;
    case TIR_MUL: FOR r->f64[i] = a->f64[i] * b->f64[i]; break;
    case TIR_DIV: FOR r->f64[i] = a->f64[i] / b->f64[i]; break;
    case TIR_SQRT: FOR r->f64[i] = sqrt(a->f64[i]); break;
    case TIR_ROUND: FOR r->f64[i] = rint(a->f64[i]); break;
    case TIR_LT: FOR r->bit[i] = a->f64[i] < b->f64[i]; break;
    case TIR_EQ: FOR r->bit[i] = a->f64[i] == b->f64[i]; break;
    case TIR_MULADD:
        if (has_fma)
            fused_f64(r, a, b, c);
        else
            FOR r->f64[i] = a->f64[i] * b->f64[i] + c->f64[i];
        break;
    default: fail(tir_ops[op].text);
    }
}

WIDE static void run_bits32(tir_op op, bool is_signed, lanes *r, const lanes *a, const lanes *b) {
    switch (op) {
    case TIR_ADD: FOR r->u32[i] = a->u32[i] + b->u32[i]; break;
    case TIR_SUB: FOR r->u32[i] = a->u32[i] - b->u32[i]; break;
    case TIR_MULHI: FOR r->u32[i] = (uint32_t)((uint64_t)a->u32[i] * b->u32[i] >> 32); break;
    case TIR_AND: FOR r->u32[i] = a->u32[i] & b->u32[i]; break;
    case TIR_OR: FOR r->u32[i] = a->u32[i] | b->u32[i]; break;
    case TIR_XOR: FOR r->u32[i] = a->u32[i] ^ b->u32[i]; break;
    case TIR_SHL: FOR r->u32[i] = a->u32[i] << b->u32[i]; break;
    case TIR_SHR:
        if (is_signed)
            FOR r->i32[i] = a->i32[i] >> b->u32[i];
        else
            FOR r->u32[i] = a->u32[i] >> b->u32[i];
        break;
    case TIR_NE: FOR r->bit[i] = a->u32[i] != b->u32[i]; break;
    case TIR_EQ: FOR r->bit[i] = a->u32[i] == b->u32[i]; break;
    case TIR_LT:
        if (is_signed)
            FOR r->bit[i] = a->i32[i] < b->i32[i];
        else
            FOR r->bit[i] = a->u32[i] < b->u32[i];
        break;
    default: fail(tir_ops[op].text);
    }
}

WIDE static void run_bits64(tir_op op, lanes *r, const lanes *a, const lanes *b) {
    switch (op) {
    case TIR_ADD: FOR r->u64[i] = a->u64[i] + b->u64[i]; break;
    case TIR_SUB: FOR r->u64[i] = a->u64[i] - b->u64[i]; break;
    case TIR_AND: FOR r->u64[i] = a->u64[i] & b->u64[i]; break;
    case TIR_OR: FOR r->u64[i] = a->u64[i] | b->u64[i]; break;
    case TIR_SHL: FOR r->u64[i] = a->u64[i] << b->u64[i]; break;
    case TIR_SHR: FOR r->u64[i] = a->u64[i] >> b->u64[i]; break;
    default: fail(tir_ops[op].text);
    }
}

WIDE static void run_bool(tir_op op, lanes *r, const lanes *a, const lanes *b) {
    switch (op) {
    case TIR_AND: FOR r->bit[i] = a->bit[i] & b->bit[i]; break;
    case TIR_OR: FOR r->bit[i] = a->bit[i] | b->bit[i]; break;
    case TIR_NOT: FOR r->bit[i] = !a->bit[i]; break;
    default: fail(tir_ops[op].text);
    }
}

WIDE static void run_moves(tir_op op, tir_dtype to, tir_dtype from, lanes *r, const lanes *a, const lanes *b,
                           const lanes *c) {
    bool wide = to == DLC_F64 || to == DLC_U64 || to == DLC_I64;
    if (op == TIR_SELECT) {
        if (to == DLC_BOOL)
            FOR r->bit[i] = a->bit[i] ? b->bit[i] : c->bit[i];
        else if (wide)
            FOR r->u64[i] = a->bit[i] ? b->u64[i] : c->u64[i];
        else
            FOR r->u32[i] = a->bit[i] ? b->u32[i] : c->u32[i];
    } else if (op == TIR_BITCAST) {
        memcpy(r, a, sizeof *r);
    } else if (to == DLC_F64 && from == DLC_F32) {
        FOR r->f64[i] = (double)a->f32[i];
    } else if (to == DLC_F32 && from == DLC_F64) {
        FOR r->f32[i] = (float)a->f64[i];
    } else if (to == DLC_F32 && from == DLC_I32) {
        FOR r->f32[i] = (float)a->i32[i];
    } else {
        fail("a cast without a case");
    }
}

static void run_node(const flat_program *program, int at, bool has_fma) {
    const tir_pool *pool = program->pool;
    tir_expr id = program->ids[at];
    const tir_node *node = tir_get(pool, id);
    tir_op op = (tir_op)node->op;
    lanes *r = &program->values[at];
    const lanes *x[3] = {NULL, NULL, NULL};
    if (tir_ops[op].flags & TIR_LEAF) return;
    for (int i = 0; i < node->count; i++) x[i] = &program->values[program->at[tir_operand(pool, id, i)]];
    tir_dtype from = tir_dtype_of(pool, tir_operand(pool, id, 0));
    if (op == TIR_SELECT || op == TIR_BITCAST || op == TIR_CAST) {
        run_moves(op, node->dtype, from, r, x[0], x[1], x[2]);
        return;
    }
    switch (from) {
    case DLC_F32: run_f32(op, r, x[0], x[1], x[2], has_fma); break;
    case DLC_F64: run_f64(op, r, x[0], x[1], x[2], has_fma); break;
    case DLC_I32: run_bits32(op, true, r, x[0], x[1]); break;
    case DLC_U32: run_bits32(op, false, r, x[0], x[1]); break;
    case DLC_U64: run_bits64(op, r, x[0], x[1]); break;
    case DLC_BOOL: run_bool(op, r, x[0], x[1]); break;
    default: fail("a dtype without a case");
    }
}

static void flatten(flat_program *program, const tir_pool *pool, tir_expr root) {
    static uint8_t used[4 * MAX_NODES];
    memset(used, 0, sizeof used);
    if (root >= sizeof used) fail("expression too large");
    program->pool = pool;
    used[root] = 1;
    for (tir_expr id = root; id; id--)
        for (int i = 0; used[id] && i < tir_get(pool, id)->count; i++) used[tir_operand(pool, id, i)] = 1;
    program->count = 0;
    for (tir_expr id = 1; id <= root; id++) {
        if (!used[id]) continue;
        if (program->count == MAX_NODES) fail("expression too large");
        program->at[id] = (uint32_t)program->count;
        program->ids[program->count++] = id;
    }
    program->values = aligned_alloc(64, (size_t)program->count * sizeof(lanes));
    if (!program->values) fail("out of memory");
    for (int at = 0; at < program->count; at++) {
        const tir_node *node = tir_get(pool, program->ids[at]);
        if (node->op != TIR_CONST) continue;
        bool wide = node->dtype == DLC_F64 || node->dtype == DLC_U64;
        lanes *r = &program->values[at];
        if (node->dtype == DLC_BOOL)
            FOR r->bit[i] = (uint8_t)node->bits;
        else if (wide)
            FOR r->u64[i] = node->bits;
        else
            FOR r->u32[i] = (uint32_t)node->bits;
    }
}

/* ---- functions and errors */

static double logistic(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double silu(double x) {
    return x == -INFINITY ? -0.0 : x * logistic(x);
}
static double normal_cdf(double x) {
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* operator, reference, operands, bound in ulp with and without fma, least magnitude whose ulp counts */
#define FUNCTIONS(X)                                \
    X(TIR_EXP, exp, 1, 2.0, 2.5, 0)                 \
    X(TIR_EXPM1, expm1, 1, 2.0, 2.0, 0)             \
    X(TIR_LOG, log, 1, 1.0, 1.0, 0)                 \
    X(TIR_LOG1P, log1p, 1, 2.0, 2.0, 0)             \
    X(TIR_SIN, sin, 1, 2.0, 2.0, 0)                 \
    X(TIR_COS, cos, 1, 2.0, 2.0, 0)                 \
    X(TIR_TAN, tan, 1, 3.0, 3.0, 0)                 \
    X(TIR_ASIN, asin, 1, 3.0, 3.0, 0)               \
    X(TIR_ACOS, acos, 1, 3.0, 3.0, 0)               \
    X(TIR_ATAN, atan, 1, 3.0, 3.0, 0)               \
    X(TIR_SINH, sinh, 1, 1.0, 1.0, 0)               \
    X(TIR_COSH, cosh, 1, 1.0, 1.0, 0)               \
    X(TIR_ASINH, asinh, 1, 1.0, 1.0, 0)             \
    X(TIR_ACOSH, acosh, 1, 1.0, 1.0, 0)             \
    X(TIR_ATANH, atanh, 1, 1.0, 1.0, 0)             \
    X(TIR_CBRT, cbrt, 1, 1.0, 1.0, 0)               \
    X(TIR_TANH, tanh, 1, 4.0, 4.0, 0)               \
    X(TIR_ERF, erf, 1, 3.0, 3.0, 0)                 \
    X(TIR_LOGISTIC, logistic, 1, 2.5, 2.5, 0)       \
    X(TIR_SILU, silu, 1, 3.5, 3.5, 0)               \
    X(TIR_NORMAL_CDF, normal_cdf, 1, 3.0, 3.0, 0.5) \
    X(TIR_NORMAL_TAIL, normal_cdf, 1, 4.0, 4.5, 0)  \
    X(TIR_ERFC, erfc, 1, 4.0, 4.8, 0)               \
    X(TIR_EXP2, exp2, 1, 1.5, 1.5, 0)               \
    X(TIR_EXP10, exp10, 1, 1.5, 1.5, 0)             \
    X(TIR_ATAN2, atan2, 2, 2.0, 2.0, 0)             \
    X(TIR_POW, pow, 2, 0.6, 0.6, 0)

#define CALL_1(f) (f)(x)
#define CALL_2(f) (f)(x, y)
#define X(op, reference, operands, fused, apart, least) \
    static double op##_reference(double x, double y) {  \
        (void)y;                                        \
        return CALL_##operands(reference);              \
    }
FUNCTIONS(X)
#undef X

typedef struct math_function {
    tir_op op;
    double (*reference)(double x, double y);
    int operands;
    /* apart, fused */
    double bound[2];
    double least;
} math_function;
static const math_function functions[] = {
#define X(op, reference, operands, fused, apart, least) {op, op##_reference, operands, {apart, fused}, least},
    FUNCTIONS(X)
#undef X
};
#define COUNT ((int)(sizeof functions / sizeof *functions))

/* 2^exponent with magnitude in [2^(exponent - 1), 2^exponent), as frexp counts. */
static int exponent_of(double magnitude) {
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    return (int)(bits >> 52) - 1022;
}

/* |got - exact| in units in the last place of f32 at `exact`, or at `least` where that is larger; huge when the class (NaN, infinity,
 * sign of zero) is wrong. */
static double ulp_error(float got, double exact, double least) {
    const double wrong = 1e9;
    if (isnan(exact)) return isnan(got) ? 0.0 : wrong;
    if (isnan(got)) return wrong;
    if (exact == 0.0) return got == 0.0f && !signbit(got) == !signbit(exact) ? 0.0 : wrong;
    if (isinf(exact)) return (double)got == exact ? 0.0 : wrong;
    double value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
    int exponent = exponent_of(fmax(fabs(exact), least));
    if (exponent > 128) { /* overflows: inf, or a hair below */
        exponent = 128;
        exact = copysign(0x1p128, exact);
    }
    if (exponent < -125) exponent = -125;
    return fabs(value - exact) * power_of_two(24 - exponent);
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A pair of floats: bits at random, or near 1, so that pow does not always overflow. */
static void random_pair(uint64_t *state, float *a, float *b) {
    const uint64_t z = test_random(state);
    uint32_t low = (uint32_t)z, high = (uint32_t)(z >> 32);
    switch (high & 7) {
    case 0: break;
    case 1: low = 0x3f000000u + (low >> 8), high = 0x3f000000u + (high >> 4); break;
    case 2: high = (high & 0x80000000u) | (0x3f800000u + (high >> 8 & 0x3ffffffu)); break;
    default:
        low = 0x30000000u + (low >> 3), high = (high & 0x80000000u) | (0x38000000u + (high >> 4 & 0xfffffffu));
        break;
    }
    *a = float_of_bits(low);
    *b = float_of_bits(high);
    if ((z >> 16 & 31) == 0) *b = rintf(*b);
}

typedef struct worst_case {
    double ulp;
    float x, y, got;
} worst_case;

/* Which results are not the reference rounded to f32; the others are within half a unit. Returns how many. */
WIDE static int find_inexact(const lanes *result, const double *exact, uint8_t *inexact) {
    lanes rounded;
    int count = 0;
    FOR rounded.f32[i] = (float)exact[i];
    FOR inexact[i] = result->u32[i] != rounded.u32[i];
    FOR count += inexact[i];
    return count;
}

static void compare(const math_function *f, const lanes *result, const lanes *input, const double *exact,
                    worst_case *worst) {
    uint8_t inexact[LANES];
    if (worst->ulp < 0.5)
        memset(inexact, 1, sizeof inexact);
    else if (!find_inexact(result, exact, inexact))
        return;
    FOR {
        double ulp = inexact[i] ? ulp_error(result->f32[i], exact[i], f->least) : 0;
        if (ulp > worst->ulp) *worst = (worst_case){ulp, input[0].f32[i], input[1].f32[i], result->f32[i]};
    }
}

typedef struct outcome {
    /* not fused, fused */
    worst_case worst[2];
    int operations;
} outcome;

/* Both variants of one function, over every stride-th of the inputs from `first` to before `end`. */
static void measure(const math_function *f, tir_pool *pool, uint64_t first, uint64_t end, uint64_t stride,
                    outcome *result) {
    tir_expr operands[2];
    operands[0] = tir_var(pool, "x", TIR_VAR_LET, DLC_F32, 0, 0);
    operands[1] = tir_var(pool, "y", TIR_VAR_LET, DLC_F32, 0, 0);
    static flat_program program;
    flatten(&program, pool, tir_math_expand(pool, f->op, operands));
    static lanes input[2];
    static double exact[LANES];
    uint64_t state = first + 1;
    for (uint64_t done = first; done < end;) {
        FOR {
            input[0].f32[i] = float_of_bits((uint32_t)done);
            if (f->operands == 2) random_pair(&state, &input[0].f32[i], &input[1].f32[i]);
            done += stride;
        }
        FOR exact[i] = f->reference((double)input[0].f32[i], (double)input[1].f32[i]);
        for (int fused = 0; fused < 2; fused++) {
            for (int at = 0; at < program.count; at++) {
                if (program.ids[at] == operands[0]) program.values[at] = input[0];
                if (program.ids[at] == operands[1]) program.values[at] = input[1];
                run_node(&program, at, fused);
            }
            compare(f, &program.values[program.count - 1], input, exact, &result->worst[fused]);
        }
    }
    for (int at = 0; at < program.count; at++) {
        tir_op op = tir_op_of(pool, program.ids[at]);
        result->operations += !(tir_ops[op].flags & TIR_LEAF) && op != TIR_BITCAST;
    }
    free(program.values);
}

static void measure_share(const math_function *f, int worker, int workers, uint64_t stride, outcome *result) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) fail(scope.error.message);
    tir_pool pool;
    tir_pool_init(&pool, &arena);
    uint64_t inputs = (UINT64_C(1) << 32) / stride, w = (uint64_t)worker, n = (uint64_t)workers;
    measure(f, &pool, inputs * w / n * stride,
            worker == workers - 1 ? UINT64_C(1) << 32 : inputs * (w + 1) / n * stride, stride, result);
    lib_arena_free(&arena);
}

/* Prints the worst of all shares; false if it exceeds the function's bound. */
static bool report(const math_function *f, int workers, const outcome *shares) {
    outcome all = shares[0];
    for (int w = 1; w < workers; w++)
        for (int fused = 0; fused < 2; fused++)
            if (shares[w].worst[fused].ulp > all.worst[fused].ulp) all.worst[fused] = shares[w].worst[fused];
    const worst_case *apart = &all.worst[0], *together = &all.worst[1];
    bool passed = apart->ulp <= f->bound[0] && together->ulp <= f->bound[1];
    printf("%-10s %8.2f %10.2f %10d   worst at %a, %a: %a | %a, %a: %a%s\n", tir_ops[f->op].text, together->ulp,
           apart->ulp, all.operations, (double)together->x, (double)together->y, (double)together->got,
           (double)apart->x, (double)apart->y, (double)apart->got, passed ? "" : "   FAILED");
    fflush(stdout);
    return passed;
}

static bool check(const math_function *f, uint64_t stride, int workers, outcome *shares) {
    memset(shares, 0, (size_t)workers * sizeof *shares);
    for (int w = 0; w < workers; w++) {
        pid_t child = fork();
        if (child < 0) fail("no process");
        if (child > 0) continue;
        measure_share(f, w, workers, stride, &shares[w]);
        _exit(0);
    }
    bool whole = true;
    for (int status; wait(&status) > 0;) whole &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return report(f, workers, shares) && whole;
}

static bool check_all(uint64_t stride, const char *only) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int workers = processors < 1 ? 1 : processors > 64 ? 64 : (int)processors;
    outcome *shares =
        mmap(NULL, (size_t)workers * sizeof *shares, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shares == MAP_FAILED) fail("out of memory");
    bool passed = true;
    for (int k = 0; k < COUNT; k++) {
        if (only && strcmp(only, tir_ops[functions[k].op].text) != 0) continue;
        bool pairs = functions[k].operands == 2; /* at random: there is no all of them */
        passed &= check(&functions[k], pairs && stride < 31 ? 31 : stride, workers, shares);
    }
    munmap(shares, (size_t)workers * sizeof *shares);
    return passed;
}

int main(int count, char **arguments) {
    const char *longer = getenv("DLC_TEST_LONG");
    uint64_t stride = longer && *longer == '1' ? 1 : test_is_short() ? 4001 : 429;
    if (count > 1) stride = strtoull(arguments[1], NULL, 0);
    printf("function      fused  not fused operations\n");
    fflush(stdout);
    bool passed = check_all(stride ? stride : 1, count > 2 ? arguments[2] : NULL);
    printf("[==========] %d test(s) run.\n[  %s  ] %d test(s)%s\n", COUNT, passed ? "PASSED" : "FAILED", COUNT,
           passed ? "." : ": a bound is exceeded");
    return !passed;
}
