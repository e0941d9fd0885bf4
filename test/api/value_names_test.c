/* Names of values: they stand wherever people look, whatever passes and fusion do, and change nothing else. */
#include "api/support.h"

#include <dlc/eager.h>
#include <dlc/files.h>
#include <unistd.h>

enum { ROWS = 3, WIDE = 8 };

static float numbers[WIDE * WIDE];

/* Which names a block is given: none, its own, or drawn from all bytes. */
typedef enum naming_kind { NONE, OWN, RANDOM } naming_kind;
typedef struct namer {
    naming_kind naming;
    uint32_t seed;
    dlc_graph *g;
} namer;

static uint32_t draw(namer *n) {
    return (n->seed = n->seed * 1664525u + 1013904223u) >> 8;
}

static const char *pick(namer *n, const char *own) {
    static char bytes[4][200];
    static int last;
    char *name = bytes[last = (last + 1) % 4];
    if (n->naming == OWN) return own;
    int length = 1 + (int)(draw(n) % (draw(n) % 4 ? 6 : 199));
    for (int i = 0; i < length; i++) name[i] = (char)(1 + draw(n) % 255);
    name[length] = 0;
    return name;
}

static dlc_value named(namer *n, dlc_value value, const char *own) {
    return n->naming == NONE ? value : dlc_name(value, pick(n, own));
}
static void enter(namer *n, const char *own) {
    if (n->naming != NONE) assert_int_equal(dlc_scope_push(n->g, pick(n, own)), DLC_OK);
}
static void leave(namer *n) {
    if (n->naming != NONE) assert_int_equal(dlc_scope_pop(n->g), DLC_OK);
}

/* Two layers: product, softmax, a sum that is wanted too; what both have in common is one node. */
static dlc_program *block(dlc_context *context, naming_kind naming, uint32_t seed) {
    namer n = {naming, seed, NULL};
    OK(context, dlc_graph_create(context, &n.g));
    for (int i = 0; i < WIDE * WIDE; i++) numbers[i] = (float)(i % 7) / 8 - 0.25f;
    dlc_value x = dlc_input(n.g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDE)));
    dlc_value w = named(&n, dlc_constant(n.g, DLC_F32, 2, SHAPE(WIDE, WIDE), numbers), "w");
    enter(&n, "encoder");
    for (int layer = 0; layer < 2; layer++) {
        enter(&n, layer ? "layer1" : "layer0");
        dlc_value h = named(&n, dlc_matmul(x, w), "hidden");
        dlc_value p = named(&n, dlc_softmax(h, -1), "probs");
        x = named(&n, dlc_add(dlc_relu(p), dlc_scalar(n.g, DLC_F32, 1)), "out");
        leave(&n);
    }
    leave(&n);
    dlc_output(n.g, "y", x);
    return compile(context, n.g);
}

static char *dump(dlc_context *context, dlc_program *program, const char *stage) {
    static const int64_t shape[] = {ROWS, WIDE};
    static const int64_t *const shapes[] = {shape};
    static const int ranks[] = {2};
    char *text;
    OK(context, dlc_program_dump(program, stage, shapes, ranks, 1, &text));
    return text;
}

static void run(dlc_context *context, dlc_program *program, float *y) {
    float x[ROWS * WIDE];
    tensor tx, ty;
    fill(x, ROWS * WIDE, 5);
    dlc_output_slot slot = {F32(&ty, y, ROWS, WIDE), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, WIDE)}, 1, &slot, 1));
}

/* Valid UTF-8, and no control character but line ends. */
static void check_text(const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int more = *c < 0x80                 ? 0
                   : *c >= 0xc2 && *c < 0xe0 ? 1
                   : *c >= 0xe0 && *c < 0xf0 ? 2
                   : *c >= 0xf0 && *c < 0xf5 ? 3
                                             : -1;
        if (more < 0 || (*c < 0x20 && *c != '\n') || *c == 0x7f) fail_msg("byte 0x%02x in a text", *c);
        for (c++; more > 0; more--, c++) assert_int_equal(*c & 0xc0, 0x80);
    }
}

