/* Regions that are computed again: copies of a region's nodes, on other inputs, and parts of a region. Copies are added to a bound graph
 * without rules and without merging equal nodes; they have values of their own. */
#ifndef GRAPH_RECOMPUTE_H
#define GRAPH_RECOMPUTE_H

#include "graph/fuse.h"

/* May the region be computed a second time, with equal results? Not loops, scatters, sorts and what the host does. */
bool graph_may_recompute(const graph *bound, const graph_region *region);
/* The part of the region that computes those of its outputs whose bit is set in `wanted`, from its inputs and from the outputs in
 * `given`, which need not be computed. Inputs: those of the region that the part reads, then `given` ones, then numbers. */
graph_region graph_region_part(lib_arena *arena, const graph *bound, const graph_region *region, uint64_t wanted,
                               uint64_t given);
/* A graph with the nodes and values of `bound`, of the same ids, to which copies can be added. */
graph *graph_extend(lib_arena *arena, const graph *bound);
/* The region on other inputs: inputs[i] takes the place of region->inputs[i]. Its nodes are copied to g. Its layouts are not set. */
graph_region graph_region_copy(graph *g, const graph_region *region, const graph_id *inputs);

/* keep.c: a pass. What the backward sweep (sweep.h) reads is computed again by maps and moves from the values with the fewest bytes that suffice,
 * which alone are kept. */
graph *graph_keep_least(lib_arena *arena, const graph *g);

#endif
