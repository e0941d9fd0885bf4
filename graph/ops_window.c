/* Sliding windows: convolutions, and reduce_window, to which pools (ops_pool.c) expand. All share one geometry: along a
 * windowed dimension of size n, output o and window position k meet input i = o*stride + k*dilation - low,    0 <= i < n, and
 * there are max(0, floor((n + low + high - ((window - 1)*dilation + 1)) / stride) + 1) outputs. Padding is not data: a predicate
 * excludes reduction points on it, so that it contributes neither 0*NaN nor the identity of a maximum. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"
#include "graph/window.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- geometry --------------------------------------------------------------------------------------------------- */

const graph_window_list graph_window_lists[WINDOW_LISTS] = {{"stride", 1, 1, WINDOW_LIMIT},
                                                            {"low", 0, -WINDOW_LIMIT, WINDOW_LIMIT},
                                                            {"high", 0, -WINDOW_LIMIT, WINDOW_LIMIT},
                                                            {"dilation", 1, 1, DILATION_LIMIT}};

graph_window graph_window_of(const graph_attribute *lists, int dimension) {
    graph_window w;
    for (int k = 0; k < WINDOW_LISTS; k++)
        w.number[k] = graph_list_entry(&lists[k], dimension, graph_window_lists[k].initial);
    return w;
}

void graph_window_check_lists(const graph_infer *infer, const graph_attribute *lists, int dimensions) {
    for (int k = 0; k < WINDOW_LISTS; k++) {
        if (lists[k].count && lists[k].count != dimensions)
            graph_infer_fail(infer, "%s has %d entries, expected one for each of the %d windowed dimensions",
                             graph_window_lists[k].name, lists[k].count, dimensions);
        for (int i = 0; i < lists[k].count; i++)
            if (lists[k].list[i] < graph_window_lists[k].least || lists[k].list[i] > graph_window_lists[k].most)
                graph_infer_fail(infer, "%s of windowed dimension %d is %lld, expected %lld to %lld",
                                 graph_window_lists[k].name, i, (long long)lists[k].list[i],
                                 (long long)graph_window_lists[k].least, (long long)graph_window_lists[k].most);
    }
}

tir_expr graph_window_outputs(tir_pool *pool, tir_expr size, tir_expr extent, graph_window w) {
    tir_expr one = tir_index(pool, 1), stride = tir_index(pool, w.number[WINDOW_STRIDE]);
    tir_expr span =
        tir_add(pool, tir_mul(pool, tir_sub(pool, extent, one), tir_index(pool, w.number[WINDOW_DILATION])), one);
    tir_expr padded = tir_add(pool, size, tir_index(pool, w.number[WINDOW_LOW] + w.number[WINDOW_HIGH]));
    tir_expr starts = tir_add(pool, tir_div(pool, tir_sub(pool, padded, span), stride), one);
    return tir_max(pool, starts, tir_index(pool, 0));
}

static tir_expr window_input(tir_pool *pool, tir_expr output, tir_expr position, graph_window w) {
    tir_expr index = tir_add(pool, tir_mul(pool, output, tir_index(pool, w.number[WINDOW_STRIDE])),
                             tir_mul(pool, position, tir_index(pool, w.number[WINDOW_DILATION])));
    return tir_sub(pool, index, tir_index(pool, w.number[WINDOW_LOW]));
}

/* predicate (0: true) and condition, unless that always holds. */
static tir_expr with_condition(tir_pool *pool, tir_expr predicate, tir_expr condition) {
    if (tir_prove(pool, condition) == TIR_YES) return predicate;
    return predicate ? tir_and(pool, predicate, condition) : condition;
}

/* predicate (0: true) and 0 <= index < size, without the conditions that always hold. On a side without padding the number of outputs
 * implies the condition. */
static tir_expr window_predicate(tir_pool *pool, tir_expr predicate, tir_expr index, tir_expr size, graph_window w) {
    if (w.number[WINDOW_LOW] > 0) predicate = with_condition(pool, predicate, tir_le(pool, tir_index(pool, 0), index));
    if (w.number[WINDOW_HIGH] > 0) predicate = with_condition(pool, predicate, tir_lt(pool, index, size));
    return predicate;
}

/* ---- convolution: x [n, ci, spatial...], w [co, ci/groups, window...] -> [n, co, outputs...] -------------------- */

enum { CONVOLUTION_LISTS, CONVOLUTION_GROUPS = WINDOW_LISTS, CONVOLUTION_RESULT };
enum { SPATIAL_MAX = 3 };

static void infer_channels(const graph_infer *infer, int64_t groups) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    int64_t channels;
    if (groups < 1) graph_infer_fail(infer, "groups is %lld, expected at least 1", (long long)groups);
    graph_infer_equal(infer, x->dim[1], tir_mul(pool, w->dim[1], tir_index(pool, groups)),
                      groups == 1 ? "channels of x and of w" : "channels of x and groups times those of w");
    if (groups == 1) return;
    if (tir_is_const(pool, w->dim[0], &channels) && channels % groups)
        graph_infer_fail(infer, "%lld output channels do not divide into %lld groups", (long long)channels,
                         (long long)groups);
    graph_infer_equal(infer, tir_rem(pool, w->dim[0], tir_index(pool, groups)), tir_index(pool, 0),
                      "output channels modulo groups, and 0,");
}

static void infer_convolution(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    int spatial = x->rank - 2;
    if (spatial < 1 || spatial > SPATIAL_MAX)
        graph_infer_fail(infer, "x has rank %d, expected 3 to %d: batch, channels, 1 to %d spatial dimensions", x->rank,
                         SPATIAL_MAX + 2, SPATIAL_MAX);
    graph_infer_rank(infer, 1, x->rank);
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = graph_infer_product_dtype(infer, &infer->attribute[CONVOLUTION_RESULT]),
                       .rank = x->rank};
    infer_channels(infer, infer->attribute[CONVOLUTION_GROUPS].integer);
    graph_window_check_lists(infer, infer->attribute + CONVOLUTION_LISTS, spatial);
    y->dim[0] = x->dim[0];
    y->dim[1] = w->dim[0];
    for (int i = 0; i < spatial; i++) {
        int64_t extent;
        if (tir_is_const(infer->g->pool, w->dim[2 + i], &extent) && (extent < 1 || extent > WINDOW_LIMIT))
            graph_infer_fail(infer, "the window has size %lld in spatial dimension %d, expected 1 to %lld",
                             (long long)extent, i, (long long)WINDOW_LIMIT);
        graph_window k = graph_window_of(infer->attribute + CONVOLUTION_LISTS, i);
        y->dim[2 + i] = graph_window_outputs(infer->g->pool, x->dim[2 + i], w->dim[2 + i], k);
    }
}

