/* What a model consists of, from its bytes, without the library's reader. */
#ifndef TEST_ONNX_PARTS_H
#define TEST_ONNX_PARTS_H

#include "onnx/encode.h"

/* The operator of a model whose main graph is one node, with its domain, unless that is the standard's; "": there are several. */
void parts_operator(const void *model, size_t size, char *text, size_t room);
/* The model with a name for each size of its inputs that is a number, another one for each: *freed of them. */
message parts_free_sizes(const void *model, size_t size, int *freed);

#endif
