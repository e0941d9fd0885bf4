/* Passes: binding and constraints, every rewrite rule alone on random operands, the init graph, sub-graphs with
 * captures, the verifier after each pass, and running out of memory anywhere in them. */
#include "evaluate.h"

static void run(void (*body)(workbench *, void *), void *user) {
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body, user);
    bench_close(&bench);
}

/* The error of body, which has to raise. */
static lib_error run_failing(void (*body)(workbench *, void *), void *user) {
    workbench bench;
    bench_open(&bench);
    if (LIB_ENTER(&bench.scope)) {
        body(&bench, user);
        fail_msg("nothing was raised");
    }
    bench_close(&bench);
    return bench.scope.error;
}

static void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static graph *parsed(workbench *bench, const char *statements) {
    graph *g = parse_graph(bench, lib_arena_format(&bench->arena, "graph { %s }", statements));
    graph_verify(&bench->scope, g);
    return g;
}

/* ---- binding */

typedef struct binding {
    const char *text;
    int64_t values[3];
} binding;

static void body_bind(workbench *bench, void *user) {
    const binding *b = user;
    graph_verify(&bench->scope, graph_bind(&bench->arena, parsed(bench, b->text), b->values));
}

static void body_bound_shapes(workbench *bench, void *user) {
    (void)user;
    const graph *g = parsed(bench, "input x: f32[n, 4] input y: f32[m, 4] z = add(x, y) s = reduce_sum(z, axes=[0])"
                                   " c = dimension(size=[n*4], dtype=f32) w = div(s, c) output w output z");
    assert_int_equal(g->constraints.count, 1);
    assert_non_null(strstr(print_graph(bench, g), "dimension(size=[")); /* nobody knows n yet */
    const graph *b = graph_bind(&bench->arena, g, (int64_t[]){3, 3});
    graph_verify(&bench->scope, b);
    assert_int_equal(b->symbols.count, 0);
    assert_int_equal(b->constraints.count, 0);
    assert_int_equal(count_of(b, b->outputs.data[1]), 12);
    assert_null(strstr(print_graph(bench, b), "dimension")); /* folded */
    /* m stays a parameter: the constraint stays, too */
    b = graph_bind(&bench->arena, g, (int64_t[]){3, INT64_MIN});
    graph_verify(&bench->scope, b);
    assert_int_equal(b->symbols.count, 1);
    assert_int_equal(b->constraints.count, 1);
    assert_string_equal(b->symbols.data[0].name, "m");
    /* sizes 0 and 1 */
    graph_verify(&bench->scope, graph_bind(&bench->arena, g, (int64_t[]){0, 0}));
    graph_verify(&bench->scope, graph_bind(&bench->arena, g, (int64_t[]){1, 1}));
    /* hints go along */
    g = parsed(bench, "symbol n in 1..64 multiple 4 varies input x: f32[n] y = neg(x) output y");
    b = graph_bind(&bench->arena, g, (int64_t[]){INT64_MIN});
    assert_contains(print_graph(bench, b), "symbol n in 1..64 multiple 4 varies");
}

static void test_bind(void **state) {
    (void)state;
    run(body_bound_shapes, NULL);
    binding unequal = {"input x: f32[n, 4] input y: f32[m, 4] z = add(x, y) output z", {3, 5, 0}};
    lib_error error = run_failing(body_bind, &unequal);
    assert_int_equal(error.status, DLC_INVALID_ARGUMENT);
    assert_contains(error.message, "add(x: f32[n, 4], y: f32[m, 4])");
    assert_contains(error.message, "dimension 0");
    assert_contains(error.message, "3 and 5");
    binding range = {"symbol n in 1..64 multiple 4 input x: f32[n] y = neg(x) output y", {65, 0, 0}};
    assert_contains(run_failing(body_bind, &range).message, "expected 1 to 64");
    range.values[0] = 6;
    assert_contains(run_failing(body_bind, &range).message, "multiple of 4");
    binding contract = {"input x: f32[5, n] input w: f32[m, 3] y = matmul(x, w) output y", {4, 6, 0}};
    assert_int_equal(run_failing(body_bind, &contract).status, DLC_INVALID_ARGUMENT);
    binding odd = {"input x: f32[n] y = reshape(x, shape=[2, 3]) output y", {7, 0, 0}};
    assert_int_equal(run_failing(body_bind, &odd).status, DLC_INVALID_ARGUMENT);
    binding large = {"input x: f32[n, m] output x", {INT64_C(1) << 35, INT64_C(1) << 35, 0}};
    assert_contains(run_failing(body_bind, &large).message, "larger than 2^60");
}

/* ---- rules: what is left after simplifying, and the same value */

