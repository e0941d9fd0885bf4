/* Host functions of their own signature through libffi: every kind of parameter arrives, mistakes in a signature are told. */
#include <dlc/dlc.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct seen {
    const void *in, *in1;
    void *out;
    int32_t rows, five;
    int64_t columns, count, big;
    float half, width;
    double tenth, elements;
    int calls;
} seen;

static void many(const float *in, int32_t rows, double tenth, const int64_t *in1, int64_t columns, float half,
                 int64_t count, void *user, float *out, int32_t five, int64_t big, double elements, float width) {
    seen *s = user;
    *s = (seen){in, in1, out, rows, five, columns, count, big, half, width, tenth, elements, s->calls + 1};
    out[0] = 42;
}

static dlc_context *context;

static int open_context(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "interp";
    return dlc_context_create(&options, &context) != DLC_OK;
}
static int close_context(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return 0;
}

static float numbers[12], result[2];
static int64_t integers[3] = {7, 8, 9};
static int64_t two_rows[] = {2, 6}, three[] = {3}, pair[] = {2};
static const DLTensor x = {
    .data = numbers, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = two_rows};
static const DLTensor i = {
    .data = integers, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = three, .byte_offset = 8};
static DLTensor y = {.data = result, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = pair};

static const char all_kinds[] =
    "in 0, i32 dim 0 0, f64 0.1, in 1, i64 dim 0 1, f32 0.5, i64 count 0, user, out 0, i32 -5,"
    "i64 9000000000000000000, f64 count 1, f32 dim 0 1";

static void test_every_kind_of_parameter(void **state) {
    (void)state;
    seen s = {0};
    dlc_native *native;
    assert_int_equal(dlc_native_create(context, (void (*)(void))many, &s, all_kinds, &native), DLC_OK);
    dlc_native_call(native, 2, (const DLTensor *const[]){&x, &i}, 1, (DLTensor *const[]){&y});
    assert_int_equal(s.calls, 1);
    assert_ptr_equal(s.in, numbers);
    assert_ptr_equal(s.in1, integers + 1); /* byte_offset counts */
    assert_ptr_equal(s.out, result);
    assert_int_equal(s.rows, 2);
    assert_int_equal(s.columns, 6);
    assert_int_equal(s.count, 12);
    assert_int_equal(s.five, -5);
    assert_true(s.big == INT64_C(9000000000000000000));
    assert_true(s.tenth == 0.1 && s.half == 0.5f && s.elements == 3 && s.width == 6);
    assert_true(result[0] == 42);
    dlc_native_destroy(native);
}

/* A call without what the signature speaks of must not reach the function. */
static void test_a_call_that_does_not_fit(void **state) {
    (void)state;
    static const char *const signatures[] = {"in 2, out 0", "in 0, out 1", "out 0, i64 dim 0 2", "i32 count 2, out 0"};
    for (size_t k = 0; k < sizeof signatures / sizeof *signatures; k++) {
        dlc_native *native;
        result[0] = result[1] = 1;
        assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, signatures[k], &native), DLC_OK);
        dlc_native_call(native, 2, (const DLTensor *const[]){&x, &i}, 1, (DLTensor *const[]){&y});
        assert_true(result[0] == 0 && result[1] == 0);
        dlc_native_destroy(native);
    }
    /* a size beyond the parameter's type */
    dlc_native *native;
    DLTensor many_rows = x;
    many_rows.shape = (int64_t[]){INT64_C(1) << 31, 0};
    result[0] = 1;
    assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, "out 0, i32 dim 0 0", &native), DLC_OK);
    dlc_native_call(native, 1, (const DLTensor *const[]){&many_rows}, 1, (DLTensor *const[]){&y});
    assert_true(result[0] == 0);
    dlc_native_destroy(native);
}

static void test_mistakes_in_a_signature(void **state) {
    (void)state;
    static const char *const signatures[] = {"in",
                                             "in -1",
                                             "in 0 out 0",
                                             "in 0,",
                                             "i32",
                                             "i32 0.5",
                                             "f32 dim 0",
                                             "float 1",
                                             ", in 0",
                                             "i64 count",
                                             "f64 \"1\"",
                                             "out 0 0",
                                             "i32 99999999999999999999",
                                             "i32 2147483648",
                                             "out 0, i32 -2147483649"};
    for (size_t k = 0; k < sizeof signatures / sizeof *signatures; k++) {
        dlc_native *native = (dlc_native *)(uintptr_t)1;
        assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, signatures[k], &native),
                         DLC_PARSE_ERROR);
        assert_null(native);
        assert_true(strlen(dlc_error_message(context)) > 10);
    }
    char long_one[200] = "in 0";
    for (int k = 0; k < 24; k++) strcat(long_one, ",in 0");
    dlc_native *native;
    assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, long_one, &native), DLC_PARSE_ERROR);
    assert_int_equal(dlc_native_create(NULL, (void (*)(void))many, NULL, "in 0", &native), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_native_create(context, NULL, NULL, "in 0", &native), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, NULL, &native), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_native_create(context, (void (*)(void))many, NULL, "in 0", NULL), DLC_INVALID_ARGUMENT);
    dlc_native_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_parameter),
        cmocka_unit_test(test_a_call_that_does_not_fit),
        cmocka_unit_test(test_mistakes_in_a_signature),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
