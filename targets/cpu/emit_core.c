/* Basics of the emitter: levels and insertion points, the table of values already emitted, constants, splats, calls. */
#include "targets/cpu/emit.h"

#include <stdio.h>

_Noreturn void emit_raise(emitter *e, const char *format, ...) {
    char message[LIB_MESSAGE_MAX / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    lib_raise(e->arena->scope, DLC_INTERNAL, "cpu emitter, kernel %s: %s", e->kernel->name, message);
}

/* ---- levels */

void emit_push(emitter *e, LLVMBasicBlockRef block, bool conditional) {
    if (e->top + 1 >= EMIT_MAX_LEVELS) emit_raise(e, "more than %d nested levels", EMIT_MAX_LEVELS);
    e->top++;
    e->level[e->top] = (emit_level){.block = block, .id = ++e->next_id, .conditional = conditional};
    e->epoch++;
}

/* Leaves a level; the level outside continues in `next`. */
void emit_pop(emitter *e, LLVMBasicBlockRef next) {
    e->level[e->top].id = 0;
    e->top--;
    e->level[e->top].block = next;
    e->epoch++;
}

LLVMBasicBlockRef emit_block(emitter *e, const char *name) {
    return LLVMAppendBasicBlockInContext(e->context, e->function, name);
}

void emit_at(emitter *e, int level) {
    LLVMBasicBlockRef block = e->level[level].block;
    LLVMValueRef terminator = level < e->top ? LLVMGetBasicBlockTerminator(block) : NULL;
    if (terminator)
        LLVMPositionBuilderBefore(e->builder, terminator);
    else
        LLVMPositionBuilderAtEnd(e->builder, block);
}

int emit_level_of(int count, const emit_value *values) {
    int level = 0;
    for (int i = 0; i < count; i++)
        if (values[i].llvm && values[i].level > level) level = values[i].level;
    return level;
}

/* ---- values already emitted */

static uint64_t hash_words(int count, const uint64_t *words) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++) hash = lib_hash_mix(hash, words[i]);
    return hash;
}

bool emit_find(emitter *e, int count, const uint64_t *words, emit_value *value) {
    uint64_t hash = hash_words(count, words);
    for (uint32_t at = lib_map_first(&e->map, hash); at != LIB_MAP_END; at = lib_map_next(&e->map, hash, at)) {
        const emit_cached *entry = &e->cached.data[e->map.slots[at].value];
        int level = entry->value.level;
        if (level > e->top || e->level[level].id != entry->level_id) continue;
        if (memcmp(entry->word, words, (size_t)count * sizeof *words) != 0) continue;
        *value = entry->value;
        return true;
    }
    return false;
}

/* An entry of a dead level under the same key is overwritten, so that repeated bodies do not make the table grow. */
emit_value emit_remember(emitter *e, int count, const uint64_t *words, emit_value value) {
    uint64_t hash = hash_words(count, words);
    emit_cached entry = {.value = value, .level_id = e->level[value.level].id};
    memcpy(entry.word, words, (size_t)count * sizeof *words);
    for (uint32_t at = lib_map_first(&e->map, hash); at != LIB_MAP_END; at = lib_map_next(&e->map, hash, at)) {
        emit_cached *old = &e->cached.data[e->map.slots[at].value];
        if (memcmp(old->word, entry.word, sizeof entry.word) != 0) continue;
        *old = entry;
        return value;
    }
    lib_map_insert(e->arena, &e->map, hash, e->cached.count);
    lib_vec_push(e->arena, &e->cached, entry);
    return value;
}

/* ---- types and constants */

LLVMTypeRef emit_vector_type(LLVMTypeRef element, int lanes) {
    return lanes ? LLVMVectorType(element, (unsigned)lanes) : element;
}

