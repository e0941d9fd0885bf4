/* Mixed precision: on random graphs the bits of rounding each product's operands, with no more casts and nothing computed twice; the text of
 * what becomes narrow, follows and stays wide, sub-graphs included. */
#include "graph/precision.h"
#include "graph/rows.h"
#include "random.h"

static void in_scope(void (*body)(lib_arena *arena, uint64_t number), uint64_t number) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) body(&arena, number);
    lib_arena_free(&arena);
    if (scope.error.status != DLC_OK) fail_msg("graph %llu: %s", (unsigned long long)number, scope.error.message);
}

static graph *parsed(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "text", text, strlen(text));
    return graph_parse(arena, &lexer);
}

static const char *printed(lib_arena *arena, const graph *g) {
    lib_text text;
    lib_text_init(&text, arena);
    graph_print(&text, g);
    return text.data;
}

/* ---- random graphs ----------------------------------------------------------------------------------------------------- */

enum { ROWS = 3, SIDE = 4, NODES = 14 };

static graph_id unary(graph *g, const char *name, graph_id x, int settings, const graph_setting *setting) {
    return graph_emit_with(g, name, 1, &x, settings, setting);
}

/* One more value [SIDE, SIDE], of the values so far. */
static graph_id next_value(graph *g, uint64_t *seed, const graph_id *value, int count) {
    const graph_id x = value[test_random(seed) % (uint64_t)count], y = value[test_random(seed) % (uint64_t)count];
    const tir_expr side = tir_index(g->pool, SIDE), half = tir_index(g->pool, SIDE / 2), zero = tir_index(g->pool, 0);
    const int64_t axis = 1, swap[] = {1, 0}, low[] = {1, 0}, high[] = {-1, 0}, last = 1, first = 0;
    switch (test_random(seed) % 16) {
    case 0:
    case 1: return graph_matmul(g, x, y);
    case 2:
        return graph_emit_with(
            g, "dot_general", 2, (graph_id[]){x, y}, 2,
            (graph_setting[]){graph_set_list("contract_x", 1, &first), graph_set_list("contract_w", 1, &last)});
    case 3: return graph_emit_with(g, "linear", 2, (graph_id[]){x, y}, 0, NULL);
    case 4: return unary(g, "relu", x, 0, NULL);
    case 5: return graph_neg(g, x);
    case 6: return graph_transpose(g, x, swap);
    case 7:
        return graph_reshape(g, graph_reshape(g, x, 1, (tir_expr[]){tir_index(g->pool, SIDE * SIDE)}), 2,
                             (tir_expr[]){side, side});
    case 8: {
        const graph_id a = graph_slice_axis(g, x, 1, zero, half), b = graph_slice_axis(g, y, 1, half, side);
        return graph_concat(g, 2, (graph_id[]){a, b}, 1);
    }
    case 9: return graph_reverse(g, graph_pad(g, x, graph_scalar_like(g, x, 0.3), low, high), 1, &axis);
    case 10: return graph_tanh(g, x);
    case 11: return graph_add(g, x, y);
    case 12: return graph_softmax(g, x, 1);
    case 13: return graph_select(g, graph_lt(g, x, y), x, y);
    case 14: return graph_broadcast_like(g, graph_reduce_max(g, x, 1, &axis, true), x);
    default: return graph_mul(g, graph_abs(g, x), y);
    }
}

static graph *random_graph(lib_arena *arena, uint64_t seed) {
    graph *g = graph_new(arena, NULL);
    const graph_shape shape = {DLC_F32, 2, {tir_index(g->pool, SIDE), tir_index(g->pool, SIDE)}};
    graph_id value[ROWS + NODES];
    for (int i = 0; i < ROWS; i++) value[i] = graph_new_input(g, "x", &shape);
    for (int i = ROWS; i < ROWS + NODES; i++) value[i] = next_value(g, &seed, value, i);
    graph_new_output(g, "y", value[ROWS + NODES - 1]);
    return g;
}

