/* Loop IR -> LLVM IR: one function per phase, its task loop, statements, branches and masks. See emit.h for the ideas. */
#include "targets/cpu/emit.h"
#include "tir/vectorise.h"

#include <stdio.h>

void cpu_symbol(char *name, int kernel, int phase) {
    snprintf(name, CPU_SYMBOL_MAX, "dlc_k%d_p%d", kernel, phase);
}

/* ---- branches */

/* One side of a branch: the statements `list` under `mask`, or the IF `lane_if`, whose `condition` differs from lane to lane. */
typedef struct arm {
    const tir_stmt *list;
    const tir_stmt *lane_if;
    emit_value mask, condition;
} arm;

static void emit_masked_if(emitter *e, const tir_stmt *stmt, emit_value condition);

static void emit_arm(emitter *e, const arm *a) {
    emit_value mask = e->mask;
    e->mask = a->mask;
    e->epoch++;
    if (a->lane_if)
        emit_masked_if(e, a->lane_if, a->condition);
    else
        emit_statements(e, a->list);
    e->mask = mask;
    e->epoch++;
}

static void scan_arm(emitter *e, const arm *a, emit_groups *groups) {
    if (!a) return;
    if (!a->lane_if) {
        emit_reg_scan(e, a->list, groups);
        return;
    }
    emit_reg_scan(e, a->lane_if->if_.body, groups);
    emit_reg_scan(e, a->lane_if->if_.otherwise, groups);
}

/* Emits one side from block `start` on, with a jump to `join` at its end. values[i]: what group i holds there. Returns the side's last
 * block. */
static LLVMBasicBlockRef run_arm(emitter *e, const arm *a, LLVMBasicBlockRef start, LLVMBasicBlockRef join,
                                 const emit_groups *groups, LLVMValueRef *values) {
    LLVMBasicBlockRef outside = e->level[e->top].block;
    emit_push(e, start, true);
    emit_arm(e, a);
    emit_flush(e);
    for (uint32_t i = 0; i < groups->count; i++) values[i] = emit_reg_value(e, &groups->data[i]);
    LLVMBasicBlockRef end = e->level[e->top].block;
    LLVMPositionBuilderAtEnd(e->builder, end);
    LLVMBuildBr(e->builder, join);
    emit_pop(e, outside);
    return end;
}

/* Emits a branch on the scalar condition; `no` may be NULL. REG elements written on either side get phis at the join. */
static void emit_branch(emitter *e, emit_value condition, const arm *yes, const arm *no) {
    emit_groups groups = {0};
    emit_flush(e);
    scan_arm(e, yes, &groups);
    scan_arm(e, no, &groups);
    uint32_t count = groups.count;
    LLVMValueRef *before = LIB_NEW_ARRAY(e->arena, LLVMValueRef, count);
    LLVMValueRef *values[2] = {LIB_NEW_ARRAY(e->arena, LLVMValueRef, count),
                               LIB_NEW_ARRAY(e->arena, LLVMValueRef, count)};
    for (uint32_t i = 0; i < count; i++) values[1][i] = before[i] = emit_reg_value(e, &groups.data[i]);
    LLVMBasicBlockRef start = e->level[e->top].block, then = emit_block(e, "then"), join = emit_block(e, "join");
    LLVMBasicBlockRef otherwise = no ? emit_block(e, "else") : join, ends[2] = {NULL, start};
    LLVMPositionBuilderAtEnd(e->builder, start);
    LLVMBuildCondBr(e->builder, condition.llvm, then, otherwise);
    emit_element **saved = LIB_NEW_ARRAY(e->arena, emit_element *, e->kernel->buffers.count);
    for (uint32_t i = 0; i < e->kernel->buffers.count && count; i++)
        if (e->buffer[i].element)
            saved[i] = lib_arena_copy(e->arena, e->buffer[i].element, (size_t)e->buffer[i].elements * sizeof **saved);
    ends[0] = run_arm(e, yes, then, join, &groups, values[0]);
    for (uint32_t i = 0; i < e->kernel->buffers.count && count; i++)
        if (saved[i]) memcpy(e->buffer[i].element, saved[i], (size_t)e->buffer[i].elements * sizeof **saved);
    e->epoch++;
    if (no) ends[1] = run_arm(e, no, otherwise, join, &groups, values[1]);
    e->level[e->top].block = join;
    for (uint32_t i = 0; i < count; i++) {
        LLVMPositionBuilderAtEnd(e->builder, join);
        LLVMValueRef incoming[2] = {values[0][i], values[1][i]}, value = incoming[0];
        if (incoming[0] != incoming[1]) {
            value = LLVMBuildPhi(e->builder, LLVMTypeOf(incoming[0]), "");
            LLVMAddIncoming(value, incoming, ends, 2);
        }
        emit_reg_set(e, &groups.data[i], (emit_value){value, (int16_t)groups.data[i].lanes, (int16_t)e->top});
    }
}

