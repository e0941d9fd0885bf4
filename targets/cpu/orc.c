/* Objects -> images, through LLVM's ORC. An opened device has one session (an LLJIT), made when it first links: a host whose kernels all
 * come from a disk has none. A session has as many *linkers* as threads link at once: each is a dylib that sees no symbol of the process,
 * and a layer whose memory is a block of ours. Objects are closed (emit_image.c), so the linked block is the image: it is copied out, the
 * object's tracker is removed, and ORC keeps nothing of it.
 *
 * Objects are fresh from LLVM's code generator in this process: this file never handles bytes from elsewhere. */
#include "targets/cpu/image.h"

#include <stdio.h>

enum {
    BLOCK_KEPT = 1 << 20,      /* bytes: larger blocks are freed after each link */
    LINKS_TO_CLEAR_POOL = 1024 /* unused names in the session's pool are freed after so many links */
};

typedef struct linker {
    struct linker *next;
    struct cpu_orc *orc;
    LLVMOrcObjectLayerRef layer;
    LLVMOrcJITDylibRef dylib;
    /* Objects are linked in this block, of the host's memory; it begins at a multiple of CPU_IMAGE_ALIGNMENT. */
    char *allocated, *block;
    size_t allocated_bytes;
    /* The current link: where the image begins in the block; the image's capacity and bytes used so far; begin and end of its code, in
     * bytes from its start. */
    char *base;
    size_t room, used, code, code_end;
    /* Allocations for sections that exceed the block; a link that needs one is refused. */
    struct excess *excess;
    /* Result of the lookup, set by whichever thread runs the session's work. */
    lib_mutex lock;
    lib_condition told;
    bool is_told;
    /* address; 0: the lookup failed */
    uint64_t table;
    char message[256];
} linker;

typedef struct excess {
    struct excess *next;
    size_t size;
} excess;

struct cpu_orc {
    dlc_allocator allocator;
    /* the state of a session is unknown in a forked child */
    lib_process process;
    LLVMOrcLLJITRef jit;
    LLVMOrcExecutionSessionRef session;
    /* Guards the members below. */
    lib_mutex lock;
    linker *idle;
    unsigned linkers, links;
    /* the last error that the session reported, for the message of a link that fails */
    char cause[256];
};

static dlc_status fail_with(lib_error *error, LLVMErrorRef refused, const char *what) {
    char *text = LLVMGetErrorMessage(refused);
    lib_fail(error, DLC_COMPILE_FAILED, "LLVM: %s: %s", what, text);
    LLVMDisposeErrorMessage(text);
    return DLC_COMPILE_FAILED;
}

/* ---- memory: sections of one object, in the order of their requests */

/* Memory for a section that exceeds the block, because LLVM ends the process if a section gets none. Should not happen: the block has room
 * for any object, by its size. */
static uint8_t *allocate_excess(linker *l, size_t size, size_t alignment) {
    size_t all = sizeof(excess) + size + alignment;
    excess *more = lib_allocate_zeroed(&l->orc->allocator, all, _Alignof(excess));
    if (!more) return NULL;
    *more = (excess){l->excess, all};
    l->excess = more;
    uintptr_t at = (uintptr_t)(more + 1);
    return (uint8_t *)(more + 1) + (alignment - at % alignment) % alignment;
}

static uint8_t *take(linker *l, size_t size, size_t alignment) {
    if (alignment < 1) alignment = 1;
    size_t at = (l->used + alignment - 1) / alignment * alignment;
    if (alignment > CPU_IMAGE_ALIGNMENT || at > l->room || size > l->room - at)
        return allocate_excess(l, size, alignment);
    l->used = at + size;
    return (uint8_t *)l->base + at;
}

static uint8_t *take_code(void *opaque, uintptr_t size, unsigned alignment, unsigned id, const char *name) {
    (void)id, (void)name;
    linker *l = opaque;
    uint8_t *at = take(l, size, alignment);
    if (!at || l->excess) return at;
    if (!l->code) l->code = (size_t)(at - (uint8_t *)l->base);
    l->code_end = l->used;
    return at;
}

static uint8_t *take_data(void *opaque, uintptr_t size, unsigned alignment, unsigned id, const char *name,
                          LLVMBool constant) {
    (void)id, (void)name, (void)constant;
    return take(opaque, size, alignment);
}

