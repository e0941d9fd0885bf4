/* Ranges and regions: the ranges of a stage's axes, given the open loops, and the part of a producer that its consumers
 * need there: consumers before producers, box hulls, starts as expressions, extents constant wherever the splits
 * allow. */
#include "tir/schedule_internal.h"

static tir_axis_node *node_of(tir_schedule_state *state, int stage, int node) {
    return &state->plan[stage].nodes.data[node];
}

static tir_pool *pool_of(const tir_schedule_state *state) {
    return state->region->pool;
}

/* ---- split arithmetic */

static tir_expr tiles(tir_schedule_state *state, int stage, int split) {
    return tir_ceil_div(pool_of(state), tir_node_extent(state, stage, split),
                        tir_index(pool_of(state), node_of(state, stage, split)->factor));
}

/* First point of tile `tile` of a split node. */
static tir_expr tile_start(tir_schedule_state *state, int stage, int split, tir_expr tile) {
    tir_pool *pool = pool_of(state);
    const tir_axis_node *node = node_of(state, stage, split);
    tir_expr factor = tir_index(pool, node->factor), uniform = tir_mul(pool, tile, factor);
    if (node->mode == TIR_TAIL_MASK || node->mode == TIR_TAIL_PEEL) return uniform;
    tir_expr extent = tir_node_extent(state, stage, split);
    if (node->mode == TIR_TAIL_OVERLAP)
        return tir_min(pool, uniform, tir_max(pool, tir_index(pool, 0), tir_sub(pool, extent, factor)));
    tir_expr count = tiles(state, stage, split);
    tir_expr base = tir_div(pool, extent, count), rest = tir_rem(pool, extent, count);
    return tir_add(pool, tir_mul(pool, tile, base), tir_min(pool, tile, rest));
}

/* Upper bound of a node's extent, from splits and axis ranges, not from open loops: the same in every call. */
static int64_t bound(tir_schedule_state *state, int stage, int node) {
    const tir_axis_node *n = node_of(state, stage, node);
    int64_t product;
    if (n->slow >= 0) {
        bool large = __builtin_mul_overflow(bound(state, stage, n->slow), bound(state, stage, n->fast), &product);
        return large ? TIR_UNBOUNDED_HIGH : product;
    }
    if (n->parent < 0) {
        int64_t high = tir_range(pool_of(state), state->plan[stage].extent[n->axis]).high;
        return high > 0 ? high : 0;
    }
    const tir_axis_node *split = node_of(state, stage, n->parent);
    int64_t whole = bound(state, stage, n->parent), count = whole / split->factor + (whole % split->factor != 0),
            points;
    if (split->outer == node) return count;
    if (split->full) return split->factor;
    bool even = split->mode == TIR_TAIL_BALANCED && count && split->parent < 0 && split->slow < 0 &&
                tir_is_const(pool_of(state), state->plan[stage].extent[n->axis], &points);
    if (even) whole = (points + count - 1) / count;
    return whole < split->factor ? whole : split->factor;
}

/* The size of a mask split's tiles, one constant for all of them: its factor or, if less (and the split is not `full`), the largest extent
 * that is split. */
static tir_expr mask_size(tir_schedule_state *state, int stage, int split) {
    int64_t most = bound(state, stage, split), factor = node_of(state, stage, split)->factor;
    return tir_index(pool_of(state), most < factor && !node_of(state, stage, split)->full ? most : factor);
}

static tir_expr tile_size(tir_schedule_state *state, int stage, int split) {
    tir_pool *pool = pool_of(state);
    const tir_axis_node *node = node_of(state, stage, split);
    tir_expr extent = tir_node_extent(state, stage, split), factor = tir_index(pool, node->factor);
    if (node->mode == TIR_TAIL_MASK) return mask_size(state, stage, split);
    if (node->mode == TIR_TAIL_OVERLAP) {
        int64_t known;
        if (tir_is_const(pool, extent, &known)) return known < node->factor ? extent : factor;
        if (tir_prove(pool, tir_le(pool, factor, extent)) != TIR_YES)
            tir_schedule_raise(state, "overlap of %s in tiles of %lld: it may be shorter", node->name,
                               (long long)node->factor);
        return factor;
    }
    tir_expr tile = tir_node_value(state, stage, node->outer);
    if (!tile)
        tir_schedule_raise(state,
                           "loop %s of stage %s needs the loops of %s outside of it (its extent depends on them)",
                           node_of(state, stage, node->inner)->name, state->region->stages.data[stage].name,
                           node_of(state, stage, node->outer)->name);
    tir_expr start = tile_start(state, stage, split, tile);
    if (node->mode == TIR_TAIL_PEEL) return tir_min(pool, factor, tir_sub(pool, extent, start));
    tir_expr next = tile_start(state, stage, split, tir_add(pool, tile, tir_index(pool, 1)));
    return tir_min(pool, factor, tir_sub(pool, next, start)); /* always the second, which states the range */
}

tir_expr tir_node_extent(tir_schedule_state *state, int stage, int node) {
    const tir_axis_node *n = node_of(state, stage, node);
    if (n->slow >= 0)
        return tir_mul(pool_of(state), tir_node_extent(state, stage, n->slow), tir_node_extent(state, stage, n->fast));
    if (n->parent < 0) return state->plan[stage].extent[n->axis];
    if (node_of(state, stage, n->parent)->outer == node) return tiles(state, stage, n->parent);
    return tile_size(state, stage, n->parent);
}

tir_expr tir_node_value(tir_schedule_state *state, int stage, int node) {
    const tir_axis_node *n = node_of(state, stage, node);
    if (n->fused >= 0) {
        const tir_axis_node *both = node_of(state, stage, n->fused);
        tir_expr value = tir_node_value(state, stage, n->fused), fast = tir_node_extent(state, stage, both->fast);
        return !value               ? 0
               : both->slow == node ? tir_div(pool_of(state), value, fast)
                                    : tir_rem(pool_of(state), value, fast);
    }
    if (n->outer < 0) return n->value;
    tir_expr outer = tir_node_value(state, stage, n->outer), inner = tir_node_value(state, stage, n->inner);
    if (!outer || !inner) return 0;
    return tir_add(pool_of(state), tile_start(state, stage, node, outer), inner);
}

