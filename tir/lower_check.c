/* Promises of a schedule that can be checked only on the finished loops: extents of unrolled and vectorised loops are constant, registers
 * are indexed by such loops alone, iterations of a vectorised loop do not write one element. The verifier would report these as bugs; here
 * they are errors of the schedule, in terms of its directives. */
#include "tir/lower.h"

enum { VARIES = 1, FREE = 2 }; /* depends on the vec variable; on a variable that is neither unrolled nor vectorised */

typedef struct checker {
    tir_lowering *l;
    /* by variable id */
    uint8_t *bits;
    /* the FREE variable of the expression checked last */
    const char *free;
    /* the open vec loop */
    const char *vector;
    uint8_t found;
} checker;

static tir_expr find_bits(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    checker *c = user;
    uint8_t here = 0;
    if (tir_op_of(pool, e) == TIR_LOAD) {
        here = FREE;
        c->free = "data";
    } else if (tir_op_of(pool, e) == TIR_VAR) {
        here = c->bits[tir_var_id(pool, e)];
        if (here & FREE) c->free = lib_arena_format(c->l->arena, "loop %s", tir_variable_of(pool, e)->name);
    }
    c->found |= here;
    return rebuilt;
}

static uint8_t bits_of(checker *c, tir_expr e) {
    c->found = 0;
    tir_rewrite(c->l->pool, e, find_bits, c);
    return c->found;
}

static void check_register(checker *c, uint32_t b, int rank, const tir_expr *index) {
    const tir_buffer *buffer = &c->l->kernel->buffers.data[b];
    for (int d = 0; d < rank && buffer->scope == TIR_SCOPE_REG; d++)
        if (bits_of(c, index[d]) & FREE)
            lib_raise(
                c->l->arena->scope, DLC_INVALID_ARGUMENT,
                "schedule of region %s: `store %s reg`: its elements are chosen by %s, which is neither unrolled nor vectorised",
                c->l->region->name, buffer->name, c->free);
}

static tir_expr check_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    checker *c = user;
    const tir_node node = *tir_get(pool, e);
    if (node.op != TIR_LOAD) return rebuilt;
    tir_expr index[TIR_MAX_PHYSICAL_RANK];
    int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, e, d);
    check_register(c, (uint32_t)node.bits, rank, index);
    return rebuilt;
}

static void check_expression(void *user, tir_expr e) {
    checker *c = user;
    tir_rewrite(c->l->pool, e, check_load, c);
}

static void check_list(checker *c, const tir_stmt *stmt);

static void check_loop(checker *c, const tir_stmt *stmt) {
    const char *name = tir_variable_of(c->l->pool, stmt->for_.var)->name, *outer = c->vector;
    int64_t extent;
    bool constant = tir_is_const(c->l->pool, stmt->for_.extent, &extent), vector = stmt->for_.loop == TIR_VEC;
    if (stmt->for_.loop != TIR_SERIAL && !constant)
        lib_raise(
            c->l->arena->scope, DLC_INVALID_ARGUMENT,
            "schedule of region %s: `%s %s`: its trips are not constant, not even in versions of the loops around it",
            c->l->region->name, tir_loop_kind_names[stmt->for_.loop], name);
    uint8_t *bits = &c->bits[tir_var_id(c->l->pool, stmt->for_.var)];
    *bits = (uint8_t)(vector                          ? VARIES
                      : stmt->for_.loop == TIR_SERIAL ? FREE
                                                      : 0) |
            (uint8_t)(bits_of(c, stmt->for_.lower) & FREE);
    if (vector) c->vector = name;
    check_list(c, stmt->for_.body);
    c->vector = outer;
}

static void check_store(checker *c, const tir_stmt *stmt) {
    uint8_t index = 0;
    check_register(c, stmt->store.buffer, stmt->store.rank, stmt->store.index);
    for (int d = 0; d < stmt->store.rank; d++) index |= bits_of(c, stmt->store.index[d]);
    if (c->vector && !(index & VARIES) && !tir_is_exact_reduction(c->l->arena, c->l->kernel, stmt))
        lib_raise(
            c->l->arena->scope, DLC_INVALID_ARGUMENT,
            "schedule of region %s: `vec %s`: its iterations store to one place of %s, and not by one exact operator",
            c->l->region->name, c->vector, c->l->kernel->buffers.data[stmt->store.buffer].name);
}

static void check_list(checker *c, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        tir_stmt_exprs(stmt, check_expression, c);
        switch (stmt->kind) {
        case TIR_FOR: check_loop(c, stmt); break;
        case TIR_LET:
            c->bits[tir_var_id(c->l->pool, stmt->let.var)] = bits_of(c, stmt->let.value);
            check_list(c, stmt->let.body);
            break;
        case TIR_IF:
            check_list(c, stmt->if_.body);
            check_list(c, stmt->if_.otherwise);
            break;
        case TIR_STORE: check_store(c, stmt); break;
        case TIR_COLLECTIVE:
            for (int p = 0; p < stmt->collective.unit->places; p++) {
                const tir_place *place = &stmt->collective.place[p];
                check_register(c, place->buffer, place->rank, place->index);
            }
            break;
        default: break;
        }
    }
}

void tir_lower_check(tir_lowering *l) {
    checker c = {.l = l, .bits = LIB_NEW_ARRAY(l->arena, uint8_t, l->pool->variables.count + 1)};
    for (uint32_t i = 0; i < l->kernel->params.count; i++)
        c.bits[tir_var_id(l->pool, l->kernel->params.data[i])] = FREE;
    for (uint32_t p = 0; p < l->kernel->phases.count; p++) {
        c.bits[tir_var_id(l->pool, l->kernel->phases.data[p].task)] = FREE;
        check_list(&c, l->kernel->phases.data[p].body);
    }
    tir_lower_check_collectives(l);
}
