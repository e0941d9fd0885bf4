/* Derivatives of scalar expressions; see derivative.h. Formulas: Abramowitz & Stegun 1964, chapters 4 and 7. */
#include "tir/derivative.h"

/* An expression of the dtype of the node, from its operands a and b, its value y, and numbers. */
typedef struct terms {
    tir_pool *pool;
    tir_dtype dtype;
    tir_expr a, b, y;
} terms;

static tir_expr number(const terms *t, double value) {
    return tir_float(t->pool, t->dtype, value);
}
static tir_expr unary(const terms *t, tir_op op, tir_expr x) {
    return tir_unary(t->pool, op, x);
}
static tir_expr times(const terms *t, tir_expr a, tir_expr b) {
    return tir_mul(t->pool, a, b);
}
static tir_expr scaled(const terms *t, double factor, tir_expr x) {
    return times(t, number(t, factor), x);
}
static tir_expr over(const terms *t, tir_expr a, tir_expr b) {
    return tir_div(t->pool, a, b);
}
static tir_expr square(const terms *t, tir_expr x) {
    return times(t, x, x);
}
static tir_expr negative(const terms *t, tir_expr x) {
    return unary(t, TIR_NEG, x);
}
/* 1 + x, 1 - x, x - 1 */
static tir_expr one_plus(const terms *t, tir_expr x) {
    return tir_add(t->pool, number(t, 1), x);
}
static tir_expr one_minus(const terms *t, tir_expr x) {
    return tir_sub(t->pool, number(t, 1), x);
}
static tir_expr minus_one(const terms *t, tir_expr x) {
    return tir_sub(t->pool, x, number(t, 1));
}
static tir_expr one_over(const terms *t, tir_expr x) {
    return over(t, number(t, 1), x);
}
static tir_expr one_over_root(const terms *t, tir_expr x) {
    return one_over(t, unary(t, TIR_SQRT, x));
}
static tir_expr when(const terms *t, tir_expr condition, tir_expr x, tir_expr otherwise) {
    return tir_select(t->pool, condition, x, otherwise);
}
/* 1 where a is less (`below`), or greater, than b, 1/2 where neither is. */
static tir_expr chosen(const terms *t, tir_expr below, tir_expr above) {
    return when(t, tir_lt(t->pool, below, above), number(t, 1),
                when(t, tir_lt(t->pool, above, below), number(t, 0), number(t, 0.5)));
}
/* factor * exp(-x*x) and factor * exp(-x*x/2): densities */
static tir_expr gauss(const terms *t, double factor, double exponent) {
    return scaled(t, factor, unary(t, TIR_EXP, scaled(t, exponent, square(t, t->a))));
}

static const double two_over_root_pi = 1.1283791670955126, one_over_root_two_pi = 0.3989422804014327,
                    natural_log_of_2 = 0.6931471805599453, natural_log_of_10 = 2.302585092994046;

static tir_expr partial_pow(const terms *t, int operand) {
    tir_expr zero = number(t, 0);
    if (operand == 0) {
        tir_expr lower = tir_binary(t->pool, TIR_POW, t->a, minus_one(t, t->b));
        return when(t, tir_eq(t->pool, t->b, zero), zero, times(t, t->b, lower));
    }
    return when(t, tir_lt(t->pool, zero, t->a), times(t, t->y, unary(t, TIR_LOG, t->a)), zero);
}

static tir_expr partial_atan2(const terms *t, int operand) {
    tir_expr norm = tir_add(t->pool, square(t, t->a), square(t, t->b));
    return over(t, operand ? negative(t, t->a) : t->b, norm);
}

/* With respect to operand `k` of an operator of two operands. */
static tir_expr partial_of_two(const terms *t, tir_op op, int k) {
    switch (op) {
    case TIR_ADD: return number(t, 1);
    case TIR_SUB: return number(t, k ? -1 : 1);
    case TIR_MUL: return k ? t->a : t->b;
    case TIR_DIV: return k ? negative(t, over(t, t->y, t->b)) : one_over(t, t->b);
    case TIR_REM: return k ? negative(t, unary(t, TIR_TRUNC, over(t, t->a, t->b))) : number(t, 1);
    case TIR_MIN: return k ? chosen(t, t->b, t->a) : chosen(t, t->a, t->b);
    case TIR_MAX: return k ? chosen(t, t->a, t->b) : chosen(t, t->b, t->a);
    case TIR_POW: return partial_pow(t, k);
    case TIR_ATAN2: return partial_atan2(t, k);
    default: return 0;
    }
}

static tir_expr partial_abs(const terms *t) {
    tir_expr zero = number(t, 0);
    tir_expr above = when(t, tir_lt(t->pool, zero, t->a), number(t, 1), zero);
    return when(t, tir_lt(t->pool, t->a, zero), number(t, -1), above);
}

/* silu = a*s with s = logistic(a) */
static tir_expr partial_silu(const terms *t) {
    tir_expr s = unary(t, TIR_LOGISTIC, t->a);
    return tir_add(t->pool, s, times(t, t->y, one_minus(t, s)));
}

