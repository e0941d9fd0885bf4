/* Factorisations by blocks: LU, QR, singular values, and what is made of them, of matrices that are larger than a block: by residuals, summed
 * here, of ordinary, graded, repeated, rank-deficient and singular matrices, tall and wide, with sizes as numbers and as symbols. */
#include "api/support.h"
#include "test/share.h"

/* Ordinary numbers; falling by rows and columns; of rank 3; each second row as the one before it. */
typedef enum kind { ORDINARY, GRADED, DEFICIENT, SAME_ROWS, ZEROS, UNIT, KINDS } kind;

static void fill_matrix(double *a, int64_t m, int64_t n, kind k) {
    uint32_t seed = 5;
    double *left = malloc((size_t)(3 * (m + n) + 1) * sizeof *left), *right = left + 3 * m;
    CHECK(left);
    for (int64_t i = 0; i < 3 * (m + n); i++) left[i] = noise(&seed);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double *y = &a[i * n + j];
            *y = noise(&seed);
            if (k == GRADED) *y *= pow(10, -8 * (double)(i + j) / (double)(m + n));
            if (k == DEFICIENT)
                *y = left[3 * i] * right[3 * j] + left[3 * i + 1] * right[3 * j + 1] +
                     left[3 * i + 2] * right[3 * j + 2];
            if (k == SAME_ROWS && i % 2) *y = a[(i - 1) * n + j];
            if (k == ZEROS) *y = 0;
            if (k == UNIT) *y = i == j;
        }
    free(left);
}

static const char *const kind_names[KINDS] = {"ordinary", "graded", "deficient", "same rows", "zeros", "unit"};

/* of a [m, n], k the smaller */
typedef struct results {
    int64_t m, n, k;
    kind what;
    double *a, *l, *u, *q, *r, *left, *s, *right;
    int32_t *order;
} results;

/* The largest of |x y - z|, x [m, k], y [k, n]; row i of z stands in place order[i] (NULL: i). */
static double difference(const double *x, const double *y, const double *z, const int32_t *order, int64_t m, int64_t k,
                         int64_t n) {
    double most = 0, *line = malloc((size_t)(n + 1) * sizeof *line);
    CHECK(line);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) line[j] = 0;
        for (int64_t t = 0; t < k; t++)
            for (int64_t j = 0; j < n; j++) line[j] += x[i * k + t] * y[t * n + j];
        const int64_t row = order ? order[i] : i;
        for (int64_t j = 0; j < n; j++) {
            const double d = fabs(line[j] - z[row * n + j]);
            most = d <= most ? most : d; /* NaN stays */
        }
    }
    free(line);
    return most;
}

/* x [m, k] with orthonormal columns: what x^T x lacks of 1. */
static double orthogonality(const double *x, int64_t m, int64_t k) {
    double *turned = malloc((size_t)(m * k + k * k + 1) * sizeof *turned), *unit = turned + m * k;
    CHECK(turned);
    for (int64_t i = 0; i < m * k; i++) turned[i % k * m + i / k] = x[i];
    for (int64_t i = 0; i < k * k; i++) unit[i] = i / k == i % k;
    const double most = difference(turned, x, unit, NULL, k, m, k);
    free(turned);
    return most;
}

static void at_most(const results *r, const char *what, double value, double bound) {
    if (!(value <= bound))
        failed("%lld x %lld, %s: %s is %g, expected %g at most", (long long)r->m, (long long)r->n, kind_names[r->what],
               what, value, bound);
}

static void check_lu(const results *r, double bound) {
    bool *seen = calloc((size_t)r->m + 1, sizeof *seen);
    CHECK(seen);
    for (int64_t i = 0; i < r->m; i++) {
        CHECK(r->order[i] >= 0 && r->order[i] < r->m && !seen[r->order[i]]);
        seen[r->order[i]] = true;
        for (int64_t j = 0; j < r->k; j++) {
            const double x = r->l[i * r->k + j];
            CHECK(j > i ? x == 0 : j == i ? x == 1 : fabs(x) <= 1);
        }
    }
    for (int64_t i = 0; i < r->k * r->n; i++) CHECK(i / r->n <= i % r->n || r->u[i] == 0);
    at_most(r, "l u - a[p]", difference(r->l, r->u, r->a, r->order, r->m, r->k, r->n), bound);
    free(seen);
}

