/* Layers of networks beyond those of ops_composite.c: norms over groups of channels, losses, rotary embedding. They only
 * expand; in f16 and bf16 they compute in f32 and round once, at the end. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/normalize.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- group_norm, instance_norm: x [batch, channels, ...], scale and bias [channels] */

enum { GROUP_GROUPS, GROUP_EPSILON };
enum { INSTANCE_EPSILON };

static void infer_channel_norm(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    if (x->rank < 2) graph_infer_fail(infer, "x has rank %d, expected at least 2: batch and channels", x->rank);
    graph_infer_same_dtype(infer, 0, infer->inputs);
    for (int i = 1; i < infer->inputs; i++) {
        if (infer->operand[i].rank < 0) continue;
        graph_infer_rank(infer, i, 1);
        graph_infer_equal(infer, infer->operand[i].dim[0], x->dim[1], "number of channels of the operands");
    }
    infer->result[0] = *x;
}

static void infer_group_norm(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const int64_t groups = infer->attribute[GROUP_GROUPS].integer;
    infer_channel_norm(infer);
    if (groups < 1) graph_infer_fail(infer, "groups is %lld, expected at least 1", (long long)groups);
    tir_expr channels = infer->operand[0].dim[1], each = tir_div(pool, channels, tir_index(pool, groups));
    graph_infer_equal(infer, channels, tir_mul(pool, each, tir_index(pool, groups)),
                      "number of channels and a multiple of groups");
}

/* x as [batch, groups, channels of a group, positions] (without the third dimension if a group is one channel), normalised over the axes
 * after groups. */
typedef struct channel_norm {
    int rank;
    tir_expr dims[4];
    graph_normal normal;
} channel_norm;

static channel_norm normalise_channels(graph *g, graph_id x, tir_expr groups, double epsilon) {
    const graph_shape shape = *graph_shape_of(g, x);
    const bool several = tir_equal(g->pool, groups, shape.dim[1]) != TIR_YES;
    channel_norm c = {3 + several, {shape.dim[0], groups, tir_div(g->pool, shape.dim[1], groups)}, {0}};
    tir_expr *positions = &c.dims[c.rank - 1];
    *positions = tir_index(g->pool, 1);
    for (int i = 2; i < shape.rank; i++) *positions = tir_mul(g->pool, *positions, shape.dim[i]);
    x = graph_reshape(g, graph_widen(g, x), c.rank, c.dims);
    c.normal = graph_normalise(g, x, c.rank - 2, (int64_t[]){2, 3}, epsilon, true);
    return c;
}

/* A number for each channel. */
static graph_id by_channel(graph *g, const channel_norm *c, graph_id x) {
    x = graph_reshape(g, graph_widen(g, x), c->rank - 2, c->dims + 1);
    return graph_broadcast(g, x, c->rank, c->dims, (int64_t[]){1, 2});
}

static void expand_channel_norm(graph_expand *e, tir_expr groups, double epsilon) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const channel_norm c = normalise_channels(g, e->input[0], groups, epsilon);
    graph_id y = c.normal.n;
    for (int i = 1; i < e->inputs; i++) {
        if (!e->input[i]) continue;
        const graph_id own = by_channel(g, &c, e->input[i]);
        y = i == 1 ? graph_mul(g, y, own) : graph_add(g, y, own);
    }
    e->result[0] = graph_cast(g, graph_reshape(g, y, shape.rank, shape.dim), shape.dtype);
}

