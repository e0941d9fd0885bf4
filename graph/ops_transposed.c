/* Transposed convolution by phases. Result points whose distance is the stride use the same elements of the window: they are a phase,
 * with a smaller window of its own, whose convolution has stride 1. Neighbouring phases of which no window is longer and none begins at
 * another element of x are channels of one convolution. The results are interleaved. There are no products with inserted zeros, unless the
 * convolutions would be very many. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

enum { STRIDE, LOW, HIGH, DILATION, OUTPUT_PADDING, GROUPS, RESULT };
enum { SPATIAL_MAX = 3, LIMIT = 1 << 20 };

/* ---- shape */

static void infer_lists(const graph_infer *infer, int spatial) {
    static const char *const names[] = {"stride", "low", "high", "dilation", "output_padding"};
    for (int a = STRIDE; a <= OUTPUT_PADDING; a++) {
        graph_infer_list(infer, &infer->attribute[a], spatial, names[a]);
        int64_t least = a == STRIDE || a == DILATION ? 1 : 0;
        for (int i = 0; i < (int)infer->attribute[a].count; i++)
            if (infer->attribute[a].list[i] < least || infer->attribute[a].list[i] > LIMIT)
                graph_infer_fail(infer, "%s is %lld in spatial dimension %d, expected %lld to %d", names[a],
                                 (long long)infer->attribute[a].list[i], i, (long long)least, LIMIT);
    }
}

static void infer_convolution_transposed(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    tir_pool *pool = infer->g->pool;
    int spatial = x->rank - 2;
    int64_t groups = infer->attribute[GROUPS].integer, channels;
    if (spatial < 1 || spatial > SPATIAL_MAX)
        graph_infer_fail(infer, "x has rank %d, expected 3 to %d: batch, channels, 1 to %d spatial dimensions", x->rank,
                         SPATIAL_MAX + 2, SPATIAL_MAX);
    graph_infer_rank(infer, 1, x->rank);
    infer_lists(infer, spatial);
    graph_infer_equal(infer, x->dim[1], w->dim[0], "channels of x and of w");
    if (groups < 1 || (groups > 1 && (!tir_is_const(pool, w->dim[0], &channels) || channels % groups)))
        graph_infer_fail(infer, "groups is %lld, expected 1 or a divisor of the channels, which are then constant",
                         (long long)groups);
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = graph_infer_product_dtype(infer, &infer->attribute[RESULT]), .rank = x->rank};
    y->dim[0] = x->dim[0];
    y->dim[1] = graph_infer_product(infer, 2, (tir_expr[]){w->dim[1], tir_index(pool, groups)});
    for (int i = 0; i < spatial; i++) {
        int64_t extent, stride = graph_list_entry(&infer->attribute[STRIDE], i, 1);
        if (!tir_is_const(pool, w->dim[2 + i], &extent) || extent < 1 || extent > LIMIT)
            graph_infer_fail(infer, "the window's spatial dimension %d is no constant of 1 to %d", i, LIMIT);
        int64_t rest = (extent - 1) * graph_list_entry(&infer->attribute[DILATION], i, 1) + 1 - stride -
                       graph_list_entry(&infer->attribute[LOW], i, 0) -
                       graph_list_entry(&infer->attribute[HIGH], i, 0) +
                       graph_list_entry(&infer->attribute[OUTPUT_PADDING], i, 0);
        graph_infer_at_most(infer, tir_index(pool, 1), x->dim[2 + i],
                            "x is empty along a spatial dimension, expected at least 1 element");
        tir_expr spread = graph_infer_product(infer, 2, (tir_expr[]){x->dim[2 + i], tir_index(pool, stride)});
        graph_infer_at_most(infer, tir_index(pool, -rest), spread,
                            "low and high remove more than a spatial dimension of the result has");
        y->dim[2 + i] = tir_add(pool, spread, tir_index(pool, rest));
    }
}

/* ---- expansion */

/* Neighbouring result points modulo the stride, which have as many steps of the window: result point m*stride + first + p, p < count, is
 * the sum over j < steps of x at m + shift - j*distance times the window at from + p + j*apart. */
typedef struct phases {
    int64_t first, count, steps, from, shift;
} phases;

/* Limits of runs in one dimension, of convolutions in all. */
enum { RUNS_MOST = 16, CONVOLUTIONS_MOST = 64 };

/* A spatial dimension: size of the window and stride; distances of a phase's steps in the window and in x; a phase has
 * `beyond` more points than x; the last `excess` points of all phases together are beyond the result. */
typedef struct axis {
    int64_t extent, stride, apart, distance, beyond, excess;
    int runs;
    phases run[RUNS_MOST];
} axis;

