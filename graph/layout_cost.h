/* The cost of a region as a function of the set of its blocked arguments: used by the decisions of layout.c. */
#ifndef GRAPH_LAYOUT_COST_H
#define GRAPH_LAYOUT_COST_H

#include "tir/machine.h"
#include "tir/region.h"

/* An argument that may be blocked. */
typedef struct layout_argument {
    /* tensor of the region */
    uint32_t tensor;
    /* dimension to block */
    int dim;
    /* decision number, shared by all regions */
    uint32_t choice;
} layout_argument;

/* The cycles that one decision adds: `blocked` if the value is blocked, else `plain`. */
typedef struct layout_term {
    uint32_t choice;
    double plain, blocked;
} layout_term;

/* One vectorisation of the region, along one family of axes (layout_cost.c). Its cost: base plus the terms of all decisions. */
typedef struct layout_way {
    double base;
    lib_vec(layout_term) terms;
} layout_way;

typedef struct layout_model {
    lib_vec(layout_way) ways;
    /* some stage of the region contracts */
    bool contracts;
} layout_model;

enum { LAYOUT_LOADS = 32 };

/* Sets loads[] to the distinct loads of a stage's values and predicate; returns their number; -1: more than LAYOUT_LOADS. */
int graph_stage_loads(tir_region *region, const tir_stage *stage, tir_expr *loads);
bool graph_stage_contracts(const tir_region *region, const tir_stage *stage); /* sums products */
int64_t graph_extent(const tir_region *region, tir_expr extent);              /* of a symbolic extent: a typical size */
/* elements of a block; 0: blocking is not worthwhile */
int graph_block_lanes(const tir_machine *machine, dlc_dtype dtype);

layout_model graph_layout_model(lib_arena *arena, tir_region *region, const tir_machine *machine,
                                const layout_argument *arguments, uint32_t count);
/* Cycles of the cheapest vectorisation, where blocked[c] is decision c. */
double graph_layout_cost(const layout_model *model, const bool *blocked);

#endif
