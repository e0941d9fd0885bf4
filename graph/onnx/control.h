/* The importer's interface for control flow: names and nodes of nested graphs. */
#ifndef GRAPH_ONNX_CONTROL_H
#define GRAPH_ONNX_CONTROL_H

#include "graph/onnx/import.h"

bool onnx_same(onnx_bytes a, onnx_bytes b);
/* Looks up a name in the current and enclosing scopes; NULL: none. */
onnx_value *onnx_find_value(const onnx_import *im, onnx_bytes name);
/* Defines a value in the current scope; raises if the name is taken. */
onnx_value *onnx_define(onnx_import *im, onnx_bytes name);
/* The value as a tensor of the current graph. */
graph_id onnx_id_of(onnx_import *im, onnx_value *value);
/* Its elements; NULL: not known. */
const onnx_known *onnx_known_of(onnx_import *im, onnx_value *value);
/* Its elements, which a walk computes if need be; NULL: they are not known. */
const onnx_known *onnx_ask(onnx_import *im, onnx_value *value);
void onnx_import_nodes(onnx_import *im, const onnx_node *nodes, size_t count);

#endif
