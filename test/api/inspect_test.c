/* What a host may ask: nodes and their attributes, callbacks and theirs, what DLC_DEBUG, DLC_STATS, DLC_PERF_MAP and DLC_GDB make the library
 * tell, and dumps of all stages. */
#include "support.h"

#include <dlc/extend.h>
#include <unistd.h>

/* ---- nodes */

static dlc_node find_node(const dlc_graph *g, const char *name) {
    for (int i = 0; i < dlc_graph_node_count(g); i++)
        if (strcmp(dlc_node_operator(dlc_graph_node(g, i)), name) == 0) return dlc_graph_node(g, i);
    fail_msg("there is no %s", name);
    return dlc_graph_node(g, -1);
}

static void test_nodes(void **state) {
    (void)state;
    static const float numbers[3] = {1, 2, 4};
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
    dlc_value c = dlc_constant(g, DLC_F32, 1, SHAPE(3), numbers);
    dlc_value t = dlc_transpose(dlc_mul(x, c), 2, SHAPE(1, 0));
    dlc_value results[2];
    dlc_apply_all(g, "top_k", 1, &t, 2, (dlc_setting[]){dlc_set_integer("k", 2), dlc_set_integer("axis", 0)}, 2,
                  results);
    dlc_value s = dlc_apply(g, "scatter", 3,
                            (dlc_value[]){x, dlc_input(g, "i", DLC_I32, 1, DIMS(SIZE(2))),
                                          dlc_input(g, "u", DLC_F32, 2, DIMS(SIZE(2), SIZE(3)))},
                            2, (dlc_setting[]){dlc_set_integer("axis", 0), dlc_set_string("combine", "add")});
    dlc_output(g, "v", results[0]);
    dlc_output(g, "s", s);
    OK(context, dlc_graph_status(g));

    dlc_node top = find_node(g, "top_k"), transpose = find_node(g, "transpose"), scatter = find_node(g, "scatter");
    dlc_node none = dlc_graph_node(g, 1000);
    assert_true(dlc_node_ok(top) && !dlc_node_ok(none));
    assert_int_equal(dlc_node_input_count(top), 1);
    assert_int_equal(dlc_node_input_count(scatter), 3);
    assert_int_equal(dlc_node_input_count(none), 0);
    assert_int_equal(dlc_node_result_count(top), 2);
    assert_int_equal(dlc_node_result_count(none), 0);
    assert_int_equal(dlc_value_dtype(dlc_node_result(top, 1)), DLC_I64);
    assert_false(dlc_value_ok(dlc_node_result(top, 2)));
    assert_false(dlc_value_ok(dlc_node_result(none, 0)));
    assert_true(dlc_node_ok(dlc_value_node(dlc_node_result(top, 0))));

    int64_t integer = 77;
    assert_true(dlc_node_integer(top, "k", &integer));
    assert_int_equal(integer, 2);
    assert_false(dlc_node_integer(top, "nothing", &integer));
    assert_false(dlc_node_integer(none, "k", &integer));
    double number = 0;
    assert_true(dlc_node_number(top, "k", &number) && number == 2);
    const char *word = NULL;
    size_t length = 0;
    assert_true(dlc_node_string(scatter, "combine", &word, &length));
    assert_true(length == 3 && memcmp(word, "add", 3) == 0);
    assert_false(dlc_node_string(top, "k", &word, &length));
    const int64_t *list = NULL;
    int count = 0;
    assert_true(dlc_node_list(transpose, "permutation", &list, &count));
    assert_true(count == 2 && list[0] == 1 && list[1] == 0);
    assert_false(dlc_node_list(top, "k", &list, &count));

    size_t bytes = 0;
    const float *constant = dlc_value_constant(c, &bytes);
    assert_int_equal(bytes, sizeof numbers);
    assert_memory_equal(constant, numbers, sizeof numbers);
    assert_null(dlc_value_constant(x, &bytes));
    assert_null(dlc_value_constant((dlc_value){NULL, 0, 0}, &bytes));
    dlc_graph_destroy(g);
    assert_int_equal(dlc_graph_node_count(NULL), 0);
    dlc_context_destroy(context);
}

