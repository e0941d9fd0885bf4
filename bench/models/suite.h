/* The program `suite`: models from their files, libdlc against its peers. suite.c the command line and contests, first.c the first call in
 * a process of its own, report.c what is printed. */
#ifndef BENCH_MODELS_SUITE_H
#define BENCH_MODELS_SUITE_H

#include "bench/models/cases.h"

/* libdlc, and the peers. */
enum { SUITE_DLC, SUITE_ONNXRUNTIME, SUITE_OPENVINO, SUITE_ENGINES };
extern const char *const suite_engines[SUITE_ENGINES];

/* NULL, with the reason in `message`: there is no such plug-in beside this program, or it cannot be loaded. */
const engine *suite_engine(int number, char *message, size_t size);

/* ---- contests ---------------------------------------------------------------------------------------------------------------- */

typedef struct suite_outcome {
    const model_case *it;
    int threads;
    /* Ours: median and quartiles. */
    double seconds, low, high;
    int turns;
    /* Theirs over ours, the median over the turns; 0: not measured. `alone`: ours on one thread. */
    double ratio[SUITE_ENGINES], alone;
    /* Largest difference from ONNX Runtime's results (without it, from OpenVINO's), relative to the largest number; -1: there is no peer. */
    double error;
    /* Why an engine did not run; "": it did. */
    char problem[SUITE_ENGINES][256];
} suite_outcome;

/* ---- the first call: first.c ----------------------------------------------------------------------------------------------------- */

/* Of a fresh process, from its start to the first results. */
typedef struct suite_first {
    /* import: part of seconds; 0 for peers */
    double seconds, import;
    /* its greatest resident memory; 0: not measured */
    double bytes;
    /* Why it did not run; "": it did. */
    char problem[256];
} suite_first;

/* In a child process. */
void suite_first_measure(int number, const char *path, const model_case *it, int threads, const char *cache,
                         suite_first *first);
/* The child's side: its arguments after `--child`. Returns the exit status. */
int suite_first_child(int argc, char **argv);

/* ---- what is printed: report.c ------------------------------------------------------------------------------------------------------ */

typedef struct suite_report {
    /* NULL: no JSON lines */
    FILE *json;
    suite_outcome *list;
    int count;
    /* Cases and first calls of ours that failed, and cases with wrong results. */
    int failed;
} suite_report;

/* Errors above this are wrong results. */
#define SUITE_WRONG 1e-3

void suite_print_engine(suite_report *r, int number, const char *text, bool there);
void suite_print_head(int threads);
/* Prints the line and keeps a copy. */
void suite_add(suite_report *r, const suite_outcome *o);
void suite_print_skipped(suite_report *r, const model_case *it, const char *why);
void suite_print_first_head(void);
/* [SUITE_ENGINES]; `warm`: ours with the kernels of an earlier process on disk. */
void suite_print_first(suite_report *r, const model_case *it, const suite_first *cold, const suite_first *warm);
/* Geometric mean and least of the ratios, of each set and number of threads. */
void suite_print_sets(const suite_report *r);
/* Sizes of the first input. */
void suite_label(const model_case *it, char *text, size_t size);

#endif
