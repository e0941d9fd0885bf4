/* The emitter against the interpreter, bit for bit, kernel by kernel. */
#include "test/cpu/kernel_check.h"

#include <stdio.h>
#include <string.h>

static void test_map(void **state) {
    (void)state;
    kernel_check("kernel serial(x: f32[1000] arg, y: f32[1000] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for i in 0..1000 { y[i] = x[i]*2:f32 + 1:f32 }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel rolled(x: f32[1003] arg, y: f32[1003] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for i in 0..1003 vec { y[i] = x[i]*2:f32 + 1:f32 }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel lets(x: f32[8, 45] arg, s: f32[8] arg, y: f32[8, 45] arg)\n"
                 "phase tasks=8 task=p {\n"
                 "  let b: f32 = s[p]\n"
                 "  for i in 0..45 vec {\n"
                 "    let v: f32 = x[p, i] - b\n"
                 "    let w: f32 = v*v\n"
                 "    y[p, i] = w*w + v/b\n"
                 "  }\n"
                 "}\n",
                 NULL);
}

static void test_masked_tail(void **state) {
    (void)state;
    kernel_check("kernel tail(x: f32[1003] arg, y: f32[1003] arg)\n"
                 "phase tasks=16 task=p {\n"
                 "  for i in 0..64 vec { if (p*64 + i < 1003) { y[p*64 + i] = x[p*64 + i]*2:f32 + 1:f32 } }\n"
                 "}\n",
                 NULL);
    const int64_t sizes[] = {1, 5, 16, 63, 64, 65, 200};
    for (int i = 0; i < 7; i++)
        kernel_check("kernel varying(x: f32[n] arg, y: f32[n] arg, z: i8[n] arg) params(n: 1..4096)\n"
                     "phase tasks=(n + 31)/32 task=p {\n"
                     "  for i in 0..32 vec {\n"
                     "    if (p*32 + i < n) { y[p*32 + i] = x[p*32 + i]*x[n - 1] } else { }\n"
                     "    if (p*32 + i < n) { z[p*32 + i] = z[p*32 + i] + 3:i8 }\n"
                     "  }\n"
                     "}\n",
                     &sizes[i]);
    kernel_check("kernel otherwise(x: f32[50] arg, y: f32[64] arg)\n"
                 "phase tasks=4 task=p {\n"
                 "  for i in 0..16 vec {\n"
                 "    let j = p*16 + i\n"
                 "    if (j < 50) { y[j] = x[j] } else { y[j] = 0:f32 }\n"
                 "  }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel guarded(x: f32[50] arg, y: f32[64] arg)\n"
                 "phase tasks=4 task=p {\n"
                 "  for i in 0..16 vec { y[p*16 + i] = select(p*16 + i < 50, 2:f32, 3:f32) }\n"
                 "}\n",
                 NULL);
}

static void gemm_text(char *text, size_t size, int rows, int columns, int depth) {
    snprintf(text, size,
             "kernel gemm(x: f32[%d, %d] arg, w: f32[3, %d, %d] arg, D: f32[%d, %d] arg, C: f32[%d, %d] reg)\n"
             "phase tasks=3 task=p {\n"
             "  for i in 0..%d unroll { for j in 0..%d vec { C[i, j] = 0:f32 } }\n"
             "  for k in 0..%d {\n"
             "    for i in 0..%d unroll { for j in 0..%d vec { C[i, j] = fma(x[i, k], w[p, k, j], C[i, j]) } }\n"
             "  }\n"
             "  for i in 0..%d unroll { for j in 0..%d vec { D[i, p*%d + j] = C[i, j] } }\n"
             "}\n",
             rows, depth, depth, columns, rows, columns * 3, rows, columns, rows, columns, depth, rows, columns, rows,
             columns, columns);
}

