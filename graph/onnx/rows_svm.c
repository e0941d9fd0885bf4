/* Rows of support vector machines (ai.onnx.ml), whose attributes are those of LIBSVM (Chang, Lin, "LIBSVM: a library for support
 * vector machines", 2011). */
#include "graph/onnx/learn.h"

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

typedef struct kernel {
    enum { LINEAR, POLY, RBF, SIGMOID } kind;
    double gamma, offset, degree;
} kernel;

static kernel kernel_of(onnx_import *im) {
    kernel k = {.kind = (unsigned)onnx_choice(im, "kernel_type", "LINEAR POLY RBF SIGMOID", "LINEAR")};
    const onnx_numbers p = onnx_numbers_of(im, "kernel_params");
    if (!p.count) return k;
    onnx_require_count(im, p.count, 3, "attribute kernel_params");
    k.gamma = p.data[0], k.offset = p.data[1], k.degree = p.data[2];
    return k;
}

/* The kernel's values [samples, vectors] for x [samples, features] and vectors [vectors, features]. */
static graph_id kernels(onnx_import *im, const kernel *k, graph_id x, graph_id vectors) {
    graph *g = im->g;
    if (k->kind == RBF) { /* by differences, which do not cancel */
        const int64_t features = 2;
        const graph_id d = graph_sub(g, graph_expand_dims(g, x, 1), graph_expand_dims(g, vectors, 0));
        return graph_exp(g,
                         graph_mul_number(g, graph_reduce_sum(g, graph_mul(g, d, d), 1, &features, false), -k->gamma));
    }
    const graph_id dot = graph_matmul(g, x, graph_transpose(g, vectors, (int64_t[]){1, 0}));
    if (k->kind == LINEAR) return dot;
    const graph_id y = graph_add_number(g, graph_mul_number(g, dot, k->gamma), k->offset);
    return k->kind == SIGMOID ? graph_tanh(g, y) : graph_pow(g, y, graph_scalar_like(g, y, k->degree));
}

/* The constant [rows, features] of these numbers; x must have as many features. */
static graph_id vectors_of(onnx_import *im, graph_id x, int64_t rows, onnx_numbers numbers, const char *what) {
    if (rows < 1 || !numbers.count || numbers.count % (size_t)rows)
        onnx_fail(im, DLC_PARSE_ERROR, "attribute %s has %zu numbers for %lld vectors", what, numbers.count,
                  (long long)rows);
    const int64_t dims[] = {rows, (int64_t)numbers.count / rows};
    const graph_shape *shape = graph_shape_of(im->g, x);
    const dlc_dtype dtype = shape->dtype;
    graph_require_equal(im->g, shape->dim[1], tir_index(im->g->pool, dims[1]),
                        "%s of %lld features: number of features", what, (long long)dims[1]);
    return onnx_constant(im, dtype, 2, dims, numbers.data);
}

/* ---- SVMRegressor ---------------------------------------------------------------------------------------------------- */

static void import_svm_regressor(onnx_import *im) {
    graph *g = im->g;
    const kernel k = kernel_of(im), linear = {.kind = LINEAR};
    const onnx_numbers coefficients = onnx_numbers_of(im, "coefficients"), rho = onnx_numbers_of(im, "rho"),
                       vectors = onnx_numbers_of(im, "support_vectors");
    const int64_t supports = onnx_int(im, "n_supports", 0);
    const onnx_transform transform = onnx_transform_attribute(im);
    const bool one_class = onnx_int(im, "one_class", 0) != 0;
    const graph_id x = onnx_samples(im);
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    graph_id y;
    onnx_require_count(im, rho.count, 1, "attribute rho");
    if (supports > 0) {
        onnx_require_count(im, coefficients.count, (size_t)supports, "attribute coefficients");
        const graph_id of = vectors_of(im, x, supports, vectors, "support_vectors");
        y = graph_matmul(g, kernels(im, &k, x, of),
                         onnx_constant(im, dtype, 2, (int64_t[]){supports, 1}, coefficients.data));
    } else {
        y = kernels(im, &linear, x, vectors_of(im, x, 1, coefficients, "coefficients"));
    }
    y = graph_add_number(g, y, rho.data[0]);
    if (one_class)
        y = graph_select(g, graph_gt(g, y, graph_scalar_like(g, y, 0)), graph_scalar_like(g, y, 1),
                         graph_scalar_like(g, y, -1));
    onnx_give(im, 0, graph_cast(g, onnx_transformed(im, y, transform), DLC_F32));
}

