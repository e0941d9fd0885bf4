/* Structure: every result element is one operand element or a fill. A row defines the map from result index to operand index; all
 * use one form of stage. Lists of axes accept negative ones, counted from the end. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#define ELEMENT(name) static tir_expr element_##name(graph_compute *c, const tir_expr *axis)
#define COMPUTE(name)                              \
    static void compute_##name(graph_compute *c) { \
        graph_compute_elements(c, element_##name); \
    }

/* guard (0: none yet) and the condition, unless the condition always holds. */
static tir_expr guard_with(tir_pool *pool, tir_expr guard, tir_expr condition) {
    if (tir_prove(pool, condition) == TIR_YES) return guard;
    return guard ? tir_and(pool, guard, condition) : condition;
}

static tir_expr guard_range(tir_pool *pool, tir_expr guard, tir_expr index, tir_expr low, tir_expr end) {
    guard = guard_with(pool, guard, tir_le(pool, low, index));
    return guard_with(pool, guard, tir_lt(pool, index, end));
}

/* A dimension list of an attribute as a shape: not too long, no negative constants. */
static void infer_dims(const graph_infer *infer, const graph_attribute *dims, graph_shape *shape) {
    if (dims->count > DLC_MAX_RANK)
        graph_infer_fail(infer, "rank %d is above the highest, %d", dims->count, DLC_MAX_RANK);
    shape->rank = dims->count;
    for (int i = 0; i < dims->count; i++) {
        int64_t size;
        if (tir_is_const(infer->g->pool, dims->dims[i], &size) && size < 0)
            graph_infer_fail(infer, "dimension %d of the shape is %lld", i, (long long)size);
        shape->dim[i] = dims->dims[i];
    }
}

/* ---- reshape --------------------------------------------------------------------------------------------------- */

static void infer_reshape(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    graph_attribute shape = infer->attribute[0];
    tir_expr dims[DLC_MAX_RANK];
    int inferred = -1;
    for (int i = 0; i < shape.count && i < DLC_MAX_RANK; i++) {
        dims[i] = shape.dims[i];
        if (!tir_is_number(pool, dims[i], -1)) continue;
        if (inferred >= 0) graph_infer_fail(infer, "only one dimension of the shape may be -1");
        inferred = i;
        dims[i] = tir_index(pool, 1);
    }
    shape.dims = dims;
    graph_shape *result = &infer->result[0];
    infer_dims(infer, &shape, result);
    result->dtype = x->dtype;
    tir_expr elements = graph_infer_product(infer, x->rank, x->dim);
    tir_expr others = graph_infer_product(infer, result->rank, result->dim);
    if (inferred >= 0) {
        if (tir_is_number(pool, others, 0)) graph_infer_fail(infer, "-1 beside a dimension of 0 has no definite size");
        result->dim[inferred] = tir_div(pool, elements, tir_max(pool, others, tir_index(pool, 1)));
        others = tir_mul(pool, others, result->dim[inferred]);
    }
    graph_infer_equal(infer, elements, others, "numbers of elements");
}

static tir_expr product(tir_pool *pool, const tir_expr *dims, int begin, int end) {
    tir_expr result = tir_index(pool, 1);
    for (int i = begin; i < end; i++) result = tir_mul(pool, result, dims[i]);
    return result;
}

/* Computes the row-major position in dims[begin..end) of the result, and splits it into indices of the operand's dims. */
static void reshape_group(tir_pool *pool, const graph_shape *to, int begin, int end, const tir_expr *axis,
                          const graph_shape *from, int first, int last, tir_expr *index) {
    tir_expr position = tir_index(pool, 0);
    for (int i = begin; i < end; i++)
        position = tir_add(pool, position, tir_mul(pool, axis[i], product(pool, to->dim, i + 1, end)));
    bool outermost = true;
    for (int i = first; i < last; i++) {
        index[i] = tir_index(pool, 0);
        if (tir_is_number(pool, from->dim[i], 1)) continue;
        tir_expr one = tir_index(pool, 1); /* avoids zero divisors for empty tensors */
        tir_expr inner = tir_max(pool, product(pool, from->dim, i + 1, last), one);
        index[i] = tir_div(pool, position, inner);
        if (!outermost) index[i] = tir_rem(pool, index[i], tir_max(pool, from->dim[i], one));
        outermost = false;
    }
}

/* The shapes are matched in the smallest groups of dimensions with equal products, so that an unchanged dimension is indexed by
 * its axis only. */
ELEMENT(reshape) {
    tir_pool *pool = c->pool;
    const graph_shape *from = &c->operand_shape[0], *to = &c->result_shape[0];
    tir_expr index[DLC_MAX_RANK];
    int i = 0, j = 0;
    while (i < from->rank) {
        int end = from->rank, stop = to->rank;
        for (int a = i + 1; a < end; a++)
            for (int b = j; b <= to->rank && a < end; b++)
                if (tir_equal(pool, product(pool, from->dim, i, a), product(pool, to->dim, j, b)) == TIR_YES) {
                    end = a;
                    stop = b;
                }
        reshape_group(pool, to, j, stop, axis, from, i, end, index);
        i = end;
        j = stop;
    }
    return graph_operand_load(c, 0, index);
}
COMPUTE(reshape)

/* ---- transpose, broadcast, reverse ----------------------------------------------------------------------------- */

