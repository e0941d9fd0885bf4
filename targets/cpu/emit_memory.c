/* Loads and stores of buffers in memory. The lane stride of the byte offset decides the instruction: 0 is a scalar access, one element a
 * vector, a few elements are vectors and shuffles, all else is a gather or scatter. Only lanes of the mask access memory. */
#include "targets/cpu/emit.h"

typedef struct access {
    uint32_t buffer;
    const tir_buffer *b;
    /* bytes */
    emit_form offset;
    emit_value pointer;
    int64_t displacement;
    /* bytes of an element; bytes from lane to lane */
    int64_t size, stride;
    /* alignment in bytes of the first lane's address; of every lane's address */
    uint32_t alignment, unit;
    /* the dimension whose index differs between lanes, by offset.step bytes: it is first + base + l in lane l; -1: no such dimension */
    int dimension;
    int64_t first;
    LLVMValueRef base;
} access;

static void follow_dimension(emitter *e, access *a, int rank, const tir_expr *index) {
    emit_form place;
    int moving = 0, dimension = -1;
    for (int d = 0; d < rank; d++) {
        emit_form form = emit_index(e, index[d]);
        if (form.vector.llvm || (form.lane != 0 && form.lane != 1)) return;
        if (form.lane == 0) continue;
        moving++;
        dimension = d;
        place = form;
    }
    if (moving != 1) return;
    a->dimension = dimension;
    a->first = place.constant;
    place.lane = place.constant = 0;
    a->base = emit_form_value(e, &place).llvm;
}

static access access_of(emitter *e, uint32_t buffer, int rank, const tir_expr *index) {
    access a = {.buffer = buffer, .b = &e->kernel->buffers.data[buffer]};
    a.size = (int64_t)lib_dtype_size(a.b->dtype);
    e->addressing++;
    a.offset = emit_offset(e, buffer, rank, index);
    e->addressing--;
    a.stride = a.offset.lane;
    a.dimension = -1;
    if (a.offset.step.llvm && a.stride == 0) follow_dimension(e, &a, rank, index);
    a.pointer = emit_pointer(e, buffer, &a.offset, &a.displacement);
    a.alignment = emit_alignment(e, buffer, &a.offset);
    a.unit = a.alignment < a.size ? a.alignment : (uint32_t)a.size;
    return a;
}

/* Type in memory: bool is a byte. */
static LLVMTypeRef memory_type(emitter *e, const access *a, int lanes) {
    return a->b->dtype == DLC_BOOL ? emit_vector_type(e->i8, lanes) : emit_type(e, (tir_dtype)a->b->dtype, lanes);
}

static LLVMValueRef from_memory(emitter *e, const access *a, LLVMValueRef value) {
    if (a->b->dtype != DLC_BOOL) return value;
    return LLVMBuildICmp(e->builder, LLVMIntNE, value, LLVMConstNull(LLVMTypeOf(value)), "");
}

static LLVMValueRef to_memory(emitter *e, const access *a, LLVMValueRef value, int lanes) {
    return a->b->dtype == DLC_BOOL ? LLVMBuildZExt(e->builder, value, emit_vector_type(e->i8, lanes), "") : value;
}

static LLVMValueRef address(emitter *e, const access *a, int64_t extra) {
    int64_t bytes = a->displacement + extra;
    LLVMValueRef offset = emit_i64(e, bytes);
    return bytes ? LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, &offset, 1, "") : a->pointer.llvm;
}

/* Address per lane, for gather and scatter. */
static LLVMValueRef addresses(emitter *e, const access *a, emit_value offsets) {
    emit_value all = emit_splat(e, offsets, e->lanes);
    emit_at(e, e->top);
    return LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, &all.llvm, 1, "");
}

static emit_value lane_offsets(emitter *e, const access *a) {
    emit_form lanes = {.constant = a->displacement, .lane = a->stride, .vector = a->offset.vector};
    return emit_form_value(e, &lanes);
}

/* Lanes that may access memory: the statement's mask and, of a partial vector, the active lanes. */
static emit_value lane_mask(emitter *e) {
    emit_value mask = e->mask;
    if (e->lanes && e->active < e->lanes) {
        LLVMValueRef lane[EMIT_MAX_LANES];
        for (int i = 0; i < e->lanes; i++) lane[i] = LLVMConstInt(e->i1, i < e->active, false);
        emit_value active = {LLVMConstVector(lane, (unsigned)e->lanes), (int16_t)e->lanes, 0};
        mask = emit_both(e, mask, active);
    }
    return mask;
}

/* ---- loads */

static LLVMValueRef plain_load(emitter *e, LLVMTypeRef type, LLVMValueRef pointer, uint32_t alignment) {
    LLVMValueRef load = LLVMBuildLoad2(e->builder, type, pointer, "");
    LLVMSetAlignment(load, alignment);
    return load;
}

static LLVMValueRef reverse(emitter *e, LLVMValueRef value, int lanes) {
    int index[EMIT_MAX_LANES];
    for (int i = 0; i < lanes; i++) index[i] = lanes - 1 - i;
    return emit_shuffle(e, value, NULL, lanes, index);
}

static LLVMValueRef masked_load(emitter *e, LLVMTypeRef type, LLVMValueRef pointer, uint32_t alignment,
                                LLVMValueRef mask) {
    LLVMValueRef arguments[] = {pointer, LLVMConstInt(e->i32, alignment, false), mask, LLVMConstNull(type)};
    return emit_call(e, "llvm.masked.load", type, e->pointer, 4, arguments);
}

