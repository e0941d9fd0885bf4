/* Trains a network to name pictures of clothes, Fashion-MNIST (Xiao et al. 2017): convolutions, batch norm with carried statistics. With --student it then
 * trains a network of a tenth of its parameters, nearly as wide, but of separable convolutions: by the labels alone, and also by the scores of the first, its
 * teacher (distillation, Hinton et al. 2015).
 *
 *   fashion [--student] [FOLDER [EPOCHS]]     default: 8 epochs, of students twice as many
 *
 * FOLDER holds the four .gz files of Fashion-MNIST, or digits.csv. Default: the files of `make examples-data` or of Debian's package
 * dataset-fashion-mnist, or else, which is told, the digits of examples/data. What tells the accuracy is not trained on; the network's width, rate and epochs
 * were chosen on the last 10,000 of the pictures that are, training on the others. Seeds are fixed: each run prints the same losses. */
#include "data.h"
#include "digits/network.h"
#include "training.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <zlib.h>

enum { CLASSES = 10, BATCH = 96, EVALUATED = 500, SEED = 2017, WIDTH = 32, STUDENT_WIDTH = 26, HEAT = 2 };

/* ---- data -------------------------------------------------------------------------------------------------------------- */

typedef struct pictures {
    /* [count][side * side], in rows; 0 ... highest */
    uint8_t *pixels;
    int32_t *label;
    int count;
} pictures;

static int side, highest;
static bool mirrored; /* a picture's mirror image is as good an example of its class */
static pictures trained, held_out;

static void *allocate(size_t count, size_t size) {
    void *made = calloc(count, size);
    if (made) return made;
    fprintf(stderr, "fashion: no memory\n");
    exit(1);
}

/* The elements of an .idx file of bytes, behind a head of one word and one for each dimension. */
static uint8_t *read_idx(const char *folder, const char *name, int dimensions, int *count, size_t each) {
    char path[DATA_PATH];
    uint8_t head[16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, "rb");
    const int length = 4 + 4 * dimensions;
    bool good = file && gzread(file, head, (unsigned)length) == length && head[2] == 8 && head[3] == dimensions;
    *count = good ? head[5] << 16 | head[6] << 8 | head[7] : 0;
    const size_t bytes = (size_t)*count * each;
    good = good && bytes <= INT_MAX;
    uint8_t *all = allocate(good ? bytes + 1 : 1, 1);
    good = good && gzread(file, all, (unsigned)bytes) == (int)bytes;
    if (file) gzclose(file);
    if (good) return all;
    fprintf(stderr, "fashion: %s: not found, or not Fashion-MNIST\n", path);
    exit(1);
}

static pictures read_pictures(const char *folder, const char *images, const char *labels) {
    int count;
    pictures p = {0};
    p.pixels = read_idx(folder, images, 3, &p.count, 28 * 28);
    uint8_t *label = read_idx(folder, labels, 1, &count, 1);
    p.label = allocate((size_t)p.count, sizeof *p.label);
    bool good = count == p.count;
    for (int i = 0; good && i < count; i++) good = (p.label[i] = label[i]) < CLASSES;
    free(label);
    if (good) return p;
    fprintf(stderr, "fashion: %s/%s: not one of %d classes for each picture\n", folder, labels, CLASSES);
    exit(1);
}

static pictures digits_from(const digits *d, int first, int count) {
    pictures p = {allocate((size_t)count, DIGITS_PIXELS), allocate((size_t)count, sizeof *p.label), count};
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < DIGITS_PIXELS; k++) p.pixels[i * DIGITS_PIXELS + k] = (uint8_t)d->pixels[first + i][k];
        p.label[i] = d->label[first + i];
    }
    return p;
}

static void close_pictures(pictures *p) {
    free(p->pixels);
    free(p->label);
}

static bool has_pictures(const char *folder) {
    char path[DATA_PATH];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    return access(path, R_OK) == 0;
}

