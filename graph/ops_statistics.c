/* Operators based on sorting and counting: median, quantile, histogram, bincount, lexsort. Composites of sort, search_sorted and
 * scatter. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

/* ---- median, quantile --------------------------------------------------------------------------------------------- */

#define METHODS(X) X(linear) X(lower) X(higher) X(nearest) X(midpoint)
#define X(word) METHOD_##word,
enum { METHODS(X) };
#undef X
enum { MEDIAN_AXIS, MEDIAN_KEEP, MEDIAN_IGNORE };
enum { QUANTILE_AXIS, QUANTILE_METHOD, QUANTILE_KEEP, QUANTILE_IGNORE };

static void infer_line(graph_infer *infer, int64_t given, bool keep, int front) {
    const graph_shape *x = &infer->operand[0];
    int axis = graph_infer_axis(infer, given, x->rank, "axis");
    graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[axis], "the axis has no element");
    graph_shape *y = &infer->result[0];
    *y = *x;
    if (x->rank + front - !keep > DLC_MAX_RANK)
        graph_infer_fail(infer, "a result of rank %d, expected %d at most", x->rank + front - !keep, DLC_MAX_RANK);
    y->rank = 0;
    if (front) y->dim[y->rank++] = infer->operand[1].dim[0];
    for (int d = 0; d < x->rank; d++)
        if (keep || d != axis) y->dim[y->rank++] = d == axis ? tir_index(infer->g->pool, 1) : x->dim[d];
}

static void infer_median(graph_infer *infer) {
    infer_line(infer, infer->attribute[MEDIAN_AXIS].integer, infer->attribute[MEDIAN_KEEP].integer, 0);
}

static void infer_quantile(graph_infer *infer) {
    graph_infer_same_dtype(infer, 0, 2);
    if (infer->operand[1].rank > 1)
        graph_infer_fail(infer, "q has rank %d, expected a number or a vector of them", infer->operand[1].rank);
    infer_line(infer, infer->attribute[QUANTILE_AXIS].integer, infer->attribute[QUANTILE_KEEP].integer,
               infer->operand[1].rank);
}

/* The elements at index [..., k] of the lines of x [..., n]. */
static graph_id take(graph *g, graph_id x, graph_id index) {
    return graph_gather_elements(g, x, index, graph_shape_of(g, x)->rank - 1);
}

/* Quantiles q [k] (f64, within 0..1) of the lines x [..., n] in f32 or f64: [..., k]. */
static graph_id quantiles(graph *g, graph_id x, graph_id q, int64_t method, bool ignore) {
    const int rank = graph_shape_of(g, x)->rank;
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    const int64_t last = rank - 1;
    graph_shape shape = *graph_shape_of(g, x), index = shape;
    index.dim[rank - 1] = graph_shape_of(g, q)->dim[0];
    graph_id sorted = graph_emit_with(g, "sort", 1, &x, 0, NULL), is_number = graph_eq(g, x, x), count;
    count = ignore ? graph_reduce_sum(g, graph_cast(g, is_number, DLC_I64), 1, &last, true)
                   : graph_dimension(g, DLC_I64, shape.dim[rank - 1]);
    graph_id one = graph_scalar_i64(g, DLC_I64, 1), zero = graph_scalar_i64(g, DLC_I64, 0);
    graph_id most = graph_max(g, graph_sub(g, count, one), zero);
    graph_id at = graph_mul(g, q, graph_cast(g, most, DLC_F64)); /* between 0 and n - 1 */
    if (method == METHOD_lower) at = graph_floor(g, at);
    if (method == METHOD_higher) at = graph_ceil(g, at);
    if (method == METHOD_nearest) at = graph_round(g, at); /* halves to even */
    graph_id floor = graph_floor(g, at), share = graph_sub(g, at, floor);
    if (method == METHOD_midpoint)
        share =
            graph_select(g, graph_gt(g, share, graph_full_like(g, share, 0)), graph_full_like(g, share, 0.5), share);
    graph_id low = graph_broadcast_to(g, graph_cast(g, floor, DLC_I64), rank, index.dim);
    graph_id high = graph_min(g, graph_add(g, low, one), most);
    graph_id a = take(g, sorted, low), b = take(g, sorted, high);
    graph_id t = graph_broadcast_to(g, graph_cast(g, share, dtype), rank, index.dim), gap = graph_sub(g, b, a);
    graph_id rest = graph_sub(g, graph_scalar_like(g, t, 1), t);
    graph_id from_low = graph_add(g, a, graph_mul(g, gap, t)), from_high = graph_sub(g, b, graph_mul(g, gap, rest));
    graph_id y = graph_select(g, graph_ge(g, t, graph_scalar_like(g, t, 0.5)), from_high, from_low);
    graph_id same = graph_or(g, graph_eq(g, a, b), graph_eq(g, t, graph_scalar_like(g, t, 0)));
    y = graph_select(g, same, a, y);
    graph_id usable = ignore ? graph_gt(g, count, zero) : graph_reduce_and(g, is_number, 1, &last, true);
    return graph_select(g, usable, y, graph_scalar_like(g, y, (double)NAN));
}