typedef struct transposed {
    graph_expand *e;
    graph *g;
    graph_id input;
    graph_shape x, w;
    int spatial;
    int64_t groups;
    axis axis[SPATIAL_MAX];
} transposed;

static tir_expr index_of(const transposed *t, int64_t n) {
    return tir_index(t->g->pool, n);
}

/* The steps of the window that meet result point `first` modulo the stride: the element of the first one solves
 * from*dilation = first + low modulo the stride. */
static phases phase_of(const axis *a, int64_t dilation, int64_t low, int64_t first) {
    const int64_t wanted = first + low;
    int64_t from = dilation == 1 ? wanted % a->stride : 0;
    while (from < a->apart && (from * dilation - wanted) % a->stride) from++;
    if (from >= a->apart || from >= a->extent) return (phases){.first = first, .count = 1};
    return (phases){.first = first,
                    .count = 1,
                    .steps = (a->extent - 1 - from) / a->apart + 1,
                    .from = from,
                    .shift = (wanted - from * dilation) / a->stride};
}

/* Joins phases to runs; false: there are too many runs. */
static bool find_phases(axis *a, int64_t dilation, int64_t low) {
    for (int64_t first = 0; first < a->stride; first++) {
        const phases here = phase_of(a, dilation, low, first);
        phases *last = a->runs ? &a->run[a->runs - 1] : NULL;
        if (last && last->steps == here.steps && last->shift == here.shift &&
            (!here.steps || (dilation == 1 && here.from == last->from + last->count)))
            last->count++;
        else if (a->runs == RUNS_MOST)
            return false;
        else
            a->run[a->runs++] = here;
    }
    return true;
}

/* The phases of spatial dimension i; false: there are too many runs of them. */
static bool read_axis(transposed *t, int i, bool is_spread) {
    const graph_attribute *attribute = t->e->attribute;
    const int64_t dilation = graph_list_entry(&attribute[DILATION], i, 1),
                  low = graph_list_entry(&attribute[LOW], i, 0);
    axis *a = &t->axis[i];
    *a = (axis){.stride = is_spread ? 1 : graph_list_entry(&attribute[STRIDE], i, 1)};
    tir_is_const(t->g->pool, t->w.dim[2 + i], &a->extent); /* checked by the shape rule */
    const int64_t common = tir_gcd(a->stride, dilation);
    a->apart = a->stride / common;
    a->distance = dilation / common;
    const int64_t more = (a->extent - 1) * dilation + 1 - a->stride - low - graph_list_entry(&attribute[HIGH], i, 0) +
                         graph_list_entry(&attribute[OUTPUT_PADDING], i, 0);
    a->beyond = -tir_floor_div(-more, a->stride);
    a->excess = a->beyond * a->stride - more;
    return (dilation == 1 || a->stride <= RUNS_MOST) && find_phases(a, dilation, low);
}

/* x with zeros between its elements: the same transposed convolution has stride 1. */
static void spread(transposed *t) {
    int64_t none[DLC_MAX_RANK] = {0}, interior[DLC_MAX_RANK] = {0};
    for (int i = 0; i < t->spatial; i++) interior[2 + i] = graph_list_entry(&t->e->attribute[STRIDE], i, 1) - 1;
    t->input = graph_emit_with(t->g, "pad", 2, (graph_id[]){t->input, graph_scalar_like(t->g, t->input, 0)}, 3,
                               (graph_setting[]){graph_set_list("low", t->x.rank, none),
                                                 graph_set_list("high", t->x.rank, none),
                                                 graph_set_list("interior", t->x.rank, interior)});
    t->x = *graph_shape_of(t->g, t->input);
    for (int i = 0; i < t->spatial; i++) read_axis(t, i, true);
}

/* The windows of a run of phases in each dimension: w [g*cig, cog, k1...] -> [g * c1 * c2... * cog, cig, J1, J2...], each mirrored. g:
 * groups; c: phases of a run; J: steps; cig, cog: channels of a group. */
