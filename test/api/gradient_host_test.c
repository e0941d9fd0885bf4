/* Derivatives of what hosts define: dlc_with_gradient, and registered operators, by a function, an expansion, or a tensor expression, against
 * closed forms and differences in double precision; what a host may do wrong. */
#include "api/extend.h"

#include <dlc/eager.h>
#include <dlc/gradient.h>

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static dlc_graph *new_graph(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    return g;
}

static dlc_value number(dlc_graph *g, double value) {
    return dlc_scalar(g, DLC_F32, value);
}
static dlc_value sum(dlc_value x) {
    return dlc_reduce_sum(x, 0, NULL);
}
static dlc_value vector(dlc_graph *g, const char *name, int n) {
    return dlc_input(g, name, DLC_F32, 1, DIMS(SIZE(n)));
}
static dlc_value gradient_of(dlc_value loss, dlc_value x) {
    dlc_value y;
    dlc_gradient(loss, 1, &x, &y);
    return y;
}

/* Compiles the graph of one input x[n] and outputs y[count], each of n floats, runs it, and compares with expected[count][n]. */
static void expect(dlc_context *context, dlc_graph *g, int n, float *x, int count, const dlc_value *y,
                   const double *expected) {
    enum { MOST = 6, LONGEST = 8 };
    float got[MOST][LONGEST];
    tensor in, out[MOST];
    dlc_output_slot slots[MOST];
    char name[8];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        dlc_output(g, name, y[i]);
        slots[i] = (dlc_output_slot){F32(&out[i], got[i], n), NULL};
    }
    dlc_program *program = compile(context, g);
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&in, x, n)}, 1, slots, count));
    for (int i = 0; i < count; i++) CLOSE(got[i], expected + i * n, (size_t)n, 2e-5);
    dlc_program_destroy(program);
}

static void on_all_targets(void (*test)(dlc_context *context)) {
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        test(context);
        dlc_context_destroy(context);
    }
}

/* ---- dlc_with_gradient ------------------------------------------------------------------------------------------------- */

typedef dlc_value forward_function(dlc_graph *g, dlc_value x);
typedef dlc_value backward_function(dlc_graph *g, dlc_value x, dlc_value y, dlc_value c);

/* An operator of one operand x[n] and one result of its shape. */
static dlc_value with_rule(dlc_graph *g, dlc_value x, int n, forward_function *f, backward_function *b) {
    dlc_graph *forward = dlc_subgraph(g), *backward = dlc_subgraph(g);
    dlc_output(forward, "y", f(forward, vector(forward, "x", n)));
    dlc_value bx = vector(backward, "x", n), by = vector(backward, "y", n), bc = vector(backward, "c", n), y;
    dlc_output(backward, "d", b(backward, bx, by, bc));
    dlc_with_gradient(1, &x, forward, backward, 1, &y);
    return y;
}

static dlc_value rounded(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_round(x);
}
static dlc_value straight(dlc_graph *g, dlc_value x, dlc_value y, dlc_value c) {
    return (void)g, (void)x, (void)y, c;
}
/* log(1 + exp(x)), whose derivative overflows if it is taken of the text */
static dlc_value softplus(dlc_graph *g, dlc_value x) {
    return dlc_log(dlc_add(number(g, 1), dlc_exp(x)));
}
static dlc_value softplus_back(dlc_graph *g, dlc_value x, dlc_value y, dlc_value c) {
    return (void)g, (void)y, dlc_mul(c, dlc_logistic(x));
}
/* By its result: the square root. */
static dlc_value root(dlc_graph *g, dlc_value x) {
    return (void)g, dlc_sqrt(x);
}
static dlc_value root_back(dlc_graph *g, dlc_value x, dlc_value y, dlc_value c) {
    return (void)x, dlc_div(c, dlc_mul(number(g, 2), y));
}

