/* Sums that run through blocks of their steps, which L1 holds: x^T dy, written as a contraction, as a product of a transposition and of x itself,
 * and convolutions of images, with a bias, a residual and relu behind them or without. Random sizes, as on a processor that prefetches few streams
 * (Zen 3; where it has AVX2, DLC_CPU gives its rates), with small caches. Against sums in double precision; the same bits with four threads. Some
 * schedules must have such blocks. */
#include "api/support.h"
#include "random.h"
#include "test/share.h"

enum { MOST_X = 1 << 17, MOST_Y = 1 << 17, WIDEST = 11 /* of a window */, WIDEST_ROW = 200 };

typedef struct operands {
    float x[MOST_X], w[MOST_X], bias[64], residual[MOST_Y], y[MOST_Y];
} operands;

static int64_t between(uint64_t *state, int64_t low, int64_t high) {
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

static void fill_random(float *x, int64_t count, uint64_t *state) {
    for (int64_t i = 0; i < count; i++) x[i] = (float)between(state, -1000, 1000) / 1000;
}

/* Does some schedule of a test have blocks? */
typedef struct contexts {
    dlc_context *one, *four;
    bool blocks;
} contexts;

static contexts open_small(void) {
    use_rates_of_zen3("16,64,512");
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    dlc_context *one = open_context(NULL, &options);
    options.threads = 4;
    return (contexts){.one = one, .four = open_context(NULL, &options)};
}

/* Closes them. Where the rates of Zen 3 hold, some schedule must have had blocks. */
static void close_small(const contexts *c) {
    const char *cpu = getenv("DLC_CPU");
    dlc_context_destroy(c->one);
    dlc_context_destroy(c->four);
    assert_true(c->blocks || !cpu || strcmp(cpu, "znver3") != 0 || !open_context("cpu", NULL));
}

/* Runs the program of graph `make(problem)` with one thread and with four, whose bits must be equal. `loops`: how a schedule's line ends that cuts a sum
 * into blocks. */
static void run_both(contexts *c, dlc_graph *(*make)(dlc_context *context, const void *problem, const operands *o),
                     const void *problem, operands *o, const DLTensor *const *given, int count, tensor *out,
                     size_t elements, const char *loops) {
    static float again[MOST_Y];
    const int64_t *shapes[3];
    int ranks[3];
    char *text;
    dlc_output_slot slot = {.tensor = &out->dl};
    for (int i = 0; i < count; i++) shapes[i] = given[i]->shape, ranks[i] = given[i]->ndim;
    for (int threads = 0; threads < 2; threads++) {
        dlc_context *context = threads ? c->four : c->one;
        dlc_program *program = compile(context, make(context, problem, o));
        OK(context, dlc_run(program, NULL, given, count, &slot, 1));
        OK(context, dlc_program_dump(program, "schedule", shapes, ranks, count, &text));
        c->blocks = c->blocks || strstr(text, loops);
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        if (!threads) memcpy(again, o->y, elements * sizeof *again);
    }
    if (memcmp(again, o->y, elements * sizeof *again) != 0) failed("four threads give other bits than one");
}

static uint64_t first_seed(void) {
    const char *seed = getenv("DLC_SEED");
    return seed ? strtoull(seed, NULL, 10) : 1;
}

/* Is `got` a sum of `terms` products, of which `sum` is the exact value and `all` that of the absolute values? */
static bool is_close(double got, double sum, double all, int64_t terms) {
    return fabs(got - sum) <= (all + 1) * (double)(terms + 4) * 0x1p-24;
}

/* ---- x^T dy */

typedef struct product {
    int64_t k, m, n;
    /* written as a product of a transposition; both operands are x; the result is that of n columns by m */
    bool turned, same, swapped;
} product;

static product draw_product(uint64_t *state) {
    product p = {.k = between(state, 100, 1500), .m = between(state, 1, 64), .n = between(state, 1, 80)};
    if (between(state, 0, 2) == 0)
        p.k = between(state, 100, 600), p.m = between(state, 1, 16), p.n = between(state, 81, WIDEST_ROW);
    p.turned = between(state, 0, 1), p.same = between(state, 0, 4) == 0, p.swapped = between(state, 0, 1);
    if (p.same) p.n = p.m;
    return p;
}

static dlc_value product_of(const product *p, dlc_value x, dlc_value y) {
    if (p->turned) return dlc_matmul(dlc_transpose(x, 2, SHAPE(1, 0)), y);
    return dlc_dot_general(x, y, 1, SHAPE(0), 1, SHAPE(0));
}

static void expect_product(const operands *o, const product *p) {
    const float *b = p->same ? o->x : o->w;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, all = 0;
            for (int64_t k = 0; k < p->k; k++) {
                const double term = (double)o->x[k * p->m + i] * (double)b[k * p->n + j];
                sum += term, all += fabs(term);
            }
            const double got = o->y[p->swapped ? j * p->m + i : i * p->n + j];
            if (!is_close(got, sum, all, p->k))
                failed("%lld x %lld of %lld rows%s%s%s: [%lld, %lld] is %.9g, not %.9g", (long long)p->m,
                       (long long)p->n, (long long)p->k, p->turned ? ", turned" : "", p->same ? ", the same" : "",
                       p->swapped ? ", swapped" : "", (long long)i, (long long)j, got, sum);
        }
}

