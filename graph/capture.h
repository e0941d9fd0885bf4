/* Capture of enclosing graphs' values by sub-graphs, for the public builder and the text parser. A sub-graph is built separately
 * (graph_new_inside), with an input for each value that it captures. It is completed when its operator is emitted: its inputs become
 * its parameters, then the values captured by any sub-graph of the operator. The operator gets these values as further operands. */
#ifndef GRAPH_CAPTURE_H
#define GRAPH_CAPTURE_H

#include "graph/graph.h"

/* A value of the enclosing graph and the sub-graph's input for it. */
typedef struct graph_capture {
    graph_id outer, inner;
} graph_capture;
typedef struct graph_captures {
    lib_vec(graph_capture) list;
    /* outer value -> index in the list */
    lib_map by_outer;
} graph_captures;

/* A sub-graph that is being built. */
typedef struct graph_unfinished {
    graph *g;
    /* number of inputs other than captures */
    uint32_t parameters;
    const graph_id *parameter;
    const graph_captures *captures;
} graph_unfinished;

/* The value of g for `outer`, a value of `enclosing`: a copy if it is a constant, else an input, the same one for each call. */
graph_id graph_capture_value(graph *g, const graph *enclosing, graph_captures *captures, graph_id outer);
/* The union of the values captured by several sub-graphs, and the index of each value in it. */
typedef struct graph_captured {
    lib_vec(graph_id) values;
    lib_map numbers;
} graph_captured;
/* Adds the values of `captures` to *captured. */
void graph_collect_captures(lib_arena *arena, const graph_captures *captures, graph_captured *captured);
/* Completes the sub-graph and returns its number in `enclosing`; the unfinished graph must not be used afterwards. */
int64_t graph_complete_subgraph(graph *enclosing, const graph_unfinished *sub, const graph_captured *captured);

#endif
