/* Runs on targets with device memory (targets/target.h: target_runtime). Arguments, arena and constants are pointers into device
 * memory; constants are copied there when a plan is built. The steps of a run are submitted to one stream, in order; the host
 * waits only for values that it needs and at the end. Tensors in host memory are copied to the device and back, tensors on the
 * device are used in place. */
#include "jit/device.h"

/* ---- streams: a few are kept, since making one takes long */

static dlc_status take_stream(jit_session *s, void *given, lib_error *error) {
    dlc_context *context = s->context;
    for (int i = 0; !given && i < JIT_STREAMS_KEPT; i++) {
        jit_stream_slot *slot = &context->streams[i];
        if (atomic_exchange_explicit(&slot->busy, true, memory_order_acquire)) continue;
        s->slot = slot;
        s->stream = slot->stream;
        if (s->stream) return DLC_OK;
        break;
    }
    dlc_status status = s->runtime->open(context->device, given, &s->stream, error);
    if (s->slot && status == DLC_OK) s->slot->stream = s->stream;
    if (s->slot && status != DLC_OK) atomic_store_explicit(&s->slot->busy, false, memory_order_release);
    return status;
}

dlc_status jit_session_begin(jit_session *s, dlc_context *context, void *given, lib_error *error) {
    *s = (jit_session){.context = context, .runtime = context->target->runtime};
    LIB_TRY(s->runtime->enter(context->device, error));
    s->entered = true;
    dlc_status status = take_stream(s, given, error);
    if (status != DLC_OK) s->runtime->leave(context->device);
    return status;
}

void jit_session_leave(jit_session *s) {
    s->runtime->leave(s->context->device);
    s->entered = false;
}

dlc_status jit_session_enter(jit_session *s, lib_error *error) {
    LIB_TRY(s->runtime->enter(s->context->device, error));
    s->entered = true;
    return DLC_OK;
}

void jit_session_end(jit_session *s, bool failed) {
    if (failed || !s->slot) s->runtime->close(s->stream);
    if (failed && s->slot) s->slot->stream = NULL;
    if (s->slot) atomic_store_explicit(&s->slot->busy, false, memory_order_release);
    if (s->entered) s->runtime->leave(s->context->device);
}

void jit_device_settle(dlc_context *context) {
    lib_error ignored;
    const target_runtime *runtime = context->target->runtime;
    if (runtime->enter(context->device, &ignored) != DLC_OK) return;
    runtime->settle(context->device);
    runtime->leave(context->device);
}

void jit_device_close(dlc_context *context) {
    lib_error ignored;
    const target_runtime *runtime = context->device ? context->target->runtime : NULL;
    if (!runtime) return;
    const bool entered = runtime->enter(context->device, &ignored) == DLC_OK; /* a forked child cannot */
    for (int i = 0; i < JIT_STREAMS_KEPT; i++) runtime->close(context->streams[i].stream);
    if (entered) runtime->leave(context->device);
    jit_movers_free(context);
}

/* ---- constants */

/* Needs no stream, which may be refused. */
void jit_device_release(dlc_context *context, const jit_resident *list) {
    const target_runtime *runtime = context->target->runtime;
    lib_error ignored;
    if (!list || runtime->enter(context->device, &ignored) != DLC_OK) return;
    for (; list; list = list->next) runtime->free(context->device, list->device);
    runtime->leave(context->device);
}

static dlc_status upload(dlc_context *context, jit_resident *resident, lib_error *error) {
    jit_session s;
    LIB_TRY(jit_session_begin(&s, context, NULL, error));
    dlc_status status = s.runtime->allocate(s.stream, resident->size, &resident->device, error);
    if (status == DLC_OK)
        status =
            s.runtime->copy(s.stream, TARGET_COPY_TO_DEVICE, resident->device, resident->host, resident->size, error);
    if (status == DLC_OK) status = s.runtime->synchronise(s.stream, error);
    if (status != DLC_OK && resident->device) s.runtime->release(s.stream, resident->device);
    jit_session_end(&s, status != DLC_OK);
    return status;
}

