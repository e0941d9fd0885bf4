/* Maps of bools and the bits of integers. */
#include "graph/ops_map.h"

/* ---- scalars */

static tir_expr width_of(tir_pool *pool, tir_dtype dtype) {
    return tir_int(pool, dtype, lib_dtypes[dtype].bits);
}

/* Bits shifted in are copies of the sign. A shift beyond width - 1 acts like width - 1, which leaves only copies of the sign. */
SCALAR(shift_right_arithmetic) {
    tir_expr zero = tir_int(pool, dtype, 0), most = tir_int(pool, dtype, lib_dtypes[dtype].bits - 1);
    tir_expr shifted = tir_binary(pool, TIR_SHR, x[0], x[1]);
    if (lib_dtypes[dtype].class_ == 'u') return shifted;
    tir_expr beyond = tir_or(pool, tir_lt(pool, x[1], zero), tir_lt(pool, most, x[1]));
    return tir_select(pool, beyond, tir_binary(pool, TIR_SHR, x[0], most), shifted);
}

/* Clears the bits shifted in by a mask, (1 << (width - shift)) - 1. For a shift by 0 that is 0 - 1, which keeps all bits. */
SCALAR(shift_right_logical) {
    tir_expr shifted = tir_binary(pool, TIR_SHR, x[0], x[1]), one = tir_int(pool, dtype, 1);
    if (lib_dtypes[dtype].class_ == 'u') return shifted;
    tir_expr kept = tir_binary(pool, TIR_SHL, one, tir_sub(pool, width_of(pool, dtype), x[1]));
    return tir_and(pool, shifted, tir_sub(pool, kept, one));
}

static tir_expr repeated_byte(tir_pool *pool, tir_dtype dtype, uint64_t byte) {
    uint64_t bits = 0;
    for (int b = 0; b < lib_dtypes[dtype].bits; b += 8) bits |= byte << b;
    return tir_bits(pool, dtype, bits);
}

/* Adds neighbouring bits, then pairs, then nibbles; a product adds all bytes up in the highest byte. Masks clear the sign bits that are
 * shifted in. */
SCALAR(popcount) {
    tir_expr odd = repeated_byte(pool, dtype, 0x55), pair = repeated_byte(pool, dtype, 0x33);
    tir_expr nibble = repeated_byte(pool, dtype, 0x0f), count = x[0];
#define SHIFTED(e, amount) tir_binary(pool, TIR_SHR, e, tir_int(pool, dtype, amount))
    count = tir_sub(pool, count, tir_and(pool, SHIFTED(count, 1), odd));
    count = tir_add(pool, tir_and(pool, count, pair), tir_and(pool, SHIFTED(count, 2), pair));
    count = tir_and(pool, tir_add(pool, count, SHIFTED(count, 4)), nibble);
    if (lib_dtypes[dtype].bits == 8) return count;
    return SHIFTED(tir_mul(pool, count, repeated_byte(pool, dtype, 1)), lib_dtypes[dtype].bits - 8);
#undef SHIFTED
}

/* Sets all bits below the highest set one: the result is the width minus the number of bits then set. 0 for negative numbers, whose
 * highest bit is set. */
