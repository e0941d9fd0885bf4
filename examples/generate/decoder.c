#include "decoder.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- weights: each a part of one array */

static int64_t wide(const decoder *d) {
    return (int64_t)d->sizes.heads * d->sizes.width;
}

static int64_t count_numbers(const decoder *d) {
    const int64_t n = wide(d), layer = 12 * n * n + 13 * n;
    return (d->sizes.vocabulary + d->sizes.positions) * n + d->sizes.layers * layer + 2 * n;
}

/* In -1/8..1/8: Marsaglia's xorshift. */
static float next_number(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)(int32_t)(*state >> 32) / 17179869184.0f;
}

bool decoder_make(decoder *d, decoder_sizes sizes) {
    uint64_t state = 88172645463325252;
    *d = (decoder){.sizes = sizes};
    const int64_t count = count_numbers(d);
    d->numbers = malloc((size_t)count * sizeof *d->numbers);
    for (int64_t i = 0; d->numbers && i < count; i++) d->numbers[i] = next_number(&state);
    return d->numbers != NULL;
}

void decoder_free(decoder *d) {
    free(d->numbers);
}

/* The graph while it is made, and the place of the next weight. */
typedef struct maker {
    dlc_graph *graph;
    const decoder *d;
    const float *next;
} maker;

static dlc_value weight(maker *m, int64_t rows, int64_t columns) {
    const float *numbers = m->next;
    m->next += rows * columns;
    return dlc_constant_borrow(m->graph, DLC_F32, 2, (int64_t[]){rows, columns}, numbers);
}

static dlc_value bias(maker *m, int64_t count) {
    const float *numbers = m->next;
    m->next += count;
    return dlc_constant_borrow(m->graph, DLC_F32, 1, (int64_t[]){count}, numbers);
}

static dlc_value dense(maker *m, dlc_value x, int64_t in, int64_t out) {
    dlc_value w = weight(m, in, out);
    return dlc_linear(x, w, bias(m, out));
}

static dlc_value norm(maker *m, dlc_value x) {
    dlc_value scale = dlc_add(bias(m, wide(m->d)), dlc_scalar(m->graph, DLC_F32, 1));
    return dlc_layer_norm(x, scale, bias(m, wide(m->d)), -1);
}

/* ---- layers */

static const dlc_dim batch = {0, "batch"}, sequence = {0, "sequence"}, past_tokens = {0, "past"};

/* Part `which` of the three parts of [batch, sequence, 3 n], split into heads: [batch, heads, sequence, width]. */
static dlc_value heads_of(maker *m, dlc_value all, int which) {
    const decoder_sizes *s = &m->d->sizes;
    const int64_t n = wide(m->d);
    dlc_value part = dlc_slice(all, 3, (dlc_dim[]){{0, NULL}, {0, NULL}, {which * n, NULL}}, 3,
                               (dlc_dim[]){batch, sequence, {(which + 1) * n, NULL}});
    dlc_value split = dlc_reshape(part, 4, (dlc_dim[]){batch, sequence, {s->heads, NULL}, {s->width, NULL}});
    return dlc_transpose(split, 4, (int64_t[]){0, 2, 1, 3});
}

/* Keys or values of all tokens so far: those of the cache, an input, and the new ones. The result is an output, too. */
static dlc_value with_cache(maker *m, int layer, const char *what, dlc_value added) {
    const decoder_sizes *s = &m->d->sizes;
    char name[32];
    snprintf(name, sizeof name, "past.%d.%s", layer, what);
    dlc_value past =
        dlc_input(m->graph, name, DLC_F32, 4, (dlc_dim[]){batch, {s->heads, NULL}, past_tokens, {s->width, NULL}});
    dlc_value all = dlc_concat(2, (dlc_value[]){past, added}, 2);
    snprintf(name, sizeof name, "present.%d.%s", layer, what);
    dlc_output(m->graph, name, all);
    return all;
}

static dlc_value attend(maker *m, dlc_value x, int layer) {
    const int64_t n = wide(m->d);
    dlc_value all = dense(m, x, n, 3 * n);
    dlc_value keys = with_cache(m, layer, "key", heads_of(m, all, 1));
    dlc_value values = with_cache(m, layer, "value", heads_of(m, all, 2));
    dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
    options.causal = true; /* the last query sees all keys */
    dlc_value y = dlc_attention_with(heads_of(m, all, 0), keys, values, DLC_NONE, &options);
    y = dlc_reshape(dlc_transpose(y, 4, (int64_t[]){0, 2, 1, 3}), 3, (dlc_dim[]){batch, sequence, {n, NULL}});
    return dense(m, y, n, n);
}

static dlc_value block(maker *m, dlc_value x, int layer) {
    const int64_t n = wide(m->d);
    dlc_gelu_options tanh = DLC_GELU_OPTIONS_INIT;
    tanh.approximate = DLC_GELU_APPROXIMATE_TANH;
    x = dlc_add(x, attend(m, norm(m, x), layer));
    dlc_value h = dlc_gelu_with(dense(m, norm(m, x), n, 4 * n), &tanh);
    return dlc_add(x, dense(m, h, 4 * n, n));
}

dlc_status decoder_graph(dlc_context *context, const decoder *d, dlc_graph **graph) {
    dlc_status status = dlc_graph_create(context, graph);
    if (status != DLC_OK) return status;
    maker m = {*graph, d, d->numbers};
    dlc_value ids = dlc_input(m.graph, "input_ids", DLC_I64, 2, (dlc_dim[]){batch, sequence});
    dlc_value table = weight(&m, d->sizes.vocabulary, wide(d)), places = weight(&m, d->sizes.positions, wide(d));
    dlc_value position = dlc_add(dlc_iota(m.graph, DLC_I64, 1, &sequence, 0), dlc_dimension(m.graph, 1, &past_tokens));
    dlc_value x = dlc_add(dlc_embedding(table, ids), dlc_gather(places, position, 0));
    for (int i = 0; i < d->sizes.layers; i++) x = block(&m, x, i);
    return dlc_output(m.graph, "logits", dlc_matmul(norm(&m, x), dlc_transpose(table, 2, (int64_t[]){1, 0})));
}
