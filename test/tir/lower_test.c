/* Lowering against evaluation by definition: each case is a region and a schedule in text; the scheduled loop IR, interpreted, must
 * give the bits that tir_region_evaluate gives (a few ulp where the schedule reorders an inexact reduction). */
#include "tir/arith.h"
#include "tir/interpret.h"
#include "tir/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct lower_case {
    const char *name, *region, *schedule;
    double tolerance; /* relative; 0: bitwise */
} lower_case;

static const lower_case cases[] = {
    {"empty schedule",
     "region r\ninput x f32[7, 5]\ninput y f32[7, 5]\nmap z f32 (i: 7, j: 5) = x[i, j] + y[i, j]\noutput z\n", "", 0},
    {"gelu(xW+b)",
     "region r\ninput x f32[45, 9]\ninput w f32[9, 20]\ntensor w constant\ninput b f32[20]\n"
     "reduce C f32 (i: 45, j: 20 | k: 9) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map D f32 (i: 45, j: 20) = tanh(C[i, j] + b[j])\noutput D\n",
     "rewrite:\n layout w (j/8, k, j%8)\nloops:\n split D.j 8 -> jo ji mask\n split D.i 7 -> io ii balanced\n"
     " order D: jo io ii ji\n par D.jo\n at C D.io\n store C reg\n order C: k i j\n vec C.j D.ji\n unroll C.i D.ii\n"
     " prefetch w at C.k k+1 L2\n",
     0},
    {"convolution 3x3",
     "region r\ninput x f32[8, 6, 13]\ninput f f32[8, 8, 3, 3]\ntensor f constant\ninput b f32[8]\n"
     "reduce O f32 (co: 8, h: 6, w: 13 | ci: 8, kh: 3, kw: 3) init 0:f32 where 0 <= h + kh + -1 && h + kh + -1 < 6 && "
     "0 <= w + kw + -1 && w + kw + -1 < 13 = muladd(x[ci, h + kh + -1, w + kw + -1], f[co, ci, kh, kw], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map Y f32 (co: 8, h: 6, w: 13) = max(O[co, h, w] + b[co], 0:f32)\noutput Y\n",
     "rewrite:\n layout f (co/4, ci/4, kh, kw, ci%4, co%4)\nloops:\n split Y.co 4 -> cb cv mask\n split Y.w 5 -> wo wi balanced\n"
     " order Y: cb h wo wi cv\n par Y.cb Y.h\n at O Y.wo\n store O reg\n split O.ci 4 -> cib civ mask\n"
     " order O: cib kh kw civ h w co\n clip O.kh\n clip O.kw\n vec O.co Y.cv\n unroll O.w O.kw Y.wi\n",
     1e-6},
    {"softmax rows",
     "region r\ninput x f32[7, 20]\n"
     "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (i: 7, j: 20) = exp(x[i, j] - mx[i])\n"
     "reduce sm f32 (i: 7 | j: 20) init 0:f32 = acc(0):f32 + ex[i, j] merge acc(0):f32 + other(0):f32\n"
     "map sc f32 (i: 7, j: 20) = ex[i, j] / sm[i]\noutput sc\n",
     "loops:\n split sc.j 8 -> jo jv mask\n split ex.j 8 -> jo jv mask\n par sc.i\n at sm sc.i\n at ex sc.i\n at mx sc.i\n"
     " store sm reg\n store ex reg\n store mx reg\n vec sc.jv ex.jv\n unroll sc.jo ex.jo sm.j\n",
     0},
    {"softmax rows by lanes",
     "region r\ninput x f32[7, 21]\n"
     "reduce mx f32 exact (i: 7 | j: 21) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (i: 7, j: 21) = exp(x[i, j] - mx[i])\n"
     "reduce sm f32 (i: 7 | j: 21) init 0:f32 = acc(0):f32 + ex[i, j] merge acc(0):f32 + other(0):f32\n"
     "map sc f32 (i: 7, j: 21) = ex[i, j] / sm[i]\noutput sc\n",
     "rewrite:\n rfactor mx.j 8 lanes -> mp jr jt\n tree mx.jr\n rfactor sm.j 8 lanes -> sp jr jt\n tree sm.jr\n"
     "loops:\n split sc.j 8 -> jo jv mask\n split ex.j 8 -> jo jv mask\n par sc.i\n at sm sc.i\n at sm_2 sc.i\n at sm_4 sc.i\n"
     " at sp sc.i\n at ex sc.i\n at mx sc.i\n at mx_2 sc.i\n at mx_4 sc.i\n at mp sc.i\n"
     " order sp: i jt jr\n order mp: i jt jr\n vec sp.jr mp.jr sm_4.jr sm_2.jr mx_4.jr mx_2.jr\n"
     " store sp reg\n store mp reg\n store ex stack\n vec sc.jv ex.jv\n",
     1e-6},
    {"layer norm with statistics",
     "region r\ninput x f32[6, 10]\n"
     "reduce s f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map mu f32 (i: 6) = s[i] / 10:f32\n"
     "reduce v f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + (x[i, j] - mu[i]) * (x[i, j] - mu[i]) merge acc(0):f32 + other(0):f32\n"
     "map rs f32 (i: 6) = 1:f32 / sqrt(v[i] / 10:f32)\n"
     "map lv f32 (i: 6) = log(v[i])\n"
     "map y f32 (i: 6, j: 10) = (x[i, j] - mu[i]) * rs[i]\noutput y\noutput mu\noutput rs\noutput lv\n",
     "loops:\n par y.i\n at lv y.i by i=i\n at rs y.i\n at v y.i\n at mu y.i\n at s y.i\n store mu reg\n store v reg\n store rs reg\n"
     " store s reg\n store lv reg\n",
     0},
    {"reduce all in two phases",
     "region r\ninput x f32[53]\nreduce S f32 ( | j: 53) init 0:f32 = acc(0):f32 + x[j] merge acc(0):f32 + other(0):f32\noutput S\n",
     "rewrite:\n rfactor S.j 8 chunks -> Sp jr jt\nloops:\n par Sp.jr\n", 1e-6},
    {"fused loop over two axes",
     "region r\ninput x f32[7, 5]\ninput y f32[7, 5]\nmap z f32 (i: 7, j: 5) = x[i, j] * y[i, j]\noutput z\n",
     "loops:\n fuse z.i z.j -> f\n split z.f 8 -> fo fv mask\n vec z.fv\n par z.fo\n", 0},
    {"peel and overlap",
     "region r\ninput x f32[7, 29]\nmap z f32 (i: 7, j: 29) = x[i, j] * 2:f32\noutput z\n",
     "loops:\n split z.j 8 -> jo jv overlap\n split z.i 3 -> io ii peel\n order z: io ii jo jv\n vec z.jv\n unroll z.ii\n", 0},
    {"copy and layout",
     "region r\ninput x f32[6, 10]\nmap z f32 (i: 6, j: 10) = x[i, 9 - j]\noutput z\n",
     "rewrite:\n copy x -> xs\n layout xs (d1/4, i, d1%4)\nloops:\n at xs z.i\n", 0},
    {"arg-max and its value",
     "region r\ninput x f32[5, 9]\n"
     "reduce a (av: f32, at: i32) (i: 5 | j: 9) init {-inf:f32, 0:i32} = {select(acc(0):f32 < x[i, j], x[i, j], acc(0):f32), "
     "select(acc(0):f32 < x[i, j], cast.i32(j), acc(1):i32)} merge {select(acc(0):f32 < other(0):f32, other(0):f32, acc(0):f32), "
     "select(acc(0):f32 < other(0):f32, other(1):i32, acc(1):i32)}\noutput at\n",
     "loops:\n par a.i\n", 0},
};

