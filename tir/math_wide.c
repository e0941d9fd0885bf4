/* Functions of f64 as plain arithmetic, for which libraries err by up to 3 units in the last place: hyperbolic functions, their inverses,
 * cbrt. Other f64 functions stay calls of the machine's library (tir_math_is_call).
 *
 * exp(x) - 1 is kept as an unevaluated sum of two doubles (`pair`) with some 58 bits; sinh and cosh are made of it. Their inverses begin
 * with an estimate of 2^-38 by log2 and take one step of Newton's method with such a pair as the residual: the last rounding is that of one
 * addition. Sums and products whose rounding errors are computed are ADD, SUB and MUL, never MULADD: they are exact with and without fused
 * multiply-adds.
 *
 * Largest errors in units in the last place, fused or not, as test/tir/math_wide_test.c prints them: sinh 0.57, cosh 0.53, asinh 0.58,
 * acosh 0.57, atanh 0.57, cbrt 0.67. */
#include "tir/math_parts.h"

#include "tir/arith.h"

#include <math.h>

static expr number(tir_pool *p, double value) {
    return tir_float(p, DLC_F64, value);
}
static expr bits_of(tir_pool *p, expr x) {
    return tir_bitcast(p, DLC_U64, x);
}
static expr word(tir_pool *p, uint64_t bits) {
    return tir_bits(p, DLC_U64, bits);
}
static expr masked(tir_pool *p, expr x, uint64_t mask) {
    return tir_bitcast(p, DLC_F64, tir_and(p, bits_of(p, x), word(p, mask)));
}
/* A magnitude with the sign of x. */
tir_expr tir_math_with_sign(tir_pool *p, expr magnitude, expr x) {
    expr sign = tir_and(p, bits_of(p, x), word(p, UINT64_C(1) << 63));
    return tir_bitcast(p, DLC_F64, tir_or(p, bits_of(p, magnitude), sign));
}
/* x + x z P(z), z = x^2 */
static expr odd_series(tir_pool *p, expr x, const double *c, int count) {
    expr z = tir_mul(p, x, x);
    return tir_muladd(p, tir_mul(p, x, z), tir_math_polynomial(p, z, c, count), x);
}

/* ---- sums of two doubles */

/* The first 26 bits: products of such numbers are exact. */
tir_expr tir_math_first_bits(tir_pool *p, expr x) {
    return masked(p, x, UINT64_C(0xfffffffff8000000));
}
/* a + b, exactly; |a| >= |b| */
tir_pair tir_pair_ordered_sum(tir_pool *p, expr a, expr b) {
    expr high = tir_add(p, a, b);
    return (tir_pair){high, tir_sub(p, b, tir_sub(p, high, a))};
}
/* a + b, exactly */
tir_pair tir_pair_sum(tir_pool *p, expr a, expr b) {
    expr high = tir_add(p, a, b), part = tir_sub(p, high, a);
    return (tir_pair){high, tir_add(p, tir_sub(p, a, tir_sub(p, high, part)), tir_sub(p, b, part))};
}
/* a b, exactly (Dekker 1971) */
tir_pair tir_pair_product(tir_pool *p, expr a, expr b) {
    expr high = tir_mul(p, a, b), ah = tir_math_first_bits(p, a), bh = tir_math_first_bits(p, b);
    expr al = tir_sub(p, a, ah), bl = tir_sub(p, b, bh);
    expr low = tir_sub(p, tir_mul(p, ah, bh), high);
    low = tir_add(p, tir_add(p, low, tir_mul(p, ah, bl)), tir_mul(p, al, bh));
    return (tir_pair){high, tir_add(p, low, tir_mul(p, al, bl))};
}
/* a - b.high - b.low for nearly equal a and b */
static expr rest_of(tir_pool *p, expr a, tir_pair b) {
    return tir_sub(p, tir_sub(p, a, b.high), b.low);
}

/* ---- exp */

tir_expr tir_math_nearest(tir_pool *p, expr x) {
    expr magic = number(p, 0x1.8p52);
    return tir_sub(p, tir_add(p, x, magic), magic);
}
/* 2^n for an integer n of -1022..1023 */
tir_expr tir_math_power_of_two(tir_pool *p, expr n) {
    expr biased = bits_of(p, tir_add(p, n, number(p, 0x1.8p52 + 1023)));
    return tir_bitcast(p, DLC_F64, tir_binary(p, TIR_SHL, biased, tir_int(p, DLC_U64, 52)));
}
/* x - n ln 2, as high + low; |n| < 2^11 makes the first product exact. */
tir_pair tir_math_reduce(tir_pool *p, expr x, expr *n) {
    *n = tir_math_nearest(p, tir_mul(p, x, number(p, 1.44269504088896340736)));
    expr a = tir_sub(p, x, tir_mul(p, *n, number(p, 6.93147180369123816490e-01)));
    expr b = tir_mul(p, *n, number(p, 1.90821492927058770002e-10)), r = tir_sub(p, a, b);
    return (tir_pair){r, tir_sub(p, tir_sub(p, a, r), b)};
}

