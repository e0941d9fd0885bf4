/* Golden tests: each test/golden/x.txt is a region, a schedule and the loop IR (or the error) that lowering made of them:
 *   ; words
 *   region ...
 *   ==== schedule
 *   ...
 *   ==== loops
 *   ...
 * With DLC_BLESS=1 the files take what lowering makes now; review the difference like code. test/tir/lower_test runs the same files. */
#include "tir/schedule.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

#define FOLDER "test/golden"
enum { FILES = 256 };

static const char schedule_mark[] = "==== schedule\n", loops_mark[] = "==== loops\n";

static char *read_file(lib_arena *arena, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_add(&text, "");
    char line[4096];
    while (fgets(line, sizeof line, file)) lib_text_add(&text, line);
    fclose(file);
    return text.data;
}

/* Lines that begin with ';' are for people. */
static const char *behind_comments(const char *text) {
    while (*text == ';') text += strcspn(text, "\n") + (text[strcspn(text, "\n")] != 0);
    return text;
}

static void lower_text(lib_arena *arena, lib_text *out, const char *region_text, const char *schedule_text) {
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "region", region_text, strlen(region_text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    tir_region_verify(arena->scope, region);
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    lib_text_add(&schedule.text, schedule_text);
    tir_machine machine = {.fma = 1,
                           .vector_bytes = 64,
                           .vector_registers = 32,
                           .line = 64,
                           .units = TIR_UNIT_BF16_DOT | TIR_UNIT_U8I8_DOT};
    tir_kernel_print(out,
                     tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true}));
}

static void lower_or_say(lib_scope *scope, lib_text *out, const char *region, const char *schedule) {
    lib_arena arena; /* of its own: `out` outlives an error */
    lib_arena_init(&arena, &lib_libc_allocator, scope);
    if (LIB_ENTER(scope))
        lower_text(&arena, out, region, schedule);
    else
        lib_text_format(out, "error: %s\n", scope->error.message);
    lib_arena_free(&arena);
}

static void test_file(void **state) {
    const char *path = *state;
    lib_scope scope;
    lib_arena files;
    lib_arena_init(&files, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) {
        fail_msg("%s: %s", path, scope.error.message);
        return;
    }
    char *text = read_file(&files, path), *schedule = strstr(text, schedule_mark);
    if (!schedule) fail_msg("%s has no `%.13s`", path, schedule_mark);
    char *loops = strstr(schedule, loops_mark);
    size_t kept = loops ? (size_t)(loops - text) : strlen(text);
    const char *expected = loops ? loops + strlen(loops_mark) : "";
    const char *head = behind_comments(text);
    const char *region = lib_arena_format(&files, "%.*s", (int)(schedule - head), head);
    const char *body =
        lib_arena_format(&files, "%.*s", (int)(text + kept - schedule - (ptrdiff_t)strlen(schedule_mark)),
                         schedule + strlen(schedule_mark));
    lib_text got;
    lib_text_init(&got, &files);
    lower_or_say(&scope, &got, region, body);
    if (getenv("DLC_BLESS")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%.*s%s%s", (int)kept, text, loops_mark, got.data);
        fclose(file);
    } else if (strcmp(got.data, expected) != 0) {
        size_t at = 0;
        while (got.data[at] && got.data[at] == expected[at]) at++;
        fail_msg("%s: lowering makes something else from character %zu on: ...%.200s", path, at,
                 got.data + (at > 40 ? at - 40 : 0));
    }
    lib_arena_free(&files);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int main(void) {
    static struct CMUnitTest tests[FILES];
    static char paths[FILES][300];
    size_t count = 0;
    DIR *folder = opendir(FOLDER);
    if (!folder) return 1;
    for (struct dirent *entry; (entry = readdir(folder)) && count < FILES;) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".txt") != 0) continue;
        snprintf(paths[count], sizeof paths[count], "%s/%s", FOLDER, entry->d_name);
        tests[count] = (struct CMUnitTest){.name = paths[count], .test_func = test_file, .initial_state = paths[count]};
        count++;
    }
    closedir(folder);
    qsort(tests, count, sizeof *tests, by_name);
    return _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
}
