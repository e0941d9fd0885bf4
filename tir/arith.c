/* The meaning of every operator, in portable C without undefined behaviour. Floats of 16 and 8 bits are computed in f64,
 * which has enough digits that rounding to them afterwards is a single rounding for every operator here (the sum of FMA
 * is the exception and is rounded to odd first). The library is compiled with -ffp-contract=off. */
#include "tir/arith.h"

#include <math.h>

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

static char class_of(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].class_ : 'i';
}
static unsigned width_of(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].bits : 64u;
}

/* Low bits of an integer, extended by its dtype. */
static uint64_t extend(tir_dtype dtype, uint64_t bits) {
    unsigned unused = 64u - width_of(dtype);
    if (class_of(dtype) == 'i') return (uint64_t)((int64_t)(bits << unused) >> unused);
    return bits << unused >> unused;
}

static uint64_t low_bits(tir_dtype dtype, uint64_t bits) {
    unsigned unused = 64u - width_of(dtype);
    return bits << unused >> unused;
}

static float f32_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static uint64_t bits_of_f32(float value) {
    uint32_t low;
    memcpy(&low, &value, sizeof low);
    return low;
}

static double f64_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_f64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- conversions */

double tir_bits_to_f64(tir_dtype dtype, uint64_t bits) {
    switch (class_of(dtype)) {
    case 'i': return (double)(int64_t)bits;
    case 'u': return (double)bits;
    case 'b': return bits != 0;
    default: break;
    }
    switch (dtype) {
    case DLC_F16: return (double)lib_f32_from_f16((uint16_t)bits);
    case DLC_BF16: return (double)lib_f32_from_bf16((uint16_t)bits);
    case DLC_F32: return (double)f32_of(bits);
    case DLC_F64: return f64_of(bits);
    default: return lib_dtype_is_f8((dlc_dtype)dtype) ? (double)lib_f32_from_f8((dlc_dtype)dtype, (uint8_t)bits) : NAN;
    }
}

static uint64_t float_to_integer(tir_dtype dtype, double value) {
    if (isnan(value)) return 0;
    unsigned width = width_of(dtype);
    if (class_of(dtype) == 'u') {
        if (value <= 0.0) return 0;
        if (value >= ldexp(1.0, (int)width)) return low_bits(dtype, UINT64_MAX);
        return (uint64_t)value;
    }
    double limit = ldexp(1.0, (int)width - 1);
    uint64_t lowest = UINT64_MAX << (width - 1);
    if (value <= -limit) return lowest;
    if (value >= limit) return ~lowest;
    return (uint64_t)(int64_t)value;
}

uint64_t tir_bits_from_f64(tir_dtype dtype, double value) {
    switch (class_of(dtype)) {
    case 'i':
    case 'u': return float_to_integer(dtype, value);
    case 'b': return value != 0.0;
    default: break;
    }
    switch (dtype) {
    case DLC_F16: return lib_f16_from_f64(value);
    case DLC_BF16: return lib_bf16_from_f64(value);
    case DLC_F32: return bits_of_f32((float)value);
    case DLC_F64: return bits_of_f64(value);
    default: return lib_dtype_is_f8((dlc_dtype)dtype) ? lib_f8_from_f64((dlc_dtype)dtype, value) : 0;
    }
}

/* A double that rounds to any dtype of at most 51 bits as the integer itself would: bits past the 53rd become sticky.
 */
static double sticky_f64(uint64_t magnitude) {
    if (magnitude >> 53) magnitude = (magnitude & ~UINT64_C(0x7ff)) | (uint64_t)((magnitude & 0x7ff) != 0) << 11;
    return (double)magnitude;
}

uint64_t tir_arith_cast(tir_dtype to, tir_dtype from, uint64_t bits) {
    char source = class_of(from), target = class_of(to);
    if (to == from) {
        if (source == 'b') return bits != 0;
        return source == 'i' || source == 'u' ? extend(to, bits) : low_bits(to, bits);
    }
    if (source == 'f') return tir_bits_from_f64(to, tir_bits_to_f64(from, bits));
    if (target == 'b') return bits != 0;
    if (source == 'b') bits = bits != 0;
    if (target == 'i' || target == 'u') return extend(to, bits);
    bool negative = source == 'i' && (int64_t)bits < 0;
    if (to == DLC_F64) return bits_of_f64(negative ? (double)(int64_t)bits : (double)bits);
    double magnitude = sticky_f64(negative ? 0 - bits : bits);
    return tir_bits_from_f64(to, negative ? -magnitude : magnitude);
}

