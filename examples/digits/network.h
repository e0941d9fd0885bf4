/* The digits: data, weights, and the network as a graph. Separate from the program since a test and the training build the same network. */
#ifndef DIGITS_NETWORK_H
#define DIGITS_NETWORK_H

#include <dlc/files.h>

enum { DIGITS_ROWS = 1797, DIGITS_HELD_OUT = 450, DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

typedef struct digits {
    /* 0..16; the last DIGITS_HELD_OUT rows were not trained on */
    float pixels[DIGITS_ROWS][DIGITS_PIXELS];
    int label[DIGITS_ROWS];
    /* "conv1.weight" ... "dense2.bias" */
    dlc_file *weights;
} digits;

/* Reads digits.csv from `folder`. NULL, and a line on stderr, on failure. */
digits *digits_load(const char *folder);
/* Opens digits_weights.safetensors in the folder, for graphs of the context, replacing an open file. A failure is reported on stderr. */
dlc_status digits_open(dlc_context *context, digits *d, const char *folder);
void digits_free(digits *d); /* before the context is destroyed */

/* A weight of the network: "conv1.weight" ... "dense2.bias", f32. Weights of convolutions are [out, in, 3, 3], of dense layers [in, out], biases [out]. */
typedef dlc_value digits_weight(void *user, const char *name, int rank, const int64_t *shape);

/* pixels [n, 1, 8, 8] as in digits.csv -> the scores [n, 10] of the classes */
dlc_value digits_network(dlc_graph *graph, dlc_value pixels, digits_weight *weight, void *user);

/* The whole graph: input "pixels", outputs "class" [n] and "scores" [n, 10]. Its weights are borrowed from the file: `d` outlives the graph and its
 * programs. NULL: the context has no memory for a graph. */
dlc_graph *digits_graph(dlc_context *context, const digits *d);
/* A failure is reported on stderr. */
dlc_status digits_compile(dlc_context *context, const digits *d, dlc_program **program);

#endif
