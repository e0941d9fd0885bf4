/* Rules of bounds that rows name (graph/bound.h). */
#include "graph/bound.h"

#include <math.h>
#include <stdlib.h>

/* ---- elements that are picked */

/* Operands of dtypes other than the result's are indices: if one is inexact, it may select another element, and there is no bound. */
graph_bound graph_bound_picked(const graph_bound_node *b) {
    graph_bound y = {.integral = true, .low = INFINITY, .high = -INFINITY};
    bool inexact = false;
    for (int i = 0; i < b->inputs; i++) {
        if (!b->node->input[i]) continue;
        const graph_bound *in = &b->in[i];
        const bool index = graph_bound_shape(b, i)->dtype != b->y->dtype ||
                           (graph_op_operand_is_typed(b->op, 0) && !graph_op_operand_is_typed(b->op, i));
        inexact |= index && in->error > 0;
        if (index) continue;
        y.error = fmax(y.error, in->error);
        y.low = fmin(y.low, in->low);
        y.high = fmax(y.high, in->high);
        y.special |= in->special;
        y.integral &= in->integral;
    }
    if (y.low > y.high) y = graph_bound_of_dtype(b->y->dtype);
    if (inexact) y.error = INFINITY;
    return y;
}

/* and, or, xor of integers within the range: the range of as many bits. */
static graph_bound of_bits(graph_bound x, dlc_dtype dtype) {
    const graph_bound all = graph_bound_of_dtype(dtype);
    double bits = 1;
    while ((bits <= x.high && bits <= all.high) || (-bits > x.low && -bits > all.low)) bits *= 2;
    x.low = x.low < 0 ? -bits : 0;
    x.high = fmin(bits - 1, all.high);
    return x;
}

graph_bound graph_bound_scatter(const graph_bound_node *b) {
    graph_bound y = graph_bound_picked(b);
    const graph_attribute *combine = graph_bound_attribute(b, "combine");
    if (combine && combine->integer > 4) return of_bits(y, b->y->dtype);
    if (!combine || (combine->integer != 1 && combine->integer != 2)) return y;
    /* added or multiplied in a fixed order: exact operands give exact results */
    const double m = graph_bound_magnitude(&y);
    const double most = combine->integer == 1 ? m * (1 + graph_bound_count(b->g, graph_bound_shape(b, 2))) : INFINITY;
    graph_bound all = graph_bound_within(most);
    all.error = y.error > 0 || (b->excess && lib_dtype_is_narrow_float(b->y->dtype)) ? INFINITY : 0;
    all.special = y.special || most > graph_bound_largest(b->y->dtype);
    all.integral = y.integral && most <= 256;
    return all;
}

/* ---- the same steps everywhere */

static bool is_inexact(const graph_bound_node *b) {
    for (int i = 0; i < b->inputs; i++)
        if (b->in[i].error > 0) return true;
    return false;
}

graph_bound graph_bound_same_steps(const graph_bound_node *b) {
    graph_bound y = graph_bound_of_dtype(b->y->dtype);
    if (is_inexact(b) || (b->excess && lib_dtype_is_narrow_float(b->y->dtype))) y.error = INFINITY;
    return y;
}

graph_bound graph_bound_fused_steps(const graph_bound_node *b) {
    graph_bound y = graph_bound_within(INFINITY);
    y.special = true;
    y.error = graph_bound_is_apart() ? INFINITY : graph_bound_same_steps(b).error;
    return y;
}

graph_bound graph_bound_any_order(const graph_bound_node *b) {
    graph_bound y = graph_bound_fused_steps(b);
    y.error = INFINITY;
    return y;
}

/* ---- sums, products, extremes */

graph_bound graph_bound_sum(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0];
    return graph_bound_summed(b, graph_bound_terms(b), graph_bound_magnitude(x), x->error, x->special, x->integral);
}

graph_bound graph_bound_mean(const graph_bound_node *b) {
    const double terms = graph_bound_terms(b);
    graph_bound y = graph_bound_sum(b);
    if (y.error == 0 && b->excess && lib_dtype_is_narrow_float(b->y->dtype))
        y.error = graph_bound_epsilon(b->y->dtype, false) * graph_bound_magnitude(&y);
    y.error /= fmax(terms, 1);
    y.low = b->in[0].low;
    y.high = b->in[0].high;
    y.special |= terms == 0;
    y.integral = false;
    return y;
}

