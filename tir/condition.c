/* Conditions on positions and data as comparisons of indices. A mask such as  position j <= length  compares integer values: the
 * reduction's axis, converted, with a loaded integer. As a comparison of indices it can bound loops: the loaded value is
 * converted and clamped to the relevant range, so that any value, however far outside, gives the same condition as before and no loop
 * leaves its axis. Integers wrap: if a sum of a position and a loaded value may wrap, a further condition excludes that. */
#include "tir/schedule.h"

enum { DEPTH = 8 };
#define FAR (INT64_C(1) << 40) /* bound of positions: sums of a few of them do not wrap in 64 bits */

/* An integer value as index + data, modulo 2^bits of its dtype: an index expression, and a value without converted positions. data 0: only
 * the index. */
typedef struct mixed {
    tir_expr index, data;
} mixed;

static bool is_integer(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && dtype != DLC_BOOL && lib_dtype_is_integer((dlc_dtype)dtype);
}

static bool is_unsigned(tir_dtype dtype) {
    return lib_dtypes[dtype].class_ == 'u';
}

/* Range of the dtype; that of u64 is cut to i64. */
static tir_interval range_of(tir_dtype dtype) {
    const int bits = lib_dtypes[dtype].bits - !is_unsigned(dtype);
    const int64_t high = bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1;
    return (tir_interval){is_unsigned(dtype) ? 0 : -high - 1, high};
}

static bool fits(tir_interval range, tir_dtype dtype) {
    const tir_interval all = range_of(dtype);
    return range.low > -FAR && range.high < FAR && range.low >= all.low && range.high <= all.high;
}

/* Does the value contain a cast from index, other than inside loads? */
static bool has_position(const tir_pool *pool, tir_expr e, int depth) {
    const tir_node *node = tir_get(pool, e);
    if (depth == 0) return true; /* conservative */
    if (node->op == TIR_LOAD) return false;
    if (node->op == TIR_CAST && tir_dtype_of(pool, tir_operand(pool, e, 0)) == TIR_INDEX) return true;
    for (int i = 0; i < node->count; i++)
        if (has_position(pool, tir_operand(pool, e, i), depth - 1)) return true;
    return false;
}

static bool take_apart(tir_pool *pool, tir_expr e, int depth, mixed *out);

/* take_apart of a cast. */
static bool take_cast_apart(tir_pool *pool, tir_expr e, int depth, mixed *out) {
    const tir_dtype dtype = tir_dtype_of(pool, e);
    const tir_expr from = tir_operand(pool, e, 0);
    mixed inner;
    if (tir_dtype_of(pool, from) == TIR_INDEX) {
        out->index = from;
        return fits(tir_range(pool, from), dtype);
    }
    if (depth == 0 || !is_integer(tir_dtype_of(pool, from)) || !take_apart(pool, from, depth - 1, &inner)) return false;
    out->index = inner.index; /* an index without data must not wrap before the conversion */
    return !inner.data && fits(tir_range(pool, inner.index), tir_dtype_of(pool, from)) &&
           fits(tir_range(pool, inner.index), dtype);
}

/* Splits a value into *out; false: it has not the form of `mixed`. */
static bool take_apart(tir_pool *pool, tir_expr e, int depth, mixed *out) {
    const tir_node node = *tir_get(pool, e);
    int64_t number;
    *out = (mixed){tir_index(pool, 0), 0};
    if (!has_position(pool, e, DEPTH)) {
        if (tir_is_const(pool, e, &number) && number > -FAR && number < FAR)
            out->index = tir_index(pool, number);
        else
            out->data = e;
        return true;
    }
    if (node.op == TIR_CAST) return take_cast_apart(pool, e, depth, out);
    if ((node.op != TIR_ADD && node.op != TIR_SUB) || depth == 0) return false;
    mixed a, b;
    if (!take_apart(pool, tir_operand(pool, e, 0), depth - 1, &a) ||
        !take_apart(pool, tir_operand(pool, e, 1), depth - 1, &b))
        return false;
    out->index = tir_binary(pool, node.op, a.index, b.index);
    out->data = !b.data              ? a.data
                : a.data             ? tir_binary(pool, node.op, a.data, b.data)
                : node.op == TIR_SUB ? tir_unary(pool, TIR_NEG, b.data)
                                     : b.data;
    return true;
}

