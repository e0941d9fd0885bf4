/* Sampling on grids of data-dependent positions: affine_grid, grid_sample. */
#include "graph/sample.h"

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

/* Positions reflected at the image's ends: the centres of the outermost elements if `corners`, else their outer edges. */
static graph_id reflect(const sampler *s, int axis, graph_id at, bool corners) {
    graph *g = s->g;
    double low = corners ? 0 : -0.5;
    tir_expr n = s->size[axis], one = tir_index(g->pool, 1);
    tir_expr span = corners ? tir_max(g->pool, tir_sub(g->pool, n, one), one) : n;
    graph_id way = graph_dimension(g, graph_shape_of(g, at)->dtype, tir_mul(g->pool, span, tir_index(g->pool, 2)));
    graph_id m = graph_rem(g, graph_abs(g, graph_add_number(g, at, -low)), way);
    return graph_add_number(g, graph_min(g, m, graph_sub(g, way, m)), low);
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

/* ---- references */

#ifdef DLC_REFERENCE

static void reference_affine_grid(const graph_reference *r) {
    const graph_reference_tensor *theta = &r->operand[0], *y = &r->result[0];
    int64_t at[DLC_MAX_RANK] = {0};
    int spatial = y->rank - 2;
    GRAPH_REFERENCE_EACH(y, at) {
        const double *row = theta->data + (at[0] * spatial + at[1 + spatial]) * (spatial + 1);
        double sum = row[spatial];
        for (int k = 0; k < spatial; k++) {
            int64_t axis = spatial - 1 - k, n = y->dim[1 + axis];
            double i = (double)at[1 + axis];
            bool corners = r->attribute[GRID_ALIGN].integer;
            sum += row[k] * (corners ? n > 1 ? 2 * i / (double)(n - 1) - 1 : -1 : (2 * i + 1) / (double)n - 1);
        }
        y->data[graph_reference_at(y, at)] = sum;
    }
}

/* The position `at` of an image of n elements after padding is applied: reflected step by step, or limited to the image. */
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
    GRAPH_REFERENCE_EACH(y, to) {
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
    }
}

#endif

/* ---- rows */

#define ALIGN                                                      \
    {                                                              \
        "align_corners", GRAPH_ATTR_BOOL, NULL, "false",           \
            "-1 and 1 are the middles of the outermost elements; " \
            "else their outer edges"                               \
    }

static const graph_op row_affine_grid = {
    SAMPLE_FORM(affine_grid, 1, 1, "theta", "float", 32),
    .linear = 1,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "2 or 3 spatial dimensions"}, ALIGN},
    .samples = "affine_grid(T[2, 2, 3], shape=[3, 4])\naffine_grid(T[1, 3, 4], shape=[2, 3, 4], align_corners=true)\n"
               "affine_grid(T[1, 2, 3], shape=[1, 5], align_corners=true)\naffine_grid(T[0, 2, 3], shape=[2, 2])",
    .doc = "theta times (x, y[, z], 1) for each point of a grid over -1..1: theta [batch, s, s + 1], result [batch, "
           "spatial..., s]; x counts along the last spatial dimension. ONNX AffineGrid.",
};

static const graph_op row_grid_sample = {
    SAMPLE_FORM(grid_sample, 2, 2, "x grid", "f32 f64", 256),
    .linear = 1,
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

const graph_op *const graph_ops_sample[] = {&row_affine_grid, &row_grid_sample, NULL};
