/* Lines of sizes that no list has, to be measured beside the peers (`make bench-random`): what is tuned for the lists' lines shows here. */
#ifndef BENCH_RANDOM_LINES_H
#define BENCH_RANDOM_LINES_H

#include "bench/draw.h"

enum { BENCH_RANDOM_LINE = 256 };

/* Writes a random line of a random family; the same lines for the same seed. */
void bench_random_line(bench_draw *s, char line[BENCH_RANDOM_LINE]);

#endif
