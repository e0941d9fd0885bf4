/* Regions: the nodes of a bound graph that become one kernel. Maps and injectives may join any kernel, maps are prologues and
 * epilogues of reductions and contractions, row chains stay together, also with gathers that select elements of the rows,
 * attention becomes one kernel. Opaque and control nodes are regions of their own. Regions never depend on each other in a cycle;
 * they are listed in an executable order. */
#ifndef GRAPH_FUSE_H
#define GRAPH_FUSE_H

#include "graph/graph.h"
#include "tir/machine.h"
#include "tir/region.h"

typedef enum graph_region_kind {
    GRAPH_REGION_KERNEL, /* to be lowered and compiled */
    GRAPH_REGION_VIEW, /* one reshape, slice or (host_layout.h) transpose whose result is a contiguous part of its operand's bytes */
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
    /* of the inputs, the last ones are numbers: constants of one element that the kernel reads from memory (numbers.c); 0 from fusion */
    uint32_t number_count;
    /* values read outside, or graph outputs */
    const graph_id *outputs;
    uint32_t output_count;
    /* by value of the graph: in memory; NULL, or a NULL entry: row-major (layout.h) */
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

/* The target's cost model, for joins in doubt. It predicts cycles on one thread and on a fixed larger number of threads (fixed,
 * so that results do not depend on the context's threads): a join is kept if it is not slower on either. */
enum { GRAPH_FUSE_WIDTHS = 2 };
typedef struct graph_fuse_costs {
    /* Cycles of one run of the region's kernel, alone, or as a part of `whole` among others (NULL: alone); INFINITY: the target's
     * rules have no schedule for it; false: no model. The regions are only valid during the call. */
    bool (*predict)(void *user, const graph_region *region, const graph_region *whole,
                    double cycles[GRAPH_FUSE_WIDTHS]);
    /* Hash of the question which joins of a region to keep, where `joins` is a hash of the joins and of those in doubt. Equal
     * hashes have equal answers, in any process. */
    lib_hash128 (*identify)(void *user, const graph_region *region, lib_hash128 joins);
    /* Look up and store a decision: bit i of *undone: join i is undone. false: unknown. The caller validates the answer. */
    bool (*recall)(void *user, const lib_hash128 *question, uint32_t *undone);
    void (*record)(void *user, const lib_hash128 *question, uint32_t undone);
    void *user;
} graph_fuse_costs;

/* machine NULL: every node a region of its own (fusion off). Else values that the host stores in blocks get their layouts. costs
 * NULL: every legal join is kept. */
graph_regions graph_fuse(lib_arena *arena, const graph *bound, const tir_machine *machine,
                         const graph_fuse_costs *costs);

/* The region's computation, its arguments in their layouts, with a pool of its own in `arena`; reads `bound` only, so that
 * several threads may build regions of one graph. Tensor inputs come in the order of region->inputs, outputs in that of
 * region->outputs. Inputs for which `is_constant` is true, i.e. equal in every run (NULL: constant nodes only), are marked as
 * constant. Varying symbols become params in the graph's symbol order (all of the graph's kept symbols, used or not). */
tir_region *graph_region_build(lib_arena *arena, const graph *bound, const graph_region *region,
                               bool (*is_constant)(void *user, graph_id value), void *user);

bool graph_is_scalar_constant(const graph *g, graph_id value); /* of one element, which kernels have in their code */
/* The constants of one element that the region's kernel could read from memory as well as have in its code (numbers.c), in the
 * order in which the nodes read them. Returns how many. */
uint32_t graph_region_numbers(lib_arena *arena, const graph *bound, const graph_region *region, graph_id **numbers);
/* Makes the constants inputs of the region. */
void graph_region_read_numbers(lib_arena *arena, graph_region *region, uint32_t count, const graph_id *numbers);
/* The form of the region: graph_region_build's computation with all of these constants as inputs. Kernels of regions of one form differ in
 * nothing but numbers: the same schedules, and predictions, suit them. */
tir_region *graph_region_form(lib_arena *arena, const graph *bound, const graph_region *region,
                              bool (*is_constant)(void *user, graph_id value), void *user);

#endif
