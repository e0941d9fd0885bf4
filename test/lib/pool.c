/* Runs and the pool: every task exactly once, phases in order, slots never shared, whoever takes part and in whatever
 * order. Phase p writes plain data that phase p + 1 reads, so that the thread sanitizer checks the order as well. */
#include "lib/lib.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { TASKS_MAX = 2000, SLOTS = 64 };

typedef struct trial {
    int64_t phases;
    lib_phase phase[16];
    /* of a task: the number of phases that it has seen, plus its neighbours' check */
    int64_t value[TASKS_MAX];
    atomic_int busy[SLOTS];
    atomic_int wrong;
    int participants;
    /* of every task, to let others in */
    int nap_us;
    lib_pool *nested;
    int cancel;
    /* phase at whose task 0 to cancel, or -1 */
    int64_t cancel_at;
    /* tasks counted at the end, by phase */
    int64_t seen[16];
    atomic_llong ran[16];
    /* bit per slot */
    atomic_ullong slots_seen;
} trial;

static void nested_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase;
    atomic_llong *sum = user;
    for (int64_t i = begin; i < end; i++) *sum += i;
    if (slot != 0) *sum = -1000000;
}

/* A task checks that all tasks of the phase before have added one to their values: it looks at two of them. */
static void trial_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    trial *t = user;
    if (slot < 0 || slot >= t->participants || atomic_exchange(&t->busy[slot], 1)) atomic_fetch_add(&t->wrong, 1);
    if (begin >= end || begin < 0 || end > t->phase[phase].tasks) atomic_fetch_add(&t->wrong, 1);
    atomic_fetch_or(&t->slots_seen, 1ull << slot);
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&t->ran[phase], 1);
        if (phase == t->cancel_at && i == 0) __atomic_store_n(&t->cancel, 1, __ATOMIC_RELAXED);
        if (phase % 2 == 0) { /* even phases write value[i], odd ones only read */
            t->value[i] = phase * 10000 + i;
        } else {
            int64_t other = (i * 7 + 3) % t->phase[phase - 1].tasks;
            if (t->cancel_at < 0 && t->value[other] != (phase - 1) * 10000 + other) atomic_fetch_add(&t->wrong, 1);
        }
        if (t->nap_us) {
            struct timespec nap = {0, t->nap_us * 1000};
            nanosleep(&nap, NULL);
        }
    }
    if (t->nested) {
        atomic_llong sum = 0;
        lib_phase inner = {100, 1, false};
        lib_run_phases(t->nested, NULL, NULL, 8, 1, &inner, nested_body, &sum, NULL);
        if (sum != 4950) atomic_fetch_add(&t->wrong, 1);
    }
    atomic_store(&t->busy[slot], 0);
}

static void trial_init(trial *t, int participants, int64_t phases, const int64_t *tasks, int64_t grain) {
    memset(t, 0, sizeof *t);
    t->participants = participants;
    t->phases = phases;
    t->cancel_at = -1;
    for (int64_t p = 0; p < phases; p++) t->phase[p] = (lib_phase){tasks[p], grain, p % 3 == 1};
}

static bool trial_run(trial *t, lib_pool *pool, lib_parallel_for parallel_for, void *user) {
    return lib_run_phases(pool, parallel_for, user, t->participants, t->phases, t->phase, trial_body, t, &t->cancel);
}

static bool trial_is_right(const trial *t) {
    for (int64_t p = 0; p < t->phases; p++)
        if (t->ran[p] != t->phase[p].tasks) return false;
    return t->wrong == 0;
}

