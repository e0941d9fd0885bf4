/* Sampling at data-dependent positions: affine_grid, grid_sample, roi_align, deformable_convolution. Tables of each position's
 * neighbours and weights are computed once for all channels. With many channels, x has channels last, so that a neighbour adds a
 * row times a number. With few channels, neighbours are gathered from each channel's plane. Indices never leave their image. In
 * f16 and bf16 they compute in f32 and round once. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

enum { SPACE_MAX = 3, TAPS_MAX = 4, FEW_CHANNELS = 8 };

/* ---- shared by the expansions */

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

static tir_expr positions_of(const sampler *s) {
    tir_expr each = tir_index(s->g->pool, 1);
    for (int i = 0; i < s->spatial; i++) each = tir_mul(s->g->pool, each, s->size[i]);
    return each;
}

static sampler sample(graph *g, graph_id x, tir_expr images, tir_expr channels) {
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
static graph_id counted(graph *g, dlc_dtype dtype, tir_expr size, int axis, int rank) {
    tir_expr dims[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i == axis ? size : tir_index(g->pool, 1);
    return graph_iota(g, dtype, rank, dims, axis);
}

static graph_id size_like(const sampler *s, int axis, graph_id like, int64_t more) {
    tir_expr size = tir_add(s->g->pool, s->size[axis], tir_index(s->g->pool, more));
    return graph_dimension(s->g, graph_shape_of(s->g, like)->dtype, size);
}

/* Sets the image index of each position. */
static void set_images(sampler *s, graph_id image) {
    s->first = graph_mul(s->g, image, graph_dimension(s->g, s->index, positions_of(s)));
}

/* Index of whole positions, clamped into the image. */
static graph_id index_of(const sampler *s, const graph_id *at) {
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
static graph_id is_inside(const sampler *s, int axis, graph_id at) {
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
static graph_id steps_of(const sampler *s, const taps *t, int axis, int first, dlc_dtype dtype) {
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

static void add_weight(const sampler *s, taps *t, graph_id weight) {
    t->weight = t->weight ? graph_mul(s->g, t->weight, weight) : weight;
}

/* [taps, positions...], or 1 for all taps */
static void add_condition(const sampler *s, taps *t, graph_id exists) {
    t->exists = t->exists ? graph_and(s->g, t->exists, exists) : exists;
}

/* Neighbours of positions along an axis, and their distances, 0 to 1 or 0 to 2. */
static graph_id neighbours(const sampler *s, taps *t, int axis, graph_id at) {
    graph *g = s->g;
    graph_id below = graph_floor(g, at), share = graph_expand_dims(g, graph_sub(g, at, below), 0);
    graph_id step = steps_of(s, t, axis, t->count > 2 ? -1 : 0, graph_shape_of(g, at)->dtype);
    t->at[axis] = graph_add(g, graph_expand_dims(g, below, 0), step);
    return graph_abs(g, graph_sub(g, share, step));
}

/* With `zeros`, neighbours outside the image do not count. */
static void linear_taps(const sampler *s, taps *t, int axis, graph_id at, bool zeros) {
    graph *g = s->g;
    graph_id far = neighbours(s, t, axis, at);
    add_weight(s, t, graph_sub(g, graph_scalar_like(g, far, 1), far));
    if (zeros) add_condition(s, t, is_inside(s, axis, t->at[axis]));
}

/* Sums over the neighbours, and over the next `more` axes of the positions: [positions..., channels], or channels first. */
static graph_id weighted_taps(const sampler *s, const taps *t, int64_t *axes) {
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

static graph_id sum_of_taps(const sampler *s, const taps *t, int more) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_sum(s->g, value, 1 + more, axes, false);
}

/* The greatest of the neighbours times their weights. */
static graph_id greatest_of_taps(const sampler *s, const taps *t) {
    int64_t axes[DLC_MAX_RANK];
    graph_id value = weighted_taps(s, t, axes);
    return graph_reduce_max(s->g, value, 1, axes, false);
}

/* Moves channels from their position after sum_of_taps to `axis`. */
static graph_id place_channels(const sampler *s, graph_id value, int axis) {
    int64_t permutation[DLC_MAX_RANK];
    const int rank = graph_shape_of(s->g, value)->rank;
    for (int i = 0, from = s->planes; i < rank; i++) permutation[i] = i == axis ? s->planes ? 0 : rank - 1 : from++;
    return graph_transpose(s->g, value, permutation);
}

/* ---- affine_grid */

enum { GRID_SHAPE, GRID_ALIGN };

static void infer_affine_grid(graph_infer *infer) {
    const graph_shape *theta = &infer->operand[0];
    const graph_attribute *shape = &infer->attribute[GRID_SHAPE];
    int spatial = shape->count;
    graph_infer_rank(infer, 0, 3);
    if (spatial < 2 || spatial > SPACE_MAX)
        graph_infer_fail(infer, "shape has %d entries, expected 2 or 3 spatial dimensions", spatial);
    graph_infer_equal(infer, theta->dim[1], tir_index(infer->g->pool, spatial), "rows of theta and spatial dimensions");
    graph_infer_equal(infer, theta->dim[2], tir_index(infer->g->pool, spatial + 1),
                      "columns of theta and spatial dimensions plus 1");
    infer->result[0] = (graph_shape){.dtype = theta->dtype, .rank = spatial + 2};
    infer->result[0].dim[0] = theta->dim[0];
    for (int i = 0; i < spatial; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension of shape is negative");
        infer->result[0].dim[1 + i] = shape->dims[i];
    }
    infer->result[0].dim[1 + spatial] = tir_index(infer->g->pool, spatial);
}

static void expand_affine_grid(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *shape = &e->attribute[GRID_SHAPE];
    const int spatial = shape->count, rank = spatial + 2;
    const graph_shape from = *graph_shape_of(g, e->input[0]);
    graph_id theta = graph_widen(g, e->input[0]), sum = 0;
    dlc_dtype dtype = graph_shape_of(g, theta)->dtype;
    for (int k = 0; k <= spatial;
         k++) { /* column k of theta [n, spatial, .] multiplies the k-th axis from the end; the last column is added */
        graph_id column = graph_slice_axis(g, theta, 2, tir_index(g->pool, k), tir_index(g->pool, k + 1));
        tir_expr dims[DLC_MAX_RANK];
        for (int i = 0; i < rank; i++) dims[i] = tir_index(g->pool, 1);
        dims[0] = from.dim[0], dims[rank - 1] = tir_index(g->pool, spatial);
        graph_id term = graph_reshape(g, column, rank, dims);
        if (k < spatial) {
            int axis = spatial - 1 - k;
            tir_expr n = shape->dims[axis], one = tir_index(g->pool, 1);
            bool corners = e->attribute[GRID_ALIGN].integer;
            tir_expr steps = tir_max(g->pool, corners ? tir_sub(g->pool, n, one) : n, one);
            graph_id i = counted(g, dtype, n, 1 + axis, rank); /* -1 + (2i [+ 1])/steps */
            i = graph_mul_number(g, i, 2);
            if (!corners) i = graph_add_number(g, i, 1);
            i = graph_add_number(g, graph_div(g, i, graph_dimension(g, dtype, steps)), -1);
            term = graph_mul(g, term, i);
        }
        sum = k ? graph_add(g, sum, term) : term;
    }
    e->result[0] = graph_cast(g, sum, from.dtype);
}

/* ---- grid_sample */

enum { SAMPLE_MODE, SAMPLE_PADDING, SAMPLE_ALIGN };
enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };

static void infer_grid_sample(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *grid = &infer->operand[1];
    int spatial = x->rank - 2;
    if (spatial < 2 || spatial > SPACE_MAX)
        graph_infer_fail(infer, "x has rank %d, expected 4 or 5: batch, channels, 2 or 3 spatial dimensions", x->rank);
    if (infer->attribute[SAMPLE_MODE].integer == CUBIC && spatial != 2)
        graph_infer_fail(infer, "mode=cubic is for 2 spatial dimensions (ONNX defines it for no others), x has %d",
                         spatial);
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_rank(infer, 1, x->rank);
    graph_infer_equal(infer, grid->dim[0], x->dim[0], "batches of x and of grid");
    graph_infer_equal(infer, grid->dim[x->rank - 1], tir_index(infer->g->pool, spatial),
                      "the last dimension of grid and the number of spatial dimensions");
    infer->result[0] = *x;
    for (int i = 0; i < spatial; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[2 + i],
                            "an empty image has no element to sample");
        infer->result[0].dim[2 + i] = grid->dim[1 + i];
    }
}

/* Reflects positions at the ends: the outer edges of the elements, or their centres. */
static graph_id reflect(const sampler *s, int axis, graph_id at, bool corners) {
    graph *g = s->g;
    double low = corners ? 0 : -0.5;
    tir_expr n = s->size[axis], one = tir_index(g->pool, 1);
    tir_expr span = corners ? tir_max(g->pool, tir_sub(g->pool, n, one), one) : n;
    graph_id way = graph_dimension(g, graph_shape_of(g, at)->dtype, tir_mul(g->pool, span, tir_index(g->pool, 2)));
    graph_id m = graph_rem(g, graph_abs(g, graph_add_number(g, at, -low)), way);
    return graph_add_number(g, graph_min(g, m, graph_sub(g, way, m)), low);
}

static graph_id clip(const sampler *s, int axis, graph_id at) {
    return graph_clamp(s->g, graph_scalar_like(s->g, at, 0), at, size_like(s, axis, at, -1));
}

static graph_id padded_position(const sampler *s, int axis, graph_id at, const graph_attribute *a) {
    if (a[SAMPLE_PADDING].integer == ZEROS) return at;
    if (a[SAMPLE_PADDING].integer == REFLECTION) at = reflect(s, axis, at, a[SAMPLE_ALIGN].integer);
    return clip(s, axis, at);
}

static void cubic_taps(const sampler *s, taps *t, int axis, graph_id at, const graph_attribute *a) {
    const double c = -0.75;
    graph *g = s->g;
    graph_id d = neighbours(s, t, axis, at);
    graph_id near = graph_add_number(g, graph_mul_number(g, d, c + 2), -(c + 3)); /* ((c + 2) d - (c + 3)) d^2 + 1 */
    near = graph_add_number(g, graph_mul(g, graph_mul(g, near, d), d), 1);
    graph_id far = graph_add_number(g, graph_mul(g, graph_add_number(g, d, -5), d), 8); /* c (((d - 5) d + 8) d - 4) */
    far = graph_mul_number(g, graph_add_number(g, graph_mul(g, far, d), -4), c);
    graph_id weight = graph_select(g, graph_le(g, d, graph_scalar_like(g, d, 1)), near, far);
    add_weight(s, t, weight);
    if (a[SAMPLE_PADDING].integer == ZEROS) add_condition(s, t, is_inside(s, axis, t->at[axis]));
    t->at[axis] = padded_position(s, axis, t->at[axis], a);
}

static void nearest_tap(const sampler *s, taps *t, int axis, graph_id at) {
    t->at[axis] = graph_expand_dims(s->g, graph_round(s->g, at), 0);
    add_condition(s, t, is_inside(s, axis, t->at[axis]));
}

static void expand_grid_sample(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    const graph_shape x = *graph_shape_of(g, e->input[0]), grid = *graph_shape_of(g, e->input[1]);
    sampler s = sample(g, e->input[0], x.dim[0], x.dim[1]);
    const int rank = 1 + s.spatial; /* batch, spatial dimensions */
    set_images(&s, counted(g, s.index, x.dim[0], 0, rank));
    graph_id positions = graph_widen(g, e->input[1]);
    static const int counts[] = {1, 2, TAPS_MAX};
    taps t = {.count = counts[a[SAMPLE_MODE].integer], .rank = rank};
    for (int axis = 0; axis < s.spatial; axis++) { /* the grid's last entry belongs to the first axis */
        int k = s.spatial - 1 - axis;
        graph_id at = graph_slice_axis(g, positions, rank, tir_index(g->pool, k), tir_index(g->pool, k + 1));
        at = graph_add_number(g, graph_reshape(g, at, rank, grid.dim), 1);
        if (a[SAMPLE_ALIGN].integer)
            at = graph_mul_number(g, graph_mul(g, at, size_like(&s, axis, at, -1)), 0.5);
        else
            at = graph_mul_number(g, graph_add_number(g, graph_mul(g, at, size_like(&s, axis, at, 0)), -1), 0.5);
        if (a[SAMPLE_MODE].integer == CUBIC) {
            cubic_taps(&s, &t, axis, at, a);
            continue;
        }
        at = padded_position(&s, axis, at, a);
        if (a[SAMPLE_MODE].integer == LINEAR) {
            linear_taps(&s, &t, axis, at, a[SAMPLE_PADDING].integer == ZEROS);
            continue;
        }
        nearest_tap(&s, &t, axis, at);
    }
    e->result[0] = graph_cast(g, place_channels(&s, sum_of_taps(&s, &t, 0), 1), x.dtype);
}

/* ---- roi_align */

enum { ROI_SHAPE, ROI_SAMPLES, ROI_SCALE, ROI_MODE, ROI_COORDINATES };
enum { ROI_AVERAGE, ROI_MAX };
enum { ROI_HALF_PIXEL, ROI_OUTPUT_HALF_PIXEL };
enum { ROI_SAMPLE, ROI_ROIS = 2, ROI_CELL, ROI_RANK = 5 }; /* samples in each cell; rois, rows, columns of the result */

static void infer_roi_align(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *rois = &infer->operand[1], *images = &infer->operand[2];
    const graph_attribute *shape = &infer->attribute[ROI_SHAPE];
    graph_infer_rank(infer, 0, 4);
    graph_infer_rank(infer, 1, 2);
    graph_infer_rank(infer, 2, 1);
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_indices(infer, 2);
    graph_infer_equal(infer, rois->dim[1], tir_index(infer->g->pool, 4), "columns of rois, and 4,");
    graph_infer_equal(infer, rois->dim[0], images->dim[0], "rows of rois and entries of images");
    if (shape->count != 2) graph_infer_fail(infer, "shape has %d entries, expected 2", shape->count);
    int64_t samples = infer->attribute[ROI_SAMPLES].integer;
    if (samples < 0 || samples > 64) graph_infer_fail(infer, "samples is %lld, expected 0 to 64", (long long)samples);
    infer->result[0] = *x;
    infer->result[0].dim[0] = rois->dim[0];
    for (int i = 0; i < 2; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension of shape is negative");
        graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[2 + i],
                            "an empty image has no element to sample");
        infer->result[0].dim[2 + i] = shape->dims[i];
    }
    graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[0], "x has no image");
}

/* Entry k of each row of rois, scaled; rois along their axis */
static graph_id roi_entry(graph_expand *e, graph_id rois, int k) {
    graph *g = e->g;
    tir_expr dims[ROI_RANK];
    for (int i = 0; i < ROI_RANK; i++)
        dims[i] = i == ROI_ROIS ? graph_shape_of(g, rois)->dim[0] : tir_index(g->pool, 1);
    graph_id entry = graph_slice_axis(g, rois, 1, tir_index(g->pool, k), tir_index(g->pool, k + 1));
    entry = graph_mul_number(g, graph_reshape(g, entry, ROI_RANK, dims), e->attribute[ROI_SCALE].number);
    return e->attribute[ROI_COORDINATES].integer == ROI_HALF_PIXEL ? graph_add_number(g, entry, -0.5) : entry;
}

/* Start of the rois along a spatial axis, and the size of a cell. */
typedef struct roi_line {
    /* cell: index of the cell */
    graph_id start, bin, cell;
} roi_line;

static roi_line roi_line_of(graph_expand *e, graph_id rois, int axis) { /* rois are x1 y1 x2 y2 */
    graph *g = e->g;
    const dlc_dtype dtype = graph_shape_of(g, rois)->dtype;
    const tir_expr cells = e->attribute[ROI_SHAPE].dims[axis];
    graph_id start = roi_entry(e, rois, 1 - axis), extent = graph_sub(g, roi_entry(e, rois, 3 - axis), start);
    if (e->attribute[ROI_COORDINATES].integer == ROI_OUTPUT_HALF_PIXEL)
        extent = graph_max(g, extent, graph_scalar_like(g, extent, 1));
    graph_id divisor = graph_dimension(g, dtype, tir_max(g->pool, cells, tir_index(g->pool, 1)));
    return (roi_line){start, graph_div(g, extent, divisor), counted(g, dtype, cells, ROI_CELL + axis, ROI_RANK)};
}

/* Is the position at most 1 outside the image, so that it counts? */
static graph_id is_near(const sampler *s, int axis, graph_id at) {
    graph *g = s->g;
    return graph_and(g, graph_ge(g, at, graph_scalar_like(g, at, -1)), graph_le(g, at, size_like(s, axis, at, 0)));
}

static void roi_taps(const sampler *s, taps *t, int axis, graph_id at) {
    add_condition(s, t, graph_expand_dims(s->g, is_near(s, axis, at), 0));
    linear_taps(s, t, axis, clip(s, axis, at), false);
}

static graph_id fixed_samples(graph_expand *e, const sampler *s, const roi_line *lines) {
    graph *g = e->g;
    const double samples = (double)e->attribute[ROI_SAMPLES].integer;
    const dlc_dtype dtype = graph_shape_of(g, lines[0].start)->dtype;
    const tir_expr count = tir_index(g->pool, e->attribute[ROI_SAMPLES].integer);
    taps t = {.count = 2, .rank = ROI_RANK};
    for (int axis = 0; axis < 2; axis++) {
        graph_id inner = graph_add_number(g, counted(g, dtype, count, ROI_SAMPLE + axis, ROI_RANK), 0.5);
        graph_id place = graph_add(g, lines[axis].cell, graph_mul_number(g, inner, 1 / samples));
        roi_taps(s, &t, axis, graph_add(g, lines[axis].start, graph_mul(g, place, lines[axis].bin)));
    }
    int64_t inside[] = {s->planes, 1 + s->planes};
    bool most = e->attribute[ROI_MODE].integer == ROI_MAX;
    graph_id y =
        most ? greatest_of_taps(s, &t) : sum_of_taps(s, &t, 2); /* the mean: over neighbours and samples at once */
    return most ? graph_reduce_max(g, y, 2, inside, false) : graph_mul_number(g, y, 1 / (samples * samples));
}

/* The number of samples is a cell's size, rounded up, which is data. Their distance is above 1/2 if there are several, so that
 * the number near the image is bounded by the image's size, for cells of any size. Only those are visited, a few of every cell
 * per iteration, until no cell has any left. */
enum { ROI_TURN = 4, ROI_MARGIN = 3 }; /* samples per iteration; rounding shifts each end by less than 1 */

/* of a cell along an axis */
typedef struct roi_samples {
    /* number of all samples */
    graph_id count;
    /* sample i is at corner + (i + 1/2)*step */
    graph_id corner, step;
    /* samples that may be near the image: the first, and their number (an integer) */
    graph_id first, within;
} roi_samples;

static graph_id sample_place(graph *g, const roi_samples *r, graph_id number) {
    return graph_add(g, r->corner, graph_mul(g, graph_add_number(g, number, 0.5), r->step));
}

/* Cells with NaN or without width have none: casts convert NaN to 0. */
static roi_samples near_samples(const sampler *s, const roi_line *line, int axis, dlc_dtype integer) {
    graph *g = s->g;
    roi_samples r = {.count = graph_ceil(g, line->bin)};
    r.corner = graph_add(g, line->start, graph_mul(g, line->cell, line->bin));
    r.step = graph_div(g, line->bin, r.count);
    graph_id before = graph_div(g, graph_sub(g, graph_scalar_like(g, r.corner, -1), r.corner), r.step);
    graph_id after = graph_div(g, graph_sub(g, size_like(s, axis, r.corner, 0), r.corner), r.step);
    graph_id zero = graph_scalar_like(g, before, 0);
    r.first = graph_max(g, graph_floor(g, graph_add_number(g, before, -0.5)), zero);
    graph_id end = graph_min(g, graph_ceil(g, graph_add_number(g, after, 0.5)), r.count);
    graph_id most = size_like(s, axis, end, 2 + ROI_MARGIN);
    r.within = graph_cast(g, graph_min(g, graph_max(g, graph_sub(g, end, r.first), zero), most), integer);
    return r;
}

enum {
    TURN_NUMBER,
    TURN_SUM,
    TURN_CARRIES,
    TURN_MOST = TURN_CARRIES,
    TURN_TOTAL,
    TURN_COLUMNS,
    TURN_ELEMENTS,
    TURN_IMAGES,
    TURN_LINES,
    TURN_OPERANDS = TURN_LINES + 6
};

/* One iteration: adds the next samples of each cell, in row-major order, to its sum, or updates its maximum. */
static void roi_turn(const sampler *outer, graph *body, const graph_id *in, bool most) {
    sampler s = *outer;
    s.g = body, s.elements = in[TURN_ELEMENTS], s.first = in[TURN_IMAGES];
    const dlc_dtype integer = graph_shape_of(body, in[TURN_NUMBER])->dtype;
    const dlc_dtype dtype = graph_shape_of(body, in[TURN_LINES])->dtype;
    graph_id number = counted(body, integer, tir_index(body->pool, ROI_TURN), ROI_SAMPLE, ROI_RANK);
    number = graph_add(body, number, in[TURN_NUMBER]);
    graph_id row = graph_div(body, number, graph_max(body, in[TURN_COLUMNS], graph_scalar_i64(body, integer, 1)));
    graph_id inside[] = {row, graph_sub(body, number, graph_mul(body, row, in[TURN_COLUMNS]))};
    taps t = {.count = 2, .rank = ROI_RANK};
    for (int axis = 0; axis < 2; axis++) {
        const graph_id *line = &in[TURN_LINES + 3 * axis];
        const roi_samples r = {.corner = line[0], .step = line[1], .first = line[2]};
        graph_id at = graph_add(body, r.first, graph_cast(body, inside[axis], dtype));
        roi_taps(&s, &t, axis, sample_place(body, &r, at));
    }
    graph_id exists = graph_lt(body, number, in[TURN_TOTAL]), next;
    if (most) {
        graph_id value = greatest_of_taps(&s, &t);
        const graph_shape shape = *graph_shape_of(body, value);
        int64_t axes[ROI_RANK], reduced[] = {s.planes, 1 + s.planes};
        for (int i = 0; i < ROI_RANK; i++) axes[i] = i + s.planes;
        value = graph_select(body, graph_broadcast(body, exists, shape.rank, shape.dim, axes), value,
                             graph_scalar_like(body, value, -INFINITY));
        next = graph_max(body, in[TURN_SUM], graph_reduce_max(body, value, 2, reduced, false));
    } else {
        add_condition(&s, &t, graph_expand_dims(body, exists, 0));
        next = graph_add(body, in[TURN_SUM], sum_of_taps(&s, &t, 2));
    }
    graph_new_output(body, NULL, graph_add(body, in[TURN_NUMBER], graph_scalar_i64(body, integer, ROI_TURN)));
    graph_new_output(body, NULL, next);
}

static void turn_inputs(graph *sub, const graph *g, const graph_id *outer, graph_id *inner) {
    for (int i = 0; i < TURN_OPERANDS; i++) inner[i] = graph_new_input(sub, NULL, graph_shape_of(g, outer[i]));
}

/* Broadcasts a value of cells, or of rois, to the elements of a result shaped like `y`. */
static graph_id to_cells(const sampler *s, graph_id value, graph_id y) {
    graph *g = s->g;
    const graph_shape shape = *graph_shape_of(g, value), to = *graph_shape_of(g, y);
    return graph_broadcast(g, graph_reshape(g, value, ROI_RANK - ROI_ROIS, shape.dim + ROI_ROIS), to.rank, to.dim,
                           s->planes ? (int64_t[]){1, 2, 3} : (int64_t[]){0, 1, 2});
}

/* The maximum. Samples that are not near the image count as 0; if there are any, the first or last one along an axis is among them. */
static graph_id greatest_of(const sampler *s, const roi_samples *samples, graph_id all, graph_id y) {
    graph *g = s->g;
    graph_id zero = graph_scalar_like(g, y, 0), one = graph_scalar_like(g, all, 1), inside = 0;
    for (int axis = 0; axis < 2; axis++) {
        graph_id first = sample_place(g, &samples[axis], graph_scalar_like(g, all, 0));
        graph_id last = sample_place(g, &samples[axis], graph_sub(g, samples[axis].count, one));
        graph_id ends = graph_and(g, is_near(s, axis, first), is_near(s, axis, last));
        inside = axis ? graph_and(g, inside, ends) : ends;
    }
    y = graph_select(g, to_cells(s, inside, y), y, graph_max(g, y, zero));
    return graph_select(g, to_cells(s, graph_ge(g, all, one), y), y, zero);
}

static graph_id counted_samples(graph_expand *e, const sampler *s, const roi_line *lines) {
    graph *g = e->g, *condition, *body;
    const bool most = e->attribute[ROI_MODE].integer == ROI_MAX;
    const tir_expr margin = tir_index(g->pool, 2 + ROI_MARGIN);
    const tir_expr bound = tir_mul(g->pool, tir_add(g->pool, s->size[0], margin), tir_add(g->pool, s->size[1], margin));
    const dlc_dtype integer = tir_range(g->pool, bound).high < INT32_MAX - ROI_TURN ? DLC_I32 : DLC_I64;
    graph_id outer[TURN_OPERANDS], inner[TURN_OPERANDS];
    roi_samples samples[2];
    for (int axis = 0; axis < 2; axis++) {
        roi_samples *r = &samples[axis];
        *r = near_samples(s, &lines[axis], axis, integer);
        const graph_id values[] = {r->corner, r->step, r->first};
        memcpy(&outer[TURN_LINES + 3 * axis], values, sizeof values);
    }
    outer[TURN_TOTAL] = graph_mul(g, samples[0].within, samples[1].within);
    outer[TURN_COLUMNS] = samples[1].within;
    outer[TURN_MOST] = graph_reduce_max(g, outer[TURN_TOTAL], 0, NULL, false);
    outer[TURN_ELEMENTS] = s->elements;
    outer[TURN_IMAGES] = s->first;
    const graph_shape elements = *graph_shape_of(g, s->elements), cells = *graph_shape_of(g, outer[TURN_TOTAL]);
    graph_shape sums = {.dtype = elements.dtype, .rank = 4};
    for (int i = 0; i < 3; i++) sums.dim[i + s->planes] = cells.dim[ROI_ROIS + i];
    sums.dim[s->planes ? 0 : 3] = elements.dim[s->planes ? 0 : 1];
    outer[TURN_SUM] = graph_full(g, sums.dtype, sums.rank, sums.dim, most ? -INFINITY : 0);
    outer[TURN_NUMBER] = graph_scalar_i64(g, integer, 0);
    int64_t condition_number, body_number;
    condition = graph_new_subgraph(g, &condition_number);
    turn_inputs(condition, g, outer, inner);
    graph_new_output(condition, NULL, graph_lt(condition, inner[TURN_NUMBER], inner[TURN_MOST]));
    body = graph_new_subgraph(g, &body_number);
    turn_inputs(body, g, outer, inner);
    roi_turn(s, body, inner, most);
    graph_id y = graph_emit_with(g, "while", TURN_OPERANDS, outer, 2,
                                 (graph_setting[]){graph_set_integer("condition", condition_number),
                                                   graph_set_integer("body", body_number)}) +
                 TURN_SUM;
    graph_id all = graph_mul(g, samples[0].count, samples[1].count), one = graph_scalar_like(g, all, 1);
    all = graph_select(g, graph_and(g, graph_ge(g, samples[0].count, one), graph_ge(g, samples[1].count, one)), all,
                       graph_scalar_like(g, all, 0));
    return most ? greatest_of(s, samples, all, y) : graph_div(g, y, to_cells(s, graph_max(g, all, one), y));
}

static void expand_roi_align(graph_expand *e) {
    graph *g = e->g;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    tir_expr dims[ROI_RANK];
    sampler s = sample(g, e->input[0], x.dim[0], x.dim[1]);
    for (int i = 0; i < ROI_RANK; i++)
        dims[i] = i == ROI_ROIS ? graph_shape_of(g, e->input[1])->dim[0] : tir_index(g->pool, 1);
    graph_id image = graph_reshape(g, graph_cast(g, e->input[2], s.index), ROI_RANK, dims);
    graph_id last = graph_dimension(g, s.index, tir_sub(g->pool, x.dim[0], tir_index(g->pool, 1)));
    image = graph_max(g, graph_min(g, image, last), graph_scalar_i64(g, s.index, 0));
    set_images(&s, image);
    graph_id rois = graph_widen(g, e->input[1]);
    const roi_line lines[] = {roi_line_of(e, rois, 0), roi_line_of(e, rois, 1)};
    graph_id y = e->attribute[ROI_SAMPLES].integer ? fixed_samples(e, &s, lines) : counted_samples(e, &s, lines);
    e->result[0] = graph_cast(g, place_channels(&s, y, 1), x.dtype);
}

/* ---- deformable_convolution */

enum { DEFORM_STRIDE, DEFORM_LOW, DEFORM_HIGH, DEFORM_DILATION, DEFORM_GROUPS, DEFORM_OFFSET_GROUPS };
enum { D_X, D_W, D_OFFSET, D_MASK, D_BIAS };
enum { DEFORM_LIMIT = 1 << 20 };

static bool is_given(const graph_infer *infer, int operand) {
    return operand < infer->inputs && infer->operand[operand].rank >= 0;
}

static void infer_deform_lists(const graph_infer *infer) {
    static const char *const names[] = {"stride", "low", "high", "dilation"};
    for (int k = DEFORM_STRIDE; k <= DEFORM_DILATION; k++) {
        const graph_attribute *list = &infer->attribute[k];
        int64_t least = k == DEFORM_STRIDE || k == DEFORM_DILATION;
        graph_infer_list(infer, list, 2, names[k]);
        for (int i = 0; i < list->count; i++)
            if (list->list[i] < least || list->list[i] > DEFORM_LIMIT)
                graph_infer_fail(infer, "%s is %lld in spatial dimension %d, expected %lld to %d", names[k],
                                 (long long)list->list[i], i, (long long)least, DEFORM_LIMIT);
    }
}

static void infer_deformable_convolution(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[D_X], *w = &infer->operand[D_W], *offset = &infer->operand[D_OFFSET];
    const graph_attribute *a = infer->attribute;
    int64_t groups = a[DEFORM_GROUPS].integer, shared = a[DEFORM_OFFSET_GROUPS].integer;
    for (int i = D_X; i <= D_OFFSET; i++) graph_infer_rank(infer, i, 4);
    graph_infer_same_dtype(infer, 0, infer->inputs);
    infer_deform_lists(infer);
    if (groups < 1 || shared < 1) graph_infer_fail(infer, "groups and offset_groups are at least 1");
    graph_infer_equal(infer, x->dim[1], tir_mul(pool, w->dim[1], tir_index(pool, groups)),
                      "channels of x and groups times those of w");
    graph_infer_equal(infer, tir_rem(pool, w->dim[0], tir_index(pool, groups)), tir_index(pool, 0),
                      "output channels modulo groups, and 0,");
    graph_infer_equal(infer, tir_rem(pool, x->dim[1], tir_index(pool, shared)), tir_index(pool, 0),
                      "channels modulo offset_groups, and 0,");
    tir_expr window = tir_mul(pool, w->dim[2], w->dim[3]), places = tir_mul(pool, window, tir_index(pool, shared));
    graph_infer_equal(infer, offset->dim[0], x->dim[0], "batches of x and offset");
    graph_infer_equal(infer, offset->dim[1], tir_mul(pool, places, tir_index(pool, 2)),
                      "channels of offset, and 2*offset_groups times the window's size,");
    infer->result[0] = *x;
    infer->result[0].dim[1] = w->dim[0];
    for (int i = 0; i < 2; i++) {
        tir_expr one = tir_index(pool, 1), dilation = tir_index(pool, graph_list_entry(&a[DEFORM_DILATION], i, 1));
        tir_expr padded =
            tir_add(pool, x->dim[2 + i],
                    tir_index(pool, graph_list_entry(&a[DEFORM_LOW], i, 0) + graph_list_entry(&a[DEFORM_HIGH], i, 0)));
        tir_expr reach = tir_add(pool, tir_mul(pool, tir_sub(pool, w->dim[2 + i], one), dilation), one);
        tir_expr outputs =
            tir_div(pool, tir_sub(pool, padded, reach), tir_index(pool, graph_list_entry(&a[DEFORM_STRIDE], i, 1)));
        outputs = tir_max(pool, tir_add(pool, outputs, one), tir_index(pool, 0));
        graph_infer_equal(infer, offset->dim[2 + i], outputs, "spatial dimensions of offset and windows");
        graph_infer_at_most(infer, one, x->dim[2 + i], "an empty image has no element to sample");
        infer->result[0].dim[2 + i] = offset->dim[2 + i];
    }
    if (is_given(infer, D_MASK)) {
        graph_infer_rank(infer, D_MASK, 4);
        const tir_expr expected[] = {x->dim[0], places, offset->dim[2], offset->dim[3]};
        for (int i = 0; i < 4; i++)
            graph_infer_equal(infer, infer->operand[D_MASK].dim[i], expected[i],
                              "dimensions of mask and of its places");
    }
    if (is_given(infer, D_BIAS)) {
        graph_infer_rank(infer, D_BIAS, 1);
        graph_infer_equal(infer, infer->operand[D_BIAS].dim[0], w->dim[0], "entries of bias and output channels");
    }
}

/* Axes of the positions: batch; groups of offsets, and parts of each, so that no part is in two groups of the convolution; row and
 * column of the window, row and column of the result. */
enum { A_BATCH, A_SHARED, A_PART, A_KY, A_KX, A_Y, A_X, A_RANK };

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Neighbours of the positions that the windows sample. */
static taps deformed_taps(graph_expand *e, const sampler *s) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape w = *graph_shape_of(g, e->input[D_W]), offset = *graph_shape_of(g, e->input[D_OFFSET]);
    const tir_expr one = tir_index(pool, 1), shared = tir_index(pool, a[DEFORM_OFFSET_GROUPS].integer);
    tir_expr apart[] = {offset.dim[0], shared, w.dim[2], w.dim[3], tir_index(pool, 2), offset.dim[2], offset.dim[3]};
    tir_expr place[A_RANK] = {offset.dim[0], shared, one, w.dim[2], w.dim[3], offset.dim[2], offset.dim[3]};
    graph_id moves = graph_reshape(g, graph_widen(g, e->input[D_OFFSET]), 7, apart);
    dlc_dtype dtype = graph_shape_of(g, moves)->dtype;
    taps t = {.count = 2, .rank = A_RANK};
    for (int axis = 0; axis < 2; axis++) {
        graph_id at = graph_slice_axis(g, moves, 4, tir_index(pool, axis), tir_index(pool, axis + 1));
        at = graph_reshape(g, at, A_RANK, place);
        graph_id window = graph_mul_number(g, counted(g, dtype, w.dim[2 + axis], A_KY + axis, A_RANK),
                                           (double)graph_list_entry(&a[DEFORM_DILATION], axis, 1));
        graph_id from = graph_mul_number(g, counted(g, dtype, offset.dim[2 + axis], A_Y + axis, A_RANK),
                                         (double)graph_list_entry(&a[DEFORM_STRIDE], axis, 1));
        from = graph_add_number(g, graph_add(g, from, window), -(double)graph_list_entry(&a[DEFORM_LOW], axis, 0));
        linear_taps(s, &t, axis, graph_add(g, from, at), true);
    }
    return t;
}

