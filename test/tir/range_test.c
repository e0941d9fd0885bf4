/* Index algebra against brute force: random expressions over small boxes are evaluated at every point from a tree of
 * their own and from what the pool made of them; ranges, multiples and proofs must hold at every point. */
#include "test/share.h"
#include "tir/expr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

/* ---- trees: what was asked for, with an evaluator that shares nothing with the library */

enum { VARS = 5 };
static const int64_t var_low[VARS] = {0, 0, -3, 1, 0};
static const int64_t var_high[VARS] = {5, 6, 4, 4, 24};
static const int64_t var_step[VARS] = {1, 1, 1, 1, 8};
static const char *const var_name[VARS] = {"i", "j", "k", "n", "m"};

typedef struct tree {
    /* CONST, VAR or an operator */
    tir_op op;
    int64_t value;
    struct tree *a, *b, *c;
} tree;

typedef struct state {
    uint64_t seed;
    tree nodes[4096];
    int used, rounds;
    lib_scope scope;
    lib_arena arena;
    tir_pool pool;
    tir_expr vars[VARS];
} state;

static uint64_t next(state *s) {
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return s->seed;
}

static int64_t pick(state *s, int64_t below) {
    return (int64_t)(next(s) % (uint64_t)below);
}

static tree *make(state *s, tir_op op, int64_t value, tree *a, tree *b, tree *c) {
    tree *t = &s->nodes[s->used++];
    assert_true(s->used < 4096);
    *t = (tree){op, value, a, b, c};
    return t;
}

static tree *number(state *s, int64_t value) {
    return make(s, TIR_CONST, value, NULL, NULL, NULL);
}

static int64_t a_divisor(state *s) {
    static const int64_t divisors[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24};
    return divisors[pick(s, 10)];
}

static tree *grow(state *s, int depth) {
    if (depth == 0) {
        if (pick(s, 4) == 0) return number(s, pick(s, 33) - 16);
        return make(s, TIR_VAR, pick(s, VARS), NULL, NULL, NULL);
    }
    tree *a = grow(s, depth - 1), *b;
    int64_t c = a_divisor(s), d = a_divisor(s);
    switch (pick(s, 16)) {
    case 0:
    case 1: return make(s, TIR_ADD, 0, a, grow(s, depth - 1), NULL);
    case 2: return make(s, TIR_SUB, 0, a, grow(s, depth - 1), NULL);
    case 3:
    case 4: return make(s, TIR_MUL, 0, a, number(s, c), NULL);
    case 5: return make(s, TIR_DIV, 0, a, number(s, c), NULL);
    case 6: return make(s, TIR_REM, 0, a, number(s, c), NULL);
    case 7: return make(s, TIR_MIN, 0, a, grow(s, depth - 1), NULL);
    case 8: return make(s, TIR_MAX, 0, a, grow(s, depth - 1), NULL);
    case 9: /* (a / c) * c + a % c */
        b = make(s, TIR_MUL, 0, make(s, TIR_DIV, 0, a, number(s, c), NULL), number(s, c), NULL);
        return make(s, TIR_ADD, 0, b, make(s, TIR_REM, 0, a, number(s, c), NULL), NULL);
    case 10: /* (a / c % d) * c + a % c */
        b = make(s, TIR_REM, 0, make(s, TIR_DIV, 0, a, number(s, c), NULL), number(s, d), NULL);
        b = make(s, TIR_MUL, 0, b, number(s, c), NULL);
        return make(s, TIR_ADD, 0, b, make(s, TIR_REM, 0, a, number(s, c), NULL), NULL);
    case 11: /* a - (a / c) * c */
        b = make(s, TIR_MUL, 0, make(s, TIR_DIV, 0, a, number(s, c), NULL), number(s, c), NULL);
        return make(s, TIR_SUB, 0, a, b, NULL);
    case 12: /* (a * c + b % c) / c */
        b = make(s, TIR_REM, 0, grow(s, depth - 1), number(s, c), NULL);
        b = make(s, TIR_ADD, 0, make(s, TIR_MUL, 0, a, number(s, c), NULL), b, NULL);
        return make(s, pick(s, 2) ? TIR_DIV : TIR_REM, 0, b, number(s, c * (1 + pick(s, 2))), NULL);
    case 13: return make(s, TIR_MUL, 0, a, grow(s, depth - 1), NULL);
    case 14: { /* a * n + b, by n */
        tree *n = make(s, TIR_VAR, 3, NULL, NULL, NULL);
        b = make(s, TIR_ADD, 0, make(s, TIR_MUL, 0, a, n, NULL), grow(s, depth - 1), NULL);
        return make(s, pick(s, 2) ? TIR_DIV : TIR_REM, 0, b, n, NULL);
    }
    default:
        b = make(s, pick(s, 2) ? TIR_LT : TIR_EQ, 0, grow(s, depth - 1), grow(s, depth - 1), NULL);
        return make(s, TIR_SELECT, 0, b, a, grow(s, depth - 1));
    }
}

static int64_t floor_of(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q * b > a ? q - 1 : q;
}

