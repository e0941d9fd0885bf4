/* Networks built with the public API, as a host would. Weights are random, of a fixed seed, scaled so that values keep their variance. The
 * sizes of a model are a row of a table (models.c); its structure is a function: ResNet (He et al. 2015, with the stride in the 3x3
 * convolution) and BERT (Devlin et al. 2018) with PyTorch's names of weights (resnet.c, bert.c), and others of shared blocks (blocks.c,
 * networks.c). Batch and number of tokens, of some also height and width, are symbols of the graph. */
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
    /* builds the network's graph; mask: of models of sentences */
    dlc_value (*build)(model *m, dlc_value x, dlc_value mask);
    /* The first input. A symbol's value is its usual size. */
    const char *input;
    dlc_dtype dtype;
    int rank;
    dlc_dim dims[4];
    /* A second input, "mask" bool, of the same dimensions: true: a token, not padding. */
    bool masked;
    /* convolutional networks: channels of the first stage; classes */
    int64_t width, classes;
    /* number of blocks in each stage */
    int blocks[4];
    /* transformers; vocabulary 0: the input is no words */
    int64_t vocabulary, positions, hidden, heads, inner;
    int layers;
    /* Keys and values of earlier tokens are inputs and outputs. */
    bool cached;
    /* Products are of bytes. */
    bool quantised;
} model_sizes;

enum { MODEL_MOST_INPUTS = 32 };

typedef struct model_input {
    char name[40];
    dlc_dtype dtype;
    int rank;
    dlc_dim dims[4];
} model_input;

/* quantise.c: how a network of bytes (model_sizes.quantised) is built: of floats, so, but also with the ranges of all values that will be
 * bytes as output `ranges`, or of bytes by these ranges, with bytes as the result. */
typedef enum model_form { MODEL_FLOAT, MODEL_OBSERVED, MODEL_QUANTISED } model_form;

/* A name of the table in models.c; those with "-small" run within seconds even in the interpreter. NULL: unknown name, or no memory. */
DLC_API model *model_open(const char *name);
/* The names of the table, in order; NULL after the last one. */
DLC_API const char *model_name(int number);
DLC_API void model_close(model *m);
/* Makes graphs that are built from now on have attention as products and softmax, which is how exporters write it, instead of the
 * operator. */
DLC_API void model_spell_attention(model *m);
DLC_API const model_sizes *model_sizes_of(const model *m);
/* The form of graphs that are built from now on. */
DLC_API void model_set_form(model *m, model_form form);
/* Copies the result of output `ranges`, [count][2]. False: no memory. */
DLC_API bool model_set_ranges(model *m, int count, const float *ranges);
/* The inputs of the graph that was built last, in order. */
DLC_API int model_input_count(const model *m);
DLC_API const model_input *model_input_at(const model *m, int number);
/* Inputs: model_input_at. Output "result" f32, "logits" of networks with caches, u8 of quantised ones. dtype: of weights and all intermediate values. Weights are borrowed: the model must outlive
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

/* The same under a number as its name: the weights of a graph in the order of construction. */
dlc_value model_weights_next(model *m, int rank, const int64_t *shape, double low, double high);

bool model_spells_attention(const model *m);

/* `added` [n, heads, tokens, width] behind the cache `what` of the layer whose keys or values are added: "past.LAYER.WHAT" is an input, the result
 * an output "present.LAYER.WHAT". Of a network without caches: `added`. */
dlc_value model_cache(model *m, int layer, const char *what, dlc_value added);
/* The symbol of the tokens in caches; 0 of a network without. */
dlc_dim model_past(const model *m);

/* ---- of bytes: quantise.c */
bool model_is_quantised(const model *m);
/* x in the network's form: as dequantised bytes, with a range of its own, or x itself. Called for what products read and make, once for
 * each value. */
dlc_value model_activation(model *m, dlc_value x);
/* The same with the range of `like`, of which x is a selection. */
dlc_value model_activation_like(model *m, dlc_value x, dlc_value like);
/* Numbers of a weight of this name, which gets no value in the graph; NULL: no memory. */
const float *model_numbers(model *m, int rank, const int64_t *shape, double low, double high, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* A value: the numbers as dequantised i8, with a scale for each channel along the first or the last axis. The numbers are copied. */
dlc_value model_narrow(model *m, int rank, const int64_t *shape, bool first, const float *numbers);
/* Memory that is freed with the model, for what graphs borrow; NULL: there is none. */
void *model_keep(model *m, size_t bytes);

dlc_value model_resnet(model *m, dlc_value image, dlc_value none);
dlc_value model_bert(model *m, dlc_value ids, dlc_value mask);
/* networks.c */
dlc_value model_mobilenet(model *m, dlc_value image, dlc_value none);
dlc_value model_unet(model *m, dlc_value image, dlc_value none);
dlc_value model_yolo(model *m, dlc_value image, dlc_value none);
dlc_value model_vit(model *m, dlc_value image, dlc_value none);
dlc_value model_gpt(model *m, dlc_value ids, dlc_value none);
dlc_value model_whisper(model *m, dlc_value mel, dlc_value none);
dlc_value model_octave(model *m, dlc_value image, dlc_value none);
dlc_value model_odd(model *m, dlc_value image, dlc_value none);
dlc_value model_wavenet(model *m, dlc_value sound, dlc_value none);
dlc_value model_deformable(model *m, dlc_value image, dlc_value none);

#endif
