/* Value expressions: every operator of TIR_OP_TABLE that loop IR may hold, scalar or in lanes, each emitted once per
 * level. */
#include "targets/cpu/emit.h"

#include <math.h>

/* ---- one operator at the builder's position */

static LLVMValueRef float_operation(emitter *e, tir_op op, tir_dtype dtype, LLVMValueRef *x) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x[0]);
    switch (op) {
    case TIR_ADD: return LLVMBuildFAdd(b, x[0], x[1], "");
    case TIR_SUB: return LLVMBuildFSub(b, x[0], x[1], "");
    case TIR_MUL: return LLVMBuildFMul(b, x[0], x[1], "");
    case TIR_DIV: return LLVMBuildFDiv(b, x[0], x[1], "");
    case TIR_NEG: return LLVMBuildFNeg(b, x[0], "");
    case TIR_ABS: return emit_call(e, "llvm.fabs", type, NULL, 1, x);
    case TIR_SQRT: return emit_call(e, "llvm.sqrt", type, NULL, 1, x);
    case TIR_FMA: return emit_call(e, "llvm.fma", type, NULL, 3, x);
    case TIR_LDEXP: return emit_ldexp(e, x[0], x[1]);
    case TIR_MIN:
    case TIR_MAX: return emit_min_max(e, op == TIR_MAX, x[0], x[1]);
    case TIR_FLOOR:
    case TIR_CEIL:
    case TIR_TRUNC:
    case TIR_ROUND: return emit_round(e, op, x[0]);
    case TIR_EQ: return LLVMBuildFCmp(b, LLVMRealOEQ, x[0], x[1], "");
    case TIR_NE: return LLVMBuildFCmp(b, LLVMRealUNE, x[0], x[1], "");
    case TIR_LT: return LLVMBuildFCmp(b, LLVMRealOLT, x[0], x[1], "");
    case TIR_LE: return LLVMBuildFCmp(b, LLVMRealOLE, x[0], x[1], "");
    case TIR_REM: { /* exact, so f32 through f64 gives fmodf's bits */
        if (dtype == DLC_F64) return emit_library(e, "fmod", 2, x);
        LLVMValueRef wide[2] = {emit_cast(e, DLC_F64, dtype, x[0]), emit_cast(e, DLC_F64, dtype, x[1])};
        return emit_cast(e, dtype, DLC_F64, emit_library(e, "fmod", 2, wide));
    }
    default:
        if ((tir_ops[op].flags & TIR_MATH) && dtype == DLC_F64)
            return emit_library(e, tir_ops[op].text, tir_ops[op].arity, x);
        emit_raise(e, "operator %s on %s is not legal in loop IR", tir_ops[op].text, tir_dtype_name(dtype));
    }
}

static LLVMValueRef integer_compare(emitter *e, tir_op op, bool is_signed, LLVMValueRef *x) {
    LLVMIntPredicate predicate = op == TIR_EQ   ? LLVMIntEQ
                                 : op == TIR_NE ? LLVMIntNE
                                 : op == TIR_LT ? (is_signed ? LLVMIntSLT : LLVMIntULT)
                                                : (is_signed ? LLVMIntSLE : LLVMIntULE);
    return LLVMBuildICmp(e->builder, predicate, x[0], x[1], "");
}

/* x to the power of y: wraps; a negative exponent gives the truncated reciprocal. Squares and multiplies over the exponent's bits, without
 * branches. */
static LLVMValueRef integer_power(emitter *e, tir_dtype dtype, LLVMValueRef x, LLVMValueRef y) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMTypeRef element = LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
    int lanes = element == type ? 0 : (int)LLVMGetVectorSize(type), bits = (int)LLVMGetIntTypeWidth(element);
    LLVMValueRef one = emit_fill(e, element, lanes, 1), zero = LLVMConstNull(type), result = one, base = x;
    LLVMValueRef odd = LLVMBuildTrunc(b, y, emit_vector_type(e->i1, lanes), "");
    for (int i = 0; i < bits; i++) {
        LLVMValueRef bit = LLVMBuildLShr(b, y, emit_fill(e, element, lanes, i), "");
        bit = LLVMBuildTrunc(b, bit, emit_vector_type(e->i1, lanes), "");
        result = LLVMBuildSelect(b, bit, LLVMBuildMul(b, result, base, ""), result, "");
        base = LLVMBuildMul(b, base, base, "");
    }
    if (emit_class_of(dtype) != 'i') return result;
    LLVMValueRef minus = LLVMConstAllOnes(type), negative = LLVMBuildICmp(b, LLVMIntSLT, y, zero, "");
    LLVMValueRef inverse = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, x, one, ""), one, zero, "");
    LLVMValueRef is_minus = LLVMBuildICmp(b, LLVMIntEQ, x, minus, "");
    inverse = LLVMBuildSelect(b, is_minus, LLVMBuildSelect(b, odd, minus, one, ""), inverse, "");
    return LLVMBuildSelect(b, negative, inverse, result, "");
}

