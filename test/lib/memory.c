/* Errors, scopes, allocators and arenas, with an allocator that counts, checks what it gets back, and fails on demand.
 */
#include "lib/lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct counting {
    size_t live, bytes, calls;
    /* the call to refuse, from 1; 0 none */
    size_t fail_at;
} counting;

static void *counting_allocate(void *user, size_t size, size_t alignment) {
    counting *c = user;
    if (++c->calls == c->fail_at) return NULL;
    void *pointer = lib_libc_allocator.allocate(NULL, size, alignment);
    if (!pointer) return NULL;
    memset(pointer, 0xa5, size);
    c->live++, c->bytes += size;
    return pointer;
}

static void counting_release(void *user, void *pointer, size_t size, size_t alignment) {
    counting *c = user;
    c->live--, c->bytes -= size;
    memset(pointer, 0x5a, size); /* a wrong size shows under the address sanitizer */
    lib_libc_allocator.release(NULL, pointer, size, alignment);
}

/* ---- errors and scopes ------------------------------------------------------------------------------------------ */

static void test_errors(void **state) {
    (void)state;
    lib_error error;
    assert_int_equal(lib_fail(NULL, DLC_NOT_FOUND, "%d", 1), DLC_NOT_FOUND);
    assert_int_equal(lib_fail(&error, DLC_PARSE_ERROR, "line %d", 7), DLC_PARSE_ERROR);
    assert_int_equal(error.status, DLC_PARSE_ERROR);
    assert_string_equal(error.message, "line 7");
    lib_fail(&error, DLC_INTERNAL, "in matmul: %s", error.message); /* the message as its own argument */
    assert_string_equal(error.message, "in matmul: line 7");

    char exact[LIB_MESSAGE_MAX];
    memset(exact, 'x', sizeof exact);
    exact[LIB_MESSAGE_MAX - 1] = 0;
    lib_fail(&error, DLC_INTERNAL, "%s", exact);
    assert_string_equal(error.message, exact);
    lib_fail(&error, DLC_INTERNAL, "%sy", exact);
    assert_int_equal(strlen(error.message), LIB_MESSAGE_MAX - 1);
    assert_string_equal(error.message + LIB_MESSAGE_MAX - 5, "x...");
    for (size_t i = 0; i + 2 < sizeof exact; i += 2) memcpy(exact + i, "\xc3\xa4", 2); /* cut between characters */
    lib_fail(&error, DLC_INTERNAL, "%s%s", exact, exact);
    size_t length = strlen(error.message);
    assert_string_equal(error.message + length - 3, "...");
    assert_int_equal((unsigned char)error.message[length - 4], 0xa4);

#define X(code, text) assert_string_equal(lib_status_text(code), text);
    DLC_STATUS_TABLE(X)
#undef X
    assert_string_equal(lib_status_text((dlc_status)999), "unknown status");
}

static void inner_work(lib_scope *outer) {
    lib_scope scope;
    if (LIB_ENTER(&scope)) {
        lib_raise(&scope, DLC_UNSUPPORTED, "inner %s", "reason");
    } else {
        lib_raise_error(outer, &scope.error);
    }
}

static void test_scopes(void **state) {
    (void)state;
    lib_scope scope;
    volatile int visits = 0;
    if (LIB_ENTER(&scope)) {
        visits += 1;
        inner_work(&scope);
        visits += 100;
    } else {
        visits += 10;
    }
    assert_int_equal(visits, 11);
    assert_int_equal(scope.error.status, DLC_UNSUPPORTED);
    assert_string_equal(scope.error.message, "inner reason");
    if (LIB_ENTER(&scope)) visits += 1000;
    assert_int_equal(visits, 1011);
    assert_int_equal(scope.error.status, DLC_OK);
    assert_string_equal(scope.error.message, "");
}

/* ---- allocator, sizes ------------------------------------------------------------------------------------------- */

