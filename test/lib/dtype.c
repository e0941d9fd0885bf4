/* Element types. The 16-bit conversions are checked against the compiler's _Float16 where there is one, and against a
 * search for the nearest value in a table of all values, which shares nothing with them. */
#include "lib/lib.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state = 1;
static uint64_t random64(void) { /* xorshift64* */
    random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}
static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* The value of sign-less bits by the definition of the format. */
static double decode(unsigned bits, int exponent_bits, int mantissa_bits) {
    int exponent = (int)(bits >> mantissa_bits), bias = (1 << (exponent_bits - 1)) - 1;
    double mantissa = bits & ((1u << mantissa_bits) - 1);
    if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? (double)NAN : (double)INFINITY;
    if (exponent == 0) return ldexp(mantissa, 1 - bias - mantissa_bits);
    return ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* Nearest even by bisection over all values. Differences of neighbours and midpoints are exact in long double. */
static unsigned nearest(double value, int exponent_bits, int mantissa_bits) {
    unsigned sign = signbit(value) ? 0x8000 : 0, infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
    double magnitude = fabs(value);
    if (isnan(value)) return sign | infinity | 1u << (mantissa_bits - 1);
    unsigned low = 0, high = infinity; /* decode(low) <= magnitude < decode(high), infinity standing for its place */
    if (isinf(value)) return sign | infinity;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (decode(middle, exponent_bits, mantissa_bits) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    long double below = decode(low, exponent_bits, mantissa_bits);
    long double above = high < infinity ? (long double)decode(high, exponent_bits, mantissa_bits)
                                        : 2 * below - (long double)decode(low - 1, exponent_bits, mantissa_bits);
    long double down = (long double)magnitude - below, up = above - (long double)magnitude;
    if (down < up || (down == up && low % 2 == 0)) return sign | low;
    return sign | high;
}

static void check_f64(double value) {
    unsigned f16 = lib_f16_from_f64(value), bf16 = lib_bf16_from_f64(value);
    if (isnan(value)) {
        assert_true((f16 & 0x7fff) > 0x7c00 && (f16 & 0x200));
        assert_true((bf16 & 0x7fff) > 0x7f80 && (bf16 & 0x40));
        assert_int_equal(f16 >> 15, signbit(value) != 0);
        return;
    }
    if (f16 != nearest(value, 5, 10)) fail_msg("f16(%a) is %04x, not %04x", value, f16, nearest(value, 5, 10));
    if (bf16 != nearest(value, 8, 7)) fail_msg("bf16(%a) is %04x, not %04x", value, bf16, nearest(value, 8, 7));
    if ((double)(float)value == value) {
        assert_int_equal(lib_f16_from_f32((float)value), f16);
        assert_int_equal(lib_bf16_from_f32((float)value), bf16);
    }
}

static void test_all_values_widen(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        double sign = bits & 0x8000 ? -1 : 1, f16 = decode(bits & 0x7fff, 5, 10), bf16 = decode(bits & 0x7fff, 8, 7);
        float wide = lib_f32_from_f16((uint16_t)bits), wide_b = lib_f32_from_bf16((uint16_t)bits);
        assert_true(isnan(f16) ? isnan(wide) : (double)wide == sign * f16 && !signbit(wide) == !(bits & 0x8000));
        assert_true(isnan(bf16) ? isnan(wide_b)
                                : (double)wide_b == sign * bf16 && !signbit(wide_b) == !(bits & 0x8000));
        if (!isnan(f16)) assert_int_equal(lib_f16_from_f32(wide), bits);
        if (!isnan(bf16)) assert_int_equal(lib_bf16_from_f32(wide_b), bits);
    }
}

/* Every value, every midpoint of neighbours, and their neighbours in f64. */
static void test_boundaries_narrow(void **state) {
    (void)state;
    static const int formats[2][2] = {{5, 10}, {8, 7}};
    for (int f = 0; f < 2; f++) {
        unsigned infinity = ((1u << formats[f][0]) - 1) << formats[f][1];
        for (unsigned bits = 0; bits < infinity; bits++) {
            double value = decode(bits, formats[f][0], formats[f][1]);
            double step = bits + 1 < infinity ? decode(bits + 1, formats[f][0], formats[f][1]) - value
                                              : value - decode(bits - 1, formats[f][0], formats[f][1]);
            double points[] = {value, value + step / 2};
            for (int i = 0; i < 2; i++) {
                check_f64(points[i]);
                check_f64(-nextafter(points[i], INFINITY));
                check_f64(nextafter(points[i], -INFINITY));
            }
        }
    }
}

static void test_random_narrow(void **state) {
    (void)state;
    for (int i = 0; i < 300000; i++) {
        check_f64(double_of(random64()));
        check_f64((double)float_of((uint32_t)random64()));
        /* exponents near both formats' ranges */
        check_f64(ldexp((double)(int64_t)random64(), (int)(random64() % 330) - 63 - 160));
        check_f64(ldexp((double)(int64_t)random64(), (int)(random64() % 50) - 63 - 28));
    }
    check_f64((double)INFINITY), check_f64(-(double)INFINITY), check_f64((double)NAN), check_f64(-0.0);
    check_f64(double_of(0x7ff0000000000001)); /* a payload that the narrow format cannot hold */
    check_f64(5e-324), check_f64(1.7976931348623157e308);
    assert_int_equal(lib_f16_from_f32(float_of(1)), 0);
    assert_int_equal(lib_bf16_from_f32(float_of(0x7f800001)), 0x7fc0);
}

#ifdef __FLT16_MAX__
__extension__ typedef _Float16 compiler_half;

static void test_against_the_compiler(void **state) {
    (void)state;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 509) {
        float value = float_of((uint32_t)bits);
        if (isnan(value)) continue;
        compiler_half half = (compiler_half)value;
        uint16_t expected;
        memcpy(&expected, &half, 2);
        assert_int_equal(lib_f16_from_f32(value), expected);
    }
    for (int i = 0; i < 1000000; i++) {
        double value = ldexp((double)(int64_t)random64(), (int)(random64() % 50) - 63 - 28);
        compiler_half half = (compiler_half)value;
        uint16_t expected;
        memcpy(&expected, &half, 2);
        assert_int_equal(lib_f16_from_f64(value), expected);
    }
}
#endif

