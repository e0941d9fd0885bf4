/* Collective units: the loops that a schedule assigns to one become a collective statement, its operands and sums places in registers.
 * Operand elements outside of the reduction's domain must be zero, ensured by the stage that copies them from memory. */
#include "tir/lower.h"
#include "tir/registers.h"

/* ---- operands outside of the domain */

/* The stage whose scratch holds a tensor that the unit reads; -1: none. */
static int scratch_stage(tir_lowering *l, uint32_t tensor) {
    const int s = l->region->tensors.data[tensor].stage;
    return s >= 0 && tir_plan_of(l, s)->at_stage >= 0 && tir_stage_of(l, s)->kind == TIR_MAP ? s : -1;
}

/* The dimension of a load that is indexed by the axis itself; -1: none. */
static int dimension_of(const tir_pool *pool, tir_expr load, tir_expr axis) {
    const tir_node *node = tir_get(pool, load);
    for (int d = 0; d < node->count - (node->guarded ? 2 : 0); d++)
        if (tir_operand(pool, load, d) == axis) return d;
    return -1;
}

/* Makes stage s zero-fill its elements beyond the end of the axis that `along` indexes (zero_axis, zero_end): a unit reads whole blocks
 * of the summed axis. */
static void zero_beyond_end(tir_lowering *l, int s, tir_expr load, tir_expr along) {
    const tir_stage *stage = tir_stage_of(l, s);
    int dim = -1, found = 0;
    for (int d = 0; d < stage->space; d++)
        if (tir_uses(l->pool, tir_operand(l->pool, load, d), along)) dim = d, found++;
    if (found != 1 || stage->count != 1) return;
    tir_plan_of(l, s)->zero_axis = dim;
    tir_plan_of(l, s)->zero_end = stage->axis[dim].extent;
}

static void zero_operand(tir_lowering *l, int unit, tir_expr load) {
    tir_stage *stage = tir_stage_of(l, unit);
    const tir_axis *axis = &stage->axis[tir_plan_of(l, unit)->nodes.data[tir_plan_of(l, unit)->unit_root[2]].axis];
    const char *name = tir_plan_of(l, unit)->unit->name;
    int s = -1, dim = -1;
    tir_expr along = axis->var;
    l->state.line = stage->name;
    /* copies of copies: the first one, which reads memory, zero-fills */
    for (tir_expr at = load; tir_op_of(l->pool, at) == TIR_LOAD && !tir_get(l->pool, at)->guarded;) {
        const int next = scratch_stage(l, (uint32_t)tir_get(l->pool, at)->bits);
        const int d = dimension_of(l->pool, at, along);
        if (next >= 0 && d < 0 && s >= 0) zero_beyond_end(l, next, at, along);
        if (next < 0 || d < 0 || tir_stage_of(l, next)->count != 1) break;
        s = next;
        dim = d;
        along = tir_stage_of(l, s)->axis[d].var;
        at = tir_stage_of(l, s)->value[0];
    }
    if (s < 0)
        tir_schedule_raise(&l->state, "operands of %s must be values that are attached, read along its axes: copy them",
                           name);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    if (plan->zero_end && (plan->zero_end != axis->extent || plan->zero_axis != dim))
        tir_schedule_raise(&l->state, "%s is an operand of two units that end elsewhere: copy it twice",
                           tir_stage_of(l, s)->name);
    tir_plan_of(l, s)->zero_axis = dim;
    tir_plan_of(l, s)->zero_end = axis->extent;
}

void tir_lower_zero_operands(tir_lowering *l, int s) {
    tir_expr sides[2];
    tir_unit_match(tir_plan_of(l, s)->unit, l->pool, tir_stage_of(l, s), &sides[0], &sides[1]);
    for (int side = 0; side < 2; side++) zero_operand(l, s, sides[side]);
}

/* Whether this is a load that is zero if its guard is false. */
static bool is_zeroed_load(const tir_lowering *l, tir_expr value) {
    const tir_node *node = tir_get(l->pool, value);
    if (node->op != TIR_LOAD) return false;
    return !node->guarded || tir_operand(l->pool, value, node->count - 1) == tir_int(l->pool, node->dtype, 0);
}

