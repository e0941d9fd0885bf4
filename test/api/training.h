/* Training steps, for tests of their memory: loss, gradients and updates in one graph, with the parameters donated. */
#ifndef TEST_API_TRAINING_H
#define TEST_API_TRAINING_H

#include "api/support.h"

#include <dlc/gradient.h>

enum { PARAMETERS_MOST = 512 };

/* Inputs: x, target, the parameters; outputs: the loss, the updated parameters. */
typedef struct training {
    dlc_graph *g;
    dlc_value x, target;
    dlc_value parameter[PARAMETERS_MOST];
    int64_t shape[PARAMETERS_MOST + 2][4];
    int rank[PARAMETERS_MOST + 2];
    int count;
} training;

static inline dlc_value parameter_of(training *t, int rank, const int64_t *shape) {
    char name[16];
    dlc_dim dim[4];
    CHECK(t->count < PARAMETERS_MOST);
    snprintf(name, sizeof name, "p%d", t->count);
    for (int d = 0; d < rank; d++) dim[d] = (dlc_dim){shape[d], NULL};
    memcpy(t->shape[t->count + 2], shape, (size_t)rank * sizeof *shape);
    t->rank[t->count + 2] = rank;
    return t->parameter[t->count++] = dlc_input(t->g, name, DLC_F32, rank, dim);
}
#define PARAMETER(t, ...) parameter_of((t), RANK(__VA_ARGS__), SHAPE(__VA_ARGS__))

/* symbol: of the first dimension of x and target; NULL: it is a number. */
static inline training *new_training_of(dlc_context *context, const char *symbol, int rank, const int64_t *x,
                                        int target_rank, const int64_t *target) {
    training *t = calloc(1, sizeof *t);
    dlc_dim dim[2][4];
    CHECK(t);
    OK(context, dlc_graph_create(context, &t->g));
    for (int d = 0; d < rank; d++) dim[0][d] = (dlc_dim){t->shape[0][d] = x[d], NULL};
    for (int d = 0; d < target_rank; d++) dim[1][d] = (dlc_dim){t->shape[1][d] = target[d], NULL};
    if (symbol) dim[0][0] = dim[1][0] = SYMBOL(symbol);
    t->rank[0] = rank;
    t->rank[1] = target_rank;
    t->x = dlc_input(t->g, "x", DLC_F32, rank, dim[0]);
    t->target = dlc_input(t->g, "target", DLC_F32, target_rank, dim[1]);
    return t;
}

static inline training *new_training(dlc_context *context, int rank, const int64_t *x, int target_rank,
                                     const int64_t *target) {
    return new_training_of(context, NULL, rank, x, target_rank, target);
}

/* Loss: mean square of y - target. Update: gradient descent. */
static inline void finish_training(training *t, dlc_value y) {
    dlc_value gradient[PARAMETERS_MOST];
    dlc_value loss = dlc_mse_loss(y, t->target);
    dlc_gradient(loss, t->count, t->parameter, gradient);
    dlc_output(t->g, "loss", loss);
    for (int i = 0; i < t->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "q%d", i);
        dlc_output(t->g, name, dlc_sub(t->parameter[i], dlc_mul(gradient[i], dlc_scalar(t->g, DLC_F32, 0.01))));
    }
}

static inline training *mlp_of(dlc_context *context, const char *symbol, int layers, int64_t rows, int64_t width) {
    training *t = new_training_of(context, symbol, 2, SHAPE(rows, width), 2, SHAPE(rows, width));
    dlc_value x = t->x;
    for (int i = 0; i < layers; i++) {
        dlc_value w = PARAMETER(t, width, width), b = PARAMETER(t, width);
        x = dlc_gelu(dlc_linear(x, w, b));
    }
    finish_training(t, x);
    return t;
}

static inline training *mlp(dlc_context *context, int layers, int64_t rows, int64_t width) {
    return mlp_of(context, NULL, layers, rows, width);
}

/* The same, of layers in groups of which nothing is kept. */
static inline training *grouped_mlp(dlc_context *context, int groups, int layers, int64_t rows, int64_t width) {
    training *t = new_training(context, 2, SHAPE(rows, width), 2, SHAPE(rows, width));
    dlc_value x = t->x;
    for (int i = 0; i < groups; i++) {
        dlc_graph *body = dlc_subgraph(t->g);
        dlc_value y = dlc_input(body, "x", DLC_F32, 2, DIMS(SIZE(rows), SIZE(width)));
        for (int k = 0; k < layers; k++) {
            dlc_value w = PARAMETER(t, width, width), b = PARAMETER(t, width);
            y = dlc_gelu(dlc_linear(y, w, b));
        }
        dlc_output(body, "y", y);
        y = x;
        dlc_recompute(t->g, 1, &y, body, 1, &x);
    }
    finish_training(t, x);
    return t;
}

