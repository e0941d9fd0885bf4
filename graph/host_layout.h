/* Values whose blocked layout the host expresses by moves around them (host_layout.c). */
#ifndef GRAPH_HOST_LAYOUT_H
#define GRAPH_HOST_LAYOUT_H

#include "graph/graph.h"
#include "tir/layout.h"

typedef struct graph_given {
    /* by node: a move that becomes a view, since its bytes are already in order */
    bool *view;
    /* by value: in blocks; NULL: row-major */
    const tir_layout **layouts;
} graph_given;

/* refused, by value: stays row-major although the host's moves give it a blocked layout; NULL: none. */
graph_given graph_find_given(lib_arena *arena, const graph *g, const bool *live, const bool *refused);

#endif