static tir_expr span(tir_schedule_state *state, int stage, int node, tir_expr extent);

/* How far beyond a tile its inner loops may reach, at most, for tiles of `low` .. `high` points: inner mask splits overrun. */
static tir_expr worst_overrun(tir_schedule_state *state, int stage, const tir_axis_node *split, int64_t low,
                              int64_t high) {
    tir_pool *pool = pool_of(state);
    tir_expr worst = tir_index(pool, 0);
    if (node_of(state, stage, split->inner)->outer < 0) return worst;
    for (int64_t size = low > 1 ? low : 1; size <= high; size++) {
        tir_expr points = tir_index(pool, size);
        worst = tir_max(pool, worst, tir_sub(pool, span(state, stage, split->inner, points), points));
    }
    return worst;
}

/* Points of axis `node` that the loops over its fused node touch. In an attached stage, points beyond the end of the fused node extend the
 * slower axis. */
static tir_expr fused_span(tir_schedule_state *state, int stage, int node, tir_expr extent) {
    tir_pool *pool = pool_of(state);
    const int fused = node_of(state, stage, node)->fused;
    if (state->plan[stage].at_stage < 0 || node_of(state, stage, fused)->slow != node) return extent;
    tir_expr fast = tir_node_extent(state, stage, node_of(state, stage, fused)->fast),
             points = tir_mul(pool, extent, fast);
    tir_expr touched = span(state, stage, fused, points);
    return touched == points ? extent : tir_ceil_div(pool, touched, fast);
}

/* Points that the loops of a node touch for an extent `extent`: mask splits overrun it. */
static tir_expr span(tir_schedule_state *state, int stage, int node, tir_expr extent) {
    tir_pool *pool = pool_of(state);
    const tir_axis_node *n = node_of(state, stage, node);
    if (n->outer < 0) return n->fused < 0 ? extent : fused_span(state, stage, node, extent);
    tir_expr factor = tir_index(pool, n->factor), one = tir_index(pool, 1);
    int64_t points, low = 1, high = n->factor;
    if (n->mode == TIR_TAIL_MASK) {
        tir_expr inner = span(state, stage, n->inner, mask_size(state, stage, node));
        tir_expr count = span(state, stage, n->outer, tir_ceil_div(pool, extent, factor));
        return tir_add(pool, tir_mul(pool, tir_sub(pool, count, one), factor), inner);
    }
    if (tir_is_const(pool, extent, &points)) {
        int64_t tiles = (points + n->factor - 1) / n->factor;
        if (points < high) high = points;
        low = n->mode == TIR_TAIL_BALANCED && tiles ? points / tiles : high;
        if (n->mode == TIR_TAIL_BALANCED && tiles) high = points % tiles ? low + 1 : low;
    }
    tir_expr overrun = worst_overrun(state, stage, n, low, high);
    if (n->mode == TIR_TAIL_PEEL && tir_is_const(pool, extent, &points) && points % n->factor)
        overrun = tir_max(pool, overrun, worst_overrun(state, stage, n, points % n->factor, points % n->factor));
    return tir_add(pool, extent, overrun);
}

static tir_span node_range(tir_schedule_state *state, int stage, int node) {
    tir_pool *pool = pool_of(state);
    const tir_axis_node *n = node_of(state, stage, node);
    tir_expr value = tir_node_value(state, stage, node);
    if (value) return (tir_span){value, tir_index(pool, 1)};
    tir_expr tile = n->outer < 0 ? 0 : tir_node_value(state, stage, n->outer);
    if (!tile) return (tir_span){tir_index(pool, 0), span(state, stage, node, tir_node_extent(state, stage, node))};
    tir_span inner = node_range(state, stage, n->inner);
    return (tir_span){tir_add(pool, tile_start(state, stage, node, tile), inner.low), inner.extent};
}

tir_expr tir_axis_span(tir_schedule_state *state, int stage, int axis) {
    return span(state, stage, state->plan[stage].root[axis], state->plan[stage].extent[axis]);
}

tir_expr tir_axis_value(tir_schedule_state *state, int stage, int axis) {
    tir_span range = node_range(state, stage, state->plan[stage].root[axis]);
    bool fixed = tir_is_number(pool_of(state), range.extent, 1); /* open, or a single point */
    return fixed ? tir_add(pool_of(state), state->plan[stage].low[axis], range.low) : 0;
}

static bool clipped(const tir_schedule_state *state, int stage, int axis) {
    const tir_stage_plan *plan = &state->plan[stage];
    for (uint32_t i = 0; i < plan->order.count; i++) {
        const tir_axis_node *node = &plan->nodes.data[plan->order.data[i]];
        if (node->axis == axis && node->clip && node->reduce) return true;
    }
    return false;
}

/* May loops of the axis have fewer iterations than the axis has points? */
static bool shortened(const tir_schedule_state *state, int stage, int axis) {
    const tir_stage_plan *plan = &state->plan[stage];
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (plan->nodes.data[plan->order.data[i]].axis == axis && plan->nodes.data[plan->order.data[i]].skip)
            return true;
    return clipped(state, stage, axis);
}

tir_span tir_axis_view(tir_schedule_state *state, int stage, int axis) {
    tir_pool *pool = pool_of(state);
    tir_stage_plan *plan = &state->plan[stage];
    tir_span range = node_range(state, stage, plan->root[axis]);
    bool open = tir_is_number(pool, range.extent, 1);
    if (!open && clipped(state, stage, axis) && !tir_node_value(state, stage, plan->root[axis])) {
        tir_span clip = tir_clip_range(state, stage, axis, false, NULL, NULL);
        tir_span whole = node_range(state, stage, plan->root[axis]);
        if (tir_is_number(pool, whole.low, 0)) return clip; /* nothing of the axis is open yet */
    }
    return (tir_span){tir_add(pool, plan->low[axis], range.low), range.extent};
}

