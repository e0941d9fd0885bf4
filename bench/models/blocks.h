/* What networks are made of. Weights are numbered in the order of construction. */
#ifndef BENCH_MODELS_BLOCKS_H
#define BENCH_MODELS_BLOCKS_H

#include "bench/models/models.h"

typedef dlc_value block_function(dlc_value x);

/* A convolution of images, or of sequences if x has rank 3. A size, stride, dilation or number of groups of 0 means 1. */
typedef struct block_window {
    int64_t channels, size, stride, dilation, groups;
    /* Otherwise padding keeps the size, of odd windows at stride 1. */
    bool unpadded;
} block_window;

/* A convolution with bias. */
dlc_value block_convolution(model *m, dlc_value x, block_window w);
/* A convolution without bias, followed by batch normalisation, whose scales are about `gain` (below 1 at the end of a branch: sums of
 * branches grow slowly), and by `then`, if it is not NULL. */
dlc_value block_normalised(model *m, dlc_value x, block_window w, double gain, block_function *then);
/* An image in the size of another one, by the nearest pixel. */
dlc_value block_nearest(dlc_value x, dlc_value like);
/* Mean over the dimensions after channels, [n, channels]. */
dlc_value block_mean(dlc_value x);
/* x w^T + b along the last dimension. */
dlc_value block_linear(model *m, dlc_value x, int64_t out);
/* Layer normalisation along the last dimension. */
dlc_value block_layer_norm(model *m, dlc_value x);
/* q, k, v [n, heads, tokens, d]; mask bool [n, 1, 1, tokens]: true where a key is seen, or DLC_NONE. causal: a query sees the keys up to its
 * own position; the queries are the last ones. By the operator, or spelled out (model_spell_attention). */
dlc_value block_attention(model *m, dlc_value q, dlc_value k, dlc_value v, dlc_value mask, bool causal);
/* Layer `layer` of a transformer with normalisation before attention and before the two linear maps (Radford et al. 2019), of the model's
 * sizes. x [n, tokens, hidden]. */
dlc_value block_transformer(model *m, dlc_value x, int layer, bool causal);
/* x [n, tokens, hidden] plus rows of a table of `count` positions, beginning after the positions of cached tokens. */
dlc_value block_positions(model *m, dlc_value x, int64_t count);

#endif