static void test_gemm(void **state) {
    (void)state;
    const int shapes[][3] = {{14, 32, 37}, {8, 48, 64}, {6, 64, 9}, {3, 20, 7}, {1, 7, 1}, {5, 13, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[1024];
        gemm_text(text, sizeof text, shapes[i][0], shapes[i][1], shapes[i][2]);
        kernel_check(text, NULL);
        int registers = shapes[i][0] * ((shapes[i][1] + 15) / 16) + (shapes[i][1] + 15) / 16 + 1;
        if (registers <= 32 && kernel_spills(text, 64) >= 0) assert_int_equal(kernel_spills(text, 64), 0);
    }
}

/* Steps of a window along the columns of a tile that takes nearly all registers: sums stay there although the vectors of all steps are near
 * each other in memory, and although lanes on padding, whose number is constant, are left out. */
static void test_window(void **state) {
    (void)state;
    static const char *const guards[][2] = {{"", ""}, {"if (0 < j) ", ""}, {"", "if (j < 31) "}};
    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) {
        char text[1536];
        snprintf(
            text, sizeof text,
            "kernel window(x: f32[64, 34] arg, w: f32[14, 64, 3] arg, D: f32[14, 32] arg, C: f32[14, 32] reg)\n"
            "phase tasks=1 task=p {\n"
            "  for i in 0..14 unroll { for j in 0..32 vec { C[i, j] = 0:f32 } }\n"
            "  for k in 0..64 {\n"
            "    for i in 0..14 unroll { for j in 0..32 vec { %s{ C[i, j] = fma(x[k, j], w[i, k, 0], C[i, j]) } } }\n"
            "    for i in 0..14 unroll { for j in 0..32 vec { C[i, j] = fma(x[k, j + 1], w[i, k, 1], C[i, j]) } }\n"
            "    for i in 0..14 unroll { for j in 0..32 vec { %s{ C[i, j] = fma(x[k, j + 2], w[i, k, 2], C[i, j]) } } }\n"
            "  }\n"
            "  for i in 0..14 unroll { for j in 0..32 vec { D[i, j] = C[i, j] } }\n"
            "}\n",
            *guards[i][0] ? guards[i][0] : "if (j < 32) ", *guards[i][1] ? guards[i][1] : "if (j < 32) ");
        kernel_check(text, NULL);
        if (kernel_spills(text, 64) >= 0) assert_int_equal(kernel_spills(text, 64), 0);
    }
}

/* Ends of operands beside doubles, whose vectors have the fewest lanes: nothing beyond an operand's last element is read, whatever registers
 * held before. */
static void test_ends(void **state) {
    (void)state;
    enum { LEAST = 33, ENDS = 7 };
    static const char *const dtypes[] = {"bool", "u8", "i16", "bf16", "i32", "f32", "i64"};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char text[2048];
        int at = snprintf(text, sizeof text, "kernel ends(x: f64[3, 40] arg, y: f64[%d, 3, 40] arg", ENDS);
        for (int n = 0; n < ENDS; n++)
            at += snprintf(text + at, sizeof text - (size_t)at, ", c%d: %s[3, %d] arg", n, dtypes[i], LEAST + n);
        at += snprintf(text + at, sizeof text - (size_t)at, ")\nphase tasks=3 task=p {\n");
        for (int n = 0; n < ENDS; n++)
            at += snprintf(text + at, sizeof text - (size_t)at,
                           "  for i in 0..%d vec { y[%d, p, i] = x[p, i]*cast.f64(c%d[p, i]) }\n", LEAST + n, n, n);
        snprintf(text + at, sizeof text - (size_t)at, "}\n");
        kernel_check(text, NULL);
    }
}

/* Without fma a sum overwrites one of its operands: the one before, and each row copies what is broadcast once. */
static void test_sums_in_place(void **state) {
    (void)state;
    const char *text =
        "kernel gemm(x: f32[60, 256] arg, w: f32[3, 256, 8] arg, D: f32[60, 24] arg, C: f32[6, 8] reg)\n"
        "phase tasks=3 task=p {\n"
        "  for r in 0..10 {\n"
        "    for i in 0..6 unroll { for j in 0..8 vec { C[i, j] = 0:f32 } }\n"
        "    for k in 0..256 {\n"
        "      for i in 0..6 unroll { for j in 0..8 vec { C[i, j] = C[i, j] + x[i + r*6, k]*w[p, k, j] } }\n"
        "    }\n"
        "    for i in 0..6 unroll { for j in 0..8 vec { D[i + r*6, p*8 + j] = C[i, j] } }\n"
        "  }\n"
        "}\n";
    kernel_check(text, NULL);
    assert_in_range(kernel_copies(text), 0, 6);
}

/* A loop around a register tile that computes four iterations at a time: the code spills no accumulator, also where the tile fills the registers,
 * and the last iterations, fewer than four, are computed, too; so where the number of iterations varies and the position follows from it, as in
 * parts of a long sum. The values are those of the interpreter. */
