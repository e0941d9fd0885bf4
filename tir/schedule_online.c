/* online S.k B -> F kb: a chain of reductions over one axis, each of which may read the results of earlier ones (max, sum of
 * exponentials, weighted sum), becomes one fold over blocks of B points. Its states are the results so far. When an earlier member r
 * moves from r_old to r_new, a later member i is corrected by c(r_old, r_new), derived from the structure of its summand:
 *     e(k; r_new) = e(k; r_old) * c   under a sum,      e(k; r_new) = e(k; r_old) + c   under a maximum,
 * and members without such a form are refused. (Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022.)
 * Maps between members are inlined into their readers; a map that several points of members read within a block becomes a step of its own.
 * A divisor that does not depend on k is applied after the fold. Roundings change. */
#include "tir/schedule_internal.h"

enum { MAX_MEMBERS = TIR_MAX_STATE, MAX_MAPS = 16 };

typedef struct member {
    /* before the rewrite */
    int stage;
    /* the same, with the maps of the chain inlined */
    tir_stage whole;
    /* else a maximum */
    bool sum;
    /* what the update adds, or takes the maximum with; without its divisor */
    tir_expr lift;
    /* 0: none */
    tir_expr divisor;
    /* tensors: of the fold, and of the step that makes the next state */
    uint32_t state, next;
} member;

/* A map that reads members, point by point. */
typedef struct between {
    tir_stage stage;
    /* its value with the maps that it reads inlined */
    tir_expr full;
    /* the tensor of the step that computes the map for one block; valid if `made` */
    uint32_t step;
    bool made;
} between;

typedef struct online {
    tir_schedule_state *state;
    tir_pool *pool;
    member members[MAX_MEMBERS];
    int count;
    between maps[MAX_MAPS];
    int map_count;
    /* of the first member */
    tir_expr predicate, extent;
    /* number of free axes: those of the first member except trailing single points; leading in all members */
    int free;
    int64_t block;
    /* the fold's axis in the step under construction */
    tir_expr time;
    /* the member under derivation */
    const member *at;
} online;

static tir_stage *stage_at(const online *o, int s) {
    return &o->state->region->stages.data[s];
}
static const tir_tensor *tensor_of(const online *o, tir_expr load) {
    return &o->state->region->tensors.data[tir_get(o->pool, load)->bits];
}

static int member_of(const online *o, uint32_t tensor) {
    for (int i = 0; i < o->count; i++)
        if (o->members[i].whole.tensor[0] == tensor) return i;
    return -1;
}

/* ---- finding the chain */

typedef struct chain_search {
    const online *o;
    bool found;
} chain_search;

static tir_expr find_chain(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    chain_search *search = user;
    if (tir_op_of(pool, e) != TIR_LOAD) return rebuilt;
    if (member_of(search->o, (uint32_t)tir_get(pool, e)->bits) >= 0) search->found = true;
    for (int i = 0; i < search->o->map_count; i++)
        if (search->o->maps[i].stage.tensor[0] == (uint32_t)tir_get(pool, e)->bits) search->found = true;
    return rebuilt;
}

static bool in_chain(const online *o, tir_expr e) {
    chain_search search = {o, false};
    tir_rewrite(o->pool, e, find_chain, &search);
    return search.found;
}

static tir_expr inline_map(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const online *o = user;
    (void)e;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD) return rebuilt;
    for (int i = 0; i < o->map_count; i++) {
        const tir_stage *map = &o->maps[i].stage;
        if (map->tensor[0] != (uint32_t)node.bits) continue;
        tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
        for (int a = 0; a < map->space; a++) {
            from[a] = map->axis[a].var;
            to[a] = tir_operand(pool, rebuilt, a);
        }
        tir_expr value = tir_substitute(pool, o->maps[i].full, map->space, from, to);
        return node.guarded ? tir_select(pool, tir_operand(pool, rebuilt, map->space), value,
                                         tir_operand(pool, rebuilt, map->space + 1))
                            : value;
    }
    return rebuilt;
}

/* The expression with all maps of the chain inlined. */
static tir_expr without_maps(online *o, tir_expr e) {
    return tir_rewrite(o->pool, e, inline_map, o);
}

