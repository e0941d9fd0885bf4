/* Rows of recurrent layers. */
#include "graph/onnx/import.h"

/* Activations with their default alpha and beta; takes: how many of the two they have. */
static const struct activation {
    const char *name;
    int takes;
    double alpha, beta;
} activations[] = {
    {"affine", 2, 1, 0},   {"elu", 1, 1, 0},        {"hardsigmoid", 2, 0.2f, 0.5}, {"leakyrelu", 1, 0.01f, 0},
    {"relu", 0, 0, 0},     {"scaledtanh", 2, 1, 1}, {"sigmoid", 0, 0, 0},          {"softplus", 0, 0, 0},
    {"softsign", 0, 0, 0}, {"tanh", 0, 0, 0},       {"thresholdedrelu", 1, 1, 0}};

static const struct activation *activation_named(onnx_import *im, onnx_bytes name) {
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        bool same = name.size == strlen(activations[i].name);
        for (size_t k = 0; same && k < name.size; k++) same = (name.data[k] | 32) == activations[i].name[k];
        if (same) return &activations[i];
    }
    onnx_fail(im, DLC_UNSUPPORTED, "the activation %s is not known", onnx_shown(im->g->arena, name));
}

/* The activations as a text such as "sigmoid hardsigmoid(0.2,0.5) tanh". The lists activation_alpha and activation_beta have entries only for the
 * activations that take them, in order. */
static const char *activations_of(onnx_import *im) {
    int alphas, betas, alpha = 0, beta = 0;
    const float *a = onnx_floats(im, "activation_alpha", &alphas), *b = onnx_floats(im, "activation_beta", &betas);
    const onnx_attribute *names = onnx_attribute_find(im, "activations", ONNX_ATTRIBUTE_STRINGS);
    lib_text text;
    if (!names || !names->strings.count) return NULL;
    lib_text_init(&text, im->g->arena);
    for (size_t i = 0; i < names->strings.count; i++) {
        const struct activation *f = activation_named(im, names->strings.data[i]);
        lib_text_add(&text, i ? " " : "");
        lib_text_add(&text, f->name);
        if (f->takes < 1) continue;
        lib_text_add(&text, "(");
        lib_text_float(&text, alpha < alphas ? (double)a[alpha] : f->alpha, DLC_F64);
        alpha++;
        if (f->takes > 1) {
            lib_text_add(&text, ",");
            lib_text_float(&text, beta < betas ? (double)b[beta] : f->beta, DLC_F64);
            beta++;
        }
        lib_text_add(&text, ")");
    }
    return text.data;
}

static void import_recurrent(onnx_import *im) {
    const bool lstm = !strcmp(im->row->op, "lstm"), gru = !strcmp(im->row->op, "gru");
    graph_setting s[6];
    int n = 0;
    graph_id in[8] = {0};
    const char *names = activations_of(im);
    onnx_ignore(im, "hidden_size"), onnx_ignore(im, "output_sequence");
    s[n++] = graph_set_integer("direction", onnx_choice(im, "direction", "forward reverse bidirectional", "forward"));
    s[n++] = graph_set_integer("layout", onnx_int(im, "layout", 0) != 0);
    s[n++] = graph_set_float("clip", onnx_float(im, "clip", 0));
    if (names) s[n++] = graph_set_string("activations", names);
    if (lstm) s[n++] = graph_set_bool("input_forget", onnx_int(im, "input_forget", 0) != 0);
    if (gru) s[n++] = graph_set_bool("linear_before_reset", onnx_int(im, "linear_before_reset", 0) != 0);
    const int operands = lstm ? 8 : 6, results = lstm ? 3 : 2;
    for (int i = 0; i < operands; i++) in[i] = onnx_operand(im, (size_t)i);
    const graph_id y = onnx_emit(im, im->row->op, operands, in, n, s);
    for (int i = 0; i < results; i++) onnx_give(im, (size_t)i, y + (graph_id)i);
}

const onnx_row onnx_rows_recurrent[] = {
    {"GRU", 1, 0, import_recurrent, "gru"},
    {"LSTM", 1, 0, import_recurrent, "lstm"},
    {"RNN", 1, 0, import_recurrent, "rnn"},
    {0},
};