static void test_steps(void **state) {
    (void)state;
    static const int tiles[][2] = {{6, 16}, {4, 24}, {1, 56}, {13, 8}, {8, 8}, {3, 8}, {1, 8}, {2, 16}},
                     lengths[] = {7, 8, 64, 23, 221};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        for (size_t l = 0; l < 2 * sizeof lengths / sizeof *lengths; l++) {
            const int rows = tiles[t][0], columns = tiles[t][1], k = lengths[l / 2];
            char text[1024], head[64];
            snprintf(head, sizeof head, l % 2 ? "for step in 0 .. %d - p { let k = step + p" : "for k in 0..%d {", k);
            snprintf(text, sizeof text,
                     "kernel gemm(x: f32[%d, %d] arg, w: f32[2, %d, %d] arg, D: f32[%d, %d] arg, C: f32[%d, %d] reg)\n"
                     "phase tasks=2 task=p {\n"
                     "  for i in 0..%d unroll { for j in 0..%d vec { C[i, j] = 0:f32 } }\n"
                     "  %s for i in 0..%d unroll { for j in 0..%d vec {\n"
                     "    C[i, j] = fma(x[i, k], w[p, k, j], C[i, j])\n"
                     "  } } }\n"
                     "  for i in 0..%d unroll { for j in 0..%d vec { D[i, p*%d + j] = C[i, j] } }\n"
                     "}\n",
                     rows, k, k, columns, rows, 2 * columns, rows, columns, rows, columns, head, rows, columns, rows,
                     columns, columns);
            kernel_check_fill(text, NULL, FILL_SMALL);
            const int spills = kernel_spills(text, 32);
            if (spills > 0) fail_msg("%dx%d, %d steps: %d spills", rows, columns, k, spills);
        }
}

static void test_reductions(void **state) {
    (void)state;
    kernel_check("kernel lanes(x: f32[5, 100] arg, y: f32[5] arg, m: f32[1] reg)\n"
                 "phase tasks=5 task=p {\n"
                 "  m[0] = -inf:f32\n"
                 "  for i in 0..100 vec { m[0] = max(m[0], x[p, i]) }\n"
                 "  y[p] = m[0]\n"
                 "}\n",
                 NULL);
    kernel_check("kernel partial(x: i32[7, 100] arg, y: i32[7] arg, z: i32[7] arg, m: i32[2] reg)\n"
                 "phase tasks=7 task=p {\n"
                 "  m[0] = 0:i32\n"
                 "  m[1] = 2147483647:i32\n"
                 "  for k in 0..7 {\n"
                 "    for i in 0..16 vec { if (k*16 + i < 100) {\n"
                 "      m[0] = x[p, k*16 + i] + m[0]\n"
                 "      m[1] = min(m[1], x[p, k*16 + i])\n"
                 "    } }\n"
                 "  }\n"
                 "  y[p] = m[0]\n"
                 "  z[p] = m[1]\n"
                 "}\n",
                 NULL);
    kernel_check("kernel partials(x: f32[6, 96] arg, y: f32[6] arg, s: f32[16] reg, t: f32[1] reg)\n"
                 "phase tasks=6 task=p {\n"
                 "  for l in 0..16 vec { s[l] = 0:f32 }\n"
                 "  for k in 0..6 { for l in 0..16 vec { s[l] = s[l] + x[p, k*16 + l] } }\n"
                 "  for l in 0..8 vec { s[l] = s[l] + s[l + 8] }\n"
                 "  for l in 0..4 vec { s[l] = s[l] + s[l + 4] }\n"
                 "  t[0] = 0:f32\n"
                 "  for l in 0..4 unroll { t[0] = t[0] + s[l] }\n"
                 "  y[p] = t[0]\n"
                 "}\n",
                 NULL);
    kernel_check("kernel argmax(x: f32[5, 33] arg, y: i32[5] arg, m: f32[1] reg, n: i32[1] reg)\n"
                 "phase tasks=5 task=p {\n"
                 "  m[0] = -inf:f32\n"
                 "  n[0] = 0:i32\n"
                 "  for i in 0..33 {\n"
                 "    n[0] = select(m[0] < x[p, i], cast.i32(i), n[0])\n"
                 "    m[0] = select(m[0] < x[p, i], x[p, i], m[0])\n"
                 "  }\n"
                 "  y[p] = n[0]\n"
                 "}\n",
                 NULL);
}

