/* Programs on the cuda target through the public header, on the fake driver, whose kernels the interpreter runs: bit for bit what the
 * interp target gives. Tensors of the host and on the device, control flow, host functions, donation, profiles; every call of the
 * driver failing in turn, while the program stays usable and nothing is left. */
#include "test/cuda/fakes.h"

#include <dlc/dlc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the driver, beside what libdlc calls itself; the fake's, for tensors on the device. */
#include "targets/cuda/api.h"
#include <dlfcn.h>

static fakes *f;

enum { ROWS = 5, COLUMNS = 3, WIDTH = 4 };

static cuda_driver own;
static void open_own(void) {
    void *library = dlopen(f->driver_path, RTLD_NOW);
#define X(need, type, name, parameters) *(void **)(void *)&own.name = dlsym(library, #name);
    CUDA_DRIVER_TABLE(X)
#undef X
}

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

/* Constants of both kinds (as they are, precomputed), a host function, a loop, a branch, an output that is a part of another. */
static dlc_graph *build(dlc_context *context) {
    static float weights[COLUMNS * WIDTH], bias[WIDTH];
    for (int i = 0; i < COLUMNS * WIDTH; i++) weights[i] = (float)(i % 7) - 3;
    for (int i = 0; i < WIDTH; i++) bias[i] = 0.25f * (float)i;
    dlc_graph *g;
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    assert_int_equal(dlc_custom_register(g, "scale", scale, &calls), DLC_OK);
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "rows"}, {COLUMNS, NULL}});
    dlc_value w = dlc_constant(g, DLC_F32, 2, (int64_t[]){COLUMNS, WIDTH}, weights);
    dlc_value b = dlc_constant(g, DLC_F32, 1, (int64_t[]){WIDTH}, bias);
    dlc_value y = dlc_softmax(dlc_linear(x, dlc_exp(w), b, false), 1);
    dlc_output(g, "y", y);
    return g;
}

static dlc_program *compile(dlc_context *context) {
    dlc_graph *g = build(context);
    dlc_program *program = NULL;
    dlc_status status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    assert_int_equal(status, DLC_OK);
    return program;
}

static dlc_status create(const char *target, dlc_context **context) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = target;
    return dlc_context_create(&options, context);
}

/* ---- tensors */

typedef struct matrix {
    float data[ROWS * 8];
    int64_t shape[2];
    DLTensor tensor;
} matrix;

static void describe(matrix *m, int columns) {
    m->shape[0] = ROWS;
    m->shape[1] = columns;
    m->tensor =
        (DLTensor){.data = m->data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = m->shape};
}

static void fill(matrix *m, int columns) {
    for (int i = 0; i < ROWS * columns; i++) m->data[i] = (float)((i * 37) % 11) / 4 - 1;
    describe(m, columns);
}

static dlc_status run(dlc_program *program, matrix *x, matrix *y) {
    const DLTensor *inputs[] = {&x->tensor};
    dlc_output_slot slot = {.tensor = &y->tensor};
    return dlc_run(program, NULL, inputs, 1, &slot, 1);
}

/* What the interp target gives. */
static void expect(matrix *y) {
    dlc_context *context;
    matrix x;
    fill(&x, COLUMNS);
    describe(y, WIDTH);
    assert_int_equal(create("interp", &context), DLC_OK);
    dlc_program *program = compile(context);
    assert_int_equal(run(program, &x, y), DLC_OK);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
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

/* A host that uses CUDA itself: the primary context, a stream, memory. */
typedef struct cuda_host {
    CUcontext context;
    CUstream stream;
    CUdeviceptr x, y;
} cuda_host;

static cuda_host host_begin(void) {
    cuda_host h;
    assert_int_equal(own.cuDevicePrimaryCtxRetain(&h.context, 0), 0);
    assert_int_equal(own.cuCtxPushCurrent_v2(h.context), 0);
    assert_int_equal(own.cuStreamCreate(&h.stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(own.cuMemAlloc_v2(&h.x, sizeof(float) * ROWS * 8), 0);
    assert_int_equal(own.cuMemAlloc_v2(&h.y, sizeof(float) * ROWS * 8), 0);
    return h;
}

static void host_end(cuda_host *h) {
    own.cuMemFree_v2(h->x);
    own.cuMemFree_v2(h->y);
    own.cuStreamDestroy_v2(h->stream);
    own.cuCtxPopCurrent_v2(&h->context);
    own.cuDevicePrimaryCtxRelease_v2(0);
}

static void host_write(const cuda_host *h, CUdeviceptr to, const void *from, size_t size) {
    assert_int_equal(own.cuMemcpyHtoDAsync_v2(to, from, size, h->stream), 0);
    assert_int_equal(own.cuStreamSynchronize(h->stream), 0);
}
static void host_read(const cuda_host *h, void *to, CUdeviceptr from, size_t size) {
    assert_int_equal(own.cuMemcpyDtoHAsync_v2(to, from, size, h->stream), 0);
    assert_int_equal(own.cuStreamSynchronize(h->stream), 0);
}

static void put_on_device(matrix *m, CUdeviceptr where) {
    m->tensor.data = (void *)(uintptr_t)where;
    m->tensor.device = (DLDevice){kDLCUDA, 0};
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
    dlc_statistics statistics;
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
    /* refused: another device, strides of an output */
    y.tensor.device.device_id = 1;
    slot = (dlc_output_slot){.tensor = &y.tensor};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(
        strstr(dlc_error_message(context), "output y is on device 1 of type 2; expected device 0 of type 2"));
    y.tensor.device.device_id = 0;
    y.tensor.strides = (int64_t[]){8, 1};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "not supported on devices"));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    host_end(&h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

int main(void) {
    f = fakes_open();
    open_own();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_tensors),
        cmocka_unit_test(test_strides_and_slots),
        cmocka_unit_test(test_device_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
