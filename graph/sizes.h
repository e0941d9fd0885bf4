/* Generalises graphs that differ only in sizes to one graph with symbols, for which eager evaluation compiles one program. Sizes
 * are the elements of all lists of dimensions (GRAPH_ATTR_DIMS), including shapes of inputs, in the order of nodes; those of a
 * sub-graph come at the node that has it. */
#ifndef GRAPH_SIZES_H
#define GRAPH_SIZES_H

#include "graph/graph.h"

/* graph_hash, except that it contains the number of sizes of each list, not their values. */
lib_hash128 graph_hash_but_sizes(const graph *g);

/* All sizes, in `arena`; *count: how many. NULL: some are not numbers. */
int64_t *graph_sizes(lib_arena *arena, const graph *g, uint32_t *count);

enum { GRAPH_FREE_MAX = 8 };

/* A graph with symbols for sizes. */
typedef struct graph_general {
    /* NULL: there is none */
    graph *g;
    /* The last free_count inputs, u8[size, 0], give sizes that follow from no other input: input i that of index free[i] in
     * graph_sizes. */
    int free_count;
    uint32_t free[GRAPH_FREE_MAX];
} graph_general;

/* Generalises graphs that are equal by graph_hash_but_sizes, one of which is g, from their sizes seen[seen_count][count]. Input
 * dimensions that differ between the graphs become symbols, two of them one symbol if they are equal in each graph. Any other size
 * becomes a number or a form in symbols, dimensions and element counts of its node's operands: a * number + number, or a * b * number.
 * A size without such a form becomes a symbol, which an additional input gives. No result: too many sizes have no form, or an operator
 * expands differently, or to slower code, for symbols (GRAPH_BY_NUMBERS). Raises errors of operators. */
graph_general graph_with_symbols(lib_arena *arena, const graph *g, int seen_count, const int64_t *const *seen);

/* Is g, of these graph_sizes and without symbols, equal to `general` for some values of its symbols? Both must be equal by
 * graph_hash_but_sizes. */
bool graph_is_case_of(lib_arena *arena, const graph *g, const int64_t *sizes, const graph_general *general);

#endif
