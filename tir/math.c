/* Transcendentals of f32 as plain arithmetic, so that every target computes the interpreter's bits.
 *
 * All expansions are branch-free and use no tables. Clamps are written select(limit < x, limit, x): one instruction on
 * x86 (minps, maxps), and NaN propagates. Products that are added use MULADD; every function stays within
 * its bound whether it is fused or not. Only exact tricks depend on rounding: adding 1.5*2^23 rounds to an integer that
 * is then in the low bits of the float ("magic" below), and products of short constants are exact.
 *
 * Largest error in units in the last place of f32 at the exact value as
 * test/tir/math_ulp.c prints it for 10^7 inputs (tanh, logistic: for every seventh; exp, expm1, log, log1p, silu: for all). `make check`
 * holds the functions to the limits at 10^7 inputs, `make test-long` at all 2^32. Operations are nodes without bitcasts; a clamp counts
 * two and is one instruction.
 *
 *              fused  not fused  limit  operations
 *     exp       1.98       2.27    2.5          14
 *     expm1     1.59       1.71    2.0          21
 *     log       0.85       0.85    1.0          31
 *     log1p     1.58       1.58    2.0          32
 *     sin       1.56       1.56    2.0          53
 *     cos       1.56       1.56    2.0          51
 *     tan       2.38       2.47    3.0          50
 *     asin      1.76       1.76    3.0          20
 *     acos      1.22       1.22    3.0          24
 *     atan      1.35       1.51    3.0          20
 *     sinh      0.63       0.63    1.0          31
 *     cosh      0.50       0.50    1.0          23
 *     asinh     0.57       0.57    1.0          39
 *     acosh     0.50       0.50    1.0          32
 *     atanh     0.70       0.70    1.0          40
 *     cbrt      0.50       0.50    1.0          31
 *     tanh      3.39       3.55    4.0          16
 *     erf       2.57       2.65    3.0          16
 *     logistic  2.40       2.40    2.5          17
 *     silu      3.22       3.28    3.5          19
 *     normal_cdf 2.21      2.49    3.0          19 (of 1/2, or of larger results)
 *     normal_tail, erfc, exp2, exp10: math_error.c, math_power.c
 *     atan2     1.46       1.53    2.0          30
 *     pow       0.50       0.50    0.6          64 (constant exponents: math_test.c)
 *
 * exp: overflow gives inf, gradual underflow is correct: LDEXP rounds once. sin and cos: reduced in f64 by 1/(2 pi) in
 * six pieces of at most 27 bits; all products but the last are exact, so the reduction is correct for all finite arguments and
 * needs no slow path. pow: logarithm and power in f64. tanh and erf never exceed 1 and reach it. tanh has one
 * division, about ten cycles for 16 lanes, overlapped with other instructions: forms without it took longer. */
#include "tir/math_parts.h"

#include "tir/arith.h"

#include <math.h>

/* ---- building blocks */

static expr f32(tir_pool *p, double value) {
    return tir_float(p, DLC_F32, value);
}
static expr f64(tir_pool *p, double value) {
    return tir_float(p, DLC_F64, value);
}
static expr u32(tir_pool *p, uint32_t bits) {
    return tir_bits(p, DLC_U32, bits);
}
static expr to_bits(tir_pool *p, expr x) {
    return tir_bitcast(p, DLC_U32, x);
}
static expr to_float(tir_pool *p, expr bits) {
    return tir_bitcast(p, DLC_F32, bits);
}
static expr shift_left(tir_pool *p, expr x, int amount) {
    return tir_binary(p, TIR_SHL, x, tir_int(p, tir_dtype_of(p, x), amount));
}
static expr shift_right(tir_pool *p, expr x, int amount) {
    return tir_binary(p, TIR_SHR, x, tir_int(p, tir_dtype_of(p, x), amount));
}

tir_expr tir_math_polynomial(tir_pool *p, expr x, const double *c, int count) {
    tir_dtype dtype = tir_dtype_of(p, x);
    expr sum = tir_float(p, dtype, c[count - 1]);
    for (int i = count - 2; i >= 0; i--) sum = tir_muladd(p, sum, x, tir_float(p, dtype, c[i]));
    return sum;
}

/* min(limit, x), max(limit, x); NaN in x propagates */
tir_expr tir_math_at_most(tir_pool *p, expr x, double limit) {
    expr l = tir_float(p, tir_dtype_of(p, x), limit);
    return tir_select(p, tir_lt(p, l, x), l, x);
}
tir_expr tir_math_at_least(tir_pool *p, expr x, double limit) {
    expr l = tir_float(p, tir_dtype_of(p, x), limit);
    return tir_select(p, tir_lt(p, x, l), l, x);
}

/* 1.5*2^23 + bias: x + MAGIC(b) is round(x) + b in the low mantissa bits for |x + b| < 2^22. */
#define MAGIC(bias) (12582912.0 + (bias))

