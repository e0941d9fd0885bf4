/* Collective statements: their maps against the tables of the PTX manual, kernels written by hand against plain sums in f64, and
 * kernels that are wrong in one place each. */
#include "tir/arith.h"
#include "tir/interpret.h"
#include "units.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

/* ---- maps: element e of lane 4g + t, by the formulas of "Matrix fragments for mma.m16n8k16" and of ldmatrix */

static void check_point(const tir_unit *unit, int place, int lane, int e, int v0, int v1, int v2) {
    int point[3];
    tir_fragment_point(unit, place, lane, e, point);
    if (point[0] != v0 || point[1] != v1 || point[2] != v2)
        fail_msg("%s place %d lane %d element %d: (%d, %d, %d), not (%d, %d, %d)", unit->name, place, lane, e, point[0],
                 point[1], point[2], v0, v1, v2);
    assert_int_equal(tir_fragment_lane(unit, place, point), lane);
    assert_int_equal(tir_fragment_register(unit, place, point), e);
}

static void test_maps(void **state) {
    (void)state;
    const tir_unit *mma = tir_unit_find(test_units, "mma.m16n8k16.bf16");
    assert_non_null(mma);
    assert_null(tir_unit_find(test_units, "mma.m16n8k16"));
    for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 4; e++) check_point(mma, 0, lane, e, g + 8 * (e >> 1), 2 * t + (e & 1), 0);
        for (int e = 0; e < 8; e++)
            check_point(mma, 1, lane, e, g + 8 * (e >> 1 & 1), 0, 2 * t + (e & 1) + 8 * (e >> 2));
        for (int e = 0; e < 4; e++) check_point(mma, 2, lane, e, 0, g, 2 * t + (e & 1) + 8 * (e >> 1));
        for (int e = 0; e < 8; e++) {
            check_point(tir_unit_find(test_units, "ldmatrix.x4"), 0, lane, e, e / 2, g, 2 * t + e % 2);
            check_point(tir_unit_find(test_units, "ldmatrix.x4.trans"), 0, lane, e, e / 2, 2 * t + e % 2, g);
        }
    }
    assert_int_equal(tir_fragment_registers(mma, 0), 4);
    assert_int_equal(tir_fragment_registers(mma, 1), 8);
    assert_int_equal(tir_fragment_registers(mma, 2), 4);
}

/* ---- kernels */

#define HEAD(type)                                                                                                  \
    "kernel k(x: " type "[16, 16] arg, w: " type "[16, 8] arg, D: f32[16, 8] arg, C: f32[8, 4, 2, 2] reg, A: " type \
    "[8, 4, 2, 2, 2] reg, B: " type "[8, 4, 2, 2] reg, xs: " type "[16, 24] shared, ws: " type                      \
    "[16, 8] shared)\nphase tasks=1 task=p {\n"
#define LANES(body) "for l in 0..8 thread { for t in 0..4 thread { " body " } }\n"
#define H(body) "for h in 0..2 unroll { " body " }\n"
#define R(body) "for r in 0..2 unroll { " body " }\n"
#define E(body) "for e in 0..2 unroll { " body " }\n"
#define CLEAR LANES(H(E("C[l, t, h, e] = 0:f32")))
#define LOAD_A LANES(R(H(E("A[l, t, r, h, e] = x[h*8 + l, r*8 + t*2 + e]"))))
#define LOAD_B LANES(R(E("B[l, t, r, e] = w[r*8 + t*2 + e, l]")))
#define MMA \
    "mma.m16n8k16.bf16 (i, j, k) C[i%8, j/2, i/8, j%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]\n"
#define STORE LANES(H(E("D[h*8 + l, t*2 + e] = C[l, t, h, e]")))
#define TO_SHARED                                                                                              \
    LANES("for i in 0..2 unroll { for c in 0..16 unroll { if (l < 8) { xs[i*8 + l, c] = x[i*8 + l, c] } } }\n" \
          "for i in 0..4 unroll { ws[i*4 + t, l] = w[i*4 + t, l] }")                                           \
    "barrier\n"