/* A vector of neighbouring elements, of the lanes of `mask` only (NULL: of all). */
static LLVMValueRef contiguous_load(emitter *e, LLVMTypeRef type, LLVMValueRef pointer, uint32_t alignment,
                                    LLVMValueRef mask) {
    return mask ? masked_load(e, type, pointer, alignment, mask) : plain_load(e, type, pointer, alignment);
}

/* Every `step`-th element: `step` vector loads, none past the last element needed, and shuffles. With a mask (may be NULL) they access
 * the elements of its lanes only. */
static LLVMValueRef strided_load(emitter *e, const access *a, int step, LLVMValueRef mask) {
    int lanes = e->lanes, last = step * (lanes - 1);
    LLVMTypeRef type = memory_type(e, a, lanes);
    LLVMValueRef result = NULL;
    for (int part = 0, taken = 0; taken < lanes; part++) {
        int start = part * lanes;
        if (start + lanes - 1 > last) start = last - lanes + 1;
        int index[EMIT_MAX_LANES], wanted[EMIT_MAX_LANES], next = taken;
        for (int i = 0; i < lanes; i++) wanted[i] = lanes; /* a lane of zeros */
        for (int i = 0; i < lanes; i++) {
            int from = i * step - start;
            bool here = i >= taken && from >= 0 && from < lanes;
            index[i] = here ? from + (result ? lanes : 0) : i < taken ? i : -1;
            if (here) wanted[from] = i;
            if (here) next = i + 1;
        }
        LLVMValueRef pointer = address(e, a, start * a->size), load;
        if (mask) {
            LLVMValueRef none = LLVMConstNull(emit_vector_type(e->i1, lanes));
            load = masked_load(e, type, pointer, a->unit, emit_shuffle(e, mask, none, lanes, wanted));
        } else {
            load = plain_load(e, type, pointer, a->unit);
        }
        result = result ? emit_shuffle(e, result, load, lanes, index) : emit_shuffle(e, load, NULL, lanes, index);
        taken = next;
    }
    return result;
}

static bool has_gather(const emitter *e, const access *a) {
    return e->features.x86 && e->features.level >= CPU_AVX2 && a->size >= 4;
}

/* A masked gather at the builder's position, at the byte offsets of all lanes. */
static LLVMValueRef gather_at(emitter *e, const access *a, emit_value mask, emit_value offsets) {
    int lanes = e->lanes;
    LLVMTypeRef type = memory_type(e, a, lanes);
    LLVMValueRef pointers = LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, &offsets.llvm, 1, "");
    LLVMValueRef all = mask.llvm ? mask.llvm : LLVMConstAllOnes(emit_vector_type(e->i1, lanes));
    LLVMValueRef arguments[] = {pointers, LLVMConstInt(e->i32, a->unit, false), all, LLVMConstNull(type)};
    return emit_call(e, "llvm.masked.gather", type, LLVMTypeOf(pointers), 4, arguments);
}

/* ---- loads at positions from a table. Tables mostly ascend by less than a few elements per lane: then the elements from the first lane's
 * to the last lane's fit in a few vectors, which are loaded and permuted. Otherwise a gather is used. Everything that depends on the table
 * alone is computed where the table is loaded. */

enum { PICK_START, PICK_INDEX, PICK_NEAR, PICK_FAR, PICK_LAST, PICK_WANTED, PICK_PARTS = PICK_WANTED + 2 };
typedef LLVMValueRef picking[PICK_PARTS];

/* Number of active lanes if they are the first ones; else 0. */
static int leading_lanes(const emitter *e, emit_value mask) {
    bool set[EMIT_MAX_LANES];
    int count = 0;
    if (!emit_mask_lanes(mask, e->active, set)) return 0;
    for (int i = 0; i < e->active; i++)
        if (set[i] && i != count++) return 0;
    return count;
}

/* Can the load be made by permuting vectors: do offsets come from a table, does a permutation for such vectors exist, are the reading lanes
 * the first ones, and may new blocks begin here? */
static bool picks(const emitter *e, const access *a, emit_value mask) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
    int bytes = (int)a->size * e->lanes;
    if (!a->offset.vector.llvm || !has_gather(e, a) || !leading_lanes(e, mask)) return false;
    if (e->weaves || here != e->level[e->top].block || LLVMGetBasicBlockTerminator(here)) return false;
    return (e->features.level >= CPU_AVX512 && bytes == 64) || (bytes == 32 && a->size == 4);
}

/* Computes, at the level of the offsets, the permutation's lane numbers, the masks and the conditions of a picked load. The first `active`
 * lanes read. */
