/* Steps other than kernels: custom calls of host functions, `if`, loops (whose iterations are in loop.c). A branch is a sub-graph
 * of the bound graph, planned as a separate graph: all operands are its inputs (graph.h: graph_new_subgraph). Running these steps
 * allocates nothing. */
#include "jit/internal.h"

/* ---- binding */

void jit_check_customs(lib_arena *work, const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->op->class_ != GRAPH_OPAQUE) continue;
        graph_custom_of(work, g, node);
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++) jit_check_customs(work, g->subgraphs.data[i]);
}

static bool is_loop(const graph_node *node) {
    return node->op->structure != GRAPH_BRANCHES;
}

int64_t jit_control_scratch(jit_build *build, const graph_node *node) {
    return is_loop(node) ? jit_loop_scratch(build, node) : 0;
}

const char *jit_branch_name(const graph_node *node, int which) {
    const char *const names[2] = {is_loop(node) ? "condition" : "then", is_loop(node) ? "body" : "otherwise"};
    return graph_op_attribute(node->op, names[which]) < 0 ? NULL : names[which];
}

static const graph *subgraph_of(const jit_build *build, const graph_node *node, int which) {
    int attribute = graph_op_attribute(node->op, jit_branch_name(node, which));
    return build->bound->subgraphs.data[node->attribute[attribute].integer];
}

/* For each output of a loop's body, the input that it may overwrite: a carry's own, unless its values are the elements of a stack; else
 * -1. */
static const int *donated_carries(jit_build *build, const graph_node *node, const graph *body) {
    const jit_loop loop = jit_loop_of(node);
    int *donated = LIB_NEW_ARRAY(build->work, int, body->outputs.count + 1);
    for (int o = 0; o < (int)body->outputs.count; o++)
        donated[o] = o < loop.carries && jit_loop_row_of(&loop, body, o) < 0 ? o : -1;
    return donated;
}

/* Number of the first loop-invariant input of a loop's branches; -1: the loop has less than two iterations, or runs on a device, whose
 * memory the host cannot pack. */
static int first_steady(jit_build *build, const graph_node *node) {
    const jit_loop loop = jit_loop_of(node);
    if (build->program->context->target->runtime || jit_loop_length(build, node) < 2) return -1;
    return loop.carries + loop.sequences;
}

/* Place of the value if it is a constant or a view of one; others have none yet. */
static jit_place source_place(const jit_build *build, graph_id value) {
    int64_t offset = 0;
    jit_place place = build->place[build->links ? jit_home(build, value, &offset) : value];
    if (place.pointer) place.pointer = (char *)place.pointer + offset;
    return place;
}

bool jit_is_captured(const graph_node *node, int operand) {
    if (node->op->class_ == GRAPH_OPAQUE) return false;
    if (!is_loop(node)) return operand > 0;
    const jit_loop loop = jit_loop_of(node);
    return operand >= loop.carries + loop.sequences;
}

jit_build *jit_branch(jit_build *build, const graph_node *node, int which, jit_plan *plan, jit_control *control) {
    const graph *sub = subgraph_of(build, node, which);
    jit_place *given = LIB_NEW_ARRAY(build->work, jit_place, sub->inputs.count + 1);
    for (int i = 0; i < (int)sub->inputs.count; i++) {
        const int operand = i + !is_loop(node);
        if (!jit_is_captured(node, operand)) continue;
        const jit_place place = source_place(build, node->input[operand]);
        if (place.kind == JIT_PLACE_CONSTANT) given[i] = place;
    }
    const uint32_t number = (uint32_t)(node - build->bound->nodes.data);
    const graph_region alone = {.nodes = &number, .node_count = 1, .outputs = &node->first, .output_count = 1};
    jit_build *nested = LIB_NEW(build->work, jit_build);
    *nested = (jit_build){.next = build->root->next,
                          .root = build->root,
                          .program = build->program,
                          .plan = plan,
                          .work = build->work,
                          .passing = build->passing,
                          .steady_from = is_loop(node) ? first_steady(build, node) : -1,
                          .bound = (graph *)(uintptr_t)sub,
                          .within = jit_region_sweeps(build, &alone),
                          .ordinary_inputs = (int)sub->inputs.count,
                          .given = given,
                          .repeated = is_loop(node) && which == 1,
                          .outer = is_loop(node) ? build : NULL,
                          .loop = node,
                          .control = control,
                          .donated = is_loop(node) && which == 1 ? donated_carries(build, node, sub) : NULL,
                          .param_values = build->param_values,
                          .variables = build->variables,
                          .limits = build->limits};
    build->root->next = nested;
    return nested;
}

