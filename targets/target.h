/* A target: generates and runs the code of kernels. One struct of function pointers per target; jit calls nothing else. Targets depend on
 * tir and lib only. All functions may be called from several threads at once; a device handle is immutable after open. Errors: status and
 * message; nothing leaks on failure. */
#ifndef TARGETS_TARGET_H
#define TARGETS_TARGET_H

#include "tir/loop.h"
#include "tir/machine.h"
#include "tir/schedule.h"

typedef struct target_device target_device; /* an opened machine of a target */
typedef struct target_module target_module; /* loaded code of one or more kernels */
typedef struct target_stream target_stream; /* work of a device in order; see target_runtime */
typedef struct target_batch target_batch;   /* repeated launches; see target_runtime */

/* Arguments of a launch of one kernel; see tir/loop.h. `buffers` lists ARG buffers in order. */
typedef struct target_arguments {
    void *const *buffers;
    const int64_t *params;
    char *workspace;
    /* local scratch of slot s starts at local + s*local_stride; with a runtime: as many slots as machine.cores, or
     * tasks if these are fewer */
    char *local;
    int64_t local_stride;
    /* the interpreter and targets with a runtime report errors here; generated code on the host never fails */
    lib_error *error;
    /* the stream to submit the tasks to; unused without a runtime */
    target_stream *stream;
    /* Long loops check this flag for cancellation (tir/polls.h): if it is not zero they call is_over, and leave the phase at once if that
     * returns true. NULL: the run cannot be cancelled. Targets with a runtime ignore it. */
    const volatile int *cancel;
    /* Must the run end now? Called on any thread, at any time of the run; once true, always true. */
    int (*is_over)(const struct target_arguments *arguments);
    /* the run, for is_over's use */
    void *run;
} target_arguments;

/* Runs tasks begin..end-1 of a phase, at least one. `closure` is the one returned with the function (generated code ignores it). With a
 * runtime: submits them to arguments->stream and returns. */
typedef void (*target_phase_function)(const target_arguments *arguments, int64_t iteration, int64_t begin, int64_t end,
                                      int64_t slot, const void *closure);
typedef struct target_phase {
    target_phase_function run;
    const void *closure;
} target_phase;

typedef struct target_options {
    const dlc_allocator *allocator;
    const lib_log *log;
    /* number of the device, if there are several */
    int ordinal;
    /* generate code in another process, if the target can */
    bool isolate;
    /* path of that process' program; NULL: the program in the library's folder */
    const char *compiler_path;
} target_options;

typedef struct
    /* Code before loading: position-independent bytes, complete for `load`; the form stored in a disk cache. */
    target_object {
    const void *bytes;
    size_t size;
    /* for release_object */
    void *owner;
} target_object;

/* Limits of one compilation. */
typedef struct target_budget {
    /* time by lib_time_ns at which compilation fails; 0: none */
    uint64_t deadline_ns;
    /* bytes that code generation may allocate, observed if it runs in another process; 0: no limit */
    size_t memory;
    /* compilation ends when this becomes non-zero; NULL: never */
    const volatile int *cancel;
} target_budget;

/* TARGET_DUMP_VECTORS: loop IR as it is executed (tir/vectorise.h). */
typedef enum target_dump {
    TARGET_DUMP_LLVM,
    TARGET_DUMP_ASSEMBLY,
    TARGET_DUMP_SOURCE,
    TARGET_DUMP_VECTORS
} target_dump;

/* The run of a kernel that `cost` is to predict. */
typedef struct target_work {
    /* values of the kernel's parameters */
    const int64_t *params;
    /* as tir_region_work counts them, for roof_cycles; 0: no roof is needed */
    double operations, bytes;
    /* beside: bytes that other kernels touch between this run and the next, 0: the kernel runs alone, again and again. handed: bytes of
     * operands that another kernel has just written. */
    double beside, handed;
} target_work;
typedef struct target_cost {
    /* input: number of threads that share the tasks */
    int threads;
    /* predicted by the target's cost model */
    double cycles;
    /* of these, what instructions would take if all data were in L1 ([0]), and what transfers from each level of memory would ([1]: L2, ...) */
    double level_cycles[TIR_LEVELS];
    /* minimum cycles for the operations and bytes on this machine */
    double roof_cycles;
} target_cost;

typedef enum target_copy { TARGET_COPY_TO_DEVICE, TARGET_COPY_TO_HOST, TARGET_COPY_ON_DEVICE } target_copy;

/* Further functions of a target whose tensors live in memory of a device. A stream is used by one thread at a time, and all functions but
 * enter and leave are called between these two. Work submitted to a stream runs later, in order. Host memory that it copies from or to
 * must stay allocated, and the source unchanged, until `synchronise` has returned: only then is memory of the host written. */
