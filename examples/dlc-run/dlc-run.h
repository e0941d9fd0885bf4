/* dlc-run: runs an ONNX model by the public headers alone. In reading order: options.c (the command line), session.c (context, model,
 * runner), inputs.c, protobuf.c (tensors in ONNX's own files), outputs.c (shown, saved, compared), picture.c, graph.c (exported, drawn, verified), trace.c,
 * measure.c (times, profiles, sweeps, clients), report.c (JSON), dlc-run.c. */
#ifndef DLC_RUN_H
#define DLC_RUN_H

#include <dlc/onnx.h>
#include <stdio.h>

enum { GOOD = 0, FAILED = 1, DIFFERS = 2, USAGE = 3 };
/* As many inputs or outputs as a runner takes. */
enum { PORTS_MAX = 256 };

/* ---- options.c: the command line --------------------------------------------------------------------------------------- */

/* NAME=VALUE parts of an option that may be given several times. */
typedef struct pairs {
    int count;
    const char *name[PORTS_MAX], *value[PORTS_MAX];
} pairs;

typedef struct options {
    const char *model;
    bool list, check, profile, json, verify, show;
    pairs inputs, shapes, dims, states;
    /* target, NULL: the build's default; folder of the kernel cache, NULL: none */
    const char *target, *cache;
    int threads, compile_threads;
    /* seconds of --time; 0: not timed */
    double seconds;
    /* save: folder for outputs; expect: folder of expected outputs; compare: a target. NULL: none */
    const char *save, *expect, *compare;
    /* files that --export, --graph and --trace write; NULL: none */
    const char *exported, *drawn, *traced;
    /* absolute and relative tolerance of comparisons */
    double tolerance;
    bool tolerates; /* --tolerance is given */
    /* NULL: none */
    const char *swept;
    int64_t sweep_from, sweep_to;
    int clients;
} options;

void print_usage(void);
/* False: a line on stderr tells the mistake. */
bool parse_options(int argc, char **argv, options *o);
/* VALUE of NAME; NULL: there is none. */
const char *pair_value(const pairs *list, const char *name);
/* Reads a size; false: the text is something else. */
bool parse_size(const char *text, int64_t *size);

/* ---- report.c: what is told, as text or as one JSON object ---------------------------------------------------------------- */

typedef struct report {
    /* NULL: text, on standard output */
    FILE *json;
    char *bytes;
    size_t size;
    /* no member has been written in the innermost object or list so far */
    bool first;
} report;

