/* System services for threads: time, usable CPUs, the floating-point state, mutex and condition.
 * The pool and the runs are in pool.c. */
#include "lib/lib.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

uint64_t lib_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the stack ---------------------------------------------------------------------------------- */

/* The thread's own stack, queried until the system reports it, and the stack of the current call if that is another one. */
static LIB_THREAD_LOCAL lib_stack own_stack, other_stack;

static bool is_on(const lib_stack *stack, uintptr_t here) {
    return here >= stack->low && here < stack->high;
}

static void find_own_stack(void) {
    pthread_attr_t attributes;
    void *start;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &start, &size) == 0)
        own_stack = (lib_stack){(uintptr_t)start, (uintptr_t)start + size};
    pthread_attr_destroy(&attributes);
}

size_t lib_stack_left(void) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!own_stack.high) find_own_stack();
    if (is_on(&own_stack, here)) return here - own_stack.low;
    return is_on(&other_stack, here) ? here - other_stack.low : 0;
}

static __attribute__((noinline, cold)) bool has_elsewhere(uintptr_t here, size_t need, size_t unknown) {
    if (!own_stack.high) find_own_stack();
    if (is_on(&own_stack, here)) return here - own_stack.low >= need;
    if (is_on(&other_stack, here)) return here - other_stack.low >= need;
    return unknown >= need;
}

bool lib_stack_has(size_t need, size_t unknown) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (is_on(&own_stack, here) && here - own_stack.low >= need) return true;
    return has_elsewhere(here, need, unknown);
}

lib_stack lib_stack_enter(size_t unknown) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    const lib_stack before = other_stack;
    enum { FRAME = 1024 }; /* bytes of the caller's frame, a public function, above this one's */
    if (!own_stack.high) find_own_stack();
    if (!is_on(&own_stack, here) && !is_on(&other_stack, here))
        other_stack = (lib_stack){unknown < here ? here - unknown : 0, here + FRAME};
    return before;
}

void lib_stack_leave(lib_stack before) {
    other_stack = before;
}

dlc_status lib_stack_check(size_t need, lib_error *error) {
    const size_t left = lib_stack_left();
    if (left >= need) return DLC_OK;
    return lib_fail(error, DLC_OUT_OF_MEMORY, "the thread's stack has %zu KiB left, at least %zu KiB are needed",
                    left >> 10, need >> 10);
}

void lib_stack_require(lib_scope *scope, size_t need) {
    lib_error error;
    if (lib_stack_check(need, &error) != DLC_OK) lib_raise_error(scope, &error);
}

/* ---- the message of its last failure ------------------------------------------------------------ */

static pthread_once_t messages_once = PTHREAD_ONCE_INIT;
static pthread_key_t messages;
static bool has_messages;

/* A thread's message is freed by a function of the C library, so that a thread may outlive this library. */
static void create_messages(void) {
    has_messages = pthread_key_create(&messages, free) == 0;
}

char *lib_thread_message(bool wanted) {
    pthread_once(&messages_once, create_messages);
    char *message = has_messages ? pthread_getspecific(messages) : NULL;
    if (message || !wanted || !has_messages) return message;
    message = malloc(LIB_MESSAGE_MAX);
    if (message && pthread_setspecific(messages, message) == 0) return message;
    free(message);
    return NULL;
}

/* For hosts that unload the library. */
__attribute__((destructor)) static void end_messages(void) {
    if (!has_messages) return;
    free(pthread_getspecific(messages));
    has_messages = false;
    pthread_key_delete(messages);
}

/* ---- usable CPUs -------------------------------------------------------------------------------- */

/* Allocates nothing: the number of CPUs must not depend on free memory. */
static int affinity_limit(void) {
    enum { LARGEST = 1 << 14 }; /* CPUs; the kernel refuses a mask that is smaller than its own: 8,192 on x86 */
    cpu_set_t set[LARGEST / CPU_SETSIZE];
    int count = sched_getaffinity(0, sizeof set, set) == 0 ? CPU_COUNT_S(sizeof set, set) : 0;
    if (count > 0) return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < 1 << 20 ? (int)online : 1;
}

bool lib_file_read_start(const char *path, char *buffer, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t count = read(file, buffer, size - 1);
    close(file);
    buffer[count > 0 ? count : 0] = 0;
    return count > 0;
}

static int quota_cpus(int limit, long long quota, long long period) {
    if (quota <= 0 || period <= 0) return limit;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < limit ? (int)cpus : limit;
}

/* The limit of one control group, of either version; `limit` if it sets none. */
static int group_limit(int limit, const char *root, const char *group) {
    char path[1024], text[64], period[64];
    long long quota, length;
    snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
    if (lib_file_read_start(path, text, sizeof text) && sscanf(text, "%lld %lld", &quota, &length) == 2) /* not "max" */
        limit = quota_cpus(limit, quota, length);
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_quota_us", root, group);
    if (!lib_file_read_start(path, text, sizeof text)) return limit;
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_period_us", root, group);
    if (!lib_file_read_start(path, period, sizeof period)) return limit;
    return quota_cpus(limit, atoll(text), atoll(period));
}

/* A quota may be set at any level above the process: visits /a/b/c, /a/b, /a and the root, which is also where a
 * container sees its own group. */
int lib_cpu_quota(int limit, const char *groups, const char *root) {
    char text[4096];
    if (!lib_file_read_start(groups, text, sizeof text)) return limit;
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (controllers[1] && !strstr(controllers, "cpu")) continue; /* "" is version 2 */
        for (char *cut; (cut = strrchr(group, '/')); *cut = 0) limit = group_limit(limit, root, group);
        limit = group_limit(limit, root, "");
    }
    return limit;
}

