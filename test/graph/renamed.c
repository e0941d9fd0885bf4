/* Passes know no names: on graphs of rows that are called otherwise, copies of those of the table or maps that a host registers, they do
 * the same. */
#include "context.h"

#include "graph/fuse.h"
#include "graph/inference.h"
#include "graph/ops_common.h"
#include "graph/registry.h"
#include "graph/winograd.h"
#include "units.h"

#include <dlc/extend.h>

#define PREFIX "other_"

static const tir_machine machine = {.target = "test",
                                    .l1 = 32 << 10,
                                    .l2 = 1 << 20,
                                    .l3 = 8 << 20,
                                    .vector_bytes = 32,
                                    .unit_bits = CPU_U8I8_DOT,
                                    .units = test_units,
                                    .rates = {.fma = 2, .distant = {64, 32, 16, 8}}};

typedef struct copies {
    lib_arena *arena;
    lib_vec(const graph_op *) rows;
    lib_vec(const graph_op *) made;
} copies;

static const graph_op *copy_of(copies *c, const graph_op *op) {
    for (uint32_t i = 0; i < c->rows.count; i++)
        if (c->rows.data[i] == op) return c->made.data[i];
    graph_op *made = lib_arena_copy(c->arena, op, sizeof *op);
    made->name = lib_arena_format(c->arena, PREFIX "%s", op->name);
    lib_vec_push(c->arena, &c->rows, op);
    lib_vec_push(c->arena, &c->made, made);
    return made;
}

/* A pass: emits each node again, of the renamed row. */
static void pass_rename(graph_walk *walk) {
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute] = {0};
        if (graph_is_constant(node)) { /* else those that passes make would be others */
            graph_walk_node(walk, i);
            continue;
        }
        graph_walk_attributes(walk, node, attribute);
        const graph_id first =
            graph_emit(walk->to, copy_of(walk->user, node->op), node->inputs, graph_walk_inputs(walk, node), attribute);
        graph_id *results = LIB_NEW_ARRAY(walk->to->arena, graph_id, (size_t)node->results + 1);
        for (int r = 0; r < node->results; r++) results[r] = first + (graph_id)r;
        graph_walk_record(walk, node, results);
    }
}

/* ---- what passes make of a graph, as text --------------------------------------------------------------------------- */

static void print_fused(lib_text *text, lib_arena *arena, const graph *g) {
    const graph_regions regions = graph_fuse(arena, g, &machine, NULL);
    for (uint32_t r = 0; r < regions.count; r++) {
        lib_text_format(text, "%s%s:", regions.data[r].kind == GRAPH_REGION_VIEW ? "view " : "", regions.data[r].name);
        for (uint32_t i = 0; i < regions.data[r].node_count; i++)
            lib_text_format(text, " %u", regions.data[r].nodes[i]);
        graph_id *numbers;
        lib_text_format(text, ", %u numbers\n", graph_region_numbers(arena, g, &regions.data[r], &numbers));
    }
}
static void print_factors(lib_text *text, lib_arena *arena, const graph *g) {
    graph_print(text, graph_fold_factors(arena, g));
    graph_print(text, graph_factor_products(arena, g));
}
static void print_scattered(lib_text *text, lib_arena *arena, const graph *g) {
    graph_print(text, graph_scatter_onto_sums(arena, g));
}
static void print_hoisted(lib_text *text, lib_arena *arena, const graph *g) {
    graph_print(text, graph_hoist(arena, g));
}
static void print_split(lib_text *text, lib_arena *arena, const graph *g) {
    graph *init, *rest;
    graph_split_init(arena, g, &init, &rest);
    if (init) graph_print(text, init);
    graph_print(text, rest);
}
static void print_winograd(lib_text *text, lib_arena *arena, const graph *g) {
    graph_print(text, graph_winograd(arena, g, &machine));
}
static void print_growth(lib_text *text, lib_arena *arena, const graph *g) {
    int axis = -1;
    (void)arena;
    const bool grows = graph_grows(g, 0, 0, &axis);
    lib_text_format(text, "%d along %d\n", grows, axis);
}

typedef struct passed {
    void (*print)(lib_text *text, lib_arena *arena, const graph *g);
    /* what the text has to contain, so that something was done */
    const char *shows;
    const char *graph;
} passed;

