/* The bits of floats by arithmetic, since ONNX has no operator that shows them before operator set 26: exponent and fraction are found in
 * f64, which holds all numbers of the narrower types, by exact operations. The sign of NaN is not seen. */
#include "graph/onnx/export.h"

#include <math.h>

static onnx_label *number(onnx_export *ex, double value) {
    return onnx_number(ex, DLC_F64, value);
}
static onnx_label *whole(onnx_export *ex, int64_t value) {
    return onnx_whole(ex, DLC_I64, value);
}
static onnx_label *two_to(onnx_export *ex, onnx_label *e) {
    return ONNX_ADD(ex, "Pow", number(ex, 2), e);
}

/* A float format. half: 2^(bits of the fraction); special: the exponent field of infinities and NaN; sign: the sign bit. */
typedef struct format {
    lib_float_info info;
    int64_t half, special, sign;
} format;

static format format_of(dlc_dtype dtype) {
    const lib_float_info info = lib_float_of(dtype);
    return (format){info, INT64_C(1) << (info.digits - 1), info.highest - info.lowest + 2,
                    (int64_t)(UINT64_C(1) << (lib_dtypes[dtype].bits - 1))};
}

/* The exponent of a, at least that of the least normal number: an estimate by the logarithm, corrected by comparisons. */
static onnx_label *exponent_of(onnx_export *ex, const format *f, onnx_label *a) {
    onnx_label *e =
        ONNX_ADD(ex, "Floor", ONNX_ADD(ex, "Div", ONNX_ADD(ex, "Log", a), number(ex, 0.693147180559945309)));
    e = onnx_clamped(ex, e, number(ex, f->info.lowest), number(ex, f->info.highest));
    onnx_label *low = ONNX_ADD(ex, "Less", a, two_to(ex, e));
    e = ONNX_ADD(ex, "Sub", e, onnx_to(ex, low, DLC_F64));
    onnx_label *next = ONNX_ADD(ex, "Add", e, number(ex, 1));
    onnx_label *high = ONNX_ADD(ex, "Less", ONNX_ADD(ex, "Div", a, two_to(ex, next)), number(ex, 1));
    e = ONNX_ADD(ex, "Where", high, e, next);
    return onnx_clamped(ex, e, number(ex, f->info.lowest), number(ex, f->info.highest));
}

/* Is the sign bit set: below 0, or a zero whose reciprocal is? */
static onnx_label *is_negative(onnx_export *ex, onnx_label *x) {
    onnx_label *zero = number(ex, 0), *under = ONNX_ADD(ex, "Less", ONNX_ADD(ex, "Div", number(ex, 1), x), zero);
    return ONNX_ADD(ex, "Or", ONNX_ADD(ex, "Less", x, zero),
                    ONNX_ADD(ex, "And", ONNX_ADD(ex, "Equal", x, zero), under));
}

onnx_label *onnx_bits_of(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x) {
    const format f = format_of(from);
    if (from != DLC_F64) x = onnx_to(ex, x, DLC_F64);
    onnx_label *unordered = ONNX_ADD(ex, "IsNaN", x), *size = ONNX_ADD(ex, "Abs", x);
    onnx_label *infinite = ONNX_ADD(ex, "Equal", size, number(ex, INFINITY));
    onnx_label *special = ONNX_ADD(ex, "Or", unordered, infinite);
    size = ONNX_ADD(ex, "Where", special, number(ex, 1), size);
    onnx_label *e = exponent_of(ex, &f, size), *m = ONNX_ADD(ex, "Div", size, two_to(ex, e));
    onnx_label *normal = onnx_to(ex, ONNX_ADD(ex, "GreaterOrEqual", m, number(ex, 1)), DLC_F64);
    onnx_label *fraction = ONNX_ADD(ex, "Mul", ONNX_ADD(ex, "Sub", m, normal), number(ex, (double)f.half));
    onnx_label *field = ONNX_ADD(ex, "Mul", normal, ONNX_ADD(ex, "Sub", e, number(ex, f.info.lowest - 1)));
    onnx_label *bits = ONNX_ADD(ex, "Add", ONNX_ADD(ex, "Mul", onnx_to(ex, field, DLC_I64), whole(ex, f.half)),
                                onnx_to(ex, fraction, DLC_I64));
    bits = ONNX_ADD(ex, "Where", special, whole(ex, f.special * f.half), bits);
    bits = ONNX_ADD(ex, "Where", unordered, whole(ex, f.special * f.half + f.half / 2), bits);
    bits = ONNX_ADD(ex, "Add", bits, ONNX_ADD(ex, "Where", is_negative(ex, x), whole(ex, f.sign), whole(ex, 0)));
    return to == DLC_I64 ? bits : onnx_to(ex, bits, to);
}

onnx_label *onnx_from_bits(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x) {
    const format f = format_of(to);
    const bool wide = lib_dtypes[to].bits == 64;
    if (from != DLC_I64) x = onnx_to(ex, x, DLC_I64);
    if (!wide) x = ONNX_ADD(ex, "Mod", x, whole(ex, 2 * f.sign));
    onnx_label *negative =
        wide ? ONNX_ADD(ex, "Less", x, whole(ex, 0)) : ONNX_ADD(ex, "GreaterOrEqual", x, whole(ex, f.sign));
    x = ONNX_ADD(ex, "Where", negative, ONNX_ADD(ex, "Sub", x, whole(ex, f.sign)), x);
    onnx_label *field = ONNX_ADD(ex, "Div", x, whole(ex, f.half)), *rest = ONNX_ADD(ex, "Mod", x, whole(ex, f.half));
    onnx_label *normal = ONNX_ADD(ex, "Min", field, whole(ex, 1));
    onnx_label *m = ONNX_ADD(ex, "Add", ONNX_ADD(ex, "Mul", normal, whole(ex, f.half)), rest);
    m = ONNX_ADD(ex, "Div", onnx_to(ex, m, DLC_F64), number(ex, (double)f.half));
    onnx_label *e = ONNX_ADD(ex, "Max", field, whole(ex, 1));
    e = ONNX_ADD(ex, "Add", onnx_to(ex, e, DLC_F64), number(ex, f.info.lowest - 1));
    onnx_label *y = ONNX_ADD(ex, "Mul", m, two_to(ex, e));
    onnx_label *end =
        ONNX_ADD(ex, "Where", ONNX_ADD(ex, "Equal", rest, whole(ex, 0)), number(ex, INFINITY), number(ex, (double)NAN));
    y = ONNX_ADD(ex, "Where", ONNX_ADD(ex, "Equal", field, whole(ex, f.special)), end, y);
    y = ONNX_ADD(ex, "Where", negative, ONNX_ADD(ex, "Neg", y), y);
    return to == DLC_F64 ? y : onnx_to(ex, y, to);
}
