/* Decoding by libdlc: a runner keeps the caches. */
#include "bench/models/engine_dlc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PORTS = 64 };

typedef struct decoding {
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    int inputs, outputs;
    /* the number of the output `logits` */
    int logits;
    int64_t token, shape[2];
    DLTensor tokens;
    DLManagedTensorVersioned *last;
} decoding;

static void close_decoding(void *state) {
    decoding *d = state;
    if (d->last) d->last->deleter(d->last);
    dlc_onnx_runner_destroy(d->runner);
    dlc_onnx_destroy(d->model);
    dlc_context_destroy(d->context);
    free(d);
}

static int find_output(const dlc_onnx_model *model, const char *name) {
    dlc_onnx_port port;
    for (int i = 0; dlc_onnx_port_at(model, DLC_ONNX_OUTPUT, i, &port) == DLC_OK; i++)
        if (strcmp(port.name, name) == 0) return i;
    return -1;
}

static bool prepare(decoding *d, const engine_task *task) {
    dlc_context_options how = engine_dlc_options(task);
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    options.find_states = true;
    if (dlc_context_create(&how, &d->context) != DLC_OK ||
        dlc_onnx_open(d->context, task->path, NULL, &d->model) != DLC_OK)
        return false;
    d->inputs = dlc_onnx_port_count(d->model, DLC_ONNX_INPUT);
    d->outputs = dlc_onnx_port_count(d->model, DLC_ONNX_OUTPUT);
    d->logits = find_output(d->model, "logits");
    return dlc_onnx_runner_create(d->model, &options, &d->runner) == DLC_OK;
}

static void *open_decoding(const engine_task *task, char *message, size_t size) {
    decoding *d = calloc(1, sizeof *d);
    if (!d) return snprintf(message, size, "no memory"), NULL;
    bool good = prepare(d, task);
    if (!good)
        snprintf(message, size, "%s", dlc_error_message(d->context));
    else if (d->logits < 0 || d->inputs > MOST_PORTS || d->outputs > MOST_PORTS)
        good = false, snprintf(message, size, "no output logits, or more ports than this program takes");
    if (!good) return close_decoding(d), NULL;
    d->shape[0] = d->shape[1] = 1;
    d->tokens =
        (DLTensor){.data = &d->token, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = d->shape};
    return d;
}

static const float *step(void *state, int64_t token, int64_t *count) {
    decoding *d = state;
    const DLTensor *inputs[MOST_PORTS] = {&d->tokens};
    dlc_output_slot slots[MOST_PORTS] = {{NULL, NULL}};
    d->token = token;
    if (d->last) slots[d->logits].tensor = &d->last->dl_tensor;
    if (dlc_onnx_run(d->runner, NULL, inputs, d->inputs, slots, d->outputs) != DLC_OK) {
        fprintf(stderr, "%s\n", dlc_error_message(d->context));
        return NULL;
    }
    if (slots[d->logits].managed) d->last = slots[d->logits].managed;
    *count = d->last->dl_tensor.shape[2];
    return d->last->dl_tensor.data;
}

static void reset(void *state) {
    dlc_onnx_runner_reset(((decoding *)state)->runner);
}

static void count_work(void *state, uint64_t *builds, uint64_t *copied) {
    dlc_statistics now = DLC_STATISTICS_INIT;
    dlc_context_statistics(((decoding *)state)->context, &now);
    *builds = now.kernel_builds, *copied = now.copied_bytes;
}

const engine_decoder engine_dlc_decoder = {open_decoding, step, reset, close_decoding, count_work};
