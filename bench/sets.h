/* The sets of cases that the library promises ratios for, and how far it keeps the promises. */
#ifndef BENCH_SETS_H
#define BENCH_SETS_H

#include "bench/contest.h"

/* Cases nearest to or below their bars are measured five times more, and then count by that. All of one number of threads. */
void bench_sets_repeat_worst(bench_arena *arena, bench_outcome *outcomes, int count);
/* Per set: cases, geometric mean, least ratio, what is required; then the cases that fail. False when a set fails. */
bool bench_sets_print(const bench_arena *arena, const bench_outcome *outcomes, int count);

#endif
