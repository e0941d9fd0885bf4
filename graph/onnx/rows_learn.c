/* Rows of ai.onnx.ml except trees, support vector machines and dictionaries: features, encoders, linear models. */
#include "graph/onnx/learn.h"
#include "graph/onnx/structure.h"

#include <math.h>
#include <stdlib.h>

/* ---- features -------------------------------------------------------------------------------------------------------- */

/* The elements of x along its last axis at the indices in operand 1; a list x becomes a matrix of one row. */
static void import_array_feature_extractor(onnx_import *im) {
    graph *g = im->g;
    const graph_shape shape = onnx_operand_shape(im, 0), places = onnx_operand_shape(im, 1);
    const onnx_known *known = onnx_operand_known(im, 1);
    int64_t size, place;
    if (!shape.rank) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is a number; expected features");
    const tir_expr features = shape.dim[shape.rank - 1];
    for (int64_t k = 0; known && k < known->count && tir_is_const(g->pool, features, &size); k++)
        if (tir_is_const(g->pool, known->element[k].index, &place) && (place < 0 || place >= size))
            onnx_fail(im, DLC_PARSE_ERROR, "feature %lld of %lld", (long long)place, (long long)size);
    tir_expr count = tir_index(g->pool, 1);
    for (int d = 0; d < places.rank; d++) count = tir_mul(g->pool, count, places.dim[d]);
    graph_id y = graph_gather(g, onnx_operand(im, 0), graph_reshape(g, onnx_operand(im, 1), 1, &count), shape.rank - 1);
    if (shape.rank == 1) y = graph_expand_dims(g, y, 0);
    onnx_give(im, 0, y);
}

/* Integers are compared with a float in f64. */
static graph_id comparable(onnx_import *im, graph_id x) {
    return lib_dtype_is_float(graph_shape_of(im->g, x)->dtype) ? x : graph_cast(im->g, x, DLC_F64);
}

static void import_binarizer(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0), number = comparable(im, x);
    const graph_id above = graph_gt(im->g, number, graph_scalar_like(im->g, number, onnx_float(im, "threshold", 0)));
    onnx_give(im, 0, graph_cast(im->g, above, graph_shape_of(im->g, x)->dtype));
}

/* x [samples, features] with `size` features: cut, or padded with zeros. */
static graph_id with_features(onnx_import *im, graph_id x, int64_t size) {
    graph *g = im->g;
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t own;
    if (size < 0) onnx_fail(im, DLC_PARSE_ERROR, "a size of %lld features", (long long)size);
    if (!tir_is_const(g->pool, shape.dim[1], &own)) {
        graph_require_equal(g, shape.dim[1], tir_index(g->pool, size), "FeatureVectorizer: number of features");
        own = size;
    }
    if (own > size) return graph_slice_axis(g, x, 1, tir_index(g->pool, 0), tir_index(g->pool, size));
    if (own == size) return x;
    const graph_id zeros = graph_full(g, shape.dtype, 2, (tir_expr[]){shape.dim[0], tir_index(g->pool, size - own)}, 0);
    return graph_concat(g, 2, (graph_id[]){x, zeros}, 1);
}

static void import_feature_vectorizer(onnx_import *im) {
    const size_t count = onnx_operands(im);
    int sizes;
    const int64_t *size = onnx_ints(im, "inputdimensions", &sizes);
    graph_id *part = LIB_NEW_ARRAY(im->g->arena, graph_id, count + 1);
    if (!count) onnx_fail(im, DLC_PARSE_ERROR, "it has no operands");
    if (size) onnx_require_count(im, (size_t)sizes, count, "attribute inputdimensions");
    for (size_t i = 0; i < count; i++) {
        graph_id x = onnx_operand(im, i);
        if (!x) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
        const int rank = graph_shape_of(im->g, x)->rank;
        if (rank != 1 && rank != 2) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu of rank %d; expected 1 or 2", i, rank);
        if (rank == 1) x = graph_expand_dims(im->g, x, 0);
        x = graph_cast(im->g, x, DLC_F32);
        part[i] = size ? with_features(im, x, size[i]) : x;
    }
    onnx_give(im, 0, graph_concat(im->g, (int)count, part, 1));
}