static const jit_resident *find_resident(const jit_resident *list, const void *host, size_t size) {
    while (list && (list->host != host || list->size < size)) list = list->next;
    return list;
}

static const jit_resident *find_kept(dlc_program *program, const void *host, size_t size) {
    lib_mutex_lock(&program->mutex);
    const jit_resident *found = find_resident(program->residents, host, size);
    lib_mutex_unlock(&program->mutex);
    return found;
}

/* Adds a device copy of a constant to the program's. If another thread has copied the same constant meanwhile, both copies are kept. */
static void keep_resident(dlc_program *program, jit_resident *resident) {
    lib_mutex_lock(&program->mutex);
    resident->next = program->residents;
    program->residents = resident;
    lib_mutex_unlock(&program->mutex);
}

void *jit_device_constant(jit_build *build, const void *host, size_t size, bool kept) {
    dlc_program *program = build->program;
    lib_scope *scope = build->work->scope;
    lib_error error;
    if (!host || !size) return NULL; /* a dump before constants are computed; or an empty constant */
    const jit_resident *found =
        kept ? find_kept(program, host, size) : find_resident(build->plan->residents, host, size);
    if (found) return found->device;
    const dlc_allocator *allocator = &program->context->allocator;
    jit_resident *resident = kept ? lib_allocate_zeroed(allocator, sizeof *resident, _Alignof(jit_resident))
                                  : LIB_NEW(&build->plan->arena, jit_resident);
    if (!resident) lib_raise(scope, DLC_OUT_OF_MEMORY, "out of memory: a constant on the device");
    *resident = (jit_resident){.host = host, .size = size};
    if (upload(program->context, resident, &error) != DLC_OK) {
        if (kept) lib_release(allocator, resident, sizeof *resident, _Alignof(jit_resident));
        lib_raise_error(scope, &error);
    }
    if (kept) {
        keep_resident(program, resident);
    } else {
        resident->next = build->plan->residents;
        build->plan->residents = resident;
    }
    return resident->device;
}

void jit_device_constants_free(dlc_program *program) {
    jit_device_release(program->context, program->residents);
    for (jit_resident *r = program->residents, *next; r; r = next) {
        next = r->next;
        lib_release(&program->context->allocator, r, sizeof *r, _Alignof(jit_resident));
    }
    program->residents = NULL;
}

/* ---- steps */

typedef jit_device_running running;

static bool is_cancelled(const running *run) {
    if (run->program->init_limits) jit_limits_poll(run->program->init_limits);
    return lib_is_raised(run->cancel);
}

static char *pointer_of(const running *run, const jit_tensor *tensor) {
    return jit_place_pointer(&tensor->place, run->frame, run->inputs, run->outputs);
}

dlc_status jit_device_copy(const running *run, target_copy kind, void *to, const void *from, size_t size) {
    const jit_session *s = run->session;
    if (kind != TARGET_COPY_ON_DEVICE)
        atomic_fetch_add_explicit(&s->context->transferred_bytes, size, memory_order_relaxed);
    return size ? s->runtime->copy(s->stream, kind, to, from, size, run->error) : DLC_OK;
}

static dlc_status synchronise(const running *run) {
    return run->session->runtime->synchronise(run->session->stream, run->error);
}

/* Launches phases first..last-1 of a step. */
static dlc_status launch(const running *run, const jit_step *step, int64_t first, int64_t last) {
    for (int64_t p = first; p < last; p++) {
        const jit_phase *what = &step->target[p];
        what->function.run(&run->frame->arguments[what->call], what->iteration, 0, step->phase[p].tasks, 0,
                           what->function.closure);
    }
    return run->error->status;
}

static void count_time(const running *run, int32_t call, uint64_t start) {
    dlc_context *context = run->plan->context;
    jit_count_time(context, &run->plan->calls[call], context->clock_ns(context->clock_user) - start);
}

