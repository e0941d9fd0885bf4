/* Simplification of constructors for value dtypes: constants fold by tir/arith.h; the other rules are bit
 * exact (NaN as a class) on every operand, so there are few for floats. Index expressions go to
 * tir/simplify.c; no rule here may assume that integers of a value dtype do not wrap. */
#include "tir/arith.h"
#include "tir/simplify.h"

#include <math.h>

static bool is_float(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype);
}
static bool is_integer(tir_dtype dtype) {
    return dtype == TIR_INDEX || lib_dtype_is_integer((dlc_dtype)dtype);
}

static tir_expr intern(tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands) {
    return tir_intern(pool, op, dtype, 0, false, count, operands);
}

/* ---- constants */

static bool all_constant(const tir_pool *pool, int count, const tir_expr *operands) {
    for (int i = 0; i < count; i++)
        if (tir_op_of(pool, operands[i]) != TIR_CONST) return false;
    return true;
}

/* Whether the result is the same without rounding to its narrow dtype. */
static bool is_exact(tir_op op, tir_dtype dtype, const uint64_t *operands, int count, uint64_t bits) {
    uint64_t wide[UINT8_MAX];
    for (int i = 0; i < count; i++) wide[i] = tir_arith_cast(DLC_F32, dtype, operands[i]);
    uint64_t value = tir_arith(op, DLC_F32, DLC_F32, wide, count, true);
    double number = tir_bits_to_f64(DLC_F32, value);
    return number != number || value == tir_arith_cast(DLC_F32, dtype, bits);
}

/* 0 if the result is not determined here: transcendentals are defined by their expansion or the machine's library, the rounding of a
 * multiply-add by the machine, that of a narrow float by the region, which may omit it (excess precision). */
static tir_expr fold_constants(tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands) {
    uint64_t values[UINT8_MAX];
    for (int i = 0; i < count; i++) values[i] = tir_get(pool, operands[i])->bits;
    tir_dtype operand = tir_dtype_of(pool, operands[op == TIR_SELECT]);
    if ((tir_ops[op].flags & TIR_MATH) && is_float(operand)) return 0;
    uint64_t bits = tir_arith(op, dtype, operand, values, count, true);
    if (op == TIR_MULADD &&
        tir_bits(pool, dtype, bits) != tir_bits(pool, dtype, tir_arith(op, dtype, operand, values, count, false)))
        return 0;
    bool arithmetic = op != TIR_SELECT && op != TIR_CAST && op != TIR_BITCAST && !(tir_ops[op].flags & TIR_COMPARES);
    bool narrow = operand < DLC_DTYPE_COUNT && lib_dtype_is_narrow_float((dlc_dtype)operand);
    if (arithmetic && narrow && !is_exact(op, operand, values, count, bits)) return 0;
    return tir_bits(pool, dtype, bits);
}

/* ---- casts */

/* Does the float dtype `to` represent all values of `from`, a float or an integer? */
static bool embeds_in_float(tir_dtype from, tir_dtype to) {
    char a = lib_dtypes[from].class_;
    unsigned bits = lib_dtypes[from].bits;
    lib_float_info wide = lib_float_of((dlc_dtype)to);
    if (a != 'f') /* integers below 2^digits, and within range */
        return bits - (a == 'i') <= (unsigned)wide.digits && (int)bits <= wide.highest;
    lib_float_info x = lib_float_of((dlc_dtype)from);
    return x.digits <= wide.digits && x.highest <= wide.highest && x.infinite <= wide.infinite &&
           x.signed_zero <= wide.signed_zero && x.lowest - x.digits >= wide.lowest - wide.digits;
}

bool tir_embeds(tir_dtype from, tir_dtype to) {
    if (from == to) return true;
    if (from >= DLC_DTYPE_COUNT) return to == DLC_I64;
    char a = lib_dtypes[from].class_, b = to == TIR_INDEX ? 'i' : lib_dtypes[to].class_;
    unsigned bits = lib_dtypes[from].bits, room = to == TIR_INDEX ? 64u : lib_dtypes[to].bits;
    if (a == 'b') return b != 'b';
    if (a == 'f' && b != 'f') return false;
    if (b == 'f') return embeds_in_float(from, to);
    if (b == 'b') return false;
    return a == b ? room >= bits : a == 'u' && room > bits;
}

