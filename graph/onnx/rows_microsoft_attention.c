/* Rows of the domain com.microsoft: attention with its projections, masks and caches, rotary embedding, biases by relative position.
 * Source: docs/ContribOperators.md of ONNX Runtime. */
#include "graph/onnx/attention.h"
#include "graph/onnx/microsoft.h"
#include "graph/onnx/normalize.h"

enum { BATCH = ONNX_BATCH, HEAD = ONNX_HEAD, ROW = ONNX_ROW, COLUMN = ONNX_COLUMN, RANK = ONNX_HEADS_RANK };

static bool equal(onnx_import *im, tir_expr a, tir_expr b) {
    return tir_equal(im->g->pool, a, b) == TIR_YES;
}

/* Raises if the operand, which is not supported, is given. */
static void refuse_operand(onnx_import *im, size_t i, const char *what) {
    if (onnx_has(im, i)) onnx_fail(im, DLC_UNSUPPORTED, "operand %zu: %s", i, what);
}

static void refuse_attribute(onnx_import *im, const char *name) {
    const int64_t given = onnx_int(im, name, 0);
    if (given) onnx_fail(im, DLC_UNSUPPORTED, "%s=%lld is not imported", name, (long long)given);
}

/* ---- masks ----------------------------------------------------------------------------------------------------------- */

/* x [n] as i64 [n, 1, 1, 1]. */
static graph_id by_batch(onnx_import *im, graph_id x, tir_expr n) {
    const tir_expr one = onnx_size(im, 1);
    return graph_reshape(im->g, graph_cast(im->g, x, DLC_I64), RANK, (tir_expr[]){n, one, one, one});
}

/* Which keys are no padding. The first `batch` bounds are the ends of the keys; of 2 * batch bounds the others are their starts. */
static graph_id unpadded(onnx_import *im, graph_id bounds, tir_expr batch, tir_expr keys) {
    const tir_expr count = graph_shape_of(im->g, bounds)->dim[0], two = tir_mul(im->g->pool, batch, onnx_size(im, 2));
    const graph_id place = graph_iota(im->g, DLC_I64, 1, &keys, 0);
    const bool starts = !equal(im, count, batch);
    if (starts && !equal(im, count, two))
        onnx_fail(im, DLC_UNSUPPORTED, "a mask of rank 1 that has not one or two elements for each of the batch");
    const graph_id ends = starts ? onnx_columns(im, bounds, onnx_size(im, 0), batch) : bounds,
                   before = onnx_binary(im, "lt", place, by_batch(im, ends, batch));
    if (!starts) return before;
    return onnx_both(im, before,
                     onnx_binary(im, "ge", place, by_batch(im, onnx_columns(im, bounds, batch, two), batch)));
}

/* Where the mask is not 0, broadcasting to [batch, heads, queries, keys]. The mask is [batch, keys], [batch, queries, keys], or bounds of
 * the keys. partial: it may end before the last keys. */
static graph_id unmasked(onnx_import *im, graph_id mask, tir_expr batch, tir_expr keys, bool partial) {
    graph_shape s = *graph_shape_of(im->g, mask);
    if (s.rank == 1) return unpadded(im, mask, batch, keys);
    if (s.rank != 2 && s.rank != 3) onnx_fail(im, DLC_UNSUPPORTED, "a mask of rank %d", s.rank);
    if (partial && !equal(im, s.dim[s.rank - 1], keys)) {
        s.dim[s.rank - 1] = tir_sub(im->g->pool, keys, s.dim[s.rank - 1]);
        mask = graph_concat(im->g, 2, (graph_id[]){mask, graph_full(im->g, s.dtype, s.rank, s.dim, 0)}, s.rank - 1);
    }
    if (s.rank == 2) mask = graph_expand_dims(im->g, mask, 1);
    return onnx_binary(im, "ne", graph_expand_dims(im->g, mask, 1), graph_scalar_like(im->g, mask, 0));
}

/* What the operands `mask` and `added` add to the scores; 0: nothing. */
static graph_id bias_of(onnx_import *im, const onnx_attention *a, size_t mask, size_t added, bool partial) {
    const double filter = onnx_float(im, "mask_filter_value", -10000);
    const dlc_dtype dtype = onnx_dtype_of(im, a->q);
    graph_id bias = 0;
    if (onnx_has(im, mask)) {
        const graph_shape k = *graph_shape_of(im->g, a->k);
        const graph_id visible = unmasked(im, onnx_operand(im, mask), k.dim[BATCH], k.dim[ROW], partial);
        const graph_id zero = graph_scalar(im->g, dtype, 0);
        bias = onnx_emit(im, "select", 3, (graph_id[]){visible, zero, graph_scalar(im->g, dtype, filter)}, 0, NULL);
    }
    return onnx_sum(im, bias, onnx_has(im, added) ? graph_cast(im->g, onnx_operand(im, added), dtype) : 0);
}

