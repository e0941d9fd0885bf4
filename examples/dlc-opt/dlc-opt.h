/* dlc-opt: takes a graph, given as text or as an ONNX model, through named passes, to any stage, to results. It uses internal headers for what the public one does not
 * offer: passes one by one (passes.c). */
#ifndef DLC_OPT_H
#define DLC_OPT_H

#include <dlc/dlc.h>

enum { OPTIONS_MAX = 512 };

typedef struct options {
    const char *graph_path;
    /* NULL: the build's default */
    const char *target;
    /* comma list; NULL: none */
    const char *passes;
    /* comma list to print; "": none */
    char stages[512];
    const char *schedule_path;
    /* "n=7" */
    const char *dims[OPTIONS_MAX];
    int dim_count;
    /* "x=FILE" */
    const char *inputs[OPTIONS_MAX];
    int input_count;
    int threads;
    /* tolerance: of --check, relative to the greatest magnitude of an output; of --compare, absolute and relative */
    double tolerance;
    /* target of --compare; NULL: none */
    const char *compared;
    /* NULL: none */
    const char *save_path;
    uint64_t seed;
    /* seconds of --time, of each candidate of --measure; 0: no timing */
    double seconds, measured;
    bool run, check, values, recompute, winograd, strict, tolerates /* --tolerance is given */;
} options;

/* Shapes of the graph's inputs under --dims, in the form that the public functions take. */
typedef struct shapes {
    int count;
    int rank[OPTIONS_MAX];
    int64_t dim[OPTIONS_MAX][DLC_MAX_RANK];
    const int64_t *pointer[OPTIONS_MAX];
    dlc_dtype dtype[OPTIONS_MAX];
} shapes;

char *read_file(const char *path, size_t *size); /* bytes and a final 0; NULL: failed, with a line on stderr */
/* VALUE of the part "name=VALUE"; NULL: there is none. */
const char *part_value(const char *const *parts, int count, const char *name);

/* passes.c: false and a line on stderr on failure. */
bool input_shapes(const char *text, const options *o, shapes *out);
bool print_passes(const char *text, const options *o);
void list_passes(void);

/* run.c: runs the program of the graph on given or random inputs; with --check and --compare also on another target, with --time
 * repeatedly, with --measure also with other choices. */
void set_compile_options(const options *o, dlc_compile_options *compile);
bool run_program(const options *o, dlc_context *context, dlc_graph *graph, dlc_program *program, const char *text,
                 const shapes *s);

#endif
