/* Shared by the operators that sample at data-dependent positions (graph/ops_sample.c, ops_regions.c): tables of each position's neighbours and
 * weights are computed once for all channels. With many channels, x has channels last, so that a neighbour adds a row times a number. With
 * few channels, neighbours are gathered from each channel's plane. Indices never leave their image. f16 and bf16 are computed in f32 and
 * rounded once. */
#ifndef GRAPH_SAMPLE_H
#define GRAPH_SAMPLE_H

#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

enum { SPACE_MAX = 3, TAPS_MAX = 4, FEW_CHANNELS = 8 };

/* ---- expansions */

/* Images of x [.., spatial...], each of several channels. Positions are values that broadcast to the result's shape less its channels. */
typedef struct sampler {
    graph *g;
    int spatial;
    tir_expr size[SPACE_MAX];
    dlc_dtype index;
    /* few channels: stored as planes */
    bool planes;
    /* of x: [images*positions, channels], or [channels, images*positions] */
    graph_id elements;
    /* index of the first position of each result element's image */
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

/* Numbers 0, 1, ... along `axis` of `rank`, the other dimensions 1. */
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

/* Sets the image index of each position. */
static inline void set_images(sampler *s, graph_id image) {
    s->first = graph_mul(s->g, image, graph_dimension(s->g, s->index, positions_of(s)));
}

/* Index of whole positions, clamped into the image. */
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

/* 0 <= at <= size - 1 */
static inline graph_id is_inside(const sampler *s, int axis, graph_id at) {
    graph *g = s->g;
    return graph_and(g, graph_ge(g, at, graph_scalar_like(g, at, 0)), graph_le(g, at, size_like(s, axis, at, -1)));
}

/* Neighbours of the positions, along an additional first axis: position along each spatial axis, weight, and validity. */
typedef struct taps {
    /* number of neighbours along each spatial axis; rank of the positions */
    int count, rank;
    /* weight 0: all 1; exists 0: all valid */
    graph_id at[SPACE_MAX], weight, exists;
} taps;

/* Each neighbour's offset along an axis, from `first` on; the last axis varies fastest. */
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

/* [taps, positions...], or 1 for all taps */
static inline void add_condition(const sampler *s, taps *t, graph_id exists) {
    t->exists = t->exists ? graph_and(s->g, t->exists, exists) : exists;
}

/* Neighbours of positions along an axis, and their distances, 0 to 1 or 0 to 2. */
static inline graph_id neighbours(const sampler *s, taps *t, int axis, graph_id at) {
    graph *g = s->g;
    graph_id below = graph_floor(g, at), share = graph_expand_dims(g, graph_sub(g, at, below), 0);
    graph_id step = steps_of(s, t, axis, t->count > 2 ? -1 : 0, graph_shape_of(g, at)->dtype);
    t->at[axis] = graph_add(g, graph_expand_dims(g, below, 0), step);
    return graph_abs(g, graph_sub(g, share, step));
}

/* With `zeros`, neighbours outside the image do not count. */
static inline void linear_taps(const sampler *s, taps *t, int axis, graph_id at, bool zeros) {
    graph *g = s->g;
    graph_id far = neighbours(s, t, axis, at);
    add_weight(s, t, graph_sub(g, graph_scalar_like(g, far, 1), far));
    if (zeros) add_condition(s, t, is_inside(s, axis, t->at[axis]));
}

/* Sums over the neighbours, and over the next `more` axes of the positions: [positions..., channels], or channels first. */
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

static inline graph_id sum_of_taps(const sampler *s, const taps *t, int more) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_sum(s->g, value, 1 + more, axes, false);
}

/* The greatest of the neighbours times their weights. */
static inline graph_id greatest_of_taps(const sampler *s, const taps *t) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_max(s->g, value, 1, axes, false);
}

/* Moves channels from their position after sum_of_taps to `axis`. */
static inline graph_id place_channels(const sampler *s, graph_id value, int axis) {
    int64_t permutation[DLC_MAX_RANK];
    const int rank = graph_shape_of(s->g, value)->rank;
    for (int i = 0, from = s->planes; i < rank; i++) permutation[i] = i == axis ? s->planes ? 0 : rank - 1 : from++;
    return graph_transpose(s->g, value, permutation);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* Element of an image of two or three dimensions, 0 outside. */
static inline double pixel(const graph_reference_tensor *x, const int64_t *channel, const int64_t *at) {
    int64_t index[DLC_MAX_RANK] = {channel[0], channel[1]};
    for (int i = 2; i < x->rank; i++) {
        if (at[i - 2] < 0 || at[i - 2] >= x->dim[i]) return 0;
        index[i] = at[i - 2];
    }
    return x->data[graph_reference_at(x, index)];
}

/* Sum over the corners of the cell around a position. */
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

/* What the rows have in common. */
#define SAMPLE_FORM(name_, least_, most_, operands_, dtypes_, tolerance_)                               \
    .name = #name_, .class_ = GRAPH_COMPOSITE, .min_inputs = least_, .max_inputs = most_, .results = 1, \
    .operands = operands_, .dtypes = dtypes_, .algebra = GRAPH_EXCESS, .infer = infer_##name_,          \
    .expand = expand_##name_, .reference = GRAPH_REFERENCE(reference_##name_), .tolerance = tolerance_

#endif