/* Replaces elements that equal one value, which may be NaN, by another value, one for all features or one for each. */
static void import_imputer(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype;
    const bool real = lib_dtype_is_float(dtype);
    const double old = onnx_float(im, "replaced_value_float", 0);
    const int64_t old_integer = onnx_int(im, "replaced_value_int64", 0);
    const onnx_numbers floats = onnx_numbers_of(im, "imputed_value_floats");
    int count;
    const int64_t *integers = onnx_ints(im, "imputed_value_int64s", &count);
    if ((real ? floats.count : (size_t)count) < 1)
        onnx_fail(im, DLC_PARSE_ERROR, "attribute %s gives no values for features of type %s",
                  real ? "imputed_value_floats" : "imputed_value_int64s", lib_dtypes[dtype].name);
    const int64_t size = real ? (int64_t)floats.count : count;
    const graph_id values = real ? onnx_constant(im, dtype, 1, &size, floats.data)
                                 : graph_cast(g, graph_literal(g, DLC_I64, 1, &size, integers), dtype);
    const graph_id from = real ? graph_scalar(g, dtype, old) : graph_scalar_i64(g, dtype, old_integer);
    const graph_id replaced = real && isnan(old) ? onnx_unary(im, "is_nan", x) : graph_eq(g, x, from);
    onnx_give(im, 0, graph_select(g, replaced, size == 1 ? graph_reshape(g, values, 0, NULL) : values, x));
}

/* (x - offset) * scale, computed in f64 unless x is f32. */
static void import_scaler(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0);
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype == DLC_F32 ? DLC_F32 : DLC_F64;
    const char *const names[] = {"offset", "scale"};
    graph_id y = graph_cast(g, x, dtype);
    for (int i = 0; i < 2; i++) {
        const onnx_numbers numbers = onnx_numbers_of(im, names[i]);
        const int64_t count = (int64_t)numbers.count;
        if (!count) continue;
        graph_id factor = onnx_constant(im, dtype, 1, &count, numbers.data);
        if (count == 1) factor = graph_reshape(g, factor, 0, NULL);
        y = i ? graph_mul(g, y, factor) : graph_sub(g, y, factor);
    }
    onnx_give(im, 0, graph_cast(g, y, DLC_F32));
}

/* Divides rows by their greatest element (as the standard says, not the greatest magnitude), sum of magnitudes or Euclidean norm, unless it
 * is 0. */
static void import_normalizer(onnx_import *im) {
    enum { MAX, L1, L2 };
    graph *g = im->g;
    const int norm = onnx_choice(im, "norm", "MAX L1 L2", "MAX");
    const int64_t features = 1;
    const graph_id x = onnx_samples(im);
    graph_id divisor;
    if (norm == MAX)
        divisor = graph_reduce_max(g, x, 1, &features, true);
    else if (norm == L1)
        divisor = graph_reduce_sum(g, graph_abs(g, x), 1, &features, true);
    else
        divisor = graph_sqrt(g, graph_reduce_sum(g, graph_mul(g, x, x), 1, &features, true));
    const graph_id none = graph_eq(g, divisor, graph_scalar_like(g, divisor, 0));
    graph_id y = graph_div(g, x, graph_select(g, none, graph_scalar_like(g, divisor, 1), divisor));
    if (onnx_operand_rank(im, 0) == 1) y = graph_squeeze(g, y, 0);
    onnx_give(im, 0, graph_cast(g, y, DLC_F32));
}

