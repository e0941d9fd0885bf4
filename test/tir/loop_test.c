/* Loop IR: text round trip, parse errors, verifier, substitution. Expectations are written by hand. */
#include "tir/loop.h"
#include "tir/polls.h"
#include "units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct fixture {
    lib_scope scope;
    lib_arena arena;
} fixture;

static void open_fixture(fixture *f) {
    lib_arena_init(&f->arena, &lib_libc_allocator, &f->scope);
}

static tir_kernel *parse(fixture *f, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &f->arena, "<text>", text, strlen(text));
    return tir_kernel_parse(&f->arena, &lexer, test_units);
}

static const char *print(fixture *f, const tir_kernel *kernel) {
    lib_text text;
    lib_text_init(&text, &f->arena);
    tir_kernel_print(&text, kernel);
    return text.data;
}

/* What printing gives exactly. */
static const char *const round_trips[] = {
    "kernel empty()\n",
    "kernel gemm(x: f32[45, 9] arg, D: f32[45, 20] arg, C: f32[7, 8] reg) params(n: 1..4096 x8)\n"
    "phase tasks=3 task=p {\n"
    "  let b = p*8\n"
    "  for i in 0..7 unroll {\n"
    "    for j in 0..8 vec {\n"
    "      C[i, j] = 0:f32\n"
    "    }\n"
    "  }\n"
    "  if (b + 7 < n) {\n"
    "    prefetch.2 x[b, 0]\n"
    "    prefetch.w D[b, 0]\n"
    "  } else {\n"
    "    comment \"tail \\\"x\\\"\"\n"
    "    nt D[0, 0] = C[0, 0]\n"
    "  }\n"
    "}\n",
    "kernel k(x: f16[n, 8] arg stride(16, 1) align 64, y: i64[] arg, t: f32[7] local zero, u: i8[3] local @64, "
    "w: f64[n] workspace) params(n: 0..64, s: f32) workspace(n*8) local(128)\n"
    "phase \"first\" tasks=n repeat=4 iteration=t_1 repeat_phases=2 task=p {\n"
    "  for i in n .. +3 {\n"
    "    u[0] = 1:i8\n"
    "  }\n"
    "}\n"
    "phase tasks=1 task=p {\n"
    "  let v: f32 = cast.f32(x[t_1, 0 where t_1 < n else 0]) {\n"
    "    t[t_1] = s*v\n"
    "  }\n"
    "  for i in 0 .. n {\n"
    "    w[i] = 0.5:f64\n"
    "  }\n"
    "}\n",
};

static void check_round_trip(const char *text) {
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope))
        assert_string_equal(print(&f, parse(&f, text)), text);
    else
        fail_msg("%s", f.scope.error.message);
    lib_arena_free(&f.arena);
}

static void test_round_trip(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof round_trips / sizeof *round_trips; i++) check_round_trip(round_trips[i]);
}

/* Built by hand: every name clashes with another one, or is a word of the language. */
static void test_names_are_made_distinct(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        tir_pool pool;
        tir_pool_init(&pool, &f.arena);
        tir_kernel *k = tir_kernel_new(&f.arena, &pool, "max");
        const tir_expr extent[] = {tir_index(&pool, 4), tir_index(&pool, 4)};
        tir_kernel_buffer(k, "for", DLC_I64, TIR_SCOPE_ARG, 2, extent);
        tir_expr zero = tir_index(&pool, 0), outer = tir_loop_variable(&pool, "for", zero, extent[0]);
        tir_expr inner = tir_loop_variable(&pool, "for", zero, extent[0]);
        tir_stmt *store = tir_stmt_new(&f.arena, TIR_STORE), *loop = tir_stmt_new(&f.arena, TIR_FOR);
        const tir_expr index[] = {outer, inner};
        store->store.rank = 2;
        store->store.index = index;
        store->store.value = tir_cast(&pool, DLC_I64, tir_sub(&pool, outer, inner));
        loop->for_.var = inner;
        loop->for_.lower = zero;
        loop->for_.extent = extent[0];
        loop->for_.body = store;
        tir_phase phase = {.tasks = extent[0], .task = outer, .body = loop};
        lib_vec_push(&f.arena, &k->phases, phase);
        const char *text = print(&f, k);
        assert_string_equal(text, "kernel max_(for_: i64[4, 4] arg)\n"
                                  "phase tasks=4 task=for__1 {\n"
                                  "  for for__2 in 0..4 {\n"
                                  "    for_[for__1, for__2] = cast.i64(for__1 - for__2)\n"
                                  "  }\n"
                                  "}\n");
        assert_string_equal(text, print(&f, parse(&f, text)));
    } else {
        fail_msg("%s", f.scope.error.message);
    }
    lib_arena_free(&f.arena);
}

