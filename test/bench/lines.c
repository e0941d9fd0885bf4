/* Lines of the benchmark as cases: kind, name, parameters, element types, layouts; random ones and what is expected of them. */
#include "bench/random.h"
#include "bench/random_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bench_shape parsed(const char *line) {
    bench_shape shape;
    assert_true(bench_shape_parse(&shape, line));
    return shape;
}

static void parameters(void **state) {
    (void)state;
    bench_shape s = parsed("contraction  bert-large   b=1 m=16 n=4096\tk=1024 bias act=relu\n");
    assert_string_equal(s.text, "contraction bert-large b=1 m=16 n=4096 k=1024 bias act=relu");
    assert_string_equal(s.kind, "contraction");
    assert_string_equal(s.name, "bert-large");
    assert_int_equal(bench_number(&s, "n", 0), 4096);
    assert_int_equal(bench_number(&s, "batch", 7), 7);
    assert_true(bench_flag(&s, "bias"));
    assert_false(bench_flag(&s, "const"));
    assert_string_equal(bench_text(&s, "act"), "relu");
    assert_null(bench_text(&s, "dtype"));
}

static void names_of_several_words(void **state) {
    (void)state;
    assert_string_equal(parsed("map cast f32->bf16   shape=16").name, "cast f32->bf16");
    bench_shape s = parsed("move pad shape=8x64x56x56 1,1 each side of h,w");
    assert_string_equal(s.name, "pad");
    int64_t dims[DLC_MAX_RANK];
    assert_int_equal(bench_numbers(bench_text(&s, "shape"), dims), 4);
    assert_int_equal(dims[3], 56);
    assert_int_equal(bench_numbers("4x(8x64)", dims), 3);
    assert_int_equal(bench_numbers(NULL, dims), 0);
}

static void labels(void **state) {
    (void)state;
    bench_shape s =
        parsed("convolution odd n=1 ci=3 co=7 h=9 w=9 kh=1 kw=1 stride=1 pad=0 groups=1 dilation=1 blocked");
    assert_string_equal(s.label, "convolution odd ci=3 co=7 h=9 w=9 kh=1 kw=1 blocked");
    assert_string_equal(parsed("contraction odd b=1 m=10007 n=1 k=64").label, "contraction odd m=10007 n=1 k=64");
}

static void what_is_no_line(void **state) {
    (void)state;
    bench_shape shape;
    char line[300];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    assert_false(bench_shape_parse(&shape, "# contraction cube m=1"));
    assert_false(bench_shape_parse(&shape, " \n"));
    assert_false(bench_shape_parse(&shape, line));
}

static void element_types(void **state) {
    (void)state;
    bench_types t;
    bench_shape s = parsed("contraction cube m=1 dtype=u8 out=f32");
    assert_true(bench_types_of(&t, &s));
    assert_int_equal(t.x, DLC_U8);
    assert_int_equal(t.w, DLC_I8);
    assert_int_equal(t.sum, DLC_I32);
    assert_int_equal(t.out, DLC_F32);
    s = parsed("contraction cube m=1");
    assert_true(bench_types_of(&t, &s));
    assert_int_equal(t.out, DLC_F32);
    s = parsed("contraction cube m=1 dtype=u3");
    assert_false(bench_types_of(&t, &s));
    s = parsed("contraction cube m=1 out=f99");
    assert_false(bench_types_of(&t, &s));
}

static void elements(void **state) {
    (void)state;
    static const dlc_dtype exact[] = {DLC_F64, DLC_F32, DLC_F16, DLC_BF16};
    uint64_t place = 0;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        bench_operand o = {.dtype = exact[i], .data = &place};
        for (double value = -2; value <= 2; value += 0.25) {
            bench_set_element(&o, 0, value);
            assert_true(bench_element(&o, 0) == value);
        }
    }
    bench_operand bytes = {.dtype = DLC_I8, .data = &place};
    bench_set_element(&bytes, 0, -0.5);
    assert_true(bench_element(&bytes, 0) == -1);
    bytes.dtype = DLC_U8;
    bench_set_element(&bytes, 3, 255.9);
    assert_true(bench_element(&bytes, 3) == 255);
}

