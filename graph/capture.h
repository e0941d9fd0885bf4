/* Values of enclosing graphs in sub-graphs, for those who build them: the public builder and the text form. A sub-graph grows aside
 * (graph_new_inside) with an input for each value that it captures; when the operator that it belongs to is known, it is completed: its inputs
 * are then its parameters and what all sub-graphs of the operator capture, which become further operands. */
#ifndef GRAPH_CAPTURE_H
#define GRAPH_CAPTURE_H

#include "graph/graph.h"

/* A value of the enclosing graph, and the input that stands for it. */
typedef struct graph_capture {
    graph_id outer, inner;
} graph_capture;
typedef struct graph_captures {
    lib_vec(graph_capture) list;
    /* number in the list */
    lib_map by_outer;
} graph_captures;

/* A sub-graph that is being built. */
typedef struct graph_unfinished {
    graph *g;
    /* inputs that are none of the captures */
    uint32_t parameters;
    const graph_id *parameter;
    const graph_captures *captures;
} graph_unfinished;

/* A value of `enclosing` as one of g's: constants are repeated, others become an input. */
graph_id graph_capture_value(graph *g, const graph *enclosing, graph_captures *captures, graph_id outer);
/* What several sub-graphs capture, each value once, and the number in it of each. */
typedef struct graph_captured {
    lib_vec(graph_id) values;
    lib_map numbers;
} graph_captured;
void graph_collect_captures(lib_arena *arena, const graph_captures *captures, graph_captured *captured);
/* Number of the completed sub-graph in `enclosing`; what was unfinished is given up. */
int64_t graph_complete_subgraph(graph *enclosing, const graph_unfinished *sub, const graph_captured *captured);

#endif
