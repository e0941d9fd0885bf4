/* Statements of lowering: the statement of a stage at one point, in each role of its nest. All guards are placed
 * here: on loads whose address may leave the buffer, on stores to roots and outputs, on updates of reductions. Guards that ranges
 * prove are omitted. */
#include "tir/lower.h"
#include "tir/math.h"

/* ---- statements */

tir_stmt *tir_lower_append(tir_lowering *l, tir_stmt_kind kind) {
    tir_stmt *stmt = tir_stmt_new(l->arena, kind);
    *l->cursor = stmt;
    l->cursor = &stmt->next;
    return stmt;
}

const tir_expr *tir_lower_copy_indices(tir_lowering *l, const tir_expr *index, int rank) {
    return lib_arena_copy(l->arena, index, (size_t)rank * sizeof *index);
}

/* Physical indices of a tensor's element in a buffer of its layout. */
int tir_lower_physical(tir_lowering *l, uint32_t tensor, const tir_expr *logical, tir_expr *out) {
    const tir_layout *layout = &l->region->tensors.data[tensor].layout;
    tir_layout_indices(l->pool, layout, logical, out);
    return tir_layout_physical_rank(layout);
}

/* The same in a buffer that may be part of a pipeline: the copy in use of several. Returns the rank. */
static int place_in(tir_lowering *l, uint32_t buffer, uint32_t tensor, const tir_expr *logical, tir_expr *out) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    tir_expr in_state[DLC_MAX_RANK];
    const uint32_t state = tir_lower_state_place(l, tensor, logical, in_state);
    if (state != tensor) return tir_lower_physical(l, state, in_state, out);
    const int rank = tir_lower_physical(l, tensor, logical, out);
    if (t->stage < 0 || !tir_plan_of(l, t->stage)->stages || tir_plan_of(l, t->stage)->scratch[t->component] != buffer)
        return rank;
    memmove(out + 1, out, (size_t)rank * sizeof *out);
    out[0] = tir_plan_of(l, t->stage)->slot;
    return rank + 1;
}

static bool is_in_memory(const tir_lowering *l, tir_expr load) {
    const tir_scope scope = l->kernel->buffers.data[tir_get(l->pool, load)->bits].scope;
    return scope == TIR_SCOPE_ARG || scope == TIR_SCOPE_WORKSPACE || scope == TIR_SCOPE_LOCAL;
}

/* Turns select(condition, load, constant) into a load that the condition guards; other values stay. */
static tir_expr guarded(tir_lowering *l, tir_expr value) {
    if (tir_op_of(l->pool, value) != TIR_SELECT) return value;
    const tir_expr condition = tir_operand(l->pool, value, 0), load = tir_operand(l->pool, value, 1),
                   other = tir_operand(l->pool, value, 2);
    const tir_node node = *tir_get(l->pool, load);
    tir_expr index[TIR_MAX_PHYSICAL_RANK], guard = condition;
    if (node.op != TIR_LOAD || tir_op_of(l->pool, other) != TIR_CONST) return value;
    const int rank = node.count - (node.guarded ? 2 : 0);
    if (node.guarded && tir_operand(l->pool, load, rank + 1) != other) return value;
    if (node.guarded) guard = tir_and(l->pool, tir_operand(l->pool, load, rank), condition);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(l->pool, load, d);
    return tir_load(l->pool, (uint32_t)node.bits, node.dtype, rank, index, guard, other);
}

static void append_store(tir_lowering *l, uint32_t buffer, uint32_t tensor, const tir_expr *logical, tir_expr value,
                         bool nt) {
    tir_expr index[TIR_MAX_PHYSICAL_RANK + 1];
    tir_stmt *stmt = tir_lower_append(l, TIR_STORE);
    const int stage = l->region->tensors.data[tensor].stage;
    stmt->store.buffer = buffer;
    const bool ahead = stage >= 0 && tir_plan_of(l, stage)->stages > 0;
    if (ahead) value = guarded(l, value);
    stmt->store.async = ahead && tir_op_of(l->pool, value) != TIR_CONST; /* a guard that is never true left its zero */
    if (stmt->store.async && !(tir_is_copy(l->pool, value) && is_in_memory(l, value)))
        tir_schedule_raise(&l->state, "pipeline: %s is no plain copy from memory",
                           l->region->tensors.data[tensor].name);
    stmt->store.rank = place_in(l, buffer, tensor, logical, index);
    stmt->store.index = tir_lower_copy_indices(l, index, stmt->store.rank);
    stmt->store.value = value;
    stmt->store.non_temporal = nt;
    l->kernel->buffers.data[buffer].written = true;
}

/* Opens `if (condition)`; returns the cursor to go back to, or NULL when the condition is true and nothing was opened. */
static tir_stmt **open_if(tir_lowering *l, tir_expr condition, bool clip) {
    if (!condition || tir_is_true(l->pool, condition)) return NULL;
    tir_stmt *stmt = tir_lower_append(l, TIR_IF);
    stmt->if_.condition = condition;
    stmt->if_.clip = clip;
    tir_stmt **after = l->cursor;
    l->cursor = &stmt->if_.body;
    return after;
}

static void close_if(tir_lowering *l, tir_stmt **after) {
    if (after) l->cursor = after;
}

/* ---- conditions */

static bool is_known(const tir_lowering *l, tir_expr term) {
    for (int i = 0; i < l->known_count; i++)
        if (l->known[i] == term) return true;
    return false;
}

static int64_t coefficient_of(const tir_term *terms, int count, tir_expr atom) {
    for (int i = 0; i < count; i++)
        if (terms[i].atom == atom) return terms[i].coefficient;
    return 0;
}

