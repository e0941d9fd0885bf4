/* Pools: composites over sliding windows, which expand to reduce_window (ops_window.c), over whole images, and to a given size; and the
 * inverse of max pooling. */
#include "graph/build.h"
#include "graph/normalize.h"
#include "graph/ops_common.h"
#include "graph/window.h"

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

/* ---- pools: windows over the dimensions after batch and channels ------------------------------------------------ */

enum {
    POOL_SIZE,
    POOL_LISTS,
    AVERAGE_COUNT_PAD = POOL_LISTS + WINDOW_LISTS,
    AVERAGE_CEIL,
    LP_POWER = AVERAGE_COUNT_PAD
};

/* A pool's lists stride, low, high and dilation; the stride defaults to the window's size (a separate attribute). If `ceil`, round_up
 * increases the padding after the last element (`high`), so that a partial last window is included. */
typedef struct pool_window {
    graph_attribute lists[WINDOW_LISTS];
    int64_t high[DLC_MAX_RANK];
    bool ceil;
} pool_window;

static void pool_lists(const graph_op *op, const graph_attribute *attribute, pool_window *w) {
    graph_attribute *lists = w->lists;
    int ceil = graph_op_attribute(op, "ceil");
    memcpy(lists, attribute + POOL_LISTS, WINDOW_LISTS * sizeof *lists);
    if (!lists[WINDOW_STRIDE].count) lists[WINDOW_STRIDE] = attribute[POOL_SIZE];
    w->ceil = ceil >= 0 && attribute[ceil].integer;
}

static void round_up(pool_window *w, int dimensions) {
    if (!w->ceil) return;
    for (int i = 0; i < dimensions; i++)
        w->high[i] =
            graph_list_entry(&w->lists[WINDOW_HIGH], i, 0) + graph_list_entry(&w->lists[WINDOW_STRIDE], i, 1) - 1;
    w->lists[WINDOW_HIGH] = (graph_attribute){.count = dimensions, .list = w->high};
}

/* Number of outputs along dimension i of the windows; with w->ceil only of windows that start before the padding after the last element. */
static tir_expr windows_that_count(tir_pool *pool, const pool_window *w, tir_expr size, tir_expr outputs, int i) {
    graph_window own = graph_window_of(w->lists, i);
    tir_expr real = tir_max(pool, tir_add(pool, size, tir_index(pool, own.number[WINDOW_LOW])), tir_index(pool, 0));
    return w->ceil ? tir_min(pool, outputs, tir_ceil_div(pool, real, tir_index(pool, own.number[WINDOW_STRIDE])))
                   : outputs;
}

static void infer_pool(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *size = &infer->attribute[POOL_SIZE];
    if (x->rank < 3)
        graph_infer_fail(infer, "x has rank %d, expected at least 3: batch, channels, spatial dimensions", x->rank);
    pool_window w;
    pool_lists(infer->op, infer->attribute, &w);
    graph_window_check_sizes(infer, size, x->rank - 2);
    graph_window_check_lists(infer, w.lists, x->rank - 2);
    for (int i = 0; i < x->rank - 2; i++) {
        graph_window own = graph_window_of(w.lists, i);
        tir_expr left = graph_infer_sum(infer, x->dim[2 + i], tir_index(infer->g->pool, own.number[WINDOW_LOW]));
        left = graph_infer_sum(infer, left, tir_index(infer->g->pool, own.number[WINDOW_HIGH]));
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), left, "negative padding removes more than there is");
    }
    round_up(&w, x->rank - 2);
    infer->result[0] = *x;
    for (int i = 0; i < x->rank - 2; i++) {
        tir_expr outputs = graph_window_outputs(infer->g->pool, x->dim[2 + i], tir_index(infer->g->pool, size->list[i]),
                                                graph_window_of(w.lists, i));
        infer->result[0].dim[2 + i] = windows_that_count(infer->g->pool, &w, x->dim[2 + i], outputs, i);
    }
}

