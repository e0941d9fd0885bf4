/* Builds tir regions from graph nodes by the rows' compute definitions: shared by constant folding (one node) and fusion (fuse.h). */
#ifndef GRAPH_REGION_H
#define GRAPH_REGION_H

#include "graph/op.h"

typedef struct graph_region_builder {
    /* only read */
    const graph *g;
    /* has its own arena and pool */
    tir_region *region;
    /* by variable of g->pool: its expression in the region's pool */
    tir_expr *variables;
    /* value of g -> tensor of the region; a hash map, since a region is much smaller than its graph */
    lib_map tensors;
    /* the machine that the region will run on; NULL: unknown */
    const tir_machine *machine;
    /* constants of one element that are inputs, not literals: numbers[i] is tensor first_number + i */
    const graph_id *numbers;
    uint32_t number_count, first_number;
    /* constants of one element were added as stages, which graph_region_finish replaces by literals */
    bool literals;
} graph_region_builder;

/* A region with the graph's symbols as parameters. */
graph_region_builder graph_region_start(lib_arena *arena, const graph *g, const char *name);
uint32_t graph_region_tensor(const graph_region_builder *builder, graph_id value); /* GRAPH_NONE: none */
void graph_region_set(graph_region_builder *builder, graph_id value, uint32_t tensor);
void graph_region_add_input(graph_region_builder *builder, graph_id value, bool constant);
/* Adds the stages of a node (which need not be in the graph yet), whose operands must have tensors. tensor[results] receives the
 * results' tensors. */
void graph_region_add_node(graph_region_builder *builder, const graph_op *op, int inputs, const graph_id *input,
                           const graph_attribute *attributes, int results, const graph_shape *result, uint32_t *tensor);
/* Replaces loads of constants of one element by literals, or by loads of the numbers' inputs. */
void graph_region_finish(graph_region_builder *builder);

#endif
