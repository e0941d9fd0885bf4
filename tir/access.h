/* Where stages read and write, for schedule rules: element strides of addresses along a stage's axes. */
#ifndef TIR_ACCESS_H
#define TIR_ACCESS_H

#include "tir/region.h"

#define TIR_IRREGULAR INT64_MAX /* a stride that is not one number */

typedef struct tir_access {
    uint32_t tensor;
    tir_expr load;
    /* By axis of the stage; the pool's, shared by all who ask for the same. */
    const int64_t *stride;
    /* What divides the address where that axis is 0. */
    const int64_t *multiple;
} tir_access;

/* Distinct loads of the stage's values and predicate, at most `limit`; their number. */
int tir_accesses(tir_region *region, int stage, tir_access *out, int limit);
/* Of the stores of the stage's first value, at the axes' own point; stride[axes]. */
void tir_store_strides(tir_region *region, int stage, int64_t *stride);
void tir_store_access(tir_region *region, int stage, tir_access *out); /* the same as an access without load */
/* A reduction to one value that adds products, fused or not: their factors. */
bool tir_sum_of_products(const tir_pool *pool, const tir_stage *stage, tir_expr *left, tir_expr *right);
/* Along which axis of a fold the axes of its steps run: the number of a free one, the fold's `space` for time; -1: an axis of the step's own,
 * or loads do not tell. By stage; all -1 for stages that are none of its steps. */
typedef struct tir_step_axes {
    int along[TIR_MAX_AXES];
} tir_step_axes;
tir_step_axes *tir_fold_axes(lib_arena *arena, tir_region *region, int fold);
/* Without the casts around that only make values wider. */
tir_expr tir_unwidened(const tir_pool *pool, tir_expr e);

#endif
