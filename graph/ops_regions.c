/* Sampling in regions and windows of data-dependent places: roi_align, deformable_convolution. */
#include "graph/sample.h"

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

/* Entry k of each row of rois, scaled, along axis ROI_ROIS. */
static graph_id roi_entry(graph_expand *e, graph_id rois, int k) {
    graph *g = e->g;
    tir_expr dims[ROI_RANK];
    for (int i = 0; i < ROI_RANK; i++)
        dims[i] = i == ROI_ROIS ? graph_shape_of(g, rois)->dim[0] : tir_index(g->pool, 1);
    graph_id entry = graph_slice_axis(g, rois, 1, tir_index(g->pool, k), tir_index(g->pool, k + 1));
    entry = graph_mul_number(g, graph_reshape(g, entry, ROI_RANK, dims), e->attribute[ROI_SCALE].number);
    return e->attribute[ROI_COORDINATES].integer == ROI_HALF_PIXEL ? graph_add_number(g, entry, -0.5) : entry;
}

/* Along one spatial axis: where each roi starts, and the size of its cells (bin). */
typedef struct roi_line {
    /* cell: number of the cell, along its axis of the result */
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

/* With samples=0 the number of a cell's samples along an axis is its size, rounded up, which depends on data. The distance of several
 * samples is above 1/2, so that the image's size bounds the number near the image, for cells of any size. A loop visits only those, a few
 * of every cell per iteration, until no cell has any left. */
enum { ROI_TURN = 4, ROI_MARGIN = 3 }; /* samples per iteration; rounding shifts each end by less than 1 */

/* The samples of a cell along an axis. */
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

/* The samples of each cell along the axis. Cells with NaN or without width have none within: casts convert NaN to 0. */
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

/* A value for each cell, or for each roi, broadcast to the shape of y. */
static graph_id to_cells(const sampler *s, graph_id value, graph_id y) {
    graph *g = s->g;
    const graph_shape shape = *graph_shape_of(g, value), to = *graph_shape_of(g, y);
    return graph_broadcast(g, graph_reshape(g, value, ROI_RANK - ROI_ROIS, shape.dim + ROI_ROIS), to.rank, to.dim,
                           s->planes ? (int64_t[]){1, 2, 3} : (int64_t[]){0, 1, 2});
}

/* The maximum of all samples, where y is that of the samples near the image. Others count as 0: there are such if the first or last sample along
 * an axis is not near. all: number of all samples; without any, the result is 0. */
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
    /* clamped before it is narrowed */
    const graph_id last = graph_dimension(g, DLC_I64, tir_sub(g->pool, x.dim[0], tir_index(g->pool, 1)));
    graph_id image = graph_reshape(g, graph_cast(g, e->input[2], DLC_I64), ROI_RANK, dims);
    image = graph_max(g, graph_min(g, image, last), graph_scalar_i64(g, DLC_I64, 0));
    image = graph_cast(g, image, s.index);
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

/* Axes of the positions: batch; groups of offsets; parts of such a group, so that no part is in two groups of the convolution; row and
 * column of the window; row and column of the result. */
enum { A_BATCH, A_SHARED, A_PART, A_KY, A_KX, A_Y, A_X, A_RANK };

/* The neighbours of the positions at which the windows sample, moved by the offsets. */
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

/* The contraction of the samples, whose channels are last or, with planes, first, with the weights: [batch, output channels, y, x]. The
 * weights are broadcast along the batch, so that it is a batch axis and comes first in the result. A single group has no axis. */
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
    const tir_expr each = tir_index(pool, groups / tir_gcd(groups, shared)),
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

static double reference_rounded(dlc_dtype dtype, double x) {
    return dtype == DLC_F32 ? (double)(float)x : x;
}

/* The number of samples of a cell of the roi along axis i. With samples=0 it is ceil of the cell's size, which is rounded to the dtype first,
 * since ceil is discontinuous; 0 for NaN and sizes not above 0. */
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

/* The greatest of the four neighbours of the position (0 outside of the image) times their weights. */
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
    GRAPH_REFERENCE_EACH(y, to) {
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
    }
}

static void reference_deformable_convolution(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[D_X], *w = &r->operand[D_W], *offset = &r->operand[D_OFFSET];
    const graph_reference_tensor *y = &r->result[0];
    const graph_attribute *a = r->attribute;
    int64_t to[DLC_MAX_RANK] = {0}, window = w->dim[2] * w->dim[3];
    GRAPH_REFERENCE_EACH(y, to) {
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
    }
}

#endif

/* ---- rows */

static const graph_op row_roi_align = {
    SAMPLE_FORM(roi_align, 3, 3, "x rois images", "f32 f64", 256),
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
    SAMPLE_FORM(deformable_convolution, 3, 5, "x w offset [mask] [bias]", "f32 f64", 64),
    .precision = GRAPH_NARROW,
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

const graph_op *const graph_ops_regions[] = {&row_roi_align, &row_deformable_convolution, NULL};
