/* where S : gives a reduction a predicate. If a condition on its axes makes the summand neutral (a select of 0 in a sum, of the
 * lowest value in a maximum, a factor 0 in a sum of products), the points where it holds can be skipped: once loops are clipped to the
 * other points, they are neither computed nor read. Examples: causal attention, triangular sums. The condition may compare
 * positions with a loaded value that is the same for all points of the reduction (the number of tokens in a cache, the length of a padded
 * sequence); it then becomes a comparison of indices (condition.c).
 *
 * skip S.k : bounds a loop of a reduction by such a condition on positions. `where` takes the choice out of the summand, so that no point
 * at which the predicate is false may be computed. `skip` leaves the summand as it is: these points may be left out, since they add nothing
 * or since nothing uses the result, and those that share a tile with others are computed. It also knows zeros of inputs
 * (tir_tensor.nonzero), and results that the map which reads them chooses not to use. */
#include "tir/arith.h"
#include "tir/readers.h"
#include "tir/schedule_internal.h"

#include <math.h>

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
    /* zeros of inputs count, and their products */
    bool zeros;
    /* the tensor whose loads count */
    uint32_t unread;
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

/* The condition under which an element that a load reads may be other than 0; 0: not known, or no load of an input. */
static tir_expr nonzero_of(const where *w, tir_expr load) {
    const tir_node node = *tir_get(w->pool, load);
    tir_expr index[DLC_MAX_RANK];
    if (node.op != TIR_LOAD || node.guarded || !w->region->tensors.data[node.bits].nonzero) return 0;
    for (int i = 0; i < node.count; i++) index[i] = tir_operand(w->pool, load, i);
    return tir_nonzero_at(w->region, (uint32_t)node.bits, index);
}

/* Collects conditions of selects and of zeros, then their terms. */
static tir_expr collect(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    where *w = user;
    const tir_expr nonzero = w->zeros ? nonzero_of(w, e) : 0;
    if (tir_op_of(pool, e) == TIR_SELECT) add_condition(w, tir_operand(pool, e, 0));
    if (nonzero) add_condition(w, nonzero);
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

/* 0 or -0 */
static bool is_zero(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_CONST) return false;
    return node->dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)node->dtype)
               ? tir_bits_to_f64(node->dtype, node->bits) == 0
               : node->bits == 0;
}

/* Is 0 * factor 0? For floats it is NaN if the factor is infinite or NaN, which excess precision allows to ignore. */
static bool is_annihilated(const where *w, tir_expr factor) {
    const tir_node *node = tir_get(w->pool, factor);
    return w->region->excess_precision || !lib_dtype_is_float((dlc_dtype)node->dtype) ||
           (node->op == TIR_CONST && isfinite(tir_bits_to_f64(node->dtype, node->bits)));
}

/* Is a product 0 because one of its factors is? */
static bool has_zero_factor(const where *w, tir_expr product) {
    const tir_expr a = tir_operand(w->pool, product, 0), b = tir_operand(w->pool, product, 1);
    return (is_zero(w->pool, a) && is_annihilated(w, b)) || (is_zero(w->pool, b) && is_annihilated(w, a));
}

/* Is the assumption a term of the condition, and false? */
static bool excludes(const where *w, tir_expr condition) {
    enum { TERMS = 2 * MAX_CONDITIONS };
    tir_expr terms[TERMS];
    const int count = tir_conjuncts(w->pool, condition, terms, TERMS);
    for (int i = 0; i < count; i++)
        if (terms[i] == w->assumed) return !w->value;
    return condition == w->assumed && !w->value;
}

/* Is it, by the assumption, a zero of an input, or a product of a zero? */
static bool is_known_zero(const where *w, tir_expr e) {
    const tir_expr nonzero = nonzero_of(w, e);
    if (nonzero) return excludes(w, nonzero);
    return tir_op_of(w->pool, e) == TIR_MUL && has_zero_factor(w, e);
}

static tir_expr assume(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const where *w = user;
    if (e == w->assumed || rebuilt == w->assumed) return tir_bool(pool, w->value);
    return w->zeros && is_known_zero(w, rebuilt) ? tir_int(pool, tir_dtype_of(pool, rebuilt), 0) : rebuilt;
}

