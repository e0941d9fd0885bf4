/* Lowering: region + schedule -> loop IR, by the algorithm of the design's lowering page. One recursion (`loops`) makes the nest
 * of a stage in three roles: initialise its state, update it (or compute a map), copy an attached output to its buffer. Guards are
 * placed here and only here: on loads whose address may leave the buffer, on stores to roots and outputs, on updates of
 * reductions. What ranges prove is left out. */
#include "tir/math.h"
#include "tir/schedule_internal.h"

enum { TERM_LIMIT = 32, MAX_RANK = 16, STACK_LIMIT = 16384 };

typedef enum nest_role { ROLE_INIT, ROLE_UPDATE, ROLE_COPY } nest_role;

typedef struct lowering {
    lib_arena *arena;
    tir_region *region;
    tir_pool *pool;
    tir_kernel *kernel;
    tir_schedule_state state;
    const tir_lower_options *options;
    bool has_fma;
    uint32_t *home;              /* tensor -> buffer of inputs and roots; UINT32_MAX: none yet */
    tir_stmt *body;              /* of the phase being written */
    tir_stmt **cursor;           /* where the next statement goes */
    tir_expr known[TERM_LIMIT];  /* conditions that hold here: decided by clipped loops, or the statement's own guard */
    int known_count;
} lowering;

static tir_stage *stage_of(lowering *l, int s) { return &l->region->stages.data[s]; }
static tir_stage_plan *plan_of(lowering *l, int s) { return &l->state.plan[s]; }

/* ---- statements */

static tir_stmt *append(lowering *l, tir_stmt_kind kind) {
    tir_stmt *stmt = tir_stmt_new(l->arena, kind);
    *l->cursor = stmt;
    l->cursor = &stmt->next;
    return stmt;
}

static const tir_expr *copy_indices(lowering *l, const tir_expr *index, int rank) {
    return lib_arena_copy(l->arena, index, (size_t)rank * sizeof *index);
}

/* Physical indices of a tensor's element in a buffer of its layout. */
static int physical(lowering *l, uint32_t tensor, const tir_expr *logical, tir_expr *out) {
    const tir_layout *layout = &l->region->tensors.data[tensor].layout;
    tir_layout_indices(l->pool, layout, logical, out);
    return tir_layout_physical_rank(layout);
}

static void append_store(lowering *l, uint32_t buffer, uint32_t tensor, const tir_expr *logical, tir_expr value, bool nt) {
    tir_expr index[MAX_RANK];
    tir_stmt *stmt = append(l, TIR_STORE);
    stmt->store.buffer = buffer;
    stmt->store.rank = physical(l, tensor, logical, index);
    stmt->store.index = copy_indices(l, index, stmt->store.rank);
    stmt->store.value = value;
    stmt->store.non_temporal = nt;
    l->kernel->buffers.data[buffer].written = true;
}

/* Opens `if (condition)`; returns the cursor to go back to, or NULL when the condition is true and nothing was opened. */
static tir_stmt **open_if(lowering *l, tir_expr condition, bool clip) {
    if (!condition || tir_is_true(l->pool, condition)) return NULL;
    tir_stmt *stmt = append(l, TIR_IF);
    stmt->if_.condition = condition;
    stmt->if_.clip = clip;
    tir_stmt **after = l->cursor;
    l->cursor = &stmt->if_.body;
    return after;
}

static void close_if(lowering *l, tir_stmt **after) {
    if (after) l->cursor = after;
}

/* ---- conditions */

static bool is_known(const lowering *l, tir_expr term) {
    for (int i = 0; i < l->known_count; i++)
        if (l->known[i] == term) return true;
    return false;
}

static tir_expr conjoin(lowering *l, tir_expr all, tir_expr term) {
    if (is_known(l, term) || tir_prove(l->pool, term) == TIR_YES) return all;
    return all ? tir_and(l->pool, all, term) : term;
}

static void learn(lowering *l, tir_expr condition) {
    if (!condition || l->known_count >= TERM_LIMIT) return;
    l->known_count += tir_conjuncts(l->pool, condition, l->known + l->known_count, TERM_LIMIT - l->known_count);
}

/* The masks of an axis' mask splits: the point must lie in its tile (the next tile owns what is beyond). */
static tir_expr axis_masks(lowering *l, int s, int axis, tir_expr all) {
    tir_stage_plan *plan = plan_of(l, s);
    for (uint32_t n = 0; n < plan->nodes.count; n++) {
        const tir_axis_node *node = &plan->nodes.data[n];
        if (node->axis != axis || node->outer < 0 || node->mode != TIR_TAIL_MASK) continue;
        tir_expr value = tir_node_value(&l->state, s, (int)n), extent = tir_node_extent(&l->state, s, (int)n);
        if (value) all = conjoin(l, all, tir_lt(l->pool, value, extent));
    }
    return all;
}

/* The current point of a stage lies inside its domain (unpadded), both bounds. */
static tir_expr in_domain(lowering *l, int s, tir_expr all) {
    tir_stage *stage = stage_of(l, s);
    for (int a = 0; a < stage->space; a++) {
        tir_expr value = tir_axis_value(&l->state, s, a);
        all = conjoin(l, all, tir_le(l->pool, tir_index(l->pool, 0), value));
        all = conjoin(l, all, tir_lt(l->pool, value, stage->axis[a].extent));
    }
    return all;
}

/* ---- expressions: axes become loop values, tensors become buffers */

typedef struct translation {
    lowering *l;
    int stage;
    const tir_expr *acc; /* what ACC nodes read */
} translation;

