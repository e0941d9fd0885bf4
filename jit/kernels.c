/* Kernels of a plan: keys, claims, and compilation of missing kernels, in a few modules on the compile threads. */
#include "jit/disk.h"

#include "tir/choice.h"

enum { KERNELS_PER_MODULE = 16 };

/* ---- keys */

jit_key jit_region_key(dlc_program *program, lib_arena *arena, tir_region *region, jit_own *own) {
    jit_key key;
    memset(&key, 0, sizeof key);
    region->excess_precision = !program->options.no_excess_precision;
    key.computation = tir_region_hash(region);
    key.machine = program->context->machine_hash;
    *own = jit_own_schedule(program, arena, region);
    /* A host's schedule refers to stages and axes by name, and the hash of the computation does not include names. */
    if (own->text)
        key.schedule = lib_hash_bytes(own->text, own->length, tir_region_hash_names(region));
    else
        key.schedule.low = jit_choices_seed();
    key.threads = program->context->width;
    key.options = !program->options.no_excess_precision;
    return key;
}

/* ---- one module: regions -> schedules -> loop IR -> object -> code */

typedef struct module_job {
    jit_build *build;
    /* numbers of the requests in this module */
    const uint32_t *request;
    /* the first `published` kernels are published */
    int count, published;
    /* the last request whose lowering began */
    const jit_request *lowering;
    lib_error error;
} module_job;

bool jit_limits_reached(const jit_limits *limits, lib_error *error) {
    dlc_program *program = limits->program;
    if (lib_is_raised(program->options.cancel) || atomic_load(&program->closing)) {
        lib_fail(error, DLC_CANCELLED, "compilation was cancelled");
        return true;
    }
    if (limits->deadline_ns && program->context->clock_ns(program->context->clock_user) > limits->deadline_ns) {
        lib_fail(error, DLC_BUDGET_EXCEEDED, "compilation took longer than budget_ms = %lld",
                 (long long)program->options.budget_ms);
        return true;
    }
    return false;
}

void jit_limits_poll(jit_limits *limits) {
    lib_error error;
    if (jit_limits_reached(limits, &error)) __atomic_store_n(&limits->stop, 1, __ATOMIC_RELAXED);
}

static bool is_over(void *user, lib_error *error) {
    return jit_limits_reached(user, error);
}

void jit_limits_begin(jit_limits *limits, dlc_program *program) {
    const dlc_context *context = program->context;
    const uint64_t most = UINT64_MAX / 2, ms = 1000000;
    *limits = (jit_limits){.watch = {is_over, limits}, .program = program};
    if (program->options.budget_ms <= 0) return;
    const uint64_t budget = (uint64_t)program->options.budget_ms;
    const uint64_t now = context->clock_ns(context->clock_user), left = budget < most / ms ? budget * ms : most;
    limits->deadline_ns = now < UINT64_MAX - left ? now + left : UINT64_MAX;
}

/* The remaining budget, by the system's clock: the host's clock may differ. */
static target_budget compile_budget(const jit_build *build) {
    const dlc_compile_options *options = &build->program->options;
    const dlc_context *context = build->program->context;
    target_budget budget = {.memory = options->budget_bytes, .cancel = options->cancel};
    uint64_t deadline_ns = build->limits->deadline_ns;
    if (!deadline_ns) return budget;
    uint64_t now = context->clock_ns(context->clock_user);
    budget.deadline_ns = lib_time_ns() + (deadline_ns > now ? deadline_ns - now : 0) + 1;
    return budget;
}

/* Approximate code generator memory per copy of a statement made by unrolling and vectorisation. */
enum { BYTES_PER_COPY = 1024 };

