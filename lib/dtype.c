/* Element types: the table, DLPack codes, conversions of the floats of 16, 8 and 4 bits, and single elements as numbers. These
 * conversions are integer arithmetic on the formats, so they do not depend on the floating-point state of the thread.
 */
#include "lib/lib.h"

#include <math.h>

const lib_dtype_info lib_dtypes[DLC_DTYPE_COUNT] = {
#define X(code, text, bits, dlpack, class_, usable) {text, bits, (bits + 7) / 8, dlpack, class_, usable},
    DLC_DTYPE_TABLE(X)
#undef X
};

lib_nearest lib_dtype_nearest(const char *name) {
    static const char *const others[][2] = {{"half", "f16"},
                                            {"float16", "f16"},
                                            {"bfloat16", "bf16"},
                                            {"float", "f32"},
                                            {"float32", "f32"},
                                            {"double", "f64"},
                                            {"float64", "f64"},
                                            {"int", "i32"},
                                            {"long", "i64"},
                                            {"int2", "i2"},
                                            {"int4", "i4"},
                                            {"int8", "i8"},
                                            {"int16", "i16"},
                                            {"int32", "i32"},
                                            {"int64", "i64"},
                                            {"uint2", "u2"},
                                            {"uint4", "u4"},
                                            {"uint8", "u8"},
                                            {"byte", "u8"},
                                            {"uint16", "u16"},
                                            {"uint32", "u32"},
                                            {"uint64", "u64"},
                                            {"boolean", "bool"},
                                            {"complex64", "c64"},
                                            {"float8_e4m3fn", "f8e4m3fn"},
                                            {"float8_e5m2", "f8e5m2"},
                                            {"float8_e8m0fnu", "f8e8m0"},
                                            {"float4_e2m1fn", "f4e2m1"}};
    lib_nearest nearest = lib_nearest_to(name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0) {
            nearest.edits = 0;
            memcpy(nearest.word, others[i][1], strlen(others[i][1]) + 1);
        }
    for (int i = 0; i < DLC_DTYPE_COUNT; i++) lib_nearest_try(&nearest, lib_dtypes[i].name, strlen(lib_dtypes[i].name));
    return nearest;
}

bool lib_dtype_parse(const char *name, dlc_dtype *out) {
    for (int i = 0; i < DLC_DTYPE_COUNT; i++) {
        if (strcmp(name, lib_dtypes[i].name) != 0) continue;
        *out = (dlc_dtype)i;
        return true;
    }
    return false;
}

bool lib_dtype_from_dlpack(DLDataType from, dlc_dtype *out) {
    for (int i = 0; i < DLC_DTYPE_COUNT; i++) {
        if (from.lanes != 1 || from.code != lib_dtypes[i].dlpack_code || from.bits != lib_dtypes[i].bits) continue;
        *out = (dlc_dtype)i;
        return true;
    }
    return false;
}

DLDataType lib_dtype_to_dlpack(dlc_dtype dtype) {
    return (DLDataType){lib_dtypes[dtype].dlpack_code, lib_dtypes[dtype].bits, 1};
}

/* ---- float formats ------------------------------------------------------------------------------ */

/* Codes beyond the greatest number: infinity and NaNs (IEEE); one NaN (NAN); none, and the code of -0 is NaN (NONE); none, and the format
 * has no NaN (NUMBERS). */
typedef enum float_end { END_IEEE, END_NAN, END_NONE, END_NUMBERS } float_end;

typedef struct float_format {
    /* stored bits; one more for the sign */
    int exponent, mantissa, bias;
    float_end end;
} float_format;

static const float_format format_f16 = {5, 10, 15, END_IEEE}, format_bf16 = {8, 7, 127, END_IEEE},
                          format_f32 = {8, 23, 127, END_IEEE}, format_f64 = {11, 52, 1023, END_IEEE};

static float_format format_of(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F16: return format_f16;
    case DLC_BF16: return format_bf16;
    case DLC_F32: return format_f32;
    case DLC_F8E4M3FN: return (float_format){4, 3, 7, END_NAN};
    case DLC_F8E4M3FNUZ: return (float_format){4, 3, 8, END_NONE};
    case DLC_F8E5M2: return (float_format){5, 2, 15, END_IEEE};
    case DLC_F8E5M2FNUZ: return (float_format){5, 2, 16, END_NONE};
    case DLC_F4E2M1: return (float_format){2, 1, 1, END_NUMBERS};
    default: return format_f64;
    }
}

static uint64_t infinity_bits(float_format format) {
    return (((uint64_t)1 << format.exponent) - 1) << format.mantissa;
}

