/* Shared memory of blocks: sizes and offsets of buffers. Buffers of different phases are never live together; those of one phase may
 * share bytes if the lifetime of one ends before the other's begins: synchronise.c places barriers between them. */
#include "tir/loop.h"

enum { LINE = 128, SWIZZLE_ALIGNMENT = 1024 };

int64_t tir_buffer_bytes(const tir_kernel *kernel, const tir_buffer *buffer) {
    int64_t last = 0, extent = 0, stride = 0;
    for (int d = 0; d < buffer->rank; d++) {
        if (!tir_is_const(kernel->pool, buffer->extent[d], &extent) ||
            !tir_is_const(kernel->pool, buffer->stride[d], &stride))
            lib_raise(kernel->arena->scope, DLC_INTERNAL, "kernel %s: extents of buffer %s are not constant",
                      kernel->name, buffer->name);
        if (extent <= 0) return 0;
        if (__builtin_mul_overflow(extent - 1, stride, &extent) || __builtin_add_overflow(last, extent, &last) ||
            last >= INT64_C(1) << 46)
            lib_raise(kernel->arena->scope, DLC_INTERNAL, "kernel %s: the size of buffer %s overflows", kernel->name,
                      buffer->name);
    }
    return (last + 1) * (int64_t)lib_dtype_size(buffer->dtype);
}

/* Size rounded up to its last swizzled line: chunks are permuted within it. */
static int64_t placed_bytes(const tir_kernel *kernel, uint32_t id) {
    return (tir_buffer_bytes(kernel, &kernel->buffers.data[id]) + LINE - 1) / LINE * LINE;
}

static int64_t offset_of(const tir_kernel *kernel, uint32_t id) {
    int64_t offset = 0;
    if (kernel->buffers.data[id].offset) tir_is_const(kernel->pool, kernel->buffers.data[id].offset, &offset);
    return offset;
}

bool tir_shared_overlap(const tir_kernel *kernel, uint32_t a, uint32_t b) {
    if (kernel->buffers.data[a].scope != TIR_SCOPE_SHARED || kernel->buffers.data[b].scope != TIR_SCOPE_SHARED)
        return false;
    return offset_of(kernel, a) < offset_of(kernel, b) + placed_bytes(kernel, b) &&
           offset_of(kernel, b) < offset_of(kernel, a) + placed_bytes(kernel, a);
}

/* ---- lifetimes */

typedef struct interval {
    /* statement numbers; first -1: never */
    int first, last;
} interval;

typedef struct lifetimes {
    const tir_kernel *kernel;
    /* by buffer */
    interval *uses;
    lib_vec(interval) loops;
    int number;
} lifetimes;

static void note(lifetimes *l, uint64_t id) {
    interval *use = &l->uses[id];
    if (use->first < 0) use->first = l->number;
    use->last = l->number;
}

static tir_expr note_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    if (tir_op_of(pool, e) == TIR_LOAD) note(user, tir_get(pool, e)->bits);
    return rebuilt;
}
static void note_loads(void *user, tir_expr e) {
    tir_rewrite(((lifetimes *)user)->kernel->pool, e, note_load, user);
}

static void walk(lifetimes *l, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        l->number++;
        tir_stmt_exprs(stmt, note_loads, l);
        if (stmt->kind == TIR_STORE) note(l, stmt->store.buffer);
        for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++)
            note(l, stmt->collective.place[p].buffer);
        if (stmt->kind == TIR_LET) walk(l, stmt->let.body);
        if (stmt->kind == TIR_IF) {
            walk(l, stmt->if_.body);
            walk(l, stmt->if_.otherwise);
        }
        if (stmt->kind != TIR_FOR) continue;
        const interval loop = {l->number, l->number};
        const uint32_t at = l->loops.count;
        lib_vec_push(l->kernel->arena, &l->loops, loop);
        walk(l, stmt->for_.body);
        l->loops.data[at].last = l->number;
    }
}