/* ---- callbacks: a shape rule that is asked everything; x repeated along an axis, with a mode that doubles */

typedef struct asked {
    dlc_context *context;
    int calls;
} asked;

static dlc_status repeat_shape(void *user, dlc_callback *callback) {
    asked *a = user;
    a->calls++;
    assert_ptr_equal(dlc_callback_context(callback), a->context);
    assert_int_equal(dlc_callback_input_count(callback), 1);
    assert_null(dlc_callback_graph(callback));
    dlc_value x = dlc_callback_input(callback, 0);
    const int64_t *times = NULL;
    const char *mode = NULL;
    size_t length = 0;
    int count = 0;
    int64_t nothing;
    double scale = 0;
    assert_true(dlc_callback_list(callback, "times", &times, &count));
    assert_true(dlc_callback_string(callback, "mode", &mode, &length));
    assert_true(dlc_callback_number(callback, "scale", &scale));
    assert_false(dlc_callback_integer(callback, "nothing", &nothing));
    assert_false(dlc_callback_list(callback, "mode", &times, &count));
    assert_false(dlc_callback_string(callback, "times", &mode, &length));
    if (count != 1 || scale != 3) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "times must be one number");
    int64_t size = dlc_value_dim(x, 0).value * times[0] * (length == 6 && memcmp(mode, "double", 6) == 0 ? 2 : 1);
    return dlc_callback_set_shape(callback, 0, dlc_value_dtype(x), 1, DIMS(SIZE(size)));
}

static dlc_status repeat_call(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                              DLTensor *const *output) {
    (void)user, (void)callback, (void)inputs, (void)outputs;
    const float *x = input[0]->data;
    float *y = output[0]->data;
    for (int64_t i = 0; i < output[0]->shape[0]; i++) y[i] = x[i % input[0]->shape[0]] * 3;
    return DLC_OK;
}

static void test_callbacks(void **state) {
    (void)state;
    static const dlc_operator_attribute attributes[] = {{"times", DLC_ATTRIBUTE_LIST, NULL, NULL},
                                                        {"mode", DLC_ATTRIBUTE_CHOICE, "single double", "single"},
                                                        {"scale", DLC_ATTRIBUTE_NUMBER, NULL, "3"},
                                                        {NULL, DLC_ATTRIBUTE_INTEGER, NULL, NULL}};
    asked a = {.context = open_context("interp", NULL)};
    dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
    options.name = "repeat";
    options.operands = "x";
    options.attributes = attributes;
    options.shape_function = repeat_shape;
    options.call = repeat_call;
    options.user = &a;
    OK(a.context, dlc_operator_register(a.context, &options));
    dlc_graph *g;
    OK(a.context, dlc_graph_create(a.context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(2)));
    const int64_t three = 3;
    dlc_setting settings[] = {dlc_set_list("times", 1, &three), dlc_set_string("mode", "double")};
    dlc_output(g, "y", dlc_apply(g, "repeat", 1, &x, 2, settings));
    assert_true(a.calls > 0);
    dlc_program *program = compile(a.context, g);
    float in[2] = {1, -2}, out[12];
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, out, 12), NULL};
    OK(a.context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, 2)}, 1, &slot, 1));
    for (int i = 0; i < 12; i++) assert_true(out[i] == in[i % 2] * 3);
    dlc_program_destroy(program);
    assert_null(dlc_callback_context(NULL));
    assert_int_equal(dlc_callback_input_count(NULL), 0);

    /* what dlc_apply refuses, by what its message says */
    const struct {
        dlc_setting setting[2];
        int settings;
        const char *says;
    } wrong[] = {
        {{dlc_set_list("times", 1, &three), dlc_set_string("mode", "triple")}, 2, "single double"},
        {{dlc_set_list("times", 1, &three), dlc_set_list("times", 1, &three)}, 2, "twice"},
        {{dlc_set_list("times", 1, &three), dlc_set_integer("size", 1)}, 2, "no attribute size"},
        {{dlc_set_list("times", 1, &three), dlc_set_integer(NULL, 1)}, 2, "without a name"},
        {{dlc_set_list("times", 1, &three), dlc_set_number("scale", 4)}, 2, "times must be one number"},
        {{dlc_set_list("times", 1, &three), dlc_set_list("times", 1, &three)}, -1, "below 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OK(a.context, dlc_graph_create(a.context, &g));
        x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(2)));
        assert_false(dlc_value_ok(dlc_apply(g, "repeat", 1, &x, wrong[i].settings, wrong[i].setting)));
        assert_int_equal(dlc_graph_status(g), DLC_INVALID_ARGUMENT);
        if (!strstr(dlc_graph_message(g), wrong[i].says)) fail_msg("%s", dlc_graph_message(g));
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(a.context);
}