int tir_conjuncts(const tir_pool *pool, tir_expr condition, tir_expr *terms, int limit) {
    if (!condition || tir_is_true(pool, condition)) return 0;
    if (tir_op_of(pool, condition) == TIR_AND && limit > 1) {
        int count = tir_conjuncts(pool, tir_operand(pool, condition, 0), terms, limit - 1);
        return count + tir_conjuncts(pool, tir_operand(pool, condition, 1), terms + count, limit - count);
    }
    terms[0] = condition;
    return 1;
}

/* ---- boxes */

static int axis_of(const tir_schedule_state *state, int stage, tir_expr atom) {
    const tir_stage *s = &state->region->stages.data[stage];
    for (int a = 0; a < s->space + s->reduce; a++)
        if (s->axis[a].var == atom) return a;
    return -1;
}

static bool uses_axes(const tir_schedule_state *state, int stage, tir_expr e) {
    const tir_stage *s = &state->region->stages.data[stage];
    for (int a = 0; a < s->space + s->reduce; a++)
        if (tir_uses(pool_of(state), e, s->axis[a].var)) return true;
    return false;
}

enum { TERM_LIMIT = 32 };

/* *out: interval of an index expression, with the stage's axes in the ranges of `view`; false if it is not affine enough. */
static bool box(tir_schedule_state *state, int stage, tir_expr e, const tir_span *view, tir_span *out) {
    tir_pool *pool = pool_of(state);
    tir_term terms[TERM_LIMIT];
    int64_t constant;
    int count = tir_terms(pool, e, terms, TERM_LIMIT, &constant);
    if (count < 0) return false;
    tir_expr low = tir_index(pool, constant), extent = tir_index(pool, 1), one = tir_index(pool, 1);
    for (int t = 0; t < count; t++) {
        int64_t c = terms[t].coefficient;
        int axis = axis_of(state, stage, terms[t].atom);
        tir_span range;
        if (axis >= 0) {
            range = view[axis];
        } else if (!uses_axes(state, stage, terms[t].atom)) {
            if (tir_op_of(pool, terms[t].atom) != TIR_VAR && tir_has_load(pool, terms[t].atom, 0))
                return false; /* data-dependent */
            range = (tir_span){terms[t].atom, one};
        } else if (tir_op_of(pool, terms[t].atom) == TIR_DIV) {
            int64_t divisor, known;
            tir_span inner;
            tir_expr by = tir_operand(pool, terms[t].atom, 1);
            if (!tir_is_const(pool, by, &divisor) ||
                !box(state, stage, tir_operand(pool, terms[t].atom, 0), view, &inner) ||
                !tir_is_const(pool, inner.extent, &known))
                return false;
            int64_t multiple = tir_multiple_of(pool, inner.low);
            bool aligned = multiple % divisor == 0;
            range.low = tir_div(pool, inner.low, by);
            range.extent = tir_index(pool, known == 1 ? 1
                                           : aligned  ? (known - 1) / divisor + 1
                                                      : (known - 1) / divisor + 2);
        } else {
            return false;
        }
        tir_expr reach = tir_mul(pool, tir_sub(pool, range.extent, one), tir_index(pool, c < 0 ? -c : c));
        extent = tir_add(pool, extent, reach);
        low = tir_add(pool, low, tir_mul(pool, tir_index(pool, c), range.low));
        if (c < 0) low = tir_sub(pool, low, reach);
    }
    *out = (tir_span){low, extent};
    return true;
}

static tir_span hull(tir_schedule_state *state, tir_span a, tir_span b, tir_span whole) {
    tir_pool *pool = pool_of(state);
    if (!a.low) return b;
    int64_t shift;
    if (!tir_is_const(pool, tir_sub(pool, b.low, a.low), &shift)) return whole;
    tir_expr low = shift < 0 ? b.low : a.low;
    tir_expr end = tir_max(pool, tir_add(pool, a.extent, tir_sub(pool, a.low, low)),
                           tir_add(pool, b.extent, tir_sub(pool, b.low, low)));
    return (tir_span){low, end};
}

/* ---- regions */

typedef struct region_search {
    tir_schedule_state *state;
    int producer, consumer;
    /* of the consumer's axes */
    tir_span *view;
    tir_span *region;
} region_search;

/* If `load` is a `next` of the fold `consumer`: the number of its last indices, which stand for the state's own dimensions; else 0. */
static int own_dimensions(const tir_schedule_state *state, int consumer, tir_expr load) {
    const tir_stage *stage = &state->region->stages.data[consumer];
    int own = 0;
    for (int c = 0; c < stage->count && stage->kind == TIR_FOLD; c++)
        if (stage->value[c] == load && state->region->tensors.data[stage->tensor[c]].rank - stage->space > own)
            own = state->region->tensors.data[stage->tensor[c]].rank - stage->space;
    return own;
}

/* Is `index < end` a term of the consumer's predicate, if that is a reduction? Where the predicate is false nothing is read. */
static bool ended_by_predicate(tir_schedule_state *state, int consumer, tir_expr index, tir_expr end) {
    const tir_stage *s = &state->region->stages.data[consumer];
    tir_expr terms[TERM_LIMIT], below = tir_lt(pool_of(state), index, end);
    int count = s->kind == TIR_REDUCE ? tir_conjuncts(pool_of(state), s->predicate, terms, TERM_LIMIT) : 0;
    for (int i = 0; i < count; i++)
        if (terms[i] == below) return true;
    return false;
}

