/* Pools over whole images or to a given size: composites in addition to those of sliding windows (ops_window.c), and the inverse
 * of max pooling. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* Number of dimensions after batch and channels; raises if there are none. */
static int spatial_of(const graph_infer *infer) {
    int spatial = infer->operand[0].rank - 2;
    if (spatial < 1)
        graph_infer_fail(infer, "x has rank %d, expected at least 3: batch, channels, spatial dimensions",
                         infer->operand[0].rank);
    return spatial;
}

/* ---- global_pool */

enum { GLOBAL_MODE, GLOBAL_POWER };
enum { POOL_AVERAGE, POOL_MAX, POOL_LP };

static void infer_global_pool(graph_infer *infer) {
    int spatial = spatial_of(infer);
    const int64_t p = infer->attribute[GLOBAL_POWER].integer;
    if (p < 1 || p > 1 << 20) graph_infer_fail(infer, "p is %lld, expected 1 to %d", (long long)p, 1 << 20);
    infer->result[0] = infer->operand[0];
    for (int i = 0; i < spatial; i++) infer->result[0].dim[2 + i] = tir_index(infer->g->pool, 1);
}

static void expand_global_pool(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int64_t mode = e->attribute[GLOBAL_MODE].integer, p = e->attribute[GLOBAL_POWER].integer;
    int64_t axes[DLC_MAX_RANK];
    for (int i = 2; i < shape.rank; i++) axes[i - 2] = i;
    graph_id x = graph_widen(g, e->input[0]), y;
    if (mode == POOL_LP) {
        graph_id power = p == 2 ? graph_mul(g, x, x) : graph_abs(g, x);
        if (p > 2) power = graph_pow(g, power, graph_scalar_like(g, x, (double)p));
        y = graph_reduce_sum(g, power, shape.rank - 2, axes, true);
        if (p == 2) y = graph_sqrt(g, y);
        if (p > 2) y = graph_pow(g, y, graph_scalar_like(g, y, 1 / (double)p));
    } else {
        y = mode == POOL_MAX ? graph_reduce_max(g, x, shape.rank - 2, axes, true)
                             : graph_reduce_mean(g, x, shape.rank - 2, axes, true);
    }
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- adaptive_pool: along an axis of size n, element i of m is that of x from floor(i*n/m) to ceil((i + 1)*n/m) */

enum { ADAPTIVE_SHAPE, ADAPTIVE_MODE };

static void infer_adaptive_pool(graph_infer *infer) {
    int spatial = spatial_of(infer);
    const graph_attribute *shape = &infer->attribute[ADAPTIVE_SHAPE];
    if (infer->operand[0].rank == DLC_MAX_RANK) graph_infer_fail(infer, "x has rank %d, expected less", DLC_MAX_RANK);
    if (shape->count != spatial)
        graph_infer_fail(infer, "shape has %d entries, expected one for each of %d spatial dimensions", shape->count,
                         spatial);
    infer->result[0] = infer->operand[0];
    for (int i = 0; i < spatial; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension of shape is negative");
        graph_infer_at_most(infer, tir_index(infer->g->pool, 1), infer->operand[0].dim[2 + i],
                            "x is empty along a spatial dimension, expected at least 1 element");
        infer->result[0].dim[2 + i] = shape->dims[i];
    }
}

/* Pools x along one axis to `out` parts: gathers for each part as many elements as the widest part has; those beyond a part's end repeat
 * its last element, and have weight 0 in means. */
static graph_id pool_axis(graph_expand *e, graph_id x, int axis, tir_expr out) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    tir_expr in = graph_shape_of(g, x)->dim[axis], one = tir_index(pool, 1), some = tir_max(pool, out, one);
    tir_expr dims[2] = {out, tir_min(pool, tir_add(pool, tir_ceil_div(pool, in, some), one), in)};
    graph_id i = graph_iota(g, DLC_I64, 2, dims, 0), n = graph_dimension(g, DLC_I64, in);
    graph_id m = graph_dimension(g, DLC_I64, some), unit = graph_scalar_i64(g, DLC_I64, 1);
    graph_id start = graph_div(g, graph_mul(g, i, n), m);
    graph_id end = graph_add(g, graph_mul(g, graph_add(g, i, unit), n), graph_sub(g, m, unit));
    end = graph_div(g, end, m);
    graph_id place = graph_add(g, start, graph_iota(g, DLC_I64, 2, dims, 1));
    graph_id part = graph_gather(g, x, graph_min(g, place, graph_sub(g, end, unit)), axis);
    int64_t axes[] = {axis, axis + 1};
    if (e->attribute[ADAPTIVE_MODE].integer == POOL_MAX) return graph_reduce_max(g, part, 1, axes + 1, false);
    const graph_shape shape = *graph_shape_of(g, part);
    graph_id size = graph_cast(g, graph_sub(g, end, start), shape.dtype), zero = graph_scalar_like(g, size, 0);
    graph_id weight = graph_select(g, graph_lt(g, place, end), graph_div(g, graph_scalar_like(g, size, 1), size), zero);
    part = graph_mul(g, part, graph_broadcast(g, weight, shape.rank, shape.dim, axes));
    return graph_reduce_sum(g, part, 1, axes + 1, false);
}

