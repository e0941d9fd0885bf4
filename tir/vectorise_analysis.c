/* Analyses of loops' bodies, by their structure alone; see vectorise_analysis.h. */
#include "tir/vectorise_analysis.h"

#include "tir/layout.h"

enum {
    /* Rows: least instructions per vector for which they are rolled (moving a vector to the stack and back costs two), least number of
     * instructions saved. */
    ROLL_VECTOR = 12,
    ROLL_ROWS = 120,
    ROLL_REPEATED = 100, /* the same for vectors; a loop of few iterations is a little slower than copies */
    WOVEN_LEAST = 10, /* instructions from which on vectors are interleaved: shorter ones fit the processor's window */
    WOVEN_COST = 720, /* most instructions of a loop over interleaved vectors */
    WOVEN_STORES = 8,
    MANY_REGISTERS = 32 /* with fewer, reductions of several values are not interleaved */
};

/* ---- scope */

void tir_vec_enter_loop(tir_vectoriser *v, const tir_stmt *loop) {
    v->bound[tir_var_id(v->pool, loop->for_.var)] = true;
    lib_vec_push(v->arena, &v->loops, loop);
}

void tir_vec_leave_loop(tir_vectoriser *v, const tir_stmt *loop) {
    v->bound[tir_var_id(v->pool, loop->for_.var)] = false;
    v->loops.count--;
}

void tir_vec_enter(tir_vectoriser *v, const tir_stmt *loop, int width, int64_t extent) {
    tir_vec_enter_loop(v, loop);
    v->in_vec = width > 1;
    v->lane = loop->for_.var;
    v->width = width;
    v->extent = extent;
}

void tir_vec_leave(tir_vectoriser *v, const tir_stmt *loop) {
    tir_vec_leave_loop(v, loop);
    v->in_vec = false;
    v->lane = 0;
    v->width = 1;
}

static void enter_known(tir_vectoriser *v, tir_known_variable known) {
    v->bound[tir_var_id(v->pool, known.var)] = true;
    lib_vec_push(v->arena, &v->known, known);
}

static tir_known_variable leave_known(tir_vectoriser *v) {
    const tir_known_variable known = v->known.data[--v->known.count];
    v->bound[tir_var_id(v->pool, known.var)] = false;
    return known;
}

void tir_vec_enter_copy(tir_vectoriser *v, const tir_stmt *loop, tir_expr value) {
    enter_known(v, (tir_known_variable){.var = loop->for_.var, .value = value, .copy = true});
}

bool tir_vec_leave_copy(tir_vectoriser *v) {
    return leave_known(v).asked;
}

void tir_vec_enter_let(tir_vectoriser *v, const tir_stmt *let) {
    const bool index = tir_dtype_of(v->pool, let->let.value) == TIR_INDEX;
    enter_known(v, (tir_known_variable){.var = let->let.var, .value = index ? let->let.value : 0});
}

void tir_vec_leave_lets(tir_vectoriser *v, uint32_t count) {
    while (v->known.count > count) leave_known(v);
}

void tir_vec_enter_spill(tir_vectoriser *v, const bool *buffers) {
    for (uint32_t i = 0; i < v->kernel->buffers.count; i++) v->spilled[i] |= buffers[i];
}

void tir_vec_leave_spill(tir_vectoriser *v, const bool *buffers) {
    for (uint32_t i = 0; i < v->kernel->buffers.count; i++)
        if (buffers[i]) v->spilled[i] = false;
}

static bool in_registers(const tir_vectoriser *v, uint64_t buffer) {
    return v->kernel->buffers.data[buffer].scope == TIR_SCOPE_REG && !v->spilled[buffer];
}

/* Elements between neighbouring lanes of the accessed place; false: not constant. */
static bool lane_stride(const tir_vectoriser *v, uint32_t buffer, int rank, const tir_expr *index, tir_expr lane,
                        int64_t *stride) {
    const tir_buffer *b = &v->kernel->buffers.data[buffer];
    *stride = 0;
    for (int i = 0; i < rank; i++) {
        int64_t of_dimension, part = tir_coefficient(v->pool, index[i], lane);
        if (part == 0 && tir_uses(v->pool, index[i], lane)) return false;
        if (part == 0) continue;
        if (!tir_is_const(v->pool, b->stride[i], &of_dimension) || __builtin_mul_overflow(part, of_dimension, &part) ||
            __builtin_add_overflow(*stride, part, stride))
            return false;
    }
    return true;
}

void tir_vec_note_store(tir_vectoriser *v, const tir_stmt *store) {
    int64_t stride;
    if (v->kernel->buffers.data[store->store.buffer].scope != TIR_SCOPE_REG) return;
    v->stored_whole[store->store.buffer] =
        v->in_vec && tir_vec_count(v, v->width, v->extent) * 4 <= v->extent &&
        lane_stride(v, store->store.buffer, store->store.rank, store->store.index, v->lane, &stride) && stride == 1;
}