/* How often the linear expression e contains a; 0: not a whole number of times, or a constant does not tell. */
static int64_t times_of(tir_pool *pool, tir_expr e, tir_expr a) {
    enum { TERMS = 16 };
    tir_term of_e[TERMS], of_a[TERMS];
    int64_t constant;
    const int terms = tir_terms(pool, e, of_e, TERMS, &constant), parts = tir_terms(pool, a, of_a, TERMS, &constant);
    if (terms < 1 || parts < 1) return 0;
    const int64_t times = coefficient_of(of_e, terms, of_a[0].atom);
    return times % of_a[0].coefficient ? 0 : times / of_a[0].coefficient;
}

static bool is_less(const tir_lowering *l, tir_expr term) {
    return tir_op_of(l->pool, term) == TIR_LT && tir_dtype_of(l->pool, tir_operand(l->pool, term, 0)) == TIR_INDEX;
}

/* Is the term, e < b, implied by a known condition a < c: does it hold for the greatest a, c - 1, if e grows with a? */
static bool is_implied(const tir_lowering *l, tir_expr term) {
    if (!is_less(l, term)) return false;
    const tir_expr left = tir_operand(l->pool, term, 0), right = tir_operand(l->pool, term, 1);
    for (int i = 0; i < l->known_count; i++) {
        if (!is_less(l, l->known[i])) continue;
        const tir_expr a = tir_operand(l->pool, l->known[i], 0), end = tir_operand(l->pool, l->known[i], 1);
        const int64_t times = times_of(l->pool, left, a);
        if (times <= 0) continue;
        const tir_expr up = tir_sub(l->pool, tir_sub(l->pool, end, tir_index(l->pool, 1)), a);
        const tir_expr most = tir_add(l->pool, left, tir_mul(l->pool, up, tir_index(l->pool, times)));
        if (tir_prove(l->pool, tir_lt(l->pool, most, right)) == TIR_YES) return true;
    }
    return false;
}

tir_expr tir_lower_conjoin(tir_lowering *l, tir_expr all, tir_expr term) {
    if (is_known(l, term) || tir_prove(l->pool, term) == TIR_YES || is_implied(l, term)) return all;
    return all ? tir_and(l->pool, all, term) : term;
}

void tir_lower_learn(tir_lowering *l, tir_expr condition) {
    if (!condition || l->known_count >= TIR_TERM_LIMIT) return;
    l->known_count += tir_conjuncts(l->pool, condition, l->known + l->known_count, TIR_TERM_LIMIT - l->known_count);
}

/* `all` and the conditions of the axis's mask splits (inner: except the outermost split): the current point is in its tile. */
static tir_expr axis_masks(tir_lowering *l, int s, int axis, bool inner, tir_expr all) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (uint32_t n = 0; n < plan->nodes.count; n++) {
        const tir_axis_node *node = &plan->nodes.data[n];
        if (node->axis != axis || node->outer < 0 || node->mode != TIR_TAIL_MASK || (inner && node->parent < 0))
            continue;
        tir_expr value = tir_node_value(&l->state, s, (int)n), extent = tir_node_extent(&l->state, s, (int)n);
        if (value) all = tir_lower_conjoin(l, all, tir_lt(l->pool, value, extent));
    }
    return all;
}

/* `all` and the condition that the current point of the stage is inside its domain (padded: its padded domain), by both bounds. */
static tir_expr in_box(tir_lowering *l, int s, bool padded, tir_expr all) {
    tir_stage *stage = tir_stage_of(l, s);
    const tir_layout *layout = &l->region->tensors.data[stage->tensor[0]].layout;
    for (int a = 0; a < stage->space; a++) {
        tir_expr value = tir_axis_value(&l->state, s, a), end = stage->axis[a].extent;
        if (padded) end = tir_layout_padded(l->pool, layout, a, end);
        all = tir_lower_conjoin(l, all, tir_le(l->pool, tir_index(l->pool, 0), value));
        all = tir_lower_conjoin(l, all, tir_lt(l->pool, value, end));
    }
    return all;
}

static tir_expr in_domain(tir_lowering *l, int s, tir_expr all) {
    return in_box(l, s, false, all);
}

/* ---- expressions: axes become loop values, tensors become buffers */

typedef struct translation {
    tir_lowering *l;
    int stage;
    /* the values of ACC nodes, and from TIR_MAX_STATE on those of OTHER nodes */
    const tir_expr *acc;
} translation;

static bool padded_layout(tir_lowering *l, uint32_t tensor) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    for (int d = 0; d < t->rank; d++)
        if (tir_layout_padded(l->pool, &t->layout, d, t->extent[d]) != t->extent[d]) return true;
    return false;
}

/* `guard` and the condition that the indices `relative` are within the scratch of tensor t. The reader may compute points outside of its
 * domain (padding, masked points) that index outside of the scratch. For data-dependent indices the condition is the reader's domain: scratch
 * then holds the whole dimension, and inside of the domain the load's own guard keeps them in bounds. */
static tir_expr in_scratch(tir_lowering *l, int reader, const tir_tensor *t, const tir_expr *relative, tir_expr guard) {
    const tir_stage_plan *plan = tir_plan_of(l, t->stage);
    const int saved = l->known_count;
    bool depends_on_data = false;
    tir_lower_learn(l, guard);
    for (int d = 0; d < t->rank; d++) {
        if (tir_has_load(l->pool, relative[d], 0)) {
            depends_on_data = true;
            continue;
        }
        const tir_expr end = tir_layout_padded(l->pool, &t->layout, d, plan->scratch_extent[d]);
        guard = tir_lower_conjoin(l, guard, tir_le(l->pool, tir_index(l->pool, 0), relative[d]));
        guard = tir_lower_conjoin(l, guard, tir_lt(l->pool, relative[d], end));
    }
    if (depends_on_data) guard = in_domain(l, reader, guard);
    l->known_count = saved;
    return guard;
}

