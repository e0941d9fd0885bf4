/* Runners: imports are found by what has arrived, kept, and told; states stay between runs. Models are written here; results against sums of
 * the numbers given. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <pthread.h>

static dlc_context *context;
static counter memory;

/* ---- models ------------------------------------------------------------------------------------------------------------- */

static void add_node(message *g, const char *line) {
    add_message(g, 1, node_line(line));
}

static dlc_onnx_model *model_from(message graph, message *bytes) {
    dlc_onnx_model *model;
    *bytes = model_of(graph);
    OK(context, dlc_onnx_parse(context, bytes->data, bytes->size, NULL, &model));
    return model;
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

static dlc_onnx_runner *runner_of(dlc_onnx_model *model, const dlc_onnx_state *states, int count) {
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    dlc_onnx_runner *runner;
    options.states = states, options.state_count = count;
    OK(context, dlc_onnx_runner_create(model, &options, &runner));
    return runner;
}

static DLTensor view(void *data, int code, int bits, int rank, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}, .shape = shape};
}

/* Runs with one result of f32, which must have these numbers. */
static void run_expecting(dlc_onnx_runner *runner, const DLTensor *const *inputs, int count, int64_t numbers,
                          const float *expected) {
    dlc_output_slot slot = {NULL, NULL};
    int64_t made = 1;
    OK(context, dlc_onnx_run(runner, NULL, inputs, count, &slot, 1));
    const DLTensor *y = &slot.managed->dl_tensor;
    for (int d = 0; d < y->ndim; d++) made *= y->shape[d];
    assert_int_equal(made, numbers);
    for (int64_t i = 0; i < numbers; i++)
        if (((const float *)y->data)[i] != expected[i])
            fail_msg("element %lld is %g, expected %g", (long long)i, (double)((const float *)y->data)[i],
                     (double)expected[i]);
    slot.managed->deleter(slot.managed);
}

/* How many imports there are, of which the first has that in its guards. */
static void check_imports(dlc_onnx_runner *runner, int count, const char *guard) {
    char *text;
    int lines = 0;
    OK(context, dlc_onnx_runner_describe(runner, &text));
    for (const char *c = text; *c; c++) lines += *c == '\n';
    if (lines != count || !strstr(text, guard)) fail_msg("expected %d imports with %s:\n%s", count, guard, text);
    dlc_text_free(context, text);
}

