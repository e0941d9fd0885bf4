/* Composites: common network layers, expanded into other operators. In f16 and bf16 they compute in f32 and round once, at the end. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/normalize.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- shared by expansions --------------------------------------------------------------------------------------- */

/* The axes of a checked list, ascending; all of them when it is empty. */
static int list_axes(const graph_attribute *axes, int rank, int64_t *out) {
    uint32_t set = graph_axes_of(axes, rank, true);
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (set >> i & 1) out[count++] = i;
    return count;
}

/* ---- softmax and its kin: s = x - max along an axis ------------------------------------------------------------- */

enum { SOFTMAX_AXIS };
enum { LOGSUMEXP_AXES, LOGSUMEXP_KEEP };

static void infer_softmax(graph_infer *infer) {
    graph_infer_axis(infer, infer->attribute[SOFTMAX_AXIS].integer, infer->operand[0].rank, "axis");
    infer->result[0] = infer->operand[0];
}

static void expand_softmax_of(graph_expand *e, bool logarithm) {
    graph *g = e->g;
    dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    int64_t axis = graph_axis_of(e->attribute[SOFTMAX_AXIS].integer, graph_shape_of(g, e->input[0])->rank);
    graph_id x = graph_widen(g, e->input[0]);
    graph_id shifted = graph_sub(g, x, graph_reduce_max(g, x, 1, &axis, true));
    graph_id power = graph_exp(g, shifted);
    graph_id sum = graph_reduce_sum(g, power, 1, &axis, true);
    graph_id y = logarithm ? graph_sub(g, shifted, graph_log(g, sum)) /* else one division per row; sum >= 1 */
                           : graph_mul(g, power, graph_div(g, graph_scalar_like(g, sum, 1), sum));
    e->result[0] = graph_cast(g, y, dtype);
}

static void expand_softmax(graph_expand *e) {
    expand_softmax_of(e, false);
}
static void expand_log_softmax(graph_expand *e) {
    expand_softmax_of(e, true);
}

/* x without its axes of attribute 0; attribute 1: with 1 in their place. Rows list AXES and KEEP first. */
static void infer_reduced(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    graph_infer_axes(infer, &infer->attribute[0], x->rank, "axis");
    uint32_t axes = graph_axes_of(&infer->attribute[0], x->rank, true);
    infer->result[0] = (graph_shape){.dtype = x->dtype};
    for (int i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            infer->result[0].dim[infer->result[0].rank++] = x->dim[i];
        else if (infer->attribute[1].integer)
            infer->result[0].dim[infer->result[0].rank++] = tir_index(infer->g->pool, 1);
    }
}

static graph_id as_result(graph *g, graph_id kept, dlc_dtype dtype, int count, const int64_t *axes, bool keep) {
    graph_id y = graph_cast(g, kept, dtype);
    for (int i = count; i-- > 0 && !keep;) y = graph_squeeze(g, y, (int)axes[i]);
    return y;
}

/* most + log(sum exp(x - most)); an infinite maximum `most` is the result itself. */
static void expand_logsumexp(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int64_t axes[DLC_MAX_RANK];
    int count = list_axes(&e->attribute[LOGSUMEXP_AXES], shape.rank, axes);
    graph_id x = graph_widen(g, e->input[0]);
    graph_id most = graph_reduce_max(g, x, count, axes, true);
    graph_id sum = graph_reduce_sum(g, graph_exp(g, graph_sub(g, x, most)), count, axes, true);
    graph_id infinite = graph_eq(g, graph_abs(g, most), graph_scalar_like(g, most, (double)__builtin_inff()));
    graph_id y = graph_select(g, infinite, most, graph_add(g, most, graph_log(g, sum)));
    e->result[0] = as_result(g, y, shape.dtype, count, axes, e->attribute[LOGSUMEXP_KEEP].integer);
}

/* ---- mean, variance --------------------------------------------------------------------------------------------- */

enum { MEAN_AXES, MEAN_KEEP, VARIANCE_CORRECTION };

static void expand_mean(graph_expand *e) {
    int64_t axes[DLC_MAX_RANK];
    int count = list_axes(&e->attribute[MEAN_AXES], graph_shape_of(e->g, e->input[0])->rank, axes);
    e->result[0] = graph_reduce_mean(e->g, e->input[0], count, axes, e->attribute[MEAN_KEEP].integer);
}

static void infer_variance(graph_infer *infer) {
    if (infer->attribute[VARIANCE_CORRECTION].integer < 0)
        graph_infer_fail(infer, "correction is %lld, expected at least 0",
                         (long long)infer->attribute[VARIANCE_CORRECTION].integer);
    infer_reduced(infer);
}

/* The mean of squared differences from the mean, in two passes. The mean has the result's shape, so that it is one node with a mean
 * that the host computes. */
