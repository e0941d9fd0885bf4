/* ONNX Runtime: all optimisations, inputs and results bound. In contests the names of sizes have their values when the session is made, unless it
 * is faster without: some of its fusions want them known (of attention), others unknown (of quantised products). */
#include "bench/models/engine_onnxruntime.h"
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct session {
    ort_session *session;
    ort_memory_info *memory;
    ort_binding *binding;
    ort_value *inputs[ENGINE_MOST_INPUTS], *results[ENGINE_MOST_RESULTS];
    char *result_names[ENGINE_MOST_RESULTS];
    int64_t shapes[ENGINE_MOST_RESULTS][DLC_MAX_RANK];
    DLTensor tensors[ENGINE_MOST_RESULTS];
    size_t input_count, result_count;
    const engine_task *task;
    /* `session` belongs to another engine session, which closes it */
    bool shared;
    ort_error error;
} session;

bool engine_ort_ok(ort_error *error, ort_status *status) {
    if (status) {
        if (!error->failed) snprintf(error->message, sizeof error->message, "%s", onnxruntime()->error_message(status));
        onnxruntime()->release_status(status);
        error->failed = true;
    }
    return !error->failed;
}

ort_env *engine_ort_environment(ort_error *error) {
    static ort_env *env;
    if (!env) engine_ort_ok(error, onnxruntime()->create_env(ORT_LOG_FATAL, "models", &env));
    return env;
}

ort_allocator *engine_ort_allocator(ort_error *error) {
    ort_allocator *it = NULL;
    engine_ort_ok(error, onnxruntime()->default_allocator(&it));
    return it;
}

static bool ok(session *s, ort_status *status) {
    return engine_ort_ok(&s->error, status);
}

static ort_env *environment(session *s) {
    return engine_ort_environment(&s->error);
}

static ort_allocator *allocator(session *s) {
    return engine_ort_allocator(&s->error);
}

/* ---- element types: ONNX's TensorProto.DataType ------------------------------------------------------------------------ */

