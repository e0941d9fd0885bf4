/* Rows of attention and rotary embedding. */
#include "graph/onnx/attention.h"
#include "graph/onnx/control.h"

enum { BATCH = ONNX_BATCH, HEAD = ONNX_HEAD, ROW = ONNX_ROW, COLUMN = ONNX_COLUMN, RANK = ONNX_HEADS_RANK };

graph_id onnx_split_into(onnx_import *im, graph_id x, tir_expr heads) {
    const graph_shape shape = *graph_shape_of(im->g, x);
    if (shape.rank != RANK - 1) onnx_fail(im, DLC_PARSE_ERROR, "an operand of rank %d, not 3 or 4", shape.rank);
    const tir_expr size = tir_div(im->g->pool, shape.dim[2], heads);
    if (tir_equal(im->g->pool, tir_mul(im->g->pool, size, heads), shape.dim[2]) != TIR_YES)
        onnx_fail(im, DLC_PARSE_ERROR, "the last dimension is no multiple of the number of heads");
    const graph_id split = graph_reshape(im->g, x, RANK, (tir_expr[]){shape.dim[0], shape.dim[1], heads, size});
    return graph_transpose(im->g, split, (int64_t[]){0, 2, 1, 3});
}

graph_id onnx_split_heads(onnx_import *im, graph_id x, const char *heads_name) {
    const int64_t heads = onnx_int(im, heads_name, 0);
    if (graph_shape_of(im->g, x)->rank == RANK) return x;
    if (heads <= 0) onnx_fail(im, DLC_PARSE_ERROR, "operands of rank 3 need the number of heads, %s", heads_name);
    return onnx_split_into(im, x, tir_index(im->g->pool, heads));
}

graph_id onnx_join_heads(onnx_import *im, graph_id x) {
    const graph_shape s = *graph_shape_of(im->g, x);
    const tir_expr joined[] = {s.dim[BATCH], s.dim[ROW], tir_mul(im->g->pool, s.dim[HEAD], s.dim[COLUMN])};
    return graph_reshape(im->g, graph_transpose(im->g, x, (int64_t[]){0, 2, 1, 3}), 3, joined);
}

/* x [batch, heads, rows, columns] as [batch, key heads, heads for each key head, rows, columns]. */
static graph_id group_heads(onnx_import *im, graph_id x, tir_expr key_heads) {
    const graph_shape s = *graph_shape_of(im->g, x);
    const tir_expr one = tir_index(im->g->pool, 1),
                   each = tir_div(im->g->pool, s.dim[HEAD], tir_max(im->g->pool, key_heads, one));
    return graph_reshape(im->g, x, RANK + 1, (tir_expr[]){s.dim[BATCH], key_heads, each, s.dim[ROW], s.dim[COLUMN]});
}

/* The product [batch, heads, m, n] of a [batch, heads, m, k] and b [batch, key heads, k, n], each head with its key head. */
static graph_id grouped_product(onnx_import *im, graph_id a, graph_id b) {
    const graph_shape x = *graph_shape_of(im->g, a), y = *graph_shape_of(im->g, b);
    if (tir_equal(im->g->pool, x.dim[HEAD], y.dim[HEAD]) == TIR_YES) return graph_matmul(im->g, a, b);
    const graph_id product = graph_matmul(im->g, group_heads(im, a, y.dim[HEAD]), graph_expand_dims(im->g, b, 2));
    return graph_reshape(im->g, product, RANK, (tir_expr[]){x.dim[BATCH], x.dim[HEAD], x.dim[ROW], y.dim[COLUMN]});
}

graph_id onnx_both(onnx_import *im, graph_id a, graph_id b) {
    return a && b ? onnx_binary(im, "and", a, b) : a ? a : b;
}

/* [queries, keys]: query i sees the keys up to past + i. */
static graph_id causal_mask(onnx_import *im, const onnx_attention *a, tir_expr past) {
    const tir_expr dim[] = {graph_shape_of(im->g, a->q)->dim[ROW], graph_shape_of(im->g, a->k)->dim[ROW]};
    const graph_id last =
        onnx_binary(im, "add", graph_iota(im->g, DLC_I64, 2, dim, 0), graph_dimension(im->g, DLC_I64, past));
    return onnx_binary(im, "le", graph_iota(im->g, DLC_I64, 2, dim, 1), last);
}

static tir_expr more_keys(onnx_import *im, const onnx_attention *a) {
    return tir_sub(im->g->pool, graph_shape_of(im->g, a->k)->dim[ROW], graph_shape_of(im->g, a->q)->dim[ROW]);
}

void onnx_hide_later(onnx_import *im, onnx_attention *a, tir_expr past) {
    if (tir_equal(im->g->pool, more_keys(im, a), past) == TIR_YES)
        a->causal = true;
    else
        a->visible = onnx_both(im, causal_mask(im, a, past), a->visible);
}