static void expand_variance(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int64_t axes[DLC_MAX_RANK], correction = e->attribute[VARIANCE_CORRECTION].integer;
    int count = list_axes(&e->attribute[MEAN_AXES], shape.rank, axes);
    graph_id x = graph_widen(g, e->input[0]);
    bool keep = e->attribute[MEAN_KEEP].integer;
    graph_id mean = graph_reduce_mean(g, x, count, axes, keep);
    int64_t kept[DLC_MAX_RANK];
    int rank = 0;
    for (int i = 0, k = 0; i < shape.rank; i++) {
        bool reduced = k < count && axes[k] == i;
        k += reduced;
        if (!reduced || keep) kept[rank++] = i;
    }
    graph_id difference = graph_sub(g, x, graph_broadcast(g, mean, shape.rank, shape.dim, kept));
    graph_id sum = graph_reduce_sum(g, graph_mul(g, difference, difference), count, axes, keep);
    tir_expr number = tir_index(g->pool, 1);
    for (int i = 0; i < count; i++) number = tir_mul(g->pool, number, shape.dim[axes[i]]);
    number = tir_max(g->pool, tir_sub(g->pool, number, tir_index(g->pool, correction)), tir_index(g->pool, 0));
    graph_id y = graph_div(g, sum, graph_dimension(g, graph_shape_of(g, x)->dtype, number));
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- normalisation ---------------------------------------------------------------------------------------------- */

enum { NORM_AXIS, NORM_EPSILON };

/* Operands from number 1 on may be omitted; they have x's dtype and its dimensions from the axis on. */
static void infer_norm(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    int axis = graph_infer_axis(infer, infer->attribute[NORM_AXIS].integer, x->rank, "axis");
    graph_infer_same_dtype(infer, 0, infer->inputs);
    for (int i = 1; i < infer->inputs; i++) {
        if (infer->operand[i].rank < 0) continue;
        graph_infer_rank(infer, i, x->rank - axis);
        for (int d = 0; d < x->rank - axis; d++)
            graph_infer_equal(infer, infer->operand[i].dim[d], x->dim[axis + d],
                              "normalised dimensions of the operands");
    }
    infer->result[0] = *x;
}

static graph_normal normalise(graph *g, graph_id x, const graph_attribute *attribute, bool centred) {
    int64_t axes[DLC_MAX_RANK];
    const int rank = graph_shape_of(g, x)->rank, axis = graph_axis_of(attribute[NORM_AXIS].integer, rank);
    for (int i = axis; i < rank; i++) axes[i - axis] = i;
    return graph_normalise(g, graph_widen(g, x), rank - axis, axes, attribute[NORM_EPSILON].number, centred);
}

static void expand_norm(graph_expand *e, bool centred) {
    graph *g = e->g;
    graph_id y = normalise(g, e->input[0], e->attribute, centred).n;
    if (e->input[1]) y = graph_mul(g, y, graph_widen(g, e->input[1]));
    if (e->inputs > 2 && e->input[2]) y = graph_add(g, y, graph_widen(g, e->input[2]));
    e->result[0] = graph_cast(g, y, graph_shape_of(g, e->input[0])->dtype);
}

static void expand_layer_norm(graph_expand *e) {
    expand_norm(e, true);
}
static void expand_rms_norm(graph_expand *e) {
    expand_norm(e, false);
}

static void infer_batch_norm(graph_infer *infer) {
    graph_infer_channels(infer, infer->attribute[NORM_AXIS].integer);
}

/* (x - mean) * (scale / sqrt(variance + epsilon)) + bias; the factor is one number per channel. */
static void expand_batch_norm(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int64_t axis = graph_axis_of(e->attribute[NORM_AXIS].integer, shape.rank);
    graph_id p[4];
    for (int i = 0; i < 4; i++) p[i] = graph_widen(g, e->input[1 + i]);
    graph_id factor = graph_mul(g, p[0], graph_rsqrt(g, graph_add_number(g, p[3], e->attribute[NORM_EPSILON].number)));
    graph_id bias = graph_broadcast(g, p[1], shape.rank, shape.dim, &axis);
    graph_id centred =
        graph_sub(g, graph_widen(g, e->input[0]), graph_broadcast(g, p[2], shape.rank, shape.dim, &axis));
    graph_id y = graph_add(g, graph_mul(g, centred, graph_broadcast(g, factor, shape.rank, shape.dim, &axis)), bias);
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- linear, embedding, one_hot, cross_entropy ------------------------------------------------------------------ */

enum { LINEAR_TRANSPOSED };

static void infer_linear(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1], *bias = &infer->operand[2];
    bool transposed = infer->attribute[LINEAR_TRANSPOSED].integer;
    graph_infer_same_dtype(infer, 0, 3);
    if (x->rank < 1) graph_infer_fail(infer, "x has rank 0, expected at least 1");
    graph_infer_rank(infer, 1, 2);
    graph_infer_inner(infer, transposed,
                      transposed ? "the last dimensions of x and w" : "the last dimension of x and the first of w",
                      transposed ? "pass transposed=false" : "pass transposed=true");
    infer->result[0] = *x;
    infer->result[0].dim[x->rank - 1] = w->dim[!transposed];
    if (bias->rank < 0) return;
    graph_infer_rank(infer, 2, 1);
    graph_infer_equal(infer, bias->dim[0], w->dim[!transposed], "sizes of the bias and of the result's last dimension");
}

static void expand_linear(graph_expand *e) {
    graph *g = e->g;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    int64_t x_axis = x.rank - 1, w_axis = e->attribute[LINEAR_TRANSPOSED].integer;
    bool narrow = graph_sum_dtype(x.dtype) != x.dtype; /* the bias is added before rounding */
    graph_id y = graph_emit_with(g, "dot_general", 2, e->input, narrow ? 3 : 2,
                                 (graph_setting[]){graph_set_list("contract_x", 1, &x_axis),
                                                   graph_set_list("contract_w", 1, &w_axis),
                                                   graph_set_integer("result", 1)}); /* f32 */
    if (e->input[2]) y = graph_add(g, y, graph_widen(g, e->input[2]));
    e->result[0] = graph_cast(g, y, x.dtype);
}

static void infer_embedding(graph_infer *infer) {
    const graph_shape *table = &infer->operand[0], *ids = &infer->operand[1];
    graph_infer_indices(infer, 1);
    if (table->rank < 1) graph_infer_fail(infer, "table has rank 0, expected at least 1");
    if (table->rank - 1 + ids->rank > DLC_MAX_RANK)
        graph_infer_fail(infer, "the result has more than %d dimensions", DLC_MAX_RANK);
    graph_infer_reached(infer, table->dim[0]);
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = table->dtype};
    for (int i = 0; i < ids->rank; i++) y->dim[y->rank++] = ids->dim[i];
    for (int i = 1; i < table->rank; i++) y->dim[y->rank++] = table->dim[i];
}

