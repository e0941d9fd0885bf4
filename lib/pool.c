/* Runs: lists of phases of independent tasks, on the caller, on the workers of a pool, or through the host's
 * parallel_for.
 *
 * The tasks of a phase are cut into units of `grain` tasks. Each participant has a ticket, one atomic word that holds
 * the remaining units of its share: {next, end, participants}. A participant takes units from its own ticket, then from the
 * others', by compare-and-exchange on that word. A thread that holds a unit keeps the phase open, so everything else about
 * the phase is plain data that is read only while holding a unit, and written only while no thread can hold one:
 *   - by the opener of the run, before any ticket is filled;
 *   - by the participant whose finished units complete the phase; it fills the tickets of the next phase, or ends the
 * run.
 *
 * So no thread waits for a participant to arrive, the caller alone can finish, and a worker that joins a run late finds
 * either units or nothing. Run objects of a pool are never freed while workers live, so a worker may read
 * one that has ended, or that has been reused for another run: a unit that it takes belongs to whatever run the object
 * holds now. */
#include "lib/lib.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum {
    CACHE_LINE = 64,
    HOST_PARTICIPANTS_MAX = 64, /* of a run on the host's parallel_for, whose tickets are on the stack */
    POOL_THREADS_MAX = 1024,
    POOL_RUNS = 16,       /* concurrent runs of one pool; further runs use their callers only */
    RUN_SPIN_NS = 100000, /* how long a participant of an unfinished run spins before it sleeps */
    PAUSES_PER_CLOCK = 64
};

/* ---- gate: where threads wait for work ----------------------------------------------------------
 *
 * `epoch` counts announcements. A thread reads it, looks for work, and waits for it to change. */

typedef struct gate {
    atomic_uint epoch;
    /* some thread may be asleep */
    atomic_bool asleep;
    lib_mutex mutex;
    lib_condition condition;
} gate;

static void gate_init(gate *g) {
    atomic_init(&g->epoch, 0);
    atomic_init(&g->asleep, false);
    lib_mutex_init(&g->mutex);
    lib_condition_init(&g->condition);
}

static void gate_destroy(gate *g) {
    lib_condition_destroy(&g->condition);
    lib_mutex_destroy(&g->mutex);
}

/* Everything is sequentially consistent: either the announcer sees `asleep`, or the sleeper sees the new epoch. */
static void gate_announce(gate *g, bool wake) {
    atomic_fetch_add(&g->epoch, 1);
    if (!wake || !atomic_load(&g->asleep)) return;
    lib_mutex_lock(&g->mutex);
    atomic_store(&g->asleep, false);
    lib_condition_broadcast(&g->condition);
    lib_mutex_unlock(&g->mutex);
}

static void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void gate_wait(gate *g, unsigned epoch, uint64_t spin_ns) {
    for (uint64_t start = spin_ns ? lib_time_ns() : 0; spin_ns && lib_time_ns() - start < spin_ns;)
        for (int i = 0; i < PAUSES_PER_CLOCK; i++) {
            if (atomic_load_explicit(&g->epoch, memory_order_acquire) != epoch) return;
            cpu_pause();
        }
    lib_mutex_lock(&g->mutex);
    for (;;) {
        atomic_store(&g->asleep, true);
        if (atomic_load(&g->epoch) != epoch) break;
        lib_condition_wait(&g->condition, &g->mutex);
    }
    lib_mutex_unlock(&g->mutex);
}

/* ---- run ---------------------------------------------------------------------------------------- */

/* Bits of a ticket's word. */
enum { UNIT_BITS = 24, PARTICIPANT_BITS = 16 };
#define UNITS_MAX (((int64_t)1 << UNIT_BITS) - 1)

typedef struct ticket {
    _Alignas(CACHE_LINE) _Atomic(uint64_t) word;
} ticket;

static uint64_t ticket_word(int64_t next, int64_t end, int participants) {
    return (uint64_t)next << (UNIT_BITS + PARTICIPANT_BITS) | (uint64_t)end << PARTICIPANT_BITS |
           (uint64_t)participants;
}
static int64_t word_next(uint64_t word) {
    return (int64_t)(word >> (UNIT_BITS + PARTICIPANT_BITS));
}
static int64_t word_end(uint64_t word) {
    return (int64_t)(word >> PARTICIPANT_BITS) & UNITS_MAX;
}
static int word_participants(uint64_t word) {
    return (int)(word & ((1 << PARTICIPANT_BITS) - 1));
}

/* The arguments of lib_run_phases. */
typedef struct run_request {
    int64_t phases;
    const lib_phase *phase;
    lib_task_body body;
    void *user;
    const volatile int *cancel;
} run_request;

/* One cache line is constant, one is written by the opener of a phase and read once by the others, one is written by all:
 * starting and ending a phase costs the transfer of such lines between processors. */