/* A buffer used inside and outside of a loop is live throughout the loop; one used only within an iteration is rewritten in the next. */
static void find_lifetimes(lifetimes *l, const tir_phase *phase) {
    l->number = 0;
    l->loops.count = 0;
    for (uint32_t i = 0; i < l->kernel->buffers.count; i++) l->uses[i] = (interval){-1, -1};
    walk(l, phase->body);
    for (uint32_t i = 0; i < l->kernel->buffers.count; i++) {
        interval *use = &l->uses[i];
        for (bool changed = use->first >= 0; changed;) {
            changed = false;
            for (uint32_t k = 0; k < l->loops.count; k++) {
                const interval *loop = &l->loops.data[k];
                const bool ends = use->first < loop->first && use->last >= loop->first && use->last < loop->last;
                const bool begins = use->last > loop->last && use->first > loop->first && use->first <= loop->last;
                if (ends) use->last = loop->last;
                if (begins) use->first = loop->first;
                changed = changed || ends || begins;
            }
        }
    }
}

/* Sets meets[i * buffers + k] of the buffers i and k that are live at once in the phase. */
static void find_meetings(lifetimes *l, const tir_phase *phase, bool *meets) {
    const uint32_t count = l->kernel->buffers.count;
    find_lifetimes(l, phase);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (l->uses[i].first >= 0 && l->uses[k].first >= 0 && l->uses[i].first <= l->uses[k].last &&
                l->uses[k].first <= l->uses[i].last)
                meets[i * count + k] = true;
}

/* ---- offsets */

/* The lowest offset that no buffer of `busy` uses. */
static int64_t free_place(const tir_kernel *kernel, uint32_t id, const bool *busy) {
    const tir_buffer *buffer = &kernel->buffers.data[id];
    const int64_t bytes = placed_bytes(kernel, id), alignment = buffer->swizzle ? SWIZZLE_ALIGNMENT : LINE;
    int64_t place = 0;
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        if (!busy[i]) continue;
        const int64_t low = offset_of(kernel, i), high = low + placed_bytes(kernel, i);
        if (low >= place + bytes || high <= place) continue;
        place = (high + alignment - 1) / alignment * alignment;
        i = UINT32_MAX; /* restart */
    }
    return place;
}

/* The phase has shared memory up to the end of the last buffer that it uses. */
static void set_shared_bytes(lifetimes *l, tir_phase *phase) {
    const tir_kernel *kernel = l->kernel;
    find_lifetimes(l, phase);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        if (kernel->buffers.data[i].scope != TIR_SCOPE_SHARED || l->uses[i].first < 0) continue;
        const int64_t end = offset_of(kernel, i) + placed_bytes(kernel, i);
        if (end > phase->shared_bytes) phase->shared_bytes = end;
    }
}

void tir_kernel_place_shared(tir_kernel *kernel, bool reuse) {
    const uint32_t count = kernel->buffers.count;
    bool *busy = LIB_NEW_ARRAY(kernel->arena, bool, count + 1),
         *meets = LIB_NEW_ARRAY(kernel->arena, bool, (size_t)count *count + 1);
    lifetimes l = {.kernel = kernel, .uses = LIB_NEW_ARRAY(kernel->arena, interval, count + 1)};
    uint32_t shared = 0;
    for (uint32_t i = 0; i < count; i++) shared += kernel->buffers.data[i].scope == TIR_SCOPE_SHARED;
    if (!shared) return;
    for (uint32_t p = 0; p < kernel->phases.count && reuse; p++) find_meetings(&l, &kernel->phases.data[p], meets);
    for (uint32_t i = 0; i < count; i++) {
        tir_buffer *buffer = &kernel->buffers.data[i];
        if (buffer->scope != TIR_SCOPE_SHARED || buffer->offset) continue;
        for (uint32_t k = 0; k < count; k++)
            busy[k] = kernel->buffers.data[k].scope == TIR_SCOPE_SHARED && kernel->buffers.data[k].offset &&
                      (!reuse || meets[i * count + k]);
        buffer->offset = tir_index(kernel->pool, free_place(kernel, i, busy));
    }
    for (uint32_t p = 0; p < kernel->phases.count; p++) set_shared_bytes(&l, &kernel->phases.data[p]);
}
