/* Files of tensors: .safetensors, and NumPy's .npy and .npz. Included in addition to <dlc/dlc.h>, whose conventions hold.
 *
 *   dlc_file *weights;
 *   if (dlc_file_open(ctx, "model.safetensors", NULL, &weights)) fprintf(stderr, "%s\n", dlc_error_message(ctx));
 *   dlc_value w = dlc_file_constant(g, weights, "encoder.weight");       used in place in the file
 *
 * Formats: safetensors as specified (no holes, no overlaps); .npy versions 1 to 3; .npz, stored or deflated, up
 * to 64-bit sizes. Element types: those of <dlc/types.h>. A tensor of another type, or of more than 12 axes, does not invalidate the file:
 * it is listed, and reading it reports the reason. Malformed input is DLC_PARSE_ERROR, with what and where; every size and
 * offset of a file is checked before it is used. */
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
     * be truncated or changed while it is open (the system would raise SIGBUS) */
    bool read;
} dlc_file_options;
#define DLC_FILE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_file_options)

/* The format is detected by the first bytes, not by the file's name. Errors: DLC_NOT_FOUND with the system's reason,
 * DLC_PARSE_ERROR, DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_file_open(dlc_context *context, const char *path, const dlc_file_options *options,
                                 dlc_file **file);
/* The same for a file's bytes in memory. They are not copied: they must stay unchanged as long as the file, and the tensors,
 * graphs and programs made from it. */
DLC_API dlc_status dlc_file_parse(dlc_context *context, const void *bytes, size_t size, dlc_file **file);
/* Tensors of dlc_file_tensor, graphs with constants of dlc_file_constant and their programs keep the bytes that they use. */
DLC_API void dlc_file_destroy(dlc_file *file);

/* The tensors, in the file's order. The name of an .npy file's only tensor is ""; members of .npz files are named without ".npy". */
DLC_API int dlc_file_count(const dlc_file *file);
DLC_API const char *dlc_file_name(const dlc_file *file, int index); /* NULL: no such index */
/* A string of safetensors' __metadata__; NULL: no such key. */
DLC_API const char *dlc_file_note(const dlc_file *file, const char *key);

/* The tensor of that name: rank, shape and element type as in the file, in host memory, read-only. It shows the file's bytes
 * in place if they can be used so (arrays in Fortran order by strides), else a copy: compressed data, the other byte
 * order, or data not aligned to its elements; a copy is made once per file and tensor. Checksums of .npz members are compared then. The
 * caller calls (*tensor)->deleter(*tensor) when done, also after dlc_file_destroy.
 * Errors: DLC_NOT_FOUND, DLC_UNSUPPORTED (element type, rank, packing), DLC_PARSE_ERROR (damage), DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_file_tensor(dlc_file *file, const char *name, DLManagedTensorVersioned **tensor);
/* The tensor of that name as a constant of the graph. Borrowed from the file unless its axes are in Fortran order: then the graph
 * has a copy. Mistakes are recorded in the graph. */
DLC_API dlc_value dlc_file_constant(dlc_graph *graph, dlc_file *file, const char *name);

/* Writers. Tensors in host memory, any strides. The file appears under its name when it is complete: an existing file stays until
 * then, and after any failure. A symbolic link is followed and permissions are kept; a path that is no regular file is refused, as is a
 * name so long that the 15 more bytes of the temporary file's name do not fit. Equal tensors give equal bytes. names[count],
 * tensors[count]; names are UTF-8 and differ.
 * Errors: DLC_INVALID_ARGUMENT, DLC_UNSUPPORTED (neither format has integers of 4 and 2 bits; NumPy has no bf16 and no floats of 8 and 4 bits,
 * safetensors no fnuz, and of f4e2m1 only even counts; an .npz file takes 65,534 tensors), DLC_NOT_FOUND (the system refuses; with its reason), DLC_OUT_OF_MEMORY. */
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
