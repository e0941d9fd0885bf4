/* Contractions whose operands no cache holds: rules cut their reductions in blocks, walk and fetch their operands in ways that smaller ones
 * do not see. Of small integers, so that sums are exact in f32 and the expected ones are of integers. */
#include "api/support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROWS_CHECKED = 2, ONLY_FIRST = 1 };
#else
enum { ROWS_CHECKED = 1 << 20, ONLY_FIRST = 0 };
#endif

typedef struct product {
    int m, k, n;
    /* w is [n, k] */
    bool constant, transposed;
} product;

static int x_at(int64_t i) {
    return (int)(i * 7 % 11 - 5);
}
static int w_at(int64_t i) {
    return (int)((i * 13 + i / 97) % 7 - 3);
}

/* The first rows and the last three. */
static void check_rows(const product *p, const float *y) {
    int *expected = malloc(sizeof *expected * (size_t)p->n);
    assert_non_null(expected);
    for (int i = 0; i < p->m; i += i == 1 && p->m > 4 ? p->m - 4 : 1) {
        if (i >= ROWS_CHECKED) break;
        for (int j = 0; j < p->n; j++) expected[j] = 0;
        for (int k = 0; k < p->k; k++) {
            const int x = x_at((int64_t)i * p->k + k);
            for (int j = 0; j < p->n; j++)
                expected[j] += x * w_at(p->transposed ? (int64_t)j * p->k + k : (int64_t)k * p->n + j);
        }
        for (int j = 0; j < p->n; j++) {
            const float e = (float)(expected[j] > 0 ? expected[j] : 0);
            if (y[(int64_t)i * p->n + j] != e)
                fail_msg("%d x %d x %d: element %d, %d is %g, expected %g", p->m, p->k, p->n, i, j,
                         y[(int64_t)i * p->n + j], e);
        }
    }
    free(expected);
}

static void run_product(const product *p, int threads) {
    const size_t xs = (size_t)p->m * (size_t)p->k, ws = (size_t)p->k * (size_t)p->n, ys = (size_t)p->m * (size_t)p->n;
    float *x = malloc(xs * sizeof *x), *w = malloc(ws * sizeof *w), *y = malloc(ys * sizeof *y);
    assert_true(x && w && y);
    for (size_t i = 0; i < xs; i++) x[i] = (float)x_at((int64_t)i);
    for (size_t i = 0; i < ws; i++) w[i] = (float)w_at((int64_t)i);
    memset(y, 0xff, ys * sizeof *y);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    dlc_context *context = open_context("cpu", &options);
    if (!context) skip();
    const int64_t shape[2] = {p->transposed ? p->n : p->k, p->transposed ? p->k : p->n};
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(p->m), SIZE(p->k)));
    dlc_value vw = p->constant ? dlc_constant_borrow(g, DLC_F32, 2, shape, w)
                               : dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(shape[0]), SIZE(shape[1])));
    if (p->transposed) vw = dlc_transpose(vw, 2, SHAPE(1, 0));
    dlc_output(g, "y", dlc_relu(dlc_matmul(vx, vw)));
    dlc_program *program = compile(context, g);
    tensor tx, tw, ty;
    const DLTensor *inputs[] = {F32(&tx, x, p->m, p->k), &make_tensor(&tw, DLC_F32, w, 2, shape)->dl};
    dlc_output_slot slot = {F32(&ty, y, p->m, p->n), NULL};
    OK(context, dlc_run(program, NULL, inputs, p->constant ? 1 : 2, &slot, 1));
    check_rows(p, y);
    assert_int_equal(statistics(context).interpreted_regions, 0);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    free(x);
    free(w);
    free(y);
}

static void test_operand_of_memory(void **state) {
    (void)state;
    static const product products[] = {
        {8, 4096, 4608, false, false}, /* the operand lies in memory: blocks of rows, all columns of each */
        {100, 4096, 4608, false, false}, {7, 2000, 3001, false, false}, /* in the last cache */
        {130, 1000, 3000, false, false}, {40, 3000, 2100, false, true}, {1, 5000, 3000, false, false},
    };
    for (size_t i = 0; i < (ONLY_FIRST ? 1 : sizeof products / sizeof *products); i++)
        run_product(&products[i], i % 2 ? 2 : 0);
}

static void test_long_reductions(void **state) {
    (void)state;
    static const product products[] = {
        {64, 8192, 512, true, false}, /* packed weights of which a panel fills the second-level cache: cut in blocks */
        {50, 20000, 300, true, false},
        {33, 16384, 640, true, true},
        {4, 30000, 256, true, false},
    };
    for (size_t i = 0; i < (ONLY_FIRST ? 1 : sizeof products / sizeof *products); i++)
        run_product(&products[i], i % 2 ? 2 : 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operand_of_memory),
        cmocka_unit_test(test_long_reductions),
    };
    return cmocka_run_group_tests_name("large operands", tests, NULL, NULL);
}
