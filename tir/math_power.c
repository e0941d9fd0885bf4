/* Powers and logarithms to base 2 and 10, hypot, ldexp, sinc (tir/math_special.h). */
#include "tir/math_parts.h"
#include "tir/math_special.h"

#include "tir/arith.h"

#include <math.h>

#define LN2_HIGH 0.69314718055994530942
#define LN2_LOW 2.3190468138462996e-17 /* ln 2 - LN2_HIGH */
#define LN10_HIGH 2.30258509299404568402
#define LN10_LOW -2.1707562233822495e-16
#define LOG10_2_LOW -8.53234431705710653e-14 /* log10(2) - 0x1.34413509f8p-2 */
#define LOG2_OF_10 3.32192809488736234787

static expr like(tir_pool *p, expr x, double value) {
    return tir_float(p, tir_dtype_of(p, x), value);
}

/* ---- 2^x, 10^x */

/* 2^n base^r with n = round(x log2(base)), r = x - n log_base(2): exact to base 2, to base 10 in two parts, the first of 11 bits. */
static expr power_f32(tir_pool *p, int base, expr x) {
    static const double two[] = {
        1.0, 0.6931472057, 0.2402264689, 0.05550328774, 0.009618488987, 0.001339993259, 0.0001534583403};
    static const double ten[] = {1.0, 2.302585177, 2.650948635, 2.034648499, 1.171298973, 0.5420679772, 0.2062205129};
    expr magic = like(p, x, 12582912.0), n, r;
    if (base == 2) {
        x = tir_math_at_least(p, tir_math_at_most(p, x, 129), -200);
        n = tir_sub(p, tir_add(p, x, magic), magic);
        r = tir_sub(p, x, n);
        return tir_binary(p, TIR_LDEXP, tir_math_polynomial(p, r, two, COUNT(two)), n);
    }
    x = tir_math_at_least(p, tir_math_at_most(p, x, 39), -60);
    n = tir_sub(p, tir_muladd(p, x, like(p, x, LOG2_OF_10), magic), magic);
    r = tir_muladd(p, n, like(p, x, -0.301025390625), x);
    r = tir_muladd(p, n, like(p, x, -4.605038981195214e-06), r);
    return tir_binary(p, TIR_LDEXP, tir_math_polynomial(p, r, ten, COUNT(ten)), n);
}

/* factor 2^n, n within -2000..2000, the last product rounded once. */
static expr scaled(tir_pool *p, expr factor, expr n) {
    expr most = tir_math_at_least(p, tir_math_at_most(p, n, 1000), -1000);
    factor = tir_mul(p, factor, tir_math_power_of_two(p, most));
    return tir_mul(
        p, factor,
        tir_math_power_of_two(p, tir_math_at_least(p, tir_math_at_most(p, tir_sub(p, n, most), 1000), -1000)));
}

static expr power_f64(tir_pool *p, int base, expr x) {
    const double high = base == 2 ? LN2_HIGH : LN10_HIGH, low = base == 2 ? LN2_LOW : LN10_LOW;
    expr n, r, rest = like(p, x, 0);
    if (base == 2) {
        x = tir_math_at_least(p, tir_math_at_most(p, x, 1025), -1100);
        n = tir_math_nearest(p, x);
        r = tir_sub(p, x, n);
    } else { /* log10(2) in two parts, the first of 40 bits */
        x = tir_math_at_least(p, tir_math_at_most(p, x, 309), -330);
        n = tir_math_nearest(p, tir_mul(p, x, like(p, x, LOG2_OF_10)));
        r = tir_sub(p, x, tir_mul(p, n, like(p, x, 0x1.34413509f8p-2)));
        rest = tir_mul(p, n, like(p, x, LOG10_2_LOW));
    }
    tir_pair exponent = tir_pair_product(p, r, like(p, x, high));
    expr small = tir_sub(p, tir_mul(p, r, like(p, x, low)), tir_mul(p, rest, like(p, x, high)));
    exponent = tir_pair_ordered_sum(p, exponent.high, tir_add(p, exponent.low, small));
    tir_pair m = tir_math_expm1_reduced(p, exponent);
    return scaled(p, tir_add(p, like(p, x, 1), tir_add(p, m.high, m.low)), n);
}

