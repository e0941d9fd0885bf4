/* Decides when unrolled code becomes a loop. Each copy costs compile time. Code after a register tile (an activation, a residual) is
 * repeated for each of its rows, and chunks of a vec loop are alike: if such a body is long, the processor overlaps as much work in a loop.
 * REG elements that the loop's variable indexes are then kept in memory, on the stack. */
#include "targets/cpu/emit.h"

enum {
    /* Least instructions per vector for which rows are rolled: moving a vector to the stack and back costs two. */
    ROLL_VECTOR = 12,
    ROLL_ROWS = 120,    /* least number of saved instructions for which rows are rolled */
    ROLL_REPEATED = 100 /* the same for chunks; a loop of few iterations is a little slower than copies */
};

/* ---- analysis of bodies, by structure only */

typedef struct survey {
    emitter *e;
    /* variable of the unrolled loop; 0: none */
    tir_expr var;
    /* variable of the vec loop around the statement; 0: none */
    tir_expr lane;
    int64_t copies, vectors, cost;
    /* may not be rolled */
    bool refused;
    /* by REG buffer: indexed by `var`, written */
    bool *wanted, *stored;
} survey;

static void refuse(survey *s, bool when) {
    s->refused |= when;
}

static bool uses(const survey *s, tir_expr expr, tir_expr var) {
    return var && tir_uses(s->e->pool, expr, var);
}

/* Is the node a comparison that each copy of the body would fold: of the lane in chunks (which lanes are active), or of the unrolled
 * variable (which element of a tile is read)? */
static bool depends_on_position(const survey *s, const tir_node *node, tir_expr expr) {
    if (node->dtype != DLC_BOOL || node->count != 2) return false;
    tir_expr a = tir_operand(s->e->pool, expr, 0);
    if (tir_dtype_of(s->e->pool, a) != TIR_INDEX) return false;
    return s->var ? node->op == TIR_EQ && uses(s, expr, s->var) : uses(s, expr, s->lane);
}

static void survey_expr(survey *s, tir_expr expr) {
    emitter *e = s->e;
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_CONST || node->op == TIR_VAR || e->survey_epoch[expr] == e->survey_now) return;
    e->survey_epoch[expr] = e->survey_now;
    if (node->dtype != TIR_INDEX) s->cost += s->copies;
    refuse(s, depends_on_position(s, node, expr));
    for (int i = 0; i < (int)node->count; i++) survey_expr(s, tir_operand(e->pool, expr, i));
    if (node->op != TIR_LOAD || !emit_in_registers(e, (uint32_t)node->bits)) return;
    for (int i = 0; i < (int)node->count; i++)
        if (uses(s, tir_operand(e->pool, expr, i), s->var)) s->wanted[node->bits] = true;
}

/* *result: coefficient of `var` in the index; false: the index is not linear in `var`. */
static bool coefficient(emitter *e, tir_expr index, tir_expr var, int64_t *result) {
    int64_t constant, part;
    *result = 0;
    if (index == var) *result = 1;
    if (index == var || !tir_uses(e->pool, index, var)) return true;
    tir_op op = tir_op_of(e->pool, index);
    tir_expr a = tir_operand(e->pool, index, 0), b = tir_operand(e->pool, index, 1);
    if (op == TIR_ADD) {
        if (!coefficient(e, a, var, result) || !coefficient(e, b, var, &part)) return false;
        *result += part;
        return true;
    }
    if (op != TIR_MUL) return false;
    if (tir_is_const(e->pool, a, &constant))
        a = b;
    else if (!tir_is_const(e->pool, b, &constant))
        return false;
    if (!coefficient(e, a, var, &part)) return false;
    *result = part * constant;
    return true;
}

/* Do neighbouring lanes of the store access neighbours in memory, or one place? Other stores are delayed until the neighbours in memory,
 * from other iterations, exist. */
static bool straight(const survey *s, const tir_stmt *stmt) {
    const tir_buffer *b = &s->e->kernel->buffers.data[stmt->store.buffer];
    int64_t sum = 0, part, stride;
    for (int i = 0; i < stmt->store.rank; i++) {
        if (!coefficient(s->e, stmt->store.index[i], s->lane, &part)) return false;
        if (part == 0) continue;
        if (!tir_is_const(s->e->pool, b->stride[i], &stride)) return false;
        sum += part * stride;
    }
    return sum == 0 || sum == 1;
}

