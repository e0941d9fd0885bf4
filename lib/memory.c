/* Memory: the host's allocator behind two functions, checked size arithmetic, and the arena that holds all compiler
 * objects. An arena never returns NULL: a refusal raises in its scope. */
#include "lib/lib.h"

#include <stdlib.h>
#include <sys/mman.h>

/* The alignment that malloc guarantees, and that of every plain arena allocation. */
enum { PLAIN_ALIGNMENT = 16 };

static void *libc_allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    if (alignment <= PLAIN_ALIGNMENT) return malloc(size);
    void *pointer = NULL;
    return posix_memalign(&pointer, alignment, size) == 0 ? pointer : NULL;
}

static void libc_release(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    free(pointer);
}

const dlc_allocator lib_libc_allocator = {libc_allocate, libc_release, NULL};

void *lib_allocate(const dlc_allocator *allocator, size_t size, size_t alignment) {
    return allocator->allocate(allocator->user, size, alignment);
}

void *lib_allocate_zeroed(const dlc_allocator *allocator, size_t size, size_t alignment) {
    void *pointer = allocator->allocate(allocator->user, size, alignment);
    if (pointer && size) memset(pointer, 0, size);
    return pointer;
}

void lib_release(const dlc_allocator *allocator, void *pointer, size_t size, size_t alignment) {
    if (pointer) allocator->release(allocator->user, pointer, size, alignment);
}

/* ---- bytes of tensors */

enum { HUGE_PAGE = 2 << 20 };

static bool wants_huge_pages(size_t size) {
    return size >= HUGE_PAGE;
}

