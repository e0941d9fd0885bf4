/* Makes expressions ready for loop IR (tir_legalize of tir/math.h). What remains for targets: f32, f64 and integer
 * arithmetic, casts, FMA if the machine has it, f64 transcendentals. Casts between 16-bit floats and other types go through
 * f32 with one rounding: casts to them remain only from f32, from 8-bit integers and bool, and from each other (simplification
 * joins lossless casts).
 *
 * - Arithmetic of f16 and bf16 is computed in f32, then cast. add, sub, mul, div and sqrt round once that way, because f32
 *   has more than twice the digits; bf16 results below 2^-126 may round twice.
 * - MULADD of f16 and bf16: the product is exact in f32, so fusing changes nothing (bf16: except for products outside
 *   f32's normal range).
 * - Comparisons of them are computed in f32; select, load and bitcast stay in their dtype.
 * - Casts to them from f64 and wide integers go through an f32 that rounds to the same result.
 * - Floats of 8 bits are treated like those of 16, and their casts become integer arithmetic.
 * - Integer POW becomes binary exponentiation.
 *
 * With `excess` a 16-bit result of arithmetic stays f32 for arithmetic that uses it. */
#include "tir/math.h"

#include "tir/arith.h"

typedef struct narrow_value {
    /* of the original expression, f16 or bf16 */
    tir_expr node;
    /* its legal form in its dtype */
    tir_expr narrow;
    /* its f32 value before rounding; 0: rounded already */
    tir_expr wide;
} narrow_value;

typedef struct legalizer {
    bool has_fma, scales, excess;
    /* by node id, into values */
    lib_map map;
    lib_vec(narrow_value) values;
} legalizer;

static bool is_narrow(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_narrow_float((dlc_dtype)dtype);
}
static bool is_f8(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_f8((dlc_dtype)dtype);
}

static const narrow_value *find(const legalizer *l, tir_expr node) {
    for (uint32_t at = lib_map_first(&l->map, node); at != LIB_MAP_END; at = lib_map_next(&l->map, node, at))
        if (l->values.data[l->map.slots[at].value].node == node) return &l->values.data[l->map.slots[at].value];
    return NULL;
}

static tir_expr remember(legalizer *l, tir_pool *pool, tir_expr node, tir_expr narrow, tir_expr wide) {
    narrow_value value = {node, narrow, wide};
    lib_map_insert(pool->arena, &l->map, node, l->values.count);
    lib_vec_push(pool->arena, &l->values, value);
    return narrow;
}

/* Operand i of `node` in f32. */
static tir_expr widened(const legalizer *l, tir_pool *pool, tir_expr node, int i) {
    const narrow_value *value = find(l, tir_operand(pool, node, i));
    return l->excess && value->wide ? value->wide : tir_cast(pool, DLC_F32, value->narrow);
}

/* ---- casts to 16-bit floats */

/* f64 to f32, rounded to odd: rounding that again to at most 22 bits is a single rounding (Boldo and Melquiond, 2008).
 */
static tir_expr round_to_odd(tir_pool *pool, tir_expr x) {
    tir_expr nearest = tir_cast(pool, DLC_F32, x), back = tir_cast(pool, DLC_F64, nearest);
    tir_expr bits = tir_bitcast(pool, DLC_U32, nearest), one = tir_int(pool, DLC_U32, 1);
    tir_expr away = tir_lt(pool, tir_unary(pool, TIR_ABS, x), tir_unary(pool, TIR_ABS, back));
    tir_expr odd = tir_or(pool, tir_select(pool, away, tir_sub(pool, bits, one), bits), one);
    bits = tir_select(pool, tir_eq(pool, x, back), bits, odd);
    return tir_bitcast(pool, DLC_F32, bits);
}