static inline training *conv_net(dlc_context *context, int layers, int64_t images, int64_t channels, int64_t size) {
    training *t = new_training(context, 4, SHAPE(images, channels, size, size), 2, SHAPE(images, 10));
    dlc_convolution_options same = DLC_CONVOLUTION_OPTIONS_INIT;
    same.low_count = same.high_count = 2;
    same.low = same.high = SHAPE(1, 1);
    dlc_value x = t->x;
    for (int i = 0; i < layers; i++) {
        dlc_value w = PARAMETER(t, channels, channels, 3, 3), b = PARAMETER(t, channels, 1, 1);
        x = dlc_relu(dlc_add(dlc_convolution_with(x, w, &same), b));
    }
    dlc_value features = dlc_mean(x, 2, SHAPE(2, 3));
    dlc_value w = PARAMETER(t, channels, 10), b = PARAMETER(t, 10);
    finish_training(t, dlc_linear(features, w, b));
    return t;
}

/* x[batch, tokens, width], heads of `width / heads` columns. */
static inline dlc_value heads_of(dlc_value x, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
    x = dlc_reshape(x, 4, DIMS(SIZE(batch), SIZE(tokens), SIZE(heads), SIZE(width / heads)));
    return dlc_transpose(x, 4, SHAPE(0, 2, 1, 3));
}

static inline training *transformer(dlc_context *context, int layers, int64_t batch, int64_t tokens, int64_t width,
                                    int64_t heads) {
    training *t = new_training(context, 3, SHAPE(batch, tokens, width), 3, SHAPE(batch, tokens, width));
    dlc_value x = t->x;
    for (int i = 0; i < layers; i++) {
        dlc_value s1 = PARAMETER(t, width), b1 = PARAMETER(t, width), wq = PARAMETER(t, width, width);
        dlc_value wk = PARAMETER(t, width, width), wv = PARAMETER(t, width, width), wo = PARAMETER(t, width, width);
        dlc_value s2 = PARAMETER(t, width), b2 = PARAMETER(t, width), w1 = PARAMETER(t, width, 4 * width);
        dlc_value c1 = PARAMETER(t, 4 * width), w2 = PARAMETER(t, 4 * width, width), c2 = PARAMETER(t, width);
        dlc_value n = dlc_layer_norm(x, s1, b1, -1);
        dlc_value q = heads_of(dlc_matmul(n, wq), batch, tokens, heads, width);
        dlc_value k = heads_of(dlc_matmul(n, wk), batch, tokens, heads, width);
        dlc_value v = heads_of(dlc_matmul(n, wv), batch, tokens, heads, width);
        dlc_value a = dlc_transpose(dlc_attention(q, k, v, (dlc_value){0}), 4, SHAPE(0, 2, 1, 3));
        a = dlc_reshape(a, 3, DIMS(SIZE(batch), SIZE(tokens), SIZE(width)));
        x = dlc_add(x, dlc_matmul(a, wo));
        n = dlc_layer_norm(x, s2, b2, -1);
        x = dlc_add(x, dlc_linear(dlc_gelu(dlc_linear(n, w1, c1)), w2, c2));
    }
    finish_training(t, x);
    return t;
}

/* Maps and norms of rows alone. */
static inline training *gates(dlc_context *context, int layers, int64_t rows, int64_t width) {
    training *t = new_training(context, 2, SHAPE(rows, width), 2, SHAPE(rows, width));
    dlc_value x = t->x;
    for (int i = 0; i < layers; i++) {
        dlc_value w = PARAMETER(t, width), b = PARAMETER(t, width);
        dlc_value scale = PARAMETER(t, width), bias = PARAMETER(t, width);
        x = dlc_layer_norm(dlc_gelu(dlc_add(dlc_mul(x, w), b)), scale, bias, -1);
    }
    finish_training(t, x);
    return t;
}

/* Recurrent layers, which are loops, with products between them. */
static inline training *recurrent(dlc_context *context, int layers, int64_t steps, int64_t batch, int64_t width) {
    training *t = new_training(context, 3, SHAPE(steps, batch, width), 3, SHAPE(steps, batch, width));
    dlc_value x = t->x, none = {0};
    for (int i = 0; i < layers; i++) {
        dlc_value w = PARAMETER(t, 1, width, width), r = PARAMETER(t, 1, width, width), results[2];
        dlc_value v = PARAMETER(t, width, width), b = PARAMETER(t, width);
        dlc_rnn(x, w, r, none, none, none, 2, results);
        x = dlc_reshape(results[0], 3, DIMS(SIZE(steps), SIZE(batch), SIZE(width)));
        x = dlc_gelu(dlc_linear(x, v, b));
    }
    finish_training(t, x);
    return t;
}

