/* `seed S`: if a map is the only reader of sum S, point by point and as  x + S , it becomes the sum itself, with initial value x instead of
 * 0: the accumulators of a matrix unit, or registers, hold x before the first product. Roundings change. A reduction whose initial value is
 * not the identity cannot be combined from parts, so it has no merge. */
#include "tir/schedule_internal.h"

/* The only stage that reads the sum; -1: none, or several. */
static int only_reader(tir_schedule_state *state, const tir_stage *sum) {
    int reader = -1;
    for (int q = 0; q < (int)state->region->stages.count; q++) {
        if (state->region->stages.data[q].removed || !tir_stage_reads(state->region, q, sum->tensor[0])) continue;
        if (reader >= 0) return -1;
        reader = q;
    }
    return reader;
}

/* Whether this is the sum's value at the map's own point. */
static bool is_sum_here(const tir_pool *pool, tir_expr e, const tir_stage *sum, const tir_stage *map) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || node->guarded || node->bits != sum->tensor[0] || map->space != sum->space) return false;
    for (int a = 0; a < map->space; a++)
        if (tir_operand(pool, e, a) != map->axis[a].var || map->axis[a].extent != sum->axis[a].extent) return false;
    return true;
}

/* The other summand; 0: the map has another form. */
static tir_expr beginning(const tir_pool *pool, const tir_stage *sum, const tir_stage *map) {
    if (tir_op_of(pool, map->value[0]) != TIR_ADD) return 0;
    tir_expr a = tir_operand(pool, map->value[0], 0), b = tir_operand(pool, map->value[0], 1);
    return is_sum_here(pool, b, sum, map) ? a : is_sum_here(pool, a, sum, map) ? b : 0;
}

static tir_expr on_axes_of(tir_pool *pool, const tir_stage *sum, const tir_stage *map, tir_expr e) {
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < map->space; a++) from[a] = sum->axis[a].var, to[a] = map->axis[a].var;
    return e ? tir_substitute(pool, e, map->space, from, to) : 0;
}

/* The term that the update adds to acc; 0: the update is no sum of acc and a term. */
static tir_expr summand(const tir_pool *pool, tir_expr update, tir_expr acc) {
    if (tir_op_of(pool, update) != TIR_ADD) return 0;
    const tir_expr a = tir_operand(pool, update, 0), b = tir_operand(pool, update, 1);
    return a == acc ? b : b == acc ? a : 0;
}

void tir_apply_seed(tir_schedule_state *state, lib_lexer *lexer) {
    tir_pool *pool = state->region->pool;
    const int s = tir_find_stage(state, lib_lexer_name(lexer));
    const tir_stage sum = state->region->stages.data[s];
    const tir_expr acc = tir_acc(pool, tir_dtype_of(pool, sum.value[0]), 0);
    if (sum.kind != TIR_REDUCE || sum.count != 1 || state->region->tensors.data[sum.tensor[0]].output)
        tir_schedule_raise(state, "%s is no sum of the region's own", sum.name);
    const tir_node update = *tir_get(pool, sum.value[0]);
    const bool product = update.op == TIR_MULADD && tir_operand(pool, sum.value[0], 2) == acc;
    if ((!product && !summand(pool, sum.value[0], acc)) ||
        sum.initial[0] != tir_int(pool, tir_dtype_of(pool, sum.value[0]), 0))
        tir_schedule_raise(state, "%s is no sum that begins with 0", sum.name);
    const int reader = only_reader(state, &sum);
    if (reader < 0) tir_schedule_raise(state, "%s must have one reader", sum.name);
    tir_stage map = state->region->stages.data[reader];
    if (map.kind != TIR_MAP || map.count != 1 || map.fold != sum.fold)
        tir_schedule_raise(state, "%s is no map beside %s", map.name, sum.name);
    const tir_expr first = beginning(pool, &sum, &map);
    if (!first) tir_schedule_raise(state, "%s is not %s, at its own points, and something else", map.name, sum.name);
    map.kind = TIR_REDUCE;
    map.reduce = sum.reduce;
    for (int a = sum.space; a < sum.space + sum.reduce; a++) map.axis[a] = sum.axis[a];
    map.value[0] = on_axes_of(pool, &sum, &map, sum.value[0]);
    map.predicate = on_axes_of(pool, &sum, &map, sum.predicate);
    map.initial[0] = first;
    map.merge[0] = 0;
    state->region->stages.data[reader] = map;
    state->region->stages.data[s].removed = true;
}