/* 1/3!, 1/4!, ... */
static const double inverse_factorials[] = {1.0 / 6,        1.0 / 24,        1.0 / 120,        1.0 / 720,
                                            1.0 / 5040,     1.0 / 40320,     1.0 / 362880,     1.0 / 3628800,
                                            1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};

/* r + r^2/2 + r^3 P(r) with an exact square. */
tir_pair tir_math_expm1_reduced(tir_pool *p, tir_pair r) {
    expr half = number(p, 0.5), first = tir_math_first_bits(p, r.high), rest = tir_sub(p, r.high, first);
    expr square = tir_mul(p, first, first), missing = tir_mul(p, tir_add(p, r.high, first), rest);
    expr tail = tir_mul(p, tir_mul(p, r.high, tir_add(p, square, missing)),
                        tir_math_polynomial(p, r.high, inverse_factorials, COUNT(inverse_factorials)));
    tail = tir_add(p, tail, tir_mul(p, missing, half));
    tail = tir_add(p, tail, tir_muladd(p, r.low, r.high, r.low));
    tir_pair m = tir_pair_ordered_sum(p, r.high, tir_mul(p, square, half));
    return tir_pair_ordered_sum(p, m.high, tir_add(p, m.low, tail));
}

/* exp(x) = 2^n (1 + m): n and m. */
static tir_pair exp_parts(tir_pool *p, expr x, expr *n) {
    tir_pair r = tir_math_reduce(p, x, n);
    return tir_math_expm1_reduced(p, r);
}

/* exp(x) / 4 for x >= 0, which overflows later than exp; clamped at 710.5, where twice the result is infinite. */
static tir_pair quarter_exp(tir_pool *p, expr x) {
    expr n;
    tir_pair m = exp_parts(p, tir_math_at_most(p, x, 710.5), &n);
    expr scale = tir_math_power_of_two(p, tir_sub(p, n, number(p, 2)));
    tir_pair a = tir_pair_ordered_sum(p, scale, tir_mul(p, scale, m.high));
    return (tir_pair){a.high, tir_add(p, a.low, tir_mul(p, scale, m.low))};
}

/* exp(-x) / 4 from exp(x) / 4 */
static tir_pair quarter_inverse(tir_pool *p, tir_pair a) {
    expr q = tir_div(p, number(p, 0.0625), a.high);
    expr rest = rest_of(p, number(p, 0.0625), tir_pair_product(p, q, a.high));
    rest = tir_sub(p, rest, tir_mul(p, q, a.low));
    return (tir_pair){q, tir_mul(p, rest, tir_mul(p, q, number(p, 16)))};
}

/* ---- sinh, cosh */

#define SMALL 0.35 /* below: a series */
static const double sinh_series[] = {1.0 / 6,        1.0 / 120,        1.0 / 5040,         1.0 / 362880,
                                     1.0 / 39916800, 1.0 / 6227020800, 1.0 / 1307674368000};

/* sinh(x) / 2 for SMALL <= x */
static tir_pair half_sinh_far(tir_pool *p, expr x) {
    tir_pair a = quarter_exp(p, x), b = quarter_inverse(p, a);
    tir_pair d = tir_pair_ordered_sum(p, a.high, tir_unary(p, TIR_NEG, b.high));
    return (tir_pair){d.high, tir_add(p, d.low, tir_sub(p, a.low, b.low))};
}
/* sinh(x) / 2 for x >= 0, not denormal */
static tir_pair half_sinh(tir_pool *p, expr x) {
    expr half = tir_mul(p, x, number(p, 0.5)), z = tir_mul(p, x, x);
    expr tail = tir_mul(p, tir_mul(p, half, z), tir_math_polynomial(p, z, sinh_series, COUNT(sinh_series)));
    tir_pair near = tir_pair_ordered_sum(p, half, tail), far = half_sinh_far(p, x);
    expr small = tir_lt(p, x, number(p, SMALL));
    return (tir_pair){tir_select(p, small, near.high, far.high), tir_select(p, small, near.low, far.low)};
}

static expr sinh_expand(tir_pool *p, expr x) {
    expr magnitude = tir_unary(p, TIR_ABS, x);
    tir_pair half = half_sinh_far(p, magnitude);
    expr far = tir_math_with_sign(p, tir_mul(p, tir_add(p, half.high, half.low), number(p, 2)), x);
    expr near = tir_math_with_sign(p, odd_series(p, x, sinh_series, COUNT(sinh_series)), x);
    return tir_select(p, tir_lt(p, magnitude, number(p, SMALL)), near, far);
}

