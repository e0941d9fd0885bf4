/* Maps by their scalar expressions: each operator of an expression becomes an ONNX node, or several. */
#include "graph/onnx/export.h"

/* ---- operators with one counterpart -------------------------------------------------------------------------------------- */

#define LATE_BITS 18 /* the version of the bitwise operators */

static const struct operator{
    uint8_t op;
    /* in bools */
    const char *logical;
    const char *name;
    uint32_t types;
}
operators[] = {
    {TIR_ADD, NULL, "Add", ONNX_NUMBERS},
    {TIR_SUB, NULL, "Sub", ONNX_NUMBERS},
    {TIR_MUL, NULL, "Mul", ONNX_NUMBERS},
    {TIR_DIV, NULL, "Div", ONNX_NUMBERS},
    {TIR_MIN, NULL, "Min", ONNX_NUMBERS},
    {TIR_MAX, NULL, "Max", ONNX_NUMBERS},
    {TIR_POW, NULL, "Pow", ONNX_FLOATS_B | ONNX_TYPE(DLC_I32) | ONNX_TYPE(DLC_I64)},
    {TIR_AND, "And", "BitwiseAnd", ONNX_WHOLES},
    {TIR_OR, "Or", "BitwiseOr", ONNX_WHOLES},
    {TIR_XOR, "Xor", "BitwiseXor", ONNX_WHOLES},
    {TIR_NOT, "Not", "BitwiseNot", ONNX_WHOLES},
    {TIR_EQ, NULL, "Equal", ONNX_ALL},
    {TIR_LT, NULL, "Less", ONNX_NUMBERS},
    {TIR_LE, NULL, "LessOrEqual", ONNX_NUMBERS},
    {TIR_NEG, NULL, "Neg", ONNX_SIGNED | ONNX_FLOATS_B},
    {TIR_ABS, NULL, "Abs", ONNX_NUMBERS},
    {TIR_SQRT, NULL, "Sqrt", ONNX_FLOATS_B},
    {TIR_FLOOR, NULL, "Floor", ONNX_FLOATS_B},
    {TIR_CEIL, NULL, "Ceil", ONNX_FLOATS_B},
    {TIR_ROUND, NULL, "Round", ONNX_FLOATS},
    {TIR_EXP, NULL, "Exp", ONNX_FLOATS_B},
    {TIR_LOG, NULL, "Log", ONNX_FLOATS_B},
    {TIR_SIN, NULL, "Sin", ONNX_FLOATS},
    {TIR_COS, NULL, "Cos", ONNX_FLOATS},
    {TIR_TAN, NULL, "Tan", ONNX_FLOATS},
    {TIR_ASIN, NULL, "Asin", ONNX_FLOATS},
    {TIR_ACOS, NULL, "Acos", ONNX_FLOATS},
    {TIR_ATAN, NULL, "Atan", ONNX_FLOATS},
    {TIR_SINH, NULL, "Sinh", ONNX_FLOATS},
    {TIR_COSH, NULL, "Cosh", ONNX_FLOATS},
    {TIR_ASINH, NULL, "Asinh", ONNX_FLOATS},
    {TIR_ACOSH, NULL, "Acosh", ONNX_FLOATS},
    {TIR_ATANH, NULL, "Atanh", ONNX_FLOATS},
    {TIR_TANH, NULL, "Tanh", ONNX_FLOATS_B},
    {TIR_ERF, NULL, "Erf", ONNX_FLOATS_B},
    {TIR_LOGISTIC, NULL, "Sigmoid", ONNX_FLOATS_B},
};

static const struct operator* operator_of(tir_op op) {
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (operators[i].op == op) return &operators[i];
    return NULL;
}

static dlc_dtype value_dtype(tir_dtype dtype) {
    return dtype == TIR_INDEX ? DLC_I64 : (dlc_dtype)dtype;
}

static onnx_label *simple(onnx_export *ex, const struct operator* by, dlc_dtype dtype, onnx_label *const *x) {
    const int inputs = tir_ops[by->op].arity;
    const bool compares = (tir_ops[by->op].flags & TIR_COMPARES) != 0;
    if (by->logical && dtype == DLC_BOOL) return onnx_add(ex, by->logical, inputs, x);
    if (by->logical) onnx_need(ex, LATE_BITS);
    return onnx_typed(ex, by->name, by->types, dtype, compares, inputs, x);
}

/* ---- operators of several nodes ------------------------------------------------------------------------------------------- */

