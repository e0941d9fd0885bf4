/* Training: batch normalisation with the batch's own statistics, losses over classes and pairs. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/normalize.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- batch_norm_training */

enum { BATCH_AXIS, BATCH_EPSILON, BATCH_MOMENTUM };

static void infer_batch_norm_training(graph_infer *infer) {
    graph_infer_channels(infer, infer->attribute[BATCH_AXIS].integer);
    infer->result[1] = infer->operand[3];
    infer->result[2] = infer->operand[4];
}

static graph_id blended(graph *g, graph_id running, graph_id now, double momentum, dlc_dtype dtype) {
    graph_id old = graph_mul_number(g, graph_widen(g, running), momentum);
    return graph_cast(g, graph_add(g, old, graph_mul_number(g, now, 1 - momentum)), dtype);
}

/* x normalised by the batch's own statistics. Means have the shape of the running ones, [channels], with which they are blended. */
typedef struct batch_norm {
    graph_shape shape;
    int64_t axis;
    graph_id mean, centred, variance, factor;
    graph_normal normal;
} batch_norm;

static graph_id over_batch(graph *g, const batch_norm *b, graph_id x) {
    return b->normal.count ? graph_reduce_mean(g, x, b->normal.count, b->normal.axes, false) : x;
}
static graph_id to_batch(graph *g, const batch_norm *b, graph_id x) {
    return graph_broadcast(g, x, b->shape.rank, b->shape.dim, &b->axis);
}

static batch_norm normalise_batch(graph *g, graph_id x, const graph_attribute *attribute) {
    batch_norm b = {.shape = *graph_shape_of(g, x), .normal = {.centred = true}};
    b.axis = graph_axis_of(attribute[BATCH_AXIS].integer, b.shape.rank);
    for (int i = 0; i < b.shape.rank; i++)
        if (i != b.axis) b.normal.axes[b.normal.count++] = i;
    x = graph_widen(g, x);
    b.mean = over_batch(g, &b, x);
    b.centred = graph_sub(g, x, to_batch(g, &b, b.mean));
    b.variance = over_batch(g, &b, graph_mul(g, b.centred, b.centred));
    b.factor = graph_rsqrt(g, graph_add_number(g, b.variance, attribute[BATCH_EPSILON].number));
    return b;
}

static void expand_batch_norm_training(graph_expand *e) {
    graph *g = e->g;
    const double momentum = e->attribute[BATCH_MOMENTUM].number;
    const batch_norm b = normalise_batch(g, e->input[0], e->attribute);
    const graph_id factor = graph_mul(g, b.factor, graph_widen(g, e->input[1]));
    graph_id y = graph_mul(g, b.centred, to_batch(g, &b, factor));
    y = graph_add(g, y, to_batch(g, &b, graph_widen(g, e->input[2])));
    e->result[0] = graph_cast(g, y, b.shape.dtype);
    e->result[1] = blended(g, e->input[3], b.mean, momentum, b.shape.dtype);
    e->result[2] = blended(g, e->input[4], b.variance, momentum, b.shape.dtype);
}

static void tangent_batch_norm_training(graph_rule *rule) {
    graph *g = rule->g;
    const double momentum = rule->attribute[BATCH_MOMENTUM].number;
    batch_norm b = normalise_batch(g, rule->input[0], rule->attribute);
    graph_id d[3] = {rule->tangent[0]}, of_statistics[2] = {0};
    b.normal.n = graph_mul(g, b.centred, to_batch(g, &b, b.factor));
    b.normal.factor = graph_mul(g, b.factor, graph_rule_operand(rule, 1));
    if (d[0]) {
        of_statistics[0] = over_batch(g, &b, d[0]);
        of_statistics[1] = graph_mul_number(g, over_batch(g, &b, graph_mul(g, b.centred, d[0])), 2);
        d[0] = graph_normal_tangent(g, &b.normal, d[0]);
    }
    for (int i = 1; i < 3; i++)
        if (rule->tangent[i]) d[i] = to_batch(g, &b, rule->tangent[i]);
    rule->out[0] = graph_scaled_tangent(g, b.normal.n, 0, d[0], d[1], d[2]);
    for (int i = 0; i < 2; i++) {
        graph_id old = rule->tangent[3 + i] ? graph_mul_number(g, rule->tangent[3 + i], momentum) : 0;
        graph_id now = of_statistics[i] ? graph_mul_number(g, of_statistics[i], 1 - momentum) : 0;
        rule->out[1 + i] = old && now ? graph_add(g, old, now) : old ? old : now;
    }
}

