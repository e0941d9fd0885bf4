/* The null target: prints kernels and runs nothing. It is the template for a port: a new target fills in each function below, which here
 * does the minimum that the contract of targets/target.h allows. */
#include "targets/target.h"

struct target_device {
    dlc_allocator allocator;
};

static dlc_status null_open(const target_options *options, target_device **device, tir_machine *machine,
                            lib_error *error) {
    target_device *opened = lib_allocate_zeroed(options->allocator, sizeof *opened, _Alignof(target_device));
    if (!opened) return lib_fail(error, DLC_OUT_OF_MEMORY, "null target: out of memory");
    opened->allocator = *options->allocator;
    memset(machine, 0, sizeof *machine);
    memcpy(machine->target, "null", sizeof "null");
    memcpy(machine->name, "none", sizeof "none");
    machine->line = 64;
    machine->cores = 1;
    *device = opened;
    return DLC_OK;
}

static void null_close(target_device *device) {
    if (!device) return;
    dlc_allocator allocator = device->allocator;
    lib_release(&allocator, device, sizeof *device, _Alignof(target_device));
}

static void null_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)machine, (void)threads, (void)region, (void)schedule;
}

static dlc_status null_compile(target_device *device, const target_budget *budget, int count,
                               const tir_kernel *const *kernels, target_object *object, lib_error *error) {
    (void)budget;
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &device->allocator, &scope);
    memset(object, 0, sizeof *object);
    if (LIB_ENTER(&scope)) {
        lib_text text;
        lib_text_init(&text, &arena);
        for (int i = 0; i < count; i++) tir_kernel_print(&text, kernels[i]);
        char *bytes = lib_allocate(&device->allocator, text.length + 1, 1);
        if (!bytes) lib_raise(&scope, DLC_OUT_OF_MEMORY, "null target: out of memory");
        memcpy(bytes, text.length ? text.data : "", text.length + 1);
        *object = (target_object){.bytes = bytes, .size = text.length, .owner = bytes};
    }
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}

static void null_release_object(target_device *device, target_object *object) {
    if (object->owner) lib_release(&device->allocator, object->owner, object->size + 1, 1);
    memset(object, 0, sizeof *object);
}

static dlc_status null_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                            lib_error *error) {
    (void)device, (void)kernel, (void)what, (void)text;
    return lib_fail(error, DLC_UNSUPPORTED, "the null target has no stages of code generation");
}

static dlc_status null_load(target_device *device, const target_object *object, int count, const char *const *names,
                            target_module **module, lib_error *error) {
    (void)device, (void)object, (void)count, (void)names;
    *module = NULL;
    return lib_fail(error, DLC_UNSUPPORTED, "the null target makes text and runs nothing");
}

/* Never called: there is no module. */
static int null_phases(const target_module *module, int kernel) {
    (void)module, (void)kernel;
    return 0;
}
static target_phase null_phase(const target_module *module, int kernel, int phase) {
    (void)module, (void)kernel, (void)phase;
    return (target_phase){NULL, NULL};
}
static void null_unload(target_device *device, target_module *module) {
    (void)device, (void)module;
}
static size_t null_module_bytes(const target_module *module) {
    (void)module;
    return 0;
}

const target target_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .schedule = null_schedule,
    .compile = null_compile,
    .release_object = null_release_object,
    .dump = null_dump,
    .load = null_load,
    .phases = null_phases,
    .phase = null_phase,
    .unload = null_unload,
    .module_bytes = null_module_bytes,
};