static const struct {
    const char *before;
    /* operators that remain, in order */
    const char *left;
} rules[] = {
    {"input x: f32[3, 5] a = neg(x) b = neg(a) output b", ""},
    {"input x: bool[3, 5] a = not(x) b = not(a) output b", ""},
    {"input x: f32[3, 5] a = reverse(x, axes=[1]) b = reverse(a, axes=[1]) output b", ""},
    {"input x: f32[3, 5] a = reverse(x, axes=[1]) b = reverse(a, axes=[0]) output b", "reverse reverse"},
    {"input x: f32[3, 5] a = abs(x) b = abs(a) output b", "abs"},
    {"input x: f32[3, 5] a = floor(x) b = floor(a) output b", "floor"},
    {"input x: f32[3, 5] a = max(x, x) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {2} a = add(c, x) b = add(x, c) d = mul(a, b) output d",
     "broadcast add mul"},
    {"input x: i32[3, 5] c = constant i32[] {2} d = constant i32[] {3} a = add(x, c) b = add(a, d) output b",
     "broadcast add"},
    {"input x: f32[3, 5] c = constant f32[] {2} d = constant f32[] {3} a = add(x, c) b = add(a, d) output b",
     "broadcast add broadcast add"},
    {"input x: f32[3] a = broadcast(x, shape=[4, 3], axes=[1]) b = exp(a) output b", "exp broadcast"},
    {"input x: f32[3] input y: f32[3] a = broadcast(x, shape=[4, 3], axes=[1]) b = broadcast(y, shape=[4, 3], axes=[1])"
     " c = add(a, b) output c",
     "add broadcast"},
    {"input x: f32[3] input y: f32[4] a = broadcast(x, shape=[4, 3], axes=[1]) b = broadcast(y, shape=[4, 3], axes=[0])"
     " c = add(a, b) output c",
     "broadcast broadcast add"},
    {"input x: i32[3, 5] c = constant i32[] {0} a = add(x, c) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {0} a = add(x, c) output a", "broadcast add"},
    {"input x: f32[3, 5] c = constant f32[] {-0.0} a = add(x, c) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {0} a = sub(x, c) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {1} a = mul(x, c) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {1} a = mul(c, x) output a", ""},
    {"input x: i32[3, 5] c = constant i32[] {0} a = mul(x, c) output a", "broadcast"},
    {"input x: f32[3, 5] c = constant f32[] {0} a = mul(x, c) output a", "broadcast mul"},
    {"input x: f32[3, 5] c = constant f32[] {-1} a = mul(x, c) output a", "neg"},
    {"input x: f32[3, 5] c = constant f32[] {1} a = div(x, c) output a", ""},
    {"input x: f32[3, 5] c = constant f32[] {-8} a = div(x, c) output a", "broadcast mul"},
    {"input x: f16[3, 5] c = constant f16[] {4096} a = div(x, c) output a", "broadcast mul"},
    {"input x: f16[3, 5] c = constant f16[] {32768} a = div(x, c) output a", "broadcast div"},
    {"input x: f8e4m3fn[3, 5] c = constant f8e4m3fn[] {0.001953125} a = div(x, c) output a", "broadcast div"},
    {"input x: f32[3, 5] c = constant f32[] {3} a = div(x, c) output a", "broadcast div"},
    {"input x: i32[3, 5] c = constant i32[] {8} a = div(x, c) output a", "broadcast div"},
    {"input x: f32[3, 5] c = constant f32[] {2} a = pow(x, c) output a", "mul"},
    {"input x: f32[3, 5] c = constant f32[] {1} a = pow(x, c) output a", ""},
    {"input x: f32[3, 5] s = constant f32[] {1.4142135} o = constant f32[] {1} h = constant f32[] {0.5} a = div(x, s)"
     " b = erf(a) c = add(b, o) d = mul(x, c) e = mul(d, h) output e",
     "normal_cdf mul"},
    {"input x: f32[3, 5] s = constant f32[] {0.70710677} o = constant f32[] {1} h = constant f32[] {0.5} a = mul(x, s)"
     " b = erf(a) c = add(o, b) d = mul(h, x) e = mul(d, c) output e",
     "normal_cdf mul"},
    {"input x: f32[3, 5] s = constant f32[] {0.70710677} o = constant f32[] {1} h = constant f32[] {0.25} a = mul(x, s)"
     " b = erf(a) c = add(o, b) d = mul(h, x) e = mul(d, c) output e",
     "broadcast mul erf broadcast add broadcast mul mul"},
    {"input x: f32[3, 5] a = neg(x) b = abs(a) output b", "abs"},
    {"input x: u8[3, 5] a = neg(x) b = abs(a) output b", "neg abs"},
    {"input c: bool[3] input x: f32[3] a = select(c, x, x) output a", ""},
    {"input x: f32[3] input y: f32[3] c = constant bool[] {1} a = select(c, x, y) output a", ""},
    {"input x: f32[3] input y: f32[3] c = constant bool[3] {1, 0, 1} a = select(c, x, y) output a", "select"},
    {"input x: f32[3, 5] a = cast(x, dtype=f32) output a", ""},
    {"input x: f16[3, 5] a = cast(x, dtype=f32) b = cast(a, dtype=f16) output b", ""},
    {"input x: bf16[3, 5] a = cast(x, dtype=f32) b = cast(a, dtype=i32) output b", "cast"},
    {"input x: f32[3, 5] a = cast(x, dtype=f16) b = cast(a, dtype=f32) output b", "cast cast"},
    {"input x: i8[3, 5] a = cast(x, dtype=i32) b = cast(a, dtype=u8) output b", "cast"},
    {"input x: i8[3, 5] a = cast(x, dtype=f32) b = cast(a, dtype=u8) output b", "cast cast"},
    {"input x: i32[3, 5] a = cast(x, dtype=f64) b = cast(a, dtype=f32) output b", "cast cast"},
    {"input x: bool[3, 5] a = cast(x, dtype=i32) b = cast(a, dtype=f32) output b", "cast"},
    {"input x: i32[3, 5] a = cast(x, dtype=bool) b = cast(a, dtype=i32) output b", "cast cast"},
    {"input x: f32[3, 5] a = reshape(x, shape=[3, 5]) output a", ""},
    {"c = constant f32[2, 2, 2] {1, 2, 3, 4, 5, 6, 7, 8} a = reshape(c, shape=[8]) output a", ""},
    {"c = constant i32[3, 2, 2] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} a = slice(c, start=[1, -1, 0], stop=[2, 2, 2])"
     " output a",
     ""},
    {"input x: f32[3, 5] a = reshape(x, shape=[15]) b = reshape(a, shape=[5, 3]) output b", "reshape"},
    {"input x: f32[3, 5] a = reshape(x, shape=[15]) b = reshape(a, shape=[3, 5]) output b", ""},
    {"input x: f32[3, 5] a = transpose(x, permutation=[0, 1]) output a", ""},
    {"input x: f32[3, 5, 2] a = transpose(x, permutation=[2, 0, 1]) b = transpose(a, permutation=[1, -1, 0]) output b",
     ""},
    {"input x: f32[3, 5, 2] a = transpose(x, permutation=[2, 0, 1]) b = transpose(a, permutation=[1, 0, 2]) output b",
     "transpose"},
    {"input x: f32[3, 5] a = broadcast(x, shape=[3, 5], axes=[0, 1]) output a", ""},
    {"input x: f32[3, 3] a = broadcast(x, shape=[3, 3], axes=[1, 0]) output a", "broadcast"},
    {"input x: f32[3] a = broadcast(x, shape=[4, 3], axes=[1]) b = broadcast(a, shape=[3, 2, 4], axes=[2, 0]) output b",
     "broadcast"},
    {"c = constant f32[3] {7, 7, 7} a = broadcast(c, shape=[2, 3], axes=[1]) output a", "broadcast"},
    {"input x: f32[3, 5] v = constant f32[] {1} a = pad(x, v, low=[0, 0], high=[0, 0]) output a", ""},
    {"input x: f32[3, 5] a = slice(x, start=[0, 0], stop=[3, 5]) output a", ""},
    {"input x: f32[3, 5] a = slice(x, start=[0, 0], stop=[3, 5], step=[1, 2]) output a", "slice"},
    {"input x: f32[1, 1] a = slice(x, start=[0, 0], stop=[1, 1], step=[1, 2]) output a", "slice"},
    {"input x: f32[3, 5] a = concat(x, axis=1) output a", ""},
    {"input x: f32[3, 1] input y: f32[3, 2] a = concat(x, y, x, x, y, y, x, y, x, x, y, x, y, y, y, x, x, x, y, x, y, x, "
     "x, y, y, x, y, x, x, y, x, y, y, axis=1) output a",
     "concat concat concat"},
    {"input x: i32[3, 1] a = reduce_sum(x, axes=[1], keep=false) output a", "reshape"},
    {"input x: f32[3, 1] a = reduce_sum(x, axes=[1], keep=false) output a", "reduce_sum"},
    {"input x: f32[3, 1] a = reduce_max(x, axes=[1], keep=true) output a", ""},
    {"input x: f32[3, 2] a = reduce_max(x, axes=[1], keep=true) b = reduce_max(a, axes=[0]) output b",
     "reduce_max reduce_max"},
    {"input x: f32[1, 1] a = reduce_prod(x) output a", "reshape"},
    {"input x: f32[2, 9] input p: f64[5] a = cast(p, dtype=i64) b = cast(p, dtype=i32) c = gather(x, a, axis=1)"
     " d = gather(x, b, axis=1) output c output d",
     "cast gather"},
    {"input x: f32[2, 9] input p: u8[5] a = cast(p, dtype=i64) b = cast(p, dtype=i32) c = gather(x, a, axis=1)"
     " d = gather(x, b, axis=1) output c output d",
     "cast cast gather gather"},
    {"input x: f32[2, 9, 8] a = reduce_window(x, op=max, window=[1, 5, 5], low=[0, 2, 2], high=[0, 2, 2]) output a",
     "reduce_window reduce_window"},
    {"input x: f16[5, 9, 17] a = reduce_window(x, op=min, window=[1, 7, 6], stride=[2, 1, 2], low=[1, 3, 5], high=[0, 1, 7],"
     " dilation=[1, 2, 1]) output a",
     "reduce_window reduce_window"},
    {"input x: i8[7, 9, 8] a = reduce_window(x, op=max, window=[4, 3, 3], low=[-1, 4, 0], high=[2, 0, 1]) output a",
     "reduce_window reduce_window reduce_window"},
    {"input x: f32[1, 9, 8] a = reduce_window(x, op=max, window=[1, 3, 3], stride=[1, 2, 2]) output a",
     "reduce_window"},
    {"input x: f32[1, 9, 8] a = reduce_window(x, op=sum, window=[1, 5, 5]) output a", "reduce_window"},
    {"input x: f32[1, 7, 7] a = reduce_window(x, op=max, window=[1, 7, 7]) output a", "reduce_window"},
};

