/* Calls that a host keeps: the same results as dlc_run, with other data, strides and places; what is wrong is refused and changes
 * nothing; the plan outlives its place in the table. */
#include "api/support.h"

#include <pthread.h>

enum { ROWS = 5, LIMIT = 64 };

typedef struct dense {
    float x[LIMIT * 8], y[LIMIT * 4];
    tensor tx, ty;
    dlc_call *call;
} dense;

static const DLTensor *const *inputs_of(dense *d, int64_t rows, const DLTensor **list) {
    list[0] = F32(&d->tx, d->x, rows, 8);
    (void)F32(&d->ty, d->y, rows, 4);
    return list;
}

static void create(dlc_context *context, dlc_program *program, dense *d, int64_t rows) {
    const DLTensor *list[1];
    OK(context, dlc_call_create(program, inputs_of(d, rows, list), 1, (DLTensor *[]){&d->ty.dl}, 1, &d->call));
}

static void check_result(dlc_context *context, dense *d, const float *x, float *y, int64_t rows) {
    double expected[LIMIT * 4];
    dense_reference(x, rows, expected);
    memset(y, 0xff, (size_t)rows * 4 * sizeof *y);
    OK(context, dlc_call_run(d->call, NULL));
    CLOSE(y, expected, (size_t)rows * 4, 1e-6);
}

#define EACH_TARGET(context, options)                                                  \
    for (int t_ = 0; t_ < TARGETS; t_++)                                               \
        for (dlc_context *context = open_context(all_targets[t_], (options)); context; \
             dlc_context_destroy(context), context = NULL)

static void test_results(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        dlc_program *program = dense_program(context, "n");
        dense d;
        create(context, program, &d, ROWS);
        uint64_t runs = statistics(context).runs;
        for (uint32_t round = 0; round < 4; round++) {
            fill(d.x, ROWS * 8, round);
            check_result(context, &d, d.x, d.y, ROWS);
        }
        assert_int_equal(statistics(context).runs, runs + 4);
        assert_int_equal(statistics(context).plan_builds, 1);
        dlc_run_options options = DLC_RUN_OPTIONS_INIT; /* the long way */
        fill(d.x, ROWS * 8, 9);
        memset(d.y, 0, sizeof d.y);
        OK(context, dlc_call_run(d.call, &options));
        double expected[ROWS * 4];
        dense_reference(d.x, ROWS, expected);
        CLOSE(d.y, expected, ROWS * 4, 1e-6);
        dlc_call_destroy(d.call);
        assert_int_equal(statistics(context).runs, runs + 5);
        dlc_program_destroy(program);
    }
}

/* The descriptions are copied, the data are not; both may move, also to places that kernels cannot use as they are. */
static void test_places(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        dlc_program *program = dense_program(context, "n");
        dense d;
        create(context, program, &d, ROWS);
        memset(&d.tx, 0xff, sizeof d.tx);
        memset(&d.ty, 0xff, sizeof d.ty);
        fill(d.x, ROWS * 8, 3);
        check_result(context, &d, d.x, d.y, ROWS);
        float other_x[ROWS * 8], other_y[ROWS * 4];
        fill(other_x, ROWS * 8, 5);
        OK(context, dlc_call_set_input(d.call, 0, other_x));
        OK(context, dlc_call_set_output(d.call, 0, other_y));
        check_result(context, &d, other_x, other_y, ROWS);
        char bytes[sizeof other_x + 1];
        memcpy(bytes + 1, d.x, sizeof other_x);
        OK(context, dlc_call_set_input(d.call, 0, bytes + 1));
        check_result(context, &d, d.x, other_y, ROWS);
        OK(context, dlc_call_set_input(d.call, 0, other_x));
        check_result(context, &d, other_x, other_y, ROWS);
        dlc_call_destroy(d.call);
        dlc_program_destroy(program);
    }
}

static void test_strides(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        dlc_program *program = dense_program(context, "n");
        dense d;
        float x[ROWS * 8];
        fill(x, ROWS * 8, 7);
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < 8; k++) d.x[k * ROWS + i] = x[i * 8 + k];
        const DLTensor *list[1];
        inputs_of(&d, ROWS, list);
        d.tx.dl.strides = d.tx.strides;
        d.tx.strides[0] = 1;
        d.tx.strides[1] = ROWS;
        OK(context, dlc_call_create(program, list, 1, (DLTensor *[]){&d.ty.dl}, 1, &d.call));
        check_result(context, &d, x, d.y, ROWS);
        assert_true(statistics(context).copied_bytes > 0);
        dlc_call_destroy(d.call);
        dlc_program_destroy(program);
    }
}

