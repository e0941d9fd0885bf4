/* The program `suite`: models from their files, libdlc against its peers. suite.c the command line and contests; in processes of their own
 * (child.c) first calls (first.c) and other measurements (measures.c: decoding.c, clients.c, costs of libdlc alone); report.c what is printed of
 * each, figures.c the table at the end. */
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
    /* Times of peers over ours, medians over the turns, 0: not measured; `alone`: the same for ours on one thread. */
    double ratio[SUITE_ENGINES], alone;
    /* Largest difference from ONNX Runtime's results (without it, from OpenVINO's), relative to the largest number, of bytes in steps; -1: there
     * is no peer. */
    double error;
    /* Of quantised models: the error of ONNX Runtime's results, compared with those of the file's nodes without optimisations; -1: not
     * known. */
    double own_error;
    /* Number of rows of a result whose greatest number is at another index than in the peer's result. */
    int other_class;
    engine_facts facts;
    /* Why an engine did not run; "": it did. */
    char problem[SUITE_ENGINES][256];
} suite_outcome;

/* ---- in a process of its own: child.c ---------------------------------------------------------------------------------------- */

/* Starts this program with --child and these words, up to NULL. text: what it printed, numbers or, if the result is false, why it
 * failed. */
bool suite_child_run(const char *const *words, char *text, size_t size);
/* The child's side: its arguments after `--child`. Returns the exit status. */
int suite_child(int argc, char **argv);

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

/* First calls of a model. warm: ours with the kernels of an earlier process on disk. */
typedef struct suite_firsts {
    const model_case *it;
    suite_first cold[SUITE_ENGINES], warm;
} suite_firsts;

/* In a child process. */
void suite_first_measure(int number, const char *path, const model_case *it, int threads, const char *cache,
                         suite_first *first);
int suite_first_child(int argc, char **argv);

/* ---- other measurements: measures.c ------------------------------------------------------------------------------------------------- */

typedef struct suite_measured {
    const model_case *it;
    /* Numbers, whose meaning each measurement defines; NaN: not measured. */
    double numbers[ENGINE_MOST_NUMBERS];
    /* Why it did not run; "": it did. */
    char problem[256];
} suite_measured;

/* Peers: names of those that take part. */
void suite_measure(const char *path, const model_case *it, int threads, const char *peers, suite_measured *measured);
int suite_measure_child(int argc, char **argv);

/* Returns the count of numbers, or -1: `message` tells why. */
typedef int suite_measure_function(const engine *const engines[SUITE_ENGINES], const engine_task *task, double *numbers,
                                   char *message, size_t size);
suite_measure_function suite_decoding, suite_clients;

/* ---- what is printed: report.c ------------------------------------------------------------------------------------------------------ */

typedef struct suite_report {
    /* NULL: no JSON lines */
    FILE *json;
    suite_outcome *list;
    int count;
    suite_firsts *firsts;
    int first_count;
    suite_measured *measured;
    int measured_count;
    /* Cases and measurements of ours that failed, and cases with wrong results. */
    int failed;
} suite_report;

/* Errors above this are wrong results. */
#define SUITE_WRONG 1e-3
bool suite_is_quantised(const model_case *it);
/* Are results wrong? Of quantised models, roundings of one layer decide steps of the next one: an error is wrong if it exceeds one step and
 * twice the error of ONNX Runtime, the distance that two results can have of which neither is further from the file's. */
bool suite_is_wrong(const suite_outcome *o);

void suite_print_engine(suite_report *r, int number, const char *text, bool there);
void suite_print_head(int threads);
/* Prints the line and keeps a copy. */
void suite_add(suite_report *r, const suite_outcome *o);
void suite_print_skipped(suite_report *r, const model_case *it, const char *why);
void suite_print_first_head(void);
/* Prints the line and keeps a copy. */
void suite_add_first(suite_report *r, const suite_firsts *f);
/* Keeps a copy; the figures tell it. */
void suite_add_measured(suite_report *r, const suite_measured *m);
/* Keeps a measurement that was not made. */
void suite_keep_measured(suite_report *r, const model_case *it);
/* Sizes of the first input. */
void suite_label(const model_case *it, char *text, size_t size);
/* JSON: a member, with the comma before it; a number that is not finite and positive: null. */
void suite_json_text(FILE *to, const char *key, const char *text);
void suite_json_number(FILE *to, const char *key, double number);

/* ---- the table at the end: figures.c ------------------------------------------------------------------------------------------------- */

void suite_print_figures(const suite_report *r);

#endif
