/* The struct of a model, for models.c and quantise.c. */
#ifndef BENCH_MODELS_INTERNAL_H
#define BENCH_MODELS_INTERNAL_H

#include "bench/models/models.h"

enum { MODEL_MOST_ACTIVATIONS = 512 };

/* A value that goes through bytes. */
typedef struct model_activation_row {
    dlc_value from, to;
    /* MODEL_OBSERVED: least and greatest number */
    dlc_value range;
    float scale;
    uint8_t zero_point;
} model_activation_row;

struct model {
    const model_sizes *sizes;
    model_tensor *weights;
    int count, room;
    dlc_graph *graph;
    dlc_dtype dtype;
    /* Number of weights with numbers as names in the graph under construction. */
    int numbered;
    bool spells;
    /* Inputs of the graph that was built last. */
    model_input inputs[MODEL_MOST_INPUTS];
    int input_count;
    /* quantise.c */
    model_form form;
    model_activation_row activations[MODEL_MOST_ACTIVATIONS];
    int activation_count;
    /* [range_count][2] */
    float *ranges;
    int range_count;
    /* memory that graphs borrow */
    void **kept;
    int kept_count;
};

/* Gives the ranges as an output. */
void model_output_ranges(model *m);
/* The network's result in its form: MODEL_QUANTISED: u8. */
dlc_value model_result(model *m, dlc_value x);

#endif
