/* What kernels for sizes that vary cost against kernels for the very sizes. */
#ifndef BENCH_VARYING_H
#define BENCH_VARYING_H

double bench_varying_mean(void);  /* geometric, of the time over that of the exact ones; -1: not measured */
double bench_varying_worst(void); /* the greatest; BENCH_TELL=1 tells of each */

#endif
