/* Decoding: a sequence from its first token on, token by token, libdlc and ONNX Runtime by turns of a few tokens. */
#include "bench/bench.h"
#include "bench/models/suite.h"
#include "bench/stats.h"

#include <stdlib.h>
#include <time.h>

/* settled: the first token for which no kernel may be built */
enum { TOKENS = 384, TURN = 16, SETTLED = 8, SEQUENCES = 2 };

/* The sequence as one engine decodes it. */
typedef struct writer {
    const engine_decoder *decoder;
    void *state;
    int64_t token;
    double seconds;
} writer;

static int64_t best_of(const float *logits, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Decodes one token. `next` is fed instead of the token that the engine would choose; -1: the engine's own. */
static bool write_token(writer *w, int64_t next) {
    int64_t count;
    const double begin = bench_now();
    const float *logits = w->decoder->step(w->state, w->token, &count);
    w->seconds += bench_now() - begin;
    if (logits) w->token = next < 0 ? best_of(logits, count) : next;
    return logits != NULL;
}

/* Bytes that an engine copies for each token, and kernels that it builds from token SETTLED on. */
typedef struct work {
    double copied[TOKENS];
    uint64_t built_late;
} work;

static bool write_counted(writer *w, int at, work *to) {
    uint64_t built[2], copied[2];
    w->decoder->count(w->state, &built[0], &copied[0]);
    const bool good = write_token(w, -1);
    w->decoder->count(w->state, &built[1], &copied[1]);
    to->copied[at] = (double)(copied[1] - copied[0]);
    if (at >= SETTLED) to->built_late += built[1] - built[0];
    return good;
}

/* Waits until spinning threads of the other engine have gone to sleep. */
static void settle(int threads) {
    const struct timespec pause = {0, 8000000};
    if (threads > 1) nanosleep(&pause, NULL);
}

/* Decodes by turns. Their engine is fed the tokens that ours chose, so that both have the same to do whatever roundings decide. `theirs`
 * may be NULL. */
static bool write_sequence(writer *ours, writer *theirs, int tokens, int threads, work *to) {
    int64_t chosen[TOKENS];
    for (int begin = 0; begin < tokens; begin += TURN) {
        const int end = begin + TURN < tokens ? begin + TURN : tokens;
        settle(threads);
        for (int i = begin; i < end; i++) {
            if (!write_counted(ours, i, to)) return false;
            chosen[i] = ours->token;
        }
        if (theirs) settle(threads);
        for (int i = begin; theirs && i < end; i++)
            if (!write_token(theirs, chosen[i])) return false;
    }
    return true;
}

static writer start(const engine *it, const engine_task *task, char *message, size_t size) {
    writer w = {.decoder = it ? it->decoder : NULL};
    if (w.decoder) w.state = w.decoder->open(task, message, size);
    return w;
}

static void begin_sequence(writer *w) {
    w->decoder->reset(w->state);
    w->token = 1, w->seconds = 0;
}

/* Measures, in this order: tokens per second of the first sequence, building of kernels included; tokens per second over ONNX Runtime's, of
 * the first and of the second sequence; kernels built after the 8th token; bytes copied in a step of the first sequence, median and
 * mean. */
static bool measure(writer *ours, writer *theirs, int tokens, int threads, double *numbers) {
    for (int i = 0; i < SEQUENCES; i++) {
        work done = {0};
        double sum = 0;
        begin_sequence(ours);
        if (theirs) begin_sequence(theirs);
        if (!write_sequence(ours, theirs, tokens, threads, &done)) return false;
        if (theirs) numbers[1 + i] = theirs->seconds / ours->seconds;
        if (i > 0) continue;
        for (int k = 0; k < tokens; k++) sum += done.copied[k];
        numbers[0] = tokens / ours->seconds;
        numbers[3] = (double)done.built_late, numbers[4] = bench_median(done.copied, tokens);
        numbers[5] = sum / tokens;
    }
    return true;
}

/* The task's one input `tokens` has as many elements as tokens are written. */
int suite_decoding(const engine *const engines[SUITE_ENGINES], const engine_task *task, double *numbers, char *message,
                   size_t size) {
    const int64_t tokens = task->input_count ? task->inputs->shape[0] : TOKENS;
    writer ours = start(engines[SUITE_DLC], task, message, size);
    if (!ours.state) return -1;
    writer theirs = start(engines[SUITE_ONNXRUNTIME], task, message, size);
    const bool good =
        measure(&ours, theirs.state ? &theirs : NULL, tokens < TOKENS ? (int)tokens : TOKENS, task->threads, numbers);
    if (!good) snprintf(message, size, "a step failed");
    ours.decoder->close(ours.state);
    if (theirs.state) theirs.decoder->close(theirs.state);
    return good ? 6 : -1;
}
