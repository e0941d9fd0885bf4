/* Norms over the last axes: what the rows of the standard's domain and of others share. */
#ifndef GRAPH_ONNX_NORMALIZE_H
#define GRAPH_ONNX_NORMALIZE_H

#include "graph/onnx/import.h"

typedef struct onnx_norm {
    /* bias 0: none */
    graph_id scale, bias;
    /* First of the axes; 0..rank-1 */
    int axis;
    double epsilon;
    /* Type of the statistics. */
    dlc_dtype stash;
} onnx_norm;

/* y; with statistics also the mean (0: the norm has none) and 1/sqrt(variance, or mean square, + epsilon). */
typedef struct onnx_normalized {
    graph_id y, mean, inverse;
} onnx_normalized;

/* y has the type of x. */
onnx_normalized onnx_layer_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics);
/* y has the type of scale. */
onnx_normalized onnx_rms_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics);

#endif