/* 64-bit integers of more than 53 bits: the bits that f64 would round off become a sticky bit. */
static tir_expr sticky_integer(tir_pool *pool, tir_expr x) {
    tir_dtype dtype = tir_dtype_of(pool, x);
    tir_expr zero = tir_int(pool, dtype, 0), low = tir_and(pool, x, tir_int(pool, dtype, 0x7ff));
    tir_expr sticky = tir_select(pool, tir_eq(pool, low, zero), zero, tir_int(pool, dtype, 0x800));
    sticky = tir_or(pool, tir_sub(pool, x, low), sticky);
    tir_expr top = tir_binary(pool, TIR_SHR, x, tir_int(pool, dtype, 53));
    tir_expr fits = tir_eq(pool, top, zero);
    if (dtype == DLC_I64) fits = tir_or(pool, fits, tir_eq(pool, top, tir_int(pool, dtype, -1)));
    return tir_select(pool, fits, x, sticky);
}

/* An f32 that rounds to `to` as x does. Integers above f32's 24 bits exceed f16 and floats of 8 bits. */
static tir_expr before_narrow_cast(tir_pool *pool, tir_dtype to, tir_expr x) {
    tir_dtype from = tir_dtype_of(pool, x);
    if (from == DLC_F32) return x;
    if (from == DLC_F64) return round_to_odd(pool, x);
    bool wide = from == TIR_INDEX || lib_dtypes[from].bytes >= 4;
    if (to != DLC_BF16 || !wide) return tir_cast(pool, DLC_F32, x);
    if (from == TIR_INDEX) x = tir_cast(pool, from = DLC_I64, x);
    if (lib_dtypes[from].bytes == 8) x = sticky_integer(pool, x);
    return round_to_odd(pool, tir_cast(pool, DLC_F64, x));
}

static tir_expr legalize_cast(legalizer *l, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    tir_dtype to = tir_dtype_of(pool, e), from = tir_dtype_of(pool, tir_operand(pool, e, 0));
    if (is_narrow(from)) {
        tir_expr value = widened(l, pool, e, 0); /* narrower than f32, or unrounded with excess */
        return is_narrow(to) ? remember(l, pool, e, tir_cast(pool, to, value), 0) : tir_cast(pool, to, value);
    }
    if (!is_narrow(to)) return rebuilt;
    if (tir_op_of(pool, rebuilt) == TIR_CAST && tir_dtype_of(pool, tir_operand(pool, rebuilt, 0)) != DLC_F32)
        rebuilt = tir_cast(pool, to, before_narrow_cast(pool, to, tir_operand(pool, rebuilt, 0)));
    return remember(l, pool, e, rebuilt, 0);
}

/* ---- arithmetic of 16-bit floats */

/* A node of 16-bit dtype that moves bits; under `excess` a select of unrounded values stays unrounded. */
static tir_expr legalize_move(legalizer *l, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    bool wide = false;
    if (l->excess && tir_op_of(pool, e) == TIR_SELECT && tir_op_of(pool, rebuilt) == TIR_SELECT)
        for (int i = 1; i <= 2; i++) wide |= find(l, tir_operand(pool, e, i))->wide != 0;
    if (!wide) return remember(l, pool, e, rebuilt, 0);
    tir_expr a = widened(l, pool, e, 1), b = widened(l, pool, e, 2);
    tir_expr value = tir_select(pool, tir_operand(pool, rebuilt, 0), a, b);
    return remember(l, pool, e, tir_cast(pool, tir_dtype_of(pool, e), value), value);
}

static tir_expr legalize_narrow(legalizer *l, tir_pool *pool, tir_expr e) {
    const tir_node node = *tir_get(pool, e); /* a copy: the array may be reallocated */
    tir_op op = (tir_op)node.op;
    tir_expr operands[3];
    for (int i = 0; i < node.count; i++) operands[i] = widened(l, pool, e, i);
    if (tir_ops[op].flags & TIR_COMPARES) return tir_binary(pool, op, operands[0], operands[1]);
    tir_expr value = tir_ops[op].flags & TIR_MATH ? tir_math_expand(pool, op, operands)
                                                  : tir_make(pool, op, DLC_F32, node.count, operands);
    return remember(l, pool, e, tir_cast(pool, node.dtype, value), value);
}