static void prepare_picking(emitter *e, const access *a, int active, emit_value offsets, picking p) {
    LLVMBuilderRef b = e->builder;
    int lanes = e->lanes;
    bool wide = a->size == 8, missing = false;
    uint64_t key[] = {EMIT_PICK, (uint64_t)(uintptr_t)offsets.llvm, (uint64_t)lanes << 32 | (uint64_t)active,
                      (uint64_t)a->size, 0};
    emit_value known;
    for (int i = 0; i < PICK_PARTS && !missing; i++) {
        key[4] = (uint64_t)i;
        missing = !emit_find(e, 5, key, &known);
        p[i] = missing ? NULL : known.llvm;
    }
    if (!missing) return;
    LLVMValueRef all = emit_splat(e, offsets, lanes).llvm;
    emit_at(e, offsets.level);
    LLVMTypeRef integer = wide ? e->i64 : e->i32, bits = LLVMIntTypeInContext(e->context, (unsigned)lanes);
    p[PICK_START] = LLVMBuildExtractElement(b, all, LLVMConstInt(e->i32, 0, false), "");
    LLVMValueRef distance = LLVMBuildSub(b, all, emit_splat_of(e, p[PICK_START], lanes), ""), used[EMIT_MAX_LANES];
    for (int i = 0; i < lanes; i++) used[i] = LLVMConstInt(e->i1, i < active, false);
    if (active < lanes)
        distance = LLVMBuildSelect(b, LLVMConstVector(used, (unsigned)lanes), distance,
                                   LLVMConstNull(LLVMTypeOf(distance)), "");
    LLVMValueRef reach = LLVMBuildExtractElement(b, distance, LLVMConstInt(e->i32, (unsigned)active - 1, false), "");
    LLVMValueRef beyond = LLVMBuildICmp(b, LLVMIntUGT, distance, emit_splat_of(e, reach, lanes), "");
    LLVMValueRef ascends = LLVMBuildICmp(b, LLVMIntEQ, LLVMBuildBitCast(b, beyond, bits, ""), LLVMConstNull(bits), "");
    for (int i = 0; i < 2; i++) {
        LLVMValueRef close = LLVMBuildICmp(b, LLVMIntULT, reach, emit_i64(e, (int64_t)(2 << i) * lanes * a->size), "");
        p[PICK_NEAR + i] = LLVMBuildAnd(b, ascends, close, "");
    }
    LLVMValueRef shift = LLVMConstInt(e->i64, wide ? 3 : 2, false);
    p[PICK_INDEX] = LLVMBuildTrunc(b, LLVMBuildLShr(b, distance, emit_splat_of(e, shift, lanes), ""),
                                   emit_vector_type(integer, lanes), "");
    LLVMValueRef last = LLVMBuildTrunc(b, LLVMBuildLShr(b, reach, shift, ""), integer, "");
    p[PICK_LAST] = emit_splat_of(e, last, lanes);
    for (int i = 0; i < 2; i++)
        p[PICK_WANTED + i] = LLVMBuildICmp(b, LLVMIntULE, emit_iota(e, integer, lanes, i * lanes, 1), p[PICK_LAST], "");
    for (int i = 0; i < PICK_PARTS; i++) {
        key[4] = (uint64_t)i;
        emit_remember(e, 5, key, (emit_value){p[i], 0, offsets.level});
    }
}

/* For each lane, element index[lane] of the concatenation of `low` and `high`; floats or integers of 4 or 8 bytes. */
static LLVMValueRef pick(emitter *e, LLVMValueRef low, LLVMValueRef high, LLVMValueRef index, int lanes, bool wide) {
    LLVMTypeRef type = emit_vector_type(wide ? e->f64 : e->f32, lanes);
    low = LLVMBuildBitCast(e->builder, low, type, ""), high = LLVMBuildBitCast(e->builder, high, type, "");
    if (e->features.level >= CPU_AVX512) {
        const char *name = wide          ? "llvm.x86.avx512.vpermi2var.pd.512"
                           : lanes == 16 ? "llvm.x86.avx512.vpermi2var.ps.512"
                                         : "llvm.x86.avx512.vpermi2var.ps.256";
        return emit_call(e, name, NULL, NULL, 3, (LLVMValueRef[]){low, index, high});
    }
    LLVMValueRef second = LLVMBuildICmp(e->builder, LLVMIntUGE, index, emit_fill(e, e->i32, lanes, lanes), "");
    low = emit_call(e, "llvm.x86.avx2.permps", NULL, NULL, 2, (LLVMValueRef[]){low, index});
    high = emit_call(e, "llvm.x86.avx2.permps", NULL, NULL, 2, (LLVMValueRef[]){high, index});
    return LLVMBuildSelect(e->builder, second, high, low, "");
}

/* Loads vectors 2*pair and 2*pair + 1, counted from the first lane's element, and permutes them; reads nothing after the last lane's
 * element. */
static LLVMValueRef pick_pair(emitter *e, const access *a, const picking p, int pair) {
    int lanes = e->lanes;
    LLVMTypeRef type = memory_type(e, a, lanes), integer = a->size == 8 ? e->i64 : e->i32;
    LLVMValueRef part[2],
        first = LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, (LLVMValueRef *)&p[PICK_START], 1, "");
    for (int i = 0; i < 2; i++) {
        int64_t from = (int64_t)(2 * pair + i) * lanes;
        LLVMValueRef wanted = p[PICK_WANTED + i], offset = emit_i64(e, from * a->size);
        if (pair)
            wanted = LLVMBuildICmp(e->builder, LLVMIntULE, emit_iota(e, integer, lanes, from, 1), p[PICK_LAST], "");
        part[i] = masked_load(e, type, LLVMBuildGEP2(e->builder, e->i8, first, &offset, 1, ""), a->unit, wanted);
    }
    return pick(e, part[0], part[1], p[PICK_INDEX], lanes, a->size == 8);
}

