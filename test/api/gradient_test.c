/* <dlc/gradient.h>: derivatives through the public header, against differences in double precision, closed forms and tables; mixed
 * precision; what a host may do wrong. Each row's rule is tested by conformance/gradient.c. */
#include "api/support.h"

#include <dlc/eager.h>
#include <dlc/extend.h>
#include <dlc/gradient.h>

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static dlc_graph *new_graph(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    return g;
}

/* Outputs "0", "1", ... */
static void add_outputs(dlc_graph *g, int count, const dlc_value *values) {
    char name[8];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        dlc_output(g, name, values[i]);
    }
}

/* Compiles the graph and runs it on f32 tensors. */
static void run(dlc_context *context, dlc_graph *g, int inputs, const DLTensor *const *in, int outputs,
                tensor *const *out) {
    dlc_program *program = compile(context, g);
    dlc_output_slot slots[8];
    for (int i = 0; i < outputs; i++) slots[i] = (dlc_output_slot){&out[i]->dl, NULL};
    OK(context, dlc_run(program, NULL, in, inputs, slots, outputs));
    dlc_program_destroy(program);
}

/* A case on one vector x[n]: y = f(x), its gradient and the gradient of the sum of the gradient. */
typedef struct scalar_case {
    const char *name;
    dlc_value (*build)(dlc_graph *g, dlc_value x);
    int n;
    float x[6];
    double first[6], second[6];
} scalar_case;

static dlc_value number(dlc_graph *g, double value) {
    return dlc_scalar(g, DLC_F32, value);
}
/* A scan of `times` iterations whose operands are all carries. */
static void repeat(dlc_graph *g, int carries, const dlc_value *x, dlc_graph *body, int64_t times, dlc_value *end) {
    dlc_scan_options options = DLC_SCAN_OPTIONS_INIT;
    const dlc_dim length = {times, NULL};
    options.length_count = 1;
    options.length = &length;
    dlc_scan_with(g, carries, x, body, carries, 0, &options, carries, end);
}
static dlc_value sum(dlc_value x) {
    return dlc_reduce_sum(x, 0, NULL);
}

/* ---- what has no influence has derivative 0 (in first and second order) ---------------------------------------------------- */

static dlc_value positive(dlc_graph *g, dlc_value x) {
    return dlc_gt(x, number(g, 0));
}
static dlc_value guarded_sqrt(dlc_graph *g, dlc_value x) {
    return dlc_select(positive(g, x), dlc_sqrt(x), number(g, 0));
}
static dlc_value guarded_log(dlc_graph *g, dlc_value x) {
    return dlc_select(positive(g, x), dlc_log(x), number(g, -1));
}
static dlc_value guarded_division(dlc_graph *g, dlc_value x) {
    return dlc_select(positive(g, x), dlc_div(number(g, 1), x), x);
}
static dlc_value guarded_power(dlc_graph *g, dlc_value x) {
    return dlc_select(positive(g, x), dlc_pow(x, number(g, 0.5)), number(g, 0));
}
/* atan2(0, x), not at the origin */
static dlc_value guarded_angle(dlc_graph *g, dlc_value x) {
    dlc_value none = dlc_eq(x, number(g, 0));
    return dlc_select(none, number(g, 0), dlc_atan2(x, x));
}
/* |x| as the root of a square, 0 at 0 */
static dlc_value guarded_norm(dlc_graph *g, dlc_value x) {
    dlc_value square = dlc_mul(x, x);
    return dlc_select(dlc_gt(square, number(g, 0)), dlc_sqrt(square), number(g, 0));
}
static dlc_value masked_overflow(dlc_graph *g, dlc_value x) {
    return dlc_select(dlc_lt(x, number(g, 10)), x, dlc_exp(dlc_mul(x, x)));
}

static const scalar_case zeros[] = {
    {"sqrt", guarded_sqrt, 3, {0, -1, 4}, {0, 0, 0.25}, {0, 0, -1.0 / 32}},
    {"log", guarded_log, 3, {0, -1, 4}, {0, 0, 0.25}, {0, 0, -1.0 / 16}},
    {"division", guarded_division, 3, {0, -1, 2}, {1, 1, -0.25}, {0, 0, 0.25}},
    {"power", guarded_power, 3, {0, -2, 4}, {0, 0, 0.25}, {0, 0, -1.0 / 32}},
    {"angle", guarded_angle, 3, {0, 1, -2}, {0, 0, 0}, {0, 0, 0}},
    {"norm", guarded_norm, 3, {0, 3, -4}, {0, 1, -1}, {0, 0, 0}},
    {"overflow", masked_overflow, 2, {1, 2}, {1, 1}, {0, 0}},
};

/* ---- where there is no derivative ---------------------------------------------------------------------------------------- */

static dlc_value kink_abs(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_abs(x);
}
static dlc_value kink_relu(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_relu(x);
}
static dlc_value kink_maximum(dlc_graph *g, dlc_value x) {
    return dlc_max(x, number(g, 1));
}
static dlc_value kink_clamp(dlc_graph *g, dlc_value x) {
    return dlc_clamp(number(g, -1), x, number(g, 1));
}
static dlc_value kink_greatest(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_reduce_max(x, 0, NULL);
}
static dlc_value kink_product(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_reduce_prod(x, 0, NULL);
}
static dlc_value kink_running(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_cumulative_max(x, 0);
}
static dlc_value kink_running_product(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_cumulative_prod(x, 0);
}
/* Of four elements the first is combined with the third, the second with both others. */
static dlc_value scattered(dlc_graph *g, dlc_value x, dlc_scatter_combine combine) {
    dlc_value updates = dlc_gather(x, dlc_constant(g, DLC_I64, 1, SHAPE(3), (int64_t[]){0, 1, 1}), 0);
    dlc_value rest = dlc_gather(x, dlc_constant(g, DLC_I64, 1, SHAPE(2), (int64_t[]){2, 3}), 0);
    dlc_scatter_options options = DLC_SCATTER_OPTIONS_INIT;
    options.combine = combine;
    return dlc_scatter_with(rest, dlc_constant(g, DLC_I64, 1, SHAPE(3), (int64_t[]){0, 0, 1}), updates, 0, &options);
}
static dlc_value kink_scatter_max(dlc_graph *g, dlc_value x) {
    return scattered(g, x, DLC_SCATTER_COMBINE_MAX);
}
static dlc_value kink_scatter_mul(dlc_graph *g, dlc_value x) {
    return scattered(g, x, DLC_SCATTER_COMBINE_MUL);
}
static dlc_value kink_floor(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_floor(x);
}
static dlc_value kink_power(dlc_graph *g, dlc_value x) {
    return dlc_pow(x, number(g, 0));
}

