/* The figures that the library promises, each with what is required of it. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"

/* Prints the table; writes JSON lines. False when a figure misses what is required or could not be measured. */
bool bench_figures(const bench_outcome *outcomes, int count, FILE *json);
/* Runs what has to run in a process of its own, and prints its number: the program was started with --child NAME. */
int bench_child(const char *name);

#endif