/* ---- caches ---------------------------------------------------------------------------------------------------------- */

/* `whole` with `part` [batch, heads, n, size] written from row `start` on, an i64 that broadcasts to part. */
static graph_id write_rows(onnx_import *im, graph_id whole, graph_id part, graph_id start) {
    const graph_shape s = *graph_shape_of(im->g, part);
    const graph_id rows = onnx_binary(im, "add", graph_iota(im->g, DLC_I64, RANK, s.dim, ROW), start);
    const graph_setting axis = graph_set_integer("axis", ROW);
    return onnx_emit(im, "scatter_elements", 3,
                     (graph_id[]){whole, rows, graph_cast(im->g, part, onnx_dtype_of(im, whole))}, 1, &axis);
}

/* The rows of past (may be 0), then those of x. */
static graph_id append(onnx_import *im, graph_id past, graph_id x) {
    return past ? graph_concat(im->g, 2, (graph_id[]){past, x}, ROW) : x;
}

/* Which keys a query sees: query i those up to first + i, or, if not causal, all queries those before first + queries. first: an i64 that
 * broadcasts to [batch, 1, 1, 1]. */
static graph_id reached(onnx_import *im, const onnx_attention *a, graph_id first, bool causal) {
    graph *g = im->g;
    const graph_shape q = *graph_shape_of(g, a->q), k = *graph_shape_of(g, a->k);
    const graph_id key = graph_iota(g, DLC_I64, 1, &k.dim[ROW], 0);
    if (!causal)
        return onnx_binary(im, "lt", key, onnx_binary(im, "add", first, graph_dimension(g, DLC_I64, q.dim[ROW])));
    const graph_id query = graph_iota(g, DLC_I64, 2, (tir_expr[]){q.dim[ROW], onnx_size(im, 1)}, 0);
    return onnx_binary(im, "le", key, onnx_binary(im, "add", query, first));
}

/* ---- Attention: projections, heads of q, k and v ------------------------------------------------------------------------ */

static void read_scale(onnx_import *im, onnx_attention *a) {
    a->scale = onnx_float(im, "scale", 0);
    a->scaled = a->scale != 0;
}

/* Sets size[3] to the numbers of columns of q, k and v in the weights. */
static void projected_sizes(onnx_import *im, tir_expr all, tir_expr *size) {
    int count;
    const int64_t *given = onnx_ints(im, "qkv_hidden_sizes", &count);
    if (given && count != 3) onnx_fail(im, DLC_PARSE_ERROR, "qkv_hidden_sizes has %d numbers, not 3", count);
    for (int i = 0; i < 3; i++) size[i] = given ? onnx_size(im, given[i]) : tir_div(im->g->pool, all, onnx_size(im, 3));
}

/* Sets q, k and v to three groups of columns of x, split into heads. */
static void take_heads(onnx_import *im, graph_id x, const tir_expr *size, onnx_attention *a) {
    graph_id *const to[] = {&a->q, &a->k, &a->v};
    tir_expr from = onnx_size(im, 0);
    for (int i = 0; i < 3; i++) {
        const tir_expr end = tir_add(im->g->pool, from, size[i]);
        *to[i] = onnx_split_heads(im, onnx_columns(im, x, from, end), "num_heads");
        from = end;
    }
    const graph_shape all = *graph_shape_of(im->g, x);
    if (!equal(im, from, all.dim[all.rank - 1]))
        onnx_fail(im, DLC_PARSE_ERROR, "the columns of the weights are not those of q, k and v together");
}

/* Puts the past keys and values, operand `at`, [2, batch, heads, positions, size], before the new ones, and gives all as result 1. Returns the
 * number of past positions. */
static tir_expr take_past(onnx_import *im, onnx_attention *a, size_t at) {
    graph *g = im->g;
    graph_id *const to[] = {&a->k, &a->v};
    graph_id all[2];
    tir_expr before = onnx_size(im, 0);
    if (onnx_has(im, at)) {
        const graph_id past = onnx_operand_of_rank(im, at, RANK + 1);
        before = graph_shape_of(g, past)->dim[ROW + 1];
        for (int i = 0; i < 2; i++) {
            const graph_id half = graph_slice_axis(g, past, 0, onnx_size(im, i), onnx_size(im, i + 1));
            *to[i] = append(im, graph_squeeze(g, half, 0), *to[i]);
        }
    }
    if (!onnx_wants(im, 1)) return before;
    for (int i = 0; i < 2; i++) all[i] = graph_expand_dims(g, *to[i], 0);
    onnx_give(im, 1, graph_concat(g, 2, all, 0));
    return before;
}

