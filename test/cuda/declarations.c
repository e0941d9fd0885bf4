/* Our declarations of the CUDA driver and NVRTC against the real headers, where those are installed: prototypes, sizes, layouts and
 * values. All of it is checked while compiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#define HAVE_HEADERS 1
#include <cuda.h>
#include <nvrtc.h>

#include "targets/cuda/symbols.h"

/* Rows with the real headers' types. */
#define X(need, type, name, parameters) \
    _Static_assert(__builtin_types_compatible_p(type(*) parameters, __typeof__(&name)), "prototype of " #name);
CUDA_DRIVER_TABLE(X)
CUDA_NVRTC_TABLE(X)
#undef X

#define X(name, value) _Static_assert((name) == (value), #name);
CUDA_CONSTANT_TABLE(X)
#undef X

/* Our types under other names, beside the real ones. */
#define CUresult own_CUresult
#define CUdevice_attribute own_CUdevice_attribute
#define CUfunction_attribute own_CUfunction_attribute
#define CUmemPool_attribute own_CUmemPool_attribute
#define CUjit_option own_CUjit_option
#define nvrtcResult own_nvrtcResult
#define CUdevice own_CUdevice
#define CUdeviceptr own_CUdeviceptr
#define CUcontext own_CUcontext
#define CUmodule own_CUmodule
#define CUfunction own_CUfunction
#define CUstream own_CUstream
#define CUevent own_CUevent
#define CUgraph own_CUgraph
#define CUgraphNode own_CUgraphNode
#define CUgraphExec own_CUgraphExec
#define CUkernel own_CUkernel
#define CUDA_KERNEL_NODE_PARAMS own_CUDA_KERNEL_NODE_PARAMS
#define CUmemoryPool own_CUmemoryPool
#define nvrtcProgram own_nvrtcProgram
#define CUmemPoolProps own_CUmemPoolProps
#undef CUDA_CONSTANT_TABLE
#define CUDA_CONSTANT_TABLE(X) own_constants
#include "targets/cuda/api.h"
#undef CUresult
#undef CUdevice_attribute
#undef CUfunction_attribute
#undef CUmemPool_attribute
#undef CUjit_option
#undef nvrtcResult
#undef CUdevice
#undef CUdeviceptr
#undef CUcontext
#undef CUmodule
#undef CUfunction
#undef CUstream
#undef CUevent
#undef CUgraph
#undef CUgraphNode
#undef CUgraphExec
#undef CUkernel
#undef CUDA_KERNEL_NODE_PARAMS
#undef CUmemoryPool
#undef nvrtcProgram
#undef CUmemPoolProps

#define X(type)                                                                                                     \
    _Static_assert(sizeof(type) == sizeof(own_##type) && _Alignof(type) == _Alignof(own_##type), "size of " #type); \
    _Static_assert((type)-1 > 0, "sign of " #type);
CUDA_ENUMERATION_TABLE(X)
#undef X
#define X(type, tag) _Static_assert(__builtin_types_compatible_p(type, own_##type), "type " #type);
CUDA_HANDLE_TABLE(X)
#undef X
_Static_assert(__builtin_types_compatible_p(CUdevice, own_CUdevice), "type CUdevice");
_Static_assert(__builtin_types_compatible_p(CUdeviceptr, own_CUdeviceptr), "type CUdeviceptr");

#define SAME_FIELD(type, field)                                                        \
    _Static_assert(offsetof(type, field) == offsetof(own_##type, field) &&             \
                       sizeof(((type *)0)->field) == sizeof(((own_##type *)0)->field), \
                   #type "." #field)
_Static_assert(sizeof(CUmemPoolProps) == sizeof(own_CUmemPoolProps), "size of CUmemPoolProps");
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == sizeof(own_CUDA_KERNEL_NODE_PARAMS), "size of kernel nodes");
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, func);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimY);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimZ);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimY);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimZ);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, extra);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, kern);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, ctx);
SAME_FIELD(CUmemPoolProps, allocType);
SAME_FIELD(CUmemPoolProps, handleTypes);
SAME_FIELD(CUmemPoolProps, location);
SAME_FIELD(CUmemPoolProps, location.type);
SAME_FIELD(CUmemPoolProps, location.id);
SAME_FIELD(CUmemPoolProps, win32SecurityAttributes);
SAME_FIELD(CUmemPoolProps, maxSize);
SAME_FIELD(CUmemPoolProps, usage);
SAME_FIELD(CUmemPoolProps, reserved);
#endif

static void test_declarations(void **state) {
    (void)state;
#ifndef HAVE_HEADERS
    print_message("cuda.h or nvrtc.h is not installed: nothing to compare with\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_declarations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