static const scalar_case kinks[] = {
    {"abs", kink_abs, 3, {0, 2, -2}, {0, 1, -1}, {0, 0, 0}},
    {"relu", kink_relu, 3, {0, 2, -2}, {0, 1, 0}, {0, 0, 0}},
    {"max", kink_maximum, 3, {1, 2, 0}, {0.5, 1, 0}, {0, 0, 0}},
    {"clamp", kink_clamp, 4, {-1, 1, 0, 5}, {0, 0, 1, 0}, {0, 0, 0, 0}},
    {"reduce_max", kink_greatest, 4, {3, 1, 3, 2}, {0.5, 0, 0.5, 0}, {0, 0, 0, 0}},
    {"reduce_prod", kink_product, 3, {0, 2, 3}, {6, 0, 0}, {5, 3, 2}},
    {"reduce_prod, two zeros", kink_product, 3, {0, 0, 3}, {0, 0, 0}, {3, 3, 0}},
    {"cumulative_max", kink_running, 4, {1, 3, 3, 2}, {1, 1, 2, 0}, {0, 0, 0, 0}},
    {"cumulative_prod, two zeros", kink_running_product, 4, {2, 0, 3, 0}, {1, 8, 0, 0}, {4, 12, 2, 6}},
    {"scatter max", kink_scatter_max, 4, {3, 3, 3, 5}, {1.0 / 3, 1.0 / 3, 1.0 / 3, 1}, {0, 0, 0, 0}},
    {"scatter mul", kink_scatter_mul, 4, {0, 2, 3, 5}, {6, 5, 0, 2}, {5, 4, 2, 1}},
    {"scatter mul, two zeros", kink_scatter_mul, 4, {0, 2, 0, 5}, {0, 5, 0, 2}, {2, 1, 2, 1}},
    {"scatter mul, three zeros", kink_scatter_mul, 4, {0, 0, 0, 5}, {0, 5, 0, 0}, {0, 1, 0, 1}},
    {"scatter mul, no zeros", kink_scatter_mul, 4, {1, 2, 3, 5}, {6, 8, 2, 2}, {5, 5, 3, 1}},
    {"floor", kink_floor, 2, {1, 1.5}, {0, 0}, {0, 0}},
    {"x^0", kink_power, 2, {0, -1}, {0, 0}, {0, 0}},
};

static void run_cases(const char *target, const scalar_case *cases, int count) {
    dlc_context *context = open_context(target, NULL);
    if (!context) return;
    for (int i = 0; i < count; i++) {
        const scalar_case *c = &cases[i];
        dlc_graph *g = new_graph(context);
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(c->n))), y[2];
        dlc_gradient(sum(c->build(g, x)), 1, &x, &y[0]);
        dlc_gradient(sum(y[0]), 1, &x, &y[1]);
        add_outputs(g, 2, y);
        float first[6], second[6], data[6];
        memcpy(data, c->x, sizeof data);
        tensor tx, a, b;
        (void)F32(&a, first, c->n);
        (void)F32(&b, second, c->n);
        run(context, g, 1, (const DLTensor *[]){F32(&tx, data, c->n)}, 2, (tensor *[]){&a, &b});
        for (int k = 0; k < c->n; k++) {
            if (!(fabs(first[k] - c->first[k]) <= 1e-6))
                failed("%s, %s: first[%d] is %g, expected %g", target, c->name, k, first[k], c->first[k]);
            if (!(fabs(second[k] - c->second[k]) <= 1e-6))
                failed("%s, %s: second[%d] is %g, expected %g", target, c->name, k, second[k], c->second[k]);
        }
    }
    dlc_context_destroy(context);
}

static void test_zero_stays_zero(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_cases(all_targets[t], zeros, (int)(sizeof zeros / sizeof *zeros));
}

static void test_kinks(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) run_cases(all_targets[t], kinks, (int)(sizeof kinks / sizeof *kinks));
}

/* ---- a network of two layers, one program for all batches ---------------------------------------------------------------- */

enum { IN = 5, HIDDEN = 7, CLASSES = 3, PARAMETERS = IN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES };

/* Mean cross entropy of labels i % CLASSES. */
static double network_loss(const double *p, const float *x, int n) {
    const double *w1 = p, *b1 = w1 + IN * HIDDEN, *w2 = b1 + HIDDEN, *b2 = w2 + HIDDEN * CLASSES;
    double loss = 0;
    for (int i = 0; i < n; i++) {
        double h[HIDDEN], y[CLASSES], total = 0;
        for (int k = 0; k < HIDDEN; k++) {
            double s = b1[k];
            for (int j = 0; j < IN; j++) s += (double)x[i * IN + j] * w1[j * HIDDEN + k];
            h[k] = tanh(s);
        }
        for (int c = 0; c < CLASSES; c++) {
            y[c] = b2[c];
            for (int k = 0; k < HIDDEN; k++) y[c] += h[k] * w2[k * CLASSES + c];
            total += exp(y[c]);
        }
        loss += log(total) - y[i % CLASSES];
    }
    return loss / n;
}

