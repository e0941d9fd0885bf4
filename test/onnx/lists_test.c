/* Sequences, optionals, strings and maps: models written here, run by dlc_onnx_run_values, with results computed here or by hand. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <pthread.h>

static dlc_context *context;
static counter memory;

/* ---- models ------------------------------------------------------------------------------------------------------------- */

/* A type: s SEQUENCE, o OPTIONAL, m KEY MAP, each with the type inside; T ELEMENT [DIMENSIONS...], as in "sT1 -", "m8T1 -". */
static message type_of(const char *text) {
    message t = {0}, inner = {0};
    char *end;
    if (*text == 's' || *text == 'o') {
        add_message(&inner, 1, type_of(text + 1));
        add_message(&t, *text == 's' ? 4 : 9, inner);
    } else if (*text == 'm') {
        add_int(&inner, 1, strtol(text + 1, &end, 10));
        add_message(&inner, 2, type_of(end));
        add_message(&t, 5, inner);
    } else {
        const int element = (int)strtol(text + 1, &end, 10);
        message port = port_of("", element, *end ? end + 1 : ""), whole = {0};
        /* its only other field is the empty name, 2 bytes */
        add_bytes(&whole, port.data + 2, port.size - 2);
        size_t at = 1;
        while (whole.data[at] & 128) at++;
        add_bytes(&t, whole.data + at + 1, whole.size - at - 1);
        free(port.data), free(whole.data);
    }
    return t;
}

static void add_port(message *g, unsigned field, const char *name, const char *type) {
    message v = {0};
    add_text(&v, 1, name);
    add_message(&v, 2, type_of(type));
    add_message(g, field, v);
}

/* NAME=i:NUMBER, s:TEXT, is:NUMBERS, fs:NUMBERS or ss:TEXTS, separated by commas */
static void add_attribute(message *node, char *text) {
    message a = {0};
    char *kind = strchr(text, '=') + 1, *value = strchr(kind, ':') + 1, *rest = value;
    kind[-1] = value[-1] = 0;
    const bool list = kind[1] == 's';
    add_text(&a, 1, text);
    add_int(&a, 20, *kind == 'i' ? (list ? 7 : 2) : *kind == 'f' ? 6 : list ? 8 : 3);
    if (*kind == 'i' && !list) add_int(&a, 3, atoll(value));
    if (*kind == 's' && !list) add_text(&a, 4, value);
    for (char *word; list && (word = strtok_r(rest, ",", &rest));) {
        if (*kind == 'i') add_int(&a, 8, atoll(word));
        if (*kind == 'f') add_float(&a, 7, (float)atof(word));
        if (*kind == 's') add_text(&a, 9, word);
    }
    add_message(node, 5, a);
}

/* OPERATOR RESULT,RESULT OPERAND... | ATTRIBUTE...; the domain is ai.onnx.ml if the operator begins with a dot, its name is that of the
 * operator. body: of attribute `body_name`. */
static void add_node_with(message *g, const char *line, const char *body_name, message *body) {
    message node = {0};
    char text[512], *rest = text, *results;
    bool attributes = false;
    snprintf(text, sizeof text, "%s", line);
    const char *operator= strtok_r(rest, " ", &rest);
    results = strtok_r(rest, " ", &rest);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        if (attributes)
            add_attribute(&node, word);
        else if (strcmp(word, "|") == 0)
            attributes = true;
        else
            add_text(&node, 1, strcmp(word, "-") ? word : "");
    }
    for (char *word; (word = strtok_r(results, ",", &results));) add_text(&node, 2, word);
    add_text(&node, 3, line);
    add_text(&node, 4, operator+(*operator== '.'));
    if (*operator== '.') add_text(&node, 7, "ai.onnx.ml");
    if (body) {
        message a = {0};
        add_text(&a, 1, body_name);
        add_message(&a, 6, *body);
        add_int(&a, 20, 5);
        add_message(&node, 5, a);
    }
    add_message(g, 1, node);
}

static void add_node(message *g, const char *line) {
    add_node_with(g, line, NULL, NULL);
}

static void add_integers(message *g, const char *name, int rank, int64_t count, const int64_t *numbers) {
    message t = tensor_of(name, 7, rank, &count);
    add_data(&t, 9, numbers, (size_t)count * 8);
    add_message(g, 5, t);
}

/* A list of strings as an initializer. */
static void add_strings(message *g, const char *name, int64_t count, const char *const *strings) {
    message t = tensor_of(name, 8, 1, &count);
    for (int64_t i = 0; i < count; i++) add_text(&t, 6, strings[i]);
    add_message(g, 5, t);
}

static message started(void) {
    message g = {0};
    add_text(&g, 2, "main");
    return g;
}

typedef struct fixture {
    message bytes;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
} fixture;

static message model_with(message graph) {
    message m = {0}, opset = {0}, learn = {0};
    add_int(&m, 1, 8);
    add_message(&m, 7, graph);
    add_int(&opset, 2, 20);
    add_message(&m, 8, opset);
    add_text(&learn, 1, "ai.onnx.ml"), add_int(&learn, 2, 3);
    add_message(&m, 8, learn);
    return m;
}

static fixture made_of(message graph) {
    fixture f = {.bytes = model_with(graph)};
    OK(context, dlc_onnx_parse(context, f.bytes.data, f.bytes.size, &f.model));
    OK(context, dlc_onnx_runner_create(f.model, NULL, &f.runner));
    return f;
}

static void finish(fixture *f) {
    dlc_onnx_runner_destroy(f->runner);
    dlc_onnx_destroy(f->model);
    free(f->bytes.data);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

typedef struct held {
    DLTensor view;
    int64_t shape[2];
} held;

/* rank 0: a number; rank 1: of `count`; rank 2: rows of 2 */
static held numbers(void *data, int code, int bits, int rank, int64_t count) {
    held t = {.shape = {rank == 2 ? count / 2 : count, 2}};
    t.view = (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}};
    return t;
}

static dlc_onnx_value value_of_tensor(held *t) {
    t->view.shape = t->shape;
    return (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = &t->view};
}

static dlc_onnx_value list_of(const dlc_onnx_value *elements, size_t count) {
    return (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = count, .elements = elements};
}