static void test_scratch_is_placed(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        tir_kernel *k = parse(&f, "kernel k(x: f32[4] arg, a: f32[n] workspace, b: i8[3] workspace, c: f64[5] local)"
                                  " params(n: 1..17) phase tasks=1 task=p { x[0] = x[1] }");
        int64_t offset;
        assert_true(tir_is_const(k->pool, k->buffers.data[1].offset, &offset) && offset == 0);
        for (uint64_t n = 1; n <= 17; n++) { /* by the actual value, rounded up to 64 */
            uint64_t *values = LIB_NEW_ARRAY(&f.arena, uint64_t, k->pool->variables.count + 1);
            values[tir_var_id(k->pool, k->params.data[0])] = n;
            tir_evaluator evaluator = {.variables = values};
            uint64_t first = n <= 16 ? 64 : 128;
            assert_int_equal(tir_evaluate(k->pool, k->buffers.data[2].offset, &evaluator), first);
            assert_int_equal(tir_evaluate(k->pool, k->workspace_size, &evaluator), first + 64);
        }
        assert_int_equal(k->workspace_bytes, 192);
        assert_true(k->buffers.data[0].read && k->buffers.data[0].written);
        assert_false(k->buffers.data[1].read || k->buffers.data[1].written);
    } else {
        fail_msg("%s", f.scope.error.message);
    }
    lib_arena_free(&f.arena);
}

/* Text, and a part of the message that it must give; "" means that it is right. */
typedef struct mistake {
    const char *text, *message;
} mistake;

static const mistake parse_mistakes[] = {
    {"kernl k()", "<text>:1:1: expected 'kernel'"},
    {"kernel k(x: f32[4]", "expected ')'"},
    {"kernel k(x: f33[4] arg)", "unknown element type f33"},
    {"kernel k(x: f32[4] arg, x: f32[4] arg)", "two buffers are called x"},
    {"kernel k(x: f32[4] somewhere)", "unknown scope somewhere"},
    {"kernel k(t: f32[4] reg, x: f32[4] arg)", "argument x stands after"},
    {"kernel k(x: f32[4] arg align 3)", "no power of two"},
    {"kernel k(x: f32[n] workspace) params(n: 5..4)", "range of n is empty"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { for i in 0..4 by 0 { x[i] = 1 } }", "loop i does not advance"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { for i in 0..4 lanes 65 { x[i] = 1 } }", "no vector has 65 lanes"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { spill c { } }", "unknown buffer c"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { y[0] = 1 }", "unknown buffer or statement y"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { x[0, 0] = 1 }", "rank 1, not 2"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { x[0] = 1:i32 }", "expected an expression of dtype f32, not i32"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { for i in 0..4 { x[i] = 0 } x[i] = 1 }", "unknown name 'i'"},
    {"kernel k(x: f32[4] arg) phase tasks=1 task=p { x[0] = 1", "expected a name"},
};

static void check_mistake(const mistake *m, bool verify, const tir_machine *machine) {
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        tir_kernel *k = parse(&f, m->text);
        if (verify) tir_kernel_verify(&f.scope, k, machine, NULL);
        if (m->message[0]) fail_msg("no error in: %s", m->text);
    } else if (!m->message[0] || !strstr(f.scope.error.message, m->message)) {
        fail_msg("%s\ngave: %s\nexpected: %s", m->text, f.scope.error.message, m->message);
    }
    lib_arena_free(&f.arena);
}

static void test_parse_mistakes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof parse_mistakes / sizeof *parse_mistakes; i++)
        check_mistake(&parse_mistakes[i], false, NULL);
}

#define HEAD \
    "kernel k(x: f32[16] arg, y: f32[16] arg, n: i32[1] arg, h: f16[4] arg, r: f32[4, 16] reg, t: f32[4] local)"
#define IN_TASK(body) HEAD "params(m: 1..9) phase tasks=4 task=p { " body " }"

