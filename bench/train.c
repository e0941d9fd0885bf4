/* Kind `train`: a step of training a network, as one program: loss, gradients, w - rate * gradient in place of w. The same networks are
 * written for the peers in train_server.py, with operands in the same order: x, labels, weights, rate. `arena=40`: the step is
 * compiled with a limit on its arena (memory_bytes), 40 % of the arena that the same step takes without a limit (contest.c). Kind `backward`: one kernel that computes a derivative; its operands are what the forward
 * kernel keeps for it. Kind `update`: one program that computes the gradient of a linear layer's weights and an optimiser's step of these
 * weights. Kind `second`: a linear layer or a convolution whose second result is the operand of its activation. */
#include "bench/cases.h"

#include <dlc/gradient.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...)                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
        __VA_ARGS__                                                          \
    }

typedef struct trainer {
    bench_builder *b;
    int count;
    dlc_value weights[BENCH_MAX_OPERANDS];
    int operands[BENCH_MAX_OPERANDS];
} trainer;

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

static int64_t setting(const trainer *t, const char *key, int64_t otherwise) {
    return bench_number(t->b->problem.shape, key, otherwise);
}

/* Weights that are trained, in low .. high; of no two are the numbers the same. */
static dlc_value trained(trainer *t, int rank, const int64_t *dims, double low, double high) {
    const int i = t->count++;
    t->operands[i] = t->b->problem.operand_count;
    t->weights[i] = bench_case_operand(t->b, false, DLC_F32, rank, dims, low, high - 0.001 * (high - low) * i);
    return t->weights[i];
}

/* Factors of sums of `terms` products. */
static dlc_value factors(trainer *t, int64_t terms, int rank, const int64_t *dims) {
    const double limit = sqrt(3.0 / (double)terms);
    return trained(t, rank, dims, -limit, limit);
}

static dlc_value vector(trainer *t, int64_t n, double low, double high) {
    return trained(t, 1, &n, low, high);
}

static dlc_value shaped(dlc_value x, int rank, const int64_t *dims) {
    dlc_dim sizes[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = (dlc_dim){.value = dims[i]};
    return dlc_reshape(x, rank, sizes);
}

/* Multiply-adds of a product, which the derivative has with respect to its weights and, unless it is the first, to its input, too. */
static void count_products(trainer *t, double products, bool first) {
    t->b->problem.flops += 2 * products * (first ? 2 : 3);
}

static double elements_of(dlc_value x) {
    double count = 1;
    for (int d = 0; d < dlc_value_rank(x); d++) count *= (double)dlc_value_dim(x, d).value;
    return count;
}

static dlc_value linear(trainer *t, dlc_value x, int64_t from, int64_t to, bool first) {
    count_products(t, elements_of(x) * (double)to, first);
    const dlc_value w = factors(t, from, DIMS(from, to));
    return dlc_linear(x, w, vector(t, to, -0.1, 0.1));
}

static dlc_value norm(trainer *t, dlc_value x, int64_t n) {
    const dlc_value scale = vector(t, n, 0.5, 1.5);
    return dlc_layer_norm(x, scale, vector(t, n, -0.1, 0.1), -1);
}

/* A convolution by side x side windows that keeps the image's size, but for the stride. */
static dlc_value convolution(trainer *t, dlc_value x, int64_t from, int64_t to, int64_t side, int64_t stride,
                             int64_t groups, bool first) {
    const int64_t pad[] = {side / 2, side / 2}, steps[] = {stride, stride};
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.low = options.high = pad, options.low_count = options.high_count = 2;
    options.stride = steps, options.stride_count = 2;
    options.groups = groups;
    const int64_t terms = from / groups * side * side;
    const dlc_value y = dlc_convolution_with(x, factors(t, terms, DIMS(to, from / groups, side, side)), &options);
    count_products(t, elements_of(y) * (double)terms, first);
    return y;
}

/* With a bias of each channel, and relu. */
static dlc_value biased(trainer *t, dlc_value x, int64_t channels) {
    return dlc_relu(dlc_add(x, trained(t, DIMS(channels, 1, 1), -0.1, 0.1)));
}

/* Normed by the statistics of the batch. */
static dlc_value batch_norm(trainer *t, dlc_value x, int64_t channels) {
    const dlc_dim size = {channels, NULL};
    const dlc_value scale = vector(t, channels, 0.5, 1.5), bias = vector(t, channels, -0.1, 0.1);
    const dlc_value zeros = dlc_broadcast(dlc_scalar(t->b->graph, DLC_F32, 0), 1, &size, 0, NULL);
    dlc_value y[3];
    dlc_batch_norm_training(x, scale, bias, zeros, zeros, 1, 3, y);
    return y[0];
}

/* Greatest of side x side, at a distance of 2. */
static dlc_value pooled(dlc_value x, int64_t side) {
    const int64_t window[] = {side, side}, two[] = {2, 2}, pad[] = {side / 2, side / 2};
    dlc_max_pool_options options = DLC_MAX_POOL_OPTIONS_INIT;
    options.stride = two, options.stride_count = 2;
    if (side > 2) options.low = options.high = pad, options.low_count = options.high_count = 2;
    return dlc_max_pool_with(x, 2, window, &options);
}

static dlc_value mean_of_image(dlc_value x) {
    return dlc_mean(x, 2, (const int64_t[]){2, 3});
}

/* ---- networks: the scores of the classes for operand x ------------------------------------------------------------------------------ */

static dlc_value input(trainer *t, int rank, const int64_t *dims) {
    return bench_case_operand(t->b, false, DLC_F32, rank, dims, -1, 1);
}

static dlc_value numbers_below(trainer *t, int rank, const int64_t *dims, int64_t limit) {
    return bench_case_operand(t->b, false, DLC_I64, rank, dims, 0, (double)limit);
}

/* 784-512-512-10 */
static dlc_value perceptron(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 32), hidden = setting(t, "hidden", 512);
    dlc_value x = input(t, DIMS(n, 784));
    *labels = numbers_below(t, DIMS(n), 10);
    x = dlc_relu(linear(t, x, 784, hidden, true));
    return linear(t, dlc_relu(linear(t, x, hidden, hidden, false)), hidden, 10, false);
}

