/* What the cuda target takes for granted about instructions, on a real GPU: which lane holds which element of the fragments of mma and of
 * ldmatrix, and what cp.async does with a short source. The maps are written down here a second time, by the instruction set's
 * manual (PTX ISA, "Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async"). Without a GPU the kernels are compiled. */
#include "targets/cuda/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

enum { M = 16, N = 8, K = 16, PROBLEMS = 512, LANES = 32 };

/* Lane l = 4g + t. A [m][k]: element e in row g + 8 (e/2%2), column 2t + e%2 + 8 (e/4). B [k][n]: element e in row 2t + e%2 + 8 (e/2),
 * column g. D [m][n]: element e in row g + 8 (e/2), column 2t + e%2. A register holds two 16-bit elements, the first in its low half. */
static const char source[] =
    "typedef unsigned short u16; typedef unsigned u32;\n"
    "#define PAIR(a, b) ((u32)(a) | (u32)(b) << 16)\n"
    "#define MMA(name, type)                                                                                          \\\n"
    "extern \"C\" __global__ void name(const u16 *A, const u16 *B, float *D) {                                          \\\n"
    "    const int g = threadIdx.x / 4, t = threadIdx.x % 4;                                                          \\\n"
    "    A += blockIdx.x * 256, B += blockIdx.x * 128, D += blockIdx.x * 128;                                         \\\n"
    "    u32 a[4], b[2];                                                                                              \\\n"
    "    float d[4] = {0, 0, 0, 0};                                                                                   \\\n"
    "    for (int r = 0; r < 4; r++) {                                                                                \\\n"
    "        const u16 *at = A + (g + 8 * (r % 2)) * 16 + 2 * t + 8 * (r / 2);                                        \\\n"
    "        a[r] = PAIR(at[0], at[1]);                                                                               \\\n"
    "    }                                                                                                            \\\n"
    "    for (int r = 0; r < 2; r++) {                                                                                \\\n"
    "        const u16 *at = B + (2 * t + 8 * r) * 8 + g;                                                             \\\n"
    "        b[r] = PAIR(at[0], at[8]);                                                                               \\\n"
    "    }                                                                                                            \\\n"
    "    asm(\"mma.sync.aligned.m16n8k16.row.col.f32.\" type \".\" type \".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, \"       \\\n"
    "        \"{%8, %9}, {%0, %1, %2, %3};\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])                       \\\n"
    "        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));                               \\\n"
    "    for (int e = 0; e < 4; e++) D[(g + 8 * (e / 2)) * 8 + 2 * t + e % 2] = d[e];                                 \\\n"
    "}\n"
    "MMA(mma_bf16, \"bf16\")\n"
    "MMA(mma_f16, \"f16\")\n"
    "#define LDMATRIX(name, trans)                                                                                    \\\n"
    "extern \"C\" __global__ void name(const u16 *from, u32 *to) {                                                      \\\n"
    "    __shared__ __align__(16) u16 s[256];                                                                         \\\n"
    "    for (int i = threadIdx.x; i < 256; i += 32) s[i] = from[i];                                                  \\\n"
    "    __syncthreads();                                                                                             \\\n"
    "    const u32 row = (u32)__cvta_generic_to_shared(s + (threadIdx.x / 8 * 8 + threadIdx.x % 8) * 8);              \\\n"
    "    u32 r[4];                                                                                                    \\\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4\" trans \".shared.b16 {%0, %1, %2, %3}, [%4];\"                     \\\n"
    "        : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(row) : \"memory\");                             \\\n"
    "    for (int i = 0; i < 4; i++) to[threadIdx.x * 4 + i] = r[i];                                                  \\\n"
    "}\n"
    "LDMATRIX(ldmatrix_plain, \"\")\n"
    "LDMATRIX(ldmatrix_trans, \".trans\")\n"
    "extern \"C\" __global__ void copy_short(const u16 *from, u16 *to) {\n"
    "    __shared__ __align__(16) u16 s[256];\n"
    "    for (int i = threadIdx.x; i < 256; i += 32) s[i] = 0xffff;\n"
    "    __syncthreads();\n"
    "    const u32 at = (u32)__cvta_generic_to_shared(s + threadIdx.x * 8);\n"
    "    const u32 bytes = 2 * (threadIdx.x % 9);\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\\ncp.async.commit_group;\\ncp.async.wait_group 0;\"\n"
    "        :: \"r\"(at), \"l\"(from + threadIdx.x * 8), \"r\"(bytes) : \"memory\");\n"
    "    __syncthreads();\n"
    "    for (int i = 0; i < 8; i++) to[threadIdx.x * 8 + i] = s[threadIdx.x * 8 + i];\n"
    "}\n";

