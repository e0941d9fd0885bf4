/* A target: how kernels become code and run. One struct of function pointers per target; jit calls nothing else.
 * Targets see tir and lib only. All functions may be called from several threads at once; a device handle is immutable after
 * open. Errors: status and message; nothing is lost on failure. */
#ifndef TARGETS_TARGET_H
#define TARGETS_TARGET_H

#include "tir/loop.h"
#include "tir/machine.h"
#include "tir/schedule.h"

typedef struct target_device target_device; /* an opened machine of a target */
typedef struct target_module target_module; /* loaded code of one or more kernels */
typedef struct target_stream target_stream; /* work of a device in order; see target_runtime */
typedef struct target_batch target_batch;   /* launches that come again; see target_runtime */

/* What a launch of one kernel gets; see tir/loop.h. `buffers` lists ARG buffers in order. */
typedef struct target_arguments {
    void *const *buffers;
    const int64_t *params;
    char *workspace;
    char *
        local; /* local scratch of slot s starts at local + s*local_stride; with a runtime: as many slots as machine.cores, or tasks
                    if these are fewer */
    int64_t local_stride;
    lib_error *error;      /* the interpreter's way to report, and a device's; generated code never fails */
    target_stream *stream; /* of targets with a runtime; else unused */
} target_arguments;

/* Runs tasks begin..end-1 of a phase, one at least. `closure` is the one that came with the function (generated code ignores it). Of a
 * target with a runtime: puts them on arguments->stream and returns. */
typedef void (*target_phase_function)(const target_arguments *arguments, int64_t iteration, int64_t begin, int64_t end,
                                      int64_t slot, const void *closure);
typedef struct target_phase {
    target_phase_function run;
    const void *closure;
} target_phase;

typedef struct target_options {
    const dlc_allocator *allocator;
    const lib_log *log;
    int ordinal; /* which of several devices */
} target_options;

typedef struct
    target_object { /* code before loading: position-independent bytes that say all that `load` needs; what a disk cache holds */
    const void *bytes;
    size_t size;
    void *owner; /* for release_object */
} target_object;

typedef enum target_dump { TARGET_DUMP_LLVM, TARGET_DUMP_ASSEMBLY, TARGET_DUMP_SOURCE } target_dump;

typedef struct target_work {  /* of one run */
    const int64_t *params;    /* values of the kernel's parameters */
    int threads;              /* participants */
    double operations, bytes; /* see tir_region_work */
} target_work;
typedef struct target_cost {
    double ns;      /* what the target's cost model says of the run */
    double roof_ns; /* the least that operations and bytes take on this machine */
} target_cost;

typedef enum target_copy { TARGET_COPY_TO_DEVICE, TARGET_COPY_TO_HOST, TARGET_COPY_ON_DEVICE } target_copy;

/* What a target adds whose tensors live in memory of their own. A stream belongs to one thread at a time, and all but enter and leave
 * are called between these two. What a stream is given runs later, in order; host memory that it copies from or to stays in place, and
 * what it copies from as it is, until `synchronise` has returned: only then is memory of the host written. */
typedef struct target_runtime {
    int32_t
        device_type; /* of its tensors, as DLPack has it; their device_id is the ordinal that the device was opened with */
    int32_t
        alignment; /* bytes that `allocate` and kernels' arguments keep, as far as these lie at such offsets of their memory */

    /* The calling thread uses the device until leave, which gives back what the host had set. They nest. */
    dlc_status (*enter)(target_device *device, lib_error *error);
    void (*leave)(target_device *device);
    void (*settle)(target_device *device); /* waits for everything that the device was given, by whomever */

    /* A stream of our own, or the host's if `given` is not NULL, which stays the host's. Closing waits for what it was given. */
    dlc_status (*open)(target_device *device, void *given, target_stream **stream, lib_error *error);
    void (*close)(target_stream *stream);

    /* Memory that work given to the stream from now on may use; released when all given before is done. size > 0. */
    dlc_status (*allocate)(target_stream *stream, size_t size, void **pointer, lib_error *error);
    void (*release)(target_stream *stream, void *pointer);
    dlc_status (*copy)(target_stream *stream, target_copy kind, void *to, const void *from, size_t size,
                       lib_error *error);
    dlc_status (*synchronise)(target_stream *stream, lib_error *error);

    /* Launches between these two, and nothing else, become one piece of work, which is cheaper where the same come again. *batch, at
     * first NULL, remembers them, and is brought up to date where they differ; it is used by one thread at a time, on any stream.
     * Released, within enter and leave, when no work of it is under way. NULL: the target has no such thing. */
    void (*begin_batch)(target_stream *stream, target_batch **batch);
    dlc_status (*end_batch)(target_stream *stream, lib_error *error);
    void (*release_batch)(target_device *device, target_batch *batch);

    /* The end of what the stream was given so far, which nothing follows before `synchronise`: that then waits no longer than for
     * this. Is it reached? Lets the host's own stream wait for it. */
    dlc_status (*mark)(target_stream *stream, lib_error *error);
    dlc_status (*query)(target_stream *stream, bool *done, lib_error *error);
    dlc_status (*order)(target_stream *stream, void *later, lib_error *error);
} target_runtime;

typedef struct target {
    const char *name;
    const target_runtime *runtime; /* NULL: tensors live in host memory and phases run on host threads */

    /* Opens the machine at hand and states its facts. DLC_UNSUPPORTED with a reason when there is none, or it has no such ordinal
     * (targets without a runtime have ordinal 0 only). */
    dlc_status (*open)(const target_options *options, target_device **device, tir_machine *machine, lib_error *error);
    void (*close)(target_device *device);

    /* Analytic schedule of a region. Runs in the scope of schedule's arena. threads: hint, see tir.md. */
    void (*schedule)(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule);

    /* Everything that an object depends on beside the kernels, the machine's facts and the library's own code: the code generator's
     * version and what it was told of the machine. NULL: objects do not outlive the process. */
    lib_hash128 (*code_identity)(const target_device *device);

    /* kernels[i] -> one object. Thread-safe; takes no lock. */
    dlc_status (*compile)(target_device *device, int count, const tir_kernel *const *kernels, target_object *object,
                          lib_error *error);
    void (*release_object)(target_device *device, target_object *object);
    /* Text of a stage of code generation, with a spill count for assembly; in text's arena. */
    dlc_status (*dump)(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                       lib_error *error);

    /* Predicts a run, with all caches as another run of the same kernel leaves them. NULL: the target has no model. Takes about as
     * long as lowering, and the first call a tenth of a millisecond more. Memory is of `arena`, in its scope. */
    void (*cost)(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work,
                 target_cost *cost);

    /* Loads an object of `count` kernels; `phase` then gives phase p of kernel k. Bytes that are no such object are refused. names:
     * the kernels', for messages and profilers; may be NULL. */
    dlc_status (*load)(target_device *device, const target_object *object, int count, const char *const *names,
                       target_module **module, lib_error *error);
    int (*phases)(const target_module *module, int kernel); /* how many `phase` may be asked for */
    target_phase (*phase)(const target_module *module, int kernel, int phase);
    void (*unload)(target_device *device, target_module *module);
    size_t (*module_bytes)(const target_module *module); /* what it holds in memory, for the cache budget */
} target;

extern const target target_interp;
extern const target target_null;
extern const target target_cpu;
extern const target target_cuda;

#endif