static const DLDataType element_types[] = {
    [1] = {kDLFloat, 32, 1},   [2] = {kDLUInt, 8, 1},    [3] = {kDLInt, 8, 1},    [4] = {kDLUInt, 16, 1},
    [5] = {kDLInt, 16, 1},     [6] = {kDLInt, 32, 1},    [7] = {kDLInt, 64, 1},   [9] = {kDLBool, 8, 1},
    [10] = {kDLFloat, 16, 1},  [11] = {kDLFloat, 64, 1}, [12] = {kDLUInt, 32, 1}, [13] = {kDLUInt, 64, 1},
    [16] = {kDLBfloat, 16, 1},
};
enum { ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

static int onnx_type_of(DLDataType type) {
    for (int i = 1; i < ELEMENT_TYPES; i++)
        if (element_types[i].code == type.code && element_types[i].bits == type.bits) return i;
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

static const engine_input *input_named(const engine_task *task, const char *name) {
    for (int i = 0; i < task->input_count; i++)
        if (strcmp(task->inputs[i].name, name) == 0) return &task->inputs[i];
    return NULL;
}

/* Is the symbol the name of one size? Some exporters call all sizes that they do not know "?". */
static bool is_name(const char *symbol) {
    return symbol && *symbol && strcmp(symbol, "?") != 0;
}

/* Gives the names of an input's sizes, if it has any, the values that the task has for them. */
static void name_sizes(session *s, const ort_session *from, size_t index, const engine_task *task,
                       ort_options *options) {
    char *name = NULL;
    const char *symbols[DLC_MAX_RANK] = {NULL};
    ort_type_info *type = NULL;
    const ort_tensor_info *info = NULL;
    size_t rank = 0;
    if (!ok(s, onnxruntime()->input_name(from, index, allocator(s), &name))) return;
    const engine_input *in = input_named(task, name);
    if (ok(s, onnxruntime()->input_type(from, index, &type)) &&
        ok(s, onnxruntime()->tensor_info_of_type(type, &info)) && info && ok(s, onnxruntime()->rank(info, &rank)) &&
        in && rank == (size_t)in->tensor.ndim && ok(s, onnxruntime()->symbols(info, symbols, rank)))
        for (size_t d = 0; d < rank; d++)
            if (is_name(symbols[d])) ok(s, onnxruntime()->set_symbol(options, symbols[d], in->shape[d]));
    if (type) onnxruntime()->release_type_info(type);
    ok(s, onnxruntime()->release_text(allocator(s), name));
}

/* Gives all names their values. They are read from a first session, without optimisations. */
static void name_all_sizes(session *s, const engine_task *task, ort_options *options) {
    ort_options *plain = NULL;
    ort_session *first = NULL;
    size_t count = 0;
    if (ok(s, onnxruntime_options(1, &plain)) && ok(s, onnxruntime()->set_optimisation(plain, ORT_OPTIMISE_NOTHING)) &&
        ok(s, onnxruntime()->set_option(plain, "session.disable_prepacking", "1")) &&
        ok(s, onnxruntime()->create_session_of_file(environment(s), task->path, plain, &first)) &&
        ok(s, onnxruntime()->input_count(first, &count)))
        for (size_t i = 0; i < count && !s->error.failed; i++) name_sizes(s, first, i, task, options);
    if (first) onnxruntime()->release_session(first);
    if (plain) onnxruntime()->release_options(plain);
}

static void open_file(session *s, const engine_task *task, bool named) {
    ort_options *options = NULL;
    if (!environment(s)) return;
    if (ok(s, onnxruntime_options(task->threads, &options))) {
        if (named) name_all_sizes(s, task, options);
        if (task->plain) ok(s, onnxruntime()->set_optimisation(options, ORT_OPTIMISE_NOTHING));
        if (!s->error.failed)
            ok(s, onnxruntime()->create_session_of_file(environment(s), task->path, options, &s->session));
    }
    if (options) onnxruntime()->release_options(options);
}

static size_t bytes_of(const DLTensor *t) {
    size_t bytes = t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
    return bytes;
}

static void bind_input(session *s, const engine_task *task, size_t i) {
    char *name = NULL;
    if (!ok(s, onnxruntime()->input_name(s->session, i, allocator(s), &name))) return;
    const engine_input *in = input_named(task, name);
    if (!in) {
        snprintf(s->error.message, sizeof s->error.message, "no sizes are given for the input %s", name);
        s->error.failed = true;
    } else if (ok(s,
                  onnxruntime()->create_tensor(s->memory, in->tensor.data, bytes_of(&in->tensor), in->shape,
                                               (size_t)in->tensor.ndim, onnx_type_of(in->tensor.dtype), &s->inputs[i])))
        ok(s, onnxruntime()->bind_input(s->binding, name, s->inputs[i]));
    ok(s, onnxruntime()->release_text(allocator(s), name));
}

/* Describes a result that the first run has made as a tensor, for comparison. */
static void describe_result(session *s, size_t i) {
    DLTensor *t = &s->tensors[i];
    ort_tensor_info *info = NULL;
    size_t rank = 0;
    int type = 0;
    if (ok(s, onnxruntime()->tensor_info_of_value(s->results[i], &info)) &&
        ok(s, onnxruntime()->element_type(info, &type)) && ok(s, onnxruntime()->rank(info, &rank)) &&
        rank <= DLC_MAX_RANK && type < ELEMENT_TYPES && ok(s, onnxruntime()->dimensions(info, s->shapes[i], rank)) &&
        ok(s, onnxruntime()->tensor_data(s->results[i], &t->data)))
        t->dtype = element_types[type], t->ndim = (int)rank, t->shape = s->shapes[i], t->device.device_type = kDLCPU;
    if (info) onnxruntime()->release_tensor_info(info);
}

/* The first run makes the results; later ones write there. */
static void run_first(session *s) {
    char *names[ENGINE_MOST_INPUTS] = {NULL};
    for (size_t i = 0; i < s->input_count; i++)
        ok(s, onnxruntime()->input_name(s->session, i, allocator(s), &names[i]));
    if (!s->error.failed)
        ok(s, onnxruntime()->run(s->session, NULL, (const char *const *)names, (const ort_value *const *)s->inputs,
                                 s->input_count, (const char *const *)s->result_names, s->result_count, s->results));
    for (size_t i = 0; i < s->input_count; i++) ok(s, onnxruntime()->release_text(allocator(s), names[i]));
    for (size_t i = 0; i < s->result_count && !s->error.failed; i++) {
        describe_result(s, i);
        if (!s->error.failed) ok(s, onnxruntime()->bind_output(s->binding, s->result_names[i], s->results[i]));
    }
}

/* Binds inputs and results of an open session. */
static void prepare(session *s, const engine_task *task) {
    if (s->error.failed || !ok(s, onnxruntime()->input_count(s->session, &s->input_count)) ||
        !ok(s, onnxruntime()->output_count(s->session, &s->result_count)))
        return;
    if (s->input_count > ENGINE_MOST_INPUTS || s->result_count > ENGINE_MOST_RESULTS) {
        snprintf(s->error.message, sizeof s->error.message, "more inputs or outputs than this program takes");
        s->error.failed = true, s->result_count = 0;
        return;
    }
    ok(s, onnxruntime()->create_memory_info(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &s->memory));
    ok(s, onnxruntime()->create_binding(s->session, &s->binding));
    for (size_t i = 0; i < s->input_count && !s->error.failed; i++) bind_input(s, task, i);
    for (size_t i = 0; i < s->result_count && !s->error.failed; i++)
        ok(s, onnxruntime()->output_name(s->session, i, allocator(s), &s->result_names[i]));
    if (!s->error.failed) run_first(s);
}

static void close_session(void *state) {
    session *s = state;
    if (s->binding) onnxruntime()->release_binding(s->binding);
    for (size_t i = 0; i < s->input_count; i++)
        if (s->inputs[i]) onnxruntime()->release_value(s->inputs[i]);
    for (size_t i = 0; i < s->result_count; i++) {
        if (s->results[i]) onnxruntime()->release_value(s->results[i]);
        if (s->result_names[i]) ok(s, onnxruntime()->release_text(allocator(s), s->result_names[i]));
    }
    if (s->memory) onnxruntime()->release_memory_info(s->memory);
    if (s->session && !s->shared) onnxruntime()->release_session(s->session);
    free(s);
}

static void *ready(session *s, const engine_task *task, char *message, size_t size) {
    s->task = task;
    prepare(s, task);
    if (!s->error.failed) return s;
    snprintf(message, size, "%s", s->error.message);
    close_session(s);
    return NULL;
}

static void *open_as(const engine_task *task, bool named, char *message, size_t size) {
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    open_file(s, task, named);
    return ready(s, task, message, size);
}

/* The least time of three runs. */
static double seconds_of(session *s) {
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        const double begin = bench_now();
        ok(s, onnxruntime()->run_bound(s->session, NULL, s->binding));
        least = fmin(least, bench_now() - begin);
    }
    return least;
}

static void *open_session(const engine_task *task, char *message, size_t size) {
    if (!onnxruntime()) return snprintf(message, size, "an unknown interface"), NULL;
    session *plain = open_as(task, false, message, size);
    session *named = plain && task->exact && !task->plain ? open_as(task, true, message, size) : NULL;
    if (!named) return plain;
    const bool faster = seconds_of(named) < seconds_of(plain);
    close_session(faster ? plain : named);
    return faster ? named : plain;
}

static void *share(void *state, char *message, size_t size) {
    const session *from = state;
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    s->session = from->session, s->shared = true;
    return ready(s, from->task, message, size);
}

static void run(void *state) {
    session *s = state;
    ok(s, onnxruntime()->run_bound(s->session, NULL, s->binding));
}

static int results(void *state, const DLTensor *to[ENGINE_MOST_RESULTS]) {
    session *s = state;
    for (size_t i = 0; i < s->result_count; i++) to[i] = &s->tensors[i];
    return s->error.failed ? -1 : (int)s->result_count;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s; all optimisations", onnxruntime_version());
}

const engine *engine_get(void) {
    static const engine it = {"onnxruntime", describe, open_session,        run,  results,
                              close_session, share,    &engine_ort_decoder, NULL, NULL};
    return &it;
}