/* The buffer of a tensor in memory, or open in its root's output. Raises if it is not computed before the reader. */
static uint32_t buffer_in_memory(tir_lowering *l, int reader, uint32_t tensor, bool in_output) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    const uint32_t buffer = in_output ? tir_plan_of(l, t->stage)->scratch[0] : l->home[tensor];
    bool own_state = t->stage >= 0 && tir_stage_of(l, reader)->fold == t->stage;
    const bool beside = tir_plan_of(l, reader)->beside && tir_plan_of(l, reader)->at_stage == t->stage;
    if (buffer == UINT32_MAX || (t->stage >= 0 && !l->done[t->stage] && !own_state && !in_output && !beside))
        lib_raise(
            l->arena->scope, DLC_INVALID_ARGUMENT,
            "schedule of region %s: %s reads %s before that is computed: one of them is attached at the wrong loop",
            l->region->name, tir_stage_of(l, reader)->name, t->name);
    return buffer;
}

static tir_expr translate_load(tir_lowering *l, int reader, const tir_node *node, const tir_expr *logical,
                               tir_expr guard, tir_expr other) {
    uint32_t tensor = (uint32_t)node->bits, buffer;
    const tir_tensor *t = &l->region->tensors.data[tensor];
    tir_expr relative[DLC_MAX_RANK] = {0}, index[TIR_MAX_PHYSICAL_RANK + 1];
    bool open = t->stage >= 0 && tir_plan_of(l, t->stage)->open;
    bool in_output = open && tir_plan_of(l, t->stage)->in_output;
    if (open && !in_output) {
        const tir_stage_plan *plan = tir_plan_of(l, t->stage);
        buffer = plan->scratch[t->component];
        for (int d = 0; d < t->rank; d++) relative[d] = tir_sub(l->pool, logical[d], plan->scratch_low[d]);
        guard = in_scratch(l, reader, t, relative, guard);
        if (guard && !other) other = tir_int(l->pool, node->dtype, 0);
    } else {
        buffer = buffer_in_memory(l, reader, tensor, in_output);
        int saved = l->known_count;
        tir_lower_learn(l, guard);
        for (int d = 0; d < t->rank; d++) {
            relative[d] = logical[d];
            tir_expr padded = tir_layout_padded(l->pool, &t->layout, d, t->extent[d]);
            tir_expr before = guard;
            guard = tir_lower_conjoin(l, guard, tir_le(l->pool, tir_index(l->pool, 0), logical[d]));
            guard = tir_lower_conjoin(l, guard, tir_lt(l->pool, logical[d], padded));
            if (guard != before && !other) other = tir_int(l->pool, node->dtype, 0);
        }
        l->known_count = saved;
    }
    int rank = place_in(l, buffer, tensor, relative, index);
    l->kernel->buffers.data[buffer].read = true;
    return tir_load(l->pool, buffer, node->dtype, rank, index, guard && tir_is_true(l->pool, guard) ? 0 : guard, other);
}

static tir_expr translate_node(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    translation *t = user;
    tir_lowering *l = t->l;
    const tir_node node = *tir_get(pool, rebuilt);
    switch (node.op) {
    case TIR_VAR: {
        const tir_stage *stage = tir_stage_of(l, t->stage);
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (stage->axis[a].var == e) return tir_axis_value(&l->state, t->stage, a);
        return rebuilt;
    }
    case TIR_PICK: return tir_pick_by_selects(pool, rebuilt);
    case TIR_ACC: return t->acc[node.bits];
    case TIR_OTHER: return t->acc[TIR_MAX_STATE + node.bits];
    case TIR_LOAD: {
        tir_expr logical[DLC_MAX_RANK], guard = 0, other = 0;
        const tir_node *given = tir_get(pool, e); /* else folded to an operand, already translated: 0 + acc */
        if (given->op != TIR_LOAD || given->bits != node.bits) return rebuilt;
        int rank = node.count - (node.guarded ? 2 : 0);
        for (int d = 0; d < rank; d++) logical[d] = tir_operand(pool, rebuilt, d);
        if (node.guarded) {
            guard = tir_operand(pool, rebuilt, rank);
            other = tir_operand(pool, rebuilt, rank + 1);
        }
        return translate_load(l, t->stage, &node, logical, guard, other);
    }
    default: return rebuilt;
    }
}

tir_expr tir_lower_translate(tir_lowering *l, int s, tir_expr e, const tir_expr *acc) {
    translation t = {l, s, acc};
    return tir_rewrite(l->pool, e, translate_node, &t);
}

/* ---- loaded values in bounds of loops */

tir_expr tir_lower_with_scalars(tir_lowering *l, int s, tir_expr term) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    int axes = 0;
    if (!l->scalars.count || !tir_has_load(l->pool, term, 0)) return term;
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        const tir_expr value = tir_uses(l->pool, term, stage->axis[a].var) ? tir_axis_value(&l->state, s, a) : 0;
        if (!value) continue;
        from[axes] = stage->axis[a].var;
        to[axes++] = value;
    }
    term = tir_substitute(l->pool, term, axes, from, to);
    for (uint32_t i = 0; i < l->scalars.count; i++)
        term = tir_substitute(l->pool, term, 1, &l->scalars.data[i].value, &l->scalars.data[i].var);
    return term;
}

typedef struct home_search {
    const tir_lowering *l;
    bool missing;
} home_search;