static tir_expr translate_load(lowering *l, const tir_node *node, const tir_expr *logical, tir_expr guard, tir_expr other) {
    uint32_t tensor = (uint32_t)node->bits, buffer;
    const tir_tensor *t = &l->region->tensors.data[tensor];
    tir_expr relative[DLC_MAX_RANK], index[MAX_RANK];
    bool scratch = t->stage >= 0 && plan_of(l, t->stage)->open;
    if (scratch) {
        const tir_stage_plan *plan = plan_of(l, t->stage);
        buffer = plan->scratch[t->component];
        for (int d = 0; d < t->rank; d++) relative[d] = tir_sub(l->pool, logical[d], plan->scratch_low[d]);
    } else {
        buffer = l->home[tensor];
        if (buffer == UINT32_MAX)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: %s is read before it is computed (is its stage attached too deep?)", l->region->name,
                      t->name);
        int saved = l->known_count;
        learn(l, guard);
        for (int d = 0; d < t->rank; d++) {
            relative[d] = logical[d];
            tir_expr padded = tir_layout_padded(l->pool, &t->layout, d, t->extent[d]);
            tir_expr before = guard;
            guard = conjoin(l, guard, tir_le(l->pool, tir_index(l->pool, 0), logical[d]));
            guard = conjoin(l, guard, tir_lt(l->pool, logical[d], padded));
            if (guard != before && !other) other = tir_int(l->pool, node->dtype, 0);
        }
        l->known_count = saved;
    }
    int rank = physical(l, tensor, relative, index);
    l->kernel->buffers.data[buffer].read = true;
    return tir_load(l->pool, buffer, node->dtype, rank, index, guard && tir_is_true(l->pool, guard) ? 0 : guard, other);
}

static tir_expr translate_node(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    translation *t = user;
    lowering *l = t->l;
    const tir_node node = *tir_get(pool, rebuilt);
    switch (node.op) {
    case TIR_VAR: {
        const tir_stage *stage = stage_of(l, t->stage);
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (stage->axis[a].var == e) return tir_axis_value(&l->state, t->stage, a);
        return rebuilt;
    }
    case TIR_ACC: return t->acc[node.bits];
    case TIR_LOAD: {
        tir_expr logical[DLC_MAX_RANK], guard = 0, other = 0;
        int rank = node.count - (node.guarded ? 2 : 0);
        for (int d = 0; d < rank; d++) logical[d] = tir_operand(pool, rebuilt, d);
        if (node.guarded) {
            guard = tir_operand(pool, rebuilt, rank);
            other = tir_operand(pool, rebuilt, rank + 1);
        }
        return translate_load(l, &node, logical, guard, other);
    }
    default: return rebuilt;
    }
}

static tir_expr translate(lowering *l, int s, tir_expr e, const tir_expr *acc) {
    translation t = {l, s, acc};
    return tir_rewrite(l->pool, e, translate_node, &t);
}

static tir_expr legal(lowering *l, tir_expr e) {
    return tir_legalize(l->pool, e, l->has_fma, l->region->excess_precision);
}

/* ---- statements of a stage at a point */

/* Logical indices of the current point in the stage's scratch (relative) or home buffer. */
static void point_indices(lowering *l, int s, bool scratch, tir_expr *index) {
    for (int a = 0; a < stage_of(l, s)->space; a++) {
        index[a] = tir_axis_value(&l->state, s, a);
        if (scratch) index[a] = tir_sub(l->pool, index[a], plan_of(l, s)->scratch_low[a]);
    }
}

static uint32_t target_buffer(lowering *l, int s, int component, bool scratch) {
    return scratch ? plan_of(l, s)->scratch[component] : l->home[stage_of(l, s)->tensor[component]];
}

static bool padded_layout(lowering *l, uint32_t tensor) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    for (int d = 0; d < t->rank; d++)
        if (tir_layout_padded(l->pool, &t->layout, d, t->extent[d]) != t->extent[d]) return true;
    return false;
}

/* Names a value; what is appended next sees the name. Returns the variable. */
static tir_expr append_let(lowering *l, const char *name, tir_expr value) {
    tir_stmt *let = append(l, TIR_LET);
    let->let.value = value;
    let->let.var = tir_var(l->pool, name, TIR_VAR_LET, tir_dtype_of(l->pool, value), TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH);
    l->cursor = &let->let.body;
    return let->let.var;
}

/* Loop IR is a tree when printed and walked: value expressions that are used more than once get names, innermost first, so that no
 * walk over a kernel is exponential in the sharing. */
typedef struct sharing {
    lowering *l;
    lib_vec(tir_expr) nodes;   /* in the order of their operands */
    uint32_t *uses;            /* by node id; ids below `limit` */
    bool *seen;
    uint32_t limit;
} sharing;

static bool worth_naming(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    return node->count > 0 && node->dtype != TIR_INDEX;
}

static tir_expr count_uses(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    sharing *s = user;
    if (e >= s->limit || s->seen[e]) return rebuilt;
    s->seen[e] = true;
    if (worth_naming(pool, e)) lib_vec_push(s->l->arena, &s->nodes, e);
    for (int i = 0; i < tir_get(pool, e)->count; i++) s->uses[tir_operand(pool, e, i)]++;
    return rebuilt;
}

