/* jit: context, kernel cache, plans, runs. The only layer that may use all others.
 *
 *   context    allocator, target, threads, kernel cache                        context.c
 *   cache      key -> compiled kernel; LRU by bytes; pins                      cache.c; on disk: disk.c, stored.c
 *   program    a compiled graph: no shapes yet                                 program.c
 *   plans      a program's plans by bound shapes: lock-free look-up, retiring  plans.c
 *   background builds of exact plans that replace generic ones                 background.c
 *   bind       shapes -> plan: bind, simplify, fuse, kernels, memory           bind.c, constants.c, kernels.c, schedules.c, memory.c,
 *                                                                             control.c
 *   weights    large constants, shared by programs: one copy                   weights.c, packing.c
 *   call       dlc_run and its checks at the boundary; kept calls              call.c, kept_call.c
 *   run        plan + tensors -> phases; no allocation, no lock                run.c, frame.c, control.c
 *   device     runs on targets with device memory                              device.c
 *   dump       every stage as text                                             dump.c
 *
 * Lifetimes: a plan pins the kernels it calls; a program owns its plans and retains its weights; a run is a registered reader of its
 * program, and no plan is freed while a reader may use it (plans.c). Hosts destroy objects in any order: contexts, programs, files and
 * natives are reference-counted (`references`), graphs and programs retain the owners of their bytes and functions (graph_holder), and the
 * last release frees. */
#ifndef JIT_JIT_H
#define JIT_JIT_H

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
    _Atomic uint64_t interpreted_regions, arena_bytes, plan_bytes, constant_bytes, copied_bytes, transferred_bytes,
        compile_ns, run_ns, host_regions, tier_generic, tier_specialised, tier_failures, predictions;
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

typedef struct jit_section jit_section;

/* ---- plans ---------------------------------------------------------------------------------------------------------------- */

/* Where a value's bytes are at run time. */
typedef enum jit_place_kind {
    JIT_PLACE_NONE,
    JIT_PLACE_INPUT, /* of the run */
    JIT_PLACE_OUTPUT,
    JIT_PLACE_ARENA,
    JIT_PLACE_CONSTANT
} jit_place_kind;

typedef struct jit_place {
    jit_place_kind kind;
    /* INPUT, OUTPUT */
    int32_t number;
    /* INPUT, OUTPUT, ARENA: bytes */
    int64_t offset;
    /* CONSTANT */
    void *pointer;
    /* CONSTANT, while a plan is built: `pointer` is weight->name plus the value's offset, not an address. NULL: it is an address. */
    struct jit_weight *weight;
} jit_place;

typedef enum jit_step_kind {
    JIT_STEP_KERNELS,
    JIT_STEP_COPY,
    JIT_STEP_CUSTOM,
    JIT_STEP_IF,
    JIT_STEP_LOOP,
    JIT_STEP_HOST
} jit_step_kind;

enum { JIT_SAMPLES = 1023 };
/* times of a kernel's last runs */
typedef struct jit_samples {
    _Atomic uint64_t taken, least;
    /* ring buffer; `taken` entries are valid, at most all */
    _Atomic uint64_t ns[JIT_SAMPLES];
} jit_samples;

/* a result of a kernel */
typedef struct jit_watched {
    /* of the value; NULL: it has none */
    const char *name;
    /* NULL: row-major */
    const tir_layout *layout;
    /* the room of the larger buffer that the result is a part of; NULL: it has a buffer of its own */
    const struct jit_donation *room;
    /* [rank] */
    const int64_t *shape;
    int rank;
    dlc_dtype dtype;
} jit_watched;

/* one kernel of a KERNELS step */
typedef struct jit_call {
    jit_kernel *kernel;
    /* index of its first argument pointer in the frame */
    uint32_t first_slot;
    int arguments;
    /* arena offset; -1: none */
    int64_t workspace;
    /* arena offset of slot 0; -1: none */
    int64_t local;
    int64_t local_stride;
    /* size in bytes, in place of an offset, if the host runs it */
    int64_t host_workspace;
    const int64_t *params;
    const char *name;
    /* " of a, b": the names of the values that it computes, or "" */
    const char *origins;
    /* [result_count], which are its last slots */
    const jit_watched *results;
    int result_count;
    /* of one run, see tir_region_work */
    double operations, bytes;
    _Atomic uint64_t profile_ns, profile_runs;
    /* NULL: no run was profiled, or memory was refused */
    _Atomic(jit_samples *) samples;
} jit_call;