static void tangent_channel_norm(graph_rule *rule, tir_expr groups, double epsilon) {
    graph *g = rule->g;
    const graph_shape shape = *graph_shape_of(g, rule->input[0]);
    channel_norm c = normalise_channels(g, rule->input[0], groups, epsilon);
    graph_id d[3] = {0}, scale = rule->input[1] ? by_channel(g, &c, rule->input[1]) : 0;
    if (scale && c.rank == 3) {
        const tir_expr kept[] = {tir_index(g->pool, 1), c.dims[1], tir_index(g->pool, 1)};
        c.normal.factor = graph_mul(g, c.normal.factor, graph_reshape(g, graph_rule_operand(rule, 1), c.rank, kept));
        scale = 0;
    }
    if (rule->tangent[0]) d[0] = graph_normal_tangent(g, &c.normal, graph_reshape(g, rule->tangent[0], c.rank, c.dims));
    for (int i = 1; i < rule->inputs; i++)
        if (rule->tangent[i]) d[i] = by_channel(g, &c, rule->tangent[i]);
    const graph_id moved = graph_scaled_tangent(g, c.normal.n, scale, d[0], d[1], d[2]);
    rule->out[0] = graph_reshape(g, moved, shape.rank, shape.dim);
}

static void expand_group_norm(graph_expand *e) {
    expand_channel_norm(e, tir_index(e->g->pool, e->attribute[GROUP_GROUPS].integer),
                        e->attribute[GROUP_EPSILON].number);
}
static void expand_instance_norm(graph_expand *e) {
    expand_channel_norm(e, graph_shape_of(e->g, e->input[0])->dim[1], e->attribute[INSTANCE_EPSILON].number);
}

static void tangent_group_norm(graph_rule *rule) {
    tangent_channel_norm(rule, tir_index(rule->g->pool, rule->attribute[GROUP_GROUPS].integer),
                         rule->attribute[GROUP_EPSILON].number);
}
static void tangent_instance_norm(graph_rule *rule) {
    tangent_channel_norm(rule, graph_shape_of(rule->g, rule->input[0])->dim[1],
                         rule->attribute[INSTANCE_EPSILON].number);
}

/* ---- local_response_norm */

enum { LOCAL_SIZE, LOCAL_ALPHA, LOCAL_BETA, LOCAL_BIAS };

static void infer_local_response_norm(graph_infer *infer) {
    const int64_t size = infer->attribute[LOCAL_SIZE].integer;
    if (infer->operand[0].rank < 2)
        graph_infer_fail(infer, "x has rank %d, expected at least 2: batch and channels", infer->operand[0].rank);
    if (size < 1 || size > 1 << 20) graph_infer_fail(infer, "size is %lld, expected 1 to 2^20", (long long)size);
    infer->result[0] = infer->operand[0];
}

/* x/base^beta; by square roots if the base cannot be negative and beta is 1/4, 1/2, 3/4 or 1, as usual. */
static graph_id divided_by_power(graph *g, graph_id x, graph_id base, double beta, bool negative) {
    if (negative || (beta != 0.25 && beta != 0.5 && beta != 0.75 && beta != 1))
        return graph_mul(g, x, graph_pow(g, base, graph_scalar_like(g, base, -beta)));
    if (beta == 1) return graph_div(g, x, base);
    graph_id half = graph_sqrt(g, base), quarter = beta == 0.5 ? 0 : graph_sqrt(g, half);
    return graph_div(g, x, beta == 0.5 ? half : beta == 0.25 ? quarter : graph_mul(g, half, quarter));
}

static void expand_local_response_norm(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int64_t size = e->attribute[LOCAL_SIZE].integer;
    int64_t window[DLC_MAX_RANK], low[DLC_MAX_RANK], high[DLC_MAX_RANK];
    for (int i = 0; i < shape.rank; i++) {
        window[i] = i == 1 ? size : 1;
        low[i] = i == 1 ? (size - 1) / 2 : 0;
        high[i] = i == 1 ? size / 2 : 0;
    }
    graph_id x = graph_widen(g, e->input[0]), square = graph_mul(g, x, x);
    graph_id sum = graph_emit_with(
        g, "reduce_window", 1, &square, 4,
        (graph_setting[]){graph_set_integer("op", 0), graph_set_list("window", shape.rank, window),
                          graph_set_list("low", shape.rank, low), graph_set_list("high", shape.rank, high)});
    const double alpha = e->attribute[LOCAL_ALPHA].number, bias = e->attribute[LOCAL_BIAS].number;
    graph_id base = graph_add_number(g, graph_mul_number(g, sum, alpha / (double)size), bias);
    graph_id y = divided_by_power(g, x, base, e->attribute[LOCAL_BETA].number, alpha < 0 || bias < 0);
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- losses: f(prediction, target) elementwise, then mean, sum or no reduction */

enum { LOSS_REDUCTION, LOSS_PARAMETER };
enum { LOSS_MEAN, LOSS_SUM, LOSS_NONE };

static void infer_loss(graph_infer *infer) {
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_same_shape(infer, 2);
    infer->result[0] = infer->operand[0];
    if (infer->attribute[LOSS_REDUCTION].integer != LOSS_NONE) infer->result[0].rank = 0;
}

#define LOSS(name)                                                \
    static graph_id loss_##name(graph *g, graph_id x, graph_id t, \
                                __attribute__((unused)) const graph_attribute *attribute)

