/* Two networks built with the public API, as a host would: ResNet-50 (He et al. 2015, with the stride in the 3x3 convolution) and
 * BERT-base (Devlin et al. 2018). Weights are random, of a fixed seed, under PyTorch's names. The
 * sizes of a model are a row of a table (models.c); its structure is a function (resnet.c, bert.c). Batch and
 * number of tokens are symbols of the graph. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include <dlc/dlc.h>

typedef struct model model;

/* f32, compact, row-major */
typedef struct model_tensor {
    char name[64];
    int rank;
    int64_t shape[4];
    float *data;
} model_tensor;

typedef struct model_sizes {
    const char *name;
    /* mask: of a model of tokens */
    dlc_value (*build)(model *m, dlc_value x, dlc_value mask);
    /* of images: square, channels of the first stage */
    int64_t image, width, classes;
    /* in each stage */
    int blocks[4];
    /* of tokens */
    int64_t vocabulary, positions, hidden, heads, inner;
    int layers;
} model_sizes;

/* "resnet50", "bert-base", and "resnet-small", "bert-small", which even the interpreter runs in seconds. NULL: unknown name, or no
 * memory. */
DLC_API model *model_open(const char *name);
DLC_API void model_close(model *m);
DLC_API const model_sizes *model_sizes_of(const model *m);
/* Inputs: image f32 [n, 3, image, image], or ids i64 [n, tokens] and mask bool [n, tokens] (true: a token, not padding). Output "result"
 * f32: [n, classes], or [n, tokens, hidden]. dtype: of weights and all intermediate values. Weights are borrowed: the model must outlive
 * graph and programs. The caller destroys the graph; its status holds the first error. NULL: no memory. */
DLC_API dlc_graph *model_graph(model *m, dlc_context *context, dlc_dtype dtype);
/* Number of weights in the graphs built so far. */
DLC_API int model_weight_count(const model *m);
DLC_API const model_tensor *model_weight(const model *m, int number);

/* ---- for the builders: the graph under construction, and a weight of it, spread evenly over [low, high) */
dlc_graph *model_target(const model *m);
dlc_dtype model_dtype(const model *m);
dlc_value model_constant(model *m, int rank, const int64_t *shape, double low, double high, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

dlc_value model_resnet(model *m, dlc_value image, dlc_value none);
dlc_value model_bert(model *m, dlc_value ids, dlc_value mask);

#endif