static uint64_t sign_bit(float_format format) {
    return (uint64_t)1 << (format.exponent + format.mantissa);
}

static uint64_t greatest_bits(float_format format) {
    return format.end == END_IEEE ? infinity_bits(format) - 1 : sign_bit(format) - (format.end == END_NAN ? 2 : 1);
}

/* Infinity, or NaN if the format has none, or the greatest number if it has neither. */
static uint64_t beyond(float_format format, uint64_t sign) {
    if (format.end == END_NUMBERS) return sign | greatest_bits(format);
    return format.end == END_NONE ? sign_bit(format) : sign | (greatest_bits(format) + 1);
}

/* value / 2^shift, rounded to nearest even. */
static uint64_t shift_rounded(uint64_t value, int shift) {
    uint64_t rounded = value >> shift;
    uint64_t rest = value & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    return rest > half || (rest == half && (rounded & 1)) ? rounded + 1 : rounded;
}

/* Converts bits of a wider format, which has infinities, to a narrower one: one rounding, to nearest even. */
static uint64_t narrow(uint64_t bits, float_format from, float_format to) {
    uint64_t sign = (bits >> (from.exponent + from.mantissa)) << (to.exponent + to.mantissa);
    uint64_t magnitude = bits & (sign_bit(from) - 1);
    if (magnitude > infinity_bits(from)) { /* NaN: the top of the payload, made quiet */
        uint64_t payload = (magnitude - infinity_bits(from)) >> (from.mantissa - to.mantissa);
        if (to.end != END_IEEE) return to.end == END_NUMBERS ? 0 : beyond(to, sign);
        return sign | infinity_bits(to) | payload | (uint64_t)1 << (to.mantissa - 1);
    }
    if (magnitude == infinity_bits(from)) return beyond(to, sign);
    /* value = significand * 2^(exponent - from.mantissa). A subnormal source is not normalised: it is far below half of
     * the narrow format's least value when the exponent range shrinks, and has the same exponent when it does not. */
    int stored = (int)(magnitude >> from.mantissa);
    uint64_t significand = magnitude & (((uint64_t)1 << from.mantissa) - 1);
    if (stored) significand |= (uint64_t)1 << from.mantissa;
    int exponent = (stored ? stored : 1) - from.bias + to.bias; /* as stored in the narrow format, if normal */
    int shift = from.mantissa - to.mantissa;
    if (exponent < 1) {
        shift += 1 - exponent;
        exponent = 1;
    }
    if (exponent >= 1 << to.exponent) return beyond(to, sign);
    if (shift > from.mantissa + 1) return to.end == END_NONE ? 0 : sign;
    uint64_t rounded = shift_rounded(significand, shift);
    /* The implicit bit of `rounded` adds one to the exponent field; so does a carry; without the bit the result is subnormal.
     */
    rounded += (uint64_t)(exponent - 1) << to.mantissa;
    if (rounded > greatest_bits(to)) return beyond(to, sign);
    return rounded || to.end != END_NONE ? sign | rounded : 0;
}

/* Converts bits of a narrower format to a wider one: exact. */
static uint64_t widen(uint64_t bits, float_format from, float_format to) {
    uint64_t sign = (bits >> (from.exponent + from.mantissa)) << (to.exponent + to.mantissa);
    uint64_t magnitude = bits & (sign_bit(from) - 1);
    int shift = to.mantissa - from.mantissa;
    bool nan = from.end == END_NONE ? bits == sign_bit(from) : from.end == END_NAN && magnitude > greatest_bits(from);
    if (nan) return sign | infinity_bits(to) | (uint64_t)1 << (to.mantissa - 1);
    if (magnitude == 0) return sign;
    if (from.end == END_IEEE && magnitude > infinity_bits(from))
        return sign | infinity_bits(to) | (magnitude - infinity_bits(from)) << shift | (uint64_t)1 << (to.mantissa - 1);
    if (from.end == END_IEEE && magnitude == infinity_bits(from)) return sign | infinity_bits(to);
    int exponent = (int)(magnitude >> from.mantissa);
    uint64_t mantissa = magnitude & (((uint64_t)1 << from.mantissa) - 1);
    if (exponent == 0) { /* subnormal: normal in the wider format */
        for (exponent = 1; !(mantissa >> from.mantissa); exponent--) mantissa <<= 1;
        mantissa &= ((uint64_t)1 << from.mantissa) - 1;
    }
    return sign | (uint64_t)(exponent - from.bias + to.bias) << to.mantissa | mantissa << shift;
}