/* Strings of rank 1, terminated ones. */
typedef struct words {
    dlc_onnx_string string[32];
    int64_t count;
} words;

static words words_of(int64_t count, const char *const *text) {
    words w = {.count = count};
    for (int64_t i = 0; i < count; i++) w.string[i] = (dlc_onnx_string){text[i], strlen(text[i])};
    return w;
}

static dlc_onnx_value value_of_words(words *w) {
    return (dlc_onnx_value){.kind = DLC_ONNX_STRINGS, .rank = 1, .dims = &w->count, .strings = w->string};
}

static void expect_floats(const dlc_onnx_value *value, int64_t count, const float *expected) {
    int64_t made = 1;
    assert_int_equal(value->kind, DLC_ONNX_TENSOR);
    assert_int_equal(value->tensor->dtype.code, kDLFloat);
    for (int d = 0; d < value->tensor->ndim; d++) made *= value->tensor->shape[d];
    assert_int_equal(made, count);
    const float *got = (const float *)(const void *)((const char *)value->tensor->data + value->tensor->byte_offset);
    for (int64_t i = 0; i < count; i++) assert_float_equal(got[i], expected[i], 1e-5f);
}

static void expect_integer(const dlc_onnx_value *value, int64_t expected) {
    assert_int_equal(value->kind, DLC_ONNX_TENSOR);
    assert_int_equal(*(const int64_t *)value->tensor->data, expected);
}

/* Joined by commas. */
static void expect_words(const dlc_onnx_value *value, const char *expected) {
    char text[512] = "";
    int64_t count = 1;
    assert_int_equal(value->kind, DLC_ONNX_STRINGS);
    for (int d = 0; d < value->rank; d++) count *= value->dims[d];
    for (int64_t i = 0; i < count; i++) {
        if (i) strcat(text, ",");
        strncat(text, value->strings[i].data, value->strings[i].size);
    }
    assert_string_equal(text, expected);
}

static dlc_status try_values(const fixture *f, const dlc_onnx_value *inputs, int count, dlc_onnx_value **outputs,
                             int output_count) {
    const dlc_onnx_value *given[8];
    for (int i = 0; i < count; i++) given[i] = &inputs[i];
    return dlc_onnx_run_values(f->runner, NULL, given, count, outputs, output_count);
}

static void run_values(const fixture *f, const dlc_onnx_value *inputs, int count, dlc_onnx_value **outputs,
                       int output_count) {
    OK(context, try_values(f, inputs, count, outputs, output_count));
}

static void release(dlc_onnx_value **outputs, int count) {
    for (int i = 0; i < count; i++) dlc_onnx_value_destroy(outputs[i]);
}

static void expect_failure(const fixture *f, const dlc_onnx_value *inputs, int count, int outputs, dlc_status status,
                           const char *why) {
    dlc_onnx_value *made[8];
    const dlc_status got = try_values(f, inputs, count, made, outputs);
    if (got != status || !strstr(dlc_error_message(context), why))
        fail_msg("status %s, expected %s with \"%s\": %s", dlc_status_text(got), dlc_status_text(status), why,
                 dlc_error_message(context));
    for (int i = 0; i < outputs; i++) assert_null(made[i]);
}

static void expect_imports(const fixture *f, int count, const char *what) {
    char *text;
    int lines = 0;
    OK(context, dlc_onnx_runner_describe(f->runner, &text));
    for (const char *c = text; *c; c++) lines += *c == '\n';
    if (lines != count || !strstr(text, what)) fail_msg("expected %d imports with %s:\n%s", count, what, text);
    dlc_text_free(context, text);
}

/* ---- sequences and optionals ----------------------------------------------------------------------------------------------- */

static void test_ports(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Identity y x");
    add_port(&g, 11, "x", "osT1 -");
    add_port(&g, 11, "words", "T8 n");
    add_port(&g, 11, "map", "m8T1 ");
    add_port(&g, 12, "y", "osT1 -");
    fixture f = made_of(g);
    dlc_onnx_port port;
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 0, &port));
    assert_int_equal(port.kind, DLC_ONNX_SEQUENCE);
    assert_true(port.optional);
    assert_int_equal(port.dtype, -1);
    assert_string_equal(port.type, "optional(seq(tensor(float)))");
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 1, &port));
    assert_int_equal(port.kind, DLC_ONNX_STRINGS);
    assert_int_equal(port.rank, 1);
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 2, &port));
    assert_int_equal(port.kind, DLC_ONNX_MAP);
    assert_string_equal(port.type, "map(string,tensor(float))");
    finish(&f);
}

/* Insert t at p, erase the first, take the last, and the length. */
static fixture list_model(void) {
    message g = started();
    add_node(&g, "SequenceInsert longer x t p");
    add_node(&g, "SequenceErase y longer zero");
    add_node(&g, "SequenceAt last y minus");
    add_node(&g, "SequenceLength n y");
    add_integers(&g, "zero", 0, 1, (int64_t[]){0}), add_integers(&g, "minus", 0, 1, (int64_t[]){-1});
    add_port(&g, 11, "x", "sT1 -");
    add_port(&g, 11, "t", "T1 n");
    add_port(&g, 11, "p", "T7 ");
    add_port(&g, 12, "y", "sT1 -");
    add_port(&g, 12, "last", "T1 -");
    add_port(&g, 12, "n", "T7 ");
    return made_of(g);
}