/* [batch, 1, 1, keys]: the first lengths[b] keys are visible. */
static graph_id filled_mask(onnx_import *im, graph_id lengths, const graph_shape *k) {
    const tir_expr one = tir_index(im->g->pool, 1);
    const graph_id position = graph_iota(im->g, DLC_I64, 1, &k->dim[ROW], 0);
    lengths = graph_reshape(im->g, lengths, RANK, (tir_expr[]){k->dim[BATCH], one, one, one});
    return onnx_binary(im, "lt", position, lengths);
}

/* Operand 3, the mask, extended to all keys: those beyond its end are not visible. 0: there is none. */
static graph_id whole_mask(onnx_import *im, const graph_shape *k) {
    const graph_id mask = onnx_operand(im, 3);
    if (!mask) return 0;
    graph_shape s = *graph_shape_of(im->g, mask);
    if (s.rank == 0 || tir_equal(im->g->pool, s.dim[s.rank - 1], k->dim[ROW]) == TIR_YES) return mask;
    int64_t one;
    if (tir_is_const(im->g->pool, s.dim[s.rank - 1], &one) && one == 1) return mask;
    s.dim[s.rank - 1] = tir_sub(im->g->pool, k->dim[ROW], s.dim[s.rank - 1]);
    const graph_id rest =
        graph_full(im->g, s.dtype, s.rank, s.dim, s.dtype == DLC_BOOL ? 0 : -(double)__builtin_inff());
    return graph_concat(im->g, 2, (graph_id[]){mask, rest}, s.rank - 1);
}

static graph_id hide(onnx_import *im, graph_id visible, graph_id x) {
    const graph_id lowest = graph_scalar_like(im->g, x, -(double)__builtin_inff());
    return onnx_emit(im, "select", 3, (graph_id[]){visible, x, lowest}, 0, NULL);
}

/* Attention by the operator `attention`, whose kernels do not store the scores. */
static graph_id fused(onnx_import *im, const onnx_attention *a) {
    const graph_id mask = a->bias && a->visible ? hide(im, a->visible, a->bias) : a->bias ? a->bias : a->visible;
    const graph_setting s[] = {graph_set_float("scale", a->scale), graph_set_integer("causal", a->causal)};
    return onnx_emit(im, "attention", 4, (graph_id[]){a->q, a->k, a->v, mask}, 2, s);
}

/* Softmax of scores [batch, heads, queries, keys] with, for each query, its head's sink[] as a further score, whose weight is dropped. */
static graph_id softmax_with_sink(onnx_import *im, graph_id scores, graph_id sink) {
    const graph_shape s = *graph_shape_of(im->g, scores);
    const tir_expr one = tir_index(im->g->pool, 1);
    sink = graph_reshape(im->g, graph_cast(im->g, sink, s.dtype), 3, (tir_expr[]){s.dim[HEAD], one, one});
    sink = graph_broadcast_to(im->g, sink, RANK, (tir_expr[]){s.dim[BATCH], s.dim[HEAD], s.dim[ROW], one});
    const graph_id weights = graph_softmax(im->g, graph_concat(im->g, 2, (graph_id[]){scores, sink}, COLUMN), COLUMN);
    return graph_slice_axis(im->g, weights, COLUMN, tir_index(im->g->pool, 0), s.dim[COLUMN]);
}

/* The scores q k' times the factor, [batch, heads, queries, keys]. */
static graph_id scaled_scores(onnx_import *im, const onnx_attention *a) {
    const tir_expr size = graph_shape_of(im->g, a->q)->dim[COLUMN];
    const graph_id k = graph_transpose(im->g, graph_widen(im->g, a->k), (int64_t[]){0, 1, 3, 2}),
                   scores = grouped_product(im, graph_widen(im->g, a->q), k),
                   factor = a->scaled ? graph_scalar_like(im->g, scores, a->scale)
                                      : onnx_unary(im, "rsqrt",
                                                   graph_dimension(im->g, graph_shape_of(im->g, scores)->dtype, size));
    return onnx_binary(im, "mul", scores, factor);
}

/* The product of weights [batch, heads, queries, keys] and values, in q's type. */
static graph_id weighted_values(onnx_import *im, const onnx_attention *a, graph_id weights) {
    const graph_id v = graph_cast(im->g, a->v, graph_shape_of(im->g, weights)->dtype);
    return graph_cast(im->g, grouped_product(im, weights, v), graph_shape_of(im->g, a->q)->dtype);
}

