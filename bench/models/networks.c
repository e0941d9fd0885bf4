/* Networks of shared blocks, in the form in which their papers give them, with sizes from the table in models.c. */
#include "bench/models/blocks.h"

#include <stdio.h>

static const int64_t two[] = {2, 2};

static block_window window(int64_t channels, int64_t size, int64_t stride) {
    return (block_window){.channels = channels, .size = size, .stride = stride};
}

static dlc_value halved(dlc_value x) {
    return dlc_max_pool(x, 2, two);
}

static dlc_value joined(dlc_value a, dlc_value b) {
    return dlc_concat(2, (dlc_value[]){a, b}, 1);
}

/* ---- MobileNetV3 (Howard et al. 2019) -------------------------------------------------------------------------------- */

/* Squeeze and excitation: multiplies channels by factors that are computed from their means. */
static dlc_value excited(model *m, dlc_value x) {
    const int64_t channels = dlc_value_dim(x, 1).value;
    const dlc_dim n = dlc_value_dim(x, 0), one = {1, NULL};
    dlc_value factor = dlc_relu(block_linear(m, block_mean(x), channels / 4));
    dlc_hard_sigmoid_options o = DLC_HARD_SIGMOID_OPTIONS_INIT;
    o.alpha = 1.0 / 6;
    factor = dlc_hard_sigmoid_with(block_linear(m, factor, channels), &o);
    return dlc_mul(x, dlc_reshape(factor, 4, (dlc_dim[]){n, {channels, NULL}, one, one}));
}

/* `channels` and `wide` are of the network of width 16. */
typedef struct mobile_block {
    int64_t size, wide, channels, stride;
    bool excites;
    block_function *then;
} mobile_block;

static dlc_value mobile(model *m, dlc_value x, const mobile_block *b) {
    const int64_t width = model_sizes_of(m)->width, wide = b->wide * width / 16, channels = b->channels * width / 16;
    dlc_value y = x;
    if (wide != dlc_value_dim(x, 1).value) y = block_normalised(m, y, window(wide, 1, 1), 1, b->then);
    y = block_normalised(m, y, (block_window){.channels = wide, .size = b->size, .stride = b->stride, .groups = wide},
                         1, b->then);
    if (b->excites) y = excited(m, y);
    y = block_normalised(m, y, window(channels, 1, 1), 0.7, NULL);
    return b->stride == 1 && channels == dlc_value_dim(x, 1).value ? dlc_add(y, x) : y;
}

dlc_value model_mobilenet(model *m, dlc_value image, dlc_value none) {
    static const mobile_block blocks[] = {
        {3, 16, 16, 1, false, dlc_relu},        {3, 64, 24, 2, false, dlc_relu},
        {3, 72, 24, 1, false, dlc_relu},        {5, 72, 40, 2, true, dlc_relu},
        {5, 120, 40, 1, true, dlc_relu},        {5, 120, 40, 1, true, dlc_relu},
        {3, 240, 80, 2, false, dlc_hard_swish}, {3, 200, 80, 1, false, dlc_hard_swish},
        {3, 184, 80, 1, false, dlc_hard_swish}, {3, 184, 80, 1, false, dlc_hard_swish},
        {3, 480, 112, 1, true, dlc_hard_swish}, {3, 672, 112, 1, true, dlc_hard_swish},
        {5, 672, 160, 2, true, dlc_hard_swish}, {5, 960, 160, 1, true, dlc_hard_swish},
        {5, 960, 160, 1, true, dlc_hard_swish},
    };
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value x = block_normalised(m, image, window(s->width, 3, 2), 1, dlc_hard_swish);
    for (int i = 0; i < s->layers; i++) x = mobile(m, x, &blocks[i]);
    x = block_normalised(m, x, window(60 * s->width, 1, 1), 1, dlc_hard_swish);
    x = dlc_hard_swish(block_linear(m, block_mean(x), 80 * s->width));
    return block_linear(m, x, s->classes);
}

/* ---- U-Net (Ronneberger et al. 2015), with padding, batch normalisation and nearest pixels on the way up -------------- */

static dlc_value twice(model *m, dlc_value x, int64_t channels) {
    for (int i = 0; i < 2; i++) x = block_normalised(m, x, window(channels, 3, 1), 1, dlc_relu);
    return x;
}

static dlc_value unet_level(model *m, dlc_value x, int level) {
    const model_sizes *s = model_sizes_of(m);
    const int64_t channels = s->width << level;
    dlc_value across = twice(m, x, channels);
    if (level == s->layers) return across;
    dlc_value up = block_nearest(unet_level(m, halved(across), level + 1), across);
    up = block_normalised(m, up, window(channels, 3, 1), 1, dlc_relu);
    return twice(m, joined(across, up), channels);
}

