/* Derivatives in f32 against the same derivatives in f64, where numbers cancel: norms of numbers that lie far from 0, attention over long
 * sequences. The f64 computation of attention is made of its parts, so that it differentiates by the rules of these. */
#include "api/support.h"

#include <dlc/gradient.h>

enum { OPERANDS = 5 };

typedef struct derivative_case {
    const char *name;
    /* the value whose sum of products with the last operand is the loss */
    dlc_value (*build)(dlc_graph *g, const dlc_value *x, bool parts);
    int operands;
    /* in front of each operand's noise, and the shapes */
    float mean[OPERANDS];
    int rank[OPERANDS];
    int64_t dim[OPERANDS][4];
    /* relative to the greatest element */
    double tolerance;
} derivative_case;

/* ---- norms: x, scale, bias, factors of the loss ------------------------------------------------------------------------------ */

static dlc_value layer(dlc_graph *g, const dlc_value *x, bool parts) {
    return (void)g, (void)parts, dlc_layer_norm(x[0], x[1], x[2], -1);
}
static dlc_value rms(dlc_graph *g, const dlc_value *x, bool parts) {
    return (void)g, (void)parts, dlc_rms_norm(x[0], x[1], -1);
}
static dlc_value group(dlc_graph *g, const dlc_value *x, bool parts) {
    return (void)g, (void)parts, dlc_group_norm(x[0], x[1], x[2], 2);
}
static dlc_value instance(dlc_graph *g, const dlc_value *x, bool parts) {
    return (void)g, (void)parts, dlc_instance_norm(x[0], x[1], x[2]);
}
static dlc_value batch(dlc_graph *g, const dlc_value *x, bool parts) {
    dlc_value y[3];
    (void)g, (void)parts;
    dlc_batch_norm_training(x[0], x[1], x[2], x[1], x[2], 1, 3, y);
    return y[0];
}

/* ---- attention: q, k, v, perhaps a mask, factors of the loss -------------------------------------------------------------------- */

static int64_t extent(dlc_value x, int axis) {
    return dlc_value_dim(x, axis).value;
}

/* Query i sees the keys up to i + (keys - queries). */
static dlc_value visible(dlc_graph *g, dlc_value scores) {
    const int64_t queries = extent(scores, 2), keys = extent(scores, 3);
    const dlc_dim dim[] = {SIZE(queries), SIZE(keys)};
    dlc_value row = dlc_iota(g, DLC_I64, 2, dim, 0), column = dlc_iota(g, DLC_I64, 2, dim, 1);
    return dlc_le(column, dlc_add(row, dlc_scalar(g, DLC_I64, (double)(keys - queries))));
}

static dlc_value attention_of(dlc_graph *g, const dlc_value *x, dlc_value mask, bool causal, bool parts) {
    if (!parts) {
        dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
        options.causal = causal;
        return dlc_attention_with(x[0], x[1], x[2], mask, &options);
    }
    dlc_value k = x[1], v = x[2];
    const int64_t shared = extent(x[0], 1) / extent(k, 1);
    if (shared > 1) {
        int64_t heads[16];
        for (int64_t h = 0; h < extent(x[0], 1); h++) heads[h] = h / shared;
        dlc_value chosen = dlc_constant(g, DLC_I64, 1, SHAPE(extent(x[0], 1)), heads);
        k = dlc_gather(k, chosen, 1);
        v = dlc_gather(v, chosen, 1);
    }
    dlc_value scores = dlc_matmul(x[0], dlc_transpose(k, 4, SHAPE(0, 1, 3, 2)));
    scores = dlc_mul(scores, dlc_scalar(g, DLC_F64, 1 / sqrt((double)extent(x[0], 3))));
    if (dlc_value_ok(mask)) scores = dlc_add(scores, mask);
    if (causal) scores = dlc_select(visible(g, scores), scores, dlc_scalar(g, DLC_F64, -1e300));
    return dlc_matmul(dlc_softmax(scores, -1), v);
}
static dlc_value plain(dlc_graph *g, const dlc_value *x, bool parts) {
    return attention_of(g, x, DLC_NONE, false, parts);
}
static dlc_value causal(dlc_graph *g, const dlc_value *x, bool parts) {
    return attention_of(g, x, DLC_NONE, true, parts);
}
static dlc_value masked(dlc_graph *g, const dlc_value *x, bool parts) {
    return attention_of(g, x, x[3], false, parts);
}

static const derivative_case cases[] = {
    {"layer_norm", layer, 4, {1000}, {2, 1, 1, 2}, {{37, 96}, {96}, {96}, {37, 96}}, 1e-3},
    {"rms_norm", rms, 3, {1000}, {2, 1, 2}, {{37, 96}, {96}, {37, 96}}, 1e-3},
    {"group_norm", group, 4, {1000}, {3, 1, 1, 3}, {{3, 6, 35}, {6}, {6}, {3, 6, 35}}, 1e-3},
    {"instance_norm", instance, 4, {1000}, {3, 1, 1, 3}, {{3, 6, 35}, {6}, {6}, {3, 6, 35}}, 1e-3},
    {"batch_norm_training", batch, 4, {1000}, {3, 1, 1, 3}, {{9, 6, 35}, {6}, {6}, {9, 6, 35}}, 1e-3},
    {"attention",
     plain,
     4,
     {0},
     {4, 4, 4, 4},
     {{1, 2, 300, 16}, {1, 2, 517, 16}, {1, 2, 517, 24}, {1, 2, 300, 24}},
     1e-5},
    {"attention, causal",
     causal,
     4,
     {0},
     {4, 4, 4, 4},
     {{1, 1, 611, 32}, {1, 1, 611, 32}, {1, 1, 611, 32}, {1, 1, 611, 32}},
     1e-5},
    {"attention, shared heads",
     causal,
     4,
     {0},
     {4, 4, 4, 4},
     {{1, 6, 130, 16}, {1, 2, 200, 16}, {1, 2, 200, 8}, {1, 6, 130, 8}},
     1e-5},
    {"attention, mask",
     masked,
     5,
     {0},
     {4, 4, 4, 2, 4},
     {{2, 2, 65, 16}, {2, 2, 130, 16}, {2, 2, 130, 8}, {65, 130}, {2, 2, 65, 8}},
     1e-5},
    {"attention, mask of keys",
     masked,
     5,
     {0},
     {4, 4, 4, 4, 4},
     {{2, 2, 65, 16}, {2, 2, 130, 16}, {2, 2, 130, 8}, {2, 1, 1, 130}, {2, 2, 65, 8}},
     1e-5},
};

