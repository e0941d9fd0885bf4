/* Numbers, lists and constants that no exporter writes: a model that has them gives a status and a message. Under the sanitizers, also
 * arithmetic that overflows is found. */
#include "onnx/node_model.h"

/* A node, and in `words` a part of the error message that importing it must give; NULL: the import must succeed. `operands`: x is the graph's
 * input, f32 [2, 3, 4, 4]; _ is an omitted operand; others are constants, whose first letter is their kind: i, f, s: a list of i64, f32 or
 * strings; n: one i64; m: an i64 matrix of two rows; w: f32 [n, 1, 2, 2]. */
typedef struct extreme {
    const char *operator;
    int opset;
    const char *operands;
    const char *attributes[5];
    const char *results, *words;
} extreme;

#define LOWEST "-9223372036854775808"
#define GREATEST "9223372036854775807"
#define TWENTY(word) word word word word word word word word word word word word word word word word word word word word

static const extreme extremes[] = {
    {"Transpose", 17, "m:1,2,3,4,5,6", {"perm i 0 0"}, "y", "axis 0 twice"},
    {"Transpose", 17, "x", {"perm i 0 1 2 2"}, "y", "axis 2 twice"},
    {"Slice",
     17,
     "x i:" TWENTY("3,") "3 i:" TWENTY("0,") "0 i:" TWENTY("0,") "0 i:" TWENTY("-1,") "-1",
     {0},
     "y",
     "axis 0 twice"},
    {"Slice", 17, "i:1,2,3,4 i:3,3 i:4,4 i:0,-1", {0}, "y", "axis 0 twice"},
    {"Slice", 9, "x", {"starts i 1 1", "ends i 2 2", "axes i 1 1"}, "y", "axis 1 twice"},
    {"Slice", 17, "x i:0,0,0,0,0 i:1,1,1,1,1", {0}, "y", "axis 4 of"},
    {"Pad", 18, "x i:1,1,1,1 _ i:0,0", {0}, "y", "axis 0 twice"},
    {"Resize", 18, "x _ f:2,2", {"axes i 2 -2"}, "y", "axis 2 twice"},
    {"ReduceSum", 13, "x i:1,-3", {0}, "y", "axis 1 twice"},
    {"ReduceMax", 13, "x", {"axes i 1 1"}, "y", "axis 1 twice"},
    {"ReduceSum", 13, "i:1,2 i:7", {0}, "y", "axis 7 of"},
    {"Squeeze", 13, "x i:0,0", {0}, "y", "axis 0 twice"},
    {"Unsqueeze", 13, "i:1,2 i:0,0", {0}, "y", "axis 0 twice"},
    {"Unsqueeze", 13, "x i:1,1", {0}, "y", "axis 1 twice"},
    {"Gather", 17, "i:1,2 i:0", {"axis I -7"}, "y", "axis -7"},
    {"Concat", 17, "i:1,2 i:0", {"axis I -7"}, "y", "axis -7"},
    {"Expand", 17, "i:1 i:4611686018427387904,4", {0}, "y", "2^60"},
    {"Reshape", 17, "i:1,2,3,4 i:-1,-1", {0}, "y", "-1"},
    {"Range", 17, "n:0 n:5 n:" GREATEST, {0}, "y", NULL},
    {"Range", 17, "n:5 n:0 n:" LOWEST, {0}, "y", NULL},
    {"OneHot", 17, "i:0,1 i: f:0,1", {0}, "y", "0 elements in place of one"},
    {"OneHot", 17, "i:0,1 f:nan f:0,1", {0}, "y", "a depth of"},
    {"TopK", 17, "x i:", {0}, "y z", "0 elements in place of one"},
    {"CumSum", 17, "x i:", {0}, "y", "0 elements in place of one"},
    {"CumSum", 17, "x", {0}, "y", "missing"},
    {"Trilu", 17, "x i:1,2", {0}, "y", "2 elements in place of one"},
    {"Split", 13, "x", {0}, "", "no results"},
    {"MaxPool",
     17,
     "x",
     {"kernel_shape i 4611686018427387904 2", "dilations i 4 4", "auto_pad S SAME_UPPER"},
     "y",
     "kernel_shape"},
    {"MaxPool", 17, "x", {"kernel_shape i 2 2", "strides i " GREATEST " 1", "auto_pad S SAME_UPPER"}, "y", "strides"},
    {"MaxPool", 17, "x", {"kernel_shape i 2 2", "pads i " GREATEST " " GREATEST " 0 0"}, "y", "pads"},
    {"MaxPool", 17, "x", {0}, "y", "kernel_shape is missing"},
    {"ConvTranspose", 17, "x w:1,1,1,1,1,1,1,1,1,1,1,1", {"output_padding i " LOWEST " 0"}, "y", "output_padding"},
    {"ConvTranspose", 17, "x w:1,1,1,1,1,1,1,1,1,1,1,1", {"output_shape i " GREATEST " 2"}, "y", "output_shape"},
    {"ConvTranspose", 17, "x w:1,1,1,1,1,1,1,1,1,1,1,1", {"output_padding i 0"}, "y", "output_padding has 1"},
    {"MaxUnpool", 17, "x m:0,0 i:" LOWEST ",1,1,1", {"kernel_shape i 2 2"}, "y", ""},
    {"Resize", 17, "x _ f:nan,1,1,1", {0}, "y", "a scale of"},
    {"Resize", 17, "x _ f:1,1,-1,1", {0}, "y", "a scale of -1"},
    {"Resize", 17, "x _ f:1,1,1e30,1", {0}, "y", "a scale of 1e+30"},
    {"GroupNormalization", 18, "x w:1,1,1,1 w:1,1,1,1", {"num_groups I 1"}, "y", "rank 4"},
    {"Cast", 17, "_", {"to I 8"}, "y", "operand 0 is missing"},
    {"Gather", 17, "i:1000000,7 s:a", {0}, "y", "is a tensor of numbers"},
    {"Concat", 17, "s:a i:1000000", {"axis I 0"}, "y", "is a tensor of numbers"},
    {"StringSplit", 20, "s:a", {"maxsplit I " LOWEST}, "y z", "strings"},
};

