/* Mixed precision: f32 values computed again with products in f16 or bf16. The column `precision` of the rows (op.h) says what is narrow:
 *
 *   GRAPH_NARROW   sums of products: f32 operands are rounded to the narrow type; sums and results are f32
 *   GRAPH_FOLLOWS  moves and choices of elements, which give the same bits whether operands are rounded before or results after: narrow
 *                  if only products read them, so that what is kept in memory is narrow, and if they have one operand beside numbers, so
 *                  that conversions do not become more; else f32
 *   GRAPH_WIDE     everything else: f32, as it is
 *
 * So the bits are those of rounding each product's operands, no value is computed twice, and each value is rounded at most once. Values of
 * other types than f32 stay as they are. */
#ifndef GRAPH_PRECISION_H
#define GRAPH_PRECISION_H

#include "graph/op.h"

/* Sets out[i] to y[i] with products of `narrow` operands, of the same type; y[i] itself if it depends on no product. out may be y. Nodes
 * with effects and nodes that count a size stay as they are, with all that they depend on. */
void graph_mix_precision(graph *g, dlc_dtype narrow, int count, const graph_id *y, graph_id *out);

/* A pass: the outputs in mixed precision. */
graph *graph_with_mixed_precision(lib_arena *arena, const graph *g, dlc_dtype narrow);

#endif
