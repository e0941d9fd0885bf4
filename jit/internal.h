/* Shared by the files that build a plan: bind.c (steps), kernels.c (code), memory.c (addresses of values). */
#ifndef JIT_INTERNAL_H
#define JIT_INTERNAL_H

#include "graph/origin.h"
#include "graph/sweep.h"
#include "jit/jit.h"

#include <stdio.h>
#include <stdlib.h>

/* the host's schedule of a region; NULL: it has none */
typedef struct jit_own {
    const char *text;
    size_t length;
    /* line in the program's schedule text; 1 if the text is separate */
    int line;
} jit_own;

/* one kernel that the plan calls */
typedef struct jit_request {
    const graph_region *region;
    /* as jit_region_origins says; read on several threads */
    const char *origins;
    jit_key key;
    jit_kernel *kernel;
    /* this build has claimed the kernel and not yet published or failed it */
    bool claimed;
    bool pinned;
    /* of one run, for the profile */
    double operations, bytes;
    jit_own own;
} jit_request;

/* Stack bytes that binding needs in addition to the passes over its graph; code generation checks its own need. */
enum { JIT_STACK_BIND = 32 << 10 };
/* Limits of a bind or a dlc_compile: the host's cancellation flag, budget_ms, destruction of the program. */
struct jit_limits {
    /* for arenas */
    lib_watch watch;
    dlc_program *program;
    /* 0: none */
    uint64_t deadline_ns;
    /* set by jit_limits_poll when a limit is reached, for code that polls a flag */
    volatile int stop;
};

/* location of a value without storage of its own */
typedef struct jit_link {
    /* 0: it has its own storage */
    graph_id base;
    /* the value overwrites base, whose contents are then lost; else it is part of base */
    bool over;
    /* bytes */
    int64_t offset;
} jit_link;

/* arena space that a region needs while it runs */
typedef struct jit_scratch {
    /* GRAPH_NONE: all of them */
    uint32_t region;
    int64_t bytes;
    /* receives the arena offset */
    int64_t *offset;
} jit_scratch;

/* A packed copy that a loop's branches need and the enclosing loop makes once for all of its iterations: an additional operand of
 * the inner loop. */
typedef struct jit_lifted {
    /* operand of the loop, of which it is a copy */
    int32_t input;
    tir_layout layout;
} jit_lifted;

/* a region of control flow */
typedef struct jit_control {
    /* indexed as by jit_branch_name; NULL: none */
    jit_plan *branch[2];
    lib_vec(jit_lifted) lifted;
} jit_control;

/* a region's in-place update: output number that overwrites input number */
typedef struct jit_update {
    /* -1: none */
    int output, input;
} jit_update;

/* what a front keeps of one region */
typedef struct jit_front_known {
    /* NULL: not built yet */
    tir_region *computation;
    /* value of build->updates when the computation was built */
    int updates;
    /* results of jit_alignment at that time: of the inputs, then of the outputs */
    int32_t *alignments;
    const tir_work *work;
    jit_key key;
    jit_own own;
} jit_front_known;

/* the results of binding that do not depend on parameterised sizes, see front.c */
typedef struct jit_front {
    /* owns everything below */
    lib_arena arena;
    /* [key_count] what each symbol was bound to, and its range */
    int64_t *key;
    size_t key_count;
    /* NULL: not built yet */
    graph *bound;
    graph_regions regions;
    bool fused;
    /* [regions] NULL: not looked for yet */
    const jit_update *updates;
    /* [regions] */
    jit_front_known *known;
    /* the share of this in context->plan_bytes */
    size_t counted_bytes;
} jit_front;

