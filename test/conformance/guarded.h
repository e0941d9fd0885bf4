/* Memory for tests whose end, or whose beginning, lies at an inaccessible page, so that an access outside is a fault
 * where it happens. */
#ifndef TEST_CONFORMANCE_GUARDED_H
#define TEST_CONFORMANCE_GUARDED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
    void *data;
    size_t size;
    char *pages;
    size_t mapped;
} guarded;

/* at_end: the byte after the last one is inaccessible; else the byte before the first. False when memory is refused. */
static inline bool guarded_new(guarded *memory, size_t size, bool at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
    *memory = (guarded){.size = size, .mapped = body + page};
    char *pages = mmap(NULL, memory->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    memory->pages = pages;
    char *accessible = at_end ? pages : pages + page;
    memory->data = at_end ? pages + body - size : accessible;
    return body == 0 || mprotect(accessible, body, PROT_READ | PROT_WRITE) == 0;
}

static inline void guarded_free(guarded *memory) {
    if (memory->pages) munmap(memory->pages, memory->mapped);
    *memory = (guarded){0};
}

#endif
