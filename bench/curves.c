/* Proof of training: a transformer learns the characters of a text by <dlc/train.h>, and everything that another framework needs to do the same is
 * written to a file: curves TEXT STEPS FILE.
 *
 * Prints a line for each step's loss and, at the end, one for that of the last tenth of the text, which is not trained on. The file has what
 * peers of steps of training are told (peer_python.c): the line of the case, operands, no results; then the number of batches, and of each the
 * bytes of x and of the labels; the last one is the text that is not trained on. */
#include "bench/cases.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, CONTEXT = 64 };
static const char line[] = "train network=transformer layers=3 d=128 heads=4 tokens=64 batch=16 words=256";

static dlc_context *context;

static void check(dlc_status status, const char *what) {
    if (status == DLC_OK) return;
    fprintf(stderr, "curves: %s: %s: %s\n", what, dlc_status_text(status), dlc_error_message(context));
    exit(1);
}

typedef struct batch {
    int64_t x[BATCH][CONTEXT], next[BATCH][CONTEXT];
} batch;

/* Pieces of the text from start(i) on. */
static void take(batch *b, const unsigned char *text, const size_t start[BATCH]) {
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < CONTEXT; k++)
            b->x[i][k] = text[start[i] + (size_t)k], b->next[i][k] = text[start[i] + (size_t)k + 1];
}

/* count + 1 batches: from random places of the first nine tenths; at the end, from places at equal distances of the rest. */
static batch *read_batches(const char *path, int64_t count) {
    static unsigned char text[1 << 20];
    FILE *file = fopen(path, "rb");
    const size_t length = file ? fread(text, 1, sizeof text, file) : 0, trained = length * 9 / 10;
    if (file) fclose(file);
    batch *batches = malloc((size_t)(count + 1) * sizeof *batches);
    if (!batches || length - trained < 2 * CONTEXT) {
        fprintf(stderr, "curves: %s: not found, or too short\n", path);
        exit(1);
    }
    uint64_t state = 88172645463325252u;
    size_t start[BATCH];
    for (int64_t b = 0; b <= count; b++) {
        for (size_t i = 0; i < BATCH; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64, Marsaglia 2003 */
            start[i] = b < count ? (size_t)(state % (trained - CONTEXT))
                                 : trained + i * (length - trained - CONTEXT - 1) / (BATCH - 1);
        }
        take(&batches[b], text, start);
    }
    return batches;
}

/* ---- ours ------------------------------------------------------------------------------------------------------------------------- */

/* Builders of the step and of evaluation, in the order in which the trainer asks for them. */
typedef struct programs {
    bench_shape shape;
    bench_builder builders[4];
    int count;
} programs;

static dlc_status build(void *user, dlc_training *training, dlc_value *loss) {
    programs *p = user;
    if (p->count == sizeof p->builders / sizeof *p->builders) return DLC_INTERNAL;
    bench_builder *b = &p->builders[p->count++];
    *b = (bench_builder){.problem.shape = &p->shape, .graph = dlc_training_graph(training), .training = training};
    *loss = bench_training_loss(b);
    return DLC_OK;
}

static double lose(dlc_trainer *trainer, batch *b, bool learns) {
    int64_t shape[] = {BATCH, CONTEXT}, all = BATCH * CONTEXT;
    DLTensor x = {.data = b->x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = shape}, next = x;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    next.data = b->next, next.ndim = 1, next.shape = &all;
    const DLTensor *tensors[] = {&x, &next};
    if (learns)
        check(dlc_trainer_step(trainer, NULL, tensors, 2, &report, NULL, 0), "step");
    else
        check(dlc_trainer_evaluate(trainer, NULL, tensors, 2, &report.loss, NULL, 0), "evaluation");
    return report.loss;
}

/* ---- what peers are told ---------------------------------------------------------------------------------------------------------- */

static bool write_case(const char *path, const bench_problem *p, const batch *batches, int64_t count) {
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    fprintf(file, "%s\n%d 0\n", p->shape->text, p->operand_count);
    for (int i = 0; i < p->operand_count; i++) {
        const bench_operand *o = &p->operands[i];
        fprintf(file, "%s", o->dtype == DLC_I64 ? "i64" : "f32");
        for (int d = 0; d < o->rank; d++) fprintf(file, " %lld", (long long)o->dims[d]);
        fprintf(file, "\n");
        fwrite(o->data, 1, o->bytes, file);
    }
    fprintf(file, "%lld\n", (long long)count + 1);
    const bool good = fwrite(batches, sizeof *batches, (size_t)count + 1, file) == (size_t)count + 1;
    return (fclose(file) == 0) & good;
}

int main(int count, char **words) {
    const int64_t steps = count > 2 ? atoll(words[2]) : 0;
    if (count != 4 || steps <= 0) return fputs("curves TEXT STEPS FILE\n", stderr), 2;
    batch *batches = read_batches(words[1], steps);
    programs *p = calloc(1, sizeof *p);
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    options.optimizer = "adam"; /* at its usual settings and the rate 0.001 */
    if (!p || !bench_shape_parse(&p->shape, line)) return 2;
    check(dlc_context_create(NULL, &context), "context");
    check(dlc_trainer_create(context, build, p, &options, &trainer), "trainer");
    if (!write_case(words[3], &p->builders[0].problem, batches, steps)) {
        fprintf(stderr, "curves: cannot write %s\n", words[3]);
        return 1;
    }
    for (int64_t i = 0; i <= steps; i++) printf("%.9g\n", lose(trainer, &batches[i], i < steps));
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    for (int i = 0; i < p->count; i++) bench_case_release(&p->builders[i]);
    free(p);
    free(batches);
    return 0;
}
