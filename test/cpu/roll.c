/* Long bodies that are loops although the kernel says unroll or vec: rows after a register tile, chunks of lanes, lanes of stores
 * without neighbours; chunks beside each other; masks known beforehand; constants read before a loop. */
#include "test/cpu/kernel_check.h"

#include <stdio.h>

/* 12 operations and more on v. */
#define LONG \
    "((((((((%s*0.5:f32 + 1:f32)*0.25:f32 - 2:f32)*0.5:f32 + 3:f32)*0.125:f32 - 4:f32)*0.5:f32 + 5:f32)*0.25:f32 - 6:f32)*0.5:f32 + 7:f32)*2:f32)"

static void long_of(char *text, size_t size, const char *v) {
    snprintf(text, size, LONG, v);
}

/* A tile of accumulators, `after` for each of its rows. */
static const char *tile(int rows, int lanes, const char *after) {
    static char text[4096];
    snprintf(
        text, sizeof text,
        "kernel tile(x: f32[%d, 9] arg, w: f32[9, %d] arg, y: f32[%d, %d] arg, z: f32[%d, %d] arg, c: f32[%d, %d] reg)\n"
        "phase tasks=1 task=p {\n"
        "  for i in 0..%d unroll { for j in 0..%d vec { c[i, j] = 0:f32 } }\n"
        "  for k in 0..9 { for i in 0..%d unroll { for j in 0..%d vec { c[i, j] = c[i, j] + x[i, k]*w[k, j] } } }\n"
        "%s}\n",
        rows, lanes, rows, lanes, lanes, rows, rows, lanes, rows, lanes, rows, lanes, after);
    return text;
}

static void test_rows(void **state) {
    (void)state;
    char value[512], after[1024];
    long_of(value, sizeof value, "c[i, j]");
    static const int rows[] = {2, 7, 13}, lanes[] = {5, 16, 32, 40};
    for (int r = 0; r < 3; r++)
        for (int l = 0; l < 4; l++) {
            const char *loop = "  for i in 0..%d unroll { for j in 0..%d vec { y[i, j] = %s } }\n";
            int used = snprintf(after, sizeof after, loop, rows[r], lanes[l], value);
            kernel_check(tile(rows[r], lanes[l], after), NULL);
            /* the elements are registers again */
            snprintf(after + used, sizeof after - (size_t)used,
                     "  for i in 0..%d unroll { for j in 0..%d vec { z[j, i] = c[i, j]*2:f32 } }\n", rows[r], lanes[l]);
            kernel_check(tile(rows[r], lanes[l], after), NULL);
        }
    const char *loop = "  for i in 0..13 unroll { for j in 0..32 vec { y[i, j] = %s } }\n";
    snprintf(after, sizeof after, loop, value);
    int heavy = kernel_length(tile(13, 32, after));
    snprintf(after, sizeof after, loop, "c[i, j]*2:f32");
    int light = kernel_length(tile(13, 32, after));
    assert_true(heavy < light + 100); /* not 13 copies */
}

/* Reading neighbours, masks around, writing registers by the counter, rows that wait for transposition. */
static void test_rows_of_kinds(void **state) {
    (void)state;
    static const char *const afters[] = {
        "  for i in 0..6 unroll { for j in 0..20 vec { y[i, j] = %s + c[i + 1, j] - c[0, j] } }\n",
        "  for i in 0..7 unroll { for j in 0..20 vec { if (j < 13) { y[i, j] = %s } else { y[i, j] = c[i, j] } } }\n",
        "  for i in 0..7 unroll { for j in 0..20 vec { z[j, i] = %s } }\n",
        "  for i in 0..7 unroll { for j in 0..20 vec { c[i, j] = %s } }\n"
        "  for i in 0..7 unroll { for j in 0..20 vec { y[i, j] = c[i, j] } }\n",
        "  for i in 0..7 unroll { if (i < 3) { for j in 0..20 vec { y[i, j] = %s } } }\n",
        "  for k in 0..3 { for i in 0..7 unroll { for j in 0..20 vec { y[i, j] = %s*y[i, j] } }\n"
        "    for i in 0..7 unroll { for j in 0..20 vec { c[i, j] = c[i, j] + y[i, j] } } }\n",
    };
    char value[512], after[1400];
    long_of(value, sizeof value, "c[i, j]");
    for (size_t i = 0; i < sizeof afters / sizeof *afters; i++) {
        snprintf(after, sizeof after, afters[i], value);
        kernel_check(tile(7, 20, after), NULL);
    }
}