/* A reduce_window of x whose first two dimensions are not windowed. */
static graph_id emit_pool(const graph_expand *e, graph_id x, int64_t op) {
    graph *g = e->g;
    const graph_attribute *attribute = e->attribute;
    const graph_shape from = *graph_shape_of(g, x);
    int rank = from.rank;
    int64_t number[1 + WINDOW_LISTS][DLC_MAX_RANK];
    pool_window pool;
    pool_lists(e->op, attribute, &pool);
    round_up(&pool, rank - 2);
    graph_setting setting[2 + WINDOW_LISTS] = {graph_set_integer("op", op), graph_set_list("window", rank, number[0])};
    for (int i = 0; i < rank; i++) {
        graph_window w =
            i < 2 ? graph_window_of((graph_attribute[WINDOW_LISTS]){{0}}, 0) : graph_window_of(pool.lists, i - 2);
        number[0][i] = i < 2 ? 1 : attribute[POOL_SIZE].list[i - 2];
        for (int k = 0; k < WINDOW_LISTS; k++) number[1 + k][i] = w.number[k];
    }
    for (int k = 0; k < WINDOW_LISTS; k++)
        setting[2 + k] = graph_set_list(graph_window_lists[k].name, rank, number[1 + k]);
    graph_id y = graph_emit_with(g, "reduce_window", 1, &x, 2 + WINDOW_LISTS, setting);
    const graph_shape all = *graph_shape_of(g, y);
    for (int i = 2; i < rank && pool.ceil; i++) {
        tir_expr count = windows_that_count(g->pool, &pool, from.dim[i], all.dim[i], i - 2);
        if (tir_equal(g->pool, count, all.dim[i]) != TIR_YES)
            y = graph_slice_axis(g, y, i, tir_index(g->pool, 0), count);
    }
    return y;
}

static void expand_max_pool(graph_expand *e) {
    e->result[0] = emit_pool(e, e->input[0], REDUCE_WINDOW_MAX);
}

/* ---- max_pool_with_indices: the maximum and the position of its first occurrence */

static void infer_max_pool_with_indices(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    infer_pool(infer);
    const graph_shape *x = &infer->operand[0], y = infer->result[0];
    if (2 * x->rank - 2 > DLC_MAX_RANK)
        graph_infer_fail(infer, "x has rank %d, expected at most %d", x->rank, DLC_MAX_RANK / 2 + 1);
    graph_infer_product(infer, x->rank, x->dim);
    for (int i = 2; i < x->rank; i++)
        graph_infer_at_most(infer, tir_min(pool, y.dim[i], tir_index(pool, 1)), x->dim[i],
                            "there is nothing but padding");
    infer->result[1] = y;
    infer->result[1].dtype = DLC_I64;
}

static graph_id emit_size(graph *g, tir_expr size) { /* at least 1: a divisor */
    return graph_dimension(g, DLC_I64, tir_max(g->pool, size, tir_index(g->pool, 1)));
}

/* Converts row-major positions in a channel's plane to positions in all of x; columns: the plane counts as column-major in the result. */
static graph_id places_in_all(graph *g, graph_id place, const graph_shape *x, bool columns) {
    const graph_shape shape = *graph_shape_of(g, place);
    tir_expr plane = tir_index(g->pool, 1);
    for (int i = 2; i < x->rank; i++) plane = tir_mul(g->pool, plane, x->dim[i]);
    graph_id turned = 0, rest = place;
    for (int i = x->rank - 1; i >= 2 && columns; i--) { /* the column-major stride of dimension i */
        tir_expr before = tir_index(g->pool, 1);
        for (int k = 2; k < i; k++) before = tir_mul(g->pool, before, x->dim[k]);
        graph_id size = emit_size(g, x->dim[i]), own = graph_mul(g, graph_rem(g, rest, size), emit_size(g, before));
        turned = turned ? graph_add(g, turned, own) : own;
        rest = graph_div(g, rest, size);
    }
    graph_id image =
        graph_mul(g, graph_iota(g, DLC_I64, shape.rank, shape.dim, 0), graph_dimension(g, DLC_I64, x->dim[1]));
    image = graph_add(g, image, graph_iota(g, DLC_I64, shape.rank, shape.dim, 1));
    return graph_add(g, graph_mul(g, image, graph_dimension(g, DLC_I64, plane)), columns ? turned : place);
}

