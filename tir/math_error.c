/* The complement of the error function, the normal distribution function, the inverse error function (tir/math_special.h, tir/math.h).
 *
 * Tails: erfc(y) = exp(-y^2) erfcx(y) with erfcx(y) = h(t) / (y + k), t = (y - k) / (y + k), for all y >= 0 one polynomial h, fitted for
 * the relative error. y^2 is kept in two parts, the first of them exact: an absolute error of the exponent is a relative one of the
 * result. */
#include "tir/math_parts.h"
#include "tir/math_special.h"

#include "tir/arith.h"

#include <math.h>

static const double erfcx_narrow[] = {1.021582709,      -0.687160695,   0.279471756,    -0.03644184836,
                                      -0.02150555742,   0.006476441424, 0.003062136402, -0.0008339170985,
                                      -0.0005926424914, 4.898875117e-5, 7.057552644e-5};

static const double erfcx_wide[] = {
    1.09599566100049112,     -0.976548729080882079,     0.773208702265236804,     -0.540853831313224944,
    0.330851587878023909,    -0.174010937240290614,     0.0763815149091362172,    -0.0263700533346121574,
    0.00611205565692553285,  -0.000280958915877058074,  -0.000455052689873212438, 0.000176813086302383047,
    -3.63514554074045345e-6, -0.0000188617814968853875, 4.69432167670610678e-6,   1.4260810618890085e-6,
    -8.45995932997986863e-7, -7.79553845599069972e-8,   1.2393356067786507e-7,    2.58780619555532919e-9,
    -1.5395017425380457e-8,  -3.74108105377398727e-10,  1.02060748501629011e-9};

static const double cdf_narrow[] = {0.7290836904,    -0.5093319914,   0.2300176998,   -0.04726268759,
                                    -0.01046251819,  0.006969303361,  0.001024775311, -0.001032533173,
                                    -0.000244745739, 0.0001312700542, 5.446111157e-5};

static const double cdf_wide[] = {
    0.773769634276406766,     -0.685183420574338115,     0.535596489062495051,    -0.367049065293619522,
    0.217872432857938418,     -0.109703089958730723,     0.0450975808153500475,   -0.0139235105653870329,
    0.00244298266951194744,   0.000269603997167307118,   -0.00032452262048453175, 0.0000714148782082659882,
    0.0000163198650836388529, -0.0000121190195233431329, 4.46611795164823123e-7,  1.4841901061731434e-6,
    -2.68105297649654387e-7,  -1.78118502585400246e-7,   5.04283239438449464e-8,  2.34019658224490363e-8,
    -5.61218707139052554e-9,  -2.75208051809367028e-9,   -6.36699832437968768e-11};

static const double erf_near[] = {1.12837916709551257,     -0.376126389031837524,     0.112837916709551198,
                                  -0.0268661706451297354,  0.005223977625422104,      -0.000854832702185421374,
                                  0.000120553328993938826, -0.0000149256474659564853, 1.64620434208262378e-6,
                                  -1.63646145547528602e-7, 1.47921466098722657e-8,    -1.21630450130342099e-9,
                                  8.70379425061069686e-11, -4.22289409023881187e-12};

static const double erfinv_central[] = {1.50140935169252301,     0.24664027578677983,     -0.0041773246352669682,
                                        -0.00125270488210074568, 0.000218263555967087667, -4.99875483097445556e-6,
                                        -3.4260115212681764e-6,  4.79697087488906694e-7,  1.64571240876479453e-8,
                                        -1.1022942261789697e-8,  4.37037254050886724e-10, 1.32843778459514697e-10};

static const double erfinv_tail_narrow[] = {2.83297680145141363,     1.00167523664604314,      0.00944530326157999493,
                                            -0.00764276398152108178, 0.00568769873159031085,   -0.00356709276897120421,
                                            0.00147511112305579266,  -0.000120041543427680951, -0.000277493453816040028,
                                            0.00016055062295863803,  -0.0000295142211903223934};

static const double erfinv_tail_wide[] = {3.83978391361229483,      1.00949266261715958,       0.00125703692336798545,
                                          -0.000864636478687706147, 0.000331610162364391281,   -0.000127951757653883019,
                                          0.0000412381798544663165, -0.0000214799756920506169, 0.0000271885250661859485,
                                          -0.000015363862528773557, 1.04875155019672059e-6,    1.56497560896925804e-6,
                                          -3.51903153747273472e-7};

static expr like(tir_pool *p, expr x, double value) {
    return tir_float(p, tir_dtype_of(p, x), value);
}

