/* The last run that was kept, as text in the repository, and what has become slower since. */
#ifndef BENCH_LAST_H
#define BENCH_LAST_H

#include "bench/bench.h"

#include <stdbool.h>

typedef struct bench_last_case {
    int threads;
    /* our median; of the roof during the contest */
    double seconds, share;
    char text[192];
} bench_last_case;

typedef struct bench_last {
    char machine[160], date[16];
    /* by number of threads */
    struct {
        /* of the widest vectors, "fma512"; "": this number of threads was not measured */
        char unit[16];
        double gflops;
    } peaks[BENCH_MAX_THREADS + 1];
    /* owned; in the order of their texts, then threads */
    bench_last_case *cases;
    int count;
} bench_last;

/* The processor's name, "unknown" where the system does not tell. */
void bench_machine_name(char *name, size_t size);
/* Reads cases.json of a run: one line of each fixed case with our best median. False when it is no such file; release in any case. */
bool bench_last_from_json(bench_last *last, FILE *json, const char *date);
void bench_last_write(const bench_last *last, FILE *text);
/* Reads what bench_last_write wrote. False when a line is none of its; release in any case. */
bool bench_last_read(bench_last *last, FILE *text);
void bench_last_release(bench_last *last);

/* Whether times of that run and of this machine with these roofs say anything about each other; if not, why. */
bool bench_last_comparable(const bench_last *last, const char *machine, const bench_roofs *roofs, char *why,
                           size_t size);
/* The case as it was when it has fallen by more than 5 %, NULL otherwise. Both its time and its share of the roof must have fallen: the time
 * alone does with the machine's clock, the share alone with a bandwidth that was measured anew. */
const bench_last_case *bench_last_fallen(const bench_last *last, const bench_outcome *now);
/* A line for each that fell, then how many of those that the last run has; their number. */
int bench_last_print(const bench_last *last, const bench_outcome *outcomes, int count, FILE *json);

#endif