/* The last row of a tile is never written: it holds zeros while the tile is in memory. */
static void test_unwritten_row(void **state) {
    (void)state;
    char value[512], text[2048];
    long_of(value, sizeof value, "c[i, j]");
    snprintf(text, sizeof text,
             "kernel unwritten(x: f32[3, 40] arg, y: f32[4, 40] arg, c: f32[4, 40] reg zero)\n"
             "phase tasks=1 task=p {\n"
             "  for i in 0..3 unroll { for j in 0..40 vec { c[i, j] = x[i, j]*2:f32 } }\n"
             "  for i in 0..4 unroll { for j in 0..40 vec { y[i, j] = %s } }\n"
             "}\n",
             value);
    kernel_check(text, NULL);
}

/* One element for all lanes of a vector, beyond its buffer where no lane takes part. */
static void test_one_element_beyond(void **state) {
    (void)state;
    kernel_check("kernel beyond(x: f32[1] arg, y: f32[64] arg) params(m: 0..64)\n"
                 "phase tasks=1 task=p {\n"
                 "  for j in 0..64 vec {\n"
                 "    let b = j/16*16\n"
                 "    if (j < m) { y[j] = x[b] }\n"
                 "  }\n"
                 "  for j in 0..64 vec { if (j < m) { y[j] = y[j] + x[j/16*16] } }\n"
                 "}\n",
                 (const int64_t[]){13});
}

static void test_chunks(void **state) {
    (void)state;
    char value[512], text[2048];
    long_of(value, sizeof value, "x[t, j]");
    for (int lanes = 32; lanes <= 150; lanes += 59) {
        snprintf(text, sizeof text,
                 "kernel chunks(x: f32[6, %d] arg, y: f32[6, %d] arg)\n"
                 "phase tasks=2 task=p {\n"
                 "  for t in p*3 .. +3 { for j in 0..%d vec { y[t, j] = %s } }\n"
                 "}\n",
                 lanes, lanes, lanes, value);
        kernel_check(text, NULL);
    }
    snprintf(text, sizeof text,
             "kernel positions(x: f32[6, 64] arg, y: f32[64, 6] arg, z: f32[6, 64] arg)\n"
             "phase tasks=6 task=t {\n"
             "  for j in 0..64 vec { y[j, t] = %s }\n"
             "  for j in 0..64 vec { if (j + t < 61) { z[t, j] = %s } }\n"
             "}\n",
             value, value);
    kernel_check(text, NULL);
}

/* Chunks that run beside each other: values used once and several times, sums in registers, updates in place, several results, and
 * tails. */
static void test_woven_chunks(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "y[t, j] = %s",
        "let v: f32 = %s y[t, j] = v*(v + 1:f32)*(v - x[t, j])",
        "y[t, j] = %s + y[t, j]",
        "let v: f32 = %s y[t, j] = v z[t, j] = v*v + z[t, j] c[0] = max(c[0], v)",
        "let v: f32 = %s y[t, j] = v y[t, j] = y[t, j]*v",
        "let v: f32 = %s z[t, j] = v if (j < 20) { y[t, j] = v*v }",
        "let v: f32 = %s y[j, t] = v*v",
    };
    char value[512], body[1024], text[2048];
    long_of(value, sizeof value, "x[t, j]");
    for (int lanes = 33; lanes <= 320; lanes += 41)
        for (size_t b = 0; b < sizeof bodies / sizeof *bodies; b++) {
            snprintf(body, sizeof body, bodies[b], value);
            snprintf(text, sizeof text,
                     "kernel woven(x: f32[3, %d] arg, y: f32[%d, %d] arg, z: f32[3, %d] arg, c: f32[1] reg)\n"
                     "phase tasks=3 task=t {\n"
                     "  c[0] = 0:f32\n  for j in 0..%d vec { %s }\n  z[t, 0] = c[0]\n}\n",
                     lanes, lanes, lanes, lanes, lanes, body);
            kernel_check(text, NULL);
        }
}

/* Lanes that are on or off whatever happens. */
static void test_known_masks(void **state) {
    (void)state;
    kernel_check(
        "kernel edges(x: f32[4, 8] arg, w: f32[5] arg, y: f32[4, 8] arg, c: f32[5, 8] reg)\n"
        "phase tasks=4 task=t {\n"
        "  for i in 0..5 unroll { for j in 0..8 vec { c[i, j] = 0:f32 } }\n"
        "  for i in 0..5 unroll { for j in 0..8 vec { if (0 < j) { c[i, j] = c[i, j] + x[t, j - 1]*w[i] } } }\n"
        "  for i in 0..5 unroll { for j in 0..8 vec { if (j < 7) {\n"
        "    c[i, j] = c[i, j] + x[t, j + 1]*w[i] } else { c[i, j] = c[i, j] - w[i] } } }\n"
        "  for j in 0..8 vec { y[t, j] = c[0, j] + c[1, j] + c[2, j] + c[3, j] + c[4, j] }\n"
        "}\n",
        NULL);
}

