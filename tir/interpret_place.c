/* Addresses of a kernel's buffers before it is interpreted: arguments at the caller's addresses, overlapping ones in one space; scratch in
 * memory filled with an unlikely value. */
#include "tir/interpret_frame.h"

/* local shorthand */
typedef tir_frame frame;
typedef tir_placed buffer;
typedef tir_space space;
typedef tir_cell cell;

static int64_t multiply(frame *f, int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        lib_raise(f->arena->scope, DLC_INTERNAL, "kernel %s: a buffer's size overflows", f->kernel->name);
    return product;
}

static uint32_t add_space(frame *f, space s) {
    lib_vec_push(f->arena, &f->spaces, s);
    return f->spaces.count - 1;
}

/* *low, *high: first byte of an argument and one past its last; equal if it is empty. Strides may be negative. */
static void argument_extent(frame *f, const buffer *b, char **low, char **high) {
    int64_t first = 0, last = 0;
    *low = *high = b->base;
    for (int i = 0; i < b->info->rank; i++) {
        if (b->extent[i] <= 0) return;
        int64_t reach = multiply(f, b->extent[i] - 1, b->stride[i]);
        *(reach < 0 ? &first : &last) += reach;
    }
    if (!b->base)
        lib_raise(f->arena->scope, DLC_INTERNAL, "kernel %s: argument %s is NULL", f->kernel->name, b->info->name);
    *low = b->base + first * b->size;
    *high = b->base + (last + 1) * b->size;
    if ((uintptr_t)b->base % (uintptr_t)b->info->alignment)
        lib_raise(f->arena->scope, DLC_INTERNAL, "kernel %s: argument %s is not aligned to %d bytes", f->kernel->name,
                  b->info->name, (int)b->info->alignment);
}

/* Arguments that overlap in memory share a space. */
static void place_argument(frame *f, uint32_t id) {
    buffer *b = &f->buffers[id];
    char *low, *high;
    argument_extent(f, b, &low, &high);
    uint32_t mine = add_space(f, (space){.low = low, .bytes = high - low, .unit = b->size, .shared = true});
    b->space = mine;
    for (uint32_t k = FIRST_ARGUMENT_SPACE; k < mine; k++) {
        space *s = &f->spaces.data[k], *m = &f->spaces.data[mine];
        if (!s->bytes || !m->bytes || s->low >= m->low + m->bytes || m->low >= s->low + s->bytes) continue;
        int64_t unit = tir_gcd(s->low - m->low, tir_gcd(s->unit, m->unit));
        char *end = s->low + s->bytes > m->low + m->bytes ? s->low + s->bytes : m->low + m->bytes;
        if (s->low < m->low) m->low = s->low;
        m->bytes = end - m->low;
        m->unit = unit;
        *s = (space){.low = NULL, .unit = 1, .shared = true};
        for (uint32_t i = 0; i < id; i++)
            if (f->buffers[i].space == k) f->buffers[i].space = mine;
        k = FIRST_ARGUMENT_SPACE - 1; /* the space grew: search again */
    }
}

int64_t tir_compact_elements(frame *f, const buffer *b) {
    int64_t elements = 1;
    for (int i = 0; i < b->info->rank; i++) elements = multiply(f, elements, b->extent[i] > 0 ? b->extent[i] : 0);
    return elements;
}

/* Elements from the first to the last address: strides may leave gaps. */
static int64_t spanned_elements(frame *f, const buffer *b) {
    int64_t last = 0;
    for (int i = 0; i < b->info->rank; i++) {
        if (b->extent[i] <= 0) return 0;
        last += multiply(f, b->extent[i] - 1, b->stride[i]);
    }
    return last + 1;
}

/* Fills with a pattern that is neither zero nor a small number, so that reads of don't-care values show. */
char *tir_scratch_block(frame *f, int64_t bytes) {
    if (bytes == 0) return NULL;
    char *block = lib_arena_take_aligned(f->arena, (size_t)bytes, TIR_BUFFER_ALIGNMENT);
    return memset(block, 0xfb, (size_t)bytes);
}

static void place_private(frame *f, buffer *b) {
    int64_t bytes = multiply(f, tir_compact_elements(f, b), b->size);
    b->base = tir_scratch_block(f, bytes);
    b->space =
        add_space(f, (space){.low = b->base, .bytes = bytes, .unit = b->size, .scratch = true, .per_task = true});
}

