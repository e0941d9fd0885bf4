/* Between the files that build a plan: bind.c (what to run), kernels.c (code for it), memory.c (where values live). */
#ifndef JIT_INTERNAL_H
#define JIT_INTERNAL_H

#include "graph/origin.h"
#include "jit/jit.h"

#include <stdio.h>
#include <stdlib.h>

/* the host's schedule of a region; NULL: it has none */
typedef struct jit_own {
    const char *text;
    size_t length;
    /* where it stands in the program's text of schedules; 1: it is a text of its own */
    int line;
} jit_own;

/* one kernel that the plan calls */
typedef struct jit_request {
    const graph_region *region;
    /* as jit_region_origins says; read on several threads */
    const char *origins;
    jit_key key;
    jit_kernel *kernel;
    /* by this build, which has not settled it yet */
    bool claimed;
    bool pinned;
    /* of one run, for the profile */
    double operations, bytes;
    jit_own own;
} jit_request;

/* What ends a bind or a dlc_compile before its time: the host's cancellation, budget_ms, the end of the program. */
/* Bytes of stack that binding takes beside what passes over its graph take; code generation asks for what it takes itself. */
enum { JIT_STACK_BIND = 32 << 10 };
struct jit_limits {
    /* for arenas */
    lib_watch watch;
    dlc_program *program;
    /* 0: none */
    uint64_t deadline_ns;
    /* raised by jit_limits_poll where they are reached: for what looks at a flag */
    volatile int stop;
};

/* where a value without bytes of its own lies */
typedef struct jit_link {
    /* 0: it has its own */
    graph_id base;
    /* written over base, whose contents are gone then; else base shows it all the time */
    bool over;
    /* bytes */
    int64_t offset;
} jit_link;

/* arena space that a region needs while it runs */
typedef struct jit_scratch {
    /* GRAPH_NONE: all of them */
    uint32_t region;
    int64_t bytes;
    /* receives the place */
    int64_t *offset;
} jit_scratch;

/* What a loop's branches want packed and the loop around it has packed for all of its own iterations: a further operand of the loop. */
typedef struct jit_lifted {
    /* operand of the loop, of which it is a copy */
    int32_t input;
    tir_layout layout;
} jit_lifted;

/* a region of control flow */
typedef struct jit_control {
    /* by jit_branch_name; NULL: none */
    jit_plan *branch[2];
    lib_vec(jit_lifted) lifted;
} jit_control;

/* of one region */
typedef struct jit_front_known {
    /* NULL: not made yet */
    tir_region *computation;
    /* as build->updates was then */
    int updates;
    /* as jit_alignment said then: of the inputs, then of the outputs */
    int32_t *alignments;
    jit_key key;
    jit_own own;
} jit_front_known;

/* what does not depend on sizes that are parameters, see front.c */
typedef struct jit_front {
    /* everything below */
    lib_arena arena;
    /* [key_count] what each symbol was bound to, and its range */
    int64_t *key;
    size_t key_count;
    /* NULL: not made yet */
    graph *bound;
    graph_regions regions;
    bool fused;
    /* [regions] */
    jit_front_known *known;
    /* in context->plan_bytes */
    size_t counted_bytes;
} jit_front;

typedef struct jit_build {
    /* builds of branches, from the outermost build on: to be undone together */
    struct jit_build *next;
    struct jit_build *root;
    dlc_program *program;
    jit_plan *plan;
    /* for the build only */
    lib_arena *work;
    /* for the region at hand, in the scope of `work` */
    lib_arena *passing;
    /* in `work`; of a branch: a sub-graph */
    graph *bound;
    graph_regions regions;
    /* [values] same bytes at every run */
    bool *constant;
    /* [values] of a loop's branch: an input that is the same in all iterations, and no constant */
    bool *steady;
    /* inputs from here on are; -1: none */
    int steady_from;
    /* [values] written by a region that is no view */
    bool *produced;
    /* [values] */
    jit_place *place;
    /* [values] */
    jit_link *links;
    /* [regions] a concat whose operands are written or copied into the result */
    bool *parts;
    /* [regions] 0, or 1 + the output that is written over an operand of which it changes some elements */
    int *updates;
    /* [values that are no views] last region that reads it; regions.count: outputs */
    uint32_t *last_read;
    /* the body of a loop */
    bool repeated;
    /* [regions] what became of those of control flow */
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
    /* [regions] offset of what a control step asked for */
    int64_t *step_scratch;
    /* of the inputs beyond `ordinary_inputs` */
    const graph_constant *init_values;
    int ordinary_inputs;
    /* branches: [inputs] constants among the operands; else NULL */
    const jit_place *given;
    /* of the symbols kept as parameters, in the plan's arena */
    int64_t *param_values;
    /* by pool variable id, for evaluating dimensions */
    uint64_t *variables;
    jit_request *requests;
    uint32_t request_count;
    /* NULL: everything is made in `work` */
    jit_front *front;
    jit_tier tier;
    /* of a generic build: the usual one would be another */
    bool differs;
    const jit_limits *limits;
} jit_build;