static graph_id windows_of(const transposed *t, const phases *const *run) {
    tir_pool *pool = t->g->pool;
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK], dims[DLC_MAX_RANK], merged[DLC_MAX_RANK];
    int64_t order[DLC_MAX_RANK], mirrored[SPATIAL_MAX], across[SPATIAL_MAX];
    int64_t step[DLC_MAX_RANK] = {1, 1}, none[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    for (int i = 0; i < t->w.rank; i++) start[i] = index_of(t, 0), stop[i] = t->w.dim[i];
    for (int i = 0; i < t->spatial; i++) {
        const int64_t apart = t->axis[i].apart, all = (run[i]->steps - 1) * apart + run[i]->count;
        start[2 + i] = index_of(t, run[i]->from);
        stop[2 + i] = index_of(t, run[i]->from + all);
        step[2 + i] = run[i]->count == 1 ? apart : 1;
        across[i] = run[i]->count == 1 || run[i]->steps == 1 ? run[i]->count : apart;
        if (run[i]->count > 1) high[2 + i] = run[i]->steps * across[i] - all;
    }
    graph_id w = graph_slice(t->g, t->e->input[1], start, stop, step);
    w = graph_pad(t->g, w, graph_scalar_like(t->g, w, 0), none, high);
    tir_expr rows = tir_mul(pool, t->w.dim[1], index_of(t, t->groups));
    int at = 0, rank = 3;
    dims[0] = index_of(t, t->groups);
    dims[1] = merged[1] = tir_div(pool, t->w.dim[0], index_of(t, t->groups));
    dims[2] = t->w.dim[1];
    order[at++] = 0;
    for (int i = 0; i < t->spatial; i++) {
        mirrored[i] = rank;
        dims[rank++] = merged[2 + i] = index_of(t, run[i]->steps);
        order[at++] = rank;
        dims[rank++] = index_of(t, across[i]);
        rows = tir_mul(pool, rows, index_of(t, run[i]->count));
    }
    order[at++] = 2;
    order[at++] = 1;
    for (int i = 0; i < t->spatial; i++) order[at++] = mirrored[i];
    merged[0] = rows;
    w = graph_reverse(t->g, graph_reshape(t->g, w, rank, dims), t->spatial, mirrored);
    for (int i = 0; i < t->spatial; i++)
        w = graph_slice_axis(t->g, w, 4 + 2 * i, index_of(t, 0), index_of(t, run[i]->count));
    return graph_reshape(t->g, graph_transpose(t->g, w, order), 2 + t->spatial, merged);
}

/* The result at a run of phases in each dimension, [n, g*cog, m1, c1, m2, c2...]; m: points of a phase. */
static graph_id points_of(const transposed *t, const phases *const *run) {
    tir_expr dims[DLC_MAX_RANK], merged[DLC_MAX_RANK];
    int64_t order[DLC_MAX_RANK], low[SPATIAL_MAX], high[SPATIAL_MAX], distance[SPATIAL_MAX];
    const int d = t->spatial, channel = 2 + d;
    bool joined = false;
    dims[0] = merged[0] = t->x.dim[0];
    dims[1] = index_of(t, t->groups);
    dims[channel] = t->w.dim[1];
    merged[1] = tir_mul(t->g->pool, t->w.dim[1], index_of(t, t->groups));
    order[0] = 0, order[1] = 1, order[2] = channel;
    for (int i = 0; i < d; i++) {
        const axis *a = &t->axis[i];
        const int64_t reach = (run[i]->steps - 1) * a->distance;
        distance[i] = a->distance;
        joined = joined || run[i]->count > 1;
        low[i] = reach - run[i]->shift;
        high[i] = a->beyond + run[i]->shift;
        dims[2 + i] = merged[3 + 2 * i] = index_of(t, run[i]->count);
        order[3 + 2 * i] = channel + 1 + i;
        order[4 + 2 * i] = 2 + i;
    }
    graph_id y = graph_emit_with(t->g, "convolution", 2, (graph_id[]){t->input, windows_of(t, run)}, 5,
                                 (graph_setting[]){graph_set_list("low", d, low), graph_set_list("high", d, high),
                                                   graph_set_list("dilation", d, distance),
                                                   graph_set_integer("groups", t->groups),
                                                   graph_set_integer("result", t->e->attribute[RESULT].integer)});
    for (int i = 0; i < d; i++) dims[channel + 1 + i] = merged[2 + 2 * i] = graph_shape_of(t->g, y)->dim[2 + i];
    if (joined) y = graph_transpose(t->g, graph_reshape(t->g, y, 3 + 2 * d, dims), order);
    return graph_reshape(t->g, y, 2 + 2 * d, merged);
}

/* points_of all phases from spatial dimension i on, of the runs given for those before it. */
static graph_id interleave(const transposed *t, int i, const phases **run) {
    graph_id part[RUNS_MOST];
    if (i == t->spatial) return points_of(t, run);
    const axis *a = &t->axis[i];
    graph_shape like = {0};
    for (int k = 0; k < a->runs; k++) {
        if (!a->run[k].steps) continue;
        run[i] = &a->run[k];
        part[k] = interleave(t, i + 1, run);
        like = *graph_shape_of(t->g, part[k]);
    }
    for (int k = 0; k < a->runs; k++) {
        if (a->run[k].steps) continue;
        like.dim[3 + 2 * i] = index_of(t, a->run[k].count);
        part[k] = graph_full(t->g, like.dtype, like.rank, like.dim, 0);
    }
    return graph_concat(t->g, a->runs, part, 3 + 2 * i);
}

