/* Numbers of points; see extent.h. */
#include "tir/extent.h"

static int64_t constant_of(const tir_region *region, tir_expr extent) {
    int64_t number;
    return tir_is_const(region->pool, extent, &number) ? number : -1;
}

/* The product; -1: a factor is unknown (-1), or it exceeds 64 bits. */
static int64_t times(int64_t points, int64_t extent) {
    if (points < 0 || extent < 0 || __builtin_mul_overflow(points, extent, &points)) return -1;
    return points;
}

int64_t tir_axis_extent(const tir_region *region, const tir_axis *axis) {
    return constant_of(region, axis->extent);
}

int64_t tir_points(const tir_region *region, const tir_stage *stage, int first, int end) {
    int64_t points = 1;
    for (int a = first; a < end; a++) points = times(points, constant_of(region, stage->axis[a].extent));
    return points;
}

int64_t tir_elements(const tir_region *region, const tir_tensor *tensor, int first) {
    int64_t elements = 1;
    for (int d = first; d < tensor->rank; d++) elements = times(elements, constant_of(region, tensor->extent[d]));
    return elements;
}

bool tir_has_empty_axis(const tir_region *region) {
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (constant_of(region, stage->axis[a].extent) == 0) return true;
    }
    return false;
}
