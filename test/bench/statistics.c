/* What the benchmark makes of its samples. */
#include "bench/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool close_to(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void medians(void **state) {
    (void)state;
    assert_true(bench_median((double[]){3, 1, 2}, 3) == 2);
    assert_true(bench_median((double[]){4, 1, 3, 2}, 4) == 2.5);
    assert_true(bench_median(NULL, 0) == 0);
}

static void geometric_means(void **state) {
    (void)state;
    assert_true(close_to(bench_geometric_mean((double[]){0.5, 2}, 2), 1));
    assert_true(close_to(bench_geometric_mean((double[]){2, 4, 8}, 3), 4));
    assert_true(bench_geometric_mean(NULL, 0) == 0);
}

static void rank_correlations(void **state) {
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}, same[] = {2, 3, 5, 8, 900}, turned[] = {9, 8, 7, 6, -5}, flat[5] = {0};
    assert_true(close_to(bench_rank_correlation(x, same, 5), 1));
    assert_true(close_to(bench_rank_correlation(x, turned, 5), -1));
    assert_true(bench_rank_correlation(x, flat, 5) == 0);
    assert_true(bench_rank_correlation(x, same, 2) == 0);
    /* Ties: ranks 1.5 1.5 3 4 against 1 2 3 4. */
    assert_true(close_to(bench_rank_correlation((double[]){7, 7, 8, 9}, x, 4), 4.5 / sqrt(4.5 * 5)));
}

static void bounds(void **state) {
    (void)state;
    bench_pairs one = {0}, five = {0}, none = {0};
    const double tight[] = {0.90, 0.91, 0.92, 0.90, 0.91, 0.92, 0.91}, wide[] = {0.5, 1.5, 0.6, 1.4, 0.9, 1.0, 0.95};
    bench_pairs_add(&one, tight, 7);
    assert_true(bench_pairs_median(&one) == 0.91);
    assert_true(bench_pairs_upper(&one) >= 0.91 && bench_pairs_upper(&one) <= 0.92);
    assert_true(bench_pairs_upper(&one) == bench_pairs_upper(&one));
    for (int run = 0; run < 7; run++) bench_pairs_add(&five, run ? wide : tight, 7);
    assert_int_equal(five.run_count, BENCH_MAX_RUNS);
    assert_true(bench_pairs_median(&five) == 0.95);
    assert_true(bench_pairs_upper(&five) > 0.95 && bench_pairs_upper(&five) <= 1.5);
    assert_true(bench_pairs_median(&none) == 0 && bench_pairs_upper(&none) == 0);
    bench_pairs_release(&one);
    bench_pairs_release(&five);
    assert_int_equal(one.run_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(medians), cmocka_unit_test(geometric_means),
                                       cmocka_unit_test(rank_correlations), cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
