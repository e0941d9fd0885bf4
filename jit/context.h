/* The kernel cache and the context, which all programs of a host share. */
#ifndef JIT_CONTEXT_H
#define JIT_CONTEXT_H

#include "graph/api.h"
#include "graph/fuse.h"
#include "graph/layout.h"
#include "graph/op.h"
#include "graph/segment.h"
#include "targets/target.h"

#include <dlc/dlc.h>
#include <stdatomic.h>

/* ---- kernel cache --------------------------------------------------------------------------------------------------- */

/* What a kernel depends on. Zeroed, then filled: compared as bytes. */
typedef struct jit_key {
    /* of the canonical region: structure, extents or PARAM, layouts, scalar constants */
    lib_hash128 computation;
    /* target, features, library version */
    lib_hash128 machine;
    /* zero: the target's rules; else hash of the host's schedule for this region */
    lib_hash128 schedule;
    /* thread count that the target's rules planned for (kernels of jit_host: the context's threads) */
    int32_t threads;
    /* bit 0: excess precision */
    uint32_t options;
} jit_key;

/* unit of eviction */
typedef struct jit_module {
    /* most recently used first */
    struct jit_module *next, *previous;
    target_module *code;
    size_t bytes;
    /* plans that call it; guarded by the cache's mutex */
    int pins;
    /* the CPU target in place of a device that generated the code; NULL: the context's target */
    const struct jit_host *host;
    struct jit_kernel *kernels;
} jit_module;

typedef enum jit_kernel_state { JIT_BUILDING, JIT_READY, JIT_FAILED } jit_kernel_state;

typedef struct jit_kernel_phase {
    target_phase function;
    /* in kernel->pool */
    tir_expr tasks;
    /* 0, or how often the sequence of this and the next repeat_phases - 1 phases runs */
    tir_expr repeat;
    int repeat_phases;
    /* a task may prefetch data of the next task */
    bool fetches;
} jit_kernel_phase;

typedef struct jit_kernel {
    /* hash chain; kernels of one module */
    struct jit_kernel *bucket, *sibling;
    jit_key key;
    jit_kernel_state state;
    /* JIT_FAILED */
    lib_error error;
    /* claims that have not been pinned yet; guarded by the cache's mutex */
    int waiters;
    jit_module *module;
    /* the CPU target that runs it; NULL: the context's device */
    const struct jit_host *host;
    const char *name;
    jit_kernel_phase *phases;
    int phase_count;
    /* bytes, in kernel->pool; 0: none */
    tir_expr workspace_size, local_size;
    /* layout that the kernel expects of each input (constants are packed to it) */
    tir_layout *input_layouts;
    int inputs;
    int outputs;
    /* [outputs] bit set of the inputs that it may overwrite: each element is read only by the point that writes it */
    uint64_t *shares;
    /* owns the above, and the pool of the size expressions */
    lib_arena arena;
    lib_scope scope;
    tir_pool *pool;
    /* in the order of the plan's parameter values */
    tir_expr *params;
    int param_count;
} jit_kernel;

typedef struct jit_cache {
    lib_mutex mutex;
    /* signalled when a kernel leaves the state JIT_BUILDING */
    lib_condition ready;
    jit_kernel **buckets;
    uint32_t bucket_count, count;
    jit_module *newest, *oldest;
    size_t bytes, budget;
} jit_cache;

/* The kernel cache on disk, see disk.c. */
typedef struct jit_disk {
    /* NULL: none */
    char *folder;
    size_t folder_size, budget;
    /* of `written` */
    lib_mutex mutex;
    /* bytes written since this process last scanned the folder; SIZE_MAX: never scanned */
    size_t written;
    atomic_bool reported;
    _Atomic uint64_t hits, misses, writes, errors, read_bytes, written_bytes, read_ns;
    /* fusion decisions loaded from the folder */
    _Atomic uint64_t decisions;
} jit_disk;

/* Fusion's decisions by the cost model: 128-bit hash of the question -> joins undone (graph/fuse.h). */
enum { JIT_DECISIONS = 4096 };
typedef struct jit_decision {
    /* zero: none yet */
    lib_hash128 question;
    uint32_t undone;
} jit_decision;
typedef struct jit_decisions {
    lib_mutex mutex;
    /* [JIT_DECISIONS], direct-mapped by the question's hash; a new entry replaces an old one. NULL: none yet */
    jit_decision *table;
} jit_decisions;

void jit_decisions_open(dlc_context *context);
void jit_decisions_close(dlc_context *context);

/* ---- context ---------------------------------------------------------------------------------------------------------- */

/* Shared memory for the arenas of large plans, since one arena for each plan would hold too much: a run takes a large enough
 * block and returns it. */
typedef struct jit_block {
    _Alignas(64) atomic_bool busy;
    /* owned by the thread that set busy; NULL: none yet */
    char *memory;
    size_t size;
    /* length of the prefix whose pages are certainly resident, see jit_frame_touch */
    size_t present;
} jit_block;

/* results.c: a result that the host owns, in memory that the context keeps when the tensor is deleted. NULL: refused. */
typedef struct jit_results jit_results;
DLManagedTensorVersioned *jit_result_new(dlc_context *context, dlc_dtype dtype, int rank, const int64_t *shape);
/* Bytes that are kept for later results. */
uint64_t jit_results_bytes(const dlc_context *context);
void jit_results_close(dlc_context *context);

enum { JIT_BLOCKS_KEPT = 8, JIT_ARENA_SHARED = 256 << 10 /* bytes; larger arenas come from the blocks */ };

