/* Runs that are to end: kernels of one task ask while they compute, whatever they compute. A clock of the host's that goes on by a
 * millisecond whenever it is asked makes a budget a number of questions: nothing here depends on time. */
#include "support.h"
#include "test/share.h"

#include <unistd.h>

typedef struct slow_clock {
    _Atomic uint64_t asked;
} slow_clock;

static uint64_t ask_clock(void *user) {
    slow_clock *c = user;
    return 1000000 * atomic_fetch_add(&c->asked, 1);
}

static dlc_context *open_clocked(const char *target, int threads, slow_clock *clock) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    options.clock_ns = ask_clock;
    options.clock_user = clock;
    return open_context(target, &options);
}

/* Each is one kernel of few tasks, or several, that take some milliseconds in all: thousands of times what lies between two polls. */
static const struct {
    const char *text;
    /* of the input */
    int64_t rows, columns;
} cases[] = {
    {"graph { input a: f32[n,m] y = det(a) output y }", 300, 300},
    {"graph { input a: f32[n,m] y = cholesky(a) output y }", 400, 400},
    {"graph { input a: f32[n,m] y, z = qr(a) output y }", 200, 200},
    {"graph { input a: f32[n,m] y, z = eigh(a) output y }", 60, 60},
    {"graph { input a: f32[n,m] y, z = eigh(a) output y output z }", 300, 300},
    {"graph { input a: f32[n,m] y, s, z = svd(a) output y output z }", 200, 200},
    {"graph { input a: f32[n,m] l, u, p = lu(a) output l output p }", 400, 400},
    {"graph { input a: f32[n,m] y = expm(a) output y }", 200, 200},
    {"graph { input a: f32[n,m] y, z = sort(a, axis=1) output y output z }", 1, 1000000},
    {"graph { input a: f32[n,m] y = cumulative_sum(a, axis=1) output y }", 1, 4000000},
    {"graph { input a: f32[n,m] y = cumulative_prod(a, axis=0) output y }", 4000000, 1},
    {"graph { input a: f32[n,m] y = matmul(a, a) output y }", 700, 700},
    {"graph { input a: f32[n,m] y = softmax(a, axis=1) output y }", 1, 4000000},
    {"graph { input a: f32[n,m] y = reduce_sum(a, axes=[0, 1]) output y }", 3000, 3000},
    {"graph { input a: f32[n,m] y = arg_max(a, axis=1) output y }", 1, 8000000},
    {"graph { input a: f32[n,m] y = local_response_norm(a, size=2001) output y }", 3000, 5},
    {"graph { input a: f32[n,m] y = erf(a) output y }", 3000, 3000},
    {"graph { input a: f32[n,m] y = transpose(a, permutation=[1, 0]) z = exp(y) output z }", 3000, 3000},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct errand {
    dlc_program *program;
    tensor in;
    int64_t shape[2];
    float *data;
} errand;

static void begin_errand(errand *e, dlc_context *context, int which) {
    char text[200], *at = text;
    for (const char *from = cases[which].text; *from; from++) /* sizes for n and m */
        if ((*from == 'n' && from[1] == ',') || (*from == 'm' && from[1] == ']'))
            at += sprintf(at, "%lld", (long long)(*from == 'n' ? cases[which].rows : cases[which].columns));
        else
            *at++ = *from;
    dlc_graph *g;
    OK(context, dlc_graph_parse(context, text, (size_t)(at - text), &g));
    e->program = compile(context, g);
    e->shape[0] = cases[which].rows, e->shape[1] = cases[which].columns;
    const size_t count = (size_t)(e->shape[0] * e->shape[1]);
    e->data = malloc(count * sizeof *e->data);
    CHECK(e->data != NULL);
    fill(e->data, count, (uint32_t)which + 1);
    for (int64_t i = 0; e->shape[0] == e->shape[1] && i < e->shape[0]; i++) e->data[i * (e->shape[0] + 1)] += 100;
    make_tensor(&e->in, DLC_F32, e->data, 2, e->shape);
    OK(context, dlc_prepare(e->program, (const int64_t *[]){e->shape}, (int[]){2}, 1));
}

static void end_errand(errand *e) {
    dlc_program_destroy(e->program);
    free(e->data);
}

static dlc_status run_errand(errand *e, const dlc_run_options *options, DLManagedTensorVersioned **out) {
    dlc_output_slot slots[2] = {{0}};
    const int outputs = dlc_program_output_count(e->program);
    dlc_status status = dlc_run(e->program, options, (const DLTensor *[]){&e->in.dl}, 1, slots, outputs);
    *out = slots[0].managed;
    if (slots[1].managed) slots[1].managed->deleter(slots[1].managed);
    return status;
}

static size_t bytes_of(const DLTensor *t) {
    size_t bytes = t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
    return bytes;
}

/* The bits of a run without options, after one that was ended, and of one whose budget suffices. */
static void check_budget(const char *target, int threads, int which) {
    slow_clock clock = {0};
    dlc_context *context = open_clocked(target, threads, &clock);
    if (!context) return;
    errand e;
    DLManagedTensorVersioned *plain, *watched, *none;
    begin_errand(&e, context, which);
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    OK(context, run_errand(&e, NULL, &plain));
    options.budget_ms = 1000000000;
    uint64_t before = atomic_load(&clock.asked);
    OK(context, run_errand(&e, &options, &watched));
    const uint64_t questions = atomic_load(&clock.asked) - before;
    if (questions < 20)
        failed("%s on %s: %llu questions in a whole run", cases[which].text, target, (unsigned long long)questions);
    CHECK(memcmp(plain->dl_tensor.data, watched->dl_tensor.data, bytes_of(&plain->dl_tensor)) == 0);
    watched->deleter(watched);
    options.budget_ms = (int64_t)(questions / 2);
    CHECK(run_errand(&e, &options, &none) == DLC_BUDGET_EXCEEDED && !none);
    CHECK(strstr(dlc_error_message(context), "budget_ms") != NULL);
    OK(context, run_errand(&e, NULL, &watched));
    CHECK(memcmp(plain->dl_tensor.data, watched->dl_tensor.data, bytes_of(&plain->dl_tensor)) == 0);
    plain->deleter(plain);
    watched->deleter(watched);
    end_errand(&e);
    dlc_context_destroy(context);
}

static void test_budget(void **state) {
    (void)state;
    for (int which = 0; which < CASES; which += test_is_shortest() ? 3 : 1)
        for (int threads = test_is_short() && which % 2 ? 2 : 0; threads < 3; threads += 2)
            check_budget("cpu", threads, which);
}

/* The interpreter takes a thousand times as long. */
static void test_budget_interpreted(void **state) {
    (void)state;
    slow_clock clock = {0};
    dlc_context *context = open_clocked("interp", 0, &clock);
    dlc_graph *g;
    tensor tx;
    static float x[1 << 18];
    const char *text = "graph { input a: f32[262144] y = cumulative_sum(a, axis=0) output y }";
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_program *program = compile(context, g);
    dlc_output_slot slot = {0};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    const DLTensor *inputs[] = {F32(&tx, x, 1 << 18)};
    options.budget_ms = 2;
    dlc_status status = dlc_run(program, &options, inputs, 1, &slot, 1);
    if (status != DLC_BUDGET_EXCEEDED) failed("%s: %s", dlc_status_text(status), dlc_error_message(context));
    options.budget_ms = -1;
    assert_int_equal(dlc_run(program, &options, inputs, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* A flag that is raised while the kernel computes: the second question of the clock raises it. */
typedef struct raising_clock {
    volatile int flag;
    _Atomic uint64_t asked;
    uint64_t raise_at;
} raising_clock;

static uint64_t ask_and_raise(void *user) {
    raising_clock *c = user;
    if (atomic_fetch_add(&c->asked, 1) == c->raise_at) __atomic_store_n(&c->flag, 1, __ATOMIC_RELAXED);
    return 0;
}

static void test_cancel_within(void **state) {
    (void)state;
    for (int which = 0; which < CASES; which += test_is_short() ? 2 : 1) {
        raising_clock clock = {.raise_at = UINT64_MAX};
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.clock_ns = ask_and_raise;
        options.clock_user = &clock;
        dlc_context *context = open_context("cpu", &options);
        if (!context) return;
        errand e;
        DLManagedTensorVersioned *none;
        begin_errand(&e, context, which);
        dlc_run_options run = DLC_RUN_OPTIONS_INIT;
        run.cancel = &clock.flag;
        run.budget_ms = 1000; /* of a clock that stands: it is asked and never reached */
        clock.raise_at = atomic_load(&clock.asked) + 10;
        CHECK(run_errand(&e, &run, &none) == DLC_CANCELLED && !none);
        CHECK(atomic_load(&clock.asked) <=
              clock.raise_at + 4); /* what was asked after that: nothing more than its end */
        end_errand(&e);
        dlc_context_destroy(context);
    }
}

/* The body of a loop over the elements of empty slices has no kernels. */
static void test_empty_loop(void **state) {
    (void)state;
    static const char *const targets[] = {"cpu", "interp", "cuda"};
    const char *text = "graph { input x: f32[68719476736, 0] y, first, which, counts ="
                       " unique_along(x, size=[n], axis=1) output y }";
    const int64_t shape[] = {(int64_t)1 << 36, 0};
    for (int t = 0; t < 3; t++) {
        slow_clock clock = {0};
        dlc_context *context = open_clocked(targets[t], 0, &clock);
        if (!context) continue;
        dlc_graph *g;
        tensor x;
        OK(context, dlc_graph_parse(context, text, strlen(text), &g));
        dlc_program *program = compile(context, g);
        dlc_output_slot slot = {0};
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.budget_ms = 1000;
        make_tensor(&x, DLC_F32, NULL, 2, shape);
        const dlc_status status = dlc_run(program, &options, (const DLTensor *[]){&x.dl}, 1, &slot, 1);
        if (status != DLC_BUDGET_EXCEEDED)
            failed("on %s: %s: %s", targets[t], dlc_status_text(status), dlc_error_message(context));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A call that is kept keeps nothing of a run that was ended. */
static void test_kept_call(void **state) {
    (void)state;
    slow_clock clock = {0};
    dlc_context *context = open_clocked("cpu", 0, &clock);
    if (!context) return;
    enum { SIDE = 300 };
    static float x[SIDE * SIDE], y[1], expected;
    for (int i = 0; i < SIDE * SIDE; i++) x[i] = (i % (SIDE + 1) == 0) + 0.001f * (float)(i % 7);
    const char *text = "graph { input a: f32[300,300] y = det(a) output y }";
    dlc_graph *g;
    dlc_call *call;
    tensor tx, ty;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_program *program = compile(context, g);
    make_tensor(&ty, DLC_F32, y, 0, NULL);
    OK(context,
       dlc_call_create(program, (const DLTensor *[]){F32(&tx, x, SIDE, SIDE)}, 1, (DLTensor *[]){&ty.dl}, 1, &call));
    OK(context, dlc_call_run(call, NULL));
    expected = y[0];
    for (int i = 0; i < 3; i++) {
        volatile int flag = 1;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        if (i)
            options.budget_ms = 3;
        else
            options.cancel = &flag;
        y[0] = 0;
        assert_int_equal(dlc_call_run(call, &options), i ? DLC_BUDGET_EXCEEDED : DLC_CANCELLED);
        OK(context, dlc_call_run(call, NULL));
        assert_true(y[0] == expected);
    }
    dlc_call_destroy(call);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),        cmocka_unit_test(test_budget_interpreted),
        cmocka_unit_test(test_cancel_within), cmocka_unit_test(test_empty_loop),
        cmocka_unit_test(test_kept_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
