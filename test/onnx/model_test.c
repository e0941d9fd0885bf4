/* Models as a whole: sparse tensors, outputs that are chosen, external data that a host gives, sizes that decide ranks, regions of images. Models are written here;
 * results against sums of the numbers given, or by hand. */
#include "api/support.h"
#include "equal_names.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>

static dlc_context *context;
static counter memory;

/* ---- models ------------------------------------------------------------------------------------------------------------- */

/* 10 and 20 at places 1 and 4 of [2, 3]. */
static message sparse_of(const char *name, const int64_t *places) {
    static const int64_t two[] = {2};
    static const float numbers[] = {10, 20};
    message sparse = {0}, values = tensor_of(name, 1, 1, two), indices = tensor_of(NULL, 7, 1, two);
    add_data(&values, 9, numbers, sizeof numbers);
    add_data(&indices, 9, places, 16);
    add_message(&sparse, 1, values), add_message(&sparse, 2, indices);
    add_int(&sparse, 3, 2), add_int(&sparse, 3, 3);
    return sparse;
}

static dlc_onnx_model *model_from(message graph, message *bytes) {
    dlc_onnx_model *model;
    *bytes = model_of(graph);
    OK(context, dlc_onnx_parse(context, bytes->data, bytes->size, NULL, &model));
    return model;
}

