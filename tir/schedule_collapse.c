/* collapse: neighbouring axes of stages along which every access is contiguous become one axis, and so do the dimensions of
 * the tensors that they index. [8, 64, 56, 56] scaled per channel becomes [8, 64, 3136]; a sum over the last two axes
 * becomes one over the last. Order and values are unchanged; loops get longer, fewer and without remainders.
 *
 * A pair of axes (slow, fast) may be joined if in each load the address advances by extent(fast) times as much along slow as
 * along fast, and neither axis is used in arithmetic. Loads nested in an index are checked separately: a gather's table may still be
 * collapsed. An axis of one point joins any neighbour; the axes on its two sides join only if they may be joined themselves. A pair joined in a stage is also joined
 * in its tensors, so their readers must join the axes that index them too: the result is the largest set of pairs that is
 * consistent in this sense. Scatters keep their axes. A constant whose dimensions are joined can no longer have a
 * layout of its own. */
#include "tir/schedule_internal.h"

typedef struct collapsing {
    tir_schedule_state *state;
    tir_region *region;
    tir_pool *pool;
    /* per stage: bit a: axes a and a + 1 become one */
    uint32_t *axes;
    /* per tensor without a stage: bit d: dimensions d and d + 1 become one */
    uint32_t *inputs;
    /* the stage whose loads are visited */
    int reader;
    bool changed;
} collapsing;

static tir_stage *stage_at(const collapsing *c, int s) {
    return &c->region->stages.data[s];
}

/* Constant extent of an axis; 0: unknown. */
static int64_t extent_of(const collapsing *c, tir_expr extent) {
    int64_t n;
    return tir_is_const(c->pool, extent, &n) && n > 0 ? n : 0;
}

static bool is_zero(const collapsing *c, tir_expr index) {
    tir_interval range = tir_range(c->pool, index);
    return range.low == 0 && range.high == 0;
}

static bool joined(const collapsing *c, int s, int a) {
    return c->axes[s] >> a & 1;
}

static void separate(collapsing *c, int s, int a) {
    c->axes[s] &= ~(1u << a);
    c->changed = true;
}

/* The next axis of several points that axis `a`, of several points, is joined with (between them only axes of one point); -1: none. */
static int partner(const collapsing *c, int s, int a) {
    const tir_stage *stage = stage_at(c, s);
    if (extent_of(c, stage->axis[a].extent) == 1) return -1;
    while (joined(c, s, a) && extent_of(c, stage->axis[a + 1].extent) == 1) a++;
    return joined(c, s, a) ? a + 1 : -1;
}

/* Element strides of a tensor's dimensions; false: it has a layout of its own. */
static bool strides_of(const collapsing *c, const tir_tensor *tensor, tir_expr *stride) {
    tir_expr step = tir_index(c->pool, 1);
    if (!tir_layout_is_identity(&tensor->layout)) return false;
    for (int d = tensor->rank - 1; d >= 0; d--) {
        stride[d] = tensor->has_strides ? tir_index(c->pool, tensor->stride[d]) : step;
        step = tir_mul(c->pool, step, tensor->extent[d]);
    }
    return true;
}

static int rank_of(const collapsing *c, tir_expr load) {
    const tir_node *node = tir_get(c->pool, load);
    return node->count - (node->guarded ? 2 : 0);
}

static tir_expr hide_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    (void)user, (void)e;
    const tir_node *node = tir_get(pool, rebuilt);
    if (node->op != TIR_LOAD) return rebuilt;
    return tir_var(pool, "loaded", TIR_VAR_LET, node->dtype, TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH);
}

/* Whether the index uses the variable outside of nested loads. */
static bool depends(const collapsing *c, tir_expr index, tir_expr var) {
    return tir_uses(c->pool, index, var) && tir_uses(c->pool, tir_rewrite(c->pool, index, hide_load, NULL), var);
}

/* The stride of a load's address along an axis; false: it differs from point to point. */
static bool advance(const collapsing *c, tir_expr load, tir_expr var, const tir_expr *stride, tir_expr *step) {
    tir_pool *pool = c->pool;
    const tir_expr next = tir_add(pool, var, tir_index(pool, 1));
    *step = tir_index(pool, 0);
    for (int d = 0; d < rank_of(c, load); d++) {
        if (!depends(c, tir_operand(pool, load, d), var)) continue;
        const tir_expr index = tir_rewrite(pool, tir_operand(pool, load, d), hide_load, NULL);
        const tir_expr rise = tir_sub(pool, tir_substitute(pool, index, 1, &var, &next), index);
        *step = tir_add(pool, *step, tir_mul(pool, rise, stride[d]));
    }
    return !tir_uses(pool, *step, var);
}

