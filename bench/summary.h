/* Summary of a run: ratios over the peers, by family. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include "bench/sets.h"

/* For each kind of case, then for each family of it: geometric mean and minimum of the best peer's time over ours, and the same for each
 * peer; then the ten worst cases. Prints tables and writes JSON lines. */
void bench_summary(const bench_outcome *outcomes, int count, const bench_peer *const *peers, int peer_count,
                   FILE *json);
/* Per kind and for all: rank correlation of predicted and measured times, geometric mean of predicted over measured. */
void bench_predictions(const bench_outcome *outcomes, int count, int threads, FILE *json);

#endif
