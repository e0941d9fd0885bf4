/* Generic plans first, those for the very shapes behind: nobody sees the difference but in statistics. */
#include "api/exact.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 6, THREAD_RUNS = 60 };
#else
enum { ROUNDS = 40, THREAD_RUNS = 400 };
#endif

static pthread_t main_thread;

typedef struct host {
    dlc_context_options options;
    counter memory;
    dlc_allocator allocator;
    atomic_int lines;
    char last[512];
    /* time flies on other threads */
    atomic_bool late;
    /* time stands still there: they wait */
    atomic_bool stuck;
    _Atomic uint64_t now;
} host;

static void count_line(void *user, const char *line) {
    host *h = user;
    if (!strstr(line, "in the background")) return;
    atomic_fetch_add(&h->lines, 1);
    snprintf(h->last, sizeof h->last, "%s", line);
}

static uint64_t flying_clock(void *user) {
    host *h = user;
    while (atomic_load(&h->stuck) && !pthread_equal(pthread_self(), main_thread)) usleep(1000);
    bool late = atomic_load(&h->late) && !pthread_equal(pthread_self(), main_thread);
    return atomic_fetch_add(&h->now, late ? UINT64_C(100000000000) : 1000);
}

static dlc_context *open_host(host *h, const char *target) {
    *h = (host){.options = DLC_CONTEXT_OPTIONS_INIT};
    h->allocator = counting(&h->memory);
    h->options.background_compile = true;
    h->options.allocator = &h->allocator;
    h->options.log = count_line;
    h->options.clock_ns = flying_clock;
    h->options.log_user = h->options.clock_user = h;
    return open_context(target, &h->options);
}

static void close_host(host *h, dlc_context *context) {
    dlc_context_destroy(context);
    assert_int_equal(h->memory.blocks, 0);
    assert_int_equal(h->memory.bytes, 0);
}

/* Until nothing is to be done in the background. */
static dlc_statistics settle(dlc_context *context) {
    for (int i = 0; i < 6000; i++) {
        dlc_statistics s = statistics(context);
        if (s.tier_specialised + s.tier_failures >= s.tier_generic) return s;
        usleep(5000);
    }
    fail_msg("the background does not come to an end");
    return statistics(context);
}

static void test_swap(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        host h;
        dlc_context *context = open_host(&h, all_targets[t]);
        if (!context) continue;
        dlc_program *program = exact_program(context, NULL);
        run_exact(context, program, 5, 7);
        dlc_statistics first = statistics(context);
        assert_int_equal(first.tier_generic, 1);
        run_exact(context, program, 5, 7);
        dlc_statistics s = settle(context);
        assert_int_equal(s.tier_specialised, 1);
        uint64_t builds = s.kernel_builds;
        run_exact(context, program, 5, 7);
        for (int i = 0; i < 40; i++)
            run_exact(context, program, 6, 9); /* the generic kernels', until the sizes recur */
        s = settle(context);
        assert_int_equal(s.tier_specialised, 2);
        assert_int_equal(s.kernel_builds, builds + 1);
        for (int64_t n = 1; n < 30; n++) run_exact(context, program, n, n); /* sizes seen once: parameters */
        s = settle(context);
        assert_true(s.tier_generic < 10 && s.tier_failures == 0);
        assert_int_equal(s.plan_evictions, 0);
        assert_int_equal(s.runs, 72);
        assert_int_equal(h.lines, 0);
        dlc_program_destroy(program);
        close_host(&h, context);
    }
}

/* Who binds on purpose gets the plan for the very shapes, also where a generic one was. */
static void test_on_purpose(void **state) {
    (void)state;
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_program *program = exact_program(context, NULL);
    const int64_t shape[2] = {4, 4};
    OK(context, dlc_prepare(program, (const int64_t *[]){shape}, (int[]){2}, 1));
    run_exact(context, program, 4, 4);
    dlc_statistics s = statistics(context);
    assert_int_equal(s.tier_generic, 0);
    assert_int_equal(s.plan_builds, 1);
    const int64_t other[2] = {8, 4};
    run_exact(context, program, 8, 4);
    OK(context, dlc_prepare(program, (const int64_t *[]){other}, (int[]){2}, 1));
    s = statistics(context);
    assert_int_equal(s.tier_generic, 1);
    assert_in_range(s.plan_builds, 3,
                    4); /* behind, too, where only the second size, which is the first one's, is exact */
    run_exact(context, program, 8, 4);
    dlc_program_destroy(program);
    close_host(&h, context);
}

