/* Scalar arithmetic: 8-bit integers exhaustively, 16-bit floats against long double with a rounding of its own, wide
 * dtypes at the points where rules break, conversions at rounding ties and limits. */
#include "tir/arith.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the above */
#include <cmocka.h>

static uint64_t binary(tir_op op, tir_dtype dtype, uint64_t a, uint64_t b) {
    bool compares = (tir_ops[op].flags & TIR_COMPARES) != 0;
    return tir_arith(op, compares ? (tir_dtype)DLC_BOOL : dtype, dtype, (uint64_t[]){a, b}, 2, true);
}

static uint64_t unary(tir_op op, tir_dtype dtype, uint64_t a) {
    return tir_arith(op, dtype, dtype, &a, 1, true);
}

/* ---- 8-bit integers, all pairs; `low` and `high` are the dtype's range */

static int64_t wrapped(int64_t value, int low) {
    int64_t rest = ((value - low) % 256 + 256) % 256;
    return rest + low;
}

static int64_t power(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    int64_t result = 1;
    for (int64_t at = 0; at < b; at++) result = wrapped(result * a, -128);
    return result;
}

static void check_pair(tir_dtype dtype, int low, int64_t a, int64_t b) {
    struct {
        tir_op op;
        int64_t want;
    } rows[] = {
        {TIR_ADD, a + b},
        {TIR_SUB, a - b},
        {TIR_MUL, a * b},
        {TIR_DIV, b ? a / b : 0},
        {TIR_REM, b ? a % b : 0},
        {TIR_MIN, a < b ? a : b},
        {TIR_MAX, a < b ? b : a},
        {TIR_POW, power(a, b)},
        {TIR_AND, a & b},
        {TIR_OR, a | b},
        {TIR_XOR, a ^ b},
        {TIR_SHL, b < 0 || b > 7 ? 0 : a * (1 << b)},
        {TIR_SHR, b < 0 || b > 7 ? 0 : (a - ((a % (1 << b)) + (1 << b)) % (1 << b)) / (1 << b)},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        assert_int_equal((int64_t)binary(rows[row].op, dtype, (uint64_t)a, (uint64_t)b), wrapped(rows[row].want, low));
    assert_int_equal(binary(TIR_LT, dtype, (uint64_t)a, (uint64_t)b), a < b);
    assert_int_equal(binary(TIR_LE, dtype, (uint64_t)a, (uint64_t)b), a <= b);
    assert_int_equal(binary(TIR_EQ, dtype, (uint64_t)a, (uint64_t)b), a == b);
    assert_int_equal(binary(TIR_NE, dtype, (uint64_t)a, (uint64_t)b), a != b);
}

static void eight_bits(void **unused) {
    (void)unused;
    for (int unsigned_ = 0; unsigned_ < 2; unsigned_++) {
        int low = unsigned_ ? 0 : -128;
        tir_dtype dtype = unsigned_ ? DLC_U8 : DLC_I8;
        for (int a = low; a < low + 256; a++) {
            for (int b = low; b < low + 256; b++) check_pair(dtype, low, a, b);
            assert_int_equal((int64_t)unary(TIR_NEG, dtype, (uint64_t)(int64_t)a), wrapped(-a, low));
            assert_int_equal((int64_t)unary(TIR_ABS, dtype, (uint64_t)(int64_t)a), wrapped(a < 0 ? -a : a, low));
            assert_int_equal((int64_t)unary(TIR_NOT, dtype, (uint64_t)(int64_t)a), wrapped(-1 - a, low));
            assert_int_equal((int64_t)unary(TIR_FLOOR, dtype, (uint64_t)(int64_t)a), a);
        }
    }
    for (uint64_t a = 0; a < 2; a++) {
        assert_int_equal(unary(TIR_NOT, DLC_BOOL, a), 1 - a);
        for (uint64_t b = 0; b < 2; b++) {
            assert_int_equal(binary(TIR_AND, DLC_BOOL, a, b), a && b);
            assert_int_equal(binary(TIR_OR, DLC_BOOL, a, b), a || b);
            assert_int_equal(binary(TIR_XOR, DLC_BOOL, a, b), a != b);
        }
    }
}

static void wide_integers(void **unused) {
    (void)unused;
    uint64_t min32 = (uint64_t)(int64_t)INT32_MIN, min64 = (uint64_t)INT64_MIN, minus1 = UINT64_MAX;
    assert_int_equal(binary(TIR_DIV, DLC_I32, min32, minus1), min32);
    assert_int_equal(binary(TIR_REM, DLC_I32, min32, minus1), 0);
    assert_int_equal(binary(TIR_DIV, DLC_I64, min64, minus1), min64);
    assert_int_equal(binary(TIR_REM, DLC_I64, min64, minus1), 0);
    assert_int_equal(binary(TIR_DIV, DLC_I64, min64, 0), 0);
    assert_int_equal(binary(TIR_ADD, DLC_I32, INT32_MAX, 1), min32);
    assert_int_equal(binary(TIR_MUL, DLC_I32, 65536, 65536), 0);
    assert_int_equal(binary(TIR_MUL, DLC_I64, min64, minus1), min64);
    assert_int_equal(binary(TIR_SHL, DLC_I64, 1, 63), min64);
    assert_int_equal(binary(TIR_SHL, DLC_I64, 1, 64), 0);
    assert_int_equal(binary(TIR_SHR, DLC_I64, minus1, 63), minus1);
    assert_int_equal(binary(TIR_SHR, DLC_I64, minus1, 64), 0);
    assert_int_equal(binary(TIR_SHR, DLC_I32, minus1, minus1), 0);
    assert_int_equal(binary(TIR_MULHI, DLC_U32, 0xffffffff, 0xffffffff), 0xfffffffe);
    assert_int_equal(binary(TIR_MULHI, DLC_U64, minus1, minus1), minus1 - 1);
    assert_int_equal(binary(TIR_DIV, TIR_INDEX, (uint64_t)INT64_C(-7), 2), (uint64_t)INT64_C(-4));
    assert_int_equal(binary(TIR_REM, TIR_INDEX, (uint64_t)INT64_C(-7), 2), 1);
    assert_int_equal(binary(TIR_DIV, TIR_INDEX, 7, 0), 0);
    assert_int_equal(binary(TIR_POW, DLC_I32, 3, 20), (uint64_t)(int64_t)(int32_t)3486784401u);
    assert_int_equal(binary(TIR_POW, DLC_I64, 0, minus1), 0);
    assert_int_equal(unary(TIR_ABS, DLC_I64, min64), min64);
    assert_int_equal(binary(TIR_LT, DLC_U64, 1, minus1), 1);
    assert_int_equal(binary(TIR_LT, DLC_I64, 1, minus1), 0);
    uint64_t dot[9] = {INT32_MAX, 255, 127, 255, (uint64_t)INT64_C(-128), 1, 2, 3, 4};
    assert_int_equal(tir_arith(TIR_DOT4_U8I8, DLC_I32, DLC_I32, dot, 9, true),
                     (uint64_t)(int64_t)(int32_t)(INT32_MAX + (uint32_t)(255 * 127 - 255 * 128 + 14)));
    const uint64_t least = (uint64_t)INT64_C(-32768), words[5] = {minus1, least, least, least, least};
    assert_int_equal(tir_arith(TIR_DOT2_I16, DLC_I32, DLC_I32, words, 5, true), INT32_MAX); /* 2^31 - 1 */
}

static uint64_t bits32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static uint64_t scaled(float x, float n) {
    return binary(TIR_LDEXP, DLC_F32, bits32(x), bits32(n));
}

/* As vscalefps does: floor of the power, one rounding into the denormals, infinities win. */
static void powers_of_two_are_applied_at_once(void **unused) {
    (void)unused;
    assert_int_equal(scaled(1.5f, 3.0f), bits32(12.0f));
    assert_int_equal(scaled(1.5f, -0.5f), bits32(0.75f));
    assert_int_equal(scaled(1.5f, -149.0f), bits32(0x1p-148f)); /* a tie, to even */
    assert_int_equal(scaled(0x1.000002p0f, -149.0f), bits32(0x1p-149f));
    assert_int_equal(scaled(1.0f, -150.0f), bits32(0.0f));
    assert_int_equal(scaled(0x1.000002p0f, -150.0f), bits32(0x1p-149f));
    assert_int_equal(scaled(0x1p-149f, 276.0f), bits32(0x1p127f));
    assert_int_equal(scaled(-1.0f, 128.0f), bits32(-INFINITY));
    assert_int_equal(scaled(1.0f, 1e30f), bits32(INFINITY));
    assert_int_equal(scaled(-1.0f, -INFINITY), bits32(-0.0f));
    assert_true(isnan(tir_bits_to_f64(DLC_F32, scaled(0.0f, INFINITY))));
    assert_true(isnan(tir_bits_to_f64(DLC_F32, scaled(INFINITY, -INFINITY))));
    assert_true(isnan(tir_bits_to_f64(DLC_F32, scaled(NAN, 1.0f))));
}

/* ---- 16-bit floats: digits of precision, exponent of the smallest normal, and where overflow begins */

typedef struct format {
    tir_dtype dtype;
    int digits, lowest;
    /* largest finite + half an ulp */
    long double overflow;
} format;
static const format formats[2] = {{DLC_F16, 11, -14, 65520.0L}, {DLC_BF16, 8, -126, 0x1.ffp127L}};

static long double rounded(const format *to, long double value) {
    if (isnan(value) || isinf(value) || value == 0) return value;
    if (fabsl(value) >= to->overflow) return copysignl(INFINITY, value);
    int exponent;
    frexpl(value, &exponent);
    exponent -= 1;
    int ulp = (exponent < to->lowest ? to->lowest : exponent) - to->digits + 1;
    return ldexpl(rintl(ldexpl(value, -ulp)), ulp);
}

static void same_number(const format *to, uint64_t bits, long double want) {
    long double got = (long double)tir_bits_to_f64(to->dtype, bits);
    assert_true((isnan(want) && isnan(got)) || (got == want && !signbit(got) == !signbit(want)));
}

static uint64_t state = 42;
static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 24;
}

