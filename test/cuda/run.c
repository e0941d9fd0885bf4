/* Programs on the cuda target through the public header, on the fake driver, whose kernels the interpreter runs: bit for bit what the
 * interp target gives. Tensors of the host and on the device, control flow, host functions, donation, profiles; every call of the
 * driver failing in turn, while the program stays usable and nothing is left. */
#include "test/cuda/host.h"

#include <dlc/dlc.h>
#include <dlc/eager.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- graphs */

static void scale(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)inputs, (void)outputs;
    const float *x = input[0]->data;
    float *y = output[0]->data;
    assert_int_equal(input[0]->device.device_type, kDLCPU);
    if (f->current_context()) *(int *)user = -1000; /* ours must not be current here */
    for (int64_t i = 0; i < input[0]->shape[0] * input[0]->shape[1]; i++) y[i] = 2 * x[i];
    ++*(int *)user;
}

static int calls;

/* The same with everything that the host takes part in: a host function, a loop, a branch; a donated buffer, a concatenation. */
static dlc_graph *build_all(dlc_context *context) {
    dlc_graph *g;
    if (dlc_graph_create(context, &g) != DLC_OK) return NULL;
    dlc_custom_register(g, "scale", scale, &calls);
    dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL})), scaled, looped[2], chosen;
    dlc_value cache = dlc_input(g, "cache", DLC_F32, DIMS({8, NULL}, {COLUMNS, NULL}));
    dlc_custom_call(g, 1, &x, "scale", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){2}, DIMS({0, "rows"}, {COLUMNS, NULL}),
                    1, &scaled);
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value ci = dlc_input(condition, "i", DLC_I32, 0, NULL), bi = dlc_input(body, "i", DLC_I32, 0, NULL);
    dlc_input(condition, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL}));
    dlc_value bx = dlc_input(body, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL}));
    dlc_output(condition, "go", dlc_lt(ci, dlc_scalar_i64(condition, DLC_I32, 3)));
    dlc_output(body, "i", dlc_add(bi, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_output(body, "x", dlc_add(bx, scaled));
    dlc_while(2, (dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), x}, condition, body, 2, looped);
    dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g);
    dlc_output(then, "r", dlc_neg(looped[1]));
    dlc_output(otherwise, "r", dlc_exp(looped[1]));
    dlc_value total = dlc_reduce_sum(scaled, 2, (int64_t[]){0, 1});
    dlc_if(dlc_lt(total, dlc_scalar(g, DLC_F32, 0)), 0, NULL, then, otherwise, 1, &chosen);
    dlc_value row = dlc_slice(dlc_exp(cache), DIMS({1, NULL}, {0, NULL}), DIMS({2, NULL}, {COLUMNS, NULL}));
    dlc_value next = dlc_dynamic_update_slice(cache, row, dlc_scalar_i64(g, DLC_I64, 3), 1, (int64_t[]){0});
    dlc_output(g, "chosen", chosen);
    dlc_output(g, "cache", next);
    dlc_output(g, "joined", dlc_concat(2, (dlc_value[]){dlc_neg(next), x}, 0));
    return g;
}

/* ---- tests */

static void test_host_tensors(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted;
    expect(&wanted);
    fakes_reset(f);
    if (create("cuda", &context) != DLC_OK) fail_msg("%s", dlc_error_message(NULL));
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    describe(&y, WIDTH);
    for (int i = 0; i < 3; i++) {
        memset(y.data, 0, sizeof y.data);
        if (run(program, &x, &y) != DLC_OK) fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
        assert_memory_equal(y.data, wanted.data, ROWS * WIDTH * sizeof(float));
    }
    assert_string_equal(f->driver->message, "");
    assert_true(f->driver->launches >= 3);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* Strides on the host; a slot for the library to fill. */
static void test_strides_and_slots(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, wide, wanted;
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda:1", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    describe(&wide, COLUMNS);
    int64_t strides[2] = {8, 2};
    wide.tensor.strides = strides;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) wide.data[r * 8 + c * 2] = x.data[r * COLUMNS + c];
    const DLTensor *inputs[] = {&wide.tensor};
    dlc_output_slot slot = {0};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_OK);
    assert_int_equal(slot.managed->dl_tensor.device.device_type, kDLCPU);
    assert_memory_equal(slot.managed->dl_tensor.data, wanted.data, ROWS * WIDTH * sizeof(float));
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* All blocks of a phase are one launch, if the kernel has no local scratch: launches of as many blocks as there are multiprocessors would take
 * most of a map's time. */
