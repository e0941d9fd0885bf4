/* Mistakes of a host while it builds: every call tells the first of them, messages name what was probably meant and show operands as
 * they were written. */
#include "api/support.h"

#include <dlc/extend.h>
#include <dlc/files.h>
#include <fenv.h>
#include <unistd.h>

static void expect_words(const char *message, int line, const char *first, ...) {
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *))
        if (!strstr(message, word)) fail_msg("line %d: \"%s\" does not say \"%s\"", line, message, word);
    va_end(words);
}
#define SAYS(message, ...) expect_words((message), __LINE__, __VA_ARGS__, (char *)NULL)

/* ---- the first mistake */

static dlc_value wrong_product(dlc_graph *g) {
    dlc_value a = dlc_input(g, "a", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(4)));
    return dlc_matmul(a, dlc_input(g, "b", DLC_F32, 2, DIMS(SIZE(5), SIZE(3))));
}

static void test_first(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    dlc_program *program = NULL;
    dlc_call *call = NULL;
    OK(context, dlc_graph_create(context, &g));
    dlc_value y = wrong_product(g);
    char first[512];
    snprintf(first, sizeof first, "%s", dlc_graph_message(g));
    SAYS(first, "matmul(a: f32[n, 4], b: f32[5, 3])");
    assert_string_equal(dlc_error_message(context), first);
    assert_int_equal(dlc_output(g, "y", y), DLC_INVALID_ARGUMENT);
    assert_string_equal(dlc_error_message(context), first);
    (void)dlc_exp(dlc_scalar(g, DLC_I32, 1)); /* a second mistake */
    assert_string_equal(dlc_error_message(context), first);
    assert_int_equal(dlc_graph_status(NULL), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(NULL), "dlc_graph_status", first);
    assert_int_equal(dlc_graph_status(g), DLC_INVALID_ARGUMENT);
    assert_string_equal(dlc_error_message(context), first);
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_INVALID_ARGUMENT);
    assert_string_equal(dlc_error_message(context), first);
    for (int i = 0; i < 3; i++) { /* the message does not grow */
        assert_int_equal(dlc_run(program, NULL, NULL, 0, NULL, 0), DLC_INVALID_ARGUMENT);
        assert_int_equal(dlc_call_create(program, NULL, 0, NULL, 0, &call), DLC_INVALID_ARGUMENT);
        SAYS(dlc_error_message(context), "dlc_call_create", first);
        assert_int_equal(dlc_run(program, NULL, NULL, 0, NULL, 0), DLC_INVALID_ARGUMENT);
        SAYS(dlc_error_message(context), "dlc_run: the program is NULL", first);
        assert_string_equal(dlc_error_message(context), dlc_error_message(NULL));
        assert_null(strstr(dlc_error_message(NULL), "dlc_call_create"));
    }
    dlc_graph_destroy(g);
    dlc_context_destroy(context);

    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT; /* a chain that begins with the context */
    options.target = "abacus";
    assert_int_equal(dlc_context_create(&options, &context), DLC_NOT_FOUND);
    SAYS(dlc_error_message(NULL), "\"abacus\"");
    assert_null(strstr(dlc_error_message(NULL), "matmul"));
    assert_int_equal(dlc_graph_create(context, &g), DLC_INVALID_ARGUMENT);
    y = wrong_product(g);
    assert_int_equal(dlc_output(g, "y", y), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_run(program, NULL, NULL, 0, NULL, 0), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(NULL), "dlc_run: the program is NULL", "\"abacus\"");
}

/* Poison of calls that had no graph to record their mistake in, and of another graph. */
static void test_first_elsewhere(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g, *other;
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_graph_create(context, &other));
    assert_int_equal(dlc_output(g, "y", dlc_relu(dlc_input(NULL, "x", DLC_F32, 0, NULL))), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "output y", "dlc_input: the graph is NULL");
    SAYS(dlc_graph_message(g), "output y", "dlc_input: the graph is NULL");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    assert_int_equal(dlc_output(g, "y", wrong_product(other)), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "output y", "matmul");
    dlc_graph_destroy(g);
    dlc_file *file; /* a file that was not opened */
    OK(context, dlc_graph_create(context, &g));
    assert_int_equal(dlc_file_open(context, "/nowhere/model.safetensors", NULL, &file), DLC_NOT_FOUND);
    assert_int_equal(dlc_output(g, "y", dlc_file_constant(g, file, "w")), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "dlc_file_constant", "/nowhere/model.safetensors");
    SAYS(dlc_graph_message(g), "dlc_file_constant", "/nowhere/model.safetensors");
    dlc_graph *sub = dlc_subgraph(other); /* a sub-graph's own first mistake, and its parent's */
    assert_int_equal(dlc_output(sub, "y", dlc_exp(dlc_scalar(sub, DLC_I32, 1))), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "exp");
    assert_int_not_equal(dlc_graph_status(other), DLC_OK);
    SAYS(dlc_error_message(context), "matmul");
    dlc_graph_destroy(g), dlc_graph_destroy(other);
    dlc_context_destroy(context);
}

