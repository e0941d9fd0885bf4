/* Layouts of values that cross regions. A value stays row-major unless another layout makes the regions that write and read it
 * cheaper together, by a model of their accesses: then one of its dimensions is cut into blocks of a vector, and the position in
 * the block comes last, (n, c/16, h, w, c%16). What the host or anything but a kernel sees stays row-major, always; but where the host's
 * own moves say that it keeps blocks itself (host_layout.h), they are no kernels. */
#ifndef GRAPH_LAYOUT_H
#define GRAPH_LAYOUT_H

#include "graph/fuse.h"

typedef struct graph_layout_options {
    const tir_machine *machine;
    /* as for graph_region_build; may be NULL */
    bool (*is_constant)(void *user, graph_id value);
    void *user;
    /* what the target's cost model says; NULL: there is none */
    const graph_fuse_costs *costs;
    /* block every candidate, whatever it costs: for tests */
    bool all;
} graph_layout_options;

/* Sets the layouts of `regions`; those it has already (of graph_fuse) stay. */
void graph_assign_layouts(lib_arena *arena, const graph *bound, graph_regions *regions,
                          const graph_layout_options *options);

/* Raises DLC_INTERNAL unless every layout is a bijection of its value's rank, and belongs to a value that one kernel writes and
 * that kernels alone read. */
void graph_verify_layouts(lib_scope *scope, const graph *bound, const graph_regions *regions);

#endif
