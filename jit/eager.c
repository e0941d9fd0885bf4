/* Eager graphs (<dlc/eager.h>): graphs of the host whose values have tensors. */
#include "jit/parts.h"

#include <dlc/eager.h>

enum { PROGRAMS_KEPT = 64 };

typedef struct eager {
    dlc_context *context;
    dlc_graph *graph;
    jit_parts parts;
    jit_values values;
} eager;

static dlc_status out_of_memory(const char *call, lib_error *error) {
    return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: memory was refused", call);
}

/* ---- create, destroy ---------------------------------------------------------------------------------------------- */

static void release_eager(void *data) {
    eager *e = data;
    jit_values_free(&e->values);
    jit_parts_free(&e->parts);
    lib_release(&e->context->allocator, e, sizeof *e, _Alignof(eager));
}

static dlc_status check_options(const dlc_eager_options *options, lib_error *error) {
    if (!options) return DLC_OK;
    if (options->struct_size != sizeof *options || options->programs < 0)
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "dlc_eager_create: options.struct_size is %zu, expected %zu (use DLC_EAGER_OPTIONS_INIT); programs is %d",
            options->struct_size, sizeof *options, options->programs);
    if (options->compile && options->compile->struct_size != sizeof *options->compile)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_eager_create: compile.struct_size is %zu, expected %zu (use DLC_COMPILE_OPTIONS_INIT)",
                        options->compile->struct_size, sizeof *options->compile);
    return DLC_OK;
}

dlc_status dlc_eager_create(dlc_context *context, const dlc_eager_options *options, dlc_graph **handle) {
    static const dlc_compile_options defaults = DLC_COMPILE_OPTIONS_INIT;
    lib_error error;
    if (handle) *handle = NULL;
    if (!context || !handle) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_eager_create: context or the place for the graph is NULL");
        return jit_fail(context, &error);
    }
    if (check_options(options, &error) != DLC_OK) return jit_fail(context, &error);
    GRAPH_CALL(context, LIB_STACK_CALL);
    eager *e = lib_allocate_zeroed(&context->allocator, sizeof *e, _Alignof(eager));
    if (!e) {
        out_of_memory("dlc_eager_create", &error);
        return jit_fail(context, &error);
    }
    e->context = context;
    e->values.parts = &e->parts;
    e->parts.context = context;
    e->parts.options = options && options->compile ? *options->compile : defaults;
    const bool made = jit_parts_init(&e->parts, options && options->programs ? options->programs : PROGRAMS_KEPT);
    const dlc_status status = made ? dlc_graph_create(context, &e->graph) : DLC_OUT_OF_MEMORY;
    if (status != DLC_OK) {
        release_eager(e);
        out_of_memory("dlc_eager_create", &error);
        return jit_fail(context, &error);
    }
    graph_handle_attach(e->graph, (graph_attachment){e, release_eager});
    *handle = e->graph;
    return DLC_OK;
}

/* NULL: the graph is not eager. The error is recorded in the graph, so that traced functions fail, too. */
static eager *eager_of(dlc_graph *handle, const char *call, dlc_status *status) {
    lib_error error;
    *status = DLC_INVALID_ARGUMENT;
    if (!graph_handle_live(handle)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: the graph is NULL or destroyed", call);
        jit_fail(NULL, &error);
        return NULL;
    }
    eager *e = graph_handle_attached(handle);
    if (!e) {
        lib_fail(
            &error, DLC_INVALID_ARGUMENT,
            "%s: this graph is being traced, or built to be compiled: its values have no tensors; expected a graph of "
            "dlc_eager_create (dlc_if, dlc_while and dlc_scan decide by values that are not known yet)",
            call);
        graph_handle_record(handle, &error);
    }
    return e;
}

/* ---- known values ----------------------------------------------------------------------------------------------------- */