dlc_value model_unet(model *m, dlc_value image, dlc_value none) {
    (void)none;
    return block_convolution(m, unet_level(m, image, 0), window(model_sizes_of(m)->classes, 1, 1));
}

/* ---- a detector as YOLOv5 (Jocher 2020) with spatial pyramid pooling (He et al. 2014) ---------------------------------- */

static dlc_value silu(model *m, dlc_value x, int64_t channels, int64_t size, int64_t stride) {
    return block_normalised(m, x, window(channels, size, stride), 1, dlc_silu);
}

/* Bottlenecks beside a shortcut (Wang et al. 2020). */
static dlc_value partial(model *m, dlc_value x, int64_t channels, int count, bool adds) {
    dlc_value y = silu(m, x, channels / 2, 1, 1);
    for (int i = 0; i < count; i++) {
        dlc_value inner = silu(m, y, channels / 2, 1, 1);
        inner = silu(m, inner, channels / 2, 3, 1);
        y = adds ? dlc_add(y, inner) : inner;
    }
    return silu(m, joined(y, silu(m, x, channels / 2, 1, 1)), channels, 1, 1);
}

static dlc_value pyramid(model *m, dlc_value x, int64_t channels) {
    dlc_value part[4] = {silu(m, x, channels / 2, 1, 1)};
    for (int i = 1; i < 4; i++) {
        const int64_t size[] = {1 + 4 * i, 1 + 4 * i}, pad[] = {2 * i, 2 * i}, one[] = {1, 1};
        dlc_max_pool_options o = DLC_MAX_POOL_OPTIONS_INIT;
        o.stride_count = o.low_count = o.high_count = 2;
        o.stride = one, o.low = o.high = pad;
        part[i] = dlc_max_pool_with(part[0], 2, size, &o);
    }
    return silu(m, dlc_concat(4, part, 1), channels, 1, 1);
}

static dlc_value last_part(dlc_value x, int64_t from, int64_t to) {
    dlc_dim start[5] = {{0, NULL}}, stop[5];
    for (int d = 0; d < 4; d++) stop[d] = dlc_value_dim(x, d);
    start[4].value = from, stop[4] = (dlc_dim){to, NULL};
    return dlc_slice(x, 5, start, 5, stop);
}

/* [height, width, 2]: column and row of each cell. */
static dlc_value cells(model *m, dlc_dim height, dlc_dim width) {
    const dlc_dim shape[] = {height, width, {1, NULL}};
    dlc_value column = dlc_iota(model_target(m), model_dtype(m), 3, shape, 1);
    return dlc_concat(2, (dlc_value[]){column, dlc_iota(model_target(m), model_dtype(m), 3, shape, 0)}, 2);
}

static dlc_value scaled(model *m, dlc_value x, double factor, double offset) {
    dlc_value a = dlc_scalar(model_target(m), model_dtype(m), factor);
    return dlc_add(dlc_mul(x, a), dlc_scalar(model_target(m), model_dtype(m), offset));
}

/* Boxes [n, 3 height width, 5 + classes] in pixels: centre, size, whether there is one, classes. */
static dlc_value boxes(model *m, dlc_value x, int64_t stride) {
    const int64_t numbers = 5 + model_sizes_of(m)->classes;
    const dlc_dim n = dlc_value_dim(x, 0), height = dlc_value_dim(x, 2), width = dlc_value_dim(x, 3), three = {3, NULL};
    x = block_convolution(m, x, window(3 * numbers, 1, 1));
    x = dlc_reshape(x, 5, (dlc_dim[]){n, three, {numbers, NULL}, height, width});
    x = dlc_logistic(dlc_transpose(x, 5, (int64_t[]){0, 1, 3, 4, 2}));
    const double step = (double)stride;
    dlc_value centre = dlc_add(scaled(m, last_part(x, 0, 2), 2, -0.5), cells(m, height, width));
    dlc_value size = scaled(m, last_part(x, 2, 4), 2, 0);
    dlc_value anchors = model_weights_next(m, 4, (int64_t[]){3, 1, 1, 2}, step, 8 * step);
    dlc_value part[] = {scaled(m, centre, step, 0), dlc_mul(dlc_mul(size, size), anchors), last_part(x, 4, numbers)};
    char count[256];
    snprintf(count, sizeof count, "3*(%s)*(%s)", height.name ? height.name : "1", width.name ? width.name : "1");
    const dlc_dim all = {3 * height.value * width.value, height.name || width.name ? count : NULL};
    return dlc_reshape(dlc_concat(3, part, 4), 3, (dlc_dim[]){n, all, {numbers, NULL}});
}

