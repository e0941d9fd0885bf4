/* Stores whose lanes are a constant stride apart. If neighbours in memory come from neighbouring iterations of an unrolled loop, not from
 * neighbouring lanes (a convolution in lanes of output channels that stores rows of pixels, the packing of panels), such stores are
 * delayed until their neighbours exist; then a block of them is transposed in registers and stored as vectors. Stores without neighbours
 * go lane by lane.
 *
 * Delayed stores never overlap each other, and are made before anything that could observe them: a load or another store of the buffer,
 * the end of the block. */
#include "targets/cpu/emit.h"

#define HELD_MAX 256 /* if more are delayed, registers are spilled */
#define ROWS_MAX 16
#define LANE_STORES 24 /* more stores of single lanes than this are made by a loop over the lanes */

static bool same_class(const emit_strided *a, const emit_strided *b) {
    return a->buffer == b->buffer && a->pointer == b->pointer && a->stride == b->stride &&
           a->step.llvm == b->step.llvm && a->lanes == b->lanes && a->active == b->active &&
           LLVMTypeOf(a->value) == LLVMTypeOf(b->value);
}

static LLVMValueRef address(emitter *e, const emit_strided *s, int64_t lane) {
    int64_t bytes = s->displacement + lane * s->stride;
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
        if (to->non_temporal && count * to->size >= 16 && to->alignment >= count * to->size)
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
    int elements = run->active * s->rows;
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

/* `count` stores of neighbours in memory, the first at run[0]. */
static void store_transposed(emitter *e, const emit_strided *run, int count) {
    shape s = {.lanes = run->lanes, .rows = 2, .block = (int)(16 / run->size)};
    while (s.rows < count) s.rows *= 2;
    if (s.block > s.lanes) s.block = s.lanes;
    s.blocks = s.lanes / s.block;
    s.inner = s.rows < s.block ? s.rows : s.block;
    s.outer = s.rows / s.inner;
    LLVMValueRef v[ROWS_MAX];
    for (int i = 0; i < s.rows; i++) v[i] = i < count ? run[i].value : LLVMGetPoison(LLVMTypeOf(run->value));
    transpose(e, v, &s);
    bool dense = run->stride == run->size * count && s.rows == count && s.outer == 1 && !run->non_temporal;
    if (dense && (run->active == s.lanes || e->device->machine.masked)) {
        store_interleaved(e, v, &s, run);
        return;
    }
    int parts = s.blocks / s.outer, columns = s.block / s.inner; /* of a vector; of a block */
    for (int lane = 0; lane < run->active; lane++) {
        int block = lane / s.block, column = lane % s.block;
        LLVMValueRef vector = v[block / parts * s.inner + column / columns];
        int from = block % parts * s.outer * s.block + column % columns * s.inner;
        store_piece(e, vector, &s, from, count, run, lane);
    }
}

static void store_lanes(emitter *e, const emit_strided *s) {
    for (int i = 0; i < s->active; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false);
        LLVMValueRef one = LLVMBuildExtractElement(e->builder, s->value, lane, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, one, address(e, s, i)), (unsigned)s->size);
    }
}

/* Stores the lanes of several vectors with equal strides by a loop: the vectors are written to the stack, and an iteration copies a lane of
 * each. As fast as extracting lanes from registers, and the code is shorter by the number of lanes. */
static void store_lanes_rolled(emitter *e, const emit_strided *s, int count) {
    int64_t size = s->size, bytes = size * s->lanes;
    emit_at(e, 0);
    LLVMValueRef room = LLVMBuildAlloca(e->builder, LLVMArrayType2(e->i8, (uint64_t)(bytes * count)), "");
    LLVMSetAlignment(room, TIR_BUFFER_ALIGNMENT);
    emit_at(e, e->top);
    for (int i = 0; i < count; i++) {
        LLVMValueRef offset = emit_i64(e, i * bytes);
        LLVMValueRef at = LLVMBuildGEP2(e->builder, e->i8, room, &offset, 1, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, s[i].value, at), (unsigned)size);
    }
    LLVMBasicBlockRef before = e->level[e->top].block, loop = emit_block(e, "lanes"), after = emit_block(e, "after");
    LLVMBuildBr(e->builder, loop);
    LLVMPositionBuilderAtEnd(e->builder, loop);
    LLVMValueRef lane = LLVMBuildPhi(e->builder, e->i64, ""), zero = emit_i64(e, 0);
    LLVMAddIncoming(lane, &zero, &before, 1);
    LLVMValueRef from = LLVMBuildMul(e->builder, lane, emit_i64(e, size), "");
    LLVMValueRef to = LLVMBuildMul(e->builder, lane, s->step.llvm ? s->step.llvm : emit_i64(e, s->stride), "");
    from = LLVMBuildGEP2(e->builder, e->i8, room, &from, 1, "");
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(s->value));
    LLVMValueRef base = NULL, pointer = NULL;
    for (int i = 0; i < count; i++) {
        if (s[i].pointer != base) pointer = LLVMBuildGEP2(e->builder, e->i8, base = s[i].pointer, &to, 1, "");
        LLVMValueRef source = emit_i64(e, i * bytes), there = emit_i64(e, s[i].displacement);
        source = LLVMBuildGEP2(e->builder, e->i8, from, &source, 1, "");
        LLVMValueRef one = LLVMBuildLoad2(e->builder, element, source, "");
        LLVMSetAlignment(one, (unsigned)size);
        there = LLVMBuildGEP2(e->builder, e->i8, pointer, &there, 1, "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, one, there), (unsigned)size);
    }
    LLVMValueRef next = LLVMBuildAdd(e->builder, lane, emit_i64(e, 1), "");
    LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, next, emit_i64(e, s->active), "");
    LLVMBuildCondBr(e->builder, more, loop, after);
    LLVMAddIncoming(lane, &next, &loop, 1);
    e->level[e->top].block = after;
    emit_at(e, e->top);
}

