/* Products of few rows by matrices that exceed L2, of random sizes and types, as on a processor that prefetches few streams (Zen 3; where it has
 * AVX2, DLC_CPU gives its rates), with small caches: constants are read in several streams, operands given at run time in blocks of rows or
 * copied in groups of panels. Against sums in double precision. */
#include "api/support.h"
#include "random.h"
#include "test/share.h"

enum { FEW_ROWS = 5, MOST_ROWS = 40, MOST_COLUMNS = 330, MOST_STEPS = 700 };

typedef struct product {
    int64_t m, n, k;
    bool bytes, given;
} product;

typedef struct operands {
    float x[MOST_ROWS * MOST_STEPS], w[MOST_STEPS * MOST_COLUMNS], y[MOST_ROWS * MOST_COLUMNS];
    uint8_t x_bytes[MOST_ROWS * MOST_STEPS];
    int8_t w_bytes[MOST_STEPS * MOST_COLUMNS];
    int32_t y_sums[MOST_ROWS * MOST_COLUMNS];
} operands;

static int64_t between(uint64_t *state, int64_t low, int64_t high) {
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

static product draw(uint64_t *state) {
    product p = {.n = between(state, 9, MOST_COLUMNS), .k = between(state, 20, MOST_STEPS)};
    p.m = between(state, 1, between(state, 0, 2) ? FEW_ROWS : MOST_ROWS);
    p.bytes = between(state, 0, 2) == 0;
    p.given = between(state, 0, 1);
    if (between(state, 0, 1)) p.n = p.n / 8 * 8;
    return p;
}

static void fill_operands(operands *o, const product *p, uint64_t *state) {
    for (int64_t i = 0; i < p->m * p->k; i++) {
        o->x_bytes[i] = (uint8_t)between(state, 0, 255);
        o->x[i] = (float)between(state, -1000, 1000) / 1000;
    }
    for (int64_t i = 0; i < p->k * p->n; i++) {
        o->w_bytes[i] = (int8_t)between(state, -128, 127);
        o->w[i] = (float)between(state, -1000, 1000) / 1000;
    }
}

static void expect_sums(const operands *o, const product *p) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, all = 0;
            for (int64_t k = 0; k < p->k; k++) {
                const int64_t a = i * p->k + k, b = k * p->n + j;
                const double term =
                    p->bytes ? (double)o->x_bytes[a] * o->w_bytes[b] : (double)o->x[a] * (double)o->w[b];
                sum += term;
                all += fabs(term);
            }
            const double got = p->bytes ? o->y_sums[i * p->n + j] : (double)o->y[i * p->n + j];
            if (fabs(got - sum) > (p->bytes ? 0 : all * (double)p->k * 0x1p-24))
                failed("%lld x %lld x %lld%s%s: [%lld, %lld] is %.9g, not %.9g", (long long)p->m, (long long)p->n,
                       (long long)p->k, p->bytes ? " of bytes" : "", p->given ? ", given" : "", (long long)i,
                       (long long)j, got, sum);
        }
}

static void check_product(dlc_context *context, const product *p, operands *o) {
    dlc_graph *graph;
    OK(context, dlc_graph_create(context, &graph));
    dlc_matmul_options sums = DLC_MATMUL_OPTIONS_INIT;
    if (p->bytes) sums.result = DLC_MATMUL_RESULT_I32;
    const dlc_value x = dlc_input(graph, "x", p->bytes ? DLC_U8 : DLC_F32, 2, DIMS(SIZE(p->m), SIZE(p->k)));
    const dlc_dtype type = p->bytes ? DLC_I8 : DLC_F32;
    void *bytes = p->bytes ? (void *)o->w_bytes : o->w;
    const dlc_value w = p->given ? dlc_input(graph, "w", type, 2, DIMS(SIZE(p->k), SIZE(p->n)))
                                 : dlc_constant(graph, type, 2, SHAPE(p->k, p->n), bytes);
    OK(context, dlc_output(graph, "y", dlc_matmul_with(x, w, &sums)));
    dlc_program *program = compile(context, graph);
    tensor in, weights, out;
    make_tensor(&weights, type, bytes, 2, SHAPE(p->k, p->n));
    make_tensor(&in, p->bytes ? DLC_U8 : DLC_F32, p->bytes ? (void *)o->x_bytes : o->x, 2, SHAPE(p->m, p->k));
    make_tensor(&out, p->bytes ? DLC_I32 : DLC_F32, p->bytes ? (void *)o->y_sums : o->y, 2, SHAPE(p->m, p->n));
    dlc_output_slot slot = {.tensor = &out.dl};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&in.dl, &weights.dl}, p->given ? 2 : 1, &slot, 1));
    dlc_program_destroy(program);
    expect_sums(o, p);
}

static void test_few_rows(void **state) {
    (void)state;
    static operands o;
    const char *seed = getenv("DLC_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 10) : 1;
    use_rates_of_zen3("2,8,64");
    dlc_context *context = open_context(NULL, NULL);
    for (int i = 0; i < (test_is_short() ? 20 : 120); i++) {
        const product p = draw(&random);
        fill_operands(&o, &p, &random);
        check_product(context, &p, &o);
    }
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_few_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