static const mistake verify_mistakes[] = {
    {IN_TASK("for i in 0..16 vec { y[i] = x[i] }"), ""},
    {IN_TASK("for i in 0..16 vec { for k in 0..4 { y[i] = x[i] + x[k] } }"), ""},
    {IN_TASK("for i in 0..16 vec { n[0] = max(n[0], cast.i32(x[i])) }"), ""},
    {IN_TASK("for i in 0..16 vec { n[0] = n[0] + cast.i32(x[i]) }"), ""},
    {IN_TASK("for i in 0..16 vec { y[0] = max(x[i], y[0]) }"), ""},
    {IN_TASK("for i in 0..16 vec { y[0] = max(x[i], y[0]) y[0] = max(y[0], x[i + 1]) y[1] = min(y[1], x[i]) }"), ""},
    {IN_TASK("for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = x[j] } }"), ""},
    {IN_TASK("y[0] = muladd(x[0], x[1], x[2])"), "L7"},
    {IN_TASK("y[0] = pick(p, x[0], x[1])"), "L7"},
    {IN_TASK("y[0] = exp(x[0])"), "L7"},
    {IN_TASK("h[0] = h[1] + h[2]"), "L7"},
    {IN_TASK("for i in 0 .. m unroll { y[i] = x[i] }"), "L8: extent"},
    {IN_TASK("for i in 0..4 vec { for j in 0..4 vec { y[i*4 + j] = x[j] } }"), "L8: a vec loop inside"},
    {IN_TASK("for i in 0..4 vec { for j in 0 .. i { y[i] = x[j] } }"), "L8: loop bounds depend"},
    {IN_TASK("for i in 0..4 vec { let b = i + 1 for j in 0 .. b { y[i] = x[j] } }"), "L8: loop bounds depend"},
    {IN_TASK("for i in 0..4 { r[i, 0] = x[i] }"), "L9"},
    {IN_TASK("for i in 0..4 { let b = i r[b, 0] = x[i] }"), "L9"},
    {IN_TASK("y[p] = r[0, p]"), "L9"},
    {IN_TASK("for i in 0..4 vec { y[0] = x[i] }"), "L10"},
    {IN_TASK("for i in 0..4 vec { y[0] = y[0] + x[i] }"), "L10"},
    {IN_TASK("for i in 0..4 vec { y[0] = min(max(y[0], x[i]), 1) }"), "L10"},
    {IN_TASK("for i in 0..4 vec { y[0] = max(y[0], y[0]*x[i]) }"), "L10"},
    {IN_TASK("for i in 0..4 vec { y[0] = max(y[0], x[i]) y[0] = min(y[0], x[i]) }"), "L10"},
    {IN_TASK("for i in 0..4 vec { x[i] = y[0] y[0] = max(y[0], x[i]) }"), "L10"},
    {IN_TASK("for i in 0..12 by 4 { for j in i .. +4 lanes 4 { y[j] = x[j] } }"), ""},
    {IN_TASK(
         "for i in 0..12 by 4 { interleave { for j in i .. +2 lanes 2 { y[j] = x[j] } for j in i + 2 .. +2 lanes 2 of 4 { y[j] = x[j] } } }"),
     ""},
    {IN_TASK("for i in 1 .. +1 rows upper { for j in 0..3 lanes 4 { r[i, j] = x[j] } }"), ""},
    {IN_TASK("spill r { for i in 0..4 { r[i, 0] = x[i] } }"), ""},
    {IN_TASK("for i in 0..4 { for j in 0..1 vec { y[i] = x[i] } }"), ""},
    {IN_TASK("for j in 0..4 lanes 4 { if (x[j] < 0) masked { y[j] = 0 } else masked { y[j] = 1 } }"), ""},
    {IN_TASK("for j in 0..4 lanes 4 { if (x[j] < 0) split { y[j] = 0 } else { y[j] = 1 } }"), ""},
    {IN_TASK("if (x[0] < 0) masked { y[0] = 0 }"), "L17: masks outside"},
    {IN_TASK("if (x[0] < 0) { y[0] = 0 } else masked { y[0] = 1 }"), "L17: masks outside"},
    {IN_TASK("if (x[0] < 0) split { y[0] = 0 }"), "L17: masks outside"},
    {IN_TASK("for i in 0..12 by 5 { y[i] = x[i] }"), "L17: the step"},
    {IN_TASK("for i in 0 .. m by 2 { y[i] = x[i] }"), "L17: the step"},
    {IN_TASK("for i in 0..12 by 4 unroll { y[i] = x[i] }"), "L17: the step"},
    {IN_TASK("for j in 0..5 lanes 4 { y[j] = x[j] }"), "L17: more iterations"},
    {IN_TASK("for j in 0..3 lanes 3 { y[j] = x[j] }"), "L17: number of lanes"},
    {IN_TASK("for j in 0..4 lanes 4 of 2 { y[j] = x[j] }"), "L17: number of lanes"},
    {IN_TASK("for i in 0..4 vec { for j in 0..4 lanes 4 { y[j] = x[i] } }"), "L8: a vec loop inside"},
    {IN_TASK("for j in 0..4 lanes 4 { y[0] = x[j] }"), "L10"},
    {IN_TASK("for i in 0..3 rows { for j in 0..4 lanes 4 { r[i, j] = x[j] } }"), "L17: a vector has two halves"},
    {IN_TASK("for i in 0..2 rows upper { for j in 0..4 lanes 4 { r[i, j] = x[j] } }"), "L17: a vector has two halves"},
    {IN_TASK("for i in 0..2 rows { r[i, 0] = x[i] }"), "L17: the body of a rows loop"},
    {IN_TASK("for i in 0..2 rows { for j in 0..4 lanes 64 { r[i, j] = x[j] } }"), "L17: the body of a rows loop"},
    {IN_TASK("for i in 0..2 rows { for j in i .. +4 lanes 4 { r[i, j] = x[j] } }"), "L17: the columns"},
    {IN_TASK("interleave { y[0] = x[0] }"), "L17: interleave"},
    {IN_TASK("spill x { y[0] = x[0] }"), "L17: spill"},
    {IN_TASK("spill r { spill r { y[0] = r[0, 0] } }"), "L17: a reg buffer is spilled twice"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } }"), ""},
    {IN_TASK("for i in 0..2 unroll { for j in 0..4 lanes 4 { transpose.2 lanes.loop y[j*4 + i] = x[j] } }"), ""},
    {IN_TASK("for j in 0..4 lanes 4 { lanes.unroll y[j*4] = x[j] }"), ""},
    {IN_TASK("for j in 0..4 lanes 4 { lanes.loop y[j*4 + m/9] = x[j] }"), ""},
    {IN_TASK("for i in 0..3 unroll { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } }"),
     "L18: 3 of 4 rows wait for each other, since the phase ends"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 lanes 4 { transpose.4 y[j*2 + i] = x[j] } }"),
     "L18: 2 of 4 rows wait for each other, since another store overlaps"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } x[i] = y[0] }"),
     "L18: 1 of 4 rows wait for each other, since the buffer is read"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } y[i] = 0 }"),
     "L18: 1 of 4 rows wait for each other, since the buffer is stored otherwise"},
    {IN_TASK(
         "for j in 0..2 lanes 2 { transpose.2 y[j*4] = x[j] } for j in 0..4 lanes 4 { transpose.2 y[j*4 + 1] = 0 }"),
     "neighbours have other numbers of lanes, in: transpose.2 y[j*4] = x[j]"},
    {IN_TASK("for i in 0..4 { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } }"),
     "L18: 1 of 4 rows wait for each other, since the loop's body ends"},
    {IN_TASK("for i in 0..4 unroll { if (m < i) { for j in 0..4 lanes 4 { transpose.4 y[j*4 + i] = x[j] } } }"),
     "since a branch ends"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 lanes 4 { transpose.4 y[i*4 + j] = x[j] } }"), "next to each other"},
    {IN_TASK("for j in 0..4 lanes 4 { lanes.unroll y[j*j] = x[j] }"), "not at a known distance"},
    {IN_TASK("for j in 0..4 lanes 4 { if (x[j] < 0) masked { lanes.unroll y[j*4] = x[j] } }"),
     "only some of its lanes are stored"},
    {IN_TASK("for i in 0..9 unroll { for j in 0..4 lanes 4 { transpose.17 y[j*4 + i] = x[j] } }"),
     "L18: too many rows"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..4 vec { transpose.4 y[j*4 + i] = x[j] } }"), "L18: stores wait in"},
    {IN_TASK("transpose.4 y[0] = x[0]"), "L18: stores wait in lanes loops only"},
    {"kernel k(a: f32[m] reg) params(m: 1..4)", "L2: extents"},
    {"kernel k(a: f32[4] local @2) local(64)", "L2: offset"},
    {"kernel k(a: f32[4] local @56) local(64)", "L2: a scratch buffer exceeds"},
    {"kernel k(a: f32[4] arg) phase tasks=1 repeat=2 iteration=t repeat_phases=2 task=p { a[0] = 1 }", "L12"},
    {IN_TASK("for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = x[j] } }"
             "for i in 0..4 unroll { for j in 0..16 vec { y[j] = r[i, j] } }"),
     ""},
};