/* Whether the update leaves the state unchanged. */
static bool is_neutral(const where *w, tir_expr update) {
    tir_pool *pool = w->pool;
    tir_dtype dtype = tir_dtype_of(pool, w->stage->value[0]);
    tir_expr acc = tir_acc(pool, dtype, 0);
    if (update == acc) return true;
    tir_op op = tir_op_of(pool, update);
    if (op == TIR_MULADD && tir_operand(pool, update, 2) == acc) return has_zero_factor(w, update);
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

/* Does a value not matter under the assumption with which it was rewritten? */
typedef bool (*is_void)(const where *w, tir_expr value);

static void find_choices(where *w, tir_expr value, is_void test, choices *found) {
    for (int i = 0; i < 2 * w->count; i++) {
        w->assumed = w->condition[i / 2];
        w->value = i % 2;
        const tir_expr on = tir_index_condition(w->pool, w->assumed, w->value);
        if (!is_usable(w, on) || holds_all(w->pool, found->predicate, on)) continue;
        if (!w->zeros && !uses_reduction(w, on)) continue;
        if (!test(w, tir_rewrite(w->pool, value, assume, w))) continue;
        found->condition[found->count] = w->assumed;
        found->value[found->count++] = !w->value;
        found->predicate = tir_and(w->pool, found->predicate, on);
    }
}

/* The conditions of the deciding select, in the value of w->stage or in the maps that it reads, `depth` deep; false: none. */
static bool find_void(where *w, is_void test, int depth, choices *found) {
    enum { GROWTH = 4096 }; /* of the pool, by inlining */
    const uint32_t nodes = w->pool->nodes.count;
    tir_expr value = w->stage->value[0];
    *found = (choices){.predicate = tir_bool(w->pool, true)};
    for (; depth > 0 && w->pool->nodes.count - nodes < GROWTH; depth--) {
        collect_conditions(w, value);
        find_choices(w, value, test, found);
        if (found->count) return true;
        w->expanded = false;
        value = tir_rewrite(w->pool, value, inline_map, w);
        if (!w->expanded) return false;
    }
    return false;
}

static bool find_condition(where *w, choices *found) {
    return w->stage->kind == TIR_REDUCE && w->stage->count == 1 && find_void(w, is_neutral, MAX_DEPTH, found);
}

tir_expr tir_where_condition(tir_region *region, int stage) {
    where w = {.region = region, .pool = region->pool, .stage = &region->stages.data[stage]};
    choices found;
    return find_condition(&w, &found) ? found.predicate : 0;
}

/* ---- skip */

static bool is_zero_value(const where *w, tir_expr value) {
    return is_zero(w->pool, value);
}

tir_expr tir_nonzero_condition(tir_region *region, int stage) {
    enum { DEPTH = 16 };
    where w = {.region = region, .pool = region->pool, .stage = &region->stages.data[stage], .zeros = true};
    choices found;
    if (w.stage->kind != TIR_MAP || w.stage->count != 1 || w.stage->fold >= 0) return 0;
    if (!find_void(&w, is_zero_value, DEPTH, &found) || tir_has_load(region->pool, found.predicate, 0)) return 0;
    return found.predicate;
}

/* The one map, of the same fold if s is a step, that reads stage s; -1: there is none, or something else reads s. */
static int only_reader(const where *w, int s) {
    const tir_tensor *t = &w->region->tensors.data[w->stage->tensor[0]];
    int reader = -1;
    if (t->output) return -1;
    for (int q = 0; q < (int)w->region->stages.count; q++) {
        const tir_stage *stage = &w->region->stages.data[q];
        if (stage->removed || q == s || !tir_reads(w->region, q, s)) continue;
        if (reader >= 0 || stage->kind != TIR_MAP || stage->count != 1 || stage->fold != w->stage->fold) return -1;
        reader = q;
    }
    return reader;
}

typedef struct load_of {
    uint32_t tensor;
    tir_expr load;
    int count;
} load_of;

static tir_expr find_load_of(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_of *search = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || node->bits != search->tensor) return rebuilt;
    search->load = e;
    search->count += node->guarded ? 2 : 1;
    return rebuilt;
}

static load_of loads_of(const where *w, tir_expr value, uint32_t tensor) {
    load_of search = {.tensor = tensor};
    tir_rewrite(w->pool, value, find_load_of, &search);
    return search;
}

static bool is_unread(const where *w, tir_expr value) {
    return loads_of(w, value, w->unread).count == 0;
}

/* The condition under which the map that reads stage s uses the value, over the axes of s; 0: always, or not known. */
static tir_expr used_where(const where *w, int s) {
    tir_pool *pool = w->pool;
    const int reader = only_reader(w, s);
    if (reader < 0) return 0;
    where r = *w;
    choices found;
    r.stage = &w->region->stages.data[reader];
    r.unread = w->stage->tensor[0];
    const load_of read = loads_of(&r, r.stage->value[0], r.unread);
    if (read.count != 1 || !find_void(&r, is_unread, 1, &found) || tir_has_load(pool, found.predicate, 0)) return 0;
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    int axes = 0;
    for (int a = 0; a < w->stage->space; a++) {
        from[axes] = tir_operand(pool, read.load, a);
        to[axes] = w->stage->axis[a].var;
        axes += tir_op_of(pool, from[axes]) == TIR_VAR;
    }
    const tir_expr used = tir_substitute(pool, found.predicate, axes, from, to);
    for (int a = 0; a < r.stage->space; a++)
        if (tir_uses(pool, used, r.stage->axis[a].var)) return 0;
    return used;
}

tir_expr tir_skip_condition(tir_region *region, int stage) {
    where w = {.region = region, .pool = region->pool, .stage = &region->stages.data[stage], .zeros = true};
    choices found;
    if (w.stage->kind != TIR_REDUCE || w.stage->count != 1) return 0;
    tir_expr on = find_condition(&w, &found) ? found.predicate : tir_bool(region->pool, true);
    const tir_expr used = used_where(&w, stage);
    if (used) on = tir_and(region->pool, on, used);
    return tir_is_true(region->pool, on) || tir_has_load(region->pool, on, 0) ? 0 : on;
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
