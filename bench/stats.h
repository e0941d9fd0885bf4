/* Statistics of samples and of cases. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

/* Ratios of pairs of times, grouped by the run in which they were taken: pairs of one run are more alike than those of two. */
enum { BENCH_MAX_RUNS = 5 };
typedef struct bench_pairs {
    int run_count;
    int counts[BENCH_MAX_RUNS];
    /* allocated by bench_pairs_add, freed by bench_pairs_release */
    double *ratios[BENCH_MAX_RUNS];
} bench_pairs;

double bench_median(double *values, int count); /* sorts the values; 0 if there are none */
double bench_geometric_mean(const double *values, int count);
/* Rank correlation (Spearman 1904), ties by their mean rank; 0 if one side is constant or there are fewer than 3. */
double bench_rank_correlation(const double *x, const double *y, int count);

/* Takes a copy of the ratios as one more run; beyond BENCH_MAX_RUNS they are dropped. */
void bench_pairs_add(bench_pairs *pairs, const double *ratios, int count);
void bench_pairs_release(bench_pairs *pairs);
/* Median of the medians of all runs; 0 when there is no run. */
double bench_pairs_median(const bench_pairs *pairs);
/* One-sided upper 90 % bound of bench_pairs_median, by bootstrap: runs are drawn first and pairs within them (Davison, Hinkley 1997, 3.8).
 * Always the same for the same pairs. */
double bench_pairs_upper(const bench_pairs *pairs);

#endif