static void test_table(void **state) {
    (void)state;
    for (int i = 0; i < DLC_DTYPE_COUNT; i++) {
        dlc_dtype back;
        assert_true(lib_dtype_parse(lib_dtypes[i].name, &back) && back == (dlc_dtype)i);
        assert_true(lib_dtype_from_dlpack(lib_dtype_to_dlpack((dlc_dtype)i), &back) && back == (dlc_dtype)i);
        assert_int_equal(lib_dtypes[i].bytes, (lib_dtypes[i].bits + 7) / 8);
    }
    dlc_dtype out = DLC_F64;
    assert_false(lib_dtype_parse("f33", &out));
    assert_false(lib_dtype_parse("", &out));
    assert_false(lib_dtype_from_dlpack((DLDataType){kDLFloat, 32, 4}, &out));
    assert_false(lib_dtype_from_dlpack((DLDataType){kDLFloat, 31, 1}, &out));
    assert_false(lib_dtype_from_dlpack((DLDataType){99, 32, 1}, &out));
    assert_int_equal(out, DLC_F64);
    assert_int_equal(lib_dtype_size(DLC_BOOL), 1);
    assert_int_equal(lib_dtype_bytes(DLC_I4, 35), 18);
    assert_int_equal(lib_dtype_bytes(DLC_C64, 35), 280);
    assert_true(lib_dtype_bytes(DLC_I2, 35) == 9 && lib_dtype_bytes(DLC_U2, 36) == 9 &&
                lib_dtype_bytes(DLC_F8E8M0, 35) == 35);
    assert_int_equal(DLC_U4, 19); /* hosts have the numbers */
    assert_int_equal(DLC_I2, 20);
    assert_int_equal(DLC_F8E8M0, 23);
    assert_true(lib_dtype_is_float(DLC_BF16) && !lib_dtype_is_float(DLC_I8) && lib_dtype_is_integer(DLC_U8));
    assert_false(lib_dtype_is_integer(DLC_BOOL));
}