/* sum(round(x)^2): the gradient is 2 round(x), the Hessian 2, as if round(x) were x. */
static void straight_through(dlc_context *context) {
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 4), r = with_rule(g, x, 4, rounded, straight), y[3];
    dlc_value loss = sum(dlc_mul(r, r));
    y[0] = gradient_of(loss, x);
    y[1] = gradient_of(sum(y[0]), x);
    dlc_jvp(1, &x, &x, 1, &r, &y[2]);
    expect(context, g, 4, (float[]){0.4f, 0.6f, -1.2f, 2.5f}, 3, y,
           (double[]){0, 2, -2, 4, 2, 2, 2, 2, 0.4, 0.6, -1.2, 2.5});
}

/* First and second derivatives, in both modes; the rule holds where that of the text would be NaN. */
static void better_form(dlc_context *context) {
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), r = with_rule(g, x, 3, softplus, softplus_back), y[4];
    y[0] = gradient_of(sum(r), x);
    y[1] = gradient_of(sum(y[0]), x);
    dlc_jvp(1, &x, &x, 1, &r, &y[2]);
    dlc_jvp(1, &x, &x, 1, &y[0], &y[3]);
    double expected[12];
    float data[] = {-1.5f, 0.5f, 200};
    for (int i = 0; i < 3; i++) {
        const double s = 1 / (1 + exp(-(double)data[i]));
        expected[i] = s;
        expected[3 + i] = s * (1 - s);
        expected[6 + i] = s * data[i];
        expected[9 + i] = s * (1 - s) * data[i];
    }
    expect(context, g, 3, data, 4, y, expected);
}

static void by_result(dlc_context *context) {
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), r = with_rule(g, x, 3, root, root_back), y[3];
    y[0] = gradient_of(sum(r), x);
    y[1] = gradient_of(sum(y[0]), x);
    y[2] = gradient_of(sum(y[1]), x);
    double expected[9];
    float data[] = {0.25f, 1, 4};
    for (int i = 0; i < 3; i++) {
        expected[i] = 0.5 * pow((double)data[i], -0.5);
        expected[3 + i] = -0.25 * pow((double)data[i], -1.5);
        expected[6 + i] = 0.375 * pow((double)data[i], -2.5);
    }
    expect(context, g, 3, data, 3, y, expected);
}

/* (x, i, w) -> (x*w at i, w^2), with an operand of no float type, whose output is not read. */
static dlc_value operands_and_results(dlc_graph *g, dlc_value x, dlc_value w, dlc_value *square) {
    dlc_value indices = dlc_constant(g, DLC_I32, 1, SHAPE(2), ((const int32_t[]){2, 0})), in[] = {x, indices, w}, y[2];
    dlc_graph *forward = dlc_subgraph(g), *backward = dlc_subgraph(g), *both[] = {forward, backward};
    dlc_value a[2], i[2], b[2];
    for (int k = 0; k < 2; k++) {
        a[k] = vector(both[k], "x", 3);
        i[k] = dlc_input(both[k], "i", DLC_I32, 1, DIMS(SIZE(2)));
        b[k] = vector(both[k], "w", 2);
    }
    dlc_output(forward, "p", dlc_mul(dlc_gather(a[0], i[0], 0), b[0]));
    dlc_output(forward, "q", dlc_mul(b[0], b[0]));
    dlc_value p = vector(backward, "p", 2), q = vector(backward, "q", 2), cp = vector(backward, "cp", 2),
              cq = vector(backward, "cq", 2);
    (void)p, (void)q;
    dlc_scatter_options add = DLC_SCATTER_OPTIONS_INIT;
    add.combine = DLC_SCATTER_COMBINE_ADD;
    dlc_value zeros = dlc_mul(a[1], number(backward, 0)), two = number(backward, 2);
    dlc_output(backward, "dx", dlc_scatter_with(zeros, i[1], dlc_mul(cp, b[1]), 0, &add));
    dlc_output(backward, "di", i[1]);
    dlc_output(backward, "dw", dlc_add(dlc_mul(cp, dlc_gather(a[1], i[1], 0)), dlc_mul(two, dlc_mul(b[1], cq))));
    dlc_with_gradient(3, in, forward, backward, 2, y);
    if (square) *square = y[1];
    return y[0];
}

