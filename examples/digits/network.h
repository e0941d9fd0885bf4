/* The digits: data, weights, and the network as a graph. Apart from the program so that a test builds the same network. */
#ifndef DIGITS_NETWORK_H
#define DIGITS_NETWORK_H

#include <dlc/dlc.h>

enum { DIGITS_ROWS = 1797, DIGITS_HELD_OUT = 450, DIGITS_PIXELS = 64, DIGITS_CLASSES = 10, DIGITS_TENSORS = 10 };

typedef struct digits_tensor {
    char name[32];
    int rank;
    int64_t shape[4];
    float *data; /* compact, row-major; in digits.weight_bytes */
} digits_tensor;

typedef struct digits {
    float pixels[DIGITS_ROWS][DIGITS_PIXELS]; /* 0..16; the last DIGITS_HELD_OUT rows were not trained on */
    int label[DIGITS_ROWS];
    digits_tensor weight[DIGITS_TENSORS];
    char *weight_bytes;
} digits;

/* Reads digits.csv and digits_weights.bin from `folder`. NULL, and a line on stderr, when that fails. */
digits *digits_load(const char *folder);
void digits_free(digits *d);
digits_tensor *digits_weight(digits *d, const char *name);

/* pixels [n, 1, 8, 8] as in the file -> the scores [n, 10] of the classes. The weights are borrowed: `d` must outlive the graph
 * and its programs. */
dlc_value digits_network(dlc_graph *graph, digits *d, dlc_value pixels);

/* All of it: input "pixels", outputs "class" [n] and "scores" [n, 10]. NULL: the context has no memory for a graph. */
dlc_graph *digits_graph(dlc_context *context, digits *d);
/* A failure is told on stderr. */
dlc_status digits_compile(dlc_context *context, digits *d, dlc_program **program);

#endif