static void expand_embedding(graph_expand *e) {
    e->result[0] = graph_gather(e->g, e->input[0], e->input[1], 0);
}

enum { ONE_HOT_DEPTH, ONE_HOT_AXIS, ONE_HOT_DTYPE };

static void infer_one_hot(graph_infer *infer) {
    const graph_shape *ids = &infer->operand[0];
    const graph_attribute *depth = &infer->attribute[ONE_HOT_DEPTH];
    graph_infer_indices(infer, 0);
    if (depth->count != 1) graph_infer_fail(infer, "depth has %d dimensions, expected 1", depth->count);
    if (ids->rank == DLC_MAX_RANK) graph_infer_fail(infer, "the result has more than %d dimensions", DLC_MAX_RANK);
    int axis = graph_infer_axis(infer, infer->attribute[ONE_HOT_AXIS].integer, ids->rank + 1, "axis");
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = (dlc_dtype)infer->attribute[ONE_HOT_DTYPE].integer, .rank = ids->rank + 1};
    for (int i = 0; i < y->rank; i++) y->dim[i] = i == axis ? depth->dims[0] : ids->dim[i - (i > axis)];
}

/* The dtype in which labels are compared with the indices of `count` classes. */
static dlc_dtype label_dtype(graph *g, graph_id labels, tir_expr count) {
    bool small = graph_shape_of(g, labels)->dtype != DLC_I64 && tir_range(g->pool, count).high <= INT32_MAX;
    return small ? DLC_I32 : DLC_I64;
}

/* bool of the given shape: is the index along `axis` the label? The labels have that shape without the axis. */
static graph_id is_label(graph *g, const graph_shape *shape, int axis, graph_id labels) {
    dlc_dtype dtype = label_dtype(g, labels, shape->dim[axis]);
    graph_id column = graph_expand_dims(g, graph_cast(g, labels, dtype), axis);
    return graph_eq(g, graph_iota(g, dtype, shape->rank, shape->dim, axis),
                    graph_broadcast_to(g, column, shape->rank, shape->dim));
}

/* bool: is the label one of `count` classes? */
static graph_id is_known(graph *g, graph_id labels, tir_expr count) {
    const dlc_dtype dtype = graph_shape_of(g, labels)->dtype;
    return graph_and(g, graph_le(g, graph_scalar_i64(g, dtype, 0), labels),
                     graph_lt(g, labels, graph_dimension(g, dtype, count)));
}

