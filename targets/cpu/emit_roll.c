/* Reg buffers in memory, and constants of innermost loops. */
#include "targets/cpu/emit.h"

/* ---- constants of innermost loops */

enum { CONSTANTS_MAX = 24, WORKING_REGISTERS = 10, WOVEN_REGISTERS = 24 /* of interleaved lanes loops */ };

static bool is_constant_vector(LLVMValueRef value) {
    if (!LLVMIsAConstantDataVector(value) || LLVMIsNull(value)) return false;
    LLVMTypeKind kind = LLVMGetTypeKind(LLVMGetElementType(LLVMTypeOf(value)));
    if (kind != LLVMFloatTypeKind && kind != LLVMDoubleTypeKind) return false;
    LLVMValueRef first = LLVMGetAggregateElement(value, 0);
    for (unsigned i = 1; i < LLVMGetVectorSize(LLVMTypeOf(value)); i++)
        if (LLVMGetAggregateElement(value, i) != first) return false;
    return true;
}

/* Loads a splat constant at the builder's position from a scalar constant of the module. */
static LLVMValueRef read_constant(emitter *e, LLVMValueRef vector) {
    LLVMValueRef scalar = LLVMGetAggregateElement(vector, 0), global;
    LLVMTypeRef type = LLVMTypeOf(scalar);
    LLVMBool loses;
    double value = LLVMConstRealGetDouble(scalar, &loses);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const char *name =
        lib_arena_format(e->arena, "dlc_c%s%016llx", type == e->f64 ? "d" : "f", (unsigned long long)bits);
    global = LLVMGetNamedGlobal(e->module, name);
    if (!global) {
        global = LLVMAddGlobal(e->module, type, name);
        LLVMSetInitializer(global, scalar);
        LLVMSetGlobalConstant(global, true);
        LLVMSetLinkage(global, LLVMPrivateLinkage);
        LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
    }
    LLVMValueRef one = LLVMBuildLoad2(e->builder, type, global, "");
    return emit_splat_of(e, one, (int)LLVMGetVectorSize(LLVMTypeOf(vector)));
}

typedef struct constants {
    LLVMValueRef constant[CONSTANTS_MAX], value[CONSTANTS_MAX];
    int count, limit;
} constants;

static LLVMValueRef outside_value(emitter *e, constants *c, LLVMValueRef constant) {
    for (int i = 0; i < c->count; i++)
        if (c->constant[i] == constant) return c->value[i];
    if (c->count == c->limit) return NULL;
    c->constant[c->count] = constant;
    return c->value[c->count++] = read_constant(e, constant);
}

/* The variable of a loop, or of the vec loop that it is a part of; 0: no loop. */
static tir_expr loop_of(const tir_stmt *stmt) {
    if (stmt->kind == TIR_INTERLEAVE) return loop_of(stmt->interleave.body);
    if (stmt->kind == TIR_SPILL) return loop_of(stmt->spill.body);
    if (stmt->kind != TIR_FOR) return 0;
    return stmt->for_.step > 1 ? loop_of(stmt->for_.body) : stmt->for_.var;
}

bool emit_only_loop(const tir_stmt *list) {
    if (!list) return false;
    if (list->kind == TIR_LET && !list->next) return emit_only_loop(list->let.body);
    const tir_expr var = loop_of(list);
    for (const tir_stmt *part = list->next; part && var; part = part->next)
        if (loop_of(part) != var) return false;
    return var != 0;
}

/* Loads vector constants of a loop without inner loops before it, as far as registers last, and before the loops around it whose body is
 * only that loop. Left in place they become operands in memory, and processors load fewer of the widest vectors per cycle than they
 * multiply. */
void emit_constants_outside(emitter *e, LLVMBasicBlockRef head, LLVMBasicBlockRef after, uint32_t carried) {
    int working = e->woven ? WOVEN_REGISTERS : WORKING_REGISTERS;
    int limit = e->device->machine.vector_registers - working - (int)carried;
    constants c = {.limit = limit < CONSTANTS_MAX ? limit : CONSTANTS_MAX};
    if (limit <= 0 || e->device->machine.vector_registers <= 2 * WORKING_REGISTERS + (int)carried) return;
    int level = e->top - 1;
    while (level > 0 && e->level[level].lone) level--;
    emit_at(e, level);
    for (LLVMBasicBlockRef block = head; block; block = LLVMGetNextBasicBlock(block)) {
        for (LLVMValueRef at = block == after ? NULL : LLVMGetFirstInstruction(block); at;
             at = LLVMGetNextInstruction(at)) {
            if (LLVMGetInstructionOpcode(at) == LLVMPHI) continue;
            for (int i = 0; i < LLVMGetNumOperands(at); i++) {
                LLVMValueRef operand = LLVMGetOperand(at, (unsigned)i), value;
                if (is_constant_vector(operand) && (value = outside_value(e, &c, operand)) != NULL)
                    LLVMSetOperand(at, (unsigned)i, value);
            }
        }
    }
}

/* ---- REG buffers that are kept in memory */

/* Number of elements from `first` on that are lanes 0, 1, ... of one vector; 1: a single element. */
static int64_t run_of(const emit_buffer *b, int64_t first) {
    const emit_element *element = b->element;
    int64_t count = 1;
    if (element[first].lane != 0) return 1;
    while (first + count < b->elements && element[first + count].lane == count &&
           element[first + count].value.llvm == element[first].value.llvm)
        count++;
    return count;
}

/* Moves a REG buffer's elements to the stack. A whole vector is stored for each run; later stores overwrite what its unused lanes leave
 * behind. */
static void to_stack(emitter *e, uint32_t buffer) {
    emit_buffer *b = &e->buffer[buffer];
    dlc_dtype dtype = e->kernel->buffers.data[buffer].dtype;
    int64_t size = (int64_t)lib_dtype_size(dtype);
    emit_at(e, 0);
    LLVMTypeRef type = LLVMArrayType2(e->i8, (uint64_t)((b->elements + EMIT_MAX_LANES) * size));
    LLVMValueRef room = LLVMBuildAlloca(e->builder, type, "");
    LLVMSetAlignment(room, TIR_BUFFER_ALIGNMENT);
    for (int64_t k = 0; k < b->elements; k += run_of(b, k)) {
        emit_element element = b->element[k];
        if (element.lane == EMIT_UNSET && !e->kernel->buffers.data[buffer].zero_initialised) continue;
        LLVMValueRef value = element.value.llvm, offset = emit_i64(e, k * size);
        emit_at(e, e->top);
        if (element.lane > 0)
            value = LLVMBuildExtractElement(e->builder, value, LLVMConstInt(e->i32, (unsigned)element.lane, false), "");
        LLVMValueRef at = LLVMBuildGEP2(e->builder, e->i8, room, &offset, 1, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, value, at), (unsigned)size);
    }
    b->base = (emit_value){room, 0, 0};
    b->version = ++e->next_version;
}

void emit_spill(emitter *e, const tir_stmt *stmt) {
    to_stack(e, stmt->spill.buffer);
    e->epoch++;
    emit_statements(e, stmt->spill.body);
    e->buffer[stmt->spill.buffer].base.llvm = NULL;
    e->epoch++;
}
