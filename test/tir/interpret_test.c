/* The interpreter: kernels in text against plain C, and one kernel per kind of violation. */
#include "tir/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Parses and runs; the status, with the message in *error. */
static dlc_status run(const char *text, void *const *arguments, const int64_t *params,
                      const tir_interpret_options *options, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    error->message[0] = 0;
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "<text>", text, strlen(text));
        tir_kernel *kernel = tir_kernel_parse(&arena, &lexer, NULL);
        error->status = tir_interpret(kernel, arguments, params, options, &lib_libc_allocator, error);
    } else {
        *error = scope.error;
    }
    lib_arena_free(&arena);
    return error->status;
}

/* Forwards and backwards, with and without checks: always right, always `expected`. */
static void run_all_ways(const char *text, void *const *arguments, const int64_t *params, void *output,
                         const void *expected, size_t size) {
    for (int way = 0; way < 8; way++) {
        const tir_interpret_options options = {.check = way & 1, .reverse_tasks = way & 2, .reverse_lanes = way & 4};
        lib_error error;
        memset(output, 0xa5, size);
        if (run(text, arguments, params, &options, &error) != DLC_OK) fail_msg("%s", error.message);
        assert_memory_equal(output, expected, size);
    }
}

static void test_contraction(void **state) {
    (void)state;
    enum { M = 5, K = 3, N = 11 };
    float x[M][K], w[2][K][8], y[M][N], expected[M][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) x[i][k] = (float)(i * 7 - k * 3) / 3;
    for (int k = 0; k < K; k++)
        for (int j = 0; j < 16; j++) w[j / 8][k][j % 8] = (float)(k * 5 - j) / 7;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum = fmaf(x[i][k], w[j / 8][k][j % 8], sum);
            expected[i][j] = sum > 0 ? sum : 0;
        }
    void *arguments[] = {x, w, y};
    run_all_ways("kernel k(x: f32[m, 3] arg, w: f32[2, 3, 8] arg, y: f32[m, 11] arg, c: f32[2, 8] reg) params(m: 0..64)"
                 "phase tasks=(m + 1)/2*2 task=p {"
                 "  let jo = p%2"
                 "  let i0 = p/2*2"
                 "  for i in 0..2 unroll { for j in 0..8 vec { c[i, j] = 0 } }"
                 "  for k in 0..3 { for i in 0..2 unroll { for j in 0..8 vec {"
                 "    c[i, j] = fma(x[i0 + i, k where i0 + i < m else 0], w[jo, k, j], c[i, j]) } } }"
                 "  for i in 0..2 unroll { if (i0 + i < m) { for j in 0..8 vec {"
                 "    if (jo*8 + j < 11) { y[i0 + i, jo*8 + j] = max(c[i, j], 0) } } } }"
                 "}",
                 arguments, (int64_t[]){M}, y, expected, sizeof y);
}

static void test_dtypes(void **state) {
    (void)state;
    int8_t a[4] = {-128, 127, -1, 5};
    uint8_t b[4] = {255, 0, 1, 200};
    bool c[4] = {true, false, true, false};
    uint16_t h[4] = {0x3c00, 0xc000, 0x7c00, 0x0001}; /* 1, -2, inf, 2^-24 */
    double d[4] = {1e300, -0.0, 3, -2.5};
    int64_t out[4][5], expected[4][5];
    for (int i = 0; i < 4; i++) {
        static const int64_t half[] = {1, -2, INT64_MAX, 0};
        expected[i][0] = (int8_t)(uint8_t)(a[i] * 3);
        expected[i][1] = (uint8_t)(b[i] + 1);
        expected[i][2] = !c[i];
        expected[i][3] = half[i];
        expected[i][4] = d[i] < 0;
    }
    void *arguments[] = {a, b, c, h, d, out};
    run_all_ways("kernel k(a: i8[4] arg, b: u8[4] arg, c: bool[4] arg, h: f16[4] arg, d: f64[4] arg, o: i64[4, 5] arg)"
                 "phase tasks=4 task=i {"
                 "  let u: u8 = b[i] + 1"
                 "  o[i, 0] = cast.i64(a[i]*3)"
                 "  o[i, 1] = cast.i64(u)"
                 "  o[i, 2] = cast.i64(not(c[i]))"
                 "  o[i, 3] = cast.i64(cast.f32(h[i]))"
                 "  o[i, 4] = cast.i64(d[i] < 0)"
                 "}",
                 arguments, NULL, out, expected, sizeof out);
}

