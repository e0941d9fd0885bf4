/* Trains a network on the digits of examples/data: <dlc/gradient.h> for the gradients, Adam written out in a dozen lines. One program makes a
 * step: loss, gradients, update. Parameters and moments are donated, so that a step writes them where they are.
 *
 *   train [FOLDER]       the folder of digits.csv; default examples/data
 *
 * Network, [n, 1, 8, 8] to the scores of ten classes: convolution 1->16, ReLU; 16->32, ReLU, maximum of 2x2; 32->32, ReLU; 512->64, ReLU; 64->10.
 * The first 1,347 rows are trained on, the last 450 only tell the accuracy; rate, smoothing and epochs were chosen on rows 1,047 to 1,346, training on those
 * before. Seeds are fixed: each run prints the same losses. */
#include <dlc/gradient.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROWS = 1797,
    TRAINED = 1347,
    HELD_OUT = ROWS - TRAINED,
    PIXELS = 64,
    CLASSES = 10,
    BATCH = 64,
    EPOCHS = 60,
    STEPS = (TRAINED + BATCH - 1) / BATCH
};
enum { PARAMETERS = 10, STATE = 3 * PARAMETERS + 1 }; /* parameters, first moments, second moments, number of steps */

static const struct {
    const char *name;
    int rank;
    int64_t shape[4];
    int inputs; /* of one output: the size of initial weights; 0: a bias */
} parameter[PARAMETERS] = {
    {"conv1.weight", 4, {16, 1, 3, 3}, 9},    {"conv1.bias", 1, {16}, 0},
    {"conv2.weight", 4, {32, 16, 3, 3}, 144}, {"conv2.bias", 1, {32}, 0},
    {"conv3.weight", 4, {32, 32, 3, 3}, 288}, {"conv3.bias", 1, {32}, 0},
    {"dense1.weight", 2, {512, 64}, 512},     {"dense1.bias", 1, {64}, 0},
    {"dense2.weight", 2, {64, 10}, 64},       {"dense2.bias", 1, {10}, 0},
};

static dlc_context *context;

static void check(dlc_status status, const char *what) {
    if (status == DLC_OK) return;
    fprintf(stderr, "train: %s: %s\n", what, dlc_error_message(context));
    exit(1);
}

/* ---- the network ----------------------------------------------------------------------------------------------------- */

static dlc_value convolution(dlc_value x, dlc_value weight, dlc_value bias) {
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.low_count = options.high_count = 2;
    options.low = options.high = (const int64_t[]){1, 1};
    dlc_dim per_channel[] = {dlc_value_dim(bias, 0), {1, NULL}, {1, NULL}};
    return dlc_relu(dlc_add(dlc_convolution_with(x, weight, &options), dlc_reshape(bias, 3, per_channel)));
}

static dlc_value network(dlc_graph *g, dlc_value pixels, const dlc_value *p) {
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};
    dlc_value x = dlc_div(pixels, dlc_scalar(g, DLC_F32, 16));
    x = convolution(convolution(x, p[0], p[1]), p[2], p[3]);
    x = convolution(dlc_max_pool_with(x, 2, (const int64_t[]){2, 2}, &every_other), p[4], p[5]);
    x = dlc_reshape(x, 2, (const dlc_dim[]){dlc_value_dim(pixels, 0), {512, NULL}});
    return dlc_linear(dlc_relu(dlc_linear(x, p[6], p[7])), p[8], p[9]);
}

static dlc_value input_like(dlc_graph *g, const char *prefix, int i) {
    char name[64];
    dlc_dim dim[4];
    for (int d = 0; d < parameter[i].rank; d++) dim[d] = (dlc_dim){parameter[i].shape[d], NULL};
    snprintf(name, sizeof name, "%s%s", prefix, parameter[i].name);
    return dlc_input(g, name, DLC_F32, parameter[i].rank, dim);
}

