/* Runs that return before the device is done: events, in order on streams, with tensors of the host that are not compact, errors that
 * appear later, plans that are evicted meanwhile; every call failing in turn. On other targets an event is done at once. */
#include "test/counting.h"
#include "test/cuda/host.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static dlc_status start(dlc_program *program, void *stream, const DLTensor *x, DLTensor *y, dlc_event **event) {
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.stream = stream;
    options.event = event;
    dlc_output_slot slot = {.tensor = y};
    return dlc_run(program, &options, &x, 1, &slot, 1);
}

/* Nothing has happened when the run returns; many at once, more than streams are kept. */
static void test_events(void **state) {
    (void)state;
    enum { RUNS = 12 };
    dlc_context *context;
    matrix x, y[RUNS], wanted;
    dlc_event *event[RUNS];
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    for (int i = 0; i < RUNS; i++) {
        describe(&y[i], WIDTH);
        memset(y[i].data, 0, sizeof y[i].data);
        if (start(program, i % 2 ? (void *)-1 : NULL, &x.tensor, &y[i].tensor, &event[i]) != DLC_OK)
            fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
        assert_non_null(event[i]);
        assert_null(f->current_context());
    }
    for (int i = 0; i < RUNS; i++) assert_true(y[i].data[0] == 0);
    for (int i = RUNS - 1; i >= 0; i--) {
        bool done = false;
        int asked = 0;
        while (i % 3 == 0 && !done) {
            assert_int_equal(dlc_event_query(event[i], &done), DLC_OK);
            asked++;
        }
        assert_true(i % 3 || asked > 2);
        for (int k = 0; k < 2; k++) assert_int_equal(dlc_event_wait(event[i]), DLC_OK);
        assert_memory_equal(y[i].data, wanted.data, ROWS * WIDTH * sizeof(float));
        dlc_event_destroy(event[i]);
    }
    /* one that nobody waits for */
    memset(y[0].data, 0, sizeof y[0].data);
    assert_int_equal(start(program, NULL, &x.tensor, &y[0].tensor, &event[0]), DLC_OK);
    dlc_event_destroy(event[0]);
    assert_memory_equal(y[0].data, wanted.data, ROWS * WIDTH * sizeof(float));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* Tensors on the device; the host's other stream waits for the run without the host; the default stream is one, too. */
static void test_order(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted, got;
    expect(&wanted);
    fakes_reset(f);
    cuda_host h = host_begin();
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    float values[ROWS * COLUMNS];
    memcpy(values, x.data, sizeof values);
    describe(&y, WIDTH);
    put_on_device(&x, h.x);
    put_on_device(&y, h.y);
    void *const streams[] = {h.stream, (void *)1, (void *)2, NULL};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        dlc_event *event;
        /* the input is written on the same stream, and not waited for */
        CUstream first = streams[i] ? streams[i] : h.stream;
        assert_int_equal(own.cuMemcpyHtoDAsync_v2(h.x, values, sizeof values, first), 0);
        if (!streams[i]) assert_int_equal(own.cuStreamSynchronize(first), 0);
        if (start(program, streams[i], &x.tensor, &y.tensor, &event) != DLC_OK)
            fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
        CUstream later;
        assert_int_equal(own.cuStreamCreate(&later, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(dlc_event_order(event, later), DLC_OK);
        memset(got.data, 0, sizeof got.data);
        assert_int_equal(own.cuMemcpyDtoHAsync_v2(got.data, h.y, ROWS * WIDTH * sizeof(float), later), 0);
        assert_int_equal(own.cuStreamSynchronize(later), 0);
        assert_memory_equal(got.data, wanted.data, ROWS * WIDTH * sizeof(float));
        assert_int_equal(dlc_event_wait(event), DLC_OK);
        assert_int_equal(dlc_event_order(event, later), DLC_OK);
        dlc_event_destroy(event);
        own.cuStreamDestroy_v2(later);
        assert_ptr_equal(f->current_context(), h.context);
    }
    dlc_event *event = (dlc_event *)1;
    x.tensor.device.device_id = 1;
    assert_int_equal(start(program, NULL, &x.tensor, &y.tensor, &event), DLC_INVALID_ARGUMENT);
    assert_null(event);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* The tensors' descriptions are gone when the copies are made. */
static void test_strides(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, wanted;
    dlc_event *event;
    float in[ROWS * 8] = {0}, out[ROWS * 8] = {0};
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) in[i / COLUMNS * 8 + i % COLUMNS * 2] = x.data[i];
    {
        int64_t shapes[2][2] = {{ROWS, COLUMNS}, {ROWS, WIDTH}}, strides[2][2] = {{8, 2}, {1, ROWS}};
        DLTensor a = x.tensor, b = x.tensor;
        a.data = in, a.shape = shapes[0], a.strides = strides[0];
        b.data = out, b.shape = shapes[1], b.strides = strides[1];
        assert_int_equal(start(program, NULL, &a, &b, &event), DLC_OK);
        memset(shapes, 0xff, sizeof shapes), memset(strides, 0xff, sizeof strides), memset(&b, 0xff, sizeof b);
    }
    assert_true(out[0] == 0);
    assert_int_equal(dlc_event_wait(event), DLC_OK);
    for (int i = 0; i < ROWS * WIDTH; i++) assert_true(out[i / WIDTH + i % WIDTH * ROWS] == wanted.data[i]);
    dlc_event_destroy(event);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* Kernels and constants of a run under way stay, though its plan is retired and the cache is full. */
static void test_eviction(void **state) {
    (void)state;
    enum { SHAPES = 6 };
    dlc_context *context;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    matrix x[SHAPES], y[SHAPES], again;
    dlc_event *event[SHAPES];
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    fakes_reset(f);
    options.target = "cuda";
    options.cache_bytes = 1;
    options.plan_cache_entries = 1;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    dlc_program *program = compile(context);
    for (int i = 0; i < SHAPES; i++) {
        fill(&x[i], COLUMNS), describe(&y[i], WIDTH);
        x[i].shape[0] = y[i].shape[0] = 1 + i % 4;
        assert_int_equal(start(program, NULL, &x[i].tensor, &y[i].tensor, &event[i]), DLC_OK);
    }
    for (int i = 0; i < SHAPES; i++) {
        if (dlc_event_wait(event[i]) != DLC_OK) fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
        dlc_event_destroy(event[i]);
    }
    for (int i = 0; i < SHAPES; i++) {
        describe(&again, WIDTH);
        again.shape[0] = y[i].shape[0];
        assert_int_equal(run(program, &x[i], &again), DLC_OK);
        assert_memory_equal(again.data, y[i].data, (size_t)y[i].shape[0] * WIDTH * sizeof(float));
    }
    dlc_context_statistics(context, &statistics);
    assert_true(statistics.plan_evictions >= SHAPES && statistics.kernel_evictions > 0);
    assert_true(f->driver->modules > 0 && f->driver->modules <= 4); /* the last plan's: what is evicted is unloaded */
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* A run that fails behind the host's back. */
static void test_late_error(void **state) {
    (void)state;
    static const char *const ways[] = {"cuEventSynchronize", "cuEventQuery"};
    dlc_context *context;
    matrix x, y, wanted;
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    describe(&y, WIDTH);
    for (int way = 0; way < 2; way++) {
        dlc_event *event;
        bool done = false;
        assert_int_equal(start(program, NULL, &x.tensor, &y.tensor, &event), DLC_OK);
        f->driver->fail = "cuEventSynchronize", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
        f->driver->seen = 0;
        dlc_status status = DLC_OK;
        while (way && status == DLC_OK && !done) status = dlc_event_query(event, &done);
        if (!way) status = dlc_event_wait(event);
        assert_int_equal(status, DLC_DEVICE_ERROR);
        assert_true(!way || done);
        assert_non_null(strstr(dlc_error_message(context), ways[0]));
        assert_int_equal(dlc_event_wait(event), DLC_DEVICE_ERROR); /* and it stays so */
        dlc_event_destroy(event);
    }
    assert_int_equal(run(program, &x, &y), DLC_OK);
    assert_memory_equal(y.data, wanted.data, ROWS * WIDTH * sizeof(float));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

static dlc_status live(void) {
    dlc_context *context;
    matrix x, y[2];
    dlc_event *event[2] = {NULL, NULL};
    bool done;
    dlc_status status = create("cuda", &context);
    if (status != DLC_OK) return status;
    dlc_graph *g = build(context);
    dlc_program *program = NULL;
    status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    fill(&x, COLUMNS);
    for (int i = 0; i < 2 && status == DLC_OK; i++) {
        describe(&y[i], WIDTH);
        status = start(program, NULL, &x.tensor, &y[i].tensor, &event[i]);
        if (status != DLC_OK && event[i]) fail_msg("a failed run left an event");
    }
    if (status == DLC_OK) status = dlc_event_query(event[1], &done);
    if (status == DLC_OK) status = dlc_event_wait(event[0]);
    for (int i = 0; i < 2; i++) dlc_event_destroy(event[i]);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return status;
}

static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X)
#undef X
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth++) {
            if (strstr(names[i], "PushCurrent")) break;
            fakes_reset(f);
            f->driver->fail = names[i], f->driver->fail_at = nth, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
            dlc_status status = live();
            if (f->driver->seen < nth) break;
            if (!fakes_are_empty(f)) fail_msg("after call %ld of %s failed", nth, names[i]);
            failures += status != DLC_OK;
            bool harmless = strstr(names[i], "Destroy") || strstr(names[i], "Query"); /* waiting says how it was */
            if (status == DLC_OK && strstr(names[i], "Event") && nth == 1 && !harmless)
                fail_msg("call %ld of %s may fail unnoticed", nth, names[i]);
        }
    fakes_reset(f);
    assert_true(failures > 40);
    assert_int_equal(live(), DLC_OK);
}

typedef struct runner {
    dlc_program *program;
    const matrix *wanted;
    bool good;
} runner;

static void *run_many(void *argument) {
    enum { AHEAD = 3 };
    runner *r = argument;
    matrix x, y[AHEAD];
    dlc_event *event[AHEAD];
    fill(&x, COLUMNS);
    r->good = true;
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < AHEAD; k++) {
            describe(&y[k], WIDTH);
            r->good = r->good && start(r->program, NULL, &x.tensor, &y[k].tensor, &event[k]) == DLC_OK;
        }
        for (int k = 0; r->good && k < AHEAD; k++) {
            r->good = dlc_event_wait(event[k]) == DLC_OK &&
                      memcmp(y[k].data, r->wanted->data, ROWS * WIDTH * sizeof(float)) == 0;
            dlc_event_destroy(event[k]);
        }
    }
    return NULL;
}