static void expand_one_hot(graph_expand *e) {
    graph_shape shape = *graph_shape_of(e->g, e->input[0]);
    int axis = graph_axis_of(e->attribute[ONE_HOT_AXIS].integer, ++shape.rank);
    for (int i = shape.rank - 1; i > axis; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[axis] = e->attribute[ONE_HOT_DEPTH].dims[0];
    graph_id hot = is_label(e->g, &shape, axis, e->input[0]);
    e->result[0] = graph_cast(e->g, hot, (dlc_dtype)e->attribute[ONE_HOT_DTYPE].integer);
}

enum { CROSS_AXIS };

static void infer_cross_entropy(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *labels = &infer->operand[1];
    graph_infer_indices(infer, 1);
    int axis = graph_infer_axis(infer, infer->attribute[CROSS_AXIS].integer, x->rank, "axis");
    graph_infer_rank(infer, 1, x->rank - 1);
    for (int i = 0; i < labels->rank; i++)
        graph_infer_equal(infer, x->dim[i + (i >= axis)], labels->dim[i],
                          "dimensions of the labels and of the logits without axis");
    infer->result[0] = *labels;
    infer->result[0].dtype = x->dtype;
}

static void expand_cross_entropy(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int64_t axis = graph_axis_of(e->attribute[CROSS_AXIS].integer, shape.rank);
    dlc_dtype dtype = label_dtype(g, e->input[1], shape.dim[axis]);
    graph_id x = graph_widen(g, e->input[0]), labels = graph_cast(g, e->input[1], dtype);
    graph_id shifted = graph_sub(g, x, graph_reduce_max(g, x, 1, &axis, true));
    graph_id sum = graph_reduce_sum(g, graph_exp(g, shifted), 1, &axis, false);
    graph_id hit = is_label(g, &shape, (int)axis, labels);
    graph_id own = graph_reduce_sum(g, graph_select(g, hit, shifted, graph_scalar_like(g, x, 0)), 1, &axis, false);
    graph_id known = is_known(g, labels, shape.dim[axis]);
    graph_id loss = graph_sub(g, graph_log(g, sum), own);
    e->result[0] = graph_cast(g, graph_select(g, known, loss, graph_scalar_like(g, loss, 0)), shape.dtype);
}

/* ---- rules of differentiation: shorter than those of the expansions, whose maxima cancel --------------------------- */

/* y (d - sum(y d)) */
static void tangent_softmax(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id y = graph_rule_result(rule, 0), d = rule->tangent[0];
    const int64_t axis = graph_axis_of(rule->attribute[SOFTMAX_AXIS].integer, graph_shape_of(g, y)->rank);
    rule->out[0] = graph_mul(g, y, graph_sub(g, d, graph_reduce_sum(g, graph_mul(g, y, d), 1, &axis, true)));
}

/* d - sum(exp(y) d) */
static void tangent_log_softmax(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id y = graph_rule_result(rule, 0), d = rule->tangent[0];
    const int64_t axis = graph_axis_of(rule->attribute[SOFTMAX_AXIS].integer, graph_shape_of(g, y)->rank);
    rule->out[0] = graph_sub(g, d, graph_reduce_sum(g, graph_mul(g, graph_exp(g, y), d), 1, &axis, true));
}

/* sum(exp(x - y) d) */
static void tangent_logsumexp(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0);
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t axes[DLC_MAX_RANK];
    tir_expr dim[DLC_MAX_RANK];
    const int count = list_axes(&rule->attribute[LOGSUMEXP_AXES], shape.rank, axes);
    const bool keep = rule->attribute[LOGSUMEXP_KEEP].integer != 0;
    memcpy(dim, shape.dim, sizeof dim);
    for (int i = 0; i < count; i++) dim[axes[i]] = tir_index(g->pool, 1);
    const graph_id y = graph_reshape(g, graph_rule_result(rule, 0), shape.rank, dim);
    const graph_id share = graph_exp(g, graph_sub(g, x, y));
    rule->out[0] = graph_reduce_sum(g, graph_multiply_no_nan(g, rule->tangent[0], share), count, axes, keep);
}

static void tangent_norm(graph_rule *rule, bool centred) {
    graph *g = rule->g;
    const graph_normal normal = normalise(g, rule->input[0], rule->attribute, centred);
    const graph_id d = rule->tangent[0] ? graph_normal_tangent(g, &normal, rule->tangent[0]) : 0;
    const graph_id scale = rule->input[1] ? graph_rule_operand(rule, 1) : 0;
    rule->out[0] = graph_scaled_tangent(g, normal.n, scale, d, rule->tangent[1], centred ? rule->tangent[2] : 0);
}
static void tangent_layer_norm(graph_rule *rule) {
    tangent_norm(rule, true);
}
static void tangent_rms_norm(graph_rule *rule) {
    tangent_norm(rule, false);
}

/* sum((softmax(x) - hit) d), where the label is one. */
static void tangent_cross_entropy(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0), d = rule->tangent[0];
    const graph_shape shape = *graph_shape_of(g, x);
    const int64_t axis = graph_axis_of(rule->attribute[CROSS_AXIS].integer, shape.rank);
    const dlc_dtype dtype = label_dtype(g, rule->input[1], shape.dim[axis]);
    const graph_id labels = graph_cast(g, rule->input[1], dtype);
    const graph_id hit = graph_cast(g, is_label(g, &shape, (int)axis, labels), shape.dtype);
    const graph_id sum =
        graph_reduce_sum(g, graph_mul(g, graph_sub(g, graph_softmax(g, x, (int)axis), hit), d), 1, &axis, false);
    rule->out[0] = graph_select(g, is_known(g, labels, shape.dim[axis]), sum, graph_scalar_like(g, sum, 0));
}

