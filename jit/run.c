/* Running a plan: fill the pointers that belong to this run, then walk the steps. Nothing here allocates, locks or decides, except
 * that a run which finds no free frame makes one. */
#include "jit/jit.h"

enum { HUGE_PAGE = 2 << 20 };

/* ---- frames */

static void *place_pointer(const jit_place *place, char *memory, char *const *inputs, char *const *outputs) {
    switch (place->kind) {
    case JIT_PLACE_INPUT: return inputs[place->number];
    case JIT_PLACE_OUTPUT: return outputs[place->number];
    case JIT_PLACE_ARENA: return memory + place->offset;
    case JIT_PLACE_CONSTANT: return place->pointer;
    case JIT_PLACE_NONE: break;
    }
    return NULL;
}

static size_t add_part(size_t *total, size_t size) {
    size_t at = *total;
    *total += (size + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
    return at;
}

static jit_frame *frame_new(const jit_plan *plan) {
    size_t limit = (size_t)plan->control_limit;
    size_t total = 0, memory = add_part(&total, (size_t)plan->arena_bytes), self = add_part(&total, sizeof(jit_frame));
    size_t pointers = add_part(&total, (size_t)plan->slot_count * sizeof(void *));
    size_t arguments = add_part(&total, (size_t)plan->call_count * sizeof(target_arguments));
    size_t tensors = add_part(&total, limit * sizeof(DLTensor)),
           operands = add_part(&total, (limit + 1) * sizeof(char *));
    size_t alignment = total >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : TIR_BUFFER_ALIGNMENT;
    char *block = lib_allocate(&plan->context->allocator, total, alignment);
    if (!block) return NULL;
    lib_advise_huge_pages(block, alignment == HUGE_PAGE ? total : 0);
    jit_frame *frame = (jit_frame *)(void *)(block + self);
    *frame = (jit_frame){.memory = block + memory,
                         .pointers = (void **)(void *)(block + pointers),
                         .arguments = (target_arguments *)(void *)(block + arguments),
                         .tensors = (DLTensor *)(void *)(block + tensors),
                         .operands = (char **)(void *)(block + operands),
                         .total = total,
                         .alignment = alignment,
                         .slot = -1};
    for (int s = 0; s < plan->slot_count; s++) {
        bool fixed = plan->slots[s].kind == JIT_PLACE_ARENA || plan->slots[s].kind == JIT_PLACE_CONSTANT;
        frame->pointers[s] = fixed ? place_pointer(&plan->slots[s], frame->memory, NULL, NULL) : NULL;
    }
    for (int c = 0; c < plan->call_count; c++) {
        const jit_call *call = &plan->calls[c];
        frame->arguments[c] =
            (target_arguments){.buffers = frame->pointers + call->first_slot,
                               .params = call->params,
                               .workspace = call->workspace >= 0 ? frame->memory + call->workspace : NULL,
                               .local = call->local >= 0 ? frame->memory + call->local : NULL,
                               .local_stride = call->local_stride};
    }
    atomic_fetch_add_explicit(&plan->context->arena_bytes, total, memory_order_relaxed);
    return frame;
}

void jit_frame_free(const jit_plan *plan, jit_frame *frame) {
    if (!frame) return;
    size_t total = frame->total, alignment = frame->alignment;
    atomic_fetch_sub_explicit(&plan->context->arena_bytes, total, memory_order_relaxed);
    lib_release(&plan->context->allocator, frame->memory, total, alignment);
}

/* A frame stays in its slot; to have set the slot's busy flag is to own it. */
static jit_frame *take_frame(jit_plan *plan) {
    for (int i = 0; i < JIT_FRAMES_KEPT; i++) {
        jit_frame_slot *slot = &plan->frames[i];
        if (atomic_load_explicit(&slot->busy, memory_order_relaxed) ||
            atomic_exchange_explicit(&slot->busy, true, memory_order_acquire))
            continue;
        if (slot->frame) return slot->frame;
        slot->frame = frame_new(plan);
        if (slot->frame)
            slot->frame->slot = i;
        else
            atomic_store_explicit(&slot->busy, false, memory_order_release);
        return slot->frame;
    }
    return frame_new(plan);
}

static void give_frame_back(jit_plan *plan, jit_frame *frame) {
    if (frame->slot >= 0)
        atomic_store_explicit(&plan->frames[frame->slot].busy, false, memory_order_release);
    else
        jit_frame_free(plan, frame);
}

/* ---- steps */

typedef struct running {
    dlc_program *program;
    jit_plan *plan;
    jit_frame *frame;
    char *const *inputs;
    char *const *outputs;
    const jit_step *step;
    const volatile int *cancel;
    lib_error *error;
} running;

static void run_tasks(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    const running *run = user;
    const jit_phase *what = &run->step->target[phase];
    what->function.run(&run->frame->arguments[what->call], what->iteration, begin, end, slot, what->function.closure);
}

/* With profiling every kernel is timed on its own. */
static void run_profiled(running *run) {
    dlc_context *context = run->plan->context;
    const jit_step *step = run->step;
    for (int64_t first = 0, last; first < step->phases; first = last) {
        for (last = first + 1; last < step->phases && step->target[last].call == step->target[first].call;) last++;
        jit_step part = *step;
        part.phase += first;
        part.target += first;
        running one = *run;
        one.step = &part;
        uint64_t start = context->clock_ns(context->clock_user);
        lib_run_phases(context->pool, context->parallel_for, context->parallel_user, context->width, last - first,
                       part.phase, run_tasks, &one, run->cancel);
        jit_call *call = &run->plan->calls[step->target[first].call];
        uint64_t elapsed = context->clock_ns(context->clock_user) - start;
        atomic_fetch_add_explicit(&call->profile_ns, elapsed, memory_order_relaxed);
        atomic_fetch_add_explicit(&call->profile_runs, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&context->run_ns, elapsed, memory_order_relaxed);
    }
}

static void run_kernels(running *run) {
    dlc_context *context = run->plan->context;
    if (atomic_load_explicit(&run->program->profile, memory_order_relaxed)) {
        run_profiled(run);
        return;
    }
    lib_run_phases(context->pool, context->parallel_for, context->parallel_user, context->width, run->step->phases,
                   run->step->phase, run_tasks, run, run->cancel);
}

static void run_copy(running *run) {
    const jit_tensor *from = run->step->inputs, *to = run->step->outputs;
    memcpy(place_pointer(&to->place, run->frame->memory, run->inputs, run->outputs),
           place_pointer(&from->place, run->frame->memory, run->inputs, run->outputs), from->bytes);
}

static dlc_status run_steps(running *run) {
    jit_plan *plan = run->plan;
    for (int s = 0; s < plan->step_count; s++) {
        run->step = &plan->steps[s];
        dlc_status status = DLC_OK;
        switch (run->step->kind) {
        case JIT_STEP_KERNELS: run_kernels(run); break;
        case JIT_STEP_COPY: run_copy(run); break;
        case JIT_STEP_CUSTOM:
        case JIT_STEP_IF:
        case JIT_STEP_WHILE:
            status = jit_run_control(run->program, run->step, run->frame, run->inputs, run->outputs, run->cancel,
                                     run->error);
            break;
        }
        if (status != DLC_OK) return status;
        if (run->error->status != DLC_OK) return run->error->status; /* the interpreter reports so */
        if (run->cancel && *run->cancel) return lib_fail(run->error, DLC_CANCELLED, "the run was cancelled");
    }
    return DLC_OK;
}

void *jit_place_pointer(const jit_place *place, const jit_frame *frame, char *const *inputs, char *const *outputs) {
    return place_pointer(place, frame->memory, inputs, outputs);
}

dlc_status jit_plan_run(dlc_program *program, jit_plan *plan, char *const *inputs, char *const *outputs,
                        const volatile int *cancel, lib_error *error) {
    jit_frame *frame = take_frame(plan);
    if (!frame)
        return lib_fail(error, DLC_OUT_OF_MEMORY, "the arena of %lld bytes for one run was refused",
                        (long long)plan->arena_bytes);
    for (int i = 0; i < plan->run_slot_count; i++) {
        int slot = plan->run_slots[i];
        const jit_place *place = &plan->slots[slot];
        frame->pointers[slot] = place->kind == JIT_PLACE_INPUT ? inputs[place->number] : outputs[place->number];
    }
    error->status = DLC_OK;
    for (int c = 0; c < plan->call_count; c++) frame->arguments[c].error = error;
    running run = {program, plan, frame, inputs, outputs, NULL, cancel, error};
    dlc_status status = run_steps(&run);
    give_frame_back(plan, frame);
    return status;
}