/* Programs on two devices, several threads on each, several runs of each thread. */
static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 6 };
    dlc_context *context[2];
    dlc_program *program[2];
    matrix wanted;
    pthread_t threads[THREADS];
    runner runners[THREADS];
    expect(&wanted);
    fakes_reset(f);
    for (int d = 0; d < 2; d++) {
        assert_int_equal(create(d ? "cuda:1" : "cuda:0", &context[d]), DLC_OK);
        program[d] = compile(context[d]);
    }
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (runner){program[i % 2], &wanted, false};
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(runners[i].good);
    }
    for (int d = 0; d < 2; d++) {
        dlc_program_destroy(program[d]);
        dlc_context_destroy(context[d]);
    }
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* On a host target a run is done when it returns; kept calls as well. */
static void test_host_target(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted;
    dlc_event *event;
    dlc_call *call;
    bool done = false;
    expect(&wanted);
    assert_int_equal(create("interp", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS), describe(&y, WIDTH);
    assert_int_equal(start(program, NULL, &x.tensor, &y.tensor, &event), DLC_OK);
    assert_memory_equal(y.data, wanted.data, ROWS * WIDTH * sizeof(float));
    assert_int_equal(dlc_event_query(event, &done), DLC_OK);
    assert_true(done);
    assert_int_equal(dlc_event_wait(event), DLC_OK);
    dlc_event_destroy(event);
    const DLTensor *inputs[] = {&x.tensor};
    DLTensor *outputs[] = {&y.tensor};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.event = &event;
    assert_int_equal(dlc_call_create(program, inputs, 1, outputs, 1, &call), DLC_OK);
    assert_int_equal(dlc_call_run(call, &options), DLC_OK);
    assert_int_equal(dlc_event_wait(event), DLC_OK);
    dlc_event_destroy(event);
    dlc_call_destroy(call);
    x.shape[1] = 1;
    assert_int_equal(start(program, NULL, &x.tensor, &y.tensor, &event), DLC_INVALID_ARGUMENT);
    assert_null(event);
    assert_int_equal(dlc_event_wait(NULL), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_event_query(NULL, &done), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_event_order(NULL, NULL), DLC_INVALID_ARGUMENT);
    dlc_event_destroy(NULL);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Waiting for an event waits for the run alone, not for work that the host enqueues on its stream after the run. */
static void test_work_after(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted, got;
    expect(&wanted);
    fakes_reset(f);
    cuda_host h = host_begin();
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS), describe(&y, WIDTH);
    host_write(&h, h.x, x.data, sizeof(float) * ROWS * COLUMNS);
    put_on_device(&x, h.x), put_on_device(&y, h.y);
    for (int asks = 0; asks < 2; asks++) {
        dlc_event *event;
        bool done = false;
        assert_int_equal(start(program, h.stream, &x.tensor, &y.tensor, &event), DLC_OK);
        memset(got.data, 0, sizeof got.data);
        assert_int_equal(own.cuMemcpyDtoHAsync_v2(got.data, h.y, ROWS * WIDTH * sizeof(float), h.stream), 0);
        while (asks && !done) assert_int_equal(dlc_event_query(event, &done), DLC_OK);
        assert_int_equal(dlc_event_wait(event), DLC_OK);
        dlc_event_destroy(event);
        assert_true(got.data[0] == 0);
        assert_int_equal(own.cuStreamSynchronize(h.stream), 0);
        assert_memory_equal(got.data, wanted.data, ROWS * WIDTH * sizeof(float));
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* Device memory that runs under way will release is waited for, on whatever stream. */
static void test_memory_under_way(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y[2], wanted;
    dlc_event *event[2];
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    for (int i = 0; i < 2; i++) describe(&y[i], WIDTH);
    assert_int_equal(run(program, &x, &y[0]), DLC_OK); /* constants are on the device */
    assert_int_equal(start(program, NULL, &x.tensor, &y[0].tensor, &event[0]), DLC_OK);
    f->driver->memory = f->driver->bytes; /* not for two runs at once */
    if (start(program, NULL, &x.tensor, &y[1].tensor, &event[1]) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dlc_event_wait(event[i]), DLC_OK);
        assert_memory_equal(y[i].data, wanted.data, ROWS * WIDTH * sizeof(float));
        dlc_event_destroy(event[i]);
    }
    f->driver->memory = 0;
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* A child of the host's process cannot use the device, but frees what it has in memory: of events under way, on the host's stream and
 * others, and of kernels that copy strided tensors. */
static void test_fork(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it does not follow threads into a forked child */
#endif
    counting memory = {0};
    const dlc_allocator allocator = {counting_allocate, counting_release, &memory};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    dlc_event *event[2];
    matrix x, y[2], wanted;
    expect(&wanted);
    fakes_reset(f);
    cuda_host h = host_begin();
    options.target = "cuda";
    options.allocator = &allocator;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    host_write(&h, h.x + 4, x.data, sizeof(float) * ROWS * COLUMNS);
    put_on_device(&x, h.x + 4);
    for (int i = 0; i < 2; i++) {
        describe(&y[i], WIDTH);
        assert_int_equal(start(program, i ? h.stream : NULL, &x.tensor, &y[i].tensor, &event[i]), DLC_OK);
    }
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 2; i++) dlc_event_destroy(event[i]);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        _exit(memory.outstanding == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dlc_event_wait(event[i]), DLC_OK);
        assert_memory_equal(y[i].data, wanted.data, ROWS * WIDTH * sizeof(float));
        dlc_event_destroy(event[i]);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(memory.outstanding, 0);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),           cmocka_unit_test(test_order),       cmocka_unit_test(test_strides),
        cmocka_unit_test(test_eviction),         cmocka_unit_test(test_late_error),  cmocka_unit_test(test_failures),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_host_target), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_memory_under_way), cmocka_unit_test(test_work_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