/* For |x| < limit the function equals x to the last bit (signed zeros and denormals included). */
static expr identity_near_zero(tir_pool *p, expr x, double limit, expr otherwise) {
    return tir_select(p, tir_lt(p, tir_unary(p, TIR_ABS, x), f32(p, limit)), x, otherwise);
}

/* ---- exp, expm1 */

/* exp(x) = exp(r) 2^n with n = round(x / ln 2), |r| <= ln 2 / 2: returns exp(r) by the polynomial, and n. */
static expr exp_parts(tir_pool *p, expr x, const double *c, int count, expr *n) {
    *n = tir_sub(p, tir_muladd(p, x, f32(p, 1.44269504088896), f32(p, MAGIC(0))), f32(p, MAGIC(0)));
    expr r = tir_muladd(p, *n, f32(p, -0.693359375), x); /* ln 2, high part: 10 bits */
    r = tir_muladd(p, *n, f32(p, 2.12194440e-4), r);
    return tir_math_polynomial(p, r, c, count);
}

/* Overflow from 89 on. From -104 on the result is 0; from -704 on no processor takes its slow path for denormal results any more;
 * masks are below that. Minimax polynomial of degree 5, relative error 9.2e-8: one more term does not pay for a bound of 4 ulp. */
static expr exp_expand(tir_pool *p, expr x) {
    static const double c[] = {1.0, 0.999999702, 0.499991506, 0.166676342, 0.0418977514, 0.00829083379};
    expr n, power = exp_parts(p, tir_math_at_least(p, tir_math_at_most(p, x, 89.0), -704.0), c, COUNT(c), &n);
    return tir_binary(p, TIR_LDEXP, power, n);
}

/* e / (1 + e) with e = exp(x): both tails keep their relative accuracy. From 25 on the result is 1 to the last bit, so e need not grow. One
 * term more than exp, error 3.1e-9: products with the result are within 4 ulp, too. With a `factor` the product is rounded once in the
 * denormal range, where the logistic alone has lost bits. */
static expr logistic_times(tir_pool *p, expr x, expr factor) {
    static const double c[] = {1.0, 1.0, 0.49999994, 0.166665196, 0.0416683964, 0.00836878549, 0.00138144556};
    expr n, power = exp_parts(p, tir_math_at_most(p, x, 25.0), c, COUNT(c), &n);
    expr e = tir_binary(p, TIR_LDEXP, power, n), sum = tir_add(p, e, f32(p, 1.0));
    if (!factor) return tir_div(p, e, sum);
    return tir_binary(p, TIR_LDEXP, tir_mul(p, factor, tir_div(p, power, sum)), n);
}

static expr logistic_expand(tir_pool *p, expr x) {
    if (tir_dtype_of(p, x) != DLC_F64) return logistic_times(p, tir_math_at_least(p, x, -104.0), 0);
    expr e = tir_unary(p, TIR_EXP, tir_math_at_most(p, x, 40.0));
    return tir_div(p, e, tir_add(p, f64(p, 1.0), e));
}

/* From there on, also for -inf, the result is -0. */
static expr silu_expand(tir_pool *p, expr x) {
    bool wide = tir_dtype_of(p, x) == DLC_F64;
    x = tir_math_at_least(p, x, wide ? -800.0 : -112.0);
    if (!wide) return logistic_times(p, x, x);
    /* x h / (1 + h^2) h with h = exp(x/2), so that a denormal result is rounded once */
    expr h = tir_unary(p, TIR_EXP, tir_mul(p, tir_math_at_most(p, x, 80.0), f64(p, 0.5)));
    expr ratio = tir_div(p, tir_mul(p, x, h), tir_add(p, tir_mul(p, h, h), f64(p, 1.0)));
    return tir_select(p, tir_lt(p, f64(p, 80.0), x), x, tir_mul(p, ratio, h));
}

/* expm1(x) = 2 (s q + (s - 1/2)) with s = 2^(n-1), q = exp(r) - 1 = r + r^2 P(r): no cancellation for n = 0, and n =
 * 128 does not overflow before the last product. */
static expr expm1_expand(tir_pool *p, expr x) {
    static const double c[] = {0.49999998133, 0.166665426846, 0.0416672039043, 0.0083666467932, 0.00138824983435};
    expr y = tir_math_at_least(p, tir_math_at_most(p, x, 89.0), -25.0);
    expr t = tir_muladd(p, y, f32(p, 1.44269504088896), f32(p, MAGIC(126)));
    expr n = tir_sub(p, t, f32(p, MAGIC(126)));
    expr r = tir_muladd(p, n, f32(p, -0.693115234375), y);
    r = tir_muladd(p, n, f32(p, -3.19462450e-5), r);
    expr q = tir_muladd(p, tir_mul(p, r, r), tir_math_polynomial(p, r, c, COUNT(c)), r);
    expr scale = to_float(p, shift_left(p, to_bits(p, t), 23));
    expr half = tir_muladd(p, q, scale, tir_sub(p, scale, f32(p, 0.5)));
    return identity_near_zero(p, x, 0x1p-25, tir_add(p, half, half));
}