/* ---- SVMClassifier --------------------------------------------------------------------------------------------------- */

/* A classifier, which decides between the classes of each pair: (0, 1), (0, 2), ..., (1, 2), ... */
typedef struct machine {
    int64_t classes, pairs;
    /* The numbers of support vectors: of each class, and of all. */
    const int64_t *of_class;
    int64_t vectors;
    dlc_dtype dtype;
} machine;

static machine machine_of(onnx_import *im, size_t classes, dlc_dtype dtype) {
    int count;
    machine m = {.classes = (int64_t)classes, .pairs = (int64_t)(classes * (classes - 1) / 2), .dtype = dtype};
    m.of_class = onnx_ints(im, "vectors_per_class", &count);
    for (int i = 0; i < count; i++) {
        if (m.of_class[i] < 0 || m.of_class[i] > ONNX_TABLE_MAX)
            onnx_fail(im, DLC_PARSE_ERROR, "class %d has %lld support vectors", i, (long long)m.of_class[i]);
        m.vectors += m.of_class[i];
    }
    if (!m.vectors) return m;
    onnx_require_count(im, (size_t)count, classes, "attribute vectors_per_class");
    if (m.classes < 2) onnx_fail(im, DLC_PARSE_ERROR, "support vectors of a single class");
    if (m.classes > 1 << 12 || m.vectors > ONNX_TABLE_MAX / (m.pairs > m.classes ? m.pairs : m.classes))
        onnx_fail(im, DLC_UNSUPPORTED, "%lld classes with %lld support vectors", (long long)m.classes,
                  (long long)m.vectors);
    return m;
}

/* The factor of each support vector in the decision of each pair, [vectors, pairs]; from coefficients [classes - 1, vectors], where row
 * j - 1 or j of a class's vectors is for the pair with the class j above or below it. */
static graph_id pair_factors(onnx_import *im, const machine *m, onnx_numbers coefficients) {
    double *factor = LIB_NEW_ARRAY(im->g->arena, double, (size_t)(m->vectors * m->pairs) + 1);
    int64_t pair = 0, first_i = 0;
    onnx_require_count(im, coefficients.count, (size_t)((m->classes - 1) * m->vectors), "attribute coefficients");
    for (int64_t i = 0; i < m->classes; first_i += m->of_class[i++]) {
        int64_t first_j = first_i + m->of_class[i];
        for (int64_t j = i + 1; j < m->classes; first_j += m->of_class[j++], pair++) {
            for (int64_t v = first_i; v < first_i + m->of_class[i]; v++)
                factor[v * m->pairs + pair] = coefficients.data[(j - 1) * m->vectors + v];
            for (int64_t v = first_j; v < first_j + m->of_class[j]; v++)
                factor[v * m->pairs + pair] = coefficients.data[i * m->vectors + v];
        }
    }
    return onnx_constant(im, m->dtype, 2, (int64_t[]){m->vectors, m->pairs}, factor);
}

