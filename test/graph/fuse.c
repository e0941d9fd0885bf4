/* Fusion: fused regions compute what single nodes compute, on random graphs and on the chains that it exists for; every
 * node is in a region, and the order can run. */
#include "evaluate.h"

#include <math.h>

static const tir_machine machine = {.target = "test", .l1 = 32 << 10, .l2 = 1 << 20, .l3 = 8 << 20};

/* ---- costs of their own */

typedef struct chance {
    uint64_t state;
    int asked, recorded, taken_back, recalled;
} chance;

static bool cost_by_chance(void *user, const graph_region *region, const graph_region *whole,
                           double cycles[GRAPH_FUSE_WIDTHS]) {
    chance *c = user;
    (void)whole;
    c->asked++;
    assert_true(region->node_count > 0 && region->output_count > 0);
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] = (double)(random_next(&c->state) % 1000);
    return random_next(&c->state) % 16 != 0; /* no model for this one */
}

static lib_hash128 identify_by_joins(void *user, const graph_region *region, lib_hash128 joins) {
    (void)user, (void)region;
    return joins;
}

static bool recall_nothing(void *user, const lib_hash128 *question, uint32_t *apart) {
    (void)user, (void)question, (void)apart;
    return false;
}

/* An answer that a damaged or hostile file may hold. */
static bool recall_by_chance(void *user, const lib_hash128 *question, uint32_t *apart) {
    chance *c = user;
    (void)question;
    *apart = (uint32_t)random_next(&c->state) >> random_next(&c->state) % 32;
    c->recalled++;
    return true;
}

static void record_chance(void *user, const lib_hash128 *question, uint32_t apart) {
    chance *c = user;
    (void)question;
    c->recorded++;
    c->taken_back += apart != 0;
}

/* Whatever joins are taken back, by whatever costs and whatever was recalled: the same values, in an order that can run. */
static void check_costs(workbench *bench, const graph *g, uint64_t seed, bool recalled, chance *c) {
    const graph_fuse_costs costs = {cost_by_chance, identify_by_joins, recalled ? recall_by_chance : recall_nothing,
                                    record_chance, c};
    void **inputs = LIB_NEW_ARRAY(&bench->arena, void *, g->inputs.count);
    for (uint32_t i = 0; i < g->inputs.count; i++) inputs[i] = random_bytes(&bench->arena, g, g->inputs.data[i], &seed);
    graph_regions single = graph_fuse(&bench->arena, g, NULL, NULL),
                  fused = graph_fuse(&bench->arena, g, &machine, &costs);
    void **expected = run_regions(&bench->arena, g, &single, inputs);
    void **found = run_regions(&bench->arena, g, &fused, inputs);
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        graph_id value = g->outputs.data[i];
        if (!same_elements(graph_shape_of(g, value)->dtype, expected[value], found[value], count_of(g, value)))
            fail_msg("output %u differs with costs by chance in %s", i, print_graph(bench, g));
    }
}

static void check_fusion(workbench *bench, const graph *g, uint64_t seed) {
    void **inputs = LIB_NEW_ARRAY(&bench->arena, void *, g->inputs.count);
    for (uint32_t i = 0; i < g->inputs.count; i++) inputs[i] = random_bytes(&bench->arena, g, g->inputs.data[i], &seed);
    graph_regions single = graph_fuse(&bench->arena, g, NULL, NULL),
                  fused = graph_fuse(&bench->arena, g, &machine, NULL);
    void **expected = run_regions(&bench->arena, g, &single, inputs);
    void **found = run_regions(&bench->arena, g, &fused, inputs);
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        graph_id value = g->outputs.data[i];
        if (!same_elements(graph_shape_of(g, value)->dtype, expected[value], found[value], count_of(g, value)))
            fail_msg("output %u differs in %s", i, print_graph(bench, g));
    }
    assert_true(fused.count <= single.count);
}

/* ---- the chains it exists for: number of regions, not counting views */

static uint32_t kernels(const graph_regions *regions) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < regions->count; i++) count += regions->data[i].kind == GRAPH_REGION_KERNEL;
    return count;
}