static void of_several(dlc_context *context) {
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), w = dlc_constant(g, DLC_F32, 1, SHAPE(2), ((const float[]){3, 5})), y[3], q;
    dlc_value p = operands_and_results(g, x, dlc_mul(w, dlc_gather(x, dlc_scalar_i64(g, DLC_I32, 1), 0)), &q);
    /* p = (3 x1 x2, 5 x1 x0), q = (9 x1^2, 25 x1^2) */
    dlc_value loss = dlc_add(sum(p), sum(q));
    y[0] = gradient_of(loss, x);
    dlc_hvp(loss, 1, &x, &x, &y[1]);
    y[2] = gradient_of(sum(p), x); /* q has no influence */
    const double a = 2, b = -1, c = 4;
    expect(context, g, 3, (float[]){2, -1, 4}, 3, y,
           (double[]){5 * b, 3 * c + 5 * a + 68 * b, 3 * b, 5 * b, 3 * c + 5 * a + 68 * b, 3 * b, 5 * b, 3 * c + 5 * a,
                      3 * b});
}

/* Cotangents of f16 are f32, and need not be rounded on the way: here they exceed f16. */
static void of_narrow_floats(dlc_context *context) {
    dlc_graph *g = new_graph(context), *forward = dlc_subgraph(g), *backward = dlc_subgraph(g);
    dlc_value x = vector(g, "x", 2), h = dlc_cast(x, DLC_F16), y, d;
    dlc_value f = dlc_input(forward, "x", DLC_F16, 1, DIMS(SIZE(2)));
    dlc_output(forward, "y", dlc_neg(f));
    dlc_input(backward, "x", DLC_F16, 1, DIMS(SIZE(2)));
    dlc_input(backward, "y", DLC_F16, 1, DIMS(SIZE(2)));
    dlc_output(backward, "d", dlc_neg(vector(backward, "c", 2)));
    dlc_with_gradient(1, &h, forward, backward, 1, &y);
    d = gradient_of(dlc_mul(sum(dlc_cast(y, DLC_F32)), number(g, 1e6)), x);
    expect(context, g, 2, (float[]){1, 2}, 1, &d, (double[]){-1e6, -1e6});
}

static void cube(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)outputs;
    const float *x = input[0]->data;
    float *y = output[0]->data;
    for (int64_t i = 0; i < input[0]->shape[0]; i++) y[i] = x[i] * x[i] * x[i];
}
static dlc_value cubed(dlc_graph *g, dlc_value x) {
    dlc_value y;
    dlc_custom_call(g, 1, &x, "cube", 1, SHAPE(DLC_F32), 1, SHAPE(1), 1, DIMS(SIZE(3)), 1, &y);
    return y;
}
static dlc_value cubed_back(dlc_graph *g, dlc_value x, dlc_value y, dlc_value c) {
    return (void)y, dlc_mul(c, dlc_mul(number(g, 3), dlc_mul(x, x)));
}
static void of_host_function(dlc_context *context) {
    dlc_graph *g = new_graph(context);
    OK(context, dlc_custom_register(g, "cube", cube, NULL));
    dlc_value x = vector(g, "x", 3), r = with_rule(g, x, 3, cubed, cubed_back), y[3] = {r};
    y[1] = gradient_of(sum(r), x);
    y[2] = gradient_of(sum(y[1]), x);
    expect(context, g, 3, (float[]){1, -2, 0.5f}, 3, y, (double[]){1, -8, 0.125, 3, 12, 0.75, 6, -12, 3});
}

/* x -> round(x/2)*2, n times in a scan, of which the straight-through gradient of the carry is 1. */
static void in_a_scan(dlc_context *context) {
    dlc_graph *g = new_graph(context), *body = dlc_subgraph(g);
    dlc_value x = vector(g, "x", 2), carry = vector(body, "carry", 2), end, y[2];
    dlc_output(body, "next", dlc_mul(with_rule(body, carry, 2, rounded, straight), number(body, 1.5)));
    dlc_scan_options options = DLC_SCAN_OPTIONS_INIT;
    options.length = DIMS(SIZE(3));
    options.length_count = 1;
    dlc_scan_with(g, 1, &x, body, 1, 0, &options, 1, &end);
    y[0] = end;
    y[1] = gradient_of(sum(end), x);
    /* 1.4 -> 1.5 -> 3 -> 4.5; -2.6 -> -4.5 -> -6 -> -9 */
    expect(context, g, 2, (float[]){1.4f, -2.6f}, 2, y, (double[]){4.5, -9, 3.375, 3.375});
}

