/* Compiling with a real NVRTC, which needs no device: code, PTX, errors, threads, locale, and what functions need. Without one the
 * tests are skipped; with DLC_TEST_ALL they fail. */
#include "jit/device.h"
#include "targets/cuda/cuda.h"

#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const source =
    "extern \"C\" __global__ void k0_p0(float *x, const float *y) { x[threadIdx.x] = y[0] * y[1] + y[2]; }\n"
    "extern \"C\" __global__ void k1_p0(int *x) { __shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();"
    " x[threadIdx.x] = s[63 - threadIdx.x]; }\n"
    "extern \"C\" __global__ void k2_p0(int *x, int i) { int a[64]; for (int k = 0; k < 64; k++) a[x[k] & 63] = k; x[0] = a[i]; }\n";

static bool found;
static cuda_compiler compiler;

static dlc_status open_for(int capability, lib_error *error) {
    return cuda_compiler_open(&compiler, &lib_libc_allocator, NULL, 0, capability, error);
}

static void need_nvrtc(void) {
    if (found) return;
    if (getenv("DLC_TEST_ALL")) fail_msg("NVRTC is missing");
    print_message("NVRTC is missing\n");
    skip();
}

static void test_code(void **state) {
    (void)state;
    need_nvrtc();
    const int capabilities[] = {80, 90};
    for (int i = 0; i < 2; i++) {
        lib_error error;
        cuda_code code;
        cuda_usage usage;
        assert_int_equal(open_for(capabilities[i], &error), DLC_OK);
        assert_false(compiler.ptx);
        assert_int_equal(cuda_compile_source(&compiler, source, true, &code, &error), DLC_OK);
        assert_memory_equal(code.bytes, "\177ELF", 4);
        assert_true(cuda_find_usage(code.log, "k0_p0", &usage));
        assert_in_range(usage.registers, 4, 32);
        assert_int_equal(usage.spill_stores + usage.spill_loads + usage.stack + usage.shared, 0);
        assert_true(cuda_find_usage(code.log, "k1_p0", &usage));
        assert_int_equal(usage.shared, 256);
        assert_true(cuda_find_usage(code.log, "k2_p0", &usage));
        assert_int_equal(usage.stack, 256);
        assert_false(cuda_find_usage(code.log, "k3_p0", &usage));
        cuda_code_release(&compiler, &code);
    }
}

/* The kernels that copy tensors with strides. */
static void test_strided(void **state) {
    (void)state;
    need_nvrtc();
    for (int element = 1; element <= 8; element *= 2)
        for (int rank = 1; rank <= DLC_MAX_RANK + 1; rank += 4) {
            lib_error error;
            lib_scope scope;
            lib_arena arena;
            lib_text text;
            cuda_code code;
            cuda_usage usage;
            lib_arena_init(&arena, &lib_libc_allocator, &scope);
            if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
            lib_text_init(&text, &arena);
            const tir_kernel *kernel = jit_strided_kernel(&arena, element, rank, 256);
            cuda_source(1, &kernel, &text);
            assert_int_equal(open_for(rank == 5 ? 80 : 90, &error), DLC_OK);
            if (cuda_compile_source(&compiler, text.data, true, &code, &error) != DLC_OK)
                fail_msg("%s\n%s", error.message, text.data);
            assert_true(cuda_find_usage(code.log, "k0_p0", &usage));
            assert_int_equal(usage.spill_loads + usage.stack, 0);
            cuda_code_release(&compiler, &code);
            lib_arena_free(&arena);
        }
}

