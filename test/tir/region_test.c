/* Regions: evaluation by definition against plain C, text round trip, verifier. */
#include "tir/region.h"
#include "tir/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct fixture {
    lib_scope scope;
    lib_arena arena;
    tir_pool pool;
} fixture;

/* Inside an entered scope only. */
static tir_region *parse(fixture *f, const char *text) {
    tir_pool_init(&f->pool, &f->arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, &f->arena, "<text>", text, strlen(text));
    return tir_region_parse(&f->arena, &f->pool, &lexer);
}

static const char *print(fixture *f, const tir_region *region) {
    lib_text text;
    lib_text_init(&text, &f->arena);
    tir_region_print(&text, region);
    return text.data;
}

/* All values of the tensor of that name, in row-major order. */
static void evaluate(fixture *f, tir_region *region, const char *name, void *const *inputs, const int64_t *params,
                     int rank, const int64_t *extent, uint64_t *result) {
    uint32_t id = 0;
    while (strcmp(region->tensors.data[id].name, name) != 0) id++;
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= extent[d];
    int64_t *points = LIB_NEW_ARRAY(&f->arena, int64_t, (size_t)(count * rank));
    for (int64_t n = 0; n < count; n++)
        for (int64_t d = rank - 1, rest = n; d >= 0; rest /= extent[d], d--) points[n * rank + d] = rest % extent[d];
    tir_region_evaluate(&f->arena, region, inputs, params, id, count, points, (tir_rounding){.has_fma = true}, result);
}

static float as_f32(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

/* Text -> region -> text -> region; evaluates the second one, so that the text form must carry the meaning. */
static void check(const char *text, const char *name, void *const *inputs, const int64_t *params, int rank,
                  const int64_t *extent, const float *expected) {
    fixture f;
    lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
    if (LIB_ENTER(&f.scope)) {
        const char *printed = print(&f, parse(&f, text));
        tir_region *region = parse(&f, printed);
        assert_string_equal(print(&f, region), printed);
        tir_region_verify(&f.scope, region);
        uint64_t result[256];
        evaluate(&f, region, name, inputs, params, rank, extent, result);
        int64_t count = 1;
        for (int d = 0; d < rank; d++) count *= extent[d];
        for (int64_t n = 0; n < count; n++)
            if (as_f32(result[n]) != expected[n] && !(isnan(expected[n]) && isnan(as_f32(result[n]))))
                fail_msg("%s\n%s[%d] = %g, expected %g", printed, name, (int)n, (double)as_f32(result[n]),
                         (double)expected[n]);
    } else {
        fail_msg("%s\n%s", text, f.scope.error.message);
    }
    lib_arena_free(&f.arena);
}

static void test_contraction(void **state) {
    (void)state;
    enum { M = 5, N = 7, K = 9 };
    float x[M][K], w[2][K][4], bias[N], expected[M][N];
    for (int i = 0; i < M * K; i++) x[i / K][i % K] = (float)(i * 37 % 11) / 3 - 1;
    for (int i = 0; i < K * 8; i++) w[i / (K * 4)][i / 4 % K][i % 4] = (float)(i * 29 % 13) / 7 - 1;
    for (int j = 0; j < N; j++) bias[j] = (float)j / 8;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum = fmaf(x[i][k], w[j / 4][k][j % 4], sum);
            expected[i][j] = fmaxf(sum + bias[j], 0);
        }
    void *inputs[] = {x, w, bias};
    check(
        "region r params(m: 1..64)\n"
        "input x f32[m, 9]\n"
        "input w f32[9, 7]\n"
        "input b f32[7]\n"
        "reduce C f32 (i: m, j: 7 | k: 9) init 0 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
        "map D f32 (i: m, j: 7) = max(C[i, j] + b[j], 0)\n"
        "tensor w constant layout (d1/4, d0, d1%4)\n"
        "output D\n",
        "D", inputs, (int64_t[]){M}, 2, (int64_t[]){M, N}, &expected[0][0]);
}