static LLVMValueRef integer_operation(emitter *e, tir_op op, tir_dtype dtype, LLVMValueRef *x) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x[0]);
    bool is_signed = emit_class_of(dtype) == 'i';
    switch (op) {
    case TIR_ADD: return LLVMBuildAdd(b, x[0], x[1], "");
    case TIR_SUB: return LLVMBuildSub(b, x[0], x[1], "");
    case TIR_MUL: return LLVMBuildMul(b, x[0], x[1], "");
    case TIR_FMA: return LLVMBuildAdd(b, LLVMBuildMul(b, x[0], x[1], ""), x[2], "");
    case TIR_AND: return LLVMBuildAnd(b, x[0], x[1], "");
    case TIR_OR: return LLVMBuildOr(b, x[0], x[1], "");
    case TIR_XOR: return LLVMBuildXor(b, x[0], x[1], "");
    case TIR_NOT: return LLVMBuildNot(b, x[0], "");
    case TIR_NEG: return LLVMBuildNeg(b, x[0], "");
    case TIR_DIV:
    case TIR_REM: return emit_int_divide(e, op == TIR_REM, dtype, x[0], x[1]);
    case TIR_SHL:
    case TIR_SHR: return emit_shift(e, op, dtype, x[0], x[1]);
    case TIR_MULHI: return emit_mulhi(e, x[0], x[1]);
    case TIR_POW: return integer_power(e, dtype, x[0], x[1]);
    case TIR_MIN:
    case TIR_MAX: {
        LLVMIntPredicate less = is_signed ? LLVMIntSLT : LLVMIntULT;
        LLVMValueRef below = LLVMBuildICmp(b, less, x[0], x[1], "");
        return op == TIR_MIN ? LLVMBuildSelect(b, below, x[0], x[1], "") : LLVMBuildSelect(b, below, x[1], x[0], "");
    }
    case TIR_ABS: {
        if (!is_signed) return x[0];
        LLVMValueRef negative = LLVMBuildICmp(b, LLVMIntSLT, x[0], LLVMConstNull(type), "");
        return LLVMBuildSelect(b, negative, LLVMBuildNeg(b, x[0], ""), x[0], "");
    }
    case TIR_EQ:
    case TIR_NE:
    case TIR_LT:
    case TIR_LE: return integer_compare(e, op, is_signed, x);
    default:
        if (tir_ops[op].arity == 1) return x[0]; /* rounding of an integer */
        emit_raise(e, "operator %s on %s is not legal in loop IR", tir_ops[op].text, tir_dtype_name(dtype));
    }
}

LLVMValueRef emit_operation(emitter *e, tir_op op, tir_dtype dtype, tir_dtype operand, int lanes, LLVMValueRef *x) {
    switch (op) {
    case TIR_CAST: return emit_cast(e, dtype, operand, x[0]);
    case TIR_BITCAST: {
        LLVMTypeRef type = emit_type(e, dtype, lanes);
        if (dtype == DLC_BOOL || operand == DLC_BOOL) return emit_cast(e, dtype, operand, x[0]);
        return LLVMTypeOf(x[0]) == type ? x[0] : LLVMBuildBitCast(e->builder, x[0], type, "");
    }
    case TIR_DOT2_BF16:
    case TIR_DOT2_I16:
    case TIR_DOT4_U8I8: return emit_dot(e, op, lanes, x);
    default: break;
    }
    if (operand == DLC_F32 || operand == DLC_F64) return float_operation(e, op, operand, x);
    bool compares = (tir_ops[op].flags & TIR_COMPARES) != 0;
    if (emit_class_of(operand) == 'f' && (compares || op == TIR_NEG || op == TIR_ABS)) { /* 16-bit floats */
        LLVMValueRef wide[2] = {emit_cast(e, DLC_F32, operand, x[0]), NULL};
        if (compares) wide[1] = emit_cast(e, DLC_F32, operand, x[1]);
        LLVMValueRef result = float_operation(e, op, DLC_F32, wide);
        return compares ? result : emit_cast(e, dtype, DLC_F32, result);
    }
    if (emit_class_of(operand) == 'f')
        emit_raise(e, "operator %s on %s is not legal in loop IR", tir_ops[op].text, tir_dtype_name(operand));
    return integer_operation(e, op, operand, x);
}

