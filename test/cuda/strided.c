/* Tensors on the device that kernels cannot use as they are: any strides, any alignment, in and out, element for element and bit for bit,
 * with nothing written beside them; donated ones; where tensors may not lie. */
#include "test/cuda/host.h"

#include <stdio.h>
#include <string.h>

enum { SPACE = 4096 };

static uint64_t seed = 1;
static int64_t random_below(int64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

/* Shape and strides without overlap, some of them negative; where in its space it begins. */
typedef struct placed {
    DLTensor tensor;
    int64_t shape[4], strides[4];
} placed;

static void place(placed *p, int rank, const int64_t *shape, DLDataType dtype, CUdeviceptr space, bool aligned) {
    int order[4] = {0, 1, 2, 3}, element = dtype.bits / 8;
    int64_t step = 1 + random_below(3), low = 0;
    for (int d = rank - 1; d > 0; d--) {
        int other = (int)random_below(d + 1), kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    for (int d = 0; d < rank; d++) {
        p->shape[order[d]] = shape[order[d]];
        p->strides[order[d]] = random_below(3) ? step : -step;
        if (p->strides[order[d]] < 0) low += step * (shape[order[d]] - 1);
        step = step * shape[order[d]] + random_below(3);
    }
    uint64_t offset = (uint64_t)(low * element) + 64 + (aligned ? 0 : 1 + (uint64_t)random_below(7));
    p->tensor = (DLTensor){.data = (void *)(uintptr_t)(space + 16),
                           .device = {kDLCUDA, 0},
                           .ndim = rank,
                           .dtype = dtype,
                           .shape = p->shape,
                           .strides = p->strides,
                           .byte_offset = offset};
}

/* Bytes of element `number` of the tensor in a copy of its space. */
static unsigned char *at(const placed *p, unsigned char *space, int64_t number) {
    int64_t offset = 0;
    for (int d = p->tensor.ndim - 1; d >= 0; d--) {
        offset += number % p->shape[d] * p->strides[d];
        number /= p->shape[d];
    }
    return space + 16 + p->tensor.byte_offset + offset * (p->tensor.dtype.bits / 8);
}

static dlc_program *identity(dlc_context *context, dlc_dtype dtype, int rank) {
    static const char *const names[] = {"a", "b", "c", "d"};
    dlc_dim dims[4];
    dlc_graph *g;
    dlc_program *program = NULL;
    for (int d = 0; d < rank; d++) dims[d] = (dlc_dim){0, names[d]};
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_output(g, "y", dlc_input(g, "x", dtype, rank, dims));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    return program;
}

static void move_randomly(const cuda_host *h, dlc_context *context, dlc_program *program, DLDataType dtype, int rank,
                          bool empty) {
    unsigned char in[SPACE], out[SPACE], before[SPACE];
    placed x, y;
    int64_t shape[4], count = 1;
    for (int d = 0; d < rank; d++) count *= shape[d] = empty && d == rank - 1 ? 0 : 1 + random_below(rank > 2 ? 3 : 6);
    place(&x, rank, shape, dtype, h->x, random_below(3) > 0);
    place(&y, rank, shape, dtype, h->y, random_below(3) > 0);
    for (int i = 0; i < SPACE; i++) in[i] = (unsigned char)random_below(256), before[i] = (unsigned char)(i % 253);
    if (dtype.code == kDLBool)
        for (int64_t i = 0; i < count; i++) *at(&x, in, i) &= 1;
    host_write(h, h->x, in, SPACE);
    host_write(h, h->y, before, SPACE);
    const DLTensor *inputs[] = {&x.tensor};
    dlc_output_slot slot = {.tensor = &y.tensor};
    if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK)
        fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
    host_read(h, out, h->y, SPACE);
    size_t size = dtype.bits / 8;
    for (int64_t i = 0; i < count; i++) {
        assert_memory_equal(at(&y, out, i), at(&x, in, i), size);
        memcpy(at(&y, before, i), at(&x, in, i), size);
    }
    assert_memory_equal(out, before, SPACE);
}

static cuda_host begin(dlc_context **context) {
    fakes_reset(f);
    cuda_host h = host_begin();
    own.cuMemFree_v2(h.x), own.cuMemFree_v2(h.y);
    assert_int_equal(own.cuMemAlloc_v2(&h.x, SPACE), 0);
    assert_int_equal(own.cuMemAlloc_v2(&h.y, SPACE), 0);
    assert_int_equal(create("cuda", context), DLC_OK);
    return h;
}

static void end(cuda_host *h, dlc_context *context) {
    dlc_context_destroy(context);
    assert_ptr_equal(f->current_context(), h->context);
    host_end(h);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

static void test_any_strides(void **state) {
    (void)state;
    static const struct {
        dlc_dtype dtype;
        DLDataType dlpack;
    } types[] = {{DLC_BOOL, {kDLBool, 8, 1}},    {DLC_I8, {kDLInt, 8, 1}},     {DLC_F16, {kDLFloat, 16, 1}},
                 {DLC_BF16, {kDLBfloat, 16, 1}}, {DLC_F32, {kDLFloat, 32, 1}}, {DLC_I64, {kDLInt, 64, 1}},
                 {DLC_F64, {kDLFloat, 64, 1}}};
    dlc_context *context;
    cuda_host h = begin(&context);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int rank = 1; rank <= 4; rank++) {
            dlc_program *program = identity(context, types[t].dtype, rank);
            for (int i = 0; i < 6; i++) move_randomly(&h, context, program, types[t].dlpack, rank, i == 5);
            dlc_program_destroy(program);
        }
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &statistics);
    assert_int_equal(statistics.transferred_bytes, 0); /* nothing by way of the host */
    end(&h, context);
}

