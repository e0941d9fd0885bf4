/* where S : a reduction gets a predicate. If a condition on its axes alone makes what it adds neutral (a select of 0 in a sum, of the
 * lowest value in a maximum, a factor 0 in a sum of products), the points where that holds need not exist: they are neither computed nor
 * read once loops are clipped to the others. Causal attention is such a case, and so is any triangular sum. */
#include "tir/schedule_internal.h"

enum { MAX_CONDITIONS = 8, MAX_DEPTH = 4 };

typedef struct where {
    tir_region *region;
    tir_pool *pool;
    const tir_stage *stage;
    tir_expr condition[MAX_CONDITIONS];
    int count;
    tir_expr assumed; /* a condition, taken to be `value` */
    bool value;
    bool expanded; /* some load of a map was replaced */
} where;

/* Maps that the reduction reads, put in. */
static tir_expr put_in_map(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
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

static tir_expr find_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    bool *found = user;
    if (tir_op_of(pool, e) == TIR_LOAD || tir_op_of(pool, e) == TIR_ACC) *found = true;
    return rebuilt;
}

/* Conditions of selects that positions alone decide. */
static tir_expr collect_any(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    where *w = user;
    bool loads = false;
    if (tir_op_of(pool, e) != TIR_SELECT || w->count == MAX_CONDITIONS) return rebuilt;
    tir_expr condition = tir_operand(pool, e, 0);
    for (int i = 0; i < w->count; i++)
        if (w->condition[i] == condition) return rebuilt;
    tir_rewrite(pool, condition, find_load, &loads);
    if (!loads) w->condition[w->count++] = condition;
    return rebuilt;
}

/* Likewise, and that differ along the reduction. */
static tir_expr collect(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    where *w = user;
    int before = w->count;
    collect_any(user, pool, e, rebuilt);
    if (w->count == before) return rebuilt;
    for (int a = w->stage->space; a < w->stage->space + w->stage->reduce; a++)
        if (tir_uses(pool, w->condition[before], w->stage->axis[a].var)) return rebuilt;
    w->count = before;
    return rebuilt;
}

static tir_expr assume(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const where *w = user;
    (void)e;
    if (tir_op_of(pool, rebuilt) != TIR_SELECT || tir_operand(pool, rebuilt, 0) != w->assumed) return rebuilt;
    return tir_operand(pool, rebuilt, w->value ? 1 : 2);
}

static bool is_zero(tir_pool *pool, tir_expr e) {
    return e == tir_int(pool, tir_dtype_of(pool, e), 0);
}

/* Does the update leave the state as it is? */
static bool is_neutral(const where *w, tir_expr update) {
    tir_pool *pool = w->pool;
    tir_dtype dtype = tir_dtype_of(pool, w->stage->value[0]);
    tir_expr acc = tir_acc(pool, dtype, 0);
    if (update == acc) return true;
    tir_op op = tir_op_of(pool, update);
    if (op == TIR_MULADD && tir_operand(pool, update, 2) == acc) { /* 0 times infinity would not be neutral */
        bool zero = is_zero(pool, tir_operand(pool, update, 0)) || is_zero(pool, tir_operand(pool, update, 1));
        return zero && (w->region->excess_precision || !lib_dtype_is_float((dlc_dtype)dtype));
    }
    if (op != TIR_ADD && op != TIR_MAX && op != TIR_MIN) return false;
    tir_expr a = tir_operand(pool, update, 0), b = tir_operand(pool, update, 1), lift = a == acc ? b : a;
    return (a == acc || b == acc) && lift == w->stage->initial[0] && (op != TIR_ADD || is_zero(pool, lift));
}

/* A condition that decides whether points are neutral: `assumed` is one and not `value` where they are. */
static bool find_condition(where *w) {
    if (w->stage->kind != TIR_REDUCE || w->stage->count != 1) return false;
    tir_expr update = w->stage->value[0];
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        w->expanded = false;
        tir_rewrite(w->pool, update, collect, w);
        for (int i = 0; i < 2 * w->count; i++) {
            w->assumed = w->condition[i / 2];
            w->value = i % 2;
            if (!is_neutral(w, tir_rewrite(w->pool, update, assume, w))) continue;
            w->value = !w->value;
            return true;
        }
        update = tir_rewrite(w->pool, update, put_in_map, w);
        if (!w->expanded) return false;
    }
    return false;
}