static uint64_t random_state = 1;
static double random_unit(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 33) / (double)(1u << 30) - 1;
}

typedef struct buffers {
    void *argument[16], *packed[16];
    int64_t count[16];
} buffers;

static int64_t tensor_count(tir_region *region, const tir_tensor *t) {
    int64_t n = 1, e = 0;
    for (int d = 0; d < t->rank; d++) {
        assert_true(tir_is_const(region->pool, t->extent[d], &e));
        n *= e;
    }
    return n;
}

/* The physical copy of a tensor in a layout. */
static void *pack(tir_region *region, const tir_tensor *t, const void *from) {
    tir_expr physical[TIR_MAX_PHYSICAL], at[TIR_MAX_PHYSICAL], index[DLC_MAX_RANK];
    tir_layout_extents(region->pool, &t->layout, t->extent, physical);
    int rank = tir_layout_physical_rank(&t->layout);
    int64_t size = 1, extent[TIR_MAX_PHYSICAL];
    for (int p = 0; p < rank; p++) {
        tir_is_const(region->pool, physical[p], &extent[p]);
        size *= extent[p];
    }
    size_t bytes = lib_dtype_size(t->dtype);
    char *to = calloc((size_t)size + 1, bytes);
    int64_t n = tensor_count(region, t), logical[DLC_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0, value;
        for (int d = 0; d < t->rank; d++) index[d] = tir_index(region->pool, logical[d]);
        tir_layout_indices(region->pool, &t->layout, index, at);
        for (int p = 0; p < rank; p++) {
            tir_is_const(region->pool, at[p], &value);
            offset = offset * extent[p] + value;
        }
        memcpy(to + (size_t)offset * bytes, (const char *)from + (size_t)i * bytes, bytes);
        for (int d = t->rank - 1; d >= 0; d--) {
            int64_t e;
            tir_is_const(region->pool, t->extent[d], &e);
            if (++logical[d] < e) break;
            logical[d] = 0;
        }
    }
    return to;
}