static void check_network(dlc_context *context, dlc_program *program, int n) {
    float p[PARAMETERS], x[64 * IN], gradient[PARAMETERS], loss;
    int64_t labels[64];
    double at[PARAMETERS];
    fill(p, PARAMETERS, 3);
    fill(x, (size_t)n * IN, (uint32_t)n);
    for (int i = 0; i < n; i++) labels[i] = i % CLASSES;
    tensor t[11];
    const DLTensor *in[] = {F32(&t[0], x, n, IN),
                            &make_tensor(&t[1], DLC_I64, labels, 1, SHAPE(n))->dl,
                            F32(&t[2], p, IN, HIDDEN),
                            F32(&t[3], p + IN * HIDDEN, HIDDEN),
                            F32(&t[4], p + IN * HIDDEN + HIDDEN, HIDDEN, CLASSES),
                            F32(&t[5], p + PARAMETERS - CLASSES, CLASSES)};
    dlc_output_slot out[] = {{&make_tensor(&t[6], DLC_F32, &loss, 0, NULL)->dl, NULL},
                             {F32(&t[7], gradient, IN, HIDDEN), NULL},
                             {F32(&t[8], gradient + IN * HIDDEN, HIDDEN), NULL},
                             {F32(&t[9], gradient + IN * HIDDEN + HIDDEN, HIDDEN, CLASSES), NULL},
                             {F32(&t[10], gradient + PARAMETERS - CLASSES, CLASSES), NULL}};
    OK(context, dlc_run(program, NULL, in, 6, out, 5));
    for (int k = 0; k < PARAMETERS; k++) at[k] = p[k];
    CHECK(fabs(loss - network_loss(at, x, n)) < 1e-5);
    for (int k = 0; k < PARAMETERS; k++) {
        const double step = 1e-4, old = at[k];
        at[k] = old + step;
        const double above = network_loss(at, x, n);
        at[k] = old - step;
        const double expected = (above - network_loss(at, x, n)) / (2 * step);
        at[k] = old;
        if (!(fabs(gradient[k] - expected) < 1e-5))
            failed("batch %d, parameter %d: %g, expected %g", n, k, gradient[k], expected);
    }
}

static void test_network(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g = new_graph(context);
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN)));
        dlc_value labels = dlc_input(g, "labels", DLC_I64, 1, DIMS(SYMBOL("n")));
        dlc_value p[] = {dlc_input(g, "w1", DLC_F32, 2, DIMS(SIZE(IN), SIZE(HIDDEN))),
                         dlc_input(g, "b1", DLC_F32, 1, DIMS(SIZE(HIDDEN))),
                         dlc_input(g, "w2", DLC_F32, 2, DIMS(SIZE(HIDDEN), SIZE(CLASSES))),
                         dlc_input(g, "b2", DLC_F32, 1, DIMS(SIZE(CLASSES)))};
        dlc_value h = dlc_tanh(dlc_linear(x, p[0], p[1])), y[5];
        y[0] = dlc_mean(dlc_cross_entropy(dlc_linear(h, p[2], p[3]), labels, 1), 0, NULL);
        dlc_gradient(y[0], 4, p, y + 1);
        add_outputs(g, 5, y);
        dlc_program *program = compile(context, g);
        check_network(context, program, 4);
        check_network(context, program, 64);
        check_network(context, program, 33);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- forward mode, Hessians, types ---------------------------------------------------------------------------------------- */

/* f(x) = sum(x^3)/6 + (sum x)^2/2: gradient x^2/2 + sum x, Hessian diag(x) + ones. */
static void test_hessian(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4))), v = dlc_input(g, "v", DLC_F32, 1, DIMS(SIZE(4))), y[3];
    dlc_value cube = sum(dlc_mul(x, dlc_mul(x, x))), whole = sum(x);
    dlc_value loss = dlc_add(dlc_div(cube, number(g, 6)), dlc_div(dlc_mul(whole, whole), number(g, 2)));
    dlc_gradient(loss, 1, &x, &y[0]);
    dlc_hvp(loss, 1, &x, &v, &y[1]);
    dlc_jvp(1, &x, &v, 1, &loss, &y[2]);
    add_outputs(g, 3, y);
    float dx[] = {1, -2, 3, 0.5f}, dv[] = {1, 2, -1, 4}, first[4], second[4], along;
    tensor t[5];
    (void)F32(&t[2], first, 4);
    (void)F32(&t[3], second, 4);
    make_tensor(&t[4], DLC_F32, &along, 0, NULL);
    run(context, g, 2, (const DLTensor *[]){F32(&t[0], dx, 4), F32(&t[1], dv, 4)}, 3,
        (tensor *[]){&t[2], &t[3], &t[4]});
    double expected = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(fabs(first[i] - (dx[i] * dx[i] / 2 + 2.5)) < 1e-5);
        CHECK(fabs(second[i] - (dx[i] * dv[i] + 6)) < 1e-5);
        expected += (double)first[i] * dv[i];
    }
    CHECK(fabs(along - expected) < 1e-4);
    dlc_context_destroy(context);
}

/* Directions of x twice and of a value that depends on x are added, as reverse mode adds their cotangents: with y = x^2 e^(x^2), u = x^2, along
 * (a, b, c) for (x, x, u): dy = (e^u + u e^u) (2x (a + b) + c). */
static void test_dependent_variables(void **state) {
    enum { N = 3 };
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(N))), u = dlc_mul(x, x), y = dlc_mul(u, dlc_exp(u));
    dlc_value along[3], c = dlc_input(g, "c", DLC_F32, 1, DIMS(SIZE(N))), wrt[] = {x, x, u}, out[4];
    for (int i = 0; i < 3; i++) along[i] = dlc_input(g, NULL, DLC_F32, 1, DIMS(SIZE(N)));
    dlc_jvp(3, wrt, along, 1, &y, &out[0]);
    dlc_vjp(1, &y, &c, 3, wrt, &out[1]);
    add_outputs(g, 4, out);
    float values[5][N] = {{0.5f, -1, 0.25f}, {1, 2, 3}, {1, 0.5f, -2}, {-1, 2, 0.5f}, {3, 1, 2}}, results[4][N];
    tensor t[5], r[4], *to[4];
    const DLTensor *in[5];
    for (int i = 0; i < 5; i++) in[i] = F32(&t[i], values[i], N);
    for (int i = 0; i < 4; i++) (void)F32(to[i] = &r[i], results[i], N);
    run(context, g, 5, in, 4, to);
    double forward = 0, backward = 0; /* <c, J v> = <J^T c, v> */
    for (int i = 0; i < N; i++) {
        const double at = values[0][i], v = at * at, slope = exp(v) + v * exp(v);
        const double moved = slope * (2 * at * (values[2][i] + values[3][i]) + values[4][i]);
        CHECK(fabs(results[0][i] - moved) < 1e-4 * (1 + fabs(moved)));
        forward += values[1][i] * results[0][i];
        for (int k = 0; k < 3; k++) backward += results[1 + k][i] * values[2 + k][i];
    }
    CHECK(fabs(forward - backward) < 1e-4 * (1 + fabs(forward)));
    dlc_context_destroy(context);
}