/* Builds the plan of one branch. build->plan owns it before anything can raise, so that both are freed together. */
static void bind_branch(jit_build *build, const graph_node *node, int which, jit_control *control) {
    jit_plan *plan = control->branch[which] = jit_plan_new(build->program->context);
    if (!plan) lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "out of memory: the plan of a branch");
    plan->sibling = build->plan->branches;
    build->plan->branches = plan;
    plan->arena.scope = build->work->scope;
    jit_plan_bound(jit_branch(build, node, which, plan, control));
    plan->arena.scope = &plan->scope;
}

static const graph_node *control_node(const jit_build *build, uint32_t region) {
    return &build->bound->nodes.data[build->regions.data[region].nodes[0]];
}

void jit_bind_branches(jit_build *build) {
    build->controls = LIB_NEW_ARRAY(build->work, jit_control, build->regions.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        if (build->regions.data[r].kind != GRAPH_REGION_CONTROL) continue;
        const graph_node *node = control_node(build, r);
        for (int b = 0; b < 2 && node->op->class_ != GRAPH_OPAQUE; b++)
            if (jit_branch_name(node, b)) bind_branch(build, node, b, &build->controls[r]);
    }
}

void jit_bind_control(jit_build *build, jit_step *step, uint32_t region) {
    const graph_node *node = control_node(build, region);
    if (node->op->class_ == GRAPH_OPAQUE) {
        step->kind = JIT_STEP_CUSTOM;
        step->custom = graph_custom_of(&build->plan->arena, build->bound, node);
        return;
    }
    step->kind = is_loop(node) ? JIT_STEP_LOOP : JIT_STEP_IF;
    for (int b = 0; b < 2; b++) step->branch[b] = build->controls[region].branch[b];
    if (is_loop(node)) jit_bind_loop(build, step, node, subgraph_of(build, node, 1));
}

/* ---- running */

typedef struct running {
    dlc_program *program;
    const jit_step *step;
    const jit_frame *frame;
    /* of the plan */
    char *const *inputs, *const *outputs;
    jit_how *how;
    lib_error *error;
} running;

static char *pointer_of(const running *run, const jit_tensor *tensor) {
    return jit_place_pointer(&tensor->place, run->frame, run->inputs, run->outputs);
}

/* Collects pointers to the operands from `first` on, then to the results. */
static void collect_pointers(const running *run, int first) {
    const jit_step *step = run->step;
    char **at = run->frame->operands;
    for (int i = first; i < step->input_count; i++) *at++ = pointer_of(run, &step->inputs[i]);
    for (int o = 0; o < step->output_count; o++) *at++ = pointer_of(run, &step->outputs[o]);
}

DLTensor jit_tensor_of_host(const jit_tensor *is, void *data) {
    return (DLTensor){.data = data,
                      .device = {kDLCPU, 0},
                      .ndim = is->rank,
                      .dtype = lib_dtype_to_dlpack(is->dtype),
                      .shape = (int64_t *)(uintptr_t)is->shape,
                      .strides = (int64_t *)(uintptr_t)is->strides};
}

static dlc_status run_custom(const running *run) {
    const jit_step *step = run->step;
    DLTensor *tensor = run->frame->tensors, **pointer = (DLTensor **)(void *)run->frame->operands;
    for (int i = 0; i < step->input_count + step->output_count; i++) {
        const jit_tensor *is = i < step->input_count ? &step->inputs[i] : &step->outputs[i - step->input_count];
        tensor[i] = jit_tensor_of_host(is, pointer_of(run, is));
        pointer[i] = is->rank || is->bytes ? &tensor[i] : NULL; /* left out */
    }
    const int cancelability =
        lib_cancel_off(); /* a thread cancelled in the host's function would stay registered as the plan's reader */
    dlc_status status = graph_custom_invoke(&step->custom, step->input_count, (const DLTensor *const *)pointer,
                                            step->output_count, pointer + step->input_count, run->error);
    lib_cancel_restore(cancelability);
    return status;
}