/* an operand or result of a custom call or of control flow */
typedef struct jit_tensor {
    jit_place place;
    dlc_dtype dtype;
    int rank;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    size_t bytes;
} jit_tensor;

typedef struct jit_plan jit_plan;

/* arguments of the tasks of one phase */
typedef struct jit_phase {
    target_phase function;
    int64_t iteration;
    /* in plan->calls */
    int32_t call;
} jit_phase;

typedef struct
    /* A while or a scan. The body's inputs: carries, elements of sequences, captures; its outputs: carries, the condition,
     * elements of stacks. Results: carries, stacks, number of iterations. */
    jit_loop {
    int carries, sequences, stacks;
    /* the body computes the condition, and the last result is the number of iterations */
    bool conditional;
    /* most iterations */
    int64_t length;
    /* [sequences + stacks] bytes from an iteration's element to the next one's */
    int64_t *step;
    /* [carries] stack whose elements are the carry; -1: none */
    int *row_of;
    /* [carries] the body updates the carry in place */
    bool *in_place;
} jit_loop;

typedef struct jit_step {
    jit_step_kind kind;
    /* KERNELS: phases of consecutive calls */
    int64_t phases;
    /* turned: with the tasks in reverse order, for every second iteration of a loop */
    const lib_phase *phase, *turned;
    const jit_phase *target;
    /* HOST, a step of one kernel: bytes of each operand and result */
    const size_t *bytes;
    /* too little work to share: the calling thread runs all tasks */
    bool alone;
    /* COPY, CUSTOM, IF, LOOP; an IF's first input is its condition; a LOOP's last ones are the copies packed by the enclosing loop */
    jit_tensor *inputs, *outputs;
    int input_count, output_count;
    /* CUSTOM */
    graph_custom custom;
    /* IF: then, otherwise. LOOP: condition (or NULL), body */
    jit_plan *branch[2];
    jit_loop *loop;
    /* LOOP: arena offset of the condition's value and of a second set of the carries */
    int64_t scratch;
    const char *name;
    /* CUSTOM, IF, LOOP: as of calls; else NULL */
    const char *origins;
} jit_step;

/* A loop-invariant input of a branch, in the layout that a kernel of the branch or of a loop inside it expects: packed once,
 * before the first iteration. */
typedef struct jit_packing {
    int32_t input;
    /* of the packed copy in the branch's arena */
    int64_t offset;
    size_t element, bytes;
    tir_layout layout;
    int64_t shape[DLC_MAX_RANK];
    /* number of dimensions before those that form a row, which is contiguous in the unpacked tensor */
    int outer;
    /* elements of a row */
    int64_t row;
    /* places[d][i]: elements that coordinate i of outer dimension d adds to a row's position; row_places[i]: position of element i in its
     * row */
    int64_t *places[DLC_MAX_RANK], *row_places;
    /* length of the runs of a row that stay contiguous */
    int64_t run;
    /* the layout has padding, filled with zeros */
    bool padded;
} jit_packing;

/* the device's batch of a step of kernels, in one frame */
typedef struct jit_batch {
    target_batch *batch;
    /* the step has run before */
    bool again;
} jit_batch;

/* Run-time memory of one run: the arena, and what is passed to kernels and host functions. */
typedef struct jit_frame {
    /* the arena; NULL: the plan shares arenas, and this frame has not run yet */
    char *memory;
    /* block of the shared arena during a run; NULL: memory of this run alone */
    jit_block *block;
    /* [plan->slot_count] argument pointers of all calls */
    void **pointers;
    /* [plan->call_count] */
    target_arguments *arguments;
    /* [plan->control_limit] of the control step that is being run */
    DLTensor *tensors;
    /* [plan->control_limit + 1] */
    char **operands;
    /* start of the allocation that holds the frame, and the arena unless it is shared */
    char *base;
    /* of that allocation */
    size_t total;
    /* in a loop's body: this iteration runs the steps' turned phases */
    bool turned;
    /* [plan->step_count] if the target's runtime has batches; else NULL */
    jit_batch *batches;
    /* slot that keeps the frame; -1: freed after the run */
    int slot;
} jit_frame;

