#include "onnx/again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct inputs {
    const DLTensor *const *tensor;
    int count;
    /* In the graph. */
    bool constant[AGAIN_MOST];
} inputs;

static size_t count_of(const DLTensor *t) {
    size_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= (size_t)t->shape[d];
    return count;
}

/* As it is or, if that is refused, with small inputs as constants. */
static dlc_status import(dlc_onnx_model *model, inputs *in, dlc_graph **made) {
    enum { INTEGERS = 64, FLOATS = 8 };
    dlc_onnx_graph_options options = DLC_ONNX_GRAPH_OPTIONS_INIT;
    const DLTensor *values[AGAIN_MOST];
    const char *names[AGAIN_MOST];
    if (dlc_onnx_graph(model, NULL, made) == DLC_OK) return DLC_OK;
    for (int i = 0; i < in->count; i++) {
        const DLTensor *t = in->tensor[i];
        const bool whole = t->dtype.code == kDLInt || t->dtype.code == kDLUInt || t->dtype.code == kDLBool;
        dlc_onnx_port port;
        in->constant[i] =
            count_of(t) <= (whole ? INTEGERS : FLOATS) && dlc_onnx_port_at(model, DLC_ONNX_INPUT, i, &port) == DLC_OK;
        if (!in->constant[i]) continue;
        names[options.value_count] = port.name;
        values[options.value_count++] = t;
    }
    options.value_names = names, options.values = values;
    return dlc_onnx_graph(model, &options, made);
}

static dlc_status run(dlc_context *context, dlc_graph *graph, const inputs *in, dlc_output_slot *slots, int outputs) {
    const DLTensor *given[AGAIN_MOST];
    dlc_program *program = NULL;
    int count = 0;
    for (int i = 0; i < in->count; i++)
        if (!in->constant[i]) given[count++] = in->tensor[i];
    dlc_status status = dlc_compile(context, graph, NULL, &program);
    if (status == DLC_OK) status = dlc_run(program, NULL, given, count, slots, outputs);
    dlc_program_destroy(program);
    return status;
}

static dlc_status write_and_import(dlc_context *context, const dlc_graph *graph, dlc_onnx_model **model,
                                   dlc_graph **made) {
    char path[] = "/tmp/dlc-conformance-XXXXXX";
    const int file = mkstemp(path);
    if (file >= 0) close(file);
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    options.read = true;
    dlc_status status = dlc_onnx_write(context, path, graph, NULL);
    if (status == DLC_OK) status = dlc_onnx_open(context, path, &options, model);
    if (status == DLC_OK) status = dlc_onnx_graph(*model, NULL, made);
    unlink(path);
    return status;
}

static int run_both(dlc_context *context, dlc_graph *graph, const inputs *in, again_results *results, char *why,
                    size_t room) {
    dlc_onnx_model *model = NULL;
    dlc_graph *imported = NULL;
    dlc_status status = write_and_import(context, graph, &model, &imported);
    /* The export alone may be refused: what was written is imported. */
    const int refused = status == DLC_UNSUPPORTED && !model ? -1 : 1;
    if (status == DLC_OK) status = run(context, graph, in, results->first, results->count);
    if (status == DLC_OK) status = run(context, imported, in, results->second, results->count);
    if (status != DLC_OK) snprintf(why, room, "export: %s", dlc_error_message(context));
    dlc_graph_destroy(imported);
    dlc_onnx_destroy(model);
    return status == DLC_OK ? 0 : refused;
}

int again_run(dlc_context *context, dlc_onnx_model *model, const DLTensor *const *tensors, int count,
              again_results *results, char *why, size_t room) {
    inputs in = {.tensor = tensors, .count = count};
    dlc_graph *graph = NULL;
    int result = -1;
    *results = (again_results){.count = dlc_onnx_port_count(model, DLC_ONNX_OUTPUT)};
    if (count > AGAIN_MOST || results->count > AGAIN_MOST)
        snprintf(why, room, "too many inputs or outputs");
    else if (import(model, &in, &graph) != DLC_OK)
        snprintf(why, room, "no graph: %s", dlc_error_message(context));
    else
        result = run_both(context, graph, &in, results, why, room);
    dlc_graph_destroy(graph);
    return result;
}

bool again_same_bits(const DLTensor *a, const DLTensor *b) {
    bool same = a->ndim == b->ndim && memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0;
    for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
    return same && memcmp((const char *)a->data + a->byte_offset, (const char *)b->data + b->byte_offset,
                          (count_of(a) * a->dtype.bits + 7) / 8) == 0;
}

void again_free(again_results *results) {
    for (int i = 0; i < AGAIN_MOST; i++) {
        DLManagedTensorVersioned *one = results->first[i].managed, *other = results->second[i].managed;
        if (one) one->deleter(one);
        if (other) other->deleter(other);
    }
    *results = (again_results){.count = 0};
}
