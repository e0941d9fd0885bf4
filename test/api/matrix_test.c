/* Decompositions of matrices that samples of single operators cannot have: positive definite ones, and larger ones; by what is
 * left of a = l l^T, t x = b, a = q r, a v = v diag(w), computed in the same graph. */
#include "api/support.h"
#include "test/share.h"

static dlc_value identity(dlc_graph *graph, dlc_dtype dtype, int64_t n) {
    const dlc_dim *square = DIMS(SIZE(n), SIZE(n));
    dlc_value i = dlc_iota(graph, DLC_I32, 2, square, 0), j = dlc_iota(graph, DLC_I32, 2, square, 1);
    return dlc_cast(dlc_eq(i, j), dtype);
}

static dlc_value turned(dlc_value x) {
    return dlc_transpose(x, 3, SHAPE(0, 2, 1));
}

static void put_most(dlc_context *context, dlc_graph *graph, const char *name, dlc_value difference) {
    OK(context, dlc_output(graph, name, dlc_cast(dlc_reduce_max(dlc_abs(difference), 0, NULL), DLC_F64)));
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
    dlc_value l = dlc_cholesky(a), qr[2], eigen[2];
    put_most(context, graph, "cholesky", dlc_sub(dlc_matmul(l, turned(l)), a));
    put_most(
        context, graph, "upper",
        dlc_sub(dlc_cholesky_with(a, &(dlc_cholesky_options){sizeof(dlc_cholesky_options), .upper = true}), turned(l)));
    dlc_triangular_solve_options solve = DLC_TRIANGULAR_SOLVE_OPTIONS_INIT;
    solve.left = false, solve.transpose = true; /* y l^T = x */
    put_most(context, graph, "solve", dlc_sub(dlc_matmul(dlc_triangular_solve_with(l, x, &solve), turned(l)), x));
    dlc_qr(x, 2, qr);
    put_most(context, graph, "qr", dlc_sub(dlc_matmul(qr[0], qr[1]), x));
    put_most(context, graph, "q", dlc_sub(dlc_matmul(turned(qr[0]), qr[0]), identity(graph, dtype, m < n ? m : n)));
    dlc_eigh(a, 2, eigen);
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

/* Spectra that rotations are slow on: eigenvalue i of n. */
static double of_projection(int64_t i, int64_t n) {
    (void)n;
    return (double)(i % 2);
}
static double of_three(int64_t i, int64_t n) {
    (void)n;
    return (double)(i % 3);
}
static double of_signs(int64_t i, int64_t n) {
    return i < n / 2 ? -1 : 1;
}
static double of_block(int64_t i, int64_t n) {
    return i < n / 2 ? 0.5 : (double)i / (double)n;
}
static double graded(int64_t i, int64_t n) {
    return pow(10, -20 * (double)i / (double)n);
}
static double of_one(int64_t i, int64_t n) {
    (void)n;
    return i == 0;
}
static double of_zero(int64_t i, int64_t n) {
    (void)i, (void)n;
    return 0;
}
static double ordinary(int64_t i, int64_t n) {
    return cos(3 * (double)i / (double)n + (double)(i % 7));
}
typedef double (*spectrum)(int64_t i, int64_t n);
static const spectrum spectra[] = {of_projection, of_three, of_signs, of_block, graded, of_one, of_zero, ordinary};

/* a = h2 h1 diag(w) h1 h2 by reflections h = 1 - 2 u u^T, in long double; with `scaled`, rows and columns by falling powers of ten. */
static void make_matrix(double *a, int64_t n, spectrum w, bool scaled) {
    long double *m = calloc((size_t)(n * n), sizeof *m), *u = calloc((size_t)n, sizeof *u);
    uint32_t seed = 7;
    CHECK(m && u);
    for (int64_t i = 0; i < n; i++) m[i * n + i] = (long double)w(i, n);
    for (int turn = 0; turn < 4; turn++) { /* two reflections, each from both sides */
        long double length = 0;
        if (turn % 2 == 0)
            for (int64_t i = 0; i < n; i++) u[i] = (long double)noise(&seed);
        for (int64_t i = 0; i < n; i++) length += u[i] * u[i];
        for (int64_t k = 0; k < n; k++) {
            long double dot = 0;
            for (int64_t i = 0; i < n; i++) dot += u[i] * m[i * n + k];
            for (int64_t i = 0; i < n; i++) m[i * n + k] -= 2 * dot / length * u[i];
        }
        for (int64_t i = 0; turn % 2 == 0 && i < n; i++)
            for (int64_t k = 0; k < i; k++) {
                long double swap = m[i * n + k];
                m[i * n + k] = m[k * n + i], m[k * n + i] = swap;
            }
    }
    for (int64_t i = 0; i < n * n; i++)
        a[i] = (double)m[i] * (scaled ? pow(10, -6 * (double)(i / n + i % n) / (double)n) : 1);
    free(m);
    free(u);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What is left of a v = v w and v^T v = 1, largest, and how far w is from `known` (NULL: nobody knows), all by plain sums here. */
static void check_eigen(const double *a, const double *w, const double *v, const double *known, int64_t n,
                        double unit) {
    double residual = 0, orthogonal = 0, size = 0, wrong = 0;
    for (int64_t i = 0; i < n * n; i++) size = fmax(size, fabs(a[i]));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double product = 0, dot = 0;
            for (int64_t j = 0; j < n; j++) {
                product += a[(i > j ? i * n + j : j * n + i)] * v[j * n + k];
                dot += v[j * n + i] * v[j * n + k];
            }
            residual = fmax(residual, fabs(product - v[i * n + k] * w[k]));
            orthogonal = fmax(orthogonal, fabs(dot - (i == k)));
        }
    for (int64_t i = 0; i < n; i++) wrong = known ? fmax(wrong, fabs(w[i] - known[i])) : 0;
    const double bound = 8 * (double)n * unit; /* a number takes part in some ten rotations of each of n rounds */
    if (!(residual <= bound * size) || !(orthogonal <= bound) || !(wrong <= bound * fmax(size, 1)))
        failed("n = %lld: residual %g of %g, orthogonality %g, eigenvalues %g, bound %g", (long long)n, residual, size,
               orthogonal, wrong, bound);
}

static void check_spectrum(dlc_context *context, dlc_program *program, dlc_dtype dtype, int64_t n, spectrum of,
                           bool scaled) {
    const size_t count = (size_t)(n * n);
    double *a = malloc(3 * count * sizeof *a), *v = a + count, *w = malloc(2 * (size_t)n * sizeof *w), *known = w + n;
    void *raw = a + 2 * count;
    float *narrow = malloc((2 * count + (size_t)n) * sizeof *narrow);
    tensor ta, tw, tv;
    CHECK(a && w && narrow);
    make_matrix(a, n, of, scaled);
    for (int64_t i = 0; i < n; i++) known[i] = of(i, n);
    qsort(known, (size_t)n, sizeof *known, by_value);
    const bool f32 = dtype == DLC_F32;
    for (size_t i = 0; f32 && i < count; i++) narrow[i] = (float)a[i], a[i] = (double)narrow[i];
    memcpy(raw, a, count * sizeof *a);
    make_tensor(&ta, dtype, f32 ? (void *)narrow : raw, 2, SHAPE(n, n));
    make_tensor(&tw, dtype, f32 ? (void *)(narrow + count) : (void *)w, 1, SHAPE(n));
    make_tensor(&tv, dtype, f32 ? (void *)(narrow + count + n) : (void *)v, 2, SHAPE(n, n));
    dlc_output_slot slots[2] = {{.tensor = &tw.dl}, {.tensor = &tv.dl}};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&ta.dl}, 1, slots, 2));
    for (int64_t i = 0; f32 && i < n; i++) w[i] = (double)narrow[count + (size_t)i];
    for (size_t i = 0; f32 && i < count; i++) v[i] = (double)narrow[count + (size_t)n + i];
    check_eigen(a, w, v, scaled ? NULL : known, n, f32 ? 0x1p-23 : 0x1p-52);
    free(a);
    free(w);
    free(narrow);
}

