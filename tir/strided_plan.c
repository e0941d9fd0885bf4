/* Which stores of a vectorised kernel wait for their neighbours in memory, and how many of these there are. Found by a walk in the order of
 * execution, in which unrolled loops are repeated and the addresses of stores are linear in the lane. Works on a copy of the kernel's pool. */
#include "tir/strided.h"

/* What became of a statement's stores in a lanes loop; the vectors of a vec loop share their statements. */
typedef struct outcome {
    const tir_stmt *stmt, *loop;
    /* most that were made together; 0: none has waited */
    int rows;
    /* most that could be, by the number of lanes */
    int most;
    /* some were made by a loop over the lanes; some have neighbours with other numbers of lanes */
    bool lane_loop, differ;
    /* why there were no more */
    const char *why;
} outcome;

/* A store that waits. */
typedef struct waiting {
    tir_strided s;
    uint32_t outcome;
} waiting;

/* A lanes loop, and its body before the pass. */
typedef struct lanes_loop {
    tir_stmt *loop, *body;
} lanes_loop;

typedef struct known_variable {
    tir_expr var, value;
} known_variable;

typedef struct planner {
    lib_arena *arena;
    tir_kernel *kernel;
    tir_pool *pool;
    /* only stores with a way wait */
    bool checks;
    tir_strided_list list;
    /* why stores are being made */
    const char *why;
    lib_vec(outcome) outcomes;
    lib_map outcome_map;
    lib_vec(lanes_loop) loops;
    lib_map loop_map;
    /* the lanes loop around the statement */
    const tir_stmt *loop;
    /* variables in scope whose value is known, outermost first */
    lib_vec(known_variable) known;
    /* by variable: 1 + its position in `known`; 0: unknown. The highest that `is_known` has found */
    uint32_t *place, innermost;
    /* of the vector: the variable that stands for its lanes; 0: no vector */
    tir_expr lane;
    int lanes, active;
    /* only some lanes store */
    bool masked;
    /* by number of active lanes: the variable that stands for them */
    tir_expr lane_of[TIR_MAX_LANES + 1];
    /* by expression: number of the last visit */
    uint32_t *seen, seen_count, now;
    lib_vec(tir_expr) stack;
} planner;

/* ---- what becomes of stores */

static uint32_t outcome_number(planner *p, const tir_stmt *stmt, const tir_stmt *loop) {
    const uint64_t hash = lib_hash_mix((uintptr_t)stmt, (uintptr_t)loop);
    for (uint32_t at = lib_map_first(&p->outcome_map, hash); at != LIB_MAP_END;
         at = lib_map_next(&p->outcome_map, hash, at)) {
        const uint32_t i = p->outcome_map.slots[at].value;
        if (p->outcomes.data[i].stmt == stmt && p->outcomes.data[i].loop == loop) return i;
    }
    lib_map_insert(p->arena, &p->outcome_map, hash, p->outcomes.count);
    lib_vec_push(p->arena, &p->outcomes, ((outcome){.stmt = stmt, .loop = loop}));
    return p->outcomes.count - 1;
}

/* Valid until the next call. */
static outcome *outcome_of(planner *p, const tir_stmt *stmt, const tir_stmt *loop) {
    const uint32_t number = outcome_number(p, stmt, loop);
    return &p->outcomes.data[number];
}

static void note(planner *p, const tir_strided *store, int rows, bool lane_loop) {
    outcome *o = &p->outcomes.data[((const waiting *)store)->outcome];
    if (rows > o->rows) {
        o->rows = rows;
        o->why = p->why;
    }
    o->lane_loop |= lane_loop;
}

static void note_transposed(void *user, tir_strided *const *store, int count) {
    for (int i = 0; i < count; i++) note(user, store[i], count, false);
}

static void note_separate(void *user, tir_strided *const *store, int count, bool looped) {
    for (int i = 0; i < count; i++) note(user, store[i], 1, looped);
}

