/* Loops. A serial loop is a loop with phis for its counter and for the REG elements written inside. An unrolled loop
 * repeats its body with the variable constant. A vec loop is cut into chunks of lanes; long ones become a serial loop
 * over chunks. */
#include "targets/cpu/emit.h"

#define ROLL_CHUNKS 8 /* vec loops of more chunks than this are rolled when they may be */

/* ---- bindings */

void emit_bind(emitter *e, tir_expr var, const emit_form *form) {
    emit_binding *binding = &e->binding[tir_var_id(e->pool, var)];
    if (!binding->form) binding->form = LIB_NEW(e->arena, emit_form);
    *binding->form = *form;
    binding->bound = true;
    e->epoch++;
}

void emit_bind_value(emitter *e, tir_expr var, emit_value value) {
    emit_binding *binding = &e->binding[tir_var_id(e->pool, var)];
    binding->value = value;
    binding->bound = true;
    e->epoch++;
}

void emit_unbind(emitter *e, tir_expr var) {
    e->binding[tir_var_id(e->pool, var)].bound = false;
}

static void bind_sum(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t iteration, int64_t lane) {
    emit_form form = *lower;
    form.constant += iteration;
    form.lane += lane;
    emit_bind(e, loop->for_.var, &form);
}

/* ---- analysis of vec loops, from the structure of the loop IR: does an expression depend on the loop variable? */

static bool depends(emitter *e, tir_expr expr, int *widest) {
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_CONST) return false;
    bool result = false;
    if (node->op == TIR_VAR)
        result = e->dependent[node->bits];
    else if (e->depends_epoch[expr] == e->depends_now)
        return e->varies[expr];
    for (int i = 0; i < (int)node->count; i++) result |= depends(e, tir_operand(e->pool, expr, i), widest);
    if (result && node->dtype != TIR_INDEX && node->dtype != DLC_BOOL) {
        int size = (int)lib_dtype_size((dlc_dtype)node->dtype);
        if (size > *widest) *widest = size;
    }
    e->depends_epoch[expr] = e->depends_now;
    e->varies[expr] = result;
    return result;
}

static bool store_vectorises(emitter *e, const tir_stmt *stmt, int *widest) {
    bool index = false, value = depends(e, stmt->store.value, widest);
    for (int i = 0; i < stmt->store.rank; i++) index |= depends(e, stmt->store.index[i], widest);
    dlc_dtype dtype = e->kernel->buffers.data[stmt->store.buffer].dtype;
    int size = (int)lib_dtype_size(dtype);
    if (index && size > *widest) *widest = size;
    return index || !value || emit_is_reduction(e, stmt);
}

static bool vectorises(emitter *e, const tir_stmt *list, int *widest) {
    bool result = true;
    for (const tir_stmt *stmt = list; stmt && result; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR:
            if (depends(e, stmt->for_.lower, widest) || depends(e, stmt->for_.extent, widest)) return false;
            result = vectorises(e, stmt->for_.body, widest);
            break;
        case TIR_LET:
            e->dependent[tir_var_id(e->pool, stmt->let.var)] = depends(e, stmt->let.value, widest);
            e->depends_now++;
            result = vectorises(e, stmt->let.body, widest);
            break;
        case TIR_IF:
            depends(e, stmt->if_.condition, widest);
            result = vectorises(e, stmt->if_.body, widest) && vectorises(e, stmt->if_.otherwise, widest);
            break;
        case TIR_STORE: result = store_vectorises(e, stmt, widest); break;
        default: break;
        }
    }
    return result;
}

/* Lanes may update one place together only if nothing else in the loop observes the order of the updates: every other access to the place
 * must be an update by the same operator. An access that observes the order is an error; if it is not known whether it accesses this place,
 * the loop runs lane by lane. */
typedef struct reductions {
    emitter *e;
    lib_vec(const tir_stmt *) stores;
    /* the statement whose loads are being checked */
    const tir_stmt *stmt;
    /* by expression: was it visited in this statement? */
    uint8_t *visited;
    /* another access may observe the order */
    bool unclear;
} reductions;

