/* Windows that slide over spatial dimensions: attributes shared by convolutions and poolings. */
#ifndef GRAPH_ONNX_WINDOW_H
#define GRAPH_ONNX_WINDOW_H

#include "graph/onnx/import.h"

typedef enum onnx_pad { ONNX_PAD_GIVEN, ONNX_PAD_VALID, ONNX_PAD_UPPER, ONNX_PAD_LOWER } onnx_pad;

typedef struct onnx_window {
    /* Spatial dimensions: the operand's rank less batch and channels. */
    int rank;
    onnx_pad pad;
    int64_t window[DLC_MAX_RANK], stride[DLC_MAX_RANK], dilation[DLC_MAX_RANK], low[DLC_MAX_RANK], high[DLC_MAX_RANK];
} onnx_window;

/* The greatest window, stride, dilation, padding: so small that sums of a few products of two cannot overflow. */
enum { ONNX_WINDOW_MAX = 1 << 30 };
/* Sets to[count] to the list attribute, or to the fallback if it is absent, which it may not be if the fallback is below `least`; raises for
 * another number of entries, and for entries outside least..ONNX_WINDOW_MAX. */
void onnx_window_list(onnx_import *im, const char *name, int count, int64_t fallback, int64_t least, int64_t *to);
/* The window of weights [out, in, window...], which must be numbers. */
const int64_t *onnx_window_dims(onnx_import *im, const graph_shape *weights);
/* Attributes auto_pad, strides, dilations, pads of the node for a window over operand 0. SAME needs spatial sizes that are numbers, or
 * strides of 1. */
onnx_window onnx_window_of(onnx_import *im, const int64_t *window);
/* onnx_window_of for transposed convolutions: auto_pad is read, but its padding is not computed. */
onnx_window onnx_window_transposed(onnx_import *im, const int64_t *window);

#endif
