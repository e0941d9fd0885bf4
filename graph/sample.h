/* Shared by the operators that sample images at data-dependent positions (graph/ops_sample.c, ops_regions.c). The neighbours of each
 * position and their weights are computed once for all channels. If channels are many, x is transposed to channels last, and a neighbour
 * is a row of all channels. If they are few, neighbours are gathered from each channel's plane. Indices are clamped into the image. f16
 * and bf16 are computed in f32 and rounded once. */
#ifndef GRAPH_SAMPLE_H
#define GRAPH_SAMPLE_H

#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

enum { SPACE_MAX = 3, TAPS_MAX = 4, FEW_CHANNELS = 8 };

/* ---- expansions */

/* The images of x [images, channels, spatial...]. Positions are values that broadcast to the result's shape without its channels. */
typedef struct sampler {
    graph *g;
    int spatial;
    tir_expr size[SPACE_MAX];
    dlc_dtype index;
    /* channels are few: each is a plane of `elements` */
    bool planes;
    /* x as [images*positions, channels], or, with planes, [channels, images*positions] */
    graph_id elements;
    /* by position: index in `elements` of the first element of its image */
    graph_id first;
} sampler;

static inline tir_expr positions_of(const sampler *s) {
    tir_expr each = tir_index(s->g->pool, 1);
    for (int i = 0; i < s->spatial; i++) each = tir_mul(s->g->pool, each, s->size[i]);
    return each;
}

static inline sampler sample(graph *g, graph_id x, tir_expr images, tir_expr channels) {
    const graph_shape shape = *graph_shape_of(g, x);
    sampler s = {.g = g, .spatial = shape.rank - 2};
    int64_t count;
    for (int i = 0; i < s.spatial; i++) s.size[i] = shape.dim[2 + i];
    tir_expr each = positions_of(&s), all = tir_mul(g->pool, images, each);
    s.index = tir_range(g->pool, all).high < INT32_MAX ? DLC_I32 : DLC_I64;
    s.planes = tir_is_const(g->pool, channels, &count) && count < FEW_CHANNELS;
    graph_id value = graph_reshape(g, graph_widen(g, x), 3, (tir_expr[]){images, channels, each});
    value = graph_transpose(g, value, s.planes ? (int64_t[]){1, 0, 2} : (int64_t[]){0, 2, 1});
    s.elements = graph_reshape(g, value, 2, s.planes ? (tir_expr[]){channels, all} : (tir_expr[]){all, channels});
    return s;
}