/* Every operator with a way of its own in the interpreter, on i32 and f32. */
static void test_fast_operators(void **state) {
    (void)state;
    enum { N = 6 };
    int32_t a[N] = {INT32_MIN, -7, 0, 3, INT32_MAX, -1}, out[N][9], expected[N][9];
    float x[N] = {-1.5f, 0, 3, 1e30f, -0.0f, 7};
    for (int i = 0; i < N; i++) {
        int32_t b = a[(i + 1) % N];
        float y = x[(i + 1) % N];
        expected[i][0] = (int32_t)((uint32_t)a[i] + (uint32_t)b);
        expected[i][1] = (int32_t)((uint32_t)a[i] - (uint32_t)b);
        expected[i][2] = (int32_t)((uint32_t)a[i] * (uint32_t)b);
        expected[i][3] = a[i] < b ? a[i] : b;
        expected[i][4] = a[i] ^ b;
        expected[i][5] = a[i] <= b ? a[i] | b : a[i] & b;
        expected[i][6] = x[i] < y;
        expected[i][7] = (int32_t)floorf((float)(i - 3) / 2);
        expected[i][8] = ((i - 3) % 2 + 2) % 2;
    }
    void *arguments[] = {a, x, out};
    run_all_ways("kernel k(a: i32[6] arg, x: f32[6] arg, o: i32[6, 9] arg) phase tasks=6 task=i {"
                 "  let n = select(i < 5, i + 1, 0)"
                 "  o[i, 0] = a[i] + a[n]"
                 "  o[i, 1] = a[i] - a[n]"
                 "  o[i, 2] = a[i]*a[n]"
                 "  o[i, 3] = min(a[i], a[n])"
                 "  o[i, 4] = xor(a[i], a[n])"
                 "  o[i, 5] = select(a[i] <= a[n], or(a[i], a[n]), and(a[i], a[n]))"
                 "  o[i, 6] = cast.i32(x[i] < x[n])"
                 "  o[i, 7] = cast.i32((i - 3)/2)"
                 "  o[i, 8] = cast.i32((i - 3)%2)"
                 "}",
                 arguments, NULL, out, expected, sizeof out);
}

/* Two phases that talk through the workspace, repeated; data-dependent bounds and indices; negative strides. */
static void test_phases(void **state) {
    (void)state;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8], expected[8], w[8];
    int32_t count[1] = {3};
    memcpy(w, x, sizeof w);
    for (int t = 0; t < 3; t++) {
        float old[8];
        memcpy(old, w, sizeof w);
        for (int i = 0; i < 8; i++) w[i] = old[i] + old[(i + 1) % 8] + (float)t;
    }
    for (int i = 0; i < 8; i++) expected[7 - i] = i < 3 ? w[i] : 0;
    void *arguments[] = {x, count, &y[7]};
    run_all_ways(
        "kernel k(x: f32[8] arg, n: i32[1] arg, y: f32[8] arg stride(-1), w: f32[8] workspace, v: f32[8] workspace)"
        "phase tasks=8 task=p { w[p] = x[p] }"
        "phase \"step\" tasks=8 repeat=3 iteration=t repeat_phases=2 task=p {"
        "  v[p] = w[p] + w[(p + 1)%8] + cast.f32(t) }"
        "phase tasks=4 task=p { w[p*2] = v[p*2] w[p*2 + 1] = v[p*2 + 1] }"
        "phase tasks=1 task=p {"
        "  for i in 0..8 { y[i] = 0 }"
        "  for i in 0 .. cast.index(n[0]) { y[i] = w[i] }"
        "}",
        arguments, NULL, y, expected, sizeof y);
}

/* Values may be hoisted out of loops, loads may not: memory changes under them. */
static void test_loads_are_not_hoisted(void **state) {
    (void)state;
    int32_t a[1], expected[1] = {1 << 10};
    void *arguments[] = {a};
    run_all_ways("kernel k(a: i32[1] arg) phase tasks=1 task=p {"
                 "  a[0] = 1"
                 "  for i in 0..10 { let v: i32 = a[0] a[0] = v + a[0] }"
                 "}",
                 arguments, NULL, a, expected, sizeof a);
}