/* The first 12 bits of an f32: products of two such numbers are exact. */
static expr first_half(tir_pool *p, expr x) {
    return tir_bitcast(p, DLC_F32, tir_and(p, tir_bitcast(p, DLC_U32, x), tir_bits(p, DLC_U32, 0xfffff000u)));
}

/* 1 / (y + k) as a pair: its error is amplified in the result. The residual of an estimate is exact, in f64 by Dekker's product, in f32
 * because the estimate is cut to 12 bits. */
static tir_pair inverse_of_sum(tir_pool *p, expr y, double k) {
    expr one = like(p, y, 1), limit = like(p, y, k), sum = tir_add(p, y, limit), part = tir_sub(p, sum, limit), rest;
    expr low = tir_add(p, tir_sub(p, limit, tir_sub(p, sum, part)), tir_sub(p, y, part)), q = tir_div(p, one, sum);
    if (tir_dtype_of(p, y) == DLC_F64) {
        tir_pair product = tir_pair_product(p, q, sum);
        rest = tir_sub(p, tir_sub(p, one, product.high), product.low);
    } else {
        expr first = first_half(p, sum);
        q = first_half(p, q);
        rest = tir_sub(p, tir_sub(p, one, tir_mul(p, q, first)), tir_mul(p, q, tir_sub(p, sum, first)));
        rest = tir_add(p, rest, tir_mul(p, rest, rest));
    }
    return (tir_pair){q, tir_mul(p, q, tir_sub(p, rest, tir_mul(p, q, low)))};
}

typedef struct tail_form {
    double k;
    const double *c;
    int count;
} tail_form;

/* h(t) / (y + k), y >= 0. */
static expr scaled_tail(tir_pool *p, expr y, const tail_form *form) {
    tir_pair inverse = inverse_of_sum(p, y, form->k);
    expr minus = like(p, y, -2 * form->k), t = tir_muladd(p, inverse.high, minus, like(p, y, 1));
    t = tir_muladd(p, inverse.low, minus, t);
    expr h = tir_math_polynomial(p, t, form->c, form->count);
    return tir_muladd(p, inverse.high, h, tir_mul(p, inverse.low, h));
}

/* exp(y^2) erfc(y), and exp(x^2/2) times the upper tail of the normal distribution; indexed by `wide`. */
static const tail_form erfcx[] = {{2, erfcx_narrow, COUNT(erfcx_narrow)}, {4, erfcx_wide, COUNT(erfcx_wide)}};
static const tail_form normal[] = {{3, cdf_narrow, COUNT(cdf_narrow)}, {5.5, cdf_wide, COUNT(cdf_wide)}};

/* factor exp(-scale a^2) in f32, |a| < 15: the square of 12 bits of a is exact. The polynomial is that of the logistic function. */
static expr times_gaussian_f32(tir_pool *p, expr factor, expr a, double scale) {
    static const double c[] = {1.0, 0.49999994, 0.166665196, 0.0416683964, 0.00836878549, 0.00138144556};
    expr first = first_half(p, a), minus = like(p, a, -scale), magic = like(p, a, 12582912.0);
    expr square = tir_mul(p, tir_mul(p, first, first), minus);
    expr rest = tir_mul(p, tir_mul(p, tir_sub(p, a, first), tir_add(p, a, first)), minus);
    expr n = tir_sub(p, tir_muladd(p, tir_add(p, square, rest), like(p, a, 1.44269504088896), magic), magic);
    expr r = tir_muladd(p, n, like(p, a, -0.693359375), square); /* ln 2, high part: 10 bits */
    r = tir_add(p, tir_muladd(p, n, like(p, a, 2.12194440e-4), r), rest);
    expr less_one =
        tir_mul(p, r, tir_math_polynomial(p, r, c, COUNT(c))); /* exp(r) - 1: its error is far below the result's */
    return tir_binary(p, TIR_LDEXP, tir_muladd(p, factor, less_one, factor), n);
}

/* The same in f64, |a| < 39. Scales by 2^n in two steps, of which the first is exact. */
static expr times_gaussian_f64(tir_pool *p, expr factor, expr a, double scale) {
    expr first = tir_math_first_bits(p, a), minus = like(p, a, -scale), n;
    expr rest = tir_mul(p, tir_mul(p, tir_sub(p, a, first), tir_add(p, a, first)), minus);
    tir_pair r = tir_math_reduce(p, tir_mul(p, tir_mul(p, first, first), minus), &n);
    r = tir_pair_sum(p, r.high, tir_add(p, r.low, rest));
    tir_pair m = tir_math_expm1_reduced(p, r);
    expr product = tir_add(p, factor, tir_mul(p, factor, tir_add(p, m.high, m.low)));
    expr most = tir_math_at_least(p, n, -1000);
    product = tir_mul(p, product, tir_math_power_of_two(p, most));
    return tir_mul(p, product, tir_math_power_of_two(p, tir_math_at_least(p, tir_sub(p, n, most), -1000)));
}