/* ---- log, log1p */

/* log(1 + f) + e ln 2 for f in [-1/3, 1/3]: f - f^2/2 + f^3 P(f), relative error of the polynomial 4.6e-9. */
static expr log_core(tir_pool *p, expr f, expr e) {
    static const double c[] = {0.333332159829, -0.249997976734, 0.200104059009, -0.166804873323,
                               0.140058692494, -0.121842609375, 0.139844357241, -0.128916867608};
    expr square = tir_mul(p, f, f);
    expr tail = tir_mul(p, tir_mul(p, square, f), tir_math_polynomial(p, f, c, COUNT(c)));
    tail = tir_muladd(p, e, f32(p, -2.12194440e-4), tail); /* ln 2 = 0.693359375 - 2.12194440e-4 */
    tail = tir_muladd(p, square, f32(p, -0.5), tail);
    return tir_muladd(p, e, f32(p, 0.693359375), tir_add(p, f, tail));
}

/* inf and NaN give themselves, `pole` gives -inf, values below it NaN. */
static expr log_edges(tir_pool *p, expr x, double pole, expr regular) {
    expr at = f32(p, pole);
    expr edge = tir_select(p, tir_eq(p, x, at), f32(p, -INFINITY), f32(p, NAN));
    regular = tir_select(p, tir_lt(p, x, f32(p, INFINITY)), regular, x);
    return tir_select(p, tir_le(p, x, at), edge, regular);
}

/* x = m 2^e with m in [2/3, 4/3); denormals are scaled by 2^24 first. */
static expr log_expand(tir_pool *p, expr x) {
    expr small = tir_lt(p, x, f32(p, 0x1p-126));
    expr normal = tir_select(p, small, tir_mul(p, x, f32(p, 0x1p24)), x);
    expr bits = tir_bitcast(p, DLC_I32, normal);
    expr offset = tir_sub(p, bits, tir_int(p, DLC_I32, 0x3f2aaaab)); /* 2/3 */
    expr mantissa = tir_and(p, offset, tir_int(p, DLC_I32, 0x7fffff));
    mantissa = tir_add(p, mantissa, tir_int(p, DLC_I32, 0x3f2aaaab));
    expr f = tir_sub(p, to_float(p, mantissa), f32(p, 1.0));
    expr e = tir_cast(p, DLC_F32, shift_right(p, offset, 23));
    e = tir_add(p, e, tir_select(p, small, f32(p, -24.0), f32(p, 0.0)));
    return log_edges(p, x, 0.0, log_core(p, f, e));
}

/* With 1 + x = m 2^e (rounded, only to find e): f = x 2^-e + (2^-e - 1) keeps all bits of x. 2^-e is kept as 4*2^-e,
 * which is normal for every e. */
static expr log1p_expand(tir_pool *p, expr x) {
    expr bits = tir_bitcast(p, DLC_I32, tir_add(p, x, f32(p, 1.0)));
    expr offset = tir_sub(p, bits, tir_int(p, DLC_I32, 0x3f2aaaab));
    expr exponent = tir_and(p, offset, tir_int(p, DLC_I32, -0x800000));
    expr scale = to_float(p, tir_sub(p, tir_int(p, DLC_I32, 0x40800000), exponent));
    expr quarter = f32(p, 0.25);
    expr f = tir_muladd(p, tir_mul(p, x, scale), quarter, tir_muladd(p, scale, quarter, f32(p, -1.0)));
    expr e = tir_cast(p, DLC_F32, shift_right(p, exponent, 23));
    return log_edges(p, x, -1.0, identity_near_zero(p, x, 0x1p-25, log_core(p, f, e)));
}

/* ---- tanh, erf */

/* tanh(x) = 2ab / (a^2 + b^2) with a / b = tanh(x / 2), a = x P(x^2) / 2, b = Q(x^2): as tanh approaches 1, a approaches b,
 * and errors of a and b vanish to first order. Fitted for relative error 7e-9, then the rounded coefficients were
 * searched for the least error of the whole computation with |tanh| <= 1; the limit gives exactly 1. Both carry a
 * factor 1.85: mantissas near 2 round finer. */
static expr tanh_expand(tir_pool *p, expr x) {
    static const double top[] = {1.84999907, 0.0550688282, 0.000211122213};
    static const double bottom[] = {1.84999907, 0.209235281, 0.00223083002, 2.26886004e-06};
    x = tir_math_at_least(p, tir_math_at_most(p, x, 8.7450285), -8.7450285);
    expr square = tir_mul(p, x, x);
    expr a = tir_mul(p, x, tir_math_polynomial(p, square, top, COUNT(top))); /* 2a above */
    expr b = tir_math_polynomial(p, square, bottom, COUNT(bottom));
    expr sum = tir_muladd(p, tir_mul(p, a, f32(p, 0.25)), a, tir_mul(p, b, b));
    return tir_div(p, tir_mul(p, a, b), sum);
}

