/* Logarithm of the gamma function and its derivative (tir/math_special.h).
 *
 * f32 is computed in f64 with logarithms of 38 bits; f64 with the machine's log. Negative arguments use the reflection formula with
 * sin(pi x), whose argument is reduced exactly. Near zeros of the functions the error is small relative to 1 (lgamma: also to
 * lgamma(|x|)), not to the result. */
#include "tir/math_parts.h"
#include "tir/math_special.h"

#include "tir/arith.h"

#include <math.h>

/* log(gamma(2 + z)) / z; sin(pi r) / r and (cos(pi r) - 1) / r^2 in r^2; |z|, |r| <= 1/2. */
static const double log_gamma_narrow[] = {0.42278433451282499,     0.322467018759495256,    -0.0673522188537060605,
                                          0.0205816023716231626,   -0.00738742689360299025, 0.00287905411499676313,
                                          -0.00117784195107009248, 0.000569826338076084116, -0.000269853381134045581};

static const double log_gamma_wide[] = {
    0.422784335098467139,     0.322467033424113217,     -0.067352301053198137,     0.020580808427784927,
    -0.00738555102866840041,  0.00289051033071356362,   -0.00119275391199095124,   0.00050966952569039365,
    -0.000223154750951477006, 0.0000994574951492277132, -0.0000449263487287005352, 0.000020507409412043737,
    -9.43847479107332624e-6,  4.37350126461651333e-6,   -2.04485670930917579e-6,   9.61060934525937811e-7,
    -4.30490930950052173e-7,  1.96659587879348628e-7,   -1.34008358796737024e-7,   6.91697771801293211e-8};

static const double sine_of_turns[] = {3.14159265358979324,     -5.16771278004996953,      2.55016403987729395,
                                       -0.599264529318738543,   0.0821458865698967497,     -0.00737043047879208334,
                                       0.000466299688893586546, -0.0000219031856801721698, 7.69472962512811237e-7};

static const double cosine_of_turns[] = {-4.93480220054467931,     4.05871212641676815,    -1.33526276885458243,
                                         0.235330630358602708,     -0.0258068913840331985, 0.00192957424021757297,
                                         -0.000104637634579231472, 4.30120430789463679e-6, -1.3479113536553157e-7};

static expr number(tir_pool *p, double value) {
    return tir_float(p, DLC_F64, value);
}

/* log(x), finite x > 0. */
static expr logarithm(tir_pool *p, expr x, bool precise) {
    if (precise) return tir_unary(p, TIR_LOG, x);
    return tir_mul(p, tir_math_log2(p, x), number(p, 0.693147180559945309417));
}

tir_expr tir_math_sin_turns(tir_pool *p, expr r) {
    return tir_mul(p, r, tir_math_polynomial(p, tir_mul(p, r, r), sine_of_turns, COUNT(sine_of_turns)));
}
static expr cos_turns(tir_pool *p, expr r) {
    expr z = tir_mul(p, r, r);
    return tir_muladd(p, z, tir_math_polynomial(p, z, cosine_of_turns, COUNT(cosine_of_turns)), number(p, 1));
}

/* The number of terms of a series that f32 needs, for a relative error of 2^-38. */
static int terms_of(bool precise, int all, int few) {
    return precise ? all : few;
}

/* log(gamma(x)), x > 0. Below 8: shifted to 3/2 .. 5/2 by gamma(x + 1) = x gamma(x), one logarithm of the product; from 8 on Stirling's
 * series. */
static expr log_gamma(tir_pool *p, expr x, bool precise) {
    static const double series[] = {1.0 / 12,         -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                    1.0 / 1188,       -691.0 / 360360,   1.0 / 156,  -3617.0 / 122400,
                                    43867.0 / 244188, -174611.0 / 125400};
    expr one = number(p, 1), half = number(p, 0.5), above = number(p, 1.5), product = one, z = x;
    for (int k = 1; k <= 6; k++) {
        expr term = tir_sub(p, x, number(p, k)), taken = tir_le(p, above, term);
        product = tir_select(p, taken, tir_mul(p, product, term), product);
        z = tir_select(p, taken, term, z);
    }
    expr low = tir_lt(p, x, above), lowest = tir_lt(p, x, half), far = tir_le(p, number(p, 8), x);
    expr below = tir_select(p, lowest, tir_mul(p, x, tir_add(p, x, one)), x);
    z = tir_select(p, low, tir_select(p, lowest, x, tir_sub(p, x, one)), tir_sub(p, z, number(p, 2)));
    expr argument = tir_select(p, far, x, tir_select(p, low, below, product)), log = logarithm(p, argument, precise);
    const double *c = precise ? log_gamma_wide : log_gamma_narrow;
    expr near = tir_mul(p, z, tir_math_polynomial(p, z, c, precise ? COUNT(log_gamma_wide) : COUNT(log_gamma_narrow)));
    near = tir_select(p, low, tir_sub(p, near, log), tir_add(p, near, log));
    expr inverse = tir_div(p, one, x), square = tir_mul(p, inverse, inverse);
    expr rest = tir_muladd(p, inverse, tir_math_polynomial(p, square, series, terms_of(precise, COUNT(series), 4)),
                           number(p, 0.41893853320467274178));
    expr beyond = tir_muladd(p, tir_sub(p, x, half), tir_sub(p, log, one), rest);
    return tir_select(p, far, beyond, near);
}

