/* Kernels in text that are wrong in one place, and what the interpreter's checks find. */
#ifndef TEST_MUTANTS_H
#define TEST_MUTANTS_H

#include "tir/interpret.h"
#include "tir/loop.h"
#include "units.h"

#include <stdlib.h>

/* Verifies the kernel in `text` and runs it on small whole numbers, with varying sizes at their least; returns the error. */
static inline lib_error mutant_run(const char *text, const tir_interpret_options *options) {
    lib_scope scope;
    lib_arena arena;
    lib_error error = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "kernel", text, strlen(text));
        tir_kernel *kernel = tir_kernel_parse(&arena, &lexer, test_units);
        tir_kernel_verify(&scope, kernel, NULL, NULL);
        void **arguments = LIB_NEW_ARRAY(&arena, void *, (size_t)kernel->arguments);
        for (int i = 0; i < kernel->arguments; i++) {
            const tir_buffer *buffer = &kernel->buffers.data[i];
            const size_t size = lib_dtype_size(buffer->dtype);
            int64_t count = 1, extent = 0;
            for (int d = 0; d < buffer->rank; d++) {
                tir_is_const(kernel->pool, buffer->extent[d], &extent);
                count *= extent;
            }
            char *data = lib_arena_take_aligned(&arena, (size_t)count * size + 1, TIR_BUFFER_ALIGNMENT);
            for (int64_t k = 0; k < count; k++)
                lib_element_set_f64(buffer->dtype, data + (size_t)k * size, (double)(k % 7));
            arguments[i] = data;
        }
        int64_t *params = LIB_NEW_ARRAY(&arena, int64_t, kernel->params.count + 1);
        for (uint32_t i = 0; i < kernel->params.count; i++) /* sizes that vary: the least */
            params[i] = tir_variable_of(kernel->pool, kernel->params.data[i])->low;
        tir_interpret(kernel, arguments, params, options, &lib_libc_allocator, &error);
    }
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK ? error : scope.error;
}

/* `text` with `by` in place of `length` bytes from `at` on; to be freed. */
static inline char *mutant_text(const char *text, const char *at, size_t length, const char *by) {
    char *result = malloc(strlen(text) + strlen(by) + 1);
    memcpy(result, text, (size_t)(at - text));
    strcpy(result + (at - text), by);
    strcat(result, at + length);
    return result;
}

#endif
