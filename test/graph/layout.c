/* Layouts of values that cross regions: which values are blocked, that it is decided by cost, and that the graph computes the
 * same with as without. Inputs whose names begin with w are constants. */
#include "graph/layout.h"
#include "evaluate.h"

static const tir_machine machine = {.target = "test",
                                    .vector_bytes = 64,
                                    .vector_registers = 32,
                                    .fma = 1,
                                    .rates = {.fma = 2},
                                    .masked = 1,
                                    .l1 = 32 << 10,
                                    .l2 = 1 << 20,
                                    .l3 = 8 << 20};

static bool is_weight(void *user, graph_id value) {
    const graph *g = user;
    const char *name = g->values.data[value].name;
    return graph_constant_of(g, value) || (name && name[0] == 'w');
}

static graph_regions assign(workbench *bench, const graph *g, bool all) {
    graph_regions regions = graph_fuse(&bench->arena, g, &machine, NULL);
    graph_layout_options options = {
        .machine = &machine, .is_constant = is_weight, .user = (void *)(uintptr_t)g, .all = all};
    graph_assign_layouts(&bench->arena, g, &regions, &options);
    graph_verify_layouts(bench->arena.scope, g, &regions);
    return regions;
}

static const graph *prepare(workbench *bench, const char *text) {
    const graph *g = graph_decompose(&bench->arena, parse_graph(bench, text));
    return graph_simplify(&bench->arena, graph_bind(&bench->arena, g, NULL));
}

/* One line for each kernel: its name, and how what it writes lies in memory. */
static const char *describe(workbench *bench, const graph *g, const graph_regions *regions) {
    static const char *const dims[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11"};
    lib_text text;
    lib_text_init(&text, &bench->arena);
    lib_text_add(&text, "");
    for (uint32_t r = 0; r < regions->count; r++) {
        const graph_region *region = &regions->data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind == GRAPH_REGION_KERNEL; o++) {
            const tir_layout *layout = regions->layouts ? regions->layouts[region->outputs[o]] : NULL;
            lib_text_format(&text, "%s ", region->name);
            graph_print_shape(&text, g, graph_shape_of(g, region->outputs[o]));
            if (layout) lib_text_add(&text, " ");
            if (layout) tir_layout_print(&text, layout, dims);
            lib_text_add(&text, "\n");
        }
    }
    return text.data;
}

#define CHANNELS " (d0, d1/16, d2, d3, d1%16)\n"
#define POOL "window=[3, 3], stride=[2, 2], low=[1, 1], high=[1, 1]"
#define SAME "low=[1, 1], high=[1, 1]"