/* Whether the update is  acc + lift  or  max(acc, lift); stores which, and the lift. */
static bool take_lift(online *o, member *m) {
    tir_pool *pool = o->pool;
    tir_expr value = m->whole.value[0], acc = tir_acc(pool, tir_dtype_of(pool, value), 0);
    const tir_node node = *tir_get(pool, value);
    m->sum = node.op != TIR_MAX;
    if (node.op == TIR_MULADD && tir_operand(pool, value, 2) == acc) {
        m->lift = tir_mul(pool, tir_operand(pool, value, 0), tir_operand(pool, value, 1));
        return !tir_uses(pool, m->lift, acc);
    }
    if (node.op != TIR_ADD && node.op != TIR_MAX) return false;
    tir_expr a = tir_operand(pool, value, 0), b = tir_operand(pool, value, 1);
    m->lift = a == acc ? b : a;
    return (a == acc || b == acc) && !tir_uses(pool, m->lift, acc);
}

typedef struct index_check {
    const online *o;
    const tir_stage *stage;
    /* members are read at the reader's own leading axes */
    bool same_rows;
} index_check;

static tir_expr check_rows(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    index_check *check = user;
    if (tir_op_of(pool, e) != TIR_LOAD || member_of(check->o, (uint32_t)tir_get(pool, e)->bits) < 0) return rebuilt;
    for (int d = 0; d < tir_get(pool, e)->count; d++) {
        bool single = tir_is_number(pool, tensor_of(check->o, e)->extent[d], 1);
        bool own = d < check->stage->space && tir_operand(pool, e, d) == check->stage->axis[d].var;
        if (!own && !single) check->same_rows = false;
    }
    return rebuilt;
}

/* Whether the stage, with maps inlined, can become a member: a reduction of one value over one axis of the members' extent, with their
 * predicate, that reads members only at its own leading axes. Other stages read the members' results after the fold. */
static bool belongs_to_chain(online *o, const tir_stage *stage) {
    tir_pool *pool = o->pool;
    if (stage->kind != TIR_REDUCE || stage->reduce != 1 || stage->count != 1 || stage->space < o->free ||
        stage->fold >= 0)
        return false;
    if (stage->axis[stage->space].extent != o->extent) return false;
    index_check check = {o, stage, true};
    tir_rewrite(pool, stage->value[0], check_rows, &check);
    if (!check.same_rows) return false;
    const tir_stage *first = &o->members[0].whole;
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], predicate = o->predicate;
    for (int a = 0; a < o->free; a++) {
        if (first->axis[a].extent != stage->axis[a].extent) return false;
        from[a] = first->axis[a].var;
        to[a] = stage->axis[a].var;
    }
    from[o->free] = first->axis[first->space].var;
    to[o->free] = stage->axis[stage->space].var;
    if (predicate) predicate = tir_substitute(pool, predicate, o->free + 1, from, to);
    return predicate == stage->predicate;
}

/* Appends the stage to the chain; false: it does not belong to it. */
static bool add_to_chain(online *o, int q) {
    const tir_stage *stage = stage_at(o, q);
    if (stage->fold >= 0 || stage->kind == TIR_FOLD || stage->kind == TIR_SCATTER) return false;
    if (stage->kind == TIR_MAP) {
        if (stage->count != 1 || o->map_count == MAX_MAPS) return false;
        tir_expr full = without_maps(o, stage->value[0]);
        o->maps[o->map_count++] = (between){.stage = *stage, .full = full};
        return true;
    }
    tir_stage whole = *stage;
    for (int c = 0; c < whole.count; c++) whole.value[c] = without_maps(o, whole.value[c]);
    if (!belongs_to_chain(o, &whole)) return false;
    if (o->count == MAX_MEMBERS)
        tir_schedule_raise(o->state, "%s would be one of more than %d members of the chain", stage->name, MAX_MEMBERS);
    member *m = &o->members[o->count];
    *m = (member){.stage = q, .whole = whole};
    if (!take_lift(o, m)) tir_schedule_raise(o->state, "%s is not a sum or maximum", stage->name);
    o->count++;
    return true;
}

