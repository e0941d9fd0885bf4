/* Runners of ONNX models, <dlc/onnx.h>. An import (a compiled program) serves all tensors that pass its guards; a runner keeps several.
 * What must be fixed is found by trying: a refused import names the small inputs that reach the refused node (graph/onnx/needs.c), and is
 * tried again with their elements fixed, at last with all sizes fixed. If a node is refused even then, its shape or branch depends on
 * computed data: the model is walked (onnx_walk.c), from then on whenever no existing import serves. */
#include <dlc/onnx.h>

#include "jit/jit.h"

#ifdef DLC_ONNX
#include "jit/onnx_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { IMPORTS_KEPT = 16 };

static int inputs_of(const dlc_onnx_runner *runner) {
    return runner->input_count;
}
static int outputs_of(const dlc_onnx_runner *runner) {
    return runner->model->port_count[DLC_ONNX_OUTPUT];
}

dlc_status jit_onnx_run_fail(const dlc_onnx_runner *runner, dlc_status status, const char *format, ...) {
    char message[LIB_MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return jit_onnx_fail(runner->model->context, status, "dlc_onnx_run", message);
}

dlc_status jit_onnx_check_lists(const dlc_onnx_runner *runner, const char *call, const void *inputs, int input_count,
                                const void *outputs, int output_count) {
    const int *ports = runner->model->port_count;
    char text[120] = "inputs is NULL";
    if (input_count != ports[DLC_ONNX_INPUT] || output_count != ports[DLC_ONNX_OUTPUT])
        snprintf(text, sizeof text, "%d inputs and %d outputs, the model has %d and %d", input_count, output_count,
                 ports[DLC_ONNX_INPUT], ports[DLC_ONNX_OUTPUT]);
    else if (output_count && !outputs)
        snprintf(text, sizeof text, "outputs is NULL");
    else if (inputs || !input_count)
        return DLC_OK;
    return jit_onnx_fail(runner->model->context, DLC_INVALID_ARGUMENT, call, text);
}

dlc_status jit_onnx_check_outputs(const dlc_onnx_runner *runner, const DLTensor *const *inputs,
                                  const dlc_output_slot *outputs) {
    const jit_onnx_port *port = runner->model->ports[DLC_ONNX_OUTPUT];
    for (int o = 0; o < outputs_of(runner); o++) {
        const DLTensor *tensor = outputs[o].tensor;
        char text[JIT_ONNX_FAULT];
        if (!tensor) continue;
        const char *fault = jit_onnx_tensor_fault(tensor, text);
        if (!fault && tensor->strides && lib_strides_overlap(tensor))
            fault = "has strides under which elements overlap";
        if (fault) return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT, "output %s %s", port[o].name, fault);
        for (int i = 0; i < inputs_of(runner); i++)
            if (inputs[i] && lib_tensors_overlap(tensor, inputs[i]))
                return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT, "output %s overlaps input %s", port[o].name,
                                         runner->input[i].name);
        for (int p = 0; p < o; p++)
            if (outputs[p].tensor && lib_tensors_overlap(tensor, outputs[p].tensor))
                return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT, "outputs %s and %s overlap", port[o].name,
                                         port[p].name);
    }
    return DLC_OK;
}

/* ---- imports ---------------------------------------------------------------------------------------------------------- */

static bool has_content(const DLTensor *tensor) {
    return tensor->device.device_type == kDLCPU && lib_tensor_is_compact(tensor);
}

static bool passes(const input_guard *guard, const DLTensor *tensor) {
    dlc_dtype dtype;
    if (guard->rank >= 0 && tensor->ndim != guard->rank) return false;
    for (int d = 0; d < guard->rank; d++)
        if (guard->dim[d] >= 0 && tensor->shape[d] != guard->dim[d]) return false;
    if (!guard->content) return true;
    return has_content(tensor) && lib_dtype_from_dlpack(tensor->dtype, &dtype) && dtype == guard->dtype &&
           memcmp(lib_tensor_data(tensor), guard->content, lib_tensor_bytes(tensor)) == 0;
}

static bool serves(const dlc_onnx_runner *runner, const imported *import, const DLTensor *const *inputs) {
    if (import->failed) return false;
    for (int i = 0; i < inputs_of(runner); i++)
        if (!passes(&import->guard[i], inputs[i])) return false;
    return true;
}

/* What an import assumes to be fixed, and guards. */
typedef struct assumptions {
    /* content[input]: the input's elements. */
    bool *content;
    /* sizes: all sizes; ones: sizes of 0 and 1. */
    bool sizes, ones;
} assumptions;