tir_expr tir_where_condition(tir_region *region, int stage) {
    where w = {.region = region, .pool = region->pool, .stage = &region->stages.data[stage]};
    if (!find_condition(&w)) return 0;
    return w.value ? w.assumed : tir_unary(w.pool, TIR_NOT, w.assumed);
}

/* ---- what nobody reads any more */

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

static bool holds(where *w, const tir_stage *reader, tir_expr condition) {
    tir_expr terms[MAX_CONDITIONS * 2];
    int count = tir_conjuncts(w->pool, reader->predicate, terms, MAX_CONDITIONS * 2);
    for (int i = 0; i < count; i++)
        if (terms[i] == condition) return true;
    return false;
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

/* Do values of map s where `on` does not hold reach nobody? Its readers are reductions over points where it holds, or maps of which the
 * same is true. */
static bool is_only_read_where(where *w, int s, tir_expr on, int depth) {
    const tir_stage *stage = &w->region->stages.data[s];
    if (depth == MAX_DEPTH || w->region->tensors.data[stage->tensor[0]].output) return false;
    for (int q = 0; q < (int)w->region->stages.count; q++) {
        tir_stage reader = w->region->stages.data[q];
        load_list list = {.tensor = stage->tensor[0]};
        if (reader.removed) continue;
        if (reader.predicate) tir_rewrite(w->pool, reader.predicate, list_load, &list);
        if (list.count) return false; /* asked everywhere */
        tir_rewrite_stage(w->pool, &reader, list_load, &list);
        if (list.guarded || (list.count && reader.kind != TIR_REDUCE && reader.kind != TIR_MAP)) return false;
        for (int i = 0; i < list.count; i++) {
            tir_expr here = at_load(w, s, list.loads[i], on);
            bool fine = reader.kind == TIR_REDUCE ? holds(w, &reader, here) : is_only_read_where(w, q, here, depth + 1);
            if (!fine) return false;
        }
    }
    return true;
}

/* Maps need not choose by a condition that holds wherever they are read. */
static void drop_choices(where *w) {
    for (int s = 0; s < (int)w->region->stages.count; s++) {
        tir_stage *stage = &w->region->stages.data[s];
        if (stage->removed || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) continue;
        w->count = 0;
        tir_rewrite(w->pool, stage->value[0], collect_any, w);
        for (int i = 0; i < w->count; i++) {
            w->assumed = w->condition[i];
            for (int value = 0; value < 2; value++) {
                tir_expr on = value ? w->assumed : tir_unary(w->pool, TIR_NOT, w->assumed);
                w->value = value;
                if (is_only_read_where(w, s, on, 0)) stage->value[0] = tir_rewrite(w->pool, stage->value[0], assume, w);
            }
        }
    }
}

void tir_apply_where(tir_schedule_state *state, lib_lexer *lexer) {
    int s = tir_find_stage(state, lib_lexer_name(lexer));
    tir_stage *stage = &state->region->stages.data[s];
    if (stage->kind != TIR_REDUCE || stage->count != 1)
        tir_schedule_raise(state, "%s is not a reduction to one value", stage->name);
    where w = {.region = state->region, .pool = state->region->pool, .stage = stage};
    if (!find_condition(&w))
        tir_schedule_raise(state, "no condition on the axes of %s alone makes what it adds neutral", stage->name);
    tir_expr condition = w.value ? w.assumed : tir_unary(w.pool, TIR_NOT, w.assumed);
    stage->value[0] = tir_rewrite(w.pool, stage->value[0], assume, &w);
    stage->predicate = stage->predicate ? tir_and(state->region->pool, stage->predicate, condition) : condition;
    drop_choices(&w);
}
