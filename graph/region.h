/* From graph nodes to a tir region, through the rows' compute definitions: shared by constant folding (one node) and by
 * the regions of fusion (fuse.h). */
#ifndef GRAPH_REGION_H
#define GRAPH_REGION_H

#include "graph/op.h"

typedef struct graph_region_builder {
    /* only read */
    const graph *g;
    /* in an arena and pool of its own */
    tir_region *region;
    /* by variable of g->pool: what it is in the region's pool */
    tir_expr *variables;
    /* value of g -> tensor id; a region is small beside its graph */
    lib_map tensors;
    /* what the region is to run on; NULL: not known */
    const tir_machine *machine;
    /* scalar constants were added as stages: to be substituted at the end */
    bool literals;
} graph_region_builder;

/* A region with the graph's symbols as parameters. */
graph_region_builder graph_region_start(lib_arena *arena, const graph *g, const char *name);
uint32_t graph_region_tensor(const graph_region_builder *builder, graph_id value); /* GRAPH_NONE: not there */
void graph_region_set(graph_region_builder *builder, graph_id value, uint32_t tensor);
/* How kernels see a value's elements: as they are, c64 as f32 with a last dimension of 2, integers of 4 bits as bytes in one
 * dimension. */
graph_shape graph_stored(tir_pool *pool, const graph_shape *shape);
void graph_region_add_input(graph_region_builder *builder, graph_id value, bool constant);
void graph_region_add_scalar(graph_region_builder *builder,
                             graph_id constant); /* a constant of one element, as a literal */
/* Adds the stages of a node (that need not be in the graph yet); operands must be there. tensor[results] receives the
 * ids. */
void graph_region_add_node(graph_region_builder *builder, const graph_op *op, int inputs, const graph_id *input,
                           const graph_attribute *attributes, int results, const graph_shape *result, uint32_t *tensor);
void graph_region_finish(graph_region_builder *builder); /* puts literals where they are used */

#endif