static void test_with_gradient(void **state) {
    (void)state;
    on_all_targets(straight_through);
    on_all_targets(better_form);
    on_all_targets(by_result);
    on_all_targets(of_several);
    on_all_targets(of_narrow_floats);
    on_all_targets(of_host_function);
    on_all_targets(in_a_scan);
}

/* The program of the graph with and without the rule: the same text of stages. */
static void test_without_derivatives(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    char *text[2];
    for (int i = 0; i < 2; i++) {
        dlc_graph *g = new_graph(context);
        dlc_value x = vector(g, "x", 4), a = dlc_exp(x);
        dlc_output(g, "z", dlc_mul(i ? with_rule(g, a, 4, rounded, straight) : dlc_round(a), x));
        dlc_program *program = compile(context, g);
        OK(context, dlc_program_dump(program, "regions", (const int64_t *[]){SHAPE(4)}, (int[]){1}, 1, &text[i]));
        dlc_program_destroy(program);
    }
    assert_string_equal(text[0], text[1]);
    for (int i = 0; i < 2; i++) dlc_text_free(context, text[i]);
    dlc_context_destroy(context);
}

/* In an eager graph: evaluated at once, then again for its gradient. */
static void test_eager(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    dlc_graph *g;
    OK(context, dlc_eager_create(context, NULL, &g));
    float data[] = {0.4f, 0.6f, -1.2f, 2.5f}, got[4];
    tensor t, out;
    dlc_value x = dlc_eager_tensor(g, F32(&t, data, 4)), y = with_rule(g, x, 4, rounded, straight);
    OK(context, dlc_eager_read(g, y, F32(&out, got, 4)));
    CLOSE(got, ((double[]){0, 1, -1, 2}), 4, 0);
    OK(context, dlc_eager_read(g, gradient_of(sum(dlc_mul(y, x)), x), F32(&out, got, 4)));
    CLOSE(got, ((double[]){0.4, 1.6, -2.2, 4.5}), 4, 1e-6);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

static void test_text(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    char *text, *again;
    dlc_graph *g = new_graph(context), *back;
    dlc_value x = vector(g, "x", 3),
              y = operands_and_results(g, x, dlc_slice(x, 1, DIMS(SIZE(0)), 1, DIMS(SIZE(2))), NULL);
    dlc_output(g, "y", gradient_of(sum(y), x));
    OK(context, dlc_graph_print(g, &text));
    OK(context, dlc_graph_parse(context, text, strlen(text), &back));
    OK(context, dlc_graph_print(back, &again));
    assert_string_equal(text, again);
    dlc_text_free(context, text);
    dlc_text_free(context, again);
    dlc_graph_destroy(back);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- registered operators with a function for their gradient --------------------------------------------------------------- */

static const dlc_operator_attribute scale_attribute[] = {{"scale", DLC_ATTRIBUTE_NUMBER, NULL, "1"},
                                                         {NULL, DLC_ATTRIBUTE_NUMBER, NULL, NULL}};

/* y = scale*a^3*b, by a C function */
static dlc_status cubic(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                        DLTensor *const *output) {
    (void)user, (void)inputs, (void)outputs;
    const float *a = input[0]->data, *b = input[1]->data;
    float *y = output[0]->data;
    double scale = 0;
    dlc_callback_number(callback, "scale", &scale);
    for (int64_t i = 0; i < input[0]->shape[0]; i++) y[i] = (float)scale * a[i] * a[i] * a[i] * b[i];
    return DLC_OK;
}
/* That of b is the operator itself on 1: second derivatives pass through it again. */
static dlc_status cubic_gradient(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    dlc_graph *g = dlc_callback_graph(callback);
    const dlc_value a = dlc_callback_input(callback, 0), b = dlc_callback_input(callback, 1);
    const dlc_value c = dlc_callback_cotangent(callback, 0);
    double scale = 0;
    (void)user;
    if (count != 2 || !dlc_callback_number(callback, "scale", &scale) || dlc_value_ok(dlc_callback_result(callback, 1)))
        return DLC_INTERNAL;
    if (!dlc_value_ok(dlc_callback_result(callback, 0)) || dlc_value_ok(dlc_callback_cotangent(callback, -1)))
        return DLC_INTERNAL;
    const dlc_value ones = dlc_add(dlc_mul(b, number(g, 0)), number(g, 1)), in[] = {a, ones};
    const dlc_setting setting = dlc_set_number("scale", scale);
    cotangents[0] = dlc_mul(c, dlc_mul(dlc_mul(number(g, 3 * scale), dlc_mul(a, a)), b));
    cotangents[1] = dlc_mul(c, dlc_apply(g, "cubic", 2, in, 1, &setting));
    return DLC_OK;
}
static dlc_operator_options cubic_options(void) {
    return (dlc_operator_options){.name = "cubic",
                                  .operands = "a b",
                                  .dtypes = "f32",
                                  .attributes = scale_attribute,
                                  .shape = "T[n], T[n] -> T[n]",
                                  .call = cubic,
                                  .gradient = cubic_gradient};
}

static void of_c_function(dlc_context *context) {
    OK(context, define(context, cubic_options()));
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), in[] = {x, dlc_mul(x, x)}, y[4];
    const dlc_setting setting = dlc_set_number("scale", 2);
    y[0] = dlc_apply(g, "cubic", 2, in, 1, &setting); /* 2 x^5 */
    y[1] = gradient_of(sum(y[0]), x);
    y[2] = gradient_of(sum(y[1]), x);
    dlc_jvp(1, &x, &x, 1, y, &y[3]);
    double expected[12];
    float data[] = {1, -2, 0.5f};
    for (int i = 0; i < 3; i++) {
        const double v = data[i];
        expected[i] = 2 * pow(v, 5);
        expected[3 + i] = 10 * pow(v, 4);
        expected[6 + i] = 40 * pow(v, 3);
        expected[9 + i] = 10 * pow(v, 5);
    }
    expect(context, g, 3, data, 4, y, expected);
}

static dlc_status times_seven(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    (void)user, (void)count;
    cotangents[0] = dlc_mul(dlc_callback_cotangent(callback, 0), number(dlc_callback_graph(callback), 7));
    return DLC_OK;
}
static dlc_status square_expand(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)user, (void)count;
    results[0] = dlc_mul(dlc_callback_input(callback, 0), dlc_callback_input(callback, 0));
    return DLC_OK;
}

