/* What the rules of the cuda target make (golden/cuda/x.txt), wrong in one place: without one of its barriers or commits, a wait that is
 * over too early, rows of shared memory without their swizzle. The interpreter must find each. */
#ifdef DLC_TARGET_cuda
#include "test/mutants.h"

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

static bool is_found(const char *text, const char *at, size_t length, const char *by) {
    char *kernel = mutant_text(text, at, length, by);
    tir_bank_report banks = {0};
    const lib_error error = mutant_run(kernel, &(tir_interpret_options){.check = true, .banks = &banks});
    free(kernel);
    return error.status != DLC_OK || banks.conflicts > banks.chosen;
}

static void mutate(const char *file, const char *text) {
    const char *at;
    int survived = 0, allowed = 0;
    const lib_error error = mutant_run(text, &(tir_interpret_options){.check = true});
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
