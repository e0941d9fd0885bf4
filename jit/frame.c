/* Frames: the memory of runs. Each plan keeps a few; the thread that set a slot's busy flag owns its frame. The arena of a small
 * plan is part of its frames. The arenas of large plans come from a few blocks that the context keeps for all plans: otherwise
 * programs with many shapes would hold one arena for each of them. */
#include "jit/jit.h"

void *jit_place_pointer(const jit_place *place, const jit_frame *frame, char *const *inputs, char *const *outputs) {
    switch (place->kind) {
    case JIT_PLACE_INPUT: return inputs[place->number] + place->offset;
    case JIT_PLACE_OUTPUT: return outputs[place->number] + place->offset;
    case JIT_PLACE_ARENA: return frame->memory + place->offset;
    case JIT_PLACE_CONSTANT: return place->pointer;
    case JIT_PLACE_NONE: break;
    }
    return NULL;
}

/* ---- allocations, counted */

static char *allocate(dlc_context *context, size_t size) {
    char *memory = lib_allocate_bytes(&context->allocator, size, TIR_BUFFER_ALIGNMENT);
    if (!memory) return NULL;
    atomic_fetch_add_explicit(&context->arena_bytes, size, memory_order_relaxed);
    return memory;
}

static void release(dlc_context *context, char *memory, size_t size) {
    if (memory) atomic_fetch_sub_explicit(&context->arena_bytes, size, memory_order_relaxed);
    lib_release_bytes(&context->allocator, memory, size, TIR_BUFFER_ALIGNMENT);
}

/* ---- shared arenas */

static bool claim(atomic_bool *busy) {
    return !atomic_load_explicit(busy, memory_order_relaxed) &&
           !atomic_exchange_explicit(busy, true, memory_order_acquire);
}

static void disclaim(atomic_bool *busy) {
    atomic_store_explicit(busy, false, memory_order_release);
}

/* Replaces the memory of a block that this thread owns. Allocates more than needed, since growing sizes tend to keep growing. False:
 * memory is refused. */
static bool enlarge(dlc_context *context, jit_block *block, size_t size) {
    size = (size + size / 8 + JIT_ARENA_SHARED - 1) / JIT_ARENA_SHARED * JIT_ARENA_SHARED;
    release(context, block->memory, block->size);
    block->memory = allocate(context, size);
    block->size = block->memory ? size : 0;
    block->present = 0;
    return block->memory != NULL;
}

/* The first free block that is large enough, else the first free one, enlarged. NULL: out of memory, or *all_busy. */
static jit_block *take_block(dlc_context *context, size_t size, bool *all_busy) {
    jit_block *small = NULL;
    for (int i = 0; i < JIT_BLOCKS_KEPT; i++) {
        jit_block *block = &context->blocks[i];
        if (!claim(&block->busy)) continue;
        if (block->size >= size) {
            if (small) disclaim(&small->busy);
            return block;
        }
        if (small)
            disclaim(&block->busy);
        else
            small = block;
    }
    *all_busy = !small;
    if (!small || enlarge(context, small, size)) return small;
    disclaim(&small->busy);
    return NULL;
}

void jit_blocks_free(dlc_context *context) {
    for (int i = 0; i < JIT_BLOCKS_KEPT; i++) release(context, context->blocks[i].memory, context->blocks[i].size);
}

/* ---- pointers into the arena */

void jit_frame_set_memory(const jit_plan *plan, jit_frame *frame, char *memory) {
    frame->memory = memory;
    for (int s = 0; s < plan->slot_count; s++)
        if (plan->slots[s].kind == JIT_PLACE_ARENA) frame->pointers[s] = memory + plan->slots[s].offset;
    for (int c = 0; c < plan->call_count; c++) {
        const jit_call *call = &plan->calls[c];
        frame->arguments[c].workspace = call->workspace >= 0 ? memory + call->workspace : NULL;
        frame->arguments[c].local = call->local >= 0 ? memory + call->local : NULL;
    }
}

static bool take_arena(const jit_plan *plan, jit_frame *frame) {
    bool all_busy = false;
    frame->block = take_block(plan->context, (size_t)plan->arena_bytes, &all_busy);
    char *memory = frame->block ? frame->block->memory : NULL;
    if (all_busy) memory = allocate(plan->context, (size_t)plan->arena_bytes);
    if (!memory) return false;
    if (memory != frame->memory) jit_frame_set_memory(plan, frame, memory);
    return true;
}

static __attribute__((noinline)) void give_arena(const jit_plan *plan, jit_frame *frame) {
    if (frame->block) {
        disclaim(&frame->block->busy);
        return;
    }
    release(plan->context, frame->memory, (size_t)plan->arena_bytes);
    frame->memory = NULL;
}

/* ---- frames */

