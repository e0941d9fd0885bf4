/* Attention and rotary embedding: what the rows of the standard's domain and of others share. */
#ifndef GRAPH_ONNX_ATTENTION_H
#define GRAPH_ONNX_ATTENTION_H

#include "graph/onnx/import.h"

/* Axes of [batch, heads, positions, size]. */
enum { ONNX_BATCH, ONNX_HEAD, ONNX_ROW, ONNX_COLUMN, ONNX_HEADS_RANK };

typedef struct onnx_attention {
    /* [batch, heads, positions, size]; heads of q are a multiple of those of k and v */
    graph_id q, k, v;
    /* Numbers that are added to scores, and keys that are visible; both broadcast to [batch, heads, queries, keys]. 0: none. */
    graph_id bias, visible;
    /* [heads]: the score of one key more, whose value is zero. 0: none. */
    graph_id sink;
    /* 0: 1 / sqrt(size of a head); `scaled`: the number given, which may be 0 */
    double scale;
    bool scaled;
    /* Query i sees the keys up to i + keys - queries. */
    bool causal;
    /* Scores become cap * tanh(scores / cap); 0: they stay. */
    double cap;
} onnx_attention;

/* [batch, positions, heads * size] as [batch, heads, positions, size], and back. */
graph_id onnx_split_into(onnx_import *im, graph_id x, tir_expr heads);
graph_id onnx_join_heads(onnx_import *im, graph_id x);
/* The same by the attribute that has the number of heads; of rank 4 it is that. */
graph_id onnx_split_heads(onnx_import *im, graph_id x, const char *heads_name);

/* Both conditions; 0: none. */
graph_id onnx_both(onnx_import *im, graph_id a, graph_id b);
/* Query i sees the keys up to `past` + i only. */
void onnx_hide_later(onnx_import *im, onnx_attention *a, tir_expr past);

/* The result [batch, heads, queries, size], of q's type. */
graph_id onnx_attend(onnx_import *im, const onnx_attention *a);
/* The same with the stages of [batch, heads, queries, keys]: scores, those capped, those with bias and mask, weights. */
enum { ONNX_STAGES = 4 };
graph_id onnx_attend_in_parts(onnx_import *im, const onnx_attention *a, dlc_dtype precision, graph_id *stage);

/* The first `turned` elements of the last axis turn by the angles, whose cosines and sines [.., positions, turned/2] broadcast. */
graph_id onnx_rotate(onnx_import *im, graph_id x, graph_id cosine, graph_id sine, tir_expr turned, bool interleaved);

#endif