dlc_value model_yolo(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    const int64_t w = s->width;
    (void)none;
    dlc_value x = partial(m, silu(m, silu(m, image, w, 6, 2), 2 * w, 3, 2), 2 * w, s->blocks[0], true);
    dlc_value fine = partial(m, silu(m, x, 4 * w, 3, 2), 4 * w, s->blocks[1], true);
    dlc_value middle = partial(m, silu(m, fine, 8 * w, 3, 2), 8 * w, s->blocks[2], true);
    dlc_value coarse = partial(m, silu(m, middle, 16 * w, 3, 2), 16 * w, s->blocks[3], true);
    dlc_value down_coarse = silu(m, pyramid(m, coarse, 16 * w), 8 * w, 1, 1);
    x = partial(m, joined(block_nearest(down_coarse, middle), middle), 8 * w, 1, false);
    dlc_value down_middle = silu(m, x, 4 * w, 1, 1);
    fine = partial(m, joined(block_nearest(down_middle, fine), fine), 4 * w, 1, false);
    middle = partial(m, joined(silu(m, fine, 4 * w, 3, 2), down_middle), 8 * w, 1, false);
    coarse = partial(m, joined(silu(m, middle, 8 * w, 3, 2), down_coarse), 16 * w, 1, false);
    dlc_value found[] = {boxes(m, fine, 8), DLC_NONE, DLC_NONE};
    found[1] = boxes(m, middle, 16);
    found[2] = boxes(m, coarse, 32);
    return dlc_concat(3, found, 1);
}

/* ---- transformers ---------------------------------------------------------------------------------------------------------- */

static dlc_value transformed(model *m, dlc_value x, bool causal) {
    for (int i = 0; i < model_sizes_of(m)->layers; i++) x = block_transformer(m, x, i, causal);
    return block_layer_norm(m, x);
}

/* Dosovitskiy et al. 2020; `width` is the side of a patch. */
dlc_value model_vit(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    const dlc_dim n = dlc_value_dim(image, 0), hidden = {s->hidden, NULL}, zero = {0, NULL}, one = {1, NULL};
    const int64_t patches = dlc_value_dim(image, 2).value / s->width * (dlc_value_dim(image, 3).value / s->width);
    (void)none;
    dlc_value x = block_convolution(
        m, image, (block_window){.channels = s->hidden, .size = s->width, .stride = s->width, .unpadded = true});
    x = dlc_transpose(dlc_reshape(x, 3, (dlc_dim[]){n, hidden, {patches, NULL}}), 3, (int64_t[]){0, 2, 1});
    dlc_value first = model_weights_next(m, 3, (int64_t[]){1, 1, s->hidden}, -1, 1);
    first = dlc_broadcast(first, 3, (dlc_dim[]){n, one, hidden}, 3, (int64_t[]){0, 1, 2});
    x = transformed(m, block_positions(m, joined(first, x), patches + 1), false);
    x = dlc_slice(x, 3, (dlc_dim[]){zero, zero, zero}, 3, (dlc_dim[]){n, one, hidden});
    return block_linear(m, dlc_reshape(x, 2, (dlc_dim[]){n, hidden}), s->classes);
}

/* Radford et al. 2019: logits of all tokens, by the table of words. */
dlc_value model_gpt(model *m, dlc_value ids, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value words = model_weights_next(m, 2, (int64_t[]){s->vocabulary, s->hidden}, -0.1, 0.1);
    dlc_value x = transformed(m, block_positions(m, dlc_embedding(words, ids), s->positions), true);
    return dlc_linear_with(x, words, DLC_NONE, &(dlc_linear_options){sizeof(dlc_linear_options), .transposed = true});
}

/* The encoder of Radford et al. 2022. */
dlc_value model_whisper(model *m, dlc_value mel, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value x = dlc_gelu(block_convolution(m, mel, window(s->hidden, 3, 1)));
    x = dlc_gelu(block_convolution(m, x, window(s->hidden, 3, 2)));
    return transformed(m, block_positions(m, dlc_transpose(x, 3, (int64_t[]){0, 2, 1}), s->positions), false);
}

/* ---- networks that no library is tuned for ----------------------------------------------------------------------------------- */

