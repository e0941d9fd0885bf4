/* Makes stores whose lanes are a distance apart, when they have waited for their neighbours in memory (tir/strided.h): a block of them is
 * transposed in registers and stored as vectors; those without neighbours go lane by lane. */
#include "targets/cpu/emit.h"

#define ROWS_MAX TIR_STRIDED_ROWS

static LLVMValueRef address(emitter *e, const emit_strided *s, int64_t lane) {
    int64_t bytes = s->s.displacement + lane * s->s.stride;
    LLVMValueRef offset = emit_i64(e, bytes), pointer = s->pointer;
    if (s->step.llvm && lane) {
        LLVMValueRef steps = emit_index_times(e, s->step, lane).llvm;
        emit_at(e, e->top);
        pointer = LLVMBuildGEP2(e->builder, e->i8, pointer, &steps, 1, "");
    }
    return bytes ? LLVMBuildGEP2(e->builder, e->i8, pointer, &offset, 1, "") : pointer;
}

/* ---- transposition of `rows` vectors: unpacking inside 16-byte blocks, then of whole blocks */

typedef struct shape {
    /* powers of two */
    int lanes, rows;
    /* elements of 16 bytes; blocks of a vector */
    int block, blocks;
    /* rows = inner*outer; inner rows fill a block, or a part of it */
    int inner, outer;
} shape;

/* Within each group of `span` elements: units (`unit` elements each) of the low (or high) half of a and of b in turn. */
static LLVMValueRef zip(emitter *e, LLVMValueRef a, LLVMValueRef b, int lanes, int unit, int span, bool high) {
    int index[EMIT_MAX_LANES];
    for (int i = 0; i < lanes; i++) {
        int at = i % span / unit, from = at / 2 + (high ? span / unit / 2 : 0);
        index[i] = (at % 2 ? lanes : 0) + i / span * span + from * unit + i % unit;
    }
    return emit_shuffle(e, a, b, lanes, index);
}

/* Starts a new block. LLVM's combiner works within a block, and would search the whole network of shuffles for a shorter one again and
 * again: most of a kernel's compile time. */
static void next_block(emitter *e) {
    LLVMBasicBlockRef next = emit_block(e, "stage");
    emit_at(e, e->top);
    LLVMBuildBr(e->builder, next);
    e->level[e->top].block = next;
    emit_at(e, e->top);
}

/* One round over `count` vectors, `step` apart. Each round rotates the bits of (vector, unit in span) by one: after log2(count) rounds
 * the vector's number has become the low bits of the unit's. */
static void zip_round(emitter *e, LLVMValueRef *v, int count, int step, int lanes, int unit, int span) {
    LLVMValueRef next[ROWS_MAX];
    for (int i = 0; i < count; i++) {
        int from = i / 2;
        next[i] = zip(e, v[from * step], v[(from + count / 2) * step], lanes, unit, span, i % 2 != 0);
    }
    for (int i = 0; i < count; i++) v[i * step] = next[i];
}

static void transpose(emitter *e, LLVMValueRef *v, const shape *s) {
    for (int round = 1; round < s->inner; round *= 2) {
        next_block(e);
        for (int i = 0; i < s->outer; i++) zip_round(e, v + i * s->inner, s->inner, 1, s->lanes, 1, s->block);
    }
    for (int round = 1; round < s->outer; round *= 2) {
        next_block(e);
        for (int i = 0; i < s->inner; i++) zip_round(e, v + i, s->outer, s->inner, s->lanes, s->block, s->lanes);
    }
    next_block(e);
}

/* Stores elements from .. from + count - 1 of the vector at the address of lane `lane_at` of store `to`. */
static void store_piece(emitter *e, LLVMValueRef vector, const shape *s, int from, int count, const emit_strided *to,
                        int lane_at) {
    LLVMValueRef pointer = address(e, to, lane_at);
    int index[ROWS_MAX];
    for (int i = 0; i < s->rows; i++) index[i] = from + i;
    LLVMValueRef piece = s->rows == s->lanes ? vector : emit_shuffle(e, vector, NULL, s->rows, index);
    if (count == s->rows) {
        LLVMValueRef store = LLVMBuildStore(e->builder, piece, pointer);
        LLVMSetAlignment(store, to->alignment);
        if (to->non_temporal && count * to->s.size >= 16 && to->alignment >= count * to->s.size)
            emit_mark_non_temporal(e, store);
        return;
    }
    LLVMValueRef lane[ROWS_MAX];
    for (int i = 0; i < s->rows; i++) lane[i] = LLVMConstInt(e->i1, i < count, false);
    LLVMValueRef arguments[] = {piece, pointer, LLVMConstInt(e->i32, to->alignment, false),
                                LLVMConstVector(lane, (unsigned)s->rows)};
    emit_call(e, "llvm.masked.store", LLVMTypeOf(piece), e->pointer, 4, arguments);
}

/* For lanes whose rows are contiguous, too: the transposed block has no gaps in memory, and is stored by whole vectors. Memory order is by
 * 16-byte blocks of lanes, within each by vectors. */
static void store_interleaved(emitter *e, LLVMValueRef *v, const shape *s, const emit_strided *run) {
    for (int round = 1; round < s->rows && s->blocks > 1; round *= 2)
        zip_round(e, v, s->rows, 1, s->lanes, s->block, s->lanes);
    int elements = run->s.active * s->rows;
    for (int j = 0; j * s->lanes < elements; j++) {
        LLVMValueRef pointer = address(e, run, (int64_t)j * s->lanes / s->rows);
        int wanted = elements - j * s->lanes;
        if (wanted >= s->lanes) {
            LLVMSetAlignment(LLVMBuildStore(e->builder, v[j], pointer), run->alignment);
            continue;
        }
        LLVMValueRef lane[EMIT_MAX_LANES];
        for (int i = 0; i < s->lanes; i++) lane[i] = LLVMConstInt(e->i1, i < wanted, false);
        LLVMValueRef arguments[] = {v[j], pointer, LLVMConstInt(e->i32, run->alignment, false),
                                    LLVMConstVector(lane, (unsigned)s->lanes)};
        emit_call(e, "llvm.masked.store", LLVMTypeOf(v[j]), e->pointer, 4, arguments);
    }
}