static void find_members(online *o, int first) {
    /* stages that depend on the chain but are not part of it: their results are not available before the fold ends */
    bool *outside = LIB_NEW_ARRAY(o->state->arena, bool, o->state->region->stages.count);
    for (int q = first + 1; q < (int)o->state->region->stages.count; q++) {
        const tir_stage *stage = stage_at(o, q);
        bool chain = false;
        if (stage->removed) continue;
        for (int c = 0; c < stage->count; c++)
            chain = chain || in_chain(o, stage->value[c]) || (stage->initial[c] && in_chain(o, stage->initial[c]));
        chain = chain || (stage->predicate && in_chain(o, stage->predicate));
        if (tir_reads_any(o->state->region, q, outside) || (chain && !add_to_chain(o, q)))
            outside[q] = outside[stage->fold >= 0 ? stage->fold : q] = true;
    }
}

/* ---- the divisor */

static bool uses_k(const online *o, tir_expr e) {
    return tir_uses(o->pool, e, o->at->whole.axis[o->at->whole.space].var);
}

/* e without its denominators (of quotients under products and casts) that read the chain and are independent of k; *divisor: the product of
 * these, 0: none. */
static tir_expr without_divisor(online *o, tir_expr e, tir_expr *divisor) {
    tir_pool *pool = o->pool;
    if (!in_chain(o, e)) return e;
    if (tir_op_of(pool, e) == TIR_MUL) {
        tir_expr a = without_divisor(o, tir_operand(pool, e, 0), divisor),
                 b = without_divisor(o, tir_operand(pool, e, 1), divisor);
        return tir_mul(pool, a, b);
    }
    if (tir_op_of(pool, e) == TIR_CAST && lib_dtype_is_float((dlc_dtype)tir_dtype_of(pool, tir_operand(pool, e, 0)))) {
        tir_expr before = *divisor, rest = without_divisor(o, tir_operand(pool, e, 0), divisor);
        if (*divisor == before) return e;
        *divisor = tir_cast(pool, tir_dtype_of(pool, e), *divisor);
        return tir_cast(pool, tir_dtype_of(pool, e), rest);
    }
    if (tir_op_of(pool, e) != TIR_DIV) return e;
    tir_expr by = tir_operand(pool, e, 1);
    if (uses_k(o, by) || !in_chain(o, by)) return e;
    tir_expr rest = without_divisor(o, tir_operand(pool, e, 0), divisor);
    *divisor = *divisor ? tir_mul(pool, *divisor, by) : by;
    return rest;
}

/* ---- corrections; all over the axes of the current member */

static tir_expr load_member(const online *o, tir_expr load, bool next) {
    tir_pool *pool = o->pool;
    const member *m = &o->members[member_of(o, (uint32_t)tir_get(pool, load)->bits)];
    tir_expr index[DLC_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < m->whole.space; d++) {
        if (next && d == o->free) index[rank++] = o->time;
        /* a single-point axis may be read at any variable, also the reduction's */
        const bool single = tir_is_number(pool, m->whole.axis[d].extent, 1);
        index[rank++] = single ? tir_index(pool, 0) : tir_operand(pool, load, d);
    }
    if (next && m->whole.space == o->free) index[rank++] = o->time;
    return tir_load(pool, next ? m->next : m->state, tir_get(pool, load)->dtype, rank, index, 0, 0);
}

static tir_expr is_lowest(const online *o, tir_expr e) {
    return tir_eq(o->pool, e, tir_lowest(o->pool, tir_dtype_of(o->pool, e)));
}

_Noreturn static void refuse(const online *o, tir_expr e) {
    tir_schedule_raise(o->state, "%s depends on earlier members in a way that has no correction: %s of %s",
                       o->at->whole.name, tir_ops[tir_op_of(o->pool, e)].text,
                       tir_op_of(o->pool, e) == TIR_LOAD ? tensor_of(o, e)->name : "them");
}

/* The difference of product e, given those of its factors. Raises unless one factor reads no member and is independent of k. */
static tir_expr product_difference(const online *o, tir_expr e, tir_expr da, tir_expr db) {
    tir_pool *pool = o->pool;
    tir_expr a = tir_operand(pool, e, 0), b = tir_operand(pool, e, 1);
    if ((da && db) || uses_k(o, da ? b : a)) refuse(o, e);
    return tir_mul(pool, da ? da : db, da ? b : a);
}