/* Sets the import's guards: the assumptions, with the elements and sizes of these tensors. */
static void make_guards(dlc_onnx_runner *runner, imported *import, const assumptions *a,
                        const DLTensor *const *inputs) {
    import->guard = LIB_NEW_ARRAY(&import->arena, input_guard, (size_t)inputs_of(runner) + 1);
    for (int i = 0; i < inputs_of(runner); i++) {
        const DLTensor *tensor = inputs[i];
        const onnx_type *type = runner->input[i].type;
        const bool ranked = type && type->which == ONNX_TYPE_TENSOR && type->tensor->shape;
        input_guard *guard = &import->guard[i];
        *guard = (input_guard){.rank = ranked && !a->sizes && !a->ones && !a->content[i] ? -1 : tensor->ndim};
        for (int d = 0; d < tensor->ndim; d++) {
            const bool fixed = a->sizes || a->content[i] || (a->ones && tensor->shape[d] <= 1);
            guard->dim[d] = fixed ? tensor->shape[d] : -1;
        }
        if (!a->content[i]) continue;
        lib_dtype_from_dlpack(tensor->dtype, &guard->dtype);
        guard->content = lib_arena_copy(&import->arena, lib_tensor_data(tensor), lib_tensor_bytes(tensor));
    }
}

/* Imports the model as a graph that serves all tensors that pass the guards. If the import is refused, `needs` names the inputs whose
 * elements may have to be fixed. */
static dlc_status import_for(dlc_onnx_runner *runner, lib_arena *work, imported *import, const DLTensor *const *inputs,
                             onnx_needs *needs, dlc_graph **made) {
    const dlc_onnx_model *model = runner->model;
    const size_t all = model->model->graph->inputs.count;
    onnx_options options = runner->import;
    onnx_arrived *arrived = LIB_NEW_ARRAY(work, onnx_arrived, (size_t)inputs_of(runner) + 1);
    onnx_results results = {.arena = work};
    for (int i = 0; i < inputs_of(runner); i++) {
        const input_guard *guard = &import->guard[i];
        arrived[i].rank = inputs[i]->ndim;
        arrived[i].value = guard->content ? inputs[i] : NULL;
        for (int d = 0; d < DLC_MAX_RANK; d++)
            arrived[i].dim[d] = guard->rank >= 0 && d < guard->rank ? guard->dim[d] : -1;
    }
    memset(needs->content, 0, all * sizeof *needs->content);
    needs->node = needs->walk = false;
    options.arrived = arrived, options.needs = needs;
    if (runner->given) {
        results.result = import->results = LIB_NEW_ARRAY(work, onnx_result, model->model->graph->outputs.count + 1);
        options.given = runner->given, options.results = &results;
    }
    const dlc_status status = jit_onnx_import(runner->model, &options, made);
    import->outputs = runner->given ? results.outputs : outputs_of(runner);
    return status;
}

/* After a refusal: additionally assumes the elements of needed small inputs or, if there are none, all sizes. False: nothing is left to
 * assume. */
static bool assume_more(const dlc_onnx_runner *runner, assumptions *a, const onnx_needs *needs,
                        const DLTensor *const *inputs) {
    bool more = false;
    for (int i = 0; i < inputs_of(runner); i++) {
        int64_t count;
        dlc_dtype dtype;
        if (a->content[i] || !needs->content[runner->input[i].place]) continue;
        if (!has_content(inputs[i]) || !lib_tensor_count(inputs[i], &count)) continue;
        if (!lib_dtype_from_dlpack(inputs[i]->dtype, &dtype)) continue;
        if (count > (lib_dtype_is_float(dtype) ? ONNX_NEEDED_FLOATS_MAX : ONNX_NEEDED_MAX)) continue;
        a->content[i] = more = true;
    }
    if (more || a->sizes) return more;
    return a->sizes = true;
}

static void free_import(dlc_onnx_runner *runner, imported *import) {
    const dlc_allocator *allocator = &runner->model->context->allocator;
    dlc_program_destroy(import->program);
    lib_arena_free(&import->arena);
    lib_release(allocator, import, sizeof *import, _Alignof(imported));
}

/* Imports with more and more assumptions until no node is refused, and compiles. *refused: a node was refused to the end. Raises in the
 * import's scope. */