/* A clamp of x that saturation to bytes makes redundant: max(x, c) with c at the low end or below, min(x, c) at the high end or above;
 * NaN becomes 0 either way. Rounding to integral values is monotonic. Returns x, with the rounding; 0: no such clamp. */
static tir_expr without_bound(tir_pool *pool, tir_dtype to, tir_expr a) {
    if (tir_op_of(pool, a) == TIR_ROUND) {
        tir_expr x = without_bound(pool, to, tir_operand(pool, a, 0));
        return x ? tir_unary(pool, TIR_ROUND, x) : 0;
    }
    tir_op op = tir_op_of(pool, a);
    if (op != TIR_MAX && op != TIR_MIN) return 0;
    double low = lib_dtypes[to].class_ == 'i' ? -128 : 0, high = lib_dtypes[to].class_ == 'i' ? 127 : 255;
    for (int side = 0; side < 2; side++) {
        const tir_node *node = tir_get(pool, tir_operand(pool, a, side));
        double bound = node->op == TIR_CONST ? tir_bits_to_f64(node->dtype, node->bits) : (double)NAN;
        if (op == TIR_MAX ? bound <= low : bound >= high) return tir_operand(pool, a, 1 - side);
    }
    return 0;
}

/* Does a cast to the dtype keep the value of x? */
static bool cast_is_exact(tir_pool *pool, tir_dtype to, tir_expr x) {
    tir_dtype from = tir_dtype_of(pool, x);
    if (from == TIR_INDEX && is_integer(to) && lib_dtypes[to].bits < 64) {
        bool is_signed = lib_dtypes[to].class_ == 'i';
        int64_t span = INT64_C(1) << lib_dtypes[to].bits, low = is_signed ? -span / 2 : 0;
        tir_interval range = tir_facts_of(pool, x).range;
        return range.low >= low && range.high < low + span;
    }
    return tir_embeds(from, to);
}

static tir_expr fold_cast(tir_pool *pool, tir_dtype to, tir_expr a) {
    tir_dtype from = tir_dtype_of(pool, a);
    if (from == to) return a;
    if (is_float(from) && to != TIR_INDEX && is_integer(to) && lib_dtypes[to].bits == 8) {
        tir_expr x = without_bound(pool, to, a);
        if (x) return tir_cast(pool, to, x);
    }
    if (tir_op_of(pool, a) == TIR_CAST) {
        tir_expr x = tir_operand(pool, a, 0);
        tir_dtype inner = tir_dtype_of(pool, x);
        bool exact = cast_is_exact(pool, from, x);
        if (exact && to == inner) return x;
        /* integer via float to integer saturates where the direct cast wraps; all other casts join */
        bool detour = !is_float(inner) && is_float(from) && !is_float(to);
        if (exact && !detour) return tir_cast(pool, to, x);
    }
    if (to == DLC_BOOL) return tir_binary(pool, TIR_NE, a, tir_int(pool, from, 0));
    return intern(pool, TIR_CAST, to, 1, &a);
}

/* ---- unary */

static tir_expr fold_not(tir_pool *pool, tir_dtype dtype, tir_expr a) {
    tir_op op = tir_op_of(pool, a);
    if (op == TIR_NOT) return tir_operand(pool, a, 0);
    if (dtype == DLC_BOOL && (tir_ops[op].flags & TIR_COMPARES)) {
        tir_expr x = tir_operand(pool, a, 0), y = tir_operand(pool, a, 1);
        if (op == TIR_EQ) return tir_binary(pool, TIR_NE, x, y);
        if (op == TIR_NE) return tir_binary(pool, TIR_EQ, x, y);
        if (!is_float(tir_dtype_of(pool, x))) return tir_binary(pool, op == TIR_LT ? TIR_LE : TIR_LT, y, x);
    }
    return intern(pool, TIR_NOT, dtype, 1, &a);
}