/* How many pairs each class wins, [samples, classes]: the first class of a pair with a score above 0, else the second. */
static graph_id votes(onnx_import *im, const machine *m, graph_id scores) {
    graph *g = im->g;
    const size_t size = (size_t)(m->pairs * m->classes);
    double *gain = LIB_NEW_ARRAY(g->arena, double, size + 1),
           *base = LIB_NEW_ARRAY(g->arena, double, (size_t)m->classes + 1);
    int64_t pair = 0;
    for (int64_t i = 0; i < m->classes; i++)
        for (int64_t j = i + 1; j < m->classes; j++, pair++)
            gain[pair * m->classes + i] = 1, gain[pair * m->classes + j] = -1, base[j]++;
    const graph_id first = graph_cast(g, graph_gt(g, scores, graph_scalar_like(g, scores, 0)), m->dtype);
    return graph_add(g, graph_matmul(g, first, onnx_constant(im, m->dtype, 2, (int64_t[]){m->pairs, m->classes}, gain)),
                     onnx_constant(im, m->dtype, 1, &m->classes, base));
}

/* ---- probabilities ------------------------------------------------------------------------------------------------------
 * Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004, their second method as LIBSVM
 * iterates it. A sample rests when its error is small, while others go on. */

static graph_id identity(onnx_import *im, const machine *m) {
    double *one = LIB_NEW_ARRAY(im->g->arena, double, (size_t)(m->classes * m->classes));
    for (int64_t i = 0; i < m->classes; i++) one[i * m->classes + i] = 1;
    return onnx_constant(im, m->dtype, 2, (int64_t[]){m->classes, m->classes}, one);
}

/* r[s, i, j], the probability of class i against j, from that of pairs [samples, pairs]; 0 on the diagonal. */
static graph_id pair_matrix(onnx_import *im, const machine *m, graph_id first) {
    graph *g = im->g;
    int32_t *place = LIB_NEW_ARRAY(g->arena, int32_t, (size_t)(m->classes * m->classes));
    int32_t pair = 0;
    for (int64_t i = 0; i < m->classes; i++)
        for (int64_t j = i + 1; j < m->classes; j++, pair++)
            place[i * m->classes + j] = pair, place[j * m->classes + i] = pair + (int32_t)m->pairs;
    const graph_id both =
        graph_concat(g, 2, (graph_id[]){first, graph_sub(g, graph_scalar_like(g, first, 1), first)}, 1);
    const graph_id r = graph_gather(g, both, onnx_constant_i32(im, 2, (int64_t[]){m->classes, m->classes}, place), 1);
    return graph_mul(g, r, graph_sub(g, graph_scalar_like(g, r, 1), identity(im, m)));
}

/* q[s, t, j] = -r[s, j, t] r[s, t, j]; q[s, t, t] = sum over j of r[s, j, t]^2 */
static graph_id quadratic_form(onnx_import *im, const machine *m, graph_id r) {
    graph *g = im->g;
    const int64_t first = 1;
    const graph_id across = graph_mul(g, r, graph_transpose(g, r, (int64_t[]){0, 2, 1}));
    const graph_id squares = graph_reduce_sum(g, graph_mul(g, r, r), 1, &first, false);
    return graph_sub(g, graph_mul(g, graph_expand_dims(g, squares, 2), identity(im, m)), across);
}

/* Values that an iteration changes: p [samples, classes]; q p, of that shape; p' q p [samples, 1]. */
enum { STEP_P, STEP_QP, STEP_PQP, STEP_CARRIES };