/* ---- what the environment asks for */

enum { TOLD = 1 << 20 };

static void collect(void *user, const char *line) {
    char *text = user;
    size_t length = strlen(text);
    snprintf(text + length, TOLD - length, "%s\n", line);
}

static void assert_told(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%.4000s", part, text);
}

static void test_environment(void **state) {
    (void)state;
    static char text[TOLD];
    for (int t = 0; t < TARGETS; t++) {
        text[0] = 0;
        setenv("DLC_DEBUG", "help,graph,bound,regions,stages,schedule,steps,loops,llvm,asm,source,plan,dot,cache", 1);
        setenv("DLC_STATS", "1", 1);
        setenv("DLC_PERF_MAP", "1", 1);
        setenv("DLC_GDB", "1", 1);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.log = collect;
        options.log_user = text;
        dlc_context *context = open_context(all_targets[t], &options);
        if (context) {
            float x[24], y[12];
            double expected[12];
            tensor tx, ty;
            dlc_program *program = dense_program(context, "n");
            fill(x, 24, 5);
            dense_reference(x, 3, expected);
            dlc_output_slot slot = {F32(&ty, y, 3, 4), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 3, 8)}, 1, &slot, 1));
            CLOSE(y, expected, 12, 1e-6);
            dlc_program_destroy(program);
        }
        unsetenv("DLC_DEBUG");
        unsetenv("DLC_PERF_MAP");
        unsetenv("DLC_GDB");
        dlc_context_destroy(context);
        unsetenv("DLC_STATS");
        if (!context) continue;
        static const char *const parts[] = {"DLC_SEED",           "graph {",
                                            "input x: f32[3, 8]", "dlc: regions",
                                            "dlc: steps",         "kernel ",
                                            "dlc: plan",          "digraph",
                                            "to be built",        "dlc: runs 1, plans 1 built"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_told(text, parts[i]);
        if (strcmp(all_targets[t], "cpu") != 0) continue;
        assert_told(text, "define ");
        char path[64], line[256] = "";
        snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        unsigned long start, size;
        char name[200];
        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(sscanf(line, "%lx %lx %199s", &start, &size, name), 3);
        assert_true(size > 0);
        fclose(file);
        remove(path);
    }
}

/* ---- dumps */

static const char counting_loop[] =
    "graph {\n input i: i32[]\n input x: f32[n]\n a, b = while(i, x, condition=graph {\n  input k: i32[]\n  input u: f32[n]\n"
    "  ten = constant i32[] {10}\n  p = lt(k, ten)\n  output p\n }, body=graph {\n  input k: i32[]\n  input u: f32[n]\n"
    "  one = constant i32[] {1}\n  k2 = add(k, one)\n  u2 = add(u, u)\n  output k2\n  output u2\n })\n output b\n}";

