/* Norms over the last axes, shared by the rows of the standard's domain and of com.microsoft. */
#ifndef GRAPH_ONNX_NORMALIZE_H
#define GRAPH_ONNX_NORMALIZE_H

#include "graph/onnx/import.h"

typedef struct onnx_norm {
    /* bias 0: none */
    graph_id scale, bias;
    /* First of the normalised axes, which go to the last; 0..rank-1. */
    int axis;
    double epsilon;
    /* Type of the statistics. */
    dlc_dtype stash;
} onnx_norm;

/* y; with statistics also the mean (0: the norm has none) and 1/sqrt(v + epsilon), where v is the variance or the mean square. */
typedef struct onnx_normalized {
    graph_id y, mean, inverse;
} onnx_normalized;

/* y has the type of x. */
onnx_normalized onnx_layer_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics);
/* y has the type of scale. */
onnx_normalized onnx_rms_norm(onnx_import *im, graph_id x, const onnx_norm *n, bool statistics);

#endif