static void sixteen_bit_floats(void **unused) {
    (void)unused;
    for (int form = 0; form < 2; form++) {
        const format *to = &formats[form];
        for (int round = 0; round < 400000; round++) {
            uint64_t a = next() & 0xffff, b = next() & 0xffff;
            if (round % 2) b = (b & 0x83ff) | (a & 0x7c00); /* like exponents: more ties and cancellation */
            long double x = (long double)tir_bits_to_f64(to->dtype, a), y = (long double)tir_bits_to_f64(to->dtype, b);
            bool wide = to->dtype == DLC_BF16 && fabsl(x) < 0x1p60L && fabsl(y) < 0x1p60L && fabsl(x) > 0x1p-60L &&
                        fabsl(y) > 0x1p-60L;
            long double sum = x + y; /* exact where 64 digits hold it: always for f16 */
            if (to->dtype == DLC_F16 || (wide && (sum - x == y && sum - y == x))) {
                same_number(to, binary(TIR_ADD, to->dtype, a, b), rounded(to, sum));
                same_number(to, binary(TIR_SUB, to->dtype, a, b ^ 0x8000), rounded(to, sum));
            }
            same_number(to, binary(TIR_MUL, to->dtype, a, b), rounded(to, x * y));
            same_number(to, binary(TIR_DIV, to->dtype, a, b), rounded(to, x / y));
            same_number(to, unary(TIR_SQRT, to->dtype, a), rounded(to, sqrtl(x)));
            same_number(to, unary(TIR_FLOOR, to->dtype, a), floorl(x));
            same_number(to, unary(TIR_ROUND, to->dtype, a), rintl(x));
            same_number(to, binary(TIR_REM, to->dtype, a, b), fmodl(x, y));
            assert_int_equal(binary(TIR_LT, to->dtype, a, b), x < y);
            assert_int_equal(unary(TIR_NEG, to->dtype, a), a ^ 0x8000);
            assert_int_equal(unary(TIR_ABS, to->dtype, a), a & 0x7fff);
        }
        for (uint64_t bits = 0; bits < 65536; bits++) { /* every value through f32, f64 and back */
            double value = tir_bits_to_f64(to->dtype, bits);
            if (isnan(value)) continue;
            assert_int_equal(tir_arith_cast(to->dtype, DLC_F32, tir_arith_cast(DLC_F32, to->dtype, bits)), bits);
            assert_int_equal(tir_bits_from_f64(to->dtype, value), bits);
        }
    }
}