/* One step for each class t in turn. carry[]: p, q p, p' q p. Returns the new p. */
static graph_id coupling_steps(onnx_import *im, const machine *m, const graph_id *carry, graph_id q) {
    const int64_t classes = 1;
    const graph_id in[] = {carry[STEP_P], carry[STEP_QP], carry[STEP_PQP],
                           graph_transpose(im->g, q, (int64_t[]){1, 0, 2}), identity(im, m)};
    enum { COUNT = sizeof in / sizeof in[0] };
    graph_id inside[COUNT];
    int64_t body;
    graph *outside = onnx_begin_body(im, COUNT, in, STEP_CARRIES, 2, inside, &body), *g = im->g;
    const graph_id row = inside[3], hot = inside[4], one = graph_scalar(g, m->dtype, 1);
    const graph_id qtt = graph_reduce_sum(g, graph_mul(g, row, hot), 1, &classes, true);
    const graph_id qpt = graph_reduce_sum(g, graph_mul(g, inside[STEP_QP], hot), 1, &classes, true);
    const graph_id d = graph_div(g, graph_sub(g, inside[STEP_PQP], qpt), qtt), scale = graph_add(g, one, d);
    const graph_id grown = graph_mul(g, d, graph_add(g, graph_mul(g, d, qtt), graph_mul_number(g, qpt, 2)));
    graph_new_output(g, NULL, graph_div(g, graph_add(g, inside[STEP_P], graph_mul(g, d, hot)), scale));
    graph_new_output(g, NULL, graph_div(g, graph_add(g, inside[STEP_QP], graph_mul(g, d, row)), scale));
    graph_new_output(g, NULL, graph_div(g, graph_div(g, graph_add(g, inside[STEP_PQP], grown), scale), scale));
    im->g = outside;
    const graph_setting s[] = {graph_set_integer("body", body), graph_set_integer("carries", STEP_CARRIES),
                               graph_set_integer("sequences", 2)};
    return onnx_emit(im, "scan", COUNT, in, 3, s) + STEP_P;
}

/* Operands of the loop: the number of iterations done; bool [samples, 1], which samples continue; p; q. */
enum { LOOP_COUNT, LOOP_ACTIVE, LOOP_P, LOOP_Q, LOOP_OPERANDS };

static int64_t coupling_condition(onnx_import *im, const machine *m, const graph_id *in) {
    graph_id inside[LOOP_OPERANDS];
    int64_t number;
    graph *outside = onnx_begin_body(im, LOOP_OPERANDS, in, 0, 0, inside, &number);
    const graph_id most = graph_scalar_i64(im->g, DLC_I64, m->classes > 100 ? m->classes : 100);
    graph_new_output(im->g, NULL,
                     graph_and(im->g, graph_lt(im->g, inside[LOOP_COUNT], most),
                               graph_reduce_or(im->g, inside[LOOP_ACTIVE], 0, NULL, false)));
    im->g = outside;
    return number;
}

static int64_t coupling_body(onnx_import *im, const machine *m, const graph_id *in) {
    const int64_t classes = 1;
    graph_id inside[LOOP_OPERANDS], carry[STEP_CARRIES];
    int64_t number;
    graph *outside = onnx_begin_body(im, LOOP_OPERANDS, in, 0, 0, inside, &number), *g = im->g;
    carry[STEP_P] = inside[LOOP_P];
    carry[STEP_QP] = graph_squeeze(g, graph_matmul(g, inside[LOOP_Q], graph_expand_dims(g, carry[STEP_P], 2)), 2);
    carry[STEP_PQP] = graph_reduce_sum(g, graph_mul(g, carry[STEP_P], carry[STEP_QP]), 1, &classes, true);
    const graph_id error =
        graph_reduce_max(g, graph_abs(g, graph_sub(g, carry[STEP_QP], carry[STEP_PQP])), 1, &classes, true);
    const graph_id large = graph_not(g, graph_lt(g, error, graph_scalar_like(g, error, 0.005 / (double)m->classes)));
    const graph_id active = graph_and(g, inside[LOOP_ACTIVE], large);
    const graph_id p = coupling_steps(im, m, carry, inside[LOOP_Q]);
    graph_new_output(g, NULL, graph_add(g, inside[LOOP_COUNT], graph_scalar_i64(g, DLC_I64, 1)));
    graph_new_output(g, NULL, active);
    graph_new_output(g, NULL, graph_select(g, active, p, inside[LOOP_P]));
    im->g = outside;
    return number;
}

