/* Mistakes of a host with contexts, programs and runs: the status, a message that names what was wrong and what was expected, and
 * objects that are as good as before. */
#include "api/support.h"

static void expect(dlc_status got, dlc_status wanted, const dlc_context *context, int line, const char *first, ...) {
    const char *message = dlc_error_message(context);
    if (got != wanted)
        fail_msg("line %d: status is %s (%s), expected %s", line, dlc_status_text(got), message,
                 dlc_status_text(wanted));
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *))
        if (!strstr(message, word)) fail_msg("line %d: \"%s\" does not say \"%s\"", line, message, word);
    va_end(words);
}
/* Words that the message must hold. */
#define EXPECT(status, context, expression, ...) \
    expect((expression), (status), (context), __LINE__, __VA_ARGS__, (char *)NULL)
#define INVALID(context, expression, ...) EXPECT(DLC_INVALID_ARGUMENT, context, expression, __VA_ARGS__)

static void test_context(void **state) {
    (void)state;
    dlc_context *context = (dlc_context *)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    INVALID(NULL, dlc_context_create(&options, NULL), "dlc_context_create", "NULL");
    options.target = "abacus";
    EXPECT(DLC_NOT_FOUND, NULL, dlc_context_create(&options, &context), "\"abacus\"", "interp");
    assert_null(context);
    options = (dlc_context_options)DLC_CONTEXT_OPTIONS_INIT;
    options.struct_size = 3;
    INVALID(NULL, dlc_context_create(&options, &context), "struct_size is 3", "DLC_CONTEXT_OPTIONS_INIT");
    options = (dlc_context_options)DLC_CONTEXT_OPTIONS_INIT;
    options.threads = -1;
    INVALID(NULL, dlc_context_create(&options, &context), "threads is -1", "0 or more");
    options = (dlc_context_options)DLC_CONTEXT_OPTIONS_INIT;
    dlc_allocator half = {counted_allocate, NULL, NULL};
    options.allocator = &half;
    INVALID(NULL, dlc_context_create(&options, &context), "allocate", "release");
    assert_string_equal(dlc_version(), "0.1.0");
    assert_string_equal(dlc_dtype_name(DLC_BF16), "bf16");
    assert_string_equal(dlc_dtype_name((dlc_dtype)99), "unknown");
}

static void nothing(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)input, (void)outputs, (void)output;
}

static void test_compile(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL), *other = open_context("interp", NULL);
    dlc_graph *g;
    dlc_program *program = NULL;
    INVALID(NULL, dlc_compile(NULL, NULL, NULL, &program), "dlc_compile", "NULL");
    OK(context, dlc_graph_create(context, &g));
    INVALID(context, dlc_compile(context, g, NULL, NULL), "dlc_compile", "NULL");
    INVALID(context, dlc_compile(context, g, NULL, &program), "no output", "dlc_output");
    INVALID(other, dlc_compile(other, g, NULL, &program), "another context");
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.struct_size = 1;
    INVALID(context, dlc_compile(context, g, &options, &program), "struct_size is 1", "DLC_COMPILE_OPTIONS_INIT");
    options = (dlc_compile_options)DLC_COMPILE_OPTIONS_INIT;
    options.budget_ms = -5;
    INVALID(context, dlc_compile(context, g, &options, &program), "budget_ms is -5", "0 or more");
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS({0, "n*2"}));
    dlc_output(g, "y", dlc_neg(x));
    INVALID(context, dlc_compile(context, g, NULL, &program), "symbol n", "no dimension of any input");
    dlc_graph_destroy(g);
    INVALID(context, dlc_compile(context, g, NULL, &program), "destroyed");

    OK(context, dlc_graph_create(context, &g)); /* a mistake while building is the message of compile */
    dlc_output(g, "y",
               dlc_add(dlc_input(g, "a", DLC_F32, 1, DIMS(SIZE(3))), dlc_input(g, "b", DLC_F32, 1, DIMS(SIZE(4)))));
    INVALID(context, dlc_compile(context, g, NULL, &program), "add", "3", "4");
    dlc_graph_destroy(g);

    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", DLC_F32, 1, DIMS(SIZE(3))), b;
    dlc_custom_call(g, 1, &a, "missing", 1, SHAPE(DLC_F32), 1, SHAPE(1), 1, DIMS(SIZE(3)), 1, &b);
    dlc_output(g, "b", b);
    EXPECT(DLC_NOT_FOUND, context, dlc_compile(context, g, NULL, &program), "custom_call", "\"missing\"");
    assert_null(program);
    OK(context, dlc_custom_register(g, "missing", nothing, NULL));
    OK(context, dlc_custom_register(g, "missing", nothing, NULL)); /* again */
    OK(context, dlc_compile(context, g, NULL, &program));
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    dlc_context_destroy(other);
}