tir_expr tir_lower_zeroed(tir_lowering *l, int s, tir_expr value) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    if (!plan->zero_end) return value;
    const tir_expr zero = tir_int(l->pool, tir_dtype_of(l->pool, value), 0);
    tir_expr inside = tir_lt(l->pool, tir_axis_value(&l->state, s, plan->zero_axis), plan->zero_end);
    if (!tir_lower_conjoin(l, 0, inside)) return value;
    if (!is_zeroed_load(l, value)) return tir_select(l->pool, inside, value, zero);
    const tir_node node = *tir_get(l->pool, value);
    tir_expr terms[TIR_TERM_LIMIT], index[TIR_MAX_PHYSICAL_RANK], guard = inside;
    const int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(l->pool, value, d);
    int count = node.guarded ? tir_conjuncts(l->pool, tir_operand(l->pool, value, rank), terms, TIR_TERM_LIMIT) : 0;
    for (int i = 0; i < count; i++)
        if (terms[i] == inside) return value;
    if (count) guard = tir_and(l->pool, tir_operand(l->pool, value, rank), inside);
    return tir_load(l->pool, (uint32_t)node.bits, node.dtype, rank, index, guard, zero);
}

/* ---- the statement */

/* Sets the values of all loops below a node from the node's value. */
static void set_values(tir_stage_plan *plan, tir_pool *pool, int node, tir_expr value) {
    tir_axis_node *n = &plan->nodes.data[node];
    if (n->outer < 0) {
        n->value = value;
        return;
    }
    tir_expr factor = tir_index(pool, n->factor);
    set_values(plan, pool, n->outer, value ? tir_div(pool, value, factor) : 0);
    set_values(plan, pool, n->inner, value ? tir_rem(pool, value, factor) : 0);
}

/* Checks that the node has as many points as the unit's variable, in tiles that divide it. */
static void check_side(tir_lowering *l, int s, int node, int64_t side) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    const tir_axis_node *n = &plan->nodes.data[node];
    int64_t points = 0;
    if (!tir_is_const(l->pool, tir_node_extent(&l->state, s, node), &points) || points != side)
        tir_schedule_raise(&l->state, "%s of stage %s must have %lld points for unit %s", n->name,
                           tir_stage_of(l, s)->name, (long long)side, plan->unit->name);
    if (n->outer < 0) return;
    if (n->mode != TIR_TAIL_MASK || side % n->factor)
        tir_schedule_raise(&l->state, "%s of stage %s is not split into equal parts for unit %s", n->name,
                           tir_stage_of(l, s)->name, plan->unit->name);
    check_side(l, s, n->outer, side / n->factor);
    check_side(l, s, n->inner, n->factor);
}

/* Raises unless the factor of each mask split of the reduction divides the tile that it splits; the whole axis may end within a tile. */
static void check_steps(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    const int axis = plan->nodes.data[plan->unit_root[2]].axis;
    for (uint32_t n = 0; n < plan->nodes.count; n++) {
        const tir_axis_node *node = &plan->nodes.data[n];
        if (!node->reduce || node->outer < 0 || node->mode != TIR_TAIL_MASK) continue;
        if (node->axis == axis && node->parent < 0) continue; /* operands are zero beyond the end */
        tir_expr inside = tir_lt(l->pool, tir_node_value(&l->state, s, (int)n), tir_node_extent(&l->state, s, (int)n));
        if (tir_lower_conjoin(l, 0, inside))
            tir_schedule_raise(&l->state, "tiles of %s of stage %s do not divide it, which %s needs", node->name,
                               stage->name, plan->unit->name);
    }
}

static tir_place place_of(tir_lowering *l, int s, tir_expr load, const char *what) {
    const tir_node *node = tir_get(l->pool, load);
    tir_expr index[TIR_MAX_PHYSICAL_RANK];
    if (node->op != TIR_LOAD || node->guarded || l->kernel->buffers.data[node->bits].scope != TIR_SCOPE_REG)
        tir_schedule_raise(&l->state, "%s of unit %s must lie in registers: copy and `store reg`", what,
                           tir_plan_of(l, s)->unit->name);
    for (int d = 0; d < node->count; d++) index[d] = tir_operand(l->pool, load, d);
    return (tir_place){(uint32_t)node->bits, node->count, tir_lower_copy_indices(l, index, node->count)};
}

