/* The kernel cache's files, between the files that build kernels. */
#ifndef JIT_DISK_H
#define JIT_DISK_H

#include "jit/internal.h"

/* stored.c: a kernel as bytes, and back. What is read is checked, not believed. */
typedef struct jit_stored {
    const char *description, *object;
    size_t description_size, object_size;
} jit_stored;

/* Appends everything that a run needs to know of the kernel. Raises. */
void jit_describe_stored(lib_text *text, const jit_kernel *kernel);
/* Fills the kernel, but for its functions; in the scope of its arena. Raises DLC_INVALID_ARGUMENT. */
void jit_read_description(jit_kernel *kernel, const char *bytes, size_t size);

/* disk.c */
bool jit_disk_is_on(const dlc_context *context);
/* The kernel of a claimed request, published; false: it is to be built. */
bool jit_disk_find(jit_build *build, jit_request *request);
/* The bytes of a file for a kernel that was just built, in `arena`, whose scope is open. */
lib_text jit_disk_entry(dlc_context *context, lib_arena *arena, const jit_kernel *kernel, const target_object *object);
void jit_disk_write(dlc_context *context, const jit_key *key, const lib_text *entry);

#endif