/* Gives attention for x, whose columns are q, k and v. */
static void give_attention(onnx_import *im, graph_id x, size_t mask, size_t past, size_t added) {
    onnx_attention a = {0};
    tir_expr size[3];
    refuse_attribute(im, "do_rotary"), refuse_attribute(im, "past_present_share_buffer");
    onnx_ignore(im, "rotary_embedding_dim");
    projected_sizes(im, graph_shape_of(im->g, x)->dim[2], size);
    take_heads(im, x, size, &a);
    const tir_expr before = take_past(im, &a, past);
    read_scale(im, &a);
    a.bias = bias_of(im, &a, mask, added, false);
    if (onnx_int(im, "unidirectional", 0)) onnx_hide_later(im, &a, before);
    onnx_give(im, 0, onnx_join_heads(im, onnx_attend(im, &a)));
}

static void import_attention(onnx_import *im) {
    const graph_id in[] = {onnx_operand_of_rank(im, 0, 3), onnx_operand_of_rank(im, 1, 2), onnx_operand(im, 2)};
    refuse_operand(im, 6, "a length of the past, for a buffer that past and present share");
    give_attention(im, onnx_emit(im, "linear", 3, in, 0, NULL), 3, 4, 5);
}

/* Attention with a quantised projection. */
static void import_quantized_attention(onnx_import *im) {
    enum { NONE = 9 };
    const graph_id in[] = {onnx_operand_of_rank(im, 0, 3), onnx_operand_of_rank(im, 1, 2),
                           onnx_operand_or_scalar(im, 6), onnx_operand_or_scalar(im, 7)};
    const graph_id x = onnx_scaled_product(im, in, onnx_operand_or_scalar(im, 3), onnx_operand_or_scalar(im, 4)),
                   bias = onnx_operand_of_rank(im, 2, 1),
                   all = onnx_binary(im, "add", x, graph_cast(im->g, bias, DLC_F32));
    give_attention(im, graph_cast(im->g, all, onnx_dtype_of(im, bias)), 5, 8, NONE);
}

/* ---- MultiHeadAttention, DecoderMaskedMultiHeadAttention ------------------------------------------------------------------ */

/* Operand i as a cache of heads; 0: omitted. */
static graph_id cache_of(onnx_import *im, size_t i) {
    return onnx_has(im, i) ? onnx_operand_of_rank(im, i, RANK) : 0;
}

/* Numbers of operands. */
typedef struct places {
    size_t bias, mask, added, past_key, past_value, past_length, beams, indirection;
} places;

/* x plus columns from..to-1 of the operand `bias`, if it is given. */
static graph_id with_bias(onnx_import *im, graph_id x, size_t bias, tir_expr from, tir_expr to) {
    return onnx_has(im, bias) ? onnx_sum(im, x, onnx_columns(im, onnx_operand(im, bias), from, to)) : x;
}

/* Part i of x [batch, positions, heads, parts, size], as [batch, positions, heads * size]. */
static graph_id unpacked(onnx_import *im, graph_id x, int64_t i) {
    const graph_shape s = *graph_shape_of(im->g, x);
    const graph_id part = graph_slice_axis(im->g, x, 3, onnx_size(im, i), onnx_size(im, i + 1));
    return graph_reshape(im->g, part, 3, (tir_expr[]){s.dim[0], s.dim[1], tir_mul(im->g->pool, s.dim[2], s.dim[4])});
}

/* Sets in[] to q, k and v, from operands 0 to 2, or packed in operand 0, or in 0 and 1. They are [batch, positions, hidden], except that k and v
 * may be split into heads. */
static void take_packed(onnx_import *im, graph_id *in) {
    const int rank = onnx_operand_rank(im, 0);
    const graph_id x = onnx_operand(im, 0), y = onnx_operand(im, 1);
    in[0] = x, in[1] = y, in[2] = onnx_operand(im, 2);
    if (!y && rank == 5)
        for (int i = 0; i < 3; i++) in[i] = unpacked(im, x, i);
    else if (!y && rank == 3)
        for (int i = 0; i < 3; i++) in[i] = onnx_part(im, x, i, 3);
    else if (y && graph_shape_of(im->g, y)->rank == 5)
        for (int i = 0; i < 2; i++) in[i + 1] = unpacked(im, y, i);
    if (!in[1] || !in[2]) onnx_fail(im, DLC_PARSE_ERROR, "keys or values are missing");
}

