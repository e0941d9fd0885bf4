/* Products whose columns are no whole vectors on processors without cheap masks (AVX2, SSE2), where whole vectors are computed and the lanes beyond
 * the last column are not stored: random sizes, types, constant and given weights, with a bias, a residual and relu behind them or without. Operands and results
 * end where memory does. Against sums in double precision; the same bits with four threads. Some schedules must have such vectors. */
#include "api/support.h"
#include "conformance/guarded.h"
#include "random.h"
#include "test/share.h"

enum { MOST_ROWS = 70, MOST_COLUMNS = 75, MOST_STEPS = 3000, TYPES = 4 };

typedef struct product {
    int64_t m, n, k;
    dlc_dtype dtype;
    bool constant, bias, residual, relu;
} product;

/* Operands and results, whose ends are those of memory; the same values in double precision. */
typedef struct operands {
    guarded x, w, residual, y;
    double exact_x[MOST_ROWS * MOST_STEPS], exact_w[MOST_STEPS * MOST_COLUMNS],
        exact_residual[MOST_ROWS * MOST_COLUMNS];
    double bias[MOST_COLUMNS];
} operands;

static int64_t between(uint64_t *state, int64_t low, int64_t high) {
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

static product draw(uint64_t *state) {
    static const dlc_dtype types[TYPES] = {DLC_F32, DLC_F64, DLC_I32, DLC_BF16};
    product p = {.m = between(state, 1, MOST_ROWS), .n = between(state, 2, between(state, 0, 1) ? 31 : MOST_COLUMNS)};
    p.k = between(state, 1, between(state, 0, 4) ? 100 : MOST_STEPS);
    p.dtype = types[between(state, 0, 3) ? 0 : between(state, 0, TYPES - 1)];
    p.constant = between(state, 0, 1), p.bias = between(state, 0, 1), p.residual = between(state, 0, 1);
    p.relu = between(state, 0, 1);
    return p;
}

static size_t size_of(dlc_dtype dtype) {
    return dtype == DLC_F64 ? sizeof(double) : dtype == DLC_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* Values that all types have exactly. */
static void store(dlc_dtype dtype, void *data, int64_t at, double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    switch (dtype) {
    case DLC_F64: ((double *)data)[at] = value; break;
    case DLC_I32: ((int32_t *)data)[at] = (int32_t)value; break;
    case DLC_BF16: ((uint16_t *)data)[at] = (uint16_t)(bits >> 16); break;
    default: ((float *)data)[at] = narrow; break;
    }
}

static double load(dlc_dtype dtype, const void *data, int64_t at) {
    float narrow;
    switch (dtype) {
    case DLC_F64: return ((const double *)data)[at];
    case DLC_I32: return ((const int32_t *)data)[at];
    case DLC_BF16: {
        const uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
        memcpy(&narrow, &bits, sizeof narrow);
        return narrow;
    }
    default: return ((const float *)data)[at];
    }
}

static void make_operand(dlc_dtype dtype, guarded *memory, double *exact, int64_t count, uint64_t *state) {
    assert_true(guarded_new(memory, (size_t)count * size_of(dtype), true));
    for (int64_t i = 0; i < count; i++) store(dtype, memory->data, i, exact[i] = (double)between(state, -64, 64));
}

static void fill_operands(const product *p, operands *o, uint64_t *state) {
    make_operand(p->dtype, &o->x, o->exact_x, p->m * p->k, state);
    make_operand(p->dtype, &o->w, o->exact_w, p->k * p->n, state);
    make_operand(p->dtype, &o->residual, o->exact_residual, p->m * p->n, state);
    for (int64_t j = 0; j < p->n; j++) o->bias[j] = (double)between(state, -64, 64);
    assert_true(guarded_new(&o->y, (size_t)(p->m * p->n) * size_of(p->dtype), true));
}

static void free_operands(operands *o) {
    guarded_free(&o->x);
    guarded_free(&o->w);
    guarded_free(&o->residual);
    guarded_free(&o->y);
}

static dlc_graph *graph_of(dlc_context *context, const product *p, const operands *o) {
    dlc_graph *graph;
    double row[MOST_COLUMNS];
    for (int64_t j = 0; j < p->n; j++) store(p->dtype, row, j, o->bias[j]);
    OK(context, dlc_graph_create(context, &graph));
    const dlc_value x = dlc_input(graph, "x", p->dtype, 2, DIMS(SIZE(p->m), SIZE(p->k)));
    const dlc_value w = p->constant ? dlc_constant(graph, p->dtype, 2, SHAPE(p->k, p->n), o->w.data)
                                    : dlc_input(graph, "w", p->dtype, 2, DIMS(SIZE(p->k), SIZE(p->n)));
    const dlc_value r = dlc_input(graph, "r", p->dtype, 2, DIMS(SIZE(p->m), SIZE(p->n)));
    dlc_value y = dlc_matmul(x, w);
    if (p->bias) y = dlc_add(y, dlc_constant(graph, p->dtype, 1, SHAPE(p->n), row));
    if (p->residual) y = dlc_add(y, r);
    OK(context, dlc_output(graph, "y", p->relu ? dlc_relu(y) : y));
    return graph;
}

/* Sums of f32 and f64 may be rounded, those of i32 are exact; each value of bf16 is rounded. */
static double tolerance(dlc_dtype dtype, double all, double sum, int64_t terms) {
    switch (dtype) {
    case DLC_F64: return all * (double)(terms + 4) * 0x1p-53;
    case DLC_I32: return 0;
    case DLC_BF16: return all * (double)(terms + 4) * 0x1p-24 + 3 * (fabs(sum) + 128) * 0x1p-8;
    default: return all * (double)(terms + 4) * 0x1p-24;
    }
}

static void expect(const product *p, const operands *o, const char *level) {
    for (int64_t at = 0; at < p->m * p->n; at++) {
        const int64_t i = at / p->n, j = at % p->n;
        double sum = 0, all = 128;
        for (int64_t k = 0; k < p->k; k++) {
            const double term = o->exact_x[i * p->k + k] * o->exact_w[k * p->n + j];
            sum += term, all += fabs(term);
        }
        const double before = sum, more = (p->bias ? o->bias[j] : 0) + (p->residual ? o->exact_residual[at] : 0);
        const double expected = p->relu && sum + more < 0 ? 0 : sum + more, got = load(p->dtype, o->y.data, at);
        if (fabs(got - expected) > tolerance(p->dtype, all, before, p->k))
            failed("%s: %lld x %lld x %lld, dtype %d%s%s%s%s: [%lld, %lld] is %.9g, not %.9g", level, (long long)p->m,
                   (long long)p->n, (long long)p->k, (int)p->dtype, p->constant ? ", constant" : "",
                   p->bias ? ", bias" : "", p->residual ? ", residual" : "", p->relu ? ", relu" : "", (long long)i,
                   (long long)j, got, expected);
    }
}

/* Do schedules have whole vectors for few columns, and a version of the tile for the last ones? */
typedef struct found {
    bool full, apart;
} found;

static void run(dlc_context *context, const product *p, operands *o, found *f) {
    tensor x, w, r, y;
    char *text;
    const int64_t *shapes[3];
    int ranks[3], count = 0;
    dlc_program *program = compile(context, graph_of(context, p, o));
    const DLTensor *given[3];
    given[count++] = &make_tensor(&x, p->dtype, o->x.data, 2, SHAPE(p->m, p->k))->dl;
    if (!p->constant) given[count++] = &make_tensor(&w, p->dtype, o->w.data, 2, SHAPE(p->k, p->n))->dl;
    given[count++] = &make_tensor(&r, p->dtype, o->residual.data, 2, SHAPE(p->m, p->n))->dl;
    for (int i = 0; i < count; i++) shapes[i] = given[i]->shape, ranks[i] = given[i]->ndim;
    dlc_output_slot slot = {.tensor = &make_tensor(&y, p->dtype, o->y.data, 2, SHAPE(p->m, p->n))->dl};
    OK(context, dlc_run(program, NULL, given, count, &slot, 1));
    OK(context, dlc_program_dump(program, "schedule", shapes, ranks, count, &text));
    f->full = f->full || strstr(text, "mask full");
    f->apart = f->apart || strstr(text, "clip dot_general_out.v_o");
    dlc_text_free(context, text);
    dlc_program_destroy(program);
}

static void run_level(const char *level, bool required) {
    static const product always[] = {
        {.m = 28, .n = 7, .k = 300, .dtype = DLC_F32},
        {.m = 6, .n = 15, .k = 300, .dtype = DLC_F32, .constant = true, .bias = true},
        {.m = 22, .n = 51, .k = 68, .dtype = DLC_F32, .constant = true},
    };
    enum { ALWAYS = sizeof always / sizeof *always };
    static operands o;
    static char first[MOST_ROWS * MOST_COLUMNS * sizeof(double)];
    const char *seed = getenv("DLC_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 10) : 1;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    found f = {0};
    setenv("DLC_CPU_FEATURES", level, 1);
    options.threads = 1;
    dlc_context *one = open_context(NULL, &options);
    options.threads = 4;
    dlc_context *four = open_context(NULL, &options);
    for (int i = 0; i < ALWAYS + test_some(200); i++) {
        const product p = i < ALWAYS ? always[i] : draw(&random);
        fill_operands(&p, &o, &random);
        run(one, &p, &o, &f);
        expect(&p, &o, level);
        memcpy(first, o.y.data, o.y.size);
        run(four, &p, &o, &f);
        if (memcmp(first, o.y.data, o.y.size) != 0) failed("%s: four threads give other bits than one", level);
        free_operands(&o);
    }
    dlc_context_destroy(one);
    dlc_context_destroy(four);
    assert_true((f.full && f.apart) || !required);
}

/* Does this processor have the level of instructions, and the library a target for it? */
static bool has_level(bool wide) {
    bool present = false;
#if defined(__x86_64__)
    present = !wide || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#endif
    dlc_context *context = open_context("cpu", NULL);
    present = present && context;
    dlc_context_destroy(context);
    return present;
}

static void test_avx2(void **state) {
    (void)state;
    run_level("avx2", has_level(true));
}

static void test_sse2(void **state) {
    (void)state;
    run_level("sse2", has_level(false));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avx2), cmocka_unit_test(test_sse2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
