/* Models with sequences, optionals, strings and maps, and values for them: what lists_test.c and text_test.c share. */
#ifndef TEST_ONNX_VALUES_H
#define TEST_ONNX_VALUES_H

#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <pthread.h>

static dlc_context *context;
static counter memory;

/* ---- models ------------------------------------------------------------------------------------------------------------- */

/* A type: s SEQUENCE, o OPTIONAL, m KEY MAP, each with the type inside; T ELEMENT [DIMENSIONS...], as in "sT1 -", "m8T1 -". */
static inline message type_of(const char *text) {
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

static inline void add_port(message *g, unsigned field, const char *name, const char *type) {
    message v = {0};
    add_text(&v, 1, name);
    add_message(&v, 2, type_of(type));
    add_message(g, field, v);
}

/* NAME=i:NUMBER, f:NUMBER, s:TEXT, is:NUMBERS, fs:NUMBERS or ss:TEXTS, separated by commas, h:BITS, a tensor of one f16, or r:NAME, a float,
 * the enclosing function's attribute of that name */
static inline void add_attribute(message *node, char *text) {
    message a = {0};
    char *kind = strchr(text, '=') + 1, *value = strchr(kind, ':') + 1, *rest = value;
    kind[-1] = value[-1] = 0;
    const bool list = kind[1] == 's';
    add_text(&a, 1, text);
    const int single = *kind == 'h' ? 4 : *kind == 'i' ? 2 : *kind == 'f' || *kind == 'r' ? 1 : 3;
    add_int(&a, 20, list ? single + 5 : single);
    if (*kind == 'r') add_text(&a, 21, value);
    if (*kind == 'h') {
        message t = tensor_of(NULL, 10, 1, (int64_t[]){1});
        add_int(&t, 5, atoll(value));
        add_message(&a, 5, t);
    }
    if (*kind == 'i' && !list) add_int(&a, 3, atoll(value));
    if (*kind == 'f' && !list) add_float(&a, 2, (float)atof(value));
    if (*kind == 's' && !list) add_text(&a, 4, value);
    for (char *word; list && (word = strtok_r(rest, ",", &rest));) {
        if (*kind == 'i') add_int(&a, 8, atoll(word));
        if (*kind == 'f') add_float(&a, 7, (float)atof(word));
        if (*kind == 's') add_text(&a, 9, word);
    }
    add_message(node, 5, a);
}

/* OPERATOR RESULT,RESULT OPERAND... | ATTRIBUTE...; the operator is NAME, .NAME of ai.onnx.ml, or DOMAIN.NAME; the node has its name. bodies: of
 * attributes of these names. */
static inline void add_node_with_all(message *g, const char *line, int count, const char *const *names,
                                     const message *bodies) {
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
    const char *dot = strrchr(operator, '.');
    add_text(&node, 4, dot ? dot + 1 : operator);
    if (dot == operator) add_text(&node, 7, "ai.onnx.ml");
    if (dot && dot != operator) add_data(&node, 7, operator, (size_t)(dot - operator));
    for (int i = 0; i < count; i++) {
        message a = {0};
        add_text(&a, 1, names[i]);
        add_message(&a, 6, bodies[i]);
        add_int(&a, 20, 5);
        add_message(&node, 5, a);
    }
    add_message(g, 1, node);
}

static inline void add_node_with(message *g, const char *line, const char *body_name, const message *body) {
    add_node_with_all(g, line, 1, &body_name, body);
}

static inline void add_node(message *g, const char *line) {
    add_node_with_all(g, line, 0, NULL, NULL);
}

static inline void add_integers(message *g, const char *name, int rank, int64_t count, const int64_t *numbers) {
    message t = tensor_of(name, 7, rank, &count);
    add_data(&t, 9, numbers, (size_t)count * 8);
    add_message(g, 5, t);
}

/* A list of strings as an initializer. */
static inline void add_strings(message *g, const char *name, int64_t count, const char *const *strings) {
    message t = tensor_of(name, 8, 1, &count);
    for (int64_t i = 0; i < count; i++) add_text(&t, 6, strings[i]);
    add_message(g, 5, t);
}

typedef struct fixture {
    message bytes;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
} fixture;

static inline message model_with(message graph) {
    message m = {0}, opset = {0}, learn = {0}, own = {0};
    add_int(&m, 1, 8);
    add_message(&m, 7, graph);
    add_int(&opset, 2, 20);
    add_message(&m, 8, opset);
    add_text(&learn, 1, "ai.onnx.ml"), add_int(&learn, 2, 3);
    add_message(&m, 8, learn);
    add_text(&own, 1, "com.example"), add_int(&own, 2, 3);
    add_message(&m, 8, own);
    return m;
}

static inline fixture made_of(message graph) {
    fixture f = {.bytes = model_with(graph)};
    OK(context, dlc_onnx_parse(context, f.bytes.data, f.bytes.size, NULL, &f.model));
    OK(context, dlc_onnx_runner_create(f.model, NULL, &f.runner));
    return f;
}

static inline void finish(fixture *f) {
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
static inline held numbers(void *data, int code, int bits, int rank, int64_t count) {
    held t = {.shape = {rank == 2 ? count / 2 : count, 2}};
    t.view = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}};
    return t;
}

