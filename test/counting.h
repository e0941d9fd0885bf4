/* An allocator for tests: refuses the `refuse`-th allocation (0: none) and counts what is outstanding. */
#ifndef TEST_COUNTING_H
#define TEST_COUNTING_H

#include "lib/lib.h"

typedef struct counting {
    int64_t seen, refuse, outstanding;
} counting;

static inline void *counting_allocate(void *user, size_t size, size_t alignment) {
    counting *c = user;
    if (++c->seen == c->refuse) return NULL;
    c->outstanding++;
    return lib_allocate(&lib_libc_allocator, size, alignment);
}

static inline void counting_release(void *user, void *pointer, size_t size, size_t alignment) {
    counting *c = user;
    c->outstanding--;
    lib_release(&lib_libc_allocator, pointer, size, alignment);
}

#endif