/* ---- references ------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE

/* Sets *most to the maximum of x[i*step], i < size (NaN if any element is), and *sum to the sum of exp(x - *most). */
static void row_exponentials(const double *x, int64_t size, int64_t step, double *most, double *sum) {
    *most = -INFINITY;
    *sum = 0;
    for (int64_t i = 0; i < size; i++)
        if (x[i * step] > *most || isnan(x[i * step])) *most = isnan(*most) ? *most : x[i * step];
    for (int64_t i = 0; i < size; i++) *sum += exp(x[i * step] - *most);
}

static void reference_softmax_of(const graph_reference *r, bool logarithm) {
    const graph_reference_rows k = graph_reference_rows_along(&r->operand[0], r->attribute[SOFTMAX_AXIS].integer);
    for (int64_t o = 0; o < k.outer * k.inner; o++) {
        int64_t start = o / k.inner * k.inner * k.size + o % k.inner;
        const double *x = r->operand[0].data + start;
        double most, sum;
        row_exponentials(x, k.size, k.inner, &most, &sum);
        for (int64_t i = 0; i < k.size; i++) {
            double shifted = x[i * k.inner] - most;
            r->result[0].data[start + i * k.inner] = logarithm ? shifted - log(sum) : exp(shifted) / sum;
        }
    }
}
static void reference_softmax(const graph_reference *r) {
    reference_softmax_of(r, false);
}
static void reference_log_softmax(const graph_reference *r) {
    reference_softmax_of(r, true);
}

/* Sets out[] to the elements that are reduced to the result element at `point`; returns their number. */
static int64_t gather_reduced(const graph_reference *r, const int64_t *point, double *out) {
    const graph_reference_tensor *x = &r->operand[0];
    bool reduced[DLC_MAX_RANK] = {false};
    for (int i = 0; i < r->attribute[0].count; i++) reduced[graph_axis_of(r->attribute[0].list[i], x->rank)] = true;
    for (int i = 0; i < x->rank && r->attribute[0].count == 0; i++) reduced[i] = true;
    int64_t at[DLC_MAX_RANK] = {0}, count = 0;
    GRAPH_REFERENCE_EACH(x, at) {
        bool same = true;
        for (int i = 0, k = 0; i < x->rank; i++) {
            if (!reduced[i])
                same &= at[i] == point[k++];
            else
                k += r->attribute[1].integer != 0;
        }
        if (same) out[count++] = x->data[graph_reference_at(x, at)];
    }
    return count;
}

static double mean_of(const double *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return sum / (double)count;
}

static double number_mean(const double *x, int64_t count, const graph_attribute *attribute) {
    (void)attribute;
    return mean_of(x, count);
}
static double number_variance(const double *x, int64_t count, const graph_attribute *attribute) {
    double mean = mean_of(x, count), sum = 0;
    int64_t divisor = count - attribute[VARIANCE_CORRECTION].integer;
    for (int64_t i = 0; i < count; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (double)(divisor > 0 ? divisor : 0);
}
static double number_logsumexp(const double *x, int64_t count, const graph_attribute *attribute) {
    (void)attribute;
    double most, sum;
    row_exponentials(x, count, 1, &most, &sum);
    return isinf(most) ? most : most + log(sum);
}

static void reference_reduced(const graph_reference *r, double (*f)(const double *, int64_t, const graph_attribute *)) {
    const graph_reference_tensor *y = &r->result[0];
    enum { MOST = 1 << 12 };
    double elements[MOST]; /* samples are small */
    int64_t point[DLC_MAX_RANK] = {0};
    if (graph_reference_count(&r->operand[0]) > MOST) return;
    GRAPH_REFERENCE_EACH(y, point)
        y->data[graph_reference_at(y, point)] = f(elements, gather_reduced(r, point, elements), r->attribute);
}
static void reference_mean(const graph_reference *r) {
    reference_reduced(r, number_mean);
}
static void reference_variance(const graph_reference *r) {
    reference_reduced(r, number_variance);
}
static void reference_logsumexp(const graph_reference *r) {
    reference_reduced(r, number_logsumexp);
}

static void reference_norm(const graph_reference *r, bool centre) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t axis = r->attribute[NORM_AXIS].integer, size = 1, count = graph_reference_count(x);
    for (int64_t i = axis < 0 ? axis + x->rank : axis; i < x->rank; i++) size *= x->dim[i];
    for (int64_t start = 0; start < count; start += size) {
        double mean = centre ? mean_of(x->data + start, size) : 0, square = 0;
        for (int64_t i = 0; i < size; i++) square += (x->data[start + i] - mean) * (x->data[start + i] - mean);
        double root = sqrt(square / (double)size + r->attribute[NORM_EPSILON].number);
        for (int64_t i = 0; i < size; i++) {
            double y = (x->data[start + i] - mean) / root;
            if (graph_reference_given(r, 1)) y *= r->operand[1].data[i];
            if (graph_reference_given(r, 2)) y += r->operand[2].data[i];
            r->result[0].data[start + i] = y;
        }
    }
}
static void reference_layer_norm(const graph_reference *r) {
    reference_norm(r, true);
}
static void reference_rms_norm(const graph_reference *r) {
    reference_norm(r, false);
}

