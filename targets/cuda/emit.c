/* Loop IR to CUDA C: the seam. Emission comes here; until then a source says so, and NVRTC refuses it. */
#include "targets/cuda/cuda.h"

int cuda_phase_threads(const tir_kernel *kernel, int phase) {
    (void)kernel, (void)phase;
    return 1;
}

int64_t cuda_phase_shared(const tir_kernel *kernel, int phase) {
    (void)kernel, (void)phase;
    return 0;
}

void cuda_emit(const tir_kernel *kernel, int number, lib_text *text) {
    lib_text_format(text, "#error \"no CUDA C is emitted for kernel %d (%s) yet\"\n", number, kernel->name);
}