typedef struct jit_frame_slot {
    _Alignas(64) atomic_bool busy;
    /* belongs to who set busy; NULL: not made yet */
    jit_frame *frame;
} jit_frame_slot;

enum { JIT_FRAMES_KEPT = 8 };

/* An output and the input donated to it. */
typedef struct jit_donation {
    /* the two may be one buffer, without a copy */
    bool may;
    /* the plan updates the input's buffer in place: if the output has another buffer, the input is copied there first */
    bool must;
    /* of the input and of the output; with room, of their buffer */
    size_t bytes;
    /* The output is the input with elements appended along this axis (room.c), where the output has `size` elements and their common buffer
     * `room`. -1: both have one shape */
    int axis;
    int64_t size, room;
} jit_donation;

/* A slot whose pointer is set for every run. */
typedef struct jit_run_slot {
    int32_t slot;
    /* input number, or -1 - output number */
    int32_t number;
    int64_t offset;
} jit_run_slot;

/* What a plan requires of a tensor of the host. */
typedef struct jit_known {
    /* of the compact tensor; > 0 */
    size_t bytes;
    /* bits of the address that must be 0 */
    uintptr_t misaligned;
    /* [rank] */
    const int64_t *shape;
    /* [rank] compact */
    const int64_t *strides;
} jit_known;

/* A constant that was copied to the device. */
typedef struct jit_resident {
    struct jit_resident *next;
    const void *host;
    size_t size;
    void *device;
} jit_resident;

enum { JIT_ASKED = 1 };

struct jit_plan {
    /* list of retired plans */
    jit_plan *next;
    /* plans of the control steps' branches, linked by `sibling`; freed with this plan */
    jit_plan *branches;
    jit_plan *sibling;
    /* number of kept calls and events that hold the plan; guarded by the program's mutex */
    int holders;
    /* Its kernels serve more sizes than these, for which an exact plan may take its place: JIT_ASKED, one has been asked for; more: that
     * many runs until one is; 0: the plan stays. */
    atomic_int interim;
    uint64_t hash;
    /* all input dimensions in order, then the rooms (room.c) */
    const int64_t *shapes;
    int shape_count;
    dlc_context *context;
    /* everything below */
    lib_arena arena;
    lib_scope scope;
    jit_step *steps;
    int step_count;
    /* the only step, of kernels run by the calling thread; NULL: there is more to do */
    const jit_step *alone;
    jit_call *calls;
    int call_count;
    /* argument pointers: filled once per frame (arena, constants) or per run (inputs, outputs) */
    jit_place *slots;
    int slot_count;
    /* those with place INPUT or OUTPUT */
    jit_run_slot *run_slots;
    int run_slot_count;
    /* most inputs and outputs of a control step */
    int control_limit;
    jit_packing *packings;
    int packing_count;
    int64_t arena_bytes;
    /* bytes of the values and scratch that are live in the arena at once, at most */
    int64_t live_bytes;
    /* the arena is not part of the frame */
    bool shares_arena;
    /* [outputs][DLC_MAX_RANK] */
    int64_t *output_shapes;
    /* [inputs + outputs] for the fast path of dlc_run; NULL: the plan has no fast path */
    jit_known *known;
    /* [outputs] */
    jit_donation *donations;
    /* of this plan alone; nodes are in the arena */
    jit_resident *residents;
    struct jit_whole_use *weights;
    int *output_ranks;
    /* in context->plan_bytes */
    size_t counted_bytes;
    /* program->tick at the last use */
    _Atomic uint64_t last_use;
    jit_frame_slot frames[JIT_FRAMES_KEPT];
};

/* A copy of a weight, packed to a kernel's layout. */
typedef struct jit_packed {
    struct jit_packed *next;
    /* bytes */
    size_t element;
    /* Shape of the packed tensor (constants of several shapes may have the same bytes); 0 beyond the rank. */
    int64_t shape[DLC_MAX_RANK];
    tir_layout layout;
    void *bytes;
    size_t size;
    /* Number of programs whose kernels read it. */
    int users;
} jit_packed;