static LLVMValueRef picked_load(emitter *e, const access *a, emit_value mask, emit_value offsets) {
    enum { NEAR, FAR, ANY, WAYS };
    LLVMBuilderRef b = e->builder;
    int lanes = e->lanes;
    bool wide = a->size == 8, far = e->features.level >= CPU_AVX512;
    LLVMTypeRef type = emit_vector_type(wide ? e->f64 : e->f32, lanes), integer = wide ? e->i64 : e->i32;
    const int front = leading_lanes(e, mask);
    picking p;
    prepare_picking(e, a, front, offsets, p);
    LLVMBasicBlockRef block[WAYS] = {emit_block(e, "near"), far ? emit_block(e, "far") : NULL, emit_block(e, "any")};
    LLVMBasicBlockRef further = far ? emit_block(e, "further") : block[ANY], after = emit_block(e, "picked");
    LLVMValueRef result[WAYS];
    emit_at(e, e->top);
    LLVMBuildCondBr(b, p[PICK_NEAR], block[NEAR], further);
    LLVMPositionBuilderAtEnd(b, block[NEAR]);
    result[NEAR] = pick_pair(e, a, p, 0);
    LLVMBuildBr(b, after);
    if (far) {
        LLVMPositionBuilderAtEnd(b, further);
        LLVMBuildCondBr(b, p[PICK_FAR], block[FAR], block[ANY]);
        LLVMPositionBuilderAtEnd(b, block[FAR]);
        LLVMValueRef low = pick_pair(e, a, p, 0), high = pick_pair(e, a, p, 1);
        LLVMValueRef above = LLVMBuildICmp(b, LLVMIntUGE, p[PICK_INDEX], emit_fill(e, integer, lanes, 2 * lanes), "");
        result[FAR] = LLVMBuildSelect(b, above, high, low, "");
        LLVMBuildBr(b, after);
    }
    LLVMPositionBuilderAtEnd(b, block[ANY]);
    result[ANY] = LLVMBuildBitCast(b, gather_at(e, a, mask, emit_splat(e, offsets, lanes)), type, "");
    LLVMBuildBr(b, after);
    e->level[e->top].block = after;
    emit_at(e, e->top);
    LLVMValueRef value = LLVMBuildPhi(b, type, "");
    for (int i = 0; i < WAYS; i++)
        if (i != FAR || far) LLVMAddIncoming(value, &result[i], &block[i], 1);
    if (front < e->active)
        value = LLVMBuildSelect(b, mask.llvm, value, LLVMConstNull(type),
                                ""); /* inactive lanes are zero, as gathers leave them */
    return LLVMBuildBitCast(b, value, memory_type(e, a, lanes), "");
}

static LLVMValueRef gather(emitter *e, const access *a, emit_value mask, emit_value offsets) {
    int lanes = e->lanes;
    LLVMTypeRef type = memory_type(e, a, lanes);
    bool reads[EMIT_MAX_LANES];
    if (!has_gather(e, a) && emit_mask_lanes(mask, lanes, reads)) {
        LLVMTypeRef element = memory_type(e, a, 0);
        LLVMValueRef result = mask.llvm ? LLVMConstNull(type) : LLVMGetPoison(type);
        for (int i = 0; i < lanes; i++) {
            if (!reads[i]) continue;
            LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false), pointer;
            if (a->offset.vector.llvm) {
                LLVMValueRef offset = LLVMBuildExtractElement(e->builder, offsets.llvm, lane, "");
                pointer = LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, &offset, 1, "");
            } else {
                pointer = address(e, a, i * a->stride);
            }
            LLVMValueRef one = plain_load(e, element, pointer, a->unit);
            result = LLVMBuildInsertElement(e->builder, result, one, lane, "");
        }
        return result;
    }
    if (picks(e, a, mask)) return picked_load(e, a, mask, offsets);
    offsets = emit_splat(e, offsets, lanes);
    emit_at(e, e->top);
    return gather_at(e, a, mask, offsets);
}

/* at[i]: the constant offset of lane i; of those from `front` on, which read nothing, that of the last one that does. False: the offsets are
 * not constant, or no lane reads. */
static bool known_offsets(const emitter *e, const access *a, emit_value offsets, int front, int64_t *at) {
    if (!a->offset.vector.llvm || !front || !LLVMIsConstant(offsets.llvm)) return false;
    for (int i = 0; i < e->lanes; i++) {
        if (i >= front) {
            at[i] = at[front - 1];
            continue;
        }
        LLVMValueRef lane = LLVMGetAggregateElement(offsets.llvm, (unsigned)i);
        if (!lane || !LLVMIsAConstantInt(lane)) return false;
        at[i] = LLVMConstIntGetSExtValue(lane);
    }
    return true;
}

/* Elements from the first to the last that `lanes` lanes read, and *first, the first one's offset; 0: more than two vectors of so many lanes. */
static int window_of_lanes(const access *a, int lanes, const int64_t *at, int64_t *first) {
    int64_t low = at[0], high = at[0];
    for (int i = 1; i < lanes; i++) {
        if (at[i] < low) low = at[i];
        if (at[i] > high) high = at[i];
    }
    for (int i = 0; i < lanes; i++)
        if ((at[i] - low) % a->size) return 0;
    const int64_t count = (high - low) / a->size + 1;
    *first = low;
    return count <= 2 * lanes ? (int)count : 0;
}

/* The load for window_of_lanes: one vector, or two that overlap so that nothing outside of the window is read, shuffled to the lanes. */
static LLVMValueRef load_window(emitter *e, const access *a, int lanes, int count, int64_t first, const int64_t *at) {
    int index[EMIT_MAX_LANES], part = lanes;
    LLVMValueRef piece[2];
    bool shuffled = false;
    while (part > count) part /= 2;
    for (int i = 0; i < 2; i++) {
        LLVMValueRef offset = emit_i64(e, first + (i ? count - part : 0) * a->size);
        LLVMValueRef pointer = LLVMBuildGEP2(e->builder, e->i8, a->pointer.llvm, &offset, 1, "");
        piece[i] = i && part == count ? piece[0] : plain_load(e, memory_type(e, a, part), pointer, a->unit);
    }
    for (int i = 0; i < lanes; i++) {
        const int element = (int)((at[i] - first) / a->size);
        index[i] = element < part ? element : element - count + 2 * part;
        shuffled = shuffled || index[i] != i;
    }
    return shuffled || part < lanes ? emit_shuffle(e, piece[0], piece[1], lanes, index) : piece[0];
}