/* erf(x) = t R(t^2), t = x P(x^2), fitted together for relative error 2e-8 and searched like tanh's coefficients. R is
 * nearly the flattest odd polynomial with R(1) = 1, so that errors of t vanish as erf approaches 1: 10 coefficients
 * instead of 16 in one polynomial. */
static expr erf_expand(tir_pool *p, expr x) {
    static const double inner[] = {0.842523098,    -0.0774368048,   0.00607110746, -0.000352738542,
                                   1.51209242e-05, -4.56255009e-07, 7.24465021e-09};
    static const double outer[] = {1.33928573, -0.455498725, 0.0697046965};
    x = tir_math_at_least(p, tir_math_at_most(p, x, 3.84000087), -3.84000087);
    expr t = tir_mul(p, x, tir_math_polynomial(p, tir_mul(p, x, x), inner, COUNT(inner)));
    return tir_mul(p, t, tir_math_polynomial(p, tir_mul(p, t, t), outer, COUNT(outer)));
}

/* The same form for the normal distribution, x/sqrt(2) and the factor 1/2 folded into the coefficients: 1/2 + t R(t^2). Fitted for absolute
 * error 5.4e-9; rounded so that t R(t^2) is 1/2 exactly at the clamp, and before it exceeds that at most slightly. */
static expr normal_cdf_expand(tir_pool *p, expr x) {
    static const double inner[] = {0.36480096,      -0.0122514898,  0.000350306218,
                                   -7.29202065e-06, 1.10451296e-07, -9.90090676e-10};
    static const double outer[] = {1.09358883, -1.09361029, 0.656458855, -0.156437412};
    if (tir_dtype_of(p, x) == DLC_F64) return tir_math_normal_tail(p, x);
    x = tir_math_at_least(p, tir_math_at_most(p, x, 5.40011597), -5.40011597);
    expr t = tir_mul(p, x, tir_math_polynomial(p, tir_mul(p, x, x), inner, COUNT(inner)));
    expr half = tir_mul(p, t, tir_math_polynomial(p, tir_mul(p, t, t), outer, COUNT(outer)));
    return tir_math_at_least(p, tir_add(p, half, f32(p, 0.5)), 0.0);
}

/* ---- sin, cos */

/* The quadrant n of x (as float bits whose low two bits count) and r = x - n pi/2 in [-pi/4, pi/4]. The turns x/(2 pi)
 * are sums of products x*piece, exact in f64 (24 + 27 bits); whole turns are dropped from each. The pieces are added
 * largest first, after the quarter turns are subtracted, so that each sum is exact or dominates what follows. */
static expr quadrant_reduce(tir_pool *p, expr x, expr *quadrant) {
    static const double pieces[] = {0x1.45f306cp-3,  0x1.c9c882ap-31,  0x1.4fe13a8p-61,
                                    0x1.f47d4d3p-88, 0x1.dc0db62p-118, 0x1.2b32788720840p-147};
    expr wide = tir_cast(p, DLC_F64, x);
    expr part[COUNT(pieces)], sum = 0;
    for (int i = 0; i < COUNT(pieces); i++) {
        part[i] = tir_mul(p, wide, f64(p, pieces[i]));
        if (i + 1 < COUNT(pieces)) part[i] = tir_sub(p, part[i], tir_unary(p, TIR_ROUND, part[i]));
        sum = i ? tir_add(p, sum, part[i]) : part[i];
    }
    expr n = tir_unary(p, TIR_ROUND, tir_mul(p, sum, f64(p, 4.0)));
    expr turns = tir_muladd(p, n, f64(p, -0.25), part[0]);
    for (int i = 1; i < COUNT(pieces); i++) turns = tir_add(p, turns, part[i]);
    *quadrant = to_bits(p, tir_add(p, tir_cast(p, DLC_F32, n), f32(p, MAGIC(0))));
    return tir_cast(p, DLC_F32, tir_mul(p, turns, f64(p, 0x1.921fb54442d18p+2)));
}

/* sin(x + shift * pi/2) */
static expr sin_shifted(tir_pool *p, expr x, uint32_t shift) {
    static const double sine[] = {-0.166666545748, 0.00833215841575, -0.00019514953519};
    static const double cosine[] = {0.0416666456189, -0.00138873130661, 2.44327853997e-5};
    expr quadrant, r = quadrant_reduce(p, x, &quadrant);
    if (shift) quadrant = tir_add(p, quadrant, u32(p, shift));
    expr square = tir_mul(p, r, r);
    expr s = tir_muladd(p, tir_mul(p, r, square), tir_math_polynomial(p, square, sine, COUNT(sine)), r);
    expr c = tir_muladd(p, square, f32(p, -0.5), f32(p, 1.0));
    c = tir_muladd(p, tir_mul(p, square, square), tir_math_polynomial(p, square, cosine, COUNT(cosine)), c);
    expr odd = tir_binary(p, TIR_NE, tir_and(p, quadrant, u32(p, 1)), u32(p, 0));
    expr sign = shift_left(p, tir_and(p, quadrant, u32(p, 2)), 30);
    return to_float(p, tir_binary(p, TIR_XOR, to_bits(p, tir_select(p, odd, c, s)), sign));
}