/* Channel of x for output channel co and channel ci of its group. */
static tir_expr input_channel(const graph_compute *c, tir_expr co, tir_expr ci) {
    int64_t groups = c->attribute[CONVOLUTION_GROUPS].integer;
    const graph_shape *w = &c->operand_shape[1];
    if (groups == 1) return ci;
    tir_expr per_group =
        tir_max(c->pool, tir_div(c->pool, w->dim[0], tir_index(c->pool, groups)), tir_index(c->pool, 1));
    tir_expr group = tir_div(c->pool, co, per_group);
    if (tir_is_number(c->pool, w->dim[1], 1)) return group; /* depthwise */
    return tir_add(c->pool, tir_mul(c->pool, group, w->dim[1]), ci);
}

/* Names of the stage's axes: n co d h w | ci kd kh kw, with fewer spatial dimensions only the last of d h w and kd kh kw. */
static void compute_convolution(graph_compute *c) {
    static const char *const space_names[] = {"d", "h", "w"}, *const window_names[] = {"kd", "kh", "kw"};
    const graph_shape *x = &c->operand_shape[0], *w = &c->operand_shape[1], *y = &c->result_shape[0];
    int spatial = x->rank - 2, skip = SPATIAL_MAX - spatial;
    const char *space[2 + SPATIAL_MAX] = {"n", "co"}, *reduce[1 + SPATIAL_MAX] = {"ci"};
    memcpy(space + 2, space_names + skip, (size_t)spatial * sizeof *space);
    memcpy(reduce + 1, window_names + skip, (size_t)spatial * sizeof *reduce);
    tir_stage *stage =
        tir_region_stage(c->region, TIR_REDUCE, c->name, y->rank, space, y->dim, 1 + spatial, reduce, w->dim + 1);
    tir_expr ci = stage->axis[y->rank].var, co = stage->axis[1].var;
    tir_expr x_index[DLC_MAX_RANK] = {stage->axis[0].var, input_channel(c, co, ci)}, w_index[DLC_MAX_RANK] = {co, ci};
    tir_expr predicate = 0;
    for (int i = 0; i < spatial; i++) {
        graph_window k = graph_window_of(c->attribute + CONVOLUTION_LISTS, i);
        w_index[2 + i] = stage->axis[y->rank + 1 + i].var;
        x_index[2 + i] = window_input(c->pool, stage->axis[2 + i].var, w_index[2 + i], k);
        predicate = window_predicate(c->pool, predicate, x_index[2 + i], x->dim[2 + i], k);
    }
    stage->predicate = predicate;
    tir_dtype sum = (tir_dtype)graph_sum_dtype(y->dtype);
    tir_expr a = tir_cast(c->pool, sum, graph_operand_load(c, 0, x_index));
    tir_expr b = tir_cast(c->pool, sum, graph_operand_load(c, 1, w_index));
    c->result[0] = graph_compute_cast(c, tir_stage_contract(c->region, stage, a, b), y->dtype, space);
}

/* ---- reduce_window: a window over every dimension --------------------------------------------------------------- */

enum { REDUCE_WINDOW_OP, REDUCE_WINDOW_SIZE, REDUCE_WINDOW_LISTS };

void graph_window_check_sizes(const graph_infer *infer, const graph_attribute *sizes, int dimensions) {
    if (sizes->count != dimensions)
        graph_infer_fail(infer, "window has %d entries, expected %d", sizes->count, dimensions);
    for (int i = 0; i < dimensions; i++)
        if (sizes->list[i] < 1 || sizes->list[i] > WINDOW_LIMIT)
            graph_infer_fail(infer, "window of dimension %d is %lld, expected 1 to %lld", i, (long long)sizes->list[i],
                             (long long)WINDOW_LIMIT);
}

static void infer_reduce_window(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *size = &infer->attribute[REDUCE_WINDOW_SIZE];
    graph_window_check_sizes(infer, size, x->rank);
    graph_window_check_lists(infer, infer->attribute + REDUCE_WINDOW_LISTS, x->rank);
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        graph_window w = graph_window_of(infer->attribute + REDUCE_WINDOW_LISTS, i);
        infer->result[0].dim[i] =
            graph_window_outputs(infer->g->pool, x->dim[i], tir_index(infer->g->pool, size->list[i]), w);
    }
}

/* The stage has a reduction axis for each dimension with a window larger than 1; along the others, a window of 1 selects an element. */
static void compute_reduce_window(graph_compute *c) {
    static const tir_op ops[] = {TIR_ADD, TIR_MAX, TIR_MIN};
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    const int64_t *size = c->attribute[REDUCE_WINDOW_SIZE].list;
    const char *names[DLC_MAX_RANK];
    tir_expr extent[DLC_MAX_RANK], index[DLC_MAX_RANK], predicate = 0;
    int reduced = 0;
    for (int i = 0; i < x->rank; i++) {
        if (size[i] == 1) continue;
        names[reduced] = lib_arena_format(c->region->arena, "k%d", i);
        extent[reduced++] = tir_index(c->pool, size[i]);
    }
    tir_stage *stage = tir_region_stage(c->region, TIR_REDUCE, c->name, y->rank, NULL, y->dim, reduced, names, extent);
    reduced = 0;
    for (int i = 0; i < x->rank; i++) {
        graph_window w = graph_window_of(c->attribute + REDUCE_WINDOW_LISTS, i);
        tir_expr position = size[i] == 1 ? tir_index(c->pool, 0) : stage->axis[y->rank + reduced++].var;
        index[i] = window_input(c->pool, stage->axis[i].var, position, w);
        predicate = window_predicate(c->pool, predicate, index[i], x->dim[i], w);
    }
    stage->predicate = predicate;
    tir_expr element = graph_operand_load(c, 0, index);
    int64_t op = c->attribute[REDUCE_WINDOW_OP].integer;
    if (op == REDUCE_WINDOW_SUM) element = tir_cast(c->pool, (tir_dtype)graph_sum_dtype(x->dtype), element);
    c->result[0] = graph_compute_cast(c, tir_stage_reduce(c->region, stage, ops[op], element), y->dtype, NULL);
}

