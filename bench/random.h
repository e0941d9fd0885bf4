/* Random shapes: is the library as fast on them as on the fixed cases of the same family? */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include "bench/contest.h"

enum { BENCH_RANDOM_SHAPES = 200 };

/* Draws the shapes; the same ones for the same seed. */
void bench_random_shapes(uint64_t seed, bench_shape shapes[BENCH_RANDOM_SHAPES]);
/* Is there a fixed case of the random shape's family? */
bool bench_random_comparable(const bench_shape *random, const bench_outcome *fixed, int fixed_count);
/* Is the random case's share of the roof more than 5 points below that of the most similar fixed cases? */
bool bench_random_below(const bench_outcome *random, const bench_outcome *fixed, int fixed_count);
/* Prints the random cases that are below, in this sense, and returns false if there are any. All outcomes must be of one number of
 * threads. */
bool bench_random_judge(const bench_arena *arena, uint64_t seed, const bench_outcome *random, int random_count,
                        const bench_outcome *fixed, int fixed_count);

#endif