static dlc_graph *graph_of_product(dlc_context *context, const void *problem, const operands *o) {
    const product *p = problem;
    dlc_graph *graph;
    (void)o;
    OK(context, dlc_graph_create(context, &graph));
    const dlc_value x = dlc_input(graph, "x", DLC_F32, 2, DIMS(SIZE(p->k), SIZE(p->m)));
    const dlc_value y = p->same ? x : dlc_input(graph, "y", DLC_F32, 2, DIMS(SIZE(p->k), SIZE(p->n)));
    OK(context, dlc_output(graph, "z", p->swapped ? product_of(p, y, x) : product_of(p, x, y)));
    return graph;
}

static void check_product(contexts *c, const product *p, operands *o) {
    tensor in[2], out;
    (void)F32(&in[0], o->x, p->k, p->m);
    (void)F32(&in[1], o->w, p->k, p->n);
    (void)F32(&out, o->y, p->swapped ? p->n : p->m, p->swapped ? p->m : p->n);
    run_both(c, graph_of_product, p, o, (const DLTensor *[]){&in[0].dl, &in[1].dl}, p->same ? 1 : 2, &out,
             (size_t)(p->m * p->n), " block row\n");
    expect_product(o, p);
}

static void test_products(void **state) {
    (void)state;
    static operands o;
    uint64_t random = first_seed();
    contexts c = open_small();
    for (int i = 0; i < (test_is_short() ? 12 : 100); i++) {
        const product p = draw_product(&random);
        fill_random(o.x, p.k * p.m, &random);
        fill_random(o.w, p.k * p.n, &random);
        check_product(&c, &p, &o);
    }
    close_small(&c);
}

/* ---- convolutions */

typedef struct image {
    int64_t n, ci, co, h, w, kh, kw, stride, low, dilation;
    /* of the result */
    int64_t to_h, to_w;
    bool constant, bias, residual, relu;
} image;

static image draw_image(uint64_t *state) {
    image c = {.n = between(state, 1, 2),
               .ci = between(state, 2, 48),
               .co = between(state, 3, 40),
               .h = between(state, 7, 24),
               .kh = between(state, 1, 3),
               .kw = between(state, 1, between(state, 0, 2) ? 5 : WIDEST),
               .stride = between(state, 1, 2),
               .low = between(state, 0, 2),
               .dilation = between(state, 0, 3) ? 1 : 2};
    c.w = between(state, 2 * c.kw, 40);
    if (between(state, 0, 2)) c.ci = (c.ci + 7) / 8 * 8;
    c.to_h = (c.h + 2 * c.low - (c.kh - 1) * c.dilation - 1) / c.stride + 1;
    c.to_w = (c.w + 2 * c.low - (c.kw - 1) * c.dilation - 1) / c.stride + 1;
    c.constant = between(state, 0, 3), c.bias = between(state, 0, 1), c.residual = between(state, 0, 1),
    c.relu = between(state, 0, 1);
    return c;
}