/* Opens lets for what the values share; `values` are rewritten. */
static void name_shared(lowering *l, tir_expr *values, int count) {
    sharing s = {.l = l, .limit = l->pool->nodes.count};
    s.uses = LIB_NEW_ARRAY(l->arena, uint32_t, s.limit);
    s.seen = LIB_NEW_ARRAY(l->arena, bool, s.limit);
    for (int c = 0; c < count; c++) tir_rewrite(l->pool, values[c], count_uses, &s);
    tir_expr *from = LIB_NEW_ARRAY(l->arena, tir_expr, s.nodes.count + 1), *to = LIB_NEW_ARRAY(l->arena, tir_expr, s.nodes.count + 1);
    int named = 0;
    for (uint32_t i = 0; i < s.nodes.count; i++) {
        tir_expr e = s.nodes.data[i];
        if (s.uses[e] < 2) continue;
        tir_expr value = tir_substitute(l->pool, e, named, from, to);
        from[named] = e;
        to[named++] = append_let(l, "t", value);
    }
    for (int c = 0; c < count && named; c++) values[c] = tir_substitute(l->pool, values[c], named, from, to);
}

/* Stores all components at once: values that read the state are computed before the first store. */
static void store_all(lowering *l, int s, const tir_expr *index, bool scratch, const tir_expr *values) {
    tir_stage *stage = stage_of(l, s);
    tir_stmt **before = l->cursor;
    tir_expr stored[TIR_MAX_STATE];
    memcpy(stored, values, sizeof stored);
    name_shared(l, stored, stage->count);
    for (int c = 0; c < stage->count && stage->count > 1; c++)
        stored[c] = append_let(l, l->region->tensors.data[stage->tensor[c]].name, stored[c]);
    for (int c = 0; c < stage->count; c++)
        append_store(l, target_buffer(l, s, c, scratch), stage->tensor[c], index, stored[c], plan_of(l, s)->non_temporal);
    if (*before) l->cursor = &(*before)->next; /* behind what was opened here */
}

static void load_state(lowering *l, int s, const tir_expr *index, bool scratch, tir_expr *acc) {
    tir_stage *stage = stage_of(l, s);
    for (int c = 0; c < stage->count; c++) {
        uint32_t buffer = target_buffer(l, s, c, scratch), tensor = stage->tensor[c];
        tir_expr at[MAX_RANK];
        int rank = physical(l, tensor, index, at);
        l->kernel->buffers.data[buffer].read = true;
        acc[c] = tir_load(l->pool, buffer, (tir_dtype)l->region->tensors.data[tensor].dtype, rank, at, 0, 0);
    }
}

/* Guard of stores of the point: for homes the point must lie in its tile; scratch outside is don't care. A root's tiles cover just
 * its domain (padded, where its layout pads); a region of an attached output may reach outside. */
static tir_expr store_guard(lowering *l, int s, bool scratch, bool padded) {
    tir_expr guard = 0;
    if (scratch) return 0;
    for (int a = 0; a < stage_of(l, s)->space; a++) guard = axis_masks(l, s, a, guard);
    return padded || plan_of(l, s)->at_stage < 0 ? guard : in_domain(l, s, guard);
}

/* Inside a root's store guard every axis lies in its range, also where ranges alone cannot tell (fused axes). */
static void learn_ranges(lowering *l, int s) {
    tir_stage_plan *plan = plan_of(l, s);
    for (int a = 0; a < stage_of(l, s)->space && plan->at_stage < 0; a++) {
        tir_expr value = tir_axis_value(&l->state, s, a);
        learn(l, tir_lt(l->pool, value, plan->extent[a]));
    }
}

static void statement_init(lowering *l, int s, bool scratch) {
    tir_stage *stage = stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE];
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    tir_stmt **after = open_if(l, store_guard(l, s, scratch, padded), false);
    point_indices(l, s, scratch, index);
    for (int c = 0; c < stage->count; c++) values[c] = legal(l, translate(l, s, stage->initial[c], NULL));
    store_all(l, s, index, scratch, values);
    close_if(l, after);
}

static void statement_map(lowering *l, int s, bool scratch) {
    tir_stage *stage = stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE];
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    int saved = l->known_count;
    tir_expr guard = store_guard(l, s, scratch, padded);
    tir_stmt **after = open_if(l, guard, false);
    learn(l, guard);
    learn_ranges(l, s);
    point_indices(l, s, scratch, index);
    tir_expr valid = padded ? in_domain(l, s, 0) : 0;
    int inner = l->known_count;
    for (int c = 0; c < stage->count; c++) {
        values[c] = legal(l, translate(l, s, stage->value[c], NULL));
        if (valid) values[c] = tir_select(l->pool, valid, values[c], tir_int(l->pool, tir_dtype_of(l->pool, values[c]), 0));
    }
    l->known_count = inner;
    store_all(l, s, index, scratch, values);
    l->known_count = saved;
    close_if(l, after);
}

static bool has_clip(const tir_stage_plan *plan) {
    for (uint32_t n = 0; n < plan->nodes.count; n++)
        if (plan->nodes.data[n].clip) return true;
    return false;
}

