/* `operand C.i -> xs`: the factor of C's products that uses axis i, which the other factor does not, becomes a map of its own over the axes
 * that it uses: the part that a tile of C reads can then be attached to a loop, for example in shared memory. Casts around the factor that
 * widen it stay with the products.
 *
 * Where a term of C's predicate on these axes is false, the factor is 0. With `deviates zero*nonfinite` the term is removed from
 * the predicate, and the products are added: exact unless the other factor is infinite or NaN. */
#include "tir/access.h"
#include "tir/schedule_internal.h"

typedef struct replacement {
    tir_expr from, to;
} replacement;

static tir_expr replace(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const replacement *r = user;
    (void)pool;
    return e == r->from ? r->to : rebuilt;
}

/* Guards loads that would be out of bounds if the condition is false. */
static tir_expr guard_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_expr condition = *(const tir_expr *)user;
    const tir_node node = *tir_get(pool, rebuilt);
    tir_expr index[DLC_MAX_RANK], guard = condition, other = tir_float(pool, node.dtype, 0);
    (void)e;
    if (node.op != TIR_LOAD) return rebuilt;
    const int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, rebuilt, d);
    if (node.guarded) {
        guard = tir_and(pool, condition, tir_operand(pool, rebuilt, rank));
        other = tir_operand(pool, rebuilt, rank + 1);
    }
    return tir_load(pool, (uint32_t)node.bits, node.dtype, rank, index, guard, other);
}

/* The terms of the predicate that use only axes of the factor; *rest: the other terms. */
static tir_expr own_condition(tir_schedule_state *state, const tir_stage *stage, const bool *uses, tir_expr *rest) {
    enum { TERMS = 64 };
    tir_pool *pool = state->region->pool;
    tir_expr terms[TERMS], own = 0;
    const int count = stage->predicate ? tir_conjuncts(pool, stage->predicate, terms, TERMS) : 0;
    *rest = 0;
    for (int i = 0; i < count; i++) {
        bool inside = true;
        for (int a = 0; a < stage->space + stage->reduce; a++)
            inside = inside && (uses[a] || !tir_uses(pool, terms[i], stage->axis[a].var));
        tir_expr *all = inside ? &own : rest;
        *all = *all ? tir_and(pool, *all, terms[i]) : terms[i];
    }
    return own;
}

static bool accept_deviation(tir_schedule_state *state, lib_lexer *lexer) {
    if (!lib_lexer_accept(lexer, "deviates")) return false;
    const char *name = lib_lexer_name(lexer);
    if (strcmp(name, "zero") != 0 || !lib_lexer_accept(lexer, "*") || strcmp(lib_lexer_name(lexer), "nonfinite") != 0)
        tir_schedule_raise(state, "an operand can deviate in zero*nonfinite only");
    return true;
}

/* The factor that uses the axis, without casts that widen it. */
static tir_expr factor_of(tir_schedule_state *state, const tir_stage *stage, const char *axis) {
    tir_pool *pool = state->region->pool;
    tir_expr factor[2];
    int found = -1, a = 0;
    while (a < stage->space + stage->reduce && strcmp(stage->axis[a].name, axis) != 0) a++;
    if (a == stage->space + stage->reduce) tir_schedule_raise(state, "stage %s has no axis %s", stage->name, axis);
    if (!tir_sum_of_products(pool, stage, &factor[0], &factor[1]))
        tir_schedule_raise(state, "%s is no sum of products", stage->name);
    for (int f = 0; f < 2; f++)
        if (tir_uses(pool, factor[f], stage->axis[a].var)) found = found < 0 ? f : 2;
    if (found < 0 || found == 2) tir_schedule_raise(state, "%s does not tell the factors apart", axis);
    return tir_unwidened(pool, factor[found]);
}

void tir_apply_operand(tir_schedule_state *state, lib_lexer *lexer) {
    const char *axis;
    const int s = tir_read_dotted(state, lexer, &axis);
    lib_lexer_expect(lexer, "->");
    const char *name = tir_unique_name(state, lib_lexer_name(lexer));
    const tir_stage reader = state->region->stages.data[s];
    tir_pool *pool = state->region->pool;
    const tir_expr factor = factor_of(state, &reader, axis);
    bool uses[TIR_MAX_AXES];
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], rest = reader.predicate, condition = 0, value = factor;
    int rank = 0;
    for (int a = 0; a < reader.space + reader.reduce; a++) uses[a] = tir_uses(pool, factor, reader.axis[a].var);
    const bool deviates = accept_deviation(state, lexer);
    condition = own_condition(state, &reader, uses, &rest);
    if (!deviates) rest = reader.predicate;
    tir_stage map = {.name = name, .kind = TIR_MAP, .fold = reader.fold}; /* in a fold: a further step */
    for (int a = 0; a < reader.space + reader.reduce; a++) {
        if (condition && tir_uses(pool, condition, reader.axis[a].var)) uses[a] = true;
        if (!uses[a]) continue;
        if (rank == DLC_MAX_RANK) tir_schedule_raise(state, "the operand would have more than %d axes", DLC_MAX_RANK);
        map.axis[rank] = tir_axis_like(state, &reader.axis[a], reader.axis[a].extent);
        from[rank] = reader.axis[a].var;
        to[rank] = map.axis[rank].var;
        rank++;
    }
    if (condition) {
        value = tir_rewrite(pool, value, guard_load, &condition);
        if (tir_op_of(pool, factor) != TIR_LOAD)
            value = tir_select(pool, condition, value, tir_float(pool, tir_dtype_of(pool, value), 0));
    }
    map.space = rank;
    *tir_insert_stage(state, s) = map;
    tir_tensor tensor = {.name = name,
                         .dtype = (dlc_dtype)tir_dtype_of(pool, factor),
                         .rank = rank,
                         .layout = tir_layout_identity(rank),
                         .alignment = (int32_t)lib_dtype_size((dlc_dtype)tir_dtype_of(pool, factor)),
                         .stage = s,
                         .argument = -1};
    for (int d = 0; d < rank; d++) tensor.extent[d] = map.axis[d].extent;
    lib_vec_push(state->region->arena, &state->region->tensors, tensor);
    const uint32_t id = state->region->tensors.count - 1;
    tir_stage *stage = &state->region->stages.data[s];
    stage->count = 1;
    stage->tensor[0] = id;
    stage->value[0] = tir_substitute(pool, value, rank, from, to);
    stage = &state->region->stages.data[s + 1];
    replacement r = {factor, tir_load(pool, id, tir_dtype_of(pool, factor), rank, from, 0, 0)};
    stage->value[0] = tir_rewrite(pool, stage->value[0], replace, &r);
    stage->predicate = rest;
}