static void check_holds(const char *text, const char *what, int line) {
    if (!strstr(text, what)) fail_msg("line %d: no \"%s\" in:\n%s", line, what, text);
}
#define HOLDS(text, what) check_holds((text), (what), __LINE__)

static void test_everywhere(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = block(context, OWN, 0);
        float y[ROWS * WIDE];
        dlc_program_profile(program, 1);
        run(context, program, y);
        static const char *const stages[] = {"graph", "bound", "regions", "plan", "profile", "dot"};
        for (int s = 0; s < 6; s++) {
            char *text = dump(context, program, stages[s]);
            HOLDS(text, "encoder.layer0.probs");
            HOLDS(text, "encoder.layer1.probs");
            HOLDS(text, "encoder.layer1.out");
            check_text(text);
            dlc_text_free(context, text);
        }
        char *plan = dump(context, program, "plan"); /* a product stands by the names of what it is */
        HOLDS(plan, " of encoder.layer0");
        assert_null(strstr(plan, "attention"));
        dlc_text_free(context, plan);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_nothing_changes(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *plain = block(context, NONE, 0);
        float expected[ROWS * WIDE], got[ROWS * WIDE];
        run(context, plain, expected);
        char *schedule = dump(context, plain, "schedule");
        uint64_t built = statistics(context).kernel_builds;
        for (uint32_t seed = 0; seed < 40; seed++) {
            dlc_program *program = block(context, seed ? RANDOM : OWN, seed);
            run(context, program, got);
            assert_memory_equal(got, expected, sizeof got);
            assert_int_equal(statistics(context).kernel_builds, built);
            char *text = dump(context, program, "schedule");
            assert_string_equal(text, schedule); /* with the regions' names and hashes */
            dlc_text_free(context, text);
            dlc_program_profile(program, 1);
            run(context, program, got);
            static const char *const stages[] = {"graph", "bound", "regions", "plan", "profile", "dot"};
            for (int s = 0; s < 6; s++) {
                text = dump(context, program, stages[s]);
                check_text(text);
                dlc_text_free(context, text);
            }
            dlc_program_destroy(program);
        }
        char *before = dump(context, plain, "plan");
        dlc_program *program = block(context, OWN, 0);
        char *after = dump(context, program, "plan");
        assert_non_null(strstr(after, " of "));
        size_t kernels = 0, named_kernels = 0;
        for (const char *c = before; (c = strstr(c, "kernel ")); c++) kernels++;
        for (const char *c = after; (c = strstr(c, "kernel ")); c++) named_kernels++;
        assert_int_equal(kernels, named_kernels);
        dlc_text_free(context, before), dlc_text_free(context, after), dlc_text_free(context, schedule);
        dlc_program_destroy(program), dlc_program_destroy(plain);
        dlc_context_destroy(context);
    }
}