/* ---- losses over classes: class_loss of logits, nll_loss of logarithms of probabilities */

enum { CLASS_AXIS, CLASS_REDUCTION, CLASS_IGNORED, CLASS_SMOOTHING };
enum { LOSS_MEAN, LOSS_SUM, LOSS_NONE };
enum { L_X, L_LABELS, L_WEIGHT };

static void infer_class_loss(graph_infer *infer) {
    const graph_shape *x = &infer->operand[L_X], *labels = &infer->operand[L_LABELS];
    graph_infer_indices(infer, L_LABELS);
    int axis = graph_infer_axis(infer, infer->attribute[CLASS_AXIS].integer, x->rank, "axis");
    graph_infer_rank(infer, L_LABELS, x->rank - 1);
    for (int i = 0; i < labels->rank; i++)
        graph_infer_equal(infer, x->dim[i + (i >= axis)], labels->dim[i],
                          "dimensions of the labels and of x without axis");
    if (infer->inputs > L_WEIGHT && infer->operand[L_WEIGHT].rank >= 0) {
        graph_infer_dtype(infer, L_WEIGHT, x->dtype);
        graph_infer_rank(infer, L_WEIGHT, 1);
        graph_infer_equal(infer, infer->operand[L_WEIGHT].dim[0], x->dim[axis], "entries of weight and classes");
    }
    infer->result[0] = *labels;
    infer->result[0].dtype = x->dtype;
    if (infer->attribute[CLASS_REDUCTION].integer != LOSS_NONE) infer->result[0].rank = 0;
}

static void infer_class_cross_entropy(graph_infer *infer) {
    const double smoothing = infer->attribute[CLASS_SMOOTHING].number;
    if (!(smoothing >= 0 && smoothing <= 1)) graph_infer_fail(infer, "smoothing is %g, expected 0 to 1", smoothing);
    infer_class_loss(infer);
}

/* The loss by labels and weights from the logarithms of the probabilities, which have x's shape. */
static void expand_class_loss(graph_expand *e, graph_id logarithms, double smoothing) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[L_X]);
    const int64_t axis = graph_axis_of(e->attribute[CLASS_AXIS].integer, shape.rank);
    const int64_t reduction = e->attribute[CLASS_REDUCTION].integer;
    graph_id labels = graph_cast(g, e->input[L_LABELS], DLC_I64), zero = graph_scalar_like(g, logarithms, 0);
    graph_id ignored = graph_scalar_i64(g, DLC_I64, e->attribute[CLASS_IGNORED].integer);
    graph_id known = graph_and(g, graph_le(g, graph_scalar_i64(g, DLC_I64, 0), labels),
                               graph_lt(g, labels, graph_dimension(g, DLC_I64, shape.dim[axis])));
    known = graph_and(g, known, graph_ne(g, labels, ignored));
    graph_id hit =
        graph_eq(g, graph_iota(g, DLC_I64, shape.rank, shape.dim, (int)axis), graph_expand_dims(g, labels, (int)axis));
    graph_id weight = graph_full_like(g, logarithms, 1);
    if (e->inputs > L_WEIGHT && e->input[L_WEIGHT])
        weight = graph_broadcast(g, graph_widen(g, e->input[L_WEIGHT]), shape.rank, shape.dim, &axis);
    graph_id weighted = graph_mul(g, logarithms, weight);
    graph_id loss = graph_neg(g, graph_reduce_sum(g, graph_select(g, hit, weighted, zero), 1, &axis, false));
    if (smoothing > 0) {
        graph_id classes = graph_dimension(g, graph_shape_of(g, weighted)->dtype, shape.dim[axis]);
        graph_id even = graph_div(g, graph_neg(g, graph_reduce_sum(g, weighted, 1, &axis, false)), classes);
        loss = graph_add(g, graph_mul_number(g, loss, 1 - smoothing), graph_mul_number(g, even, smoothing));
    }
    loss = graph_select(g, known, loss, zero);
    if (reduction != LOSS_NONE) {
        graph_id share = graph_reduce_sum(g, graph_select(g, hit, weight, zero), 1, &axis, false);
        graph_id all = graph_reduce_sum(g, graph_select(g, known, share, zero), 0, NULL, false);
        loss = graph_reduce_sum(g, loss, 0, NULL, false);
        if (reduction == LOSS_MEAN) loss = graph_div(g, loss, all);
    }
    e->result[0] = graph_cast(g, loss, shape.dtype);
}