/* A product on a rounding tie, and an addend far below it that must decide the tie. */
static void fused_rounds_once(void **unused) {
    (void)unused;
    uint64_t tie = tir_bits_from_f64(DLC_BF16, 0x1.02p0), factor = tir_bits_from_f64(DLC_BF16, 1.5);
    for (int sign = -1; sign <= 1; sign++) {
        uint64_t tiny = tir_bits_from_f64(DLC_BF16, ldexp(sign, -120));
        uint64_t got = tir_arith(TIR_FMA, DLC_BF16, DLC_BF16, (uint64_t[]){tie, factor, tiny}, 3, true);
        double want = sign < 0 ? 1.5078125 : 1.515625; /* around 193.5 / 128: the even neighbour is 194 */
        assert_true(tir_bits_to_f64(DLC_BF16, got) == want);
    }
    float a = 1.0f + 0x1p-12f;
    uint64_t bits = tir_bits_from_f64(DLC_F32, (double)a), minus = tir_bits_from_f64(DLC_F32, -1.0);
    uint64_t operands[3] = {bits, bits, minus};
    assert_true(tir_bits_to_f64(DLC_F32, tir_arith(TIR_MULADD, DLC_F32, DLC_F32, operands, 3, true)) ==
                0x1p-11 + 0x1p-24);
    assert_true(tir_bits_to_f64(DLC_F32, tir_arith(TIR_MULADD, DLC_F32, DLC_F32, operands, 3, false)) == 0x1p-11);
    uint64_t integers[3] = {INT32_MAX, 2, 3};
    assert_int_equal(tir_arith(TIR_MULADD, DLC_I32, DLC_I32, integers, 3, true), 1);
}