static tir_expr find_home(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    home_search *search = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD) return rebuilt;
    const tir_tensor *t = &search->l->region->tensors.data[node->bits];
    if (search->l->home[node->bits] == UINT32_MAX || (t->stage >= 0 && !search->l->done[t->stage]))
        search->missing = true;
    return rebuilt;
}

tir_expr tir_lower_scalar(void *lowering, int s, tir_expr value) {
    tir_lowering *l = lowering;
    for (uint32_t i = 0; i < l->scalars.count; i++)
        if (l->scalars.data[i].value == value) return l->scalars.data[i].var;
    home_search search = {l, false};
    tir_rewrite(l->pool, value, find_home, &search);
    if (search.missing || (l->vector && tir_uses(l->pool, value, l->lane))) return 0;
    const tir_expr var = tir_lower_name(l, "end", tir_lower_translate(l, s, value, NULL));
    lib_vec_push(l->arena, &l->scalars, ((tir_scalar){value, var}));
    return var;
}

static tir_expr legal(tir_lowering *l, tir_expr e) {
    return tir_legalize(l->pool, e, l->has_fma, l->scales, l->region->excess_precision);
}

tir_expr tir_lower_value(tir_lowering *l, int s, tir_expr e) {
    return legal(l, tir_lower_translate(l, s, e, NULL));
}

/* ---- statements of a stage at a point */

/* Logical indices of the current point in the stage's scratch (relative) or home buffer. */
static void point_indices(tir_lowering *l, int s, bool scratch, tir_expr *index) {
    for (int a = 0; a < tir_stage_of(l, s)->space; a++) {
        index[a] = tir_axis_value(&l->state, s, a);
        if (scratch) index[a] = tir_sub(l->pool, index[a], tir_plan_of(l, s)->scratch_low[a]);
    }
}

static uint32_t target_buffer(tir_lowering *l, int s, int component, bool scratch) {
    return scratch ? tir_plan_of(l, s)->scratch[component] : l->home[tir_stage_of(l, s)->tensor[component]];
}

/* Opens a let; the next statements are in its scope. Returns the variable. */
static tir_expr append_let(tir_lowering *l, const char *name, tir_expr value) {
    tir_stmt *let = tir_lower_append(l, TIR_LET);
    let->let.value = value;
    let->let.var =
        tir_var(l->pool, name, TIR_VAR_LET, tir_dtype_of(l->pool, value), TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH);
    l->cursor = &let->let.body;
    return let->let.var;
}

tir_expr tir_lower_name(tir_lowering *l, const char *name, tir_expr value) {
    tir_stmt *let = tir_lower_append(l, TIR_LET);
    let->let.value = value;
    let->let.var = tir_let_variable(l->pool, name, value);
    l->cursor = &let->let.body;
    return let->let.var;
}

/* Loop IR is a tree when printed and traversed: shared value expressions are let-bound, innermost first, so that no
 * traversal of a kernel is exponential in the sharing. */
typedef struct sharing {
    tir_lowering *l;
    /* operands first */
    lib_vec(tir_expr) nodes;
    /* by node id; ids below `limit` */
    uint32_t *uses;
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

/* Opens lets for shared subexpressions of the values; `values` are rewritten. */
static void name_shared(tir_lowering *l, tir_expr *values, int count) {
    sharing s = {.l = l, .limit = l->pool->nodes.count};
    s.uses = LIB_NEW_ARRAY(l->arena, uint32_t, s.limit);
    s.seen = LIB_NEW_ARRAY(l->arena, bool, s.limit);
    for (int c = 0; c < count; c++) tir_rewrite(l->pool, values[c], count_uses, &s);
    tir_expr *from = LIB_NEW_ARRAY(l->arena, tir_expr, s.nodes.count + 1),
             *to = LIB_NEW_ARRAY(l->arena, tir_expr, s.nodes.count + 1);
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
static void store_all(tir_lowering *l, int s, const tir_expr *index, bool scratch, const tir_expr *values) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stmt **before = l->cursor;
    tir_expr stored[TIR_MAX_STATE];
    memcpy(stored, values, sizeof stored);
    name_shared(l, stored, stage->count);
    for (int c = 0; c < stage->count && stage->count > 1; c++)
        stored[c] = append_let(l, l->region->tensors.data[stage->tensor[c]].name, stored[c]);
    for (int c = 0; c < stage->count; c++)
        append_store(l, target_buffer(l, s, c, scratch), stage->tensor[c], index, stored[c],
                     tir_plan_of(l, s)->non_temporal);
    if (*before) l->cursor = &(*before)->next; /* after the statement opened here */
}

void tir_lower_store_zero(tir_lowering *l, int s, int component, const tir_expr *index) {
    const uint32_t tensor = tir_stage_of(l, s)->tensor[component];
    const tir_dtype dtype = (tir_dtype)l->region->tensors.data[tensor].dtype;
    append_store(l, target_buffer(l, s, component, false), tensor, index, tir_int(l->pool, dtype, 0), false);
}

static void load_state(tir_lowering *l, int s, const tir_expr *index, bool scratch, tir_expr *acc) {
    tir_stage *stage = tir_stage_of(l, s);
    for (int c = 0; c < stage->count; c++) {
        uint32_t buffer = target_buffer(l, s, c, scratch), tensor = stage->tensor[c];
        tir_expr at[TIR_MAX_PHYSICAL_RANK + 1];
        int rank = place_in(l, buffer, tensor, index, at);
        l->kernel->buffers.data[buffer].read = true;
        acc[c] = tir_load(l->pool, buffer, (tir_dtype)l->region->tensors.data[tensor].dtype, rank, at, 0, 0);
    }
}

void tir_lower_load_state(tir_lowering *l, int s, bool scratch, tir_expr *acc) {
    tir_expr index[DLC_MAX_RANK];
    point_indices(l, s, scratch, index);
    load_state(l, s, index, scratch, acc);
}

/* Condition for storing the current point of a step that is stored in its fold's state: the state has exactly its own elements, in memory and
 * in scratch, and the last tile of the step may have more. A collective statement has no condition; its layout has room for whole tiles. */
static tir_expr state_guard(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    const tir_unit *unit = tir_plan_of(l, s)->unit;
    const bool memory = !tir_plan_of(l, stage->fold)->open, collective = unit && tir_unit_is_collective(unit);
    tir_expr guard = 0, index[DLC_MAX_RANK];
    for (int a = 0; a < stage->space; a++) guard = axis_masks(l, s, a, collective || !memory, guard);
    if (memory) return in_box(l, s, false, guard);
    if (collective) return guard;
    point_indices(l, s, true, index);
    return in_scratch(l, s, &l->region->tensors.data[stage->tensor[0]], index, guard);
}

/* Guard of a store of the current point. Scratch: only the conditions of inner mask splits. Memory: those of all mask splits and, for an
 * attached output, whose region may extend beyond its (padded) domain, the bounds of that domain; a root's tiles cover it exactly. */
tir_expr tir_lower_store_guard(tir_lowering *l, int s, bool scratch, bool padded) {
    tir_expr guard = 0;
    if (tir_plan_of(l, s)->in_state) return state_guard(l, s);
    scratch = scratch && !tir_plan_of(l, s)->in_output;
    for (int a = 0; a < tir_stage_of(l, s)->space; a++) guard = axis_masks(l, s, a, scratch, guard);
    if (scratch) return guard;
    return tir_plan_of(l, s)->at_stage < 0 ? guard : in_box(l, s, padded, guard);
}

/* Adds to the known conditions that each axis of a root is in its range: its store guard implies that, but for fused axes ranges alone
 * cannot prove it. */
static void learn_ranges(tir_lowering *l, int s) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (int a = 0; a < tir_stage_of(l, s)->space && plan->at_stage < 0; a++) {
        tir_expr value = tir_axis_value(&l->state, s, a);
        tir_lower_learn(l, tir_lt(l->pool, value, plan->extent[a]));
    }
}