/* Dimensions of the load that the variable indexes, as bits. */
static uint32_t indexed_by(const collapsing *c, tir_expr load, tir_expr var) {
    uint32_t dims = 0;
    for (int d = 0; d < rank_of(c, load); d++)
        if (depends(c, tir_operand(c->pool, load, d), var)) dims |= 1u << d;
    return dims;
}

/* The joins of all neighbouring dimensions from the lowest to the highest one in the set `dims`; bit d joins d and d + 1. */
static uint32_t dimensions_between(uint32_t dims) {
    uint32_t result = 0;
    for (int d = 0; d + 1 < 32; d++)
        if ((dims & ((2u << d) - 1)) && dims >> (d + 1)) result |= 1u << d;
    return result;
}

static bool compact_between(const collapsing *c, const tir_tensor *tensor, const tir_expr *stride, uint32_t pairs) {
    for (int d = 0; d + 1 < tensor->rank; d++)
        if ((pairs >> d & 1) && stride[d] != tir_mul(c->pool, stride[d + 1], tensor->extent[d + 1])) return false;
    return true;
}

/* ---- which pairs */

static void check_straight(void *user, tir_expr load) {
    collapsing *c = user;
    const tir_stage *stage = stage_at(c, c->reader);
    const tir_tensor *tensor = &c->region->tensors.data[tir_get(c->pool, load)->bits];
    tir_expr stride[DLC_MAX_RANK], slow, fast;
    bool known = strides_of(c, tensor, stride);
    for (int a = 0; a + 1 < stage->space + stage->reduce; a++) {
        const int b = partner(c, c->reader, a);
        if (b < 0) continue;
        tir_expr from = stage->axis[a].var, to = stage->axis[b].var;
        uint32_t dims = indexed_by(c, load, from) | indexed_by(c, load, to);
        if (!dims) continue;
        if (!known || !advance(c, load, from, stride, &slow) || !advance(c, load, to, stride, &fast) ||
            slow != tir_mul(c->pool, fast, stage->axis[b].extent) ||
            (tensor->stage < 0 && !compact_between(c, tensor, stride, dimensions_between(dims))))
            separate(c, c->reader, a);
    }
}

typedef struct bare_search {
    const collapsing *c;
    /* axes used in arithmetic or comparisons, as bits */
    uint32_t in_arithmetic;
} bare_search;

static tir_expr find_bare(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    bare_search *search = user;
    const tir_node node = *tir_get(pool, e);
    const tir_stage *stage = stage_at(search->c, search->c->reader);
    if (node.op == TIR_LOAD || node.dtype == TIR_INDEX) return rebuilt;
    for (int i = 0; i < node.count; i++)
        for (int a = 0; a < stage->space + stage->reduce && tir_dtype_of(pool, tir_operand(pool, e, i)) == TIR_INDEX;
             a++)
            if (tir_uses(pool, tir_operand(pool, e, i), stage->axis[a].var)) search->in_arithmetic |= 1u << a;
    return rebuilt;
}

/* The axes of the reader, `stage`, that it uses in arithmetic or comparisons, as bits. */
static uint32_t axes_in_arithmetic(const collapsing *c, const tir_stage *stage) {
    bare_search search = {c, 0};
    for (int k = 0; k < stage->count; k++) {
        tir_rewrite(c->pool, stage->value[k], find_bare, &search);
        if (stage->initial[k]) tir_rewrite(c->pool, stage->initial[k], find_bare, &search);
    }
    if (stage->predicate) tir_rewrite(c->pool, stage->predicate, find_bare, &search);
    return search.in_arithmetic;
}

/* Is the index a free axis of the fold? */
static bool is_free(const tir_stage *fold, tir_expr index) {
    bool found = false;
    for (int a = 0; a < fold->space; a++) found = found || fold->axis[a].var == index;
    return found;
}

