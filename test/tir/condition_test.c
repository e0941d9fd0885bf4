/* Conditions on positions and a loaded integer as comparisons of indices: for random conditions, of every integer type, the same for each
 * position and each value of the integer, of which 8 bits have all, others those where anything changes. */
#include "test/share.h"
#include "tir/arith.h"
#include "tir/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

enum { ROWS = 5, COLUMNS = 9, CONDITIONS = 600, VALUES_MOST = 256 };

static lib_scope scope;
static lib_arena arena;
static tir_pool pool;
static tir_expr row, column;
static uint64_t loaded, state = 5;

static int chance(int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

static uint64_t load(void *user, const tir_node *node, const int64_t *index) {
    (void)user;
    (void)index;
    return tir_bits_load(node->dtype, &loaded);
}

/* One side of a random comparison: an iteration variable, a constant, a loaded element, possibly of a narrower type, or
 * the minimum of a loaded element and a constant. */
static tir_expr term(dlc_dtype dtype, bool data) {
    const tir_dtype type = (tir_dtype)dtype;
    const dlc_dtype narrow = lib_dtypes[dtype].class_ == 'u' ? DLC_U8 : DLC_I8;
    switch (chance(data ? 7 : 4)) {
    case 0: return tir_cast(&pool, type, row);
    case 1:
    case 2: return tir_cast(&pool, type, column);
    case 3: return tir_int(&pool, type, chance(12) - (lib_dtypes[dtype].class_ == 'u' ? 0 : 6));
    case 4: return tir_min(&pool, tir_load(&pool, 0, type, 0, NULL, 0, 0), tir_int(&pool, type, chance(9)));
    case 5: return tir_cast(&pool, type, tir_load(&pool, 0, (tir_dtype)narrow, 0, NULL, 0, 0));
    default: return tir_load(&pool, 0, type, 0, NULL, 0, 0);
    }
}

static tir_expr side(dlc_dtype dtype, bool data) {
    tir_expr e = term(dtype, data);
    for (int more = chance(3); more > 0; more--)
        e = tir_binary(&pool, chance(3) ? TIR_ADD : TIR_SUB, e, term(dtype, data));
    return e;
}

static tir_expr condition(dlc_dtype dtype, int depth) {
    if (depth > 0 && chance(3) == 0) {
        tir_expr a = condition(dtype, depth - 1), b = condition(dtype, depth - 1);
        return tir_binary(&pool, chance(2) ? TIR_AND : TIR_OR, a, b);
    }
    if (depth > 0 && chance(3) == 0) return tir_unary(&pool, TIR_NOT, condition(dtype, depth - 1));
    const bool left = chance(2);
    tir_expr a = side(dtype, left || chance(6) == 0), b = side(dtype, !left || chance(6) == 0);
    return tir_binary(&pool, chance(2) ? TIR_LT : TIR_LE, a, b);
}

/* What to load: all of 8 bits; else the ends of the type, what is about 0, and what no position comes near. */
static int values_of(dlc_dtype dtype, uint64_t *values) {
    const int bits = lib_dtypes[dtype].bits;
    int count = 0;
    if (bits == 8)
        for (uint64_t v = 0; v < VALUES_MOST; v++) values[count++] = v;
    for (int v = -40; v <= 40 && bits > 8; v++)
        values[count++] = (uint64_t)(int64_t)v; /* the greatest, of unsigned ones */
    for (int v = -20; v <= 20 && bits > 8; v++)
        values[count++] = (UINT64_C(1) << (bits - 1)) + (uint64_t)(int64_t)v; /* where signs change */
    if (bits > 8) values[count++] = UINT64_C(123456789), values[count++] = ~UINT64_C(123456789);
    return count;
}

static bool has_index_comparison(tir_expr e) {
    const tir_node *node = tir_get(&pool, e);
    if (node->dtype == DLC_BOOL && node->count == 2 && tir_dtype_of(&pool, tir_operand(&pool, e, 0)) == TIR_INDEX)
        return true;
    for (int i = 0; i < node->count && node->dtype == DLC_BOOL; i++)
        if (has_index_comparison(tir_operand(&pool, e, i))) return true;
    return false;
}

static void test_conditions(void **unused) {
    (void)unused;
    static const dlc_dtype dtypes[] = {DLC_I64, DLC_I32, DLC_I16, DLC_I8, DLC_U64, DLC_U32, DLC_U16, DLC_U8};
    const int conditions = test_some(CONDITIONS);
    int converted = 0;
    for (int n = 0; n < conditions; n++) {
        const dlc_dtype dtype = dtypes[n % 8];
        const bool negate = chance(2);
        uint64_t values[VALUES_MOST], variables[8] = {0};
        tir_pool_init(&pool, &arena);
        row = tir_var(&pool, "i", TIR_VAR_AXIS, TIR_INDEX, 0, ROWS - 1);
        column = tir_var(&pool, "j", TIR_VAR_AXIS, TIR_INDEX, 0, COLUMNS - 1);
        const tir_expr given = condition(dtype, 2), found = tir_index_condition(&pool, given, negate);
        converted += found != given && has_index_comparison(found) && !has_index_comparison(given);
        const int count = values_of(dtype, values);
        for (int v = 0; v < count; v++)
            for (int at = 0; at < ROWS * COLUMNS; at++) {
                loaded = values[v];
                variables[tir_var_id(&pool, row)] = (uint64_t)(at / COLUMNS);
                variables[tir_var_id(&pool, column)] = (uint64_t)(at % COLUMNS);
                const tir_evaluator evaluator = {.variables = variables, .load = load};
                const bool expected = (tir_evaluate(&pool, given, &evaluator) & 1) != negate;
                if ((tir_evaluate(&pool, found, &evaluator) & 1) == expected) continue;
                lib_text text;
                lib_text_init(&text, &arena);
                tir_print_expr(&text, &pool, given, (const char *const[]){"x"});
                lib_text_format(&text, "   ->   %s", negate ? "not " : "");
                tir_print_expr(&text, &pool, found, (const char *const[]){"x"});
                print_error("%s, i=%d j=%d x=%llx\n", text.data, at / COLUMNS, at % COLUMNS,
                            (unsigned long long)loaded);
                fail();
            }
    }
    print_message("%d of %d conditions became comparisons of indices\n", converted, conditions);
    assert_true(4 * converted > conditions);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conditions)};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lib_arena_free(&arena);
    return failed;
}
