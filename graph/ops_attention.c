/* Scaled dot-product attention as a composite: two contractions around a softmax whose division comes last, so that one kernel can
 * compute it block by block (online softmax) and keep scores on chip. In f16 and bf16, scores, maximum and sums are f32; the weights
 * are rounded to v's dtype before the product with v, and so is what the derivatives multiply. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

enum { ATTENTION_SCALE, ATTENTION_CAUSAL, ATTENTION_RESULT };
enum { Q, K, V, MASK };
enum { BATCH, HEAD, ROW, COLUMN, RANK };
enum { MOST_MAPS = 8 }; /* most nodes on a path from positions to a mask */

static void infer_mask(const graph_infer *infer) {
    const graph_shape *mask = &infer->operand[MASK], *q = &infer->operand[Q];
    tir_expr size[RANK] = {q->dim[BATCH], q->dim[HEAD], q->dim[ROW], infer->operand[K].dim[ROW]};
    const dlc_dtype scores = graph_sum_dtype(q->dtype);
    if (mask->dtype != DLC_BOOL && mask->dtype != q->dtype && mask->dtype != scores)
        graph_infer_fail(infer, "mask is %s, expected bool%s%s or %s", lib_dtypes[mask->dtype].name,
                         scores == q->dtype ? "" : ", ", scores == q->dtype ? "" : lib_dtypes[q->dtype].name,
                         lib_dtypes[scores].name);
    if (mask->rank > RANK) graph_infer_fail(infer, "mask has rank %d, expected at most %d", mask->rank, RANK);
    for (int i = 0; i < mask->rank; i++) {
        if (tir_is_number(infer->g->pool, mask->dim[i], 1)) continue;
        graph_infer_equal(infer, mask->dim[i], size[RANK - mask->rank + i],
                          "dimensions of the mask that are not 1 and [batch, heads, queries, keys]");
    }
}

/* Number of heads of q that share one of k. */
static tir_expr sharing_heads(graph *g, const graph_shape *q, const graph_shape *k) {
    if (tir_equal(g->pool, q->dim[HEAD], k->dim[HEAD]) == TIR_YES) return tir_index(g->pool, 1);
    return tir_div(g->pool, q->dim[HEAD], tir_max(g->pool, k->dim[HEAD], tir_index(g->pool, 1)));
}

static void infer_attention(graph_infer *infer) {
    const graph_shape *q = &infer->operand[Q], *k = &infer->operand[K], *v = &infer->operand[V];
    for (int i = Q; i <= V; i++) graph_infer_rank(infer, i, RANK);
    graph_infer_same_dtype(infer, Q, 3);
    graph_infer_equal(infer, q->dim[BATCH], k->dim[BATCH], "batches of q, k and v");
    graph_infer_equal(infer, q->dim[BATCH], v->dim[BATCH], "batches of q, k and v");
    graph_infer_equal(infer, k->dim[HEAD], v->dim[HEAD], "heads of k and v");
    graph_infer_equal(infer, q->dim[HEAD], tir_mul(infer->g->pool, k->dim[HEAD], sharing_heads(infer->g, q, k)),
                      "heads of q and a multiple of those of k and v");
    graph_infer_equal(infer, q->dim[COLUMN], k->dim[COLUMN], "last dimensions of q and k");
    graph_infer_equal(infer, k->dim[ROW], v->dim[ROW], "numbers of keys and of values");
    if (infer->operand[MASK].rank >= 0) infer_mask(infer);
    infer->result[0] = *q;
    infer->result[0].dim[COLUMN] = v->dim[COLUMN];
    if (infer->attribute[ATTENTION_RESULT].integer == GRAPH_RESULT_SAME) return;
    infer->result[0].dtype = graph_sum_dtype(q->dtype);
    if (infer->result[0].dtype != DLC_F32) graph_infer_fail(infer, "result f32 is narrower than operands of f64");
}

