/* The plans of a program, by bound shapes.
 *
 * Runs look plans up without a lock; the table is changed under the program's mutex. A plan removed from the table is freed only
 * when no run can still use it: runs register as readers before the look-up, on one of two sides, chosen by the parity of the
 * epoch, and unregister at their end. A retired plan is put in the list of the epoch's side. The epoch advances when the *other*
 * side has no readers, and the plans in that side's list are freed then: their readers were on that side, or on this side before
 * the epoch last advanced, when it was empty. A reader that read the epoch long before it registers may end up on the other side:
 * this only keeps the epoch from advancing.
 *
 * Readers are counted by two counters that only grow (`left` is read before `entered`: if they are equal there is no reader), so
 * that a run costs one atomic addition at each end, and the number of runs needs no counter of its own. */
#include "jit/internal.h"

/* The table is open-addressed with a short probe; if all probed slots are full, the least recently used plan is evicted. */
enum { PROBES = 8, TABLE_MIN = 16 };

dlc_status jit_plans_init(dlc_program *program, lib_error *error) {
    size_t size = TABLE_MIN;
    while (size < 2 * program->context->plan_entries && size < (size_t)1 << 24) size *= 2;
    program->table = lib_allocate_zeroed(&program->context->allocator, size * sizeof *program->table, 64);
    if (!program->table) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a table of %zu plans", size);
    program->table_size = (uint32_t)size;
    return DLC_OK;
}

/* ---- readers */

static unsigned reader_enter(dlc_program *program) {
    unsigned side = (unsigned)atomic_load_explicit(&program->epoch, memory_order_acquire) & 1;
    atomic_fetch_add(&program->readers[side].entered,
                     1); /* sequentially consistent: ordered before the look-up that follows */
    return side;
}

void jit_plans_leave(dlc_program *program, unsigned side) {
    atomic_fetch_add_explicit(&program->readers[side].left, 1, memory_order_release);
}

uint64_t jit_plans_runs(const dlc_program *program) {
    dlc_program *p = (dlc_program *)(uintptr_t)program; /* C11 cannot load const atomics */
    return atomic_load(&p->readers[0].entered) + atomic_load(&p->readers[1].entered) - atomic_load(&p->not_runs);
}

/* ---- retiring plans; the mutex is held */

static void free_list(jit_plan *plan) {
    while (plan) {
        jit_plan *next = plan->next;
        jit_plan_free(plan);
        plan = next;
    }
}

static void free_unless_held(dlc_program *program, jit_plan *plan) {
    while (plan) {
        jit_plan *next = plan->next;
        if (plan->holders) {
            plan->next = program->held;
            program->held = plan;
        } else {
            jit_plan_free(plan);
        }
        plan = next;
    }
}

static bool advance_epoch(dlc_program *program) {
    uint64_t epoch = atomic_load(&program->epoch);
    unsigned other = (unsigned)(epoch + 1) & 1;
    uint64_t left = atomic_load(&program->readers[other].left);
    if (atomic_load(&program->readers[other].entered) != left) return false;
    jit_plan *free_now = program->retired[other];
    program->retired[other] = NULL;
    atomic_store(&program->epoch, epoch + 1);
    free_unless_held(program, free_now);
    return true;
}

static void replace(dlc_program *program, _Atomic(jit_plan *) *entry, jit_plan *by) {
    unsigned now = (unsigned)atomic_load(&program->epoch) & 1;
    jit_plan *plan = atomic_exchange(entry, by);
    plan->next = program->retired[now];
    program->retired[now] = plan;
}

static void retire(dlc_program *program, _Atomic(jit_plan *) *entry) {
    replace(program, entry, NULL);
    program->plan_count--;
    atomic_fetch_add_explicit(&program->context->plan_evictions, 1, memory_order_relaxed);
}

/* The least recently used of `count` entries from `first` on, cyclically, other than `but`. NULL: none. */
static _Atomic(jit_plan *) *oldest_of(dlc_program *program, uint64_t first, uint32_t count, const jit_plan *but) {
    _Atomic(jit_plan *) *oldest = NULL;
    uint64_t oldest_use = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        _Atomic(jit_plan *) *entry = &program->table[(first + i) & (program->table_size - 1)];
        jit_plan *plan = atomic_load_explicit(entry, memory_order_relaxed);
        uint64_t use = plan ? atomic_load_explicit(&plan->last_use, memory_order_relaxed) : UINT64_MAX;
        if (use >= oldest_use || plan == but) continue;
        oldest = entry;
        oldest_use = use;
    }
    return oldest;
}