/* Two generic plans, then the second one's shapes on purpose, while the background waits: how many bytes there are before, and how many
 * plans a run of these shapes then makes. */
static uint64_t prepare_second(size_t cache_bytes, int64_t m, uint64_t *before) {
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_context_destroy(context);
    h.options.cache_bytes = cache_bytes;
    context = open_context("interp", &h.options);
    atomic_store(&h.stuck, true);
    dlc_program *program = exact_program(context, NULL);
    const int64_t shape[2] = {8, m};
    run_exact(context, program, 4, m);
    run_exact(context, program, 8, m);
    run_exact(context, program, 4, m); /* used as lately as the other one */
    *before = statistics(context).cache_bytes;
    OK(context, dlc_prepare(program, (const int64_t *[]){shape}, (int[]){2}, 1));
    uint64_t built = statistics(context).plan_builds;
    run_exact(context, program, 8, m);
    built = statistics(context).plan_builds - built;
    atomic_store(&h.stuck, false);
    dlc_program_destroy(program);
    close_host(&h, context);
    return built;
}

/* What was just bound stays, though it took another plan's place and the cache is full by it. */
static void test_full(void **state) {
    (void)state;
    for (int64_t m = 1; m < 9; m++) {
        uint64_t bytes, again;
        assert_int_equal(prepare_second(0, m, &bytes), 0);
        assert_int_equal(prepare_second((size_t)bytes + 64, m, &again), 0);
        assert_int_equal(again, bytes);
    }
}

/* Until no plan has been exchanged for a while, since jobs of plans that were evicted end without a word: how many there were. */
static uint64_t wait_until_quiet(dlc_context *context) {
    uint64_t before = 0, done = 0;
    for (int quiet = 0; quiet < 40; before = done) {
        done = statistics(context).tier_specialised;
        quiet = done == before ? quiet + 1 : 0;
        usleep(5000);
    }
    return done;
}

/* 3x of six symbols; shape `number` has sizes of one to four, which recur, so that each shape gets an exact plan. */
enum { SIX = 6 };
static dlc_program *six_program(dlc_context *context) {
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, SIX,
                            DIMS(SYMBOL("a"), SYMBOL("b"), SYMBOL("c"), SYMBOL("d"), SYMBOL("e"), SYMBOL("f")));
    dlc_output(g, "y", dlc_mul(x, dlc_scalar(g, DLC_F32, 3)));
    OK(context, dlc_compile(context, g, NULL, &program));
    dlc_graph_destroy(g);
    return program;
}

static void run_six(dlc_context *context, dlc_program *program, int number) {
    static float x[1 << (2 * SIX)], y[1 << (2 * SIX)];
    int64_t size[SIX];
    int count = 1, digits = number * 1103 % (1 << (2 * SIX));
    for (int d = 0; d < SIX; d++, digits /= 4) count *= (int)(size[d] = 1 + digits % 4);
    for (int i = 0; i < count; i++) x[i] = (float)(i % 19), y[i] = -1;
    tensor tx, ty;
    const DLTensor *input = &make_tensor(&tx, DLC_F32, x, SIX, size)->dl;
    dlc_output_slot slot = {&make_tensor(&ty, DLC_F32, y, SIX, size)->dl, NULL};
    OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
    for (int i = 0; i < count; i++) assert_true(y[i] == 3 * x[i]);
}

/* Shapes arrive faster than the background thread compiles them: the number of waiting jobs is bounded, and a shape whose job found no place is
 * compiled after it has run often enough. */
static void test_many_waiting(void **state) {
    enum { FIRST = 1000, MOST = 4000, AGAIN = 80, JOB_BYTES = 64 };
    (void)state;
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_context_destroy(context);
    h.options.cache_bytes = 128 << 10;
    context = open_context("interp", &h.options);
    atomic_store(&h.stuck, true);
    dlc_program *program = six_program(context);
    int64_t before = 0;
    for (int i = 0; i < MOST; i++) {
        if (i == FIRST) before = (int64_t)h.memory.bytes;
        run_six(context, program, i);
    }
    assert_true((int64_t)h.memory.bytes - before < (MOST - FIRST) * JOB_BYTES / 4);
    atomic_store(&h.stuck, false);
    const uint64_t done = wait_until_quiet(context);
    for (int i = 0; i < AGAIN; i++) run_six(context, program, MOST - 1);
    dlc_statistics s = statistics(context);
    for (int i = 0; i < 6000 && s.tier_specialised == done; i++) {
        usleep(5000);
        s = statistics(context);
    }
    assert_int_equal(s.tier_specialised, done + 1);
    assert_int_equal(s.tier_failures, 0);
    dlc_program_destroy(program);
    close_host(&h, context);
}