static void test_verify_mistakes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof verify_mistakes / sizeof *verify_mistakes; i++)
        check_mistake(&verify_mistakes[i], true, NULL);
}

static void test_register_pressure(void **state) {
    (void)state;
    const tir_machine four = {.vector_bytes = 64, .vector_registers = 4, .fma = 1};
    tir_machine three = four, narrow = four, no_fma = four;
    three.vector_registers = 3;
    narrow.vector_bytes = 32;
    narrow.vector_registers = 7;
    no_fma.fma = 0;
    /* r: 4 vectors of 64 bytes while k runs; s only afterwards */
    const char *text =
        "kernel k(x: f32[4, 16] arg, y: f32[4, 16] arg, r: f32[4, 16] reg, s: f32[4, 16] reg) phase tasks=1 task=p {"
        "for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = 0 } }"
        "for k in 0..9 { for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = fma(x[i, j], x[i, j], r[i, j]) } } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i, j] = r[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { s[i, j] = x[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i, j] = s[i, j] } } }";
    check_mistake(&(mistake){text, ""}, true, &four);
    check_mistake(&(mistake){text, "L13: 4 live vectors"}, true, &three);
    check_mistake(&(mistake){text, "L13: 8 live vectors"}, true, &narrow);
    check_mistake(&(mistake){text, "L7: the machine has no fma"}, true, &no_fma);
    /* 4 rows of a vector and a half: 8 vectors, or 6 where rows share the halves; of 25 columns they do not */
    tir_machine six = four;
    six.vector_registers = 6;
    six.row_pairs = 1;
    const char *halves = "kernel k(y: f32[4, 24] arg, r: f32[4, 24] reg) phase tasks=1 task=p {"
                         "for i in 0..4 unroll { for j in 0..24 vec { r[i, j] = 0 } }"
                         "for i in 0..4 unroll { for j in 0..24 vec { y[i, j] = r[i, j] } } }";
    const char *more = "kernel k(y: f32[4, 25] arg, r: f32[4, 25] reg) phase tasks=1 task=p {"
                       "for i in 0..4 unroll { for j in 0..25 vec { r[i, j] = 0 } }"
                       "for i in 0..4 unroll { for j in 0..25 vec { y[i, j] = r[i, j] } } }";
    check_mistake(&(mistake){halves, ""}, true, &six);
    check_mistake(&(mistake){more, "L13: 8 live vectors"}, true, &six);
    six.row_pairs = 0;
    check_mistake(&(mistake){halves, "L13: 8 live vectors"}, true, &six);
    /* the branches of a task use r and s in another order: never both at once */
    const char *versions =
        "kernel k(x: f32[4, 16] arg, y: f32[8, 16] arg, r: f32[4, 16] reg, s: f32[4, 16] reg) phase tasks=2 task=p {"
        "if (p < 1) {"
        "for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = x[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i, j] = r[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { s[i, j] = x[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i, j] = s[i, j] } }"
        "} else {"
        "for i in 0..4 unroll { for j in 0..16 vec { s[i, j] = x[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i + 4, j] = s[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { r[i, j] = x[i, j] } }"
        "for i in 0..4 unroll { for j in 0..16 vec { y[i + 4, j] = r[i, j] } } } }";
    check_mistake(&(mistake){versions, ""}, true, &four);
    check_mistake(&(mistake){versions, "L13: 4 live vectors"}, true, &three);
}

