/* Tiers (`background_compile`). A run with shapes that the program has not seen uses a generic plan, whose kernels take
 * every symbol as a parameter and which other shapes of the same ranges share. For sizes that are to be exact (sizes.c), a background thread of the
 * library builds the exact plan, which replaces the generic one. Jobs run in order of submission. Only the destruction of a program waits for its job. */
#include "jit/internal.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NICE = 10, MOST_WAITING = 256 /* jobs */ };

typedef struct job {
    struct job *next;
    dlc_program *program;
    jit_tier tier;
    int count;
    int64_t shapes[];
} job;

struct jit_background {
    dlc_context *context;
    /* guards the following fields */
    lib_mutex mutex;
    /* signalled when a job is added or ends, or `stopping` is set */
    lib_condition change;
    job *first, *last;
    int waiting;
    dlc_program *running;
    bool stopping;
    lib_thread *thread;
    /* process that has the thread: a forked child has none and drops jobs */
    lib_process process;
};

static size_t job_size(int count) {
    return sizeof(job) + (size_t)count * sizeof(int64_t);
}

static void release_job(dlc_context *context, job *done) {
    lib_release(&context->allocator, done, job_size(done->count), _Alignof(job));
}

static void run_jobs(void *user) {
    struct jit_background *b = user;
    /* Lower priority than the threads that run, for machines with few processors. Failure is ignored. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    lib_mutex_lock(&b->mutex);
    while (!b->stopping) {
        job *next = b->first;
        if (!next) {
            lib_condition_wait(&b->change, &b->mutex);
            continue;
        }
        b->first = next->next;
        b->waiting--;
        if (!b->first) b->last = NULL;
        b->running = next->program;
        lib_mutex_unlock(&b->mutex);
        jit_plans_specialise(next->program, next->shapes, next->count, next->tier);
        release_job(b->context, next);
        lib_mutex_lock(&b->mutex);
        b->running = NULL;
        lib_condition_broadcast(&b->change);
    }
    lib_mutex_unlock(&b->mutex);
}

dlc_status jit_background_open(dlc_context *context, lib_error *error) {
    struct jit_background *b = lib_allocate_zeroed(&context->allocator, sizeof *b, _Alignof(struct jit_background));
    if (!b) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: what compiles in the background");
    b->context = context;
    b->process = lib_process_here();
    lib_mutex_init(&b->mutex);
    lib_condition_init(&b->change);
    context->background = b;
    b->thread = lib_thread_start(&context->allocator, run_jobs, b, error);
    return b->thread ? DLC_OK : error->status;
}

void jit_background_close(dlc_context *context) {
    struct jit_background *b = context->background;
    if (!b) return;
    bool forked = !lib_process_is_here(&b->process);
    if (!forked) { /* in a forked child the mutex may be locked for ever */
        lib_mutex_lock(&b->mutex);
        b->stopping = true;
        lib_condition_broadcast(&b->change);
        lib_mutex_unlock(&b->mutex);
    }
    lib_thread_end(b->thread, forked);
    for (job *left = b->first, *next; left; left = next) {
        next = left->next;
        release_job(context, left);
    }
    if (!forked) {
        lib_condition_destroy(&b->change);
        lib_mutex_destroy(&b->mutex);
    }
    lib_process_forget(&b->process);
    lib_release(&context->allocator, b, sizeof *b, _Alignof(struct jit_background));
    context->background = NULL;
}

bool jit_background_allowed(const dlc_context *context) {
    return context->background && lib_process_is_here(&context->background->process);
}

/* Appends the job unless too many wait. */
static bool append_job(struct jit_background *b, job *added) {
    if (b->waiting >= MOST_WAITING) return false;
    if (b->last)
        b->last->next = added;
    else
        b->first = added;
    b->last = added;
    b->waiting++;
    lib_condition_broadcast(&b->change);
    return true;
}

jit_queued jit_background_add(dlc_program *program, const int64_t *shapes, int count, jit_tier tier) {
    struct jit_background *b = program->context->background;
    job *added = lib_allocate(&program->context->allocator, job_size(count), _Alignof(job));
    if (!added) return JIT_NOT_QUEUED;
    added->next = NULL;
    added->program = program;
    added->tier = tier;
    added->count = count;
    if (count) memcpy(added->shapes, shapes, (size_t)count * sizeof *shapes);
    lib_mutex_lock(&b->mutex);
    const bool queued = append_job(b, added);
    lib_mutex_unlock(&b->mutex);
    if (!queued) release_job(program->context, added);
    return queued ? JIT_QUEUED : JIT_QUEUE_FULL;
}

void jit_background_forget(dlc_program *program) {
    struct jit_background *b = program->context->background;
    if (!b || !lib_process_is_here(&b->process)) return;
    atomic_store(&program->closing, true); /* a running build stops at its next cancellation check */
    lib_mutex_lock(&b->mutex);
    b->last = NULL;
    for (job **at = &b->first; *at;) {
        job *one = *at;
        if (one->program == program) {
            *at = one->next;
            b->waiting--;
            release_job(program->context, one);
        } else {
            b->last = one;
            at = &one->next;
        }
    }
    while (b->running == program) lib_condition_wait(&b->change, &b->mutex);
    lib_mutex_unlock(&b->mutex);
}
