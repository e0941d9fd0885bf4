/* Operators for inference and tuning of language models: attention with growing key and value caches, and linear maps with a
 * low-rank addition. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- cached_attention: q [batch, heads, steps, d]; k, v [batch, kv_heads, steps, .]; caches [batch, kv_heads, room, .] */

enum { CACHED_SCALE };
enum { Q, K, V, K_CACHE, V_CACHE, POSITION };
enum { BATCH, HEAD, ROW, COLUMN, RANK };

static void infer_cache(const graph_infer *infer, int cache, int update) {
    const graph_shape *c = &infer->operand[cache], *u = &infer->operand[update];
    graph_infer_rank(infer, cache, RANK);
    graph_infer_equal(infer, c->dim[BATCH], u->dim[BATCH], "batches of a cache and of what is put into it");
    graph_infer_equal(infer, c->dim[HEAD], u->dim[HEAD], "heads of a cache and of what is put into it");
    graph_infer_equal(infer, c->dim[COLUMN], u->dim[COLUMN], "last dimensions of a cache and of what is put into it");
    graph_infer_at_most(infer, u->dim[ROW], c->dim[ROW], "a cache has no room for so many steps");
}

static void infer_cached_attention(graph_infer *infer) {
    const graph_shape *q = &infer->operand[Q], *k = &infer->operand[K], *v = &infer->operand[V];
    tir_pool *pool = infer->g->pool;
    for (int i = Q; i <= V; i++) graph_infer_rank(infer, i, RANK);
    graph_infer_same_dtype(infer, Q, V_CACHE + 1);
    graph_infer_indices(infer, POSITION);
    graph_infer_rank(infer, POSITION, 0);
    infer_cache(infer, K_CACHE, K);
    infer_cache(infer, V_CACHE, V);
    graph_infer_equal(infer, infer->operand[K_CACHE].dim[ROW], infer->operand[V_CACHE].dim[ROW], "room in both caches");
    graph_infer_equal(infer, k->dim[ROW], v->dim[ROW], "steps of k and v");
    graph_infer_equal(infer, k->dim[HEAD], v->dim[HEAD], "heads of k and v");
    graph_infer_equal(infer, q->dim[BATCH], k->dim[BATCH], "batches of q and k");
    graph_infer_equal(infer, q->dim[ROW], k->dim[ROW], "steps of q and k");
    graph_infer_equal(infer, q->dim[COLUMN], k->dim[COLUMN], "last dimensions of q and k");
    graph_infer_equal(infer, tir_rem(pool, q->dim[HEAD], tir_max(pool, k->dim[HEAD], tir_index(pool, 1))),
                      tir_index(pool, 0), "heads of q modulo those of k, and 0,");
    infer->result[0] = *q;
    infer->result[0].dim[COLUMN] = v->dim[COLUMN];
    infer->result[1] = infer->operand[K_CACHE];
    infer->result[2] = infer->operand[V_CACHE];
}

static graph_id put(graph_expand *e, int cache, int update, graph_id start) {
    int64_t axis = ROW;
    graph_setting axes = graph_set_list("axes", 1, &axis);
    return graph_emit_with(e->g, "dynamic_update_slice", 3, (graph_id[]){e->input[cache], e->input[update], start}, 1,
                           &axes);
}

/* Puts k and v into the caches, and attends to the caches. Heads of q that share a head of k become rows of one product: row r is step
 * r mod steps, which sees the keys up to its own. */
static void expand_cached_attention(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_shape q = *graph_shape_of(g, e->input[Q]), k = *graph_shape_of(g, e->input[K]);
    const graph_shape room = *graph_shape_of(g, e->input[K_CACHE]), v = *graph_shape_of(g, e->input[V]);
    tir_expr steps = q.dim[ROW], last = tir_sub(pool, room.dim[ROW], steps);
    tir_expr shared = tir_div(pool, q.dim[HEAD], tir_max(pool, k.dim[HEAD], tir_index(pool, 1)));
    tir_expr rows = tir_mul(pool, shared, steps);
    graph_id start = graph_cast(g, e->input[POSITION], DLC_I64); /* clamped to fit, like dynamic_update_slice */
    start = graph_max(g, graph_min(g, start, graph_dimension(g, DLC_I64, last)), graph_scalar_i64(g, DLC_I64, 0));
    graph_id keys = put(e, K_CACHE, K, start), values = put(e, V_CACHE, V, start);
    graph_id queries =
        graph_reshape(g, e->input[Q], RANK, (tir_expr[]){q.dim[BATCH], k.dim[HEAD], rows, q.dim[COLUMN]});
    tir_expr apart[] = {shared, steps, room.dim[ROW]}, flat[] = {rows, room.dim[ROW]};
    graph_id ahead = graph_sub(g, graph_iota(g, DLC_I64, 3, apart, 2), graph_iota(g, DLC_I64, 3, apart, 1));
    graph_id seen = graph_reshape(g, graph_le(g, ahead, start), 2, flat);
    graph_setting scale = graph_set_float("scale", e->attribute[CACHED_SCALE].number);
    graph_id y = graph_emit_with(g, "attention", 4, (graph_id[]){queries, keys, values, seen}, 1, &scale);
    e->result[0] = graph_reshape(g, y, RANK, (tir_expr[]){q.dim[BATCH], q.dim[HEAD], steps, v.dim[COLUMN]});
    e->result[1] = keys;
    e->result[2] = values;
}