static void finish(dlc_onnx_runner *runner, dlc_onnx_model *model, message bytes) {
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

static void test_ports(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Identity y x");
    add_message(&g, 11, port_of("x", 1, "3 n"));
    add_message(&g, 11, port_of("w", 1, "4"));
    add_message(&g, 11, port_of("any", 10, "-"));
    message w = tensor_of("w", 1, 1, (int64_t[]){4});
    add_data(&w, 9, (float[]){1, 2, 3, 4}, 16);
    add_message(&g, 5, w);
    add_message(&g, 12, port_of("y", 1, "3 n"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_port port;
    assert_int_equal(dlc_onnx_port_count(model, DLC_ONNX_INPUT), 2); /* an initializer is no input */
    OK(context, dlc_onnx_port_at(model, DLC_ONNX_INPUT, 0, &port));
    assert_string_equal(port.name, "x");
    assert_int_equal(port.dtype, DLC_F32);
    assert_int_equal(port.rank, 2);
    assert_int_equal(port.dims[0].value, 3);
    assert_string_equal(port.dims[1].name, "n");
    OK(context, dlc_onnx_port_at(model, DLC_ONNX_INPUT, 1, &port));
    assert_int_equal(port.dtype, DLC_F16);
    assert_int_equal(port.rank, -1);
    assert_int_equal(dlc_onnx_port_count(model, DLC_ONNX_OUTPUT), 1);
    assert_int_equal(dlc_onnx_port_at(model, DLC_ONNX_OUTPUT, 1, &port), DLC_INVALID_ARGUMENT);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static void test_notes(void **state) {
    message g = started(), bytes, entry = {0};
    dlc_onnx_model *model;
    (void)state;
    add_node(&g, "Identity y x");
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 12, port_of("y", 1, "n"));
    bytes = model_of(g);
    add_text(&entry, 1, "classes"), add_text(&entry, 2, "cat\ndog");
    add_message(&bytes, 14, entry);
    add_message(&bytes, 14, (message){0});
    OK(context, dlc_onnx_parse(context, bytes.data, bytes.size, NULL, &model));
    assert_string_equal(dlc_onnx_note(model, "classes"), "cat\ndog");
    assert_string_equal(dlc_onnx_note(model, ""), "");
    assert_null(dlc_onnx_note(model, "class"));
    assert_null(dlc_onnx_note(model, NULL));
    assert_null(dlc_onnx_note(NULL, "classes"));
    dlc_onnx_destroy(model);
    free(bytes.data);
}

/* A run that must be refused with these words; outputs are as many as the model's. */
static void fails(dlc_onnx_runner *runner, const DLTensor *const *inputs, int count, const char *words) {
    dlc_output_slot slot = {NULL, NULL};
    assert_int_equal(dlc_onnx_run(runner, NULL, inputs, count, &slot, 1), DLC_INVALID_ARGUMENT);
    if (!strstr(dlc_error_message(context), words)) fail_msg("expected \"%s\": %s", words, dlc_error_message(context));
    assert_null(slot.managed);
}

/* A shape that is an input of the model. */
static void test_content(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Reshape y x shape");
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 11, port_of("shape", 7, "2"));
    add_message(&g, 12, port_of("y", 1, "a b"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t six = 6, two = 2, shape[2];
    const DLTensor tx = view(x, kDLFloat, 32, 1, &six), ts = view(shape, kDLInt, 64, 1, &two);
    for (int turn = 0; turn < 2; turn++)
        for (shape[0] = 1; shape[0] <= 3; shape[0]++) {
            shape[1] = 6 / shape[0];
            run_expecting(runner, (const DLTensor *[]){&tx, &ts}, 2, 6, x);
        }
    check_imports(runner, 3, "shape by its elements");
    shape[0] = 4, shape[1] = 2; /* 8 elements of 6: refused, and nothing is kept */
    dlc_output_slot slot = {NULL, NULL};
    assert_int_not_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, &ts}, 2, &slot, 1), DLC_OK);
    shape[0] = 2, shape[1] = 3;
    run_expecting(runner, (const DLTensor *[]){&tx, &ts}, 2, 6, x);
    DLTensor empty = ts; /* an import would read its elements */
    empty.data = NULL;
    fails(runner, (const DLTensor *[]){&tx, &empty}, 2, "input shape has no data");
    int64_t one_row[2] = {1, 2};
    const DLTensor row = view(shape, kDLInt, 64, 2, one_row), half = view(shape, kDLInt, 64, 1, one_row),
                   other = view(shape, kDLInt, 32, 1, &two);
    fails(runner, (const DLTensor *[]){&tx, &row}, 2, "input shape has rank 2, expected 1");
    fails(runner, (const DLTensor *[]){&tx, &half}, 2, "input shape: dimension 0 is 1, expected 2");
    fails(runner, (const DLTensor *[]){&tx, &other}, 2, "input shape has not the element type of the file, i64");
    run_expecting(runner, (const DLTensor *[]){&tx, &ts}, 2, 6, x);
    finish(runner, model, bytes);
}

/* a[n] + b[m]: one graph for n = m, and one for each of the others. */
static void test_ones(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Add y a b");
    add_message(&g, 11, port_of("a", 1, "n"));
    add_message(&g, 11, port_of("b", 1, "m"));
    add_message(&g, 12, port_of("y", 1, "k"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    static const float sums[3][3] = {{11, 22, 33}, {11, 21, 31}, {11, 12, 13}};
    for (int turn = 0; turn < 2; turn++) {
        int64_t n[] = {3, 1, 3}, m[] = {3, 3, 1};
        for (int i = 0; i < 3; i++) {
            const DLTensor ta = view(a, kDLFloat, 32, 1, &n[i]), tb = view(b, kDLFloat, 32, 1, &m[i]);
            run_expecting(runner, (const DLTensor *[]){&ta, &tb}, 2, 3, sums[i]);
        }
    }
    int64_t two = 2, three = 3;
    const DLTensor ta = view(a, kDLFloat, 32, 1, &two), tb = view(b, kDLFloat, 32, 1, &three);
    dlc_output_slot slot = {NULL, NULL};
    assert_int_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){&ta, &tb}, 2, &slot, 1), DLC_INVALID_ARGUMENT);
    finish(runner, model, bytes);
}