/* The constant that a word such as i:1,2 describes. */
static message constant_of(const char *name, const char *word) {
    char text[512], *rest;
    int64_t numbers[64], dims[4] = {0, 1, 2, 2}, count = 0;
    float floats[64];
    const char kind = *word;
    const int rank = kind == 'n' ? 0 : kind == 'm' ? 2 : kind == 'w' ? 4 : 1;
    const bool real = kind == 'f' || kind == 'w';
    message strings = {0};
    snprintf(text, sizeof text, "%s", word + 2);
    for (const char *part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest), count++) {
        if (kind == 's')
            add_text(&strings, 6, part);
        else
            numbers[count] = strtoll(part, NULL, 10), floats[count] = strtof(part, NULL);
    }
    dims[0] = rank == 4 ? count / 4 : rank == 2 ? 2 : count;
    if (rank == 2) dims[1] = count / 2;
    message t = tensor_of(name, kind == 's' ? 8 : real ? 1 : 7, rank, dims);
    add_bytes(&t, strings.data, strings.size);
    if (kind != 's') add_data(&t, 9, real ? (const void *)floats : numbers, (size_t)count * (real ? 4 : 8));
    free(strings.data);
    return t;
}

static message extreme_model(const extreme *e) {
    message m = {0}, g = {0}, made = {0}, opset = {0};
    char operands[512], name[16], *rest;
    int constants = 0;
    snprintf(operands, sizeof operands, "%s", e->operands);
    for (const char *word = strtok_r(operands, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        snprintf(name, sizeof name, "%s", word[1] == ':' ? "c" : *word == '_' ? "" : word);
        if (word[1] == ':') {
            snprintf(name, sizeof name, "c%d", constants++);
            add_message(&g, 5, constant_of(name, word));
        }
        add_text(&made, 1, name);
    }
    add_words(&made, 2, e->results);
    add_text(&made, 4, e->operator);
    for (int i = 0; e->attributes[i]; i++) add_message(&made, 5, attribute_of(e->attributes[i]));
    add_message(&g, 1, made);
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("x", 1, "2 3 4 4"));
    if (*e->results) add_message(&g, 12, port_of("y", 1, "-"));
    add_int(&m, 1, 8);
    add_message(&m, 7, g);
    add_int(&opset, 2, e->opset);
    add_message(&m, 8, opset);
    return m;
}

