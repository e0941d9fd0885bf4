/* ResNet with bottleneck blocks: 7x7 stem, pool, four stages, mean, classes. Batch normalisation stays an operator of the graph. */
#include "bench/models/models.h"

#include <math.h>
#include <stdio.h>

static dlc_value convolution(model *m, dlc_value x, int64_t channels, int64_t window, int64_t stride,
                             const char *name) {
    const int64_t in = dlc_value_dim(x, 1).value, strides[] = {stride, stride}, pads[] = {window / 2, window / 2};
    const double limit =
        sqrt(6.0 / (double)(in * window * window)); /* He et al. 2015b: keeps the variance through relu */
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = strides;
    options.low = options.high = pads;
    dlc_value w = model_constant(m, 4, (int64_t[]){channels, in, window, window}, -limit, limit, "%s.weight", name);
    return dlc_convolution_with(x, w, &options);
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

/* A layer `part` of block `at`: convolution, normalisation. */
static dlc_value layer(model *m, dlc_value x, int64_t channels, int64_t window, int64_t stride, double gain,
                       const char *at, const char *conv, const char *bn) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", at, conv);
    dlc_value y = convolution(m, x, channels, window, stride, name);
    snprintf(name, sizeof name, "%s%s", at, bn);
    return normalised(m, y, gain, name);
}

static dlc_value bottleneck(model *m, dlc_value x, int64_t width, int64_t stride, const char *at) {
    const int64_t channels = 4 * width;
    dlc_value y = dlc_relu(layer(m, x, width, 1, 1, 1, at, "conv1", "bn1"));
    y = dlc_relu(layer(m, y, width, 3, stride, 1, at, "conv2", "bn2"));
    y = layer(m, y, channels, 1, 1, 0.5, at, "conv3", "bn3"); /* sums of blocks grow slowly */
    if (stride != 1 || dlc_value_dim(x, 1).value != channels)
        x = layer(m, x, channels, 1, stride, 1, at, "downsample.0", "downsample.1");
    return dlc_relu(dlc_add(y, x));
}

dlc_value model_resnet(model *m, dlc_value image, dlc_value none) {
    const model_sizes *s = model_sizes_of(m);
    const int64_t one[] = {1, 1}, two[] = {2, 2};
    dlc_max_pool_options half = DLC_MAX_POOL_OPTIONS_INIT;
    half.stride_count = half.low_count = half.high_count = 2;
    half.stride = two;
    half.low = half.high = one;
    (void)none;

    dlc_value x = dlc_relu(layer(m, image, s->width, 7, 2, 1, "", "conv1", "bn1"));
    x = dlc_max_pool_with(x, 2, (int64_t[]){3, 3}, &half);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < s->blocks[stage]; block++) {
            char at[32];
            snprintf(at, sizeof at, "layer%d.%d.", stage + 1, block);
            x = bottleneck(m, x, s->width << stage, stage && !block ? 2 : 1, at);
        }
    x = dlc_mean(x, 2, (int64_t[]){2, 3}); /* [n, channels] */
    const int64_t features = dlc_value_dim(x, 1).value;
    const double limit = sqrt(3.0 / (double)features);
    dlc_value w = model_constant(m, 2, (int64_t[]){s->classes, features}, -limit, limit, "fc.weight");
    return dlc_linear_with(x, w, model_constant(m, 1, &s->classes, -limit, limit, "fc.bias"),
                           &(dlc_linear_options){sizeof(dlc_linear_options), .transposed = true});
}
