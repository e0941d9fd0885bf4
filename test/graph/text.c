/* Text form: parse(print(g)) is structurally equal to g; mistakes say where they are. */
#include "context.h"
#include "equal_names.h"

static void round_trip(workbench *bench, const graph *g) {
    const char *once = print_graph(bench, g);
    const graph *again = parse_graph(bench, once);
    assert_string_equal(print_graph(bench, again), once);
    lib_hash128 a = graph_hash(g), b = graph_hash(again);
    assert_true(a.low == b.low && a.high == b.high);
    assert_int_equal(g->nodes.count, again->nodes.count);
    assert_int_equal(g->inputs.count, again->inputs.count);
    assert_int_equal(g->outputs.count, again->outputs.count);
    assert_int_equal(g->symbols.count, again->symbols.count);
    assert_int_equal(g->constraints.count, again->constraints.count);
}

static const char *const texts[] = {
    "graph { }",
    "graph { input x: f32[] output x }",
    "graph {\n  symbol n in 1..4096 multiple 8 varies\n  input x: f32[n, 64]  # a comment\n  input m: f32[k]\n"
    "  w = constant f32[2, 2] {1, -2.5, inf, nan}\n  c = constant i8[3] {-128, 0, 127}\n  b = constant bool[2] {0, 1}\n"
    "  e = constant f16[0] {}\n  h = constant f32[1] {\"0100c07f\"}\n  y = neg(x)\n  z = add(y, x)\n"
    "  s = reduce_sum(z, axes=[1], keep=true)\n  t = transpose(z, permutation=[1, 0])\n"
    "  r = reshape(t, shape=[64, n, 1])\n  v7 = exp(r)\n  q = reduce_max(v7, axes=[0, -1])\n"
    "  output q\n  output \"another name\" = s\n  output \"q again\" = q\n}",
    "graph { input x: i2[n, 3] a = constant u2[5] {\"e403\"} b = constant f4e2m1[3] {\"10f2\"} c = constant f8e8m0[3] {\"007fff\"}\n"
    " y = cast(c, dtype=f4e2m1) z = cast(b, dtype=f8e8m0, saturate=true, rounding=down) w = unpack_bits(a)\n"
    " v = pack_bits(w, dtype=i4) output x output y output z output v }",
    "graph { input \"a b\\n\\\"\" v1: f32[2] input graph1.weight: f32[2] y = add(v1, graph1.weight) output \"\" = y }",
    "graph { input n: i32[n, n*2 + 1] input input2: i32[m, m] y = concat(n, n, axis=0) output y }",
    "graph { input c: bool[] input x: f32[3]\n y = if(c, x, then=graph { input a: f32[3] r = neg(a) output r },"
    " otherwise=graph { input a: f32[3] input_ = abs(a) output input_ }) output y }",
    "graph { input i: i32[] input x: f32[n]\n a, b = while(i, x, condition=graph { input k: i32[] input u: f32[n]"
    " ten = constant i32[] {10} p = lt(k, ten) output p }, body=graph { input k: i32[] input u: f32[n]"
    " one = constant i32[] {1} k2 = add(k, one) u2 = add(u, u) output k2 output u2 }) output b output a }",
};

static void body_round_trip(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        round_trip(bench, parse_graph(bench, texts[i]));
    }
    const graph *g = parse_graph(bench, "graph { input x: f32[5, 3] input b: f32[3] y = mul(x, b) output y }");
    assert_non_null(strstr(print_graph(bench, g), "broadcast(b, shape=[5, 3], axes=[1])"));
    round_trip(bench, g);
    g = parse_graph(bench, "graph { input x: f32[n] input y: f32[m] z = add(x, y) output z }");
    assert_int_equal(g->constraints.count, 1);
    assert_non_null(strstr(print_graph(bench, g), "require"));
    round_trip(bench, g);
}

/* Values of the graphs around a sub-graph, by name: over two levels, in one of two sub-graphs, before an input of its own; constants are
 * repeated. The same graph with its operands written. */
