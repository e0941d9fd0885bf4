/* The cost model on kernels whose instructions and bytes are counted by hand, on a machine written down here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "targets/cpu/cost.h"

static tir_machine machine = {.vector_bytes = 32,
                              .vector_registers = 16,
                              .fma = 1,
                              .l1 = 32 << 10,
                              .l2 = 1 << 20,
                              .l3 = 8 << 20,
                              .line = 64,
                              .l1_ways = 8,
                              .cores = 1};

static cost_work count(const char *text, int64_t parameter) {
    lib_scope scope;
    lib_arena arena;
    cost_work work = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "<text>", text, strlen(text));
        const tir_kernel *kernel = tir_kernel_parse(&arena, &lexer, NULL);
        cost_count(&arena, &machine, kernel, &(target_work){.params = &parameter}, &work);
    } else {
        fail_msg("%s", scope.error.message);
    }
    lib_arena_free(&arena);
    return work;
}

static void assert_near(double value, double expected, double tolerance) {
    if (value < expected * (1 - tolerance) || value > expected * (1 + tolerance))
        fail_msg("%g, expected %g within %g %%", value, expected, 100 * tolerance);
}

/* 4 rows of 2 vectors: 8 multiply-adds a step, each with a broadcast; the vectors of w are loaded once for all rows. */
static void test_tile(void **state) {
    (void)state;
    cost_work work =
        count("kernel k(x: f32[4, 100] arg, w: f32[100, 16] arg, y: f32[4, 16] arg, c: f32[4, 16] reg)\n"
              "phase tasks=1 task=p {\n"
              "  for i in 0..4 unroll { for j in 0..16 vec { c[i, j] = 0:f32 } }\n"
              "  for k in 0..100 {\n"
              "    for i in 0..4 unroll { for j in 0..16 vec { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } }\n"
              "  }\n"
              "  for i in 0..4 unroll { for j in 0..16 vec { y[i, j] = c[i, j] } }\n"
              "}\n",
              0);
    assert_near(work.fma, 800, 0);
    assert_near(work.load, 100 * (4 + 2), 0);
    assert_near(work.store, 8, 0);
    assert_near(work.operations, 800 * 2 * 8, 0);
    assert_near(work.issue_cycles, 400, 0.1); /* two a cycle; chains of 4 cycles are hidden by 8 accumulators */
    assert_true(work.traffic[1] == 0 && work.traffic[2] == 0 && work.traffic[3] == 0);
}

/* One accumulator: the chain decides. An accumulator that starts anew in each task is no chain from task to task. */
static void test_chain(void **state) {
    (void)state;
    cost_work work = count("kernel k(x: f32[4000] arg, y: f32[8] arg, c: f32[8] reg)\n"
                           "phase tasks=1 task=p {\n"
                           "  for j in 0..8 vec { c[j] = 0:f32 }\n"
                           "  for k in 0..500 { for j in 0..8 vec { c[j] = c[j] + x[k*8 + j] } }\n"
                           "  for j in 0..8 vec { y[j] = c[j] }\n"
                           "}\n",
                           0);
    assert_near(work.issue_cycles, 500 * 4, 0.3);
    work = count("kernel k(x: f32[4000] arg, y: f32[4000] arg, c: f32[8] reg)\n"
                 "phase tasks=500 task=p {\n"
                 "  for j in 0..8 vec { c[j] = x[p*8 + j] }\n"
                 "  for j in 0..8 vec { c[j] = c[j] + 1:f32 }\n"
                 "  for j in 0..8 vec { y[p*8 + j] = c[j] }\n"
                 "}\n",
                 0);
    assert_true(work.issue_cycles < 800);
}

/* Bytes of a level that the footprint does not fit: reads once, writes as the level's rule says; nothing where it fits. Tasks are
 * several axes in one. */
static void test_traffic(void **state) {
    (void)state;
    cost_work work = count("kernel k(x: f32[64, 16, 64] arg, y: f32[64, 16, 64] arg)\n"
                           "phase tasks=1024 task=p {\n"
                           "  let a = p/16\n"
                           "  let b = p%16\n"
                           "  for i in 0..64 vec { y[a, b, i] = x[a, b, i]*2:f32 }\n"
                           "}\n",
                           0);
    assert_near(work.traffic[1], 2 * 65536 * 4, 0.05); /* 512 KiB: beyond L1, within L2 */
    assert_true(work.traffic[2] == 0 && work.traffic[3] == 0);
    assert_near(work.store, 8192, 0);
    assert_near(work.load, 8192, 0);
    /* the panel of w stays in L1 while the rows go past */
    work = count("kernel k(x: f32[4096, 64] arg, w: f32[64, 16] arg, y: f32[4096, 16] arg, c: f32[16] reg)\n"
                 "phase tasks=4096 task=p {\n"
                 "  for j in 0..16 vec { c[j] = 0:f32 }\n"
                 "  for k in 0..64 { for j in 0..16 vec { c[j] = fma(x[p, k], w[k, j], c[j]) } }\n"
                 "  for j in 0..16 vec { y[p, j] = c[j] }\n"
                 "}\n",
                 0);
    assert_near(work.traffic[1], 4096 * (64 + 16) * 4, 0.1);
}

