/* Sizes that no machine has: what dlc_prepare is told of them is a status and a message, for values, for what lies between kernels and
 * for scratch of a host's schedule on any number of threads. No byte of them is ever taken. */
#include "api/support.h"

static void expect_refused(dlc_context *context, dlc_status status, const char *part) {
    if (status != DLC_INVALID_ARGUMENT || !strstr(dlc_error_message(context), part))
        fail_msg("%s: %s; expected \"%s\"", dlc_status_text(status), dlc_error_message(context), part);
}

/* One input x[n, 64]; `build` makes the outputs. */
static void prepare(const char *target, void (*build)(dlc_graph *g, dlc_value x), int64_t n, const char *part) {
    dlc_context *context = open_context(target, NULL);
    if (!context) return;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    build(g, dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(64))));
    dlc_program *program = compile(context, g);
    expect_refused(context, dlc_prepare(program, (const int64_t *[]){SHAPE(n, 64)}, (int[]){2}, 1), part);
    OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(3, 64)}, (int[]){2}, 1)); /* nothing is lost */
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void build_sums(dlc_graph *g, dlc_value x) {
    dlc_output(g, "y", dlc_cumulative_sum(dlc_cumulative_max(x, 0), 0));
}

static void test_value(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) prepare(all_targets[t], build_sums, INT64_C(1) << 39, "larger than 2^46 bytes");
}

/* Four rows of sums wait until the greatest number of all of them is known. */
static void build_waiting(dlc_graph *g, dlc_value x) {
    enum { ROWS = 4 };
    dlc_value sums[ROWS], row = x, most = dlc_scalar(g, DLC_F32, 0);
    for (int i = 0; i < ROWS; i++) {
        sums[i] = row = dlc_cumulative_sum(dlc_neg(row), 0);
        most = dlc_max(most, dlc_reduce_max(row, 0, NULL));
    }
    for (int i = 0; i < ROWS; i++) {
        row =
            dlc_cumulative_max_with(dlc_mul(sums[i], most), 0,
                                    &(dlc_cumulative_max_options){sizeof(dlc_cumulative_max_options), .reverse = true});
        most = dlc_add(most, dlc_reduce_min(row, 0, NULL));
    }
    dlc_output(g, "y", most);
}

static void test_between_kernels(void **state) {
    (void)state;
    prepare("interp", build_waiting, INT64_C(1) << 38, "more than 2^47 bytes");
}

static void in_turn(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = 0; i < count; i++) body(argument, i);
}

/* A buffer of 2^46 bytes for each of 2^18 threads is one of 0 bytes, in 64 bits. */
static void test_scratch_of_threads(void **state) {
    (void)state;
    static const char schedule[] = "region mul_exp_reduce_max:\n"
                                   "inline broadcast\ninline broadcast1\ninline mul\n"
                                   "at exp reduce_max.i0\nstore exp local\n";
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.parallel_for = in_turn;
    options.parallel_width = 1 << 18;
    dlc_context *context = open_context("interp", &options);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 3, DIMS(SIZE(2), SYMBOL("n"), SIZE(1)));
    dlc_value z = dlc_input(g, "z", DLC_F32, 1, DIMS(SYMBOL("m")));
    dlc_output(g, "y", dlc_reduce_max(dlc_exp(dlc_mul(x, z)), 2, SHAPE(1, 2)));
    dlc_compile_options compile_options = DLC_COMPILE_OPTIONS_INIT;
    compile_options.schedule = schedule;
    dlc_program *program;
    OK(context, dlc_compile(context, g, &compile_options, &program));
    const int64_t *few[2] = {SHAPE(2, 3, 1), SHAPE(4)}, *many[2] = {SHAPE(2, 1 << 22, 1), SHAPE(1 << 22)};
    char *loops;
    OK(context, dlc_program_dump(program, "loops", few, (int[]){3, 1}, 2, &loops));
    assert_non_null(strstr(loops, "exp_: f32[1, 3, 4] local"));
    dlc_text_free(context, loops);
    OK(context, dlc_prepare(program, few, (int[]){3, 1}, 2));
    expect_refused(context, dlc_prepare(program, many, (int[]){3, 1}, 2), "2^46 bytes of scratch");
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* Strides that no memory has are no wild reads. */
static void test_strides(void **state) {
    (void)state;
    static const int64_t wild[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_C(1) << 61};
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_relu(dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(3), SIZE(3)))));
    dlc_program *program = compile(context, g);
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        float x[9] = {0};
        DLTensor input = {.data = x,
                          .device = {kDLCPU, 0},
                          .ndim = 2,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = (int64_t[]){3, 3},
                          .strides = (int64_t[]){wild[i], 1}};
        dlc_output_slot slot = {0};
        assert_int_equal(dlc_run(program, NULL, (const DLTensor *[]){&input}, 1, &slot, 1), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "input x has strides that lead out of the address space"));
        assert_null(slot.managed);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_between_kernels),
        cmocka_unit_test(test_scratch_of_threads),
    };
    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
