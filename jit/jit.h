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

#include "jit/plan.h"

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

/* How a run is made, from dlc_run_options. Lives as long as the run; used by any of its threads. What runs a plan gets NULL if nothing may
 * end the run early. */
typedef struct jit_how {
    /* the public call, for messages */
    const char *caller;
    /* the host's; NULL: none */
    dlc_event **event;
    void *stream;
    /* NULL: none */
    const volatile int *cancel;
    /* bits of dlc_stop_at */
    unsigned stop_at;
    /* 0: none; the host's number */
    int64_t budget_ms;
    /* by the context's clock; 0: none. A bind postpones it: it has a budget of its own */
    uint64_t deadline_ns;
    /* provides the clock */
    dlc_context *context;
    /* limits of the bind, if this is the run of an init graph; else NULL */
    struct jit_limits *limits;
    /* set when the run begins to compute; NULL: not asked */
    bool *begun;
    /* the first dlc_status that ended the run; 0: it goes on */
    volatile int over;
} jit_how;

/* Of a run that starts now. */
jit_how jit_how_by(dlc_context *context, const char *caller, const dlc_run_options *options);
static inline jit_how jit_how_of(dlc_context *context, const char *caller, const dlc_run_options *options) {
    return options ? jit_how_by(context, caller, options) : (jit_how){.caller = caller};
}
/* First in a public call that makes a run: whatever refuses it, the host finds that it has not begun and that there is no event. */
static inline void jit_not_begun(const dlc_run_options *options) {
    if (!options || options->struct_size != sizeof *options) return;
    if (options->begun) *options->begun = false;
    if (options->event) *options->event = NULL;
}
/* call.c: is too little stack left for a run and its kernels (tir/lower_buffers.c)? */
dlc_status jit_stack_is_small(const dlc_context *context, lib_error *error);
static inline dlc_status jit_check_stack(const dlc_context *context, lib_error *error) {
    return lib_stack_has(LIB_STACK_CALL, context->unknown_stack) ? DLC_OK : jit_stack_is_small(context, error);
}
/* Checks the options of a public call. */
dlc_status jit_check_run_options(const dlc_context *context, const char *caller, const dlc_run_options *options,
                                 lib_error *error);
static inline bool jit_is_plain(const jit_how *how) {
    return !how->cancel && !how->stop_at && !how->deadline_ns && !how->begun;
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
/* Runs a step of kernels on the calling thread. Before each phase, the cancellation flag and the budget of `how` are checked (how = NULL: the run
 * has neither). Returns false if the run was cancelled or exceeded its budget, in which case the remaining phases were not run. */
bool jit_run_alone(const dlc_context *context, const jit_step *step, const jit_frame *frame, jit_how *how);
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
/* Queues a call of jit_plans_specialise, unless too many wait already (the thread gets less time than new shapes need) or memory is refused. */
typedef enum jit_queued { JIT_QUEUED, JIT_QUEUE_FULL, JIT_NOT_QUEUED } jit_queued;
jit_queued jit_background_add(dlc_program *program, const int64_t *shapes, int count, jit_tier tier);
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
dlc_status jit_segments_run(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                            dlc_output_slot *outputs, int output_count, lib_error *error);
dlc_status jit_segments_first(const dlc_program *program, const int64_t *shapes, int64_t **sizes, int *count,
                              lib_error *error);

/* call.c: dlc_run without taps, options checked. */
dlc_status jit_run_program(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                           dlc_output_slot *outputs, int output_count, lib_error *error);

/* tap.c: _compute: computes the tapped values into slots[jit_tap_count]; _run: computes them and passes them to the host's function, if
 * there is one. */
dlc_status jit_tap_compute(const dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                           dlc_output_slot *slots, lib_error *error);
dlc_status jit_tap_run(const dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                       lib_error *error);
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
/* device_call.c: allocates a compact tensor on the device. */
dlc_status jit_device_tensor(dlc_context *context, const char *name, dlc_dtype dtype, int rank, const int64_t *shape,
                             DLManagedTensorVersioned **tensor, lib_error *error);
/* device_call.c: copies between compact tensors of one size, of which one is on the device and the other in host memory. */
dlc_status jit_device_transfer(dlc_context *context, const DLTensor *to, const DLTensor *from, lib_error *error);
/* host.c: opens the CPU target for a device's context; DLC_UNSUPPORTED when it is not built in. */
dlc_status jit_host_find(dlc_context *context, const jit_host **host, lib_error *error);
void jit_host_close(dlc_context *context);
void jit_movers_free(dlc_context *context);                                /* strided.c */
bool jit_is_on_device(const dlc_context *context, const DLTensor *tensor); /* the context's own */

/* dump.c: logs the stages selected by DLC_DEBUG: those before the plan (plan NULL), or those of the plan. Never fails. */
void jit_dump_to_log(dlc_program *program, const int64_t *shapes, jit_tier tier, jit_plan *plan);

#endif
