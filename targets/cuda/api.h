/* The types of the CUDA driver and of NVRTC that libdlc uses, declared here so that no toolkit is needed to build libdlc. Names are the
 * vendor's. Enumerations are plain integers of the same size; handles are pointers to the same incomplete structs. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include "targets/cuda/symbols.h"

#include <stddef.h>

#define CUDA_ENUMERATION_TABLE(X) \
    X(CUresult)                   \
    X(CUdevice_attribute)         \
    X(CUfunction_attribute)       \
    X(CUmemPool_attribute)        \
    X(CUjit_option)               \
    X(nvrtcResult)
#define X(type) typedef unsigned int type;
CUDA_ENUMERATION_TABLE(X)
#undef X

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

#define CUDA_HANDLE_TABLE(X)            \
    X(CUcontext, CUctx_st)              \
    X(CUmodule, CUmod_st)               \
    X(CUfunction, CUfunc_st)            \
    X(CUstream, CUstream_st)            \
    X(CUevent, CUevent_st)              \
    X(CUgraph, CUgraph_st)              \
    X(CUgraphNode, CUgraphNode_st)      \
    X(CUgraphExec, CUgraphExec_st)      \
    X(CUkernel, CUkern_st)              \
    X(CUmemoryPool, CUmemPoolHandle_st) \
    X(nvrtcProgram, _nvrtcProgram)
#define X(type, tag) typedef struct tag *type;
CUDA_HANDLE_TABLE(X)
#undef X

typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUmemPoolProps {
    unsigned int allocType, handleTypes;
    struct {
        unsigned int type;
        int id;
    } location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    /* zeros */
    unsigned char reserved[54];
} CUmemPoolProps;

#define X(name, value) name = value,
enum { CUDA_CONSTANT_TABLE(X) };
#undef X

/* The functions, under their own names: driver->cuInit(0). */
#define X(need, type, name, parameters) type(*name) parameters;
typedef struct cuda_driver {
    CUDA_DRIVER_TABLE(X)
} cuda_driver;
typedef struct cuda_nvrtc {
    CUDA_NVRTC_TABLE(X)
} cuda_nvrtc;
#undef X

#endif