static void infer_transpose(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *permutation = &infer->attribute[0];
    if (permutation->count != x->rank)
        graph_infer_fail(infer, "permutation has %d entries, expected %d", permutation->count, x->rank);
    graph_infer_axes(infer, permutation, x->rank, "permutation");
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) infer->result[0].dim[i] = x->dim[graph_axis_of(permutation->list[i], x->rank)];
}

ELEMENT(transpose) {
    tir_expr index[DLC_MAX_RANK];
    int rank = c->result_shape[0].rank;
    for (int i = 0; i < rank; i++) index[graph_axis_of(c->attribute[0].list[i], rank)] = axis[i];
    return graph_operand_load(c, 0, index);
}
COMPUTE(transpose)

static void infer_broadcast(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    graph_shape *result = &infer->result[0];
    const graph_attribute *axes = &infer->attribute[1];
    infer_dims(infer, &infer->attribute[0], result);
    result->dtype = x->dtype;
    if (axes->count != x->rank)
        graph_infer_fail(infer, "axes has %d entries, expected one for each of the %d dimensions of the operand",
                         axes->count, x->rank);
    graph_infer_axes(infer, axes, result->rank, "axes");
    for (int i = 0; i < x->rank; i++)
        if (!tir_is_number(infer->g->pool, x->dim[i], 1))
            graph_infer_equal(infer, x->dim[i], result->dim[graph_axis_of(axes->list[i], result->rank)],
                              "operand dimension (other than 1) and result dimension");
}

ELEMENT(broadcast) {
    tir_expr index[DLC_MAX_RANK];
    const graph_shape *x = &c->operand_shape[0];
    for (int i = 0; i < x->rank; i++)
        index[i] = tir_is_number(c->pool, x->dim[i], 1)
                       ? tir_index(c->pool, 0)
                       : axis[graph_axis_of(c->attribute[1].list[i], c->result_shape[0].rank)];
    return graph_operand_load(c, 0, index);
}
COMPUTE(broadcast)

static void infer_reverse(graph_infer *infer) {
    graph_infer_axes(infer, &infer->attribute[0], infer->operand[0].rank, "axes");
    infer->result[0] = infer->operand[0];
}

ELEMENT(reverse) {
    tir_expr index[DLC_MAX_RANK];
    const graph_shape *x = &c->operand_shape[0];
    uint32_t axes = graph_axes_of(&c->attribute[0], x->rank, false);
    for (int i = 0; i < x->rank; i++) {
        tir_expr last = tir_sub(c->pool, x->dim[i], tir_index(c->pool, 1));
        index[i] = axes >> i & 1 ? tir_sub(c->pool, last, axis[i]) : axis[i];
    }
    return graph_operand_load(c, 0, index);
}
COMPUTE(reverse)

/* ---- slice, pad, concat ---------------------------------------------------------------------------------------- */

/* A bound of a slice: negative constants count from the end. */
static tir_expr slice_bound(tir_pool *pool, tir_expr bound, tir_expr size) {
    int64_t value;
    return tir_is_const(pool, bound, &value) && value < 0 ? tir_add(pool, size, bound) : bound;
}

static void infer_slice(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *start = &infer->attribute[0], *stop = &infer->attribute[1], *step = &infer->attribute[2];
    if (start->count != x->rank || stop->count != x->rank)
        graph_infer_fail(infer, "start and stop have %d and %d entries, expected one for each of the %d dimensions",
                         start->count, stop->count, x->rank);
    graph_infer_list(infer, step, x->rank, "step");
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        tir_expr low = slice_bound(pool, start->dims[i], x->dim[i]), high = slice_bound(pool, stop->dims[i], x->dim[i]);
        int64_t by = step->count ? step->list[i] : 1;
        if (by < 1) graph_infer_fail(infer, "step %lld along axis %d, expected at least 1", (long long)by, i);
        graph_infer_at_most(infer, tir_index(pool, 0), low, "start is before the operand's first element");
        graph_infer_at_most(infer, low, high, "start lies after stop");
        graph_infer_at_most(infer, high, x->dim[i], "stop lies after the operand's last element");
        infer->result[0].dim[i] = tir_ceil_div(pool, tir_sub(pool, high, low), tir_index(pool, by));
    }
}

ELEMENT(slice) {
    tir_expr index[DLC_MAX_RANK];
    const graph_shape *x = &c->operand_shape[0];
    const graph_attribute *step = &c->attribute[2];
    for (int i = 0; i < x->rank; i++) {
        tir_expr by = tir_index(c->pool, step->count ? step->list[i] : 1);
        tir_expr start = slice_bound(c->pool, c->attribute[0].dims[i], x->dim[i]);
        index[i] = tir_add(c->pool, start, tir_mul(c->pool, axis[i], by));
    }
    return graph_operand_load(c, 0, index);
}
COMPUTE(slice)

static void infer_pad(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *low = &infer->attribute[0], *high = &infer->attribute[1], *interior = &infer->attribute[2];
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_rank(infer, 1, 0);
    if (low->count != x->rank || high->count != x->rank)
        graph_infer_fail(infer, "low and high have %d and %d entries, expected one for each of the %d dimensions",
                         low->count, high->count, x->rank);
    graph_infer_list(infer, interior, x->rank, "interior");
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t between = interior->count ? interior->list[i] : 0;
        if (between < 0) graph_infer_fail(infer, "interior padding %lld along axis %d", (long long)between, i);
        tir_expr gaps = tir_max(pool, tir_sub(pool, x->dim[i], tir_index(pool, 1)), tir_index(pool, 0));
        tir_expr between_all = graph_infer_product(infer, 2, (tir_expr[]){gaps, tir_index(pool, between)});
        tir_expr size = graph_infer_sum(infer, x->dim[i], between_all);
        size = graph_infer_sum(infer, size, tir_index(pool, low->list[i]));
        size = graph_infer_sum(infer, size, tir_index(pool, high->list[i]));
        graph_infer_at_most(infer, tir_index(pool, 0), size, "negative padding removes more than there is");
        infer->result[0].dim[i] = size;
    }
}

