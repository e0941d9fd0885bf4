/* How soon runs end after cancellation (dlc_run_options.cancel, budget_ms), and the cost of the checks in kernels. */
#ifndef BENCH_ENDING_H
#define BENCH_ENDING_H

/* Milliseconds from cancellation to the return of the run: the longest over a list of operators of large sizes, for each the least of
 * three runs' longest, since a thread that waits for a processor cannot check. -1: failed. */
double bench_ending_worst(void);
/* Per cent by which kernels with cancellation checks take longer than kernels without (DLC_DISABLE=polls): the mean over a list of
 * operators, or the greatest; least times of runs in turns. -1: failed. */
double bench_ending_cost_mean(void);
double bench_ending_cost_worst(void);

#endif
