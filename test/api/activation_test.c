/* Activations where their formulas would multiply infinity by zero or overflow, although they have limits: by all targets and float types. */
#include "api/support.h"

static dlc_value gelu_tanh(dlc_value x) {
    dlc_gelu_options options = DLC_GELU_OPTIONS_INIT;
    options.approximate = DLC_GELU_APPROXIMATE_TANH;
    return dlc_gelu_with(x, &options);
}
static const struct {
    const char *name;
    dlc_value (*make)(dlc_value x);
} activations[] = {{"gelu", dlc_gelu}, {"gelu, tanh", gelu_tanh},      {"mish", dlc_mish},
                   {"silu", dlc_silu}, {"quick_gelu", dlc_quick_gelu}, {"hard_swish", dlc_hard_swish}};

static void check_limits(dlc_context *context, dlc_dtype dtype, size_t which) {
    const float largest = dtype == DLC_F16 ? 60000 : 0x1p127f;
    float x[] = {-INFINITY, -largest, -1000, 0, 1000, largest, INFINITY, NAN}, y[8];
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value in = dlc_cast(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(8))), dtype);
    OK(context, dlc_output(g, "y", dlc_cast(activations[which].make(in), DLC_F32)));
    dlc_program *program = compile(context, g);
    tensor tx, ty;
    dlc_output_slot slot = {.tensor = F32(&ty, y, 8)};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 8)}, 1, &slot, 1));
    for (int i = 0; i < 8; i++) {
        const float expected = x[i] <= 0 ? 0 : x[i];
        const bool right = isnan(x[i]) ? isnan(y[i]) : fabsf(y[i] - expected) <= expected * 0x1p-7f || y[i] == expected;
        if (!right) failed("%s of %s: %g gives %g", activations[which].name, dlc_dtype_name(dtype), x[i], y[i]);
    }
    dlc_program_destroy(program);
}

static void test_limits(void **state) {
    static const dlc_dtype dtypes[] = {DLC_F16, DLC_BF16, DLC_F32, DLC_F64};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t a = 0; a < sizeof activations / sizeof *activations; a++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) check_limits(context, dtypes[d], a);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests_name("api/activation", tests, NULL, NULL);
}
