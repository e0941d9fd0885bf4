/* Trains a network on the digits of examples/data with <dlc/train.h>, and tells how many of those that it has not seen it classifies.
 *
 *   train [FOLDER]       the folder of digits.csv; default examples/data
 *
 * Network, [n, 1, 8, 8] to the scores of ten classes: convolution 1->16, ReLU; 16->32, ReLU, maximum of 2x2; 32->32, ReLU; 512->64, ReLU; 64->10.
 * The first 1,347 rows are trained on, the last 450 only tell the accuracy; rate, smoothing, moves and epochs were chosen on rows 1,047 to 1,346, training on those
 * before. Seeds are fixed: each run prints the same losses. */
#include <dlc/train.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 1797, TRAINED = 1347, HELD_OUT = ROWS - TRAINED, PIXELS = 64, BATCH = 64, EPOCHS = 60, SEED = 1998 };

static dlc_context *context;

static void check(dlc_status status, const char *what) {
    if (status == DLC_OK) return;
    fprintf(stderr, "train: %s: %s\n", what, dlc_error_message(context));
    exit(1);
}

/* ---- the network ----------------------------------------------------------------------------------------------------- */

/* A weight of variance 2/inputs (He et al. 2015), for outputs that are sums of so many products. */
static dlc_value weight(dlc_training *t, const char *name, int rank, const int64_t *shape, double inputs) {
    dlc_parameter_options options = DLC_PARAMETER_OPTIONS_INIT;
    options.initial = DLC_INITIAL_UNIFORM;
    options.scale = sqrt(6 / inputs);
    return dlc_training_parameter(t, name, DLC_F32, rank, shape, &options);
}

static dlc_value convolution(dlc_training *t, dlc_value x, const char *name, int64_t in, int64_t out) {
    char bias[32];
    dlc_convolution_options padded = DLC_CONVOLUTION_OPTIONS_INIT;
    padded.low_count = padded.high_count = 2;
    padded.low = padded.high = (const int64_t[]){1, 1};
    snprintf(bias, sizeof bias, "%s.bias", name);
    dlc_value w = weight(t, name, 4, (int64_t[]){out, in, 3, 3}, (double)in * 9);
    dlc_value b = dlc_training_parameter(t, bias, DLC_F32, 3, (int64_t[]){out, 1, 1}, NULL);
    return dlc_relu(dlc_add(dlc_convolution_with(x, w, &padded), b));
}

static dlc_value dense(dlc_training *t, dlc_value x, const char *name, int64_t in, int64_t out) {
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return dlc_linear(x, weight(t, name, 2, (int64_t[]){in, out}, (double)in),
                      dlc_training_parameter(t, bias, DLC_F32, 1, (int64_t[]){out}, NULL));
}

/* The mean cross entropy, with a tenth of each label spread over all classes; for evaluation the classes. */
static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    dlc_graph *g = dlc_training_graph(t);
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};
    dlc_value pixels =
        dlc_training_input(t, "pixels", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
    dlc_value x = dlc_div(pixels, dlc_scalar(g, DLC_F32, 16));
    x = convolution(t, convolution(t, x, "conv1", 1, 16), "conv2", 16, 32);
    x = dlc_max_pool_with(x, 2, (const int64_t[]){2, 2}, &every_other);
    x = dlc_reshape(convolution(t, x, "conv3", 32, 32), 2, (dlc_dim[]){{0, "n"}, {512, NULL}});
    dlc_value scores = dense(t, dlc_relu(dense(t, x, "dense1", 512, 64)), "dense2", 64, 10);
    if (!dlc_training_is_step(t)) {
        dlc_training_output(t, "class", dlc_arg_max(scores, 1));
        return DLC_OK;
    }
    dlc_value labels = dlc_training_input(t, "labels", DLC_I32, 1, (dlc_dim[]){{0, "n"}});
    dlc_value right = dlc_mean(dlc_cross_entropy(scores, labels, 1), 0, NULL);
    dlc_value spread = dlc_neg(dlc_mean(dlc_log_softmax(scores, 1), 0, NULL));
    *loss = dlc_add(dlc_mul(right, dlc_scalar(g, DLC_F32, 0.9)), dlc_mul(spread, dlc_scalar(g, DLC_F32, 0.1)));
    return DLC_OK;
}

