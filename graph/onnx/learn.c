/* Shared code of the rows of ai.onnx.ml (learn.h). */
#include "graph/onnx/learn.h"

#include "graph/onnx/structure.h"

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static double *new_numbers(onnx_import *im, size_t count, const char *what) {
    if (count > ONNX_TABLE_MAX) onnx_fail(im, DLC_UNSUPPORTED, "attribute %s has %zu numbers", what, count);
    return LIB_NEW_ARRAY(im->g->arena, double, count + 1);
}

onnx_numbers onnx_numbers_of(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_FLOATS);
    if (!a) return (onnx_numbers){0, NULL};
    double *data = new_numbers(im, a->floats.count, name);
    for (size_t i = 0; i < a->floats.count; i++) data[i] = (double)a->floats.data[i];
    return (onnx_numbers){a->floats.count, data};
}

onnx_numbers onnx_numbers_of_tensor(onnx_import *im, const onnx_tensor *tensor, const char *what) {
    const dlc_dtype dtype = onnx_dtype(im, tensor->data_type);
    const onnx_data bytes = onnx_tensor_data(im->g->arena, tensor);
    if (onnx_is_external(tensor) || lib_dtype_is_stored_otherwise(dtype))
        onnx_fail(im, DLC_UNSUPPORTED, "attribute %s has external data, or elements of type %s", what,
                  lib_dtypes[dtype].name);
    double *data = new_numbers(im, (size_t)bytes.count, what);
    char element[16] = {0}; /* the file's are not aligned */
    for (int64_t i = 0; i < bytes.count; i++) {
        memcpy(element, bytes.bytes.data + (size_t)i * lib_dtype_size(dtype), lib_dtype_size(dtype));
        data[i] = lib_element_get_f64(dtype, element);
    }
    return (onnx_numbers){(size_t)bytes.count, data};
}

onnx_numbers onnx_numbers_or_tensor(onnx_import *im, const char *name) {
    const char *other = lib_arena_format(im->g->arena, "%s_as_tensor", name);
    const onnx_attribute *tensor = onnx_attribute_find(im, other, ONNX_ATTRIBUTE_TENSOR);
    const onnx_numbers floats = onnx_numbers_of(im, name);
    if (tensor && floats.count) onnx_fail(im, DLC_PARSE_ERROR, "both %s and %s are given", name, other);
    return tensor ? onnx_numbers_of_tensor(im, tensor->t, other) : floats;
}

void onnx_require_count(onnx_import *im, size_t count, size_t expected, const char *what) {
    if (count != expected) onnx_fail(im, DLC_PARSE_ERROR, "%s has %zu elements in place of %zu", what, count, expected);
}

graph_id onnx_constant(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims, const double *data) {
    size_t count = 1;
    for (int d = 0; d < rank; d++) count *= (size_t)dims[d];
    if (dtype == DLC_F64) return graph_literal(im->g, dtype, rank, dims, data);
    const size_t size = lib_dtype_size(dtype);
    char *rounded = lib_arena_array(im->g->arena, count + 1, size);
    for (size_t i = 0; i < count; i++) lib_element_set_f64(dtype, rounded + i * size, data[i]);
    return graph_literal(im->g, dtype, rank, dims, rounded);
}

graph_id onnx_constant_i32(onnx_import *im, int rank, const int64_t *dims, const int32_t *data) {
    return graph_literal(im->g, DLC_I32, rank, dims, data);
}

/* ---- samples --------------------------------------------------------------------------------------------------------- */

graph_id onnx_samples(onnx_import *im) {
    graph_id x = onnx_operand(im, 0);
    if (!x) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    const graph_shape shape = *graph_shape_of(im->g, x);
    if (shape.rank != 1 && shape.rank != 2)
        onnx_fail(im, DLC_PARSE_ERROR, "samples of rank %d; expected a list of features, or a matrix", shape.rank);
    if (shape.rank == 1) x = graph_expand_dims(im->g, x, 0);
    const bool narrow = shape.dtype == DLC_F32 || shape.dtype == DLC_F16;
    return graph_cast(im->g, x, narrow ? DLC_F32 : DLC_F64);
}

/* ---- scores ---------------------------------------------------------------------------------------------------------- */

onnx_transform onnx_transform_attribute(onnx_import *im) {
    return (onnx_transform)onnx_choice(im, "post_transform", "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT", "NONE");
}