/* Spoils the loop of a right kernel in one of three ways. */
static void check_spoiled_loop(int what, const char *expected) {
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        tir_kernel *k = parse(&f, "kernel k(x: f32[4] arg) phase tasks=1 task=p { for i in 0..4 { x[i] = 0 } }");
        tir_stmt *loop = k->phases.data[0].body;
        if (what == 0) loop->for_.var = tir_loop_variable(k->pool, "j", tir_index(k->pool, 0), tir_index(k->pool, 4));
        if (what == 1) loop->for_.var = k->phases.data[0].task;
        if (what == 2) loop->for_.extent = tir_index(k->pool, 5);
        tir_kernel_verify(&f.scope, k, NULL, NULL);
        fail_msg("no error, expected %s", expected);
    } else {
        assert_non_null(strstr(f.scope.error.message, expected));
    }
    lib_arena_free(&f.arena);
}

static void test_unbound_and_rebound(void **state) {
    (void)state;
    check_spoiled_loop(0, "L3: variable i is not bound");
    check_spoiled_loop(1, "L3: a variable is bound inside");
    check_spoiled_loop(2, "L4");
}

static void test_substitute(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        tir_kernel *k = parse(&f, "kernel k(x: f32[16] arg) phase tasks=4 task=p {"
                                  " let b = p*4 for i in b .. +4 { if (i < 9) { x[i] = x[p] } } x[0] = 1 }");
        const tir_expr from[] = {k->phases.data[0].task}, to[] = {tir_index(k->pool, 2)};
        tir_phase phase = k->phases.data[0];
        phase.body = tir_stmt_substitute(k, phase.body, 1, from, to);
        lib_vec_push(&f.arena, &k->phases, phase);
        assert_string_equal(print(&f, k), "kernel k(x: f32[16] arg)\n"
                                          "phase tasks=4 task=p {\n"
                                          "  let b = p*4\n"
                                          "  for i in b .. +4 {\n"
                                          "    if (i < 9) {\n"
                                          "      x[i] = x[p]\n"
                                          "    }\n"
                                          "  }\n"
                                          "  x[0] = 1:f32\n"
                                          "}\n"
                                          "phase tasks=4 task=p {\n"
                                          "  let b = 8\n"
                                          "  for i in b .. +4 {\n"
                                          "    if (i < 9) {\n"
                                          "      x[i] = x[2]\n"
                                          "    }\n"
                                          "  }\n"
                                          "  x[0] = 1:f32\n"
                                          "}\n");
    } else {
        fail_msg("%s", f.scope.error.message);
    }
    lib_arena_free(&f.arena);
}