/* ---- what was probably meant */

static void write_tensors(dlc_context *context, const char *path) {
    float data[2] = {1, 2};
    tensor t;
    const DLTensor *tensors[] = {F32(&t, data, 2), &t.dl};
    OK(context, dlc_file_write_safetensors(context, path, 2, (const char *const[]){"layer.0.weight", "layer.0.bias"},
                                           tensors, 0, NULL, NULL));
}

static void test_near_names(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    static const struct {
        const char *text, *hint;
    } texts[] = {
        {"graph { input x: f32[3] y = sofmax(x) output y }", "did you mean \"softmax\"?"},
        {"graph { input x: f32[3] y = ReLUU(x) output y }", "did you mean \"relu\"?"},
        {"graph { input x: f32[3] y = reduce_sum(x, axis=[0]) output y }", "did you mean \"axes\"?"},
        {"graph { input x: f32[3] input w: f32[3] y = convoluton(x, w) output y }", "did you mean"},
        {"graph { input x: float32[3] output x }", "did you mean \"f32\"?"},
        {"graph { input x: f32[3] y = cast(x, dtype=f23) output y }", "did you mean \"f32\"?"},
        {"graph { input hidden: f32[3] y = neg(hiden) output y }", "did you mean \"hidden\"?"},
        {"graph { input x: f32[3] y = xyzzyqqq(x) output y }", "there is no operator xyzzyqqq"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(dlc_graph_parse(context, texts[i].text, strlen(texts[i].text), &g), DLC_PARSE_ERROR);
        SAYS(dlc_error_message(context), texts[i].hint);
    }
    assert_null(strstr(dlc_error_message(context), "did you mean")); /* nothing is near */
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_apply(g, "sofmtax", 1, &x, 0, NULL);
    SAYS(dlc_graph_message(g), "there is no operator sofmtax", "\"softmax\"");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_apply(g, "softmax", 1, &x, 1, (const dlc_setting[]){dlc_set_integer("axsi", 0)});
    SAYS(dlc_graph_message(g), "no attribute axsi", "\"axis\"");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_value y;
    dlc_custom_register(g, "my_kernel", dlc_native_call, NULL);
    dlc_custom_call(g, 1, &x, "my_kernle", 1, SHAPE(DLC_F32), 1, SHAPE(1), 1, DIMS(SIZE(3)), 1, &y);
    dlc_output(g, "y", y);
    dlc_program *program;
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_NOT_FOUND);
    SAYS(dlc_error_message(context), "\"my_kernle\"", "did you mean \"my_kernel\"?");
    dlc_graph_destroy(g);

    OK(context, dlc_graph_create(context, &g));
    x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("batch"), SIZE(6)));
    dlc_output(g, "y", dlc_reshape(x, 3, DIMS(SYMBOL("bacth"), SIZE(2), SIZE(3))));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "symbol bacth", "did you mean \"batch\"?");
    dlc_graph_destroy(g);

    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *none;
    options.target = "intrep";
    assert_int_equal(dlc_context_create(&options, &none), DLC_NOT_FOUND);
    SAYS(dlc_error_message(NULL), "did you mean \"interp\"?");

    char path[] = "/tmp/dlc_mistake_XXXXXX";
    dlc_file *file;
    DLManagedTensorVersioned *managed;
    assert_int_not_equal(close(mkstemp(path)), -1);
    write_tensors(context, path);
    OK(context, dlc_file_open(context, path, NULL, &file));
    assert_int_equal(dlc_file_tensor(file, "layers.0.weight", &managed), DLC_NOT_FOUND);
    SAYS(dlc_error_message(context), "did you mean \"layer.0.weight\"?");
    dlc_file_destroy(file);
    remove(path);

    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_neg(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)))));
    program = compile(context, g);
    char *text;
    assert_int_equal(dlc_program_dump(program, "profil", NULL, NULL, 0, &text), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "did you mean \"profile\"?");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* ---- operands as they were written; transposed weights */

