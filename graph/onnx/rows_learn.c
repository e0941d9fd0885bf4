/* Rows of ai.onnx.ml but for trees and support vector machines: features, encoders, linear models. */
#include "graph/onnx/learn.h"

#include <math.h>
#include <stdlib.h>

/* ---- features -------------------------------------------------------------------------------------------------------- */

/* The elements of a list of operand 1 along the last axis of x; a list x becomes a matrix of one row. */
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

/* Integers are compared with a float as numbers. */
static graph_id comparable(onnx_import *im, graph_id x) {
    return lib_dtype_is_float(graph_shape_of(im->g, x)->dtype) ? x : graph_cast(im->g, x, DLC_F64);
}

static void import_binarizer(onnx_import *im) {
    const graph_id x = onnx_operand(im, 0), number = comparable(im, x);
    const graph_id above = graph_gt(im->g, number, graph_scalar_like(im->g, number, onnx_float(im, "threshold", 0)));
    onnx_give(im, 0, graph_cast(im->g, above, graph_shape_of(im->g, x)->dtype));
}

/* x [samples, features] with so many features: cut, or filled up with zeros. */
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

/* Replaces elements that equal one value, which may be NaN, by one for all or for each feature. */
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

/* (x - offset) * scale; numbers of 64 bits and integers in f64. */
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

/* Rows over their greatest element (as the standard says, not its magnitude), sum of magnitudes or Euclidean norm, if that is not 0. */
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

/* Without strings. An element that is no category gives zeros, also with zeros=0, which asks a run to fail. */
static void import_one_hot_encoder(onnx_import *im) {
    graph *g = im->g;
    const onnx_attribute *a = onnx_attribute_find(im, "cats_int64s", ONNX_ATTRIBUTE_INTS);
    const graph_id x = onnx_operand(im, 0);
    const int rank = onnx_operand_rank(im, 0);
    onnx_ignore(im, "zeros");
    if (onnx_attribute_find(im, "cats_strings", ONNX_ATTRIBUTE_STRINGS))
        onnx_fail(im, DLC_UNSUPPORTED, "categories that are strings, which libdlc does not have");
    const int64_t count = a ? (int64_t)a->ints.count : 0;
    if (!count) onnx_fail(im, DLC_PARSE_ERROR, "it has no categories");
    require_different(im, a->ints.data, a->ints.count);
    if (rank >= DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank + 1);
    const graph_id hot = graph_eq(g, graph_expand_dims(g, graph_cast(g, x, DLC_I64), rank),
                                  graph_literal(g, DLC_I64, 1, &count, a->ints.data));
    onnx_give(im, 0, graph_cast(g, hot, DLC_F32));
}

/* Keys or values of a LabelEncoder. */
typedef struct coded {
    dlc_dtype dtype;
    int64_t count;
    /* elements of any alignment */
    const char *bytes;
} coded;

/* From attributes `what`s_int64s, _floats and _tensor, as keys_floats; strings are refused. */
static coded coded_of(onnx_import *im, const char *what) {
    lib_arena *arena = im->g->arena;
    const char *name = lib_arena_format(arena, "%s_int64s", what);
    const onnx_attribute *integers = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_INTS),
                         *floats =
                             onnx_attribute_find(im, lib_arena_format(arena, "%s_floats", what), ONNX_ATTRIBUTE_FLOATS),
                         *tensor =
                             onnx_attribute_find(im, lib_arena_format(arena, "%s_tensor", what), ONNX_ATTRIBUTE_TENSOR),
                         *strings = onnx_attribute_find(im, lib_arena_format(arena, "%s_strings", what),
                                                        ONNX_ATTRIBUTE_STRINGS);
    if (strings || (tensor && tensor->t->data_type == ONNX_STRING))
        onnx_fail(im, DLC_UNSUPPORTED, "%s that are strings, which libdlc does not have", what);
    if (!!integers + !!floats + !!tensor != 1)
        onnx_fail(im, DLC_PARSE_ERROR, "%d attributes give its %s; expected one", !!integers + !!floats + !!tensor,
                  what);
    if (integers) return (coded){DLC_I64, (int64_t)integers->ints.count, (const char *)integers->ints.data};
    if (floats) return (coded){DLC_F32, (int64_t)floats->floats.count, (const char *)floats->floats.data};
    const dlc_dtype dtype = onnx_dtype(im, tensor->t->data_type);
    if (onnx_is_external(tensor->t) || lib_dtype_is_stored_otherwise(dtype))
        onnx_fail(im, DLC_UNSUPPORTED, "%s of external data, or of type %s", what, lib_dtypes[dtype].name);
    const onnx_data data = onnx_tensor_data(arena, tensor->t);
    return (coded){dtype, data.count, data.bytes.data};
}

