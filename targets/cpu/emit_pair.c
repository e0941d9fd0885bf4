/* Rows of a register tile that share their last vectors. If at most half of the lanes of a row's last vector are columns, two rows share
 * one vector: its lower half holds the last columns of one row, its upper half those of the next row. The column operand is loaded once
 * and duplicated into both halves; the row operand is a blend of the two broadcasts that the rows' whole vectors need anyway. Two rows of
 * one and a half vectors then take three multiplications and three accumulators instead of four. */
#include "targets/cpu/emit.h"

/* ---- rows by pairs */

/* The store in the lanes loop, possibly under a condition on the row. */
static const tir_stmt *only_store(emitter *e, const tir_stmt *lanes) {
    const tir_stmt *body = lanes->for_.body;
    if (body && body->kind == TIR_IF && !body->next && !body->if_.otherwise) body = body->if_.body;
    if (!body || body->next || body->kind != TIR_STORE) emit_raise(e, "a rows loop contains more than one store");
    return body;
}

static bool takes_part(emitter *e, const tir_stmt *vec) {
    const tir_stmt *body = vec->for_.body;
    int64_t constant;
    return body->kind != TIR_IF || !emit_is_constant(emit_expr(e, body->if_.condition), &constant) || constant != 0;
}

static void bind_pair(emitter *e) {
    emit_pair *p = &e->pair;
    emit_form row = p->first, column = p->start;
    /* Its value is never used: loads and REG elements are emitted row by row. */
    LLVMValueRef any = LLVMGetPoison(emit_vector_type(e->i64, 2 * p->half));
    row.vector = column.vector = (emit_value){any, (int16_t)(2 * p->half), 0};
    emit_bind(e, p->row, &row);
    emit_bind(e, p->column, &column);
    e->lanes = e->active = 2 * p->half;
}

emit_pair emit_row_enter(emitter *e, int row) {
    emit_pair pair = e->pair;
    emit_form at = pair.first, column = pair.start;
    at.constant += row;
    column.lane = 1;
    e->pair.on = false;
    emit_bind(e, pair.row, &at);
    emit_bind(e, pair.column, &column);
    e->lanes = pair.half;
    e->active = pair.active;
    return pair;
}

void emit_row_leave(emitter *e, const emit_pair *pair) {
    e->pair = *pair;
    bind_pair(e);
}

void emit_visit_rows(emitter *e, const tir_stmt *loop, emit_visit visit, void *user) {
    const tir_stmt *lanes = loop->for_.body, *store = only_store(e, lanes);
    emit_vec_position position = e->vec_position;
    emit_form rows = emit_index(e, loop->for_.extent), columns = emit_index(e, lanes->for_.extent);
    if (lanes->for_.width > EMIT_MAX_LANES / 2 || columns.constant > lanes->for_.width ||
        rows.constant > 2 - loop->for_.half)
        emit_raise(e, "a rows loop does not fit a vector");
    emit_pair pair = {.on = true, .row = loop->for_.var, .column = lanes->for_.var, .half = lanes->for_.width};
    pair.first = emit_index(e, loop->for_.lower);
    pair.start = emit_index(e, lanes->for_.lower);
    pair.first.constant -= loop->for_.half;
    pair.active = (int)columns.constant;
    for (int row = loop->for_.half; row < loop->for_.half + rows.constant; row++) {
        emit_form at = pair.first;
        at.constant += row;
        emit_bind(e, loop->for_.var, &at);
        pair.used[row] = takes_part(e, lanes);
    }
    if (!pair.used[0] && !pair.used[1]) return;
    e->vec_position = (emit_vec_position){pair.column, pair.start};
    e->pair = pair;
    bind_pair(e);
    visit(e, store, user);
    e->pair.on = false;
    e->lanes = e->active = 0;
    e->vec_position = position;
    e->epoch++;
    emit_unbind(e, lanes->for_.var);
}

/* ---- factors */

emit_value emit_pair_factor(emitter *e, tir_expr factor) {
    emit_value part[2], result;
    for (int row = 0; row < 2; row++) {
        if (!e->pair.used[row]) continue;
        emit_pair pair = emit_row_enter(e, row);
        part[row] = emit_expr(e, factor);
        emit_row_leave(e, &pair);
    }
    if (!e->pair.used[0]) part[0] = part[1];
    if (!e->pair.used[1]) part[1] = part[0];
    int lanes = e->lanes, half = e->pair.half, index[EMIT_MAX_LANES];
    if (!part[0].lanes && part[0].llvm == part[1].llvm) return part[0];
    uint64_t key[] = {EMIT_PAIR, (uint64_t)(uintptr_t)part[0].llvm, (uint64_t)(uintptr_t)part[1].llvm, (uint64_t)lanes};
    if (emit_find(e, 4, key, &result)) return result;
    bool blend = !part[0].lanes;
    for (int row = 0; row < 2; row++) part[row] = emit_splat(e, part[row], lanes);
    result = (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)emit_level_of(2, part)};
    emit_at(e, result.level);
    for (int i = 0; i < lanes; i++) index[i] = blend ? i < half ? i : lanes + i : i;
    result.llvm = emit_shuffle(e, part[0].llvm, part[1].llvm, lanes, index);
    return emit_remember(e, 4, key, result);
}