/* Is axis d of the step, by which component k of the fold's next state is indexed, of one point, and no axis that the fold keeps? */
static bool is_single(const collapsing *c, const tir_stage *fold, int k, const tir_stage *step, int d) {
    const tir_expr index = tir_operand(c->pool, fold->value[k], d);
    if (extent_of(c, step->axis[d].extent) != 1 || !is_zero(c, index)) return false;
    const bool own = c->region->tensors.data[fold->tensor[k]].rank > fold->space;
    return !own && (!is_free(fold, index) || fold->space > 1);
}

/* The pairs of a fold's step that may be joined: those of axes by which the fold's free axes index its next state; not those of time, nor of the
 * state's own dimensions, which the fold does not join, except with axes of one point; none of steps that other steps alone read. */
static uint32_t pairs_of_step(const collapsing *c, const tir_stage *step) {
    const tir_stage *fold = stage_at(c, step->fold);
    uint32_t pairs = 0;
    for (int k = 0; k < fold->count; k++) {
        const tir_expr next = fold->value[k];
        if (tir_get(c->pool, next)->bits != step->tensor[0]) continue;
        for (int d = 0; d + 1 < step->space; d++)
            if ((is_free(fold, tir_operand(c->pool, next, d)) && is_free(fold, tir_operand(c->pool, next, d + 1))) ||
                is_single(c, fold, k, step, d) || is_single(c, fold, k, step, d + 1))
                pairs |= 1u << d;
    }
    return pairs;
}

static uint32_t candidates(collapsing *c, int s) {
    const tir_stage *stage = stage_at(c, s);
    uint32_t pairs = 0;
    if (stage->removed || (stage->kind != TIR_MAP && stage->kind != TIR_REDUCE && stage->kind != TIR_FOLD)) return 0;
    for (int k = 0; k < stage->count; k++)
        if (!tir_layout_is_identity(&c->region->tensors.data[stage->tensor[k]].layout)) return 0;
    c->reader = s;
    const tir_stage copy = *stage;
    const uint32_t in_arithmetic = axes_in_arithmetic(c, &copy);
    for (int a = 0; a + 1 < copy.space + copy.reduce; a++) {
        int64_t slow = extent_of(c, copy.axis[a].extent), fast = extent_of(c, copy.axis[a + 1].extent), most;
        if (a + 1 == copy.space || (slow && fast && __builtin_mul_overflow(slow, fast, &most))) continue;
        pairs |= 1u << a;
    }
    if (copy.fold >= 0) pairs &= pairs_of_step(c, &copy);
    c->axes[s] = pairs;
    for (int a = 0; a < copy.space + copy.reduce; a++) {
        const int b = partner(c, s, a);
        if (b >= 0 && ((in_arithmetic >> a | in_arithmetic >> b) & 1)) c->axes[s] &= ~(1u << a);
    }
    return c->axes[s];
}

/* ---- consistency between a tensor of the region and its readers */

static int axis_of(const collapsing *c, int s, tir_expr var) {
    const tir_stage *stage = stage_at(c, s);
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].var == var) return a;
    return -1;
}

/* The axis a of the reader that indexes dimension d of the load, if a's partner indexes dimension b and has its extent; else -1. */
static int indexed_by_pair(const collapsing *c, tir_expr load, const tir_tensor *tensor, int d, int b) {
    const int a = axis_of(c, c->reader, tir_operand(c->pool, load, d)), with = a < 0 ? -1 : partner(c, c->reader, a);
    if (with < 0) return -1;
    const tir_axis *fast = &stage_at(c, c->reader)->axis[with];
    return tir_operand(c->pool, load, b) == fast->var && fast->extent == tensor->extent[b] ? a : -1;
}

static void check_consistent(void *user, tir_expr load) {
    collapsing *c = user;
    const tir_tensor *tensor = &c->region->tensors.data[tir_get(c->pool, load)->bits];
    const tir_stage *stage = stage_at(c, c->reader);
    if (tensor->stage < 0) return;
    uint32_t by_pairs = 0; /* bit a: axis a and its partner index two dimensions that are joined as well */
    for (int d = 0; d + 1 < tensor->rank; d++) {
        if (!joined(c, tensor->stage, d)) continue;
        const int b = partner(c, tensor->stage, d), a = b < 0 ? -1 : indexed_by_pair(c, load, tensor, d, b);
        if (a >= 0)
            by_pairs |= 1u << a;
        else if (b >= 0)
            separate(c, tensor->stage, d);
        else if (!is_zero(c, tir_operand(c->pool, load, d)) && !is_zero(c, tir_operand(c->pool, load, d + 1)))
            separate(c, tensor->stage, d);
    }
    for (int a = 0; a + 1 < stage->space + stage->reduce; a++) {
        const int b = partner(c, c->reader, a);
        if (b < 0 || (by_pairs >> a & 1)) continue;
        if (indexed_by(c, load, stage->axis[a].var) | indexed_by(c, load, stage->axis[b].var))
            separate(c, c->reader, a);
    }
}