SCALAR(clz) {
    tir_expr zero = tir_int(pool, dtype, 0), smeared = x[0];
    for (int by = 1; by < lib_dtypes[dtype].bits; by *= 2)
        smeared = tir_or(pool, smeared, tir_binary(pool, TIR_SHR, smeared, tir_int(pool, dtype, by)));
    tir_expr count = tir_sub(pool, width_of(pool, dtype), scalar_popcount(pool, dtype, &smeared, attribute));
    if (lib_dtypes[dtype].class_ == 'u') return count;
    return tir_select(pool, tir_lt(pool, x[0], zero), zero, count);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* x shifted by n bits to the left, or else to the right, bit by bit; `fill` comes in on the left. */
static double shifted(dlc_dtype t, double x, double n, bool left, bool fill) {
    int width = lib_dtypes[t].bits, by = n < 0 || n > width ? width : (int)n;
    uint64_t result = 0;
    for (int bit = 0; bit < width; bit++) {
        int from = left ? bit - by : bit + by;
        bool set = from < 0 ? false : from >= width ? fill : word(x) >> from & 1;
        result |= (uint64_t)set << bit;
    }
    return graph_reference_wrap(t, result);
}

static double leading_zeros(dlc_dtype t, double x) {
    int count = 0;
    for (int bit = lib_dtypes[t].bits - 1; bit >= 0 && !(word(x) >> bit & 1); bit--) count++;
    return count;
}
REFERENCE(clz, leading_zeros(t, x[0]))
REFERENCE(popcount, __builtin_popcountll(word(x[0]) & (UINT64_MAX >> (64 - lib_dtypes[t].bits))))
REFERENCE(not, t == DLC_BOOL ? x[0] == 0 : graph_reference_wrap(t, ~word(x[0])))
REFERENCE(shift_left, shifted(t, x[0], x[1], true, false))
REFERENCE(shift_right_arithmetic, shifted(t, x[0], x[1], false, x[0] < 0))
REFERENCE(shift_right_logical, shifted(t, x[0], x[1], false, false))
REFERENCE(and, graph_reference_wrap(t, word(x[0]) & word(x[1])))
REFERENCE(or, graph_reference_wrap(t, word(x[0]) | word(x[1])))
REFERENCE(xor, graph_reference_wrap(t, word(x[0]) ^ word(x[1])))

#endif

/* ---- rows */

#define SHIFT(name)                                                                                        \
    name "(T[17, 23] in 0..128, T[17, 23] in 0..70)\n" name "(i32[17, 23], i32[17, 23] in -40..40)\n" name \
         "(i8[17, 23], i8[17, 23] in -9..12)\n" name "(T[], T[])\n" name "(T[3, 0, 2], T[3, 0, 2])\n" name \
         "(T[67] in 0..128, T[67] in 0..8)"

static const graph_op row_popcount = {
    MAP(popcount, 1, "x"),
    .aliases = "bitwise_count",
    .dtypes = "int",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = UNARY("popcount"),
    .doc = "Number of bits that are set, of a negative number in two's complement. StableHLO popcnt.",
};

static const graph_op row_clz = {
    MAP(clz, 1, "x"),
    .aliases = "count_leading_zeros",
    .dtypes = "int",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = UNARY("clz"),
    .doc = "Number of bits above the highest one that is set; the width for 0. StableHLO count_leading_zeros.",
};

static const graph_op row_not = {
    PLAIN(not, 1, "x", TIR_NOT), .aliases = "logical_not bitwise_not invert",
    .dtypes = "bool int",        .algebra = GRAPH_INVOLUTION,
    .infer = graph_infer_map,    GRAPH_NO_GRADIENT,
    .samples = UNARY("not"),     .doc = "Logical not of bools, bitwise not of integers. StableHLO not.",
};

static const graph_op row_shift_left = {
    PLAIN(shift_left, 2, "a b", TIR_SHL),
    .aliases = "left_shift bitwise_left_shift",
    .dtypes = "int",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = SHIFT("shift_left"),
    .doc = "a * 2**b, wrapping; 0 for b beyond the width, or negative. StableHLO shift_left.",
};

static const graph_op row_shift_right_arithmetic = {
    MAP(shift_right_arithmetic, 2, "a b"),
    .aliases = "right_shift bitwise_right_shift",
    .dtypes = "int",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = SHIFT("shift_right_arithmetic"),
    .doc = "floor(a / 2**b); 0, or -1 for negative a, for b beyond the width, or negative. StableHLO "
           "shift_right_arithmetic.",
};

static const graph_op row_shift_right_logical = {
    MAP(shift_right_logical, 2, "a b"),
    .dtypes = "int",
    .infer = graph_infer_map,
    GRAPH_NO_GRADIENT,
    .samples = SHIFT("shift_right_logical"),
    .doc = "The bits of a moved to the right, zeros coming in; 0 for b beyond the width, or negative. StableHLO "
           "shift_right_logical.",
};

static const graph_op row_and = {
    PLAIN(and, 2, "a b", TIR_AND), .aliases = "logical_and bitwise_and",
    .dtypes = "bool int",          .algebra = LATTICE,
    .infer = graph_infer_map,      GRAPH_NO_GRADIENT,
    .samples = BINARY("and"),      .doc = "Logical and of bools, bitwise and of integers. StableHLO and.",
};

static const graph_op row_or = {
    PLAIN(or, 2, "a b", TIR_OR), .aliases = "logical_or bitwise_or",
    .dtypes = "bool int",        .algebra = LATTICE,
    .infer = graph_infer_map,    GRAPH_NO_GRADIENT,
    .samples = BINARY("or"),     .doc = "Logical or of bools, bitwise or of integers. StableHLO or.",
};

static const graph_op row_xor = {
    PLAIN(xor, 2, "a b", TIR_XOR), .aliases = "logical_xor bitwise_xor",
    .dtypes = "bool int",          .algebra = SEMIGROUP,
    .infer = graph_infer_map,      GRAPH_NO_GRADIENT,
    .samples = BINARY("xor"),      .doc = "Logical exclusive or of bools, bitwise of integers. StableHLO xor.",
};

const graph_op *const graph_ops_bits[] = {
    &row_popcount, &row_clz, &row_not, &row_shift_left, &row_shift_right_arithmetic, &row_shift_right_logical, &row_and,
    &row_or,       &row_xor, NULL,
};