static const passed cases[] = {
    /* softmax: maps and folds of rows, and the broadcasts between them */
    {print_fused, "reduce_max_sub_exp_reduce_sum:",
     "input x: f32[64, 100] m = reduce_max(x, axes=[1]) M = broadcast(m, shape=[64, 100], axes=[0])"
     " d = sub(x, M) e = exp(d) s = reduce_sum(e, axes=[1]) S = broadcast(s, shape=[64, 100], axes=[0])"
     " y = div(e, S) output y"},
    /* attention: two contractions around such rows */
    {print_fused, "dot_general_reduce_max_sub_exp",
     "input q: f32[4, 64, 16] input k: f32[4, 64, 16] input v: f32[4, 64, 16]"
     " s = dot_general(q, k, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[2])"
     " m = reduce_max(s, axes=[2]) M = broadcast(m, shape=[4, 64, 64], axes=[0, 1]) d = sub(s, M)"
     " e = exp(d) t = reduce_sum(e, axes=[2])"
     " y = dot_general(e, v, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[1]) T = broadcast(t, shape=[4, 64, 16], axes=[0, 1]) z = div(y, T)"
     " output z"},
    /* moves with maps, a join of parts, a view, and rows picked from what maps compute */
    {print_fused, "view reshape",
     "input x: f32[64, 32] input y: f32[32, 64] t = transpose(y, permutation=[1, 0]) a = add(x, t)"
     " b = exp(a) c = concat(a, b, axis=1) r = reshape(c, shape=[4096]) output r"},
    {print_fused, "exp_gather_sqrt",
     "input x: f32[64, 32] input i: i32[16] e = exp(x) g = gather(e, i, axis=1) s = sqrt(g)"
     " u = slice(x, start=[3, 0], stop=[9, 32]) w = neg(u) output s output w"},
    /* a mask from positions, a widening cast, numbers that kernels may read */
    {print_fused, "mul_select: 4 6 7 1 2 3 8, 1 numbers",
     "input x: f16[32, 32] i = iota(dtype=i32, shape=[32, 32], axis=0)"
     " j = iota(dtype=i32, shape=[32, 32], axis=1) m = le(i, j) f = cast(x, dtype=f32)"
     " c = constant f32[] {2.5} C = broadcast(c, shape=[32, 32], axes=[]) p = mul(f, C)"
     " y = select(m, p, f) n = gt(j, i) output y output n"},
    /* a convolution of channels last, seen through moves */
    {print_fused, "view transpose_2",
     "input g: f32[1, 8, 8, 16] input w: f32[16, 16, 3, 3] x = transpose(g, permutation=[0, 3, 1, 2])"
     " y = convolution(x, w, low=[1, 1], high=[1, 1]) z = reduce_window(y, op=max, window=[1, 1, 2, 2],"
     " stride=[1, 1, 2, 2]) o = transpose(z, permutation=[0, 2, 3, 1]) output o"},
    /* a batch norm behind a contraction, numbers around operands, a softmax's sums in front of one */
    {print_factors, "v15 = dot_general(x, v14",
     "input x: f32[8, 4] w = constant f32[4, 2] {1, 2, 3, 4, 5, 6, 7, 8} a = constant f32[2] {1, 2}"
     " b = constant f32[2] {3, 5} A = broadcast(a, shape=[8, 2], axes=[1])"
     " B = broadcast(b, shape=[8, 2], axes=[1])"
     " y = dot_general(x, w, contract_x=[1], contract_w=[0]) s = sub(y, A) m = mul(s, B)"
     " d = div(m, A) z = add(d, B) output z"},
    {print_factors, "y = dot_general(q, t",
     "input q: f32[4, 64, 16] input k: f32[4, 64, 16] c = constant f32[] {0.3}"
     " C = broadcast(c, shape=[4, 64, 16], axes=[]) p = mul(q, C)"
     " t = transpose(k, permutation=[0, 2, 1]) D = broadcast(c, shape=[4, 16, 64], axes=[])"
     " u = div(t, D) y = dot_general(p, u, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[1])"
     " output y"},
    {print_factors, "y = mul(v6, v11)",
     "input e: f32[64, 32] input v: f32[32, 8] s = reduce_sum(e, axes=[1])"
     " S = broadcast(s, shape=[64, 32], axes=[0]) p = div(e, S)"
     " y = dot_general(p, v, contract_x=[1], contract_w=[0]) output y"},
    /* a table minus its gradient */
    {print_scattered, "= scatter(w,",
     "input w: f32[64, 32] input i: i32[16] input d: f32[16, 32] input r: f32[] c = constant f32[] {0}"
     " z = broadcast(c, shape=[64, 32], axes=[]) s = scatter(z, i, d, axis=0, combine=add)"
     " R = broadcast(r, shape=[64, 32], axes=[]) g = mul(R, s) y = sub(w, g) output y"},
    /* loops and branches, with nodes that move out of them */
    {print_hoisted, "x, e, condition",
     "input x: f32[4] input n: i32[] z = constant i32[] {0} i, y = while(z, x, n, x, condition=graph { input i: i32[]"
     " input y: f32[4] input n: i32[] input x: f32[4] c = lt(i, n) output c }, body=graph { input i: i32[]"
     " input y: f32[4] input n: i32[] input x: f32[4] o = constant i32[] {1} j = add(i, o) e = exp(x)"
     " w = add(y, e) output j output w }) output y"},
    /* values computed from constants, which move to the init graph; moves, positions and narrow weights, which do not */
    {print_split, "input t",
     "input x: f32[100, 100] i = iota(dtype=f32, shape=[100, 100], axis=1) e = exp(i)"
     " t = transpose(e, permutation=[1, 0]) y = mul(x, t) z = add(y, i) output z"},
    {print_winograd, "winograd_output",
     "input x: f32[1, 64, 32, 32] i = iota(dtype=f32, shape=[64, 64, 3, 3], axis=2)"
     " y = convolution(x, i, low=[1, 1], high=[1, 1]) output y"},
    {print_growth, "1 along 0", "input x: f32[n, 3] input y: f32[2, 3] z = concat(x, y, axis=0) output z"},
};