/* The part of `range` inside the domain `whole`, if both are constant; else `range`. For guarded loads, whose guard is false outside. */
static tir_span within(tir_schedule_state *state, tir_span range, tir_span whole) {
    tir_pool *pool = pool_of(state);
    int64_t low, extent, end;
    if (!tir_is_const(pool, range.low, &low) || !tir_is_const(pool, range.extent, &extent) ||
        !tir_is_const(pool, whole.extent, &end))
        return range;
    int64_t from = low < 0 ? 0 : low, to = low + extent > end ? end : low + extent;
    if (from >= to) return range;
    return (tir_span){tir_index(pool, from), tir_index(pool, to - from)};
}

static void widen_region(void *user, tir_expr load) {
    region_search *search = user;
    tir_schedule_state *state = search->state;
    tir_pool *pool = pool_of(state);
    const tir_tensor *tensor = &state->region->tensors.data[tir_get(pool, load)->bits];
    if (tensor->stage != search->producer) return;
    int whole_from = tensor->rank - own_dimensions(state, search->consumer, load);
    bool guarded = tir_get(pool, load)->guarded;
    for (int d = 0; d < state->region->stages.data[search->producer].space; d++) {
        tir_span whole = {tir_index(pool, 0), tensor->extent[d]}, range;
        if (state->plan[search->producer].by[d] >= 0) continue;
        if (d >= whole_from || !box(state, search->consumer, tir_operand(pool, load, d), search->view, &range))
            range = whole;
        else if (guarded || ended_by_predicate(state, search->consumer, tir_operand(pool, load, d), tensor->extent[d]))
            range = within(state, range, whole);
        search->region[d] = hull(state, search->region[d], range, whole);
    }
}

/* `load` is a follower's. Of the step that it reads, the region becomes the whole extent along each axis whose start does not move with open
 * loops: the fold itself may need only the last point there, the follower needs all. */
static void widen_for_follower(void *user, tir_expr load) {
    region_search *search = user;
    tir_pool *pool = pool_of(search->state);
    const tir_tensor *tensor = &search->state->region->tensors.data[tir_get(pool, load)->bits];
    int64_t fixed;
    if (tensor->stage != search->producer) return;
    for (int d = 0; d < search->state->region->stages.data[search->producer].space; d++)
        if (!search->region[d].low || tir_is_const(pool, search->region[d].low, &fixed))
            search->region[d] = (tir_span){tir_index(pool, 0), tensor->extent[d]};
}

static int order_position(const tir_stage_plan *plan, int node) {
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (plan->order.data[i] == node) return (int)i;
    return -1;
}

/* Whether stage `s` is the owner, or attached, transitively, at or inside loop `node` of `owner`. */
static bool inside(const tir_schedule_state *state, int s, int owner, int node) {
    for (; s != owner; s = state->plan[s].at_stage) {
        if (state->plan[s].at_stage < 0) return false;
        if (state->plan[s].at_stage == owner)
            return order_position(&state->plan[owner], state->plan[s].at_node) >=
                   order_position(&state->plan[owner], node);
    }
    return true;
}

static void region_from(tir_schedule_state *state, int stage, int owner, int node);

static void consumer_views(tir_schedule_state *state, int consumer, int owner, int node, tir_span *view) {
    if (consumer != owner) region_from(state, consumer, owner, node);
    const tir_stage *s = &state->region->stages.data[consumer];
    int axes = s->space + s->reduce;
    for (int a = 0; a < axes; a++) view[a] = tir_axis_view(state, consumer, a);
}

typedef struct reads_search {
    const tir_schedule_state *state;
    int producer;
    bool found;
} reads_search;
static void find_read(void *user, tir_expr load) {
    reads_search *search = user;
    const tir_region *region = search->state->region;
    if (region->tensors.data[tir_get(region->pool, load)->bits].stage == search->producer) search->found = true;
}

/* Derives the region of a follower, a step that only other followers and stages after the fold read, from the regions of the steps that it
 * reads: along an axis a, by which or by (a / B, a % B) it indexes a step, it has the points of that step; along other axes, all. Steps
 * that it indexes otherwise (it sums over their points, say) must be there as a whole. */
typedef struct follower_search {
    tir_schedule_state *state;
    int stage;
    tir_span *region;
} follower_search;

/* Position of the index `rest` = var % divisor among the indices of a load; -1: none. */
static int remainder_index(const tir_pool *pool, tir_expr load, tir_expr var, int64_t divisor) {
    for (int q = 0; q < tir_get(pool, load)->count; q++) {
        tir_expr rest = tir_operand(pool, load, q);
        int64_t modulus;
        if (tir_op_of(pool, rest) == TIR_REM && tir_operand(pool, rest, 0) == var &&
            tir_is_const(pool, tir_operand(pool, rest, 1), &modulus) && modulus == divisor)
            return q;
    }
    return -1;
}

/* The points along axis `var` of the follower, by the region of the step from which it loads; low 0: the load is not indexed by the axis in a
 * known way. Marks the dimensions that the axis indexes. */
static tir_span followed_span(tir_pool *pool, tir_expr load, const tir_span *from, tir_expr var, uint32_t *known) {
    int64_t divisor;
    for (int p = 0; p < tir_get(pool, load)->count; p++) {
        tir_expr at = tir_operand(pool, load, p);
        if (at == var) {
            *known |= 1u << p;
            return from[p];
        }
        if (tir_op_of(pool, at) != TIR_DIV || tir_operand(pool, at, 0) != var ||
            !tir_is_const(pool, tir_operand(pool, at, 1), &divisor) || !tir_is_number(pool, from[p].extent, 1))
            continue;
        int q = remainder_index(pool, load, var, divisor);
        tir_expr low = tir_mul(pool, from[p].low, tir_index(pool, divisor));
        if (q < 0) continue;
        *known |= 1u << p | 1u << q;
        return (tir_span){tir_add(pool, low, from[q].low), from[q].extent};
    }
    return (tir_span){0, 0};
}

static void follower_region(tir_schedule_state *state, int stage, tir_span *region);

