/* The kernel cache: key -> kernel. Used by many threads; its mutex is held for look-ups and list updates only, never while
 * compiling. The unit of eviction is the module (kernels compiled together are unmapped together); pinned modules stay. */
#include "jit/jit.h"

enum { BUCKETS = 4096, MOMENT_MS = 20 };

static uint32_t bucket_of(const jit_cache *cache, const jit_key *key) {
    return (uint32_t)lib_hash64(key, sizeof *key, 0) & (cache->bucket_count - 1);
}

dlc_status jit_cache_init(dlc_context *context, size_t budget, lib_error *error) {
    jit_cache *cache = &context->cache;
    cache->bucket_count = BUCKETS;
    cache->budget = budget;
    cache->buckets = lib_allocate_zeroed(&context->allocator, BUCKETS * sizeof *cache->buckets, 64);
    if (!cache->buckets)
        return lib_fail(error, DLC_OUT_OF_MEMORY, "the kernel cache needs %zu bytes", BUCKETS * sizeof *cache->buckets);
    lib_mutex_init(&cache->mutex);
    lib_condition_init(&cache->ready);
    return DLC_OK;
}

static void free_kernel(dlc_context *context, jit_kernel *kernel) {
    lib_arena_free(&kernel->arena);
    lib_release(&context->allocator, kernel, sizeof *kernel, 64);
}

static void unlink_kernel(jit_cache *cache, jit_kernel *kernel) {
    jit_kernel **at = &cache->buckets[bucket_of(cache, &kernel->key)];
    while (*at && *at != kernel) at = &(*at)->bucket;
    if (*at) {
        *at = kernel->bucket;
        cache->count--;
    }
}

static void unlink_module(jit_cache *cache, jit_module *module) {
    if (module->previous)
        module->previous->next = module->next;
    else
        cache->newest = module->next;
    if (module->next)
        module->next->previous = module->previous;
    else
        cache->oldest = module->previous;
    module->next = module->previous = NULL;
}

static void link_newest(jit_cache *cache, jit_module *module) {
    module->previous = NULL;
    module->next = cache->newest;
    if (cache->newest)
        cache->newest->previous = module;
    else
        cache->oldest = module;
    cache->newest = module;
}

static size_t plan_bytes(const dlc_context *context) {
    return (size_t)atomic_load_explicit(&context->plan_bytes, memory_order_relaxed);
}

/* Removes unpinned modules from the cache, least recently used first, until it fits the budget less `plans` bytes. Returns them
 * as a list to free outside the lock. */
static jit_module *take_excess(jit_cache *cache, size_t budget, size_t plans) {
    jit_module *taken = NULL;
    for (jit_module *module = cache->oldest, *previous; module && cache->bytes + plans > budget; module = previous) {
        previous = module->previous;
        if (module->pins) continue;
        for (jit_kernel *kernel = module->kernels; kernel; kernel = kernel->sibling) unlink_kernel(cache, kernel);
        unlink_module(cache, module);
        cache->bytes -= module->bytes;
        module->next = taken;
        taken = module;
    }
    return taken;
}

static void free_modules(dlc_context *context, jit_module *module) {
    while (module) {
        jit_module *next = module->next;
        for (jit_kernel *kernel = module->kernels, *sibling; kernel; kernel = sibling) {
            sibling = kernel->sibling;
            free_kernel(context, kernel);
            atomic_fetch_add_explicit(&context->kernel_evictions, 1, memory_order_relaxed);
        }
        const target *owner = module->host ? module->host->target : context->target;
        owner->unload(module->host ? module->host->device : context->device, module->code);
        lib_release(&context->allocator, module, sizeof *module, 16);
        module = next;
    }
}

void jit_cache_free(dlc_context *context) {
    jit_cache *cache = &context->cache;
    if (!cache->buckets) return;
    lib_mutex_lock(&cache->mutex);
    for (jit_module *module = cache->newest; module; module = module->next) module->pins = 0;
    jit_module *all = take_excess(cache, 0, 0);
    lib_mutex_unlock(&cache->mutex);
    free_modules(context, all);
    lib_release(&context->allocator, cache->buckets, cache->bucket_count * sizeof *cache->buckets, 64);
    lib_condition_destroy(&cache->ready);
    lib_mutex_destroy(&cache->mutex);
}