/* Contracts an axis of x with one of w, per batch and head; f16 and bf16 give f32. */
static graph_id product(graph *g, graph_id x, int64_t x_axis, graph_id w, int64_t w_axis) {
    dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    bool narrow = graph_sum_dtype(dtype) != dtype;
    int64_t batch[] = {BATCH, HEAD};
    return graph_emit_with(g, "dot_general", 2, (graph_id[]){x, w}, narrow ? 5 : 4,
                           (graph_setting[]){graph_set_list("batch_x", 2, batch), graph_set_list("batch_w", 2, batch),
                                             graph_set_list("contract_x", 1, &x_axis),
                                             graph_set_list("contract_w", 1, &w_axis),
                                             graph_set_integer("result", 1)}); /* f32 */
}

static graph_id scale_scores(graph *g, graph_id scores, tir_expr width, double scale) {
    if (scale != 0) return graph_mul(g, scores, graph_scalar_like(g, scores, scale));
    dlc_dtype dtype = graph_shape_of(g, scores)->dtype;
    return graph_mul(g, scores, graph_rsqrt(g, graph_dimension(g, dtype, width)));
}

/* bool [queries, keys]: query i sees the keys j <= i + (keys - queries), so that the last query sees all keys. */
static graph_id causal_mask(graph *g, tir_expr queries, tir_expr keys) {
    tir_expr dim[] = {queries, keys}, ahead = tir_sub(g->pool, keys, queries);
    graph_id last = graph_iota(g, DLC_I64, 2, dim, 0);
    if (!tir_is_number(g->pool, ahead, 0)) last = graph_add(g, last, graph_dimension(g, DLC_I64, ahead));
    return graph_le(g, graph_iota(g, DLC_I64, 2, dim, 1), last);
}

/* Does the mask depend on positions through at most `depth` maps and moves? Then a kernel can skip keys that no query sees. */
static bool is_of_positions(const graph *g, graph_id mask, int depth) {
    const graph_node *node = graph_node_of(g, mask);
    if (node->op->structure == GRAPH_POSITIONS) return true;
    if (depth == 0 || (node->op->class_ != GRAPH_MAP && node->op->class_ != GRAPH_INJECTIVE)) return false;
    for (int k = 0; k < node->inputs; k++)
        if (node->input[k] && is_of_positions(g, node->input[k], depth - 1)) return true;
    return false;
}

/* x (keys or values) with each head repeated for the heads of q that share it, by a broadcast that contractions read through. */
static graph_id for_each_head(graph *g, graph_id x, const graph_shape *q) {
    const graph_shape shape = *graph_shape_of(g, x);
    tir_expr shared = sharing_heads(g, q, &shape);
    if (shared == tir_index(g->pool, 1)) return x;
    const tir_expr wide[] = {shape.dim[BATCH], shape.dim[HEAD], shared, shape.dim[ROW], shape.dim[COLUMN]};
    const tir_expr all[] = {shape.dim[BATCH], tir_mul(g->pool, shape.dim[HEAD], shared), shape.dim[ROW],
                            shape.dim[COLUMN]};
    return graph_reshape(g, graph_broadcast(g, x, RANK + 1, wide, (int64_t[]){0, 1, 3, 4}), RANK, all);
}

/* Scores [batch, heads, queries, keys], -inf where a query does not see the key, and what hides keys from all queries of a kernel, so that
 * it can skip them: bool, or 0. */
typedef struct scoring {
    graph_id scores, visible, kept;
} scoring;

static scoring score(graph *g, graph_id q, const graph_id *input, const graph_attribute *attribute) {
    const graph_shape queries = *graph_shape_of(g, q), keys = *graph_shape_of(g, input[K]);
    const graph_id mask = input[MASK];
    graph_id scores = product(g, q, COLUMN, for_each_head(g, input[K], &queries), COLUMN);
    scoring s = {scale_scores(g, scores, queries.dim[COLUMN], attribute[ATTENTION_SCALE].number), 0, 0};
    const graph_id lowest = graph_scalar_like(g, s.scores, -(double)__builtin_inff());
    if (attribute[ATTENTION_CAUSAL].integer) {
        s.visible = causal_mask(g, queries.dim[ROW], keys.dim[ROW]);
        s.scores = graph_select(g, s.visible, s.scores, lowest);
    }
    if (!mask) return s;
    if (graph_shape_of(g, mask)->dtype != DLC_BOOL) {
        s.scores = graph_add(g, s.scores, graph_cast(g, mask, graph_shape_of(g, s.scores)->dtype));
        return s;
    }
    s.scores = graph_select(g, mask, s.scores, lowest);
    if (is_of_positions(g, mask, MOST_MAPS)) s.kept = mask;
    return s;
}

