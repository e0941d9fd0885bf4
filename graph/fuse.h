/* Regions: which nodes of a bound graph become one kernel. By bytes moved and launches, no list of patterns: maps and injectives
 * into anything, maps as prologue and epilogue of reductions and contractions, row chains stay together, rows with those that choose
 * elements of them, attention as a whole.
 * Opaque and control nodes stand alone. Regions never depend on each other in a cycle; they come in an order that can run. */
#ifndef GRAPH_FUSE_H
#define GRAPH_FUSE_H

#include "graph/graph.h"
#include "tir/machine.h"
#include "tir/region.h"

typedef enum graph_region_kind {
    GRAPH_REGION_KERNEL, /* to be lowered and compiled */
    GRAPH_REGION_VIEW, /* one reshape, slice or (host_layout.h) transpose whose result is bytes of its operand, in their order */
    GRAPH_REGION_OPAQUE, /* one custom call */
    GRAPH_REGION_CONTROL /* one if or while */
} graph_region_kind;

typedef struct graph_region {
    graph_region_kind kind;
    /* for profiles and schedules: main operators joined, e.g. "dot_add_gelu" */
    const char *name;
    /* node indices in graph order; small constants are folded in and not listed as inputs */
    const uint32_t *nodes;
    uint32_t node_count;
    /* values from outside (graph inputs, constants too large to fold, other regions' outputs) */
    const graph_id *inputs;
    uint32_t input_count;
    /* values read outside, or graph outputs */
    const graph_id *outputs;
    uint32_t output_count;
    /* by value of the graph: in memory; NULL, or a NULL entry: row-major (layout.h) */
    const tir_layout *const *layouts;
    /* what it is to run on; NULL: not known */
    const tir_machine *machine;
} graph_region;

typedef struct graph_regions {
    graph_region *data;
    uint32_t count;
    /* what all of them hold */
    const tir_layout *const *layouts;
} graph_regions;

/* What the target's cost model says of kernels, for joins in doubt. Cycles are of one thread and of as many as results must not depend
 * on: a join is taken if it is not slower by either. */
enum { GRAPH_FUSE_WIDTHS = 2 };
typedef struct graph_fuse_costs {
    /* Of one run of the region's kernel; INFINITY where the target's rules have no schedule for it; false: there is no model. The region
     * is of use during the call. */
    bool (*predict)(void *user, const graph_region *region, double cycles[GRAPH_FUSE_WIDTHS]);
    /* Identifies the question which joins of a region are taken, `joins` being a hash of these and of what is in doubt: equal for equal
     * answers, in this process and any other one. */
    lib_hash128 (*identify)(void *user, const graph_region *region, lib_hash128 joins);
    /* What was decided: bit i of *apart: join i is taken back. false: not known. An answer that would be no fusion is not believed. */
    bool (*recall)(void *user, const lib_hash128 *question, uint32_t *apart);
    void (*record)(void *user, const lib_hash128 *question, uint32_t apart);
    void *user;
} graph_fuse_costs;

/* machine NULL: every node a region of its own (fusion off). Else values that the host holds in blocks have their layouts. costs NULL:
 * what may join does. */
graph_regions graph_fuse(lib_arena *arena, const graph *bound, const tir_machine *machine,
                         const graph_fuse_costs *costs);

/* The region's computation, its arguments in their layouts, with a pool of its own in `arena`; reads `bound` only, so that several
 * threads may build regions of one graph. Tensor inputs come in the order of region->inputs, outputs in that of region->outputs. Inputs
 * that `is_constant` says are the same at every run (NULL: constant nodes only) are marked so. Varying symbols become params in the graph's symbol order
 * (all of the graph's kept symbols, used or not). */
tir_region *graph_region_build(lib_arena *arena, const graph *bound, const graph_region *region,
                               bool (*is_constant)(void *user, graph_id value), void *user);

#endif