/* The operators of the formulas below, of one dtype. */
typedef struct calculus {
    onnx_export *ex;
    dlc_dtype dtype;
} calculus;

static onnx_label *number(const calculus *c, double value) {
    return onnx_number(c->ex, c->dtype, value);
}
static onnx_label *unary(const calculus *c, tir_op op, onnx_label *x) {
    return onnx_export_apply(c->ex, op, (tir_dtype)c->dtype, &x);
}
static onnx_label *binary(const calculus *c, tir_op op, onnx_label *a, onnx_label *b) {
    return onnx_export_apply(c->ex, op, (tir_dtype)c->dtype, (onnx_label *[]){a, b});
}
static onnx_label *choose(const calculus *c, onnx_label *condition, onnx_label *a, onnx_label *b) {
    return onnx_export_apply(c->ex, TIR_SELECT, (tir_dtype)c->dtype, (onnx_label *[]){condition, a, b});
}
static onnx_label *is_below_zero(const calculus *c, onnx_label *x) {
    return binary(c, TIR_LT, x, number(c, 0));
}

/* Is the sign bit set? False for NaN. */
static onnx_label *is_negative(const calculus *c, onnx_label *x) {
    onnx_label *reciprocal = binary(c, TIR_DIV, number(c, 1), x), *zero = binary(c, TIR_EQ, x, number(c, 0));
    return ONNX_ADD(c->ex, "Or", is_below_zero(c, x), ONNX_ADD(c->ex, "And", zero, is_below_zero(c, reciprocal)));
}

static onnx_label *truncated(const calculus *c, onnx_label *x) {
    return choose(c, is_below_zero(c, x), unary(c, TIR_CEIL, x), unary(c, TIR_FLOOR, x));
}

/* exp(x) - 1 by Kahan's formula: the rounding error of u = exp(x) cancels in the quotient (u - 1) x / log(u). */
static onnx_label *exponential_less_one(const calculus *c, onnx_label *x) {
    onnx_label *u = unary(c, TIR_EXP, x), *less = binary(c, TIR_SUB, u, number(c, 1));
    onnx_label *corrected = binary(c, TIR_DIV, binary(c, TIR_MUL, less, x), unary(c, TIR_LOG, u));
    onnx_label *ends = ONNX_ADD(c->ex, "Or", binary(c, TIR_EQ, less, number(c, -1)),
                                binary(c, TIR_EQ, less, number(c, (double)__builtin_inff())));
    return choose(c, binary(c, TIR_EQ, u, number(c, 1)), x, choose(c, ends, less, corrected));
}

static onnx_label *logarithm_of_one_plus(const calculus *c, onnx_label *x) {
    onnx_label *u = binary(c, TIR_ADD, x, number(c, 1)), *less = binary(c, TIR_SUB, u, number(c, 1));
    onnx_label *plain = unary(c, TIR_LOG, u);
    onnx_label *corrected = binary(c, TIR_DIV, binary(c, TIR_MUL, plain, x), less);
    onnx_label *end = binary(c, TIR_EQ, u, number(c, (double)__builtin_inff()));
    return choose(c, binary(c, TIR_EQ, u, number(c, 1)), x, choose(c, end, plain, corrected));
}

static onnx_label *cube_root(const calculus *c, onnx_label *x) {
    onnx_label *root = binary(c, TIR_POW, unary(c, TIR_ABS, x), number(c, 1.0 / 3));
    return choose(c, is_below_zero(c, x), unary(c, TIR_NEG, root),
                  choose(c, binary(c, TIR_EQ, x, number(c, 0)), x, root));
}

/* atan2(y, x): the arctangent of the smaller magnitude over the larger one (0 for two zeros, 1 for two infinities), moved to the octant. */
static onnx_label *angle(const calculus *c, onnx_label *y, onnx_label *x) {
    const double pi = 3.14159265358979323846;
    onnx_label *a = unary(c, TIR_ABS, y), *b = unary(c, TIR_ABS, x);
    onnx_label *ratio = binary(c, TIR_DIV, binary(c, TIR_MIN, a, b), binary(c, TIR_MAX, a, b));
    onnx_label *same = choose(c, binary(c, TIR_EQ, a, number(c, 0)), number(c, 0), number(c, 1));
    onnx_label *t = unary(c, TIR_ATAN, choose(c, binary(c, TIR_EQ, a, b), same, ratio));
    t = choose(c, binary(c, TIR_LT, b, a), binary(c, TIR_SUB, number(c, pi / 2), t), t);
    t = choose(c, is_negative(c, x), binary(c, TIR_SUB, number(c, pi), t), t);
    return choose(c, is_negative(c, y), unary(c, TIR_NEG, t), t);
}

