/* Parts of a training step, for dumps, profiles, and what is kept (keep.c). dlc_gradient and its like mark what they differentiate and what they emit
 * among the origins of values (origin.h), which passes preserve. */
#ifndef GRAPH_SWEEP_H
#define GRAPH_SWEEP_H

#include "graph/fuse.h"
#include "graph/graph.h"

/* bits; the first two are marks */
enum {
    GRAPH_SWEEP_FORWARD = 1,
    GRAPH_SWEEP_BACKWARD = 2,
    /* what depends on derivatives and is none itself */
    GRAPH_SWEEP_UPDATE = 4,
    GRAPH_SWEEPS = 8
};

/* Marks the values from `first` on; values that are marked as forward already, since they existed before or are differentiated once more, count
 * as forward. */
void graph_mark_sweep(graph *g, graph_id first, uint32_t count, unsigned sweep);
/* The value's marks. */
unsigned graph_sweep_marks(const graph *g, graph_id value);

/* [nodes] in `arena`: the sweep of each; both for control flow with derivatives inside; 0: a source. within: the sweep of the node whose sub-graph
 * g is, 0 for none. NULL: there are no derivatives in the graph. */
uint8_t *graph_sweeps(lib_arena *arena, const graph *g, unsigned within);
/* Those of the region's nodes; forward ones only if the region writes their values: others it computes for its own use. */
unsigned graph_region_sweeps(const graph *g, const uint8_t *sweeps, const graph_region *region);
bool graph_sweeps_are_many(unsigned sweeps);
/* "forward and backward"; "": none */
const char *graph_sweeps_text(unsigned sweeps);

#endif
