/* Vec loops with guards that may differ between lanes: vectors if the guards hold for all lanes, otherwise lane by lane. */
#include "targets/cuda/emit.h"
#include "tir/region.h"

enum { TERMS = 16, LETS = 16, LARGEST = 300 };

typedef struct paths {
    emitter *e;
    /* the variable of the lanes; the condition that all lanes are active */
    tir_expr var, whole;
    int64_t trips;
    /* variables bound inside the loop: `whole`, which is tested outside, must not use them */
    tir_expr bound[LETS];
    int bound_count, nodes;
} paths;

static bool is_bound_here(const paths *p, tir_expr e) {
    for (int i = 0; i < p->bound_count; i++)
        if (tir_uses(p->e->pool, e, p->bound[i])) return true;
    return false;
}

/* The lane for which a comparison is hardest to satisfy; -1: it is the same for all lanes, or not linear in the lane. */
static int64_t last_lane(paths *p, tir_expr term) {
    tir_pool *pool = p->e->pool;
    tir_expr zero = tir_index(pool, 0), one = tir_index(pool, 1), last = tir_index(pool, p->trips - 1);
    int64_t slope;
    if (!tir_uses(pool, term, p->var) || is_bound_here(p, term)) return -1;
    if (tir_op_of(pool, term) != TIR_LT || tir_dtype_of(pool, tir_operand(pool, term, 0)) != TIR_INDEX) return -1;
    if (tir_substitute(pool, term, 1, &p->var, &zero) == tir_substitute(pool, term, 1, &p->var, &last)) return -1;
    tir_expr difference = tir_sub(pool, tir_operand(pool, term, 0), tir_operand(pool, term, 1));
    tir_expr step = tir_sub(pool, tir_substitute(pool, difference, 1, &p->var, &one),
                            tir_substitute(pool, difference, 1, &p->var, &zero));
    if (!tir_is_const(pool, step, &slope)) return -1;
    if (tir_uses(pool, tir_sub(pool, difference, tir_mul(pool, step, p->var)), p->var)) return -1;
    return slope > 0 ? p->trips - 1 : 0;
}

/* Adds the terms of the condition that depend on the lane to `whole`, and returns the other terms. */
static tir_expr without_lanes(paths *p, tir_expr condition) {
    tir_pool *pool = p->e->pool;
    tir_expr terms[TERMS], left = tir_bool(pool, true);
    const int count = tir_conjuncts(pool, condition, terms, TERMS);
    if (count == TERMS) return condition;
    for (int i = 0; i < count; i++) {
        const int64_t lane = last_lane(p, terms[i]);
        if (lane < 0) {
            left = tir_and(pool, left, terms[i]);
            continue;
        }
        tir_expr number = tir_index(pool, lane), term = tir_substitute(pool, terms[i], 1, &p->var, &number);
        p->whole = p->whole ? tir_and(pool, p->whole, term) : term;
    }
    return left;
}

static tir_expr whole_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    paths *p = user;
    (void)e;
    p->nodes++;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD || !node.guarded) return rebuilt;
    tir_expr index[16], guard = tir_operand(pool, rebuilt, node.count - 2);
    tir_expr left = without_lanes(p, guard);
    if (left == guard) return rebuilt;
    for (int d = 0; d < node.count - 2; d++) index[d] = tir_operand(pool, rebuilt, d);
    const bool always = tir_is_true(pool, left);
    return tir_load(pool, (uint32_t)node.bits, node.dtype, node.count - 2, index, always ? 0 : left,
                    always ? 0 : tir_operand(pool, rebuilt, node.count - 1));
}

/* A copy of the statement without the guards that `whole` implies; NULL: there are several statements, or one of another kind. */
static tir_stmt *whole_body(paths *p, const tir_stmt *stmt) {
    if (!stmt || stmt->next) return NULL;
    tir_stmt *copy = lib_arena_copy(p->e->arena, stmt, sizeof *stmt), *inside = copy;
    if (stmt->kind == TIR_STORE && !stmt->store.async) {
        copy->store.value = tir_rewrite(p->e->pool, stmt->store.value, whole_load, p);
    } else if (stmt->kind == TIR_LET && p->bound_count < LETS) {
        copy->let.value = tir_rewrite(p->e->pool, stmt->let.value, whole_load, p);
        p->bound[p->bound_count++] = stmt->let.var;
        inside = copy->let.body = whole_body(p, stmt->let.body);
    } else if (stmt->kind == TIR_IF && !stmt->if_.otherwise) {
        copy->if_.condition = without_lanes(p, stmt->if_.condition);
        inside = copy->if_.body = whole_body(p, stmt->if_.body);
        if (tir_is_true(p->e->pool, copy->if_.condition)) copy = inside;
    } else {
        return NULL;
    }
    return inside ? copy : NULL;
}

tir_stmt *print_whole_loop(emitter *e, const tir_stmt *loop, tir_expr *whole) {
    paths p = {.e = e, .var = loop->for_.var};
    int64_t lower;
    if (!tir_is_const(e->pool, loop->for_.extent, &p.trips) || !tir_is_const(e->pool, loop->for_.lower, &lower) ||
        lower)
        return NULL;
    tir_stmt *copy = lib_arena_copy(e->arena, loop, sizeof *loop);
    copy->for_.body = whole_body(&p, loop->for_.body);
    copy->next = NULL;
    if (!copy->for_.body || !p.whole || p.nodes > LARGEST) return NULL;
    if (print_shuffles(e, loop->for_.body)) return NULL; /* all lanes of the warp must take the same path */
    *whole = p.whole;
    return copy;
}