static void check_qr(const results *r, double unit, double bound) {
    at_most(r, "q r - a", difference(r->q, r->r, r->a, NULL, r->m, r->k, r->n), bound);
    at_most(r, "q^T q - 1", orthogonality(r->q, r->m, r->k), unit);
    for (int64_t i = 0; i < r->k * r->n; i++) CHECK(i / r->n <= i % r->n || r->r[i] == 0);
    for (int64_t i = 0; i < r->k; i++) CHECK(r->r[i * r->n + i] >= 0);
}

static void check_svd(const results *r, double unit, double bound) {
    double *scaled = malloc((size_t)(r->m * r->k + r->n * r->k + 1) * sizeof *scaled), *v = scaled + r->m * r->k;
    CHECK(scaled);
    for (int64_t i = 0; i < r->m * r->k; i++) scaled[i] = r->left[i] * r->s[i % r->k];
    for (int64_t i = 0; i < r->n * r->k; i++) v[i] = r->right[i % r->k * r->n + i / r->k];
    at_most(r, "u s v - a", difference(scaled, r->right, r->a, NULL, r->m, r->k, r->n), bound);
    at_most(r, "u^T u - 1", orthogonality(r->left, r->m, r->k), unit);
    at_most(r, "v v^T - 1", orthogonality(v, r->n, r->k), unit);
    for (int64_t i = 0; i < r->k; i++) CHECK(r->s[i] >= 0 && (i == 0 || r->s[i] <= r->s[i - 1]));
    free(scaled);
}

static dlc_program *make_program(dlc_context *context, dlc_dtype dtype, const char *dims) {
    char text[512];
    dlc_graph *graph;
    snprintf(
        text, sizeof text,
        "graph { input a: %s[%s]\n l, u, p = lu(a)\n q, r = qr(a)\n x, s, y = svd(a)\n output l output u output p output q "
        "output r output x output s output y }",
        dtype == DLC_F32 ? "f32" : "f64", dims);
    OK(context, dlc_graph_parse(context, text, strlen(text), &graph));
    return compile(context, graph);
}

/* A batch's numbers: a, l, u, q, r, left, s, right, each [batch, its size], with what the library writes in f32. */
typedef struct batch {
    int64_t count, m, n, k;
    double *numbers[8];
    float *narrow[8];
    int32_t *order;
} batch;

static void size_of_part(const batch *b, int part, int64_t *rows, int64_t *columns) {
    *rows = part == 2 || part == 4 || part == 7 ? b->k : part == 6 ? 1 : b->m;
    *columns = part == 0 || part == 2 || part == 4 || part == 7 ? b->n : b->k;
}

static batch new_batch(int64_t count, int64_t m, int64_t n) {
    batch b = {.count = count, .m = m, .n = n, .k = m < n ? m : n};
    for (int i = 0; i < 8; i++) {
        int64_t rows, columns;
        size_of_part(&b, i, &rows, &columns);
        b.numbers[i] = calloc((size_t)(count * rows * columns + 1), sizeof **b.numbers);
        b.narrow[i] = calloc((size_t)(count * rows * columns + 1), sizeof **b.narrow);
        CHECK(b.numbers[i] && b.narrow[i]);
    }
    b.order = calloc((size_t)(count * m + 1), sizeof *b.order);
    CHECK(b.order);
    return b;
}

static void free_batch(batch *b) {
    for (int i = 0; i < 8; i++) free(b->numbers[i]), free(b->narrow[i]);
    free(b->order);
}

