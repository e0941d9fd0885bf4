/* Tensor expressions as rows: a registered operator whose definition is an expression differentiates by what its stages are in rows of the
 * table. Each part of a stage's body becomes a value over the indices on which it depends, in the order of the stage; a sum of products is a
 * contraction. A load is a change of indices:
 *   an index                        nothing, or a transposition
 *   c*i + d                         a slice, reversed for c < 0; padded with zeros where the load's guard only asks for its bounds
 *   other sums of multiples         affine_gather: backwards the indices i = (j - rest)/c that are whole and inside, the others summed
 *   data, i/2                       gather: backwards a scatter that adds */
#include "graph/gradient_stage.h"

#include "graph/build.h"
#include "graph/gradient.h"

enum { TERMS = 16, OPERANDS_MAX = 8 };

/* A value over the axes of a mask, in their order. */
typedef struct part {
    /* 0: none so far */
    graph_id id;
    uint32_t mask;
} part;

/* An expression of the stage: its part, and whether it contains loads. */
typedef struct fact {
    tir_expr e;
    part part;
    bool loads;
} fact;

typedef struct translation {
    graph *g;
    const graph_stage_tensors *tensors;
    const graph_stage *stage;
    /* of the expressions whose masks are known: few of those of the graph's pool */
    lib_vec(fact) facts;
    lib_map by_expression;
    lib_vec(tir_expr) stack;
} translation;

/* NULL: the expression is none of the stage, or is not surveyed so far. */
static fact *fact_of(const translation *t, tir_expr e) {
    const lib_map *map = &t->by_expression;
    const uint64_t hash = lib_hash_mix(0, e);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at))
        if (t->facts.data[map->slots[at].value].e == e) return &t->facts.data[map->slots[at].value];
    return NULL;
}