/* Do the lanes, or each half, quarter, ... of them of 16 bytes or more, read a window? */
static bool read_windows(const access *a, int lanes, const int64_t *at) {
    enum { PIECE = 16 };
    const int half = lanes / 2;
    int64_t first;
    if (window_of_lanes(a, lanes, at, &first)) return true;
    return half * a->size >= PIECE && read_windows(a, half, at) && read_windows(a, half, at + half);
}

static LLVMValueRef load_windows(emitter *e, const access *a, int lanes, const int64_t *at) {
    int64_t first;
    int index[EMIT_MAX_LANES];
    const int count = window_of_lanes(a, lanes, at, &first), half = lanes / 2;
    if (count) return load_window(e, a, lanes, count, first, at);
    LLVMValueRef low = load_windows(e, a, half, at), high = load_windows(e, a, half, at + half);
    for (int i = 0; i < lanes; i++) index[i] = i;
    return emit_shuffle(e, low, high, lanes, index);
}

/* Elements from lane to lane; 0: none, or no such number. */
static int64_t step_of(const access *a) {
    return !a->offset.vector.llvm && a->stride % a->size == 0 ? a->stride / a->size : 0;
}

static LLVMValueRef backward_load(emitter *e, const access *a, LLVMTypeRef type, LLVMValueRef mask) {
    const int lanes = e->lanes;
    LLVMValueRef pointer = address(e, a, -a->size * (lanes - 1));
    if (mask) mask = reverse(e, mask, lanes);
    return reverse(e, contiguous_load(e, type, pointer, a->unit, mask), lanes);
}

/* Are lanes `step` elements apart loaded as vectors and shuffled? */
static bool has_strided_load(const emitter *e, int64_t step, emit_value mask) {
    const bool cheap_masks = e->features.level >= CPU_AVX512;
    const int most = e->features.level >= CPU_AVX512 ? 8 : 4; /* two vectors are shuffled by one instruction */
    return step > 1 && step <= most && (!mask.llvm || cheap_masks);
}

static LLVMValueRef lane_load(emitter *e, const access *a, emit_value mask) {
    enum { LEAST_VECTOR = 16 /* bytes: LLVM widens shorter ones, and their masks */ };
    int lanes = e->lanes;
    LLVMTypeRef type = memory_type(e, a, lanes);
    const int64_t step = step_of(a);
    emit_value offsets = step == 1 || step == -1 ? (emit_value){0} : lane_offsets(e, a);
    if (step == 1 && mask.llvm && lanes * a->size >= LEAST_VECTOR) mask = emit_opaque_mask(e, mask);
    emit_at(e, e->top);
    if (step == 1) return contiguous_load(e, type, address(e, a, 0), a->alignment, mask.llvm);
    if (step == -1) return backward_load(e, a, type, mask.llvm);
    if (has_strided_load(e, step, mask)) return strided_load(e, a, (int)step, mask.llvm);
    int64_t at[EMIT_MAX_LANES];
    if (known_offsets(e, a, offsets, mask.llvm ? leading_lanes(e, mask) : lanes, at) && read_windows(a, lanes, at)) {
        LLVMValueRef all = load_windows(e, a, lanes, at);
        return mask.llvm ? LLVMBuildSelect(e->builder, mask.llvm, all, LLVMConstNull(type), "") : all;
    }
    return gather(e, a, mask, offsets);
}

/* Zeros to read instead of an address that a guard forbids; one per module that needs it. */
static LLVMValueRef safe_memory(emitter *e) {
    LLVMValueRef global = LLVMGetNamedGlobal(e->module, "dlc_zeros");
    if (global) return global;
    LLVMTypeRef type = LLVMArrayType2(e->i64, EMIT_MAX_LANES);
    global = LLVMAddGlobal(e->module, type, "dlc_zeros");
    LLVMSetInitializer(global, LLVMConstNull(type));
    LLVMSetGlobalConstant(global, true);
    LLVMSetLinkage(global, LLVMInternalLinkage);
    LLVMSetAlignment(global, TIR_BUFFER_ALIGNMENT);
    return global;
}

/* The level to which a load may be hoisted: the outermost that always runs when the current one does, if the buffer is never written; else
 * the current level. */
static int load_level(const emitter *e, const access *a) {
    if (a->b->written || e->mask.llvm) return e->top;
    int level = e->top;
    while (level > a->pointer.level && !e->level[level].conditional) level--;
    return level;
}

/* Is the load a contiguous vector without a run-time mask? Such loads of tables of positions are hoisted, and with them everything that
 * depends on the table alone. */
static bool is_row(const emitter *e, const access *a, emit_value guard, emit_value mask) {
    return !guard.llvm && !e->mask.llvm && (!mask.llvm || LLVMIsConstant(mask.llvm)) && a->stride == a->size &&
           !a->offset.vector.llvm;
}

static LLVMValueRef row_load(emitter *e, const access *a, emit_value mask, int level) {
    LLVMTypeRef type = memory_type(e, a, e->lanes);
    emit_at(e, level);
    return contiguous_load(e, type, address(e, a, 0), a->alignment, mask.llvm);
}