static const struct {
    const char *text;
    uint32_t kernels;
    /* of the first region */
    const char *name;
} chains[] = {
    {"input x: f32[5, 7] input a: f32[7] b = constant f32[] {2} u = mul(x, a) v = add(u, b) w = tanh(v) output w", 1,
     "mul"},
    /* softmax: one region */
    {"input x: f32[5, 7] m = reduce_max(x, axes=[1], keep=true) d = sub(x, m) e = exp(d) s = reduce_sum(e, axes=[1], keep=true)"
     " y = div(e, s) output y",
     1, "reduce_max"},
    {"input x: f32[5, 7] y = softmax(x, axis=1) output y", 1, NULL},
    /* a row that is read again after being put out */
    {"input x: f32[5, 7] input r: f32[5, 7] a = add(x, r) y = layer_norm(a, axis=1) z = add(y, a) output z", 1, NULL},
    /* contraction with an epilogue; the bias is broadcast inside, the residual read */
    {"input x: f32[5, 8] input w: f32[8, 6] input b: f32[6] input r: f32[5, 6] c = matmul(x, w) d = add(c, b) e = gelu(d)"
     " f = add(e, r) output f",
     1, "dot_general"},
    /* two contractions in a row stay two */
    {"input x: f32[5, 8] input w: f32[8, 8] a = matmul(x, w) b = tanh(a) c = matmul(b, w) output c", 2, NULL},
    /* both y and relu(y) are wanted */
    {"input x: f32[5, 8] input w: f32[8, 6] c = matmul(x, w) z = constant f32[] {0} d = max(c, z) output c output d", 1,
     NULL},
    /* attention */
    {"input q: f32[2, 5, 4] input k: f32[2, 6, 4] input v: f32[2, 6, 3]"
     " s = dot_general(q, k, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[2]) h = constant f32[] {0.5} t = mul(s, h)"
     " p = softmax(t, axis=2) o = dot_general(p, v, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[1]) output o",
     1, "dot_general_mul_reduce_max_sub_dot_general"},
    /* as a composite, whose division and empty rows come behind the second contraction */
    {"input q: f32[1, 2, 5, 4] input k: f32[1, 2, 6, 4] input v: f32[1, 2, 6, 3] y = attention(q, k, v) output y", 1,
     "dot_general_mul_reduce_max_sub_dot_general"},
    {"input q: f32[1, 2, 5, 4] input k: f32[1, 2, 6, 4] input v: f32[1, 2, 6, 3] input m: bool[1, 1, 1, 6]"
     " y = attention(q, k, v, m) output y",
     1, "dot_general_mul_select_reduce_max_dot_general"},
    /* positions cost less than the memory for a triangle of them */
    {"input q: f32[1, 2, 5, 4] input k: f32[1, 2, 6, 4] input v: f32[1, 2, 6, 3]"
     " y = attention(q, k, v, causal=true) output y",
     1, "dot_general_mul_select_reduce_max_dot_general"},
    /* heads that share keys */
    {"input q: f32[1, 4, 5, 4] input x: f32[1, 2, 6, 4] input v: f32[1, 4, 6, 3] a = reshape(x, shape=[1, 2, 1, 6, 4])"
     " b = broadcast(a, shape=[1, 2, 2, 6, 4], axes=[0, 1, 2, 3, 4]) k = reshape(b, shape=[1, 4, 6, 4])"
     " y = attention(q, k, v) output y",
     1, "dot_general_mul_reduce_max_sub_dot_general"},
    /* sums of the rows may be wanted by others */
    {"input q: f32[5, 4] input k: f32[4, 6] input v: f32[6, 3] s = matmul(q, k) m = reduce_max(s, axes=[1], keep=true)"
     " b = broadcast(m, shape=[5, 6], axes=[0, 1]) d = sub(s, b) e = exp(d) l = reduce_sum(e, axes=[1], keep=true)"
     " o = matmul(e, v) output o output l",
     1, "dot_general_reduce_max_sub_exp_dot_general"},
    /* what is computed from these sums alone is a kernel of its own */
    {"input q: f32[5, 4] input k: f32[4, 6] input v: f32[6, 3] s = matmul(q, k) m = reduce_max(s, axes=[1], keep=true)"
     " b = broadcast(m, shape=[5, 6], axes=[0, 1]) d = sub(s, b) e = exp(d) l = reduce_sum(e, axes=[1], keep=true)"
     " o = matmul(e, v) n = log(l) a = add(n, m) output o output a",
     2, "dot_general_reduce_max_sub_exp_dot_general"},
    /* the scores are wanted too: no attention region */
    {"input q: f32[5, 4] input k: f32[4, 6] input v: f32[6, 3] s = matmul(q, k) p = softmax(s, axis=1) o = matmul(p, v)"
     " output o output s",
     3, NULL},
    /* joining the map with its producer would close a cycle through the reduction and the second contraction */
    {"input x: f32[4, 4] a = matmul(x, x) r = reduce_sum(a, axes=[0], keep=false) t = reshape(r, shape=[4, 1]) b = matmul(a, t)"
     " c = add(a, b) output c",
     4, NULL},
    /* a reshape between kernels is a view */
    {"input x: f32[4, 6] input w: f32[24, 5] a = exp(x) b = reshape(a, shape=[1, 24]) c = matmul(b, w) output c", 2,
     NULL},
    /* rows of a transposed table are far apart: moved first where many of them are read, not for a few */
    {"input x: f32[64, 64] input i: i32[128] t = transpose(x, permutation=[1, 0]) y = gather(t, i, axis=0) output y", 2,
     "transpose"},
    {"input x: f32[64, 64] input i: i32[2] t = transpose(x, permutation=[1, 0]) y = gather(t, i, axis=0) output y", 1,
     "transpose_gather"},
    /* rows that elements are chosen from, by all that read them */
    {"input x: f32[9, 20] input i: i32[12] input k: i32[12] a = exp(x) b = gather(a, i, axis=1) c = gather(a, k, axis=1)"
     " d = add(b, c) output d",
     1, "exp_gather_gather_add"},
    {"input x: f32[9, 20] input i: i32[3] a = exp(x) b = gather(a, i, axis=1) c = neg(b) output c", 2, "exp"},
    {"input x: f32[9, 20] input i: i32[12] a = exp(x) b = gather(a, i, axis=1) c = neg(b) output c output a", 2, "exp"},
    {"input x: f32[9, 20] input i: i32[12] a = exp(x) b = gather(a, i, axis=0) c = neg(b) output c", 2, "exp"},
    /* cheap nodes are copied into their readers */
    {"input x: f32[4] a = broadcast(x, shape=[3, 4], axes=[1]) b = exp(a) c = reduce_sum(a, axes=[0]) output b output c",
     2, NULL},
};