void *lib_allocate_bytes(const dlc_allocator *allocator, size_t size, size_t alignment) {
    if (!wants_huge_pages(size)) return lib_allocate(allocator, size, alignment);
    void *pointer = lib_allocate(allocator, size, alignment < HUGE_PAGE ? HUGE_PAGE : alignment);
#ifdef MADV_HUGEPAGE
    if (pointer) madvise(pointer, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a refusal changes nothing */
#endif
    return pointer;
}

void lib_release_bytes(const dlc_allocator *allocator, void *pointer, size_t size, size_t alignment) {
    lib_release(allocator, pointer, size, wants_huge_pages(size) && alignment < HUGE_PAGE ? HUGE_PAGE : alignment);
}

bool lib_size_multiply(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

bool lib_size_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* ---- arena -------------------------------------------------------------------------------------- */

typedef struct lib_arena_chunk {
    struct lib_arena_chunk *next;
    /* including this header */
    size_t size;
} lib_arena_chunk;

enum { CHUNK_HEADER = 16, CHUNK_FIRST = 4096, CHUNK_LARGEST = 1 << 20, WATCH_EVERY = 1024 /* allocations */ };
enum { SPARE_LEAST = 1 << 16, SPARE_MOST = 8 << 20 }; /* bytes: least chunk that a reset keeps, most of all */
_Static_assert(sizeof(lib_arena_chunk) <= CHUNK_HEADER, "the header must not disturb the alignment of what follows");

void lib_arena_init(lib_arena *arena, const dlc_allocator *allocator, lib_scope *scope) {
    *arena = (lib_arena){.allocator = allocator, .scope = scope};
}

typedef struct lib_arena_owned {
    struct lib_arena_owned *next;
    void (*release)(void *object);
    void *object;
} lib_arena_owned;

static void release_owned(lib_arena *arena) {
    for (const lib_arena_owned *owned = arena->owned; owned; owned = owned->next) owned->release(owned->object);
    arena->owned = NULL;
}

static void release_chunks(lib_arena *arena, lib_arena_chunk *chunk) {
    for (lib_arena_chunk *next; chunk; chunk = next) {
        next = chunk->next;
        arena->total -= chunk->size;
        lib_release_bytes(arena->allocator, chunk, chunk->size, PLAIN_ALIGNMENT);
    }
}

void lib_arena_free(lib_arena *arena) {
    release_owned(arena);
    release_chunks(arena, arena->chunks);
    release_chunks(arena, arena->spare);
    lib_arena_init(arena, arena->allocator, arena->scope);
}

/* The largest chunk becomes the current one. Fresh memory costs a page fault for every 4 KiB, a third of the time to lower a kernel:
 * other large chunks are kept, the largest first. */
void lib_arena_reset(lib_arena *arena) {
    lib_arena_chunk *lists[] = {arena->chunks, arena->spare}, *largest = arena->chunks, *unused = NULL;
    size_t kept;
    release_owned(arena);
    if (!largest) return;
    for (int i = 0; i < 2; i++)
        for (lib_arena_chunk *chunk = lists[i]; chunk; chunk = chunk->next)
            if (chunk->size > largest->size) largest = chunk;
    kept = largest->size < SPARE_MOST ? largest->size : SPARE_MOST;
    arena->spare = NULL;
    for (int i = 0; i < 2; i++)
        for (lib_arena_chunk *chunk = lists[i], *next; chunk; chunk = next) {
            lib_arena_chunk **at = &unused;
            next = chunk->next;
            if (chunk == largest) continue;
            if (chunk->size >= SPARE_LEAST && chunk->size <= SPARE_MOST - kept) {
                kept += chunk->size;
                for (at = &arena->spare; *at && (*at)->size > chunk->size;) at = &(*at)->next;
            }
            chunk->next = *at;
            *at = chunk;
        }
    release_chunks(arena, unused);
    largest->next = NULL;
    arena->chunks = largest;
    arena->next = (char *)largest + CHUNK_HEADER;
    arena->end = (char *)largest + largest->size;
}

_Noreturn static void refuse(lib_arena *arena, size_t size) {
    lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: %zu bytes refused after %zu bytes in this arena", size,
              arena->total);
}

void lib_arena_ask(lib_arena *arena) {
    lib_error error;
    arena->taken = 0;
    if (arena->watch && arena->watch->is_over(arena->watch->user, &error)) lib_raise_error(arena->scope, &error);
}

/* A spare chunk of at least `size` bytes: the smallest or the largest of these; NULL: none. */
static lib_arena_chunk *take_spare(lib_arena *arena, size_t size, bool smallest) {
    lib_arena_chunk **at = &arena->spare, *chunk = *at;
    if (!chunk || chunk->size < size) return NULL;
    while (smallest && chunk->next && chunk->next->size >= size) {
        at = &chunk->next;
        chunk = *at;
    }
    *at = chunk->next;
    return chunk;
}

static void release_spare(lib_arena *arena) {
    release_chunks(arena, arena->spare);
    arena->spare = NULL;
}

static bool is_beyond_limit(const lib_arena *arena, size_t size) {
    return arena->limit && size > arena->limit - (arena->total < arena->limit ? arena->total : arena->limit);
}

static lib_arena_chunk *new_chunk(lib_arena *arena, size_t size) {
    if (is_beyond_limit(arena, size)) release_spare(arena);
    if (is_beyond_limit(arena, size))
        lib_raise(arena->scope, DLC_BUDGET_EXCEEDED, "more memory is needed than %s = %zu allows",
                  arena->limit_name ? arena->limit_name : "budget_bytes", arena->limit);
    lib_arena_chunk *chunk = lib_allocate_bytes(arena->allocator, size, PLAIN_ALIGNMENT);
    if (!chunk && arena->spare) {
        release_spare(arena);
        chunk = lib_allocate_bytes(arena->allocator, size, PLAIN_ALIGNMENT);
    }
    if (!chunk) refuse(arena, size);
    chunk->size = size;
    arena->total += size;
    return chunk;
}

/* Allocates `size` bytes (a multiple of 16), for which the current chunk is too small, from a spare or new chunk. */
static void *take_from_new_chunk(lib_arena *arena, size_t size) {
    size_t room = arena->total < CHUNK_FIRST ? CHUNK_FIRST : arena->total; /* doubles the arena */
    if (room > CHUNK_LARGEST) room = CHUNK_LARGEST;
    size_t need;
    if (!lib_size_add(size, CHUNK_HEADER, &need)) refuse(arena, size);
    if (arena->chunks && need > room / 4) { /* a separate chunk after the current one, which stays in use */
        lib_arena_chunk *chunk = take_spare(arena, need, true);
        if (!chunk) chunk = new_chunk(arena, need);
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
        return (char *)chunk + CHUNK_HEADER;
    }
    lib_arena_chunk *chunk = take_spare(arena, need, false);
    if (!chunk) chunk = new_chunk(arena, need > room ? need : room);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->next = (char *)chunk + CHUNK_HEADER + size;
    arena->end = (char *)chunk + chunk->size;
    return (char *)chunk + CHUNK_HEADER;
}

/* Size of an allocation of `size` bytes. */
static size_t rounded(size_t size) {
    return size ? (size + PLAIN_ALIGNMENT - 1) & ~(size_t)(PLAIN_ALIGNMENT - 1) : PLAIN_ALIGNMENT;
}

static void *take_raw(lib_arena *arena, size_t size) {
    if (size > SIZE_MAX - PLAIN_ALIGNMENT) refuse(arena, size);
    if (arena->watch && ++arena->taken == WATCH_EVERY) lib_arena_ask(arena);
    size = rounded(size);
    if (size > (size_t)(arena->end - arena->next)) return take_from_new_chunk(arena, size);
    void *pointer = arena->next;
    arena->next += size;
    return pointer;
}

void *lib_arena_take(lib_arena *arena, size_t size) {
    return memset(take_raw(arena, size), 0, size);
}

void *lib_arena_take_aligned(lib_arena *arena, size_t size, size_t alignment) {
    if (alignment <= PLAIN_ALIGNMENT) return lib_arena_take(arena, size);
    size_t padded;
    if (!lib_size_add(size, alignment - PLAIN_ALIGNMENT, &padded)) refuse(arena, size);
    char *raw = take_raw(arena, padded);
    size_t skip = (size_t)(-(uintptr_t)raw & (alignment - 1));
    return memset(raw + skip, 0, size);
}

void *lib_arena_array(lib_arena *arena, size_t count, size_t element_size) {
    size_t size;
    if (!lib_size_multiply(count, element_size, &size)) refuse(arena, SIZE_MAX);
    return lib_arena_take(arena, size);
}

void *lib_arena_copy(lib_arena *arena, const void *bytes, size_t size) {
    void *copy = take_raw(arena, size);
    if (size) memcpy(copy, bytes, size);
    return copy;
}

void *lib_arena_extend(lib_arena *arena, void *old, size_t used, size_t old_size, size_t size) {
    if (size > SIZE_MAX - PLAIN_ALIGNMENT) refuse(arena, size);
    if (old && (char *)old + rounded(old_size) == arena->next && size >= old_size &&
        rounded(size) - rounded(old_size) <= (size_t)(arena->end - arena->next)) {
        arena->next += rounded(size) - rounded(old_size);
        return old;
    }
    void *grown = take_raw(arena, size);
    if (used) memcpy(grown, old, used);
    return grown;
}

void lib_arena_own(lib_arena *arena, void (*release)(void *object), void *object) {
    lib_scope *outer = arena->scope, scope; /* the object must be released before the caller's scope is left */
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        lib_arena_owned *owned = LIB_NEW(arena, lib_arena_owned);
        *owned = (lib_arena_owned){.next = arena->owned, .release = release, .object = object};
        arena->owned = owned;
    }
    arena->scope = outer;
    if (scope.error.status == DLC_OK) return;
    release(object);
    lib_raise_error(outer, &scope.error);
}

char *lib_arena_string(lib_arena *arena, const char *string) {
    return string ? lib_arena_copy(arena, string, strlen(string) + 1) : NULL;
}

char *lib_arena_format(lib_arena *arena, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    return text.data;
}