LOSS(mse_loss) {
    graph_id difference = graph_sub(g, x, t);
    return graph_mul(g, difference, difference);
}
LOSS(l1_loss) {
    return graph_abs(g, graph_sub(g, x, t));
}
LOSS(huber_loss) {
    const double delta = attribute[LOSS_PARAMETER].number;
    graph_id distance = graph_abs(g, graph_sub(g, x, t));
    graph_id near = graph_mul_number(g, graph_mul(g, distance, distance), 0.5);
    graph_id far = graph_mul_number(g, graph_add_number(g, distance, -0.5 * delta), delta);
    return graph_select(g, graph_le(g, distance, graph_scalar_like(g, x, delta)), near, far);
}
/* -(t log p + (1 - t) log(1 - p)) with p = logistic(x): max(x, 0) - x t + log(1 + exp(-|x|)) */
LOSS(binary_cross_entropy) {
    graph_id tail = graph_log1p(g, graph_exp(g, graph_neg(g, graph_abs(g, x))));
    graph_id line = graph_sub(g, graph_max(g, x, graph_scalar_like(g, x, 0)), graph_mul(g, x, t));
    return graph_add(g, line, tail);
}
LOSS(hinge_loss) {
    graph_id distance = graph_sub(g, graph_scalar_like(g, x, attribute[LOSS_PARAMETER].number), graph_mul(g, t, x));
    return graph_max(g, distance, graph_scalar_like(g, distance, 0));
}
/* t (log t - x); 0 where t is 0. */
LOSS(kl_divergence) {
    graph_id zero = graph_scalar_like(g, x, 0);
    graph_id product = graph_mul(g, t, graph_sub(g, graph_log(g, t), x));
    return graph_select(g, graph_eq(g, t, zero), graph_broadcast_like(g, zero, t), product);
}

static void expand_loss(graph_expand *e,
                        graph_id (*loss)(graph *g, graph_id x, graph_id t, const graph_attribute *attribute)) {
    graph *g = e->g;
    const dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    const int64_t reduction = e->attribute[LOSS_REDUCTION].integer;
    graph_id y = loss(g, graph_widen(g, e->input[0]), graph_widen(g, e->input[1]), e->attribute);
    if (reduction == LOSS_MEAN) y = graph_reduce_mean(g, y, 0, NULL, false);
    if (reduction == LOSS_SUM) y = graph_reduce_sum(g, y, 0, NULL, false);
    e->result[0] = graph_cast(g, y, dtype);
}

/* ---- rotary_embedding: pairs of the last axis are rotated by an angle that depends on position and pair */

enum { ROTARY_INTERLEAVED };