static const emit_strided *strided_at(tir_strided *const *store, int i) {
    return (const emit_strided *)store[i];
}

void emit_transposed(void *user, tir_strided *const *store, int count) {
    emitter *e = user;
    const emit_strided *run = strided_at(store, 0);
    shape s = {.lanes = run->s.lanes, .rows = 2, .block = (int)(16 / run->s.size)};
    while (s.rows < count) s.rows *= 2;
    if (s.block > s.lanes) s.block = s.lanes;
    s.blocks = s.lanes / s.block;
    s.inner = s.rows < s.block ? s.rows : s.block;
    s.outer = s.rows / s.inner;
    LLVMValueRef v[ROWS_MAX];
    for (int i = 0; i < s.rows; i++)
        v[i] = i < count ? strided_at(store, i)->value : LLVMGetPoison(LLVMTypeOf(run->value));
    emit_at(e, e->top);
    transpose(e, v, &s);
    bool dense = run->s.stride == run->s.size * count && s.rows == count && s.outer == 1 && !run->non_temporal;
    if (dense && (run->s.active == s.lanes || e->device->machine.masked)) {
        store_interleaved(e, v, &s, run);
        return;
    }
    int parts = s.blocks / s.outer, columns = s.block / s.inner; /* of a vector; of a block */
    for (int lane = 0; lane < run->s.active; lane++) {
        int block = lane / s.block, column = lane % s.block;
        LLVMValueRef vector = v[block / parts * s.inner + column / columns];
        int from = block % parts * s.outer * s.block + column % columns * s.inner;
        store_piece(e, vector, &s, from, count, run, lane);
    }
}

static void store_lanes(emitter *e, const emit_strided *s) {
    for (int i = 0; i < s->s.active; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false);
        LLVMValueRef one = LLVMBuildExtractElement(e->builder, s->value, lane, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, one, address(e, s, i)), (unsigned)s->s.size);
    }
}

/* Stores the lanes of several vectors with equal strides by a loop: the vectors are written to the stack, and an iteration copies a lane of
 * each. As fast as extracting lanes from registers, and the code is shorter by the number of lanes. */
static void store_lanes_rolled(emitter *e, tir_strided *const *store, int count) {
    const emit_strided *s = strided_at(store, 0);
    int64_t size = s->s.size, bytes = size * s->s.lanes;
    emit_at(e, 0);
    LLVMValueRef room = LLVMBuildAlloca(e->builder, LLVMArrayType2(e->i8, (uint64_t)(bytes * count)), "");
    LLVMSetAlignment(room, TIR_BUFFER_ALIGNMENT);
    emit_at(e, e->top);
    for (int i = 0; i < count; i++) {
        LLVMValueRef offset = emit_i64(e, i * bytes);
        LLVMValueRef at = LLVMBuildGEP2(e->builder, e->i8, room, &offset, 1, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, strided_at(store, i)->value, at), (unsigned)size);
    }
    LLVMBasicBlockRef before = e->level[e->top].block, loop = emit_block(e, "lanes"), after = emit_block(e, "after");
    LLVMBuildBr(e->builder, loop);
    LLVMPositionBuilderAtEnd(e->builder, loop);
    LLVMValueRef lane = LLVMBuildPhi(e->builder, e->i64, ""), zero = emit_i64(e, 0);
    LLVMAddIncoming(lane, &zero, &before, 1);
    LLVMValueRef from = LLVMBuildMul(e->builder, lane, emit_i64(e, size), "");
    LLVMValueRef to = LLVMBuildMul(e->builder, lane, s->step.llvm ? s->step.llvm : emit_i64(e, s->s.stride), "");
    from = LLVMBuildGEP2(e->builder, e->i8, room, &from, 1, "");
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(s->value));
    LLVMValueRef base = NULL, pointer = NULL;
    for (int i = 0; i < count; i++) {
        const emit_strided *one = strided_at(store, i);
        if (one->pointer != base) pointer = LLVMBuildGEP2(e->builder, e->i8, base = one->pointer, &to, 1, "");
        LLVMValueRef source = emit_i64(e, i * bytes), there = emit_i64(e, one->s.displacement);
        source = LLVMBuildGEP2(e->builder, e->i8, from, &source, 1, "");
        LLVMValueRef value = LLVMBuildLoad2(e->builder, element, source, "");
        LLVMSetAlignment(value, (unsigned)size);
        there = LLVMBuildGEP2(e->builder, e->i8, pointer, &there, 1, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, value, there), (unsigned)size);
    }
    LLVMValueRef next = LLVMBuildAdd(e->builder, lane, emit_i64(e, 1), "");
    LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, next, emit_i64(e, s->s.active), "");
    LLVMBuildCondBr(e->builder, more, loop, after);
    LLVMAddIncoming(lane, &next, &loop, 1);
    e->level[e->top].block = after;
    emit_at(e, e->top);
}

void emit_separate(void *user, tir_strided *const *store, int count, bool looped) {
    emitter *e = user;
    emit_at(e, e->top);
    if (looped && strided_at(store, 0)->lane_loop)
        store_lanes_rolled(e, store, count);
    else
        for (int i = 0; i < count; i++) store_lanes(e, strided_at(store, i));
}