static void test_sequence(void **state) {
    fixture f = list_model();
    float data[3][3] = {{1, 2, 3}, {4, 5}, {6}};
    int64_t p = -1;
    (void)state;
    held a = numbers(data[0], kDLFloat, 32, 1, 3), b = numbers(data[1], kDLFloat, 32, 1, 2),
           c = numbers(data[2], kDLFloat, 32, 1, 1), at = numbers(&p, kDLInt, 64, 0, 1);
    const dlc_onnx_value elements[] = {value_of_tensor(&a), value_of_tensor(&b)};
    for (int turn = 0; turn < 4; turn++) {
        dlc_onnx_value *y[3];
        p = turn % 2 ? -1 : 2; /* before the last one, and behind it */
        const dlc_onnx_value in[] = {list_of(elements, 2), value_of_tensor(&c), value_of_tensor(&at)};
        run_values(&f, in, 3, y, 3);
        assert_int_equal(y[0]->kind, DLC_ONNX_SEQUENCE);
        assert_int_equal(y[0]->count, 2);
        expect_floats(&y[0]->elements[turn % 2 ? 1 : 0], 2, data[1]);
        expect_floats(&y[0]->elements[turn % 2 ? 0 : 1], 1, data[2]);
        expect_floats(y[1], turn % 2 ? 2 : 1, data[turn % 2 ? 1 : 2]);
        expect_integer(y[2], 2);
        release(y, 3);
    }
    expect_imports(&f, 2, "p by its elements");
    p = 5;
    const dlc_onnx_value outside[] = {list_of(elements, 2), value_of_tensor(&c), value_of_tensor(&at)};
    expect_failure(&f, outside, 3, 3, DLC_INVALID_ARGUMENT, "SequenceInsert longer x t p");
    expect_failure(&f, outside, 3, 3, DLC_INVALID_ARGUMENT, "position 5 in a sequence of 2");
    p = 0;
    const dlc_onnx_value none[] = {list_of(NULL, 0), value_of_tensor(&c), value_of_tensor(&at)};
    expect_failure(&f, none, 3, 3, DLC_INVALID_ARGUMENT, "SequenceAt last y minus");
    finish(&f);
}

/* What arrives is not what the file says. */
static void test_wrong_values(void **state) {
    fixture f = list_model();
    float data[3] = {1, 2, 3};
    int64_t p = 0, huge = INT64_MAX, negative = -1;
    (void)state;
    held a = numbers(data, kDLFloat, 32, 1, 3), wrong = numbers(data, kDLInt, 32, 1, 3),
           at = numbers(&p, kDLInt, 64, 0, 1);
    words w = words_of(1, (const char *const[]){"a"});
    const dlc_onnx_value good[] = {value_of_tensor(&a), value_of_tensor(&a)},
                         mixed[] = {value_of_tensor(&a), value_of_tensor(&wrong)},
                         text[] = {value_of_tensor(&a), value_of_words(&w)},
                         null[] = {{.kind = DLC_ONNX_TENSOR}};
    dlc_onnx_value in[] = {list_of(mixed, 2), value_of_tensor(&a), value_of_tensor(&at)};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.1 has elements of another type");
    in[0] = list_of(text, 2);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.1 is strings; the model takes tensor(float)");
    in[0] = list_of(null, 1);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0 is NULL");
    in[0] = list_of(NULL, 3);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "sequence x");
    in[0] = list_of(good, SIZE_MAX);
    expect_failure(&f, in, 3, 3, DLC_BUDGET_EXCEEDED, "sequence x");
    in[0] = value_of_tensor(&a);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is a tensor; the model takes seq(tensor(float))");
    in[0] = (dlc_onnx_value){.kind = DLC_ONNX_NONE};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is nothing");
    in[0] = (dlc_onnx_value){.kind = (dlc_onnx_kind)77};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is of no kind");
    in[0] = list_of(good, 2), in[1] = list_of(good, 2);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "t is a sequence");
    in[1] = value_of_tensor(&a);
    a.view.shape = &negative;
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0");
    a.view.shape = &huge;
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0");
    a.view.shape = a.shape;
    dlc_onnx_value *y[3];
    const dlc_onnx_value *given[] = {&in[0], NULL, &in[2]};
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 3, y, 3), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 2, y, 3), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 3, y, 2), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(NULL, NULL, given, 3, y, 3), DLC_INVALID_ARGUMENT);
    const DLTensor *tensors[] = {&a.view, &a.view, &at.view};
    dlc_output_slot slots[3] = {{NULL, NULL}};
    assert_int_equal(dlc_onnx_run(f.runner, NULL, tensors, 3, slots, 3), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "x is seq(tensor(float)), which only dlc_onnx_run_values"));
    dlc_graph *graph;
    assert_int_equal(dlc_onnx_graph(f.model, NULL, &graph), DLC_UNSUPPORTED);
    run_values(&f, in, 3, y, 3); /* all of this left the runner as it was */
    release(y, 3);
    finish(&f);
}