static const struct {
    const char *text, *expected;
    bool all;
} decisions[] = {
    /* a window of stride 2 gathers along rows: blocks on both sides; the host's tensors stay as they are */
    {"input x: f32[1, 3, 32, 32] input w1: f32[32, 3, 3, 3] input w2: f32[64, 32, 3, 3] a = convolution(x, w1, " SAME
     ")"
     " b = relu(a) c = max_pool(b, " POOL ") d = convolution(c, w2, " SAME ") output d",
     "convolution_max f32[1, 32, 32, 32]" CHANNELS "reduce_window f32[1, 32, 16, 16]" CHANNELS
     "convolution f32[1, 64, 16, 16]\n",
     false},
    /* each channel by itself: no vector runs along a row of 7 */
    {"input x: f32[1, 64, 7, 7] input w1: f32[192, 64, 1, 1] input w2: f32[192, 1, 3, 3] input w3: f32[64, 192, 1, 1]"
     " a = convolution(x, w1) b = convolution(a, w2, " SAME ", groups=192) c = convolution(b, w3) output c",
     "convolution f32[1, 192, 7, 7]" CHANNELS "convolution_2 f32[1, 192, 7, 7]" CHANNELS
     "convolution_3 f32[1, 64, 7, 7]\n",
     false},
    /* what convolutions broadcast and store by tiles gains next to nothing: it is left alone */
    {"input x: f32[1, 64, 56, 56] input w1: f32[64, 64, 3, 3] input w2: f32[64, 64, 3, 3] a = convolution(x, w1, " SAME
     ")"
     " b = relu(a) c = convolution(b, w2, " SAME ") output c",
     "convolution_max f32[1, 64, 56, 56]\nconvolution f32[1, 64, 56, 56]\n", false},
    /* half of each block would be padding */
    {"input x: f32[1, 8, 30, 30] input w1: f32[8, 8, 3, 3] input w2: f32[8, 8, 3, 3] a = convolution(x, w1, " SAME ")"
     " b = convolution(a, w2, " SAME ") output b",
     "convolution f32[1, 8, 30, 30]\nconvolution_2 f32[1, 8, 30, 30]\n", false},
    /* the left operand of a matrix product is read along its rows, and softmax wants rows */
    {"input x: f32[32, 64] input w1: f32[64, 64] input w2: f32[64, 64] a = matmul(x, w1) b = softmax(a, axis=1)"
     " c = matmul(b, w2) output c",
     NULL, true},
    /* a reshape of the bytes, and an output, need them in order */
    {"input x: f32[1, 32, 8, 8] input w1: f32[32, 32, 3, 3] input w2: f32[2048, 10] a = convolution(x, w1, " SAME ")"
     " b = max_pool(a, " POOL ") c = convolution(b, w1, " SAME ") d = convolution(a, w1, " SAME ")"
     " e = reshape(d, shape=[1, 2048]) f = matmul(e, w2) output c output f",
     "convolution f32[1, 32, 8, 8]" CHANNELS "reduce_window f32[1, 32, 4, 4]" CHANNELS
     "convolution_2 f32[1, 32, 4, 4]\n"
     "convolution_3 f32[1, 32, 8, 8]\ndot_general f32[1, 10]\n",
     true},
    /* products of bytes are added up in 32 bits: blocks of as many as there are sums in a vector */
    {"input x: i8[1, 32, 8, 8] input w1: i8[32, 32, 3, 3] a = convolution(x, w1, " SAME ") b = convolution(a, w1, " SAME
     ") output b",
     "convolution i8[1, 32, 8, 8]" CHANNELS "convolution_2 i8[1, 32, 8, 8]\n", true},
    /* products have channels last and so cannot be blocked; the image between them is, since its channels are theirs */
    {"input m: f32[6, 6, 256, 64] input w1: f32[6, 6, 64, 64]"
     " a = dot_general(m, w1, batch_x=[0, 1], batch_w=[0, 1], contract_x=[3], contract_w=[2])"
     " y = winograd_output(a, tile=four, shape=[1, 64, 64]) b = relu(y)"
     " v = winograd_input(b, tile=four, low=[1, 1], high=[1, 1])"
     " c = dot_general(v, w1, batch_x=[0, 1], batch_w=[0, 1], contract_x=[3], contract_w=[2]) output c",
     "dot_general f32[6, 6, 256, 64]\nwinograd_output_max f32[1, 64, 64, 64]" CHANNELS
     "winograd_input f32[6, 6, 256, 64]\ndot_general_2 f32[6, 6, 256, 64]\n",
     false},
    {"input x: f64[1, 20, 8, 8] input w1: f64[20, 20, 3, 3] a = convolution(x, w1, " SAME
     ") b = convolution(a, w1, " SAME ") output b",
     "convolution f64[1, 20, 8, 8] (d0, d1/8, d2, d3, d1%8)\nconvolution_2 f64[1, 20, 8, 8]\n", true},
};

static void body_decisions(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        const graph *g = prepare(bench, lib_arena_format(&bench->arena, "graph { %s }", decisions[i].text));
        graph_regions regions = assign(bench, g, decisions[i].all);
        const char *found = describe(bench, g, &regions);
        if (!decisions[i].expected && !strchr(found, '(')) continue;
        if (!decisions[i].expected || strcmp(found, decisions[i].expected) != 0)
            fail_msg("%s: layouts are\n%s", decisions[i].text, found);
    }
}

static void test_decisions(void **state) {
    (void)state;
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body_decisions, NULL);
    bench_close(&bench);
}

/* ---- the same values, by the definition of stages */