/* e with the members' new values minus e with the old ones; 0: e reads no member. Raises if e has no such form. */
static tir_expr difference(const online *o, tir_expr e) {
    tir_pool *pool = o->pool;
    if (!in_chain(o, e)) return 0;
    tir_op op = tir_op_of(pool, e);
    if (op == TIR_LOAD) { /* 0 if the member did not change or had no points before: avoids NaN from infinities */
        tir_expr old = load_member(o, e, false), new = load_member(o, e, true);
        tir_expr zero = tir_int(pool, tir_dtype_of(pool, e), 0);
        return tir_select(pool, tir_or(pool, tir_eq(pool, old, new), is_lowest(o, old)), zero, tir_sub(pool, new, old));
    }
    if (op == TIR_MULADD && !in_chain(o, tir_operand(pool, e, 0)) && !in_chain(o, tir_operand(pool, e, 1)))
        return difference(o, tir_operand(pool, e, 2));
    if (op == TIR_NEG) return tir_unary(pool, TIR_NEG, difference(o, tir_operand(pool, e, 0)));
    if (op != TIR_ADD && op != TIR_SUB && op != TIR_MUL) refuse(o, e);
    tir_expr a = tir_operand(pool, e, 0), b = tir_operand(pool, e, 1), da = difference(o, a), db = difference(o, b);
    if (op == TIR_MUL) return product_difference(o, e, da, db);
    if (!db) return da;
    return da ? tir_binary(pool, op, da, db) : op == TIR_ADD ? db : tir_unary(pool, TIR_NEG, db);
}

/* e with the members' new values divided by e with the old ones; 0: the quotient is 1. Raises if e has no such form. */
static tir_expr ratio(const online *o, tir_expr e) {
    tir_pool *pool = o->pool;
    if (!in_chain(o, e)) return 0;
    switch (tir_op_of(pool, e)) {
    case TIR_EXP: return tir_unary(pool, TIR_EXP, difference(o, tir_operand(pool, e, 0)));
    case TIR_CAST: { /* intermediate roundings are not repeated */
        tir_expr wide = tir_operand(pool, e, 0);
        while (tir_op_of(pool, wide) == TIR_CAST) wide = tir_operand(pool, wide, 0);
        return tir_cast(pool, tir_dtype_of(pool, e), ratio(o, wide));
    }
    case TIR_DIV:
        if (in_chain(o, tir_operand(pool, e, 1))) refuse(o, e);
        return ratio(o, tir_operand(pool, e, 0));
    case TIR_MUL: {
        tir_expr a = ratio(o, tir_operand(pool, e, 0)), b = ratio(o, tir_operand(pool, e, 1));
        return a && b ? tir_mul(pool, a, b) : a ? a : b;
    }
    case TIR_SELECT: {
        tir_expr other = tir_operand(pool, e, 2);
        bool is_zero = other == tir_int(pool, tir_dtype_of(pool, e), 0) || tir_is_number(pool, other, 0);
        if (in_chain(o, tir_operand(pool, e, 0)) || !is_zero) refuse(o, e);
        return ratio(o, tir_operand(pool, e, 1));
    }
    default: refuse(o, e);
    }
}

/* ---- building */

static tir_expr replace_member(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const online *o = user;
    if (tir_op_of(pool, e) != TIR_LOAD) return rebuilt;
    int m = member_of(o, (uint32_t)tir_get(pool, e)->bits);
    if (m < 0) return rebuilt;
    tir_expr next = load_member(o, rebuilt, true);
    if (o->members[m].sum) return next;
    return tir_select(pool, is_lowest(o, next), tir_int(pool, tir_dtype_of(pool, next), 0), next); /* no -inf - -inf */
}

static tir_stage *add_step(online *o, int at, int fold, const tir_stage *like, const char *suffix,
                           const tir_axis *blocks, bool reduce) {
    const char *name = tir_derived_name(o->state, like->name, lib_arena_format(o->state->arena, "_%s", suffix));
    tir_stage *stage = tir_insert_stage(o->state, at);
    stage->name = name;
    stage->kind = reduce ? TIR_REDUCE : TIR_MAP;
    stage->fold = fold;
    stage->space = like->space + 1;
    stage->reduce = reduce;
    int64_t points = o->block;
    tir_expr size = tir_index(o->pool, points);
    for (int a = 0; a <= like->space; a++) {
        bool time = a == o->free;
        const tir_axis *axis = &like->axis[a - (a > o->free)]; /* the time axis has no counterpart in `like` */
        tir_axis fresh = tir_axis_like(o->state, time ? blocks : axis, time ? blocks->extent : axis->extent);
        stage_at(o, at)->axis[a] = fresh;
    }
    if (reduce) stage_at(o, at)->axis[like->space + 1] = tir_axis_like(o->state, &like->axis[like->space], size);
    if (like->kind == TIR_MAP) stage_at(o, at)->axis[like->space] = tir_axis_like(o->state, &like->axis[o->free], size);
    tir_stage one = {.count = 1, .tensor = {like->tensor[0]}};
    tir_new_tensors(o->state, at, &one, name);
    return stage_at(o, at);
}