/* Adds the bias, whose parts are for q, k and v. k and v that are split into heads are results of earlier projections and get none. */
static void add_biases(onnx_import *im, graph_id *in, size_t bias) {
    tir_expr from = onnx_size(im, 0);
    for (int i = 0; i < 3; i++) {
        const graph_shape s = *graph_shape_of(im->g, in[i]);
        if (s.rank != 3) return;
        const tir_expr to = tir_add(im->g->pool, from, s.dim[2]);
        in[i] = with_bias(im, in[i], bias, from, to);
        from = to;
    }
}

/* Joins past keys and values with the new ones, by appending or by writing into a buffer, and hides later keys. Results 1 and 2 are all keys and
 * values. */
static void join_past(onnx_import *im, const places *at, onnx_attention *a, bool causal) {
    const graph_id past[] = {cache_of(im, at->past_key), cache_of(im, at->past_value)};
    if (!past[0] != !past[1]) onnx_fail(im, DLC_PARSE_ERROR, "a past of keys or of values alone");
    if (past[0] && onnx_has(im, at->past_length)) { /* a buffer with room for the new ones */
        const graph_id start =
            graph_reshape(im->g, graph_cast(im->g, onnx_operand(im, at->past_length), DLC_I64), 0, NULL);
        a->k = write_rows(im, past[0], a->k, start), a->v = write_rows(im, past[1], a->v, start);
        a->visible = reached(im, a, start, causal);
    } else {
        a->k = append(im, past[0], a->k), a->v = append(im, past[1], a->v);
        const tir_expr before = past[0] ? graph_shape_of(im->g, past[0])->dim[ROW] : onnx_size(im, 0);
        if (causal) onnx_hide_later(im, a, before);
    }
    if (onnx_wants(im, 1)) onnx_give(im, 1, a->k);
    if (onnx_wants(im, 2)) onnx_give(im, 2, a->v);
}

/* The scores in that type, where -infinity, of hidden keys, becomes the type's lowest number. */
static graph_id finite_scores(onnx_import *im, graph_id scores, dlc_dtype dtype) {
    const double lowest = dtype == DLC_F16 ? -65504 : dtype == DLC_BF16 ? -0x1.fep127 : -0x1.fffffep127;
    return graph_cast(im->g, onnx_binary(im, "max", scores, graph_scalar_like(im->g, scores, lowest)), dtype);
}

static void give_multi_head(onnx_import *im, const places *at, bool causal) {
    graph_id in[3], stage[ONNX_STAGES], y;
    take_packed(im, in);
    refuse_operand(im, at->indirection, "beams that share a cache");
    add_biases(im, in, at->bias);
    onnx_attention a = {.q = onnx_split_heads(im, in[0], "num_heads"),
                        .k = onnx_split_heads(im, in[1], "num_heads"),
                        .v = onnx_split_heads(im, in[2], "num_heads")};
    onnx_ignore(im, "num_heads");
    join_past(im, at, &a, causal);
    read_scale(im, &a);
    a.bias = bias_of(im, &a, at->mask, at->added, onnx_has(im, at->past_length));
    if (onnx_wants(im, 3)) {
        y = onnx_attend_in_parts(im, &a, onnx_dtype_of(im, a.q), stage);
        onnx_give(im, 3, finite_scores(im, stage[2], onnx_dtype_of(im, a.q)));
    } else
        y = onnx_attend(im, &a);
    onnx_give(im, 0, onnx_join_heads(im, y));
}

static void import_multi_head(onnx_import *im) {
    static const places at = {
        .bias = 3, .mask = 4, .added = 5, .past_key = 6, .past_value = 7, .past_length = 8, .indirection = 9};
    give_multi_head(im, &at, onnx_int(im, "unidirectional", 0) != 0);
}

/* Attention of a single new token, which sees all keys. */
static void import_decoder_multi_head(onnx_import *im) {
    static const places at = {.mask = 3,
                              .added = 4,
                              .past_key = 5,
                              .past_value = 6,
                              .past_length = 7,
                              .beams = 8,
                              .indirection = 9,
                              .bias = 10};
    const bool shared = onnx_int(im, "past_present_share_buffer", 0) != 0;
    onnx_ignore(im, "output_qk");
    if (shared && onnx_has(im, at.past_key) && !onnx_has(im, at.past_length))
        onnx_fail(im, DLC_PARSE_ERROR, "a buffer that past and present share, without past_sequence_length");
    give_multi_head(im, &at, false);
}