/* Is an element of the result that of no elements, the first number of the fold? */
static bool folds_nothing(const graph_bound_node *b) {
    const graph_attribute *exclusive = graph_bound_attribute(b, "exclusive");
    return graph_bound_terms(b) == 0 || (exclusive && exclusive->integer);
}

graph_bound graph_bound_product(const graph_bound_node *b) {
    graph_bound x = b->in[0];
    const double terms = graph_bound_terms(b), most = pow(fmax(graph_bound_magnitude(&x), 1), fmax(terms, 1));
    if (!lib_dtype_is_float(b->y->dtype)) return graph_bound_sum(b);
    graph_bound y = graph_bound_within(most);
    y.special = x.special || most > graph_bound_largest(b->y->dtype);
    y.integral = x.integral && most <= 256;
    if (folds_nothing(b)) x.low = fmin(x.low, 1), x.high = fmax(x.high, 1);
    if (terms <= 1) return x;
    if (x.integral && x.error == 0 && most <= 0x1p24) return y;
    y.error = most * terms * (graph_bound_epsilon(b->y->dtype, true) * 2 + x.error);
    if (lib_dtype_is_narrow_float(b->y->dtype)) y.error += most * graph_bound_epsilon(b->y->dtype, false);
    if (!(most < 1e4) || (x.special && (terms > 10 || x.error > 0))) y.error = INFINITY;
    return y;
}

graph_bound graph_bound_extreme(const graph_bound_node *b) {
    graph_bound x = b->in[0];
    if (!folds_nothing(b)) return x;
    const graph_bound all = graph_bound_of_dtype(b->y->dtype);
    x.low = all.low;
    x.high = all.high;
    x.special |= all.special;
    return x;
}

graph_bound graph_bound_bits(const graph_bound_node *b) {
    return of_bits(graph_bound_extreme(b), b->y->dtype);
}

graph_bound graph_bound_codes(const graph_bound_node *b) {
    const dlc_dtype encoded = lib_dtype_is_encoded(b->x->dtype) ? b->x->dtype : b->y->dtype;
    if (!lib_dtype_is_float(encoded)) return graph_bound_picked(b);
    graph_bound y = graph_bound_of_dtype(b->y->dtype);
    y.error = b->in[0].error > 0 ? INFINITY : 0;
    return y;
}

/* Two nested sums, each with weights that add up to at most 20. */
graph_bound graph_bound_winograd(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0];
    return graph_bound_summed(b, 400, graph_bound_magnitude(x), x->error, x->special, false);
}

/* ---- windows */

graph_bound graph_bound_window(const graph_bound_node *b) {
    const graph_attribute *op = graph_bound_attribute(b, "op");
    if (op && op->integer == 0) return graph_bound_sum(b);
    graph_bound x = b->in[0];
    const graph_bound all = graph_bound_of_dtype(b->y->dtype);
    x.special =
        all.special; /* windows that contain only padding: an infinity, or the last number of types without any */
    if (!lib_dtype_is_float(b->y->dtype) || lib_dtype_size(b->y->dtype) == 1) x.low = all.low, x.high = all.high;
    return x;
}

graph_bound graph_bound_average_pool(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0];
    const double terms = graph_bound_terms(b), m = graph_bound_magnitude(x);
    graph_bound y = graph_bound_summed(b, terms, m, x->error, x->special, false);
    if (y.error == 0 && b->excess && lib_dtype_is_narrow_float(b->y->dtype))
        y.error = graph_bound_epsilon(b->y->dtype, false) * terms * m;
    y.special = true; /* windows that contain only padding: 0/0 */
    y.low = -m;
    y.high = m;
    y.integral = false;
    return y;
}

/* ---- contractions */

/* On cuda, tiles multiply the zeros of an image's borders (targets/cuda/README.md): NaN or infinite weights give NaN. */
static bool multiplies_borders(void) {
    const char *target = getenv("DLC_TEST_TARGET");
    return target && strcmp(target, "cuda") == 0;
}

static void add_bias(const graph_bound_node *b, graph_bound *y) {
    const graph_bound *bias = &b->in[2];
    const double m = graph_bound_magnitude(bias);
    y->error += bias->error + (y->error > 0 ? m * graph_bound_epsilon(b->y->dtype, false) : 0);
    y->low -= m;
    y->high += m;
    y->special |= bias->special;
    y->integral = false;
    if (y->error > 0 && y->special && (b->in[0].error > 0 || b->in[1].error > 0)) y->error = INFINITY;
}