/* Gathers x to [n, c, o0, k0, o1, k1, ...], o an output and k a position in its window; of the positions of the maximum takes the least. */
static void expand_max_pool_with_indices(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    e->result[0] = emit_pool(e, e->input[0], REDUCE_WINDOW_MAX);
    const graph_shape y = *graph_shape_of(g, e->result[0]);
    graph_id part = e->input[0], at[DLC_MAX_RANK], none = graph_scalar_i64(g, DLC_I64, INT64_MAX);
    int64_t kept[DLC_MAX_RANK] = {0, 1}, windows[DLC_MAX_RANK];
    pool_window pool_of;
    pool_lists(e->op, a, &pool_of);
    for (int i = 0; i < x.rank - 2; i++) {
        graph_window w = graph_window_of(pool_of.lists, i);
        tir_expr dims[2] = {y.dim[2 + i], tir_index(pool, a[POOL_SIZE].list[i])};
        graph_id out =
            graph_mul(g, graph_iota(g, DLC_I64, 2, dims, 0), graph_scalar_i64(g, DLC_I64, w.number[WINDOW_STRIDE]));
        graph_id in =
            graph_mul(g, graph_iota(g, DLC_I64, 2, dims, 1), graph_scalar_i64(g, DLC_I64, w.number[WINDOW_DILATION]));
        at[i] = graph_sub(g, graph_add(g, out, in), graph_scalar_i64(g, DLC_I64, w.number[WINDOW_LOW]));
        part = graph_gather(g, part, at[i], 2 + 2 * i);
        kept[2 + i] = 2 + 2 * i;
        windows[i] = 3 + 2 * i;
    }
    const graph_shape apart = *graph_shape_of(g, part);
    graph_id match = graph_eq(g, part, graph_broadcast(g, e->result[0], apart.rank, apart.dim, kept)), place = 0;
    if (lib_dtype_is_float(x.dtype)) match = graph_or(g, match, graph_ne(g, part, part));
    for (int i = 0; i < x.rank - 2; i++) {
        graph_id size = graph_dimension(g, DLC_I64, x.dim[2 + i]);
        graph_id inside = graph_and(g, graph_ge(g, at[i], graph_scalar_i64(g, DLC_I64, 0)), graph_lt(g, at[i], size));
        const int64_t axes[2] = {2 + 2 * i, 3 + 2 * i};
        match = graph_and(g, match, graph_broadcast(g, inside, apart.rank, apart.dim, axes));
        graph_id own = graph_broadcast(g, at[i], apart.rank, apart.dim, axes);
        place = place ? graph_add(g, graph_mul(g, place, size), own) : own;
    }
    place = graph_reduce_min(g, graph_select(g, match, place, none), x.rank - 2, windows, false);
    graph_id all = places_in_all(g, place, &x, a[graph_op_attribute(e->op, "column_major")].integer);
    e->result[1] = graph_select(g, graph_eq(g, place, none), graph_full_like(g, place, -1), all);
}

/* (sum |x|^p)^(1/p) */
static void expand_lp_pool(graph_expand *e) {
    graph *g = e->g;
    dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    const int64_t p = e->attribute[LP_POWER].integer;
    graph_id powers = graph_norm_powers(g, graph_widen(g, e->input[0]), p);
    e->result[0] = graph_cast(g, graph_norm_root(g, emit_pool(e, powers, REDUCE_WINDOW_SUM), p), dtype);
}

static void infer_lp_pool(graph_infer *infer) {
    graph_infer_power(infer, infer->attribute[LP_POWER].integer);
    infer_pool(infer);
}

/* The number of elements of each window, with padding if padding_counts: sums of ones of shape [1, 1, spatial...] (padded by ones) by the
 * pool's windows. */
static graph_id count_elements(const graph_expand *e, graph_id x, bool padding_counts) {
    graph *g = e->g;
    graph_shape shape = *graph_shape_of(g, x);
    shape.dim[0] = shape.dim[1] = tir_index(g->pool, 1);
    graph_id ones = graph_full(g, shape.dtype, shape.rank, shape.dim, 1);
    if (!padding_counts) return emit_pool(e, ones, REDUCE_WINDOW_SUM);
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0}, none[DLC_MAX_RANK] = {0};
    graph_attribute attribute[POOL_LISTS + WINDOW_LISTS + 2];
    memcpy(attribute, e->attribute, sizeof attribute);
    for (int i = 2; i < shape.rank; i++) {
        low[i] = graph_list_entry(&attribute[POOL_LISTS + WINDOW_LOW], i - 2, 0);
        high[i] = graph_list_entry(&attribute[POOL_LISTS + WINDOW_HIGH], i - 2, 0);
    }
    attribute[POOL_LISTS + WINDOW_LOW] = attribute[POOL_LISTS + WINDOW_HIGH] =
        (graph_attribute){.count = shape.rank - 2, .list = none};
    graph_expand inner = *e;
    inner.attribute = attribute;
    graph_id count = emit_pool(&inner, graph_pad(g, ones, graph_scalar_like(g, ones, 1), low, high), REDUCE_WINDOW_SUM);
    for (int i = 2; i < shape.rank; i++) { /* windows that start in the padding are not part of the pool */
        pool_window w;
        pool_lists(e->op, e->attribute, &w);
        round_up(&w, shape.rank - 2);
        tir_expr all = graph_shape_of(g, count)->dim[i],
                 some = windows_that_count(g->pool, &w, shape.dim[i], all, i - 2);
        if (tir_equal(g->pool, all, some) != TIR_YES)
            count = graph_slice_axis(g, count, i, tir_index(g->pool, 0), some);
    }
    return count;
}