static void *begin_object(void *opaque) {
    return opaque;
}

static void end_object(void *opaque) {
    (void)opaque;
}

static LLVMBool finish_object(void *opaque, char **message) {
    (void)opaque, (void)message;
    return 0;
}

/* Upper bound of the memory for an object of `size` bytes: its sections, stubs (each smaller than the relocation that needs it), gaps
 * (each smaller than its section's header), slots, and this library's header. */
static size_t room_for(size_t size) {
    return sizeof(cpu_image) + 2 * size + CPU_LIBRARY_COUNT * sizeof(void *) + CPU_IMAGE_ALIGNMENT;
}

static void release_block(linker *l) {
    if (l->allocated) lib_release(&l->orc->allocator, l->allocated, l->allocated_bytes, 64);
    l->allocated = l->block = NULL;
    l->allocated_bytes = 0;
}

/* Gives the linker a block for an object of `size` bytes, with one page more than the image needs, for the second base of link_again. */
static dlc_status prepare_block(linker *l, size_t size, lib_error *error) {
    l->room = room_for(size);
    size_t wanted = l->room + (size_t)2 * CPU_IMAGE_ALIGNMENT;
    if (l->allocated_bytes >= wanted) return DLC_OK;
    release_block(l);
    l->allocated = lib_allocate(&l->orc->allocator, wanted, 64);
    if (!l->allocated) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for %zu bytes of code", wanted);
    l->allocated_bytes = wanted;
    uintptr_t at = (uintptr_t)l->allocated, begin = (at + CPU_IMAGE_ALIGNMENT - 1) / CPU_IMAGE_ALIGNMENT;
    l->block = l->allocated + (begin * CPU_IMAGE_ALIGNMENT - at);
    return DLC_OK;
}

/* ---- sessions */

static void on_session_error(void *user, LLVMErrorRef reported) {
    struct cpu_orc *orc = user;
    char *text = LLVMGetErrorMessage(reported);
    lib_mutex_lock(&orc->lock);
    snprintf(orc->cause, sizeof orc->cause, "%s", text);
    lib_mutex_unlock(&orc->lock);
    LLVMDisposeErrorMessage(text);
}

/* Creates the LLJIT's own layer, which is never used: the simplest kind. */
static LLVMOrcObjectLayerRef create_unused_layer(void *user, LLVMOrcExecutionSessionRef session, const char *triple) {
    (void)user, (void)triple;
    return LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session);
}

static void dispose_linker(linker *l) {
    LLVMOrcDisposeObjectLayer(l->layer);
    release_block(l);
    lib_condition_destroy(&l->told);
    lib_mutex_destroy(&l->lock);
    lib_release(&l->orc->allocator, l, sizeof *l, _Alignof(linker));
}

/* Called when no thread links. The session ends before its linkers, whose layers it uses. */
static void dispose_session(struct cpu_orc *orc) {
    if (orc->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(orc->jit));
    for (linker *l = orc->idle, *next; l; l = next) {
        next = l->next;
        dispose_linker(l);
    }
    lib_mutex_destroy(&orc->lock);
    lib_process_forget(&orc->process);
    dlc_allocator allocator = orc->allocator;
    lib_release(&allocator, orc, sizeof *orc, _Alignof(struct cpu_orc));
}

static dlc_status create_session(const target_device *device, struct cpu_orc **result, lib_error *error) {
    LLVMTargetMachineRef machine;
    /* This target machine generates no code, and parsing features takes time. */
    LIB_TRY(cpu_make_machine("", "", &machine, error));
    struct cpu_orc *orc = lib_allocate_zeroed(&device->allocator, sizeof *orc, _Alignof(struct cpu_orc));
    if (!orc) {
        LLVMDisposeTargetMachine(machine);
        return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for the linker");
    }
    orc->allocator = device->allocator;
    orc->process = lib_process_here();
    lib_mutex_init(&orc->lock);
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                  LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
    LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, create_unused_layer, NULL);
    LLVMErrorRef refused = LLVMOrcCreateLLJIT(&orc->jit, builder);
    if (refused) {
        orc->jit = NULL;
        dispose_session(orc);
        return fail_with(error, refused, "no linker");
    }
    orc->session = LLVMOrcLLJITGetExecutionSession(orc->jit);
    LLVMOrcExecutionSessionSetErrorReporter(orc->session, on_session_error, orc);
    *result = orc;
    return DLC_OK;
}