/* ---- GroupQueryAttention ------------------------------------------------------------------------------------------------- */

enum {
    GQA_PAST_KEY = 3,
    GQA_PAST_VALUE,
    GQA_LENGTHS,
    GQA_TOTAL,
    GQA_COSINE,
    GQA_SINE,
    GQA_POSITIONS,
    GQA_BIAS,
    GQA_SINK,
    GQA_KEY_SCALE,
    GQA_VALUE_SCALE,
    GQA_QUERY_NORM,
    GQA_KEY_NORM,
    GQA_QUERY_LENGTHS
};

typedef struct group_query {
    onnx_attention a;
    /* The numbers of new positions, of keys that are seen at most, and of rows of the result's buffers. */
    tir_expr added, total, room;
    /* The number of positions before the new ones, i64 [batch, 1, 1, 1]; 0: there are none in the whole batch. */
    graph_id before;
} group_query;

static void refuse_group_query(onnx_import *im) {
    onnx_choice(im, "k_quant_type", "NONE", "NONE"), onnx_choice(im, "v_quant_type", "NONE", "NONE");
    refuse_attribute(im, "kv_cache_bit_width"), refuse_attribute(im, "sliding_window_cache");
    refuse_attribute(im, "qk_output");
    refuse_operand(im, GQA_KEY_SCALE, "a quantized cache"), refuse_operand(im, GQA_VALUE_SCALE, "a quantized cache");
    refuse_operand(im, GQA_QUERY_LENGTHS, "queries with padding");
}

/* Sets q, k and v, split into heads, from operands 0 to 2, or packed in operand 0. */
static void take_group_heads(onnx_import *im, onnx_attention *a) {
    graph_id in[] = {onnx_operand_of_rank(im, 0, 3), onnx_operand(im, 1), onnx_operand(im, 2)};
    const int64_t heads = onnx_int(im, "num_heads", 0), own = onnx_int(im, "kv_num_heads", 0);
    if (heads < 1 || own < 1 || heads > INT32_MAX || heads % own != 0)
        onnx_fail(im, DLC_PARSE_ERROR, "num_heads=%lld and kv_num_heads=%lld, expected a positive multiple",
                  (long long)heads, (long long)own);
    if (!in[1] != !in[2]) onnx_fail(im, DLC_PARSE_ERROR, "keys or values are missing");
    if (!in[1]) {
        const graph_id x = in[0];
        const tir_expr size = tir_div(im->g->pool, graph_shape_of(im->g, x)->dim[2], onnx_size(im, heads + 2 * own));
        const int64_t start[] = {0, heads, heads + own, heads + 2 * own};
        for (int i = 0; i < 3; i++)
            in[i] = onnx_columns(im, x, tir_mul(im->g->pool, size, onnx_size(im, start[i])),
                                 tir_mul(im->g->pool, size, onnx_size(im, start[i + 1])));
    }
    a->q = onnx_split_heads(im, in[0], "num_heads");
    a->k = onnx_split_heads(im, in[1], "kv_num_heads"), a->v = onnx_split_heads(im, in[2], "kv_num_heads");
}

/* The RMS norm of each head; x itself if operand `scale` is omitted. */
static graph_id head_norm(onnx_import *im, graph_id x, size_t scale, const char *epsilon) {
    const double usual = onnx_float(im, "qk_norm_epsilon", 1e-6f);
    const onnx_norm n = {.scale = onnx_operand(im, scale), .axis = COLUMN, .epsilon = onnx_float(im, epsilon, usual)};
    return n.scale ? onnx_rms_norm(im, x, &n, false).y : x;
}

/* The table's cosines or sines for the new positions, which are given or follow `before`: [batch or 1, 1, positions, size/2]. */
static graph_id angles(onnx_import *im, const group_query *x, size_t table) {
    graph *g = im->g;
    graph_id place = onnx_has(im, GQA_POSITIONS) ? onnx_operand_of_rank(im, GQA_POSITIONS, 2) : 0;
    if (!place) {
        place = graph_iota(g, DLC_I64, 2, (tir_expr[]){onnx_size(im, 1), x->added}, 1);
        if (x->before) place = onnx_binary(im, "add", place, graph_squeeze(g, graph_squeeze(g, x->before, 3), 2));
    }
    return graph_expand_dims(g, graph_gather(g, onnx_operand_of_rank(im, table, 2), place, 0), 1);
}