/* x with `axis` moved to the end. */
static graph_id axis_last(graph *g, graph_id x, int axis) {
    const int rank = graph_shape_of(g, x)->rank;
    int64_t order[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) order[d] = d < axis ? d : d + 1 < rank ? d + 1 : axis;
    return graph_transpose(g, x, order);
}

static void expand_median(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int axis = graph_axis_of(e->attribute[MEDIAN_AXIS].integer, shape.rank);
    tir_expr one = tir_index(g->pool, 1);
    graph_id half = graph_full(g, DLC_F64, 1, &one, 0.5), x = axis_last(g, graph_widen(g, e->input[0]), axis);
    graph_id y = quantiles(g, x, half, METHOD_midpoint, e->attribute[MEDIAN_IGNORE].integer);
    y = graph_cast(g, graph_squeeze(g, y, shape.rank - 1), shape.dtype);
    e->result[0] = e->attribute[MEDIAN_KEEP].integer ? graph_expand_dims(g, y, axis) : y;
}

static void expand_quantile(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int axis = graph_axis_of(e->attribute[QUANTILE_AXIS].integer, shape.rank), rank = shape.rank;
    const bool many = graph_shape_of(g, e->input[1])->rank == 1, keep = e->attribute[QUANTILE_KEEP].integer;
    graph_id q = graph_cast(g, many ? e->input[1] : graph_expand_dims(g, e->input[1], 0), DLC_F64);
    q = graph_clamp(g, graph_scalar(g, DLC_F64, 0), q, graph_scalar(g, DLC_F64, 1));
    graph_id x = axis_last(g, graph_widen(g, e->input[0]), axis);
    graph_id y = quantiles(g, x, q, e->attribute[QUANTILE_METHOD].integer, e->attribute[QUANTILE_IGNORE].integer);
    y = graph_cast(g, y, shape.dtype);
    int64_t order[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) order[d] = d ? d - 1 : rank - 1;
    y = many ? graph_transpose(g, y, order) : graph_squeeze(g, y, rank - 1);
    e->result[0] = keep ? graph_expand_dims(g, y, axis + many) : y;
}

/* ---- histogram, bincount ------------------------------------------------------------------------------------------ */

enum { HISTOGRAM_BINS, HISTOGRAM_LOW, HISTOGRAM_HIGH };

static void infer_histogram(graph_infer *infer) {
    const int64_t bins = infer->attribute[HISTOGRAM_BINS].integer;
    const bool given = infer->inputs > 1 && infer->operand[1].rank >= 0;
    tir_pool *pool = infer->g->pool;
    tir_expr one = tir_index(pool, 1), edges;
    if (given) {
        graph_infer_same_dtype(infer, 0, 2);
        graph_infer_rank(infer, 1, 1);
        edges = infer->operand[1].dim[0];
        graph_infer_at_most(infer, tir_index(pool, 2), edges, "expected two edges or more");
    } else {
        if (bins < 1 || bins > INT32_MAX) graph_infer_fail(infer, "%lld bins, expected 1 to 2^31 - 1", (long long)bins);
        if (!(infer->attribute[HISTOGRAM_LOW].number <= infer->attribute[HISTOGRAM_HIGH].number))
            graph_infer_fail(infer, "low is above high");
        edges = tir_index(pool, bins + 1);
    }
    infer->result[0] = (graph_shape){.dtype = DLC_I64, .rank = 1, .dim = {tir_sub(pool, edges, one)}};
    infer->result[1] = (graph_shape){.dtype = infer->operand[0].dtype, .rank = 1, .dim = {edges}};
}

static graph_id flat(graph *g, graph_id x) {
    const graph_shape *shape = graph_shape_of(g, x);
    tir_expr size = tir_index(g->pool, 1);
    for (int d = 0; d < shape->rank; d++) size = tir_mul(g->pool, size, shape->dim[d]);
    return graph_reshape(g, x, 1, &size);
}

