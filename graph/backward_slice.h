/* The part of a graph that some values need, down to what is known, as a graph of its own: what eager evaluation compiles. */
#ifndef GRAPH_BACKWARD_SLICE_H
#define GRAPH_BACKWARD_SLICE_H

#include "graph/graph.h"

typedef struct graph_part {
    int count;
    /* what is wanted: its outputs, in this order */
    const graph_id *values;
    /* by value of g: there is a tensor */
    const bool *known;
    /* nodes up to here have had their effects; later impure nodes belong to the part */
    uint32_t effects_done;
    /* all inputs of g are inputs of the part, with their names, in their order, before the known values */
    bool keeps_inputs;
    /* results, in the arena */
    graph *graph;
    int input_count;
    /* values of g that are its inputs, in order */
    const graph_id *inputs;
} graph_part;

/* Equal parts of one graph, or of graphs built by the same calls, are equal by graph_hash. Raises DLC_INVALID_ARGUMENT where a part needs an
 * input of g that is not known. */
void graph_cut_part(lib_arena *arena, const graph *g, graph_part *part);

/* A graph whose output is its input, of the tensor's element type and shape. */
graph *graph_identity(lib_arena *arena, const DLTensor *like);

#endif