/* From the frame's second run on, submits the step as one batch. Frames that are not kept have no batches. */
static dlc_status run_kernels(const running *run, const jit_step *step) {
    enum { WORTHWHILE = 3 }; /* launches: for fewer, a batch costs more than it saves */
    const jit_session *s = run->session;
    jit_frame *frame = run->frame;
    jit_batch *own = frame->batches && frame->slot >= 0 ? &frame->batches[step - run->plan->steps] : NULL;
    if (run->batched || !own || step->phases < WORTHWHILE || !own->again) {
        if (own) own->again = true;
        return launch(run, step, 0, step->phases);
    }
    s->runtime->begin_batch(s->stream, &own->batch);
    dlc_status status = launch(run, step, 0, step->phases);
    lib_error ignored;
    dlc_status ended = s->runtime->end_batch(s->stream, status == DLC_OK ? run->error : &ignored);
    return status == DLC_OK ? ended : status;
}

void jit_device_forget(const jit_plan *plan, const jit_frame *frame) {
    dlc_context *context = plan->context;
    const target_runtime *runtime = context->target->runtime;
    lib_error ignored;
    bool any = false;
    for (int i = 0; i < plan->step_count; i++) any = any || frame->batches[i].batch;
    if (!any) return;
    bool entered = runtime->enter(context->device, &ignored) == DLC_OK;
    for (int i = 0; i < plan->step_count; i++) runtime->release_batch(context->device, frame->batches[i].batch);
    if (entered) runtime->leave(context->device);
}

/* Runs a HOST step with its copies. */
static dlc_status run_host(const running *run, const jit_step *step) {
    dlc_context *context = run->plan->context;
    if (!atomic_load_explicit(&run->program->profile, memory_order_relaxed)) return jit_host_run(run, step);
    LIB_TRY(synchronise(run));
    uint64_t start = context->clock_ns(context->clock_user);
    LIB_TRY(jit_host_run(run, step));
    count_time(run, step->target->call, start);
    return DLC_OK;
}

/* Profiling waits for every kernel. */
static dlc_status run_profiled(const running *run, const jit_step *step) {
    dlc_context *context = run->plan->context;
    LIB_TRY(synchronise(run));
    for (int64_t first = 0, last; first < step->phases; first = last) {
        for (last = first + 1; last < step->phases && step->target[last].call == step->target[first].call;) last++;
        uint64_t start = context->clock_ns(context->clock_user);
        LIB_TRY(launch(run, step, first, last));
        LIB_TRY(synchronise(run));
        count_time(run, step->target[first].call, start);
    }
    return DLC_OK;
}

static dlc_status run_copy(const running *run, const jit_step *step) {
    const jit_tensor *from = step->inputs, *to = step->outputs;
    const char *source = pointer_of(run, from);
    char *place = pointer_of(run, to);
    if (source == place) return DLC_OK; /* a donated input that is an output unchanged */
    atomic_fetch_add_explicit(&run->plan->context->copied_bytes, from->bytes, memory_order_relaxed);
    return jit_device_copy(run, TARGET_COPY_ON_DEVICE, place, source, from->bytes);
}

/* The host's function gets copies in host memory; meanwhile the thread's previous device is restored. */
static dlc_status call_custom(const running *run, const jit_step *step, char *memory) {
    jit_session *s = run->session;
    DLTensor *tensor = run->frame->tensors, **pointer = (DLTensor **)(void *)run->frame->operands;
    int count = step->input_count + step->output_count;
    for (int i = 0; i < count; i++) {
        const jit_tensor *is = i < step->input_count ? &step->inputs[i] : &step->outputs[i - step->input_count];
        tensor[i] = jit_tensor_of_host(is, memory);
        pointer[i] = is->rank || is->bytes ? &tensor[i] : NULL; /* left out */
        if (i < step->input_count)
            LIB_TRY(jit_device_copy(run, TARGET_COPY_TO_HOST, memory, pointer_of(run, is), is->bytes));
        memory += jit_padded(is->bytes);
    }
    LIB_TRY(synchronise(run));
    jit_session_leave(s);
    dlc_status status = graph_custom_invoke(&step->custom, step->input_count, (const DLTensor *const *)pointer,
                                            step->output_count, pointer + step->input_count, run->error);
    lib_error ignored;
    dlc_status entered = jit_session_enter(s, status == DLC_OK ? run->error : &ignored);
    if (status != DLC_OK || entered != DLC_OK) return status != DLC_OK ? status : entered;
    for (int o = 0; o < step->output_count; o++)
        LIB_TRY(jit_device_copy(run, TARGET_COPY_TO_DEVICE, pointer_of(run, &step->outputs[o]),
                                tensor[step->input_count + o].data, step->outputs[o].bytes));
    return synchronise(run); /* the memory is released afterwards */
}