tir_expr tir_math_power_of(tir_pool *p, int base, expr x) {
    return tir_dtype_of(p, x) == DLC_F64 ? power_f64(p, base, x) : power_f32(p, base, x);
}

/* ---- logarithms */

/* x = m 2^e, m of [2/3, 4/3): e plus log2(m), so that powers of two are exact. */
static expr log_f64(tir_pool *p, int base, expr x) {
    const uint64_t two_thirds = UINT64_C(0x3fe5555555555555);
    expr small = tir_lt(p, x, like(p, x, 0x1p-1022));
    expr normal = tir_select(p, small, tir_mul(p, x, like(p, x, 0x1p54)), x);
    expr offset = tir_sub(p, tir_bitcast(p, DLC_I64, normal), tir_int(p, DLC_I64, (int64_t)two_thirds));
    expr exponent = tir_binary(p, TIR_SHR, offset, tir_int(p, DLC_I64, 52));
    expr mantissa = tir_and(p, offset, tir_int(p, DLC_I64, (INT64_C(1) << 52) - 1));
    mantissa = tir_bitcast(p, DLC_F64, tir_add(p, mantissa, tir_int(p, DLC_I64, (int64_t)two_thirds)));
    expr e = tir_add(p, tir_cast(p, DLC_F64, exponent), tir_select(p, small, like(p, x, -54), like(p, x, 0)));
    expr ln = tir_unary(p, TIR_LOG, mantissa);
    if (base == 2) return tir_muladd(p, ln, like(p, x, 1.44269504088896340736), e);
    expr low = tir_muladd(p, ln, like(p, x, 0.43429448190325182765), tir_mul(p, e, like(p, x, LOG10_2_LOW)));
    return tir_muladd(p, e, like(p, x, 0x1.34413509f8p-2), low);
}

tir_expr tir_math_log_of(tir_pool *p, int base, expr x) {
    const tir_dtype dtype = tir_dtype_of(p, x);
    expr y;
    if (dtype == DLC_F64) {
        y = log_f64(p, base, x);
    } else {
        y = tir_math_log2(p, x);
        if (base == 10) y = tir_mul(p, y, tir_float(p, DLC_F64, 0.30102999566398119521));
        y = tir_cast(p, dtype, y);
    }
    expr zero = like(p, x, 0), edge = tir_select(p, tir_eq(p, x, zero), like(p, x, -INFINITY), like(p, x, NAN));
    y = tir_select(p, tir_lt(p, x, like(p, x, INFINITY)), y, x); /* infinity, NaN */
    return tir_select(p, tir_le(p, x, zero), edge, y);
}

/* ---- hypot */

/* f32: in f64. f64: the operands times a power of two that brings the larger one near 1, the squares in two parts, and a step of Newton's
 * method for the root of their sum. */
static expr hypot_f64(tir_pool *p, expr large, expr small) {
    expr two = like(p, large, 2),
         exponent = tir_and(p, tir_bitcast(p, DLC_U64, large), tir_bits(p, DLC_U64, UINT64_C(0x7ff) << 52));
    /* 2^(1023 - e) and its inverse; at both ends of the range with e off by one */
    expr least = tir_bits(p, DLC_U64, UINT64_C(2) << 52), most = tir_bits(p, DLC_U64, UINT64_C(0x7fd) << 52);
    exponent = tir_select(p, tir_lt(p, exponent, least), least, exponent);
    exponent = tir_select(p, tir_lt(p, most, exponent), most, exponent);
    expr back = tir_bitcast(p, DLC_F64, exponent);
    expr scale = tir_bitcast(p, DLC_F64, tir_sub(p, tir_bits(p, DLC_U64, UINT64_C(0x7fe) << 52), exponent));
    expr a = tir_mul(p, large, scale), b = tir_mul(p, small, scale);
    tir_pair aa = tir_pair_product(p, a, a), bb = tir_pair_product(p, b, b),
             sum = tir_pair_ordered_sum(p, aa.high, bb.high);
    expr low = tir_add(p, sum.low, tir_add(p, aa.low, bb.low));
    expr root = tir_unary(p, TIR_SQRT, tir_add(p, sum.high, low));
    tir_pair square = tir_pair_product(p, root, root);
    expr rest = tir_add(p, tir_sub(p, tir_sub(p, sum.high, square.high), square.low), low);
    root = tir_add(p, root, tir_div(p, rest, tir_mul(p, root, two)));
    root = tir_mul(p, root, back);
    return tir_select(p, tir_eq(p, large, like(p, large, 0)), large, root);
}

