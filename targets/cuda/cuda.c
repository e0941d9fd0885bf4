/* The cuda target: what the rest of the library sees of this folder. */
#include "targets/cuda/cuda.h"

/* Until there are rules: every stage a loop nest of its own. */
static void cuda_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)machine, (void)threads, (void)region, (void)schedule;
}

const target target_cuda = {
    .name = "cuda",
    .runtime = &cuda_runtime,
    .open = cuda_open,
    .close = cuda_close,
    .schedule = cuda_schedule,
    .compile = cuda_compile,
    .release_object = cuda_release_object,
    .dump = cuda_dump,
    .load = cuda_load,
    .phase = cuda_phase,
    .unload = cuda_unload,
    .module_bytes = cuda_module_bytes,
};