/* The expression with the values of lets and of copies of unrolled loops. Copies that it depends on are marked as asked. */
static tir_expr resolve(tir_vectoriser *v, tir_expr e) {
    for (uint32_t i = v->known.count; i-- > 0;) {
        tir_known_variable *known = &v->known.data[i];
        if (!known->value || !tir_uses(v->pool, e, known->var)) continue;
        known->asked = true;
        e = tir_substitute(v->pool, e, 1, &known->var, &known->value);
    }
    return e;
}

/* ---- expressions: v->order becomes the nodes below `root` that this analysis has not visited, operands first */

static void visit(tir_vectoriser *v, tir_expr root) {
    v->order.count = v->stack.count = 0;
    lib_vec_push(v->arena, &v->stack, root);
    while (v->stack.count) {
        const tir_expr e = v->stack.data[v->stack.count - 1];
        const uint32_t open = v->stack.count;
        if (v->seen[e] != v->now)
            for (int i = 0; i < (int)tir_get(v->pool, e)->count; i++)
                if (v->seen[tir_operand(v->pool, e, i)] != v->now)
                    lib_vec_push(v->arena, &v->stack, tir_operand(v->pool, e, i));
        if (v->stack.count > open) continue;
        v->stack.count--;
        if (v->seen[e] == v->now) continue;
        v->seen[e] = v->now;
        lib_vec_push(v->arena, &v->order, e);
    }
}

/* ---- vec loops: which expressions depend on the loop's variable */

/* *widest: bytes of the widest element that depends on the lane. */
static bool depends(tir_vectoriser *v, tir_expr root, int *widest) {
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_expr e = v->order.data[k];
        const tir_node *node = tir_get(v->pool, e);
        bool result = node->op == TIR_VAR && v->dependent[node->bits];
        for (int i = 0; i < (int)node->count; i++) result |= v->varies[tir_operand(v->pool, e, i)];
        v->varies[e] = result;
        if (!result || node->dtype == TIR_INDEX || node->dtype == DLC_BOOL) continue;
        const int size = (int)lib_dtype_size((dlc_dtype)node->dtype);
        if (size > *widest) *widest = size;
    }
    return v->varies[root];
}

static bool store_vectorises(tir_vectoriser *v, const tir_stmt *stmt, int *widest) {
    bool index = false, value = depends(v, stmt->store.value, widest);
    for (int i = 0; i < stmt->store.rank; i++) index |= depends(v, stmt->store.index[i], widest);
    const int size = (int)lib_dtype_size(v->kernel->buffers.data[stmt->store.buffer].dtype);
    if (index && size > *widest) *widest = size;
    return index || !value || tir_reduced_operand(v->kernel, stmt);
}

static bool vectorises(tir_vectoriser *v, const tir_stmt *list, int *widest) {
    bool result = true;
    for (const tir_stmt *stmt = list; stmt && result; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR:
            if (depends(v, stmt->for_.lower, widest) || depends(v, stmt->for_.extent, widest)) return false;
            result = vectorises(v, stmt->for_.body, widest);
            break;
        case TIR_LET:
            v->dependent[tir_var_id(v->pool, stmt->let.var)] = depends(v, stmt->let.value, widest);
            v->now++;
            result = vectorises(v, stmt->let.body, widest);
            break;
        case TIR_IF:
            depends(v, stmt->if_.condition, widest);
            result = vectorises(v, stmt->if_.body, widest) && vectorises(v, stmt->if_.otherwise, widest);
            break;
        case TIR_STORE: result = store_vectorises(v, stmt, widest); break;
        default: break;
        }
    }
    return result;
}

/* Lanes may update one place together only if nothing else in the loop observes the order of the updates: every other access to the place
 * must be an update by the same operator. An access that observes the order is an error; if it is not known whether it accesses this place,
 * the loop runs lane by lane. */
typedef struct reductions {
    tir_vectoriser *v;
    lib_vec(const tir_stmt *) stores;
    /* the statement whose loads are being checked */
    const tir_stmt *stmt;
    /* another access may observe the order */
    bool unclear;
} reductions;

static void note_access(reductions *r, int same) {
    if (same > 0)
        lib_raise(r->v->arena->scope, DLC_INTERNAL,
                  "kernel %s: iterations of a vec loop combine into one place, and use it otherwise",
                  r->v->kernel->name);
    r->unclear |= same < 0;
}

static void collect_reduction(void *user, const tir_stmt *stmt) {
    reductions *r = user;
    int widest = 1;
    if (stmt->kind != TIR_STORE || !depends(r->v, stmt->store.value, &widest)) return;
    for (int i = 0; i < stmt->store.rank; i++)
        if (depends(r->v, stmt->store.index[i], &widest)) return;
    note_access(r, !tir_is_exact_reduction(r->v->arena, r->v->kernel, stmt));
    lib_vec_push(r->v->arena, &r->stores, stmt);
}

/* Are store->store.index and `index` the same place? 1: yes, 0: no, -1: not known. */
static int same_place(const tir_vectoriser *v, const tir_stmt *store, int rank, const tir_expr *index) {
    int result = 1;
    for (int i = 0; i < rank; i++) {
        tir_expr a = store->store.index[i], b = index[i];
        if (a == b) continue;
        if (tir_op_of(v->pool, a) == TIR_CONST && tir_op_of(v->pool, b) == TIR_CONST) return 0;
        result = -1;
    }
    return result;
}