/* Tries to advance the epoch twice, after which a plan retired now is freed. Whether it could. */
static bool drain(dlc_program *program) {
    return advance_epoch(program) && advance_epoch(program);
}

/* Plans pin kernels, so a full cache is emptied by retiring plans. While readers still use retired plans, retiring more frees
 * nothing, so only a few are retired. The newest plan stays: its builder has not used it yet, and uses are not ordered within a
 * tick. */
static void respect_budget(dlc_program *program, const jit_plan *newest) {
    for (int held = 0; held < 2 && program->plan_count > 1 && jit_cache_over_budget(program->context);) {
        retire(program, oldest_of(program, 0, program->table_size, newest));
        if (!drain(program)) held++;
    }
}

/* ---- look-up */

/* Is the plan for these shapes? Compares all input dimensions: `count` is the same for all plans of a program. */
static bool has_shapes(const jit_plan *plan, const int64_t *shapes, int count) {
    int i = 0;
    while (i < count && plan->shapes[i] == shapes[i]) i++;
    return i == count;
}

/* On the critical path of every run: the multiplications are independent. */
static uint64_t hash_of(const int64_t *shapes, int count) {
    uint64_t hash = 0, factor = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < count; i++) {
        hash += ((uint64_t)shapes[i] + 1) * factor;
        factor += 0xbf58476d1ce4e5bau; /* factor stays odd */
    }
    return hash ^ hash >> 32;
}

static _Atomic(jit_plan *) *find_entry(dlc_program *program, uint64_t hash, const int64_t *shapes, int count) {
    for (uint32_t i = 0; i < PROBES; i++) {
        _Atomic(jit_plan *) *entry = &program->table[(hash + i) & (program->table_size - 1)];
        const jit_plan *plan = atomic_load(entry);
        if (plan && plan->hash == hash && has_shapes(plan, shapes, count)) return entry;
    }
    return NULL;
}

static jit_plan *find_plan(dlc_program *program, uint64_t hash, const int64_t *shapes, int count) {
    for (uint32_t i = 0; i < PROBES; i++) {
        jit_plan *plan = atomic_load(&program->table[(hash + i) & (program->table_size - 1)]);
        if (plan && plan->hash == hash && has_shapes(plan, shapes, count)) {
            uint64_t tick = atomic_load_explicit(&program->tick, memory_order_relaxed);
            if (atomic_load_explicit(&plan->last_use, memory_order_relaxed) != tick)
                atomic_store_explicit(&plan->last_use, tick, memory_order_relaxed);
            return plan;
        }
    }
    return NULL;
}

static void insert_plan(dlc_program *program, jit_plan *plan) {
    _Atomic(jit_plan *) *before = find_entry(program, plan->hash, plan->shapes, plan->shape_count);
    if (before) { /* an interim plan */
        atomic_store_explicit(&plan->last_use, atomic_load_explicit(&program->tick, memory_order_relaxed),
                              memory_order_relaxed);
        replace(program, before, plan);
        drain(program);
        respect_budget(program, plan);
        return;
    }
    while (program->plan_count >= program->context->plan_entries)
        retire(program, oldest_of(program, 0, program->table_size, NULL));
    _Atomic(jit_plan *) *entry = NULL;
    for (uint32_t i = 0; i < PROBES && !entry; i++) {
        _Atomic(jit_plan *) *at = &program->table[(plan->hash + i) & (program->table_size - 1)];
        if (!atomic_load_explicit(at, memory_order_relaxed)) entry = at;
    }
    if (!entry) {
        entry = oldest_of(program, plan->hash, PROBES, NULL);
        retire(program, entry);
    }
    uint64_t tick = atomic_fetch_add_explicit(&program->tick, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&plan->last_use, tick, memory_order_relaxed);
    atomic_store(entry, plan);
    program->plan_count++;
    drain(program);
    respect_budget(program, plan);
}

/* ---- building: without the mutex, since it takes long and calls the host (progress, log, clock). The shapes that a thread is
 * binding are on the program's list meanwhile; other threads that need them wait. */