/* e with the member's axes replaced by those of its step; in the step that reduces a block, k becomes kb*B + k. */
static tir_expr on_step_axes(const online *o, const member *m, const tir_stage *step, tir_expr e) {
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < m->whole.space; a++) {
        from[a] = m->whole.axis[a].var;
        to[a] = step->axis[a < o->free ? a : a + 1].var;
    }
    int count = m->whole.space;
    if (step->reduce) {
        from[count] = m->whole.axis[count].var;
        to[count++] = tir_add(o->pool, tir_mul(o->pool, step->axis[o->free].var, tir_index(o->pool, o->block)),
                              step->axis[step->space].var);
    }
    return tir_substitute(o->pool, e, count, from, to);
}

/* The map's value over the axes of the member: its free axes and its reduction axis; 0: the map's axes are others. */
static tir_expr value_at(const online *o, const between *map, const member *m) {
    const tir_stage *stage = &map->stage;
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    if (stage->space != o->free + 1 || stage->axis[o->free].extent != o->extent) return 0;
    for (int a = 0; a <= o->free; a++) {
        from[a] = stage->axis[a].var;
        to[a] = m->whole.axis[a < o->free ? a : m->whole.space].var;
    }
    return tir_substitute(o->pool, map->full, stage->space, from, to);
}

/* Whether the map is read at more points than it has: by several members, or by one with axes of its own. */
static bool is_shared(const online *o, const between *map) {
    int readers = 0;
    for (int i = 0; i < o->count; i++) {
        const member *m = &o->members[i];
        tir_expr value = value_at(o, map, m);
        if (!value || value == m->whole.axis[m->whole.space].var || !tir_uses(o->pool, m->lift, value)) continue;
        for (int a = o->free; a < m->whole.space; a++) readers += !tir_is_number(o->pool, m->whole.axis[a].extent, 1);
        readers++;
    }
    return readers > 1;
}

/* Replaces the value of a map that has a step by a load of the step, and a member by its newest value; over the axes of member o->at. */
static tir_expr replace_map(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const online *o = user;
    const member *m = o->at;
    for (int i = 0; i < o->map_count; i++) {
        if (!o->maps[i].made || value_at(o, &o->maps[i], m) != e) continue;
        tir_expr index[DLC_MAX_RANK];
        for (int a = 0; a < o->free; a++) index[a] = m->whole.axis[a].var;
        index[o->free] = o->time;
        index[o->free + 1] =
            tir_sub(pool, m->whole.axis[m->whole.space].var, tir_mul(pool, o->time, tir_index(pool, o->block)));
        return tir_load(pool, o->maps[i].step, tir_dtype_of(pool, e), o->free + 2, index, 0, 0);
    }
    return replace_member(user, pool, e, rebuilt);
}

/* Adds steps, from stage number `at` on, for the shared maps that member m reads: their values in one block, from the members' newest
 * values. Returns the stage number after these steps. */
static int add_map_steps(online *o, const member *m, int fold, int at, const tir_axis *blocks) {
    tir_pool *pool = o->pool;
    for (int i = 0; i < o->map_count; i++) {
        between *map = &o->maps[i];
        tir_expr value = map->made ? 0 : value_at(o, map, m);
        if (!value || !tir_uses(pool, m->lift, value) || !is_shared(o, map)) continue;
        tir_stage *step = add_step(o, at, fold, &map->stage, "b", blocks, false);
        tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
        o->time = step->axis[o->free].var;
        for (int a = 0; a < o->free; a++) to[a] = step->axis[a].var;
        to[o->free] = tir_add(pool, tir_mul(pool, o->time, tir_index(pool, o->block)), step->axis[o->free + 1].var);
        for (int a = 0; a <= o->free; a++) from[a] = m->whole.axis[a < o->free ? a : m->whole.space].var;
        value = tir_rewrite(pool, value, replace_map, o);
        stage_at(o, at)->value[0] = tir_substitute(pool, value, o->free + 1, from, to);
        map->step = stage_at(o, at)->tensor[0];
        map->made = true;
        at++;
    }
    return at;
}