/* x[n, 4] + y[n, 4] and their sum over n; symbol n */
static dlc_program *two_inputs(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "left", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(4)));
    dlc_value y = dlc_input(g, "right", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(4)));
    dlc_output(g, "sum", dlc_add(x, y));
    dlc_output(g, "total", dlc_reduce_sum(dlc_mul(x, y), 1, SHAPE(0)));
    return compile(context, g);
}

typedef struct arguments {
    float x[8], y[8], sum[8], total[4];
    tensor tx, ty, ts, tt;
    const DLTensor *inputs[2];
    dlc_output_slot slots[2];
} arguments;

static void good_arguments(arguments *a) {
    memset(a, 0, sizeof *a);
    a->inputs[0] = F32(&a->tx, a->x, 2, 4);
    a->inputs[1] = F32(&a->ty, a->y, 2, 4);
    a->slots[0].tensor = F32(&a->ts, a->sum, 2, 4);
    a->slots[1].tensor = F32(&a->tt, a->total, 4);
}

/* Who calls with a context finds the message there, whatever else is missing. */
static void test_missing(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    dlc_program *program = dense_program(context, "n");
    INVALID(context, dlc_graph_create(context, NULL), "dlc_graph_create", "NULL");
    INVALID(context, dlc_graph_parse(context, NULL, 5, &g), "dlc_graph_parse", "NULL");
    OK(context, dlc_graph_create(context, &g));
    INVALID(context, dlc_graph_print(g, NULL), "dlc_graph_print", "NULL");
    dlc_graph_destroy(g);
    static float x[8], y[4];
    tensor tx, ty;
    dlc_event *event;
    dlc_output_slot slot = {F32(&ty, y, 1, 4), NULL};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.event = &event;
    OK(context, dlc_run(program, &options, (const DLTensor *[]){F32(&tx, x, 1, 8)}, 1, &slot, 1));
    INVALID(context, dlc_event_query(event, NULL), "dlc_event_query", "NULL");
    INVALID(context, dlc_event_order(event, NULL), "dlc_event_order", "NULL");
    OK(context, dlc_event_wait(event));
    dlc_event_destroy(event);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* A call of a function that is not there leaves zeros. */
static void test_no_native(void **state) {
    (void)state;
    float y[3] = {1, 2, 3};
    tensor ty;
    dlc_native_call(NULL, 0, NULL, 1, (DLTensor *[]){F32(&ty, y, 3)});
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
}

/* Of which input, which text and where. */
static void test_dimensions(void **state) {
    (void)state;
    static const struct {
        const char *name, *said;
    } cases[] = {{"", "input rows: \"\":1:1: expected an expression"},
                 {"n ] m", "input rows: \"n ] m\":1:3: expected a symbol"},
                 {"\xff", "input rows: \"\xff\":1:1: unexpected byte 0xff"}};
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        assert_false(dlc_value_ok(dlc_input(g, "rows", DLC_F32, 1, DIMS(SYMBOL(cases[i].name)))));
        if (!strstr(dlc_graph_message(g), cases[i].said)) fail_msg("%s", dlc_graph_message(g));
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
}

static void test_run(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = two_inputs(context);
    arguments a;
#define RUN dlc_run(program, NULL, a.inputs, 2, a.slots, 2)
#define WRONG(change, ...)                  \
    do {                                    \
        good_arguments(&a);                 \
        change;                             \
        INVALID(context, RUN, __VA_ARGS__); \
    } while (0)
    good_arguments(&a);
    INVALID(NULL, dlc_run(NULL, NULL, a.inputs, 2, a.slots, 2), "dlc_run", "program is NULL");
    INVALID(context, dlc_run(program, NULL, a.inputs, 1, a.slots, 2), "1 inputs were given", "takes 2");
    INVALID(context, dlc_run(program, NULL, a.inputs, 2, a.slots, 3), "3 outputs were given", "has 2");
    INVALID(context, dlc_run(program, NULL, NULL, 2, a.slots, 2), "inputs", "NULL");
    INVALID(context, dlc_run(program, NULL, a.inputs, 2, NULL, 2), "outputs", "NULL");
    INVALID(context, dlc_run(program, NULL, a.inputs, -2, a.slots, 2), "-2 inputs were given");
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.struct_size = 0;
    INVALID(context, dlc_run(program, &options, a.inputs, 2, a.slots, 2), "struct_size", "DLC_RUN_OPTIONS_INIT");
    WRONG(a.inputs[1] = NULL, "input right is NULL");
    WRONG(a.tx.dl.device.device_type = kDLCUDA, "input left", "device type 2", "host memory");
    WRONG(a.tx.dl.dtype = ((DLDataType){kDLFloat, 64, 1}), "input left is f64, expected f32");
    WRONG(a.tx.dl.dtype = ((DLDataType){kDLFloat, 32, 4}), "input left", "4 lanes", "expected f32");
    WRONG(a.tx.dl.dtype = ((DLDataType){77, 32, 1}), "input left", "code 77", "expected f32");
    WRONG(a.ty.dl.ndim = 1, "input right has rank 1, expected 2");
    WRONG(a.ty.dl.ndim = -3, "input right has rank -3, expected 2");
    WRONG(a.ty.dl.ndim = 1000000, "rank 1000000");
    WRONG(a.ty.dl.shape = NULL, "input right has no shape");
    WRONG(a.ty.dl.data = NULL, "input right has no data");
    WRONG(a.ty.shape[0] = -1, "input right: dimension 0 is -1");
    WRONG((a.ty.shape[0] = INT64_MAX, a.ty.shape[1] = INT64_MAX), "input right", "overflows");
    WRONG(a.ty.shape[1] = 3, "input right: dimension 1 is 3, expected 4");
    WRONG(a.ty.shape[0] = 1, "input right: dimension 0 is 1", "symbol n", "bound to 2");
    WRONG(a.ts.dl.dtype.bits = 16, "output sum is f16, expected f32");
    WRONG(a.ts.shape[0] = 1, "output sum: dimension 0 is 1, expected 2");
    WRONG(a.tt.dl.ndim = 2, "output total has rank 2, expected 1");
    WRONG(a.tt.dl.data = NULL, "output total has no data");
    WRONG(a.ts.dl.data = a.x, "output sum overlaps input left", "dlc_program_alias");
    WRONG(a.ts.dl.data = a.x + 7, "output sum overlaps input left");
    WRONG(a.tt.dl.data = a.sum + 4, "outputs total and sum overlap");
    WRONG((a.ts.dl.strides = a.ts.strides, a.ts.strides[0] = 0, a.ts.strides[1] = 1), "output sum", "elements overlap");
    WRONG((a.ts.dl.strides = a.ts.strides, a.ts.strides[0] = 1, a.ts.strides[1] = 1), "output sum", "elements overlap");
    WRONG((a.ts.dl.strides = a.ts.strides, a.ts.strides[0] = INT64_MAX, a.ts.strides[1] = INT64_MAX), "output sum");
    good_arguments(&a);
    a.inputs[1] = a.inputs[0]; /* one input twice is no mistake */
    for (int i = 0; i < 8; i++) a.x[i] = (float)i;
    OK(context, RUN);
    for (int i = 0; i < 8; i++) assert_true(a.sum[i] == 2 * (float)i);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void test_shapes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = two_inputs(context);
    const int64_t *good[2] = {SHAPE(3, 4), SHAPE(3, 4)}, *bad[2] = {SHAPE(3, 4), SHAPE(2, 4)},
                  *hole[2] = {SHAPE(3, 4), NULL};
    const int ranks[2] = {2, 2}, low[2] = {2, 1};
    int rank;
    int64_t shape[DLC_MAX_RANK];
    INVALID(NULL, dlc_prepare(NULL, good, ranks, 2), "dlc_prepare", "NULL");
    INVALID(context, dlc_prepare(program, good, ranks, 1), "dlc_prepare: 1 input shapes", "takes 2");
    INVALID(context, dlc_prepare(program, NULL, ranks, 2), "dlc_prepare: 0 input shapes", "takes 2");
    INVALID(context, dlc_prepare(program, good, low, 2), "dlc_prepare: input right has rank 1, expected 2");
    INVALID(context, dlc_prepare(program, hole, ranks, 2), "dlc_prepare: input right: dimension 0 is missing");
    INVALID(context, dlc_prepare(program, bad, ranks, 2), "input right: dimension 0 is 2", "symbol n", "bound to 3");
    OK(context, dlc_prepare(program, good, ranks, 2));
    INVALID(NULL, dlc_output_shape(NULL, good, ranks, 2, 0, DLC_MAX_RANK, shape, &rank), "dlc_output_shape", "NULL");
    INVALID(context, dlc_output_shape(program, good, ranks, 2, 2, DLC_MAX_RANK, shape, &rank),
            "output 2 does not exist");
    INVALID(context, dlc_output_shape(program, good, ranks, 2, 0, DLC_MAX_RANK, shape, NULL), "NULL");
    INVALID(context, dlc_output_shape(program, good, ranks, 2, 0, -1, shape, &rank), "room is negative");
    INVALID(context, dlc_output_shape(program, good, ranks, 2, 0, 1, shape, &rank), "has 2 dimensions, room for 1");
    OK(context, dlc_output_shape(program, good, ranks, 2, 0, 0, NULL, &rank));
    assert_int_equal(rank, 2);
    INVALID(context, dlc_output_shape(program, bad, ranks, 2, 0, DLC_MAX_RANK, shape, &rank),
            "input right: dimension 0 is 2");
    INVALID(context, dlc_output_shape(program, good, low, 2, 0, DLC_MAX_RANK, shape, &rank),
            "dlc_output_shape: input right has rank 1");
    OK(context, dlc_output_shape(program, good, ranks, 2, 0, DLC_MAX_RANK, shape, &rank));
    assert_true(rank == 2 && shape[0] == 3 && shape[1] == 4);
    INVALID(NULL, dlc_program_alias(NULL, 0, 0), "dlc_program_alias", "NULL");
    INVALID(context, dlc_program_alias(program, 2, 0), "output 2 of 2");
    INVALID(context, dlc_program_alias(program, 0, -1), "input -1 of 2");
    INVALID(context, dlc_program_alias(program, 1, 0), "output total f32[4]", "input left f32[n, 4]", "differ");
    INVALID(context, dlc_program_alias(program, 0, 0), "bound already", "dlc_prepare");
    char *text;
    INVALID(context, dlc_program_dump(program, NULL, good, ranks, 2, &text), "dlc_program_dump", "NULL");
    INVALID(context, dlc_program_dump(program, "fog", good, ranks, 2, &text), "\"fog\"", "regions");
    INVALID(context, dlc_program_dump(program, "plan", bad, ranks, 2, &text), "input right: dimension 0 is 2");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Sizes that only binding can refuse. */
static void test_bind(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", DLC_F32, 1, DIMS(SYMBOL("n"))),
              b = dlc_input(g, "b", DLC_F32, 1, DIMS(SYMBOL("m")));
    OK(context, dlc_symbol_varies(g, "n", 2, 64, 2));
    dlc_output(g, "c", dlc_add(a, b)); /* n == m is left to bind */
    dlc_program *program = compile(context, g);
    const int ranks[2] = {1, 1};
#define PREPARE(n, m) dlc_prepare(program, (const int64_t *[]){SHAPE(n), SHAPE(m)}, ranks, 2)
    INVALID(context, PREPARE(4, 6), "add");
    INVALID(context, PREPARE(3, 3), "symbol n", "between 2 and 64", "multiple of 2");
    INVALID(context, PREPARE(66, 66), "symbol n", "between 2 and 64");
    OK(context, PREPARE(4, 4));
    dlc_program_destroy(program);

    OK(context, dlc_graph_create(context, &g));
    a = dlc_input(g, "a", DLC_F32, 1, DIMS(SYMBOL("n"))), b = dlc_input(g, "b", DLC_F32, 1, DIMS({0, "2*n + 1"}));
    dlc_output(g, "c", dlc_concat(2, (const dlc_value[]){a, b}, 0));
    program = compile(context, g);
    INVALID(context, PREPARE(4, 8), "input b: dimension 0 is 8, expected 9");
    OK(context, PREPARE(4, 9));
    INVALID(context, PREPARE(INT64_MAX, 9), "input a: dimension 0 is 9223372036854775807", "symbol n");
    dlc_program_destroy(program);

    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_symbol_varies(g, "n", 2, 64, 1));
    dlc_output(g, "c", dlc_neg(dlc_input(g, "a", DLC_F32, 1, DIMS(SYMBOL("n")))));
    program = compile(context, g);
    INVALID(context, dlc_prepare(program, (const int64_t *[]){SHAPE(65)}, ranks, 1), "symbol n is between 2 and 64");
    assert_null(strstr(dlc_error_message(context), "multiple"));
    dlc_program_destroy(program);

    OK(context, dlc_graph_create(context, &g)); /* an outer product beyond all memory */
    a = dlc_input(g, "a", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(1))),
    b = dlc_input(g, "b", DLC_F32, 2, DIMS(SIZE(1), SYMBOL("m")));
    dlc_output(g, "c", dlc_add(a, b));
    program = compile(context, g);
    const int two[2] = {2, 2};
    INVALID(context, dlc_prepare(program, (const int64_t *[]){SHAPE(1 << 30, 1), SHAPE(1, 1 << 30)}, two, 2),
            "larger than");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* A schedule that does not fit is an error with its line, and nothing else breaks. */
static void test_schedule(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_output(g, "y", dlc_exp(x));
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.schedule = "region exp:\nloops:\n  split nowhere.i 4 -> a b mask\n";
    dlc_program *program;
    OK(context, dlc_compile(context, g, &options, &program));
    INVALID(context, dlc_prepare(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1), "split", "nowhere");
    dlc_program_destroy(program);
    options.schedule = "region exp:\nloops:\n  store exp reg\n"; /* its result is an output */
    OK(context, dlc_compile(context, g, &options, &program));
    INVALID(context, dlc_prepare(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1), "store reg", "root");
    dlc_program_destroy(program);
    options.schedule = "region exp:\nloops:\n  split exp.i0 4 -> a b mask\nregion other:\nloops:\n  nonsense\n";
    OK(context, dlc_compile(context, g, &options, &program));
    OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1));
    char *text;
    OK(context, dlc_program_dump(program, "loops", (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1, &text));
    assert_non_null(strstr(text, "for b in 0..4"));
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    static const struct {
        const char *text, *line, *reason;
    } malformed[] = {
        {"\n  par exp.i0\n", "line 2", "before any section"},
        {"region exp:\nregion :\n", "line 2", "no region is named"},
        {"region exp\npar exp.i0\n", "line 1", "no header"},
        {"region exp: par exp.i0\n", "line 1", "no header"},
        {"# mine\nregion #12:\n", "line 2", "16 digits"},
        {"region exp #12345678ABCDEF00:\n", "line 1", "lower-case"},
        {"region exp:\npar exp.i0\n\nregion exp :\nloops:\n", "line 4", "another section, in line 1"},
        {"region \x01:\nregion exp\n", "line 2", "no header of a section: \"region exp\""},
        {"region exp\x01\n", "line 1", "\"region exp\\x01\""},
    };
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        options.schedule = malformed[i].text;
        INVALID(context, dlc_compile(context, g, &options, &program), malformed[i].line, malformed[i].reason);
    }
    program = compile(context, g);
    OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),   cmocka_unit_test(test_compile),    cmocka_unit_test(test_missing),
        cmocka_unit_test(test_no_native), cmocka_unit_test(test_dimensions), cmocka_unit_test(test_run),
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_bind),       cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