/* An input without a rank in the file. */
static void test_ranks(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Neg y x");
    add_message(&g, 11, port_of("x", 1, "-"));
    add_message(&g, 12, port_of("y", 1, "-"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    float x[4] = {1, 2, 3, 4}, y[4] = {-1, -2, -3, -4};
    int64_t shapes[2][2] = {{4, 1}, {2, 2}};
    for (int turn = 0; turn < 2; turn++)
        for (int rank = 1; rank <= 2; rank++) {
            const DLTensor tx = view(x, kDLFloat, 32, rank, shapes[rank - 1]);
            run_expecting(runner, (const DLTensor *[]){&tx}, 1, 4, y);
        }
    check_imports(runner, 2, "x [any, any]");
    finish(runner, model, bytes);
}

/* More imports than are kept: the first comes again. */
static void test_eviction(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Expand y x shape");
    add_message(&g, 11, port_of("x", 1, "1"));
    add_message(&g, 11, port_of("shape", 7, "1"));
    add_message(&g, 12, port_of("y", 1, "n"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    float x = 5, expected[20];
    int64_t one = 1, shape;
    const DLTensor tx = view(&x, kDLFloat, 32, 1, &one), ts = view(&shape, kDLInt, 64, 1, &one);
    for (int i = 0; i < 20; i++) expected[i] = 5;
    for (shape = 1; shape <= 20; shape++) run_expecting(runner, (const DLTensor *[]){&tx, &ts}, 2, shape, expected);
    check_imports(runner, 16, "shape");
    shape = 1;
    run_expecting(runner, (const DLTensor *[]){&tx, &ts}, 2, 1, expected);
    check_imports(runner, 16, "shape");
    finish(runner, model, bytes);
}

/* y = x + s, which comes back as s. */
static dlc_onnx_model *sum_model(message *bytes) {
    message g = started();
    add_node(&g, "Add y x s");
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 11, port_of("s", 1, "n"));
    add_message(&g, 12, port_of("y", 1, "n"));
    return model_from(g, bytes);
}

static void test_state(void **state) {
    static const dlc_onnx_state pair = {"s", "y"};
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model, &pair, 1);
    float x[2] = {1, 2}, y[2];
    int64_t two = 2, three = 3;
    const DLTensor tx = view(x, kDLFloat, 32, 1, &two), wrong = view(x, kDLInt, 32, 1, &two);
    DLTensor ty = view(y, kDLFloat, 32, 1, &two), longer = view(y, kDLFloat, 32, 1, &three);
    for (int turn = 1; turn <= 6; turn++) {
        if (turn == 4) { /* runs that fail leave the state as it was */
            dlc_output_slot bad = {&longer, NULL}, empty = {NULL, NULL};
            assert_int_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, NULL}, 2, &bad, 1),
                             DLC_INVALID_ARGUMENT);
            assert_int_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){&wrong, NULL}, 2, &empty, 1),
                             DLC_INVALID_ARGUMENT);
            assert_null(empty.managed);
        }
        dlc_output_slot slot = {turn % 2 ? &ty : NULL, NULL};
        OK(context, dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, NULL}, 2, &slot, 1));
        assert_null(slot.managed); /* the runner keeps it */
        if (turn % 2) assert_true(y[0] == (float)turn && y[1] == (float)(2 * turn));
    }
    dlc_onnx_runner_reset(runner);
    dlc_output_slot slot = {&ty, NULL};
    OK(context, dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, NULL}, 2, &slot, 1));
    assert_true(y[0] == 1 && y[1] == 2);
    float given[2] = {100, 200}; /* in place of what the runner has */
    const DLTensor ts = view(given, kDLFloat, 32, 1, &two);
    OK(context, dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, &ts}, 2, &slot, 1));
    OK(context, dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, NULL}, 2, &slot, 1));
    assert_true(y[0] == 102 && y[1] == 204);
    assert_int_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){NULL, NULL}, 2, &slot, 1), DLC_INVALID_ARGUMENT);
    check_imports(runner, 1, "none");
    finish(runner, model, bytes);
}