static void statement_init(tir_lowering *l, int s, bool scratch) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE];
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    tir_stmt **after = open_if(l, tir_lower_store_guard(l, s, scratch, padded), false);
    point_indices(l, s, scratch, index);
    tir_expr valid = padded ? in_domain(l, s, 0) : 0; /* padding is zero, whatever the identity */
    for (int c = 0; c < stage->count; c++) {
        values[c] = legal(l, tir_lower_translate(l, s, stage->initial[c], NULL));
        if (valid)
            values[c] = tir_select(l->pool, valid, values[c], tir_int(l->pool, tir_dtype_of(l->pool, values[c]), 0));
    }
    store_all(l, s, index, scratch, values);
    close_if(l, after);
}

static void statement_map(tir_lowering *l, int s, bool scratch) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE];
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    int saved = l->known_count;
    tir_expr guard = tir_lower_store_guard(l, s, scratch, padded);
    tir_stmt **after = open_if(l, guard, false);
    tir_lower_learn(l, guard);
    learn_ranges(l, s);
    point_indices(l, s, scratch, index);
    tir_expr valid = padded ? in_domain(l, s, 0) : 0;
    int inner = l->known_count;
    for (int c = 0; c < stage->count; c++) {
        values[c] = tir_lower_zeroed(l, s, legal(l, tir_lower_translate(l, s, stage->value[c], NULL)));
        if (valid)
            values[c] = tir_select(l->pool, valid, values[c], tir_int(l->pool, tir_dtype_of(l->pool, values[c]), 0));
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

/* The condition that an update is at a point to store and in the domain; adds it to the known conditions. */
static tir_expr update_guard(tir_lowering *l, int s, bool scratch) {
    tir_stage *stage = tir_stage_of(l, s);
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    tir_expr guard = stage->kind == TIR_SCATTER ? 0 : tir_lower_store_guard(l, s, scratch, padded);
    for (int a = 0; a < stage->space && stage->kind == TIR_SCATTER; a++) guard = axis_masks(l, s, a, false, guard);
    tir_lower_learn(l, guard);
    if (stage->kind == TIR_REDUCE) learn_ranges(l, s);
    for (int a = stage->space; a < stage->space + stage->reduce; a++) guard = axis_masks(l, s, a, false, guard);
    if (padded && stage->kind == TIR_REDUCE) guard = in_domain(l, s, guard);
    tir_lower_learn(l, guard);
    return guard;
}

/* index: of the element that a scatter updates. Returns `guard` and the condition that it is among those stored. */
static tir_expr scatter_indices(tir_lowering *l, int s, bool scratch, tir_expr *index, tir_expr guard) {
    tir_stage *stage = tir_stage_of(l, s);
    for (int d = 0; d < stage->space; d++) {
        index[d] = tir_lower_translate(l, s, stage->index[d], NULL);
        if (scratch)
            index[d] = tir_sub(l->pool, index[d], tir_plan_of(l, s)->scratch_low[d]); /* updates outside are skipped */
        tir_expr end = scratch ? tir_axis_span(&l->state, s, d) : stage->axis[d].extent;
        guard = tir_lower_conjoin(l, guard, tir_le(l->pool, tir_index(l->pool, 0), index[d]));
        guard = tir_lower_conjoin(l, guard, tir_lt(l->pool, index[d], end));
        if (scratch && tir_is_number(l->pool, end, 1))
            index[d] = tir_index(l->pool, 0); /* implied by the guard, and required by registers */
    }
    return guard;
}

/* update of a reduction (index: the point) or a scatter (index: data-dependent) */
static void statement_update(tir_lowering *l, int s, bool scratch) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], acc[TIR_MAX_STATE], values[TIR_MAX_STATE];
    int saved = l->known_count;
    tir_expr guard = update_guard(l, s, scratch);
    tir_stmt **within = NULL;
    const tir_expr predicate = stage->predicate ? tir_lower_with_scalars(l, s, stage->predicate) : 0;
    if (stage->kind == TIR_SCATTER ||
        tir_has_load(l->pool, predicate, 0)) { /* the deciding data are loaded inside the tile only */
        within = open_if(l, guard, false);
        guard = 0;
    }
    if (predicate) {
        tir_expr terms[TIR_TERM_LIMIT];
        int count = tir_conjuncts(l->pool, tir_lower_translate(l, s, predicate, NULL), terms, TIR_TERM_LIMIT);
        for (int i = 0; i < count; i++) guard = tir_lower_conjoin(l, guard, terms[i]);
        tir_lower_learn(l, guard);
    }
    if (stage->kind == TIR_SCATTER)
        guard = scatter_indices(l, s, scratch, index, guard);
    else
        point_indices(l, s, scratch, index);
    tir_stmt **after = open_if(l, guard, has_clip(tir_plan_of(l, s)));
    tir_lower_learn(l, guard);
    if (tir_lower_is_single_step(l, s))
        for (int c = 0; c < stage->count; c++) acc[c] = tir_lower_translate(l, s, stage->initial[c], NULL);
    else
        load_state(l, s, index, scratch, acc);
    for (int c = 0; c < stage->count; c++) values[c] = legal(l, tir_lower_translate(l, s, stage->value[c], acc));
    store_all(l, s, index, scratch, values);
    l->known_count = saved;
    close_if(l, after);
    close_if(l, within);
}

