/* What the rules of the cuda target make (golden/cuda/x.txt), wrong in one place: without one of its barriers or commits, a wait that is
 * over too early, rows of shared memory without their swizzle. The interpreter must find each. */
#ifdef DLC_TARGET_cuda
#include "tir/arith.h"
#include "tir/interpret.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

#define FOLDER "test/golden/cuda"

static int barriers, waits, commits, swizzles;

/* Barriers that nothing needs: they stand where a buffer is touched again, by the same threads as it happens, or elsewhere
 * (tir/synchronise.c looks at whole buffers). */
static const struct {
    const char *file;
    int barriers;
} needless[] = {{"sum_all.txt", 1},           {"scatter_rows.txt", 2},          {"scatter_columns.txt", 2},
                {"rows_of_an_output.txt", 1}, {"cumulative_one_column.txt", 2}, {"sort_first.txt", 1},
                {"sort_long.txt", 1}};

/* Verified and run with all checks, on small whole numbers. */
static lib_error run_kernel(const char *text, tir_bank_report *banks) {
    lib_scope scope;
    lib_arena arena;
    lib_error error = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "kernel", text, strlen(text));
        tir_kernel *kernel = tir_kernel_parse(&arena, &lexer);
        tir_kernel_verify(&scope, kernel, NULL);
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
        tir_interpret(kernel, arguments, params, &(tir_interpret_options){.check = true, .banks = banks},
                      &lib_libc_allocator, &error);
    }
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK ? error : scope.error;
}

static char *replaced(const char *text, const char *at, size_t length, const char *by) {
    char *result = malloc(strlen(text) + strlen(by) + 1);
    memcpy(result, text, (size_t)(at - text));
    strcpy(result + (at - text), by);
    strcat(result, at + length);
    return result;
}

static bool is_found(const char *text, const char *at, size_t length, const char *by) {
    char *kernel = replaced(text, at, length, by);
    tir_bank_report banks = {0};
    const lib_error error = run_kernel(kernel, &banks);
    free(kernel);
    return error.status != DLC_OK || banks.conflicts > banks.chosen;
}

static void mutate(const char *file, const char *text) {
    const char *at;
    int survived = 0, allowed = 0;
    const lib_error error = run_kernel(text, NULL);
    if (error.status != DLC_OK) fail_msg("%s: %s", file, error.message);
    for (size_t i = 0; i < sizeof needless / sizeof *needless; i++)
        if (strcmp(needless[i].file, file) == 0) allowed = needless[i].barriers;
    for (at = text; (at = strstr(at, "barrier\n")) != NULL; at++, barriers++)
        survived += !is_found(text, at, strlen("barrier"), "");
    if (survived != allowed)
        fail_msg("%s: without one of %d barriers nothing is found, expected %d", file, survived, allowed);
    for (at = text; (at = strstr(at, "commit\n")) != NULL; at++, commits++)
        if (!is_found(text, at, strlen("commit"), "")) fail_msg("%s: without a commit nothing is found", file);
    for (at = text; (at = strstr(at, "wait ")) != NULL; at++) {
        char *end, more[32];
        snprintf(more, sizeof more, "wait %ld", strtol(at + 5, &end, 10) + 1);
        const bool last = !strstr(end, "wait "); /* behind the loop, where nothing but empty groups is left */
        if (!last && !is_found(text, at, (size_t)(end - at), more)) fail_msg("%s: wait + 1: nothing is found", file);
        waits += !last;
    }
    for (at = text; (at = strstr(at, "swizzle ")) != NULL; at++, swizzles++)
        if (!is_found(text, at, strcspn(at, ",)@"), "")) fail_msg("%s: without a swizzle nothing is found", file);
}

static char *loops_of(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    char *text = calloc(1, 1 << 20), *begin = NULL;
    const size_t size = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    text[size] = 0;
    if ((begin = strstr(text, "==== loops\n")) != NULL) {
        begin += strlen("==== loops\n");
        char *end = strstr(begin, "====");
        if (end) *end = 0;
        memmove(text, begin, strlen(begin) + 1);
    }
    return text;
}

static void test_mutants(void **state) {
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[512];
        if (!strstr(entry->d_name, ".txt")) continue;
        snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        char *text = loops_of(path);
        mutate(entry->d_name, text);
        free(text);
    }
    closedir(folder);
    print_message("%d barriers, %d commits, %d waits, %d swizzles\n", barriers, commits, waits, swizzles);
    assert_true(barriers > 30 && commits > 8 && waits > 6 && swizzles > 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    return 77;
}
#endif