static const char *const chains[] = {
    "input x: f32[2, 5, 6, 7] input w1: f32[20, 5, 3, 3] input w2: f32[20, 1, 3, 3] input b: f32[1, 20, 1, 1]"
    " a = convolution(x, w1, " SAME ") ab = add(a, b) c = relu(ab) d = convolution(c, w2, " SAME
    ", stride=[2, 1], groups=20)"
    " e = max_pool(d, " POOL ") output e",
    "input x: f32[1, 17, 5, 5] input w1: f32[17, 17, 3, 3] a = convolution(x, w1, " SAME ") b = relu(a)"
    " c = convolution(b, w1, " SAME
    ") bc = add(b, c) d = relu(bc) e = convolution(d, w1) f = mean(d, axes=[2, 3]) output e output f",
    "input x: f32[1, 4, 6, 6] input w1: f32[33, 4, 1, 1] input w2: f32[7, 33, 1, 1] a = convolution(x, w1)"
    " b = slice(a, start=[0, 3, 0, 0], stop=[1, 20, 6, 6]) c = reduce_sum(b, axes=[1]) d = transpose(a, permutation=[0, 2, 3, 1])"
    " e = convolution(a, w2) f = exp(d) output c output e output f",
    /* blocks that the host keeps itself, on both sides and between; of 8 and of 16 */
    "input x: f32[2, 2, 5, 6, 16] input w1: f32[48, 32, 3, 3] input w2: f32[48, 1, 3, 3] input b: f32[1, 48, 1, 1]"
    " t = transpose(x, permutation=[0, 1, 4, 2, 3]) v = reshape(t, shape=[2, 32, 5, 6]) a = convolution(v, w1, " SAME
    ") c = add(a, b) d = relu(c) r = reshape(d, shape=[2, 3, 16, 5, 6]) y = transpose(r, permutation=[0, 1, 3, 4, 2])"
    " e = convolution(d, w2, " SAME ", groups=48) z = reshape(e, shape=[2, 6, 8, 5, 6])"
    " p = transpose(z, permutation=[0, 1, 3, 4, 2]) output y output p",
    /* channels last; one block of them alone */
    "input x: f32[1, 7, 6, 5] input w1: f32[16, 5, 3, 3] v = transpose(x, permutation=[0, 3, 1, 2])"
    " a = convolution(v, w1, " SAME ") r = reshape(a, shape=[1, 1, 16, 7, 6])"
    " y = transpose(r, permutation=[0, 1, 3, 4, 2]) m = max_pool(a, " POOL
    ") z = transpose(m, permutation=[0, 2, 3, 1])"
    " output y output z",
};

static void body_same(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        const graph *g = prepare(bench, lib_arena_format(&bench->arena, "graph { %s }", chains[i]));
        uint64_t seed = i + 1;
        void **inputs = LIB_NEW_ARRAY(&bench->arena, void *, g->inputs.count);
        for (uint32_t k = 0; k < g->inputs.count; k++)
            inputs[k] = random_bytes(&bench->arena, g, g->inputs.data[k], &seed);
        graph_regions plain = graph_fuse(&bench->arena, g, NULL, NULL), blocked = assign(bench, g, true);
        bool some = false;
        for (graph_id v = 1; v < g->values.count; v++) some = some || blocked.layouts[v];
        if (!some) fail_msg("nothing is blocked in %s:\n%s", chains[i], describe(bench, g, &blocked));
        void **expected = run_regions(&bench->arena, g, &plain, inputs);
        void **found = run_regions(&bench->arena, g, &blocked, inputs);
        for (uint32_t o = 0; o < g->outputs.count; o++) {
            graph_id value = g->outputs.data[o];
            if (!same_elements(DLC_F32, expected[value], found[value], count_of(g, value)))
                fail_msg("output %u differs in %s", o, chains[i]);
        }
    }
}

static void test_same(void **state) {
    (void)state;
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body_same, NULL);
    bench_close(&bench);
}

/* ---- blocks of the host's own: kernels read and write them, nothing is converted */

#define IN "t = transpose(x, permutation=[0, 1, 4, 2, 3]) v = reshape(t, shape=[1, 32, 8, 8]) "
#define OUT " r = reshape(y, shape=[1, 2, 16, 8, 8]) o = transpose(r, permutation=[0, 1, 3, 4, 2]) output o"
#define GIVEN "input x: f32[1, 2, 8, 8, 16] input w: f32[32, 32, 3, 3] input w1: f32[32, 1, 3, 3] "

