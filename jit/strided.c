/* Copies tensors on a device that kernels cannot use directly, because they are strided or not aligned to their elements, to
 * compact device memory and back. One kernel for each element size and rank, with sizes and strides as parameters; compiled when
 * first needed. */
#include "jit/device.h"

struct jit_mover {
    target_module *module;
    target_phase phase;
    int threads;
};

/* ---- the copy, with as few dimensions as possible, ordered by decreasing stride in the destination */

typedef struct motion {
    char *to;
    const char *from;
    /* bytes: 1, 2, 4, 8 */
    int element;
    int rank;
    int64_t size[DLC_MAX_RANK + 1], from_stride[DLC_MAX_RANK + 1], to_stride[DLC_MAX_RANK + 1];
} motion;

static uint64_t magnitude(int64_t n) {
    return n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
}

static void swap_dimensions(motion *m, int a, int b) {
    int64_t *const lists[] = {m->size, m->from_stride, m->to_stride};
    for (int i = 0; i < 3; i++) {
        int64_t kept = lists[i][a];
        lists[i][a] = lists[i][b];
        lists[i][b] = kept;
    }
}

/* Merges adjacent dimensions that are contiguous in both source and destination. */
static void merge_dimensions(motion *m) {
    int last = 0;
    for (int d = 1; d < m->rank; d++) {
        bool one = m->from_stride[last] == m->from_stride[d] * m->size[d] &&
                   m->to_stride[last] == m->to_stride[d] * m->size[d];
        int to = one ? last : ++last;
        m->size[to] = one ? m->size[last] * m->size[d] : m->size[d];
        m->from_stride[to] = m->from_stride[d];
        m->to_stride[to] = m->to_stride[d];
    }
    if (m->rank) m->rank = last + 1;
}

/* Splits elements that are not aligned into smaller, aligned units. */
static void split_elements(motion *m, int64_t size) {
    uintptr_t address = (uintptr_t)m->to | (uintptr_t)m->from | (uintptr_t)size;
    m->element = (int)(address & (0 - address));
    if (m->element > 8) m->element = 8;
    int64_t parts = size / m->element;
    for (int d = 0; d < m->rank; d++) {
        m->from_stride[d] *= parts;
        m->to_stride[d] *= parts;
    }
    if (parts == 1 && m->rank) return;
    m->size[m->rank] = parts;
    m->from_stride[m->rank] = m->to_stride[m->rank] = 1;
    m->rank++;
}

static motion describe(const DLTensor *to, const DLTensor *from) {
    motion m = {.to = lib_tensor_data(to), .from = lib_tensor_data(from)};
    if (to->dtype.bits < 8) { /* compact on both sides */
        m.element = m.rank = 1;
        m.size[0] = (int64_t)lib_tensor_bytes(to);
        m.from_stride[0] = m.to_stride[0] = 1;
        return m;
    }
    int64_t to_compact[DLC_MAX_RANK], from_compact[DLC_MAX_RANK];
    lib_strides_compact(to->ndim, to->shape, to_compact);
    lib_strides_compact(from->ndim, from->shape, from_compact);
    for (int d = 0; d < to->ndim; d++) {
        if (to->shape[d] == 1) continue;
        m.size[m.rank] = to->shape[d];
        m.to_stride[m.rank] = to->strides ? to->strides[d] : to_compact[d];
        m.from_stride[m.rank++] = from->strides ? from->strides[d] : from_compact[d];
    }
    for (int d = 1; d < m.rank; d++)
        for (int e = d; e && magnitude(m.to_stride[e - 1]) < magnitude(m.to_stride[e]); e--)
            swap_dimensions(&m, e, e - 1);
    split_elements(&m, to->dtype.bits / 8);
    merge_dimensions(&m);
    return m;
}

/* ---- kernels */

/* Writes the kernel: computes an element's index and its coordinates, then copies it. */
static void write_kernel(lib_text *text, int element, int rank, int threads) {
    static const char *const types[] = {"i8", "bf16", "i32", "i64"}; /* bf16: copied bit by bit */
    const char *type = types[element == 8 ? 3 : element / 2];
    for (int side = 0; side < 2; side++) {
        lib_text_format(text, "%s %s: %s[", side ? "," : "kernel strided(", side ? "y" : "x", type);
        for (int d = 0; d < rank; d++) lib_text_format(text, "%sn%d", d ? ", " : "", d);
        lib_text_format(text, "] arg stride(");
        for (int d = 0; d < rank; d++) lib_text_format(text, "%s%c%d", d ? ", " : "", side ? 'b' : 'a', d);
        lib_text_format(text, ")");
    }
    lib_text_format(text, ") params(n: 1..%lld", 1ll << 46);
    for (int d = 0; d < rank; d++)
        lib_text_format(text, ", n%d: 1..%lld, a%d: %lld..%lld, b%d: %lld..%lld", d, 1ll << 46, d, -(1ll << 46),
                        1ll << 46, d, -(1ll << 46), 1ll << 46);
    lib_text_format(
        text, ")\nphase tasks=(n + %d)/%d task=b {\nfor t in 0..%d thread {\nlet i%d = b*%d + t\nif (i%d < n) {\n",
        threads - 1, threads, threads, rank - 1, threads, rank - 1);
    for (int d = rank - 1; d > 0; d--) lib_text_format(text, "let i%d = i%d/n%d\n", d - 1, d, d);
    for (int side = 1; side >= 0; side--) {
        lib_text_format(text, "%s[i0", side ? "y" : " = x");
        for (int d = 1; d < rank; d++) lib_text_format(text, ", i%d%%n%d", d, d);
        lib_text_format(text, "]");
    }
    lib_text_add(text, "\n}\n}\n}\n");
}