static void survey_store(survey *s, const tir_stmt *stmt) {
    survey_expr(s, stmt->store.value);
    if (!emit_in_registers(s->e, stmt->store.buffer)) {
        s->cost += s->copies;
        refuse(s, s->lane && !straight(s, stmt));
        return;
    }
    s->stored[stmt->store.buffer] = true;
    for (int i = 0; i < stmt->store.rank; i++) refuse(s, uses(s, stmt->store.index[i], s->var));
}

static void survey_list(survey *s, const tir_stmt *list);

static void survey_for(survey *s, const tir_stmt *loop) {
    survey outside = *s;
    int64_t trips = 1;
    if (loop->for_.loop != TIR_SERIAL && !tir_is_const(s->e->pool, loop->for_.extent, &trips)) trips = 1;
    refuse(s, uses(s, loop->for_.lower, s->var) || uses(s, loop->for_.extent, s->var));
    if (loop->for_.loop == TIR_VEC) {
        int width = s->e->device->machine.vector_bytes / 4;
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
            if (tir_dtype_of(s->e->pool, stmt->let.value) == TIR_INDEX)
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

static survey survey_of(emitter *e, const tir_stmt *loop, tir_expr var, tir_expr lane) {
    uint32_t buffers = e->kernel->buffers.count;
    survey s = {.e = e, .var = var, .lane = lane, .copies = 1, .vectors = 1};
    s.wanted = LIB_NEW_ARRAY(e->arena, bool, buffers + 1);
    s.stored = LIB_NEW_ARRAY(e->arena, bool, buffers + 1);
    e->survey_now++;
    survey_list(&s, loop->for_.body);
    return s;
}

bool emit_chunks_roll(emitter *e, const tir_stmt *loop, int64_t chunks) {
    survey s = survey_of(e, loop, 0, loop->for_.var);
    return !s.refused && s.cost * (chunks - 1) >= ROLL_REPEATED;
}

/* ---- constants of innermost loops */

enum { CONSTANTS_MAX = 24, WORKING_REGISTERS = 10 };

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

bool emit_only_loop(const tir_stmt *list) {
    if (!list || list->next) return false;
    return list->kind == TIR_FOR || (list->kind == TIR_LET && emit_only_loop(list->let.body));
}

/* Loads vector constants of a loop without inner loops before it, as far as registers last, and before the loops around it whose body is
 * only that loop. Left in place they become operands in memory, and processors load fewer of the widest vectors per cycle than they
 * multiply. */
void emit_constants_outside(emitter *e, LLVMBasicBlockRef head, LLVMBasicBlockRef after, uint32_t carried) {
    int working = e->woven > WORKING_REGISTERS ? e->woven : WORKING_REGISTERS;
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

static bool stored_shortly(const emit_buffer *b) {
    int64_t stores = 0;
    for (int64_t k = 0; k < b->elements; k += run_of(b, k)) stores++;
    return stores * 4 <= b->elements;
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

const bool *emit_rows_roll(emitter *e, const tir_stmt *loop, int64_t rows) {
    uint32_t buffers = e->kernel->buffers.count;
    if (e->lanes || rows < 2) return NULL;
    survey s = survey_of(e, loop, loop->for_.var, 0);
    if (s.refused || s.cost < ROLL_VECTOR * s.vectors || s.cost * (rows - 1) < ROLL_ROWS) return NULL;
    for (uint32_t i = 0; i < buffers; i++)
        if (s.wanted[i] &&
            (s.stored[i] || e->kernel->buffers.data[i].dtype == DLC_BOOL || !stored_shortly(&e->buffer[i])))
            return NULL;
    for (uint32_t i = 0; i < buffers; i++)
        if (s.wanted[i]) to_stack(e, i);
    e->epoch++;
    return s.wanted;
}

void emit_rows_end(emitter *e, const bool *moved) {
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++)
        if (moved[i]) e->buffer[i].base.llvm = NULL;
    e->epoch++;
}