/* The context in which this thread is binding. A call that the host makes from a callback must not wait for kernels that this
 * thread has claimed. */
static LIB_THREAD_LOCAL const dlc_context *binding_in;

static dlc_status run_init_plan(dlc_program *program, char *const *outputs, const size_t *sizes, lib_error *error) {
    jit_plan *plan = program->init_plan;
    if (program->context->target->runtime)
        return jit_device_compute(program, plan, (int)program->init_rest->outputs.count, sizes, outputs, error);
    return jit_plan_run(program, plan, NULL, outputs, &(jit_how){.limits = program->init_limits}, error);
}

/* Allocates memory for an output of the init graph. False: out of memory. */
static bool make_room(dlc_program *program, graph_constant *value, size_t bytes) {
    if (value->bytes) return true;
    value->size = bytes ? bytes : 1;
    if (value->size >= GRAPH_BYTES_LEAST) return jit_weight_make(program, value);
    value->bytes = lib_allocate_bytes(&program->context->allocator, value->size, TIR_BUFFER_ALIGNMENT);
    return value->bytes != NULL;
}

/* The init graph's outputs that are computed, in order. */
typedef struct init_outputs {
    uint32_t count;
    char **to;
    size_t *sizes;
} init_outputs;

/* Gives all outputs their memory. False: out of memory. */
static bool place_outputs(dlc_program *program, init_outputs *computed) {
    const graph *init = program->init;
    for (uint32_t o = 0; o < init->outputs.count; o++) {
        graph_constant *value = &program->init_values[o];
        jit_weight *transposed = program->transposed[o];
        if (transposed) {
            *value =
                (graph_constant){.bytes = transposed->name, .size = transposed->size, .holder = &transposed->holder};
            continue;
        }
        const uint32_t at = computed->count++;
        const int64_t *shape = &program->init_plan->output_shapes[at * DLC_MAX_RANK];
        size_t bytes = 1;
        for (int d = 0; d < program->init_plan->output_ranks[at]; d++) bytes *= (size_t)shape[d];
        computed->sizes[at] = lib_dtype_bytes(graph_shape_of(init, init->outputs.data[o])->dtype, bytes);
        if (!make_room(program, value, computed->sizes[at])) return false;
        computed->to[at] = (char *)(uintptr_t)value->bytes;
    }
    return true;
}

/* Runs the init graph, once per program: its outputs become constants of the main graph. Only one thread may be here. The run is part of
 * a bind and has the bind's limits. */
static dlc_status compute_init(dlc_program *program, lib_error *error) {
    const dlc_allocator *allocator = &program->context->allocator;
    const graph *rest = program->init_rest;
    jit_limits limits;
    jit_limits_begin(&limits, program);
    if (!program->init_plan && rest->outputs.count)
        LIB_TRY(jit_plan_build(program, rest, 0, NULL, NULL, 0, JIT_TIER_USUAL, &program->init_plan, error));
    const uint32_t count = program->init->outputs.count;
    if (!program->init_values)
        program->init_values = lib_allocate_zeroed(allocator, (count + 1) * sizeof(graph_constant), 16);
    char **outputs = lib_allocate_zeroed(allocator, (count + 1) * (sizeof *outputs + sizeof(size_t)), 16);
    init_outputs computed = {.to = outputs, .sizes = (size_t *)(void *)(outputs + count + 1)};
    const bool complete = program->init_values && outputs && place_outputs(program, &computed);
    program->init_limits = &limits;
    dlc_status status = DLC_OK;
    if (!complete)
        status = lib_fail(error, DLC_OUT_OF_MEMORY, "the precomputed constants were refused");
    else if (computed.count)
        status = run_init_plan(program, computed.to, computed.sizes, error);
    program->init_limits = NULL;
    if (status == DLC_CANCELLED && jit_limits_reached(&limits, error)) status = error->status; /* with the reason */
    lib_release(allocator, outputs, (count + 1) * (sizeof *outputs + sizeof(size_t)), 16);
    if (status != DLC_OK) return status;
    jit_plan_free(program->init_plan); /* and the constants that only it reads */
    program->init_plan = NULL;
    jit_weights_settle(program);
    return DLC_OK;
}