static const int64_t shapes[][6] = {{1, 1, 1, 1, 1, 1},         {7, 5, 13, 1, 64, 64},    {2, 2, 2, 2, 2, 2},
                                    {1000, 997, 1, 1, 1999, 3}, {0, 0, 5, 5, 0, 0},       {0, 0, 0, 0, 0, 0},
                                    {3, 0, 8, 0, 1, 1},         {1, 100, 1, 100, 1, 100}, {100, 1, 100, 1, 100, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void try_all(lib_pool *pool, lib_parallel_for parallel_for, void *user) {
    static const int64_t grains[] = {1, 3, 64, 5000, 0};
    static const int participants[] = {1, 2, 3, 8, 64};
    trial *t = malloc(sizeof *t);
    for (int s = 0; s < SHAPES; s++)
        for (int g = 0; g < 5; g++)
            for (int p = 0; p < 5; p++) {
                int64_t tasks[6];
                memcpy(tasks, shapes[s], sizeof tasks);
                /* an odd phase reads the phase before: that must not be empty */
                for (int i = 1; i < 6; i += 2)
                    if (tasks[i - 1] == 0) tasks[i] = 0;
                trial_init(t, participants[p], 6, tasks, grains[g]);
                assert_true(trial_run(t, pool, parallel_for, user));
                assert_true(trial_is_right(t));
            }
    free(t);
}

static lib_pool *pool_of(int threads, int64_t spin_us) {
    lib_error error = {DLC_OK, ""};
    lib_pool *pool = lib_pool_new(&lib_libc_allocator, threads, spin_us, &error);
    if (!pool) fail_msg("%s", error.message);
    return pool;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static void sequential(void *user, int64_t count, void (*body)(void *, int64_t), void *argument) {
    (void)user;
    for (int64_t i = 0; i < count; i++) body(argument, i);
}

static void reversed(void *user, int64_t count, void (*body)(void *, int64_t), void *argument) {
    (void)user;
    for (int64_t i = count - 1; i >= 0; i--) body(argument, i);
}

/* A host whose pool is busy: one thread of many takes everything up. */
static void one_of_eight(void *user, int64_t count, void (*body)(void *, int64_t), void *argument) {
    (void)user;
    body(argument, 5 % count);
    for (int64_t i = 0; i < count; i++)
        if (i != 5 % count) body(argument, i);
}

/* Breaks the contract: calls one body and forgets the others. The run must be finished nevertheless. */
static void forgetful(void *user, int64_t count, void (*body)(void *, int64_t), void *argument) {
    (void)user;
    if (count > 6) body(argument, 6);
}

typedef struct host_call {
    void (*body)(void *, int64_t);
    void *argument;
    int64_t index;
} host_call;

static void *host_thread(void *argument) {
    host_call *call = argument;
    call->body(call->argument, call->index);
    return NULL;
}

static void threaded(void *user, int64_t count, void (*body)(void *, int64_t), void *argument) {
    (void)user;
    pthread_t thread[64];
    host_call call[64];
    int64_t threads = count < 3 ? count : 3;
    for (int64_t i = 0; i < threads; i++) {
        call[i] = (host_call){body, argument, i};
        if (pthread_create(&thread[i], NULL, host_thread, &call[i]) != 0) abort();
    }
    for (int64_t i = threads; i < count; i++) body(argument, i);
    for (int64_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

static void test_hosts(void **state) {
    (void)state;
    try_all(NULL, NULL, NULL);
    try_all(NULL, sequential, NULL);
    try_all(NULL, reversed, NULL);
    try_all(NULL, one_of_eight, NULL);
    try_all(NULL, forgetful, NULL);
    try_all(NULL, threaded, NULL);
}

/* ---- pool ------------------------------------------------------------------------------------------------------- */

static void test_pool(void **state) {
    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        lib_pool *pool = pool_of(threads, threads == 2 ? 100 : 0);
        assert_in_range(lib_pool_threads(pool), 1, threads > 1 ? threads : 1);
        for (int i = 0; i < 5; i++) try_all(pool, NULL, NULL);
        lib_pool_free(pool);
    }
    lib_pool_free(NULL);
    lib_pool *huge = pool_of(1 << 30, 0);
    assert_int_equal(lib_pool_threads(huge), lib_cpu_limit() < 1024 ? lib_cpu_limit() : 1024);
    lib_pool_free(huge);
}

static void test_workers_take_part(void **state) {
    (void)state;
    if (lib_cpu_limit() < 2) skip();
    lib_pool *pool = pool_of(2, 0);
    trial *t = malloc(sizeof *t);
    trial_init(t, 2, 1, (int64_t[]){200}, 1);
    t->nap_us = 100; /* 20 ms in all: the worker has time to wake up */
    assert_true(trial_run(t, pool, NULL, NULL));
    assert_true(trial_is_right(t));
    assert_int_equal(t->slots_seen, 3);
    free(t);
    lib_pool_free(pool);
}

static void test_many_short_runs(void **state) {
    (void)state;
    lib_pool *pool = pool_of(2, 20);
    trial *t = malloc(sizeof *t);
    for (int i = 0; i < 3000; i++) {
        trial_init(t, 2, 4, (int64_t[]){i % 5 + 1, i % 3, 2, 9}, 1);
        if (i % 100 == 0) usleep(200); /* lets the worker fall asleep */
        assert_true(trial_run(t, pool, NULL, NULL));
        assert_true(trial_is_right(t));
    }
    free(t);
    lib_pool_free(pool);
}

static void test_nested(void **state) {
    (void)state;
    lib_pool *pool = pool_of(2, 20);
    trial *t = malloc(sizeof *t);
    for (int i = 0; i < 50; i++) {
        trial_init(t, 2, 3, (int64_t[]){20, 20, 20}, 1);
        t->nested = pool;
        assert_true(trial_run(t, pool, NULL, NULL));
        assert_true(trial_is_right(t));
        trial_init(t, 8, 2, (int64_t[]){20, 20}, 1);
        t->nested = pool;
        assert_true(trial_run(t, NULL, threaded, NULL));
        assert_true(trial_is_right(t));
    }
    free(t);
    lib_pool_free(pool);
}

static void *caller_main(void *argument) {
    lib_pool *pool = argument;
    trial *t = malloc(sizeof *t);
    intptr_t wrong = 0;
    for (int i = 0; i < 300; i++) {
        trial_init(t, 1 + i % 4, 5, (int64_t[]){i % 50 + 1, 7, 30, 30, i % 2}, 1 + i % 3);
        wrong += !trial_run(t, pool, NULL, NULL) || !trial_is_right(t);
    }
    free(t);
    return (void *)wrong;
}

static void test_several_callers(void **state) {
    (void)state;
    enum { CALLERS = 20 }; /* more than a pool has run objects */
    lib_pool *pool = pool_of(2, 20);
    pthread_t thread[CALLERS];
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&thread[i], NULL, caller_main, pool), 0);
    for (int i = 0; i < CALLERS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    lib_pool_free(pool);
}

static void test_cancel(void **state) {
    (void)state;
    lib_pool *pool = pool_of(2, 20);
    trial *t = malloc(sizeof *t);
    lib_parallel_for hosts[] = {NULL, sequential, reversed, one_of_eight, threaded};
    for (int host = 0; host < 6; host++)
        for (int64_t at = 0; at < 4; at += 2) {
            trial_init(t, host == 5 ? 2 : 8, 4, (int64_t[]){500, 500, 500, 500}, 1);
            t->cancel_at = at;
            bool complete = trial_run(t, host == 5 ? pool : NULL, host == 5 ? NULL : hosts[host], NULL);
            assert_false(complete);
            assert_int_equal(t->wrong, 0);
            for (int64_t p = 0; p < 4; p++)
                if (p > at) assert_int_equal(t->ran[p], 0);
            /* the pool is usable afterwards */
            trial_init(t, 2, 1, (int64_t[]){10}, 1);
            assert_true(trial_run(t, pool, NULL, NULL) && trial_is_right(t));
            /* cancelled before it begins: nothing runs */
            trial_init(t, 2, 1, (int64_t[]){10}, 1);
            t->cancel = 1;
            assert_false(trial_run(t, host == 5 ? pool : NULL, host == 5 ? NULL : hosts[host], NULL));
            assert_int_equal(t->ran[0], 0);
        }
    /* cancelled by the last task: everything was done */
    trial_init(t, 1, 1, (int64_t[]){1}, 1);
    t->cancel_at = 0;
    assert_true(trial_run(t, NULL, NULL, NULL));
    free(t);
    lib_pool_free(pool);
}

static void count_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase, (void)slot;
    atomic_fetch_add((atomic_llong *)user, end - begin);
}

/* ends of units in the order in which they ran */
typedef struct walk {
    int64_t end[16];
    int count;
} walk;

static void walk_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    walk *w = user;
    (void)phase, (void)slot;
    assert_true(begin < end && end - begin <= 3 && w->count < 16);
    w->end[w->count++] = end;
}

/* One participant goes through a phase as it says, in units. */
static void test_backwards(void **state) {
    (void)state;
    static const int64_t wanted[] = {14, 11, 8, 5, 2};
    const lib_phase phase = {14, 3, true};
    walk w = {0};
    assert_true(lib_run_phases(NULL, NULL, NULL, 1, 1, &phase, walk_body, &w, NULL));
    assert_int_equal(w.count, 5);
    assert_memory_equal(w.end, wanted, sizeof wanted);
}

/* More units than a ticket can count: the grain grows. */
static void test_huge_phase(void **state) {
    (void)state;
    lib_pool *pool = pool_of(2, 20);
    atomic_llong sum = 0;
    lib_phase phase[2] = {{((int64_t)1 << 40) + 12345, (int64_t)1 << 20, false},
                          {(int64_t)1 << 62, (int64_t)1 << 61, true}};
    assert_true(lib_run_phases(pool, NULL, NULL, 2, 2, phase, count_body, &sum, NULL));
    assert_true(sum == phase[0].tasks + phase[1].tasks);
    sum = 0;
    lib_phase fine = {((int64_t)1 << 24) + 7, 1, true};
    assert_true(lib_run_phases(pool, NULL, NULL, 2, 1, &fine, count_body, &sum, NULL));
    assert_true(sum == fine.tasks);
    lib_pool_free(pool);
}

#ifndef __SANITIZE_THREAD__ /* which does not follow threads into a forked child */
static void test_fork(void **state) {
    (void)state;
    lib_pool *pool = pool_of(2, 20);
    trial *t = malloc(sizeof *t);
    trial_init(t, 2, 2, (int64_t[]){100, 100}, 1);
    assert_true(trial_run(t, pool, NULL, NULL));
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        trial_init(t, 2, 2, (int64_t[]){100, 100}, 1);
        bool good = trial_run(t, pool, NULL, NULL) && trial_is_right(t) && t->slots_seen == 1;
        lib_pool_free(pool);
        lib_pool *own = lib_pool_new(&lib_libc_allocator, 2, 0, NULL);
        good = good && own && trial_run(t, own, NULL, NULL);
        lib_pool_free(own);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    trial_init(t, 2, 2, (int64_t[]){100, 100}, 1);
    assert_true(trial_run(t, pool, NULL, NULL) && trial_is_right(t));
    free(t);
    lib_pool_free(pool);
}
#endif

/* ---- what tasks see -----------------------------------------------------------------------------------------------
 */

#if defined(__x86_64__)
#include <xmmintrin.h>

static void state_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase, (void)begin, (void)end, (void)slot;
    if ((_mm_getcsr() & ~0x3fu) != 0x1f80) atomic_fetch_add((atomic_int *)user, 1);
    volatile double tiny = 1e-300, zero = 0;
    volatile double raises = tiny * tiny + 1.0 / zero; /* flags must not leak to the caller */
    (void)raises;
    usleep(10);
}