static dlc_status import_in_scope(dlc_onnx_runner *runner, imported *import, assumptions *a,
                                  const DLTensor *const *inputs, bool *refused) {
    lib_arena *work = &import->arena;
    const size_t all = runner->model->model->graph->inputs.count;
    onnx_needs needs = {.content = LIB_NEW_ARRAY(work, bool, all + 1)};
    import->grows = LIB_NEW_ARRAY(work, int, (size_t)runner->state_count + 1);
    dlc_graph *made = NULL;
    dlc_status status;
    do {
        make_guards(runner, import, a, inputs);
        status = import_for(runner, work, import, inputs, &needs, &made);
    } while (status != DLC_OK && needs.node && !needs.walk && assume_more(runner, a, &needs, inputs));
    *refused = status != DLC_OK && needs.node;
    if (status == DLC_OK) status = jit_onnx_vary_states(runner, import, made);
    if (status == DLC_OK && (import->outputs || !runner->given))
        status = dlc_compile(runner->model->context, made, &runner->compile, &import->program);
    if (status == DLC_OK) jit_onnx_join_states(runner, import);
    dlc_graph_destroy(made);
    return status;
}

/* The least recently used import that no run uses; NULL: there is none. */
static imported **oldest(dlc_onnx_runner *runner) {
    imported **best = NULL;
    for (imported **at = &runner->imports; *at; at = &(*at)->next)
        if ((*at)->users == 0 && (!best || (*at)->used < (*best)->used)) best = at;
    return best;
}

static void keep_import(dlc_onnx_runner *runner, imported *import) {
    imported **old = runner->import_count >= IMPORTS_KEPT ? oldest(runner) : NULL;
    if (old) {
        imported *gone = *old;
        *old = gone->next;
        free_import(runner, gone);
        runner->import_count--;
    }
    import->next = runner->imports;
    runner->imports = import;
    runner->import_count++;
}

/* Which facts about the inputs a new import takes as constants from the start: those that earlier imports of the model needed
 * (AS_KNOWN), these and which sizes are 0 or 1 (ONES), or all sizes (ALL_SIZES). */
typedef enum beforehand { AS_KNOWN, ONES, ALL_SIZES } beforehand;

static dlc_status new_import(dlc_onnx_runner *runner, const DLTensor *const *inputs, beforehand given, imported **made,
                             bool *refused) {
    dlc_context *context = runner->model->context;
    imported *import = lib_allocate_zeroed(&context->allocator, sizeof *import, _Alignof(imported));
    dlc_status status = DLC_OUT_OF_MEMORY;
    if (!import) return jit_onnx_run_fail(runner, status, "memory was refused");
    lib_arena_init(&import->arena, &context->allocator, &import->scope);
    if (LIB_ENTER(&import->scope)) {
        const size_t ports = (size_t)inputs_of(runner);
        assumptions a = {.content = lib_arena_copy(&import->arena, runner->content, ports + 1),
                         .sizes = runner->sizes || given == ALL_SIZES,
                         .ones = given == ONES};
        for (size_t i = 0; i < ports; i++) a.content[i] = a.content[i] && has_content(inputs[i]);
        status = import_in_scope(runner, import, &a, inputs, refused);
        if (status == DLC_OK && given != ALL_SIZES) memcpy(runner->content, a.content, ports), runner->sizes = a.sizes;
    } else
        status = jit_fail(context, &import->scope.error);
    if (status == DLC_OK)
        keep_import(runner, *made = import);
    else
        free_import(runner, import);
    return status;
}

/* *found: an import for these tensors: one that the runner has (given AS_KNOWN) or a new one. *walk: there is none, but a walk may serve.
 * The mutex is held. */
static dlc_status find_import(dlc_onnx_runner *runner, const DLTensor *const *inputs, beforehand given,
                              imported **found, bool *walk) {
    *walk = false;
    *found = given == AS_KNOWN ? runner->imports : NULL;
    while (*found && !serves(runner, *found, inputs)) *found = (*found)->next;
    if (!*found && runner->walks) {
        *walk = true;
        return jit_onnx_run_fail(runner, DLC_UNSUPPORTED, "data decide sizes or branches: the model is walked");
    }
    const dlc_status status = *found ? DLC_OK : new_import(runner, inputs, given, found, walk);
    if (status == DLC_OK) (*found)->used = ++runner->clock;
    return status;
}

/* The same, and counts a run in progress; leave_import ends it. */
static dlc_status take_import(dlc_onnx_runner *runner, const DLTensor *const *inputs, beforehand given,
                              imported **taken, bool *walk) {
    lib_mutex_lock(&runner->mutex);
    const dlc_status status = find_import(runner, inputs, given, taken, walk);
    if (status == DLC_OK) (*taken)->users++, (*taken)->runs++;
    lib_mutex_unlock(&runner->mutex);
    return status;
}

