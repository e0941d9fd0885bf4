/* Trains a transformer to continue a text, character by character, and lets it write: <dlc/train.h> with rates, clipping, dropout and a checkpoint.
 *
 *   train_text [FILE [STEPS [CHECKPOINT]]]      as text.h says
 *
 * Three layers of width 128 with four heads and 64 characters of context (Vaswani et al. 2017, norms first). */
#include "text.h"

enum { WIDTH = 128, HEADS = 4, LAYERS = 3 };

/* Layer norm, whose scale is 1 at the start. */
static dlc_value norm(dlc_training *t, int layer, const char *name, dlc_value x) {
    char full[32];
    dlc_parameter_options ones = DLC_PARAMETER_OPTIONS_INIT;
    ones.scale = 1;
    snprintf(full, sizeof full, "layer%d.%s", layer, name);
    return dlc_layer_norm(x, dlc_training_parameter(t, full, DLC_F32, 1, (int64_t[]){WIDTH}, &ones), DLC_NONE, -1);
}

static dlc_value product(dlc_training *t, int layer, const char *name, dlc_value x, int64_t in, int64_t out) {
    char full[32];
    snprintf(full, sizeof full, "layer%d.%s", layer, name);
    return dlc_matmul(x, parameter(t, full, 2, (int64_t[]){in, out}, 0.02));
}

static dlc_value dropout(dlc_training *t, dlc_value x) {
    return dlc_training_is_step(t) ? dlc_dropout(x, dlc_training_key(t), 0.1) : x;
}

/* [n, CONTEXT, WIDTH] as [n, HEADS, CONTEXT, WIDTH / HEADS] */
static dlc_value heads(dlc_value x) {
    const dlc_dim split[] = {dlc_value_dim(x, 0), {CONTEXT, NULL}, {HEADS, NULL}, {WIDTH / HEADS, NULL}};
    return dlc_transpose(dlc_reshape(x, 4, split), 4, (int64_t[]){0, 2, 1, 3});
}

static dlc_value attention(dlc_training *t, int layer, dlc_value x) {
    dlc_attention_options causal = DLC_ATTENTION_OPTIONS_INIT;
    causal.causal = true;
    dlc_value q = heads(product(t, layer, "query", x, WIDTH, WIDTH)),
              k = heads(product(t, layer, "key", x, WIDTH, WIDTH));
    dlc_value v = heads(product(t, layer, "value", x, WIDTH, WIDTH));
    dlc_value y = dlc_transpose(dlc_attention_with(q, k, v, DLC_NONE, &causal), 4, (int64_t[]){0, 2, 1, 3});
    y = dlc_reshape(y, 3, (dlc_dim[]){dlc_value_dim(x, 0), {CONTEXT, NULL}, {WIDTH, NULL}});
    return product(t, layer, "joined", y, WIDTH, WIDTH);
}

static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    const text *from = user;
    dlc_value table = parameter(t, "characters", 2, (int64_t[]){from->kinds, WIDTH}, 0.1);
    dlc_value places = parameter(t, "places", 2, (int64_t[]){CONTEXT, WIDTH}, 0.1);
    dlc_value x = dlc_add(dlc_embedding(table, input_of(t, "ids")), places);
    for (int l = 0; l < LAYERS; l++) {
        x = dlc_add(x, dropout(t, attention(t, l, norm(t, l, "norm1", x))));
        dlc_value wide = dlc_gelu(product(t, l, "wide", norm(t, l, "norm2", x), WIDTH, 4 * WIDTH));
        x = dlc_add(x, dropout(t, product(t, l, "narrow", wide, 4 * WIDTH, WIDTH)));
    }
    *loss = loss_of(t, product(t, LAYERS, "scores", norm(t, LAYERS, "norm", x), WIDTH, from->kinds));
    return DLC_OK;
}

int main(int count, char **words) {
    return train_on_text(count, words, build, 0.002, false);
}