static size_t add_part(size_t *total, size_t size) {
    size_t at = *total;
    *total += (size + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
    return at;
}

jit_frame *jit_frame_new(const jit_plan *plan) {
    size_t limit = (size_t)plan->control_limit, total = 0;
    add_part(&total, plan->shares_arena ? 0 : (size_t)plan->arena_bytes);
    size_t self = add_part(&total, sizeof(jit_frame));
    size_t pointers = add_part(&total, (size_t)plan->slot_count * sizeof(void *));
    size_t arguments = add_part(&total, (size_t)plan->call_count * sizeof(target_arguments));
    size_t tensors = add_part(&total, limit * sizeof(DLTensor));
    size_t operands = add_part(&total, (limit + 1) * sizeof(char *));
    const target_runtime *runtime = plan->context->target->runtime;
    size_t count = runtime && runtime->begin_batch && !plan->context->no_batches ? (size_t)plan->step_count : 0;
    size_t batches = add_part(&total, count * sizeof(jit_batch));
    char *base = allocate(plan->context, total);
    if (!base) return NULL;
    jit_frame *frame = (jit_frame *)(void *)(base + self);
    *frame = (jit_frame){.pointers = (void **)(void *)(base + pointers),
                         .arguments = (target_arguments *)(void *)(base + arguments),
                         .tensors = (DLTensor *)(void *)(base + tensors),
                         .operands = (char **)(void *)(base + operands),
                         .batches = count ? (jit_batch *)(void *)(base + batches) : NULL,
                         .base = base,
                         .total = total,
                         .slot = -1};
    if (count) memset(frame->batches, 0, count * sizeof *frame->batches);
    for (int s = 0; s < plan->slot_count; s++)
        frame->pointers[s] = plan->slots[s].kind == JIT_PLACE_CONSTANT ? plan->slots[s].pointer : NULL;
    for (int c = 0; c < plan->call_count; c++)
        frame->arguments[c] = (target_arguments){.buffers = frame->pointers + plan->calls[c].first_slot,
                                                 .params = plan->calls[c].params,
                                                 .local_stride = plan->calls[c].local_stride};
    if (!plan->shares_arena) jit_frame_set_memory(plan, frame, base);
    return frame;
}

void jit_frame_free(const jit_plan *plan, jit_frame *frame) {
    if (frame && frame->batches) jit_device_forget(plan, frame);
    if (frame) release(plan->context, frame->base, frame->total);
}

/* Allocates the frame of a slot that this thread owns. */
static __attribute__((noinline, cold)) jit_frame *fill_slot(jit_plan *plan, int i) {
    jit_frame_slot *slot = &plan->frames[i];
    slot->frame = jit_frame_new(plan);
    if (slot->frame)
        slot->frame->slot = i;
    else
        disclaim(&slot->busy);
    return slot->frame;
}

jit_frame *jit_frame_take_bare(jit_plan *plan) {
    for (int i = 0; i < JIT_FRAMES_KEPT; i++) {
        jit_frame_slot *slot = &plan->frames[i];
        if (claim(&slot->busy)) return slot->frame ? slot->frame : fill_slot(plan, i);
    }
    return jit_frame_new(plan);
}

void jit_frame_give_bare(jit_plan *plan, jit_frame *frame) {
    if (frame->slot >= 0)
        disclaim(&plan->frames[frame->slot].busy);
    else
        jit_frame_free(plan, frame);
}

static __attribute__((noinline)) jit_frame *with_arena(jit_plan *plan, jit_frame *frame) {
    if (!frame || take_arena(plan, frame)) return frame;
    jit_frame_give_bare(plan, frame);
    return NULL;
}

jit_frame *jit_frame_take(jit_plan *plan) {
    jit_frame *frame = jit_frame_take_bare(plan);
    return plan->shares_arena ? with_arena(plan, frame) : frame;
}

size_t jit_touch(char *memory, size_t from, size_t size, jit_how *how) {
    enum { PAGE = 4096, PART = 2 << 20, LARGE = 8 << 20 };
    size_t at = from;
    for (; size >= LARGE && at < size; at += PAGE) {
        if (at % PART == 0 && jit_is_over(how)) break;
        memory[at] = 0;
    }
    return at;
}

void jit_frame_touch(const jit_plan *plan, jit_frame *frame, jit_how *how) {
    if (!plan->shares_arena) return;
    size_t present = frame->block ? frame->block->present : 0;
    present = jit_touch(frame->memory, present, (size_t)plan->arena_bytes, how);
    if (frame->block) frame->block->present = present;
}

void jit_frame_give(jit_plan *plan, jit_frame *frame) {
    if (plan->shares_arena) give_arena(plan, frame);
    jit_frame_give_bare(plan, frame);
}