/* A transposition: axis d of the result is axis[d] of the operand. shape: the operand's. */
typedef struct jit_transposition {
    int rank, axis[DLC_MAX_RANK];
    int64_t shape[DLC_MAX_RANK];
    /* bytes */
    size_t element;
} jit_transposition;

/* A large constant, shared by all programs of the context that were given the same bytes: see weights.c. */
typedef struct jit_weight {
    /* Owner of the constants in the programs' graphs. */
    graph_holder holder;
    /* Immutable. `source`: owner of the source bytes, retained (NULL: the host keeps them). `name`, `size`: the address of these bytes when
     * the weight was made, and their number: the weight's identity. */
    dlc_context *context;
    graph_holder *source;
    const void *name;
    size_t size;
    /* Immutable. NULL: an ordinary weight. Else the weight, retained, of which this one is a transposition (transposed.c): `base` keeps all
     * copies, and of the fields below only `references` is used. */
    struct jit_weight *base;
    jit_transposition transposition;
    /* Guarded by the mutex of context->weights. */
    struct jit_weight *next;
    int references;
    /* Guards the following fields. */
    lib_mutex mutex;
    /* Row-major bytes; NULL: released, a packed copy can restore them. */
    const void *whole;
    /* `whole` is memory of the weight, restored from a packed copy; else it is the source's memory. */
    bool restored;
    /* `whole` must not be released: the compiler or a device has read it, and may again. */
    bool stays;
    /* Number of uses of `whole` by kernels and steps of plans. */
    int users;
    jit_packed *packed;
} jit_weight;

/* a weight that a program keeps */
typedef struct jit_weight_link {
    struct jit_weight_link *next;
    jit_weight *weight;
    /* Used only by the init graph: unlinked after its run. */
    bool init;
} jit_weight_link;
/* a packed copy that a program's kernels read */
typedef struct jit_packed_use {
    struct jit_packed_use *next;
    jit_weight *weight;
    jit_packed *packed;
} jit_packed_use;
/* row-major bytes that a plan's kernels or steps read */
typedef struct jit_whole_use {
    struct jit_whole_use *next;
    jit_weight *weight;
} jit_whole_use;
/* Release uses of weights. _leave: of a plan that is freed; _settle: of a program's init graph when it has run, before the program has
 * other plans; _free: of a program that is freed, after its plans. */
void jit_weights_leave(const jit_plan *plan);
void jit_weights_settle(dlc_program *program);
void jit_weights_free(dlc_program *program);

/* what a run checks of an input or output */
typedef struct jit_argument {
    /* these two in DLTensor's order, compared together */
    int32_t rank;
    DLDataType dtype;
    const char *name;
    const graph_shape *shape;
} jit_argument;

/* One of the two counters of readers, see plans.c. Never decremented, so that `entered` also counts the runs. */
typedef struct jit_readers {
    _Alignas(64) _Atomic uint64_t entered;
    _Alignas(64) _Atomic uint64_t left;
} jit_readers;

/* shapes that a thread is binding; in that thread's stack frame */
typedef struct jit_binding {
    struct jit_binding *next;
    uint64_t hash;
    const int64_t *shapes;
    int count;
} jit_binding;

enum { JIT_INIT_MISSING, JIT_INIT_RUNS, JIT_INIT_DONE }; /* states of the precomputed constants */

/* The values of a symbol that have exact kernels, and those that may come to: see sizes.c. */
enum { JIT_EXACT_SIZES = 4 };
typedef struct jit_sizes {
    int64_t exact[JIT_EXACT_SIZES], candidate[JIT_EXACT_SIZES];
    int exact_count, binds[JIT_EXACT_SIZES];
} jit_sizes;

/* A part of a program with data-dependent shapes: a program of its own, bound when its sizes are known. See segments.c. */
typedef struct jit_segment {
    dlc_program *program;
    const graph_segment_input *inputs;
    const graph_segment_output *outputs;
} jit_segment;