static void expand_adaptive_pool(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    graph_id y = graph_widen(g, e->input[0]);
    for (int i = 2; i < shape.rank; i++) y = pool_axis(e, y, i, e->attribute[ADAPTIVE_SHAPE].dims[i - 2]);
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- max_unpool: writes x to the indices of a max pool, row-major positions in the whole result */

static void infer_max_unpool(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[0];
    const graph_shape *x = &infer->operand[0], *indices = &infer->operand[1];
    graph_infer_indices(infer, 1);
    graph_infer_rank(infer, 1, x->rank);
    for (int i = 0; i < x->rank; i++)
        graph_infer_equal(infer, x->dim[i], indices->dim[i], "dimensions of x and of indices");
    if (shape->count > DLC_MAX_RANK)
        graph_infer_fail(infer, "rank %d is above the highest, %d", shape->count, DLC_MAX_RANK);
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = shape->count};
    for (int i = 0; i < shape->count; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension of shape is negative");
        infer->result[0].dim[i] = shape->dims[i];
    }
    graph_infer_product(infer, shape->count, shape->dims);
    graph_infer_product(infer, x->rank, x->dim);
}

static void expand_max_unpool(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *shape = &e->attribute[0];
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    tir_expr all = tir_index(g->pool, 1), given = all;
    for (int i = 0; i < shape->count; i++) all = tir_mul(g->pool, all, shape->dims[i]);
    for (int i = 0; i < x.rank; i++) given = tir_mul(g->pool, given, x.dim[i]);
    graph_id operands[] = {graph_full(g, x.dtype, 1, &all, 0), graph_reshape(g, e->input[1], 1, &given),
                           graph_reshape(g, e->input[0], 1, &given)};
    graph_setting along = graph_set_integer("axis", 0);
    e->result[0] = graph_reshape(g, graph_emit_with(g, "scatter", 3, operands, 1, &along), shape->count, shape->dims);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* The pool of the box start[] to end[] of x, of the batch element and channel of `to`. */
static double reference_box(const graph_reference_tensor *x, const int64_t *to, const int64_t *start,
                            const int64_t *end, int64_t mode, int64_t p) {
    int64_t at[DLC_MAX_RANK] = {0};
    double sum = 0, most = -INFINITY, powers = 0, count = 0;
    if (graph_reference_count(x)) do {
            bool inside = at[0] == to[0] && at[1] == to[1];
            for (int i = 2; i < x->rank; i++) inside = inside && at[i] >= start[i] && at[i] < end[i];
            if (!inside) continue;
            double value = x->data[graph_reference_at(x, at)];
            sum += value, count++, powers += pow(fabs(value), (double)p);
            if (isnan(value) || value > most) most = isnan(most) ? most : value;
        } while (graph_reference_next(x, at));
    return mode == POOL_MAX ? most : mode == POOL_LP ? pow(powers, 1 / (double)p) : sum / count;
}

static void reference_pool_to(const graph_reference *r, int64_t mode, int64_t p) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, start[DLC_MAX_RANK], end[DLC_MAX_RANK];
    if (graph_reference_count(y) == 0) return;
    do {
        for (int i = 2; i < x->rank; i++) {
            start[i] = to[i] * x->dim[i] / y->dim[i];
            end[i] = ((to[i] + 1) * x->dim[i] + y->dim[i] - 1) / y->dim[i];
        }
        y->data[graph_reference_at(y, to)] = reference_box(x, to, start, end, mode, p);
    } while (graph_reference_next(y, to));
}
static void reference_global_pool(const graph_reference *r) {
    reference_pool_to(r, r->attribute[GLOBAL_MODE].integer, r->attribute[GLOBAL_POWER].integer);
}
static void reference_adaptive_pool(const graph_reference *r) {
    reference_pool_to(r, r->attribute[ADAPTIVE_MODE].integer, 1);
}