static uint32_t bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t bits_of_f64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t lib_f16_from_f64(double value) {
    return (uint16_t)narrow(bits_of_f64(value), format_f64, format_f16);
}
uint16_t lib_f16_from_f32(float value) {
    return (uint16_t)narrow(bits_of_f32(value), format_f32, format_f16);
}
float lib_f32_from_f16(uint16_t bits) {
    return f32_of_bits((uint32_t)widen(bits, format_f16, format_f32));
}
uint16_t lib_bf16_from_f32(float value) {
    return (uint16_t)narrow(bits_of_f32(value), format_f32, format_bf16);
}
uint16_t lib_bf16_from_f64(double value) {
    return (uint16_t)narrow(bits_of_f64(value), format_f64, format_bf16);
}
float lib_f32_from_bf16(uint16_t bits) {
    return f32_of_bits((uint32_t)bits << 16);
}

/* f8e8m0: the exponent of f32, whose code 0 is 2^-127 and whose last code is NaN. */
enum { POWER_NAN = 255, POWER_BIAS = 127 };

static uint8_t power_from_f64(double value) {
    int exponent = 0;
    if (!(value > 0) || isinf(value)) return POWER_NAN;
    const double significand = frexp(value, &exponent); /* in 0.5..1 */
    const int code = exponent - (significand < 0.75) + POWER_BIAS;
    return code < 0 || code >= POWER_NAN ? POWER_NAN : (uint8_t)code;
}

static float f32_of_power(uint8_t code) {
    const uint32_t least = UINT32_C(1) << 22, nan = UINT32_C(0x7fc00000); /* 2^-127 is subnormal */
    return f32_of_bits(code == POWER_NAN ? nan : code == 0 ? least : (uint32_t)code << 23);
}

uint8_t lib_f8_from_f64(dlc_dtype dtype, double value) {
    if (dtype == DLC_F8E8M0) return power_from_f64(value);
    return (uint8_t)narrow(bits_of_f64(value), format_f64, format_of(dtype));
}
float lib_f32_from_f8(dlc_dtype dtype, uint8_t bits) {
    if (dtype == DLC_F8E8M0) return f32_of_power(bits);
    return f32_of_bits((uint32_t)widen(bits, format_of(dtype), format_f32));
}

lib_float_info lib_float_of(dlc_dtype dtype) {
    if (dtype == DLC_F8E8M0)
        return (lib_float_info){.digits = 1, .lowest = -POWER_BIAS, .highest = POWER_BIAS, .greatest = 0x1p127};
    const float_format format = format_of(dtype);
    const uint64_t greatest = greatest_bits(format);
    const int highest = (int)(greatest >> format.mantissa) - format.bias;
    const uint64_t significand = (greatest & (((uint64_t)1 << format.mantissa) - 1)) | (uint64_t)1 << format.mantissa;
    return (lib_float_info){.digits = format.mantissa + 1,
                            .lowest = 1 - format.bias,
                            .highest = highest,
                            .greatest = ldexp((double)significand, highest - format.mantissa),
                            .infinite = format.end == END_IEEE,
                            .signed_zero = format.end != END_NONE};
}

/* ---- elements ----------------------------------------------------------------------------------- */

#define READ(type) \
    type value;    \
    memcpy(&value, element, sizeof value)
#define WRITE(type, expression)                    \
    do {                                           \
        type written = (type)(expression);         \
        memcpy(element, &written, sizeof written); \
    } while (0)

/* Truncates towards zero into [low, high]; NaN gives 0. The bounds as doubles may round up to 2^63, hence >=. */
static int64_t saturate(double value, int64_t low, int64_t high) {
    if (isnan(value)) return 0;
    if (value <= (double)low) return low;
    if (value >= (double)high) return high;
    return (int64_t)value;
}