/* Of Fashion-MNIST's images. */
static dlc_value cnn(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 64);
    dlc_value x = input(t, DIMS(n, 1, 28, 28));
    *labels = numbers_below(t, DIMS(n), 10);
    x = pooled(biased(t, convolution(t, x, 1, 32, 3, 1, 1, true), 32), 2);
    x = pooled(biased(t, convolution(t, x, 32, 64, 3, 1, 1, false), 64), 2);
    x = dlc_relu(linear(t, shaped(x, DIMS(n, 64 * 7 * 7)), 64 * 7 * 7, 128, false));
    return linear(t, x, 128, 10, false);
}

/* ResNet-18 (He et al. 2016). */
static dlc_value resnet18(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 8), side = setting(t, "side", 224);
    dlc_value x = input(t, DIMS(n, 3, side, side));
    *labels = numbers_below(t, DIMS(n), 1000);
    x = pooled(dlc_relu(batch_norm(t, convolution(t, x, 3, 64, 7, 2, 1, true), 64)), 3);
    for (int64_t i = 0, from = 64; i < 8; i++) {
        const int64_t to = INT64_C(64) << i / 2, stride = to == from ? 1 : 2;
        dlc_value y = dlc_relu(batch_norm(t, convolution(t, x, from, to, 3, stride, 1, false), to));
        y = batch_norm(t, convolution(t, y, to, to, 3, 1, 1, false), to);
        if (stride == 2) x = batch_norm(t, convolution(t, x, from, to, 1, 2, 1, false), to);
        x = dlc_relu(dlc_add(x, y));
        from = to;
    }
    return linear(t, mean_of_image(x), 512, 1000, false);
}