/* The mutex is held on entry and exit, but released while computing. */
static dlc_status run_init(dlc_program *program, lib_error *error) {
    while (atomic_load(&program->init_state) == JIT_INIT_RUNS) lib_condition_wait(&program->bound, &program->mutex);
    if (!program->init || atomic_load(&program->init_state) == JIT_INIT_DONE) return DLC_OK;
    atomic_store(&program->init_state, JIT_INIT_RUNS);
    lib_mutex_unlock(&program->mutex);
    dlc_status status = compute_init(program, error);
    lib_mutex_lock(&program->mutex);
    atomic_store(&program->init_state, status == DLC_OK ? JIT_INIT_DONE : JIT_INIT_MISSING);
    lib_condition_broadcast(&program->bound);
    return status;
}

static bool is_being_bound(const dlc_program *program, const jit_binding *wanted) {
    for (const jit_binding *b = program->bindings; b; b = b->next)
        if (b->hash == wanted->hash && b->count == wanted->count &&
            memcmp(b->shapes, wanted->shapes, (size_t)b->count * sizeof *b->shapes) == 0)
            return true;
    return false;
}

static void remove_binding(dlc_program *program, const jit_binding *binding) {
    jit_binding **at = &program->bindings;
    while (*at != binding) at = &(*at)->next;
    *at = binding->next;
    lib_condition_broadcast(&program->bound);
}

/* The mutex is held on entry and exit, but released while building. */
static dlc_status build_plan(dlc_program *program, jit_binding *binding, jit_tier tier, jit_plan **plan,
                             lib_error *error) {
    binding->next = program->bindings;
    program->bindings = binding;
    if (run_init(program, error) != DLC_OK) {
        remove_binding(program, binding);
        return error->status;
    }
    lib_mutex_unlock(&program->mutex);
    jit_dump_to_log(program, binding->shapes, tier, NULL);
    dlc_status status = jit_plan_build(program, program->graph, program->ordinary_inputs, program->init_values,
                                       binding->shapes, binding->count, tier, plan, error);
    if (status != DLC_OK && !lib_is_circumstance(status) &&
        tier == JIT_TIER_GENERIC) /* a build that fails for all sizes may succeed for these */
        status = jit_plan_build(program, program->graph, program->ordinary_inputs, program->init_values,
                                binding->shapes, binding->count, JIT_TIER_USUAL, plan, error);
    if (status == DLC_OK) jit_dump_to_log(program, binding->shapes, tier, *plan);
    lib_mutex_lock(&program->mutex);
    remove_binding(program, binding);
    if (status != DLC_OK) return status;
    (*plan)->hash = binding->hash;
    insert_plan(program, *plan);
    return DLC_OK;
}

/* A run accepts an interim plan; dlc_prepare and other explicit binds require the exact one, dumps only if it has been asked for. */
static bool suits(jit_plan *plan, jit_purpose purpose) {
    if (!plan || purpose == JIT_TO_RUN) return plan != NULL;
    const int interim = atomic_load_explicit(&plan->interim, memory_order_relaxed);
    return purpose == JIT_TO_SHOW ? interim != JIT_ASKED : !interim;
}

enum { ASK_AGAIN = 32 /* runs after which an exact plan is asked for again, if the queue was full */ };

/* Queues a background build of the exact plan. If memory is refused, the generic plan stays. */
static void ask_background(dlc_program *program, jit_plan *plan) {
    if (atomic_load(&plan->interim) != JIT_ASKED) return;
    switch (jit_background_add(program, plan->shapes, plan->shape_count, JIT_TIER_BACKGROUND)) {
    case JIT_QUEUED: atomic_fetch_add_explicit(&program->context->tier_generic, 1, memory_order_relaxed); break;
    case JIT_QUEUE_FULL: atomic_store(&plan->interim, JIT_ASKED + ASK_AGAIN); break;
    case JIT_NOT_QUEUED: atomic_store(&plan->interim, 0); break;
    }
}