/* ---- lora_linear: x w + scale (x a) b + bias */

enum { L_X, L_W, L_A, L_B, L_BIAS };

static void infer_lora_linear(graph_infer *infer) {
    const graph_shape *x = &infer->operand[L_X], *w = &infer->operand[L_W], *a = &infer->operand[L_A];
    const graph_shape *b = &infer->operand[L_B];
    graph_infer_same_dtype(infer, 0, infer->inputs);
    if (x->rank < 1) graph_infer_fail(infer, "x has rank 0, expected at least 1");
    for (int i = L_W; i <= L_B; i++) graph_infer_rank(infer, i, 2);
    graph_infer_equal(infer, x->dim[x->rank - 1], w->dim[0], "the last dimension of x and the first of w");
    graph_infer_equal(infer, w->dim[0], a->dim[0], "first dimensions of w and a");
    graph_infer_equal(infer, a->dim[1], b->dim[0], "the last dimension of a and the first of b");
    graph_infer_equal(infer, w->dim[1], b->dim[1], "last dimensions of w and b");
    if (infer->inputs > L_BIAS && infer->operand[L_BIAS].rank >= 0) {
        graph_infer_rank(infer, L_BIAS, 1);
        graph_infer_equal(infer, infer->operand[L_BIAS].dim[0], w->dim[1], "entries of bias and columns of w");
    }
    infer->result[0] = *x;
    infer->result[0].dim[x->rank - 1] = w->dim[1];
}