static void test_floating_point_state(void **state) {
    (void)state;
    static const unsigned states[] = {0x1f80, 0x9fc0 /* FTZ, DAZ */, 0x5f80 /* up */, 0xffc0, 0x1fa0 /* inexact */};
    lib_pool *pool = pool_of(2, 20);
    unsigned before = _mm_getcsr();
    for (int i = 0; i < 5; i++)
        for (int way = 0; way < 3; way++) {
            atomic_int wrong = 0;
            lib_phase phase[2] = {{40, 1, false}, {40, 1, true}};
            _mm_setcsr(states[i]);
            lib_run_phases(way == 1 ? pool : NULL, way == 2 ? threaded : NULL, NULL, way ? 4 : 1, 2, phase, state_body,
                           &wrong, NULL);
            unsigned after = _mm_getcsr();
            _mm_setcsr(before);
            assert_int_equal(after, states[i]);
            assert_int_equal(wrong, 0);
        }
    lib_pool_free(pool);
}
#endif

static void mask_body(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase, (void)begin, (void)end;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (slot > 0 && !(sigismember(&mask, SIGINT) && sigismember(&mask, SIGPROF) && sigismember(&mask, SIGTERM)))
        atomic_fetch_add((atomic_int *)user, 1);
    usleep(100);
}