/* ---- memory */

uint64_t tir_bits_load(tir_dtype dtype, const void *element) {
    switch (width_of(dtype)) {
    case 8: {
        uint8_t value;
        memcpy(&value, element, sizeof value);
        return class_of(dtype) == 'b' ? value != 0 : extend(dtype, value);
    }
    case 16: {
        uint16_t value;
        memcpy(&value, element, sizeof value);
        return extend(dtype, value);
    }
    case 32: {
        uint32_t value;
        memcpy(&value, element, sizeof value);
        return extend(dtype, value);
    }
    default: {
        uint64_t value;
        memcpy(&value, element, sizeof value);
        return value;
    }
    }
}

void tir_bits_store(tir_dtype dtype, void *element, uint64_t bits) {
    switch (width_of(dtype)) {
    case 8: {
        uint8_t value = (uint8_t)(class_of(dtype) == 'b' ? bits != 0 : bits);
        memcpy(element, &value, sizeof value);
        break;
    }
    case 16: {
        uint16_t value = (uint16_t)bits;
        memcpy(element, &value, sizeof value);
        break;
    }
    case 32: {
        uint32_t value = (uint32_t)bits;
        memcpy(element, &value, sizeof value);
        break;
    }
    default: memcpy(element, &bits, sizeof bits); break;
    }
}

/* ---- integers */

static int64_t power_of(tir_dtype dtype, int64_t x, int64_t y) {
    if (class_of(dtype) == 'i' && y < 0) {
        if (x == 1) return 1;
        if (x == -1) return (y & 1) ? -1 : 1;
        return 0; /* also 0^-n: x/0 is 0 */
    }
    uint64_t result = 1, base = (uint64_t)x;
    for (uint64_t n = (uint64_t)y; n; n >>= 1, base *= base)
        if (n & 1) result *= base;
    return (int64_t)result;
}

static uint64_t integer_divide(tir_dtype dtype, uint64_t a, uint64_t b) {
    if (b == 0) return 0;
    if (class_of(dtype) == 'u') return a / b;
    int64_t x = (int64_t)a, y = (int64_t)b;
    if (y == -1) return 0 - a;
    int64_t quotient = x / y;
    if (dtype == TIR_INDEX && x % y != 0 && (x < 0) != (y < 0)) quotient--;
    return (uint64_t)quotient;
}

static uint64_t multiply_high(tir_dtype dtype, uint64_t a, uint64_t b) {
    unsigned width = width_of(dtype);
    if (class_of(dtype) == 'i') return (uint64_t)((int128)(int64_t)a * (int64_t)b >> width);
    return (uint64_t)((uint128)a * b >> width);
}

/* Operands are extended; tir_arith extends the result. */
static uint64_t integer_binary(tir_op op, tir_dtype dtype, uint64_t a, uint64_t b) {
    bool is_signed = class_of(dtype) == 'i';
    bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    uint64_t amount = low_bits(dtype, b);
    switch (op) {
    case TIR_ADD: return a + b;
    case TIR_SUB: return a - b;
    case TIR_MUL: return a * b;
    case TIR_DIV: return integer_divide(dtype, a, b);
    case TIR_REM: return b == 0 ? 0 : a - b * integer_divide(dtype, a, b);
    case TIR_MIN: return less ? a : b;
    case TIR_MAX: return less ? b : a;
    case TIR_POW: return (uint64_t)power_of(dtype, (int64_t)a, (int64_t)b);
    case TIR_AND: return a & b;
    case TIR_OR: return a | b;
    case TIR_XOR: return a ^ b;
    case TIR_SHL: return amount >= width_of(dtype) ? 0 : a << amount;
    case TIR_SHR:
        if (amount >= width_of(dtype)) return 0;
        return is_signed ? (uint64_t)((int64_t)a >> amount) : a >> amount;
    case TIR_MULHI: return multiply_high(dtype, a, b);
    case TIR_EQ: return a == b;
    case TIR_NE: return a != b;
    case TIR_LT: return less;
    case TIR_LE: return less || a == b;
    default: return 0;
    }
}

static uint64_t integer_unary(tir_op op, tir_dtype dtype, uint64_t a) {
    switch (op) {
    case TIR_NEG: return 0 - a;
    case TIR_ABS: return class_of(dtype) == 'i' && (int64_t)a < 0 ? 0 - a : a;
    case TIR_NOT: return ~a;
    default: return a; /* rounding of an integer; other operators have no integer form */
    }
}

/* ---- floats */