/* bins + 1 evenly spaced edges from low to high, or, if both are 0, from the least to the greatest number of x. Equal ends are moved apart
 * by 1/2 on both sides. */
static graph_id even_edges(graph *g, graph_id x, int64_t bins, double low, double high) {
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    graph_id first = graph_scalar(g, dtype, low), last = graph_scalar(g, dtype, high);
    if (low == 0 && high == 0) {
        tir_expr one = tir_index(g->pool, 1);
        x = graph_concat(g, 2, (graph_id[]){x, graph_full(g, dtype, 1, &one, (double)NAN)}, 0);
        graph_id number = graph_eq(g, x, x);
        first =
            graph_reduce_min(g, graph_select(g, number, x, graph_full_like(g, x, (double)INFINITY)), 0, NULL, false);
        last =
            graph_reduce_max(g, graph_select(g, number, x, graph_full_like(g, x, -(double)INFINITY)), 0, NULL, false);
        graph_id none = graph_gt(g, first, last), zero = graph_scalar(g, dtype, 0);
        first = graph_select(g, none, zero, first);
        last = graph_select(g, none, graph_scalar(g, dtype, 1), last);
    }
    graph_id point = graph_eq(g, first, last);
    first = graph_select(g, point, graph_add_number(g, first, -0.5), first);
    last = graph_select(g, point, graph_add_number(g, last, 0.5), last);
    tir_expr count = tir_index(g->pool, bins + 1);
    graph_id i = graph_iota(g, DLC_I64, 1, &count, 0);
    graph_id step = graph_div(g, graph_sub(g, last, first), graph_scalar(g, dtype, (double)bins));
    graph_id edges = graph_add(g, graph_mul(g, graph_cast(g, i, dtype), step), first);
    return graph_select(g, graph_eq(g, i, graph_scalar_i64(g, DLC_I64, bins)), last, edges);
}

/* How often each of 0 .. size - 1 occurs in place [n], i64; other values are ignored. */
static graph_id counts_of(graph *g, graph_id place, tir_expr size) {
    graph_id zeros = graph_full(g, DLC_I64, 1, &size, 0);
    graph_id ones = graph_broadcast_like(g, graph_scalar_i64(g, DLC_I64, 1), place);
    const graph_op *scatter = graph_op_find("scatter");
    int64_t word = 0;
    const char *at = scatter->attribute[1].choices;
    for (; strncmp(at, "add", 3) != 0; word++) at = strchr(at, ' ') + 1;
    return graph_emit_with(g, "scatter", 3, (graph_id[]){zeros, place, ones}, 2,
                           (graph_setting[]){graph_set_integer(scatter->attribute[0].name, 0),
                                             graph_set_integer(scatter->attribute[1].name, word)});
}

static void expand_histogram(graph_expand *e) {
    graph *g = e->g;
    graph_id x = flat(g, e->input[0]);
    const bool given = e->inputs > 1 && e->input[1];
    graph_id edges = given ? e->input[1]
                           : even_edges(g, x, e->attribute[HISTOGRAM_BINS].integer, e->attribute[HISTOGRAM_LOW].number,
                                        e->attribute[HISTOGRAM_HIGH].number);
    tir_expr count = graph_shape_of(g, edges)->dim[0], zero = tir_index(g->pool, 0), one = tir_index(g->pool, 1);
    tir_expr bins = tir_sub(g->pool, count, one);
    /* number of elements below each edge; for the last edge also those equal to it */
    graph_id sorted = graph_emit_with(g, "sort", 1, &x, 0, NULL), below[2];
    for (int right = 0; right < 2; right++) {
        const graph_setting side = graph_set_bool("right", right);
        below[right] = graph_emit_with(g, "search_sorted", 2, (graph_id[]){sorted, edges}, 1, &side);
    }
    graph_id i = graph_iota(g, DLC_I64, 1, &count, 0), last = graph_dimension(g, DLC_I64, bins);
    graph_id number = graph_select(g, graph_eq(g, i, last), below[1], below[0]);
    e->result[0] = graph_sub(g, graph_slice_axis(g, number, 0, one, count), graph_slice_axis(g, number, 0, zero, bins));
    e->result[1] = edges;
}

static void infer_bincount(graph_infer *infer) {
    const int64_t bins = infer->attribute[0].integer;
    graph_infer_indices(infer, 0);
    if (bins < 0 || bins > INT32_MAX) graph_infer_fail(infer, "%lld bins, expected 0 to 2^31 - 1", (long long)bins);
    infer->result[0] = (graph_shape){.dtype = DLC_I64, .rank = 1, .dim = {tir_index(infer->g->pool, bins)}};
}

