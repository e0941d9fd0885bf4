/* Declarations shared by the files of the cuda target. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "targets/cuda/api.h"
#include "targets/target.h"

#include <sys/types.h>

enum {
    CUDA_OLDEST_DRIVER = 11020, /* 1000*major + 10*minor, like all versions here */
    CUDA_PARAMETER_LIMIT = 512, /* most parameters of a kernel function: 4 KiB */
    CUDA_STAGING_BYTES = 1 << 20,
    CUDA_STAGING_KEPT = 8
};

/* ---- library.c: shared libraries, found at run time. Never closed: the driver keeps threads, and the host may use them after us.
 * Loading a loaded library is only a look-up, so nothing here is kept between devices. */
dlc_status cuda_load_driver(cuda_driver *driver, int *version, lib_error *error);
/* Loads the NVRTC that DLC_NVRTC names; else the newest whose code a driver of this version (0: any) can be expected to accept; if all are
 * newer, the oldest of them. *version: as CUDA_OLDEST_DRIVER. */
dlc_status cuda_load_nvrtc(int driver_version, cuda_nvrtc *nvrtc, int *version, lib_error *error);

/* Returns DLC_OUT_OF_MEMORY or DLC_DEVICE_ERROR; the message has the driver's name and text of `result`. */
dlc_status cuda_fail(const cuda_driver *driver, CUresult result, const char *function, lib_error *error);

/* ---- nvrtc.c: source to code */

typedef struct cuda_compiler {
    dlc_allocator allocator;
    lib_log log;
    cuda_nvrtc nvrtc;
    int version;
    /* 10*major + minor */
    int architecture;
    /* PTX for the driver's own compiler, because NVRTC lacks the device's architecture, or is newer than the driver */
    bool ptx;
} cuda_compiler;

typedef struct cuda_code {
    /* cubin, or PTX with its final 0 */
    char *bytes;
    size_t size;
    /* NVRTC's log, never NULL */
    char *log;
    size_t log_size;
} cuda_code;

/* Finds NVRTC and chooses an architecture for devices of this compute capability. */
dlc_status cuda_compiler_open(cuda_compiler *compiler, const dlc_allocator *allocator, const lib_log *log,
                              int driver_version, int compute_capability, lib_error *error);
/* May be called from any number of threads at once. `verbose`: the log contains the resource usage of each function (cuda_usage). After a
 * failure *code is empty. */
dlc_status cuda_compile_source(const cuda_compiler *compiler, const char *source, bool verbose, cuda_code *code,
                               lib_error *error);
void cuda_code_release(const cuda_compiler *compiler, cuda_code *code);

/* Resource usage of one function, as the assembler reports it. */
typedef struct cuda_usage {
    int registers;
    /* bytes */
    int64_t stack, spill_stores, spill_loads, shared;
} cuda_usage;
bool cuda_find_usage(const char *log, const char *function,
                     cuda_usage *usage); /* false: the function is not in the log */

/* ---- machine.c */

/* Facts of a device; and, for tests and cross compilation, of a named kind of device ("sm_80": A100, "sm_90": H200, "sm_86", "sm_89",
 * "sm_120"), false: the name is unknown. */
dlc_status cuda_machine_of_device(const cuda_driver *driver, CUdevice device, tir_machine *machine, lib_error *error);
bool cuda_machine_of_name(const char *architecture, tir_machine *machine);

/* ---- device.c */

struct target_device {
    dlc_allocator allocator;
    lib_log log;
    cuda_driver driver;
    cuda_compiler compiler;
    int driver_version, ordinal;
    CUdevice device;
    /* the primary context, shared with the host's own CUDA code */
    CUcontext context;
    /* NULL: memory comes from cuMemAlloc */
    CUmemoryPool pool;
    /* process that opened the device: a forked child cannot use it */
    lib_process process;
    tir_machine machine;
    /* guards the members below */
    lib_mutex mutex;
    /* pinned memory not in use by a stream, CUDA_STAGING_BYTES each */
    char *staging[CUDA_STAGING_KEPT];
    int staging_count;
};

