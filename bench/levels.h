/* Shares of the peak of this process's level of CPU features (DLC_CPU_FEATURES). */
#ifndef BENCH_LEVELS_H
#define BENCH_LEVELS_H

/* Per cent, the least over cubes of the size named, by contests with bursts of the level's own vectors; -1: not measured. */
double bench_cubes_small(void); /* 512, 1024, 2048 */
double bench_cubes_large(void); /* 1024, 1536, 2048 */

#endif
