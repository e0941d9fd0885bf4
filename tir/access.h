/* Access patterns of stages, for schedule rules: element strides of loads and stores along a stage's axes. */
#ifndef TIR_ACCESS_H
#define TIR_ACCESS_H

#include "tir/readers.h"

#define TIR_IRREGULAR INT64_MAX /* a stride that is not a constant */

typedef struct tir_access {
    uint32_t tensor;
    tir_expr load;
    /* By axis of the stage; owned by the pool and shared by equal queries. */
    const int64_t *stride;
    /* A divisor of the address when that axis is 0. */
    const int64_t *multiple;
} tir_access;

/* Fills out[0 ..] with the distinct loads of the stage (of its values, initial values or key, predicate and indices), at most `limit`;
 * returns their number. */
int tir_accesses(tir_region *region, int stage, tir_access *out, int limit);
/* stride[a]: element stride of the stage's first tensor along axis a, over all axes of the stage. */
void tir_store_strides(tir_region *region, int stage, int64_t *stride);
void tir_store_access(tir_region *region, int stage, tir_access *out); /* the same as an access without a load */
/* Whether the stage is a reduction of one component whose update is acc + left * right (fused or not); sets *left and *right. */
bool tir_sum_of_products(const tir_pool *pool, const tir_stage *stage, tir_expr *left, tir_expr *right);
/* Are the stage's results contiguous along the axis, and its loads (but those of its fold's state), too, in either direction, or independent
 * of it? False if all loads are independent. */
bool tir_is_contiguous_along(tir_region *region, int stage, int axis);
/* The last space axis of several points, other than `except`, along which the access is contiguous; -1: none. */
int tir_contiguous_axis(const tir_region *region, const tir_stage *stage, const tir_access *access, int except);
/* Does an axis of the result index a dimension together with an axis of the reduction: does a window slide along it? */
bool tir_shares_dimension(const tir_region *region, const tir_stage *stage, const tir_access *access, int axis,
                          int reduction);
/* Is the space axis none that the data of a scatter select? */
static inline bool tir_is_parallel(const tir_stage *stage, int axis) {
    return stage->kind != TIR_SCATTER || stage->index[axis] == stage->axis[axis].var;
}
/* The dimension that the variable alone indexes; _plain_: the first of them, -1: none; _sole_: -1 also if another index uses it, too. */
int tir_plain_dimension(const tir_region *region, const tir_access *access, tir_expr var);
int tir_sole_dimension(const tir_region *region, const tir_access *access, tir_expr var);
/* along[a]: the axis of the fold that axis a of one of its steps corresponds to: the number of a free axis, the fold's `space` for time; -1:
 * an axis of the step's own, or not derivable from loads. tir_fold_axes: by stage; all -1 for stages that are not steps of `fold`. */
typedef struct tir_step_axes {
    int along[TIR_MAX_AXES];
} tir_step_axes;
tir_step_axes *tir_fold_axes(lib_arena *arena, tir_region *region, int fold);
/* Of a step of a fold that `scan` made: the axis of the points that it computes at once, those of a block; -1: it has one point. */
int tir_scan_axis(tir_region *region, int step);
/* The expression without outer casts that only widen values. */
tir_expr tir_unwidened(const tir_pool *pool, tir_expr e);

#endif