static const struct {
    const char *text, *expected;
} given[] = {
    {GIVEN IN "a = convolution(v, w, " SAME ") y = relu(a)" OUT, "convolution_max f32[1, 32, 8, 8]" CHANNELS},
    {GIVEN IN "a = convolution(v, w1, groups=32, " SAME ") y = add(a, v)" OUT,
     "convolution_add f32[1, 32, 8, 8]" CHANNELS},
    {"input x: f32[1, 8, 8, 24] input w: f32[32, 24, 3, 3] v = transpose(x, permutation=[0, 3, 1, 2]) y = convolution(v, w, " SAME
     ") o = transpose(y, permutation=[0, 2, 3, 1]) output o",
     "convolution f32[1, 32, 8, 8] (d0, d2, d3, d1)\n"},
    /* groups of four channels are no blocks: conversions on both sides */
    {"input x: f32[1, 2, 8, 8, 16] input w: f32[32, 4, 3, 3] " IN "y = convolution(v, w, groups=8, " SAME ")" OUT,
     "transpose f32[1, 2, 16, 8, 8]\nconvolution f32[1, 32, 8, 8]\ntranspose_2 f32[1, 2, 8, 8, 16]\n"},
    /* the value itself is wanted too: a conversion */
    {GIVEN IN "y = convolution(v, w, " SAME ")" OUT " output y",
     "convolution f32[1, 32, 8, 8]\ntranspose_2 f32[1, 2, 8, 8, 16]\n"},
    /* channels are no blocks of it */
    {"input x: f32[1, 32, 8, 8] input w: f32[64, 32, 3, 3] a = convolution(x, w, " SAME
     ") r = reshape(a, shape=[1, 2, 32, 8, 8]) t = transpose(r, permutation=[0, 2, 1, 3, 4]) output t",
     "convolution f32[1, 64, 8, 8]\ntranspose f32[1, 32, 2, 8, 8]\n"},
    /* pixels that become channels: rows are cut as well */
    {"input x: f32[1, 16, 8, 8] input w: f32[8, 64, 1, 1] r = reshape(x, shape=[1, 16, 4, 2, 4, 2])"
     " t = transpose(r, permutation=[0, 3, 5, 1, 2, 4]) v = reshape(t, shape=[1, 64, 4, 4]) y = convolution(v, w) output y",
     "transpose f32[1, 2, 2, 16, 4, 4]\nconvolution f32[1, 8, 4, 4]\n"},
};

static void body_given(workbench *bench, void *user) {
    (void)user;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const graph *g = prepare(bench, lib_arena_format(&bench->arena, "graph { %s }", given[i].text));
        graph_regions regions = assign(bench, g, false);
        const char *found = describe(bench, g, &regions);
        if (strcmp(found, given[i].expected) != 0) fail_msg("%s: kernels are\n%s", given[i].text, found);
    }
}

static void test_given(void **state) {
    (void)state;
    workbench bench;
    bench_open(&bench);
    bench_run(&bench, body_given, NULL);
    bench_close(&bench);
}

/* ---- the verifier */

static void body_refused(workbench *bench, void *user) {
    const graph *g = prepare(bench, "graph { input x: f32[4, 32, 3, 3] a = exp(x) output a }");
    graph_regions regions = graph_fuse(&bench->arena, g, &machine, NULL);
    const tir_layout **layouts = lib_arena_array(&bench->arena, g->values.count + 1, sizeof *layouts);
    layouts[*(bool *)user ? g->outputs.data[0] : g->inputs.data[0]] = LIB_NEW(&bench->arena, tir_layout);
    *(tir_layout *)(uintptr_t)layouts[*(bool *)user ? g->outputs.data[0] : g->inputs.data[0]] =
        (tir_layout){.rank = 4, .count = 5, .part = {{0, 1, 0}, {1, 16, 0}, {2, 1, 0}, {3, 1, 0}, {1, 1, 16}}};
    regions.layouts = layouts;
    graph_verify_layouts(bench->arena.scope, g, &regions);
}

static void check_refused(bool output) {
    workbench bench;
    bench_open(&bench);
    if (LIB_ENTER(&bench.scope)) {
        body_refused(&bench, &output);
        fail_msg("nothing was raised");
    }
    assert_non_null(strstr(bench.scope.error.message, "only a value that one kernel writes, or a view gives"));
    bench_close(&bench);
}

static void test_refused(void **state) {
    (void)state;
    check_refused(false);
    check_refused(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("graph/layout", tests, NULL, NULL);
}
