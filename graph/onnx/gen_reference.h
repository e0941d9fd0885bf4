/* The parts of the operator reference about ONNX, printed from the tables of import and export. Part of the generator (graph/gen_ops.c), not
 * of the library. */
#ifndef GRAPH_ONNX_GEN_REFERENCE_H
#define GRAPH_ONNX_GEN_REFERENCE_H

#include "graph/op.h"

/* Prints how the row of the operator table is exported, and which ONNX operators are imported as it. */
void onnx_reference_row(const graph_op *op);
/* The part of onnx_reference_row about export. */
void onnx_reference_export(const graph_op *op);
/* Prints the last section: all ONNX operators that are imported, by domain. */
void onnx_reference_operators(void);

#endif
