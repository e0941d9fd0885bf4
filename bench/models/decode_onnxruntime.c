/* Decoding by ONNX Runtime: everything is bound, and the caches that a step makes are the next one's inputs as they are. */
#include "bench/models/engine_onnxruntime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PORTS = 64, RANK = 4 };

typedef struct decoding {
    ort_session *session;
    ort_memory_info *memory;
    ort_binding *binding;
    size_t input_count, output_count;
    char *inputs[MOST_PORTS], *outputs[MOST_PORTS];
    /* for each output, the input that takes its value in the next step; -1: it is `logits` */
    int input_of[MOST_PORTS];
    /* the first step's caches, without tokens */
    ort_value *empty[MOST_PORTS];
    ort_value *token_value;
    int64_t token;
    /* the last step's results, [output_count], in memory of ONNX Runtime; NULL: no step has run yet */
    ort_value **results;
    ort_error error;
} decoding;

static bool ok(decoding *d, ort_status *status) {
    return engine_ort_ok(&d->error, status);
}

static void release_results(decoding *d) {
    for (size_t i = 0; d->results && i < d->output_count; i++) onnxruntime()->release_value(d->results[i]);
    if (d->results) ok(d, onnxruntime()->release_text(engine_ort_allocator(&d->error), d->results));
    d->results = NULL;
}

static void release_names(decoding *d, char **names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (names[i]) ok(d, onnxruntime()->release_text(engine_ort_allocator(&d->error), names[i]));
}

static void close_decoding(void *state) {
    decoding *d = state;
    release_results(d);
    if (d->binding) onnxruntime()->release_binding(d->binding);
    for (size_t i = 0; i < d->input_count; i++)
        if (d->empty[i]) onnxruntime()->release_value(d->empty[i]);
    if (d->token_value) onnxruntime()->release_value(d->token_value);
    release_names(d, d->inputs, d->input_count);
    release_names(d, d->outputs, d->output_count);
    if (d->memory) onnxruntime()->release_memory_info(d->memory);
    if (d->session) onnxruntime()->release_session(d->session);
    free(d);
}

static void open_file(decoding *d, const engine_task *task) {
    ort_options *options = NULL;
    ort_env *env = engine_ort_environment(&d->error);
    if (env && ok(d, onnxruntime_options(task->threads, &options)))
        ok(d, onnxruntime()->create_session_of_file(env, task->path, options, &d->session));
    if (options) onnxruntime()->release_options(options);
    if (d->error.failed || !ok(d, onnxruntime()->input_count(d->session, &d->input_count)) ||
        !ok(d, onnxruntime()->output_count(d->session, &d->output_count)))
        return;
    if (d->input_count <= MOST_PORTS && d->output_count <= MOST_PORTS) return;
    d->input_count = d->output_count = 0, d->error.failed = true;
    snprintf(d->error.message, sizeof d->error.message, "more ports than this program takes");
}

/* The input that takes the value of an output: `past*` for `present*`; -1: none. */
static int find_input(const decoding *d, const char *output) {
    static const char prefix[] = "present";
    if (strncmp(output, prefix, sizeof prefix - 1) != 0) return -1;
    for (size_t i = 1; i < d->input_count; i++)
        if (strncmp(d->inputs[i], "past", 4) == 0 && strcmp(d->inputs[i] + 4, output + sizeof prefix - 1) == 0)
            return (int)i;
    return -1;
}

/* Makes the first step's cache, in the file's sizes, with one sequence and no tokens. */
static void make_empty(decoding *d, size_t input) {
    static float nothing;
    int64_t dims[RANK];
    size_t rank = 0;
    ort_type_info *type = NULL;
    const ort_tensor_info *info = NULL;
    if (ok(d, onnxruntime()->input_type(d->session, input, &type)) &&
        ok(d, onnxruntime()->tensor_info_of_type(type, &info)) && ok(d, onnxruntime()->rank(info, &rank)) &&
        rank == RANK && ok(d, onnxruntime()->dimensions(info, dims, RANK))) {
        dims[0] = 1, dims[2] = 0;
        ok(d, onnxruntime()->create_tensor(d->memory, &nothing, 0, dims, RANK, 1, &d->empty[input]));
    } else if (!d->error.failed) {
        d->error.failed = true;
        snprintf(d->error.message, sizeof d->error.message, "input %s is no cache of rank 4", d->inputs[input]);
    }
    if (type) onnxruntime()->release_type_info(type);
}