/* update of a reduction (index: the point) or a scatter (index: where the data says) */
static void statement_update(lowering *l, int s, bool scratch) {
    tir_stage *stage = stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], acc[TIR_MAX_STATE], values[TIR_MAX_STATE];
    int saved = l->known_count;
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    tir_expr guard = stage->kind == TIR_SCATTER ? 0 : store_guard(l, s, scratch, padded);
    for (int a = 0; a < stage->space && stage->kind == TIR_SCATTER; a++) guard = axis_masks(l, s, a, guard);
    learn(l, guard);
    if (stage->kind == TIR_REDUCE) learn_ranges(l, s);
    for (int a = stage->space; a < stage->space + stage->reduce; a++) guard = axis_masks(l, s, a, guard);
    if (padded && stage->kind == TIR_REDUCE) guard = in_domain(l, s, guard);
    learn(l, guard);
    if (stage->predicate) {
        tir_expr terms[TERM_LIMIT];
        int count = tir_conjuncts(l->pool, translate(l, s, stage->predicate, NULL), terms, TERM_LIMIT);
        for (int i = 0; i < count; i++) guard = conjoin(l, guard, terms[i]);
        learn(l, guard);
    }
    if (stage->kind == TIR_SCATTER)
        for (int d = 0; d < stage->space; d++) {
            index[d] = translate(l, s, stage->index[d], NULL);
            guard = conjoin(l, guard, tir_le(l->pool, tir_index(l->pool, 0), index[d]));
            guard = conjoin(l, guard, tir_lt(l->pool, index[d], stage->axis[d].extent));
            if (scratch) index[d] = tir_sub(l->pool, index[d], plan_of(l, s)->scratch_low[d]);
        }
    else
        point_indices(l, s, scratch, index);
    tir_stmt **after = open_if(l, guard, has_clip(plan_of(l, s)));
    learn(l, guard);
    load_state(l, s, index, scratch, acc);
    for (int c = 0; c < stage->count; c++) values[c] = legal(l, translate(l, s, stage->value[c], acc));
    store_all(l, s, index, scratch, values);
    l->known_count = saved;
    close_if(l, after);
}

/* An attached output is also written to its home. */
static void statement_copy(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], acc[TIR_MAX_STATE];
    bool padded = padded_layout(l, stage->tensor[0]);
    tir_stmt **after = open_if(l, store_guard(l, s, false, padded), false);
    point_indices(l, s, true, index);
    load_state(l, s, index, true, acc);
    tir_expr valid = padded ? in_domain(l, s, 0) : 0;
    point_indices(l, s, false, index);
    for (int c = 0; c < stage->count; c++) {
        uint32_t tensor = stage->tensor[c];
        if (!l->region->tensors.data[tensor].output) continue;
        if (valid) acc[c] = tir_select(l->pool, valid, acc[c], tir_int(l->pool, tir_dtype_of(l->pool, acc[c]), 0));
        append_store(l, l->home[tensor], tensor, index, acc[c], plan_of(l, s)->non_temporal);
    }
    close_if(l, after);
}

/* Fold: state components have the free axes first and then axes of their own, walked by serial loops here. */
static void statement_fold(lowering *l, int s, bool init) {
    tir_stage *stage = stage_of(l, s);
    tir_stage_plan *plan = plan_of(l, s);
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *tensor = &l->region->tensors.data[stage->tensor[c]];
        tir_expr index[DLC_MAX_RANK], value;
        tir_expr guard = 0;
        for (int a = 0; a < stage->space; a++) guard = axis_masks(l, s, a, guard);
        point_indices(l, s, plan->open, index);
        tir_stmt **back = l->cursor, **outside = NULL;
        for (int d = stage->space; d < tensor->rank; d++) {
            tir_stmt *loop = append(l, TIR_FOR);
            if (!outside) outside = l->cursor;
            loop->for_.lower = tir_index(l->pool, 0);
            loop->for_.var = tir_loop_variable(l->pool, "s", loop->for_.lower, tensor->extent[d]);
            loop->for_.extent = tensor->extent[d];
            index[d] = loop->for_.var;
            l->cursor = &loop->for_.body;
        }
        (void)back;
        tir_stmt **after = open_if(l, guard, false);
        if (init) {
            value = translate(l, s, stage->initial[c], NULL);
        } else { /* next[c] is a load of a step tensor; its trailing indices are this component's own axes */
            tir_node node = *tir_get(l->pool, stage->value[c]);
            tir_expr at[DLC_MAX_RANK];
            int free = node.count - (tensor->rank - stage->space);
            for (int d = 0; d < node.count; d++)
                at[d] = d < free ? translate(l, s, tir_operand(l->pool, stage->value[c], d), NULL) : index[stage->space + d - free];
            value = translate_load(l, &node, at, 0, 0);
        }
        append_store(l, target_buffer(l, s, c, plan->open), stage->tensor[c], index, legal(l, value), false);
        close_if(l, after);
        if (outside) l->cursor = outside;
    }
}

static void statement(lowering *l, int s, nest_role role) {
    bool scratch = plan_of(l, s)->open;
    tir_stage_kind kind = stage_of(l, s)->kind;
    if (kind == TIR_FOLD)
        statement_fold(l, s, role == ROLE_INIT);
    else if (role == ROLE_COPY)
        statement_copy(l, s);
    else if (role == ROLE_INIT)
        statement_init(l, s, scratch);
    else if (kind == TIR_MAP)
        statement_map(l, s, scratch);
    else
        statement_update(l, s, scratch);
}

/* ---- loops of a stage */

static void nest(lowering *l, int s);

static void attached_stages(lowering *l, int s, int node) {
    for (uint32_t q = 0; q < l->region->stages.count; q++)
        if (!stage_of(l, (int)q)->removed && plan_of(l, (int)q)->at_stage == s && plan_of(l, (int)q)->at_node == node)
            nest(l, (int)q);
}

static void close_attached(lowering *l, int s, int node) {
    for (uint32_t q = 0; q < l->region->stages.count; q++)
        if (plan_of(l, (int)q)->at_stage == s && plan_of(l, (int)q)->at_node == node) plan_of(l, (int)q)->open = false;
}

