/* Which sizes get kernels of their own: kernels are counted for streams of sizes. A program of one kernel; by <dlc/dlc.h>, 32 runs of the same
 * shapes, or binds of a size, make it exact. */
#include "api/exact.h"

enum { RECURS = 32 };

typedef struct host {
    dlc_context *context;
    dlc_program *program;
    volatile int cancel;
    /* of failed builds */
    int lines;
} host;

static void count_line(void *user, const char *line) {
    host *h = user;
    h->lines += strstr(line, "generic kernels stay") != NULL;
}

/* False: this build has not the target. */
static bool open_host(host *h, int target, uint64_t plans) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_compile_options how = DLC_COMPILE_OPTIONS_INIT;
    *h = (host){0};
    options.plan_cache_entries = plans;
    options.log = count_line;
    options.log_user = h;
    how.cancel = &h->cancel;
    h->context = open_context(all_targets[target], &options);
    if (h->context) h->program = exact_program(h->context, &how);
    return h->context != NULL;
}

static void close_host(host *h) {
    dlc_program_destroy(h->program);
    dlc_context_destroy(h->context);
}

static void run_times(host *h, int times, int64_t n, int64_t m) {
    for (int i = 0; i < times; i++) run_exact(h->context, h->program, n, m);
}

static void assert_builds(const host *h, uint64_t kernels, uint64_t exact) {
    const dlc_statistics s = statistics(h->context);
    assert_int_equal(s.kernel_builds, kernels);
    assert_int_equal(s.tier_specialised, exact);
    assert_int_equal(s.tier_failures, 0);
}

/* The first, those of the range, and 1. */
static void test_new_sizes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        for (int64_t n = 200; n > 0; n--) run_times(&h, 3, n, 3);
        assert_builds(&h, 3, 0);
        close_host(&h);
    }
}

static void test_one_size(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        run_times(&h, 3 * RECURS, 20, 3);
        assert_builds(&h, 1, 0);
        close_host(&h);
    }
}

static void test_alternating_sizes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        for (int i = 1; i < 3 * RECURS; i++) {
            run_times(&h, 1, 20, 3);
            run_times(&h, 1, 30, 3);
            assert_builds(&h, i < RECURS ? 2 : 3, i >= RECURS);
        }
        close_host(&h);
    }
}

/* Four become exact and stay so; more are parameters. */
static void test_recurring_sizes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        for (int i = 0; i < RECURS; i++)
            for (int64_t n = 2; n < 6; n++) run_times(&h, 1, n, 3);
        assert_builds(&h, 5, 3);
        for (int i = 0; i < 2 * RECURS; i++)
            for (int64_t n = 2; n < 12; n++) run_times(&h, 1, n, 3);
        assert_int_equal(statistics(h.context).kernel_builds, 5);
        close_host(&h);
    }
}

static void test_recurring_amid_new_sizes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        for (int64_t n = 100; n < 300; n++) {
            run_times(&h, 1, n, 3);
            run_times(&h, 1, 7, 3);
        }
        assert_builds(&h, 3, 1);
        close_host(&h);
    }
}

/* Plans that do not stay count nothing: binds of the size do. */
static void test_evicted_plans(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 1)) continue;
        for (int i = 0; i < 2 * RECURS; i++) {
            run_times(&h, 1, 20, 3);
            run_times(&h, 1, 30, 3);
            run_times(&h, 1, 100 + i, 3);
        }
        assert_builds(&h, 3, 0);
        close_host(&h);
    }
}

/* A size that comes with another one each time: 8, beside the first one, 2. */
static void test_size_of_many_shapes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        run_times(&h, 1, 2, 2);
        for (int64_t n = 3; n < 3 + 4 * RECURS; n++) {
            run_times(&h, 1, n, 8);
            assert_int_equal(statistics(h.context).kernel_builds, n < 3 + RECURS ? 2 : 3);
        }
        close_host(&h);
    }
}

/* dlc_prepare makes sizes exact before they run, up to four; a plan that runs already is replaced. */
static void test_prepared_sizes(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        run_times(&h, 1, 9, 3);
        run_times(&h, 1, 4, 3); /* a parameter */
        for (int64_t n = 2; n < 9; n++)
            OK(h.context, dlc_prepare(h.program, (const int64_t *[]){SHAPE(n, 3)}, (int[]){2}, 1));
        assert_builds(&h, 5, 0);
        for (int64_t n = 2; n < 9; n++) run_times(&h, 2 * RECURS, n, 3);
        assert_builds(&h, 5, 0);
        close_host(&h);
    }
}

