/* Layouts: for random digit systems, physical indices are within physical extents, distinct for distinct points, and
 * fill the padded box; text round trip; what is not a bijection is refused. */
#include "tir/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

static lib_scope scope;
static lib_arena arena;
static const char *const dims[] = {"i", "j", "k"};

static int setup(void **unused) {
    (void)unused;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    return 0;
}

static int teardown(void **unused) {
    (void)unused;
    lib_arena_free(&arena);
    return 0;
}

static tir_layout parsed(const char *text, int rank) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &arena, "<test>", text, strlen(text));
    lib_lexer_next(&lexer);
    tir_layout layout = tir_layout_parse(&lexer, rank, dims);
    assert_int_equal(lexer.kind, LIB_END);
    return layout;
}

static uint64_t state = 3;
static int chance(int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

/* Each dim has 1 to 3 digits; the digits of all dims are shuffled. */
static tir_layout random_layout(int rank) {
    tir_layout layout = {.rank = (int16_t)rank};
    for (int dim = 0; dim < rank; dim++) {
        int digits = 1 + chance(3), divisor = 1;
        for (int digit = 0; digit < digits; digit++) {
            int modulus = digit + 1 < digits ? 2 + chance(3) : 0;
            layout.part[layout.count++] = (tir_layout_part){(int16_t)dim, divisor, modulus};
            divisor *= modulus;
        }
    }
    for (int at = layout.count - 1; at > 0; at--) {
        int with = chance(at + 1);
        tir_layout_part swap = layout.part[at];
        layout.part[at] = layout.part[with];
        layout.part[with] = swap;
    }
    return layout;
}

static int64_t constant_of(const tir_pool *pool, tir_expr e) {
    int64_t value = -1;
    assert_true(tir_is_const(pool, e, &value));
    return value;
}

static void check_bijection(tir_pool *pool, const tir_layout *layout, const int64_t *shape) {
    tir_expr extents[3], padded[3], index[3], physical_extents[TIR_MAX_PHYSICAL], physical[TIR_MAX_PHYSICAL];
    int64_t box = 1, sizes[TIR_MAX_PHYSICAL], total = 1;
    for (int dim = 0; dim < layout->rank; dim++) {
        extents[dim] = tir_index(pool, shape[dim]);
        padded[dim] = tir_layout_padded(pool, layout, dim, extents[dim]);
        box *= constant_of(pool, padded[dim]);
        assert_true(constant_of(pool, padded[dim]) >= shape[dim]);
    }
    tir_layout_extents(pool, layout, extents, physical_extents);
    int rank = tir_layout_physical_rank(layout);
    for (int at = 0; at < rank; at++) total *= sizes[at] = constant_of(pool, physical_extents[at]);
    assert_int_equal(total, box);
    unsigned char *seen = calloc((size_t)total, 1);
    for (int64_t point = 0; point < box; point++) {
        int64_t rest = point, flat = 0;
        for (int dim = 0; dim < layout->rank; dim++) {
            int64_t extent = constant_of(pool, padded[dim]);
            index[dim] = tir_index(pool, rest % extent);
            rest /= extent;
        }
        tir_layout_indices(pool, layout, index, physical);
        for (int at = 0; at < rank; at++) {
            int64_t value = constant_of(pool, physical[at]);
            assert_true(value >= 0 && value < sizes[at]);
            flat = flat * sizes[at] + value;
        }
        assert_int_equal(seen[flat]++, 0);
    }
    free(seen);
}

static void random_layouts(void **unused) {
    (void)unused;
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    for (int round = 0; round < 300; round++) {
        tir_pool pool;
        tir_pool_init(&pool, &arena);
        int rank = 1 + chance(3);
        tir_layout layout = random_layout(rank);
        tir_layout_verify(&scope, &layout, "x");
        int64_t shape[3] = {1 + chance(9), 1 + chance(9), 1 + chance(9)};
        check_bijection(&pool, &layout, shape);
        layout.swizzle = chance(2) * 128;
        lib_text text;
        lib_text_init(&text, &arena);
        tir_layout_print(&text, &layout, dims);
        tir_layout again = parsed(text.data, rank);
        assert_true(tir_layout_equal(&layout, &again));
    }
}

static void symbolic(void **unused) {
    (void)unused;
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    tir_pool pool;
    tir_pool_init(&pool, &arena);
    tir_layout layout = parsed("(j/48, i, j%48)", 2);
    tir_expr n = tir_var(&pool, "n", TIR_VAR_PARAM, TIR_INDEX, 1, 100000);
    tir_expr io = tir_var(&pool, "io", TIR_VAR_LOOP, TIR_INDEX, 0, 9),
             ji = tir_var(&pool, "ji", TIR_VAR_LOOP, TIR_INDEX, 0, 47);
    tir_expr logical[2] = {n, tir_add(&pool, tir_mul(&pool, io, tir_index(&pool, 48)), ji)}, physical[3];
    tir_layout_indices(&pool, &layout, logical, physical);
    assert_int_equal(physical[0], io); /* the tile divides the panel: no division is left */
    assert_int_equal(physical[1], n);
    assert_int_equal(physical[2], ji);
    logical[1] = n;
    tir_layout_extents(&pool, &layout, logical, physical);
    assert_int_equal(physical[0], tir_ceil_div(&pool, n, tir_index(&pool, 48)));
    assert_int_equal(physical[2], tir_index(&pool, 48));
    assert_int_equal(tir_multiple_of(&pool, tir_layout_padded(&pool, &layout, 1, n)), 48);
    assert_int_equal(tir_layout_padded(&pool, &layout, 0, n), n);
}

static void identity(void **unused) {
    (void)unused;
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    tir_layout a = tir_layout_identity(3), b = parsed("(i, j, k)", 3), c = parsed("(i, k, j)", 3);
    tir_layout spelled = {.rank = 2, .count = 2, .part = {{0, 1, 0}, {1, 1, 0}}}, two = tir_layout_identity(2);
    assert_true(tir_layout_is_identity(&a) && tir_layout_is_identity(&b) && tir_layout_is_identity(&spelled));
    assert_false(tir_layout_is_identity(&c));
    assert_true(tir_layout_equal(&a, &b) && tir_layout_equal(&spelled, &two));
    assert_false(tir_layout_equal(&a, &c) || tir_layout_equal(&a, &two));
    assert_int_equal(tir_layout_physical_rank(&a), 3);
    tir_layout scalar = parsed("()", 0);
    assert_true(tir_layout_is_identity(&scalar));
}

static void refuse(const char *text, const char *message) {
    if (LIB_ENTER(&scope)) {
        parsed(text, 2);
        fail_msg("'%s' was accepted", text);
    }
    if (!strstr(scope.error.message, message)) fail_msg("'%s' gave: %s", text, scope.error.message);
}

static void not_bijections(void **unused) {
    (void)unused;
    refuse("(i)", "dim 1 has no part with divisor 1");
    refuse("(i, j, j)", "1 of its 3 parts repeat others");
    refuse("(i, j%4)", "dim 1 has no part with divisor 4");
    refuse("(i, j/4)", "dim 1 has no part with divisor 1");
    refuse("(i, j/8, j%4)", "dim 1 has no part with divisor 4");
    refuse("(i, j/2, j%4)", "dim 1 has no part with divisor 4");
    refuse("(i, j/0)", "expected a number");
    refuse("(i, j, j%1)", "");
    refuse("(i, j/1%1)", "");
    refuse("(i, q)", "expected the name of a dimension");
    refuse("()", "no parts");
    refuse("(i, j/99999999999)", "expected a number");
    refuse("(i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i)", "more than 16 parts");
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(random_layouts), TEST(symbolic), TEST(identity), TEST(not_bijections)};
    return cmocka_run_group_tests_name("tir/layout", tests, NULL, NULL);
}