/* Limits of a bind or a dlc_compile, see internal.h. */
typedef struct jit_limits jit_limits;
void jit_limits_poll(jit_limits *limits); /* sets `stop` if a limit is reached */

struct dlc_program {
    /* kept */
    dlc_context *context;
    /* the host's, and one for each call and event */
    atomic_int references;
    /* owners of the bytes and functions in its graphs, each retained once */
    graph_holder **holders;
    size_t holder_count;
    /* context->programs */
    dlc_program *next, *previous;
    lib_arena arena;
    lib_scope scope;
    /* canonical, decomposed, constants split off */
    graph *graph;
    /* NULL: nothing to precompute */
    graph *init;
    /* transposed[o]: output o of `init` is this transposed weight and need not be computed; NULL: it is computed. init_rest: `init` without
     * the outputs that are such weights. */
    struct jit_weight **transposed;
    const graph *init_rest;
    jit_plan *init_plan;
    jit_argument *inputs, *outputs;
    /* inputs of `graph` beyond these are outputs of `init` */
    int ordinary_inputs;
    int output_count;
    /* if there are any, the program runs these in order, and has no plans itself */
    jit_segment *segments;
    /* 0: no shape depends on data */
    int segment_count;
    /* number of tensors passed between segments */
    int borders;
    /* [borders] the last segment that reads it */
    const int *border_end;
    /* of all ordinary inputs together, and one for each room */
    size_t dimensions;
    /* [init outputs] owned */
    graph_constant *init_values;
    atomic_int init_state;
    /* limits of the init graph's run, during which the program runs nothing else. NULL: it is not running */
    jit_limits *init_limits;
    /* addresses of the constants of graph and init other than weights, ascending; valid as long as the program */
    const void **constants;
    size_t constant_count;
    jit_weight_link *weights;
    dlc_compile_options options;
    /* of the host's schedules, see schedules.c */
    struct jit_section **sections;
    uint32_t section_count;
    /* output -> donated input; -1 */
    int *alias;
    /* [growth_count] the donated pairs whose output is the input plus appended elements. The symbols of their buffers' sizes, room_count,
     * are the last ones of `graph`; pairs of equal sizes share one. */
    graph_growth *growths;
    int growth_count, room_count;
    /* identity of the graph that the host compiled; the graph may be destroyed */
    const dlc_graph *source;
    uint32_t source_serial;
    /* NULL: no values are tapped */
    struct jit_tap *tap;
    /* guards the table of plans and the fields up to `profile`; never held during a callback of the host */
    lib_mutex mutex;
    /* signalled when a binding ends or the precomputed constants are ready */
    lib_condition bound;
    jit_binding *bindings;
    jit_plan *retired[2];
    /* plans removed from the table, without readers but with holders */
    jit_plan *held;
    dlc_call *calls;
    jit_packed_use *packed;
    /* of all plans */
    jit_resident *residents;
    /* [symbols of `graph`] */
    jit_sizes *sizes;
    uint32_t plan_count;
    atomic_int profile;
    /* a background build failed, and this was logged */
    atomic_bool background_failed;
    /* NULL: none, or taken by a build */
    _Atomic(struct jit_front *) front;
    /* the program is being destroyed: background builds stop */
    atomic_bool closing;
    /* runs that had to build; readers that were not runs */
    _Atomic uint64_t misses, not_runs;
    /* readers take no lock */
    _Atomic(jit_plan *) *table;
    uint32_t table_size;
    /* counts insertions: the clock of last_use */
    _Atomic uint64_t tick;
    _Atomic uint64_t epoch;
    jit_readers readers[2];
};

/* Kind of plan to build: USUAL, sizes exact or parameters by the rule in sizes.c; GENERIC, every symbol a parameter; EXACT, all sizes exact
 * that may be; BACKGROUND, on the background thread: USUAL or EXACT. */
typedef enum jit_tier {
    JIT_TIER_USUAL = 0,
    JIT_TIER_GENERIC = 1,
    JIT_TIER_EXACT = 2,
    JIT_TIER_BACKGROUND = 4
} jit_tier;