static dlc_status run_custom(const running *run, const jit_step *step) {
    const dlc_allocator *allocator = &run->plan->context->allocator;
    size_t total = TIR_BUFFER_ALIGNMENT;
    for (int i = 0; i < step->input_count; i++) total += jit_padded(step->inputs[i].bytes);
    for (int o = 0; o < step->output_count; o++) total += jit_padded(step->outputs[o].bytes);
    char *memory = lib_allocate_bytes(allocator, total, TIR_BUFFER_ALIGNMENT);
    if (!memory) return lib_fail(run->error, DLC_OUT_OF_MEMORY, "out of memory: tensors of a host function");
    dlc_status status = call_custom(run, step, memory);
    lib_error ignored;
    if (status != DLC_OK && run->session->entered) /* submitted work may still use the memory */
        run->session->runtime->synchronise(run->session->stream, &ignored);
    lib_release_bytes(allocator, memory, total, TIR_BUFFER_ALIGNMENT);
    return status;
}

/* Reads one byte and waits for it. */
static dlc_status read_condition(const running *run, const char *from, bool *condition) {
    char value = 0;
    LIB_TRY(jit_device_copy(run, TARGET_COPY_TO_HOST, &value, from, 1));
    LIB_TRY(synchronise(run));
    *condition = value != 0;
    return DLC_OK;
}

/* Pointers to operands from `first` on, then to results. */
static void collect_pointers(const running *run, const jit_step *step, int first) {
    char **at = run->frame->operands;
    for (int i = first; i < step->input_count; i++) *at++ = pointer_of(run, &step->inputs[i]);
    for (int o = 0; o < step->output_count; o++) *at++ = pointer_of(run, &step->outputs[o]);
}

static dlc_status run_if(const running *run, const jit_step *step) {
    bool condition;
    LIB_TRY(read_condition(run, pointer_of(run, &step->inputs[0]), &condition));
    collect_pointers(run, step, 1);
    char **operands = run->frame->operands;
    return jit_device_run_plan(run, step->branch[condition ? 0 : 1], operands, operands + step->input_count - 1);
}

static dlc_status run_loop(const running *run, const jit_step *step); /* mutually recursive with running plans, below */

static dlc_status run_step(const running *run, const jit_step *step) {
    switch (step->kind) {
    case JIT_STEP_KERNELS:
        if (atomic_load_explicit(&run->program->profile, memory_order_relaxed)) return run_profiled(run, step);
        return run_kernels(run, step);
    case JIT_STEP_HOST: return run_host(run, step);
    case JIT_STEP_COPY: return run_copy(run, step);
    case JIT_STEP_CUSTOM: return run_custom(run, step);
    case JIT_STEP_IF: return run_if(run, step);
    case JIT_STEP_LOOP: return run_loop(run, step);
    }
    return DLC_OK;
}

static dlc_status run_steps(running *run) {
    jit_plan *plan = run->plan;
    jit_frame_aim(plan, run->frame, run->inputs, run->outputs);
    run->error->status = DLC_OK;
    for (int c = 0; c < plan->call_count; c++) {
        run->frame->arguments[c].error = run->error;
        run->frame->arguments[c].stream = run->session->stream;
    }
    for (int s = 0; s < plan->step_count; s++) {
        LIB_TRY(run_step(run, &plan->steps[s]));
        if (is_cancelled(run)) return lib_fail(run->error, DLC_CANCELLED, "the run was cancelled");
    }
    /* The body of a loop may have no steps. */
    if (!plan->step_count && is_cancelled(run)) return lib_fail(run->error, DLC_CANCELLED, "the run was cancelled");
    return DLC_OK;
}

