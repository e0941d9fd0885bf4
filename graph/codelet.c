/* Transforms of a few points; see codelet.h. Results share common sub-expressions. */
#include "graph/codelet.h"

#include <math.h>

/* The sine, or the cosine, of k/n of a turn, 0 <= k/n <= 1/8. */
static double eighth(int64_t k, int64_t n, bool cosine) {
    double angle = 6.283185307179586476925 * (double)k / (double)n;
    if (8 * k == n) return 0.70710678118654752440;
    return cosine ? cos(angle) : sin(angle);
}

double graph_turn_sine(int64_t k, int64_t n) {
    k = (k % n + n) % n;
    if (2 * k >= n) return 2 * k == n ? 0 : -graph_turn_sine(n - k, n); /* by symmetry about half a turn */
    if (4 * k > n) return graph_turn_sine(n - 2 * k, 2 * n);            /* by symmetry about a quarter turn */
    return 8 * k > n ? eighth(n - 4 * k, 4 * n, true) : eighth(k, n, false);
}

double graph_turn_cosine(int64_t k, int64_t n) {
    return graph_turn_sine(4 * k + n, 4 * n);
}

typedef struct codelet {
    tir_pool *pool;
    tir_dtype dtype;
    int sign;
} codelet;

static tir_expr number(const codelet *c, double value) {
    return tir_float(c->pool, c->dtype, value);
}

static tir_expr negative(const codelet *c, tir_expr x) {
    return x ? tir_unary(c->pool, TIR_NEG, x) : 0;
}

/* Sum and difference; expression 0 is an absent term. */
static tir_expr plus(const codelet *c, tir_expr a, tir_expr b) {
    return a && b ? tir_add(c->pool, a, b) : a ? a : b;
}
static tir_expr minus(const codelet *c, tir_expr a, tir_expr b) {
    return a && b ? tir_sub(c->pool, a, b) : a ? a : negative(c, b);
}
static graph_complex add(const codelet *c, graph_complex a, graph_complex b) {
    return (graph_complex){plus(c, a.re, b.re), plus(c, a.im, b.im)};
}
static graph_complex subtract(const codelet *c, graph_complex a, graph_complex b) {
    return (graph_complex){minus(c, a.re, b.re), minus(c, a.im, b.im)};
}

/* x times exp(sign 2 pi i k / n) */
static graph_complex rotate(const codelet *c, graph_complex x, int64_t k, int64_t n) {
    double re = graph_turn_cosine(k, n), im = c->sign * graph_turn_sine(k, n);
    if (im == 0) return re > 0 ? x : (graph_complex){negative(c, x.re), negative(c, x.im)};
    if (re == 0) return im > 0 ? (graph_complex){negative(c, x.im), x.re} : (graph_complex){x.im, negative(c, x.re)};
    if (!x.im) return (graph_complex){tir_mul(c->pool, x.re, number(c, re)), tir_mul(c->pool, x.re, number(c, im))};
    if (re == im || re == -im) { /* one factor of both parts */
        bool alike = re == im;
        tir_expr sum = tir_add(c->pool, x.re, x.im), difference = tir_sub(c->pool, x.re, x.im);
        return (graph_complex){tir_mul(c->pool, alike ? difference : sum, number(c, re)),
                               tir_mul(c->pool, alike ? sum : difference, number(c, alike ? re : im))};
    }
    tir_expr r = number(c, re), i = number(c, im);
    return (graph_complex){tir_muladd(c->pool, x.re, r, tir_mul(c->pool, x.im, number(c, -im))),
                           tir_muladd(c->pool, x.re, i, tir_mul(c->pool, x.im, r))};
}

/* The transform of a prime number n of points: sums a[j] = x[j] + x[n-j] are multiplied by cosines, differences b[j] = x[j] - x[n-j] by
 * sines. */
static void prime_points(const codelet *c, int n, const graph_complex *x, graph_complex *y) {
    graph_complex a[GRAPH_CODELET_MAX], b[GRAPH_CODELET_MAX];
    int half = (n - 1) / 2;
    y[0] = x[0];
    for (int j = 1; j <= half; j++) {
        a[j] = add(c, x[j], x[n - j]);
        b[j] = subtract(c, x[j], x[n - j]);
        y[0] = add(c, y[0], a[j]);
    }
    for (int k = 1; k <= half; k++) {
        graph_complex even = x[0], odd = {0};
        for (int j = 1; j <= half; j++) {
            tir_expr cosine = number(c, graph_turn_cosine((int64_t)j * k, n)),
                     sine = number(c, c->sign * graph_turn_sine((int64_t)j * k, n));
            even.re = tir_muladd(c->pool, a[j].re, cosine, even.re);
            if (a[j].im) even.im = tir_muladd(c->pool, a[j].im, cosine, even.im);
            odd.re = odd.re ? tir_muladd(c->pool, b[j].re, sine, odd.re) : tir_mul(c->pool, b[j].re, sine);
            if (!b[j].im) continue;
            odd.im = odd.im ? tir_muladd(c->pool, b[j].im, sine, odd.im) : tir_mul(c->pool, b[j].im, sine);
        }
        graph_complex turned = {negative(c, odd.im), odd.re}; /* times i */
        y[k] = (graph_complex){minus(c, even.re, odd.im), plus(c, even.im, odd.re)};
        y[n - k] = subtract(c, even, turned);
        if (odd.im) y[n - k].re = tir_add(c->pool, even.re, odd.im);
    }
}

/* A factor of n: 4 if n is a larger multiple of 4, since transforms of 4 points need no multiplications, else the least one; 1: n is
 * prime. */
static int factor_of(int n) {
    if (n % 4 == 0 && n > 4) return 4;
    for (int f = 2; f * f <= n; f++)
        if (n % f == 0) return f;
    return 1;
}

static void points(const codelet *c, int n, const graph_complex *x, graph_complex *y) {
    int a = factor_of(n), b = n / a;
    if (n == 1) y[0] = x[0];
    if (n == 2) y[0] = add(c, x[0], x[1]), y[1] = subtract(c, x[0], x[1]);
    if (n <= 2) return;
    if (a == 1) {
        prime_points(c, n, x, y);
        return;
    }
    graph_complex from[GRAPH_CODELET_MAX], part[GRAPH_CODELET_MAX], to[GRAPH_CODELET_MAX];
    for (int j = 0; j < a; j++) { /* transform of every a-th point, then rotations */
        for (int i = 0; i < b; i++) from[i] = x[j + a * i];
        points(c, b, from, &part[j * b]);
        for (int k = 1; k < b && j > 0; k++) part[j * b + k] = rotate(c, part[j * b + k], (int64_t)j * k, n);
    }
    for (int k = 0; k < b; k++) {
        for (int j = 0; j < a; j++) from[j] = part[j * b + k];
        points(c, a, from, to);
        for (int i = 0; i < a; i++) y[k + b * i] = to[i];
    }
}

void graph_codelet(tir_pool *pool, tir_dtype dtype, int n, int sign, const graph_complex *x, graph_complex *y) {
    const codelet c = {pool, dtype, sign};
    points(&c, n, x, y);
}
