/* The cuda target through targets/target.h, on the fake driver: compile, load, memory, copies, launches; each call of the driver
 * and of NVRTC failing in turn, each allocation of the host refused in turn. Afterwards nothing is left, and whatever context the
 * host had is current again. */
#include "targets/cuda/cuda.h"
#include "test/counting.h"
#include "test/cuda/fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static fakes *f;
static const tir_kernel *kernels[3];

static const char *const texts[] = {
    "kernel add(x: f32[n] arg, y: f32[n] arg, t: f32[n] workspace, l: f32[2] stack) params(n: 0..64)"
    "phase tasks=n task=p { l[1] = x[p] t[p] = l[1] + l[1] }"
    "phase tasks=n task=p { y[p] = t[n - 1 - p] }",
    "kernel wrong(x: f32[n] arg, y: f32[n] arg) params(n: 0..64)"
    "phase tasks=n task=p { y[p] = x[p + 1] }",
    "kernel large(x: f32[n] arg, y: f32[n] arg, s: f32[16384] shared, r: f32[32] shared @65536) params(n: 0..64)"
    "phase tasks=n task=p { for t in 0..32 thread { async s[t*512] = x[p] } commit wait 0 barrier"
    " for t in 0..32 thread { r[t] = s[t/2*512] } barrier y[p] = r[31] + 1 }",
};

enum { N = 3, LARGE = 3 << 20 };

/* Kernel `k` on x, into y. */
static dlc_status run_on(target_stream *stream, const target_module *module, int k, int phases, const float *x,
                         float *y, lib_error *error) {
    const target_runtime *runtime = target_cuda.runtime;
    void *buffers[2] = {NULL, NULL}, *workspace = NULL;
    int64_t n = N;
    dlc_status status = runtime->allocate(stream, sizeof(float[N]), &buffers[0], error);
    if (status == DLC_OK) status = runtime->allocate(stream, sizeof(float[N]), &buffers[1], error);
    if (status == DLC_OK) status = runtime->allocate(stream, sizeof(float[N]), &workspace, error);
    if (status == DLC_OK) status = runtime->copy(stream, TARGET_COPY_TO_DEVICE, buffers[0], x, sizeof(float[N]), error);
    if (status == DLC_OK) {
        const target_arguments arguments = {
            .buffers = buffers, .params = &n, .workspace = workspace, .error = error, .stream = stream};
        error->status = DLC_OK;
        for (int p = 0; p < phases; p++) {
            target_phase phase = target_cuda.phase(module, k, p);
            phase.run(&arguments, 0, 0, N, 0, phase.closure);
        }
        status = error->status;
    }
    if (status == DLC_OK) status = runtime->copy(stream, TARGET_COPY_TO_HOST, y, buffers[1], sizeof(float[N]), error);
    if (status == DLC_OK) status = runtime->synchronise(stream, error);
    runtime->release(stream, buffers[0]);
    runtime->release(stream, buffers[1]);
    runtime->release(stream, workspace);
    return status;
}

/* More than the staging memory holds, there, across and back. */
static dlc_status copy_large(target_stream *stream, lib_error *error) {
    const target_runtime *runtime = target_cuda.runtime;
    void *a = NULL, *b = NULL;
    char *host = malloc(LARGE);
    for (int i = 0; i < LARGE; i++) host[i] = (char)(i % 251);
    dlc_status status = runtime->allocate(stream, LARGE, &a, error);
    if (status == DLC_OK) status = runtime->allocate(stream, LARGE, &b, error);
    if (status == DLC_OK) status = runtime->copy(stream, TARGET_COPY_TO_DEVICE, a, host, LARGE, error);
    if (status == DLC_OK) status = runtime->synchronise(stream, error);
    if (status == DLC_OK) memset(host, 0, LARGE);
    if (status == DLC_OK) status = runtime->copy(stream, TARGET_COPY_ON_DEVICE, b, a, LARGE, error);
    if (status == DLC_OK) status = runtime->copy(stream, TARGET_COPY_TO_HOST, host, b, LARGE, error);
    if (status == DLC_OK) status = runtime->synchronise(stream, error);
    for (int i = 0; status == DLC_OK && i < LARGE; i++) assert_int_equal(host[i], (char)(i % 251));
    runtime->release(stream, a);
    runtime->release(stream, b);
    free(host);
    return status;
}

