/* Models of one node, written as text, and what their import must say: what tests of nodes share. */
#ifndef TEST_ONNX_NODE_MODEL_H
#define TEST_ONNX_NODE_MODEL_H

#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>

static dlc_context *context;
static counter memory;

/* ---- models ---------------------------------------------------------------------------------------------------------- */

/* An attribute as text: name, kind, elements: "values f 1 2.5". Kinds: I integer, F float, S string, i f s lists of them, t a tensor of
 * f32, u one of u8. */
static inline message attribute_of(const char *text) {
    static const struct {
        char kind;
        int type, field;
    } kinds[] = {{'I', 2, 3}, {'F', 1, 2}, {'S', 3, 4}, {'i', 7, 8},
                 {'f', 6, 7}, {'s', 8, 9}, {'t', 4, 5}, {'u', 4, 5}};
    char copy[512], *rest;
    float numbers[64];
    int64_t count = 0;
    message a = {0};
    snprintf(copy, sizeof copy, "%s", text);
    add_text(&a, 1, strtok_r(copy, " ", &rest));
    const char kind = *strtok_r(NULL, " ", &rest);
    size_t k = 0;
    while (kinds[k].kind != kind) k++;
    const unsigned field = (unsigned)kinds[k].field;
    for (const char *word; (word = strtok_r(NULL, " ", &rest)); count++) {
        numbers[count] = strtof(word, NULL);
        if (kind == 'I' || kind == 'i') add_int(&a, field, strtoll(word, NULL, 10));
        if (kind == 'F' || kind == 'f') add_float(&a, field, numbers[count]);
        if (kind == 'S' || kind == 's') add_text(&a, field, word);
    }
    if (kind == 't' || kind == 'u') {
        message t = tensor_of(NULL, kind == 't' ? 1 : 2, 1, &count);
        for (int64_t i = 0; i < count; i++)
            kind == 't' ? add_float(&t, 4, numbers[i]) : add_int(&t, 5, (int64_t)numbers[i]);
        add_message(&a, field, t);
    }
    add_int(&a, 20, kinds[k].type);
    return a;
}

static inline bool has_name(const char *attribute, const char *of) {
    const size_t length = strcspn(of, " ");
    return strncmp(attribute, of, length) == 0 && (attribute[length] == ' ' || !attribute[length]);
}

/* The number of columns of inputs is a symbol, not 2. */
static bool any_columns;

/* An f32 matrix [n, 2]. */
static inline message matrix_of(const char *name) {
    return port_of(name, 1, any_columns ? "n columns" : "n 2");
}

typedef struct node {
    const char *domain, *operator;
    /* Names; the graph's input is x; t is true, and r 0.25. */
    const char *inputs, *outputs;
    /* The graph's outputs. */
    const char *given;
    /* NULL-terminated */
    const char *const *attributes;
} node;

static inline void add_words(message *m, unsigned field, const char *words) {
    char copy[256], *rest;
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        add_text(m, field, strcmp(word, "_") ? word : "");
}

/* A model of that node. `change` replaces the attribute of its name, or adds it; one of a name alone takes it away. NULL: none. */
static inline message node_model(const node *n, const char *change) {
    message m = {0}, g = {0}, made = {0}, opset = {0}, standard = {0};
    char outputs[64], *rest;
    add_words(&made, 1, n->inputs), add_words(&made, 2, n->outputs);
    add_text(&made, 4, n->operator);
    for (int i = 0; n->attributes[i]; i++)
        if (!change || !has_name(n->attributes[i], change)) add_message(&made, 5, attribute_of(n->attributes[i]));
    if (change && strchr(change, ' ')) add_message(&made, 5, attribute_of(change));
    add_text(&made, 7, n->domain);
    add_message(&g, 1, made);
    add_text(&g, 2, "main");
    message t = tensor_of("t", 9, 0, NULL), r = tensor_of("r", 1, 0, NULL);
    add_int(&t, 5, 1), add_float(&r, 4, 0.25f);
    add_message(&g, 5, t), add_message(&g, 5, r);
    add_message(&g, 11, matrix_of("x"));
    snprintf(outputs, sizeof outputs, "%s", n->given);
    for (const char *word = strtok_r(outputs, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        add_message(&g, 12, value_of(word, 1, "k"));
    add_int(&m, 1, 8);
    add_message(&m, 7, g);
    if (*n->domain) {
        add_text(&opset, 1, n->domain);
        add_int(&opset, 2, strcmp(n->operator, "TreeEnsemble") == 0 ? 5 : strcmp(n->domain, "ai.onnx.ml") ? 1 : 3);
        add_message(&m, 8, opset);
    }
    add_int(&standard, 2, 22);
    add_message(&m, 8, standard);
    return m;
}

static inline dlc_status import(const node *n, const char *change, dlc_graph **g) {
    dlc_onnx_model *model = NULL;
    message m = node_model(n, change);
    dlc_status status = dlc_onnx_parse(context, m.data, m.size, NULL, &model);
    *g = NULL;
    if (status == DLC_OK) status = dlc_onnx_graph(model, NULL, g);
    dlc_onnx_destroy(model);
    free(m.data);
    return status;
}

static inline void accepted(const node *n, const char *change) {
    dlc_graph *g;
    OK(context, import(n, change, &g));
    dlc_program_destroy(compile(context, g));
}

static inline void refused(const node *n, const char *change, dlc_status status, const char *words) {
    dlc_graph *g;
    const dlc_status got = import(n, change, &g);
    if (got != status || !strstr(dlc_error_message(context), words))
        fail_msg("%s, %s: expected %s with \"%s\", got %s: %s", n->operator, change ? change : "as it is",
                 dlc_status_text(status), words, dlc_status_text(got), dlc_error_message(context));
    assert_null(g);
}

static inline void wrong(const node *n, const char *change, const char *words) {
    refused(n, change, DLC_PARSE_ERROR, words);
}

#endif
