/* The last run that was kept, as text in the repository, and regressions since. */
#ifndef BENCH_LAST_H
#define BENCH_LAST_H

#include "bench/bench.h"

#include <stdbool.h>

typedef struct bench_last_case {
    int threads;
    /* our median; its share of the roof during the contest */
    double seconds, share;
    char text[192];
} bench_last_case;

typedef struct bench_last {
    char machine[160], date[16];
    /* peaks by number of threads */
    struct {
        /* name of the unit with the widest vectors, "fma512"; "": this number of threads was not measured */
        char unit[16];
        double gflops;
    } peaks[BENCH_MAX_THREADS + 1];
    /* owned; sorted by text, then by threads */
    bench_last_case *cases;
    int count;
} bench_last;

/* The processor's name, "unknown" if the system does not report it. */
void bench_machine_name(char *name, size_t size);
/* Reads cases.json of a run: one line of each fixed case with our best median. False if it is no such file; release in any case. */
bool bench_last_from_json(bench_last *last, FILE *json, const char *date);
void bench_last_write(const bench_last *last, FILE *text);
/* Reads a file of bench_last_write. False if a line is invalid; release in any case. */
bool bench_last_read(bench_last *last, FILE *text);
void bench_last_release(bench_last *last);

/* Are the times of that run comparable with those of this machine with these roofs? If not, `why` is the reason. */
bool bench_last_comparable(const bench_last *last, const char *machine, const bench_roofs *roofs, char *why,
                           size_t size);
/* The case's last result if it has regressed by more than 5 %, NULL otherwise. Both its time and its share of the roof must be worse: the
 * time alone also changes with the machine's clock, the share alone with a new measurement of the bandwidth. */
const bench_last_case *bench_last_fallen(const bench_last *last, const bench_outcome *now);
/* A line for each regression, then their number out of the cases of the last run; returns their number. */
int bench_last_print(const bench_last *last, const bench_outcome *outcomes, int count, FILE *json);

#endif