graph_id onnx_attend_in_parts(onnx_import *im, const onnx_attention *a, dlc_dtype precision, graph_id *stage) {
    graph_id visible = a->visible;
    stage[0] = stage[1] = scaled_scores(im, a);
    if (a->cap != 0)
        stage[1] =
            graph_mul_number(im->g, onnx_unary(im, "tanh", graph_mul_number(im->g, stage[0], 1 / a->cap)), a->cap);
    stage[2] =
        a->bias ? onnx_binary(im, "add", stage[1], graph_cast(im->g, a->bias, graph_shape_of(im->g, stage[1])->dtype))
                : stage[1];
    if (a->causal) visible = onnx_both(im, causal_mask(im, a, more_keys(im, a)), visible);
    if (visible) stage[2] = hide(im, visible, stage[2]);
    const graph_id wide = precision == DLC_F64 ? graph_cast(im->g, stage[2], DLC_F64) : stage[2];
    stage[3] = a->sink ? softmax_with_sink(im, wide, a->sink) : graph_softmax(im->g, wide, COLUMN);
    return weighted_values(im, a, stage[3]);
}

graph_id onnx_attend(onnx_import *im, const onnx_attention *a) {
    graph_id stage[ONNX_STAGES];
    const bool parts = a->cap != 0 || a->sink || (a->scaled && a->scale == 0);
    return parts ? onnx_attend_in_parts(im, a, graph_shape_of(im->g, a->q)->dtype, stage) : fused(im, a);
}

static void import_attention(onnx_import *im) {
    graph *g = im->g;
    const bool joined = onnx_operand_rank(im, 0) == 3;
    onnx_ignore(im, "q_num_heads"), onnx_ignore(im, "kv_num_heads");
    onnx_attention a = {.q = onnx_split_heads(im, onnx_operand(im, 0), "q_num_heads"),
                        .k = onnx_split_heads(im, onnx_operand(im, 1), "kv_num_heads"),
                        .v = onnx_split_heads(im, onnx_operand(im, 2), "kv_num_heads")};
    tir_expr past = tir_index(g->pool, 0);
    if (onnx_has(im, 4)) {
        past = onnx_operand_shape(im, 4).dim[ROW];
        a.k = graph_concat(g, 2, (graph_id[]){onnx_operand(im, 4), a.k}, ROW);
    }
    if (onnx_has(im, 5)) a.v = graph_concat(g, 2, (graph_id[]){onnx_operand(im, 5), a.v}, ROW);
    const graph_shape q = *graph_shape_of(g, a.q), k = *graph_shape_of(g, a.k);
    const graph_id mask = whole_mask(im, &k);
    if (mask && graph_shape_of(g, mask)->dtype == DLC_BOOL)
        a.visible = mask;
    else if (mask)
        a.bias = graph_cast(g, mask, q.dtype);
    if (onnx_has(im, 6)) a.visible = onnx_both(im, a.visible, filled_mask(im, onnx_operand(im, 6), &k));

    a.scale = onnx_float(im, "scale", 0), a.cap = onnx_float(im, "softcap", 0);
    a.scaled = onnx_attribute_find(im, "scale", ONNX_ATTRIBUTE_FLOAT) != NULL;
    const int64_t mode = onnx_int(im, "qk_matmul_output_mode", 0);
    const dlc_dtype precision = onnx_dtype_attribute(im, "softmax_precision", q.dtype);
    if (mode < 0 || mode > 3) onnx_fail(im, DLC_PARSE_ERROR, "qk_matmul_output_mode=%lld", (long long)mode);
    if (onnx_int(im, "is_causal", 0)) onnx_hide_later(im, &a, past);
    graph_id stage[ONNX_STAGES], y;
    if (onnx_wants(im, 3) || (precision == DLC_F64 && q.dtype != DLC_F64)) {
        y = onnx_attend_in_parts(im, &a, precision, stage);
        onnx_give(im, 3, graph_cast(g, stage[mode], q.dtype));
    } else
        y = onnx_attend(im, &a);
    onnx_give(im, 0, joined ? onnx_join_heads(im, y) : y);
    if (onnx_wants(im, 1)) onnx_give(im, 1, a.k);
    if (onnx_wants(im, 2)) onnx_give(im, 2, a.v);
}

/* x [batch, heads, queries, keys] after the node's sub-graph of that name is applied, if there is one. */
static graph_id modified(onnx_import *im, const char *name, graph_id x) {
    const graph_shape before = *graph_shape_of(im->g, x);
    if (!onnx_attribute_find(im, name, ONNX_ATTRIBUTE_GRAPH)) return x;
    const onnx_graph *part = onnx_graph_attribute(im, name);
    if (part->inputs.count != 1 || part->outputs.count != 1)
        onnx_fail(im, DLC_PARSE_ERROR, "%s with %zu inputs and %zu outputs, not one", name, part->inputs.count,
                  part->outputs.count);
    const onnx_value in = {.id = x};
    onnx_value out;
    onnx_import_inline(im, part, &in, 1, &out);
    const graph_id y = onnx_id_of(im, &out);
    const graph_shape after = *graph_shape_of(im->g, y);
    bool alike = after.rank == before.rank && after.dtype == before.dtype;
    for (int d = 0; alike && d < after.rank; d++) alike = tir_equal(im->g->pool, after.dim[d], before.dim[d]) != TIR_NO;
    if (!alike) onnx_fail(im, DLC_PARSE_ERROR, "%s changes the element type or the shape", name);
    return y;
}

