/* Bytes that may be a model: opened, imported and run on the interpreter with small inputs, within limits of memory and time. */
#ifndef TEST_ONNX_ANY_MODEL_H
#define TEST_ONNX_ANY_MODEL_H

#include "lib/lib.h"
#include "onnx/mutate_model.h"

#include <dlc/onnx.h>

/* Memory of the context: beyond MEMORY it is refused. */
enum { ANY_MEMORY = 256 << 20, ANY_RUN_MS = 300, ANY_COMPILE_MS = 1000, ANY_ELEMENTS = 1 << 18, ANY_PORTS = 64 };

typedef struct any_memory {
    _Atomic int64_t bytes, blocks;
} any_memory;

static inline void *any_allocate(void *user, size_t size, size_t alignment) {
    any_memory *m = user;
    void *pointer = NULL;
    if (size > ANY_MEMORY || (m->bytes += (int64_t)size) > ANY_MEMORY ||
        !(pointer = lib_allocate(&lib_libc_allocator, size, alignment))) {
        if (size <= ANY_MEMORY) m->bytes -= (int64_t)size;
        return NULL;
    }
    m->blocks++;
    return pointer;
}

static inline void any_release(void *user, void *pointer, size_t size, size_t alignment) {
    any_memory *m = user;
    if (!pointer) return;
    m->bytes -= (int64_t)size;
    m->blocks--;
    lib_release(&lib_libc_allocator, pointer, size, alignment);
}

static inline dlc_context *any_context(any_memory *memory) {
    const dlc_allocator allocator = {any_allocate, any_release, memory};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    options.target = "interp";
    options.allocator = &allocator;
    options.limits.time_ms = ANY_COMPILE_MS;
    return dlc_context_create(&options, &context) == DLC_OK ? context : NULL;
}

/* How far the bytes came. */
typedef struct any_outcome {
    /* "open", "import", "run" */
    const char *step;
    dlc_status status;
} any_outcome;

typedef struct any_tensor {
    DLTensor dl;
    int64_t shape[DLC_MAX_RANK];
} any_tensor;

/* A tensor for an input: declared sizes if they are small, other sizes at random; small elements, or now and then extreme ones. False: there is no such tensor. */
static inline bool any_tensor_for(const dlc_onnx_port *port, uint64_t *random, any_tensor *t) {
    if (port->kind != DLC_ONNX_TENSOR || port->dtype < 0 || port->optional) return false;
    const dlc_dtype dtype = (dlc_dtype)port->dtype;
    const int rank = port->rank >= 0 ? port->rank : (int)mutate_below(random, 3);
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        const int64_t declared = port->rank >= 0 && !port->dims[d].name ? port->dims[d].value : -1;
        const int64_t drawn = 1 + (int64_t)mutate_below(random, 3), most = ANY_ELEMENTS / count;
        t->shape[d] = declared >= 0 && declared <= most ? declared : drawn <= most ? drawn : 1;
        if (t->shape[d]) count *= t->shape[d];
    }
    const size_t bytes = lib_dtype_bytes(dtype, (size_t)count);
    t->dl = (DLTensor){.device = {kDLCPU, 0}, .ndim = rank, .dtype = lib_dtype_to_dlpack(dtype), .shape = t->shape};
    t->dl.data = calloc(1, bytes + 16);
    if (lib_dtype_is_packed(dtype) || dtype == DLC_C64) return t->dl.data != NULL;
    const bool extreme = mutate_below(random, 8) == 0;
    for (int64_t i = 0; t->dl.data && i < count; i++) {
        char *at = (char *)t->dl.data + (size_t)i * lib_dtype_size(dtype);
        if (lib_dtype_is_float(dtype))
            lib_element_set_f64(dtype, at,
                                extreme ? extreme_number(random) : (double)mutate_below(random, 4001) / 1000 - 2);
        else if (extreme && dtype != DLC_BOOL)
            lib_element_set_i64(dtype, at, extreme_integer(random));
        else
            lib_element_set_i64(dtype, at, (int64_t)mutate_below(random, dtype == DLC_BOOL ? 2 : 4));
    }
    return t->dl.data != NULL;
}

/* Imports a model whose inputs or outputs are not all tensors as a graph, if possible. */
static inline dlc_status any_import(dlc_onnx_model *model) {
    dlc_graph *made = NULL;
    const dlc_status status = dlc_onnx_graph(model, NULL, &made);
    dlc_graph_destroy(made);
    return status;
}

static inline dlc_status any_run(dlc_onnx_runner *runner, const dlc_onnx_model *model, uint64_t *random) {
    const int inputs = dlc_onnx_port_count(model, DLC_ONNX_INPUT),
              outputs = dlc_onnx_port_count(model, DLC_ONNX_OUTPUT);
    any_tensor tensor[ANY_PORTS];
    const DLTensor *given[ANY_PORTS];
    dlc_output_slot out[ANY_PORTS] = {{0}};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    dlc_status status = DLC_OK;
    int made = 0;
    options.budget_ms = ANY_RUN_MS;
    for (; made < inputs; made++) {
        dlc_onnx_port port;
        if (dlc_onnx_port_at(model, DLC_ONNX_INPUT, made, &port) != DLC_OK ||
            !any_tensor_for(&port, random, &tensor[made]))
            break;
        given[made] = &tensor[made].dl;
    }
    if (made == inputs) status = dlc_onnx_run(runner, &options, given, inputs, out, outputs);
    for (int i = 0; i < made; i++) free(tensor[i].dl.data);
    for (int i = 0; i < outputs; i++)
        if (out[i].managed) out[i].managed->deleter(out[i].managed);
    return status;
}

static inline any_outcome any_model(dlc_context *context, const void *bytes, size_t size, uint64_t seed) {
    any_outcome o = {.step = "open"};
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    char *text = NULL;
    compile.budget_ms = ANY_COMPILE_MS;
    compile.budget_bytes = ANY_MEMORY;
    options.compile = &compile;
    o.status = dlc_onnx_parse(context, bytes, size, NULL, &model);
    if (o.status == DLC_OK) {
        o.step = "import";
        if (dlc_onnx_check(model, &text) == DLC_OK) dlc_text_free(context, text);
        o.status = any_import(model);
        if (dlc_onnx_port_count(model, DLC_ONNX_INPUT) <= ANY_PORTS &&
            dlc_onnx_port_count(model, DLC_ONNX_OUTPUT) <= ANY_PORTS &&
            dlc_onnx_runner_create(model, &options, &runner) == DLC_OK) {
            o.step = "run";
            o.status = any_run(runner, model, &seed);
        }
        dlc_onnx_runner_destroy(runner);
    }
    dlc_onnx_destroy(model);
    return o;
}

#endif