static graph_id times_mask(graph_expand *e, const sampler *s, graph_id value) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, value);
    tir_expr place[A_RANK];
    int64_t axes[A_RANK];
    for (int i = 0; i < A_RANK; i++) {
        axes[i] = i + s->planes;
        place[i] = i == A_PART ? tir_index(g->pool, 1) : shape.dim[axes[i]];
    }
    graph_id mask = graph_reshape(g, graph_widen(g, e->input[D_MASK]), A_RANK, place);
    return graph_mul(g, value, graph_broadcast(g, mask, shape.rank, shape.dim, axes));
}

/* The windows' samples times the weights, read in the order in which they were sampled: channels last, or first. The weights are the same
 * for the whole batch, but have it, since it comes first in the result: [batch, output channels, y, x]. A single group has no axis. */
static graph_id contract_samples(graph_expand *e, const sampler *s, graph_id samples) {
    enum { TERMS = 4 }; /* parts of a group, channels of a part, rows and columns of the window */
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, samples), w = *graph_shape_of(g, e->input[D_W]);
    const tir_expr *at = shape.dim + s->planes, channels = shape.dim[s->planes ? 0 : A_RANK];
    const tir_expr groups = tir_index(g->pool, e->attribute[DEFORM_GROUPS].integer);
    const tir_expr parts = tir_div(g->pool, tir_mul(g->pool, at[A_SHARED], at[A_PART]), groups);
    const int batches = e->attribute[DEFORM_GROUPS].integer > 1 ? 2 : 1, part = batches + s->planes;
    const int64_t rank = shape.rank - 2 + batches, batch[] = {s->planes, s->planes + 1}, of_weights[] = {0, 1};
    const int64_t terms[TERMS] = {part, s->planes ? 0 : rank - 1, part + 1, part + 2};
    tir_expr to[DLC_MAX_RANK], full[DLC_MAX_RANK];
    int64_t terms_of_weights[TERMS], axes[DLC_MAX_RANK];
    to[batch[0]] = full[0] = at[A_BATCH];
    if (batches > 1) to[batch[1]] = full[1] = groups;
    for (int i = A_KY; i < A_RANK; i++) to[part + 1 + i - A_KY] = at[i];
    to[terms[0]] = parts, to[terms[1]] = channels;
    full[batches] = tir_div(g->pool, w.dim[0], groups);
    for (int k = 0; k < TERMS; k++) full[terms_of_weights[k] = batches + 1 + k] = to[terms[k]];
    for (int i = 0; i < batches + TERMS; i++) axes[i] = 1 + i;
    graph_id weights = graph_reshape(g, graph_widen(g, e->input[D_W]), batches + TERMS, full + 1);
    weights = graph_broadcast(g, weights, 1 + batches + TERMS, full, axes);
    samples = graph_reshape(g, samples, (int)rank, to);
    graph_id y = graph_contract(g, weights, samples, batches, of_weights, batch, TERMS, terms_of_weights, terms);
    return graph_reshape(g, y, 4, (tir_expr[]){at[A_BATCH], w.dim[0], at[A_Y], at[A_X]});
}