dlc_status cuda_open(const target_options *options, target_device **device, tir_machine *machine, lib_error *error);
void cuda_close(target_device *device);
/* Makes the device's context current for the calling thread until cuda_leave, which restores the host's. Pairs nest. */
dlc_status cuda_enter(target_device *device, lib_error *error);
void cuda_leave(target_device *device);

#define CUDA_TRY(device_, function_, arguments_, error_)                                                          \
    do {                                                                                                          \
        CUresult cuda_result_ = (device_)->driver.function_ arguments_;                                           \
        if (cuda_result_ != CUDA_SUCCESS) return cuda_fail(&(device_)->driver, cuda_result_, #function_, error_); \
    } while (0)

/* ---- stream.c: streams, memory, copies */
extern const target_runtime cuda_runtime;
/* Launches a function, or records the launch between begin_batch and end_batch; every parameter has 8 bytes. */
dlc_status cuda_stream_launch(target_stream *stream, CUfunction function, unsigned blocks, unsigned threads,
                              unsigned shared, void **parameters, int count, lib_error *error);

/* ---- batch.c: launches as one CUDA graph */
/* Starts or reuses `batch` (NULL: none yet); NULL: launch one by one. */
target_batch *cuda_batch_begin(target_device *device, target_batch *batch);
/* Adds a launch. False: out of memory; cuda_batch_end must launch those added so far before this one is launched. */
bool cuda_batch_add(target_batch *batch, CUfunction function, unsigned blocks, unsigned threads, unsigned shared,
                    void *const *parameters, int count);
dlc_status cuda_batch_end(target_batch *batch, CUstream stream, lib_error *error);
void cuda_batch_release(target_device *device, target_batch *batch);

/* ---- rules.c: an analytic schedule, see targets/target.h */
void cuda_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule);

/* ---- emit.c: loop IR to CUDA C. Raises in text's scope.
 *
 * Phase P of kernel number N of a module is  extern "C" __global__ void kN_pP(...)  with these parameters, used or not:
 *     the ARG buffers in order, as pointers to their elements; the kernel's parameters, long long each;
 *     char *workspace; char *local; long long local_stride; long long iteration; long long first
 * Block b runs task first + b, with local scratch at local + b * local_stride; blocks are of cuda_phase_threads threads, all in x. */
void cuda_emit(const tir_kernel *kernel, int number, lib_text *text);
void cuda_emit_prelude(lib_text *text); /* the helper functions that kernels call */
int cuda_phase_threads(const tir_kernel *kernel, int phase);
int64_t cuda_phase_shared(const tir_kernel *kernel, int phase); /* bytes of dynamic shared memory */

/* ---- compile.c, load.c: the contract of targets/target.h.
 *
 * An object is a cuda_object_header, a cuda_object_kernel for each kernel, a cuda_object_phase for each of their phases in turn, and
 * from `image` on NVRTC's output. */
#define CUDA_OBJECT_MAGIC UINT64_C(0x6a626f6475636c64)
typedef struct cuda_object_header {
    /* offset and bytes of the image */
    uint64_t magic, image, size;
    int64_t kernels;
} cuda_object_header;
typedef struct cuda_object_kernel {
    int32_t arguments, params, phases;
    /* 1: the kernel has local scratch, so that a launch has at most as many tasks as there are slots */
    int32_t local;
} cuda_object_kernel;
typedef struct cuda_object_phase {
    /* threads and bytes of dynamic shared memory of a block */
    int32_t threads, shared;
} cuda_object_phase;

lib_hash128 cuda_code_identity(const target_device *device);
dlc_status cuda_compile(target_device *device, const target_budget *budget, int count, const tir_kernel *const *kernels,
                        target_object *object, lib_error *error);
void cuda_release_object(target_device *device, target_object *object);
dlc_status cuda_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                     lib_error *error);
/* The source for NVRTC: each kernel's loop IR as a comment, then its functions. Raises in text's scope. */
void cuda_source(int count, const tir_kernel *const *kernels, lib_text *text);
dlc_status cuda_load(target_device *device, const target_object *object, int count, const char *const *names,
                     target_module **module, lib_error *error);
int cuda_phases(const target_module *module, int kernel);
target_phase cuda_phase(const target_module *module, int kernel, int phase);
void cuda_unload(target_device *device, target_module *module);
size_t cuda_module_bytes(const target_module *module);

#endif