static expr sin_expand(tir_pool *p, expr x) {
    return identity_near_zero(p, x, 0x1p-12, sin_shifted(p, x, 0));
}
static expr cos_expand(tir_pool *p, expr x) {
    return sin_shifted(p, x, 1);
}

/* x + x z P(z), z = x^2 */
static expr odd_series(tir_pool *p, expr x, expr z, const double *c, int count) {
    return tir_muladd(p, tir_mul(p, x, z), tir_math_polynomial(p, z, c, count), x);
}

static expr with_sign_of(tir_pool *p, expr magnitude, expr x) {
    expr sign = tir_and(p, to_bits(p, x), u32(p, 0x80000000u));
    return to_float(p, tir_or(p, to_bits(p, magnitude), sign));
}

/* An odd number of quarter turns maps the tangent to its negative inverse. */
static expr tan_expand(tir_pool *p, expr x) {
    static const double c[] = {0.333333339847,   0.133332302175,   0.0539946241667, 0.0216198727761,
                               0.00996654460254, 0.00117829985519, 0.00384730429238};
    expr quadrant, r = quadrant_reduce(p, x, &quadrant);
    expr t = odd_series(p, r, tir_mul(p, r, r), c, COUNT(c));
    expr odd = tir_binary(p, TIR_NE, tir_and(p, quadrant, u32(p, 1)), u32(p, 0));
    return identity_near_zero(p, x, 0x1p-12, tir_select(p, odd, tir_div(p, f32(p, -1.0), t), t));
}

/* ---- atan2, atan, asin, acos */

/* pi/2 - x and pi - x, the constants as two floats */
static expr right_angle_less(tir_pool *p, expr x) {
    return tir_add(p, tir_sub(p, f32(p, 1.5707963705063), x), f32(p, -4.3711390001e-8));
}
static expr straight_angle_less(tir_pool *p, expr x) {
    return tir_add(p, tir_sub(p, f32(p, 3.1415927410126), x), f32(p, -8.7422780001e-8));
}

/* atan of 0..1 */
static expr atan_core(tir_pool *p, expr t) {
    static const double c[] = {-0.333332990905, 0.199985483278,   -0.142642421339, 0.109521880104,   -0.0840345636039,
                               0.0579576881563, -0.0311779319316, 0.0109146479424, -0.00179363032588};
    return odd_series(p, t, tir_mul(p, t, t), c, COUNT(c));
}

static expr atan_expand(tir_pool *p, expr x) {
    expr ax = tir_unary(p, TIR_ABS, x), one = f32(p, 1.0), steep = tir_lt(p, one, ax);
    expr angle = atan_core(p, tir_select(p, steep, tir_div(p, one, ax), ax));
    return with_sign_of(p, tir_select(p, steep, right_angle_less(p, angle), angle), x);
}

/* asin(s) with s = |x| up to 1/2; *beyond: x is larger, and s = sqrt((1 - |x|)/2) gives half of the difference to a right angle. */
static expr asin_core(tir_pool *p, expr x, expr *beyond) {
    static const double c[] = {0.166666663365,  0.0750009476117, 0.0445993191629,
                               0.0311017278291, 0.0171437168193, 0.0337007263214};
    expr ax = tir_unary(p, TIR_ABS, x), half = f32(p, 0.5);
    *beyond = tir_lt(p, half, ax);
    expr rest = tir_muladd(p, ax, f32(p, -0.5), half);
    expr z = tir_select(p, *beyond, rest, tir_mul(p, ax, ax));
    expr s = tir_select(p, *beyond, tir_unary(p, TIR_SQRT, rest), ax);
    return odd_series(p, s, z, c, COUNT(c));
}

static expr asin_expand(tir_pool *p, expr x) {
    expr beyond, angle = asin_core(p, x, &beyond);
    return with_sign_of(p, tir_select(p, beyond, right_angle_less(p, tir_add(p, angle, angle)), angle), x);
}

static expr acos_expand(tir_pool *p, expr x) {
    expr beyond, angle = asin_core(p, x, &beyond), twice = tir_add(p, angle, angle);
    expr left = tir_lt(p, x, f32(p, 0.0));
    expr outer = tir_select(p, left, straight_angle_less(p, twice), twice);
    return tir_select(p, beyond, outer, right_angle_less(p, with_sign_of(p, angle, x)));
}

