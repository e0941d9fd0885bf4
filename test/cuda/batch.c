/* Kernels in a row as one CUDA graph: from the second run of a frame on, changed where pointers differ, not where it is switched off; runs
 * under way at once; loops as one graph; every call failing in turn. */
#include "test/cuda/host.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RUNS = 6 };

typedef struct host_program {
    dlc_context *context;
    dlc_program *program;
} host_program;

static dlc_status open_program(bool no_batches, host_program *p) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    *p = (host_program){NULL, NULL};
    options.target = "cuda";
    options.no_batches = no_batches;
    dlc_status status = dlc_context_create(&options, &p->context);
    if (status != DLC_OK) return status;
    dlc_graph *g = three(p->context);
    status = dlc_compile(p->context, g, NULL, &p->program);
    dlc_graph_destroy(g);
    return status;
}

static void close_program(host_program *p) {
    dlc_program_destroy(p->program);
    dlc_context_destroy(p->context);
}

static void make(matrix *x, matrix *z, int run) {
    fill(x, COLUMNS);
    x->data[0] = (float)run;
    describe(z, ROWS);
    memset(z->data, 0, sizeof z->data);
}

/* Results of runs without graphs, each on its own input. */
static void expect_runs(float wanted[RUNS][ROWS * ROWS]) {
    host_program p;
    matrix x, z;
    fakes_reset(f);
    assert_int_equal(open_program(true, &p), DLC_OK);
    for (int i = 0; i < RUNS; i++) {
        make(&x, &z, i);
        if (run(p.program, &x, &z) != DLC_OK) fail_msg("%s; %s", dlc_error_message(p.context), f->driver->message);
        memcpy(wanted[i], z.data, sizeof wanted[i]);
    }
    assert_int_equal(f->driver->graph_launches, 0);
    close_program(&p);
    assert_true(fakes_are_empty(f));
}

static void test_runs(void **state) {
    (void)state;
    static float wanted[RUNS][ROWS * ROWS];
    host_program p;
    matrix x, z;
    expect_runs(wanted);
    const long alone = f->driver->launches / RUNS;
    fakes_reset(f);
    assert_int_equal(open_program(false, &p), DLC_OK);
    cuda_host h = host_begin();
    for (int i = 0; i < RUNS; i++) { /* tensors of the host, and now and then on the device: other pointers */
        make(&x, &z, i);
        if (i % 2) {
            host_write(&h, h.x, x.data, sizeof(float) * ROWS * COLUMNS);
            put_on_device(&x, h.x);
        }
        if (run(p.program, &x, &z) != DLC_OK) fail_msg("%s; %s", dlc_error_message(p.context), f->driver->message);
        assert_memory_equal(z.data, wanted[i], sizeof wanted[i]);
    }
    assert_true(alone >= 3);
    assert_int_equal(f->driver->launches, alone); /* of the first run */
    assert_int_equal(f->driver->graph_launches, RUNS - 1);
    assert_int_equal(f->driver->graphs, 2); /* one graph and what it was made into */
    assert_true(f->driver->updates > 0);
    host_end(&h);
    close_program(&p);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* Several runs under way from one graph, each with its own pointers. */
static void test_under_way(void **state) {
    (void)state;
    static float wanted[RUNS][ROWS * ROWS];
    host_program p;
    matrix x[RUNS], z[RUNS];
    dlc_event *event[RUNS];
    expect_runs(wanted);
    fakes_reset(f);
    assert_int_equal(open_program(false, &p), DLC_OK);
    for (int i = 0; i < RUNS; i++) {
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.event = &event[i];
        make(&x[i], &z[i], i);
        const DLTensor *inputs[] = {&x[i].tensor};
        dlc_output_slot slot = {.tensor = &z[i].tensor};
        assert_int_equal(dlc_run(p.program, &options, inputs, 1, &slot, 1), DLC_OK);
    }
    assert_int_equal(f->driver->graph_launches, RUNS - 1);
    for (int i = RUNS - 1; i >= 0; i--) {
        assert_int_equal(dlc_event_wait(event[i]), DLC_OK);
        assert_memory_equal(z[i].data, wanted[i], sizeof wanted[i]);
        dlc_event_destroy(event[i]);
    }
    close_program(&p);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

typedef struct runner {
    dlc_program *program;
    float (*wanted)[ROWS * ROWS];
    bool good;
} runner;

static void *run_many(void *argument) {
    runner *r = argument;
    matrix x, z;
    r->good = true;
    for (int i = 0; i < 3 * RUNS && r->good; i++) {
        make(&x, &z, i % RUNS);
        r->good = run(r->program, &x, &z) == DLC_OK && memcmp(z.data, r->wanted[i % RUNS], sizeof *r->wanted) == 0;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 6 };
    static float wanted[RUNS][ROWS * ROWS];
    host_program p;
    pthread_t threads[THREADS];
    runner runners[THREADS];
    expect_runs(wanted);
    fakes_reset(f);
    assert_int_equal(open_program(false, &p), DLC_OK);
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (runner){p.program, wanted, false};
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(runners[i].good);
    }
    close_program(&p);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* A graph that cannot be made is done without; a launch that fails fails the run; a node that cannot be changed makes a new graph. */
static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X)
#undef X
    };
    static float wanted[RUNS][ROWS * ROWS];
    int seen = 0;
    expect_runs(wanted);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1; strstr(names[i], "Graph"); nth++) {
            host_program p;
            matrix x, z;
            fakes_reset(f);
            f->driver->fail = names[i], f->driver->fail_at = nth, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
            dlc_status status = open_program(false, &p);
            for (int r = 0; r < RUNS && status == DLC_OK; r++) {
                make(&x, &z, r);
                status = run(p.program, &x, &z);
                if (status == DLC_OK) assert_memory_equal(z.data, wanted[r], sizeof wanted[r]);
            }
            close_program(&p);
            if (f->driver->seen < nth) break;
            seen++;
            assert_int_equal(status, strcmp(names[i], "cuGraphLaunch") == 0 ? DLC_DEVICE_ERROR : DLC_OK);
            if (!fakes_are_empty(f)) fail_msg("after call %ld of %s failed", nth, names[i]);
        }
    fakes_reset(f);
    assert_true(seen > 10);
}

