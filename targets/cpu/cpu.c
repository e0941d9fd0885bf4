/* The cpu target: the interface of this folder to the rest of the library. */
#include "targets/cpu/cpu.h"
#include "targets/cpu/cost.h"

static void cpu_close(target_device *device) {
    if (!device) return;
    cpu_isolation_close(device);
    cpu_orc_close(device);
    cpu_compiler_close(device);
    dlc_allocator allocator = device->allocator;
    lib_release(&allocator, device, sizeof *device, _Alignof(target_device));
}

static dlc_status cpu_open(const target_options *options, target_device **result, tir_machine *machine,
                           lib_error *error) {
    *result = NULL;
    target_device *device = lib_allocate_zeroed(options->allocator, sizeof *device, _Alignof(target_device));
    if (!device) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for the cpu target");
    device->allocator = *options->allocator;
    if (options->log) device->log = *options->log;
    device->verify = lib_environment_verify() > 1;
    device->no_polls = lib_environment_lists(LIB_ENV_DISABLE, "polls");
    cpu_detect(device);
    cpu_compiler_open(device);
    dlc_status status = options->isolate ? cpu_isolation_open(device, options->compiler_path, error) : DLC_OK;
    if (status != DLC_OK) {
        cpu_close(device);
        return status;
    }
    *machine = device->machine;
    *result = device;
    return DLC_OK;
}

const target target_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .schedule = cpu_schedule,
    .code_identity = cpu_code_identity,
    .compile = cpu_compile,
    .release_object = cpu_release_object,
    .dump = cpu_dump,
    .cost = cpu_cost,
    .cycles_per_ns = cpu_cycles_per_ns,
    .load = cpu_load,
    .phases = cpu_phases,
    .phase = cpu_phase,
    .unload = cpu_unload,
    .module_bytes = cpu_module_bytes,
    .serve = cpu_serve_plainly,
};