static void prepare(decoding *d) {
    static const int64_t one[2] = {1, 1};
    ort_allocator *allocator = engine_ort_allocator(&d->error);
    ok(d, onnxruntime()->create_memory_info(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &d->memory));
    ok(d, onnxruntime()->create_binding(d->session, &d->binding));
    for (size_t i = 0; i < d->input_count && !d->error.failed; i++)
        ok(d, onnxruntime()->input_name(d->session, i, allocator, &d->inputs[i]));
    for (size_t i = 1; i < d->input_count && !d->error.failed; i++) make_empty(d, i);
    for (size_t i = 0; i < d->output_count && !d->error.failed; i++)
        if (ok(d, onnxruntime()->output_name(d->session, i, allocator, &d->outputs[i])))
            d->input_of[i] = find_input(d, d->outputs[i]);
    if (!d->error.failed &&
        ok(d, onnxruntime()->create_tensor(d->memory, &d->token, sizeof d->token, one, 2, 7, &d->token_value)))
        ok(d, onnxruntime()->bind_input(d->binding, d->inputs[0], d->token_value));
}

static void reset(void *state) {
    decoding *d = state;
    release_results(d);
    for (size_t i = 1; i < d->input_count; i++) ok(d, onnxruntime()->bind_input(d->binding, d->inputs[i], d->empty[i]));
}

static void *open_decoding(const engine_task *task, char *message, size_t size) {
    decoding *d = onnxruntime() ? calloc(1, sizeof *d) : NULL;
    if (!d) return snprintf(message, size, "no memory, or an unknown interface"), NULL;
    open_file(d, task);
    if (!d->error.failed) prepare(d);
    if (!d->error.failed) reset(d);
    if (!d->error.failed) return d;
    snprintf(message, size, "%s", d->error.message);
    close_decoding(d);
    return NULL;
}

/* Runs a step. Its results are bound to memory in general, not to tensors, so ONNX Runtime makes them: the caches grow. */
static void run(decoding *d) {
    size_t count = 0;
    for (size_t i = 0; i < d->output_count && !d->error.failed; i++)
        ok(d, onnxruntime()->bind_output_in(d->binding, d->outputs[i], d->memory));
    if (d->error.failed || !ok(d, onnxruntime()->run_bound(d->session, NULL, d->binding))) return;
    release_results(d);
    ok(d, onnxruntime()->bound_results(d->binding, engine_ort_allocator(&d->error), &d->results, &count));
    for (size_t i = 0; i < d->output_count && !d->error.failed; i++)
        if (d->input_of[i] >= 0) ok(d, onnxruntime()->bind_input(d->binding, d->inputs[d->input_of[i]], d->results[i]));
}

static const float *step(void *state, int64_t token, int64_t *count) {
    decoding *d = state;
    void *data = NULL;
    int64_t dims[RANK] = {0};
    size_t rank = 0;
    ort_tensor_info *info = NULL;
    d->token = token;
    run(d);
    for (size_t i = 0; i < d->output_count && !d->error.failed; i++) {
        if (strcmp(d->outputs[i], "logits") != 0) continue;
        if (ok(d, onnxruntime()->tensor_info_of_value(d->results[i], &info)) &&
            ok(d, onnxruntime()->rank(info, &rank)) && rank == 3 && ok(d, onnxruntime()->dimensions(info, dims, rank)))
            ok(d, onnxruntime()->tensor_data(d->results[i], &data));
        if (info) onnxruntime()->release_tensor_info(info);
        info = NULL;
    }
    if (d->error.failed) fprintf(stderr, "%s\n", d->error.message);
    *count = dims[2];
    return data;
}

const engine_decoder engine_ort_decoder = {open_decoding, step, reset, close_decoding, NULL};