/* ---- comparing ----------------------------------------------------------------------------------------------------------------- */

static dlc_value loss_of(dlc_graph *g, const derivative_case *c, const dlc_value *x, bool parts) {
    return dlc_reduce_sum(dlc_mul(c->build(g, x, parts), x[c->operands - 1]), 0, NULL);
}

static size_t elements(const derivative_case *c, int i) {
    size_t count = 1;
    for (int d = 0; d < c->rank[i]; d++) count *= (size_t)c->dim[i][d];
    return count;
}

static void compare(const char *target, const derivative_case *c, int operand, const float *got,
                    const double *expected) {
    double greatest = 0, worst = 0;
    for (size_t k = 0; k < elements(c, operand); k++) {
        greatest = fmax(greatest, fabs(expected[k]));
        worst = fmax(worst, fabs(got[k] - expected[k]));
        if (isnan(got[k])) worst = INFINITY;
    }
    if (!(worst <= c->tolerance * greatest))
        failed("%s, %s: gradient of operand %d is wrong by %g, its greatest element is %g", target, c->name, operand,
               worst, greatest);
}

static void check_case(const char *target, dlc_context *context, const derivative_case *c) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x[OPERANDS], wide[OPERANDS], y[2 * OPERANDS];
    tensor in[OPERANDS], out[2 * OPERANDS];
    const DLTensor *inputs[OPERANDS];
    dlc_output_slot slots[2 * OPERANDS];
    void *data[3 * OPERANDS];
    for (int i = 0; i < c->operands; i++) {
        dlc_dim dim[4];
        char name[8];
        const size_t count = elements(c, i);
        for (int d = 0; d < c->rank[i]; d++) dim[d] = SIZE(c->dim[i][d]);
        snprintf(name, sizeof name, "x%d", i);
        x[i] = dlc_input(g, name, DLC_F32, c->rank[i], dim);
        wide[i] = dlc_cast(x[i], DLC_F64);
        for (int k = 0; k < 3; k++) CHECK(data[3 * i + k] = malloc(count * sizeof(double)));
        float *numbers = data[3 * i];
        fill(numbers, count, (uint32_t)i + 1);
        for (size_t k = 0; k < count; k++) numbers[k] += c->mean[i];
        inputs[i] = &make_tensor(&in[i], DLC_F32, numbers, c->rank[i], c->dim[i])->dl;
        make_tensor(&out[i], DLC_F32, data[3 * i + 1], c->rank[i], c->dim[i]);
        make_tensor(&out[c->operands + i], DLC_F64, data[3 * i + 2], c->rank[i], c->dim[i]);
    }
    dlc_gradient(loss_of(g, c, x, false), c->operands, x, y);
    dlc_gradient(loss_of(g, c, wide, true), c->operands, wide, y + c->operands);
    for (int i = 0; i < 2 * c->operands; i++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", i);
        dlc_output(g, name, y[i]);
        slots[i] = (dlc_output_slot){&out[i].dl, NULL};
    }
    dlc_program *program = compile(context, g);
    OK(context, dlc_run(program, NULL, inputs, c->operands, slots, 2 * c->operands));
    dlc_program_destroy(program);
    for (int i = 0; i < c->operands; i++) compare(target, c, i, data[3 * i + 1], data[3 * i + 2]);
    for (int i = 0; i < 3 * c->operands; i++) free(data[i]);
}

static void test_cases(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip(); /* the interpreter takes minutes */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case("cpu", context, &cases[i]);
    dlc_context_destroy(context);
}

/* Of a forward pass through attention, no matrix of queries and keys is kept: the memory of several layers is that of the layer whose
 * cotangents are being computed. */
static void test_memory(void **state) {
    enum { LAYERS = 6, TOKENS = 512, WIDTH = 8 };
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 4, DIMS(SIZE(1), SIZE(1), SIZE(TOKENS), SIZE(WIDTH))), y = x, dx;
    for (int i = 0; i < LAYERS; i++) y = attention_of(g, (dlc_value[]){y, x, y}, DLC_NONE, i % 2, false);
    dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &dx);
    dlc_output(g, "dx", dx);
    dlc_program *program = compile(context, g);
    float *data = malloc(2 * TOKENS * WIDTH * sizeof *data);
    tensor in, out;
    CHECK(data);
    fill(data, TOKENS * WIDTH, 1);
    dlc_output_slot slot = {F32(&out, data + TOKENS * WIDTH, 1, 1, TOKENS, WIDTH), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&in, data, 1, 1, TOKENS, WIDTH)}, 1, &slot, 1));
    const uint64_t matrix = (uint64_t)TOKENS * TOKENS * sizeof(float), arena = statistics(context).arena_bytes;
    if (arena > 3 * matrix)
        failed("%d layers take %llu bytes, a matrix of scores %llu", LAYERS, (unsigned long long)arena,
               (unsigned long long)matrix);
    free(data);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("gradients in f32", tests, NULL, NULL);
}