/* Models that put together what does not go together. */
static void test_wrong_models(void **state) {
    static const struct {
        const char *node[3], *why;
        dlc_status status;
    } cases[] = {
        {{"SequenceConstruct l x i"}, "elements of type i64 in a sequence of f32", DLC_PARSE_ERROR},
        {{"SequenceEmpty l | dtype=i:7", "SequenceInsert m l x"}, "of type f32 in a sequence of i64", DLC_PARSE_ERROR},
        {{"SequenceConstruct l x", "Neg m l"}, "value \"l\" is a sequence", DLC_PARSE_ERROR},
        {{"SequenceLength l x"}, "\"x\", is a tensor; a sequence", DLC_PARSE_ERROR},
        {{"Neg l w"}, "value \"w\" is strings", DLC_UNSUPPORTED},
        {{"SequenceConstruct l x", "SequenceInsert m l l"}, "is no tensor", DLC_PARSE_ERROR},
        {{"StringConcat l x w"}, "\"x\", is no tensor of strings", DLC_PARSE_ERROR},
        {{"SequenceConstruct l x", "Reshape m x l"}, "value \"l\" is a sequence", DLC_PARSE_ERROR},
        {{"SequenceEmpty l", "ConcatFromSequence m l | axis=i:0"}, "without elements", DLC_INVALID_ARGUMENT},
        {{"Cast l w | to=i:1"}, "string \"a\" is no number", DLC_INVALID_ARGUMENT},
        {{"RegexFullMatch l w | pattern=s:a"}, "no regular expressions", DLC_UNSUPPORTED},
        {{"Optional l"}, "neither an operand nor a type", DLC_PARSE_ERROR},
        {{".ZipMap l x"}, "lists of keys", DLC_PARSE_ERROR},
        {{".CastMap l x"}, "operand 0 is no map", DLC_PARSE_ERROR},
        {{"SplitToSequence l x minus"}, "parts of size -1", DLC_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        message g = started();
        float data[3] = {1, 2, 3};
        for (int n = 0; n < 3 && cases[c].node[n]; n++) add_node(&g, cases[c].node[n]);
        add_node(&g, "Identity y x");
        add_strings(&g, "w", 1, (const char *const[]){"a"});
        add_integers(&g, "i", 1, 3, (int64_t[]){1, 2, 3});
        add_integers(&g, "minus", 0, 1, (int64_t[]){-1});
        add_port(&g, 11, "x", "T1 3");
        add_port(&g, 11, "unused", "sT1 -");
        add_port(&g, 12, "y", "T1 3");
        fixture f = made_of(g);
        held x = numbers(data, kDLFloat, 32, 1, 3);
        const dlc_onnx_value in[] = {value_of_tensor(&x), list_of(NULL, 0)};
        expect_failure(&f, in, 2, 1, cases[c].status, cases[c].why);
        finish(&f);
    }
}

/* y: the element if there is one, else its negative second input. */
static void test_optional(void **state) {
    message g = started(), then = {0}, otherwise = {0};
    (void)state;
    add_node(&then, "OptionalGetElement a x"), add_port(&then, 12, "a", "T1 -");
    add_node(&otherwise, "Neg b t"), add_port(&otherwise, 12, "b", "T1 -");
    message node = {0}, a = {0}, b = {0};
    add_node(&g, "OptionalHasElement has x");
    add_text(&node, 1, "has"), add_text(&node, 2, "y"), add_text(&node, 4, "If");
    add_text(&a, 1, "then_branch"), add_message(&a, 6, then), add_int(&a, 20, 5);
    add_text(&b, 1, "else_branch"), add_message(&b, 6, otherwise), add_int(&b, 20, 5);
    add_message(&node, 5, a), add_message(&node, 5, b);
    add_message(&g, 1, node);
    add_port(&g, 11, "x", "oT1 n");
    add_port(&g, 11, "t", "T1 n");
    add_port(&g, 12, "y", "T1 n");
    add_port(&g, 12, "has", "T9 ");
    fixture f = made_of(g);
    float data[2][2] = {{1, 2}, {3, 4}}, negative[2] = {-3, -4};
    held x = numbers(data[0], kDLFloat, 32, 1, 2), t = numbers(data[1], kDLFloat, 32, 1, 2);
    for (int turn = 0; turn < 4; turn++) {
        dlc_onnx_value in[] = {{.kind = DLC_ONNX_NONE}, value_of_tensor(&t)}, *y[2];
        if (turn % 2) in[0] = value_of_tensor(&x);
        run_values(&f, in, 2, y, 2);
        expect_floats(y[0], 2, turn % 2 ? data[0] : negative);
        assert_int_equal(*(const bool *)y[1]->tensor->data, turn % 2);
        release(y, 2);
    }
    expect_imports(&f, 2, "values by their structure");
    finish(&f);
    g = started();
    add_node(&g, "OptionalGetElement y x");
    add_port(&g, 11, "x", "oT1 n");
    add_port(&g, 12, "y", "T1 n");
    f = made_of(g);
    const dlc_onnx_value nothing = {.kind = DLC_ONNX_NONE};
    expect_failure(&f, &nothing, 1, 1, DLC_INVALID_ARGUMENT, "optional \"x\" is empty");
    finish(&f);
}

/* Sums of each element with t, as a sequence; its elements side by side. */
static void test_map_over_sequence(void **state) {
    message g = started(), body = {0};
    (void)state;
    add_node(&body, "Add c a b");
    add_port(&body, 11, "a", "T1 n"), add_port(&body, 11, "b", "T1 -"), add_port(&body, 12, "c", "T1 n");
    add_node_with(&g, "SequenceMap y x t", "body", &body);
    add_node(&g, "ConcatFromSequence joined y | axis=i:0");
    add_node(&g, "ConcatFromSequence stacked y | axis=i:-1 new_axis=i:1");
    add_node(&g, "SplitToSequence parts joined three");
    add_integers(&g, "three", 0, 1, (int64_t[]){3});
    add_port(&g, 11, "x", "sT1 n"), add_port(&g, 11, "t", "T1 ");
    add_port(&g, 12, "joined", "T1 n"), add_port(&g, 12, "stacked", "T1 n m"), add_port(&g, 12, "parts", "sT1 -");
    fixture f = made_of(g);
    float data[2][2] = {{1, 2}, {3, 4}}, ten = 10;
    held a = numbers(data[0], kDLFloat, 32, 1, 2), b = numbers(data[1], kDLFloat, 32, 1, 2),
           t = numbers(&ten, kDLFloat, 32, 0, 1);
    const dlc_onnx_value elements[] = {value_of_tensor(&a), value_of_tensor(&b)};
    dlc_onnx_value in[] = {list_of(elements, 2), value_of_tensor(&t)}, *y[3];
    for (int turn = 0; turn < 2; turn++) {
        run_values(&f, in, 2, y, 3);
        expect_floats(y[0], 4, (float[]){11, 12, 13, 14});
        expect_floats(y[1], 4, (float[]){11, 13, 12, 14});
        assert_int_equal(y[2]->count, 2);
        expect_floats(&y[2]->elements[0], 3, (float[]){11, 12, 13});
        expect_floats(&y[2]->elements[1], 1, (float[]){14});
        release(y, 3);
    }
    finish(&f);
}

/* l: the first `trips` multiples of x, in a sequence that the loop carries; and their numbers, stacked. */
static fixture loop_model(const char *condition) {
    message g = started(), body = {0};
    add_node(&body, "Cast k i | to=i:1");
    add_node(&body, "Mul m k x");
    add_node(&body, "SequenceInsert out in m");
    add_node(&body, condition);
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 "), add_port(&body, 11, "in", "sT1 -");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "sT1 -"), add_port(&body, 12, "k", "T1 ");
    add_node(&g, "SequenceEmpty empty");
    add_node_with(&g, "Loop l,k trips - empty", "body", &body);
    add_integers(&g, "four", 0, 1, (int64_t[]){4});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "trips", "T7 ");
    add_port(&g, 12, "l", "sT1 n"), add_port(&g, 12, "k", "T1 n");
    return made_of(g);
}