typedef struct target_runtime {
    /* device type of the target's tensors in DLPack; their device_id is the ordinal that the device was opened with */
    int32_t device_type;
    /* bytes: alignment of memory from `allocate`, and of kernels' arguments if their offsets allow it */
    int32_t alignment;

    /* Makes the device current for the calling thread until leave, which restores what the host had made current. Pairs nest. */
    dlc_status (*enter)(target_device *device, lib_error *error);
    void (*leave)(target_device *device);
    /* blocks until all work submitted to the device, by any thread or stream, has completed */
    void (*settle)(target_device *device);

    /* open: creates a stream, or a handle of the host's stream `given` if that is not NULL; close does not destroy the host's stream. close
     * waits for work submitted since `synchronise`, and is also called where the device could not be entered, as in a forked child. */
    dlc_status (*open)(target_device *device, void *given, target_stream **stream, lib_error *error);
    void (*close)(target_stream *stream);

    /* allocate: memory for work submitted to the stream afterwards; size > 0. release: frees it when all work submitted before is done. */
    dlc_status (*allocate)(target_stream *stream, size_t size, void **pointer, lib_error *error);
    void (*release)(target_stream *stream, void *pointer);
    /* frees memory from `allocate` that no work in progress uses; cannot fail */
    void (*free)(target_device *device, void *pointer);
    dlc_status (*copy)(target_stream *stream, target_copy kind, void *to, const void *from, size_t size,
                       lib_error *error);
    dlc_status (*synchronise)(target_stream *stream, lib_error *error);

    /* Launches between begin_batch and end_batch (nothing else may come between) are submitted as one unit, which is cheaper if the same
     * launches are repeated. *batch, NULL at first, records the launches and is updated if they differ; it is used by one thread at a time,
     * on any stream. release_batch: between enter and leave, when no work of the batch is outstanding. Members NULL: the target has no
     * batches. */
    void (*begin_batch)(target_stream *stream, target_batch **batch);
    dlc_status (*end_batch)(target_stream *stream, lib_error *error);
    void (*release_batch)(target_device *device, target_batch *batch);

    /* mark: marks the end of the work submitted so far; no work may be submitted after it before `synchronise`, which then waits for the
     * mark only. query: is the mark reached? order: makes the host's stream `later` wait for the mark. */
    dlc_status (*mark)(target_stream *stream, lib_error *error);
    dlc_status (*query)(target_stream *stream, bool *done, lib_error *error);
    dlc_status (*order)(target_stream *stream, void *later, lib_error *error);
} target_runtime;

typedef struct target {
    const char *name;
    /* NULL: tensors live in host memory and phases run on host threads */
    const target_runtime *runtime;

    /* Opens the machine at hand and states its facts. DLC_UNSUPPORTED with a reason if there is none, or it has no such ordinal
     * (targets without a runtime have ordinal 0 only). */
    dlc_status (*open)(const target_options *options, target_device **device, tir_machine *machine, lib_error *error);
    void (*close)(target_device *device);

    /* Analytic schedule of a region. Runs in the scope of schedule's arena. threads: a hint; results must not depend on it. */
    void (*schedule)(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule);

    /* A hash of what an object depends on besides the kernels, the machine's facts and the library's own code: the code generator's
     * version and its options. NULL: objects do not outlive the process. */
    lib_hash128 (*code_identity)(const target_device *device);

    /* kernels[i] -> one object. Thread-safe; holds no lock for long. budget may be NULL. */
    dlc_status (*compile)(target_device *device, const target_budget *budget, int count,
                          const tir_kernel *const *kernels, target_object *object, lib_error *error);
    void (*release_object)(target_device *device, target_object *object);
    /* Adds the text of a stage of code generation to *text, in text's arena; assembly begins with the number of spills. */
    dlc_status (*dump)(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                       lib_error *error);

    /* Sets the predictions in cost[0 .. count - 1], one for each number of threads, of a run after another run of the same kernel, from the
     * machine's facts alone. NULL: the target has no model. Takes about as long as lowering. Allocates in `arena`, in its scope. */
    void (*cost)(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work, int count,
                 target_cost *cost);
    /* How many of `cost`'s cycles a nanosecond has; the first call measures the clock, for a tenth of a millisecond. */
    double (*cycles_per_ns)(target_device *device);

    /* Loads an object of `count` kernels; phase(module, k, p) then returns phase p of kernel k. Bytes that are no such object are rejected.
     * names[k]: name of kernel k, for messages and profilers; names may be NULL. */
    dlc_status (*load)(target_device *device, const target_object *object, int count, const char *const *names,
                       target_module **module, lib_error *error);
    /* number of phases of a kernel */
    int (*phases)(const target_module *module, int kernel);
    target_phase (*phase)(const target_module *module, int kernel, int phase);
    void (*unload)(target_device *device, target_module *module);
    /* the main function of the process that isolates code generation; NULL: there is none */
    int (*serve)(void);
    /* bytes that the module holds in memory, for the cache budget */
    size_t (*module_bytes)(const target_module *module);
} target;

extern const target target_interp;
extern const target target_null;
extern const target target_cpu;
extern const target target_cuda;

#endif