/* exp(scores - shift) */
static graph_id weights(graph *g, const scoring *s, graph_id shift) {
    graph_id weight = graph_exp(g, graph_sub(g, s->scores, shift));
    if (s->visible) weight = graph_select(g, s->visible, weight, graph_scalar_like(g, weight, 0));
    if (s->kept) weight = graph_select(g, s->kept, weight, graph_scalar_like(g, weight, 0));
    return weight;
}

/* The greatest score of each query, on which no result depends. */
static graph_id greatest(graph *g, const scoring *s) {
    const int64_t keys = COLUMN;
    const graph_id most = graph_reduce_max(g, s->scores, 1, &keys, true);
    return graph_emit_with(g, "stop_gradient", 1, &most, 0, NULL);
}

/* bool: does the query see no key? */
static graph_id sees_nothing(graph *g, graph_id most) {
    return graph_eq(g, most, graph_scalar_like(g, most, -(double)__builtin_inff()));
}

static void expand_attention(graph_expand *e) {
    graph *g = e->g;
    const graph_shape q = *graph_shape_of(g, e->input[Q]);
    const int64_t keys = COLUMN;
    const scoring s = score(g, e->input[Q], e->input, e->attribute);
    const graph_id most = greatest(g, &s), weight = weights(g, &s, most);
    graph_id sum = graph_reduce_sum(g, weight, 1, &keys, true);
    graph_id y = product(g, graph_cast(g, weight, q.dtype), COLUMN, for_each_head(g, e->input[V], &q), ROW);
    y = graph_mul(g, y, graph_div(g, graph_scalar_like(g, sum, 1), sum)); /* one division per row */
    y = graph_select(g, sees_nothing(g, most), graph_scalar_like(g, y, 0), y);
    e->result[0] = e->attribute[ATTENTION_RESULT].integer == GRAPH_RESULT_SAME ? graph_cast(g, y, q.dtype) : y;
}

/* ---- cotangents (Dao 2023): of the forward computation, the result and the logarithm of each query's sum are kept. Scores are computed
 * again, on a value of their own, so that no matrix of queries and keys lives from the forward to the backward computation. */

/* The sum over the heads that share one of x: the cotangent of x before for_each_head. */
static graph_id sum_shared(graph *g, graph_id c, graph_id x, const graph_shape *q) {
    const graph_shape shape = *graph_shape_of(g, x), given = *graph_shape_of(g, c);
    const tir_expr shared = sharing_heads(g, q, &shape);
    if (shared == tir_index(g->pool, 1)) return c;
    const int64_t axis = 2;
    const tir_expr wide[] = {given.dim[BATCH], shape.dim[HEAD], shared, given.dim[ROW], given.dim[COLUMN]};
    return graph_reduce_sum(g, graph_reshape(g, c, RANK + 1, wide), 1, &axis, false);
}

/* The sum over the axes along which the mask repeats. */
static graph_id sum_repeated(graph *g, graph_id c, graph_id mask) {
    const graph_shape shape = *graph_shape_of(g, mask);
    int64_t axes[RANK];
    int count = 0;
    for (int i = 0; i < RANK; i++) {
        const int own = i + shape.rank - RANK;
        if (own < 0 || tir_is_number(g->pool, shape.dim[own], 1)) axes[count++] = i;
    }
    if (count) c = graph_reduce_sum(g, c, count, axes, true);
    return graph_reshape(g, c, shape.rank, shape.dim);
}