static void layouts(void **state) {
    (void)state;
    bench_shape s = parsed("convolution odd ci=3 co=32 blocked");
    assert_int_equal(bench_layout_of(&s, 3), BENCH_PLAIN);
    assert_int_equal(bench_layout_of(&s, 32), BENCH_BLOCKED);
    s = parsed("convolution odd ci=3 co=32 last");
    assert_int_equal(bench_layout_of(&s, 3), BENCH_LAST);
}

static void random_shapes(void **state) {
    (void)state;
    static bench_shape one[BENCH_RANDOM_SHAPES], same[BENCH_RANDOM_SHAPES], other[BENCH_RANDOM_SHAPES];
    bench_random_shapes(1, one);
    bench_random_shapes(1, same);
    bench_random_shapes(2, other);
    int different = 0;
    for (int i = 0; i < BENCH_RANDOM_SHAPES; i++) {
        assert_string_equal(one[i].text, same[i].text);
        different += strcmp(one[i].text, other[i].text) != 0;
        assert_true(one[i].kind[0] != 0);
        bench_shape again = parsed(one[i].text);
        assert_string_equal(again.label, one[i].label);
    }
    assert_true(different > BENCH_RANDOM_SHAPES / 2);
}

/* Random lines of all families are cases, the same for a seed. */
static void random_lines(void **state) {
    enum { LINES = 2000 };
    static const char *const kinds[] = {"contraction", "convolution", "row",       "move",
                                        "map",         "window",      "attention", "recurrent"};
    int seen[sizeof kinds / sizeof *kinds] = {0};
    bench_draw one = {1}, same = {1};
    char line[BENCH_RANDOM_LINE], again[BENCH_RANDOM_LINE];
    (void)state;
    for (int i = 0; i < LINES; i++) {
        bench_random_line(&one, line);
        bench_random_line(&same, again);
        assert_string_equal(line, again);
        bench_shape shape = parsed(line);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) seen[k] += strcmp(shape.kind, kinds[k]) == 0;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) assert_true(seen[k] > 0);
}

/* A case with a share of the roof. */
static bench_outcome with_share(const bench_shape *shape, double share) {
    return (bench_outcome){.shape = shape, .threads = 1, .seconds = 1, .roof = share, .flops = 1e9, .bytes = 1e6};
}

static void random_cases_beside_their_like(void **state) {
    (void)state;
    bench_shape near = parsed("contraction cube b=1 m=64 n=64 k=64"), far = parsed("contraction cube b=1 m=1 n=8 k=8");
    bench_shape odd = parsed("contraction odd b=1 m=64 n=64 k=64"),
                it = parsed("contraction random b=1 m=60 n=64 k=64");
    bench_shape nearer = parsed("contraction cube b=1 m=61 n=64 k=64"),
                next = parsed("contraction cube b=1 m=32 n=64 k=64");
    const bench_outcome fixed[] = {with_share(&near, 0.80), with_share(&far, 0.1), with_share(&odd, 0.99),
                                   with_share(&nearer, 0.82), with_share(&next, 0.90)};
    bench_arena arena = {.threads = 1, .json = fopen("/dev/null", "w")};
    assert_non_null(arena.json);
    bench_outcome good = with_share(&it, 0.76), bad = with_share(&it, 0.74);
    assert_true(bench_random_judge(&arena, 1, &good, 1, fixed, 5));
    assert_false(bench_random_judge(&arena, 1, &bad, 1, fixed, 5));
    fclose(arena.json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),    cmocka_unit_test(names_of_several_words),
        cmocka_unit_test(labels),        cmocka_unit_test(what_is_no_line),
        cmocka_unit_test(element_types), cmocka_unit_test(elements),
        cmocka_unit_test(layouts),       cmocka_unit_test(random_shapes),
        cmocka_unit_test(random_lines),  cmocka_unit_test(random_cases_beside_their_like)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
