/* Contexts: the host's choices (target, memory, threads, log) and state shared by all programs (kernel cache, statistics). */
#include "jit/jit.h"

#include <stdio.h>

/* The calling thread's last failure. One slot suffices, since a message is read right after the failing call. A call with a NULL
 * object (say, a program) fails because the earlier call that should have made it failed; the message of that call is then
 * included. */
static LIB_THREAD_LOCAL struct {
    /* NULL: the call had no context */
    const dlc_context *context;
    /* context of the earlier call whose message is included; NULL: none, or it had no context */
    const dlc_context *cause;
    dlc_status status;
} last_failure;

static const char before[] = "; before that, on this thread: ";

/* The message, or the status' description if there was no memory for a message. */
static const char *last_message(void) {
    const char *message = lib_thread_message(false);
    if (message) return message;
    return last_failure.status == DLC_OK ? "" : lib_status_text(last_failure.status);
}

void graph_context_add_cause(lib_error *error) {
    const char *last = last_message(), *told = strstr(last, before);
    if (last_failure.status == DLC_OK || strstr(error->message, before)) return;
    lib_error cause;
    lib_fail(&cause, DLC_OK, "%s", told ? told + sizeof before - 1 : last);
    lib_fail(error, error->status, "%s%s%s", error->message, before, cause.message);
}

dlc_status jit_fail(dlc_context *context, const lib_error *error) {
    lib_error full = *error;
    if (!context) graph_context_add_cause(&full);
    const dlc_context *cause = last_failure.context ? last_failure.context : last_failure.cause;
    last_failure.cause = strstr(full.message, before) ? cause : NULL;
    last_failure.context = context;
    last_failure.status = full.status;
    char *message = lib_thread_message(true);
    if (message) memcpy(message, full.message, strlen(full.message) + 1);
    return full.status;
}

/* This thread's last failure, if it is the context's, is forgotten: a context that is created later may have the same address. */
static void forget_failure(const dlc_context *context) {
    char *message = lib_thread_message(false);
    if (last_failure.cause == context) last_failure.cause = NULL;
    if (last_failure.context != context) return;
    last_failure.context = NULL;
    last_failure.status = DLC_OK;
    if (message) *message = 0;
}

dlc_status graph_context_fail(dlc_context *context, const lib_error *error) {
    return jit_fail(context, error);
}

const dlc_allocator *graph_context_allocator(dlc_context *context) {
    return &context->allocator;
}

graph_handles *graph_context_handles(dlc_context *context) {
    return &context->handles;
}

const dlc_limits *graph_context_limits(const dlc_context *context) {
    return &context->limits;
}

const lib_log *graph_context_log(const dlc_context *context) {
    return &context->log;
}

dlc_status graph_context_enter(dlc_context *context, lib_call *call, size_t need, lib_error *error) {
    return lib_call_enter(call, &context->callers, context->unknown_stack, need, error);
}

const char *dlc_error_message(const dlc_context *context) {
    bool is_of = last_failure.context == context || (context && last_failure.cause == context);
    return is_of ? last_message() : "";
}

#define STRING_(x) #x
#define STRING(x) STRING_(x)
const char *dlc_version(void) {
    return STRING(DLC_VERSION_MAJOR) "." STRING(DLC_VERSION_MINOR) "." STRING(DLC_VERSION_PATCH);
}
const char *dlc_status_text(dlc_status status) {
    return lib_status_text(status);
}
const char *dlc_dtype_name(dlc_dtype dtype) {
    return (unsigned)dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].name : "unknown";
}

static const target *const targets[] = {
#ifdef DLC_TARGET_cpu
    &target_cpu,
#endif
    &target_interp,
#ifdef DLC_TARGET_cuda
    &target_cuda,
#endif
#ifdef DLC_TARGET_null
    &target_null,
#endif
};

static uint64_t default_clock(void *user) {
    (void)user;
    return lib_time_ns();
}

static bool is_called(const target *t, const char *name, size_t length) {
    return strncmp(t->name, name, length) == 0 && !t->name[length];
}