static void infer_rotary_embedding(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    if (x->rank < 2) graph_infer_fail(infer, "x has rank %d, expected at least 2: positions and features", x->rank);
    graph_infer_same_dtype(infer, 0, 3);
    for (int i = 1; i < 3; i++) {
        const graph_shape *angle = &infer->operand[i];
        const int before = x->rank - angle->rank; /* axes of x that angles do not have */
        if (angle->rank < 2 || before < 0)
            graph_infer_fail(infer, "operand `%s` has rank %d, expected 2 to that of x, %d", i == 1 ? "cosine" : "sine",
                             angle->rank, x->rank);
        for (int d = 0; d < angle->rank - 2; d++)
            if (angle->dim[d] != tir_index(pool, 1))
                graph_infer_equal(infer, angle->dim[d], x->dim[d + before],
                                  "dimensions of angles that are not 1 and those of x");
        graph_infer_equal(infer, angle->dim[angle->rank - 2], x->dim[x->rank - 2],
                          "numbers of positions of the operands");
        graph_infer_equal(infer, tir_mul(pool, angle->dim[angle->rank - 1], tir_index(pool, 2)), x->dim[x->rank - 1],
                          "features of x and twice the angles of a position");
    }
    infer->result[0] = *x;
}

/* Views x as [..., 2, pairs], or, if interleaved, as [..., pairs, 2]; rotates the first and second members of all pairs, [..., pairs] each. */
static void expand_rotary_embedding(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const bool interleaved = e->attribute[ROTARY_INTERLEAVED].integer;
    const int split = interleaved ? shape.rank : shape.rank - 1;
    const graph_shape *angle = graph_shape_of(g, e->input[1]);
    tir_expr pairs = angle->dim[angle->rank - 1], one = tir_index(g->pool, 1), two = tir_index(g->pool, 2);
    graph_shape apart = shape;
    apart.rank++;
    apart.dim[shape.rank - 1] = interleaved ? pairs : two;
    apart.dim[shape.rank] = interleaved ? two : pairs;
    graph_id x = graph_reshape(g, graph_widen(g, e->input[0]), apart.rank, apart.dim), member[2], turned[2];
    for (int i = 0; i < 2; i++)
        member[i] = graph_squeeze(g, graph_slice_axis(g, x, split, tir_index(g->pool, i), i ? two : one), split);
    graph_id cosine = graph_widen(g, e->input[1]), sine = graph_widen(g, e->input[2]);
    turned[0] = graph_sub(g, graph_mul(g, member[0], cosine), graph_mul(g, member[1], sine));
    turned[1] = graph_add(g, graph_mul(g, member[1], cosine), graph_mul(g, member[0], sine));
    for (int i = 0; i < 2; i++) turned[i] = graph_expand_dims(g, turned[i], split);
    graph_id y = graph_reshape(g, graph_concat(g, 2, turned, split), shape.rank, shape.dim);
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

static double optional_element(const graph_reference *r, int operand, int64_t i, double otherwise) {
    return graph_reference_given(r, operand) ? r->operand[operand].data[i] : otherwise;
}

static void reference_channel_norm(const graph_reference *r, int64_t groups, double epsilon) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t positions = 1, count = graph_reference_count(x);
    for (int i = 2; i < x->rank; i++) positions *= x->dim[i];
    if (count == 0) return;
    int64_t row = x->dim[1] / groups * positions;
    for (int64_t start = 0; start < count; start += row) {
        double sum = 0, square = 0;
        for (int64_t i = 0; i < row; i++) sum += x->data[start + i];
        double mean = sum / (double)row;
        for (int64_t i = 0; i < row; i++) square += (x->data[start + i] - mean) * (x->data[start + i] - mean);
        double root = sqrt(square / (double)row + epsilon);
        for (int64_t i = start; i < start + row; i++) {
            int64_t channel = i / positions % x->dim[1];
            r->result[0].data[i] =
                (x->data[i] - mean) / root * optional_element(r, 1, channel, 1) + optional_element(r, 2, channel, 0);
        }
    }
}
static void reference_group_norm(const graph_reference *r) {
    reference_channel_norm(r, r->attribute[GROUP_GROUPS].integer, r->attribute[GROUP_EPSILON].number);
}
static void reference_instance_norm(const graph_reference *r) {
    reference_channel_norm(r, r->operand[0].dim[1] ? r->operand[0].dim[1] : 1, r->attribute[INSTANCE_EPSILON].number);
}