/* lead: what stands before m and n in the operand's shape, their product being the batch's count. */
static void run_batch(dlc_context *context, dlc_program *program, dlc_dtype dtype, batch *b, int leads,
                      const int64_t *lead) {
    static const int part_of[8] = {1, 2, 0, 3, 4, 5, 6, 7}; /* of output o: 2 is the order */
    const bool f32 = dtype == DLC_F32;
    int64_t shape[DLC_MAX_RANK];
    tensor in, out[8];
    dlc_output_slot slots[8] = {0};
    for (int d = 0; d < leads; d++) shape[d] = lead[d];
    shape[leads] = b->m, shape[leads + 1] = b->n;
    make_tensor(&in, dtype, f32 ? (void *)b->narrow[0] : (void *)b->numbers[0], leads + 2, shape);
    for (int o = 0; o < 8; o++) {
        const int i = part_of[o];
        size_of_part(b, i, &shape[leads], &shape[leads + 1]);
        if (i == 6) shape[leads] = b->k;
        if (o == 2)
            shape[leads] = b->m, make_tensor(&out[o], DLC_I32, b->order, leads + 1, shape);
        else
            make_tensor(&out[o], dtype, f32 ? (void *)b->narrow[i] : (void *)b->numbers[i], leads + (i == 6 ? 1 : 2),
                        shape);
        slots[o].tensor = &out[o].dl;
    }
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&in.dl}, 1, slots, 8));
    for (int i = 1; i < 8; i++) {
        size_of_part(b, i, &shape[0], &shape[1]);
        for (int64_t t = 0; f32 && t < b->count * shape[0] * shape[1]; t++) b->numbers[i][t] = (double)b->narrow[i][t];
    }
}

/* Matrices of kinds `what` and on. */
static void check_batch(dlc_context *context, dlc_program *program, dlc_dtype dtype, int leads, const int64_t *lead,
                        int64_t m, int64_t n, kind what) {
    int64_t count = 1;
    for (int d = 0; d < leads; d++) count *= lead[d];
    batch b = new_batch(count, m, n);
    for (int64_t t = 0; t < count; t++)
        fill_matrix(b.numbers[0] + t * m * n, m, n, (kind)(((int64_t)what + t) % KINDS));
    for (int64_t i = 0; dtype == DLC_F32 && i < count * m * n; i++) {
        b.narrow[0][i] = (float)b.numbers[0][i];
        b.numbers[0][i] = (double)b.narrow[0][i];
    }
    run_batch(context, program, dtype, &b, leads, lead);
    for (int64_t t = 0; t < count; t++) {
        double *part[8], size = 0;
        for (int i = 0; i < 8; i++) {
            int64_t rows, columns;
            size_of_part(&b, i, &rows, &columns);
            part[i] = b.numbers[i] + t * rows * columns;
        }
        for (int64_t i = 0; i < m * n; i++) size = fmax(size, fabs(part[0][i]));
        const results r = {m,
                           n,
                           b.k,
                           (kind)(((int64_t)what + t) % KINDS),
                           part[0],
                           part[1],
                           part[2],
                           part[3],
                           part[4],
                           part[5],
                           part[6],
                           part[7],
                           b.order + t * m};
        const double unit = 8 * (double)(m + n) * (dtype == DLC_F32 ? 0x1p-23 : 0x1p-52);
        const double bound = unit * size * sqrt((double)(m + n));
        check_lu(&r, bound);
        check_qr(&r, unit, bound);
        check_svd(&r, unit, bound);
    }
    free_batch(&b);
}

static void check_program(dlc_context *context, dlc_program *program, dlc_dtype dtype, int64_t m, int64_t n,
                          kind what) {
    check_batch(context, program, dtype, 0, NULL, m, n, what);
}

/* All kinds of each size. Few: small ones and one larger matrix, since the interpreter takes about a second for each matrix of more than a
 * block. With DLC_TEST_LONG=1 there are more of both. */
