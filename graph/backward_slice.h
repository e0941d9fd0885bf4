/* The part of a graph that computes some values from known values, as a separate graph: the unit that eager evaluation compiles. */
#ifndef GRAPH_BACKWARD_SLICE_H
#define GRAPH_BACKWARD_SLICE_H

#include "graph/graph.h"

typedef struct graph_part {
    int count;
    /* the requested values: its outputs, in this order */
    const graph_id *values;
    /* by value of g: the value has a tensor */
    const bool *known;
    /* effects of earlier nodes have been executed; later impure nodes belong to the part */
    uint32_t effects_done;
    /* all inputs of g are inputs of the part, with their names, in their order, before the known values */
    bool keeps_inputs;
    /* results, in the arena */
    graph *graph;
    int input_count;
    /* values of g that are its inputs, in order */
    const graph_id *inputs;
} graph_part;

/* Equal parts of one graph, or of graphs built by the same calls, are equal by graph_hash. Raises DLC_INVALID_ARGUMENT if the
 * part needs an input of g that is not known. */
void graph_cut_part(lib_arena *arena, const graph *g, graph_part *part);

/* A graph that returns its input, of the tensor's element type and shape. */
graph *graph_identity(lib_arena *arena, const DLTensor *like);

#endif