void jit_limits_begin(jit_limits *limits, dlc_program *program); /* kernels.c */
bool jit_limits_reached(const jit_limits *limits, lib_error *error);
static inline const volatile int *jit_limits_flag(const jit_limits *limits) {
    return &limits->stop;
}

jit_plan *jit_plan_new(dlc_context *context); /* NULL: out of memory */
/* From build->bound, with inputs known, to the plan's steps. */
void jit_plan_bound(jit_build *build);
/* The bound, simplified graph in build->work, with the values of its symbols; build->bound and what depends on it alone. `learn`:
 * the values count as seen. */
void jit_bind_graph(jit_build *build, const graph *g, const int64_t *shapes, bool learn);
/* front.c: build->front with this key, if memory is not refused; back to the program, or gone. */
void jit_front_take(jit_build *build, const int64_t *key, size_t count);
void jit_front_give(jit_build *build, bool good);
/* A region's computation, which the next call may take away, and its key. */
tir_region *jit_front_region(jit_build *build, const graph_region *region, jit_key *key, jit_own *own);
/* predict.c: what fusion may ask of the target's cost model. predict NULL: the target has none. */
graph_fuse_costs jit_fuse_costs(jit_build *build);
void jit_place_sources(jit_build *build);
graph_regions jit_fuse(jit_build *build);

/* constants.c: bytes that live as long as the plan, of a constant and of the value that it places in another layout. */
jit_place jit_constant_place(jit_build *build, const graph_constant *constant);
/* Before the first is packed: the weights whose row-major bytes some kernel of the plan reads, which therefore stay. */
void jit_keep_weights(jit_build *build);
void *jit_pack_constant(jit_build *build, graph_id value, const tir_layout *layout);
void *jit_pack_host_constant(jit_build *build, graph_id value, const tir_layout *layout); /* on the host in any case */
void *jit_host_constant(jit_build *build, graph_id value); /* likewise, without a layout */
/* The same where kernels of a target with a runtime find it: as the value lies in `place`, without a layout. */
void *jit_resident_constant(jit_build *build, graph_id value);
/* What a branch's kernels, and the loops in it, want of steady inputs: makes plan->packings, whose places are still to be found, or asks
 * the loop around for them; where the value lies for a kernel; and, in front of the iterations, all of the plan's packings. */
void jit_ask_for_packings(jit_build *build);
jit_place jit_steady_place(const jit_build *build, graph_id value, const tir_layout *layout);
void jit_pack_steady(const jit_plan *plan, const jit_frame *frame, char *const *inputs);
void jit_collect_constants(dlc_program *program);

/* packing.c: how a compact tensor of this shape becomes one of that layout, tables in `arena`; there, where padding is left as it is, and
 * back. */
jit_packing jit_packing_of(lib_arena *arena, const tir_layout *layout, size_t element, const int64_t *shape);
void jit_pack(const jit_packing *packing, const char *from, char *to);
void jit_unpack(const jit_packing *packing, const char *from, char *to);
/* From one layout to another one of the same tensor. */
void jit_repack(lib_arena *work, const jit_packing *there, const char *from, const jit_packing *packing, char *to);

/* weights.c. For graph_copy_to: makes a large constant one of the program's weights; `user`: a jit_adoption. Raises in the scope of the
 * program's arena. */