/* Three-operand sums of 16-bit floats: the product is exact in f64; the sum is rounded to odd, so that rounding it
 * again to at most 51 bits is a single rounding (Boldo and Melquiond, 2008). */
static double sum_to_odd(double a, double b) {
    double sum = a + b;
    if (!isfinite(sum)) return sum;
    double part = sum - a;
    double error = (a - (sum - part)) + (b - part); /* TwoSum: exact */
    uint64_t bits = bits_of_f64(sum);
    if (error == 0.0 || (bits & 1)) return sum;
    bool away = (error > 0.0) == (sum > 0.0);
    return f64_of(away ? bits + 1 : bits - 1);
}

static double float_min_max(double a, double b, bool maximum) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return (signbit(a) != 0) == maximum ? b : a;
    return (a < b) == maximum ? b : a;
}

/* The f64 expressions that tir_math_expand makes for these operators. */
static double logistic(double x) {
    double power = exp(40.0 < x ? 40.0 : x);
    return power / (1.0 + power);
}

static double silu(double x) {
    double y = x < -800.0 ? -800.0 : x, half = exp((80.0 < y ? 80.0 : y) * 0.5);
    return 80.0 < y ? y : y * half / (half * half + 1.0) * half;
}

/* Operators whose f64 result, rounded once more, is correct for f16, bf16 and f32 (exact, or innocuous double rounding:
 * Figueroa 1995); transcendentals of narrower dtypes are defined by their expansion (tir/math.h), this is a stand-in.
 */
static double float_operate(tir_op op, const double *x) {
    switch (op) {
    case TIR_ADD: return x[0] + x[1];
    case TIR_SUB: return x[0] - x[1];
    case TIR_MUL: return x[0] * x[1];
    case TIR_DIV: return x[0] / x[1];
    case TIR_REM: return fmod(x[0], x[1]);
    case TIR_MIN: return float_min_max(x[0], x[1], false);
    case TIR_MAX: return float_min_max(x[0], x[1], true);
    case TIR_POW: return pow(x[0], x[1]);
    case TIR_ATAN2: return atan2(x[0], x[1]);
    case TIR_NEG: return -x[0];
    case TIR_ABS: return fabs(x[0]);
    case TIR_SQRT: return sqrt(x[0]);
    case TIR_FLOOR: return floor(x[0]);
    case TIR_CEIL: return ceil(x[0]);
    case TIR_TRUNC: return trunc(x[0]);
    case TIR_ROUND: return rint(x[0]);
    case TIR_EXP: return exp(x[0]);
    case TIR_EXP2: return exp2(x[0]);
    case TIR_EXP10: return pow(10, x[0]);
    case TIR_EXPM1: return expm1(x[0]);
    case TIR_LOG: return log(x[0]);
    case TIR_LOG1P: return log1p(x[0]);
    case TIR_SIN: return sin(x[0]);
    case TIR_COS: return cos(x[0]);
    case TIR_TAN: return tan(x[0]);
    case TIR_ASIN: return asin(x[0]);
    case TIR_ACOS: return acos(x[0]);
    case TIR_ATAN: return atan(x[0]);
    case TIR_SINH: return sinh(x[0]);
    case TIR_COSH: return cosh(x[0]);
    case TIR_ASINH: return asinh(x[0]);
    case TIR_ACOSH: return acosh(x[0]);
    case TIR_ATANH: return atanh(x[0]);
    case TIR_CBRT: return cbrt(x[0]);
    case TIR_TANH: return tanh(x[0]);
    case TIR_ERF: return erf(x[0]);
    case TIR_LOGISTIC: return logistic(x[0]);
    case TIR_SILU: return silu(x[0]);
    case TIR_ERFC: return erfc(x[0]);
    case TIR_NORMAL_CDF:
    case TIR_NORMAL_TAIL: return 0.5 * erfc(-x[0] * 0.70710678118654752440);
    default: return NAN;
    }
}

static uint64_t float_fused(tir_dtype dtype, const uint64_t *x) {
    if (dtype == DLC_F64) return bits_of_f64(fma(f64_of(x[0]), f64_of(x[1]), f64_of(x[2])));
    if (dtype == DLC_F32) return bits_of_f32(fmaf(f32_of(x[0]), f32_of(x[1]), f32_of(x[2])));
    double product = tir_bits_to_f64(dtype, x[0]) * tir_bits_to_f64(dtype, x[1]);
    return tir_bits_from_f64(dtype, sum_to_odd(product, tir_bits_to_f64(dtype, x[2])));
}