typedef struct run {
    _Alignas(CACHE_LINE) gate *gate;
    /* [participants] */
    ticket *tickets;
    /* read only while holding a unit */
    _Alignas(CACHE_LINE) run_request request;
    /* current phase, and tasks of one of its units */
    int64_t current, grain;
    /* read at any time */
    /* as a bound for searching; the ticket decides whether a unit may be taken */
    atomic_int participants;
    atomic_bool ended, skipped;
    /* unfinished units of the current phase */
    _Alignas(CACHE_LINE) _Atomic(int64_t) left;
} run;

static int64_t phase_grain(const lib_phase *phase) {
    return phase->grain > 1 ? phase->grain : 1;
}

/* First unit of the share of ticket i. */
static int64_t share_begin(int64_t units, int i, int participants) {
    return (units * i + participants - 1) / participants;
}

static int64_t unit_count(int64_t tasks, int64_t grain) {
    return (tasks - 1) / grain + 1;
}

/* Opens the next phase that has tasks, or ends the run. No thread holds a unit. */
static void open_next_phase(run *r) {
    gate *g = r->gate; /* *r may be gone, or be another run, once it has ended */
    do r->current++;
    while (r->current < r->request.phases && r->request.phase[r->current].tasks <= 0);
    bool skip = r->current < r->request.phases && lib_is_raised(r->request.cancel);
    if (skip) atomic_store_explicit(&r->skipped, true, memory_order_relaxed);
    if (skip || r->current == r->request.phases) {
        atomic_store_explicit(&r->ended, true, memory_order_release);
        gate_announce(g, true);
        return;
    }
    int64_t tasks = r->request.phase[r->current].tasks, grain = phase_grain(&r->request.phase[r->current]);
    if ((tasks - 1) / UNITS_MAX >= grain) grain = (tasks - 1) / UNITS_MAX + 1;
    int64_t units = unit_count(tasks, grain);
    r->grain = grain;
    atomic_store_explicit(&r->left, units, memory_order_relaxed);
    /* Ticket 0 is never empty and is filled last: until then the phase cannot be completed, so no other thread fills
     * tickets. */
    int participants = atomic_load_explicit(&r->participants, memory_order_relaxed);
    for (int i = participants - 1; i >= 0; i--) {
        int64_t begin = share_begin(units, i, participants), end = share_begin(units, i + 1, participants);
        atomic_store_explicit(&r->tickets[i].word, ticket_word(begin, end, participants), memory_order_release);
    }
    gate_announce(g, units > 1);
}

/* Runs one unit of ticket i, which the caller holds. false: skipped, because the run is cancelled. */
static bool run_unit(run *r, int64_t unit, int i, int participants, int slot) {
    if (lib_is_raised(r->request.cancel)) {
        atomic_store_explicit(&r->skipped, true, memory_order_relaxed);
        return false;
    }
    const lib_phase *phase = &r->request.phase[r->current];
    if (phase->backwards) {
        int64_t units = unit_count(phase->tasks, r->grain);
        unit = share_begin(units, i, participants) + share_begin(units, i + 1, participants) - 1 - unit;
    }
    int64_t begin = unit * r->grain, rest = phase->tasks - begin;
    int64_t end = begin + (rest < r->grain ? rest : r->grain);
    r->request.body(r->request.user, r->current, begin, end, slot);
    return true;
}

/* Runs all remaining units of one ticket and returns their number; the caller keeps the phase open until it has counted them.
 */
static int64_t serve_ticket(run *r, int i, int slot) {
    ticket *t = &r->tickets[i];
    int64_t served = 0;
    bool skipping = false;
    uint64_t word = atomic_load_explicit(&t->word, memory_order_relaxed);
    while (word_next(word) < word_end(word) && slot < word_participants(word)) {
        int64_t unit = word_next(word), count = skipping ? word_end(word) - unit : 1;
        uint64_t taken = word + ticket_word(count, 0, 0);
        if (!atomic_compare_exchange_weak_explicit(&t->word, &word, taken, memory_order_acquire, memory_order_relaxed))
            continue;
        if (!skipping) skipping = !run_unit(r, unit, i, word_participants(word), slot);
        served += count;
        word = atomic_load_explicit(&t->word, memory_order_relaxed);
    }
    return served;
}

/* Runs units of the current phase while there are any; true if there were. The thread that completes the phase opens the next.
 */
static bool serve(run *r, int slot) {
    int participants = atomic_load_explicit(&r->participants, memory_order_relaxed);
    int64_t served = 0;
    if (slot >= participants) return false;
    for (int i = 0, at = slot; i < participants; i++, at = at + 1 < participants ? at + 1 : 0)
        served += serve_ticket(r, at, slot);
    if (!served) return false;
    if (atomic_fetch_sub_explicit(&r->left, served, memory_order_acq_rel) == served) open_next_phase(r);
    return true;
}