static void check_loads(void *user, tir_expr root) {
    reductions *r = user;
    tir_vectoriser *v = r->v;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_node *node = tir_get(v->pool, v->order.data[k]);
        if (node->op != TIR_LOAD || tir_loads_stored(v->kernel, r->stmt, v->order.data[k])) continue;
        const int rank = (int)node->count - (node->guarded ? 2 : 0);
        for (uint32_t i = 0; i < r->stores.count; i++)
            if (r->stores.data[i]->store.buffer == node->bits)
                note_access(r, same_place(v, r->stores.data[i], rank, &v->pool->operands.data[node->first]));
    }
}

static void check_statement(void *user, const tir_stmt *stmt) {
    reductions *r = user;
    r->stmt = stmt;
    r->v->now++;
    tir_stmt_exprs(stmt, check_loads, r);
    if (stmt->kind != TIR_STORE) return;
    for (uint32_t i = 0; i < r->stores.count; i++) {
        const tir_stmt *other = r->stores.data[i];
        if (other == stmt || other->store.buffer != stmt->store.buffer) continue;
        int same = same_place(r->v, other, stmt->store.rank, stmt->store.index);
        tir_op a = tir_op_of(r->v->pool, stmt->store.value), b = tir_op_of(r->v->pool, other->store.value);
        if (same <= 0 || a != b || !tir_reduced_operand(r->v->kernel, stmt)) note_access(r, same);
    }
}

static bool reductions_agree(tir_vectoriser *v, const tir_stmt *body) {
    reductions r = {.v = v};
    v->now++;
    tir_stmt_walk(body, collect_reduction, &r);
    if (r.stores.count) tir_stmt_walk(body, check_statement, &r);
    return !r.unclear;
}

/* ---- may a vec loop be a serial loop over vectors? */

static bool uses_bound_only(tir_vectoriser *v, tir_expr root) {
    v->now++;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_node *node = tir_get(v->pool, v->order.data[k]);
        if (node->op == TIR_VAR && !v->bound[node->bits]) return false;
    }
    return true;
}

/* Do the indices of all reg buffers that the expression loads depend only on variables bound outside of the loop? */
static bool reg_loads_fixed(tir_vectoriser *v, tir_expr root) {
    lib_vec(tir_expr) index = {0};
    v->now++;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_node *node = tir_get(v->pool, v->order.data[k]);
        if (node->op != TIR_LOAD || !in_registers(v, node->bits)) continue;
        for (int i = 0; i < (int)node->count; i++)
            lib_vec_push(v->arena, &index, tir_operand(v->pool, v->order.data[k], i));
    }
    for (uint32_t i = 0; i < index.count; i++)
        if (!uses_bound_only(v, index.data[i])) return false;
    return true;
}

bool tir_vec_may_roll(tir_vectoriser *v, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR:
            if (!tir_vec_may_roll(v, stmt->for_.body)) return false;
            break;
        case TIR_LET:
            if (!reg_loads_fixed(v, stmt->let.value) || !tir_vec_may_roll(v, stmt->let.body)) return false;
            break;
        case TIR_IF:
            if (!reg_loads_fixed(v, stmt->if_.condition) || !tir_vec_may_roll(v, stmt->if_.body) ||
                !tir_vec_may_roll(v, stmt->if_.otherwise))
                return false;
            break;
        case TIR_STORE:
            if (!reg_loads_fixed(v, stmt->store.value)) return false;
            for (int i = 0; i < stmt->store.rank; i++)
                if (in_registers(v, stmt->store.buffer) && !uses_bound_only(v, stmt->store.index[i])) return false;
            break;
        default: break;
        }
    }
    return true;
}

/* Does the expression divide an index that contains the variable by a constant that is no multiple of the vector's width? */
static bool divides(tir_vectoriser *v, tir_expr root, tir_expr var, int width) {
    int64_t divisor;
    v->now++;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_expr e = v->order.data[k];
        const tir_op op = tir_op_of(v->pool, e);
        if ((op != TIR_DIV && op != TIR_REM) || tir_dtype_of(v->pool, e) != TIR_INDEX || !tir_uses(v->pool, e, var))
            continue;
        if (tir_is_const(v->pool, tir_operand(v->pool, e, 1), &divisor) && divisor % width) return true;
    }
    return false;
}

bool tir_vec_copies_differ(tir_vectoriser *v, const tir_stmt *list, tir_expr var, int width) {
    bool found = false;
    for (const tir_stmt *stmt = list; stmt && !found; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR: found = tir_vec_copies_differ(v, stmt->for_.body, var, width); break;
        case TIR_LET:
            found = divides(v, stmt->let.value, var, width) || tir_vec_copies_differ(v, stmt->let.body, var, width);
            break;
        case TIR_IF:
            found = divides(v, stmt->if_.condition, var, width) ||
                    tir_vec_copies_differ(v, stmt->if_.body, var, width) ||
                    tir_vec_copies_differ(v, stmt->if_.otherwise, var, width);
            break;
        case TIR_STORE:
            found = divides(v, stmt->store.value, var, width);
            for (int i = 0; i < stmt->store.rank; i++) found = found || divides(v, stmt->store.index[i], var, width);
            break;
        default: break;
        }
    }
    return found;
}