/* Of an expression of the stage. */
static part part_of(const translation *t, tir_expr e) {
    return fact_of(t, e)->part;
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

static int axes_of(uint32_t mask, int *axis) {
    int count = 0;
    for (int a = 0; a < TIR_MAX_AXES; a++)
        if (mask >> a & 1) axis[count++] = a;
    return count;
}

static void check_rank(const translation *t, int rank) {
    if (rank > DLC_MAX_RANK)
        lib_raise(t->g->arena->scope, DLC_UNSUPPORTED, "a part of the expression depends on %d indices, at most %d",
                  rank, DLC_MAX_RANK);
}

/* Repeats the value along the axes of `mask` that it does not have. */
static graph_id align(const translation *t, part p, uint32_t mask) {
    int axis[TIR_MAX_AXES], count = axes_of(mask, axis), given = 0;
    tir_expr dims[TIR_MAX_AXES];
    int64_t at[TIR_MAX_AXES];
    if (p.mask == mask) return p.id;
    check_rank(t, count);
    for (int i = 0; i < count; i++) {
        dims[i] = t->stage->extent[axis[i]];
        if (p.mask >> axis[i] & 1) at[given++] = i;
    }
    return graph_broadcast(t->g, p.id, count, dims, at);
}

static int axis_of(const translation *t, tir_expr e) {
    for (int a = 0; a < t->stage->axes; a++)
        if (t->stage->var[a] == e) return a;
    return -1;
}

/* Sets the masks of the expression and all below it; without recursion, since expressions may be as deep as a host's text is long. */
static void survey(translation *t, tir_expr e) {
    const tir_pool *pool = t->g->pool;
    lib_vec_push(t->g->arena, &t->stack, e);
    while (t->stack.count) {
        const tir_expr top = t->stack.data[t->stack.count - 1];
        const tir_node *node = tir_get(pool, top);
        const uint32_t before = t->stack.count;
        const bool seen = fact_of(t, top) != NULL;
        for (int k = 0; !seen && k < node->count; k++)
            if (!fact_of(t, tir_operand(pool, top, k))) lib_vec_push(t->g->arena, &t->stack, tir_operand(pool, top, k));
        if (t->stack.count > before) continue;
        const int axis = axis_of(t, top);
        fact own = {.e = top, .loads = node->op == TIR_LOAD, .part.mask = axis < 0 ? 0 : 1u << axis};
        for (int k = 0; !seen && k < node->count; k++) {
            const fact *below = fact_of(t, tir_operand(pool, top, k));
            own.part.mask |= below->part.mask;
            own.loads = own.loads || below->loads;
        }
        if (!seen) {
            lib_map_insert(t->g->arena, &t->by_expression, lib_hash_mix(0, top), t->facts.count);
            lib_vec_push(t->g->arena, &t->facts, own);
        }
        t->stack.count--;
    }
}

/* ---- changes of one dimension ---------------------------------------------------------------------------------------------- */

/* index = sum of coefficient[i]*var of axis[i] + rest. */
typedef struct affine {
    int terms;
    int axis[TERMS];
    int64_t coefficient[TERMS];
    tir_expr rest;
} affine;

/* False: the index is no such sum. */
static bool read_affine(const translation *t, tir_expr index, affine *out) {
    tir_pool *pool = t->g->pool;
    tir_term term[TERMS];
    int64_t constant;
    const int count = tir_terms(pool, index, term, TERMS, &constant);
    *out = (affine){.terms = 0};
    if (count < 0) return false;
    out->rest = tir_index(pool, constant);
    for (int i = 0; i < count; i++) {
        const int axis = axis_of(t, term[i].atom);
        const fact *atom = fact_of(t, term[i].atom);
        if (axis < 0 && (!atom || atom->loads || atom->part.mask)) return false;
        if (axis < 0)
            out->rest = tir_add(pool, out->rest, tir_mul(pool, term[i].atom, tir_index(pool, term[i].coefficient)));
        else {
            out->axis[out->terms] = axis;
            out->coefficient[out->terms++] = term[i].coefficient;
        }
    }
    return true;
}

/* Sets the sizes by which the dimension is padded so that all indices are inside; false: they are no numbers. */
static bool find_padding(const translation *t, const affine *a, tir_expr size, int64_t *low, int64_t *high) {
    tir_pool *pool = t->g->pool;
    tir_expr first = a->rest, last = a->rest;
    for (int i = 0; i < a->terms; i++) {
        const tir_expr most = tir_mul(pool, tir_index(pool, a->coefficient[i]),
                                      tir_sub(pool, t->stage->extent[a->axis[i]], tir_index(pool, 1)));
        *(a->coefficient[i] < 0 ? &first : &last) = tir_add(pool, a->coefficient[i] < 0 ? first : last, most);
    }
    if (!tir_is_const(pool, first, low) ||
        !tir_is_const(pool, tir_add(pool, tir_sub(pool, last, size), tir_index(pool, 1)), high))
        return false;
    *low = *low < 0 ? -*low : 0;
    *high = *high > 0 ? *high : 0;
    return *low < INT32_MAX && *high < INT32_MAX;
}

static graph_id pad(graph *g, graph_id x, int at, int64_t below, int64_t above) {
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    low[at] = below, high[at] = above;
    return below || above ? graph_pad(g, x, graph_scalar_like(g, x, 0), low, high) : x;
}

/* ---- loads ----------------------------------------------------------------------------------------------------------------- */

/* A load while its dimensions become axes: place[i] is the axis of dimension i of the value, or -1 - d if it still is dimension d. */
typedef struct load {
    graph_id value;
    int rank, place[TIR_MAX_AXES];
} load;

/* Dimension `at` becomes these axes. */
static void replace(load *l, int at, int count, const int *axis) {
    memmove(l->place + at + count, l->place + at + 1, (size_t)(l->rank - at - 1) * sizeof *l->place);
    memcpy(l->place + at, axis, (size_t)count * sizeof *axis);
    l->rank += count - 1;
}

static void permute(graph *g, load *l, const int64_t *order) {
    int place[TIR_MAX_AXES];
    bool moves = false;
    for (int i = 0; i < l->rank; i++) {
        place[i] = l->place[order[i]];
        moves = moves || order[i] != i;
    }
    if (moves) l->value = graph_transpose(g, l->value, order);
    memcpy(l->place, place, sizeof place);
}

/* Dimensions whose axes other dimensions have too: all of them at once, at coordinates over the axes of `mask`. */
static void take_together(translation *t, load *l, const tir_expr *index, uint32_t mask) {
    graph *g = t->g;
    int axis[TIR_MAX_AXES], together = 0, count = axes_of(mask, axis);
    int64_t order[TIR_MAX_AXES];
    graph_id coordinate[DLC_MAX_RANK];
    check_rank(t, count + 1);
    for (int i = 0; i < l->rank; i++)
        if (l->place[i] < 0) order[together++] = i;
    for (int i = 0, rest = together; i < l->rank; i++)
        if (l->place[i] >= 0) order[rest++] = i;
    permute(g, l, order);
    for (int i = 0; i < together; i++) {
        const tir_expr at = index[-1 - l->place[i]];
        coordinate[i] = graph_expand_dims(g, align(t, part_of(t, at), mask), count);
    }
    check_rank(t, l->rank + count - together);
    const graph_id indices = together == 1 ? coordinate[0] : graph_concat(g, together, coordinate, count);
    l->value = graph_emit_with(g, "gather_nd", 2, (graph_id[]){l->value, indices}, 0, NULL);
    memmove(l->place + count, l->place + together, (size_t)(l->rank - together) * sizeof *l->place);
    memcpy(l->place, axis, (size_t)count * sizeof *axis);
    l->rank += count - together;
}

/* Does the load's guard ask for nothing but its bounds, outside of which it is 0? */
static bool pads_with_zeros(const translation *t, tir_expr e, int rank, const graph_shape *shape) {
    tir_pool *pool = t->g->pool;
    tir_expr inside = tir_bool(pool, true);
    const tir_expr other = tir_operand(pool, e, rank + 1);
    if (tir_op_of(pool, other) != TIR_CONST || tir_get(pool, other)->bits) return false;
    for (int d = 0; d < rank; d++) {
        const tir_expr at = tir_operand(pool, e, d);
        inside =
            tir_and(pool, inside, tir_and(pool, tir_le(pool, tir_index(pool, 0), at), tir_lt(pool, at, shape->dim[d])));
    }
    return inside == tir_operand(pool, e, rank);
}

/* How a dimension is read. AFFINE: the whole load is one affine_gather. */
typedef enum way { BY_INDEX, BY_SLICE, BY_GATHER, TOGETHER, AFFINE } way;

typedef struct dimension {
    way way;
    uint32_t mask;
    affine affine;
    int64_t low, high;
} dimension;

/* Is the index a sum of multiples of the indices on which it depends? (One may have cancelled out.) */
static bool is_affine(const translation *t, tir_expr index, dimension *d) {
    uint32_t mask = 0;
    if (!read_affine(t, index, &d->affine)) return false;
    for (int i = 0; i < d->affine.terms; i++) {
        mask |= 1u << d->affine.axis[i];
        if (d->affine.coefficient[i] > INT32_MAX || d->affine.coefficient[i] < -INT32_MAX) return false;
    }
    return mask == d->mask;
}

/* Does the index of another dimension depend on an axis that the index of dimension d depends on? */
static bool shares_axes(const dimension *dims, int rank, int d) {
    for (int k = 0; k < rank; k++)
        if (k != d && dims[k].mask & dims[d].mask) return true;
    return false;
}

/* The way of a dimension of this size, read at `at`, that shares no axes. Sets the padding for a slice of a guarded load. */
static way way_of(const translation *t, tir_expr at, tir_expr size, dimension *own, bool may_slice, bool guarded) {
    const int axis = axis_of(t, at);
    way result = BY_GATHER;
    if (may_slice && own->affine.terms <= 1 && (!guarded || find_padding(t, &own->affine, size, &own->low, &own->high)))
        result = BY_SLICE;
    if (axis >= 0 && tir_equal(t->g->pool, t->stage->extent[axis], size) == TIR_YES) result = BY_INDEX;
    return result;
}

/* Sets the ways of the dimensions; true: the value need not be selected by the guard. */
static bool find_ways(const translation *t, tir_expr e, int rank, const graph_shape *shape, dimension *dims) {
    const tir_pool *pool = t->g->pool;
    const bool guarded = tir_get(pool, e)->guarded, padded = !guarded || pads_with_zeros(t, e, rank, shape);
    bool simple = padded, all = padded;
    for (int d = 0; d < rank; d++) dims[d].mask = part_of(t, tir_operand(pool, e, d)).mask;
    for (int d = 0; d < rank; d++) {
        dimension *own = &dims[d];
        const tir_expr at = tir_operand(pool, e, d);
        const bool sums = is_affine(t, at, own);
        own->low = own->high = 0;
        own->way = shares_axes(dims, rank, d) ? TOGETHER : way_of(t, at, shape->dim[d], own, sums && padded, guarded);
        simple = simple && (own->way == BY_INDEX || own->way == BY_SLICE);
        all = all && sums;
    }
    for (int d = 0; d < rank && all && !simple; d++) dims[d].way = AFFINE;
    return !guarded || simple || all;
}

/* Do the bounds lie in the dimension for each extent, 0 included? Then nothing is read, and a subscript need not be in bounds. */
static bool is_within(tir_pool *pool, tir_expr start, tir_expr size, tir_expr extent, int64_t step) {
    const tir_expr left = tir_sub(pool, size, start),
                   least[] = {left, tir_sub(pool, left, extent),
                              tir_sub(pool, left, tir_mul(pool, tir_index(pool, step), extent))};
    bool fits = tir_range(pool, extent).low >= 1;
    for (int i = 0; i < 3; i++) fits = fits || (tir_range(pool, start).low >= 0 && tir_range(pool, least[i]).low >= 0);
    return fits;
}

/* Dimension `at` of x, which is padded, at c*i + rest for all i of the axis, or at rest alone. */
static graph_id slice(const translation *t, graph_id x, int at, const dimension *how) {
    graph *g = t->g;
    tir_pool *pool = g->pool;
    const graph_shape *shape = graph_shape_of(g, x);
    const tir_expr one = tir_index(pool, 1), rest = tir_add(pool, how->affine.rest, tir_index(pool, how->low));
    if (!how->affine.terms) return graph_squeeze(g, graph_slice_axis(g, x, at, rest, tir_add(pool, rest, one)), at);
    const int64_t c = how->affine.coefficient[0];
    const tir_expr extent = t->stage->extent[how->affine.axis[0]];
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    int64_t step[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) start[d] = tir_index(pool, 0), stop[d] = shape->dim[d], step[d] = 1;
    const tir_expr span = tir_mul(pool, tir_index(pool, c < 0 ? -c : c), tir_sub(pool, extent, one));
    start[at] = c < 0 ? tir_sub(pool, rest, span) : rest;
    step[at] = c < 0 ? -c : c;
    stop[at] = tir_add(pool, start[at], tir_add(pool, span, one));
    if (!is_within(pool, start[at], shape->dim[at], extent, step[at])) {
        start[at] = tir_max(pool, tir_index(pool, 0), tir_min(pool, start[at], shape->dim[at]));
        stop[at] = tir_max(pool, start[at], tir_min(pool, stop[at], shape->dim[at]));
    } else if (tir_range(pool, extent).low < 1 && step[at] > 1) {
        stop[at] = tir_max(pool, start[at], stop[at]);
    }
    if (c == 1 && tir_equal(pool, start[at], tir_index(pool, 0)) == TIR_YES &&
        tir_equal(pool, stop[at], shape->dim[at]) == TIR_YES)
        return x;
    x = graph_slice(g, x, start, stop, step);
    return c < 0 ? graph_reverse(g, x, 1, (int64_t[]){at}) : x;
}

/* The whole load as one row, over the axes of all subscripts. */
static part take_affine(const translation *t, graph_id source, int rank, const dimension *dims) {
    graph *g = t->g;
    uint32_t mask = 0;
    int axis[TIR_MAX_AXES];
    tir_expr extent[TIR_MAX_AXES], offset[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) mask |= dims[d].mask;
    const int count = axes_of(mask, axis);
    check_rank(t, count);
    int64_t matrix[DLC_MAX_RANK * DLC_MAX_RANK] = {0};
    for (int a = 0; a < count; a++) extent[a] = t->stage->extent[axis[a]];
    for (int d = 0; d < rank; d++) {
        offset[d] = dims[d].affine.rest;
        for (int i = 0; i < dims[d].affine.terms; i++)
            for (int a = 0; a < count; a++)
                if (axis[a] == dims[d].affine.axis[i]) matrix[d * count + a] = dims[d].affine.coefficient[i];
    }
    return (part){graph_emit_with(g, "affine_gather", 1, &source, 3,
                                  (graph_setting[]){graph_set_dims("shape", count, extent),
                                                    graph_set_list("matrix", rank * count, matrix),
                                                    graph_set_dims("offset", rank, offset)}),
                  mask};
}

/* Brings the axes into ascending order. */
static void sort_axes(graph *g, load *l) {
    int64_t order[TIR_MAX_AXES] = {0};
    for (int k = 0; k < l->rank; k++) {
        int before = 0;
        for (int m = 0; m < l->rank; m++) before += l->place[m] < l->place[k];
        order[before] = k;
    }
    permute(g, l, order);
}

/* The loaded value over the axes of its indices, those of its guard and what it is elsewhere included. */
static part translate_load(translation *t, tir_expr e) {
    graph *g = t->g;
    tir_pool *pool = g->pool;
    const tir_node node = *tir_get(pool, e);
    const int rank = node.count - (node.guarded ? 2 : 0);
    const graph_id source = t->tensors->value.data[node.bits];
    const graph_shape shape = *graph_shape_of(g, source);
    load l = {.value = source, .rank = rank};
    dimension dims[DLC_MAX_RANK] = {0};
    tir_expr index[DLC_MAX_RANK];
    uint32_t together = 0;
    for (int d = 0; d < rank; d++) l.place[d] = -1 - d, index[d] = tir_operand(pool, e, d);
    const bool done = find_ways(t, e, rank, &shape, dims);
    if (rank && dims[0].way == AFFINE) return take_affine(t, source, rank, dims);
    for (int d = rank; d-- > 0;) {
        const dimension *own = &dims[d];
        int axis[TIR_MAX_AXES], count = axes_of(own->mask, axis);
        if (node.guarded && (own->way == BY_GATHER || own->way == TOGETHER) && tir_range(pool, shape.dim[d]).low < 1)
            l.value = pad(g, l.value, d, 0, 1); /* gathers need an element */
        if (own->way == TOGETHER) {
            together |= own->mask;
            continue;
        }
        check_rank(t, l.rank + count - 1);
        if (own->way == BY_GATHER) l.value = graph_gather(g, l.value, align(t, part_of(t, index[d]), own->mask), d);
        if (own->way == BY_SLICE) l.value = slice(t, pad(g, l.value, d, own->low, own->high), d, own);
        replace(&l, d, count, axis);
    }
    if (together) take_together(t, &l, index, together);
    part out = {0, 0};
    for (int i = 0; i < l.rank; i++) out.mask |= 1u << l.place[i];
    sort_axes(g, &l);
    out.id = l.value;
    if (done) return out;
    const part guard = part_of(t, tir_operand(pool, e, rank)), other = part_of(t, tir_operand(pool, e, rank + 1));
    const uint32_t all = out.mask | guard.mask | other.mask;
    return (part){graph_select(g, align(t, guard, all), align(t, out, all), align(t, other, all)), all};
}

/* ---- other operators ----------------------------------------------------------------------------------------------------- */

/* Indices are i64. */
static graph_id translate_index(const translation *t, tir_expr e, const graph_id *x) {
    graph *g = t->g;
    const int axis = axis_of(t, e);
    if (axis >= 0) return graph_iota(g, DLC_I64, 1, &t->stage->extent[axis], 0);
    switch (tir_op_of(g->pool, e)) {
    case TIR_CAST: return graph_cast(g, x[0], DLC_I64);
    case TIR_DIV: { /* towards minus infinity */
        const graph_id rest = graph_emit_broadcast(g, graph_op_find("mod"), 2, x, NULL);
        return graph_div(g, graph_sub(g, x[0], rest), x[1]);
    }
    case TIR_REM: return graph_emit_broadcast(g, graph_op_find("mod"), 2, x, NULL);
    default: return graph_emit_scalar(g, g->pool, e, x);
    }
}

/* The part of one expression, whose operands are known as far as they are needed. */
static part translate_one(translation *t, tir_expr e) {
    const tir_node node = *tir_get(t->g->pool, e);
    const uint32_t mask = part_of(t, e).mask;
    graph_id x[OPERANDS_MAX] = {0};
    if (node.op == TIR_LOAD) return translate_load(t, e);
    if (node.dtype == TIR_INDEX && node.count == 0 && !mask) return (part){graph_dimension(t->g, DLC_I64, e), 0};
    if (node.count > OPERANDS_MAX) lib_raise(t->g->arena->scope, DLC_INTERNAL, "%d operands", node.count);
    for (int k = 0; k < node.count; k++) x[k] = align(t, part_of(t, tir_operand(t->g->pool, e, k)), mask);
    if (node.dtype == TIR_INDEX) return (part){translate_index(t, e, x), mask};
    return (part){graph_emit_scalar(t->g, t->g->pool, e, x), mask};
}

/* Is operand k of e needed as a value? Subscripts are not where the dimension is sliced. */
static bool is_needed(const translation *t, tir_expr e, int k) {
    const tir_node *node = tir_get(t->g->pool, e);
    const int rank = node->count - (node->guarded ? 2 : 0);
    dimension dims[DLC_MAX_RANK];
    if (node->op != TIR_LOAD) return true;
    const bool done = find_ways(t, e, rank, graph_shape_of(t->g, t->tensors->value.data[node->bits]), dims);
    return k < rank ? dims[k].way == BY_GATHER || dims[k].way == TOGETHER : !done;
}

/* Operands first, without recursion. */
static part translate(translation *t, tir_expr e) {
    const tir_pool *pool = t->g->pool;
    lib_vec_push(t->g->arena, &t->stack, e);
    while (t->stack.count) {
        const tir_expr top = t->stack.data[t->stack.count - 1];
        const uint32_t before = t->stack.count;
        for (int k = 0; !part_of(t, top).id && k < tir_get(pool, top)->count; k++) {
            const tir_expr below = tir_operand(pool, top, k);
            if (!part_of(t, below).id && is_needed(t, top, k)) lib_vec_push(t->g->arena, &t->stack, below);
        }
        if (t->stack.count > before) continue;
        if (!part_of(t, top).id) fact_of(t, top)->part = translate_one(t, top);
        t->stack.count--;
    }
    return part_of(t, e);
}

/* ---- reductions ------------------------------------------------------------------------------------------------------------ */

/* The value that changes no reduction by the operator. */
static graph_id neutral(graph *g, tir_op op, dlc_dtype dtype) {
    tir_pool *pool = g->pool;
    const tir_dtype of = (tir_dtype)dtype;
    switch (op) {
    case TIR_MAX: return graph_emit_scalar(g, pool, tir_lowest(pool, of), NULL);
    case TIR_MIN: return graph_emit_scalar(g, pool, tir_highest(pool, of), NULL);
    case TIR_MUL:
    case TIR_AND: return graph_scalar_i64(g, dtype, 1);
    default: return graph_scalar_i64(g, dtype, 0);
    }
}

static graph_id reduce(graph *g, tir_op op, graph_id x, int count, const int64_t *axes) {
    switch (op) {
    case TIR_ADD: return graph_reduce_sum(g, x, count, axes, false);
    case TIR_MUL: return graph_reduce_prod(g, x, count, axes, false);
    case TIR_MAX: return graph_reduce_max(g, x, count, axes, false);
    case TIR_MIN: return graph_reduce_min(g, x, count, axes, false);
    case TIR_AND: return graph_reduce_and(g, x, count, axes, false);
    default: return graph_reduce_or(g, x, count, axes, false);
    }
}

/* The positions in a value over `mask` of the axes of `of`. */
static int positions(uint32_t mask, uint32_t of, int64_t *position) {
    int axis[TIR_MAX_AXES], count = axes_of(mask, axis), found = 0;
    for (int i = 0; i < count; i++)
        if (of >> axis[i] & 1) position[found++] = i;
    return found;
}

/* The sum of a*b over the axes that are not of the result. Those of one factor alone are summed first. */
static part contract(const translation *t, part a, part b, uint32_t result) {
    graph *g = t->g;
    part *const both[] = {&a, &b};
    int64_t batch[2][TIR_MAX_AXES], over[2][TIR_MAX_AXES], order[TIR_MAX_AXES], sums[TIR_MAX_AXES];
    int batches = 0, overs = 0, axis[TIR_MAX_AXES], place[TIR_MAX_AXES], count = 0;
    for (int k = 0; k < 2; k++) {
        const uint32_t alone = both[k]->mask & ~both[1 - k]->mask & ~result;
        const int summed = positions(both[k]->mask, alone, sums);
        if (summed) both[k]->id = reduce(g, TIR_ADD, both[k]->id, summed, sums);
        both[k]->mask &= ~alone;
    }
    const uint32_t shared = a.mask & b.mask;
    for (int k = 0; k < 2; k++) {
        batches = positions(both[k]->mask, shared & result, batch[k]);
        overs = positions(both[k]->mask, shared & ~result, over[k]);
    }
    part out = {graph_contract(g, a.id, b.id, batches, batch[0], batch[1], overs, over[0], over[1]),
                (a.mask | b.mask) & result};
    const uint32_t groups[] = {shared & result, a.mask & ~shared, b.mask & ~shared};
    for (int k = 0; k < 3; k++) count += axes_of(groups[k], place + count);
    axes_of(out.mask, axis);
    bool moves = false;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            if (place[k] == axis[i]) order[i] = k, moves = moves || k != i;
    if (moves) out.id = graph_transpose(g, out.id, order);
    return out;
}

/* A sum of products whose factors share an axis of the sum: more than a product followed by a sum. */
static bool is_contraction(translation *t, uint32_t sums, part *a, part *b) {
    const graph_stage *s = t->stage;
    const tir_pool *pool = t->g->pool;
    if (s->op != TIR_ADD || s->predicate || tir_op_of(pool, s->body) != TIR_MUL || !lib_dtype_is_float(s->dtype))
        return false;
    *a = translate(t, tir_operand(pool, s->body, 0));
    *b = translate(t, tir_operand(pool, s->body, 1));
    a->id = graph_cast(t->g, a->id, s->dtype);
    b->id = graph_cast(t->g, b->id, s->dtype);
    return ((a->mask | b->mask) & sums) == sums && (a->mask & b->mask & sums);
}

graph_id graph_emit_stage(const graph_stage_tensors *tensors, const graph_stage *stage) {
    graph *g = tensors->g;
    translation t = {.g = g, .tensors = tensors, .stage = stage};
    const uint32_t all = (1u << stage->axes) - 1, result = (1u << stage->space) - 1, sums = all & ~result;
    int64_t axes[TIR_MAX_AXES];
    part a, b, value;
    survey(&t, stage->body);
    if (stage->predicate) survey(&t, stage->predicate);
    if (is_contraction(&t, sums, &a, &b))
        return graph_cast(g, align(&t, contract(&t, a, b, result), result), stage->dtype);
    value = translate(&t, stage->body);
    if (stage->op) {
        const part predicate = stage->predicate ? translate(&t, stage->predicate) : (part){0, 0};
        const uint32_t mask = value.mask | predicate.mask | sums;
        value = (part){align(&t, (part){graph_cast(g, value.id, stage->dtype), value.mask}, mask), mask};
        if (predicate.id)
            value.id = graph_select(g, align(&t, predicate, mask), value.id, neutral(g, stage->op, stage->dtype));
        const int count = positions(mask, sums, axes);
        value = (part){reduce(g, stage->op, value.id, count, axes), mask & result};
    }
    return graph_cast(g, align(&t, value, result), stage->dtype);
}