/* ---- operators on values */

static bool is_i1(emit_value value, bool which) {
    int64_t constant;
    return value.llvm && value.lanes == 0 && emit_is_constant(value, &constant) && (constant != 0) == which;
}

emit_value emit_select(emitter *e, emit_value condition, emit_value yes, emit_value no) {
    if (is_i1(condition, true)) return yes;
    if (is_i1(condition, false)) return no;
    if (yes.llvm == no.llvm) return yes;
    int lanes = condition.lanes ? condition.lanes : yes.lanes ? yes.lanes : no.lanes;
    condition = emit_splat(e, condition, lanes); /* for a single condition LLVM makes a branch for each vector */
    yes = emit_splat(e, yes, lanes);
    no = emit_splat(e, no, lanes);
    uint64_t key[] = {TIR_SELECT, (uint64_t)(uintptr_t)condition.llvm, (uint64_t)(uintptr_t)yes.llvm,
                      (uint64_t)(uintptr_t)no.llvm};
    emit_value result;
    if (emit_find(e, 4, key, &result)) return result;
    result =
        (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)emit_level_of(3, (emit_value[]){condition, yes, no})};
    emit_at(e, result.level);
    result.llvm = LLVMBuildSelect(e->builder, condition.llvm, yes.llvm, no.llvm, "");
    return emit_remember(e, 4, key, result);
}

static emit_value operate(emitter *e, tir_op op, tir_dtype dtype, tir_dtype operand, int count, emit_value *x) {
    int lanes = 0;
    for (int i = 0; i < count; i++)
        if (x[i].lanes) lanes = x[i].lanes;
    LLVMValueRef raw[9];
    for (int i = 0; i < count; i++) raw[i] = (x[i] = emit_splat(e, x[i], lanes)).llvm;
    uint64_t key[6] = {(uint64_t)op | (uint64_t)dtype << 16 | (uint64_t)operand << 32};
    bool numbered = count <= 4;
    for (int i = 0; i < count && numbered; i++) key[1 + i] = (uint64_t)(uintptr_t)raw[i];
    emit_value result;
    if (numbered && emit_find(e, 1 + count, key, &result)) return result;
    result = (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)emit_level_of(count, x)};
    emit_at(e, result.level);
    result.llvm = emit_operation(e, op, dtype, operand, lanes, raw);
    return numbered ? emit_remember(e, 1 + count, key, result) : result;
}

emit_value emit_both(emitter *e, emit_value a, emit_value b) {
    if (!a.llvm || is_i1(a, true)) return b;
    if (!b.llvm || is_i1(b, true) || is_i1(a, false)) return a;
    if (is_i1(b, false)) return b;
    return operate(e, TIR_AND, DLC_BOOL, DLC_BOOL, 2, (emit_value[]){a, b});
}

/* The identity of op: op(x, identity) == x, bit for bit. For lanes that must not take part in a reduction. */
emit_value emit_identity(emitter *e, tir_op op, tir_dtype dtype) {
    LLVMTypeRef type = emit_type(e, dtype, 0);
    bool is_float = emit_class_of(dtype) == 'f', is_signed = emit_class_of(dtype) == 'i';
    unsigned bits = is_float ? 0 : LLVMGetIntTypeWidth(type);
    uint64_t top = is_float ? 0 : UINT64_C(1) << (bits - 1);
    switch (op) {
    case TIR_MIN:
        if (is_float) return emit_constant(LLVMConstReal(type, (double)INFINITY));
        return emit_constant(is_signed ? LLVMConstInt(type, top - 1, false) : LLVMConstAllOnes(type));
    case TIR_MAX:
        if (is_float) return emit_constant(LLVMConstReal(type, (double)-INFINITY));
        return emit_constant(is_signed ? LLVMConstInt(type, top, false) : LLVMConstNull(type));
    case TIR_AND: return emit_constant(LLVMConstAllOnes(type));
    case TIR_MUL: return emit_constant(LLVMConstInt(type, 1, false));
    default: return emit_constant(LLVMConstNull(type));
    }
}