static void expand_deformable_convolution(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const int64_t groups = e->attribute[DEFORM_GROUPS].integer, shared = e->attribute[DEFORM_OFFSET_GROUPS].integer;
    const graph_shape x = *graph_shape_of(g, e->input[D_X]);
    const tir_expr each = tir_index(pool, groups / greatest_divisor(groups, shared)),
                   parts = tir_mul(pool, tir_index(pool, shared), each);
    sampler s = sample(g, e->input[D_X], tir_mul(pool, x.dim[0], parts), tir_div(pool, x.dim[1], parts));
    graph_id image =
        graph_add(g, graph_mul(g, counted(g, s.index, x.dim[0], A_BATCH, A_RANK), graph_dimension(g, s.index, parts)),
                  counted(g, s.index, each, A_PART, A_RANK));
    graph_id first = counted(g, s.index, tir_index(pool, shared), A_SHARED, A_RANK);
    set_images(&s, graph_add(g, image, graph_mul(g, first, graph_dimension(g, s.index, each))));
    const taps t = deformed_taps(e, &s);
    graph_id value = sum_of_taps(&s, &t, 0);
    if (e->inputs > D_MASK && e->input[D_MASK]) value = times_mask(e, &s, value);
    graph_id y = contract_samples(e, &s, value);
    if (e->inputs > D_BIAS && e->input[D_BIAS]) {
        const graph_shape shape = *graph_shape_of(g, y);
        y = graph_add(g, y, graph_broadcast(g, graph_widen(g, e->input[D_BIAS]), 4, shape.dim, (int64_t[]){1}));
    }
    e->result[0] = graph_cast(g, y, x.dtype);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* Element of an image of two or three dimensions, 0 outside. */
static double pixel(const graph_reference_tensor *x, const int64_t *channel, const int64_t *at) {
    int64_t index[DLC_MAX_RANK] = {channel[0], channel[1]};
    for (int i = 2; i < x->rank; i++) {
        if (at[i - 2] < 0 || at[i - 2] >= x->dim[i]) return 0;
        index[i] = at[i - 2];
    }
    return x->data[graph_reference_at(x, index)];
}

/* Sum over the corners of the cell around a position. */
static double between(const graph_reference_tensor *x, const int64_t *channel, const double *at) {
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

static void reference_affine_grid(const graph_reference *r) {
    const graph_reference_tensor *theta = &r->operand[0], *y = &r->result[0];
    int64_t at[DLC_MAX_RANK] = {0};
    int spatial = y->rank - 2;
    if (graph_reference_count(y) == 0) return;
    do {
        const double *row = theta->data + (at[0] * spatial + at[1 + spatial]) * (spatial + 1);
        double sum = row[spatial];
        for (int k = 0; k < spatial; k++) {
            int64_t axis = spatial - 1 - k, n = y->dim[1 + axis];
            double i = (double)at[1 + axis];
            bool corners = r->attribute[GRID_ALIGN].integer;
            sum += row[k] * (corners ? n > 1 ? 2 * i / (double)(n - 1) - 1 : -1 : (2 * i + 1) / (double)n - 1);
        }
        y->data[graph_reference_at(y, at)] = sum;
    } while (graph_reference_next(y, at));
}

/* Reflects step by step at the nearest end. */
static double reference_padded(const graph_reference *r, double at, double n) {
    bool corners = r->attribute[SAMPLE_ALIGN].integer;
    double low = corners ? 0 : -0.5, high = corners ? n - 1 : n - 0.5;
    if (r->attribute[SAMPLE_PADDING].integer == ZEROS) return at;
    if (r->attribute[SAMPLE_PADDING].integer == REFLECTION) {
        if (high <= low) return 0;
        while (at < low || at > high) at = at < low ? 2 * low - at : 2 * high - at;
    }
    return fmin(fmax(at, 0), n - 1);
}

static double reference_cubic(const graph_reference *r, const int64_t *channel, const double *at) {
    const graph_reference_tensor *x = &r->operand[0];
    double sum = 0;
    for (int64_t i = -1; i < 3; i++)
        for (int64_t j = -1; j < 3; j++) {
            double n[] = {floor(at[0]) + (double)i, floor(at[1]) + (double)j}, weight = 1;
            int64_t place[2];
            for (int k = 0; k < 2; k++) {
                double t = fabs(at[k] - n[k]), c = -0.75;
                weight *= t <= 1  ? (c + 2) * t * t * t - (c + 3) * t * t + 1
                          : t < 2 ? c * t * t * t - 5 * c * t * t + 8 * c * t - 4 * c
                                  : 0;
                place[k] = (int64_t)reference_padded(r, n[k], (double)x->dim[2 + k]);
            }
            sum += weight * pixel(x, channel, place);
        }
    return sum;
}

static void reference_grid_sample(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *grid = &r->operand[1], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0};
    int spatial = x->rank - 2;
    if (graph_reference_count(y) == 0) return;
    do {
        double at[SPACE_MAX];
        for (int i = 0; i < spatial; i++) {
            int64_t from[DLC_MAX_RANK] = {to[0]};
            for (int k = 0; k < spatial; k++) from[1 + k] = to[2 + k];
            from[1 + spatial] = spatial - 1 - i;
            double u = grid->data[graph_reference_at(grid, from)], n = (double)x->dim[2 + i];
            at[i] = r->attribute[SAMPLE_ALIGN].integer ? (u + 1) / 2 * (n - 1) : ((u + 1) * n - 1) / 2;
            if (r->attribute[SAMPLE_MODE].integer != CUBIC) at[i] = reference_padded(r, at[i], n);
            if (r->attribute[SAMPLE_MODE].integer == NEAREST) at[i] = nearbyint(at[i]);
        }
        y->data[graph_reference_at(y, to)] =
            r->attribute[SAMPLE_MODE].integer == CUBIC ? reference_cubic(r, to, at) : between(x, to, at);
    } while (graph_reference_next(y, to));
}

static double reference_rounded(dlc_dtype dtype, double x) {
    return dtype == DLC_F32 ? (double)(float)x : x;
}

/* samples 0: their number is ceil of a cell's size, rounded to the dtype first, since ceil is discontinuous. NaN and sizes not
 * above 0 have none. */
static int64_t reference_samples(const graph_reference *r, const double *roi, int i) {
    const dlc_dtype dtype = r->operand[0].dtype;
    double scale = r->attribute[ROI_SCALE].number, place[2];
    bool half = r->attribute[ROI_COORDINATES].integer == ROI_HALF_PIXEL;
    if (r->attribute[ROI_SAMPLES].integer) return r->attribute[ROI_SAMPLES].integer;
    for (int k = 0; k < 2; k++)
        place[k] = reference_rounded(dtype, reference_rounded(dtype, roi[1 - i + 2 * k] * scale) - (half ? 0.5 : 0));
    double extent = reference_rounded(dtype, place[1] - place[0]);
    if (!half && extent < 1) extent = 1;
    double size = ceil(reference_rounded(dtype, extent / (double)r->result[0].dim[2 + i]));
    return size >= 1 ? (int64_t)size : 0;
}

/* The greatest of the neighbours in the image times their weights. */
static double greatest_between(const graph_reference_tensor *x, const int64_t *channel, const double *at) {
    double most = -INFINITY;
    for (int corner = 0; corner < 4; corner++) {
        int64_t place[2];
        double weight = 1;
        for (int i = 0; i < 2; i++) {
            double low = floor(at[i]), share = at[i] - low;
            place[i] = (int64_t)low + (corner >> i & 1);
            weight *= corner >> i & 1 ? share : 1 - share;
        }
        most = fmax(most, weight * pixel(x, channel, place));
    }
    return most;
}

static void reference_roi_align(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    bool half = r->attribute[ROI_COORDINATES].integer == ROI_HALF_PIXEL;
    int64_t to[DLC_MAX_RANK] = {0};
    if (graph_reference_count(y) == 0) return;
    do {
        const double *roi = r->operand[1].data + 4 * to[0];
        const int64_t samples[] = {reference_samples(r, roi, 0), reference_samples(r, roi, 1)};
        double sum = 0, most = -INFINITY;
        int64_t image = (int64_t)fmin(fmax(r->operand[2].data[to[0]], 0), (double)(x->dim[0] - 1));
        for (int64_t k = 0; k < samples[0] * samples[1]; k++) {
            int64_t part[] = {k / samples[1], k % samples[1]};
            double at[2], value = 0;
            bool near = true;
            for (int i = 0; i < 2; i++) {
                double scale = r->attribute[ROI_SCALE].number, shift = half ? 0.5 : 0, n = (double)x->dim[2 + i];
                double start = roi[1 - i] * scale - shift, extent = roi[3 - i] * scale - shift - start;
                if (!half) extent = fmax(extent, 1);
                at[i] = start + extent / (double)y->dim[2 + i] *
                                    ((double)to[2 + i] + ((double)part[i] + 0.5) / (double)samples[i]);
                near = near && at[i] >= -1 && at[i] <= n;
                at[i] = fmin(fmax(at[i], 0), n - 1);
            }
            const int64_t channel[] = {image, to[1]};
            bool max = r->attribute[ROI_MODE].integer == ROI_MAX;
            if (near) value = max ? greatest_between(x, channel, at) : between(x, channel, at);
            sum += value;
            most = fmax(most, value);
        }
        double all = (double)(samples[0] * samples[1]);
        y->data[graph_reference_at(y, to)] = all < 1 ? 0 : r->attribute[ROI_MODE].integer == ROI_MAX ? most : sum / all;
    } while (graph_reference_next(y, to));
}

static void reference_deformable_convolution(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[D_X], *w = &r->operand[D_W], *offset = &r->operand[D_OFFSET];
    const graph_reference_tensor *y = &r->result[0];
    const graph_attribute *a = r->attribute;
    int64_t to[DLC_MAX_RANK] = {0}, window = w->dim[2] * w->dim[3];
    if (graph_reference_count(y) == 0) return;
    do {
        int64_t group = to[1] / (w->dim[0] / a[DEFORM_GROUPS].integer);
        double sum = graph_reference_given(r, D_BIAS) ? r->operand[D_BIAS].data[to[1]] : 0;
        for (int64_t c = 0; c < w->dim[1]; c++)
            for (int64_t k = 0; k < window; k++) {
                int64_t channel = group * w->dim[1] + c, cell[] = {k / w->dim[3], k % w->dim[3]};
                int64_t place = channel / (x->dim[1] / a[DEFORM_OFFSET_GROUPS].integer) * window + k;
                double at[2], weight = w->data[((to[1] * w->dim[1] + c) * window) + k];
                for (int i = 0; i < 2; i++) {
                    int64_t from[] = {to[0], 2 * place + i, to[2], to[3]};
                    int64_t start = to[2 + i] * graph_list_entry(&a[DEFORM_STRIDE], i, 1) +
                                    cell[i] * graph_list_entry(&a[DEFORM_DILATION], i, 1) -
                                    graph_list_entry(&a[DEFORM_LOW], i, 0);
                    at[i] = (double)start + offset->data[graph_reference_at(offset, from)];
                }
                if (graph_reference_given(r, D_MASK)) {
                    int64_t from[] = {to[0], place, to[2], to[3]};
                    weight *= r->operand[D_MASK].data[graph_reference_at(&r->operand[D_MASK], from)];
                }
                sum += weight * between(x, (int64_t[]){to[0], channel}, at);
            }
        y->data[graph_reference_at(y, to)] = sum;
    } while (graph_reference_next(y, to));
}

#endif

/* ---- rows */

#define FORM(name_, least_, most_, operands_, dtypes_, tolerance_)                                      \
    .name = #name_, .class_ = GRAPH_COMPOSITE, .min_inputs = least_, .max_inputs = most_, .results = 1, \
    .operands = operands_, .dtypes = dtypes_, .algebra = GRAPH_EXCESS, .infer = infer_##name_,          \
    .expand = expand_##name_, .reference = GRAPH_REFERENCE(reference_##name_), .tolerance = tolerance_
#define ALIGN                                                      \
    {                                                              \
        "align_corners", GRAPH_ATTR_BOOL, NULL, "false",           \
            "-1 and 1 are the middles of the outermost elements; " \
            "else their outer edges"                               \
    }

static const graph_op row_affine_grid = {
    FORM(affine_grid, 1, 1, "theta", "float", 32),
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "2 or 3 spatial dimensions"}, ALIGN},
    .samples = "affine_grid(T[2, 2, 3], shape=[3, 4])\naffine_grid(T[1, 3, 4], shape=[2, 3, 4], align_corners=true)\n"
               "affine_grid(T[1, 2, 3], shape=[1, 5], align_corners=true)\naffine_grid(T[0, 2, 3], shape=[2, 2])",
    .doc = "theta times (x, y[, z], 1) for each point of a grid over -1..1: theta [batch, s, s + 1], result [batch, "
           "spatial..., s]; x counts along the last spatial dimension. ONNX AffineGrid.",
};