/* The arena is allocated in stream order, so that it can be released when the last kernel has been submitted. */
static dlc_status begin_plan(const running *outer, jit_plan *plan, running *run, void **arena) {
    const jit_session *s = outer->session;
    *run = *outer;
    *arena = NULL;
    run->plan = plan;
    run->frame = jit_frame_take_bare(plan);
    if (!run->frame) return lib_fail(run->error, DLC_OUT_OF_MEMORY, "the argument pointers of one run were refused");
    if (plan->arena_bytes) LIB_TRY(s->runtime->allocate(s->stream, (size_t)plan->arena_bytes, arena, run->error));
    jit_frame_set_memory(plan, run->frame, *arena);
    return DLC_OK;
}

static void end_plan(const running *run, void *arena) {
    if (!run->frame) return;
    run->session->runtime->release(run->session->stream, arena);
    jit_frame_give_bare(run->plan, run->frame);
}

dlc_status jit_device_run_plan(const running *outer, jit_plan *plan, char *const *inputs, char *const *outputs) {
    void *arena;
    running run;
    dlc_status status = begin_plan(outer, plan, &run, &arena);
    run.inputs = inputs;
    run.outputs = outputs;
    if (status == DLC_OK) status = run_steps(&run);
    end_plan(&run, arena);
    return status;
}

/* ---- loops: iterations are launched asynchronously; the host waits only for conditions */

typedef struct loop_running {
    const running *run;
    const jit_step *step;
    running branch[2];
    void *arena[2];
} loop_running;

/* Does the loop submit kernels only? A copy of a carry to the stack that holds it moves nothing. */
static bool launches_only(const jit_step *step) {
    enum { MOST = 4096 }; /* launches in one batch */
    const jit_loop *loop = step->loop;
    const jit_plan *body = step->branch[1];
    int64_t phases = 0;
    if (step->branch[0] || loop->conditional) return false;
    for (int s = 0; s < body->step_count; s++) {
        const jit_step *own = &body->steps[s];
        phases += own->kind == JIT_STEP_KERNELS ? own->phases : 0;
        if (own->kind == JIT_STEP_KERNELS) continue;
        if (own->kind != JIT_STEP_COPY) return false;
        const jit_place *from = &own->inputs->place, *to = &own->outputs->place;
        bool carry = from->kind == JIT_PLACE_OUTPUT && from->number < loop->carries && !from->offset;
        const int row = carry ? loop->row_of[from->number] : -1; /* -1: a real copy, to another carry */
        if (row < 0 || to->kind != JIT_PLACE_OUTPUT || to->number != loop->carries + row) return false;
    }
    return phases > 0 && loop->length <= MOST / phases;
}

/* Begins or ends the batch of a loop that only launches kernels: from the frame's second run on, all iterations are one batch of the outer
 * frame. */
static dlc_status loop_enclose(void *user, bool begin) {
    loop_running *l = user;
    const running *run = l->run;
    const jit_session *s = run->session;
    jit_frame *frame = run->frame;
    if (!begin) {
        if (!l->branch[1].batched || run->batched) return DLC_OK;
        lib_error ignored;
        return s->runtime->end_batch(s->stream, run->error->status == DLC_OK ? run->error : &ignored);
    }
    l->branch[1].batched = run->batched;
    jit_batch *own = frame->batches && frame->slot >= 0 ? &frame->batches[l->step - run->plan->steps] : NULL;
    if (run->batched || !own || !launches_only(l->step)) return DLC_OK;
    if (own->again && !atomic_load_explicit(&run->program->profile, memory_order_relaxed)) {
        l->branch[1].batched = true;
        s->runtime->begin_batch(s->stream, &own->batch);
    }
    own->again = true;
    return DLC_OK;
}