/* Ends a run of the import. `drop`: removes the import from the runner if no other run uses it. */
static void leave_import(dlc_onnx_runner *runner, imported *import, bool drop) {
    lib_mutex_lock(&runner->mutex);
    import->users--;
    imported **at = &runner->imports;
    while (drop && *at != import) at = &(*at)->next;
    drop = drop && import->users == 0;
    if (drop) *at = import->next, runner->import_count--;
    lib_mutex_unlock(&runner->mutex);
    if (drop) free_import(runner, import);
}

void jit_onnx_leave_import(dlc_onnx_runner *runner, imported *import) {
    leave_import(runner, import, false);
}

/* ---- walks -------------------------------------------------------------------------------------------------------------- */

/* Counts a run by a walk; from now on no new imports are tried. */
static void remember_walk(dlc_onnx_runner *runner) {
    lib_mutex_lock(&runner->mutex);
    runner->walks = true;
    runner->walked++;
    lib_mutex_unlock(&runner->mutex);
}

static dlc_status run_walk(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                           dlc_output_slot *outputs, onnx_results *results) {
    dlc_status status = DLC_OK;
    if (options && options->struct_size != sizeof *options)
        return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT,
                                 "options.struct_size is wrong (use DLC_RUN_OPTIONS_INIT)");
    if (options && options->event)
        return jit_onnx_run_fail(runner, DLC_UNSUPPORTED,
                                 "a model that is walked, node by node, is run at once: no event");
    lib_error error;
    if (jit_check_run_options(runner->model->context, "dlc_onnx_run", options, &error) != DLC_OK)
        return jit_fail(runner->model->context, &error);
    if (!runner->owner) LIB_TRY(jit_onnx_check_outputs(runner, inputs, outputs));
    onnx_options import = runner->import;
    import.given = runner->given, import.results = results;
    if (runner->state_count) jit_onnx_drop_aims(runner, outputs);
    const jit_onnx_walk_call call = {.import = &import,
                                     .run = options,
                                     .inputs = inputs,
                                     .input_count = inputs_of(runner),
                                     .outputs = outputs,
                                     .output_count = results ? JIT_ONNX_TENSORS : outputs_of(runner)};
    dlc_onnx_runner *owner = runner->owner ? runner->owner : runner;
    lib_mutex_lock(&owner->walk_mutex);
    if (!owner->walk) status = jit_onnx_walk_new(owner->model, &owner->compile, owner->seed, &owner->walk);
    if (status == DLC_OK) status = jit_onnx_walk_run(owner->walk, &call);
    const bool first = status == DLC_OK && !owner->told;
    owner->told |= first;
    lib_mutex_unlock(&owner->walk_mutex);
    if (status == DLC_OK) remember_walk(runner);
    if (first)
        lib_log_write(&runner->model->context->log,
                      "dlc_onnx_run: data decide sizes or branches of the model: it is walked, node by node");
    return status;
}

/* Has the model branches or loops (If, Loop), also in its functions? Shapes in them may depend on data, so that a walk can succeed where a
 * program fails. */
static bool has_branches(const dlc_onnx_runner *runner) {
    const onnx_model *model = runner->model->model;
    for (size_t f = 0; f <= model->functions.count; f++) {
        const size_t count = f ? model->functions.data[f - 1].nodes.count : model->graph->nodes.count;
        const onnx_node *nodes = f ? model->functions.data[f - 1].nodes.data : model->graph->nodes.data;
        for (size_t n = 0; n < count; n++)
            if (onnx_is(nodes[n].operator, "If") || onnx_is(nodes[n].operator, "Loop")) return true;
    }
    return false;
}

/* ---- runs -------------------------------------------------------------------------------------------------------------- */

static dlc_status run_import(dlc_onnx_runner *runner, const imported *import, const dlc_run_options *options,
                             const DLTensor *const *inputs, dlc_output_slot *outputs) {
    const DLTensor *given[JIT_ONNX_TENSORS];
    int count = 0;
    if (!import->program) return DLC_OK; /* all outputs are constants */
    for (int i = 0; i < inputs_of(runner); i++)
        if (!import->guard[i].content) given[count++] = inputs[i];
    if (runner->state_count) LIB_TRY(jit_onnx_aim_states(runner, import, inputs, given, count, outputs));
    return dlc_run(import->program, options, given, count, outputs, import->outputs);
}