#define LD_A "ldmatrix.x4 (q, r, c) A[r, c/2, q/2, q%2, c%2] = xs[q%2*8 + r, q/2*8 + c]\n"
#define LD_B "ldmatrix.x2.trans (q, r, c) B[c, r/2, q, r%2] = ws[q*8 + r, c]\n"
#define XS_BY_ROWS                                                                                                                                 \
    "for l in 0..8 thread { for t in 0..4 thread { for i in 0..2 unroll { for c in 0..4 unroll { xs[i*8 + l, c*4 + t] = x[i*8 + l, c*4 + t] } }\n" \
    "for i in 0..4 unroll { ws[i*4 + t, l] = w[i*4 + t, l] } } }\n"

typedef struct collective_case {
    /* NULL: right */
    const char *name, *kernel, *message;
    dlc_dtype dtype;
} collective_case;

static const collective_case cases[] = {
    {"mma", HEAD("bf16") CLEAR LOAD_A LOAD_B MMA STORE "}\n", NULL, DLC_BF16},
    {"ldmatrix", HEAD("bf16") CLEAR XS_BY_ROWS "barrier\n" LD_A LD_B MMA STORE "}\n", NULL, DLC_BF16},
    {"ldmatrix without a barrier", HEAD("bf16") CLEAR XS_BY_ROWS LD_A LD_B MMA STORE "}\n", "race", DLC_BF16},
    {"nothing in A", HEAD("bf16") CLEAR LOAD_B MMA STORE "}\n", "", DLC_BF16},
    {"nothing in B", HEAD("bf16") CLEAR LOAD_A LANES("B[l, t, 0, 0] = w[t*2, l]") MMA STORE "}\n", "poison is stored",
     DLC_BF16},
    {"A by other lanes",
     HEAD("bf16") CLEAR "for t in 0..4 thread { for l in 0..8 thread { " R(
         H(E("A[l, t, r, h, e] = x[h*8 + l, r*8 + t*2 + e]"))) "} }\n" LOAD_B MMA STORE "}\n",
     "L15: mma.m16n8k16.bf16: an element of A that lane 1 gives is held by lane 8", DLC_BF16},
    {"C with rows and columns exchanged",
     HEAD("bf16") CLEAR LOAD_A LOAD_B
     "mma.m16n8k16.bf16 (i, j, k) C[j, i%8/2, i/8, i%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]\n" STORE
     "}\n",
     "L15: mma.m16n8k16.bf16", DLC_BF16},
    {"two elements in one register",
     HEAD("bf16") CLEAR LOAD_A LOAD_B
     "mma.m16n8k16.bf16 (i, j, k) C[i%8, j/2, 0, j%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]\n" STORE
     "}\n",
     "two elements of C lie in one register", DLC_BF16},
    {"f16 for bf16", HEAD("f16") CLEAR LOAD_A LOAD_B MMA STORE "}\n", "element type of A is another one", DLC_F16},
    {"inside of single threads", HEAD("bf16") CLEAR LOAD_A LOAD_B LANES(MMA) STORE "}\n", "L15: mma.m16n8k16.bf16",
     DLC_BF16},
    {"operands in shared memory",
     HEAD("bf16") CLEAR XS_BY_ROWS
     "barrier\n" LOAD_B "mma.m16n8k16.bf16 (i, j, k) C[i%8, j/2, i/8, j%2] += xs[i, k] * B[j, k%8/2, k/8, k%2]\n" STORE
     "}\n",
     "xs is not in registers", DLC_BF16},
    {"rows of ldmatrix that are not aligned",
     HEAD("bf16") CLEAR XS_BY_ROWS
     "barrier\n"
     "ldmatrix.x4 (q, r, c) A[r, c/2, q/2, q%2, c%2] = xs[q%2*8 + r, q/2*4 + c]\n" LOAD_B MMA STORE "}\n",
     "not aligned to 16 bytes", DLC_BF16},
    {"columns of ldmatrix",
     HEAD("bf16") CLEAR XS_BY_ROWS
     "barrier\n"
     "ldmatrix.x4 (q, r, c) A[r, c/2, q/2, q%2, c%2] = xs[q%2*8 + c, q/2*8 + r]\n" LOAD_B MMA STORE "}\n",
     "rows of xs are not contiguous", DLC_BF16},
    {"ldmatrix from global memory",
     HEAD("bf16") CLEAR "ldmatrix.x4 (q, r, c) A[r, c/2, q/2, q%2, c%2] = x[q%2*8 + r, q/2*8 + c]\n" LOAD_B MMA STORE
                        "}\n",
     "x is not in shared memory", DLC_BF16},
    {"ldmatrix into registers of others",
     HEAD("bf16") CLEAR LOAD_A XS_BY_ROWS
     "barrier\n"
     "ldmatrix.x4.trans (q, r, c) A[r, c/2, q/2, q%2, c%2] = xs[q%2*8 + r, q/2*8 + c]\n" LOAD_B MMA STORE "}\n",
     "L15: ldmatrix.x4.trans", DLC_BF16},
    {"f16",
     HEAD("f16") CLEAR LOAD_A LOAD_B
     "mma.m16n8k16.f16 (i, j, k) C[i%8, j/2, i/8, j%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]\n" STORE
     "}\n",
     NULL, DLC_F16},
};