static expr atan2_expand(tir_pool *p, expr y, expr x) {
    expr zero = f32(p, 0.0), one = f32(p, 1.0);
    expr ay = tir_unary(p, TIR_ABS, y), ax = tir_unary(p, TIR_ABS, x);
    expr steep = tir_lt(p, ax, ay);
    expr low = tir_select(p, steep, ax, ay), high = tir_select(p, steep, ay, ax);
    /* equal magnitudes: 0/0 is angle 0, inf/inf the diagonal */
    expr diagonal = tir_select(p, tir_eq(p, high, zero), zero, one);
    expr t = tir_select(p, tir_eq(p, low, high), diagonal, tir_div(p, low, high));
    expr angle = atan_core(p, t);
    /* by the sign bit of x, also that of -0 */
    expr left = tir_lt(p, tir_bitcast(p, DLC_I32, x), tir_int(p, DLC_I32, 0));
    angle = tir_select(p, steep, right_angle_less(p, angle), angle);
    angle = tir_select(p, left, straight_angle_less(p, angle), angle);
    return with_sign_of(p, angle, y);
}

/* ---- pow */

/* x^n for a constant integer n by repeated squaring, from the low bit up. In f64 unless n is small enough for f32 to be
 * accurate: in f64 intermediate results neither overflow nor underflow unless the f32 result does. */
static expr power_chain(tir_pool *p, expr x, unsigned n) {
    expr result = 0;
    for (expr base = x; n; n >>= 1, base = n ? tir_mul(p, base, base) : base)
        if (n & 1) result = result ? tir_mul(p, result, base) : base;
    return result;
}

#define LARGEST_CHAIN 64

/* The expansion for constant exponents that have a short form, or 0. */
static expr pow_constant(tir_pool *p, expr x, expr y) {
    if (tir_op_of(p, y) != TIR_CONST) return 0;
    double exponent = tir_bits_to_f64(DLC_F32, tir_get(p, y)->bits);
    if (exponent == 0.0) return f32(p, 1.0);
    if (exponent == 0.5) { /* -0 gives +0 and -inf gives inf, unlike sqrt */
        expr root = tir_add(p, tir_unary(p, TIR_SQRT, x), f32(p, 0.0));
        return tir_select(p, tir_eq(p, x, f32(p, -INFINITY)), f32(p, INFINITY), root);
    }
    if (exponent != rint(exponent) || fabs(exponent) > LARGEST_CHAIN) return 0;
    unsigned n = (unsigned)fabs(exponent);
    if (exponent > 0.0 && n <= 3) return power_chain(p, x, n);
    if (exponent < 0.0 && n == 1) return tir_div(p, f32(p, 1.0), x);
    expr power = power_chain(p, tir_cast(p, DLC_F64, x), n);
    if (exponent < 0.0) power = tir_div(p, f64(p, 1.0), power);
    return tir_cast(p, DLC_F32, power);
}

/* log2 of |x| > 0 finite, f32 or f64, as f64, relative error 2^-38: a denormal f32 is a normal f64. */
tir_expr tir_math_log2(tir_pool *p, expr magnitude) {
    static const double c[] = {1.44269504089256999,  -0.721347520469094283, 0.480898343807143066, -0.360673751907234261,
                               0.288539457901744398, -0.24044998132553738,  0.206075354091260164, -0.180302497156578804,
                               0.160901958548336176, -0.145013996349914656, 0.123477095142681478, -0.111728043564712177,
                               0.157798603791347297, -0.150574753647911024};
    const uint64_t two_thirds = UINT64_C(0x3fe5555555555555);
    expr bits = tir_bitcast(p, DLC_U64, tir_cast(p, DLC_F64, magnitude));
    /* biased exponent of x / (2/3), kept positive by 2^10, then as the low bits of 2^52 */
    expr offset = tir_sub(p, bits, tir_bits(p, DLC_U64, two_thirds - (UINT64_C(1024) << 52)));
    expr mantissa = tir_and(p, offset, tir_bits(p, DLC_U64, (UINT64_C(1) << 52) - 1));
    mantissa = tir_bitcast(p, DLC_F64, tir_add(p, mantissa, tir_bits(p, DLC_U64, two_thirds)));
    expr exponent = tir_or(p, shift_right(p, offset, 52), tir_bits(p, DLC_U64, UINT64_C(0x4330000000000000)));
    exponent = tir_sub(p, tir_bitcast(p, DLC_F64, exponent), f64(p, 0x1p52 + 1024.0));
    expr f = tir_sub(p, mantissa, f64(p, 1.0));
    return tir_muladd(p, f, tir_math_polynomial(p, f, c, COUNT(c)), exponent);
}