/* MobileNet-v2 (Sandler et al. 2018). */
static dlc_value mobilenet2(trainer *t, dlc_value *labels) {
    static const struct {
        int64_t wider, channels, blocks, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    const int64_t n = setting(t, "batch", 8), side = setting(t, "side", 224);
    dlc_value x = input(t, DIMS(n, 3, side, side));
    *labels = numbers_below(t, DIMS(n), 1000);
    x = dlc_relu6(batch_norm(t, convolution(t, x, 3, 32, 3, 2, 1, true), 32));
    int64_t from = 32;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (int64_t i = 0; i < stages[s].blocks; i++) {
            const int64_t wide = from * stages[s].wider, to = stages[s].channels, stride = i ? 1 : stages[s].stride;
            dlc_value y = x;
            if (wide > from) y = dlc_relu6(batch_norm(t, convolution(t, y, from, wide, 1, 1, 1, false), wide));
            y = dlc_relu6(batch_norm(t, convolution(t, y, wide, wide, 3, stride, wide, false), wide));
            y = batch_norm(t, convolution(t, y, wide, to, 1, 1, 1, false), to);
            x = i ? dlc_add(x, y) : y;
            from = to;
        }
    x = dlc_relu6(batch_norm(t, convolution(t, x, 320, 1280, 1, 1, 1, false), 1280));
    return linear(t, mean_of_image(x), 1280, 1000, false);
}

/* Two levels of a U-Net (Ronneberger et al. 2015), and the class of each point. */
static dlc_value unet(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 2), side = setting(t, "side", 128), c = setting(t, "c", 32), two[] = {2, 2},
                  last[] = {0, 2, 3, 1};
    dlc_convolution_transposed_options apart = DLC_CONVOLUTION_TRANSPOSED_OPTIONS_INIT;
    apart.stride = two, apart.stride_count = 2;
    dlc_value x = input(t, DIMS(n, 3, side, side)), past[2];
    *labels = numbers_below(t, DIMS(n * side * side), 4);
    int64_t from = 3, to = c;
    for (int i = 0; i < 3; i++, to *= 2) {
        x = biased(t, convolution(t, x, from, to, 3, 1, 1, i == 0), to);
        x = biased(t, convolution(t, x, to, to, 3, 1, 1, false), to);
        if (i < 2) past[i] = x, x = pooled(x, 2);
        from = to;
    }
    for (int i = 2; i-- > 0; from /= 2) {
        count_products(t, elements_of(x) * 4 * (double)(from / 2), false);
        x = dlc_convolution_transposed_with(x, factors(t, from, DIMS(from, from / 2, 2, 2)), &apart);
        x = dlc_concat(2, (dlc_value[]){past[i], x}, 1);
        x = biased(t, convolution(t, x, from, from / 2, 3, 1, 1, false), from / 2);
        x = biased(t, convolution(t, x, from / 2, from / 2, 3, 1, 1, false), from / 2);
    }
    return linear(t, shaped(dlc_transpose(x, 4, last), DIMS(n * side * side, c)), c, 4, false);
}

/* Layers of d units over sequences, of whose last state the class is told. */
static dlc_value lstm(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 32), steps = setting(t, "steps", 64), d = setting(t, "d", 256),
                  layers = setting(t, "layers", 2);
    dlc_value x = input(t, DIMS(steps, n, d)), state[3];
    *labels = numbers_below(t, DIMS(n), 10);
    for (int64_t i = 0; i < layers; i++) {
        count_products(t, elements_of(x) * 4 * (double)d, i == 0);
        count_products(t, elements_of(x) * 4 * (double)d, false);
        const dlc_value w = factors(t, d, DIMS(1, 4 * d, d)), r = factors(t, d, DIMS(1, 4 * d, d));
        dlc_lstm(x, w, r, DLC_NONE, DLC_NONE, DLC_NONE, DLC_NONE, DLC_NONE, 3, state);
        x = shaped(state[0], DIMS(steps, n, d));
    }
    return linear(t, shaped(state[1], DIMS(n, d)), d, 10, false);
}

static dlc_value heads_of(dlc_value all, int which, int64_t n, int64_t tokens, int64_t heads, int64_t d) {
    const int64_t permutation[] = {0, 2, 1, 3};
    dlc_dim start[] = {{0, NULL}, {0, NULL}, {which * d, NULL}},
            stop[] = {{n, NULL}, {tokens, NULL}, {which * d + d, NULL}};
    return dlc_transpose(shaped(dlc_slice(all, 3, start, 3, stop), DIMS(n, tokens, heads, d / heads)), 4, permutation);
}

/* Layers of attention and two layers with GELU, norms before both, and a last norm. */
static dlc_value attention_layers(trainer *t, dlc_value x, int64_t n, int64_t tokens, int64_t d, bool causal) {
    const int64_t heads = setting(t, "heads", 4), permutation[] = {0, 2, 1, 3};
    dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    for (int64_t i = 0; i < setting(t, "layers", 2); i++) {
        dlc_value all = linear(t, norm(t, x, d), d, 3 * d, false), part[3];
        for (int k = 0; k < 3; k++) part[k] = heads_of(all, k, n, tokens, heads, d);
        count_products(t, (double)(n * tokens * tokens * d) * (causal ? 1 : 2), false);
        dlc_value y = dlc_transpose(dlc_attention_with(part[0], part[1], part[2], DLC_NONE, &options), 4, permutation);
        x = dlc_add(x, linear(t, shaped(y, DIMS(n, tokens, d)), d, d, false));
        y = dlc_gelu(linear(t, norm(t, x, d), d, 4 * d, false));
        x = dlc_add(x, linear(t, y, 4 * d, d, false));
    }
    return norm(t, x, d);
}