/* Loop bounds of a clipped leaf: solved from the predicate; what they decide is known inside. */
static tir_span clip_bounds(lowering *l, int s, const tir_axis_node *leaf, tir_span all, tir_expr *decided, int *count) {
    const tir_stage_plan *plan = plan_of(l, s);
    bool whole = leaf->parent < 0;
    const tir_axis_node *split = whole ? NULL : &plan->nodes.data[leaf->parent];
    if (!whole && (split->parent >= 0 || split->mode != TIR_TAIL_MASK || &plan->nodes.data[split->outer] != leaf)) return all;
    tir_span bounds = tir_clip_range(&l->state, s, leaf->axis, whole ? decided : NULL, count);
    if (whole) return bounds;
    tir_expr factor = tir_index(l->pool, split->factor), low = tir_div(l->pool, bounds.low, factor);
    tir_expr high = tir_ceil_div(l->pool, tir_add(l->pool, bounds.low, bounds.extent), factor);
    return (tir_span){low, tir_sub(l->pool, high, low)};
}

static void append_prefetches(lowering *l, int s, int leaf);

static void loops(lowering *l, int s, uint32_t k, nest_role role);

static void one_loop(lowering *l, int s, uint32_t k, nest_role role) {
    tir_stage_plan *plan = plan_of(l, s);
    int leaf = plan->order.data[k];
    tir_axis_node *node = &plan->nodes.data[leaf];
    tir_span bounds = {tir_index(l->pool, 0), tir_node_extent(&l->state, s, leaf)};
    tir_expr decided[TERM_LIMIT];
    int decided_count = 0, saved = l->known_count;
    tir_stmt **after = NULL;
    int64_t trips;
    if (node->clip && node->kind != TIR_UNROLL) bounds = clip_bounds(l, s, node, bounds, decided, &decided_count);
    if (tir_is_const(l->pool, bounds.extent, &trips) && trips == 1) {
        node->value = bounds.low;
    } else {
        tir_stmt *loop = append(l, TIR_FOR);
        after = l->cursor;
        loop->for_.var = tir_loop_variable(l->pool, node->name, bounds.low, bounds.extent);
        loop->for_.lower = bounds.low;
        loop->for_.extent = bounds.extent;
        loop->for_.loop = node->kind;
        loop->for_.parallel = node->parallel;
        node->value = loop->for_.var;
        l->cursor = &loop->for_.body;
    }
    for (int i = 0; i < decided_count; i++) learn(l, translate(l, s, decided[i], NULL));
    if (role == ROLE_UPDATE) {
        attached_stages(l, s, leaf);
        append_prefetches(l, s, leaf);
    }
    loops(l, s, k + 1, role);
    if (role == ROLE_UPDATE) close_attached(l, s, leaf);
    l->known_count = saved;
    plan_of(l, s)->nodes.data[leaf].value = 0;
    if (after) l->cursor = after;
}

static void open_fold_state(lowering *l, int s);

static uint32_t first_reduction(const tir_stage_plan *plan) {
    uint32_t r = 0;
    while (r < plan->order.count && !plan->nodes.data[plan->order.data[r]].reduce) r++;
    return r;
}

/* Updates of a scatter run along the space axes that the index leaves alone; where the data says along the others. */
static bool scatters_along(lowering *l, int s, int axis) {
    const tir_stage *stage = stage_of(l, s);
    return stage->kind != TIR_SCATTER || stage->index[axis] == stage->axis[axis].var;
}

static void loops(lowering *l, int s, uint32_t k, nest_role role) {
    tir_stage_plan *plan = plan_of(l, s);
    tir_stage_kind kind = stage_of(l, s)->kind;
    bool has_init = kind == TIR_REDUCE || kind == TIR_FOLD; /* a scatter is initialised by a phase of its own */
    if (role == ROLE_UPDATE && has_init && k == first_reduction(plan)) {
        if (kind == TIR_FOLD) open_fold_state(l, s);
        loops(l, s, k, ROLE_INIT);
    }
    if (k == plan->order.count) {
        /* a scatter or reduction without update axes still updates once; a map computes */
        statement(l, s, role);
        return;
    }
    const tir_axis_node *leaf = &plan->nodes.data[plan->order.data[k]];
    if (role != ROLE_UPDATE ? leaf->reduce : !leaf->reduce && !scatters_along(l, s, leaf->axis))
        loops(l, s, k + 1, role);
    else
        one_loop(l, s, k, role);
}

/* prefetch: the lines that the innermost ranges of a load of the tensor will touch `ahead` iterations later */
typedef struct prefetch_walk {
    lowering *l;
    int stage;
    const tir_prefetch *prefetch;
    bool done;
} prefetch_walk;

static void append_prefetch_load(void *user, tir_expr load) {
    prefetch_walk *walk = user;
    lowering *l = walk->l;
    if (walk->done || tir_get(l->pool, load)->bits != walk->prefetch->tensor) return;
    tir_stage *stage = stage_of(l, walk->stage);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], logical[DLC_MAX_RANK], index[MAX_RANK];
    int axes = stage->space + stage->reduce;
    for (int a = 0; a < axes; a++) {
        from[a] = stage->axis[a].var;
        to[a] = tir_axis_view(&l->state, walk->stage, a).low;
    }
    const tir_tensor *tensor = &l->region->tensors.data[walk->prefetch->tensor];
    for (int d = 0; d < tensor->rank; d++)
        logical[d] = tir_substitute(l->pool, tir_operand(l->pool, load, d), axes, from, to);
    uint32_t buffer = l->home[walk->prefetch->tensor];
    if (buffer == UINT32_MAX) return;
    int rank = physical(l, walk->prefetch->tensor, logical, index);
    int64_t width, line = l->options && l->options->machine && l->options->machine->line ? l->options->machine->line : 64;
    int64_t step = line / (int64_t)lib_dtype_size(tensor->dtype);
    if (rank == 0 || !tir_is_const(l->pool, l->kernel->buffers.data[buffer].extent[rank - 1], &width) || width > 16 * step)
        width = 1;
    for (int64_t at = 0; at < width; at += step) {
        tir_expr moved[MAX_RANK];
        memcpy(moved, index, sizeof moved);
        moved[rank - 1] = tir_add(l->pool, index[rank - 1], tir_index(l->pool, at));
        tir_stmt *stmt = append(l, TIR_PREFETCH);
        stmt->prefetch.buffer = buffer;
        stmt->prefetch.rank = rank;
        stmt->prefetch.index = copy_indices(l, moved, rank);
        stmt->prefetch.level = walk->prefetch->level;
    }
    walk->done = true;
}

