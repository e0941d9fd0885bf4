/* Attention and rotary embedding, shared by the rows of the standard's domain and of com.microsoft. */
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
    /* [heads] the score of an additional key whose value is zero; 0: there is no such key. */
    graph_id sink;
    /* Factor of the scores if `scaled`; else 0, which stands for 1 / sqrt(size of a head). */
    double scale;
    bool scaled;
    /* Query i sees the keys up to i + keys - queries. */
    bool causal;
    /* Scores become cap * tanh(scores / cap); 0: they stay. */
    double cap;
} onnx_attention;

/* onnx_split_into: x [batch, positions, heads * size] as [batch, heads, positions, size]; onnx_join_heads: back. */
graph_id onnx_split_into(onnx_import *im, graph_id x, tir_expr heads);
graph_id onnx_join_heads(onnx_import *im, graph_id x);
/* onnx_split_into by the number of heads that attribute heads_name has; x of rank 4 is returned as it is. */
graph_id onnx_split_heads(onnx_import *im, graph_id x, const char *heads_name);

/* a and b, where an operand 0 is no condition; 0: both are 0. */
graph_id onnx_both(onnx_import *im, graph_id a, graph_id b);
/* Restricts a->visible: query i sees only the keys up to `past` + i. */
void onnx_hide_later(onnx_import *im, onnx_attention *a, tir_expr past);

/* The result [batch, heads, queries, size], of q's type. */
graph_id onnx_attend(onnx_import *im, const onnx_attention *a);
/* onnx_attend that computes in `precision` and sets stage[ONNX_STAGES], of [batch, heads, queries, keys]: scores, capped scores, scores with
 * bias and mask, weights. */
enum { ONNX_STAGES = 4 };
graph_id onnx_attend_in_parts(onnx_import *im, const onnx_attention *a, dlc_dtype precision, graph_id *stage);

/* x with the first `turned` elements of its last axis rotated, in pairs, by the angles whose cosines and sines are [.., positions, turned/2]
 * and broadcast. interleaved: pairs are neighbours; else elements i and i + turned/2. */
graph_id onnx_rotate(onnx_import *im, graph_id x, graph_id cosine, graph_id sine, tir_expr turned, bool interleaved);

#endif