static void flush(planner *p, const char *why) {
    p->why = why;
    tir_strided_flush(&p->list);
}

/* ---- expressions */

static tir_expr at_lane_0(planner *p, tir_expr e) {
    const tir_expr zero = tir_index(p->pool, 0);
    return tir_substitute(p->pool, e, 1, &p->lane, &zero);
}

static tir_expr without_constant(planner *p, tir_expr e, int64_t *constant) {
    const tir_expr zero = tir_index(p->pool, 0);
    *constant = 0;
    if (tir_is_const(p->pool, e, constant)) return zero;
    if (tir_op_of(p->pool, e) == TIR_ADD) tir_is_const(p->pool, tir_operand(p->pool, e, 1), constant);
    return tir_sub(p->pool, e, tir_index(p->pool, *constant));
}

typedef bool (*node_test)(planner *p, const tir_node *node);

/* Does a node below `root` pass the test? Visits none twice until p->now changes. */
static bool find(planner *p, tir_expr root, node_test test) {
    if (p->seen_count < p->pool->nodes.count) {
        p->seen_count = 2 * p->pool->nodes.count;
        p->seen = LIB_NEW_ARRAY(p->arena, uint32_t, p->seen_count);
    }
    p->stack.count = 0;
    lib_vec_push(p->arena, &p->stack, root);
    while (p->stack.count) {
        const tir_expr e = p->stack.data[--p->stack.count];
        const tir_node *node = tir_get(p->pool, e);
        if (p->seen[e] == p->now) continue;
        p->seen[e] = p->now;
        if (test(p, node)) return true;
        for (int i = 0; i < (int)node->count; i++) lib_vec_push(p->arena, &p->stack, tir_operand(p->pool, e, i));
    }
    return false;
}

static bool find_in(planner *p, tir_expr root, node_test test) {
    p->now++;
    return find(p, root, test);
}

static bool is_known(planner *p, const tir_node *node) {
    if (node->op == TIR_VAR && p->place[node->bits] > p->innermost) p->innermost = p->place[node->bits];
    return false;
}

/* With the values of known variables, innermost first: a value depends on variables further out. */
static tir_expr resolve(planner *p, tir_expr e) {
    for (;;) {
        p->innermost = 0;
        find_in(p, e, is_known);
        if (!p->innermost) return e;
        const known_variable *k = &p->known.data[p->innermost - 1];
        e = tir_substitute(p->pool, e, 1, &k->var, &k->value);
    }
}

static bool loads_written(planner *p, const tir_node *node) {
    return node->op == TIR_LOAD && p->kernel->buffers.data[node->bits].written;
}

static bool loads_waiting(planner *p, const tir_node *node) {
    return node->op == TIR_LOAD && tir_strided_waits(&p->list, (uint32_t)node->bits);
}

/* Makes the stores that wait if the expression reads what they store. */
static void note_loads(void *user, tir_expr root) {
    planner *p = user;
    if (p->list.count && find(p, root, loads_waiting)) flush(p, "the buffer is read before they are all there");
}

typedef struct search {
    const tir_kernel *kernel;
    /* of the lanes loop */
    tir_expr lane;
    bool lets, found;
} search;

static bool is_in_memory(const tir_kernel *kernel, const tir_stmt *stmt) {
    return stmt->kind == TIR_STORE && kernel->buffers.data[stmt->store.buffer].scope != TIR_SCOPE_REG;
}

static void search_memory(void *user, const tir_stmt *stmt) {
    search *s = user;
    s->found |= is_in_memory(s->kernel, stmt);
}

/* ---- stores */