/* ---- the device ---------------------------------------------------------------------------------------------------- */

static target_device *device;
static CUmodule module;

static void check(dlc_status status, const lib_error *error) {
    if (status != DLC_OK) fail_msg("%s", error->message);
}

static void check_driver(CUresult result, const char *function) {
    lib_error error;
    if (result != CUDA_SUCCESS) check(cuda_fail(&device->driver, result, function, &error), &error);
}

static void test_compiles(void **state) {
    (void)state;
    static const int architectures[] = {80, 90};
    for (int a = 0; a < 2; a++) {
        cuda_compiler compiler;
        cuda_code code = {0};
        const lib_log log = {0};
        lib_error error;
        if (cuda_compiler_open(&compiler, &lib_libc_allocator, &log, 0, architectures[a], &error) != DLC_OK) {
            print_message("%s\n", error.message);
            skip();
        }
        check(cuda_compile_source(&compiler, source, true, &code, &error), &error);
        cuda_code_release(&compiler, &code);
    }
}

/* Opens the device and loads the kernels once; skips where there is none. */
static void need_device(void) {
    lib_error error;
    tir_machine machine;
    const target_options options = {.allocator = &lib_libc_allocator};
    if (module) return;
    if (!device && target_cuda.open(&options, &device, &machine, &error) != DLC_OK) {
        device = NULL;
        print_message("%s\n", error.message);
        skip();
    }
    if (strncmp(device->machine.name, "Fake", 4) == 0) skip(); /* it runs loop IR, no instructions */
    cuda_code code = {0};
    check(cuda_enter(device, &error), &error);
    check(cuda_compile_source(&device->compiler, source, false, &code, &error), &error);
    check_driver(device->driver.cuModuleLoadDataEx(&module, code.bytes, 0, NULL, NULL), "cuModuleLoadDataEx");
    cuda_code_release(&device->compiler, &code);
    cuda_leave(device);
}

/* Runs a kernel of blocks of one warp: `count` inputs, then the output. */
static void run(const char *name, unsigned blocks, int count, const void *const *inputs, const size_t *sizes,
                void *output, size_t size) {
    const target_runtime *r = &cuda_runtime;
    target_stream *stream;
    lib_error error;
    void *memory[4], *parameters[4];
    CUfunction function;
    check(r->enter(device, &error), &error);
    check_driver(device->driver.cuModuleGetFunction(&function, module, name), "cuModuleGetFunction");
    check(r->open(device, NULL, &stream, &error), &error);
    for (int i = 0; i <= count; i++) {
        check(r->allocate(stream, i < count ? sizes[i] : size, &memory[i], &error), &error);
        if (i < count) check(r->copy(stream, TARGET_COPY_TO_DEVICE, memory[i], inputs[i], sizes[i], &error), &error);
        parameters[i] = &memory[i];
    }
    check(cuda_stream_launch(stream, function, blocks, LANES, 0, parameters, count + 1, &error), &error);
    check(r->copy(stream, TARGET_COPY_TO_HOST, output, memory[count], size, &error), &error);
    check(r->synchronise(stream, &error), &error);
    for (int i = 0; i <= count; i++) r->release(stream, memory[i]);
    r->close(stream);
    r->leave(device);
}

/* ---- mma ----------------------------------------------------------------------------------------------------------- */

