/* Sorts of the cuda target at sizes that conformance does not reach: schedules of its rules, interpreted with all checks, against qsort, and
 * how often memory is looked at. */
#include "targets/cuda/cuda.h"
#include "test/share.h"
#include "tir/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

typedef struct element {
    uint32_t key;
    int32_t number;
} element;

static int compare(const void *one, const void *other) {
    const element *a = one, *b = other;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

typedef struct sorted {
    /* of a warp, to shared memory and to the device's */
    double accesses;
    /* bytes */
    int64_t workspace;
    uint32_t phases;
} sorted;

/* Sizes and ranges of parameters as text; wanted: of a line. */
static tir_kernel *make_kernel(lib_arena *arena, const char *params, const char *lines, const char *n,
                               const char *wanted) {
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_machine machine;
    tir_schedule schedule;
    lib_lexer lexer;
    tir_pool_init(pool, arena);
    const char *text = lib_arena_format(arena,
                                        "region r%s\ninput x i32[%s, %s]\n"
                                        "sort S i32 exact (b: %s, t: %s | i: %s) key 32 x[b, i] = cast.i32(i)\n"
                                        "output S\n",
                                        params, lines, n, lines, wanted, n);
    lib_lexer_init(&lexer, arena, "region", text, strlen(text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    assert_true(cuda_machine_of_name("sm_90", &machine));
    tir_schedule_init(&schedule, arena);
    cuda_schedule(&machine, 1, tir_region_copy(arena, region), &schedule);
    return tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true});
}

/* Sorts lines of n random numbers below `different` and compares the first ones of each. */
static void run_kernel(lib_arena *arena, tir_kernel *kernel, const int64_t *params, int64_t lines, int64_t n,
                       int64_t wanted, uint32_t different, tir_bank_report *banks) {
    uint32_t *x = lib_arena_take_aligned(arena, (size_t)(lines * n) * sizeof *x + 1, 64), random = 1;
    int32_t *order = lib_arena_take_aligned(arena, (size_t)(lines * wanted) * sizeof *order + 1, 64);
    for (int64_t i = 0; i < lines * n; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (random >> 8) % different;
    }
    lib_error error;
    const tir_interpret_options options = {.check = true, .banks = banks, .stored_once = true};
    if (tir_interpret(kernel, (void *[]){x, order}, params, &options, &lib_libc_allocator, &error))
        lib_raise(arena->scope, DLC_INTERNAL, "%lld lines of %lld: %s", (long long)lines, (long long)n, error.message);
    element *expected = LIB_NEW_ARRAY(arena, element, (size_t)n + 1);
    for (int64_t line = 0; line < lines; line++) {
        for (int64_t i = 0; i < n; i++) expected[i] = (element){x[line * n + i], (int32_t)i};
        qsort(expected, (size_t)n, sizeof *expected, compare);
        for (int64_t t = 0; t < wanted; t++)
            if (order[line * wanted + t] != expected[t].number)
                lib_raise(arena->scope, DLC_INTERNAL, "line %lld of %lld, place %lld: element %d, expected %d",
                          (long long)line, (long long)n, (long long)t, (int)order[line * wanted + t],
                          (int)expected[t].number);
    }
}

static const char *text_of(lib_arena *arena, int64_t number) {
    return lib_arena_format(arena, "%lld", (long long)number);
}

static void run_sort(lib_arena *arena, int64_t lines, int64_t n, int64_t wanted, uint32_t different, bool count,
                     sorted *result) {
    tir_bank_report banks = {0};
    tir_kernel *kernel = make_kernel(arena, "", text_of(arena, lines), text_of(arena, n), text_of(arena, wanted));
    run_kernel(arena, kernel, NULL, lines, n, wanted, different, count ? &banks : NULL);
    *result = (sorted){(double)(banks.accesses + banks.requests), kernel->workspace_bytes, kernel->phases.count};
}

static sorted check_sort(int64_t lines, int64_t n, int64_t wanted, uint32_t different, bool count) {
    lib_scope scope;
    lib_arena arena;
    sorted result = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope))
        run_sort(&arena, lines, n, wanted, different, count, &result);
    else
        fail_msg("%s", scope.error.message);
    lib_arena_free(&arena);
    return result;
}