/* Adds m_b as stage number `at`; returns its tensor. */
static uint32_t add_block_step(online *o, const member *m, int fold, int at, const tir_axis *blocks) {
    tir_pool *pool = o->pool;
    tir_stage *block = add_step(o, at, fold, &m->whole, "b", blocks, true);
    tir_dtype dtype = tir_dtype_of(pool, m->lift);
    tir_expr acc = tir_acc(pool, dtype, 0), other = tir_other(pool, dtype, 0);
    o->time = block->axis[o->free].var;
    tir_expr lift = tir_rewrite(pool, m->lift, replace_map, o);
    tir_expr value = !m->sum ? tir_max(pool, acc, lift)
                     : tir_op_of(pool, lift) == TIR_MUL
                         ? tir_muladd(pool, tir_operand(pool, lift, 0), tir_operand(pool, lift, 1), acc)
                         : tir_add(pool, acc, lift);
    if (m->sum && tir_op_of(pool, m->whole.value[0]) == TIR_ADD) value = tir_add(pool, acc, lift);
    tir_expr index = tir_add(pool, tir_mul(pool, block->axis[o->free].var, tir_index(pool, o->block)),
                             block->axis[block->space].var);
    tir_expr inside = tir_lt(pool, index, o->extent);
    if (tir_multiple_of(pool, o->extent) % o->block == 0) inside = tir_bool(pool, true);
    block = stage_at(o, at);
    block->exact = m->whole.exact;
    block->value[0] = on_step_axes(o, m, block, value);
    block->initial[0] = m->whole.initial[0];
    block->merge[0] = m->sum ? tir_add(pool, acc, other) : tir_max(pool, acc, other);
    tir_expr predicate = m->whole.predicate ? on_step_axes(o, m, block, m->whole.predicate) : tir_bool(pool, true);
    predicate = tir_and(pool, inside, predicate);
    block->predicate = tir_is_true(pool, predicate) ? 0 : predicate;
    return block->tensor[0];
}

/* Adds m_b, the reduction of one block, which reads the newest values of earlier members, and m_n, the corrected old state combined with
 * m_b. Returns the stage number after them. */
static int add_member_steps(online *o, member *m, int fold, int at, const tir_axis *blocks) {
    tir_pool *pool = o->pool;
    o->at = m;
    at = add_map_steps(o, m, fold, at, blocks);
    const uint32_t block = add_block_step(o, m, fold, at, blocks);
    const tir_dtype dtype = tir_dtype_of(pool, m->lift);
    tir_stage *next = add_step(o, at + 1, fold, &m->whole, "n", blocks, false);
    m->next = next->tensor[0];
    o->time = next->axis[o->free].var;
    tir_expr own[DLC_MAX_RANK], all[DLC_MAX_RANK];
    for (int a = 0; a < next->space; a++) {
        all[a] = next->axis[a].var;
        if (a != o->free) own[a < o->free ? a : a - 1] = next->axis[a].var;
    }
    tir_expr old = tir_load(pool, m->state, dtype, m->whole.space, own, 0, 0);
    tir_expr here = tir_load(pool, block, dtype, next->space, all, 0, 0);
    tir_expr correction = m->sum ? ratio(o, m->lift) : difference(o, m->lift);
    if (correction) correction = on_step_axes(o, m, next, correction);
    if (correction) old = m->sum ? tir_mul(pool, old, correction) : tir_add(pool, old, correction);
    stage_at(o, at + 1)->value[0] = m->sum ? tir_add(pool, old, here) : tir_max(pool, old, here);
    return at + 2;
}

/* For a member with a divisor: its own tensor becomes a map after the fold, the state gets a new tensor. */
static void split_divisor(online *o, member *m) {
    tir_region *region = o->state->region;
    tir_tensor state = region->tensors.data[m->whole.tensor[0]];
    state.name = tir_derived_name(o->state, state.name, "_acc");
    state.output = false;
    state.argument = -1;
    state.layout = tir_layout_identity(state.rank);
    lib_vec_push(region->arena, &region->tensors, state);
    m->state = region->tensors.count - 1;
    tir_stage *stage = stage_at(o, m->stage);
    tir_expr index[DLC_MAX_RANK];
    for (int a = 0; a < stage->space; a++) index[a] = stage->axis[a].var;
    tir_expr sum = tir_load(o->pool, m->state, (tir_dtype)state.dtype, stage->space, index, 0, 0);
    stage->kind = TIR_MAP;
    stage->exact = false;
    stage->reduce = 0;
    stage->value[0] = tir_div(o->pool, sum, m->divisor);
    stage->initial[0] = stage->merge[0] = stage->predicate = 0;
}