static void test_strided_input(void **state) {
    (void)state;
    float x[12], expected[6];
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) expected[i * 3 + j] = -x[10 - 6 * i - j * 2];
    void *inputs[] = {&x[10]};
    check(
        "region r\ninput x f32[2, 3]\nmap y f32 (i: 2, j: 3) = neg(x[i, j])\ntensor x stride(-6, -2) align 8\noutput y\n",
        "y", inputs, NULL, 2, (int64_t[]){2, 3}, expected);
}

/* Known zeros change nothing that is computed. */
static void test_known_zeros(void **state) {
    (void)state;
    float x[6] = {1, 0, 0, 2, 3, 0}, expected[6] = {-1, -0.f, -0.f, -2, -3, -0.f};
    void *inputs[] = {x};
    check(
        "region r\ninput x f32[2, 3]\nmap y f32 (i: 2, j: 3) = neg(x[i, j])\ntensor x nonzero(a, i: i <= a)\noutput y\n",
        "y", inputs, NULL, 2, (int64_t[]){2, 3}, expected);
}

/* Conditions outside of which a map is 0, or a reduction adds nothing that is used; "": none. */
static const struct {
    const char *text, *stage, *condition;
} zeros[] = {
#define IN_ROWS "region r\ninput x f32[8, 9]\ninput y f32[8, 9]\n"
#define EXCESS "region r excess\ninput x f32[8, 9]\ninput y f32[8, 9]\n"
#define MASKED "map m f32 (i: 8, j: 9) = select(j <= i, x[i, j], 0:f32)\n"
#define ROWS_OF(value) "map z f32 (i: 8, j: 9) = " value "\noutput z\n"
#define SUMS_OF(factors) \
    "reduce s f32 (i: 8 | j: 9) init 0:f32 = muladd(" factors ", acc(0):f32) merge acc(0):f32 + other(0):f32\n"
    {IN_ROWS ROWS_OF("select(j <= i, x[i, j], 0:f32)"), "z", "j < i + 1"},
    {IN_ROWS ROWS_OF("select(j <= i, 0:f32, x[i, j])"), "z", "i < j"},
    {IN_ROWS ROWS_OF("select(j <= i, x[i, j], 1:f32)"), "z", ""},
    {IN_ROWS ROWS_OF("select(x[i, j] < 0:f32, x[i, j], 0:f32)"), "z", ""}, /* no condition on positions */
    {IN_ROWS MASKED ROWS_OF("m[i, j] * -2:f32"), "z", "j < i + 1"},
    {IN_ROWS MASKED ROWS_OF("m[i, j] * y[i, j]"), "z", ""}, /* y may be infinite */
    {IN_ROWS MASKED ROWS_OF("m[i, j] * inf:f32"), "z", ""},
    {EXCESS MASKED ROWS_OF("m[i, j] * y[i, j]"), "z", "j < i + 1"},
    {EXCESS MASKED ROWS_OF("m[i, j] + y[i, j]"), "z", ""},
    {IN_ROWS MASKED ROWS_OF("select(m[i, j] == 0:f32, 0:f32, m[i, j] * y[i, j])"), "z", "j < i + 1"},
    {IN_ROWS MASKED ROWS_OF("m[i, j] * 2:f32") "tensor x nonzero(a, b: a < b)\n", "z", "j < i + 1 && i < j"},
    {EXCESS SUMS_OF("x[i, j], y[i, j]") "output s\ntensor x nonzero(a, b: b < a + 4)\n", "s", "j < i + 4"},
    {EXCESS SUMS_OF("x[i, 8 - j], y[i, j]") "output s\ntensor x nonzero(a, b: b < a + 4)\n", "s", "4 < i + j"},
    {IN_ROWS SUMS_OF("x[i, j], y[i, j]") "output s\ntensor x nonzero(a, b: b < a + 4)\n", "s", ""},
    {IN_ROWS SUMS_OF("x[i, j], y[i, j]") "map z f32 (i: 8) = select(i < 3, s[i], 0:f32)\noutput z\n", "s", "i < 3"},
    {IN_ROWS SUMS_OF("x[i, j], y[i, j]") "map z f32 (i: 8) = select(i < 3, s[i], s[7 - i])\noutput z\n", "s", ""},
    {IN_ROWS SUMS_OF("x[i, j], y[i, j]") "map z f32 (i: 8) = select(i < 3, s[i], 0:f32)\noutput z\noutput s\n", "s",
     ""},
};

