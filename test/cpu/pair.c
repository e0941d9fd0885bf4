/* Rows of a register tile that share their last vectors (rows loops): all heights and widths, rows that some steps leave out, rows that
 * do not begin at the first one, what follows the tile. */
#include "test/cpu/kernel_check.h"
#include "test/share.h"

#include <stdio.h>
#include <stdlib.h>

/* A tile of accumulators [rows, columns]; `step` adds x[i, k]*w[k, j], `after` stores them. */
static const char *tile(const char *factor, const char *sum, int rows, int columns, const char *step,
                        const char *after) {
    static char text[4096];
    snprintf(
        text, sizeof text,
        "kernel tile(x: %s[%d, 9] arg, w: %s[9, %d] arg, y: %s[%d, %d] arg, z: %s[%d, %d] arg, c: %s[%d, %d] reg)\n"
        "phase tasks=1 task=p {\n"
        "  for i in 0..%d unroll { for j in 0..%d vec { c[i, j] = 0:%s } }\n"
        "%s%s}\n",
        factor, rows, factor, columns, sum, rows, columns, sum, columns, rows, sum, rows, columns, rows, columns, sum,
        step, after);
    return text;
}

static const char *format(char *text, size_t size, const char *how, int rows, int columns) {
    snprintf(text, size, how, rows, columns);
    return text;
}

#define STEP \
    "  for k in 0..9 { for i in 0..%d unroll { for j in 0..%d vec { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } } }\n"
#define AFTER "  for i in 0..%d unroll { for j in 0..%d vec { y[i, j] = c[i, j] } }\n"
#define ACROSS "  for i in 0..%d unroll { for j in 0..%d vec { z[j, i] = c[i, j] } }\n"

static void test_heights_and_widths(void **state) {
    (void)state;
    static const int columns[] = {9, 12, 16, 17, 19, 24, 25, 33, 40, 56, 66};
    char step[512], after[512];
    for (int rows = 1; rows <= 7; rows++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            if (!test_takes((int)c + rows, 4)) continue;
            format(step, sizeof step, STEP, rows, columns[c]);
            format(after, sizeof after, rows % 2 ? AFTER : ACROSS, rows, columns[c]);
            kernel_check(tile("f32", "f32", rows, columns[c], step, after), NULL);
            kernel_check_fill(tile("f64", "f64", rows, columns[c], step, after), NULL, FILL_SPECIAL);
        }
}

static void test_converted_factors(void **state) {
    (void)state;
    static const char *const dtypes[] = {"f16", "bf16"};
    char step[512], after[512];
    for (int d = 0; d < 2; d++)
        for (int rows = 2; rows <= 5; rows++) {
            format(step, sizeof step,
                   "  for k in 0..9 { for i in 0..%d unroll { for j in 0..%d vec {\n"
                   "    c[i, j] = fma(cast.f32(x[i, k]), cast.f32(w[k, j]), c[i, j]) } } }\n",
                   rows, 22);
            kernel_check(tile(dtypes[d], "f32", rows, 22, step, format(after, sizeof after, AFTER, rows, 22)), NULL);
        }
}

/* Steps of a window leave out rows at the edges of an image, each others. */
static void test_rows_left_out(void **state) {
    (void)state;
    static const char *const steps[] = {
        "  for k in 0..3 { for t in 0..3 unroll { for i in 0..%d unroll { for j in 0..%d vec {\n"
        "    if (0 < t + i) { c[i, j] = fma(x[i + t - 1, k], w[k, j], c[i, j]) } } } } }\n",
        "  for k in 0..3 { for t in 0..2 unroll { for i in 0..%d unroll { for j in 0..%d vec {\n"
        "    if (1 < t + i && t + i < 4) { c[i, j] = fma(x[i, k + t], w[k, j], c[i, j]) } } } } }\n",
        "  for k in 0..9 { for i in 0..%d unroll { for j in 0..%d vec {\n"
        "    if (k < 4) { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } } } }\n", /* not decided for each row */
    };
    char step[512], after[512];
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (int rows = 3; rows <= 6; rows++) {
            int last = rows - (s == 0); /* x[i + 1] is there */
            format(step, sizeof step, steps[s], last, 24);
            kernel_check(tile("f32", "f32", rows, 24, step, format(after, sizeof after, AFTER, rows, 24)), NULL);
        }
}

/* Loops that begin at other rows, and one that takes single rows. */
static void test_same_pairs_in_all_loops(void **state) {
    (void)state;
    static const char *const steps[] = {
        "  for k in 0..9 {\n"
        "    for i in 0..%d unroll { for j in 0..%d vec { c[i + 1, j] = fma(x[i + 1, k], w[k, j], c[i + 1, j]) } }\n"
        "    for i in 0..2 unroll { for j in 0..24 vec { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } } }\n",
        "  for k in 0..9 {\n"
        "    for i in 0..%d unroll { for j in 0..%d vec { c[i, j] = fma(x[i, k], w[k, j], c[i, j]) } }\n"
        "    for j in 0..24 vec { c[1, j] = fma(x[1, k], w[k, j], c[1, j]) }\n"
        "    for i in 0..3 unroll { for j in 0..24 vec { c[i, j] = c[i, j]*0.5:f32 } } }\n",
    };
    char step[512], after[512];
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (int rows = 4; rows <= 5; rows++) {
            format(step, sizeof step, steps[s], rows - 1, 24);
            kernel_check(tile("f32", "f32", rows, 24, step, format(after, sizeof after, AFTER, rows, 24)), NULL);
        }
}

/* What follows is long enough to be a loop over rows, which then wait in memory. */
static void test_rolled_rows(void **state) {
    (void)state;
    char step[512], after[512];
    format(step, sizeof step, STEP, 10, 24);
    format(
        after, sizeof after,
        "  for i in 0..%d unroll { for j in 0..%d vec { y[i, j] = (((((((c[i, j]*0.5:f32 + 1:f32)*0.25:f32 - 2:f32)*0.5:f32\n"
        "    + 3:f32)*0.125:f32 - 4:f32)*0.5:f32 + 5:f32)*0.25:f32 - 6:f32)*0.5:f32 + 7:f32)*2:f32 } }\n",
        10, 24);
    kernel_check(tile("f32", "f32", 10, 24, step, after), NULL);
}

/* 18 rows of a vector and a half are 27 vectors, not 36, on machines where rows share vectors. */
static void test_registers(void **state) {
    (void)state;
    if (!kernel_pairs_rows()) skip();
    char step[512], after[512];
    format(step, sizeof step, STEP, 18, 24);
    int spills = kernel_spills(tile("f32", "f32", 18, 24, step, format(after, sizeof after, AFTER, 18, 24)), 64);
    if (spills < 0) skip();
    assert_int_equal(spills, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heights_and_widths), cmocka_unit_test(test_converted_factors),
        cmocka_unit_test(test_rows_left_out),      cmocka_unit_test(test_same_pairs_in_all_loops),
        cmocka_unit_test(test_rolled_rows),        cmocka_unit_test(test_registers),
    };
    return cmocka_run_group_tests_name("rows by pairs", tests, kernel_check_open, kernel_check_close);
}