ELEMENT(pad) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr index[DLC_MAX_RANK], guard = 0, zero = tir_index(pool, 0);
    for (int i = 0; i < x->rank; i++) {
        index[i] = tir_sub(pool, axis[i], tir_index(pool, c->attribute[0].list[i]));
        if (c->attribute[2].count && c->attribute[2].list[i]) {
            tir_expr pitch = tir_index(pool, c->attribute[2].list[i] + 1);
            guard = guard_with(pool, guard, tir_eq(pool, tir_rem(pool, index[i], pitch), zero));
            index[i] = tir_div(pool, index[i], pitch);
        }
        guard = guard_range(pool, guard, index[i], zero, x->dim[i]);
    }
    return tir_region_load_guarded(c->region, c->operand[0], index, guard, graph_operand_load(c, 1, NULL));
}
COMPUTE(pad)

/* ---- pad_repeat: pads by elements of x instead of a value */

enum { REPEAT_LOW, REPEAT_HIGH, REPEAT_MODE };
enum { REPEAT_EDGE, REPEAT_REFLECT, REPEAT_WRAP };

static void infer_pad_repeat(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *low = &infer->attribute[REPEAT_LOW], *high = &infer->attribute[REPEAT_HIGH];
    if (low->count != x->rank || high->count != x->rank)
        graph_infer_fail(infer, "low and high have %d and %d entries, expected one for each of the %d dimensions",
                         low->count, high->count, x->rank);
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        tir_expr size = graph_infer_sum(infer, x->dim[i], tir_index(pool, low->list[i]));
        size = graph_infer_sum(infer, size, tir_index(pool, high->list[i]));
        graph_infer_at_most(infer, tir_index(pool, 0), size, "negative padding removes more than there is");
        if (low->list[i] > 0 || high->list[i] > 0)
            graph_infer_at_most(infer, tir_index(pool, 1), x->dim[i], "an axis of size 0 has no element to repeat");
        infer->result[0].dim[i] = size;
    }
}

/* Reflected rows have period 2(d - 1): forwards and backwards, without repeating the ends. */
ELEMENT(pad_repeat) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    const int64_t mode = c->attribute[REPEAT_MODE].integer;
    tir_expr index[DLC_MAX_RANK], zero = tir_index(pool, 0), one = tir_index(pool, 1);
    for (int i = 0; i < x->rank; i++) {
        const int64_t low = c->attribute[REPEAT_LOW].list[i], high = c->attribute[REPEAT_HIGH].list[i];
        tir_expr last = tir_sub(pool, x->dim[i], one);
        index[i] = tir_sub(pool, axis[i], tir_index(pool, low));
        if (low <= 0 && high <= 0) continue;
        if (mode == REPEAT_EDGE) {
            index[i] = tir_max(pool, tir_min(pool, index[i], last), zero);
        } else if (mode == REPEAT_WRAP) {
            index[i] = tir_rem(pool, index[i], tir_max(pool, x->dim[i], one));
        } else {
            tir_expr period = tir_max(pool, tir_mul(pool, last, tir_index(pool, 2)), one);
            index[i] = tir_rem(pool, index[i], period);
            index[i] = tir_min(pool, index[i], tir_sub(pool, period, index[i]));
        }
    }
    return graph_operand_load(c, 0, index);
}
COMPUTE(pad_repeat)

#define CONCAT_LIMIT 65536

static void infer_concat(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    if (x->rank == 0) graph_infer_fail(infer, "operands of rank 0 have no axis to join along");
    if (infer->inputs > CONCAT_LIMIT)
        graph_infer_fail(infer, "%d operands, expected at most %d", infer->inputs, CONCAT_LIMIT);
    int axis = graph_infer_axis(infer, infer->attribute[0].integer, x->rank, "axis");
    graph_infer_same_dtype(infer, 0, infer->inputs);
    infer->result[0] = *x;
    for (int k = 1; k < infer->inputs; k++) {
        graph_infer_rank(infer, k, x->rank);
        for (int i = 0; i < x->rank; i++)
            if (i != axis)
                graph_infer_equal(infer, x->dim[i], infer->operand[k].dim[i],
                                  "dimensions beside the axis of concatenation");
        infer->result[0].dim[axis] = graph_infer_sum(infer, infer->result[0].dim[axis], infer->operand[k].dim[axis]);
    }
}

/* Nested guarded loads, each the fallback of the previous; the last one falls back to zero, which is never used. */
ELEMENT(concat) {
    tir_pool *pool = c->pool;
    const graph_shape *result = &c->result_shape[0];
    int along = graph_axis_of(c->attribute[0].integer, result->rank);
    tir_expr index[DLC_MAX_RANK], end = result->dim[along];
    for (int i = 0; i < result->rank; i++) index[i] = axis[i];
    tir_expr value = tir_int(pool, (tir_dtype)result->dtype, 0);
    for (int k = c->inputs - 1; k >= 0; k--) {
        tir_expr begin = tir_sub(pool, end, c->operand_shape[k].dim[along]);
        const tir_expr extent = c->operand_shape[k].dim[along];
        index[along] = tir_is_number(pool, extent, 1) ? tir_index(pool, 0) : tir_sub(pool, axis[along], begin);
        tir_expr guard = guard_range(pool, 0, axis[along], begin, end);
        if (!tir_is_number(pool, extent, 0))
            value = tir_region_load_guarded(c->region, c->operand[k], index, guard, value);
        end = begin;
    }
    return value;
}
COMPUTE(concat)