static const char *operators_of(workbench *bench, const graph *g) {
    lib_text text;
    lib_text_init(&text, &bench->arena);
    lib_text_add(&text, "");
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (!graph_is_source(g->nodes.data[i].op))
            lib_text_format(&text, "%s%s", text.length ? " " : "", g->nodes.data[i].op->name);
    return text.data;
}

static void check_same(workbench *bench, const graph *a, const graph *b, bool inexact, uint64_t seed) {
    void **inputs = LIB_NEW_ARRAY(&bench->arena, void *, a->inputs.count);
    for (uint32_t i = 0; i < a->inputs.count; i++) inputs[i] = random_bytes(&bench->arena, a, a->inputs.data[i], &seed);
    graph_regions of_a = graph_fuse(&bench->arena, a, NULL, NULL), of_b = graph_fuse(&bench->arena, b, NULL, NULL);
    void **x = run_regions(&bench->arena, a, &of_a, inputs), **y = run_regions(&bench->arena, b, &of_b, inputs);
    for (uint32_t i = 0; i < a->outputs.count; i++) {
        graph_id v = a->outputs.data[i], w = b->outputs.data[i];
        dlc_dtype dtype = graph_shape_of(a, v)->dtype;
        int64_t count = count_of(a, v);
        assert_int_equal(graph_shape_of(b, w)->dtype, dtype);
        assert_int_equal(count_of(b, w), count);
        if (!inexact && !same_elements(dtype, x[v], y[w], count))
            fail_msg("output %u differs: %s", i, print_graph(bench, a));
        for (int64_t k = 0; inexact && k < count; k++) {
            double p = lib_element_get_f64(dtype, (char *)x[v] + (size_t)k * lib_dtype_size(dtype));
            double q = lib_element_get_f64(dtype, (char *)y[w] + (size_t)k * lib_dtype_size(dtype));
            double far = graph_is(b, w, "mul") ? 1e-6 * fabs(p) + 2e-6 : 1e-6 * fabs(p); /* normal_cdf: beside 1 */
            if (!(p == q || (isnan(p) && isnan(q)) || fabs(p - q) <= far))
                fail_msg("output %u: %g and %g: %s", i, p, q, print_graph(bench, a));
        }
    }
}

