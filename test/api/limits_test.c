/* What ends a compilation before its time, and whom it concerns: cancellation and budgets over all of dlc_compile and binding, and builds
 * that wait for a kernel of somebody else's build. */
#include "api/support.h"
#include "test/share.h"

#include <unistd.h>

enum { ELEMENTS = 6 };

static dlc_graph *exp_graph(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_exp(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(ELEMENTS)))));
    return g;
}

/* One program that builds, and stops where it has claimed its kernels; another one, on a thread of its own, that wants the same. */
typedef struct pair {
    dlc_context *context;
    dlc_program *builder, *waiter;
    volatile int cancel_builder, cancel_waiter;
    /* the builder; else the waiter */
    bool give_up;
    bool met;
    /* in the middle of the build */
    checks checks;
    thread thread;
    dlc_status waited;
    atomic_bool has_waited;
    float out[ELEMENTS];
} pair;

static dlc_status run_exp(dlc_program *program, float *out) {
    static const float in[ELEMENTS] = {-2, -1, 0, 0.5f, 1, 3};
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, out, ELEMENTS), NULL};
    return dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, (void *)(uintptr_t)in, ELEMENTS)}, 1, &slot, 1);
}

static void check_exp(const float *out) {
    const double expected[ELEMENTS] = {exp(-2), exp(-1), 1, exp(0.5), exp(1), exp(3)};
    CLOSE(out, expected, ELEMENTS, 1e-6);
}

static void wait_for_kernel(void *user) {
    pair *p = user;
    p->waited = run_exp(p->waiter, p->out);
    atomic_store(&p->has_waited, true);
}

/* Within a minute. */
static bool finds_kernel(const pair *p, uint64_t hits) {
    for (int i = 0; i < 60000 && statistics(p->context).kernel_hits == hits; i++) usleep(1000);
    return statistics(p->context).kernel_hits != hits;
}
static bool ends_waiting(const pair *p) {
    for (int i = 0; i < 60000 && !atomic_load(&p->has_waited); i++) usleep(1000);
    return atomic_load(&p->has_waited);
}

static void wait_together(void *user) {
    pair *p = user;
    const uint64_t hits = statistics(p->context).kernel_hits;
    start_thread(&p->thread, wait_for_kernel, p);
    p->met = true;
    const bool found = finds_kernel(p, hits);
    __atomic_store_n(p->give_up ? &p->cancel_builder : &p->cancel_waiter, 1, __ATOMIC_RELAXED);
    CHECK(found);
    CHECK(p->give_up || ends_waiting(p)); /* while this build goes on */
}

static void meet(void *user, const char *stage, int done, int total) {
    pair *p = user;
    (void)stage, (void)done, (void)total;
    if (!p->met) run_checked(&p->checks, wait_together, p);
}

static void run_pair(const char *target, bool give_up) {
    pair p = {.context = open_context(target, NULL), .give_up = give_up};
    if (!p.context) return;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    dlc_graph *g = exp_graph(p.context);
    options.cancel = &p.cancel_waiter;
    OK(p.context, dlc_compile(p.context, g, &options, &p.waiter));
    options.cancel = &p.cancel_builder;
    options.progress = meet;
    options.progress_user = &p;
    OK(p.context, dlc_compile(p.context, g, &options, &p.builder));
    dlc_graph_destroy(g);
    float out[ELEMENTS];
    dlc_status built = run_exp(p.builder, out);
    if (p.met) join_threads(&p.thread, 1);
    report(&p.checks);
    assert_int_equal(built, give_up ? DLC_CANCELLED : DLC_OK);
    assert_int_equal(p.waited, give_up ? DLC_OK : DLC_CANCELLED);
    check_exp(give_up ? p.out : out);
    p.cancel_builder = p.cancel_waiter = 0;
    OK(p.context, run_exp(p.builder, out));
    OK(p.context, run_exp(p.waiter, p.out));
    assert_memory_equal(out, p.out, sizeof out);
    dlc_program_destroy(p.builder);
    dlc_program_destroy(p.waiter);
    dlc_context_destroy(p.context);
}

/* Whose build gives up keeps nobody else from building. */
static void test_builder_gives_up(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_pair(all_targets[t], true);
}

/* Who waits for the kernel of another build ends when its own limits say so. */
static void test_waiter_gives_up(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_pair(all_targets[t], false);
}

/* ---- passes over graphs, before there is any kernel */

typedef struct ticking {
    uint64_t now, tick;
    volatile int cancel;
    int looks, cancel_at;
} ticking;

static uint64_t tick(void *user) {
    ticking *t = user;
    if (++t->looks == t->cancel_at) t->cancel = 1;
    return t->now += t->tick;
}

/* x + c0, * c1, + c2 ...: nothing that a pass could shorten. */
static dlc_graph *long_graph(dlc_context *context, int nodes) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    for (int i = 0; i < nodes; i++) {
        dlc_value c = dlc_scalar(g, DLC_F32, 1 + i % 7);
        x = i % 2 ? dlc_max(x, c) : dlc_add(dlc_neg(x), c);
    }
    dlc_output(g, "y", x);
    return g;
}

