/* Transposed convolution by phases. Result points whose distance is the stride use the same elements of the window: they are a phase,
 * with a smaller window of its own. All phases are channels of one convolution of stride 1, whose result is interleaved. There are
 * no products with inserted zeros, except if the stride does not divide the window. */
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

typedef struct transposed {
    graph_expand *e;
    graph *g;
    graph_shape x, w;
    int spatial;
    int64_t groups, extent[SPATIAL_MAX], stride[SPATIAL_MAX], low[SPATIAL_MAX], high[SPATIAL_MAX],
        dilation[SPATIAL_MAX], extra[SPATIAL_MAX];
} transposed;

static transposed read_operands(graph_expand *e) {
    const graph_attribute *a = e->attribute;
    transposed t = {
        .e = e, .g = e->g, .x = *graph_shape_of(e->g, e->input[0]), .w = *graph_shape_of(e->g, e->input[1])};
    t.spatial = t.x.rank - 2;
    t.groups = a[GROUPS].integer;
    for (int i = 0; i < t.spatial; i++) {
        tir_is_const(e->g->pool, t.w.dim[2 + i], &t.extent[i]); /* checked by the shape rule */
        t.stride[i] = graph_list_entry(&a[STRIDE], i, 1);
        t.low[i] = graph_list_entry(&a[LOW], i, 0);
        t.high[i] = graph_list_entry(&a[HIGH], i, 0);
        t.dilation[i] = graph_list_entry(&a[DILATION], i, 1);
        t.extra[i] = graph_list_entry(&a[OUTPUT_PADDING], i, 0);
    }
    return t;
}

static graph_id convolve(const transposed *t, graph_id x, graph_id w, const int64_t *low, const int64_t *high,
                         const int64_t *dilation) {
    return graph_emit_with(
        t->g, "convolution", 2, (graph_id[]){x, w}, 5,
        (graph_setting[]){graph_set_list("low", t->spatial, low), graph_set_list("high", t->spatial, high),
                          graph_set_list("dilation", t->spatial, dilation), graph_set_integer("groups", t->groups),
                          graph_set_integer("result", t->e->attribute[RESULT].integer)});
}

static tir_expr index_of(const transposed *t, int64_t n) {
    return tir_index(t->g->pool, n);
}

/* The windows of all phases: w [g*cig, cog, J1*s1, ...] -> [g * s1 * s2... * cog, cig, J1, J2...], each mirrored. g: groups; s: stride;
 * J: steps; cig, cog: channels of a group. */
static graph_id windows_of_phases(const transposed *t, graph_id w, const int64_t *stride, const int64_t *steps) {
    tir_expr dims[DLC_MAX_RANK], merged[DLC_MAX_RANK];
    int64_t order[DLC_MAX_RANK], mirrored[SPATIAL_MAX];
    tir_expr rows = tir_mul(t->g->pool, t->w.dim[1], index_of(t, t->groups));
    int grouped = t->groups > 1, channel = grouped, rank = 0;
    if (grouped) dims[rank++] = index_of(t, t->groups);
    dims[rank++] = tir_div(t->g->pool, t->w.dim[0], index_of(t, t->groups));
    dims[rank++] = t->w.dim[1];
    merged[1] = dims[channel];
    int at = 0;
    if (grouped) order[at++] = 0;
    for (int i = 0; i < t->spatial; i++) {
        mirrored[i] = rank;
        dims[rank++] = index_of(t, steps[i]);
        order[at++] = rank;
        dims[rank++] = index_of(t, stride[i]);
        rows = tir_mul(t->g->pool, rows, index_of(t, stride[i]));
        merged[2 + i] = index_of(t, steps[i]);
    }
    order[at++] = channel + 1;
    order[at++] = channel;
    for (int i = 0; i < t->spatial; i++) order[at++] = mirrored[i];
    merged[0] = rows;
    w = graph_reverse(t->g, graph_reshape(t->g, w, rank, dims), t->spatial, mirrored);
    return graph_reshape(t->g, graph_transpose(t->g, w, order), 2 + t->spatial, merged);
}

