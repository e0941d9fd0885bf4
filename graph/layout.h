/* Layouts of values that cross regions. A value is row-major unless a blocked layout reduces the total cost of the regions that
 * write and read it, by a model of their accesses: then one of its dimensions is split into blocks of a vector, and the position
 * in the block is the last axis, (n, c/16, h, w, c%16). Values read or written by the host, or by steps other than kernels, stay
 * row-major, except if the host's own moves produce or consume blocks (host_layout.h): then the moves become views. */
#ifndef GRAPH_LAYOUT_H
#define GRAPH_LAYOUT_H

#include "graph/fuse.h"

typedef struct graph_layout_options {
    const tir_machine *machine;
    /* as for graph_region_build; may be NULL */
    bool (*is_constant)(void *user, graph_id value);
    void *user;
    /* the target's cost model; NULL: none */
    const graph_fuse_costs *costs;
    /* for tests: block every candidate regardless of cost */
    bool all;
} graph_layout_options;

/* Sets the layouts of `regions`; existing ones (by graph_fuse) stay. */
void graph_assign_layouts(lib_arena *arena, const graph *bound, graph_regions *regions,
                          const graph_layout_options *options);

/* Raises DLC_INTERNAL unless every layout is a bijection of its value's rank, and its value is written by one kernel and read by
 * kernels only. */
void graph_verify_layouts(lib_scope *scope, const graph *bound, const graph_regions *regions);

#endif
