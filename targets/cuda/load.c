/* Objects on the device, and launches of their functions. */
#include "targets/cuda/cuda.h"

#include <stdio.h>

enum { PLAIN_SHARED = 48 << 10, GRID_MAX = INT32_MAX };

typedef struct loaded_phase {
    CUfunction function;
    int arguments, params, threads;
    /* most blocks of one launch: with local scratch as many as there are slots */
    int64_t blocks;
    unsigned shared;
} loaded_phase;

struct target_module {
    dlc_allocator allocator;
    /* the tables below */
    lib_arena arena;
    CUmodule module;
    size_t bytes;
    int kernels;
    /* by kernel */
    int *phase_count;
    /* by kernel and phase */
    loaded_phase **phases;
};

/* ---- running */

static dlc_status launch(const loaded_phase *p, const target_arguments *arguments, int64_t iteration, int64_t begin,
                         int64_t end, lib_error *error) {
    void *parameters[CUDA_PARAMETER_LIMIT], **at = parameters;
    for (int i = 0; i < p->arguments; i++) *at++ = (void *)(uintptr_t)&arguments->buffers[i];
    for (int i = 0; i < p->params; i++) *at++ = (void *)(uintptr_t)&arguments->params[i];
    int64_t first = begin;
    *at++ = (void *)(uintptr_t)&arguments->workspace;
    *at++ = (void *)(uintptr_t)&arguments->local;
    *at++ = (void *)(uintptr_t)&arguments->local_stride;
    *at++ = &iteration;
    *at++ = &first;
    for (; first < end; first += p->blocks) {
        unsigned blocks = (unsigned)(end - first < p->blocks ? end - first : p->blocks);
        LIB_TRY(cuda_stream_launch(arguments->stream, p->function, blocks, (unsigned)p->threads, p->shared, parameters,
                                   (int)(at - parameters), error));
    }
    return DLC_OK;
}

/* Launches tasks of a phase, unless an earlier launch of the run failed: the first failure is reported. */
static void run_phase(const target_arguments *arguments, int64_t iteration, int64_t begin, int64_t end, int64_t slot,
                      const void *closure) {
    (void)slot;
    if (arguments->error->status == DLC_OK) launch(closure, arguments, iteration, begin, end, arguments->error);
}

target_phase cuda_phase(const target_module *module, int kernel, int phase) {
    return (target_phase){run_phase, &module->phases[kernel][phase]};
}

/* ---- loading */

typedef struct parsed_object {
    const cuda_object_kernel *kernels;
    /* of all kernels in turn */
    const cuda_object_phase *phases;
    const char *image;
    int count;
} parsed_object;

/* Validates the bytes, which may come from a disk, and sets *parsed; false: they are no object. */
static bool parse(const target_object *object, parsed_object *parsed) {
    const cuda_object_header *header = object->bytes;
    if (object->size < sizeof *header || (uintptr_t)object->bytes % 8 || header->magic != CUDA_OBJECT_MAGIC ||
        header->kernels < 0 || header->kernels > (1 << 20) || header->image > object->size ||
        header->size != object->size - header->image)
        return false;
    uint64_t tables = sizeof *header + (uint64_t)header->kernels * sizeof(cuda_object_kernel), phases = 0;
    if (tables > header->image) return false;
    parsed->count = (int)header->kernels;
    parsed->kernels = (const cuda_object_kernel *)(header + 1);
    parsed->phases = (const cuda_object_phase *)(parsed->kernels + parsed->count);
    parsed->image = (const char *)object->bytes + header->image;
    for (int k = 0; k < parsed->count; k++) {
        const cuda_object_kernel *kernel = &parsed->kernels[k];
        if (kernel->phases < 0 || kernel->arguments < 0 || kernel->params < 0 ||
            kernel->arguments + (int64_t)kernel->params + 5 > CUDA_PARAMETER_LIMIT)
            return false;
        phases += (uint64_t)kernel->phases;
    }
    return phases <= (header->image - tables) / sizeof(cuda_object_phase);
}

