/* Files of the kernel cache and of fusion decisions. */
#ifndef JIT_DISK_H
#define JIT_DISK_H

#include "jit/internal.h"

/* stored.c: serialises kernel descriptions. Reading validates everything. */
typedef struct jit_stored {
    const char *description, *object;
    size_t description_size, object_size;
} jit_stored;

/* Appends everything that a run needs to know of the kernel. Raises. */
void jit_describe_stored(lib_text *text, const jit_kernel *kernel);
/* Fills all of the kernel except its functions; the caller has opened a scope of its arena. Raises DLC_INVALID_ARGUMENT. */
void jit_read_description(jit_kernel *kernel, const char *bytes, size_t size);

/* disk.c: a file */
#define JIT_DISK_MAGIC UINT64_C(0x316c656e72656b64)
typedef struct jit_disk_header {
    uint64_t magic;
    /* of the whole file, with zeros here */
    lib_hash128 checksum;
    /* build of the library, target's code generator */
    lib_hash128 code;
    jit_key key;
    /* sizes of the two parts that follow the header; the object starts at a multiple of 64 */
    uint64_t description_size, object_size;
} jit_disk_header;

/* Checksum of a file of `size` bytes, which must cover at least the header. */
lib_hash128 jit_disk_checksum(const char *bytes, size_t size);
/* Points into the file's parts. false: the file is incomplete, or was not written by this build for `key`. */
bool jit_disk_parse(const char *bytes, size_t size, lib_hash128 code, const jit_key *key, jit_stored *stored);

/* disk.c: the folder */
bool jit_disk_is_on(const dlc_context *context);
/* Loads and publishes the kernel of a claimed request; false: it must be built. */
bool jit_disk_find(jit_build *build, jit_request *request);
/* The file contents for a kernel that was just built, in `arena`, whose scope is open. */
lib_text jit_disk_entry(dlc_context *context, lib_arena *arena, const jit_kernel *kernel, const target_object *object);
void jit_disk_write(dlc_context *context, const jit_key *key, const lib_text *entry);

/* disk.c: a decision of fusion (predict.c), the whole of a file */
#define JIT_DISK_DECISION UINT64_C(0x316e6f6973696365)
typedef struct jit_disk_decision {
    uint64_t magic;
    /* of the file, with zeros here */
    lib_hash128 checksum;
    /* as in a kernel's header */
    lib_hash128 code;
    lib_hash128 question;
    uint64_t undone;
} jit_disk_decision;

/* false: not found. *undone comes from a file, and the caller must validate it. */
bool jit_disk_recall(dlc_context *context, const lib_hash128 *question, uint32_t *undone);
void jit_disk_record(dlc_context *context, const lib_hash128 *question, uint32_t undone);

#endif
