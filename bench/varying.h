/* Cost of kernels for varying sizes relative to kernels for the exact sizes. */
#ifndef BENCH_VARYING_H
#define BENCH_VARYING_H

double bench_varying_mean(void);  /* geometric mean of the time over that of exact kernels; -1: not measured */
double bench_varying_worst(void); /* the greatest; BENCH_TELL=1 prints each */

#endif