static uint64_t f32_bits(float value) {
    return tir_bits_from_f64(DLC_F32, (double)value);
}

static void f32_is_the_machine(void **unused) {
    (void)unused;
    for (int round = 0; round < 1000000; round++) {
        uint32_t ab[2] = {(uint32_t)next(), (uint32_t)next()};
        if (round % 3 == 0) ab[1] = (ab[1] & 0x807fffff) | (ab[0] & 0x7f800000);
        if (round % 7 == 0) ab[0] &= 0x80ffffff; /* denormals */
        float a, b;
        memcpy(&a, &ab[0], 4);
        memcpy(&b, &ab[1], 4);
        volatile float want[5] = {a + b, a - b, a * b, a / b, sqrtf(a)};
        static const tir_op ops[5] = {TIR_ADD, TIR_SUB, TIR_MUL, TIR_DIV, TIR_SQRT};
        for (int op = 0; op < 5; op++) {
            uint64_t got = op == 4 ? unary(ops[op], DLC_F32, ab[0]) : binary(ops[op], DLC_F32, ab[0], ab[1]);
            float expected = want[op];
            uint32_t bits;
            memcpy(&bits, &expected, 4);
            assert_true(got == bits || (isnan(expected) && isnan(tir_bits_to_f64(DLC_F32, got))));
        }
    }
}

static void min_max(void **unused) {
    (void)unused;
    static const tir_dtype dtypes[] = {DLC_F16, DLC_BF16, DLC_F32, DLC_F64};
    for (int d = 0; d < 4; d++) {
        tir_dtype t = dtypes[d];
        uint64_t zero = tir_bits_from_f64(t, 0.0), minus = tir_bits_from_f64(t, -0.0), nan_ = tir_bits_from_f64(t, NAN);
        assert_int_equal(binary(TIR_MIN, t, zero, minus), minus);
        assert_int_equal(binary(TIR_MIN, t, minus, zero), minus);
        assert_int_equal(binary(TIR_MAX, t, zero, minus), zero);
        assert_int_equal(binary(TIR_MAX, t, minus, zero), zero);
        assert_true(isnan(tir_bits_to_f64(t, binary(TIR_MAX, t, nan_, zero))));
        assert_true(isnan(tir_bits_to_f64(t, binary(TIR_MIN, t, zero, nan_))));
        assert_int_equal(binary(TIR_EQ, t, nan_, nan_), 0);
        assert_int_equal(binary(TIR_NE, t, nan_, nan_), 1);
        assert_int_equal(binary(TIR_LE, t, nan_, zero), 0);
        assert_int_equal(binary(TIR_EQ, t, zero, minus), 1);
    }
}