/* Strips of one line from a matrix beyond L2 take longer than rows, and longest if all lines of a strip are in the same sets of L1. Rows
 * that map to one set evict each other: each step of a sum along them reads all their lines again. */
static void test_distance(void **state) {
    static const char matrix[] =
        "kernel k(x: f32[4096, %d] arg, y: f32[16] arg, c: f32[16] reg)\n"
        "phase tasks=%d task=p { for r in 0..%d { for j in 0..16 vec { c[j] = c[j] + %s } } }\n";
    static const char sums[] = "kernel k(x: f32[12, %d] arg, y: f32[12] arg, c: f32[12] reg)\n"
                               "phase tasks=1 task=p {\n"
                               "  for k in 0..256 { for i in 0..12 unroll { c[i] = c[i] + x[i, k] } }\n"
                               "}\n";
    const double slow = machine.rates.bandwidth[2] / machine.rates.distant[2];
    char text[400];
    (void)state;
    snprintf(text, sizeof text, matrix, 256, 4096, 16, "x[p, r*16 + j]");
    const double rows = count(text, 0).traffic[2];
    assert_near(rows, 4096 * 256 * 4, 0.2); /* the previous run leaves some of it in L2 */
    snprintf(text, sizeof text, matrix, 256, 16, 4096, "x[r, p*16 + j]");
    assert_near(count(text, 0).traffic[2], rows * slow * 3, 0.3);
    snprintf(text, sizeof text, matrix, 272, 17, 4096, "x[r, p*16 + j]");
    assert_near(count(text, 0).traffic[2], rows * 272 / 256 * slow, 0.3);
    snprintf(text, sizeof text, sums, 1040);
    assert_true(count(text, 0).traffic[1] == 0);
    snprintf(text, sizeof text, sums, 1024);
    assert_true(count(text, 0).traffic[1] > 8 * 12 * 256 * 4); /* most of 256 * 12 lines, not each byte once */
}

/* Half of the points of a triangle; an extent that is a parameter; a condition that holds for a quarter. */
static void test_averages(void **state) {
    (void)state;
    cost_work work = count("kernel k(x: f32[n, 1000] arg, y: f32[n, 1000] arg) params(n: 1..4096)\n"
                           "phase tasks=n task=p {\n"
                           "  for k in 0 .. p + 1 { y[p, k] = x[p, k]*2:f32 }\n"
                           "}\n",
                           1000);
    assert_near(work.store, 0.5 * 500500, 1.1); /* a number is at least half a vector */
    double triangle = work.fma;
    assert_near(triangle, 500500, 0.1);
    work = count("kernel k(x: f32[1000] arg, y: f32[1000] arg)\n"
                 "phase tasks=1000 task=p { if (p < 250) { y[p] = x[p]*2:f32 } }\n",
                 0);
    assert_near(work.fma, 250, 0.1);
}

/* The cost model counts the vectors that tir_vectorise makes of a vec loop: also those of a partial last chunk, those that two rows share,
 * and all that a loop over vectors runs through. */
static void test_vectors(void **state) {
    static const char tile[] =
        "kernel k(x: f32[8, 100] arg, w: f32[100, 20] arg, y: f32[8, 20] arg, c: f32[8, 20] reg)\n"
        "phase tasks=1 task=p {\n"
        "  for i in 0..8 unroll { for j in 0..20 vec { c[i, j] = 0:f32 } }\n"
        "  for k in 0..100 {\n"
        "    for i in 0..8 unroll { for j in 0..20 vec { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } }\n"
        "  }\n"
        "  for i in 0..8 unroll { for j in 0..20 vec { y[i, j] = c[i, j] } }\n"
        "}\n";
    static const char map[] =
        "kernel k(x: f32[4096] arg, y: f32[4096] arg)\n"
        "phase tasks=1 task=p { for t in 0..4 { for i in 0..1000 vec { y[t*1000 + i] = x[t*1000 + i] } } }\n";
    const tir_machine narrow = machine;
    (void)state;
    assert_near(count(tile, 0).fma, 100 * 8 * 3, 0); /* 8 + 8 + 4 columns */
    assert_near(count(map, 0).load, 4 * 125, 0);
    assert_near(count(map, 0).store, 4 * 125, 0);
    machine.vector_bytes = 64;
    machine.vector_registers = 32;
    machine.masked = 1;
    assert_near(count(tile, 0).fma, 100 * 8 * 2, 0);
    assert_near(count(tile, 0).load, 100 * (8 + 2), 0);
    machine.row_pairs = 1;
    assert_near(count(tile, 0).fma, 100 * (8 + 4), 0); /* four columns of two rows are one vector */
    assert_near(count(tile, 0).store, 8 * 2, 0);
    assert_near(count(map, 0).store, 4 * 63, 0);
    machine = narrow;
}

int main(void) {
    cpu_set_rates(&machine);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile),     cmocka_unit_test(test_chain),   cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_averages), cmocka_unit_test(test_vectors), cmocka_unit_test(test_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