/* ---- conditions that differ from lane to lane */

static emit_value over_lanes(emitter *e, const char *reduction, emit_value mask) {
    uint64_t key[] = {EMIT_REDUCE, (uint64_t)reduction[sizeof "llvm.vector.reduce." - 1],
                      (uint64_t)(uintptr_t)mask.llvm};
    emit_value result;
    if (emit_find(e, 3, key, &result)) return result;
    emit_at(e, mask.level);
    result = (emit_value){emit_call(e, reduction, LLVMTypeOf(mask.llvm), NULL, 1, &mask.llvm), 0, mask.level};
    return emit_remember(e, 3, key, result);
}

static bool all_lanes(emit_value mask) {
    return mask.llvm == LLVMConstAllOnes(LLVMTypeOf(mask.llvm));
}

/* masked: without a branch around the statements. */
static void emit_under_mask(emitter *e, const tir_stmt *list, emit_value mask, bool masked) {
    bool known = LLVMIsConstant(mask.llvm);
    if (!list || (known && LLVMIsNull(mask.llvm))) return;
    arm body = {.list = list, .mask = known && all_lanes(mask) ? (emit_value){0} : mask};
    if (known || masked) {
        e->flattened += !known;
        emit_arm(e, &body);
        return;
    }
    emit_branch(e, over_lanes(e, "llvm.vector.reduce.or", mask), &body, NULL);
}

static emit_value negate(emitter *e, emit_value condition) {
    emit_at(e, condition.level);
    condition.llvm = LLVMBuildNot(e->builder, condition.llvm, "");
    return condition;
}

static void emit_masked_if(emitter *e, const tir_stmt *stmt, emit_value condition) {
    emit_value mask = e->mask;
    emit_under_mask(e, stmt->if_.body, emit_both(e, mask, condition), stmt->if_.masked);
    if (stmt->if_.otherwise)
        emit_under_mask(e, stmt->if_.otherwise, emit_both(e, mask, negate(e, condition)), stmt->if_.otherwise_masked);
}

static void emit_if(emitter *e, const tir_stmt *stmt) {
    emit_value condition = emit_expr(e, stmt->if_.condition);
    int64_t constant;
    if (!condition.lanes && emit_is_constant(condition, &constant)) {
        emit_statements(e, constant ? stmt->if_.body : stmt->if_.otherwise);
        return;
    }
    if (!condition.lanes) {
        arm yes = {.list = stmt->if_.body, .mask = e->mask}, no = {.list = stmt->if_.otherwise, .mask = e->mask};
        emit_branch(e, condition, &yes, stmt->if_.otherwise ? &no : NULL);
        return;
    }
    if (!stmt->if_.split || e->mask.llvm || e->active < e->lanes || LLVMIsConstant(condition.llvm)) {
        emit_masked_if(e, stmt, condition);
        return;
    }
    arm all = {.list = stmt->if_.body}, some = {.lane_if = stmt, .condition = condition};
    emit_branch(e, over_lanes(e, "llvm.vector.reduce.and", condition), &all, &some);
}

/* ---- statements */

