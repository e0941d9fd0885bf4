/* Derivatives of registered tensor expressions, in f64: gradients, tangents and second derivatives against differences of the operators' own
 * kernels, which share nothing with the rows by which they differentiate; loops in C; the same from rows of the table. */
#include "api/extend.h"
#include "test/share.h"

#include <dlc/gradient.h>

enum { OPERANDS = 3, ELEMENTS = 256, RESULTS = 2 };

/* An operand of f64, or of i32 with elements in 0..limit-1. */
typedef struct operand {
    int rank, shape[4];
    int limit;
} operand;

typedef struct expression_case {
    const char *operands, *shape, *expression;
    operand operand[OPERANDS];
    int results;
    /* elements are multiples of this, so that comparisons of equals occur; 0: any */
    double step;
} expression_case;

/* ---- a program of everything that is compared -------------------------------------------------------------------------- */

typedef struct plan {
    dlc_context *context;
    dlc_program *program;
    const expression_case *c;
    int count, floats;
    int64_t elements[OPERANDS];
    double data[OPERANDS][ELEMENTS];
    int32_t whole[ELEMENTS];
} plan;

/* Outputs of a run: the loss, its gradient and its Hessian times a vector of ones for each operand of floats, and the tangent of the loss
 * along ones. */
typedef struct outcome {
    double loss, tangent, gradient[OPERANDS][ELEMENTS], hessian[OPERANDS][ELEMENTS];
} outcome;

static int64_t elements_of(const operand *o) {
    int64_t count = 1;
    for (int d = 0; d < o->rank; d++) count *= o->shape[d];
    return count;
}

/* Weights of the elements of a result, so that the loss depends on each in another way: 1 + 0.1*(flat index % 7) */
static dlc_value weighted(dlc_graph *g, dlc_value y) {
    dlc_value flat = dlc_reshape(y, 1, DIMS(SIZE(-1)));
    dlc_dim size = dlc_value_dim(flat, 0);
    dlc_value i = dlc_iota(g, DLC_F64, 1, &size, 0), seven = dlc_scalar(g, DLC_F64, 7);
    dlc_value weight = dlc_add(dlc_scalar(g, DLC_F64, 1), dlc_mul(dlc_rem(i, seven), dlc_scalar(g, DLC_F64, 0.1)));
    return dlc_reduce_sum(dlc_mul(weight, dlc_mul(flat, flat)), 0, NULL);
}

static dlc_value ones(dlc_graph *g, dlc_value like) {
    return dlc_add(dlc_mul(like, dlc_scalar(g, DLC_F64, 0)), dlc_scalar(g, DLC_F64, 1));
}

static dlc_status define_case(dlc_context *context, const expression_case *c, const char *name) {
    return define(
        context,
        (dlc_operator_options){
            .name = name, .operands = c->operands, .dtypes = "float", .shape = c->shape, .expression = c->expression});
}

