/* The importer's interface for control flow: names and nodes of nested graphs. */
#ifndef GRAPH_ONNX_CONTROL_H
#define GRAPH_ONNX_CONTROL_H

#include "graph/onnx/import.h"

bool onnx_same(onnx_bytes a, onnx_bytes b);
/* Terminated; raises for one with NUL inside. */
char *onnx_text_copy(onnx_import *im, onnx_bytes text, const char *what);
/* Looks up a name in the current and enclosing scopes; NULL: none. */
onnx_value *onnx_find_value(const onnx_import *im, onnx_bytes name);
/* Defines a value in the current scope; raises if the name is taken. */
onnx_value *onnx_define(onnx_import *im, onnx_bytes name);
/* The value as a tensor of the current graph. */
graph_id onnx_id_of(onnx_import *im, onnx_value *value);
/* Its elements; NULL: not known. Its shape, as onnx_operand_shape has it. */
const onnx_known *onnx_known_of(onnx_import *im, onnx_value *value);
graph_shape onnx_shape_of(onnx_import *im, onnx_value *value);
/* The value of the node's attribute, which must be there. */
const onnx_graph *onnx_graph_attribute(onnx_import *im, const char *name);
/* Imports a nested graph in place of the node: its inputs are these values, outputs[]: its first `wanted` outputs. */
void onnx_import_inline(onnx_import *im, const onnx_graph *part, const onnx_value *inputs, size_t wanted,
                        onnx_value *outputs);
void onnx_import_nodes(onnx_import *im, const onnx_node *nodes, size_t count);

#endif
