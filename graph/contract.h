/* Contractions for the rows that expand to them (ops_contract.c, ops_einsum.c). Names that begin with graph_reference_ exist under
 * DLC_REFERENCE only. */
#ifndef GRAPH_CONTRACT_H
#define GRAPH_CONTRACT_H

#include "graph/op.h"

/* Adds a last dimension to result 0; raises if it has DLC_MAX_RANK already. */
void graph_infer_add_dim(const graph_infer *infer, tir_expr dim);

/* x without the axes that are not `kept`, which have size 1; x itself if all are kept. */
graph_id graph_drop_axes(graph *g, graph_id x, const bool *kept);

graph_id graph_transpose_unless_same(graph *g, graph_id x, const int64_t *permutation);

#ifdef DLC_REFERENCE
/* Adds up, over all values of the labels 0 to labels - 1 (of size[label]), products of the operands' elements. label[o][axis]: the label
 * that indexes that axis; out[axis]: that of the result's axis. */
void graph_reference_sum_of_products(const graph_reference *r, int operands, int labels, const int64_t *size,
                                     int (*label)[DLC_MAX_RANK], const int *out);
#endif

#endif
