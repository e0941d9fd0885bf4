/* Contests: contestants take turns, and the median of many turns counts. */
#include "bench/bench.h"
#include "bench/stats.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_calls(const bench_contestant *contestant, int64_t calls) {
    double start = bench_now();
    for (int64_t i = 0; i < calls; i++) contestant->run(contestant->state);
    return bench_now() - start;
}

/* Calls that fill a sample. */
static int64_t calibrate(const bench_contestant *contestant, double sample_seconds) {
    double seconds = time_calls(contestant, 1);
    if (seconds < 0.05) seconds = time_calls(contestant, 1);
    int64_t calls = 1;
    while (seconds < 0.1 * sample_seconds) {
        calls *= 4;
        seconds = time_calls(contestant, calls);
    }
    double wanted = sample_seconds / seconds * (double)calls;
    return wanted < 1 ? 1 : (int64_t)wanted;
}

static void settle(int threads) {
    if (threads < 2) return;
    struct timespec pause = {0, 8000000};
    nanosleep(&pause, NULL);
}

enum { LOOK_AFTER = 5, FAR_BEHIND = 3 };

/* A contestant that is far behind after a few long samples leaves, if it may: further ones would tell nothing and take long. */
static bool leaves(const bench_contestant *c, const bench_contestant *first, int samples) {
    if (!c->may_leave || samples != LOOK_AFTER || c->samples[0] * (double)c->times.calls < 4e-3) return false;
    double theirs[LOOK_AFTER], ours[LOOK_AFTER];
    memcpy(theirs, c->samples, sizeof theirs);
    memcpy(ours, first->samples, sizeof ours);
    return bench_median(theirs, LOOK_AFTER) > FAR_BEHIND * bench_median(ours, LOOK_AFTER);
}

static void take_turns(bench_contestant *contestants, int count, int threads, int samples) {
    for (int c = 0; c < count; c++) contestants[c].times.samples = 0;
    for (int s = 0; s < samples; s++) {
        for (int c = 0; c < count; c++) {
            bench_contestant *contestant = &contestants[c];
            int64_t calls = contestant->times.calls;
            if (contestant->times.samples < s || leaves(contestant, contestants, s)) continue;
            settle(threads);
            /* Refills the caches that the others used. */
            if (calls > 1) contestant->run(contestant->state);
            contestant->samples[s] = time_calls(contestant, calls) / (double)calls;
            contestant->times.samples = s + 1;
        }
    }
}

static void summarise(bench_contestant *c, double *scratch) {
    bench_times *t = &c->times;
    memcpy(scratch, c->samples, (size_t)t->samples * sizeof *scratch);
    t->median = bench_median(scratch, t->samples);
    t->low = scratch[t->samples / 4];
    t->high = scratch[t->samples - 1 - t->samples / 4];
}

/* Of the first contestant and of the fastest of the others. */
static double spread_of(const bench_contestant *contestants, int count) {
    const bench_contestant *fastest = NULL;
    for (int c = 1; c < count; c++)
        if (contestants[c].may_leave && (!fastest || contestants[c].times.median < fastest->times.median))
            fastest = &contestants[c];
    const bench_times *ours = &contestants[0].times, *theirs = fastest ? &fastest->times : ours;
    double a = (ours->high - ours->low) / ours->median, b = (theirs->high - theirs->low) / theirs->median;
    return a > b ? a : b;
}

void bench_contest(bench_contestant *contestants, int count, int threads, const bench_settings *settings) {
    int samples = settings->samples;
    double *all = calloc((size_t)(count + 1) * (size_t)samples, sizeof *all);
    if (!all) abort();
    for (int c = 0; c < count; c++) {
        contestants[c].samples = all + c * samples;
        settle(threads);
        contestants[c].times.calls = calibrate(&contestants[c], settings->sample_seconds);
    }
    double spread = 1, start = bench_now();
    for (int attempt = 0; attempt < 3 && spread > 0.15 && bench_now() - start < 5; attempt++) {
        take_turns(contestants, count, threads, samples);
        for (int c = 0; c < count; c++) summarise(&contestants[c], all + count * samples);
        spread = spread_of(contestants, count);
    }
}

void bench_contest_release(bench_contestant *contestants) {
    free(contestants[0].samples);
    contestants[0].samples = NULL;
}