/* (1 + erf(x factor)) / 2 or 1 - erf(x), in f64 unless x has more bits: small results keep some digits. */
static onnx_label *tail(const calculus *c, onnx_label *x, bool normal) {
    const calculus wide = {c->ex, DLC_F64};
    if (c->dtype != DLC_F64) x = onnx_to(c->ex, x, DLC_F64);
    onnx_label *y = binary(&wide, TIR_MUL, x, number(&wide, normal ? 0.70710678118654752440 : -1));
    y = binary(&wide, TIR_ADD, unary(&wide, TIR_ERF, y), number(&wide, 1));
    if (normal) y = binary(&wide, TIR_MUL, y, number(&wide, 0.5));
    return c->dtype == DLC_F64 ? y : onnx_to(c->ex, y, c->dtype);
}

/* ---- integers ---------------------------------------------------------------------------------------------------------------- */

static dlc_dtype unsigned_of(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_I8: return DLC_U8;
    case DLC_I16: return DLC_U16;
    case DLC_I32: return DLC_U32;
    case DLC_I64: return DLC_U64;
    default: return dtype;
    }
}

/* a shifted by b: BitShift of the bits as unsigned integers; 0 for amounts from the width on, which ONNX leaves open. */
static onnx_label *shifted(onnx_export *ex, const char *direction, dlc_dtype dtype, onnx_label *a, onnx_label *b) {
    const dlc_dtype bits = unsigned_of(dtype);
    const calculus c = {ex, bits};
    if (bits != dtype) a = onnx_to(ex, a, bits), b = onnx_to(ex, b, bits);
    onnx_label *width = number(&c, lib_dtypes[bits].bits), *inside = binary(&c, TIR_LT, b, width);
    onnx_label *y = ONNX_ADD(ex, "BitShift", a, binary(&c, TIR_MIN, b, number(&c, lib_dtypes[bits].bits - 1)));
    onnx_set_text(ex, "direction", direction);
    y = choose(&c, inside, y, number(&c, 0));
    return bits == dtype ? y : onnx_to(ex, y, dtype);
}

/* Is the amount, as an unsigned number, below the width? */
static onnx_label *is_inside(onnx_export *ex, dlc_dtype dtype, onnx_label *b) {
    const calculus c = {ex, unsigned_of(dtype)};
    return binary(&c, TIR_LT, onnx_to(ex, b, c.dtype), number(&c, lib_dtypes[dtype].bits));
}

/* a shifted right by b with its sign; for negative a by the complement -1 - a, which is not negative. 0 for amounts from the width on. */
static onnx_label *shifted_right(onnx_export *ex, dlc_dtype dtype, onnx_label *a, onnx_label *b) {
    const calculus c = {ex, dtype};
    if (lib_dtypes[dtype].class_ == 'u') return shifted(ex, "RIGHT", dtype, a, b);
    onnx_label *ones = number(&c, -1), *below = is_below_zero(&c, a);
    onnx_label *y = shifted(ex, "RIGHT", dtype, choose(&c, below, binary(&c, TIR_SUB, ones, a), a), b);
    y = choose(&c, below, binary(&c, TIR_SUB, ones, y), y);
    return choose(&c, is_inside(ex, dtype, b), y, number(&c, 0));
}

static onnx_label *high_half(onnx_export *ex, dlc_dtype dtype, onnx_label *a, onnx_label *b) {
    if (dtype != DLC_U32) {
        onnx_refuse(ex, "the high half of a product of %s", lib_dtypes[dtype].name);
        return a;
    }
    onnx_label *product = ONNX_ADD(ex, "Mul", onnx_to(ex, a, DLC_U64), onnx_to(ex, b, DLC_U64));
    product = ONNX_ADD(ex, "BitShift", product, onnx_whole(ex, DLC_U64, 32));
    onnx_set_text(ex, "direction", "RIGHT");
    return onnx_to(ex, product, DLC_U32);
}

/* x[0] to the power x[1]. Integer powers are computed in i64, and wrap alike. A u64 exponent e may exceed i64: x**e is
 * (x**(e/2))**2 * x**(e%2). */