/* Upper bound of the copies of a list's statements; loops of unknown length count once. */
static double count_copies(tir_pool *pool, const tir_stmt *list) {
    double copies = 0;
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        double inner = 1;
        if (stmt->kind == TIR_LET) inner += count_copies(pool, stmt->let.body);
        if (stmt->kind == TIR_IF) inner += count_copies(pool, stmt->if_.body) + count_copies(pool, stmt->if_.otherwise);
        if (stmt->kind == TIR_FOR) {
            const double trips = (double)tir_range(pool, stmt->for_.extent).high;
            const double body = count_copies(pool, stmt->for_.body);
            inner += stmt->for_.loop == TIR_UNROLL && trips > 1 ? trips * body : body;
        }
        copies += inner;
    }
    return copies;
}

/* Lowers by the host's schedule, or by none. The context's limits hold, as for parsed texts: a short line may unroll a million steps. */
static tir_kernel *lower_as_asked(dlc_context *context, lib_arena *arena, tir_region *region, tir_region **rewritten,
                                  tir_schedule *schedule, const tir_lower_options *options) {
    lib_scope scope, *outer = arena->scope;
    lib_allowance allowance;
    const size_t input = schedule->text.length;
    tir_kernel *volatile kernel = NULL;
    lib_allowance_begin_within(&allowance, arena, &context->limits, input);
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        double copies = 0;
        lib_arena_ask(arena);
        /* on failure, reports the steps up to the rejected line */
        kernel = tir_lower(arena, region, schedule, options);
        for (uint32_t p = 0; p < kernel->phases.count; p++)
            copies += count_copies(kernel->pool, kernel->phases.data[p].body);
        if (copies * (double)BYTES_PER_COPY > (double)lib_allowed_memory(&context->limits, input))
            lib_raise(
                &scope, DLC_BUDGET_EXCEEDED,
                "schedule of region %s: it unrolls some %.0f statements, for whose code limits.memory = %zu does not "
                "suffice",
                region->name, copies, context->limits.memory);
        *rewritten = tir_region_copy(arena, region);
        tir_schedule_rewrite(*rewritten, schedule, NULL);
    }
    arena->scope = outer;
    lib_allowance_end(&allowance, arena);
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
    return kernel;
}

/* Lowers by the target's rules, or, if their schedule fails, by another choice of theirs. NULL: all fail, and plain loops are left, for
 * which the schedule is empty again. */
static tir_kernel *lower_by_target(dlc_context *context, const jit_rules *rules, lib_arena *arena, tir_region *region,
                                   tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options) {
    lib_error error;
    tir_kernel *kernel = NULL;
    if (jit_choices_seed()) kernel = jit_lower_at_random(rules, arena, region, rewritten, schedule, options);
    if (!kernel) kernel = jit_lower_by_rules(rules, arena, region, NULL, rewritten, schedule, options, &error);
    if (kernel) return kernel;
    const char *change = "";
    kernel = jit_lower_by_other_choice(rules, arena, region, rewritten, schedule, options, &change);
    if (kernel) {
        lib_log_write(&context->log,
                      "dlc: region %s is scheduled with `choose %s`, since its rules' schedule fails: %s", region->name,
                      change, error.message);
        atomic_fetch_add_explicit(&context->refused_schedules, 1, memory_order_relaxed);
        return kernel;
    }
    /* Correct results by plain loops; the failure of the rules is logged. */
    lib_log_write(&context->log, "dlc: region %s runs by plain loops: %s", region->name, error.message);
    atomic_fetch_add_explicit(&context->interpreted_regions, 1, memory_order_relaxed);
    tir_schedule_init(schedule, arena);
    return NULL;
}

