/* What a host has for finding its own mistakes: the profile's times, progress by kernels, graphs printed without their weights. */
#include "support.h"

static void expect(dlc_context *context, dlc_status got, dlc_status wanted, const char *text) {
    if (got != wanted || !strstr(dlc_error_message(context), text))
        failed("%s: %s, expected %s", dlc_status_text(got), dlc_error_message(context), text);
}

/* ---- the profile */

typedef struct stepped { /* a clock that goes on by `step` with every look */
    uint64_t now, step;
} stepped;

static uint64_t look(void *user) {
    stepped *clock = user;
    return clock->now += clock->step;
}

static void test_profile_times(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        stepped clock = {1, 0};
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.clock_ns = look;
        options.clock_user = &clock;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_output(g, "y", dlc_exp(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(8)))));
        dlc_program *program = compile(context, g);
        float in[8] = {0}, out[8];
        tensor tx, ty;
        const DLTensor *input = F32(&tx, in, 8);
        dlc_output_slot slot = {F32(&ty, out, 8), NULL};
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1)); /* binds; not counted */
        dlc_program_profile(program, 1);
        const uint64_t steps[] = {7000, 1000, 2500, 12000};
        for (int i = 0; i < 4; i++) {
            clock.step = steps[i];
            OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        }
        dlc_program_profile(program, 0);
        char *text;
        OK(context, dlc_program_dump(program, "profile", (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1, &text));
        const char *line = strchr(text, '\n');
        double share = 0, least = 0, median = 0, mean = 0, runs = 0;
        assert_non_null(line);
        assert_int_equal(sscanf(line, " %lf %% %lf us %lf us %lf us %lf runs", &share, &least, &median, &mean, &runs),
                         5);
        assert_true(share == 100 && least == 1 && median == 4.75 && mean == 5.625 && runs == 4);
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- progress */

typedef struct heard {
    int calls, first, last, total;
    bool fell;
} heard;

static void hear(void *user, const char *stage, int done, int total) {
    heard *h = user;
    assert_string_equal(stage, "compile");
    if (h->calls++ == 0) h->first = done;
    h->fell |= done < h->last || (h->calls > 1 && total != h->total);
    h->last = done, h->total = total;
}

static void test_progress_counts_kernels(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.compile_threads = threads;
        dlc_context *context = open_context("interp", &options);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(6)));
        for (int i = 0; i < 20; i++) { /* kernels of different sizes */
            char name[8];
            snprintf(name, sizeof name, "y%d", i);
            dlc_output(g, name, dlc_cumulative_sum(dlc_broadcast(x, 2, DIMS(SIZE(i + 1), SIZE(6)), 1, SHAPE(1)), 0));
        }
        heard h = {0};
        dlc_compile_options compiled = DLC_COMPILE_OPTIONS_INIT;
        compiled.progress = hear;
        compiled.progress_user = &h;
        dlc_program *program;
        OK(context, dlc_compile(context, g, &compiled, &program));
        OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(6)}, (const int[]){1}, 1));
        assert_int_equal(h.first, 0);
        assert_true(!h.fell && h.calls >= 2 && h.last == h.total && h.total >= 20);
        assert_int_equal(h.total, statistics(context).kernel_builds);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* ---- graphs without their weights */

static void test_constants_are_elided(void **state) {
    (void)state;
    static float w[1 << 14];
    fill(w, 1 << 14, 1);
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g, *parsed;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(128)));
    dlc_value few = dlc_constant(g, DLC_F32, 1, SHAPE(4), (const float[]){1, 2, 3, 4});
    dlc_output(g, "y", dlc_matmul(x, dlc_constant(g, DLC_F32, 2, SHAPE(128, 128), w)));
    dlc_output(g, "few", few);
    dlc_print_options options = DLC_PRINT_OPTIONS_INIT;
    char *whole, *same, *elided;
    OK(context, dlc_graph_print(g, &whole));
    OK(context, dlc_graph_print_with(g, &options, &same));
    assert_string_equal(whole, same);
    options.elide_constants = true;
    OK(context, dlc_graph_print_with(g, &options, &elided));
    assert_true(strlen(whole) > sizeof w && strlen(elided) < 1000);
    assert_non_null(strstr(elided, "...\"}"));
    assert_non_null(strstr(elided, "{1, 2, 3, 4}"));
    expect(context, dlc_graph_parse(context, elided, strlen(elided), &parsed), DLC_PARSE_ERROR, "");
    options.struct_size = 0;
    char *none = elided;
    expect(context, dlc_graph_print_with(g, &options, &none), DLC_INVALID_ARGUMENT, "_INIT");
    assert_null(none);
    dlc_text_free(context, whole);
    dlc_text_free(context, same);
    dlc_text_free(context, elided);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_times),
        cmocka_unit_test(test_progress_counts_kernels),
        cmocka_unit_test(test_constants_are_elided),
    };
    return cmocka_run_group_tests_name("debugging", tests, NULL, NULL);
}