/* The phases interleaved: y [n, g * s1 * s2... * co, q1, q2...] -> [n, g * co, q1*s1, q2*s2...]. */
static graph_id interleave(const transposed *t, graph_id y) {
    const graph_shape from = *graph_shape_of(t->g, y);
    tir_expr dims[DLC_MAX_RANK], merged[DLC_MAX_RANK];
    int64_t order[DLC_MAX_RANK];
    int grouped = t->groups > 1, rank = 0, at = 0;
    dims[rank++] = from.dim[0];
    if (grouped) dims[rank++] = index_of(t, t->groups);
    int phase = rank;
    for (int i = 0; i < t->spatial; i++) dims[rank++] = index_of(t, t->stride[i]);
    int channel = rank;
    dims[rank++] = t->w.dim[1];
    for (int i = 0; i < t->spatial; i++) dims[rank++] = from.dim[2 + i];
    order[at++] = 0;
    if (grouped) order[at++] = 1;
    order[at++] = channel;
    merged[0] = from.dim[0];
    merged[1] = tir_mul(t->g->pool, t->w.dim[1], index_of(t, t->groups));
    for (int i = 0; i < t->spatial; i++) {
        order[at++] = channel + 1 + i;
        order[at++] = phase + i;
        merged[2 + i] = tir_mul(t->g->pool, from.dim[2 + i], index_of(t, t->stride[i]));
    }
    y = graph_transpose(t->g, graph_reshape(t->g, y, rank, dims), order);
    return graph_reshape(t->g, y, 2 + t->spatial, merged);
}

static graph_id by_phases(const transposed *t) {
    int64_t steps[SPATIAL_MAX], border[SPATIAL_MAX], low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    static const int64_t near[SPATIAL_MAX] = {1, 1, 1};
    bool pads = false;
    for (int i = 0; i < t->spatial; i++) {
        steps[i] = (t->extent[i] + t->stride[i] - 1) / t->stride[i];
        border[i] = steps[i] - 1;
        high[2 + i] = steps[i] * t->stride[i] - t->extent[i];
        pads = pads || high[2 + i];
    }
    graph_id w = t->e->input[1];
    if (pads) w = graph_pad(t->g, w, graph_scalar_like(t->g, w, 0), low, high);
    w = windows_of_phases(t, w, t->stride, steps);
    graph_id y = interleave(t, convolve(t, t->e->input[0], w, border, border, near));
    bool crops = false;
    for (int i = 0; i < t->spatial; i++) {
        low[2 + i] = -t->low[i];
        high[2 + i] = t->extent[i] - steps[i] * t->stride[i] - t->high[i] + t->extra[i];
        crops = crops || low[2 + i] || high[2 + i];
    }
    return crops ? graph_pad(t->g, y, graph_scalar_like(t->g, y, 0), low, high) : y;
}

/* The transposed convolution without phases: x with zeros between its elements, convolved with the mirrored window. */
static graph_id by_zeros(const transposed *t) {
    int64_t none[DLC_MAX_RANK] = {0}, interior[DLC_MAX_RANK] = {0}, low[SPATIAL_MAX], high[SPATIAL_MAX];
    static const int64_t one[SPATIAL_MAX] = {1, 1, 1};
    bool spreads = false;
    for (int i = 0; i < t->spatial; i++) {
        int64_t reach = (t->extent[i] - 1) * t->dilation[i];
        interior[2 + i] = t->stride[i] - 1;
        spreads = spreads || interior[2 + i];
        low[i] = reach - t->low[i];
        high[i] = reach - t->high[i] + t->extra[i];
    }
    graph_id x = t->e->input[0];
    if (spreads)
        x = graph_emit_with(t->g, "pad", 2, (graph_id[]){x, graph_scalar_like(t->g, x, 0)}, 3,
                            (graph_setting[]){graph_set_list("low", t->x.rank, none),
                                              graph_set_list("high", t->x.rank, none),
                                              graph_set_list("interior", t->x.rank, interior)});
    graph_id w = windows_of_phases(t, t->e->input[1], one, t->extent);
    return convolve(t, x, w, low, high, t->dilation);
}

static void expand_convolution_transposed(graph_expand *e) {
    transposed t = read_operands(e);
    bool phases = false, dilated = false;
    for (int i = 0; i < t.spatial; i++) {
        phases = phases || t.stride[i] > 1;
        dilated = dilated || t.dilation[i] > 1;
    }
    e->result[0] = phases && !dilated ? by_phases(&t) : by_zeros(&t);
}

/* ---- reference */

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
    if (graph_reference_count(x) == 0 || graph_reference_count(w) == 0 || graph_reference_count(y) == 0) return;
    do {
        int64_t at[DLC_MAX_RANK] = {0};
        do {
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
        } while (graph_reference_next(w, at));
    } while (graph_reference_next(x, from));
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
        "convolution_transposed(T[1, 17, 9, 8], T[17, 18, 2, 2], stride=[2, 2])",
    .doc =
        "y[n, co, i*stride + k*dilation - low...] = sum of x[n, ci, i...] * w[ci, co in its group, k...] over all ci "
        "of the group, i and k that go there: the gradient of a convolution with respect to its input. x [batch, "
        "channels, 1 to 3 spatial dimensions], none of them empty, w [channels, result channels/groups, window]; result "
        "size (x - 1)*stride + (window - 1)*dilation + 1 - low - high + output_padding. Arithmetic as that of convolution. "
        "ONNX ConvTranspose.",
};

const graph_op *const graph_ops_transposed[] = {&row_convolution_transposed, NULL};