static dlc_program *parse_program(dlc_context *context, const char *text) {
    dlc_graph *g;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    return compile(context, g);
}

/* Every stage says something, also before the first run, and for a graph with branches. */
static void test_dumps(void **state) {
    (void)state;
    static const char *const stages[] = {"graph", "bound", "regions", "stages",  "schedule",
                                         "loops", "plan",  "kept",    "profile", "dot"};
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *programs[2] = {dense_program(context, "n"), parse_program(context, counting_loop)};
        const int64_t *const shapes[2][2] = {{SHAPE(3, 8)}, {SHAPE(0), SHAPE(4)}};
        const int ranks[2][2] = {{2}, {0, 1}};
        for (int p = 0; p < 2; p++) {
            char *text;
            for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
                OK(context, dlc_program_dump(programs[p], stages[s], shapes[p], ranks[p], p ? 2 : 1, &text));
                assert_true(strlen(text) > 10);
                dlc_text_free(context, text);
            }
            dlc_status expected = strcmp(all_targets[t], "interp") == 0 ? DLC_UNSUPPORTED : DLC_OK;
            assert_int_equal(dlc_program_dump(programs[p], "asm", shapes[p], ranks[p], p ? 2 : 1, &text), expected);
            if (strcmp(all_targets[t], "cpu") == 0) assert_non_null(strstr(text, "spills"));
            dlc_text_free(context, text);
            assert_int_equal(dlc_program_dump(programs[p], "soup", NULL, NULL, 0, &text), DLC_INVALID_ARGUMENT);
            assert_non_null(strstr(dlc_error_message(context), "expected one of: graph, bound"));
            assert_null(text);
            assert_int_equal(dlc_program_dump(programs[p], "bound", NULL, NULL, 0, &text), DLC_INVALID_ARGUMENT);
        }
        dlc_program_profile(programs[0], 1);
        run_dense(context, programs[0], 3, NULL);
        dlc_program_profile(programs[0], 0);
        run_dense(context, programs[0], 3, NULL);
        char *text;
        OK(context, dlc_program_dump(programs[0], "profile", shapes[0], ranks[0], 1, &text));
        assert_non_null(strstr(text, "100.0 %"));
        assert_non_null(strstr(text, " 1 runs"));
        dlc_text_free(context, text);
        for (int p = 0; p < 2; p++) dlc_program_destroy(programs[p]);
        dlc_context_destroy(context);
    }
}

/* The graph's dump is a graph again, or says that it is not. */
static void test_dump_parses(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    for (int large = 0; large < 2; large++) {
        static float w[64];
        fill(w, 64, 1);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        int64_t size = large ? 64 : 4;
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(size)));
        dlc_output(g, "y", dlc_add(x, dlc_constant(g, DLC_F32, 1, SHAPE(size), w)));
        dlc_program *program = compile(context, g);
        for (int stage = 0; stage < 2; stage++) {
            char *text, *again;
            OK(context, dlc_program_dump(program, stage ? "bound" : "graph", (const int64_t *[]){SHAPE(3, size)},
                                         (const int[]){2}, 1, &text));
            dlc_graph *parsed;
            dlc_status status = dlc_graph_parse(context, text, strlen(text), &parsed);
            if (large) {
                assert_int_equal(status, DLC_PARSE_ERROR);
                assert_ptr_equal(strstr(text, "# large constants are shortened"), text);
            } else {
                OK(context, status);
                OK(context, dlc_graph_print(parsed, &again));
                assert_string_equal(text, again);
                dlc_text_free(context, again);
                dlc_graph_destroy(parsed);
            }
            dlc_text_free(context, text);
        }
        dlc_program_destroy(program);
    }
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes), cmocka_unit_test(test_callbacks),   cmocka_unit_test(test_environment),
        cmocka_unit_test(test_dumps), cmocka_unit_test(test_dump_parses),
    };
    return cmocka_run_group_tests_name("inspection", tests, NULL, NULL);
}
