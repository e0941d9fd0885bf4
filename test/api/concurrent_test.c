/* Everything at once: threads that build graphs, compile, run, prepare, keep calls, dump, ask, and destroy, on one context and on several
 * that share a folder, with caches that hold little, a background that compiles, a pool that runs, and contexts that come and go. What
 * they compute is exact; what they leave is nothing. `make tsan` runs this under ThreadSanitizer. */
#include "api/support.h"
#include "test/share.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ACTIONS = 60 };
#else
enum { ACTIONS = 1000 };
#endif
enum { THREADS = 4, CONTEXTS = 2, MOST = 9, INNER = 5 };

typedef struct shared {
    dlc_context_options options;
    counter memory;
    dlc_allocator allocator;
    dlc_context *context;
    /* of all threads */
    dlc_program *program;
    /* of the background, but for programs that were destroyed meanwhile */
    atomic_int failures;
} shared;

static void count_failures(void *user, const char *line) {
    shared *s = user;
    if (strstr(line, "failed") && atomic_fetch_add(&s->failures, 1) == 0) print_error("%s\n", line);
}

typedef struct worker {
    shared *contexts;
    int count;
    uint32_t state;
} worker;

static uint32_t draw(worker *w, uint32_t below) {
    w->state = w->state * 1664525u + 1013904223u;
    return (w->state >> 8) % below;
}

/* y = relu(x[n, 5] w[5, m] + c), w and c of small integers: exact. What `variant` adds makes kernels of its own. */
static dlc_program *make_program(dlc_context *context, int variant) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(INNER)));
    dlc_value w = dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(INNER), SYMBOL("m")));
    dlc_value y = dlc_add(dlc_matmul(x, w), dlc_scalar(g, DLC_F32, variant));
    dlc_output(g, "y", dlc_relu(y));
    return compile(context, g);
}

typedef struct call_data {
    float x[MOST * INNER], w[INNER * MOST], y[MOST * MOST];
    tensor tx, tw, ty;
    const DLTensor *inputs[2];
    int n, m;
} call_data;

static void set_up(call_data *c, worker *w) {
    c->n = 1 + (int)draw(w, MOST), c->m = 1 + (int)draw(w, MOST);
    for (int i = 0; i < c->n * INNER; i++) c->x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < INNER * c->m; i++) c->w[i] = (float)(i % 5 - 2);
    memset(c->y, 0xff, sizeof c->y);
    c->inputs[0] = F32(&c->tx, c->x, c->n, INNER);
    c->inputs[1] = F32(&c->tw, c->w, INNER, c->m);
    (void)F32(&c->ty, c->y, c->n, c->m);
}

static void check_result(const call_data *c, int variant) {
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->m; j++) {
            int sum = variant;
            for (int k = 0; k < INNER; k++) sum += ((i * INNER + k) % 7 - 3) * ((k * c->m + j) % 5 - 2);
            float expected = (float)(sum > 0 ? sum : 0), got = c->y[i * c->m + j];
            if (got != expected) failed("%d x %d: element %d, %d is %g, not %g", c->n, c->m, i, j, got, expected);
        }
}

static void run_one(worker *w, dlc_context *context, dlc_program *program, int variant) {
    call_data c;
    set_up(&c, w);
    dlc_output_slot slot = {&c.ty.dl, NULL};
    OK(context, dlc_run(program, NULL, c.inputs, 2, &slot, 1));
    check_result(&c, variant);
}

static void keep_call(worker *w, const shared *s) {
    call_data c;
    dlc_call *call;
    set_up(&c, w);
    OK(s->context, dlc_call_create(s->program, c.inputs, 2, (DLTensor *[]){&c.ty.dl}, 1, &call));
    for (int i = 0; i < 3; i++) {
        memset(c.y, 0xff, sizeof c.y);
        OK(s->context, dlc_call_run(call, NULL));
        check_result(&c, 0);
    }
    dlc_call_destroy(call);
}