/* A scan with a carry that no derivative passes through, since it is made by a host's function and read behind dlc_stop_gradient: h' = h w + b,
 * b' = host(b). h_3 = h w^3 + b (w^2 + w + 1) if the host's function returns its argument. */
static void host_copy(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)outputs;
    *(float *)output[0]->data = *(const float *)input[0]->data;
}

static void test_fixed_carry(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context), *body = dlc_subgraph(g);
    OK(context, dlc_custom_register(g, "copy", host_copy, NULL));
    dlc_value h = dlc_input(g, "h", DLC_F32, 0, NULL), b = dlc_input(g, "b", DLC_F32, 0, NULL),
              w = dlc_input(g, "w", DLC_F32, 0, NULL), one = number(g, 1), next, end[2], y[3];
    dlc_value in_h = dlc_input(body, "h", DLC_F32, 0, NULL), in_b = dlc_input(body, "b", DLC_F32, 0, NULL);
    dlc_custom_call(body, 1, &in_b, "copy", 1, SHAPE(DLC_F32), 1, SHAPE(0), 0, NULL, 1, &next);
    dlc_output(body, NULL, dlc_add(dlc_mul(in_h, w), dlc_stop_gradient(in_b)));
    dlc_output(body, NULL, next);
    repeat(g, 2, (dlc_value[]){h, b}, body, 3, end);
    y[0] = end[0];
    dlc_gradient(end[0], 1, &w, &y[1]);
    dlc_jvp(1, &w, &one, 1, &end[0], &y[2]);
    add_outputs(g, 3, y);
    if (dlc_graph_status(g) != DLC_OK) failed("%s", dlc_graph_message(g));
    float values[3] = {2, -0.5f, 1.5f}, results[3];
    tensor t[3], r[3];
    for (int i = 0; i < 3; i++) {
        make_tensor(&t[i], DLC_F32, &values[i], 0, NULL);
        make_tensor(&r[i], DLC_F32, &results[i], 0, NULL);
    }
    run(context, g, 3, (const DLTensor *[]){&t[0].dl, &t[1].dl, &t[2].dl}, 3, (tensor *[]){&r[0], &r[1], &r[2]});
    CHECK(fabs(results[0] - (2 * 3.375 - 0.5 * (2.25 + 1.5 + 1))) < 1e-5);
    for (int i = 1; i < 3; i++) CHECK(fabs(results[i] - (2 * 3 * 2.25 - 0.5 * (3 + 1))) < 1e-5);
    dlc_context_destroy(context);
}

/* Through a size that the run computes: of the first `count` elements, y = sum(e^x x): the derivatives are e^x (1 + x) there, and 0 behind. */
static void test_cut(void **state) {
    enum { N = 5 };
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value count = dlc_input(g, "count", DLC_I64, 0, NULL), x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(N)));
    dlc_value v = dlc_input(g, "v", DLC_F32, 1, DIMS(SIZE(N))), part, y[4];
    dlc_cut(count, 1, &x, 1, DIMS(SYMBOL("c")), 1, &part);
    y[0] = sum(dlc_mul(dlc_exp(part), part));
    dlc_gradient(y[0], 1, &x, &y[1]);
    dlc_jvp(1, &x, &v, 1, &y[0], &y[2]);
    dlc_hvp(y[0], 1, &x, &v, &y[3]);
    add_outputs(g, 4, y);
    if (dlc_graph_status(g) != DLC_OK) failed("%s", dlc_graph_message(g));
    dlc_program *program = compile(context, g);
    float dx[N] = {0.5f, -1, 0.25f, 1, 2}, dv[N] = {1, 2, -1, 3, -2}, value, first[N], along, second[N];
    for (int64_t left = 0; left <= N; left++) {
        tensor t[3], r[4];
        dlc_output_slot slots[4];
        make_tensor(&t[0], DLC_I64, &left, 0, NULL);
        make_tensor(&r[0], DLC_F32, &value, 0, NULL);
        (void)F32(&r[1], first, N);
        make_tensor(&r[2], DLC_F32, &along, 0, NULL);
        (void)F32(&r[3], second, N);
        for (int i = 0; i < 4; i++) slots[i] = (dlc_output_slot){&r[i].dl, NULL};
        OK(context,
           dlc_run(program, NULL, (const DLTensor *[]){&t[0].dl, F32(&t[1], dx, N), F32(&t[2], dv, N)}, 3, slots, 4));
        double moved = 0;
        for (int i = 0; i < N; i++) {
            const double slope = i < left ? exp(dx[i]) * (1 + dx[i]) : 0,
                         bend = i < left ? exp(dx[i]) * (2 + dx[i]) : 0;
            moved += slope * dv[i];
            CHECK(fabs(first[i] - slope) < 1e-4 && fabs(second[i] - bend * dv[i]) < 1e-3);
        }
        CHECK(fabs(along - moved) < 1e-3);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* A body that uses a captured value thousands of times: the sum of as many cotangents does not use the caller's stack. */
static void *differentiate_long_body(void *argument) {
    enum { USES = 3000 };
    dlc_context *context = argument;
    dlc_graph *g = new_graph(context), *body = dlc_subgraph(g);
    dlc_value h = dlc_input(g, "h", DLC_F32, 0, NULL), w = dlc_input(g, "w", DLC_F32, 0, NULL), end, y;
    dlc_value now = dlc_input(body, "h", DLC_F32, 0, NULL);
    for (int i = 0; i < USES; i++) now = dlc_add(now, dlc_mul(now, w));
    dlc_output(body, NULL, now);
    repeat(g, 1, &h, body, 2, &end);
    dlc_gradient(end, 1, &w, &y);
    const dlc_status status = dlc_graph_status(g);
    dlc_graph_destroy(g);
    return status == DLC_OK ? context : NULL;
}

static void test_small_stack(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    pthread_t own;
    pthread_attr_t attributes;
    void *done = NULL;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_create(&own, &attributes, differentiate_long_body, context) == 0);
    CHECK(pthread_join(own, &done) == 0 && done == context);
    pthread_attr_destroy(&attributes);
    dlc_context_destroy(context);
}

/* A gradient along a chain of n operators takes memory in proportion to n: the transposition of a rule visits only the nodes that the rule
 * emitted. */