/* Is the operand zero at steps of the unit beyond the end of the reduction? It is if it loads a tensor in memory whose layout pads the
 * unit's axis to a multiple of the unit's width. */
static bool ends_in_zeros(tir_lowering *l, int s, tir_expr operand) {
    const tir_stage *stage = tir_stage_of(l, s);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    tir_expr axis = stage->axis[plan->nodes.data[plan->unit_node].axis].var;
    const tir_node *node = tir_get(l->pool, operand);
    if (node->op != TIR_LOAD || node->guarded) return false;
    const tir_tensor *tensor = &l->region->tensors.data[node->bits];
    if (tensor->stage >= 0 && tir_plan_of(l, tensor->stage)->open) return false; /* scratch has no padding */
    for (int d = 0; d < tensor->rank; d++)
        if (tir_operand(l->pool, operand, d) == axis)
            return tir_layout_padded_size(&tensor->layout, d, 1) % tir_unit_width(plan->unit) == 0;
    return false;
}

/* The condition that step i of the unit is inside the reduction's axes; 0: it always is. `zeros`: both operands are zero beyond the end of
 * the unit's axis, so that this axis needs no condition. */
static tir_expr unit_step_inside(tir_lowering *l, int s, int i, bool zeros) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    tir_axis_node *node = &plan->nodes.data[plan->unit_node];
    int saved = l->known_count;
    tir_expr inside = 0;
    node->value = tir_index(l->pool, i);
    if (zeros) {
        tir_expr value = tir_axis_value(&l->state, s, node->axis);
        tir_lower_learn(l, tir_lt(l->pool, value, stage->axis[node->axis].extent));
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++) inside = axis_masks(l, s, a, false, inside);
    l->known_count = saved;
    return inside;
}

/* Has the term of the predicate one value for all steps of the unit, and no loads but those that scalars in scope hold? */
static bool is_of_all_steps(tir_lowering *l, int s, tir_expr term) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    int axis = plan->nodes.data[plan->unit_node].axis;
    return !tir_uses(l->pool, term, tir_stage_of(l, s)->axis[axis].var) &&
           !tir_has_load(l->pool, tir_lower_with_scalars(l, s, term), 0);
}

/* The unit's expression: acc and, for each step, both operands, which a select makes zero outside of the reduction's domain. */
static tir_expr unit_value(tir_lowering *l, int s, tir_expr acc, bool zeros) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    tir_expr operands[2 * 4 + 1] = {acc}, sides[2], terms[TIR_TERM_LIMIT];
    int count = 1, found = tir_conjuncts(l->pool, stage->predicate, terms, TIR_TERM_LIMIT);
    tir_unit_match(plan->unit, l->pool, stage, &sides[0], &sides[1]);
    for (int i = 0; i < tir_unit_width(plan->unit); i++) {
        tir_expr inside = unit_step_inside(l, s, i, zeros);
        for (int t = 0; t < found; t++)
            if (!is_of_all_steps(l, s, terms[t]))
                inside = tir_lower_conjoin(l, inside,
                                           tir_lower_translate(l, s, tir_lower_with_scalars(l, s, terms[t]), NULL));
        for (int side = 0; side < 2; side++) {
            tir_expr value = legal(l, tir_lower_translate(l, s, sides[side], NULL));
            value = tir_cast(l->pool, plan->unit->place[1 + side].dtype, value);
            if (inside) value = tir_select(l->pool, inside, value, tir_int(l->pool, tir_dtype_of(l->pool, value), 0));
            operands[count++] = value;
        }
    }
    plan->nodes.data[plan->unit_node].value = 0;
    return tir_make(l->pool, plan->unit->op, plan->unit->place[0].dtype, count, operands);
}

