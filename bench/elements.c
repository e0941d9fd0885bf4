/* Element types: those that a line asks for, and single elements as numbers. Linked into the peers' plug-ins too. */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    bench_types types;
} table[] = {
    {"f32", {DLC_F32, DLC_F32, DLC_F32, DLC_F32}}, {"f64", {DLC_F64, DLC_F64, DLC_F64, DLC_F64}},
    {"f16", {DLC_F16, DLC_F16, DLC_F32, DLC_F16}}, {"bf16", {DLC_BF16, DLC_BF16, DLC_F32, DLC_BF16}},
    {"u8", {DLC_U8, DLC_I8, DLC_I32, DLC_I32}},    {"i64", {DLC_I64, DLC_I64, DLC_I64, DLC_I64}},
    {"i32", {DLC_I32, DLC_I32, DLC_I32, DLC_I32}},
};

bool bench_types_of(bench_types *types, const bench_shape *shape) {
    static const char *const names[] = {
#define X(code, text, bits, dlpack, class_, usable) [code] = text,
        DLC_DTYPE_TABLE(X)
#undef X
    };
    const char *name = bench_text(shape, "dtype"), *out = bench_text(shape, "out");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name ? name : "f32") != 0) continue;
        *types = table[i].types;
        for (int code = 0; out && code < DLC_DTYPE_COUNT; code++)
            if (strcmp(names[code], out) == 0) return types->out = (dlc_dtype)code, true;
        return !out;
    }
    return false;
}

size_t bench_bytes_of(dlc_dtype dtype, int64_t elements) {
    static const int bits[] = {
#define X(code, text, bits, dlpack, class_, usable) [code] = bits,
        DLC_DTYPE_TABLE(X)
#undef X
    };
    return ((size_t)bits[dtype] * (size_t)elements + 7) / 8;
}

size_t bench_dtype_bytes(dlc_dtype dtype) {
    return bench_bytes_of(dtype, 1);
}

typedef union word {
    uint32_t bits;
    float value;
} word;

/* The element at an even index is the lower half of its byte. */
static int nibble_of(uint8_t byte, size_t index) {
    int value = byte >> (index % 2 * 4) & 15;
    return value < 8 ? value : value - 16;
}

static uint8_t with_nibble(uint8_t byte, size_t index, double value) {
    unsigned shift = index % 2 * 4, bits = (unsigned)(int)floor(value) & 15;
    return (uint8_t)((byte & ~(15u << shift)) | bits << shift);
}

/* Rounds towards zero; magnitudes below the normal numbers become zero, those above do not occur. */
static uint16_t half_of(float value) {
    word w = {.value = value};
    int32_t exponent = (int32_t)(w.bits >> 23 & 255) - 127 + 15;
    uint32_t sign = w.bits >> 16 & 0x8000;
    return (uint16_t)(exponent <= 0 ? sign : sign | (uint32_t)exponent << 10 | (w.bits >> 13 & 0x3ff));
}

static double of_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    double magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                      : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double bench_element(const bench_operand *o, size_t index) {
    word wide;
    switch (o->dtype) {
    case DLC_F64: return ((const double *)o->data)[index];
    case DLC_F32: return ((const float *)o->data)[index];
    case DLC_F16: return of_half(((const uint16_t *)o->data)[index]);
    case DLC_BF16: wide.bits = (uint32_t)((const uint16_t *)o->data)[index] << 16; return wide.value;
    case DLC_I64: return (double)((const int64_t *)o->data)[index];
    case DLC_I32: return ((const int32_t *)o->data)[index];
    case DLC_I8: return ((const int8_t *)o->data)[index];
    case DLC_I4: return nibble_of(((const uint8_t *)o->data)[index / 2], index);
    default: return ((const uint8_t *)o->data)[index];
    }
}

void bench_set_element(bench_operand *o, size_t index, double value) {
    word wide = {.value = (float)value};
    uint8_t *bytes = o->data;
    switch (o->dtype) {
    case DLC_F64: ((double *)o->data)[index] = value; break;
    case DLC_F32: ((float *)o->data)[index] = (float)value; break;
    case DLC_F16: ((uint16_t *)o->data)[index] = half_of((float)value); break;
    case DLC_BF16: ((uint16_t *)o->data)[index] = (uint16_t)(wide.bits >> 16); break;
    case DLC_I64: ((int64_t *)o->data)[index] = (int64_t)floor(value); break;
    case DLC_I32: ((int32_t *)o->data)[index] = (int32_t)floor(value); break;
    case DLC_I8: ((int8_t *)o->data)[index] = (int8_t)floor(value); break;
    case DLC_I4: bytes[index / 2] = with_nibble(bytes[index / 2], index, value); break;
    case DLC_BOOL:
    case DLC_U8: bytes[index] = (uint8_t)floor(value); break;
    default: break;
    }
}