static void test_long_way(void **state) {
    (void)state;
    enum { LONG = 4000 };
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = "interp", options.limits.memory = 64 << 20;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    dlc_graph *g = new_graph(context);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3))), y = x, gradient;
    for (int i = 0; i < LONG; i++) y = dlc_softmax(y, 0);
    dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &gradient);
    OK(context, dlc_graph_status(g));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* Derivatives have the types of their values; |z|^2 has the derivative 2z. */
static void test_types(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value h = dlc_input(g, "h", DLC_BF16, 1, DIMS(SIZE(3))), w = dlc_input(g, "w", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_value i = dlc_input(g, "i", DLC_I32, 1, DIMS(SIZE(3))), z = dlc_input(g, "z", DLC_C64, 1, DIMS(SIZE(2))), y[4];
    dlc_value re = dlc_real(z), im = dlc_imag(z);
    dlc_value loss = sum(dlc_mul(dlc_mul(dlc_cast(h, DLC_F32), w), dlc_cast(i, DLC_F32)));
    loss = dlc_add(loss, sum(dlc_add(dlc_mul(re, re), dlc_mul(im, im))));
    dlc_value wrt[] = {h, w, z, dlc_constant(g, DLC_F32, 0, NULL, &(float){1})};
    dlc_gradient(loss, 4, wrt, y);
    CHECK(dlc_value_dtype(y[0]) == DLC_BF16 && dlc_value_dtype(y[1]) == DLC_F32 && dlc_value_dtype(y[2]) == DLC_C64);
    CHECK(dlc_value_rank(y[3]) == 0); /* on which the loss does not depend: zeros */
    add_outputs(g, 4, y);
    uint16_t dh[] = {0x3f80, 0x4000, 0xbf80}, gh[3]; /* 1, 2, -1 */
    float dw[] = {0.5f, -1, 3}, gw[3], dz[] = {1, -2, 0.25f, 3}, gz[4], g1 = 7;
    int32_t di[] = {2, 3, 4};
    tensor t[8];
    make_tensor(&t[4], DLC_BF16, gh, 1, SHAPE(3));
    (void)F32(&t[5], gw, 3);
    make_tensor(&t[6], DLC_C64, gz, 1, SHAPE(2));
    make_tensor(&t[7], DLC_F32, &g1, 0, NULL);
    run(context, g, 4,
        (const DLTensor *[]){&make_tensor(&t[0], DLC_BF16, dh, 1, SHAPE(3))->dl, F32(&t[1], dw, 3),
                             &make_tensor(&t[2], DLC_I32, di, 1, SHAPE(3))->dl,
                             &make_tensor(&t[3], DLC_C64, dz, 1, SHAPE(2))->dl},
        4, (tensor *[]){&t[4], &t[5], &t[6], &t[7]});
    CHECK(gh[0] == 0x3f80 && gh[1] == 0xc040 && gh[2] == 0x4140); /* 1, -3, 12 */
    CLOSE(gw, ((double[]){2, 6, -4}), 3, 1e-6);
    CLOSE(gz, ((double[]){2, -4, 0.5, 6}), 4, 1e-6);
    CHECK(g1 == 0);
    dlc_context_destroy(context);
}

/* Complex numbers from parts and pairs. */
static void test_complex(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value a = dlc_input(g, "a", DLC_F32, 1, DIMS(SIZE(2))), b = dlc_input(g, "b", DLC_F32, 1, DIMS(SIZE(2))), y[3];
    dlc_value p = dlc_input(g, "p", DLC_F32, 2, DIMS(SIZE(2), SIZE(2))), z = dlc_complex(a, b), u = dlc_as_complex(p);
    dlc_value re = dlc_real(z), im = dlc_imag(z), pairs = dlc_as_pairs(z), first = number(g, 5);
    dlc_value loss = dlc_add(sum(dlc_mul(re, first)), sum(dlc_mul(im, im)));
    loss = dlc_add(loss, sum(dlc_mul(pairs, pairs)));
    loss = dlc_add(loss, sum(dlc_sub(dlc_mul(dlc_real(u), dlc_real(u)), dlc_imag(u))));
    dlc_gradient(loss, 3, (dlc_value[]){a, b, p}, y);
    add_outputs(g, 3, y);
    float da[] = {1, -2}, db[] = {3, 0.5f}, dp[] = {1, 2, -3, 4}, out[3][4];
    tensor t[6];
    (void)F32(&t[3], out[0], 2);
    (void)F32(&t[4], out[1], 2);
    (void)F32(&t[5], out[2], 2, 2);
    run(context, g, 3, (const DLTensor *[]){F32(&t[0], da, 2), F32(&t[1], db, 2), F32(&t[2], dp, 2, 2)}, 3,
        (tensor *[]){&t[3], &t[4], &t[5]});
    CLOSE(out[0], ((double[]){7, 1}), 2, 1e-6);          /* 5 + 2a */
    CLOSE(out[1], ((double[]){12, 2}), 2, 1e-6);         /* 2b + 2b */
    CLOSE(out[2], ((double[]){2, -1, -6, -1}), 4, 1e-6); /* 2 re, -1 */
    dlc_context_destroy(context);
}

/* In an eager graph the graph is the tape. */
static void test_eager(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g;
    OK(context, dlc_eager_create(context, NULL, &g));
    float data[] = {1, 2, 3}, gradient[3];
    tensor t, out;
    dlc_value x = dlc_eager_tensor(g, F32(&t, data, 3)), y;
    dlc_gradient(sum(dlc_mul(x, dlc_mul(x, x))), 1, &x, &y);
    OK(context, dlc_eager_read(g, y, F32(&out, gradient, 3)));
    CLOSE(gradient, ((double[]){3, 12, 27}), 3, 1e-6);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- mixed precision ------------------------------------------------------------------------------------------------------ */

enum { IMAGES = 5, WEIGHTS = 10 };

/* Dimensions of the parameters: convolution, linear, norm, projections of attention, recurrent layer, head. */
static const struct {
    int rank;
    int64_t shape[4];
    float scale;
} weights[WEIGHTS] = {
    {4, {4, 1, 3, 3}, 1},   {2, {16, 16}, 0.5f},   {1, {16}, 1},       {1, {16}, 1},   {2, {16, 48}, 0.5f},
    {3, {1, 32, 16}, 0.5f}, {3, {1, 32, 8}, 0.5f}, {2, {1, 64}, 0.5f}, {2, {8, 3}, 1}, {1, {3}, 1}};

static int64_t elements_of(int weight) {
    int64_t count = 1;
    for (int d = 0; d < weights[weight].rank; d++) count *= weights[weight].shape[d];
    return count;
}

static dlc_value third(dlc_value all, int which) {
    dlc_value part = dlc_slice(all, 3, DIMS(SIZE(0), SIZE(0), SIZE(16 * which)), 3,
                               DIMS(SIZE(IMAGES), SIZE(4), SIZE(16 * which + 16)));
    return dlc_transpose(dlc_reshape(part, 4, DIMS(SIZE(IMAGES), SIZE(4), SIZE(2), SIZE(8))), 4, SHAPE(0, 2, 1, 3));
}

/* Mean cross entropy of images [IMAGES, 1, 8, 8] by a convolution, attention between its channels, and a recurrent layer over them. */
static dlc_value several_layers(dlc_graph *g, const dlc_value *w) {
    dlc_convolution_options padded = DLC_CONVOLUTION_OPTIONS_INIT;
    dlc_max_pool_options apart = DLC_MAX_POOL_OPTIONS_INIT;
    padded.low = padded.high = SHAPE(1, 1);
    padded.low_count = padded.high_count = 2;
    apart.stride = SHAPE(2, 2);
    apart.stride_count = 2;
    dlc_value x = dlc_input(g, "x", DLC_F32, 4, DIMS(SIZE(IMAGES), SIZE(1), SIZE(8), SIZE(8)));
    dlc_value labels = dlc_input(g, "labels", DLC_I64, 1, DIMS(SIZE(IMAGES))), state[3];
    x = dlc_max_pool_with(dlc_relu(dlc_convolution_with(x, w[0], &padded)), 2, SHAPE(2, 2), &apart);
    x = dlc_linear(dlc_reshape(x, 3, DIMS(SIZE(IMAGES), SIZE(4), SIZE(16))), w[1], DLC_NONE);
    dlc_value all = dlc_matmul(dlc_layer_norm(x, w[2], w[3], -1), w[4]);
    dlc_value y =
        dlc_transpose(dlc_attention(third(all, 0), third(all, 1), third(all, 2), DLC_NONE), 4, SHAPE(0, 2, 1, 3));
    x = dlc_add(x, dlc_reshape(y, 3, DIMS(SIZE(IMAGES), SIZE(4), SIZE(16))));
    dlc_lstm(dlc_transpose(x, 3, SHAPE(1, 0, 2)), w[5], w[6], w[7], DLC_NONE, DLC_NONE, DLC_NONE, DLC_NONE, 3, state);
    y = dlc_linear(dlc_reshape(state[1], 2, DIMS(SIZE(IMAGES), SIZE(8))), w[8], w[9]);
    return dlc_mean(dlc_cross_entropy(y, labels, 1), 0, NULL);
}

/* Loss and gradients, out[1 + elements of all weights], with products of that type. */
static void run_several_layers(const char *target, dlc_dtype narrow, float *out) {
    dlc_context *context = open_context(target, NULL);
    dlc_graph *g = new_graph(context);
    dlc_value w[WEIGHTS], y[1 + WEIGHTS];
    char name[8];
    for (int i = 0; i < WEIGHTS; i++) {
        dlc_dim dim[4];
        for (int d = 0; d < weights[i].rank; d++) dim[d] = (dlc_dim){weights[i].shape[d], NULL};
        snprintf(name, sizeof name, "w%d", i);
        w[i] = dlc_input(g, name, DLC_F32, weights[i].rank, dim);
    }
    y[0] = several_layers(g, w);
    if (narrow != DLC_F32) dlc_mixed_precision(1, y, narrow, y);
    dlc_gradient(y[0], WEIGHTS, w, y + 1);
    for (int i = 0; i <= WEIGHTS; i++) CHECK(dlc_value_dtype(y[i]) == DLC_F32);
    add_outputs(g, 1 + WEIGHTS, y);
    dlc_program *program = compile(context, g);
    float x[IMAGES * 64], data[4096], *at = data, *to = out;
    int64_t labels[IMAGES] = {0, 1, 2, 0, 1};
    tensor in[WEIGHTS + 2], results[1 + WEIGHTS];
    const DLTensor *inputs[WEIGHTS + 2];
    dlc_output_slot slots[1 + WEIGHTS] = {{&make_tensor(&results[0], DLC_F32, to++, 0, NULL)->dl, NULL}};
    fill(x, IMAGES * 64, 11);
    for (int i = 0; i < WEIGHTS; i++) {
        const int64_t count = elements_of(i);
        fill(at, (size_t)count, 20 + (uint32_t)i);
        for (int64_t k = 0; k < count; k++) at[k] *= weights[i].scale;
        inputs[i] = &make_tensor(&in[i], DLC_F32, at, weights[i].rank, weights[i].shape)->dl;
        slots[1 + i] =
            (dlc_output_slot){&make_tensor(&results[1 + i], DLC_F32, to, weights[i].rank, weights[i].shape)->dl, NULL};
        at += count, to += count;
    }
    inputs[WEIGHTS] = F32(&in[WEIGHTS], x, IMAGES, 1, 8, 8);
    inputs[WEIGHTS + 1] = &make_tensor(&in[WEIGHTS + 1], DLC_I64, labels, 1, SHAPE(IMAGES))->dl;
    OK(context, dlc_run(program, NULL, inputs, WEIGHTS + 2, slots, 1 + WEIGHTS));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* The distance of a to b beside b. */
static double distance(const float *a, const float *b, int64_t count) {
    double apart = 0, length = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        length += (double)b[i] * b[i];
    }
    return sqrt(apart / length);
}

static void test_mixed_precision(void **state) {
    (void)state;
    static const struct {
        dlc_dtype dtype;
        double bound;
    } narrow[] = {{DLC_BF16, 0.05}, {DLC_F16, 0.006}};
    float wide[4096], mixed[4096];
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_context_destroy(context);
        run_several_layers(all_targets[t], DLC_F32, wide);
        for (int i = 0; i < 2; i++) {
            const float *a = mixed + 1, *b = wide + 1;
            run_several_layers(all_targets[t], narrow[i].dtype, mixed);
            CHECK(mixed[0] != wide[0] && fabsf(mixed[0] - wide[0]) < narrow[i].bound * fabsf(wide[0]));
            for (int k = 0; k < WEIGHTS; a += elements_of(k), b += elements_of(k), k++)
                if (!(distance(a, b, elements_of(k)) < narrow[i].bound))
                    failed("%s, type %d, gradient %d: distance %g", all_targets[t], (int)narrow[i].dtype, k,
                           distance(a, b, elements_of(k)));
        }
    }
}

/* ---- mistakes ------------------------------------------------------------------------------------------------------------ */

static void host_function(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)input, (void)outputs, (void)output;
}