static dlc_value new_known(dlc_graph *handle, const DLTensor *dl, bool copy, const char *call) {
    dlc_status status;
    lib_error error = {.status = DLC_OK};
    jit_kept_tensor *tensor = NULL;
    eager *e = eager_of(handle, call, &status);
    if (!e) return graph_poison();
    GRAPH_CALL_OR(e->context, LIB_STACK_CALL, graph_poison());
    status = jit_tensor_hold(e->context, dl, copy, call, &tensor, &error);
    if (status == DLC_OK) status = jit_values_reserve(&e->values, graph_of_handle(handle)->values.count, call, &error);
    graph_id id;
    if (status == DLC_OK && graph_handle_inputs(handle, 1, &(const DLTensor *){&tensor->dl}, &id) == DLC_OK) {
        e->values.tensors[id] = tensor;
        return graph_handle_value(handle, id);
    }
    jit_tensor_drop(tensor);
    if (status != DLC_OK) graph_handle_record(handle, &error);
    return graph_poison();
}

dlc_value dlc_eager_tensor(dlc_graph *handle, const DLTensor *tensor) {
    return new_known(handle, tensor, true, "dlc_eager_tensor");
}

dlc_value dlc_eager_borrow(dlc_graph *handle, const DLTensor *tensor) {
    return new_known(handle, tensor, false, "dlc_eager_borrow");
}

bool dlc_eager_known(dlc_value value) {
    if (!dlc_value_ok(value)) return false;
    const eager *e = graph_handle_attached(value.graph);
    return e && jit_values_at(&e->values, value.id);
}

/* ---- evaluation ------------------------------------------------------------------------------------------------------- */

static dlc_status check_values(const eager *e, int count, const dlc_value *values, const char *call, lib_error *error) {
    if (count < 0 || (count && !values))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: values is NULL or their number is %d", call, count);
    for (int i = 0; i < count; i++) {
        if (dlc_value_ok(values[i]) && values[i].graph == e->graph) continue;
        const char *message = dlc_graph_message(e->graph);
        if (dlc_value_ok(values[i]))
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "%s: value %d is one of another graph, or of a sub-graph; expected values of this graph",
                            call, i);
        if (values[i].graph)
            return lib_fail(
                error, DLC_INVALID_ARGUMENT,
                "%s: value %d is none of this graph any more: dlc_eager_step did not keep it, or its graph is gone",
                call, i);
        return lib_fail(error, message[0] ? graph_handle_status(e->graph) : DLC_INVALID_ARGUMENT,
                        "%s: value %d is none%s%s", call, i, message[0] ? ", by a mistake: " : "", message);
    }
    return DLC_OK;
}

static dlc_status evaluate(eager *e, int count, const dlc_value *values, const char *call, lib_error *error) {
    enum { FEW = 16 };
    graph_id few[FEW], *ids = few;
    LIB_TRY(check_values(e, count, values, call, error));
    const size_t bytes = (size_t)count * sizeof *ids;
    if (count > FEW) ids = lib_allocate(&e->context->allocator, bytes, _Alignof(graph_id));
    if (!ids) return out_of_memory(call, error);
    for (int i = 0; i < count; i++) ids[i] = values[i].id;
    const dlc_status status = jit_values_evaluate(&e->values, graph_of_handle(e->graph), count, ids, call, error);
    if (ids != few) lib_release(&e->context->allocator, ids, bytes, _Alignof(graph_id));
    return status;
}

dlc_status dlc_eager_evaluate(dlc_graph *handle, int count, const dlc_value *values) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_evaluate", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = evaluate(e, count, values, "dlc_eager_evaluate", &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

/* ---- results -------------------------------------------------------------------------------------------------------- */

