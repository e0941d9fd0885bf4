/* Facts of devices, as a tir_machine: from the driver, or for a named kind of device. No vector fields: schedules treat a thread as
 * scalar, and the emitter chooses the width of its loads. */
#include "targets/cuda/cuda.h"
#include "targets/cuda/units.h"

#include <stdio.h>

const tir_unit cuda_units[] = {CUDA_UNITS, {.name = NULL}};

static void set_architecture(tir_machine *machine, int capability) {
    machine->architecture = capability;
    machine->units = cuda_units;
    if (capability >= 80) machine->unit_bits |= CUDA_MATRICES;
}

static void fill_common(tir_machine *machine) {
    memset(machine, 0, sizeof *machine);
    memcpy(machine->target, "cuda", sizeof "cuda");
    machine->fma = 1;
    machine->masked = 1;
    machine->line = 128;
    machine->thread_registers = 255; /* the same for all architectures since 3.5 */
}

dlc_status cuda_machine_of_device(const cuda_driver *driver, CUdevice device, tir_machine *machine, lib_error *error) {
    enum { WARP, THREADS, MULTIPROCESSORS, L2, SHARED, OPTIN, MAJOR, MINOR, COUNT };
    static const CUdevice_attribute attributes[COUNT] = {CU_DEVICE_ATTRIBUTE_WARP_SIZE,
                                                         CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                                         CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                         CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
                                                         CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
                                                         CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                                         CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                                         CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR};
    int value[COUNT];
    fill_common(machine);
    for (int i = 0; i < COUNT; i++) {
        CUresult result = driver->cuDeviceGetAttribute(&value[i], attributes[i], device);
        if (result != CUDA_SUCCESS) return cuda_fail(driver, result, "cuDeviceGetAttribute", error);
    }
    CUresult result = driver->cuDeviceGetName(machine->name, sizeof machine->name - 1, device);
    if (result != CUDA_SUCCESS) return cuda_fail(driver, result, "cuDeviceGetName", error);
    size_t length = strlen(machine->name); /* the bytes after it are part of kernel keys */
    memset(machine->name + length, 0, sizeof machine->name - length);
    machine->warp = value[WARP];
    machine->block_threads = value[THREADS];
    machine->cores = machine->multiprocessors = value[MULTIPROCESSORS];
    machine->l2 = value[L2];
    machine->shared_memory = value[OPTIN] > value[SHARED] ? value[OPTIN] : value[SHARED];
    set_architecture(machine, 10 * value[MAJOR] + value[MINOR]);
    return DLC_OK;
}

/* CUDA C++ Programming Guide, table of compute capabilities, and the data sheets of the devices named. */
static const struct {
    const char *architecture, *name;
    int32_t capability, multiprocessors, shared_kib, l2_mib;
} devices[] = {
    {"sm_75", "T4", 75, 40, 64, 4},           {"sm_80", "A100", 80, 108, 163, 40},
    {"sm_86", "A10", 86, 72, 99, 6},          {"sm_89", "L4", 89, 58, 99, 48},
    {"sm_90", "H200", 90, 132, 227, 50},      {"sm_100", "B200", 100, 148, 227, 126},
    {"sm_120", "RTX 5090", 120, 170, 99, 96},
};

bool cuda_machine_of_name(const char *architecture, tir_machine *machine) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strcmp(devices[i].architecture, architecture) != 0) continue;
        fill_common(machine);
        snprintf(machine->name, sizeof machine->name, "NVIDIA %s", devices[i].name);
        machine->warp = 32;
        machine->block_threads = 1024;
        machine->cores = machine->multiprocessors = devices[i].multiprocessors;
        machine->l2 = (int64_t)devices[i].l2_mib << 20;
        machine->shared_memory = (int64_t)devices[i].shared_kib << 10;
        set_architecture(machine, devices[i].capability);
        return true;
    }
    return false;
}