static int64_t value_of(const tree *t, const int64_t *at) {
    if (t->op == TIR_CONST) return t->value;
    if (t->op == TIR_VAR) return at[t->value];
    int64_t a = value_of(t->a, at), b = value_of(t->b, at);
    switch ((int)t->op) {
    case TIR_ADD: return a + b;
    case TIR_SUB: return a - b;
    case TIR_MUL: return a * b;
    case TIR_DIV: return floor_of(a, b);
    case TIR_REM: return a - b * floor_of(a, b);
    case TIR_MIN: return a < b ? a : b;
    case TIR_MAX: return a > b ? a : b;
    case TIR_LT: return a < b;
    case TIR_LE: return a <= b;
    case TIR_EQ: return a == b;
    case TIR_NE: return a != b;
    default: return a ? b : value_of(t->c, at);
    }
}

static tir_expr built(state *s, const tree *t) {
    if (t->op == TIR_CONST) return tir_index(&s->pool, t->value);
    if (t->op == TIR_VAR) return s->vars[t->value];
    if (t->op == TIR_SELECT) return tir_select(&s->pool, built(s, t->a), built(s, t->b), built(s, t->c));
    return tir_binary(&s->pool, t->op, built(s, t->a), built(s, t->b));
}

/* ---- all points of the box */

static void first_point(int64_t *at) {
    memcpy(at, var_low, sizeof var_low);
}

static bool next_point(int64_t *at) {
    for (int v = 0; v < VARS; v++) {
        at[v] += var_step[v];
        if (at[v] <= var_high[v]) return true;
        at[v] = var_low[v];
    }
    return false;
}

static void open_pool(state *s) {
    lib_arena_init(&s->arena, &lib_libc_allocator, &s->scope);
    tir_pool_init(&s->pool, &s->arena);
    for (int v = 0; v < VARS; v++) {
        s->vars[v] =
            tir_var(&s->pool, var_name[v], v == 3 ? TIR_VAR_PARAM : TIR_VAR_AXIS, TIR_INDEX, var_low[v], var_high[v]);
        s->pool.variables.data[v].multiple = var_step[v];
    }
    s->used = 0;
}

static void show(state *s, tir_expr e, const int64_t *at, int64_t want, int64_t got) {
    lib_text text;
    lib_text_init(&text, &s->arena);
    tir_print_expr(&text, &s->pool, e, NULL);
    fail_msg("%s at i=%d j=%d k=%d n=%d m=%d: want %lld got %lld", text.data, (int)at[0], (int)at[1], (int)at[2],
             (int)at[3], (int)at[4], (long long)want, (long long)got);
}

/* Every fifth point, at another offset each time, and the corners by chance: enough, and five times as many
 * expressions. */
static void check_value(state *s, const tree *t, tir_expr e) {
    int64_t at[VARS], constant;
    tir_interval range = tir_range(&s->pool, e);
    int64_t multiple = tir_multiple_of(&s->pool, e);
    tir_term terms[64];
    int count = tir_terms(&s->pool, e, terms, 64, &constant);
    for (int i = 0; i < count; i++) {
        assert_int_not_equal(terms[i].coefficient, 0);
        assert_int_not_equal(tir_op_of(&s->pool, terms[i].atom), TIR_ADD);
        assert_int_not_equal(tir_op_of(&s->pool, terms[i].atom), TIR_CONST);
        if (i) assert_true(terms[i - 1].atom < terms[i].atom);
    }
    int64_t phase = pick(s, 5), n = 0;
    first_point(at);
    do {
        if (n++ % 5 != phase) continue;
        uint64_t values[VARS];
        for (int v = 0; v < VARS; v++) values[v] = (uint64_t)at[v];
        tir_evaluator evaluator = {.variables = values};
        int64_t want = value_of(t, at), got = (int64_t)tir_evaluate(&s->pool, e, &evaluator);
        if (want != got) show(s, e, at, want, got);
        if (want < range.low || want > range.high) show(s, e, at, want, range.low);
        if (multiple == 0 ? want != 0 : want % multiple != 0) show(s, e, at, want, multiple);
    } while (next_point(at));
}

static void check_truth(state *s, const tree *t, tir_expr condition, tir_truth truth) {
    int64_t at[VARS];
    first_point(at);
    do {
        int64_t want = value_of(t, at);
        if (truth == TIR_YES && !want) show(s, condition, at, want, 1);
        if (truth == TIR_NO && want) show(s, condition, at, want, 0);
    } while (truth != TIR_UNKNOWN && next_point(at));
}

/* `rounds` fresh pools, or a part of them (share.h), from one seed; their number. */
static int run_rounds(uint64_t seed, int rounds, void (*body)(state *s, void *user), void *user) {
    const int count = test_some(rounds);
    state *s = calloc(1, sizeof *s);
    s->seed = seed;
    for (s->rounds = 0; s->rounds < count; s->rounds++) {
        if (LIB_ENTER(&s->scope)) {
            open_pool(s);
            body(s, user);
        } else {
            fail_msg("%s", s->scope.error.message);
        }
        lib_arena_free(&s->arena);
    }
    free(s);
    return count;
}

