/* Weights: constants of 64 KiB and more, of which memory holds one copy if possible. A weight is identified by the address of its
 * bytes when a program was first given them, so that all programs of a context with the same bytes share it. It has row-major
 * bytes (owned by the host's graph, a file or the host, or computed by an init graph) and copies in kernels' layouts. Users of
 * each are counted: plans of the row-major bytes, programs of a packed copy. Unused bytes are released as soon as another copy is
 * in use, or else all but one copy, from which the others can be made: layouts are permutations with padding. Bytes of the host
 * and of files are not ours to release.
 *
 * In the graphs of a program, the address of the bytes is only a name of the weight; graph_constant_bytes resolves it to the
 * current address. Each weight has a mutex, held while its bytes are packed and unpacked, so that threads that need the same
 * layout wait. It is the innermost lock, inside a program's. */
#include "jit/internal.h"

/* ---- identity */

void jit_weights_open(dlc_context *context) {
    lib_mutex_init(&context->weights.mutex);
}

void jit_weights_close(dlc_context *context) {
    lib_mutex_destroy(&context->weights.mutex);
}

static jit_weight *self(graph_holder *holder) {
    return (jit_weight *)(void *)holder;
}

static jit_weight **chain_of(dlc_context *context, const void *name, size_t size) {
    return &context->weights.chains[lib_hash_mix((uint64_t)(uintptr_t)name, size) % JIT_WEIGHT_CHAINS];
}

static void keep_weight(graph_holder *holder) {
    jit_weights *weights = &self(holder)->context->weights;
    lib_mutex_lock(&weights->mutex);
    self(holder)->references++;
    lib_mutex_unlock(&weights->mutex);
}

static void count(dlc_context *context, int64_t bytes) {
    atomic_fetch_add_explicit(&context->constant_bytes, (uint64_t)bytes, memory_order_relaxed);
}

static void free_packed(dlc_context *context, jit_packed *packed) {
    const dlc_allocator *allocator = &context->allocator;
    count(context, -(int64_t)packed->size);
    lib_release_bytes(allocator, packed->bytes, packed->size, TIR_BUFFER_ALIGNMENT);
    lib_release(allocator, packed, sizeof *packed, 16);
}

/* Releases the row-major bytes. */
static void drop_whole(jit_weight *weight) {
    graph_bytes *shared = graph_bytes_of(weight->source);
    if (weight->whole && (weight->restored || shared)) count(weight->context, -(int64_t)weight->size);
    if (weight->whole && weight->restored)
        lib_release_bytes(&weight->context->allocator, (void *)(uintptr_t)weight->whole, weight->size,
                          TIR_BUFFER_ALIGNMENT);
    else if (weight->whole && shared)
        graph_bytes_drop(shared);
    weight->whole = NULL;
    weight->restored = false;
}

static void end_weight(jit_weight *weight) {
    const dlc_allocator *allocator = &weight->context->allocator;
    graph_bytes *shared = graph_bytes_of(weight->source);
    drop_whole(weight);
    if (weight->base) weight->base->holder.release(&weight->base->holder);
    for (jit_packed *packed = weight->packed, *next; packed; packed = next) {
        next = packed->next;
        free_packed(weight->context, packed);
    }
    if (shared)
        graph_bytes_forget(shared);
    else if (weight->source)
        weight->source->release(weight->source);
    lib_mutex_destroy(&weight->mutex);
    lib_release(allocator, weight, sizeof *weight, _Alignof(jit_weight));
}

static void release_weight(graph_holder *holder) {
    jit_weight *weight = self(holder);
    jit_weights *weights = &weight->context->weights;
    lib_mutex_lock(&weights->mutex);
    const bool last = --weight->references == 0;
    if (last && !weight->base) {
        jit_weight **at = chain_of(weight->context, weight->name, weight->size);
        while (*at != weight) at = &(*at)->next;
        *at = weight->next;
    }
    lib_mutex_unlock(&weights->mutex);
    if (last) end_weight(weight);
}

