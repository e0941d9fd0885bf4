/* Modified Bessel functions of the first kind, orders 0 and 1 (tir/math_special.h): up to 8 a polynomial in x^2/4, whose coefficients are
 * those of the series except the last ones; above, exp(x)/sqrt(x) times a polynomial in 1/x. f32 is computed in f64. */
#include "tir/math_parts.h"
#include "tir/math_special.h"

#include "tir/arith.h"

#include <math.h>

static const double i0_near_narrow[] = {0.999999991130664531,   1.00000022367980216,    0.24999918864817791,
                                        0.0277788040950939296,  0.00173550457211017287, 0.0000696370248628764958,
                                        1.89380277743639658e-6, 4.31578443683967757e-8, 3.81160932585957846e-10,
                                        1.49839068805745455e-11};

static const double i0_near_wide[] = {
    0.999999999999999999,    1.00000000000000005,      0.24999999999999963,     0.0277777777777788848,
    0.00173611111110945098,  0.0000694444444458935829, 1.92901234487484276e-6,  3.93675991914553881e-8,
    6.15118654628996199e-10, 7.59407290141363223e-12,  7.59386497579924457e-14, 6.27794572533083181e-16,
    4.34558785491835891e-18, 2.63976530513742698e-20,  1.12720882864725611e-22, 9.19879824139625899e-25};

static const double i0_far_narrow[] = {0.40217650939755077,      0.00336055554793765227, 0.000136217410914727305,
                                       0.0000111127728055004763, 1.47563795660260445e-6, 3.62161692294781343e-7,
                                       1.08927449459848857e-7};

static const double i0_far_wide[] = {
    0.402176509445008083,    0.003360551983667845,    0.000136216074390175696, 0.0000111430337923903505,
    1.48384765200615431e-6,  2.97359820552176819e-7,  8.87205485054446149e-8,  3.93263078359754585e-8,
    2.15646135843347336e-8,  7.55156554457527549e-9,  -6.84169255614952403e-9, -1.33960757174731407e-8,
    -5.06035364431458588e-9, 7.51874078839228309e-9,  6.60170684047908969e-9,  -3.44755722627834187e-9,
    -4.62544153570120213e-9, 1.45440425389586672e-9,  2.23406691323042053e-9,  -5.25243572506341086e-10,
    -6.7898212219671871e-10, 1.34164498124817124e-10, 9.64970361127436735e-11, -1.70065914783976329e-11};

static const double i1_near_narrow[] = {0.999999997949036621,   0.500000041704440781,    0.083333205608157388,
                                        0.0069445858946808628,  0.000347147016295054264, 0.0000115960028116322404,
                                        2.71832577272419497e-7, 5.30135980869794733e-9,  4.59321196915554734e-11,
                                        1.44206579206523633e-12};

static const double i1_near_wide[] = {1.0,
                                      0.500000000000000006,
                                      0.0833333333333332907,
                                      0.00694444444444455921,
                                      0.000347222222222064748,
                                      0.0000115740740742015164,
                                      2.75573192173593362e-7,
                                      4.92094988479332608e-9,
                                      6.83465200675569591e-11,
                                      7.5940687004825929e-13,
                                      6.90355736225367718e-15,
                                      5.23129819519016911e-17,
                                      3.34441318689058647e-19,
                                      1.87998436241024998e-21,
                                      7.62539627989812601e-24,
                                      5.65062438502672245e-26};

static const double i1_far_narrow[] = {0.389398459107456658,      -0.00974958121499928513, -0.00021923783357775314,
                                       -0.0000150046046918760105, -1.8239942381476985e-6,  -4.20517134259746677e-7,
                                       -1.23787870180712194e-7};

static const double i1_far_wide[] = {
    0.389398459025872322,    -0.00974957719323572482,  -0.000219235763832054402, -0.0000150385472015724615,
    -1.83491022266940236e-6, -3.48385549919295248e-7,  -1.00011163011670031e-7,  -4.31294924087354068e-8,
    -2.33908521641851549e-8, -8.42565842646906985e-9,  6.83243117981279502e-9,   1.40256259061448208e-8,
    5.61579275426197314e-9,  -7.6197939337791071e-9,   -7.02572627762491493e-9,  3.38736919842216193e-9,
    4.86085789213028968e-9,  -1.39515928711398868e-9,  -2.33444993409847656e-9,  4.98905582350120107e-10,
    7.07474070182098366e-10, -1.27821910025022247e-10, -1.00390076746090203e-10, 1.63718564206711952e-11};

typedef struct table {
    const double *near, *far;
    int near_count, far_count;
} table;
#define TABLE(name, kind) \
    { name##_near_##kind, name##_far_##kind, COUNT(name##_near_##kind), COUNT(name##_far_##kind) }
static const table tables[2][2] = {{TABLE(i0, narrow), TABLE(i0, wide)}, {TABLE(i1, narrow), TABLE(i1, wide)}};

static expr number(tir_pool *p, double value) {
    return tir_float(p, DLC_F64, value);
}

/* factor exp(x), |x| <= 720; for f32 only to 2^-33. */
static expr times_exp(tir_pool *p, expr factor, expr x, bool precise) {
    if (!precise) {
        expr root = tir_math_exp2(p, tir_mul(p, x, number(p, 0.72134752044448170368))); /* of exp(x/2) */
        return tir_mul(p, tir_mul(p, factor, root), root);
    }
    expr n;
    tir_pair m = tir_math_expm1_reduced(p, tir_math_reduce(p, x, &n));
    expr half = tir_math_nearest(p, tir_mul(p, n, number(p, 0.5)));
    factor = tir_add(p, factor, tir_mul(p, factor, tir_add(p, m.high, m.low)));
    factor = tir_mul(p, factor, tir_math_power_of_two(p, half));
    return tir_mul(p, factor, tir_math_power_of_two(p, tir_sub(p, n, half)));
}

tir_expr tir_math_bessel(tir_pool *p, int order, bool scaled, expr x) {
    enum { NEAR = 8, OVERFLOW = 720 };
    const tir_dtype dtype = tir_dtype_of(p, x);
    const bool precise = dtype == DLC_F64;
    const table *t = &tables[order][precise];
    expr wide = tir_cast(p, DLC_F64, x), a = tir_unary(p, TIR_ABS, wide), limit = number(p, NEAR),
         half = tir_mul(p, a, number(p, 0.5));
    expr is_near = tir_lt(p, a, limit), small = tir_mul(p, half, half);
    expr near = tir_math_polynomial(p, small, t->near, t->near_count);
    if (order) near = tir_mul(p, near, half);
    expr beyond = tir_select(p, is_near, limit, a), u = tir_sub(p, tir_div(p, number(p, 16), beyond), number(p, 1));
    expr far = tir_div(p, tir_math_polynomial(p, u, t->far, t->far_count), tir_unary(p, TIR_SQRT, beyond));
    if (scaled)
        near = times_exp(p, near, tir_unary(p, TIR_NEG, tir_math_at_most(p, a, NEAR)), precise);
    else
        far = times_exp(p, far, tir_math_at_most(p, a, OVERFLOW), precise);
    expr y = tir_select(p, is_near, near, far);
    if (!scaled) y = tir_select(p, tir_lt(p, number(p, OVERFLOW), a), number(p, INFINITY), y);
    if (order) y = tir_math_with_sign(p, y, wide);
    return tir_cast(p, dtype, tir_select(p, tir_binary(p, TIR_NE, a, a), wide, y));
}
