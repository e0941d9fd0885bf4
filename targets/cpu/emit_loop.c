/* Loops. A serial loop is a loop with phis for its counter and for the REG elements written inside. An unrolled loop
 * repeats its body with the variable constant. A lanes loop is its body on vectors. */
#include "targets/cpu/emit.h"
#include "tir/vectorise.h"

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

/* ---- lanes loops */

static void visit_lanes(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t count, emit_visit visit,
                        void *user) {
    if (count > loop->for_.width || loop->for_.width > EMIT_MAX_LANES)
        emit_raise(e, "a lanes loop does not fit a vector");
    int lanes = e->lanes, active = e->active, whole = e->whole;
    emit_vec_position position = e->vec_position;
    const bool vector = loop->for_.width > 1;
    e->lanes = vector ? loop->for_.width : 0;
    e->active = (int)count;
    e->whole = loop->for_.whole;
    e->vec_position = (emit_vec_position){loop->for_.var, *lower};
    bind_sum(e, loop, lower, 0, vector);
    visit(e, loop->for_.body, user);
    e->lanes = lanes;
    e->active = active;
    e->whole = whole;
    e->vec_position = position;
    e->epoch++;
}

static void visit_statements(emitter *e, const tir_stmt *body, void *user) {
    (void)user;
    emit_statements(e, body);
}

/* ---- unrolled loops */

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

/* Emits one of several iterations of a serial loop, each of which computes a register tile: no iteration keeps values for the next one. */
static void visit_step(emitter *e, const tir_stmt *body, void *user) {
    visit_statements(e, body, user);
    split_block(e);
}

/* Emits one copy of an unrolled loop's body. If the body contains loops and many masked statements were emitted without branches, the next
 * copy begins a new block, unless operands and accumulators of a copy fit in registers: then the next copies reuse the operands. */
static void visit_copy(emitter *e, const tir_stmt *body, void *user) {
    int before = e->flattened, registers = e->device->machine.vector_registers;
    visit_statements(e, body, user);
    if (e->lanes || 2 * (e->flattened - before) + 2 <= registers) return;
    for (const tir_stmt *stmt = body; stmt; stmt = stmt->next) {
        if (stmt->kind != TIR_FOR || stmt->for_.loop == TIR_LANES || stmt->for_.loop == TIR_ROWS || e->waiting.count)
            continue;
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
        if (stmt->kind == TIR_INTERLEAVE) bump_versions(e, stmt->interleave.body);
        if (stmt->kind == TIR_SPILL) bump_versions(e, stmt->spill.body);
        if (stmt->kind == TIR_STORE) e->buffer[stmt->store.buffer].version = ++e->next_version;
        if (stmt->kind != TIR_IF) continue;
        bump_versions(e, stmt->if_.body);
        bump_versions(e, stmt->if_.otherwise);
    }
}

typedef struct serial {
    const tir_stmt *loop;
    emit_form lower;
    /* iterations */
    emit_form count;
} serial;

