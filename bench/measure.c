/* Contests: contestants take turns, and the median of many turns counts. */
#include "bench/bench.h"

#include <stdlib.h>
#include <time.h>

double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count) {
    if (count == 0) return 0;
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
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

static void take_turns(bench_contestant *contestants, int count, int threads, int samples, double *times) {
    for (int s = 0; s < samples; s++) {
        for (int c = 0; c < count; c++) {
            int64_t calls = contestants[c].times.calls;
            settle(threads);
            /* Refills the caches that the others used. */
            if (calls > 1 || s == 0) contestants[c].run(contestants[c].state);
            times[c * samples + s] = time_calls(&contestants[c], calls) / (double)calls;
        }
    }
}

/* The widest spread among the contestants. */
static double judge(bench_contestant *contestants, int count, int samples, double *times) {
    double widest = 0;
    for (int c = 0; c < count; c++) {
        double *mine = times + c * samples;
        bench_times *t = &contestants[c].times;
        t->median = bench_median(mine, samples);
        t->low = mine[samples / 4];
        t->high = mine[samples - 1 - samples / 4];
        t->samples = samples;
        if ((t->high - t->low) / t->median > widest) widest = (t->high - t->low) / t->median;
    }
    return widest;
}

void bench_contest(bench_contestant *contestants, int count, int threads, const bench_settings *settings) {
    int samples = settings->samples;
    double *times = calloc((size_t)(count * samples), sizeof *times);
    if (!times) abort();
    for (int c = 0; c < count; c++) {
        settle(threads);
        contestants[c].times.calls = calibrate(&contestants[c], settings->sample_seconds);
    }
    double spread = 1, start = bench_now();
    for (int attempt = 0; attempt < 3 && spread > 0.15 && bench_now() - start < 10; attempt++) {
        take_turns(contestants, count, threads, samples, times);
        spread = judge(contestants, count, samples, times);
    }
    free(times);
}