static void find_pairs(collapsing *c) {
    int count = (int)c->region->stages.count;
    for (int s = 0; s < count; s++) c->axes[s] = candidates(c, s);
    for (c->reader = 0; c->reader < count; c->reader++)
        if (c->axes[c->reader]) tir_stage_loads(c->state->region, c->reader, check_straight, c);
    do {
        c->changed = false;
        for (c->reader = 0; c->reader < count; c->reader++)
            if (!stage_at(c, c->reader)->removed) tir_stage_loads(c->state->region, c->reader, check_consistent, c);
    } while (c->changed);
}

static void mark_input(void *user, tir_expr load) {
    collapsing *c = user;
    const tir_stage *stage = stage_at(c, c->reader);
    uint32_t tensor = (uint32_t)tir_get(c->pool, load)->bits;
    if (c->region->tensors.data[tensor].stage >= 0) return;
    for (int a = 0; a + 1 < stage->space + stage->reduce; a++) {
        const int b = partner(c, c->reader, a);
        if (b < 0) continue;
        c->inputs[tensor] |=
            dimensions_between(indexed_by(c, load, stage->axis[a].var) | indexed_by(c, load, stage->axis[b].var));
    }
}

/* ---- joining */

static uint32_t pairs_of_tensor(const collapsing *c, uint32_t tensor) {
    const tir_tensor *t = &c->region->tensors.data[tensor];
    return t->stage < 0 ? c->inputs[tensor] : c->axes[t->stage] & ((1u << t->rank) - 1);
}

/* Index of the joined dimension: slow * extent + fast. An index that is always 0 is left out, so that a reader whose axes are not joined
 * still indexes by one axis alone. */
static tir_expr join_pair(const collapsing *c, tir_expr slow, tir_expr fast, tir_expr extent) {
    const tir_expr zero = tir_index(c->pool, 0);
    return tir_add(c->pool, is_zero(c, slow) ? zero : tir_mul(c->pool, slow, extent), is_zero(c, fast) ? zero : fast);
}

static tir_expr join_indices(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const collapsing *c = user;
    const tir_node node = *tir_get(pool, rebuilt);
    (void)e;
    if (node.op != TIR_LOAD || tir_op_of(pool, e) != TIR_LOAD) return rebuilt;
    uint32_t pairs = pairs_of_tensor(c, (uint32_t)node.bits);
    const tir_tensor *tensor = &c->region->tensors.data[node.bits];
    tir_expr index[DLC_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < tensor->rank; d++) {
        tir_expr here = tir_operand(pool, rebuilt, d);
        if (d > 0 && (pairs >> (d - 1) & 1))
            index[rank - 1] = join_pair(c, index[rank - 1], here, tensor->extent[d]);
        else
            index[rank++] = here;
    }
    return tir_load(pool, (uint32_t)node.bits, node.dtype, rank, index,
                    node.guarded ? tir_operand(pool, rebuilt, tensor->rank) : 0,
                    node.guarded ? tir_operand(pool, rebuilt, tensor->rank + 1) : 0);
}

typedef struct renaming {
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    int count;
} renaming;

static tir_expr rename_axes(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const renaming *r = user;
    (void)pool;
    for (int i = 0; i < r->count; i++)
        if (e == r->from[i]) return r->to[i];
    return rebuilt;
}

/* Returns the axis that axes first .. last become. Appends to r the replacement of their variables: that of the last axis of several points
 * (along which every address advances as along the joined axis) by the joined axis's, the others by zero. */
