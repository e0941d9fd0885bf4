/* where S : gives a reduction a predicate. If a condition on its axes makes the summand neutral (a select of 0 in a sum, of the
 * lowest value in a maximum, a factor 0 in a sum of products), the points where it holds can be skipped: once loops are clipped to the
 * other points, they are neither computed nor read. Examples: causal attention, triangular sums. The condition may compare
 * positions with a loaded value that is the same for all points of the reduction (the number of tokens in a cache, the length of a padded
 * sequence); it then becomes a comparison of indices (condition.c). */
#include "tir/schedule_internal.h"

enum { MAX_CONDITIONS = 8, MAX_DEPTH = 4 };

typedef struct where {
    tir_region *region;
    tir_pool *pool;
    const tir_stage *stage;
    /* conditions of selects, and the terms of their conjunctions, disjunctions and complements */
    tir_expr condition[MAX_CONDITIONS];
    int count;
    /* a condition, assumed to be `value` */
    tir_expr assumed;
    bool value;
    /* some load of a map was replaced */
    bool expanded;
} where;

/* For tir_rewrite: inlines maps that the reduction reads. */
static tir_expr inline_map(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    where *w = user;
    (void)e;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD || node.guarded) return rebuilt;
    int s = w->region->tensors.data[node.bits].stage;
    const tir_stage *map = s < 0 ? NULL : &w->region->stages.data[s];
    if (!map || map->kind != TIR_MAP || map->count != 1) return rebuilt;
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < map->space; a++) {
        from[a] = map->axis[a].var;
        to[a] = tir_operand(pool, rebuilt, a);
    }
    w->expanded = true;
    return tir_substitute(pool, map->value[0], map->space, from, to);
}

typedef struct load_search {
    const where *w;
    /* contains something that no loop bound may contain: an accumulated value, one computed in the region, or one that varies over the
     * points of the reduction */
    bool varies;
    bool loads;
} load_search;

static bool uses_reduction(const where *w, tir_expr e) {
    for (int a = w->stage->space; a < w->stage->space + w->stage->reduce; a++)
        if (tir_uses(w->pool, e, w->stage->axis[a].var)) return true;
    return false;
}

static tir_expr find_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_search *search = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op == TIR_ACC) search->varies = true;
    if (node->op != TIR_LOAD) return rebuilt;
    search->loads = true;
    search->varies =
        search->varies || search->w->region->tensors.data[node->bits].stage >= 0 || uses_reduction(search->w, e);
    return rebuilt;
}

/* Can the condition be a predicate? Each of its terms depends on positions alone, or compares them, as indices, with loads from inputs that
 * are the same for all points of the reduction. */
static bool is_usable(const where *w, tir_expr condition) {
    enum { TERMS = 2 * MAX_CONDITIONS };
    tir_expr terms[TERMS];
    const int count = tir_conjuncts(w->pool, condition, terms, TERMS);
    for (int i = 0; i < count; i++) {
        load_search search = {w, false, false};
        tir_rewrite(w->pool, terms[i], find_load, &search);
        const tir_op op = tir_op_of(w->pool, terms[i]);
        const bool compares =
            (op == TIR_LT || op == TIR_LE) && tir_dtype_of(w->pool, tir_operand(w->pool, terms[i], 0)) == TIR_INDEX;
        if (search.varies || (search.loads && !compares)) return false;
    }
    return count < TERMS;
}

static void add_condition(where *w, tir_expr condition) {
    for (int i = 0; i < w->count; i++)
        if (w->condition[i] == condition) return;
    if (w->count < MAX_CONDITIONS) w->condition[w->count++] = condition;
}

/* Collects conditions of selects, then their terms. */
static tir_expr collect(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    where *w = user;
    if (tir_op_of(pool, e) == TIR_SELECT) add_condition(w, tir_operand(pool, e, 0));
    return rebuilt;
}