/* ---- iota
 * ---------------------------------------------------------------------------------------------------------------------
 */

static void infer_iota(graph_infer *infer) {
    graph_shape *result = &infer->result[0];
    result->dtype = (dlc_dtype)infer->attribute[0].integer;
    if (!graph_op_accepts(infer->op, result->dtype))
        graph_infer_fail(infer, "dtype %s has no numbers to count with", lib_dtypes[result->dtype].name);
    infer_dims(infer, &infer->attribute[1], result);
    graph_infer_axis(infer, infer->attribute[2].integer, result->rank, "axis");
}

ELEMENT(iota) {
    const graph_shape *result = &c->result_shape[0];
    return tir_cast(c->pool, (tir_dtype)result->dtype, axis[graph_axis_of(c->attribute[2].integer, result->rank)]);
}
COMPUTE(iota)

/* ---- transposes: cotangents of operands ------------------------------------------------------------------------------ */

static const graph_shape *shape_of(const graph_rule *rule, graph_id value) {
    return graph_shape_of(rule->g, value);
}

static graph_id zero_for(graph_rule *rule, graph_id x) {
    return graph_scalar(rule->g, graph_tangent_dtype(shape_of(rule, x)->dtype), 0);
}

static void transpose_reshape(graph_rule *rule) {
    const graph_shape *x = shape_of(rule, rule->input[0]);
    rule->out[0] = graph_reshape(rule->g, rule->cotangent[0], x->rank, x->dim);
}

static void transpose_transpose(graph_rule *rule) {
    int64_t inverse[DLC_MAX_RANK];
    const int rank = shape_of(rule, rule->input[0])->rank;
    for (int i = 0; i < rank; i++) inverse[graph_axis_of(rule->attribute[0].list[i], rank)] = i;
    rule->out[0] = graph_transpose(rule->g, rule->cotangent[0], inverse);
}

/* The sum over the axes along which x was repeated, in the order of x's axes. */
static void transpose_broadcast(graph_rule *rule) {
    graph *g = rule->g;
    const graph_shape x = *shape_of(rule, rule->input[0]), y = *shape_of(rule, rule->first);
    int64_t summed[DLC_MAX_RANK], order[DLC_MAX_RANK], place[DLC_MAX_RANK];
    int sums = 0, kept = 0;
    for (int k = 0; k < y.rank; k++) {
        int from = 0;
        while (from < x.rank && graph_axis_of(rule->attribute[1].list[from], y.rank) != k) from++;
        const bool repeats =
            from == x.rank || (tir_is_number(g->pool, x.dim[from], 1) && !tir_is_number(g->pool, y.dim[k], 1));
        if (repeats)
            summed[sums++] = k;
        else
            place[kept++] = from;
    }
    graph_id c = rule->cotangent[0];
    if (sums) c = graph_reduce_sum(g, c, sums, summed, false);
    /* axis i of c is axis place[i] of x: put in ascending order */
    for (int i = 0; i < kept; i++) {
        int before = 0;
        for (int k = 0; k < kept; k++) before += place[k] < place[i];
        order[before] = i;
    }
    c = graph_transpose(g, c, order);
    rule->out[0] = graph_reshape(g, c, x.rank, x.dim);
}

static void transpose_reverse(graph_rule *rule) {
    rule->out[0] = graph_reverse(rule->g, rule->cotangent[0], rule->attribute[0].count, rule->attribute[0].list);
}

static graph_id pad_between(graph_rule *rule, graph_id c, const int64_t *low, const int64_t *high,
                            const int64_t *interior) {
    const int rank = shape_of(rule, c)->rank;
    return graph_emit_with(rule->g, "pad", 2, (graph_id[]){c, zero_for(rule, rule->input[0])}, 3,
                           (graph_setting[]){graph_set_list("low", rank, low), graph_set_list("high", rank, high),
                                             graph_set_list("interior", rank, interior)});
}

/* Writes c into zeros of x's shape, at `start`, which are expressions: for sizes that vary, with which `pad` cannot be written. */
static graph_id place_at(graph_rule *rule, graph_id c, const tir_expr *start) {
    graph *g = rule->g;
    const graph_shape x = *shape_of(rule, rule->input[0]);
    graph_id zeros = graph_full(g, graph_tangent_dtype(x.dtype), x.rank, x.dim, 0), place[DLC_MAX_RANK];
    for (int i = 0; i < x.rank; i++) place[i] = graph_expand_dims(g, graph_dimension(g, DLC_I64, start[i]), 0);
    graph_id at = graph_concat(g, x.rank, place, 0);
    return graph_emit_with(g, "dynamic_update_slice", 3, (graph_id[]){zeros, c, at}, 0, NULL);
}