/* Masks that differ from task to task: what all lanes share is read without asking where it is there in any case (w), else only
 * where a lane is on (v). */
static void test_masked_copies(void **state) {
    (void)state;
    kernel_check(
        "kernel borders(x: f32[12, 48] arg, w: f32[3, 3] arg, v: f32[2, 3] arg, y: f32[30, 48] arg, c: f32[10, 16] reg)\n"
        "phase tasks=3 task=t {\n"
        "  for i in 0..10 unroll { for j in 0..16 vec { c[i, j] = 0:f32 } }\n"
        "  for k in 0..3 unroll {\n"
        "    for i in 0..10 unroll { for j in 0..16 vec { if (0 < j + t*16) {\n"
        "      c[i, j] = c[i, j] + x[k + i, j + t*16 - 1]*w[k, 0] } } }\n"
        "    for i in 0..10 unroll { for j in 0..16 vec { c[i, j] = c[i, j] + x[k + i, j + t*16]*w[k, 1] } }\n"
        "    for i in 0..10 unroll { for j in 0..16 vec { if (j + t*16 < 31) {\n"
        "      c[i, j] = c[i, j] + x[k + i, j + t*16 + 1]*v[t, k] } } }\n"
        "  }\n"
        "  for i in 0..10 unroll { for j in 0..16 vec { y[i + t*10, j + t*16] = c[i, j] } }\n"
        "}\n",
        NULL);
}

static void test_lonely_lanes(void **state) {
    (void)state;
    static const char *const dtypes[] = {"bool", "i8", "f16", "f32", "f64"};
    char text[1024];
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int lanes = 3; lanes <= 48; lanes += 15) {
            snprintf(text, sizeof text,
                     "kernel lonely(x: %s[5, %d] arg, y: %s[%d, 20] arg, z: %s[5, %d, 3] arg)\n"
                     "phase tasks=1 task=p {\n"
                     "  for u in 0..5 unroll { for j in 0..%d vec { y[j, u*4] = x[u, j] z[u, j, 1] = x[u, j] } }\n"
                     "}\n",
                     dtypes[d], lanes, dtypes[d], lanes, dtypes[d], lanes, lanes);
            kernel_check_fill(text, NULL, FILL_SMALL);
        }
}

/* A line of memory is written by non-temporal stores or by ordinary ones, not by both. */
static void test_non_temporal_rows(void **state) {
    (void)state;
    char text[512];
    for (int row = 64; row <= 192; row += 4) { /* elements: multiples of 16 bytes, of 32, 64, and more */
        snprintf(text, sizeof text,
                 "kernel past(x: f32[9, %d] arg align 64, y: f32[9, %d] arg align 64)\nphase tasks=1 task=p {\n"
                 "  for i in 0..9 { for j in 0..%d vec { nt y[i, j] = x[i, j]*2:f32 } }\n}\n",
                 row, row, row);
        const int stores = kernel_non_temporal(text, 32);
        if (stores >= 0 && row % 16 == 0) assert_true(stores > 0);
        if (stores >= 0 && row % 8 == 4) assert_int_equal(stores, 0);
    }
}

/* Windows at the edges of an image of `height` rows: sums of eight vectors of registers over the steps that are inside. */
static const char *edges(int height) {
    static char text[1024];
    snprintf(text, sizeof text,
             "kernel edges(x: f32[10, 128] arg, w: f32[3] arg, y: f32[8, 128] arg, c: f32[128] reg)\n"
             "phase tasks=8 task=i {\n"
             "  for j in 0..128 vec { c[j] = 0:f32 }\n"
             "  for k in max(i*-1 + 1, 0) .. +max(i*-1 + 1, 0)*-1 + min(i*-1 + %d, 3) {\n"
             "    for j in 0..128 vec { c[j] = c[j] + x[i + k, j]*w[k] }\n  }\n"
             "  for j in 0..128 vec { y[i, j] = c[j] }\n}\n",
             height);
    return text;
}

/* No row of eight is without steps: the loop needs no branch around it, and no value is merged behind it. */
static void test_windows_at_edges(void **state) {
    (void)state;
    const int heights[] = {9, 8, 7, 3};
    for (int i = 0; i < 4; i++) kernel_check(edges(heights[i]), NULL);
    assert_true(kernel_length(edges(8)) + 8 < kernel_length(edges(7)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_non_temporal_rows),  cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_of_kinds),      cmocka_unit_test(test_unwritten_row),
        cmocka_unit_test(test_one_element_beyond), cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_woven_chunks),       cmocka_unit_test(test_known_masks),
        cmocka_unit_test(test_lonely_lanes),       cmocka_unit_test(test_masked_copies),
        cmocka_unit_test(test_windows_at_edges),
    };
    return cmocka_run_group_tests_name("rolled bodies", tests, kernel_check_open, kernel_check_close);
}
