/* Kept calls: tensors are checked and the plan is looked up once, and the call has a frame of its own, so that a run costs little
 * more than its kernels. Runs that need more (strided tensors, large arenas, cancellation, profiles) use the path of dlc_run. */
#include "jit/internal.h"

struct dlc_call {
    /* The only phase of the only step, if a run only has to call it; run NULL: a run needs more. */
    target_phase only;
    const target_arguments *arguments;
    int64_t iteration, tasks;
    /* the program's flag */
    const atomic_int *profile;
    /* copy of the context's */
    size_t unknown_stack;
    _Atomic uint64_t runs;
    /* program->calls, guarded by the context's mutex */
    dlc_call *next, *previous;
    /* its arrays are owned by the call */
    jit_boundary boundary;
    /* retained */
    jit_plan *plan;
    /* NULL: some tensor needs a copy, or the arena is shared */
    jit_frame *frame;
    /* the only step, of kernels run by the calling thread; NULL: a run needs more */
    const jit_step *alone;
    /* empty between runs */
    lib_error error;
    lib_arena arena;
    lib_scope scope;
};

/* ---- creation */

static void copy_tensor(lib_arena *arena, DLTensor *to, const DLTensor *from) {
    *to = *from;
    if (!from->ndim) return;
    size_t rank = (size_t)from->ndim, bytes = rank * sizeof(int64_t);
    to->shape = memcpy(LIB_NEW_ARRAY(arena, int64_t, rank), from->shape, bytes);
    if (from->strides) to->strides = memcpy(LIB_NEW_ARRAY(arena, int64_t, rank), from->strides, bytes);
}

/* A boundary that refers to the host's tensors, for checks; their descriptions are copied after the checks succeed. */
static void make_boundary(dlc_call *call, dlc_program *program, const DLTensor *const *inputs, int input_count,
                          DLTensor *const *outputs, int output_count) {
    lib_arena *arena = &call->arena;
    size_t tensors = (size_t)(program->ordinary_inputs + program->output_count);
    jit_boundary *c = &call->boundary;
    *c = (jit_boundary){.caller = "dlc_call_create",
                        .program = program,
                        .inputs = inputs,
                        .input_count = input_count,
                        .output_count = output_count,
                        .input_data = LIB_NEW_ARRAY(arena, char *, tensors + 1),
                        .extents = LIB_NEW_ARRAY(arena, jit_extent, tensors + 1),
                        .direct = LIB_NEW_ARRAY(arena, bool, tensors + 1),
                        .shapes = LIB_NEW_ARRAY(arena, int64_t, program->dimensions + 1)};
    c->output_data = c->input_data + program->ordinary_inputs;
    if (output_count != program->output_count || !outputs) return; /* jit_check_inputs reports the error */
    c->outputs = LIB_NEW_ARRAY(arena, dlc_output_slot, tensors + 1);
    for (int o = 0; o < output_count; o++) c->outputs[o].tensor = outputs[o];
}

static void copy_tensors(dlc_call *call) {
    jit_boundary *c = &call->boundary;
    size_t count = (size_t)(c->input_count + c->output_count);
    DLTensor *tensors = LIB_NEW_ARRAY(&call->arena, DLTensor, count + 1);
    const DLTensor **inputs = LIB_NEW_ARRAY(&call->arena, const DLTensor *, count + 1);
    for (int i = 0; i < c->input_count; i++) {
        copy_tensor(&call->arena, &tensors[i], c->inputs[i]);
        inputs[i] = &tensors[i];
    }
    c->inputs = inputs;
    for (int o = 0; o < c->output_count; o++) {
        DLTensor *tensor = &tensors[c->input_count + o];
        copy_tensor(&call->arena, tensor, c->outputs[o].tensor);
        c->outputs[o].tensor = tensor;
        c->output_data[o] = lib_tensor_data(tensor);
    }
}

/* Can kernels use every tensor without a copy? */
static bool is_direct(const dlc_call *call) {
    const jit_boundary *c = &call->boundary;
    if (c->program->growth_count) return false;
    for (int t = 0; t < c->input_count + c->output_count; t++)
        if (!c->direct[t]) return false;
    for (int o = 0; o < c->output_count; o++) {
        bool shared = jit_is_shared(c, o);
        if (shared ? !call->plan->donations[o].may : call->plan->donations[o].must) return false;
    }
    return true;
}

static void choose_way(dlc_call *call) {
    const jit_boundary *c = &call->boundary;
    const jit_plan *plan = call->plan;
    call->alone = NULL;
    call->only.run = NULL;
    if (!call->frame || !is_direct(call)) return;
    jit_frame_aim(plan, call->frame, c->input_data, c->output_data);
    const jit_step *step = plan->alone;
    if (!step || plan->context->trace) return;
    call->alone = step;
    if (step->phases != 1 || !plan->context->default_float_modes) return;
    call->only = step->target->function;
    call->arguments = &call->frame->arguments[step->target->call];
    call->iteration = step->target->iteration;
    call->tasks = step->phase->tasks;
}

