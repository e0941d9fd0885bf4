/* Trains the network of digits/ with <dlc/train.h>, and tells how many of the digits that it has not seen it classifies.
 *
 *   train [FOLDER [WEIGHTS]]     FOLDER holds digits.csv (default examples/data); WEIGHTS, a .safetensors file, is written for digits and classify
 *
 * The first 1,347 rows are trained on, the last 450 only tell the accuracy; rate, smoothing, moves and epochs were chosen on rows 1,047 to 1,346, training on those
 * before. Seeds are fixed: each run prints the same losses. */
#include "digits/network.h"
#include "training.h"

#include <math.h>

enum { TRAINED = DIGITS_ROWS - DIGITS_HELD_OUT, BATCH = 64, EPOCHS = 60, SEED = 1998 };

static digits *data;

/* ---- the network ----------------------------------------------------------------------------------------------------- */

/* A weight of variance 2/inputs (He et al. 2015), for outputs that are sums of so many products; biases are zeros. */
static dlc_value weight(void *user, const char *name, int rank, const int64_t *shape) {
    const int64_t inputs = rank == 4 ? shape[1] * shape[2] * shape[3] : shape[0];
    return parameter(user, name, rank, shape, rank == 1 ? 0 : sqrt(2 / (double)inputs));
}

/* The mean cross entropy, with a tenth of each label spread over all classes; for evaluation the classes. */
static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    dlc_graph *g = dlc_training_graph(t);
    dlc_value pixels =
        dlc_training_input(t, "pixels", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
    dlc_value scores = digits_network(g, pixels, weight, t);
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

/* ---- training --------------------------------------------------------------------------------------------------------- */

/* The image, moved by up to one pixel to a side, or up or down, as `random` says: as good an example of the digit. */
static void move_image(float to[DIGITS_PIXELS], const float from[DIGITS_PIXELS], uint32_t random) {
    const int by = (int)(random % 3) - 1, sideways = random / 3 % 2, dx = sideways ? by : 0, dy = sideways ? 0 : by;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            const int inside = y + dy >= 0 && y + dy < 8 && x + dx >= 0 && x + dx < 8;
            to[y * 8 + x] = inside ? from[(y + dy) * 8 + x + dx] : 0;
        }
}

/* The loss. */
static double make_step(dlc_trainer *trainer, const int64_t *rows, int count) {
    static float pixels[BATCH][DIGITS_PIXELS];
    static int32_t labels[BATCH];
    static uint64_t seed = SEED;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    for (int i = 0; i < count; i++) {
        move_image(pixels[i], data->pixels[rows[i]], next_random(&seed));
        labels[i] = data->label[rows[i]];
    }
    DLTensor x = tensor(kDLFloat, 32, pixels, 4, (int64_t[]){count, 1, 8, 8}),
             y = tensor(kDLInt, 32, labels, 1, (int64_t[]){count});
    check(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &report, NULL, 0), "step");
    return report.loss;
}

static double accuracy(dlc_trainer *trainer) {
    static int64_t class[DIGITS_HELD_OUT];
    DLTensor x = tensor(kDLFloat, 32, data->pixels[TRAINED], 4, (int64_t[]){DIGITS_HELD_OUT, 1, 8, 8}),
             y = tensor(kDLInt, 64, class, 1, (int64_t[]){DIGITS_HELD_OUT});
    dlc_output_slot out = {&y, NULL};
    int right = 0;
    check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x}, 1, NULL, &out, 1), "evaluation");
    for (int i = 0; i < DIGITS_HELD_OUT; i++) right += class[i] == data->label[TRAINED + i];
    return 100.0 * right / (double)DIGITS_HELD_OUT;
}

int main(int count, char **words) {
    static int64_t order[TRAINED];
    const int steps = (TRAINED + BATCH - 1) / BATCH;
    char rate[64];
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    if (!(data = digits_load(count > 1 ? words[1] : "examples/data"))) return 1;
    open_context();
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
    printf("%d rows trained on for %.1f s; of %d others %.2f %% are right\n", TRAINED, seconds() - begin,
           DIGITS_HELD_OUT, right);
    if (count > 2) check(dlc_trainer_save_weights(trainer, words[2]), words[2]);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    digits_free(data);
    return right >= 97.5 ? 0 : 1;
}
