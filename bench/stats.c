/* Medians, means, rank correlation, and how sure a ratio is. */
#include "bench/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count) {
    if (count == 0) return 0;
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double bench_geometric_mean(const double *values, int count) {
    double logarithms = 0;
    for (int i = 0; i < count; i++) logarithms += log(values[i]);
    return count ? exp(logarithms / count) : 0;
}

/* Gives values their ranks from 1; equal values share the mean of their ranks. */
static void rank(const double *values, int count, double *ranks) {
    for (int i = 0; i < count; i++) {
        int less = 0, equal = 0;
        for (int j = 0; j < count; j++) less += values[j] < values[i], equal += values[j] == values[i];
        ranks[i] = less + 0.5 * (equal + 1);
    }
}

double bench_rank_correlation(const double *x, const double *y, int count) {
    if (count < 3) return 0;
    double *ranks = calloc(2 * (size_t)count, sizeof *ranks), *rx = ranks, *ry = ranks + count;
    if (!ranks) abort();
    rank(x, count, rx);
    rank(y, count, ry);
    double centre = 0.5 * (count + 1), xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < count; i++) {
        xx += (rx[i] - centre) * (rx[i] - centre);
        yy += (ry[i] - centre) * (ry[i] - centre);
        xy += (rx[i] - centre) * (ry[i] - centre);
    }
    free(ranks);
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

void bench_pairs_add(bench_pairs *pairs, const double *ratios, int count) {
    if (pairs->run_count == BENCH_MAX_RUNS || count == 0) return;
    double *copy = malloc((size_t)count * sizeof *copy);
    if (!copy) abort();
    memcpy(copy, ratios, (size_t)count * sizeof *copy);
    pairs->ratios[pairs->run_count] = copy;
    pairs->counts[pairs->run_count++] = count;
}

void bench_pairs_release(bench_pairs *pairs) {
    for (int i = 0; i < pairs->run_count; i++) free(pairs->ratios[i]);
    *pairs = (bench_pairs){0};
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17; /* xorshift64, Marsaglia 2003 */
    return *state;
}

/* The median of the runs' medians: of the runs as they are or, if state is not NULL, of runs and pairs drawn with replacement. */
static double median_of(const bench_pairs *pairs, double *scratch, uint64_t *state) {
    double medians[BENCH_MAX_RUNS];
    for (int r = 0; r < pairs->run_count; r++) {
        int from = state ? (int)(next(state) % (uint64_t)pairs->run_count) : r, n = pairs->counts[from];
        for (int i = 0; i < n; i++) scratch[i] = pairs->ratios[from][state ? (int)(next(state) % (uint64_t)n) : i];
        medians[r] = bench_median(scratch, n);
    }
    return bench_median(medians, pairs->run_count);
}

static double *scratch_for(const bench_pairs *pairs) {
    int most = 1;
    for (int r = 0; r < pairs->run_count; r++) most = pairs->counts[r] > most ? pairs->counts[r] : most;
    double *scratch = malloc((size_t)most * sizeof *scratch);
    if (!scratch) abort();
    return scratch;
}

double bench_pairs_median(const bench_pairs *pairs) {
    double *scratch = scratch_for(pairs), median = median_of(pairs, scratch, NULL);
    free(scratch);
    return median;
}

double bench_pairs_upper(const bench_pairs *pairs) {
    enum { DRAWS = 1000 };
    double drawn[DRAWS], *scratch = scratch_for(pairs);
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < DRAWS; i++) drawn[i] = median_of(pairs, scratch, &state);
    free(scratch);
    qsort(drawn, DRAWS, sizeof *drawn, compare);
    return drawn[DRAWS * 9 / 10];
}