/* ---- expressions */

static emit_value constant_value(emitter *e, const tir_node *node) {
    LLVMTypeRef type = emit_type(e, node->dtype, 0);
    if (node->dtype == DLC_F32)
        return emit_constant(LLVMConstBitCast(LLVMConstInt(e->i32, node->bits & UINT32_MAX, false), type));
    if (node->dtype == DLC_F64) return emit_constant(LLVMConstBitCast(LLVMConstInt(e->i64, node->bits, false), type));
    return emit_constant(LLVMConstInt(type, node->bits, false));
}

/* Converts an index to type `to`, in 32-bit lanes if these can hold it. */
static emit_value cast_index(emitter *e, tir_dtype to, tir_expr operand) {
    emit_form form = emit_index(e, operand);
    tir_interval range = emit_form_range(e, &form);
    bool lanes = form.lane != 0 || form.vector.llvm != NULL;
    bool fits = range.low >= INT32_MIN && range.high <= INT32_MAX;
    bool integer = emit_class_of(to) != 'f' && emit_class_of(to) != 'b' && lib_dtypes[to].bits <= 32;
    bool narrow = lanes && (fits || integer);
    emit_value value = emit_form_narrow(e, &form, narrow ? 32 : 64);
    return operate(e, TIR_CAST, to, narrow ? DLC_I32 : TIR_INDEX, 1, &value);
}

static bool is_linear(tir_op op) {
    return op == TIR_CONST || op == TIR_VAR || op == TIR_ADD || op == TIR_SUB || op == TIR_MUL || op == TIR_DIV ||
           op == TIR_REM || op == TIR_MIN || op == TIR_MAX || op == TIR_NEG;
}

static emit_value short_cut(emitter *e, tir_op op, emit_value *x, bool *taken) {
    *taken = true;
    if (op == TIR_AND) return emit_both(e, x[0], x[1]);
    if (op == TIR_OR) {
        if (is_i1(x[0], true) || is_i1(x[1], false)) return x[0];
        if (is_i1(x[1], true) || is_i1(x[0], false)) return x[1];
    }
    *taken = false;
    return x[0];
}

/* operands[0] and [2], bytes that are neighbours in memory and widened to 16 bits; llvm NULL: they are not. */
static emit_value widened_pair(emitter *e, const tir_expr *operands) {
    tir_expr bytes[3] = {0};
    for (int i = 0; i < 3; i += 2) {
        if (tir_op_of(e->pool, operands[i]) != TIR_CAST || tir_dtype_of(e->pool, operands[i]) != DLC_I16)
            return (emit_value){0};
        bytes[i] = tir_operand(e->pool, operands[i], 0);
    }
    const tir_dtype from = tir_dtype_of(e->pool, bytes[0]);
    if (from != tir_dtype_of(e->pool, bytes[2]) || (from != DLC_I8 && from != DLC_U8)) return (emit_value){0};
    emit_value pair = emit_load_group(e, 2, 1, bytes);
    if (!pair.llvm) return pair;
    /* A pair that all lanes share is broadcast before it is widened: the load broadcasts it, and a vector instruction widens it. */
    pair = emit_splat(e, pair, e->lanes);
    const uint64_t key[] = {EMIT_WIDENED, (uint64_t)(uintptr_t)pair.llvm, from};
    emit_value result = pair;
    if (emit_find(e, 3, key, &result)) return result;
    emit_at(e, pair.level);
    result.llvm = emit_widened_bytes(e, pair.llvm, from == DLC_I8);
    return emit_remember(e, 3, key, result);
}

