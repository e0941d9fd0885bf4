/* Shared by the rows of ai.onnx.ml: lists of numbers, samples, scores and labels. */
#ifndef GRAPH_ONNX_LEARN_H
#define GRAPH_ONNX_LEARN_H

#include "graph/onnx/import.h"

/* Greatest number of elements of a table that a row makes of its attributes. */
enum { ONNX_TABLE_MAX = 1 << 27 };

/* Numbers of an attribute; data NULL: it was not given. */
typedef struct onnx_numbers {
    size_t count;
    const double *data;
} onnx_numbers;

/* The numbers of attribute `name`, a list of floats. */
onnx_numbers onnx_numbers_of(onnx_import *im, const char *name);
/* The numbers of attribute `name`, or of the tensor attribute `name`_as_tensor. */
onnx_numbers onnx_numbers_or_tensor(onnx_import *im, const char *name);
/* The elements of a tensor of real numbers; what: its name for messages. */
onnx_numbers onnx_numbers_of_tensor(onnx_import *im, const onnx_tensor *tensor, const char *what);
/* Raises unless count is `expected`. */
void onnx_require_count(onnx_import *im, size_t count, size_t expected, const char *what);
/* A constant of these numbers, rounded to dtype. */
graph_id onnx_constant(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims, const double *data);
/* A constant of these integers. */
graph_id onnx_constant_i32(onnx_import *im, int rank, const int64_t *dims, const int32_t *data);

/* Operand 0 as [samples, features], one sample if it is a list; in f32 if it is f32 or f16, else in f64. */
graph_id onnx_samples(onnx_import *im);

/* Transforms of scores at the end of an operator, in the order of TreeEnsemble's attribute. */
typedef enum onnx_transform {
    ONNX_TRANSFORM_NONE,
    ONNX_TRANSFORM_SOFTMAX,
    ONNX_TRANSFORM_LOGISTIC,
    ONNX_TRANSFORM_SOFTMAX_ZERO,
    ONNX_TRANSFORM_PROBIT,
    ONNX_TRANSFORM_COUNT
} onnx_transform;
onnx_transform onnx_transform_attribute(onnx_import *im);
/* The scores [samples, classes] after the transform. */
graph_id onnx_transformed(onnx_import *im, graph_id scores, onnx_transform transform);
/* Scores [samples, 1] of the second of two classes as scores of both: [-s, s], or, if they are probabilities, [1 - s, s]. */
graph_id onnx_both_classes(onnx_import *im, graph_id scores, bool probabilities);

typedef struct onnx_labels {
    size_t count;
    /* One of them is NULL. */
    const int64_t *numbers;
    const onnx_bytes *strings;
} onnx_labels;
/* The labels of attribute classlabels_strings or of attribute `integers`; raises unless exactly one is given. */
onnx_labels onnx_labels_of(onnx_import *im, const char *integers);
/* The two labels of a classifier with one score, which chooses the second: those given; before a single one, 0 or the empty string. */
onnx_labels onnx_two_labels(onnx_import *im, const onnx_labels *labels);
/* Result 0: for each sample the label with that index, i64 [samples], or strings. */
void onnx_give_label(onnx_import *im, const onnx_labels *labels, graph_id index);
/* The index of the greatest score of each sample. */
graph_id onnx_greatest(onnx_import *im, graph_id scores);

/* Begins the body of a scan or while with operands in[count], and makes it the current graph. inside[i]: the body's input for in[i]; for the
 * `sequences` operands from first_sequence on, an element. Returns the graph that was current, which the caller makes current again. */
graph *onnx_begin_body(onnx_import *im, int count, const graph_id *in, int first_sequence, int sequences,
                       graph_id *inside, int64_t *number);

#endif
