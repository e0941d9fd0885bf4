/* Summary of a run: ratios over the peers, by family. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include "bench/sets.h"

/* Prints, for each kind of case and each family of it, geometric mean and minimum of the best peer's time over ours, and the same for each
 * peer; then the ten worst cases. Also writes all this as JSON lines. */
void bench_summary(const bench_outcome *outcomes, int count, const bench_peer *const *peers, int peer_count,
                   FILE *json);
/* Prints, per kind and for all cases, the rank correlation of predicted and measured times, and the geometric mean of predicted over
 * measured. */
void bench_predictions(const bench_outcome *outcomes, int count, int threads, FILE *json);

#endif