static onnx_label *power(onnx_export *ex, dlc_dtype dtype, onnx_label *const *x) {
    const struct operator* by = operator_of(TIR_POW);
    if (lib_dtype_is_float(dtype) || onnx_takes(by->types, dtype)) return simple(ex, by, dtype, x);
    onnx_label *base = onnx_to(ex, x[0], DLC_I64);
    if (dtype != DLC_U64) return onnx_to(ex, ONNX_ADD(ex, "Pow", base, onnx_to(ex, x[1], DLC_I64)), dtype);
    onnx_label *two = onnx_whole(ex, dtype, 2), *half = onnx_to(ex, ONNX_ADD(ex, "Div", x[1], two), DLC_I64);
    onnx_label *rest = onnx_to(ex, ONNX_ADD(ex, "Mod", x[1], two), DLC_I64), *root = ONNX_ADD(ex, "Pow", base, half);
    root = ONNX_ADD(ex, "Mul", ONNX_ADD(ex, "Mul", root, root), ONNX_ADD(ex, "Pow", base, rest));
    return onnx_to(ex, root, dtype);
}

onnx_label *onnx_divided(onnx_export *ex, const char *op, dlc_dtype dtype, onnx_label *const *x, bool fmod) {
    onnx_label *zero = onnx_whole(ex, dtype, 0), *divisor = x[1], *none = NULL;
    if (!onnx_is_nonzero(ex, divisor)) {
        none = ONNX_ADD(ex, "Equal", divisor, zero);
        divisor = ONNX_ADD(ex, "Where", none, onnx_whole(ex, dtype, 1), divisor);
    }
    onnx_label *y = ONNX_ADD(ex, op, x[0], divisor);
    if (fmod) onnx_set(ex, "fmod", 1);
    return none ? ONNX_ADD(ex, "Where", none, zero, y) : y;
}

/* The remainder of x[0] by x[1], with the sign of x[0]; for index expressions (TIR_INDEX) with that of the divisor. */
static onnx_label *remainder_of(onnx_export *ex, tir_dtype dtype, onnx_label *const *x) {
    onnx_label *const *operand = x;
    onnx_label *wide[2];
    const bool narrow = dtype != TIR_INDEX && lib_dtype_is_f8((dlc_dtype)dtype);
    if (dtype != TIR_INDEX && lib_dtype_is_integer((dlc_dtype)dtype))
        return onnx_divided(ex, "Mod", (dlc_dtype)dtype, x, true);
    if (narrow) {
        for (int i = 0; i < 2; i++) wide[i] = onnx_to(ex, x[i], DLC_F32);
        operand = wide;
    }
    onnx_label *y = onnx_add(ex, "Mod", 2, operand);
    if (dtype != TIR_INDEX) onnx_set(ex, "fmod", 1);
    return narrow ? onnx_to(ex, y, (dlc_dtype)dtype) : y;
}

static onnx_label *select_of(onnx_export *ex, dlc_dtype dtype, onnx_label *const *x) {
    if (onnx_takes(ONNX_ALL, dtype)) return onnx_add(ex, "Where", 3, x);
    onnx_label *y = ONNX_ADD(ex, "Where", x[0], onnx_to(ex, x[1], DLC_F32), onnx_to(ex, x[2], DLC_F32));
    return onnx_to(ex, y, dtype);
}

/* ---- an operator ---------------------------------------------------------------------------------------------------------------- */

/* Does compose() compute the operator by several operations that round? */
static bool is_formula(tir_op op) {
    switch (op) {
    case TIR_EXP2:
    case TIR_EXP10:
    case TIR_EXPM1:
    case TIR_LOG1P:
    case TIR_CBRT:
    case TIR_ATAN2:
    case TIR_SILU:
    case TIR_MULADD:
    case TIR_FMA: return true;
    default: return false;
    }
}

