/* Opening and closing a device. Its primary context is retained; it is shared with host code that uses the CUDA runtime, and is current
 * only while one of our functions runs. */
#include "targets/cuda/cuda.h"

dlc_status cuda_enter(target_device *device, lib_error *error) {
    if (!lib_process_is_here(&device->process))
        return lib_fail(error, DLC_DEVICE_ERROR,
                        "cuda: device %d was opened before this process was forked: CUDA does not work in a child of a "
                        "process that has used it",
                        device->ordinal);
    CUDA_TRY(device, cuCtxPushCurrent_v2, (device->context), error);
    return DLC_OK;
}

void cuda_leave(target_device *device) {
    CUcontext popped;
    device->driver.cuCtxPopCurrent_v2(&popped);
}

/* ---- opening, step by step */

static dlc_status find_device(target_device *device, lib_error *error) {
    int count = 0;
    CUDA_TRY(device, cuDeviceGetCount, (&count), error);
    if (count == 0) return lib_fail(error, DLC_UNSUPPORTED, "cuda: the driver sees no device");
    if (device->ordinal < 0 || device->ordinal >= count)
        return lib_fail(error, DLC_UNSUPPORTED, "cuda: there is no device %d, expected 0 to %d", device->ordinal,
                        count - 1);
    CUDA_TRY(device, cuDeviceGet, (&device->device, device->ordinal), error);
    LIB_TRY(cuda_machine_of_device(&device->driver, device->device, &device->machine, error));
    int unified = 0;
    CUDA_TRY(device, cuDeviceGetAttribute, (&unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device->device), error);
    if (!unified)
        return lib_fail(error, DLC_UNSUPPORTED, "cuda: device %d has no unified addressing, which is expected",
                        device->ordinal);
    return DLC_OK;
}

/* Released memory stays in the pool for the next run. A separate pool, so that the host's use of the default one is not affected. */
static dlc_status make_pool(target_device *device, lib_error *error) {
    const cuda_driver *driver = &device->driver;
    int supported = 0;
    CUDA_TRY(device, cuDeviceGetAttribute, (&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device->device),
             error);
    if (!supported || !driver->cuMemPoolCreate || !driver->cuMemPoolSetAttribute || !driver->cuMemPoolDestroy ||
        !driver->cuMemPoolTrimTo || !driver->cuMemAllocFromPoolAsync || !driver->cuMemFreeAsync)
        return DLC_OK;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->device}};
    unsigned long long keep = UINT64_MAX;
    CUDA_TRY(device, cuMemPoolCreate, (&device->pool, &properties), error);
    CUDA_TRY(device, cuMemPoolSetAttribute, (device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), error);
    return DLC_OK;
}

static bool loads(target_device *device) {
    cuda_code code;
    CUmodule module;
    lib_error ignored;
    const char *source = "extern \"C\" __global__ void probe() {}";
    if (cuda_compile_source(&device->compiler, source, false, &code, &ignored) != DLC_OK) return false;
    bool works = device->driver.cuModuleLoadDataEx(&module, code.bytes, 0, NULL, NULL) == CUDA_SUCCESS;
    if (works) device->driver.cuModuleUnload(module);
    cuda_code_release(&device->compiler, &code);
    return works;
}

/* The driver may not accept code of a newer toolkit, so this is tested: code first, then PTX of an architecture older than the driver. */
static dlc_status check_driver_accepts(target_device *device, lib_error *error) {
    cuda_compiler *compiler = &device->compiler;
    if (compiler->version / 1000 <= device->driver_version / 1000) return DLC_OK;
    if (loads(device)) return DLC_OK;
    compiler->ptx = true;
    if (loads(device)) return DLC_OK;
    return lib_fail(error, DLC_UNSUPPORTED,
                    "cuda: NVRTC %d.%d makes code that the driver, which is for CUDA %d.%d, does not take; expected a "
                    "newer driver, or libnvrtc.so.%d (DLC_NVRTC names its path)",
                    compiler->version / 1000, compiler->version % 1000 / 10, device->driver_version / 1000,
                    device->driver_version % 1000 / 10, device->driver_version / 1000);
}

static dlc_status prepare(target_device *device, lib_error *error) {
    LIB_TRY(cuda_enter(device, error));
    dlc_status status = make_pool(device, error);
    if (status == DLC_OK) status = check_driver_accepts(device, error);
    cuda_leave(device);
    return status;
}

static dlc_status open_device(target_device *device, lib_error *error) {
    LIB_TRY(cuda_load_driver(&device->driver, &device->driver_version, error));
    LIB_TRY(find_device(device, error));
    LIB_TRY(cuda_compiler_open(&device->compiler, &device->allocator, &device->log, device->driver_version,
                               device->machine.architecture, error));
    CUDA_TRY(device, cuDevicePrimaryCtxRetain, (&device->context, device->device), error);
    return prepare(device, error);
}

dlc_status cuda_open(const target_options *options, target_device **result, tir_machine *machine, lib_error *error) {
    *result = NULL;
    target_device *device = lib_allocate_zeroed(options->allocator, sizeof *device, _Alignof(target_device));
    if (!device) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: a device");
    device->allocator = *options->allocator;
    if (options->log) device->log = *options->log;
    device->ordinal = options->ordinal;
    device->process = lib_process_here();
    lib_mutex_init(&device->mutex);
    dlc_status status = open_device(device, error);
    if (status != DLC_OK) {
        cuda_close(device);
        return status;
    }
    *machine = device->machine;
    *result = device;
    return DLC_OK;
}

/* A forked child has nothing to release: the driver's state belongs to the parent. */
void cuda_close(target_device *device) {
    if (!device) return;
    if (device->context && lib_process_is_here(&device->process)) {
        lib_error ignored;
        bool entered = device->staging_count && cuda_enter(device, &ignored) == DLC_OK;
        for (int i = 0; i < device->staging_count; i++) device->driver.cuMemFreeHost(device->staging[i]);
        if (device->pool) device->driver.cuMemPoolDestroy(device->pool);
        if (entered) cuda_leave(device);
        device->driver.cuDevicePrimaryCtxRelease_v2(device->device);
    }
    lib_process_forget(&device->process);
    lib_mutex_destroy(&device->mutex);
    dlc_allocator allocator = device->allocator;
    lib_release(&allocator, device, sizeof *device, _Alignof(target_device));
}