/* ---- rules of differentiation -------------------------------------------------------------------------------------- */

/* Elements from -low to size + high of each axis, zeros beyond x: padded, or removed where negative. Sizes that vary are
 * reached from above, then cut. */
static graph_id resized(graph *g, graph_id x, double fill, const int64_t *low, const int64_t *high,
                        const graph_shape *wanted) {
    const graph_shape shape = *graph_shape_of(g, x);
    tir_expr start[DLC_MAX_RANK];
    x = graph_pad(g, x, graph_scalar_like(g, x, fill), low, high);
    for (int i = 0; i < shape.rank; i++) start[i] = tir_index(g->pool, 0);
    return graph_slice(g, x, start, wanted->dim, NULL);
}

/* The sum of the cotangents of all windows that read an element: windows of the cotangents, spread by the stride. */
static void transpose_window_sum(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]);
    const graph_attribute *size = &rule->attribute[REDUCE_WINDOW_SIZE];
    int64_t interior[DLC_MAX_RANK], none[DLC_MAX_RANK] = {0}, low[DLC_MAX_RANK], high[DLC_MAX_RANK],
                                    dilation[DLC_MAX_RANK], stride[DLC_MAX_RANK];
    tir_expr start[DLC_MAX_RANK];
    for (int i = 0; i < x.rank; i++) {
        const graph_window w = graph_window_of(rule->attribute + REDUCE_WINDOW_LISTS, i);
        const int64_t reach = (size->list[i] - 1) * w.number[WINDOW_DILATION];
        interior[i] = w.number[WINDOW_STRIDE] - 1;
        stride[i] = 1;
        dilation[i] = w.number[WINDOW_DILATION];
        low[i] = reach - w.number[WINDOW_LOW];
        high[i] = reach - w.number[WINDOW_HIGH] + interior[i]; /* up to so many elements are in no window */
        start[i] = tir_index(g->pool, 0);
    }
    graph_id c = rule->cotangent[0], zero = graph_scalar_like(g, c, 0);
    c = graph_emit_with(g, "pad", 2, (graph_id[]){c, zero}, 3,
                        (graph_setting[]){graph_set_list("low", x.rank, none), graph_set_list("high", x.rank, none),
                                          graph_set_list("interior", x.rank, interior)});
    c = graph_emit_with(g, "reduce_window", 1, &c, 6,
                        (graph_setting[]){graph_set_integer("op", REDUCE_WINDOW_SUM),
                                          {"window", *size},
                                          graph_set_list("stride", x.rank, stride),
                                          graph_set_list("low", x.rank, low),
                                          graph_set_list("high", x.rank, high),
                                          graph_set_list("dilation", x.rank, dilation)});
    rule->out[0] = graph_slice(g, c, start, x.dim, NULL);
}

/* The elements that position `at` of all windows reads of x padded with `fill`; none if no window fits, where x may end before the position. */
static graph_id window_elements(const graph_rule *rule, graph_id padded, const int64_t *at) {
    graph *g = rule->g;
    const graph_shape y = *graph_shape_of(g, rule->first), x = *graph_shape_of(g, padded);
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    int64_t step[DLC_MAX_RANK];
    for (int i = 0; i < y.rank; i++) {
        const graph_window w = graph_window_of(rule->attribute + REDUCE_WINDOW_LISTS, i);
        step[i] = w.number[WINDOW_STRIDE];
        start[i] = tir_min(g->pool, tir_index(g->pool, at[i] * w.number[WINDOW_DILATION]), x.dim[i]);
        tir_expr reach =
            tir_mul(g->pool, tir_sub(g->pool, y.dim[i], tir_index(g->pool, 1)), tir_index(g->pool, step[i]));
        stop[i] = tir_add(g->pool, start[i],
                          tir_max(g->pool, tir_add(g->pool, reach, tir_index(g->pool, 1)), tir_index(g->pool, 0)));
    }
    return graph_slice(g, padded, start, stop, step);
}

/* Of the greatest or least: the tangent of the first element that equals it. */
static graph_id tangent_of_chosen(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0), y = graph_rule_result(rule, 0);
    const graph_shape shape = *graph_shape_of(g, x);
    const graph_attribute *size = &rule->attribute[REDUCE_WINDOW_SIZE];
    const bool most = rule->attribute[REDUCE_WINDOW_OP].integer == REDUCE_WINDOW_MAX;
    int64_t low[DLC_MAX_RANK], high[DLC_MAX_RANK], at[DLC_MAX_RANK];
    for (int i = 0; i < shape.rank; i++) {
        const graph_window w = graph_window_of(rule->attribute + REDUCE_WINDOW_LISTS, i);
        low[i] = w.number[WINDOW_LOW];
        high[i] = w.number[WINDOW_HIGH];
        at[i] = size->list[i] - 1;
    }
    const graph_id fill = graph_scalar_like(g, x, most ? -__builtin_inf() : __builtin_inf()),
                   zero = graph_scalar_like(g, x, 0);
    const graph_id padded = shape.rank ? graph_pad(g, x, fill, low, high) : x;
    const graph_id tangents = shape.rank ? graph_pad(g, rule->tangent[0], zero, low, high) : rule->tangent[0];
    graph_id d = graph_full_like(g, y, 0);
    for (int i = 0; i < shape.rank; i++)
        if (tir_is_number(g->pool, graph_shape_of(g, y)->dim[i], 0)) return d; /* no window fits */
    for (int i = 0; i >= 0;) { /* from the last position to the first, which wins */
        d = graph_select(g, graph_eq(g, window_elements(rule, padded, at), y), window_elements(rule, tangents, at), d);
        for (i = shape.rank - 1; i >= 0 && at[i]-- == 0; i--) at[i] = size->list[i] - 1;
    }
    return d;
}

static void tangent_reduce_window(graph_rule *rule) {
    if (rule->attribute[REDUCE_WINDOW_OP].integer == REDUCE_WINDOW_SUM)
        rule->out[0] = graph_emit(rule->g, rule->op, 1, rule->tangent, rule->attribute);
    else
        rule->out[0] = tangent_of_chosen(rule);
}