/* Before 8.0, chunks are copied by loads and stores: of single bytes, where a chunk ends after any of them. */
static void test_copies(void **state) {
    (void)state;
    need_nvrtc();
    static const char kernel[] = "kernel k(x: u8[64] arg align 16, y: u8[64] arg, xs: u8[64] shared) params(n: 0..64)\n"
                                 "phase tasks=1 task=p { for t in 0..16 thread { for v in 0..4 vec {\n"
                                 "async xs[t*4 + v] = x[t*4 + v where t*4 + v < n else 0] } } commit wait 0 barrier\n"
                                 "for t in 0..64 thread { y[t] = xs[t] } }";
    lib_error error;
    lib_scope scope;
    lib_arena arena;
    lib_text text;
    lib_lexer lexer;
    cuda_code code;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    lib_text_init(&text, &arena);
    lib_lexer_init(&lexer, &arena, "kernel", kernel, strlen(kernel));
    const tir_kernel *parsed = tir_kernel_parse(&arena, &lexer, NULL);
    cuda_source(1, &parsed, &text);
    assert_int_equal(open_for(75, &error), DLC_OK);
    compiler.ptx = true;
    if (cuda_compile_source(&compiler, text.data, false, &code, &error) != DLC_OK) fail_msg("%s", error.message);
    const char *entry = strstr(code.bytes, ".entry k0_p0");
    assert_non_null(entry);
    if (strstr(entry, "ld.global.u16") || !strstr(entry, "ld.global.u8")) fail_msg("%s", entry);
    cuda_code_release(&compiler, &code);
    lib_arena_free(&arena);
}

static void test_ptx(void **state) {
    (void)state;
    need_nvrtc();
    lib_error error;
    cuda_code code;
    assert_int_equal(open_for(990, &error), DLC_OK); /* a device that it cannot know */
    assert_true(compiler.ptx);
    assert_int_equal(cuda_compile_source(&compiler, source, false, &code, &error), DLC_OK);
    assert_non_null(strstr(code.bytes, ".entry k0_p0"));
    assert_null(strstr(code.bytes, "fma.rn.f32")); /* never contracted */
    assert_non_null(strstr(code.bytes, "mul."));
    cuda_code_release(&compiler, &code);
    assert_int_equal(open_for(20, &error), DLC_UNSUPPORTED);
    assert_non_null(strstr(error.message, "the device has 2.0"));
}

static void test_refusal(void **state) {
    (void)state;
    need_nvrtc();
    lib_error error;
    cuda_code code;
    assert_int_equal(open_for(80, &error), DLC_OK);
    assert_int_equal(cuda_compile_source(&compiler, "int f() { return nothing; }", false, &code, &error),
                     DLC_COMPILE_FAILED);
    assert_non_null(strstr(error.message, "sm_80"));
    assert_non_null(strstr(error.message, "identifier \"nothing\" is undefined"));
    assert_null(code.bytes);
    assert_null(code.log);
}

static void *compile_some(void *argument) {
    (void)argument;
    for (int i = 0; i < 3; i++) {
        lib_error error;
        cuda_code code;
        if (cuda_compile_source(&compiler, source, false, &code, &error) != DLC_OK) return "failed";
        if (memcmp(code.bytes, "\177ELF", 4) != 0) return "no code";
        cuda_code_release(&compiler, &code);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    need_nvrtc();
    lib_error error;
    pthread_t threads[4];
    assert_int_equal(open_for(90, &error), DLC_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, compile_some, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
}

static void test_locale(void **state) {
    (void)state;
    need_nvrtc();
    lib_error error;
    cuda_code code;
    locale_t own = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (!own) skip();
    locale_t before = uselocale(own);
    assert_int_equal(open_for(80, &error), DLC_OK);
    assert_int_equal(cuda_compile_source(&compiler, source, false, &code, &error), DLC_OK);
    assert_ptr_equal(uselocale((locale_t)0), own);
    cuda_code_release(&compiler, &code);
    uselocale(before);
    freelocale(own);
}

int main(void) {
    lib_error error;
    const char *usual = "/usr/local/cuda/lib64/libnvrtc.so";
    found = open_for(80, &error) == DLC_OK;
    if (!found && access(usual, R_OK) == 0) {
        setenv("DLC_NVRTC", usual, 1);
        found = open_for(80, &error) == DLC_OK;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code),   cmocka_unit_test(test_strided), cmocka_unit_test(test_ptx),
        cmocka_unit_test(test_copies), cmocka_unit_test(test_refusal), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
