/* Rows of a register tile that share their last vectors. If at most half of the lanes of a row's last vector are columns, two rows share
 * one vector: its lower half holds the last columns of one row, its upper half those of the next row. The column operand is loaded once
 * and duplicated into both halves; the row operand is a blend of the two broadcasts that the rows' whole vectors need anyway. Two rows of
 * one and a half vectors then take three multiplications and three accumulators instead of four. */
#include "targets/cpu/emit.h"

/* ---- which loops */

static bool is_addend(const emitter *e, const tir_stmt *store, tir_expr value) {
    return tir_op_of(e->pool, value) == TIR_FMA && tir_loads_stored(e->kernel, store, tir_operand(e->pool, value, 2));
}

/* Is the expression a load that depends on the row or on the column, but not on both, or conversions of such a load? */
static bool is_factor(const emitter *e, tir_expr expr, tir_expr row, tir_expr column) {
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_CAST) {
        tir_expr operand = tir_operand(e->pool, expr, 0);
        return tir_dtype_of(e->pool, operand) != TIR_INDEX && is_factor(e, operand, row, column);
    }
    if (node->op != TIR_LOAD || node->guarded || emit_in_registers(e, (uint32_t)node->bits)) return false;
    return !tir_uses(e->pool, expr, row) || !tir_uses(e->pool, expr, column);
}

/* Will the condition be constant in each row: are all its variables constant now, except `row`? */
static bool is_decided(emitter *e, tir_expr expr, tir_expr row) {
    const tir_node *node = tir_get(e->pool, expr);
    int64_t constant;
    if (node->op == TIR_LOAD) return false;
    if (node->op == TIR_VAR && expr != row) {
        const emit_binding *binding = &e->binding[node->bits];
        return binding->bound && binding->form && emit_form_is_constant(binding->form, &constant);
    }
    for (int i = 0; i < (int)node->count; i++)
        if (!is_decided(e, tir_operand(e->pool, expr, i), row)) return false;
    return true;
}

/* The store, if it is the whole body of the vec loop, possibly under a condition on the row (see is_decided); else NULL. */
static const tir_stmt *only_store(emitter *e, const tir_stmt *vec, tir_expr row) {
    const tir_stmt *body = vec->for_.body;
    if (body && !body->next && body->kind == TIR_IF && !body->if_.otherwise && is_decided(e, body->if_.condition, row))
        body = body->if_.body;
    return body && !body->next && body->kind == TIR_STORE ? body : NULL;
}

static bool takes_part(emitter *e, const tir_stmt *vec) {
    const tir_stmt *body = vec->for_.body;
    int64_t constant;
    return body->kind != TIR_IF || !emit_is_constant(emit_expr(e, body->if_.condition), &constant) || constant != 0;
}

bool emit_rows_pair(emitter *e, const tir_stmt *loop) {
    const tir_stmt *vec = loop->for_.body, *store;
    int64_t columns;
    if (!e->device->machine.row_pairs || e->lanes || e->mask.llvm) return false;
    if (!vec || vec->next || vec->kind != TIR_FOR || vec->for_.loop != TIR_VEC) return false;
    if (!tir_is_const(e->pool, vec->for_.extent, &columns)) return false;
    store = only_store(e, vec, loop->for_.var);
    if (!store || !emit_in_registers(e, store->store.buffer)) return false;
    tir_expr value = store->store.value, row = loop->for_.var, column = vec->for_.var;
    if (!is_addend(e, store, value) || tir_uses(e->pool, vec->for_.lower, row)) return false;
    for (int i = 0; i < 2; i++)
        if (!is_factor(e, tir_operand(e->pool, value, i), row, column)) return false;
    int width = emit_vec_lanes(e, vec);
    return width >= 4 && columns > width && columns % width && 2 * (columns % width) <= width;
}

/* ---- rows by pairs */

/* The REG element of a row's first column. */
static int64_t element_at(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t row) {
    const tir_stmt *vec = loop->for_.body, *store = only_store(e, vec, loop->for_.var);
    emit_form at = *lower, start = emit_index(e, vec->for_.lower);
    int64_t element;
    at.constant += row;
    emit_bind(e, loop->for_.var, &at);
    emit_bind(e, vec->for_.var, &start);
    if (!emit_reg_place(e, store->store.buffer, store->store.rank, store->store.index, &element))
        emit_raise(e, "rows of a tile stand at no constant place");
    return element;
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

void emit_visit_rows(emitter *e, const tir_stmt *loop, const emit_form *lower, int64_t count, emit_visit visit,
                     void *user) {
    const tir_stmt *vec = loop->for_.body, *store = only_store(e, vec, loop->for_.var);
    int width = emit_vec_lanes(e, vec);
    int64_t columns, first = element_at(e, loop, lower, 0), stride = element_at(e, loop, lower, 1) - first;
    tir_is_const(e->pool, vec->for_.extent, &columns);
    int64_t whole = columns / width * width;
    emit_vec_position position = e->vec_position;
    emit_form start = emit_index(e, vec->for_.lower);
    /* Pairs begin at even rows of the buffer, in all loops. */
    for (int64_t i = stride > 0 && first / stride % 2 ? -1 : 0; i < count; i += 2) {
        emit_pair pair = {.on = true, .row = loop->for_.var, .column = vec->for_.var, .first = *lower, .start = start};
        pair.half = width / 2;
        pair.active = (int)(columns - whole);
        pair.first.constant += i;
        pair.start.constant += whole;
        for (int row = 0; row < 2; row++) {
            emit_form at = pair.first;
            at.constant += row;
            emit_bind(e, loop->for_.var, &at);
            pair.used[row] = i + row >= 0 && i + row < count && takes_part(e, vec);
            if (pair.used[row]) emit_visit_chunks(e, vec, &start, 0, whole, width, visit, user);
        }
        if (!pair.used[0] && !pair.used[1]) continue;
        e->vec_position = (emit_vec_position){pair.column, pair.start};
        e->pair = pair;
        bind_pair(e);
        visit(e, store, user);
        e->pair.on = false;
        e->lanes = e->active = 0;
        e->vec_position = position;
        e->epoch++;
    }
    emit_unbind(e, vec->for_.var);
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
