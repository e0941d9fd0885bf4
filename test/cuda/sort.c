/* Sorts of the cuda target at sizes that conformance does not reach: schedules of its rules, interpreted with all checks, against qsort, and
 * how often memory is looked at. */
#include "targets/cuda/cuda.h"
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
    double accesses;   /* of a warp, to shared memory and to the device's */
    int64_t workspace; /* bytes */
    uint32_t phases;
} sorted;

static tir_kernel *make_kernel(lib_arena *arena, int64_t lines, int64_t n, int64_t wanted) {
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_machine machine;
    tir_schedule schedule;
    lib_lexer lexer;
    tir_pool_init(pool, arena);
    const char *text =
        lib_arena_format(arena,
                         "region r\ninput x i32[%lld, %lld]\n"
                         "sort S i32 exact (b: %lld, t: %lld | i: %lld) key 32 x[b, i] = cast.i32(i)\n"
                         "output S\n",
                         (long long)lines, (long long)n, (long long)lines, (long long)wanted, (long long)n);
    lib_lexer_init(&lexer, arena, "region", text, strlen(text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    assert_true(cuda_machine_of_name("sm_90", &machine));
    tir_schedule_init(&schedule, arena);
    cuda_schedule(&machine, 1, tir_region_copy(arena, region), &schedule);
    return tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true});
}

/* Sorts lines of n random numbers below `different` and compares the first ones of each. */
static void run_sort(lib_arena *arena, int64_t lines, int64_t n, int64_t wanted, uint32_t different, bool count,
                     sorted *result) {
    tir_kernel *kernel = make_kernel(arena, lines, n, wanted);
    uint32_t *x = lib_arena_take_aligned(arena, (size_t)(lines * n) * sizeof *x + 1, 64), random = 1;
    int32_t *order = lib_arena_take_aligned(arena, (size_t)(lines * wanted) * sizeof *order + 1, 64);
    for (int64_t i = 0; i < lines * n; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (random >> 8) % different;
    }
    tir_bank_report banks = {0};
    lib_error error;
    const tir_interpret_options options = {.check = true, .banks = count ? &banks : NULL, .stored_once = true};
    if (tir_interpret(kernel, (void *[]){x, order}, NULL, &options, &lib_libc_allocator, &error))
        lib_raise(arena->scope, DLC_INTERNAL, "%s", error.message);
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
    const sorted one = check_sort(1, 100003, 100003, 5000, false);
    assert_int_equal(one.phases, 1 + 7 + 1);
    assert_in_range(one.workspace, 1, 24 * 100003); /* keys and numbers of two passes, with room for halves of runs */
}

/* Short lines share a block. */
static void test_many_lines(void **state) {
    static const int64_t length[] = {1, 2, 3, 31, 97, 128, 1021};
    (void)state;
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) check_sort(67, length[i], length[i], 17, false);
}

/* Accesses of an element grow as the square of the logarithm. */
static void test_accesses(void **state) {
    (void)state;
    for (int64_t n = 1024; n <= 16384; n *= 4) {
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
    check_sort(3, 5003, 1, 100, false);
    check_sort(3, 5003, 1500, 100, false);
    if (some * 2 > all) fail_msg("%g accesses for 10 of 9,001, %g for all", some, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_many_lines),
        cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