static void body_rules(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const graph *before = parsed(bench, rules[i].before);
        const graph *after = graph_simplify(&bench->arena, before);
        graph_verify(&bench->scope, after);
        const char *left = operators_of(bench, after);
        if (strcmp(left, rules[i].left) != 0) fail_msg("left \"%s\" of %s", left, rules[i].before);
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_same(bench, before, after, strstr(rules[i].before, "pow(") || strstr(rules[i].before, "erf("),
                       seed * 77 + i);
    }
}

static void test_rules(void **state) {
    (void)state;
    run(body_rules, NULL);
}

/* ---- sums of values with zeros between their elements */

static int64_t below(uint64_t *state, int64_t limit) {
    return (int64_t)(random_next(state) % (uint64_t)limit);
}

/* Statements that pad inputs x0, x1, ... to `dims`, with the same strides. */
static void add_spread(lib_text *text, int i, int rank, const char *dtype, const int64_t *dims, const int64_t *stride,
                       uint64_t *state) {
    int64_t low[3], high[3], size[3];
    for (int d = 0; d < rank; d++) {
        low[d] = below(state, 2 * stride[d] + 3) - stride[d];
        size[d] = 1 + below(state, (dims[d] + stride[d]) / stride[d] + 1);
        high[d] = dims[d] - low[d] - ((size[d] - 1) * stride[d] + 1);
    }
    lib_text_format(text, " input x%d: %s[%d, %d, %d] p%d = pad(x%d, zero", i, dtype, (int)size[0], (int)size[1],
                    (int)size[2], i, i);
    lib_text_format(text, ", low=[%d, %d, %d]", (int)low[0], (int)low[1], (int)low[2]);
    lib_text_format(text, ", high=[%d, %d, %d]", (int)high[0], (int)high[1], (int)high[2]);
    lib_text_format(text, ", interior=[%d, %d, %d])", (int)stride[0] - 1, (int)stride[1] - 1, (int)stride[2] - 1);
}