/* folder NULL: the default */
static void read_data(const char *folder) {
    char fetched[DATA_PATH];
    data_path(fetched, "fashion-mnist");
    const char *clothes = folder ? folder : has_pictures(fetched) ? fetched : "/usr/share/datasets/fashion-mnist";
    if (has_pictures(clothes)) {
        side = 28, highest = 255, mirrored = true;
        trained = read_pictures(clothes, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz");
        held_out = read_pictures(clothes, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz");
        return;
    }
    printf("no Fashion-MNIST in %s (`make examples-data` fetches it): digits stand in for it\n", clothes);
    digits *d = digits_load(folder ? folder : "examples/data");
    if (!d) exit(1);
    side = 8, highest = 16, mirrored = false;
    trained = digits_from(d, 0, DIGITS_ROWS - DIGITS_HELD_OUT);
    held_out = digits_from(d, DIGITS_ROWS - DIGITS_HELD_OUT, DIGITS_HELD_OUT);
    digits_free(d);
}

/* Picture `row` of p, as it is or its mirror image. */
static void take(uint8_t *to, const pictures *p, int64_t row, bool mirror) {
    const uint8_t *from = p->pixels + row * side * side;
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) to[y * side + x] = from[y * side + (mirror ? side - 1 - x : x)];
}

/* ---- the network --------------------------------------------------------------------------------------------------------- */

typedef struct model {
    const char *name;
    int width;
    bool separable; /* all convolutions but the first: one of each channel by itself, then one of 1x1 */
    /* [2][trained.count][CLASSES], scores of the teacher for each picture and for its mirror image; NULL: no teacher */
    float *taught;
    dlc_trainer *trainer;
} model;

/* Batch norm: a step uses the statistics of the batch, and carries a running mean of them, which evaluation uses. */
static dlc_value norm(dlc_training *t, dlc_value x, int layer, int64_t channels) {
    static const char *const names[] = {"scale", "bias", "mean", "variance"};
    char full[4][32];
    dlc_value v[4], result[3];
    dlc_parameter_options ones = DLC_PARAMETER_OPTIONS_INIT;
    ones.scale = 1;
    for (int i = 0; i < 4; i++) {
        snprintf(full[i], sizeof full[i], "norm%d.%s", layer, names[i]);
        v[i] = (i < 2 ? dlc_training_parameter : dlc_training_carried)(t, full[i], DLC_F32, 1, &channels,
                                                                       i % 3 == 0 ? &ones : NULL);
    }
    if (!dlc_training_is_step(t)) return dlc_batch_norm(x, v[0], v[1], v[2], v[3], 1);
    dlc_batch_norm_training(x, v[0], v[1], v[2], v[3], 1, 3, result);
    dlc_training_carry(t, full[2], result[1]);
    dlc_training_carry(t, full[3], result[2]);
    return result[0];
}

static dlc_value convolution(dlc_training *t, dlc_value x, const char *name, int layer, int64_t in, int64_t out,
                             int64_t size, int64_t groups, double gain) {
    char full[32];
    const int64_t each = in / groups, border = size / 2;
    dlc_convolution_options padded = DLC_CONVOLUTION_OPTIONS_INIT;
    padded.low_count = padded.high_count = 2;
    padded.low = padded.high = (const int64_t[]){border, border};
    padded.groups = groups;
    snprintf(full, sizeof full, "%s%d", name, layer);
    return dlc_convolution_with(
        x, parameter(t, full, 4, (int64_t[]){out, each, size, size}, sqrt(gain / (double)(each * size * size))),
        &padded);
}

/* Convolution of 3x3, the greatest of each 2x2, batch norm, ReLU. */
static dlc_value block(dlc_training *t, dlc_value x, int layer, int64_t in, int64_t out, bool separable) {
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};
    if (separable) {
        x = convolution(t, x, "depthwise", layer, in, in, 3, in, 1);
        x = convolution(t, x, "pointwise", layer, in, out, 1, 1, 2);
    } else {
        x = convolution(t, x, "convolution", layer, in, out, 3, 1, 2);
    }
    x = dlc_max_pool_with(x, 2, (const int64_t[]){2, 2}, &every_other);
    return dlc_relu(norm(t, x, layer, out));
}

/* How far the student's probabilities are from the teacher's, both of scores / HEAT, so that small probabilities count, too; by the square of HEAT, so that
 * its gradients are as large as those of scores. */