static void collect_conditions(where *w, tir_expr value) {
    w->count = 0;
    tir_rewrite(w->pool, value, collect, w);
    for (int i = 0; i < w->count; i++) {
        const tir_node node = *tir_get(w->pool, w->condition[i]);
        if (node.op != TIR_AND && node.op != TIR_OR && node.op != TIR_NOT) continue;
        for (int k = 0; k < node.count; k++) add_condition(w, tir_operand(w->pool, w->condition[i], k));
    }
}

static tir_expr assume(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const where *w = user;
    return e == w->assumed || rebuilt == w->assumed ? tir_bool(pool, w->value) : rebuilt;
}

static bool is_zero(tir_pool *pool, tir_expr e) {
    return e == tir_int(pool, tir_dtype_of(pool, e), 0);
}

/* Whether the update leaves the state unchanged. */
static bool is_neutral(const where *w, tir_expr update) {
    tir_pool *pool = w->pool;
    tir_dtype dtype = tir_dtype_of(pool, w->stage->value[0]);
    tir_expr acc = tir_acc(pool, dtype, 0);
    if (update == acc) return true;
    tir_op op = tir_op_of(pool, update);
    if (op == TIR_MULADD && tir_operand(pool, update, 2) == acc) { /* for floats 0 * inf would be NaN, not neutral */
        bool zero = is_zero(pool, tir_operand(pool, update, 0)) || is_zero(pool, tir_operand(pool, update, 1));
        return zero && (w->region->excess_precision || !lib_dtype_is_float((dlc_dtype)dtype));
    }
    if (op != TIR_ADD && op != TIR_MAX && op != TIR_MIN) return false;
    tir_expr a = tir_operand(pool, update, 0), b = tir_operand(pool, update, 1), lift = a == acc ? b : a;
    return (a == acc || b == acc) && lift == w->stage->initial[0] && (op != TIR_ADD || is_zero(pool, lift));
}

static bool holds_all(const tir_pool *pool, tir_expr predicate, tir_expr condition) {
    enum { TERMS = 4 * MAX_CONDITIONS };
    tir_expr terms[TERMS], wanted[TERMS];
    const int count = predicate ? tir_conjuncts(pool, predicate, terms, TERMS) : 0;
    const int needed = tir_conjuncts(pool, condition, wanted, TERMS);
    for (int k = 0; k < needed; k++) {
        int i = 0;
        while (i < count && terms[i] != wanted[k]) i++;
        if (i == count) return false;
    }
    return true;
}

/* Conditions that exclude neutral points, each with the value that it has at the remaining points; `predicate`: all of them have theirs. */
typedef struct choices {
    tir_expr condition[2 * MAX_CONDITIONS], predicate;
    bool value[2 * MAX_CONDITIONS];
    int count;
} choices;

static void find_choices(where *w, tir_expr update, choices *found) {
    for (int i = 0; i < 2 * w->count; i++) {
        w->assumed = w->condition[i / 2];
        w->value = i % 2;
        const tir_expr on = tir_index_condition(w->pool, w->assumed, w->value);
        if (!is_usable(w, on) || !uses_reduction(w, on) || holds_all(w->pool, found->predicate, on)) continue;
        if (!is_neutral(w, tir_rewrite(w->pool, update, assume, w))) continue;
        found->condition[found->count] = w->assumed;
        found->value[found->count++] = !w->value;
        found->predicate = tir_and(w->pool, found->predicate, on);
    }
}

/* The conditions of the deciding select, in the reduction or in the maps that it reads; false: none. */
static bool find_condition(where *w, choices *found) {
    *found = (choices){.predicate = tir_bool(w->pool, true)};
    if (w->stage->kind != TIR_REDUCE || w->stage->count != 1) return false;
    tir_expr update = w->stage->value[0];
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        collect_conditions(w, update);
        find_choices(w, update, found);
        if (found->count) return true;
        w->expanded = false;
        update = tir_rewrite(w->pool, update, inline_map, w);
        if (!w->expanded) return false;
    }
    return false;
}

tir_expr tir_where_condition(tir_region *region, int stage) {
    where w = {.region = region, .pool = region->pool, .stage = &region->stages.data[stage]};
    choices found;
    return find_condition(&w, &found) ? found.predicate : 0;
}

