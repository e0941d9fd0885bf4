/* The inference form of a network: rewrites whose results differ from those of the graph as it is written by roundings. Unless the
 * host asks for operators as they are written (no_excess_precision), they run in dlc_compile, before graph_split_init. */
#ifndef GRAPH_INFERENCE_H
#define GRAPH_INFERENCE_H

#include "graph/graph.h"
#include "tir/machine.h"

/* The two rows between which quantised networks compute in floats (ops_quantize.c). */
extern const graph_op graph_row_quantize_linear, graph_row_dequantize_linear;

/* Is the value a constant, or moved elements of one? */
bool graph_is_weight(const graph *g, graph_id value);

/* Before graph_decompose. Computes on the integers of quantised networks (quantized.c); g itself if nothing is dequantised. */
graph *graph_compute_on_integers(lib_arena *arena, const graph *g, const tir_machine *machine);
/* After graph_simplify (factors.c); g itself if there are no such factors. */
graph *graph_fold_factors(lib_arena *arena, const graph *g);
/* After graph_simplify (factors.c): numbers that operands of contractions are multiplied by, and sums by which their rows are divided, are
 * applied to the results, so that fusion finds attention as exporters spell it out. */
graph *graph_factor_products(lib_arena *arena, const graph *g);
/* After graph_bind, since it depends on sizes (scattered.c): what is added to a value and 0 but where a scatter adds is scattered onto that value;
 * g itself if it has no scatters. */
graph *graph_scatter_onto_sums(lib_arena *arena, const graph *g);

#endif