static void serve_until_ended(run *r, int slot, uint64_t spin_ns) {
    gate *g = r->gate;
    for (;;) {
        unsigned epoch = atomic_load(&g->epoch);
        if (atomic_load_explicit(&r->ended, memory_order_acquire)) return;
        if (!serve(r, slot)) gate_wait(g, epoch, spin_ns);
    }
}

/* ---- pool --------------------------------------------------------------------------------------- */

typedef struct worker {
    lib_pool *pool;
    int slot;
    pthread_t thread;
} worker;

struct lib_pool {
    /* bit i: runs[i] is in use */
    _Alignas(CACHE_LINE) atomic_uint active;
    atomic_bool stopping;
    /* its epoch shares a cache line with `active` */
    gate gate;
    run runs[POOL_RUNS];
    dlc_allocator allocator;
    /* of the whole allocation: pool, tickets [POOL_RUNS][threads], workers [threads - 1] */
    size_t size;
    uint64_t spin_ns;
    int threads, started;
    worker *workers;
    /* in a forked child the workers do not exist */
    lib_process process;
};

/* True while this thread runs tasks of a shared run: a run opened by a task uses its caller only. */
static LIB_THREAD_LOCAL bool inside_run;

static void *worker_main(void *argument) {
    worker *self = argument;
    lib_pool *pool = self->pool;
    inside_run = true;
    for (;;) {
        unsigned epoch = atomic_load(&pool->gate.epoch);
        if (atomic_load(&pool->stopping)) return NULL;
        unsigned active = atomic_load_explicit(&pool->active, memory_order_acquire);
        bool served = false;
        lib_fp_state state = lib_fp_enter();
        for (unsigned left = active; left; left &= left - 1)
            served |= serve(&pool->runs[__builtin_ctz(left)], self->slot);
        lib_fp_restore(state);
        uint64_t spin_ns = active && pool->spin_ns < RUN_SPIN_NS ? RUN_SPIN_NS : pool->spin_ns;
        if (!served) gate_wait(&pool->gate, epoch, spin_ns);
    }
}

/* 0 or an errno value. Signals belong to the host: they are never delivered to a worker. */
static int start_workers(lib_pool *pool) {
    sigset_t all, before;
    int refused = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; !refused && pool->started < pool->threads - 1; pool->started += !refused) {
        worker *w = &pool->workers[pool->started];
        *w = (worker){.pool = pool, .slot = pool->started + 1};
        refused = pthread_create(&w->thread, NULL, worker_main, w);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return refused;
}

lib_pool *lib_pool_new(const dlc_allocator *allocator, int threads, int64_t spin_us, lib_error *error) {
    int limit = threads > 1 ? lib_cpu_limit() : 1;
    if (threads > limit) threads = limit;
    if (threads > POOL_THREADS_MAX) threads = POOL_THREADS_MAX;
    if (threads < 1) threads = 1;
    size_t tickets = POOL_RUNS * (size_t)threads;
    size_t size = sizeof(lib_pool) + tickets * sizeof(ticket) + (size_t)threads * sizeof(worker);
    lib_pool *pool = lib_allocate_zeroed(allocator, size, CACHE_LINE);
    if (!pool) {
        lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a pool of %d threads (%zu bytes)", threads, size);
        return NULL;
    }
    pool->allocator = *allocator;
    pool->size = size;
    pool->threads = threads;
    pool->spin_ns = spin_us > 0 ? (uint64_t)spin_us * 1000 : 0;
    ticket *ticket_storage = (ticket *)(pool + 1);
    for (int i = 0; i < POOL_RUNS; i++) {
        pool->runs[i].gate = &pool->gate;
        pool->runs[i].tickets = ticket_storage + i * threads;
    }
    pool->workers = (worker *)(void *)(ticket_storage + tickets);
    gate_init(&pool->gate);
    pool->process = lib_process_here();
    int refused = start_workers(pool);
    if (refused) {
        lib_fail(error, DLC_OUT_OF_MEMORY, "cannot start thread %d of %d: %s", pool->started + 2, threads,
                 strerror(refused));
        lib_pool_free(pool);
        return NULL;
    }
    return pool;
}

void lib_pool_free(lib_pool *pool) {
    if (!pool) return;
    if (lib_process_is_here(
            &pool->process)) { /* a forked child has no workers to stop, and the mutex may be locked for ever */
        atomic_store(&pool->stopping, true);
        gate_announce(&pool->gate, true);
        for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
        gate_destroy(&pool->gate);
    }
    lib_process_forget(&pool->process);
    dlc_allocator allocator = pool->allocator;
    lib_release(&allocator, pool, pool->size, CACHE_LINE);
}