static void body_spread(workbench *bench, void *user) {
    static const char *const dtypes[] = {"f32", "bf16", "i32", "f64"};
    uint64_t *state = user;
    int joined = 0;
    for (int n = 0; n < 60; n++) {
        const char *dtype = dtypes[below(state, 4)];
        int64_t dims[3], stride[3];
        for (int d = 0; d < 3; d++) dims[d] = 1 + below(state, 9), stride[d] = 1 + below(state, d == n % 3 ? 4 : 2);
        const int terms = 2 + (int)below(state, 5);
        lib_text text;
        lib_text_init(&text, &bench->arena);
        lib_text_format(&text, "zero = constant %s[] {0}", dtype);
        for (int i = 0; i < terms; i++) add_spread(&text, i, 3, dtype, dims, stride, state);
        char left[16] = "p0";
        for (int i = 1; i < terms; i++) { /* from the left, or joined to the sum from the right */
            if (n % 2)
                lib_text_format(&text, " s%d = add(%s, p%d)", i, left, i);
            else
                lib_text_format(&text, " s%d = add(p%d, %s)", i, i, left);
            snprintf(left, sizeof left, "s%d", i);
        }
        if (n % 5 == 0) lib_text_format(&text, " output s1"); /* a part that is needed itself */
        lib_text_format(&text, " output %s", left);
        const graph *before = parsed(bench, text.data), *after = graph_join_spread(&bench->arena, before);
        graph_verify(&bench->scope, after);
        joined += strstr(operators_of(bench, after), "concat") != NULL;
        for (int i = 0; i < 3; i++) check_same(bench, before, after, false, (uint64_t)random_next(state));
    }
    assert_true(joined > 30);
}

static void test_spread(void **state) {
    (void)state;
    uint64_t seed = 5;
    run(body_spread, &seed);
}

/* `text` with the first element type in it, wherever it stands, replaced. */
static const char *with_dtype(workbench *bench, const char *text, const char *dtype) {
    lib_text changed;
    size_t end = strcspn(text, "["), start = end;
    while (start && text[start - 1] != ' ') start--;
    const char *old = lib_arena_format(&bench->arena, "%.*s", (int)(end - start), text + start);
    lib_text_init(&changed, &bench->arena);
    for (const char *at; (at = strstr(text, old)); text = at + strlen(old))
        lib_text_format(&changed, "%.*s%s", (int)(at - text), text, dtype);
    lib_text_add(&changed, text);
    return changed.data;
}

/* Whether rule i changes what a graph of another element type computes; false: there is no such graph. */
static bool check_rule(size_t i, dlc_dtype dtype) {
    workbench bench;
    volatile bool is_graph = false;
    bench_open(&bench);
    if (LIB_ENTER(&bench.scope)) {
        const graph *before = parsed(&bench, with_dtype(&bench, rules[i].before, lib_dtypes[dtype].name));
        is_graph = true;
        const graph *after = graph_simplify(&bench.arena, before);
        graph_verify(&bench.scope, after);
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_same(&bench, before, after, strstr(rules[i].before, "pow(") != NULL, seed * 131 + i);
    } else if (is_graph) {
        fail_msg("%s of %s: %s", rules[i].before, lib_dtypes[dtype].name, bench.scope.error.message);
    }
    bench_close(&bench);
    return is_graph;
}

static void test_rules_of_types(void **state) {
    (void)state;
    int graphs = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int dtype = 0; dtype < DLC_DTYPE_COUNT; dtype++)
            if (!lib_dtype_is_stored_otherwise((dlc_dtype)dtype) && !strstr(rules[i].before, "erf("))
                graphs += check_rule(i, (dlc_dtype)dtype);
    assert_true(graphs > 600);
}

/* ---- the init graph */