/* A program that goes away while it is being compiled for; contexts, likewise. */
static void test_destroy(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        host h;
        dlc_context *context = open_host(&h, all_targets[t]);
        if (!context) continue;
        for (int i = 0; i < ROUNDS; i++) {
            dlc_program *a = exact_program(context, NULL), *b = dense_program(context, "k");
            run_exact(context, a, 1 + i, 2);
            if (i % 3) run_exact(context, a, 2 + i, 3);
            if (i % 4 == 0) usleep(i * 50);
            dlc_program_destroy(a);
            dlc_program_destroy(b);
        }
        close_host(&h, context);
    }
}

/* Builds that fail in the background leave the generic kernels, and one line. */
static void test_failure(void **state) {
    (void)state;
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.budget_ms = 10000;
    dlc_program *program = exact_program(context, &options);
    atomic_store(&h.late, true);
    for (int64_t n = 1; n < 4; n++)
        for (int i = 0; i < 3; i++) {
            run_exact(context, program, n, 3);
            settle(context);
        }
    dlc_statistics s = settle(context);
    assert_int_equal(s.tier_specialised, 0);
    assert_int_equal(s.tier_failures, 3);
    assert_int_equal(h.lines, 1);
    assert_non_null(strstr(h.last, "budget_ms"));
    dlc_program_destroy(program);
    close_host(&h, context);
}

static void test_cancel(void **state) {
    (void)state;
    host h;
    volatile int cancel = 0;
    dlc_context *context = open_host(&h, "interp");
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.cancel = &cancel;
    dlc_program *program = exact_program(context, &options);
    run_exact(context, program, 3, 3);
    settle(context);
    cancel = 1;
    run_exact(context, program, 3, 3); /* bound already */
    static float large[2][4000];
    tensor tx, ty;
    const DLTensor *input = F32(&tx, large[0], 2000, 2); /* another range */
    dlc_output_slot slot = {F32(&ty, large[1], 2000, 2), NULL};
    assert_int_equal(dlc_run(program, NULL, &input, 1, &slot, 1), DLC_CANCELLED);
    cancel = 0;
    OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
    dlc_program_destroy(program);
    close_host(&h, context);
}

/* ---- threads that run, bind on purpose and destroy, with a cache that holds little */

typedef struct worker {
    dlc_context *context;
    dlc_program *shared;
    unsigned seed;
} worker;

static void work(void *user) {
    worker *w = user;
    for (int i = 0; i < THREAD_RUNS; i++) {
        w->seed = w->seed * 1664525u + 1013904223u;
        int64_t n = 1 + (w->seed >> 10) % 6, m = 1 + (w->seed >> 20) % 6;
        run_exact(w->context, w->shared, n, m);
        if (i % 40 == 7) {
            const int64_t shape[2] = {m, n};
            OK(w->context, dlc_prepare(w->shared, (const int64_t *[]){shape}, (int[]){2}, 1));
        }
        if (i % 50 == 11) {
            dlc_program *own = exact_program(w->context, NULL);
            run_exact(w->context, own, n, m);
            dlc_program_destroy(own);
        }
    }
}

static void test_threads(void **state) {
    (void)state;
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_context_destroy(context);
    h.options.plan_cache_entries = 5;
    h.options.cache_bytes = 100000;
    context = open_context("interp", &h.options);
    worker workers[4];
    thread threads[4];
    dlc_program *program = exact_program(context, NULL);
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (worker){.context = context, .shared = program, .seed = i};
        start_thread(&threads[i], work, &workers[i]);
    }
    join_threads(threads, 4);
    dlc_program_destroy(program);
    close_host(&h, context);
}

/* A forked child has no background: it compiles itself. */
static void test_fork(void **state) {
    (void)state;
    host h;
    dlc_context *context = open_host(&h, "interp");
    dlc_program *program = exact_program(context, NULL);
    run_exact(context, program, 2, 2);
    settle(context);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run_exact(context, program, 2, 2);
        run_exact(context, program, 3, 2);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_exact(context, program, 3, 2);
    dlc_program_destroy(program);
    close_host(&h, context);
}

int main(void) {
    main_thread = pthread_self();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap),    cmocka_unit_test(test_on_purpose), cmocka_unit_test(test_destroy),
        cmocka_unit_test(test_failure), cmocka_unit_test(test_cancel),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),    cmocka_unit_test(test_full),       cmocka_unit_test(test_many_waiting),
    };
    return cmocka_run_group_tests_name("tiers", tests, NULL, NULL);
}
