/* What tests of <dlc/extend.h> share. */
#ifndef TEST_API_EXTEND_H
#define TEST_API_EXTEND_H

#include "api/support.h"

#include <dlc/extend.h>

static inline dlc_status define(dlc_context *context, dlc_operator_options options) {
    options.struct_size = sizeof options;
    return dlc_operator_register(context, &options);
}

static inline dlc_graph *parse(dlc_context *context, const char *text) {
    dlc_graph *g = NULL;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    return g;
}

static inline char *dump(dlc_context *context, dlc_program *program, const char *stage, int inputs,
                         const int64_t *const *shapes, const int *ranks) {
    char *text = NULL;
    OK(context, dlc_program_dump(program, stage, shapes, ranks, inputs, &text));
    return text;
}

static inline void assert_holds(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}

static inline dlc_status rule(dlc_context *context, const char *name, const char *pattern, const char *replacement) {
    dlc_rule_options options = DLC_RULE_OPTIONS_INIT;
    options.name = name;
    options.pattern = pattern;
    options.replacement = replacement;
    return dlc_rule_register(context, &options);
}

static const dlc_operator_options linear_options = {.name = "my_linear",
                                                    .operands = "x w",
                                                    .dtypes = "float",
                                                    .shape = "T[..., n, k], T[k, m] -> T[..., n, m]",
                                                    .expression = "y[..., i, j] = sum(k, x[..., i, k] * w[k, j])"};

/* x repeated, by a C function. */
static const dlc_operator_attribute repeat_attributes[] = {{"times", DLC_ATTRIBUTE_INTEGER, NULL, NULL},
                                                           {NULL, DLC_ATTRIBUTE_INTEGER, NULL, NULL}};

static inline dlc_status repeat_shape(void *user, dlc_callback *callback) {
    (void)user;
    dlc_value x = dlc_callback_input(callback, 0);
    int64_t times = 0;
    char text[64];
    dlc_dim dim = dlc_value_dim(x, 0);
    if (dlc_value_rank(x) != 1) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "repeat is of vectors");
    if (!dlc_callback_integer(callback, "times", &times)) return dlc_callback_fail(callback, DLC_INTERNAL, NULL);
    snprintf(text, sizeof text, "(%s)*%d", dim.name ? dim.name : "", (int)times);
    dim = dim.name ? (dlc_dim){0, text} : (dlc_dim){dim.value * times, NULL};
    return dlc_callback_set_shape(callback, 0, dlc_value_dtype(x), 1, &dim);
}

static inline dlc_status repeat(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input,
                                int outputs, DLTensor *const *output) {
    int64_t times = 0, n = input[0]->shape[0];
    const float *x = input[0]->data;
    float *y = output[0]->data;
    (void)inputs, (void)outputs;
    dlc_callback_integer(callback, "times", &times);
    if (n * times != output[0]->shape[0]) return dlc_callback_fail(callback, DLC_INTERNAL, "sizes");
    if (n && x[0] > 1) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "x[0] is too large");
    for (int64_t i = 0; i < n * times; i++) y[i] = x[i % n];
    ++*(_Atomic int *)user;
    return DLC_OK;
}

#endif