/* Softmax in which scores of 0 do not take part but stay 0. A sample with only such scores gets 0.5 for each class. */
static graph_id softmax_of_others(onnx_import *im, graph_id scores) {
    graph *g = im->g;
    const int64_t classes = 1;
    const graph_id most = graph_reduce_max(g, scores, 1, &classes, true),
                   tiny = graph_le(g, graph_abs(g, scores), graph_scalar_like(g, scores, 1e-7f));
    const graph_id part = graph_select(g, tiny, graph_mul(g, scores, graph_exp(g, graph_neg(g, most))),
                                       graph_exp(g, graph_sub(g, scores, most)));
    const graph_id sum = graph_reduce_sum(g, part, 1, &classes, true);
    return graph_select(g, graph_eq(g, sum, graph_scalar_like(g, sum, 0)), graph_scalar_like(g, sum, 0.5),
                        graph_div(g, part, sum));
}

graph_id onnx_transformed(onnx_import *im, graph_id scores, onnx_transform transform) {
    switch (transform) {
    case ONNX_TRANSFORM_SOFTMAX: return graph_softmax(im->g, scores, 1);
    case ONNX_TRANSFORM_LOGISTIC: return graph_logistic(im->g, scores);
    case ONNX_TRANSFORM_SOFTMAX_ZERO: return softmax_of_others(im, scores);
    case ONNX_TRANSFORM_PROBIT: return onnx_unary(im, "normal_quantile", scores);
    default: return scores;
    }
}

graph_id onnx_both_classes(onnx_import *im, graph_id scores, bool probabilities) {
    graph *g = im->g;
    const graph_id first = probabilities ? graph_sub(g, graph_scalar_like(g, scores, 1), scores) : graph_neg(g, scores);
    return graph_concat(g, 2, (graph_id[]){first, scores}, 1);
}

/* ---- labels ---------------------------------------------------------------------------------------------------------- */

onnx_labels onnx_labels_of(onnx_import *im, const char *integers) {
    const onnx_attribute *numbers = onnx_attribute_find(im, integers, ONNX_ATTRIBUTE_INTS),
                         *strings = onnx_attribute_find(im, "classlabels_strings", ONNX_ATTRIBUTE_STRINGS);
    const size_t count = numbers ? numbers->ints.count : 0, words = strings ? strings->strings.count : 0;
    if ((count > 0) == (words > 0))
        onnx_fail(im, DLC_PARSE_ERROR, "%zu labels in %s and %zu in classlabels_strings; expected one of them", count,
                  integers, words);
    if (count + words > 1 << 20) onnx_fail(im, DLC_UNSUPPORTED, "%zu classes", count + words);
    return (onnx_labels){count + words, count ? numbers->ints.data : NULL, words ? strings->strings.data : NULL};
}

onnx_labels onnx_two_labels(onnx_import *im, const onnx_labels *labels) {
    int64_t *numbers = LIB_NEW_ARRAY(im->g->arena, int64_t, 2);
    onnx_bytes *strings = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, 2);
    if (labels->count != 1) return *labels;
    if (labels->numbers) numbers[1] = labels->numbers[0];
    if (labels->strings) strings[1] = labels->strings[0];
    return (onnx_labels){2, labels->numbers ? numbers : NULL, labels->strings ? strings : NULL};
}

graph_id onnx_greatest(onnx_import *im, graph_id scores) {
    return ONNX_WITH(im, "arg_max", scores, graph_set_integer("axis", 1));
}

void onnx_give_label(onnx_import *im, const onnx_labels *labels, graph_id index) {
    const int64_t count = (int64_t)labels->count;
    if (!labels->numbers) {
        onnx_value place = {.id = index};
        onnx_give_structure(im, 0, onnx_strings_at(im, count, labels->strings, &place));
        return;
    }
    const graph_id table = graph_literal(im->g, DLC_I64, 1, &count, labels->numbers);
    onnx_give(im, 0, graph_gather(im->g, table, index, 0));
}

/* ---- loops ----------------------------------------------------------------------------------------------------------- */

graph *onnx_begin_body(onnx_import *im, int count, const graph_id *in, int first_sequence, int sequences,
                       graph_id *inside, int64_t *number) {
    graph *outside = im->g;
    im->g = graph_new_subgraph(outside, number);
    for (int i = 0; i < count; i++) {
        graph_shape shape = *graph_shape_of(outside, in[i]);
        if (i >= first_sequence && i < first_sequence + sequences) {
            shape.rank--;
            for (int d = 0; d < shape.rank; d++) shape.dim[d] = shape.dim[d + 1];
        }
        inside[i] = graph_new_input(im->g, NULL, &shape);
    }
    return outside;
}