/* Sums of at most `terms` products of elements of the first two operands. */
static graph_bound of_products(const graph_bound_node *b, double terms) {
    const graph_bound *x = &b->in[0], *w = &b->in[1];
    const double a = graph_bound_magnitude(x), c = graph_bound_magnitude(w);
    const bool special = x->special || w->special;
    double e = x->error > 0 || w->error > 0 ? a * w->error + c * x->error + x->error * w->error : 0;
    if (isnan(e)) e = INFINITY; /* INFINITY * 0: an operand without a bound times an exact one */
    graph_bound y = graph_bound_summed(b, terms, a * c, e, special, x->integral && w->integral);
    if (lib_dtype_is_narrow_float(b->y->dtype) && b->op->class_ == GRAPH_COMPOSITE && b->excess)
        y.error += graph_bound_epsilon(b->y->dtype, false) * graph_bound_magnitude(&y);
    if (graph_bound_given(b, 2)) add_bias(b, &y);
    return y;
}

graph_bound graph_bound_contraction(const graph_bound_node *b) {
    const graph_attribute *contract = graph_bound_attribute(b, "contract_x");
    double terms = 1;
    if (!contract) return of_products(b, (double)graph_bound_dim(b->g, b->x, -1)); /* dot, matmul, linear */
    for (int i = 0; i < contract->count; i++) terms *= (double)graph_bound_dim(b->g, b->x, (int)contract->list[i]);
    return of_products(b, terms);
}

graph_bound graph_bound_einsum(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0];
    const double elements = graph_bound_count(b->g, b->x), results = fmax(1, graph_bound_count(b->g, b->y));
    if (b->inputs > 2) return graph_bound_any_order(b);
    if (b->inputs == 2) /* each label of the result is one of an operand */
        return of_products(b, elements * graph_bound_count(b->g, graph_bound_shape(b, 1)) / results);
    return graph_bound_summed(b, elements, graph_bound_magnitude(x), x->error, x->special, x->integral);
}

/* channels: the axis of the second operand for the result's channels, along which nothing is summed. */
static graph_bound of_windows(const graph_bound_node *b, int channels) {
    const graph_shape *w = graph_bound_shape(b, 1);
    double terms = 1;
    if (b->in[1].special && multiplies_borders()) return graph_bound_any_order(b);
    for (int i = 0; i < w->rank; i++)
        if (i != channels) terms *= (double)graph_bound_dim(b->g, w, i);
    return of_products(b, terms);
}

graph_bound graph_bound_convolution(const graph_bound_node *b) {
    return of_windows(b, 0);
}

graph_bound graph_bound_convolution_weights(const graph_bound_node *b) {
    return of_windows(b, 1);
}

graph_bound graph_bound_convolution_transposed(const graph_bound_node *b) {
    return of_windows(b, 1);
}

/* Identical arithmetic on machines that fuse products, if x is exact. Else all errors of x may add up in one result, and roundings differ.
 * No bound if the factors w are inexact. */
graph_bound graph_bound_fft(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0], *w = &b->in[1];
    const double turns = pow(fmax(1, 2 * graph_bound_magnitude(w)), graph_bound_attribute(b, "radices")->count);
    const double terms = 2 * (double)graph_bound_dim(b->g, b->x, 1) * turns;
    graph_bound y = graph_bound_within(terms * graph_bound_magnitude(x));
    y.special = x->special || w->special;
    if (x->error > 0 || graph_bound_is_apart())
        y.error = terms * x->error + 64 * graph_bound_epsilon(b->y->dtype, false) * graph_bound_magnitude(&y);
    if (w->error > 0 || (x->error > 0 && y.special)) y.error = INFINITY;
    return y;
}

/* A contraction, passes, or a convolution of twice as many points: sums of all points times factors of at most 1. */
graph_bound graph_bound_dft(const graph_bound_node *b) {
    const graph_bound *x = &b->in[0];
    const double points = fmax((double)graph_bound_dim(b->g, b->x, (int)graph_bound_attribute(b, "axis")->integer),
                               (double)graph_bound_attribute(b, "length")->integer);
    return graph_bound_summed(b, 64 * fmax(points, 1), graph_bound_magnitude(x), x->error, x->special, false);
}

/* Sums of elements times weights computed from positions, which add up to 1 (apart from signs). */
graph_bound graph_bound_resize(const graph_bound_node *b) {
    enum { TERMS = 64 };
    const graph_bound *x = &b->in[0];
    if (!graph_bound_attribute(b, "mode")->integer) return *x;
    return graph_bound_summed(b, TERMS, graph_bound_magnitude(x), x->error, x->special, false);
}

/* ---- rows along an axis: see the composites' definitions */