static void note_access(reductions *r, int same) {
    if (same > 0) emit_raise(r->e, "iterations of a vec loop combine into one place, and use it otherwise");
    r->unclear |= same < 0;
}

static void collect_reduction(void *user, const tir_stmt *stmt) {
    reductions *r = user;
    int widest = 1;
    if (stmt->kind != TIR_STORE || !depends(r->e, stmt->store.value, &widest)) return;
    for (int i = 0; i < stmt->store.rank; i++)
        if (depends(r->e, stmt->store.index[i], &widest)) return;
    note_access(r, !tir_is_exact_reduction(r->e->arena, r->e->kernel, stmt));
    lib_vec_push(r->e->arena, &r->stores, stmt);
}

/* Are store->store.index and `index` the same place? 1: yes, 0: no, -1: not known. */
static int same_place(emitter *e, const tir_stmt *store, int rank, const tir_expr *index) {
    int result = 1;
    for (int i = 0; i < rank; i++) {
        tir_expr a = store->store.index[i], b = index[i];
        if (a == b) continue;
        if (tir_op_of(e->pool, a) == TIR_CONST && tir_op_of(e->pool, b) == TIR_CONST) return 0;
        result = -1;
    }
    return result;
}

static void check_loads(void *user, tir_expr expr) {
    reductions *r = user;
    const tir_node *node = tir_get(r->e->pool, expr);
    if (r->visited[expr]) return;
    r->visited[expr] = 1;
    if (node->op == TIR_LOAD && !tir_loads_stored(r->e->kernel, r->stmt, expr)) {
        int rank = (int)node->count - (node->guarded ? 2 : 0);
        for (uint32_t i = 0; i < r->stores.count; i++)
            if (r->stores.data[i]->store.buffer == node->bits)
                note_access(r, same_place(r->e, r->stores.data[i], rank, &r->e->pool->operands.data[node->first]));
    }
    for (int i = 0; i < (int)node->count; i++) check_loads(r, tir_operand(r->e->pool, expr, i));
}

static void check_statement(void *user, const tir_stmt *stmt) {
    reductions *r = user;
    r->stmt = stmt;
    memset(r->visited, 0, r->e->pool->nodes.count);
    tir_stmt_exprs(stmt, check_loads, r);
    if (stmt->kind != TIR_STORE) return;
    for (uint32_t i = 0; i < r->stores.count; i++) {
        const tir_stmt *other = r->stores.data[i];
        if (other == stmt || other->store.buffer != stmt->store.buffer) continue;
        int same = same_place(r->e, other, stmt->store.rank, stmt->store.index);
        tir_op a = tir_op_of(r->e->pool, stmt->store.value), b = tir_op_of(r->e->pool, other->store.value);
        if (same <= 0 || a != b || !emit_is_reduction(r->e, stmt)) note_access(r, same);
    }
}

static bool reductions_agree(emitter *e, const tir_stmt *body) {
    reductions r = {.e = e};
    e->depends_now++;
    tir_stmt_walk(body, collect_reduction, &r);
    if (!r.stores.count) return true;
    r.visited = LIB_NEW_ARRAY(e->arena, uint8_t, e->pool->nodes.count);
    tir_stmt_walk(body, check_statement, &r);
    return !r.unclear;
}

static emit_vec vector_plan(emitter *e, const tir_stmt *loop) {
    for (uint32_t i = 0; i < e->loops.count; i++)
        if (e->loops.data[i].loop == loop) return e->loops.data[i];
    int widest = 1, bytes = e->device->machine.vector_bytes;
    memset(e->dependent, 0, e->pool->variables.count * sizeof *e->dependent);
    e->dependent[tir_var_id(e->pool, loop->for_.var)] = true;
    e->depends_now++;
    emit_vec known = {.loop = loop};
    if (vectorises(e, loop->for_.body, &widest) && bytes && reductions_agree(e, loop->for_.body))
        known.lanes = bytes / widest;
    e->epoch++; /* e->varies was overwritten by depends() */
    int64_t count;
    known.woven = 1;
    if (known.lanes && tir_is_const(e->pool, loop->for_.extent, &count) && count >= 2 * known.lanes) {
        known.roll = emit_chunks_roll(e, loop, count / known.lanes);
        known.woven = emit_woven_chunks(e, loop);
        if (known.woven >= count / known.lanes) known.roll = false;
    }
    lib_vec_push(e->arena, &e->loops, known);
    return known;
}

