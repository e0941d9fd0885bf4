/* beside S D.row by a=loop ... : the reduction S is updated in the loops of the root D, which does not read it. (In the derivatives of a norm, D
 * is the derivative by the input, computed row by row, and S the derivative by the scale, which sums the operands of all these rows by columns.)
 *
 * An axis of S that `by` names runs with a loop of D, or with an axis of D that is split into loops; along the others S has loops of its own. So
 * that each point of S is updated once and begins before its first update:
 *
 *   - each loop of D around S, down to the one that it is beside, belongs to an axis that `by` names, and each such axis to one axis of S
 *   - loops along axes of the result come before those along axes that are reduced, which are neither parallel nor vectors; S begins before the
 *     first of the latter
 *   - an axis of S that `by` names has as many points as the loop or axis of D that it names
 *   - S reads only those results of D that D has computed in this iteration */
#include "tir/schedule_internal.h"

static const tir_axis_node *node_at(const tir_schedule_state *state, int stage, int node) {
    return &state->plan[stage].nodes.data[node];
}

void tir_apply_beside(tir_schedule_state *state, int stage, int owner, lib_lexer *lexer) {
    const tir_stage *s = &state->region->stages.data[stage];
    tir_stage_plan *plan = &state->plan[stage];
    plan->beside = true;
    for (int a = 0; a < s->space + s->reduce; a++) plan->by[a] = -1;
    lib_lexer_expect(lexer, "by");
    while (lexer->kind == LIB_NAME) {
        const char *mine = lib_lexer_name(lexer);
        int axis = 0;
        while (axis < s->space + s->reduce && strcmp(s->axis[axis].name, mine) != 0) axis++;
        if (axis == s->space + s->reduce) tir_schedule_raise(state, "stage %s has no axis %s", s->name, mine);
        lib_lexer_expect(lexer, "=");
        plan->by[axis] = tir_find_node(state, owner, lib_lexer_name(lexer));
    }
}

/* The axis of the stage that runs with the owner's node, or with one that it is a part of; -1: none. */
static int axis_with(const tir_schedule_state *state, int stage, int node) {
    const tir_stage *s = &state->region->stages.data[stage];
    const tir_stage_plan *plan = &state->plan[stage];
    for (; node >= 0; node = node_at(state, plan->at_stage, node)->parent)
        for (int a = 0; a < s->space + s->reduce; a++)
            if (plan->by[a] == node) return a;
    return -1;
}

static uint32_t loops_around(const tir_schedule_state *state, int stage) {
    const tir_stage_plan *plan = &state->plan[stage], *owner = &state->plan[plan->at_stage];
    uint32_t count = 0;
    while (owner->order.data[count] != plan->at_node) count++;
    return count + 1;
}

uint32_t tir_beside_begin(const tir_schedule_state *state, int stage) {
    const tir_stage_plan *plan = &state->plan[stage];
    const int space = state->region->stages.data[stage].space;
    const uint32_t count = loops_around(state, stage);
    uint32_t k = 0;
    while (k < count && axis_with(state, stage, state->plan[plan->at_stage].order.data[k]) < space) k++;
    return k;
}