static void test_operands(void **state) {
    (void)state;
    static const struct {
        const char *text, *part[3];
    } cases[] = {
        {"x: f32[8, 2, 3] input y: f32[4] z = add(x, y)",
         {"add(x: f32[8, 2, 3], y: f32[4])", "dimension -1", "3 and 4"}},
        {"x: f32[2, 3] input y: f32[2, 4] z = add(x, y)",
         {"add(x: f32[2, 3], y: f32[2, 4])", "dimension 1", "3 and 4"}},
        {"x: f32[n, 3] input y: i32[] z = mul(x, y)", {"mul(x: f32[n, 3], y: i32[])", "f32 and i32", "cast"}},
        {"x: f32[1, 3] input y: f32[5, 4] z = max(x, y)", {"max(x: f32[1, 3], y: f32[5, 4])", "3 and 4", ""}},
        {"x: f32[n, 7] input y: f32[3, 7] z = linear(x, y)",
         {"linear(x: f32[n, 7], y: f32[3, 7])", "w is [out, in], where [in, out]", "transposed=true"}},
        {"x: f32[n, 7] input y: f32[7, 3] z = linear(x, y, transposed=true)",
         {"w is [in, out], where [out, in]", "transposed=false", ""}},
        {"x: f32[n, 7] input y: f32[3, 7] z = matmul(x, y)",
         {"matmul(x: f32[n, 7], y: f32[3, 7])", "[out, in]", "transpose it, or use linear"}},
        {"x: f32[2, n, 7] input y: f32[2, 3, 7] z = matmul(x, y)",
         {"[out, in]", "transpose its last two dimensions", ""}},
        {"x: f32[n, 7] input y: f32[3, 8] z = linear(x, y)", {"last dimension of x and the first of w", "7 and 3", ""}},
    };
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        dlc_graph *g;
        snprintf(text, sizeof text, "graph { input %s output z }", cases[i].text);
        assert_int_equal(dlc_graph_parse(context, text, strlen(text), &g), DLC_INVALID_ARGUMENT);
        for (int k = 0; k < 3; k++) SAYS(dlc_error_message(context), cases[i].part[k]);
    }
    dlc_context_destroy(context);
}

/* ---- settings and symbols that mean nothing */

static void keep_line(void *user, const char *line) {
    char *log = user;
    size_t length = strlen(log);
    snprintf(log + length, 4096 - length, "%s|", line);
}

static void host_threads(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = 0; i < count; i++) body(argument, i);
}

static void test_threads(void **state) {
    (void)state;
    static const struct {
        bool given;
        int width, threads;
        /* NULL: right */
        const char *says;
    } cases[] = {{true, 0, 0, "parallel_width is 0"},
                 {true, 0, 4, "threads is the size of a pool"},
                 {true, 2, 2, "one of"},
                 {true, 1, 0, NULL},
                 {true, 3, 0, NULL},
                 {false, 2, 0, "parallel_for is NULL"},
                 {false, 0, 2, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        dlc_context *context;
        options.parallel_for = cases[i].given ? host_threads : NULL;
        options.parallel_width = cases[i].width;
        options.threads = cases[i].threads;
        assert_int_equal(dlc_context_create(&options, &context), cases[i].says ? DLC_INVALID_ARGUMENT : DLC_OK);
        if (cases[i].says) SAYS(dlc_error_message(NULL), cases[i].says);
        dlc_context_destroy(context);
    }
}

static void test_told(void **state) {
    (void)state;
    char log[4096] = "";
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.log = keep_line;
    options.log_user = log;
    setenv("DLC_VERIFY", "3", 1);
    setenv("DLC_CPU", "znver44", 1);
    dlc_context *context = open_context("cpu", &options);
    unsetenv("DLC_VERIFY"), unsetenv("DLC_CPU");
    if (context) SAYS(log, "DLC_CPU=znver44", "did you mean \"znver4\"?", "DLC_VERIFY: there is no 3", "0 1 2");
    dlc_context_destroy(context);
    log[0] = 0;
    static const char *const known[] = {"0", "1", "2"};
    for (int i = 0; i < 3; i++) {
        setenv("DLC_VERIFY", known[i], 1);
        dlc_context_destroy(open_context("interp", &options));
    }
    unsetenv("DLC_VERIFY");
    assert_string_equal(log, "");

    context = open_context("interp", &options);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_symbol_varies(g, "bacth", 0, 0, 0));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("batch"), SYMBOL("h1")));
    dlc_value y = dlc_input(g, "y", DLC_F32, 2, DIMS(SYMBOL("batch"), SYMBOL("h2")));
    dlc_value z = dlc_input(g, "z", DLC_F32, 2, DIMS(SYMBOL("batches"), SYMBOL("m")));
    dlc_output(g, "x", dlc_neg(x)), dlc_output(g, "y", dlc_neg(y)), dlc_output(g, "z", dlc_neg(z));
    dlc_program_destroy(compile(context, g));
    SAYS(log, "dlc_symbol_varies: no shape of the graph names bacth; did you mean \"batch\"?|",
         "the symbol batches stands in one dimension only; did you mean \"batch\"?|");
    assert_null(strstr(log, "h1"));
    assert_null(strstr(log, " m "));
    dlc_context_destroy(context);
}