static tir_axis join_run(collapsing *c, const tir_stage *stage, int first, int last, renaming *r) {
    tir_expr extent = tir_index(c->pool, 1);
    for (int a = first; a <= last; a++) extent = tir_mul(c->pool, extent, stage->axis[a].extent);
    int named = first; /* named after its first axis of several points */
    while (named < last && extent_of(c, stage->axis[named].extent) == 1) named++;
    tir_axis whole = tir_axis_like(c->state, &stage->axis[named], extent);
    int carrier = last;
    while (carrier > first && extent_of(c, stage->axis[carrier].extent) == 1) carrier--;
    for (int a = first; a <= last; a++) {
        r->from[r->count] = stage->axis[a].var;
        r->to[r->count++] = a == carrier ? whole.var : tir_index(c->pool, 0);
    }
    return whole;
}

static void join_axes(collapsing *c, int s) {
    tir_stage stage = *stage_at(c, s);
    tir_rewrite_stage(c->pool, &stage, join_indices, c);
    renaming r = {.count = 0};
    tir_axis axis[TIR_MAX_AXES];
    int count = 0, space = 0, reduce = 0;
    for (int first = 0, last; first < stage.space + stage.reduce; first = last + 1) {
        last = first;
        while (joined(c, s, last)) last++;
        axis[count++] = last > first ? join_run(c, &stage, first, last, &r) : stage.axis[first];
        if (first < stage.space)
            space++;
        else
            reduce++;
    }
    if (r.count) tir_rewrite_stage(c->pool, &stage, rename_axes, &r);
    memcpy(stage.axis, axis, (size_t)count * sizeof *axis);
    stage.space = space;
    stage.reduce = reduce;
    *stage_at(c, s) = stage;
}

/* The condition of known zeros, at positions along the joined dimensions. */
static void join_positions(collapsing *c, uint32_t tensor, const tir_tensor *before, uint32_t pairs) {
    tir_tensor *t = &c->region->tensors.data[tensor];
    const char *names[DLC_MAX_RANK];
    tir_expr to[DLC_MAX_RANK], rest = 0;
    int joined = t->rank;
    for (int i = 0; i < t->rank; i++) names[i] = tir_variable_of(c->pool, before->position[i])->name;
    tir_region_positions(c->region, tensor, names);
    for (int d = before->rank - 1; d >= 0; d--) {
        const bool first = d == 0 || !(pairs >> (d - 1) & 1), last = d + 1 == before->rank || !(pairs >> d & 1);
        if (last) rest = t->position[--joined];
        to[d] = first ? rest : tir_rem(c->pool, rest, before->extent[d]);
        if (!first) rest = tir_div(c->pool, rest, before->extent[d]);
    }
    t->nonzero = tir_substitute(c->pool, before->nonzero, before->rank, before->position, to);
}

static void join_dimensions(collapsing *c, uint32_t tensor) {
    uint32_t pairs = pairs_of_tensor(c, tensor);
    tir_tensor *t = &c->region->tensors.data[tensor];
    const tir_tensor before = *t;
    int rank = 0;
    if (!pairs) return;
    for (int d = 0; d < t->rank; d++) {
        bool join = d > 0 && (pairs >> (d - 1) & 1);
        rank += !join;
        t->extent[rank - 1] = join ? tir_mul(c->pool, t->extent[rank - 1], t->extent[d]) : t->extent[d];
        t->stride[rank - 1] = t->stride[d];
    }
    if (rank < t->rank) t->constant = false;
    t->rank = rank;
    t->layout = tir_layout_identity(rank);
    if (t->nonzero) join_positions(c, tensor, &before, pairs);
}

void tir_apply_collapse(tir_schedule_state *state) {
    tir_region *region = state->region;
    collapsing c = {.state = state, .region = region, .pool = region->pool};
    c.axes = LIB_NEW_ARRAY(state->arena, uint32_t, region->stages.count + 1);
    c.inputs = LIB_NEW_ARRAY(state->arena, uint32_t, region->tensors.count + 1);
    find_pairs(&c);
    for (c.reader = 0; c.reader < (int)region->stages.count; c.reader++)
        if (!stage_at(&c, c.reader)->removed) tir_stage_loads(state->region, c.reader, mark_input, &c);
    for (int s = 0; s < (int)region->stages.count; s++)
        if (!stage_at(&c, s)->removed) join_axes(&c, s);
    for (uint32_t t = 0; t < region->tensors.count; t++) join_dimensions(&c, t);
}
