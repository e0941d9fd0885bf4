/* Rows of ai.onnx.preview.training: steps of optimizers. Operands: the rate R, the number T of previous steps, then the values X of all
 * tensors, their gradients G, and one or two states; results: the new values, then the new states. */
#include "graph/onnx/import.h"

typedef struct step {
    /* Rank 0: the rate as given, and the number of previous steps. */
    graph_id rate, count;
    size_t tensors;
} step;

static step step_of(onnx_import *im, int states) {
    const size_t kinds = 2 + (size_t)states, given = onnx_operands(im);
    step s = {.rate = onnx_operand_or_scalar(im, 0), .count = onnx_operand_or_scalar(im, 1)};
    if (given < 2 + kinds || (given - 2) % kinds || !s.rate || !s.count)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu operands; expected R, T and for each tensor %zu", given, kinds);
    if (graph_shape_of(im->g, s.rate)->rank || graph_shape_of(im->g, s.count)->rank)
        onnx_fail(im, DLC_PARSE_ERROR, "R and T are not single numbers");
    s.tensors = (given - 2) / kinds;
    return s;
}

/* The operand that is tensor i of that kind: 0 values, 1 gradients, 2 and 3 states. */
static graph_id tensor_of(onnx_import *im, const step *s, size_t kind, size_t i) {
    const graph_id id = onnx_operand(im, 2 + kind * s->tensors + i);
    if (!id) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", 2 + kind * s->tensors + i);
    return id;
}

static void give(onnx_import *im, const step *s, size_t kind, size_t i, graph_id id) {
    onnx_give(im, kind * s->tensors + i, id);
}

/* The gradient with the norm's: norm X + G. */
static graph_id gradient_of(onnx_import *im, const step *s, size_t i, double norm) {
    const graph_id x = tensor_of(im, s, 0, i), g = tensor_of(im, s, 1, i);
    return norm == 0 ? g : graph_add(im->g, graph_mul_number(im->g, x, norm), g);
}

/* The mean of a state and a new value, weighted by factor and 1 - factor. */
static graph_id mixed(graph *g, graph_id state, graph_id value, double factor) {
    return graph_add(g, graph_mul_number(g, state, factor), graph_mul_number(g, value, 1 - factor));
}

/* Duchi, Hazan, Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011. */
static void import_adagrad(onnx_import *im) {
    graph *g = im->g;
    const step s = step_of(im, 1);
    const double norm = onnx_float(im, "norm_coefficient", 0), decay = onnx_float(im, "decay_factor", 0),
                 epsilon = onnx_float(im, "epsilon", 1e-6f);
    const graph_id count = graph_cast(g, s.count, graph_shape_of(g, s.rate)->dtype),
                   rate = graph_div(g, s.rate, graph_add_number(g, graph_mul_number(g, count, decay), 1));
    for (size_t i = 0; i < s.tensors; i++) {
        const graph_id x = tensor_of(im, &s, 0, i), gradient = gradient_of(im, &s, i, norm),
                       h = graph_add(g, tensor_of(im, &s, 2, i), graph_mul(g, gradient, gradient)),
                       scale = graph_add_number(g, graph_sqrt(g, h), epsilon);
        const graph_id move = graph_mul(g, graph_cast(g, rate, graph_shape_of(g, x)->dtype), gradient);
        give(im, &s, 0, i, graph_sub(g, x, graph_div(g, move, scale)));
        give(im, &s, 1, i, h);
    }
}

/* 1 - base^count */
static graph_id less_power(graph *g, graph_id count, double base) {
    return graph_sub(g, graph_scalar_like(g, count, 1), graph_pow(g, graph_scalar_like(g, count, base), count));
}

/* Kingma, Ba, "Adam: a method for stochastic optimization", 2015. */
static void import_adam(onnx_import *im) {
    graph *g = im->g;
    const step s = step_of(im, 2);
    const double alpha = onnx_float(im, "alpha", 0.9f), beta = onnx_float(im, "beta", 0.999f),
                 epsilon = onnx_float(im, "epsilon", 1e-6f), norm = onnx_float(im, "norm_coefficient", 0),
                 norm_after = onnx_float(im, "norm_coefficient_post", 0);
    const graph_id count = graph_cast(g, s.count, graph_shape_of(g, s.rate)->dtype);
    const graph_id adjusted =
        graph_div(g, graph_mul(g, s.rate, graph_sqrt(g, less_power(g, count, beta))), less_power(g, count, alpha));
    const graph_id rate = graph_select(g, graph_gt(g, count, graph_scalar_like(g, count, 0)), adjusted, s.rate);
    for (size_t i = 0; i < s.tensors; i++) {
        const graph_id x = tensor_of(im, &s, 0, i), gradient = gradient_of(im, &s, i, norm),
                       v = mixed(g, tensor_of(im, &s, 2, i), gradient, alpha),
                       h = mixed(g, tensor_of(im, &s, 3, i), graph_mul(g, gradient, gradient), beta);
        const graph_id move = graph_mul(g, graph_cast(g, rate, graph_shape_of(g, x)->dtype), v),
                       scale = graph_add_number(g, graph_sqrt(g, h), epsilon);
        const graph_id y = graph_sub(g, x, graph_div(g, move, scale));
        give(im, &s, 0, i, norm_after == 0 ? y : graph_mul_number(g, y, 1 - norm_after));
        give(im, &s, 1, i, v);
        give(im, &s, 2, i, h);
    }
}

/* The value of an attribute without default; raises if it is missing. */
static double required(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_FLOAT);
    if (!a) onnx_fail(im, DLC_PARSE_ERROR, "attribute %s is missing", name);
    return (double)a->f;
}

static void import_momentum(onnx_import *im) {
    enum { NESTEROV, STANDARD };
    graph *g = im->g;
    const step s = step_of(im, 1);
    const double alpha = required(im, "alpha"), beta = required(im, "beta"), norm = required(im, "norm_coefficient");
    const int mode = onnx_choice(im, "mode", "nesterov standard", "");
    const graph_id later = graph_gt(g, s.count, graph_scalar_like(g, s.count, 0));
    for (size_t i = 0; i < s.tensors; i++) {
        const graph_id x = tensor_of(im, &s, 0, i), gradient = gradient_of(im, &s, i, norm),
                       share = graph_select(g, later, graph_scalar_like(g, x, beta), graph_scalar_like(g, x, 1));
        const graph_id v =
            graph_add(g, graph_mul_number(g, tensor_of(im, &s, 2, i), alpha), graph_mul(g, share, gradient));
        const graph_id move = mode == STANDARD ? v : graph_add(g, gradient, graph_mul_number(g, v, alpha));
        give(im, &s, 0, i, graph_sub(g, x, graph_mul(g, graph_cast(g, s.rate, graph_shape_of(g, x)->dtype), move)));
        give(im, &s, 1, i, v);
    }
}

const onnx_row onnx_rows_training[] = {
    {"Adagrad", 1, 0, import_adagrad, NULL},
    {"Adam", 1, 0, import_adam, NULL},
    {"Momentum", 1, 0, import_momentum, NULL},
    {0},
};