/* A pooled stream, of targets with a runtime. */
typedef struct jit_stream_slot {
    _Alignas(64) atomic_bool busy;
    /* owned by the thread that set busy; NULL: none yet */
    target_stream *stream;
} jit_stream_slot;

enum { JIT_STREAMS_KEPT = 8 };

/* the CPU target as fallback of a device's target, see host.c */
typedef struct jit_host {
    const target *target;
    target_device *device;
    tir_machine machine;
} jit_host;

typedef struct jit_mover jit_mover; /* a kernel that copies tensors with strides, see strided.c */
enum { JIT_MOVER_SIZES = 4, JIT_MOVER_RANKS = DLC_MAX_RANK + 1 };

enum { JIT_WEIGHT_CHAINS = 256 };
/* a context's weights, by identity */
typedef struct jit_weights {
    lib_mutex mutex;
    struct jit_weight *chains[JIT_WEIGHT_CHAINS];
} jit_weights;
void jit_weights_open(dlc_context *context);
void jit_weights_close(dlc_context *context);

struct dlc_context {
    /* the host's, and one for each object that needs it: graphs, programs, files, natives, tensors on a device */
    atomic_int references;
    dlc_allocator allocator;
    /* threads in public calls other than runs of bound plans */
    lib_callers callers;
    /* complete */
    dlc_limits limits;
    /* stack size assumed for calls on a stack that is not their thread's own */
    size_t unknown_stack;
    graph_handles handles;
    lib_log log;
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    /* NULL: none */
    void (*trace)(void *user, const char *what, const char *name, const char *values, uint64_t begin_ns,
                  uint64_t end_ns);
    void *trace_user;
    const target *target;
    target_device *device;
    /* which of the target's devices */
    int ordinal;
    tir_machine machine;
    lib_hash128 machine_hash;
    /* NULL: only the calling thread */
    lib_pool *pool, *compile_pool;
    lib_parallel_for parallel_for;
    void *parallel_user;
    /* number of participants in work on the host */
    int threads;
    /* slots of local scratch in a run; for a device's target, the number of concurrent tasks */
    int width;
    int compile_width;
    size_t plan_entries;
    bool default_float_modes, no_batches, isolate;
    /* NULL: in the library's directory */
    char *compiler_path;
    jit_cache cache;
    jit_disk disk;
    jit_decisions decisions;
    jit_weights weights;
    /* NULL: not enabled */
    struct jit_background *background;
    jit_block blocks[JIT_BLOCKS_KEPT];
    /* NULL: no result was allocated so far */
    _Atomic(jit_results *) results;
    jit_stream_slot streams[JIT_STREAMS_KEPT];
    /* NULL: not needed so far */
    _Atomic(jit_host *) host;
    /* NULL: not needed so far */
    _Atomic(jit_mover *) movers[JIT_MOVER_SIZES][JIT_MOVER_RANKS];
    /* guards the list of programs */
    lib_mutex mutex;
    dlc_program *programs;
    /* Totals of destroyed programs, and counts that belong to no program. */
    _Atomic uint64_t runs, plan_misses, plan_hits, plan_builds, plan_evictions, kernel_hits, kernel_builds,
        kernel_evictions;
    _Atomic uint64_t interpreted_regions, refused_schedules, arena_bytes, plan_bytes, constant_bytes, copied_bytes,
        transferred_bytes, compile_ns, run_ns, host_regions, tier_generic, tier_specialised, tier_failures, predictions;
};

dlc_status jit_fail(dlc_context *context,
                    const lib_error *error); /* records for dlc_error_message; returns the status */

void jit_context_keep(dlc_context *context);
void jit_context_release(dlc_context *context); /* the last release destroys it */

dlc_status jit_cache_init(dlc_context *context, size_t budget, lib_error *error);
void jit_cache_free(dlc_context *context);
/* Finds or claims: *claimed is true when the caller must build the kernel and then call jit_cache_publish or _fail. Every claim
 * must be followed by one jit_cache_pin or _leave. NULL: out of memory. */
jit_kernel *jit_cache_claim(dlc_context *context, const jit_key *key, bool *claimed);
/* Waits briefly for a kernel that is being built; returns whether it still is. */
bool jit_cache_wait(dlc_context *context, jit_kernel *kernel);
/* Waits until the kernel's build ends and pins its module. On failure: returns the build's error, pins nothing, and the kernel
 * may have been freed. */
dlc_status jit_cache_pin(dlc_context *context, jit_kernel *kernel, lib_error *error);
/* drops a claim of another build's kernel without pinning it */
void jit_cache_leave(dlc_context *context, jit_kernel *kernel);
void jit_cache_unpin(dlc_context *context, jit_kernel *kernel);
/* `kernels[count]` share `code`. */
dlc_status jit_cache_publish(dlc_context *context, jit_kernel *const *kernels, int count, target_module *code,
                             size_t bytes, lib_error *error);
/* Evicts unpinned modules; true: kernels and plans together still exceed the budget. */
bool jit_cache_over_budget(dlc_context *context);
/* disk.c: `folder` NULL: none; 0 bytes: 256 MiB. */
dlc_status jit_disk_open(dlc_context *context, const char *folder, size_t bytes, lib_error *error);
void jit_disk_close(dlc_context *context);
/* Ends a claim without a kernel: waiting builds get the message, and a later claim tries again. */
void jit_cache_fail(dlc_context *context, jit_kernel *kernel, const lib_error *error);

#endif