static void append_prefetches(lowering *l, int s, int leaf) {
    tir_stage_plan *plan = plan_of(l, s);
    for (uint32_t i = 0; i < plan->prefetches.count; i++) {
        const tir_prefetch *prefetch = &plan->prefetches.data[i];
        if (prefetch->node != leaf) continue;
        prefetch_walk walk = {l, s, prefetch, false};
        tir_expr value = plan->nodes.data[leaf].value;
        plan->nodes.data[leaf].value = tir_add(l->pool, value, tir_index(l->pool, prefetch->ahead));
        tir_stage_loads(&l->state, s, append_prefetch_load, &walk);
        plan->nodes.data[leaf].value = value;
    }
}

/* ---- scratch */

static uint32_t new_scratch(lowering *l, int s, uint32_t tensor, const tir_expr *extent) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    tir_expr bounded[DLC_MAX_RANK], sizes[MAX_RANK];
    for (int d = 0; d < t->rank; d++) {
        int64_t high = tir_range(l->pool, extent[d]).high;
        if (high >= INT64_C(1) << 40)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: scratch of %s has no bounded size along dimension %d", l->region->name, t->name, d);
        bounded[d] = tir_index(l->pool, high > 0 ? high : 0);
    }
    tir_layout_extents(l->pool, &t->layout, bounded, sizes);
    int rank = tir_layout_physical_rank(&t->layout);
    int64_t bytes = (int64_t)lib_dtype_size(t->dtype);
    for (int d = 0; d < rank; d++) {
        int64_t n = 1;
        tir_is_const(l->pool, sizes[d], &n);
        if (n && bytes > (INT64_C(1) << 46) / n)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "region %s: scratch of %s is too large", l->region->name, t->name);
        bytes *= n;
    }
    const tir_stage_plan *plan = plan_of(l, s);
    tir_scope scope = plan->has_scope ? plan->scope : bytes <= STACK_LIMIT ? TIR_SCOPE_STACK : TIR_SCOPE_LOCAL;
    return tir_kernel_buffer(l->kernel, t->name, t->dtype, scope, rank, sizes);
}

static void open_scratch(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    tir_stage_plan *plan = plan_of(l, s);
    tir_expr extent[DLC_MAX_RANK];
    for (int a = 0; a < stage->space; a++) {
        plan->scratch_low[a] = plan->low[a];
        extent[a] = tir_axis_span(&l->state, s, a);
    }
    for (int c = 0; c < stage->count; c++) plan->scratch[c] = new_scratch(l, s, stage->tensor[c], extent);
    plan->open = true;
}

typedef struct outside_search {
    lowering *l;
    int fold;
    int reader;
    bool found;
} outside_search;
static void find_outside(void *user, tir_expr load) {
    outside_search *search = user;
    const tir_tensor *t = &search->l->region->tensors.data[tir_get(search->l->pool, load)->bits];
    if (t->stage == search->fold) search->found = true;
}

/* State that only the steps read lives where the fold's sequential loop starts; otherwise it has a home. */
static void open_fold_state(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    tir_stage_plan *plan = plan_of(l, s);
    for (int c = 0; c < stage->count; c++)
        if (l->home[stage->tensor[c]] != UINT32_MAX) return;
    for (int a = 0; a < stage->space; a++) plan->scratch_low[a] = tir_axis_view(&l->state, s, a).low;
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *t = &l->region->tensors.data[stage->tensor[c]];
        tir_expr extent[DLC_MAX_RANK];
        for (int d = 0; d < t->rank; d++) {
            extent[d] = d < stage->space ? tir_axis_view(&l->state, s, d).extent : t->extent[d];
            if (d >= stage->space) plan->scratch_low[d] = tir_index(l->pool, 0);
        }
        plan->scratch[c] = new_scratch(l, s, stage->tensor[c], extent);
    }
    plan->open = true;
}

/* ---- a stage with what is attached to it */

static void end_phase(lowering *l, int s);

static bool has_output(lowering *l, int s) {
    for (int c = 0; c < stage_of(l, s)->count; c++)
        if (l->region->tensors.data[stage_of(l, s)->tensor[c]].output) return true;
    return false;
}

