/* Shared by the files of rows of the domain com.microsoft. */
#ifndef GRAPH_ONNX_MICROSOFT_H
#define GRAPH_ONNX_MICROSOFT_H

#include "graph/onnx/import.h"

static inline tir_expr onnx_size(onnx_import *im, int64_t value) {
    return tir_index(im->g->pool, value);
}

static inline dlc_dtype onnx_dtype_of(onnx_import *im, graph_id x) {
    return graph_shape_of(im->g, x)->dtype;
}

static inline int onnx_rank_of(onnx_import *im, graph_id x) {
    return graph_shape_of(im->g, x)->rank;
}

/* a + b; if one is 0, the other. */
static inline graph_id onnx_sum(onnx_import *im, graph_id a, graph_id b) {
    return a && b ? onnx_binary(im, "add", a, b) : a ? a : b;
}

/* Elements from..to-1 of the last axis. */
graph_id onnx_columns(onnx_import *im, graph_id x, tir_expr from, tir_expr to);
/* Part `part` of `parts` equal ones of the last axis. */
graph_id onnx_part(onnx_import *im, graph_id x, int part, int parts);

/* (x - zero point) * scale for integers x, in the type of scale. scale, zero: numbers of the operands, each with one element; an omitted zero
 * point is 0. */
graph_id onnx_dequantize(onnx_import *im, graph_id x, size_t scale, size_t zero);
/* matmul_integer of in[4], a, b and their zero points (0: none), times both scales, in f32. b's scale and zero point have one entry, or one for
 * each of its columns. */
graph_id onnx_scaled_product(onnx_import *im, const graph_id *in, graph_id a_scale, graph_id b_scale);

#endif
