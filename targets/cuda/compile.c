/* Kernels to one object: a source text for all of them, compiled by NVRTC. */
#include "targets/cuda/cuda.h"

#include <stdio.h>

void cuda_source(int count, const tir_kernel *const *kernels, lib_text *text) {
    cuda_emit_prelude(text);
    for (int k = 0; k < count; k++) {
        lib_text_format(text, "/* loop IR of kernel %d\n", k);
        tir_kernel_print(text, kernels[k]);
        lib_text_add(text, "*/\n");
        cuda_emit(kernels[k], k, text);
    }
}

static dlc_status check(const target_device *device, const tir_kernel *kernel, lib_error *error) {
    int64_t parameters = kernel->arguments + (int64_t)kernel->params.count + 5;
    if (parameters > CUDA_PARAMETER_LIMIT)
        return lib_fail(error, DLC_UNSUPPORTED, "cuda: kernel %s has %lld parameters, expected at most %d",
                        kernel->name, (long long)parameters, CUDA_PARAMETER_LIMIT);
    for (int p = 0; p < (int)kernel->phases.count; p++) {
        int threads = cuda_phase_threads(kernel, p);
        int64_t shared = cuda_phase_shared(kernel, p);
        if (threads < 1 || threads > device->machine.block_threads || shared > device->machine.shared_memory)
            return lib_fail(error, DLC_UNSUPPORTED,
                            "cuda: phase %d of kernel %s has blocks of %d threads and %lld bytes of shared memory, "
                            "expected at most %d and %lld",
                            p, kernel->name, threads, (long long)shared, device->machine.block_threads,
                            (long long)device->machine.shared_memory);
    }
    return DLC_OK;
}

/* The source of all kernels, in `arena`; NULL: *error is set. */
static char *make_source(target_device *device, lib_arena *arena, int count, const tir_kernel *const *kernels,
                         lib_error *error) {
    for (int k = 0; k < count; k++)
        if (check(device, kernels[k], error) != DLC_OK) return NULL;
    lib_scope scope, *outer = arena->scope;
    char *volatile source = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        lib_text text;
        lib_text_init(&text, arena);
        lib_text_add(&text, "");
        cuda_source(count, kernels, &text);
        source = text.data;
    } else {
        lib_fail(error, scope.error.status, "%s", scope.error.message);
    }
    arena->scope = outer;
    return source;
}

static dlc_status compile_to(target_device *device, int count, const tir_kernel *const *kernels, cuda_code *code,
                             lib_error *error) {
    lib_error own;
    lib_arena arena;
    lib_arena_init(&arena, &device->allocator, NULL);
    char *source = make_source(device, &arena, count, kernels, &own);
    dlc_status status = source ? cuda_compile_source(&device->compiler, source, false, code, &own) : own.status;
    lib_arena_free(&arena);
    return status == DLC_OK ? DLC_OK : lib_fail(error, status, "%s", own.message);
}

/* ---- objects: launch parameters of the functions, and the image */

static size_t table_bytes(int count, const tir_kernel *const *kernels) {
    size_t bytes = sizeof(cuda_object_header) + (size_t)count * sizeof(cuda_object_kernel);
    for (int k = 0; k < count; k++) bytes += kernels[k]->phases.count * sizeof(cuda_object_phase);
    return (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
}

static void write_object(char *bytes, size_t image, const cuda_code *code, int count,
                         const tir_kernel *const *kernels) {
    cuda_object_header *header = (cuda_object_header *)(void *)bytes;
    cuda_object_kernel *kernel = (cuda_object_kernel *)(header + 1);
    cuda_object_phase *phase = (cuda_object_phase *)(kernel + count);
    *header = (cuda_object_header){CUDA_OBJECT_MAGIC, image, code->size, count};
    for (int k = 0; k < count; k++) {
        const tir_kernel *from = kernels[k];
        int64_t local = from->local_size == 0 ? 0 : -1;
        if (local) tir_is_const(from->pool, from->local_size, &local);
        kernel[k] = (cuda_object_kernel){from->arguments, (int)from->params.count, (int)from->phases.count, local != 0};
        for (int p = 0; p < (int)from->phases.count; p++)
            *phase++ = (cuda_object_phase){cuda_phase_threads(from, p), (int32_t)cuda_phase_shared(from, p)};
    }
    memcpy(bytes + image, code->bytes, code->size);
}

lib_hash128 cuda_code_identity(const target_device *device) {
    const int32_t facts[] = {device->compiler.version, device->compiler.architecture, device->compiler.ptx};
    return lib_hash_bytes(facts, sizeof facts, (lib_hash128){1, 4});
}

dlc_status cuda_compile(target_device *device, const target_budget *budget, int count, const tir_kernel *const *kernels,
                        target_object *object, lib_error *error) {
    cuda_code code;
    (void)budget;
    *object = (target_object){0};
    LIB_TRY(compile_to(device, count, kernels, &code, error));
    size_t image = table_bytes(count, kernels), size = image + code.size;
    char *bytes = lib_allocate_zeroed(&device->allocator, size + 1, 16); /* PTX is text that ends with a 0 */
    if (bytes) write_object(bytes, image, &code, count, kernels);
    cuda_code_release(&device->compiler, &code);
    if (!bytes) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: an object");
    *object = (target_object){.bytes = bytes, .size = size, .owner = bytes};
    return DLC_OK;
}

void cuda_release_object(target_device *device, target_object *object) {
    if (object->owner) lib_release(&device->allocator, object->owner, object->size + 1, 16);
    *object = (target_object){0};
}

/* ---- dumps: the source; PTX with the assembler's resource usage of the functions */

static dlc_status add_assembly(target_device *device, const char *source, lib_text *text, lib_error *error) {
    cuda_compiler ptx = device->compiler;
    cuda_code code, listing;
    ptx.ptx = true;
    LIB_TRY(cuda_compile_source(&ptx, source, false, &code, error));
    dlc_status status = cuda_compile_source(&device->compiler, source, true, &listing, error);
    lib_scope scope, *outer = text->arena->scope;
    if (status == DLC_OK) {
        text->arena->scope = &scope;
        if (LIB_ENTER(&scope)) {
            lib_text_format(text, "%s\n", listing.log);
            lib_text_add(text, code.bytes);
        } else {
            lib_fail(error, scope.error.status, "%s", scope.error.message);
        }
        text->arena->scope = outer;
        status = scope.error.status;
        cuda_code_release(&device->compiler, &listing);
    }
    cuda_code_release(&ptx, &code);
    return status;
}

dlc_status cuda_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                     lib_error *error) {
    if (what == TARGET_DUMP_LLVM || what == TARGET_DUMP_VECTORS)
        return lib_fail(error, DLC_UNSUPPORTED, "the cuda target makes neither LLVM IR nor vectors");
    lib_error own;
    lib_arena arena;
    lib_arena_init(&arena, &device->allocator, NULL);
    char *source = make_source(device, &arena, 1, &kernel, &own);
    dlc_status status = source ? DLC_OK : own.status;
    if (status == DLC_OK && what == TARGET_DUMP_ASSEMBLY) status = add_assembly(device, source, text, &own);
    if (status == DLC_OK && what == TARGET_DUMP_SOURCE) {
        lib_scope scope, *outer = text->arena->scope;
        text->arena->scope = &scope;
        if (LIB_ENTER(&scope)) lib_text_add(text, source);
        text->arena->scope = outer;
        status = scope.error.status;
        if (status != DLC_OK) own = scope.error;
    }
    lib_arena_free(&arena);
    return status == DLC_OK ? DLC_OK : lib_fail(error, status, "%s", own.message);
}