/* bind.c: `shapes`: the dimensions of the first `ordinary_inputs` inputs of g in order, then the program's rooms; `init_values`: the bytes of the others.
 * The program's mutex is not held. */
dlc_status jit_plan_build(dlc_program *program, const graph *g, int ordinary_inputs, const graph_constant *init_values,
                          const int64_t *shapes, int shape_count, jit_tier tier, jit_plan **plan, lib_error *error);
void jit_plan_free(jit_plan *plan); /* NULL is accepted */
/* Derives the symbols' values from the input dimensions; raises if they do not fit. values[g->symbols.count] */
void jit_bind_symbols(lib_arena *work, const graph *g, int ordinary_inputs, const int64_t *shapes, int64_t *values);
/* Values of the symbols by variable id of the graph's pool, for evaluating its dimensions. */
uint64_t *jit_variables(lib_arena *arena, const graph *g, const int64_t *values);

/* What may end a run early, from dlc_run_options. NULL: nothing may. Lives as long as the run; used by any of its threads. */
typedef struct jit_how {
    /* NULL: none */
    const volatile int *cancel;
    /* bits of dlc_stop_at */
    unsigned stop_at;
    /* 0: none */
    int64_t budget_ms;
    /* by the context's clock; 0: none */
    uint64_t deadline_ns;
    /* provides the clock */
    dlc_context *context;
    /* limits of the bind, if this is the run of an init graph; else NULL */
    struct jit_limits *limits;
    /* the first dlc_status that ended the run; 0: it goes on */
    volatile int over;
} jit_how;

/* Limits of a run that starts now. */
jit_how jit_how_by(dlc_context *context, const dlc_run_options *options);
static inline jit_how jit_how_of(dlc_context *context, const dlc_run_options *options) {
    return options ? jit_how_by(context, options) : (jit_how){0};
}
/* call.c: is too little stack left for a run and its kernels (tir/lower_buffers.c)? */
dlc_status jit_stack_is_small(const dlc_context *context, lib_error *error);
static inline dlc_status jit_check_stack(const dlc_context *context, lib_error *error) {
    return lib_stack_has(LIB_STACK_CALL, context->unknown_stack) ? DLC_OK : jit_stack_is_small(context, error);
}
/* Checks the options of a public call. */
dlc_status jit_check_run_options(const dlc_program *program, const char *caller, const dlc_run_options *options,
                                 lib_error *error);
static inline bool jit_is_plain(const jit_how *how) {
    return !how->cancel && !how->stop_at && !how->deadline_ns;
}
/* Must the call end early? Checks the host's flag, the clock and the bind's limits. */
bool jit_is_over(jit_how *how);
dlc_status jit_how_it_ended(const jit_how *how, lib_error *error); /* over: the status and its message */
/* Sets the cancellation flag that long loops of kernels poll, and the function that they call if it is set; how NULL: no polling. */
void jit_arguments_watch(target_arguments *arguments, jit_how *how);

/* run.c: inputs[i], outputs[o]: compact tensors of the plan's shapes. Allocates only when no frame is free. */
dlc_status jit_plan_run(dlc_program *program, jit_plan *plan, char *const *inputs, char *const *outputs, jit_how *how,
                        lib_error *error);
/* The same with the caller's frame, whose pointers are already those of the tensors (jit_frame_aim). */
dlc_status jit_plan_run_in(dlc_program *program, jit_plan *plan, jit_frame *frame, char *const *inputs,
                           char *const *outputs, jit_how *how, lib_error *error);
/* Runs a step of kernels on the calling thread, without cancellation checks. */
void jit_run_alone(const dlc_context *context, const jit_step *step, const jit_frame *frame);
/* Records the time of a profiled call. */
void jit_count_time(dlc_context *context, jit_call *call, uint64_t elapsed_ns);
void jit_frame_aim(const jit_plan *plan, jit_frame *frame, char *const *inputs, char *const *outputs);
/* owned by the caller, who calls jit_frame_free; not for plans with shared arenas */
jit_frame *jit_frame_new(const jit_plan *plan);
jit_frame *jit_frame_take(jit_plan *plan);
void jit_frame_give(jit_plan *plan, jit_frame *frame);
/* Before a run that may be cancelled: touches fresh memory page by page so that the system maps it, with cancellation checks in
 * between. Otherwise a kernel that writes it sparsely would fault in many pages between two checks: a second for a gigabyte in
 * pages of 2 MiB. Returns the length that was touched. */