/* All lanes read one element. If the guard is false, zeros of the module are read instead. */
static emit_value uniform_load(emitter *e, const access *a, emit_value guard) {
    uint64_t key[] = {EMIT_MEMORY, (uint64_t)(uintptr_t)a->pointer.llvm, (uint64_t)a->displacement,
                      (uint64_t)(uintptr_t)guard.llvm, (uint64_t)a->b->dtype << 32 | e->buffer[a->buffer].version};
    emit_value value;
    if (emit_find(e, 5, key, &value)) return value;
    value = (emit_value){.lanes = 0, .level = (int16_t)(guard.llvm ? e->top : load_level(e, a))};
    emit_at(e, value.level);
    LLVMValueRef pointer = address(e, a, 0);
    if (guard.llvm) pointer = LLVMBuildSelect(e->builder, guard.llvm, pointer, safe_memory(e), "");
    uint32_t alignment = guard.llvm ? a->unit : a->alignment;
    value.llvm = from_memory(e, a, plain_load(e, memory_type(e, a, 0), pointer, alignment));
    return emit_remember(e, 5, key, value);
}

static emit_value vector_load(emitter *e, const access *a, emit_value guard) {
    emit_value mask = lane_mask(e);
    bool uniform_guard = guard.llvm && !guard.lanes;
    if (guard.lanes) mask = emit_both(e, mask, guard);
    uint64_t key[] = {EMIT_MEMORY + (uint64_t)a->stride * 256 + ((uint64_t)e->lanes << 48),
                      (uint64_t)(uintptr_t)a->pointer.llvm,
                      (uint64_t)a->displacement,
                      (uint64_t)(uintptr_t)mask.llvm,
                      (uint64_t)(uintptr_t)(uniform_guard ? guard.llvm : NULL),
                      (uint64_t)a->b->dtype << 32 | e->buffer[a->buffer].version,
                      (uint64_t)(uintptr_t)a->offset.vector.llvm};
    emit_value value;
    if (emit_find(e, 7, key, &value)) return value;
    value = (emit_value){.lanes = (int16_t)e->lanes, .level = (int16_t)e->top};
    access safe = *a;
    if (uniform_guard && a->stride == a->size && !a->offset.vector.llvm && !mask.llvm) { /* the zeros are one vector */
        emit_at(e, e->top);
        safe.pointer.llvm = LLVMBuildSelect(e->builder, guard.llvm, address(e, a, 0), safe_memory(e), "");
        safe.pointer.level = (int16_t)e->top;
        safe.displacement = 0;
        safe.alignment = a->unit;
    } else if (uniform_guard) {
        mask = emit_both(e, mask, emit_splat(e, guard, e->lanes));
    }
    if (e->addressing && is_row(e, a, guard, mask)) value.level = (int16_t)load_level(e, a);
    LLVMValueRef loaded = value.level < e->top ? row_load(e, a, mask, value.level) : lane_load(e, &safe, mask);
    value.llvm = from_memory(e, a, loaded);
    return emit_remember(e, 7, key, value);
}

/* Number of the load's indices. */
static int rank_of(const tir_node *load) {
    return (int)load->count - (load->guarded ? 2 : 0);
}

emit_value emit_load(emitter *e, const tir_node *node, const tir_expr *operands) {
    uint32_t buffer = (uint32_t)node->bits;
    int rank = rank_of(node);
    emit_value guard = {0}, other = {0};
    int64_t constant;
    if (node->guarded) {
        guard = emit_expr(e, operands[rank]);
        other = emit_expr(e, operands[rank + 1]);
        if (!guard.lanes && emit_is_constant(guard, &constant)) {
            if (constant == 0) return other;
            guard.llvm = NULL;
        }
    }
    emit_value value;
    bool zero = false; /* elements that the guard excludes are zero already */
    if (emit_in_registers(e, buffer)) {
        if (!emit_reg_load(e, buffer, rank, operands, &value)) {
            if (node->guarded) return other; /* all lanes are outside of the buffer, so the guard must be false */
            emit_raise(e, "load of reg buffer %s outside of it", e->kernel->buffers.data[buffer].name);
        }
    } else {
        emit_flush_buffer(e, buffer);
        access a = access_of(e, buffer, rank, operands);
        bool varies = a.stride != 0 || a.offset.vector.llvm != NULL;
        if (!varies && guard.lanes) { /* one address, read by some lanes only */
            emit_at(e, guard.level);
            guard.llvm = emit_call(e, "llvm.vector.reduce.or", LLVMTypeOf(guard.llvm), NULL, 1, &guard.llvm);
            emit_value any = {guard.llvm, 0, guard.level};
            guard = emit_expr(e, operands[rank]);
            value = uniform_load(e, &a, any);
        } else {
            value = varies ? vector_load(e, &a, guard) : uniform_load(e, &a, guard);
            zero = guard.llvm && LLVMIsNull(other.llvm);
        }
    }
    return guard.llvm && !zero ? emit_select(e, guard, value, other) : value;
}

/* Has the load no guard, or one that is constant and true? */
static bool is_unguarded(emitter *e, const tir_node *node) {
    int64_t constant;
    if (!node->guarded) return true;
    emit_value guard = emit_expr(e, e->pool->operands.data[node->first + node->count - 2]);
    return !guard.lanes && emit_is_constant(guard, &constant) && constant != 0;
}

/* Are operands[0], [2], [4], ..., `count` of them, loads of neighbours in memory, of `bytes` bytes each? Sets *first to
 * the offset of the first one. */