static void test_empty(void **state) {
    (void)state;
    float none[1] = {7}, expected[1] = {7};
    void *arguments[] = {none, none};
    for (int64_t n = 0; n < 2; n++) {
        lib_error error;
        const tir_interpret_options options = {.check = true};
        assert_int_equal(run("kernel k(x: f32[n] arg, y: f32[n] arg, w: f32[n, 4] workspace) params(n: 0..9)"
                             "phase tasks=n task=p { for i in 0 .. n { y[i] = x[i] } }",
                             arguments, &n, &options, &error),
                         DLC_OK);
        assert_memory_equal(none, expected, sizeof none);
    }
}

#define HEAD \
    "kernel k(x: f32[16] arg, y: f32[16] arg, n: i32[16] arg, w: f32[16] workspace, l: f32[16] local, r: f32[16] reg)"
#define ONE(body) HEAD "phase tasks=1 task=p {" body "}"
#define FOUR(body) HEAD "phase tasks=4 task=p {" body "}"

/* Text and a part of the message that it must give with checks on; "" means that it is right. */
static const struct {
    const char *text, *message;
} violations[] = {
    /* bounds */
    {ONE("for i in 0..17 { y[i] = 0 }"), "out of bounds: store to y[16] of extents [16], in: y[i] = 0:f32"},
    {ONE("for i in 0..16 { y[i] = x[i - 1] }"), "out of bounds: load of x[-1]"},
    {ONE("for i in 0..16 { y[i] = x[i - 1 where 1 <= i else 0] }"), ""},
    {ONE("y[0] = x[cast.index(n[0])]"), "out of bounds: load of x[99]"},
    {ONE("prefetch.1 x[77]"), ""},
    /* poison */
    {ONE("y[0] = r[0]"), "poison is stored to y[0]"},
    {ONE("y[0] = l[3]*2"), "poison is stored to y[0]"},
    {ONE("r[1] = r[0] r[0] = 1 y[0] = r[1]"), "poison is stored"},
    {ONE("r[0] = 1 r[1] = r[0] y[0] = r[1]"), ""},
    {ONE("r[1] = r[0] y[0] = select(x[0] < -100, r[1], 5)"), ""},
    {ONE("y[0] = x[cast.index(cast.i32(r[0]))]"), "an index of a load is poison"},
    {ONE("y[cast.index(cast.i32(r[0]))] = 0"), "an index of a store is poison"},
    {ONE("if (r[0] < 1) { y[0] = 0 }"), "the condition of an if is poison"},
    {ONE("for i in 0 .. cast.index(cast.i32(r[0])) { y[i] = 0 }"), "a bound of a loop is poison"},
    {ONE("let v: f32 = r[0] y[0] = v"), "poison is stored"},
    {FOUR("if (p < 1) { r[0] = 1 } y[p] = r[0]"), "poison is stored to y[1]"},
    {FOUR("if (p < 1) { l[0] = 1 } y[p] = l[0]"), "poison is stored to y[1]"},
    {HEAD "phase tasks=4 task=p { w[p] = 1 } phase tasks=5 task=p { y[p] = w[p] }", "poison is stored to y[4]"},
    {HEAD "phase tasks=4 task=p { w[p] = 1 } phase tasks=4 task=p { y[p] = w[3 - p] }", ""},
    {"kernel k(x: f32[1] arg, y: f32[1] arg, n: i32[16] arg, r: f32[4] reg zero) phase tasks=1 task=p { y[0] = r[2] }",
     ""},
    /* races */
    {FOUR("y[0] = 1"), "race: two tasks of the phase write y[0]"},
    {FOUR("y[p] = y[p + 1]"), "race: "},
    {FOUR("y[3 - p] = y[p]"), "race: "},
    {FOUR("w[p/2] = 1"), "race: "},
    {FOUR("l[0] = 1 r[0] = 2 y[p] = l[0] + r[0]"), ""},
    {FOUR("y[p] = x[0] + x[1]"), ""},
    {HEAD "phase tasks=4 task=p { y[p] = 1 } phase tasks=4 task=p { y[p + 4] = y[3 - p] }", ""},
    /* iterations of vec loops */
    {ONE("for i in 0..8 vec { y[i] = x[i] }"), ""},
    {ONE("for i in 0..8 vec { y[i + 1] = y[i] }"), "vec loop"},
    {ONE("for i in 0..8 vec { y[i] = y[i + 1] }"), "vec loop"},
    {ONE("for i in 0..8 vec { r[0] = x[i] y[i] = r[0] }"), "vec loop: two iterations touch"},
    {ONE("y[0] = 0 for i in 0..8 vec { y[0] = y[0] + x[i] }"), "vec loop"},
    {ONE("y[0] = 0 for i in 0..8 vec { y[0] = max(y[0], x[i]) }"), ""},
    {ONE("y[0] = 0 for i in 0..8 vec { y[0] = select(x[i] < 3, max(y[0], x[i]), y[0]) }"), ""},
    {ONE("y[0] = 0 for i in 0..8 vec { y[0] = min(max(y[0], x[i]), 3) }"), "vec loop"},
    {ONE("y[0] = 0 for i in 0..8 vec { y[0] = max(y[0], x[i]) y[i + 1] = y[0] }"), "vec loop"},
    {ONE("for i in 0..8 vec { r[i] = 0 for k in 0..4 { r[i] = max(r[i], x[k]) } y[i] = r[i] }"), ""},
    {ONE("for k in 0..2 { for i in 0..8 vec { y[i + k] = x[i] } }"), ""},
    {ONE("for i in 0..4 vec { n[cast.index(n[i + 4])] = 0 }"), ""},
    {ONE("for i in 0..4 vec { n[cast.index(n[i + 8]) + 12] = 0 }"), "vec loop"},
};