static void test_blocks_are_one_launch(void **state) {
    (void)state;
    enum { MANY = 1 << 18 };
    static float x[MANY];
    static const char text[] = "graph {\n  input x: f32[262144]\n  y = neg(x)\n  output \"y\" = y\n}\n";
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    int64_t shape = MANY;
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = &shape};
    for (int i = 0; i < MANY; i++) x[i] = (float)i;
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    assert_int_equal(dlc_graph_parse(context, text, sizeof text - 1, &g), DLC_OK);
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    dlc_output_slot slot = {0};
    const int before = f->driver->launches;
    if (dlc_run(program, NULL, (const DLTensor *const[]){&in}, 1, &slot, 1) != DLC_OK)
        fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
    assert_int_equal(f->driver->launches - before, 1);
    const float *y = slot.managed->dl_tensor.data;
    for (int i = 0; i < MANY; i++) assert_true(y[i] == -x[i]);
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* A tensor without elements has no place on the device, nor has a constant that is precomputed. */
static void test_nothing(void **state) {
    (void)state;
    static const char text[] = "graph {\n  input q: f32[1, 1, 2, 2]\n  input k: f32[1, 1, 0, 2]\n"
                               "  y = attention(q, k, k)\n  output \"y\" = y\n}\n";
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    int64_t query[4] = {1, 1, 2, 2}, key[4] = {1, 1, 0, 2};
    float x[4] = {1, 2, 3, 4};
    DLTensor q = {.data = x, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = query}, k = q;
    k.shape = key;
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    assert_int_equal(dlc_graph_parse(context, text, sizeof text - 1, &g), DLC_OK);
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    dlc_output_slot slot = {0};
    if (dlc_run(program, NULL, (const DLTensor *const[]){&q, &k}, 2, &slot, 1) != DLC_OK)
        fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
    for (int i = 0; i < 4; i++) assert_true(((float *)slot.managed->dl_tensor.data)[i] == 0);
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* A part of a precomputed constant, and another shape of it. */
static void test_views_of_constants(void **state) {
    (void)state;
    static const char text[] =
        "graph {\n  c = constant f32[2, 2] {1, 2, 3, 4}\n  r = relu(c)\n  s = reshape(r, shape=[4])\n"
        "  t = slice(r, start=[1, 0], stop=[2, 2])\n  input x: i32[2]\n  a = gather(s, x, axis=0)\n"
        "  b = gather(t, x, axis=1)\n  output \"a\" = a\n  output \"b\" = b\n}\n";
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    int32_t indices[2] = {1, 0};
    int64_t two = 2;
    DLTensor x = {.data = indices, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = &two};
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    if (dlc_graph_parse(context, text, sizeof text - 1, &g) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    dlc_output_slot slots[2] = {{0}};
    if (dlc_run(program, NULL, (const DLTensor *const[]){&x}, 1, slots, 2) != DLC_OK)
        fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
    const float *a = slots[0].managed->dl_tensor.data, *b = slots[1].managed->dl_tensor.data;
    assert_true(a[0] == 2 && a[1] == 1 && b[0] == 4 && b[1] == 3);
    for (int i = 0; i < 2; i++) slots[i].managed->deleter(slots[i].managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

static void test_device_tensors(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted, got;
    expect(&wanted);
    fakes_reset(f);
    cuda_host h = host_begin();
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    describe(&y, WIDTH);
    host_write(&h, h.x, x.data, ROWS * COLUMNS * sizeof(float));
    put_on_device(&x, h.x);
    put_on_device(&y, h.y);
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.stream = h.stream;
    const DLTensor *inputs[] = {&x.tensor};
    for (int i = 0; i < 2; i++) { /* our stream, then the host's */
        dlc_output_slot slot = {.tensor = &y.tensor};
        if (dlc_run(program, i ? &options : NULL, inputs, 1, &slot, 1) != DLC_OK)
            fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
        host_read(&h, got.data, h.y, ROWS * WIDTH * sizeof(float));
        assert_memory_equal(got.data, wanted.data, ROWS * WIDTH * sizeof(float));
        assert_ptr_equal(f->current_context(), h.context);
    }
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &statistics);
    assert_int_equal(statistics.copied_bytes, 0);
    /* strided there: a compact copy; the result there as well */
    matrix wide;
    int64_t strides[2] = {8, 2};
    fill(&x, COLUMNS);
    describe(&wide, COLUMNS);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) wide.data[r * 8 + c * 2] = x.data[r * COLUMNS + c];
    host_write(&h, h.x, wide.data, sizeof(float) * ((ROWS - 1) * 8 + (COLUMNS - 1) * 2 + 1));
    put_on_device(&wide, h.x);
    wide.tensor.strides = strides;
    inputs[0] = &wide.tensor;
    dlc_output_slot slot = {0};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_OK);
    assert_int_equal(slot.managed->dl_tensor.device.device_type, kDLCUDA);
    host_read(&h, got.data, (uintptr_t)slot.managed->dl_tensor.data, ROWS * WIDTH * sizeof(float));
    assert_memory_equal(got.data, wanted.data, ROWS * WIDTH * sizeof(float));
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* Tensors of the device in an eager graph: results are there, too, and are read into host memory. */
static void test_eager_tensors(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, got;
    fakes_reset(f);
    cuda_host h = host_begin();
    assert_int_equal(create("cuda", &context), DLC_OK);
    fill(&x, COLUMNS);
    float most_wanted = 0, wanted[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        wanted[i] = -2 * x.data[i];
        most_wanted = wanted[i] > most_wanted ? wanted[i] : most_wanted;
    }
    host_write(&h, h.x, x.data, ROWS * COLUMNS * sizeof(float));
    put_on_device(&x, h.x);
    dlc_graph *g;
    assert_int_equal(dlc_eager_create(context, NULL, &g), DLC_OK);
    dlc_value v = dlc_eager_borrow(g, &x.tensor), half = dlc_neg(v);
    v = dlc_add(half, half);
    assert_int_equal(dlc_eager_step(g, 1, &v), DLC_OK);
    DLManagedTensorVersioned *there;
    assert_int_equal(dlc_eager_get(g, v, &there), DLC_OK);
    assert_int_equal(there->dl_tensor.device.device_type, kDLCUDA);
    host_read(&h, got.data, (uintptr_t)there->dl_tensor.data, sizeof wanted);
    assert_memory_equal(got.data, wanted, sizeof wanted);
    describe(&got, COLUMNS);
    assert_int_equal(dlc_eager_read(g, v, &got.tensor), DLC_OK);
    assert_memory_equal(got.data, wanted, sizeof wanted);
    double number;
    dlc_value most = dlc_max(dlc_reduce_max(v, 0, NULL), dlc_scalar(g, DLC_F32, 0));
    assert_int_equal(dlc_eager_number(g, most, &number), DLC_OK);
    assert_true(number == (double)most_wanted);
    dlc_graph_destroy(g);
    there->deleter(there); /* after the graph, before the context */
    dlc_context_destroy(context);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* One context from its making to its end; results in `got` [3]. */
static dlc_status live(const char *target, matrix got[3], int runs, char *message, size_t size) {
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    matrix x;
    fill(&x, COLUMNS);
    dlc_status status = create(target, &context);
    dlc_graph *g = status == DLC_OK ? build_all(context) : NULL;
    if (g) status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    if (status == DLC_OK && program) status = dlc_program_alias(program, 1, 1);
    for (int i = 0; i < runs && status == DLC_OK && program; i++) {
        describe(&got[0], COLUMNS), describe(&got[1], COLUMNS), describe(&got[2], COLUMNS);
        got[1].shape[0] = 8;
        got[2].shape[0] = 8 + ROWS;
        for (int k = 0; k < 8 * COLUMNS; k++) got[1].data[k] = (float)k / 8;
        const DLTensor *inputs[] = {&x.tensor, &got[1].tensor};
        dlc_output_slot slots[3] = {{.tensor = &got[0].tensor}, {.tensor = &got[1].tensor}, {.tensor = &got[2].tensor}};
        status = dlc_run(program, NULL, inputs, 2, slots, 3);
    }
    snprintf(message, size, "%s", dlc_error_message(context));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return status;
}

static void expect_equal(const matrix *a, const matrix *b) {
    for (int o = 0; o < 3; o++)
        assert_memory_equal(a[o].data, b[o].data, (size_t)a[o].shape[0] * COLUMNS * sizeof(float));
}

static void test_control(void **state) {
    (void)state;
    matrix got[3], wanted[3];
    char message[512];
    fakes_reset(f);
    calls = 0;
    if (live("interp", wanted, 1, message, sizeof message) != DLC_OK) fail_msg("%s", message);
    if (live("cuda", got, 2, message, sizeof message) != DLC_OK) fail_msg("%s; %s", message, f->driver->message);
    assert_int_equal(calls, 3);
    expect_equal(got, wanted);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

#ifdef DLC_TARGET_cpu
/* NVRTC refuses everything, and the CPU steps in: for updates in place, parts of concatenations, branches and loops. */
static void test_all_on_host(void **state) {
    (void)state;
    matrix got[3], wanted[3];
    char message[512];
    fakes_reset(f);
    if (live("interp", wanted, 1, message, sizeof message) != DLC_OK) fail_msg("%s", message);
    f->nvrtc->refuses = "kernel ";
    if (live("cuda", got, 2, message, sizeof message) != DLC_OK) fail_msg("%s; %s", message, f->driver->message);
    expect_equal(got, wanted);
    assert_int_equal(f->driver->launches, 0);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

#define TEST_ALL_ON_HOST cmocka_unit_test(test_all_on_host)
#else
#define TEST_ALL_ON_HOST cmocka_unit_test(test_control)
#endif

static bool gives_back(const char *name) {
    static const char *const parts[] = {"Unload", "Release", "Destroy", "PopCurrent", "Free"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return strcmp(name, "cuMemAllocHost_v2") == 0;
}

/* Each call fails in turn (some of them where they are many): a status with a message, nothing left, and then all is well again,
 * here and on another target. */
static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X) CUDA_NVRTC_TABLE(X)
#undef X
    };
    matrix got[3], wanted[3];
    char message[512];
    int failures = 0;
    if (live("interp", wanted, 1, message, sizeof message) != DLC_OK) fail_msg("%s", message);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth += nth < 12 ? 1 : 5) {
            if (strstr(names[i], "PushCurrent"))
                break; /* a context that cannot be entered keeps what it holds: target.c */
            fakes_reset(f);
            fake_control *c = strncmp(names[i], "nvrtc", 5) == 0 ? f->nvrtc : f->driver;
            c->fail = names[i], c->fail_at = nth, c->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
            dlc_status status = live("cuda", got, 2, message, sizeof message);
            if (c->seen < nth) break;
            if (!fakes_are_empty(f)) fail_msg("after call %ld of %s failed: %s", nth, names[i], message);
            if (status == DLC_OK) expect_equal(got, wanted); /* there was another way */
            failures += status != DLC_OK;
            bool other_way = gives_back(names[i]) || strstr(names[i], "FromPool") || strstr(names[i], "Graph") ||
                             c == f->nvrtc; /* the host's */
            if (nth == 1 && status == DLC_OK && !other_way)
                fail_msg("call %ld of %s may fail unnoticed", nth, names[i]);
        }
    fakes_reset(f);
    assert_in_range(failures, 61, 1000);
    assert_int_equal(live("interp", got, 1, message, sizeof message), DLC_OK);
    assert_int_equal(live("cuda", got, 1, message, sizeof message), DLC_OK);
    expect_equal(got, wanted);
}

/* Device memory ends in the middle of a run; the program runs when there is some again. */
static void test_memory_ends(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, y, wanted;
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    describe(&y, WIDTH);
    assert_int_equal(run(program, &x, &y), DLC_OK);
    f->driver->memory = f->driver->bytes + 64;
    assert_int_equal(run(program, &x, &y), DLC_OUT_OF_MEMORY);
    assert_non_null(strstr(dlc_error_message(context), "bytes of memory left"));
    f->driver->memory = 0;
    memset(y.data, 0, sizeof y.data);
    assert_int_equal(run(program, &x, &y), DLC_OK);
    assert_memory_equal(y.data, wanted.data, ROWS * WIDTH * sizeof(float));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

static void test_names(void **state) {
    (void)state;
    static const char *const wrong[] = {"cuda:", "cuda:x", "cuda:0x", "cuda:99999", "cpu:0", "cud", "cuda0", ":0"};
    dlc_context *context;
    fakes_reset(f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(create(wrong[i], &context), DLC_NOT_FOUND);
        assert_non_null(strstr(dlc_error_message(NULL), "no target is called"));
    }
    assert_int_equal(create("cuda:2", &context), DLC_UNSUPPORTED);
    assert_non_null(strstr(dlc_error_message(NULL), "there is no device 2"));
    assert_null(context);
}

/* However much memory there is: a run works or says that it is not enough, and leaves nothing there. */
static void test_any_memory(void **state) {
    (void)state;
    dlc_context *context;
    matrix x, z, wanted;
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_graph *g = three(context);
    dlc_program *program;
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    fill(&x, COLUMNS), describe(&z, ROWS), describe(&wanted, ROWS);
    for (int i = 0; i < 2; i++) assert_int_equal(run(program, &x, &wanted), DLC_OK);
    const size_t before = f->driver->bytes; /* some of it is released when the stream comes to it */
    int refused = 0;
    for (size_t more = 8; more < 1 << 20; more += more / 8) {
        f->driver->memory = more;
        dlc_status status = run(program, &x, &z);
        assert_true(f->driver->bytes <= before);
        if (status == DLC_OK) break;
        assert_int_equal(status, DLC_OUT_OF_MEMORY);
        refused++;
    }
    assert_true(refused > 2);
    assert_memory_equal(z.data, wanted.data, ROWS * ROWS * sizeof(float));
    f->driver->memory = 0;
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_true(fakes_are_empty(f));
}

/* Modules of a plan on several threads at once, if there are processors. */
static void test_compile_threads(void **state) {
    (void)state;
    dlc_context *context;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    matrix x, z;
    cpu_set_t usable;
    fakes_reset(f);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) skip();
    f->nvrtc->together = 2;
    options.target = "cuda";
    options.compile_threads = 2;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    dlc_graph *g = three(context);
    dlc_program *program;
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    fill(&x, COLUMNS), describe(&z, ROWS);
    assert_int_equal(run(program, &x, &z), DLC_OK);
    assert_int_equal(f->nvrtc->at_once, 2);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

typedef struct runner {
    dlc_program *program;
    const matrix *wanted;
    bool good;
} runner;

static void *run_many(void *argument) {
    runner *r = argument;
    matrix x, y;
    fill(&x, COLUMNS);
    describe(&y, WIDTH);
    r->good = true;
    for (int i = 0; i < 20 && r->good; i++) {
        memset(y.data, 0, sizeof y.data);
        r->good =
            run(r->program, &x, &y) == DLC_OK && memcmp(y.data, r->wanted->data, ROWS * WIDTH * sizeof(float)) == 0;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 12 }; /* more than streams and frames are kept */
    dlc_context *context;
    matrix wanted;
    pthread_t threads[THREADS];
    runner runners[THREADS];
    expect(&wanted);
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    dlc_program *program = compile(context);
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (runner){program, &wanted, false};
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(runners[i].good);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

/* Sizes that are parameters decide where parts of a value lie, and with that what their kernels may rely on: a kernel for a part at a
 * multiple of many bytes is not used for one that lies elsewhere. */
static void test_alignment(void **state) {
    (void)state;
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    fakes_reset(f);
    assert_int_equal(create("cuda", &context), DLC_OK);
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL}));
    assert_int_equal(dlc_symbol_varies(g, "rows", 1, 64, 1), DLC_OK);
    dlc_value sums = dlc_cumulative_sum(x, 0);
    dlc_value parts[2] = {
        sums, dlc_cumulative_sum_with(
                  sums, 0, &(dlc_cumulative_sum_options){sizeof(dlc_cumulative_sum_options), .reverse = true})};
    dlc_output(g, "y", dlc_concat(2, parts, 0));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    const int64_t rows[3] = {32, 21, 64};
    uint64_t builds[3];
    for (int i = 0; i < 3; i++) {
        const int64_t shape[2] = {rows[i], COLUMNS};
        assert_int_equal(dlc_prepare(program, (const int64_t *[]){shape}, (int[]){2}, 1), DLC_OK);
        dlc_statistics s = DLC_STATISTICS_INIT;
        dlc_context_statistics(context, &s);
        builds[i] = s.kernel_builds;
    }
    assert_true(builds[1] > builds[0]);
    assert_int_equal(builds[2], builds[1]);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_tensors),   cmocka_unit_test(test_strides_and_slots),
        cmocka_unit_test(test_device_tensors), cmocka_unit_test(test_eager_tensors),
        cmocka_unit_test(test_control),        TEST_ALL_ON_HOST,
        cmocka_unit_test(test_nothing),        cmocka_unit_test(test_views_of_constants),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_memory_ends),
        cmocka_unit_test(test_any_memory),     cmocka_unit_test(test_compile_threads),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_alignment),      cmocka_unit_test(test_blocks_are_one_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