static void body_chains(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        const char *text = lib_arena_format(&bench->arena, "graph { %s }", chains[i].text);
        const graph *g = graph_decompose(&bench->arena, parse_graph(bench, text));
        g = graph_simplify(&bench->arena, graph_bind(&bench->arena, g, NULL));
        graph_regions regions = graph_fuse(&bench->arena, g, &machine, NULL);
        if (kernels(&regions) != chains[i].kernels) {
            for (uint32_t r = 0; r < regions.count; r++) printf("  region %s\n", regions.data[r].name);
            fail_msg("%u kernels, expected %u: %s", kernels(&regions), chains[i].kernels, print_graph(bench, g));
        }
        if (chains[i].name) assert_memory_equal(regions.data[0].name, chains[i].name, strlen(chains[i].name));
        check_fusion(bench, g, i);
        chance c = {.state = i + 1};
        for (uint64_t seed = 0; seed < 24; seed++) check_costs(bench, g, seed, true, &c);
    }
}

/* ---- joins in doubt */

/* A region's cycles are what the table says of a region with these operators; others take 1. */
typedef struct price {
    const char *word;
    double cycles[GRAPH_FUSE_WIDTHS];
} price;

static bool cost_by_table(void *user, const graph_region *region, const graph_region *whole,
                          double cycles[GRAPH_FUSE_WIDTHS]) {
    (void)whole;
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] = 1;
    for (const price *p = user; p->word; p++)
        if (strcmp(region->name, p->word) == 0) memcpy(cycles, p->cycles, sizeof p->cycles);
    return true;
}