static void bind_counter(emitter *e, const serial *s, LLVMValueRef counter) {
    const tir_variable *variable = tir_variable_of(e->pool, s->loop->for_.var);
    tir_interval lower = emit_form_range(e, &s->lower), count = emit_form_range(e, &s->count);
    bool bounded = lower.low > TIR_UNBOUNDED_LOW && lower.high < TIR_UNBOUNDED_HIGH && count.high < INT32_MAX;
    int64_t low = bounded ? lower.low : variable->low;
    int64_t high = bounded ? lower.high + (count.high - 1) * s->loop->for_.step : variable->high;
    if (low < variable->low) low = variable->low;
    if (high > variable->high) high = variable->high;
    emit_value value = {counter, 0, (int16_t)e->top};
    emit_form form = emit_form_of(e, value, low, high, variable->multiple);
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

/* Distance of cancellation checks in units of the variable; 0: no checks, since the loop ends before one is due. */
static int64_t poll_every(emitter *e, const serial *s) {
    const int64_t step = s->loop->for_.step, every = tir_polls_of_loop(e->polls, s->loop), iterations = every / step;
    const int64_t most = emit_form_range(e, &s->count).high;
    if (!every || most <= (iterations > 1 ? iterations : 1)) return 0;
    return (iterations > 1 ? iterations : 1) * step;
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
    LLVMValueRef step = emit_i64(e, s->loop->for_.step);
    LLVMValueRef trips = s->loop->for_.step == 1 ? count.llvm : LLVMBuildMul(e->builder, count.llvm, step, "");
    LLVMValueRef end = LLVMBuildAdd(e->builder, lower.llvm, trips, "");
    emit_groups groups = {0};
    emit_form unknown = emit_unknown(e);
    emit_bind(e, s->loop->for_.var, &unknown);
    emit_reg_scan(e, body, &groups);
    LLVMValueRef *initial = LIB_NEW_ARRAY(e->arena, LLVMValueRef, groups.count), *last = NULL;
    for (uint32_t i = 0; i < groups.count; i++) initial[i] = emit_reg_value(e, &groups.data[i]);
    last = LIB_NEW_ARRAY(e->arena, LLVMValueRef, groups.count);

    LLVMBasicBlockRef before = e->level[e->top].block;
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
    const tir_stmt *outer = e->serial;
    e->woven = false;
    e->serial = s->loop;
    emit_statements(e, body);
    e->serial = outer;
    emit_flush(e);

    for (uint32_t i = 0; i < groups.count; i++) last[i] = emit_reg_value(e, &groups.data[i]);
    emit_at(e, e->top);
    LLVMBasicBlockRef latch = e->level[e->top].block;
    LLVMValueRef next = LLVMBuildAdd(e->builder, counter, step, "");
    LLVMBasicBlockRef back[2] = {latch, NULL};
    back[1] = emit_poll_latch(e, &poll, next, head, after, &latch);
    for (int b = 0; b < 2 && back[b]; b++) {
        LLVMAddIncoming(counter, &next, &back[b], 1);
        for (uint32_t i = 0; i < groups.count; i++) LLVMAddIncoming(groups.data[i].phi, &last[i], &back[b], 1);
    }
    if (e->serials == serials) emit_constants_outside(e, head, after, groups.count);
    emit_pop(e, after);
    leave_groups(e, &groups, initial, last, before, latch, guarded);
}

/* ---- all loops */

typedef enum plan { PLAN_NONE, PLAN_ONCE, PLAN_SERIAL, PLAN_UNROLL, PLAN_LANES, PLAN_ROWS } plan;

/* How a loop runs, after constants: the one decision that emission and the scan for REG elements must share. */
static plan plan_loop(emitter *e, const tir_stmt *loop, const emit_form *extent) {
    int64_t count = 0;
    const bool constant = emit_form_is_constant(extent, &count);
    const tir_loop_kind kind = loop->for_.loop;
    if (constant && count <= 0) return PLAN_NONE;
    if (kind == TIR_LANES) return PLAN_LANES;
    if (kind == TIR_ROWS) return PLAN_ROWS;
    if (constant && count == loop->for_.step) return PLAN_ONCE;
    if (kind == TIR_SERIAL) return PLAN_SERIAL;
    if (kind != TIR_UNROLL || !constant)
        emit_raise(e, "%s loop %s is not for this target, or its extent is not constant", tir_loop_kind_names[kind],
                   tir_variable_of(e->pool, loop->for_.var)->name);
    return PLAN_UNROLL;
}

static void emit_serial_loop(emitter *e, const tir_stmt *loop, const emit_form *lower, const emit_form *extent) {
    serial s = {.loop = loop, .lower = *lower, .count = *extent};
    if (loop->for_.step > 1)
        s.count = emit_index(e, tir_div(e->pool, loop->for_.extent, tir_index(e->pool, loop->for_.step)));
    emit_serial(e, &s);
}

void emit_for(emitter *e, const tir_stmt *loop) {
    emit_form lower = emit_index(e, loop->for_.lower), extent = emit_index(e, loop->for_.extent);
    const bool is_steps = e->serial && e->serial->for_.body == loop && tir_has_steps(e->serial);
    switch (plan_loop(e, loop, &extent)) {
    case PLAN_NONE: break;
    case PLAN_ONCE: visit_unrolled(e, loop, &lower, 1, visit_statements, NULL); break;
    case PLAN_SERIAL: emit_serial_loop(e, loop, &lower, &extent); break;
    case PLAN_UNROLL: visit_unrolled(e, loop, &lower, extent.constant, is_steps ? visit_step : visit_copy, NULL); break;
    case PLAN_LANES: visit_lanes(e, loop, &lower, extent.constant, visit_statements, NULL); break;
    case PLAN_ROWS: emit_visit_rows(e, loop, visit_statements, NULL); break;
    }
    emit_unbind(e, loop->for_.var);
}

void emit_scan_for(emitter *e, const tir_stmt *loop, emit_visit visit, void *user) {
    emit_form lower = emit_index(e, loop->for_.lower), extent = emit_index(e, loop->for_.extent);
    emit_form unknown = emit_unknown(e);
    switch (plan_loop(e, loop, &extent)) {
    case PLAN_NONE: break;
    case PLAN_ONCE: visit_unrolled(e, loop, &lower, 1, visit, user); break;
    case PLAN_SERIAL: visit_unrolled(e, loop, &unknown, 1, visit, user); break;
    case PLAN_UNROLL: visit_unrolled(e, loop, &lower, extent.constant, visit, user); break;
    case PLAN_LANES: visit_lanes(e, loop, &lower, extent.constant, visit, user); break;
    case PLAN_ROWS: emit_visit_rows(e, loop, visit, user); break;
    }
    emit_unbind(e, loop->for_.var);
}