static void cotangent_attention(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape shape = *graph_shape_of(g, rule->input[Q]);
    const dlc_dtype dtype = shape.dtype;
    const int64_t last = COLUMN;
    scoring s = score(g, rule->input[Q], rule->input, rule->attribute);
    const graph_id most = greatest(g, &s), none = graph_scalar_like(g, most, 0);
    graph_id all = graph_log(g, graph_reduce_sum(g, weights(g, &s, most), 1, &last, true));
    all = graph_select(g, sees_nothing(g, most), none, graph_add(g, most, all)); /* of 0, all weights are 0 */
    s = score(g, graph_emit_with(g, "again", 1, &rule->input[Q], 0, NULL), rule->input, rule->attribute);
    const graph_id weight = weights(g, &s, all), c = rule->cotangent[0], c_narrow = graph_cast(g, c, dtype);
    if (rule->wanted[V])
        rule->out[V] =
            sum_shared(g, product(g, graph_cast(g, weight, dtype), ROW, c_narrow, ROW), rule->input[V], &shape);
    if (!rule->wanted[Q] && !rule->wanted[K] && !rule->wanted[MASK]) return;
    const graph_id along = graph_reduce_sum(g, graph_mul(g, c, graph_rule_result(rule, 0)), 1, &last, true);
    graph_id d = product(g, c_narrow, COLUMN, for_each_head(g, rule->input[V], &shape), COLUMN);
    d = graph_multiply_no_nan(g, weight, graph_sub(g, d, along));
    if (rule->wanted[MASK]) rule->out[MASK] = sum_repeated(g, d, rule->input[MASK]);
    d = graph_cast(g, scale_scores(g, d, shape.dim[COLUMN], rule->attribute[ATTENTION_SCALE].number), dtype);
    if (rule->wanted[Q]) rule->out[Q] = product(g, d, COLUMN, for_each_head(g, rule->input[K], &shape), ROW);
    if (rule->wanted[K]) rule->out[K] = sum_shared(g, product(g, d, ROW, rule->input[Q], ROW), rule->input[K], &shape);
}

#ifdef DLC_REFERENCE
/* Score of query i and key j; -inf where masked. */
static double reference_score(const graph_reference *r, int64_t b, int64_t h, int64_t i, int64_t j) {
    const graph_reference_tensor *q = &r->operand[Q], *k = &r->operand[K], *mask = &r->operand[MASK];
    int64_t s = q->dim[2], t = k->dim[2], d = q->dim[3];
    double score = 0, scale = r->attribute[ATTENTION_SCALE].number;
    for (int64_t c = 0; c < d; c++)
        score += q->data[((b * q->dim[1] + h) * s + i) * d + c] *
                 k->data[((b * k->dim[1] + h / (q->dim[1] / k->dim[1])) * t + j) * d + c];
    score *= scale != 0 ? scale : 1 / sqrt((double)d);
    if (r->attribute[ATTENTION_CAUSAL].integer && j > i + t - s) return -INFINITY;
    if (!graph_reference_given(r, MASK)) return score;
    int64_t full[4] = {b, h, i, j}, at[4] = {0};
    for (int a = 0; a < mask->rank; a++) at[a] = mask->dim[a] == 1 ? 0 : full[4 - mask->rank + a];
    double m = mask->data[graph_reference_at(mask, at)];
    return mask->dtype != DLC_BOOL ? score + m : m != 0 ? score : -INFINITY;
}

static void reference_attention(const graph_reference *r) {
    const graph_reference_tensor *v = &r->operand[V], *y = &r->result[0];
    int64_t at[4] = {0}, t = v->dim[2];
    GRAPH_REFERENCE_EACH(y, at) {
        double most = -INFINITY, sum = 0, value = 0;
        for (int64_t j = 0; j < t; j++) {
            double score = reference_score(r, at[0], at[1], at[2], j);
            if (score > most || isnan(score)) most = isnan(most) ? most : score;
        }
        for (int64_t j = 0; j < t && most != -INFINITY; j++) {
            double weight = exp(reference_score(r, at[0], at[1], at[2], j) - most);
            sum += weight;
            int64_t head = at[1] / (y->dim[1] / v->dim[1]);
            value += weight * v->data[((at[0] * v->dim[1] + head) * t + j) * v->dim[3] + at[3]];
        }
        y->data[graph_reference_at(y, at)] = most == -INFINITY ? 0 : value / sum;
    }
}
#endif