typedef struct jit_adoption {
    dlc_program *program;
    /* Of the init graph, whose constants nobody needs when it has run. */
    bool init;
} jit_adoption;
bool jit_adopt_constant(void *adoption, graph_constant *constant);
/* The weight that the constant is, or is part of; NULL: none. */
jit_weight *jit_weight_of(const graph_constant *constant);
/* Memory for a constant that is computed, size given, as a weight of the program; false: out of memory. */
bool jit_weight_make(dlc_program *program, graph_constant *constant);
/* Row-major bytes, as long as the plan lives; the copy in a layout, as long as the program. Raise when memory is refused. */
const char *jit_weight_whole(jit_build *build, jit_weight *weight);
void *jit_weight_packed(jit_build *build, jit_weight *weight, const jit_packing *packing);

static inline size_t jit_padded(size_t bytes) {
    return (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
}

/* control.c: a custom call's function; the branches of an `if` or `while` step as plans of their own. */
DLTensor jit_tensor_of_host(const jit_tensor *tensor, void *data); /* as the host's functions see it */
void jit_bind_branches(jit_build *build); /* all of build->controls, when the kernels are known */
void jit_bind_control(jit_build *build, jit_step *step, uint32_t region);
/* Of a node's branches (0: then, condition; 1: otherwise, body); NULL: it has no such branch. */
const char *jit_branch_name(const graph_node *node, int which);
/* Do the node's branches take the operand from outside, as it is? */
bool jit_is_captured(const graph_node *node, int operand);
/* The build of one branch, to be undone with `build`'s. control: NULL in dumps. */
jit_build *jit_branch(jit_build *build, const graph_node *node, int which, jit_plan *plan, jit_control *control);
/* Arena bytes that running the node takes; -1: more than can be told. */
int64_t jit_control_scratch(jit_build *build, const graph_node *node);
/* loop.c: of a while or scan, without its arrays; the stack that carry `carry` is an element of, -1: none. */
jit_loop jit_loop_of(const graph_node *node);
int64_t jit_loop_length(jit_build *build, const graph_node *node); /* most iterations; INT64_MAX: not known */
int jit_loop_row_of(const jit_loop *loop, const graph *body, int carry);
int64_t jit_loop_scratch(jit_build *build, const graph_node *node);
/* When the branches are bound. */
void jit_bind_loop(jit_build *build, jit_step *step, const graph_node *node, const graph *body);

/* what a loop needs of the place where it runs */
typedef struct jit_loop_port {
    void *user;
    char *(*place)(void *user, const jit_tensor *tensor);
    dlc_status (*run)(void *user, int branch, char *const *inputs, char *const *outputs);
    /* there */
    dlc_status (*copy)(void *user, void *to, const void *from, size_t size);
    /* from the host */
    dlc_status (*write)(void *user, void *to, const void *from, size_t size);
    dlc_status (*clear)(void *user, void *to, size_t size);
    /* waits for it */
    dlc_status (*read)(void *user, const char *from, bool *value);
    /* around all iterations; NULL: nothing to do */
    dlc_status (*enclose)(void *user, bool begin);
} jit_loop_port;
/* pointers: room for those of the step's inputs and outputs. */
dlc_status jit_run_loop(const jit_step *step, char **pointers, char *scratch, const jit_loop_port *port);

/* Raises when a custom call names a function that nobody registered. */
void jit_check_customs(lib_arena *work, const graph *g);

/* Worth a layout of its own, which is made once: a constant, or steady. */
bool jit_is_constant(void *build, graph_id value);

/* Asks the host for the region's schedule; its text is the program's or in `arena`. Raises. */
jit_key jit_region_key(dlc_program *program, lib_arena *arena, tir_region *region, jit_own *own);
/* Compiles claimed requests, then waits for all requests and pins them. Kernels that another build gave up because it was cancelled or exceeded its
 * own limits are claimed again and built here. */
dlc_status jit_build_kernels(jit_build *build, lib_arena *work, lib_error *error);
/* Of a failed build: gives back what is pinned or claimed. */
void jit_leave_kernels(jit_build *build, const lib_error *error);
/* schedules.c: the sections of the host's text; raises when they are malformed. The lines for a region (by hash, else by name), which
 * counts as used; else what a registered function of the host answers. Then what no region has used goes to the log. */
void jit_parse_schedules(dlc_program *program, const char *text);
jit_own jit_own_schedule(dlc_program *program, lib_arena *arena, const tir_region *region);
void jit_report_schedules(dlc_program *program);

/* Lowers the region by the target's rules, in canonical names, so that equal computations give equal kernels. NULL and *error if
 * lowering refuses the rules' schedule, which is a fault of the rules. */
tir_kernel *jit_lower_by_rules(const target *by, int width, lib_arena *arena, tir_region *region,
                               tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options,
                               lib_error *error);
/* Schedule (the host's for the region, or the target's rules) and loop IR. `rewritten`: the region after the rewrite section. `own`: what
 * jit_own_schedule said; NULL: to be asked. `host`: for it, in place of the context's target. */
tir_kernel *jit_lower_region(dlc_program *program, lib_arena *arena, tir_region *region, tir_region **rewritten,
                             tir_schedule *schedule, const tir_lower_options *options, const jit_own *own,
                             const jit_host *host);

/* For messages: " of a, b", the names of the values that the region computes, or "". */
static inline const char *jit_region_origins(const jit_build *build, const graph_region *region) {
    return graph_origins_of_nodes(build->work, build->bound, region->nodes, region->node_count);
}

/* Bytes of a value of the bound graph: shape evaluated with the parameters' values. Raises on overflow. */
size_t jit_value_bytes(jit_build *build, graph_id value);
int64_t jit_dimension(jit_build *build, tir_expr dimension);

/* sharing.c: links of the regions at hand, as far as they do not depend on kernels; then those that do. */
void jit_find_sharing(jit_build *build);
void jit_share_maps(jit_build *build);
/* The value that holds the bytes, and where in it. offset may be NULL. */
graph_id jit_home(const jit_build *build, graph_id value, int64_t *offset);
/* The region's computation; one that updates in place says so. */
tir_region *jit_region_build(jit_build *build, lib_arena *arena, const graph_region *region);
/* What kernels may take for granted of a value's address, at least that of an element: it depends on the sizes at hand, which decide
 * where values lie that are part of another. */
int32_t jit_alignment(const jit_build *build, graph_id value, int32_t element);
/* When values have their places: which buffers of the host may be one. */
void jit_plan_donation(jit_build *build);

/* memory.c: gives a place to every value that regions write and to their scratch; regions run in order. Sources have their places
 * before. Sets plan->arena_bytes. */
void jit_plan_memory(jit_build *build);

/* call.c: the tensors of a run. */
/* the bytes that a tensor touches */
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
    /* [inputs + outputs] kernels can use it as it is */
    bool *direct;
    /* [inputs + outputs] compact copies; NULL: none */
    DLManagedTensorVersioned **staged;
    int64_t *shapes;
    int shape_count;
    /* of a run that is not waited for; NULL: it is */
    dlc_event *event;
} jit_boundary;