/* Every code, and the middles between neighbours with what is beside them: f4e2m1 by the list of its numbers. */
static void test_small_floats(void **state) {
    (void)state;
    static const double numbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (int code = 0; code < 8; code++) {
        const uint8_t bits = (uint8_t)code, negative = bits | 8;
        const double least = code ? (numbers[code - 1] + numbers[code]) / 2 : 0; /* goes to the even one */
        assert_true((double)lib_f32_from_f8(DLC_F4E2M1, bits) == numbers[code]);
        assert_true((double)lib_f32_from_f8(DLC_F4E2M1, negative) == -numbers[code]);
        assert_int_equal(lib_f8_from_f64(DLC_F4E2M1, -numbers[code]), negative);
        assert_int_equal(lib_f8_from_f64(DLC_F4E2M1, numbers[code]), bits);
        if (!code) continue;
        assert_int_equal(lib_f8_from_f64(DLC_F4E2M1, least), code - code % 2);
        assert_int_equal(lib_f8_from_f64(DLC_F4E2M1, nextafter(least, 9)), code);
        assert_int_equal(lib_f8_from_f64(DLC_F4E2M1, nextafter(least, 0)), code - 1);
    }
    assert_true(signbit(lib_f32_from_f8(DLC_F4E2M1, 8)));
    for (int code = 0; code < 255; code++) {
        const double power = ldexp(1, code - 127);
        assert_true((double)lib_f32_from_f8(DLC_F8E8M0, (uint8_t)code) == power);
        assert_int_equal(lib_f8_from_f64(DLC_F8E8M0, power), code);
        assert_int_equal(lib_f8_from_f64(DLC_F8E8M0, nextafter(1.5 * power, 0)), code);
        assert_int_equal(lib_f8_from_f64(DLC_F8E8M0, 1.5 * power), code + 1);
    }
    assert_true(isnan(lib_f32_from_f8(DLC_F8E8M0, 255)));
}

/* Codes of 4 and 2 bits in their places. */
static void test_packed(void **state) {
    (void)state;
    uint8_t bytes[3] = {0xff, 0xff, 0xff};
    for (size_t i = 0; i < 5; i++) lib_packed_set(DLC_U4, bytes, i, (uint8_t)(i + 1));
    assert_memory_equal(bytes, "\x21\x43\xf5", 3);
    for (size_t i = 0; i < 5; i++) assert_int_equal(lib_packed_get(DLC_F4E2M1, bytes, i), i + 1);
    for (size_t i = 0; i < 9; i++) lib_packed_set(DLC_I2, bytes, i, (uint8_t)(i % 4));
    assert_memory_equal(bytes, "\xe4\xe4\xf4", 3);
    for (size_t i = 0; i < 9; i++) {
        const uint8_t code = lib_packed_get(DLC_I2, bytes, i);
        assert_int_equal(code, i % 4);
        assert_int_equal(lib_element_get_i64(DLC_I2, &code), i % 4 < 2 ? (int)(i % 4) : (int)(i % 4) - 4);
    }
}

