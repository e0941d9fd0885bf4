/* The figures that the library promises, each with what is required of it. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"

/* What a contest told. Seconds are medians of one call; 0: not measured. */
typedef struct bench_outcome {
    const bench_shape *shape;
    int threads;
    double seconds, stages; /* ours; ours in separate programs */
    double first;           /* graph built until first result, compilation included */
    double peers[BENCH_MAX_PEERS];
    double flops, bytes, fma; /* fma: flops per second of the machine during this contest */
    double roof;              /* least seconds on this machine */
} bench_outcome;

/* Prints the table; writes JSON lines. False when a figure misses what is required or could not be measured. */
bool bench_figures(const bench_outcome *outcomes, int count, FILE *json);
/* Runs what has to run in a process of its own, and prints its number: the program was started with --child NAME. */
int bench_child(const char *name);

#endif
