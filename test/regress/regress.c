/* Mistakes that were made once: every text graph in this folder runs on both targets like a case of the fuzzer (its first
 * line says with what inputs), one test each. New ones come out of `make fuzz`. Those whose names begin with device_ failed
 * on the cuda target, with the fake driver; test/cuda/regress_test.sh runs them so. avx2_, sse2_: levels_test.sh. */
#include "fuzz/case.h"
#include "test/share.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the above */
#include <cmocka.h>

static case_leg legs[] = CASE_LEGS;
static case_report report;

static char *read_text(const char *path) {
    enum { LONGEST = 1 << 20 };
    char *text = calloc(1, LONGEST);
    FILE *file = fopen(path, "r");
    if (file && text && fread(text, 1, LONGEST - 1, file) == 0) text[0] = 0;
    if (file) fclose(file);
    return text;
}

static void test_text(void **state) {
    char path[512];
    snprintf(path, sizeof path, "test/regress/%s", (const char *)*state);
    char *text = read_text(path);
    assert_non_null(text);
    bool good = case_check(text, legs, &report);
    free(text);
    if (!good) fail_msg("%s: %s", path, report.message);
}

static int open_legs(void **state) {
    (void)state;
    return case_open(legs, false, &report) ? 0 : -1;
}

static int close_legs(void **state) {
    (void)state;
    case_close(legs);
    return 0;
}

static const char *beginning = "";

static int is_text(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0 &&
           strncmp(entry->d_name, beginning, strlen(beginning)) == 0;
}

/* Runs from the root of the repository. regress [BEGINNING]: texts whose names begin so. */
int main(int argc, char **argv) {
    struct dirent **entry;
    if (argc > 1) beginning = argv[1];
#ifndef DLC_TARGET_cpu
    if (!getenv("DLC_TEST_TARGET")) return 77; /* nothing to compare with */
#endif
    int count = scandir("test/regress", &entry, is_text, alphasort);
    if (count <= 0) return 77;
    const int every = test_is_shortest() ? 1 + test_every() / 2 : 1;
    int taken = 0;
    struct CMUnitTest *tests = calloc((size_t)count, sizeof *tests);
    if (!tests) return 1;
    for (int i = 0; i < count; i += every)
        tests[taken++] =
            (struct CMUnitTest){.name = entry[i]->d_name, .test_func = test_text, .initial_state = entry[i]->d_name};
    int failed = _cmocka_run_group_tests("regress", tests, (size_t)taken, open_legs, close_legs);
    for (int i = 0; i < count; i++) free(entry[i]);
    free(entry);
    free(tests);
    return failed;
}