static void store_unit(tir_lowering *l, int s, bool scratch, bool zeros) {
    tir_expr index[DLC_MAX_RANK], acc[TIR_MAX_STATE];
    point_indices(l, s, scratch, index);
    load_state(l, s, index, scratch, acc);
    store_all(l, s, index, scratch, (tir_expr[TIR_MAX_STATE]){unit_value(l, s, acc[0], zeros)});
}

/* Stores the unit's result. If the reduction may end within the unit's steps: in two versions, without masks if it does not, else with. */
static void choose_unit_version(tir_lowering *l, int s, bool scratch, bool zeros) {
    int width = tir_unit_width(tir_plan_of(l, s)->unit);
    tir_expr whole = unit_step_inside(l, s, width - 1, zeros);
    if (!whole || tir_is_true(l->pool, whole)) {
        store_unit(l, s, scratch, zeros);
        return;
    }
    tir_stmt *choice = tir_lower_append(l, TIR_IF);
    tir_stmt **behind = l->cursor;
    int known = l->known_count;
    choice->if_.condition = whole;
    choice->if_.clip = true;
    for (int i = 0; i < width; i++) tir_lower_learn(l, unit_step_inside(l, s, i, zeros));
    l->cursor = &choice->if_.body;
    store_unit(l, s, scratch, zeros);
    l->known_count = known;
    l->cursor = &choice->if_.otherwise;
    store_unit(l, s, scratch, zeros);
    l->cursor = behind;
}

static void statement_unit(tir_lowering *l, int s, bool scratch) {
    const tir_stage *stage = tir_stage_of(l, s);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    int saved = l->known_count;
    bool padded = !scratch && padded_layout(l, stage->tensor[0]);
    tir_expr guard = tir_lower_store_guard(l, s, scratch, padded), sides[2], terms[TIR_TERM_LIMIT];
    if (padded) guard = in_domain(l, s, guard);
    tir_lower_learn(l, guard);
    learn_ranges(l, s);
    int found = tir_conjuncts(l->pool, stage->predicate, terms, TIR_TERM_LIMIT);
    for (int t = 0; t < found; t++)
        if (is_of_all_steps(l, s, terms[t]))
            guard =
                tir_lower_conjoin(l, guard, tir_lower_translate(l, s, tir_lower_with_scalars(l, s, terms[t]), NULL));
    tir_lower_learn(l, guard);
    tir_unit_match(plan->unit, l->pool, stage, &sides[0], &sides[1]);
    bool zeros = ends_in_zeros(l, s, sides[0]) && ends_in_zeros(l, s, sides[1]);
    tir_stmt **after = open_if(l, guard, has_clip(plan));
    choose_unit_version(l, s, scratch, zeros);
    tir_plan_of(l, s)->nodes.data[plan->unit_node].value = 0;
    l->known_count = saved;
    close_if(l, after);
}

/* Merges the partial result into the result, at the current point of the stage's scratch. */
static void statement_merge(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE], acc[2 * TIR_MAX_STATE];
    tir_stmt **after = open_if(l, tir_lower_store_guard(l, s, true, false), false);
    point_indices(l, s, true, index);
    load_state(l, s, index, true, acc);
    tir_lower_exchange_parts(l, s);
    load_state(l, s, index, true, acc + TIR_MAX_STATE);
    tir_lower_exchange_parts(l, s);
    for (int c = 0; c < stage->count; c++) values[c] = legal(l, tir_lower_translate(l, s, stage->merge[c], acc));
    store_all(l, s, index, true, values);
    close_if(l, after);
}

/* Copies the current point of an attached stage from its scratch to its buffers in memory. */
static void statement_copy(tir_lowering *l, int s) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_expr index[DLC_MAX_RANK], acc[TIR_MAX_STATE];
    bool padded = padded_layout(l, stage->tensor[0]);
    tir_stmt **after = open_if(l, tir_lower_store_guard(l, s, false, padded), false);
    point_indices(l, s, true, index);
    load_state(l, s, index, true, acc);
    tir_expr valid = padded ? in_domain(l, s, 0) : 0;
    point_indices(l, s, false, index);
    for (int c = 0; c < stage->count; c++) {
        uint32_t tensor = stage->tensor[c];
        if (l->home[tensor] == UINT32_MAX) continue;
        if (valid) acc[c] = tir_select(l->pool, valid, acc[c], tir_int(l->pool, tir_dtype_of(l->pool, acc[c]), 0));
        append_store(l, l->home[tensor], tensor, index, acc[c], tir_plan_of(l, s)->non_temporal);
    }
    close_if(l, after);
}

/* ---- folds: state components have the free axes first and then axes of their own, which get loops here */

static tir_stmt *own_loop(tir_lowering *l, const char *name, tir_expr extent) {
    tir_stmt *loop = tir_lower_append(l, TIR_FOR);
    loop->for_.lower = tir_index(l->pool, 0);
    loop->for_.var = tir_loop_variable(l->pool, name, loop->for_.lower, extent);
    loop->for_.extent = extent;
    l->cursor = &loop->for_.body;
    return loop;
}

static void walk_own_axes(tir_lowering *l, int s, const tir_tensor *tensor, tir_expr *index) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    for (int d = tir_stage_of(l, s)->space; d < tensor->rank; d++) {
        int64_t trips;
        const bool constant = tir_is_const(l->pool, tensor->extent[d], &trips);
        tir_stmt *loop = own_loop(l, "s", tensor->extent[d]);
        if (constant && d + 1 == tensor->rank && !l->vector)
            loop->for_.loop = TIR_VEC; /* a copy: its points are independent */
        else if (constant && plan->scope == TIR_SCOPE_REG && plan->has_scope)
            loop->for_.loop = TIR_UNROLL;
        index[d] = loop->for_.var;
    }
}

