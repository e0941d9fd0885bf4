/* Long sums in f32 against f64, of positive numbers, whose roundings do not cancel. One accumulator would be off by about sqrt(n) units for n
 * terms; the bound is that of sums of parts, of at most PART terms, which are then added up, by the probabilistic analysis of Higham and Mary
 * (2019): 2 (sqrt(PART) + sqrt(n / parts' least length)) units of the sum of the terms' magnitudes. All threads give the same bits. */
#include "api/support.h"
#include "random.h"

#include <dlc/gradient.h>

#define PART 512.0
#define LEAST_PART 128.0
enum { OPERANDS = 2, DRAWS = 4 };

typedef struct problem {
    int rank[OPERANDS];
    int64_t dim[OPERANDS][4];
    int64_t stride, groups;
    double terms;
} problem;

/* Draws sizes; the sum, and the sum of the magnitudes of its terms: DLC_NONE if it is the same. */
typedef struct family {
    const char *name;
    void (*draw)(problem *p, uint64_t *random);
    dlc_value (*build)(const problem *p, const dlc_value *x, dlc_value *magnitude);
} family;

static int64_t between(uint64_t *random, int64_t low, int64_t high) {
    return low + (int64_t)(test_random(random) % (uint64_t)(high - low + 1));
}

static void shape(problem *p, int i, int rank, const int64_t *dim) {
    p->rank[i] = rank;
    memcpy(p->dim[i], dim, (size_t)rank * sizeof *dim);
}

/* ---- contractions ---------------------------------------------------------------------------------------------------------------- */

static void draw_product(problem *p, uint64_t *random) {
    const int64_t m = between(random, 1, 40), n = between(random, 2, 70), k = between(random, 8000, 40000);
    shape(p, 0, 2, SHAPE(m, k));
    shape(p, 1, 2, SHAPE(k, n));
    p->terms = (double)k;
}
static dlc_value product(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    return (void)p, (void)magnitude, dlc_matmul(x[0], x[1]);
}

static void draw_leading(problem *p, uint64_t *random) {
    const int64_t m = between(random, 2, 40), n = between(random, 2, 70), k = between(random, 8000, 40000);
    shape(p, 0, 2, SHAPE(k, m));
    shape(p, 1, 2, SHAPE(k, n));
    p->terms = (double)k;
}
static dlc_value leading(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    return (void)p, (void)magnitude, dlc_matmul(dlc_transpose(x[0], 2, SHAPE(1, 0)), x[1]);
}

static void draw_trailing(problem *p, uint64_t *random) {
    const int64_t m = between(random, 1, 40), n = between(random, 1, 40), k = between(random, 8000, 40000);
    shape(p, 0, 2, SHAPE(m, k));
    shape(p, 1, 2, SHAPE(n, k));
    p->terms = (double)k;
}
static dlc_value trailing(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    return (void)p, (void)magnitude, dlc_matmul(x[0], dlc_transpose(x[1], 2, SHAPE(1, 0)));
}

static void draw_column(problem *p, uint64_t *random) {
    const int64_t m = between(random, 40, 300), k = between(random, 8000, 20000);
    shape(p, 0, 2, SHAPE(k, m));
    shape(p, 1, 2, SHAPE(k, 1));
    p->terms = (double)k;
}

/* ---- convolutions ---------------------------------------------------------------------------------------------------------------- */

static void draw_convolution(problem *p, uint64_t *random) {
    const int64_t n = between(random, 1, 9), co = between(random, 1, 40), ci = between(random, 1000, 2500),
                  h = between(random, 3, 9), w = between(random, 3, 9);
    shape(p, 0, 4, SHAPE(n, ci, h, w));
    shape(p, 1, 4, SHAPE(co, ci, 3, 3));
    p->stride = between(random, 1, 2);
    p->terms = (double)ci * 9;
}
static dlc_value convolution(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    (void)magnitude;
    options.stride = SHAPE(p->stride, p->stride), options.low = options.high = SHAPE(1, 1);
    options.stride_count = options.low_count = options.high_count = 2;
    return dlc_convolution_with(x[0], x[1], &options);
}