static void test_loop(void **state) {
    fixture f = loop_model("Identity on go"), shorter = loop_model("Less on i four");
    float data[2] = {1, 2};
    int64_t trips = 3;
    (void)state;
    held x = numbers(data, kDLFloat, 32, 1, 2), t = numbers(&trips, kDLInt, 64, 0, 1);
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_tensor(&t)};
    dlc_onnx_value *y[2];
    for (trips = 1; trips <= 3; trips++) {
        run_values(&f, in, 2, y, 2);
        assert_int_equal(y[0]->count, trips);
        for (int i = 0; i < trips; i++)
            expect_floats(&y[0]->elements[i], 2, (float[]){(float)i * data[0], (float)i * data[1]});
        expect_floats(y[1], trips, (float[]){0, 1, 2});
        release(y, 2);
    }
    trips = 50;
    run_values(&shorter, in, 2, y, 2);
    assert_int_equal(y[0]->count, 5);
    release(y, 2);
    trips = 65;
    expect_failure(&f, in, 2, 2, DLC_UNSUPPORTED, "more than 64 iterations");
    trips = 0;
    expect_failure(&f, in, 2, 2, DLC_UNSUPPORTED, "of no iteration");
    finish(&f), finish(&shorter);
}

/* The body of a loop that is not unrolled reads a sequence and strings' places of the graph around it. */
static void test_captured(void **state) {
    message g = started(), body = {0};
    (void)state;
    add_node(&body, "SequenceAt b l one");
    add_node(&body, "Add out in b");
    add_node(&body, "Identity on go");
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 "), add_port(&body, 11, "in", "T1 n");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "T1 n");
    add_node(&g, "SequenceConstruct l x x2");
    add_node(&g, "Neg x2 x");
    add_node_with(&g, "Loop y trips - x", "body", &body);
    add_node(&g, "SequenceAt z l one");
    add_integers(&g, "one", 0, 1, (int64_t[]){1});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "trips", "T7 "), add_port(&g, 11, "none", "oT1 n");
    add_port(&g, 12, "y", "T1 n"), add_port(&g, 12, "z", "T1 n");
    fixture f = made_of(g);
    float data[2] = {1, 2};
    int64_t trips = 3;
    held x = numbers(data, kDLFloat, 32, 1, 2), t = numbers(&trips, kDLInt, 64, 0, 1);
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_tensor(&t), {.kind = DLC_ONNX_NONE}};
    dlc_onnx_value *y[2];
    run_values(&f, in, 3, y, 2);
    expect_floats(y[0], 2, (float[]){-2, -4});
    expect_floats(y[1], 2, (float[]){-1, -2});
    release(y, 2);
    finish(&f);
}

/* ---- strings --------------------------------------------------------------------------------------------------------------- */

static void test_strings(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "StringConcat joined x suffix");
    add_node(&g, "StringSplit parts,counts joined | delimiter=s:.");
    add_node(&g, "StringNormalizer upper x | case_change_action=s:UPPER stopwords=ss:B");
    add_node(&g, "Equal same x b");
    add_strings(&g, "suffix", 1, (const char *const[]){".z"});
    add_strings(&g, "b", 1, (const char *const[]){"b"});
    add_port(&g, 11, "x", "T8 n");
    add_port(&g, 12, "joined", "T8 n"), add_port(&g, 12, "parts", "T8 n m"), add_port(&g, 12, "upper", "T8 n");
    add_port(&g, 12, "same", "T9 n"), add_port(&g, 12, "counts", "T7 n");
    fixture f = made_of(g);
    words w = words_of(3, (const char *const[]){"a.c", "b", "a.c"});
    dlc_onnx_value in = value_of_words(&w), *y[5];
    run_values(&f, &in, 1, y, 5);
    expect_words(y[0], "a.c.z,b.z,a.c.z");
    expect_words(y[1], "a,c,z,b,z,,a,c,z");
    assert_int_equal(y[1]->dims[1], 3);
    expect_words(y[2], "A.C,A.C");
    assert_memory_equal(y[3]->tensor->data, ((bool[]){false, true, false}), 3);
    assert_memory_equal(y[4]->tensor->data, ((int64_t[]){3, 2, 3}), 24);
    release(y, 5);
    expect_imports(&f, 1, "without kernels");
    w.string[1] = (dlc_onnx_string){"b\0c", 3}; /* a zero does not cut */
    run_values(&f, &in, 1, y, 5);
    assert_int_equal(y[0]->strings[1].size, 5);
    assert_memory_equal(y[0]->strings[1].data, "b\0c.z", 5);
    release(y, 5);
    w.string[1] = (dlc_onnx_string){"\xc3\xa9", 2};
    expect_failure(&f, &in, 1, 5, DLC_UNSUPPORTED, "case of letters outside of ASCII");
    w.count = 0;
    run_values(&f, &in, 1, y, 5);
    assert_int_equal(y[1]->dims[1], 0);
    expect_words(y[2], "");
    release(y, 5);
    finish(&f);
}

static void test_hostile_strings(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Identity y x");
    add_port(&g, 11, "x", "T8 -");
    add_port(&g, 12, "y", "T8 -");
    fixture f = made_of(g);
    words w = words_of(2, (const char *const[]){"a", "b"});
    const int64_t overflows[] = {INT64_MAX, INT64_MAX}, negative[] = {2, -1}, empty[] = {0, INT64_MAX};
    dlc_onnx_value in = value_of_words(&w), *y;
    in.dims = overflows, in.rank = 2;
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "more than");
    in.dims = negative;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "below 0");
    in.rank = 1000;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in.rank = -1;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in.rank = 2, in.dims = NULL;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in = value_of_words(&w), in.strings = NULL;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "no strings");
    in = value_of_words(&w), w.string[1] = (dlc_onnx_string){NULL, 5};
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "string 1 of input x is NULL");
    w.string[1] = (dlc_onnx_string){"b", SIZE_MAX};
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "bytes of strings");
    w.string[0].size = SIZE_MAX - 1, w.string[1].size = 2;
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "bytes of strings");
    in.dims = empty, in.rank = 2;
    run_values(&f, &in, 1, &y, 1);
    assert_int_equal(y->dims[1], INT64_MAX);
    release(&y, 1);
    finish(&f);
}

