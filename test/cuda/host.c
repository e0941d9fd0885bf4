#include "test/cuda/host.h"

#include <dlfcn.h>
#include <string.h>

cuda_driver own;
fakes *f;

void host_open(void) {
    f = fakes_open();
    void *library = dlopen(f->driver_path, RTLD_NOW);
#define X(need, type, name, parameters) *(void **)(void *)&own.name = dlsym(library, #name);
    CUDA_DRIVER_TABLE(X)
#undef X
}

/* Constants as they are and precomputed, kernels in a row, an output that the library may not compute again. All numbers are multiples of
 * a quarter: sums are exact in any order. */
dlc_graph *build(dlc_context *context) {
    static float weights[COLUMNS * WIDTH], bias[WIDTH];
    for (int i = 0; i < COLUMNS * WIDTH; i++) weights[i] = (float)(i % 7) - 3;
    for (int i = 0; i < WIDTH; i++) bias[i] = 0.25f * (float)i;
    dlc_graph *g;
    if (dlc_graph_create(context, &g) != DLC_OK) return NULL;
    dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL}));
    dlc_value w = dlc_constant(g, DLC_F32, 2, (int64_t[]){COLUMNS, WIDTH}, weights);
    dlc_value b = dlc_constant(g, DLC_F32, 1, (int64_t[]){WIDTH}, bias);
    dlc_value sums = dlc_linear(x, dlc_abs(w), b);
    dlc_output(
        g, "y",
        dlc_sub(sums, dlc_reduce_sum_with(sums, 1, (int64_t[]){1},
                                          &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true})));
    return g;
}

/* Several kernels in a row: products of the rows of cumulative sums of softmax(x), [rows, rows]. */
dlc_graph *three(dlc_context *context) {
    dlc_graph *g;
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({0, "rows"}, {COLUMNS, NULL}));
    dlc_value y = dlc_softmax(x, 1);
    dlc_value z = dlc_reverse(dlc_cumulative_sum(y, 0), 1, (int64_t[]){0});
    dlc_output(g, "z", dlc_matmul(z, dlc_transpose(z, 2, (int64_t[]){1, 0})));
    return g;
}

dlc_program *compile(dlc_context *context) {
    dlc_graph *g = build(context);
    dlc_program *program = NULL;
    dlc_status status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    assert_int_equal(status, DLC_OK);
    return program;
}

dlc_status create(const char *target, dlc_context **context) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = target;
    return dlc_context_create(&options, context);
}

/* ---- tensors */

void describe(matrix *m, int columns) {
    m->shape[0] = ROWS;
    m->shape[1] = columns;
    m->tensor =
        (DLTensor){.data = m->data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = m->shape};
}

void fill(matrix *m, int columns) {
    for (int i = 0; i < ROWS * columns; i++) m->data[i] = (float)((i * 37) % 11) / 4 - 1;
    describe(m, columns);
}

dlc_status run(dlc_program *program, matrix *x, matrix *y) {
    const DLTensor *inputs[] = {&x->tensor};
    dlc_output_slot slot = {.tensor = &y->tensor};
    return dlc_run(program, NULL, inputs, 1, &slot, 1);
}

/* What the interp target gives. */
void expect(matrix *y) {
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

/* A host that uses CUDA itself: the primary context, a stream, memory. */
cuda_host host_begin(void) {
    cuda_host h;
    assert_int_equal(own.cuDevicePrimaryCtxRetain(&h.context, 0), 0);
    assert_int_equal(own.cuCtxPushCurrent_v2(h.context), 0);
    assert_int_equal(own.cuStreamCreate(&h.stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(own.cuMemAlloc_v2(&h.x, sizeof(float) * ROWS * 8), 0);
    assert_int_equal(own.cuMemAlloc_v2(&h.y, sizeof(float) * ROWS * 8), 0);
    return h;
}

void host_end(cuda_host *h) {
    own.cuMemFree_v2(h->x);
    own.cuMemFree_v2(h->y);
    own.cuStreamDestroy_v2(h->stream);
    own.cuCtxPopCurrent_v2(&h->context);
    own.cuDevicePrimaryCtxRelease_v2(0);
}

void host_write(const cuda_host *h, CUdeviceptr to, const void *from, size_t size) {
    assert_int_equal(own.cuMemcpyHtoDAsync_v2(to, from, size, h->stream), 0);
    assert_int_equal(own.cuStreamSynchronize(h->stream), 0);
}
void host_read(const cuda_host *h, void *to, CUdeviceptr from, size_t size) {
    assert_int_equal(own.cuMemcpyDtoHAsync_v2(to, from, size, h->stream), 0);
    assert_int_equal(own.cuStreamSynchronize(h->stream), 0);
}

void put_on_device(matrix *m, CUdeviceptr where) {
    m->tensor.data = (void *)(uintptr_t)where;
    m->tensor.device = (DLDevice){kDLCUDA, 0};
}