/* Compact, but not where kernels take vectors. */
static void test_between_vectors(void **state) {
    (void)state;
    enum { COUNT = 37 };
    dlc_context *context;
    cuda_host h = begin(&context);
    float in[SPACE / 4], out[SPACE / 4];
    dlc_graph *g;
    dlc_program *program = NULL;
    int64_t shape[] = {COUNT};
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_output(g, "y", dlc_neg(dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{COUNT, NULL}})));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    for (int i = 0; i < SPACE / 4; i++) in[i] = (float)i;
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++) {
            host_write(&h, h.x, in, SPACE);
            host_write(&h, h.y, in, SPACE);
            DLTensor x = {.data = (void *)(uintptr_t)h.x, .device = {kDLCUDA, 0}, .ndim = 1, .shape = shape};
            x.dtype = (DLDataType){kDLFloat, 32, 1};
            DLTensor y = x;
            y.data = (void *)(uintptr_t)h.y;
            x.byte_offset = (uint64_t)from * 4;
            y.byte_offset = (uint64_t)to * 4;
            const DLTensor *inputs[] = {&x};
            dlc_output_slot slot = {.tensor = &y};
            if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK)
                fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
            host_read(&h, out, h.y, SPACE);
            for (int i = 0; i < SPACE / 4; i++)
                assert_true(out[i] == (i < to || i >= to + COUNT ? in[i] : -in[i - to + from]));
        }
    dlc_program_destroy(program);
    end(&h, context);
}