/* Places of one buffer that only turn out to differ. */
static void test_reductions_side_by_side(void **state) {
    (void)state;
    kernel_check("kernel pairs(x: f32[3, 100] arg, y: f32[3, 4] arg, m: f32[4] reg)\n"
                 "phase tasks=3 task=p {\n"
                 "  for u in 0..2 unroll { m[u] = 0:f32 m[u + 2] = 1:f32 }\n"
                 "  for u in 0..2 unroll { for i in 0..50 vec {\n"
                 "    m[u] = max(m[u], x[p, u*50 + i])\n"
                 "    m[u + 2] = min(m[u + 2], x[p, u*50 + i])\n"
                 "  } }\n"
                 "  for u in 0..4 unroll { y[p, u] = m[u] }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel shared(x: f32[3, 100] arg, y: f32[3] arg, m: f32[1] reg)\n"
                 "phase tasks=3 task=p {\n"
                 "  m[0] = 0:f32\n"
                 "  for i in 0..50 vec {\n"
                 "    m[0] = max(m[0], x[p, i])\n"
                 "    m[0] = max(m[0], x[p, 50 + i])\n"
                 "  }\n"
                 "  y[p] = m[0]\n"
                 "}\n",
                 NULL);
}

static void test_softmax(void **state) {
    (void)state;
    kernel_check("kernel rows(x: f32[9, 37] arg, y: f32[9, 37] arg, r: f32[37] reg, m: f32[1] reg, s: f32[1] reg)\n"
                 "phase tasks=9 task=p {\n"
                 "  m[0] = -inf:f32\n"
                 "  for j in 0..37 vec { m[0] = max(m[0], x[p, j]) }\n"
                 "  for j in 0..37 vec { r[j] = (x[p, j] - m[0])*(x[p, j] - m[0]) }\n"
                 "  s[0] = 0:f32\n"
                 "  for j in 0..37 unroll { s[0] = s[0] + r[j] }\n"
                 "  for j in 0..37 vec { y[p, j] = r[j]/s[0] }\n"
                 "}\n",
                 NULL);
}

static void test_branches(void **state) {
    (void)state;
    kernel_check("kernel nested(x: f32[40] arg, f: i32[40] arg, y: f32[40] arg, a: f32[2] reg)\n"
                 "phase tasks=40 task=p {\n"
                 "  a[0] = x[p]\n"
                 "  a[1] = 1:f32\n"
                 "  if (f[p] < 3:i32) {\n"
                 "    a[0] = a[0]*2:f32\n"
                 "    if (f[p] < 1:i32) { a[1] = a[0] + 7:f32 } else { a[0] = a[0] - 1:f32 }\n"
                 "  } else {\n"
                 "    if (p < 20) { a[1] = 5:f32 }\n"
                 "  }\n"
                 "  y[p] = a[0]*a[1]\n"
                 "}\n",
                 NULL);
    kernel_check("kernel lanes(x: f32[48] arg, f: i32[48] arg, y: f32[48] arg, a: f32[16] reg)\n"
                 "phase tasks=3 task=p {\n"
                 "  for i in 0..16 vec {\n"
                 "    a[i] = x[p*16 + i]\n"
                 "    if (f[p*16 + i] < 3:i32) {\n"
                 "      a[i] = a[i]*2:f32\n"
                 "      if (f[p*16 + i] < 1:i32) { y[p*16 + i] = 5:f32 } else { a[i] = a[i] - 1:f32 }\n"
                 "    } else {\n"
                 "      if (0:f32 < x[p*16 + i]) { a[i] = x[p] }\n"
                 "    }\n"
                 "  }\n"
                 "  for i in 0..16 vec { y[p*16 + i] = a[i] + y[p*16 + i] }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel loops(x: f32[48] arg, f: i32[48] arg, y: f32[48] arg, a: f32[16] reg)\n"
                 "phase tasks=3 task=p {\n"
                 "  for i in 0..16 vec {\n"
                 "    a[i] = 0:f32\n"
                 "    if (f[p*16 + i] < 3:i32) {\n"
                 "      for k in 0..5 { a[i] = a[i] + x[p*16 + i]*x[k] }\n"
                 "    }\n"
                 "    y[p*16 + i] = a[i]\n"
                 "  }\n"
                 "}\n",
                 NULL);
}

