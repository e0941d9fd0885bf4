/* libdlc as a host uses it: a runner, which imports the model for whatever arrives. */
#include "bench/models/engine_dlc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct session {
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    int input_count, result_count;
    const DLTensor *inputs[ENGINE_MOST_INPUTS];
    dlc_output_slot slots[ENGINE_MOST_RESULTS];
    /* fresh: sizes of results depend on data: each run makes new tensors. shared: context and model are another session's. */
    bool fresh, failed, shared;
} session;

double engine_dlc_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs once. Unless `fresh`, the results of the last run are given to this one, to be written again. */
static dlc_status run_once(session *s) {
    dlc_output_slot slots[ENGINE_MOST_RESULTS] = {{0}};
    for (int i = 0; i < s->result_count; i++)
        if (s->slots[i].managed && !s->fresh) slots[i].tensor = &s->slots[i].managed->dl_tensor;
    dlc_status status = dlc_onnx_run(s->runner, NULL, s->inputs, s->input_count, slots, s->result_count);
    if (status != DLC_OK) return status;
    for (int i = 0; i < s->result_count; i++) {
        if (!slots[i].managed) continue;
        if (s->slots[i].managed) s->slots[i].managed->deleter(s->slots[i].managed);
        s->slots[i].managed = slots[i].managed;
    }
    return DLC_OK;
}

static void run(void *state) {
    session *s = state;
    if (run_once(s) != DLC_OK) s->failed = true;
}

static void close_session(void *state) {
    session *s = state;
    for (int i = 0; i < s->result_count; i++)
        if (s->slots[i].managed) s->slots[i].managed->deleter(s->slots[i].managed);
    dlc_onnx_runner_destroy(s->runner);
    if (!s->shared) dlc_onnx_destroy(s->model);
    if (!s->shared) dlc_context_destroy(s->context);
    free(s);
}

/* In the file's order. False: the file has an input that the task has not. */
static bool bind_inputs(session *s, const engine_task *task, char *message, size_t size) {
    s->input_count = dlc_onnx_port_count(s->model, DLC_ONNX_INPUT);
    s->result_count = dlc_onnx_port_count(s->model, DLC_ONNX_OUTPUT);
    if (s->input_count > ENGINE_MOST_INPUTS || s->result_count > ENGINE_MOST_RESULTS)
        return snprintf(message, size, "more inputs or outputs than this program takes"), false;
    for (int i = 0; i < s->input_count; i++) {
        dlc_onnx_port port;
        if (dlc_onnx_port_at(s->model, DLC_ONNX_INPUT, i, &port) != DLC_OK) return false;
        for (int k = 0; k < task->input_count; k++)
            if (strcmp(task->inputs[k].name, port.name) == 0) s->inputs[i] = &task->inputs[k].tensor;
        if (!s->inputs[i]) return snprintf(message, size, "no sizes are given for the input %s", port.name), false;
    }
    return true;
}

static bool fail(const session *s, char *message, size_t size) {
    return snprintf(message, size, "%s", dlc_error_message(s->context)), false;
}

dlc_context_options engine_dlc_options(const engine_task *task) {
    dlc_context_options how = DLC_CONTEXT_OPTIONS_INIT;
    how.threads = how.compile_threads = task->threads > 1 ? task->threads : 0;
    how.cache_directory = task->cache;
    how.default_float_modes = true;
    return how;
}

/* Fills in the names of the file's sizes, with their values; returns their count. */
static int known_sizes(const session *s, dlc_dim *dims) {
    int count = 0;
    for (int i = 0; i < s->input_count; i++) {
        dlc_onnx_port port;
        if (dlc_onnx_port_at(s->model, DLC_ONNX_INPUT, i, &port) != DLC_OK) return 0;
        for (int d = 0; d < port.rank && d < s->inputs[i]->ndim; d++)
            if (port.dims[d].name && strcmp(port.dims[d].name, "?") != 0)
                dims[count++] = (dlc_dim){s->inputs[i]->shape[d], port.dims[d].name};
    }
    return count;
}

/* By default one program for all sizes; Winograd's algorithm is for known sizes. */
static dlc_status make_runner(session *s, const engine_task *task) {
    dlc_dim dims[ENGINE_MOST_INPUTS * DLC_MAX_RANK];
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    dlc_onnx_runner_options how = DLC_ONNX_RUNNER_OPTIONS_INIT;
    compile.winograd = true;
    how.compile = &compile;
    how.dims = dims, how.dim_count = task->winograd ? known_sizes(s, dims) : 0;
    return dlc_onnx_runner_create(s->model, task->winograd ? &how : NULL, &s->runner);
}