tir_kernel *jit_lower_region(dlc_program *program, lib_arena *arena, tir_region *region, tir_region **rewritten,
                             tir_schedule *schedule, const tir_lower_options *given, const jit_own *asked,
                             const jit_host *host) {
    dlc_context *context = program->context;
    const target *by = host ? host->target : context->target;
    tir_lower_options options = {.machine = host ? &host->machine : &context->machine,
                                 .verify = lib_environment_verify() > 0,
                                 .verify_steps = lib_environment_verify() > 1};
    if (given) {
        options.step = given->step;
        options.step_user = given->step_user;
    }
    region->excess_precision = !program->options.no_excess_precision;
    tir_schedule_init(schedule, arena);
    jit_own own = {0};
    if (!host) own = asked ? *asked : jit_own_schedule(program, arena, region);
    const jit_rules rules = {by, host ? host->device : context->device, host ? context->threads : context->width};
    const bool ruled = by->schedule && !lib_environment_lists(LIB_ENV_DISABLE, "rules");
    if (jit_has_choices(&own)) {
        if (ruled) return jit_lower_by_choices(&rules, arena, region, &own, rewritten, schedule, &options);
        own.text = NULL;
        lib_log_write(&context->log, "dlc: schedule of region %s, line %d: its choices are ignored: %s", region->name,
                      own.line, by->schedule ? "DLC_DISABLE=rules" : "the target has no rules");
    } else if (!own.text && ruled) {
        tir_kernel *kernel = lower_by_target(context, &rules, arena, region, rewritten, schedule, &options);
        if (kernel) return kernel;
    }
    if (own.text) lib_text_format(&schedule->text, "%.*s\n", (int)own.length, own.text);
    schedule->first_line = own.line;
    return lower_as_asked(context, arena, region, rewritten, schedule, &options);
}

/* a lowered region, with data that its kernel does not keep */
typedef struct lowered_region {
    tir_region *rewritten;
    /* the rules failed and plain loops are used: not stored on disk */
    bool plain;
    const uint64_t *shares;
} lowered_region;

/* For each output, the bit set of inputs that it may overwrite under this schedule, which lowers to `kernel`. */
static uint64_t *find_shares(lib_arena *arena, const tir_region *region, const tir_schedule *schedule,
                             const tir_kernel *kernel) {
    uint64_t *shares = LIB_NEW_ARRAY(arena, uint64_t, (size_t)region->outputs + 1);
    /* overlapping tiles compute elements twice */
    if (schedule->text.data && strstr(schedule->text.data, "overlap")) return shares;
    for (int o = 0; o < region->outputs; o++)
        for (int i = 0; i < region->inputs && i < 64; i++)
            if (tir_region_same_point(region, kernel, i, o)) shares[o] |= UINT64_C(1) << i;
    return shares;
}

static void find_prefetch(void *user, const tir_stmt *stmt) {
    if (stmt->kind == TIR_PREFETCH) *(bool *)user = true;
}

/* Fills in what a run needs of a kernel, allocated in the kernel's arena. */
static void describe_kernel(jit_kernel *kernel, const tir_kernel *lowered, const lowered_region *description,
                            const target *from, const target_module *module, int number) {
    lib_arena *arena = &kernel->arena;
    const tir_region *region = description->rewritten;
    const tir_pool *pool = lowered->pool;
    tir_expr *map = LIB_NEW_ARRAY(arena, tir_expr, pool->variables.count + 1);
    kernel->pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(kernel->pool, arena);
    kernel->name = lib_arena_string(arena, lowered->name);
    kernel->params = LIB_NEW_ARRAY(arena, tir_expr, lowered->params.count + 1);
    kernel->param_count = (int)lowered->params.count;
    for (uint32_t p = 0; p < lowered->params.count; p++)
        kernel->params[p] = tir_import(kernel->pool, pool, lowered->params.data[p], map);
    kernel->phases = LIB_NEW_ARRAY(arena, jit_kernel_phase, lowered->phases.count + 1);
    kernel->phase_count = (int)lowered->phases.count;
    for (uint32_t p = 0; p < lowered->phases.count; p++) {
        const tir_phase *phase = &lowered->phases.data[p];
        kernel->phases[p] = (jit_kernel_phase){.function = from->phase(module, number, (int)p),
                                               .tasks = tir_import(kernel->pool, pool, phase->tasks, map),
                                               .repeat_phases = phase->repeat_phases};
        tir_stmt_walk(phase->body, find_prefetch, &kernel->phases[p].fetches);
        if (phase->repeat) kernel->phases[p].repeat = tir_import(kernel->pool, pool, phase->repeat, map);
    }
    if (lowered->workspace_size) kernel->workspace_size = tir_import(kernel->pool, pool, lowered->workspace_size, map);
    if (lowered->local_size) kernel->local_size = tir_import(kernel->pool, pool, lowered->local_size, map);
    kernel->inputs = region->inputs;
    kernel->input_layouts = LIB_NEW_ARRAY(arena, tir_layout, (size_t)region->inputs + 1);
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        const tir_tensor *tensor = &region->tensors.data[t];
        if (tensor->argument >= 0 && tensor->argument < region->inputs)
            kernel->input_layouts[tensor->argument] = tensor->layout;
    }
    kernel->outputs = region->outputs;
    kernel->shares = lib_arena_copy(arena, description->shares, ((size_t)region->outputs + 1) * sizeof *kernel->shares);
}