/* Are all variables of the expression bound, that is, outside of the loop? A vec loop may be rolled if this holds for all its REG
 * indices. */
static bool uses_bound_only(emitter *e, tir_expr expr) {
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_VAR) return e->binding[node->bits].bound;
    for (int i = 0; i < (int)node->count; i++)
        if (!uses_bound_only(e, tir_operand(e->pool, expr, i))) return false;
    return true;
}

static bool reg_loads_fixed(emitter *e, tir_expr expr) {
    const tir_node *node = tir_get(e->pool, expr);
    bool reg = node->op == TIR_LOAD && emit_in_registers(e, (uint32_t)node->bits);
    for (int i = 0; i < (int)node->count; i++) {
        tir_expr operand = tir_operand(e->pool, expr, i);
        if (reg && !uses_bound_only(e, operand)) return false;
        if (!reg_loads_fixed(e, operand)) return false;
    }
    return true;
}

static bool rollable(emitter *e, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR:
            if (!rollable(e, stmt->for_.body)) return false;
            break;
        case TIR_LET:
            if (!reg_loads_fixed(e, stmt->let.value) || !rollable(e, stmt->let.body)) return false;
            break;
        case TIR_IF:
            if (!reg_loads_fixed(e, stmt->if_.condition) || !rollable(e, stmt->if_.body) ||
                !rollable(e, stmt->if_.otherwise))
                return false;
            break;
        case TIR_STORE:
            if (!reg_loads_fixed(e, stmt->store.value)) return false;
            for (int i = 0; i < stmt->store.rank; i++)
                if (emit_in_registers(e, stmt->store.buffer) && !uses_bound_only(e, stmt->store.index[i])) return false;
            break;
        default: break;
        }
    }
    return true;
}

/* ---- chunks */

typedef struct chunk {
    /* lanes 0: one scalar iteration */
    int lanes, active;
} chunk;

/* The next chunk, if `rest` iterations are left: a whole vector while there are enough; then one partial vector if masks are cheap, else
 * halves. */
static chunk next_chunk(const emitter *e, int width, int64_t rest) {
    if (rest >= width && width > 1) return (chunk){width, width};
    if (rest == 1 || width <= 1) return (chunk){0, 1};
    int half = width;
    while (half > rest) half /= 2;
    if (half == rest || !e->device->machine.masked) return (chunk){half, half};
    while (half < rest) half *= 2;
    return (chunk){half, (int)rest};
}

/* width: lanes of whole vectors */
static void visit_chunk(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t start, chunk part, int width,
                        emit_visit visit, void *user) {
    int lanes = e->lanes, active = e->active, whole = e->whole;
    emit_vec_position position = e->vec_position;
    e->lanes = part.lanes;
    e->active = part.active;
    e->whole = width;
    e->vec_position = (emit_vec_position){loop->for_.var, *lower};
    e->vec_position.start.constant += start;
    bind_sum(e, loop, lower, start, part.lanes ? 1 : 0);
    visit(e, loop->for_.body, user);
    e->lanes = lanes;
    e->active = active;
    e->whole = whole;
    e->vec_position = position;
    e->epoch++;
}

void emit_visit_chunks(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t start, int64_t extent,
                       int width, emit_visit visit, void *user) {
    while (start < extent) {
        chunk part = next_chunk(e, width, extent - start);
        visit_chunk(e, loop, lower, start, part, width, visit, user);
        start += part.active;
    }
}

static void visit_statements(emitter *e, const tir_stmt *body, void *user) {
    (void)user;
    emit_statements(e, body);
}

