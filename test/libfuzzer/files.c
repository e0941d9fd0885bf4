/* Bytes of a .safetensors, .npy or .npz file: listed, and every tensor read to its last byte. */
#include <dlc/dlc.h>
#include <dlc/files.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/files_data.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dlc_context *context;

/* DLC_SEEDS names a folder: seeds are written there. */
static void write_seed(const char *name, const unsigned char *bytes, size_t size) {
    const char *folder = getenv("DLC_SEEDS");
    char path[4096];
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, size, file);
    fclose(file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "interp";
#define SEED(bytes) write_seed(#bytes, bytes, sizeof bytes)
    SEED(npy_f32), SEED(npy_fortran_big), SEED(npy_scalar), SEED(npy_records);
    SEED(npz_packed), SEED(npz_stored), SEED(safetensors_three);
    return dlc_context_create(&options, &context) == DLC_OK ? 0 : 1;
}

static void read_all(const DLTensor *tensor) {
    size_t bytes = ((size_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    for (int d = 0; d < tensor->ndim; d++) bytes *= (size_t)tensor->shape[d];
    volatile const char *at = (const char *)tensor->data + tensor->byte_offset;
    if (!bytes) return;
    for (size_t i = 0; i < bytes; i += 64) (void)at[i];
    (void)at[bytes - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dlc_file *file;
    if (dlc_file_parse(context, data, size, &file) != DLC_OK) return 0;
    dlc_file_note(file, "format");
    for (int i = 0; i < dlc_file_count(file); i++) {
        DLManagedTensorVersioned *tensor;
        if (dlc_file_tensor(file, dlc_file_name(file, i), &tensor) != DLC_OK) continue;
        read_all(&tensor->dl_tensor);
        tensor->deleter(tensor);
    }
    dlc_file_destroy(file);
    return 0;
}