/* The definition: operands of f32 products are rounded where they stand. */
static void pass_rounding(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        graph_walk_node(walk, i);
        if (!graph_is(walk->from, node->first, "dot_general")) continue;
        graph_attribute attribute[8];
        graph_id *input = graph_walk_inputs(walk, node);
        graph_walk_attributes(walk, node, attribute);
        attribute[graph_op_attribute(node->op, "result")] = graph_set_integer("result", 1).value; /* f32 */
        for (int k = 0; k < 2; k++) input[k] = graph_cast(walk->to, input[k], DLC_BF16);
        walk->map[node->first] = graph_emit(walk->to, node->op, 2, input, attribute);
    }
}

static int count_of(const graph *g, const char *op) {
    int count = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++) count += strcmp(g->nodes.data[i].op->name, op) == 0;
    return count;
}

static graph *live_part(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, graph_walk_live, NULL);
}

/* Nodes but for casts and what is computed from nothing. */
static int work_of(const graph *g) {
    int count = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        count += g->nodes.data[i].op->class_ != GRAPH_SOURCE && strcmp(g->nodes.data[i].op->name, "cast") != 0;
    return count;
}

static void check_random(lib_arena *arena, uint64_t number) {
    const graph *g = random_graph(arena, number * 977 + 1), *plain = live_part(arena, graph_decompose(arena, g));
    const graph *expected = live_part(arena, graph_walk_run(arena, plain, g->phase, NULL, pass_rounding, NULL));
    const graph *mixed = graph_with_mixed_precision(arena, g, DLC_BF16);
    double numbers[ROWS][SIDE * SIDE];
    const double *inputs[ROWS];
    uint64_t seed = number + 5;
    int64_t count[2];
    dlc_dtype dtype[2];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < SIDE * SIDE; k++)
            numbers[i][k] = (double)((float)(test_random(&seed) >> 40) * 0x1p-23f - 1.0f);
        inputs[i] = numbers[i];
    }
    graph_verify(arena->scope, mixed);
    assert_string_equal(printed(arena, graph_with_mixed_precision(arena, mixed, DLC_BF16)), printed(arena, mixed));
    const uint64_t *a = rows_evaluate(arena, expected, NULL, inputs, &count[0], &dtype[0]);
    const uint64_t *b =
        rows_evaluate(arena, live_part(arena, graph_decompose(arena, mixed)), NULL, inputs, &count[1], &dtype[1]);
    assert_int_equal(dtype[1], DLC_F32);
    for (int64_t i = 0; i < count[0]; i++)
        if (a[i] != b[i] && !isnan(tir_bits_to_f64((tir_dtype)DLC_F32, a[i])))
            fail_msg("graph %llu, element %lld:\n%s%s", (unsigned long long)number, (long long)i, printed(arena, g),
                     printed(arena, mixed));
    const int products = count_of(plain, "dot_general");
    if (products == 0) assert_string_equal(printed(arena, mixed), printed(arena, live_part(arena, g)));
    if (work_of(mixed) > work_of(live_part(arena, g)) + count_of(g, "linear") || count_of(mixed, "cast") > 2 * products)
        fail_msg("graph %llu:\n%s%s", (unsigned long long)number, printed(arena, g), printed(arena, mixed));
}

static void test_random_graphs(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) in_scope(check_random, i);
}