static bool are_neighbours(emitter *e, int count, int bytes, const tir_expr *operands, emit_form *first) {
    uint32_t buffer = 0;
    int rank = 0;
    for (int i = 0; i < count; i++) {
        const tir_node *node = tir_get(e->pool, operands[2 * i]);
        if (node->op != TIR_LOAD || !is_unguarded(e, node)) return false;
        if (i == 0) {
            buffer = (uint32_t)node->bits;
            rank = rank_of(node);
            if (emit_in_registers(e, buffer)) return false;
            *first = emit_offset(e, buffer, rank, &e->pool->operands.data[node->first]);
            continue;
        }
        if (node->bits != buffer) return false;
        emit_form next = emit_offset(e, buffer, rank, &e->pool->operands.data[node->first]);
        int64_t distance;
        emit_form_add(e, &next, first, -1);
        if (!emit_form_is_constant(&next, &distance) || distance != i * bytes) return false;
    }
    return true;
}

emit_value emit_load_group(emitter *e, int count, int bytes, const tir_expr *operands) {
    const emit_value none = {0};
    emit_form first = {0};
    if (!are_neighbours(e, count, bytes, operands, &first)) return none;
    if (first.vector.llvm || (first.lane != 0 && first.lane != count * bytes)) return none;
    const tir_node *load = tir_get(e->pool, operands[0]);
    const uint32_t buffer = (uint32_t)load->bits;
    access a = access_of(e, buffer, rank_of(load), &e->pool->operands.data[load->first]);
    emit_value mask = a.stride ? lane_mask(e) : (emit_value){0}, value;
    int lanes = a.stride ? e->lanes : 0;
    uint64_t key[] = {EMIT_GROUP | (uint64_t)bytes << 16 | (uint64_t)count << 32,
                      (uint64_t)lanes,
                      (uint64_t)(uintptr_t)a.pointer.llvm,
                      (uint64_t)a.displacement,
                      (uint64_t)(uintptr_t)mask.llvm,
                      e->buffer[buffer].version};
    if (emit_find(e, 6, key, &value)) return value;
    emit_flush_buffer(e, buffer);
    value = (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)e->top};
    emit_at(e, e->top);
    LLVMTypeRef type = emit_vector_type(count * bytes == 4 ? e->i32 : e->i16, lanes);
    value.llvm = contiguous_load(e, type, address(e, &a, 0), a.alignment, mask.llvm);
    return emit_remember(e, 6, key, value);
}

/* ---- stores */

void emit_mark_non_temporal(emitter *e, LLVMValueRef store) {
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false));
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, &one, 1);
    LLVMSetMetadata(store, LLVMGetMDKindIDInContext(e->context, "nontemporal", 11),
                    LLVMMetadataAsValue(e->context, node));
    e->non_temporal = true;
}

static void scatter(emitter *e, const access *a, LLVMValueRef value, emit_value mask) {
    emit_value offsets = lane_offsets(e, a);
    LLVMValueRef all = mask.llvm ? mask.llvm : LLVMConstAllOnes(emit_vector_type(e->i1, e->lanes));
    LLVMValueRef pointers = addresses(e, a, offsets);
    LLVMValueRef arguments[] = {value, pointers, LLVMConstInt(e->i32, a->unit, false), all};
    emit_call(e, "llvm.masked.scatter", LLVMTypeOf(value), LLVMTypeOf(pointers), 4, arguments);
}

static uint32_t common_alignment(uint32_t alignment, int64_t stride) {
    uint64_t step = (uint64_t)(stride < 0 ? -stride : stride), lowest = step & (~step + 1);
    return lowest && lowest < alignment ? (uint32_t)lowest : alignment;
}

/* Adds the store to those that wait. */
static void delay_store(emitter *e, const access *a, LLVMValueRef value, const tir_stmt *stmt) {
    emit_strided *store = LIB_NEW(e->arena, emit_strided);
    const bool stepped = a->dimension >= 0;
    const int rows = stmt->store.rows;
    store->s = (tir_strided){.buffer = a->buffer,
                             .base = (uintptr_t)a->pointer.llvm,
                             .step = (uintptr_t)a->offset.step.llvm,
                             .displacement = a->displacement,
                             .stride = a->stride,
                             .size = a->size,
                             .lanes = e->lanes,
                             .active = e->active,
                             .type = (uintptr_t)LLVMTypeOf(value),
                             .dimension = a->dimension,
                             .first = a->first,
                             .along = (uintptr_t)a->base,
                             .rows = rows < e->lanes ? rows : e->lanes};
    store->pointer = a->pointer.llvm;
    store->value = value;
    store->step = a->offset.step;
    store->alignment = common_alignment(a->alignment, stepped ? a->size : a->stride);
    store->non_temporal = stmt->store.non_temporal;
    store->lane_loop = stmt->store.lane_loop;
    tir_strided_wait(&e->waiting, &store->s);
}

/* Stores to neighbouring elements, in the order of the lanes or in the reverse one. */
static void contiguous_store(emitter *e, const access *a, LLVMValueRef stored, emit_value mask, bool non_temporal) {
    const bool backward = a->stride == -a->size;
    const int lanes = e->lanes;
    LLVMValueRef pointer = address(e, a, backward ? -a->size * (lanes - 1) : 0);
    uint32_t alignment = backward ? a->unit : a->alignment;
    if (backward) {
        stored = reverse(e, stored, lanes);
        if (mask.llvm) mask.llvm = reverse(e, mask.llvm, lanes);
    }
    if (mask.llvm) {
        LLVMValueRef arguments[] = {stored, pointer, LLVMConstInt(e->i32, alignment, false), mask.llvm};
        emit_call(e, "llvm.masked.store", LLVMTypeOf(stored), e->pointer, 4, arguments);
        return;
    }
    LLVMValueRef store = LLVMBuildStore(e->builder, stored, pointer);
    LLVMSetAlignment(store, alignment);
    /* If whole vectors of this loop are not aligned, they use ordinary stores; a non-temporal store of a narrower, aligned vector to the
     * same line would take 20 times as long. */
    const int64_t whole = a->size * (e->whole > lanes ? e->whole : lanes);
    if (non_temporal && alignment >= whole && a->size * lanes >= 16) emit_mark_non_temporal(e, store);
}