static void reference_max_unpool(const graph_reference *r) {
    int64_t all = graph_reference_count(&r->result[0]);
    for (int64_t i = 0; i < graph_reference_count(&r->operand[0]); i++) {
        int64_t at = (int64_t)r->operand[1].data[i];
        if (at >= 0 && at < all) r->result[0].data[at] = r->operand[0].data[i];
    }
}

#endif

/* ---- rows */

#define FORM(name_, inputs_, operands_, dtypes_, tolerance_) \
    COMPOSITE_ROW(name_, inputs_, inputs_, 1, operands_, dtypes_), .infer = infer_##name_, .tolerance = tolerance_

static const graph_op row_global_pool = {
    FORM(global_pool, 1, "x", "float", 64),
    .algebra = GRAPH_EXCESS,
    .attribute = {{"mode", GRAPH_ATTR_ENUM, "average max lp", NULL, "mean, greatest, or (sum |x|^p)^(1/p)"},
                  {"p", GRAPH_ATTR_INTEGER, NULL, "2", "exponent of lp"}},
    .samples = "global_pool(T[2, 3, 5, 4], mode=average)\nglobal_pool(T[2, 3, 7], mode=max)\n"
               "global_pool(T[1, 2, 3, 2, 4], mode=lp)\nglobal_pool(T[2, 2, 5] in 1..2, mode=lp, p=3)\n"
               "global_pool(T[0, 3, 5, 4], mode=max)",
    .doc = "One number for each channel of x [batch, channels, spatial...]; the spatial dimensions stay, as 1. ONNX "
           "GlobalAveragePool, GlobalMaxPool, GlobalLpPool.",
};
static const graph_op row_adaptive_pool = {
    FORM(adaptive_pool, 1, "x", "float", 64),
    .algebra = GRAPH_EXCESS,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "spatial dimensions of the result"},
                  {"mode", GRAPH_ATTR_ENUM, "average max", "average", "what to do with the elements of a part"}},
    .samples =
        "adaptive_pool(T[2, 3, 7, 5], shape=[3, 2])\nadaptive_pool(T[1, 2, 10], shape=[4], mode=max)\n"
        "adaptive_pool(T[1, 2, 3, 4], shape=[5, 6])\nadaptive_pool(T[1, 1, 4, 5, 6], shape=[2, 2, 1], mode=max)\n"
        "adaptive_pool(T[0, 2, 4], shape=[2])",
    .doc = "Pools to a given size: along a dimension of size n, element i of m stands for the elements floor(i*n/m) to "
           "ceil((i + 1)*n/m) - 1. PyTorch AdaptiveAvgPool, AdaptiveMaxPool.",
};
static const graph_op row_max_unpool = {
    FORM(max_unpool, 2, "x indices", "any", 0),
    .linear = 1,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"}},
    .samples = "max_unpool(T[1, 2, 3], i64[1, 2, 3] in 0..20, shape=[1, 2, 10])\n"
               "max_unpool(T[1, 1, 2, 2], i32[1, 1, 2, 2] in 0..16, shape=[1, 1, 4, 4])\n"
               "max_unpool(T[0, 1, 2], i64[0, 1, 2], shape=[0, 1, 4])",
    .doc =
        "0 but for the elements of x, which go to the places that indices count in row-major order of the result; the last one of "
        "equals stays, places outside are dropped. ONNX MaxUnpool.",
};

const graph_op *const graph_ops_pool[] = {&row_global_pool, &row_adaptive_pool, &row_max_unpool, NULL};