static void expand_average_pool(graph_expand *e) {
    graph *g = e->g;
    dlc_dtype dtype = graph_shape_of(g, e->input[0])->dtype;
    graph_id x = graph_cast(g, e->input[0], graph_sum_dtype(dtype));
    graph_id sum = emit_pool(e, x, REDUCE_WINDOW_SUM);
    bool padded = false, ceil = e->attribute[AVERAGE_CEIL].integer;
    double elements = 1;
    for (int i = 0; i < e->attribute[POOL_SIZE].count; i++) {
        graph_window w = graph_window_of(e->attribute + POOL_LISTS, i);
        padded |= w.number[WINDOW_LOW] > 0 || w.number[WINDOW_HIGH] > 0;
        elements *= (double)e->attribute[POOL_SIZE].list[i];
    }
    bool included = e->attribute[AVERAGE_COUNT_PAD].integer, count = ceil || (padded && !included);
    graph_id divisor = count ? count_elements(e, x, included) : graph_scalar_like(g, x, elements);
    e->result[0] = graph_cast(g, graph_div(g, sum, divisor), dtype);
}

#ifdef DLC_REFERENCE

/* Number of positions of the window at result index `to` that are in x or in its explicit padding. */
static double reference_padded_size(const graph_reference *r, const int64_t *to) {
    double all = 1;
    for (int i = 0; i < r->attribute[0].count; i++) {
        int64_t size = r->attribute[0].list[i], dilation = graph_reference_entry(&r->attribute[4], i, 1), inside = 0;
        int64_t start = to[2 + i] * graph_reference_entry(&r->attribute[1], i, size) -
                        graph_reference_entry(&r->attribute[2], i, 0);
        for (int64_t k = 0; k < size; k++)
            inside += start + k * dilation < r->operand[0].dim[2 + i] + graph_reference_entry(&r->attribute[3], i, 0);
        all *= (double)inside;
    }
    return all;
}

/* p > 0: lp_pool of that power; 0: max_pool; -1: average_pool. */
static void reference_pool(const graph_reference *r, int64_t p) {
    const graph_reference_tensor *y = &r->result[0];
    double element[GRAPH_REFERENCE_WINDOW_MOST];
    int64_t to[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(y, to) {
        int64_t count = graph_reference_window(r, 2, r->attribute[0].list, r->attribute + 1, true, to, element);
        double sum = 0, most = element[0], powers = 0;
        for (int64_t i = 0; i < count; i++) {
            sum += element[i];
            powers += pow(fabs(element[i]), (double)(p > 0 ? p : 1));
            if (element[i] > most || isnan(element[i])) most = isnan(most) ? most : element[i];
        }
        if (p > 0) most = pow(powers, 1 / (double)p);
        if (p < 0) most = sum / (r->attribute[5].integer ? reference_padded_size(r, to) : (double)count);
        y->data[graph_reference_at(y, to)] = most;
    }
}
static void reference_lp_pool(const graph_reference *r) {
    reference_pool(r, r->attribute[5].integer);
}
static void reference_max_pool(const graph_reference *r) {
    reference_pool(r, 0);
}
/* Compares each window's elements in row-major order; the maximum is the first that is not exceeded by a later one. */
static void reference_max_pool_with_indices(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    const int spatial = x->rank - 2;
    const bool columns = r->attribute[6].integer;
    int64_t to[DLC_MAX_RANK] = {0};
    reference_pool(r, 0);
    GRAPH_REFERENCE_EACH(y, to) {
        graph_reference_tensor box = {.rank = spatial};
        int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK] = {to[0], to[1]}, found = -1;
        double most = 0;
        for (int i = 0; i < spatial; i++) box.dim[i] = r->attribute[0].list[i];
        GRAPH_REFERENCE_EACH(&box, at) {
            bool inside = true;
            for (int i = 0; i < spatial; i++) {
                from[2 + i] =
                    graph_reference_window_position(r->attribute + 1, i, box.dim[i], to[2 + i], at[i], x->dim[2 + i]);
                inside = inside && from[2 + i] >= 0;
            }
            if (!inside) continue;
            double value = x->data[graph_reference_at(x, from)];
            if (found >= 0 && !(value > most || (isnan(value) && !isnan(most)))) continue;
            most = value;
            found = from[0] * x->dim[1] + from[1];
            for (int i = 0; i < spatial; i++) found *= x->dim[2 + i];
            for (int64_t i = 0, step = 1; i < spatial; i++) {
                int64_t d = columns ? i : spatial - 1 - i;
                found += from[2 + d] * step;
                step *= x->dim[2 + d];
            }
        }
        r->result[1].data[graph_reference_at(y, to)] = (double)found;
    }
}
static void reference_average_pool(const graph_reference *r) {
    reference_pool(r, -1);
}