jit_kernel *jit_cache_claim(dlc_context *context, const jit_key *key, bool *claimed) {
    jit_cache *cache = &context->cache;
    *claimed = false;
    lib_mutex_lock(&cache->mutex);
    jit_kernel **bucket = &cache->buckets[bucket_of(cache, key)], *kernel = *bucket;
    while (kernel && memcmp(&kernel->key, key, sizeof *key) != 0) kernel = kernel->bucket;
    if (!kernel && (kernel = lib_allocate_zeroed(&context->allocator, sizeof *kernel, 64))) {
        kernel->key = *key;
        kernel->state = JIT_BUILDING;
        lib_arena_init(&kernel->arena, &context->allocator, &kernel->scope);
        kernel->bucket = *bucket;
        *bucket = kernel;
        cache->count++;
        *claimed = true;
    }
    if (kernel) kernel->waiters++; /* until jit_cache_pin or _leave: prevents eviction and rebuilding */
    if (kernel && kernel->module) kernel->module->pins++;
    lib_mutex_unlock(&cache->mutex);
    if (!*claimed) atomic_fetch_add_explicit(&context->kernel_hits, 1, memory_order_relaxed);
    return kernel;
}

bool jit_cache_wait(dlc_context *context, jit_kernel *kernel) {
    jit_cache *cache = &context->cache;
    lib_mutex_lock(&cache->mutex);
    if (kernel->state == JIT_BUILDING) lib_condition_wait_ms(&cache->ready, &cache->mutex, MOMENT_MS);
    bool building = kernel->state == JIT_BUILDING;
    lib_mutex_unlock(&cache->mutex);
    return building;
}

dlc_status jit_cache_pin(dlc_context *context, jit_kernel *kernel, lib_error *error) {
    jit_cache *cache = &context->cache;
    lib_mutex_lock(&cache->mutex);
    while (kernel->state == JIT_BUILDING) lib_condition_wait(&cache->ready, &cache->mutex);
    kernel->waiters--;
    if (kernel->state == JIT_READY) {
        unlink_module(cache, kernel->module);
        link_newest(cache, kernel->module);
        lib_mutex_unlock(&cache->mutex);
        return DLC_OK;
    }
    *error = kernel->error;
    bool last = kernel->waiters == 0; /* all waiters have read the message */
    lib_mutex_unlock(&cache->mutex);
    if (last) free_kernel(context, kernel);
    return error->status;
}

void jit_cache_leave(dlc_context *context, jit_kernel *kernel) {
    jit_cache *cache = &context->cache;
    lib_mutex_lock(&cache->mutex);
    kernel->waiters--;
    if (kernel->state == JIT_READY) kernel->module->pins--;
    bool last = kernel->state == JIT_FAILED && kernel->waiters == 0;
    lib_mutex_unlock(&cache->mutex);
    if (last) free_kernel(context, kernel);
}

void jit_cache_unpin(dlc_context *context, jit_kernel *kernel) {
    jit_cache *cache = &context->cache;
    lib_mutex_lock(&cache->mutex);
    kernel->module->pins--;
    jit_module *excess = take_excess(cache, cache->budget, plan_bytes(context));
    lib_mutex_unlock(&cache->mutex);
    free_modules(context, excess);
}

dlc_status jit_cache_publish(dlc_context *context, jit_kernel *const *kernels, int count, target_module *code,
                             size_t bytes, lib_error *error) {
    jit_cache *cache = &context->cache;
    jit_module *module = lib_allocate_zeroed(&context->allocator, sizeof *module, 16);
    if (!module) return lib_fail(error, DLC_OUT_OF_MEMORY, "a kernel module needs %zu bytes", sizeof *module);
    module->code = code;
    module->host = kernels[0]->host;
    module->bytes = bytes;
    lib_mutex_lock(&cache->mutex);
    for (int i = 0; i < count; i++) {
        kernels[i]->module = module;
        kernels[i]->sibling = module->kernels;
        module->kernels = kernels[i];
        module->bytes += sizeof **kernels + kernels[i]->arena.total;
        module->pins += kernels[i]->waiters; /* every claim becomes a pin */
        kernels[i]->state = JIT_READY;
    }
    link_newest(cache, module);
    cache->bytes += module->bytes;
    jit_module *excess = take_excess(cache, cache->budget, plan_bytes(context));
    lib_condition_broadcast(&cache->ready);
    lib_mutex_unlock(&cache->mutex);
    free_modules(context, excess);
    return DLC_OK;
}

bool jit_cache_over_budget(dlc_context *context) {
    jit_cache *cache = &context->cache;
    lib_mutex_lock(&cache->mutex);
    jit_module *excess = take_excess(cache, cache->budget, plan_bytes(context));
    bool over = cache->bytes + plan_bytes(context) > cache->budget;
    lib_mutex_unlock(&cache->mutex);
    free_modules(context, excess);
    return over;
}

void jit_cache_fail(dlc_context *context, jit_kernel *kernel, const lib_error *error) {
    jit_cache *cache = &context->cache;
    lib_arena_free(&kernel->arena); /* drop what the failed build allocated; no other thread reads it */
    lib_mutex_lock(&cache->mutex);
    kernel->error = *error;
    kernel->state = JIT_FAILED;
    unlink_kernel(cache, kernel);
    lib_condition_broadcast(&cache->ready);
    lib_mutex_unlock(&cache->mutex);
}