static dlc_status enter_plan(dlc_call *call, lib_error *error) {
    jit_boundary *c = &call->boundary;
    unsigned side;
    LIB_TRY(jit_check_inputs(c, error));
    for (int o = 0; o < c->output_count; o++)
        if (!c->outputs[o].tensor)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: output %s is NULL, expected the host's tensor", c->caller,
                            c->program->outputs[o].name);
    LIB_TRY(jit_plans_enter(c->program, c->shapes, c->shape_count, JIT_TO_BIND, &call->plan, &side, error));
    jit_plans_hold(c->program, call->plan);
    jit_plans_leave(c->program, side);
    for (int o = 0; o < c->output_count; o++)
        LIB_TRY(jit_check_output(c, o, &call->plan->output_shapes[o * DLC_MAX_RANK], error));
    return DLC_OK;
}

static void make(dlc_call *call) {
    if (enter_plan(call, &call->error) != DLC_OK) lib_raise_error(&call->scope, &call->error);
    copy_tensors(call);
    if (!call->plan->shares_arena) {
        call->frame = jit_frame_new(call->plan);
        if (!call->frame) lib_raise(&call->scope, DLC_OUT_OF_MEMORY, "dlc_call_create: out of memory: a frame");
        for (int k = 0; k < call->plan->call_count; k++) call->frame->arguments[k].error = &call->error;
    }
    choose_way(call);
}

uint64_t jit_call_runs(const dlc_program *program) {
    uint64_t runs = 0;
    for (dlc_call *call = program->calls; call; call = call->next)
        runs += atomic_load_explicit(&call->runs, memory_order_relaxed);
    return runs;
}

static void list(dlc_call *call) {
    dlc_program *program = call->boundary.program;
    lib_mutex_lock(&program->context->mutex);
    call->next = program->calls;
    if (call->next) call->next->previous = call;
    program->calls = call;
    lib_mutex_unlock(&program->context->mutex);
}

static void unlist(dlc_call *call) {
    dlc_program *program = call->boundary.program;
    lib_mutex_lock(&program->context->mutex);
    if (call->previous)
        call->previous->next = call->next;
    else if (program->calls == call)
        program->calls = call->next;
    if (call->next) call->next->previous = call->previous;
    program->context->runs += atomic_load_explicit(&call->runs, memory_order_relaxed);
    lib_mutex_unlock(&program->context->mutex);
}

void dlc_call_destroy(dlc_call *call) {
    if (!call) return;
    dlc_program *program = call->boundary.program;
    dlc_context *context = program->context;
    lib_call public_call;
    if (!graph_call_to_destroy(context, &public_call)) return;
    unlist(call);
    if (call->plan) {
        jit_frame_free(call->plan, call->frame);
        jit_plans_let_go(program, call->plan);
    }
    lib_arena_free(&call->arena);
    lib_release(&context->allocator, call, sizeof *call, 64);
    jit_program_release(program);
    graph_call_destroyed(context, &public_call);
}

dlc_status dlc_call_create(dlc_program *program, const DLTensor *const *inputs, int input_count,
                           DLTensor *const *outputs, int output_count, dlc_call **out) {
    lib_error error;
    if (out) *out = NULL;
    if (!program || !out) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_call_create: program and call must not be NULL");
        return jit_fail(program ? program->context : NULL, &error);
    }
    if (program->segment_count) {
        lib_fail(&error, DLC_UNSUPPORTED,
                 "dlc_call_create: shapes of the program depend on data: only dlc_run makes room for its results");
        return jit_fail(program->context, &error);
    }
    GRAPH_CALL(program->context, LIB_STACK_CALL);
    dlc_call *call = lib_allocate_zeroed(&program->context->allocator, sizeof *call, 64);
    if (!call) {
        lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_call_create: out of memory: a call");
        return jit_fail(program->context, &error);
    }
    lib_arena_init(&call->arena, &program->context->allocator, &call->scope);
    call->boundary.program = program;
    jit_program_keep(program);
    call->profile = &program->profile;
    call->unknown_stack = program->context->unknown_stack;
    list(call);
    volatile bool made = false; /* modified between setjmp and a raise */
    if (LIB_ENTER(&call->scope)) {
        make_boundary(call, program, inputs, input_count, outputs, output_count);
        make(call);
        made = true;
    }
    if (made) {
        *out = call;
        return DLC_OK;
    }
    error = call->scope.error;
    dlc_call_destroy(call);
    return jit_fail(program->context, &error);
}

/* Records call->error for the host and clears it. */
static __attribute__((cold)) dlc_status fail(dlc_call *call) {
    dlc_status status = jit_fail(call->boundary.program->context, &call->error);
    call->error.status = DLC_OK;
    return status;
}

/* ---- other data */