/* After a run of `import` failed because its graph assumes equal sizes that differ (one may be 1 and broadcast): what another import should
 * fix from the start. AS_KNOWN: no other import helps. */
static beforehand more_than(const dlc_onnx_runner *runner, const imported *import, const DLTensor *const *inputs,
                            beforehand given) {
    bool open = false;
    for (int i = 0; i < inputs_of(runner); i++)
        for (int d = 0; d < inputs[i]->ndim; d++) {
            if (import->guard[i].rank >= 0 && import->guard[i].dim[d] >= 0) continue;
            if (inputs[i]->shape[d] <= 1 && given == AS_KNOWN) return ONES;
            open = true;
        }
    return open && !has_branches(runner) ? ALL_SIZES : AS_KNOWN; /* branches and loops are walked */
}

/* Finds or makes an import and runs it. *taken: the import; NULL: it failed, and *more tells what another one should fix, or there is none,
 * and *walk tells whether a walk may serve. An import that was made with more assumptions (given) and fails is not kept. */
static dlc_status try_import(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                             dlc_output_slot *outputs, beforehand given, imported **taken, beforehand *more,
                             bool *walk) {
    imported *import;
    *taken = NULL, *more = AS_KNOWN;
    LIB_TRY(take_import(runner, inputs, given, &import, walk));
    const dlc_status status = run_import(runner, import, options, inputs, outputs);
    if (status == DLC_INVALID_ARGUMENT) *more = more_than(runner, import, inputs, given);
    if (status == DLC_OK)
        *taken = import;
    else
        leave_import(runner, import, given != AS_KNOWN);
    return status;
}

/* After a walk has served these tensors: marks the imports whose guards they pass as failed. */
static void give_up_imports(dlc_onnx_runner *runner, const DLTensor *const *inputs) {
    lib_mutex_lock(&runner->mutex);
    for (imported *import = runner->imports; import; import = import->next)
        import->failed = import->failed || serves(runner, import, inputs);
    lib_mutex_unlock(&runner->mutex);
}

/* Walks after imports failed for these tensors with `status`; if the walk fails, too, the imports' error is reported. */
static dlc_status run_walk_after(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                                 dlc_output_slot *outputs, onnx_results *results, dlc_status status) {
    lib_error error;
    lib_fail(&error, status, "%s", dlc_error_message(runner->model->context));
    if (run_walk(runner, options, inputs, outputs, results) != DLC_OK) return jit_fail(runner->model->context, &error);
    give_up_imports(runner, inputs);
    return DLC_OK;
}

dlc_status jit_onnx_run_taking(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                               dlc_output_slot *outputs, onnx_results *results, imported **taken) {
    beforehand more;
    bool walk;
    dlc_status status = try_import(runner, options, inputs, outputs, AS_KNOWN, taken, &more, &walk);
    if (walk) return run_walk(runner, options, inputs, outputs, results);
    while (more != AS_KNOWN) status = try_import(runner, options, inputs, outputs, more, taken, &more, &walk);
    if (!walk && (status != DLC_INVALID_ARGUMENT || !has_branches(runner))) return status;
    return run_walk_after(runner, options, inputs, outputs, results, status);
}

static dlc_status run_stateless(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                                dlc_output_slot *outputs) {
    imported *import;
    const dlc_status status = jit_onnx_run_taking(runner, options, inputs, outputs, NULL, &import);
    if (import) jit_onnx_leave_import(runner, import);
    return status;
}

static dlc_status run_with_states(dlc_onnx_runner *runner, const dlc_run_options *options,
                                  const DLTensor *const *inputs, dlc_output_slot *outputs) {
    const DLTensor *given[JIT_ONNX_PORTS];
    dlc_output_slot slots[JIT_ONNX_PORTS];
    LIB_TRY(jit_onnx_check_outputs(runner, inputs, outputs));
    LIB_TRY(jit_onnx_add_states(runner, inputs, given));
    for (int o = 0; o < outputs_of(runner); o++)
        slots[o] = (dlc_output_slot){runner->state_out[o] ? NULL : outputs[o].tensor, NULL};
    dlc_status status = run_stateless(runner, options, given, slots);
    if (status == DLC_OK) status = jit_onnx_commit_states(runner, slots, outputs);
    if (status != DLC_OK) jit_onnx_drop_results(runner, slots, outputs);
    return status;
}

