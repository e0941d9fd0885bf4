/* Numbers of points, for schedule rules: extents of axes, stages and tensors as far as they are constants. */
#ifndef TIR_EXTENT_H
#define TIR_EXTENT_H

#include "tir/region.h"

/* The extent of the axis; -1: varying. */
int64_t tir_axis_extent(const tir_region *region, const tir_axis *axis);
/* Product of the extents of the stage's axes `first` to `end` - 1; -1: varying, or beyond 64 bits. */
int64_t tir_points(const tir_region *region, const tir_stage *stage, int first, int end);
/* Product of the tensor's extents from dimension `first` on; -1: varying, or beyond 64 bits. */
int64_t tir_elements(const tir_region *region, const tir_tensor *tensor, int first);
/* Has a stage an axis without points? Split factors derived from its extent would be 0. */
bool tir_has_empty_axis(const tir_region *region);

#endif
