/* The cuda target: the interface of this folder to the rest of the library. */
#include "targets/cuda/cuda.h"

const target target_cuda = {
    .name = "cuda",
    .runtime = &cuda_runtime,
    .open = cuda_open,
    .close = cuda_close,
    .schedule = cuda_schedule,
    .code_identity = cuda_code_identity,
    .compile = cuda_compile,
    .release_object = cuda_release_object,
    .dump = cuda_dump,
    .load = cuda_load,
    .phases = cuda_phases,
    .phase = cuda_phase,
    .unload = cuda_unload,
    .module_bytes = cuda_module_bytes,
};