static const graph_op row_grid_sample = {
    FORM(grid_sample, 2, 2, "x grid", "f32 f64", 256),
    .attribute = {{"mode", GRAPH_ATTR_ENUM, "nearest linear cubic", "linear",
                   "nearest (halves to even), or a sum over 2 or 4 neighbours along each axis"},
                  {"padding", GRAPH_ATTR_ENUM, "zeros border reflection", "zeros",
                   "what stands outside x: zeros, its border, or x mirrored"},
                  ALIGN},
    .samples =
        "grid_sample(T[2, 3, 5, 7], T[2, 4, 3, 2] in -1..1)\n"
        "grid_sample(T[1, 2, 5, 7], T[1, 4, 3, 2] in -3..3, padding=border, align_corners=true)\n"
        "grid_sample(T[1, 2, 5, 7], T[1, 4, 3, 2] in -3..3, padding=reflection)\n"
        "grid_sample(T[1, 2, 5, 7], T[1, 4, 3, 2] in -2..2, mode=nearest)\n"
        "grid_sample(T[2, 1, 4, 3], T[2, 3, 5, 2] in -2..2, mode=cubic)\n"
        "grid_sample(T[1, 1, 4, 3], T[1, 3, 5, 2] in -3..3, mode=cubic, padding=reflection, align_corners=true)\n"
        "grid_sample(T[1, 1, 4, 3], T[1, 3, 5, 2] in -3..3, mode=cubic, padding=border)\n"
        "grid_sample(T[1, 2, 3, 4, 5], T[1, 2, 3, 2, 3] in -2..2)\n"
        "grid_sample(T[1, 1, 1, 1], T[1, 2, 2, 2] in -3..3, padding=reflection, align_corners=true)\n"
        "grid_sample(T[2, 17, 5, 7], T[2, 4, 3, 2] in -2..2)\n"
        "grid_sample(T[0, 2, 3, 3], T[0, 2, 2, 2])",
    .doc =
        "x [batch, channels, 2 or 3 spatial dimensions] at the positions of grid [batch, spatial of the result..., s], -1 to 1 "
        "from end to end, the last dimension's first: y[n, c, o...]. cubic: Keys' kernel with a = -0.75, of 2 dimensions only, as in ONNX. "
        "border and reflection move positions, with cubic the neighbours. ONNX GridSample; Jaderberg et al. 2015.",
};

