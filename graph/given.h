/* Values that lie in blocks because the host says so, by moves around them (given.c). */
#ifndef GRAPH_GIVEN_H
#define GRAPH_GIVEN_H

#include "graph/graph.h"
#include "tir/layout.h"

typedef struct graph_given {
    bool *view;                 /* by node: a move between bytes that lie as they should */
    const tir_layout **layouts; /* by value: in blocks; NULL: row-major */
} graph_given;

/* refused, by value: stays row-major although the host's moves say that it lies in blocks; NULL: none. */
graph_given graph_find_given(lib_arena *arena, const graph *g, const bool *live, const bool *refused);

#endif