static void body_init(workbench *bench, void *user) {
    (void)user;
    graph *g = graph_new(&bench->arena, NULL);
    static float numbers[70 * 80];
    for (int i = 0; i < 70 * 80; i++) numbers[i] = (float)(i % 13) - 6;
    graph_shape shape = {.dtype = DLC_F16, .rank = 2, .dim = {tir_index(g->pool, 3), tir_index(g->pool, 70)}};
    graph_id x = graph_new_input(g, "x", &shape);
    graph_id w = graph_literal(g, DLC_F32, 2, (int64_t[]){70, 80}, numbers);
    graph_id half = graph_cast(g, graph_mul(g, w, graph_scalar(g, DLC_F32, 0.5)), DLC_F16);
    graph_id y = graph_contract(g, x, half, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0});
    graph_id bias = graph_reduce_sum(g, w, 1, (int64_t[]){0}, false);
    graph_new_output(g, "y", graph_add(g, y, graph_cast(g, bias, DLC_F16)));
    graph_new_output(g, "bias", bias);
    graph_new_output(g, "w", w);
    const graph *bound = graph_bind(&bench->arena, g, NULL);
    graph *init, *rest;
    graph_split_init(&bench->arena, bound, &init, &rest);
    assert_non_null(init);
    graph_verify(&bench->scope, init);
    graph_verify(&bench->scope, rest);
    assert_int_equal(init->inputs.count, 0);
    assert_int_equal(rest->inputs.count, 1 + init->outputs.count);
    assert_int_equal(init->outputs.count, 3); /* the f16 weights, the bias, the bias in f16; not the broadcast of it */
    assert_string_equal(operators_of(bench, rest), "dot_general broadcast add");
    /* together they compute what the whole did */
    uint64_t seed = 5;
    void **inputs = LIB_NEW_ARRAY(&bench->arena, void *, rest->inputs.count);
    inputs[0] = random_bytes(&bench->arena, bound, bound->inputs.data[0], &seed);
    graph_regions regions = graph_fuse(&bench->arena, init, NULL, NULL);
    void **made = run_regions(&bench->arena, init, &regions, NULL);
    for (uint32_t i = 0; i < init->outputs.count; i++) inputs[1 + i] = made[init->outputs.data[i]];
    regions = graph_fuse(&bench->arena, rest, NULL, NULL);
    void **found = run_regions(&bench->arena, rest, &regions, inputs);
    regions = graph_fuse(&bench->arena, bound, NULL, NULL);
    void **expected = run_regions(&bench->arena, bound, &regions, inputs);
    for (uint32_t i = 0; i < bound->outputs.count; i++) {
        graph_id a = bound->outputs.data[i], b = rest->outputs.data[i];
        assert_true(same_elements(graph_shape_of(bound, a)->dtype, expected[a], found[b], count_of(bound, a)));
    }
    /* nothing worth it */
    bound =
        graph_bind(&bench->arena, parsed(bench, "input x: f32[3] c = constant f32[] {2} y = mul(x, c) output y"), NULL);
    graph_split_init(&bench->arena, bound, &init, &rest);
    assert_null(init);
    assert_string_equal(operators_of(bench, rest), "broadcast mul");
    /* an operand of a contraction is stored even where it is a repeated number: else nothing could pack it */
    bound = graph_bind(&bench->arena,
                       parsed(bench, "input x: f32[3, 4] c = constant f32[] {2} w = broadcast(c, shape=[4, 5], axes=[])"
                                     " y = dot_general(x, w, contract_x=[1], contract_w=[0]) output y"),
                       NULL);
    graph_split_init(&bench->arena, bound, &init, &rest);
    assert_non_null(init);
    assert_string_equal(operators_of(bench, init), "broadcast");
    assert_string_equal(operators_of(bench, rest), "dot_general");
}

static void test_init(void **state) {
    (void)state;
    run(body_init, NULL);
}

/* ---- copies, decomposition, sub-graphs */

static void body_copy(workbench *bench, void *user) {
    (void)user;
    graph *g = parsed(
        bench, "symbol n in 1..9 varies input x: f32[n, 4] input y: f32[m, 4] z = add(x, y) s = softmax(z, axis=1)"
               " c = constant f32[] {2} d = mul(s, c) output d");
    const char *before = print_graph(bench, g);
    lib_arena other;
    lib_arena_init(&other, &lib_libc_allocator, &bench->scope);
    graph *copy = graph_copy(&other, g);
    graph_verify(&bench->scope, copy);
    assert_string_equal(print_graph(bench, copy), before);
    const graph *plain = graph_decompose(&other, copy);
    graph_verify(&bench->scope, plain);
    assert_null(strstr(operators_of(bench, plain), "softmax"));
    assert_string_equal(print_graph(bench, copy), before); /* untouched */
    lib_arena_free(&other);
}

static void test_copy(void **state) {
    (void)state;
    run(body_copy, NULL);
}