/* One phase for the runs that blocks make, one for each doubling, one for the results. */
static void test_long_line(void **state) {
    (void)state;
    if (test_is_shortest()) skip();
    const sorted one = check_sort(1, 100003, 100003, 5000, false);
    assert_int_equal(one.phases, 1 + 7 + 1);
    assert_in_range(one.workspace, 1, 24 * 100003); /* keys and numbers of two passes, with room for halves of runs */
}

/* Short lines share a block. */
static void test_many_lines(void **state) {
    static const int64_t length[] = {1, 2, 3, 31, 97, 128, 1021};
    (void)state;
    for (size_t i = 0; i < sizeof length / sizeof *length; i += test_is_shortest() ? 5 : test_is_short() ? 3 : 1)
        check_sort(67, length[i], length[i], 17, false);
}

/* Accesses of an element grow as the square of the logarithm. */
static void test_accesses(void **state) {
    (void)state;
    const int64_t longest = test_every() > 1 ? 4096 : 16384;
    for (int64_t n = 1024; n <= longest; n *= 4) {
        const double accesses = check_sort(1, n, n, 1u << 24, true).accesses * TIR_WARP / (double)n;
        const double steps = log2((double)n) * log2((double)n);
        if (accesses > 2 * steps) fail_msg("%lld elements: %g accesses each", (long long)n, accesses);
    }
}

/* The first few: runs hold no more than these. */
static void test_first(void **state) {
    (void)state;
    const double some = check_sort(2, 9001, 10, 1u << 24, true).accesses;
    const double all = check_sort(2, 9001, 9001, 1u << 24, true).accesses;
    if (!test_is_shortest()) check_sort(3, 5003, 1, 100, false);
    check_sort(3, 5003, 1500, 100, false);
    if (some * 2 > all) fail_msg("%g accesses for 10 of 9,001, %g for all", some, all);
}

/* One kernel for lines of any length, of any number, and both. */
static void run_varying(lib_arena *arena) {
    static const int64_t length[] = {0, 1, 2, 3, 31, 64, 1000, 1023, 1024, 1025, 2047, 2049, 3001};
    const int count = sizeof length / sizeof *length, every = test_is_shortest() ? 9
                                                              : test_is_short()  ? 6
                                                              : test_every() > 1 ? 4
                                                                                 : 1;
    tir_kernel *any_length = make_kernel(arena, " params(n: 0..5000)", "3", "n", "n");
    for (int i = 0; i < count; i += every)
        run_kernel(arena, any_length, &length[i], 3, length[i], length[i], 300, NULL);
    tir_kernel *any_number = make_kernel(arena, " params(n: 0..5000)", "n", "37", "37");
    for (int i = 0; i < 7; i += every) run_kernel(arena, any_number, &length[i], length[i], 37, 37, 17, NULL);
    tir_kernel *both = make_kernel(arena, " params(m: 0..100, n: 0..9000)", "m", "n", "n");
    for (int i = 0; i < count; i += every) {
        int64_t params[] = {i % 4, length[i]};
        run_kernel(arena, both, params, params[0], params[1], params[1], 1u << 24, NULL);
    }
    tir_kernel *first = make_kernel(arena, " params(n: 10..5000)", "2", "n", "10");
    for (int i = 4; i < count; i += every) run_kernel(arena, first, &length[i], 2, length[i], 10, 300, NULL);
    tir_kernel *unbounded = make_kernel(arena, " params(n: 0..1099511627776)", "2", "n", "n");
    for (int i = 0; i < count; i += every) run_kernel(arena, unbounded, &length[i], 2, length[i], length[i], 300, NULL);
}

static void test_varying(void **state) {
    lib_scope scope;
    lib_arena arena;
    (void)state;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope))
        run_varying(&arena);
    else
        fail_msg("%s", scope.error.message);
    lib_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_line), cmocka_unit_test(test_many_lines), cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_first),     cmocka_unit_test(test_varying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