static void expand_convolution_transposed(graph_expand *e) {
    transposed t = {.e = e,
                    .g = e->g,
                    .input = e->input[0],
                    .x = *graph_shape_of(e->g, e->input[0]),
                    .w = *graph_shape_of(e->g, e->input[1]),
                    .groups = e->attribute[GROUPS].integer};
    const phases *run[SPATIAL_MAX];
    tir_expr dims[DLC_MAX_RANK];
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    int convolutions = 1;
    t.spatial = t.x.rank - 2;
    for (int i = 0; i < t.spatial && convolutions; i++) convolutions *= read_axis(&t, i, false) ? t.axis[i].runs : 0;
    if (!convolutions || convolutions > CONVOLUTIONS_MOST) spread(&t);
    graph_id y = interleave(&t, 0, run);
    const graph_shape *shape = graph_shape_of(t.g, y);
    dims[0] = shape->dim[0], dims[1] = shape->dim[1];
    for (int i = 0; i < t.spatial; i++) {
        dims[2 + i] = tir_mul(t.g->pool, shape->dim[2 + 2 * i], shape->dim[3 + 2 * i]);
        high[2 + i] = -t.axis[i].excess;
    }
    y = graph_reshape(t.g, y, 2 + t.spatial, dims);
    e->result[0] = graph_pad(t.g, y, graph_scalar_like(t.g, y, 0), low, high);
}

/* ---- transposes: x: the convolution of c by w; w: the gradient of that convolution's w, c in the place of its input and x in that of its
 * output */

static void transpose_convolution_transposed(graph_rule *rule) {
    graph *g = rule->g;
    const graph_attribute *a = rule->attribute;
    const graph_shape own = *graph_shape_of(g, rule->input[rule->operand]);
    int64_t high[SPATIAL_MAX];
    for (int i = 0; i < own.rank - 2; i++)
        high[i] = graph_list_entry(&a[HIGH], i, 0) - graph_list_entry(&a[OUTPUT_PADDING], i, 0);
    graph_id other = rule->input[1 - rule->operand];
    const bool half =
        lib_dtype_is_narrow_float(graph_shape_of(g, other)->dtype) && !lib_dtype_is_f8(graph_shape_of(g, other)->dtype);
    if (!half) other = graph_widen(g, other);
    const graph_id c = graph_cast(g, rule->cotangent[0], graph_shape_of(g, other)->dtype);
    const graph_setting settings[] = {{"stride", a[STRIDE]},
                                      {"low", a[LOW]},
                                      graph_set_list("high", own.rank - 2, high),
                                      {"dilation", a[DILATION]},
                                      {"groups", a[GROUPS]},
                                      graph_set_integer("result", half ? GRAPH_RESULT_F32 : GRAPH_RESULT_SAME),
                                      graph_set_dims("window", own.rank - 2, own.dim + 2)};
    const graph_id out = graph_emit_with(g, rule->operand ? "convolution_weights" : "convolution", 2,
                                         (graph_id[]){c, other}, rule->operand ? 7 : 6, settings);
    rule->out[0] = graph_cast(g, out, graph_tangent_dtype(own.dtype));
}

#ifdef DLC_REFERENCE
/* Adds every product to its result element. */
static void reference_convolution_transposed(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *w = &r->operand[1], *y = &r->result[0];
    const graph_attribute *a = r->attribute;
    int64_t from[DLC_MAX_RANK] = {0}, group = w->dim[0] / a[GROUPS].integer;
    GRAPH_REFERENCE_EACH(x, from) {
        int64_t at[DLC_MAX_RANK] = {0};
        GRAPH_REFERENCE_EACH(w, at) {
            if (at[0] != from[1]) continue;
            int64_t to[DLC_MAX_RANK] = {from[0], from[1] / group * w->dim[1] + at[1]};
            bool inside = true;
            for (int i = 2; i < x->rank; i++) {
                to[i] = from[i] * graph_list_entry(&a[STRIDE], i - 2, 1) +
                        at[i] * graph_list_entry(&a[DILATION], i - 2, 1) - graph_list_entry(&a[LOW], i - 2, 0);
                inside = inside && to[i] >= 0 && to[i] < y->dim[i];
            }
            if (!inside) continue;
            double left = x->data[graph_reference_at(x, from)], right = w->data[graph_reference_at(w, at)];
            double *sum = &y->data[graph_reference_at(y, to)];
            if (graph_reference_integral(y->dtype))
                *sum = graph_reference_wrap(y->dtype, graph_reference_word(*sum) +
                                                          graph_reference_word(left) * graph_reference_word(right));
            else
                *sum += left * right;
        }
    }
}
#endif