/* A decoder: the class of each token is the next one. */
static dlc_value transformer(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 8), tokens = setting(t, "tokens", 64), d = setting(t, "d", 128),
                  words = setting(t, "words", 256);
    const dlc_value ids = numbers_below(t, DIMS(n, tokens), words);
    *labels = numbers_below(t, DIMS(n * tokens), words);
    const dlc_value table = trained(t, DIMS(words, d), -1, 1);
    dlc_value x = dlc_add(dlc_embedding(table, ids), trained(t, DIMS(tokens, d), -1, 1));
    x = attention_layers(t, x, n, tokens, d, true);
    return linear(t, shaped(x, DIMS(n * tokens, d)), d, words, false);
}

/* A vision transformer of patches of 16 x 16 (Dosovitskiy et al. 2021), its classes told by their mean. */
static dlc_value vit(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 8), side = setting(t, "side", 224), d = setting(t, "d", 192),
                  rows = side / 16, apart[] = {0, 2, 4, 1, 3, 5}, axis = 1;
    dlc_value x = input(t, DIMS(n, 3, side, side));
    *labels = numbers_below(t, DIMS(n), 1000);
    x = dlc_transpose(shaped(x, DIMS(n, 3, rows, 16, rows, 16)), 6, apart);
    x = linear(t, shaped(x, DIMS(n, rows * rows, 3 * 16 * 16)), 3 * 16 * 16, d, true);
    x = dlc_add(x, trained(t, DIMS(rows * rows, d), -1, 1));
    x = attention_layers(t, x, n, rows * rows, d, false);
    return linear(t, dlc_mean(x, 1, &axis), d, 1000, false);
}

/* The mean of the rows of 16 ids in a large table. */
static dlc_value embedding(trainer *t, dlc_value *labels) {
    const int64_t n = setting(t, "batch", 256), words = setting(t, "words", 50000), d = setting(t, "d", 256), axis = 1;
    const dlc_value ids = numbers_below(t, DIMS(n, 16), words);
    *labels = numbers_below(t, DIMS(n), 10);
    return linear(t, dlc_mean(dlc_embedding(trained(t, DIMS(words, d), -1, 1), ids), 1, &axis), d, 10, false);
}

/* ---- the step ------------------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    dlc_value (*build)(trainer *t, dlc_value *labels);
} networks[] = {{"perceptron", perceptron},   {"cnn", cnn},   {"resnet18", resnet18},
                {"mobilenet2", mobilenet2},   {"unet", unet}, {"lstm", lstm},
                {"transformer", transformer}, {"vit", vit},   {"embedding", embedding}};

/* The mean loss, the first result. */
static dlc_value build_loss(trainer *t) {
    const char *name = bench_text(t->b->problem.shape, "network"),
               *narrow = bench_text(t->b->problem.shape, "products");
    dlc_value labels, loss = DLC_NONE;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        if (strcmp(networks[i].name, name) != 0) continue;
        loss = networks[i].build(t, &labels);
        loss = dlc_mean(dlc_cross_entropy(loss, labels, 1), 0, NULL);
    }
    if (narrow) dlc_mixed_precision(1, &loss, strcmp(narrow, "f16") == 0 ? DLC_F16 : DLC_BF16, &loss);
    t->b->problem.tolerance = narrow ? 0.05 : 0;
    return loss;
}

dlc_value bench_training_loss(bench_builder *b) {
    return build_loss(&(trainer){.b = b});
}

void bench_build_train(bench_builder *b) {
    trainer t = {.b = b};
    dlc_value gradients[BENCH_MAX_OPERANDS], loss = build_loss(&t);
    b->rate = b->problem.operand_count;
    const dlc_value rate = bench_case_operand(b, false, DLC_F32, 0, NULL, 1, 1);
    dlc_gradient(loss, t.count, t.weights, gradients);
    bench_case_result(b, loss);
    for (int i = 0; i < t.count; i++) {
        b->replaced[b->problem.result_count] = t.operands[i];
        bench_case_result(b, dlc_sub(t.weights[i], dlc_mul(gradients[i], rate)));
    }
}

/* ---- kind `backward`: single kernels of derivatives ---------------------------------------------------------------------------------- */