/* ---- integers */

/* x^y by squaring, one step per bit of y; negative y: 1/x truncated. A constant y folds to its own chain. */
static tir_expr integer_power(tir_pool *pool, tir_expr x, tir_expr y) {
    tir_dtype dtype = tir_dtype_of(pool, x);
    bool is_signed = lib_dtypes[dtype].class_ == 'i';
    tir_expr zero = tir_int(pool, dtype, 0), one = tir_int(pool, dtype, 1), minus = tir_int(pool, dtype, -1);
    int64_t constant = 0;
    bool known = tir_is_const(pool, y, &constant);
    tir_expr result = one, base = x;
    for (int i = 0; i < lib_dtypes[dtype].bits - is_signed; i++) {
        if (known && (uint64_t)constant >> i == 0) break;
        tir_expr bit = tir_and(pool, tir_binary(pool, TIR_SHR, y, tir_int(pool, dtype, i)), one);
        result = tir_select(pool, tir_eq(pool, bit, zero), result, tir_mul(pool, result, base));
        base = tir_mul(pool, base, base);
    }
    if (!is_signed) return result;
    tir_expr parity = tir_eq(pool, tir_and(pool, y, one), zero);
    tir_expr reciprocal = tir_select(pool, tir_eq(pool, x, minus), tir_select(pool, parity, one, minus), zero);
    reciprocal = tir_select(pool, tir_eq(pool, x, one), one, reciprocal);
    return tir_select(pool, tir_lt(pool, y, zero), reciprocal, result);
}

/* ---- all */

/* Does the node stay in its dtype: a leaf, a move of bits or the operation of a unit? */
static bool stays_in_dtype(const tir_node *node) {
    const tir_op op = (tir_op)node->op;
    bool is_leaf = node->count == 0 || op == TIR_LOAD, is_unit = tir_ops[op].flags & TIR_DOT;
    return is_leaf || op == TIR_SELECT || op == TIR_BITCAST || is_unit;
}

static tir_expr legalize_node(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    legalizer *l = user;
    const tir_node node = *tir_get(pool, e);
    tir_op op = (tir_op)node.op;
    if (op == TIR_CAST) return legalize_cast(l, pool, e, rebuilt);
    if (stays_in_dtype(&node)) return is_narrow(node.dtype) ? legalize_move(l, pool, e, rebuilt) : rebuilt;
    tir_dtype dtype = tir_dtype_of(pool, tir_operand(pool, e, 0));
    if (is_narrow(dtype)) return legalize_narrow(l, pool, e);
    if (tir_op_of(pool, rebuilt) != op || !(tir_ops[op].flags & TIR_MATH)) return rebuilt;
    bool of_others = op == TIR_LOGISTIC || op == TIR_SILU; /* expanded by operators that may be library calls */
    if (!of_others && tir_math_is_call(op, dtype)) return rebuilt;
    tir_expr operands[2] = {tir_operand(pool, rebuilt, 0), node.count > 1 ? tir_operand(pool, rebuilt, 1) : 0};
    if (dtype == DLC_F32 || dtype == DLC_F64) return tir_math_expand(pool, op, operands);
    return op == TIR_POW ? integer_power(pool, operands[0], operands[1]) : rebuilt;
}

/* x * 2^n of an expansion, with |x| within [1/4, 4] and n an integer up to 254: x times 2^floor(n/2) times 2^ceil(n/2). Unless the result
 * is 0, the factors and the first product are normal, so that it is rounded once, as by the instruction. For n < -252 a factor is 0. */