static void transpose_slice(graph_rule *rule) {
    graph *g = rule->g;
    tir_pool *pool = g->pool;
    const graph_shape x = *shape_of(rule, rule->input[0]), y = *shape_of(rule, rule->first);
    const graph_attribute *step = &rule->attribute[2];
    int64_t low[DLC_MAX_RANK], high[DLC_MAX_RANK], interior[DLC_MAX_RANK], none[DLC_MAX_RANK] = {0};
    tir_expr start[DLC_MAX_RANK];
    bool numbers = true, spaced = false;
    for (int i = 0; i < x.rank; i++) {
        const int64_t by = step->count ? step->list[i] : 1;
        start[i] = slice_bound(pool, rule->attribute[0].dims[i], x.dim[i]);
        tir_expr taken = tir_mul(pool, tir_sub(pool, y.dim[i], tir_index(pool, 1)), tir_index(pool, by));
        taken = tir_max(pool, tir_add(pool, taken, tir_index(pool, 1)), tir_index(pool, 0));
        numbers = numbers && tir_is_const(pool, start[i], &low[i]) &&
                  tir_is_const(pool, tir_sub(pool, x.dim[i], tir_add(pool, start[i], taken)), &high[i]);
        interior[i] = by - 1;
        spaced = spaced || by > 1;
    }
    if (x.rank == 0) {
        rule->out[0] = rule->cotangent[0];
    } else if (numbers) {
        rule->out[0] = pad_between(rule, rule->cotangent[0], low, high, interior);
    } else {
        graph_id c = rule->cotangent[0];
        if (spaced) c = pad_between(rule, c, none, none, interior);
        rule->out[0] = place_at(rule, c, start);
    }
}

/* x: what it left, taken out again; value: the sum of the others. */
static void transpose_pad(graph_rule *rule) {
    graph *g = rule->g;
    tir_pool *pool = g->pool;
    const graph_attribute *low = &rule->attribute[0], *high = &rule->attribute[1], *interior = &rule->attribute[2];
    const graph_shape x = *shape_of(rule, rule->input[0]);
    graph_id c = rule->cotangent[0];
    if (rule->operand == 1) {
        graph_id nothing = graph_full(g, shape_of(rule, c)->dtype, x.rank, x.dim, 0),
                 one = graph_scalar_like(g, nothing, 1);
        graph_id outside = graph_emit(g, rule->op, 2, (graph_id[]){nothing, one}, rule->attribute);
        rule->out[0] = graph_reduce_sum(g, graph_mul(g, c, outside), 0, NULL, false);
        return;
    }
    int64_t before[DLC_MAX_RANK], after[DLC_MAX_RANK], step[DLC_MAX_RANK];
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    for (int i = 0; i < x.rank; i++) {
        before[i] = low->list[i] < 0 ? -low->list[i] : 0;
        after[i] = high->list[i] < 0 ? -high->list[i] : 0;
    }
    if (x.rank) c = graph_pad(g, c, zero_for(rule, rule->input[0]), before, after); /* what negative padding removed */
    for (int i = 0; i < x.rank; i++) {
        start[i] = tir_index(pool, low->list[i] > 0 ? low->list[i] : 0);
        stop[i] = tir_sub(pool, shape_of(rule, c)->dim[i], tir_index(pool, high->list[i] > 0 ? high->list[i] : 0));
        step[i] = interior->count ? interior->list[i] + 1 : 1;
    }
    rule->out[0] = graph_slice(g, c, start, stop, step);
}

/* Positions in an axis of x of the elements of the padded axis: i64[size of the padded axis]. */
static graph_id repeated_positions(graph_rule *rule, int axis) {
    graph *g = rule->g;
    const int64_t mode = rule->attribute[REPEAT_MODE].integer;
    const tir_expr size = shape_of(rule, rule->input[0])->dim[axis], padded = shape_of(rule, rule->first)->dim[axis];
    graph_id at =
        graph_add_number(g, graph_iota(g, DLC_I64, 1, &padded, 0), -(double)rule->attribute[REPEAT_LOW].list[axis]);
    graph_id one = graph_scalar_i64(g, DLC_I64, 1), zero = graph_scalar_i64(g, DLC_I64, 0);
    graph_id count = graph_dimension(g, DLC_I64, size), last = graph_sub(g, count, one);
    if (mode == REPEAT_EDGE) return graph_clamp(g, zero, at, last);
    graph_id period = mode == REPEAT_WRAP ? count : graph_max(g, graph_mul_number(g, last, 2), one);
    period = graph_broadcast_like(g, period, at);
    at = graph_emit_with(g, "mod", 2, (graph_id[]){at, period}, 0, NULL);
    return mode == REPEAT_WRAP ? at : graph_min(g, at, graph_sub(g, period, at));
}

static void transpose_pad_repeat(graph_rule *rule) {
    graph *g = rule->g;
    graph_id c = rule->cotangent[0];
    const graph_shape x = *shape_of(rule, rule->input[0]);
    for (int i = 0; i < x.rank; i++) {
        const int64_t low = rule->attribute[REPEAT_LOW].list[i], high = rule->attribute[REPEAT_HIGH].list[i];
        if (low == 0 && high == 0) continue;
        graph_shape whole = *shape_of(rule, c);
        if (low <= 0 && high <= 0) {
            int64_t before[DLC_MAX_RANK] = {0}, after[DLC_MAX_RANK] = {0};
            before[i] = -low;
            after[i] = -high;
            c = graph_pad(g, c, zero_for(rule, rule->input[0]), before, after);
            continue;
        }
        whole.dim[i] = x.dim[i];
        graph_id zeros = graph_full(g, whole.dtype, whole.rank, whole.dim, 0);
        c = graph_scatter_add(g, zeros, repeated_positions(rule, i), c, i);
    }
    rule->out[0] = c;
}