/* Operators that move elements, of strings that are known and of strings by a computed index. */
static void test_moves(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "ArgMax best x | axis=i:1 keepdims=i:0");
    add_node(&g, "Gather label labels best");
    add_node(&g, "Concat both label w | axis=i:0");
    add_node(&g, "Slice back both minus low zero minus");
    add_node(&g, "Unique sorted,place both");
    add_node(&g, "Equal same label w");
    add_node(&g, "Where chosen same label other");
    add_node(&g, "Reshape table both shape");
    add_node(&g, "Transpose turned table");
    add_strings(&g, "labels", 3, (const char *const[]){"red", "green", "blue"});
    add_strings(&g, "w", 2, (const char *const[]){"blue", "ash"});
    add_strings(&g, "other", 1, (const char *const[]){"none"});
    add_integers(&g, "minus", 1, 1, (int64_t[]){-1}), add_integers(&g, "low", 1, 1, (int64_t[]){-100});
    add_integers(&g, "zero", 1, 1, (int64_t[]){0}), add_integers(&g, "shape", 1, 2, (int64_t[]){2, 2});
    add_port(&g, 11, "x", "T1 n 2");
    add_port(&g, 12, "back", "T8 n"), add_port(&g, 12, "sorted", "T8 n"), add_port(&g, 12, "chosen", "T8 n");
    add_port(&g, 12, "turned", "T8 a b");
    fixture f = made_of(g);
    float data[4] = {1, 2, 4, 3};
    held x = numbers(data, kDLFloat, 32, 2, 4);
    dlc_onnx_value in = value_of_tensor(&x), *y[4];
    for (int turn = 0; turn < 2; turn++) {
        data[3] = turn ? 5 : 3;
        run_values(&f, &in, 1, y, 4);
        expect_words(y[0], turn ? "ash,blue,green,green" : "ash,blue,red,green");
        expect_words(y[1], turn ? "ash,blue,green" : "ash,blue,green,red");
        expect_words(y[2], "none,none");
        expect_words(y[3], turn ? "green,blue,green,ash" : "green,blue,red,ash");
        release(y, 4);
    }
    expect_imports(&f, 1, "2 runs,"); /* what the strings are is no guard here */
    finish(&f);
}

static void test_casts(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Cast written x | to=i:8");
    add_node(&g, "Cast read words | to=i:1");
    add_node(&g, "CastLike whole words like");
    add_integers(&g, "like", 0, 1, (int64_t[]){0});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "words", "T8 n");
    add_port(&g, 12, "written", "T8 n"), add_port(&g, 12, "read", "T1 n"), add_port(&g, 12, "whole", "T7 n");
    fixture f = made_of(g);
    float data[5] = {0.1f, -3, 1e20f, INFINITY, NAN};
    held x = numbers(data, kDLFloat, 32, 1, 5);
    words w = words_of(4, (const char *const[]){"1.5", "-2e3", "-inf", "9007199254740993"});
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w)};
    dlc_onnx_value *y[3];
    run_values(&f, in, 2, y, 3);
    expect_words(y[0], "0.1,-3,1e+20,INF,NaN");
    assert_memory_equal(y[1]->tensor->data, ((float[]){1.5f, -2000, -INFINITY, 9007199254740993.0f}), 16);
    assert_memory_equal(y[2]->tensor->data, ((int64_t[]){1, -2000, INT64_MIN, 9007199254740993}), 32);
    release(y, 3);
    for (size_t i = 0; i < 5; i++) {
        static const char *const wrong[] = {"", "1x", "e", "1 2", "0x10"};
        w.string[1] = (dlc_onnx_string){wrong[i], strlen(wrong[i])};
        expect_failure(&f, in, 2, 3, DLC_INVALID_ARGUMENT, "is no number");
    }
    finish(&f);
}

/* ---- ai.onnx.ml ---------------------------------------------------------------------------------------------------------------- */

static void test_classifier(void **state) {
    message g = started();
    (void)state;
    add_node(&g, ".LinearClassifier label,scores x | classlabels_strings=ss:cat,dog coefficients=fs:1,0,0,1 "
                 "intercepts=fs:0,0");
    add_node(&g, ".ZipMap named scores | classlabels_strings=ss:cat,dog");
    add_node(&g, ".LabelEncoder short label | keys_strings=ss:dog,cow values_strings=ss:d,c default_string=s:?");
    add_node(&g, ".LabelEncoder number label | keys_strings=ss:dog,cat values_int64s=is:7,8");
    add_port(&g, 11, "x", "T1 n 2");
    add_port(&g, 12, "label", "T8 n"), add_port(&g, 12, "named", "sm8T1 ");
    add_port(&g, 12, "short", "T8 n"), add_port(&g, 12, "number", "T7 n");
    fixture f = made_of(g);
    float data[6] = {3, 1, 1, 2, 5, 4};
    held x = numbers(data, kDLFloat, 32, 2, 6);
    dlc_onnx_value in = value_of_tensor(&x), *y[4];
    for (int turn = 0; turn < 2; turn++) {
        run_values(&f, &in, 1, y, 4);
        expect_words(y[0], "cat,dog,cat");
        assert_int_equal(y[1]->count, 3);
        for (int i = 0; i < 3; i++) {
            const dlc_onnx_value *map = &y[1]->elements[i];
            assert_int_equal(map->kind, DLC_ONNX_MAP);
            assert_int_equal(map->count, 2);
            expect_words(&map->elements[0], "cat,dog");
            expect_floats(&map->elements[1], 2, data + 2 * i);
        }
        expect_words(y[2], "?,d,?");
        assert_memory_equal(y[3]->tensor->data, ((int64_t[]){8, 7, 8}), 24);
        release(y, 4);
    }
    expect_imports(&f, 1, "2 runs,");
    finish(&f);
}