/* 2^z as f64, relative error 4e-11, for results slightly beyond the range of f32; z may be anything. */
tir_expr tir_math_exp2(tir_pool *p, expr z) {
    static const double c[] = {0.999999999961685147,    0.693147180728439344,    0.240226511981441689,
                               0.0555041035345577251,   0.00961802725408345439,  0.00133339225587242631,
                               0.000154692911979308864, 0.0000152019229550571408};
    const double magic = 0x1.8p52 + 1023.0; /* leaves the biased exponent of 2^round(z) in the low bits */
    z = tir_math_at_least(p, tir_math_at_most(p, z, 130.0), -152.0);
    expr t = tir_add(p, z, f64(p, magic));
    expr r = tir_sub(p, z, tir_sub(p, t, f64(p, magic)));
    expr scale = tir_bitcast(p, DLC_F64, shift_left(p, tir_bitcast(p, DLC_U64, t), 52));
    return tir_mul(p, tir_math_polynomial(p, r, c, COUNT(c)), scale);
}

/* Edge cases as in C99 F.9.4.4. */
static expr pow_expand(tir_pool *p, expr x, expr y) {
    expr constant = pow_constant(p, x, y);
    if (constant) return constant;
    expr zero = f32(p, 0.0), infinity = f32(p, INFINITY);
    expr magnitude = tir_unary(p, TIR_ABS, x), wide_y = tir_cast(p, DLC_F64, y);
    expr logarithm = tir_math_log2(p, magnitude);
    logarithm = tir_select(p, tir_eq(p, x, zero), f64(p, -INFINITY), logarithm);
    logarithm = tir_select(p, tir_lt(p, magnitude, infinity), logarithm, tir_cast(p, DLC_F64, magnitude));
    expr z = tir_mul(p, wide_y, logarithm);
    z = tir_select(p, tir_eq(p, logarithm, f64(p, 0.0)), f64(p, 0.0), z); /* |x| = 1, y infinite or NaN */
    expr result = tir_cast(p, DLC_F32, tir_math_exp2(p, z));

    expr half = tir_mul(p, y, f32(p, 0.5));
    expr whole = tir_eq(p, tir_unary(p, TIR_FLOOR, y), y);
    expr odd = tir_and(p, whole, tir_binary(p, TIR_NE, tir_unary(p, TIR_FLOOR, half), half));
    expr sign = tir_select(p, odd, tir_and(p, to_bits(p, x), u32(p, 0x80000000u)), u32(p, 0));
    result = to_float(p, tir_or(p, to_bits(p, result), sign));
    expr undefined = tir_and(p, tir_lt(p, x, zero), tir_lt(p, magnitude, infinity));
    undefined = tir_and(p, undefined, tir_unary(p, TIR_NOT, whole));
    result = tir_select(p, undefined, f32(p, NAN), result);
    return tir_select(p, tir_eq(p, y, zero), f32(p, 1.0), result);
}

/* ---- hyperbolic functions, their inverses, cube root: in f64, which cancels only near zero. There a short series
 * is used: each limit is where its error and that of f64's 2^-38 are both far below f32's. */

static expr near_zero(tir_pool *p, expr x, double limit, double cubic, expr otherwise) {
    expr near = with_sign_of(p, odd_series(p, x, tir_mul(p, x, x), &cubic, 1), x); /* -0 stays -0 */
    return tir_select(p, tir_lt(p, tir_unary(p, TIR_ABS, x), f32(p, limit)), near, otherwise);
}

/* (exp(|x|) +- exp(-|x|)) / 2 */
static expr hyperbolic(tir_pool *p, expr x, tir_op op) {
    expr z = tir_mul(p, tir_cast(p, DLC_F64, tir_unary(p, TIR_ABS, x)), f64(p, 1.44269504088896340736));
    expr power = tir_math_exp2(p, z), half = f64(p, 0.5);
    return tir_cast(p, DLC_F32, tir_binary(p, op, tir_mul(p, power, half), tir_div(p, half, power)));
}

static expr cosh_expand(tir_pool *p, expr x) {
    return hyperbolic(p, x, TIR_ADD);
}
static expr sinh_expand(tir_pool *p, expr x) {
    return near_zero(p, x, 0x1p-5, 1.0 / 6, with_sign_of(p, hyperbolic(p, x, TIR_SUB), x));
}

/* factor * ln(y) as f32 */
static expr log_wide(tir_pool *p, expr y, double factor) {
    return tir_cast(p, DLC_F32, tir_mul(p, tir_math_log2(p, y), f64(p, factor * 0.693147180559945309417)));
}

/* x + sqrt(x^2 + square) in f64: squares of f32 are exact there. */
static expr with_root(tir_pool *p, expr x, double square) {
    expr wide = tir_cast(p, DLC_F64, x);
    expr root = tir_unary(p, TIR_SQRT, tir_add(p, tir_mul(p, wide, wide), f64(p, square)));
    return tir_add(p, wide, root);
}

static expr asinh_expand(tir_pool *p, expr x) {
    expr magnitude = tir_unary(p, TIR_ABS, x);
    expr y = with_sign_of(p, log_wide(p, with_root(p, magnitude, 1.0), 1.0), x);
    y = tir_select(p, tir_lt(p, magnitude, f32(p, INFINITY)), y, x);
    return near_zero(p, x, 0x1p-6, -1.0 / 6, y);
}