static expr cosh_expand(tir_pool *p, expr x) {
    tir_pair a = quarter_exp(p, tir_unary(p, TIR_ABS, x)), b = quarter_inverse(p, a),
             sum = tir_pair_ordered_sum(p, a.high, b.high);
    expr low = tir_add(p, sum.low, tir_add(p, a.low, b.low));
    return tir_mul(p, tir_add(p, sum.high, low), number(p, 2));
}

/* ---- asinh, acosh, atanh */

#define LN2 0.693147180559945309417
#define NEAR 0x1p-5 /* below: a series of five terms */
#define FAR 0x1p28  /* above: log(2x), with an error below 2^-57 */

static expr log_estimate(tir_pool *p, expr x) {
    return tir_mul(p, tir_math_log2(p, x), number(p, LN2));
}

static expr near_or(tir_pool *p, expr x, const double *series, int count, expr otherwise) {
    expr near = tir_math_with_sign(p, odd_series(p, x, series, count), x);
    return tir_select(p, tir_lt(p, tir_unary(p, TIR_ABS, x), number(p, NEAR)), near,
                      tir_math_with_sign(p, otherwise, x));
}

/* y + (x - sinh(y)) / cosh(y), in halves */
static expr asinh_expand(tir_pool *p, expr x) {
    static const double series[] = {-1.0 / 6, 3.0 / 40, -15.0 / 336, 105.0 / 3456, -945.0 / 42240};
    expr a = tir_unary(p, TIR_ABS, x), half = number(p, 0.5), zero = number(p, 0), far = tir_lt(p, number(p, FAR), a);
    expr root = tir_unary(p, TIR_SQRT, tir_muladd(p, a, a, number(p, 1)));
    root = tir_select(p, far, a, root);
    expr y = log_estimate(p, tir_add(p, a, tir_select(p, far, zero, root)));
    y = tir_add(p, y, tir_select(p, far, number(p, LN2), zero));
    expr rest = rest_of(p, tir_mul(p, a, half), half_sinh(p, y));
    y = tir_add(p, y, tir_div(p, rest, tir_mul(p, root, half)));
    y = tir_select(p, tir_lt(p, a, number(p, INFINITY)), y, a);
    return near_or(p, x, series, COUNT(series), y);
}

/* With u = x - 1 = cosh(y) - 1 = 2 sinh(y/2)^2 there is no cancellation: y + (u - 8 h^2) / sinh(y), h = sinh(y/2)/2. */
static expr acosh_expand(tir_pool *p, expr x) {
    expr one = number(p, 1), zero = number(p, 0), u = tir_sub(p, x, one), far = tir_lt(p, number(p, FAR), x);
    expr root = tir_mul(p, tir_unary(p, TIR_SQRT, u), tir_unary(p, TIR_SQRT, tir_add(p, u, number(p, 2))));
    root = tir_select(p, far, x, root); /* sinh(y) */
    expr y = log_estimate(p, tir_select(p, far, x, tir_add(p, one, tir_add(p, u, root))));
    y = tir_add(p, y, tir_select(p, far, number(p, LN2), zero));
    expr near = tir_muladd(p, tir_muladd(p, u, number(p, 3.0 / 160), number(p, -1.0 / 12)), u, one);
    near = tir_mul(p, tir_unary(p, TIR_SQRT, tir_add(p, u, u)), near);
    y = tir_select(p, tir_lt(p, u, number(p, 0x1p-10)), near, y);
    tir_pair h = half_sinh(p, tir_mul(p, y, number(p, 0.5)));
    expr rest = rest_of(p, tir_mul(p, u, number(p, 0.125)), tir_pair_product(p, h.high, h.high));
    rest = tir_sub(p, rest, tir_mul(p, tir_mul(p, h.high, h.low), number(p, 2)));
    y = tir_add(p, y, tir_div(p, tir_mul(p, rest, number(p, 8)), root));
    y = tir_select(p, tir_eq(p, u, zero), zero, y);
    y = tir_select(p, tir_lt(p, x, number(p, INFINITY)), y, x);
    return tir_select(p, tir_lt(p, x, one), number(p, NAN), y);
}