static bool open_model(session *s, const engine_task *task, char *message, size_t size) {
    dlc_context_options how = engine_dlc_options(task);
    dlc_program *program;
    if (dlc_context_create(&how, &s->context) != DLC_OK) return fail(s, message, size);
    const double begin = engine_dlc_now();
    if (dlc_onnx_open(s->context, task->path, NULL, &s->model) != DLC_OK) return fail(s, message, size);
    if (!bind_inputs(s, task, message, size)) return false;
    if (make_runner(s, task) != DLC_OK) return fail(s, message, size);
    if (dlc_onnx_runner_program(s->runner, s->inputs, s->input_count, &program) != DLC_OK)
        return fail(s, message, size);
    if (task->import_seconds) *task->import_seconds = engine_dlc_now() - begin;
    return run_once(s) == DLC_OK || fail(s, message, size);
}

static void *open_session(const engine_task *task, char *message, size_t size) {
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    if (!open_model(s, task, message, size)) return close_session(s), NULL;
    if (task->exact) s->fresh = run_once(s) == DLC_INVALID_ARGUMENT;
    return s;
}

static void *share(void *state, char *message, size_t size) {
    const session *from = state;
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    s->context = from->context, s->model = from->model, s->shared = true;
    s->input_count = from->input_count, s->result_count = from->result_count, s->fresh = from->fresh;
    memcpy(s->inputs, from->inputs, sizeof s->inputs);
    if (dlc_onnx_runner_create(s->model, NULL, &s->runner) == DLC_OK && run_once(s) == DLC_OK) return s;
    fail(s, message, size);
    return close_session(s), NULL;
}

static int results(void *state, const DLTensor *to[ENGINE_MOST_RESULTS]) {
    session *s = state;
    for (int i = 0; i < s->result_count; i++) to[i] = &s->slots[i].managed->dl_tensor;
    return s->failed ? -1 : s->result_count;
}

/* ---- facts: from the texts that the library prints --------------------------------------------------------------------------- */

/* Dumps a stage of the program for the sizes of the inputs. The caller frees *text. */
static bool dump(session *s, const char *stage, char **text) {
    const int64_t *shapes[ENGINE_MOST_INPUTS];
    int ranks[ENGINE_MOST_INPUTS];
    dlc_program *program;
    dlc_onnx_port port;
    *text = NULL;
    if (dlc_onnx_runner_program(s->runner, s->inputs, s->input_count, &program) != DLC_OK) return false;
    const int count = dlc_program_input_count(program);
    for (int p = 0; p < count; p++)
        for (int i = 0; i < s->input_count; i++)
            if (dlc_onnx_port_at(s->model, DLC_ONNX_INPUT, i, &port) == DLC_OK &&
                strcmp(port.name, dlc_program_input_name(program, p)) == 0)
                shapes[p] = s->inputs[i]->shape, ranks[p] = s->inputs[i]->ndim;
    return dlc_program_dump(program, stage, shapes, ranks, count, text) == DLC_OK;
}

/* Adds up a fact over the plan and the plans of its branches and loops. */
static void read_plan(const char *text, engine_facts *facts) {
    double arena, live;
    for (const char *at = text; (at = strstr(at, "arena of ")) != NULL; at++)
        if (sscanf(at, "arena of %lf bytes, %lf of them", &arena, &live) == 2)
            facts->arena += arena, facts->live += live;
}

/* Adds up the operations of all runs of kernels. */
static double read_profile(const char *text) {
    double mean, runs, rate, operations = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "%*f %% %*f us %*f us %lf us %lf runs %lf GFLOP/s", &mean, &runs, &rate) == 3)
            operations += 1e3 * mean * runs * rate;
    }
    return operations;
}

static void profile(session *s, dlc_program *program, engine_facts *facts) {
    enum { LEAST = 3, MOST = 1000 };
    int runs = 0;
    double kernels;
    char *text;
    dlc_program_profile(program, 1);
    const double begin = engine_dlc_now();
    for (; runs < LEAST || (runs < MOST && engine_dlc_now() < begin + 0.1); runs++) run(s);
    const double seconds = engine_dlc_now() - begin;
    if (dump(s, "profile", &text) && sscanf(text, "# share of %lf us", &kernels) == 1) {
        facts->operations = read_profile(text) / runs;
        facts->profiled = 1e-6 * kernels / seconds;
    }
    dlc_text_free(s->context, text);
    dlc_program_profile(program, 0);
}

/* Collects the facts; a model that is walked has none. */
static void look(void *state, engine_facts *facts) {
    session *s = state;
    dlc_program *program;
    char *text;
    *facts = (engine_facts){0};
    if (dlc_onnx_runner_program(s->runner, s->inputs, s->input_count, &program) != DLC_OK) return;
    profile(s, program, facts);
    if (dump(s, "plan", &text)) read_plan(text, facts);
    dlc_text_free(s->context, text);
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s", dlc_version());
}

const engine *engine_get(void) {
    static const engine it = {"dlc",         describe, open_session,        run,  results,
                              close_session, share,    &engine_dlc_decoder, look, engine_dlc_cost};
    return &it;
}