/* Bytes of large constants are shared by a graph and its copies, and live as long as one of them. */
static void body_shared_bytes(workbench *bench, void *user) {
    (void)user;
    enum { COUNT = 40000 };
    float *numbers = lib_arena_take(&bench->arena, COUNT * sizeof *numbers);
    for (int i = 0; i < COUNT; i++) numbers[i] = (float)i;
    lib_arena first, second;
    lib_arena_init(&first, &lib_libc_allocator, &bench->scope);
    lib_arena_init(&second, &lib_libc_allocator, &bench->scope);
    graph *g = graph_new(&first, NULL);
    const int64_t shape = COUNT;
    graph_new_output(g, NULL, graph_literal(g, DLC_F32, 1, &shape, numbers));
    const void *bytes = g->constants.data[0].bytes;
    assert_ptr_not_equal(bytes, numbers);
    graph_new_output(g, "again", graph_literal(g, DLC_F32, 1, &shape, numbers)); /* equal ones are one */
    assert_int_equal(g->constants.count, 1);
    const graph *copy = graph_copy(&second, g);
    lib_arena_free(&first);
    assert_ptr_equal(copy->constants.data[0].bytes, bytes);
    assert_memory_equal(bytes, numbers, COUNT * sizeof *numbers);
    lib_arena_free(&second);
}

static void test_shared_bytes(void **state) {
    (void)state;
    run(body_shared_bytes, NULL);
}

/* What is known of a constant without its bytes: does it repeat, and as which element. */
static void body_described(workbench *bench, void *user) {
    (void)user;
    graph *g = graph_new(&bench->arena, NULL);
    static const struct {
        dlc_dtype dtype;
        int count;
        uint64_t bits[4];
        bool uniform;
        double number;
    } cases[] = {{DLC_I8, 4, {0x05050505}, true, 5},
                 {DLC_I8, 4, {0x05050506}, false, 0},
                 {DLC_I16, 4, {0x0102010201020102}, true, 0x102},
                 {DLC_I16, 4, {0x0102010201020103}, false, 0},
                 {DLC_F32, 2, {0x3f8000003f800000}, true, 1},
                 {DLC_F32, 2, {0x3f80000040000000}, false, 0},
                 {DLC_F32, 3, {0, 0}, true, 0},
                 {DLC_I64, 2, {7, 7}, true, 7},
                 {DLC_I64, 2, {7, 8}, false, 0},
                 {DLC_I8, 2, {0x0201}, false, 0},
                 {DLC_I16, 1, {0x0201}, true, 0x201},
                 {DLC_F64, 1, {0x4000000000000000}, true, 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t count = cases[c].count;
        graph_id value = graph_literal(g, cases[c].dtype, 1, &count, cases[c].bits);
        for (int described = 0; described < 2; described++) {
            double number = 0;
            assert_true(graph_is_number(g, value, &number) == cases[c].uniform);
            if (cases[c].uniform) assert_true(number == cases[c].number);
            graph_constant_describe(&bench->scope, (graph_constant *)(uintptr_t)graph_constant_of(g, value));
        }
    }
}

static void test_described(void **state) {
    (void)state;
    run(body_described, NULL);
}

/* ---- loop-invariant code */

/* Of two loops in one another: exp(w) leaves both, w + x what is made of w alone. Operators of the graphs from outside in. */
static void body_hoist(workbench *bench, void *user) {
    (void)user;
    static const char text[] = "graph {\n input c: f32[4]\n input x: f32[9, 4]\n input w: f32[4]\n"
                               " r = scan(c, x, w, carries=1, sequences=1, body=graph {\n"
                               "  input h: f32[4]\n  input a: f32[4]\n  input v: f32[4]\n"
                               "  q = scan(h, a, v, carries=1, sequences=0, length=[3], body=graph {\n"
                               "   input g: f32[4]\n   input b: f32[4]\n   input u: f32[4]\n"
                               "   e = exp(u)\n   t = tanh(b)\n   p = mul(g, t)\n   o = add(p, e)\n   output o\n  })\n"
                               "  output q\n })\n output r\n}\n";
    lib_lexer lexer;
    lib_lexer_init(&lexer, &bench->arena, "text", text, sizeof text - 1);
    const graph *g = graph_parse(&bench->arena, &lexer), *h = graph_hoist(&bench->arena, g);
    graph_verify(&bench->scope, h);
    assert_string_equal(operators_of(bench, h), "exp scan");
    const graph *outer = h->subgraphs.data[0];
    assert_string_equal(operators_of(bench, outer), "tanh scan");
    assert_string_equal(operators_of(bench, outer->subgraphs.data[0]), "mul add");
    assert_int_equal(outer->inputs.count, 4);
    print_graph(bench, h);
}

static void test_hoist(void **state) {
    (void)state;
    run(body_hoist, NULL);
}

static void test_captures(void **state) {
    (void)state;
    dlc_context context;
    dlc_graph *g;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    dlc_dim n[] = {{0, "n"}};
    dlc_value flag = dlc_input(g, "flag", DLC_BOOL, 0, NULL);
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, n), y = dlc_input(g, "y", DLC_F32, 1, n);
    dlc_value two = dlc_scalar(g, DLC_F32, 2);
    dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g), *inner = dlc_subgraph(then),
              *inner2 = dlc_subgraph(then);
    dlc_value a = dlc_input(then, "a", DLC_F32, 1, n);
    /* y comes from outside, through two levels */
    dlc_output(inner, "r", dlc_add(dlc_mul(y, two), a));
    dlc_output(inner2, "r", dlc_sub(a, y));
    dlc_value nested;
    dlc_if(flag, 0, NULL, inner, inner2, 1, &nested);
    dlc_output(then, "r", nested);
    dlc_value b = dlc_input(otherwise, "b", DLC_F32, 1, n);
    dlc_output(otherwise, "r", dlc_neg(b));
    dlc_value result;
    dlc_if(flag, 1, &x, then, otherwise, 1, &result);
    assert_string_equal(dlc_graph_message(g), "");
    assert_true(dlc_value_ok(result));
    dlc_output(g, "result", result);
    char *text;
    assert_int_equal(dlc_graph_print(g, &text), DLC_OK);
    /* y * two depends on values from outside only, so it is computed there. Operands: condition, x, and for both
     * branches the captures y * two, y and flag. */
    const graph *inside = graph_of_handle(g);
    const graph_node *node = graph_node_of(inside, result.id);
    assert_int_equal(node->inputs, 5);
    assert_int_equal(node->input[1], x.id);
    for (uint32_t i = 0; i < inside->subgraphs.count; i++) assert_int_equal(inside->subgraphs.data[i]->inputs.count, 4);
    lib_scope scope;
    if (LIB_ENTER(&scope))
        graph_verify(&scope, inside);
    else
        fail_msg("%s", scope.error.message);
    dlc_graph *again;
    assert_int_equal(dlc_graph_parse(&context, text, strlen(text), &again), DLC_OK);
    char *text2;
    assert_int_equal(dlc_graph_print(again, &text2), DLC_OK);
    assert_string_equal(text, text2);
    dlc_text_free(&context, text);
    dlc_text_free(&context, text2);
    /* a sub-graph of another graph; results that do not fit */
    dlc_graph *other;
    assert_int_equal(dlc_graph_create(&context, &other), DLC_OK);
    dlc_if(flag, 1, &x, then, dlc_subgraph(other), 1, &result);
    assert_false(dlc_value_ok(result));
    assert_contains(dlc_graph_message(g), "otherwise");
    dlc_graph_destroy(g);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    dlc_graph_destroy(other);
    context_close(&context);
}