static void transpose_concat(graph_rule *rule) {
    tir_pool *pool = rule->g->pool;
    const int axis = graph_axis_of(rule->attribute[0].integer, shape_of(rule, rule->first)->rank);
    tir_expr start = tir_index(pool, 0);
    for (int k = 0; k < rule->operand; k++) start = tir_add(pool, start, shape_of(rule, rule->input[k])->dim[axis]);
    tir_expr stop = tir_add(pool, start, shape_of(rule, rule->input[rule->operand])->dim[axis]);
    rule->out[0] = graph_slice_axis(rule->g, rule->cotangent[0], axis, start, stop);
}

/* ---- references ------------------------------------------------------------------------------------------------ */

#ifdef DLC_REFERENCE

static void reference_reshape(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) r->result[0].data[i] = r->operand[0].data[i];
}

static void reference_transpose(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(x, from) {
        for (int i = 0; i < x->rank; i++) to[i] = from[graph_axis_of(r->attribute[0].list[i], x->rank)];
        r->result[0].data[graph_reference_at(&r->result[0], to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_broadcast(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK] = {0};
    GRAPH_REFERENCE_EACH(y, to) {
        for (int i = 0; i < x->rank; i++)
            from[i] = x->dim[i] == 1 ? 0 : to[graph_axis_of(r->attribute[1].list[i], y->rank)];
        y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_reverse(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, from) {
        memcpy(to, from, sizeof to);
        for (int k = 0; k < r->attribute[0].count; k++) {
            int axis = graph_axis_of(r->attribute[0].list[k], x->rank);
            to[axis] = x->dim[axis] - 1 - from[axis];
        }
        r->result[0].data[graph_reference_at(x, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_slice(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t from[DLC_MAX_RANK] = {0};
    double *out = r->result[0].data;
    GRAPH_REFERENCE_EACH(x, from) {
        bool inside = true;
        for (int i = 0; i < x->rank; i++) {
            int64_t start = r->attribute[0].list[i], stop = r->attribute[1].list[i];
            int64_t step = r->attribute[2].count ? r->attribute[2].list[i] : 1;
            if (start < 0) start += x->dim[i];
            if (stop < 0) stop += x->dim[i];
            inside = inside && from[i] >= start && from[i] < stop && (from[i] - start) % step == 0;
        }
        if (inside) *out++ = x->data[graph_reference_at(x, from)];
    }
}

/* By steps from the first element: stay (edge), advance cyclically (wrap), or advance and turn at the ends (reflect). */
static int64_t repeated(int64_t at, int64_t size, int64_t mode) {
    int64_t position = 0, step = at < 0 ? -1 : 1, direction = step;
    for (int64_t i = 0; i != at; i += step) {
        int64_t next = position + direction;
        if (next < 0 || next >= size) {
            if (mode == REPEAT_EDGE) next = position;
            if (mode == REPEAT_WRAP) next = direction > 0 ? 0 : size - 1;
            if (mode == REPEAT_REFLECT) direction = -direction, next = size > 1 ? position + direction : position;
        }
        position = next;
    }
    return position;
}

static void reference_pad_repeat(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, to) {
        for (int i = 0; i < x->rank; i++)
            from[i] = repeated(to[i] - r->attribute[REPEAT_LOW].list[i], x->dim[i], r->attribute[REPEAT_MODE].integer);
        y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_pad(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    for (int64_t i = 0; i < graph_reference_count(y); i++) y->data[i] = r->operand[1].data[0];
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, from) {
        bool inside = true;
        for (int i = 0; i < x->rank; i++) {
            int64_t between = r->attribute[2].count ? r->attribute[2].list[i] : 0;
            to[i] = r->attribute[0].list[i] + from[i] * (between + 1);
            inside = inside && to[i] >= 0 && to[i] < y->dim[i];
        }
        if (inside) y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_concat(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    int64_t axis = graph_axis_of(r->attribute[0].integer, y->rank), offset = 0;
    for (int k = 0; k < r->inputs; k++) {
        const graph_reference_tensor *x = &r->operand[k];
        int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
        GRAPH_REFERENCE_EACH(x, from) {
            memcpy(to, from, sizeof to);
            to[axis] += offset;
            y->data[graph_reference_at(y, to)] = x->data[graph_reference_at(x, from)];
        }
        offset += x->dim[axis];
    }
}

static void reference_iota(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, axis = graph_axis_of(r->attribute[2].integer, y->rank);
    GRAPH_REFERENCE_EACH(y, to) {
        double number = (double)to[axis];
        y->data[graph_reference_at(y, to)] =
            graph_reference_integral(y->dtype) ? graph_reference_wrap(y->dtype, (uint64_t)to[axis]) : number;
    }
}

#endif

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* name, class, least and most operands and their names, dtypes */
#define FORM(name_, class__, least_, most_, operands_, dtypes_) \
    PRIMITIVE_ROW(name_, class__, least_, most_, 1, operands_, dtypes_), .infer = infer_##name_

static const graph_op row_reshape = {
    .aliases = "view",
    FORM(reshape, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_REGROUPS,
    GRAPH_LINEAR(1, transpose_reshape),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result; one may be -1: what is left"}},
    .samples =
        "reshape(T[6, 10], shape=[4, 15])\nreshape(T[], shape=[1, 1])\nreshape(T[1, 1, 1], shape=[])\n"
        "reshape(T[5, 64], shape=[5, 8, 8])\nreshape(T[5, 8, 8], shape=[40, 8])\nreshape(T[5, 64], shape=[-1, 8])\n"
        "reshape(T[3, 0, 4], shape=[0, 7])\nreshape(T[0], shape=[5, 0, 2])\nreshape(T[1, 13, 1], shape=[13])\n"
        "reshape(T[13], shape=[1, 13, 1])\nreshape(T[2, 3, 1, 4, 5, 1], shape=[4, 6, 1, 5])\n"
        "reshape(T[7, 11], shape=[11, 7])\nreshape(T[2, 1, 3, 2, 1, 5], shape=[2, 3, 1, 1, 10, 1])",
    .doc = "x's elements in row-major order under other dimensions; the number of elements is the same. StableHLO "
           "reshape.",
};
static const graph_op row_transpose = {
    .aliases = "permute",
    FORM(transpose, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_PERMUTES,
    GRAPH_LINEAR(1, transpose_transpose),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"permutation", GRAPH_ATTR_INTEGERS, NULL, NULL, "for each result axis, the operand's axis"}},
    .samples =
        "transpose(T[5, 7], permutation=[1, 0])\ntranspose(T[], permutation=[])\ntranspose(T[13], permutation=[0])\n"
        "transpose(T[2, 3, 5], permutation=[2, 0, 1])\ntranspose(T[2, 3, 5], permutation=[-2, 2, 0])\n"
        "transpose(T[2, 0, 3], permutation=[1, 2, 0])\ntranspose(T[2, 1, 3, 2, 1, 5], permutation=[5, 3, 1, 0, 4, 2])",
    .doc = "y[i0, i1, ...] with axis k of y running over axis permutation[k] of x. StableHLO transpose.",
};
static const graph_op row_broadcast = {
    .aliases = "expand broadcast_to",
    FORM(broadcast, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_REPEATS,
    GRAPH_LINEAR(1, transpose_broadcast),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"},
                  {"axes", GRAPH_ATTR_INTEGERS, NULL, NULL, "for each axis of x, its axis in the result"}},
    .samples =
        "broadcast(T[7], shape=[5, 7], axes=[1])\nbroadcast(T[], shape=[3, 4], axes=[])\n"
        "broadcast(T[], shape=[], axes=[])\nbroadcast(T[5, 1], shape=[5, 11], axes=[0, 1])\n"
        "broadcast(T[2, 3], shape=[3, 4, 2], axes=[2, 0])\nbroadcast(T[2, 3, 5], shape=[3, 5, 2], axes=[2, 0, 1])\n"
        "broadcast(T[3], shape=[3, 0], axes=[0])\n"
        "broadcast(T[1], shape=[0], axes=[0])\nbroadcast(T[1, 3], shape=[2, 1, 2, 1, 5, 3], axes=[-3, -1])",
    .doc = "Axis i of x becomes axis axes[i] of the result, of the same size or repeated where x has size 1; the "
           "other axes of the result repeat. StableHLO broadcast_in_dim.",
};
static const graph_op row_reverse = {
    .aliases = "flip",
    FORM(reverse, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_PICKS,
    GRAPH_LINEAR(1, transpose_reverse),
    .algebra = GRAPH_INVOLUTION,
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"axes", GRAPH_ATTR_INTEGERS, NULL, NULL, "axes to reverse"}},
    .samples =
        "reverse(T[5, 7], axes=[1])\nreverse(T[], axes=[])\nreverse(T[13], axes=[-1])\nreverse(T[3, 0], axes=[0, 1])\n"
        "reverse(T[2, 1, 3, 2, 1, 5], axes=[0, 2, 4, 5])",
    .doc = "Order of the elements along each of the axes reversed. StableHLO reverse.",
};
static const graph_op row_slice = {
    FORM(slice, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_SELECTS,
    GRAPH_LINEAR(1, transpose_slice),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"start", GRAPH_ATTR_DIMS, NULL, NULL,
                   "first index of each axis; negative constants count from the end"},
                  {"stop", GRAPH_ATTR_DIMS, NULL, NULL, "first index not taken; negative constants count from the end"},
                  {"step", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the indices taken, at least 1; empty: 1"}},
    .samples =
        "slice(T[10, 7], start=[2, 1], stop=[9, 7], step=[3, 1])\nslice(T[], start=[], stop=[])\n"
        "slice(T[13], start=[0], stop=[13])\nslice(T[13], start=[-5], stop=[-1])\nslice(T[13], start=[4], stop=[4])\n"
        "slice(T[13], start=[0], stop=[13], step=[7])\nslice(T[13], start=[1], stop=[13], step=[100])\n"
        "slice(T[0, 3], start=[0, 0], stop=[0, 2])\n"
        "slice(T[2, 3, 4, 1, 5, 2], start=[1, 0, 1, 0, 0, 0], stop=[2, 3, 4, 1, 5, 1], step=[1, 2, 2, 1, 3, 1])",
    .doc = "y[i] = x[start + i*step] for the indices before stop; 0 <= start <= stop <= dimension on every axis. "
           "StableHLO slice.",
};
static const graph_op row_pad = {
    FORM(pad, GRAPH_INJECTIVE, 2, 2, "x value", "all"),
    .structure = GRAPH_PADS,
    GRAPH_JOINTLY_LINEAR(transpose_pad),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"low", GRAPH_ATTR_INTEGERS, NULL, NULL,
                   "elements before the first, per axis; negative ones are removed"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, NULL,
                   "elements after the last, per axis; negative ones are removed"},
                  {"interior", GRAPH_ATTR_INTEGERS, NULL, "[]", "elements between any two, per axis; empty: 0"}},
    .samples =
        "pad(T[5, 7], T[], low=[1, 0], high=[2, 3])\npad(T[], T[], low=[], high=[])\n"
        "pad(T[13], T[], low=[0], high=[0])\n"
        "pad(T[13], T[], low=[-2], high=[-3])\npad(T[5], T[], low=[-7], high=[9])\npad(T[0], T[], low=[2], high=[1])\n"
        "pad(T[5], T[], low=[2], high=[1], interior=[2])\npad(T[5], T[], low=[-2], high=[-1], interior=[2])\n"
        "pad(T[0], T[], low=[1], high=[1], interior=[3])\n"
        "pad(T[2, 1, 3, 2, 1, 2], T[], low=[0, 1, 0, 0, 2, -1], high=[1, 0, 0, 0, 1, 2], interior=[0, 0, 1, 0, 0, 0])",
    .doc = "x surrounded and interleaved with value, a tensor of rank 0: result dimension low + d + max(d - 1, "
           "0)*interior + high. Negative low and high remove elements after interleaving. StableHLO pad.",
};
static const graph_op row_pad_repeat = {
    FORM(pad_repeat, GRAPH_INJECTIVE, 1, 1, "x", "all"),
    .structure = GRAPH_PICKS,
    GRAPH_LINEAR(1, transpose_pad_repeat),
    .precision = GRAPH_FOLLOWS,
    .attribute =
        {{"low", GRAPH_ATTR_INTEGERS, NULL, NULL, "elements before the first, per axis; negative ones are removed"},
         {"high", GRAPH_ATTR_INTEGERS, NULL, NULL, "elements after the last, per axis; negative ones are removed"},
         {"mode", GRAPH_ATTR_ENUM, "edge reflect wrap", NULL,
          "edge: the last one again and again; reflect: back and forth, the ends once; wrap: from the other end"}},
    .samples =
        "pad_repeat(T[5, 7], low=[1, 0], high=[2, 3], mode=edge)\n"
        "pad_repeat(T[5, 7], low=[1, 0], high=[2, 3], mode=reflect)\n"
        "pad_repeat(T[5, 7], low=[1, 0], high=[2, 3], mode=wrap)\npad_repeat(T[], low=[], high=[], mode=edge)\n"
        "pad_repeat(T[13], low=[-2], high=[-3], mode=wrap)\npad_repeat(T[5], low=[-7], high=[9], mode=reflect)\n"
        "pad_repeat(T[3], low=[11], high=[-1], mode=reflect)\npad_repeat(T[3], low=[-1], high=[11], mode=wrap)\n"
        "pad_repeat(T[1], low=[4], high=[3], mode=reflect)\npad_repeat(T[0, 3], low=[0, 1], high=[0, 0], mode=edge)\n"
        "pad_repeat(T[2, 1, 3, 2, 1, 2], low=[0, 1, 0, 0, 2, -1], high=[1, 0, 0, 0, 1, 2], mode=reflect)",
    .doc = "x with elements of its own around it: result dimension low + d + high. Padding may be longer than x: "
           "then it repeats. ONNX Pad, NumPy pad.",
};
static const graph_op row_concat = {
    .aliases = "concatenate cat",
    FORM(concat, GRAPH_INJECTIVE, 1, -1, "x", "all"),
    .structure = GRAPH_JOINS,
    GRAPH_JOINTLY_LINEAR(transpose_concat),
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis to join along"}},
    .samples = "concat(T[5, 3], T[5, 1], T[5, 7], axis=1)\nconcat(T[13], axis=0)\nconcat(T[2, 3], T[4, 3], axis=-2)\n"
               "concat(T[0], T[3], T[0], T[2], axis=0)\nconcat(T[0], T[0], axis=0)\n"
               "concat(T[2, 1, 3, 1, 2, 5], T[2, 1, 3, 4, 2, 5], axis=3)",
    .doc =
        "The operands, at most 65,536, one after the other along axis; their other dimensions are equal. StableHLO concatenate.",
};
static const graph_op row_iota = {
    .aliases = "arange",
    FORM(iota, GRAPH_SOURCE, 0, 0, "", "number"),
    .structure = GRAPH_POSITIONS,
    GRAPH_NO_GRADIENT,
    .attribute = {{"dtype", GRAPH_ATTR_DTYPE, NULL, NULL, "element type of the result"},
                  {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"},
                  {"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis to count along"}},
    .tolerance = 0.5,
    .bound = GRAPH_REFERENCE(graph_bound_positions),
    .samples =
        "iota(dtype=T, shape=[5, 7], axis=1)\niota(dtype=T, shape=[13], axis=0)\niota(dtype=T, shape=[3, 0], axis=0)\n"
        "iota(dtype=T, shape=[301], axis=0)\niota(dtype=T, shape=[2, 1, 3, 1, 2, 5], axis=-4)",
    .doc = "y[..., i, ...] = i along axis, converted to dtype (integers wrap). StableHLO iota.",
};

const graph_op *const graph_ops_structure[] = {&row_reshape, &row_transpose,  &row_broadcast, &row_reverse, &row_slice,
                                               &row_pad,     &row_pad_repeat, &row_concat,    &row_iota,    NULL};