static void import_flex_attention(onnx_import *im) {
    onnx_attention a = {.q = onnx_operand(im, 0), .k = onnx_operand(im, 1), .v = onnx_operand(im, 2)};
    const graph_id operands[] = {a.q, a.k, a.v};
    for (int i = 0; i < 3; i++)
        if (graph_shape_of(im->g, operands[i])->rank != RANK)
            onnx_fail(im, DLC_PARSE_ERROR, "operand %d of rank %d, not 4", i, graph_shape_of(im->g, operands[i])->rank);
    const dlc_dtype dtype = graph_shape_of(im->g, a.q)->dtype, wide = dtype == DLC_F64 ? DLC_F64 : DLC_F32,
                    precision = onnx_dtype_attribute(im, "softmax_precision", wide);
    const bool modifies = onnx_attribute_find(im, "score_mod", ONNX_ATTRIBUTE_GRAPH) ||
                          onnx_attribute_find(im, "prob_mod", ONNX_ATTRIBUTE_GRAPH);
    a.scale = onnx_float(im, "scale", 0);
    a.scaled = onnx_attribute_find(im, "scale", ONNX_ATTRIBUTE_FLOAT) != NULL;
    if (!modifies && precision == wide) {
        onnx_give(im, 0, onnx_attend(im, &a));
        return;
    }
    const graph_id scores = modified(im, "score_mod", graph_cast(im->g, scaled_scores(im, &a), precision));
    onnx_give(im, 0, weighted_values(im, &a, modified(im, "prob_mod", graph_softmax(im->g, scores, COLUMN))));
}

graph_id onnx_rotate(onnx_import *im, graph_id x, graph_id cosine, graph_id sine, tir_expr turned, bool interleaved) {
    graph *g = im->g;
    const tir_expr size = graph_shape_of(g, x)->dim[COLUMN], zero = tir_index(g->pool, 0);
    const bool all = tir_equal(g->pool, turned, size) == TIR_YES;
    const graph_setting s = graph_set_integer("interleaved", interleaved);
    const graph_id part = all ? x : graph_slice_axis(g, x, COLUMN, zero, turned),
                   y = onnx_emit(im, "rotary_embedding", 3, (graph_id[]){part, cosine, sine}, 1, &s);
    return all ? y : graph_concat(g, 2, (graph_id[]){y, graph_slice_axis(g, x, COLUMN, turned, size)}, COLUMN);
}

static void import_rotary_embedding(onnx_import *im) {
    graph *g = im->g;
    const bool joined = onnx_operand_rank(im, 0) == 3;
    const graph_id x = onnx_split_heads(im, onnx_operand(im, 0), "num_heads");
    const int64_t given = onnx_int(im, "rotary_embedding_dim", 0);
    if (given < 0) onnx_fail(im, DLC_PARSE_ERROR, "rotary_embedding_dim=%lld", (long long)given);
    const tir_expr turned = given ? tir_index(g->pool, given) : graph_shape_of(g, x)->dim[COLUMN];
    graph_id angle[2];
    for (size_t i = 0; i < 2; i++) { /* cosine and sine, [batch, 1, positions, turned/2] */
        angle[i] = onnx_operand(im, i + 1);
        if (onnx_has(im, 3)) angle[i] = graph_gather(g, angle[i], onnx_operand(im, 3), 0);
        if (graph_shape_of(g, angle[i])->rank != 3)
            onnx_fail(im, DLC_PARSE_ERROR, "cosines and sines of rank %d, with the positions of position_ids; not 3",
                      graph_shape_of(g, angle[i])->rank);
        angle[i] = graph_expand_dims(g, angle[i], 1);
    }
    const graph_id y = onnx_rotate(im, x, angle[0], angle[1], turned, onnx_int(im, "interleaved", 0) != 0);
    onnx_give(im, 0, joined ? onnx_join_heads(im, y) : y);
}

const onnx_row onnx_rows_attention[] = {
    {"Attention", 23, 0, import_attention, NULL},
    {"RotaryEmbedding", 23, 0, import_rotary_embedding, NULL},
    {0},
};

const onnx_row onnx_rows_preview[] = {
    {"FlexAttention", 1, 0, import_flex_attention, NULL},
    {0},
};