static dlc_status run_if(const running *run) {
    const jit_step *step = run->step;
    collect_pointers(run, 1);
    char **operands = run->frame->operands;
    bool condition = *pointer_of(run, &step->inputs[0]) != 0;
    return jit_plan_run(run->program, step->branch[condition ? 0 : 1], operands, operands + step->input_count - 1,
                        run->how, run->error);
}

/* ---- loops */

typedef struct loop_running {
    const running *run;
    /* frames of the branches, for all iterations */
    jit_frame *frame[2];
} loop_running;

static char *loop_place(void *user, const jit_tensor *tensor) {
    const loop_running *l = user;
    return pointer_of(l->run, tensor);
}

static dlc_status loop_run(void *user, int which, char *const *inputs, char *const *outputs) {
    const loop_running *l = user;
    jit_plan *plan = l->run->step->branch[which];
    jit_frame *frame = l->frame[which];
    jit_frame_aim(plan, frame, inputs, outputs);
    dlc_status status = jit_plan_run_in(l->run->program, plan, frame, inputs, outputs, l->run->how, l->run->error);
    frame->turned = !frame->turned;
    return status;
}

static dlc_status loop_copy(void *user, void *to, const void *from, size_t size) {
    (void)user;
    memcpy(to, from, size);
    return DLC_OK;
}

static dlc_status loop_clear(void *user, void *to, size_t size) {
    (void)user;
    memset(to, 0, size);
    return DLC_OK;
}

static dlc_status loop_read(void *user, const char *from, bool *value) {
    (void)user;
    *value = *from != 0;
    return DLC_OK;
}

/* Packs what is the same in all iterations, before the first one: until then frame->operands is unused, and serves as memory here. */
static void pack_steady(const loop_running *l, int which) {
    const jit_step *step = l->run->step;
    const jit_plan *plan = step->branch[which];
    if (!plan->packing_count) return;
    collect_pointers(l->run, 0);
    jit_pack_steady(plan, l->frame[which], l->run->frame->operands);
}

static dlc_status run_loop(const running *run) {
    const jit_step *step = run->step;
    loop_running l = {.run = run};
    const jit_loop_port port = {&l, loop_place, loop_run, loop_copy, loop_copy, loop_clear, loop_read, NULL};
    dlc_status status = DLC_OK;
    for (int b = 0; b < 2 && status == DLC_OK; b++) {
        if (!step->branch[b]) continue;
        l.frame[b] = jit_frame_take(step->branch[b]);
        if (l.frame[b])
            l.frame[b]->turned = false;
        else
            status = lib_fail(run->error, DLC_OUT_OF_MEMORY, "the arena of %lld bytes for a loop was refused",
                              (long long)step->branch[b]->arena_bytes);
    }
    for (int b = 0; b < 2 && status == DLC_OK; b++)
        if (step->branch[b]) pack_steady(&l, b);
    if (status == DLC_OK) status = jit_run_loop(step, run->frame->operands, run->frame->memory + step->scratch, &port);
    for (int b = 0; b < 2; b++)
        if (l.frame[b]) jit_frame_give(step->branch[b], l.frame[b]);
    return status;
}

dlc_status jit_run_control(dlc_program *program, const jit_step *step, const jit_frame *frame, char *const *inputs,
                           char *const *outputs, jit_how *how, lib_error *error) {
    const running run = {program, step, frame, inputs, outputs, how, error};
    switch (step->kind) {
    case JIT_STEP_CUSTOM: return run_custom(&run);
    case JIT_STEP_IF: return run_if(&run);
    case JIT_STEP_LOOP: return run_loop(&run);
    case JIT_STEP_HOST:
    case JIT_STEP_KERNELS:
    case JIT_STEP_COPY: break;
    }
    return DLC_OK;
}