static void test_maps(void **state) {
    message g = started();
    (void)state;
    add_node(&g, ".DictVectorizer vector words | string_vocabulary=ss:a,c,b,z");
    add_node(&g, ".CastMap dense numbers");
    add_node(&g, ".CastMap sparse numbers | map_form=s:SPARSE max_map=i:5 cast_to=s:TO_INT64");
    add_node(&g, ".CastMap text numbers | cast_to=s:TO_STRING");
    add_node(&g, ".CategoryMapper category w | cats_strings=ss:x,y cats_int64s=is:5,6");
    add_port(&g, 11, "words", "m8T1 "), add_port(&g, 11, "numbers", "m7T1 "), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "vector", "T1 n"), add_port(&g, 12, "dense", "T1 1 n"), add_port(&g, 12, "sparse", "T7 1 n");
    add_port(&g, 12, "text", "T8 1 n"), add_port(&g, 12, "category", "T7 n");
    fixture f = made_of(g);
    float data[2][2] = {{4, 8}, {1.5f, 2.5f}};
    int64_t key[2] = {3, 1};
    held a = numbers(data[0], kDLFloat, 32, 1, 2), b = numbers(data[1], kDLFloat, 32, 1, 2),
           k = numbers(key, kDLInt, 64, 1, 2);
    words names = words_of(2, (const char *const[]){"a", "c"}), w = words_of(3, (const char *const[]){"y", "q", "x"});
    dlc_onnx_value words_map[] = {value_of_words(&names), value_of_tensor(&a)},
                   numbers_map[] = {value_of_tensor(&k), value_of_tensor(&b)}, *y[5];
    const dlc_onnx_value in[] = {{.kind = DLC_ONNX_MAP, .count = 2, .elements = words_map},
                                 {.kind = DLC_ONNX_MAP, .count = 2, .elements = numbers_map},
                                 value_of_words(&w)};
    run_values(&f, in, 3, y, 5);
    expect_floats(y[0], 4, (float[]){4, 8, 0, 0});
    expect_floats(y[1], 2, (float[]){2.5f, 1.5f});
    assert_memory_equal(y[2]->tensor->data, ((int64_t[]){0, 2, 0, 1, 0}), 40);
    expect_words(y[3], "2.5,1.5");
    assert_memory_equal(y[4]->tensor->data, ((int64_t[]){6, -1, 5}), 24);
    release(y, 5);
    key[0] = 0; /* other keys: another import */
    run_values(&f, in, 3, y, 5);
    expect_floats(y[1], 2, (float[]){1.5f, 2.5f});
    release(y, 5);
    expect_imports(&f, 2, "values by their structure");
    key[0] = 5;
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "key 5; max_map is 5");
    names.count = 1;
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "no lists of one length");
    names.count = 2, words_map[0] = value_of_tensor(&k);
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "words.keys is a tensor");
    words_map[0] = value_of_words(&names), words_map[1] = value_of_words(&names);
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "words.values is strings");
    finish(&f);
}

/* ---- n-grams ---------------------------------------------------------------------------------------------------------------------- */

/* Counts as the standard describes them: the pool has three items, three pairs and one of three. */
static void count_grams(const int64_t *row, int64_t size, float *sum) {
    static const int64_t one[] = {2, 3, 5}, two[] = {2, 3, 5, 4, 3, 3}, three[] = {2, 3, 2};
    static const int column[] = {2, 0, 4, 1, 3, 5, 0};
    memset(sum, 0, 6 * sizeof *sum);
    for (int64_t i = 0; i < size; i++) {
        for (int k = 0; k < 3; k++) sum[column[k]] += row[i] == one[k];
        for (int64_t step = 1; step <= 3; step++) {
            for (int k = 0; k < 3 && i + step < size; k++)
                sum[column[3 + k]] += row[i] == two[2 * k] && row[i + step] == two[2 * k + 1];
            if (i + 2 * step < size)
                sum[column[6]] += row[i] == three[0] && row[i + step] == three[1] && row[i + 2 * step] == three[2];
        }
    }
}

#define GRAMS " mode=s:TF min_gram_length=i:1 max_gram_length=i:3 max_skip_count=i:2 ngram_counts=is:0,3,9 " \
              "ngram_indexes=is:2,0,4,1,3,5,0"

static void test_ngrams(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "TfIdfVectorizer y x | pool_int64s=is:2,3,5,2,3,5,4,3,3,2,3,2" GRAMS);
    add_node(&g, "TfIdfVectorizer z w | pool_strings=ss:b,c,e,b,c,e,d,c,c,b,c,b" GRAMS);
    add_port(&g, 11, "x", "T7 rows n"), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "y", "T1 rows m"), add_port(&g, 12, "z", "T1 m");
    fixture f = made_of(g);
    static const char *const letters[] = {"", "a", "b", "c", "d", "e"};
    uint64_t seed = 1;
    for (int size = 1; size <= 9; size++) {
        int64_t data[18];
        words w = {.count = size};
        float expected[12];
        for (int i = 0; i < 2 * size; i++) data[i] = 1 + (int64_t)((seed = seed * 6364136223846793005u + 1) >> 33) % 5;
        for (int i = 0; i < size; i++) w.string[i] = (dlc_onnx_string){letters[data[i]], 1};
        held x = numbers(data, kDLInt, 64, 2, 2 * size);
        x.shape[0] = 2, x.shape[1] = size;
        const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w)};
        dlc_onnx_value *y[2];
        count_grams(data, size, expected), count_grams(data + size, size, expected + 6);
        run_values(&f, in, 2, y, 2);
        expect_floats(y[0], 12, expected);
        expect_floats(y[1], 6, expected);
        release(y, 2);
    }
    finish(&f);
}

/* ---- runners ------------------------------------------------------------------------------------------------------------------------- */

/* Words to numbers, without kernels. */
static fixture encoder_model(void) {
    message g = started();
    add_node(&g, ".LabelEncoder y x | keys_strings=ss:a,b values_int64s=is:1,2 default_int64=i:0");
    add_port(&g, 11, "x", "T8 n");
    add_port(&g, 12, "y", "T7 n");
    return made_of(g);
}

static void test_eviction(void **state) {
    fixture f = encoder_model();
    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        char text[2] = {(char)('a' + turn % 20), 0};
        words w = words_of(1, (const char *const[]){text});
        const dlc_onnx_value in = value_of_words(&w);
        dlc_onnx_value *y;
        run_values(&f, &in, 1, &y, 1);
        expect_integer(y, turn % 20 == 0 ? 1 : turn % 20 == 1 ? 2 : 0);
        release(&y, 1);
    }
    expect_imports(&f, 16, "without kernels");
    finish(&f);
}