typedef struct jit_build {
    /* list of the builds of branches, starting at the outermost build, for cleaning up together */
    struct jit_build *next;
    struct jit_build *root;
    dlc_program *program;
    jit_plan *plan;
    /* for the build only */
    lib_arena *work;
    /* for the current region, in the scope of `work` */
    lib_arena *passing;
    /* in `work`; of a branch: a sub-graph */
    graph *bound;
    graph_regions regions;
    /* [nodes] of the graph `swept`, see graph/sweep.h; NULL: there are no derivatives */
    const uint8_t *sweeps;
    const graph *swept;
    /* of a branch: the sweeps of its node; else 0 */
    unsigned within;
    /* [values] the same bytes in every run */
    bool *constant;
    /* [values] in a loop's branch: a loop-invariant input that is not a constant */
    bool *steady;
    /* first loop-invariant input, all later ones are, too; -1: none */
    int steady_from;
    /* [values] written by a region other than a view */
    bool *produced;
    /* [values] */
    jit_place *place;
    /* [values] */
    jit_link *links;
    /* [regions] a concat whose operands are written or copied into the result */
    bool *parts;
    /* [regions] 0, or 1 + the output that is written over an operand of which it changes some elements */
    int *updates;
    /* [values other than views] last region that reads the value; regions.count: copied to an output */
    uint32_t *last_read;
    /* the first region at which most bytes of the arena are live */
    uint32_t peak;
    /* the body of a loop */
    bool repeated;
    /* [regions] for regions of control flow */
    jit_control *controls;
    /* of a loop's branch: the build that the loop is a node of */
    const struct jit_build *outer;
    /* that node */
    const graph_node *loop;
    /* and its region in `outer`; NULL: a dump */
    jit_control *control;
    /* [outputs] input whose buffer the output may take; -1. NULL: none */
    const int *donated;
    jit_scratch *scratch;
    uint32_t scratch_count;
    /* [regions] arena offset of a control step's scratch */
    int64_t *step_scratch;
    /* of the inputs beyond `ordinary_inputs` */
    const graph_constant *init_values;
    int ordinary_inputs;
    /* branches: [inputs] constants among the operands; else NULL */
    const jit_place *given;
    /* values of the symbols that stay parameters, in the plan's arena */
    int64_t *param_values;
    /* [growths of the program] sizes of their outputs along the axis */
    int64_t *grown;
    /* by pool variable id, for evaluating dimensions */
    uint64_t *variables;
    jit_request *requests;
    uint32_t request_count;
    /* NULL: everything is allocated in `work` */
    jit_front *front;
    jit_tier tier;
    /* in a generic build: the exact plan would differ */
    bool differs;
    /* some parameter may become exact */
    bool may_recur;
    /* [symbols of the program] those whose value became exact by this build; NULL: none */
    bool *added;
    /* their values */
    int64_t *sizes;
    const jit_limits *limits;
} jit_build;

void jit_limits_begin(jit_limits *limits, dlc_program *program); /* kernels.c */
bool jit_limits_reached(const jit_limits *limits, lib_error *error);
static inline const volatile int *jit_limits_flag(const jit_limits *limits) {
    return &limits->stop;
}

jit_plan *jit_plan_new(dlc_context *context); /* NULL: out of memory */
/* Builds the plan's steps from build->bound, whose inputs are placed. */
void jit_plan_bound(jit_build *build);
/* Ranges of a symbol that stays a parameter: up to SHORT, up to FIRST, then up to STEP times as much each. */
enum { JIT_RANGE_SHORT = 16, JIT_RANGE_FIRST = 1024, JIT_RANGE_STEP = 16 };
/* Builds the bound, simplified graph in build->work for the symbols' values, and the parts of the build that depend on it alone.
 * `learn`: record the values as seen. */
void jit_bind_graph(jit_build *build, const graph *g, const int64_t *shapes, bool learn);
/* sizes.c: the symbols' values to build for, INT64_MIN for parameters: bound_to[g->symbols.count]. `learn`: note them. */
void jit_sizes_choose(jit_build *build, const graph *g, int64_t *values, bool learn, int64_t *bound_to);
/* Of a build that failed: its values are not exact. */
void jit_sizes_undo(const jit_build *build);
/* The state of the plan, see jit_plan.interim. */
int jit_sizes_interim(const jit_build *build);
/* front.c: _take: sets build->front to the program's front for this key, or a new one (NULL if memory is refused); _give: gives it back to
 * the program, or frees it if the build was not `good`. */