void tir_lower_collective(tir_lowering *l, int s) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    tir_expr acc[TIR_MAX_STATE], sides[2], i = stage->axis[plan->nodes.data[plan->unit_root[0]].axis].var;
    tir_stmt *stmt = tir_collective_new(l->kernel, plan->unit);
    l->state.line = stage->name;
    for (int v = 0; v < TIR_UNIT_VARS; v++) {
        check_side(l, s, plan->unit_root[v], INT64_C(1) << plan->unit->bits[v]);
        set_values(plan, l->pool, plan->unit_root[v], stmt->collective.var[v]);
    }
    check_steps(l, s);
    if (tir_lower_store_guard(l, s, true, false))
        tir_schedule_raise(&l->state, "tiles of stage %s do not divide what it computes, which %s needs", stage->name,
                           plan->unit->name);
    tir_unit_match(plan->unit, l->pool, stage, &sides[0], &sides[1]);
    const int left = tir_uses(l->pool, sides[0], i) ? 0 : 1;
    tir_lower_load_state(l, s, true, acc);
    stmt->collective.place[0] = place_of(l, s, acc[0], "sums");
    stmt->collective.place[1] = place_of(l, s, tir_lower_translate(l, s, sides[left], NULL), "operands");
    stmt->collective.place[2] = place_of(l, s, tir_lower_translate(l, s, sides[1 - left], NULL), "operands");
    l->kernel->buffers.data[stmt->collective.place[0].buffer].written = true;
    for (int v = 0; v < TIR_UNIT_VARS; v++) set_values(plan, l->pool, plan->unit_root[v], 0);
    *l->cursor = stmt;
    l->cursor = &stmt->next;
}

/* ---- matrices out of shared memory: a warp's copy into registers that a TIR_LOAD_MATRICES unit executes at once */

enum { MATRIX_LOOPS = 12 };

typedef struct matrix_copy {
    tir_lowering *l;
    const tir_registers *registers;
    /* enclosing thread loops that number the warps */
    tir_thread_loops around;
    const tir_stmt *lane[TIR_THREAD_LOOPS], *loop[MATRIX_LOOPS], *store;
    int lanes, loops;
} matrix_copy;

/* Does the store copy an element of two bytes from shared memory to registers? */
static bool copies_to_registers(const matrix_copy *m, const tir_stmt *stmt) {
    const tir_node *node = tir_get(m->l->pool, stmt->store.value);
    const tir_buffer *buffers = m->l->kernel->buffers.data;
    return node->op == TIR_LOAD && !node->guarded && buffers[node->bits].scope == TIR_SCOPE_SHARED &&
           buffers[stmt->store.buffer].scope == TIR_SCOPE_REG && lib_dtype_size(buffers[stmt->store.buffer].dtype) == 2;
}

/* Is the statement a nest of thread loops, then other loops, with constant extents, around a single store of an element of shared memory in
 * registers? Sets m->lane, m->loop and m->store. */
static bool is_matrix_copy(matrix_copy *m, const tir_stmt *stmt) {
    const tir_pool *pool = m->l->pool;
    int64_t number;
    m->lanes = m->loops = 0;
    for (; stmt && !stmt->next && stmt->kind == TIR_FOR; stmt = stmt->for_.body) {
        const bool thread = stmt->for_.loop == TIR_THREAD;
        if (stmt->for_.loop == TIR_SERIAL || (thread && m->loops) || !tir_is_const(pool, stmt->for_.lower, &number) ||
            number || !tir_is_const(pool, stmt->for_.extent, &number))
            return false;
        if (thread ? m->lanes == TIR_THREAD_LOOPS : m->loops == MATRIX_LOOPS) return false;
        if (thread)
            m->lane[m->lanes++] = stmt;
        else
            m->loop[m->loops++] = stmt;
    }
    if (!stmt || stmt->next || stmt->kind != TIR_STORE) return false;
    m->store = stmt;
    return copies_to_registers(m, stmt);
}