/* ---- row-major bytes and packed copies; the weight's mutex is held */

/* Can the row-major bytes be restored from the packed copy: does it hold all elements of the weight? */
static bool is_complete(const jit_weight *weight, const jit_packed *packed) {
    size_t bytes = packed->element;
    for (int d = 0; d < packed->layout.rank; d++) bytes *= (size_t)packed->shape[d];
    return bytes == weight->size;
}

static bool may_drop(const jit_weight *weight) {
    return weight->restored || graph_bytes_of(weight->source);
}

static bool is_whole_kept(const jit_weight *weight) {
    return weight->users || weight->stays || !may_drop(weight);
}

/* Releases unused bytes, keeping at least one copy. */
static void trim(jit_weight *weight) {
    bool there = weight->whole && is_whole_kept(weight);
    for (const jit_packed *p = weight->packed; p; p = p->next) there = there || (p->users && is_complete(weight, p));
    for (jit_packed **at = &weight->packed, *p; (p = *at);) {
        const bool only = !there && is_complete(weight, p);
        there = there || only;
        if (p->users || only) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free_packed(weight->context, p);
    }
    if (there && weight->whole && !is_whole_kept(weight)) drop_whole(weight);
}

static const jit_packed *complete_copy(const jit_weight *weight) {
    const jit_packed *packed = weight->packed;
    while (!is_complete(weight, packed)) packed = packed->next;
    return packed;
}

/* Unpacks a packed copy to row-major bytes or to another layout (`as`). False: out of memory. */
static bool unpack(const dlc_allocator *allocator, const jit_packed *packed, const jit_packing *as, char *to) {
    lib_scope scope;
    lib_arena work;
    lib_arena_init(&work, allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const jit_packing packing = jit_packing_of(&work, &packed->layout, packed->element, packed->shape);
        if (as)
            jit_repack(&work, &packing, packed->bytes, as, to);
        else
            jit_unpack(&packing, packed->bytes, to);
    }
    lib_arena_free(&work);
    return scope.error.status == DLC_OK;
}

/* Are row-major bytes available? If the shared bytes still exist, takes them. */
static bool has_whole(jit_weight *weight) {
    graph_bytes *shared = graph_bytes_of(weight->source);
    if (!weight->whole && shared && graph_bytes_take(shared)) { /* a graph still owns them */
        weight->whole = graph_bytes_data(shared);
        count(weight->context, (int64_t)weight->size);
    }
    return weight->whole != NULL;
}

/* Restores the row-major bytes. False: out of memory. */
static bool restore(jit_weight *weight) {
    const dlc_allocator *allocator = &weight->context->allocator;
    if (has_whole(weight)) return true;
    char *bytes = lib_allocate_bytes(allocator, weight->size, TIR_BUFFER_ALIGNMENT);
    if (!bytes) return false;
    if (!unpack(allocator, complete_copy(weight), NULL, bytes)) {
        lib_release_bytes(allocator, bytes, weight->size, TIR_BUFFER_ALIGNMENT);
        return false;
    }
    weight->whole = bytes;
    weight->restored = true;
    count(weight->context, (int64_t)weight->size);
    return true;
}

static bool is_packed_as(const jit_packed *packed, const jit_packing *packing) {
    return packed->element == packing->element && memcmp(packed->shape, packing->shape, sizeof packed->shape) == 0 &&
           tir_layout_equal(&packed->layout, &packing->layout);
}

/* Packs from the row-major bytes, or from another packed copy of the same tensor. False: out of memory. */
static bool fill(jit_weight *weight, const jit_packing *packing, char *to) {
    const jit_packed *other = weight->packed;
    while (other && (other->element != packing->element || !is_complete(weight, other) ||
                     memcmp(other->shape, packing->shape, sizeof other->shape) != 0))
        other = other->next;
    if (!has_whole(weight) && other) {
        if (packing->padded) memset(to, 0, packing->bytes);
        return unpack(&weight->context->allocator, other, packing, to);
    }
    if (!restore(weight)) return false;
    jit_pack_shared(weight->context, packing, weight->whole, may_drop(weight) ? NULL : weight->source, to);
    return true;
}

