/* Functions missing in libm, in long double, by independent definitions: for the references of rows and the test of their
 * published errors. */
#ifndef GRAPH_SPECIAL_REFERENCE_H
#define GRAPH_SPECIAL_REFERENCE_H

#include <math.h>

#define SPECIAL_PI 3.14159265358979323846264338327950288L

/* Reduces x by an even number, which is exact. */
static inline long double special_sinc(long double x) {
    const long double a = fabsl(x), r = fmodl(a, 2);
    if (a == 0) return 1;
    const long double sine = r > 1.5L   ? sinl(SPECIAL_PI * (r - 2))
                             : r > 0.5L ? sinl(SPECIAL_PI * (1 - r))
                                        : sinl(SPECIAL_PI * r);
    return sine / (SPECIAL_PI * a);
}

static inline long double special_log_add_exp(long double x, long double y) {
    if (isnan(x) || isnan(y)) return NAN;
    const long double a = x > y ? x : y, b = x > y ? y : x;
    return a == b ? a + logl(2) : a + log1pl(expl(b - a));
}

static inline long double special_normal_cdf(long double x) {
    return 0.5L * erfcl(-x * 0.70710678118654752440084436210485L);
}

/* Newton's method on erf, or, if it is near 1, on erfc, for which 1 - x is exact. */
static inline long double special_erfinv(long double x) {
    const long double a = fabsl(x), slope = 1.12837916709551257389615890312154517L;
    if (!(a < 1)) return a == 1 ? copysignl(HUGE_VALL, x) : (long double)NAN;
    long double y = a < 0.9L ? a * 0.9L : sqrtl(-logl(1 - a)) * 0.9L;
    for (int i = 0; i < 200; i++) {
        long double error = a < 0.5L ? erfl(y) - a : (1 - a) - erfcl(y), step = error / (slope * expl(-y * y));
        step = fminl(fmaxl(step / (1 + y * step), -0.5L), 0.5L);
        y -= step;
        if (fabsl(step) <= fabsl(y) * 1e-19L) break;
    }
    return copysignl(y, x);
}

/* From 40 on, the first terms of the asymptotic series suffice. */
static inline long double special_digamma(long double x) {
    long double sum = 0;
    if (x == 0) return -1 / x;
    if (isinf(x)) return x > 0 ? x : (long double)NAN;
    if (x < 0) {
        long double r = fmodl(x, 1);
        if (r == 0) return NAN;
        if (fabsl(r) > 0.5L) r -= copysignl(1, r);
        sum = -SPECIAL_PI * cosl(SPECIAL_PI * r) / sinl(SPECIAL_PI * r);
        sum -= 1 / x; /* by 1 - x, avoiding its rounding error */
        x = -x;
    }
    for (; x < 40; x++) sum -= 1 / x;
    const long double z = 1 / (x * x);
    const long double tail =
        1 / 12.0L - z * (1 / 120.0L - z * (1 / 252.0L - z * (1 / 240.0L - z * (1 / 132.0L - z * 691 / 32760.0L))));
    return sum + logl(x) - 0.5L / x - z * tail;
}

/* Up to 40 by the power series, whose terms are positive; beyond by the asymptotic series. */
static inline long double special_bessel(int order, int scaled, long double x0) {
    const long double x = fabsl(x0);
    long double sum = 1, term = 1, result;
    if (isnan(x0)) return x0;
    if (x < 40) {
        for (int k = 1; k < 300 && term > sum * 1e-21L; k++) sum += term *= x * x / 4 / ((long double)k * (k + order));
        result = (order ? sum * x / 2 : sum) * (scaled ? expl(-x) : 1);
    } else {
        for (int k = 1; k < 40 && fabsl(term) > 1e-22L; k++)
            sum += term *= -(4.0L * order * order - (2.0L * k - 1) * (2.0L * k - 1)) / (8 * k * x);
        const long double root = sum / sqrtl(2 * SPECIAL_PI * x);
        result = isinf(x0) ? (scaled ? 0 : HUGE_VALL) : scaled ? root : root * expl(x);
    }
    return order ? copysignl(result, x0) : result;
}

/* Is the function undefined at a and x: a negative or no number, or a limit that depends on the way there? */
static inline int special_gammainc_is_undefined(long double a, long double x) {
    return isnan(a) || isnan(x) || a < 0 || x < 0 || (a == 0 && x == 0) || (isinf(a) && isinf(x));
}

/* By the series of the lower function, or by 10,000 steps from the end of the continued fraction of the upper one (Abramowitz and Stegun 6.5.31). */
static inline long double special_gammainc(long double a, long double x, int upper) {
    if (special_gammainc_is_undefined(a, x)) return NAN;
    if (x == 0 || isinf(a)) return upper;
    if (isinf(x) || a == 0) return !upper;
    const long double factor = expl(a * logl(x) - x - lgammal(a + 1));
    if (x < a + 1) {
        long double sum = 1, term = 1;
        for (int n = 1; term > sum * 1e-21L && n < 1000000; n++) sum += term *= x / (a + n);
        return upper ? 1 - factor * sum : factor * sum;
    }
    long double tail = 0;
    for (int n = 10000; n > 0; n--) tail = n * (n - a) / (x + 1 - a + 2 * n - tail);
    const long double part = factor * a / (x + 1 - a - tail);
    return upper ? part : 1 - part;
}

#endif