static void reference_local_response_norm(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const int64_t size = r->attribute[LOCAL_SIZE].integer, channels = x->dim[1];
    int64_t inner = 1;
    for (int i = 2; i < x->rank; i++) inner *= x->dim[i];
    for (int64_t i = 0; i < graph_reference_count(x); i++) {
        int64_t channel = i / inner % channels;
        double sum = 0;
        for (int64_t c = channel - (size - 1) / 2; c <= channel + size / 2; c++)
            if (c >= 0 && c < channels) {
                double other = x->data[i + (c - channel) * inner];
                sum += other * other;
            }
        r->result[0].data[i] =
            x->data[i] / pow(r->attribute[LOCAL_BIAS].number + r->attribute[LOCAL_ALPHA].number / (double)size * sum,
                             r->attribute[LOCAL_BETA].number);
    }
}

#define NUMBER(name, expression)                                                                                \
    static double number_##name(double x, double t, __attribute__((unused)) const graph_attribute *attribute) { \
        return expression;                                                                                      \
    }
#define PARAMETER (attribute[LOSS_PARAMETER].number)
NUMBER(mse_loss, (x - t) * (x - t))
NUMBER(l1_loss, fabs(x - t))
NUMBER(huber_loss, fabs(x - t) <= PARAMETER ? 0.5 * (x - t) * (x - t) : PARAMETER * (fabs(x - t) - 0.5 * PARAMETER))
NUMBER(binary_cross_entropy, (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x))))
NUMBER(hinge_loss, fmax(0, PARAMETER - t * x))
NUMBER(kl_divergence, t == 0 ? 0 : t * (log(t) - x))

static void reference_loss(const graph_reference *r,
                           double (*f)(double x, double t, const graph_attribute *attribute)) {
    const int64_t reduction = r->attribute[LOSS_REDUCTION].integer, count = graph_reference_count(&r->operand[0]);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double loss = f(r->operand[0].data[i], r->operand[1].data[i], r->attribute);
        sum += loss;
        if (reduction == LOSS_NONE) r->result[0].data[i] = loss;
    }
    if (reduction != LOSS_NONE) r->result[0].data[0] = reduction == LOSS_SUM ? sum : sum / (double)count;
}

/* The entry of `angle` (cosines or sines) for a pair in row `row` of x; leading axes of `angle` may be 1 or missing. */
static double reference_angle(const graph_reference_tensor *angle, const graph_reference_tensor *x, int64_t row,
                              int64_t pair) {
    int64_t at = pair, stride = angle->dim[angle->rank - 1];
    for (int d = x->rank - 2, k = angle->rank - 2; k >= 0; row /= x->dim[d], d--, k--) {
        if (angle->dim[k] != 1) at += row % x->dim[d] * stride;
        stride *= angle->dim[k];
    }
    return angle->data[at];
}

static void reference_rotary_embedding(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const int64_t features = x->dim[x->rank - 1], pairs = features / 2;
    const bool interleaved = r->attribute[ROTARY_INTERLEAVED].integer;
    for (int64_t i = 0; i < graph_reference_count(x); i++) {
        int64_t feature = i % features, row = i / features;
        int64_t pair = interleaved ? feature / 2 : feature % pairs;
        bool second = interleaved ? feature % 2 : feature >= pairs;
        int64_t other = i + (interleaved ? 1 : pairs) * (second ? -1 : 1);
        double cosine = reference_angle(&r->operand[1], x, row, pair);
        double sine = reference_angle(&r->operand[2], x, row, pair);
        r->result[0].data[i] = x->data[i] * cosine + (second ? 1 : -1) * x->data[other] * sine;
    }
}

#endif

/* ---- rows */

#define FORM(name_, least_, most_, operands_, tolerance_) \
    COMPOSITE_ROW(name_, least_, most_, 1, operands_, "float"), .tolerance = tolerance_

#define EPSILON \
    { "epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-05", "added to the variance" }