static void test_extremes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        const extreme *e = &extremes[i];
        message m = extreme_model(e);
        dlc_onnx_model *model = NULL;
        dlc_graph *g = NULL;
        dlc_status status = dlc_onnx_parse(context, m.data, m.size, NULL, &model);
        if (status == DLC_OK) status = dlc_onnx_graph(model, NULL, &g);
        const char *text = dlc_error_message(context);
        if (status == DLC_INTERNAL || (status == DLC_OK) != !e->words || (e->words && !strstr(text, e->words)))
            fail_msg("%s of %s: %s: %s; expected: %s", e->operator, e->operands, dlc_status_text(status), text,
                     e->words ? e->words : "accepted");
        dlc_graph_destroy(g);
        dlc_onnx_destroy(model);
        free(m.data);
    }
}

/* A node with a body and an attribute (NULL: none) is refused with these words. */
static void refused_with(const char *operator, const char * operands, const char *results, message body,
                         const char *attribute, const char *words) {
    message loop = {0}, g = {0}, graph = {0};
    add_text(&graph, 1, "body"), add_message(&graph, 6, body), add_int(&graph, 20, 5);
    add_words(&loop, 1, operands), add_words(&loop, 2, results);
    add_text(&loop, 4, operator), add_message(&loop, 5, graph);
    if (attribute) add_message(&loop, 5, attribute_of(attribute));
    add_message(&g, 1, loop);
    add_text(&g, 2, "main");
    add_message(&g, 5, constant_of("three", "n:3"));
    add_message(&g, 11, port_of("x", 1, "2 3 4 4")), add_message(&g, 12, port_of("z", 1, "-"));
    message m = model_of(g);
    dlc_onnx_model *model;
    dlc_graph *made = NULL;
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    assert_int_equal(dlc_onnx_graph(model, NULL, &made), DLC_PARSE_ERROR);
    if (!strstr(dlc_error_message(context), words)) fail_msg("%s; expected: %s", dlc_error_message(context), words);
    dlc_onnx_destroy(model);
    free(m.data);
}

/* A body of a Loop that carries x. */
static message loop_body(void) {
    message body = {0};
    add_message(&body, 1, node_of("Identity", "go", "on"));
    add_text(&body, 2, "body");
    add_message(&body, 11, port_of("i", 7, "")), add_message(&body, 11, port_of("go", 9, ""));
    add_message(&body, 11, port_of("v", 1, "2 3 4 4"));
    add_message(&body, 12, port_of("on", 9, "")), add_message(&body, 12, port_of("v", 1, "2 3 4 4"));
    return body;
}

/* A body of a Scan of x that gives the negated elements. */
static message scan_body(void) {
    return graph_of(node_of("Neg", "x", "y"));
}

static void test_bodies(void **state) {
    (void)state;
    refused_with("Loop", "three _ x", "y z1 z2 z", loop_body(), NULL, "4 results of a loop that has 1");
    refused_with("Scan", "x", "z", scan_body(), "num_scan_inputs I 4294967297", "num_scan_inputs is 4294967297");
    refused_with("Scan", "x", "z", scan_body(), "num_scan_inputs I " LOWEST, "num_scan_inputs is " LOWEST);
    refused_with("Scan", "x", "z", scan_body(), "scan_input_axes i 0 0", "scan_input_axes has 2 entries, expected 1");
}

/* A run that is refused for the elements of an input whose declared size overflows. */
static void test_needs(void **state) {
    float x[6] = {0};
    int64_t s[1] = {6}, x_shape[] = {2, 3}, s_shape[] = {1, 1};
    const DLTensor in[] = {{.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = x_shape},
                           {.data = s, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = s_shape}};
    dlc_output_slot y = {NULL, NULL};
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    message g = {0};
    (void)state;
    add_message(&g, 1, node_line("Reshape y x s"));
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("x", 1, "2 3")), add_message(&g, 11, port_of("s", 7, "3 " GREATEST));
    add_message(&g, 12, port_of("y", 1, "-"));
    message m = model_of(g);
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    assert_int_not_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){&in[0], &in[1]}, 2, &y, 1), DLC_OK);
    assert_int_not_equal(strlen(dlc_error_message(context)), 0);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(m.data);
}

static int set_up(void **state) {
    (void)state;
    return (context = open_counted("interp", &memory)) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return memory.blocks != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_extremes), cmocka_unit_test(test_bodies),
                                       cmocka_unit_test(test_needs)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