static void reference_batch_norm(const graph_reference *r) {
    const graph_reference_rows k = graph_reference_rows_along(&r->operand[0], r->attribute[NORM_AXIS].integer);
    for (int64_t i = 0; i < graph_reference_count(&r->operand[0]); i++) {
        int64_t c = i / k.inner % k.size;
        double y = (r->operand[0].data[i] - r->operand[3].data[c]) /
                   sqrt(r->operand[4].data[c] + r->attribute[NORM_EPSILON].number);
        r->result[0].data[i] = y * r->operand[1].data[c] + r->operand[2].data[c];
    }
}

static void reference_linear(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *w = &r->operand[1], *y = &r->result[0];
    int64_t in = x->dim[x->rank - 1], out = y->dim[y->rank - 1];
    for (int64_t i = 0; i < graph_reference_count(y); i++) {
        double sum = 0;
        for (int64_t k = 0; k < in; k++)
            sum += x->data[i / out * in + k] * w->data[r->attribute[0].integer ? i % out * in + k : k * out + i % out];
        y->data[i] = sum + (graph_reference_given(r, 2) ? r->operand[2].data[i % out] : 0);
    }
}

static void reference_embedding(const graph_reference *r) {
    const graph_reference_tensor *table = &r->operand[0], *ids = &r->operand[1];
    int64_t size = 1;
    for (int i = 1; i < table->rank; i++) size *= table->dim[i];
    for (int64_t i = 0; i < graph_reference_count(ids) * size; i++) {
        int64_t row = (int64_t)fmin(fmax(ids->data[i / size], 0), (double)table->dim[0] - 1);
        r->result[0].data[i] = table->data[row * size + i % size];
    }
}

static void reference_one_hot(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    const graph_reference_rows k = graph_reference_rows_along(y, r->attribute[ONE_HOT_AXIS].integer);
    for (int64_t i = 0; i < graph_reference_count(y); i++)
        y->data[i] =
            r->operand[0].data[i / (k.inner * k.size) * k.inner + i % k.inner] == (double)(i / k.inner % k.size);
}

static void reference_cross_entropy(const graph_reference *r) {
    const graph_reference_tensor *labels = &r->operand[1];
    const graph_reference_rows k = graph_reference_rows_along(&r->operand[0], r->attribute[CROSS_AXIS].integer);
    for (int64_t o = 0; o < graph_reference_count(labels); o++) {
        const double *x = r->operand[0].data + o / k.inner * k.inner * k.size + o % k.inner;
        double most, sum;
        row_exponentials(x, k.size, k.inner, &most, &sum);
        if (labels->data[o] >= 0 && labels->data[o] < (double)k.size)
            r->result[0].data[o] = log(sum) - (x[(int64_t)labels->data[o] * k.inner] - most);
    }
}

#endif

/* ---- rows: along axes ------------------------------------------------------------------------------------------- */

#define FORM(name_, least_, most_, operands_, dtypes_, tolerance_) \
    COMPOSITE_ROW(name_, least_, most_, 1, operands_, dtypes_), .tolerance = tolerance_

#define AXIS(initial_) \
    { "axis", GRAPH_ATTR_INTEGER, NULL, initial_, "axis along which" }
#define AXES \
    { "axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes to reduce; empty: all" }
#define KEEP \
    { "keep", GRAPH_ATTR_BOOL, NULL, "false", "leave dimensions of 1 in their place" }
#define SOFTMAX_SAMPLES(name)                                                                                          \
    name "(T[5, 7])\n" name "(T[5, 7], axis=0)\n" name "(T[1])\n" name "(T[128])\n" name "(T[3, 0, 2], axis=1)\n" name \
         "(T[2, 11, 3], axis=-2)\n" name "(T[0, 5])\n" name "(T[2, 1, 3, 1, 2, 5], axis=2)"
#define REDUCED_SAMPLES(name)                                                                                    \
    name "(T[5, 7])\n" name "(T[5, 7], axes=[0])\n" name "(T[5, 7], axes=[-1], keep=true)\n" name "(T[])\n" name \
         "(T[4, 1, 7], axes=[0, 2])\n" name "(T[3, 0], axes=[0])\n" name                                         \
         "(T[2, 1, 3, 2, 2, 5], axes=[4, 1, 0], keep=true)"

