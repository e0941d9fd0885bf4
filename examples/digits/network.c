/* The network of digits_train.py. */
#include "network.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- data ---------------------------------------------------------------------------------------------------------- */

static bool read_rows(digits *d, const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/digits.csv", folder);
    FILE *file = fopen(path, "r");
    bool good = file != NULL;
    for (int row = 0; good && row < DIGITS_ROWS; row++) {
        for (int i = 0; i < DIGITS_PIXELS; i++) good = good && fscanf(file, "%f,", &d->pixels[row][i]) == 1;
        good = good && fscanf(file, "%d", &d->label[row]) == 1;
    }
    if (file) fclose(file);
    if (!good)
        fprintf(stderr, "%s: not found, or not %d rows of %d pixels and a label\n", path, DIGITS_ROWS, DIGITS_PIXELS);
    return good;
}

digits *digits_load(const char *folder) {
    digits *d = calloc(1, sizeof *d);
    if (d && read_rows(d, folder)) return d;
    digits_free(d);
    return NULL;
}

dlc_status digits_open(dlc_context *context, digits *d, const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/digits_weights.safetensors", folder);
    dlc_file_destroy(d->weights);
    d->weights = NULL;
    dlc_status status = dlc_file_open(context, path, NULL, &d->weights);
    if (status != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    return status;
}

void digits_free(digits *d) {
    if (d) dlc_file_destroy(d->weights);
    free(d);
}

/* ---- network ------------------------------------------------------------------------------------------------------- */

static dlc_value constant(dlc_graph *graph, const digits *d, const char *layer, const char *part) {
    char name[32];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    return dlc_file_constant(graph, d->weights, name); /* used in place in the mapped file */
}

/* 3x3, padded by 1, weights [out, in, 3, 3]; bias [out] seen as [out, 1, 1] so that it broadcasts over the pixels. */
static dlc_value convolution(dlc_graph *graph, const digits *d, dlc_value x, const char *layer) {
    dlc_value weight = constant(graph, d, layer, "weight");
    dlc_value bias = constant(graph, d, layer, "bias");
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.low_count = options.high_count = 2;
    options.low = options.high = (const int64_t[]){1, 1};
    dlc_dim per_channel[] = {dlc_value_dim(weight, 0), {1, NULL}, {1, NULL}};
    return dlc_relu(dlc_add(dlc_convolution_with(x, weight, &options), dlc_reshape(bias, 3, per_channel)));
}

static dlc_value dense(dlc_graph *graph, const digits *d, dlc_value x, const char *layer) {
    return dlc_linear(x, constant(graph, d, layer, "weight"), constant(graph, d, layer, "bias"));
}

dlc_value digits_network(dlc_graph *graph, const digits *d, dlc_value pixels) {
    dlc_dim n = dlc_value_dim(pixels, 0);
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};

    dlc_value x = dlc_div(pixels, dlc_scalar(graph, DLC_F32, 16));
    x = convolution(graph, d, x, "conv1");                              /* [n, 16, 8, 8] */
    x = convolution(graph, d, x, "conv2");                              /* [n, 32, 8, 8] */
    x = dlc_max_pool_with(x, 2, (const int64_t[]){2, 2}, &every_other); /* [n, 32, 4, 4] */
    x = convolution(graph, d, x, "conv3");
    x = dlc_reshape(x, 2, (const dlc_dim[]){n, {512, NULL}});
    x = dlc_relu(dense(graph, d, x, "dense1")); /* [n, 64] */
    return dense(graph, d, x, "dense2");        /* [n, 10] */
}

dlc_graph *digits_graph(dlc_context *context, const digits *d) {
    dlc_graph *graph;
    if (dlc_graph_create(context, &graph) != DLC_OK) return NULL;
    dlc_value pixels = dlc_input(graph, "pixels", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
    dlc_value scores = digits_network(graph, d, pixels);
    dlc_output(graph, "class", dlc_arg_max(scores, 1));
    dlc_output(graph, "scores", scores);
    return graph;
}

dlc_status digits_compile(dlc_context *context, const digits *d, dlc_program **program) {
    dlc_graph *graph = digits_graph(context, d);
    dlc_status status = dlc_compile(context, graph, NULL, program); /* also reports the first mistake made above */
    if (status != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_graph_destroy(graph);
    return status;
}