/* Is the step there as a whole along the dimensions that are not `known`? */
static bool is_whole_but(tir_pool *pool, const tir_tensor *step, const tir_span *there, uint32_t known) {
    bool whole = true;
    for (int d = 0; d < step->rank && whole; d++)
        whole = known >> d & 1 || (there[d].low == tir_index(pool, 0) && there[d].extent == step->extent[d]);
    return whole;
}

static void follow_load(void *user, tir_expr load) {
    follower_search *search = user;
    tir_schedule_state *state = search->state;
    tir_pool *pool = pool_of(state);
    const tir_stage *stage = &state->region->stages.data[search->stage];
    const tir_tensor *tensor = &state->region->tensors.data[tir_get(pool, load)->bits];
    if (tensor->stage < 0 || state->region->stages.data[tensor->stage].fold != stage->fold) return;
    const tir_stage_plan *from = &state->plan[tensor->stage];
    tir_span there[TIR_MAX_AXES];
    for (int d = 0; d < tensor->rank; d++) there[d] = (tir_span){from->low[d], from->extent[d]};
    bool follows = from->open || from->follower;
    if (!from->open && from->follower)
        follower_region(state, tensor->stage, there); /* computed in this stage's loops */
    uint32_t known = 0;
    for (int a = 0; a < stage->space && follows; a++) {
        tir_span span = followed_span(pool, load, there, stage->axis[a].var, &known), *here = &search->region[a];
        if (!span.low) continue;
        follows = !here->low || (span.low == here->low && span.extent == here->extent);
        *here = span;
    }
    if (!follows || !is_whole_but(pool, tensor, there, known))
        tir_schedule_raise(
            state, "step %s is used by no other step, and reads values of %s that are not there at the same time",
            stage->name, tensor->name);
}

static void follower_region(tir_schedule_state *state, int stage, tir_span *region) {
    const tir_stage *s = &state->region->stages.data[stage];
    follower_search search = {state, stage, region};
    for (int a = 0; a < s->space; a++) region[a] = (tir_span){0, 0};
    tir_stage_loads(state->region, stage, follow_load, &search);
    for (int a = 0; a < s->space; a++)
        if (!region[a].low) region[a] = (tir_span){tir_index(pool_of(state), 0), s->axis[a].extent};
}

/* Is the stage a follower in the loops of its fold, and not in those of another follower, which then determines its region? */
static bool follows(const tir_schedule_state *state, int stage) {
    const tir_stage_plan *plan = &state->plan[stage];
    return plan->follower && plan->at_stage == state->region->stages.data[stage].fold;
}

bool tir_is_follower(tir_schedule_state *state, int stage) {
    const tir_stage *s = &state->region->stages.data[stage];
    if (s->fold < 0) return false;
    for (int q = 0; q < (int)state->region->stages.count; q++) {
        const tir_stage *reader = &state->region->stages.data[q];
        if (reader->removed || q == stage || (q != s->fold && reader->fold != s->fold)) continue;
        reads_search reads = {state, stage, false};
        tir_stage_loads(state->region, q, find_read, &reads);
        if (reads.found && (q == s->fold || !tir_is_follower(state, q))) return false;
    }
    return true;
}

static int root_of(const tir_schedule_state *state, int stage) {
    while (state->plan[stage].at_stage >= 0) stage = state->plan[stage].at_stage;
    return stage;
}

/* Does stage q read the stage, and so determine its region? */
static bool determines_region(const tir_schedule_state *state, int stage, int q) {
    const tir_stage_plan *plan = &state->plan[stage];
    const tir_stage *s = &state->region->stages.data[stage], *reader = &state->region->stages.data[q];
    if (reader->removed || q == stage || reader->fold == stage) return false;  /* steps run inside their fold */
    if (s->fold >= 0 && q != s->fold && reader->fold != s->fold) return false; /* reads memory, after the fold */
    if (s->fold >= 0 && state->plan[q].follower && (!plan->follower || follows(state, stage))) return false;
    reads_search reads = {state, stage, false};
    tir_stage_loads(state->region, q, find_read, &reads);
    return reads.found;
}

/* Widens the region of a step that is no follower for the followers that read it. */
static void widen_for_followers(tir_schedule_state *state, int stage, tir_span *region) {
    const int fold = state->region->stages.data[stage].fold;
    for (uint32_t q = 0; q < state->region->stages.count && fold >= 0 && !state->plan[stage].follower; q++) {
        region_search search = {state, stage, (int)q, NULL, region};
        if (state->plan[q].follower && state->region->stages.data[q].fold == fold)
            tir_stage_loads(state->region, (int)q, widen_for_follower, &search);
    }
}

/* Sets the region of a stage `beside` another one: along axes that correspond to loops of the owner, where these are; along others, all. */
static void beside_region(tir_schedule_state *state, int stage) {
    tir_stage_plan *plan = &state->plan[stage];
    const tir_stage *s = &state->region->stages.data[stage];
    for (int a = 0; a < s->space + s->reduce; a++) {
        tir_span points = {tir_index(pool_of(state), 0), s->axis[a].extent};
        if (plan->by[a] >= 0) points = node_range(state, plan->at_stage, plan->by[a]);
        plan->low[a] = points.low;
        plan->extent[a] = points.extent;
    }
}