static void test_loops(void **state) {
    (void)state;
    kernel_check(
        "kernel balanced(x: f32[45, 9] arg, w: f32[9, 24] arg, D: f32[45, 24] arg, C: f32[7, 24] reg)\n"
        "phase tasks=7 task=p {\n"
        "  let b = p*6 + min(p, 3)\n"
        "  if (p < 3) {\n"
        "    for i in 0..7 unroll { for j in 0..24 vec { C[i, j] = 0:f32 } }\n"
        "    for k in 0..9 { for i in 0..7 unroll { for j in 0..24 vec { C[i, j] = C[i, j] + x[b + i, k]*w[k, j] } } }\n"
        "    for i in 0..7 unroll { for j in 0..24 vec { D[b + i, j] = C[i, j] } }\n"
        "  } else {\n"
        "    for i in 0..6 unroll { for j in 0..24 vec { C[i, j] = 0:f32 } }\n"
        "    for k in 0..9 { for i in 0..6 unroll { for j in 0..24 vec { C[i, j] = C[i, j] + x[b + i, k]*w[k, j] } } }\n"
        "    for i in 0..6 unroll { for j in 0..24 vec { D[b + i, j] = C[i, j] } }\n"
        "  }\n"
        "}\n",
        NULL);
    kernel_check("kernel triangle(x: f32[20, 20] arg, y: f32[20, 8] arg, a: f32[8] reg)\n"
                 "phase tasks=20 task=p {\n"
                 "  for j in 0..8 vec { a[j] = 0:f32 }\n"
                 "  for k in 0..p { for j in 0..8 vec { a[j] = a[j] + x[p, k]*x[k, j] } }\n"
                 "  for j in 0..8 vec { y[p, j] = a[j] }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel swap(x: f32[10] arg, y: f32[2] arg, a: f32[2] reg, t: f32[1] reg)\n"
                 "phase tasks=1 task=p {\n"
                 "  a[0] = 1:f32\n"
                 "  a[1] = 2:f32\n"
                 "  for k in 0..7 {\n"
                 "    t[0] = a[0]\n"
                 "    a[0] = a[1]\n"
                 "    a[1] = t[0] + x[k]\n"
                 "  }\n"
                 "  y[0] = a[0]\n"
                 "  y[1] = a[1]\n"
                 "}\n",
                 NULL);
    kernel_check("kernel memory(x: f32[10] arg, y: f32[10] arg, z: f32[10] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for k in 0..9 {\n"
                 "    z[k] = x[0] + y[k]\n"
                 "    y[k + 1] = y[k] + x[k]\n"
                 "    z[k + 1] = y[k + 1] + z[0]\n"
                 "  }\n"
                 "}\n",
                 NULL);
    kernel_check("kernel vecinner(x: f32[6, 40] arg, w: f32[6] arg, y: f32[40] arg, a: f32[40] reg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for i in 0..40 vec {\n"
                 "    a[i] = 0:f32\n"
                 "    for k in 0..6 { a[i] = a[i] + x[k, i]*w[k] }\n"
                 "    y[i] = a[i]\n"
                 "  }\n"
                 "}\n",
                 NULL);
}

static void test_scratch(void **state) {
    (void)state;
    kernel_check(
        "kernel scratch(x: f32[6, 40] arg, y: f32[6, 40] arg, a: f32[40] stack, b: f32[40] local, c: f32[6, 40] workspace)\n"
        "phase tasks=6 task=p {\n"
        "  for i in 0..40 vec { a[i] = x[p, i]*2:f32 }\n"
        "  for i in 0..40 vec { b[i] = a[39 - i] + 1:f32 }\n"
        "  for i in 0..40 { c[p, i] = b[i]*a[i] }\n"
        "}\n"
        "phase tasks=40 task=q {\n"
        "  for i in 0..6 vec { y[i, q] = c[5 - i, q] }\n"
        "}\n",
        NULL);
}

