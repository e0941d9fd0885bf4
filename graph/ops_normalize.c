/* Normalisation along axes: hardmax, division by a norm, mean and variance normalisation. Composites; f16 and bf16 compute in f32
 * and round once. */
#include "graph/normalize.h"

#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- shared by all norms (normalize.h) */

graph_normal graph_normalise(graph *g, graph_id x, int count, const int64_t *axes, double epsilon, bool centred) {
    graph_normal normal = {.count = count, .centred = centred};
    memcpy(normal.axes, axes, (size_t)count * sizeof *axes);
    if (centred) x = graph_sub(g, x, graph_reduce_mean(g, x, count, axes, true));
    const graph_id square = graph_reduce_mean(g, graph_mul(g, x, x), count, axes, true);
    normal.factor = graph_rsqrt(g, graph_add_number(g, square, epsilon));
    normal.n = graph_mul(g, x, normal.factor);
    return normal;
}

static bool keeps_axes(const graph *g, const graph_normal *normal) {
    return graph_shape_of(g, normal->factor)->rank == graph_shape_of(g, normal->n)->rank;
}

/* x, of the factor's shape, for each element of n. */
static graph_id spread(graph *g, const graph_normal *normal, graph_id x) {
    const graph_shape shape = *graph_shape_of(g, normal->n);
    int64_t axes[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0, k = 0; i < shape.rank; i++) {
        const bool reduced = k < normal->count && normal->axes[k] == i;
        k += reduced;
        if (keeps_axes(g, normal) || !reduced) axes[count++] = i;
    }
    return graph_broadcast(g, x, shape.rank, shape.dim, axes);
}

/* The mean times the factor, with the other sign. */
static graph_id scaled_mean(graph *g, const graph_normal *normal, graph_id x) {
    if (normal->count) x = graph_reduce_mean(g, x, normal->count, normal->axes, keeps_axes(g, normal));
    return spread(g, normal, graph_neg(g, graph_multiply_no_nan(g, x, normal->factor)));
}

graph_id graph_normal_tangent(graph *g, const graph_normal *normal, graph_id d) {
    graph_id along = scaled_mean(g, normal, graph_mul(g, d, normal->n));
    graph_id moved = graph_multiply_no_nan(g, d, spread(g, normal, normal->factor));
    moved = graph_add(g, moved, graph_mul(g, along, normal->n));
    return normal->centred ? graph_add(g, moved, scaled_mean(g, normal, d)) : moved;
}

graph_id graph_scaled_tangent(graph *g, graph_id n, graph_id scale, graph_id d_n, graph_id d_scale, graph_id d_bias) {
    graph_id sum = d_n && scale ? graph_multiply_no_nan(g, d_n, scale) : d_n;
    if (d_scale) d_scale = graph_multiply_no_nan(g, d_scale, n);
    if (d_bias) d_bias = graph_broadcast_like(g, d_bias, n);
    for (int i = 0; i < 2; i++) {
        const graph_id next = i ? d_bias : d_scale;
        if (next) sum = sum ? graph_add(g, sum, next) : next;
    }
    return sum;
}

void graph_infer_channels(graph_infer *infer, int64_t axis) {
    const graph_shape *x = &infer->operand[0];
    const int at = graph_infer_axis(infer, axis, x->rank, "axis");
    graph_infer_same_dtype(infer, 0, infer->inputs);
    for (int i = 1; i < infer->inputs; i++) {
        graph_infer_rank(infer, i, 1);
        graph_infer_equal(infer, infer->operand[i].dim[0], x->dim[at], "number of channels of the operands");
    }
    infer->result[0] = *x;
}

void graph_infer_power(const graph_infer *infer, int64_t p) {
    if (p < 1 || p > 1 << 20) graph_infer_fail(infer, "p is %lld, expected 1 to %d", (long long)p, 1 << 20);
}

graph_id graph_norm_powers(graph *g, graph_id x, int64_t p) {
    if (p == 2) return graph_mul(g, x, x);
    const graph_id powers = graph_abs(g, x);
    return p == 1 ? powers : graph_pow(g, powers, graph_scalar_like(g, x, (double)p));
}