static tir_place place_at(const matrix_copy *m, uint32_t buffer, int rank, const tir_expr *index, int count,
                          const tir_expr *from, const tir_expr *to) {
    tir_expr at[TIR_MAX_PHYSICAL_RANK];
    for (int d = 0; d < rank; d++) at[d] = tir_substitute(m->l->pool, index[d], count, from, to);
    return (tir_place){buffer, rank, tir_lower_copy_indices(m->l, at, rank)};
}

/* The copy as the unit, inside the loops that the unit does not cover. pair: the number of the loop over the two elements of a register.
 * NULL: the unit does not fit. */
static tir_stmt *matrix_statement(matrix_copy *m, const tir_unit *unit, int pair) {
    tir_pool *pool = m->l->pool;
    tir_stmt *stmt = tir_collective_new(m->l->kernel, unit), *outermost = stmt;
    const tir_expr two = tir_index(pool, 2), lane = tir_fragment_lane_of(pool, unit, 0, stmt->collective.var);
    const tir_expr element = tir_fragment_register_of(pool, unit, 0, stmt->collective.var);
    tir_expr number = tir_div(pool, element, two); /* of the register */
    tir_expr from[TIR_THREAD_LOOPS + MATRIX_LOOPS], to[TIR_THREAD_LOOPS + MATRIX_LOOPS];
    int count = 0, left = tir_fragment_registers(unit, 0) / 2;
    for (int i = 0; i < m->lanes; i++) {
        tir_expr stride = tir_index(pool, tir_thread_stride(pool, m->lane[i]));
        from[count] = m->lane[i]->for_.var;
        to[count++] = tir_rem(pool, tir_div(pool, lane, stride), m->lane[i]->for_.extent);
    }
    for (int i = m->loops - 1; i >= 0; i--) {
        const tir_stmt *loop = m->loop[i];
        int64_t extent = 1, taken = 1;
        tir_is_const(pool, loop->for_.extent, &extent);
        from[count] = loop->for_.var;
        if (i == pair) {
            to[count++] = tir_rem(pool, element, two);
            continue;
        }
        for (; left > 1 && extent % 2 == 0; left /= 2, extent /= 2) taken *= 2;
        tir_expr taken_part = tir_rem(pool, number, tir_index(pool, taken));
        number = tir_div(pool, number, tir_index(pool, taken));
        tir_stmt *rest = lib_arena_copy(m->l->arena, loop, sizeof *loop);
        rest->for_.extent = tir_index(pool, extent);
        rest->for_.loop = TIR_UNROLL;
        rest->for_.var =
            tir_loop_variable(pool, tir_variable_of(pool, loop->for_.var)->name, loop->for_.lower, rest->for_.extent);
        rest->for_.body = outermost;
        if (extent > 1) outermost = rest;
        tir_expr start = extent > 1 ? tir_mul(pool, rest->for_.var, tir_index(pool, taken)) : tir_index(pool, 0);
        to[count++] = tir_add(pool, start, taken_part);
    }
    if (left > 1) return NULL;
    const tir_node node = *tir_get(pool, m->store->store.value);
    tir_expr source[TIR_MAX_PHYSICAL_RANK];
    for (int d = 0; d < node.count; d++) source[d] = tir_operand(pool, m->store->store.value, d);
    stmt->collective.place[0] =
        place_at(m, m->store->store.buffer, m->store->store.rank, m->store->store.index, count, from, to);
    stmt->collective.place[1] = place_at(m, (uint32_t)node.bits, node.count, source, count, from, to);
    return tir_collective_flaw(m->l->kernel, stmt, &m->around, m->registers) ? NULL : outermost;
}

