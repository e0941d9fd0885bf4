/* Network, [n, 1, 8, 8] to the scores of ten classes: convolution 1->16, ReLU; 16->32, ReLU, maximum of 2x2; 32->32, ReLU; 512->64, ReLU; 64->10. */
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
        for (int i = 0; i < DIGITS_PIXELS; i++) {
            float *pixel = &d->pixels[row][i];
            good = good && fscanf(file, "%f,", pixel) == 1 && *pixel >= 0 && *pixel <= 16;
        }
        int *label = &d->label[row];
        good = good && fscanf(file, "%d", label) == 1 && *label >= 0 && *label < DIGITS_CLASSES;
    }
    if (file) fclose(file);
    if (!good)
        fprintf(stderr, "%s: not found, or not %d rows of %d pixels (0 to 16) and a label (0 to 9)\n", path,
                DIGITS_ROWS, DIGITS_PIXELS);
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

typedef struct layers {
    digits_weight *weight;
    void *user;
} layers;

static dlc_value weight_of(const layers *l, const char *layer, const char *part, int rank, const int64_t *shape) {
    char name[32];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    return l->weight(l->user, name, rank, shape);
}

/* 3x3, padded by 1; bias [out] seen as [out, 1, 1] so that it broadcasts over the pixels. */
static dlc_value convolution(const layers *l, dlc_value x, const char *layer, int64_t in, int64_t out) {
    dlc_value weight = weight_of(l, layer, "weight", 4, (int64_t[]){out, in, 3, 3});
    dlc_value bias = weight_of(l, layer, "bias", 1, &out);
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.low_count = options.high_count = 2;
    options.low = options.high = (const int64_t[]){1, 1};
    dlc_dim per_channel[] = {{out, NULL}, {1, NULL}, {1, NULL}};
    return dlc_relu(dlc_add(dlc_convolution_with(x, weight, &options), dlc_reshape(bias, 3, per_channel)));
}

static dlc_value dense(const layers *l, dlc_value x, const char *layer, int64_t in, int64_t out) {
    dlc_value weight = weight_of(l, layer, "weight", 2, (int64_t[]){in, out});
    return dlc_linear(x, weight, weight_of(l, layer, "bias", 1, &out));
}

dlc_value digits_network(dlc_graph *graph, dlc_value pixels, digits_weight *weight, void *user) {
    const layers l = {weight, user};
    dlc_max_pool_options every_other = DLC_MAX_POOL_OPTIONS_INIT;
    every_other.stride_count = 2;
    every_other.stride = (const int64_t[]){2, 2};

    dlc_value x = dlc_div(pixels, dlc_scalar(graph, DLC_F32, 16));
    x = convolution(&l, x, "conv1", 1, 16);                             /* [n, 16, 8, 8] */
    x = convolution(&l, x, "conv2", 16, 32);                            /* [n, 32, 8, 8] */
    x = dlc_max_pool_with(x, 2, (const int64_t[]){2, 2}, &every_other); /* [n, 32, 4, 4] */
    x = convolution(&l, x, "conv3", 32, 32);
    x = dlc_reshape(x, 2, (const dlc_dim[]){dlc_value_dim(x, 0), {512, NULL}});
    x = dlc_relu(dense(&l, x, "dense1", 512, 64)); /* [n, 64] */
    return dense(&l, x, "dense2", 64, DIGITS_CLASSES);
}

typedef struct opened {
    dlc_graph *graph;
    dlc_file *file;
} opened;

static dlc_value constant(void *user, const char *name, int rank, const int64_t *shape) {
    const opened *o = user;
    (void)rank, (void)shape;                           /* the file says them */
    return dlc_file_constant(o->graph, o->file, name); /* used in place in the mapped file */
}

dlc_graph *digits_graph(dlc_context *context, const digits *d) {
    dlc_graph *graph;
    if (dlc_graph_create(context, &graph) != DLC_OK) return NULL;
    dlc_value pixels = dlc_input(graph, "pixels", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
    dlc_value scores = digits_network(graph, pixels, constant, &(opened){graph, d->weights});
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