/* Finds or makes the device's session; if two threads make one at once, the first is kept. A forked child never uses its parent's
 * session. */
static dlc_status find_session(target_device *device, struct cpu_orc **result, lib_error *error) {
    struct cpu_orc *there = atomic_load_explicit(&device->orc, memory_order_acquire);
    *result = there;
    if (there && lib_process_is_here(&there->process)) return DLC_OK;
    LIB_TRY(create_session(device, result, error));
    while (!atomic_compare_exchange_strong(&device->orc, &there, *result)) {
        if (!lib_process_is_here(&there->process)) continue;
        dispose_session(*result);
        *result = there;
        break;
    }
    return DLC_OK;
}

void cpu_orc_close(target_device *device) {
    struct cpu_orc *orc = atomic_load(&device->orc);
    if (orc && lib_process_is_here(&orc->process)) dispose_session(orc);
}

/* ---- linkers */

static dlc_status create_linker(struct cpu_orc *orc, unsigned number, linker **result, lib_error *error) {
    char name[32];
    linker *l = lib_allocate_zeroed(&orc->allocator, sizeof *l, _Alignof(linker));
    if (!l) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for a linker");
    l->orc = orc;
    lib_mutex_init(&l->lock);
    lib_condition_init(&l->told);
    snprintf(name, sizeof name, "linker%u", number);
    l->dylib = LLVMOrcExecutionSessionCreateBareJITDylib(orc->session, name);
    l->layer = LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
        orc->session, l, begin_object, end_object, take_code, take_data, finish_object, end_object);
    *result = l;
    return DLC_OK;
}

static dlc_status take_linker(struct cpu_orc *orc, linker **result, lib_error *error) {
    lib_mutex_lock(&orc->lock);
    linker *l = *result = orc->idle;
    unsigned number = orc->linkers;
    if (l)
        orc->idle = l->next;
    else
        orc->linkers++;
    lib_mutex_unlock(&orc->lock);
    return l ? DLC_OK : create_linker(orc, number, result, error);
}

static void give_linker(linker *l) {
    struct cpu_orc *orc = l->orc;
    if (l->allocated_bytes > BLOCK_KEPT) release_block(l);
    lib_mutex_lock(&orc->lock);
    l->next = orc->idle;
    orc->idle = l;
    bool clear = ++orc->links % LINKS_TO_CLEAR_POOL == 0;
    lib_mutex_unlock(&orc->lock);
    if (clear) LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(orc->session));
}

/* ---- one link */

static void on_result(LLVMErrorRef refused, LLVMOrcCSymbolMapPairs found, size_t count, void *user) {
    linker *l = user;
    char *text = refused ? LLVMGetErrorMessage(refused) : NULL;
    lib_mutex_lock(&l->lock);
    l->table = !refused && count == 1 ? found[0].Sym.Address : 0;
    snprintf(l->message, sizeof l->message, "%s", text ? text : "");
    l->is_told = true;
    lib_condition_broadcast(&l->told);
    lib_mutex_unlock(&l->lock);
    if (text) LLVMDisposeErrorMessage(text);
}

/* Looks up the table's symbol, which links the whole object. */
static void look_up(linker *l) {
    LLVMOrcExecutionSessionRef session = l->orc->session;
    LLVMOrcCLookupSetElement table = {LLVMOrcExecutionSessionIntern(session, CPU_TABLE_SYMBOL),
                                      LLVMOrcSymbolLookupFlagsRequiredSymbol};
    LLVMOrcCJITDylibSearchOrderElement where = {l->dylib, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
    l->is_told = false;
    LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindStatic, &where, 1, &table, 1, on_result, l);
    lib_mutex_lock(&l->lock);
    while (!l->is_told) lib_condition_wait(&l->told, &l->lock);
    lib_mutex_unlock(&l->lock);
}

