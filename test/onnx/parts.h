/* Facts of a model, read from its bytes without the library's reader. */
#ifndef TEST_ONNX_PARTS_H
#define TEST_ONNX_PARTS_H

#include "onnx/encode.h"

/* The operator of a model whose main graph is one node, with its domain, unless that is the standard's; "": there are several. */
void parts_operator(const void *model, size_t size, char *text, size_t room);
/* The model with each numeric size of its inputs replaced by a name of its own. *freed: how many there were. */
message parts_free_sizes(const void *model, size_t size, int *freed);

#endif