static void emit_let(emitter *e, const tir_stmt *stmt) {
    tir_expr var = stmt->let.var;
    if (tir_dtype_of(e->pool, stmt->let.value) == TIR_INDEX) {
        const tir_variable *variable = tir_variable_of(e->pool, var);
        emit_form form = emit_index(e, stmt->let.value);
        if (form.count == 1 && form.constant == 0 && form.lane == 0 && form.term[0].coefficient == 1) {
            /* The variable's range from lowering may be tighter than the expression's. */
            emit_term *term = &form.term[0];
            if (variable->low > term->low) term->low = variable->low;
            if (variable->high < term->high) term->high = variable->high;
            if (variable->multiple > term->multiple) term->multiple = variable->multiple;
        }
        emit_bind(e, var, &form);
    } else {
        emit_bind_value(e, var, emit_expr(e, stmt->let.value));
    }
    emit_statements(e, stmt->let.body);
    emit_unbind(e, var);
}

/* The reg buffer to which the first store inside of the unrolled loop goes; UINT32_MAX: there is none, or it is another statement. */
static uint32_t registers_of_rows(const emitter *e, const tir_stmt *stmt) {
    if (!stmt || stmt->kind != TIR_FOR || stmt->for_.loop != TIR_UNROLL) return UINT32_MAX;
    while (stmt && (stmt->kind == TIR_FOR || stmt->kind == TIR_IF))
        stmt = stmt->kind == TIR_FOR ? stmt->for_.body : stmt->if_.body;
    const bool reg =
        stmt && stmt->kind == TIR_STORE && e->kernel->buffers.data[stmt->store.buffer].scope == TIR_SCOPE_REG;
    return reg ? stmt->store.buffer : UINT32_MAX;
}

/* LLVM moves loads that are near each other in memory together, up to four of them, across the statements of a block: vectors for several steps
 * of a window would be live at once beside the sums of a tile, which then are spilled. A fence for the compiler alone keeps steps apart. */
static void keep_apart(emitter *e, const tir_stmt *before, const tir_stmt *stmt) {
    const uint32_t sums = registers_of_rows(e, stmt);
    if (sums == UINT32_MAX || registers_of_rows(e, before) != sums) return;
    emit_at(e, e->top);
    LLVMBuildFence(e->builder, LLVMAtomicOrderingAcquireRelease, true, "");
}

void emit_statements(emitter *e, const tir_stmt *list) {
    const tir_stmt *before = NULL;
    for (const tir_stmt *stmt = list; stmt; before = stmt, stmt = stmt->next) {
        e->epoch++;
        keep_apart(e, before, stmt);
        switch (stmt->kind) {
        case TIR_FOR: emit_for(e, stmt); break;
        case TIR_LET: emit_let(e, stmt); break;
        case TIR_IF: emit_if(e, stmt); break;
        case TIR_STORE: emit_store(e, stmt); break;
        case TIR_INTERLEAVE: emit_interleave(e, stmt); break;
        case TIR_SPILL: emit_spill(e, stmt); break;
        case TIR_PREFETCH: emit_prefetch(e, stmt); break;
        case TIR_COLLECTIVE:
            emit_raise(e, "%s is an instruction of warps, not for this target", stmt->collective.unit->name);
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT:
        case TIR_COMMENT: break;
        }
    }
}

/* ---- phases */

enum { ARGUMENTS, ITERATION, BEGIN, END, SLOT, CLOSURE, PARAMETERS };

LLVMValueRef emit_argument(emitter *e, LLVMTypeRef type, size_t offset) {
    LLVMValueRef at = emit_i64(e, (int64_t)offset), arguments = LLVMGetParam(e->function, ARGUMENTS);
    LLVMValueRef address = LLVMBuildGEP2(e->builder, e->i8, arguments, &at, 1, "");
    return LLVMBuildLoad2(e->builder, type, address, "");
}

static LLVMValueRef offset_pointer(emitter *e, LLVMValueRef pointer, LLVMValueRef bytes) {
    return LLVMBuildGEP2(e->builder, e->i8, pointer, &bytes, 1, "");
}