static bool is_integral(const tir_pool *pool, tir_expr a) {
    tir_op op = tir_op_of(pool, a);
    if (op == TIR_FLOOR || op == TIR_CEIL || op == TIR_TRUNC || op == TIR_ROUND) return true;
    return op == TIR_CAST && !is_float(tir_dtype_of(pool, tir_operand(pool, a, 0)));
}

static tir_expr fold_unary(tir_pool *pool, tir_op op, tir_dtype dtype, tir_expr a) {
    tir_op inner = tir_op_of(pool, a);
    switch (op) {
    case TIR_NEG:
        if (inner == TIR_NEG) return tir_operand(pool, a, 0);
        break;
    case TIR_ABS:
        if (inner == TIR_ABS || (dtype < DLC_DTYPE_COUNT && strchr("bu", lib_dtypes[dtype].class_))) return a;
        if (inner == TIR_NEG) return tir_unary(pool, TIR_ABS, tir_operand(pool, a, 0));
        break;
    case TIR_NOT: return fold_not(pool, dtype, a);
    case TIR_FLOOR:
    case TIR_CEIL:
    case TIR_TRUNC:
    case TIR_ROUND:
        if (!is_float(dtype) || is_integral(pool, a)) return a;
        break;
    case TIR_CAST: return fold_cast(pool, dtype, a);
    case TIR_BITCAST:
        if (inner == TIR_BITCAST) return tir_bitcast(pool, dtype, tir_operand(pool, a, 0));
        break;
    default: break;
    }
    return intern(pool, op, dtype, 1, &a);
}

/* ---- binary */

static bool is_number(const tir_pool *pool, tir_expr e, double value) {
    const tir_node *node = tir_get(pool, e);
    return node->op == TIR_CONST && node->bits == tir_bits_from_f64(node->dtype, value);
}

static bool all_ones(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    return node->op == TIR_CONST &&
           node->bits == tir_arith(TIR_NOT, node->dtype, node->dtype, (uint64_t[]){0}, 1, false);
}

/* For floats -0 is the additive identity: x + -0 = x, but -0 + +0 = +0. */
static tir_expr fold_float(tir_pool *pool, tir_op op, tir_dtype dtype, tir_expr a, tir_expr b) {
    switch (op) {
    case TIR_ADD:
        if (is_number(pool, b, -0.0)) return a;
        if (tir_op_of(pool, b) == TIR_NEG) return tir_sub(pool, a, tir_operand(pool, b, 0));
        if (tir_op_of(pool, a) == TIR_NEG) return tir_sub(pool, b, tir_operand(pool, a, 0));
        break;
    case TIR_SUB:
        if (is_number(pool, b, 0.0)) return a;
        if (tir_op_of(pool, b) == TIR_NEG) return tir_add(pool, a, tir_operand(pool, b, 0));
        break;
    case TIR_MUL:
        if (is_number(pool, b, 1.0)) return a;
        if (is_number(pool, b, -1.0)) return tir_unary(pool, TIR_NEG, a);
        break;
    case TIR_DIV:
        if (is_number(pool, b, 1.0)) return a;
        if (is_number(pool, b, -1.0)) return tir_unary(pool, TIR_NEG, a);
        if (is_number(pool, b, 2.0)) return tir_mul(pool, a, tir_float(pool, dtype, 0.5));
        break;
    case TIR_MIN:
    case TIR_MAX:
        if (a == b) return a;
        break;
    case TIR_LT:
        if (a == b) return tir_bool(pool, false);
        break;
    default: break;
    }
    return 0;
}

#define INDEX_SAFE (TIR_UNBOUNDED_HIGH / 2)

/* Range of an integer dtype; those of 64 bits are cut to INDEX_SAFE. */
static tir_interval range_of(tir_dtype dtype) {
    int bits = lib_dtypes[dtype].bits;
    bool is_signed = lib_dtypes[dtype].class_ == 'i';
    int64_t high = bits > 62 ? INDEX_SAFE : ((int64_t)1 << (bits - is_signed)) - 1;
    int64_t low = !is_signed ? 0 : bits > 62 ? -INDEX_SAFE : -high - 1;
    return (tir_interval){low, high};
}