/* Features in two resolutions (Chen et al. 2019). */
typedef struct octave {
    dlc_value high, low;
} octave;

static octave octave_layer(model *m, octave x, int64_t channels, bool activated) {
    const block_window w = window(channels / 2, 3, 1);
    const double gain = activated ? 0.7 : 0.4;
    dlc_value high = block_normalised(m, x.high, w, gain, NULL), low = block_normalised(m, x.low, w, gain, NULL);
    dlc_value up = block_nearest(block_normalised(m, x.low, w, gain, NULL), high);
    dlc_value down = block_normalised(m, dlc_average_pool(x.high, 2, two), w, gain, NULL);
    high = dlc_add(high, up), low = dlc_add(low, down);
    return activated ? (octave){dlc_relu(high), dlc_relu(low)} : (octave){high, low};
}

static octave octave_block(model *m, octave x, int64_t channels) {
    if (2 * dlc_value_dim(x.high, 1).value != channels)
        x = octave_layer(m, (octave){halved(x.high), halved(x.low)}, channels, true);
    octave y = octave_layer(m, octave_layer(m, x, channels, true), channels, false);
    return (octave){dlc_relu(dlc_add(x.high, y.high)), dlc_relu(dlc_add(x.low, y.low))};
}

dlc_value model_octave(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value stem = block_normalised(m, image, window(s->width / 2, 7, 2), 1, dlc_relu);
    octave x = {halved(stem), halved(halved(stem))};
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < s->blocks[stage]; block++) x = octave_block(m, x, s->width << stage);
    return block_linear(m, joined(block_mean(x.high), block_mean(x.low)), s->classes);
}

/* Residual convolutions whose channels are no multiple of anything, of images of any size. */
dlc_value model_odd(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value x = block_normalised(m, image, window(s->width, 5, 2), 1, dlc_relu);
    for (int i = 0; i < s->layers; i++) {
        const int64_t channels = s->width + 18 * i;
        x = block_normalised(m, x, window(channels, 3, i ? 2 : 1), 1, dlc_relu);
        dlc_value y = block_normalised(m, x, window(channels, 3, 1), 1, dlc_relu);
        x = dlc_relu(dlc_add(x, block_normalised(m, y, window(channels, 3, 1), 0.5, NULL)));
    }
    return block_linear(m, block_mean(x), s->classes);
}

/* Gated convolutions of sound, wider apart from layer to layer (van den Oord et al. 2016), not causal. */
dlc_value model_wavenet(model *m, dlc_value sound, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value x = block_convolution(m, sound, window(s->width, 1, 1)), sum = DLC_NONE;
    for (int i = 0; i < s->layers; i++) {
        const block_window w = {.channels = s->width, .size = 3, .dilation = (int64_t)1 << i % 10};
        dlc_value value = dlc_tanh(block_convolution(m, x, w));
        dlc_value y = dlc_mul(value, dlc_logistic(block_convolution(m, x, w)));
        dlc_value skip = block_convolution(m, y, window(s->width, 1, 1));
        sum = i ? dlc_add(sum, skip) : skip;
        x = dlc_add(x, block_convolution(m, y, window(s->width, 1, 1)));
    }
    x = dlc_relu(block_convolution(m, dlc_relu(sum), window(s->width, 1, 1)));
    return block_convolution(m, x, window(s->classes, 1, 1));
}

/* Windows whose elements lie where the image decides (Dai et al. 2017). */
static dlc_value deformed(model *m, dlc_value x, int64_t channels) {
    const int64_t in = dlc_value_dim(x, 1).value, one[] = {1, 1};
    dlc_value offset = block_convolution(m, x, window(18, 3, 1));
    dlc_deformable_convolution_options o = DLC_DEFORMABLE_CONVOLUTION_OPTIONS_INIT;
    o.low_count = o.high_count = 2;
    o.low = o.high = one;
    const double limit = 0.8 / (double)in;
    dlc_value w = model_weights_next(m, 4, (int64_t[]){channels, in, 3, 3}, -limit, limit);
    return dlc_relu(dlc_deformable_convolution_with(x, w, offset, DLC_NONE, DLC_NONE, &o));
}

dlc_value model_deformable(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    (void)none;
    dlc_value x = block_normalised(m, image, window(s->width, 3, 2), 1, dlc_relu);
    x = block_normalised(m, x, window(2 * s->width, 3, 2), 1, dlc_relu);
    for (int i = 0; i < s->layers; i++) x = deformed(m, x, 2 * s->width);
    return block_linear(m, block_mean(x), s->classes);
}