/* ---- out of memory in passes */

static void *scarce_allocate(void *user, size_t size, size_t alignment) {
    int64_t *left = user;
    return (*left)-- > 0 ? lib_allocate(&lib_libc_allocator, size, alignment) : NULL;
}

static void scarce_release(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user;
    lib_release(&lib_libc_allocator, pointer, size, alignment);
}

static void all_passes(workbench *bench) {
    static const tir_machine machine = {.target = "test", .l2 = 1 << 20};
    graph *g = parsed(bench, "input x: f32[n, 8] c = constant f32[8] {1, 2, 3, 4, 5, 6, 7, 8} d = exp(c) y = mul(x, d)"
                             " s = softmax(y, axis=1) output s");
    g = graph_copy(&bench->arena, graph_simplify(&bench->arena, graph_decompose(&bench->arena, g)));
    const graph *bound = graph_bind(&bench->arena, g, (int64_t[]){4});
    graph *init, *rest;
    graph_split_init(&bench->arena, graph_simplify(&bench->arena, bound), &init, &rest);
    graph_regions regions = graph_fuse(&bench->arena, rest, &machine, NULL);
    for (uint32_t i = 0; i < regions.count; i++) graph_region_build(&bench->arena, rest, &regions.data[i], NULL, NULL);
    graph_hash(rest);
    print_graph(bench, rest);
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (volatile int64_t limit = 0;; limit++) {
        int64_t left = limit;
        dlc_allocator allocator = {scarce_allocate, scarce_release, &left};
        workbench bench;
        lib_arena_init(&bench.arena, &allocator, &bench.scope);
        volatile bool done = false;
        if (LIB_ENTER(&bench.scope)) {
            all_passes(&bench);
            done = true;
        }
        lib_arena_free(&bench.arena);
        if (done) break;
        assert_int_equal(bench.scope.error.status, DLC_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind),      cmocka_unit_test(test_rules),    cmocka_unit_test(test_rules_of_types),
        cmocka_unit_test(test_init),      cmocka_unit_test(test_copy),     cmocka_unit_test(test_shared_bytes),
        cmocka_unit_test(test_described), cmocka_unit_test(test_captures), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_hoist),     cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests_name("graph/passes", tests, NULL, NULL);
}