static void test_zeros(void **state) {
    (void)state;
    for (volatile size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        fixture f;
        lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
        if (LIB_ENTER(&f.scope)) {
            tir_region *region = parse(&f, zeros[i].text);
            const int stage = tir_region_find_stage(region, zeros[i].stage);
            const tir_expr on = region->stages.data[stage].kind == TIR_MAP ? tir_nonzero_condition(region, stage)
                                                                           : tir_skip_condition(region, stage);
            lib_text text;
            lib_text_init(&text, &f.arena);
            if (on) tir_print_expr(&text, region->pool, on, NULL);
            if (strcmp(text.length ? text.data : "", zeros[i].condition) != 0)
                fail_msg("%zu: `%s`, expected `%s`", i, text.length ? text.data : "", zeros[i].condition);
        } else {
            fail_msg("%zu: %s", i, f.scope.error.message);
        }
        lib_arena_free(&f.arena);
    }
}

/* State of two components: the greatest value and where it first stands; NaN counts as greatest. */
static void test_arg_max(void **state) {
    (void)state;
    float x[3][5] = {{1, 9, 3, 9, 2}, {-5, -5, -7, -9, -5}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    float where[3] = {1, 0, 0}, value[3] = {9, -5, -INFINITY};
    void *inputs[] = {x};
    check("region r\n"
          "input x f32[3, 5]\n"
          "reduce am (best: f32, at: i64) exact (i: 3 | k: 5) init {-inf, -1} = "
          "{select(acc(0):f32 < x[i, k] || acc(1):i64 < 0, x[i, k], acc(0):f32), "
          "select(acc(0):f32 < x[i, k] || acc(1):i64 < 0, cast.i64(k), acc(1):i64)} merge "
          "{max(acc(0):f32, other(0):f32), select(acc(0):f32 < other(0):f32, other(1):i64, acc(1):i64)}\n"
          "map f f32 (i: 3) = cast.f32(at[i])\n"
          "output best\noutput f\n",
          "f", inputs, NULL, 1, (int64_t[]){3}, where);
    check("region r\n"
          "input x f32[3, 5]\n"
          "reduce am (best: f32, at: i64) exact (i: 3 | k: 5) init {-inf, -1} = "
          "{select(acc(0):f32 < x[i, k] || acc(1):i64 < 0, x[i, k], acc(0):f32), "
          "select(acc(0):f32 < x[i, k] || acc(1):i64 < 0, cast.i64(k), acc(1):i64)}\n"
          "output best\noutput at\n",
          "best", inputs, NULL, 1, (int64_t[]){3}, value);
}

/* Points outside the predicate do not exist: the NaN beside them is never multiplied. */
static void test_predicate(void **state) {
    (void)state;
    float x[6], w[3] = {1, 2, 4}, expected[6];
    for (int i = 0; i < 6; i++) x[i] = i == 5 ? NAN : (float)(i + 1);
    for (int i = 0; i < 6; i++) {
        expected[i] = 0;
        for (int k = 0; k < 3; k++)
            if (i + k - 1 >= 0 && i + k - 1 < 5) expected[i] = fmaf(x[i + k - 1], w[k], expected[i]);
    }
    void *inputs[] = {x, w};
    check("region r\ninput x f32[6]\ninput w f32[3]\n"
          "reduce c f32 (i: 6 | k: 3) init 0 where 1 <= i + k && i + k <= 5 = muladd(x[i + k - 1], w[k], acc(0):f32)\n"
          "output c\n",
          "c", inputs, NULL, 1, (int64_t[]){6}, expected);
    check("region r\ninput x f32[6]\ninput w f32[3]\n"
          "map p f32 (i: 8) = x[i - 1 where 1 <= i && i <= 5 else 0]\n"
          "reduce c f32 (i: 6 | k: 3) init 0 = muladd(p[i + k], w[k], acc(0):f32)\n"
          "output c\n",
          "c", inputs, NULL, 1, (int64_t[]){6}, expected);
}

/* Duplicates add up in order; indices outside are dropped; the column axis is parallel. */
static void test_scatter(void **state) {
    (void)state;
    int32_t at[7] = {2, 0, 2, -1, 4, 3, 2};
    float x[7][2], base[4][2], expected[4][2];
    for (int i = 0; i < 14; i++) x[i / 2][i % 2] = (float)i / 3;
    for (int i = 0; i < 8; i++) expected[i / 2][i % 2] = base[i / 2][i % 2] = (float)(i * 10);
    for (int u = 0; u < 7; u++)
        for (int j = 0; j < 2 && u != 5; j++)
            if (at[u] >= 0 && at[u] < 4) expected[at[u]][j] = expected[at[u]][j] + x[u][j];
    void *inputs[] = {at, x, base};
    check(
        "region r\ninput at i32[7]\ninput x f32[7, 2]\ninput b f32[4, 2]\n"
        "scatter s f32 (i: 4, j: 2 | u: 7) init b[i, j] where u != 5 at [cast.index(at[u]), j] = acc(0):f32 + x[u, j]\n"
        "map y f32 (i: 4, j: 2) = s[i, j]\n"
        "output y\n",
        "y", inputs, NULL, 2, (int64_t[]){4, 2}, &expected[0][0]);
}

/* Keys of three bits, stable: what stands above them in an element does not count. */
static void test_sort(void **state) {
    (void)state;
    int32_t x[2][5] = {{3, 8 + 1, 7, 8 + 3, 0}, {5, 5, 16 + 5, 1, 4}};
    float expected[2][5] = {{4, 1, 0, 3, 2}, {3, 4, 0, 1, 2}};
    void *inputs[] = {x};
    check("region r\ninput x i32[2, 5]\n"
          "sort p i32 exact (b: 2, t: 5 | i: 5) key 3 and(x[b, i], 7:i32) = cast.i32(i)\n"
          "map y f32 (b: 2, t: 5) = cast.f32(p[b, t])\n"
          "output y\n",
          "y", inputs, NULL, 2, (int64_t[]){2, 5}, &expected[0][0]);
}

static const char cumulative[] = "region r\ninput x f32[2, 100]\n"
                                 "fold s f32 (b: 2 | t: 100) init 10\n"
                                 "map st f32 in s (b: 2, t: 100) = s[b] + x[b, t]\n"
                                 "map last f32 (b: 2) = s[b]\n"
                                 "next s = st[b, t]\n"
                                 "output st\noutput last\n";

static void test_cumulative_sum(void **state) {
    (void)state;
    float x[2][100], all[2][100], last[2];
    for (int b = 0; b < 2; b++) {
        float sum = 10;
        for (int t = 0; t < 100; t++) {
            x[b][t] = (float)(t * 31 % 17 + b) / 8;
            all[b][t] = sum = sum + x[b][t];
        }
        last[b] = sum;
    }
    void *inputs[] = {x};
    check(cumulative, "st", inputs, NULL, 2, (int64_t[]){2, 100}, &all[0][0]);
    check(cumulative, "last", inputs, NULL, 1, (int64_t[]){2}, last);
}

/* Two states, one with an axis of its own that is not free: h'[j] = sum_k h[k] w[k, j] + x[t]; n' = n + max h'. */
static void test_recurrence(void **state) {
    (void)state;
    enum { T = 6, H = 3 };
    float x[T], w[H][H], h[H] = {1, 1, 1}, n = 0, hs[T][H];
    for (int i = 0; i < H * H; i++) w[i / H][i % H] = (float)(i * 7 % 5) / 4 - 0.5f;
    for (int t = 0; t < T; t++) {
        float next[H], top = -INFINITY;
        x[t] = (float)t / 2;
        for (int j = 0; j < H; j++) {
            float sum = 0;
            for (int k = 0; k < H; k++) sum = fmaf(h[k], w[k][j], sum);
            hs[t][j] = next[j] = sum + x[t];
            top = fmaxf(top, next[j]);
        }
        memcpy(h, next, sizeof h);
        n = n + top;
    }
    void *inputs[] = {x, w};
    static const char text[] = "region r\ninput x f32[6]\ninput w f32[3, 3]\n"
                               "fold F (h: f32[3], n: f32) ( | t: 6) init {1, 0}\n"
                               "reduce m f32 in F (t: 6, j: 3 | k: 3) init 0 = muladd(h[k], w[k, j], acc(0):f32)\n"
                               "map hn f32 in F (t: 6, j: 3) = m[t, j] + x[t]\n"
                               "reduce top f32 exact in F (t: 6 | j: 3) init -inf = max(acc(0):f32, hn[t, j])\n"
                               "map nn f32 in F (t: 6) = n[] + top[t]\n"
                               "map y f32 (j: 4) = select(j < 3, h[min(j, 2)], n[])\n"
                               "next F = {hn[t, 0], nn[t]}\n"
                               "output y\noutput hn\n";
    const float expected[] = {h[0], h[1], h[2], n};
    check(text, "y", inputs, NULL, 1, (int64_t[]){4}, expected);
    check(text, "hn", inputs, NULL, 2, (int64_t[]){T, H}, &hs[0][0]);
}

/* The builder functions make what their text says. */
static void test_builder(void **state) {
    (void)state;
    fixture f;
    lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
    if (LIB_ENTER(&f.scope)) {
        tir_pool_init(&f.pool, &f.arena);
        tir_region *r = tir_region_new(&f.arena, &f.pool, "r");
        const tir_expr shape[] = {tir_index(&f.pool, 4), tir_index(&f.pool, 6)};
        uint32_t x = tir_region_input(r, "x", DLC_F32, 2, shape);
        tir_stage *sum = tir_region_stage(r, TIR_REDUCE, "sum", 1, NULL, shape, 1, NULL, shape + 1);
        const tir_expr index[] = {sum->axis[0].var, sum->axis[1].var};
        uint32_t s = tir_stage_reduce(r, sum, TIR_ADD, tir_region_load(r, x, index));
        assert_false(sum->exact);
        tir_stage *top = tir_region_stage(r, TIR_REDUCE, "sum", 1, NULL, shape, 1, NULL, shape + 1);
        const tir_expr at[] = {top->axis[0].var, top->axis[1].var};
        uint32_t m = tir_stage_reduce(r, top, TIR_MAX, tir_region_load(r, x, at));
        assert_true(top->exact);
        tir_region_output(r, m);
        tir_region_output(r, s);
        tir_region_output(r, s);
        uint32_t late = tir_region_input(r, "x", DLC_I8, 0, NULL);
        assert_int_equal(r->tensors.data[late].argument, 1);
        assert_int_equal(r->tensors.data[m].argument, 2);
        tir_region_verify(&f.scope, r);
        const char *text = print(&f, r);
        assert_string_equal(text, "region r\n"
                                  "input x f32[4, 6]\n"
                                  "input x1 i8[]\n"
                                  "reduce sum f32 (i0: 4 | k0: 6) init 0:f32 = x[i0, k0] + acc(0):f32 "
                                  "merge acc(0):f32 + other(0):f32\n"
                                  "reduce sum1 f32 exact (i0: 4 | k0: 6) init -inf:f32 = max(acc(0):f32, x[i0, k0]) "
                                  "merge max(acc(0):f32, other(0):f32)\n"
                                  "output sum1\n"
                                  "output sum\n");
    } else {
        fail_msg("%s", f.scope.error.message);
    }
    lib_arena_free(&f.arena);
}

static lib_hash128 hash_of(const char *text) {
    fixture f;
    lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
    lib_hash128 hash = {0, 0};
    if (LIB_ENTER(&f.scope))
        hash = tir_region_hash(parse(&f, text));
    else
        fail_msg("%s", f.scope.error.message);
    lib_arena_free(&f.arena);
    return hash;
}

static bool same_hash(const char *a, const char *b) {
    lib_hash128 x = hash_of(a), y = hash_of(b);
    return x.low == y.low && x.high == y.high;
}

static void test_hash(void **state) {
    (void)state;
    const char *base = "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i] + 1\noutput y\n";
    assert_true(same_hash(base, "region s\ninput z f32[4]\nmap q f32 (k: 4) = z[k] + 1\noutput q\n"));
    assert_false(same_hash(base, "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i] + 2\noutput y\n"));
    assert_false(same_hash(base, "region r\ninput x f32[5]\nmap y f32 (i: 4) = x[i] + 1\noutput y\n"));
    assert_false(same_hash(base, "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[3 - i] + 1\noutput y\n"));
    assert_false(
        same_hash(base, "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i] + 1\ntensor x align 64\noutput y\n"));
    assert_false(same_hash(base, "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i] + 1\n"));
    const char *zeros_first =
        "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i] + 1\ntensor x nonzero(a: 1 < a)\noutput y\n";
    assert_false(same_hash(base, zeros_first));
    assert_true(same_hash(
        zeros_first, "region r\ninput z f32[4]\nmap y f32 (i: 4) = z[i] + 1\ntensor z nonzero(b: 1 < b)\noutput y\n"));
}

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"regio r", "expected 'region'"},
    {"region r\ninput x f32[4]\ninput x f32[4]\n", "two tensors are called x"},
    {"region r\nmap y f32 (i: 4, i: 3) = 0\n", "two axes are called i"},
    {"region r\nmap y f32 (i: 4) = z[i]\n", "z"},
    {"region r\nfold s f32 (| t: 4) init 0\n", "has no next"},
    {"region r\ninput x f32[4]\noutput x\n", "cannot be an output"},
    {"region r\norder y f32\n", "found order"},
    {"region r\nmap y f32 (i: 4 | k: 3) = 0\noutput y\n", "R10: a map with reduction axes"},
    {"region r\ninput x f32[4]\nreduce y f32 (i: 4 | k: 3) init x[i] = acc(0):f32 merge acc(0):f32 + other(0):f32\n",
     "R10: the identity"},
    {"region r\nmap y f32 (i: 4) = acc(0):f32\n", "R11"},
    {"region r\nreduce y f32 (i: 4 | k: 3) init 0 = other(0):f32\n", "R11"},
    {"region r\nmap y f32 (i: 4) = fma(1.5, 1.5, 1.5) + y2[i]\nmap y2 f32 (i: 4) = 0\n", "y2"},
    {"region r\ninput x f32[4]\nmap y f32 (i: 4) = fma(x[i], x[i], x[i])\n", "R13"},
    {"region r\nmap y f32 (i: 4) = 0\nmap z f32 in y (i: 4) = 0\n", "R14"},
    {"region r\ninput x i32[4]\nscatter y i32 (i: 4 | u: 4) init 0 at [cast.index(x[i])] = x[u]\n",
     "R10: a scattered axis"},
    {"region r\ninput x f32[4]\nfold s f32 (| t: 4) init 0\nnext s = x[t]\n", "R10: next is not of a step"},
    {"region r\ninput x i32[4]\nsort y i32 (t: 4 | i: 4) key 32 x[t] = x[i]\n", "R15: key or value"},
    {"region r\ninput x i32[4]\nsort y i32 (t: 5 | i: 4) key 32 x[i] = x[i]\n",
     "R15: a sort has at most as many ranks"},
    {"region r\ninput x i32[4]\nsort y i32 (t: 4 | i: 4) key 65 x[i] = x[i]\n", "keys of 1 to 64 bits"},
    {"region r\nmap y f32 (i: 4) = 0\nnext q = y[t]\n", "unknown stage q"},
    {"region r\nmap y f32 (i: 4) = 0\ntensor y nonzero(i: i < 2)\n", "only inputs have known zeros; y is computed"},
    {"region r\ninput x f32[4, 4]\ntensor x nonzero(i, i: i < 2)\n", "two axes are called i"},
    {"region r\ninput x f32[4, 4]\ntensor x nonzero(i: i < 2)\n", "expected ','"},
    {"region r\ninput x f32[4]\ninput y f32[4]\ntensor x nonzero(i: y[i] < 2:f32)\n", "R9: an extent or a condition"},
    {"region r params(n: 1..64 x0)\n", "expected x and a number"},
    {"region r\ninput x f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n", "more than 12 dimensions"},
    {"region r\ninput x i32[4]\nscatter y i32 (i: 4, j: 2 | u: 4) init 0 at [cast.index(x[u])] = x[u]\n",
     "needs 2 indices"},
    {"region r\ninput x f32[4]\ntensor x align 24\n", "24 is no power of two"},
};