/* Expansions and expressions: by the function if there is one. */
static void of_other_operators(dlc_context *context) {
    OK(context, define(context, (dlc_operator_options){.name = "square_by_rule",
                                                       .operands = "x",
                                                       .shape = "T[n] -> T[n]",
                                                       .expand = square_expand,
                                                       .gradient = times_seven}));
    OK(context,
       define(context, (dlc_operator_options){
                           .name = "square", .operands = "x", .shape = "T[n] -> T[n]", .expand = square_expand}));
    OK(context, define(context, (dlc_operator_options){.name = "square_of_text",
                                                       .operands = "x",
                                                       .expression = "y[...] = x[...]*x[...]",
                                                       .gradient = times_seven}));
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), y[6];
    y[0] = gradient_of(sum(dlc_apply(g, "square_by_rule", 1, &x, 0, NULL)), x);
    y[1] = gradient_of(sum(dlc_apply(g, "square", 1, &x, 0, NULL)), x);
    y[2] = dlc_apply(g, "square_of_text", 1, &x, 0, NULL);
    dlc_jvp(1, &x, &x, 1, &y[2], &y[3]);
    y[4] = gradient_of(sum(y[2]), x);
    y[5] = gradient_of(sum(y[1]), x);
    expect(context, g, 3, (float[]){1, -2, 3}, 6, y,
           (double[]){7, 7, 7, 2, -4, 6, 1, 4, 9, 7, -14, 21, 7, 7, 7, 2, 2, 2});
}