static void bind_parameters(emitter *e) {
    if (!e->kernel->params.count) return;
    emit_at(e, 0);
    LLVMValueRef array = emit_argument(e, e->pointer, offsetof(target_arguments, params));
    for (uint32_t i = 0; i < e->kernel->params.count; i++) {
        tir_expr var = e->kernel->params.data[i];
        const tir_variable *variable = tir_variable_of(e->pool, var);
        emit_at(e, 0);
        LLVMValueRef address = offset_pointer(e, array, emit_i64(e, (int64_t)i * 8));
        LLVMValueRef bits = LLVMBuildLoad2(e->builder, e->i64, address, "");
        if (variable->dtype == TIR_INDEX) {
            emit_form form =
                emit_form_of(e, (emit_value){bits, 0, 0}, variable->low, variable->high, variable->multiple);
            emit_bind(e, var, &form);
            continue;
        }
        LLVMTypeRef type = emit_type(e, variable->dtype, 0);
        unsigned width = lib_dtypes[variable->dtype].bits;
        LLVMValueRef narrow = bits;
        if (variable->dtype == DLC_BOOL)
            narrow = LLVMBuildICmp(e->builder, LLVMIntNE, bits, emit_i64(e, 0), "");
        else if (width < 64)
            narrow = LLVMBuildTrunc(e->builder, bits, LLVMIntTypeInContext(e->context, width), "");
        if (LLVMTypeOf(narrow) != type) narrow = LLVMBuildBitCast(e->builder, narrow, type, "");
        emit_bind_value(e, var, (emit_value){narrow, 0, 0});
    }
}

/* Number of elements of a buffer whose extents are constant; raises an error if they are not. */
static int64_t constant_elements(emitter *e, const tir_buffer *b) {
    int64_t count = 1, extent;
    for (int i = 0; i < b->rank; i++) {
        if (!tir_is_const(e->pool, b->extent[i], &extent)) emit_raise(e, "buffer %s has no constant extent", b->name);
        if (__builtin_mul_overflow(count, extent, &count) || count > INT32_MAX)
            emit_raise(e, "buffer %s is too large for its scope", b->name);
    }
    return count;
}

static LLVMValueRef scratch_base(emitter *e, size_t at, tir_expr offset) {
    LLVMValueRef base = emit_argument(e, e->pointer, at);
    if (at == offsetof(target_arguments, local)) {
        LLVMValueRef stride = emit_argument(e, e->i64, offsetof(target_arguments, local_stride));
        base = offset_pointer(e, base, LLVMBuildMul(e->builder, stride, LLVMGetParam(e->function, SLOT), ""));
    }
    if (!offset || tir_is_number(e->pool, offset, 0)) return base;
    emit_form bytes = emit_index(e, offset);
    LLVMValueRef distance = emit_form_value(e, &bytes).llvm;
    emit_at(e, 0);
    return offset_pointer(e, base, distance);
}

static void bind_buffers(emitter *e) {
    emit_at(e, 0);
    LLVMValueRef table = emit_argument(e, e->pointer, offsetof(target_arguments, buffers));
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        const tir_buffer *b = &e->kernel->buffers.data[i];
        LLVMValueRef base = NULL;
        emit_at(e, 0);
        switch (b->scope) {
        case TIR_SCOPE_ARG:
            base = LLVMBuildLoad2(e->builder, e->pointer, offset_pointer(e, table, emit_i64(e, 8 * b->argument)), "");
            break;
        case TIR_SCOPE_WORKSPACE: base = scratch_base(e, offsetof(target_arguments, workspace), b->offset); break;
        case TIR_SCOPE_LOCAL: base = scratch_base(e, offsetof(target_arguments, local), b->offset); break;
        case TIR_SCOPE_STACK: {
            e->buffer[i].elements = constant_elements(e, b);
            uint64_t bytes = (uint64_t)e->buffer[i].elements * lib_dtype_size(b->dtype);
            base = LLVMBuildAlloca(e->builder, LLVMArrayType2(e->i8, bytes), "");
            LLVMSetAlignment(base, TIR_BUFFER_ALIGNMENT);
            break;
        }
        case TIR_SCOPE_REG: break;
        default: emit_raise(e, "buffer %s: scope %s is not for this target", b->name, tir_scope_names[b->scope]);
        }
        e->buffer[i].base = (emit_value){base, 0, 0};
    }
}

