/* The last run: from JSON lines to text and back, what is comparable, what has fallen. */
#include "bench/last.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char run[] =
    "{\"machine\":\"Some CPU\",\"processors\":2,\"load\":0.10,\"libdlc\":\"0.1.0\"}\n"
    "{\"roof\":\"fma512\",\"threads\":1,\"gflops\":100.00}\n"
    "{\"roof\":\"fma256\",\"threads\":1,\"gflops\":90.00}\n"
    "{\"case\":\"row softmax shape=8x8\",\"kind\":\"row\",\"threads\":1,\"contestant\":\"dlc\",\"note\":\"\","
    "\"seconds\":2e-06,\"roof_share\":0.5,\"first_seconds\":0.1}\n"
    "{\"case\":\"row softmax shape=8x8\",\"kind\":\"row\",\"threads\":1,\"contestant\":\"onednn\",\"note\":\"\","
    "\"seconds\":1e-06,\"roof_share\":1}\n"
    "{\"case\":\"map add shape=64\",\"kind\":\"map\",\"threads\":1,\"contestant\":\"dlc\",\"note\":\"\","
    "\"seconds\":4e-06,\"roof_share\":0.25}\n"
    "{\"case\":\"map add shape=64\",\"kind\":\"map\",\"threads\":1,\"contestant\":\"dlc\",\"note\":\"\","
    "\"seconds\":3e-06,\"roof_share\":0.3}\n"
    "{\"case\":\"map random shape=63\",\"kind\":\"map\",\"threads\":1,\"contestant\":\"dlc\",\"note\":\"\","
    "\"seconds\":3e-06,\"roof_share\":0.3}\n";

static FILE *file_of(const char *text) {
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    rewind(file);
    return file;
}

/* Through the text, as `make bench` sees it. */
static bench_last kept(void) {
    bench_last from, last;
    FILE *json = file_of(run), *text = tmpfile();
    assert_non_null(text);
    assert_true(bench_last_from_json(&from, json, "2026-01-02"));
    bench_last_write(&from, text);
    rewind(text);
    assert_true(bench_last_read(&last, text));
    bench_last_release(&from);
    fclose(json);
    fclose(text);
    return last;
}

static void kept_and_read(void **state) {
    (void)state;
    bench_last last = kept();
    assert_string_equal(last.machine, "Some CPU");
    assert_string_equal(last.date, "2026-01-02");
    assert_string_equal(last.peaks[1].unit, "fma512");
    assert_true(last.peaks[1].gflops == 100);
    assert_int_equal(last.count, 2); /* ours, fixed, each once by its best, sorted */
    assert_string_equal(last.cases[0].text, "map add shape=64");
    assert_true(last.cases[0].seconds > 2.99e-6 && last.cases[0].seconds < 3.01e-6);
    assert_string_equal(last.cases[1].text, "row softmax shape=8x8");
    assert_true(last.cases[1].share > 0.499 && last.cases[1].share < 0.501);
    bench_last_release(&last);
}

static void other_files(void **state) {
    (void)state;
    static const char *const bad[] = {"1 nothing\n", "peak 99 fma512 1\n", "1 2 3\n", "1 -2 3 map add\n"};
    bench_last last;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *file = file_of(bad[i]);
        assert_false(bench_last_read(&last, file));
        bench_last_release(&last);
        fclose(file);
    }
    FILE *file = file_of("1 2 3 map add\n");
    assert_false(bench_last_from_json(&last, file, ""));
    bench_last_release(&last);
    fclose(file);
}

static void comparable(void **state) {
    (void)state;
    bench_last last = kept();
    char why[400] = "";
    bench_roofs roofs = {.threads = 1, .fma = {108e9, 90e9, 45e9}};
    assert_true(bench_last_comparable(&last, "Some CPU", &roofs, why, sizeof why));
    assert_false(bench_last_comparable(&last, "Other CPU", &roofs, why, sizeof why));
    assert_non_null(strstr(why, "Other CPU"));
    roofs.fma[0] = 111e9;
    assert_false(bench_last_comparable(&last, "Some CPU", &roofs, why, sizeof why));
    assert_non_null(strstr(why, "111.0"));
    roofs.fma[0] = 0;
    assert_false(bench_last_comparable(&last, "Some CPU", &roofs, why, sizeof why));
    assert_non_null(strstr(why, "fma256"));
    roofs = (bench_roofs){.threads = 2, .fma = {200e9}};
    assert_false(bench_last_comparable(&last, "Some CPU", &roofs, why, sizeof why));
    assert_non_null(strstr(why, "2 threads"));
    bench_last_release(&last);
}

static void fallen(void **state) {
    (void)state;
    bench_last last = kept();
    bench_shape shape;
    assert_true(bench_shape_parse(&shape, "row softmax shape=8x8"));
    /* 10 % slower, the roof as before; then with a machine that is slower itself; then no slower, but for a higher roof. */
    bench_outcome now = {.shape = &shape, .threads = 1, .seconds = 2.2e-6, .roof = 1e-6};
    assert_non_null(bench_last_fallen(&last, &now));
    now.roof = 1.1e-6;
    assert_null(bench_last_fallen(&last, &now));
    now.seconds = 2e-6, now.roof = 0.8e-6;
    assert_null(bench_last_fallen(&last, &now));
    now.seconds = 2.08e-6, now.roof = 1e-6; /* within 5 % */
    assert_null(bench_last_fallen(&last, &now));
    now.seconds = 9e-6, now.threads = 2; /* another number of threads */
    assert_null(bench_last_fallen(&last, &now));
    bench_last_release(&last);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept_and_read), cmocka_unit_test(other_files),
                                       cmocka_unit_test(comparable), cmocka_unit_test(fallen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