size_t jit_touch(char *memory, size_t from, size_t size, jit_how *how);
void jit_frame_touch(const jit_plan *plan, jit_frame *frame, jit_how *how); /* touches the frame's arena */
void *jit_place_pointer(const jit_place *place, const jit_frame *frame, char *const *inputs, char *const *outputs);
void jit_frame_free(const jit_plan *plan, jit_frame *frame); /* NULL is accepted */
/* A frame whose arena the caller supplies. */
jit_frame *jit_frame_take_bare(jit_plan *plan);
void jit_frame_set_memory(const jit_plan *plan, jit_frame *frame, char *memory);
void jit_frame_give_bare(jit_plan *plan, jit_frame *frame);
void jit_blocks_free(dlc_context *context);

/* plans.c: finds or builds the plan for these shapes. It stays valid until jit_plans_leave(program, *side). On failure no reader
 * is registered. JIT_TO_BIND: explicitly; JIT_TO_SHOW: for a dump of the plan that runs use. */
typedef enum jit_purpose { JIT_TO_RUN, JIT_TO_BIND, JIT_TO_SHOW } jit_purpose;
dlc_status jit_plans_enter(dlc_program *program, const int64_t *shapes, int count, jit_purpose purpose, jit_plan **plan,
                           unsigned *side, lib_error *error);
/* The kind of the plan that jit_plans_enter would find or build to show it. */
jit_tier jit_plans_tier(dlc_program *program, const int64_t *shapes, int count);
void jit_plans_leave(dlc_program *program, unsigned side);
/* Builds the exact plan that was asked for and replaces the one for more sizes, if that still exists. */
void jit_plans_specialise(dlc_program *program, const int64_t *shapes, int count, jit_tier tier);
/* Counts a run of a plan, which `may_build` afterwards. True: these shapes recur, and the caller, who has left the plan, calls
 * jit_plans_promote. */
bool jit_plans_count_run(dlc_program *program, jit_plan *plan, int left, bool may_build);
static inline bool jit_plans_recur(dlc_program *program, jit_plan *plan, bool may_build) {
    const int left = atomic_load_explicit(&plan->interim, memory_order_relaxed);
    return left > JIT_ASKED && jit_plans_count_run(program, plan, left, may_build);
}
void jit_plans_promote(dlc_program *program, const int64_t *shapes, int count);

void jit_front_free(dlc_program *program); /* front.c */

/* background.c */
dlc_status jit_background_open(dlc_context *context, lib_error *error);
void jit_background_close(dlc_context *context);
bool jit_background_allowed(const dlc_context *context);
/* Queues a call of jit_plans_specialise. False: out of memory. */
bool jit_background_add(dlc_program *program, const int64_t *shapes, int count, jit_tier tier);
void jit_background_forget(dlc_program *program); /* drops its jobs; none is running when this returns */
/* Like jit_plans_enter for a run, but NULL if there is no plan yet: then no reader is registered. */
jit_plan *jit_plans_find(dlc_program *program, const int64_t *shapes, int count, unsigned *side);
void jit_plans_no_run(dlc_program *program); /* undoes the counting of the last entry as a run */
dlc_status jit_plans_init(dlc_program *program, lib_error *error);
void jit_plans_free(dlc_program *program);
/* Retains a plan that the caller has entered, so that it stays valid after jit_plans_leave; jit_plans_let_go releases it. */
void jit_plans_hold(dlc_program *program, jit_plan *plan);
void jit_plans_let_go(dlc_program *program, jit_plan *plan);
uint64_t jit_plans_runs(const dlc_program *program); /* number of runs so far */

/* call.c: dimensions of the inputs in order, checked for rank and sign, and no rooms; out[program->dimensions]. */
dlc_status jit_gather_shapes(const dlc_program *program, const char *caller, const int64_t *const *shapes,
                             const int *ranks, int input_count, int64_t *out, int *count, lib_error *error);