bool report_begin(report *r, bool json);
/* Writes the JSON object, if `good`, and frees it. */
void report_end(report *r, bool good);
/* Gives the object's bytes to the caller, who frees them, instead of writing them. False: out of memory. */
bool report_take(report *r, char **bytes, size_t *size);
/* Prints a line; nothing with --json. */
void say(const report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* These write JSON, and nothing without --json. `key` NULL: an element of a list. `bracket` is one of "{", "[" or their ends. */
void json_open(report *r, const char *key, const char *bracket);
void json_close(report *r, const char *bracket);
void json_string(report *r, const char *key, const char *text);
/* Writes null if the number is not finite. */
void json_number(report *r, const char *key, double number);
void json_whole(report *r, const char *key, int64_t number);
/* Writes microseconds. */
void json_time(report *r, const char *key, uint64_t ns);
/* Writes null if the size is negative. */
void json_size(report *r, const char *key, int64_t size);
void json_bool(report *r, const char *key, bool value);
/* Sizes, as a list. */
void json_shape(report *r, const char *key, int rank, const int64_t *shape);

/* ---- trace.c: what the library did when, by thread ------------------------------------------------------------------------- */

typedef struct trace trace;
typedef struct session session;
/* NULL: no memory. */
trace *trace_new(void);
/* The callback for dlc_context_options: records an event. */
void trace_event(void *user, const char *what, const char *name, const char *values, uint64_t begin_ns,
                 uint64_t end_ns);
/* Writes the file, after the last event. False: a line on stderr tells the reason. */
bool trace_write(const session *s, trace *t, const char *path);
void trace_free(trace *t);

/* ---- session.c: a model on a target ---------------------------------------------------------------------------------------- */

struct session {
    const options *o;
    /* NULL: none */
    trace *trace;
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    int input_count, output_count;
};

/* False: a line on stderr. */
bool session_open(session *s, const options *o, const char *target);
void session_close(session *s);
/* Prints a line with the model's name on stderr and returns false. */
bool fail(const session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with the message of the context's last error. */
bool fail_by_context(const session *s, const char *what);
/* An input or output of the model. A size that the file calls "?", as some exporters do, has no name. */
dlc_onnx_port port_of(const session *s, dlc_onnx_side side, int index);
/* By the options: the input that an output is the next state of, or the output that an input gets its next state from; NULL: `name` is no
 * state. */
const char *state_of(const session *s, dlc_onnx_side side, const char *name);
/* A tensor with the elements in another type; NULL: failed, with a line on stderr. The caller calls its deleter. */
DLManagedTensorVersioned *convert(const session *s, const DLTensor *tensor, dlc_dtype dtype);
dlc_dtype dtype_of(const DLTensor *tensor);
int64_t element_count(const DLTensor *tensor);
/* dims[]: the sizes of --dim, for options of the library; returns their number. */
int given_dims(const session *s, dlc_dim *dims);
/* f32[1, 3] */
const char *type_text(const DLTensor *tensor, char *text, size_t room);

/* ---- protobuf.c ------------------------------------------------------------------------------------------------------------ */

/* The tensor of a .pb file; NULL: a line on stderr. The caller calls its deleter. */
DLManagedTensorVersioned *read_protobuf(const session *s, const char *path);

/* ---- inputs.c -------------------------------------------------------------------------------------------------------------- */

typedef struct inputs {
    int count;
    /* NULL: a state, which the runner keeps (zeros at first) */
    DLManagedTensorVersioned *tensor[PORTS_MAX];
    const DLTensor *given[PORTS_MAX];
} inputs;

/* Makes all inputs by the options. `swept`: the size of the dimension of --sweep; -1: none. False: a line on stderr tells the reason. */
bool make_inputs(const session *s, int64_t swept, inputs *in);
void free_inputs(inputs *in);
/* The tensor of a .npy or .pb file; NULL: failed, with a line on stderr. */
DLManagedTensorVersioned *read_tensor_file(const session *s, const char *path);
bool has_ending(const char *path, const char *ending);
/* Frees the initial states: from now on the runner uses its own. */
void release_states(const session *s, inputs *in);

/* ---- outputs.c ------------------------------------------------------------------------------------------------------------- */

typedef struct outputs {
    dlc_output_slot slot[PORTS_MAX];
} outputs;

void free_outputs(outputs *out);
bool show_outputs(const session *s, report *r, const outputs *out);
bool save_outputs(const session *s, const outputs *out);
/* DIFFERS, FAILED or GOOD. */
int compare_with_files(const session *s, report *r, const outputs *out);
int compare_with_outputs(const session *s, report *r, const outputs *out, const outputs *other);

/* ---- picture.c, for tensors whose last axes are an image ----------------------------------------------------------------------- */

/* Prints the tensor as an image; its elements, `number`, are in least..greatest. */
void show_image(const report *r, const DLTensor *tensor, const double *number, double least, double greatest);

/* ---- graph.c --------------------------------------------------------------------------------------------------------------- */

bool export_model(const session *s, report *r, const inputs *in);
bool draw_graph(const session *s, report *r, const inputs *in);
/* DIFFERS, FAILED or GOOD. */
int verify_values(const session *s, report *r, const inputs *in);

/* ---- measure.c ------------------------------------------------------------------------------------------------------------- */

/* Seconds of a clock that never goes back. */
double now(void);
/* A stage of the program as text, for the shapes of these inputs. */
dlc_status dump_stage(const session *s, const inputs *in, dlc_program *program, const char *stage, char **text);
/* Runs once, into empty output slots. */
bool run_once(const session *s, const inputs *in, outputs *out);
bool measure_time(const session *s, report *r, const inputs *in);
bool measure_profile(const session *s, report *r, const inputs *in);
bool measure_clients(const session *s, report *r, const inputs *in);
bool measure_sweep(const session *s, report *r);

#endif