static void prepare_and_dump(worker *w, const shared *s) {
    const int64_t x[2] = {1 + draw(w, MOST), INNER}, y[2] = {INNER, 1 + draw(w, MOST)}, *shapes[2] = {x, y};
    char *text;
    OK(s->context, dlc_prepare(s->program, shapes, (int[]){2, 2}, 2));
    OK(s->context, dlc_program_dump(s->program, "plan", shapes, (int[]){2, 2}, 2, &text));
    dlc_text_free(s->context, text);
}

/* A program that is run, cancelled while it is bound, or not run at all. */
static void come_and_go(worker *w, const shared *s) {
    int variant = (int)draw(w, 4);
    dlc_program *own = make_program(s->context, variant);
    for (uint32_t i = draw(w, 3); i > 0; i--) run_one(w, s->context, own, variant);
    dlc_program_destroy(own);
}

static void another_context(worker *w, const shared *s) {
    dlc_context *context = open_context(s->options.target, &s->options);
    dlc_program *program = make_program(context, 1);
    run_one(w, context, program, 1);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void mistake(const shared *s) {
    dlc_graph *g;
    dlc_program *program;
    OK(s->context, dlc_graph_create(s->context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(2))), y = dlc_input(g, "y", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_output(g, "z", dlc_add(x, y));
    CHECK(dlc_compile(s->context, g, NULL, &program) != DLC_OK);
    CHECK(strstr(dlc_error_message(s->context), "add"));
    dlc_graph_destroy(g);
}

static void work(void *user) {
    worker *w = user;
    for (int i = 0; i < ACTIONS / (test_every() < 4 ? test_every() : 4); i++) {
        const shared *s = &w->contexts[draw(w, (uint32_t)w->count)];
        switch (draw(w, 16)) {
        case 0: come_and_go(w, s); break;
        case 1: keep_call(w, s); break;
        case 2: prepare_and_dump(w, s); break;
        case 3: mistake(s); break;
        case 4: CHECK(statistics(s->context).cache_bytes < (uint64_t)1 << 40); break;
        case 5:
            if (i % 4 == 0) another_context(w, s);
            break;
        default: run_one(w, s->context, s->program, 0); break;
        }
    }
}

static void run_threads(const char *target, int contexts) {
    char folder[] = "/tmp/dlc-concurrent-XXXXXX", command[64];
    shared s[CONTEXTS];
    worker workers[THREADS];
    thread threads[THREADS];
    dlc_context *probe = open_context(target, NULL);
    if (!probe) return;
    dlc_context_destroy(probe);
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < contexts; i++) {
        s[i] = (shared){.options = DLC_CONTEXT_OPTIONS_INIT};
        s[i].allocator = counting(&s[i].memory);
        s[i].options.allocator = &s[i].allocator;
        s[i].options.log = count_failures;
        s[i].options.log_user = &s[i];
        s[i].options.target = target;
        s[i].options.background_compile = true;
        s[i].options.cache_directory = folder;
        s[i].options.cache_directory_bytes = 20000; /* files go while others read them */
        s[i].options.cache_bytes = 60000;
        s[i].options.plan_cache_entries = 3;
        s[i].options.threads = 2;
        s[i].options.compile_threads = i ? 2 : 0;
        s[i].context = open_context(target, &s[i].options);
        s[i].program = make_program(s[i].context, 0);
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.contexts = s, .count = contexts, .state = (uint32_t)i * 977u + 5u};
        start_thread(&threads[i], work, &workers[i]);
    }
    join_threads(threads, THREADS);
    for (int i = 0; i < contexts; i++) {
        const dlc_statistics now = statistics(s[i].context);
        assert_true(now.plan_evictions >
                    0); /* a file that another one removed before it had its name counts as an error */
        assert_int_equal(s[i].failures, 0);
        dlc_program_destroy(s[i].program);
        dlc_context_destroy(s[i].context);
        assert_int_equal(s[i].memory.blocks, 0);
        assert_int_equal(s[i].memory.bytes, 0);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_one_context(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_threads(all_targets[t], 1);
}

static void test_two_contexts(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_threads(all_targets[t], CONTEXTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_context),
        cmocka_unit_test(test_two_contexts),
    };
    return cmocka_run_group_tests_name("concurrent", tests, NULL, NULL);
}