/* A scan over x's rows, whose carry is the stack's element: z[i] = tanh(z[i-1] + x[i]) + x[i], z[-1] = 0 */
static dlc_graph *loop(dlc_context *context) {
    dlc_graph *g;
    if (dlc_graph_create(context, &g) != DLC_OK) return NULL;
    dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({ROWS, NULL}, {COLUMNS, NULL})), zero, results[2];
    zero = dlc_constant(g, DLC_F32, 1, (int64_t[]){COLUMNS}, (float[COLUMNS]){0});
    dlc_graph *body = dlc_subgraph(g);
    dlc_value h = dlc_input(body, "h", DLC_F32, DIMS({COLUMNS, NULL}));
    dlc_value row = dlc_input(body, "row", DLC_F32, DIMS({COLUMNS, NULL}));
    dlc_value next = dlc_add(dlc_tanh(dlc_add(h, row)), row);
    dlc_output(body, "h", next);
    dlc_output(body, "z", next);
    dlc_scan(g, 2, (dlc_value[]){zero, x}, body, 1, 1, 2, results);
    dlc_output(g, "z", results[1]);
    return g;
}

static void run_loops(bool no_batches, float z[2][ROWS * COLUMNS]) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    host_program p;
    matrix x, to;
    options.target = "cuda";
    options.no_batches = no_batches;
    fakes_reset(f);
    assert_int_equal(dlc_context_create(&options, &p.context), DLC_OK);
    dlc_graph *g = loop(p.context);
    assert_int_equal(dlc_compile(p.context, g, NULL, &p.program), DLC_OK);
    dlc_graph_destroy(g);
    for (int i = 0; i < RUNS; i++) {
        make(&x, &to, i & 1);
        describe(&to, COLUMNS);
        if (run(p.program, &x, &to) != DLC_OK) fail_msg("%s; %s", dlc_error_message(p.context), f->driver->message);
        if (i > 1) assert_memory_equal(z[i & 1], to.data, sizeof z[0]);
        memcpy(z[i & 1], to.data, sizeof z[0]);
    }
    close_program(&p);
    assert_true(fakes_are_empty(f));
}

/* All iterations are one graph from the second run on. */
static void test_loop(void **state) {
    (void)state;
    static float plain[2][ROWS * COLUMNS], batched[2][ROWS * COLUMNS];
    run_loops(true, plain);
    assert_int_equal(f->driver->graph_launches, 0);
    const long launches = f->driver->launches;
    assert_int_equal(launches % RUNS, 0);
    assert_true(launches >= RUNS * ROWS);
    run_loops(false, batched);
    assert_int_equal(f->driver->launches, launches / RUNS);
    assert_int_equal(f->driver->graph_launches, RUNS - 1);
    assert_memory_equal(plain, batched, sizeof plain);
    fakes_reset(f);
}

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),     cmocka_unit_test(test_under_way), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