/* A key and its place in the list. */
typedef struct key {
    double real;
    int64_t integer, place;
} key;

static int by_key(const void *a, const void *b) {
    const key *x = a, *y = b;
    if (x->real != y->real) return x->real < y->real ? -1 : 1;
    if (x->integer != y->integer) return x->integer < y->integer ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* The keys in ascending order, of equal ones the last. NaN is left out; *nan is its place, or -1. */
static int64_t sorted_keys(onnx_import *im, const coded *keys, key **out, int64_t *nan) {
    key *list = LIB_NEW_ARRAY(im->g->arena, key, (size_t)keys->count + 1);
    const size_t size = lib_dtype_size(keys->dtype);
    int64_t count = 0, kept = 0;
    char element[16] = {0};
    *nan = -1;
    for (int64_t i = 0; i < keys->count; i++) {
        memcpy(element, keys->bytes + (size_t)i * size, size);
        key k = {0, 0, i};
        if (lib_dtype_is_float(keys->dtype))
            k.real = lib_element_get_f64(keys->dtype, element);
        else
            k.integer = lib_element_get_i64(keys->dtype, element);
        if (isnan(k.real))
            *nan = i;
        else
            list[count++] = k;
    }
    qsort(list, (size_t)count, sizeof *list, by_key);
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || list[i].real != list[i + 1].real || list[i].integer != list[i + 1].integer)
            list[kept++] = list[i];
    *out = list;
    return kept;
}

/* Elements of a list at the keys' places. */
static graph_id at_places(onnx_import *im, const coded *from, const key *keys, int64_t count) {
    const size_t size = lib_dtype_size(from->dtype);
    char *bytes = lib_arena_array(im->g->arena, (size_t)count + 1, size);
    for (int64_t i = 0; i < count; i++)
        memcpy(bytes + (size_t)i * size, from->bytes + (size_t)keys[i].place * size, size);
    return graph_literal(im->g, from->dtype, 1, &count, bytes);
}

/* The value of what is no key, rank 0. */
static graph_id default_value(onnx_import *im, dlc_dtype dtype) {
    const onnx_attribute *tensor = onnx_attribute_find(im, "default_tensor", ONNX_ATTRIBUTE_TENSOR);
    const int64_t integer = onnx_int(im, "default_int64", -1);
    const double real = onnx_float(im, "default_float", -0.0);
    onnx_ignore(im, "default_string");
    if (!tensor || tensor->t->data_type == ONNX_STRING)
        return lib_dtype_is_float(dtype) ? graph_scalar(im->g, dtype, real) : graph_scalar_i64(im->g, dtype, integer);
    const onnx_data data = onnx_tensor_data(im->g->arena, tensor->t);
    if (onnx_dtype(im, tensor->t->data_type) != dtype || data.count != 1 || onnx_is_external(tensor->t))
        onnx_fail(im, DLC_PARSE_ERROR, "default_tensor is no single element of type %s, that of the values",
                  lib_dtypes[dtype].name);
    return graph_literal(im->g, dtype, 0, NULL, data.bytes.data);
}