static void test_violations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof violations / sizeof *violations; i++) {
        float x[16], y[16];
        int32_t n[16] = {99, 1, 2, 3, 15, 13, 14, 12, 1, 2, 2, 3};
        void *arguments[] = {x, y, n};
        const tir_interpret_options options = {.check = true};
        lib_error error;
        for (int k = 0; k < 16; k++) x[k] = (float)k, y[k] = 0;
        dlc_status status = run(violations[i].text, arguments, NULL, &options, &error);
        bool expected = violations[i].message[0] != 0;
        if (expected != (status != DLC_OK) || !strstr(error.message, violations[i].message))
            fail_msg("%s\ngave: %s\nexpected: %s", violations[i].text, error.message, violations[i].message);
        assert_true(status == DLC_OK || status == DLC_INTERNAL);
    }
}

/* Arguments that share memory: an in-place update of equal points is right, one shifted by an element is a race. */
static void test_overlapping_arguments(void **state) {
    (void)state;
    float memory[17] = {0};
    const tir_interpret_options options = {.check = true};
    lib_error error;
    const char *text = "kernel k(x: f32[16] arg, y: f32[16] arg) phase tasks=16 task=p { y[p] = x[p] + 1 }";
    assert_int_equal(run(text, (void *[]){memory, memory}, NULL, &options, &error), DLC_OK);
    assert_int_equal(run(text, (void *[]){memory, memory + 1}, NULL, &options, &error), DLC_INTERNAL);
    assert_non_null(strstr(error.message, "race"));
    const char *bytes = "kernel k(x: u8[68] arg, y: f32[16] arg) phase tasks=16 task=p { y[p] = cast.f32(x[p*4 + 3]) }";
    assert_int_equal(run(bytes, (void *[]){memory, memory}, NULL, &options, &error), DLC_OK);
    assert_int_equal(run(bytes, (void *[]){memory, memory + 1}, NULL, &options, &error), DLC_INTERNAL);
}

static void test_bad_parameters(void **state) {
    (void)state;
    float x[16] = {0};
    void *arguments[] = {x};
    lib_error error;
    const char *text = "kernel k(x: f32[n] arg) params(n: 4..16 x4) phase tasks=n task=p { x[p] = 0 }";
    assert_int_equal(run(text, arguments, (int64_t[]){8}, NULL, &error), DLC_OK);
    assert_int_equal(run(text, arguments, (int64_t[]){20}, NULL, &error), DLC_INTERNAL);
    assert_int_equal(run(text, arguments, (int64_t[]){6}, NULL, &error), DLC_INTERNAL);
    assert_int_equal(run(text, (void *[]){NULL}, (int64_t[]){8}, NULL, &error), DLC_INTERNAL);
}

static void test_cancel(void **state) {
    (void)state;
    float x[1] = {0};
    void *arguments[] = {x};
    const volatile int cancel = 1;
    const tir_interpret_options options = {.cancel = &cancel};
    lib_error error;
    assert_int_equal(
        run("kernel k(x: f32[1] arg) phase tasks=9 task=p { x[0] = 1 }", arguments, NULL, &options, &error),
        DLC_CANCELLED);
    assert_true(x[0] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contraction),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_fast_operators),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_loads_are_not_hoisted),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_violations),
        cmocka_unit_test(test_overlapping_arguments),
        cmocka_unit_test(test_bad_parameters),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