/* Orders the stages: those that need no member, then the fold, then the rest. Returns the position for the fold. */
static int make_room(online *o) {
    const size_t count = o->state->region->stages.count;
    bool *later = LIB_NEW_ARRAY(o->state->arena, bool, count + 1);
    int *position = LIB_NEW_ARRAY(o->state->arena, int, count + 1);
    for (int i = 0; i < o->count; i++) later[o->members[i].stage] = true;
    const int before = tir_part_stages(o->state, later, position);
    for (int i = 0; i < o->count; i++) o->members[i].stage = position[o->members[i].stage];
    return before;
}

/* A condition that is false only if `term`, of the members' predicate, is false at all points of the block that begins at `first`; 0: none
 * is known. */
static tir_expr easiest(const online *o, const tir_stage *reduction, tir_expr term, tir_expr first) {
    enum { PARTS = 32 };
    tir_pool *pool = o->pool;
    const tir_expr k = reduction->axis[reduction->space].var;
    const tir_op op = tir_op_of(pool, term);
    tir_term parts[PARTS];
    int64_t constant, coefficient = 0;
    if (!tir_uses(pool, term, k)) return term;
    if ((op != TIR_LT && op != TIR_LE) || tir_dtype_of(pool, tir_operand(pool, term, 0)) != TIR_INDEX) return 0;
    const tir_expr difference = tir_sub(pool, tir_operand(pool, term, 0), tir_operand(pool, term, 1));
    const int count = tir_terms(pool, difference, parts, PARTS, &constant);
    for (int i = 0; i < count; i++)
        if (parts[i].atom == k) coefficient = parts[i].coefficient;
    const tir_expr rest = tir_sub(pool, difference, tir_mul(pool, tir_index(pool, coefficient), k));
    if (count < 0 || !coefficient || tir_uses(pool, rest, k)) return 0;
    const tir_expr point = tir_add(pool, first, tir_index(pool, coefficient > 0 ? 0 : o->block - 1));
    return tir_substitute(pool, term, 1, &k, &point);
}

/* The fold's predicate: blocks in which no point meets the members' condition leave the state unchanged. */
static tir_expr fold_predicate(const online *o, const tir_stage *fold) {
    enum { TERMS = 32 };
    tir_pool *pool = o->pool;
    const tir_stage *reduction = &o->members[0].whole;
    tir_expr terms[TERMS], from[TIR_MAX_AXES], to[TIR_MAX_AXES], all = 0;
    const tir_expr first = tir_mul(pool, fold->axis[o->free].var, tir_index(pool, o->block));
    const int count = reduction->predicate ? tir_conjuncts(pool, reduction->predicate, terms, TERMS) : 0;
    for (int a = 0; a < o->free; a++) from[a] = reduction->axis[a].var, to[a] = fold->axis[a].var;
    for (int i = 0; i < count; i++) {
        const tir_expr term = easiest(o, reduction, terms[i], first);
        if (term) all = all ? tir_and(pool, all, term) : term;
    }
    return all ? tir_substitute(pool, all, o->free, from, to) : 0;
}