/* ---- numbers */

static void test_scalars(void **state) {
    (void)state;
    static const struct {
        dlc_dtype dtype;
        double number;
        uint64_t bits;
    } cases[] = {
        {DLC_I32, 2.7, 3},
        {DLC_I32, -2.7, (uint32_t)-3},
        {DLC_I32, 2.5, 2},
        {DLC_I32, 3.5, 4},
        {DLC_I32, 0.49999999999999994, 0},
        {DLC_U8, 254.6, 255},
        {DLC_U8, 300, 255},
        {DLC_U8, -0.7, 0},
        {DLC_I8, -200, (uint8_t)-128},
        {DLC_I64, 1e300, INT64_MAX},
        {DLC_U64, 1.8446744073709552e19, UINT64_MAX},
        {DLC_I16, (double)NAN, 0},
        {DLC_BOOL, 0.25, 1},
        {DLC_BOOL, 0, 0},
        {DLC_F32, 0.1, 0x3dcccccd},
        {DLC_F32, -0.1, 0xbdcccccd},
        {DLC_F32, 16777217, 0x4b800000},
        {DLC_F16, 0.1, 0x2e66},
        {DLC_F16, 65519.99, 0x7bff},
        {DLC_BF16, 1.00390625, 0x3f80}, /* halfway: to even */
        {DLC_BF16, 1.01171875, 0x3f82},
    };
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int m = 0; m < 4; m++) {
            dlc_graph *g;
            uint64_t got = 0;
            tensor t;
            OK(context, dlc_graph_create(context, &g));
            fesetround(modes[m]);
            dlc_value value = dlc_scalar(g, cases[i].dtype, cases[i].number);
            fesetround(FE_TONEAREST);
            dlc_output(g, "y", value);
            dlc_program *program = compile(context, g);
            dlc_output_slot slot = {&make_tensor(&t, cases[i].dtype, &got, 0, NULL)->dl, NULL};
            OK(context, dlc_run(program, NULL, NULL, 0, &slot, 1));
            if (got != cases[i].bits) fail_msg("case %zu, mode %d: %llx", i, m, (unsigned long long)got);
            dlc_program_destroy(program);
        }
    dlc_context_destroy(context);
}

/* ---- dlc_program_alias keeps to what its description says */

static dlc_program *sums(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", DLC_F32, 1, DIMS(SYMBOL("n"))),
              b = dlc_input(g, "b", DLC_F32, 1, DIMS(SYMBOL("m")));
    dlc_output(g, "p", dlc_add(dlc_reverse(a, 1, SHAPE(0)), dlc_scalar(g, DLC_F32, 1)));
    dlc_output(g, "q", dlc_neg(a));
    dlc_output(g, "r", dlc_neg(b));
    return compile(context, g);
}

static void test_alias(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = sums(context);
    float data[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, out[3][4];
    tensor in[2], to[3];
    const DLTensor *inputs[] = {F32(&in[0], data[0], 4), F32(&in[1], data[1], 3)};
    dlc_output_slot slots[] = {
        {F32(&to[0], out[0], 4), NULL}, {F32(&to[1], out[1], 4), NULL}, {F32(&to[2], out[2], 3), NULL}};
    OK(context, dlc_program_alias(program, 1, 0));
    OK(context, dlc_program_alias(program, 1, 0));
    assert_int_equal(dlc_program_alias(program, 0, 0), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "input a is donated to output q");
    OK(context, dlc_program_alias(program, 0, 1)); /* n and m cannot be compared yet */
    assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "dimension 0 of output p is 4", "input b", "3");
    inputs[1] = F32(&in[1], data[1], 4);
    slots[2].tensor = F32(&to[2], out[2], 4);
    slots[0].tensor = F32(&to[0], data[1], 4);
    OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
    for (int i = 0; i < 4; i++) {
        assert_true(data[1][i] == (float)(4 - i) + 1);
        assert_true(out[2][i] == -(float)(5 + i));
    }
    dlc_program_destroy(program);
    program = sums(context);
    slots[0].tensor = F32(&to[0], out[0], 4);
    OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
    assert_int_equal(dlc_program_alias(program, 0, 0), DLC_INVALID_ARGUMENT);
    SAYS(dlc_error_message(context), "bound already", "dlc_prepare");
    OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),    cmocka_unit_test(test_first_elsewhere), cmocka_unit_test(test_near_names),
        cmocka_unit_test(test_operands), cmocka_unit_test(test_threads),         cmocka_unit_test(test_told),
        cmocka_unit_test(test_scalars),  cmocka_unit_test(test_alias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
