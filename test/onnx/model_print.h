/* A canonical text of a model or tensor: all but documentation strings, data as a checksum of their bytes. oracle.py makes the same text
 * of what ONNX's own reader gives. */
#ifndef TEST_ONNX_MODEL_PRINT_H
#define TEST_ONNX_MODEL_PRINT_H

#include "graph/onnx/model.h"

void print_model(lib_text *text, const onnx_model *model);
void print_tensor(lib_text *text, const onnx_tensor *tensor);

#endif