static void count_trace(void *user, const char *what, const char *name, const char *values, uint64_t begin_ns,
                        uint64_t end_ns) {
    (void)name, (void)values, (void)begin_ns, (void)end_ns;
    if (strcmp(what, "run") == 0) atomic_fetch_add((atomic_int *)user, 1);
}

/* Kernels are traced whichever way the call takes. */
static void test_trace(void **state) {
    (void)state;
    atomic_int traced = 0;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.trace = count_trace, options.trace_user = &traced;
    options.default_float_modes = true;
    EACH_TARGET(context, &options) {
        if (!has_host_memory(all_targets[t_])) continue;
        dlc_program *program = dense_program(context, "n");
        dense d;
        int seen[3];
        create(context, program, &d, ROWS);
        volatile int never = 0;
        dlc_run_options cancellable = DLC_RUN_OPTIONS_INIT;
        cancellable.cancel = &never;
        for (int way = 0; way < 3; way++) {
            const int before = atomic_load(&traced);
            if (way == 2) dlc_program_profile(program, 1);
            OK(context, dlc_call_run(d.call, way == 1 ? &cancellable : NULL));
            seen[way] = atomic_load(&traced) - before;
        }
        assert_true(seen[0] > 0 && seen[1] == seen[0] && seen[2] == seen[0]);
        dlc_call_destroy(d.call);
        dlc_program_destroy(program);
    }
}

/* One plan in the table: others' shapes push the call's plan out, which stays the call's. */
static void test_eviction(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.plan_cache_entries = 1;
    options.default_float_modes = true;
    EACH_TARGET(context, &options) {
        dlc_program *program = dense_program(context, "n");
        static dense d[6];
        for (int i = 0; i < 6; i++) create(context, program, &d[i], 1 + i * 7);
        assert_true(statistics(context).plan_evictions >= 5);
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 6; i++) {
                fill(d[i].x, LIMIT * 8, (uint32_t)(i + round));
                check_result(context, &d[i], d[i].x, d[i].y, 1 + i * 7);
            }
        for (int i = 0; i < 6; i += 2) dlc_call_destroy(d[i].call);
        for (int i = 1; i < 6; i += 2) check_result(context, &d[i], d[i].x, d[i].y, 1 + i * 7);
        for (int i = 5; i > 0; i -= 2) dlc_call_destroy(d[i].call);
        dlc_program_destroy(program);
    }
}

/* An output in its donated input's place: state' = state + delta. */
static void test_donation(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value s = dlc_input(g, "state", DLC_F32, 1, DIMS(SIZE(16)));
        dlc_output(g, "next", dlc_add(s, dlc_input(g, "delta", DLC_F32, 1, DIMS(SIZE(16)))));
        dlc_program *program = compile(context, g);
        OK(context, dlc_program_alias(program, 0, 0));
        float data[16], delta[16], elsewhere[16];
        for (int i = 0; i < 16; i++) data[i] = (float)i, delta[i] = 1;
        tensor ts, td, tn;
        const DLTensor *inputs[] = {F32(&ts, data, 16), F32(&td, delta, 16)};
        dlc_call *call;
        OK(context, dlc_call_create(program, inputs, 2, (DLTensor *[]){F32(&tn, data, 16)}, 1, &call));
        for (int round = 0; round < 3; round++) OK(context, dlc_call_run(call, NULL));
        for (int i = 0; i < 16; i++) assert_true(data[i] == (float)i + 3);
        OK(context, dlc_call_set_output(call, 0, elsewhere));
        OK(context, dlc_call_run(call, NULL));
        for (int i = 0; i < 16; i++) assert_true(elsewhere[i] == (float)i + 4 && data[i] == (float)i + 3);
        assert_int_equal(dlc_call_set_output(call, 0, delta), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "dlc_call_set_output: output next overlaps input delta"));
        OK(context, dlc_call_run(call, NULL));
        for (int i = 0; i < 16; i++) assert_true(elsewhere[i] == (float)i + 4 && delta[i] == 1);
        dlc_call_destroy(call);
        dlc_program_destroy(program);
    }
}

#define REFUSED(context, expression, text)                                                               \
    do {                                                                                                 \
        assert_int_equal((expression), DLC_INVALID_ARGUMENT);                                            \
        if (!strstr(dlc_error_message(context), (text))) fail_msg("\"%s\"", dlc_error_message(context)); \
    } while (0)