void tir_check_beside(tir_schedule_state *state, int stage) {
    const tir_stage *s = &state->region->stages.data[stage];
    const tir_stage_plan *plan = &state->plan[stage], *owner = &state->plan[plan->at_stage];
    const tir_stage *o = &state->region->stages.data[plan->at_stage];
    const char *name = s->name;
    state->line = lib_arena_format(state->arena, "beside %s %s.%s", name, o->name,
                                   node_at(state, plan->at_stage, plan->at_node)->name);
    if (s->kind != TIR_REDUCE || s->fold >= 0 || plan->unit)
        tir_schedule_raise(state, "%s is no plain reduction", name);
    if (owner->at_stage >= 0 || o->kind != TIR_MAP || o->fold >= 0)
        tir_schedule_raise(state, "%s is no root that is a map", o->name);
    if (plan->has_scope) tir_schedule_raise(state, "%s is in memory, since %s does not read it", name, o->name);
    for (int c = 0; c < s->count; c++)
        if (tir_has_load(state->region->pool, s->initial[c], 0))
            tir_schedule_raise(state, "%s begins with a loaded value", name);
    for (uint32_t n = 0; n < plan->nodes.count; n++)
        if (plan->by[plan->nodes.data[n].axis] >= 0 && (plan->nodes.data[n].clip || plan->nodes.data[n].skip))
            tir_schedule_raise(state, "loop %s of %s has the points of %s's loops, and no bounds of its own",
                               plan->nodes.data[n].name, name, o->name);
    const uint32_t count = loops_around(state, stage), begin = tir_beside_begin(state, stage);
    for (uint32_t k = 0; k < count; k++) {
        const tir_axis_node *leaf = node_at(state, plan->at_stage, owner->order.data[k]);
        const int axis = axis_with(state, stage, owner->order.data[k]);
        if (axis < 0) tir_schedule_raise(state, "no axis of %s runs with loop %s", name, leaf->name);
        if (k > begin && axis < s->space)
            tir_schedule_raise(state, "loop %s is along the result, inside of one that is reduced", leaf->name);
        if (axis >= s->space && (leaf->parallel || leaf->kind == TIR_VEC || leaf->kind == TIR_THREAD))
            tir_schedule_raise(state, "loop %s is along an axis that is reduced: it cannot be parallel", leaf->name);
        if (leaf->kind == TIR_VEC) tir_schedule_raise(state, "loop %s is a vector", leaf->name);
    }
    for (int a = 0; a < s->space + s->reduce; a++) {
        if (plan->by[a] < 0) continue;
        for (int b = 0; b < a; b++)
            if (plan->by[b] == plan->by[a])
                tir_schedule_raise(state, "two axes run with %s", node_at(state, plan->at_stage, plan->by[a])->name);
        for (int n = node_at(state, plan->at_stage, plan->by[a])->parent; n >= 0;
             n = node_at(state, plan->at_stage, n)->parent)
            if (axis_with(state, stage, n) >= 0)
                tir_schedule_raise(state, "%s is a part of another axis that `by` names",
                                   node_at(state, plan->at_stage, plan->by[a])->name);
    }
}

/* Do the loops into which the node is split have each of its points once, and none beyond its end? */
static bool has_each_point_once(tir_schedule_state *state, int owner, int node) {
    const tir_axis_node *n = node_at(state, owner, node);
    int64_t extent;
    if (n->fused >= 0) return false;
    if (n->outer < 0) return true;
    if (n->mode == TIR_TAIL_OVERLAP) return false;
    const bool even =
        tir_is_const(state->region->pool, tir_node_extent(state, owner, node), &extent) && extent % n->factor == 0;
    if (n->mode == TIR_TAIL_MASK && !even) return false;
    return has_each_point_once(state, owner, n->outer) && has_each_point_once(state, owner, n->inner);
}

typedef struct reading {
    tir_schedule_state *state;
    int stage;
} reading;