static expr times_gaussian(tir_pool *p, expr factor, expr a, double scale) {
    return tir_dtype_of(p, a) == DLC_F64 ? times_gaussian_f64(p, factor, a, scale)
                                         : times_gaussian_f32(p, factor, a, scale);
}

/* Beyond the limits the result is 0 to the last denormal number. */
tir_expr tir_math_erfc(tir_pool *p, expr x) {
    const bool wide = tir_dtype_of(p, x) == DLC_F64;
    expr a = tir_math_at_most(p, tir_unary(p, TIR_ABS, x), wide ? 27.4 : 10.25);
    expr tail = times_gaussian(p, scaled_tail(p, a, &erfcx[wide]), a, 1);
    return tir_select(p, tir_lt(p, x, like(p, x, 0)), tir_sub(p, like(p, x, 2), tail), tail);
}

/* erfc(-x / sqrt(2)) / 2, in a form of its own: the quotient would be rounded. */
tir_expr tir_math_normal_tail(tir_pool *p, expr x) {
    const bool wide = tir_dtype_of(p, x) == DLC_F64;
    expr a = tir_math_at_most(p, tir_unary(p, TIR_ABS, x), wide ? 38.7 : 14.5);
    expr tail = times_gaussian(p, scaled_tail(p, a, &normal[wide]), a, 0.5);
    return tir_select(p, tir_lt(p, like(p, x, 0), x), tir_sub(p, like(p, x, 1), tail), tail);
}

/* In terms of w = -log(1 - x^2), as Giles (2010): x P(w - 2.5) below 5, else x Q(sqrt(w) - c). */
static expr erfinv_estimate(tir_pool *p, expr x, bool precise) {
    const double *tail = precise ? erfinv_tail_wide : erfinv_tail_narrow, center = precise ? 4 : 3;
    expr one = like(p, x, 1), rest = tir_mul(p, tir_sub(p, one, x), tir_add(p, one, x));
    expr w = tir_mul(p, tir_math_log2(p, rest), like(p, x, -0.693147180559945309417));
    expr near = tir_math_polynomial(p, tir_sub(p, w, like(p, x, 2.5)), erfinv_central, COUNT(erfinv_central));
    expr s = tir_sub(p, tir_unary(p, TIR_SQRT, tir_math_at_least(p, w, 0)), like(p, x, center));
    expr far = tir_math_polynomial(p, s, tail, precise ? COUNT(erfinv_tail_wide) : COUNT(erfinv_tail_narrow));
    return tir_mul(p, x, tir_select(p, tir_lt(p, w, like(p, x, 5)), near, far));
}

/* A step of Halley's method for erf(y) = x, x >= 0; for large y for erfc(y) = 1 - x, which is exact. */
static expr erfinv_step(tir_pool *p, expr x, expr y) {
    expr one = like(p, x, 1), z = tir_mul(p, y, y);
    expr near = tir_sub(p, tir_mul(p, y, tir_math_polynomial(p, z, erf_near, COUNT(erf_near))), x);
    expr bell = times_gaussian(p, one, y, 1),
         far = tir_sub(p, tir_sub(p, one, x), tir_mul(p, bell, scaled_tail(p, y, &erfcx[1])));
    expr error = tir_select(p, tir_lt(p, y, one), near, far);
    expr u = tir_div(p, error, tir_mul(p, bell, like(p, x, 1.12837916709551257390)));
    return tir_sub(p, y, tir_div(p, u, tir_muladd(p, y, u, one)));
}

tir_expr tir_math_erfinv(tir_pool *p, expr x) {
    const tir_dtype dtype = tir_dtype_of(p, x);
    const bool precise = dtype == DLC_F64;
    expr magnitude = tir_unary(p, TIR_ABS, x), one = like(p, x, 1), wide = tir_cast(p, DLC_F64, magnitude);
    expr y = erfinv_estimate(p, wide, precise);
    if (precise) y = erfinv_step(p, wide, y);
    y = tir_math_with_sign(p, y, tir_cast(p, DLC_F64, x));
    expr edge = tir_select(p, tir_eq(p, magnitude, one), tir_mul(p, x, like(p, x, INFINITY)), like(p, x, NAN));
    return tir_select(p, tir_lt(p, magnitude, one), tir_cast(p, dtype, y), edge);
}