/* "name", or "name:N" for device N of a target that may have several. NULL: the first target. */
static const target *find_target(const char *name, int *ordinal) {
    size_t length = name ? strcspn(name, ":") : 0,
           digits = name && name[length] ? strspn(name + length + 1, "0123456789") : 0;
    bool numbered = name && name[length];
    *ordinal = 0;
    if (numbered && (!digits || digits > 4 || name[length + 1 + digits])) return NULL;
    for (size_t i = 0; numbered && i < digits; i++) *ordinal = *ordinal * 10 + (name[length + 1 + i] - '0');
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!name || (is_called(targets[i], name, length) && (!numbered || targets[i]->runtime))) return targets[i];
    return NULL;
}

static dlc_status start_threads(dlc_context *context, const dlc_context_options *options, lib_error *error) {
    int64_t spin = lib_environment_integer(LIB_ENV_SPIN, 100);
    int threads = options->threads;
    if (threads > 0) threads = (int)lib_environment_integer(LIB_ENV_THREADS, threads);
    context->threads = context->compile_width = 1;
    if (options->parallel_for) {
        context->parallel_for = options->parallel_for;
        context->parallel_user = options->parallel_user;
        context->threads = options->parallel_width;
    } else if (threads > 1) {
        context->pool = lib_pool_new(&context->allocator, threads, spin, error);
        if (!context->pool) return error->status;
        context->threads = lib_pool_threads(context->pool);
    }
    context->width = context->threads;
    if (context->target->runtime) context->width = context->machine.cores > 1 ? context->machine.cores : 1;
    if (options->compile_threads > 1) {
        context->compile_pool = lib_pool_new(&context->allocator, options->compile_threads, 0, error);
        if (!context->compile_pool) return error->status;
        context->compile_width = lib_pool_threads(context->compile_pool);
    }
    return DLC_OK;
}

static dlc_status refuse_target(const char *name, lib_error *error) {
    char known[128] = "";
    lib_nearest nearest = lib_nearest_to(name);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        lib_nearest_try(&nearest, targets[i]->name, strlen(targets[i]->name));
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s%s", i ? ", " : "", targets[i]->name,
                 targets[i]->runtime ? " (of several devices: NAME:0, NAME:1, ...)" : "");
    return lib_fail(error, DLC_NOT_FOUND, "dlc_context_create: no target is called \"%.200s\"; this build has %s%s",
                    name, known, lib_nearest_hint(&nearest));
}

static dlc_status check_options(const dlc_context_options *options, lib_error *error) {
    if (options->struct_size != sizeof *options)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_context_create: options.struct_size is %zu, expected %zu (use DLC_CONTEXT_OPTIONS_INIT)",
                        options->struct_size, sizeof *options);
    const struct {
        const char *name;
        int value;
    } counts[] = {{"threads", options->threads},
                  {"compile_threads", options->compile_threads},
                  {"parallel_width", options->parallel_width}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_context_create: %s is %d, expected 0 or more",
                            counts[i].name, counts[i].value);
    if (options->parallel_for && !options->parallel_width)
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "dlc_context_create: parallel_for is given and parallel_width is 0, expected how many bodies it may run at once%s",
            options->threads ? "; threads is the size of a pool of the library's own" : "");
    if (options->parallel_for && options->threads)
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "dlc_context_create: threads is %d and parallel_for is given, expected one of a pool of the library's own and the host's threads",
            options->threads);
    if (options->parallel_width && !options->parallel_for)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_context_create: parallel_width is %d and parallel_for is NULL, expected both or neither",
                        options->parallel_width);
    if (options->allocator && (!options->allocator->allocate || !options->allocator->release))
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_context_create: an allocator needs both allocate and release");
    int ordinal;
    if (!find_target(options->target, &ordinal)) return refuse_target(options->target, error);
    return DLC_OK;
}

static dlc_status copy_path(dlc_context *context, const char *path, lib_error *error) {
    if (!path) return DLC_OK;
    size_t size = strlen(path) + 1;
    context->compiler_path = lib_allocate(&context->allocator, size, 1);
    if (!context->compiler_path) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_context_create: out of memory: a path");
    memcpy(context->compiler_path, path, size);
    return DLC_OK;
}