static void body_captures(workbench *bench, void *user) {
    (void)user;
    const char *const by_name =
        "graph { input c: bool[] input x: f32[3] input z: f32[3] two = constant f32[] {2}\n"
        "y = if(c, x, then=graph { s = mul(z, two) input a: f32[3] r = add(s, a)\n"
        " w = if(c, then=graph { t = add(z, a) output t }, otherwise=graph { output r }) output w },\n"
        " otherwise=graph { input own: f32[3] output own }) output y }";
    const char *const written =
        "graph { input c: bool[] input x: f32[3] input z: f32[3] two = constant f32[] {2}\n"
        "y = if(c, x, z, c, then=graph { input a: f32[3] input z: f32[3] input c: bool[] two = constant f32[] {2} s = mul(z, two) "
        "r = add(s, a)\n w = if(c, z, a, r, then=graph { input z: f32[3] input a: f32[3] input r: f32[3] t = add(z, a) output t }, "
        "otherwise=graph { input z: f32[3] input a: f32[3] input r: f32[3] output r }) output w },\n"
        " otherwise=graph { input own: f32[3] input z: f32[3] input c: bool[] output own }) output y }";
    const graph *g = parse_graph(bench, by_name), *h = parse_graph(bench, written);
    const lib_hash128 a = graph_hash(g), b = graph_hash(h);
    round_trip(bench, g);
    assert_true(a.low == b.low && a.high == b.high);
}

/* Graphs whose constants differ, but not in a hash that is easily met, are told apart. */
static void body_constants(workbench *bench, void *user) {
    (void)user;
    enum { BYTES = 32 };
    lib_hash128 hash[2];
    char bytes[2][BYTES + 1];
    for (int i = 0, number = 0; i < 2; i++) {
        while (!set_bytes_of_equal_hash(number++, BYTES, bytes[i])) continue;
        graph *g = graph_new(&bench->arena, NULL);
        graph_new_output(g, "x", graph_literal(g, DLC_U8, 1, (int64_t[]){BYTES}, bytes[i]));
        hash[i] = graph_hash(g);
    }
    assert_true(lib_hash64(bytes[0], BYTES, BYTES) == lib_hash64(bytes[1], BYTES, BYTES));
    assert_true(hash[0].low != hash[1].low && hash[0].high != hash[1].high);
}

/* Large constants travel as bytes. */
static void body_bytes(workbench *bench, void *user) {
    (void)user;
    graph *g = graph_new(&bench->arena, NULL);
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37);
    graph_id x = graph_literal(g, DLC_F32, 2, (int64_t[]){25, 10}, bytes);
    graph_new_output(g, "x", x);
    round_trip(bench, g);
    const graph *again = parse_graph(bench, print_graph(bench, g));
    assert_memory_equal(graph_constant_of(again, again->outputs.data[0])->bytes, bytes, sizeof bytes);
    g = graph_new(&bench->arena, NULL);
    uint32_t payload = 0x7fc00001, quiet = 0x7fc00000; /* a NaN that is not the usual one is kept */
    graph_new_output(g, NULL, graph_literal(g, DLC_F32, 0, NULL, &payload));
    graph_new_output(g, NULL, graph_literal(g, DLC_F32, 0, NULL, &quiet));
    again = parse_graph(bench, print_graph(bench, g));
    assert_memory_equal(graph_constant_of(again, again->outputs.data[0])->bytes, &payload, 4);
    assert_memory_equal(graph_constant_of(again, again->outputs.data[1])->bytes, &quiet, 4);
}

static void run(void (*body)(workbench *, void *), void *user) {
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body, user);
    bench_close(&bench);
}

static void test_round_trip(void **state) {
    (void)state;
    run(body_round_trip, NULL);
}

static void test_captures(void **state) {
    (void)state;
    run(body_captures, NULL);
}
static void test_constants(void **state) {
    (void)state;
    run(body_constants, NULL);
}

static void test_bytes(void **state) {
    (void)state;
    run(body_bytes, NULL);
}