static void expect_image(const operands *o, const image *c) {
    for (int64_t at = 0; at < c->n * c->co * c->to_h * c->to_w; at++) {
        const int64_t j = at % c->to_w, i = at / c->to_w % c->to_h, co = at / (c->to_w * c->to_h) % c->co,
                      n = at / (c->to_w * c->to_h * c->co);
        double sum = (c->bias ? o->bias[co] : 0) + (c->residual ? o->residual[at] : 0), all = 2;
        for (int64_t t = 0; t < c->ci * c->kh * c->kw; t++) {
            const int64_t ci = t / (c->kh * c->kw), y = i * c->stride - c->low + t / c->kw % c->kh * c->dilation,
                          x = j * c->stride - c->low + t % c->kw * c->dilation;
            if (y < 0 || y >= c->h || x < 0 || x >= c->w) continue;
            const double term =
                (double)o->x[((n * c->ci + ci) * c->h + y) * c->w + x] * (double)o->w[co * c->ci * c->kh * c->kw + t];
            sum += term, all += fabs(term);
        }
        const double expected = c->relu && sum < 0 ? 0 : sum;
        if (!is_close(o->y[at], expected, all, c->ci * c->kh * c->kw))
            failed(
                "%lldx%lldx%lldx%lld to %lld by %lldx%lld, stride %lld, low %lld, dilation %lld%s%s%s%s: [%lld, %lld, %lld, %lld] is "
                "%.9g, not %.9g",
                (long long)c->n, (long long)c->ci, (long long)c->h, (long long)c->w, (long long)c->co, (long long)c->kh,
                (long long)c->kw, (long long)c->stride, (long long)c->low, (long long)c->dilation,
                c->constant ? ", constant" : "", c->bias ? ", bias" : "", c->residual ? ", residual" : "",
                c->relu ? ", relu" : "", (long long)n, (long long)co, (long long)i, (long long)j, (double)o->y[at],
                expected);
    }
}

static dlc_graph *graph_of_image(dlc_context *context, const void *problem, const operands *o) {
    const image *c = problem;
    dlc_graph *graph;
    OK(context, dlc_graph_create(context, &graph));
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.stride = SHAPE(c->stride, c->stride), options.dilation = SHAPE(c->dilation, c->dilation);
    options.low = options.high = SHAPE(c->low, c->low);
    options.stride_count = options.low_count = options.high_count = options.dilation_count = 2;
    const dlc_value x = dlc_input(graph, "x", DLC_F32, 4, DIMS(SIZE(c->n), SIZE(c->ci), SIZE(c->h), SIZE(c->w)));
    const dlc_value w =
        c->constant ? dlc_constant(graph, DLC_F32, 4, SHAPE(c->co, c->ci, c->kh, c->kw), o->w)
                    : dlc_input(graph, "w", DLC_F32, 4, DIMS(SIZE(c->co), SIZE(c->ci), SIZE(c->kh), SIZE(c->kw)));
    const dlc_value r = dlc_input(graph, "r", DLC_F32, 4, DIMS(SIZE(c->n), SIZE(c->co), SIZE(c->to_h), SIZE(c->to_w)));
    dlc_value y = dlc_convolution_with(x, w, &options);
    if (c->bias) y = dlc_add(y, dlc_constant(graph, DLC_F32, 3, SHAPE(c->co, 1, 1), o->bias));
    if (c->residual) y = dlc_add(y, r);
    OK(context, dlc_output(graph, "y", c->relu ? dlc_relu(y) : y));
    return graph;
}

static void check_image(contexts *both, const image *c, operands *o) {
    tensor in[3], out;
    (void)F32(&in[0], o->x, c->n, c->ci, c->h, c->w);
    (void)F32(&in[1], o->w, c->co, c->ci, c->kh, c->kw);
    (void)F32(&in[2], o->residual, c->n, c->co, c->to_h, c->to_w);
    (void)F32(&out, o->y, c->n, c->co, c->to_h, c->to_w);
    const DLTensor *given[] = {&in[0].dl, c->constant ? &in[2].dl : &in[1].dl, &in[2].dl};
    run_both(both, graph_of_image, c, o, given, c->constant ? 2 : 3, &out, (size_t)(c->n * c->co * c->to_h * c->to_w),
             " block step\n");
    expect_image(o, c);
}

static void test_images(void **state) {
    (void)state;
    static operands o;
    uint64_t random = first_seed();
    contexts both = open_small();
    for (int i = 0; i < (test_is_short() ? 16 : 120); i++) {
        const image c = draw_image(&random);
        fill_random(o.x, c.n * c.ci * c.h * c.w, &random);
        fill_random(o.w, c.co * c.ci * c.kh * c.kw, &random);
        fill_random(o.bias, c.co, &random);
        fill_random(o.residual, c.n * c.co * c.to_h * c.to_w, &random);
        check_image(&both, &c, &o);
    }
    close_small(&both);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_images)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