/* Distributes the last axis over neighbouring threads; returns the condition of being a point; 0: all are. */
static tir_expr share_own_axes(tir_lowering *l, int s, const tir_tensor *tensor, tir_expr *index) {
    const int64_t threads = tir_plan_of(l, s)->own_threads;
    int64_t points = 1;
    if (l->vector)
        tir_schedule_raise(&l->state, "threads of the state of %s run inside vec loop %s", tir_stage_of(l, s)->name,
                           l->vector);
    for (int d = tir_stage_of(l, s)->space; d < tensor->rank; d++) {
        int64_t extent = 1;
        tir_is_const(l->pool, tensor->extent[d], &extent);
        points *= extent;
    }
    tir_expr point = tir_index(l->pool, 0);
    if (points > threads) {
        const tir_stmt *turn = own_loop(l, "turn", tir_index(l->pool, (points + threads - 1) / threads));
        point = tir_mul(l->pool, turn->for_.var, tir_index(l->pool, threads));
    }
    tir_stmt *lane = own_loop(l, "lane", tir_index(l->pool, points < threads ? points : threads));
    lane->for_.loop = TIR_THREAD;
    point = tir_add(l->pool, point, lane->for_.var);
    tir_expr rest = point;
    for (int d = tensor->rank - 1; d > tir_stage_of(l, s)->space; d--) {
        index[d] = tir_rem(l->pool, rest, tensor->extent[d]);
        rest = tir_div(l->pool, rest, tensor->extent[d]);
    }
    index[tir_stage_of(l, s)->space] = rest;
    return points > threads && points % threads ? tir_lt(l->pool, point, tir_index(l->pool, points)) : 0;
}

static void statement_fold(tir_lowering *l, int s, bool init) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *tensor = &l->region->tensors.data[stage->tensor[c]];
        tir_expr index[DLC_MAX_RANK], value, inside = 0;
        if (tir_lower_state_step(l, s, c) >= 0) continue; /* the step has stored it in the state */
        tir_expr guard = tir_lower_store_guard(l, s, plan->open, false);
        if (!init) guard = axis_masks(l, s, stage->space, false, guard);
        point_indices(l, s, plan->open, index);
        tir_stmt **around = l->cursor;
        if (plan->own_threads && tensor->rank > stage->space)
            inside = share_own_axes(l, s, tensor, index);
        else
            walk_own_axes(l, s, tensor, index);
        tir_stmt **outside = l->cursor == around ? NULL : &(*around)->next;
        tir_stmt **after = open_if(l, guard, false), **last = open_if(l, inside, false);
        if (init) {
            value = tir_lower_translate(l, s, stage->initial[c], NULL);
        } else { /* next[c] is a load of a step tensor; its trailing indices are this component's own axes */
            tir_node node = *tir_get(l->pool, stage->value[c]);
            tir_expr at[DLC_MAX_RANK];
            int free = node.count - (tensor->rank - stage->space);
            for (int d = 0; d < node.count; d++)
                at[d] = d < free ? tir_lower_translate(l, s, tir_operand(l->pool, stage->value[c], d), NULL)
                                 : index[stage->space + d - free];
            value = translate_load(l, s, &node, at, 0, 0);
        }
        append_store(l, target_buffer(l, s, c, plan->open), stage->tensor[c], index, legal(l, value), false);
        close_if(l, last);
        close_if(l, after);
        if (outside) l->cursor = outside;
    }
}

/* Initial value of a component of a fold's state, at the point of the step that is stored in it. */
static void statement_state(tir_lowering *l, int s) {
    tir_expr index[DLC_MAX_RANK], values[TIR_MAX_STATE] = {0};
    values[0] = legal(l, tir_lower_translate(l, s, tir_lower_state_initial(l, s), NULL));
    tir_stmt **after = open_if(l, tir_lower_store_guard(l, s, true, false), false);
    point_indices(l, s, true, index);
    store_all(l, s, index, true, values);
    close_if(l, after);
}

static void statement_sort(tir_lowering *l, int s) {
    tir_expr guard = 0;
    for (int a = 0; a + 1 < tir_stage_of(l, s)->space; a++) guard = axis_masks(l, s, a, false, guard);
    tir_stmt **after = open_if(l, guard, false);
    tir_lower_learn(l, guard);
    tir_lower_sort(l, s);
    close_if(l, after);
}

void tir_lower_statement(tir_lowering *l, int s, tir_nest_role role) {
    bool scratch = tir_plan_of(l, s)->open;
    tir_stage_kind kind = tir_stage_of(l, s)->kind;
    if (kind == TIR_SORT)
        statement_sort(l, s);
    else if (kind == TIR_FOLD)
        statement_fold(l, s, role == TIR_ROLE_INIT);
    else if (role == TIR_ROLE_STATE)
        statement_state(l, s);
    else if (role == TIR_ROLE_MERGE)
        statement_merge(l, s);
    else if (role == TIR_ROLE_COPY)
        statement_copy(l, s);
    else if (role == TIR_ROLE_INIT)
        statement_init(l, s, scratch);
    else if (tir_plan_of(l, s)->unit && tir_unit_is_collective(tir_plan_of(l, s)->unit))
        tir_lower_collective(l, s);
    else if (tir_plan_of(l, s)->unit)
        statement_unit(l, s, scratch);
    else if (kind == TIR_MAP)
        statement_map(l, s, scratch);
    else
        statement_update(l, s, scratch);
}