int lib_pool_threads(const lib_pool *pool) {
    return pool ? pool->threads : 1;
}

/* ---- running ------------------------------------------------------------------------------------ */

static bool run_alone(const run_request *request) {
    for (int64_t p = 0; p < request->phases; p++) {
        const lib_phase *phase = &request->phase[p];
        int64_t tasks = phase->tasks, step = request->cancel || phase->backwards ? phase_grain(phase) : tasks;
        for (int64_t done = 0, count; done < tasks; done += count) {
            if (lib_is_raised(request->cancel)) return false;
            count = tasks - done < step ? tasks - done : step;
            int64_t begin = phase->backwards ? tasks - done - count : done;
            request->body(request->user, p, begin, begin + count, 0);
        }
    }
    return true;
}

/* Takes a run object of the pool; NULL when all are in use. */
static run *claim_run(lib_pool *pool) {
    unsigned active = atomic_load_explicit(&pool->active, memory_order_relaxed), free_runs;
    do {
        free_runs = ~active & ((1u << POOL_RUNS) - 1);
        if (!free_runs) return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&pool->active, &active, active | (free_runs & -free_runs),
                                                    memory_order_acquire, memory_order_relaxed));
    return &pool->runs[__builtin_ctz(free_runs)];
}

/* The tickets of *r are empty. */
static void start_run(run *r, const run_request *request, int participants) {
    atomic_store_explicit(&r->participants, participants, memory_order_relaxed);
    atomic_store_explicit(&r->ended, false, memory_order_relaxed);
    atomic_store_explicit(&r->skipped, false, memory_order_relaxed);
    r->current = -1;
    r->request = *request;
    open_next_phase(r);
}

static bool run_on_pool(lib_pool *pool, const run_request *request, int participants) {
    run *r = claim_run(pool);
    if (!r) return run_alone(request);
    start_run(r, request, participants);
    serve_until_ended(r, 0, pool->spin_ns < RUN_SPIN_NS ? RUN_SPIN_NS : pool->spin_ns);
    bool skipped = atomic_load_explicit(&r->skipped, memory_order_relaxed);
    atomic_fetch_and_explicit(&pool->active, ~(1u << (r - pool->runs)), memory_order_release);
    return !skipped;
}

static void host_body(void *argument, int64_t index) {
    bool outer = inside_run;
    const int cancelability = lib_cancel_off();
    inside_run = true;
    lib_fp_state state = lib_fp_enter();
    serve_until_ended(argument, (int)index, RUN_SPIN_NS);
    lib_fp_restore(state);
    inside_run = outer;
    lib_cancel_restore(cancelability);
}

static bool run_on_host(lib_parallel_for parallel_for, void *parallel_user, const run_request *request,
                        int participants) {
    gate g;
    ticket tickets[HOST_PARTICIPANTS_MAX];
    run r = {.gate = &g, .tickets = tickets};
    for (int i = 0; i < participants; i++) atomic_init(&tickets[i].word, 0);
    gate_init(&g);
    start_run(&r, request, participants);
    parallel_for(parallel_user, participants, host_body, &r);
    host_body(&r, 0); /* returns at once, unless the host has called no body */
    gate_destroy(&g);
    return !atomic_load_explicit(&r.skipped, memory_order_relaxed);
}

bool lib_is_worth_sharing(int64_t phases, const lib_phase *phase) {
    for (int64_t p = 0; p < phases; p++)
        if (phase[p].tasks > phase_grain(&phase[p])) return true;
    return false;
}

bool lib_run_phases(lib_pool *pool, lib_parallel_for parallel_for, void *parallel_user, int participants,
                    int64_t phases, const lib_phase *phase, lib_task_body body, void *user,
                    const volatile int *cancel) {
    const run_request request = {.phases = phases, .phase = phase, .body = body, .user = user, .cancel = cancel};
    int most = pool ? pool->threads : parallel_for ? HOST_PARTICIPANTS_MAX : 1;
    if (participants > most) participants = most;
    if (participants > 1 &&
        (inside_run || (pool && !lib_process_is_here(&pool->process)) || !lib_is_worth_sharing(phases, phase)))
        participants = 1;
    lib_fp_state state = lib_fp_enter();
    bool complete;
    if (participants <= 1) {
        complete = run_alone(&request);
    } else {
        const int cancelability = lib_cancel_off(); /* waits are cancellation points; others wait for this one */
        inside_run = true;
        complete = pool ? run_on_pool(pool, &request, participants)
                        : run_on_host(parallel_for, parallel_user, &request, participants);
        inside_run = false;
        lib_cancel_restore(cancelability);
    }
    lib_fp_restore(state);
    return complete;
}