typedef struct mistake {
    const char *what, *message;
    dlc_status status;
    void (*make)(dlc_context *context, dlc_graph *g, dlc_value x);
} mistake;

static dlc_value gradient_of(dlc_value loss, dlc_value x) {
    dlc_value y;
    dlc_gradient(loss, 1, &x, &y);
    return y;
}
static void of_integer(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)x;
    gradient_of(sum(x), dlc_input(g, "i", DLC_I32, 1, DIMS(SIZE(3))));
}
static void of_vector(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    gradient_of(x, x);
}
static void of_integer_loss(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    gradient_of(sum(dlc_cast(x, DLC_I32)), x);
}
static void of_another_graph(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)g;
    dlc_graph *other = new_graph(context);
    gradient_of(sum(x), dlc_input(other, "z", DLC_F32, 1, DIMS(SIZE(3))));
    dlc_graph_destroy(other);
}
static void of_outer_value(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context;
    dlc_graph *inner = dlc_subgraph(g);
    dlc_value h = dlc_input(inner, "h", DLC_F32, 1, DIMS(SIZE(3)));
    gradient_of(sum(dlc_mul(h, x)), x);
}
static void wrong_cotangent(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context;
    dlc_value c = dlc_input(g, "c", DLC_F32, 1, DIMS(SIZE(4))), y = dlc_exp(x), out;
    dlc_vjp(1, &y, &c, 1, &x, &out);
}
static void wrong_tangent_type(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context;
    dlc_value c = dlc_input(g, "c", DLC_F64, 1, DIMS(SIZE(3))), y = dlc_exp(x), out;
    dlc_jvp(1, &x, &c, 1, &y, &out);
}
static void through_host_function(dlc_context *context, dlc_graph *g, dlc_value x) {
    OK(context, dlc_custom_register(g, "hosts", host_function, NULL));
    dlc_value y;
    dlc_custom_call(g, 1, &x, "hosts", 1, SHAPE(DLC_F32), 1, SHAPE(1), 1, DIMS(SIZE(3)), 1, &y);
    gradient_of(sum(dlc_exp(y)), x);
}
static void through_unique(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    dlc_value y[4];
    dlc_unique(x, 1, DIMS(SYMBOL("different")), 4, y);
    gradient_of(sum(y[0]), x);
}
static void through_a_loop(dlc_context *context, dlc_graph *g, dlc_value x) {
    dlc_graph *body = dlc_subgraph(g);
    OK(context, dlc_custom_register(g, "hosts", host_function, NULL));
    dlc_value h = dlc_input(body, "h", DLC_F32, 1, DIMS(SIZE(3))), y, end;
    dlc_custom_call(body, 1, &h, "hosts", 1, SHAPE(DLC_F32), 1, SHAPE(1), 1, DIMS(SIZE(3)), 1, &y);
    dlc_output(body, NULL, y);
    repeat(g, 1, &x, body, 2, &end);
    gradient_of(sum(end), x);
}
static void through_while(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context;
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value test = dlc_input(condition, "h", DLC_F32, 1, DIMS(SIZE(3))),
              h = dlc_input(body, "h", DLC_F32, 1, DIMS(SIZE(3))), end;
    dlc_output(condition, NULL, dlc_lt(sum(test), number(condition, 10)));
    dlc_output(body, NULL, dlc_exp(h));
    dlc_while(1, &x, condition, body, 1, &end);
    gradient_of(sum(end), x);
}
static void null_results(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    dlc_gradient(sum(x), 1, &x, NULL);
}
static void negative_count(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    dlc_gradient(sum(x), -1, &x, NULL);
}