static void region_from(tir_schedule_state *state, int stage, int owner, int node) {
    tir_pool *pool = pool_of(state);
    tir_stage_plan *plan = &state->plan[stage];
    if (plan->stamp == state->stamp) return;
    if (plan->beside) {
        plan->stamp = state->stamp;
        beside_region(state, stage);
        return;
    }
    tir_span region[TIR_MAX_AXES] = {{0, 0}}, view[TIR_MAX_AXES];
    const tir_stage *s = &state->region->stages.data[stage];
    for (uint32_t q = 0; q < state->region->stages.count; q++) {
        if (!determines_region(state, stage, (int)q)) continue;
        if (!inside(state, (int)q, owner, node)) {
            /* a fold's step, or a stage that another root reads, is also stored in memory: such readers load it from there */
            if (s->fold >= 0 || root_of(state, (int)q) != root_of(state, owner)) continue;
            tir_schedule_raise(state, "stage %s is attached at %s.%s but is read by %s outside of that loop", s->name,
                               state->region->stages.data[owner].name, node_of(state, owner, node)->name,
                               state->region->stages.data[q].name);
        }
        consumer_views(state, (int)q, owner, node, view);
        region_search search = {state, stage, (int)q, view, region};
        tir_stage_loads(state->region, (int)q, widen_region, &search);
    }
    widen_for_followers(state, stage, region);
    plan->stamp = state->stamp;
    if (follows(state, stage)) follower_region(state, stage, region);
    for (int a = 0; a < s->space; a++) {
        if (plan->by[a] >= 0) region[a] = tir_axis_view(state, owner, plan->by[a]);
        if (!region[a].low)
            tir_schedule_raise(state, "stage %s is attached but nothing inside %s.%s reads it: name the axes with `by`",
                               s->name, state->region->stages.data[owner].name, node_of(state, owner, node)->name);
        plan->low[a] = region[a].low;
        plan->extent[a] = region[a].extent;
    }
    for (int a = s->space; a < s->space + s->reduce; a++) {
        plan->low[a] = tir_index(pool, 0);
        plan->extent[a] = s->axis[a].extent;
    }
}

void tir_stage_region(tir_schedule_state *state, int stage) {
    state->stamp++;
    region_from(state, stage, state->plan[stage].at_stage, state->plan[stage].at_node);
}

/* ---- attached outputs: each point computed once */

/* Is `leaf` an open loop of several iterations over the axis, or over a node fused from it? */
static bool moved_by(const tir_schedule_state *state, const tir_stage_plan *plan, int axis, const tir_axis_node *leaf) {
    int64_t one;
    if (!leaf->value || tir_is_const(pool_of(state), leaf->value, &one)) return false;
    if (leaf->axis == axis) return true;
    int fused = plan->nodes.data[plan->root[axis]].fused;
    for (const tir_axis_node *n = leaf; fused >= 0; n = &plan->nodes.data[n->parent]) {
        if (n == &plan->nodes.data[fused]) return true;
        if (n->parent < 0) return false;
    }
    return false;
}

/* Does the last tile of split node n end exactly where the node does, or, in a root, beyond the end of the whole axis? */
static bool ends_with_whole(tir_schedule_state *state, int stage, int n) {
    const tir_stage_plan *plan = &state->plan[stage];
    const tir_axis_node *node = &plan->nodes.data[n];
    int64_t extent;
    if (node->parent < 0 && plan->at_stage < 0) return true;
    if (node->parent >= 0) {
        const tir_axis_node *split = &plan->nodes.data[node->parent];
        if (split->inner == n && split->mode == TIR_TAIL_PEEL && split->factor % node->factor == 0)
            return ends_with_whole(state, stage, node->parent);
    }
    return tir_is_const(pool_of(state), tir_node_extent(state, stage, n), &extent) && extent % node->factor == 0;
}

/* Whether the current view of an owner's axis contains points that another iteration's view also contains. */
bool tir_tiles_overlap(tir_schedule_state *state, int owner, int axis) {
    const tir_stage_plan *plan = &state->plan[owner];
    bool moves = false;
    int64_t start;
    if (tir_is_number(pool_of(state), state->region->stages.data[owner].axis[axis].extent, 1))
        return false; /* a loop in which the axis is fused with others moves along these */
    for (uint32_t n = 0; n < plan->nodes.count; n++) moves = moves || moved_by(state, plan, axis, &plan->nodes.data[n]);
    if (moves && tir_is_const(pool_of(state),
                              tir_sub(pool_of(state), tir_axis_view(state, owner, axis).low, plan->low[axis]), &start))
        return true; /* the start does not move with the open loops: iterations may see the same points */
    for (uint32_t n = 0; n < plan->nodes.count && (moves || plan->at_stage >= 0); n++) {
        const tir_axis_node *node = &plan->nodes.data[n];
        if (node->axis != axis || node->outer < 0) continue;
        if (node->mode == TIR_TAIL_OVERLAP) return true;
        if (node->mode == TIR_TAIL_MASK && !ends_with_whole(state, owner, (int)n)) return true;
    }
    return false;
}

/* The end of an axis of a stage's values in memory: after its layout's zero padding. */
static tir_expr padded_end(tir_schedule_state *state, int stage, int axis) {
    const tir_stage *s = &state->region->stages.data[stage];
    if (axis >= s->space) return s->axis[axis].extent;
    return tir_layout_padded(pool_of(state), &state->region->tensors.data[s->tensor[0]].layout, axis,
                             s->axis[axis].extent);
}

/* Is low = scale*(low of the owner's axis) + shift and extent = scale*(extent of the owner's axis), so that over all iterations the region
 * covers 0 .. end - 1 in tiles that do not overlap? */
static bool advances_with(tir_schedule_state *state, int stage, int axis, tir_expr end, int owner, int owner_axis) {
    tir_pool *pool = pool_of(state);
    const tir_stage_plan *plan = &state->plan[stage];
    tir_span view = tir_axis_view(state, owner, owner_axis);
    int64_t mine, its, scale = 1, shift;
    if (tir_is_const(pool, plan->extent[axis], &mine) && tir_is_const(pool, view.extent, &its) && its > 0 &&
        mine % its == 0)
        scale = mine / its;
    tir_expr factor = tir_index(pool, scale);
    if (plan->extent[axis] != tir_mul(pool, view.extent, factor)) return false;
    if (!tir_is_const(pool, tir_sub(pool, plan->low[axis], tir_mul(pool, view.low, factor)), &shift) || shift > 0)
        return false;
    tir_expr reached =
        tir_add(pool, tir_mul(pool, padded_end(state, owner, owner_axis), factor), tir_index(pool, shift));
    return tir_prove(pool, tir_le(pool, end, reached)) == TIR_YES && !shortened(state, owner, owner_axis) &&
           !tir_tiles_overlap(state, owner, owner_axis);
}