/* By binary search in the sorted keys. */
static void import_label_encoder(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0);
    const coded keys = coded_of(im, "keys"), values = coded_of(im, "values");
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype;
    key *order;
    int64_t nan;
    if (keys.count != values.count)
        onnx_fail(im, DLC_PARSE_ERROR, "%lld keys and %lld values", (long long)keys.count, (long long)values.count);
    if (keys.dtype != dtype)
        onnx_fail(im, DLC_PARSE_ERROR, "keys of type %s for an operand of type %s", lib_dtypes[keys.dtype].name,
                  lib_dtypes[dtype].name);
    const int64_t count = sorted_keys(im, &keys, &order, &nan);
    const graph_shape shape = *graph_shape_of(g, x);
    graph_id y = graph_broadcast_to(g, default_value(im, values.dtype), shape.rank, shape.dim);
    if (count) {
        const graph_id sorted = at_places(im, &keys, order, count);
        const graph_id place = onnx_emit(im, "search_sorted", 2, (graph_id[]){sorted, x}, 0, NULL);
        const graph_id found = graph_eq(g, graph_gather(g, sorted, place, 0), x);
        y = graph_select(g, found, graph_gather(g, at_places(im, &values, order, count), place, 0), y);
    }
    if (nan >= 0) {
        const key last = {.place = nan};
        const graph_id value = graph_reshape(g, at_places(im, &values, &last, 1), 0, NULL);
        y = graph_select(g, onnx_unary(im, "is_nan", x), value, y);
    }
    onnx_give(im, 0, y);
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

/* Rows of coefficients of a classifier: one for each class, or one that decides between two. */
static size_t classifier_rows(onnx_import *im, graph_id x, size_t coefficients, size_t intercepts, size_t labels) {
    int64_t features;
    if (intercepts) return intercepts;
    if (tir_is_const(im->g->pool, graph_shape_of(im->g, x)->dim[1], &features) && features > 0)
        return coefficients / (size_t)features;
    return labels;
}

/* Is the one score of each sample, [samples, 1], above 0? The index of its class, i64 [samples]. */
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
    if (rows == 1) { /* of one label: it, or 0 */
        const int64_t one[2] = {0, labels.numbers ? labels.numbers[0] : 0};
        const onnx_labels pair = labels.count == 2 || !labels.numbers ? labels : (onnx_labels){2, one};
        onnx_give_label(im, &pair, second_class(im, scores));
        if (labels.count == 2) scores = onnx_both_classes(im, scores, false);
    } else {
        onnx_give_label(im, &labels, onnx_greatest(im, scores));
    }
    onnx_give(im, 1, graph_cast(im->g, onnx_transformed(im, scores, transform), DLC_F32));
}

/* ---- refused --------------------------------------------------------------------------------------------------------- */

static void import_strings(onnx_import *im) {
    onnx_fail(im, DLC_UNSUPPORTED, "it maps strings, which libdlc does not have");
}

const onnx_refusal onnx_refused_learn[] = {
    {"CastMap", "its operand is a map, which libdlc does not have"},
    {"CategoryMapper", "it maps strings, which libdlc does not have"},
    {"DictVectorizer", "its operand is a map, which libdlc does not have"},
    {"ZipMap", "its result is a sequence of maps, which libdlc does not have"},
    {0},
};

const onnx_row onnx_rows_learn[] = {
    {"ArrayFeatureExtractor", 1, 0, import_array_feature_extractor, NULL},
    {"Binarizer", 1, 0, import_binarizer, NULL},
    {"FeatureVectorizer", 1, 0, import_feature_vectorizer, NULL},
    {"Imputer", 1, 0, import_imputer, NULL},
    {"LabelEncoder", 1, 1, import_strings, NULL},
    {"LabelEncoder", 2, 0, import_label_encoder, NULL},
    {"LinearClassifier", 1, 0, import_linear_classifier, NULL},
    {"LinearRegressor", 1, 0, import_linear_regressor, NULL},
    {"Normalizer", 1, 0, import_normalizer, NULL},
    {"OneHotEncoder", 1, 0, import_one_hot_encoder, NULL},
    {"Scaler", 1, 0, import_scaler, NULL},
    {0},
};