/* The probabilities of classes [samples, classes] from the pairs' scores [samples, pairs]. */
static graph_id probabilities(onnx_import *im, const machine *m, graph_id scores, onnx_numbers a, onnx_numbers b) {
    graph *g = im->g;
    onnx_require_count(im, a.count, (size_t)m->pairs, "attribute prob_a");
    onnx_require_count(im, b.count, (size_t)m->pairs, "attribute prob_b");
    const graph_id line = graph_add(g, graph_mul(g, scores, onnx_constant(im, m->dtype, 1, &m->pairs, a.data)),
                                    onnx_constant(im, m->dtype, 1, &m->pairs, b.data));
    const graph_id first = graph_clamp(g, graph_scalar_like(g, scores, 1e-7f), graph_logistic(g, graph_neg(g, line)),
                                       graph_scalar_like(g, scores, 1 - (double)1e-7f));
    const tir_expr samples = graph_shape_of(g, scores)->dim[0];
    graph_id in[LOOP_OPERANDS];
    in[LOOP_COUNT] = graph_scalar_i64(g, DLC_I64, 0);
    in[LOOP_ACTIVE] = graph_full(g, DLC_BOOL, 2, (tir_expr[]){samples, tir_index(g->pool, 1)}, 1);
    in[LOOP_P] =
        graph_full(g, m->dtype, 2, (tir_expr[]){samples, tir_index(g->pool, m->classes)}, 1 / (double)m->classes);
    in[LOOP_Q] = quadratic_form(im, m, pair_matrix(im, m, first));
    const int64_t condition = coupling_condition(im, m, in), body = coupling_body(im, m, in);
    const graph_setting s[] = {graph_set_integer("condition", condition), graph_set_integer("body", body)};
    return onnx_emit(im, "while", LOOP_OPERANDS, in, 2, s) + LOOP_P;
}

/* ---- the classifier ------------------------------------------------------------------------------------------------------ */

static void import_svm_classifier(onnx_import *im) {
    graph *g = im->g;
    const onnx_labels labels = onnx_labels_of(im, "classlabels_ints");
    const kernel k = kernel_of(im), linear = {.kind = LINEAR};
    const onnx_numbers coefficients = onnx_numbers_of(im, "coefficients"), rho = onnx_numbers_of(im, "rho"),
                       vectors = onnx_numbers_of(im, "support_vectors"), a = onnx_numbers_of(im, "prob_a"),
                       b = onnx_numbers_of(im, "prob_b");
    const onnx_transform transform = onnx_transform_attribute(im);
    const graph_id x = onnx_samples(im);
    const machine m = machine_of(im, labels.count, graph_shape_of(g, x)->dtype);
    graph_id scores;
    if (!m.vectors) { /* one row of coefficients for each class */
        if (!rho.count) onnx_fail(im, DLC_PARSE_ERROR, "attribute rho is missing");
        scores = kernels(im, &linear, x, vectors_of(im, x, m.classes, coefficients, "coefficients"));
        scores = graph_add_number(g, scores, rho.data[0]);
        onnx_give_label(im, &labels, onnx_greatest(im, scores));
    } else {
        onnx_require_count(im, rho.count, (size_t)m.pairs, "attribute rho");
        scores = graph_matmul(g, kernels(im, &k, x, vectors_of(im, x, m.vectors, vectors, "support_vectors")),
                              pair_factors(im, &m, coefficients));
        scores = graph_add(g, scores, onnx_constant(im, m.dtype, 1, &m.pairs, rho.data));
        onnx_give_label(im, &labels, onnx_greatest(im, votes(im, &m, scores)));
        if (a.count || b.count)
            scores = probabilities(im, &m, scores, a, b);
        else if (m.pairs == 1)
            scores = onnx_both_classes(im, scores, false);
    }
    onnx_give(im, 1, graph_cast(g, onnx_transformed(im, scores, transform), DLC_F32));
}

const onnx_row onnx_rows_svm[] = {
    {"SVMClassifier", 1, 0, import_svm_classifier, NULL},
    {"SVMRegressor", 1, 0, import_svm_regressor, NULL},
    {0},
};