/* symbols: sizes are symbols, one for each number. */
static void open_plan(plan *p, dlc_context *context, const expression_case *c, uint32_t seed, bool symbols) {
    static const char *const sizes[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
    char name[16];
    snprintf(name, sizeof name, "f%u", seed);
    *p = (plan){.context = context, .c = c};
    if (!symbols && define_case(context, c, name) != DLC_OK)
        failed("%s: %s", c->expression, dlc_error_message(context));
    dlc_graph *g;
    dlc_value x[OPERANDS], y[RESULTS], wrt[OPERANDS], unit[OPERANDS], out[2 + 2 * OPERANDS];
    OK(context, dlc_graph_create(context, &g));
    for (; p->count < OPERANDS && (c->operand[p->count].rank || c->operand[p->count].shape[0]); p->count++) {
        const operand *o = &c->operand[p->count];
        dlc_dim dims[4];
        char input[2] = {(char)('a' + p->count), 0};
        for (int d = 0; d < o->rank; d++)
            dims[d] = symbols && o->shape[d] < 10 ? SYMBOL(sizes[o->shape[d]]) : SIZE(o->shape[d]);
        x[p->count] = dlc_input(g, input, o->limit ? DLC_I32 : DLC_F64, o->rank, dims);
        p->elements[p->count] = elements_of(o);
        if (!o->limit) wrt[p->floats++] = x[p->count];
        for (int64_t i = 0; i < p->elements[p->count]; i++) {
            const double value = noise(&seed);
            p->data[p->count][i] = c->step > 0 ? c->step * round(value / c->step) : value;
            if (o->limit) p->whole[i] = (int32_t)((value + 1) / 2 * o->limit) % o->limit;
        }
    }
    dlc_apply_all(g, name, p->count, x, 0, NULL, c->results, y);
    out[0] = weighted(g, y[0]);
    for (int r = 1; r < c->results; r++) out[0] = dlc_add(out[0], weighted(g, y[r]));
    for (int k = 0; k < p->floats; k++) unit[k] = ones(g, wrt[k]);
    dlc_jvp(p->floats, wrt, unit, 1, out, &out[1]);
    dlc_gradient(out[0], p->floats, wrt, out + 2);
    dlc_hvp(out[0], p->floats, wrt, unit, out + 2 + p->floats);
    for (int i = 0; i < 2 + 2 * p->floats; i++) {
        snprintf(name, sizeof name, "%d", i);
        dlc_output(g, name, out[i]);
    }
    if (dlc_graph_status(g) != DLC_OK) failed("%s: %s", c->expression, dlc_graph_message(g));
    p->program = compile(context, g);
}

static void run(plan *p, outcome *o) {
    tensor in[OPERANDS], out[2 + 2 * OPERANDS];
    const DLTensor *inputs[OPERANDS];
    dlc_output_slot slots[2 + 2 * OPERANDS];
    int64_t shapes[OPERANDS][4];
    for (int k = 0, f = 0; k < p->count; k++) {
        const operand *c = &p->c->operand[k];
        for (int d = 0; d < c->rank; d++) shapes[k][d] = c->shape[d];
        if (c->limit) make_tensor(&in[k], DLC_I32, p->whole, c->rank, shapes[k]);
        if (!c->limit) make_tensor(&in[k], DLC_F64, p->data[k], c->rank, shapes[k]);
        inputs[k] = &in[k].dl;
        if (c->limit) continue;
        make_tensor(&out[2 + f], DLC_F64, o->gradient[k], c->rank, shapes[k]);
        make_tensor(&out[2 + p->floats + f++], DLC_F64, o->hessian[k], c->rank, shapes[k]);
    }
    make_tensor(&out[0], DLC_F64, &o->loss, 0, NULL);
    make_tensor(&out[1], DLC_F64, &o->tangent, 0, NULL);
    for (int i = 0; i < 2 + 2 * p->floats; i++) slots[i] = (dlc_output_slot){&out[i].dl, NULL};
    if (dlc_run(p->program, NULL, inputs, p->count, slots, 2 + 2 * p->floats) != DLC_OK)
        failed("%s: %s", p->c->expression, dlc_error_message(p->context));
}

static void expect(const plan *p, const char *what, int k, int64_t i, double got, double expected, double scale) {
    if (!(fabs(got - expected) <= 2e-6 * (1 + scale)))
        failed("%s: %s, operand %d, element %d: %.12g, expected %.12g", p->c->expression, what, k, (int)i, got,
               expected);
}

/* Central differences of the loss and of its gradient. */
static void check_differences(plan *p) {
    const double step = 1e-5;
    outcome *o = calloc(3, sizeof *o);
    double along = 0, hessian[OPERANDS][ELEMENTS] = {{0}};
    CHECK(o);
    run(p, &o[0]);
    for (int k = 0; k < p->count; k++) {
        for (int64_t i = 0; !p->c->operand[k].limit && i < p->elements[k]; i++) {
            const double old = p->data[k][i];
            for (int side = 0; side < 2; side++) {
                p->data[k][i] = old + (side ? -step : step);
                run(p, &o[1 + side]);
            }
            p->data[k][i] = old;
            if (p->c->step <= 0)
                expect(p, "gradient", k, i, o[0].gradient[k][i], (o[1].loss - o[2].loss) / (2 * step), fabs(o[0].loss));
            along += o[0].gradient[k][i];
            for (int m = 0; m < p->count; m++) /* the Hessian is symmetric: column i sums to its product with ones */
                for (int64_t e = 0; e < p->elements[m]; e++)
                    hessian[k][i] += (o[1].gradient[m][e] - o[2].gradient[m][e]) / (2 * step);
        }
    }
    expect(p, "tangent", 0, 0, o[0].tangent, along, fabs(along));
    for (int k = 0; k < p->count && p->c->step <= 0; k++)
        for (int64_t i = 0; !p->c->operand[k].limit && i < p->elements[k]; i++)
            expect(p, "second derivative", k, i, o[0].hessian[k][i], hessian[k][i], 10 + fabs(hessian[k][i]) * 10);
    free(o);
}

static void check_case(dlc_context *context, const expression_case *c, uint32_t seed) {
    plan *p = malloc(sizeof *p);
    CHECK(p);
    open_plan(p, context, c, seed, false);
    outcome *o = calloc(2, sizeof *o);
    CHECK(o);
    check_differences(p);
    run(p, &o[0]);
    dlc_program_destroy(p->program);
    open_plan(p, context, c, seed, true);
    run(p, &o[1]);
    dlc_program_destroy(p->program);
    expect(p, "tangent with symbols", 0, 0, o[1].tangent, o[0].tangent, 0);
    for (int k = 0; k < p->count; k++)
        for (int64_t i = 0; i < p->elements[k]; i++) {
            expect(p, "gradient with symbols", k, i, o[1].gradient[k][i], o[0].gradient[k][i], 0);
            expect(p, "second derivative with symbols", k, i, o[1].hessian[k][i], o[0].hessian[k][i], 0);
        }
    free(o);
    free(p);
}

/* ---- cases ----------------------------------------------------------------------------------------------------------------- */

static const expression_case cases[] = {
    {"x w",
     "T[..., n, k], T[k, m] -> T[..., n, m]",
     "y[..., i, j] = sum(k, x[..., i, k] * w[k, j])",
     {{3, {2, 3, 4}, 0}, {2, {4, 5}, 0}},
     1,
     0},
    {"x w",
     "T[b, k, n], T[b, m, k] -> T[m, b, n]",
     "y[j, b, i] = sum(k, x[b, k, i] * w[b, j, k])",
     {{3, {2, 3, 4}, 0}, {3, {2, 5, 3}, 0}},
     1,
     0},
    {"x w", "T[n, k], T[k] -> T[n]", "y[i] = sum(k, exp(x[i, k]) * w[k]) + w[0]", {{2, {3, 4}, 0}, {1, {4}, 0}}, 1, 0},
    {"x w", "T[n], T[k] -> T[n]", "y[i] = sum(k, l, x[k] * w[l]) * x[i]", {{1, {3}, 0}, {1, {4}, 0}}, 1, 0},
    {"x",
     NULL,
     "m[..., i] = max(j, x[..., i, j]); e[..., i, j] = exp(x[..., i, j] - m[..., i]);\n"
     "y[..., i, j] = e[..., i, j] / sum(k, e[..., i, k])",
     {{3, {2, 3, 5}, 0}},
     1,
     0},
    {"x", "T[n, m] -> T[n], T[m]", "y[i] = sum(j, x[i, j] * x[i, j]); z[j] = prod(i, x[i, j])", {{2, {4, 3}, 0}}, 2, 0},
    {"x", "T[9] -> T[4]", "y[i] = x[2*i + 1]", {{1, {9}, 0}}, 1, 0},
    {"x", "T[9] -> T[3]", "y[i] = x[8 - 3*i] * x[2*i]", {{1, {9}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = x[n - 1 - i] * x[i]", {{1, {5}, 0}}, 1, 0},
    {"x w", "T[n], T[k] -> T[n - k + 1]", "y[i] = sum(k, x[i + k] * w[k])", {{1, {9}, 0}, {1, {3}, 0}}, 1, 0},
    {"x w",
     "T[n], T[k] -> T[n + k - 1]",
     "y[i] = sum(k, x[i - k where true else 0] * w[k])",
     {{1, {6}, 0}, {1, {3}, 0}},
     1,
     0},
    {"x w",
     "T[2, 5, 7], T[3, 2, 3, 2] -> T[3, 3, 5]",
     "y[o, i, j] = sum(c, p, q, x[c, 2*i + p - 1, j + 3*q - 1 where true else 0] * w[o, c, p, q])",
     {{3, {2, 5, 7}, 0}, {4, {3, 2, 3, 2}, 0}},
     1,
     0},
    {"x", "T[n] -> T[n]", "y[i] = x[i] * x[i - 1 where true else 3]", {{1, {6}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = x[i + 1 where i % 2 == 0 else x[i]*x[i]]", {{1, {7}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = sum(j where j <= i, x[j] * x[i])", {{1, {6}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = max(j where j <= i, x[j])", {{1, {6}, 0}}, 1, 0},
    {"x", "T[n, m] -> T[n]", "y[i] = max(j, x[i, j]) * min(j, x[i, j])", {{2, {4, 5}, 0}}, 1, 0},
    {"x", "T[n, m] -> T[n]", "y[i] = max(j, x[i, j]) + min(j, x[i, j])", {{2, {4, 5}, 0}}, 1, 0.5},
    {"x", "T[8] -> T[6]", "y[i] = min(k: 3, x[i + k])", {{1, {8}, 0}}, 1, 0},
    {"x", "T[8] -> T[3]", "y[i] = max(k: 3, x[7 - 2*i - k])", {{1, {8}, 0}}, 1, 0.25},
    {"x", "T[n, m] -> T[n]", "y[i] = prod(j, x[i, j])", {{2, {3, 4}, 0}}, 1, 0},
    {"x", "T[n, n] -> T[n]", "y[i] = x[i, i]", {{2, {4, 4}, 0}}, 1, 0},
    {"x", "T[3, 5, 2] -> T[2, 3, 3]", "y[k, i, j] = x[i, i + j, k]", {{3, {3, 5, 2}, 0}}, 1, 0},
    {"x", "T[n, n] -> T[n, n]", "y[i, j] = x[j, i] * x[i, j] - x[i, i]", {{2, {3, 3}, 0}}, 1, 0},
    {"x ids",
     "T[v, d], i32[n] -> T[n, d]",
     "y[i, j] = x[cast.index(ids[i]), j where true else 0]",
     {{2, {5, 3}, 0}, {1, {4}, 6}},
     1,
     0},
    {"x ids",
     "T[v, d], i32[n] -> T[n, d]",
     "y[i, j] = x[cast.index(ids[i]), j where true else 1] * x[0, j]",
     {{2, {5, 3}, 0}, {1, {6}, 5}},
     1,
     0},
    {"x ids",
     "T[v, n], i32[n] -> T[n]",
     "y[i] = x[cast.index(ids[i]), i where true else 0]",
     {{2, {5, 4}, 0}, {1, {4}, 5}},
     1,
     0},
    {"x", "T[4] -> T[8]", "y[i] = x[i/2 where true else 0] * x[i % 4 where true else 0]", {{1, {4}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = x[(i - 3)/2 where true else 2]", {{1, {6}, 0}}, 1, 0},
    {"x", "T[n] -> T[n]", "y[i] = select(x[i] > 0, sqrt(abs(x[i])), tanh(x[i])) * cast.T(i + n)", {{1, {7}, 0}}, 1, 0},
    {"x", "T[n, m] -> T[n, 1 + m]", "y[i, j] = sum(k: 4, x[i, 0]) / cast.T(j + 1)", {{2, {3, 2}, 0}}, 1, 0},
    {"x", "T[n, m] -> T[n]", "y[i] = sum(j, x[i, j] / sum(k, exp(x[i, k]) + x[i, j]*x[i, k]))", {{2, {2, 3}, 0}}, 1, 0},
    {"x",
     "T[n, m] -> T[n]",
     "y[i] = select(any(j, x[i, j] > 0.9) || all(j, x[i, j] < 0.5), x[i, 0]*x[i, 0], x[i, 1])",
     {{2, {6, 3}, 0}},
     1,
     0},
    {"x", "T[n] -> T[2, n, 3]", "y[a, i, b] = x[i] * x[i]", {{1, {4}, 0}}, 1, 0},
    {"x", "T[] -> T[3]", "y[i] = x[] * cast.T(i)", {{0, {1}, 0}}, 1, 0},
    {"x",
     "T[n] -> T[n]",
     "y[i] = max(j where j <= i, x[j] - 2) * min(j where j >= i, x[j] + 2) * prod(j where j < i, x[j])",
     {{1, {5}, 0}},
     1,
     0},
    {"x", "T[n] -> T[2]", "y[i] = sum(k: 3, x[k + 0] * x[1*i])", {{1, {5}, 0}}, 1, 0},
    {"x", "T[n] -> T[]", "y[] = sum(i, pow(abs(x[i]) + 1, 1.5))", {{1, {5}, 0}}, 1, 0},
    {"a b", NULL, "y[...] = a[...] * exp(b[...]) + b[...]", {{2, {3, 2}, 0}, {2, {3, 2}, 0}}, 1, 0},
    {"x", "T[40] -> T[2]", "y[i] = sum(k: 36, x[4*i + k]*x[4*i + k])", {{1, {40}, 0}}, 1, 0},
    {"x",
     "T[n] -> T[n]",
     "m[i] = x[i] > 0.1; k[i] = cast.i32(3*x[i]); y[i] = select(m[i], x[i]*cast.T(k[i]), x[i]*x[i])",
     {{1, {6}, 0}},
     1,
     0},
};

static void test_cases(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (test_takes((int)i + t, 1)) check_case(context, &cases[i], (uint32_t)i + 1);
        dlc_context_destroy(context);
    }
}

/* x at c[d][0]*i + c[d][1]*j + c[d][2]*k + rest[d] in dimension d, for i < 3, j < 4, k < 2; padded: 0 outside of it. */
typedef struct subscripts {
    int c[2][3], rest[2], size[2];
    bool padded;
} subscripts;

static const int extents[] = {3, 4, 2};

static subscripts random_subscripts(uint32_t *seed) {
    subscripts s = {.padded = noise(seed) > 0};
    for (int d = 0; d < 2; d++) {
        int low = 0, high = 0;
        for (int a = 0; a < 3; a++) {
            const int c = noise(seed) > 0.3f ? 0 : (int)(noise(seed) * 3.49f);
            s.c[d][a] = c;
            *(c < 0 ? &low : &high) += c * (extents[a] - 1);
        }
        s.rest[d] = (s.padded ? (int)(noise(seed) * 2.5f) : 0) - low;
        s.size[d] = high - low + 1 + (noise(seed) > 0);
    }
    return s;
}

/* The element that is read at i, j, k; -1: none. */
static int element_at(const subscripts *s, int i, int j, int k) {
    int at[2];
    for (int d = 0; d < 2; d++) {
        at[d] = s->c[d][0] * i + s->c[d][1] * j + s->c[d][2] * k + s->rest[d];
        if (at[d] < 0 || at[d] >= s->size[d]) return -1;
    }
    return at[0] * s->size[1] + at[1];
}

/* y[i, j] = sum over k of x[...]*(1 + k + i + 3j): the loss and its gradient by loops. */
static void check_loops(dlc_context *context, const subscripts *s, const expression_case *c, uint32_t seed) {
    plan *p = malloc(sizeof *p);
    outcome *o = calloc(2, sizeof *o);
    CHECK(p && o);
    open_plan(p, context, c, seed, true);
    run(p, &o[0]);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            const double weight = 1 + 0.1 * ((i * 4 + j) % 7);
            double y = 0;
            for (int k = 0; k < 2; k++) {
                const int at = element_at(s, i, j, k);
                if (at >= 0) y += p->data[0][at] * (1 + k + i + 3 * j);
            }
            o[1].loss += weight * y * y;
            for (int k = 0; k < 2; k++) {
                const int at = element_at(s, i, j, k);
                if (at >= 0) o[1].gradient[0][at] += 2 * weight * y * (1 + k + i + 3 * j);
            }
        }
    expect(p, "loss", 0, 0, o[0].loss, o[1].loss, 0);
    for (int i = 0; i < s->size[0] * s->size[1]; i++)
        expect(p, "gradient by loops", 0, i, o[0].gradient[0][i], o[1].gradient[0][i], 0);
    dlc_program_destroy(p->program);
    free(o);
    free(p);
}

/* Reversed, strided, dilated, padded, with indices in common. */
static void test_random_subscripts(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    uint32_t seed = 77;
    for (uint32_t n = 0; n < (uint32_t)test_some(100); n++) {
        const subscripts s = random_subscripts(&seed);
        char index[2][64], shape[64], expression[256];
        for (int d = 0; d < 2; d++)
            snprintf(index[d], sizeof index[d], "%d*i + %d*j + %d*k + %d", s.c[d][0], s.c[d][1], s.c[d][2], s.rest[d]);
        snprintf(shape, sizeof shape, "T[%d, %d] -> T[3, 4]", s.size[0], s.size[1]);
        snprintf(expression, sizeof expression, "y[i, j] = sum(k: 2, x[%s, %s%s] * cast.T(1 + k + i + 3*j))", index[0],
                 index[1], s.padded ? " where true else 0" : "");
        const expression_case c = {"x", shape, expression, {{2, {s.size[0], s.size[1]}, 0}}, 1, 0};
        if (s.size[0] * s.size[1] > ELEMENTS) continue;
        check_case(context, &c, 100 + n);
        check_loops(context, &s, &c, 100 + n);
    }
    dlc_context_destroy(context);
}

/* ---- other properties ---------------------------------------------------------------------------------------------------- */

/* A softmax and a contraction by expressions and by rows of the table: the same gradients and second derivatives, in f32, and within
 * the roundings of results in bf16. */
static void test_same_as_rows(void **state) {
    (void)state;
    for (int t = 0; t < 4; t++) {
        const dlc_dtype dtype = t % 2 ? DLC_BF16 : DLC_F32;
        const char *target = all_targets[t / 2];
        dlc_context *context = open_context(target, NULL);
        if (!context) continue;
        CHECK(define_case(context, &cases[0], "product") == DLC_OK &&
              define_case(context, &cases[4], "rows") == DLC_OK);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(4))),
                  w = dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(4), SIZE(3)));
        char name[8];
        for (int way = 0; way < 2; way++) {
            dlc_value narrow[] = {dlc_cast(x, dtype), dlc_cast(w, dtype)}, y, wrt[] = {x, w}, out[4];
            y = way ? dlc_matmul(narrow[0], narrow[1]) : dlc_apply(g, "product", 2, narrow, 0, NULL);
            y = way ? dlc_softmax(y, 1) : dlc_apply(g, "rows", 1, &y, 0, NULL);
            y = dlc_cast(y, DLC_F32);
            y = dlc_reduce_sum(dlc_mul(y, dlc_mul(y, y)), 0, NULL);
            dlc_gradient(y, 2, wrt, out);
            dlc_hvp(y, 2, wrt, wrt, out + 2);
            for (int i = 0; i < 4; i++) {
                snprintf(name, sizeof name, "%d.%d", way, i);
                dlc_output(g, name, out[i]);
            }
        }
        float dx[5 * 4], dw[4 * 3], got[8][20];
        tensor in[2], outputs[8];
        dlc_output_slot slots[8];
        fill(dx, 20, 5);
        fill(dw, 12, 6);
        for (int i = 0; i < 8; i++)
            slots[i] = (dlc_output_slot){i % 2 ? F32(&outputs[i], got[i], 4, 3) : F32(&outputs[i], got[i], 5, 4), NULL};
        dlc_program *program = compile(context, g);
        OK(context,
           dlc_run(program, NULL, (const DLTensor *[]){F32(&in[0], dx, 5, 4), F32(&in[1], dw, 4, 3)}, 2, slots, 8));
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < (i % 2 ? 12 : 20); k++)
                if (!(fabsf(got[i][k] - got[4 + i][k]) <= (t % 2 ? 0.05f : 1e-5f)))
                    failed("%s, output %d, element %d: %g, by rows %g", target, i, k, (double)got[i][k],
                           (double)got[4 + i][k]);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static const dlc_operator_attribute attributes[] = {{"factor", DLC_ATTRIBUTE_NUMBER, NULL, "1"},
                                                    {"shift", DLC_ATTRIBUTE_INTEGER, NULL, "0"},
                                                    {"squared", DLC_ATTRIBUTE_BOOL, NULL, "false"},
                                                    {NULL, DLC_ATTRIBUTE_BOOL, NULL, NULL}};

/* Attributes are numbers of the node; the graph with its derivative prints and parses back. */
static void test_attributes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    OK(context,
       define(
           context,
           (dlc_operator_options){
               .name = "shifted",
               .operands = "x",
               .dtypes = "float",
               .attributes = attributes,
               .shape = "T[n] -> T[n]",
               .expression =
                   "v[i] = factor * x[i];\n"
                   "y[i] = select(squared, v[i - shift where true else 0] * v[i - shift where true else 0], v[i])"}));
    dlc_graph *g, *back;
    char *text[2];
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), gradient;
    const dlc_setting settings[] = {dlc_set_number("factor", 3), dlc_set_integer("shift", 1),
                                    dlc_set_integer("squared", 1)};
    dlc_gradient(dlc_reduce_sum(dlc_apply(g, "shifted", 1, &x, 3, settings), 0, NULL), 1, &x, &gradient);
    dlc_output(g, "g", gradient);
    OK(context, dlc_graph_print(g, &text[0]));
    OK(context, dlc_graph_parse(context, text[0], strlen(text[0]), &back));
    OK(context, dlc_graph_print(back, &text[1]));
    assert_string_equal(text[0], text[1]);
    float data[] = {1, -2, 0.5f, 4}, got[4];
    tensor in, out;
    dlc_program *program = compile(context, back);
    dlc_output_slot slot = {F32(&out, got, 4), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&in, data, 4)}, 1, &slot, 1));
    CLOSE(got, ((double[]){18, -36, 9, 0}), 4, 1e-6);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    for (int i = 0; i < 2; i++) dlc_text_free(context, text[i]);
    dlc_context_destroy(context);
}

/* Derivatives of a chain of n tensor expressions take memory in proportion to n. */
static void test_many(void **state) {
    (void)state;
    enum { MANY = 2000 };
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = "interp", options.limits.memory = 64 << 20;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    OK(context, define(context, (dlc_operator_options){
                                    .name = "f", .operands = "x", .expression = "y[i] = x[i] * sum(k, x[k])"}));
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), y = x, gradient;
    for (int i = 0; i < MANY; i++) y = dlc_apply(g, "f", 1, &y, 0, NULL);
    dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &gradient);
    OK(context, dlc_graph_status(g));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* Sizes of 0: gradients of their shapes, zeros where nothing reads an element. */
static void test_empty(void **state) {
    static const struct {
        const char *shape, *expression;
        int64_t dims[2], count;
    } empty[] = {{"T[n, m] -> T[n]", "y[i] = sum(j, x[i, j] * x[i, j])", {0, 3}, 0},
                 {"T[n, m] -> T[n]", "y[i] = max(j, x[i, j])", {3, 0}, 0},
                 {"T[n, m] -> T[m]", "y[j] = sum(i: n, x[n - 1 - i, j])", {0, 2}, 0},
                 {"T[n, m] -> T[n]", "y[i] = sum(j where j < 0, x[i, j])", {2, 3}, 6},
                 {"T[n, m] -> T[n + 2]", "y[i] = sum(j: 2, x[i/2, i + j where true else 0])", {0, 2}, 0},
                 {"T[n, m] -> T[n + 2]", "y[i] = x[i - 2, i - 3 where true else 0]", {0, 2}, 0},
                 {"T[n, m] -> T[n/2, m]", "y[i, j] = x[2*i, j] * x[2*i + 1, j]", {0, 2}, 0},
                 {"T[n, m] -> T[n/3, m]", "y[i, j] = x[3*i + 2, j]", {1, 2}, 2},
                 {"T[n, m] -> T[n/2, m]", "y[i, j] = x[n - 1 - 2*i, j]", {1, 2}, 2}};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
            for (int symbols = 0; symbols < 2; symbols++) {
                dlc_context *context = open_context(all_targets[t], NULL);
                if (!context) continue;
                const expression_case c = {"x", empty[i].shape, empty[i].expression, {{0, {0}, 0}}, 1, 0};
                if (define_case(context, &c, "f") != DLC_OK) failed("%s: %s", c.expression, dlc_error_message(context));
                dlc_graph *g;
                OK(context, dlc_graph_create(context, &g));
                dlc_value x = dlc_input(g, "x", DLC_F64, 2,
                                        symbols ? DIMS(SYMBOL("n"), SYMBOL("m"))
                                                : DIMS(SIZE(empty[i].dims[0]), SIZE(empty[i].dims[1])));
                dlc_value y = dlc_apply(g, "f", 1, &x, 0, NULL), out;
                dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &out);
                dlc_output(g, "g", out);
                double got[6] = {1, 1, 1, 1, 1, 1}, data[6] = {0};
                tensor in, result;
                dlc_output_slot slot = {&make_tensor(&result, DLC_F64, got, 2, empty[i].dims)->dl, NULL};
                dlc_program *program = compile(context, g);
                if (dlc_run(program, NULL, (const DLTensor *[]){&make_tensor(&in, DLC_F64, data, 2, empty[i].dims)->dl},
                            1, &slot, 1) != DLC_OK)
                    failed("%s: %s", c.expression, dlc_error_message(context));
                for (int64_t k = 0; k < empty[i].count; k++) CHECK(got[k] == 0);
                dlc_program_destroy(program);
                dlc_context_destroy(context);
            }
}