static void test_strides(void **state) {
    (void)state;
    for (int stride = -3; stride <= 6; stride++) {
        char text[512];
        int length = stride < 0 ? 1 - stride * 36 : 1 + stride * 36;
        snprintf(text, sizeof text,
                 "kernel stride(x: f32[%d] arg, h: i8[%d] arg, y: f32[37] arg, z: i8[37] arg, o: f32[%d] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for i in 0..37 vec { y[i] = x[%d + i*%d] }\n"
                 "  for i in 0..37 vec { z[i] = h[%d + i*%d] }\n"
                 "  for i in 0..%d vec { o[%d + i*%d] = x[i] }\n"
                 "}\n",
                 length, length, length, stride < 0 ? -stride * 36 : 0, stride, stride < 0 ? -stride * 36 : 0, stride,
                 stride == 0 ? 1 : 37, stride < 0 ? -stride * 36 : 0, stride);
        if (stride != 0) kernel_check(text, NULL);
    }
}

/* Lanes that are masked by what is known, and by data, read every `stride`-th byte or i16: none of them leaves its mask, and bytes do not
 * become scalars one by one. */
static void test_masked_strides(void **state) {
    (void)state;
    for (int stride = 2; stride <= 4; stride++) {
        char text[1024];
        const int length = stride * 56;
        snprintf(
            text, sizeof text,
            "kernel masked(h: u8[%d] arg, g: i16[%d] arg, c: i32[56] arg, y: u8[56] arg, z: i16[56] arg, w: u8[56] arg)\n"
            "phase tasks=1 task=p {\n"
            "  for i in 0..56 vec { if (0 < i) { y[i] = max(y[i], h[i*%d - 1]) } }\n"
            "  for i in 0..56 vec { if (0 < i) { z[i] = max(z[i], g[i*%d - 1]) } }\n"
            "  for i in 0..56 vec { if (c[i] < 0:i32) { w[i] = max(w[i], h[i*%d]) } }\n"
            "}\n",
            length, length, stride, stride, stride);
        kernel_check(text, NULL);
    }
    assert_true(kernel_spills("kernel pool(x: u8[24, 112] arg, y: u8[8, 56] arg, s: u8[8, 56] reg)\n"
                              "phase tasks=1 task=p {\n"
                              "  for i in 0..8 unroll { for j in 0..56 vec { s[i, j] = 0:u8 } }\n"
                              "  for i in 0..8 unroll {\n"
                              "    for j in 0..56 vec { if (0 < j) { s[i, j] = max(s[i, j], x[i*3, j*2 - 1]) } }\n"
                              "  }\n"
                              "  for i in 0..8 unroll { for j in 0..56 vec { y[i, j] = s[i, j] } }\n"
                              "}\n",
                              64) <= 0);
}

static void test_layouts(void **state) {
    (void)state;
    kernel_check("kernel panels(x: f32[3, 5, 48] arg, y: f32[5, 130] arg)\n"
                 "phase tasks=5 task=p {\n"
                 "  for j in 0..130 vec { y[p, j] = x[j/48, p, j%48] }\n"
                 "}\n",
                 NULL);
    kernel_check(
        "kernel tiles(x: f32[9, 5, 16] arg, y: f32[5, 144] arg)\n"
        "phase tasks=9 task=p {\n"
        "  for i in 0..5 { for j in 0..16 vec { y[i, p*16 + j] = x[(p*16 + j)/16, i, (p*16 + j)%16]*2:f32 } }\n"
        "}\n",
        NULL);
    kernel_check("kernel odd(x: f32[100] arg, y: f32[100] arg, z: i32[100] arg)\n"
                 "phase tasks=1 task=p {\n"
                 "  for k in 0..10 { for j in 0..10 vec { y[k*10 + j] = x[(k*7 + j*3)%100/3] } }\n"
                 "  for j in 0..100 vec { z[j] = cast.i32((j + 5)/7*3 + j%11) }\n"
                 "}\n",
                 NULL);
}

/* Axes fused into one loop are addressed as one: no quotient or remainder is computed, for two axes or more, with and without a dimension
 * between them or a guard. */
static void test_fused_axes(void **state) {
    (void)state;
    static const char *const shapes[] = {"6720", "105, 64", "15, 7, 64", "5, 3, 7, 64", "5, 3, 1, 7, 64"};
    static const char *const places[] = {"j", "j/64, j%64", "j/448, j/64%7, j%64", "j/1344, j/448%3, j/64%7, j%64",
                                         "j/1344, j/448%3, 0, j/64%7, j%64"};
    static const char *const values[] = {"x[s, %s]", "select(s < 2, x[s, %s where s < 2 else 0], 0:f32)"};
    char text[1024], value[256];
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        int flat = 0;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            snprintf(value, sizeof value, values[v], places[i]);
            snprintf(
                text, sizeof text,
                "kernel fused(x: f32[4, %s] arg, y: f32[%s, 4] arg)\n"
                "phase tasks=1 task=p {\n"
                "  for o in 0..105 { for s in 0..4 unroll { for i in 0..64 vec { let j = o*64 + i y[%s, s] = %s } } }\n"
                "}\n",
                shapes[i], shapes[i], places[i], value);
            kernel_check(text, NULL);
            const int length = kernel_length(text);
            if (i == 0) flat = length;
            assert_true(length <= flat);
        }
    }
}