/* call.c: the shapes of these outputs for the inputs' shapes, without compiling. */
dlc_status jit_output_shapes(dlc_program *program, const DLTensor *const *inputs, int input_count, int count,
                             const int *outputs, int64_t (*shapes)[DLC_MAX_RANK]);

/* program.c: a program of the graph, which the caller still owns. */
dlc_status jit_program_new(dlc_context *context, const graph *source, const dlc_compile_options *options,
                           dlc_program **program, lib_error *error);
void jit_program_keep(dlc_program *program);
void jit_program_release(dlc_program *program); /* the last release destroys it */

/* segments.c, for programs with segments. _compile: splits program->graph, whose constants all segments share (raises). _run: runs the
 * segments in order, after checking all tensors that can be checked beforehand, and waits. _first: *sizes, the dimensions of the first
 * segment's inputs. */
void jit_segments_compile(dlc_program *program, lib_arena *work, const char *schedule);
dlc_status jit_segments_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                            int input_count, dlc_output_slot *outputs, int output_count, lib_error *error);
dlc_status jit_segments_first(const dlc_program *program, const int64_t *shapes, int64_t **sizes, int *count,
                              lib_error *error);

/* call.c: dlc_run without taps, arguments checked. */
dlc_status jit_run_program(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                           int input_count, dlc_output_slot *outputs, int output_count, lib_error *error);

/* tap.c: _compute: computes the tapped values into slots[jit_tap_count]; _run: computes them and passes them to the host's function, if
 * there is one. */
dlc_status jit_tap_compute(const dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                           int input_count, dlc_output_slot *slots, lib_error *error);
dlc_status jit_tap_run(const dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                       int input_count, lib_error *error);
int jit_tap_count(const dlc_program *program);
const char *jit_tap_name(const dlc_program *program, int tap);
void jit_tap_free(dlc_program *program);

/* kept_call.c: runs of the calls that hosts keep; the context's mutex is held. */
uint64_t jit_call_runs(const dlc_program *program);

/* control.c: custom calls, if, loops. */
dlc_status jit_run_control(dlc_program *program, const jit_step *step, const jit_frame *frame, char *const *inputs,
                           char *const *outputs, jit_how *how, lib_error *error);

/* watch.c: return DLC_NOT_FINITE, with the value's name and the element in the message, if there is an element of the kinds in stop_at: in
 * the inputs of a plan (_inputs), in a kernel's results (_call), in one tensor of a step (_tensor). */
dlc_status jit_watch_inputs(const dlc_program *program, const jit_plan *plan, char *const *inputs, unsigned stop_at,
                            lib_error *error);
dlc_status jit_watch_call(const jit_call *call, const jit_frame *frame, unsigned stop_at, lib_error *error);
dlc_status jit_watch_tensor(const jit_tensor *tensor, const char *data, const char *name, unsigned stop_at,
                            lib_error *error);

/* device.c, for targets with a runtime: computes the init graph's outputs into host memory. */
dlc_status jit_device_compute(dlc_program *program, jit_plan *plan, int count, const size_t *sizes,
                              char *const *outputs, lib_error *error);
void jit_device_release(dlc_context *context, const jit_resident *list); /* frees the device memory, not the nodes */
void jit_device_constants_free(dlc_program *program);
void jit_device_forget(const jit_plan *plan, const jit_frame *frame); /* frees the frame's batches */
void jit_device_settle(dlc_context *context); /* waits for all work of the device, the host's too */
void jit_device_close(dlc_context *context);
/* host.c: opens the CPU target for a device's context; DLC_UNSUPPORTED when it is not built in. */
dlc_status jit_host_find(dlc_context *context, const jit_host **host, lib_error *error);
void jit_host_close(dlc_context *context);
void jit_movers_free(dlc_context *context);                                /* strided.c */
bool jit_is_on_device(const dlc_context *context, const DLTensor *tensor); /* the context's own */

/* dump.c: logs the stages selected by DLC_DEBUG: those before the plan (plan NULL), or those of the plan. Never fails. */
void jit_dump_to_log(dlc_program *program, const int64_t *shapes, jit_tier tier, jit_plan *plan);

#endif
