/* Layers that differ only in numbers, as in their scales, share kernels; what depends on the value of a number keeps it in the code. In any case
 * the results are those of each layer alone, whose kernels have their numbers in the code, bit for bit. */
#include "test/api/support.h"

enum { LAYERS = 5, SIDE = 24, COUNT = SIDE * SIDE };

typedef struct layer_kind {
    const char *name;
    dlc_value (*layer)(dlc_graph *g, dlc_value x, int i);
    /* of all layers; 0: not counted */
    uint64_t kernels;
} layer_kind;

static dlc_value number(dlc_graph *g, double value) {
    return dlc_scalar(g, DLC_F32, value);
}

static dlc_value scaled(dlc_graph *g, dlc_value x, int i) {
    return dlc_relu(dlc_add(dlc_mul(x, number(g, 0.37 + 0.11 * i)), number(g, 0.25 + i)));
}

static dlc_value divided(dlc_graph *g, dlc_value x, int i) {
    return dlc_div(dlc_sub(x, number(g, 0.6 * i + 0.3)), number(g, 3 + 2 * i));
}

/* The zero point is read twice, and two layers share one: the graph has its broadcast before the nodes of the second. */
static dlc_value quantised(dlc_graph *g, dlc_value x, int i) {
    const dlc_value scale = number(g, 0.013 + 0.002 * i), zero_point = number(g, 100 + i / 2);
    const dlc_value codes = dlc_cast(dlc_add(dlc_round(dlc_div(x, scale)), zero_point), DLC_U8);
    return dlc_mul(dlc_sub(dlc_cast(codes, DLC_F32), zero_point), scale);
}

static dlc_value contracted(dlc_graph *g, dlc_value x, int i) {
    const dlc_value scaled_product = dlc_mul(dlc_matmul(x, x), number(g, 0.3 + 0.1 * i));
    return dlc_relu(dlc_add(scaled_product, number(g, 0.05 * i + 0.21)));
}

/* Floats of 16 bits, reduced. */
static dlc_value narrow(dlc_graph *g, dlc_value x, int i) {
    const dlc_value half = dlc_mul(dlc_cast(x, DLC_BF16), dlc_scalar(g, DLC_BF16, 0.6 + 0.07 * i));
    return dlc_reduce_sum(dlc_cast(half, DLC_F32), 1, SHAPE(1));
}

static dlc_value integers(dlc_graph *g, dlc_value x, int i) {
    const dlc_value sums = dlc_reduce_sum(dlc_cast(dlc_mul(x, number(g, 100)), DLC_I32), 1, SHAPE(1));
    return dlc_cast(dlc_mul(sums, dlc_scalar_i64(g, DLC_I32, 5 + 2 * i + i / 2)), DLC_F32);
}

/* 0, 1 and -1 vanish or change the operation. */
static dlc_value special(dlc_graph *g, dlc_value x, int i) {
    static const double factor[LAYERS] = {1, -1, 0.5, 3, INFINITY}, term[LAYERS] = {0, 2, 1.5, -0.5, -0.0};
    return dlc_add(dlc_mul(x, number(g, factor[i])), number(g, term[i]));
}

static dlc_value bounded(dlc_graph *g, dlc_value x, int i) {
    return dlc_clamp(number(g, -0.1 * i - 0.05), x, number(g, 0.15 * i + 0.05));
}

static dlc_value powers(dlc_graph *g, dlc_value x, int i) {
    return dlc_pow(x, number(g, 2 + i));
}

static dlc_value positions(dlc_graph *g, dlc_value x, int i) {
    const dlc_value columns = dlc_iota(g, DLC_I32, 2, DIMS(SIZE(SIDE), SIZE(SIDE)), 1);
    const dlc_value here =
        dlc_lt(dlc_add(columns, dlc_scalar_i64(g, DLC_I32, 3 + 2 * i)), dlc_scalar_i64(g, DLC_I32, SIDE));
    return dlc_select(here, x, number(g, 7));
}

static const layer_kind kinds[] = {
    {"scaled", scaled, 1},       {"divided", divided, 1},
    {"quantised", quantised, 1}, {"contracted", contracted, 1},
    {"narrow", narrow, 1},       {"integers", integers, 1},
    {"special", special, 0},     {"bounded", bounded, LAYERS},
    {"powers", powers, LAYERS},  {"positions", positions, LAYERS},
};

/* Layers first .. last-1, each of an input of its own, so that they are not one kernel; returns how many kernels were built for them. */
static uint64_t run_layers(dlc_context *context, const layer_kind *kind, int first, int last, float *x,
                           float out[][COUNT]) {
    dlc_graph *g;
    tensor tx, to[LAYERS];
    dlc_output_slot slots[LAYERS];
    const DLTensor *inputs[LAYERS];
    const int64_t *shapes[LAYERS];
    int ranks[LAYERS], rank;
    int64_t shape[DLC_MAX_RANK];
    OK(context, dlc_graph_create(context, &g));
    for (int i = first; i < last; i++) {
        dlc_output(g, NULL, kind->layer(g, dlc_input(g, NULL, DLC_F32, 2, DIMS(SIZE(SIDE), SIZE(SIDE))), i));
        inputs[i - first] = F32(&tx, x, SIDE, SIDE);
        shapes[i - first] = tx.shape;
        ranks[i - first] = 2;
    }
    dlc_program *program = compile(context, g);
    OK(context, dlc_output_shape(program, shapes, ranks, last - first, 0, DLC_MAX_RANK, shape, &rank));
    for (int i = first; i < last; i++)
        slots[i - first] = (dlc_output_slot){&make_tensor(&to[i], DLC_F32, out[i], rank, shape)->dl, NULL};
    const uint64_t before = statistics(context).kernel_builds;
    OK(context, dlc_run(program, NULL, inputs, last - first, slots, last - first));
    dlc_program_destroy(program);
    return statistics(context).kernel_builds - before;
}

static void test_kind(const char *target, const layer_kind *kind) {
    static float x[COUNT], together[LAYERS][COUNT], alone[LAYERS][COUNT];
    dlc_context *context = open_context(target, NULL);
    if (!context) return;
    memset(together, 0, sizeof together);
    memset(alone, 0, sizeof alone);
    fill(x, COUNT, 5);
    const uint64_t kernels = run_layers(context, kind, 0, LAYERS, x, together);
    if (kind->kernels && kernels != kind->kernels)
        fail_msg("%s, %s: %d layers have %llu kernels, not %llu", target, kind->name, LAYERS,
                 (unsigned long long)kernels, (unsigned long long)kind->kernels);
    for (int i = 0; i < LAYERS; i++) run_layers(context, kind, i, i + 1, x, alone);
    if (memcmp(together, alone, sizeof alone) != 0) fail_msg("%s, %s: results differ", target, kind->name);
    dlc_context_destroy(context);
}

static void test_layers(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) test_kind(all_targets[t], &kinds[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests_name("numbers of layers", tests, NULL, NULL);
}