/* Neither runs with a time limit compile for shapes that are bound, nor those of a profile, which the plan has. */
static void test_runs_that_do_not_count(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        run_times(&h, 1, 20, 3);
        dlc_program_profile(h.program, 1);
        run_times(&h, 2 * RECURS, 30, 3);
        char *text;
        OK(h.context, dlc_program_dump(h.program, "profile", (const int64_t *[]){SHAPE(30, 3)}, (int[]){2}, 1, &text));
        assert_non_null(strstr(text, "64"));
        dlc_text_free(h.context, text);
        assert_builds(&h, 2, 0);
        dlc_program_profile(h.program, 0);
        static const float x[4 * 3];
        float y[4 * 3];
        tensor tx, ty;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.budget_ms = 100000;
        const DLTensor *input = F32(&tx, (void *)(uintptr_t)x, 4, 3);
        dlc_output_slot slot = {F32(&ty, y, 4, 3), NULL};
        for (int i = 0; i < 2 * RECURS && has_host_memory(all_targets[t]); i++)
            OK(h.context, dlc_run(h.program, &options, &input, 1, &slot, 1));
        assert_builds(&h, 2, 0);
        run_times(&h, RECURS, 4, 3);
        assert_builds(&h, 3, 1);
        close_host(&h);
    }
}

/* A bind that fails takes no size's place; a size whose exact kernels cannot be built keeps the others. */
static void test_failures(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 0)) continue;
        float x[9 * 3] = {0}, y[9 * 3];
        tensor tx, ty;
        const DLTensor *input = F32(&tx, x, 9, 3);
        dlc_output_slot slot = {F32(&ty, y, 9, 3), NULL};
        h.cancel = 1;
        assert_int_equal(dlc_run(h.program, NULL, &input, 1, &slot, 1), DLC_CANCELLED);
        h.cancel = 0;
        run_times(&h, 1, 5, 3);
        const uint64_t first = statistics(h.context).kernel_builds;
        run_times(&h, 1, 9, 3); /* a parameter, since 5 is the first */
        assert_builds(&h, first + 1, 0);
        run_times(&h, RECURS - 2, 9, 3);
        h.cancel = 1;
        run_times(&h, 2 * RECURS, 9, 3);
        h.cancel = 0;
        assert_int_equal(statistics(h.context).tier_failures, 1);
        assert_int_equal(h.lines, 1);
        const uint64_t builds = statistics(h.context).kernel_builds;
        run_times(&h, 2 * RECURS, 9, 3);
        assert_int_equal(statistics(h.context).tier_failures, 1);
        assert_int_equal(statistics(h.context).kernel_builds, builds);
        close_host(&h);
    }
}

/* Memory that is refused to the exact plan, at every site, is nothing that the run tells, and nothing leaks. */
static void test_refused_memory(void **state) {
    counter memory;
    dlc_allocator allocator = counting(&memory);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    bool built = false;
    (void)state;
    options.allocator = &allocator;
    for (int64_t site = 0; !built; site++) {
        host h = {.context = open_context("cpu", &options)}; /* runs of the interpreter allocate by themselves */
        if (!h.context) break;
        h.program = exact_program(h.context, NULL);
        run_times(&h, 1, 20, 3);
        run_times(&h, RECURS - 1, 30, 3);
        atomic_store(&memory.left, site);
        run_times(&h, 1, 30, 3);
        atomic_store(&memory.left, -1);
        built = statistics(h.context).tier_specialised > 0;
        assert_int_equal(statistics(h.context).tier_failures, !built);
        run_times(&h, 1, 30, 3);
        close_host(&h);
        assert_int_equal(memory.blocks, 0);
    }
}

/* ---- threads, whose runs make sizes exact at the same time */

typedef struct worker {
    host *host;
    unsigned seed;
} worker;

static void work(void *user) {
    worker *w = user;
    for (int i = 0; i < 10 * RECURS; i++) {
        w->seed = w->seed * 1664525u + 1013904223u; /* Numerical Recipes */
        run_exact(w->host->context, w->host->program, 1 + (w->seed >> 10) % 6, 2 + (w->seed >> 20) % 2);
    }
}

static void test_threads(void **state) {
    (void)state;
    host h;
    for (int t = 0; t < TARGETS; t++) {
        if (!open_host(&h, t, 8)) continue;
        worker workers[4];
        thread threads[4];
        for (unsigned i = 0; i < 4; i++) {
            workers[i] = (worker){&h, i};
            start_thread(&threads[i], work, &workers[i]);
        }
        join_threads(threads, 4);
        /* n: 1, four exact, any; m: two exact, any */
        assert_in_range(statistics(h.context).kernel_builds, 3, 6 * 3);
        assert_int_equal(statistics(h.context).tier_failures, 0);
        close_host(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_sizes),
        cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_alternating_sizes),
        cmocka_unit_test(test_recurring_sizes),
        cmocka_unit_test(test_recurring_amid_new_sizes),
        cmocka_unit_test(test_evicted_plans),
        cmocka_unit_test(test_size_of_many_shapes),
        cmocka_unit_test(test_prepared_sizes),
        cmocka_unit_test(test_runs_that_do_not_count),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("recurring sizes", tests, NULL, NULL);
}
