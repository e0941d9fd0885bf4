/* Running a plan: fills in the run's pointers, then executes the steps. No allocation, lock or decision. */
#include "jit/internal.h"

typedef struct running {
    dlc_program *program;
    jit_plan *plan;
    jit_frame *frame;
    char *const *inputs;
    char *const *outputs;
    const jit_step *step;
    jit_how *how;
    lib_error *error;
} running;

/* ---- what ends a run ------------------------------------------------------------------------------------------------- */

jit_how jit_how_by(dlc_context *context, const char *caller, const dlc_run_options *options) {
    jit_how how = {.caller = caller,
                   .event = options->event,
                   .stream = options->stream,
                   .cancel = options->cancel,
                   .stop_at = options->stop_at,
                   .budget_ms = options->budget_ms,
                   .begun = options->begun,
                   .context = context};
    if (how.budget_ms > 0) {
        const uint64_t now = context->clock_ns(context->clock_user), budget = (uint64_t)how.budget_ms;
        how.deadline_ns = budget < (UINT64_MAX - now) / 1000000 ? now + budget * 1000000 : UINT64_MAX;
    }
    return how;
}

bool jit_is_over(jit_how *how) {
    if (__atomic_load_n(&how->over, __ATOMIC_RELAXED)) return true;
    int status = DLC_OK;
    if (how->limits) {
        jit_limits_poll(how->limits);
        if (lib_is_raised(jit_limits_flag(how->limits))) status = DLC_CANCELLED;
    } else if (lib_is_raised(how->cancel)) {
        status = DLC_CANCELLED;
    } else if (how->deadline_ns && how->context->clock_ns(how->context->clock_user) >= how->deadline_ns) {
        status = DLC_BUDGET_EXCEEDED;
    }
    if (status != DLC_OK) __atomic_store_n(&how->over, status, __ATOMIC_RELAXED);
    return status != DLC_OK;
}

dlc_status jit_how_it_ended(const jit_how *how, lib_error *error) {
    if (how->over == DLC_BUDGET_EXCEEDED)
        return lib_fail(error, DLC_BUDGET_EXCEEDED, "the run took longer than its budget_ms = %lld",
                        (long long)how->budget_ms);
    return lib_fail(error, DLC_CANCELLED, "the run was cancelled");
}

static int ask(const target_arguments *arguments) {
    return jit_is_over(arguments->run);
}