/* ---- how long is a body, and may it be a loop's? */

typedef struct survey {
    tir_vectoriser *v;
    /* variable of the unrolled loop; 0: none */
    tir_expr var;
    /* variable of the vec loop around the statement; 0: none */
    tir_expr lane;
    int64_t copies, vectors, cost;
    /* may not be rolled */
    bool refused;
    /* by reg buffer: indexed by `var`, written */
    bool *wanted, *stored;
} survey;

static void refuse(survey *s, bool when) {
    s->refused |= when;
}

static bool uses(const survey *s, tir_expr expr, tir_expr var) {
    return var && tir_uses(s->v->pool, expr, var);
}

/* Is the node a comparison that each copy of the body would fold: of the lane in vectors (which lanes are active), or of the unrolled
 * variable (which element of a tile is read)? */
static bool depends_on_position(const survey *s, const tir_node *node, tir_expr expr) {
    if (node->dtype != DLC_BOOL || node->count != 2) return false;
    if (tir_dtype_of(s->v->pool, tir_operand(s->v->pool, expr, 0)) != TIR_INDEX) return false;
    return s->var ? node->op == TIR_EQ && uses(s, expr, s->var) : uses(s, expr, s->lane);
}

static void survey_expr(survey *s, tir_expr root) {
    tir_vectoriser *v = s->v;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_expr e = v->order.data[k];
        const tir_node *node = tir_get(v->pool, e);
        if (node->op == TIR_CONST || node->op == TIR_VAR) continue;
        if (node->dtype != TIR_INDEX) s->cost += s->copies;
        refuse(s, depends_on_position(s, node, e));
        if (node->op != TIR_LOAD || !in_registers(v, node->bits)) continue;
        for (int i = 0; i < (int)node->count; i++)
            if (uses(s, tir_operand(v->pool, e, i), s->var)) s->wanted[node->bits] = true;
    }
}

static void survey_store(survey *s, const tir_stmt *stmt) {
    int64_t stride;
    survey_expr(s, stmt->store.value);
    if (!in_registers(s->v, stmt->store.buffer)) {
        s->cost += s->copies;
        /* Lanes that are neither neighbours in memory nor one place are stored when their neighbours, from other iterations, exist. */
        refuse(s, s->lane &&
                      (!lane_stride(s->v, stmt->store.buffer, stmt->store.rank, stmt->store.index, s->lane, &stride) ||
                       (stride != 0 && stride != 1)));
        return;
    }
    s->stored[stmt->store.buffer] = true;
    for (int i = 0; i < stmt->store.rank; i++) refuse(s, uses(s, stmt->store.index[i], s->var));
}

static void survey_list(survey *s, const tir_stmt *list);

static void survey_for(survey *s, const tir_stmt *loop) {
    const survey outside = *s;
    int64_t trips = 1;
    if (loop->for_.loop != TIR_SERIAL && !tir_is_const(s->v->pool, loop->for_.extent, &trips)) trips = 1;
    refuse(s, uses(s, loop->for_.lower, s->var) || uses(s, loop->for_.extent, s->var));
    if (loop->for_.loop == TIR_VEC) {
        const int width = s->v->machine->vector_bytes / 4;
        refuse(s, s->lane != 0);
        s->lane = loop->for_.var;
        if (width > 1) trips = (trips + width - 1) / width;
    }
    s->copies *= trips;
    if (s->copies > s->vectors) s->vectors = s->copies;
    survey_list(s, loop->for_.body);
    s->lane = outside.lane;
    s->copies = outside.copies;
}

static void survey_list(survey *s, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt && !s->refused; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR: survey_for(s, stmt); break;
        case TIR_LET:
            if (tir_dtype_of(s->v->pool, stmt->let.value) == TIR_INDEX)
                refuse(s, uses(s, stmt->let.value, s->var) || uses(s, stmt->let.value, s->lane));
            survey_expr(s, stmt->let.value);
            survey_list(s, stmt->let.body);
            break;
        case TIR_IF:
            refuse(s, uses(s, stmt->if_.condition, s->var));
            survey_expr(s, stmt->if_.condition);
            survey_list(s, stmt->if_.body);
            survey_list(s, stmt->if_.otherwise);
            break;
        case TIR_STORE: survey_store(s, stmt); break;
        default: break;
        }
    }
}

static survey survey_of(tir_vectoriser *v, const tir_stmt *loop, tir_expr var, tir_expr lane) {
    survey s = {.v = v, .var = var, .lane = lane, .copies = 1, .vectors = 1};
    s.wanted = LIB_NEW_ARRAY(v->arena, bool, v->kernel->buffers.count + 1);
    s.stored = LIB_NEW_ARRAY(v->arena, bool, v->kernel->buffers.count + 1);
    v->now++;
    survey_list(&s, loop->for_.body);
    return s;
}

