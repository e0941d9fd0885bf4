/* Shared by several families of rows: map stages built from an index map, and loops over dense arrays for the f64 references. */
#ifndef GRAPH_OPS_COMMON_H
#define GRAPH_OPS_COMMON_H

#include "graph/op.h"

#ifdef DLC_REFERENCE
#include "graph/bound.h"
#endif

/* ---- shape rules */

/* Product of dimensions; raises on overflow of index arithmetic. */
tir_expr graph_infer_product(const graph_infer *infer, int count, const tir_expr *dims);
/* Sum of two sizes of at most GRAPH_SIZE_MAX each; raises for larger ones. */
#define GRAPH_SIZE_MAX (INT64_C(1) << 60)
tir_expr graph_infer_sum(const graph_infer *infer, tir_expr a, tir_expr b);
/* Checks that the operand has an integer dtype; any rank. */
void graph_infer_indices(const graph_infer *infer, int operand);
/* Checks low <= high; if unknown, records a constraint for bind. */
void graph_infer_at_most(const graph_infer *infer, tir_expr low, tir_expr high, const char *what);
/* Checks that the axis is not empty if operand 1, indices into it, has any element. */
void graph_infer_reached(const graph_infer *infer, tir_expr size);
/* Checks that a list is empty (the default) or has one entry per dimension. */
void graph_infer_list(const graph_infer *infer, const graph_attribute *list, int rank, const char *what);
/* Entry i of a list that graph_infer_list has checked. */
static inline int64_t graph_list_entry(const graph_attribute *list, int i, int64_t when_empty) {
    return list->count ? list->list[i] : when_empty;
}

/* ---- compute definitions */

/* A map stage without values, over the elements of a tensor of this shape; sets axis[rank] to its axes' variables. */
tir_stage *graph_map_stage(graph_compute *compute, const graph_shape *shape, tir_expr *axis);
/* The element of the result at index axis[rank]. */
typedef tir_expr (*graph_element)(graph_compute *compute, const tir_expr *axis);
/* result[0][i...] = element(i...) as one map stage. */
void graph_compute_elements(graph_compute *compute, graph_element element);
static inline tir_expr graph_operand_load(graph_compute *compute, int operand, const tir_expr *index) {
    return tir_region_load(compute->region, compute->operand[operand], index);
}
/* Clamps an index value to low..high by comparisons only, so that no i64 overflows. u64 values beyond i64 count as the greatest
 * i64. */
tir_expr graph_limited_index(tir_pool *pool, tir_expr value, tir_expr low, tir_expr high);
/* -rank..rank-1 -> 0..rank-1; for attributes that the shape rule has checked. */
static inline int graph_axis_of(int64_t axis, int rank) {
    return (int)(axis < 0 ? axis + rank : axis);
}
/* Bit set of the axes of a checked list; with `all`, an empty list means all axes. */
uint32_t graph_axes_of(const graph_attribute *axes, int rank, bool all);

/* ---- sums of products: contraction and convolution */

/* The attribute `result` of contractions and convolutions. */
enum { GRAPH_RESULT_SAME, GRAPH_RESULT_F32 }; /* some of its words */
#define GRAPH_RESULT_ATTRIBUTE                                                      \
    {                                                                               \
        "result", GRAPH_ATTR_ENUM, "same f32 f64 i32 i64 f16 bf16 u32 u64", "same", \
            "element type of the sums and of the result; same: of x"                \
    }
/* The result's dtype by the attribute; raises if operands 0 and 1 do not allow it. */
dlc_dtype graph_infer_product_dtype(const graph_infer *infer, const graph_attribute *result);
/* For a dot_general of operands of these ranks: place[0][i] is the axis of the result that is axis i of x, place[1][i] that of w; -1:
 * the axis is contracted. */
void graph_dot_places(const graph_attribute *attribute, const int rank[2], int64_t place[2][DLC_MAX_RANK]);
/* The tensor itself, or a map stage that converts it (axis names may be NULL). */
uint32_t graph_compute_cast(graph_compute *compute, uint32_t tensor, dlc_dtype dtype, const char *const *axis_names);

/* ---- rows: the members that the name determines, of composites and of rows with a compute definition */

#define ROW_OF(name_, class__, least_, most_, results_, operands_, dtypes_)                            \
    .name = #name_, .class_ = class__, .min_inputs = least_, .max_inputs = most_, .results = results_, \
    .operands = operands_, .dtypes = dtypes_, .reference = GRAPH_REFERENCE(reference_##name_)
#define COMPOSITE_ROW(name_, least_, most_, results_, operands_, dtypes_) \
    ROW_OF(name_, GRAPH_COMPOSITE, least_, most_, results_, operands_, dtypes_), .expand = expand_##name_
#define PRIMITIVE_ROW(name_, class__, least_, most_, results_, operands_, dtypes_) \
    ROW_OF(name_, class__, least_, most_, results_, operands_, dtypes_), .compute = compute_##name_

/* ---- references (tests only): dense row-major arrays of doubles */

#ifdef DLC_REFERENCE
static inline bool graph_reference_given(const graph_reference *r, int operand) {
    return operand < r->inputs && r->operand[operand].rank >= 0;
}
int64_t graph_reference_count(const graph_reference_tensor *tensor);
/* The position in `data` of the element at index[rank]. */
int64_t graph_reference_at(const graph_reference_tensor *tensor, const int64_t *index);
/* Advances the index, at first all zeros, in row-major order; false: it was the last one. The tensor must not be empty. */
bool graph_reference_next(const graph_reference_tensor *tensor, int64_t *index);
/* For each index of the tensor, which may be empty, in row-major order: the array `index`, at first all zeros. */
#define GRAPH_REFERENCE_EACH(tensor, index)                                   \
    for (bool more_##index = graph_reference_count(tensor) > 0; more_##index; \
         more_##index = graph_reference_next(tensor, index))
/* The number of the integer dtype whose bits are the low bits of `bits`; bool: 1 unless `bits` is 0. */
double graph_reference_wrap(dlc_dtype dtype, uint64_t bits);
/* x, an integer of -2^63 .. 2^64-1, modulo 2^64. */
uint64_t graph_reference_word(double x);
/* A block of random words: Philox4x32 with ten rounds. */
void graph_reference_philox(uint64_t key, uint64_t block, uint64_t stream, uint64_t part, uint32_t out[4]);
/* Rows along an axis: element i < size of row (o, k), o < outer, k < inner, is at position (o*size + i)*inner + k. */
typedef struct graph_reference_rows {
    int64_t outer, size, inner;
} graph_reference_rows;
graph_reference_rows graph_reference_rows_along(const graph_reference_tensor *tensor, int64_t axis); /* -rank..rank-1 */
static inline bool graph_reference_integral(dlc_dtype dtype) {
    return !lib_dtype_is_float(dtype);
}
#endif

#endif