/* Is the store one of lanes that are a distance apart, of which the target knows that it is constant? */
static bool address_of(planner *p, const tir_stmt *stmt, tir_strided *s) {
    const tir_buffer *b = &p->kernel->buffers.data[stmt->store.buffer];
    tir_expr fixed = tir_index(p->pool, 0), rest = fixed, along = 0;
    int64_t constant, stride;
    *s = (tir_strided){.buffer = stmt->store.buffer, .dimension = -1, .lanes = p->lanes, .active = p->active};
    for (int d = 0; d < stmt->store.rank; d++) {
        const tir_expr index = resolve(p, stmt->store.index[d]);
        if (tir_is_const(p->pool, b->stride[d], &stride)) {
            fixed = tir_add(p->pool, fixed, tir_mul(p->pool, index, b->stride[d]));
            continue;
        }
        const tir_expr first = at_lane_0(p, index);
        rest = tir_add(p->pool, rest, tir_mul(p->pool, first, b->stride[d]));
        if (!tir_uses(p->pool, index, p->lane)) continue;
        if (along || tir_coefficient(p->pool, index, p->lane) != 1) return false;
        along = first;
        s->dimension = d;
        s->step = b->stride[d];
    }
    stride = tir_coefficient(p->pool, fixed, p->lane);
    if (stride == 0 && tir_uses(p->pool, fixed, p->lane)) return false;
    if (along ? stride != 0 : stride >= -1 && stride <= 1) return false;
    const tir_expr offset = tir_add(p->pool, rest, at_lane_0(p, fixed));
    if (find_in(p, offset, loads_written)) return false; /* its value may differ between stores */
    s->size = (int64_t)lib_dtype_size(b->dtype);
    s->base = without_constant(p, offset, &constant);
    s->displacement = constant * s->size;
    s->stride = stride * s->size;
    if (along) s->along = without_constant(p, along, &s->first);
    /* Stores are neighbours if their elements have one size, as many lanes, and are both floats or both not. */
    s->type = (uint64_t)s->size << 32 | (uint64_t)p->lanes << 1 | (b->dtype == DLC_F32 || b->dtype == DLC_F64);
    s->rows = p->lanes < TIR_STRIDED_ROWS ? p->lanes : TIR_STRIDED_ROWS;
    return true;
}

/* Notes stores that would be neighbours of this one if they had as many lanes. */
static void note_different(planner *p, outcome *own, const tir_strided *s) {
    for (int i = 0; i < p->list.count; i++) {
        const tir_strided *other = p->list.store[i];
        const int64_t distance = other->displacement - s->displacement;
        if (other->base != s->base || other->step != s->step || other->stride != s->stride) continue;
        if (distance != s->size && distance != -s->size) continue;
        if (other->lanes == s->lanes && other->active == s->active) continue;
        own->differ = p->outcomes.data[((const waiting *)other)->outcome].differ = true;
    }
}

static void visit_store(planner *p, const tir_stmt *stmt) {
    const uint32_t buffer = stmt->store.buffer;
    if (!is_in_memory(p->kernel, stmt)) return;
    waiting *w = LIB_NEW(p->arena, waiting);
    outcome *o = NULL;
    if (p->lane) {
        o = outcome_of(p, stmt, p->loop);
        w->outcome = (uint32_t)(o - p->outcomes.data);
    }
    const bool waits = o && !p->masked && (stmt->store.rows || !p->checks) && address_of(p, stmt, &w->s);
    if (!waits) {
        if (o && !o->rows)
            o->why = p->masked ? "only some of its lanes are stored"
                               : "its lanes are not at a known distance, or next to each other";
        if (tir_strided_waits(&p->list, buffer)) flush(p, "the buffer is stored otherwise before they are all there");
        return;
    }
    if (p->checks) note_different(p, o, &w->s);
    if (w->s.rows > o->most) o->most = w->s.rows;
    p->why = "another store overlaps them";
    tir_strided_wait(&p->list, &w->s);
}

/* ---- statements */

static void visit_list(planner *p, tir_stmt *list);

static void enter(planner *p, tir_expr var, tir_expr value) {
    lib_vec_push(p->arena, &p->known, ((known_variable){var, value}));
    p->place[tir_var_id(p->pool, var)] = p->known.count;
}

