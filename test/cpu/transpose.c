/* Stores of lanes that lie a stride apart: blocks of them are transposed in registers, whatever the number of rows and
 * lanes and the width of the elements; stores that meet, or are read back, keep their order. */
#include "test/cpu/kernel_check.h"
#include "test/share.h"

#include <stdio.h>
#include <stdlib.h>

static void check_block(const char *dtype, int rows, int lanes) {
    static int number;
    char text[1024];
    if (!test_takes(number++, 3)) return;
    snprintf(text, sizeof text,
             "kernel rows_inner(x: %s[3, %d, %d] arg, y: %s[3, %d, %d] arg)\n"
             "phase tasks=3 task=p {\n"
             "  for u in 0..%d unroll { for j in 0..%d vec { y[p, j, u] = x[p, u, j] } }\n"
             "}\n",
             dtype, rows, lanes, dtype, lanes, rows + 2, rows, lanes);
    kernel_check_fill(text, NULL, FILL_SMALL);
}

static void test_shapes(void **state) {
    (void)state;
    static const int rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 33};
    static const int lanes[] = {2, 4, 5, 8, 13, 16, 20, 32, 64};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t l = 0; l < sizeof lanes / sizeof *lanes; l++) check_block("f32", rows[r], lanes[l]);
}

static void test_dtypes(void **state) {
    (void)state;
    static const char *const dtypes[] = {"bool", "i8", "u8", "f16", "bf16", "i32", "i64", "f64"};
    static const int sizes[][2] = {{2, 4}, {3, 32}, {4, 64}, {5, 20}, {8, 8}, {16, 16}, {16, 64}, {21, 37}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_block(dtypes[d], sizes[i][0], sizes[i][1]);
}

/* Without gaps between the lanes' rows: whole vectors. */
static void test_interleaved(void **state) {
    (void)state;
    static const char *const dtypes[] = {"u8", "bf16", "f32", "f64"};
    static const int rows[] = {2, 3, 4, 8, 16}, lanes[] = {3, 8, 16, 30, 49, 64, 100};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t l = 0; l < sizeof lanes / sizeof *lanes; l++) {
                char text[512];
                if (test_is_short() && (d + r + l) % 4 != 0) continue;
                snprintf(text, sizeof text,
                         "kernel dense(x: %s[3, %d, %d] arg, y: %s[3, %d, %d] arg)\n"
                         "phase tasks=3 task=p {\n"
                         "  for u in 0..%d unroll { for j in 0..%d vec { y[p, j, u] = x[p, u, j] } }\n"
                         "}\n",
                         dtypes[d], rows[r], lanes[l], dtypes[d], lanes[l], rows[r], rows[r], lanes[l]);
                kernel_check_fill(text, NULL, FILL_SMALL);
            }
}

/* Two dimensions that one loop walks, where they run on into each other and where they do not. */
static void test_fused(void **state) {
    (void)state;
    kernel_check("kernel fused(x: f32[3, 7, 10] arg, y: f32[3, 7, 10, 2] arg, z: f32[3, 7, 12] arg)\n"
                 "phase tasks=3 task=p {\n"
                 "  for v in 0..5 { for i in 0..14 vec {\n"
                 "    y[p, (v*14 + i)/10, (v*4 + i)%10, 1] = x[p, (v*14 + i)/10, (v*4 + i)%10]\n"
                 "    z[p, (v*14 + i)/10, (v*14 + i)%10] = x[p, (v*14 + i)/10, (v*14 + i)%10]\n"
                 "  } }\n"
                 "}\n",
                 NULL);
}

/* The unrolled loop inside, downwards, with gaps, into two buffers by turns, and around reg elements. */
static void test_orders(void **state) {
    (void)state;
    kernel_check("kernel inner(x: f32[16, 40] arg, y: f32[40, 16] arg, z: f32[40, 33] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for u in 0..16 unroll { for j in 0..40 vec {\n"
                 "    y[j, 15 - u] = x[u, j] + 1:f32\n"
                 "    z[39 - j, u*2] = x[u, j]*2:f32\n"
                 "  } }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel two(x: f32[6, 4, 32] arg, y: f32[32, 4, 9] arg, r: f32[6, 32] reg)\n"
                 "phase tasks=4 task=p {\n"
                 "  for u in 0..6 unroll { for j in 0..32 vec { r[u, j] = x[u, p, j] } }\n"
                 "  for k in 0..5 { for u in 0..6 unroll { for j in 0..32 vec { r[u, j] = r[u, j] + x[u, p, j] } } }\n"
                 "  for u in 0..6 unroll { for j in 0..32 vec { y[j, p, u + 2] = max(r[u, j], 0:f32) } }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel pack(k: f32[4, 64, 64] arg, panels: f32[2, 4, 64, 32] arg)\n"
                 "phase tasks=2 task=p {\n"
                 "  for h in 0..4 { for d in 0..4 { for v in 0..32 unroll { for l in 0..16 vec {\n"
                 "    panels[p, h, d*16 + l, v] = k[h, p*32 + v, d*16 + l]\n"
                 "  } } } }\n"
                 "}\n",
                 NULL);
}