static dlc_status describe_guarded(jit_kernel *kernel, const tir_kernel *lowered, const lowered_region *region,
                                   const target *from, const target_module *module, int number) {
    if (LIB_ENTER(&kernel->scope)) describe_kernel(kernel, lowered, region, from, module, number);
    return kernel->scope.error.status;
}

/* Lowers kernels first .. last-1 of the job. */
static void lower_module(module_job *job, int first, int last, const jit_host *host, lib_arena *arena,
                         const tir_kernel **lowered, lowered_region *regions) {
    jit_build *build = job->build;
    for (int i = first; i < last; i++) {
        const jit_request *request = &build->requests[job->request[i]];
        job->lowering = request;
        tir_schedule schedule;
        lib_error error;
        if (jit_limits_reached(build->limits, &error)) lib_raise_error(arena->scope, &error);
        tir_region *region = jit_region_build(build, arena, request->region);
        uint64_t plain = atomic_load(&build->program->context->interpreted_regions);
        lowered[i] = jit_lower_region(build->program, arena, region, &regions[i].rewritten, &schedule, NULL,
                                      &request->own, host);
        regions[i].shares = find_shares(arena, region, &schedule, lowered[i]);
        regions[i].plain = atomic_load(&build->program->context->interpreted_regions) != plain;
        if (regions[i].plain && *request->origins)
            lib_log_write(&build->program->context->log, "dlc: region %s is%s", request->region->name,
                          request->origins);
    }
}

/* The cache file for the kernel of a one-kernel module, made before the kernel is published. Empty: not stored. */
static lib_text make_entry(dlc_context *context, lib_arena *arena, const jit_kernel *kernel,
                           const target_object *object) {
    lib_scope scope, *outer = arena->scope;
    lib_text entry = {0};
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) entry = jit_disk_entry(context, arena, kernel, object);
    arena->scope = outer;
    return scope.error.status == DLC_OK ? entry : (lib_text){0};
}

/* May the disk keep a module of `count` kernels, the first of this region? */
static bool may_be_stored(const dlc_context *context, int count, const jit_host *host, const lowered_region *region) {
    return count == 1 && !host && !region->plain && jit_disk_is_on(context);
}

static dlc_status load_module(module_job *job, int first, int last, const jit_host *host, lib_arena *arena,
                              const tir_kernel *const *lowered, const lowered_region *regions) {
    jit_build *build = job->build;
    dlc_context *context = build->program->context;
    const target *to = host ? host->target : context->target;
    target_device *device = host ? host->device : context->device;
    target_object object = {0};
    target_module *module = NULL;
    int count = last - first;
    if (jit_limits_reached(build->limits, &job->error)) return job->error.status;
    const target_budget budget = compile_budget(build);
    LIB_TRY(to->compile(device, &budget, count, lowered + first, &object, &job->error));
    const char *names[KERNELS_PER_MODULE];
    for (int i = 0; i < count; i++) names[i] = lowered[first + i]->name;
    dlc_status status = to->load(device, &object, count, names, &module, &job->error);
    jit_kernel *kernels[KERNELS_PER_MODULE];
    for (int i = 0; i < count && status == DLC_OK; i++) {
        jit_kernel *kernel = kernels[i] = build->requests[job->request[first + i]].kernel;
        kernel->host = host;
        status = describe_guarded(kernel, lowered[first + i], &regions[first + i], to, module, i);
        if (status != DLC_OK) job->error = kernel->scope.error;
    }
    lib_text entry = {0};
    jit_key key = build->requests[job->request[first]].kernel->key;
    if (status == DLC_OK && may_be_stored(context, count, host, &regions[first]))
        entry = make_entry(context, arena, kernels[0], &object);
    to->release_object(device, &object);
    if (status == DLC_OK)
        status = jit_cache_publish(context, kernels, count, module, to->module_bytes(module), &job->error);
    if (status == DLC_OK)
        job->published += count;
    else
        to->unload(device, module);
    if (status == DLC_OK && entry.length) jit_disk_write(context, &key, &entry);
    return status;
}