/* Checks the inputs' tensors; NULL is allowed for a state. */
static dlc_status check_inputs(const dlc_onnx_runner *runner, const DLTensor *const *inputs) {
    for (int i = 0; i < inputs_of(runner); i++) {
        char text[JIT_ONNX_FAULT];
        if (!inputs[i] && runner->state_in[i]) continue;
        const char *fault = jit_onnx_tensor_fault(inputs[i], text);
        if (fault) return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT, "input %s %s", runner->input[i].name, fault);
    }
    return DLC_OK;
}

/* Fails unless all inputs and outputs are tensors. */
static dlc_status check_ports(const dlc_onnx_runner *runner) {
    const jit_onnx_port *port = jit_onnx_structured_port(runner->model);
    if (!port) return DLC_OK;
    return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT, "%s is %s, which only dlc_onnx_run_values takes and gives",
                             port->name, port->type_text);
}

dlc_status dlc_onnx_run(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                        int input_count, dlc_output_slot *outputs, int output_count) {
    jit_not_begun(options);
    if (!runner) return jit_onnx_fail(NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_run", "runner is NULL");
    GRAPH_CALL(runner->model->context, LIB_STACK_CALL);
    LIB_TRY(jit_onnx_check_lists(runner, "dlc_onnx_run", inputs, input_count, outputs, output_count));
    LIB_TRY(check_ports(runner));
    LIB_TRY(check_inputs(runner, inputs));
    if (options && options->event && runner->state_count)
        return jit_onnx_run_fail(runner, DLC_UNSUPPORTED, "a runner with states waits for its runs: no event");
    if (!runner->state_count) return run_stateless(runner, options, inputs, outputs);
    lib_mutex_lock(&runner->state_mutex);
    const dlc_status status = run_with_states(runner, options, inputs, outputs);
    lib_mutex_unlock(&runner->state_mutex);
    return status;
}

/* The error of dlc_onnx_runner_program if a node refuses the import, with the reason. */
static dlc_status refuse_program(const dlc_onnx_runner *runner) {
    lib_error error;
    lib_fail(&error, DLC_UNSUPPORTED, "dlc_onnx_runner_program: no one program serves these inputs: %s",
             dlc_error_message(runner->model->context));
    return jit_fail(runner->model->context, &error);
}

dlc_status dlc_onnx_runner_program(dlc_onnx_runner *runner, const DLTensor *const *inputs, int input_count,
                                   dlc_program **program) {
    const DLTensor *given[JIT_ONNX_PORTS];
    imported *found = NULL;
    bool walk = false;
    if (program) *program = NULL;
    if (!runner || !program)
        return jit_onnx_fail(runner ? runner->model->context : NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_program",
                             "runner or the place for the program is NULL");
    if (input_count != inputs_of(runner) || (input_count && !inputs))
        return jit_onnx_fail(runner->model->context, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_program",
                             "the inputs are not as many as the model's");
    GRAPH_CALL(runner->model->context, LIB_STACK_CALL);
    LIB_TRY(check_ports(runner));
    LIB_TRY(check_inputs(runner, inputs));
    lib_mutex_lock(&runner->state_mutex);
    dlc_status status = jit_onnx_add_states(runner, inputs, given);
    if (status == DLC_OK) {
        lib_mutex_lock(&runner->mutex);
        status = find_import(runner, given, AS_KNOWN, &found, &walk);
        lib_mutex_unlock(&runner->mutex);
    }
    lib_mutex_unlock(&runner->state_mutex);
    if (status == DLC_OK) *program = found->program;
    return status != DLC_OK && walk ? refuse_program(runner) : status;
}

void dlc_onnx_runner_reset(dlc_onnx_runner *runner) {
    if (!runner) return;
    GRAPH_CALL_OR(runner->model->context, 0, );
    lib_mutex_lock(&runner->state_mutex);
    jit_onnx_release_states(runner);
    lib_mutex_unlock(&runner->state_mutex);
}

/* ---- runners ------------------------------------------------------------------------------------------------------------- */

static void copy_options(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options) {
    dlc_dim *dims = LIB_NEW_ARRAY(&runner->arena, dlc_dim, (size_t)options->dim_count + 1);
    for (int i = 0; i < options->dim_count; i++) {
        if (!options->dims[i].name || options->dims[i].value < 0)
            lib_raise(runner->arena.scope, DLC_INVALID_ARGUMENT,
                      "dlc_onnx_runner_create: options.dims has a dimension without a name, or below 0");
        dims[i] = (dlc_dim){options->dims[i].value, lib_arena_string(&runner->arena, options->dims[i].name)};
    }
    runner->import = (onnx_options){.dims = dims, .dim_count = options->dim_count, .newer_opset = options->newer_opset};
    runner->seed = options->seed;
    runner->compile = (dlc_compile_options)DLC_COMPILE_OPTIONS_INIT;
    if (options->compile) runner->compile = *options->compile;
    runner->content = LIB_NEW_ARRAY(&runner->arena, bool, (size_t)inputs_of(runner) + 1);
    jit_onnx_list_states(runner, options);
}

static dlc_status prepare(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options) {
    if (LIB_ENTER(&runner->scope)) copy_options(runner, options);
    return runner->scope.error.status == DLC_OK ? DLC_OK : jit_fail(runner->model->context, &runner->scope.error);
}

void jit_onnx_runner_init(dlc_onnx_runner *runner, dlc_onnx_model *model, const jit_onnx_port *input, int count) {
    runner->model = model;
    runner->input = input, runner->input_count = count;
    lib_arena_init(&runner->arena, &model->context->allocator, &runner->scope);
    lib_mutex_init(&runner->mutex);
    lib_mutex_init(&runner->walk_mutex);
    lib_mutex_init(&runner->state_mutex);
}

void jit_onnx_runner_free(dlc_onnx_runner *runner) {
    const dlc_allocator *allocator = &runner->model->context->allocator;
    for (imported *import = runner->imports, *next; import; import = next) {
        next = import->next;
        free_import(runner, import);
    }
    for (dlc_onnx_runner *lane = runner->lanes, *next; lane; lane = next) {
        next = lane->next;
        jit_onnx_runner_free(lane);
    }
    jit_onnx_walk_free(runner->walk);
    jit_onnx_release_states(runner);
    lib_mutex_destroy(&runner->mutex);
    lib_mutex_destroy(&runner->walk_mutex);
    lib_mutex_destroy(&runner->state_mutex);
    lib_arena_free(&runner->arena);
    lib_release(allocator, runner, sizeof *runner, _Alignof(dlc_onnx_runner));
}

static dlc_status check_runner_options(dlc_context *context, const dlc_onnx_runner_options *options) {
    if (options->struct_size != sizeof *options || options->dim_count < 0 || (options->dim_count && !options->dims) ||
        options->state_count < 0 || (options->state_count && !options->states))
        return jit_onnx_fail(
            context, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_create",
            "options.struct_size is not that of this version (use DLC_ONNX_RUNNER_OPTIONS_INIT), a count is below 0, or "
            "a list is NULL");
    return DLC_OK;
}

dlc_status dlc_onnx_runner_create(dlc_onnx_model *model, const dlc_onnx_runner_options *options,
                                  dlc_onnx_runner **made) {
    static const dlc_onnx_runner_options defaults = DLC_ONNX_RUNNER_OPTIONS_INIT;
    if (made) *made = NULL;
    dlc_context *context = model ? model->context : NULL;
    if (!model || !made)
        return jit_onnx_fail(context, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_create",
                             "model or the place for the runner is NULL");
    if (!options) options = &defaults;
    LIB_TRY(check_runner_options(context, options));
    if (model->port_count[DLC_ONNX_INPUT] > JIT_ONNX_PORTS || model->port_count[DLC_ONNX_OUTPUT] > JIT_ONNX_PORTS)
        return jit_onnx_fail(context, DLC_UNSUPPORTED, "dlc_onnx_runner_create", "more than 256 inputs or outputs");
    GRAPH_CALL(context, LIB_STACK_CALL);
    dlc_onnx_runner *runner = lib_allocate_zeroed(&context->allocator, sizeof *runner, _Alignof(dlc_onnx_runner));
    if (!runner) return jit_onnx_fail(context, DLC_OUT_OF_MEMORY, "dlc_onnx_runner_create", "memory was refused");
    jit_onnx_runner_init(runner, model, model->ports[DLC_ONNX_INPUT], model->port_count[DLC_ONNX_INPUT]);
    const dlc_status status = prepare(runner, options);
    if (status != DLC_OK) {
        jit_onnx_runner_free(runner);
        return status;
    }
    jit_onnx_keep(model);
    *made = runner;
    return DLC_OK;
}

void dlc_onnx_runner_destroy(dlc_onnx_runner *runner) {
    if (!runner) return;
    dlc_onnx_model *model = runner->model;
    dlc_context *context = model->context;
    lib_call call;
    if (!graph_call_to_destroy(context, &call)) return;
    jit_onnx_runner_free(runner);
    jit_onnx_release(model);
    graph_call_destroyed(context, &call);
}

static void describe_guard(lib_text *text, const char *name, const input_guard *guard) {
    bool any = guard->content != NULL;
    for (int d = 0; d < guard->rank; d++) any = any || guard->dim[d] >= 0;
    if (!any && guard->rank < 0) return;
    lib_text_format(text, " %s", name);
    if (guard->content) lib_text_add(text, " by its elements,");
    lib_text_add(text, " [");
    for (int d = 0; d < guard->rank; d++) {
        if (d) lib_text_add(text, ", ");
        if (guard->dim[d] >= 0)
            lib_text_format(text, "%" PRId64, guard->dim[d]);
        else
            lib_text_add(text, "any");
    }
    lib_text_add(text, "];");
}

/* Appends a description of the runner's imports and lanes. Mutexes of the runner and its lanes are held. */
static void describe(const dlc_onnx_runner *runner, lib_text *text) {
    for (const imported *import = runner->imports; import; import = import->next) {
        lib_text_format(text, "%" PRIu64 " runs%s, guards:", import->runs, import->program ? "" : " without kernels");
        const size_t before = text->length;
        if (runner->given) lib_text_add(text, " values by their structure;");
        for (int i = 0; i < inputs_of(runner); i++) describe_guard(text, runner->input[i].name, &import->guard[i]);
        lib_text_add(text, text->length == before ? " none\n" : "\n");
    }
    if (runner->walks)
        lib_text_format(text, "%" PRIu64 " runs: walked, node by node, since data decide sizes or branches\n",
                        runner->walked);
    for (dlc_onnx_runner *lane = runner->lanes; lane; lane = lane->next) describe(lane, text);
}

dlc_status dlc_onnx_runner_describe(dlc_onnx_runner *runner, char **text) {
    if (text) *text = NULL;
    if (!runner || !text)
        return jit_onnx_fail(runner ? runner->model->context : NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_describe",
                             "runner or the place for the text is NULL");
    dlc_context *context = runner->model->context;
    GRAPH_CALL(context, LIB_STACK_CALL);
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &context->allocator, &scope);
    lib_mutex_lock(&runner->mutex);
    for (dlc_onnx_runner *lane = runner->lanes; lane; lane = lane->next) lib_mutex_lock(&lane->mutex);
    if (LIB_ENTER(&scope)) {
        lib_text list;
        lib_text_init(&list, &arena);
        describe(runner, &list);
        *text = graph_text_new(&context->allocator, list.data ? list.data : "", list.length);
        if (!*text) lib_raise(&scope, DLC_OUT_OF_MEMORY, "dlc_onnx_runner_describe: memory was refused");
    }
    for (dlc_onnx_runner *lane = runner->lanes; lane; lane = lane->next) lib_mutex_unlock(&lane->mutex);
    lib_mutex_unlock(&runner->mutex);
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK ? DLC_OK : jit_fail(context, &scope.error);
}