const tir_kernel *jit_strided_kernel(lib_arena *arena, int element, int rank, int threads) {
    lib_text text;
    lib_lexer lexer;
    lib_text_init(&text, arena);
    write_kernel(&text, element, rank, threads);
    lib_lexer_init(&lexer, arena, "<strided>", text.data, strlen(text.data));
    return tir_kernel_parse(arena, &lexer, NULL);
}

static dlc_status load(dlc_context *context, const tir_kernel *kernel, jit_mover *mover, lib_error *error) {
    target_object object;
    LIB_TRY(context->target->compile(context->device, NULL, 1, &kernel, &object, error));
    dlc_status status = context->target->load(context->device, &object, 1, &kernel->name, &mover->module, error);
    context->target->release_object(context->device, &object);
    if (status == DLC_OK) mover->phase = context->target->phase(mover->module, 0, 0);
    return status;
}

static dlc_status make(dlc_context *context, int element, int rank, jit_mover *mover, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    const tir_kernel *volatile kernel = NULL;
    mover->threads = context->machine.block_threads < 256 ? context->machine.block_threads : 256;
    lib_arena_init(&arena, &context->allocator, &scope);
    if (LIB_ENTER(&scope)) kernel = jit_strided_kernel(&arena, element, rank, mover->threads);
    dlc_status status = scope.error.status;
    if (status == DLC_OK)
        status = load(context, kernel, mover, error);
    else
        *error = scope.error;
    lib_arena_free(&arena);
    return status;
}

static void drop(dlc_context *context, jit_mover *mover) {
    if (!mover) return;
    if (mover->module) context->target->unload(context->device, mover->module);
    lib_release(&context->allocator, mover, sizeof *mover, _Alignof(jit_mover));
}

/* If several threads compile the same kernel at once, one is kept. */
static dlc_status find(dlc_context *context, int element, int rank, const jit_mover **found, lib_error *error) {
    _Atomic(jit_mover *) *place = &context->movers[element == 8 ? 3 : element / 2][rank - 1];
    jit_mover *mover = atomic_load_explicit(place, memory_order_acquire), *none = NULL;
    *found = mover;
    if (mover) return DLC_OK;
    mover = lib_allocate_zeroed(&context->allocator, sizeof *mover, _Alignof(jit_mover));
    if (!mover) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a kernel for strided tensors");
    dlc_status status = make(context, element, rank, mover, error);
    if (status == DLC_OK && atomic_compare_exchange_strong(place, &none, mover)) {
        *found = mover;
        return DLC_OK;
    }
    drop(context, mover);
    *found = none;
    return status;
}

void jit_movers_free(dlc_context *context) {
    for (int e = 0; e < JIT_MOVER_SIZES; e++)
        for (int r = 0; r < JIT_MOVER_RANKS; r++) drop(context, atomic_load(&context->movers[e][r]));
}

dlc_status jit_device_move(const jit_device_running *run, const DLTensor *to, const DLTensor *from) {
    dlc_context *context = run->session->context;
    const jit_mover *mover;
    const motion m = describe(to, from);
    int64_t params[1 + 3 * (DLC_MAX_RANK + 1)] = {1};
    for (int d = 0; d < m.rank; d++) {
        params[0] *= m.size[d];
        params[1 + 3 * d] = m.size[d];
        params[2 + 3 * d] = m.from_stride[d];
        params[3 + 3 * d] = m.to_stride[d];
    }
    if (params[0] == 0) return DLC_OK;
    LIB_TRY(find(context, m.element, m.rank, &mover, run->error));
    void *buffers[] = {(void *)(uintptr_t)m.from, m.to};
    const target_arguments arguments = {
        .buffers = buffers, .params = params, .error = run->error, .stream = run->session->stream};
    int64_t tasks = (params[0] + mover->threads - 1) / mover->threads;
    run->error->status = DLC_OK;
    mover->phase.run(&arguments, 0, 0, tasks, 0, mover->phase.closure);
    atomic_fetch_add_explicit(&context->copied_bytes, (uint64_t)(params[0] * m.element), memory_order_relaxed);
    return run->error->status;
}