static void test_graph_passes(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    enum { IN_COMPILE, IN_BIND };
    for (int which = IN_COMPILE; which <= IN_BIND; which++)
        for (int kind = 0; kind < (which == IN_COMPILE ? 3 : 2); kind++) { /* time, cancellation, memory */
            ticking t = {.now = 1};
            dlc_context_options context_options = DLC_CONTEXT_OPTIONS_INIT;
            context_options.clock_ns = tick;
            context_options.clock_user = &t;
            dlc_context *context = open_context("interp", &context_options);
            dlc_graph *g = long_graph(context, 20000);
            dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
            options.budget_ms = INT64_C(1) << 40; /* so that the clock is looked at */
            options.cancel = &t.cancel;
            if (kind == 0) options.budget_ms = 1000;
            if (kind == 2) options.budget_bytes = 100000;
            if (which == IN_COMPILE && kind == 0) t.tick = 100000000;
            if (which == IN_COMPILE && kind == 1) t.cancel_at = 5;
            dlc_program *program = NULL;
            dlc_status status = dlc_compile(context, g, &options, &program);
            const dlc_status expected = kind == 1 ? DLC_CANCELLED : DLC_BUDGET_EXCEEDED;
            if (which == IN_BIND) {
                OK(context, status);
                if (kind == 0) t.tick = 100000000;
                if (kind == 1) t.cancel_at = t.looks + 5;
                status = dlc_prepare(program, (const int64_t *[]){SHAPE(3)}, (int[]){1}, 1);
            }
            assert_int_equal(status, expected);
            assert_int_equal(statistics(context).kernel_builds, 0); /* it did not come so far */
            dlc_program_destroy(program);
            OK(context, dlc_compile(context, g, NULL, &program));
            dlc_program_destroy(program);
            dlc_graph_destroy(g);
            dlc_context_destroy(context);
        }
}

/* ---- constants that are computed while shapes are bound: what runs then, runs on the host's threads */

typedef struct computing {
    ticking ticking;
    bool by_time;
    int runs;
} computing;

/* Time is up, or the host gives up, when the first kernel begins. */
static void raise_limit(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    computing *c = user;
    if (c->runs++ == 0 && c->by_time) c->ticking.now += UINT64_C(2000000000);
    if (c->runs == 1 && !c->by_time) __atomic_store_n(&c->ticking.cancel, 1, __ATOMIC_RELAXED);
    for (int64_t i = 0; i < count; i++) body(argument, i);
}

static void test_precomputed(void **state) {
    (void)state;
    for (int by_time = 0; by_time < 2; by_time++) {
        computing c = {.ticking = {.now = 1}, .by_time = by_time};
        dlc_context_options context_options = DLC_CONTEXT_OPTIONS_INIT;
        context_options.clock_ns = tick;
        context_options.clock_user = &c.ticking;
        context_options.parallel_for = raise_limit;
        context_options.parallel_user = &c;
        context_options.parallel_width = 2;
        dlc_context *context = open_context("cpu", &context_options);
        if (!context) skip();
        dlc_graph *g;
        static const char text[] =
            "graph {\n  input x: f32[n]\n  r = rng_uniform(shape=[512, 512], stream=0)\n"
            "  d = dot(r, r)\n  e = dot(d, r)\n  s = reduce_sum(e)\n  y = add(x, s)\n  output y\n}";
        OK(context, dlc_graph_parse(context, text, strlen(text), &g));
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.budget_ms = 1000;
        options.cancel = &c.ticking.cancel;
        dlc_program *program;
        OK(context, dlc_compile(context, g, &options, &program));
        dlc_graph_destroy(g);
        assert_int_equal(dlc_prepare(program, (const int64_t *[]){SHAPE(4)}, (int[]){1}, 1),
                         by_time ? DLC_BUDGET_EXCEEDED : DLC_CANCELLED);
        assert_int_equal(c.runs, 1);
        c.ticking.cancel = 0;
        OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(4)}, (int[]){1}, 1));
        assert_true(c.runs > 1);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Years pass while the last module is compiled. */
static uint64_t late_time(void *user) {
    return *(const bool *)user ? UINT64_C(1) << 50 : 1000;
}
static void tell_last(void *user, const char *stage, int done, int total) {
    if (strcmp(stage, "compile") == 0 && done == total) *(bool *)user = true;
}

/* The last module's code generation may go beyond the budget, too; the next try finds its kernels. */
static void test_budget_after_last_module(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        bool is_late = false;
        dlc_context_options context_options = DLC_CONTEXT_OPTIONS_INIT;
        context_options.clock_ns = late_time;
        context_options.clock_user = &is_late;
        dlc_context *context = open_context(all_targets[t], &context_options);
        if (!context) continue;
        dlc_graph *g = exp_graph(context);
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        dlc_program *program;
        float out[ELEMENTS];
        options.budget_ms = 1000;
        options.progress = tell_last;
        options.progress_user = &is_late;
        OK(context, dlc_compile(context, g, &options, &program));
        assert_int_equal(run_exp(program, out), DLC_BUDGET_EXCEEDED);
        assert_true(is_late);
        OK(context, run_exp(program, out));
        check_exp(out);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* A budget that no clock reaches is none. */
static void test_endless_budget(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    dlc_graph *g = exp_graph(context);
    dlc_program *program;
    float out[ELEMENTS];
    options.budget_ms = INT64_MAX;
    OK(context, dlc_compile(context, g, &options, &program));
    OK(context, run_exp(program, out));
    check_exp(out);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builder_gives_up), cmocka_unit_test(test_waiter_gives_up),
        cmocka_unit_test(test_graph_passes),     cmocka_unit_test(test_precomputed),
        cmocka_unit_test(test_endless_budget),   cmocka_unit_test(test_budget_after_last_module),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