/* The index expression equal to an integer value of casts, constants and sums that cannot wrap. 0: none. */
static tir_expr as_index(tir_pool *pool, tir_expr e, int depth) {
    const tir_node node = *tir_get(pool, e);
    tir_expr index = 0;
    int64_t value;
    if (node.op == TIR_CAST && tir_dtype_of(pool, tir_operand(pool, e, 0)) == TIR_INDEX) {
        index = tir_operand(pool, e, 0);
    } else if (node.op == TIR_CONST && tir_is_const(pool, e, &value) && value >= -INDEX_SAFE && value <= INDEX_SAFE) {
        index = tir_index(pool, value);
    } else if ((node.op == TIR_ADD || node.op == TIR_SUB) && depth > 0) {
        tir_expr a = as_index(pool, tir_operand(pool, e, 0), depth - 1),
                 b = as_index(pool, tir_operand(pool, e, 1), depth - 1);
        if (a && b) index = tir_binary(pool, node.op, a, b);
    }
    if (!index) return 0;
    tir_interval all = range_of(node.dtype), range = tir_facts_of(pool, index).range;
    return range.low >= all.low && range.high <= all.high ? index : 0;
}

/* A comparison of positions as one of indices, which can be decided and solved for loop bounds; 0: it cannot become one. */
static tir_expr compare_as_index(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    enum { DEPTH = 4 };
    if (!(tir_ops[op].flags & TIR_COMPARES) || !is_integer(tir_dtype_of(pool, a))) return 0;
    tir_expr left = as_index(pool, a, DEPTH), right = left ? as_index(pool, b, DEPTH) : 0;
    return right ? tir_simplify_compare(pool, op, left, right) : 0;
}

static tir_expr fold_integer(tir_pool *pool, tir_op op, tir_dtype dtype, tir_expr a, tir_expr b) {
    bool same = a == b, zero = is_number(pool, b, 0.0), one = is_number(pool, b, 1.0);
    switch (op) {
    case TIR_ADD: return zero ? a : 0;
    case TIR_SUB: return zero ? a : same ? tir_int(pool, dtype, 0) : 0;
    case TIR_MUL: return one && dtype != DLC_BOOL ? a : zero ? b : 0;
    case TIR_DIV: return one && dtype != DLC_BOOL ? a : zero ? b : 0;
    case TIR_REM: return one || zero ? tir_int(pool, dtype, 0) : 0;
    case TIR_MIN:
    case TIR_MAX: return same ? a : 0;
    case TIR_AND: return same || all_ones(pool, b) ? a : zero ? b : 0;
    case TIR_OR: return same || zero ? a : all_ones(pool, b) ? b : 0;
    case TIR_XOR: return zero ? a : same ? tir_int(pool, dtype, 0) : 0;
    case TIR_SHL:
    case TIR_SHR: return zero ? a : 0;
    case TIR_EQ:
    case TIR_LE: return same ? tir_bool(pool, true) : 0;
    case TIR_NE:
    case TIR_LT: return same ? tir_bool(pool, false) : 0;
    default: return 0;
    }
}

static bool are_complements(const tir_pool *pool, tir_expr a, tir_expr b) {
    return (tir_op_of(pool, a) == TIR_NOT && tir_operand(pool, a, 0) == b) ||
           (tir_op_of(pool, b) == TIR_NOT && tir_operand(pool, b, 0) == a);
}

/* Rules for bool: x == true is x, x == false is not x; and, or with a complement are constant. */
static tir_expr fold_bool(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    if (tir_ops[op].flags & TIR_COMPARES) {
        int64_t value;
        if ((op != TIR_EQ && op != TIR_NE) || !tir_is_const(pool, b, &value)) return 0;
        return (value != 0) == (op == TIR_EQ) ? a : tir_unary(pool, TIR_NOT, a);
    }
    if (op != TIR_AND && op != TIR_OR) return 0;
    if (are_complements(pool, a, b)) return tir_bool(pool, op == TIR_OR);
    for (int side = 0; side < 2; side++) { /* a and (a and b) */
        tir_expr x = side ? b : a, y = side ? a : b;
        if (tir_op_of(pool, x) == op && (tir_operand(pool, x, 0) == y || tir_operand(pool, x, 1) == y)) return x;
    }
    return 0;
}