static tir_expr scale_twice(tir_pool *pool, tir_expr x, tir_expr n) {
    tir_expr one = tir_int(pool, DLC_U32, 1), mantissa = tir_int(pool, DLC_U32, 23);
    tir_expr least = tir_float(pool, DLC_F32, -254.0);
    n = tir_select(pool, tir_lt(pool, n, least), least, n);
    /* n + 254 in the low bits */
    tir_expr biased = tir_bitcast(pool, DLC_U32, tir_add(pool, n, tir_float(pool, DLC_F32, 12582912.0 + 254.0)));
    tir_expr low = tir_binary(pool, TIR_SHR, biased, one), high = tir_sub(pool, biased, low);
    tir_expr first = tir_bitcast(pool, DLC_F32, tir_binary(pool, TIR_SHL, low, mantissa));
    tir_expr second = tir_bitcast(pool, DLC_F32, tir_binary(pool, TIR_SHL, high, mantissa));
    return tir_mul(pool, tir_mul(pool, x, first), second);
}

/* ---- floats of 8 bits: integer arithmetic on loaded and stored bits, for all targets alike */

static tir_expr shifted(tir_pool *pool, tir_op op, tir_expr x, int by) {
    return tir_binary(pool, op, x, tir_int(pool, tir_dtype_of(pool, x), by));
}

/* Moves the bits to their position in f16 (e5m2fnuz: in f32), whose exponent has another bias: corrected by a product with a
 * power of two, which is exact. Sign extension puts the sign in its position and also copies it above the exponent. */
static tir_expr widen_f8(tir_pool *pool, tir_expr x) {
    dlc_dtype dtype = (dlc_dtype)tir_dtype_of(pool, x);
    tir_expr bits = tir_bitcast(pool, DLC_I8, x), value;
    if (dtype == DLC_F8E5M2) {
        tir_expr half = shifted(pool, TIR_SHL, tir_cast(pool, DLC_I16, bits), 8);
        return tir_cast(pool, DLC_F32, tir_bitcast(pool, DLC_F16, half));
    }
    if (dtype == DLC_F8E5M2FNUZ) {
        tir_expr word = shifted(pool, TIR_SHL, tir_cast(pool, DLC_I32, bits), 21);
        word = tir_and(pool, word, tir_int(pool, DLC_I32, INT32_MIN | 0x0fe00000));
        value = tir_mul(pool, tir_bitcast(pool, DLC_F32, word), tir_float(pool, DLC_F32, 0x1p111));
    } else {
        tir_expr half = shifted(pool, TIR_SHL, tir_cast(pool, DLC_I16, bits), 7);
        half = tir_and(pool, half, tir_int(pool, DLC_I16, INT16_MIN | 0x3f80));
        value = tir_cast(pool, DLC_F32, tir_bitcast(pool, DLC_F16, half));
        value = tir_mul(pool, value, tir_float(pool, DLC_F32, dtype == DLC_F8E4M3FN ? 0x1p8 : 0x1p7));
    }
    tir_expr nan = tir_int(pool, DLC_I8, INT8_MIN);
    if (dtype == DLC_F8E4M3FN) { /* NaN of either sign */
        nan = tir_int(pool, DLC_I8, 0x7f);
        bits = tir_and(pool, bits, nan);
    }
    return tir_select(pool, tir_eq(pool, bits, nan), tir_float(pool, DLC_F32, (double)__builtin_nanf("")), value);
}

/* Normal results: rebias, add almost half and the odd bit, shift. Denormal results: adding a power of two aligns the digits so
 * that the addition rounds to multiples of the least number. Numbers and NaN beyond the greatest code are larger than it. */