/* y = x*x by a C function, whose rule has an `if`: both branches are linear in the cotangent. */
static dlc_status square(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                         DLTensor *const *output) {
    const float *x = input[0]->data;
    float *y = output[0]->data;
    (void)user, (void)callback, (void)inputs, (void)outputs;
    for (int64_t i = 0; i < input[0]->shape[0]; i++) y[i] = x[i] * x[i];
    return DLC_OK;
}
static dlc_status square_gradient(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    dlc_graph *g = dlc_callback_graph(callback), *positive = dlc_subgraph(g), *negative = dlc_subgraph(g);
    const dlc_value x = dlc_callback_input(callback, 0), c = dlc_callback_cotangent(callback, 0), zero = number(g, 0);
    (void)user, (void)count;
    dlc_output(positive, NULL, dlc_mul(dlc_mul(x, c), number(positive, 2)));
    dlc_output(negative, NULL, dlc_mul(dlc_mul(x, number(negative, 2)), c));
    dlc_if(dlc_gt(sum(x), zero), 0, NULL, positive, negative, 1, cotangents);
    return DLC_OK;
}
static void of_branches(dlc_context *context) {
    OK(context, define(context, (dlc_operator_options){.name = "square",
                                                       .operands = "x",
                                                       .shape = "T[n] -> T[n]",
                                                       .call = square,
                                                       .gradient = square_gradient}));
    dlc_graph *g = new_graph(context);
    dlc_value x = vector(g, "x", 3), y = dlc_apply(g, "square", 1, &x, 0, NULL), second;
    dlc_hvp(sum(dlc_mul(y, x)), 1, &x, &x, &second); /* 6x*x */
    dlc_output(g, "second", second);
    for (int sign = -1; sign < 2; sign += 2) {
        float data[3] = {1, 2, 3}, got[3];
        tensor in, out;
        for (int i = 0; i < 3; i++) data[i] *= (float)sign;
        dlc_program *program;
        dlc_output_slot slot = {F32(&out, got, 3), NULL};
        OK(context, dlc_compile(context, g, NULL, &program));
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&in, data, 3)}, 1, &slot, 1));
        CLOSE(got, ((double[]){6, 24, 54}), 3, 1e-6);
        dlc_program_destroy(program);
    }
    dlc_graph_destroy(g);
}
static void test_registered(void **state) {
    (void)state;
    on_all_targets(of_branches);
    on_all_targets(of_c_function);
    on_all_targets(of_other_operators);
}

/* ---- mistakes ------------------------------------------------------------------------------------------------------------ */

static dlc_status fails(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    (void)user, (void)count, (void)cotangents;
    return dlc_callback_fail(callback, DLC_UNSUPPORTED, "not on Sundays");
}
static dlc_status wrong_shape(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    (void)user, (void)count;
    cotangents[0] = sum(dlc_callback_cotangent(callback, 0));
    return DLC_OK;
}
static dlc_status wrong_type(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    (void)user, (void)count;
    cotangents[0] = dlc_cast(dlc_callback_cotangent(callback, 0), DLC_F64);
    return DLC_OK;
}
static dlc_status builder_mistake(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    (void)user, (void)count;
    cotangents[0] = dlc_matmul(dlc_callback_cotangent(callback, 0), number(dlc_callback_graph(callback), 1));
    return DLC_OK;
}
static dlc_status endless(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    const dlc_value x = dlc_add(dlc_callback_input(callback, 0), number(dlc_callback_graph(callback), 1));
    const dlc_value c = dlc_callback_cotangent(callback, 0),
                    y = dlc_apply(dlc_callback_graph(callback), "f", 1, &x, 0, NULL);
    (void)user, (void)count;
    dlc_vjp(1, &y, &c, 1, &x, cotangents);
    return DLC_OK;
}
static dlc_status not_linear(void *user, dlc_callback *callback, int count, dlc_value *cotangents) {
    const dlc_value c = dlc_callback_cotangent(callback, 0);
    (void)user, (void)count;
    cotangents[0] = dlc_select(dlc_gt(c, number(dlc_callback_graph(callback), 0)), c, dlc_neg(c));
    return DLC_OK;
}