/* Tells the owner of row-major bytes that the weight cannot release (a file) that they are not needed for now: the owner may release their
 * pages, which a later read brings back. */
static void let_go(const jit_weight *weight) {
    if (weight->whole && !may_drop(weight) && weight->source && weight->source->idle)
        weight->source->idle(weight->source, weight->whole, weight->size);
}

/* Makes a packed copy and adds it to the weight; NULL: out of memory. */
static jit_packed *new_packed(jit_weight *weight, const jit_packing *packing) {
    const dlc_allocator *allocator = &weight->context->allocator;
    jit_packed *packed = lib_allocate_zeroed(allocator, sizeof *packed, 16);
    void *bytes = packed ? lib_allocate_bytes(allocator, packing->bytes, TIR_BUFFER_ALIGNMENT) : NULL;
    if (!bytes || !fill(weight, packing, bytes)) {
        lib_release_bytes(allocator, bytes, packing->bytes, TIR_BUFFER_ALIGNMENT);
        lib_release(allocator, packed, sizeof *packed, 16);
        return NULL;
    }
    *packed = (jit_packed){.next = weight->packed,
                           .element = packing->element,
                           .layout = packing->layout,
                           .bytes = bytes,
                           .size = packing->bytes};
    memcpy(packed->shape, packing->shape, sizeof packed->shape);
    weight->packed = packed;
    count(weight->context, (int64_t)packed->size);
    let_go(weight);
    return packed;
}

static const void *read_weight(graph_holder *holder, const void *bytes) {
    jit_weight *weight = self(holder);
    if (weight->base) return NULL; /* no graph has it as a constant */
    lib_mutex_lock(&weight->mutex);
    if (restore(weight)) weight->stays = true;
    const char *whole = weight->whole;
    lib_mutex_unlock(&weight->mutex);
    return whole ? whole + ((const char *)bytes - (const char *)weight->name) : NULL;
}

/* ---- programs */

jit_weight *jit_weight_of(const graph_constant *constant) {
    return constant->holder && constant->holder->release == release_weight ? self(constant->holder) : NULL;
}

static jit_weight *new_weight(dlc_context *context) {
    jit_weight *weight = lib_allocate_zeroed(&context->allocator, sizeof *weight, _Alignof(jit_weight));
    if (!weight) return NULL;
    weight->holder = (graph_holder){.keep = keep_weight, .release = release_weight, .read = read_weight};
    weight->context = context;
    weight->references = 1;
    lib_mutex_init(&weight->mutex);
    return weight;
}

/* Finds the weight of a constant, or creates it from the constant's bytes; adds a reference. NULL: out of memory. */
static jit_weight *find_weight(dlc_context *context, const graph_constant *constant) {
    jit_weights *weights = &context->weights;
    jit_weight **chain = chain_of(context, constant->bytes, constant->size), *weight;
    lib_mutex_lock(&weights->mutex);
    for (weight = *chain; weight; weight = weight->next)
        if (weight->name == constant->bytes && weight->size == constant->size && weight->source == constant->holder)
            break;
    if (weight) {
        weight->references++;
    } else if ((weight = new_weight(context))) {
        weight->source = constant->holder;
        weight->name = weight->whole = constant->bytes;
        weight->size = constant->size;
        if (weight->source) weight->source->keep(weight->source);
        if (graph_bytes_of(weight->source)) count(context, (int64_t)weight->size);
        weight->next = *chain;
        *chain = weight;
    }
    lib_mutex_unlock(&weights->mutex);
    return weight;
}