extern const graph_op graph_row_attention;
const graph_op graph_row_attention = {
    COMPOSITE_ROW(attention, 3, 4, 1, "q k v [mask]", "float"),
    .aliases = "scaled_dot_product_attention",
    .linear = 4,
    .precision = GRAPH_NARROW,
    .attribute = {{"scale", GRAPH_ATTR_FLOAT, NULL, "0.0", "factor of the scores; 0: 1/sqrt(d)"},
                  {"causal", GRAPH_ATTR_BOOL, NULL, "false", "query i sees the keys j <= i + (keys - queries) only"},
                  {"result", GRAPH_ATTR_ENUM, "same f32", "same",
                   "type of the result: q's, or f32 of f16, bf16 and f32"}},
    .vjp = cotangent_attention,
    .infer = infer_attention,
    .tolerance = 16,
    .bound = GRAPH_REFERENCE(graph_bound_attention),
    .samples = "attention(T[2, 2, 3, 4], T[2, 2, 7, 4], T[2, 2, 7, 4], bool[2, 1, 3, 7])\n"
               "attention(T[2, 3, 5, 8], T[2, 3, 7, 8], T[2, 3, 7, 4])\n"
               "attention(T[1, 2, 5, 3], T[1, 2, 5, 3], T[1, 2, 5, 3], causal=true)\n"
               "attention(T[1, 2, 3, 4], T[1, 2, 7, 4], T[1, 2, 7, 5], causal=true, scale=0.3)\n"
               "attention(T[1, 2, 7, 4], T[1, 2, 3, 4], T[1, 2, 3, 5], causal=true)\n"
               "attention(T[2, 2, 3, 4], T[2, 2, 2, 4], T[2, 2, 2, 4], bool[3, 2])\n"
               "attention(T[2, 2, 3, 4], T[2, 2, 7, 4], T[2, 2, 7, 4], T[2, 1, 1, 7])\n"
               "attention(T[1, 2, 33, 16], T[1, 2, 13, 16], T[1, 2, 13, 17], causal=true)\n"
               "attention(T[1, 3, 21, 16], T[1, 3, 37, 16], T[1, 3, 37, 20], T[1, 3, 21, 37], causal=true)\n"
               "attention(T[2, 2, 19, 16], T[2, 2, 24, 16], T[2, 2, 24, 16])\n"
               "attention(T[1, 3, 1, 32], T[1, 3, 41, 32], T[1, 3, 41, 32], causal=true)\n"
               "attention(T[2, 2, 2, 64], T[2, 2, 19, 64], T[2, 2, 19, 8], T[2, 1, 1, 19])\n"
               "attention(T[1, 1, 1, 1], T[1, 1, 1, 1], T[1, 1, 1, 1])\n"
               "attention(T[2, 6, 5, 8], T[2, 2, 7, 8], T[2, 2, 7, 4], bool[2, 6, 5, 7])\n"
               "attention(T[1, 4, 9, 16], T[1, 1, 13, 16], T[1, 1, 13, 17], causal=true)\n"
               "attention(bf16[2, 2, 9, 16], bf16[2, 1, 13, 16], bf16[2, 1, 13, 8], causal=true, result=f32)\n"
               "attention(f16[1, 2, 5, 8], f16[1, 2, 7, 8], f16[1, 2, 7, 4], f32[5, 7], result=f32)\n"
               "attention(T[1, 2, 3, 4], T[1, 2, 0, 4], T[1, 2, 0, 5])\n"
               "attention(T[0, 2, 3, 4], T[0, 2, 3, 4], T[0, 2, 3, 4])",
    .doc =
        "softmax(scale * q k^T + mask) v over the keys: q [batch, heads, queries, d], k [batch, kv_heads, keys, d], "
        "v [batch, kv_heads, keys, e], result [batch, heads, queries, e]. mask broadcasts to [batch, heads, "
        "queries, keys]: bool, true where a query sees a key, or numbers of q's dtype to add, also f32 for f16 and bf16. A query whose "
        "scores are all -inf (it sees no key) gives 0. Whether a key that causal hides, or a bool mask, counts with weight 0 or not at all "
        "shows only where v holds infinities or NaN, and is left open. In f16 and bf16 scores and sums are f32, but the weights exp(score - greatest) are rounded to the type of v, in which matrix units take "
        "them, and so is the result, unless `result` is f32: where products of weights and v cancel, the error is that of the weights beside what cancels. heads are a multiple of "
        "kv_heads; neighbours share those of k and v (grouped-query attention). ONNX Attention; Ainslie et al. 2023; Vaswani et al. 2017.",
};
