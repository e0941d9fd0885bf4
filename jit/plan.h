/* What a plan consists of: places of values, steps and calls of kernels, frames with the memory of a run, weights and their packed
 * copies. */
#ifndef JIT_PLAN_H
#define JIT_PLAN_H

#include "jit/context.h"

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
    /* see graph/sweep.h */
    unsigned sweeps;
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

/* A while or a scan. The body's inputs: carries, elements of sequences, captures; its outputs: carries, the condition,
 * elements of stacks. Results: carries, stacks, number of iterations. */
typedef struct jit_loop {
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

/* The memory of one run: the arena, and the arguments of the kernels and host functions that the run calls. */
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

/* Size, alignment, shape and strides that a tensor of the host must have for a run to use it in place. */
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

/* For the dump "kept": bytes that the forward sweep keeps for others, that live across the region at which most is live, or that are computed
 * again; kept.c. */
typedef struct jit_kept {
    int64_t bytes;
    /* the region that computes them, and the last one that reads them; of those computed again for memory_bytes: the first one, else NULL */
    const char *by, *until;
    /* kept: the reason */
    const char *why;
    /* live across the region at which most is live */
    bool peak;
    /* computed again for memory_bytes: predicted cycles */
    double cycles;
} jit_kept;

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
    /* of plans of whole graphs: the region at which these are live; what is kept, and computed again (kept.c) */
    const char *peak;
    jit_kept *kept, *again;
    int kept_count, again_count;
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

#endif