void jit_front_take(jit_build *build, const int64_t *key, size_t count);
void jit_front_give(jit_build *build, bool good);
/* A region's computation and work, valid until the next call, and its key. */
tir_region *jit_front_region(jit_build *build, const graph_region *region, jit_key *key, jit_own *own,
                             const tir_work **work);
/* predict.c: fusion's interface to the target's cost model. predict NULL: the target has none. */
graph_fuse_costs jit_fuse_costs(jit_build *build);
void jit_place_sources(jit_build *build);
graph_regions jit_fuse(jit_build *build);
/* order.c: permutes build->regions, so that less is live at once; or, if `thin`, over all regions, as is best if what crosses the peak is
 * computed again. */
void jit_order_regions(jit_build *build, bool thin);
/* numbers.c: makes numbers in which regions of one form differ inputs of these regions. `costs` keeps decisions; NULL: nothing does. */
void jit_share_numbers(jit_build *build, graph_regions *regions, const graph_fuse_costs *costs);

/* constants.c: jit_constant_place: bytes of a constant, valid as long as the plan; jit_pack_constant: the bytes of a constant value that has
 * a place, in another layout, where the target's kernels read them. */
jit_place jit_constant_place(jit_build *build, const graph_constant *constant);
/* Called before the first weight is packed: retains the weights whose row-major bytes some kernel of the plan reads. */
void jit_keep_weights(jit_build *build);
void *jit_pack_constant(jit_build *build, graph_id value, const tir_layout *layout);
void *jit_pack_host_constant(jit_build *build, graph_id value, const tir_layout *layout); /* always in host memory */
void *jit_host_constant(jit_build *build, graph_id value);                                /* likewise, row-major */
/* The constant row-major, in the memory that the target's kernels read. */
void *jit_resident_constant(jit_build *build, graph_id value);
void *jit_aligned_constant(jit_build *build, graph_id value); /* likewise, aligned to its elements */
/* Packing of loop-invariant inputs for the kernels of a branch and the loops in it. jit_ask_for_packings: adds entries to plan->packings,
 * not yet placed, or requests copies from the enclosing loop; jit_steady_place: the place that a kernel reads, of the packed copy if it
 * needs one; jit_pack_steady: performs all of the plan's packings, before the first iteration. */
void jit_ask_for_packings(jit_build *build);
jit_place jit_steady_place(const jit_build *build, graph_id value, const tir_layout *layout);
void jit_pack_steady(const jit_plan *plan, const jit_frame *frame, char *const *inputs);
void jit_collect_constants(dlc_program *program);

/* packing.c: jit_packing_of describes how a compact tensor of this shape is packed to the layout, with tables in `arena`; jit_pack leaves
 * padding unchanged; jit_unpack is its inverse. */
jit_packing jit_packing_of(lib_arena *arena, const tir_layout *layout, size_t element, const int64_t *shape);
/* The same without the tables. */
jit_packing jit_packing_outline(const tir_layout *layout, size_t element, const int64_t *shape);
void jit_pack(const jit_packing *packing, const char *from, char *to);
/* Packs on all threads of the context's own, padding with zeros. holder (may be NULL): the owner of `from`, which is told meanwhile which of
 * its bytes have been read, if there are many. */
void jit_pack_shared(const dlc_context *context, const jit_packing *packing, const char *from, graph_holder *holder,
                     char *to);
void jit_unpack(const jit_packing *packing, const char *from, char *to);
/* Repacks a tensor from one layout to another. */
void jit_repack(lib_arena *work, const jit_packing *there, const char *from, const jit_packing *packing, char *to);

