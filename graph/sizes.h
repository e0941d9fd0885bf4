/* Generalises graphs that differ only in sizes to one graph with symbols, for which eager evaluation compiles one program. Sizes
 * are the elements of dimension lists (GRAPH_ATTR_DIMS), including shapes of inputs, in node order; sizes of a sub-graph come at
 * the node that has it. */
#ifndef GRAPH_SIZES_H
#define GRAPH_SIZES_H

#include "graph/graph.h"

/* Hash of structure and constants, as graph_hash, with the number of sizes but not their values. */
lib_hash128 graph_hash_but_sizes(const graph *g);

/* All sizes, in `arena`; NULL: some are not numbers. */
int64_t *graph_sizes(lib_arena *arena, const graph *g, uint32_t *count);

enum { GRAPH_FREE_MAX = 8 };

/* A graph with symbols for sizes. */
typedef struct graph_general {
    /* NULL: there is none */
    graph *g;
    /* Its last inputs, u8[size, 0], tell the sizes that no other input tells: by index in graph_sizes. */
    int free_count;
    uint32_t free[GRAPH_FREE_MAX];
} graph_general;

/* Generalises graphs that are equal by graph_hash_but_sizes, one of which is g, from their sizes seen[seen_count][count]. Input
 * dimensions that differ become symbols, the same symbol if they are equal in all graphs. Other sizes become expressions of these
 * and of the dimensions and element counts of their node's operands: a multiple of one or of a product of two, or of one plus a
 * number; one that has no such form becomes a symbol that an additional input tells. None: there are too many of these, or operators
 * expand differently, or to slower code, for symbols (GRAPH_BY_NUMBERS). Raises operators' errors. */
graph_general graph_with_symbols(lib_arena *arena, const graph *g, int seen_count, const int64_t *const *seen);

/* Is g, which has these sizes, an instance of `general` for some values of its symbols? Both must be equal by graph_hash_but_sizes, and g has
 * no symbols. */
bool graph_is_case_of(lib_arena *arena, const graph *g, const int64_t *sizes, const graph_general *general);

#endif