/* The copy by the machine's first unit that fits; lanes: threads of the copy. */
static tir_stmt *load_matrices(matrix_copy *m, int64_t lanes) {
    const tir_machine *machine = m->l->options->machine;
    for (int pair = m->loops - 1; pair >= 0; pair--) {
        if (!tir_is_number(m->l->pool, m->loop[pair]->for_.extent, 2)) continue;
        for (const tir_unit *unit = machine->units; unit->name; unit++) {
            if (unit->kind != TIR_LOAD_MATRICES || unit->lanes != lanes || !tir_machine_has(machine, unit)) continue;
            tir_stmt *made = matrix_statement(m, unit, pair);
            if (made) return made;
        }
    }
    return NULL;
}

static void find_matrices(matrix_copy *m, tir_stmt **link) {
    for (; *link; link = &(*link)->next) {
        tir_stmt *stmt = *link, *made, *next = stmt->next;
        const bool thread = stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD;
        int64_t extent = 0;
        stmt->next = NULL;
        if (thread && tir_is_const(m->l->pool, stmt->for_.extent, &extent) && is_matrix_copy(m, stmt) &&
            (made = load_matrices(m, extent * tir_thread_stride(m->l->pool, stmt))) != NULL)
            *link = stmt = made;
        stmt->next = next;
        if (stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD)
            m->around.loop[m->around.count++] = (tir_thread_loop){stmt->for_.var, tir_thread_stride(m->l->pool, stmt)};
        if (stmt->kind == TIR_FOR) find_matrices(m, &stmt->for_.body);
        if (stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD) m->around.count--;
        if (stmt->kind == TIR_LET) find_matrices(m, &stmt->let.body);
        if (stmt->kind != TIR_IF) continue;
        find_matrices(m, &stmt->if_.body);
        find_matrices(m, &stmt->if_.otherwise);
    }
}

static void find_collective(void *user, const tir_stmt *stmt) {
    if (stmt->kind == TIR_COLLECTIVE) *(bool *)user = true;
}

static bool has_collectives(const tir_phase *phase) {
    bool found = false;
    tir_stmt_walk(phase->body, find_collective, &found);
    return found;
}

void tir_lower_matrices(tir_lowering *l) {
    tir_kernel *kernel = l->kernel;
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        if (!has_collectives(&kernel->phases.data[p]))
            continue; /* only registers of collective units have such lanes */
        tir_registers *registers = LIB_NEW_ARRAY(l->arena, tir_registers, kernel->buffers.count);
        tir_find_registers(kernel, &kernel->phases.data[p], registers);
        matrix_copy copy = {.l = l, .registers = registers};
        find_matrices(&copy, &kernel->phases.data[p].body);
    }
}

/* ---- finished loops */

typedef struct collective_check {
    tir_lowering *l;
    tir_registers *registers;
    tir_thread_loops threads;
} collective_check;

static void check_list(collective_check *c, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        const bool thread = stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD;
        if (thread)
            c->threads.loop[c->threads.count++] =
                (tir_thread_loop){stmt->for_.var, tir_thread_stride(c->l->pool, stmt)};
        if (stmt->kind == TIR_FOR) check_list(c, stmt->for_.body);
        if (thread) c->threads.count--;
        if (stmt->kind == TIR_LET) check_list(c, stmt->let.body);
        if (stmt->kind == TIR_IF) {
            check_list(c, stmt->if_.body);
            check_list(c, stmt->if_.otherwise);
        }
        if (stmt->kind != TIR_COLLECTIVE) continue;
        const char *flaw = tir_collective_flaw(c->l->kernel, stmt, &c->threads, c->registers);
        if (flaw)
            lib_raise(c->l->arena->scope, DLC_INVALID_ARGUMENT, "schedule of region %s: %s", c->l->region->name, flaw);
    }
}

void tir_lower_check_collectives(tir_lowering *l) {
    tir_kernel *kernel = l->kernel;
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        if (!has_collectives(&kernel->phases.data[p])) continue;
        collective_check c = {.l = l, .registers = LIB_NEW_ARRAY(l->arena, tir_registers, kernel->buffers.count)};
        tir_find_registers(kernel, &kernel->phases.data[p], c.registers);
        check_list(&c, kernel->phases.data[p].body);
    }
}