/* Emits the chunks of iterations start .. extent - 1, interleaving as many as the loop's plan says. */
static void emit_chunks(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t start, int64_t extent,
                        int width) {
    int ways = vector_plan(e, loop).woven;
    bool weaves = e->weaves;
    e->weaves = weaves || ways > 1;
    while (start < extent) {
        emit_weave w = {0};
        if (ways > 1) emit_weave_mark(e, &w);
        for (int i = 0; i < ways && start < extent; i++) {
            chunk part = next_chunk(e, width, extent - start);
            visit_chunk(e, loop, lower, start, part, width, visit_statements, NULL);
            start += part.active;
            if (ways > 1) emit_weave_mark(e, &w);
        }
        emit_weave_end(e, &w);
    }
    e->weaves = weaves;
}

static void visit_unrolled(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t extent, emit_visit visit,
                           void *user) {
    for (int64_t i = 0; i < extent; i++) {
        bind_sum(e, loop, lower, i, 0);
        visit(e, loop->for_.body, user);
    }
}

/* Starts a new block. The code generator merges equal loads within a block and would keep the values of one copy for the next, in
 * registers that accumulators need. */
static void split_block(emitter *e) {
    LLVMBasicBlockRef next = emit_block(e, "next");
    emit_at(e, e->top);
    LLVMBuildBr(e->builder, next);
    e->level[e->top].block = next;
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) e->buffer[i].version = ++e->next_version;
    e->epoch++;
    e->flattened = 0;
}

/* Emits one copy of an unrolled loop's body. If the body contains loops and many masked statements were emitted without branches, the next
 * copy begins a new block, unless operands and accumulators of a copy fit in registers: then the next copies reuse the operands. */
static void visit_copy(emitter *e, const tir_stmt *body, void *user) {
    int before = e->flattened, registers = e->device->machine.vector_registers;
    visit_statements(e, body, user);
    if (e->lanes || 2 * (e->flattened - before) + 2 <= registers) return;
    for (const tir_stmt *stmt = body; stmt; stmt = stmt->next) {
        if (stmt->kind != TIR_FOR || stmt->for_.loop == TIR_VEC || e->held.count) continue;
        if (e->flattened * 4 < e->device->machine.vector_registers) continue;
        split_block(e);
        return;
    }
}

/* ---- serial loops */

static void bump_versions(emitter *e, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        if (stmt->kind == TIR_FOR) bump_versions(e, stmt->for_.body);
        if (stmt->kind == TIR_LET) bump_versions(e, stmt->let.body);
        if (stmt->kind == TIR_STORE) e->buffer[stmt->store.buffer].version = ++e->next_version;
        if (stmt->kind != TIR_IF) continue;
        bump_versions(e, stmt->if_.body);
        bump_versions(e, stmt->if_.otherwise);
    }
}

/* The group's current value, a vector or a scalar. */
static LLVMValueRef group_value(emitter *e, const emit_group *group) {
    emit_value value = emit_reg_gather(e, group);
    if (group->lanes && !value.lanes) value = emit_splat(e, value, group->lanes);
    return value.llvm;
}

typedef struct serial {
    const tir_stmt *loop;
    emit_form lower;
    /* iterations */
    emit_form count;
    /* increment of the variable per iteration: 1, or in a rolled vec loop the lanes of all its chunks in one iteration */
    int64_t step;
    /* the chunk of a rolled vec loop; lanes 0: not a vec loop */
    chunk part;
    /* number of chunks interleaved in one iteration, `step` lanes together; 0: none */
    int woven;
} serial;

static void bind_counter(emitter *e, const serial *s, LLVMValueRef counter) {
    const tir_variable *variable = tir_variable_of(e->pool, s->loop->for_.var);
    tir_interval lower = emit_form_range(e, &s->lower), count = emit_form_range(e, &s->count);
    bool bounded = lower.low > TIR_UNBOUNDED_LOW && lower.high < TIR_UNBOUNDED_HIGH && count.high < INT32_MAX;
    int64_t low = bounded ? lower.low : variable->low;
    int64_t high = bounded ? lower.high + (count.high - 1) * s->step : variable->high;
    if (low < variable->low) low = variable->low;
    if (high > variable->high && s->step == 1) high = variable->high;
    emit_value value = {counter, 0, (int16_t)e->top};
    int64_t divisor = s->step == 1 ? variable->multiple : s->step, constant;
    if (s->step != 1 && !(emit_form_is_constant(&s->lower, &constant) && constant % s->step == 0)) divisor = 1;
    emit_form form = emit_form_of(e, value, low, high, divisor);
    form.lane = s->part.lanes ? 1 : 0;
    emit_bind(e, s->loop->for_.var, &form);
}

