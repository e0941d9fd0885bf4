/* What control flow needs of the importer's frame: names and nodes of graphs inside of the one at hand. */
#ifndef GRAPH_ONNX_CONTROL_H
#define GRAPH_ONNX_CONTROL_H

#include "graph/onnx/import.h"

bool onnx_same(onnx_bytes a, onnx_bytes b);
/* In the scope at hand and those around it; NULL: there is none. */
onnx_value *onnx_find_value(const onnx_import *im, onnx_bytes name);
/* A new value of the scope at hand; raises where it has one of that name. */
onnx_value *onnx_define(onnx_import *im, onnx_bytes name);
/* The value as a tensor of the graph at hand. */
graph_id onnx_id_of(onnx_import *im, onnx_value *value);
void onnx_import_nodes(onnx_import *im, const onnx_node *nodes, size_t count);

#endif