/* Makes the constant one of the program's weights. False: out of memory. */
static bool link_weight(dlc_program *program, graph_constant *constant, bool init) {
    const dlc_allocator *allocator = &program->context->allocator;
    jit_weight_link *link = lib_allocate_zeroed(allocator, sizeof *link, 16);
    jit_weight *weight = jit_weight_of(constant);
    if (link && weight)
        keep_weight(&weight->holder);
    else if (link)
        weight = find_weight(program->context, constant);
    if (!link || !weight) {
        lib_release(allocator, link, sizeof *link, 16);
        return false;
    }
    *link = (jit_weight_link){.next = program->weights, .weight = weight, .init = init};
    program->weights = link;
    constant->holder = &weight->holder;
    constant->borrowed = true;
    return true;
}

/* Copies a large constant, whose bytes belong to a graph's arena, to shared memory and makes it a weight. False: memory is refused. */
static bool share_bytes(dlc_program *program, graph_constant *constant, bool init) {
    graph_bytes *shared = graph_bytes_new(&program->context->allocator, constant->size);
    if (!shared) return false;
    memcpy(graph_bytes_data(shared), constant->bytes, constant->size);
    constant->bytes = graph_bytes_data(shared);
    constant->holder = graph_bytes_holder(shared);
    const bool linked = link_weight(program, constant, init);
    graph_bytes_holder(shared)->release(graph_bytes_holder(shared)); /* the weight has its own reference */
    return linked;
}

bool jit_adopt_constant(void *user, graph_constant *constant) {
    const jit_adoption *adoption = user;
    dlc_program *program = adoption->program;
    lib_scope *scope = program->arena.scope;
    const bool large = constant->size >= GRAPH_BYTES_LEAST;
    if (large) graph_constant_describe(scope, constant);
    if (!large && (graph_bytes_of(constant->holder) || jit_weight_of(constant))) {
        /* a part of the bytes, which need not retain the whole */
        constant->bytes = graph_constant_bytes(scope, constant);
        constant->holder = NULL;
        constant->borrowed = false;
    }
    if (!large) return false;
    const bool shares = constant->borrowed || constant->holder;
    if (!(shares ? link_weight : share_bytes)(program, constant, adoption->init))
        lib_raise(scope, DLC_OUT_OF_MEMORY, "out of memory: a constant of %zu bytes", constant->size);
    return true;
}

bool jit_weight_make(dlc_program *program, graph_constant *constant) {
    graph_bytes *shared = graph_bytes_new(&program->context->allocator, constant->size);
    if (!shared) return false;
    graph_constant made = {
        .bytes = graph_bytes_data(shared), .size = constant->size, .holder = graph_bytes_holder(shared)};
    const bool linked = link_weight(program, &made, false);
    graph_bytes_holder(shared)->release(graph_bytes_holder(shared)); /* the weight has its own reference */
    if (linked) *constant = made;
    return linked;
}

jit_weight *jit_weight_transpose(dlc_program *program, const graph_constant *constant, const jit_transposition *t) {
    const dlc_allocator *allocator = &program->context->allocator;
    jit_weight_link *link = lib_allocate_zeroed(allocator, sizeof *link, 16);
    jit_weight *weight = link ? new_weight(program->context) : NULL;
    if (!weight) {
        lib_release(allocator, link, sizeof *link, 16);
        return NULL;
    }
    weight->name = weight; /* an address that is nothing else's */
    weight->size = constant->size;
    weight->base = jit_weight_of(constant);
    weight->transposition = *t;
    keep_weight(&weight->base->holder);
    *link = (jit_weight_link){.next = program->weights, .weight = weight};
    program->weights = link;
    return weight;
}

static void release_links(dlc_program *program, bool all) {
    const dlc_allocator *allocator = &program->context->allocator;
    for (jit_weight_link **at = &program->weights, *link; (link = *at);) {
        if (!all && !link->init) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        release_weight(&link->weight->holder);
        lib_release(allocator, link, sizeof *link, 16);
    }
}

static void leave_packed(jit_weight *weight, jit_packed *packed) {
    lib_mutex_lock(&weight->mutex);
    packed->users--;
    trim(weight);
    lib_mutex_unlock(&weight->mutex);
}