static const struct {
    const char *text, *part;
} wrong[] = {
    {"", "expected 'graph'"},
    {"graph {", "end of the text"},
    {"graph {\n  y = nothing(x)\n}", "there is no operator nothing"},
    {"graph {\n  input x: f32[2]\n  y = neg(z)\n}", "value z is not defined"},
    {"graph {\n  input x: f32[2]\n  input x: f32[2]\n}", "defined twice"},
    {"graph {\n  input x: q99[2]\n}", "q99 is not an element type"},
    {"graph {\n  input x: f32[2]\n  y = neg(x, depth=3)\n}", "no attribute depth"},
    {"graph {\n  input x: f32[2]\n  y = reduce_sum(x, keep=maybe)\n}", "expected true or false"},
    {"graph {\n  input x: f32[2]\n  y = reduce_sum(x, keep=true, keep=true)\n}", "given twice"},
    {"graph {\n  input x: f32[2]\n  y = cast(x, dtype=f33)\n}", "element type"},
    {"graph {\n  input x: f32[2]\n  a, b = neg(x)\n}", "1 results, 2 names"},
    {"graph {\n  input x: f32[2]\n  y = add(x)\n}", "<test>:3"},
    {"graph {\n  c = constant f32[2] {1, 2, 3}\n}", "8 bytes"},
    {"graph {\n  c = constant f32[1] {\"00\"}\n}", "4 bytes"},
    {"graph {\n  c = constant f32[1] {\"0000000g\"}\n}", "digits"},
    {"graph {\n  c = constant f4e2m1[3] {1, 2, 3}\n}", "bytes in hexadecimal"},
    {"graph {\n  c = constant i2[5] {\"00\"}\n}", "2 bytes"},
    {"graph {\n  input x: i8[2]\n  y = pack_nibbles(x)\n}", "pack_bits"},
    {"graph {\n  input x: float4_e2m1fn[2]\n}", "f4e2m1"},
    {"graph {\n  c = constant f32[n] {1}\n}", "must be a number"},
    {"graph {\n  input x: f32[1,1,1,1,1,1,1,1,1,1,1,1,1]\n}", "more than 12"},
    {"graph {\n  output x\n}", "not defined"},
    {"graph {\n  require 1 = 2 \"never\"\n}", "never"},
    {"graph {\n  symbol n in 5..2\n}", "expected 0 <= low"},
    {"graph {\n  input x: f32[2]\n  y = scatter(x, x, x, axis=0, combine=divide)\n}", "expected one of: set add"},
    {"graph {\n  c = constant i8[17] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8}\n}", "bytes in hexadecimal"},
};

static void test_wrong(void **state) {
    (void)state;
    for (volatile size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        workbench bench;
        bench_open(&bench);
        volatile bool parsed = false;
        if (LIB_ENTER(&bench.scope)) {
            parse_graph(&bench, wrong[i].text);
            parsed = true;
        }
        if (parsed) fail_msg("parsed: %s", wrong[i].text);
        if (!strstr(bench.scope.error.message, wrong[i].part))
            fail_msg("\"%s\" does not contain \"%s\"", bench.scope.error.message, wrong[i].part);
        bench_close(&bench);
    }
}

/* Every text cut short, and with one character changed, is refused or parsed, never more. */
static void test_damaged(void **state) {
    (void)state;
    const char *text = texts[2];
    size_t length = strlen(text);
    char *copy = malloc(length + 1);
    for (volatile size_t i = 0; i < 2 * length; i++) {
        memcpy(copy, text, length + 1);
        if (i < length)
            copy[i] = 0;
        else
            copy[i - length] = "{}[]()=,1x\"#-."[i % 14];
        workbench bench;
        bench_open(&bench);
        if (LIB_ENTER(&bench.scope)) parse_graph(&bench, copy);
        bench_close(&bench);
    }
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_captures), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_constants),  cmocka_unit_test(test_wrong),    cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("graph/text", tests, NULL, NULL);
}
