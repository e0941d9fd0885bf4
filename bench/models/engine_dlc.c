/* libdlc as a host uses it: a runner, which imports the model for whatever arrives. */
#include "bench/models/engine.h"

#include <dlc/onnx.h>
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
    /* Sizes of results depend on data: each run makes new tensors. */
    bool fresh, failed;
} session;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tensors of the last run become those of the next one. */
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
    dlc_onnx_destroy(s->model);
    dlc_context_destroy(s->context);
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

static bool open_model(session *s, const engine_task *task, char *message, size_t size) {
    dlc_context_options how = DLC_CONTEXT_OPTIONS_INIT;
    dlc_program *program;
    how.threads = how.compile_threads = task->threads > 1 ? task->threads : 0;
    how.cache_directory = task->cache;
    how.default_float_modes = true;
    if (dlc_context_create(&how, &s->context) != DLC_OK) return fail(s, message, size);
    const double begin = now();
    if (dlc_onnx_open(s->context, task->path, NULL, &s->model) != DLC_OK) return fail(s, message, size);
    if (!bind_inputs(s, task, message, size)) return false;
    if (dlc_onnx_runner_create(s->model, NULL, &s->runner) != DLC_OK) return fail(s, message, size);
    if (dlc_onnx_runner_program(s->runner, s->inputs, s->input_count, &program) != DLC_OK)
        return fail(s, message, size);
    if (task->import_seconds) *task->import_seconds = now() - begin;
    return run_once(s) == DLC_OK || fail(s, message, size);
}

static void *open_session(const engine_task *task, char *message, size_t size) {
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    if (!open_model(s, task, message, size)) return close_session(s), NULL;
    if (task->exact) s->fresh = run_once(s) == DLC_INVALID_ARGUMENT;
    return s;
}

static int results(void *state, const DLTensor *to[ENGINE_MOST_RESULTS]) {
    session *s = state;
    for (int i = 0; i < s->result_count; i++) to[i] = &s->slots[i].managed->dl_tensor;
    return s->failed ? -1 : s->result_count;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s", dlc_version());
}

const engine *engine_get(void) {
    static const engine it = {"dlc", describe, open_session, run, results, close_session};
    return &it;
}