static void record_nothing(void *user, const lib_hash128 *question, uint32_t apart) {
    (void)user, (void)question, (void)apart;
}

static bool recall_one_apart(void *user, const lib_hash128 *question, uint32_t *apart) {
    (void)user, (void)question;
    *apart = 1;
    return true;
}

static bool recall_two_apart(void *user, const lib_hash128 *question, uint32_t *apart) {
    (void)user, (void)question;
    *apart = 3;
    return true;
}

static const char two_outputs[] =
    "graph { input x: f32[5, 8] input w: f32[8, 6] c = matmul(x, w) d = tanh(c) output c output d }";
static const char norm_between[] =
    "graph { input x: f32[8, 16] input w: f32[16, 8] input u: f32[8, 12] h = matmul(x, w) m = reduce_max(h, axes=[1], keep=true)"
    " s = sub(h, m) y = matmul(s, u) output y }";

static const struct {
    const char *text;
    price prices[4];
    uint32_t kernels;
} decisions[] = {
    {two_outputs, {{"dot_general_tanh", {2, 2}}}, 1},               /* as fast as its parts */
    {two_outputs, {{"dot_general_tanh", {2.1, 2}}}, 2},             /* slower on one thread */
    {two_outputs, {{"dot_general_tanh", {1, 3}}}, 2},               /* slower on several */
    {two_outputs, {{"dot_general_tanh", {INFINITY, INFINITY}}}, 2}, /* no schedule */
    {norm_between,
     {{"dot_general_reduce_max_sub_dot_general", {3, 3}},
      {"reduce_max_sub_dot_general", {9, 9}},
      {"dot_general_reduce_max_sub", {9, 9}}},
     1},
    {norm_between,
     {{"dot_general_reduce_max_sub_dot_general", {9, 9}},
      {"reduce_max_sub_dot_general", {9, 9}},
      {"dot_general_reduce_max_sub", {1, 1}}},
     2},
    {norm_between,
     {{"dot_general_reduce_max_sub_dot_general", {9, 9}},
      {"reduce_max_sub_dot_general", {9, 9}},
      {"dot_general_reduce_max_sub", {9, 9}}},
     3},
};

static void body_decisions(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        graph_fuse_costs costs = {cost_by_table, identify_by_joins, recall_nothing, record_nothing,
                                  (void *)(uintptr_t)decisions[i].prices};
        const graph *g = graph_decompose(&bench->arena, parse_graph(bench, decisions[i].text));
        g = graph_simplify(&bench->arena, graph_bind(&bench->arena, g, NULL));
        graph_regions regions = graph_fuse(&bench->arena, g, &machine, &costs);
        if (kernels(&regions) != decisions[i].kernels) {
            for (uint32_t r = 0; r < regions.count; r++) printf("  region %s\n", regions.data[r].name);
            fail_msg("%zu: %u kernels, expected %u", i, kernels(&regions), decisions[i].kernels);
        }
        bool one = decisions[i].text == two_outputs;
        costs.recall = one ? recall_one_apart : recall_two_apart; /* what was decided before is not asked again */
        regions = graph_fuse(&bench->arena, g, &machine, &costs);
        assert_true(kernels(&regions) == (one ? 2u : 3u));
        costs.recall = one ? recall_two_apart : recall_nothing; /* an answer to a question of more joins: asked again */
        regions = graph_fuse(&bench->arena, g, &machine, &costs);
        assert_int_equal(kernels(&regions), decisions[i].kernels);
    }
}