static void expand_nll_loss(graph_expand *e) {
    expand_class_loss(e, graph_widen(e->g, e->input[L_X]), 0);
}

static void expand_class_cross_entropy(graph_expand *e) {
    graph_id x = graph_widen(e->g, e->input[L_X]);
    graph_setting axis = graph_set_integer("axis", e->attribute[CLASS_AXIS].integer);
    expand_class_loss(e, graph_emit_with(e->g, "log_softmax", 1, &x, 1, &axis), e->attribute[CLASS_SMOOTHING].number);
}

/* ---- cosine_similarity, triplet_loss: rows along an axis */

enum { COSINE_AXIS, COSINE_EPSILON };
enum { TRIPLET_MARGIN, TRIPLET_EPSILON, TRIPLET_REDUCTION };

static void infer_rows(const graph_infer *infer, int64_t axis, int count) {
    const graph_shape *x = &infer->operand[0];
    int along = graph_infer_axis(infer, axis, x->rank, "axis");
    graph_infer_same_dtype(infer, 0, count);
    graph_infer_same_shape(infer, count);
    infer->result[0] = (graph_shape){.dtype = x->dtype};
    for (int i = 0; i < x->rank; i++)
        if (i != along) infer->result[0].dim[infer->result[0].rank++] = x->dim[i];
}

static void infer_cosine_similarity(graph_infer *infer) {
    infer_rows(infer, infer->attribute[COSINE_AXIS].integer, 2);
}

static graph_id dot_along(graph *g, graph_id a, graph_id b, int64_t axis) {
    return graph_reduce_sum(g, graph_mul(g, a, b), 1, &axis, false);
}

static void expand_cosine_similarity(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int64_t axis = graph_axis_of(e->attribute[COSINE_AXIS].integer, shape.rank);
    graph_id x[2] = {graph_widen(g, e->input[0]), graph_widen(g, e->input[1])}, length = 0;
    for (int i = 0; i < 2; i++) {
        graph_id own = graph_sqrt(g, dot_along(g, x[i], x[i], axis));
        own = graph_max(g, own, graph_scalar_like(g, own, e->attribute[COSINE_EPSILON].number));
        length = i ? graph_mul(g, length, own) : own;
    }
    e->result[0] = graph_cast(g, graph_div(g, dot_along(g, x[0], x[1], axis), length), shape.dtype);
}

static void infer_triplet_loss(graph_infer *infer) {
    infer_rows(infer, -1, 3);
    if (infer->attribute[TRIPLET_REDUCTION].integer != LOSS_NONE) infer->result[0].rank = 0;
}

static graph_id distance(graph_expand *e, graph_id a, graph_id b) {
    graph *g = e->g;
    graph_id apart = graph_add_number(g, graph_sub(g, a, b), e->attribute[TRIPLET_EPSILON].number);
    return graph_sqrt(g, dot_along(g, apart, apart, graph_shape_of(g, apart)->rank - 1));
}

