/* Threads of the host that it cancels (pthread_cancel) while they are inside the library: the calls come to their end, what others wait
 * for is done, and nothing is left locked. */
#include "support.h"

#include <sched.h>
#include <unistd.h>

/* AddressSanitizer of gcc 12 reports its own end of a thread that was cancelled. */
#ifdef __SANITIZE_ADDRESS__
#define SKIP_CANCELLED() skip()
#else
#define SKIP_CANCELLED() (void)0
#endif

enum { SECONDS = 120 /* after which the test hangs */, ROUNDS = 40 };

typedef struct victim {
    dlc_context *context;
    dlc_program *program;
    uint32_t seed;
    atomic_int ran;
} victim;

/* No checks that jump: the thread may end at any place outside of the library. */
_Noreturn static void *run_until_cancelled(void *argument) {
    victim *v = argument;
    static _Thread_local float x[2000 * 8], y[2000 * 4];
    tensor tx, ty;
    for (;;) {
        v->seed = v->seed * 1664525u + 1013904223u;
        const int64_t n = 1 + (v->seed >> 20) % 2000;
        dlc_output_slot slot = {F32(&ty, y, n, 4), NULL};
        if (dlc_run(v->program, NULL, (const DLTensor *[]){F32(&tx, x, n, 8)}, 1, &slot, 1) == DLC_OK)
            atomic_fetch_add(&v->ran, 1);
        pthread_testcancel();
    }
}

_Noreturn static void *build_until_cancelled(void *argument) {
    victim *v = argument;
    static const char text[] = "graph { input x: f32[n, 8] s = reduce_sum(x, axes=[1]) t = exp(s) output t }";
    for (;;) {
        dlc_graph *g = NULL;
        dlc_program *program = NULL;
        if (dlc_graph_parse(v->context, text, sizeof text - 1, &g) == DLC_OK &&
            dlc_compile(v->context, g, NULL, &program) == DLC_OK &&
            dlc_prepare(program, (const int64_t *[]){SHAPE(1 + (v->seed++ % 50), 8)}, (int[]){2}, 1) == DLC_OK)
            atomic_fetch_add(&v->ran, 1);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        pthread_testcancel();
    }
}

static void cancel_some(const char *target, dlc_context_options options, void *(*body)(void *)) {
    dlc_context *context = open_context(target, &options);
    if (!context) return;
    dlc_program *program = dense_program(context, "n");
    int ran = 0;
    run_dense(context, program, 8, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        victim v = {.context = context, .program = program, .seed = (uint32_t)round};
        pthread_t id;
        void *result;
        assert_int_equal(pthread_create(&id, NULL, body, &v), 0);
        while (!atomic_load(&v.ran)) sched_yield();
        usleep((unsigned)(round * 67 % 1500));
        assert_int_equal(pthread_cancel(id), 0);
        assert_int_equal(pthread_join(id, &result), 0);
        assert_true(result == PTHREAD_CANCELED);
        ran += atomic_load(&v.ran);
        run_dense(context, program, 1 + round % 7, NULL);
        if (round % 8 == 7) run_dense(context, program, 3000 + round, NULL);
    }
    assert_true(ran >= ROUNDS);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static dlc_context_options options_with(int threads, bool background) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.cache_bytes = 1 << 16;
    options.plan_cache_entries = 3;
    options.threads = options.compile_threads = threads;
    options.background_compile = background;
    return options;
}

static void test_deferred(void **state) {
    (void)state;
    SKIP_CANCELLED();
    alarm(SECONDS);
    for (int t = 0; t < 2; t++)
        for (int threads = 0; threads <= 2; threads += 2) {
            cancel_some(all_targets[t], options_with(threads, threads > 0), run_until_cancelled);
            cancel_some(all_targets[t], options_with(threads, false), build_until_cancelled);
        }
    alarm(0);
}

/* ---- callbacks of the host are inside, too: a cancellation point in one waits until the call is over */

typedef struct caller {
    dlc_program *program;
    atomic_bool inside, go;
    atomic_int came_back;
    dlc_status status;
} caller;

static void wait_in_function(void *user, int inputs, const DLTensor *const *input, int outputs,
                             DLTensor *const *output) {
    caller *c = user;
    (void)inputs, (void)input, (void)outputs;
    atomic_store(&c->inside, true);
    while (!atomic_load(&c->go)) usleep(100);
    pthread_testcancel();
    *(float *)output[0]->data = 5;
    atomic_fetch_add(&c->came_back, 1);
}

_Noreturn static void *call_function(void *argument) {
    caller *c = argument;
    float y = 0;
    tensor ty;
    dlc_output_slot slot = {&make_tensor(&ty, DLC_F32, &y, 0, NULL)->dl, NULL};
    c->status = dlc_run(c->program, NULL, NULL, 0, &slot, 1);
    if (y != 5) c->status = DLC_INTERNAL;
    for (;;) pthread_testcancel();
}

static void test_in_callbacks(void **state) {
    (void)state;
    SKIP_CANCELLED();
    alarm(SECONDS);
    caller c = {.inside = false};
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    dlc_value y;
    void *result;
    pthread_t id;
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_custom_register(g, "wait", wait_in_function, &c));
    dlc_custom_call(g, 0, NULL, "wait", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 1, &y);
    dlc_output(g, "y", y);
    c.program = compile(context, g);
    OK(context, dlc_prepare(c.program, NULL, NULL, 0));
    assert_int_equal(pthread_create(&id, NULL, call_function, &c), 0);
    while (!atomic_load(&c.inside)) usleep(100);
    assert_int_equal(pthread_cancel(id), 0);
    atomic_store(&c.go, true);
    assert_int_equal(pthread_join(id, &result), 0);
    assert_true(result == PTHREAD_CANCELED);
    assert_int_equal(atomic_load(&c.came_back), 1);
    assert_int_equal(c.status, DLC_OK);
    dlc_program_destroy(c.program);
    dlc_context_destroy(context);
    alarm(0);
}

/* What a host has chosen is as it was after a call. */
static void test_state_is_kept(void **state) {
    (void)state;
    int before, kind;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = dense_program(context, "n");
    for (int wanted = 0; wanted < 2; wanted++) {
        const int chosen = wanted ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE;
        pthread_setcancelstate(chosen, NULL);
        run_dense(context, program, 3 + wanted, NULL);
        (void)statistics(context);
        assert_int_equal(dlc_prepare(program, NULL, NULL, 5), DLC_INVALID_ARGUMENT);
        pthread_setcancelstate(chosen, &before);
        assert_int_equal(before, chosen);
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &kind);
        assert_int_equal(kind, PTHREAD_CANCEL_DEFERRED);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_is_kept),
        cmocka_unit_test(test_in_callbacks),
        cmocka_unit_test(test_deferred),
    };
    return cmocka_run_group_tests_name("cancelled threads", tests, NULL, NULL);
}