static bool vectors_roll(tir_vectoriser *v, const tir_stmt *loop, int64_t vectors) {
    const survey s = survey_of(v, loop, 0, loop->for_.var);
    return !s.refused && s.cost * (vectors - 1) >= ROLL_REPEATED;
}

const bool *tir_vec_rows_roll(tir_vectoriser *v, const tir_stmt *loop, int64_t rows) {
    const survey s = survey_of(v, loop, loop->for_.var, 0);
    if (s.refused || s.cost < ROLL_VECTOR * s.vectors || s.cost * (rows - 1) < ROLL_ROWS) return NULL;
    for (uint32_t i = 0; i < v->kernel->buffers.count; i++)
        if (s.wanted[i] && (s.stored[i] || v->kernel->buffers.data[i].dtype == DLC_BOOL || !v->stored_whole[i]))
            return NULL;
    return s.wanted;
}

/* ---- which vectors are interleaved? */

typedef struct accesses {
    tir_vectoriser *v;
    const tir_stmt *store[WOVEN_STORES];
    int stores, cost, shared;
    tir_expr lane;
    /* bit i: store[i] is to a register that is loaded, too, which holds a sum or one of several results of a reduction */
    uint32_t accumulators;
    bool refused;
} accesses;

/* Collects the stores of the body. Refuses statements other than lets and stores, and stores to memory whose address does not depend on the
 * lane. */
static void collect_stores(accesses *a, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt && !a->refused; stmt = stmt->next) {
        if (stmt->kind == TIR_LET) {
            a->shared += tir_dtype_of(a->v->pool, stmt->let.value) != TIR_INDEX;
            collect_stores(a, stmt->let.body);
            continue;
        }
        a->refused = stmt->kind != TIR_STORE || a->stores == WOVEN_STORES;
        if (a->refused) return;
        bool own = in_registers(a->v, stmt->store.buffer);
        for (int i = 0; i < stmt->store.rank; i++) own = own || tir_uses(a->v->pool, stmt->store.index[i], a->lane);
        a->refused = !own;
        a->store[a->stores++] = stmt;
    }
}

/* May another lane store the element that this load reads? Such a load must not be moved over stores. */
static bool is_fixed(const accesses *a, const tir_node *load) {
    if (in_registers(a->v, load->bits)) return false;
    for (int s = 0; s < a->stores; s++) {
        const tir_stmt *store = a->store[s];
        if (store->store.buffer != load->bits) continue;
        for (int i = 0; i < store->store.rank; i++)
            if (store->store.index[i] != a->v->pool->operands.data[load->first + (uint32_t)i]) return true;
    }
    return false;
}

static void visit_access(void *user, tir_expr root) {
    accesses *a = user;
    visit(a->v, root);
    for (uint32_t k = 0; k < a->v->order.count; k++) {
        const tir_node *node = tir_get(a->v->pool, a->v->order.data[k]);
        if (node->op == TIR_CONST || node->op == TIR_VAR) continue;
        if (node->dtype != TIR_INDEX) a->cost++;
        a->refused |= node->op == TIR_LOAD && is_fixed(a, node);
        for (int i = 0; i < a->stores && node->op == TIR_LOAD; i++)
            if (a->store[i]->store.buffer == node->bits && in_registers(a->v, node->bits)) a->accumulators |= 1u << i;
    }
}

static void visit_list(accesses *a, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        tir_stmt_exprs(stmt, visit_access, a);
        if (stmt->kind == TIR_LET) visit_list(a, stmt->let.body);
    }
}

static int woven_ways(tir_vectoriser *v, const tir_stmt *loop) {
    accesses a = {.v = v, .lane = loop->for_.var};
    collect_stores(&a, loop->for_.body);
    if (a.refused) return 1;
    v->now++;
    visit_list(&a, loop->for_.body);
    if (a.refused || a.cost < WOVEN_LEAST) return 1;
    /* without lets each value is used once, and its register is free immediately */
    int ways = a.shared || 8 * a.cost > WOVEN_COST / 2 ? 4 : 8;
    const bool several = (a.accumulators & (a.accumulators - 1)) != 0;
    if (several && v->machine->vector_registers < MANY_REGISTERS) return 1;
    while (ways > 1 && ways * a.cost > WOVEN_COST) ways /= 2;
    return ways;
}

tir_vec_plan tir_vec_plan_of(tir_vectoriser *v, const tir_stmt *loop) {
    tir_vec_plan plan = {.width = 1, .ways = 1};
    int widest = 1;
    int64_t extent = 0;
    memset(v->dependent, 0, v->variables * sizeof *v->dependent);
    v->dependent[tir_var_id(v->pool, loop->for_.var)] = true;
    v->now++;
    if (!vectorises(v, loop->for_.body, &widest) || !v->machine->vector_bytes || !reductions_agree(v, loop->for_.body))
        return plan;
    plan.width = v->machine->vector_bytes / widest;
    tir_is_const(v->pool, loop->for_.extent, &extent);
    if (plan.width <= 1 || extent < 2 * plan.width) return plan;
    plan.ways = woven_ways(v, loop);
    plan.roll = plan.ways < extent / plan.width && vectors_roll(v, loop, extent / plan.width);
    return plan;
}

/* ---- steps of a register tile */