/* Leaves all variables but the outermost `count`. */
static void leave(planner *p, uint32_t count) {
    while (p->known.count > count) p->place[tir_var_id(p->pool, p->known.data[--p->known.count].var)] = 0;
}

static void visit_with(planner *p, tir_expr var, tir_expr value, tir_stmt *body) {
    enter(p, var, value);
    visit_list(p, body);
    leave(p, p->known.count - 1);
}

static void note_loop(planner *p, tir_stmt *loop) {
    const uint64_t hash = lib_hash_mix((uintptr_t)loop, 0);
    for (uint32_t at = lib_map_first(&p->loop_map, hash); at != LIB_MAP_END; at = lib_map_next(&p->loop_map, hash, at))
        if (p->loops.data[p->loop_map.slots[at].value].loop == loop) return;
    lib_map_insert(p->arena, &p->loop_map, hash, p->loops.count);
    lib_vec_push(p->arena, &p->loops, ((lanes_loop){loop, loop->for_.body}));
}

static void visit_lanes(planner *p, tir_stmt *loop, int64_t active) {
    if (loop->for_.width <= 1 || active > TIR_MAX_LANES) { /* a scalar has no lanes, whatever its statements say */
        visit_with(p, loop->for_.var, loop->for_.lower, loop->for_.body);
        return;
    }
    note_loop(p, loop);
    tir_expr *lane = &p->lane_of[active];
    if (!*lane) *lane = tir_loop_variable(p->pool, "lane", tir_index(p->pool, 0), tir_index(p->pool, active));
    p->loop = loop;
    p->lane = *lane;
    p->lanes = loop->for_.width;
    p->active = (int)active;
    visit_with(p, loop->for_.var, tir_add(p->pool, loop->for_.lower, *lane), loop->for_.body);
    p->lane = 0;
}

static void visit_for(planner *p, tir_stmt *loop) {
    int64_t extent = 0;
    const bool constant = tir_is_const(p->pool, resolve(p, loop->for_.extent), &extent);
    if (constant && extent <= 0) return;
    search memory = {.kernel = p->kernel};
    if (!p->list.count) tir_stmt_walk(loop->for_.body, search_memory, &memory);
    if (!p->list.count && !memory.found) return; /* most loops of a reduction */
    if (loop->for_.loop == TIR_LANES) {
        visit_lanes(p, loop, extent);
    } else if (loop->for_.loop == TIR_UNROLL) {
        for (int64_t i = 0; i < extent; i++)
            visit_with(p, loop->for_.var, tir_add(p->pool, loop->for_.lower, tir_index(p->pool, i)), loop->for_.body);
    } else if (constant && (extent == loop->for_.step || loop->for_.loop == TIR_ROWS)) {
        visit_with(p, loop->for_.var, loop->for_.lower, loop->for_.body);
    } else {
        flush(p, "a loop begins before they are all there");
        visit_list(p, loop->for_.body);
        flush(p, "the loop's body ends before they are all there");
    }
}

static void visit_branch(planner *p, tir_stmt *list, bool masked) {
    const bool before = p->masked;
    p->masked = masked;
    flush(p, "a branch begins before they are all there");
    visit_list(p, list);
    flush(p, "a branch ends before they are all there");
    p->masked = before;
}

static bool is_unknown(planner *p, const tir_node *node) {
    return node->op == TIR_LOAD || (node->op == TIR_VAR && node->bits != tir_get(p->pool, p->lane)->bits);
}

static void visit_side(planner *p, tir_stmt *list, bool known, bool masked) {
    if (!list) return;
    if (!known && !masked) {
        visit_branch(p, list, true);
        return;
    }
    const bool before = p->masked;
    p->masked = true;
    visit_list(p, list);
    p->masked = before;
}