/* An output that the input cannot take, by element type or rank: told by the run that makes it. */
static void test_wrong_state(void **state) {
    static const dlc_onnx_state pair = {"x", "y"};
    static const char *const node[] = {"Shape y x", "Flatten y x"};
    static const char *const words[] = {"output y is i64 of rank 1, which cannot come back as input x, f32 of rank 1",
                                        "output y is f32 of rank 2, which cannot come back as input x, f32 of rank 1"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        message g = started(), bytes;
        add_node(&g, node[i]);
        add_message(&g, 11, port_of("x", 1, "n"));
        add_message(&g, 12, port_of("y", i ? 1 : 7, "-"));
        dlc_onnx_model *model = model_from(g, &bytes);
        dlc_onnx_runner *runner = runner_of(model, &pair, 1);
        float x[2] = {1, 2};
        int64_t two = 2;
        const DLTensor tx = view(x, kDLFloat, 32, 1, &two);
        fails(runner, (const DLTensor *[]){&tx}, 1, words[i]);
        finish(runner, model, bytes);
    }
}

/* The program of each import, which the runner makes if it has none: without the input whose elements are guards. */
static void test_program(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Reshape y x shape");
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 11, port_of("shape", 7, "2"));
    add_message(&g, 12, port_of("y", 1, "a b"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* too many to be guards */
    int64_t twelve = 12, two = 2, shape[2] = {2, 6};
    const DLTensor tx = view(x, kDLFloat, 32, 1, &twelve), ts = view(shape, kDLInt, 64, 1, &two);
    const DLTensor *const inputs[] = {&tx, &ts};
    dlc_program *first, *again, *other;
    OK(context, dlc_onnx_runner_program(runner, inputs, 2, &first));
    check_imports(runner, 1, "0 runs, guards: shape by its elements");
    assert_int_equal(dlc_program_input_count(first), 1);
    assert_string_equal(dlc_program_input_name(first, 0), "x");
    run_expecting(runner, inputs, 2, 12, x);
    check_imports(runner, 1, "1 runs");
    OK(context, dlc_onnx_runner_program(runner, inputs, 2, &again));
    assert_ptr_equal(first, again);
    shape[0] = 3, shape[1] = 4;
    OK(context, dlc_onnx_runner_program(runner, inputs, 2, &other));
    assert_ptr_not_equal(first, other);
    assert_int_equal(dlc_onnx_runner_program(runner, inputs, 1, &other), DLC_INVALID_ARGUMENT);
    assert_null(other);
    assert_int_equal(dlc_onnx_runner_program(runner, (const DLTensor *[]){&tx, NULL}, 2, &other), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_runner_program(NULL, inputs, 2, &other), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_runner_program(runner, inputs, 2, NULL), DLC_INVALID_ARGUMENT);
    finish(runner, model, bytes);
}

/* A state stands for the input that is not given. */
static void test_program_with_state(void **state) {
    static const dlc_onnx_state pair = {"s", "y"};
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model, &pair, 1);
    float x[2] = {1, 2};
    int64_t two = 2;
    const DLTensor tx = view(x, kDLFloat, 32, 1, &two);
    dlc_program *program;
    OK(context, dlc_onnx_runner_program(runner, (const DLTensor *[]){&tx, NULL}, 2, &program));
    assert_int_equal(dlc_program_input_count(program), 2);
    finish(runner, model, bytes);
}

static void test_mistakes(void **state) {
    static const dlc_onnx_state wrong[] = {{"t", "y"}, {"s", "z"}, {"s", NULL}}, twice[] = {{"s", "y"}, {"x", "y"}};
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner;
    for (int i = 0; i < 3; i++) {
        options.states = &wrong[i], options.state_count = 1;
        assert_int_equal(dlc_onnx_runner_create(model, &options, &runner),
                         i < 2 ? DLC_NOT_FOUND : DLC_INVALID_ARGUMENT);
        assert_null(runner);
    }
    options.states = twice, options.state_count = 2;
    assert_int_equal(dlc_onnx_runner_create(model, &options, &runner), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_runner_create(NULL, NULL, &runner), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run(NULL, NULL, NULL, 0, NULL, 0), DLC_INVALID_ARGUMENT);
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    dlc_onnx_destroy(model); /* the runner retains it */
    float x[2] = {1, 2}, sum[2] = {2, 4};
    int64_t two = 2, below = -2;
    const DLTensor tx = view(x, kDLFloat, 32, 1, &two);
    DLTensor wide = tx, shapeless = tx, negative = tx;
    wide.ndim = 13, shapeless.shape = NULL, negative.shape = &below;
    fails(runner, NULL, 2, "inputs is NULL");
    fails(runner, (const DLTensor *[]){&tx}, 1, "1 inputs and 1 outputs, the model has 2 and 1");
    fails(runner, (const DLTensor *[]){&tx, NULL}, 2, "input s is NULL");
    fails(runner, (const DLTensor *[]){&tx, &wide}, 2, "input s has rank 13, expected 0 to 12");
    fails(runner, (const DLTensor *[]){&tx, &shapeless}, 2, "input s has no shape array");
    fails(runner, (const DLTensor *[]){&tx, &negative}, 2, "input s has size -2 along axis 0");
    run_expecting(runner, (const DLTensor *[]){&tx, &tx}, 2, 2, sum);
    finish(runner, NULL, bytes);
}

