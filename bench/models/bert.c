/* BERT: embeddings of words, positions and one kind of sentence; layers of attention and two linear maps, each with residual and
 * normalisation behind it. */
#include "bench/models/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* w of bytes, [in, out], as exporters of quantised networks have it. */
static dlc_value narrow_linear(model *m, dlc_value x, int64_t in, int64_t out, double limit, const char *at,
                               const char *name, dlc_value bias) {
    const int64_t shape[] = {in, out};
    const float *numbers = model_numbers(m, 2, (int64_t[]){out, in}, -limit, limit, "%s%s.weight", at, name);
    float *turned = malloc((size_t)(in * out) * sizeof *turned);
    for (int64_t i = 0; turned && numbers && i < in * out; i++) turned[i % in * out + i / in] = numbers[i];
    dlc_value w = model_narrow(m, 2, shape, false, numbers ? turned : NULL);
    free(turned);
    return dlc_linear(x, w, bias);
}

/* As PyTorch keeps it: [out, in]. `name` ends without a dot. */
static dlc_value linear(model *m, dlc_value x, int64_t out, const char *at, const char *name) {
    const int64_t in = dlc_value_dim(x, dlc_value_rank(x) - 1).value;
    const double limit = sqrt(3.0 / (double)in); /* keeps the variance */
    x = model_activation(m, x);
    dlc_value bias = model_constant(m, 1, &out, -0.05, 0.05, "%s%s.bias", at, name);
    if (model_is_quantised(m)) return narrow_linear(m, x, in, out, limit, at, name, bias);
    dlc_value w = model_constant(m, 2, (int64_t[]){out, in}, -limit, limit, "%s%s.weight", at, name);
    return dlc_linear_with(x, w, bias, &(dlc_linear_options){sizeof(dlc_linear_options), .transposed = true});
}

static dlc_value normalised(model *m, dlc_value x, const char *at, const char *name) {
    const int64_t hidden = model_sizes_of(m)->hidden;
    dlc_value scale = model_constant(m, 1, &hidden, 0.9, 1.1, "%s%s.weight", at, name);
    return dlc_layer_norm_with(x, scale, model_constant(m, 1, &hidden, -0.1, 0.1, "%s%s.bias", at, name), -1,
                               &(dlc_layer_norm_options){sizeof(dlc_layer_norm_options), .epsilon = 1e-12});
}

/* [n, tokens, hidden] as [n, heads, tokens, hidden/heads]. */
static dlc_value by_heads(model *m, dlc_value x) {
    const model_sizes *s = model_sizes_of(m);
    const dlc_dim heads = {s->heads, NULL}, size = {s->hidden / s->heads, NULL};
    x = dlc_reshape(x, 4, (dlc_dim[]){dlc_value_dim(x, 0), dlc_value_dim(x, 1), heads, size});
    return dlc_transpose(x, 4, (int64_t[]){0, 2, 1, 3});
}

/* mask [n, 1, 1, tokens]: all queries of a sentence see the same keys. */
static dlc_value attention(model *m, dlc_value x, dlc_value mask, const char *at) {
    const int64_t hidden = model_sizes_of(m)->hidden;
    dlc_value q = by_heads(m, linear(m, x, hidden, at, "attention.self.query"));
    dlc_value k = by_heads(m, linear(m, x, hidden, at, "attention.self.key"));
    dlc_value v = by_heads(m, linear(m, x, hidden, at, "attention.self.value"));
    q = model_activation(m, q), k = model_activation(m, k), v = model_activation(m, v);
    dlc_value y = dlc_transpose(block_attention(m, q, k, v, mask, false), 4, (int64_t[]){0, 2, 1, 3});
    y = dlc_reshape(y, 3, (dlc_dim[]){dlc_value_dim(x, 0), dlc_value_dim(x, 1), {hidden, NULL}});
    return linear(m, y, hidden, at, "attention.output.dense");
}

static dlc_value embeddings(model *m, dlc_value ids) {
    const model_sizes *s = model_sizes_of(m);
    const int64_t words[] = {s->vocabulary, s->hidden}, positions[] = {s->positions, s->hidden},
                  kinds[] = {2, s->hidden};
    const dlc_dim tokens = dlc_value_dim(ids, 1), hidden = {s->hidden, NULL}, zero = {0, NULL}, one = {1, NULL};
    dlc_value word = model_constant(m, 2, words, -1, 1, "embeddings.word_embeddings.weight");
    dlc_value position = model_constant(m, 2, positions, -0.5, 0.5, "embeddings.position_embeddings.weight");
    dlc_value kind = model_constant(m, 2, kinds, -0.5, 0.5, "embeddings.token_type_embeddings.weight");
    position = dlc_slice(position, 2, (dlc_dim[]){zero, zero}, 2, (dlc_dim[]){tokens, hidden});
    kind = dlc_slice(kind, 2, (dlc_dim[]){zero, zero}, 2, (dlc_dim[]){one, hidden});
    dlc_value x = dlc_add(dlc_add(dlc_embedding(word, ids), position), kind);
    return normalised(m, x, "", "embeddings.LayerNorm");
}

dlc_value model_bert(model *m, dlc_value ids, dlc_value mask) {
    const model_sizes *s = model_sizes_of(m);
    const dlc_dim one = {1, NULL};
    mask = dlc_reshape(mask, 4, (dlc_dim[]){dlc_value_dim(mask, 0), one, one, dlc_value_dim(mask, 1)});
    dlc_value x = embeddings(m, ids);
    for (int i = 0; i < s->layers; i++) {
        char at[32];
        snprintf(at, sizeof at, "encoder.layer.%d.", i);
        x = normalised(m, dlc_add(attention(m, x, mask, at), x), at, "attention.output.LayerNorm");
        dlc_value inner = dlc_gelu(linear(m, x, s->inner, at, "intermediate.dense"));
        x = normalised(m, dlc_add(linear(m, inner, s->hidden, at, "output.dense"), x), at, "output.LayerNorm");
    }
    return x;
}