/* For shapes without a plan. The mutex is held, which protects the plan until the reader has registered. */
static dlc_status wait_or_build(dlc_program *program, jit_binding *binding, jit_purpose purpose, bool *found,
                                jit_plan **plan, lib_error *error) {
    dlc_context *context = program->context;
    for (;;) {
        *plan = find_plan(program, binding->hash, binding->shapes, binding->count);
        *found = suits(*plan, purpose);
        if (*found) return DLC_OK;
        if (binding_in == context)
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "a callback of a compilation may run shapes that are bound already, but not bind others");
        if (!is_being_bound(program, binding)) break;
        lib_condition_wait(&program->bound, &program->mutex);
    }
    const dlc_context *outer = binding_in; /* the host may call this context from a callback of another */
    binding_in = context;
    const bool run = purpose == JIT_TO_RUN,
               generic = run && program->graph->symbols.count && jit_background_allowed(context);
    const jit_tier tier = generic ? JIT_TIER_GENERIC : run ? JIT_TIER_USUAL : JIT_TIER_EXACT;
    dlc_status status = build_plan(program, binding, tier, plan, error);
    if (status == DLC_OK && generic) ask_background(program, *plan);
    binding_in = outer;
    return status;
}

static dlc_status find_or_build(dlc_program *program, jit_binding *binding, jit_purpose purpose, jit_plan **plan,
                                unsigned *side, lib_error *error) {
    bool found;
    lib_call call __attribute__((cleanup(lib_call_leave)));
    LIB_TRY(graph_context_enter(program->context, &call, 0, error));
    lib_mutex_lock(&program->mutex);
    const bool run = purpose == JIT_TO_RUN;
    dlc_status status = wait_or_build(program, binding, purpose, &found, plan, error);
    if (status == DLC_OK) {
        *side = reader_enter(program);
        if (!run) atomic_fetch_add_explicit(&program->not_runs, 1, memory_order_relaxed);
        if (!run && found) atomic_fetch_add_explicit(&program->context->plan_hits, 1, memory_order_relaxed);
        if (run && !found) atomic_fetch_add_explicit(&program->misses, 1, memory_order_relaxed);
    }
    lib_mutex_unlock(&program->mutex);
    return status;
}

static void report_failure(dlc_program *program, const lib_error *error) {
    atomic_fetch_add_explicit(&program->context->tier_failures, 1, memory_order_relaxed);
    if (atomic_load(&program->closing) || atomic_exchange(&program->background_failed, true)) return;
    lib_log_write(&program->context->log, "dlc: compilation %sfor exact sizes failed, generic kernels stay: %s",
                  jit_background_allowed(program->context) ? "in the background " : "", error->message);
}

void jit_plans_specialise(dlc_program *program, const int64_t *shapes, int count, jit_tier tier) {
    jit_binding binding = {.hash = hash_of(shapes, count), .shapes = shapes, .count = count};
    lib_error error;
    jit_plan *plan;
    lib_call call; /* if the host forks during this call, the child cannot use the context */
    if (graph_context_enter(program->context, &call, 0, &error) != DLC_OK) return;
    const dlc_context *outer = binding_in;
    binding_in = program->context;
    lib_mutex_lock(&program->mutex);
    jit_plan *interim = find_plan(program, binding.hash, shapes, count);
    /* Not wanted if the plan was evicted, or an exact plan was bound explicitly meanwhile, or is being bound. */
    bool wanted = interim && atomic_load(&interim->interim) == JIT_ASKED && !is_being_bound(program, &binding);
    dlc_status status = wanted ? build_plan(program, &binding, tier, &plan, &error) : DLC_OK;
    if (status != DLC_OK) {
        interim = find_plan(program, binding.hash, shapes, count);
        if (interim) atomic_store(&interim->interim, 0); /* the generic plan stays for good */
    }
    lib_mutex_unlock(&program->mutex);
    binding_in = outer;
    lib_call_leave(&call);
    if (wanted && status == DLC_OK)
        atomic_fetch_add_explicit(&program->context->tier_specialised, 1, memory_order_relaxed);
    if (status != DLC_OK) report_failure(program, &error);
}

bool jit_plans_count_run(dlc_program *program, jit_plan *plan, int left, bool may_build) {
    if (!may_build && !jit_background_allowed(program->context)) return false;
    if (binding_in == program->context) return false; /* a callback of a compilation runs, but does not bind */
    if (atomic_load(&program->profile)) return false; /* the plan has the profile */
    /* of runs at the same time one is counted, so that JIT_ASKED is reached once */
    return atomic_compare_exchange_strong(&plan->interim, &left, left - 1) && left - 1 == JIT_ASKED;
}