/* Stores that meet in an element, and loads of what was stored, in one block. */
static void test_meetings(void **state) {
    (void)state;
    kernel_check("kernel diagonal(x: f32[8, 16] arg, y: f32[64] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for u in 0..8 unroll { for j in 0..16 vec { y[j*2 + u] = x[u, j] } }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel twice(x: f32[4, 16] arg, y: f32[16, 5] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for t in 0..3 unroll { for u in 0..4 unroll { for j in 0..16 vec {\n"
                 "    y[j, u] = x[u, j]*2:f32 + x[t, j]\n"
                 "  } } }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel back(x: f32[4, 16] arg, y: f32[16, 5] arg, s: f32[4] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for u in 0..4 unroll {\n"
                 "    for j in 0..16 vec { y[j, u] = x[u, j] }\n"
                 "    s[u] = y[3, u]*2:f32\n"
                 "    for j in 0..16 vec { y[j, 4] = y[j, u] + 1:f32 }\n"
                 "  }\n"
                 "  y[0, 0] = 5:f32\n"
                 "}\n",
                 NULL);
    kernel_check("kernel strides(x: f32[4, 16] arg, y: f32[300] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for u in 0..4 unroll {\n"
                 "    for j in 0..16 vec { y[j*6 + u] = x[u, j] }\n"
                 "    for j in 0..16 vec { y[j*9 + u] = x[u, j]*3:f32 }\n"
                 "    y[12] = x[u, 0]\n"
                 "    for j in 0..16 vec { y[j + 6] = x[u, 15 - j] }\n"
                 "  }\n"
                 "}\n",
                 NULL);
}

static void test_branches(void **state) {
    (void)state;
    kernel_check("kernel branch(x: f32[4, 5, 16] arg, y: f32[4, 16, 5] arg)\n"
                 "phase tasks=4 task=p {\n"
                 "  for u in 0..2 unroll { for j in 0..16 vec { y[p, j, u] = x[p, u, j] } }\n"
                 "  if (p < 2) {\n"
                 "    for u in 0..5 unroll { for j in 0..16 vec { y[p, j, u] = x[p, u, j]*2:f32 } }\n"
                 "  } else {\n"
                 "    for u in 2..4 unroll { for j in 0..16 vec { y[p, j, u] = x[p, u, j] } }\n"
                 "  }\n"
                 "  for k in 0..3 {\n"
                 "    for u in 0..5 unroll { for j in 0..16 vec { y[p, j, u] = y[p, j, u] + x[p, u, j] } }\n"
                 "  }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel masked(x: f32[6, 40] arg, y: f32[40, 6] arg)\n"
                 "phase tasks=3 task=p {\n"
                 "  for u in 0..6 unroll { for j in 0..16 vec { if (p*16 + j < 40) {\n"
                 "    y[p*16 + j, u] = x[u, p*16 + j]\n"
                 "  } } }\n"
                 "}\n",
                 NULL);
}