static const graph_op row_group_norm = {
    .aliases = "group_normalization",
    FORM(group_norm, 1, 3, "x [scale] [bias]", 512),
    .attribute = {{"groups", GRAPH_ATTR_INTEGER, NULL, NULL, "number of groups that the channels are divided into"},
                  EPSILON},
    .jvp = tangent_group_norm,
    .infer = infer_group_norm,
    .samples = "group_norm(T[2, 6, 3, 5], T[6], T[6], groups=3)\ngroup_norm(T[2, 6, 7], groups=2)\n"
               "group_norm(T[3, 8], T[8], groups=1, epsilon=0.01)\ngroup_norm(T[2, 4, 2, 3, 2], _, T[4], groups=4)\n"
               "group_norm(T[0, 4, 3], groups=2)",
    .doc =
        "(x - mean) / sqrt(variance + epsilon) over each group of channels and all positions of a batch element, times scale, plus "
        "bias of the channel. x [batch, channels, ...], scale and bias [channels]. ONNX GroupNormalization; Wu and He 2018.",
};

static const graph_op row_instance_norm = {
    .aliases = "instance_normalization",
    FORM(instance_norm, 1, 3, "x [scale] [bias]", 512),
    .attribute = {EPSILON},
    .jvp = tangent_instance_norm,
    .infer = infer_channel_norm,
    .samples = "instance_norm(T[2, 3, 5, 7], T[3], T[3])\ninstance_norm(T[2, 3, 11])\n"
               "instance_norm(T[1, 4, 2, 3, 5], _, T[4], epsilon=0.01)\ninstance_norm(T[0, 4, 3])",
    .doc =
        "(x - mean) / sqrt(variance + epsilon) over all positions of each channel of a batch element, times scale, plus bias of the "
        "channel. x [batch, channels, ...], scale and bias [channels]. ONNX InstanceNormalization.",
};

static const graph_op row_local_response_norm = {
    .aliases = "lrn",
    FORM(local_response_norm, 1, 1, "x", 8),
    .attribute = {{"size", GRAPH_ATTR_INTEGER, NULL, NULL, "channels that are summed"},
                  {"alpha", GRAPH_ATTR_FLOAT, NULL, "0.0001", "factor of the mean square"},
                  {"beta", GRAPH_ATTR_FLOAT, NULL, "0.75", "exponent"},
                  {"bias", GRAPH_ATTR_FLOAT, NULL, "1.0", "added to it"}},
    .infer = infer_local_response_norm,
    .samples =
        "local_response_norm(T[2, 7, 3, 5], size=3)\nlocal_response_norm(T[2, 6, 4], size=4, alpha=0.5, beta=0.5, bias=2.0)\n"
        "local_response_norm(T[3, 5], size=1)\nlocal_response_norm(T[2, 0, 3], size=5)\n"
        "local_response_norm(T[2, 6, 4], size=3, alpha=0.5, beta=0.6)\nlocal_response_norm(T[2, 6, 4], size=3, alpha=0.5, beta=0.25)\n"
        "local_response_norm(T[2, 6, 4], size=3, alpha=0.5, beta=1.0)\n"
        "local_response_norm(T[1, 4, 3], size=2, alpha=-0.1, bias=2.0)",
    .doc =
        "x / (bias + alpha/size * s)^beta, s the sum of squares of the channels c - floor((size-1)/2) .. c + ceil((size-1)/2) at the same "
        "position. x [batch, channels, ...]. ONNX LRN; Krizhevsky et al. 2012.",
};

#define REDUCTION \
    { "reduction", GRAPH_ATTR_ENUM, "mean sum none", "mean", "of all elements; none: one result for each" }
#define NO_PARAMETER \
    { 0 }
#define DELTA \
    { "delta", GRAPH_ATTR_FLOAT, NULL, "1.0", "distance up to which the loss is a square" }
#define MARGIN \
    { "margin", GRAPH_ATTR_FLOAT, NULL, "1.0", "how far beyond 0 predictions are to be" }