static void release_packed(dlc_program *program) {
    for (jit_packed_use *use = program->packed, *next; use; use = next) {
        next = use->next;
        leave_packed(use->weight, use->packed);
        lib_release(&program->context->allocator, use, sizeof *use, 16);
    }
    program->packed = NULL;
}

void jit_weights_settle(dlc_program *program) {
    jit_device_constants_free(program); /* they are keyed by addresses of bytes about to be freed */
    release_packed(program);
    release_links(program, false);
}

void jit_weights_free(dlc_program *program) {
    jit_device_constants_free(program);
    release_packed(program);
    release_links(program, true);
}

/* ---- plans */

const char *jit_weight_whole(jit_build *build, jit_weight *weight) {
    jit_plan *plan = build->plan;
    if (weight->base)
        return jit_weight_packed(build, weight, &(jit_packing){.layout = jit_row_major(weight->transposition.rank)});
    jit_whole_use *use = LIB_NEW(&plan->arena, jit_whole_use);
    lib_mutex_lock(&weight->mutex);
    const bool there = restore(weight);
    const char *whole = weight->whole;
    if (there) weight->users++;
    if (there && weight->context->target->runtime) weight->stays = true; /* the device's copies are keyed by address */
    lib_mutex_unlock(&weight->mutex);
    if (!there)
        lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "out of memory: a constant of %zu bytes", weight->size);
    *use = (jit_whole_use){.next = plan->weights, .weight = weight};
    plan->weights = use;
    return whole;
}

void jit_weights_leave(const jit_plan *plan) {
    for (const jit_whole_use *use = plan->weights; use; use = use->next) {
        lib_mutex_lock(&use->weight->mutex);
        if (--use->weight->users == 0) let_go(use->weight);
        trim(use->weight);
        lib_mutex_unlock(&use->weight->mutex);
    }
}

/* Records that the program uses the copy, once. */
static void note_use(dlc_program *program, jit_packed_use *use) {
    lib_mutex_lock(&program->mutex);
    const jit_packed_use *known = program->packed;
    while (known && known->packed != use->packed) known = known->next;
    if (!known) {
        use->next = program->packed;
        program->packed = use;
    }
    lib_mutex_unlock(&program->mutex);
    if (!known) return;
    leave_packed(use->weight, use->packed);
    lib_release(&program->context->allocator, use, sizeof *use, 16);
}

/* The copy in that layout, as one that the program uses; NULL: there is none, and `make` is false. */
static void *use_packed(jit_build *build, jit_weight *weight, const jit_packing *packing, bool make) {
    const dlc_allocator *allocator = &build->program->context->allocator;
    jit_packed_use *use = lib_allocate_zeroed(allocator, sizeof *use, 16);
    jit_packed *packed = NULL;
    lib_mutex_lock(&weight->mutex);
    if (use) {
        packed = weight->packed;
        while (packed && !is_packed_as(packed, packing)) packed = packed->next;
        if (!packed && make) packed = new_packed(weight, packing);
        if (packed) packed->users++;
        if (packed || make) trim(weight);
    }
    lib_mutex_unlock(&weight->mutex);
    const bool refused = !use || (!packed && make);
    if (!packed) lib_release(allocator, use, sizeof *use, 16);
    if (refused)
        lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "out of memory: a packed constant of %zu bytes",
                  packing->bytes);
    if (!packed) return NULL;
    void *bytes = packed->bytes;
    *use = (jit_packed_use){.weight = weight, .packed = packed};
    note_use(build->program, use);
    return bytes;
}

void *jit_weight_packed(jit_build *build, jit_weight *weight, const jit_packing *outline) {
    jit_packing transposed;
    if (weight->base) {
        transposed = jit_transposed_packing(&weight->transposition, &outline->layout);
        outline = &transposed, weight = weight->base;
    }
    void *bytes = use_packed(build, weight, outline, false);
    if (bytes) return bytes;
    const jit_packing packing = jit_packing_of(build->work, &outline->layout, outline->element, outline->shape);
    return use_packed(build, weight, &packing, true);
}