/* Makes a phi for each group in the loop's header, whose value from block `before` is initial[i]. */
static void enter_groups(emitter *e, emit_groups *groups, LLVMValueRef *initial, LLVMBasicBlockRef before) {
    for (uint32_t i = 0; i < groups->count; i++) {
        emit_group *group = &groups->data[i];
        LLVMPositionBuilderAtEnd(e->builder, e->level[e->top].block);
        group->phi = LLVMBuildPhi(e->builder, LLVMTypeOf(initial[i]), "");
        LLVMAddIncoming(group->phi, &initial[i], &before, 1);
        emit_reg_set(e, group, (emit_value){group->phi, (int16_t)group->lanes, (int16_t)e->top});
    }
}

/* Sets each group to its value after the loop: that of the last iteration, or initial[i] if there was no iteration (`guarded`:
 * possible). */
static void leave_groups(emitter *e, emit_groups *groups, LLVMValueRef *initial, LLVMValueRef *last,
                         LLVMBasicBlockRef before, LLVMBasicBlockRef latch, bool guarded) {
    for (uint32_t i = 0; i < groups->count; i++) {
        const emit_group *group = &groups->data[i];
        LLVMValueRef value = last[i];
        if (guarded && value != initial[i]) {
            LLVMPositionBuilderAtEnd(e->builder, e->level[e->top].block);
            value = LLVMBuildPhi(e->builder, LLVMTypeOf(last[i]), "");
            LLVMValueRef incoming[2] = {initial[i], last[i]};
            LLVMBasicBlockRef blocks[2] = {before, latch};
            LLVMAddIncoming(value, incoming, blocks, 2);
        }
        emit_reg_set(e, group, (emit_value){value, (int16_t)group->lanes, (int16_t)e->top});
    }
}

/* Emits the body, once for each interleaved chunk. */
static void emit_body(emitter *e, const serial *s) {
    if (s->woven <= 1) {
        emit_statements(e, s->loop->for_.body);
        return;
    }
    emit_form first = *e->binding[tir_var_id(e->pool, s->loop->for_.var)].form;
    emit_weave w = {0};
    bool weaves = e->weaves;
    e->weaves = true;
    emit_weave_mark(e, &w);
    for (int i = 0; i < s->woven; i++) {
        bind_sum(e, s->loop, &first, (int64_t)i * s->part.lanes, 0);
        emit_statements(e, s->loop->for_.body);
        emit_weave_mark(e, &w);
    }
    emit_weave_end(e, &w);
    e->weaves = weaves;
}

/* Distance of cancellation checks in units of the variable; 0: no checks, since the loop ends before one is due. */
static int64_t poll_every(emitter *e, const serial *s) {
    const int64_t every = tir_polls_of_loop(e->polls, s->loop), iterations = every / s->step;
    const int64_t most = emit_form_range(e, &s->count).high;
    if (!every || most <= (iterations > 1 ? iterations : 1)) return 0;
    return (iterations > 1 ? iterations : 1) * s->step;
}

/* May the loop have no iteration? Decided also from the expression of its extent: the bounds of a window at an image's edge are a minimum
 * and a maximum of one variable, whose difference has a smaller range than each of them suggests. */
static bool may_be_empty(emitter *e, const serial *s) {
    return emit_form_range(e, &s->count).low < 1 && tir_least(e->kernel->pool, s->loop->for_.extent) < 1;
}