static DLTensor floats(float *data, int rank, int64_t *shape) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* Runs with one result, which must have these sizes and numbers. */
static void run_expecting(dlc_onnx_runner *runner, const DLTensor *const *inputs, int count, int rank,
                          const int64_t *shape, const float *expected) {
    dlc_output_slot slot = {NULL, NULL};
    int64_t numbers = 1;
    OK(context, dlc_onnx_run(runner, NULL, inputs, count, &slot, 1));
    const DLTensor *y = &slot.managed->dl_tensor;
    assert_int_equal(y->ndim, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(y->shape[d], shape[d]), numbers *= shape[d];
    for (int64_t i = 0; i < numbers; i++)
        if (((const float *)y->data)[i] != expected[i])
            fail_msg("element %lld is %g, expected %g", (long long)i, (double)((const float *)y->data)[i],
                     (double)expected[i]);
    slot.managed->deleter(slot.managed);
}

static int imports_of(dlc_onnx_runner *runner) {
    char *text;
    int lines = 0;
    OK(context, dlc_onnx_runner_describe(runner, &text));
    for (const char *c = text; *c; c++) lines += *c == '\n';
    dlc_text_free(context, text);
    return lines;
}

/* ---- sparse tensors ------------------------------------------------------------------------------------------------------ */

/* An initializer, also one that is listed as an input, and a constant: y = x + s + c. */
static void test_sparse(void **state) {
    (void)state;
    static const int64_t places[] = {1, 4}, others[] = {0, 5};
    message g = started(), constant = node_line("Constant c"), value = {0}, bytes;
    add_text(&value, 1, "sparse_value"), add_int(&value, 20, 11);
    add_message(&value, 22, sparse_of(NULL, others));
    add_message(&constant, 5, value);
    add_message(&g, 1, constant);
    add_message(&g, 1, node_line("Add t x s")), add_message(&g, 1, node_line("Add y t c"));
    add_message(&g, 11, port_of("x", 1, "2 3")), add_message(&g, 11, port_of("s", 1, "2 3"));
    add_message(&g, 12, port_of("y", 1, "2 3"));
    add_message(&g, 15, sparse_of("s", places));
    dlc_onnx_model *model = model_from(g, &bytes);
    assert_int_equal(dlc_onnx_port_count(model, DLC_ONNX_INPUT), 1);
    dlc_onnx_runner *runner;
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[] = {1, 2, 3, 4, 5, 6};
    int64_t shape[] = {2, 3};
    const DLTensor in = floats(x, 2, shape);
    run_expecting(runner, (const DLTensor *[]){&in}, 1, 2, shape, (float[]){11, 12, 3, 4, 25, 26});
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* ---- values of inputs ---------------------------------------------------------------------------------------------------- */

static void test_wrong_values(void **state) {
    (void)state;
    message g = started(), bytes;
    float data[2] = {1, 2};
    int64_t two = 2, below = -2;
    add_message(&g, 1, node_line("Neg y x"));
    add_message(&g, 11, port_of("x", 1, "2"));
    add_message(&g, 12, port_of("y", 1, "2"));
    dlc_onnx_model *model = model_from(g, &bytes);
    const DLTensor right = floats(data, 1, &two);
    DLTensor empty = right, negative = right;
    empty.data = NULL, negative.shape = &below;
    const struct {
        const char *name;
        const DLTensor *value;
        dlc_status status;
        const char *words;
    } wrong[] = {{"z", &right, DLC_NOT_FOUND, "the model has no input called z"},
                 {NULL, &right, DLC_INVALID_ARGUMENT, "no input called NULL"},
                 {"x", NULL, DLC_INVALID_ARGUMENT, "the value of input x is NULL"},
                 {"x", &empty, DLC_INVALID_ARGUMENT, "the value of input x has no data"},
                 {"x", &negative, DLC_INVALID_ARGUMENT, "the value of input x has size -2 along axis 0"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dlc_onnx_graph_options options = DLC_ONNX_GRAPH_OPTIONS_INIT;
        dlc_graph *graph;
        options.value_names = &wrong[i].name, options.values = &wrong[i].value, options.value_count = 1;
        assert_int_equal(dlc_onnx_graph(model, &options, &graph), wrong[i].status);
        assert_non_null(strstr(dlc_error_message(context), wrong[i].words));
    }
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* Sizes by the file's name, by that of the symbol of an axis without one, and by a name that is none: n is 1, x.1_1 is 3. */
static void test_given_sizes(void **state) {
    (void)state;
    message g = started(), bytes;
    add_message(&g, 1, node_line("Squeeze y x.1"));
    add_message(&g, 11, port_of("x.1", 1, "n *"));
    add_message(&g, 12, port_of("y", 1, "-"));
    dlc_onnx_model *model = model_from(g, &bytes);
    static const dlc_dim dims[][3] = {{{1, "n"}, {3, "x.1_1"}, {7, "soup"}}, {{1, "n"}, {3, "x_1_1"}, {7, ""}}};
    dlc_onnx_graph_options options = DLC_ONNX_GRAPH_OPTIONS_INIT;
    dlc_graph *graph;
    options.dim_count = 3;
    for (int i = 0; i < 2; i++) {
        options.dims = dims[i];
        OK(context, dlc_onnx_graph(model, &options, &graph));
        dlc_program *program = compile(context, graph);
        float x[3] = {1, 2, 3};
        int64_t shape[2] = {1, 3};
        const DLTensor in = floats(x, 2, shape);
        dlc_output_slot slot = {NULL, NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){&in}, 1, &slot, 1));
        assert_int_equal(slot.managed->dl_tensor.ndim, 1);
        slot.managed->deleter(slot.managed);
        dlc_program_destroy(program);
    }
    options.dim_count = 1;
    assert_int_equal(dlc_onnx_graph(model, &options, &graph), DLC_UNSUPPORTED);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* Axes without names of inputs that are one identifier, that begin alike, or that are called as another input's axis is, are no one size. */
static void test_symbols_differ(void **state) {
    (void)state;
    char name[2][80];
    message g = started(), bytes;
    enum { INPUTS = 6 };
    const char *const names[INPUTS] = {"a.b", "a_b", name[0], name[1], "p", "q"};
    for (int i = 0; i < 2; i++) memset(name[i], 'n', 70), name[i][70] = (char)('0' + i), name[i][71] = 0;
    for (int i = 0; i < INPUTS; i++) {
        char line[128];
        snprintf(line, sizeof line, "Neg y%d %s", i, names[i]);
        add_message(&g, 1, node_line(line));
        add_message(&g, 11, port_of(names[i], 1, i == 5 ? "p_0" : "*"));
        snprintf(line, sizeof line, "y%d", i);
        add_message(&g, 12, port_of(line, 1, "-"));
    }
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_graph *graph;
    OK(context, dlc_onnx_graph(model, NULL, &graph));
    dlc_program *program = compile(context, graph);
    float x[INPUTS] = {1, 2, 3, 4, 5, 6};
    int64_t size[INPUTS] = {1, 2, 3, 4, 5, 6};
    DLTensor in[INPUTS];
    const DLTensor *given[INPUTS];
    dlc_output_slot out[INPUTS] = {{NULL, NULL}};
    for (int i = 0; i < INPUTS; i++) in[i] = floats(x, 1, &size[i]), given[i] = &in[i];
    OK(context, dlc_run(program, NULL, given, INPUTS, out, INPUTS));
    for (int i = 0; i < INPUTS; i++) {
        assert_int_equal(out[i].managed->dl_tensor.shape[0], size[i]);
        out[i].managed->deleter(out[i].managed);
    }
    dlc_program_destroy(program);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------- */

static void test_chosen_outputs(void **state) {
    (void)state;
    message g = started(), bytes;
    add_message(&g, 1, node_line("Neg a x")), add_message(&g, 1, node_line("Abs b x")),
        add_message(&g, 1, node_line("Exp c b"));
    add_message(&g, 11, port_of("x", 1, "n"));
    for (const char *name = "a\0b\0c\0"; *name; name += 2) add_message(&g, 12, port_of(name, 1, "n"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_graph_options options = DLC_ONNX_GRAPH_OPTIONS_INIT;
    const char *names[] = {"c", "a"};
    dlc_graph *graph;
    options.outputs = names, options.output_count = 2;
    OK(context, dlc_onnx_graph(model, &options, &graph));
    dlc_program *program = compile(context, graph);
    assert_int_equal(dlc_program_output_count(program), 2);
    assert_string_equal(dlc_program_output_name(program, 0), "a");
    assert_string_equal(dlc_program_output_name(program, 1), "c");
    dlc_program_destroy(program);
    names[0] = "d";
    assert_int_equal(dlc_onnx_graph(model, &options, &graph), DLC_NOT_FOUND);
    assert_non_null(strstr(dlc_error_message(context), "the model has no output called d"));
    options.output_count = -1;
    assert_int_equal(dlc_onnx_graph(model, &options, &graph), DLC_INVALID_ARGUMENT);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* ---- external data from the host ------------------------------------------------------------------------------------------ */

typedef struct answer {
    dlc_status status;
    const void *bytes;
    size_t size;
    int calls;
    char location[32];
} answer;

static dlc_status give(void *user, const char *location, const void **bytes, size_t *size) {
    answer *a = user;
    a->calls++;
    snprintf(a->location, sizeof a->location, "%s", location);
    *bytes = a->bytes, *size = a->size;
    return a->status;
}

static void add_entry(message *w, const char *key, const char *value) {
    message entry = {0};
    add_text(&entry, 1, key), add_text(&entry, 2, value);
    add_message(w, 13, entry);
}

/* y = x + v + w, of three numbers each, which are one after the other in that place. */
static message external_model(const char *location) {
    static const int64_t three[] = {3};
    message g = started();
    for (int i = 0; i < 2; i++) {
        message w = tensor_of(i ? "w" : "v", 1, 1, three);
        add_entry(&w, "location", location), add_entry(&w, "offset", i ? "12" : "0"), add_entry(&w, "length", "12");
        add_int(&w, 14, 1);
        add_message(&g, 5, w);
    }
    add_message(&g, 1, node_line("Add t x v")), add_message(&g, 1, node_line("Add y t w"));
    add_message(&g, 11, port_of("x", 1, "3"));
    add_message(&g, 12, port_of("y", 1, "3"));
    return model_of(g);
}

static void test_given_data(void **state) {
    (void)state;
    static const float weights[] = {1, 2, 3, 10, 20, 30};
    message m = external_model("sub/w.bin");
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    answer a = {DLC_OK, weights, sizeof weights, 0, ""};
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    options.external = give, options.external_user = &a;
    OK(context, dlc_onnx_parse(context, m.data, m.size, &options, &model));
    assert_int_equal(a.calls, 1);
    assert_string_equal(a.location, "sub/w.bin");
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[] = {100, 200, 300};
    int64_t shape[] = {3};
    const DLTensor in = floats(x, 1, shape);
    run_expecting(runner, (const DLTensor *[]){&in}, 1, 1, shape, (float[]){111, 222, 333});
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(m.data);
}

/* A chain of nodes whose values have names of equal hashes is imported like any other: comparing all names with all would take minutes. */
static void test_names_of_equal_hash(void **state) {
    (void)state;
    enum { NODES = 200000 };
    message g = started(), m;
    char before[33] = "x", name[33] = "";
    for (int i = 0; i < NODES; i++) {
        if (!set_name_of_equal_hash(i, name)) continue;
        add_message(&g, 1, node_of("Neg", before, name));
        memcpy(before, name, sizeof name);
    }
    add_message(&g, 1, node_of("Abs", before, "y"));
    for (int i = NODES; i < 2 * NODES; i++)
        if (set_name_of_equal_hash(i, name)) add_message(&g, 5, tensor_of(name, 1, 1, (int64_t[]){0}));
    add_message(&g, 11, port_of("x", 1, "2"));
    add_message(&g, 12, port_of("y", 1, "2"));
    dlc_onnx_model *model = model_from(g, &m);
    dlc_graph *graph;
    OK(context, dlc_onnx_graph(model, NULL, &graph));
    dlc_graph_destroy(graph);
    dlc_onnx_destroy(model);
    free(m.data);
}

static void test_hostile_answers(void **state) {
    (void)state;
    static const char bytes[24] = {0};
    static const struct {
        answer a;
        dlc_status status;
        const char *words;
    } rows[] = {{{DLC_NOT_FOUND, NULL, 0, 0, ""}, DLC_NOT_FOUND, "options.external does not give w.bin: not found"},
                {{(dlc_status)1000, bytes, 24, 0, ""}, DLC_INVALID_ARGUMENT, "options.external does not give w.bin"},
                {{DLC_OK, NULL, 24, 0, ""}, DLC_INVALID_ARGUMENT, "gives 24 bytes at NULL for w.bin"},
                {{DLC_OK, NULL, 0, 0, ""}, DLC_PARSE_ERROR, "\"w.bin\" of 0 bytes has 0 from byte 0 on"},
                {{DLC_OK, bytes, 23, 0, ""}, DLC_PARSE_ERROR, "\"w.bin\" of 23 bytes has 11 from byte 12 on"}};
    message m = external_model("w.bin"), outside = external_model("../w.bin");
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    dlc_onnx_model *model;
    const int64_t blocks = memory.blocks;
    options.external = give;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        answer a = rows[i].a;
        options.external_user = &a;
        assert_int_equal(dlc_onnx_parse(context, m.data, m.size, &options, &model), rows[i].status);
        if (!strstr(dlc_error_message(context), rows[i].words))
            fail_msg("expected \"%s\": %s", rows[i].words, dlc_error_message(context));
        assert_null(model);
    }
    answer a = {DLC_OK, bytes, 24, 0, ""};
    options.external_user = &a;
    assert_int_equal(dlc_onnx_parse(context, outside.data, outside.size, &options, &model), DLC_PARSE_ERROR);
    assert_int_equal(a.calls, 0);
    options.struct_size = 1;
    assert_int_equal(dlc_onnx_parse(context, m.data, m.size, &options, &model), DLC_INVALID_ARGUMENT);
    assert_int_equal(memory.blocks, blocks);
    free(m.data), free(outside.data);
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------------- */

/* Without axes, which of them go depends on the sizes that arrive. */
static void test_squeeze(void **state) {
    (void)state;
    message g = started(), bytes;
    add_message(&g, 1, node_line("Squeeze y x"));
    add_message(&g, 11, port_of("x", 1, "m n")), add_message(&g, 12, port_of("y", 1, "-"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner;
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[] = {1, 2, 3, 4, 5, 6};
    int64_t column[] = {3, 1}, whole[] = {3, 2};
    DLTensor in = floats(x, 2, column);
    run_expecting(runner, (const DLTensor *[]){&in}, 1, 1, column, x);
    in.shape = whole;
    run_expecting(runner, (const DLTensor *[]){&in}, 1, 2, whole, x);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* y = x[1:] + w: a computed size of 1 broadcasts; sizes that do not fit are refused, and leave no import behind. */
static void test_computed_size_of_one(void **state) {
    (void)state;
    static const int64_t one[] = {1}, start[] = {1}, end[] = {INT64_MAX};
    message g = started(), bytes, s = tensor_of("s", 7, 1, one), e = tensor_of("e", 7, 1, one);
    add_data(&s, 9, start, 8), add_data(&e, 9, end, 8);
    add_message(&g, 5, s), add_message(&g, 5, e);
    add_message(&g, 1, node_line("Slice t x s e")), add_message(&g, 1, node_line("Add y t w"));
    add_message(&g, 11, port_of("x", 1, "m")), add_message(&g, 11, port_of("w", 1, "n"));
    add_message(&g, 12, port_of("y", 1, "n"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner;
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[] = {1, 2, 3, 4, 5}, w[] = {10, 20, 30, 40};
    int64_t m[] = {5}, n[] = {4};
    const DLTensor a = floats(x, 1, m), b = floats(w, 1, n);
    const DLTensor *const in[] = {&a, &b};
    run_expecting(runner, in, 2, 1, n, (float[]){12, 23, 34, 45});
    m[0] = 2;
    run_expecting(runner, in, 2, 1, n, (float[]){12, 22, 32, 42});
    assert_int_equal(imports_of(runner), 2);
    dlc_output_slot slot = {NULL, NULL};
    m[0] = 3;
    assert_int_equal(dlc_onnx_run(runner, NULL, in, 2, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_int_equal(imports_of(runner), 2);
    m[0] = 5;
    run_expecting(runner, in, 2, 1, n, (float[]){12, 23, 34, 45});
    assert_int_equal(imports_of(runner), 2);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* MaxRoiPool for any number of regions, of which the second is narrow and reaches out of the image, and the third is outside. */
static void test_regions(void **state) {
    (void)state;
    message g = started(), bytes, node = node_line("MaxRoiPool y x rois"), cells = {0};
    add_text(&cells, 1, "pooled_shape"), add_int(&cells, 8, 2), add_int(&cells, 8, 2), add_int(&cells, 20, 7);
    add_message(&node, 5, cells);
    add_message(&g, 1, node);
    add_message(&g, 11, port_of("x", 1, "n c h w")), add_message(&g, 11, port_of("rois", 1, "r k"));
    add_message(&g, 12, port_of("y", 1, "r c 2 2"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner;
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[16], rois[] = {0, 0, 0, 3, 3, 0, 1.5f, 1, 2, 9, 0, 7, 7, 9, 9};
    for (int i = 0; i < 16; i++) x[i] = (float)(i - 20);
    const DLTensor image = floats(x, 4, (int64_t[]){1, 1, 4, 4});
    DLTensor regions = floats(rois, 2, (int64_t[]){3, 5});
    const DLTensor *const in[] = {&image, &regions};
    run_expecting(runner, in, 2, 4, (int64_t[]){3, 1, 2, 2}, (float[]){-15, -13, -7, -5, -6, -6, 0, 0, 0, 0, 0, 0});
    regions.shape[0] = 1;
    run_expecting(runner, in, 2, 4, (int64_t[]){1, 1, 2, 2}, (float[]){-15, -13, -7, -5});
    assert_int_equal(imports_of(runner), 1);
    dlc_output_slot slot = {NULL, NULL};
    regions.shape[0] = 3, regions.shape[1] = 4;
    assert_int_equal(dlc_onnx_run(runner, NULL, in, 2, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "columns of rois"));
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static int set_up(void **state) {
    (void)state;
    context = open_counted("interp", &memory);
    return context ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return memory.blocks != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_values),    cmocka_unit_test(test_given_sizes),
        cmocka_unit_test(test_symbols_differ),  cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_chosen_outputs),  cmocka_unit_test(test_given_data),
        cmocka_unit_test(test_hostile_answers), cmocka_unit_test(test_names_of_equal_hash),
        cmocka_unit_test(test_squeeze),         cmocka_unit_test(test_computed_size_of_one),
        cmocka_unit_test(test_regions),
    };
    return cmocka_run_group_tests_name("models", tests, set_up, tear_down);
}