static void rotate_group(onnx_import *im, group_query *x) {
    if (!onnx_int(im, "do_rotary", 0)) {
        onnx_ignore(im, "rotary_interleaved");
        return;
    }
    const graph_id table = onnx_operand_of_rank(im, GQA_COSINE, 2);
    const tir_expr half = graph_shape_of(im->g, table)->dim[1], turned = tir_mul(im->g->pool, half, onnx_size(im, 2));
    const bool interleaved = onnx_int(im, "rotary_interleaved", 0) != 0;
    const graph_id cosine = angles(im, x, GQA_COSINE), sine = angles(im, x, GQA_SINE);
    x->a.q = onnx_rotate(im, x->a.q, cosine, sine, turned, interleaved);
    x->a.k = onnx_rotate(im, x->a.k, cosine, sine, turned, interleaved);
}

/* The past's buffer, extended to x->room rows, with the new rows written into it. */
static graph_id updated(onnx_import *im, const group_query *x, size_t past, graph_id rows) {
    graph *g = im->g;
    if (!x->before) return rows;
    graph_shape s = *graph_shape_of(g, rows);
    graph_id buffer = cache_of(im, past);
    const tir_expr there = buffer ? graph_shape_of(g, buffer)->dim[ROW] : onnx_size(im, 0);
    if (!buffer || !equal(im, there, x->room)) {
        s.dim[ROW] = tir_sub(g->pool, x->room, there);
        const graph_id rest = graph_full(g, buffer ? onnx_dtype_of(im, buffer) : s.dtype, RANK, s.dim, 0);
        buffer = buffer ? append(im, buffer, rest) : rest;
    }
    return write_rows(im, buffer, rows, x->before);
}

/* The first x->total rows of the buffer in q's type. */
static graph_id seen_rows(onnx_import *im, const group_query *x, graph_id buffer) {
    const graph_id part =
        equal(im, x->room, x->total) ? buffer : graph_slice_axis(im->g, buffer, ROW, onnx_size(im, 0), x->total);
    return graph_cast(im->g, part, onnx_dtype_of(im, x->a.q));
}

static void read_lengths(onnx_import *im, group_query *x) {
    graph *g = im->g;
    const graph_shape k = *graph_shape_of(g, x->a.k);
    if (!onnx_has(im, GQA_LENGTHS)) onnx_fail(im, DLC_PARSE_ERROR, "seqlens_k is missing");
    const graph_id cache = cache_of(im, GQA_PAST_KEY);
    const tir_expr past = cache ? graph_shape_of(g, cache)->dim[ROW] : onnx_size(im, 0);
    if (!cache != !onnx_has(im, GQA_PAST_VALUE)) onnx_fail(im, DLC_PARSE_ERROR, "a past of keys or of values alone");
    x->added = k.dim[ROW], x->total = onnx_operand_size(im, GQA_TOTAL);
    const bool grows = equal(im, x->total, tir_add(g->pool, past, x->added));
    x->room = grows ? x->total : tir_max(g->pool, past, x->total);
    if (grows && equal(im, past, onnx_size(im, 0))) return; /* a prompt */
    const graph_id all = onnx_binary(im, "add", by_batch(im, onnx_operand(im, GQA_LENGTHS), k.dim[BATCH]),
                                     graph_scalar_i64(g, DLC_I64, 1));
    const graph_id before = onnx_binary(im, "sub", all, graph_dimension(g, DLC_I64, x->added));
    x->before = onnx_binary(im, "max", before, graph_scalar_i64(g, DLC_I64, 0));
}

/* Sets which keys a query sees: keys of its own batch element that are no padding, if causal none that are later, and those in the window. */
static void mask_group(onnx_import *im, group_query *x) {
    graph *g = im->g;
    const bool causal = onnx_int(im, "causal", 1) != 0;
    const int64_t window = onnx_int(im, "local_window_size", -1);
    if (!causal && window > 0)
        onnx_fail(im, DLC_PARSE_ERROR, "local_window_size=%lld without causal", (long long)window);
    const graph_id before = x->before ? x->before : graph_scalar_i64(g, DLC_I64, 0);
    if (x->before)
        x->a.visible = reached(im, &x->a, before, causal);
    else if (causal)
        x->a.causal = true;
    else { /* the prompt's padding */
        const graph_shape k = *graph_shape_of(g, x->a.k);
        const graph_id last = by_batch(im, onnx_operand(im, GQA_LENGTHS), k.dim[BATCH]);
        x->a.visible = onnx_binary(im, "le", graph_iota(g, DLC_I64, 1, &k.dim[ROW], 0), last);
    }
    if (window > 0) {
        const graph_id far = onnx_binary(im, "sub", before, graph_scalar_i64(g, DLC_I64, window));
        const graph_id seen = onnx_unary(im, "not", reached(im, &x->a, far, true));
        x->a.visible = onnx_both(im, x->a.visible, seen);
    }
}