static dlc_status open_context(dlc_context *context, const dlc_context_options *options, lib_error *error) {
    context->target = find_target(options->target, &context->ordinal);
    context->isolate = options->isolate_compiler;
    context->limits = options->limits;
    if (!lib_limits_complete(&context->limits, error)) return error->status;
    LIB_TRY(copy_path(context, options->compiler_path, error));
    target_options target_opts = {.allocator = &context->allocator,
                                  .log = &context->log,
                                  .ordinal = context->ordinal,
                                  .isolate = context->isolate,
                                  .compiler_path = context->compiler_path};
    LIB_TRY(context->target->open(&target_opts, &context->device, &context->machine, error));
    context->machine_hash =
        lib_hash_bytes(&context->machine, offsetof(tir_machine, units), (lib_hash128){DLC_VERSION_MINOR, 1});
    LIB_TRY(jit_disk_open(context, options->cache_directory, options->cache_directory_bytes, error));
    LIB_TRY(jit_cache_init(context, options->cache_bytes ? options->cache_bytes : (size_t)64 << 20, error));
    context->default_float_modes = options->default_float_modes;
    context->no_batches = options->no_batches || lib_environment_lists(LIB_ENV_DISABLE, "batch");
    context->plan_entries = options->plan_cache_entries ? options->plan_cache_entries : 256;
    LIB_TRY(start_threads(context, options, error));
    return options->background_compile ? jit_background_open(context, error) : DLC_OK;
}

static void log_help(dlc_context *context) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_text text;
        lib_text_init(&text, &arena);
        lib_environment_help(&text);
        lib_log_lines(&context->log, text.data);
    }
    lib_arena_free(&arena);
}

dlc_status dlc_context_create(const dlc_context_options *given, dlc_context **out) {
    static const dlc_context_options defaults = DLC_CONTEXT_OPTIONS_INIT;
    const dlc_context_options *options = given ? given : &defaults;
    lib_error error;
    last_failure.status = DLC_OK; /* earlier failures are not the cause of one here */
    if (!out) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_context_create: the place for the context is NULL");
        return jit_fail(NULL, &error);
    }
    *out = NULL;
    if (check_options(options, &error) != DLC_OK) return jit_fail(NULL, &error);
    const size_t unknown_stack = options->coroutine_stack ? options->coroutine_stack : LIB_STACK_UNKNOWN;
    lib_call call __attribute__((cleanup(lib_call_leave)));
    if (lib_call_enter(&call, NULL, unknown_stack, LIB_STACK_CALL, &error) != DLC_OK) return jit_fail(NULL, &error);
    const dlc_allocator *allocator = options->allocator ? options->allocator : &lib_libc_allocator;
    dlc_context *context = lib_allocate_zeroed(allocator, sizeof *context, 64);
    if (!context) {
        lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_context_create: %zu bytes were refused", sizeof *context);
        return jit_fail(NULL, &error);
    }
    forget_failure(context); /* of one that another thread has destroyed */
    context->allocator = *allocator;
    context->unknown_stack = unknown_stack;
    atomic_init(&context->references, 1);
    lib_callers_init(&context->callers);
    graph_handles_init(&context->handles);
    lib_mutex_init(&context->mutex);
    jit_decisions_open(context);
    jit_weights_open(context);
    context->log = (lib_log){options->log, options->log_user};
    context->clock_ns = options->clock_ns ? options->clock_ns : default_clock;
    context->clock_user = options->clock_user;
    context->trace = options->trace, context->trace_user = options->trace_user;
    if (open_context(context, options, &error) != DLC_OK) {
        dlc_context_destroy(context);
        return jit_fail(NULL, &error);
    }
    lib_environment_check(&context->log);
    if (lib_environment_lists(LIB_ENV_DEBUG, "help")) log_help(context);
    *out = context;
    return DLC_OK;
}

static void log_statistics(dlc_context *context) {
    dlc_statistics s = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &s);
    lib_log_write(
        &context->log,
        "dlc: runs %llu, plans %llu built %llu hit, kernels %llu built %llu hit %llu evicted, interpreted %llu, refused %llu, on the host %llu, cache %llu B",
        (unsigned long long)s.runs, (unsigned long long)s.plan_builds, (unsigned long long)s.plan_hits,
        (unsigned long long)s.kernel_builds, (unsigned long long)s.kernel_hits, (unsigned long long)s.kernel_evictions,
        (unsigned long long)s.interpreted_regions, (unsigned long long)s.refused_schedules,
        (unsigned long long)s.host_regions, (unsigned long long)s.cache_bytes);
}