static dlc_value divergence(dlc_graph *g, dlc_value scores, dlc_value taught) {
    dlc_value heat = dlc_scalar(g, DLC_F32, HEAT);
    dlc_kl_divergence_options each = DLC_KL_DIVERGENCE_OPTIONS_INIT;
    each.reduction = DLC_KL_DIVERGENCE_REDUCTION_NONE;
    dlc_value apart =
        dlc_kl_divergence_with(dlc_log_softmax(dlc_div(scores, heat), 1), dlc_softmax(dlc_div(taught, heat), 1), &each);
    return dlc_mul(dlc_mean(dlc_reduce_sum(apart, 1, (int64_t[]){1}), 0, NULL), dlc_scalar(g, DLC_F32, HEAT * HEAT));
}

/* Of build's convolutions, norms and dense layer. */
static int parameters_of(const model *m) {
    int count = (4 * m->width + 1) * CLASSES;
    for (int layer = 0, in = 1; layer < 3; layer++) {
        const int out = m->width << layer;
        count += (m->separable && layer > 0 ? (9 + out) * in : 9 * in * out) + 2 * out;
        in = out;
    }
    return count;
}

static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    const model *m = user;
    dlc_graph *g = dlc_training_graph(t);
    const dlc_dim shape[] = {{0, "n"}, {1, NULL}, {side, NULL}, {side, NULL}};
    dlc_value x = dlc_cast(dlc_training_input(t, "pixels", DLC_U8, 4, shape), DLC_F32);
    x = dlc_div(x, dlc_scalar(g, DLC_F32, highest));
    int64_t channels = 1;
    for (int layer = 0; layer < 3; layer++) {
        x = block(t, x, layer, channels, (int64_t)m->width << layer, m->separable && layer > 0);
        channels = (int64_t)m->width << layer;
    }
    x = dlc_mean(x, 2, (int64_t[]){2, 3});
    dlc_value scores =
        dlc_linear(x, parameter(t, "dense", 2, (int64_t[]){channels, CLASSES}, sqrt(1 / (double)channels)),
                   parameter(t, "bias", 1, (int64_t[]){CLASSES}, 0));
    if (!dlc_training_is_step(t)) {
        dlc_training_output(t, "scores", scores);
        return DLC_OK;
    }
    dlc_value labels = dlc_training_input(t, "labels", DLC_I32, 1, shape);
    *loss = dlc_mean(dlc_cross_entropy(scores, labels, 1), 0, NULL);
    if (!m->taught) return DLC_OK;
    dlc_value taught = dlc_training_input(t, "taught", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {CLASSES, NULL}});
    *loss = dlc_mul(dlc_add(*loss, divergence(g, scores, taught)), dlc_scalar(g, DLC_F32, 0.5));
    return DLC_OK;
}

/* ---- training --------------------------------------------------------------------------------------------------------------- */

static double make_step(const model *m, const int64_t *rows, uint64_t *seed) {
    static uint8_t pixels[BATCH * 28 * 28];
    static int32_t labels[BATCH];
    static float taught[BATCH][CLASSES];
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    for (int i = 0; i < BATCH; i++) {
        const bool mirror = mirrored && next_random(seed) % 2;
        take(pixels + i * side * side, &trained, rows[i], mirror);
        labels[i] = trained.label[rows[i]];
        if (m->taught) memcpy(taught[i], m->taught + (mirror * trained.count + rows[i]) * CLASSES, sizeof taught[i]);
    }
    DLTensor x = tensor(kDLUInt, 8, pixels, 4, (int64_t[]){BATCH, 1, side, side}),
             y = tensor(kDLInt, 32, labels, 1, (int64_t[]){BATCH}),
             z = tensor(kDLFloat, 32, taught, 2, (int64_t[]){BATCH, CLASSES});
    check(dlc_trainer_step(m->trainer, NULL, (const DLTensor *[]){&x, &y, &z}, m->taught ? 3 : 2, &report, NULL, 0),
          "step");
    return report.loss;
}

