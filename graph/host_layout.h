/* Values that the host keeps in blocks: it writes reshapes and transposes (moves) between its blocks and the operators (host_layout.c). */
#ifndef GRAPH_HOST_LAYOUT_H
#define GRAPH_HOST_LAYOUT_H

#include "graph/graph.h"
#include "tir/layout.h"

typedef struct graph_given {
    /* by node: it is a move that becomes a view: its result has the bytes of its operand in the same order */
    bool *view;
    /* by value: its blocked layout; NULL: row-major */
    const tir_layout **layouts;
} graph_given;

/* live, by node: it is needed. refused, by value: it stays row-major although the host's moves give it a blocked layout; NULL: no
 * value does. */
graph_given graph_find_given(lib_arena *arena, const graph *g, const bool *live, const bool *refused);

#endif