static void test_mistakes(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        dlc_program *program = dense_program(context, "n");
        dense d;
        dlc_call *call = (dlc_call *)&d;
        const DLTensor *list[1];
        DLTensor *out[] = {&d.ty.dl};
        inputs_of(&d, ROWS, list);
        REFUSED(NULL, dlc_call_create(NULL, list, 1, out, 1, &call), "dlc_call_create: program");
        assert_null(call);
        REFUSED(context, dlc_call_create(program, list, 0, out, 1, &call), "dlc_call_create: 0 inputs");
        REFUSED(context, dlc_call_create(program, NULL, 1, out, 1, &call),
                "dlc_call_create: 1 inputs were given (NULL)");
        REFUSED(context, dlc_call_create(program, list, 1, NULL, 1, &call), "dlc_call_create: 1 outputs");
        REFUSED(context, dlc_call_create(program, list, 1, (DLTensor *[]){NULL}, 1, &call), "output y is NULL");
        d.ty.shape[0] = ROWS + 1;
        REFUSED(context, dlc_call_create(program, list, 1, out, 1, &call),
                "dlc_call_create: output y: dimension 0 is 6, expected 5");
        d.ty.shape[0] = ROWS;
        d.ty.dl.data = d.x;
        REFUSED(context, dlc_call_create(program, list, 1, out, 1, &call), "output y overlaps input x");
        assert_null(call);
        create(context, program, &d, ROWS);
        fill(d.x, ROWS * 8, 1);
        REFUSED(context, dlc_call_set_input(d.call, 0, NULL), "dlc_call_set_input: input x has no data");
        REFUSED(context, dlc_call_set_input(d.call, 1, d.x), "dlc_call_set_input: number 1 does not exist");
        REFUSED(context, dlc_call_set_output(d.call, -1, d.x), "dlc_call_set_output: number -1");
        REFUSED(context, dlc_call_set_output(d.call, 0, d.x + 39), "output y overlaps input x");
        REFUSED(NULL, dlc_call_set_output(NULL, 0, d.x), "the call is NULL");
        REFUSED(NULL, dlc_call_run(NULL, NULL), "dlc_call_run: the call is NULL");
        REFUSED(context, dlc_call_run(d.call, &(dlc_run_options){0}), "dlc_call_run: options.struct_size");
        check_result(context, &d, d.x, d.y, ROWS);
        dlc_call_destroy(d.call);
        dlc_call_destroy(NULL);
        dlc_program_destroy(program);
    }
}

static void test_out_of_memory(void **state) {
    (void)state;
    counter memory;
    dlc_allocator allocator = counting(&memory);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    EACH_TARGET(context, &options) {
        dlc_program *program = dense_program(context, "n");
        dense d;
        create(context, program, &d, ROWS); /* the plan is there */
        dlc_call_destroy(d.call);
        const DLTensor *list[1];
        inputs_of(&d, ROWS, list);
        dlc_status status = DLC_OUT_OF_MEMORY;
        for (int64_t n = 0; status != DLC_OK; n++) {
            int64_t blocks = atomic_load(&memory.blocks);
            atomic_store(&memory.left, n);
            status = dlc_call_create(program, list, 1, (DLTensor *[]){&d.ty.dl}, 1, &d.call);
            atomic_store(&memory.left, -1);
            if (status == DLC_OK) break;
            assert_int_equal(status, DLC_OUT_OF_MEMORY);
            assert_int_equal(atomic_load(&memory.blocks), blocks);
        }
        fill(d.x, ROWS * 8, 2);
        check_result(context, &d, d.x, d.y, ROWS);
        dlc_call_destroy(d.call);
        dlc_program_destroy(program);
    }
}

static dlc_context *shared_context;

static void run_many(void *argument) {
    dense *d = argument;
    for (int i = 0; i < 500; i++) check(dlc_call_run(d->call, NULL), shared_context, "dlc_call_run", __LINE__);
}

static void test_threads(void **state) {
    (void)state;
    EACH_TARGET(context, NULL) {
        shared_context = context;
        dlc_program *program = dense_program(context, "n");
        static dense d[4];
        thread threads[4];
        for (int i = 0; i < 4; i++) {
            create(context, program, &d[i], ROWS);
            fill(d[i].x, ROWS * 8, (uint32_t)i);
        }
        for (int i = 0; i < 4; i++) start_thread(&threads[i], run_many, &d[i]);
        for (int i = 0; i < 50; i++) (void)statistics(context);
        join_threads(threads, 4);
        for (int i = 0; i < 4; i++) {
            check_result(context, &d[i], d[i].x, d[i].y, ROWS);
            dlc_call_destroy(d[i].call);
        }
        assert_int_equal(statistics(context).runs, 4 * 501);
        dlc_program_destroy(program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),  cmocka_unit_test(test_places),        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_eviction), cmocka_unit_test(test_donation),      cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