static void expand_triplet_loss(graph_expand *e) {
    graph *g = e->g;
    const int64_t reduction = e->attribute[TRIPLET_REDUCTION].integer;
    dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    graph_id anchor = graph_widen(g, e->input[0]);
    graph_id near = distance(e, anchor, graph_widen(g, e->input[1])),
             far = distance(e, anchor, graph_widen(g, e->input[2]));
    graph_id loss = graph_add_number(g, graph_sub(g, near, far), e->attribute[TRIPLET_MARGIN].number);
    loss = graph_max(g, loss, graph_scalar_like(g, loss, 0));
    if (reduction == LOSS_MEAN) loss = graph_reduce_mean(g, loss, 0, NULL, false);
    if (reduction == LOSS_SUM) loss = graph_reduce_sum(g, loss, 0, NULL, false);
    e->result[0] = graph_cast(g, loss, dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

static void reference_batch_norm_training(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows k = graph_reference_rows_along(x, r->attribute[BATCH_AXIS].integer);
    const int64_t count = graph_reference_count(x);
    const double momentum = r->attribute[BATCH_MOMENTUM].number;
    for (int64_t c = 0; c < k.size; c++) {
        double sum = 0, square = 0, n = (double)count / (double)k.size;
        for (int64_t i = 0; i < count; i++)
            if (i / k.inner % k.size == c) sum += x->data[i];
        for (int64_t i = 0; i < count; i++)
            if (i / k.inner % k.size == c) square += (x->data[i] - sum / n) * (x->data[i] - sum / n);
        double root = sqrt(square / n + r->attribute[BATCH_EPSILON].number);
        for (int64_t i = 0; i < count; i++)
            if (i / k.inner % k.size == c)
                r->result[0].data[i] = (x->data[i] - sum / n) / root * r->operand[1].data[c] + r->operand[2].data[c];
        r->result[1].data[c] = r->operand[3].data[c] * momentum + sum / n * (1 - momentum);
        r->result[2].data[c] = r->operand[4].data[c] * momentum + square / n * (1 - momentum);
    }
}

static void reference_class_loss(const graph_reference *r, bool logits, double smoothing) {
    const graph_reference_tensor *x = &r->operand[L_X], *labels = &r->operand[L_LABELS];
    const graph_reference_rows k = graph_reference_rows_along(x, r->attribute[CLASS_AXIS].integer);
    const int64_t classes = k.size, inner = k.inner, reduction = r->attribute[CLASS_REDUCTION].integer;
    double total = 0, all = 0;
    for (int64_t i = 0; i < graph_reference_count(labels); i++) {
        const double *row = x->data + i / inner * classes * inner + i % inner;
        double most = -INFINITY, sum = 0, loss = 0, even = 0;
        for (int64_t c = 0; c < classes; c++) most = fmax(most, row[c * inner]);
        for (int64_t c = 0; c < classes; c++) sum += exp(row[c * inner] - most);
        double shift = logits ? most + log(sum) : 0;
        int64_t label = (int64_t)labels->data[i];
        bool known = label >= 0 && label < classes && label != r->attribute[CLASS_IGNORED].integer;
        for (int64_t c = 0; c < classes && known; c++) {
            double weight = graph_reference_given(r, L_WEIGHT) ? r->operand[L_WEIGHT].data[c] : 1;
            double term = -(row[c * inner] - shift) * weight;
            even += term / (double)classes;
            if (c != label) continue;
            loss = term;
            all += weight;
        }
        loss = loss * (1 - smoothing) + even * smoothing;
        total += loss;
        if (reduction == LOSS_NONE) r->result[0].data[i] = loss;
    }
    if (reduction != LOSS_NONE) r->result[0].data[0] = reduction == LOSS_MEAN ? total / all : total;
}
static void reference_nll_loss(const graph_reference *r) {
    reference_class_loss(r, false, 0);
}
static void reference_class_cross_entropy(const graph_reference *r) {
    reference_class_loss(r, true, r->attribute[CLASS_SMOOTHING].number);
}

static void reference_cosine_similarity(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows rows = graph_reference_rows_along(x, r->attribute[COSINE_AXIS].integer);
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double dot = 0, a = 0, b = 0, least = r->attribute[COSINE_EPSILON].number;
        for (int64_t k = 0; k < rows.size; k++) {
            int64_t at = (i / rows.inner * rows.size + k) * rows.inner + i % rows.inner;
            double u = x->data[at], v = r->operand[1].data[at];
            dot += u * v, a += u * u, b += v * v;
        }
        r->result[0].data[i] = dot / (fmax(sqrt(a), least) * fmax(sqrt(b), least));
    }
}

static void reference_triplet_loss(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const int64_t width = x->dim[x->rank - 1], rows = width ? graph_reference_count(x) / width : 0;
    const int64_t reduction = r->attribute[TRIPLET_REDUCTION].integer;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        double sum[2] = {0, 0};
        for (int64_t k = 0; k < width; k++)
            for (int o = 0; o < 2; o++) {
                double apart = x->data[i * width + k] - r->operand[1 + o].data[i * width + k] +
                               r->attribute[TRIPLET_EPSILON].number;
                sum[o] += apart * apart;
            }
        double loss = fmax(sqrt(sum[0]) - sqrt(sum[1]) + r->attribute[TRIPLET_MARGIN].number, 0);
        total += loss;
        if (reduction == LOSS_NONE) r->result[0].data[i] = loss;
    }
    if (reduction != LOSS_NONE) r->result[0].data[0] = reduction == LOSS_MEAN ? total / (double)rows : total;
}

