/* Trains a transformer to continue a text, character by character, and lets it write: <dlc/train.h> with rates, clipping, dropout and a checkpoint.
 *
 *   train_text [FILE [STEPS [CHECKPOINT]]]      a plain text; default: the GPL of this system, 400 steps
 *
 * Three layers of width 128 with four heads and 64 characters of context (Vaswani et al. 2017, norms first). The last tenth of the text is not
 * trained on. With CHECKPOINT, a .safetensors file, the training goes on where the file left it, and the file is written at the end. */
#include <dlc/train.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 64, WIDTH = 128, HEADS = 4, LAYERS = 3, BATCH = 16, SEED = 1892, WRITTEN = 400 };
static const char default_file[] = "/usr/share/common-licenses/GPL-3";

static dlc_context *context;

static void check(dlc_status status, const char *what) {
    if (status == DLC_OK) return;
    fprintf(stderr, "train_text: %s: %s\n", what, dlc_error_message(context));
    exit(1);
}

/* ---- the text: characters as numbers 0 ... kinds - 1 ------------------------------------------------------------------ */

typedef struct text {
    int32_t *id;
    int64_t length, trained;
    int kinds;
    unsigned char character[256];
} text;

static text read_text(const char *path) {
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
    fprintf(stderr, "train_text: %s: not found, or too short\n", path);
    exit(1);
}

/* ---- the network ---------------------------------------------------------------------------------------------------------- */

/* layer -1: of none. deviation 0: `constant` everywhere */
static dlc_value parameter(dlc_training *t, int layer, const char *name, int rank, const int64_t *shape,
                           double deviation, double constant) {
    char full[32];
    dlc_parameter_options options = DLC_PARAMETER_OPTIONS_INIT;
    options.initial = deviation > 0 ? DLC_INITIAL_NORMAL : DLC_INITIAL_CONSTANT;
    options.scale = deviation > 0 ? deviation : constant;
    snprintf(full, sizeof full, "layer%d.%s", layer, name);
    return dlc_training_parameter(t, layer < 0 ? name : full, DLC_F32, rank, shape, &options);
}

static dlc_value norm(dlc_training *t, int layer, const char *name, dlc_value x) {
    return dlc_layer_norm(x, parameter(t, layer, name, 1, (int64_t[]){WIDTH}, 0, 1), DLC_NONE, -1);
}

static dlc_value product(dlc_training *t, int layer, const char *name, dlc_value x, int64_t in, int64_t out) {
    return dlc_matmul(x, parameter(t, layer, name, 2, (int64_t[]){in, out}, 0.02, 0));
}

static dlc_value dropout(dlc_training *t, dlc_value x) {
    return dlc_training_is_step(t) ? dlc_dropout(x, dlc_training_key(t), 0.1) : x;
}

/* [n, CONTEXT, WIDTH] as [n, HEADS, CONTEXT, WIDTH / HEADS] */
static dlc_value heads(dlc_value x) {
    const dlc_dim split[] = {dlc_value_dim(x, 0), {CONTEXT, NULL}, {HEADS, NULL}, {WIDTH / HEADS, NULL}};
    return dlc_transpose(dlc_reshape(x, 4, split), 4, (int64_t[]){0, 2, 1, 3});
}

static dlc_value attention(dlc_training *t, int layer, dlc_value x) {
    dlc_attention_options causal = DLC_ATTENTION_OPTIONS_INIT;
    causal.causal = true;
    dlc_value q = heads(product(t, layer, "query", x, WIDTH, WIDTH)),
              k = heads(product(t, layer, "key", x, WIDTH, WIDTH));
    dlc_value v = heads(product(t, layer, "value", x, WIDTH, WIDTH));
    dlc_value y = dlc_transpose(dlc_attention_with(q, k, v, DLC_NONE, &causal), 4, (int64_t[]){0, 2, 1, 3});
    y = dlc_reshape(y, 3, (dlc_dim[]){dlc_value_dim(x, 0), {CONTEXT, NULL}, {WIDTH, NULL}});
    return product(t, layer, "joined", y, WIDTH, WIDTH);
}

/* The mean loss of each next character; for evaluation also their scores [n, CONTEXT, kinds]. */
static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    const text *from = user;
    const dlc_dim shape[] = {{0, "n"}, {CONTEXT, NULL}};
    dlc_value ids = dlc_training_input(t, "ids", DLC_I32, 2, shape),
              next = dlc_training_input(t, "next", DLC_I32, 2, shape);
    dlc_value table = parameter(t, -1, "characters", 2, (int64_t[]){from->kinds, WIDTH}, 0.1, 0);
    dlc_value x =
        dlc_add(dlc_embedding(table, ids), parameter(t, -1, "places", 2, (int64_t[]){CONTEXT, WIDTH}, 0.1, 0));
    for (int l = 0; l < LAYERS; l++) {
        x = dlc_add(x, dropout(t, attention(t, l, norm(t, l, "norm1", x))));
        dlc_value wide = dlc_gelu(product(t, l, "wide", norm(t, l, "norm2", x), WIDTH, 4 * WIDTH));
        x = dlc_add(x, dropout(t, product(t, l, "narrow", wide, 4 * WIDTH, WIDTH)));
    }
    dlc_value scores = product(t, -1, "scores", norm(t, -1, "norm", x), WIDTH, from->kinds);
    if (!dlc_training_is_step(t)) dlc_training_output(t, "scores", scores);
    *loss = dlc_mean(dlc_cross_entropy(scores, next, 2), 0, NULL);
    return DLC_OK;
}