static void expand_bincount(graph_expand *e) {
    e->result[0] = counts_of(e->g, flat(e->g, e->input[0]), tir_index(e->g->pool, e->attribute[0].integer));
}

/* ---- lexsort ------------------------------------------------------------------------------------------------------ */

enum { LEXSORT_MOST = 64 };

static void infer_lexsort(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    int64_t keys;
    if (x->rank < 2) graph_infer_fail(infer, "rank %d, expected keys [keys, ..., n]", x->rank);
    if (!tir_is_const(infer->g->pool, x->dim[0], &keys) || keys < 1 || keys > LEXSORT_MOST)
        graph_infer_fail(infer, "the number of keys, the first dimension, must be a number of 1 to %d", LEXSORT_MOST);
    infer->result[0] = *x;
    infer->result[0].dtype = DLC_I64;
    infer->result[0].rank--;
    memmove(infer->result[0].dim, x->dim + 1, (size_t)(x->rank - 1) * sizeof *x->dim);
}

/* Sorts stably by each key, from the first to the last, which is the primary one. */
static void expand_lexsort(graph_expand *e) {
    graph *g = e->g;
    int64_t keys = 0;
    tir_is_const(g->pool, graph_shape_of(g, e->input[0])->dim[0], &keys);
    graph_id order = 0;
    for (int64_t k = 0; k < keys; k++) {
        graph_id key = graph_slice_axis(g, e->input[0], 0, tir_index(g->pool, k), tir_index(g->pool, k + 1));
        key = graph_squeeze(g, key, 0);
        if (order) key = take(g, key, order);
        graph_id next = graph_emit_with(g, "sort", 1, &key, 0, NULL) + 1;
        order = order ? take(g, order, next) : next;
    }
    e->result[0] = order;
}

/* ---- references */

#ifdef DLC_REFERENCE

static int number_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile q of `count` sorted numbers, by NumPy's definition. */
static double sorted_quantile(const double *sorted, int64_t count, double q, int64_t method) {
    double at = (double)(count - 1) * (q < 0 ? 0 : q > 1 ? 1 : q), low = floor(at), t = at - low;
    if (method == METHOD_lower) t = 0;
    if (method == METHOD_higher) t = t > 0;
    if (method == METHOD_nearest) t = t > 0.5 || (t == 0.5 && fmod(low, 2) == 1);
    if (method == METHOD_midpoint && t > 0) t = 0.5;
    double a = sorted[(int64_t)low], b = sorted[low + 1 < (double)count ? (int64_t)low + 1 : (int64_t)low];
    return a == b || t == 0 ? a : t == 1 ? b : t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

/* The quantile q of a line of n elements; ignore: of those that are not NaN. */
static double line_quantile(const double *line, int64_t n, double q, int64_t method, bool ignore) {
    double *sorted = malloc((size_t)n * sizeof *sorted), y = (double)NAN;
    int64_t count = 0;
    for (int64_t i = 0; sorted && i < n; i++)
        if (!isnan(line[i])) sorted[count++] = line[i];
    if (sorted && count && (ignore || count == n)) {
        qsort(sorted, (size_t)count, sizeof *sorted, number_order);
        y = sorted_quantile(sorted, count, q, method);
    }
    free(sorted);
    return y;
}

static void reference_lines(const graph_reference *r, const double *q, int64_t quantities, int axis, int64_t method,
                            bool ignore) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows rows = graph_reference_rows_along(x, axis);
    const int64_t n = rows.size, inner = rows.inner, count = graph_reference_count(x);
    double *line = malloc((size_t)n * sizeof *line);
    for (int64_t k = 0; line && k < quantities; k++)
        for (int64_t at = 0; at < count / n; at++) {
            for (int64_t i = 0; i < n; i++) line[i] = x->data[(at / inner * n + i) * inner + at % inner];
            r->result[0].data[k * (count / n) + at] = line_quantile(line, n, q[k], method, ignore);
        }
    free(line);
}

static void reference_median(const graph_reference *r) {
    const double half = 0.5;
    reference_lines(r, &half, 1, graph_axis_of(r->attribute[MEDIAN_AXIS].integer, r->operand[0].rank), METHOD_midpoint,
                    r->attribute[MEDIAN_IGNORE].integer);
}