#endif

/* ---- rows */

#define FORM(name_, least_, most_, results_, operands_, tolerance_) \
    COMPOSITE_ROW(name_, least_, most_, results_, operands_, "float"), .tolerance = tolerance_
#define REDUCTION \
    { "reduction", GRAPH_ATTR_ENUM, "mean sum none", "mean", "of all losses; none: one result for each" }
#define CLASS_ATTRIBUTES                                                                                              \
    {"axis", GRAPH_ATTR_INTEGER, NULL, "1", "axis of the classes"}, REDUCTION, {                                      \
        "ignore_index", GRAPH_ATTR_INTEGER, NULL, "-100", "label that does not count, like those outside the classes" \
    }

static const graph_op row_batch_norm_training = {
    FORM(batch_norm_training, 5, 5, 3, "x scale bias mean variance", 512),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "1", "axis of the channels"},
                  {"epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-05", "added to the variance under the root"},
                  {"momentum", GRAPH_ATTR_FLOAT, NULL, "0.9", "share that the running statistics keep"}},
    .jvp = tangent_batch_norm_training,
    .infer = infer_batch_norm_training,
    .samples = "batch_norm_training(T[4, 5, 3, 3], T[5], T[5], T[5], T[5] in 0..2)\n"
               "batch_norm_training(T[9, 7], T[7], T[7], T[7], T[7] in 0..2, epsilon=0.1, momentum=0.5)\n"
               "batch_norm_training(T[3, 4, 5], T[5], T[5], T[5], T[5] in 0..2, axis=-1)",
    .doc =
        "(x - m) / sqrt(v + epsilon) * scale + bias with mean m and variance v (over the number of elements) of the batch over all axes but the channels'; and the "
        "running mean and variance, old*momentum + new*(1 - momentum). ONNX BatchNormalization, training_mode=1; Ioffe and "
        "Szegedy 2015.",
};
static const graph_op row_nll_loss = {
    .aliases = "negative_log_likelihood_loss",
    FORM(nll_loss, 2, 3, 1, "x labels [weight]", 64),
    .linear = 1,
    .attribute = {CLASS_ATTRIBUTES},
    .infer = infer_class_loss,
    .samples =
        "nll_loss(T[5, 7], i64[5] in 0..7)\nnll_loss(T[2, 4, 3], i32[2, 3] in -1..6, T[4] in 0..1, reduction=none)\n"
        "nll_loss(T[6, 3], i64[6] in 0..3, T[3] in 1..2, reduction=sum, ignore_index=1)\n"
        "nll_loss(T[6, 3], i64[6] in 0..3, T[3] in 1..2)",
    .doc =
        "-x[label]*weight[label] along axis, x logarithms of probabilities; the mean divides by the weights that count. Labels "
        "that are ignored give 0; a mean of none that counts is NaN. ONNX NegativeLogLikelihoodLoss.",
};
static const graph_op row_class_cross_entropy = {
    .aliases = "softmax_cross_entropy_loss",
    FORM(class_cross_entropy, 2, 3, 1, "x labels [weight]", 1024),
    .attribute = {CLASS_ATTRIBUTES,
                  {"smoothing", GRAPH_ATTR_FLOAT, NULL, "0.0", "share of the even distribution in the target"}},
    .infer = infer_class_cross_entropy,
    .samples = "class_cross_entropy(T[5, 7], i64[5] in 0..7)\n"
               "class_cross_entropy(T[2, 4, 3], i32[2, 3] in -1..6, T[4] in 0..1, reduction=none, smoothing=0.1)\n"
               "class_cross_entropy(T[6, 3], i64[6] in 0..3, T[3] in 1..2, reduction=sum, ignore_index=1)\n"
               "class_cross_entropy(T[8, 5], i64[8] in 0..5, smoothing=0.25)\n"
               "class_cross_entropy(T[6, 3], i64[6] in 0..3, T[3] in 1..2)",
    .doc =
        "nll_loss of log_softmax(x): cross entropy of classes, with weights, ignored labels and label smoothing (target: 1 - "
        "smoothing on the label and smoothing/classes on each). ONNX SoftmaxCrossEntropyLoss; PyTorch CrossEntropyLoss; "
        "Szegedy et al. 2016.",
};
static const graph_op row_cosine_similarity = {
    FORM(cosine_similarity, 2, 2, 1, "x y", 64),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis of the vectors"},
                  {"epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-08", "least length of a vector"}},
    .infer = infer_cosine_similarity,
    .samples =
        "cosine_similarity(T[5, 7] in 1..2, T[5, 7] in 1..2)\ncosine_similarity(f64[2, 6, 3] in 1..2, f64[2, 6, 3] in 1..2, axis=1)\n"
        "cosine_similarity(f16[13] in 1..2, f16[13] in 1..2)\ncosine_similarity(T[0, 3], T[0, 3])",
    .doc = "x . y / (max(|x|, epsilon)*max(|y|, epsilon)) along axis. PyTorch CosineSimilarity.",
};
static const graph_op row_triplet_loss = {
    FORM(triplet_loss, 3, 3, 1, "anchor positive negative", 256),
    .attribute = {{"margin", GRAPH_ATTR_FLOAT, NULL, "1.0", "how much farther the negative is to be"},
                  {"epsilon", GRAPH_ATTR_FLOAT, NULL, "1e-06", "added to each difference"},
                  REDUCTION},
    .infer = infer_triplet_loss,
    .samples =
        "triplet_loss(T[5, 7], T[5, 7], T[5, 7])\ntriplet_loss(T[2, 3, 6], T[2, 3, 6], T[2, 3, 6], reduction=none)\n"
        "triplet_loss(T[6], T[6], T[6], margin=0.5, reduction=sum)",
    .doc =
        "max(|anchor - positive| - |anchor - negative| + margin, 0), lengths along the last axis. PyTorch TripletMarginLoss, p = 2.",
};

const graph_op *const graph_ops_training[] = {&row_batch_norm_training, &row_nll_loss,     &row_class_cross_entropy,
                                              &row_cosine_similarity,   &row_triplet_loss, NULL};