static void zero_memory(emitter *e, uint32_t index) {
    const tir_buffer *b = &e->kernel->buffers.data[index];
    emit_form bytes = emit_form_constant((int64_t)lib_dtype_size(b->dtype));
    emit_value size = emit_form_value(e, &bytes);
    emit_at(e, e->top);
    for (int i = 0; i < b->rank; i++) {
        emit_form extent = emit_index(e, b->extent[i]);
        emit_value value = emit_form_value(e, &extent);
        emit_at(e, e->top);
        size.llvm = LLVMBuildMul(e->builder, size.llvm, value.llvm, "");
    }
    LLVMValueRef arguments[] = {e->buffer[index].base.llvm, LLVMConstInt(e->i8, 0, false), size.llvm,
                                LLVMConstInt(e->i1, 0, false)};
    emit_call(e, "llvm.memset", e->pointer, e->i64, 4, arguments);
}

static void emit_task(emitter *e, const tir_phase *phase) {
    emit_reg_init(e);
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        const tir_buffer *b = &e->kernel->buffers.data[i];
        if (b->zero_initialised && (b->scope == TIR_SCOPE_STACK || b->scope == TIR_SCOPE_LOCAL)) zero_memory(e, i);
    }
    emit_statements(e, phase->body);
    emit_flush(e);
}

static void set_attributes(emitter *e) {
    char width[16];
    snprintf(width, sizeof width, "%d", e->device->machine.vector_bytes * 8);
    const char *pairs[][2] = {{"frame-pointer", "none"}, {"prefer-vector-width", width}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        LLVMAttributeRef attribute = LLVMCreateStringAttribute(e->context, pairs[i][0], (unsigned)strlen(pairs[i][0]),
                                                               pairs[i][1], (unsigned)strlen(pairs[i][1]));
        LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
    }
    unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->context, nounwind, 0));
}

/* Emits the loop over tasks begin .. end - 1. Level 0 is the function's entry, or the code after an earlier such loop; level 1 is the loop.
 * `only`: there is a single task, number 0, and its body needs no loop, because a launch is never empty. */
static void emit_tasks(emitter *e, const tir_phase *phase, LLVMValueRef begin, LLVMValueRef end, bool only) {
    LLVMBasicBlockRef before = e->level[0].block, head = emit_block(e, "task"), leave = emit_block(e, "leave");
    emit_at(e, 0);
    emit_poll poll = {only ? 0 : tir_polls_of_tasks(e->polls, (int)(phase - e->kernel->phases.data)), NULL, NULL};
    emit_poll_before(e, &poll, begin, end);
    if (only)
        LLVMBuildBr(e->builder, head);
    else
        LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntSLT, begin, end, ""), head, leave);
    emit_push(e, head, true);
    e->level[e->top].lone = emit_only_loop(phase->body);
    LLVMPositionBuilderAtEnd(e->builder, head);
    LLVMValueRef task = only ? NULL : LLVMBuildPhi(e->builder, e->i64, "");
    if (task) LLVMAddIncoming(task, &begin, &before, 1);
    emit_poll_head(e, &poll, before);
    const tir_variable *variable = phase->task ? tir_variable_of(e->pool, phase->task) : NULL;
    if (variable && only) {
        emit_form form = emit_form_constant(0);
        emit_bind(e, phase->task, &form);
    } else if (variable) {
        emit_form form = emit_form_of(e, (emit_value){task, 0, 1}, variable->low, variable->high, variable->multiple);
        emit_bind(e, phase->task, &form);
    }
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) e->buffer[i].version = ++e->next_version;
    emit_task(e, phase);
    if (only) {
        LLVMPositionBuilderAtEnd(e->builder, e->level[e->top].block);
        LLVMBuildBr(e->builder, leave);
    } else {
        emit_at(e, e->top);
        LLVMBasicBlockRef latch = e->level[e->top].block;
        LLVMValueRef next = LLVMBuildAdd(e->builder, task, emit_i64(e, 1), "");
        LLVMAddIncoming(task, &next, &latch, 1);
        LLVMBasicBlockRef again = emit_poll_latch(e, &poll, next, head, leave, &latch);
        if (again) LLVMAddIncoming(task, &next, &again, 1);
    }
    emit_pop(e, leave);
    e->epoch++;
}

/* For the search for non-temporal stores to arguments: these need aligned addresses, and the alignment of arguments is known only at run
 * time, as is whether a result takes the place of an operand (its lines are in the caches then, and a store past them takes longer). */
