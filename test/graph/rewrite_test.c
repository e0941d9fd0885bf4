/* Matching of hosts' rules: both orders of what commutes, and what that may cost, counted in steps. */
#include "evaluate.h"

#include "graph/rewrite.h"

typedef struct rule_case {
    const char *pattern, *replacement, *graph;
    bool applies;
} rule_case;

/* The graph that the one rule makes of the text; *steps: of matching. */
static graph *apply(workbench *bench, const char *pattern, const char *replacement, const char *text, uint64_t *steps) {
    graph_registry *registry = LIB_NEW(&bench->arena, graph_registry);
    graph_registry_init(registry);
    graph_definition *rule = graph_definition_new(&lib_libc_allocator, GRAPH_RULE);
    rule->arena.scope = &bench->scope;
    rule->name = "rule";
    graph_rule_define(rule, registry, pattern, replacement, NULL);
    assert_true(graph_registry_add(registry, rule));
    graph *g = parse_graph(bench, lib_arena_format(&bench->arena, "graph { %s }", text));
    g->registry = registry;
    graph *out = graph_apply_rules(&bench->arena, g, steps);
    out->registry = NULL;
    graph_registry_free(registry, &lib_libc_allocator);
    return out;
}

static void run(void (*body)(workbench *, void *), void *user) {
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body, user);
    bench_close(&bench);
}

static void body_orders(workbench *bench, void *user) {
    (void)user;
    static const rule_case cases[] = {
        {"sub(add(a, b), b)", "neg(a)", "z = add(x, y) w = sub(z, y) output w", true},
        {"sub(add(a, b), b)", "neg(a)", "z = add(x, y) w = sub(z, x) output w", true}, /* the sum's other order */
        {"sub(add(a, b), b)", "neg(a)", "z = add(x, y) w = sub(y, z) output w", false},
        {"mul(add(a, b), sub(a, b))", "neg(a)", "p = add(y, x) q = sub(x, y) w = mul(p, q) output w", true},
        {"mul(add(a, b), sub(a, b))", "neg(a)", "p = add(y, x) q = sub(x, y) w = mul(q, p) output w", true},
        {"add(exp(a), b)", "neg(a)", "e = exp(x) w = add(y, e) output w", true},
        {"add(exp(a), exp(b))", "sub(a, b)", "e = exp(x) w = add(y, e) output w", false},
        {"add(a, a)", "neg(a)", "w = add(x, x) output w", true},
        {"add(a, a)", "neg(a)", "w = add(x, y) output w", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = lib_arena_format(&bench->arena, "input x: f32[4] input y: f32[4] %s", cases[i].graph);
        uint64_t steps;
        const graph *out = apply(bench, cases[i].pattern, cases[i].replacement, text, &steps);
        lib_text printed;
        lib_text_init(&printed, &bench->arena);
        graph_print(&printed, out);
        bool applied = strstr(printed.data, strncmp(cases[i].replacement, "neg", 3) == 0 ? "neg(" : "sub(") != NULL;
        if (applied != cases[i].applies) fail_msg("case %zu: %s", i, printed.data);
    }
}

static void test_orders(void **state) {
    (void)state;
    run(body_orders, NULL);
}

enum { DEPTH = 24 };

/* add(add(... add(innermost, x1) ..., x23), x24) */
static const char *chain_pattern(workbench *bench, const char *innermost, bool same_name) {
    lib_text text;
    lib_text_init(&text, &bench->arena);
    for (int i = 0; i < DEPTH; i++) lib_text_add(&text, "add(");
    lib_text_add(&text, innermost);
    for (int i = 0; i < DEPTH; i++) same_name ? lib_text_add(&text, ", p)") : lib_text_format(&text, ", x%d)", i);
    return text.data;
}

/* Each sum is of the two before it: both operands are sums again, as far down as any pattern goes. */
static const char *chain_graph(workbench *bench, int length) {
    lib_text text;
    lib_text_init(&text, &bench->arena);
    lib_text_add(&text, "input s0: f32[4] input s1: f32[4]");
    for (int i = 2; i < length; i++) lib_text_format(&text, " s%d = add(s%d, s%d)", i, i - 1, i - 2);
    lib_text_format(&text, " output s%d", length - 1);
    return text.data;
}

static void body_chains(workbench *bench, void *user) {
    (void)user;
    uint64_t once, twice, names;
    const char *pattern = chain_pattern(bench, "exp(x)", false); /* fits nowhere, which the innermost operator shows */
    apply(bench, pattern, "x", chain_graph(bench, 200), &once);
    apply(bench, pattern, "x", chain_graph(bench, 400), &twice);
    assert_true(once > 0 && once < 200 * (DEPTH + 2) * 4);
    assert_true(twice < once * 22 / 10);
    /* all operators fit, the names nowhere: a search, which ends */
    apply(bench, chain_pattern(bench, "x", true), "x", chain_graph(bench, 200), &names);
    assert_true(names > 0 && names < 200 * ((1 << 14) + DEPTH * 4));
}

static void test_chains(void **state) {
    (void)state;
    run(body_chains, NULL);
}

static void body_too_large(workbench *bench, void *user) {
    (void)user;
    lib_text text;
    lib_text_init(&text, &bench->arena);
    lib_text_add(&text, "concat(x");
    for (int i = 0; i < 300; i++) lib_text_add(&text, ", x");
    lib_text_add(&text, ", axis=a)");
    uint64_t steps;
    apply(bench, text.data, "x", "input x: f32[4] output x", &steps);
}

static void test_too_large(void **state) {
    (void)state;
    workbench bench;
    bench_open(&bench);
    if (LIB_ENTER(&bench.scope)) {
        body_too_large(&bench, NULL);
        fail_msg("nothing was raised");
    }
    bench_close(&bench);
    assert_non_null(strstr(bench.scope.error.message, "more than"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