static void check_sizes(dlc_context *context, dlc_program *program, dlc_dtype dtype, bool few) {
    static const int64_t sizes[][2] = {{1, 1},   {3, 2},   {2, 5},     {0, 4},    {3, 0},      {33, 40},
                                       {70, 41}, {41, 70}, {150, 150}, {300, 20}, {1000, 1000}};
    enum { SIZES = sizeof sizes / sizeof *sizes, SMALL = 5, MIDDLE = 8 };
    const char *text = getenv("DLC_TEST_LONG");
    const bool is_long = text && *text == '1';
    const int all = few ? (is_long ? MIDDLE : SMALL) : is_long ? SIZES : SIZES - 1;
    for (int i = 0; i < all; i++)
        for (kind k = 0; k < KINDS; k++)
            if (test_takes(i + (int)k, 3)) check_program(context, program, dtype, sizes[i][0], sizes[i][1], k);
    if (few && !is_long && dtype == DLC_F64)
        check_program(context, program, dtype, sizes[SMALL][0], sizes[SMALL][1], DEFICIENT);
}

/* A program of fixed sizes; with a share, of every second kind. */
static void check_fixed(dlc_context *context, dlc_dtype dtype, int64_t m, int64_t n, int first) {
    char dims[32];
    snprintf(dims, sizeof dims, "%d, %d", (int)m, (int)n);
    dlc_program *program = make_program(context, dtype, dims);
    for (kind k = 0; k < KINDS; k++)
        if (test_takes((int)k + first, 2)) check_program(context, program, dtype, m, n, k);
    dlc_program_destroy(program);
}

static void test_kinds(void **state) {
    (void)state;
    for (int round = 0; round < 2 * TARGETS; round++) {
        const bool few = strcmp(all_targets[round / 2], "cpu") != 0;
        const dlc_dtype dtype = round % 2 ? DLC_F64 : DLC_F32;
        dlc_context *context = open_context(all_targets[round / 2], NULL);
        if (!context) continue;
        dlc_program *program = make_program(context, dtype, "m, n");
        check_sizes(context, program, dtype, few);
        dlc_program_destroy(program);
        if (!few && (!test_is_short() || dtype == DLC_F64)) check_fixed(context, dtype, 40, 35, round);
        if (!few && (!test_is_short() || dtype == DLC_F32)) check_fixed(context, dtype, 33, 70, round);
        dlc_context_destroy(context);
    }
}