/* Interval of the least (else the greatest) of two values. */
static tir_interval interval_of_extreme(bool min, tir_interval a, tir_interval b) {
    return (tir_interval){(min ? a.low < b.low : a.low > b.low) ? a.low : b.low,
                          (min ? a.high < b.high : a.high > b.high) ? a.high : b.high};
}

/* Interval of an integer value. */
static tir_interval interval_of(tir_pool *pool, tir_expr e, int depth) {
    const tir_node node = *tir_get(pool, e);
    const tir_interval all = range_of(node.dtype);
    int64_t number;
    if (tir_is_const(pool, e, &number) && number >= all.low) return (tir_interval){number, number};
    if (depth > 0 && node.op == TIR_CAST && is_integer(tir_dtype_of(pool, tir_operand(pool, e, 0)))) {
        const tir_interval from = interval_of(pool, tir_operand(pool, e, 0), depth - 1);
        const bool whole = is_unsigned(tir_dtype_of(pool, tir_operand(pool, e, 0))) && from.high == INT64_MAX;
        return !whole && from.low >= all.low && from.high <= all.high ? from : all;
    }
    if (depth > 0 && (node.op == TIR_MIN || node.op == TIR_MAX) &&
        !(is_unsigned(node.dtype) && all.high == INT64_MAX)) {
        const tir_interval a = interval_of(pool, tir_operand(pool, e, 0), depth - 1),
                           b = interval_of(pool, tir_operand(pool, e, 1), depth - 1);
        return interval_of_extreme(node.op == TIR_MIN, a, b);
    }
    return all;
}

/* A value as an index, clamped to low .. high. */
static tir_expr held(tir_pool *pool, tir_expr data, int64_t low, int64_t high) {
    const tir_dtype dtype = tir_dtype_of(pool, data);
    if (is_unsigned(dtype) && lib_dtypes[dtype].bits == 64) data = tir_min(pool, data, tir_int(pool, dtype, FAR));
    const tir_expr index = tir_min(pool, tir_cast(pool, TIR_INDEX, data), tir_index(pool, high));
    return tir_max(pool, index, tir_index(pool, low));
}

/* The result of a comparison of a sum with `other` if the sum leaves its dtype. */
typedef enum wrapping { NEVER_WRAPS, WRAPS_TO_FALSE, WRAPS_TO_TRUE } wrapping;

static wrapping wraps(tir_pool *pool, mixed sum, tir_interval other, bool on_the_right) {
    const tir_dtype dtype = tir_dtype_of(pool, sum.data);
    const tir_interval all = range_of(dtype), index = tir_range(pool, sum.index),
                       data = interval_of(pool, sum.data, DEPTH);
    const bool above = index.high > 0 && data.high > all.high - index.high;
    const bool below = index.low < 0 && data.low < all.low - index.low;
    if (!above && !below) return NEVER_WRAPS;
    if (is_unsigned(dtype) && lib_dtypes[dtype].bits == 64) return WRAPS_TO_TRUE; /* range_of is cut to i64 */
    if (on_the_right) /* a sum beyond the end wraps to about the lowest value, and nothing is less than that */
        return below || all.low + index.high > other.low ? WRAPS_TO_TRUE : WRAPS_TO_FALSE;
    return above || all.high + index.low < other.high ? WRAPS_TO_TRUE : WRAPS_TO_FALSE;
}

/* The condition that the sum does not exceed the dtype's range (`above`), or is not below it. The caller knows that the sum does not
 * leave the range at its other end. */