static void reference_quantile(const graph_reference *r) {
    reference_lines(r, r->operand[1].data, graph_reference_count(&r->operand[1]),
                    graph_axis_of(r->attribute[QUANTILE_AXIS].integer, r->operand[0].rank),
                    r->attribute[QUANTILE_METHOD].integer, r->attribute[QUANTILE_IGNORE].integer);
}

/* Sets *low and *high to the least and the greatest number of x; where there is none, *high to 1. */
static void find_range(const graph_reference_tensor *x, double *low, double *high) {
    const int64_t count = graph_reference_count(x);
    bool any = false;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(x->data[i])) continue;
        *low = any && *low < x->data[i] ? *low : x->data[i], *high = any && *high > x->data[i] ? *high : x->data[i];
        any = true;
    }
    if (!any) *high = 1;
}

static void reference_histogram(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    double *edges = r->result[1].data, low = r->attribute[HISTOGRAM_LOW].number,
           high = r->attribute[HISTOGRAM_HIGH].number;
    int64_t bins = r->result[0].dim[0], count = graph_reference_count(x);
    if (low == 0 && high == 0) find_range(x, &low, &high);
    if (low == high) low -= 0.5, high += 0.5;
    for (int64_t i = 0; i <= bins; i++)
        edges[i] = graph_reference_given(r, 1) ? r->operand[1].data[i]
                   : i == bins                 ? high
                                               : low + (high - low) / (double)bins * (double)i;
    for (int64_t i = 0; i < count; i++)
        for (int64_t b = 0; b < bins; b++)
            if (edges[b] <= x->data[i] && (x->data[i] < edges[b + 1] || (b == bins - 1 && x->data[i] == edges[bins]))) {
                r->result[0].data[b]++;
                break;
            }
}

static void reference_bincount(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->operand[0]); i++) {
        const double at = r->operand[0].data[i];
        if (at >= 0 && at < (double)r->result[0].dim[0]) r->result[0].data[(int64_t)at]++;
    }
}

/* -1, 0, 1: compares i and j by the keys, the last one first; NaN is the greatest. */
static int by_keys(const graph_reference_tensor *x, int64_t lines, int64_t i, int64_t j) {
    for (int64_t k = x->dim[0] - 1; k >= 0; k--) {
        const double a = x->data[k * lines + i], b = x->data[k * lines + j];
        if (isnan(a) && isnan(b)) continue;
        if (isnan(b) || a < b) return -1;
        if (isnan(a) || b < a) return 1;
    }
    return 0;
}

static void reference_lexsort(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t n = x->dim[x->rank - 1], lines = graph_reference_count(&r->result[0]);
    for (int64_t i = 0; i < lines; i++) {
        int64_t place = 0, line = i / n * n;
        for (int64_t j = line; j < line + n; j++) {
            int order = by_keys(x, lines, j, i);
            place += order < 0 || (order == 0 && j < i);
        }
        r->result[0].data[line + place] = (double)(i - line);
    }
}
#endif

/* ---- rows */

#define IGNORE_ATTRIBUTE                                                                              \
    {                                                                                                 \
        "ignore_nan", GRAPH_ATTR_BOOL, NULL, "false",                                                 \
            "NaN counts as no element (NumPy nanmedian, nanquantile); else a line with one gives NaN" \
    }

static const graph_op row_median = {
    COMPOSITE_ROW(median, 1, 1, 1, "x", "f16 bf16 f32 f64"),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis of the elements"},
                  {"keep", GRAPH_ATTR_BOOL, NULL, "false", "the axis stays, of size 1"},
                  IGNORE_ATTRIBUTE},
    .infer = infer_median,
    .tolerance = 2,
    .samples = "median(T[5, 7])\nmedian(T[6])\nmedian(T[4, 3], axis=0, keep=true)\nmedian(T[1])\nmedian(T[0, 3])\n"
               "median(T[2, 8, 3], axis=1, ignore_nan=true)\nmedian(T[2, 2, 1, 2, 3], axis=-2)",
    .doc =
        "The element in the middle along axis, of an even number the mean of the two there; NaN where there is a NaN. The axis has at "
        "least one element. NumPy median, nanmedian (PyTorch's is the lower of the two: quantile with method=lower).",
};