/* Compact, of elements smaller than a byte, where kernels take no vectors: in and out, with and without an input's buffer as the output's. */
static void test_packed(void **state) {
    (void)state;
    enum { COUNT = 37, BYTES = (COUNT * 4 + 7) / 8 };
    dlc_context *context;
    cuda_host h = begin(&context);
    unsigned char in[SPACE], out[SPACE], before[SPACE];
    dlc_program *program = identity(context, DLC_I4, 1);
    int64_t shape[] = {COUNT};
    for (int i = 0; i < SPACE; i++) in[i] = (unsigned char)(i * 7 + 1), before[i] = (unsigned char)(i % 253);
    for (uint64_t from = 0; from < 3; from++)
        for (uint64_t to = 0; to < 3; to++) {
            host_write(&h, h.x, in, SPACE);
            host_write(&h, h.y, before, SPACE);
            DLTensor x = {.data = (void *)(uintptr_t)h.x, .device = {kDLCUDA, 0}, .ndim = 1, .shape = shape};
            x.dtype = (DLDataType){kDLInt, 4, 1};
            DLTensor y = x;
            y.data = (void *)(uintptr_t)h.y;
            x.byte_offset = from;
            y.byte_offset = to;
            const DLTensor *inputs[] = {&x};
            dlc_output_slot slot = {.tensor = &y};
            if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK)
                fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
            host_read(&h, out, h.y, SPACE);
            assert_memory_equal(out + to, in + from, COUNT / 2);
            assert_int_equal(out[to + COUNT / 2] & 15, in[from + COUNT / 2] & 15);
            assert_memory_equal(out, before, to);
            assert_memory_equal(out + to + BYTES, before + to + BYTES, SPACE - to - BYTES);
        }
    dlc_program_destroy(program);
    end(&h, context);
}

/* A scalar that is not aligned; an input that is one element again and again. */
static void test_few_elements(void **state) {
    (void)state;
    dlc_context *context;
    cuda_host h = begin(&context);
    const double value = 2.5;
    double got[4];
    host_write(&h, h.x + 3, &value, sizeof value);
    dlc_program *program = identity(context, DLC_F64, 0);
    DLTensor x = {.data = (void *)(uintptr_t)(h.x + 3), .device = {kDLCUDA, 0}, .dtype = {kDLFloat, 64, 1}}, y = x;
    y.data = (void *)(uintptr_t)(h.y + 5);
    const DLTensor *inputs[] = {&x};
    dlc_output_slot slot = {.tensor = &y};
    if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    host_read(&h, got, h.y + 5, sizeof value);
    assert_true(got[0] == value);
    dlc_program_destroy(program);
    program = identity(context, DLC_F64, 1);
    x.ndim = y.ndim = 1;
    x.shape = y.shape = (int64_t[]){4};
    x.strides = (int64_t[]){0};
    if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    host_read(&h, got, h.y + 5, sizeof got);
    for (int i = 0; i < 4; i++) assert_true(got[i] == value);
    y.strides = x.strides;
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "under which elements overlap"));
    dlc_program_destroy(program);
    end(&h, context);
}

/* One buffer for input and output: in place where the program can, by a copy where it reads what it has written, and with strides. */
static void test_donated(void **state) {
    (void)state;
    enum { N = 6 };
    for (int reversed = 0; reversed < 2; reversed++)
        for (int64_t stride = 1; stride <= 2; stride++) {
            dlc_context *context;
            cuda_host h = begin(&context);
            dlc_graph *g;
            dlc_program *program;
            float values[2 * N], got[2 * N];
            for (int i = 0; i < 2 * N; i++) values[i] = (float)i;
            host_write(&h, h.x, values, sizeof values);
            assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
            dlc_value x = dlc_input(g, "x", DLC_F32, DIMS({N, NULL}));
            dlc_value back = dlc_reverse(x, 1, (int64_t[]){0});
            dlc_output(g, "y", dlc_neg(reversed ? back : x));
            if (dlc_compile(context, g, NULL, &program) != DLC_OK) fail_msg("%s", dlc_error_message(context));
            dlc_graph_destroy(g);
            assert_int_equal(dlc_program_alias(program, 0, 0), DLC_OK);
            int64_t shape[] = {N}, strides[] = {stride};
            DLTensor t = {.data = (void *)(uintptr_t)h.x,
                          .device = {kDLCUDA, 0},
                          .ndim = 1,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = shape,
                          .strides = strides};
            const DLTensor *inputs[] = {&t};
            dlc_output_slot slot = {.tensor = &t};
            if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK)
                fail_msg("%s; %s", dlc_error_message(context), f->driver->message);
            host_read(&h, got, h.x, sizeof got);
            for (int64_t i = 0; i < 2 * N; i++) {
                bool inside = i % stride == 0 && i / stride < N;
                int64_t from = reversed ? (N - 1 - i / stride) * stride : i;
                assert_true(got[i] == (inside ? -values[from] : values[i]));
            }
            dlc_program_destroy(program);
            end(&h, context);
        }
}