/* Query rows from a batch element's length on are padding: their results are unspecified. */
static void import_group_query(onnx_import *im) {
    group_query x = {0};
    refuse_group_query(im);
    take_group_heads(im, &x.a);
    x.a.q = head_norm(im, x.a.q, GQA_QUERY_NORM, "q_norm_epsilon");
    x.a.k = head_norm(im, x.a.k, GQA_KEY_NORM, "k_norm_epsilon");
    read_lengths(im, &x);
    rotate_group(im, &x);
    const graph_id key = updated(im, &x, GQA_PAST_KEY, x.a.k), value = updated(im, &x, GQA_PAST_VALUE, x.a.v);
    onnx_give(im, 1, key);
    onnx_give(im, 2, value);
    x.a.k = seen_rows(im, &x, key), x.a.v = seen_rows(im, &x, value);
    mask_group(im, &x);
    read_scale(im, &x.a);
    x.a.cap = onnx_float(im, "softcap", 0);
    x.a.bias = onnx_operand(im, GQA_BIAS), x.a.sink = onnx_operand(im, GQA_SINK);
    if (onnx_int(im, "smooth_softmax", 0) > 0 && !x.a.sink)
        x.a.sink = graph_full(im->g, onnx_dtype_of(im, x.a.q), 1, &graph_shape_of(im->g, x.a.q)->dim[HEAD], 0);
    onnx_give(im, 0, onnx_join_heads(im, onnx_attend(im, &x.a)));
}

/* ---- RotaryEmbedding ------------------------------------------------------------------------------------------------------ */

/* The positions of tokens: given for each, or counted from a given number. */
static graph_id rotary_positions(onnx_import *im, tir_expr count) {
    const graph_id given = onnx_operand(im, 1);
    const int rank = onnx_operand_rank(im, 1);
    if (rank == 2) return given;
    if (rank != 1) onnx_fail(im, DLC_PARSE_ERROR, "positions of rank %d", rank);
    const graph_id place = graph_iota(im->g, DLC_I64, 2, (tir_expr[]){onnx_size(im, 1), count}, 1);
    return onnx_binary(im, "add", place, graph_cast(im->g, given, DLC_I64));
}

static void import_rotary_embedding(onnx_import *im) {
    graph *g = im->g;
    const bool joined = onnx_operand_rank(im, 0) == 3;
    const int64_t heads = onnx_int(im, "num_heads", 0), given = onnx_int(im, "rotary_embedding_dim", 0);
    refuse_attribute(im, "is_packed_batching");
    if (onnx_float(im, "scale", 1) != 1) onnx_fail(im, DLC_UNSUPPORTED, "a scale other than 1");
    if (given < 0 || (given > 0 && heads == 0))
        onnx_fail(im, DLC_PARSE_ERROR, "rotary_embedding_dim=%lld with num_heads=%lld", (long long)given,
                  (long long)heads);
    graph_id x = onnx_operand(im, 0), angle[2];
    const graph_id table[] = {onnx_operand_of_rank(im, 2, 2), onnx_operand_of_rank(im, 3, 2)};
    const tir_expr turned = tir_mul(g->pool, graph_shape_of(g, table[0])->dim[1], onnx_size(im, 2));
    if (joined && heads == 0)
        x = onnx_split_into(im, x,
                            tir_div(g->pool, graph_shape_of(g, x)->dim[2], tir_max(g->pool, turned, onnx_size(im, 1))));
    else
        x = onnx_split_heads(im, x, "num_heads");
    const graph_id place = rotary_positions(im, graph_shape_of(g, x)->dim[ROW]);
    for (size_t i = 0; i < 2; i++) angle[i] = graph_expand_dims(g, graph_gather(g, table[i], place, 0), 1);
    const graph_id y = onnx_rotate(im, x, angle[0], angle[1], turned, onnx_int(im, "interleaved", 0) != 0);
    onnx_give(im, 0, joined ? onnx_join_heads(im, y) : y);
}

/* ---- biases by relative position --------------------------------------------------------------------------------------------- */

/* The bucket of each distance query - key, f32 [queries, keys]: the first half of the buckets have one distance each, the others are
 * spaced by its logarithm up to `furthest`. Raffel et al. 2020 (T5). */