tir_expr tir_math_hypot(tir_pool *p, expr a, expr b) {
    const tir_dtype dtype = tir_dtype_of(p, a);
    expr infinite = like(p, a, INFINITY), y;
    a = tir_unary(p, TIR_ABS, a);
    b = tir_unary(p, TIR_ABS, b);
    if (dtype == DLC_F64) {
        y = hypot_f64(p, tir_max(p, a, b), tir_min(p, a, b));
    } else {
        expr wa = tir_cast(p, DLC_F64, a), wb = tir_cast(p, DLC_F64, b);
        y = tir_cast(p, dtype, tir_unary(p, TIR_SQRT, tir_muladd(p, wa, wa, tir_mul(p, wb, wb))));
    }
    expr any = tir_or(p, tir_eq(p, a, infinite), tir_eq(p, b, infinite)); /* also if the other is NaN */
    return tir_select(p, any, infinite, y);
}

/* ---- ldexp */

/* For f32, every product with 2^n is exact in f64. For f64 itself three products: those before the last one are exact, or the result is 0,
 * because each but the last leaves 53 bits of room above the denormal numbers (musl's scalbn). */
tir_expr tir_math_ldexp(tir_pool *p, expr x, expr n) {
    const tir_dtype dtype = tir_dtype_of(p, x), integer = tir_dtype_of(p, n);
    enum { FAR = 2200 };
    expr power = n;
    if (lib_dtypes[integer].bits > 8) {
        power = tir_min(p, power, tir_int(p, integer, FAR));
        if (lib_dtypes[integer].class_ == 'i') power = tir_max(p, power, tir_int(p, integer, -FAR));
    }
    expr f = tir_cast(p, DLC_F64, power), wide = tir_cast(p, DLC_F64, x);
    if (dtype != DLC_F64) {
        f = tir_math_at_least(p, tir_math_at_most(p, f, 300), -300);
        return tir_cast(p, dtype, tir_mul(p, wide, tir_math_power_of_two(p, f)));
    }
    for (int step = 0; step < 2; step++) {
        expr down = tir_lt(p, f, like(p, x, -1022)), up = tir_lt(p, like(p, x, 1023), f), zero = like(p, x, 0);
        expr part = tir_select(p, down, like(p, x, -969), tir_select(p, up, like(p, x, 1023), zero));
        wide = tir_mul(p, wide, tir_math_power_of_two(p, part));
        f = tir_sub(p, f, part);
    }
    f = tir_math_at_least(p, tir_math_at_most(p, f, 1023), -1022);
    return tir_mul(p, wide, tir_math_power_of_two(p, f));
}

/* ---- sinc */

/* x = n + r, n even, |r| <= 1: sin(pi x) is sin(pi r), and for |r| > 1/2 that of 1 - |r|, which is exact. */
tir_expr tir_math_sinc(tir_pool *p, expr x) {
    const tir_dtype dtype = tir_dtype_of(p, x);
    expr wide = tir_cast(p, DLC_F64, x), one = tir_float(p, DLC_F64, 1), half = tir_float(p, DLC_F64, 0.5);
    expr a = tir_unary(p, TIR_ABS, wide);
    expr n = tir_unary(p, TIR_ROUND, tir_mul(p, a, half));
    expr r = tir_sub(p, a, tir_add(p, n, n)), magnitude = tir_unary(p, TIR_ABS, r);
    expr folded = tir_select(p, tir_lt(p, half, magnitude), tir_sub(p, one, magnitude), magnitude);
    expr sine = tir_math_sin_turns(p, folded);
    sine = tir_select(p, tir_lt(p, r, tir_float(p, DLC_F64, 0)), tir_unary(p, TIR_NEG, sine), sine);
    expr y = tir_div(p, sine, tir_mul(p, a, tir_float(p, DLC_F64, 3.14159265358979323846)));
    return tir_cast(p, dtype, tir_select(p, tir_eq(p, a, tir_float(p, DLC_F64, 0)), one, y));
}