/* Lanes as far apart as the kernel is told: rows of any length, and places that meet for some of them. */
static void test_steps(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 16, 37, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s += test_is_short() ? 2 : 1) {
        kernel_check("kernel columns(x: f32[n, 40] arg, y: f32[40, n] arg, z: f64[40, 2, n] arg) params(n: 1..64)\n"
                     "phase tasks=1 task=p {\n"
                     "  for r in 0..n/16 {\n"
                     "    for v in 0..2 { for u in 0..16 unroll { for j in 0..16 vec {\n"
                     "      y[v*16 + j, r*16 + u] = x[r*16 + u, v*16 + j]\n"
                     "      z[v*16 + j, 1, r*16 + u] = cast.f64(x[r*16 + u, v*16 + j])\n"
                     "    } } }\n"
                     "    for u in 0..16 unroll { for j in 0..8 vec { y[39 - j, r*16 + u] = x[r*16 + u, j + 32] } }\n"
                     "  }\n"
                     "  for u in n/16*16 .. +n - n/16*16 { for j in 0..40 vec { y[j, u] = x[u, j] } }\n"
                     "}\n",
                     &sizes[s]);
        kernel_check("kernel meet(x: f32[8, 16] arg, y: f32[n*16 + 8] arg) params(n: 1..64)\n"
                     "phase tasks=1 task=p {\n"
                     "  for u in 0..8 unroll { for j in 0..16 vec { y[j*n + u] = x[u, j] } }\n"
                     "}\n",
                     &sizes[s]);
        kernel_check("kernel wide(x: f32[3, 14, 32] arg, y: f32[64, n, 14] arg) params(n: 1..64)\n"
                     "phase tasks=2 task=p {\n"
                     "  for h in 0..n { for u in 0..14 unroll { for j in 0..32 vec {\n"
                     "    y[p*32 + j, h, u] = x[p, u, j]\n"
                     "  } } }\n"
                     "  for u in 0..14 unroll { for j in 0..24 vec { y[p*32 + j + 4, 0, u] = x[2, u, j] } }\n"
                     "  for u in 0..4 unroll { for j in 0..24 vec { y[p*32 + j + u, 0, 13 - u] = x[2, u, j] } }\n"
                     "}\n",
                     &sizes[s]);
        kernel_check(
            "kernel rows(x: f64[8, 16] arg, y: f64[16, 8] arg, w: f64[16, n*2 + 8] workspace) params(n: 1..64)\n"
            "phase tasks=1 task=p {\n"
            "  for u in 0..8 unroll { for j in 0..16 vec { w[j, u] = x[u, j] } }\n"
            "  for i in 0..16 { for u in 0..8 { y[i, u] = w[i, u] } }\n"
            "}\n",
            &sizes[s]);
        kernel_check("kernel both(x: bf16[8, 16] arg, y: bf16[n + 23, n + 16] arg) params(n: 1..64)\n"
                     "phase tasks=1 task=p {\n"
                     "  for u in 0..8 unroll { for j in 0..16 vec { y[j, u] = x[u, j] } }\n"
                     "  for u in 0..8 unroll { for j in 0..16 vec { y[j, j] = x[u, j] } }\n"
                     "  for u in 0..8 unroll { for j in 0..16 vec { y[j + u, 0] = x[u, j] } }\n"
                     "}\n",
                     &sizes[s]);
    }
}

/* Stores past the caches: the arguments come aligned and not, the addresses inside are aligned or not. */
static void test_streams(void **state) {
    (void)state;
    kernel_check("kernel straight(x: f32[1000] arg, y: f32[1000] arg, z: f32[1000] arg)\n"
                 "phase tasks=4 task=p {\n"
                 "  for j in 0..240 vec { nt y[p*240 + j] = x[p*240 + j] + 1:f32 }\n"
                 "  for j in 0..240 vec { nt z[p*240 + j + 3] = x[p*240 + j] * 2:f32 }\n"
                 "  for j in 0..10 vec { y[p*10 + j + 960] = x[p*10 + j + 960] }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel tiles(x: f32[32, 65] arg, y: f32[65, 32] arg, z: f64[65, 33] arg)\n"
                 "phase tasks=2 task=p {\n"
                 "  for v in 0..4 { for u in 0..16 unroll { for j in 0..16 vec {\n"
                 "    nt y[v*16 + j, p*16 + u] = x[p*16 + u, v*16 + j]\n"
                 "    nt z[v*16 + j, p*16 + u] = cast.f64(x[p*16 + u, v*16 + j])\n"
                 "  } } }\n"
                 "  for u in 0..16 unroll { nt y[64, p*16 + u] = x[p*16 + u, 64] }\n"
                 "  for u in 0..33 { if (p == 1) { nt z[64, u] = 2.5:f64 } }\n"
                 "}\n"
                 "phase tasks=1 task=p { for v in 0..64 vec { nt z[v, 32] = cast.f64(y[v, 3]) } }\n",
                 NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_dtypes), cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_fused),    cmocka_unit_test(test_orders), cmocka_unit_test(test_meetings),
        cmocka_unit_test(test_branches), cmocka_unit_test(test_steps),  cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests_name("transposed stores", tests, kernel_check_open, kernel_check_close);
}