static void build(online *o, const char *fold_name, const char *blocks_name) {
    tir_region *region = o->state->region;
    tir_pool *pool = o->pool;
    int at = make_room(o);
    for (int i = 0; i < o->count; i++) {
        member *m = &o->members[i];
        m->state = m->whole.tensor[0];
        if (m->divisor)
            split_divisor(o, m);
        else
            stage_at(o, m->stage)->removed = true;
    }
    tir_insert_stage(o->state, at);
    tir_stage fold = {
        .name = fold_name, .kind = TIR_FOLD, .space = o->free, .reduce = 1, .count = o->count, .fold = -1};
    const tir_stage *first = &o->members[0].whole;
    for (int a = 0; a < o->free; a++) fold.axis[a] = tir_axis_like(o->state, &first->axis[a], first->axis[a].extent);
    const tir_axis blocks = fold.axis[o->free] =
        tir_new_axis(o->state, blocks_name, TIR_AXIS_PLAIN, tir_ceil_div(pool, o->extent, tir_index(pool, o->block)));
    for (int i = 0; i < o->count; i++) {
        member *m = &o->members[i];
        fold.tensor[i] = m->state;
        fold.initial[i] = m->whole.initial[0];
        region->tensors.data[m->state].stage = at;
        region->tensors.data[m->state].component = i;
    }
    fold.predicate = fold_predicate(o, &fold);
    *stage_at(o, at) = fold;
    for (int i = 0, step = at + 1; i < o->count; i++) step = add_member_steps(o, &o->members[i], at, step, &blocks);
    for (int i = 0; i < o->count; i++) { /* next: the step at this block; zeros stand for the state's own axes */
        const member *m = &o->members[i];
        tir_expr index[DLC_MAX_RANK];
        for (int a = 0; a <= m->whole.space; a++) index[a] = a <= o->free ? fold.axis[a].var : tir_index(pool, 0);
        tir_dtype dtype = (tir_dtype)region->tensors.data[m->state].dtype;
        stage_at(o, at)->value[i] = tir_load(pool, m->next, dtype, m->whole.space + 1, index, 0, 0);
    }
}

/* A divisor after the fold is correct only if every row has a point: else 0/0 gives NaN, but an empty sum is 0. */
static void check_rows_exist(online *o, const member *m) {
    tir_pool *pool = o->pool;
    tir_expr zero = tir_index(pool, 0), some = tir_lt(pool, zero, o->extent);
    if (m->whole.predicate)
        some =
            tir_and(pool, some, tir_substitute(pool, m->whole.predicate, 1, &m->whole.axis[m->whole.space].var, &zero));
    if (tir_prove(pool, some) != TIR_YES)
        tir_schedule_raise(o->state, "%s is divided after the fold, but a row of it may be empty", m->whole.name);
}

/* Takes the divisors out of the members' summands; raises if a member needs a quotient before the fold ends. */
static void take_divisors(online *o) {
    for (int i = 0; i < o->count; i++) {
        member *m = &o->members[i];
        o->at = m;
        if (m->sum) m->lift = without_divisor(o, m->lift, &m->divisor);
        if (m->divisor) check_rows_exist(o, m);
        for (int k = i + 1; k < o->count && m->divisor; k++)
            if (tir_stage_reads(o->state->region, o->members[k].stage, m->whole.tensor[0]))
                tir_schedule_raise(o->state, "%s is divided after the fold, but %s needs it inside", m->whole.name,
                                   o->members[k].whole.name);
    }
}

void tir_apply_online(tir_schedule_state *state, lib_lexer *lexer) {
    online o = {.state = state, .pool = state->region->pool};
    const char *axis;
    const int first = tir_read_dotted(state, lexer, &axis);
    o.block = lib_lexer_integer(lexer);
    lib_lexer_expect(lexer, "->");
    const char *fold_name = tir_unique_name(state, lib_lexer_name(lexer)), *blocks = lib_lexer_name(lexer);
    tir_stage whole = *stage_at(&o, first);
    if (whole.kind != TIR_REDUCE || whole.reduce != 1 || whole.count != 1 || whole.fold >= 0)
        tir_schedule_raise(state, "%s is not a reduction to one value over one axis", whole.name);
    if (strcmp(whole.axis[whole.space].name, axis) != 0)
        tir_schedule_raise(state, "stage %s has no reduction axis %s", whole.name, axis);
    if (o.block < 1) tir_schedule_raise(state, "a block has at least one point");
    if (!state->region->excess_precision)
        tir_schedule_raise(state, "it moves roundings, and the region allows no excess precision");
    o.free = whole.space;
    while (o.free && tir_is_number(o.pool, whole.axis[o.free - 1].extent, 1)) o.free--;
    o.extent = whole.axis[whole.space].extent;
    o.predicate = whole.predicate;
    o.members[o.count++] = (member){.stage = first, .whole = whole};
    if (!take_lift(&o, &o.members[0])) tir_schedule_raise(state, "%s is not a sum or maximum", whole.name);
    find_members(&o, first);
    take_divisors(&o);
    build(&o, fold_name, blocks);
}
