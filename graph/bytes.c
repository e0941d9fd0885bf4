/* Bytes of large constants, shared by graphs and programs, and the summary of a constant that is kept without them. */
#include "graph/internal.h"

#include <stdatomic.h>

struct graph_bytes {
    graph_holder holder;
    /* References to the object, and those that also hold its bytes. */
    atomic_int references, readers;
    dlc_allocator allocator;
    void *data;
    size_t size;
};

enum { ALIGNMENT = 64 };

static graph_bytes *self(graph_holder *holder) {
    return (graph_bytes *)(void *)holder;
}

static void keep(graph_holder *holder) {
    atomic_fetch_add_explicit(&self(holder)->references, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&self(holder)->readers, 1, memory_order_relaxed);
}

static void release(graph_holder *holder) {
    graph_bytes_drop(self(holder));
    graph_bytes_forget(self(holder));
}

graph_bytes *graph_bytes_new(const dlc_allocator *allocator, size_t size) {
    graph_bytes *bytes = lib_allocate_zeroed(allocator, sizeof *bytes, _Alignof(graph_bytes));
    if (!bytes) return NULL;
    bytes->data = lib_allocate_bytes(allocator, size, ALIGNMENT);
    if (!bytes->data) {
        lib_release(allocator, bytes, sizeof *bytes, _Alignof(graph_bytes));
        return NULL;
    }
    bytes->holder = (graph_holder){.keep = keep, .release = release};
    atomic_init(&bytes->references, 1);
    atomic_init(&bytes->readers, 1);
    bytes->allocator = *allocator;
    bytes->size = size;
    return bytes;
}

void *graph_bytes_data(graph_bytes *bytes) {
    return bytes->data;
}

graph_holder *graph_bytes_holder(graph_bytes *bytes) {
    return &bytes->holder;
}

graph_bytes *graph_bytes_of(graph_holder *holder) {
    return holder && holder->release == release ? self(holder) : NULL;
}

void graph_bytes_drop(graph_bytes *bytes) {
    if (atomic_fetch_sub_explicit(&bytes->readers, 1, memory_order_acq_rel) != 1) return;
    lib_release_bytes(&bytes->allocator, bytes->data, bytes->size, ALIGNMENT);
}

bool graph_bytes_take(graph_bytes *bytes) {
    int readers = atomic_load_explicit(&bytes->readers, memory_order_relaxed);
    while (readers > 0)
        if (atomic_compare_exchange_weak_explicit(&bytes->readers, &readers, readers + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

void graph_bytes_forget(graph_bytes *bytes) {
    if (atomic_fetch_sub_explicit(&bytes->references, 1, memory_order_acq_rel) != 1) return;
    const dlc_allocator allocator = bytes->allocator;
    lib_release(&allocator, bytes, sizeof *bytes, _Alignof(graph_bytes));
}

static void release_object(void *bytes) {
    release(&((graph_bytes *)bytes)->holder);
}

void graph_bytes_own(lib_arena *arena, graph_bytes *bytes) {
    lib_arena_own(arena, release_object, bytes);
}

/* ---- of constants */

const void *graph_constant_bytes(lib_scope *scope, const graph_constant *constant) {
    graph_holder *holder = constant->holder;
    if (!holder || !holder->read || !constant->size) return constant->bytes;
    const void *bytes = holder->read(holder, constant->bytes);
    if (!bytes) lib_raise(scope, DLC_OUT_OF_MEMORY, "out of memory: a constant of %zu bytes", constant->size);
    return bytes;
}

static uint8_t period_of(const char *bytes, size_t size) {
    for (uint8_t period = 1; period <= 8 && period <= size; period = (uint8_t)(2 * period))
        if (size % period == 0 && memcmp(bytes, bytes + period, size - period) == 0) return period;
    return 0;
}

void graph_constant_describe(lib_scope *scope, graph_constant *constant) {
    if (constant->described) return;
    const void *bytes = graph_constant_bytes(scope, constant);
    const size_t shown = constant->size < sizeof constant->head ? constant->size : sizeof constant->head;
    if (shown) memcpy(constant->head, bytes, shown);
    constant->period = period_of(bytes, constant->size);
    constant->described = true;
}