/* A model of tensors alone, with a state. */
static void test_state(void **state) {
    static const dlc_onnx_state pair = {"s", "y"};
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    message g = started();
    (void)state;
    add_node(&g, "Add y x s");
    add_node(&g, "Neg z y");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "s", "T1 n");
    add_port(&g, 12, "y", "T1 n"), add_port(&g, 12, "z", "T1 n");
    fixture f = made_of(g);
    dlc_onnx_runner_destroy(f.runner);
    options.states = &pair, options.state_count = 1;
    OK(context, dlc_onnx_runner_create(f.model, &options, &f.runner));
    float data[2] = {1, 2};
    held x = numbers(data, kDLFloat, 32, 1, 2);
    const dlc_onnx_value in[] = {value_of_tensor(&x), {.kind = DLC_ONNX_NONE}};
    for (int turn = 1; turn <= 3; turn++) {
        dlc_onnx_value *y[2];
        run_values(&f, in, 2, y, 2);
        assert_int_equal(y[0]->kind, DLC_ONNX_NONE);
        expect_floats(y[1], 2, (float[]){(float)-turn, (float)(-2 * turn)});
        release(y, 2);
    }
    const dlc_onnx_value none[] = {{.kind = DLC_ONNX_NONE}, {.kind = DLC_ONNX_NONE}};
    expect_failure(&f, none, 2, 2, DLC_INVALID_ARGUMENT, "input x is nothing");
    finish(&f);
    f = encoder_model();
    dlc_onnx_runner *runner;
    const dlc_onnx_state words_state = {"x", "y"};
    options.states = &words_state;
    assert_int_equal(dlc_onnx_runner_create(f.model, &options, &runner), DLC_UNSUPPORTED);
    finish(&f);
}

static void *run_lists(void *runner) {
    float data[3] = {1, 2, 3};
    for (int turn = 0; turn < 30; turn++) {
        int64_t p = 0;
        held a = numbers(data, kDLFloat, 32, 1, 1 + turn % 3), at = numbers(&p, kDLInt, 64, 0, 1);
        const dlc_onnx_value elements[3] = {value_of_tensor(&a), value_of_tensor(&a), value_of_tensor(&a)},
                             list = list_of(elements, 1 + (size_t)turn % 3), t = value_of_tensor(&a),
                             place = value_of_tensor(&at), *in[] = {&list, &t, &place};
        dlc_onnx_value *y[3];
        if (dlc_onnx_run_values(runner, NULL, in, 3, y, 3) != DLC_OK) return runner;
        const bool right = y[0]->count == list.count && y[1]->tensor->shape[0] == 1 + turn % 3 &&
                           memcmp(y[1]->tensor->data, data, (size_t)(1 + turn % 3) * sizeof *data) == 0;
        release(y, 3);
        if (!right) return runner;
    }
    return NULL;
}

static void test_threads(void **state) {
    fixture f = list_model();
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_lists, f.runner), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    expect_imports(&f, 3, "p by its elements");
    finish(&f);
}

/* A runner of lists, strings and maps, from its making to its second structure, with memory refused from one place on. */
static dlc_status try_all(dlc_onnx_model *model) {
    dlc_onnx_runner *runner;
    float data[4] = {1, 2, 4, 3};
    held x = numbers(data, kDLFloat, 32, 2, 4);
    words w = words_of(2, (const char *const[]){"a", "b"});
    const dlc_onnx_value element = value_of_tensor(&x), elements[] = {element, element};
    dlc_status status = dlc_onnx_runner_create(model, NULL, &runner);
    for (size_t turn = 1; turn <= 2 && status == DLC_OK; turn++) {
        const dlc_onnx_value list = list_of(elements, turn), text = value_of_words(&w), *in[] = {&list, &text};
        dlc_onnx_value *y[4];
        status = dlc_onnx_run_values(runner, NULL, in, 2, y, 4);
        if (status != DLC_OK) break;
        expect_words(y[0], "dog,cat");
        assert_int_equal(y[1]->count, 2);
        expect_words(y[2], "ax,bx");
        assert_int_equal(y[3]->count, turn + 1);
        release(y, 4);
    }
    dlc_onnx_runner_destroy(runner);
    return status;
}

static void test_refused(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "SequenceAt x l zero");
    add_node(&g, "SequenceInsert longer l x");
    add_node(&g, ".LinearClassifier label,scores x | classlabels_strings=ss:cat,dog coefficients=fs:1,0,0,1 "
                 "intercepts=fs:0,0");
    add_node(&g, ".ZipMap named scores | classlabels_strings=ss:cat,dog");
    add_node(&g, "StringConcat joined w suffix");
    add_strings(&g, "suffix", 1, (const char *const[]){"x"});
    add_integers(&g, "zero", 0, 1, (int64_t[]){0});
    add_port(&g, 11, "l", "sT1 n 2"), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "label", "T8 n"), add_port(&g, 12, "named", "sm8T1 "), add_port(&g, 12, "joined", "T8 n");
    add_port(&g, 12, "longer", "sT1 n 2");
    message bytes = model_with(g);
    dlc_onnx_model *model;
    OK(context, dlc_onnx_parse(context, bytes.data, bytes.size, &model));
    assert_int_equal(try_all(model), DLC_OK); /* kernels and all else that stays with the context */
    const int64_t before = atomic_load(&memory.blocks);
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t site = 0; status != DLC_OK; site++) {
        atomic_store(&memory.left, site);
        status = try_all(model);
        atomic_store(&memory.left, -1);
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        assert_in_range(site, 0, 5000);
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
        cmocka_unit_test(test_ports),         cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_wrong_values),  cmocka_unit_test(test_wrong_models),
        cmocka_unit_test(test_optional),      cmocka_unit_test(test_map_over_sequence),
        cmocka_unit_test(test_loop),          cmocka_unit_test(test_captured),
        cmocka_unit_test(test_strings),       cmocka_unit_test(test_hostile_strings),
        cmocka_unit_test(test_moves),         cmocka_unit_test(test_casts),
        cmocka_unit_test(test_classifier),    cmocka_unit_test(test_maps),
        cmocka_unit_test(test_ngrams),        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_state),         cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("onnx lists", tests, open_all, close_all);
}
