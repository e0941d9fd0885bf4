/* No phase of a contraction's kernel is left to plain loops, whatever way its operands come: straight, as panels, in blocks. One forgotten
 * copy into panels costs as much as the product. */
#include "test/api/support.h"

typedef struct product {
    int64_t m, k, n;
    /* the right operand is [n, k] */
    bool transposed;
    bool bias;
} product;

static const product products[] = {
    {128, 3072, 768, false, false}, {197, 3072, 768, false, true},   {128, 768, 3072, false, false},
    {16, 4096, 4096, false, false}, {1, 4096, 4096, false, true},    {384, 768, 768, true, false},
    {512, 512, 512, false, false},  {127, 131, 129, false, true},    {33, 2049, 1500, false, false},
    {2048, 479, 1024, true, true},  {1000, 3000, 500, false, false}, {300, 5000, 2000, false, false},
};

static void dump_loops(dlc_context *context, const product *p, char **text) {
    dlc_graph *g;
    dlc_program *program;
    const int64_t *right = p->transposed ? SHAPE(p->n, p->k) : SHAPE(p->k, p->n);
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(p->m), SIZE(p->k)));
    dlc_value w = dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(right[0]), SIZE(right[1])));
    if (p->transposed) w = dlc_transpose(w, 2, (const int64_t[]){1, 0});
    dlc_value y = dlc_matmul(x, w);
    if (p->bias) y = dlc_relu(dlc_add(y, dlc_input(g, "b", DLC_F32, 1, DIMS(SIZE(p->n)))));
    OK(context, dlc_output(g, "y", y));
    OK(context, dlc_compile(context, g, NULL, &program));
    const int64_t *shapes[] = {SHAPE(p->m, p->k), right, SHAPE(p->n)};
    OK(context, dlc_program_dump(program, "loops", shapes, (const int[]){2, 2, 1}, p->bias ? 3 : 2, text));
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
}

/* Number of phases. */
static int expect_vectors(const char *loops, const product *p) {
    static const char head[] = "\nphase ";
    int phases = 0;
    for (const char *phase = strstr(loops, head), *next; phase; phase = next, phases++) {
        next = strstr(phase + 1, head);
        const char *vectors = strstr(phase, " vec");
        if (!vectors || (next && vectors > next))
            fail_msg("%lld x %lld x %lld:%.300s", (long long)p->m, (long long)p->k, (long long)p->n, phase);
    }
    return phases;
}

static void test_every_phase_has_vectors(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        char *text;
        dump_loops(context, &products[i], &text);
        assert_true(expect_vectors(text, &products[i]) >= 1);
        dlc_text_free(context, text);
    }
    dlc_context_destroy(context);
}

/* Of vectors along the rows of a padded image the last ones are a tile of their own, or a row is one tile: an end that only the run tells
 * masks each step of the window in each tile. */
static void test_rows_of_images_end_with_a_tile(void **state) {
    (void)state;
    static const int64_t widths[] = {37, 58, 75, 103, 130};
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    int along = 0;
    for (size_t i = 0; i < 2 * sizeof widths / sizeof *widths; i++) {
        long long split = 0;
        int64_t w = widths[i / 2], channels = i % 2 ? 8 : 3;
        const int64_t *image = SHAPE(1, 3, w, w);
        dlc_graph *g;
        dlc_program *program;
        char *text;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 4, DIMS(SIZE(1), SIZE(3), SIZE(w), SIZE(w)));
        dlc_value k = dlc_input(g, "k", DLC_F32, 4, DIMS(SIZE(channels), SIZE(3), SIZE(3), SIZE(3)));
        dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
        options.low = options.high = SHAPE(1, 1);
        options.low_count = options.high_count = 2;
        OK(context, dlc_output(g, "y", dlc_convolution_with(x, k, &options)));
        OK(context, dlc_compile(context, g, NULL, &program));
        const int64_t *shapes[] = {image, SHAPE(channels, 3, 3, 3)};
        OK(context, dlc_program_dump(program, "schedule", shapes, (const int[]){4, 4}, 2, &text));
        bool rows = strstr(text, "vec convolution.w") != NULL;
        const char *tiles = strstr(text, "split convolution_out.w ");
        char last[16] = "";
        along += rows;
        if (rows && tiles && sscanf(tiles, "split convolution_out.w %lld -> v_o v_i %15s", &split, last) == 2)
            assert_true(w % split == 0 || strcmp(last, "peel") == 0);
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
    assert_true(along > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_phase_has_vectors),
                                       cmocka_unit_test(test_rows_of_images_end_with_a_tile)};
    return cmocka_run_group_tests_name("api/vectors", tests, NULL, NULL);
}