/* `load` is one of the stage's: of the owner, it must be of points that this iteration has computed. */
static void check_load(void *user, tir_expr load) {
    const reading *r = user;
    tir_schedule_state *state = r->state;
    tir_pool *pool = state->region->pool;
    const tir_tensor *tensor = &state->region->tensors.data[tir_get(pool, load)->bits];
    const int owner = state->plan[r->stage].at_stage;
    if (tensor->stage != owner) return;
    const tir_stage *s = &state->region->stages.data[r->stage];
    for (int d = 0; d < tensor->rank; d++) {
        const tir_span there = tir_axis_view(state, owner, d);
        tir_expr from[TIR_MAX_AXES], first[TIR_MAX_AXES], last[TIR_MAX_AXES];
        for (int a = 0; a < s->space + s->reduce; a++) {
            const tir_stage_plan *plan = &state->plan[r->stage];
            from[a] = s->axis[a].var;
            first[a] = plan->low[a];
            last[a] = tir_add(pool, plan->low[a], tir_sub(pool, plan->extent[a], tir_index(pool, 1)));
        }
        const tir_expr index = tir_operand(pool, load, d);
        const tir_expr low = tir_substitute(pool, index, s->space + s->reduce, from, first),
                       high = tir_substitute(pool, index, s->space + s->reduce, from, last);
        bool rising = true; /* a sum of axes, with coefficients above 0 */
        tir_term terms[TIR_MAX_AXES];
        int64_t constant;
        const int count = tir_terms(pool, index, terms, TIR_MAX_AXES, &constant);
        for (int t = 0; t < count; t++)
            rising = rising && terms[t].coefficient > 0 && tir_op_of(pool, terms[t].atom) == TIR_VAR;
        if (count < 0 || !rising || tir_prove(pool, tir_le(pool, there.low, low)) != TIR_YES ||
            tir_prove(pool, tir_lt(pool, high, tir_add(pool, there.low, there.extent))) != TIR_YES)
            tir_schedule_raise(state, "%s reads points of %s that this iteration has not computed", s->name,
                               tensor->name);
    }
}

/* The owner's axis is split in tiles, of which the last may have fewer points than `axis` of the stage has. Is the predicate false at the points
 * that are missing: outer*tile + axis < extent of the owner's axis? */
static bool ends_with_tile(tir_schedule_state *state, int stage, int axis) {
    tir_pool *pool = state->region->pool;
    const tir_stage *s = &state->region->stages.data[stage];
    const tir_stage_plan *plan = &state->plan[stage];
    const tir_axis_node *node = node_at(state, plan->at_stage, plan->by[axis]);
    const tir_axis_node *split = node->parent < 0 ? NULL : node_at(state, plan->at_stage, node->parent);
    if (!split || split->parent >= 0 || split->mode != TIR_TAIL_PEEL || split->inner != plan->by[axis]) return false;
    const int outer = axis_with(state, stage, split->outer);
    if (outer < 0 || plan->by[outer] != split->outer) return false;
    if (!tir_is_number(pool, s->axis[axis].extent, split->factor)) return false;
    const tir_expr whole = state->region->stages.data[plan->at_stage].axis[split->axis].extent;
    const tir_expr point =
        tir_add(pool, tir_mul(pool, s->axis[outer].var, tir_index(pool, split->factor)), s->axis[axis].var);
    tir_expr terms[TIR_MAX_AXES];
    const int count = tir_conjuncts(pool, s->predicate, terms, TIR_MAX_AXES);
    for (int i = 0; i < count; i++)
        if (terms[i] == tir_lt(pool, point, whole)) return true;
    return false;
}

void tir_check_beside_extents(tir_schedule_state *state, int stage) {
    const tir_stage *s = &state->region->stages.data[stage];
    const tir_stage_plan *plan = &state->plan[stage];
    reading r = {state, stage};
    for (int a = 0; a < s->space + s->reduce; a++) {
        if (plan->by[a] < 0) continue;
        const tir_axis_node *node = node_at(state, plan->at_stage, plan->by[a]);
        if (s->axis[a].extent != tir_node_extent(state, plan->at_stage, plan->by[a]) &&
            !ends_with_tile(state, stage, a))
            tir_schedule_raise(state, "axis %s of %s has another number of points than %s", s->axis[a].name, s->name,
                               node->name);
        if (!has_each_point_once(state, plan->at_stage, plan->by[a]))
            tir_schedule_raise(state, "the loops of %s have points more than once, or beyond its end", node->name);
    }
    tir_stage_loads(state->region, stage, check_load, &r);
}