graph_id graph_norm_root(graph *g, graph_id sum, int64_t p) {
    if (p == 1) return sum;
    return p == 2 ? graph_sqrt(g, sum) : graph_pow(g, sum, graph_scalar_like(g, sum, 1 / (double)p));
}

/* ---- hardmax, lp_normalization: along one axis */

enum { LINE_AXIS, LINE_POWER };

static void infer_hardmax(graph_infer *infer) {
    graph_infer_axis(infer, infer->attribute[LINE_AXIS].integer, infer->operand[0].rank, "axis");
    infer->result[0] = infer->operand[0];
}

static void infer_lp_normalization(graph_infer *infer) {
    graph_infer_power(infer, infer->attribute[LINE_POWER].integer);
    infer_hardmax(infer);
}

/* Compares indices with arg_max. Comparing elements with the maximum would fail with excess precision, where two readers of x may see
 * different roundings. An axis that may be empty is extended by a lowest element: it never wins, since the first of equals does. */
static void expand_hardmax(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int64_t axis = graph_axis_of(e->attribute[LINE_AXIS].integer, shape.rank);
    const graph_setting setting[] = {graph_set_integer("axis", axis), graph_set_bool("keep", true),
                                     graph_set_integer("dtype", DLC_I64)};
    graph_id x = e->input[0];
    if (tir_range(g->pool, shape.dim[axis]).low < 1) {
        const int64_t none = 0, low[DLC_MAX_RANK] = {0};
        int64_t high[DLC_MAX_RANK] = {0}, zero = 0;
        high[axis] = 1;
        graph_id nothing = graph_literal(g, shape.dtype, 1, &none, &zero);
        x = graph_pad(g, x, graph_reduce_max(g, nothing, 1, &zero, false), low, high);
    }
    graph_id greatest = graph_emit_with(g, "arg_max", 1, &x, 3, setting);
    graph_id hit = graph_eq(g, graph_iota(g, DLC_I64, shape.rank, shape.dim, (int)axis), greatest);
    e->result[0] = graph_cast(g, hit, shape.dtype);
}

/* x / (sum |x|^p)^(1/p) */
static void expand_lp_normalization(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int64_t axis = graph_axis_of(e->attribute[LINE_AXIS].integer, shape.rank),
                  p = e->attribute[LINE_POWER].integer;
    graph_id x = graph_widen(g, e->input[0]);
    graph_id norm = graph_reduce_sum(g, graph_norm_powers(g, x, p), 1, &axis, true), zero = graph_scalar_like(g, x, 0);
    norm = graph_broadcast_like(g, graph_norm_root(g, norm, p), x);
    graph_id y = graph_select(g, graph_eq(g, norm, zero), graph_broadcast_like(g, zero, x), graph_div(g, x, norm));
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- mean_variance_normalization */

enum { MEAN_AXES, MEAN_EPSILON };

static void infer_mean_variance_normalization(graph_infer *infer) {
    graph_infer_axes(infer, &infer->attribute[MEAN_AXES], infer->operand[0].rank, "axes");
    infer->result[0] = infer->operand[0];
}

static void expand_mean_variance_normalization(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *axes = &e->attribute[MEAN_AXES];
    graph_id x = graph_widen(g, e->input[0]);
    x = graph_sub(g, x, graph_reduce_mean(g, x, axes->count, axes->list, true));
    graph_id deviation = graph_sqrt(g, graph_reduce_mean(g, graph_mul(g, x, x), axes->count, axes->list, true));
    graph_id y = graph_div(g, x, graph_add_number(g, deviation, e->attribute[MEAN_EPSILON].number));
    e->result[0] = graph_cast(g, y, graph_shape_of(g, e->input[0])->dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

static void reference_line(const graph_reference *r, bool hard) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows rows = graph_reference_rows_along(x, r->attribute[LINE_AXIS].integer);
    const int64_t n = rows.size, inner = rows.inner;
    for (int64_t i = 0; i < graph_reference_count(x); i++) {
        const double *line = x->data + i / inner / n * n * inner + i % inner;
        int64_t greatest = 0;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) {
            if (line[k * inner] > line[greatest * inner] || (isnan(line[k * inner]) && !isnan(line[greatest * inner])))
                greatest = k;
            if (!hard) sum += pow(fabs(line[k * inner]), (double)r->attribute[LINE_POWER].integer);
        }
        if (hard)
            r->result[0].data[i] = i / inner % n == greatest;
        else
            r->result[0].data[i] = sum == 0 ? 0 : x->data[i] / pow(sum, 1 / (double)r->attribute[LINE_POWER].integer);
    }
}
static void reference_hardmax(const graph_reference *r) {
    reference_line(r, true);
}
static void reference_lp_normalization(const graph_reference *r) {
    reference_line(r, false);
}

static void reference_mean_variance_normalization(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const uint32_t axes = graph_axes_of(&r->attribute[MEAN_AXES], x->rank, true);
    int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, at) {
        double sum = 0, square = 0, count = 0;
        for (int pass = 0; pass < 2; pass++) {
            memset(from, 0, sizeof from);
            GRAPH_REFERENCE_EACH(x, from) {
                bool same = true;
                for (int i = 0; i < x->rank; i++) same = same && (axes >> i & 1 || from[i] == at[i]);
                double value = x->data[graph_reference_at(x, from)];
                if (same && pass == 0) sum += value, count++;
                if (same && pass == 1) square += (value - sum / count) * (value - sum / count);
            }
        }
        int64_t i = graph_reference_at(x, at);
        r->result[0].data[i] = (x->data[i] - sum / count) / (sqrt(square / count) + r->attribute[MEAN_EPSILON].number);
    }
}