/* 0, 1, ..., size - 1 along `axis` of a value of that rank, whose other dimensions are 1. */
static inline graph_id counted(graph *g, dlc_dtype dtype, tir_expr size, int axis, int rank) {
    tir_expr dims[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i == axis ? size : tir_index(g->pool, 1);
    return graph_iota(g, dtype, rank, dims, axis);
}

static inline graph_id size_like(const sampler *s, int axis, graph_id like, int64_t more) {
    tir_expr size = tir_add(s->g->pool, s->size[axis], tir_index(s->g->pool, more));
    return graph_dimension(s->g, graph_shape_of(s->g, like)->dtype, size);
}

static inline graph_id clip(const sampler *s, int axis, graph_id at) {
    return graph_clamp(s->g, graph_scalar_like(s->g, at, 0), at, size_like(s, axis, at, -1));
}

/* Sets s->first from the image number of each position. */
static inline void set_images(sampler *s, graph_id image) {
    s->first = graph_mul(s->g, image, graph_dimension(s->g, s->index, positions_of(s)));
}

/* The index in `elements` of positions at[spatial], of whole numbers, clamped into the image. */
static inline graph_id index_of(const sampler *s, const graph_id *at) {
    graph *g = s->g;
    graph_id place = 0;
    for (int i = 0; i < s->spatial; i++) {
        graph_id last = graph_dimension(g, s->index, tir_sub(g->pool, s->size[i], tir_index(g->pool, 1)));
        graph_id index = graph_cast(g, at[i], s->index);
        index = graph_max(g, graph_min(g, index, last), graph_scalar_i64(g, s->index, 0));
        place = i ? graph_add(g, graph_mul(g, place, graph_dimension(g, s->index, s->size[i])), index) : index;
    }
    return graph_add(g, s->first, place);
}

/* bool: 0 <= at <= size - 1 along the axis. */
static inline graph_id is_inside(const sampler *s, int axis, graph_id at) {
    graph *g = s->g;
    return graph_and(g, graph_ge(g, at, graph_scalar_like(g, at, 0)), graph_le(g, at, size_like(s, axis, at, -1)));
}

/* The neighbours (taps) of all positions, along an additional first axis: their position along each spatial axis, weight, validity. */
typedef struct taps {
    /* number of neighbours along each spatial axis; rank of the positions */
    int count, rank;
    /* weight 0: all 1; exists 0: all valid */
    graph_id at[SPACE_MAX], weight, exists;
} taps;

/* By neighbour: its offset along the axis, `first` or more; neighbours are in row-major order of their offsets. */
static inline graph_id steps_of(const sampler *s, const taps *t, int axis, int first, dlc_dtype dtype) {
    enum { MOST = 64 };
    double step[MOST];
    float narrow[MOST];
    int64_t all = 1, each = 1, dims[DLC_MAX_RANK];
    for (int i = 0; i < s->spatial; i++) all *= t->count;
    for (int i = axis + 1; i < s->spatial; i++) each *= t->count;
    for (int64_t k = 0; k < all; k++) narrow[k] = (float)(step[k] = (double)(k / each % t->count + first));
    for (int i = 0; i <= t->rank; i++) dims[i] = i ? 1 : all;
    return graph_literal(s->g, dtype, 1 + t->rank, dims, dtype == DLC_F64 ? (const void *)step : (const void *)narrow);
}

static inline void add_weight(const sampler *s, taps *t, graph_id weight) {
    t->weight = t->weight ? graph_mul(s->g, t->weight, weight) : weight;
}

/* A neighbour for which `exists`, [taps or 1, positions...], is false does not count. */
static inline void add_condition(const sampler *s, taps *t, graph_id exists) {
    t->exists = t->exists ? graph_and(s->g, t->exists, exists) : exists;
}

/* Sets t->at[axis] to the neighbours of positions `at` along the axis; returns their distances from `at`: 0 to 1 if t->count is 2, 0 to
 * 2 if it is 4. */
static inline graph_id neighbours(const sampler *s, taps *t, int axis, graph_id at) {
    graph *g = s->g;
    graph_id below = graph_floor(g, at), share = graph_expand_dims(g, graph_sub(g, at, below), 0);
    graph_id step = steps_of(s, t, axis, t->count > 2 ? -1 : 0, graph_shape_of(g, at)->dtype);
    t->at[axis] = graph_add(g, graph_expand_dims(g, below, 0), step);
    return graph_abs(g, graph_sub(g, share, step));
}

/* Linear interpolation along the axis: neighbours with weights 1 - distance. zeros: those outside the image do not count. */
static inline void linear_taps(const sampler *s, taps *t, int axis, graph_id at, bool zeros) {
    graph *g = s->g;
    graph_id far = neighbours(s, t, axis, at);
    add_weight(s, t, graph_sub(g, graph_scalar_like(g, far, 1), far));
    if (zeros) add_condition(s, t, is_inside(s, axis, t->at[axis]));
}

/* The elements at the neighbours times their weights, 0 for those that do not count: [taps, positions..., channels], with planes
 * [channels, taps, positions...]. axes[i]: the axis of taps (i = 0), then of positions. */
static inline graph_id weighted_taps(const sampler *s, const taps *t, int64_t *axes) {
    graph *g = s->g;
    graph_id value = graph_gather(g, s->elements, index_of(s, t->at), s->planes ? 1 : 0);
    const graph_shape shape = *graph_shape_of(g, value);
    for (int i = 0; i <= t->rank; i++) axes[i] = i + s->planes;
    if (t->weight) value = graph_mul(g, value, graph_broadcast(g, t->weight, shape.rank, shape.dim, axes));
    if (t->exists)
        value = graph_select(g, graph_broadcast(g, t->exists, shape.rank, shape.dim, axes), value,
                             graph_scalar_like(g, value, 0));
    return value;
}

/* Sums of weighted_taps over the neighbours and the first `more` axes of the positions: channels are last, with planes first. */
static inline graph_id sum_of_taps(const sampler *s, const taps *t, int more) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_sum(s->g, value, 1 + more, axes, false);
}

/* The greatest of weighted_taps over the neighbours. */
static inline graph_id greatest_of_taps(const sampler *s, const taps *t) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_max(s->g, value, 1, axes, false);
}

/* Moves the channels of a result of sum_of_taps or greatest_of_taps to `axis`. */
static inline graph_id place_channels(const sampler *s, graph_id value, int axis) {
    int64_t permutation[DLC_MAX_RANK];
    const int rank = graph_shape_of(s->g, value)->rank;
    for (int i = 0, from = s->planes; i < rank; i++) permutation[i] = i == axis ? s->planes ? 0 : rank - 1 : from++;
    return graph_transpose(s->g, value, permutation);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* The element at whole position at[spatial] of image channel[0], channel channel[1]; 0 outside of the image. */
static inline double pixel(const graph_reference_tensor *x, const int64_t *channel, const int64_t *at) {
    int64_t index[DLC_MAX_RANK] = {channel[0], channel[1]};
    for (int i = 2; i < x->rank; i++) {
        if (at[i - 2] < 0 || at[i - 2] >= x->dim[i]) return 0;
        index[i] = at[i - 2];
    }
    return x->data[graph_reference_at(x, index)];
}

/* Linear interpolation at position at[spatial]: the sum of the corners of its cell times their weights. */
static inline double between(const graph_reference_tensor *x, const int64_t *channel, const double *at) {
    int spatial = x->rank - 2;
    double sum = 0;
    for (int corner = 0; corner < 1 << spatial; corner++) {
        int64_t place[SPACE_MAX];
        double weight = 1;
        for (int i = 0; i < spatial; i++) {
            double low = floor(at[i]);
            bool high = corner >> i & 1;
            place[i] = (int64_t)low + high;
            weight *= high ? at[i] - low : 1 - (at[i] - low);
        }
        sum += weight * pixel(x, channel, place);
    }
    return sum;
}

#endif

/* ---- rows */

/* The fields that are alike in all rows of these operators. */
#define SAMPLE_FORM(name_, least_, most_, operands_, dtypes_, tolerance_)                               \
    .name = #name_, .class_ = GRAPH_COMPOSITE, .min_inputs = least_, .max_inputs = most_, .results = 1, \
    .operands = operands_, .dtypes = dtypes_, .infer = infer_##name_, .expand = expand_##name_,         \
    .reference = GRAPH_REFERENCE(reference_##name_), .tolerance = tolerance_

#endif
