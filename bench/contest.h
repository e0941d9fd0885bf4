/* One case measured: libdlc, its peers and the machine in turns. */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "bench/ours.h"

/* The setting in which cases are measured, for one number of threads. */
typedef struct bench_arena {
    const bench_settings *settings;
    const bench_peer *peers[BENCH_MAX_PEERS];
    int peer_count, threads;
    /* a context with `threads` threads; one with one thread */
    dlc_context *context, *alone;
    bench_roofs roofs;
    FILE *json;
    int failures;
} bench_arena;

/* Opponents that a case is measured against; -1: all. */
typedef struct bench_rivals {
    /* bit i: opponent i (BENCH_COPY and so on; peers by their number) */
    unsigned opponents;
} bench_rivals;
#define BENCH_EVERYBODY ((bench_rivals){~0u})

void bench_print_header(const bench_arena *arena);
/* Measures and prints a row. False, with nothing in `outcome`, if the case could not be built or run; failures and wrong results are
 * counted in the arena. */
bool bench_case_run(bench_arena *arena, const bench_shape *shape, bench_rivals rivals, bench_outcome *outcome);
/* Measures again, silently, and adds the ratios as further runs to `outcome`, whose times stay. */
void bench_case_repeat(bench_arena *arena, bench_rivals rivals, bench_outcome *outcome);
/* The opponent's own name, or that of a peer. */
const char *bench_opponent_name(const bench_arena *arena, int opponent);
/* The peer with the least ratio; -1: none had the case. */
int bench_best_peer(const bench_outcome *outcome);
void bench_outcome_release(bench_outcome *outcome);

#endif