typedef struct stream_search {
    emitter *e;
    /* OR of the addresses of all arguments with non-temporal stores; NULL: there are none */
    LLVMValueRef address;
} stream_search;

/* Is none of the arguments with non-temporal stores (emit_buffer.aligned) also another argument of the kernel? */
static LLVMValueRef has_own_results(emitter *e) {
    const tir_buffer *buffers = e->kernel->buffers.data;
    LLVMValueRef own = NULL;
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        if (!e->buffer[i].aligned || buffers[i].scope != TIR_SCOPE_ARG) continue;
        for (uint32_t k = 0; k < e->kernel->buffers.count; k++) {
            if (k == i || buffers[k].scope != TIR_SCOPE_ARG || e->buffer[k].aligned) continue;
            LLVMValueRef differ =
                LLVMBuildICmp(e->builder, LLVMIntNE, e->buffer[i].base.llvm, e->buffer[k].base.llvm, "");
            own = own ? LLVMBuildAnd(e->builder, own, differ, "") : differ;
        }
    }
    return own;
}

static void find_stream(void *user, const tir_stmt *stmt) {
    stream_search *search = user;
    emitter *e = search->e;
    if (stmt->kind != TIR_STORE || !stmt->store.non_temporal) return;
    emit_buffer *buffer = &e->buffer[stmt->store.buffer];
    if (e->kernel->buffers.data[stmt->store.buffer].scope != TIR_SCOPE_ARG || buffer->aligned) return;
    LLVMValueRef bits = LLVMBuildPtrToInt(e->builder, buffer->base.llvm, e->i64, "");
    search->address = search->address ? LLVMBuildOr(e->builder, search->address, bits, "") : bits;
    buffer->aligned = true;
}

/* The tasks; twice if the schedule asks for non-temporal stores, for aligned arguments beside the operands and for others. */
static void emit_phase_tasks(emitter *e, const tir_phase *phase) {
    LLVMValueRef begin = LLVMGetParam(e->function, BEGIN), end = LLVMGetParam(e->function, END);
    stream_search search = {e, NULL};
    emit_at(e, 0);
    tir_stmt_walk(phase->body, find_stream, &search);
    if (search.address) {
        LLVMValueRef rest = LLVMBuildAnd(e->builder, search.address, emit_i64(e, TIR_BUFFER_ALIGNMENT - 1), "");
        LLVMValueRef aligned = LLVMBuildICmp(e->builder, LLVMIntEQ, rest, emit_i64(e, 0), ""), own = has_own_results(e);
        if (own) aligned = LLVMBuildAnd(e->builder, aligned, own, "");
        LLVMValueRef middle = LLVMBuildSelect(e->builder, aligned, end, begin, "");
        emit_tasks(e, phase, begin, middle, false);
        begin = middle;
    }
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) e->buffer[i].aligned = false;
    emit_tasks(e, phase, begin, end, !search.address && tir_is_number(e->pool, phase->tasks, 1));
}

static void emit_phase(emitter *e, const tir_phase *phase, const char *name, bool repeats, tir_expr iteration) {
    LLVMTypeRef types[PARAMETERS] = {e->pointer, e->i64, e->i64, e->i64, e->i64, e->pointer};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, PARAMETERS, false);
    e->function = LLVMAddFunction(e->module, name, type);
    e->unknown = LLVMGetParam(e->function, END);
    set_attributes(e);
    e->top = -1;
    e->give_up = NULL;
    emit_push(e, emit_block(e, "entry"), true);
    e->non_temporal = false;
    e->flattened = 0;
    e->lanes = e->active = 0;
    e->mask = (emit_value){0};
    bind_parameters(e);
    bind_buffers(e);
    if (repeats) {
        emit_value value = {LLVMGetParam(e->function, ITERATION), 0, 0};
        const tir_variable *variable = tir_variable_of(e->pool, iteration);
        emit_form form = emit_form_of(e, value, variable->low, variable->high, variable->multiple);
        emit_bind(e, iteration, &form);
    }
    emit_phase_tasks(e, phase);
    emit_at(e, 0);
    if (e->non_temporal && e->features.x86) emit_call(e, "llvm.x86.sse.sfence", NULL, NULL, 0, NULL);
    LLVMBuildRetVoid(e->builder);
    e->level[0].id = 0;
}

