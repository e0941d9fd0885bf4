/* What train_text.c and train_lstm.c share: a text as numbers, training a network to continue it, and writing with the network.
 *
 *   PROGRAM [FILE [STEPS [CHECKPOINT]]]      a plain text; default: the GPL of this system, 400 steps
 *
 * The last tenth of the text is not trained on. With CHECKPOINT, a .safetensors file, the training goes on where the file left it, and the file is
 * written at the end; if there is none, also before the first step, so that a place that cannot be written is told at once. Seeds are
 * fixed: each run prints the same losses. */
#ifndef EXAMPLES_TEXT_H
#define EXAMPLES_TEXT_H

#include "training.h"

#include <math.h>
#include <string.h>

enum { CONTEXT = 64, BATCH = 16, SEED = 1892, WRITTEN = 400 };

/* Characters as numbers 0 ... kinds - 1 */
typedef struct text {
    int32_t *id;
    int64_t length, trained;
    int kinds;
    unsigned char character[256];
} text;

static inline text read_text(const char *path) {
    text t = {0};
    int number[256], c;
    FILE *file = fopen(path, "rb");
    size_t room = 0;
    for (int i = 0; i < 256; i++) number[i] = -1;
    while (file && (c = getc(file)) != EOF) {
        if ((size_t)t.length == room) {
            room = room ? 2 * room : 1 << 16;
            int32_t *more = realloc(t.id, room * sizeof *more);
            if (!more) exit(1);
            t.id = more;
        }
        if (number[c] < 0) {
            number[c] = t.kinds;
            t.character[t.kinds++] = (unsigned char)c;
        }
        t.id[t.length++] = number[c];
    }
    if (file) fclose(file);
    t.trained = t.length * 9 / 10;
    if (t.length - t.trained > CONTEXT + 1) return t;
    fprintf(stderr, "%s: not found, or too short\n", path);
    exit(1);
}

static inline DLTensor characters(int32_t *id, int64_t *shape) {
    return tensor(kDLInt, 32, id, 2, shape);
}

/* A tensor of characters [n, CONTEXT], with n = BATCH in steps. */
static inline dlc_value input_of(dlc_training *t, const char *name) {
    const dlc_dim rows = {dlc_training_is_step(t) ? BATCH : 0, dlc_training_is_step(t) ? NULL : "n"};
    return dlc_training_input(t, name, DLC_I32, 2, (dlc_dim[]){rows, {CONTEXT, NULL}});
}

/* The mean loss of scores [n, CONTEXT, kinds] of the characters "next"; evaluation gives the scores, too. */
static inline dlc_value loss_of(dlc_training *t, dlc_value scores) {
    if (!dlc_training_is_step(t)) dlc_training_output(t, "scores", scores);
    return dlc_mean(dlc_cross_entropy(scores, input_of(t, "next"), 2), 0, NULL);
}

/* Row i of a batch: with `follow` the text from its i-th part on, piece after piece, else anywhere; a function of the seed and the step. */
static inline double make_step(dlc_trainer *trainer, const text *t, int64_t step, bool follow) {
    static int32_t ids[BATCH][CONTEXT], next[BATCH][CONTEXT];
    int64_t shape[] = {BATCH, CONTEXT};
    uint64_t seed = SEED + (uint64_t)step;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    next_random(&seed);
    for (int i = 0; i < BATCH; i++) {
        const int64_t places = t->trained - CONTEXT, part = i * (places / BATCH) + step * CONTEXT;
        const int32_t *at = t->id + (follow ? part : next_random(&seed)) % places;
        memcpy(ids[i], at, sizeof ids[i]);
        memcpy(next[i], at + 1, sizeof next[i]);
    }
    DLTensor x = characters(*ids, shape), y = characters(*next, shape);
    check(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &report, NULL, 0), "step");
    return report.loss;
}

/* The loss of up to 64 pieces that are not trained on. */
static inline double validate(dlc_trainer *trainer, const text *t) {
    int64_t n = (t->length - t->trained - 1) / CONTEXT, shape[] = {n < 64 ? n : 64, CONTEXT};
    double loss;
    DLTensor x = characters(t->id + t->trained, shape), y = characters(t->id + t->trained + 1, shape);
    check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &loss, NULL, 0), "evaluation");
    return loss;
}