static uint64_t saturate_u64(double value) {
    if (!(value > 0)) return 0;
    return value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

/* All integer types: sign- or zero-extended to 64 bits. */
static uint64_t read_integer(dlc_dtype dtype, const void *element) {
    if (lib_dtype_is_packed(dtype)) { /* by itself: in the low bits of a byte */
        READ(uint8_t);
        const int above = 64 - lib_dtypes[dtype].bits;
        const uint64_t high = (uint64_t)value << above;
        return lib_dtypes[dtype].class_ == 'i' ? (uint64_t)((int64_t)high >> above) : high >> above;
    }
    switch (lib_dtypes[dtype].bytes * (lib_dtypes[dtype].class_ == 'i' ? -1 : 1)) {
    case -1: {
        READ(int8_t);
        return (uint64_t)value;
    }
    case -2: {
        READ(int16_t);
        return (uint64_t)value;
    }
    case -4: {
        READ(int32_t);
        return (uint64_t)value;
    }
    case 1: {
        READ(uint8_t);
        return value;
    }
    case 2: {
        READ(uint16_t);
        return value;
    }
    case 4: {
        READ(uint32_t);
        return value;
    }
    default: {
        READ(uint64_t);
        return value;
    }
    }
}

static void write_integer(dlc_dtype dtype, void *element, uint64_t bits) {
    if (lib_dtype_is_packed(dtype)) bits &= (1u << lib_dtypes[dtype].bits) - 1;
    switch (lib_dtypes[dtype].bytes) {
    case 1: WRITE(uint8_t, bits); return;
    case 2: WRITE(uint16_t, bits); return;
    case 4: WRITE(uint32_t, bits); return;
    default: WRITE(uint64_t, bits); return;
    }
}

/* Float types that have no arithmetic here (reserved ones) read as 0 and are not written. */
static double read_float(dlc_dtype dtype, const void *element) {
    switch (dtype) {
    case DLC_F16: {
        READ(uint16_t);
        return (double)lib_f32_from_f16(value);
    }
    case DLC_BF16: {
        READ(uint16_t);
        return (double)lib_f32_from_bf16(value);
    }
    case DLC_F32: {
        READ(float);
        return (double)value;
    }
    case DLC_F64: {
        READ(double);
        return value;
    }
    case DLC_C64: { /* the real part */ READ(float); return (double)value;
    }
    default: {
        READ(uint8_t);
        if (lib_dtype_is_packed(dtype)) value &= (uint8_t)((1u << lib_dtypes[dtype].bits) - 1);
        return lib_dtype_is_float(dtype) ? (double)lib_f32_from_f8(dtype, value) : 0;
    }
    }
}

static void write_float(dlc_dtype dtype, void *element, double value) {
    switch (dtype) {
    case DLC_F16: WRITE(uint16_t, lib_f16_from_f64(value)); return;
    case DLC_BF16: WRITE(uint16_t, lib_bf16_from_f64(value)); return;
    case DLC_F32: WRITE(float, value); return;
    case DLC_F64: WRITE(double, value); return;
    case DLC_C64: {
        const float parts[2] = {(float)value, 0};
        memcpy(element, parts, sizeof parts);
        return;
    }
    default:
        if (lib_dtype_is_float(dtype)) WRITE(uint8_t, lib_f8_from_f64(dtype, value));
        return;
    }
}

double lib_element_get_f64(dlc_dtype dtype, const void *element) {
    switch (lib_dtypes[dtype].class_) {
    case 'b': return read_integer(dtype, element) != 0;
    case 'i': return (double)(int64_t)read_integer(dtype, element);
    case 'u': return (double)read_integer(dtype, element);
    default: return read_float(dtype, element);
    }
}

int64_t lib_element_get_i64(dlc_dtype dtype, const void *element) {
    switch (lib_dtypes[dtype].class_) {
    case 'b': return read_integer(dtype, element) != 0;
    case 'i':
    case 'u': return (int64_t)read_integer(dtype, element);
    default: return saturate(read_float(dtype, element), INT64_MIN, INT64_MAX);
    }
}

void lib_element_set_f64(dlc_dtype dtype, void *element, double value) {
    int bits = lib_dtypes[dtype].bits;
    switch (lib_dtypes[dtype].class_) {
    case 'b': write_integer(dtype, element, value != 0); return;
    case 'i':
        write_integer(dtype, element, (uint64_t)saturate(value, INT64_MIN >> (64 - bits), INT64_MAX >> (64 - bits)));
        return;
    case 'u':
        if (bits == 64)
            write_integer(dtype, element, saturate_u64(value));
        else
            write_integer(dtype, element, (uint64_t)saturate(value, 0, ((int64_t)1 << bits) - 1));
        return;
    default: write_float(dtype, element, value); return;
    }
}

void lib_element_set_i64(dlc_dtype dtype, void *element, int64_t value) {
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    switch (lib_dtypes[dtype].class_) {
    case 'b': write_integer(dtype, element, value != 0); return;
    case 'i':
    case 'u': write_integer(dtype, element, (uint64_t)value); return;
    default: break;
    }
    if (dtype == DLC_F64 || magnitude >> 53 == 0) {
        write_float(dtype, element, (double)value);
        return;
    }
    /* Beyond 2^53 a double would round first and the narrow type again. Rounding to odd at 53 bits (keeping "something
     * was cut" in the last bit) makes the second rounding right: Boldo and Melquiond, "Emulation of FMA and correctly
     * rounded sums: proved algorithms using rounding to odd", 2008. */
    double odd = (double)(magnitude >> 11 | ((magnitude & 0x7ff) != 0)) * 0x1p11;
    write_float(dtype, element, value < 0 ? -odd : odd);
}