static void emit_serial(emitter *e, const serial *s) {
    const tir_stmt *body = s->loop->for_.body;
    emit_flush(e);
    const bool guarded = may_be_empty(e, s);
    emit_value lower = emit_form_value(e, &s->lower), count = emit_form_value(e, &s->count);
    if (lower.lanes || count.lanes) emit_raise(e, "bounds of a loop differ from lane to lane");
    emit_at(e, e->top);
    LLVMValueRef step = emit_i64(e, s->step);
    LLVMValueRef trips = s->step == 1 ? count.llvm : LLVMBuildMul(e->builder, count.llvm, step, "");
    LLVMValueRef end = LLVMBuildAdd(e->builder, lower.llvm, trips, "");
    emit_groups groups = {0};
    emit_form unknown = emit_form_of(e, emit_constant(LLVMGetUndef(e->i64)), TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH, 1);
    unknown.lane = s->part.lanes ? 1 : 0;
    int lanes = e->lanes, active = e->active;
    if (s->part.lanes) {
        e->lanes = s->part.lanes;
        e->active = s->part.active;
    }
    emit_bind(e, s->loop->for_.var, &unknown);
    emit_reg_scan(e, body, &groups);
    LLVMValueRef *initial = LIB_NEW_ARRAY(e->arena, LLVMValueRef, groups.count), *last = NULL;
    for (uint32_t i = 0; i < groups.count; i++) initial[i] = group_value(e, &groups.data[i]);
    last = LIB_NEW_ARRAY(e->arena, LLVMValueRef, groups.count);

    LLVMBasicBlockRef before = guarded ? emit_branching(e) : e->level[e->top].block;
    LLVMBasicBlockRef head = emit_block(e, "loop"), after = emit_block(e, "after");
    LLVMPositionBuilderAtEnd(e->builder, before);
    emit_poll poll = {poll_every(e, s), NULL, NULL};
    emit_poll_before(e, &poll, lower.llvm, end);
    if (guarded)
        LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntSGT, count.llvm, emit_i64(e, 0), ""), head, after);
    else
        LLVMBuildBr(e->builder, head);
    emit_push(e, head, guarded);
    e->level[e->top].lone = emit_only_loop(body);
    LLVMPositionBuilderAtEnd(e->builder, head);
    LLVMValueRef counter = LLVMBuildPhi(e->builder, e->i64, "");
    LLVMAddIncoming(counter, &lower.llvm, &before, 1);
    emit_poll_head(e, &poll, before);
    enter_groups(e, &groups, initial, before);
    bump_versions(e, body);
    bind_counter(e, s, counter);
    uint32_t serials = ++e->serials;
    e->woven = 0;
    emit_body(e, s);
    emit_flush(e);

    for (uint32_t i = 0; i < groups.count; i++) last[i] = group_value(e, &groups.data[i]);
    LLVMBasicBlockRef latch = emit_branching(e);
    LLVMValueRef next = LLVMBuildAdd(e->builder, counter, step, "");
    LLVMBasicBlockRef back[2] = {latch, NULL};
    back[1] = emit_poll_latch(e, &poll, next, head, after, &latch);
    for (int b = 0; b < 2 && back[b]; b++) {
        LLVMAddIncoming(counter, &next, &back[b], 1);
        for (uint32_t i = 0; i < groups.count; i++) LLVMAddIncoming(groups.data[i].phi, &last[i], &back[b], 1);
    }
    if (e->serials == serials) emit_constants_outside(e, head, after, groups.count);
    emit_pop(e, after);
    e->lanes = lanes;
    e->active = active;
    leave_groups(e, &groups, initial, last, before, latch, guarded);
}

/* ---- all loops */

typedef enum plan { PLAN_NONE, PLAN_ONCE, PLAN_SERIAL, PLAN_UNROLL, PLAN_PAIRS, PLAN_CHUNKS, PLAN_ROLLED } plan;

int emit_vec_lanes(emitter *e, const tir_stmt *loop) {
    emit_vec vec = vector_plan(e, loop);
    emit_unbind(e, loop->for_.var);
    return vec.woven > 1 || (vec.roll && rollable(e, loop->for_.body)) ? 0 : vec.lanes;
}