/* ---- kernels */

static void init_types(emitter *e) {
    e->i1 = LLVMInt1TypeInContext(e->context);
    e->i8 = LLVMInt8TypeInContext(e->context);
    e->i16 = LLVMInt16TypeInContext(e->context);
    e->i32 = LLVMInt32TypeInContext(e->context);
    e->i64 = LLVMInt64TypeInContext(e->context);
    e->f16 = LLVMHalfTypeInContext(e->context);
    e->f32 = LLVMFloatTypeInContext(e->context);
    e->f64 = LLVMDoubleTypeInContext(e->context);
    e->pointer = LLVMPointerTypeInContext(e->context, 0);
}

static void init_tables(emitter *e) {
    uint32_t nodes = e->pool->nodes.count, variables = e->pool->variables.count, buffers = e->kernel->buffers.count;
    e->binding = LIB_NEW_ARRAY(e->arena, emit_binding, variables);
    e->memo = LIB_NEW_ARRAY(e->arena, emit_value, nodes);
    e->memo_epoch = LIB_NEW_ARRAY(e->arena, uint32_t, nodes);
    e->varies = LIB_NEW_ARRAY(e->arena, bool, nodes);
    e->varies_epoch = LIB_NEW_ARRAY(e->arena, uint32_t, nodes);
    e->buffer = LIB_NEW_ARRAY(e->arena, emit_buffer, buffers);
    for (uint32_t i = 0; i < buffers; i++) {
        const tir_buffer *b = &e->kernel->buffers.data[i];
        if (b->scope != TIR_SCOPE_REG) continue;
        e->has_reg = true;
        e->buffer[i].elements = constant_elements(e, b);
        e->buffer[i].element = LIB_NEW_ARRAY(e->arena, emit_element, (size_t)e->buffer[i].elements);
        e->buffer[i].owner = LIB_NEW_ARRAY(e->arena, uint32_t, (size_t)e->buffer[i].elements);
    }
}

/* A kernel without phases gets an empty function, which shows that the kernel is in its object. */
static void emit_nothing(emitter *e, int index) {
    char name[CPU_SYMBOL_MAX];
    cpu_symbol(name, index, 0);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), NULL, 0, false);
    e->function = LLVMAddFunction(e->module, name, type);
    set_attributes(e);
    LLVMPositionBuilderAtEnd(e->builder, LLVMAppendBasicBlockInContext(e->context, e->function, ""));
    LLVMBuildRetVoid(e->builder);
}

void cpu_emit(const target_device *device, lib_arena *arena, LLVMModuleRef module, LLVMBuilderRef builder,
              const tir_kernel *scheduled, int index) {
    tir_kernel *kernel = tir_vectorise(arena, scheduled, &device->machine);
    if (device->verify) tir_kernel_verify(arena->scope, kernel, NULL, NULL);
    emitter *e = LIB_NEW(arena, emitter);
    *e = (emitter){.device = device,
                   .features = device->features,
                   .arena = arena,
                   .kernel = kernel,
                   .pool = kernel->pool,
                   .module = module,
                   .builder = builder,
                   .context = LLVMGetModuleContext(module),
                   .epoch = 1};
    e->waiting.masked = device->machine.masked;
    e->waiting.user = e;
    e->waiting.transpose = emit_transposed;
    e->waiting.separate = emit_separate;
    init_types(e);
    init_tables(e);
    e->polls =
        tir_polls_new(arena, kernel, device->no_polls ? INT64_MAX : TIR_POLL_WORK, device->machine.vector_bytes / 4);
    tir_expr iteration = 0;
    int repeats = 0;
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        char name[CPU_SYMBOL_MAX];
        if (phase->repeat) {
            repeats = phase->repeat_phases;
            iteration = phase->iteration;
        }
        cpu_symbol(name, index, (int)p);
        emit_phase(e, phase, name, repeats > 0 && iteration, iteration);
        if (repeats > 0) repeats--;
    }
    if (!kernel->phases.count) emit_nothing(e, index);
}
