/* Files of named tensors: .npy and .npz (NumPy's formats), .safetensors. Reading indexes a file's tensors; data that can be used in
 * place are not copied. Files are untrusted: sizes, offsets and names are checked before
 * they are used. The public functions are in jit/files.c. */
#ifndef LIB_TENSOR_FILE_H
#define LIB_TENSOR_FILE_H

#include "lib/lib.h"

/* The part of an archive that holds a member's bytes. */
typedef struct lib_packed {
    /* the tensor is a member of an archive */
    bool is_packed;
    /* in the image, deflated or stored */
    const unsigned char *bytes;
    /* number of these bytes */
    size_t size;
    bool deflated;
    /* of the unpacked member: header and data */
    uint32_t crc;
} lib_packed;

typedef struct lib_stored {
    const char *name;
    /* why it cannot be read (an element type that libdlc does not have, ...); NULL: it can */
    const char *fault;
    dlc_dtype dtype;
    int rank;
    int64_t shape[DLC_MAX_RANK];
    /* the first axis is innermost */
    bool fortran;
    /* big endian */
    bool swapped;
    /* address in the image; NULL: packed */
    const unsigned char *bytes;
    /* of the data in bytes */
    size_t size;
    /* bytes before the data in its member */
    size_t header;
    /* for members of archives */
    lib_packed packed;
} lib_stored;

/* safetensors' __metadata__ */
typedef struct lib_note {
    const char *key, *value;
} lib_note;

typedef struct lib_indexed_name {
    const char *name;
    uint32_t index;
} lib_indexed_name;

typedef struct lib_tensor_file {
    /* the whole file */
    const unsigned char *image;
    size_t size;
    lib_vec(lib_stored) tensors;
    lib_vec(lib_note) notes;
    /* [tensors.count], [notes.count], sorted. Not a hash map: a file may choose names of equal hashes. */
    lib_indexed_name *tensors_by_name, *notes_by_key;
} lib_tensor_file;

/* The index of the tensor of that name, or of the note with that key; UINT32_MAX: none. */
uint32_t lib_tensor_file_find(const lib_tensor_file *file, const char *name);
uint32_t lib_tensor_file_find_note(const lib_tensor_file *file, const char *key);

/* Limit on the bytes of a .npy header, sixteen times the maximum of version 1; a longer one is refused. */
#define LIB_NPY_HEADER_MAX (1 << 20)

/* Detects the image's format by its first bytes and indexes its tensors. Raises DLC_PARSE_ERROR. */
void lib_tensor_file_parse(lib_arena *arena, lib_tensor_file *file);
/* Index the tensors of an image of one format. */
void lib_npy_parse(lib_arena *arena, lib_tensor_file *file);
void lib_npz_parse(lib_arena *arena, lib_tensor_file *file);
void lib_safetensors_parse(lib_arena *arena, lib_tensor_file *file);

/* The number of bytes before the data of a .npy file that begins with these bytes; 0: these are too few, *wanted are needed.
 * Raises if they are no .npy file. */
size_t lib_npy_header_size(lib_arena *arena, const unsigned char *bytes, size_t size, size_t *wanted);
/* Parses type and shape from a complete header. An element type or layout that libdlc does not support is recorded as
 * the tensor's fault and reported when that tensor is asked for; malformed text raises. */
void lib_npy_header(lib_arena *arena, const unsigned char *header, size_t size, lib_stored *stored);
/* Header of a .npy file for compact data; raises DLC_UNSUPPORTED for element types that NumPy has no name for. */
char *lib_npy_header_print(lib_arena *arena, const DLTensor *tensor, size_t *size);

/* Unpacks a member's data into `to` (stored.size bytes) and compares the checksum. Raises DLC_PARSE_ERROR. Thread-safe. */
void lib_npz_unpack(lib_arena *arena, const lib_stored *stored, unsigned char *to);
/* Compares the checksum of a member that is stored uncompressed in the image. */
void lib_npz_check(lib_arena *arena, const lib_stored *stored);

/* A new file that replaces `path` only when it is complete. `write` raises or returns; the tensors are compact. */
typedef struct lib_new_file {
    int descriptor;
    const char *path, *temporary;
    uint64_t position;
} lib_new_file;
void lib_file_write_whole(lib_arena *arena, const char *path, void (*write)(lib_arena *, lib_new_file *, void *),
                          void *argument);
void lib_file_append(lib_arena *arena, lib_new_file *file, const void *bytes, size_t size);
bool lib_file_seek(lib_new_file *file, uint64_t position); /* within the bytes written so far; false: refused */

typedef struct lib_named_tensors {
    int count;
    const char *const *names;
    const DLTensor *const *tensors;
    int note_count;
    /* [note_count] */
    const char *const *keys, *const *notes;
    bool compress;
} lib_named_tensors;
void lib_npy_write(lib_arena *arena, lib_new_file *file, const DLTensor *tensor);
void lib_npz_write(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all);
/* Does the format have the tensor's element type, and whole bytes for its elements? */
bool lib_safetensors_holds(const DLTensor *tensor);
void lib_safetensors_write(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all);

#endif
