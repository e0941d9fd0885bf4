/* Blocks of networks: convolutions with what follows them, linear maps, attention. */
#include "bench/models/blocks.h"

#include <math.h>

/* He et al. 2015: keeps the variance through relu. `fan_in`: numbers that a result sums. */
static double he(int64_t fan_in) {
    return sqrt(6.0 / (double)fan_in);
}

static dlc_value vector(model *m, int64_t count, double low, double high) {
    return model_weights_next(m, 1, &count, low, high);
}

static int64_t or_one(int64_t number) {
    return number ? number : 1;
}

static dlc_value convolved(model *m, dlc_value x, block_window w) {
    const int64_t groups = or_one(w.groups), in = dlc_value_dim(x, 1).value / groups;
    const int64_t dilation = or_one(w.dilation), stride = or_one(w.stride),
                  pad = w.unpadded ? 0 : (w.size - 1) / 2 * dilation;
    const int axes = dlc_value_rank(x) - 2;
    dlc_convolution_options o = DLC_CONVOLUTION_OPTIONS_INIT;
    o.stride_count = o.low_count = o.high_count = o.dilation_count = axes;
    o.stride = (int64_t[]){stride, stride};
    o.low = o.high = (int64_t[]){pad, pad};
    o.dilation = (int64_t[]){dilation, dilation};
    o.groups = groups;
    const double limit = he(in * (axes == 2 ? w.size * w.size : w.size));
    dlc_value kernel = model_weights_next(m, axes + 2, (int64_t[]){w.channels, in, w.size, w.size}, -limit, limit);
    return dlc_convolution_with(x, kernel, &o);
}

dlc_value block_convolution(model *m, dlc_value x, block_window w) {
    dlc_value y = convolved(m, x, w);
    return dlc_add(y, model_weights_next(m, dlc_value_rank(x) - 1, (int64_t[]){w.channels, 1, 1}, -0.1, 0.1));
}

dlc_value block_normalised(model *m, dlc_value x, block_window w, double gain, block_function *then) {
    x = convolved(m, x, w);
    dlc_value scale = vector(m, w.channels, 0.9 * gain, 1.1 * gain), bias = vector(m, w.channels, -0.1, 0.1);
    dlc_value mean = vector(m, w.channels, -0.1, 0.1), variance = vector(m, w.channels, 0.8, 1.25);
    x = dlc_batch_norm(x, scale, bias, mean, variance, 1);
    return then ? then(x) : x;
}

dlc_value block_nearest(dlc_value x, dlc_value like) {
    dlc_resize_options o = DLC_RESIZE_OPTIONS_INIT;
    o.coordinates = DLC_RESIZE_COORDINATES_ASYMMETRIC;
    o.rounding = DLC_RESIZE_ROUNDING_FLOOR;
    const dlc_dim shape[] = {dlc_value_dim(like, 2), dlc_value_dim(like, 3)};
    return dlc_resize_with(x, DLC_NONE, DLC_NONE, 2, shape, DLC_RESIZE_MODE_NEAREST, 2, (int64_t[]){2, 3}, &o);
}

dlc_value block_mean(dlc_value x) {
    return dlc_mean(x, dlc_value_rank(x) - 2, (int64_t[]){2, 3});
}

dlc_value block_linear(model *m, dlc_value x, int64_t out) {
    const int64_t in = dlc_value_dim(x, -1).value;
    const double limit = sqrt(3.0 / (double)in); /* keeps the variance */
    dlc_value w = model_weights_next(m, 2, (int64_t[]){in, out}, -limit, limit);
    return dlc_linear(x, w, vector(m, out, -0.05, 0.05));
}

dlc_value block_layer_norm(model *m, dlc_value x) {
    const int64_t hidden = dlc_value_dim(x, -1).value;
    dlc_value scale = vector(m, hidden, 0.9, 1.1);
    return dlc_layer_norm(x, scale, vector(m, hidden, -0.1, 0.1), -1);
}

/* True where a query sees a key: [queries, keys]; the queries are the last ones. */
static dlc_value triangle(model *m, dlc_dim queries, dlc_dim keys) {
    const dlc_dim one = {1, NULL}, past = model_past(m);
    dlc_graph *graph = model_target(m);
    dlc_value query = dlc_reshape(dlc_iota(graph, DLC_I64, 1, &queries, 0), 2, (dlc_dim[]){queries, one});
    if (past.name) query = dlc_add(query, dlc_dimension(graph, 1, &past));
    return dlc_ge(query, dlc_reshape(dlc_iota(graph, DLC_I64, 1, &keys, 0), 2, (dlc_dim[]){one, keys}));
}

