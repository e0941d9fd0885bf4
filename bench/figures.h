/* The figures that the library promises, each with the required value. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"

/* Prints the table; writes JSON lines. False if a figure misses the required value or could not be measured. */
bool bench_figures(const bench_outcome *outcomes, int count, FILE *json);
/* Runs a measurement that needs a process of its own, and prints its number: the program was started with --child NAME. */
int bench_child(const char *name);

#endif