static dlc_status same(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                       DLTensor *const *output) {
    (void)user, (void)callback, (void)inputs, (void)outputs;
    memcpy(output[0]->data, input[0]->data, sizeof(float) * (size_t)input[0]->shape[0]);
    return DLC_OK;
}

static const struct {
    const char *what;
    dlc_operator_gradient *gradient;
    bool forwards;
    dlc_status status;
    const char *message;
} bad_rules[] = {
    {"no rule", NULL, false, DLC_UNSUPPORTED,
     "dlc_gradient: f (node 1) has no gradient, on the way reduce_sum <- exp <- f <- x: set `gradient` in its dlc_operator_options"},
    {"no rule, forwards", NULL, true, DLC_UNSUPPORTED, "dlc_jvp: f (node 1) has no tangent"},
    {"fails", fails, false, DLC_UNSUPPORTED,
     "dlc_gradient: operator f (node 1): not on Sundays, on the way reduce_sum <- exp <- f <- x"},
    {"fails, forwards", fails, true, DLC_UNSUPPORTED, "dlc_jvp: operator f (node 1): not on Sundays, on the way"},
    {"shape", wrong_shape, false, DLC_INVALID_ARGUMENT,
     "operator f (node 1): its gradient has set the cotangent of operand x to f32[], expected f32[3], on the way"},
    {"type", wrong_type, false, DLC_INVALID_ARGUMENT, "of operand x to f64[3], expected f32[3], on the way"},
    {"builder", builder_mistake, false, DLC_INVALID_ARGUMENT, "operator f (node 1): matmul"},
    {"endless", endless, false, DLC_INVALID_ARGUMENT, "asks for its own gradient, deeper than 16, on the way f <-"},
    {"not linear", not_linear, true, DLC_UNSUPPORTED, "its cotangents are no linear function"},
};

static void test_bad_rules(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_rules / sizeof *bad_rules; i++) {
        dlc_context *context = open_context("interp", NULL);
        if (!context) skip();
        OK(context, define(context, (dlc_operator_options){.name = "f",
                                                           .operands = "x",
                                                           .shape = "T[n] -> T[n]",
                                                           .call = same,
                                                           .gradient = bad_rules[i].gradient}));
        dlc_graph *g = new_graph(context);
        dlc_value x = vector(g, "x", 3), y = dlc_exp(dlc_apply(g, "f", 1, &x, 0, NULL)), out = DLC_NONE;
        if (bad_rules[i].forwards)
            dlc_jvp(1, &x, &x, 1, &y, &out);
        else
            out = gradient_of(sum(y), x);
        if (dlc_graph_status(g) != bad_rules[i].status || !strstr(dlc_graph_message(g), bad_rules[i].message) ||
            dlc_value_ok(out))
            failed("%s: %s: %s", bad_rules[i].what, dlc_status_text(dlc_graph_status(g)), dlc_graph_message(g));
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
    dlc_context *context = open_context("interp", NULL);
    dlc_operator_options options = cubic_options();
    options.has_effects = true;
    CHECK(define(context, options) == DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "gradient is set for a function that has effects");
    dlc_context_destroy(context);
}

/* Sub-graphs of dlc_with_gradient for one operand x[3]. */
typedef struct pair {
    dlc_graph *g, *forward, *backward;
    dlc_value x, fx, c;
} pair;