/* Makes the stores that have no neighbours, lane by lane. */
static void store_separately(emitter *e, const emit_strided *s, int count) {
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && s[end].stride == s[first].stride && s[end].step.llvm == s[first].step.llvm &&
               s[end].active == s[first].active && LLVMTypeOf(s[end].value) == LLVMTypeOf(s[first].value))
            end++;
        if ((end - first) * s[first].active > LANE_STORES)
            store_lanes_rolled(e, &s[first], end - first);
        else
            for (int i = first; i < end; i++) store_lanes(e, &s[i]);
    }
}

/* Makes `count` stores that are neighbours in memory, in transposed blocks; if masks are expensive, of 2^n stores each. */
static void store_run(emitter *e, const emit_strided *run, int count) {
    emit_at(e, e->top);
    while (count > 0) {
        int rows = count, limit = run->lanes < ROWS_MAX ? run->lanes : ROWS_MAX;
        if (rows > limit) rows = limit;
        if (rows > 1 && !e->device->machine.masked)
            while (rows & (rows - 1)) rows &= rows - 1;
        if (rows > 1)
            store_transposed(e, run, rows);
        else
            store_lanes(e, run);
        run += rows;
        count -= rows;
    }
}

/* ---- delayed stores */

/* Sorts each class of stores (see same_class), whose members are adjacent, by address. */
static void sort_class(emit_strided *s, int count) {
    for (int i = 1; i < count; i++) {
        emit_strided one = s[i];
        int at = i;
        while (at > 0 && same_class(&s[at - 1], &one) && s[at - 1].displacement > one.displacement) {
            s[at] = s[at - 1];
            at--;
        }
        s[at] = one;
    }
}

static void gather_classes(emit_strided *s, int count) {
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        for (int i = end; i < count; i++) {
            if (!same_class(&s[first], &s[i])) continue;
            emit_strided one = s[i];
            memmove(&s[end + 1], &s[end], (size_t)(i - end) * sizeof *s);
            s[end++] = one;
        }
    }
}

static bool follows(const emit_strided *a, const emit_strided *b) {
    return same_class(a, b) && b->displacement == a->displacement + a->size;
}

void emit_flush(emitter *e) {
    emit_strided *s = e->held.data;
    int count = (int)e->held.count;
    if (!count) return;
    gather_classes(s, count);
    sort_class(s, count);
    int separate = 0;
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && follows(&s[end - 1], &s[end])) end++;
        if (end - first > 1)
            store_run(e, &s[first], end - first);
        else
            s[separate++] = s[first];
    }
    emit_at(e, e->top);
    store_separately(e, s, separate);
    e->held.count = 0;
}

void emit_flush_buffer(emitter *e, uint32_t buffer) {
    for (uint32_t i = 0; i < e->held.count; i++) {
        if (e->held.data[i].buffer != buffer) continue;
        emit_flush(e);
        return;
    }
}

/* Can two stores to one buffer touch the same element? Not if lanes with a step cover separate intervals of one dimension, or if the
 * addresses differ by a constant that is no multiple of the stride within the active lanes. */
static bool overlap(const emit_strided *a, const emit_strided *b) {
    bool along = a->step.llvm && b->step.llvm && a->dimension == b->dimension && a->base == b->base;
    if (along && (a->first + a->active <= b->first || b->first + b->active <= a->first)) return false;
    if (a->pointer != b->pointer || a->stride != b->stride || a->step.llvm != b->step.llvm) return true;
    int64_t distance = a->displacement - b->displacement;
    if (a->step.llvm) return distance == 0;
    int active = a->active > b->active ? a->active : b->active;
    return distance % a->stride == 0 && distance / a->stride < active && distance / a->stride > -active;
}

/* Makes the last delayed stores at once if they are a whole block of neighbours. */
static void store_whole_block(emitter *e) {
    uint32_t count = e->held.count;
    const emit_strided *last = &e->held.data[count - 1];
    uint32_t rows = (uint32_t)(last->lanes < ROWS_MAX ? last->lanes : ROWS_MAX);
    if (count < rows) return;
    for (uint32_t i = count - rows; i + 1 < count; i++)
        if (!follows(&e->held.data[i], &e->held.data[i + 1])) return;
    store_run(e, &e->held.data[count - rows], (int)rows);
    e->held.count -= rows;
}

void emit_hold(emitter *e, const emit_strided *store) {
    for (uint32_t i = 0; i < e->held.count; i++) {
        const emit_strided *other = &e->held.data[i];
        if (other->buffer != store->buffer || !overlap(other, store)) continue;
        emit_flush(e);
        break;
    }
    lib_vec_push(e->arena, &e->held, *store);
    if (e->held.count == HELD_MAX)
        emit_flush(e);
    else
        store_whole_block(e);
}