/* The same for two axes of the owner: is low = scale*(low of slow * extent of fast + low of fast), extent = scale*(visible extent of fast),
 * with one point of `slow` at a time? */
static bool advances_with_two(tir_schedule_state *state, int stage, int axis, tir_expr end, int owner, int slow,
                              int fast) {
    tir_pool *pool = pool_of(state);
    const tir_stage_plan *plan = &state->plan[stage];
    const tir_stage *o = &state->region->stages.data[owner];
    tir_span outer = tir_axis_view(state, owner, slow), inner = tir_axis_view(state, owner, fast);
    int64_t mine, its, scale = 1;
    if (!tir_is_number(pool, outer.extent, 1)) return false;
    if (tir_is_const(pool, plan->extent[axis], &mine) && tir_is_const(pool, inner.extent, &its) && its > 0 &&
        mine % its == 0)
        scale = mine / its;
    tir_expr factor = tir_index(pool, scale);
    if (plan->extent[axis] != tir_mul(pool, inner.extent, factor)) return false;
    tir_expr start = tir_add(pool, tir_mul(pool, outer.low, o->axis[fast].extent), inner.low);
    if (!tir_is_number(pool, tir_sub(pool, plan->low[axis], tir_mul(pool, start, factor)), 0)) return false;
    tir_expr reached = tir_mul(pool, tir_mul(pool, o->axis[slow].extent, o->axis[fast].extent), factor);
    return tir_prove(pool, tir_le(pool, end, reached)) == TIR_YES && !shortened(state, owner, slow) &&
           !shortened(state, owner, fast) && !tir_tiles_overlap(state, owner, slow) &&
           !tir_tiles_overlap(state, owner, fast) &&
           tir_prove(pool, tir_le(pool, tir_add(pool, inner.low, inner.extent), o->axis[fast].extent)) == TIR_YES;
}

static bool covers_whole(tir_schedule_state *state, int stage, int axis, tir_expr end) {
    tir_pool *pool = pool_of(state);
    const tir_stage_plan *plan = &state->plan[stage];
    if (tir_prove(pool, tir_le(pool, plan->low[axis], tir_index(pool, 0))) != TIR_YES) return false;
    return tir_prove(pool, tir_le(pool, end, tir_add(pool, plan->low[axis], plan->extent[axis]))) == TIR_YES;
}

/* The axis of the owner with which the region of the stage advances along `axis`, up to `end`, or the slower one of
 * two; -1: none. Only axes that are not used count; the faster one of two becomes used. */
static int advancing_axis(tir_schedule_state *state, int stage, int axis, tir_expr end, bool *used) {
    const int owner = state->plan[stage].at_stage;
    const tir_stage *o = &state->region->stages.data[owner];
    const int axes = o->space + o->reduce;
    for (int b = 0; b < axes; b++)
        if (!used[b] && advances_with(state, stage, axis, end, owner, b)) return b;
    for (int b = 0; b < axes; b++)
        for (int d = 0; d < axes; d++)
            if (b != d && !used[b] && !used[d] && advances_with_two(state, stage, axis, end, owner, b, d)) {
                used[d] = true;
                return b;
            }
    return -1;
}

/* A loop of the owner that moves along an axis of several points that is not used; NULL: none. */
static const tir_axis_node *idle_loop(tir_schedule_state *state, int owner, const bool *used) {
    const tir_stage *o = &state->region->stages.data[owner];
    const tir_stage_plan *plan = &state->plan[owner];
    for (uint32_t i = 0; i < plan->order.count; i++)
        for (int b = 0; b < o->space + o->reduce; b++)
            if (!used[b] && !tir_is_number(pool_of(state), padded_end(state, owner, b), 1) &&
                moved_by(state, plan, b, &plan->nodes.data[plan->order.data[i]]))
                return &plan->nodes.data[plan->order.data[i]];
    return NULL;
}

const char *tir_region_flaw(tir_schedule_state *state, int stage, bool padded) {
    int owner = state->plan[stage].at_stage;
    if (owner < 0) return NULL;
    const tir_stage *s = &state->region->stages.data[stage], *o = &state->region->stages.data[owner];
    const tir_stage_plan *plan = &state->plan[owner];
    bool used[TIR_MAX_AXES] = {false};
    for (int a = 0; a < s->space; a++) {
        tir_expr end = padded ? padded_end(state, stage, a) : s->axis[a].extent;
        const int with = advancing_axis(state, stage, a, end, used);
        /* Checked last: an empty range is always covered. */
        if (with < 0 && covers_whole(state, stage, a, end)) continue;
        if (with < 0)
            return lib_arena_format(state->arena,
                                    "its axis %s does not advance with an axis of %s by exactly what is computed there",
                                    s->axis[a].name, o->name);
        used[with] = true;
    }
    const tir_axis_node *idle = idle_loop(state, owner, used);
    if (idle)
        return lib_arena_format(state->arena,
                                "loop %s of %s does not advance one of its axes: points would be written more "
                                "than once",
                                idle->name, o->name);
    for (int b = 0; b < o->space && plan->at_stage >= 0; b++)
        if (!used[b] && !tir_is_number(pool_of(state), padded_end(state, owner, b), 1) &&
            (tir_prove(pool_of(state), tir_lt(pool_of(state), tir_index(pool_of(state), 0), o->axis[b].extent)) !=
                 TIR_YES ||
             !covers_whole(state, owner, b, o->axis[b].extent)))
            return lib_arena_format(state->arena,
                                    "axis %s of %s, which is attached itself, does not advance one of its axes: points "
                                    "would be written more than once, or never",
                                    o->axis[b].name, o->name);
    return tir_region_flaw(state, owner, true);
}

/* ---- clip: each term has the form coefficient*k + rest < 0 (or <= 0); k's bounds follow from the minimum of `rest` over all axes that no
 * open loop fixes */

