/* Kernels to one object: a source text for all of them, compiled by NVRTC. The object is what NVRTC gives. */
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

/* The source in `arena`; NULL and *error. */
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

dlc_status cuda_compile(target_device *device, int count, const tir_kernel *const *kernels, target_object *object,
                        lib_error *error) {
    *object = (target_object){0};
    cuda_code *code = lib_allocate_zeroed(&device->allocator, sizeof *code, _Alignof(cuda_code));
    if (!code) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: an object");
    dlc_status status = compile_to(device, count, kernels, code, error);
    if (status == DLC_OK)
        *object = (target_object){.bytes = code->bytes, .size = code->size, .owner = code};
    else
        lib_release(&device->allocator, code, sizeof *code, _Alignof(cuda_code));
    return status;
}

void cuda_release_object(target_device *device, target_object *object) {
    cuda_code *code = object->owner;
    if (code) {
        cuda_code_release(&device->compiler, code);
        lib_release(&device->allocator, code, sizeof *code, _Alignof(cuda_code));
    }
    *object = (target_object){0};
}

/* ---- dumps: the source; PTX with what the assembler says of the functions */

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
    if (what == TARGET_DUMP_LLVM) return lib_fail(error, DLC_UNSUPPORTED, "the cuda target makes no LLVM IR");
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