/* Rule 9: every enclosing loop with several trips advances exactly one output axis by exactly its extent. */
static void check_output_once(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    tir_stage_plan *plan = plan_of(l, s);
    for (int owner = plan->at_stage, node = plan->at_node; owner >= 0;
         node = plan_of(l, owner)->at_node, owner = plan_of(l, owner)->at_stage) {
        tir_stage_plan *o = plan_of(l, owner);
        for (uint32_t i = 0; i < o->order.count; i++) {
            const tir_axis_node *leaf = &o->nodes.data[o->order.data[i]];
            int64_t one;
            if (leaf->value && !tir_is_const(l->pool, leaf->value, &one)) {
                int moved = 0;
                for (int a = 0; a < stage->space; a++) moved += tir_uses(l->pool, plan->low[a], leaf->value);
                if (moved != 1)
                    lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                              "schedule of region %s: output %s is attached inside loop %s of %s, which does not advance exactly one "
                              "of its axes: points would be written %s",
                              l->region->name, stage->name, leaf->name, stage_of(l, owner)->name,
                              moved ? "along a diagonal" : "more than once");
            }
            if (o->order.data[i] == node) break;
        }
    }
}

static void nest(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    tir_stage_plan *plan = plan_of(l, s);
    bool attached = plan->at_stage >= 0;
    if (attached) {
        tir_stage_region(&l->state, s);
        open_scratch(l, s);
    } else {
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            plan->low[a] = tir_index(l->pool, 0);
            plan->extent[a] = stage->axis[a].extent;
            if (a < stage->space && stage->kind != TIR_FOLD)
                for (int c = 0; c < stage->count; c++)
                    plan->extent[a] = tir_layout_padded(l->pool, &l->region->tensors.data[stage->tensor[c]].layout, a,
                                                        stage->axis[a].extent);
        }
    }
    if (stage->kind == TIR_SCATTER) {
        loops(l, s, 0, ROLE_INIT);
        end_phase(l, s);
    }
    loops(l, s, 0, ROLE_UPDATE);
    if (attached && has_output(l, s)) {
        check_output_once(l, s);
        loops(l, s, 0, ROLE_COPY);
    }
    if (stage->kind == TIR_FOLD) plan->open = false;
}

/* ---- homes: arguments and workspace */

static void argument_buffers(lowering *l) {
    int total = l->region->inputs + l->region->outputs;
    for (int argument = 0; argument < total; argument++) {
        for (uint32_t t = 0; t < l->region->tensors.count; t++) {
            const tir_tensor *tensor = &l->region->tensors.data[t];
            if (tensor->argument != argument) continue;
            tir_expr sizes[MAX_RANK];
            tir_layout_extents(l->pool, &tensor->layout, tensor->extent, sizes);
            uint32_t b = tir_kernel_buffer(l->kernel, tensor->name, tensor->dtype, TIR_SCOPE_ARG,
                                           tir_layout_physical_rank(&tensor->layout), sizes);
            tir_buffer *buffer = &l->kernel->buffers.data[b];
            buffer->argument = argument;
            buffer->alignment = tensor->alignment ? tensor->alignment : (int32_t)lib_dtype_size(tensor->dtype);
            if (tensor->has_strides)
                for (int d = 0; d < tensor->rank; d++) buffer->stride[d] = tir_index(l->pool, tensor->stride[d]);
            l->home[t] = b;
        }
    }
    l->kernel->arguments = total;
}

static void workspace_buffers(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    if (plan_of(l, s)->at_stage >= 0) return;
    if (stage->kind == TIR_FOLD) { /* state needs a home only when somebody else reads it */
        outside_search search = {l, s, s, has_output(l, s)};
        for (uint32_t q = 0; q < l->region->stages.count && !search.found; q++)
            if ((int)q != s && !stage_of(l, (int)q)->removed && stage_of(l, (int)q)->fold != s)
                tir_stage_loads(&l->state, (int)q, find_outside, &search);
        if (!search.found) return;
    }
    for (int c = 0; c < stage->count; c++) {
        uint32_t t = stage->tensor[c];
        const tir_tensor *tensor = &l->region->tensors.data[t];
        if (l->home[t] != UINT32_MAX) continue;
        tir_expr sizes[MAX_RANK];
        tir_layout_extents(l->pool, &tensor->layout, tensor->extent, sizes);
        l->home[t] = tir_kernel_buffer(l->kernel, tensor->name, tensor->dtype, TIR_SCOPE_WORKSPACE,
                                       tir_layout_physical_rank(&tensor->layout), sizes);
    }
}

/* Offsets of workspace and local buffers, by the upper bounds of their extents. */
static void assign_offsets(lowering *l) {
    int64_t total[2] = {0, 0};
    for (uint32_t b = 0; b < l->kernel->buffers.count; b++) {
        tir_buffer *buffer = &l->kernel->buffers.data[b];
        if (buffer->scope != TIR_SCOPE_WORKSPACE && buffer->scope != TIR_SCOPE_LOCAL) continue;
        int64_t *at = &total[buffer->scope == TIR_SCOPE_LOCAL];
        int64_t bytes = (int64_t)lib_dtype_size(buffer->dtype);
        for (int d = 0; d < buffer->rank; d++) {
            int64_t high = tir_range(l->pool, buffer->extent[d]).high;
            if (high < 0) high = 0;
            if (high && bytes > (INT64_C(1) << 46) / high)
                lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "region %s: scratch buffer %s is too large or unbounded",
                          l->region->name, buffer->name);
            bytes *= high;
        }
        buffer->offset = *at;
        *at += (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
    }
    l->kernel->workspace_bytes = total[0];
    l->kernel->workspace_size = tir_index(l->pool, total[0]);
    l->kernel->local_size = tir_index(l->pool, total[1]);
}

/* ---- phases and tasks */

static tir_expr list_tasks(lowering *l, const tir_stmt *list);

/* Tasks of one run of a parallel loop: its trips times the tasks inside. */
static tir_expr inner_tasks(lowering *l, const tir_stmt *loop) { return list_tasks(l, loop->for_.body); }

