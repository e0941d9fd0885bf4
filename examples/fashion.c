/* Trains a network to name pictures of clothes, Fashion-MNIST (Xiao et al. 2017): convolutions, and batch norm with carried statistics.
 *
 *   fashion [FOLDER [EPOCHS]]     default: 8 epochs
 *
 * FOLDER holds the four .gz files of Fashion-MNIST, or digits.csv. Default: the files of `make examples-data` or of Debian's package
 * dataset-fashion-mnist, or else, which is told, the digits of examples/data. What tells the accuracy is not trained on; width, rate and epochs were
 * chosen on the last 10,000 of the pictures that are, training on the others. Seeds are fixed: each run prints the same losses. */
#include "data.h"
#include "digits/network.h"
#include "training.h"

#include <math.h>
#include <zlib.h>

enum { CLASSES = 10, BATCH = 96, EVALUATED = 500, SEED = 2017, WIDTH = 32 };

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
    uint8_t *all = allocate((size_t)*count + 1, each);
    const int bytes = *count * (int)each;
    good = good && gzread(file, all, (unsigned)bytes) == bytes;
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
    for (int i = 0; i < p.count && i < count; i++) p.label[i] = label[i];
    free(label);
    return p;
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

/* Convolution of 3x3, the greatest of each 2x2, batch norm, ReLU. */
static dlc_value block(dlc_training *t, dlc_value x, int layer, int64_t in, int64_t out) {
    char name[32];
    dlc_convolution_options padded = DLC_CONVOLUTION_OPTIONS_INIT;
    padded.low_count = padded.high_count = 2;
    padded.low = padded.high = (const int64_t[]){1, 1};
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};
    snprintf(name, sizeof name, "convolution%d", layer);
    dlc_value w = parameter(t, name, 4, (int64_t[]){out, in, 3, 3}, sqrt(2 / (9.0 * (double)in)));
    x = dlc_max_pool_with(dlc_convolution_with(x, w, &padded), 2, (const int64_t[]){2, 2}, &every_other);
    return dlc_relu(norm(t, x, layer, out));
}

/* The mean cross entropy; for evaluation the classes. */
static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    dlc_graph *g = dlc_training_graph(t);
    const dlc_dim shape[] = {{0, "n"}, {1, NULL}, {side, NULL}, {side, NULL}};
    dlc_value x = dlc_cast(dlc_training_input(t, "pixels", DLC_U8, 4, shape), DLC_F32);
    x = dlc_div(x, dlc_scalar(g, DLC_F32, highest));
    int64_t channels = 1;
    for (int layer = 0; layer < 3; layer++) {
        x = block(t, x, layer, channels, WIDTH << layer);
        channels = WIDTH << layer;
    }
    x = dlc_mean(x, 2, (int64_t[]){2, 3});
    dlc_value scores =
        dlc_linear(x, parameter(t, "dense", 2, (int64_t[]){channels, CLASSES}, sqrt(1 / (double)channels)),
                   parameter(t, "bias", 1, (int64_t[]){CLASSES}, 0));
    if (!dlc_training_is_step(t)) {
        dlc_training_output(t, "class", dlc_arg_max(scores, 1));
        return DLC_OK;
    }
    dlc_value labels = dlc_training_input(t, "labels", DLC_I32, 1, shape);
    *loss = dlc_mean(dlc_cross_entropy(scores, labels, 1), 0, NULL);
    return DLC_OK;
}

/* ---- training --------------------------------------------------------------------------------------------------------------- */

/* The loss. */
static double make_step(dlc_trainer *trainer, const int64_t *rows) {
    static uint8_t pixels[BATCH * 28 * 28];
    static int32_t labels[BATCH];
    static uint64_t seed = SEED;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    for (int i = 0; i < BATCH; i++) {
        take(pixels + i * side * side, &trained, rows[i], mirrored && next_random(&seed) % 2);
        labels[i] = trained.label[rows[i]];
    }
    DLTensor x = tensor(kDLUInt, 8, pixels, 4, (int64_t[]){BATCH, 1, side, side}),
             y = tensor(kDLInt, 32, labels, 1, (int64_t[]){BATCH});
    check(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &report, NULL, 0), "step");
    return report.loss;
}

/* Percent of what is held out. */
static double accuracy(dlc_trainer *trainer) {
    static int64_t class[EVALUATED];
    int right = 0;
    for (int first = 0, count; first < held_out.count; first += count) {
        count = held_out.count - first < EVALUATED ? held_out.count - first : EVALUATED;
        DLTensor x = tensor(kDLUInt, 8, held_out.pixels + first * side * side, 4, (int64_t[]){count, 1, side, side});
        DLTensor y = tensor(kDLInt, 64, class, 1, (int64_t[]){count});
        dlc_output_slot slot = {&y, NULL};
        check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x}, 1, NULL, &slot, 1), "evaluation");
        for (int i = 0; i < count; i++) right += class[i] == held_out.label[first + i];
    }
    return 100.0 * right / held_out.count;
}

int main(int count, char **words) {
    const int epochs = count > 2 ? atoi(words[2]) : 8;
    char rate[96];
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    read_data(count > 1 ? words[1] : NULL);
    const int steps = trained.count / BATCH;
    int64_t *order = allocate((size_t)trained.count, sizeof *order);
    /* up to 0.01 in the first epoch, then falling to 0 */
    snprintf(rate, sizeof rate, "0.005*min(1, step/%d)*(1 + cos(3.14159265*step/%d))", steps, epochs * steps);
    options.rate = rate;
    options.seed = SEED;
    open_context();
    check(dlc_trainer_create(context, build, NULL, &options, &trainer), "trainer");
    const double begin = seconds();
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double sum = 0;
        dlc_training_order(SEED, epoch, trained.count, order);
        for (int step = 0; step < steps; step++) sum += make_step(trainer, order + step * BATCH);
        printf("epoch %2d  loss %.4f  held out %5.2f %%  %4.0f s\n", epoch, sum / steps, accuracy(trainer),
               seconds() - begin);
        fflush(stdout);
    }
    printf("%d pictures trained on for %.0f s; of %d others %.2f %% are right\n", trained.count, seconds() - begin,
           held_out.count, accuracy(trainer));
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    free(order);
    close_pictures(&trained);
    close_pictures(&held_out);
    return 0;
}