/* ---- texts ----------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what, *text, *mixed;
} cases[] = {
    {"what only products read is narrow; the residual is not",
     "graph { input x: f32[n, 8] input w: f32[8, 8] h = dot(x, w) r = relu(h) y = dot(r, w) z = add(h, y) output z }",
     "  v3 = cast(x, dtype=bf16)  # bf16[n, 8]\n"
     "  v4 = cast(w, dtype=bf16)  # bf16[8, 8]\n"
     "  v5 = dot(v3, v4, result=f32)  # f32[n, 8]\n"
     "  v6 = cast(v5, dtype=bf16)  # bf16[n, 8]\n"
     "  v7 = relu(v6)  # bf16[n, 8]\n"
     "  v8 = dot(v7, v4, result=f32)  # f32[n, 8]\n"
     "  v9 = add(v5, v8)  # f32[n, 8]\n"},
    {"a value that is read in f32, too, is computed once",
     "graph { input x: f32[4, 4] r = relu(x) y = dot(r, r) z = add(r, y) output z }",
     "  r = relu(x)  # f32[4, 4]\n"
     "  v3 = cast(r, dtype=bf16)  # bf16[4, 4]\n"
     "  v4 = dot(v3, v3, result=f32)  # f32[4, 4]\n"
     "  v5 = add(r, v4)  # f32[4, 4]\n"},
    {"numbers beside the operand are converted where they stand",
     "graph { input x: f32[4, 4] c = constant f32[] {0.3} p = pad(x, c, low=[0, 1], high=[1, 0]) y = dot(p, p) output y }",
     "  v2 = cast(x, dtype=bf16)  # bf16[4, 4]\n"},
    {"values that were narrow are not rounded again",
     "graph { input x: bf16[4, 4] input w: f32[4, 4] f = cast(x, dtype=f32) y = dot(f, w) output y }",
     "  v3 = cast(w, dtype=bf16)  # bf16[4, 4]\n"
     "  v4 = dot(x, v3, result=f32)  # f32[4, 4]\n"},
    {"other types stay",
     "graph { input x: f64[4, 4] input i: i32[4, 4] input h: f16[4, 4] a = dot(x, x) b = dot(i, i) c = dot(h, h) "
     "d = cast(b, dtype=f64) e = cast(c, dtype=f64) f = add(a, d) y = add(f, e) output y }",
     "  a = dot(x, x)  # f64[4, 4]\n"
     "  b = dot(i, i)  # i32[4, 4]\n"
     "  c = dot(h, h)  # f16[4, 4]\n"},
    {"statistics are wide",
     "graph { input x: f32[4, 4] input s: f32[4] y = dot(x, x) n = layer_norm(y, s) z = softmax(n) p = pow(z, n) "
     "c = cumulative_sum(p, axis=0) output c }",
     "  v5 = layer_norm(v4, s)  # f32[4, 4]\n"
     "  v6 = softmax(v5)  # f32[4, 4]\n"
     "  v7 = pow(v6, v5)  # f32[4, 4]\n"
     "  v8 = cumulative_sum(v7, axis=0)  # f32[4, 4]\n"},
    {"attention has products inside, a mask has none",
     "graph { input q: f32[1, 2, 3, 4] input m: f32[3, 3] a = attention(q, q, q, m) output a }",
     "  v3 = cast(q, dtype=bf16)  # bf16[1, 2, 3, 4]\n"
     "  v4 = attention(v3, v3, v3, m, result=f32)  # f32[1, 2, 3, 4]\n"},
    {"branches",
     "graph { input c: bool[] input x: f32[4, 4] y = if(c, x, then=graph { input x: f32[4, 4] a = dot(x, x) output a }, "
     "otherwise=graph { input x: f32[4, 4] b = tanh(x) output b }) output y }",
     "result=f32)  # f32[4, 4]\n"},
    {"a size that is counted stays",
     "graph { input x: f32[n, 4] input w: f32[4] s = dot(x, w) z = constant f32[] {0} p = gt(s, z) i = non_zero(p, size=[found]) "
     "f = cast(i, dtype=f32) y = dot(f, f) output y }",
     "  s = dot(x, w)  # f32[n]\n"},
    {"sub-graphs",
     "graph { input h: f32[2, 4] input x: f32[5, 2, 4] input w: f32[4, 4] y = scan(h, x, w, carries=1, sequences=1, "
     "body=graph { input h: f32[2, 4] input x: f32[2, 4] input w: f32[4, 4] a = dot(h, w) b = add(a, x) c = tanh(b) "
     "output c }) output y }",
     "result=f32)  # f32[2, 4]\n"},
};

static void check_case(lib_arena *arena, uint64_t number) {
    const graph *g = graph_with_mixed_precision(arena, parsed(arena, cases[number].text), DLC_BF16);
    graph_verify(arena->scope, g);
    const char *text = printed(arena, g);
    if (!strstr(text, cases[number].mixed)) fail_msg("%s:\n%s", cases[number].what, text);
}

static void test_texts(void **state) {
    (void)state;
    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) in_scope(check_case, i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
