/* Arenas are hardly larger than what is live at once, whatever the sizes and lifetimes of the values in them. */
#include "test/api/support.h"

enum { VALUES = 40, WIDTH = 4, GRAPHS = 30, MOST = 1024 };

static uint32_t below(uint32_t *seed, uint32_t limit) {
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*seed * limit) >> 32);
}

/* m x, of as many rows as wanted. */
static dlc_value rows_of(dlc_graph *g, dlc_value x, int64_t from, int64_t rows) {
    static const float m[MOST * MOST];
    return dlc_matmul(dlc_constant_borrow(g, DLC_F32, 2, SHAPE(rows, from), m), x);
}

/* Values of random sizes, each the sum of products of two earlier ones; the last one depends on all. */
static dlc_program *random_program(dlc_context *context, uint32_t seed) {
    dlc_graph *g;
    dlc_value value[VALUES];
    int64_t rows[VALUES];
    OK(context, dlc_graph_create(context, &g));
    value[0] = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(64), SIZE(WIDTH)));
    rows[0] = 64;
    for (int i = 1; i < VALUES; i++) {
        const uint32_t a = (uint32_t)i - 1 - below(&seed, i < 4 ? 1 : 4) % (uint32_t)i;
        const uint32_t b = below(&seed, (uint32_t)i);
        rows[i] = 64 * (1 + below(&seed, 16));
        value[i] = dlc_add(rows_of(g, value[a], rows[a], rows[i]), rows_of(g, value[b], rows[b], rows[i]));
    }
    dlc_output(g, "y", dlc_reduce_sum(value[VALUES - 1], 2, SHAPE(0, 1)));
    return compile(context, g);
}

static void test_random_lifetimes(void **state) {
    (void)state;
    double sum = 0;
    dlc_context *context = open_context("interp", NULL);
    for (uint32_t seed = 1; context && seed <= GRAPHS; seed++) {
        char *text;
        double arena = 0, live = 0;
        dlc_program *program = random_program(context, seed);
        OK(context,
           dlc_program_dump(program, "plan", (const int64_t *[]){SHAPE(64, WIDTH)}, (const int[]){2}, 1, &text));
        const char *at = strstr(text, "arena of ");
        CHECK(at && sscanf(at, "arena of %lf bytes, %lf of them at once", &arena, &live) == 2 && live > 0);
        sum += arena / live;
        dlc_text_free(context, text);
        dlc_program_destroy(program);
    }
    if (sum > 1.04 * GRAPHS) fail_msg("arenas are %.3f times what is live at once", sum / GRAPHS);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_lifetimes)};
    return cmocka_run_group_tests_name("arenas", tests, NULL, NULL);
}
