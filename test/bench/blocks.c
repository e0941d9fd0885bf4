/* Blocks of the benchmark, small: all of one, with all its values, and part by part, against the interpreter. */
#include "bench/ours.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const lines[] = {
    "block bert b=2 n=8 d=32 heads=4",
    "block llama b=2 n=8 d=64 heads=4 kv_heads=2 hidden=48",
    "block convnext b=2 c=16 h=8",
    "block bottleneck b=2 c=16 h=8",
    "block unet b=2 c=8 h=8",
    "block mamba b=2 n=6 d=16 states=4",
    "block lm-head b=3 d=32 words=100",
    "block linear-norm-linear rows=5 d=48 two",
    "block linear-norm-linear rows=5 d=48 transposed",
    "block linear-two-outputs rows=5 d=48 n=40",
    "block linear-two-outputs rows=5 d=48 n=40 transposed",
    "block linear-residual-norm rows=5 d=48 two",
    "block convolution-residual-relu b=2 c=16 h=8",
    "block heads b=2 n=8 heads=4 kv_heads=2 dim=16 causal",
    "block dequantised-linear rows=5 d=64 n=48 bits=8",
    "block dequantised-linear rows=5 d=64 n=48 bits=4",
};

static dlc_context *open_target(const char *target) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = target;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    return context;
}

static bench_programs *prepared(dlc_context *context, const bench_shape *shape, bool in_parts) {
    const bench_case_kind *kind = bench_case_find(shape);
    char reason[512] = "";
    assert_non_null(kind);
    bench_programs *p = in_parts ? bench_parts_prepare(context, bench_block_parts(shape), shape, reason, sizeof reason)
                                 : bench_programs_prepare(context, NULL, &kind->build, 1, shape, reason, sizeof reason);
    if (!p) fail_msg("%s: %s", shape->text, reason);
    return p;
}

/* Of the values that both give: within 1e-4 of the greatest magnitude. How many there were. */
static int compare(const bench_shape *shape, const bench_programs *p, const bench_builder *expected) {
    int compared = 0;
    for (int i = 0; i < p->count; i++)
        for (int r = 0; r < p->stages[i].builder.problem.result_count; r++)
            for (int e = 0; e < expected->problem.result_count; e++) {
                const bench_operand *got = &p->stages[i].builder.problem.results[r];
                const bench_operand *right = &expected->problem.results[e];
                double most = 0, scale = 0;
                if (p->stages[i].builder.result_values[r] != expected->result_values[e]) continue;
                assert_int_equal(got->bytes, right->bytes);
                for (size_t k = 0; k < got->bytes / sizeof(float); k++) {
                    const double x = bench_element(got, k), y = bench_element(right, k);
                    if (!(fabs(x - y) <= most)) most = fabs(x - y);
                    if (fabs(y) > scale) scale = fabs(y);
                }
                if (!(most <= 1e-4 * scale) || scale == 0)
                    fail_msg("%s: result %d differs by %g of %g", shape->text, e, most, scale);
                compared++;
            }
    return compared;
}

static void test_blocks(void **state) {
    dlc_context *cpu = open_target(NULL), *interp = open_target("interp");
    (void)state;
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        bench_shape wanted, all;
        char line[256];
        snprintf(line, sizeof line, "%s all", lines[l]);
        assert_true(bench_shape_parse(&wanted, lines[l]) && bench_shape_parse(&all, line));
        bench_programs *right = prepared(interp, &all, false);
        const bench_builder *expected = &right->stages[0].builder;
        bench_programs *ours[] = {prepared(cpu, &wanted, false), prepared(cpu, &all, false),
                                  prepared(cpu, &wanted, true), prepared(cpu, &all, true)};
        for (int i = 0; i < 4; i++) {
            const int compared = compare(&wanted, ours[i], expected);
            if (i % 2)
                assert_int_equal(compared, expected->problem.result_count);
            else
                assert_true(compared > 0);
            bench_programs_release(ours[i]);
        }
        bench_programs_release(right);
    }
    dlc_context_destroy(cpu);
    dlc_context_destroy(interp);
}

static void test_unknown_names(void **state) {
    bench_shape shape;
    (void)state;
    assert_true(bench_shape_parse(&shape, "block of-nothing b=1"));
    assert_null(bench_case_find(&shape));
    assert_int_equal(bench_block_parts(&shape), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_unknown_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