static inline dlc_onnx_value value_of_tensor(held *t) {
    t->view.shape = t->shape;
    return (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = &t->view};
}

static inline dlc_onnx_value list_of(const dlc_onnx_value *elements, size_t count) {
    return (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = count, .elements = elements};
}

/* Strings of rank 1, terminated ones. */
typedef struct words {
    dlc_onnx_string string[32];
    int64_t count;
} words;

static inline words words_of(int64_t count, const char *const *text) {
    words w = {.count = count};
    for (int64_t i = 0; i < count; i++) w.string[i] = (dlc_onnx_string){text[i], strlen(text[i])};
    return w;
}

static inline dlc_onnx_value value_of_words(words *w) {
    return (dlc_onnx_value){.kind = DLC_ONNX_STRINGS, .rank = 1, .dims = &w->count, .strings = w->string};
}

static inline void expect_floats(const dlc_onnx_value *value, int64_t count, const float *expected) {
    int64_t made = 1;
    assert_int_equal(value->kind, DLC_ONNX_TENSOR);
    assert_int_equal(value->tensor->dtype.code, kDLFloat);
    for (int d = 0; d < value->tensor->ndim; d++) made *= value->tensor->shape[d];
    assert_int_equal(made, count);
    const float *got = (const float *)(const void *)((const char *)value->tensor->data + value->tensor->byte_offset);
    for (int64_t i = 0; i < count; i++) assert_float_equal(got[i], expected[i], 1e-5f);
}

static inline void expect_integer(const dlc_onnx_value *value, int64_t expected) {
    assert_int_equal(value->kind, DLC_ONNX_TENSOR);
    assert_int_equal(*(const int64_t *)value->tensor->data, expected);
}

/* Joined by commas. */
static inline void expect_words(const dlc_onnx_value *value, const char *expected) {
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

static inline dlc_status try_values(const fixture *f, const dlc_onnx_value *inputs, int count, dlc_onnx_value **outputs,
                                    int output_count) {
    const dlc_onnx_value *given[8];
    for (int i = 0; i < count; i++) given[i] = &inputs[i];
    return dlc_onnx_run_values(f->runner, NULL, given, count, outputs, output_count);
}

static inline void run_values(const fixture *f, const dlc_onnx_value *inputs, int count, dlc_onnx_value **outputs,
                              int output_count) {
    OK(context, try_values(f, inputs, count, outputs, output_count));
}

static inline void release(dlc_onnx_value **outputs, int count) {
    for (int i = 0; i < count; i++) dlc_onnx_value_destroy(outputs[i]);
}

static inline void expect_failure(const fixture *f, const dlc_onnx_value *inputs, int count, int outputs,
                                  dlc_status status, const char *why) {
    dlc_onnx_value *made[8];
    const dlc_status got = try_values(f, inputs, count, made, outputs);
    if (got != status || !strstr(dlc_error_message(context), why))
        fail_msg("status %s, expected %s with \"%s\": %s", dlc_status_text(got), dlc_status_text(status), why,
                 dlc_error_message(context));
    for (int i = 0; i < outputs; i++) assert_null(made[i]);
}

static inline void expect_imports(const fixture *f, int count, const char *what) {
    char *text;
    int lines = 0;
    OK(context, dlc_onnx_runner_describe(f->runner, &text));
    for (const char *c = text; *c; c++) lines += *c == '\n';
    if (lines != count || !strstr(text, what)) fail_msg("expected %d imports with %s:\n%s", count, what, text);
    dlc_text_free(context, text);
}

/* ---- context ------------------------------------------------------------------------------------------------------------- */

static inline int open_all(void **state) {
    (void)state;
    context = open_counted("cpu", &memory);
    if (!context) context = open_counted("interp", &memory);
    return context == NULL;
}

static inline int close_all(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return atomic_load(&memory.blocks) != 0;
}

#endif