static void cotangent_reduce_window(graph_rule *rule) {
    if (rule->attribute[REDUCE_WINDOW_OP].integer == REDUCE_WINDOW_SUM)
        transpose_window_sum(rule);
    else
        graph_rule_transpose_tangents(rule);
}

/* An operand for a product with the other in that one's type, and the result's type: sums of f16 and bf16 are f32. */
static graph_id product_with(const graph_rule *rule, graph_id value, graph_id *other, graph_setting *result) {
    graph *g = rule->g;
    const dlc_dtype dtype = graph_shape_of(g, *other)->dtype;
    const bool half = dtype == DLC_F16 || dtype == DLC_BF16;
    if (!half) *other = graph_widen(g, *other);
    *result = graph_set_integer("result", half ? GRAPH_RESULT_F32 : GRAPH_RESULT_SAME);
    return graph_cast(g, value, graph_shape_of(g, *other)->dtype);
}

/* w [co, ci/groups, window...] for the convolution of the cotangents: mirrored, channels exchanged in each group. */
static graph_id mirrored_window(graph *g, graph_id w, int64_t groups) {
    const graph_shape shape = *graph_shape_of(g, w);
    const tir_expr by = tir_index(g->pool, groups), of_group = tir_div(g->pool, shape.dim[0], by);
    tir_expr split[DLC_MAX_RANK] = {by, of_group, shape.dim[1]}, joined[DLC_MAX_RANK];
    int64_t order[DLC_MAX_RANK] = {0, 2, 1}, axes[DLC_MAX_RANK];
    joined[0] = tir_mul(g->pool, shape.dim[1], by);
    joined[1] = of_group;
    for (int i = 2; i < shape.rank; i++) {
        split[i + 1] = joined[i] = shape.dim[i];
        order[i + 1] = i + 1;
        axes[i - 2] = i;
    }
    w = graph_transpose(g, graph_reshape(g, w, shape.rank + 1, split), order);
    return graph_reverse(g, graph_reshape(g, w, shape.rank, joined), shape.rank - 2, axes);
}

/* convolution_transposed of c with w, whose window may have any size: the convolution by the mirrored window of c, which stands `stride` apart
 * in zeros that reach as far as the window does. */
static graph_id spread_over(const graph_rule *rule, graph_id c, graph_id w, graph_setting result) {
    graph *g = rule->g;
    tir_pool *pool = g->pool;
    const graph_shape window_shape = *graph_shape_of(g, w);
    graph_shape whole = *graph_shape_of(g, c);
    int64_t interior[DLC_MAX_RANK] = {0}, none[DLC_MAX_RANK] = {0}, number = 0;
    graph_id place[DLC_MAX_RANK];
    for (int i = 0; i < whole.rank; i++) {
        tir_expr reach = tir_index(pool, 0);
        if (i >= 2) {
            const graph_window k = graph_window_of(rule->attribute + CONVOLUTION_LISTS, i - 2);
            const tir_expr last = tir_sub(pool, whole.dim[i], tir_index(pool, 1)),
                           steps = tir_sub(pool, window_shape.dim[i], tir_index(pool, 1));
            interior[i] = k.number[WINDOW_STRIDE] - 1;
            reach = tir_mul(pool, steps, tir_index(pool, k.number[WINDOW_DILATION]));
            whole.dim[i] = tir_add(pool, tir_mul(pool, last, tir_index(pool, interior[i] + 1)),
                                   tir_add(pool, tir_mul(pool, reach, tir_index(pool, 2)), tir_index(pool, 1)));
        }
        place[i] = graph_expand_dims(g, graph_dimension(g, DLC_I64, reach), 0);
        number += interior[i];
    }
    if (number)
        c = graph_emit_with(g, "pad", 2, (graph_id[]){c, graph_scalar_like(g, c, 0)}, 3,
                            (graph_setting[]){graph_set_list("low", whole.rank, none),
                                              graph_set_list("high", whole.rank, none),
                                              graph_set_list("interior", whole.rank, interior)});
    const graph_id zeros = graph_full(g, whole.dtype, whole.rank, whole.dim, 0),
                   at = graph_concat(g, whole.rank, place, 0);
    c = graph_emit_with(g, "dynamic_update_slice", 3, (graph_id[]){zeros, c, at}, 0, NULL);
    const graph_attribute *groups = &rule->attribute[CONVOLUTION_GROUPS];
    return graph_emit_with(
        g, "convolution", 2, (graph_id[]){c, mirrored_window(g, w, groups->integer)}, 3,
        (graph_setting[]){{"dilation", rule->attribute[WINDOW_DILATION]}, {"groups", *groups}, result});
}

/* x's cotangent: w spread by the stride over c, without what is beyond x. The last elements of x may be in no window: fewer than the stride,
 * an unknown number if sizes vary. */
static void transpose_into_input(graph_rule *rule, graph_id c, graph_id w) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]), shape = *graph_shape_of(g, c);
    const graph_attribute *attribute = rule->attribute;
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0}, removed[2][SPATIAL_MAX] = {{0}}, extra[SPATIAL_MAX];
    int64_t extent, size;
    /* convolution_transposed takes windows and channels in groups only as numbers */
    bool varies =
        attribute[CONVOLUTION_GROUPS].integer > 1 && !tir_is_const(g->pool, graph_shape_of(g, w)->dim[0], &extent);
    for (int i = 0; i < x.rank - 2; i++) {
        const graph_window k = graph_window_of(attribute + CONVOLUTION_LISTS, i);
        const int64_t before = k.number[WINDOW_LOW], after = k.number[WINDOW_HIGH], stride = k.number[WINDOW_STRIDE];
        if (tir_is_number(g->pool, shape.dim[2 + i], 0)) return; /* no window fits */
        extra[i] = stride - 1;
        if (!tir_is_const(g->pool, graph_shape_of(g, w)->dim[2 + i], &extent))
            varies = true;
        else if (tir_is_const(g->pool, x.dim[2 + i], &size))
            extra[i] = (size + before + after - (extent - 1) * k.number[WINDOW_DILATION] - 1) % stride;
        if (before >= 0 && after >= 0 && before <= DILATION_LIMIT && after <= DILATION_LIMIT)
            removed[0][i] = before, removed[1][i] = after;
        low[2 + i] = removed[0][i] - before;
        high[2 + i] = removed[1][i] - after;
    }
    const int spatial = x.rank - 2;
    graph_setting settings[] = {{"stride", attribute[WINDOW_STRIDE]},
                                {"dilation", attribute[WINDOW_DILATION]},
                                {"groups", attribute[CONVOLUTION_GROUPS]},
                                {0},
                                graph_set_list("low", spatial, removed[0]),
                                graph_set_list("high", spatial, removed[1]),
                                graph_set_list("output_padding", spatial, extra)};
    c = product_with(rule, c, &w, &settings[3]);
    if (varies)
        c = spread_over(rule, c, w, settings[3]);
    else
        c = graph_emit_with(g, "convolution_transposed", 2, (graph_id[]){c, w}, 7, settings);
    for (int i = 0; varies && i < spatial; i++) {
        low[2 + i] -= removed[0][i];
        high[2 + i] += extra[i] - removed[1][i];
    }
    rule->out[0] = graph_cast(g, resized(g, c, 0, low, high, &x), graph_tangent_dtype(x.dtype));
}

