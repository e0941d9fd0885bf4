/* Decompositions of matrices that samples of single operators cannot have: positive definite ones, and larger ones; by what is
 * left of a = l l^T, t x = b, a = q r, a v = v diag(w), computed in the same graph. */
#include "api/support.h"

static dlc_value identity(dlc_graph *graph, dlc_dtype dtype, int64_t n) {
    const dlc_dim *square = DIMS(SIZE(n), SIZE(n));
    dlc_value i = dlc_iota(graph, DLC_I32, 2, square, 0), j = dlc_iota(graph, DLC_I32, 2, square, 1);
    return dlc_cast(dlc_eq(i, j), dtype);
}

static dlc_value turned(dlc_value x) {
    return dlc_transpose(x, 3, SHAPE(0, 2, 1));
}

static void put_most(dlc_context *context, dlc_graph *graph, const char *name, dlc_value difference) {
    OK(context, dlc_output(graph, name, dlc_cast(dlc_reduce_max(dlc_abs(difference), 0, NULL, false), DLC_F64)));
}

enum { RESULTS = 7 };

/* Residuals of all decompositions of a [batch, n, n] = x x^T + n and of x [batch, m, n]. */
static dlc_program *make(dlc_context *context, dlc_dtype dtype, int64_t batch, int64_t m, int64_t n) {
    dlc_graph *graph;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &graph));
    dlc_value x = dlc_input(graph, "x", dtype, 3, DIMS(SIZE(batch), SIZE(m), SIZE(n)));
    dlc_value one = identity(graph, dtype, n);
    dlc_value a = dlc_add(dlc_matmul(turned(x), x), dlc_mul(one, dlc_scalar(graph, dtype, (double)n)));
    dlc_value l = dlc_cholesky(a, false), qr[2], eigen[2];
    put_most(context, graph, "cholesky", dlc_sub(dlc_matmul(l, turned(l)), a));
    put_most(context, graph, "upper", dlc_sub(dlc_cholesky(a, true), turned(l)));
    dlc_triangular_solve_options solve = DLC_TRIANGULAR_SOLVE_OPTIONS_INIT;
    solve.left = false, solve.transpose = true; /* y l^T = x */
    put_most(context, graph, "solve", dlc_sub(dlc_matmul(dlc_triangular_solve(l, x, &solve), turned(l)), x));
    dlc_qr(x, qr);
    put_most(context, graph, "qr", dlc_sub(dlc_matmul(qr[0], qr[1]), x));
    put_most(context, graph, "q", dlc_sub(dlc_matmul(turned(qr[0]), qr[0]), identity(graph, dtype, m < n ? m : n)));
    dlc_eigh(a, eigen);
    dlc_value w = dlc_reshape(eigen[0], 3, DIMS(SIZE(batch), SIZE(1), SIZE(n)));
    put_most(context, graph, "eigh", dlc_sub(dlc_matmul(a, eigen[1]), dlc_mul(eigen[1], w)));
    put_most(context, graph, "v", dlc_sub(dlc_matmul(turned(eigen[1]), eigen[1]), one));
    OK(context, dlc_compile(context, graph, NULL, &program));
    dlc_graph_destroy(graph);
    return program;
}

static void check_size(dlc_context *context, dlc_dtype dtype, int64_t batch, int64_t m, int64_t n) {
    double results[RESULTS], *x = malloc((size_t)(batch * m * n) * sizeof *x);
    const double unit = dtype == DLC_F32 ? 0x1p-23 : 0x1p-52;
    uint32_t seed = 1;
    assert_non_null(x);
    for (int64_t i = 0; i < batch * m * n; i++) {
        double value = (double)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
        if (dtype == DLC_F32)
            ((float *)(void *)x)[i] = (float)value;
        else
            x[i] = value;
    }
    dlc_program *program = make(context, dtype, batch, m, n);
    int64_t shape[3] = {batch, m, n};
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 3, .shape = shape, .dtype = {kDLFloat, 0, 1}};
    in.dtype.bits = dtype == DLC_F32 ? 32 : 64;
    DLTensor out[RESULTS];
    dlc_output_slot slots[RESULTS] = {0};
    for (int i = 0; i < RESULTS; i++) {
        out[i] = (DLTensor){.data = &results[i], .device = {kDLCPU, 0}, .dtype = {kDLFloat, 64, 1}};
        slots[i].tensor = &out[i];
    }
    const DLTensor *inputs[] = {&in};
    OK(context, dlc_run(program, NULL, inputs, 1, slots, RESULTS));
    const double size = (double)(m + n) * unit;
    for (int i = 0; i < RESULTS; i++)
        if (!(results[i] <= 16 * size * (double)(m + n)))
            fail_msg("%lld x %lld, residual %d is %g", (long long)m, (long long)n, i, results[i]);
    dlc_program_destroy(program);
    free(x);
}