/* Scores that do not count become those that exporters put there. */
static dlc_value spelled_attention(model *m, dlc_value q, dlc_value k, dlc_value v, dlc_value mask, bool causal) {
    dlc_graph *graph = model_target(m);
    const double scale = 1 / sqrt((double)dlc_value_dim(q, 3).value);
    dlc_value scores = dlc_matmul(q, dlc_transpose(k, 4, (int64_t[]){0, 1, 3, 2}));
    scores = dlc_mul(scores, dlc_scalar(graph, model_dtype(m), scale));
    dlc_value hidden = dlc_scalar(graph, model_dtype(m), -10000);
    if (dlc_value_ok(mask)) scores = dlc_add(scores, dlc_select(mask, dlc_scalar(graph, model_dtype(m), 0), hidden));
    if (causal) scores = dlc_select(triangle(m, dlc_value_dim(q, 2), dlc_value_dim(k, 2)), scores, hidden);
    return dlc_matmul(model_activation(m, dlc_softmax(scores, -1)), v);
}

dlc_value block_attention(model *m, dlc_value q, dlc_value k, dlc_value v, dlc_value mask, bool causal) {
    dlc_attention_options o = DLC_ATTENTION_OPTIONS_INIT;
    o.causal = causal;
    if (model_spells_attention(m)) return spelled_attention(m, q, k, v, mask, causal);
    return dlc_attention_with(q, k, v, mask, &o);
}

/* Part `part` of q, k and v [n, tokens, 3 hidden] by heads. */
static dlc_value heads_of(dlc_value qkv, int64_t part, int64_t hidden, int64_t heads) {
    const dlc_dim n = dlc_value_dim(qkv, 0), tokens = dlc_value_dim(qkv, 1), zero = {0, NULL};
    dlc_value x = dlc_slice(qkv, 3, (dlc_dim[]){zero, zero, {part * hidden, NULL}}, 3,
                            (dlc_dim[]){n, tokens, {(part + 1) * hidden, NULL}});
    x = dlc_reshape(x, 4, (dlc_dim[]){n, tokens, {heads, NULL}, {hidden / heads, NULL}});
    return dlc_transpose(x, 4, (int64_t[]){0, 2, 1, 3});
}

static dlc_value attention(model *m, dlc_value x, int layer, bool causal) {
    const model_sizes *s = model_sizes_of(m);
    dlc_value qkv = block_linear(m, x, 3 * s->hidden), part[3];
    for (int i = 0; i < 3; i++) part[i] = heads_of(qkv, i, s->hidden, s->heads);
    part[1] = model_cache(m, layer, "key", part[1]), part[2] = model_cache(m, layer, "value", part[2]);
    dlc_value y = block_attention(m, part[0], part[1], part[2], DLC_NONE, causal);
    y = dlc_transpose(y, 4, (int64_t[]){0, 2, 1, 3});
    y = dlc_reshape(y, 3, (dlc_dim[]){dlc_value_dim(x, 0), dlc_value_dim(x, 1), {s->hidden, NULL}});
    return block_linear(m, y, s->hidden);
}

dlc_value block_transformer(model *m, dlc_value x, int layer, bool causal) {
    const model_sizes *s = model_sizes_of(m);
    x = dlc_add(x, attention(m, block_layer_norm(m, x), layer, causal));
    dlc_value inner = dlc_gelu(block_linear(m, block_layer_norm(m, x), s->inner));
    return dlc_add(x, block_linear(m, inner, s->hidden));
}

dlc_value block_positions(model *m, dlc_value x, int64_t count) {
    const dlc_dim tokens = dlc_value_dim(x, 1), hidden = dlc_value_dim(x, 2), zero = {0, NULL}, past = model_past(m);
    dlc_value table = model_weights_next(m, 2, (int64_t[]){count, hidden.value}, -0.5, 0.5);
    if (past.name) {
        dlc_value place =
            dlc_add(dlc_iota(model_target(m), DLC_I64, 1, &tokens, 0), dlc_dimension(model_target(m), 1, &past));
        return dlc_add(x, dlc_gather(table, place, 0));
    }
    return dlc_add(x, dlc_slice(table, 2, (dlc_dim[]){zero, zero}, 2, (dlc_dim[]){tokens, hidden}));
}