/* ---- data -------------------------------------------------------------------------------------------------------------- */

static float image[ROWS][PIXELS];
static int32_t label[ROWS];

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

static DLTensor tensor(DLDataTypeCode code, int bits, void *data, int rank, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}, .shape = shape};
}

/* The image, moved by up to one pixel to a side, or up or down, as `random` says: as good an example of the digit. */
static void move_image(float to[PIXELS], const float from[PIXELS], uint32_t random) {
    const int by = (int)(random % 3) - 1, sideways = random / 3 % 2, dx = sideways ? by : 0, dy = sideways ? 0 : by;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            const int inside = y + dy >= 0 && y + dy < 8 && x + dx >= 0 && x + dx < 8;
            to[y * 8 + x] = inside ? from[(y + dy) * 8 + x + dx] : 0;
        }
}

/* ---- training --------------------------------------------------------------------------------------------------------- */

/* The loss. */
static double make_step(dlc_trainer *trainer, const int64_t *rows, int count) {
    static float pixels[BATCH][PIXELS];
    static int32_t labels[BATCH];
    static uint32_t random = SEED;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    for (int i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        move_image(pixels[i], image[rows[i]], random >> 16);
        labels[i] = label[rows[i]];
    }
    DLTensor x = tensor(kDLFloat, 32, pixels, 4, (int64_t[]){count, 1, 8, 8}),
             y = tensor(kDLInt, 32, labels, 1, (int64_t[]){count});
    check(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &report, NULL, 0), "step");
    return report.loss;
}

static double accuracy(dlc_trainer *trainer) {
    static int64_t class[HELD_OUT];
    DLTensor x = tensor(kDLFloat, 32, image[TRAINED], 4, (int64_t[]){HELD_OUT, 1, 8, 8}),
             y = tensor(kDLInt, 64, class, 1, (int64_t[]){HELD_OUT});
    dlc_output_slot out = {&y, NULL};
    int right = 0;
    check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x}, 1, NULL, &out, 1), "evaluation");
    for (int i = 0; i < HELD_OUT; i++) right += class[i] == label[TRAINED + i];
    return 100.0 * right / (double)HELD_OUT;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **words) {
    static int64_t order[TRAINED];
    const int steps = (TRAINED + BATCH - 1) / BATCH;
    char rate[64];
    read_rows(count > 1 ? words[1] : "examples/data");
    check(dlc_context_create(NULL, &context), "context");
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    snprintf(rate, sizeof rate, "0.001*(1 + cos(3.14159265*step/%d))", EPOCHS * steps); /* 0.002, falling to 0 */
    options.optimizer = "adam";
    options.rate = rate;
    options.seed = SEED;
    check(dlc_trainer_create(context, build, NULL, &options, &trainer), "trainer");
    const double begin = seconds();
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double sum = 0;
        dlc_training_order(SEED, epoch, TRAINED, order);
        for (int at = 0; at < TRAINED; at += BATCH)
            sum += make_step(trainer, order + at, TRAINED - at < BATCH ? TRAINED - at : BATCH);
        const double loss = sum / steps;
        if (epoch % 4 == 0)
            printf("epoch %2d  loss %.4f  held out %5.2f %%  %.*s\n", epoch, loss, accuracy(trainer),
                   (int)(40 * fmin(loss, 1)), "########################################");
        fflush(stdout);
    }
    const double right = accuracy(trainer);
    printf("%d rows trained on for %.1f s; of %d others %.2f %% are right\n", TRAINED, seconds() - begin, HELD_OUT,
           right);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    return right >= 97.5 ? 0 : 1;
}