static dlc_status find_function(target_device *device, const target_module *module, const cuda_object_kernel *kernel,
                                const cuda_object_phase *phase, const char *kernel_name, int k, int p,
                                lib_error *error) {
    loaded_phase *to = &module->phases[k][p];
    char name[64];
    int limit = 0;
    snprintf(name, sizeof name, "k%d_p%d", k, p);
    *to = (loaded_phase){.arguments = kernel->arguments,
                         .params = kernel->params,
                         .threads = phase->threads,
                         .blocks = kernel->local ? device->machine.cores : GRID_MAX,
                         .shared = (unsigned)phase->shared};
    CUDA_TRY(device, cuModuleGetFunction, (&to->function, module->module, name), error);
    if (to->shared > PLAIN_SHARED)
        CUDA_TRY(device, cuFuncSetAttribute,
                 (to->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)to->shared), error);
    CUDA_TRY(device, cuFuncGetAttribute, (&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, to->function), error);
    if (to->threads > limit)
        return lib_fail(error, DLC_UNSUPPORTED,
                        "cuda: phase %d of kernel %s has blocks of %d threads, its registers leave room for %d", p,
                        kernel_name, to->threads, limit);
    return DLC_OK;
}

static dlc_status load_image(target_device *device, target_module *module, const char *image, lib_error *error) {
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUresult result = device->driver.cuModuleLoadDataEx(&module->module, image, 2, options, values);
    if (result == CUDA_SUCCESS) return DLC_OK;
    module->module = NULL;
    lib_error own;
    dlc_status status = cuda_fail(&device->driver, result, "cuModuleLoadDataEx", &own);
    return lib_fail(error, status, "%s%s%.500s", own.message, log[0] ? ": " : "", log);
}

static void make_tables(target_module *module, const parsed_object *object) {
    module->kernels = object->count;
    module->phase_count = LIB_NEW_ARRAY(&module->arena, int, (size_t)object->count + 1);
    module->phases = LIB_NEW_ARRAY(&module->arena, loaded_phase *, (size_t)object->count + 1);
    for (int k = 0; k < object->count; k++) {
        module->phase_count[k] = object->kernels[k].phases;
        module->phases[k] = LIB_NEW_ARRAY(&module->arena, loaded_phase, (size_t)object->kernels[k].phases + 1);
    }
}

static dlc_status fill(target_device *device, target_module *module, const parsed_object *object,
                       const char *const *names, lib_error *error) {
    lib_scope scope;
    const cuda_object_phase *phase = object->phases;
    module->arena.scope = &scope;
    if (LIB_ENTER(&scope)) make_tables(module, object);
    module->arena.scope = NULL;
    if (scope.error.status != DLC_OK) return lib_fail(error, scope.error.status, "%s", scope.error.message);
    LIB_TRY(load_image(device, module, object->image, error));
    for (int k = 0; k < object->count; k++)
        for (int p = 0; p < object->kernels[k].phases; p++)
            LIB_TRY(find_function(device, module, &object->kernels[k], phase++, names ? names[k] : "", k, p, error));
    return DLC_OK;
}

int cuda_phases(const target_module *module, int kernel) {
    return module->phase_count[kernel];
}

dlc_status cuda_load(target_device *device, const target_object *object, int count, const char *const *names,
                     target_module **result, lib_error *error) {
    parsed_object parsed;
    *result = NULL;
    if (!parse(object, &parsed) || parsed.count != count)
        return lib_fail(error, DLC_COMPILE_FAILED, "cuda: the object is not one of %d kernels", count);
    target_module *module = lib_allocate_zeroed(&device->allocator, sizeof *module, _Alignof(target_module));
    if (!module) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: a module");
    module->allocator = device->allocator;
    module->bytes = object->size;
    lib_arena_init(&module->arena, &module->allocator, NULL);
    dlc_status status = cuda_enter(device, error);
    if (status == DLC_OK) {
        status = fill(device, module, &parsed, names, error);
        cuda_leave(device);
    }
    if (status == DLC_OK)
        *result = module;
    else
        cuda_unload(device, module);
    return status;
}

void cuda_unload(target_device *device, target_module *module) {
    lib_error ignored;
    if (!module) return;
    if (module->module && lib_process_is_here(&device->process)) {
        bool entered =
            cuda_enter(device, &ignored) == DLC_OK; /* if this fails, the driver may still find the module's context */
        device->driver.cuModuleUnload(module->module);
        if (entered) cuda_leave(device);
    }
    dlc_allocator allocator = module->allocator;
    lib_arena_free(&module->arena);
    lib_release(&allocator, module, sizeof *module, _Alignof(target_module));
}

size_t cuda_module_bytes(const target_module *module) {
    return sizeof *module + module->arena.total + module->bytes;
}