static void visit_if(planner *p, tir_stmt *stmt) {
    const tir_expr condition = resolve(p, stmt->if_.condition);
    if (tir_is_true(p->pool, condition) || tir_is_false(p->pool, condition)) {
        visit_list(p, tir_is_true(p->pool, condition) ? stmt->if_.body : stmt->if_.otherwise);
    } else if (!p->lane || !tir_uses(p->pool, condition, p->lane)) {
        visit_branch(p, stmt->if_.body, p->masked);
        if (stmt->if_.otherwise) visit_branch(p, stmt->if_.otherwise, p->masked);
    } else {
        const bool known = !find_in(p, condition, is_unknown); /* the lanes in which it holds are constant */
        if (stmt->if_.split && !p->masked && p->active == p->lanes && !known) visit_branch(p, stmt->if_.body, false);
        visit_side(p, stmt->if_.body, known, stmt->if_.masked);
        visit_side(p, stmt->if_.otherwise, known, stmt->if_.otherwise_masked);
    }
}

static void visit_list(planner *p, tir_stmt *list) {
    const uint32_t open = p->known.count;
    for (tir_stmt *stmt = list, *next; stmt; stmt = next) {
        next = stmt->next;
        p->now++;
        tir_stmt_exprs(stmt, note_loads, p);
        switch (stmt->kind) {
        case TIR_FOR: visit_for(p, stmt); break;
        case TIR_LET:
            if (next) {
                visit_with(p, stmt->let.var, stmt->let.value, stmt->let.body);
            } else { /* not recursive: chains of lets are long */
                enter(p, stmt->let.var, stmt->let.value);
                next = stmt->let.body;
            }
            break;
        case TIR_IF: visit_if(p, stmt); break;
        case TIR_STORE: visit_store(p, stmt); break;
        case TIR_INTERLEAVE: visit_list(p, stmt->interleave.body); break;
        case TIR_SPILL: visit_list(p, stmt->spill.body); break;
        default: break;
        }
    }
    leave(p, open);
}

static planner *walk(lib_arena *arena, tir_kernel *kernel, const tir_machine *machine) {
    planner *p = LIB_NEW(arena, planner);
    p->arena = arena;
    p->kernel = kernel;
    p->pool = tir_pool_copy(arena, kernel->pool);
    p->checks = !machine;
    p->place = LIB_NEW_ARRAY(arena, uint32_t, kernel->pool->variables.count + TIR_MAX_LANES + 1);
    p->list.masked = !machine || machine->masked;
    p->list.user = p;
    p->list.transpose = note_transposed;
    p->list.separate = note_separate;
    for (uint32_t i = 0; i < kernel->phases.count; i++) {
        visit_list(p, kernel->phases.data[i].body);
        flush(p, "the phase ends before they are all there");
    }
    return p;
}

/* ---- are there any? Finds out without a walk of copies, which would take time in every kernel */

static void search_lanes(void *user, const tir_stmt *stmt) {
    search *s = user;
    const tir_pool *pool = s->kernel->pool;
    s->lets |= stmt->kind == TIR_LET && tir_dtype_of(pool, stmt->let.value) == TIR_INDEX;
    if (!is_in_memory(s->kernel, stmt)) return;
    int64_t sum = 0, stride;
    bool uses = false;
    for (int d = 0; d < stmt->store.rank; d++) {
        const tir_expr index = stmt->store.index[d];
        if (!tir_uses(pool, index, s->lane)) continue;
        uses = true;
        if (tir_is_const(pool, s->kernel->buffers.data[stmt->store.buffer].stride[d], &stride))
            sum += tir_coefficient(pool, index, s->lane) * stride;
        else
            s->found = true;
    }
    s->found |= uses ? sum != 1 : s->lets;
}

static void search_statement(void *user, const tir_stmt *stmt) {
    search *s = user;
    if (s->found || stmt->kind != TIR_FOR || stmt->for_.loop != TIR_LANES || stmt->for_.width <= 1) return;
    s->lane = stmt->for_.var;
    s->lets = false;
    tir_stmt_walk(stmt->for_.body, search_lanes, s);
}