/* One of the tensors, by its number in `extents`: fills that and `direct`. */
dlc_status jit_check_tensor(jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error);
/* Fills the boundary's arrays for the inputs. */
dlc_status jit_check_inputs(jit_boundary *c, lib_error *error);
/* The host's tensor for an output: against the shape that the plan gives, and against the inputs and the outputs before it. */
dlc_status jit_check_output(jit_boundary *c, int output, const int64_t *shape, lib_error *error);
dlc_status jit_check_overlap(const jit_boundary *c, int output, lib_error *error);
/* The output's buffer is that of the input donated to it, and kernels can use it as it is. */
bool jit_is_shared(const jit_boundary *c, int output);

/* dlc_run of a program without segments, options checked. */
dlc_status jit_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs, int input_count,
                   dlc_output_slot *outputs, int output_count, lib_error *error);

/* event.c: before a run, the event that the host asked for, or NULL; after it, to the host or, when the run failed, to nobody. */
dlc_status jit_event_new(dlc_program *program, const char *caller, const dlc_run_options *options, dlc_event **event,
                         lib_error *error);
void jit_event_give(dlc_event *event, const dlc_run_options *options, dlc_status status);

/* device_call.c: a run of checked tensors; with c->event it may be under way when this returns. */
dlc_status jit_device_run(jit_boundary *c, jit_plan *plan, const dlc_run_options *options, lib_error *error);
/* A new compact tensor there. */
dlc_status jit_device_tensor(dlc_context *context, const jit_argument *argument, const int64_t *shape,
                             DLManagedTensorVersioned **tensor, lib_error *error);
/* device.c: the device's copy of a constant's bytes. `kept`: they live as long as the program. Raises. */
void *jit_device_constant(jit_build *build, const void *host, size_t size, bool kept);

#endif