/* The operator `op`, for which ONNX has none, by several nodes; formulas on narrow floats in f32, so that the result is rounded once. */
static onnx_label *compose(onnx_export *ex, tir_op op, dlc_dtype dtype, onnx_label *const *x) {
    const calculus c = {ex, dtype};
    if (is_formula(op) && lib_dtype_is_narrow_float(dtype)) {
        onnx_label *wide[3] = {NULL};
        for (int i = 0; i < tir_ops[op].arity; i++) wide[i] = onnx_to(ex, x[i], DLC_F32);
        return onnx_to(ex, compose(ex, op, DLC_F32, wide), dtype);
    }
    switch (op) {
    case TIR_SHL: return shifted(ex, "LEFT", dtype, x[0], x[1]);
    case TIR_SHR: return shifted_right(ex, dtype, x[0], x[1]);
    case TIR_MULHI: return high_half(ex, dtype, x[0], x[1]);
    case TIR_NE: return ONNX_ADD(ex, "Not", binary(&c, TIR_EQ, x[0], x[1]));
    case TIR_TRUNC: return truncated(&c, x[0]);
    case TIR_EXP2: return binary(&c, TIR_POW, number(&c, 2), x[0]);
    case TIR_EXP10: return binary(&c, TIR_POW, number(&c, 10), x[0]);
    case TIR_EXPM1: return exponential_less_one(&c, x[0]);
    case TIR_LOG1P: return logarithm_of_one_plus(&c, x[0]);
    case TIR_CBRT: return cube_root(&c, x[0]);
    case TIR_ATAN2: return angle(&c, x[0], x[1]);
    case TIR_ERFC: return tail(&c, x[0], false);
    case TIR_NORMAL_CDF:
    case TIR_NORMAL_TAIL: return tail(&c, x[0], true);
    case TIR_SILU: return binary(&c, TIR_MUL, x[0], unary(&c, TIR_LOGISTIC, x[0]));
    case TIR_MULADD:
    case TIR_FMA: return binary(&c, TIR_ADD, binary(&c, TIR_MUL, x[0], x[1]), x[2]);
    default: onnx_refuse(ex, "its expression has the operator %s", tir_ops[op].text); return x[0];
    }
}

onnx_label *onnx_export_apply(onnx_export *ex, tir_op op, tir_dtype dtype, onnx_label *const *x) {
    const struct operator* by = operator_of(op);
    const dlc_dtype own = value_dtype(dtype);
    if (op == TIR_REM) return remainder_of(ex, dtype, x);
    if (op == TIR_DIV && dtype == TIR_INDEX) /* rounds down */
        return ONNX_ADD(ex, "Div", ONNX_ADD(ex, "Sub", x[0], ONNX_ADD(ex, "Mod", x[0], x[1])), x[1]);
    if (op == TIR_DIV && lib_dtype_is_integer(own)) return onnx_divided(ex, "Div", own, x, false);
    if (op == TIR_POW) return power(ex, own, x);
    if (op == TIR_SELECT) return select_of(ex, own, x);
    if (op == TIR_NEG && lib_dtypes[own].class_ == 'u') return ONNX_ADD(ex, "Sub", onnx_whole(ex, own, 0), x[0]);
    return by ? simple(ex, by, own, x) : compose(ex, op, own, x);
}

/* ---- expressions ---------------------------------------------------------------------------------------------------------------- */

typedef struct translation {
    onnx_export *ex;
    const tir_pool *pool;
    /* by expression */
    onnx_label **made;
    onnx_leaf *leaf;
    void *user;
} translation;

static onnx_label *constant_of(onnx_export *ex, const tir_node *node) {
    if (node->dtype == TIR_INDEX) return onnx_list(ex, 1, (int64_t[]){(int64_t)node->bits});
    return onnx_export_constant(ex, (dlc_dtype)node->dtype, 0, NULL, &node->bits);
}

static onnx_label *recast(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x) {
    if (from == to) return x;
    if (lib_dtype_is_f8(from) || lib_dtype_is_f8(to)) onnx_refuse(ex, "it works on the bits of floats of 8 bits");
    if (lib_dtype_is_float(from) && lib_dtype_is_float(to))
        return onnx_from_bits(ex, DLC_I64, to, onnx_bits_of(ex, from, DLC_I64, x));
    if (lib_dtype_is_float(from)) return onnx_bits_of(ex, from, to, x);
    if (lib_dtype_is_float(to)) return onnx_from_bits(ex, from, to, x);
    return onnx_to(ex, x, to);
}

/* x converted to dtype `to`. ONNX leaves open what floats beyond an integer type become: types of up to 16 bits, which hold quantised results,
 * are saturated, and NaN gives 0. The bounds of wider types are not exact in f32, so that these are only cast. */