static dlc_value given(bench_builder *b, int rank, const int64_t *dims, double low, double high) {
    return bench_case_operand(b, false, DLC_F32, rank, dims, low, high);
}

/* A convolution of the line; x and y are its images, w its filters. */
typedef struct convolved {
    int64_t x[4], w[4], y[4], groups, stride[2], pad[2];
} convolved;

static convolved convolution_of(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    const int64_t n = bench_number(s, "n", 1), ci = bench_number(s, "ci", 1), co = bench_number(s, "co", 1),
                  h = bench_number(s, "h", 1), w = bench_number(s, "w", 1), kh = bench_number(s, "kh", 1),
                  kw = bench_number(s, "kw", 1), stride = bench_number(s, "stride", 1), pad = bench_number(s, "pad", 0),
                  groups = bench_number(s, "groups", 1), rows = (h + 2 * pad - kh) / stride + 1,
                  columns = (w + 2 * pad - kw) / stride + 1;
    b->problem.flops = 2 * (double)(n * co * rows * columns) * (double)(ci / groups * kh * kw);
    return (convolved){{n, ci, h, w}, {co, ci / groups, kh, kw}, {n, co, rows, columns},
                       groups,        {stride, stride},          {pad, pad}};
}

static dlc_value convolve(const convolved *c, dlc_value x, dlc_value w) {
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = c->stride, options.low = options.high = c->pad, options.groups = c->groups;
    return dlc_convolution_with(x, w, &options);
}

static dlc_value filters(bench_builder *b, const convolved *c) {
    return bench_case_operand(b, true, DLC_F32, 4, c->w, -0.1, 0.1);
}

/* By its weights, of operands x and dy. */
static void convolution_weights(bench_builder *b) {
    const convolved c = convolution_of(b);
    dlc_convolution_weights_options options = DLC_CONVOLUTION_WEIGHTS_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = c.stride, options.low = options.high = c.pad, options.groups = c.groups;
    const dlc_value x = given(b, 4, c.x, -1, 1), dy = given(b, 4, c.y, -1, 1);
    bench_case_result(b, dlc_convolution_weights_with(x, dy, 2, (dlc_dim[]){{c.w[2], NULL}, {c.w[3], NULL}}, &options));
}

/* By its input, of operands dy and w. */
static void convolution_input(bench_builder *b) {
    const convolved c = convolution_of(b);
    dlc_dim dims[4];
    for (int i = 0; i < 4; i++) dims[i] = (dlc_dim){c.x[i], NULL};
    const dlc_value dy = given(b, 4, c.y, -1, 1), w = filters(b, &c),
                    x = dlc_broadcast(dlc_scalar(b->graph, DLC_F32, 0), 4, dims, 0,
                                      NULL), /* its values do not matter */
        forward = convolve(&c, x, w);
    dlc_value dx;
    dlc_vjp(1, &forward, &dy, 1, &x, &dx);
    bench_case_result(b, dx);
}

static void convolution_forward(bench_builder *b) {
    const convolved c = convolution_of(b);
    const dlc_value x = given(b, 4, c.x, -1, 1);
    bench_case_result(b, convolve(&c, x, filters(b, &c)));
}

/* x w, x^T dy or dy w^T: x [rows, k], w [k, n], dy [rows, n]. */
static dlc_value product_of(bench_builder *b, bool x_turned, bool y_turned) {
    const bench_shape *s = b->problem.shape;
    const int64_t rows = bench_number(s, "rows", 1), k = bench_number(s, "k", 1), n = bench_number(s, "n", 1),
                  swap[] = {1, 0};
    dlc_value x = given(b, DIMS(rows, y_turned ? n : k), -1, 1), y = given(b, DIMS(x_turned ? rows : k, n), -1, 1);
    b->problem.flops = 2 * (double)(rows * k * n);
    if (x_turned) x = dlc_transpose(x, 2, swap);
    if (y_turned) y = dlc_transpose(y, 2, swap);
    return dlc_matmul(x, y);
}

static void product_weights(bench_builder *b) {
    bench_case_result(b, product_of(b, true, false));
}

static void product_input(bench_builder *b) {
    bench_case_result(b, product_of(b, false, true));
}

static void product_forward(bench_builder *b) {
    bench_case_result(b, product_of(b, false, false));
}

static dlc_value sum_kept(dlc_value x, int64_t axis) {
    dlc_reduce_sum_options kept = DLC_REDUCE_SUM_OPTIONS_INIT;
    kept.keep = true;
    return dlc_reduce_sum_with(x, 1, &axis, &kept);
}