#define LOSS_SAMPLES(name, target)                                                                \
    name "(T[5, 7], T[5, 7]" target ")\n" name "(T[67], T[67]" target ", reduction=none)\n" name  \
         "(T[2, 3, 5], T[2, 3, 5]" target ", reduction=sum)\n" name "(T[], T[]" target ")\n" name \
         "(T[3, 0], T[3, 0]" target ", reduction=sum)"

/* name, tolerance, range of targets in samples, second attribute, doc */
#define LOSS_TABLE(X)                                                                                            \
    X(mse_loss, 16, "", NO_PARAMETER, "(x - target)^2. PyTorch MSELoss.")                                        \
    X(l1_loss, 16, "", NO_PARAMETER, "|x - target|. PyTorch L1Loss.")                                            \
    X(huber_loss, 16, "", DELTA,                                                                                 \
      "d = |x - target|: d^2/2 up to delta, beyond delta*(d - delta/2). PyTorch HuberLoss.")                     \
    X(hinge_loss, 16, "", MARGIN,                                                                                \
      "max(margin - target*x, 0) for targets -1 and 1 (any number is taken as it is). Keras Hinge.")             \
    X(binary_cross_entropy, 64, " in 0..1", NO_PARAMETER,                                                        \
      "-(t*log(p) + (1 - t)*log(1 - p)) for the target t and p = logistic(x), without overflow. PyTorch "        \
      "BCEWithLogitsLoss.")                                                                                      \
    X(kl_divergence, 256, " in 0..1", NO_PARAMETER,                                                              \
      "t*(log(t) - x) for the target t, a probability, and x the logarithm of another; 0 where t is 0. PyTorch " \
      "KLDivLoss.")

#define X(name_, tolerance_, target_, parameter_, doc_) \
    static void expand_##name_(graph_expand *e) {       \
        expand_loss(e, loss_##name_);                   \
    }
LOSS_TABLE(X)
#undef X
#ifdef DLC_REFERENCE
#define X(name_, tolerance_, target_, parameter_, doc_)       \
    static void reference_##name_(const graph_reference *r) { \
        reference_loss(r, number_##name_);                    \
    }
LOSS_TABLE(X)
#undef X
#endif
#define X(name_, tolerance_, target_, parameter_, doc_)                                             \
    static const graph_op row_##name_ = {FORM(name_, 2, 2, "x target", tolerance_),                 \
                                         .attribute = {REDUCTION, parameter_}, .infer = infer_loss, \
                                         .samples = LOSS_SAMPLES(#name_, target_), .doc = doc_};
LOSS_TABLE(X)
#undef X

static const graph_op row_rotary_embedding = {
    FORM(rotary_embedding, 3, 3, "x cosine sine", 8),
    .linear = 1,
    .attribute = {{"interleaved", GRAPH_ATTR_BOOL, NULL, "false",
                   "pairs are neighbours; else elements i and i + features/2"}},
    .infer = infer_rotary_embedding,
    .samples =
        "rotary_embedding(T[2, 3, 5, 8], T[5, 4], T[5, 4])\nrotary_embedding(T[2, 3, 5, 8], T[5, 4], T[5, 4], interleaved=true)\n"
        "rotary_embedding(T[2, 3, 5, 8], T[2, 1, 5, 4], T[2, 1, 5, 4])\n"
        "rotary_embedding(T[2, 3, 5, 4], T[3, 5, 2], T[1, 5, 2], interleaved=true)\n"
        "rotary_embedding(T[7, 2], T[7, 1], T[7, 1])\nrotary_embedding(T[0, 6], T[0, 3], T[0, 3], interleaved=true)",
    .doc =
        "Pairs (a, b) of the last axis become (a*cosine - b*sine, b*cosine + a*sine). x [..., positions, features], cosine and sine "
        "[positions, features/2] or with leading axes that broadcast to those of x. ONNX RotaryEmbedding; Su et al. 2021.",
};

#define X(name_, tolerance_, target_, parameter_, doc_) &row_##name_,
const graph_op *const graph_ops_network[] = {&row_group_norm, &row_instance_norm, &row_local_response_norm,
                                             LOSS_TABLE(X) & row_rotary_embedding, NULL};
#undef X