static char *loop_place(void *user, const jit_tensor *tensor) {
    const loop_running *l = user;
    return pointer_of(l->run, tensor);
}

static dlc_status loop_run(void *user, int which, char *const *inputs, char *const *outputs) {
    loop_running *l = user;
    l->branch[which].inputs = inputs;
    l->branch[which].outputs = outputs;
    return run_steps(&l->branch[which]);
}

static dlc_status loop_copy(void *user, void *to, const void *from, size_t size) {
    const loop_running *l = user;
    return jit_device_copy(l->run, TARGET_COPY_ON_DEVICE, to, from, size);
}

static dlc_status loop_write(void *user, void *to, const void *from, size_t size) {
    const loop_running *l = user;
    LIB_TRY(jit_device_copy(l->run, TARGET_COPY_TO_DEVICE, to, from, size));
    return synchronise(l->run);
}

static dlc_status loop_clear(void *user, void *to, size_t size) {
    static const char zeros[1 << 12];
    const loop_running *l = user;
    for (size_t at = 0; at < size; at += sizeof zeros)
        LIB_TRY(jit_device_copy(l->run, TARGET_COPY_TO_DEVICE, (char *)to + at, zeros,
                                size - at < sizeof zeros ? size - at : sizeof zeros));
    return DLC_OK;
}

static dlc_status loop_read(void *user, const char *from, bool *value) {
    const loop_running *l = user;
    return read_condition(l->run, from, value);
}

static dlc_status run_loop(const running *run, const jit_step *step) {
    loop_running l = {.run = run, .step = step};
    const jit_loop_port port = {&l, loop_place, loop_run, loop_copy, loop_write, loop_clear, loop_read, loop_enclose};
    dlc_status status = DLC_OK;
    for (int b = 0; b < 2 && status == DLC_OK; b++)
        if (step->branch[b]) status = begin_plan(run, step->branch[b], &l.branch[b], &l.arena[b]);
    if (status == DLC_OK) status = jit_run_loop(step, run->frame->operands, run->frame->memory + step->scratch, &port);
    for (int b = 0; b < 2; b++) end_plan(&l.branch[b], l.arena[b]);
    return status;
}

/* ---- precomputed constants */

static dlc_status compute(jit_session *s, dlc_program *program, jit_plan *plan, int count, const size_t *sizes,
                          char *const *outputs, void **device, lib_error *error) {
    const running run = {
        .session = s, .program = program, .cancel = jit_limits_flag(program->init_limits), .error = error};
    for (int o = 0; o < count; o++)
        if (sizes[o]) LIB_TRY(s->runtime->allocate(s->stream, sizes[o], &device[o], error));
    LIB_TRY(jit_device_run_plan(&run, plan, NULL, (char *const *)device));
    for (int o = 0; o < count; o++)
        LIB_TRY(jit_device_copy(&run, TARGET_COPY_TO_HOST, outputs[o], device[o], sizes[o]));
    return synchronise(&run);
}

dlc_status jit_device_compute(dlc_program *program, jit_plan *plan, int count, const size_t *sizes,
                              char *const *outputs, lib_error *error) {
    const dlc_allocator *allocator = &program->context->allocator;
    size_t bytes = ((size_t)count + 1) * sizeof(void *);
    jit_session s;
    void **device = lib_allocate_zeroed(allocator, bytes, 16);
    if (!device) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a list of tensors");
    dlc_status status = jit_session_begin(&s, program->context, NULL, error);
    if (status == DLC_OK) {
        status = compute(&s, program, plan, count, sizes, outputs, device, error);
        for (int o = 0; o < count; o++) s.runtime->release(s.stream, device[o]);
        jit_session_end(&s, status != DLC_OK);
    }
    lib_release(allocator, device, bytes, 16);
    return status;
}

bool jit_is_on_device(const dlc_context *context, const DLTensor *tensor) {
    const target_runtime *runtime = context->target->runtime;
    return runtime && (int32_t)tensor->device.device_type == runtime->device_type &&
           tensor->device.device_id == context->ordinal;
}