static void conversions(void **unused) {
    (void)unused;
    uint64_t nan_ = f32_bits(NAN), big = f32_bits(1e30f), low = f32_bits(-1e30f);
    assert_int_equal(tir_arith_cast(DLC_I32, DLC_F32, nan_), 0);
    assert_int_equal(tir_arith_cast(DLC_I32, DLC_F32, big), INT32_MAX);
    assert_int_equal(tir_arith_cast(DLC_I32, DLC_F32, low), (uint64_t)(int64_t)INT32_MIN);
    assert_int_equal(tir_arith_cast(DLC_I64, DLC_F32, big), INT64_MAX);
    assert_int_equal(tir_arith_cast(DLC_I64, DLC_F32, low), (uint64_t)INT64_MIN);
    assert_int_equal(tir_arith_cast(DLC_U64, DLC_F32, big), UINT64_MAX);
    assert_int_equal(tir_arith_cast(DLC_U8, DLC_F32, f32_bits(255.9f)), 255);
    assert_int_equal(tir_arith_cast(DLC_U8, DLC_F32, f32_bits(256.0f)), 255);
    assert_int_equal(tir_arith_cast(DLC_U8, DLC_F32, f32_bits(-0.9f)), 0);
    assert_int_equal(tir_arith_cast(DLC_I8, DLC_F32, f32_bits(-128.9f)), (uint64_t)INT64_C(-128));
    assert_int_equal(tir_arith_cast(DLC_BOOL, DLC_F32, nan_), 1);
    assert_int_equal(tir_arith_cast(DLC_BOOL, DLC_F32, f32_bits(-0.0f)), 0);
    assert_int_equal(tir_arith_cast(DLC_BOOL, DLC_I32, 256), 1);
    assert_int_equal(tir_arith_cast(DLC_F32, DLC_BOOL, 1), f32_bits(1.0f));
    assert_int_equal(tir_arith_cast(DLC_I8, DLC_I32, 200), (uint64_t)INT64_C(-56));
    assert_int_equal(tir_arith_cast(DLC_U32, DLC_I8, (uint64_t)INT64_C(-1)), 0xffffffff);
    /* ties of long integers: one past the tie must go up although f64 would first lose it */
    uint64_t tie = (UINT64_C(1) << 62) | (UINT64_C(1) << 54);
    assert_int_equal(tir_arith_cast(DLC_BF16, DLC_I64, tie), tir_bits_from_f64(DLC_BF16, 0x1p62));
    assert_int_equal(tir_arith_cast(DLC_BF16, DLC_I64, tie + 1), tir_bits_from_f64(DLC_BF16, 0x1.02p62));
    assert_int_equal(tir_arith_cast(DLC_BF16, DLC_I64, 0 - (tie + 1)), tir_bits_from_f64(DLC_BF16, -0x1.02p62));
    for (int round = 0; round < 200000; round++) {
        uint64_t value = next() << (next() & 31) ^ next();
        assert_int_equal(tir_arith_cast(DLC_F32, DLC_I64, value), f32_bits((float)(int64_t)value));
        assert_int_equal(tir_arith_cast(DLC_F32, DLC_U64, value), f32_bits((float)value));
    }
    double half = 0x1p-25 + 0x1p-60; /* f64 to f16: just above half the smallest denormal */
    uint64_t bits;
    memcpy(&bits, &half, sizeof bits);
    assert_int_equal(tir_arith_cast(DLC_F16, DLC_F64, bits), 1);
    assert_int_equal(tir_arith(TIR_BITCAST, DLC_I32, DLC_F32, (uint64_t[]){f32_bits(-0.0f)}, 1, true),
                     (uint64_t)(int64_t)INT32_MIN);
    assert_int_equal(tir_arith(TIR_BITCAST, DLC_F32, DLC_I32, (uint64_t[]){(uint64_t)(int64_t)INT32_MIN}, 1, true),
                     0x80000000);
}

static void memory(void **unused) {
    (void)unused;
    static const struct {
        tir_dtype dtype;
        uint64_t bits;
    } rows[] = {{DLC_BOOL, 1},
                {DLC_I8, UINT64_MAX},
                {DLC_U8, 255},
                {DLC_I32, (uint64_t)INT64_C(-5)},
                {DLC_I64, 1u << 31},
                {DLC_F16, 0xfc01},
                {DLC_BF16, 0x8001},
                {DLC_F32, 0x80000001},
                {DLC_F64, UINT64_C(0x8000000000000001)}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        unsigned char bytes[17];
        memset(bytes, 0xaa, sizeof bytes);
        tir_bits_store(rows[row].dtype, bytes + 1, rows[row].bits); /* also unaligned */
        assert_int_equal(tir_bits_load(rows[row].dtype, bytes + 1), rows[row].bits);
        assert_int_equal(bytes[0], 0xaa);
        assert_int_equal(bytes[1 + lib_dtype_size((dlc_dtype)rows[row].dtype)], 0xaa);
    }
    unsigned char two = 2;
    assert_int_equal(tir_bits_load(DLC_BOOL, &two), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_are_applied_at_once),
        cmocka_unit_test(eight_bits),
        cmocka_unit_test(wide_integers),
        cmocka_unit_test(sixteen_bit_floats),
        cmocka_unit_test(fused_rounds_once),
        cmocka_unit_test(f32_is_the_machine),
        cmocka_unit_test(min_max),
        cmocka_unit_test(conversions),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests_name("tir/arith", tests, NULL, NULL);
}