void jit_arguments_watch(target_arguments *arguments, jit_how *how) {
    static const int always = 1; /* a flag that is always set, so that the check function is called */
    arguments->cancel = !how ? NULL : how->deadline_ns || how->limits ? &always : how->cancel;
    arguments->is_over = ask;
    arguments->run = how;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------------- */

/* The pool polls this flag; the participant that finds a limit reached sets it. */
static const volatile int *flag_of(const running *run) {
    return run->how ? &run->how->over : NULL;
}

static unsigned watched_for(const running *run) {
    return run->how ? run->how->stop_at : 0;
}

static void run_tasks(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    const running *run = user;
    const dlc_context *context = run->plan->context;
    const jit_phase *what = &run->step->target[phase];
    if (run->how && jit_is_over(run->how)) return;
    const uint64_t start = context->trace ? context->clock_ns(context->clock_user) : 0;
    what->function.run(&run->frame->arguments[what->call], what->iteration, begin, end, slot, what->function.closure);
    if (!context->trace) return;
    const jit_call *call = &run->plan->calls[what->call];
    context->trace(context->trace_user, "run", call->name, call->origins, start,
                   context->clock_ns(context->clock_user));
}

static const lib_phase *phases_of(const running *run) {
    return run->frame->turned ? run->step->turned : run->step->phase;
}

/* The call's samples, which its first profiled run allocates. NULL: memory is refused. */
static jit_samples *samples_of(dlc_context *context, jit_call *call) {
    jit_samples *samples = atomic_load(&call->samples), *none = NULL;
    if (samples) return samples;
    samples = lib_allocate_zeroed(&context->allocator, sizeof *samples, 64);
    if (!samples) return NULL;
    atomic_store(&samples->least, UINT64_MAX);
    if (atomic_compare_exchange_strong(&call->samples, &none, samples)) return samples;
    lib_release(&context->allocator, samples, sizeof *samples, 64);
    return none;
}

void jit_count_time(dlc_context *context, jit_call *call, uint64_t elapsed) {
    jit_samples *samples = samples_of(context, call);
    atomic_fetch_add_explicit(&context->run_ns, elapsed, memory_order_relaxed);
    if (!samples) return;
    uint64_t least = atomic_load(&samples->least);
    while (elapsed < least && !atomic_compare_exchange_weak(&samples->least, &least, elapsed)) continue;
    atomic_store(&samples->ns[atomic_load(&samples->taken) % JIT_SAMPLES], elapsed);
    atomic_fetch_add(&samples->taken, 1);
    atomic_fetch_add_explicit(&call->profile_ns, elapsed, memory_order_relaxed);
    atomic_fetch_add_explicit(&call->profile_runs, 1, memory_order_relaxed);
}

/* Runs each kernel separately, to time it for a profile or to check its results for stop_at. False: cancelled. */
static bool run_singly(running *run, bool profile) {
    dlc_context *context = run->plan->context;
    const jit_step *step = run->step;
    const unsigned stop_at = watched_for(run);
    bool all = true;
    for (int64_t first = 0, last; first < step->phases && all; first = last) {
        for (last = first + 1; last < step->phases && step->target[last].call == step->target[first].call;) last++;
        jit_step part = *step;
        part.phase = phases_of(run) + first;
        part.target += first;
        running one = *run;
        one.step = &part;
        uint64_t start = profile ? context->clock_ns(context->clock_user) : 0;
        all = lib_run_phases(context->pool, context->parallel_for, context->parallel_user, context->width, last - first,
                             part.phase, run_tasks, &one, flag_of(run));
        jit_call *call = &run->plan->calls[step->target[first].call];
        if (profile) jit_count_time(context, call, context->clock_ns(context->clock_user) - start);
        if (all && stop_at && run->error->status == DLC_OK &&
            jit_watch_call(call, run->frame, stop_at, run->error) != DLC_OK)
            return true; /* the error ends the run */
    }
    return all;
}

bool jit_run_alone(const dlc_context *context, const jit_step *step, const jit_frame *frame, jit_how *how) {
    lib_fp_state state = {0};
    bool all = true;
    if (!context->default_float_modes) state = lib_fp_enter_vectors();
    for (int64_t p = 0; p < step->phases && all; p++) {
        const jit_phase *what = &step->target[p];
        all = !how || !jit_is_over(how);
        if (all)
            what->function.run(&frame->arguments[what->call], what->iteration, 0, step->phase[p].tasks, 0,
                               what->function.closure);
    }
    if (!context->default_float_modes) lib_fp_restore_vectors(state);
    return all;
}

/* false: cancelled, some tasks did not run. */
static bool run_kernels(running *run) {
    dlc_context *context = run->plan->context;
    const bool profile = atomic_load_explicit(&run->program->profile, memory_order_relaxed);
    if (profile || watched_for(run)) return run_singly(run, profile);
    if (run->step->alone && !context->trace && phases_of(run) == run->step->phase)
        return jit_run_alone(context, run->step, run->frame, run->how);
    return lib_run_phases(context->pool, context->parallel_for, context->parallel_user, context->width,
                          run->step->phases, phases_of(run), run_tasks, run, flag_of(run));
}

static void run_copy(running *run) {
    const jit_tensor *from = run->step->inputs;
    const char *source = jit_place_pointer(&from->place, run->frame, run->inputs, run->outputs);
    char *to = jit_place_pointer(&run->step->outputs->place, run->frame, run->inputs, run->outputs);
    if (source == to) return; /* a donated input that is an output unchanged */
    enum { PART = 8 << 20 };  /* bytes between two cancellation checks */
    for (size_t at = 0; at < from->bytes && !(run->how && jit_is_over(run->how)); at += PART)
        memcpy(to + at, source + at, from->bytes - at < PART ? from->bytes - at : PART);
    atomic_fetch_add_explicit(&run->plan->context->copied_bytes, from->bytes, memory_order_relaxed);
}

/* Checks the results of host functions. */
static dlc_status watch_results(const running *run) {
    const jit_step *step = run->step;
    for (int o = 0; o < step->output_count; o++) {
        const jit_tensor *tensor = &step->outputs[o];
        const char *data = jit_place_pointer(&tensor->place, run->frame, run->inputs, run->outputs);
        LIB_TRY(jit_watch_tensor(tensor, data, step->custom.name, watched_for(run), run->error));
    }
    return DLC_OK;
}

static dlc_status run_steps(running *run) {
    jit_plan *plan = run->plan;
    for (int s = 0; s < plan->step_count; s++) {
        run->step = &plan->steps[s];
        dlc_status status = DLC_OK;
        bool all = true;
        switch (run->step->kind) {
        case JIT_STEP_KERNELS: all = run_kernels(run); break;
        case JIT_STEP_COPY: run_copy(run); break;
        case JIT_STEP_HOST: break; /* only on devices */
        case JIT_STEP_CUSTOM:
        case JIT_STEP_IF:
        case JIT_STEP_LOOP:
            status =
                jit_run_control(run->program, run->step, run->frame, run->inputs, run->outputs, run->how, run->error);
            if (status == DLC_OK && run->step->kind == JIT_STEP_CUSTOM && watched_for(run)) status = watch_results(run);
            break;
        }
        if (status != DLC_OK) return status;
        /* The interpreter reports errors in run->error; if a limit ended the run, the limit's message is more specific. */
        if (run->error->status != DLC_OK && !(run->how && run->how->over)) return run->error->status;
        if (run->how && (!all || jit_is_over(run->how))) return jit_how_it_ended(run->how, run->error);
    }
    /* The body of a loop may have no steps. */
    if (!plan->step_count && run->how && jit_is_over(run->how)) return jit_how_it_ended(run->how, run->error);
    return DLC_OK;
}

void jit_frame_aim(const jit_plan *plan, jit_frame *frame, char *const *inputs, char *const *outputs) {
    for (int i = 0; i < plan->run_slot_count; i++) {
        const jit_run_slot *own = &plan->run_slots[i];
        frame->pointers[own->slot] = (own->number >= 0 ? inputs[own->number] : outputs[-1 - own->number]) + own->offset;
    }
}

/* Sets where the interpreter reports errors and what kernels poll, for this run only. */
static void aim_calls(const jit_plan *plan, jit_frame *frame, jit_how *how, lib_error *error) {
    for (int c = 0; c < plan->call_count; c++) {
        frame->arguments[c].error = error;
        if (how || frame->arguments[c].cancel) jit_arguments_watch(&frame->arguments[c], how);
    }
}

dlc_status jit_plan_run_in(dlc_program *program, jit_plan *plan, jit_frame *frame, char *const *inputs,
                           char *const *outputs, jit_how *how, lib_error *error) {
    error->status = DLC_OK;
    aim_calls(plan, frame, how, error);
    running run = {program, plan, frame, inputs, outputs, NULL, how, error};
    dlc_status status = DLC_OK;
    if (how && how->stop_at && plan->shapes) status = jit_watch_inputs(program, plan, inputs, how->stop_at, error);
    if (how && how->begun && status == DLC_OK && !jit_is_over(how)) *how->begun = true;
    if (status == DLC_OK) status = run_steps(&run);
    if (how) aim_calls(plan, frame, NULL, error); /* reset, since the kept frame is used again */
    return status;
}

dlc_status jit_plan_run(dlc_program *program, jit_plan *plan, char *const *inputs, char *const *outputs, jit_how *how,
                        lib_error *error) {
    jit_frame *frame = jit_frame_take(plan);
    if (!frame)
        return lib_fail(error, DLC_OUT_OF_MEMORY, "the arena of %lld bytes for one run was refused",
                        (long long)plan->arena_bytes);
    jit_frame_aim(plan, frame, inputs, outputs);
    dlc_status status;
    if (how) jit_frame_touch(plan, frame, how);
    const bool quick = plan->alone && !how && !plan->context->trace;
    if (quick && !atomic_load_explicit(&program->profile, memory_order_relaxed)) {
        error->status = DLC_OK;
        aim_calls(plan, frame, NULL, error);
        jit_run_alone(plan->context, plan->alone, frame, NULL);
        status = error->status;
    } else {
        status = jit_plan_run_in(program, plan, frame, inputs, outputs, how, error);
    }
    jit_frame_give(plan, frame);
    return status;
}
