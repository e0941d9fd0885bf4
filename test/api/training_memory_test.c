/* Memory of training steps: the order of their regions. */
#include "api/training.h"

/* ---- updates run as soon as their gradients are there ------------------------------------------------------------------- */

static double parameter_bytes(const training *t) {
    double bytes = 0;
    for (int i = 0; i < t->count; i++) {
        double n = sizeof(float);
        for (int d = 0; d < t->rank[i + 2]; d++) n *= (double)t->shape[i + 2][d];
        bytes += n;
    }
    return bytes;
}

/* With few rows, what the forward pass keeps is less than the gradients, which need not be there all at once. */
static void test_updates_run_early(void **state) {
    (void)state;
    enum { LAYERS = 24, ROWS = 16, WIDTH = 256 };
    dlc_context *context = open_context("cpu", NULL);
    double live;
    if (!context) return;
    training *t = mlp(context, LAYERS, ROWS, WIDTH);
    dlc_program *program = compile_training(context, t, NULL);
    const size_t kept = sizeof(float) * LAYERS * 2 * ROWS * WIDTH, weight = sizeof(float) * WIDTH * WIDTH;
    CHECK(arena_of(context, t, program, &live) <= (double)(kept + 3 * weight));
    dlc_program_destroy(program);
    free(t);

    t = transformer(context, 6, 1, 32, 256, 4);
    program = compile_training(context, t, NULL);
    CHECK(arena_of(context, t, program, &live) <= parameter_bytes(t) / 4);
    dlc_program_destroy(program);
    free(t);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates_run_early)};
    return cmocka_run_group_tests_name("memory of training", tests, NULL, NULL);
}
