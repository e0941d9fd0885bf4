/* Rows of recurrences whose state is both an operand and a result, and of caches that are written at a position. */
#include "graph/onnx/import.h"

/* ---- LinearAttention --------------------------------------------------------------------------------------------------- */

/* The operands for one token, or, with an additional first axis, for all tokens. */
typedef struct linear_step {
    /* [batch, key heads, queries of each, key size], [batch, key heads, key size], [batch, key heads, value size] */
    graph_id q, k, v;
    /* [batch, key heads, key size or 1], [batch, key heads or 1, 1]; 0: none */
    graph_id decay, beta;
} linear_step;

enum { LINEAR_OPERANDS = 5 };

/* x [batch, tokens, ...] reshaped and transposed to [tokens, batch, dims...]. */
static graph_id by_token(onnx_import *im, graph_id x, int count, const tir_expr *dims) {
    const graph_shape s = *graph_shape_of(im->g, x);
    tir_expr dim[DLC_MAX_RANK] = {s.dim[0], s.dim[1]};
    int64_t permutation[DLC_MAX_RANK] = {1, 0};
    for (int d = 0; d < count; d++) dim[d + 2] = dims[d], permutation[d + 2] = d + 2;
    return graph_transpose(im->g, graph_reshape(im->g, graph_widen(im->g, x), count + 2, dim), permutation);
}

/* The product [..., n] of a row [..., m] and a matrix [..., m, n]. */
static graph_id row_times(graph *g, graph_id row, graph_id matrix) {
    const int rank = graph_shape_of(g, row)->rank;
    return graph_squeeze(g, graph_matmul(g, graph_expand_dims(g, row, rank - 1), matrix), rank - 1);
}

/* The state [batch, key heads, key size, value size] after the token; sets *result, [batch, key heads, queries of each, value size]:
 *   state = exp(decay) state + beta k (v - exp(decay) state' k)'      without beta: + k v' */
static graph_id linear_update(onnx_import *im, const linear_step *x, graph_id state, double scale, graph_id *result) {
    graph *g = im->g;
    if (x->decay) state = onnx_binary(im, "mul", state, graph_expand_dims(g, onnx_unary(im, "exp", x->decay), 3));
    graph_id added = x->v;
    if (x->beta) added = onnx_binary(im, "mul", onnx_binary(im, "sub", added, row_times(g, x->k, state)), x->beta);
    const graph_id outer = onnx_binary(im, "mul", graph_expand_dims(g, x->k, 3), graph_expand_dims(g, added, 2));
    state = onnx_binary(im, "add", state, outer);
    *result = graph_mul_number(g, graph_matmul(g, x->q, state), scale);
    return state;
}

static tir_expr part_of(onnx_import *im, tir_expr whole, int64_t count, const char *what) {
    const tir_expr each = tir_div(im->g->pool, whole, tir_index(im->g->pool, count));
    if (tir_equal(im->g->pool, tir_mul(im->g->pool, each, tir_index(im->g->pool, count)), whole) != TIR_YES)
        onnx_fail(im, DLC_PARSE_ERROR, "the last dimension of the %s is no multiple of %lld heads", what,
                  (long long)count);
    return each;
}

/* Sets list[] to the operands that are present; returns their number. */
static int list_step(const linear_step *x, graph_id *list) {
    const graph_id all[LINEAR_OPERANDS] = {x->q, x->k, x->v, x->decay, x->beta};
    int count = 0;
    for (int i = 0; i < LINEAR_OPERANDS; i++)
        if (all[i]) list[count++] = all[i];
    return count;
}

static linear_step step_of_list(const linear_step *like, const graph_id *list) {
    int next = 3;
    linear_step x = {.q = list[0], .k = list[1], .v = list[2]};
    if (like->decay) x.decay = list[next++];
    if (like->beta) x.beta = list[next];
    return x;
}

/* The state after all tokens, by a scan. *result gets a first axis of tokens. */
static graph_id linear_scan(onnx_import *im, const linear_step *x, graph_id state, double scale, graph_id *result) {
    graph *outside = im->g;
    graph_id in[1 + LINEAR_OPERANDS] = {state}, inside[1 + LINEAR_OPERANDS], y;
    const int sequences = list_step(x, in + 1);
    int64_t body;
    im->g = graph_new_subgraph(outside, &body);
    for (int i = 0; i <= sequences; i++) {
        graph_shape shape = *graph_shape_of(outside, in[i]);
        if (i > 0) {
            shape.rank--;
            for (int d = 0; d < shape.rank; d++) shape.dim[d] = shape.dim[d + 1];
        }
        inside[i] = graph_new_input(im->g, NULL, &shape);
    }
    const linear_step token = step_of_list(x, inside + 1);
    graph_new_output(im->g, NULL, linear_update(im, &token, inside[0], scale, &y));
    graph_new_output(im->g, NULL, y);
    im->g = outside;
    const graph_setting s[] = {graph_set_integer("body", body), graph_set_integer("carries", 1),
                               graph_set_integer("sequences", sequences)};
    state = onnx_emit(im, "scan", 1 + sequences, in, 3, s);
    *result = state + 1;
    return state;
}