static dlc_status lower_guarded(module_job *job, int first, int last, const jit_host *host, lib_arena *arena,
                                const tir_kernel **lowered, lowered_region *regions) {
    lib_scope scope;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) lower_module(job, first, last, host, arena, lowered, regions);
    if (scope.error.status != DLC_OK) job->error = scope.error;
    const jit_request *at = job->lowering;
    if (scope.error.status != DLC_OK && !lib_is_circumstance(scope.error.status) && *at->origins)
        lib_fail(&job->error, scope.error.status, "%s (region %s%s)", scope.error.message, at->region->name,
                 at->origins);
    arena->scope = NULL;
    return scope.error.status;
}

/* Builds one kernel on the CPU target because the device's target refused it, for the reason in job->error. */
static dlc_status build_on_host(module_job *job, int i, lib_arena *arena, const tir_kernel **lowered,
                                lowered_region *regions) {
    dlc_context *context = job->build->program->context;
    const jit_host *host;
    const lib_error why = job->error;
    const char *name = job->build->requests[job->request[i]].region->name;
    const char *origins = job->build->requests[job->request[i]].origins;
    dlc_status status = jit_host_find(context, &host, &job->error);
    if (status == DLC_OK) status = lower_guarded(job, i, i + 1, host, arena, lowered, regions);
    if (status == DLC_OK) status = load_module(job, i, i + 1, host, arena, lowered, regions);
    if (status == DLC_OK) {
        lib_log_write(&context->log, "dlc: region %s%s runs on the host: %s", name, origins, why.message);
        atomic_fetch_add_explicit(&context->host_regions, 1, memory_order_relaxed);
        return DLC_OK;
    }
    const lib_error also = job->error;
    bool refused = also.status == DLC_UNSUPPORTED || also.status == DLC_COMPILE_FAILED;
    return lib_fail(&job->error, refused ? why.status : also.status, "region %s%s: %s; %s", name, origins, why.message,
                    also.message);
}

/* Builds kernels first .. last-1 as one module; if the target refuses it, splits it until single kernels are refused, which the
 * CPU target builds. */
static dlc_status build_part(module_job *job, int first, int last, lib_arena *arena, const tir_kernel **lowered,
                             lowered_region *regions) {
    dlc_status status = load_module(job, first, last, NULL, arena, lowered, regions);
    bool refused = status == DLC_UNSUPPORTED || status == DLC_COMPILE_FAILED;
    if (!refused || !job->build->program->context->target->runtime || lib_environment_lists(LIB_ENV_DISABLE, "host"))
        return status;
    if (last - first == 1) return build_on_host(job, first, arena, lowered, regions);
    int middle = (first + last) / 2;
    LIB_TRY(build_part(job, first, middle, arena, lowered, regions));
    return build_part(job, middle, last, arena, lowered, regions);
}

/* Calls the host's trace callback for a module that was built from `start` until now. */
static void trace_module(const module_job *job, uint64_t start) {
    const dlc_context *context = job->build->program->context;
    const jit_request *first = &job->build->requests[job->request[0]];
    char name[128];
    snprintf(name, sizeof name, job->count > 1 ? "%.80s and %d more" : "%.80s", first->region->name, job->count - 1);
    context->trace(context->trace_user, "compile", name, first->origins, start, context->clock_ns(context->clock_user));
}