/* What cannot be differentiated says so. A text as long as hosts may write is no deeper on the stack than a short one. */
static void test_limits(void **state) {
    (void)state;
    enum { LONG = 3000 };
    dlc_context *context = open_context("interp", NULL);
    if (!context) skip();
    char *text = malloc(LONG * 32 + 100);
    CHECK(text);
    strcpy(text, "y[i] = x[i");
    for (int i = 0; i < LONG; i++) strcat(text, " + cast.index(x[i])");
    strcat(text, " where true else 0]");
    const expression_case wide = {"x",
                                  "T[a, b, c, d, e, f, g] -> T[]",
                                  "y[] = sum(a, b, c, d, e, f, g, h, i, j, k, l, m, n,"
                                  " x[a, b, c, d, e, f, g] * exp(x[h, i, j, k, l, m, n] * x[a, b, c, d, e, f, g]))",
                                  {{0, {0}, 0}},
                                  1,
                                  0},
                          many = {"x",
                                  "T[a, b, c, d, e, f, g] -> T[a - 1, b - 1, c - 1, d - 1, e - 1, f - 1]",
                                  "y[a, b, c, d, e, f] = sum(k: 2, l: 2, m: 2, n: 2, o: 2, p: 2, q: 2,"
                                  " x[a + k, b + l, c + m, d + n, e + o, f + p, q])",
                                  {{0, {0}, 0}},
                                  1,
                                  0},
                          deep = {"x", "T[n] -> T[n]", text, {{0, {0}, 0}}, 1, 0};
    OK(context, define_case(context, &wide, "wide"));
    OK(context, define_case(context, &deep, "deep"));
    OK(context, define_case(context, &many, "many"));
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F64, 1, DIMS(SIZE(3))), y = dlc_apply(g, "deep", 1, &x, 0, NULL), out;
    dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &out);
    if (!dlc_value_ok(out)) failed("%s", dlc_graph_message(g));
    x = dlc_input(g, "z", DLC_F64, 7, DIMS(SIZE(1), SIZE(1), SIZE(1), SIZE(1), SIZE(1), SIZE(2), SIZE(2)));
    y = dlc_apply(g, "wide", 1, &x, 0, NULL);
    dlc_gradient(y, 1, &x, &out);
    CHECK(dlc_graph_status(g) == DLC_UNSUPPORTED && !dlc_value_ok(out));
    assert_holds(dlc_graph_message(g),
                 "a part of the expression depends on 14 indices, at most 12, on the way wide <- z");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    x = dlc_input(g, "z", DLC_F64, 7, DIMS(SIZE(3), SIZE(3), SIZE(3), SIZE(3), SIZE(3), SIZE(2), SIZE(2)));
    y = dlc_apply(g, "many", 1, &x, 0, NULL);
    dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &out);
    CHECK(dlc_graph_status(g) == DLC_UNSUPPORTED && !dlc_value_ok(out));
    assert_holds(dlc_graph_message(g), "depends on 13 indices, at most 12");
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    free(text);
}

/* Refused memory, at each site in turn. */
static void test_refused_memory(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    if (!context) skip();
    OK(context, define_case(context, &cases[4], "rows"));
    OK(context, define_case(context, &cases[11], "windows"));
    bool done = false;
    for (int64_t left = 0; !done; left++) {
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 3, DIMS(SIZE(2), SIZE(5), SIZE(7))), in[2] = {x}, y;
        in[0] = dlc_apply(g, "rows", 1, &x, 0, NULL);
        in[1] = dlc_input(g, "w", DLC_F32, 4, DIMS(SIZE(3), SIZE(2), SIZE(3), SIZE(2)));
        dlc_value loss = dlc_reduce_sum(dlc_apply(g, "windows", 2, in, 0, NULL), 0, NULL);
        CHECK(dlc_graph_status(g) == DLC_OK);
        atomic_store(&c.left, left);
        dlc_gradient(loss, 1, &x, &y);
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
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_random_subscripts),
        cmocka_unit_test(test_same_as_rows), cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_many),         cmocka_unit_test(test_empty),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_refused_memory),
    };
    return cmocka_run_group_tests_name("gradients of tensor expressions", tests, NULL, NULL);
}