/* ---- encoders -------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void require_different(onnx_import *im, const int64_t *list, size_t count) {
    int64_t *sorted = lib_arena_copy(im->g->arena, list, count * sizeof *list);
    qsort(sorted, count, sizeof *sorted, by_value);
    for (size_t i = 0; i + 1 < count; i++)
        if (sorted[i] == sorted[i + 1])
            onnx_fail(im, DLC_PARSE_ERROR, "category %lld is listed twice", (long long)sorted[i]);
}

/* For categories that are strings: the operand's strings as numbers of categories. */
static onnx_value category_numbers(onnx_import *im, onnx_names strings) {
    const onnx_structure *x = onnx_operand_strings(im, 0);
    const int64_t *found = onnx_find_words(im, x, strings.count, strings.data);
    return onnx_look_up(im, x->part, DLC_I64, (int64_t)x->words, found);
}

/* Gives the one-hot result as a constant, if the elements are known at import, as strings are. False: they are not known. */
static bool give_known_hot(onnx_import *im, onnx_value *x, int64_t count, const int64_t *number) {
    const onnx_known *known = onnx_known_of(im, x);
    const int64_t *element = onnx_constant_integers(im, known);
    int64_t dims[DLC_MAX_RANK];
    if (!element || known->rank >= DLC_MAX_RANK || known->count > (1 << 24) / count) return false;
    float *hot = LIB_NEW_ARRAY(im->g->arena, float, (size_t)(known->count * count) + 1);
    for (int64_t i = 0; i < known->count * count; i++) hot[i] = element[i / count] == number[i % count];
    for (int d = 0; d < known->rank; d++) dims[d] = known->dims[d];
    dims[known->rank] = count;
    const onnx_value y = onnx_value_of(im, DLC_F32, known->rank + 1, dims, hot);
    onnx_give_value(im, 0, &y);
    return true;
}