static void place_scratch(frame *f, buffer *b, uint32_t id, char *block, int64_t block_bytes) {
    space *s = &f->spaces.data[id];
    int64_t bytes = multiply(f, spanned_elements(f, b), b->size);
    if (b->info->swizzle) bytes = (bytes + 127) / 128 * 128;
    uint32_t slot = f->program->offsets[b - f->buffers];
    int64_t offset = slot ? (int64_t)f->values[slot] : 0;
    if (offset < 0 || offset > block_bytes || bytes > block_bytes - offset)
        lib_raise(f->arena->scope, DLC_INTERNAL,
                  "kernel %s: %s buffer %s, %lld bytes at %lld, exceeds the %lld bytes of its scope", f->kernel->name,
                  tir_scope_names[b->info->scope], b->info->name, (long long)bytes, (long long)offset,
                  (long long)block_bytes);
    s->unit = tir_gcd(offset, tir_gcd(b->size, s->unit));
    b->base = block ? block + offset : NULL;
    b->space = id;
}

int64_t tir_slot_bytes(const frame *f, uint32_t slot) {
    int64_t size = slot ? (int64_t)f->values[slot] : 0;
    return size > 0 ? size : 0;
}

static int64_t all_shared(const tir_kernel *kernel) {
    int64_t most = 0, offset = 0;
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        const tir_buffer *info = &kernel->buffers.data[i];
        if (info->scope != TIR_SCOPE_SHARED || !info->offset) continue;
        tir_is_const(kernel->pool, info->offset, &offset);
        const int64_t end = offset + (tir_buffer_bytes(kernel, info) + 127) / 128 * 128;
        if (end > most) most = end;
    }
    return most;
}

void tir_place_buffers(frame *f, void *const *arguments, char *workspace, char *local) {
    const tir_kernel *kernel = f->kernel;
    const int64_t workspace_bytes = tir_slot_bytes(f, f->program->workspace),
                  local_bytes = tir_slot_bytes(f, f->program->local);
    f->buffers = LIB_NEW_ARRAY(f->arena, buffer, kernel->buffers.count);
    add_space(f,
              (space){.low = workspace, .bytes = workspace_bytes, .unit = 8, .shared = true, .scratch = !f->partial});
    add_space(f, (space){.low = local, .bytes = local_bytes, .unit = 8, .scratch = true, .per_task = true});
    const int64_t shared_bytes = all_shared(kernel);
    char *shared = tir_scratch_block(f, shared_bytes);
    add_space(f, (space){.low = shared, .bytes = shared_bytes, .unit = 8, .scratch = true, .per_task = true});
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        buffer *b = &f->buffers[i];
        b->info = &kernel->buffers.data[i];
        b->size = (int32_t)lib_dtype_size(b->info->dtype);
        for (int d = 0; d < b->info->rank; d++) {
            b->extent[d] = (int64_t)f->values[f->program->extents[i][d]];
            b->stride[d] = (int64_t)f->values[f->program->strides[i][d]];
        }
        switch (b->info->scope) {
        case TIR_SCOPE_ARG:
            b->base = arguments[b->info->argument];
            place_argument(f, i);
            break;
        case TIR_SCOPE_WORKSPACE: place_scratch(f, b, WORKSPACE_SPACE, workspace, workspace_bytes); break;
        case TIR_SCOPE_LOCAL: place_scratch(f, b, LOCAL_SPACE, local, local_bytes); break;
        case TIR_SCOPE_SHARED: place_scratch(f, b, SHARED_SPACE, shared, shared_bytes); break;
        default: place_private(f, b); break;
        }
    }
}

static void mark_written(void *user, const tir_stmt *stmt) {
    if (stmt->kind == TIR_STORE) ((bool *)user)[stmt->store.buffer] = true;
    if (stmt->kind == TIR_COLLECTIVE) ((bool *)user)[stmt->collective.place[0].buffer] = true;
}

/* Memory that is never written cannot race, and arguments are never poison: they need no cells. */
void tir_place_cells(frame *f) {
    bool *written = LIB_NEW_ARRAY(f->arena, bool, f->kernel->buffers.count);
    for (uint32_t i = 0; i < f->kernel->phases.count; i++)
        tir_stmt_walk(f->kernel->phases.data[i].body, mark_written, written);
    for (uint32_t i = 0; i < f->kernel->buffers.count; i++) {
        space *s = &f->spaces.data[f->buffers[i].space];
        if (s->cells || (!written[i] && !s->scratch)) continue;
        if (f->partial && s->shared) continue; /* calls are many and short: cells of all arguments would cost more */
        s->cells = LIB_NEW_ARRAY(f->arena, cell, (size_t)(s->bytes / s->unit + 1));
    }
}