static void transpose_convolution(graph_rule *rule) {
    graph *g = rule->g;
    const graph_attribute *attribute = rule->attribute;
    if (rule->operand == 0) {
        transpose_into_input(rule, rule->cotangent[0], rule->input[1]);
        return;
    }
    const graph_shape w = *graph_shape_of(g, rule->input[1]);
    graph_setting settings[CONVOLUTION_GROUPS + 3];
    for (int i = 0; i <= CONVOLUTION_GROUPS; i++)
        settings[i] = (graph_setting){rule->op->attribute[i].name, attribute[i]};
    graph_id x = rule->input[0], c = product_with(rule, rule->cotangent[0], &x, &settings[CONVOLUTION_GROUPS + 1]);
    settings[CONVOLUTION_GROUPS + 2] = graph_set_dims("window", w.rank - 2, w.dim + 2);
    const graph_id out =
        graph_emit_with(g, "convolution_weights", 2, (graph_id[]){x, c}, CONVOLUTION_GROUPS + 3, settings);
    rule->out[0] = graph_cast(g, out, graph_tangent_dtype(w.dtype));
}

/* ---- convolution_weights: x [n, ci, spatial...], y [n, co, outputs...] -> [co, ci/groups, window...] ------------- */

enum { WEIGHTS_WINDOW = CONVOLUTION_RESULT + 1 };

static void infer_convolution_weights(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *y = &infer->operand[1];
    tir_pool *pool = infer->g->pool;
    const int64_t groups = infer->attribute[CONVOLUTION_GROUPS].integer;
    const graph_attribute *size = &infer->attribute[WEIGHTS_WINDOW];
    const int spatial = x->rank - 2;
    if (spatial < 1 || spatial > SPATIAL_MAX)
        graph_infer_fail(infer, "x has rank %d, expected 3 to %d: batch, channels, 1 to %d spatial dimensions", x->rank,
                         SPATIAL_MAX + 2, SPATIAL_MAX);
    graph_infer_rank(infer, 1, x->rank);
    if (size->count != spatial) graph_infer_fail(infer, "window has %d entries, expected %d", size->count, spatial);
    if (groups < 1) graph_infer_fail(infer, "groups is %lld, expected at least 1", (long long)groups);
    graph_infer_equal(infer, x->dim[0], y->dim[0], "batches of x and y");
    graph_infer_equal(infer, tir_rem(pool, x->dim[1], tir_index(pool, groups)), tir_index(pool, 0),
                      "channels of x modulo groups, and 0,");
    graph_infer_equal(infer, tir_rem(pool, y->dim[1], tir_index(pool, groups)), tir_index(pool, 0),
                      "channels of y modulo groups, and 0,");
    graph_window_check_lists(infer, infer->attribute + CONVOLUTION_LISTS, spatial);
    graph_shape *w = &infer->result[0];
    *w = (graph_shape){.dtype = graph_infer_product_dtype(infer, &infer->attribute[CONVOLUTION_RESULT]),
                       .rank = x->rank};
    w->dim[0] = y->dim[1];
    w->dim[1] = tir_div(pool, x->dim[1], tir_index(pool, groups));
    for (int i = 0; i < spatial; i++) {
        const graph_window k = graph_window_of(infer->attribute + CONVOLUTION_LISTS, i);
        w->dim[2 + i] = size->dims[i];
        graph_infer_at_most(infer, tir_index(pool, 1), size->dims[i], "the window is empty");
        graph_infer_equal(infer, graph_window_outputs(pool, x->dim[2 + i], size->dims[i], k), y->dim[2 + i],
                          "outputs of the windows and sizes of y");
    }
}

/* Does the sum along dimension i run over positions of x, not of y? The terms and their order are the same. If each channel has a window of
 * its own, a kernel keeps the sums of the whole window in registers; then a row of x, and its copies that are shifted along the row, are read
 * once for all rows of the window, and with them rows of y, which are not shifted. */
static bool runs_over_input(const graph_compute *c, int i, int spatial) {
    const graph_shape *w = &c->result_shape[0];
    const graph_window k = graph_window_of(c->attribute + CONVOLUTION_LISTS, i);
    int64_t channels;
    return i + 1 < spatial && k.number[WINDOW_STRIDE] == 1 && tir_is_number(c->pool, w->dim[1], 1) &&
           tir_is_const(c->pool, w->dim[0], &channels) && channels == c->attribute[CONVOLUTION_GROUPS].integer;
}