static tir_expr does_not_wrap(tir_pool *pool, mixed sum, bool above) {
    const tir_dtype dtype = tir_dtype_of(pool, sum.data);
    const tir_interval all = range_of(dtype), index = tir_range(pool, sum.index);
    if (!above && is_unsigned(dtype)) /* not below 0 */
        return tir_le(pool, tir_sub(pool, tir_index(pool, 0), sum.index), held(pool, sum.data, 0, -index.low));
    const tir_expr zero = tir_int(pool, dtype, 0), end = tir_int(pool, dtype, above ? all.high : all.low);
    const tir_expr data = above ? tir_max(pool, sum.data, zero) : tir_min(pool, sum.data, zero);
    const tir_expr room =
        held(pool, tir_binary(pool, TIR_SUB, end, data), above ? 0 : index.low, above ? index.high : 0);
    return above ? tir_le(pool, sum.index, room) : tir_le(pool, room, sum.index);
}

/* Does the sum of an index in this range and a value of the dtype wrap once at most? */
static bool wraps_once_at_most(tir_interval index, tir_dtype dtype) {
    return index.low > -FAR && index.high < FAR && index.low >= -range_of(dtype).high &&
           index.high <= range_of(dtype).high;
}

/* left op right (LT or LE) as a comparison of indices; 0: not exactly one side contains data, or a sum that wraps could make it true. */
static tir_expr compare(tir_pool *pool, tir_op op, tir_expr left, tir_expr right) {
    const tir_dtype dtype = tir_dtype_of(pool, left);
    mixed a, b;
    if (!is_integer(dtype) || !take_apart(pool, left, DEPTH, &a) || !take_apart(pool, right, DEPTH, &b)) return 0;
    if (!a.data == !b.data) return 0;
    const bool on_the_right = b.data != 0;
    const mixed sum = on_the_right ? b : a;
    const tir_expr plain = on_the_right ? a.index : b.index, difference = tir_sub(pool, plain, sum.index);
    const tir_interval other = tir_range(pool, plain), range = tir_range(pool, difference);
    if (!fits(other, dtype) || range.low <= -FAR || range.high >= FAR) return 0;
    if (!wraps_once_at_most(tir_range(pool, sum.index), dtype)) return 0;
    const wrapping wrap = wraps(pool, sum, other, on_the_right);
    if (wrap == WRAPS_TO_TRUE) return 0;
    /* clamp the data to the range in which it affects the comparison */
    const bool less = op == TIR_LT;
    tir_expr data, condition;
    if (on_the_right) {
        data = held(pool, sum.data, range.low - !less, range.high + less);
        condition = tir_binary(pool, op, difference, data);
    } else {
        data = held(pool, sum.data, range.low - less, range.high + !less);
        condition = tir_binary(pool, op, data, difference);
    }
    if (wrap == WRAPS_TO_FALSE) condition = tir_and(pool, condition, does_not_wrap(pool, sum, on_the_right));
    return condition;
}

/* The condition (negate: its complement) with each comparison in its conjunction replaced by the index form, where there is one. */
static tir_expr convert(tir_pool *pool, tir_expr e, bool negate, int depth) {
    const tir_op op = tir_op_of(pool, e);
    tir_expr found = 0;
    if (op == TIR_NOT && depth > 0) return convert(pool, tir_operand(pool, e, 0), !negate, depth - 1);
    if (op == (negate ? TIR_OR : TIR_AND) && depth > 0) {
        const tir_expr a = convert(pool, tir_operand(pool, e, 0), negate, depth - 1);
        return tir_and(pool, a, convert(pool, tir_operand(pool, e, 1), negate, depth - 1));
    }
    if (op == TIR_LT || op == TIR_LE) {
        const tir_expr a = tir_operand(pool, e, 0), b = tir_operand(pool, e, 1);
        found = negate ? compare(pool, op == TIR_LT ? TIR_LE : TIR_LT, b, a) : compare(pool, op, a, b);
    }
    return found ? found : negate ? tir_unary(pool, TIR_NOT, e) : e;
}

tir_expr tir_index_condition(tir_pool *pool, tir_expr condition, bool negate) {
    return convert(pool, condition, negate, DEPTH);
}