static void build_module(module_job *job) {
    dlc_context *context = job->build->program->context;
    const uint64_t start = context->trace ? context->clock_ns(context->clock_user) : 0;
    lib_arena arena;
    lib_arena_init(&arena, &context->allocator, NULL);
    arena.limit = job->build->program->options.budget_bytes;
    arena.watch = &job->build->limits->watch;
    const tir_kernel *lowered[KERNELS_PER_MODULE];
    lowered_region regions[KERNELS_PER_MODULE];
    dlc_status status = lower_guarded(job, 0, job->count, NULL, &arena, lowered, regions);
    if (status == DLC_OK) status = build_part(job, 0, job->count, &arena, lowered, regions);
    for (int i = job->published; i < job->count && status != DLC_OK; i++)
        jit_cache_fail(context, job->build->requests[job->request[i]].kernel, &job->error);
    lib_arena_free(&arena);
    if (context->trace) trace_module(job, start);
}

/* Reports progress in kernels; called on the thread that binds. */
static void report_progress(const jit_build *build, uint32_t done, uint32_t total) {
    const dlc_compile_options *options = &build->program->options;
    if (options->progress && !(build->root->tier & JIT_TIER_BACKGROUND))
        options->progress(options->progress_user, "compile", (int)done, (int)total);
}

typedef struct module_jobs {
    const jit_build *build;
    module_job *job;
    uint32_t total;
    _Atomic uint32_t done;
} module_jobs;

/* Slot 0 is the thread that binds. Only it calls the host's progress callback, with the count of all slots. */
static void module_task(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase;
    module_jobs *jobs = user;
    for (int64_t i = begin; i < end; i++) {
        build_module(&jobs->job[i]);
        uint32_t done = atomic_fetch_add(&jobs->done, (uint32_t)jobs->job[i].count) + (uint32_t)jobs->job[i].count;
        if (slot == 0 && done < jobs->total) report_progress(jobs->build, done, jobs->total);
    }
}

/* ---- all missing kernels of a build */

static void fail_claims(jit_build *build, const lib_error *error) {
    for (uint32_t i = 0; i < build->request_count; i++)
        if (build->requests[i].claimed) jit_cache_fail(build->program->context, build->requests[i].kernel, error);
}

/* Loads kernels from disk, which settles their claims. */
static void find_on_disk(jit_build *build) {
    for (uint32_t i = 0; i < build->request_count; i++) {
        jit_request *request = &build->requests[i];
        if (request->claimed && jit_disk_find(build, request)) request->claimed = false;
    }
}

/* How many of the `left` kernels the next module gets; 1 if kernels are kept on disk. A module costs half a millisecond beside its
 * kernels, so one thread gets large modules; with several threads each module is a share of the kernels left, so that all end at about
 * the same time. */
static uint32_t module_size(const dlc_context *context, uint32_t left) {
    const uint32_t width = (uint32_t)context->compile_width, shares = width > 1 ? 2 * width : 1;
    const uint32_t size = (left + shares - 1) / shares;
    if (jit_disk_is_on(context)) return 1;
    return size < KERNELS_PER_MODULE ? size : KERNELS_PER_MODULE;
}

static void compile_claims(jit_build *build, lib_arena *work) {
    dlc_context *context = build->program->context;
    uint32_t missing = 0;
    if (jit_disk_is_on(context)) find_on_disk(build);
    uint32_t *numbers = LIB_NEW_ARRAY(work, uint32_t, build->request_count + 1);
    for (uint32_t i = 0; i < build->request_count; i++)
        if (build->requests[i].claimed) numbers[missing++] = i;
    if (!missing) return;
    atomic_fetch_add_explicit(&context->kernel_builds, missing, memory_order_relaxed);
    module_job *jobs = LIB_NEW_ARRAY(work, module_job, missing);
    uint32_t modules = 0;
    for (uint32_t first = 0, count; first < missing; first += count) {
        count = module_size(context, missing - first);
        jobs[modules++] = (module_job){.build = build, .request = numbers + first, .count = (int)count};
    }
    module_jobs all = {.build = build, .job = jobs, .total = missing};
    report_progress(build, 0, missing);
    if (context->compile_width > 1) {
        lib_phase phase = {.tasks = modules, .grain = 1};
        lib_run_phases(context->compile_pool, NULL, NULL, context->compile_width, 1, &phase, module_task, &all, NULL);
    } else {
        module_task(&all, 0, 0, modules, 0);
    }
    report_progress(build, missing, missing);
}

