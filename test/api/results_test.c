/* Results that the library allocates: deleted ones leave their memory to the next, within bounds, and tensors outlive their context. */
#include "support.h"

/* y = x + x of any length. */
static dlc_program *doubling(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_output(g, "y", dlc_add(x, x));
    return compile(context, g);
}

static DLManagedTensorVersioned *run_of(dlc_context *context, dlc_program *program, int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    tensor tx;
    dlc_output_slot slot = {NULL, NULL};
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 1000);
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n)}, 1, &slot, 1));
    const float *y = slot.managed->dl_tensor.data;
    for (int64_t i = 0; i < n; i++)
        if (y[i] != (float)(2 * (i % 1000))) failed("element %lld is %g", (long long)i, (double)y[i]);
    free(x);
    return slot.managed;
}

static void drop(DLManagedTensorVersioned *result) {
    result->deleter(result);
}

static void test_again(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter c;
        dlc_context *context = open_counted(all_targets[t], &c);
        if (!context) continue;
        dlc_program *program = doubling(context);
        const int64_t n = 40000;
        DLManagedTensorVersioned *first = run_of(context, program, n), *second = run_of(context, program, n);
        const void *memory = first->dl_tensor.data;
        assert_true(memory != second->dl_tensor.data); /* both are the host's */
        drop(first);
        const int64_t calls = atomic_load(&c.calls);
        first = run_of(context, program, n);
        assert_true(first->dl_tensor.data == memory);
        if (strcmp(all_targets[t], "cpu") == 0)
            assert_int_equal(atomic_load(&c.calls), calls); /* nothing is allocated */
        drop(first);
        drop(second);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(atomic_load(&c.blocks), 0);
    }
}

/* However many sizes there are, 64 MiB are kept at most; small and very large ones not at all. */
static void test_bounds(void **state) {
    counter c;
    (void)state;
    dlc_context *context = open_counted("cpu", &c);
    if (!context) skip();
    dlc_program *program = doubling(context);
    const uint64_t before = statistics(context).arena_bytes;
    drop(run_of(context, program, 100));
    drop(run_of(context, program, 10 << 20));                               /* 40 MiB */
    assert_in_range(statistics(context).arena_bytes - before, 0, 16 << 10); /* of plans */
    for (int64_t n = 1; n <= 40; n++) {
        drop(run_of(context, program, n << 18)); /* n MiB */
        assert_in_range(statistics(context).arena_bytes - before, 1 << 20, 65 << 20);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&c.blocks), 0);
}

static void test_outlives_context(void **state) {
    counter c;
    (void)state;
    dlc_context *context = open_counted("cpu", &c);
    if (!context) skip();
    dlc_program *program = doubling(context);
    DLManagedTensorVersioned *kept = run_of(context, program, 50000), *gone = run_of(context, program, 50000);
    drop(gone);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(((const float *)kept->dl_tensor.data)[49999] == 2 * 999);
    drop(kept);
    assert_int_equal(atomic_load(&c.blocks), 0);
}

typedef struct worker {
    dlc_context *context;
    dlc_program *program;
    int64_t n;
} worker;

static void run_often(void *user) {
    const worker *w = user;
    DLManagedTensorVersioned *held[3] = {NULL, NULL, NULL};
    for (int turn = 0; turn < 60; turn++) {
        if (held[turn % 3]) drop(held[turn % 3]);
        held[turn % 3] = run_of(w->context, w->program, w->n + turn % 2 * 1000);
    }
    for (int i = 0; i < 3; i++) drop(held[i]);
}

static void test_threads(void **state) {
    enum { COUNT = 4 };
    counter c;
    thread threads[COUNT];
    worker workers[COUNT];
    (void)state;
    dlc_context *context = open_counted("cpu", &c);
    if (!context) skip();
    dlc_program *program = doubling(context);
    for (int i = 0; i < COUNT; i++) {
        workers[i] = (worker){context, program, 20000 + i % 2 * 5000};
        start_thread(&threads[i], run_often, &workers[i]);
    }
    join_threads(threads, COUNT);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&c.blocks), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_again), cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_outlives_context), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
