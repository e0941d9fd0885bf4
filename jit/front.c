/* If sizes stay parameters of a program's kernels, most of binding does not depend on the sizes: the bound and simplified graph, its regions and
 * their keys (the *front*). Each program keeps its last front, for other sizes of the same ranges. A bind takes the front for
 * itself and puts it back; a bind that finds none makes a new one. */
#include "jit/internal.h"

static void release(dlc_context *context, jit_front *front) {
    if (!front) return;
    atomic_fetch_sub_explicit(&context->plan_bytes, front->counted_bytes, memory_order_relaxed);
    lib_arena_free(&front->arena);
    lib_release(&context->allocator, front, sizeof *front, _Alignof(jit_front));
}

static bool has_key(const jit_front *front, const int64_t *key, size_t count) {
    return front->key_count == count && memcmp(front->key, key, count * sizeof *key) == 0;
}

void jit_front_take(jit_build *build, const int64_t *key, size_t count) {
    dlc_program *program = build->program;
    dlc_context *context = program->context;
    jit_front *front = atomic_exchange(&program->front, NULL);
    if (front && !has_key(front, key, count)) {
        release(context, front);
        front = NULL;
    }
    if (!front) {
        front = lib_allocate_zeroed(&context->allocator, sizeof *front, _Alignof(jit_front));
        if (!front) return;
        lib_arena_init(&front->arena, &context->allocator, NULL);
    }
    build->front = front; /* owned by the build from here on, also on failure */
    front->arena.scope = build->work->scope;
    front->arena.limit = program->options.budget_bytes;
    front->arena.watch = build->work->watch;
    if (front->key) return;
    front->key = lib_arena_copy(&front->arena, key, count * sizeof *key);
    front->key_count = count;
}

void jit_front_give(jit_build *build, bool good) {
    dlc_program *program = build->program;
    jit_front *front = build->front;
    build->front = NULL;
    if (!front) return;
    front->arena.scope = NULL;
    front->arena.watch = NULL;
    atomic_fetch_sub_explicit(&program->context->plan_bytes, front->counted_bytes, memory_order_relaxed);
    front->counted_bytes = sizeof *front + front->arena.total;
    atomic_fetch_add_explicit(&program->context->plan_bytes, front->counted_bytes, memory_order_relaxed);
    if (good) front = atomic_exchange(&program->front, front);
    release(program->context, front);
}

void jit_front_free(dlc_program *program) {
    release(program->context, atomic_exchange(&program->front, NULL));
}

static graph_id argument_of(const graph_region *region, uint32_t a) {
    return a < region->input_count ? region->inputs[a] : region->outputs[a - region->input_count];
}

static bool is_aligned_alike(const jit_build *build, const graph_region *region, const jit_front_known *known) {
    for (uint32_t a = 0; a < region->input_count + region->output_count; a++)
        if (known->alignments[a] != jit_alignment(build, argument_of(region, a), 1)) return false;
    return true;
}

static void make_known(jit_build *build, const graph_region *region, int updates, jit_front_known *known) {
    lib_arena *arena = &build->front->arena;
    uint32_t count = region->input_count + region->output_count;
    if (!known->alignments) known->alignments = LIB_NEW_ARRAY(arena, int32_t, count + 1);
    for (uint32_t a = 0; a < count; a++) known->alignments[a] = jit_alignment(build, argument_of(region, a), 1);
    known->computation = jit_region_build(build, arena, region);
    known->updates = updates;
    known->work = tir_work_of(arena, known->computation);
    known->key = jit_region_key(build->program, arena, known->computation, &known->own);
}

tir_region *jit_front_region(jit_build *build, const graph_region *region, jit_key *key, jit_own *own,
                             const tir_work **work) {
    jit_front *front = build->front;
    uint32_t r = (uint32_t)(region - build->regions.data);
    if (!front) { /* without a front, the region is valid only until the next one */
        lib_arena_reset(build->passing);
        tir_region *computation = jit_region_build(build, build->passing, region);
        *key = jit_region_key(build->program, build->work, computation, own);
        *work = tir_work_of(build->passing, computation);
        return computation;
    }
    if (!front->known) front->known = LIB_NEW_ARRAY(&front->arena, jit_front_known, build->regions.count + 1);
    jit_front_known *known = &front->known[r];
    if (!known->computation || known->updates != build->updates[r] || !is_aligned_alike(build, region, known))
        make_known(build, region, build->updates[r], known);
    *key = known->key;
    *own = known->own;
    *work = known->work;
    return known->computation;
}