static tir_expr fold_binary(tir_pool *pool, tir_op op, tir_dtype dtype, tir_expr a, tir_expr b) {
    if (tir_ops[op].flags & TIR_COMMUTES) {
        bool a_const = tir_op_of(pool, a) == TIR_CONST, b_const = tir_op_of(pool, b) == TIR_CONST;
        if (a_const ? !b_const : !b_const && a > b) {
            tir_expr swap = a;
            a = b;
            b = swap;
        }
    }
    tir_dtype operand = tir_dtype_of(pool, a);
    if (operand == TIR_INDEX && (tir_ops[op].flags & TIR_COMPARES)) return tir_simplify_compare(pool, op, a, b);
    tir_expr folded = operand == DLC_BOOL ? fold_bool(pool, op, a, b) : compare_as_index(pool, op, a, b);
    if (!folded) folded = is_float(operand) ? fold_float(pool, op, dtype, a, b) : fold_integer(pool, op, dtype, a, b);
    return folded ? folded : intern(pool, op, dtype, 2, (tir_expr[]){a, b});
}

/* ---- select */

static tir_expr fold_select(tir_pool *pool, tir_dtype dtype, tir_expr condition, tir_expr a, tir_expr b) {
    if (a == b || tir_is_true(pool, condition)) return a;
    if (tir_is_false(pool, condition)) return b;
    if (tir_op_of(pool, condition) == TIR_NOT) return tir_select(pool, tir_operand(pool, condition, 0), b, a);
    if (dtype == DLC_BOOL) {
        if (tir_is_true(pool, a)) return tir_or(pool, condition, b);
        if (tir_is_false(pool, b)) return tir_and(pool, condition, a);
        if (tir_is_false(pool, a)) return tir_and(pool, tir_unary(pool, TIR_NOT, condition), b);
        if (tir_is_true(pool, b)) return tir_or(pool, tir_unary(pool, TIR_NOT, condition), a);
    }
    if (tir_op_of(pool, a) == TIR_SELECT && tir_operand(pool, a, 0) == condition) a = tir_operand(pool, a, 1);
    if (tir_op_of(pool, b) == TIR_SELECT && tir_operand(pool, b, 0) == condition) b = tir_operand(pool, b, 2);
    return a == b ? a : intern(pool, TIR_SELECT, dtype, 3, (tir_expr[]){condition, a, b});
}

tir_expr tir_simplify(tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands) {
    if (all_constant(pool, count, operands) && dtype != TIR_INDEX) {
        tir_expr folded = fold_constants(pool, op, dtype, count, operands);
        if (folded) return folded;
    }
    if (op == TIR_SELECT) return fold_select(pool, dtype, operands[0], operands[1], operands[2]);
    if (op == TIR_CAST) {
        int64_t index;
        tir_expr folded = all_constant(pool, count, operands) ? fold_constants(pool, op, dtype, count, operands) : 0;
        if (folded && dtype == TIR_INDEX && tir_is_const(pool, folded, &index)) /* clamp: all beyond are alike */
            return tir_index(pool, index < TIR_UNBOUNDED_LOW    ? TIR_UNBOUNDED_LOW
                                   : index > TIR_UNBOUNDED_HIGH ? TIR_UNBOUNDED_HIGH
                                                                : index);
        if (folded) return folded;
        return fold_cast(pool, dtype, operands[0]);
    }
    if (dtype == TIR_INDEX) return tir_simplify_index(pool, op, count, operands);
    if (count == 1) return fold_unary(pool, op, dtype, operands[0]);
    if (count == 2) return fold_binary(pool, op, dtype, operands[0], operands[1]);
    return intern(pool, op, dtype, count, operands);
}