static const graph_op row_convolution_transposed = {
    COMPOSITE_ROW(convolution_transposed, 2, 2, 1, "x w", "number"),
    .aliases = "conv_transpose",
    .precision = GRAPH_NARROW,
    .attribute = {{"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance in the result of neighbours in x; empty: 1"},
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "elements removed before the first of the result; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "elements removed after the last of the result; empty: 0"},
                  {"dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a window; empty: 1"},
                  {"output_padding", GRAPH_ATTR_INTEGERS, NULL, "[]",
                   "elements that the result has more, after its last; empty: 0"},
                  {"groups", GRAPH_ATTR_INTEGER, NULL, "1",
                   "channels are divided into as many independent convolutions"},
                  GRAPH_RESULT_ATTRIBUTE},
    GRAPH_LINEAR(3, transpose_convolution_transposed),
    .infer = infer_convolution_transposed,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_convolution_transposed),
    .samples =
        "convolution_transposed(T[1, 3, 5, 4], T[3, 2, 2, 2], stride=[2, 2])\n"
        "convolution_transposed(T[2, 3, 5, 4], T[3, 5, 4, 4], stride=[2, 2], low=[1, 1], high=[1, 1])\n"
        "convolution_transposed(T[1, 2, 4, 5], T[2, 3, 3, 5], stride=[2, 3], low=[1, 0], high=[0, 2], "
        "output_padding=[1, 2])\n"
        "convolution_transposed(T[1, 4, 6, 5], T[4, 3, 3, 3])\n"
        "convolution_transposed(T[1, 4, 3, 3], T[4, 2, 3, 2], stride=[3, 4], groups=2, output_padding=[0, 1])\n"
        "convolution_transposed(T[1, 3, 7], T[3, 2, 3], stride=[2], dilation=[2], low=[1], high=[1])\n"
        "convolution_transposed(T[2, 6, 3, 3], T[6, 1, 4, 4], stride=[2, 2], low=[1, 1], high=[1, 1], groups=6)\n"
        "convolution_transposed(T[1, 2, 1], T[2, 3, 1], stride=[5])\n"
        "convolution_transposed(T[1, 2, 2, 3, 2], T[2, 2, 2, 3, 2], stride=[2, 1, 2], low=[0, 1, 0])\n"
        "convolution_transposed(T[0, 2, 5], T[2, 3, 2], stride=[2])\n"
        "convolution_transposed(bf16[1, 3, 6, 6], bf16[3, 4, 3, 3], stride=[2, 2], result=f32)\n"
        "convolution_transposed(T[1, 17, 9, 8], T[17, 18, 2, 2], stride=[2, 2])\n"
        "convolution_transposed(T[2, 3, 6, 5], T[3, 4, 5, 7], stride=[3, 4], low=[2, 3], high=[1, 2], output_padding=[2, 1])\n"
        "convolution_transposed(T[1, 3, 6, 5], T[3, 2, 1, 2], stride=[2, 3], low=[0, 1], output_padding=[1, 0])\n"
        "convolution_transposed(T[1, 4, 5, 6], T[4, 1, 4, 5], stride=[2, 4], dilation=[3, 2], low=[4, 1], high=[1, 3], groups=2)\n"
        "convolution_transposed(T[1, 2, 2, 2, 3], T[2, 2, 5, 5, 5], stride=[5, 5, 5], dilation=[2, 3, 2], low=[1, 0, 3])\n"
        "convolution_transposed(T[1, 2, 2, 3, 3], T[2, 3, 3, 3, 3], stride=[2, 2, 2], low=[1, 1, 1], high=[1, 1, 1], "
        "output_padding=[1, 1, 1])",
    .doc =
        "y[n, co, i*stride + k*dilation - low...] = sum of x[n, ci, i...] * w[ci, co in its group, k...] over all ci "
        "of the group, i and k that go there: the gradient of a convolution with respect to its input. x [batch, "
        "channels, 1 to 3 spatial dimensions], none of them empty, w [channels, result channels/groups, window]; result "
        "size (x - 1)*stride + (window - 1)*dilation + 1 - low - high + output_padding. Arithmetic as that of convolution. "
        "ONNX ConvTranspose.",
};

const graph_op *const graph_ops_transposed[] = {&row_convolution_transposed, NULL};