static void search_way(void *user, const tir_stmt *stmt) {
    search *s = user;
    s->found |= stmt->kind == TIR_STORE && stmt->store.rows;
}

static bool any(const tir_kernel *kernel, tir_stmt_visit visit) {
    search s = {.kernel = kernel};
    for (uint32_t i = 0; i < kernel->phases.count && !s.found; i++)
        tir_stmt_walk(kernel->phases.data[i].body, visit, &s);
    return s.found;
}

/* ---- the result */

typedef lib_vec(tir_stmt *) stores;

/* Appends the stores to memory of the list, in order. */
static void collect(planner *p, tir_stmt *list, stores *found) {
    for (tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_STORE:
            if (is_in_memory(p->kernel, stmt)) lib_vec_push(p->arena, found, stmt);
            break;
        case TIR_FOR: collect(p, stmt->for_.body, found); break;
        case TIR_LET: collect(p, stmt->let.body, found); break;
        case TIR_IF:
            collect(p, stmt->if_.body, found);
            collect(p, stmt->if_.otherwise, found);
            break;
        case TIR_INTERLEAVE: collect(p, stmt->interleave.body, found); break;
        case TIR_SPILL: collect(p, stmt->spill.body, found); break;
        default: break;
        }
    }
}

static bool has_ways(planner *p, const stores *now, const stores *before, const tir_stmt *loop) {
    for (uint32_t i = 0; i < now->count; i++) {
        const outcome *o = outcome_of(p, before->data[i], loop);
        if (now->data[i]->store.rows != o->rows || now->data[i]->store.lane_loop != o->lane_loop) return false;
    }
    return true;
}

static void set_ways(planner *p, const stores *now, const stores *before, const tir_stmt *loop) {
    for (uint32_t i = 0; i < now->count; i++) {
        const outcome *o = outcome_of(p, before->data[i], loop);
        now->data[i]->store.rows = o->rows;
        now->data[i]->store.lane_loop = o->lane_loop;
    }
}

/* Sets the ways of the stores in loop number `number`. Its body is that of an earlier one with equal ways, or else a copy, if an earlier one
 * has the body. */
static void settle(planner *p, uint32_t number) {
    const lanes_loop *own = &p->loops.data[number];
    stores before = {0}, now = {0};
    bool shared = false;
    collect(p, own->body, &before);
    for (uint32_t i = 0; i < number; i++) {
        const lanes_loop *other = &p->loops.data[i];
        if (other->body != own->body) continue;
        shared = true;
        now.count = 0;
        collect(p, other->loop->for_.body, &now);
        if (!has_ways(p, &now, &before, own->loop)) continue;
        own->loop->for_.body = other->loop->for_.body;
        return;
    }
    if (shared) own->loop->for_.body = tir_stmt_substitute(p->kernel, own->body, 0, NULL, NULL);
    now.count = 0;
    collect(p, own->loop->for_.body, &now);
    set_ways(p, &now, &before, own->loop);
}

void tir_strided_plan(lib_arena *arena, tir_kernel *kernel, const tir_machine *machine) {
    if (!any(kernel, search_statement)) return;
    planner *p = walk(arena, kernel, machine);
    for (uint32_t i = 0; i < p->loops.count; i++) settle(p, i);
}

const tir_stmt *tir_strided_flaw(lib_arena *arena, tir_kernel *kernel, const char **why) {
    if (!any(kernel, search_way)) return NULL;
    const planner *p = walk(arena, kernel, NULL);
    for (uint32_t i = 0; i < p->outcomes.count; i++) {
        const outcome *o = &p->outcomes.data[i];
        const int rows = o->stmt->store.rows;
        if (o->rows >= rows || (o->rows && o->rows >= o->most)) continue;
        *why = lib_arena_format(arena, "%d of %d rows wait for each other, since %s", o->rows, rows,
                                o->differ ? "neighbours have other numbers of lanes" : o->why);
        return o->stmt;
    }
    return NULL;
}
