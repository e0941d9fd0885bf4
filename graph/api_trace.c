/* Tracing: calls a host's function on symbolic inputs and compiles the graph that it built. */
#include "graph/api_internal.h"

#include <dlc/eager.h>

#include <stdio.h>

static dlc_status fail(dlc_context *context, dlc_status status, const char *message) {
    lib_error error;
    lib_fail(&error, status, "dlc_trace: %s", message);
    return graph_context_fail(context, &error);
}

/* Records the graph's first error, which explains later ones; if there is none, the status and message. */
static dlc_status fail_in(dlc_context *context, const dlc_graph *handle, dlc_status status, const char *message) {
    if (graph_handle_status(handle) == DLC_OK) return fail(context, status, message);
    lib_error error;
    lib_fail(&error, graph_handle_status(handle), "%s", dlc_graph_message(handle));
    return graph_context_fail(context, &error);
}

typedef struct tracing {
    dlc_traced_function *function;
    void *user;
    int input_count, output_count;
    const dlc_trace_input *inputs;
    const char *const *output_names;
    /* inputs, then outputs */
    dlc_value *values;
} tracing;

static dlc_status make_outputs(dlc_context *context, dlc_graph *handle, const tracing *t) {
    char text[96];
    const dlc_value *outputs = t->values + t->input_count;
    for (int i = 0; i < t->output_count; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", i);
        if (!dlc_value_ok(outputs[i]) || outputs[i].graph != handle) {
            (void)snprintf(text, sizeof text, "output %d of the function is not set, or no value of the graph", i);
            return fail_in(context, handle, DLC_INVALID_ARGUMENT, text);
        }
        dlc_output(handle, t->output_names ? t->output_names[i] : number, outputs[i]);
    }
    return graph_handle_status(handle) == DLC_OK ? DLC_OK : fail_in(context, handle, DLC_INVALID_ARGUMENT, "");
}

static dlc_status trace_into(dlc_context *context, dlc_graph *handle, const tracing *t) {
    for (int i = 0; i < t->input_count; i++) {
        const dlc_trace_input *input = &t->inputs[i];
        t->values[i] = dlc_input(handle, input->name, input->dtype, input->rank, input->dims);
    }
    for (int i = 0; i < t->output_count; i++) t->values[t->input_count + i] = graph_poison();
    if (graph_handle_status(handle) != DLC_OK) return fail_in(context, handle, DLC_INVALID_ARGUMENT, "");
    dlc_status status =
        t->function(t->user, handle, t->input_count, t->values, t->output_count, t->values + t->input_count);
    if (status != DLC_OK) {
        char text[96];
        if (!graph_is_status(status)) {
            (void)snprintf(text, sizeof text, "the function returned %d, which is no status", (int)status);
            return fail_in(context, handle, DLC_INTERNAL, text);
        }
        (void)snprintf(text, sizeof text, "the function failed: %s", dlc_status_text(status));
        return fail_in(context, handle, status, text);
    }
    return make_outputs(context, handle, t);
}

dlc_status dlc_trace(dlc_context *context, dlc_traced_function *function, void *user, int input_count,
                     const dlc_trace_input *inputs, int output_count, const char *const *output_names,
                     dlc_graph **handle) {
    if (handle) *handle = NULL;
    if (!context || !function || !handle || input_count < 0 || output_count < 0 || (input_count && !inputs))
        return fail(context, DLC_INVALID_ARGUMENT,
                    "context, function, inputs or the place for the graph is NULL, or a count below 0");
    GRAPH_CALL(context, LIB_STACK_CALL);
    const dlc_allocator *allocator = graph_context_allocator(context);
    size_t size = ((size_t)input_count + (size_t)output_count) * sizeof(dlc_value);
    tracing t = {.function = function,
                 .user = user,
                 .input_count = input_count,
                 .output_count = output_count,
                 .inputs = inputs,
                 .output_names = output_names};
    dlc_graph *made;
    LIB_TRY(dlc_graph_create(context, &made));
    t.values = lib_allocate_zeroed(allocator, size, _Alignof(dlc_value));
    dlc_status status =
        t.values ? trace_into(context, made, &t) : fail(context, DLC_OUT_OF_MEMORY, "memory was refused");
    lib_release(allocator, t.values, size, _Alignof(dlc_value));
    if (status == DLC_OK && graph_handle_status(made) != DLC_OK) status = graph_handle_status(made);
    if (status == DLC_OK)
        *handle = made;
    else
        dlc_graph_destroy(made);
    return status;
}