static void draw_weights(problem *p, uint64_t *random) {
    const int64_t n = between(random, 3, 9), ci = between(random, 1, 24), co = between(random, 1, 24),
                  h = between(random, 40, 70), w = between(random, 40, 70);
    p->stride = between(random, 1, 2);
    p->groups = 1;
    shape(p, 0, 4, SHAPE(n, ci, p->stride * h, p->stride * w));
    shape(p, 1, 4, SHAPE(n, co, h, w));
    p->terms = (double)(n * h * w);
}
static void draw_depthwise(problem *p, uint64_t *random) {
    draw_weights(p, random);
    p->groups = p->dim[1][1] = p->dim[0][1];
}
static dlc_value weights(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    dlc_convolution_weights_options options = DLC_CONVOLUTION_WEIGHTS_OPTIONS_INIT;
    (void)magnitude;
    options.stride = SHAPE(p->stride, p->stride), options.low = options.high = SHAPE(1, 1);
    options.stride_count = options.low_count = options.high_count = 2;
    options.groups = p->groups;
    return dlc_convolution_weights_with(x[0], x[1], 2, DIMS(SIZE(3), SIZE(3)), &options);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------------------ */

static void draw_images(problem *p, uint64_t *random) {
    const int64_t n = between(random, 3, 9), c = between(random, 1, 40), h = between(random, 40, 70),
                  w = between(random, 40, 70);
    shape(p, 0, 4, SHAPE(n, c, h, w));
    shape(p, 1, 4, SHAPE(n, c, h, w));
    p->terms = (double)(n * h * w);
}
static dlc_value channels(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    return (void)p, (void)magnitude, dlc_reduce_sum(x[0], 3, SHAPE(0, 2, 3));
}
static dlc_value columns(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    const int64_t *d = p->dim[0];
    (void)magnitude;
    return dlc_reduce_sum(dlc_reshape(x[0], 2, DIMS(SIZE(d[0] * d[2] * d[3]), SIZE(d[1]))), 1, SHAPE(0));
}
static dlc_value products(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    return (void)p, (void)magnitude, dlc_reduce_sum(dlc_mul(x[0], x[1]), 0, NULL);
}

/* The derivative of a batch norm with respect to its scale: sums of cotangents times deviations, of about their magnitude. */
static dlc_value norm(const problem *p, const dlc_value *x, dlc_value *magnitude) {
    const dlc_dtype dtype = dlc_value_dtype(x[0]);
    dlc_graph *g = x[0].graph;
    const dlc_dim c = SIZE(p->dim[0][1]);
    const dlc_value ones = dlc_broadcast(dlc_scalar(g, dtype, 1), 1, &c, 0, NULL);
    dlc_value y[3], result;
    dlc_batch_norm_training(x[0], ones, ones, ones, ones, 1, 3, y);
    dlc_vjp(1, y, &x[1], 1, &ones, &result);
    *magnitude = channels(p, &x[1], magnitude);
    return result;
}

static const family families[] = {
    {"a product", draw_product, product},
    {"a product over leading axes", draw_leading, leading},
    {"a product over trailing axes", draw_trailing, trailing},
    {"columns times a column", draw_column, leading},
    {"a convolution", draw_convolution, convolution},
    {"the weights of a convolution", draw_weights, weights},
    {"the weights of a depthwise convolution", draw_depthwise, weights},
    {"sums of channels", draw_images, channels},
    {"sums of columns", draw_images, columns},
    {"a sum of products", draw_images, products},
    {"the scale of a batch norm", draw_images, norm},
};

/* ---- comparing ------------------------------------------------------------------------------------------------------------------- */

typedef struct run {
    float *narrow;
    double *wide, *magnitude;
    size_t count;
    DLManagedTensorVersioned *kept[3];
} run;

static run run_once(dlc_context *context, const family *f, const problem *p, float *const *data) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x[OPERANDS], wide[OPERANDS], magnitude = DLC_NONE, unused = DLC_NONE;
    tensor in[OPERANDS];
    const DLTensor *inputs[OPERANDS];
    dlc_output_slot slots[3] = {{NULL, NULL}};
    run result = {.count = 1};
    for (int i = 0; i < OPERANDS; i++) {
        dlc_dim dim[4];
        for (int d = 0; d < p->rank[i]; d++) dim[d] = SIZE(p->dim[i][d]);
        x[i] = dlc_input(g, i ? "x1" : "x0", DLC_F32, p->rank[i], dim);
        wide[i] = dlc_cast(x[i], DLC_F64);
        inputs[i] = &make_tensor(&in[i], DLC_F32, data[i], p->rank[i], p->dim[i])->dl;
    }
    const dlc_value exact = f->build(p, wide, &magnitude);
    dlc_output(g, "narrow", f->build(p, x, &unused));
    dlc_output(g, "wide", exact);
    dlc_output(g, "magnitude", dlc_value_ok(magnitude) ? magnitude : exact);
    dlc_program *program = compile(context, g);
    OK(context, dlc_run(program, NULL, inputs, OPERANDS, slots, 3));
    dlc_program_destroy(program);
    for (int i = 0; i < 3; i++) result.kept[i] = slots[i].managed;
    const DLTensor *narrow = &slots[0].managed->dl_tensor;
    for (int d = 0; d < narrow->ndim; d++) result.count *= (size_t)narrow->shape[d];
    result.narrow = narrow->data;
    result.wide = slots[1].managed->dl_tensor.data;
    result.magnitude = slots[2].managed->dl_tensor.data;
    return result;
}