int lib_cpu_limit(void) {
    int limit = lib_cpu_quota(affinity_limit(), "/proc/self/cgroup", "/sys/fs/cgroup");
    return limit > 1 ? limit : 1;
}

/* ---- floating-point state ----------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
/* Low half MXCSR: all exceptions masked, to nearest, no FTZ, no DAZ; its low six bits are exception flags. High
 * half the x87 control word, which the C library's printf and strtod depend on: masked, to nearest, extended precision.
 */
#define FP_DEFAULT 0x037f00001f80u
enum { FP_FLAGS = 0x3f };
static uint64_t fp_read(void) {
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (uint64_t)x87 << 32 | _mm_getcsr();
}
static void fp_write(uint64_t control) {
    uint16_t x87 = (uint16_t)(control >> 32);
    _mm_setcsr((unsigned)control);
    __asm__ volatile("fldcw %0" : : "m"(x87));
}
#elif defined(__aarch64__)
enum { FP_DEFAULT = 0, FP_FLAGS = 0 }; /* FPCR */
static uint64_t fp_read(void) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}
static void fp_write(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}
#else
#include <fenv.h>
enum { FP_DEFAULT = FE_TONEAREST, FP_FLAGS = 0 };
static uint64_t fp_read(void) {
    return (uint64_t)fegetround();
}
static void fp_write(uint64_t control) {
    fesetround((int)control);
}
#endif

/* Writing the register costs far more than reading it, and most hosts already have the required state. */
lib_fp_state lib_fp_enter(void) {
    lib_fp_state state = {fp_read()};
    if ((state.control & ~(uint64_t)FP_FLAGS) != FP_DEFAULT) fp_write(FP_DEFAULT);
    return state;
}

void lib_fp_restore(lib_fp_state state) {
    if (fp_read() != state.control) fp_write(state.control);
}

#if defined(__x86_64__) || defined(__i386__)
lib_fp_state lib_fp_enter_vectors(void) {
    lib_fp_state state = {_mm_getcsr()};
    if ((state.control & ~(uint64_t)FP_FLAGS) != (FP_DEFAULT & 0xffff)) _mm_setcsr(FP_DEFAULT & 0xffff);
    return state;
}
void lib_fp_restore_vectors(lib_fp_state state) {
    if (_mm_getcsr() != state.control) _mm_setcsr((unsigned)state.control);
}
#else
lib_fp_state lib_fp_enter_vectors(void) {
    return lib_fp_enter();
}
void lib_fp_restore_vectors(lib_fp_state state) {
    lib_fp_restore(state);
}
#endif

/* ---- threads ------------------------------------------------------------------------------------ */

struct lib_thread {
    dlc_allocator allocator;
    pthread_t thread;
    void (*function)(void *user);
    void *user;
};

static void *thread_main(void *argument) {
    lib_thread *self = argument;
    self->function(self->user);
    return NULL;
}

lib_thread *lib_thread_start(const dlc_allocator *allocator, void (*function)(void *user), void *user,
                             lib_error *error) {
    lib_thread *thread = lib_allocate_zeroed(allocator, sizeof *thread, _Alignof(lib_thread));
    sigset_t all, before;
    if (!thread) {
        lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a thread");
        return NULL;
    }
    *thread = (lib_thread){.allocator = *allocator, .function = function, .user = user};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&thread->thread, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!refused) return thread;
    lib_fail(error, DLC_OUT_OF_MEMORY, "cannot start a thread: %s", strerror(refused));
    lib_release(allocator, thread, sizeof *thread, _Alignof(lib_thread));
    return NULL;
}

void lib_thread_end(lib_thread *thread, bool forked) {
    if (!thread) return;
    if (!forked) pthread_join(thread->thread, NULL);
    dlc_allocator allocator = thread->allocator;
    lib_release(&allocator, thread, sizeof *thread, _Alignof(lib_thread));
}

/* ---- mutex, condition --------------------------------------------------------------------------- */

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(lib_mutex), "lib_mutex is too small");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(lib_condition), "lib_condition is too small");

static pthread_mutex_t *mutex_of(lib_mutex *mutex) {
    return (pthread_mutex_t *)(void *)mutex->storage;
}
static pthread_cond_t *condition_of(lib_condition *condition) {
    return (pthread_cond_t *)(void *)condition->storage;
}

void lib_mutex_init(lib_mutex *mutex) {
    pthread_mutex_init(mutex_of(mutex), NULL);
}
void lib_mutex_destroy(lib_mutex *mutex) {
    pthread_mutex_destroy(mutex_of(mutex));
}
void lib_mutex_lock(lib_mutex *mutex) {
    pthread_mutex_lock(mutex_of(mutex));
}
void lib_mutex_unlock(lib_mutex *mutex) {
    pthread_mutex_unlock(mutex_of(mutex));
}
void lib_condition_init(lib_condition *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition_of(condition), &attributes);
    pthread_condattr_destroy(&attributes);
}
void lib_condition_destroy(lib_condition *condition) {
    pthread_cond_destroy(condition_of(condition));
}
void lib_condition_wait(lib_condition *condition, lib_mutex *mutex) {
    pthread_cond_wait(condition_of(condition), mutex_of(mutex));
}
void lib_condition_wait_ms(lib_condition *condition, lib_mutex *mutex, int milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(condition_of(condition), mutex_of(mutex), &until);
}
void lib_condition_broadcast(lib_condition *condition) {
    pthread_cond_broadcast(condition_of(condition));
}