static void test_residuals(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{3, 1, 1},   {3, 2, 3},  {3, 5, 5},  {3, 9, 4}, {3, 17, 16},
                                       {3, 20, 33}, {37, 5, 5}, {37, 9, 4}, {64, 4, 6}}; /* many: by lanes */
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_size(context, DLC_F32, sizes[i][0], sizes[i][1], sizes[i][2]);
            check_size(context, DLC_F64, sizes[i][0], sizes[i][1], sizes[i][2]);
        }
        dlc_context_destroy(context);
    }
}

/* A number that is none, wherever it stands in the triangle that is read, makes NaN of all of its matrix and of no other. */
static void test_eigh_of_what_is_not_finite(void **state) {
    enum { N = 4, MATRICES = N * (N + 1) / 2 + 2 };
    (void)state;
    for (int round = 0; round < 2 * TARGETS; round++) {
        const int kind = round % 2;
        float a[MATRICES][N][N], w[MATRICES][N], v[MATRICES][N][N];
        for (int b = 0; b < MATRICES; b++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++) a[b][i][j] = i == j ? (float)(N - i) : 0.25f;
        int matrix = 1;
        for (int i = 0; i < N; i++)
            for (int j = 0; j <= i; j++) a[matrix++][i][j] = kind ? -INFINITY : NAN;
        a[matrix][0][1] = NAN; /* not read */
        dlc_context *context = open_context(all_targets[round / 2], NULL);
        dlc_graph *graph;
        dlc_program *program;
        if (!context) continue;
        OK(context, dlc_graph_create(context, &graph));
        dlc_value x = dlc_input(graph, "a", DLC_F32, 3, DIMS(SIZE(MATRICES), SIZE(N), SIZE(N))), eigen[2];
        dlc_eigh(x, eigen);
        OK(context, dlc_output(graph, "w", eigen[0]));
        OK(context, dlc_output(graph, "v", eigen[1]));
        OK(context, dlc_compile(context, graph, NULL, &program));
        tensor in, out[2];
        make_tensor(&in, DLC_F32, a, 3, SHAPE(MATRICES, N, N));
        make_tensor(&out[0], DLC_F32, w, 2, SHAPE(MATRICES, N));
        make_tensor(&out[1], DLC_F32, v, 3, SHAPE(MATRICES, N, N));
        dlc_output_slot slots[2] = {{.tensor = &out[0].dl}, {.tensor = &out[1].dl}};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){&in.dl}, 1, slots, 2));
        for (int b = 0; b < MATRICES; b++) {
            bool finite = b == 0 || b == matrix;
            for (int i = 0; i < N; i++) {
                assert_true(finite ? w[b][i] == w[0][i] : isnan(w[b][i]));
                for (int j = 0; j < N; j++) assert_true(finite ? v[b][i][j] == v[0][i][j] : isnan(v[b][i][j]));
            }
        }
        assert_true(w[0][0] < w[0][1] && w[0][1] < w[0][2] && w[0][2] < w[0][3]);
        dlc_program_destroy(program);
        dlc_graph_destroy(graph);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_residuals),
                                       cmocka_unit_test(test_eigh_of_what_is_not_finite)};
    return cmocka_run_group_tests_name("api/matrix", tests, NULL, NULL);
}