static dlc_status check_link(linker *l, lib_error *error) {
    struct cpu_orc *orc = l->orc;
    if (l->table) {
        uint64_t base = (uint64_t)(uintptr_t)l->base;
        if (l->excess || !l->code || l->table < base + l->code_end || l->table >= base + l->used)
            return lib_fail(error, DLC_INTERNAL, "the linker did not keep to an image's order: code %zu to %zu of %zu",
                            l->code, l->code_end, l->used);
        return DLC_OK;
    }
    lib_mutex_lock(&orc->lock);
    lib_fail(error, DLC_COMPILE_FAILED, "LLVM cannot link: %s%s%s", l->message, orc->cause[0] ? ": " : "", orc->cause);
    orc->cause[0] = 0;
    lib_mutex_unlock(&orc->lock);
    return DLC_COMPILE_FAILED;
}

/* Takes ownership of the buffer. Leaves the image at l->base, l->used bytes of it. */
static dlc_status link_at(linker *l, char *base, LLVMMemoryBufferRef buffer, lib_error *error) {
    l->base = base;
    l->used = sizeof(cpu_image);
    l->code = l->code_end = 0;
    memset(base, 0, l->room); /* gaps are part of the image */
    LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(l->dylib);
    LLVMErrorRef refused = LLVMOrcObjectLayerAddObjectFileWithRT(l->layer, tracker, buffer);
    dlc_status status = refused ? fail_with(error, refused, "an object is refused") : DLC_OK;
    if (status == DLC_OK) {
        look_up(l);
        status = check_link(l, error);
    }
    LLVMConsumeError(LLVMOrcResourceTrackerRemove(tracker));
    LLVMOrcReleaseResourceTracker(tracker);
    while (l->excess) {
        excess *more = l->excess;
        l->excess = more->next;
        lib_release(&l->orc->allocator, more, more->size, _Alignof(excess));
    }
    if (status != DLC_OK) return status;
    *(cpu_image *)(void *)base = (cpu_image){.magic = CPU_IMAGE_MAGIC,
                                             .version = CPU_IMAGE_VERSION,
                                             .architecture = CPU_IMAGE_ARCHITECTURE,
                                             .size = l->used,
                                             .code = l->code,
                                             .code_end = l->code_end,
                                             .table = l->table - (uint64_t)(uintptr_t)base};
    return DLC_OK;
}

/* Links a copy of the object at another base, and checks that the image has the same bytes. */
static dlc_status link_again(linker *l, LLVMMemoryBufferRef again, const target_object *image, lib_error *error) {
    LIB_TRY(link_at(l, l->block + CPU_IMAGE_ALIGNMENT, again, error));
    if (l->used == image->size && memcmp(l->base, image->bytes, image->size) == 0) return DLC_OK;
    return lib_fail(error, DLC_INTERNAL, "an image depends on where it is linked");
}

static dlc_status link_with(linker *l, target_device *device, LLVMMemoryBufferRef buffer, target_object *image,
                            lib_error *error) {
    size_t size = LLVMGetBufferSize(buffer);
    dlc_status status = prepare_block(l, size, error);
    if (status != DLC_OK) {
        LLVMDisposeMemoryBuffer(buffer);
        return status;
    }
    LLVMMemoryBufferRef again = NULL;
    if (device->verify) again = LLVMCreateMemoryBufferWithMemoryRangeCopy(LLVMGetBufferStart(buffer), size, "again");
    status = link_at(l, l->block, buffer, error);
    if (status == DLC_OK && !cpu_allocate_object(device, l->used, image))
        status = lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for %zu bytes of code", l->used);
    if (status == DLC_OK) memcpy(image->owner, l->base, l->used);
    if (status == DLC_OK && again)
        status = link_again(l, again, image, error);
    else if (again)
        LLVMDisposeMemoryBuffer(again);
    if (status != DLC_OK) cpu_release_object(device, image);
    return status;
}

dlc_status cpu_link(target_device *device, LLVMMemoryBufferRef buffer, target_object *image, lib_error *error) {
    struct cpu_orc *orc;
    linker *l = NULL;
    *image = (target_object){0};
    dlc_status status = find_session(device, &orc, error);
    if (status == DLC_OK) status = take_linker(orc, &l, error);
    if (status != DLC_OK) {
        LLVMDisposeMemoryBuffer(buffer);
        return status;
    }
    status = link_with(l, device, buffer, image, error);
    give_linker(l);
    return status;
}