#else

static dlc_status refuse(const char *call) {
    lib_error error;
    lib_fail(&error, DLC_UNSUPPORTED, "%s: this build of libdlc has no ONNX", call);
    return jit_fail(NULL, &error);
}

dlc_status dlc_onnx_runner_create(dlc_onnx_model *model, const dlc_onnx_runner_options *options,
                                  dlc_onnx_runner **runner) {
    (void)model, (void)options;
    if (runner) *runner = NULL;
    return refuse("dlc_onnx_runner_create");
}
void dlc_onnx_runner_destroy(dlc_onnx_runner *runner) {
    (void)runner;
}
dlc_status dlc_onnx_run(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                        int input_count, dlc_output_slot *outputs, int output_count) {
    (void)runner, (void)options, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
    return refuse("dlc_onnx_run");
}
dlc_status dlc_onnx_runner_program(dlc_onnx_runner *runner, const DLTensor *const *inputs, int input_count,
                                   dlc_program **program) {
    (void)runner, (void)inputs, (void)input_count;
    if (program) *program = NULL;
    return refuse("dlc_onnx_runner_program");
}
void dlc_onnx_runner_reset(dlc_onnx_runner *runner) {
    (void)runner;
}
dlc_status dlc_onnx_runner_describe(dlc_onnx_runner *runner, char **text) {
    (void)runner;
    if (text) *text = NULL;
    return refuse("dlc_onnx_runner_describe");
}
#endif