static void compute_convolution_weights(graph_compute *c) {
    static const char *const out_names[] = {"d", "h", "w"}, *const window_names[] = {"kd", "kh", "kw"};
    const graph_shape *x = &c->operand_shape[0], *y = &c->operand_shape[1], *w = &c->result_shape[0];
    const int spatial = x->rank - 2, skip = SPATIAL_MAX - spatial;
    const int64_t groups = c->attribute[CONVOLUTION_GROUPS].integer;
    const char *space[2 + SPATIAL_MAX] = {"co", "ci"}, *reduce[1 + SPATIAL_MAX] = {"n"};
    tir_expr extent[1 + SPATIAL_MAX] = {y->dim[0]};
    memcpy(space + 2, window_names + skip, (size_t)spatial * sizeof *space);
    memcpy(reduce + 1, out_names + skip, (size_t)spatial * sizeof *reduce);
    for (int i = 0; i < spatial; i++) extent[1 + i] = runs_over_input(c, i, spatial) ? x->dim[2 + i] : y->dim[2 + i];
    tir_stage *stage =
        tir_region_stage(c->region, TIR_REDUCE, c->name, w->rank, space, w->dim, 1 + spatial, reduce, extent);
    tir_expr n = stage->axis[w->rank].var, co = stage->axis[0].var, channel = stage->axis[1].var, predicate = 0;
    if (groups > 1) {
        tir_expr of_group =
            tir_max(c->pool, tir_div(c->pool, w->dim[0], tir_index(c->pool, groups)), tir_index(c->pool, 1));
        channel = tir_add(c->pool, tir_mul(c->pool, tir_div(c->pool, co, of_group), w->dim[1]), channel);
    }
    tir_expr x_index[DLC_MAX_RANK] = {n, channel}, y_index[DLC_MAX_RANK] = {n, co};
    for (int i = 0; i < spatial; i++) {
        const graph_window k = graph_window_of(c->attribute + CONVOLUTION_LISTS, i);
        const tir_expr at = stage->axis[w->rank + 1 + i].var, tap = stage->axis[2 + i].var;
        x_index[2 + i] = y_index[2 + i] = at;
        if (runs_over_input(c, i, spatial)) {
            y_index[2 + i] = tir_sub(c->pool, at, window_input(c->pool, tir_index(c->pool, 0), tap, k));
            predicate = with_condition(c->pool, predicate, tir_le(c->pool, tir_index(c->pool, 0), y_index[2 + i]));
            predicate = with_condition(c->pool, predicate, tir_lt(c->pool, y_index[2 + i], y->dim[2 + i]));
        } else {
            x_index[2 + i] = window_input(c->pool, at, tap, k);
            predicate = window_predicate(c->pool, predicate, x_index[2 + i], x->dim[2 + i], k);
        }
    }
    stage->predicate = predicate;
    const tir_dtype sum = (tir_dtype)graph_sum_dtype(w->dtype);
    tir_expr a = tir_cast(c->pool, sum, graph_operand_load(c, 0, x_index));
    tir_expr b = tir_cast(c->pool, sum, graph_operand_load(c, 1, y_index));
    c->result[0] = graph_compute_cast(c, tir_stage_contract(c->region, stage, a, b), w->dtype, space);
}

/* x: the convolution's rule for its input, c in the place of w; y: the convolution by c. */
static void transpose_convolution_weights(graph_rule *rule) {
    graph *g = rule->g;
    graph_setting settings[CONVOLUTION_GROUPS + 2];
    if (rule->operand == 0) {
        transpose_into_input(rule, rule->input[1], rule->cotangent[0]);
        return;
    }
    for (int i = 0; i <= CONVOLUTION_GROUPS; i++)
        settings[i] = (graph_setting){rule->op->attribute[i].name, rule->attribute[i]};
    graph_id x = rule->input[0], c = product_with(rule, rule->cotangent[0], &x, &settings[CONVOLUTION_GROUPS + 1]);
    const graph_id out = graph_emit_with(g, "convolution", 2, (graph_id[]){x, c}, CONVOLUTION_GROUPS + 2, settings);
    rule->out[0] = graph_cast(g, out, graph_tangent_dtype(graph_shape_of(g, rule->input[1])->dtype));
}

/* ---- references ------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE

int64_t graph_reference_entry(const graph_attribute *list, int64_t i, int64_t empty) {
    return list->count ? list->list[i] : empty;
}

/* The input index of output o and window position k along dimension i; -1: on padding. */
int64_t graph_reference_window_position(const graph_attribute *lists, int64_t i, int64_t stride, int64_t o, int64_t k,
                                        int64_t size) {
    int64_t at = o * graph_reference_entry(&lists[0], i, stride) + k * graph_reference_entry(&lists[3], i, 1) -
                 graph_reference_entry(&lists[1], i, 0);
    return at < 0 || at >= size ? -1 : at;
}

/* Each element of the result, y or w, is the sum of the products of x's elements with operand 1's, which is the other one. */
static void reference_products(const graph_reference *r, const graph_reference_tensor *w,
                               const graph_reference_tensor *y) {
    const graph_reference_tensor *x = &r->operand[0], *other = &r->operand[1], *result = &r->result[0];
    int64_t groups = r->attribute[4].integer, to[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(result, to) {
        double sum = 0;
        uint64_t word = 0;
        int64_t at[DLC_MAX_RANK] = {0};
        const int64_t *o = result == y ? to : at, *k = result == y ? at : to;
        if (result == y) at[0] = to[1];
        GRAPH_REFERENCE_EACH(other, at) {
            int64_t from[DLC_MAX_RANK] = {o[0], k[0] / (w->dim[0] / groups) * w->dim[1] + k[1]};
            bool inside = k[0] == o[1];
            for (int i = 2; i < x->rank; i++) {
                from[i] = graph_reference_window_position(r->attribute, i - 2, 1, o[i], k[i], x->dim[i]);
                inside &= from[i] >= 0;
            }
            if (!inside) continue;
            double a = x->data[graph_reference_at(x, from)], b = other->data[graph_reference_at(other, at)];
            if (graph_reference_integral(result->dtype))
                word += graph_reference_word(a) * graph_reference_word(b);
            else
                sum += a * b;
        }
        result->data[graph_reference_at(result, to)] =
            graph_reference_integral(result->dtype) ? graph_reference_wrap(result->dtype, word) : sum;
    }
}

static void reference_convolution(const graph_reference *r) {
    reference_products(r, &r->operand[1], &r->result[0]);
}

static void reference_convolution_weights(const graph_reference *r) {
    reference_products(r, &r->result[0], &r->operand[1]);
}

/* Sets out[] to the elements of the window at result index `to`, of dimensions from `first` on, without padding; returns their number. */
int64_t graph_reference_window(const graph_reference *r, int first, const int64_t *size, const graph_attribute *lists,
                               bool stride_is_size, const int64_t *to, double *out) {
    const graph_reference_tensor *x = &r->operand[0];
    graph_reference_tensor box = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) box.dim[i] = i < first ? 1 : size[i - first];
    int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK], count = 0;
    GRAPH_REFERENCE_EACH(&box, at) {
        bool inside = true;
        for (int i = 0; i < x->rank; i++) {
            from[i] = i < first ? to[i]
                                : graph_reference_window_position(
                                      lists, i - first, stride_is_size ? size[i - first] : 1, to[i], at[i], x->dim[i]);
            inside &= from[i] >= 0;
        }
        if (inside) out[count++] = x->data[graph_reference_at(x, from)];
    }
    return count;
}