/* ---- polls */

/* Iterations of the outermost serial loop between two polls. */
static int64_t iterations_between(const char *load, int lanes) {
    enum { WORK = 1 << 16 };
    fixture f;
    volatile int64_t every = -1;
    open_fixture(&f);
    if (LIB_ENTER(&f.scope)) {
        const char *text = lib_arena_format(&f.arena,
                                            "kernel k(x: f32[100000, 64] arg, y: f32[64] arg) params()\n"
                                            "phase tasks=1 task=p {\n"
                                            "  for i in 0..100000 {\n"
                                            "    for v in 0..32 vec {\n"
                                            "      y[v] = y[v] + %s\n"
                                            "    }\n"
                                            "  }\n"
                                            "}\n",
                                            load);
        const tir_kernel *kernel = parse(&f, text);
        every = tir_polls_of_loop(tir_polls_new(&f.arena, kernel, WORK, lanes), kernel->phases.data[0].body);
    } else {
        fail_msg("%s", f.scope.error.message);
    }
    lib_arena_free(&f.arena);
    return every;
}

/* Lanes that are computed at once are one operation; elements that lie apart are as many misses. */
static void test_polls_of_lanes(void **state) {
    (void)state;
    int64_t scalar = iterations_between("x[i, v]", 1), straight = iterations_between("x[i, v]", 16);
    int64_t reversed = iterations_between("x[i, 63 - v]", 16), apart = iterations_between("x[v*3000, i]", 16);
    int64_t divided = iterations_between("x[i, v/2 + v]", 16), same = iterations_between("x[i, 5]", 16);
    assert_true(scalar > 0);
    assert_true(straight >= 12 * scalar && straight <= 18 * scalar);
    assert_true(same >= straight);
    assert_true(reversed < 5 * scalar && apart < 5 * scalar && divided < 5 * scalar);
    assert_true(apart >= scalar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),          cmocka_unit_test(test_names_are_made_distinct),
        cmocka_unit_test(test_scratch_is_placed),   cmocka_unit_test(test_parse_mistakes),
        cmocka_unit_test(test_verify_mistakes),     cmocka_unit_test(test_register_pressure),
        cmocka_unit_test(test_unbound_and_rebound), cmocka_unit_test(test_substitute),
        cmocka_unit_test(test_polls_of_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