/* The index expression e with each term that contains loads replaced by a variable that holds its value (tir_schedule_state.scalar). 0: such
 * a term depends on an axis that has several points in `view`, or its value cannot be computed here. */
static tir_expr with_scalars(tir_schedule_state *state, int stage, tir_expr e, const tir_span *view) {
    tir_pool *pool = pool_of(state);
    const tir_stage *s = &state->region->stages.data[stage];
    tir_term terms[TERM_LIMIT];
    int64_t constant;
    const int count = tir_terms(pool, e, terms, TERM_LIMIT, &constant);
    for (int t = 0; t < count; t++) {
        tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
        int axes = 0;
        if (!tir_has_load(pool, terms[t].atom, 0)) continue;
        for (int a = 0; a < s->space + s->reduce; a++) {
            if (!tir_uses(pool, terms[t].atom, s->axis[a].var)) continue;
            if (!tir_is_number(pool, view[a].extent, 1)) return 0;
            from[axes] = s->axis[a].var;
            to[axes++] = view[a].low;
        }
        const tir_expr point = tir_substitute(pool, terms[t].atom, axes, from, to);
        const tir_expr scalar = state->scalar ? state->scalar(state->lowering, stage, point) : 0;
        if (!scalar) return 0;
        e = tir_substitute(pool, e, 1, &terms[t].atom, &scalar);
    }
    return e;
}

static bool compares_indices(const tir_pool *pool, tir_expr term) {
    tir_op op = tir_op_of(pool, term);
    return (op == TIR_LT || op == TIR_LE) && tir_dtype_of(pool, tir_operand(pool, term, 0)) == TIR_INDEX;
}

/* view: the ranges of the axes that e uses; of the others, and of `axis`, one point. */
static void view_of_others(tir_schedule_state *state, int stage, int axis, tir_expr e, tir_span *view) {
    tir_pool *pool = pool_of(state);
    const tir_stage *s = &state->region->stages.data[stage];
    for (int a = 0; a < s->space + s->reduce; a++)
        if (a == axis || !tir_uses(pool, e, s->axis[a].var))
            view[a] = (tir_span){tir_index(pool, 0), tir_index(pool, 1)};
        else if (a < s->space)
            view[a] = tir_axis_view(state, stage, a);
        else
            view[a] = (tir_span){
                tir_add(pool, state->plan[stage].low[a], node_range(state, stage, state->plan[stage].root[a]).low),
                node_range(state, stage, state->plan[stage].root[a]).extent};
}

/* Narrows *low .. *high - 1 to the k with coefficient*k <= slack; the coefficient is not 0. */
static void narrow(tir_pool *pool, int64_t coefficient, tir_expr slack, tir_expr *low, tir_expr *high) {
    if (coefficient > 0)
        *high =
            tir_min(pool, *high, tir_add(pool, tir_div(pool, slack, tir_index(pool, coefficient)), tir_index(pool, 1)));
    else
        *low = tir_max(pool, *low,
                       tir_ceil_div(pool, tir_sub(pool, tir_index(pool, 0), slack), tir_index(pool, -coefficient)));
}

/* A term without the axis holds in all iterations of the loop or in none: with `any`, the loop has none if the term holds at no point of the
 * axes that no open loop fixes. A term in which the axis stands in other ways than times a number bounds nothing. */
static void solve_term(tir_schedule_state *state, int stage, int axis, tir_expr term, bool any, tir_expr *low,
                       tir_expr *high, tir_expr *decided, int *decided_count) {
    tir_pool *pool = pool_of(state);
    tir_op op = tir_op_of(pool, term);
    tir_expr var = state->region->stages.data[stage].axis[axis].var;
    if (!compares_indices(pool, term)) return;
    tir_expr difference = tir_sub(pool, tir_operand(pool, term, 0), tir_operand(pool, term, 1));
    int64_t coefficient = tir_coefficient(pool, difference, var);
    if (coefficient == 0 && !any && !tir_has_load(pool, difference, 0)) return;
    tir_expr rest = tir_sub(pool, difference, tir_mul(pool, tir_index(pool, coefficient), var));
    if (any && tir_uses(pool, rest, var)) return;
    tir_span view[TIR_MAX_AXES], range;
    view_of_others(state, stage, axis, rest, view);
    rest = with_scalars(state, stage, rest, view);
    if (!rest || (coefficient == 0 && !any) || !box(state, stage, rest, view, &range))
        return; /* the names still serve guards */
    tir_expr slack = tir_sub(pool, tir_index(pool, op == TIR_LT ? -1 : 0), range.low); /* coefficient*k <= slack */
    if (coefficient == 0) {
        const tir_expr holds = tir_max(pool, tir_index(pool, 0), tir_add(pool, slack, tir_index(pool, 1)));
        *high = tir_min(pool, *high, tir_mul(pool, tir_min(pool, holds, tir_index(pool, 1)), *high));
        return;
    }
    narrow(pool, coefficient, slack, low, high);
    if (decided && tir_is_number(pool, range.extent, 1)) decided[(*decided_count)++] = term;
}

tir_span tir_clip_range(tir_schedule_state *state, int stage, int axis, bool skip, tir_expr *decided,
                        int *decided_count) {
    tir_pool *pool = pool_of(state);
    tir_expr low = tir_index(pool, 0), high = state->plan[stage].extent[axis], terms[TERM_LIMIT];
    int count = tir_conjuncts(pool, state->region->stages.data[stage].predicate, terms, TERM_LIMIT);
    for (int i = 0; i < count; i++)
        solve_term(state, stage, axis, terms[i], false, &low, &high, decided, decided_count);
    count = skip ? tir_conjuncts(pool, state->plan[stage].counts, terms, TERM_LIMIT) : 0;
    for (int i = 0; i < count; i++) solve_term(state, stage, axis, terms[i], true, &low, &high, NULL, NULL);
    return (tir_span){low, tir_sub(pool, high, low)};
}