static graph_id linear_one(onnx_import *im, const linear_step *x, graph_id state, double scale, graph_id *result) {
    graph_id list[LINEAR_OPERANDS];
    const int count = list_step(x, list);
    for (int i = 0; i < count; i++) list[i] = graph_squeeze(im->g, list[i], 0);
    const linear_step token = step_of_list(x, list);
    state = linear_update(im, &token, state, scale, result);
    *result = graph_expand_dims(im->g, *result, 0);
    return state;
}

/* Operand i, [batch, tokens, features]; raises if it is missing or of another rank. */
static graph_id packed_operand(onnx_import *im, size_t i, const char *name) {
    const graph_id x = onnx_operand(im, i);
    if (!x) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu, %s, is missing", i, name);
    if (graph_shape_of(im->g, x)->rank != 3)
        onnx_fail(im, DLC_PARSE_ERROR, "%s of rank %d, not 3", name, graph_shape_of(im->g, x)->rank);
    return x;
}

static bool is_number(onnx_import *im, tir_expr e, int64_t number) {
    int64_t value;
    return tir_is_const(im->g->pool, e, &value) && value == number;
}

/* The decay by token, of each head or of each key element. */
static graph_id decay_by_token(onnx_import *im, int64_t heads, tir_expr count, tir_expr key_size, tir_expr one) {
    const graph_id decay = packed_operand(im, 4, "decay");
    const bool by_head = is_number(im, graph_shape_of(im->g, decay)->dim[2], heads);
    return by_token(im, decay, 2, (tir_expr[]){count, by_head ? one : key_size});
}

/* Beta by token, of each head or of all. */
static graph_id beta_by_token(onnx_import *im, tir_expr count, tir_expr one) {
    const graph_id beta = packed_operand(im, 5, "beta");
    const bool by_head = !is_number(im, graph_shape_of(im->g, beta)->dim[2], 1);
    return by_token(im, beta, 2, (tir_expr[]){by_head ? count : one, one});
}

/* The attribute, or 1 / sqrt(key size). */
static double scale_of(onnx_import *im, tir_expr key_size) {
    const double scale = onnx_float(im, "scale", 0);
    int64_t size;
    if (scale != 0) return scale;
    if (!tir_is_const(im->g->pool, key_size, &size))
        onnx_fail(im, DLC_UNSUPPORTED, "keys of unknown size, without a scale");
    return 1 / __builtin_sqrt((double)size);
}

static void import_linear_attention(onnx_import *im) {
    enum { LINEAR, GATED, DELTA, GATED_DELTA };
    graph *g = im->g;
    const int rule = onnx_choice(im, "update_rule", "linear gated delta gated_delta", "gated_delta");
    const int64_t query_heads = onnx_int(im, "q_num_heads", 0), heads = onnx_int(im, "kv_num_heads", 0);
    const graph_id q = packed_operand(im, 0, "query"), k = packed_operand(im, 1, "key"),
                   v = packed_operand(im, 2, "value");
    onnx_ignore(im, "chunk_size");
    if (heads < 1 || query_heads < 1 || query_heads % heads != 0)
        onnx_fail(im, DLC_PARSE_ERROR, "q_num_heads=%lld and kv_num_heads=%lld, expected a positive multiple",
                  (long long)query_heads, (long long)heads);
    const bool gates = rule == GATED || rule == GATED_DELTA, corrects = rule == DELTA || rule == GATED_DELTA;
    if (gates != onnx_has(im, 4) || corrects != onnx_has(im, 5))
        onnx_fail(im, DLC_PARSE_ERROR, "this update_rule takes %s and %s", gates ? "decay" : "no decay",
                  corrects ? "beta" : "no beta");
    const graph_shape shape = *graph_shape_of(g, q);
    const tir_expr one = tir_index(g->pool, 1), count = tir_index(g->pool, heads),
                   key_size = part_of(im, graph_shape_of(g, k)->dim[2], heads, "key"),
                   value_size = part_of(im, graph_shape_of(g, v)->dim[2], heads, "value");
    linear_step x = {
        .q = by_token(im, q, 3, (tir_expr[]){count, tir_index(g->pool, query_heads / heads), key_size}),
        .k = by_token(im, k, 2, (tir_expr[]){count, key_size}),
        .v = by_token(im, v, 2, (tir_expr[]){count, value_size}),
    };
    if (gates) x.decay = decay_by_token(im, heads, count, key_size, one);
    if (corrects) x.beta = beta_by_token(im, count, one);
    const dlc_dtype computed = graph_shape_of(g, x.q)->dtype;
    graph_id state = onnx_operand(im, 3), y;
    const dlc_dtype stored = state ? graph_shape_of(g, state)->dtype : shape.dtype;
    state = state ? graph_cast(g, state, computed)
                  : graph_full(g, computed, 4, (tir_expr[]){shape.dim[0], count, key_size, value_size}, 0);
    const double scale = scale_of(im, key_size);
    state = (is_number(im, shape.dim[1], 1) ? linear_one : linear_scan)(im, &x, state, scale, &y);
    /* [tokens, batch, heads, queries of each, value size] */
    y = graph_transpose(g, graph_cast(g, y, shape.dtype), (int64_t[]){1, 0, 2, 3, 4});
    onnx_give(im, 0,
              graph_reshape(g, y, 3,
                            (tir_expr[]){shape.dim[0], shape.dim[1],
                                         tir_mul(g->pool, value_size, tir_index(g->pool, query_heads))}));
    onnx_give(im, 1, graph_cast(g, state, stored));
}