/* y (dy - sum(y dy)) of y and dy. */
static void softmax_backward(bench_builder *b) {
    int64_t dims[DLC_MAX_RANK];
    const int rank = bench_numbers(bench_text(b->problem.shape, "shape"), dims);
    const dlc_value y = given(b, rank, dims, 0, 1), dy = given(b, rank, dims, -1, 1);
    bench_case_result(b, dlc_mul(y, dlc_sub(dy, sum_kept(dlc_mul(y, dy), rank - 1))));
}

/* 1 / deviation, or 1 / root of the mean of squares */
static dlc_value inverse_root(bench_builder *b, dlc_value variance) {
    return dlc_rsqrt(dlc_add(variance, dlc_scalar(b->graph, DLC_F32, 1e-5)));
}

/* Derivatives by x, scale and, with means, bias; of x, dy, scale, and each row's mean and variance, or mean of squares. */
static void row_norm_backward(bench_builder *b, bool means) {
    int64_t dims[DLC_MAX_RANK], rows = 0;
    bench_numbers(bench_text(b->problem.shape, "shape"), dims);
    const dlc_dim column[] = {{dims[0], NULL}, {1, NULL}};
    const dlc_value x = given(b, 2, dims, -1, 1), dy = given(b, 2, dims, -1, 1),
                    scale = given(b, 1, &dims[1], 0.5, 1.5),
                    mean = means ? dlc_reshape(given(b, 1, dims, -0.1, 0.1), 2, column) : DLC_NONE,
                    r = inverse_root(b, dlc_reshape(given(b, 1, dims, 0.2, 0.4), 2, column)),
                    n = dlc_mul(means ? dlc_sub(x, mean) : x, r), d = dlc_mul(dy, scale),
                    count = dlc_scalar(b->graph, DLC_F32, (double)dims[1]);
    const dlc_value across = means ? dlc_sub(d, dlc_div(sum_kept(d, 1), count)) : d,
                    along = dlc_mul(n, dlc_div(sum_kept(dlc_mul(n, d), 1), count));
    bench_case_result(b, dlc_mul(r, dlc_sub(across, along)));
    bench_case_result(b, dlc_reduce_sum(dlc_mul(dy, n), 1, &rows));
    if (means) bench_case_result(b, dlc_reduce_sum(dy, 1, &rows));
}

static void layer_norm_backward(bench_builder *b) {
    row_norm_backward(b, true);
}

static void rms_norm_backward(bench_builder *b) {
    row_norm_backward(b, false);
}

/* Derivatives by x, scale and bias, of x, dy, scale, and each channel's mean and variance. */
static void batch_norm_backward(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    const int64_t dims[] = {bench_number(s, "n", 1), bench_number(s, "c", 1), bench_number(s, "h", 1),
                            bench_number(s, "w", 1)},
                  each[] = {0, 2, 3}, channel[] = {dims[1], 1, 1};
    const dlc_value x = given(b, 4, dims, -1, 1), dy = given(b, 4, dims, -1, 1),
                    scale = given(b, 1, &dims[1], 0.5, 1.5), mean = given(b, 1, &dims[1], -0.1, 0.1),
                    r = inverse_root(b, given(b, 1, &dims[1], 0.2, 0.4)),
                    n = dlc_mul(dlc_sub(x, shaped(mean, 3, channel)), shaped(r, 3, channel)),
                    by_scale = dlc_reduce_sum(dlc_mul(dy, n), 3, each), by_bias = dlc_reduce_sum(dy, 3, each),
                    count = dlc_scalar(b->graph, DLC_F32, (double)(dims[0] * dims[2] * dims[3])),
                    across = dlc_sub(dy, shaped(dlc_div(by_bias, count), 3, channel)),
                    along = dlc_mul(n, shaped(dlc_div(by_scale, count), 3, channel));
    bench_case_result(b, dlc_mul(dlc_sub(across, along), shaped(dlc_mul(r, scale), 3, channel)));
    bench_case_result(b, by_scale);
    bench_case_result(b, by_bias);
}

/* Sizes of q, k and v: [batch, heads, tokens, d]. `products` of tokens x tokens x d are counted. */
static void attention_dims(bench_builder *b, int64_t dims[4], double products) {
    const bench_shape *s = b->problem.shape;
    dims[0] = bench_number(s, "batch", 1), dims[1] = bench_number(s, "heads", 1);
    dims[2] = bench_number(s, "tokens", 1), dims[3] = bench_number(s, "d", 1);
    b->problem.flops = 2 * products * (double)(dims[0] * dims[1] * dims[2] * dims[2] * dims[3]);
    if (bench_flag(s, "causal")) b->problem.flops /= 2;
}