/* ---- values that are not read any more */

/* Condition `on` over the axes of stage s, at the point of s that `load` reads. */
static tir_expr at_load(where *w, int s, tir_expr load, tir_expr on) {
    const tir_stage *stage = &w->region->stages.data[s];
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < stage->space; a++) {
        from[a] = stage->axis[a].var;
        to[a] = tir_operand(w->pool, load, a);
    }
    return tir_substitute(w->pool, on, stage->space, from, to);
}

typedef struct load_list {
    uint32_t tensor;
    tir_expr loads[MAX_CONDITIONS];
    int count;
    bool guarded;
} load_list;

static tir_expr list_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_list *list = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || node->bits != list->tensor) return rebuilt;
    list->guarded = list->guarded || node->guarded || list->count == MAX_CONDITIONS;
    if (!list->guarded) list->loads[list->count++] = e;
    return rebuilt;
}

/* Whether no stage reads values of map s at points where `on` is false: its readers are reductions over points where it is true, or maps
 * with the same property. */
static bool is_only_read_where(where *w, int s, tir_expr on, int depth) {
    const tir_stage *stage = &w->region->stages.data[s];
    if (depth == MAX_DEPTH || w->region->tensors.data[stage->tensor[0]].output) return false;
    for (int q = 0; q < (int)w->region->stages.count; q++) {
        tir_stage reader = w->region->stages.data[q];
        load_list list = {.tensor = stage->tensor[0]};
        if (reader.removed) continue;
        if (reader.predicate) tir_rewrite(w->pool, reader.predicate, list_load, &list);
        if (list.count) return false; /* read everywhere */
        tir_rewrite_stage(w->pool, &reader, list_load, &list);
        if (list.guarded || (list.count && reader.kind != TIR_REDUCE && reader.kind != TIR_MAP)) return false;
        for (int i = 0; i < list.count; i++) {
            tir_expr here = at_load(w, s, list.loads[i], on);
            bool fine = reader.kind == TIR_REDUCE ? holds_all(w->pool, reader.predicate, here)
                                                  : is_only_read_where(w, q, here, depth + 1);
            if (!fine) return false;
        }
    }
    return true;
}

/* In maps, replaces conditions of selects by a constant where the condition has this value at all points at which the map is read. */
static void drop_choices(where *w) {
    for (int s = 0; s < (int)w->region->stages.count; s++) {
        tir_stage *stage = &w->region->stages.data[s];
        if (stage->removed || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) continue;
        w->stage = stage;
        collect_conditions(w, stage->value[0]);
        for (int i = 0; i < 2 * w->count; i++) {
            w->assumed = w->condition[i / 2];
            w->value = i % 2;
            const tir_expr on = tir_index_condition(w->pool, w->assumed, !w->value);
            if (is_usable(w, on) && is_only_read_where(w, s, on, 0))
                stage->value[0] = tir_rewrite(w->pool, stage->value[0], assume, w);
        }
    }
}

void tir_apply_where(tir_schedule_state *state, lib_lexer *lexer) {
    int s = tir_find_stage(state, lib_lexer_name(lexer));
    tir_stage *stage = &state->region->stages.data[s];
    if (stage->kind != TIR_REDUCE || stage->count != 1)
        tir_schedule_raise(state, "%s is not a reduction to one value", stage->name);
    where w = {.region = state->region, .pool = state->region->pool, .stage = stage};
    choices found;
    if (!find_condition(&w, &found))
        tir_schedule_raise(state, "no condition on the axes of %s alone makes what it adds neutral", stage->name);
    for (int i = 0; i < found.count; i++) {
        w.assumed = found.condition[i];
        w.value = found.value[i];
        stage->value[0] = tir_rewrite(w.pool, stage->value[0], assume, &w);
    }
    stage->predicate = stage->predicate ? tir_and(w.pool, stage->predicate, found.predicate) : found.predicate;
    drop_choices(&w);
}
