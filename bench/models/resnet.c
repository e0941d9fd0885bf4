/* ResNet with bottleneck blocks: 7x7 stem, pool, four stages, mean, classes. Batch normalisation stays an operator of the graph. */
#include "bench/models/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static dlc_value convolution(dlc_value x, dlc_value w, int64_t stride) {
    const int64_t window = dlc_value_dim(w, 2).value, strides[] = {stride, stride}, pads[] = {window / 2, window / 2};
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = strides;
    options.low = options.high = pads;
    return dlc_convolution_with(x, w, &options);
}

/* He et al. 2015b: keeps the variance through relu. */
static double limit_of(const int64_t *shape) {
    return sqrt(6.0 / (double)(shape[1] * shape[2] * shape[3]));
}

/* `gain`: about what the scales are. */
static dlc_value normalised(model *m, dlc_value x, double gain, const char *name) {
    const int64_t c[] = {dlc_value_dim(x, 1).value};
    dlc_value scale = model_constant(m, 1, c, 0.9 * gain, 1.1 * gain, "%s.weight", name);
    dlc_value bias = model_constant(m, 1, c, -0.1, 0.1, "%s.bias", name);
    dlc_value mean = model_constant(m, 1, c, -0.1, 0.1, "%s.running_mean", name);
    dlc_value variance = model_constant(m, 1, c, 0.8, 1.25, "%s.running_var", name);
    return dlc_batch_norm(x, scale, bias, mean, variance, 1);
}

/* Both of bytes: the normalisation is part of weights and bias, as it is when a quantiser sees the network. */
static dlc_value narrow_layer(model *m, dlc_value x, const int64_t *shape, int64_t stride, double gain,
                              const char *conv, const char *bn) {
    const int64_t c[] = {shape[0], 1, 1}, each = shape[1] * shape[2] * shape[3];
    const float *w = model_numbers(m, 4, shape, -limit_of(shape), limit_of(shape), "%s.weight", conv);
    const float *scale = model_numbers(m, 1, c, 0.9 * gain, 1.1 * gain, "%s.weight", bn);
    const float *bias = model_numbers(m, 1, c, -0.1, 0.1, "%s.bias", bn);
    const float *mean = model_numbers(m, 1, c, -0.1, 0.1, "%s.running_mean", bn);
    const float *variance = model_numbers(m, 1, c, 0.8, 1.25, "%s.running_var", bn);
    float *folded = malloc((size_t)(c[0] * each) * sizeof *folded),
          *shift = model_keep(m, (size_t)c[0] * sizeof *shift);
    dlc_value y = DLC_NONE;
    if (folded && shift && w && scale && bias && mean && variance) {
        for (int64_t i = 0; i < c[0] * each; i++)
            folded[i] = w[i] * scale[i / each] / sqrtf(variance[i / each] + 1e-5f);
        for (int64_t i = 0; i < c[0]; i++) shift[i] = bias[i] - mean[i] * scale[i] / sqrtf(variance[i] + 1e-5f);
        y = convolution(x, model_narrow(m, 4, shape, true, folded), stride);
        y = dlc_add(y, dlc_constant_borrow(model_target(m), DLC_F32, 3, c, shift));
    }
    free(folded);
    return y;
}

/* A layer `part` of block `at`: convolution, normalisation. */
static dlc_value layer(model *m, dlc_value x, int64_t channels, int64_t window, int64_t stride, double gain,
                       const char *at, const char *conv, const char *bn) {
    char weight[64], norm[64];
    const int64_t shape[] = {channels, dlc_value_dim(x, 1).value, window, window};
    snprintf(weight, sizeof weight, "%s%s", at, conv);
    snprintf(norm, sizeof norm, "%s%s", at, bn);
    if (model_is_quantised(m)) return narrow_layer(m, x, shape, stride, gain, weight, norm);
    dlc_value w = model_constant(m, 4, shape, -limit_of(shape), limit_of(shape), "%s.weight", weight);
    return normalised(m, convolution(x, w, stride), gain, norm);
}

static dlc_value bottleneck(model *m, dlc_value x, int64_t width, int64_t stride, const char *at) {
    const int64_t channels = 4 * width;
    dlc_value y = model_activation(m, dlc_relu(layer(m, x, width, 1, 1, 1, at, "conv1", "bn1")));
    y = model_activation(m, dlc_relu(layer(m, y, width, 3, stride, 1, at, "conv2", "bn2")));
    y = model_activation(m, layer(m, y, channels, 1, 1, 0.5, at, "conv3", "bn3")); /* sums of blocks grow slowly */
    if (stride != 1 || dlc_value_dim(x, 1).value != channels)
        x = model_activation(m, layer(m, x, channels, 1, stride, 1, at, "downsample.0", "downsample.1"));
    return model_activation(m, dlc_relu(dlc_add(y, x)));
}

dlc_value model_resnet(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    const int64_t one[] = {1, 1}, two[] = {2, 2};
    dlc_max_pool_options half = DLC_MAX_POOL_OPTIONS_INIT;
    half.stride_count = half.low_count = half.high_count = 2;
    half.stride = two;
    half.low = half.high = one;
    (void)none;

    dlc_value x = dlc_relu(layer(m, model_activation(m, image), s->width, 7, 2, 1, "", "conv1", "bn1"));
    x = model_activation(m, x);
    x = model_activation_like(m, dlc_max_pool_with(x, 2, (int64_t[]){3, 3}, &half), x);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < s->blocks[stage]; block++) {
            char at[32];
            snprintf(at, sizeof at, "layer%d.%d.", stage + 1, block);
            x = bottleneck(m, x, s->width << stage, stage && !block ? 2 : 1, at);
        }
    x = model_activation(m, dlc_mean(x, 2, (int64_t[]){2, 3})); /* [n, channels] */
    const int64_t features = dlc_value_dim(x, 1).value;
    const double limit = sqrt(3.0 / (double)features);
    const int64_t shape[] = {s->classes, features};
    dlc_value w = model_is_quantised(m)
                      ? model_narrow(m, 2, shape, true, model_numbers(m, 2, shape, -limit, limit, "fc.weight"))
                      : model_constant(m, 2, shape, -limit, limit, "fc.weight");
    return dlc_linear_with(x, w, model_constant(m, 1, &s->classes, -limit, limit, "fc.bias"),
                           &(dlc_linear_options){sizeof(dlc_linear_options), .transposed = true});
}