static double axis_size(const graph_bound_node *b, bool to_the_last) {
    if (!to_the_last) return graph_bound_terms(b);
    int first = (int)graph_bound_attribute(b, "axis")->integer;
    double size = 1;
    for (int i = first < 0 ? first + b->x->rank : first; i < b->x->rank; i++)
        size *= (double)graph_bound_dim(b->g, b->x, i);
    return size;
}

static graph_bound narrowed(const graph_bound_node *b, graph_bound y) {
    const graph_bound all = graph_bound_join(b);
    const double m = graph_bound_magnitude(&y);
    if (lib_dtype_is_narrow_float(b->y->dtype)) y.error += 2 * graph_bound_epsilon(b->y->dtype, false) * m + 0x1p-24;
    if (isnan(y.error) || m > graph_bound_largest(b->y->dtype) / 4 || (all.special && all.error > 0))
        y.error = INFINITY;
    y.integral = false;
    return y;
}

/* Equal terms, as for small integers, have equal rounding errors: n/16. */
static double softmax_error(const graph_bound_node *b, double n) {
    return graph_bound_epsilon(b->y->dtype, true) * (4 * sqrt(n) + n / 16 + 32) + 2 * b->in[0].error;
}

graph_bound graph_bound_softmax(const graph_bound_node *b) {
    graph_bound y = {.low = 0, .high = 1, .special = graph_bound_join(b).special};
    y.error = softmax_error(b, axis_size(b, false));
    return narrowed(b, y);
}

graph_bound graph_bound_log_softmax(const graph_bound_node *b) {
    const double n = axis_size(b, false), m = graph_bound_magnitude(&b->in[0]);
    graph_bound y = graph_bound_within(2 * m + log(n + 1));
    y.special = graph_bound_join(b).special || n == 0;
    y.error = softmax_error(b, n) + graph_bound_epsilon(b->y->dtype, true) * 8 * m;
    if (!(m < graph_bound_largest(b->y->dtype) / 4) || (b->inputs > 1 && b->in[1].error > 0)) y.error = INFINITY;
    return narrowed(b, y);
}

graph_bound graph_bound_variance(const graph_bound_node *b) {
    const double n = axis_size(b, false), m = graph_bound_magnitude(&b->in[0]), e = b->in[0].error;
    const double left = n - (double)graph_bound_attribute(b, "correction")->integer;
    const double rounding = graph_bound_epsilon(b->y->dtype, true) * 4 * (sqrt(n) + 4);
    graph_bound y = {.low = 0, .high = 4 * m * m * n / fmax(left, 1), .special = b->in[0].special || left <= 0};
    y.error = (4 * m * (2 * e + rounding * m) + rounding * 4 * m * m) * n / fmax(left, 1);
    if (!(m < 1e9) || (left <= 0 && (e > 0 || n > 1))) y.error = INFINITY;
    return narrowed(b, y);
}

/* (x - mean) / sqrt(variance + epsilon), times a scale, plus an offset. */
graph_bound graph_bound_norm(const graph_bound_node *b) {
    const double n = axis_size(b, true), m = graph_bound_magnitude(&b->in[0]);
    const double eps = graph_bound_epsilon(b->y->dtype, true), epsilon = graph_bound_attribute(b, "epsilon")->number;
    const double amplify = 1 / sqrt(epsilon), d = 2 * b->in[0].error + eps * (4 * sqrt(n) + 4) * m;
    double e = amplify * d * (1 + sqrt(n)) + sqrt(n) * amplify * d * amplify * d / 2 + eps * 8 * sqrt(n);
    double magnitude = sqrt(n) + e;
    for (int i = 1; i < b->inputs; i++) {
        if (!graph_bound_given(b, i)) continue;
        const double other = graph_bound_magnitude(&b->in[i]);
        if (i == 1) e = e * other + b->in[1].error * magnitude, magnitude *= fmax(1, other);
        if (i == 2) e += b->in[2].error, magnitude += other;
    }
    graph_bound y = graph_bound_within(magnitude);
    y.error = m < 1e9 ? e : INFINITY;
    y.special = graph_bound_join(b).special;
    if (graph_bound_given(b, 1) && b->in[1].special) y.error = INFINITY; /* infinity times a value near zero */
    return narrowed(b, y);
}