static const graph_op row_roi_align = {
    FORM(roi_align, 3, 3, "x rois images", "f32 f64", 256),
    .attribute =
        {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "rows and columns of the result"},
         {"samples", GRAPH_ATTR_INTEGER, NULL, "2",
          "along each side of a cell of the result; 1 to 64; 0: as many as the cell is wide and high in elements "
          "of x, rounded up"},
         {"spatial_scale", GRAPH_ATTR_FLOAT, NULL, "1.0", "from the rois' units to elements of x"},
         {"mode", GRAPH_ATTR_ENUM, "average max", "average", "of the samples of a cell"},
         {"coordinates", GRAPH_ATTR_ENUM, "half_pixel output_half_pixel", "half_pixel",
          "half_pixel: an element's middle is at 0.5; output_half_pixel: at 0, and rois are at least 1 wide"}},
    .samples = "roi_align(T[2, 3, 7, 9], T[3, 4] in 0..6, i64[3] in 0..2, shape=[2, 3])\n"
               "roi_align(T[1, 2, 7, 9], T[4, 4] in -3..12, i32[4] in 0..1, shape=[3, 2], samples=3, mode=max)\n"
               "roi_align(T[2, 1, 5, 5], T[2, 4] in 0..9, i32[2] in -1..3, shape=[1, 1], spatial_scale=0.5, "
               "coordinates=output_half_pixel)\n"
               "roi_align(T[2, 19, 7, 9], T[3, 4] in -3..12, i64[3] in 0..2, shape=[2, 3])\n"
               "roi_align(T[1, 2, 4, 4], T[0, 4], i64[0], shape=[2, 2])\n"
               "roi_align(T[2, 3, 7, 9], T[6, 4] in 0..9, i64[6] in 0..2, shape=[2, 3], samples=0)\n"
               "roi_align(T[2, 9, 7, 9], T[9, 4] in -30..40, i64[9] in 0..2, shape=[2, 3], samples=0)\n"
               "roi_align(T[1, 2, 5, 6], T[9, 4] in -30..40, i32[9] in 0..1, shape=[3, 1], samples=0, mode=max)\n"
               "roi_align(T[2, 11, 5, 6], T[7, 4] in -9..19, i64[7] in 0..2, shape=[1, 2], samples=0, mode=max, "
               "spatial_scale=0.7, coordinates=output_half_pixel)\n"
               "roi_align(T[1, 1, 1, 1], T[5, 4] in -9..9, i64[5] in 0..1, shape=[1, 2], samples=0, "
               "coordinates=output_half_pixel)\n"
               "roi_align(T[1, 2, 4, 4], T[0, 4], i64[0], shape=[2, 2], samples=0)\n"
               "roi_align(T[1, 2, 4, 4], T[2, 4], i64[2], shape=[0, 2], samples=0, mode=max)",
    .doc =
        "Cells of regions of x [batch, channels, height, width]: rois [rois, 4] x1 y1 x2 y2, images [rois] their images; result "
        "[rois, channels, rows, columns]. A cell is the mean of samples^2 values, interpolated linearly, or with mode=max the greatest of "
        "the products of neighbour and weight that such values are sums of; more than 1 outside x they are 0. With samples=0 a cell that is not above 0 wide and high, or no number, is 0; "
        "a run takes as long as if all cells had as many samples in x as the one with the most. Numbers of images outside are clamped. ONNX RoiAlign, samples "
        "being its sampling_ratio ; He et al. 2017.",
};