/* One program, all kinds side by side; sizes that become 0 and come back. */
static void test_batches(void **state) {
    static const int64_t sizes[][4] = {{2, 3, 5, 4}, {1, 6, 4, 7}, {0, 3, 5, 5}, {2, 3, 0, 4}, {2, 3, 4, 0},
                                       {2, 3, 1, 1}, {6, 1, 1, 9}, {2, 3, 5, 4}, {1, 0, 0, 0}, {3, 2, 65, 34}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = make_program(context, DLC_F32, "b, c, m, n");
        for (int i = 0; i < SIZES - (strcmp(all_targets[t], "cpu") != 0); i++)
            if (test_takes(i, 2))
                check_batch(context, program, DLC_F32, 2, sizes[i], sizes[i][2], sizes[i][3], ORDINARY);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Matrices have all ranks but the last, for which every row says so. */
static void test_ranks(void **state) {
    static const char *const rows[] = {"y = cholesky(a)",   "y = triangular_solve(a, a)",
                                       "y = det(a)",        "q, y = qr(a)",
                                       "w, y = eigh(a)",    "l, u, y = lu(a)",
                                       "y = solve(a, a)",   "y = inverse(a)",
                                       "s, y = slogdet(a)", "u, s, y = svd(a)",
                                       "y = pinv(a)",       "y = lstsq(a, a)",
                                       "y = expm(a)"};
    static const int64_t lead[DLC_MAX_RANK - 3] = {1, 2, 1, 1, 1, 1, 1, 1, 3};
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = make_program(context, DLC_F64, "1, 2, 1, 1, 1, 1, 1, 1, 3, 5, 4");
    check_batch(context, program, DLC_F64, DLC_MAX_RANK - 3, lead, 5, 4, ORDINARY);
    dlc_program_destroy(program);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        dlc_graph *graph;
        snprintf(text, sizeof text, "graph { input a: f64[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3]\n %s\n output y }",
                 rows[i]);
        CHECK(dlc_graph_parse(context, text, strlen(text), &graph) == DLC_INVALID_ARGUMENT);
        CHECK(strstr(dlc_error_message(context), "rank 12, expected 11 at most for matrices") != NULL);
    }
    dlc_context_destroy(context);
}

/* a x = b, a a^-1 = 1, exp(a) exp(-a) = 1, log |det|, of matrices without much condition; f64, any n. */
static void check_solutions(dlc_context *context, dlc_program *program, int64_t n) {
    const size_t count = (size_t)(n * n);
    double *a = malloc((6 * count + 2) * sizeof *a), *b = a + count, *x = b + count, *inverse = x + count,
           *one = inverse + count, *product = one + count, log_det[1], known = 0;
    CHECK(a);
    fill_matrix(a, n, n, ORDINARY);
    fill_matrix(b, n, n, GRADED);
    for (int64_t i = 0; i < n * n; i++) one[i] = i / n == i % n, a[i] = a[i] / sqrt((double)n) + 3 * one[i];
    tensor in[2], out[4];
    make_tensor(&in[0], DLC_F64, a, 2, SHAPE(n, n)), make_tensor(&in[1], DLC_F64, b, 2, SHAPE(n, n));
    make_tensor(&out[0], DLC_F64, x, 2, SHAPE(n, n)), make_tensor(&out[1], DLC_F64, inverse, 2, SHAPE(n, n));
    make_tensor(&out[2], DLC_F64, product, 2, SHAPE(n, n)), make_tensor(&out[3], DLC_F64, log_det, 0, NULL);
    dlc_output_slot slots[4] = {
        {.tensor = &out[0].dl}, {.tensor = &out[1].dl}, {.tensor = &out[2].dl}, {.tensor = &out[3].dl}};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&in[0].dl, &in[1].dl}, 2, slots, 4));
    const double bound = 64 * (double)(n + 1) * 0x1p-52;
    CHECK(difference(a, x, b, NULL, n, n, n) <= bound);
    CHECK(difference(a, inverse, one, NULL, n, n, n) <= bound);
    CHECK(difference(product, one, one, NULL, n, n, n) <= 64 * bound); /* exp(4) exp(4): cancels */
    for (int64_t t = 0; t < n; t++) {                                  /* diagonally heavy: no pivots needed */
        known += log(fabs(a[t * n + t]));
        for (int64_t i = t + 1; i < n; i++)
            for (int64_t j = n - 1; j >= t; j--) a[i * n + j] -= a[i * n + t] / a[t * n + t] * a[t * n + j];
    }
    CHECK(fabs(known - log_det[0]) <= bound * (1 + fabs(known)));
    free(a);
}

static void test_solutions(void **state) {
    static const char text[] =
        "graph { input a: f64[n, n] input b: f64[n, n]\n x = solve(a, b) y = inverse(a) e = expm(a) m = neg(a) f = expm(m)\n"
        " p = matmul(e, f) s, d = slogdet(a) output x output y output p output d }";
    static const int64_t sizes[] = {0, 1, 2, 31, 64, 65, 200};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        dlc_graph *graph;
        if (!context) continue;
        OK(context, dlc_graph_parse(context, text, sizeof text - 1, &graph));
        dlc_program *program = compile(context, graph);
        const int most = strcmp(all_targets[t], "cpu") != 0 ? 3 : 7;
        for (int i = 0; i < most; i++) check_solutions(context, program, sizes[i]);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_batches),
                                       cmocka_unit_test(test_ranks), cmocka_unit_test(test_solutions)};
    return cmocka_run_group_tests_name("api/factor", tests, NULL, NULL);
}