static void test_elements(void **state) {
    (void)state;
    static const struct {
        dlc_dtype dtype;
        double in, out;
    } rows[] = {
        {DLC_I8, 127.9, 127},
        {DLC_I8, 128, 127},
        {DLC_I8, -128.9, -128},
        {DLC_I8, -1e30, -128},
        {DLC_I8, -1.9, -1},
        {DLC_I8, (double)NAN, 0},
        {DLC_U8, -5, 0},
        {DLC_U8, 255.5, 255},
        {DLC_U8, 256, 255},
        {DLC_U8, (double)NAN, 0},
        {DLC_I32, 3e9, 2147483647},
        {DLC_I32, -3e9, -2147483648.0},
        {DLC_U32, 5e9, 4294967295.0},
        {DLC_I16, 40000, 32767},
        {DLC_U16, 70000, 65535},
        {DLC_I64, 1e300, 0x1p63},
        {DLC_I64, -1e300, -0x1p63},
        {DLC_I64, 0x1p62, 0x1p62},
        {DLC_U64, 1e300, 0x1p64},
        {DLC_U64, -1, 0},
        {DLC_U64, 0x1p63, 0x1p63},
        {DLC_BOOL, 0.5, 1},
        {DLC_BOOL, 0, 0},
        {DLC_BOOL, -0.0, 0},
        {DLC_BOOL, (double)NAN, 1},
        {DLC_F32, 0.1, (double)0.1f},
        {DLC_F64, 0.1, 0.1},
        {DLC_F16, 65519, 65504},
        {DLC_F16, 65520, (double)INFINITY},
        {DLC_BF16, 257, 256},
        {DLC_F8E4M3FN, 464, 448},
        {DLC_F8E4M3FNUZ, 247, 240},
        {DLC_F8E5M2, 61439, 57344},
        {DLC_F8E5M2, 61440, (double)INFINITY},
        {DLC_F8E5M2FNUZ, 0x1p-17, 0x1p-17},
        {DLC_F8E5M2FNUZ, 0x1p-18, 0},
        {DLC_I4, 9, 7},
        {DLC_I4, -9, -8},
        {DLC_U4, 17, 15},
        {DLC_U4, -1, 0},
        {DLC_I2, 2, 1},
        {DLC_I2, -3, -2},
        {DLC_U2, 4, 3},
        {DLC_U2, 2.9, 2},
        {DLC_F4E2M1, 1e30, 6},
        {DLC_F4E2M1, -(double)INFINITY, -6},
        {DLC_F4E2M1, (double)NAN, 0},
        {DLC_F8E8M0, 1.5, 2},
        {DLC_F8E8M0, 1.4999, 1},
        {DLC_F8E8M0, 0x1p-127, 0x1p-127},
        {DLC_F8E8M0, 0x1.8p-128, 0x1p-127},
        {DLC_I64, (double)INFINITY, 0x1p63},
        {DLC_I32, -(double)INFINITY, -2147483648.0},
    };
    unsigned char element[9];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(element, 0xaa, sizeof element);
        lib_element_set_f64(rows[i].dtype, element + 1, rows[i].in); /* unaligned on purpose */
        double got = lib_element_get_f64(rows[i].dtype, element + 1);
        if (got != rows[i].out) fail_msg("row %zu: %g gave %g, not %g", i, rows[i].in, got, rows[i].out);
        for (size_t k = 1 + lib_dtype_size(rows[i].dtype); k < sizeof element; k++) assert_int_equal(element[k], 0xaa);
    }
    static const double no_powers[] = {0, -1, 0x1.7p-128, 0x1.8p127, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof no_powers / sizeof *no_powers; i++) {
        lib_element_set_f64(DLC_F8E8M0, element, no_powers[i]);
        assert_true(element[0] == 255 && isnan(lib_element_get_f64(DLC_F8E8M0, element)));
    }
    int64_t big = INT64_MAX - 5;
    lib_element_set_i64(DLC_I64, element, big);
    assert_true(lib_element_get_i64(DLC_I64, element) == big);
    lib_element_set_i64(DLC_I8, element, 300);
    assert_true(lib_element_get_i64(DLC_I8, element) == 44);
    lib_element_set_i64(DLC_I8, element, -1);
    assert_true(lib_element_get_i64(DLC_I8, element) == -1 && lib_element_get_i64(DLC_U8, element) == 255);
    lib_element_set_i64(DLC_BOOL, element, 256);
    assert_true(lib_element_get_i64(DLC_BOOL, element) == 1);
    lib_element_set_f64(DLC_F64, element, 1e300);
    assert_true(lib_element_get_i64(DLC_F64, element) == INT64_MAX);
    lib_element_set_f64(DLC_F32, element, (double)NAN);
    assert_true(lib_element_get_i64(DLC_F32, element) == 0);
    lib_element_set_f64(DLC_F32, element, -1e30);
    assert_true(lib_element_get_i64(DLC_F32, element) == INT64_MIN);
}

/* Integers to floats with one rounding: long double holds every 64-bit integer. */
static void test_integers_to_floats(void **state) {
    (void)state;
    if (sizeof(long double) <= sizeof(double)) skip();
    for (int i = 0; i < 200000; i++) {
        int64_t value = (int64_t)random64() >> (random64() % 40);
        if (i % 4 == 0) { /* near a midpoint */
            uint64_t bits = (uint64_t)value & ~((uint64_t)0xffffffffffffff >> (i % 16));
            value = (int64_t)(bits + random64() % 3 - 1);
        }
        char element[8];
        lib_element_set_i64(DLC_F32, element, value);
        assert_true(lib_element_get_f64(DLC_F32, element) == (double)(float)value);
        lib_element_set_i64(DLC_F64, element, value);
        assert_true(lib_element_get_f64(DLC_F64, element) == (double)value);
        lib_element_set_i64(DLC_BF16, element, value);
        long double got = lib_element_get_f64(DLC_BF16, element), error = fabsl(got - (long double)value);
        uint16_t bits;
        memcpy(&bits, element, 2);
        long double up = fabsl((long double)lib_f32_from_bf16((uint16_t)(bits + 1)) - (long double)value);
        long double down = value ? fabsl((long double)lib_f32_from_bf16((uint16_t)(bits - 1)) - (long double)value) : 1;
        assert_true(error <= up && error <= down);
        if (error == up || error == down) assert_int_equal(bits & 1, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_all_values_widen),
        cmocka_unit_test(test_boundaries_narrow),
        cmocka_unit_test(test_random_narrow),
#ifdef __FLT16_MAX__
        cmocka_unit_test(test_against_the_compiler),
#endif
        cmocka_unit_test(test_small_floats),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_integers_to_floats),
    };
    return cmocka_run_group_tests_name("lib/dtype", tests, NULL, NULL);
}