static void *run_shapes(void *runner) {
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t six = 6, two = 2;
    for (int turn = 0; turn < 30; turn++) {
        int64_t shape[2] = {turn % 3 + 1, 6 / (turn % 3 + 1)};
        const DLTensor tx = view(x, kDLFloat, 32, 1, &six), ts = view(shape, kDLInt, 64, 1, &two);
        dlc_output_slot slot = {NULL, NULL};
        if (dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, &ts}, 2, &slot, 1) != DLC_OK) return runner;
        const bool right =
            slot.managed->dl_tensor.shape[0] == shape[0] && memcmp(slot.managed->dl_tensor.data, x, sizeof x) == 0;
        slot.managed->deleter(slot.managed);
        if (!right) return runner;
    }
    return NULL;
}

static void test_threads(void **state) {
    message g = started(), bytes;
    pthread_t threads[4];
    (void)state;
    add_node(&g, "Reshape y x shape");
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 11, port_of("shape", 7, "2"));
    add_message(&g, 12, port_of("y", 1, "a b"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model, NULL, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_shapes, runner), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    check_imports(runner, 3, "shape by its elements");
    finish(runner, model, bytes);
}

/* Everything from the runner's making to its second state, with memory refused from one place on. */
static dlc_status try_all(dlc_onnx_model *model) {
    static const dlc_onnx_state pair = {"s", "y"};
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    dlc_onnx_runner *runner;
    float x[2] = {1, 2}, y[2];
    int64_t two = 2;
    const DLTensor tx = view(x, kDLFloat, 32, 1, &two);
    DLTensor ty = view(y, kDLFloat, 32, 1, &two);
    dlc_output_slot slot = {&ty, NULL};
    options.states = &pair, options.state_count = 1;
    dlc_status status = dlc_onnx_runner_create(model, &options, &runner);
    for (int turn = 1; turn <= 2 && status == DLC_OK; turn++) {
        status = dlc_onnx_run(runner, NULL, (const DLTensor *[]){&tx, NULL}, 2, &slot, 1);
        if (status == DLC_OK) assert_true(y[0] == (float)turn && y[1] == (float)(2 * turn));
    }
    dlc_onnx_runner_destroy(runner);
    return status;
}

static void test_refused(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    assert_int_equal(try_all(model), DLC_OK); /* kernels and all else that stays with the context */
    const int64_t before = atomic_load(&memory.blocks);
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t site = 0; status != DLC_OK; site++) {
        atomic_store(&memory.left, site);
        status = try_all(model);
        atomic_store(&memory.left, -1);
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        assert_in_range(site, 0, 2000);
    }
    assert_int_equal(atomic_load(&memory.blocks), before);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static int open_all(void **state) {
    (void)state;
    context = open_counted("cpu", &memory);
    if (!context) context = open_counted("interp", &memory);
    return context == NULL;
}

static int close_all(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return atomic_load(&memory.blocks) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),       cmocka_unit_test(test_notes),    cmocka_unit_test(test_content),
        cmocka_unit_test(test_ones),        cmocka_unit_test(test_ranks),    cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_state),       cmocka_unit_test(test_mistakes), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_program),  cmocka_unit_test(test_program_with_state),
        cmocka_unit_test(test_wrong_state),
    };
    return cmocka_run_group_tests_name("onnx runner", tests, open_all, close_all);
}
