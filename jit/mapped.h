/* Host files as bytes in memory: mapped, or read. */
#ifndef JIT_MAPPED_H
#define JIT_MAPPED_H

#include "lib/lib.h"

typedef struct jit_mapped {
    const unsigned char *bytes;
    size_t size;
    /* NULL: the bytes are somebody else's, or the arena's. */
    void *mapping;
} jit_mapped;

/* A regular file's bytes, mapped, or, with `read` and where it cannot be mapped, read into the arena. Raises DLC_NOT_FOUND with path and
 * reason. */
void jit_mapped_open(jit_mapped *file, lib_arena *arena, const char *path, bool read);
/* Pages of a mapping that lie in these bytes alone leave this process; a read brings them back. */
void jit_mapped_let_go(const jit_mapped *file, const void *bytes, size_t size);
void jit_mapped_close(jit_mapped *file);

#endif