static expr acosh_expand(tir_pool *p, expr x) {
    expr y = tir_select(p, tir_lt(p, x, f32(p, INFINITY)), log_wide(p, with_root(p, x, -1.0), 1.0), x);
    return tir_select(p, tir_lt(p, x, f32(p, 1.0)), f32(p, NAN), y);
}

static expr atanh_expand(tir_pool *p, expr x) {
    expr wide = tir_cast(p, DLC_F64, x), one = f64(p, 1.0), magnitude = tir_unary(p, TIR_ABS, x);
    expr ratio = tir_div(p, tir_add(p, one, wide), tir_sub(p, one, wide));
    expr edge = tir_select(p, tir_eq(p, magnitude, f32(p, 1.0)), with_sign_of(p, f32(p, INFINITY), x), f32(p, NAN));
    expr y = tir_select(p, tir_lt(p, magnitude, f32(p, 1.0)), log_wide(p, ratio, 0.5), edge);
    return near_zero(p, x, 0x1p-6, 1.0 / 3, y);
}

/* Dividing the exponent by three gives five bits; each step of Halley's method triples them. Denormals are scaled by 2^24 first,
 * the estimate by 2^-8. */
static expr cbrt_expand(tir_pool *p, expr x) {
    expr magnitude = tir_unary(p, TIR_ABS, x), small = tir_lt(p, magnitude, f32(p, 0x1p-126));
    expr normal = tir_select(p, small, tir_mul(p, magnitude, f32(p, 0x1p24)), magnitude);
    expr third = tir_binary(p, TIR_MULHI, to_bits(p, normal), u32(p, 0x55555556));
    expr guess = to_float(p, tir_add(p, third, tir_select(p, small, u32(p, 0x26510cf2), u32(p, 0x2a510cf2))));
    expr wide = tir_cast(p, DLC_F64, magnitude), t = tir_cast(p, DLC_F64, guess);
    for (int step = 0; step < 2; step++) {
        expr cube = tir_mul(p, tir_mul(p, t, t), t);
        expr above = tir_add(p, tir_add(p, wide, wide), cube), below = tir_add(p, wide, tir_add(p, cube, cube));
        t = tir_mul(p, t, tir_div(p, above, below));
    }
    expr y = with_sign_of(p, tir_cast(p, DLC_F32, t), x);
    expr ordinary = tir_and(p, tir_lt(p, f32(p, 0.0), magnitude), tir_lt(p, magnitude, f32(p, INFINITY)));
    return tir_select(p, ordinary, y, x);
}

/* ---- all */

tir_expr tir_math_expand(tir_pool *pool, tir_op op, const tir_expr *operands) {
    expr x = operands[0], wide = tir_dtype_of(pool, x) == DLC_F64 ? tir_math_expand_f64(pool, op, x) : 0;
    if (wide) return wide;
    switch (op) {
    case TIR_EXP: return exp_expand(pool, x);
    case TIR_EXPM1: return expm1_expand(pool, x);
    case TIR_LOG: return log_expand(pool, x);
    case TIR_LOG1P: return log1p_expand(pool, x);
    case TIR_SIN: return sin_expand(pool, x);
    case TIR_COS: return cos_expand(pool, x);
    case TIR_TANH: return tanh_expand(pool, x);
    case TIR_ERF: return erf_expand(pool, x);
    case TIR_LOGISTIC: return logistic_expand(pool, x);
    case TIR_NORMAL_CDF: return normal_cdf_expand(pool, x);
    case TIR_NORMAL_TAIL: return tir_math_normal_tail(pool, x);
    case TIR_ERFC: return tir_math_erfc(pool, x);
    case TIR_EXP2: return tir_math_power_of(pool, 2, x);
    case TIR_EXP10: return tir_math_power_of(pool, 10, x);
    case TIR_TAN: return tan_expand(pool, x);
    case TIR_ASIN: return asin_expand(pool, x);
    case TIR_ACOS: return acos_expand(pool, x);
    case TIR_ATAN: return atan_expand(pool, x);
    case TIR_SINH: return sinh_expand(pool, x);
    case TIR_COSH: return cosh_expand(pool, x);
    case TIR_ASINH: return asinh_expand(pool, x);
    case TIR_ACOSH: return acosh_expand(pool, x);
    case TIR_ATANH: return atanh_expand(pool, x);
    case TIR_CBRT: return cbrt_expand(pool, x);
    case TIR_SILU: return silu_expand(pool, x);
    case TIR_ATAN2: return atan2_expand(pool, x, operands[1]);
    case TIR_POW: return pow_expand(pool, x, operands[1]);
    default: lib_raise(pool->arena->scope, DLC_INTERNAL, "%s has no expansion", tir_ops[op].text);
    }
}