/* How a loop runs: the one decision that emission and the scan for REG elements must share. */
static plan plan_loop(emitter *e, const tir_stmt *loop, const emit_form *extent, int *width) {
    int64_t count;
    bool constant = emit_form_is_constant(extent, &count);
    tir_loop_kind kind = loop->for_.loop;
    if (constant && count <= 0) return PLAN_NONE;
    if (constant && count == 1) return PLAN_ONCE;
    if (kind == TIR_SERIAL) return PLAN_SERIAL;
    if (!constant)
        emit_raise(e, "extent of %s loop %s is not constant", kind == TIR_VEC ? "vec" : "unrolled",
                   tir_variable_of(e->pool, loop->for_.var)->name);
    if (kind == TIR_UNROLL) return emit_rows_pair(e, loop) ? PLAN_PAIRS : PLAN_UNROLL;
    emit_vec vec = e->lanes ? (emit_vec){0} : vector_plan(e, loop);
    *width = vec.lanes;
    emit_unbind(e, loop->for_.var);
    bool roll = (vec.roll || count > (int64_t)ROLL_CHUNKS * (*width > 1 ? *width : 1)) && rollable(e, loop->for_.body);
    if (*width <= 1) return roll ? PLAN_SERIAL : PLAN_UNROLL;
    return roll ? PLAN_ROLLED : PLAN_CHUNKS;
}

static serial rolled(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t extent, int width) {
    int woven = vector_plan(e, loop).woven;
    if (extent / width < woven) woven = 1;
    int64_t step = (int64_t)woven * width;
    return (serial){.loop = loop,
                    .lower = *lower,
                    .count = emit_form_constant(extent / step),
                    .step = step,
                    .part = {width, width},
                    .woven = woven};
}

void emit_for(emitter *e, const tir_stmt *loop) {
    emit_form lower = emit_index(e, loop->for_.lower), extent = emit_index(e, loop->for_.extent);
    int width = 0;
    int64_t count = extent.constant;
    switch (plan_loop(e, loop, &extent, &width)) {
    case PLAN_NONE: break;
    case PLAN_ONCE: visit_unrolled(e, loop, &lower, 1, visit_statements, NULL); break;
    case PLAN_SERIAL: emit_serial(e, &(serial){.loop = loop, .lower = lower, .count = extent, .step = 1}); break;
    case PLAN_UNROLL: {
        const bool *moved = emit_rows_roll(e, loop, count);
        if (!moved) {
            visit_unrolled(e, loop, &lower, count, visit_copy, NULL);
            break;
        }
        emit_serial(e, &(serial){.loop = loop, .lower = lower, .count = extent, .step = 1});
        emit_rows_end(e, moved);
        break;
    }
    case PLAN_PAIRS: emit_visit_rows(e, loop, &lower, count, visit_statements, NULL); break;
    case PLAN_CHUNKS: emit_chunks(e, loop, &lower, 0, count, width); break;
    case PLAN_ROLLED: {
        serial s = rolled(e, loop, &lower, count, width);
        emit_serial(e, &s);
        emit_chunks(e, loop, &lower, count / s.step * s.step, count, width);
        break;
    }
    }
    emit_unbind(e, loop->for_.var);
}

void emit_scan_for(emitter *e, const tir_stmt *loop, emit_visit visit, void *user) {
    emit_form lower = emit_index(e, loop->for_.lower), extent = emit_index(e, loop->for_.extent);
    emit_form unknown = emit_form_of(e, emit_constant(LLVMGetUndef(e->i64)), TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH, 1);
    int width = 0;
    int64_t count = extent.constant;
    switch (plan_loop(e, loop, &extent, &width)) {
    case PLAN_NONE: break;
    case PLAN_ONCE: visit_unrolled(e, loop, &lower, 1, visit, user); break;
    case PLAN_SERIAL: visit_unrolled(e, loop, &unknown, 1, visit, user); break;
    case PLAN_UNROLL: visit_unrolled(e, loop, &lower, count, visit, user); break;
    case PLAN_PAIRS: emit_visit_rows(e, loop, &lower, count, visit, user); break;
    case PLAN_CHUNKS: emit_visit_chunks(e, loop, &lower, 0, count, width, visit, user); break;
    case PLAN_ROLLED:
        visit_chunk(e, loop, &unknown, 0, (chunk){width, width}, width, visit, user);
        emit_visit_chunks(e, loop, &lower, count / width * width, count, width, visit, user);
        break;
    }
    emit_unbind(e, loop->for_.var);
}