/* The sum of products over these axes of x and y of rank 4, for each batch and head. */
static dlc_value contracted(dlc_value x, int64_t along_x, dlc_value y, int64_t along_y) {
    static const int64_t batch[] = {0, 1};
    dlc_dot_general_options options = DLC_DOT_GENERAL_OPTIONS_INIT;
    options.batch_x_count = options.batch_w_count = 2;
    options.batch_x = options.batch_w = batch;
    return dlc_dot_general_with(x, y, 1, &along_x, 1, &along_y, &options);
}

/* Derivatives by q, k and v, of these, the result y, the logarithms of the rows' sums, and dy (Dao 2023), as the library derives them. */
static void attention_backward(bench_builder *b) {
    int64_t dims[4];
    attention_dims(b, dims, 5);
    const double usual = log((double)dims[2]);
    const dlc_value q = given(b, 4, dims, -1, 1), k = given(b, 4, dims, -1, 1), v = given(b, 4, dims, -1, 1),
                    y = given(b, 4, dims, -0.1, 0.1), sums = given(b, 3, dims, usual, usual + 0.2),
                    dy = given(b, 4, dims, -1, 1), scale = dlc_scalar(b->graph, DLC_F32, 1 / sqrt((double)dims[3]));
    const dlc_value all = shaped(sums, 4, (int64_t[]){dims[0], dims[1], dims[2], 1}),
                    scores = dlc_mul(contracted(q, 3, k, 3), scale);
    const bool causal = bench_flag(b->problem.shape, "causal");
    const dlc_dim square[] = {{dims[2], NULL}, {dims[2], NULL}};
    const dlc_value seen = dlc_le(dlc_iota(b->graph, DLC_I64, 2, square, 1), dlc_iota(b->graph, DLC_I64, 2, square, 0)),
                    none = dlc_scalar(b->graph, DLC_F32, 0), along = sum_kept(dlc_mul(dy, y), 3),
                    by_weight = contracted(dy, 3, v, 3);
    dlc_value weight = dlc_exp(dlc_sub(scores, all));
    if (causal) weight = dlc_select(seen, weight, none);
    dlc_value d = dlc_mul(weight, dlc_sub(by_weight, along));
    if (causal) d = dlc_select(seen, d, none);
    d = dlc_mul(d, scale);
    bench_case_result(b, contracted(d, 3, k, 2));
    bench_case_result(b, contracted(d, 2, q, 2));
    bench_case_result(b, contracted(weight, 2, dy, 2));
}

static void attention_forward(bench_builder *b) {
    int64_t dims[4];
    attention_dims(b, dims, 2);
    dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
    options.causal = bench_flag(b->problem.shape, "causal");
    const dlc_value q = given(b, 4, dims, -1, 1), k = given(b, 4, dims, -1, 1), v = given(b, 4, dims, -1, 1);
    bench_case_result(b, dlc_attention_with(q, k, v, DLC_NONE, &options));
}

static const struct derivative {
    const char *name;
    /* forward: the operation that is derived, of as many products; NULL: not compared with */
    bench_build_function *build, *forward;
} derivatives[] = {{"product", product_weights, product_forward},
                   {"product input", product_input, product_forward},
                   {"convolution weights", convolution_weights, convolution_forward},
                   {"convolution input", convolution_input, convolution_forward},
                   {"attention", attention_backward, attention_forward},
                   {"softmax", softmax_backward, NULL},
                   {"layer_norm", layer_norm_backward, NULL},
                   {"rms_norm", rms_norm_backward, NULL},
                   {"batch_norm", batch_norm_backward, NULL}};

static const struct derivative *derivative_of(const bench_shape *shape) {
    for (size_t i = 0; i < sizeof derivatives / sizeof *derivatives; i++)
        if (strcmp(derivatives[i].name, shape->name) == 0) return &derivatives[i];
    return NULL;
}

void bench_build_backward(bench_builder *b) {
    derivative_of(b->problem.shape)->build(b);
}

/* ---- kinds `update` and `second` ------------------------------------------------------------------------------------------------------ */