static void reference_reduce_window(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    double element[GRAPH_REFERENCE_WINDOW_MOST];
    int64_t to[DLC_MAX_RANK] = {0}, op = r->attribute[0].integer;
    GRAPH_REFERENCE_EACH(y, to) {
        int64_t count = graph_reference_window(r, 0, r->attribute[1].list, r->attribute + 2, false, to, element);
        double result = 0; /* samples have windows of padding only just for sums */
        uint64_t word = 0;
        for (int64_t i = 0; i < count; i++) {
            double x = element[i];
            word += graph_reference_word(isfinite(x) ? x : 0);
            if (op == 0)
                result += x;
            else if (i == 0 || isnan(x) || (op == 1 ? x > result : x < result))
                result = isnan(result) ? result : x;
        }
        if (op == 0 && graph_reference_integral(y->dtype)) result = graph_reference_wrap(y->dtype, word);
        y->data[graph_reference_at(y, to)] = result;
    }
}

#endif

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static const graph_op row_convolution = {
    PRIMITIVE_ROW(convolution, GRAPH_CONTRACT, 2, 2, 1, "x w", "number"),
    .aliases = "conv",
    .structure = GRAPH_CONVOLVES,
    .precision = GRAPH_NARROW,
    .attribute = {GRAPH_WINDOW_ATTRIBUTES("distance of the windows; empty: 1"),
                  {"groups", GRAPH_ATTR_INTEGER, NULL, "1",
                   "channels are divided into as many independent convolutions"},
                  GRAPH_RESULT_ATTRIBUTE},
    GRAPH_LINEAR(3, transpose_convolution),
    .infer = infer_convolution,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_convolution),
    .samples =
        "convolution(T[1, 1, 8, 8], T[5, 1, 3, 3], low=[1, 1], high=[1, 1])\n"
        "convolution(T[2, 3, 7, 5], T[4, 3, 3, 2])\n"
        "convolution(T[2, 3, 11], T[5, 3, 4], stride=[2], low=[1], high=[2])\nconvolution(T[1, 2, 1], T[3, 2, 1])\n"
        "convolution(T[1, 3, 13, 11], T[2, 3, 5, 3], stride=[2, 3], low=[2, 0], high=[1, 2], dilation=[2, 1])\n"
        "convolution(T[2, 6, 5, 5], T[6, 1, 3, 3], low=[1, 1], high=[1, 1], groups=6)\n"
        "convolution(T[1, 3, 7], T[6, 1, 3], groups=3, dilation=[2])\n"
        "convolution(T[2, 6, 5, 4], T[4, 3, 2, 2], groups=2, stride=[1, 2])\n"
        "convolution(T[1, 2, 3, 3], T[2, 2, 5, 5])\n"
        "convolution(T[1, 2, 3, 3], T[2, 2, 2, 2], low=[4, 0], high=[3, 1])\n"
        "convolution(T[1, 2, 6, 6], T[2, 2, 3, 3], low=[-1, 0], high=[0, -2])\nconvolution(T[0, 2, 5], T[3, 2, 2])\n"
        "convolution(T[1, 0, 4], T[2, 0, 2], low=[1])\n"
        "convolution(T[1, 2, 3, 4, 5], T[2, 2, 2, 3, 2], stride=[1, 2, 1], low=[1, 0, 1])\n"
        "convolution(bf16[1, 3, 6, 6], bf16[4, 3, 3, 3], result=f32)\n"
        "convolution(i8[1, 3, 6, 6], i8[4, 3, 3, 3], result=i32)\n"
        "convolution(u8[1, 4, 6, 6], i8[4, 2, 3, 3], groups=2, low=[1, 1], result=i32)\n"
        "convolution(u8[1, 18, 9, 10], i8[20, 18, 3, 3], low=[1, 1], high=[1, 1], result=i32)\n"
        "convolution(u8[2, 3, 13, 15], i8[17, 3, 5, 5], low=[2, 2], high=[2, 2], stride=[2, 2], result=i32)\n"
        "convolution(u8[1, 33, 7, 7], i8[16, 33, 1, 1], result=i32)\n"
        "convolution(bf16[1, 17, 9, 10], bf16[20, 17, 3, 3], low=[2, 1], high=[1, 2], dilation=[2, 1], result=f32)\n"
        "convolution(bf16[1, 3, 12, 12], bf16[16, 3, 3, 3], low=[1, 1], high=[1, 1])",
    .doc =
        "y[n, co, o...] = sum over ci, k... of x[n, g*(ci count) + ci, o*stride + k*dilation - low...] * w[co, "
        "ci, k...], g the group of co; positions outside x are left out. x [batch, channels, 1 to 3 spatial "
        "dimensions], w [output channels, channels/groups, window]. Windows along a dimension: (size + low + high - "
        "(window - 1)*dilation - 1)/stride + 1, rounded down; none where not one fits. f16 and bf16 multiply and add in f32 and "
        "round once; integers wrap; result as for dot_general. StableHLO convolution (cross-correlation, layouts "
        "NCHW and OIHW).",
};