/* The text without the prefix. */
static const char *made_by(workbench *bench, const passed *p, const graph *g) {
    lib_text text, plain;
    lib_text_init(&text, &bench->arena);
    lib_text_init(&plain, &bench->arena);
    p->print(&text, &bench->arena, g);
    for (const char *at = text.data; *at;) {
        const bool prefix = strncmp(at, PREFIX, strlen(PREFIX)) == 0;
        if (!prefix) lib_text_add_bytes(&plain, at, 1);
        at += prefix ? strlen(PREFIX) : 1;
    }
    lib_text_add(&plain, "");
    return plain.data;
}

static void check_cases(workbench *bench, copies *c) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const graph *g = parse_graph(bench, lib_arena_format(&bench->arena, "graph { %s }", cases[i].graph));
        graph *renamed = graph_walk_run(&bench->arena, g, g->phase, NULL, pass_rename, c);
        graph_verify(&bench->scope, renamed);
        const char *expected = made_by(bench, &cases[i], g), *found = made_by(bench, &cases[i], renamed);
        if (!strstr(expected, cases[i].shows)) fail_msg("case %zu: no \"%s\" in %s", i, cases[i].shows, expected);
        if (strcmp(expected, found) != 0)
            fail_msg("case %zu: of rows by other names a pass makes\n%s\nand not\n%s", i, found, expected);
    }
}

static void body_renamed(workbench *bench, void *user) {
    (void)user;
    check_cases(bench, &(copies){.arena = &bench->arena});
}

static void test_renamed(void **state) {
    (void)state;
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body_renamed, NULL);
    bench_close(&bench);
}

/* Rows that a host registers by what their elements are, in place of those of the table. */
static void body_of_host(workbench *bench, void *user) {
    static const struct {
        const char *row, *operands, *expression;
        uint32_t linear;
    } maps[] = {
        {"add", "a b", "y[...] = a[...] + b[...]", 0}, {"sub", "a b", "y[...] = a[...] - b[...]", 0},
        {"mul", "a b", "y[...] = a[...] * b[...]", 3}, {"div", "a b", "y[...] = a[...] / b[...]", 1},
        {"neg", "x", "y[...] = -x[...]", 1},           {"exp", "x", "y[...] = exp(x[...])", 0},
        {"le", "a b", "y[...] = a[...] <= b[...]", 0}, {"gt", "a b", "y[...] = a[...] > b[...]", 0},
    };
    dlc_context *context = user;
    copies c = {.arena = &bench->arena};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
        options.name = lib_arena_format(&bench->arena, PREFIX "%s", maps[i].row);
        options.operands = maps[i].operands;
        options.expression = maps[i].expression;
        options.dtypes = strcmp(maps[i].row, "exp") == 0 ? "float" : "number";
        assert_int_equal(dlc_operator_register(context, &options), DLC_OK);
        const graph_op *row = graph_op_find(maps[i].row),
                       *made = &graph_registry_find(&context->handles.registry, options.name)->op;
        assert_int_equal(made->operation, row->operation);
        assert_int_equal(made->reversed, row->reversed);
        assert_int_equal(made->linear, row->linear);
        assert_int_equal(made->linear, maps[i].linear);
        lib_vec_push(c.arena, &c.rows, row);
        lib_vec_push(c.arena, &c.made, made);
    }
    check_cases(bench, &c);
}

static void test_of_host(void **state) {
    (void)state;
    dlc_context context;
    workbench bench;
    context_open(&context);
    bench_open(&bench);
    bench_run(&bench, body_of_host, &context);
    bench_close(&bench);
    context_close(&context);
}

/* A host's map that is more than one operation of its operands' elements, or changes the element type, has no `operation`. */
static void test_facts_of_host(void **state) {
    static const struct {
        const char *operands, *expression;
        uint32_t linear;
    } maps[] = {
        {"a b c", "y[...] = a[...] * b[...] / c[...]", 3},    {"a b", "y[...] = a[...] * b[...] + b[...]", 2},
        {"a b", "y[...] = (a[...] - b[...]) * a[...]", 0},    {"a", "y[...] = a[...] + a[...]", 1},
        {"a b", "y[...] = select(a[...] > 0, b[...], 0)", 0}, {"a", "y[...] = a[...] * 2", 1},
    };
    (void)state;
    dlc_context context;
    context_open(&context);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        char name[16];
        snprintf(name, sizeof name, "map%zu", i);
        dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
        options.name = name;
        options.operands = maps[i].operands;
        options.expression = maps[i].expression;
        options.dtypes = "number";
        assert_int_equal(dlc_operator_register(&context, &options), DLC_OK);
        const graph_op *made = &graph_registry_find(&context.handles.registry, name)->op;
        assert_int_equal(made->operation, 0);
        assert_int_equal(made->linear, maps[i].linear);
    }
    context_close(&context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_renamed), cmocka_unit_test(test_of_host),
                                       cmocka_unit_test(test_facts_of_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