/* ---- training ------------------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static DLTensor characters(int32_t *id, int64_t *shape) {
    return (DLTensor){.data = id, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = shape};
}

/* Places of the batch are a function of the seed and the step. */
static double make_step(dlc_trainer *trainer, const text *t, int64_t step) {
    static int32_t ids[BATCH][CONTEXT], next[BATCH][CONTEXT];
    int64_t shape[] = {BATCH, CONTEXT};
    uint64_t seed = SEED + (uint64_t)step;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    next_random(&seed);
    for (int i = 0; i < BATCH; i++) {
        const int32_t *at = t->id + next_random(&seed) % (t->trained - CONTEXT);
        memcpy(ids[i], at, sizeof ids[i]);
        memcpy(next[i], at + 1, sizeof next[i]);
    }
    DLTensor x = characters(ids[0], shape), y = characters(next[0], shape);
    check(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &report, NULL, 0), "step");
    return report.loss;
}

/* The loss of up to 64 pieces that are not trained on. */
static double validate(dlc_trainer *trainer, const text *t) {
    int64_t n = (t->length - t->trained - 1) / CONTEXT, shape[] = {n < 64 ? n : 64, CONTEXT};
    double loss;
    DLTensor x = characters(t->id + t->trained, shape), y = characters(t->id + t->trained + 1, shape);
    check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x, &y}, 2, &loss, NULL, 0), "evaluation");
    return loss;
}

/* Draws one character at a time, after the text's first ones. */
static void write_text(dlc_trainer *trainer, const text *t) {
    int32_t ids[CONTEXT];
    int64_t one[] = {1, CONTEXT}, shape[] = {1, CONTEXT, t->kinds};
    uint64_t seed = SEED;
    float *scores = malloc(CONTEXT * (size_t)t->kinds * sizeof *scores);
    if (!scores) exit(1);
    DLTensor x = characters(ids, one),
             y = {.data = scores, .device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    memcpy(ids, t->id, sizeof ids);
    for (int i = 0; i < WRITTEN; i++) {
        dlc_output_slot slot = {&y, NULL};
        check(dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x, &x}, 2, NULL, &slot, 1), "writing");
        const float *last = scores + (CONTEXT - 1) * (size_t)t->kinds;
        double sum = 0, greatest = last[0];
        for (int k = 1; k < t->kinds; k++) greatest = fmax(greatest, last[k]);
        for (int k = 0; k < t->kinds; k++) sum += exp((last[k] - greatest) / 0.8);
        double left = sum * next_random(&seed) / 0x1p31;
        int chosen = 0;
        while (chosen < t->kinds - 1 && (left -= exp((last[chosen] - greatest) / 0.8)) > 0) chosen++;
        putchar(t->character[chosen]);
        memmove(ids, ids + 1, sizeof ids - sizeof *ids);
        ids[CONTEXT - 1] = chosen;
    }
    putchar('\n');
    free(scores);
}

int main(int count, char **words) {
    const int64_t steps = count > 2 ? atoll(words[2]) : 400;
    const char *checkpoint = count > 3 ? words[3] : NULL;
    text t = read_text(count > 1 ? words[1] : default_file);
    char rate[96];
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    dlc_context_options threads = DLC_CONTEXT_OPTIONS_INIT;
    threads.threads = 64; /* as many as there are processors */
    snprintf(rate, sizeof rate, "0.002*min(1, step/40)*(0.55 + 0.45*cos(3.14159265*min(1, step/%lld)))",
             (long long)steps);
    options.rate = rate;
    options.clip_norm = 1;
    options.seed = SEED;
    check(dlc_context_create(&threads, &context), "context");
    check(dlc_trainer_create(context, build, &t, &options, &trainer), "trainer");
    FILE *earlier = checkpoint ? fopen(checkpoint, "rb") : NULL;
    if (earlier) {
        fclose(earlier);
        check(dlc_trainer_load(trainer, checkpoint), "checkpoint");
    }
    DLManagedTensorVersioned *made;
    check(dlc_trainer_tensor(trainer, "trainer.step", &made), "steps");
    int64_t step = *(const int64_t *)made->dl_tensor.data;
    made->deleter(made);
    printf("%lld characters of %d kinds\n", (long long)t.length, t.kinds);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    const int64_t first = step;
    for (double mean = 0; step < steps; step++) {
        mean += (make_step(trainer, &t, step) - mean) * (step == first ? 1 : 0.05);
        if ((step + 1) % 50 && step + 1 < steps) continue;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double seconds = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
        printf("step %5lld  loss %.3f  not trained on %.3f  %6.0f characters/s\n", (long long)step + 1, mean,
               validate(trainer, &t), (double)((step + 1 - first) * BATCH * CONTEXT) / seconds);
        fflush(stdout);
    }
    write_text(trainer, &t);
    if (checkpoint) check(dlc_trainer_save(trainer, checkpoint), "checkpoint");
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    free(t.id);
    return 0;
}