static void end_context(dlc_context *context) {
    const int cancelability = lib_cancel_off(); /* dlc_context_destroy waits for threads */
    if (lib_environment_integer(LIB_ENV_STATS, 0)) log_statistics(context);
    graph_handles_close(&context->handles);
    jit_background_close(context);
    lib_pool_free(context->pool);
    lib_pool_free(context->compile_pool);
    jit_cache_free(context);
    jit_disk_close(context);
    jit_decisions_close(context);
    jit_weights_close(context);
    jit_blocks_free(context);
    jit_results_close(context);
    jit_device_close(context);
    jit_host_close(context);
    graph_handles_free(&context->handles, &context->allocator);
    lib_mutex_destroy(&context->mutex);
    if (context->device) context->target->close(context->device);
    if (context->compiler_path)
        lib_release(&context->allocator, context->compiler_path, strlen(context->compiler_path) + 1, 1);
    lib_callers_free(&context->callers);
    dlc_allocator allocator = context->allocator;
    lib_release(&allocator, context, sizeof *context, 64);
    lib_cancel_restore(cancelability);
}

void jit_context_keep(dlc_context *context) {
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void jit_context_release(dlc_context *context) {
    if (atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) == 1) end_context(context);
}

void graph_context_keep(dlc_context *context) {
    jit_context_keep(context);
}
void graph_context_release(dlc_context *context) {
    jit_context_release(context);
}

void dlc_context_destroy(dlc_context *context) {
    lib_call call;
    if (!context) return;
    forget_failure(context);
    if (!graph_call_to_destroy(context, &call)) return;
    jit_context_release(context);
    graph_call_destroyed(context, &call);
}

void dlc_context_statistics(const dlc_context *context, dlc_statistics *out) {
    if (!context || !out) return;
    size_t size = out->struct_size < sizeof *out ? out->struct_size : sizeof *out;
    const size_t given = out->struct_size;
    dlc_context *c = (dlc_context *)(uintptr_t)context; /* atomics and the mutex are not part of the logical state */
    GRAPH_CALL_OR(c, 0, );
#define READ(field) atomic_load_explicit(&c->field, memory_order_relaxed)
    uint64_t misses = READ(plan_misses);
    dlc_statistics s = {.struct_size = given,
                        .runs = READ(runs),
                        .plan_hits = READ(plan_hits),
                        .plan_builds = READ(plan_builds),
                        .plan_evictions = READ(plan_evictions),
                        .kernel_hits = READ(kernel_hits),
                        .kernel_builds = READ(kernel_builds),
                        .kernel_evictions = READ(kernel_evictions),
                        .interpreted_regions = READ(interpreted_regions),
                        .refused_schedules = READ(refused_schedules),
                        .cache_bytes = READ(plan_bytes),
                        .arena_bytes = READ(arena_bytes) + jit_results_bytes(context),
                        .constant_bytes = READ(constant_bytes),
                        .copied_bytes = READ(copied_bytes),
                        .transferred_bytes = READ(transferred_bytes),
                        .host_regions = READ(host_regions),
                        .tier_generic = READ(tier_generic),
                        .tier_specialised = READ(tier_specialised),
                        .tier_failures = READ(tier_failures),
                        .disk_hits = READ(disk.hits),
                        .disk_misses = READ(disk.misses),
                        .disk_writes = READ(disk.writes),
                        .disk_errors = READ(disk.errors),
                        .disk_read_bytes = READ(disk.read_bytes),
                        .disk_written_bytes = READ(disk.written_bytes),
                        .disk_read_ns = READ(disk.read_ns),
                        .disk_decisions = READ(disk.decisions),
                        .predictions = READ(predictions),
                        .compile_ns = READ(compile_ns),
                        .run_ns = READ(run_ns)};
#undef READ
    lib_mutex_lock(&c->mutex);
    for (const dlc_program *program = c->programs; program; program = program->next) {
        s.runs += jit_plans_runs(program) + jit_call_runs(program);
        misses += program->misses;
    }
    lib_mutex_unlock(&c->mutex);
    s.plan_hits += s.runs - misses;
    lib_mutex_lock(&c->cache.mutex);
    s.cache_bytes += c->cache.bytes;
    lib_mutex_unlock(&c->cache.mutex);
    memcpy(out, &s, size);
}
