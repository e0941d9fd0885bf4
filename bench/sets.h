/* The sets of cases with required ratios, and whether the run meets them. */
#ifndef BENCH_SETS_H
#define BENCH_SETS_H

#include "bench/contest.h"

/* Measures the cases nearest to or below their requirements five times more, and keeps these measurements in place of the first. All
 * outcomes must be of one number of threads. */
void bench_sets_repeat_worst(bench_arena *arena, bench_outcome *outcomes, int count);
/* Prints a row for each set (cases, geometric mean, least ratio, requirement), then the cases that fail. Returns false if a set fails. */
bool bench_sets_print(const bench_arena *arena, const bench_outcome *outcomes, int count);

#endif
