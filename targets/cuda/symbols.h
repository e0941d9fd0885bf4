/* The symbols of the CUDA driver and of NVRTC that libdlc uses, by exported name: rows only, no types, so that the real headers can be
 * compared with them (test/cuda/declarations.c). A row: whether libdlc works without it (`optional`: NULL with an older driver), the type
 * of its result, its name, its parameters. */
#ifndef CUDA_SYMBOLS_H
#define CUDA_SYMBOLS_H

#define CUDA_DRIVER_TABLE(X)                                                                                          \
    X(required, CUresult, cuInit, (unsigned int flags))                                                               \
    X(required, CUresult, cuDriverGetVersion, (int *version))                                                         \
    X(required, CUresult, cuGetErrorName, (CUresult error, const char **text))                                        \
    X(required, CUresult, cuGetErrorString, (CUresult error, const char **text))                                      \
    X(required, CUresult, cuDeviceGet, (CUdevice * device, int ordinal))                                              \
    X(required, CUresult, cuDeviceGetCount, (int *count))                                                             \
    X(required, CUresult, cuDeviceGetName, (char *name, int length, CUdevice device))                                 \
    X(required, CUresult, cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice device))              \
    X(required, CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                           \
    X(required, CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                            \
    X(required, CUresult, cuCtxPushCurrent_v2, (CUcontext context))                                                   \
    X(required, CUresult, cuCtxPopCurrent_v2, (CUcontext * context))                                                  \
    X(required, CUresult, cuCtxSynchronize, (void))                                                                   \
    X(required, CUresult, cuStreamCreate, (CUstream * stream, unsigned int flags))                                    \
    X(required, CUresult, cuStreamDestroy_v2, (CUstream stream))                                                      \
    X(required, CUresult, cuStreamSynchronize, (CUstream stream))                                                     \
    X(required, CUresult, cuStreamGetCtx, (CUstream stream, CUcontext * context))                                     \
    X(required, CUresult, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                    \
    X(required, CUresult, cuEventCreate, (CUevent * event, unsigned int flags))                                       \
    X(required, CUresult, cuEventDestroy_v2, (CUevent event))                                                         \
    X(required, CUresult, cuEventRecord, (CUevent event, CUstream stream))                                            \
    X(required, CUresult, cuEventQuery, (CUevent event))                                                              \
    X(required, CUresult, cuEventSynchronize, (CUevent event))                                                        \
    X(required, CUresult, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size))                                        \
    X(required, CUresult, cuMemFree_v2, (CUdeviceptr pointer))                                                        \
    X(required, CUresult, cuMemAllocHost_v2, (void **pointer, size_t size))                                           \
    X(required, CUresult, cuMemFreeHost, (void *pointer))                                                             \
    X(optional, CUresult, cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties))                   \
    X(optional, CUresult, cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value))         \
    X(optional, CUresult, cuMemPoolDestroy, (CUmemoryPool pool))                                                      \
    X(optional, CUresult, cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                          \
    X(optional, CUresult, cuMemAllocFromPoolAsync,                                                                    \
      (CUdeviceptr * pointer, size_t size, CUmemoryPool pool, CUstream stream))                                       \
    X(optional, CUresult, cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream))                                     \
    X(required, CUresult, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream))     \
    X(required, CUresult, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream))           \
    X(required, CUresult, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))     \
    X(required, CUresult, cuModuleLoadDataEx,                                                                         \
      (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values))               \
    X(required, CUresult, cuModuleUnload, (CUmodule module))                                                          \
    X(required, CUresult, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))            \
    X(required, CUresult, cuFuncGetAttribute, (int *value, CUfunction_attribute which, CUfunction function))          \
    X(required, CUresult, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute which, int value))           \
    X(optional, CUresult, cuGraphCreate, (CUgraph * graph, unsigned int flags))                                       \
    X(optional, CUresult, cuGraphDestroy, (CUgraph graph))                                                            \
    X(optional, CUresult, cuGraphAddKernelNode_v2,                                                                    \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,                                    \
       const CUDA_KERNEL_NODE_PARAMS *parameters))                                                                    \
    X(optional, CUresult, cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
    X(optional, CUresult, cuGraphExecDestroy, (CUgraphExec exec))                                                     \
    X(optional, CUresult, cuGraphExecKernelNodeSetParams_v2,                                                          \
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters))                                \
    X(optional, CUresult, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                         \
    X(required, CUresult, cuLaunchKernel,                                                                             \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,      \
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,     \
       void **extra))

#define CUDA_NVRTC_TABLE(X)                                                                                          \
    X(required, const char *, nvrtcGetErrorString, (nvrtcResult result))                                             \
    X(required, nvrtcResult, nvrtcVersion, (int *major, int *minor))                                                 \
    X(required, nvrtcResult, nvrtcGetNumSupportedArchs, (int *count))                                                \
    X(required, nvrtcResult, nvrtcGetSupportedArchs, (int *architectures))                                           \
    X(required, nvrtcResult, nvrtcCreateProgram,                                                                     \
      (nvrtcProgram * program, const char *source, const char *name, int headers, const char *const *header_sources, \
       const char *const *header_names))                                                                             \
    X(required, nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram * program))                                          \
    X(required, nvrtcResult, nvrtcCompileProgram, (nvrtcProgram program, int count, const char *const *options))     \
    X(required, nvrtcResult, nvrtcGetPTXSize, (nvrtcProgram program, size_t * size))                                 \
    X(required, nvrtcResult, nvrtcGetPTX, (nvrtcProgram program, char *text))                                        \
    X(required, nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram program, size_t * size))                               \
    X(required, nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram program, char *bytes))                                     \
    X(required, nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram program, size_t * size))                          \
    X(required, nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram program, char *text))

/* Values of the two libraries' enumerations that are used by name. */
#define CUDA_CONSTANT_TABLE(X)                                   \
    X(CUDA_SUCCESS, 0)                                           \
    X(CUDA_ERROR_INVALID_VALUE, 1)                               \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                               \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                             \
    X(CUDA_ERROR_DEINITIALIZED, 4)                               \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                               \
    X(CUDA_ERROR_NO_DEVICE, 100)                                 \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                            \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                             \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                           \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                         \
    X(CUDA_ERROR_INVALID_PTX, 218)                               \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                   \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                            \
    X(CUDA_ERROR_NOT_FOUND, 500)                                 \
    X(CUDA_ERROR_NOT_READY, 600)                                 \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                    \
    X(CUDA_ERROR_UNKNOWN, 999)                                   \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)              \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)        \
    X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                         \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)              \
    X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                     \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)          \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)          \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)           \
    X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                \
    X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                    \
    X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                     \
    X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                             \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)        \
    X(CU_JIT_ERROR_LOG_BUFFER, 5)                                \
    X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                     \
    X(CU_STREAM_NON_BLOCKING, 1)                                 \
    X(CU_EVENT_DISABLE_TIMING, 2)                                \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)                      \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                          \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                            \
    X(NVRTC_SUCCESS, 0)                                          \
    X(NVRTC_ERROR_OUT_OF_MEMORY, 1)                              \
    X(NVRTC_ERROR_COMPILATION, 6)

#endif