static void test_signals_are_blocked_in_workers(void **state) {
    (void)state;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    lib_pool *pool = pool_of(2, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < 32; s++) assert_int_equal(sigismember(&before, s), sigismember(&after, s));
    atomic_int wrong = 0;
    lib_phase phase = {50, 1, false};
    lib_run_phases(pool, NULL, NULL, 2, 1, &phase, mask_body, &wrong, NULL);
    assert_int_equal(wrong, 0);
    lib_pool_free(pool);
}

static void *refuse_all(void *user, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    return NULL;
}

static void test_refused_memory(void **state) {
    (void)state;
    dlc_allocator none = {refuse_all, NULL, NULL};
    lib_error error = {DLC_OK, ""};
    assert_null(lib_pool_new(&none, 2, 0, &error));
    assert_int_equal(error.status, DLC_OUT_OF_MEMORY);
    assert_non_null(strstr(error.message, "pool"));
    assert_null(lib_pool_new(&none, 2, 0, NULL));
}

static void test_cpu_limit(void **state) {
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int all = lib_cpu_limit();
    assert_in_range(all, 1, CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(lib_cpu_limit(), 1);
    lib_pool *pool = pool_of(4, 0);
    assert_int_equal(lib_pool_threads(pool), 1);
    lib_pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(lib_cpu_limit(), all);
}

static void write_file(const char *root, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Quotas of both versions of control groups, at the process' own level and above; parts of a CPU count as one. */
static void test_cpu_quota(void **state) {
    (void)state;
    static const char *const files[] = {
        "groups", "cpu.max", "a/cpu.max", "a/b/cpu.max", "cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"};
    static const char *const folders[] = {"a", "a/b", "cpu", "cpu/a"};
    char root[] = "/tmp/dlc-quotaXXXXXX", groups[64], path[256];
    assert_non_null(mkdtemp(root));
    snprintf(groups, sizeof groups, "%s/groups", root);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(lib_cpu_quota(64, groups, root), 64); /* no groups */
    write_file(root, "groups", "0::/a/b\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 64); /* without limits */
    write_file(root, "a/b/cpu.max", "max 100000\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 64);
    write_file(root, "a/cpu.max", "250000 100000\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 3);
    assert_int_equal(lib_cpu_quota(2, groups, root), 2);
    write_file(root, "a/b/cpu.max", "50000 100000\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 1);
    write_file(root, "groups", "0::/elsewhere\n");
    write_file(root, "cpu.max", "800000 100000\n"); /* a container's own group */
    assert_int_equal(lib_cpu_quota(64, groups, root), 8);
    write_file(root, "groups", "5:memory:/a/b\n4:cpu,cpuacct:/a\n");
    write_file(root, "cpu.max", "max 100000\n");
    write_file(root, "a/cpu.max", "max 100000\n");
    write_file(root, "cpu/a/cpu.cfs_quota_us", "-1\n");
    write_file(root, "cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 64);
    write_file(root, "cpu/a/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 4);
    write_file(root, "groups", "nonsense\n:\n");
    assert_int_equal(lib_cpu_quota(64, groups, root), 64);
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    for (int i = 4; i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(root), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_cpu_quota),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_workers_take_part),
        cmocka_unit_test(test_many_short_runs),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_several_callers),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_backwards),
        cmocka_unit_test(test_huge_phase),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_fork),
#endif
#if defined(__x86_64__)
        cmocka_unit_test(test_floating_point_state),
#endif
        cmocka_unit_test(test_signals_are_blocked_in_workers),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_cpu_limit),
    };
    return cmocka_run_group_tests_name("lib/pool", tests, NULL, NULL);
}