/* operands[0], [2], [4], ..., `count` of them, side by side in an i32, the first in the lowest bits. */
static emit_value packed(emitter *e, int count, const tir_expr *operands) {
    emit_value group = emit_load_group(e, count, 4 / count, operands), part[4];
    if (!group.llvm && count == 2) group = widened_pair(e, operands);
    if (group.llvm) return group;
    int lanes = 0;
    for (int i = 0; i < count; i++) {
        part[i] = emit_expr(e, operands[2 * i]);
        if (part[i].lanes) lanes = part[i].lanes;
    }
    uint64_t key[] = {EMIT_PACK, 0, 0, 0, 0};
    for (int i = 0; i < count; i++) key[1 + i] = (uint64_t)(uintptr_t)(part[i] = emit_splat(e, part[i], lanes)).llvm;
    if (emit_find(e, 5, key, &group)) return group;
    group = (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)emit_level_of(count, part)};
    emit_at(e, group.level);
    for (int i = 0; i < count; i++) {
        LLVMValueRef wide = LLVMBuildZExt(e->builder, part[i].llvm, emit_vector_type(e->i32, lanes), "");
        if (i) wide = LLVMBuildShl(e->builder, wide, emit_fill(e, e->i32, lanes, i * 32 / count), "");
        group.llvm = i ? LLVMBuildOr(e->builder, group.llvm, wide, "") : wide;
    }
    return emit_remember(e, 5, key, group);
}

/* The dot product by the machine's instructions; llvm NULL: the machine has none for these lanes. */
static emit_value dot_value(emitter *e, tir_op op, const tir_expr *operands) {
    const bool unit = op == TIR_DOT2_BF16  ? e->features.avx512bf16
                      : op == TIR_DOT2_I16 ? e->features.x86
                                           : e->features.vnni;
    const int count = tir_ops[op].arity / 2;
    if (!unit || e->lanes * 4 > e->device->machine.vector_bytes) return (emit_value){0};
    emit_value x[3] = {emit_expr(e, operands[0]), packed(e, count, operands + 1), packed(e, count, operands + 2)};
    if (op == TIR_DOT2_BF16 &&
        !x[1].lanes) { /* the factors commute; only the last one may be a broadcast from memory */
        emit_value broadcast = x[1];
        x[1] = x[2];
        x[2] = broadcast;
    }
    for (int i = 0; i < 3; i++) x[i] = emit_splat(e, x[i], e->lanes);
    emit_value result = {.lanes = (int16_t)e->lanes, .level = (int16_t)emit_level_of(3, x)};
    emit_at(e, result.level);
    result.llvm = op == TIR_DOT2_I16 ? emit_dot_words(e, e->lanes, x[0].llvm, x[1].llvm, x[2].llvm)
                                     : emit_dot_unit(e, op, e->lanes, x[0].llvm, x[1].llvm, x[2].llvm);
    return result;
}

/* Is the node a cast to an 8-bit integer of a rounded f32? One conversion does both. */
static bool rounds_to_integer(const emitter *e, const tir_node *node, const tir_expr *operands) {
    return node->op == TIR_CAST && node->dtype != TIR_INDEX && lib_dtypes[node->dtype].bits == 8 &&
           emit_class_of(node->dtype) != 'b' && tir_op_of(e->pool, operands[0]) == TIR_ROUND &&
           tir_dtype_of(e->pool, operands[0]) == DLC_F32;
}

static emit_value round_cast(emitter *e, tir_dtype to, tir_expr operand) {
    emit_value x = emit_expr(e, tir_operand(e->pool, operand, 0)), result;
    uint64_t key[] = {EMIT_ROUND_CAST | (uint64_t)to << 16, (uint64_t)(uintptr_t)x.llvm};
    if (emit_find(e, 2, key, &result)) return result;
    emit_at(e, x.level);
    result = x;
    result.llvm = emit_round_cast(e, to, x.llvm);
    return emit_remember(e, 2, key, result);
}

/* x, if the node is the cast of max(x, 0) to bf16, for which a comparison masks the conversion; else 0. */
static tir_expr positive_part(const emitter *e, const tir_node *node, const tir_expr *operands) {
    if (node->op != TIR_CAST || node->dtype != DLC_BF16 || !e->device->machine.masked) return 0;
    if (tir_op_of(e->pool, operands[0]) != TIR_MAX || tir_dtype_of(e->pool, operands[0]) != DLC_F32) return 0;
    for (int i = 0; i < 2; i++) {
        const tir_node *zero = tir_get(e->pool, tir_operand(e->pool, operands[0], i));
        if (zero->op == TIR_CONST && zero->bits == 0) return tir_operand(e->pool, operands[0], 1 - i);
    }
    return 0;
}

static emit_value positive_cast(emitter *e, emit_value x) {
    uint64_t key[] = {EMIT_POSITIVE_CAST, (uint64_t)(uintptr_t)x.llvm};
    emit_value result;
    if (emit_find(e, 2, key, &result)) return result;
    emit_at(e, x.level);
    result = x;
    result.llvm = emit_positive_bf16(e, x.llvm);
    return emit_remember(e, 2, key, result);
}