graph_bound graph_bound_attention(const graph_bound_node *b) {
    const graph_bound *q = &b->in[0], *k = &b->in[1], *v = &b->in[2];
    const graph_bound mask = graph_bound_given(b, 3) ? b->in[3] : (graph_bound){0};
    const double eps = graph_bound_epsilon(b->y->dtype, true), d = (double)graph_bound_dim(b->g, b->x, 3);
    const double t = (double)graph_bound_dim(b->g, graph_bound_shape(b, 1), 2), vm = graph_bound_magnitude(v);
    const double qm = graph_bound_magnitude(q), km = graph_bound_magnitude(k);
    double scale = graph_bound_attribute(b, "scale")->number;
    if (scale == 0) scale = 1 / sqrt(fmax(d, 1));
    const double scores = fabs(scale) * d * qm * km + graph_bound_magnitude(&mask);
    double wrong = fabs(scale) * d * (qm * k->error + km * q->error + q->error * k->error) + mask.error;
    wrong += eps * 4 * (sqrt(d) + 8) * scores;
    graph_bound y = graph_bound_within(vm);
    y.special = true;
    y.error = vm * (4 * wrong + eps * (8 * sqrt(t) + 32)) + v->error;
    if (lib_dtype_is_narrow_float(b->x->dtype)) y.error += 4 * graph_bound_epsilon(b->x->dtype, false) * vm + 0x1p-24;
    const bool special = q->special || k->special || v->special || mask.special;
    if (!(wrong < 0.1) || v->special || (is_inexact(b) && special)) y.error = INFINITY;
    return y;
}

/* rnn, gru, lstm with the usual activations: slopes are at most 1, states grow by at most 1 a step. An error in the state passes through
 * `hidden` products and, in gru and lstm, through products of gates and states. */
graph_bound graph_bound_recurrence(const graph_bound_node *b) {
    const graph_bound *in = b->in;
    const double xm = graph_bound_magnitude(&in[0]), wm = graph_bound_magnitude(&in[1]),
                 rm = graph_bound_magnitude(&in[2]);
    int64_t steps = 0, other = 0, width = 0, hidden = 0;
    const graph_shape *x = b->x, *w = graph_bound_shape(b, 2);
    const bool given = tir_is_const(b->g->pool, x->dim[0], &steps) && tir_is_const(b->g->pool, x->dim[1], &other) &&
                       tir_is_const(b->g->pool, x->dim[2], &width) && tir_is_const(b->g->pool, w->dim[2], &hidden);
    const bool usual = !*graph_bound_attribute(b, "activations")->string;
    if (!given || !usual || graph_bound_join(b).special) return graph_bound_any_order(b);
    double largest = 1, start = 0;
    for (int i = 5; i < b->inputs; i++)
        largest = fmax(largest, graph_bound_magnitude(&in[i])), start = fmax(start, in[i].error);
    steps = steps > other ? steps : other; /* either may come first */
    const double n = (double)hidden, eps = graph_bound_epsilon(b->y->dtype, true), grown = largest + (double)steps;
    const bool bias = b->inputs > 3;
    const double own =
        (double)width * (xm * in[1].error + wm * in[0].error) + n * grown * in[2].error + 2 * (bias ? in[3].error : 0);
    const double size =
        (double)width * xm * wm + n * grown * rm + 2 * (bias ? graph_bound_magnitude(&in[3]) : 0) + grown * largest;
    const double rounding = eps * 4 * ((double)width + n + 8) * (size + grown);
    double state = start;
    for (int64_t t = 0; t < steps; t++) {
        const double gate = own + rounding + (n * rm + largest) * state;
        state += 4 * grown * (gate + n * rm * grown * gate) + rounding;
    }
    graph_bound y = graph_bound_within(grown);
    y.error = state + 2 * graph_bound_epsilon(b->y->dtype, false) * grown;
    return y;
}

/* ---- sources */

/* Up to the size of its axis, or a size; doubled, since small floats round up. */
graph_bound graph_bound_positions(const graph_bound_node *b) {
    const graph_bound all = graph_bound_of_dtype(b->y->dtype);
    const graph_attribute *axis = graph_bound_attribute(b, "axis");
    const double most = axis ? 2 * (double)graph_bound_dim(b->g, b->y, (int)axis->integer) : 0x1p20;
    return (graph_bound){.low = fmax(all.low, -most), .high = fmin(all.high, most)};
}

graph_bound graph_bound_random(const graph_bound_node *b) {
    const double most = 16;
    graph_bound y = graph_bound_within(most);
    if (b->excess && lib_dtype_is_narrow_float(b->y->dtype)) y.error = most * graph_bound_epsilon(b->y->dtype, false);
    y.error += graph_bound_apart(b, most);
    return y;
}
