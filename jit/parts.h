/* Evaluation of graphs part by part: values of a graph are known if they have tensors; the part of the graph between known and wanted
 * values is cut out, compiled, and run. Used for eager graphs (eager.c) and for walks of ONNX models (onnx_walk.c).
 *
 * Parts that differ only in the contents of their tensors share a program. So do parts that differ only in sizes, if symbols can replace
 * these sizes (graph/sizes.h). */
#ifndef JIT_PARTS_H
#define JIT_PARTS_H

#include "jit/jit.h"

#include <stdatomic.h>

/* A tensor, with references from its values and from the tensors given to the host. */
typedef struct jit_kept_tensor {
    atomic_int references;
    dlc_allocator allocator;
    /* NULL: the data belong to the host */
    DLManagedTensorVersioned *managed;
    DLTensor dl;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} jit_kept_tensor;

/* A new tensor without data; NULL: memory is refused. */
jit_kept_tensor *jit_tensor_new(const dlc_allocator *allocator);
/* Gives the tensor the element type, shape, strides and data of `dl`. */
void jit_tensor_describe(jit_kept_tensor *tensor, const DLTensor *dl);
/* *out: a kept tensor for the host's tensor, which is checked; its data are copied if `copy` and if they are in host memory. */
dlc_status jit_tensor_hold(dlc_context *context, const DLTensor *dl, bool copy, const char *call, jit_kept_tensor **out,
                           lib_error *error);
static inline jit_kept_tensor *jit_tensor_keep(jit_kept_tensor *tensor) {
    atomic_fetch_add(&tensor->references, 1);
    return tensor;
}
void jit_tensor_drop(jit_kept_tensor *tensor);
/* *out: a tensor for the host with the same data, read-only, which holds a reference to this one. */
dlc_status jit_tensor_give(jit_kept_tensor *tensor, const char *call, DLManagedTensorVersioned **out, lib_error *error);

/* The programs of the most recently used parts. For one thread at a time. */
typedef struct jit_parts {
    dlc_context *context;
    dlc_compile_options options;
    /* [limit] */
    struct jit_kept_program *programs;
    int program_count, program_limit;
    uint64_t clock;
} jit_parts;
/* context and options are set. False: memory is refused. */
bool jit_parts_init(jit_parts *parts, int limit);
void jit_parts_free(jit_parts *parts);

/* The tensors of a graph's values. */
typedef struct jit_values {
    jit_parts *parts;
    /* Of the runs of parts; NULL: defaults */
    jit_how *how;
    /* [capacity] by value id; NULL: not computed */
    jit_kept_tensor **tensors;
    uint32_t capacity;
    /* effects of the nodes before this one have been executed */
    uint32_t effects_done;
    /* an evaluation is in progress, which may call functions of the host */
    bool at_work;
} jit_values;

/* NULL: the value is not known. */
static inline jit_kept_tensor *jit_values_at(const jit_values *values, graph_id id) {
    return id < values->capacity ? values->tensors[id] : NULL;
}
/* Grows the table for values up to `last`. */
dlc_status jit_values_reserve(jit_values *values, uint32_t last, const char *call, lib_error *error);
/* No value is known any more; the table stays. */
void jit_values_forget(jit_values *values);
void jit_values_free(jit_values *values);

/* Computes the unknown ones of these values of g, together. After an error no more of them are known than before. */
dlc_status jit_values_evaluate(jit_values *values, const graph *g, int count, const graph_id *ids, const char *call,
                               lib_error *error);
/* Copies a known value to a tensor of its element type and shape, of any strides, in host memory or on the device. */
dlc_status jit_values_read(jit_values *values, graph_id id, DLTensor *into, const char *call, lib_error *error);

#endif