static tir_expr narrow_to_f8(tir_pool *pool, tir_dtype to, tir_expr x) {
    const dlc_dtype dtype = (dlc_dtype)to;
    const lib_float_info format = lib_float_of(dtype);
    const int cut = 24 - format.digits, rebias = 126 + format.lowest; /* 127 - (1 - lowest) */
    const bool unsigned_zero = !format.signed_zero;
    const int64_t greatest = tir_bits_from_f64(to, format.greatest) & 0x7f;
    tir_expr all = tir_bitcast(pool, DLC_I32, x), size = tir_and(pool, all, tir_int(pool, DLC_I32, INT32_MAX));
    tir_expr sign = tir_and(pool, shifted(pool, TIR_SHR, all, 24), tir_int(pool, DLC_I32, 0x80));
    tir_expr odd = tir_and(pool, shifted(pool, TIR_SHR, size, cut), tir_int(pool, DLC_I32, 1));
    int64_t offset = ((INT64_C(1) << (cut - 1)) - 1) - ((int64_t)rebias << 23);
    tir_expr code = tir_add(pool, tir_add(pool, size, odd), tir_int(pool, DLC_I32, offset));
    code = shifted(pool, TIR_SHR, code, cut);
    tir_expr aligned = tir_float(pool, DLC_F32, __builtin_ldexp(1, 23 + format.lowest - format.digits + 1));
    tir_expr sum = tir_add(pool, tir_bitcast(pool, DLC_F32, size), aligned);
    tir_expr small = tir_sub(pool, tir_bitcast(pool, DLC_I32, sum), tir_bitcast(pool, DLC_I32, aligned));
    code = tir_select(pool, tir_lt(pool, size, tir_int(pool, DLC_I32, (int64_t)(rebias + 1) << 23)), small, code);
    tir_expr beyond = tir_lt(pool, tir_int(pool, DLC_I32, greatest), code);
    if (unsigned_zero) {
        tir_expr zero = tir_int(pool, DLC_I32, 0);
        code = tir_select(pool, tir_eq(pool, code, zero), zero, tir_or(pool, code, sign));
        code = tir_select(pool, beyond, tir_int(pool, DLC_I32, 0x80), code);
    } else {
        tir_expr end = tir_int(pool, DLC_I32, greatest + 1); /* infinity, or NaN */
        if (format.infinite) {
            tir_expr nan = tir_lt(pool, tir_int(pool, DLC_I32, 0x7f800000), size);
            end = tir_select(pool, nan, tir_int(pool, DLC_I32, 0x7f), end);
        }
        code = tir_or(pool, tir_select(pool, beyond, end, code), sign);
    }
    return tir_bitcast(pool, to, tir_cast(pool, DLC_U8, code));
}

static tir_expr convert_f8(tir_pool *pool, tir_dtype to, tir_expr x) {
    if (is_f8(tir_dtype_of(pool, x))) x = widen_f8(pool, x);
    if (is_f8(to)) return narrow_to_f8(pool, to, before_narrow_cast(pool, to, x));
    return tir_cast(pool, to, before_narrow_cast(pool, to, x));
}

/* Machine-dependent decisions, and conversions of 8-bit floats. */
static tir_expr decide_by_machine(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    (void)e;
    const legalizer *l = user;
    if (tir_op_of(pool, rebuilt) == TIR_CAST) {
        tir_expr x = tir_operand(pool, rebuilt, 0);
        tir_dtype to = tir_dtype_of(pool, rebuilt);
        if (is_f8(to) || is_f8(tir_dtype_of(pool, x))) return convert_f8(pool, to, x);
    }
    if (tir_op_of(pool, rebuilt) == TIR_LDEXP && !l->scales)
        return scale_twice(pool, tir_operand(pool, rebuilt, 0), tir_operand(pool, rebuilt, 1));
    if (tir_op_of(pool, rebuilt) != TIR_MULADD) return rebuilt;
    tir_expr operands[3];
    for (int i = 0; i < 3; i++) operands[i] = tir_operand(pool, rebuilt, i);
    tir_dtype dtype = tir_dtype_of(pool, rebuilt);
    bool is_float = dtype == DLC_F32 || dtype == DLC_F64;
    if (is_float && l->has_fma) return tir_make(pool, TIR_FMA, dtype, 3, operands);
    return tir_add(pool, tir_mul(pool, operands[0], operands[1]), operands[2]);
}

tir_expr tir_legalize(tir_pool *pool, tir_expr e, bool has_fma, bool scales, bool excess) {
    if (tir_dtype_of(pool, e) == TIR_INDEX && tir_get(pool, e)->count == 0) return e;
    legalizer l = {.has_fma = has_fma, .scales = scales, .excess = excess};
    e = tir_rewrite(pool, e, legalize_node, &l);
    return tir_rewrite(pool, e, decide_by_machine, &l);
}