static dlc_value pixels_input(dlc_graph *g) {
    return dlc_input(g, "pixels", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
}

static dlc_program *compile(dlc_graph *g) {
    dlc_program *program;
    check(dlc_compile(context, g, NULL, &program), "compile");
    dlc_graph_destroy(g);
    return program;
}

/* a*x + b*y */
static dlc_value mix(dlc_graph *g, double a, dlc_value x, double b, dlc_value y) {
    return dlc_add(dlc_mul(x, dlc_scalar(g, DLC_F32, a)), dlc_mul(y, dlc_scalar(g, DLC_F32, b)));
}

/* Inputs: pixels, labels, state. Outputs: loss, state after a step of Adam (Kingma & Ba 2015). */
static dlc_program *step_program(void) {
    const double rate = 0.002, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, smoothing = 0.1, total = EPOCHS * STEPS;
    dlc_graph *g;
    check(dlc_graph_create(context, &g), "graph");
    dlc_value pixels = pixels_input(g), labels = dlc_input(g, "labels", DLC_I32, 1, (dlc_dim[]){{0, "n"}});
    dlc_value p[PARAMETERS], m[PARAMETERS], v[PARAMETERS], gradient[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) p[i] = input_like(g, "", i);
    for (int i = 0; i < PARAMETERS; i++) m[i] = input_like(g, "m.", i);
    for (int i = 0; i < PARAMETERS; i++) v[i] = input_like(g, "v.", i);
    dlc_value one = dlc_scalar(g, DLC_F32, 1), steps = dlc_add(dlc_input(g, "steps", DLC_F32, 0, NULL), one);

    dlc_value scores = network(g, pixels, p), loss = dlc_mean(dlc_cross_entropy(scores, labels, 1), 0, NULL);
    dlc_value spread =
        dlc_neg(dlc_mean(dlc_log_softmax(scores, 1), 0, NULL)); /* smooth labels: a part of each for all classes */
    dlc_gradient(mix(g, 1 - smoothing, loss, smoothing, spread), PARAMETERS, p, gradient);

    dlc_value bias1 = dlc_sub(one, dlc_pow(dlc_scalar(g, DLC_F32, beta1), steps));
    dlc_value bias2 = dlc_sub(one, dlc_pow(dlc_scalar(g, DLC_F32, beta2), steps));
    /* from `rate` to 0 along half a cosine */
    dlc_value angle = dlc_mul(steps, dlc_scalar(g, DLC_F32, 3.141592653589793 / total));
    dlc_value now = mix(g, -rate / 2, dlc_cos(angle), -rate / 2, one);
    dlc_output(g, "loss", loss);
    for (int i = 0; i < PARAMETERS; i++) {
        m[i] = mix(g, beta1, m[i], 1 - beta1, gradient[i]);
        v[i] = mix(g, beta2, v[i], 1 - beta2, dlc_mul(gradient[i], gradient[i]));
        dlc_value size = dlc_add(dlc_sqrt(dlc_div(v[i], bias2)), dlc_scalar(g, DLC_F32, epsilon));
        p[i] = dlc_add(p[i], dlc_mul(now, dlc_div(dlc_div(m[i], bias1), size)));
    }
    for (int i = 0; i < PARAMETERS; i++) dlc_output(g, parameter[i].name, p[i]);
    for (int i = 0; i < PARAMETERS; i++) dlc_output(g, NULL, m[i]);
    for (int i = 0; i < PARAMETERS; i++) dlc_output(g, NULL, v[i]);
    dlc_output(g, "steps", steps);
    dlc_program *program = compile(g);
    for (int i = 0; i < STATE; i++) check(dlc_program_alias(program, 1 + i, 2 + i), "alias");
    return program;
}

/* Inputs: pixels, parameters. Output: the class. */
static dlc_program *class_program(void) {
    dlc_graph *g;
    check(dlc_graph_create(context, &g), "graph");
    dlc_value pixels = pixels_input(g), p[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) p[i] = input_like(g, "", i);
    dlc_output(g, "class", dlc_arg_max(network(g, pixels, p), 1));
    return compile(g);
}

/* ---- data and state ------------------------------------------------------------------------------------------------- */

static float image[ROWS][PIXELS];
static int32_t label[ROWS];
static DLTensor state[STATE];

static void read_rows(const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/digits.csv", folder);
    FILE *file = fopen(path, "r");
    int good = file != NULL;
    for (int row = 0; good && row < ROWS; row++) {
        for (int i = 0; good && i < PIXELS; i++) good = fscanf(file, "%f,", &image[row][i]) == 1;
        good = good && fscanf(file, "%d", &label[row]) == 1;
    }
    if (file) fclose(file);
    if (good) return;
    fprintf(stderr, "train: %s: not found, or not %d rows of %d pixels and a label\n", path, ROWS, PIXELS);
    exit(1);
}

/* A number of [0, 1). */
static double next_random(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return (double)(*seed >> 11) * 0x1p-53;
}

static DLTensor tensor(DLDataType type, void *data, int rank, const int64_t *shape) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = (int64_t *)shape};
}
static const DLDataType f32 = {kDLFloat, 32, 1}, i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1};

