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
    /* effects of the nodes before this one have been executed; impure nodes from here on belong to the part */
    uint32_t effects_done;
    /* the part has all inputs of g, with their names and in their order, before the known values that it reads */
    bool keeps_inputs;
    /* results, in the arena */
    graph *graph;
    int input_count;
    /* by input of the part: the value of g */
    const graph_id *inputs;
} graph_part;

/* Sets graph, input_count and inputs of *part from its other fields. Equal parts of one graph, or of graphs built by the same calls,
 * are equal by graph_hash. Raises DLC_INVALID_ARGUMENT if the part needs an input of g that is not known. */
void graph_cut_part(lib_arena *arena, const graph *g, graph_part *part);

/* A graph whose output is its only input, of the element type and shape of `like`. */
graph *graph_identity(lib_arena *arena, const DLTensor *like);

#endif