/* Does the expression have a load under a guard, which needs a register for its mask? */
static bool has_guarded_load(tir_vectoriser *v, tir_expr expr) {
    bool found = false;
    v->now++;
    visit(v, expr);
    for (uint32_t k = 0; k < v->order.count && !found; k++) {
        const tir_node *node = tir_get(v->pool, v->order.data[k]);
        found = node->op == TIR_LOAD && node->guarded;
    }
    return found;
}

/* Is the statement a let of an index whose body is the rest of the list? Such a let takes no vector register. */
static bool is_index_let(tir_vectoriser *v, const tir_stmt *stmt) {
    return stmt->kind == TIR_LET && !stmt->next && tir_dtype_of(v->pool, stmt->let.var) == TIR_INDEX;
}

/* The first statement of a loop's body behind its prefetches and its lets of indices, such as that of the iteration in a sum that is cut into
 * parts; NULL: there is none. */
static const tir_stmt *first_of_tile(tir_vectoriser *v, const tir_stmt *body) {
    while (body && (is_index_let(v, body) || body->kind == TIR_PREFETCH))
        body = body->kind == TIR_LET ? body->let.body : body->next;
    return body;
}

/* Registers that an iteration of the list needs: the vectors that it adds to a register tile, those of a row and one more for their operands;
 * 0: it is something else, or has masks. */
static int64_t registers_of_tile(tir_vectoriser *v, const tir_stmt *list) {
    enum { MOST_ROWS = 8 }; /* of one vector: LLVM spills taller tiles */
    int64_t rows = 1, extent = 0;
    for (list = first_of_tile(v, list); list && list->kind == TIR_FOR; list = list->for_.body) {
        const bool lanes = list->for_.loop == TIR_VEC;
        if (list->next || (!lanes && list->for_.loop != TIR_UNROLL)) return 0;
        if (!tir_is_const(v->pool, list->for_.extent, &extent) || extent < 1 || extent > UINT8_MAX) return 0;
        const tir_stmt *store = list->for_.body;
        if (!lanes) {
            rows *= extent;
            continue;
        }
        if (!store || store->kind != TIR_STORE || store->next || !in_registers(v, store->store.buffer)) return 0;
        const int64_t bytes = extent * (int64_t)lib_dtype_size(v->kernel->buffers.data[store->store.buffer].dtype);
        if (bytes % v->machine->vector_bytes || has_guarded_load(v, store->store.value)) return 0;
        const int64_t vectors = bytes / v->machine->vector_bytes;
        if (vectors < 2 && rows > MOST_ROWS) return 0;
        return (rows + 1) * vectors + 1;
    }
    return 0;
}

int tir_vec_steps(tir_vectoriser *v, const tir_stmt *loop) {
    enum { STEPS = 4 };
    if (v->in_vec || loop->for_.loop != TIR_SERIAL || loop->for_.step > 1) return 1;
    if (v->machine->vector_bytes <= 0 || v->machine->vector_registers >= MANY_REGISTERS) return 1;
    if (!v->machine->fma) return 1; /* more instructions for each of the loop's own */
    int64_t first = 0;
    if (tir_range(v->pool, loop->for_.extent).high < 2 * STEPS) return 1;
    if (!tir_is_const(v->pool, loop->for_.lower, &first)) return 1; /* the last steps' range would be unknown */
    const int64_t registers = registers_of_tile(v, loop->for_.body);
    return registers > 0 && registers <= v->machine->vector_registers ? STEPS : 1;
}

/* ---- rows that share their last vectors. If at most half of the lanes of a row's last vector are columns, two rows share one vector: its
 * lower half holds the last columns of one row, its upper half those of the next row. The column operand is loaded once and duplicated into
 * both halves; the row operand is a blend of the two broadcasts that the rows' whole vectors need anyway. Two rows of one and a half vectors
 * then take three multiplications and three accumulators instead of four. */

static bool is_addend(const tir_vectoriser *v, const tir_stmt *store, tir_expr value) {
    return tir_op_of(v->pool, value) == TIR_FMA && tir_loads_stored(v->kernel, store, tir_operand(v->pool, value, 2));
}

/* Is the expression a load that depends on the row or on the column, but not on both, or conversions of such a load? */
static bool is_factor(const tir_vectoriser *v, tir_expr expr, tir_expr row, tir_expr column) {
    const tir_node *node = tir_get(v->pool, expr);
    for (; node->op == TIR_CAST; node = tir_get(v->pool, expr)) {
        expr = tir_operand(v->pool, expr, 0);
        if (tir_dtype_of(v->pool, expr) == TIR_INDEX) return false;
    }
    if (node->op != TIR_LOAD || node->guarded || in_registers(v, node->bits)) return false;
    return !tir_uses(v->pool, expr, row) || !tir_uses(v->pool, expr, column);
}

typedef struct decision {
    tir_vectoriser *v;
    tir_expr row;
    bool open;
} decision;

static bool is_decided(tir_vectoriser *v, tir_expr condition, tir_expr row);

