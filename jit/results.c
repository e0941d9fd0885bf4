/* Memory of results that dlc_run allocates. When the host deletes a result, its block is kept for the next run: fresh memory from the system
 * has no pages yet, and faulting these in takes longer than writing the result. Tensors may outlive the context, so the list of blocks has a
 * reference count of its own. */
#include "jit/jit.h"

#include <sched.h>

enum {
    KEPT = 8,
    SMALLEST = 64 << 10,  /* bytes: smaller ones come from the allocator's own lists */
    MOST_KEPT = 64 << 20, /* bytes in all */
};

typedef struct kept_block {
    void *memory;
    size_t size, alignment;
} kept_block;

struct jit_results {
    /* Where blocks come from. */
    dlc_allocator source;
    /* The process that made the list. */
    lib_process process;
    /* One for the context, one for each tensor in a block. */
    atomic_int references;
    /* Guards the fields below, for a few instructions. Only closing waits for it; all other calls that find it busy do without the list.
     * In a forked child the thread that holds it may not exist: closing leaves a busy list as it is. */
    atomic_flag busy;
    bool closed;
    int count;
    kept_block block[KEPT];
    _Atomic uint64_t bytes;
};

static bool enter(jit_results *results) {
    return !atomic_flag_test_and_set_explicit(&results->busy, memory_order_acquire);
}

static void leave(jit_results *results) {
    atomic_flag_clear_explicit(&results->busy, memory_order_release);
}

static void drop_reference(jit_results *results) {
    if (atomic_fetch_sub_explicit(&results->references, 1, memory_order_acq_rel) != 1) return;
    const dlc_allocator source = results->source;
    lib_process_forget(&results->process);
    lib_release(&source, results, sizeof *results, _Alignof(jit_results));
}

static void remove_block(jit_results *results, int at) {
    atomic_fetch_sub_explicit(&results->bytes, results->block[at].size, memory_order_relaxed);
    results->block[at] = results->block[--results->count];
}

static void *take_block(jit_results *results, size_t size, size_t alignment) {
    void *memory = NULL;
    if (!enter(results)) return NULL;
    for (int i = results->count; i-- > 0 && !memory;) {
        if (results->block[i].size != size || results->block[i].alignment != alignment) continue;
        memory = results->block[i].memory;
        remove_block(results, i);
    }
    leave(results);
    return memory;
}

/* False: the block is to be released. */
static bool keep_block(jit_results *results, void *memory, size_t size, size_t alignment) {
    kept_block old = {NULL, 0, 0};
    if (size < SMALLEST || size > MOST_KEPT / 2 || !enter(results)) return false;
    const bool kept = !results->closed;
    const bool full =
        results->count == KEPT || atomic_load_explicit(&results->bytes, memory_order_relaxed) + size > MOST_KEPT;
    if (kept && full) {
        old = results->block[0];
        remove_block(results, 0);
    }
    const bool fits = atomic_load_explicit(&results->bytes, memory_order_relaxed) + size <= MOST_KEPT;
    if (kept && fits) {
        results->block[results->count++] = (kept_block){memory, size, alignment};
        atomic_fetch_add_explicit(&results->bytes, size, memory_order_relaxed);
    }
    leave(results);
    if (old.memory) lib_release(&results->source, old.memory, old.size, old.alignment);
    return kept && fits;
}

static void *allocate(void *user, size_t size, size_t alignment) {
    jit_results *results = user;
    void *memory = take_block(results, size, alignment);
    if (!memory) memory = lib_allocate(&results->source, size, alignment);
    if (memory) atomic_fetch_add_explicit(&results->references, 1, memory_order_relaxed);
    return memory;
}

static void release(void *user, void *memory, size_t size, size_t alignment) {
    jit_results *results = user;
    if (!keep_block(results, memory, size, alignment)) lib_release(&results->source, memory, size, alignment);
    drop_reference(results);
}

static jit_results *results_of(dlc_context *context) {
    jit_results *results = atomic_load_explicit(&context->results, memory_order_acquire), *none = NULL;
    if (results) return results;
    results = lib_allocate_zeroed(&context->allocator, sizeof *results, _Alignof(jit_results));
    if (!results) return NULL;
    results->source = context->allocator;
    results->process = lib_process_here();
    atomic_init(&results->references, 1);
    atomic_flag_clear(&results->busy);
    if (atomic_compare_exchange_strong(&context->results, &none, results)) return results;
    drop_reference(results);
    return none;
}

DLManagedTensorVersioned *jit_result_new(dlc_context *context, dlc_dtype dtype, int rank, const int64_t *shape) {
    jit_results *results = results_of(context);
    const dlc_allocator kept = {allocate, release, results};
    return lib_tensor_new(results ? &kept : &context->allocator, dtype, rank, shape, TIR_BUFFER_ALIGNMENT);
}

uint64_t jit_results_bytes(const dlc_context *context) {
    const jit_results *results =
        atomic_load_explicit(&((dlc_context *)(uintptr_t)context)->results, memory_order_acquire);
    return results ? atomic_load_explicit(&((jit_results *)(uintptr_t)results)->bytes, memory_order_relaxed) : 0;
}

void jit_results_close(dlc_context *context) {
    jit_results *results = atomic_load_explicit(&context->results, memory_order_acquire);
    if (!results) return;
    bool entered = enter(results);
    while (!entered && lib_process_is_here(&results->process)) {
        sched_yield();
        entered = enter(results);
    }
    if (entered) {
        results->closed = true;
        leave(results);
        for (; results->count; results->count--) {
            const kept_block *block = &results->block[results->count - 1];
            lib_release(&results->source, block->memory, block->size, block->alignment);
        }
    }
    drop_reference(results);
}