static const graph_op row_deformable_convolution = {
    .aliases = "deform_conv",
    FORM(deformable_convolution, 3, 5, "x w offset [mask] [bias]", "f32 f64", 64),
    .attribute = {{"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the windows; empty: 1"},
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before the first element; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after the last element; empty: 0"},
                  {"dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a window; empty: 1"},
                  {"groups", GRAPH_ATTR_INTEGER, NULL, "1",
                   "channels are divided into as many independent convolutions"},
                  {"offset_groups", GRAPH_ATTR_INTEGER, NULL, "1", "channels of a group share their offsets"}},
    .samples =
        "deformable_convolution(T[1, 2, 5, 6], T[3, 2, 2, 2], T[1, 8, 4, 5])\n"
        "deformable_convolution(T[2, 4, 5, 5], T[4, 2, 3, 3], T[2, 36, 3, 3], T[2, 18, 3, 3], T[4], stride=[2, 2], "
        "low=[1, 1], high=[1, 1], groups=2, offset_groups=2)\n"
        "deformable_convolution(T[1, 1, 6, 6], T[1, 1, 2, 2], T[1, 8, 4, 4], _, T[1], dilation=[2, 2])\n"
        "deformable_convolution(T[1, 16, 5, 6], T[3, 16, 2, 2], T[1, 16, 4, 5], offset_groups=2)\n"
        "deformable_convolution(T[1, 6, 5, 4], T[4, 3, 2, 2], T[1, 24, 4, 3], T[1, 12, 4, 3], groups=2, offset_groups=3)\n"
        "deformable_convolution(T[2, 8, 4, 4], T[4, 2, 2, 2], T[2, 16, 3, 3], T[2, 8, 3, 3], groups=4, offset_groups=2)\n"
        "deformable_convolution(T[2, 64, 3, 4], T[6, 32, 1, 2], T[2, 16, 3, 3], groups=2, offset_groups=4)\n"
        "deformable_convolution(T[0, 1, 3, 3], T[2, 1, 1, 1], T[0, 2, 3, 3])",
    .doc =
        "A convolution whose elements of the window lie where offset moves them, interpolated linearly, 0 outside x, and times mask: "
        "x [batch, channels, height, width], w [output channels, channels/groups, window], offset [batch, offset_groups * "
        "window * 2 (row, column), result...], mask [batch, offset_groups * window, result...], bias [output "
        "channels]. ONNX DeformConv; Dai et al. 2017, Zhu et al. 2019.",
};

const graph_op *const graph_ops_sample[] = {&row_affine_grid, &row_grid_sample, &row_roi_align,
                                            &row_deformable_convolution, NULL};