static void release(run *r) {
    for (int i = 0; i < 3; i++) r->kept[i]->deleter(r->kept[i]);
}

static void check_problem(dlc_context *const context[2], const family *f, const problem *p) {
    float *data[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        size_t count = 1;
        for (int d = 0; d < p->rank[i]; d++) count *= (size_t)p->dim[i][d];
        CHECK(data[i] = malloc(count * sizeof(float)));
        fill(data[i], count, (uint32_t)i + 1);
        for (size_t k = 0; k < count; k++) data[i][k] = fabsf(data[i][k]);
    }
    run one = run_once(context[0], f, p, data), many = run_once(context[1], f, p, data);
    const double bound = 2 * (sqrt(PART) + sqrt(p->terms / LEAST_PART)) * 0x1p-24;
    double worst = 0;
    for (size_t k = 0; k < one.count; k++) {
        const double error = fabs(one.narrow[k] - one.wide[k]) / one.magnitude[k];
        if (!(error <= worst)) worst = error;
    }
    if (!(worst <= bound))
        failed("%s of %.0f terms is off by %.1f units of 2^-24 of their sum, at most %.1f are allowed", f->name,
               p->terms, worst * 0x1p24, bound * 0x1p24);
    if (one.count != many.count || memcmp(one.narrow, many.narrow, one.count * sizeof(float)) != 0)
        failed("%s of %.0f terms has other bits on several threads", f->name, p->terms);
    release(&one);
    release(&many);
    for (int i = 0; i < OPERANDS; i++) free(data[i]);
}

static void test_sums(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    uint64_t random = 1;
    options.threads = 3;
    dlc_context *context[] = {open_context("cpu", NULL), open_context("cpu", &options)};
    if (!context[0]) skip(); /* the interpreter target sums as the definition says, in one accumulator */
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (int k = 0; k < DRAWS; k++) {
            problem p = {.stride = 1, .groups = 1};
            families[i].draw(&p, &random);
            check_problem(context, &families[i], &p);
        }
    for (int i = 0; i < 2; i++) dlc_context_destroy(context[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests_name("long sums", tests, NULL, NULL);
}