/* An operand of w's shape, in whose place the result is written that is set by `replace`. */
static dlc_value state_like(bench_builder *b, dlc_value w, double low, double high) {
    const int64_t dims[] = {dlc_value_dim(w, 0).value, dlc_value_dim(w, 1).value};
    return given(b, 2, dims, low, high);
}

static void replace(bench_builder *b, int operand, dlc_value by) {
    b->replaced[b->problem.result_count] = operand;
    bench_case_result(b, by);
}

static dlc_value number(bench_builder *b, double value) {
    return dlc_scalar(b->graph, DLC_F32, value);
}

/* x^T dy = g, and w - rate g in place of w; or a step of Adam (Kingma & Ba 2015), with both moments in place. */
void bench_build_update(bench_builder *b) {
    const char *by = bench_text(b->problem.shape, "by");
    const dlc_value g = product_of(b, true, false);
    const int first = b->problem.operand_count;
    const dlc_value w = state_like(b, g, -1, 1);
    if (strcmp(by, "sgd") == 0) {
        replace(b, first, dlc_sub(w, dlc_mul(g, number(b, 1e-6))));
        return;
    }
    const dlc_value m = dlc_add(dlc_mul(state_like(b, g, -1, 1), number(b, 0.9)), dlc_mul(g, number(b, 0.1))),
                    v = dlc_add(dlc_mul(state_like(b, g, 0.1, 1), number(b, 0.999)),
                                dlc_mul(dlc_mul(g, g), number(b, 0.001))),
                    step = dlc_div(dlc_mul(m, number(b, 1e-6)), dlc_add(dlc_sqrt(v), number(b, 1e-8)));
    replace(b, first, dlc_sub(w, step));
    replace(b, first + 1, m);
    replace(b, first + 2, v);
}

/* The first result is the activation of x; if `both`, the second is x. */
static void activated(bench_builder *b, dlc_value x, bool both) {
    bench_case_result(b, strcmp(bench_text(b->problem.shape, "act"), "gelu") == 0 ? dlc_gelu(x) : dlc_relu(x));
    if (both) bench_case_result(b, x);
}

static void build_second(bench_builder *b, bool both) {
    const bench_shape *s = b->problem.shape;
    if (strcmp(s->name, "convolution") == 0) {
        const convolved c = convolution_of(b);
        const dlc_value x = given(b, 4, c.x, -1, 1), w = filters(b, &c);
        activated(b, dlc_add(convolve(&c, x, w), given(b, DIMS(c.w[0], 1, 1), -1, 1)), both);
        return;
    }
    const int64_t rows = bench_number(s, "rows", 1), k = bench_number(s, "k", 1), n = bench_number(s, "n", 1);
    const dlc_value x = given(b, DIMS(rows, k), -1, 1), w = bench_case_operand(b, true, DLC_F32, DIMS(k, n), -0.1, 0.1);
    b->problem.flops = 2 * (double)(rows * k * n);
    activated(b, dlc_linear(x, w, given(b, DIMS(n), -1, 1)), both);
}

void bench_build_second(bench_builder *b) {
    build_second(b, true);
}

static void one_result(bench_builder *b) {
    build_second(b, false);
}

/* ---- functions of the table of cases (cases.c) ---------------------------------------------------------------------------------------------------- */

static void build_loss_alone(bench_builder *b) {
    bench_case_result(b, bench_training_loss(b));
}

bench_build_function *bench_forward_of(const bench_shape *shape) {
    if (strcmp(shape->kind, "train") == 0) return build_loss_alone;
    if (strcmp(shape->kind, "update") == 0) return product_weights;
    if (strcmp(shape->kind, "second") == 0) return one_result;
    return strcmp(shape->kind, "backward") == 0 ? derivative_of(shape)->forward : NULL;
}

bool bench_trains(const bench_shape *shape) {
    const char *name = bench_text(shape, "network");
    if (strcmp(shape->kind, "backward") == 0) return derivative_of(shape) != NULL;
    const char *by = bench_text(shape, "by"), *act = bench_text(shape, "act");
    if (strcmp(shape->kind, "update") == 0) return by && (strcmp(by, "sgd") == 0 || strcmp(by, "adam") == 0);
    if (strcmp(shape->kind, "second") == 0)
        return act && (strcmp(act, "gelu") == 0 || strcmp(act, "relu") == 0) &&
               (strcmp(shape->name, "linear") == 0 || strcmp(shape->name, "convolution") == 0);
    for (size_t i = 0; name && i < sizeof networks / sizeof *networks; i++)
        if (strcmp(networks[i].name, name) == 0) return true;
    return false;
}