static emit_value variable_value(emitter *e, const tir_node *node) {
    const emit_binding *binding = &e->binding[node->bits];
    if (!binding->bound) emit_raise(e, "variable %s is not bound", e->pool->variables.data[node->bits].name);
    return binding->value;
}

/* The node by one instruction for it and its operand, or by those for dot products; llvm NULL: there are none. */
static emit_value combined_value(emitter *e, const tir_node *node, const tir_expr *operands) {
    tir_expr positive = positive_part(e, node, operands);
    if (positive) {
        emit_value x = emit_expr(e, positive);
        if (x.lanes) return positive_cast(e, x);
    }
    if (rounds_to_integer(e, node, operands)) return round_cast(e, node->dtype, operands[0]);
    if (tir_ops[node->op].flags & TIR_DOT) return dot_value(e, (tir_op)node->op, operands);
    return (emit_value){0};
}

/* If the condition is constant (loops are unrolled), the other side is not emitted. */
static emit_value select_value(emitter *e, const tir_expr *operands) {
    emit_value condition = emit_expr(e, operands[0]);
    if (is_i1(condition, true)) return emit_expr(e, operands[1]);
    if (is_i1(condition, false)) return emit_expr(e, operands[2]);
    emit_value yes = emit_expr(e, operands[1]), no = emit_expr(e, operands[2]);
    return emit_select(e, condition, yes, no);
}

/* The value of a node that is neither a constant, nor a variable, nor a load. */
static emit_value operator_value(emitter *e, const tir_node *node, const tir_expr *operands) {
    tir_op op = (tir_op)node->op;
    emit_value x[9];
    if (node->count == 0 || node->count > 9) emit_raise(e, "%s is not legal in loop IR", tir_ops[op].text);
    tir_dtype operand = tir_dtype_of(e->pool, operands[op == TIR_SELECT ? 1 : 0]);
    if (operand == TIR_INDEX && (tir_ops[op].flags & TIR_COMPARES))
        return emit_index_compare(e, op, operands[0], operands[1]);
    if (op == TIR_CAST && operand == TIR_INDEX) return cast_index(e, node->dtype, operands[0]);
    const emit_value combined = combined_value(e, node, operands);
    if (combined.llvm) return combined;
    if (op == TIR_SELECT) return select_value(e, operands);
    for (int i = 0; i < (int)node->count; i++) x[i] = emit_expr(e, operands[i]);
    if (operand == DLC_BOOL && node->count == 2) {
        bool taken;
        emit_value value = short_cut(e, op, x, &taken);
        if (taken) return value;
    }
    return operate(e, op, node->dtype, operand, (int)node->count, x);
}

/* Is the node, while a pair of rows is emitted, a factor of both rows? */
static bool is_pair_factor(const emitter *e, const tir_node *node) {
    return e->pair.on &&
           (node->op == TIR_CAST || (node->op == TIR_LOAD && !emit_in_registers(e, (uint32_t)node->bits)));
}

static emit_value node_value(emitter *e, tir_expr expr, const tir_node *node) {
    const tir_expr *operands = &e->pool->operands.data[node->first];
    tir_op op = (tir_op)node->op;
    if (node->dtype == TIR_INDEX && is_linear(op)) {
        emit_form form = emit_index(e, expr);
        return emit_form_value(e, &form);
    }
    if (op == TIR_CONST) return constant_value(e, node);
    if (op == TIR_VAR) return variable_value(e, node);
    if (is_pair_factor(e, node)) return emit_pair_factor(e, expr);
    if (op == TIR_LOAD) return emit_load(e, node, operands);
    return operator_value(e, node, operands);
}

/* Stack left for expressions whose indices are loaded at loaded indices, and so on: each level takes 24 KiB. */
enum { STACK_RESERVE = 96 << 10 };

emit_value emit_expr(emitter *e, tir_expr expr) {
    if (e->memo_epoch[expr] == e->epoch) return e->memo[expr];
    if (lib_stack_left() < STACK_RESERVE)
        lib_raise(e->arena->scope, DLC_OUT_OF_MEMORY,
                  "kernel %s: the thread's stack is too small for expressions nested as deeply as its",
                  e->kernel->name);
    emit_value value = node_value(e, expr, tir_get(e->pool, expr));
    e->memo[expr] = value;
    e->memo_epoch[expr] = e->epoch;
    return value;
}
