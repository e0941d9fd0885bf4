/* Regions: sets of nodes of a bound graph, each of which one kernel computes. Maps and moves (class INJECTIVE) may join each other,
 * and reductions and contractions as prologues or epilogues. Reductions of the same rows and the maps between them form one kernel,
 * as does attention. Opaque and control nodes are regions of their own. Regions are listed in an order in which they can run. */
#ifndef GRAPH_FUSE_H
#define GRAPH_FUSE_H

#include "graph/graph.h"
#include "tir/machine.h"
#include "tir/region.h"

typedef enum graph_region_kind {
    GRAPH_REGION_KERNEL, /* to be lowered and compiled */
    GRAPH_REGION_VIEW, /* one reshape, slice, `again` or (host_layout.h) transpose: the result's bytes are a contiguous part of the operand's */
    GRAPH_REGION_OPAQUE, /* one custom call */
    GRAPH_REGION_CONTROL /* one if or while */
} graph_region_kind;

typedef struct graph_region {
    graph_region_kind kind;
    /* for profiles and schedules: names of the main operators, e.g. "dot_add_gelu" */
    const char *name;
    /* node indices, operands first; constants of one element are folded in and not listed as inputs, except numbers */
    const uint32_t *nodes;
    uint32_t node_count;
    /* values from outside (graph inputs, constants too large to fold, other regions' outputs) */
    const graph_id *inputs;
    uint32_t input_count;
    /* number of constants of one element among the inputs, at their end: they are not folded in, so that regions which differ only in
     * such constants share a kernel (numbers.c). 0 after fusion */
    uint32_t number_count;
    /* values read outside, or graph outputs */
    const graph_id *outputs;
    uint32_t output_count;
    /* by value of the graph: its layout in memory (layout.h); NULL, or a NULL entry: row-major */
    const tir_layout *const *layouts;
    /* machine that it will run on; NULL: unknown */
    const tir_machine *machine;
} graph_region;

typedef struct graph_regions {
    graph_region *data;
    uint32_t count;
    /* layouts, shared by all regions */
    const tir_layout *const *layouts;
} graph_regions;

/* The target's cost model, for joins in doubt. It predicts cycles on one thread (cycles[0]) and on a larger number of threads, which
 * is fixed, so that results do not depend on the context's threads. */
enum { GRAPH_FUSE_WIDTHS = 2 };
typedef struct graph_fuse_costs {
    /* Sets cycles of one run of the region's kernel; INFINITY: the target's rules have no schedule for it. whole: a region that is
     * computed by this kernel and others; NULL: the kernel runs alone. false: no model. Regions are only valid during the call. */
    bool (*predict)(void *user, const graph_region *region, const graph_region *whole,
                    double cycles[GRAPH_FUSE_WIDTHS]);
    /* Hash of a question about the region, for example which of its joins to keep; `joins` is a hash of what the question depends on
     * besides the region and the machine. Questions of equal hash have equal answers, in any process. */
    lib_hash128 (*identify)(void *user, const graph_region *region, lib_hash128 joins);
    /* Look up and store the answer to a question; about joins: bit i is set if the i-th join in doubt is undone. false: unknown. The
     * caller validates the answer. */
    bool (*recall)(void *user, const lib_hash128 *question, uint32_t *undone);
    void (*record)(void *user, const lib_hash128 *question, uint32_t undone);
    void *user;
} graph_fuse_costs;

/* machine NULL: every node is a region of its own (fusion off), and all values are row-major. Else values that the host stores in
 * blocks get layouts (host_layout.h). costs NULL: every legal join is kept. */
graph_regions graph_fuse(lib_arena *arena, const graph *bound, const tir_machine *machine,
                         const graph_fuse_costs *costs);

/* The region's computation, its arguments in their layouts, with a pool of its own in `arena`. Does not change `bound`, so that
 * several threads may build regions of one graph. Arguments are in the order of region->inputs, then region->outputs. An input is
 * marked as constant, equal in every run, if is_constant(user, value); is_constant NULL: if it is a constant node. All symbols that
 * `bound` still has, used or not, become params, in their order. */
tir_region *graph_region_build(lib_arena *arena, const graph *bound, const graph_region *region,
                               bool (*is_constant)(void *user, graph_id value), void *user);

bool graph_is_scalar_constant(const graph *g, graph_id value); /* of one element: kernels may have it in their code */
/* Sets *numbers to the constants of one element that the region's kernel may read from memory instead of having them in its code
 * (numbers.c), in the order in which the nodes read them. Returns their count. */
uint32_t graph_region_numbers(lib_arena *arena, const graph *bound, const graph_region *region, graph_id **numbers);
/* Appends the constants to the region's inputs. */
void graph_region_read_numbers(lib_arena *arena, graph_region *region, uint32_t count, const graph_id *numbers);
/* The form of the region: graph_region_build's computation with all of its graph_region_numbers as inputs. Kernels of regions of equal
 * form differ in numbers only, so that the same schedules and predictions suit them. */
tir_region *graph_region_form(lib_arena *arena, const graph *bound, const graph_region *region,
                              bool (*is_constant)(void *user, graph_id value), void *user);

#endif