static void ask_again(dlc_program *program, const int64_t *shapes, int count) {
    lib_mutex_lock(&program->mutex);
    jit_plan *plan = find_plan(program, hash_of(shapes, count), shapes, count);
    int asked = JIT_ASKED;
    if (plan) atomic_compare_exchange_strong(&plan->interim, &asked, JIT_ASKED + ASK_AGAIN);
    lib_mutex_unlock(&program->mutex);
}

void jit_plans_promote(dlc_program *program, const int64_t *shapes, int count) {
    dlc_context *context = program->context;
    const bool behind = jit_background_allowed(context);
    const jit_queued queued =
        behind ? jit_background_add(program, shapes, count, JIT_TIER_BACKGROUND | JIT_TIER_EXACT) : JIT_QUEUED;
    if (queued == JIT_QUEUE_FULL) {
        ask_again(program, shapes, count);
        return;
    }
    atomic_fetch_add_explicit(&context->tier_generic, 1, memory_order_relaxed);
    if (!behind)
        jit_plans_specialise(program, shapes, count, JIT_TIER_EXACT);
    else if (queued == JIT_NOT_QUEUED)
        atomic_fetch_add_explicit(&context->tier_failures, 1, memory_order_relaxed);
}

jit_plan *jit_plans_find(dlc_program *program, const int64_t *shapes, int count, unsigned *side) {
    *side = reader_enter(program);
    jit_plan *plan = find_plan(program, hash_of(shapes, count), shapes, count);
    if (plan) return plan;
    jit_plans_no_run(program);
    jit_plans_leave(program, *side);
    return NULL;
}

jit_tier jit_plans_tier(dlc_program *program, const int64_t *shapes, int count) {
    unsigned side;
    jit_plan *plan = jit_plans_find(program, shapes, count, &side);
    if (!plan) return JIT_TIER_EXACT;
    const bool usual = suits(plan, JIT_TO_SHOW);
    jit_plans_no_run(program);
    jit_plans_leave(program, side);
    return usual ? JIT_TIER_USUAL : JIT_TIER_EXACT;
}

void jit_plans_no_run(dlc_program *program) {
    atomic_fetch_add_explicit(&program->not_runs, 1, memory_order_relaxed);
}

dlc_status jit_plans_enter(dlc_program *program, const int64_t *shapes, int count, jit_purpose purpose, jit_plan **plan,
                           unsigned *side, lib_error *error) {
    uint64_t hash = hash_of(shapes, count);
    *side = reader_enter(program);
    *plan = find_plan(program, hash, shapes, count);
    if (*plan && purpose == JIT_TO_RUN) return DLC_OK;
    jit_plans_no_run(program);
    if (suits(*plan, purpose)) {
        atomic_fetch_add_explicit(&program->context->plan_hits, 1, memory_order_relaxed);
        return DLC_OK;
    }
    jit_plans_leave(program, *side);
    return find_or_build(program, &(jit_binding){.hash = hash, .shapes = shapes, .count = count}, purpose, plan, side,
                         error);
}

void jit_plans_hold(dlc_program *program, jit_plan *plan) {
    lib_mutex_lock(&program->mutex);
    plan->holders++;
    lib_mutex_unlock(&program->mutex);
}

void jit_plans_let_go(dlc_program *program, jit_plan *plan) {
    lib_mutex_lock(&program->mutex);
    jit_plan **at = &program->held;
    if (--plan->holders == 0) {
        while (*at && *at != plan) at = &(*at)->next;
        if (*at) {
            *at = plan->next;
            jit_plan_free(plan);
        }
    }
    lib_mutex_unlock(&program->mutex);
}

void jit_plans_free(dlc_program *program) {
    const dlc_allocator *allocator = &program->context->allocator;
    for (uint32_t i = 0; i < program->table_size; i++) jit_plan_free(atomic_load(&program->table[i]));
    free_list(program->retired[0]);
    free_list(program->retired[1]);
    free_list(program->held);
    jit_plan_free(program->init_plan);
    lib_release(allocator, program->table, program->table_size * sizeof *program->table, 64);
    if (!program->init_values) return;
    for (uint32_t o = 0; o < program->init->outputs.count; o++)
        if (!jit_weight_of(&program->init_values[o]))
            lib_release_bytes(allocator, (void *)(uintptr_t)program->init_values[o].bytes, program->init_values[o].size,
                              TIR_BUFFER_ALIGNMENT);
    lib_release(allocator, program->init_values, (program->init->outputs.count + 1) * sizeof(graph_constant), 16);
}