static void value_round(state *s, void *unused) {
    (void)unused;
    tree *t = grow(s, 1 + (int)pick(s, 4));
    check_value(s, t, built(s, t));
}

static void values_hold(void **unused) {
    (void)unused;
    run_rounds(88172645463325252u, 1500, value_round, NULL);
}

static void proof_round(state *s, void *decided) {
    static const tir_op compare[] = {TIR_LT, TIR_LE, TIR_EQ, TIR_NE};
    tree *a = grow(s, (int)pick(s, 4)), *b = pick(s, 2) ? number(s, pick(s, 80) - 20) : grow(s, (int)pick(s, 3));
    tree *t = make(s, compare[pick(s, 4)], 0, a, b, NULL);
    tir_expr condition = built(s, t);
    tir_truth truth = tir_prove(&s->pool, condition);
    *(int *)decided += truth != TIR_UNKNOWN;
    check_truth(s, t, condition, truth);
    check_truth(s, make(s, TIR_EQ, 0, a, b, NULL), condition, tir_equal(&s->pool, built(s, a), built(s, b)));
    if (!tir_is_true(&s->pool, condition) && !tir_is_false(&s->pool, condition)) check_value(s, t, condition);
}

static void proofs_hold(void **unused) {
    (void)unused;
    int decided = 0;
    const int rounds = run_rounds(1234567, 4000, proof_round, &decided);
    assert_true(5 * decided > rounds);
}

/* What is built again from the operands of a canonical node is the node. */
static tir_expr again(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    state *s = user;
    const tir_node *node = tir_get(pool, e);
    if (node->count == 0) return e;
    tir_expr operands[3];
    for (int i = 0; i < node->count; i++) operands[i] = tir_operand(pool, e, i);
    rebuilt = tir_make(pool, (tir_op)node->op, node->dtype, node->count, operands);
    if (rebuilt == e) return e;
    lib_text text;
    lib_text_init(&text, &s->arena);
    tir_print_expr(&text, pool, e, NULL);
    lib_text_add(&text, "  became  ");
    tir_print_expr(&text, pool, rebuilt, NULL);
    fail_msg("%s", text.data);
    return e;
}

static void idempotent_round(state *s, void *unused) {
    (void)unused;
    tir_expr e = built(s, grow(s, 1 + (int)pick(s, 4)));
    assert_int_equal(tir_rewrite(&s->pool, e, again, s), e);
}

static tir_expr variable_named(void *user, const char *name) {
    state *s = user;
    for (int v = 0; v < VARS; v++)
        if (strcmp(name, var_name[v]) == 0) return s->vars[v];
    return 0;
}

static void text_round(state *s, void *unused) {
    (void)unused;
    tir_expr e = built(s, grow(s, 1 + (int)pick(s, 4)));
    lib_text text;
    lib_text_init(&text, &s->arena);
    tir_print_expr(&text, &s->pool, e, NULL);
    lib_lexer lexer;
    lib_lexer_init(&lexer, &s->arena, "<test>", text.data, text.length);
    lib_lexer_next(&lexer);
    tir_names names = {.variable = variable_named, .user = s};
    assert_int_equal(tir_parse_expr(&s->pool, &lexer, &names, TIR_INDEX), e);
    assert_int_equal(lexer.kind, LIB_END);
}

static void text_parses_back(void **unused) {
    (void)unused;
    run_rounds(31337, 5000, text_round, NULL);
}

/* Ranges of affine expressions are exact: both ends are reached. */
static void affine_round(state *s, void *unused) {
    (void)unused;
    tree *t = number(s, pick(s, 100) - 50);
    for (int term = 0; term < 5; term++) {
        tree *scaled =
            make(s, TIR_MUL, 0, make(s, TIR_VAR, pick(s, VARS), NULL, NULL, NULL), number(s, pick(s, 21) - 10), NULL);
        t = make(s, TIR_ADD, 0, t, scaled, NULL);
    }
    int64_t at[VARS], low = INT64_MAX, high = INT64_MIN;
    first_point(at);
    do {
        int64_t value = value_of(t, at);
        low = value < low ? value : low;
        high = value > high ? value : high;
    } while (next_point(at));
    tir_interval range = tir_range(&s->pool, built(s, t));
    assert_int_equal(range.low, low);
    assert_int_equal(range.high, high);
}

static void affine_ranges_are_exact(void **unused) {
    (void)unused;
    run_rounds(5, 300, affine_round, NULL);
}

static void building_is_idempotent(void **unused) {
    (void)unused;
    run_rounds(777, 20000, idempotent_round, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_hold),
        cmocka_unit_test(proofs_hold),
        cmocka_unit_test(building_is_idempotent),
        cmocka_unit_test(text_parses_back),
        cmocka_unit_test(affine_ranges_are_exact),
    };
    return cmocka_run_group_tests_name("tir/range", tests, NULL, NULL);
}