static void run_case(const lower_case *c, bool verbose) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) {
        fail_msg("%s: %s", c->name, scope.error.message);
        return;
    }
    tir_pool *pool = LIB_NEW(&arena, tir_pool);
    tir_pool_init(pool, &arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, &arena, c->name, c->region, strlen(c->region));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(&arena, pool, &lexer);
    tir_region_verify(&scope, region);
    tir_schedule schedule;
    tir_schedule_init(&schedule, &arena);
    lib_text_add(&schedule.text, c->schedule);
    tir_machine machine = {.fma = 1, .vector_bytes = 64, .vector_registers = 32, .line = 64};
    tir_lower_options options = {.machine = &machine, .verify = true};
    tir_region *rewritten = tir_region_copy(&arena, region);
    tir_schedule_rewrite(rewritten, &schedule, &options);
    tir_kernel *kernel = tir_lower(&arena, region, &schedule, &options);
    if (verbose) {
        lib_text text;
        lib_text_init(&text, &arena);
        tir_kernel_print(&text, kernel);
        printf("---- %s\n%s\n", c->name, text.data);
    }
    buffers b = {0};
    void *logical[16] = {0};
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        const tir_tensor *tensor = &region->tensors.data[t];
        if (tensor->argument < 0) continue;
        int64_t n = b.count[tensor->argument] = tensor_count(region, tensor);
        float *data = b.argument[tensor->argument] = malloc((size_t)(n + 1) * 8);
        for (int64_t i = 0; i < n; i++) data[i] = (float)random_unit();
        logical[tensor->argument] = data;
        for (uint32_t r = 0; r < rewritten->tensors.count; r++)
            if (rewritten->tensors.data[r].argument == tensor->argument && tensor->argument < region->inputs)
                b.argument[tensor->argument] = b.packed[tensor->argument] = pack(region, &rewritten->tensors.data[r], data);
        if (tensor->argument >= region->inputs) memset(data, 0xff, (size_t)n * 4);
    }
    lib_error error;
    for (int reverse = 0; reverse < 2; reverse++) {
        tir_interpret_options interpret = {.check = true, .reverse_tasks = reverse};
        dlc_status status = tir_interpret(kernel, b.argument, NULL, &interpret, &lib_libc_allocator, &error);
        if (status != DLC_OK) fail_msg("%s: %s", c->name, error.message);
        for (uint32_t t = 0; t < region->tensors.count; t++) {
            const tir_tensor *tensor = &region->tensors.data[t];
            if (tensor->argument < region->inputs) continue;
            int64_t n = b.count[tensor->argument];
            int64_t *points = calloc((size_t)(n * tensor->rank + 1), sizeof *points);
            uint64_t *expected = calloc((size_t)n + 1, sizeof *expected);
            for (int64_t i = 0; i < n; i++) {
                int64_t rest = i;
                for (int d = tensor->rank - 1; d >= 0; d--) {
                    int64_t e;
                    tir_is_const(pool, tensor->extent[d], &e);
                    points[i * tensor->rank + d] = rest % e;
                    rest /= e;
                }
            }
            tir_region_evaluate(&arena, region, logical, NULL, t, n, points, true, expected);
            for (int64_t i = 0; i < n; i++) {
                uint64_t got = tir_bits_load((tir_dtype)tensor->dtype,
                                             (char *)b.argument[tensor->argument] + (size_t)i * lib_dtype_size(tensor->dtype));
                double g = tir_bits_to_f64((tir_dtype)tensor->dtype, got), e = tir_bits_to_f64((tir_dtype)tensor->dtype, expected[i]);
                if (c->tolerance == 0 ? got != expected[i] : fabs(g - e) > c->tolerance * (1 + fabs(e)))
                    fail_msg("%s: %s element %lld is %.9g, expected %.9g", c->name, tensor->name, (long long)i, g, e);
            }
            free(points);
            free(expected);
        }
    }
    for (int i = 0; i < 16; i++) {
        free(logical[i]);
        free(b.packed[i]);
    }
    lib_arena_free(&arena);
}