static uint64_t float_compare(tir_op op, double a, double b) {
    switch (op) {
    case TIR_EQ: return a == b;
    case TIR_NE: return a != b;
    case TIR_LT: return a < b;
    default: return a <= b;
    }
}

/* Sign operations keep a NaN's other bits, as machines do; all other operators compute with numbers. */
static uint64_t float_arith(tir_op op, tir_dtype dtype, const uint64_t *operands, int count) {
    if ((op == TIR_NEG || op == TIR_ABS) && lib_float_of((dlc_dtype)dtype).signed_zero) {
        uint64_t sign = UINT64_C(1) << (width_of(dtype) - 1);
        return op == TIR_NEG ? operands[0] ^ sign : operands[0] & ~sign;
    }
    double x[2] = {0, 0};
    for (int i = 0; i < count && i < 2; i++) x[i] = tir_bits_to_f64(dtype, operands[i]);
    return tir_bits_from_f64(dtype, float_operate(op, x));
}

/* x * 2^floor(n): 0 * 2^inf and inf * 2^-inf are NaN. Beyond 2^2000 the result is infinity or zero. */
static uint64_t float_ldexp(tir_dtype dtype, const uint64_t *operands) {
    double x = tir_bits_to_f64(dtype, operands[0]), n = floor(tir_bits_to_f64(dtype, operands[1]));
    if (isnan(x) || isnan(n)) return tir_bits_from_f64(dtype, NAN);
    if (isinf(n)) return tir_bits_from_f64(dtype, n > 0 ? x * INFINITY : isinf(x) ? NAN : copysign(0.0, x));
    int power = (int)fmin(fmax(n, -4000.0), 4000.0);
    return dtype == DLC_F32 ? bits_of_f32(ldexpf((float)x, power)) : tir_bits_from_f64(dtype, ldexp(x, power));
}

/* ---- dot products of matrix units */

static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* Two fused steps, the second product first; denormal inputs and results are flushed to zero. */
static uint64_t dot2_bf16(const uint64_t *x) {
    float sum = flush(f32_of(x[0]));
    for (int i = 1; i >= 0; i--) {
        float a = flush(lib_f32_from_bf16((uint16_t)x[1 + 2 * i]));
        float b = flush(lib_f32_from_bf16((uint16_t)x[2 + 2 * i]));
        sum = flush(fmaf(a, b, sum));
    }
    return bits_of_f32(sum);
}

static uint64_t dot_of_integers(const uint64_t *x, int count) {
    uint64_t sum = x[0];
    for (int i = 1; i < count; i += 2) sum += x[i] * x[i + 1];
    return sum;
}

/* ---- all operators */

uint64_t tir_arith(tir_op op, tir_dtype result, tir_dtype operand_dtype, const uint64_t *operands, int count,
                   bool has_fma) {
    char class_ = class_of(operand_dtype);
    switch (op) {
    case TIR_SELECT: return operands[0] ? operands[1] : operands[2];
    case TIR_PICK: return operands[operands[0] < (uint64_t)count - 1 ? 1 + operands[0] : (uint64_t)count - 1];
    case TIR_CAST: return tir_arith_cast(result, operand_dtype, operands[0]);
    case TIR_BITCAST: return tir_arith_cast(result, result, operands[0]);
    case TIR_DOT2_BF16: return dot2_bf16(operands);
    case TIR_DOT2_I16:
    case TIR_DOT4_U8I8: return extend(result, dot_of_integers(operands, count));
    case TIR_LDEXP: return float_ldexp(operand_dtype, operands);
    case TIR_FMA:
    case TIR_MULADD: {
        if (class_ == 'f' && (has_fma || op == TIR_FMA)) return float_fused(operand_dtype, operands);
        uint64_t product = tir_arith(TIR_MUL, result, operand_dtype, operands, 2, has_fma);
        return tir_arith(TIR_ADD, result, operand_dtype, (uint64_t[]){product, operands[2]}, 2, has_fma);
    }
    default: break;
    }
    bool compares = (tir_ops[op].flags & TIR_COMPARES) != 0;
    if (class_ == 'f') {
        if (!compares) return float_arith(op, operand_dtype, operands, count);
        return float_compare(op, tir_bits_to_f64(operand_dtype, operands[0]),
                             tir_bits_to_f64(operand_dtype, operands[1]));
    }
    if (class_ == 'c') return 0;
    uint64_t bits = count == 1 ? integer_unary(op, operand_dtype, operands[0])
                               : integer_binary(op, operand_dtype, operands[0], operands[1]);
    if (compares) return bits;
    return class_ == 'b' ? bits & 1 : extend(result, bits);
}