dlc_status dlc_eager_get(dlc_graph *handle, dlc_value value, DLManagedTensorVersioned **tensor) {
    dlc_status status;
    lib_error error;
    if (tensor) *tensor = NULL;
    eager *e = eager_of(handle, "dlc_eager_get", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    if (!tensor)
        status = lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_eager_get: the place for the tensor is NULL");
    else
        status = evaluate(e, 1, &value, "dlc_eager_get", &error);
    if (status == DLC_OK)
        status = jit_tensor_give(jit_values_at(&e->values, value.id), "dlc_eager_get", tensor, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

dlc_status dlc_eager_read(dlc_graph *handle, dlc_value value, DLTensor *into) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_read", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = evaluate(e, 1, &value, "dlc_eager_read", &error);
    if (status == DLC_OK) status = jit_values_read(&e->values, value.id, into, "dlc_eager_read", &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

static dlc_status read_number(eager *e, dlc_value value, double *number, lib_error *error) {
    static const char call[] = "dlc_eager_number";
    if (!number) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the place for the number is NULL", call);
    LIB_TRY(evaluate(e, 1, &value, call, error));
    const jit_kept_tensor *tensor = jit_values_at(&e->values, value.id);
    const dlc_dtype dtype = dlc_value_dtype(value);
    int64_t count;
    if (!lib_tensor_count(&tensor->dl, &count) || count != 1)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the value has %lld elements, expected one", call,
                        (long long)count);
    if (lib_dtypes[dtype].class_ == 'c')
        return lib_fail(error, DLC_UNSUPPORTED, "%s: the value is %s: take its parts first, dlc_real, dlc_imag", call,
                        lib_dtypes[dtype].name);
    uint64_t element = 0;
    DLTensor into = {.data = &element,
                     .device = {kDLCPU, 0},
                     .ndim = tensor->dl.ndim,
                     .dtype = tensor->dl.dtype,
                     .shape = tensor->dl.shape};
    LIB_TRY(jit_values_read(&e->values, value.id, &into, call, error));
    *number = lib_element_get_f64(dtype, &element);
    return DLC_OK;
}

dlc_status dlc_eager_number(dlc_graph *handle, dlc_value value, double *number) {
    dlc_status status;
    lib_error error;
    if (number) *number = 0;
    eager *e = eager_of(handle, "dlc_eager_number", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = read_number(e, value, number, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

/* Allocates the state that is kept, in one block: a table for the values of the new graph, descriptions, ids. */
static dlc_status renew(eager *e, int count, dlc_value *values, lib_error *error) {
    const dlc_allocator *allocator = &e->context->allocator;
    uint32_t capacity = (uint32_t)count + 64;
    size_t bytes = (size_t)(count + 1) * (sizeof(DLTensor *) + sizeof(graph_id));
    jit_kept_tensor **tensors = lib_allocate_zeroed(allocator, capacity * sizeof(void *), _Alignof(void *));
    const DLTensor **like = lib_allocate_zeroed(allocator, bytes, _Alignof(void *));
    dlc_status status = tensors && like ? DLC_OK : out_of_memory("dlc_eager_step", error);
    if (status == DLC_OK) {
        graph_id *ids = (graph_id *)(void *)(like + count + 1);
        for (int i = 0; i < count; i++) like[i] = &jit_values_at(&e->values, values[i].id)->dl;
        status = graph_handle_renew(e->graph, count, like, ids, error);
        for (int i = 0; status == DLC_OK && i < count; i++) {
            tensors[ids[i]] = jit_tensor_keep(jit_values_at(&e->values, values[i].id));
            values[i] = graph_handle_value(e->graph, ids[i]);
        }
    }
    lib_release(allocator, like, like ? bytes : 0, _Alignof(void *));
    if (status != DLC_OK) {
        lib_release(allocator, tensors, tensors ? capacity * sizeof(void *) : 0, _Alignof(void *));
        return status;
    }
    jit_values_free(&e->values);
    e->values.tensors = tensors;
    e->values.capacity = capacity;
    e->values.effects_done = 0;
    return DLC_OK;
}

dlc_status dlc_eager_step(dlc_graph *handle, int count, dlc_value *values) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_step", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = evaluate(e, count, values, "dlc_eager_step", &error);
    if (status == DLC_OK) status = renew(e, count, values, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}
