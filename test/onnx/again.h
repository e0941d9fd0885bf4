/* Models exported and imported again. */
#ifndef TEST_ONNX_AGAIN_H
#define TEST_ONNX_AGAIN_H

#include <dlc/onnx.h>

enum { AGAIN_MOST = 64 };

/* Results of a model's graph, and of that graph written as a model and imported again. */
typedef struct again_results {
    dlc_output_slot first[AGAIN_MOST], second[AGAIN_MOST];
    int count;
} again_results;

/* Runs both on the model's inputs; small inputs that decide shapes become constants. 0: success; -1: libdlc does not import the model as
 * one graph, or does not export that graph; 1: another error; `why` tells both. The caller frees the results. */
int again_run(dlc_context *context, dlc_onnx_model *model, const DLTensor *const *inputs, int count,
              again_results *results, char *why, size_t room);
bool again_same_bits(const DLTensor *a, const DLTensor *b);
void again_free(again_results *results);

#endif