static const graph_op row_quantile = {
    COMPOSITE_ROW(quantile, 2, 2, 1, "x q", "f16 bf16 f32 f64"),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis of the elements"},
                  {"method", GRAPH_ATTR_ENUM, "linear lower higher nearest midpoint", "linear",
                   "what stands between two elements"},
                  {"keep", GRAPH_ATTR_BOOL, NULL, "false", "the axis stays, of size 1"},
                  IGNORE_ATTRIBUTE},
    .infer = infer_quantile,
    .tolerance = 16,
    .samples =
        "quantile(T[5, 7], T[] in 0..1)\nquantile(T[6, 4], T[3] in 0..1, axis=0)\nquantile(T[9], T[4] in 0..1, method=lower)\n"
        "quantile(T[9], T[4] in 0..1, method=higher)\nquantile(T[2, 9], T[4] in 0..1, method=nearest)\n"
        "quantile(T[4, 2, 3], T[2] in 0..1, method=midpoint, axis=0, keep=true)\nquantile(T[1], T[2])\n"
        "quantile(T[0, 3], T[2] in 0..1)\nquantile(T[3, 5], T[0])\nquantile(T[2, 17], T[] in 0..1, ignore_nan=true)",
    .doc =
        "The number below which the share q of the elements along axis lies: of n elements in order the one at place q (n - 1), and between two "
        "places what `method` says: their weighted mean, the lower, the higher, the nearest (of halves the even place), or the mean. q of rank 0, or "
        "[k], which becomes the result's first dimension; the nearest of 0 and 1 where it lies outside. NaN where there is a NaN. The axis "
        "has at least one element. Places are computed in f64. NumPy quantile, nanquantile.",
};

static const graph_op row_histogram = {
    COMPOSITE_ROW(histogram, 1, 2, 2, "x [edges]", "f32 f64"),
    .aliases = "histc",
    .linear = 2,
    .attribute = {{"bins", GRAPH_ATTR_INTEGER, NULL, "10",
                   "bins of one width from low to high, where there are no edges"},
                  {"low", GRAPH_ATTR_FLOAT, NULL, "0", "least edge"},
                  {"high", GRAPH_ATTR_FLOAT, NULL, "0",
                   "greatest edge; low and high 0: the least and the greatest element"}},
    .infer = infer_histogram,
    .tolerance = 2,
    .samples = "histogram(T[50] in 0..4, bins=4, low=0, high=4)\nhistogram(T[5, 7], bins=8, low=-2, high=2)\n"
               "histogram(T[0], bins=3)\nhistogram(T[3, 3] in 0..0, bins=2)\nhistogram(T[0], T[5])",
    .doc =
        "How many elements of x lie in each bin, i64 [bins], and the bins' edges [bins + 1]: edge i <= element < edge i + 1, and the last bin has its "
        "upper edge, too. Elements outside, and NaN, count nowhere. edges ascend (nothing is said of others). Without edges they are low + "
        "i (high - low) / bins; where low is high, as far as 1/2 to both sides. NumPy histogram; PyTorch histc.",
};

static const graph_op row_bincount = {
    COMPOSITE_ROW(bincount, 1, 1, 1, "x", "i8 u8 i16 u16 i32 u32 i64"),
    .attribute = {{"bins", GRAPH_ATTR_INTEGER, NULL, NULL, "numbers that are counted: 0 .. bins - 1"}},
    .infer = infer_bincount,
    GRAPH_NO_GRADIENT,
    .samples =
        "bincount(T[50] in 0..9, bins=7)\nbincount(T[5, 7] in 0..3, bins=3)\nbincount(T[0], bins=2)\nbincount(T[] in 0..2, bins=1)\n"
        "bincount(T[9], bins=0)",
    .doc =
        "How often each of 0 .. bins - 1 occurs in x, i64 [bins]; others count nowhere. NumPy bincount, whose result grows with the largest "
        "element.",
};

static const graph_op row_lexsort = {
    COMPOSITE_ROW(lexsort, 1, 1, 1, "keys", "number"),
    .infer = infer_lexsort,
    GRAPH_NO_GRADIENT,
    .samples =
        "lexsort(T[2, 17] in 0..4)\nlexsort(T[1, 5])\nlexsort(T[3, 2, 9] in 0..2)\nlexsort(T[2, 0])\nlexsort(T[2, 0, 3])",
    .doc =
        "Indices [..., n], i64, that bring the lines of keys [k, ..., n] into ascending order by the last of the k keys, where these are equal by "
        "the one before it, and so on; stable. NaN comes last. NumPy lexsort over the last axis.",
};

const graph_op *const graph_ops_statistics[] = {&row_median,   &row_quantile, &row_histogram,
                                                &row_bincount, &row_lexsort,  NULL};