/* weights.c. Callback for graph_copy_to: turns a large constant into one of the program's weights; `user`: a jit_adoption. Raises
 * in the scope of the program's arena. */
typedef struct jit_adoption {
    dlc_program *program;
    /* Adopts for the init graph, whose constants are released after its run. */
    bool init;
} jit_adoption;
bool jit_adopt_constant(void *adoption, graph_constant *constant);
/* The weight that the constant is, or is part of; NULL: none. */
jit_weight *jit_weight_of(const graph_constant *constant);
/* Allocates a weight of the program for a computed constant, whose size is set; false: out of memory. */
bool jit_weight_make(dlc_program *program, graph_constant *constant);
/* Makes a weight of the program of the constant's elements in another order of axes. NULL: out of memory. */
jit_weight *jit_weight_transpose(dlc_program *program, const graph_constant *constant, const jit_transposition *t);
/* transposed.c: finds the outputs of the init graph that are transposed weights: sets program->transposed and init_rest. Raises in the
 * scope of the program's arena. */
void jit_find_transposed(dlc_program *program);
/* How the base of a transposed weight is packed, so that the bytes are those of the transposed weight in `layout`. */
jit_packing jit_transposed_packing(const jit_transposition *t, const tir_layout *layout);
/* The row-major layout written with parts, as jit_transposed_packing needs it. */
tir_layout jit_row_major(int rank);
/* Has the outline the element size and the shape of the transposed weight? */
bool jit_transposed_fits(const jit_transposition *t, const jit_packing *outline);
/* jit_weight_whole: row-major bytes, valid as long as the plan; jit_weight_packed: a copy in a layout, valid as long as the program.
 * Raise if memory is refused. */
const char *jit_weight_whole(jit_build *build, jit_weight *weight);
void *jit_weight_packed(jit_build *build, jit_weight *weight, const jit_packing *outline);