static void test_allocate(void **state) {
    (void)state;
    counting c = {0};
    dlc_allocator allocator = {counting_allocate, counting_release, &c};
    for (size_t alignment = 1; alignment <= 1 << 21; alignment *= 2)
        for (size_t size = 0; size < 300; size += 99) {
            unsigned char *pointer = lib_allocate_zeroed(&allocator, size, alignment);
            assert_true(size == 0 || pointer);
            assert_int_equal((uintptr_t)pointer % alignment, 0);
            for (size_t i = 0; i < size; i++) assert_int_equal(pointer[i], 0);
            lib_release(&allocator, pointer, size, alignment);
        }
    lib_release(&allocator, NULL, 5, 16);
    assert_int_equal(c.live, 0);
    c.fail_at = c.calls + 1;
    assert_null(lib_allocate_zeroed(&allocator, 10, 16));

    size_t out;
    assert_true(lib_size_multiply(1u << 31, 1u << 31, &out) && out == (size_t)1 << 62);
    assert_false(lib_size_multiply((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_true(lib_size_add(SIZE_MAX, 0, &out) && out == SIZE_MAX);
    assert_false(lib_size_add(SIZE_MAX, 1, &out));
}

/* Large blocks begin where a huge page does, whatever less was asked for; the allocator gets back what it gave. */
static void test_bytes(void **state) {
    (void)state;
    counting c = {0};
    const dlc_allocator allocator = {counting_allocate, counting_release, &c};
    static const size_t sizes[] = {1, 4096, (4u << 20) - 1, 4u << 20, (5u << 20) + 17};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t alignment = 64; alignment <= 4u << 20; alignment *= 256) {
            unsigned char *pointer = lib_allocate_bytes(&allocator, sizes[i], alignment);
            assert_non_null(pointer);
            assert_int_equal((uintptr_t)pointer % alignment, 0);
            if (sizes[i] >= 4u << 20) assert_int_equal((uintptr_t)pointer % (2u << 20), 0);
            memset(pointer, 1, sizes[i]);
            lib_release_bytes(&allocator, pointer, sizes[i], alignment);
        }
    assert_int_equal(c.live, 0);
    c.fail_at = c.calls + 1;
    assert_null(lib_allocate_bytes(&allocator, 8u << 20, 64));
}

/* ---- arena ------------------------------------------------------------------------------------------------------ */

/* All the ways to take memory, in an order that visits new chunks, large chunks and aligned ones. */
static void use_arena(lib_arena *arena) {
    enum { COUNT = 400 };
    unsigned char *taken[COUNT];
    size_t size[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size[i] = i % 50 == 49 ? 100000 + i : i * 7 % 500;
        size_t alignment = i % 10 == 3 ? (size_t)1 << (i / 10 % 13) : 1;
        taken[i] = lib_arena_take_aligned(arena, size[i], alignment);
        assert_int_equal((uintptr_t)taken[i] % (alignment > 16 ? alignment : 16), 0);
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(taken[i][k], 0);
        memset(taken[i], (int)(i % 255 + 1), size[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(taken[i][k], i % 255 + 1);
    assert_null(lib_arena_string(arena, NULL));
    assert_string_equal(lib_arena_string(arena, ""), "");
    assert_memory_equal(lib_arena_copy(arena, "abc", 3), "abc", 3);
    assert_non_null(lib_arena_copy(arena, NULL, 0));
    int64_t *array = LIB_NEW_ARRAY(arena, int64_t, 1000);
    for (int i = 0; i < 1000; i++) assert_true(array[i] == 0);
    assert_string_equal(lib_arena_format(arena, "%d-%s", 5, "x"), "5-x");
}

static void test_arena(void **state) {
    (void)state;
    counting c = {0};
    dlc_allocator allocator = {counting_allocate, counting_release, &c};
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &allocator, &scope);
    if (LIB_ENTER(&scope)) {
        for (int round = 0; round < 3; round++) { /* usable again after it was freed */
            use_arena(&arena);
            assert_int_equal(arena.total, c.bytes);
            lib_arena_free(&arena);
            assert_int_equal(c.live, 0);
            assert_int_equal(arena.total, 0);
        }
    } else {
        fail_msg("%s", scope.error.message);
    }
    lib_arena_free(&arena);
}

/* What a reset keeps is used again, counts, and goes back where a limit or the allocator leaves nothing else. */
static void test_arena_reset(void **state) {
    enum { MANY = 200, LARGE = 30000, MIB = 1 << 20 };
    (void)state;
    counting c = {0};
    dlc_allocator allocator = {counting_allocate, counting_release, &c};
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_arena_reset(&arena);
        for (int round = 0; round < 4; round++) {
            const size_t before = c.bytes;
            for (int i = 0; i < MANY; i++) {
                char *taken = lib_arena_take(&arena, LARGE);
                for (int k = 0; k < LARGE; k += 1000) assert_int_equal(taken[k], 0);
                memset(taken, 1, LARGE);
            }
            if (round > 1) assert_int_equal(c.bytes, before); /* all of it from what was kept */
            assert_int_equal(arena.total, c.bytes);
            lib_arena_reset(&arena);
            assert_int_equal(arena.total, c.bytes);
        }
        arena.limit = arena.total + MIB / 2;
        memset(lib_arena_take(&arena, 3 * MIB), 1, 3 * MIB); /* larger than any that was kept */
        assert_true(arena.total == c.bytes && arena.total <= arena.limit);
        arena.limit = 0;
        for (int i = 0; i < 20; i++) lib_arena_take(&arena, MIB);
        lib_arena_reset(&arena);
        assert_true(c.bytes < 10 * MIB);
    } else {
        fail_msg("%s", scope.error.message);
    }
    lib_arena_free(&arena);
    assert_int_equal(c.bytes, 0);
}

static dlc_status try_arena(lib_arena *arena) {
    if (LIB_ENTER(arena->scope)) use_arena(arena);
    return arena->scope->error.status;
}

/* Every allocation in turn is refused: the raise arrives, nothing leaks, the arena can be used afterwards. */
static void test_arena_refused(void **state) {
    (void)state;
    size_t refusals = 0;
    for (dlc_status status = DLC_OUT_OF_MEMORY; status != DLC_OK; refusals++) {
        counting c = {.fail_at = refusals + 1};
        dlc_allocator allocator = {counting_allocate, counting_release, &c};
        lib_scope scope;
        lib_arena arena;
        lib_arena_init(&arena, &allocator, &scope);
        status = try_arena(&arena);
        assert_true(status == DLC_OK || status == DLC_OUT_OF_MEMORY);
        c.fail_at = 0;
        assert_int_equal(try_arena(&arena), DLC_OK);
        lib_arena_free(&arena);
        assert_int_equal(c.live, 0);
        assert_int_equal(c.bytes, 0);
    }
    assert_true(refusals > 5);
}

/* ---- what an arena owns */

static void count_release(void *object) {
    ++*(int *)object;
}

static void own_three(lib_arena *arena, int *released) {
    for (int i = 0; i < 3; i++) {
        lib_arena_take(arena, 3000);
        lib_arena_own(arena, count_release, &released[i]);
    }
}

static void test_arena_owns(void **state) {
    (void)state;
    for (volatile size_t site = 1;; site++) {
        int released[3] = {0, 0, 0};
        lib_scope scope;
        counting c = {.fail_at = site};
        const dlc_allocator allocator = {counting_allocate, counting_release, &c};
        lib_arena arena;
        lib_arena_init(&arena, &allocator, &scope);
        if (LIB_ENTER(&scope)) {
            own_three(&arena, released);
            for (int i = 0; i < 3; i++) assert_int_equal(released[i], 0);
            lib_arena_reset(&arena);
            for (int i = 0; i < 3; i++) assert_int_equal(released[i], 1);
            own_three(&arena, released);
        }
        const bool refused = scope.error.status != DLC_OK;
        lib_arena_free(&arena);
        for (int i = 0; i < 3; i++) assert_true(refused ? released[i] <= 2 : released[i] == 2);
        lib_arena_free(&arena); /* nothing is released again */
        for (int i = 0; i < 3; i++) assert_true(refused ? released[i] <= 2 : released[i] == 2);
        assert_int_equal(c.live, 0);
        if (!refused) break;
    }
}

/* true if it was refused. */
static bool refuses(size_t count, size_t size, size_t alignment) {
    lib_scope scope;
    lib_arena arena;
    counting c = {.fail_at = 2}; /* a first chunk, and no luck with a really large one */
    dlc_allocator allocator = {counting_allocate, counting_release, &c};
    lib_arena_init(&arena, &allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_arena_take(&arena, 1);
        if (alignment)
            lib_arena_take_aligned(&arena, count, alignment);
        else
            lib_arena_array(&arena, count, size);
    }
    lib_arena_free(&arena);
    return scope.error.status == DLC_OUT_OF_MEMORY && c.live == 0;
}

static void test_arena_overflow(void **state) {
    (void)state;
    assert_true(refuses(SIZE_MAX / 8 + 2, 8, 0));
    assert_true(refuses((size_t)1 << 32, (size_t)1 << 32, 0));
    for (size_t below = 0; below < 70; below++) {
        assert_true(refuses(SIZE_MAX - below, 1, 0));
        assert_true(refuses(SIZE_MAX - below, 1, 16));
        assert_true(refuses(SIZE_MAX - below, 1, 4096));
    }
}

/* ---- environment, log ------------------------------------------------------------------------------------------- */

static void test_environment(void **state) {
    (void)state;
    unsetenv("DLC_DEBUG");
    unsetenv("DLC_SEED");
    assert_string_equal(lib_environment_get(LIB_ENV_DEBUG), "");
    assert_string_equal(lib_environment_get(LIB_ENV_SEED), "1");
    assert_true(lib_environment_integer(LIB_ENV_SEED, 9) == 1);
    assert_true(lib_environment_integer(LIB_ENV_THREADS, -3) == -3);
    static const char *const bad[] = {"x", "12x", "99999999999999999999", " ", "0x"};
    for (int i = 0; i < 5; i++) {
        setenv("DLC_SEED", bad[i], 1);
        assert_true(lib_environment_integer(LIB_ENV_SEED, 9) == 9);
    }
    setenv("DLC_SEED", "-0x10", 1);
    assert_true(lib_environment_integer(LIB_ENV_SEED, 9) == -16);
    setenv("DLC_SEED", "", 1);
    assert_string_equal(lib_environment_get(LIB_ENV_SEED), "1");
    setenv("DLC_DEBUG", "loops, graph,,plans", 1);
    assert_true(lib_environment_lists(LIB_ENV_DEBUG, "loops"));
    assert_true(lib_environment_lists(LIB_ENV_DEBUG, "graph"));
    assert_false(lib_environment_lists(LIB_ENV_DEBUG, "plan"));
    assert_false(lib_environment_lists(LIB_ENV_DEBUG, "loop"));
    assert_false(lib_environment_lists(LIB_ENV_DEBUG, ""));
    unsetenv("DLC_DEBUG");
    unsetenv("DLC_SEED");
    lib_scope scope;
    lib_arena arena;
    lib_text text;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_text_init(&text, &arena);
        lib_environment_help(&text);
#define X(id, name, default_, words, doc)     \
    assert_non_null(strstr(text.data, name)); \
    assert_non_null(strstr(text.data, doc));
        LIB_ENVIRONMENT_TABLE(X)
#undef X
    }
    lib_arena_free(&arena);
}

static void keep_lines(void *user, const char *line) {
    char *all = user;
    size_t length = strlen(line);
    assert_true(length < LIB_MESSAGE_MAX);
    memcpy(all + strlen(all), line, length + 1);
    strcat(all, "|");
}

static void test_misspelt(void **state) {
    (void)state;
    static char all[4000];
    lib_log log = {keep_lines, all};
    static const struct {
        const char *name, *value, *line;
    } cases[] = {
        {"DLC_CPU_FEATURES", "avx3",
         "dlc: DLC_CPU_FEATURES: there is no avx3; expected some of: sse2 avx2 avx512; did you mean \"avx2\"?|"},
        {"DLC_VERIFY", "3", "dlc: DLC_VERIFY: there is no 3; expected some of: 0 1 2|"},
        {"DLC_VERIFY", "2", ""},
        {"DLC_DEBUG", "loops,,plans, help", "dlc: DLC_DEBUG: there is no plans; "},
        {"DLC_THREADS", "four", "dlc: DLC_THREADS=four: expected a number|"},
        {"DLC_CPU_CACHES", "32,1024", "dlc: DLC_CPU_CACHES=32,1024: expected three numbers, as in 32,1024,8192|"},
        {"DLC_CPU_CACHES", "32,0,1", "dlc: DLC_CPU_CACHES=32,0,1: expected three numbers, as in 32,1024,8192|"},
        {"DLC_CPU_CACHES", "32,1024,8192", ""},
        {"DLC_CPU_FEATURES", "avx2", ""},
        {"DLC_DEBUG", "loops,plan", ""},
        {"DLC_THREADS", "0", ""},
        {"DLC_THREADS", "1", ""},
        {"DLC_CPU", "anything", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *before = getenv(cases[i].name);
        char *kept = before ? strdup(before) : NULL;
        all[0] = 0;
        setenv(cases[i].name, cases[i].value, 1);
        lib_environment_check(&log);
        if (cases[i].line[0])
            assert_non_null(strstr(all, cases[i].line));
        else
            assert_null(strstr(all, cases[i].name));
        kept ? setenv(cases[i].name, kept, 1) : unsetenv(cases[i].name);
        free(kept);
    }
}

static void test_log(void **state) {
    (void)state;
    static char all[10000];
    lib_log log = {keep_lines, all}, none = {NULL, NULL};
    lib_log_write(NULL, "%d", 1);
    lib_log_write(&none, "%d", 1);
    lib_log_lines(&none, "x");
    lib_log_write(&log, "%d-%s", 1, "a");
    lib_log_lines(&log, "first\n\nthird");
    lib_log_lines(&log, "");
    lib_log_lines(&log, "last\n");
    assert_string_equal(all, "1-a|first||third|last|");
    all[0] = 0;
    char text[2500];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    lib_log_lines(&log, text);
    assert_int_equal(strlen(all), sizeof text - 1 + 3);
    all[0] = 0;
    text[LIB_MESSAGE_MAX - 1] = '\n'; /* a line that just fits is one line */
    lib_log_lines(&log, text);
    assert_int_equal(strcspn(all, "|"), LIB_MESSAGE_MAX - 1);
    assert_int_equal(all[LIB_MESSAGE_MAX], 'x');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),       cmocka_unit_test(test_errors),      cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_allocate),    cmocka_unit_test(test_arena),       cmocka_unit_test(test_arena_refused),
        cmocka_unit_test(test_arena_owns),  cmocka_unit_test(test_arena_reset), cmocka_unit_test(test_arena_overflow),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_misspelt),    cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests_name("lib/memory", tests, NULL, NULL);
}