static void expand_lora_linear(graph_expand *e) {
    graph *g = e->g;
    const dlc_dtype dtype = graph_shape_of(g, e->input[L_X])->dtype;
    graph_id x = graph_widen(g, e->input[L_X]);
    graph_id low = graph_matmul(g, graph_matmul(g, x, graph_widen(g, e->input[L_A])), graph_widen(g, e->input[L_B]));
    graph_id y = graph_matmul(g, x, graph_widen(g, e->input[L_W]));
    y = graph_add(g, y, graph_mul_number(g, low, e->attribute[0].number));
    if (e->inputs > L_BIAS && e->input[L_BIAS]) y = graph_add(g, y, graph_widen(g, e->input[L_BIAS]));
    e->result[0] = graph_cast(g, y, dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

static void reference_put(const graph_reference *r, int cache, int update, int64_t start) {
    const graph_reference_tensor *c = &r->operand[cache], *u = &r->operand[update], *y = &r->result[cache - 2];
    int64_t at[RANK] = {0}, to[RANK];
    for (int64_t i = 0; i < graph_reference_count(c); i++) y->data[i] = c->data[i];
    GRAPH_REFERENCE_EACH(u, at) {
        memcpy(to, at, sizeof to);
        to[ROW] += start;
        y->data[graph_reference_at(y, to)] = u->data[graph_reference_at(u, at)];
    }
}

static void reference_cached_attention(const graph_reference *r) {
    const graph_reference_tensor *q = &r->operand[Q], *keys = &r->result[1], *values = &r->result[2],
                                 *y = &r->result[0];
    const int64_t steps = q->dim[ROW], room = keys->dim[ROW], d = q->dim[COLUMN];
    double scale = r->attribute[CACHED_SCALE].number != 0 ? r->attribute[CACHED_SCALE].number : 1 / sqrt((double)d);
    int64_t start = (int64_t)fmin(fmax(r->operand[POSITION].data[0], 0), (double)(room - steps)), at[RANK] = {0};
    reference_put(r, K_CACHE, K, start);
    reference_put(r, V_CACHE, V, start);
    GRAPH_REFERENCE_EACH(y, at) {
        int64_t head = at[HEAD] / (q->dim[HEAD] / keys->dim[HEAD]), end = start + at[ROW] + 1;
        double most = -INFINITY, sum = 0, value = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < end; j++) {
                double score = 0;
                for (int64_t c = 0; c < d; c++)
                    score += q->data[graph_reference_at(q, (int64_t[]){at[BATCH], at[HEAD], at[ROW], c})] *
                             keys->data[graph_reference_at(keys, (int64_t[]){at[BATCH], head, j, c})];
                score *= scale;
                if (!pass) most = fmax(most, score);
                if (!pass) continue;
                sum += exp(score - most);
                value += exp(score - most) *
                         values->data[graph_reference_at(values, (int64_t[]){at[BATCH], head, j, at[COLUMN]})];
            }
        y->data[graph_reference_at(y, at)] = value / sum;
    }
}

static void reference_lora_linear(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[L_X], *w = &r->operand[L_W], *a = &r->operand[L_A];
    const graph_reference_tensor *b = &r->operand[L_B], *y = &r->result[0];
    const int64_t in = w->dim[0], out = w->dim[1], low = a->dim[1];
    for (int64_t i = 0; i < graph_reference_count(y); i++) {
        const double *row = x->data + i / out * in;
        double sum = graph_reference_given(r, L_BIAS) ? r->operand[L_BIAS].data[i % out] : 0;
        for (int64_t k = 0; k < in; k++) {
            double weight = w->data[k * out + i % out], more = 0;
            for (int64_t l = 0; l < low; l++) more += a->data[k * low + l] * b->data[l * out + i % out];
            sum += row[k] * (weight + r->attribute[0].number * more);
        }
        y->data[i] = sum;
    }
}

#endif

/* ---- rows */

static const graph_op row_cached_attention = {
    COMPOSITE_ROW(cached_attention, 6, 6, 3, "q k v k_cache v_cache position", "float"),
    .precision = GRAPH_NARROW,
    .attribute = {{"scale", GRAPH_ATTR_FLOAT, NULL, "0.0", "factor of the scores; 0: 1/sqrt(d)"}},
    .infer = infer_cached_attention,
    .tolerance = 32,
    .samples =
        "cached_attention(T[2, 4, 1, 8], T[2, 2, 1, 8], T[2, 2, 1, 6], T[2, 2, 9, 8], T[2, 2, 9, 6], i64[] in 0..9)\n"
        "cached_attention(T[1, 6, 3, 4], T[1, 2, 3, 4], T[1, 2, 3, 4], T[1, 2, 12, 4], T[1, 2, 12, 4], i32[] in "
        "0..9, scale=0.3)\n"
        "cached_attention(T[1, 2, 5, 4], T[1, 2, 5, 4], T[1, 2, 5, 4], T[1, 2, 5, 4], T[1, 2, 5, 4], i64[] in "
        "-9..20)\n"
        "cached_attention(T[0, 2, 1, 4], T[0, 1, 1, 4], T[0, 1, 1, 4], T[0, 1, 3, 4], T[0, 1, 3, 4], i64[] in 0..3)",
    .doc =
        "Attention of new steps over all steps so far: k [batch, kv_heads, steps, d] and v [batch, kv_heads, steps, e] are put into "
        "k_cache and v_cache [batch, kv_heads, room, .] from position on (clamped so that they fit); step i of q [batch, "
        "heads, steps, d] sees the keys 0 .. position + i. Results: [batch, heads, steps, e] and both caches. Heads of q share "
        "those of k in groups. The time goes by the keys that are seen, not by the room. In f16 and bf16 weights are rounded as those of attention. With dlc_program_alias the caches are updated where they are. ONNX Attention (past and "
        "present); Ainslie et al. 2023.",
};

static const graph_op row_lora_linear = {
    COMPOSITE_ROW(lora_linear, 4, 5, 1, "x w a b [bias]", "float"),
    .precision = GRAPH_NARROW,
    .attribute = {{"scale", GRAPH_ATTR_FLOAT, NULL, "1.0", "factor of the addition"}},
    .infer = infer_lora_linear,
    .tolerance = 32,
    .samples = "lora_linear(T[5, 7], T[7, 6], T[7, 2], T[2, 6])\n"
               "lora_linear(T[2, 3, 9], T[9, 17], T[9, 4], T[4, 17], T[17], scale=0.5)\n"
               "lora_linear(T[7], T[7, 3], T[7, 1], T[1, 3])\nlora_linear(T[0, 4], T[4, 3], T[4, 2], T[2, 3])",
    .doc =
        "x*w + scale*(x*a)*b + bias: x [..., in], w [in, out], a [in, r], b [r, out], bias [out]. f16 and bf16 round once. Hu et "
        "al. 2021.",
};

const graph_op *const graph_ops_decode[] = {&row_cached_attention, &row_lora_linear, NULL};
