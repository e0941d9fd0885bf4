/* Host files as bytes in memory: mapped, or read. */
#ifndef JIT_MAPPED_H
#define JIT_MAPPED_H

#include "lib/lib.h"

typedef struct jit_mapped {
    const unsigned char *bytes;
    size_t size;
    /* NULL: the bytes belong to the caller or to the arena. */
    void *mapping;
} jit_mapped;

/* Maps a regular file; with `read`, or if it cannot be mapped, reads it into the arena. Raises DLC_NOT_FOUND with the reason; callers
 * put the path before it. */
void jit_mapped_open(jit_mapped *file, lib_arena *arena, const char *path, bool read);
/* The same for a file beneath `folder`, by a relative path, which messages name: no component of the path may be a symbolic link or "..", so that a path that
 * comes from an untrusted file cannot lead out of the folder. The folder's own path may have links. */
void jit_mapped_open_beneath(jit_mapped *file, lib_arena *arena, const char *folder, const char *path, bool read);
/* Unloads the mapped pages that lie completely in these bytes from this process; a later read faults them in again. */
void jit_mapped_let_go(const jit_mapped *file, const void *bytes, size_t size);
void jit_mapped_close(jit_mapped *file);

#endif