#endif

/* ---- rows */

#define FORM(name_, tolerance_) \
    COMPOSITE_ROW(name_, 1, 1, 1, "x", "float"), .infer = infer_##name_, .tolerance = tolerance_

static const graph_op row_hardmax = {
    FORM(hardmax, 0),
    GRAPH_NO_GRADIENT,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis along which"}},
    .samples =
        "hardmax(T[5, 7])\nhardmax(T[5, 7] in 0..2, axis=0)\nhardmax(T[13])\nhardmax(T[0, 3])\nhardmax(T[3, 0])\n"
        "hardmax(T[2, 3, 1, 2, 5], axis=-2)",
    .doc =
        "1 for the greatest element along axis, the first one of equals (NaN counts as greatest), 0 for the others. ONNX Hardmax.",
};
static const graph_op row_lp_normalization = {
    FORM(lp_normalization, 64),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis along which"},
                  {"p", GRAPH_ATTR_INTEGER, NULL, "2", "exponent, at least 1"}},
    .samples =
        "lp_normalization(T[5, 7])\nlp_normalization(T[5, 7], axis=0, p=1)\nlp_normalization(T[13] in 1..2, p=3)\n"
        "lp_normalization(T[0, 3])\nlp_normalization(T[3, 0])\nlp_normalization(T[2, 3, 2] in 0..0.0000001, axis=1)",
    .doc = "x / (sum of |x|^p along axis)^(1/p); 0 where that norm is 0. ONNX LpNormalization.",
};
static const graph_op row_mean_variance_normalization = {
    FORM(mean_variance_normalization, 256),
    .attribute = {{"axes", GRAPH_ATTR_INTEGERS, NULL, "[0, 2, 3]", "axes over which mean and variance are; empty: all"},
                  {"epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-09", "added to the deviation"}},
    .samples =
        "mean_variance_normalization(T[2, 3, 4, 5])\nmean_variance_normalization(T[5, 7], axes=[1])\n"
        "mean_variance_normalization(T[2, 3, 7], axes=[-1, 0], epsilon=0.1)\nmean_variance_normalization(T[13], axes=[])\n"
        "mean_variance_normalization(T[0, 3], axes=[1])",
    .doc =
        "(x - mean) / (sqrt(variance) + epsilon), mean and variance of x over the axes. ONNX MeanVarianceNormalization.",
};

const graph_op *const graph_ops_normalize[] = {&row_hardmax, &row_lp_normalization, &row_mean_variance_normalization,
                                               NULL};