/* Small integers, so that every order of summation gives the exact sum; the first 256 problems have one element of A alone. */
static void test_mma(const char *kernel, dlc_dtype dtype) {
    static uint16_t a[PROBLEMS][M][K], b[PROBLEMS][K][N];
    static float d[PROBLEMS][M][N];
    uint32_t seed = 1;
    need_device();
    memset(a, 0, sizeof a);
    for (int p = 0; p < PROBLEMS; p++) {
        for (int i = 0; i < M * K; i++) {
            seed = seed * 1664525 + 1013904223; /* Numerical Recipes */
            double value = p < M * K ? i == p : (double)(seed >> 28) - 8;
            lib_element_set_f64(dtype, (char *)&a[p][i / K][i % K], value);
        }
        for (int i = 0; i < K * N; i++) {
            seed = seed * 1664525 + 1013904223;
            lib_element_set_f64(dtype, (char *)&b[p][i / N][i % N], p < M * K ? i + 1 : (double)(seed >> 28) - 8);
        }
    }
    run(kernel, PROBLEMS, 2, (const void *const[]){a, b}, (size_t[]){sizeof a, sizeof b}, d, sizeof d);
    for (int p = 0; p < PROBLEMS; p++)
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double sum = 0;
                for (int k = 0; k < K; k++)
                    sum += lib_element_get_f64(dtype, (char *)&a[p][m][k]) *
                           lib_element_get_f64(dtype, (char *)&b[p][k][n]);
                if ((double)d[p][m][n] != sum)
                    fail_msg("%s, problem %d: D[%d][%d] is %g, expected %g", kernel, p, m, n, (double)d[p][m][n], sum);
            }
}

static void test_mma_bf16(void **state) {
    (void)state;
    test_mma("mma_bf16", DLC_BF16);
}

static void test_mma_f16(void **state) {
    (void)state;
    test_mma("mma_f16", DLC_F16);
}

/* ---- ldmatrix, cp.async -------------------------------------------------------------------------------------------- */

/* Lane l gives the address of row l%8 of matrix l/8; register i of lane 4g + t is matrix i's [g][2t], [g][2t + 1], or, transposed,
 * [2t][g], [2t + 1][g]. */
static void test_ldmatrix(void **state) {
    (void)state;
    uint16_t from[4][8][8];
    uint32_t to[LANES][4];
    need_device();
    for (int i = 0; i < 256; i++) from[i / 64][i / 8 % 8][i % 8] = (uint16_t)(1000 + i);
    for (int trans = 0; trans < 2; trans++) {
        run(trans ? "ldmatrix_trans" : "ldmatrix_plain", 1, 1, (const void *const[]){from}, (size_t[]){sizeof from}, to,
            sizeof to);
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++) {
                int g = lane / 4, t = lane % 4;
                uint32_t low = trans ? from[i][2 * t][g] : from[i][g][2 * t],
                         high = trans ? from[i][2 * t + 1][g] : from[i][g][2 * t + 1];
                assert_int_equal(to[lane][i], low | high << 16);
            }
    }
}

static void test_copy_short(void **state) {
    (void)state;
    uint16_t from[LANES][8], to[LANES][8];
    need_device();
    for (int i = 0; i < LANES * 8; i++) from[i / 8][i % 8] = (uint16_t)(1000 + i);
    run("copy_short", 1, 1, (const void *const[]){from}, (size_t[]){sizeof from}, to, sizeof to);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 8; i++) assert_int_equal(to[lane][i], i < lane % 9 ? from[lane][i] : 0);
}

static int close_device(void **state) {
    (void)state;
    lib_error error;
    if (module && cuda_enter(device, &error) == DLC_OK) {
        device->driver.cuModuleUnload(module);
        cuda_leave(device);
    }
    if (device) target_cuda.close(device);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiles), cmocka_unit_test(test_mma_bf16),
                                       cmocka_unit_test(test_mma_f16), cmocka_unit_test(test_ldmatrix),
                                       cmocka_unit_test(test_copy_short)};
    return cmocka_run_group_tests_name("hardware", tests, NULL, close_device);
}