LLVMTypeRef emit_type(emitter *e, tir_dtype dtype, int lanes) {
    LLVMTypeRef type = e->i64;
    if (dtype == DLC_BOOL)
        type = e->i1;
    else if (dtype == DLC_F32)
        type = e->f32;
    else if (dtype == DLC_F64)
        type = e->f64;
    else if (dtype != TIR_INDEX)
        type = LLVMIntTypeInContext(e->context, lib_dtypes[dtype].bits);
    return emit_vector_type(type, lanes);
}

emit_value emit_constant(LLVMValueRef constant) {
    return (emit_value){.llvm = constant, .lanes = 0, .level = 0};
}

LLVMValueRef emit_i64(emitter *e, int64_t value) {
    return LLVMConstInt(e->i64, (unsigned long long)value, true);
}

static LLVMValueRef constant_splat(LLVMValueRef scalar, int lanes) {
    if (!lanes) return scalar;
    LLVMValueRef all[EMIT_MAX_LANES];
    for (int i = 0; i < lanes; i++) all[i] = scalar;
    return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef emit_fill(emitter *e, LLVMTypeRef element, int lanes, int64_t integer) {
    (void)e;
    return constant_splat(LLVMConstInt(element, (unsigned long long)integer, true), lanes);
}

LLVMValueRef emit_real(LLVMTypeRef element, int lanes, double value) {
    return constant_splat(LLVMConstReal(element, value), lanes);
}

LLVMValueRef emit_iota(emitter *e, LLVMTypeRef element, int lanes, int64_t start, int64_t step) {
    LLVMValueRef all[EMIT_MAX_LANES];
    (void)e;
    for (int i = 0; i < lanes; i++) all[i] = LLVMConstInt(element, (unsigned long long)(start + step * i), true);
    return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef emit_shuffle(emitter *e, LLVMValueRef a, LLVMValueRef b, int lanes, const int *index) {
    LLVMValueRef mask[EMIT_MAX_LANES];
    for (int i = 0; i < lanes; i++)
        mask[i] = index[i] < 0 ? LLVMGetPoison(e->i32) : LLVMConstInt(e->i32, (unsigned)index[i], false);
    if (!b) b = LLVMGetPoison(LLVMTypeOf(a));
    return LLVMBuildShuffleVector(e->builder, a, b, LLVMConstVector(mask, (unsigned)lanes), "");
}

bool emit_mask_lanes(emit_value mask, int lanes, bool *set) {
    if (mask.llvm && !LLVMIsConstant(mask.llvm)) return false;
    for (int i = 0; i < lanes; i++) {
        const LLVMValueRef lane = mask.llvm ? LLVMGetAggregateElement(mask.llvm, (unsigned)i) : NULL;
        if (mask.llvm && (!lane || !LLVMIsAConstantInt(lane))) return false;
        set[i] = !lane || LLVMConstIntGetZExtValue(lane);
    }
    return true;
}

emit_value emit_opaque_mask(emitter *e, emit_value mask) {
    enum { LEAST = 8 /* lanes of a mask register that is moved as a whole */ };
    bool set[EMIT_MAX_LANES];
    uint64_t bits = 0, key[] = {EMIT_OPAQUE, (uint64_t)(uintptr_t)mask.llvm};
    emit_value result = {.lanes = mask.lanes, .level = (int16_t)(e->top > 0 ? e->top - 1 : 0)}, found;
    if (!e->device->machine.masked || mask.lanes < LEAST || !emit_mask_lanes(mask, mask.lanes, set)) return mask;
    if (emit_find(e, 2, key, &found)) return found;
    for (int i = 0; i < mask.lanes; i++) bits |= (uint64_t)set[i] << i;
    /* at least 32 bits, since LLVM moves whole registers, of which an instruction on 8 or 16 bits leaves the others as they are */
    const LLVMTypeRef wide = mask.lanes > 32 ? e->i64 : e->i32,
                      function = LLVMFunctionType(wide, &(LLVMTypeRef){wide}, 1, false);
    const LLVMValueRef same =
        LLVMGetInlineAsm(function, "", 0, "=r,0", 4, false, false, LLVMInlineAsmDialectATT, false);
    LLVMValueRef number = LLVMConstInt(wide, bits, false);
    emit_at(e, result.level);
    number = LLVMBuildCall2(e->builder, function, same, &number, 1, "");
    number = LLVMBuildTrunc(e->builder, number, LLVMIntTypeInContext(e->context, (unsigned)mask.lanes), "");
    result.llvm = LLVMBuildBitCast(e->builder, number, LLVMTypeOf(mask.llvm), "");
    return emit_remember(e, 2, key, result);
}

LLVMValueRef emit_splat_of(emitter *e, LLVMValueRef scalar, int lanes) {
    if (!lanes) return scalar;
    if (LLVMIsConstant(scalar)) return constant_splat(scalar, lanes);
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
    LLVMValueRef one =
        LLVMBuildInsertElement(e->builder, LLVMGetPoison(type), scalar, LLVMConstInt(e->i32, 0, false), "");
    LLVMTypeRef mask = LLVMVectorType(e->i32, (unsigned)lanes);
    return LLVMBuildShuffleVector(e->builder, one, LLVMGetPoison(type), LLVMConstNull(mask), "");
}

emit_value emit_splat(emitter *e, emit_value value, int lanes) {
    if (!lanes || value.lanes) return value;
    if (LLVMIsConstant(value.llvm))
        return (emit_value){.llvm = constant_splat(value.llvm, lanes), .lanes = (int16_t)lanes, .level = 0};
    uint64_t key[] = {EMIT_SPLAT, (uint64_t)(uintptr_t)value.llvm, (uint64_t)lanes};
    emit_value found;
    if (emit_find(e, 3, key, &found)) return found;
    emit_at(e, value.level);
    found = (emit_value){emit_splat_of(e, value.llvm, lanes), (int16_t)lanes, value.level};
    return emit_remember(e, 3, key, found);
}

bool emit_is_constant(emit_value value, int64_t *constant) {
    LLVMValueRef scalar = LLVMIsAConstantInt(value.llvm);
    if (!scalar) return false;
    *constant = LLVMConstIntGetSExtValue(scalar);
    return true;
}

/* ---- calls */

LLVMValueRef emit_call(emitter *e, const char *name, LLVMTypeRef type0, LLVMTypeRef type1, int count,
                       LLVMValueRef *arguments) {
    emit_intrinsic *entry = NULL;
    for (uint32_t i = 0; i < e->intrinsics.count && !entry; i++) {
        emit_intrinsic *at = &e->intrinsics.data[i];
        if (strcmp(at->name, name) == 0 && at->type[0] == type0 && at->type[1] == type1) entry = at;
    }
    if (!entry) {
        emit_intrinsic fresh = {.name = name, .type = {type0, type1}};
        unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
        if (id) {
            size_t types = type1 ? 2 : type0 ? 1 : 0;
            fresh.function = LLVMGetIntrinsicDeclaration(e->module, id, fresh.type, types);
            fresh.function_type = LLVMIntrinsicGetType(e->context, id, fresh.type, types);
        } else {
            LLVMTypeRef parameters[4];
            if (strncmp(name, "llvm.", 5) == 0) emit_raise(e, "LLVM knows no %s", name);
            for (int i = 0; i < count; i++) parameters[i] = LLVMTypeOf(arguments[i]);
            fresh.function_type = LLVMFunctionType(type0, parameters, (unsigned)count, false);
            fresh.function = LLVMGetNamedFunction(e->module, name);
            if (!fresh.function) fresh.function = LLVMAddFunction(e->module, name, fresh.function_type);
        }
        lib_vec_push(e->arena, &e->intrinsics, fresh);
        entry = &e->intrinsics.data[e->intrinsics.count - 1];
    }
    return LLVMBuildCall2(e->builder, entry->function_type, entry->function, arguments, (unsigned)count, "");
}