/* Draws one character at a time, after the text's first ones. */
static inline void write_text(dlc_trainer *trainer, const text *t) {
    int32_t ids[CONTEXT];
    int64_t one[] = {1, CONTEXT}, shape[] = {1, CONTEXT, t->kinds};
    uint64_t seed = SEED;
    float *scores = malloc(CONTEXT * (size_t)t->kinds * sizeof *scores);
    if (!scores) exit(1);
    DLTensor x = characters(ids, one), y = tensor(kDLFloat, 32, scores, 3, shape);
    memcpy(ids, t->id, sizeof ids);
    for (int i = 0; i < WRITTEN; i++) {
        dlc_output_slot slot = {&y, NULL};
        check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x, &x}, 2, NULL, &slot, 1), "writing");
        const float *last = scores + (CONTEXT - 1) * (size_t)t->kinds;
        double sum = 0, greatest = (double)last[0];
        for (int k = 1; k < t->kinds; k++) greatest = fmax(greatest, (double)last[k]);
        for (int k = 0; k < t->kinds; k++) sum += exp(((double)last[k] - greatest) / 0.8);
        double left = sum * next_random(&seed) / 0x1p31;
        int chosen = 0;
        while (chosen < t->kinds - 1 && (left -= exp(((double)last[chosen] - greatest) / 0.8)) > 0) chosen++;
        putchar(t->character[chosen]);
        memmove(ids, ids + 1, sizeof ids - sizeof *ids);
        ids[CONTEXT - 1] = chosen;
    }
    putchar('\n');
    free(scores);
}

static inline int64_t steps_made(dlc_trainer *trainer) {
    DLManagedTensorVersioned *made;
    check(dlc_trainer_tensor(trainer, "trainer.step", &made), "steps");
    const int64_t steps = *(const int64_t *)made->dl_tensor.data;
    made->deleter(made);
    return steps;
}

static inline void train(dlc_trainer *trainer, const text *t, int64_t steps, bool follow) {
    const double begin = seconds();
    const int64_t first = steps_made(trainer);
    double mean = 0;
    printf("%lld characters of %d kinds\n", (long long)t->length, t->kinds);
    for (int64_t step = first; step < steps; step++) {
        mean += (make_step(trainer, t, step, follow) - mean) * (step == first ? 1 : 0.05);
        if ((step + 1) % 50 && step + 1 < steps) continue;
        printf("step %5lld  loss %.3f  not trained on %.3f  %6.0f characters/s\n", (long long)step + 1, mean,
               validate(trainer, t), (double)((step + 1 - first) * BATCH * CONTEXT) / (seconds() - begin));
        fflush(stdout);
    }
}

/* The main function. `build` is given the text; greatest: the rate after a warm-up, which then falls to a tenth. */
static inline int train_on_text(int count, char **words, dlc_training_function *build, double greatest, bool follow) {
    const int64_t steps = count > 2 ? atoll(words[2]) : 400;
    const char *checkpoint = count > 3 ? words[3] : NULL;
    text t = read_text(count > 1 ? words[1] : "/usr/share/common-licenses/GPL-3");
    char rate[96];
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    snprintf(rate, sizeof rate, "%g*min(1, step/40)*(0.55 + 0.45*cos(3.14159265*min(1, step/%lld)))", greatest,
             (long long)steps);
    options.rate = rate;
    options.clip_norm = 1;
    options.seed = SEED;
    open_context();
    check(dlc_trainer_create(context, build, &t, &options, &trainer), "trainer");
    FILE *earlier = checkpoint ? fopen(checkpoint, "rb") : NULL;
    if (earlier) fclose(earlier);
    if (checkpoint) check((earlier ? dlc_trainer_load : dlc_trainer_save)(trainer, checkpoint), "checkpoint");
    train(trainer, &t, steps, follow);
    write_text(trainer, &t);
    if (checkpoint) check(dlc_trainer_save(trainer, checkpoint), "checkpoint");
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    free(t.id);
    return 0;
}

#endif