/* Numbers of sweeps that do for ordinary matrices do not for these. */
static void test_eigh_converges(void **state) {
    const char *longer = getenv("DLC_TEST_LONG");
    (void)state;
    for (int round = 0; round < 2 * TARGETS; round++) {
        const char *target = all_targets[round / 2];
        const dlc_dtype dtype = round % 2 ? DLC_F64 : DLC_F32;
        dlc_context *context = open_context(target, NULL);
        dlc_graph *graph;
        if (!context) continue;
        OK(context, dlc_graph_create(context, &graph));
        dlc_value eigen[2];
        dlc_eigh(dlc_input(graph, "a", dtype, 2, DIMS(SYMBOL("n"), SYMBOL("n"))), 2, eigen);
        OK(context, dlc_output(graph, "w", eigen[0]));
        OK(context, dlc_output(graph, "v", eigen[1]));
        dlc_program *program = compile(context, graph);
        const int64_t sizes[] = {2, 3, 17, 24, 128, 1000};
        const int most = strcmp(target, "cpu") != 0 ? 3 : longer && *longer == '1' ? 6 : 5;
        for (int i = 0; i < most; i++)
            for (size_t s = 0; s < sizeof spectra / sizeof *spectra; s++)
                for (int scaled = 0; scaled < (sizes[i] < 1000 ? 2 : 1); scaled++)
                    if (test_takes(i + (int)s + scaled, 2))
                        check_spectrum(context, program, dtype, sizes[i], spectra[s], scaled);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A matrix's results do not depend on its neighbours, for which an iteration may take longer. */
static void test_eigh_of_many(void **state) {
    enum { N = 40 }; /* beyond what rotations do */
    static double a[2][N * N], w[2][N], v[2][N * N], first_w[N], first_v[N * N];
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        dlc_graph *graph;
        if (!context) continue;
        OK(context, dlc_graph_create(context, &graph));
        dlc_value eigen[2];
        dlc_eigh(dlc_input(graph, "a", DLC_F64, 3, DIMS(SYMBOL("b"), SIZE(N), SIZE(N))), 2, eigen);
        OK(context, dlc_output(graph, "w", eigen[0]));
        OK(context, dlc_output(graph, "v", eigen[1]));
        dlc_program *program = compile(context, graph);
        make_matrix(a[0], N, ordinary, false);
        tensor ta, tw, tv;
        for (int neighbour = 0; neighbour < 2; neighbour++) {
            make_matrix(a[1], N, neighbour ? of_three : ordinary, false);
            make_tensor(&ta, DLC_F64, a, 3, SHAPE(2, N, N));
            make_tensor(&tw, DLC_F64, w, 2, SHAPE(2, N));
            make_tensor(&tv, DLC_F64, v, 3, SHAPE(2, N, N));
            dlc_output_slot slots[2] = {{.tensor = &tw.dl}, {.tensor = &tv.dl}};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){&ta.dl}, 1, slots, 2));
            if (!neighbour) memcpy(first_w, w, sizeof first_w), memcpy(first_v, v, sizeof first_v);
        }
        for (int i = 0; i < N; i++) CHECK(w[0][i] == first_w[i]);
        for (int i = 0; i < N * N; i++) CHECK(v[0][i] == first_v[i]);
        dlc_program_destroy(program);
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
        dlc_eigh(x, 2, eigen);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_residuals), cmocka_unit_test(test_eigh_converges),
                                       cmocka_unit_test(test_eigh_of_many),
                                       cmocka_unit_test(test_eigh_of_what_is_not_finite)};
    return cmocka_run_group_tests_name("api/matrix", tests, NULL, NULL);
}