static dlc_status run_stream(target_device *device, const target_module *module, lib_error *error) {
    const target_runtime *runtime = target_cuda.runtime;
    const float x[N] = {1, 2, 3};
    float y[N] = {0};
    target_stream *stream;
    dlc_status status = runtime->enter(device, error);
    if (status != DLC_OK) return status;
    status = runtime->open(device, NULL, &stream, error);
    if (status == DLC_OK) {
        status = run_on(stream, module, 0, 2, x, y, error);
        if (status == DLC_OK) assert_true(y[0] == 6 && y[1] == 4 && y[2] == 2);
        if (status == DLC_OK) status = copy_large(stream, error);
        runtime->close(stream);
    }
    runtime->leave(device);
    return status;
}

static dlc_status live(const dlc_allocator *allocator, lib_error *error) {
    const lib_log log = {0};
    const target_options options = {.allocator = allocator, .log = &log};
    target_device *device = NULL;
    target_module *module = NULL;
    target_object object = {0};
    tir_machine machine;
    LIB_TRY(target_cuda.open(&options, &device, &machine, error));
    dlc_status status = target_cuda.compile(device, NULL, 2, kernels, &object, error);
    if (status == DLC_OK) status = target_cuda.load(device, &object, 2, NULL, &module, error);
    target_cuda.release_object(device, &object);
    if (status == DLC_OK) {
        status = run_stream(device, module, error);
        assert_true(target_cuda.module_bytes(module) > sizeof(void *));
        target_cuda.unload(device, module);
    }
    target_cuda.close(device);
    return status;
}

static void test_life(void **state) {
    (void)state;
    lib_error error;
    fakes_reset(f);
    if (live(&lib_libc_allocator, &error) != DLC_OK) fail_msg("%s; %s", error.message, f->driver->message);
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
    assert_int_equal(f->driver->launches, 2);
    f->driver->no_pools = true;
    assert_int_equal(live(&lib_libc_allocator, &error), DLC_OK);
    assert_true(fakes_are_empty(f));
}

static void test_refused_allocations(void **state) {
    (void)state;
    fakes_reset(f);
    for (int64_t refuse = 1;; refuse++) {
        counting c = {.refuse = refuse};
        const dlc_allocator allocator = {counting_allocate, counting_release, &c};
        lib_error error;
        dlc_status status = live(&allocator, &error);
        assert_int_equal(c.outstanding, 0);
        assert_true(fakes_are_empty(f));
        if (c.seen < refuse) {
            assert_int_equal(status, DLC_OK);
            return;
        }
        assert_int_equal(status, DLC_OUT_OF_MEMORY);
    }
}

static bool gives_back(const char *name) {
    static const char *const parts[] = {"Unload", "Release", "Destroy", "PopCurrent", "Free"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return strcmp(name, "cuMemAllocHost_v2") == 0; /* pinned memory is an advantage, no need */
}

/* From the fourth call on these give back: entering when a module is unloaded, waiting when a stream is closed. */
static bool is_late(const char *name) {
    return strcmp(name, "cuCtxPushCurrent_v2") == 0 || strcmp(name, "cuStreamSynchronize") == 0;
}

static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X) CUDA_NVRTC_TABLE(X)
#undef X
    };
    int failures = 0;
    for (int pools = 0; pools < 2; pools++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            for (long nth = 1;; nth++) {
                fakes_reset(f);
                f->driver->no_pools = pools == 0;
                fake_control *c = strncmp(names[i], "nvrtc", 5) == 0 ? f->nvrtc : f->driver;
                c->fail = names[i], c->fail_at = nth, c->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
                lib_error error = {0};
                dlc_status status = live(&lib_libc_allocator, &error);
                if (c->seen < nth) break;
                /* Without memory in the pool it is trimmed, and asked again. */
                bool harmless = gives_back(names[i]) || strcmp(names[i], "cuMemAllocFromPoolAsync") == 0;
                harmless = harmless || (nth >= 4 && is_late(names[i]));
                if (!harmless && status == DLC_OK) fail_msg("call %ld of %s may fail unnoticed", nth, names[i]);
                if (status != DLC_OK) assert_true(error.message[0]);
                if (!fakes_are_empty(f)) fail_msg("after call %ld of %s failed", nth, names[i]);
                failures++;
            }
    fakes_reset(f);
    assert_true(failures > 60);
}