static dlc_value mixed(dlc_value x, dlc_dtype narrow) {
    dlc_mixed_precision(1, &x, narrow, &x);
    return x;
}
static void mixed_type(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)context, (void)g;
    mixed(x, DLC_F32);
}
static void mixed_graphs(dlc_context *context, dlc_graph *g, dlc_value x) {
    (void)g;
    dlc_graph *other = new_graph(context);
    dlc_value y[] = {x, dlc_input(other, "z", DLC_F32, 1, DIMS(SIZE(3)))};
    dlc_mixed_precision(2, y, DLC_F16, y);
    dlc_graph_destroy(other);
}

static const mistake mistakes[] = {
    {"an integer", "dlc_gradient: variable 0 (i) is i32[3], expected a float type or c64", DLC_INVALID_ARGUMENT,
     of_integer},
    {"a loss of three elements", "dlc_gradient: the loss is f32[3], expected one element of a float type",
     DLC_INVALID_ARGUMENT, of_vector},
    {"an integer loss", "is i32[], expected a float type", DLC_INVALID_ARGUMENT, of_integer_loss},
    {"another graph", "a value of another graph", DLC_INVALID_ARGUMENT, of_another_graph},
    {"outside of a sub-graph", "is a value of a graph around the sub-graph", DLC_INVALID_ARGUMENT, of_outer_value},
    {"cotangent's shape", "dlc_vjp: cotangent 0 is f32[4], expected f32[3]", DLC_INVALID_ARGUMENT, wrong_cotangent},
    {"tangent's type", "dlc_jvp: tangent 0 is f64[3], expected f32[3]", DLC_INVALID_ARGUMENT, wrong_tangent_type},
    {"a host function", "<- exp <- custom_call <- x", DLC_UNSUPPORTED, through_host_function},
    {"a counted size", "use gather of x at the index of the first of each", DLC_UNSUPPORTED, through_unique},
    {"results at NULL", "dlc_gradient: results are NULL", DLC_INVALID_ARGUMENT, null_results},
    {"a negative count", "dlc_gradient: the number of variables is -1", DLC_INVALID_ARGUMENT, negative_count},
    {"a loop of unknown length", "dlc_gradient: while (node 1) has no gradient, on the way reduce_sum <- while <- x: ",
     DLC_UNSUPPORTED, through_while},
    {"a host function in a loop",
     "dlc_gradient: in scan (node 1), on the way reduce_sum <- scan <- x: custom_call (node 1) has no gradient",
     DLC_UNSUPPORTED, through_a_loop},
    {"a wide type", "dlc_mixed_precision: narrow is f32, expected f16 or bf16", DLC_INVALID_ARGUMENT, mixed_type},
    {"results of two graphs", "a value of another graph", DLC_INVALID_ARGUMENT, mixed_graphs},
};