static tir_expr partial_of_one(const terms *t, tir_op op) {
    switch (op) {
    case TIR_NEG: return number(t, -1);
    case TIR_ABS: return partial_abs(t);
    case TIR_SQRT: return over(t, number(t, 0.5), t->y);
    case TIR_EXP: return t->y;
    case TIR_EXP2: return scaled(t, natural_log_of_2, t->y);
    case TIR_EXP10: return scaled(t, natural_log_of_10, t->y);
    case TIR_EXPM1: return one_plus(t, t->y);
    case TIR_LOG: return one_over(t, t->a);
    case TIR_LOG1P: return one_over(t, one_plus(t, t->a));
    case TIR_SIN: return unary(t, TIR_COS, t->a);
    case TIR_COS: return negative(t, unary(t, TIR_SIN, t->a));
    case TIR_TAN: return one_plus(t, square(t, t->y));
    case TIR_ASIN: return one_over_root(t, times(t, one_minus(t, t->a), one_plus(t, t->a)));
    case TIR_ACOS: return negative(t, one_over_root(t, times(t, one_minus(t, t->a), one_plus(t, t->a))));
    case TIR_ATAN: return one_over(t, one_plus(t, square(t, t->a)));
    case TIR_SINH: return unary(t, TIR_COSH, t->a);
    case TIR_COSH: return unary(t, TIR_SINH, t->a);
    case TIR_ASINH: return one_over_root(t, one_plus(t, square(t, t->a)));
    case TIR_ACOSH: return one_over_root(t, times(t, minus_one(t, t->a), one_plus(t, t->a)));
    case TIR_ATANH: return one_over(t, times(t, one_minus(t, t->a), one_plus(t, t->a)));
    case TIR_CBRT: return one_over(t, scaled(t, 3, square(t, t->y)));
    case TIR_TANH: return times(t, one_minus(t, t->y), one_plus(t, t->y));
    case TIR_ERF: return gauss(t, two_over_root_pi, -1);
    case TIR_ERFC: return gauss(t, -two_over_root_pi, -1);
    case TIR_LOGISTIC: return times(t, t->y, one_minus(t, t->y));
    case TIR_NORMAL_CDF:
    case TIR_NORMAL_TAIL: return gauss(t, one_over_root_two_pi, -0.5);
    case TIR_SILU: return partial_silu(t);
    default: return 0;
    }
}

static bool is_float(const tir_pool *pool, tir_expr e) {
    const tir_dtype dtype = tir_dtype_of(pool, e);
    return dtype != TIR_INDEX && lib_dtype_is_float((dlc_dtype)dtype);
}

/* The derivative of the node e, no selection, with respect to an operand, at the operands' values; y: an expression of e's value. 0: the
 * derivative is 0 everywhere where it exists, or e is no function of numbers. */
static tir_expr partial_of(tir_pool *pool, tir_expr e, int operand, tir_expr y) {
    const tir_op op = tir_op_of(pool, e);
    const int count = tir_get(pool, e)->count;
    if (count == 0 || !is_float(pool, e)) return 0;
    const tir_expr a = tir_operand(pool, e, 0);
    const terms t = {pool, tir_dtype_of(pool, e), a, count > 1 ? tir_operand(pool, e, 1) : 0, y};
    if (!is_float(pool, tir_operand(pool, e, operand))) return 0;
    switch (op) {
    case TIR_CAST: return number(&t, 1);
    case TIR_MULADD: return operand == 2 ? number(&t, 1) : operand ? t.a : t.b;
    case TIR_LDEXP: return tir_make(pool, op, t.dtype, 2, (tir_expr[]){number(&t, 1), t.b});
    default: return count == 1 ? partial_of_one(&t, op) : count == 2 ? partial_of_two(&t, op, operand) : 0;
    }
}

/* The tangent of a node from those of its operands (0: the operand does not move): the sum of partial derivatives times tangents. */
static tir_expr tangent_of(tir_pool *pool, tir_expr e, tir_expr y, const tir_expr *tangents) {
    const tir_dtype dtype = tir_dtype_of(pool, e);
    const int count = tir_get(pool, e)->count;
    tir_expr sum = 0;
    if (tir_op_of(pool, e) == TIR_SELECT) {
        const tir_expr a = tangents[tir_operand(pool, e, 1)], b = tangents[tir_operand(pool, e, 2)];
        const tir_expr zero = a || b ? tir_float(pool, dtype, 0) : 0;
        return zero ? tir_select(pool, tir_operand(pool, e, 0), a ? a : zero, b ? b : zero) : 0;
    }
    for (int k = 0; k < count; k++) {
        tir_expr below = tangents[tir_operand(pool, e, k)];
        tir_expr partial = below ? partial_of(pool, e, k, y) : 0;
        if (!partial) continue;
        below = tir_mul(pool, partial, tir_cast(pool, dtype, below));
        sum = sum ? tir_add(pool, sum, below) : below;
    }
    return sum;
}

tir_expr tir_derivative(tir_pool *pool, tir_expr e, tir_expr leaf, tir_expr y) {
    tir_expr *tangents = LIB_NEW_ARRAY(pool->arena, tir_expr, e + 1);
    bool *used = LIB_NEW_ARRAY(pool->arena, bool, e + 1);
    used[e] = true;
    for (tir_expr i = e; i > 0; i--)
        for (int k = 0; used[i] && k < tir_get(pool, i)->count; k++) used[tir_operand(pool, i, k)] = true;
    if (leaf > e || !used[leaf]) return 0;
    for (tir_expr i = leaf; i <= e; i++) {
        if (!used[i]) continue;
        tangents[i] =
            i == leaf ? tir_float(pool, tir_dtype_of(pool, leaf), 1) : tangent_of(pool, i, i == e ? y : i, tangents);
    }
    return tangents[e];
}