/* What cannot be used: which device was given, which expected. */
static void test_wrong_places(void **state) {
    (void)state;
    static const struct {
        DLDevice device;
        const char *part;
    } cases[] = {{{kDLCUDA, 1}, "is on device 1 of type 2; expected device 0 of type 2"},
                 {{kDLCUDA, -1}, "is on device -1 of type 2"},
                 {{(DLDeviceType)10, 0}, "is on device 0 of type 10"},
                 {{kDLCUDAManaged, 0}, "of type 13"}};
    dlc_context *context, *host;
    cuda_host h = begin(&context);
    matrix x, y;
    dlc_program *program = compile(context);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int output = 0; output < 2; output++) {
            fill(&x, COLUMNS), describe(&y, WIDTH);
            (output ? &y : &x)->tensor.device = cases[i].device;
            assert_int_equal(run(program, &x, &y), DLC_INVALID_ARGUMENT);
            assert_non_null(strstr(dlc_error_message(context), cases[i].part));
            assert_non_null(strstr(dlc_error_message(context), output ? "output y" : "input x"));
        }
    assert_int_equal(create("interp", &host), DLC_OK); /* a host target knows no devices */
    dlc_program *other = compile(host);
    fill(&x, COLUMNS), describe(&y, WIDTH);
    put_on_device(&x, h.x);
    assert_int_equal(run(other, &x, &y), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(host), "is on device type 2; expected host memory"));
    dlc_program_destroy(other);
    dlc_context_destroy(host);
    /* a stream of another context */
    CUcontext second, popped;
    CUstream stream;
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    assert_int_equal(own.cuDevicePrimaryCtxRetain(&second, 1), 0);
    assert_int_equal(own.cuCtxPushCurrent_v2(second), 0);
    assert_int_equal(own.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    fill(&x, COLUMNS);
    options.stream = stream;
    const DLTensor *inputs[] = {&x.tensor};
    dlc_output_slot slot = {.tensor = &y.tensor};
    assert_int_equal(dlc_run(program, &options, inputs, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "the stream belongs to another context"));
    assert_ptr_equal(f->current_context(), second); /* the host's, as it was */
    assert_int_equal(run(program, &x, &y), DLC_OK);
    assert_ptr_equal(f->current_context(), second);
    own.cuStreamDestroy_v2(stream);
    own.cuCtxPopCurrent_v2(&popped);
    own.cuDevicePrimaryCtxRelease_v2(1);
    dlc_program_destroy(program);
    end(&h, context);
}

/* Whoever took a tensor of ours may have work with it under way when he deletes it. */
static void test_deleted_under_way(void **state) {
    (void)state;
    dlc_context *context;
    cuda_host h = begin(&context);
    matrix x, wanted;
    float got[ROWS * WIDTH];
    expect(&wanted);
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    host_write(&h, h.x, x.data, sizeof(float) * ROWS * COLUMNS);
    put_on_device(&x, h.x);
    const DLTensor *inputs[] = {&x.tensor};
    dlc_output_slot slot = {0};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_OK);
    assert_int_equal(own.cuMemcpyDtoHAsync_v2(got, (uintptr_t)slot.managed->dl_tensor.data, sizeof got, h.stream), 0);
    slot.managed->deleter(slot.managed);
    assert_memory_equal(got, wanted.data, sizeof got);
    dlc_program_destroy(program);
    end(&h, context);
}

