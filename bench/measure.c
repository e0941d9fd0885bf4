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
    if (contestant->time) return contestant->time(contestant->state, calls);
    double start = bench_now();
    for (int64_t i = 0; i < calls; i++) contestant->run(contestant->state);
    return bench_now() - start;
}

/* Number of calls that fill a sample. */
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
#define LONG_CALL 0.05
#define SHORT_CALL 0.02 /* filling the caches would count */
#define WAKE_SECONDS 0.01
#define SOMEWHAT_BEHIND 1.15 /* the fastest rival */

static double median_so_far(const bench_contestant *c, double *sample_seconds) {
    double seconds[LOOK_AFTER];
    memcpy(seconds, c->samples, sizeof seconds);
    double median = bench_median(seconds, LOOK_AFTER);
    *sample_seconds = median * (double)c->times.calls;
    return median;
}

/* Stops measuring a contestant after a few samples if it is far behind the first contestant or, if samples take very long, somewhat behind
 * the fastest rival: further samples would change nothing. */
static void dismiss(bench_contestant *contestants, int count) {
    double sample, first = median_so_far(&contestants[0], &sample), fastest = 0;
    for (int c = 1; c < count; c++) {
        if (!contestants[c].may_leave) continue;
        double median = median_so_far(&contestants[c], &sample);
        if (fastest == 0 || median < fastest) fastest = median;
    }
    for (int c = 1; c < count; c++) {
        if (!contestants[c].may_leave) continue;
        double median = median_so_far(&contestants[c], &sample);
        contestants[c].left = (sample > 4e-3 && median > (double)FAR_BEHIND * first) ||
                              (sample > 0.1 && median > SOMEWHAT_BEHIND * fastest);
    }
}

/* Runs the contestant until its threads are awake: after they slept through the others' turns, they may take milliseconds to help. Not
 * needed for long calls. */
static void wake(const bench_contestant *contestant, int sample) {
    if (sample > 0 && contestant->samples[sample - 1] > LONG_CALL) return;
    double start = bench_now();
    do contestant->run(contestant->state);
    while (bench_now() - start < WAKE_SECONDS);
}

static void take_turns(bench_contestant *contestants, int count, int threads, int samples) {
    for (int c = 0; c < count; c++) contestants[c].times.samples = 0, contestants[c].left = false;
    for (int s = 0; s < samples; s++) {
        if (s == LOOK_AFTER) dismiss(contestants, count);
        for (int c = 0; c < count; c++) {
            bench_contestant *contestant = &contestants[c];
            int64_t calls = contestant->times.calls;
            if (contestant->left) continue;
            settle(threads);
            if (threads > 1)
                wake(contestant, s);
            else if (calls > 1 || (s > 0 && contestant->samples[s - 1] < SHORT_CALL))
                contestant->run(contestant->state); /* refills the caches that the others used */
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

/* The larger spread of two contestants: of the first and of the fastest rival. */
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