/* scores[count][CLASSES] of all pictures, or of their mirror images */
static void evaluate(const model *m, const pictures *p, bool mirror, float *scores) {
    static uint8_t pixels[EVALUATED * 28 * 28];
    for (int first = 0; first < p->count; first += EVALUATED) {
        const int count = p->count - first < EVALUATED ? p->count - first : EVALUATED;
        for (int i = 0; i < count; i++) take(pixels + i * side * side, p, first + i, mirror);
        DLTensor x = tensor(kDLUInt, 8, pixels, 4, (int64_t[]){count, 1, side, side}),
                 y = tensor(kDLFloat, 32, scores + first * CLASSES, 2, (int64_t[]){count, CLASSES});
        dlc_output_slot slot = {&y, NULL};
        check(dlc_trainer_evaluate(m->trainer, NULL, (const DLTensor *[]){&x}, 1, NULL, &slot, 1), "evaluation");
    }
}

/* Percent of the held-out pictures that the network names rightly. */
static double accuracy(const model *m) {
    float *scores = allocate((size_t)held_out.count * CLASSES, sizeof *scores);
    int right = 0;
    evaluate(m, &held_out, false, scores);
    for (int i = 0; i < held_out.count; i++) {
        const float *at = scores + i * CLASSES;
        int best = 0;
        for (int k = 1; k < CLASSES; k++) best = at[k] > at[best] ? k : best;
        right += best == held_out.label[i];
    }
    free(scores);
    return 100.0 * right / held_out.count;
}

/* Returns the accuracy at the end. */
static double train(model *m, int epochs) {
    const int steps = trained.count / BATCH;
    int64_t *order = allocate((size_t)trained.count, sizeof *order);
    uint64_t seed = SEED;
    double right = 0;
    char rate[96];
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    snprintf(rate, sizeof rate, "0.005*min(1, step/%d)*(1 + cos(3.14159265*step/%d))", steps, epochs * steps);
    options.rate = rate;
    options.seed = SEED;
    check(dlc_trainer_create(context, build, m, &options, &m->trainer), m->name);
    printf("%s: %d parameters\n", m->name, parameters_of(m));
    const double begin = seconds();
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double sum = 0;
        dlc_training_order(SEED, epoch, trained.count, order);
        for (int step = 0; step < steps; step++) sum += make_step(m, order + step * BATCH, &seed);
        right = accuracy(m);
        printf("epoch %2d  loss %.4f  held out %5.2f %%  %4.0f s\n", epoch, sum / steps, right, seconds() - begin);
        fflush(stdout);
    }
    free(order);
    return right;
}

int main(int count, char **words) {
    const bool student = count > 1 && strcmp(words[1], "--student") == 0;
    const int epochs = count > 2 + student ? atoi(words[2 + student]) : 8;
    if (epochs < 1 || epochs > 1000)
        return fprintf(stderr, "usage: fashion [--student] [FOLDER [EPOCHS]]     EPOCHS: 1 to 1000\n"), 1;
    const int students_epochs = 2 * epochs;
    model teacher = {"network", WIDTH, false, NULL, NULL},
          alone = {"student, by labels alone", STUDENT_WIDTH, true, NULL, NULL},
          taught = {"student, taught by the network", STUDENT_WIDTH, true, NULL, NULL};
    read_data(count > 1 + student ? words[1 + student] : NULL);
    open_context();
    const double best = train(&teacher, epochs);
    if (student) {
        const double by_labels = train(&alone, students_epochs);
        taught.taught = allocate(2 * (size_t)trained.count * CLASSES, sizeof *taught.taught);
        for (int i = 0; i <= mirrored; i++)
            evaluate(&teacher, &trained, i, taught.taught + i * trained.count * CLASSES);
        const double by_teacher = train(&taught, students_epochs);
        printf("of %d held out the student, taught, names %.2f %%; alone %.2f %%\n", held_out.count, by_teacher,
               by_labels);
    }
    printf("of %d held out the network names %.2f %%\n", held_out.count, best);
    dlc_trainer_destroy(teacher.trainer);
    dlc_trainer_destroy(alone.trainer);
    dlc_trainer_destroy(taught.trainer);
    dlc_context_destroy(context);
    free(taught.taught);
    close_pictures(&trained);
    close_pictures(&held_out);
    return 0;
}