/* What a norm squares is not stored beside it, however long the chain of maps is and whether or not the sum is wanted. */
static void body_borders(workbench *bench, void *user) {
    static const char *const texts[] = {
        "graph { input x: f32[5, 8] input w: f32[8, 6] input r: f32[5, 6] c = matmul(x, w) s = add(c, r) q = mul(s, s)"
        " t = reduce_sum(q, axes=[1], keep=true) y = mul(s, t) output y }",
        "graph { input x: f32[5, 8] input w: f32[8, 6] input r: f32[5, 6] c = matmul(x, w) s = add(c, r) q = mul(s, s) e = tanh(q)"
        " t = reduce_sum(e, axes=[1], keep=true) y = mul(s, t) output y output s }",
    };
    (void)user;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const graph *g = graph_decompose(&bench->arena, parse_graph(bench, texts[i]));
        g = graph_simplify(&bench->arena, graph_bind(&bench->arena, g, NULL));
        graph_regions regions = graph_fuse(&bench->arena, g, &machine, NULL);
        assert_int_equal(kernels(&regions), 2);
        assert_int_equal(regions.data[0].output_count, 1);
        check_fusion(bench, g, i);
    }
}

/* ---- random graphs */

typedef struct maker {
    graph *g;
    uint64_t state;
    graph_id value[64];
    int count;
} maker;

static graph_id pick(maker *m) {
    return m->value[random_next(&m->state) % (uint32_t)m->count];
}

static graph_id pick_of_shape(maker *m, const graph_shape *shape) {
    for (int tries = 0; tries < 20; tries++) {
        graph_id value = pick(m);
        const graph_shape *other = graph_shape_of(m->g, value);
        if (other->rank == shape->rank && memcmp(other->dim, shape->dim, sizeof *shape->dim * (size_t)shape->rank) == 0)
            return value;
    }
    return 0;
}

static graph_id step(maker *m) {
    graph *g = m->g;
    graph_id x = pick(m);
    graph_shape shape = *graph_shape_of(g, x);
    int64_t last = shape.rank - 1, extent = 1;
    graph_id other = pick_of_shape(m, &shape);
    switch (random_next(&m->state) % 20) {
    case 0: return graph_exp(g, x);
    case 1: return graph_neg(g, x);
    case 2:
    case 3:
    case 4: return other ? graph_add(g, x, other) : graph_tanh(g, x);
    case 5: return other ? graph_max(g, x, other) : graph_abs(g, x);
    case 6: return graph_mul(g, x, graph_scalar_like(g, x, 0.5));
    case 7: return shape.rank ? graph_broadcast_like(g, graph_reduce_sum(g, x, 1, &last, true), x) : x;
    case 8: return shape.rank ? graph_sub(g, x, graph_reduce_max(g, x, 1, &last, true)) : x;
    case 9: return shape.rank == 2 ? graph_transpose(g, x, (int64_t[]){1, 0}) : x;
    case 10:
        if (shape.rank != 2) return x;
        return graph_reshape(g, x, 2, (tir_expr[]){shape.dim[1], shape.dim[0]});
    case 11:
        if (shape.rank != 2 || !other) return x;
        return graph_contract(g, x, other, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){1});
    case 12: return shape.rank ? graph_slice_axis(g, x, 0, tir_index(g->pool, 0), shape.dim[0]) : x;
    case 13:
        if (!shape.rank || !tir_is_const(g->pool, shape.dim[0], &extent) || extent < 2) return x;
        return graph_concat(g, 2,
                            (graph_id[]){graph_slice_axis(g, x, 0, tir_index(g->pool, 1), shape.dim[0]),
                                         graph_slice_axis(g, x, 0, tir_index(g->pool, 0), tir_index(g->pool, 1))},
                            0);
    case 16: return shape.rank ? graph_softmax(g, x, (int)last) : x;
    case 17:
        if (!shape.rank) return x;
        return graph_emit_with(g, "cumulative_sum", 1, &x, 1, (graph_setting[]){graph_set_integer("axis", last)});
    case 18:
        if (!shape.rank) return x;
        return graph_pad(g, x, graph_scalar(g, DLC_F32, 1), (int64_t[]){1, 0}, (int64_t[]){0, -1});
    case 19: {
        if (!shape.rank) return x;
        graph_id index = graph_literal(g, DLC_I32, 1, (int64_t[]){3}, (int32_t[]){2, 0, 2});
        return graph_emit_with(g, "gather", 2, (graph_id[]){x, index}, 1,
                               (graph_setting[]){graph_set_integer("axis", 0)});
    }
    case 14: return shape.rank ? graph_reduce_max(g, x, 1, &last, false) : x;
    default: return graph_cast(g, graph_cast(g, x, DLC_F16), DLC_F32);
    }
}