static void test_gather(void **state) {
    (void)state;
    kernel_check_fill("kernel rows(t: f32[7, 20] arg, n: i64[9] arg, y: f32[9, 20] arg)\n"
                      "phase tasks=9 task=p {\n"
                      "  let r = cast.index(n[p])\n"
                      "  for j in 0..20 vec { y[p, j] = t[min(max(r, 0), 6), j] }\n"
                      "}\n",
                      NULL, FILL_SPECIAL);
    kernel_check_fill(
        "kernel elements(t: f32[7] arg, u: i8[7] arg, n: i32[33] arg, y: f32[33] arg, z: i8[33] arg)\n"
        "phase tasks=1 task=p {\n"
        "  for j in 0..33 vec { y[j] = t[min(max(cast.index(n[j]), 0), 6)] }\n"
        "  for j in 0..33 vec { if (n[j] < 7:i32) { if (-1:i32 < n[j]) { z[j] = u[cast.index(n[j])] } } }\n"
        "}\n",
        NULL, FILL_SPECIAL);
}

static void test_hints(void **state) {
    (void)state;
    kernel_check("kernel nt(x: f32[4, 256] arg align 64, y: f32[4, 256] arg align 64)\n"
                 "phase tasks=4 task=p {\n"
                 "  for i in 0..256 vec { nt y[p, i] = x[p, i]*3:f32 }\n"
                 "  prefetch.2 x[p + 1, 0]\n"
                 "  prefetch.1 x[p + 1000000, 0]\n"
                 "}\n",
                 NULL);
}

static void test_phases(void **state) {
    (void)state;
    const int64_t params[] = {5, 3};
    kernel_check("kernel fold(x: f32[n, 40] arg, s: f32[40] arg, t: f32[40] workspace) params(n: 1..64, m: 1..8)\n"
                 "phase tasks=1 task=p { for j in 0..40 vec { t[j] = 0:f32 } }\n"
                 "phase tasks=5 repeat=n iteration=k repeat_phases=1 task=p {\n"
                 "  for j in 0..8 vec { t[p*8 + j] = t[p*8 + j]*0.5:f32 + x[k, p*8 + j] }\n"
                 "}\n"
                 "phase tasks=m task=p { for j in 0..10 vec { s[p*10 + j] = t[39 - p*10 - j] } }\n",
                 params);
    const int64_t scalars[] = {7, 0x40200000, 1};
    kernel_check("kernel scalars(x: f32[7] arg, y: f32[7] arg) params(n: 1..64, s: f32, f: bool)\n"
                 "phase tasks=n task=p { y[p] = select(f, x[p]*s, 0:f32) }\n",
                 scalars);
    kernel_check("kernel zero(y: f32[6, 40] arg, a: f32[40] stack zero, b: f32[40] local zero, c: f32[40] reg zero)\n"
                 "phase tasks=6 task=p {\n"
                 "  for j in 0..40 vec { y[p, j] = a[j] + b[j] + c[j] + 1:f32 }\n"
                 "  for j in 0..40 vec { a[j] = 3:f32 }\n"
                 "  for j in 0..40 vec { b[j] = 3:f32 }\n"
                 "  for j in 0..40 vec { c[j] = 3:f32 }\n"
                 "}\n",
                 NULL);
    const int64_t empty[] = {0};
    kernel_check("kernel empty(x: f32[n] arg, y: f32[n] arg) params(n: 0..64)\n"
                 "phase tasks=n task=p { y[p] = x[p] }\n"
                 "phase tasks=1 task=p { for i in 0..n { y[i] = y[i]*x[0] } }\n",
                 empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_masked_tail),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_sums_in_place),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_reductions_side_by_side),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_masked_strides),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_fused_axes),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_phases),
    };
    return cmocka_run_group_tests_name("cpu emitter", tests, kernel_check_open, kernel_check_close);
}