static tir_expr meet_open(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    decision *d = user;
    const tir_op op = tir_op_of(pool, e);
    if (op == TIR_LOAD) d->open = true;
    if (op != TIR_VAR || e == d->row || d->open) return rebuilt;
    bool known = false;
    for (uint32_t i = d->v->known.count; i-- > 0 && !known;) {
        const tir_known_variable *k = &d->v->known.data[i];
        known = k->var == e && k->value && (k->copy || is_decided(d->v, k->value, d->row));
    }
    d->open = !known;
    return rebuilt;
}

/* Will the condition be constant in each copy of a row? It then depends on the row and on copies of unrolled loops alone. */
static bool is_decided(tir_vectoriser *v, tir_expr condition, tir_expr row) {
    decision d = {v, row, false};
    tir_rewrite(v->pool, condition, meet_open, &d);
    return !d.open;
}

/* The store, if it is the whole body of the vec loop, possibly under a condition on the row (see is_decided); else NULL. */
static const tir_stmt *only_store(tir_vectoriser *v, const tir_stmt *vec, tir_expr row) {
    const tir_stmt *body = vec->for_.body;
    if (body && !body->next && body->kind == TIR_IF && !body->if_.otherwise && is_decided(v, body->if_.condition, row))
        body = body->if_.body;
    return body && !body->next && body->kind == TIR_STORE ? body : NULL;
}

/* The reg element of a row's first column; false: not constant. */
static bool element_at(tir_vectoriser *v, const tir_stmt *loop, const tir_stmt *store, int64_t row, int64_t *element) {
    const tir_stmt *vec = loop->for_.body;
    const tir_buffer *b = &v->kernel->buffers.data[store->store.buffer];
    const tir_expr from[2] = {loop->for_.var, vec->for_.var};
    const tir_expr to[2] = {tir_add(v->pool, loop->for_.lower, tir_index(v->pool, row)), vec->for_.lower};
    tir_expr at = tir_index(v->pool, 0);
    for (int i = 0; i < store->store.rank; i++)
        at = tir_add(v->pool, at, tir_mul(v->pool, store->store.index[i], b->stride[i]));
    return tir_is_const(v->pool, resolve(v, tir_substitute(v->pool, at, 2, from, to)), element);
}

/* Does the store add to its register a product of factors of the row and of the column, over the same columns in each row? */
static bool adds_product(const tir_vectoriser *v, const tir_stmt *loop, const tir_stmt *store) {
    const tir_stmt *vec = loop->for_.body;
    const tir_expr value = store->store.value, row = loop->for_.var, column = vec->for_.var;
    if (!is_addend(v, store, value) || tir_uses(v->pool, vec->for_.lower, row)) return false;
    for (int i = 0; i < 2; i++)
        if (!is_factor(v, tir_operand(v->pool, value, i), row, column)) return false;
    return true;
}

/* Lanes of the whole vectors of a row of so many columns; 0: two rows cannot share a last vector. */
static int pair_width(tir_vectoriser *v, const tir_stmt *vec, int64_t columns) {
    const tir_vec_plan vectors = tir_vec_plan_of(v, vec);
    const int width = vectors.ways > 1 || (vectors.roll && tir_vec_may_roll(v, vec->for_.body)) ? 0 : vectors.width;
    if (width < 4 || columns <= width || !(columns % width) || 2 * (columns % width) > width) return 0;
    return width;
}

bool tir_vec_rows_pair(tir_vectoriser *v, const tir_stmt *loop, tir_pair_plan *plan) {
    const tir_stmt *vec = loop->for_.body;
    int64_t columns, first, second;
    if (!v->machine->row_pairs || v->in_vec) return false;
    if (!vec || vec->next || vec->kind != TIR_FOR || vec->for_.loop != TIR_VEC) return false;
    if (!tir_is_const(v->pool, vec->for_.extent, &columns)) return false;
    const tir_stmt *store = only_store(v, vec, loop->for_.var);
    if (!store || !in_registers(v, store->store.buffer)) return false;
    if (!adds_product(v, loop, store)) return false;
    const int width = pair_width(v, vec, columns);
    if (!width) return false;
    if (!element_at(v, loop, store, 0, &first) || !element_at(v, loop, store, 1, &second)) return false;
    *plan = (tir_pair_plan){.width = width, .odd = second > first && first / (second - first) % 2};
    return true;
}

/* ---- conditions that differ between lanes */

bool tir_vec_varies(tir_vectoriser *v, tir_expr condition) {
    int widest = 1;
    v->now++;
    return depends(v, condition, &widest);
}

/* Is an extent of the buffer 0? Then strides may be 0, and lanes with different indices make one access without a mask. */
static bool is_empty(const tir_vectoriser *v, uint32_t buffer) {
    const tir_buffer *b = &v->kernel->buffers.data[buffer];
    for (int i = 0; i < b->rank; i++)
        if (tir_is_number(v->pool, b->extent[i], 0)) return true;
    return false;
}

/* An upper bound of the index. Where a loop ends at the smaller one of two numbers, each of them may depend on outer loops in the way in which the
 * index does: i = 256*part + step, with step < min(256, n - 256*part), is less than n. */