static dlc_status set_data(dlc_call *call, int slot, void *data) {
    jit_boundary *c = &call->boundary;
    bool input = slot < c->input_count;
    DLTensor *tensor = input ? (DLTensor *)(uintptr_t)c->inputs[slot] : c->outputs[slot - c->input_count].tensor;
    const DLTensor before = *tensor;
    const jit_extent extent = c->extents[slot];
    const bool direct = c->direct[slot];
    char **pointer = &c->input_data[slot]; /* the outputs' pointers follow the inputs' */
    tensor->data = data;
    tensor->byte_offset = 0;
    *pointer = data;
    dlc_status status = jit_check_tensor(c, slot, tensor, &call->error);
    for (int o = 0; o < c->output_count && status == DLC_OK; o++) status = jit_check_overlap(c, o, &call->error);
    if (status == DLC_OK) {
        choose_way(call);
        return DLC_OK;
    }
    *tensor = before;
    *pointer = lib_tensor_data(&before);
    c->extents[slot] = extent;
    c->direct[slot] = direct;
    return fail(call);
}

static dlc_status set_checked(dlc_call *call, const char *caller, int number, int count, int first, void *data) {
    lib_error error;
    if (!call || number < 0 || number >= count) {
        lib_fail(&error, DLC_INVALID_ARGUMENT,
                 call ? "%s: number %d does not exist, there are %d" : "%s: the call is NULL", caller, number, count);
        return jit_fail(call ? call->boundary.program->context : NULL, &error);
    }
    call->boundary.caller = caller;
    return set_data(call, first + number, data);
}

dlc_status dlc_call_set_input(dlc_call *call, int input, const void *data) {
    return set_checked(call, "dlc_call_set_input", input, call ? call->boundary.input_count : 0, 0,
                       (void *)(uintptr_t)data);
}

dlc_status dlc_call_set_output(dlc_call *call, int output, void *data) {
    return set_checked(call, "dlc_call_set_output", output, call ? call->boundary.output_count : 0,
                       call ? call->boundary.input_count : 0, data);
}

/* ---- running */

static void count_run(dlc_call *call) { /* only the thread that runs the call writes the counter */
    uint64_t runs = atomic_load_explicit(&call->runs, memory_order_relaxed);
    atomic_store_explicit(&call->runs, runs + 1, memory_order_relaxed);
}

static dlc_status run_any(dlc_call *call, const dlc_run_options *options) {
    lib_error error;
    jit_not_begun(options);
    if (!call || (options && options->struct_size != sizeof *options)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_call_run: %s",
                 call ? "options.struct_size is wrong (use DLC_RUN_OPTIONS_INIT)" : "the call is NULL");
        return jit_fail(call ? call->boundary.program->context : NULL, &error);
    }
    const jit_boundary *c = &call->boundary;
    dlc_context *context = c->program->context;
    if (jit_check_run_options(context, "dlc_call_run", options, &call->error) != DLC_OK) return fail(call);
    jit_how how = jit_how_of(context, "dlc_call_run", options);
    if (!call->frame || !is_direct(call)) {
        const dlc_status status =
            jit_run(c->program, &how, c->inputs, c->input_count, c->outputs, c->output_count, &call->error);
        return status == DLC_OK ? DLC_OK : fail(call);
    }
    dlc_event *event;
    if (jit_event_new(c->program, &how, &event, &call->error) != DLC_OK) return fail(call);
    count_run(call);
    const bool plain = jit_is_plain(&how);
    const target_phase only = call->only;
    const jit_step *alone = call->alone;
    if (!plain) { /* disable the fast paths meanwhile: a child forked now would check this run's cancellation flag in them */
        call->only.run = NULL;
        call->alone = NULL;
    }
    dlc_status status = jit_plan_run_in(c->program, call->plan, call->frame, c->input_data, c->output_data,
                                        plain ? NULL : &how, &call->error);
    call->only = only;
    call->alone = alone;
    jit_event_give(event, &how, status);
    return status == DLC_OK ? DLC_OK : fail(call);
}

static dlc_status finish(dlc_call *call) { /* the interpreter reports errors in call->error */
    return call->error.status == DLC_OK ? DLC_OK : fail(call);
}

static __attribute__((cold)) dlc_status run_more(dlc_call *call, const dlc_run_options *options) {
    if (call && jit_check_stack(call->boundary.program->context, &call->error) != DLC_OK) return fail(call);
    if (!call || !call->alone || options || atomic_load_explicit(call->profile, memory_order_relaxed))
        return run_any(call, options);
    jit_run_alone(call->plan->context, call->alone, call->frame, NULL);
    count_run(call);
    return finish(call);
}

dlc_status dlc_call_run(dlc_call *call, const dlc_run_options *options) {
    if (!call || !call->only.run || options || atomic_load_explicit(call->profile, memory_order_relaxed) ||
        !lib_stack_has(LIB_STACK_CALL, call->unknown_stack))
        return run_more(call, options);
    call->only.run(call->arguments, call->iteration, 0, call->tasks, 0, call->only.closure);
    count_run(call);
    return finish(call);
}