static onnx_label *converted(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x) {
    if (!lib_dtype_is_float(from) || !lib_dtype_is_integer(to) || lib_dtypes[to].bits > 16) return onnx_to(ex, x, to);
    const int bits = lib_dtypes[to].bits - (lib_dtypes[to].class_ == 'i');
    const double high = (double)((INT64_C(1) << bits) - 1), low = lib_dtypes[to].class_ == 'i' ? -high - 1 : 0;
    const calculus c = {ex, onnx_wide_dtype(from)};
    if (c.dtype != from) x = onnx_to(ex, x, c.dtype);
    x = ONNX_ADD(ex, "Where", ONNX_ADD(ex, "IsNaN", x), number(&c, 0), x);
    return onnx_to(ex, onnx_clamped(ex, x, number(&c, low), number(&c, high)), to);
}

static onnx_label *translate(const translation *t, tir_expr e) {
    const tir_node *node = tir_get(t->pool, e);
    onnx_label *x[3] = {0};
    if (t->made[e]) return t->made[e];
    if (node->op == TIR_CONST) return t->made[e] = constant_of(t->ex, node);
    if (node->op == TIR_VAR) return t->made[e] = t->leaf(t->ex, t->user, t->pool, e);
    if (node->count == 0 || node->count > 3) {
        onnx_refuse(t->ex, "its expression has the operator %s", tir_ops[node->op].text);
        return t->made[e] = onnx_list(t->ex, 0, NULL);
    }
    for (int i = 0; i < node->count; i++) x[i] = translate(t, tir_operand(t->pool, e, i));
    const tir_dtype from = tir_dtype_of(t->pool, tir_operand(t->pool, e, node->count - 1));
    const bool natural = node->op == TIR_DIV && node->dtype == TIR_INDEX &&
                         tir_range((tir_pool *)t->pool, tir_operand(t->pool, e, 0)).low >= 0;
    if (natural) /* otherwise quotients, which ONNX truncates, are rounded down first */
        t->made[e] = onnx_add(t->ex, "Div", 2, x);
    else if (node->op == TIR_CAST)
        t->made[e] = converted(t->ex, value_dtype(from), value_dtype(node->dtype), x[0]);
    else if (node->op == TIR_BITCAST)
        t->made[e] = recast(t->ex, value_dtype(from), value_dtype(node->dtype), x[0]);
    else
        t->made[e] = onnx_export_apply(t->ex, (tir_op)node->op, from, x);
    return t->made[e];
}

onnx_label *onnx_expression(onnx_export *ex, const tir_pool *pool, tir_expr e, onnx_leaf *leaf, void *user) {
    const translation t = {ex, pool, LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)pool->nodes.count), leaf, user};
    return translate(&t, e);
}

/* ---- the scalar definition of a map ------------------------------------------------------------------------------------------------ */

typedef struct operands {
    int count;
    tir_expr variable[8];
    onnx_label *label[8];
    bool used;
} operands;

static onnx_label *operand_of(onnx_export *ex, void *user, const tir_pool *pool, tir_expr variable) {
    operands *o = user;
    (void)ex, (void)pool;
    o->used = true;
    for (int i = 0; i < o->count; i++)
        if (o->variable[i] == variable) return o->label[i];
    return o->label[0];
}

/* Is the function defined by the logarithm in f64, but by the bits of numbers in f32? It is exported in f64. */
static bool is_wide(const graph_op *op) {
    static const char *const names[] = {"log2", "log10", "lgamma", "digamma"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

void onnx_export_scalar(onnx_export *ex) {
    const graph_node *node = ex->node;
    const graph_shape *y = onnx_result_shape(ex, 0);
    tir_pool pool;
    operands o = {.count = node->inputs};
    memset(&pool, 0, sizeof pool);
    tir_pool_init(&pool, ex->arena);
    onnx_in_maps(ex, o.label);
    for (int i = 0; i < node->inputs; i++)
        o.variable[i] = tir_var(&pool, "x", TIR_VAR_LET, (tir_dtype)onnx_in_shape(ex, i)->dtype, INT64_MIN, INT64_MAX);
    const bool wide = is_wide(node->op);
    const tir_expr variable = o.variable[0];
    if (wide) o.variable[0] = tir_cast(&pool, DLC_F64, o.variable[0]);
    const tir_expr e =
        tir_cast(&pool, (tir_dtype)y->dtype,
                 graph_op_scalar(node->op, &pool, wide ? DLC_F64 : (tir_dtype)y->dtype, o.variable, node->attribute));
    if (wide) o.variable[0] = variable;
    onnx_label *label = onnx_expression(ex, &pool, e, operand_of, &o);
    if (!o.used) label = onnx_stretched(ex, label, y->rank, y->dim);
    onnx_export_give_label(ex, 0, label);
}