static bool parallel_list(const tir_stmt *list) { return list && list->kind == TIR_FOR && list->for_.parallel; }

static tir_expr list_tasks(lowering *l, const tir_stmt *list) {
    if (!parallel_list(list)) return tir_index(l->pool, 1);
    tir_expr trips = tir_index(l->pool, 0), inner = inner_tasks(l, list);
    for (const tir_stmt *run = list; run; run = run->next) {
        if (!parallel_list(run) || inner_tasks(l, run) != inner)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: the par loops of a stage must be nested directly and have equal trips", l->region->name);
        trips = tir_add(l->pool, trips, run->for_.extent);
    }
    return tir_mul(l->pool, trips, inner);
}

/* Turns parallel loops into arithmetic on the task's number; runs of one loop become branches on it. */
static tir_stmt *task_body(lowering *l, tir_stmt *list, tir_expr task) {
    if (!parallel_list(list)) return list;
    tir_expr inner = inner_tasks(l, list), position = tir_div(l->pool, task, inner);
    tir_expr rest = tir_rem(l->pool, task, inner), first = tir_index(l->pool, 0);
    tir_stmt *result = NULL, **cursor = &result;
    for (tir_stmt *run = list; run; run = run->next) {
        const tir_variable *variable = tir_variable_of(l->pool, run->for_.var);
        tir_stmt *let = tir_stmt_new(l->arena, TIR_LET);
        let->let.var = tir_var(l->pool, variable->name, TIR_VAR_LET, TIR_INDEX, variable->low, variable->high);
        tir_expr value = tir_add(l->pool, run->for_.lower, tir_sub(l->pool, position, first));
        value = tir_max(l->pool, value, tir_index(l->pool, variable->low)); /* the branch on the position says so already; */
        let->let.value = tir_min(l->pool, value, tir_index(l->pool, variable->high)); /* the variable's range needs proof */
        tir_stmt *body = tir_stmt_substitute(l->kernel, run->for_.body, 1, &run->for_.var, &let->let.var);
        let->let.body = task_body(l, body, rest);
        first = tir_add(l->pool, first, run->for_.extent);
        if (!run->next) {
            *cursor = let;
            break;
        }
        tir_stmt *branch = tir_stmt_new(l->arena, TIR_IF);
        branch->if_.condition = tir_lt(l->pool, position, first);
        branch->if_.body = let;
        *cursor = branch;
        cursor = &branch->if_.otherwise;
    }
    return result;
}

static void add_phase(lowering *l, const char *name, tir_stmt *body) {
    tir_phase phase = {.name = name, .tasks = list_tasks(l, body)};
    int64_t tasks, before;
    if (tir_is_const(l->pool, phase.tasks, &tasks) && tasks == 1 && l->kernel->phases.count) {
        tir_phase *last = &l->kernel->phases.data[l->kernel->phases.count - 1]; /* neighbours of one task merge */
        if (tir_is_const(l->pool, last->tasks, &before) && before == 1 && !parallel_list(body)) {
            tir_stmt **end = &last->body;
            while (*end) end = &(*end)->next;
            *end = body;
            return;
        }
    }
    int64_t high = tir_range(l->pool, phase.tasks).high;
    phase.task = tir_var(l->pool, "task", TIR_VAR_LOOP, TIR_INDEX, 0, high > 0 ? high - 1 : 0);
    phase.body = task_body(l, body, phase.task);
    lib_vec_push(l->arena, &l->kernel->phases, phase);
}

/* What was written so far becomes a phase; the next statement starts another. */
static void end_phase(lowering *l, int s) {
    add_phase(l, stage_of(l, s)->name, tir_version(l->kernel, l->body));
    l->body = NULL;
    l->cursor = &l->body;
}

static bool empty_domain(lowering *l, int s) {
    tir_stage *stage = stage_of(l, s);
    for (int a = 0; a < stage->space; a++) {
        int64_t n;
        if (tir_is_const(l->pool, stage->axis[a].extent, &n) && n == 0) return true;
    }
    return false;
}

tir_kernel *tir_lower(lib_arena *arena, const tir_region *original, const tir_schedule *schedule,
                      const tir_lower_options *options) {
    tir_region *region = tir_region_copy(arena, original);
    lowering l = {.arena = arena, .region = region, .pool = region->pool, .options = options};
    l.has_fma = !options || !options->machine || options->machine->fma;
    tir_schedule_apply(&l.state, arena, region, schedule, options, false);
    if (options && options->verify) tir_region_verify(arena->scope, region);
    l.kernel = tir_kernel_new(arena, region->pool, region->name);
    for (uint32_t i = 0; i < region->params.count; i++) lib_vec_push(arena, &l.kernel->params, region->params.data[i]);
    l.home = LIB_NEW_ARRAY(arena, uint32_t, region->tensors.count + 1);
    for (uint32_t t = 0; t < region->tensors.count; t++) l.home[t] = UINT32_MAX;
    argument_buffers(&l);
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed) workspace_buffers(&l, (int)s);
    for (uint32_t s = 0; s < region->stages.count; s++) {
        if (region->stages.data[s].removed || l.state.plan[s].at_stage >= 0 || empty_domain(&l, (int)s)) continue;
        l.body = NULL;
        l.cursor = &l.body;
        l.state.line = region->stages.data[s].name;
        nest(&l, (int)s);
        end_phase(&l, (int)s);
    }
    assign_offsets(&l);
    tir_kernel_mark_access(l.kernel); /* loads may have vanished */
    if (options && options->verify) tir_kernel_verify(arena->scope, l.kernel, options->machine);
    return l.kernel;
}