static void captures(pair *p) {
    dlc_output(p->forward, "y", dlc_mul(p->fx, dlc_exp(p->x)));
    dlc_output(p->backward, "d", p->c);
}
static void no_output(pair *p) {
    dlc_output(p->forward, "y", p->fx);
}
static void two_results(pair *p) {
    dlc_output(p->forward, "y", p->fx);
    dlc_output(p->forward, "z", p->fx);
    dlc_output(p->backward, "d", p->c);
}
static void result_of_other_size(pair *p) {
    dlc_output(p->forward, "y", dlc_concat(2, (dlc_value[]){p->fx, p->fx}, 0));
    dlc_output(p->backward, "d", p->c);
}
static void derivative_of_other_size(pair *p) {
    dlc_output(p->forward, "y", p->fx);
    dlc_output(p->backward, "d", sum(p->c));
}
static void derivative_of_other_type(pair *p) {
    dlc_output(p->forward, "y", p->fx);
    dlc_output(p->backward, "d", dlc_cast(p->c, DLC_F64));
}

static const struct {
    const char *message;
    void (*make)(pair *p);
} bad_pairs[] = {
    {"sub-graph `backward` has 1 outputs for 2 operands: one each. A value of the graph around it", captures},
    {"sub-graph `backward` has 0 outputs for 1 operands", no_output},
    {"sub-graph `backward` has 3 inputs, expected 5", two_results},
    {"input 1 of sub-graph `backward` and the result: sizes of dimension 0 must be equal; they are 6 and 3",
     result_of_other_size},
    {"output 0 of sub-graph `backward` and its operand: ranks are 0 and 1", derivative_of_other_size},
    {"output 0 of sub-graph `backward` and its operand: element types are f64 and f32", derivative_of_other_type},
};

static void test_bad_pairs(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    for (size_t i = 0; i < sizeof bad_pairs / sizeof *bad_pairs; i++) {
        pair p = {.g = new_graph(context)};
        dlc_value y[2];
        p.x = vector(p.g, "x", 3);
        p.forward = dlc_subgraph(p.g);
        p.backward = dlc_subgraph(p.g);
        p.fx = vector(p.forward, "x", 3);
        vector(p.backward, "x", 3);
        vector(p.backward, "y", 3);
        p.c = vector(p.backward, "c", 3);
        bad_pairs[i].make(&p);
        dlc_with_gradient(1, &p.x, p.forward, p.backward, 1, y);
        if (dlc_graph_status(p.g) != DLC_INVALID_ARGUMENT || !strstr(dlc_graph_message(p.g), bad_pairs[i].message))
            failed("%s: %s", dlc_status_text(dlc_graph_status(p.g)), dlc_graph_message(p.g));
        dlc_graph_destroy(p.g);
    }
    dlc_graph *g = new_graph(context); /* forward mode through a function that has no derivative */
    OK(context, dlc_custom_register(g, "cube", cube, NULL));
    dlc_value x = vector(g, "x", 3), y = with_rule(g, x, 3, cubed, straight), out;
    dlc_jvp(1, &x, &x, 1, &y, &out);
    CHECK(dlc_graph_status(g) == DLC_OK);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* Refused memory, at each site in turn. */
static void test_refused_memory(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    if (!context) skip();
    OK(context, define(context, cubic_options()));
    bool done = false;
    for (int64_t left = 0; !done; left++) {
        dlc_graph *g = new_graph(context);
        dlc_value x = vector(g, "x", 3), in[] = {with_rule(g, x, 3, softplus, softplus_back), x};
        dlc_value loss = sum(dlc_apply(g, "cubic", 2, in, 0, NULL));
        CHECK(dlc_graph_status(g) == DLC_OK);
        atomic_store(&c.left, left);
        dlc_value y = gradient_of(loss, x);
        atomic_store(&c.left, -1);
        done = dlc_value_ok(y);
        if (!done && dlc_graph_status(g) != DLC_OUT_OF_MEMORY) failed("%s", dlc_graph_message(g));
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
    CHECK(atomic_load(&c.blocks) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_gradient), cmocka_unit_test(test_without_derivatives),
        cmocka_unit_test(test_eager),         cmocka_unit_test(test_text),
        cmocka_unit_test(test_registered),    cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_bad_pairs),     cmocka_unit_test(test_refused_memory),
    };
    return cmocka_run_group_tests_name("gradients of what hosts define", tests, NULL, NULL);
}