static int64_t highest(tir_vectoriser *v, tir_expr index) {
    int64_t high = tir_range(v->pool, index).high;
    for (uint32_t i = v->loops.count; i-- > 0;) {
        const tir_expr var = v->loops.data[i]->for_.var, extent = v->loops.data[i]->for_.extent;
        if (tir_op_of(v->pool, extent) != TIR_MIN || tir_coefficient(v->pool, index, var) <= 0) continue;
        for (int k = 0; k < 2; k++) {
            const tir_expr end = tir_add(v->pool, v->loops.data[i]->for_.lower, tir_operand(v->pool, extent, k));
            const tir_expr last = tir_sub(v->pool, end, tir_index(v->pool, 1));
            const int64_t bound = tir_range(v->pool, tir_substitute(v->pool, index, 1, &var, &last)).high;
            if (bound < high) high = bound;
        }
    }
    return high;
}

/* Is the load's index within its buffer even where the conditions around the load do not hold? */
static bool stays_inside(tir_vectoriser *v, tir_expr load, int rank) {
    const tir_buffer *buffer = &v->kernel->buffers.data[tir_get(v->pool, load)->bits];
    for (int i = 0; i < rank; i++) {
        int64_t extent;
        if (!tir_is_const(v->pool, buffer->extent[i], &extent)) return false;
        const tir_interval range = tir_range(v->pool, tir_operand(v->pool, load, i));
        if (range.low >= 0 && range.high < extent) continue;
        const tir_expr index = resolve(v, tir_operand(v->pool, load, i));
        if (tir_range(v->pool, index).low < 0 || highest(v, index) >= extent) return false;
    }
    return true;
}

/* Does the expression load, itself or by lets around it, an element that differs between lanes? */
static bool loads_by_lane(tir_vectoriser *v, tir_expr root) {
    lib_vec(tir_expr) lets = {0};
    bool found = false;
    v->now++;
    depends(v, root, &(int){1});
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_expr e = v->order.data[k];
        found |= tir_op_of(v->pool, e) == TIR_LOAD && v->varies[e];
        for (uint32_t i = 0; i < v->known.count; i++)
            if (v->known.data[i].var == e && v->known.data[i].value && !v->known.data[i].copy)
                lib_vec_push(v->arena, &lets, v->known.data[i].value);
    }
    for (uint32_t i = 0; i < lets.count && !found; i++) found = loads_by_lane(v, lets.data[i]);
    return found;
}

/* Do lanes surely access different elements, so that the access is masked lane by lane? Lanes with quotients of the lane as index may all
 * access one element, without a mask. */
static bool is_masked(tir_vectoriser *v, uint32_t buffer, int rank, const tir_expr *index) {
    tir_expr at[TIR_MAX_PHYSICAL];
    int64_t stride;
    for (int i = 0; i < rank; i++) {
        if (loads_by_lane(v, index[i])) return true;
        at[i] = index[i];
        for (uint32_t k = v->known.count; k-- > 0;) {
            const tir_known_variable *let = &v->known.data[k];
            if (let->value && !let->copy && tir_uses(v->pool, at[i], let->var))
                at[i] = tir_substitute(v->pool, at[i], 1, &let->var, &let->value);
        }
    }
    return lane_stride(v, buffer, rank, at, v->lane, &stride) && stride != 0;
}

/* Can all loads of the expression run without a branch around them, because each is masked lane by lane or stays in its buffer? */
static bool loads_flatten(tir_vectoriser *v, tir_expr root) {
    lib_vec(tir_expr) loads = {0};
    v->now++;
    visit(v, root);
    for (uint32_t k = 0; k < v->order.count; k++) {
        const tir_node *node = tir_get(v->pool, v->order.data[k]);
        if (node->op == TIR_LOAD && !in_registers(v, node->bits)) lib_vec_push(v->arena, &loads, v->order.data[k]);
    }
    for (uint32_t k = 0; k < loads.count; k++) {
        const tir_node node = *tir_get(v->pool, loads.data[k]);
        const int rank = (int)node.count - (node.guarded ? 2 : 0);
        if (is_empty(v, (uint32_t)node.bits)) return false;
        tir_expr index[TIR_MAX_PHYSICAL];
        for (int i = 0; i < rank; i++) index[i] = tir_operand(v->pool, loads.data[k], i);
        if (!is_masked(v, (uint32_t)node.bits, rank, index) && !stays_inside(v, loads.data[k], rank)) return false;
    }
    return true;
}

bool tir_vec_flattens(tir_vectoriser *v, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR: return false;
        case TIR_LET:
            if (!loads_flatten(v, stmt->let.value) || !tir_vec_flattens(v, stmt->let.body)) return false;
            break;
        case TIR_IF:
            if (!loads_flatten(v, stmt->if_.condition) || !tir_vec_flattens(v, stmt->if_.body) ||
                !tir_vec_flattens(v, stmt->if_.otherwise))
                return false;
            break;
        case TIR_STORE:
            if (!is_masked(v, stmt->store.buffer, stmt->store.rank, stmt->store.index) ||
                is_empty(v, stmt->store.buffer) || !loads_flatten(v, stmt->store.value))
                return false;
            break;
        default: break;
        }
    }
    return true;
}