static const graph_op row_softmax = {
    FORM(softmax, 1, 1, "x", "float", 128),
    .attribute = {AXIS("-1")},
    .jvp = tangent_softmax,
    .infer = infer_softmax,
    .bound = GRAPH_REFERENCE(graph_bound_softmax),
    .samples = SOFTMAX_SAMPLES("softmax"),
    .doc = "exp(x - m) / sum(exp(x - m)) along axis, m the greatest element there. ONNX Softmax.",
};
static const graph_op row_log_softmax = {
    FORM(log_softmax, 1, 1, "x", "float", 1024),
    .attribute = {AXIS("-1")},
    .jvp = tangent_log_softmax,
    .infer = infer_softmax,
    .bound = GRAPH_REFERENCE(graph_bound_log_softmax),
    .samples = SOFTMAX_SAMPLES("log_softmax"),
    .doc = "x - m - log(sum(exp(x - m))) along axis, m the greatest element there. ONNX LogSoftmax.",
};
static const graph_op row_logsumexp = {
    .aliases = "reduce_log_sum_exp",
    FORM(logsumexp, 1, 1, "x", "float", 64),
    .attribute = {AXES, KEEP},
    .jvp = tangent_logsumexp,
    .infer = infer_reduced,
    .bound = GRAPH_REFERENCE(graph_bound_log_softmax),
    .samples = REDUCED_SAMPLES("logsumexp"),
    .doc = "log(sum(exp(x))) over the axes, computed with x less its greatest element; -inf over nothing. ONNX "
           "ReduceLogSumExp.",
};
static const graph_op row_mean = {
    .aliases = "reduce_mean average",
    FORM(mean, 1, 1, "x", "float", 2),
    .linear = 1,
    .attribute = {AXES, KEEP},
    .infer = infer_reduced,
    .bound = GRAPH_REFERENCE(graph_bound_mean),
    .samples = REDUCED_SAMPLES("mean"),
    .doc = "Sum over the axes divided by the number of elements; NaN over nothing. NumPy mean.",
};
static const graph_op row_variance = {
    .aliases = "var",
    FORM(variance, 1, 1, "x", "float", 16),
    .attribute = {AXES,
                  KEEP,
                  {"correction", GRAPH_ATTR_INTEGER, NULL, "0", "what is taken off the number of elements"}},
    .infer = infer_variance,
    .bound = GRAPH_REFERENCE(graph_bound_variance),
    .samples = REDUCED_SAMPLES("variance") "\nvariance(T[13], correction=1)\nvariance(T[1], correction=1)",
    .doc = "Sum over the axes of (x - mean)^2, divided by the number of elements less correction (1: unbiased). "
           "NumPy var.",
};

/* ---- rows: normalisation ---------------------------------------------------------------------------------------- */

#define EPSILON \
    { "epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-05", "added to the mean square under the root" }
#define NORM_AXIS_SPEC \
    { "axis", GRAPH_ATTR_INTEGER, NULL, "-1", "first of the normalised axes, which go to the last" }

static const graph_op row_layer_norm = {
    .aliases = "layer_normalization",
    FORM(layer_norm, 1, 3, "x [scale] [bias]", "float", 64),
    .attribute = {NORM_AXIS_SPEC, EPSILON},
    .jvp = tangent_layer_norm,
    .infer = infer_norm,
    .bound = GRAPH_REFERENCE(graph_bound_norm),
    .samples = "layer_norm(T[5, 7], T[7], T[7])\nlayer_norm(T[5, 7])\nlayer_norm(T[5, 64], T[64])\n"
               "layer_norm(T[3, 5], _, T[5])\n"
               "layer_norm(T[2, 3, 5], T[3, 5], T[3, 5], axis=1, epsilon=0.001)\nlayer_norm(T[1], T[1])\n"
               "layer_norm(T[0, 5], T[5])",
    .doc = "(x - mean) / sqrt(variance + epsilon) * scale + bias; mean and variance over the axes from axis on, "
           "whose dimensions scale and bias have. ONNX LayerNormalization; Ba, Kiros, Hinton 2016.",
};
static const graph_op row_rms_norm = {
    .aliases = "rms_normalization",
    FORM(rms_norm, 1, 2, "x [scale]", "float", 16),
    .linear = 2,
    .attribute = {NORM_AXIS_SPEC, EPSILON},
    .jvp = tangent_rms_norm,
    .infer = infer_norm,
    .bound = GRAPH_REFERENCE(graph_bound_norm),
    .samples = "rms_norm(T[5, 7], T[7])\nrms_norm(T[5, 7])\nrms_norm(T[2, 3, 5], T[3, 5], axis=-2, epsilon=0.001)\n"
               "rms_norm(T[1])\n"
               "rms_norm(T[0, 5], T[5])",
    .doc = "x / sqrt(mean(x^2) + epsilon) * scale over the axes from axis on, whose dimensions scale has. ONNX "
           "RMSNormalization; Zhang and Sennrich 2019.",
};
static const graph_op row_batch_norm = {
    .aliases = "batch_normalization",
    FORM(batch_norm, 5, 5, "x scale bias mean variance", "float", 64),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "1", "axis of the channels"}, EPSILON},
    .infer = infer_batch_norm,
    .samples = "batch_norm(T[2, 5, 3, 3], T[5], T[5], T[5], T[5] in 0..2)\n"
               "batch_norm(T[3, 7], T[7], T[7], T[7], T[7] in 0..2, epsilon=0.1)\n"
               "batch_norm(T[3, 2, 5], T[5], T[5], T[5], T[5] in 0..2, axis=-1)\n"
               "batch_norm(T[0, 5], T[5], T[5], T[5], T[5] in 0..2)",
    .doc = "(x - mean) / sqrt(variance + epsilon) * scale + bias with given statistics, one per channel along axis. "
           "ONNX BatchNormalization in inference; Ioffe and Szegedy 2015.",
};