/* An element that is no category gives zeros, also with zeros=0, which asks a run to fail. */
static void import_one_hot_encoder(onnx_import *im) {
    graph *g = im->g;
    const onnx_attribute *a = onnx_attribute_find(im, "cats_int64s", ONNX_ATTRIBUTE_INTS);
    const onnx_names strings = onnx_strings_attribute(im, "cats_strings");
    const int64_t count = strings.count ? (int64_t)strings.count : a ? (int64_t)a->ints.count : 0;
    int64_t *number = LIB_NEW_ARRAY(g->arena, int64_t, (size_t)count + 1);
    onnx_ignore(im, "zeros");
    if (!count || (strings.count && a && a->ints.count))
        onnx_fail(im, DLC_PARSE_ERROR, "it has no categories, or both numbers and strings");
    for (int64_t i = 0; i < count; i++) number[i] = strings.count ? i : a->ints.data[i];
    require_different(im, number, (size_t)count);
    if (!onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    onnx_value places = strings.count ? category_numbers(im, strings) : *im->operand[0];
    if (give_known_hot(im, &places, count, number)) return;
    const graph_id x = onnx_id_of(im, &places);
    const int rank = graph_shape_of(g, x)->rank;
    if (rank >= DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank + 1);
    const graph_id hot = graph_eq(g, graph_expand_dims(g, graph_cast(g, x, DLC_I64), rank),
                                  graph_literal(g, DLC_I64, 1, &count, number));
    onnx_give(im, 0, graph_cast(g, hot, DLC_F32));
}

/* ---- linear models --------------------------------------------------------------------------------------------------- */

/* x [samples, features] times coefficients [rows, features], plus intercepts [rows] if there are any. */
static graph_id linear_scores(onnx_import *im, graph_id x, size_t rows, onnx_numbers coefficients,
                              onnx_numbers intercepts) {
    graph *g = im->g;
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    if (!rows || !coefficients.count || coefficients.count % rows)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu coefficients for %zu rows", coefficients.count, rows);
    const int64_t features = (int64_t)(coefficients.count / rows), count = (int64_t)rows;
    graph_require_equal(g, graph_shape_of(g, x)->dim[1], tir_index(g->pool, features),
                        "%zu coefficients in %zu rows: number of features", coefficients.count, rows);
    const graph_id w = graph_transpose(g, onnx_constant(im, dtype, 2, (int64_t[]){count, features}, coefficients.data),
                                       (int64_t[]){1, 0});
    const graph_id y = graph_matmul(g, x, w);
    if (!intercepts.count) return y;
    onnx_require_count(im, intercepts.count, rows, "attribute intercepts");
    return graph_add(g, y, onnx_constant(im, dtype, 1, &count, intercepts.data));
}

static void import_linear_regressor(onnx_import *im) {
    const int64_t targets = onnx_int(im, "targets", 1);
    const onnx_numbers coefficients = onnx_numbers_of(im, "coefficients"),
                       intercepts = onnx_numbers_of(im, "intercepts");
    const onnx_transform transform = onnx_transform_attribute(im);
    const graph_id y = linear_scores(im, onnx_samples(im), targets > 0 ? (size_t)targets : 0, coefficients, intercepts);
    onnx_give(im, 0, graph_cast(im->g, onnx_transformed(im, y, transform), DLC_F32));
}

/* The number of rows of a classifier's coefficients: one row for each class, or a single one that decides between two. */
static size_t classifier_rows(onnx_import *im, graph_id x, size_t coefficients, size_t intercepts, size_t labels) {
    int64_t features;
    if (intercepts) return intercepts;
    if (tir_is_const(im->g->pool, graph_shape_of(im->g, x)->dim[1], &features) && features > 0)
        return coefficients / (size_t)features;
    return labels;
}

/* The index of each sample's class, i64[samples]: 1 if its only score, [samples, 1], is above 0, else 0. */
static graph_id second_class(onnx_import *im, graph_id scores) {
    const graph_id above = graph_gt(im->g, scores, graph_scalar_like(im->g, scores, 0));
    return graph_cast(im->g, graph_squeeze(im->g, above, 1), DLC_I64);
}

static void import_linear_classifier(onnx_import *im) {
    const onnx_labels labels = onnx_labels_of(im, "classlabels_ints");
    const onnx_numbers coefficients = onnx_numbers_of(im, "coefficients"),
                       intercepts = onnx_numbers_of(im, "intercepts");
    const onnx_transform transform = onnx_transform_attribute(im);
    const graph_id x = onnx_samples(im);
    const size_t rows = classifier_rows(im, x, coefficients.count, intercepts.count, labels.count);
    onnx_ignore(im, "multi_class");
    graph_id scores = linear_scores(im, x, rows, coefficients, intercepts);
    if (rows != labels.count && !(rows == 1 && labels.count == 2))
        onnx_fail(im, DLC_PARSE_ERROR, "%zu rows of coefficients for %zu classes", rows, labels.count);
    if (rows == 1) {
        const onnx_labels pair = onnx_two_labels(im, &labels);
        onnx_give_label(im, &pair, second_class(im, scores));
        if (labels.count == 2) scores = onnx_both_classes(im, scores, false);
    } else {
        onnx_give_label(im, &labels, onnx_greatest(im, scores));
    }
    onnx_give(im, 1, graph_cast(im->g, onnx_transformed(im, scores, transform), DLC_F32));
}

const onnx_row onnx_rows_learn[] = {
    {"ArrayFeatureExtractor", 1, 0, import_array_feature_extractor, NULL},
    {"Binarizer", 1, 0, import_binarizer, NULL},
    {"FeatureVectorizer", 1, 0, import_feature_vectorizer, NULL},
    {"Imputer", 1, 0, import_imputer, NULL},
    {"LinearClassifier", 1, 0, import_linear_classifier, NULL},
    {"LinearRegressor", 1, 0, import_linear_regressor, NULL},
    {"Normalizer", 1, 0, import_normalizer, NULL},
    {"OneHotEncoder", 1, 0, import_one_hot_encoder, NULL},
    {"Scaler", 1, 0, import_scaler, NULL},
    {0},
};