/* A kernel that goes astray fails the run that waits for it, with the driver's word. */
static void test_astray(void **state) {
    (void)state;
    const lib_log log = {0};
    const target_options options = {.allocator = &lib_libc_allocator, .log = &log};
    const target_runtime *runtime = target_cuda.runtime;
    target_device *device;
    target_module *module;
    target_object object;
    target_stream *stream;
    tir_machine machine;
    lib_error error;
    float x[N] = {1, 2, 3}, y[N];
    fakes_reset(f);
    assert_int_equal(target_cuda.open(&options, &device, &machine, &error), DLC_OK);
    assert_int_equal(target_cuda.compile(device, NULL, 2, kernels, &object, &error), DLC_OK);
    assert_int_equal(target_cuda.load(device, &object, 2, NULL, &module, &error), DLC_OK);
    target_cuda.release_object(device, &object);
    assert_int_equal(runtime->enter(device, &error), DLC_OK);
    assert_int_equal(runtime->open(device, NULL, &stream, &error), DLC_OK);
    assert_int_equal(run_on(stream, module, 1, 1, x, y, &error), DLC_DEVICE_ERROR);
    assert_non_null(strstr(error.message, "cuStreamSynchronize"));
    assert_non_null(strstr(f->driver->message, "out of bounds: load of x[3]"));
    runtime->close(stream);
    runtime->leave(device);
    target_cuda.unload(device, module);
    target_cuda.close(device);
    assert_true(fakes_are_empty(f));
}

/* More shared memory than a launch gets unasked. */
static void test_shared_memory(void **state) {
    (void)state;
    const target_runtime *runtime = target_cuda.runtime;
    const target_options options = {.allocator = &lib_libc_allocator};
    const float x[N] = {1, 2, 3};
    float y[N] = {0};
    target_device *device;
    target_object object;
    target_module *module;
    target_stream *stream;
    tir_machine machine;
    lib_error error;
    fakes_reset(f);
    assert_int_equal(target_cuda.open(&options, &device, &machine, &error), DLC_OK);
    assert_int_equal(target_cuda.compile(device, NULL, 1, &kernels[2], &object, &error), DLC_OK);
    assert_int_equal(target_cuda.load(device, &object, 1, NULL, &module, &error), DLC_OK);
    target_cuda.release_object(device, &object);
    assert_int_equal(runtime->enter(device, &error), DLC_OK);
    assert_int_equal(runtime->open(device, NULL, &stream, &error), DLC_OK);
    if (run_on(stream, module, 0, 1, x, y, &error) != DLC_OK) fail_msg("%s; %s", error.message, f->driver->message);
    assert_true(y[0] == 2 && y[1] == 3 && y[2] == 4);
    runtime->close(stream);
    runtime->leave(device);
    target_cuda.unload(device, module);
    target_cuda.close(device);
    assert_true(fakes_are_empty(f));
}

static void test_memory(void **state) {
    (void)state;
    lib_error error;
    fakes_reset(f);
    f->driver->memory = 1 << 20;
    assert_int_equal(live(&lib_libc_allocator, &error), DLC_OUT_OF_MEMORY);
    assert_non_null(strstr(error.message, "no 3145728 bytes of memory left"));
    assert_true(fakes_are_empty(f));
    fakes_reset(f);
}

int main(void) {
    lib_scope scope;
    lib_arena arena;
    f = fakes_open();
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) {
        print_error("%s\n", scope.error.message);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "<text>", texts[i], strlen(texts[i]));
        kernels[i] = tir_kernel_parse(&arena, &lexer, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),     cmocka_unit_test(test_refused_allocations),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_astray),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_shared_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lib_arena_free(&arena);
    return failed;
}
