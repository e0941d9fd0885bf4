/* What runs between kernels: custom calls of host functions, `if`, `while`. A branch is a sub-graph of the bound graph, planned
 * like a graph of its own: all operands are its inputs (graph.h: graph_new_subgraph). Nothing here allocates at run time; a
 * while swaps its results between two sets of buffers. */
#include "jit/internal.h"

/* ---- binding */

void jit_check_customs(lib_scope *scope, const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->op->class_ != GRAPH_OPAQUE) continue;
        const char *name = node->attribute[graph_op_attribute(node->op, "target")].string;
        if (!graph_find_custom(g, name))
            lib_raise(scope, DLC_NOT_FOUND, "%s: no host function is registered as \"%s\"", node->op->name, name);
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++) jit_check_customs(scope, g->subgraphs.data[i]);
}

static bool is_named(const graph_node *node, const char *name) {
    return strcmp(node->op->name, name) == 0;
}

int64_t jit_control_scratch(jit_build *build, const graph_node *node) {
    if (!is_named(node, "while")) return 0;
    int64_t bytes = TIR_BUFFER_ALIGNMENT; /* the condition's value */
    for (int o = 0; o < node->results; o++)
        bytes += (int64_t)jit_padded(jit_value_bytes(build, node->first + (graph_id)o));
    return bytes;
}

jit_build *jit_branch(jit_build *build, const graph_node *node, int which, jit_plan *plan) {
    bool loop = is_named(node, "while");
    const char *const names[2] = {loop ? "condition" : "then", loop ? "body" : "otherwise"};
    const graph *sub =
        build->bound->subgraphs.data[node->attribute[graph_op_attribute(node->op, names[which])].integer];
    jit_place *given = LIB_NEW_ARRAY(build->work, jit_place, sub->inputs.count + 1);
    for (uint32_t i = loop ? (uint32_t)node->results : 0; i < sub->inputs.count;
         i++) { /* the first ones of a loop change */
        const jit_place *place = &build->place[node->input[i + (loop ? 0 : 1)]];
        if (place->kind == JIT_PLACE_CONSTANT) given[i] = *place;
    }
    jit_build *nested = LIB_NEW(build->work, jit_build);
    *nested = (jit_build){.next = build->root->next,
                          .root = build->root,
                          .program = build->program,
                          .plan = plan,
                          .work = build->work,
                          .bound = (graph *)(uintptr_t)sub,
                          .ordinary_inputs = (int)sub->inputs.count,
                          .given = given,
                          .param_values = build->param_values,
                          .variables = build->variables,
                          .deadline_ns = build->deadline_ns};
    build->root->next = nested;
    return nested;
}

/* The plan is the step's before anything can raise, so that it is freed with it. */
static void bind_branch(jit_build *build, const graph_node *node, int which, jit_plan **branch) {
    jit_plan *plan = *branch = jit_plan_new(build->program->context);
    if (!plan) lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "out of memory: the plan of a branch");
    plan->arena.scope = build->work->scope;
    jit_plan_bound(jit_branch(build, node, which, plan));
    plan->arena.scope = &plan->scope;
}

void jit_bind_control(jit_build *build, jit_step *step, const graph_node *node) {
    if (node->op->class_ == GRAPH_OPAQUE) {
        step->kind = JIT_STEP_CUSTOM;
        step->custom = *graph_find_custom(build->bound, node->attribute[graph_op_attribute(node->op, "target")].string);
        step->custom.name = lib_arena_string(&build->plan->arena, step->custom.name);
        return;
    }
    step->kind = is_named(node, "while") ? JIT_STEP_WHILE : JIT_STEP_IF;
    for (int b = 0; b < 2; b++) bind_branch(build, node, b, &step->branch[b]);
}

/* ---- running */

typedef struct running {
    dlc_program *program;
    const jit_step *step;
    const jit_frame *frame;
    char *const *inputs, *const *outputs; /* of the plan */
    const volatile int *cancel;
    lib_error *error;
} running;

static char *pointer_of(const running *run, const jit_tensor *tensor) {
    return jit_place_pointer(&tensor->place, run->frame, run->inputs, run->outputs);
}

/* Pointers to operands from `first` on, then to results. */
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
        pointer[i] = &tensor[i];
    }
    step->custom.call(step->custom.user, step->input_count, (const DLTensor *const *)pointer, step->output_count,
                      pointer + step->input_count);
    return DLC_OK;
}

static dlc_status run_if(const running *run) {
    const jit_step *step = run->step;
    collect_pointers(run, 1);
    char **operands = run->frame->operands;
    bool condition = *pointer_of(run, &step->inputs[0]) != 0;
    return jit_plan_run(run->program, step->branch[condition ? 0 : 1], operands, operands + step->input_count - 1,
                        run->cancel, run->error);
}

/* Iterations write the results' own places and the second set in turn. */
static dlc_status run_while(const running *run) {
    const jit_step *step = run->step;
    collect_pointers(run, 0);
    char **operands = run->frame->operands, **results = operands + step->input_count;
    char *condition = run->frame->memory + step->scratch;
    for (int64_t iteration = 0;; iteration++) {
        LIB_TRY(jit_plan_run(run->program, step->branch[0], operands, &condition, run->cancel, run->error));
        if (!*condition) break;
        char *spare = condition + TIR_BUFFER_ALIGNMENT;
        for (int o = 0; o < step->output_count; o++) {
            results[o] = iteration & 1 ? spare : pointer_of(run, &step->outputs[o]);
            spare += jit_padded(step->outputs[o].bytes);
        }
        LIB_TRY(jit_plan_run(run->program, step->branch[1], operands, results, run->cancel, run->error));
        for (int o = 0; o < step->output_count; o++) operands[o] = results[o];
    }
    for (int o = 0; o < step->output_count; o++) {
        char *place = pointer_of(run, &step->outputs[o]);
        if (operands[o] != place && step->outputs[o].bytes) memcpy(place, operands[o], step->outputs[o].bytes);
    }
    return DLC_OK;
}

dlc_status jit_run_control(dlc_program *program, const jit_step *step, const jit_frame *frame, char *const *inputs,
                           char *const *outputs, const volatile int *cancel, lib_error *error) {
    const running run = {program, step, frame, inputs, outputs, cancel, error};
    switch (step->kind) {
    case JIT_STEP_CUSTOM: return run_custom(&run);
    case JIT_STEP_IF: return run_if(&run);
    case JIT_STEP_WHILE: return run_while(&run);
    case JIT_STEP_HOST:
    case JIT_STEP_KERNELS:
    case JIT_STEP_COPY: break;
    }
    return DLC_OK;
}