/* Printed graphs bring names of any bytes back. */
static void test_round_trip(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    for (uint32_t seed = 0; seed < 60; seed++) {
        namer n = {RANDOM, seed, NULL};
        dlc_graph *again;
        OK(context, dlc_graph_create(context, &n.g));
        dlc_value x = named(&n, dlc_input(n.g, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), "");
        for (int i = 0; i < 8; i++) {
            if (i % 3 == 0) enter(&n, "");
            x = named(&n, i % 2 ? dlc_neg(dlc_exp(x)) : dlc_add(x, named(&n, dlc_scalar(n.g, DLC_F32, i), "")), "");
            if (i % 3 == 1) leave(&n);
        }
        dlc_output(n.g, "y", x);
        char *text, *back;
        OK(context, dlc_graph_print(n.g, &text));
        check_text(text);
        OK(context, dlc_graph_parse(context, text, strlen(text), &again));
        OK(context, dlc_graph_print(again, &back));
        assert_string_equal(text, back);
        dlc_graph_destroy(n.g), dlc_graph_destroy(again);
        dlc_text_free(context, text), dlc_text_free(context, back);
    }
    static const char given[] =
        "graph { input x: f32[3] name = neg(x) name name \"a/b\" from \"a/b\", \"c\" name x from \"d\" z = exp(x) name z output name }";
    dlc_graph *g;
    char *text;
    OK(context, dlc_graph_parse(context, given, sizeof given - 1, &g));
    OK(context, dlc_graph_print(g, &text));
    HOLDS(text, "\"a/b\" from \"a/b\", \"c\"");
    HOLDS(text, "name x from \"d\"");
    dlc_text_free(context, text);
    dlc_graph_destroy(g);
    static const char *const wrong[] = {"graph { input x: f32[3] name y from \"a\" output x }",
                                        "graph { input x: f32[3] name _ \"z\" output x }",
                                        "graph { input x: f32[3] name x from output x }"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(dlc_graph_parse(context, wrong[i], strlen(wrong[i]), &g), DLC_PARSE_ERROR);
    dlc_context_destroy(context);
}

/* ---- mistakes */

static void test_errors(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_scope_push(g, "encoder"));
    OK(context, dlc_scope_push(g, "layer 0"));
    dlc_value x = dlc_input(g, NULL, DLC_F32, 2, DIMS(SIZE(5), SIZE(4)));
    dlc_value h = dlc_name(dlc_relu(x), "h\n");
    assert_false(dlc_value_ok(dlc_matmul(h, h)));
    HOLDS(dlc_graph_message(g), "matmul(\"encoder.layer 0.h\\n\": f32[5, 4]");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_scope_push(g, "encoder"));
    x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4)));
    (void)dlc_matmul(x, dlc_scalar(g, DLC_F32, 1));
    HOLDS(dlc_graph_message(g), "(in scope \"encoder\")");
    dlc_graph_destroy(g);

    static const struct {
        int which;
        const char *says;
    } wrong[] = {{0, "dlc_name: the name is NULL"},
                 {1, "dlc_name: the name is empty"},
                 {2, "dlc_scope_push: the name is NULL"},
                 {3, "dlc_scope_pop: no scope is open"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OK(context, dlc_graph_create(context, &g));
        x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4)));
        if (i < 2) assert_true(dlc_value_ok(dlc_name(x, i ? "" : NULL))); /* the value is as good as before */
        if (i == 2) assert_int_equal(dlc_scope_push(g, NULL), DLC_INVALID_ARGUMENT);
        if (i == 3) assert_int_equal(dlc_scope_pop(g), DLC_INVALID_ARGUMENT);
        HOLDS(dlc_graph_message(g), wrong[i].says);
        dlc_graph_destroy(g);
    }
    assert_int_equal(dlc_scope_push(NULL, "a"), DLC_INVALID_ARGUMENT);
    assert_false(dlc_value_ok(dlc_name(x, "stale")));
    dlc_value none = dlc_relu(DLC_NONE);
    assert_false(dlc_value_ok(dlc_name(none, "poison")));
    dlc_context_destroy(context);
}

/* ---- files, sub-graphs, eager graphs */

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/dlc_names_XXXXXX";
    dlc_context *context = open_context("interp", NULL);
    dlc_file *file;
    dlc_graph *g;
    tensor t;
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    for (int i = 0; i < WIDE * WIDE; i++) numbers[i] = (float)i;
    const DLTensor *tensors[] = {F32(&t, numbers, WIDE, WIDE)};
    OK(context,
       dlc_file_write_safetensors(context, path, 1, (const char *const[]){"model.0.weight"}, tensors, 0, NULL, NULL));
    OK(context, dlc_file_open(context, path, NULL, &file));
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_scope_push(g, "decoder")); /* the tensor is called as in the file */
    dlc_value w = dlc_file_constant(g, file, "model.0.weight");
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    assert_false(dlc_value_ok(dlc_matmul(x, w)));
    HOLDS(dlc_graph_message(g), "matmul(x: f32[3], model.0.weight: f32[8, 8])");
    dlc_graph *sub = dlc_subgraph(g);
    dlc_value s = dlc_input(sub, "s", DLC_F32, 1, DIMS(SIZE(3)));
    assert_false(dlc_value_ok(dlc_matmul(s, w))); /* captured */
    HOLDS(dlc_graph_message(sub), "model.0.weight");
    dlc_graph_destroy(g);
    dlc_file_destroy(file);
    dlc_context_destroy(context);
    remove(path);
}