/* Negative arguments: gamma(-a) gamma(1 + a) = -pi / sin(pi a). */
tir_expr tir_math_lgamma(tir_pool *p, expr x) {
    const tir_dtype dtype = tir_dtype_of(p, x);
    const bool precise = dtype == DLC_F64;
    expr wide = tir_cast(p, DLC_F64, x), a = tir_unary(p, TIR_ABS, wide), zero = number(p, 0),
         infinite = number(p, INFINITY);
    expr negative = tir_lt(p, wide, zero), r = tir_sub(p, a, tir_unary(p, TIR_ROUND, a));
    expr upper = log_gamma(p, tir_select(p, negative, tir_add(p, a, number(p, 1)), a), precise);
    expr sine = tir_math_sin_turns(p, tir_unary(p, TIR_ABS, r));
    expr lower = tir_sub(p, number(p, 1.14472988584940017414), logarithm(p, sine, precise));
    expr y = tir_select(p, negative, tir_sub(p, lower, upper), upper);
    expr pole = tir_or(p, tir_eq(p, a, zero), tir_and(p, negative, tir_eq(p, r, zero)));
    pole = tir_or(p, pole, tir_eq(p, a, infinite));
    y = tir_select(p, pole, infinite, y);
    return tir_cast(p, dtype, tir_select(p, tir_binary(p, TIR_NE, a, a), wide, y));
}

/* Digamma of x > 0 by an asymptotic series; below 8, that of x + 8 minus the inverses of x .. x + 7, in pairs (x + k, x + 7 - k). */
static expr digamma_core(tir_pool *p, expr x, bool precise) {
    static const double series[] = {1.0 / 12,        -1.0 / 120,       1.0 / 252,    -1.0 / 240,
                                    1.0 / 132,       -691.0 / 32760,   1.0 / 12,     -3617.0 / 8160,
                                    43867.0 / 14364, -174611.0 / 6600, 77683.0 / 276};
    static const double between[] = {0, 6, 10, 12};
    expr one = number(p, 1), near = tir_lt(p, x, number(p, 8)), seven = number(p, 7), sum = 0;
    expr c = tir_select(p, near, tir_add(p, x, number(p, 8)), x), u = tir_mul(p, x, tir_add(p, x, seven));
    for (int k = COUNT(between) - 1; k >= 0; k--) {
        expr inverse = tir_div(p, one, tir_add(p, u, number(p, between[k])));
        sum = sum ? tir_add(p, sum, inverse) : inverse;
    }
    sum = tir_mul(p, sum, tir_add(p, tir_add(p, x, x), seven));
    expr inverse = tir_div(p, one, c), square = tir_mul(p, inverse, inverse);
    expr tail = tir_mul(p, square, tir_math_polynomial(p, square, series, terms_of(precise, COUNT(series), 5)));
    tail = tir_muladd(p, inverse, number(p, 0.5), tail);
    expr y = tir_sub(p, logarithm(p, c, precise), tail);
    return tir_select(p, near, tir_sub(p, y, sum), y);
}

/* Negative arguments: digamma(1 + a), and pi / tan(pi a). */
tir_expr tir_math_digamma(tir_pool *p, expr x) {
    const tir_dtype dtype = tir_dtype_of(p, x);
    const bool precise = dtype == DLC_F64;
    expr wide = tir_cast(p, DLC_F64, x), a = tir_unary(p, TIR_ABS, wide), zero = number(p, 0), one = number(p, 1);
    expr negative = tir_lt(p, wide, zero), r = tir_sub(p, a, tir_unary(p, TIR_ROUND, a));
    expr argument = tir_select(p, negative, tir_add(p, a, one), a), infinite = number(p, INFINITY);
    argument = tir_select(p, tir_lt(p, argument, infinite), argument, one);
    expr upper = digamma_core(p, argument, precise);
    expr cotangent =
        tir_div(p, tir_mul(p, cos_turns(p, r), number(p, 3.14159265358979323846)), tir_math_sin_turns(p, r));
    cotangent = tir_select(p, tir_eq(p, r, zero), number(p, NAN), cotangent);
    expr y = tir_select(p, negative, tir_add(p, upper, cotangent), upper);
    y = tir_select(p, tir_eq(p, a, zero), tir_div(p, number(p, -1), wide), y);
    expr beyond = tir_select(p, tir_lt(p, zero, wide), wide, number(p, NAN));
    return tir_cast(p, dtype, tir_select(p, tir_lt(p, a, infinite), y, beyond));
}
