/* A decoder like GPT-2, with random weights, as a graph. Separate from the program so that a test builds the same one. */
#ifndef GENERATE_DECODER_H
#define GENERATE_DECODER_H

#include <dlc/dlc.h>

typedef struct decoder_sizes {
    /* width: of a head; positions: most tokens */
    int layers, heads, width, vocabulary, positions;
} decoder_sizes;

typedef struct decoder {
    decoder_sizes sizes;
    /* the numbers of all weights; graphs borrow them */
    float *numbers;
} decoder;

/* False: no memory. */
bool decoder_make(decoder *d, decoder_sizes sizes);
void decoder_free(decoder *d); /* after its graphs and their programs */

/* Inputs input_ids i64[batch, sequence] and the caches past.N.key, past.N.value f32[batch, heads, past, width] of each layer; outputs the caches with
 * the new tokens, present.N.key and present.N.value, and logits f32[batch, sequence, vocabulary]. */
dlc_status decoder_graph(dlc_context *context, const decoder *d, dlc_graph **graph);

#endif