static void test_control(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(ROWS), SIZE(WIDE))), r[2];
    OK(context, dlc_scope_push(g, "loop"));
    dlc_graph *body = dlc_subgraph(g);
    dlc_value c = dlc_input(body, "c", DLC_F32, 1, DIMS(SIZE(WIDE))),
              e = dlc_input(body, "e", DLC_F32, 1, DIMS(SIZE(WIDE)));
    dlc_value next = dlc_name(dlc_tanh(dlc_add(c, e)), "carry");
    dlc_output(body, "c", next), dlc_output(body, "s", next);
    dlc_value zero = dlc_constant(g, DLC_F32, 1, SHAPE(WIDE), numbers);
    dlc_value in[] = {zero, x};
    dlc_scan(g, 2, in, body, 1, 1, 2, r);
    OK(context, dlc_scope_pop(g));
    dlc_output(g, "y", dlc_name(dlc_exp(r[1]), "after"));
    dlc_program *program = compile(context, g);
    char *plan = dump(context, program, "plan");
    HOLDS(plan, "loop.carry");
    HOLDS(plan, " of after");
    dlc_text_free(context, plan);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void test_eager(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_eager_create(context, NULL, &g));
    OK(context, dlc_scope_push(g, "step"));
    float data[4] = {1, 2, 3, 4}, got[4];
    tensor t, to;
    dlc_value x = dlc_eager_tensor(g, F32(&t, data, 4));
    for (int i = 0; i < 5; i++) {
        x = dlc_name(dlc_add(x, dlc_scalar(g, DLC_F32, 1)), "x");
        OK(context, dlc_eager_read(g, x, F32(&to, got, 4)));
        assert_true(got[3] == (float)(5 + i));
        OK(context, dlc_eager_step(g, 1, &x));
    }
    assert_int_equal(statistics(context).kernel_builds, 1);
    (void)dlc_matmul(x, dlc_scalar(g, DLC_F32, 1)); /* the scope is open still */
    HOLDS(dlc_graph_message(g), "(in scope \"step\")");
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- many names: lists are cut, memory is in proportion */

static int64_t chain(int nodes, naming_kind naming) {
    counter memory;
    dlc_context *context = open_counted("interp", &memory);
    namer n = {naming, 3, NULL};
    OK(context, dlc_graph_create(context, &n.g));
    dlc_value x = dlc_input(n.g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    char name[32];
    for (int i = 0; i < nodes; i++) {
        snprintf(name, sizeof name, "value%d", i);
        if (naming != NONE) OK(context, dlc_scope_push(n.g, "scope"));
        x = named(&n, i % 2 ? dlc_tanh(x) : dlc_add(x, x), name);
        if (naming != NONE) OK(context, dlc_scope_pop(n.g));
    }
    dlc_output(n.g, "y", x);
    dlc_program *program;
    OK(context, dlc_compile(context, n.g, NULL, &program));
    static const int64_t shape[] = {16};
    OK(context, dlc_prepare(program, (const int64_t *const[]){shape}, (const int[]){1}, 1));
    int64_t bytes = atomic_load(&memory.bytes);
    dlc_graph_destroy(n.g);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&memory.blocks), 0);
    return bytes;
}

static void test_many(void **state) {
    (void)state;
    for (int nodes = 200; nodes <= 800; nodes *= 2) {
        int64_t plain = chain(nodes, NONE), given = chain(nodes, OWN);
        if (given > plain + 1500 * nodes)
            fail_msg("%d values: %lld bytes without names, %lld with", nodes, (long long)plain, (long long)given);
    }
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDE)));
    static const char *const twelve[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
    for (int i = 0; i < 12; i++) x = dlc_name(i % 2 ? dlc_tanh(x) : dlc_add(x, x), twelve[i]);
    for (int i = 0; i < 12; i++) x = dlc_name(x, twelve[i]);
    dlc_output(g, "y", x);
    dlc_program *program = compile(context, g);
    char *plan = dump(context, program, "plan");
    HOLDS(plan, " of a, b, c, d, e, f, g, h, ...:");
    dlc_text_free(context, plan);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everywhere), cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_files),      cmocka_unit_test(test_control),
        cmocka_unit_test(test_eager),      cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