static void vector_store(emitter *e, const access *a, emit_value value, const tir_stmt *stmt) {
    value = emit_splat(e, value, e->lanes);
    emit_value mask = lane_mask(e);
    emit_at(e, e->top);
    LLVMValueRef stored = to_memory(e, a, value.llvm, e->lanes);
    bool backward = a->stride == -a->size && !a->offset.vector.llvm;
    const bool apart = a->dimension >= 0 || (!a->offset.vector.llvm && !backward && a->stride != a->size);
    if (apart && stmt->store.rows && !e->mask.llvm) {
        delay_store(e, a, stored, stmt);
        return;
    }
    emit_flush_buffer(e, a->buffer);
    emit_at(e, e->top);
    if (!backward && (a->stride != a->size || a->offset.vector.llvm))
        scatter(e, a, stored, mask);
    else
        contiguous_store(e, a, stored, mask, stmt->store.non_temporal);
}

/* Reduces all lanes to one: halves are combined until one lane is left. */
static emit_value reduce_lanes(emitter *e, tir_op op, tir_dtype dtype, emit_value value) {
    emit_value mask = lane_mask(e);
    value = emit_splat(e, value, e->lanes);
    if (mask.llvm) value = emit_select(e, mask, value, emit_identity(e, op, dtype));
    emit_at(e, e->top);
    LLVMValueRef part = value.llvm;
    int index[EMIT_MAX_LANES];
    for (int lanes = e->lanes / 2; lanes >= 1; lanes /= 2) {
        LLVMValueRef half[2];
        for (int i = 0; i < lanes; i++) index[i] = i;
        half[0] = emit_shuffle(e, part, NULL, lanes, index);
        for (int i = 0; i < lanes; i++) index[i] = lanes + i;
        half[1] = emit_shuffle(e, part, NULL, lanes, index);
        part = emit_operation(e, op, dtype, dtype, lanes, half);
    }
    part = LLVMBuildExtractElement(e->builder, part, LLVMConstInt(e->i32, 0, false), "");
    return (emit_value){part, 0, (int16_t)e->top};
}

/* The value of a store whose lanes all have one address: the update of a reduction over the lanes, or a value that is the same in all
 * lanes. */
static emit_value uniform_store_value(emitter *e, const tir_stmt *stmt) {
    if (!e->lanes || !emit_varies(e, stmt->store.value)) return emit_expr(e, stmt->store.value);
    tir_expr operand = tir_reduced_operand(e->kernel, stmt);
    if (!operand) emit_raise(e, "lanes of a vec loop store different values to one place");
    const tir_node *node = tir_get(e->pool, stmt->store.value);
    tir_expr old = tir_operand(e->pool, stmt->store.value, 0);
    if (old == operand) old = tir_operand(e->pool, stmt->store.value, 1);
    emit_value total = reduce_lanes(e, (tir_op)node->op, node->dtype, emit_expr(e, operand));
    emit_value before = emit_expr(e, old);
    LLVMValueRef both[2] = {before.llvm, total.llvm};
    emit_at(e, e->top);
    total.llvm = emit_operation(e, (tir_op)node->op, node->dtype, node->dtype, 0, both);
    return total;
}

void emit_store(emitter *e, const tir_stmt *stmt) {
    uint32_t buffer = stmt->store.buffer;
    bool varies = false;
    for (int i = 0; i < stmt->store.rank; i++) varies |= emit_varies(e, stmt->store.index[i]);
    emit_value value = varies ? emit_expr(e, stmt->store.value) : uniform_store_value(e, stmt);
    if (e->kernel->buffers.data[buffer].scope == TIR_SCOPE_REG) {
        emit_reg_store(e, buffer, stmt->store.rank, stmt->store.index, value);
        return;
    }
    access a = access_of(e, buffer, stmt->store.rank, stmt->store.index);
    if (varies && (a.stride != 0 || a.offset.vector.llvm)) {
        vector_store(e, &a, value, stmt);
    } else {
        emit_flush_buffer(e, buffer);
        emit_at(e, e->top);
        LLVMValueRef store = LLVMBuildStore(e->builder, to_memory(e, &a, value.llvm, 0), address(e, &a, 0));
        LLVMSetAlignment(store, a.alignment);
    }
    e->buffer[buffer].version = ++e->next_version;
    e->epoch++;
}

void emit_prefetch(emitter *e, const tir_stmt *stmt) {
    access a = access_of(e, stmt->prefetch.buffer, stmt->prefetch.rank, stmt->prefetch.index);
    emit_at(e, e->top);
    int locality = stmt->prefetch.level <= 1 ? 3 : stmt->prefetch.level == 2 ? 2 : 1;
    LLVMValueRef arguments[] = {address(e, &a, 0), LLVMConstInt(e->i32, stmt->prefetch.write, false),
                                LLVMConstInt(e->i32, (unsigned)locality, false), LLVMConstInt(e->i32, 1, false)};
    emit_call(e, "llvm.prefetch", e->pointer, NULL, 4, arguments);
}
