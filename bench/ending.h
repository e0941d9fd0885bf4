/* How soon runs end that are to end (dlc_run_options.cancel, budget_ms), and what it costs that kernels ask. */
#ifndef BENCH_ENDING_H
#define BENCH_ENDING_H

/* Milliseconds from when a run is to end to its return: the longest over a list of operators of large sizes, of each the least of three
 * runs' longest, since a thread that waits for a processor cannot ask. -1: failed. */
double bench_ending_worst(void);
/* Per cent of time that kernels which ask take longer than kernels made without (DLC_DISABLE=polls): the mean over a list of operators, or
 * the greatest; least times of runs in turns. -1: failed. */
double bench_ending_cost_mean(void);
double bench_ending_cost_worst(void);

#endif