/* ---- CausalConvWithState ------------------------------------------------------------------------------------------------ */

/* Position i of the result reads positions i - size + 1 to i of its channel; positions before the first are in the state. */
static void import_causal_convolution(onnx_import *im) {
    graph *g = im->g;
    const int activation = onnx_choice(im, "activation", "none silu swish", "none");
    graph_id x = onnx_operand(im, 0);
    const graph_id weights = onnx_operand(im, 1);
    const graph_shape shape = *graph_shape_of(g, x), window = *graph_shape_of(g, weights);
    int64_t channels, size;
    if (shape.rank != 3 || window.rank != 3)
        onnx_fail(im, DLC_PARSE_ERROR, "operands of rank %d and %d, not 3", shape.rank, window.rank);
    if (!tir_is_const(g->pool, window.dim[0], &channels) || !tir_is_const(g->pool, window.dim[2], &size) || size < 1)
        onnx_fail(im, DLC_UNSUPPORTED, "weights of unknown size");
    const graph_id before =
        onnx_has(im, 3)
            ? onnx_operand(im, 3)
            : graph_full(g, shape.dtype, 3, (tir_expr[]){shape.dim[0], shape.dim[1], tir_index(g->pool, size - 1)}, 0);
    if (size > 1) x = graph_concat(g, 2, (graph_id[]){before, x}, 2);
    const graph_setting s = graph_set_integer("groups", channels);
    graph_id y = onnx_emit(im, "convolution", 2, (graph_id[]){x, weights}, 1, &s);
    if (onnx_has(im, 2)) y = onnx_binary(im, "add", y, graph_expand_dims(g, onnx_operand(im, 2), 1));
    onnx_give(im, 0, activation ? onnx_unary(im, "silu", y) : y);
    const tir_expr end = graph_shape_of(g, x)->dim[2];
    onnx_give(im, 1, graph_slice_axis(g, x, 2, tir_sub(g->pool, end, tir_index(g->pool, size - 1)), end));
}

/* ---- TensorScatter ------------------------------------------------------------------------------------------------------ */

/* update [batch, ..., n, ...] is written at write_indices[batch] along the axis; circular: modulo the size of the axis. */
static void import_tensor_scatter(onnx_import *im) {
    graph *g = im->g;
    const graph_id past = onnx_operand(im, 0), update = onnx_operand(im, 1);
    const graph_shape to = *graph_shape_of(g, past), from = *graph_shape_of(g, update);
    const int axis = onnx_axis(im, onnx_int(im, "axis", -2), to.rank, false);
    const bool circular = onnx_choice(im, "mode", "linear circular", "linear") == 1;
    if (axis == 0 || from.rank != to.rank)
        onnx_fail(im, DLC_PARSE_ERROR, "axis %d of operands of rank %d and %d", axis, to.rank, from.rank);
    graph_id at = graph_iota(g, DLC_I64, from.rank, from.dim, axis);
    if (onnx_has(im, 2)) {
        tir_expr dim[DLC_MAX_RANK];
        for (int d = 0; d < from.rank; d++) dim[d] = d == 0 ? from.dim[0] : tir_index(g->pool, 1);
        at = onnx_binary(im, "add", at, graph_reshape(g, onnx_operand(im, 2), from.rank, dim));
    }
    if (circular) at = onnx_binary(im, "mod", at, graph_dimension(g, DLC_I64, to.dim[axis]));
    const graph_setting s = graph_set_integer("axis", axis);
    onnx_give(im, 0, onnx_emit(im, "scatter_elements", 3, (graph_id[]){past, at, update}, 1, &s));
}

const onnx_row onnx_rows_state[] = {
    {"CausalConvWithState", 27, 0, import_causal_convolution, NULL},
    {"LinearAttention", 27, 0, import_linear_attention, NULL},
    {"TensorScatter", 24, 0, import_tensor_scatter, NULL},
    {0},
};
