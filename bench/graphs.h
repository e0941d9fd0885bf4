/* Cases as text; see graphs.c. */
#ifndef BENCH_GRAPHS_H
#define BENCH_GRAPHS_H

#include "bench/cases.h"

/* Prints the cases; returns how many of the lines have no graph. */
int bench_graphs_print(const bench_shape *shapes, int count, FILE *to);

#endif
