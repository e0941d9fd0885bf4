/* OpenVINO's CPU plug-in, one stream at lowest latency, in f32, inputs bound. In contests the model is made for the sizes of its inputs. */
#include "bench/models/engine.h"

#include <openvino/c/openvino.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct session {
    ov_model_t *model;
    ov_compiled_model_t *compiled;
    ov_infer_request_t *request;
    ov_tensor_t *inputs[ENGINE_MOST_INPUTS], *results[ENGINE_MOST_RESULTS];
    int64_t shapes[ENGINE_MOST_RESULTS][DLC_MAX_RANK];
    DLTensor tensors[ENGINE_MOST_RESULTS];
    size_t result_count;
    bool failed;
    char message[512];
} session;

static bool ok(session *s, ov_status_e status) {
    if (status != OK && !s->failed) {
        const char *text = ov_get_last_err_msg();
        snprintf(s->message, sizeof s->message, "%s", text && *text ? text : ov_get_error_info(status));
        s->failed = true;
    }
    return !s->failed;
}

/* One core for the whole process: plug-ins are loaded once. */
static ov_core_t *core(session *s) {
    static ov_core_t *it;
    if (!it) ok(s, ov_core_create(&it));
    return it;
}

static const struct {
    ov_element_type_e theirs;
    DLDataType ours;
} element_types[] = {
    {F32, {kDLFloat, 32, 1}},   {F64, {kDLFloat, 64, 1}}, {F16, {kDLFloat, 16, 1}}, {BF16, {kDLBfloat, 16, 1}},
    {I64, {kDLInt, 64, 1}},     {I32, {kDLInt, 32, 1}},   {I16, {kDLInt, 16, 1}},   {I8, {kDLInt, 8, 1}},
    {U64, {kDLUInt, 64, 1}},    {U32, {kDLUInt, 32, 1}},  {U16, {kDLUInt, 16, 1}},  {U8, {kDLUInt, 8, 1}},
    {BOOLEAN, {kDLBool, 8, 1}},
};
enum { ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

static ov_element_type_e element_type_of(DLDataType type) {
    for (int i = 0; i < ELEMENT_TYPES; i++)
        if (element_types[i].ours.code == type.code && element_types[i].ours.bits == type.bits)
            return element_types[i].theirs;
    return DYNAMIC;
}

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

/* Makes the model for the sizes of its inputs; one that cannot be made for them stays as it is. */
static void fix_sizes(session *s, const engine_task *task) {
    const char *names[ENGINE_MOST_INPUTS];
    ov_partial_shape_t shapes[ENGINE_MOST_INPUTS] = {{{0}, NULL}};
    int count = 0;
    for (; count < task->input_count; count++) {
        const engine_input *in = &task->inputs[count];
        names[count] = in->name;
        if (ov_partial_shape_create_static(in->tensor.ndim, in->shape, &shapes[count]) != OK) break;
    }
    if (count == task->input_count) ov_model_reshape(s->model, names, shapes, (size_t)count);
    for (int i = 0; i < count; i++) ov_partial_shape_free(&shapes[i]);
}

static void bind_input(session *s, const engine_input *in, int index) {
    ov_shape_t shape;
    if (!ok(s, ov_shape_create(in->tensor.ndim, in->shape, &shape))) return;
    if (ok(s, ov_tensor_create_from_host_ptr(element_type_of(in->tensor.dtype), shape, in->tensor.data,
                                             &s->inputs[index])))
        ok(s, ov_infer_request_set_tensor(s->request, in->name, s->inputs[index]));
    ov_shape_free(&shape);
}

static void describe_result(session *s, size_t i) {
    DLTensor *t = &s->tensors[i];
    ov_shape_t shape;
    ov_element_type_e type;
    if (s->results[i]) ov_tensor_free(s->results[i]);
    s->results[i] = NULL;
    if (!ok(s, ov_infer_request_get_output_tensor_by_index(s->request, i, &s->results[i])) ||
        !ok(s, ov_tensor_get_element_type(s->results[i], &type)) || !ok(s, ov_tensor_data(s->results[i], &t->data)) ||
        !ok(s, ov_tensor_get_shape(s->results[i], &shape)))
        return;
    for (int e = 0; e < ELEMENT_TYPES; e++)
        if (element_types[e].theirs == type) t->dtype = element_types[e].ours;
    t->device.device_type = kDLCPU, t->shape = s->shapes[i];
    t->ndim = (int)(shape.rank < DLC_MAX_RANK ? shape.rank : DLC_MAX_RANK);
    for (int d = 0; d < t->ndim; d++) s->shapes[i][d] = shape.dims[d];
    ov_shape_free(&shape);
}

static void prepare(session *s, const engine_task *task) {
    char threads[16];
    snprintf(threads, sizeof threads, "%d", task->threads);
    if (!core(s) || !ok(s, ov_core_read_model(core(s), task->path, NULL, &s->model))) return;
    if (task->exact) fix_sizes(s, task);
    enum { PAIRS = 5 };
    if (!ok(s, ov_core_compile_model(
                   core(s), s->model, "CPU", 2 * PAIRS, &s->compiled, ov_property_key_inference_num_threads, threads,
                   ov_property_key_num_streams, "1", ov_property_key_hint_performance_mode, "LATENCY",
                   ov_property_key_hint_inference_precision, "f32", ov_property_key_hint_enable_cpu_pinning, "NO")) ||
        !ok(s, ov_compiled_model_create_infer_request(s->compiled, &s->request)))
        return;
    for (int i = 0; i < task->input_count && !s->failed; i++) bind_input(s, &task->inputs[i], i);
    size_t count = 0;
    if (!ok(s, ov_compiled_model_outputs_size(s->compiled, &count))) return;
    if (count > ENGINE_MOST_RESULTS) {
        snprintf(s->message, sizeof s->message, "more outputs than this program takes");
        s->failed = true;
        return;
    }
    s->result_count = count;
    ok(s, ov_infer_request_infer(s->request));
}

static void close_session(void *state) {
    session *s = state;
    for (size_t i = 0; i < s->result_count; i++)
        if (s->results[i]) ov_tensor_free(s->results[i]);
    for (int i = 0; i < ENGINE_MOST_INPUTS; i++)
        if (s->inputs[i]) ov_tensor_free(s->inputs[i]);
    if (s->request) ov_infer_request_free(s->request);
    if (s->compiled) ov_compiled_model_free(s->compiled);
    if (s->model) ov_model_free(s->model);
    free(s);
}

static void *open_session(const engine_task *task, char *message, size_t size) {
    session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(message, size, "no memory"), NULL;
    prepare(s, task);
    if (!s->failed) return s;
    snprintf(message, size, "%s", s->message);
    close_session(s);
    return NULL;
}

static void run(void *state) {
    session *s = state;
    ok(s, ov_infer_request_infer(s->request));
}

static int results(void *state, const DLTensor *to[ENGINE_MOST_RESULTS]) {
    session *s = state;
    for (size_t i = 0; i < s->result_count && !s->failed; i++) {
        describe_result(s, i);
        to[i] = &s->tensors[i];
    }
    return s->failed ? -1 : (int)s->result_count;
}

static void describe(char *text, size_t size) {
    ov_version_t version;
    if (ov_get_openvino_version(&version) != OK) {
        snprintf(text, size, "unknown version");
        return;
    }
    snprintf(text, size, "%s; f32, one stream, latency", version.buildNumber);
    ov_version_free(&version);
}

const engine *engine_get(void) {
    static const engine it = {"openvino", describe, open_session, run, results, close_session, NULL, NULL, NULL, NULL};
    return &it;
}