/* A tensor of ours is deleted when no stream is left: a run failed, whose stream is closed, and the driver refuses a new one. */
static void test_deleted_without_streams(void **state) {
    (void)state;
    dlc_context *context;
    cuda_host h = begin(&context);
    matrix x, y;
    dlc_program *program = compile(context);
    fill(&x, COLUMNS);
    host_write(&h, h.x, x.data, sizeof(float) * ROWS * COLUMNS);
    put_on_device(&x, h.x);
    describe(&y, WIDTH);
    put_on_device(&y, h.y);
    const DLTensor *inputs[] = {&x.tensor};
    dlc_output_slot slot = {0}, other = {.tensor = &y.tensor};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &slot, 1), DLC_OK);
    f->driver->fail = "cuLaunchKernel", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &other, 1), DLC_DEVICE_ERROR);
    f->driver->fail = "cuStreamCreate", f->driver->seen = 0;
    slot.managed->deleter(slot.managed);
    f->driver->fail = NULL;
    dlc_program_destroy(program);
    end(&h, context);
}

/* Strided both ways, twice; every call of the driver and of NVRTC failing in turn. */
static dlc_status live(const cuda_host *h) {
    dlc_context *context;
    dlc_program *program = NULL;
    dlc_graph *g;
    dlc_status status = create("cuda", &context);
    if (status != DLC_OK) return status;
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_output(g, "y", dlc_neg(dlc_input(g, "x", DLC_F32, DIMS({3, NULL}))));
    status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    int64_t shape[] = {3}, two[] = {2}, back[] = {-1};
    DLTensor x = {.data = (void *)(uintptr_t)h->x,
                  .device = {kDLCUDA, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape,
                  .strides = two},
             y = x;
    y.data = (void *)(uintptr_t)(h->y + 8);
    y.strides = back;
    const DLTensor *inputs[] = {&x};
    dlc_output_slot slot = {.tensor = &y};
    for (int i = 0; i < 2 && status == DLC_OK; i++) status = dlc_run(program, NULL, inputs, 1, &slot, 1);
    if (status != DLC_OK) assert_true(dlc_error_message(context)[0]);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return status;
}

static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X) CUDA_NVRTC_TABLE(X)
#undef X
    };
    const float values[] = {1, 0, 2, 0, 3};
    float got[3];
    int failures = 0;
    fakes_reset(f);
    cuda_host h = host_begin();
    host_write(&h, h.x, values, sizeof values);
    long before = f->driver->allocations;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth++) {
            if (strstr(names[i], "PushCurrent")) break;
            fakes_reset(f);
            fake_control *c = strncmp(names[i], "nvrtc", 5) == 0 ? f->nvrtc : f->driver;
            c->fail = names[i], c->fail_at = nth, c->fail_with = 5;
            dlc_status status = live(&h);
            if (c->seen < nth) break;
            failures += status != DLC_OK;
            if (f->driver->allocations != before || f->driver->modules || f->driver->streams != 1 ||
                f->nvrtc->programs || f->current_context() != h.context)
                fail_msg("after call %ld of %s failed", nth, names[i]);
        }
    fakes_reset(f);
    assert_true(failures > 30);
    assert_int_equal(live(&h), DLC_OK);
    host_read(&h, got, h.y, sizeof got);
    for (int i = 0; i < 3; i++) assert_true(got[i] == (float)(i - 3));
    host_end(&h);
    assert_true(fakes_are_empty(f));
}

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_strides),
        cmocka_unit_test(test_between_vectors),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_few_elements),
        cmocka_unit_test(test_donated),
        cmocka_unit_test(test_wrong_places),
        cmocka_unit_test(test_deleted_under_way),
        cmocka_unit_test(test_deleted_without_streams),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
