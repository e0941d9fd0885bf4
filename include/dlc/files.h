/* Files of tensors: .safetensors, and NumPy's .npy and .npz. Included beside <dlc/dlc.h>, whose conventions hold.
 *
 *   dlc_file *weights;
 *   if (dlc_file_open(ctx, "model.safetensors", NULL, &weights)) fprintf(stderr, "%s\n", dlc_error_message(ctx));
 *   dlc_value w = dlc_file_constant(g, weights, "encoder.weight");       used where it lies in the file
 *
 * Formats: safetensors as its specification has it (no holes, nothing twice); .npy versions 1 to 3; .npz, stored or deflated, up
 * to 64-bit sizes. Element types: those of <dlc/types.h>. A tensor of another type, or of more than 12 axes, does not spoil a file:
 * it is listed, and reading it says what is the matter. Anything malformed is DLC_PARSE_ERROR, with what and where; no size or
 * offset of a file is believed before it is checked. */
#ifndef DLC_FILES_H
#define DLC_FILES_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_file dlc_file; /* an open file; used by any number of threads */

typedef struct dlc_file_options {
    size_t struct_size;
    /* Read the whole file into memory. Otherwise it is mapped: nothing is read before it is used, and the file must not
     * be made shorter or changed while it is open, which the system would answer with a signal (SIGBUS) */
    bool read;
} dlc_file_options;
#define DLC_FILE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_file_options)

/* Which format it has is seen by its first bytes, not by its name. Errors: DLC_NOT_FOUND with the system's reason,
 * DLC_PARSE_ERROR, DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_file_open(dlc_context *context, const char *path, const dlc_file_options *options,
                                 dlc_file **file);
/* The same for a file's bytes in memory. They are not copied: they must stay as they are as long as the file, and the tensors,
 * graphs and programs made of it. */
DLC_API dlc_status dlc_file_parse(dlc_context *context, const void *bytes, size_t size, dlc_file **file);
/* Tensors that dlc_file_tensor gave, graphs with constants of dlc_file_constant and their programs keep what they show. */
DLC_API void dlc_file_destroy(dlc_file *file);

/* The tensors, in the file's order. The name of an .npy file's only tensor is ""; members of .npz files are named without ".npy". */
DLC_API int dlc_file_count(const dlc_file *file);
DLC_API const char *dlc_file_name(const dlc_file *file, int index); /* NULL: no such index */
/* A string of safetensors' __metadata__; NULL: none of that key. */
DLC_API const char *dlc_file_note(const dlc_file *file, const char *key);

/* The tensor of that name: rank, shape and element type as in the file, in host memory, read-only. It shows the file's bytes
 * where they lie so that they can be used (arrays in Fortran order by strides), else a copy: what was packed, of the other byte
 * order, or not aligned to its elements; a copy is made once per file and tensor. Checksums of .npz members are compared then. The
 * caller calls (*tensor)->deleter(*tensor) when done; that may be after dlc_file_destroy.
 * Errors: DLC_NOT_FOUND, DLC_UNSUPPORTED (element type, rank, packing), DLC_PARSE_ERROR (damage), DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_file_tensor(dlc_file *file, const char *name, DLManagedTensorVersioned **tensor);
/* The tensor of that name as a constant of the graph. Borrowed from the file unless its axes are in Fortran order: then the graph
 * has a copy. Mistakes are recorded in the graph. */
DLC_API dlc_value dlc_file_constant(dlc_graph *graph, dlc_file *file, const char *name);

/* Writers. Tensors in host memory, any strides. The file appears under its name when it is whole: what was there before stays until
 * then, and after any failure. A symbolic link is followed, permissions stay, what is no regular file is refused, and so is a name so
 * long that the 15 bytes of a temporary one beside it find no room. Equal tensors give equal bytes. names[count], tensors[count]; names are UTF-8 and differ.
 * Errors: DLC_INVALID_ARGUMENT, DLC_UNSUPPORTED (neither has integers of 4 bits; NumPy has no bf16 and no 8-bit floats, safetensors
 * no fnuz; an .npz file takes 65,534 tensors), DLC_NOT_FOUND (the system refuses; with its reason), DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_file_write_npy(dlc_context *context, const char *path, const DLTensor *tensor);
/* compress: deflated; otherwise stored, each tensor at a multiple of 64 bytes, so that dlc_file_tensor shows it in place. */
DLC_API dlc_status dlc_file_write_npz(dlc_context *context, const char *path, int count, const char *const *names,
                                      const DLTensor *const *tensors, bool compress);
/* keys[note_count], notes[note_count]: strings for __metadata__. */
DLC_API dlc_status dlc_file_write_safetensors(dlc_context *context, const char *path, int count,
                                              const char *const *names, const DLTensor *const *tensors, int note_count,
                                              const char *const *keys, const char *const *notes);

#ifdef __cplusplus
}
#endif
#endif
