/* Kernels that a device's target refuses: the CPU target compiles them and runs them on the context's threads, after copies to
 * the host and before copies back. This is correct but slow; statistics count such kernels and the log names each. */
#include "jit/device.h"

static const target *host_target(void) {
#ifdef DLC_TARGET_cpu
    return &target_cpu;
#else
    return NULL;
#endif
}

/* If several threads open it at once, one result is kept. */
dlc_status jit_host_find(dlc_context *context, const jit_host **found, lib_error *error) {
    jit_host *host = atomic_load_explicit(&context->host, memory_order_acquire), *none = NULL;
    const target *own = host_target();
    *found = host;
    if (host) return DLC_OK;
    if (!own) return lib_fail(error, DLC_UNSUPPORTED, "this build has no cpu target that could run it");
    host = lib_allocate_zeroed(&context->allocator, sizeof *host, _Alignof(jit_host));
    if (!host) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: the cpu target beside a device");
    const target_options options = {.allocator = &context->allocator,
                                    .log = &context->log,
                                    .isolate = context->isolate,
                                    .compiler_path = context->compiler_path};
    host->target = own;
    dlc_status status = own->open(&options, &host->device, &host->machine, error);
    if (status == DLC_OK && atomic_compare_exchange_strong(&context->host, &none, host)) {
        *found = host;
        return DLC_OK;
    }
    if (status == DLC_OK) own->close(host->device);
    lib_release(&context->allocator, host, sizeof *host, _Alignof(jit_host));
    *found = none;
    return status;
}

void jit_host_close(dlc_context *context) {
    jit_host *host = atomic_load(&context->host);
    if (!host) return;
    host->target->close(host->device);
    lib_release(&context->allocator, host, sizeof *host, _Alignof(jit_host));
}

/* ---- running one of them */

/* host memory for one run of a kernel */
typedef struct host_memory {
    char *base;
    size_t size;
    /* [arguments] */
    void **buffers;
    char *workspace, *local;
} host_memory;

static size_t take(size_t *total, size_t bytes) {
    size_t at = *total;
    *total += jit_padded(bytes);
    return at;
}

static bool is_constant(const jit_device_running *run, const jit_call *call, int a) {
    return run->plan->slots[call->first_slot + (uint32_t)a].kind == JIT_PLACE_CONSTANT;
}

/* The first argument with the same address (a result may overwrite an operand), or the argument itself. */
static int same_place(const jit_device_running *run, const jit_call *call, int a) {
    void *const *pointer = run->frame->pointers + call->first_slot;
    for (int b = 0; b < a; b++)
        if (!is_constant(run, call, b) && pointer[b] == pointer[a]) return b;
    return a;
}

static size_t bytes_there(const jit_device_running *run, const jit_step *step, const jit_call *call, int a) {
    size_t most = step->bytes[a]; /* maximum over all arguments at this address */
    for (int b = a + 1; b < call->arguments; b++)
        if (!is_constant(run, call, b) && same_place(run, call, b) == a && step->bytes[b] > most) most = step->bytes[b];
    return most;
}

static dlc_status reserve(const jit_device_running *run, const jit_step *step, host_memory *memory) {
    const jit_call *call = &run->plan->calls[step->target->call];
    const dlc_allocator *allocator = &run->session->context->allocator;
    /* binding checked for overflow */
    const size_t local_bytes = (size_t)call->local_stride * (size_t)run->session->context->threads;
    size_t total = 0, list = take(&total, (size_t)call->arguments * sizeof(void *) + 1);
    size_t workspace = take(&total, (size_t)call->host_workspace), local = take(&total, local_bytes);
    for (int a = 0; a < call->arguments; a++)
        if (!is_constant(run, call, a) && same_place(run, call, a) == a) take(&total, bytes_there(run, step, call, a));
    char *base = memory->base = lib_allocate_bytes(allocator, total, TIR_BUFFER_ALIGNMENT);
    if (!base)
        return lib_fail(run->error, DLC_OUT_OF_MEMORY, "out of memory: kernel %s%s on the host", call->name,
                        call->origins);
    memory->size = total;
    memory->buffers = (void **)(void *)(base + list);
    memory->workspace = base + workspace;
    memory->local = base + local;
    size_t at = local + jit_padded(local_bytes);
    for (int a = 0; a < call->arguments; a++) {
        int first = same_place(run, call, a);
        if (is_constant(run, call, a))
            memory->buffers[a] = run->frame->pointers[call->first_slot + (uint32_t)a];
        else
            memory->buffers[a] = first < a ? memory->buffers[first] : base + take(&at, bytes_there(run, step, call, a));
    }
    return DLC_OK;
}

typedef struct host_call {
    const jit_step *step;
    target_arguments arguments;
} host_call;

static void run_tasks(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    const host_call *call = user;
    const jit_phase *what = &call->step->target[phase];
    what->function.run(&call->arguments, what->iteration, begin, end, slot, what->function.closure);
}

/* Runs the kernel's phases on the context's threads. While the host's parallel_for runs, the thread's previous device is current. */
static dlc_status call_phases(const jit_device_running *run, const jit_step *step, const host_memory *memory) {
    const dlc_context *context = run->session->context;
    const jit_call *of = &run->plan->calls[step->target->call];
    host_call call = {step,
                      {.buffers = memory->buffers,
                       .params = of->params,
                       .workspace = memory->workspace,
                       .local = memory->local,
                       .local_stride = of->local_stride,
                       .error = run->error}};
    if (context->parallel_for) jit_session_leave(run->session);
    bool all = lib_run_phases(context->pool, context->parallel_for, context->parallel_user, context->threads,
                              step->phases, step->phase, run_tasks, &call, run->cancel);
    if (context->parallel_for) LIB_TRY(jit_session_enter(run->session, run->error));
    return all ? DLC_OK : lib_fail(run->error, DLC_CANCELLED, "the run was cancelled");
}

static dlc_status run_in(const jit_device_running *run, const jit_step *step, const host_memory *memory) {
    const jit_session *s = run->session;
    const jit_call *call = &run->plan->calls[step->target->call];
    void *const *pointer = run->frame->pointers + call->first_slot;
    for (int a = 0; a < step->input_count; a++)
        if (!is_constant(run, call, a) && same_place(run, call, a) == a)
            LIB_TRY(jit_device_copy(run, TARGET_COPY_TO_HOST, memory->buffers[a], pointer[a], step->bytes[a]));
    LIB_TRY(s->runtime->synchronise(s->stream, run->error));
    LIB_TRY(call_phases(run, step, memory));
    for (int a = step->input_count; a < call->arguments; a++)
        LIB_TRY(jit_device_copy(run, TARGET_COPY_TO_DEVICE, pointer[a], memory->buffers[a], step->bytes[a]));
    return s->runtime->synchronise(s->stream, run->error);
}

dlc_status jit_host_run(const jit_device_running *run, const jit_step *step) {
    const jit_session *s = run->session;
    host_memory memory = {0};
    lib_error ignored;
    LIB_TRY(reserve(run, step, &memory));
    dlc_status status = run_in(run, step, &memory);
    if (status != DLC_OK && s->entered)
        s->runtime->synchronise(s->stream, &ignored); /* submitted work may still use the memory */
    lib_release_bytes(&s->context->allocator, memory.base, memory.size, TIR_BUFFER_ALIGNMENT);
    return status;
}