#endif

#define POOL_STRIDE GRAPH_WINDOW_ATTRIBUTES("distance of the windows; empty: their size")
#define POOL_WINDOW \
    { "window", GRAPH_ATTR_INTEGERS, NULL, NULL, "size of the window in every spatial dimension" }
#define POOL_SAMPLES(name)                                                                                           \
    name "(T[1, 2, 8, 8], window=[2, 2])\n" name                                                                     \
         "(T[2, 3, 7, 5], window=[3, 2], stride=[2, 1], low=[1, 0], high=[1, 1])\n" name                             \
         "(T[1, 2, 13], window=[3], stride=[1], dilation=[3], low=[2], high=[2])\n" name                             \
         "(T[1, 1, 1], window=[1])\n" name "(T[2, 3, 4, 5], window=[4, 5])\n" name "(T[0, 2, 4], window=[2])\n" name \
         "(T[1, 2, 3, 5, 4], window=[2, 2, 3], stride=[1, 2, 1], high=[0, 1, 0])"

#define POOL_CEIL                                                           \
    {                                                                       \
        "ceil", GRAPH_ATTR_BOOL, NULL, "false",                             \
            "also windows that fit only in part, if they start before the " \
            "padding after the last element"                                \
    }
#define CEIL_SAMPLES(name)                                                                                     \
    "\n" name "(T[2, 3, 6, 8], window=[3, 2], stride=[2, 3], ceil=true)\n" name                                \
    "(T[1, 2, 5, 5], window=[2, 2], stride=[3, 2], low=[1, 1], high=[1, 1], ceil=true)\n" name "(T[1, 2, 7], " \
    "window=[3], dilation=[2], stride=[2], ceil=true)"

static const graph_op row_max_pool = {
    COMPOSITE_ROW(max_pool, 1, 1, 1, "x", "number"),
    .precision = GRAPH_FOLLOWS,
    .attribute = {POOL_WINDOW, POOL_STRIDE, POOL_CEIL},
    .infer = infer_pool,
    .bound = GRAPH_REFERENCE(graph_bound_window),
    .samples = POOL_SAMPLES("max_pool") CEIL_SAMPLES("max_pool"),
    .doc = "Greatest element under a window that slides over the dimensions of x after batch and channels; padding "
           "is no element. NaN if there is one. ONNX MaxPool.",
};

static const graph_op row_max_pool_with_indices = {
    COMPOSITE_ROW(max_pool_with_indices, 1, 1, 2, "x", "number"),
    .attribute = {POOL_WINDOW,
                  POOL_STRIDE,
                  POOL_CEIL,
                  {"column_major", GRAPH_ATTR_BOOL, NULL, "false",
                   "the spatial dimensions are counted with the first one innermost"}},
    .infer = infer_max_pool_with_indices,
    .samples = POOL_SAMPLES("max_pool_with_indices") CEIL_SAMPLES(
        "max_pool_with_indices") "\nmax_pool_with_indices(T[2, 2, 6, 5] in 0..3, window=[3, 2], stride=[2, 1], column_major=true)\n"
                                 "max_pool_with_indices(T[1, 2, 3, 4, 5] in 0..3, window=[2, 2, 2], column_major=true)",
    .doc =
        "max_pool, and the place of the greatest element, i64: the first one of the window in row-major order (NaN counts as "
        "greatest), counted in all of x in row-major order, batch and channels too; -1 for a window on padding alone. What "
        "max_unpool takes back. ONNX MaxPool with Indices; column_major is storage_order.",
};