/* Weights of variance 2/inputs (He et al. 2015), everything else 0. */
static void make_state(uint64_t seed) {
    for (int s = 0; s < STATE; s++) {
        const int i = s % PARAMETERS, scalar = s == STATE - 1;
        size_t count = 1;
        for (int d = 0; !scalar && d < parameter[i].rank; d++) count *= (size_t)parameter[i].shape[d];
        float *data = calloc(count, sizeof *data);
        if (!data) exit(1);
        for (size_t k = 0; s < PARAMETERS && parameter[i].inputs && k < count; k++)
            data[k] = (float)((2 * next_random(&seed) - 1) * sqrt(6.0 / parameter[i].inputs));
        state[s] = tensor(f32, data, scalar ? 0 : parameter[i].rank, scalar ? NULL : parameter[i].shape);
    }
}

/* ---- training --------------------------------------------------------------------------------------------------------- */

static float make_step(dlc_program *step, const int *rows, int count) {
    static float pixels[BATCH][PIXELS];
    static int32_t labels[BATCH];
    float loss;
    for (int i = 0; i < count; i++) {
        memcpy(pixels[i], image[rows[i]], sizeof pixels[i]);
        labels[i] = label[rows[i]];
    }
    DLTensor x = tensor(f32, pixels, 4, (int64_t[]){count, 1, 8, 8}), y = tensor(i32, labels, 1, (int64_t[]){count});
    DLTensor l = tensor(f32, &loss, 0, NULL);
    const DLTensor *in[2 + STATE] = {&x, &y};
    dlc_output_slot out[1 + STATE] = {{&l, NULL}};
    for (int s = 0; s < STATE; s++) in[2 + s] = out[1 + s].tensor = &state[s];
    check(dlc_run(step, NULL, in, 2 + STATE, out, 1 + STATE), "step");
    return loss;
}

static double accuracy(dlc_program *classify) {
    static int64_t class[HELD_OUT];
    DLTensor x = tensor(f32, image[TRAINED], 4, (int64_t[]){HELD_OUT, 1, 8, 8}),
             y = tensor(i64, class, 1, (int64_t[]){HELD_OUT});
    const DLTensor *in[1 + PARAMETERS] = {&x};
    dlc_output_slot out = {&y, NULL};
    int right = 0;
    for (int i = 0; i < PARAMETERS; i++) in[1 + i] = &state[i];
    check(dlc_run(classify, NULL, in, 1 + PARAMETERS, &out, 1), "classify");
    for (int i = 0; i < HELD_OUT; i++) right += class[i] == label[TRAINED + i];
    return 100.0 * right / (double)HELD_OUT;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **words) {
    int order[TRAINED];
    uint64_t seed = 1998;
    read_rows(count > 1 ? words[1] : "examples/data");
    check(dlc_context_create(NULL, &context), "context");
    dlc_program *step = step_program(), *classify = class_program();
    make_state(seed);
    for (int i = 0; i < TRAINED; i++) order[i] = i;
    const double begin = seconds();
    double right = 0;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double sum = 0;
        int steps = 0;
        for (int i = TRAINED - 1; i > 0; i--) { /* a random order */
            const int k = (int)(next_random(&seed) * (i + 1)), other = order[k];
            order[k] = order[i];
            order[i] = other;
        }
        for (int at = 0; at < TRAINED; at += BATCH, steps++)
            sum += make_step(step, order + at, TRAINED - at < BATCH ? TRAINED - at : BATCH);
        right = accuracy(classify);
        const double loss = sum / steps;
        const int bar = (int)(40 * (loss < 1 ? loss : 1));
        if (epoch % 4 == 0)
            printf("epoch %2d  loss %.4f  held out %5.2f %%  %.*s\n", epoch, loss, right, bar,
                   "########################################");
        fflush(stdout);
    }
    printf("%d rows trained on for %.1f s; of %d others %.2f %% are right\n", TRAINED, seconds() - begin, HELD_OUT,
           right);
    for (int s = 0; s < STATE; s++) free(state[s].data);
    dlc_program_destroy(step);
    dlc_program_destroy(classify);
    dlc_context_destroy(context);
    return right >= 97.5 ? 0 : 1;
}