static void test_mistakes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        dlc_graph *g = new_graph(context);
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
        m->make(context, g, x);
        if (dlc_graph_status(g) != m->status || !strstr(dlc_graph_message(g), m->message))
            failed("%s: %s: %s", m->what, dlc_status_text(dlc_graph_status(g)), dlc_graph_message(g));
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
}

/* Convolutions by windows whose size is a symbol: the gradients are those for the number. */
static void test_window(void **state) {
    enum { COUNT = 2 * 4 * 11, WINDOW = 6 * 2 * 3 };
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    float numbers[2][COUNT + WINDOW], dx[COUNT], dw[WINDOW];
    fill(dx, COUNT, 1);
    fill(dw, WINDOW, 2);
    for (int symbol = 0; symbol < 2; symbol++) {
        dlc_graph *g = new_graph(context);
        dlc_value x = dlc_input(g, "x", DLC_F32, 3, DIMS(SIZE(2), SIZE(4), SIZE(11))), y[2];
        dlc_value w = dlc_input(g, "w", DLC_F32, 3, DIMS(SIZE(6), SIZE(2), symbol ? SYMBOL("k") : SIZE(3)));
        const dlc_convolution_options options = {.struct_size = sizeof options,
                                                 .stride = SHAPE(3),
                                                 .stride_count = 1,
                                                 .low = SHAPE(2),
                                                 .low_count = 1,
                                                 .high = SHAPE(1),
                                                 .high_count = 1,
                                                 .dilation = SHAPE(2),
                                                 .dilation_count = 1,
                                                 .groups = 2};
        dlc_value c = dlc_convolution_with(x, w, &options);
        dlc_gradient(sum(dlc_mul(c, dlc_sin(c))), 2, (dlc_value[]){x, w}, y);
        add_outputs(g, 2, y);
        tensor t[4];
        (void)F32(&t[2], numbers[symbol], 2, 4, 11);
        (void)F32(&t[3], numbers[symbol] + COUNT, 6, 2, 3);
        run(context, g, 2, (const DLTensor *[]){F32(&t[0], dx, 2, 4, 11), F32(&t[1], dw, 6, 2, 3)}, 2,
            (tensor *[]){&t[2], &t[3]});
    }
    for (int i = 0; i < COUNT + WINDOW; i++) CHECK(fabsf(numbers[0][i] - numbers[1][i]) <= 1e-5f);
    dlc_context_destroy(context);
}

static void keep_line(void *user, const char *line) {
    snprintf(user, 256, "%s", line);
}

/* A value that the loss does not depend on has gradient 0, and the log names both. */
static void test_no_way(void **state) {
    (void)state;
    char line[256] = "";
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.log = keep_line;
    options.log_user = line;
    dlc_context *context = open_context("interp", &options);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3))), w = dlc_input(g, "w", DLC_F32, 1, DIMS(SIZE(2))), y[2];
    dlc_value loss = sum(dlc_add(x, dlc_stop_gradient(sum(w))));
    dlc_name(loss, "loss");
    line[0] = 0;
    dlc_gradient(loss, 1, &x, y);
    CHECK(!line[0]);
    dlc_gradient(loss, 2, (dlc_value[]){x, w}, y);
    CHECK(strcmp(line, "dlc_gradient: no way from w to the loss, loss: its gradient is 0") == 0);
    add_outputs(g, 2, y);
    float dx[] = {1, 2, 3}, dw[] = {1, 2}, gx[3], gw[2] = {7, 7};
    tensor t[4];
    (void)F32(&t[2], gx, 3);
    (void)F32(&t[3], gw, 2);
    run(context, g, 2, (const DLTensor *[]){F32(&t[0], dx, 3), F32(&t[1], dw, 2)}, 2, (tensor *[]){&t[2], &t[3]});
    CHECK(gw[0] == 0 && gw[1] == 0 && gx[0] == 1);
    dlc_context_destroy(context);
}

/* Poisoned arguments give poisoned results and no second message; so do values of no graph at all. */
static void test_poison(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g = new_graph(context);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3))),
              bad = dlc_matmul(x, dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(4), SIZE(4))));
    char first[1024];
    CHECK(dlc_graph_status(g) != DLC_OK);
    snprintf(first, sizeof first, "%s", dlc_graph_message(g));
    dlc_value y = gradient_of(sum(bad), x);
    CHECK(!dlc_value_ok(y) && strcmp(first, dlc_graph_message(g)) == 0);
    y = gradient_of(DLC_NONE, DLC_NONE);
    CHECK(!dlc_value_ok(y));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* Refused memory, at each site in turn. */
static void test_refused_memory(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    if (!context) skip();
    bool done = false;
    for (int64_t left = 0; !done; left++) {
        dlc_graph *g = new_graph(context);
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(3), SIZE(5)));
        dlc_value loss = sum(dlc_matmul(dlc_softmax(x, 0), dlc_gelu(dlc_transpose(x, 2, SHAPE(1, 0))))), y;
        CHECK(dlc_graph_status(g) == DLC_OK);
        atomic_store(&c.left, left);
        y = gradient_of(mixed(loss, DLC_BF16), x);
        atomic_store(&c.left, -1);
        done = dlc_value_ok(y);
        CHECK(done || dlc_graph_status(g) == DLC_OUT_OF_MEMORY);
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
    CHECK(atomic_load(&c.blocks) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_stays_zero),
        cmocka_unit_test(test_kinks),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_hessian),
        cmocka_unit_test(test_dependent_variables),
        cmocka_unit_test(test_fixed_carry),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_long_way),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_complex),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_mixed_precision),
    };
    return cmocka_run_group_tests_name("gradients of the public API", tests, NULL, NULL);
}
