/* Graphs that differ in sizes alone, and the graph with symbols that stands for all of them: eager evaluation makes one program of it.
 * Sizes are the elements of dimension lists (GRAPH_ATTR_DIMS), shapes of inputs among them, in the order of the nodes, those of sub-graphs
 * where the node with the sub-graph stands. */
#ifndef GRAPH_SIZES_H
#define GRAPH_SIZES_H

#include "graph/graph.h"

/* Structure and constants, as graph_hash; of sizes only how many there are. */
lib_hash128 graph_hash_but_sizes(const graph *g);

/* All sizes; NULL: some are no numbers. In `arena`. */
int64_t *graph_sizes(lib_arena *arena, const graph *g, uint32_t *count);

/* From seen[seen_count][count], the sizes of graphs that are equal by graph_hash_but_sizes and of which g is one: a graph whose input
 * dimensions are symbols where they differ, equal ones where they are equal in all, and whose other sizes are expressions of these and
 * of the dimensions and numbers of elements of their node's operands: a multiple of one or of a product of two, or of one plus a
 * number. NULL: some size is nothing of that kind, or operators make another graph of symbols, or a worse program (GRAPH_BY_NUMBERS).
 * Raises what the operators raise. */
graph *graph_with_symbols(lib_arena *arena, const graph *g, int seen_count, const int64_t *const *seen);

/* Is g what `general` is with some values of its symbols? They are equal by graph_hash_but_sizes, and g has no symbols. */
bool graph_is_case_of(lib_arena *arena, const graph *g, const graph *general);

#endif