static const graph_op row_convolution_weights = {
    .name = "convolution_weights",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 2,
    .max_inputs = 2,
    .results = 1,
    .operands = "x y",
    .dtypes = "number",
    .precision = GRAPH_NARROW,
    .attribute = {GRAPH_WINDOW_ATTRIBUTES("distance of the windows; empty: 1"),
                  {"groups", GRAPH_ATTR_INTEGER, NULL, "1",
                   "channels are divided into as many independent convolutions"},
                  GRAPH_RESULT_ATTRIBUTE,
                  {"window", GRAPH_ATTR_DIMS, NULL, NULL, "spatial dimensions of the window"}},
    .infer = infer_convolution_weights,
    .compute = compute_convolution_weights,
    GRAPH_LINEAR(3, transpose_convolution_weights),
    .reference = GRAPH_REFERENCE(reference_convolution_weights),
    .bound = GRAPH_REFERENCE(graph_bound_convolution_weights),
    .tolerance = 1,
    .samples =
        "convolution_weights(T[2, 3, 7, 5], T[2, 4, 5, 4], window=[3, 2])\n"
        "convolution_weights(T[1, 1, 8, 8], T[1, 5, 8, 8], window=[3, 3], low=[1, 1], high=[1, 1])\n"
        "convolution_weights(T[2, 3, 11], T[2, 5, 6], window=[4], stride=[2], low=[1], high=[2])\n"
        "convolution_weights(T[1, 3, 13, 9], T[1, 2, 4, 4], window=[5, 2], stride=[2, 2], low=[2, 0], high=[1, 0], "
        "dilation=[2, 1])\n"
        "convolution_weights(T[2, 6, 5, 5], T[2, 6, 5, 5], window=[3, 3], low=[1, 1], high=[1, 1], groups=6)\n"
        "convolution_weights(T[2, 6, 5, 4], T[2, 4, 4, 2], window=[2, 2], groups=2, stride=[1, 2])\n"
        "convolution_weights(T[1, 2, 6, 6], T[1, 2, 3, 2], window=[3, 3], low=[-1, 0], high=[0, -2])\n"
        "convolution_weights(T[0, 2, 5], T[0, 3, 4], window=[2])\nconvolution_weights(T[1, 2, 1], T[1, 3, 1], window=[1])\n"
        "convolution_weights(T[1, 2, 3, 4, 5], T[1, 2, 3, 1, 5], window=[2, 3, 2], stride=[1, 2, 1], low=[1, 0, 1])\n"
        "convolution_weights(bf16[2, 3, 6, 6], bf16[2, 4, 4, 4], window=[3, 3], result=f32)\n"
        "convolution_weights(T[3, 17, 9, 8], T[3, 18, 9, 8], window=[3, 3], low=[1, 1], high=[1, 1])\n"
        "convolution_weights(T[2, 4, 19, 37], T[2, 8, 10, 19], window=[3, 3], stride=[2, 2], low=[1, 1], high=[1, 1], groups=4)\n"
        "convolution_weights(T[2, 3, 18, 21], T[2, 3, 18, 21], window=[5, 5], low=[2, 2], high=[2, 2], groups=3)\n"
        "convolution_weights(T[2, 8, 9, 23], T[2, 4, 9, 21], window=[3, 2], low=[2, 0], high=[2, 0], dilation=[2, 2], groups=4)\n"
        "convolution_weights(T[2, 3, 40], T[2, 3, 40], window=[7], low=[3], high=[3], groups=3)\n"
        "convolution_weights(T[1, 2, 5, 6, 18], T[1, 2, 5, 6, 18], window=[3, 3, 3], low=[1, 1, 1], high=[1, 1, 1], groups=2)",
    .doc =
        "w[co, ci, k...] = sum over n, o... of y[n, co, o...] * x[n, g*(ci count) + ci, o*stride + k*dilation - low...], g the group of "
        "co; positions outside x are left out: the gradient of convolution(x, w) with respect to w for the cotangent y. x [batch, "
        "channels, 1 to 3 spatial dimensions], y [batch, output channels, outputs], whose sizes are those of a convolution "
        "by the window. Arithmetic and result as for convolution.",
};

static const graph_op row_reduce_window = {
    PRIMITIVE_ROW(reduce_window, GRAPH_REDUCE, 1, 1, 1, "x", "number"),
    .structure = GRAPH_FOLDS_WINDOWS,
    .attribute = {{"op", GRAPH_ATTR_ENUM, "sum max min", NULL, "what to do with the elements of a window"},
                  {"window", GRAPH_ATTR_INTEGERS, NULL, NULL, "size of the window in every dimension"},
                  GRAPH_WINDOW_ATTRIBUTES("distance of the windows; empty: 1")},
    .jvp = tangent_reduce_window,
    .vjp = cotangent_reduce_window,
    .infer = infer_reduce_window,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_window),
    .samples =
        "reduce_window(T[5, 7], op=sum, window=[3, 2])\n"
        "reduce_window(T[5, 7], op=max, window=[3, 2], stride=[2, 1], low=[1, 1])\n"
        "reduce_window(T[13], op=min, window=[5], stride=[3], low=[2], high=[2], dilation=[1])\n"
        "reduce_window(T[13], op=max, window=[3], dilation=[4], high=[1])\nreduce_window(T[], op=sum, window=[])\n"
        "reduce_window(T[1], op=max, window=[1])\nreduce_window(T[5, 7], op=sum, window=[1, 1], stride=[2, 3])\n"
        "reduce_window(T[3], op=max, window=[5])\nreduce_window(T[0, 4], op=sum, window=[1, 2])\n"
        "reduce_window(T[7], op=sum, window=[3], low=[-1], high=[-2])\n"
        "reduce_window(T[2, 3, 5, 4], op=sum, window=[1, 2, 3, 2], stride=[1, 1, 2, 1], low=[0, 1, 0, 1], high=[0, 0, "
        "1, 1])\n"
        "reduce_window(T[2, 13, 13], op=max, window=[1, 5, 5], low=[0, 2, 2], high=[0, 2, 2])\n"
        "reduce_window(T[2, 20, 35], op=sum, window=[1, 3, 3], low=[0, 1, 1], high=[0, 1, 1])\n"
        "reduce_window(T[1, 21, 19, 18], op=max, window=[1, 3, 3, 1], stride=[1, 2, 2, 1])\n"
        "reduce_window(T[1, 9, 8, 18], op=min, window=[1, 4, 5, 1], low=[0, 2, 4, 0], high=[0, 1, 0, 0])",
    .doc =
        "Sum, maximum or minimum of the elements of x under a sliding window; padding is no element. Windows along a dimension: as of convolution. A window "
        "that lies on padding alone gives 0, the lowest or the highest of the type (-inf, inf; of types without infinities the lowest and the highest number). f16 and bf16 add in f32 and round "
        "once; integers wrap. StableHLO reduce_window.",
};

const graph_op *const graph_ops_window[] = {&row_convolution, &row_convolution_weights, &row_reduce_window, NULL};