static const graph_op row_average_pool = {
    COMPOSITE_ROW(average_pool, 1, 1, 1, "x", "float"),
    .aliases = "avg_pool",
    .linear = 1,
    .attribute =
        {POOL_WINDOW,
         POOL_STRIDE,
         {"count_include_pad", GRAPH_ATTR_BOOL, NULL, "false",
          "divide by the window's size even where it holds padding; what ceil lets stand beyond the padding does not count"},
         POOL_CEIL},
    .infer = infer_pool,
    .tolerance = 2,
    .bound = GRAPH_REFERENCE(graph_bound_average_pool),
    .samples =
        POOL_SAMPLES("average_pool") "\naverage_pool(T[2, 3, 7, 5], window=[3, 2], low=[1, 1], high=[1, 0], count_include_pad=true)" CEIL_SAMPLES(
            "average_pool") "\naverage_pool(T[1, 2, 6, 8], window=[3, 3], stride=[2, 2], low=[1, 0], "
                            "high=[0, 1], ceil=true, count_include_pad=true)",
    .doc = "Mean of the elements under a window that slides over the dimensions of x after batch and channels; "
           "padding is no element, or counts as zeros. ONNX AveragePool.",
};

static const graph_op row_lp_pool = {
    COMPOSITE_ROW(lp_pool, 1, 1, 1, "x", "float"),
    .attribute = {POOL_WINDOW, POOL_STRIDE, {"p", GRAPH_ATTR_INTEGER, NULL, "2", "exponent, at least 1"}, POOL_CEIL},
    .infer = infer_lp_pool,
    .tolerance = 64,
    .samples = POOL_SAMPLES("lp_pool") CEIL_SAMPLES("lp_pool") "\nlp_pool(T[1, 2, 7], window=[3], p=1)\n"
                                                               "lp_pool(T[1, 2, 7] in 1..2, window=[3], p=3)",
    .doc =
        "(sum of |x|^p)^(1/p) of the elements under a window that slides over the dimensions of x after batch and channels; "
        "padding is no element. ONNX LpPool.",
};

/* ---- global_pool */

enum { GLOBAL_MODE, GLOBAL_POWER };
enum { POOL_AVERAGE, POOL_MAX, POOL_LP };

static void infer_global_pool(graph_infer *infer) {
    int spatial = spatial_of(infer);
    graph_infer_power(infer, infer->attribute[GLOBAL_POWER].integer);
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
        y = graph_reduce_sum(g, graph_norm_powers(g, x, p), shape.rank - 2, axes, true);
        y = graph_norm_root(g, y, p);
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
    GRAPH_REFERENCE_EACH(x, at) {
        bool inside = at[0] == to[0] && at[1] == to[1];
        for (int i = 2; i < x->rank; i++) inside = inside && at[i] >= start[i] && at[i] < end[i];
        if (!inside) continue;
        double value = x->data[graph_reference_at(x, at)];
        sum += value, count++, powers += pow(fabs(value), (double)p);
        if (isnan(value) || value > most) most = isnan(most) ? most : value;
    }
    return mode == POOL_MAX ? most : mode == POOL_LP ? pow(powers, 1 / (double)p) : sum / count;
}

static void reference_pool_to(const graph_reference *r, int64_t mode, int64_t p) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, start[DLC_MAX_RANK], end[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, to) {
        for (int i = 2; i < x->rank; i++) {
            start[i] = to[i] * x->dim[i] / y->dim[i];
            end[i] = ((to[i] + 1) * x->dim[i] + y->dim[i] - 1) / y->dim[i];
        }
        y->data[graph_reference_at(y, to)] = reference_box(x, to, start, end, mode, p);
    }
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

const graph_op *const graph_ops_pool[] = {&row_max_pool,    &row_max_pool_with_indices, &row_average_pool, &row_lp_pool,
                                          &row_global_pool, &row_adaptive_pool,         &row_max_unpool,   NULL};