static void check_sums(const collective_case *c, void *const *arguments) {
    const char *x = arguments[0], *w = arguments[1];
    const float *d = arguments[2];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = 0;
            for (int k = 0; k < 16; k++)
                sum += lib_element_get_f64(c->dtype, x + 2 * (i * 16 + k)) *
                       lib_element_get_f64(c->dtype, w + 2 * (k * 8 + j));
            if (d[i * 8 + j] != (float)sum) fail_msg("D[%d, %d] is %.9g, not %.9g", i, j, (double)d[i * 8 + j], sum);
        }
}

static void test_case(void **state) {
    const collective_case *c = *state;
    lib_scope scope;
    lib_arena arena;
    lib_error error = {0};
    void *arguments[3] = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_text first, second;
        lib_lexer_init(&lexer, &arena, "kernel", c->kernel, strlen(c->kernel));
        tir_kernel *kernel = tir_kernel_parse(&arena, &lexer, test_units);
        lib_text_init(&first, &arena);
        tir_kernel_print(&first, kernel);
        lib_lexer_init(&lexer, &arena, "kernel", first.data, first.length);
        kernel = tir_kernel_parse(&arena, &lexer, test_units);
        lib_text_init(&second, &arena);
        tir_kernel_print(&second, kernel);
        assert_string_equal(first.data, second.data);
        tir_kernel_verify(&scope, kernel, NULL, NULL);
        const int count[] = {256, 128, 128};
        for (int a = 0; a < 3; a++) {
            arguments[a] = lib_arena_take_aligned(&arena, (size_t)count[a] * 4, TIR_BUFFER_ALIGNMENT);
            for (int n = 0; n < count[a] && a < 2; n++)
                lib_element_set_f64(c->dtype, (char *)arguments[a] + 2 * n, (double)((n * 37 + a * 11) % 61 - 30) / 16);
        }
        for (int reverse = 0; reverse < 2 && error.status == DLC_OK; reverse++)
            tir_interpret(kernel, arguments, NULL, &(tir_interpret_options){.check = true, .reverse_lanes = reverse},
                          &lib_libc_allocator, &error);
        if (!c->message && error.status == DLC_OK) check_sums(c, arguments);
    }
    lib_arena_free(&arena);
    if (scope.error.status != DLC_OK) error = scope.error;
    if (!c->message) {
        assert_string_equal(error.status == DLC_OK ? "" : error.message, "");
    } else {
        assert_int_equal(error.status, DLC_INTERNAL);
        if (!strstr(error.message, c->message)) fail_msg("%s: %s", c->name, error.message);
    }
}

int main(void) {
    enum { COUNT = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[COUNT + 1] = {cmocka_unit_test(test_maps)};
    for (int i = 0; i < COUNT; i++)
        tests[i + 1] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests_name("collective", tests, NULL, NULL);
}