static void body_random(workbench *bench, void *user) {
    maker m = {.g = graph_new(&bench->arena, NULL), .state = *(const uint64_t *)user};
    static const int64_t dims[4][2] = {{3, 5}, {3, 5}, {5, 3}, {5, 5}};
    for (int i = 0; i < 4; i++) {
        graph_shape shape = {.dtype = DLC_F32, .rank = 2};
        for (int k = 0; k < 2; k++) shape.dim[k] = tir_index(m.g->pool, dims[i][k]);
        m.value[m.count++] = graph_new_input(m.g, NULL, &shape);
    }
    int steps = 3 + (int)(random_next(&m.state) % 20);
    for (int i = 0; i < steps; i++) {
        graph_id value = step(&m);
        m.value[m.count++] = value;
    }
    graph_new_output(m.g, NULL, m.value[m.count - 1]);
    graph_new_output(m.g, NULL, pick(&m));
    graph_new_output(m.g, NULL, pick(&m));
    const graph *g = graph_bind(&bench->arena, graph_decompose(&bench->arena, m.g), NULL);
    check_fusion(bench, g, m.state);
    g = graph_simplify(&bench->arena, g);
    check_fusion(bench, g, m.state);
    chance c = {.state = m.state | 1};
    for (int i = 0; i < 4; i++) check_costs(bench, g, m.state, i == 3, &c);
}

static void run(void (*body)(workbench *, void *), void *user) {
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body, user);
    bench_close(&bench);
}

static void test_chains(void **state) {
    (void)state;
    run(body_chains, NULL);
}

static void test_decisions(void **state) {
    (void)state;
    run(body_decisions, NULL);
}

static void test_borders(void **state) {
    (void)state;
    run(body_borders, NULL);
}

static void test_random(void **state) {
    (void)state;
    uint64_t first = (uint64_t)lib_environment_integer(LIB_ENV_SEED, 1) * 1000;
    for (uint64_t seed = first; seed < first + 150; seed++) run(body_random, &seed);
}

/* Impure calls keep their order and are regions of their own, used or not. */
static void body_impure(workbench *bench, void *user) {
    (void)user;
    const graph *g = parse_graph(
        bench, "graph { input x: f32[3] a = custom_effect(x, target=\"one\", dtypes=[11], ranks=[1], shapes=[3])"
               " b = custom_effect(x, target=\"one\", dtypes=[11], ranks=[1], shapes=[3]) y = neg(b) z = add(y, x)"
               " custom_effect(z, target=\"three\", dtypes=[], ranks=[], shapes=[]) output z }");
    g = graph_simplify(&bench->arena, graph_bind(&bench->arena, g, NULL));
    graph_regions regions = graph_fuse(&bench->arena, g, &machine, NULL);
    uint32_t last = 0, found = 0;
    for (uint32_t i = 0; i < regions.count; i++) {
        if (regions.data[i].kind != GRAPH_REGION_OPAQUE) continue;
        assert_true(regions.data[i].nodes[0] >= last);
        last = regions.data[i].nodes[0];
        found++;
    }
    assert_int_equal(found, 3);
    assert_int_equal(regions.count, 4);
}

static void test_impure(void **state) {
    (void)state;
    run(body_impure, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains), cmocka_unit_test(test_decisions), cmocka_unit_test(test_borders),
        cmocka_unit_test(test_impure), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("graph/fuse", tests, NULL, NULL);
}