/* A random graph of maps, moves, views, joins, updates of slices, products and norms on values of 16 rows. */
static inline training *random_graph(dlc_context *context, uint32_t seed) {
    enum { VALUES = 24, ROWS = 16, WIDTH = 16 };
    training *t = new_training(context, 2, SHAPE(ROWS, WIDTH), 2, SHAPE(ROWS, WIDTH));
    dlc_value value[VALUES] = {t->x};
    for (int i = 1; i < VALUES; i++) {
        const uint32_t a = (uint32_t)((noise(&seed) + 1) * 0.5f * (float)i), b = (uint32_t)i - 1;
        const dlc_value x = value[b], y = value[a < b ? a : b];
        dlc_value both = dlc_concat(2, (const dlc_value[]){x, y}, 0);
        switch ((int)((noise(&seed) + 1) * 5)) {
        case 0: value[i] = dlc_tanh(dlc_add(x, y)); break;
        case 1: value[i] = dlc_matmul(dlc_tanh(x), PARAMETER(t, WIDTH, WIDTH)); break;
        case 2: value[i] = dlc_layer_norm(x, PARAMETER(t, WIDTH), PARAMETER(t, WIDTH), -1); break;
        case 3: value[i] = dlc_slice(both, 2, DIMS(SIZE(3), SIZE(0)), 2, DIMS(SIZE(3 + ROWS), SIZE(WIDTH))); break;
        case 4: value[i] = dlc_slice(both, 2, DIMS(SIZE(ROWS), SIZE(0)), 2, DIMS(SIZE(2 * ROWS), SIZE(WIDTH))); break;
        case 5:
            value[i] = dlc_reshape(x, 3, DIMS(SIZE(4), SIZE(4), SIZE(WIDTH)));
            value[i] = dlc_reshape(dlc_transpose(value[i], 3, SHAPE(1, 0, 2)), 2, DIMS(SIZE(ROWS), SIZE(WIDTH)));
            break;
        case 6:
            both = dlc_slice(y, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(4), SIZE(WIDTH)));
            value[i] = dlc_dynamic_update_slice(
                dlc_sin(x), both, dlc_constant(t->g, DLC_I32, 1, SHAPE(2), (const int32_t[]){5, 0}), 0, NULL);
            break;
        case 7: value[i] = dlc_matmul(dlc_softmax(x, -1), y); break;
        case 8:
            value[i] = dlc_matmul(both, PARAMETER(t, WIDTH, WIDTH));
            value[i] = dlc_slice(value[i], 2, DIMS(SIZE(2), SIZE(0)), 2, DIMS(SIZE(2 + ROWS), SIZE(WIDTH)));
            break;
        default: value[i] = dlc_mul(dlc_logistic(x), y); break;
        }
    }
    dlc_value y = value[VALUES - 1];
    for (int i = 0; i < VALUES; i += 5) y = dlc_add(y, value[i]);
    dlc_value w = PARAMETER(t, WIDTH, WIDTH);
    finish_training(t, dlc_matmul(y, w));
    return t;
}

/* Compiles the step, with the parameters donated, and destroys its graph. */
static inline dlc_program *compile_training(dlc_context *context, training *t, const dlc_compile_options *options) {
    dlc_program *program;
    if (dlc_graph_status(t->g) != DLC_OK) failed("%s", dlc_graph_message(t->g));
    OK(context, dlc_compile(context, t->g, options, &program));
    for (int i = 0; i < t->count; i++) OK(context, dlc_program_alias(program, i + 1, i + 2));
    dlc_graph_destroy(t->g);
    t->g = NULL;
    return program;
}

static inline char *dump_training(dlc_context *context, const training *t, dlc_program *program, const char *stage) {
    const int64_t *shapes[PARAMETERS_MOST + 2];
    char *text;
    for (int i = 0; i < t->count + 2; i++) shapes[i] = t->shape[i];
    OK(context, dlc_program_dump(program, stage, shapes, t->rank, t->count + 2, &text));
    return text;
}

/* Bytes of the plan's arena; *live: those that are live at once. */
static inline double arena_of(dlc_context *context, const training *t, dlc_program *program, double *live) {
    double arena = -1;
    char *text = dump_training(context, t, program, "plan");
    const char *at = strstr(text, "arena of ");
    CHECK(at && sscanf(at, "arena of %lf bytes, %lf of them at once", &arena, live) == 2);
    dlc_text_free(context, text);
    return arena;
}

#endif