static inline size_t jit_padded(size_t bytes) {
    return (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
}

/* control.c: steps of custom calls, `if` and loops, whose branches are separate plans. */
DLTensor jit_tensor_of_host(const jit_tensor *tensor, void *data); /* the form passed to host functions */
void jit_bind_branches(jit_build *build);                          /* all of build->controls; the kernels are known */
void jit_bind_control(jit_build *build, jit_step *step, uint32_t region);
/* Name of a node's branch (0: then, condition; 1: otherwise, body); NULL: it has no such branch. */
const char *jit_branch_name(const graph_node *node, int which);
/* Is the operand captured by the node's branches, unchanged? */
bool jit_is_captured(const graph_node *node, int operand);
/* The build of one branch, cleaned up together with `build`. control: NULL in dumps. */
jit_build *jit_branch(jit_build *build, const graph_node *node, int which, jit_plan *plan, jit_control *control);
/* Arena bytes that the node needs at run time; -1: overflow. */
int64_t jit_control_scratch(jit_build *build, const graph_node *node);
/* loop.c: jit_loop_of: the description of a while or scan, without its arrays; jit_loop_row_of: the stack whose elements are the values of
 * carry number `carry`, -1: none. */
jit_loop jit_loop_of(const graph_node *node);
int64_t jit_loop_length(jit_build *build, const graph_node *node); /* most iterations; INT64_MAX: not known */
int jit_loop_row_of(const jit_loop *loop, const graph *body, int carry);
int64_t jit_loop_scratch(jit_build *build, const graph_node *node);
/* Called when the branches are bound. */
void jit_bind_loop(jit_build *build, jit_step *step, const graph_node *node, const graph *body);

/* operations that a loop needs from its target */
typedef struct jit_loop_port {
    void *user;
    char *(*place)(void *user, const jit_tensor *tensor);
    dlc_status (*run)(void *user, int branch, char *const *inputs, char *const *outputs);
    /* within the target's memory */
    dlc_status (*copy)(void *user, void *to, const void *from, size_t size);
    /* from host memory */
    dlc_status (*write)(void *user, void *to, const void *from, size_t size);
    dlc_status (*clear)(void *user, void *to, size_t size);
    /* waits for it */
    dlc_status (*read)(void *user, const char *from, bool *value);
    /* called before and after all iterations; NULL: nothing to do */
    dlc_status (*enclose)(void *user, bool begin);
} jit_loop_port;
/* pointers: space for the pointers of the step's inputs and outputs. */
dlc_status jit_run_loop(const jit_step *step, char **pointers, char *scratch, const jit_loop_port *port);

/* Are operators computed exactly as they are written (graph/inference.h)? */
bool jit_is_as_written(const dlc_program *program);
/* Raises when a custom call names a function that nobody registered. */
void jit_check_customs(lib_arena *work, const graph *g);

/* Is the value a constant or loop-invariant, so that packing it once is worthwhile? */
bool jit_is_constant(void *build, graph_id value);

/* Looks up the host's schedule of the region; its text belongs to the program or is in `arena`. Raises. */
jit_key jit_region_key(dlc_program *program, lib_arena *arena, tir_region *region, jit_own *own);
/* Compiles claimed requests, then waits for all requests and pins them. Kernels whose claim another build abandoned, because it
 * was cancelled or exceeded its limits, are claimed again and built here. */
dlc_status jit_build_kernels(jit_build *build, lib_arena *work, lib_error *error);
/* Releases the pins and claims of a failed build. */
void jit_leave_kernels(jit_build *build, const lib_error *error);
/* schedules.c: _parse_: parses the sections of the host's text, raising if they are malformed. _own_: finds the lines for a region (by
 * hash, else by name) and marks the section as used, else queries the host's registered functions. _report_: logs the sections that no
 * region has used. */
void jit_parse_schedules(dlc_program *program, const char *text);
jit_own jit_own_schedule(dlc_program *program, lib_arena *arena, const tir_region *region);
void jit_report_schedules(dlc_program *program);

/* The target whose rules write a schedule, its device, and the number of threads that it is for. */
typedef struct jit_rules {
    const target *by;
    target_device *device;
    int threads;
} jit_rules;

/* rules.c. `choices`: pins, and a record of the schedule's choices; NULL: none. _schedule_: the schedule that the rules write for a region
 * with canonical names; the cost model decides the choices that they doubt. _lower_: lowers the region by that schedule, so that equal
 * computations give equal kernels. The rules estimate how many registers a schedule needs; if it needs more than the machine has, they
 * write another one, as for a machine with half the registers. NULL and *error if lowering rejects the rules' schedule, which is a bug of
 * the rules unless choices are pinned. */
void jit_schedule_by_rules(const jit_rules *rules, lib_arena *arena, const tir_region *canonical, tir_choices *choices,
                           tir_schedule *schedule, const tir_lower_options *options);
tir_kernel *jit_lower_by_rules(const jit_rules *rules, lib_arena *arena, tir_region *region, tir_choices *choices,
                               tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options,
                               lib_error *error);
/* As jit_lower_by_rules, which has failed, with one choice changed so that lowering takes the schedule; *change: the choice and its value, with
 * the region's names. NULL: there is no such choice. */
tir_kernel *jit_lower_by_other_choice(const jit_rules *rules, lib_arena *arena, tir_region *region,
                                      tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options,
                                      const char **change);
/* The sizes of the region's parameters that predictions assume (predict.c). */
int64_t *jit_usual_sizes(lib_arena *arena, const tir_region *region);

/* choices.c. _has_: does a line of the text begin with `choose`? _lower_: by the rules, but for these; raises if there is no such choice or value, or if
 * lowering refuses the schedule. _print_: appends all choices of the region as a section, with comments on the predicted cycles of
 * the other candidates, each changed alone, as multiples of those of the rules' kernel. */
bool jit_has_choices(const jit_own *own);
tir_kernel *jit_lower_by_choices(const jit_rules *rules, lib_arena *arena, tir_region *region, const jit_own *own,
                                 tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options);
/* With DLC_CHOICES: the seed, else 0; the rules' kernel with a quarter of its choices at random; NULL: lowering refuses that schedule. */
uint64_t jit_choices_seed(void);
tir_kernel *jit_lower_at_random(const jit_rules *rules, lib_arena *arena, tir_region *region, tir_region **rewritten,
                                tir_schedule *schedule, const tir_lower_options *options);
/* cycles 0: unknown */
typedef target_cost jit_predict(void *user, lib_arena *arena, const tir_kernel *kernel);
void jit_print_choices(lib_text *text, const jit_rules *rules, lib_arena *arena, tir_region *region,
                       const tir_lower_options *options, jit_predict *predict, void *user);

/* Schedule (the host's for the region, or the target's rules) and loop IR. `rewritten`: the region after the rewrite section.
 * `own`: result of jit_own_schedule; NULL: look it up. `host`: the target to lower for, in place of the context's. */
tir_kernel *jit_lower_region(dlc_program *program, lib_arena *arena, tir_region *region, tir_region **rewritten,
                             tir_schedule *schedule, const tir_lower_options *options, const jit_own *own,
                             const jit_host *host);

/* For messages: " of a, b", the names of the values that the region computes, or "". */
static inline const char *jit_region_origins(const jit_build *build, const graph_region *region) {
    return graph_origins_of_nodes(build->work, build->bound, region->nodes, region->node_count);
}

/* The parts of a training step to which the region belongs, see graph/sweep.h; 0: there are no derivatives. */
static inline unsigned jit_region_sweeps(jit_build *build, const graph_region *region) {
    if (build->swept != build->bound) build->sweeps = graph_sweeps(build->work, build->bound, build->within);
    build->swept = build->bound;
    return graph_region_sweeps(build->bound, build->sweeps, region);
}

/* Bytes of a value of the bound graph, for the parameters' current values. Raises on overflow. */
size_t jit_value_bytes(jit_build *build, graph_id value);
int64_t jit_dimension(jit_build *build, tir_expr dimension);

/* sharing.c: jit_find_sharing finds the links between values that do not depend on kernels; jit_share_maps those that do. */
void jit_find_sharing(jit_build *build);
void jit_share_maps(jit_build *build);
/* The value whose storage holds the bytes, and their offset in it. offset may be NULL. */
graph_id jit_home(const jit_build *build, graph_id value, int64_t *offset);
/* The region's computation, marked as an in-place update if it is one. */
tir_region *jit_region_build(jit_build *build, lib_arena *arena, const graph_region *region);
/* Guaranteed alignment of a value's address, at least that of an element; of constants in host memory 1, since those of files lie
 * anywhere. It depends on the bound sizes, which determine the offsets of values that are parts of others. */
int32_t jit_alignment(const jit_build *build, graph_id value, int32_t element);
/* Called when values are placed: decides which outputs may share the buffer of a donated input. */
void jit_plan_donation(jit_build *build);

/* room.c: donation with room. Notes the pair and returns true if the output is concat(input, ...); raises in the scope of the program's
 * arena. */
bool jit_add_growth(dlc_program *program, int output, int input);
const graph_growth *jit_growth_of(const dlc_program *program, int output); /* NULL: it has the input's shape */
/* Sets values[] of the symbols of rooms, and build->grown; `shapes` as for jit_plan_build. */
void jit_bind_rooms(jit_build *build, const int64_t *shapes, int64_t *values);
/* Describes an output that has room, when symbols are bound. */
void jit_describe_room(jit_build *build, const graph_growth *growth, jit_donation *donation);

/* memory.c: assigns storage to every value that regions write and to their scratch; regions run in order. Sources are already
 * placed. Sets plan->arena_bytes and live_bytes. */
void jit_plan_memory(jit_build *build);

/* order.c: most bytes of the arena that are live at once, without kernels' scratch, if the regions run as they are listed. */
int64_t jit_most_live(jit_build *build);
/* recompute.c: while the arena of the main graph's plan is larger than memory_bytes, values are computed again. Raises
 * DLC_BUDGET_EXCEEDED. jit_plan_again (bind.c): drops the kernels and places of the build, and plans other regions of the same graph
 * as far. */
void jit_fit_memory(jit_build *build);
void jit_plan_again(jit_build *build);

/* kept.c, for the dump "kept": records, and prints, the values of the plan that are live at its peak of memory, and those that it computes again. */
void jit_note_kept(jit_build *build);
void jit_print_kept(lib_text *text, const jit_plan *plan);

/* call.c: the tensors of a run. */
/* the address range of a tensor's elements */
typedef struct jit_extent {
    const char *low, *high;
} jit_extent;

typedef struct jit_boundary {
    /* for messages */
    const char *caller;
    dlc_program *program;
    const DLTensor *const *inputs;
    dlc_output_slot *outputs;
    int input_count, output_count;
    char **input_data, **output_data;
    /* [inputs + outputs] */
    jit_extent *extents;
    /* [inputs + outputs] kernels can use the tensor without a copy */
    bool *direct;
    /* [inputs + outputs] compact copies; NULL: none */
    DLManagedTensorVersioned **staged;
    int64_t *shapes;
    int shape_count;
    /* of an asynchronous run; NULL: synchronous */
    dlc_event *event;
} jit_boundary;

/* Checks one tensor, by its index in `extents`; fills its `extents` and `direct`. */
dlc_status jit_check_tensor(jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error);
/* Checks the inputs and fills the boundary's arrays for them. */
dlc_status jit_check_inputs(jit_boundary *c, lib_error *error);
/* Checks the host's tensor for an output against the plan's shape and, for overlap, against the inputs and earlier outputs. */
dlc_status jit_check_output(jit_boundary *c, int output, const int64_t *shape, lib_error *error);
dlc_status jit_check_overlap(const jit_boundary *c, int output, lib_error *error);
/* Is the output's buffer that of the input donated to it, usable by kernels without a copy? */
bool jit_is_shared(const jit_boundary *c, int output);

/* room.c: appends the rooms, which the strides of the outputs' tensors tell, to c->shapes. */
void jit_add_rooms(jit_boundary *c);
/* Has `part` the strides of `whole` (in dimensions of several elements), so that at the same address its elements are whole's first ones? */
bool jit_begins(const DLTensor *part, const DLTensor *whole);
/* Does the tensor lie as the first elements of a compact one with `room` elements along the axis? */
bool jit_fits_room(const DLTensor *tensor, int axis, int64_t room);
/* The tensor's elements as they lie in the pair's buffer: a view of `buffer` with the whole buffer's strides, stored in strides[rank]. */
DLTensor jit_view_in_room(const DLTensor *tensor, const jit_donation *donation, char *buffer, int64_t *strides);

/* jit_run_program of a program without segments. */
dlc_status jit_run(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                   dlc_output_slot *outputs, int output_count, lib_error *error);

/* event.c: jit_event_new, before a run: *event, the event that the host requested, or NULL. jit_event_give, after the run: hands the
 * event to the host, or frees it if the run failed. */
dlc_status jit_event_new(dlc_program *program, const jit_how *how, dlc_event **event, lib_error *error);
void jit_event_give(dlc_event *event, const jit_how *how, dlc_status status);

/* device_call.c: a run with checked tensors; with c->event it may still be in progress when this returns. */
dlc_status jit_device_run(jit_boundary *c, jit_plan *plan, const jit_how *how, lib_error *error);
/* device.c: the device's copy of a constant's bytes. `kept`: the bytes live as long as the program. Raises. */
void *jit_device_constant(jit_build *build, const void *host, size_t size, bool kept);

#endif