/* m = exp(2y) - 1 satisfies m (1 - x) = 2x: 2y + (2x - m (1 - x)) / (1 + x), halved. */
static expr atanh_expand(tir_pool *p, expr x) {
    static const double series[] = {1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11};
    expr a = tir_unary(p, TIR_ABS, x), one = number(p, 1), n;
    expr above = tir_add(p, one, a), y = log_estimate(p, tir_div(p, above, tir_sub(p, one, a)));
    tir_pair m = exp_parts(p, y, &n), below = tir_pair_ordered_sum(p, one, tir_unary(p, TIR_NEG, a));
    expr scale = tir_math_power_of_two(p, n);
    tir_pair less = tir_pair_sum(p, tir_sub(p, scale, one), tir_mul(p, scale, m.high));
    less.low = tir_add(p, less.low, tir_mul(p, scale, m.low));
    expr rest = rest_of(p, tir_add(p, a, a), tir_pair_product(p, less.high, below.high));
    expr small = tir_add(p, tir_mul(p, less.high, below.low), tir_mul(p, less.low, below.high));
    y = tir_add(p, y, tir_div(p, tir_sub(p, rest, small), above));
    y = tir_mul(p, y, number(p, 0.5));
    expr edge = tir_select(p, tir_eq(p, a, one), number(p, INFINITY), number(p, NAN));
    return near_or(p, x, series, COUNT(series), tir_select(p, tir_lt(p, a, one), y, edge));
}

/* ---- cbrt */

/* Dividing the exponent by three gives 5 bits, a polynomial in t^3/x 23, to which t is rounded so that its square is exact, and a step of
 * Newton's method the rest: fdlibm's s_cbrt.c (Sun 1993; Evans 2005), error below 0.667. Denormals are scaled by 2^54 first. */
static expr cbrt_expand(tir_pool *p, expr x) {
    static const double low[] = {1.87595182427177009643, -1.88497979543377169875, 1.621429720105354466140};
    static const double high[] = {-0.758397934778766047437, 0.145996192886612446982};
    expr a = tir_unary(p, TIR_ABS, x), small = tir_lt(p, a, number(p, 0x1p-1022));
    expr normal = tir_select(p, small, tir_mul(p, a, number(p, 0x1p54)), a), half_word = tir_int(p, DLC_U64, 32);
    expr third = tir_cast(p, DLC_U32, tir_binary(p, TIR_SHR, bits_of(p, normal), half_word));
    third = tir_binary(p, TIR_MULHI, third, tir_bits(p, DLC_U32, 0x55555556));
    third = tir_add(p, third, tir_select(p, small, tir_bits(p, DLC_U32, 696219795), tir_bits(p, DLC_U32, 715094163)));
    expr t = tir_bitcast(p, DLC_F64, tir_binary(p, TIR_SHL, tir_cast(p, DLC_U64, third), half_word));
    expr r = tir_mul(p, tir_mul(p, t, t), tir_div(p, t, a)), cube = tir_mul(p, tir_mul(p, r, r), r);
    t = tir_mul(
        p, t,
        tir_muladd(p, cube, tir_math_polynomial(p, r, high, COUNT(high)), tir_math_polynomial(p, r, low, COUNT(low))));
    t = tir_bitcast(p, DLC_F64,
                    tir_and(p, tir_add(p, bits_of(p, t), word(p, 0x80000000)), word(p, UINT64_C(0xffffffffc0000000))));
    r = tir_div(p, a, tir_mul(p, t, t));
    r = tir_div(p, tir_sub(p, r, t), tir_add(p, tir_add(p, t, t), r));
    expr y = tir_math_with_sign(p, tir_muladd(p, t, r, t), x);
    expr ordinary = tir_and(p, tir_lt(p, number(p, 0), a), tir_lt(p, a, number(p, INFINITY)));
    return tir_select(p, ordinary, y, x);
}

/* ---- all */

bool tir_math_is_call(tir_op op, tir_dtype operand) {
    if (!(tir_ops[op].flags & TIR_MATH) || operand != DLC_F64) return false;
    switch (op) {
    case TIR_SINH:
    case TIR_COSH:
    case TIR_ASINH:
    case TIR_ACOSH:
    case TIR_ATANH:
    case TIR_CBRT:
    case TIR_ERFC:
    case TIR_EXP2:
    case TIR_EXP10:
    case TIR_NORMAL_CDF:
    case TIR_NORMAL_TAIL: return false;
    default: return true;
    }
}

tir_expr tir_math_expand_f64(tir_pool *pool, tir_op op, tir_expr x) {
    switch (op) {
    case TIR_SINH: return sinh_expand(pool, x);
    case TIR_COSH: return cosh_expand(pool, x);
    case TIR_ASINH: return asinh_expand(pool, x);
    case TIR_ACOSH: return acosh_expand(pool, x);
    case TIR_ATANH: return atanh_expand(pool, x);
    case TIR_CBRT: return cbrt_expand(pool, x);
    default: return 0;
    }
}