/* Builds or fails every claimed kernel, in all cases. */
static void settle_claims(jit_build *build, lib_arena *work) {
    lib_scope *outer = work->scope, scope;
    work->scope = &scope;
    if (LIB_ENTER(&scope))
        compile_claims(build, work);
    else
        fail_claims(build, &scope.error);
    work->scope = outer;
}

/* Waits for a kernel within this build's limits. */
static dlc_status pin(jit_build *build, jit_request *request, lib_error *error) {
    dlc_context *context = build->program->context;
    while (jit_cache_wait(context, request->kernel))
        if (jit_limits_reached(build->limits, error)) {
            jit_cache_leave(context, request->kernel);
            return error->status;
        }
    dlc_status status = jit_cache_pin(context, request->kernel, error);
    request->pinned = status == DLC_OK;
    return status;
}

/* Pins all requests that are not pinned yet. *left: number of requests whose kernel another build claimed and failed to build. */
static dlc_status pin_all(jit_build *build, uint32_t *left, lib_error *error) {
    dlc_status status = DLC_OK;
    *left = 0;
    for (uint32_t i = 0; i < build->request_count; i++) {
        jit_request *request = &build->requests[i];
        lib_error own;
        if (request->pinned) continue;
        bool others = !request->claimed;
        request->claimed = false;
        dlc_status one = pin(build, request, &own);
        if (one == DLC_OK) continue;
        request->kernel = NULL;
        ++*left;
        if (status != DLC_OK) continue;
        if (others && lib_is_circumstance(one)) {
            if (jit_limits_reached(build->limits, error))
                status = error->status; /* this build's status, not the other build's */
        } else {
            status = one;
            *error = own;
        }
    }
    return status;
}

void jit_leave_kernels(jit_build *build, const lib_error *error) {
    dlc_context *context = build->program->context;
    for (uint32_t i = 0; i < build->request_count; i++) {
        jit_request *request = &build->requests[i];
        if (request->pinned) jit_cache_unpin(context, request->kernel);
        if (request->claimed) jit_cache_fail(context, request->kernel, error);
        if (!request->pinned && request->kernel) jit_cache_leave(context, request->kernel);
        request->pinned = request->claimed = false;
        request->kernel = NULL;
    }
}

static dlc_status claim_again(jit_build *build, lib_error *error) {
    for (uint32_t i = 0; i < build->request_count; i++) {
        jit_request *request = &build->requests[i];
        if (request->pinned) continue;
        request->kernel = jit_cache_claim(build->program->context, &request->key, &request->claimed);
        if (!request->kernel) return lib_fail(error, DLC_OUT_OF_MEMORY, "the kernel cache could not grow");
    }
    return DLC_OK;
}

/* Settles all of this build's claims before it waits for kernels of other builds: otherwise two builds could wait for each other. */
dlc_status jit_build_kernels(jit_build *build, lib_arena *work, lib_error *error) {
    bool built = false;
    for (;;) {
        uint32_t left;
        for (uint32_t i = 0; i < build->request_count; i++) built |= build->requests[i].claimed;
        settle_claims(build, work);
        LIB_TRY(pin_all(build, &left, error));
        /* The target's compiler may have exceeded the budget; its kernels stay in the cache. */
        if (!left) return built && jit_limits_reached(build->limits, error) ? error->status : DLC_OK;
        LIB_TRY(claim_again(build, error));
    }
}