static void check_mistake(const char *text, const char *message) {
    fixture f;
    lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
    if (LIB_ENTER(&f.scope)) {
        tir_region *region = parse(&f, text);
        tir_region_verify(&f.scope, region);
        fail_msg("no error in: %s", text);
    } else if (!strstr(f.scope.error.message, message)) {
        fail_msg("%s\ngave: %s\nexpected: %s", text, f.scope.error.message, message);
    }
    lib_arena_free(&f.arena);
}

static void test_mistakes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        check_mistake(mistakes[i].text, mistakes[i].message);
}

/* Spoils what the builder would not make. */
static void check_spoiled(int what, const char *expected) {
    fixture f;
    lib_arena_init(&f.arena, &lib_libc_allocator, &f.scope);
    if (LIB_ENTER(&f.scope)) {
        tir_region *r =
            parse(&f, "region r\ninput x f32[4]\nmap y f32 (i: 4) = x[i]\nmap z f32 (i: 4) = y[i]\noutput z\n");
        tir_stage *y = &r->stages.data[0], *z = &r->stages.data[1];
        if (what == 0) z->value[0] = y->value[0];
        if (what == 1) y->value[0] = z->value[0];
        if (what == 2) y->removed = true;
        if (what == 3) r->tensors.data[0].argument = 1;
        if (what == 4) r->tensors.data[1].layout.rank = 2;
        if (what == 5) z->value[0] = tir_index(&f.pool, 0);
        if (what == 6) r->tensors.data[2].name = "y";
        if (what == 7) z->axis[0].extent = tir_index(&f.pool, 5);
        tir_region_verify(&f.scope, r);
        fail_msg("no error, expected %s", expected);
    } else if (!strstr(f.scope.error.message, expected)) {
        fail_msg("gave: %s\nexpected: %s", f.scope.error.message, expected);
    }
    lib_arena_free(&f.arena);
}

static void test_spoiled(void **state) {
    (void)state;
    check_spoiled(0, "R7");
    check_spoiled(1, "R9");
    check_spoiled(2, "whose stage is removed");
    check_spoiled(3, "R4");
    check_spoiled(4, "R5");
    check_spoiled(5, "R8");
    check_spoiled(6, "R1");
    check_spoiled(7, "R6");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contraction), cmocka_unit_test(test_strided_input), cmocka_unit_test(test_known_zeros),
        cmocka_unit_test(test_zeros),       cmocka_unit_test(test_arg_max),       cmocka_unit_test(test_predicate),
        cmocka_unit_test(test_scatter),     cmocka_unit_test(test_sort),          cmocka_unit_test(test_cumulative_sum),
        cmocka_unit_test(test_recurrence),  cmocka_unit_test(test_builder),       cmocka_unit_test(test_hash),
        cmocka_unit_test(test_mistakes),    cmocka_unit_test(test_spoiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