static void test_cases(void **state) {
    (void)state;
    bool verbose = getenv("VERBOSE") != NULL;
    const char *only = getenv("ONLY");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!only || strstr(cases[i].name, only)) run_case(&cases[i], verbose);
}

/* Illegal directives: a message that names directive, stage and reason. */
static const struct {
    const char *schedule, *message;
} refusals[] = {
    {"split Q.i 4 -> a b mask", "no stage is called Q"},
    {"split sc.z 4 -> a b mask", "has no axis z"},
    {"split sc.j 4 -> a b", "the tail must be said"},
    {"split sc.j 0 -> a b mask", "at least 1"},
    {"order sc: j", "axis i is missing"},
    {"par sm.j", "reduction axis"},
    {"vec sm.j", "inexact reduction"},
    {"at sc sc.i", "attached inside itself"},
    {"at mx sm.i", "outside of that loop"},
    {"turn sc.i", "no directive is called turn"},
    {"store sm attic", "is not a storage"},
    {"vec sc.j\n layout x (j/4, i, j%4)", "cannot follow loop directives"},
    {"layout x (j/4, i, j%4)", "copy"},
    {"inline sm", "only maps"},
    {"unit sc.j vdpbf16ps", "unit"},
};

static void test_refusals(void **state) {
    (void)state;
    const char *text = "region r\ninput x f32[7, 20]\n"
                       "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
                       "reduce sm f32 (i: 7 | j: 20) init 0:f32 = acc(0):f32 + exp(x[i, j] - mx[i]) merge acc(0):f32 + other(0):f32\n"
                       "map sc f32 (i: 7, j: 20) = exp(x[i, j] - mx[i]) / sm[i]\noutput sc\n";
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        lib_scope scope;
        lib_arena arena;
        lib_arena_init(&arena, &lib_libc_allocator, &scope);
        if (LIB_ENTER(&scope)) {
            tir_pool *pool = LIB_NEW(&arena, tir_pool);
            tir_pool_init(pool, &arena);
            lib_lexer lexer;
            lib_lexer_init(&lexer, &arena, "refusal", text, strlen(text));
            lib_lexer_next(&lexer);
            tir_region *region = tir_region_parse(&arena, pool, &lexer);
            tir_schedule schedule;
            tir_schedule_init(&schedule, &arena);
            lib_text_add(&schedule.text, refusals[i].schedule);
            tir_lower(&arena, region, &schedule, NULL);
            fail_msg("`%s` was accepted", refusals[i].schedule);
        } else if (!strstr(scope.error.message, refusals[i].message)) {
            fail_msg("`%s`: message \"%s\" does not say \"%s\"", refusals[i].schedule, scope.error.message, refusals[i].message);
        }
        lib_arena_free(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("tir/lower", tests, NULL, NULL);
}