/* ---- rows: linear, embedding, one_hot, cross_entropy ------------------------------------------------------------ */

static const graph_op row_linear = {
    FORM(linear, 2, 3, "x w [bias]", "float", 2),
    .precision = GRAPH_NARROW,
    .attribute = {{"transposed", GRAPH_ATTR_BOOL, NULL, "false", "w is [out, in] instead of [in, out]"}},
    .infer = infer_linear,
    .bound = GRAPH_REFERENCE(graph_bound_contraction),
    .samples =
        "linear(T[5, 7], T[7, 3], T[3])\nlinear(T[5, 7], T[7, 3])\nlinear(T[5, 7], T[3, 7], T[3], transposed=true)\n"
        "linear(T[7], T[7, 3], T[3])\nlinear(T[2, 3, 7], T[7, 11], T[11])\nlinear(T[1, 1], T[1, 1], T[1])\n"
        "linear(T[0, 7], T[7, 3], T[3])\nlinear(T[3, 0], T[0, 2], T[2])",
    .doc = "x*w + bias over the last axis of x: x [..., in], w [in, out], bias [out], result [..., out]. f16 and "
           "bf16 round once, after the bias.",
};
static const graph_op row_embedding = {
    FORM(embedding, 2, 2, "table ids", "any", 0),
    .linear = 1,
    .infer = infer_embedding,
    .samples = "embedding(T[10, 3], i32[4] in 0..10)\nembedding(T[7, 2, 3], i64[2, 5] in 0..7)\n"
               "embedding(T[5], i32[] in 0..5)\n"
               "embedding(T[5, 4], i64[0] in 0..5)",
    .doc = "Row ids[i...] of table [count, ...]: result [i..., ...]. ids of an integer dtype, treated as by gather "
           "along axis 0.",
};
static const graph_op row_one_hot = {
    FORM(one_hot, 1, 1, "ids", "int", 0),
    GRAPH_NO_GRADIENT,
    .attribute = {{"depth", GRAPH_ATTR_DIMS, NULL, NULL, "number of classes, one dimension"},
                  {"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "where the classes stand in the result"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"}},
    .infer = infer_one_hot,
    .samples = "one_hot(T[5] in 0..7, depth=[7])\none_hot(T[2, 3] in 0..9, depth=[7], axis=0, dtype=bool)\n"
               "one_hot(T[] in 0..3, depth=[3])\none_hot(T[2, 3] in 0..4, depth=[4], axis=1, dtype=i32)\n"
               "one_hot(T[3], depth=[0])",
    .doc =
        "1 where the number along axis is ids, else 0; all 0 for ids outside 0..depth-1 (other numbers: y*(on - off) + off). ONNX OneHot.",
};
static const graph_op row_cross_entropy = {
    FORM(cross_entropy, 2, 2, "logits labels", "float", 1024),
    .attribute = {AXIS("-1")},
    .jvp = tangent_cross_entropy,
    .infer = infer_cross_entropy,
    .bound = GRAPH_REFERENCE(graph_bound_log_softmax),
    .samples = "cross_entropy(T[5, 7], i32[5] in 0..7)\ncross_entropy(T[7], i64[] in 0..7)\n"
               "cross_entropy(T[2, 7, 3], i64[2, 3] in -2..9, axis=1)\ncross_entropy(T[0, 7], i32[0] in 0..7)",
    .doc = "-log_softmax(logits)[label] along axis for each label; 0 for labels outside the classes, which so are "
           "ignored. ONNX SoftmaxCrossEntropyLoss, reduction none.",
};

extern const graph_op graph_row_attention; /* ops_attention.c */

const graph_op *const graph_ops_composite[] = {
    &row_softmax,    &row_log_softmax,   &row_logsumexp,       &row_mean,   &row_variance,
    &row_layer_norm, &row_rms_norm,      &row_batch_norm,      &row_linear, &row_embedding,
    &row_one_hot,    &row_cross_entropy, &graph_row_attention, NULL};