static graph_id buckets_of(onnx_import *im, graph_id distance, int64_t buckets, int64_t furthest, bool both_sides) {
    graph *g = im->g;
    const graph_id zero = graph_scalar(g, DLC_F32, 0);
    graph_id side = 0;
    if (both_sides) {
        buckets /= 2;
        side = graph_mul_number(g, graph_cast(g, onnx_binary(im, "lt", distance, zero), DLC_F32), (double)buckets);
        distance = graph_abs(g, distance);
    } else
        distance = onnx_binary(im, "max", distance, zero);
    const int64_t exact = buckets / 2;
    if (exact < 1 || furthest <= exact)
        onnx_fail(im, DLC_PARSE_ERROR, "max_distance=%lld with %lld buckets", (long long)furthest, (long long)buckets);
    const graph_id half = graph_scalar(g, DLC_F32, (double)exact),
                   ratio = graph_scalar(g, DLC_F32, (double)furthest / (double)exact);
    const graph_id steps =
        onnx_binary(im, "div", graph_log(g, onnx_binary(im, "div", distance, half)), graph_log(g, ratio));
    const graph_id far =
        graph_add_number(g, graph_floor(g, graph_mul_number(g, steps, (double)(buckets - exact))), (double)exact);
    const graph_id last = graph_scalar(g, DLC_F32, (double)(buckets - 1));
    const graph_id bucket = onnx_emit(
        im, "select", 3,
        (graph_id[]){onnx_binary(im, "lt", distance, half), distance, onnx_binary(im, "min", far, last)}, 0, NULL);
    return onnx_sum(im, bucket, side);
}

/* table [buckets, heads]; result [1, heads, queries, keys]. */
static void import_relative_position(onnx_import *im) {
    graph *g = im->g;
    const graph_shape table = onnx_operand_shape(im, 0);
    int64_t buckets;
    if (table.rank != 2 || !tir_is_const(g->pool, table.dim[0], &buckets))
        onnx_fail(im, DLC_PARSE_ERROR, "a table that is no matrix of known height");
    const tir_expr dim[] = {onnx_operand_size(im, 1), onnx_operand_size(im, 2)};
    const graph_id distance =
        onnx_binary(im, "sub", graph_iota(g, DLC_F32, 2, dim, 0), graph_iota(g, DLC_F32, 2, dim, 1));
    const graph_id bucket =
        buckets_of(im, distance, buckets, onnx_int(im, "max_distance", 128), onnx_int(im, "is_bidirectional", 0) != 0);
    const graph_id y = graph_gather(g, onnx_operand(im, 0), graph_cast(g, bucket, DLC_I32), 0);
    onnx_give(im, 0, graph_expand_dims(g, graph_transpose(g, y, (int64_t[]){2, 0, 1}), 0));
}

/* rel_pos scaled for each query by a factor that gates compute from the query: gate_u * (gate_r * eco_a - 1) + 2. */
static void import_gated_relative_position(onnx_import *im) {
    graph *g = im->g;
    refuse_operand(im, 6, "offsets of tokens");
    const graph_id layer = onnx_sum(im, onnx_operand(im, 0), onnx_operand(im, 1)),
                   q = onnx_split_heads(im, layer, "num_heads");
    const dlc_dtype dtype = onnx_dtype_of(im, q);
    const graph_id in[] = {graph_widen(g, q), graph_widen(g, onnx_operand(im, 3)), graph_widen(g, onnx_operand(im, 4))};
    const graph_id gates = onnx_emit(im, "linear", 3, in, 0, NULL);
    graph_id gate[2];
    for (int i = 0; i < 2; i++)
        gate[i] = graph_logistic(g, graph_reduce_sum(g, onnx_part(im, gates, i, 2), 1, (int64_t[]){COLUMN}, true));
    const graph_id inner =
                       graph_add_number(g, onnx_binary(im, "mul", gate[1], graph_widen(g, onnx_operand(im, 5))), -1),
                   factor = graph_add_number(g, onnx_binary(im, "mul", gate[0], inner), 2);
    onnx_give(im, 0, graph_cast(g, onnx_binary(im, "mul", factor, graph_widen(g, onnx_operand(im, 2))), dtype));
}

const onnx_row onnx_rows_microsoft_attention[] = {
    {"Attention", 1, 0, import_attention, NULL},
    {"DecoderMaskedMultiHeadAttention", 1, 0, import_decoder_multi_head, NULL},
    {"GatedRelativePositionBias", 1, 0, import_gated_relative_position, NULL},
    {"GroupQueryAttention", 1, 0, import_group_query, NULL},
    {"MultiHeadAttention", 1, 0, import_multi_head, NULL},
    {"QAttention", 1, 0, import_quantized_attention, NULL},
    {"RelativePositionBias", 1, 0, import_relative_position, NULL},
    {"RotaryEmbedding", 1, 0, import_rotary_embedding, NULL},
    {0},
};
