#include "golden/files.h"
#include "test/share.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

enum { FILES = 256 };

static const char *mark;
static golden_make *make;

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

static const char *behind_comments(const char *text) {
    while (*text == ';') text += strcspn(text, "\n") + (text[strcspn(text, "\n")] != 0);
    return text;
}

static void make_or_say(lib_scope *scope, lib_text *out, const char *input) {
    lib_arena arena; /* of its own: `out` outlives an error */
    lib_arena_init(&arena, &lib_libc_allocator, scope);
    if (LIB_ENTER(scope))
        make(&arena, out, input);
    else
        lib_text_format(out, "error: %s\n", scope->error.message);
    lib_arena_free(&arena);
}

static void write_file(const char *path, const char *text, size_t kept, const char *got) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)kept, text, mark, got);
    fclose(file);
}

static void compare(const char *path, const char *got, const char *expected) {
    size_t at = 0, line = 1;
    while (got[at] && got[at] == expected[at]) line += got[at++] == '\n';
    if (!got[at] && !expected[at]) return;
    while (at > 0 && got[at - 1] != '\n') at--;
    fail_msg("%s: line %zu after the mark is now:\n%.*s\nexpected:\n%.*s", path, line, (int)strcspn(got + at, "\n"),
             got + at, (int)strcspn(expected + at, "\n"), expected + at);
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
    char *text = read_file(&files, path), *marked = strstr(text, mark);
    size_t kept = marked ? (size_t)(marked - text) : strlen(text);
    const char *head = behind_comments(text);
    lib_text got;
    lib_text_init(&got, &files);
    lib_text_add(&got, "");
    make_or_say(&scope, &got, lib_arena_format(&files, "%.*s", (int)(text + kept - head), head));
    if (getenv("DLC_BLESS"))
        write_file(path, text, kept, got.data);
    else
        compare(path, got.data, marked ? marked + strlen(mark) : "");
    lib_arena_free(&files);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int golden_run(const char *group, const char *folder, const char *mark_line, golden_make *function) {
    static struct CMUnitTest tests[FILES];
    static char paths[FILES][300];
    size_t count = 0;
    DIR *listed = opendir(folder);
    if (!listed) return 1;
    mark = mark_line, make = function;
    for (struct dirent *entry; (entry = readdir(listed)) && count < FILES;) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".txt") != 0) continue;
        snprintf(paths[count], sizeof paths[count], "%s/%s", folder, entry->d_name);
        tests[count] = (struct CMUnitTest){.name = paths[count], .test_func = test_file, .initial_state = paths[count]};
        count++;
    }
    closedir(listed);
    qsort(tests, count, sizeof *tests, by_name);
    if (test_is_shortest()) { /* every sixth */
        for (size_t i = 0; 6 * i < count; i++) tests[i] = tests[6 * i];
        count = (count + 5) / 6;
    }
    return _cmocka_run_group_tests(group, tests, count, NULL, NULL);
}
