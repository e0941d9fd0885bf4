/* Element types stored in another form than kernels compute in: complex numbers as pairs of f32, and codes: elements of 4 and 2 bits,
 * several to a byte, and f8e8m0. Kernels see complex numbers as f32 with an additional last dimension, codes as bytes (region.c).
 * Only the rows here compute on them; all other rows are expanded to operate on parts of their operands (graph_expand_stored). */
#include "graph/bound.h"
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#include <math.h>

/* ---- complex numbers ------------------------------------------------------------------------------------------------ */

static void infer_complex(graph_infer *infer) {
    graph_infer_dtype(infer, 0, DLC_F32);
    graph_infer_map(infer);
    if (infer->result[0].rank == DLC_MAX_RANK)
        graph_infer_fail(infer, "rank %d, expected %d at most: a complex number is a pair", DLC_MAX_RANK,
                         DLC_MAX_RANK - 1);
    infer->result[0].dtype = DLC_C64;
}

static void infer_part(graph_infer *infer) {
    graph_infer_dtype(infer, 0, DLC_C64);
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = DLC_F32;
}

static void infer_as_pairs(graph_infer *infer) {
    infer_part(infer);
    if (infer->result[0].rank == DLC_MAX_RANK)
        graph_infer_fail(infer, "rank %d, expected %d at most", DLC_MAX_RANK, DLC_MAX_RANK - 1);
    infer->result[0].dim[infer->result[0].rank++] = tir_index(infer->g->pool, 2);
}

static void infer_as_complex(graph_infer *infer) {
    graph_infer_dtype(infer, 0, DLC_F32);
    graph_shape *y = &infer->result[0];
    *y = infer->operand[0];
    if (y->rank == 0) graph_infer_fail(infer, "rank 0, expected a last dimension of 2: the pairs");
    graph_infer_equal(infer, y->dim[--y->rank], tir_index(infer->g->pool, 2), "the last dimension and 2");
    y->dtype = DLC_C64;
}

static void infer_conj(graph_infer *infer) {
    infer_part(infer);
    infer->result[0].dtype = DLC_C64;
}

/* A map stage over dims[rank] and, if `pairs`, an axis of the two parts; sets axis[] to its variables. */
static tir_stage *open_parts(graph_compute *c, int rank, const tir_expr *dims, bool pairs, tir_expr *axis) {
    tir_expr extent[DLC_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) extent[i] = dims[i];
    if (pairs) extent[rank++] = tir_index(c->pool, 2);
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, rank, NULL, extent, 0, NULL, NULL);
    for (int i = 0; i < rank; i++) axis[i] = stage->axis[i].var;
    return stage;
}

static void compute_complex(graph_compute *c) {
    tir_expr axis[DLC_MAX_RANK];
    const graph_shape *y = &c->result_shape[0];
    tir_stage *stage = open_parts(c, y->rank, y->dim, true, axis);
    const tir_expr part[2] = {graph_operand_load(c, 0, axis), graph_operand_load(c, 1, axis)};
    c->result[0] = tir_stage_value(c->region, stage, tir_pick(c->pool, axis[y->rank], 2, part), 0, 0);
}

static void compute_part(graph_compute *c, int part) {
    tir_expr axis[DLC_MAX_RANK];
    const graph_shape *y = &c->result_shape[0];
    tir_stage *stage = open_parts(c, y->rank, y->dim, false, axis);
    axis[y->rank] = tir_index(c->pool, part);
    c->result[0] = tir_stage_value(c->region, stage, graph_operand_load(c, 0, axis), 0, 0);
}
static void compute_real(graph_compute *c) {
    compute_part(c, 0);
}
static void compute_imag(graph_compute *c) {
    compute_part(c, 1);
}

/* The conversion between f32[..., 2] and c64[...]: a copy, since kernels see both as f32[..., 2]. */
static void compute_pairs(graph_compute *c) {
    tir_expr axis[DLC_MAX_RANK];
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    const graph_shape *numbers = x->dtype == DLC_C64 ? x : y;
    tir_stage *stage = open_parts(c, numbers->rank, numbers->dim, true, axis);
    c->result[0] = tir_stage_value(c->region, stage, graph_operand_load(c, 0, axis), 0, 0);
}

static graph_id emit_complex(graph *g, graph_id real, graph_id imag) {
    return graph_emit_with(g, "complex", 2, (graph_id[]){real, imag}, 0, NULL);
}
static graph_id emit_part(graph *g, graph_id x, int part) {
    return graph_emit_with(g, part ? "imag" : "real", 1, &x, 0, NULL);
}

static void expand_conj(graph_expand *e) {
    graph_id x = e->input[0];
    e->result[0] = emit_complex(e->g, emit_part(e->g, x, 0), graph_neg(e->g, emit_part(e->g, x, 1)));
}

static void expand_angle(graph_expand *e) {
    graph_id x = e->input[0], parts[2] = {emit_part(e->g, x, 1), emit_part(e->g, x, 0)};
    e->result[0] = graph_emit_with(e->g, "atan2", 2, parts, 0, NULL);
}

/* ---- codes of numbers ----------------------------------------------------------------------------------------------- */

static void infer_unpack(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = lib_dtypes[infer->operand[0].dtype].class_ == 'i' ? DLC_I8 : DLC_U8;
}

enum { PACK_DTYPE };

static void infer_pack(graph_infer *infer) {
    const dlc_dtype dtype = (dlc_dtype)infer->attribute[PACK_DTYPE].integer;
    if (!lib_dtype_is_encoded(dtype))
        graph_infer_fail(infer, "dtype is %s, expected i4, u4, i2, u2, f4e2m1 or f8e8m0", lib_dtypes[dtype].name);
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = dtype;
}

/* Number of elements of the dtype in a byte. */
static int per_byte(dlc_dtype dtype) {
    return 8 / lib_dtypes[dtype].bits;
}

/* The code at axis[]: its bits are shifted to the byte's high end and then, with sign or zero extension, to its low end. */
static tir_expr unpacked(graph_compute *c, const tir_expr *axis) {
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    const dlc_dtype from = c->operand_shape[0].dtype;
    const tir_dtype to = (tir_dtype)y->dtype;
    const int bits = lib_dtypes[from].bits, each = per_byte(from);
    if (each == 1) return graph_operand_load(c, 0, axis);
    tir_expr at = tir_index(pool, 0), count = tir_index(pool, each);
    for (int i = 0; i < y->rank; i++) at = tir_add(pool, tir_mul(pool, at, y->dim[i]), axis[i]);
    tir_expr byte_at = tir_div(pool, at, count), place = tir_rem(pool, at, count);
    const tir_expr byte = tir_cast(pool, to, graph_operand_load(c, 0, &byte_at));
    tir_expr high[8];
    for (int k = 0; k < each; k++) high[k] = tir_binary(pool, TIR_SHL, byte, tir_int(pool, to, 8 - bits * (k + 1)));
    return tir_binary(pool, TIR_SHR, tir_pick(pool, place, each, high), tir_int(pool, to, 8 - bits));
}

static void compute_unpack(graph_compute *c) {
    graph_compute_elements(c, unpacked);
}

/* Sets index[] to that of element `at` of x in row-major order. */
static void indices_of(tir_pool *pool, const graph_shape *x, tir_expr at, tir_expr *index) {
    for (int i = x->rank - 1; i > 0; i--) {
        /* avoids a zero divisor for empty tensors, which are never read */
        tir_expr extent = tir_max(pool, x->dim[i], tir_index(pool, 1));
        index[i] = tir_rem(pool, at, extent);
        at = tir_div(pool, at, extent);
    }
    if (x->rank) index[0] = at;
}

/* A byte of `each` codes of elements from `first` on; those from `count` on do not exist and give 0. */
static tir_expr packed_byte(graph_compute *c, tir_expr first, tir_expr count, int bits, int each) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr mask = tir_int(pool, DLC_U8, (1 << bits) - 1), index[DLC_MAX_RANK], byte = 0;
    for (int k = 0; k < each; k++) {
        tir_expr at = tir_add(pool, first, tir_index(pool, k)), code;
        indices_of(pool, x, at, index);
        if (k == 0)
            code = graph_operand_load(c, 0, index);
        else
            code = tir_region_load_guarded(c->region, c->operand[0], index, tir_lt(pool, at, count),
                                           tir_int(pool, (tir_dtype)x->dtype, 0));
        code = tir_cast(pool, DLC_U8, code);
        if (k < each - 1) code = tir_and(pool, code, mask); /* the shift drops the last one's high bits */
        if (k > 0) code = tir_binary(pool, TIR_SHL, code, tir_int(pool, DLC_U8, k * bits));
        byte = byte ? tir_or(pool, byte, code) : code;
    }
    return byte;
}

static tir_expr stored_code(graph_compute *c, const tir_expr *axis) {
    return tir_cast(c->pool, DLC_U8, graph_operand_load(c, 0, axis));
}

static void compute_pack(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    const dlc_dtype to = c->result_shape[0].dtype;
    const int each = per_byte(to);
    if (each == 1) {
        graph_compute_elements(c, stored_code);
        return;
    }
    tir_expr count = tir_index(pool, 1);
    for (int i = 0; i < x->rank; i++) count = tir_mul(pool, count, x->dim[i]);
    tir_expr bytes = tir_ceil_div(pool, count, tir_index(pool, each));
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 1, NULL, &bytes, 0, NULL, NULL);
    tir_expr first = tir_mul(pool, stage->axis[0].var, tir_index(pool, each));
    tir_expr byte = packed_byte(c, first, count, lib_dtypes[to].bits, each);
    c->result[0] = tir_stage_value(c->region, stage, byte, 0, 0);
}

static graph_id emit_unpack(graph *g, graph_id x) {
    return graph_emit_with(g, "unpack_bits", 1, &x, 0, NULL);
}
static graph_id emit_pack(graph *g, graph_id x, dlc_dtype dtype) {
    return graph_emit_with(g, "pack_bits", 1, &x, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
}

/* ---- numbers of floats stored as codes ------------------------------------------------------------------------------ */

static graph_id emit_binary(graph *g, const char *name, graph_id a, graph_id b) {
    return graph_emit_with(g, name, 2, (graph_id[]){a, b}, 0, NULL);
}

static graph_id is_negative(graph *g, graph_id x) {
    return graph_lt(g, emit_binary(g, "copy_sign", graph_full_like(g, x, 1), x), graph_scalar_like(g, x, 0));
}

/* f4e2m1: the numbers grow with the code c in steps of 1/2, 1 and 2, as the greatest of three straight lines. */
static graph_id f4_from_codes(graph *g, graph_id codes) {
    enum { SIGN = 8 };
    graph_id c = graph_cast(g, graph_and(g, codes, graph_scalar_like(g, codes, SIGN - 1)), DLC_F32);
    graph_id fine = graph_mul_number(g, c, 0.5), coarse = graph_add_number(g, graph_mul_number(g, c, 2), -8);
    graph_id size = graph_max(g, graph_max(g, fine, graph_add_number(g, c, -2)), coarse);
    return graph_select(g, graph_ge(g, codes, graph_scalar_like(g, codes, SIGN)), graph_neg(g, size), size);
}

/* f4e2m1 codes of x, f32 or f64: the number of midpoints of neighbouring numbers that |x| exceeds; a midpoint itself rounds to the even
 * code. NaN gives 0. */
static graph_id f4_codes(graph *g, graph_id x) {
    static const double midpoints[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
    graph_id size = graph_abs(g, x), codes = 0;
    for (int i = 0; i < 7; i++) {
        graph_id midpoint = graph_scalar_like(g, x, midpoints[i]);
        graph_id beyond = graph_cast(g, i % 2 ? graph_ge(g, size, midpoint) : graph_gt(g, size, midpoint), DLC_U8);
        codes = codes ? graph_add(g, codes, beyond) : beyond;
    }
    graph_id negative = graph_and(g, is_negative(g, x), graph_eq(g, x, x));
    return graph_select(g, negative, graph_add_number(g, codes, 8), codes);
}

/* f8e8m0: the code is the exponent of f32, 255 is NaN. */
enum { POWER_BIAS = 127, POWER_LAST = 254, POWER_NAN = 255 };

static graph_id powers_from_codes(graph *g, graph_id codes) {
    graph_id exponent = graph_add_number(g, graph_cast(g, codes, DLC_I32), -POWER_BIAS);
    const graph_shape *shape = graph_shape_of(g, exponent);
    graph_id one = graph_full(g, DLC_F32, shape->rank, shape->dim, 1), power = emit_binary(g, "ldexp", one, exponent);
    graph_id nan = graph_eq(g, codes, graph_scalar_like(g, codes, POWER_NAN));
    return graph_select(g, nan, graph_scalar_like(g, power, (double)NAN), power);
}

/* x as f64. Integers beyond 2^53 are rounded to odd, so that rounding them again gives the right result (see lib_element_set_i64). */
static graph_id as_f64(graph *g, graph_id x) {
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    if (dtype != DLC_I64 && dtype != DLC_U64) return graph_cast(g, x, DLC_F64);
    graph_id size = graph_cast(g, dtype == DLC_I64 ? graph_abs(g, x) : x, DLC_U64);
    graph_id low = graph_scalar_i64(g, DLC_U64, 0x7ff), zero = graph_scalar_i64(g, DLC_U64, 0);
    graph_id cut = graph_ne(g, graph_and(g, size, low), zero), step = graph_scalar_i64(g, DLC_U64, 0x800);
    graph_id odd = graph_or(g, graph_sub(g, size, graph_and(g, size, low)), graph_select(g, cut, step, zero));
    graph_id exact = graph_lt(g, size, graph_scalar_i64(g, DLC_U64, INT64_C(1) << 53));
    graph_id y = graph_cast(g, graph_select(g, exact, size, odd), DLC_F64);
    return dtype == DLC_U64 ? y : graph_select(g, graph_lt(g, x, graph_scalar_like(g, x, 0)), graph_neg(g, y), y);
}

/* f8e8m0 codes of numbers x: the exponent bits of x as f64, to which an addend in the mantissa has carried if x rounds up. */
static graph_id power_codes(graph *g, graph_id x, int64_t rounding, bool saturate) {
    enum { NEAREST, UP, DOWN, F64_MANTISSA = 52, F64_BIAS = 1023 };
    const int64_t one = INT64_C(1) << F64_MANTISSA, rounds = rounding == NEAREST ? one / 2
                                                             : rounding == UP    ? one - 1
                                                                                 : 0;
    graph_id wide = as_f64(g, x), bits = graph_abs(g, wide);
    bits = graph_emit_with(g, "bit_cast", 1, &bits, 1, (graph_setting[]){graph_set_integer("dtype", DLC_U64)});
    bits = graph_add(g, bits, graph_scalar_i64(g, DLC_U64, rounds));
    bits = emit_binary(g, "shift_right_logical", bits, graph_full_like(g, bits, F64_MANTISSA));
    graph_id code = graph_add_number(g, graph_cast(g, bits, DLC_I32), POWER_BIAS - F64_BIAS);
    graph_id nan = graph_scalar_like(g, code, POWER_NAN), last = graph_scalar_like(g, code, POWER_LAST);
    graph_id first = graph_scalar_like(g, code, 0);
    code = graph_select(g, graph_lt(g, code, first), saturate ? first : nan, code);
    code = graph_select(g, graph_gt(g, code, last), saturate ? last : nan, code);
    graph_id valid = graph_ge(g, wide, graph_scalar_like(g, wide, 0));
    return graph_cast(g, graph_select(g, valid, code, nan), DLC_U8);
}

/* ---- other rows on such elements ------------------------------------------------------------------------------------ */

static bool is_c64(const graph *g, graph_id x) {
    return x && graph_shape_of(g, x)->dtype == DLC_C64;
}
static bool is_encoded(const graph *g, graph_id x) {
    return x && lib_dtype_is_encoded(graph_shape_of(g, x)->dtype);
}

extern const graph_op *const graph_ops_stored[];

bool graph_op_stores(const graph_op *op) {
    for (const graph_op *const *row = graph_ops_stored; *row; row++)
        if (*row == op) return true;
    return false;
}

bool graph_is_on_stored(const graph *g, const graph_node *node) {
    const bool sums = node->op->structure == GRAPH_CONTRACTS ||
                      (node->op->structure == GRAPH_FOLDS && node->op->operation == TIR_ADD);
    if ((node->op->class_ != GRAPH_MAP && node->op->class_ != GRAPH_INJECTIVE && !sums) || graph_op_stores(node->op))
        return false;
    bool stored = false;
    for (int i = 0; i < node->inputs; i++) stored |= is_c64(g, node->input[i]) || is_encoded(g, node->input[i]);
    for (int k = 0; k < node->results; k++)
        stored |= lib_dtype_is_stored_otherwise(graph_shape_of(g, node->first + (graph_id)k)->dtype);
    return stored;
}

/* Emits the row on part `part` (real, imaginary) of complex operands, and on the codes of operands stored as codes. */
static graph_id emit_of_parts(graph_expand *e, int part) {
    graph_id *input = LIB_NEW_ARRAY(e->g->arena, graph_id, (size_t)e->inputs);
    for (int i = 0; i < e->inputs; i++) {
        graph_id x = e->input[i];
        input[i] = is_c64(e->g, x) ? emit_part(e->g, x, part) : is_encoded(e->g, x) ? emit_unpack(e->g, x) : x;
    }
    return graph_emit(e->g, e->op, e->inputs, input, e->attribute);
}

/* x, if it is stored as codes, in a type that kernels compute in; else x itself. */
static graph_id decoded(graph *g, graph_id x) {
    const dlc_dtype from = graph_shape_of(g, x)->dtype;
    if (!is_encoded(g, x)) return x;
    graph_id codes = emit_unpack(g, x);
    return from == DLC_F4E2M1 ? f4_from_codes(g, codes) : from == DLC_F8E8M0 ? powers_from_codes(g, codes) : codes;
}

static graph_id integer_codes(graph *g, graph_id x, dlc_dtype to) {
    const bool is_signed = lib_dtypes[to].class_ == 'i';
    const int64_t levels = INT64_C(1) << lib_dtypes[to].bits, low = is_signed ? -levels / 2 : 0;
    if (lib_dtype_is_float(graph_shape_of(g, x)->dtype))
        x = graph_clamp(g, graph_scalar_i64(g, DLC_I32, low), graph_cast(g, x, DLC_I32),
                        graph_scalar_i64(g, DLC_I32, low + levels - 1));
    return graph_cast(g, x, is_signed ? DLC_I8 : DLC_U8);
}

/* Attributes of the row `cast`. */
enum { CAST_DTYPE, CAST_SATURATE, CAST_ROUNDING };

static graph_id cast_stored(graph *g, graph_id x, const graph_attribute *attribute) {
    const dlc_dtype from = graph_shape_of(g, x)->dtype, to = (dlc_dtype)attribute[CAST_DTYPE].integer;
    if (from == to) return x;
    x = decoded(g, x);
    if (graph_shape_of(g, x)->dtype == to) return x;
    if (to == DLC_C64) {
        const graph_shape *shape = graph_shape_of(g, x);
        return emit_complex(g, graph_cast(g, x, DLC_F32), graph_full(g, DLC_F32, shape->rank, shape->dim, 0));
    }
    if (to == DLC_F8E8M0)
        x = power_codes(g, x, attribute[CAST_ROUNDING].integer, attribute[CAST_SATURATE].integer != 0);
    else if (to == DLC_F4E2M1)
        x = f4_codes(g, graph_shape_of(g, x)->dtype == DLC_F64 ? x : graph_cast(g, x, DLC_F32));
    else if (lib_dtype_is_encoded(to))
        x = integer_codes(g, x, to);
    else
        return graph_emit_with(g, "cast", 1, &x, 2,
                               (graph_setting[]){graph_set_integer("dtype", to),
                                                 graph_set_bool("saturate", attribute[CAST_SATURATE].integer != 0)});
    return emit_pack(g, x, to);
}

typedef struct complex_value {
    graph_id real, imag;
} complex_value;

static complex_value parts_of(graph *g, graph_id x) {
    return (complex_value){emit_part(g, x, 0), emit_part(g, x, 1)};
}

static graph_id complex_product(graph *g, complex_value a, complex_value b) {
    return emit_complex(g, graph_sub(g, graph_mul(g, a.real, b.real), graph_mul(g, a.imag, b.imag)),
                        graph_add(g, graph_mul(g, a.real, b.imag), graph_mul(g, a.imag, b.real)));
}

/* a / b, divided by the larger part of b first, so that no square overflows: Smith, "Algorithm 116", 1962. */
static graph_id complex_quotient(graph *g, complex_value a, complex_value b) {
    graph_id swap = graph_lt(g, graph_abs(g, b.real), graph_abs(g, b.imag));
    graph_id large = graph_select(g, swap, b.imag, b.real), small = graph_select(g, swap, b.real, b.imag);
    graph_id first = graph_select(g, swap, a.imag, a.real), second = graph_select(g, swap, a.real, a.imag);
    graph_id ratio = graph_div(g, small, large), divisor = graph_add(g, large, graph_mul(g, small, ratio));
    graph_id real = graph_div(g, graph_add(g, first, graph_mul(g, second, ratio)), divisor);
    graph_id imag = graph_div(g, graph_sub(g, second, graph_mul(g, first, ratio)), divisor);
    return emit_complex(g, real, graph_select(g, swap, graph_neg(g, imag), imag));
}

/* |x|, scaled by the larger part, so that no square overflows; infinity if a part is infinite. */
static graph_id complex_magnitude(graph *g, complex_value x) {
    graph_id real = graph_abs(g, x.real), imag = graph_abs(g, x.imag);
    graph_id large = graph_max(g, real, imag), small = graph_min(g, real, imag), one = graph_scalar_like(g, large, 1);
    graph_id plain = graph_or(g, graph_eq(g, large, graph_scalar_like(g, large, 0)),
                              graph_or(g, graph_eq(g, real, graph_scalar_like(g, large, (double)INFINITY)),
                                       graph_eq(g, imag, graph_scalar_like(g, large, (double)INFINITY))));
    graph_id ratio = graph_div(g, small, graph_select(g, plain, one, large));
    graph_id length = graph_mul(g, large, graph_sqrt(g, graph_add(g, graph_mul(g, ratio, ratio), one)));
    return graph_select(g, graph_eq(g, large, graph_scalar_like(g, large, 0)), large,
                        graph_select(g, plain, graph_scalar_like(g, large, (double)INFINITY), length));
}

static graph_id complex_exponential(graph *g, complex_value x) {
    graph_id size = graph_exp(g, x.real), zero = graph_scalar_like(g, x.imag, 0);
    /* 0 stays 0 if the magnitude is infinite */
    graph_id imag = graph_select(g, graph_eq(g, x.imag, zero), x.imag, graph_mul(g, size, graph_sin(g, x.imag)));
    return emit_complex(g, graph_mul(g, size, graph_cos(g, x.imag)), imag);
}

/* Four real products: Karatsuba's three lose precision of a part that is much smaller than the other. */
static graph_id complex_contraction(graph_expand *e) {
    graph *g = e->g;
    complex_value a = parts_of(g, e->input[0]), b = parts_of(g, e->input[1]);
    graph_id part[2][2];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            part[i][k] = graph_emit(g, e->op, 2, (graph_id[]){i ? a.imag : a.real, k ? b.imag : b.real}, e->attribute);
    return emit_complex(g, graph_sub(g, part[0][0], part[1][1]), graph_add(g, part[0][1], part[1][0]));
}

/* The result of an operator that does not act on both parts separately; 0: it does act on them separately. */
static graph_id expand_complex(graph_expand *e) {
    graph *g = e->g;
    if (e->op->structure == GRAPH_CONTRACTS) return complex_contraction(e);
    switch (graph_map_operation(e->op)) {
    case TIR_MUL: return complex_product(g, parts_of(g, e->input[0]), parts_of(g, e->input[1]));
    case TIR_DIV: return complex_quotient(g, parts_of(g, e->input[0]), parts_of(g, e->input[1]));
    case TIR_ABS: return complex_magnitude(g, parts_of(g, e->input[0]));
    case TIR_EXP: return complex_exponential(g, parts_of(g, e->input[0]));
    default: return 0;
    }
}

void graph_expand_stored(graph_expand *e, int results) {
    graph *g = e->g;
    if (graph_map_operation(e->op) == TIR_CAST) {
        e->result[0] = cast_stored(g, e->input[0], e->attribute);
        return;
    }
    bool encoded = false, complex = false;
    dlc_dtype dtype = DLC_BOOL;
    for (int i = 0; i < e->inputs; i++) {
        complex |= is_c64(g, e->input[i]);
        if (!is_encoded(g, e->input[i])) continue;
        encoded = true, dtype = graph_shape_of(g, e->input[i])->dtype;
    }
    graph_id own = complex ? expand_complex(e) : 0;
    if (own) {
        e->result[0] = own;
        return;
    }
    graph_id first = emit_of_parts(e, 0), second = complex ? emit_of_parts(e, 1) : 0;
    for (int k = 0; k < results; k++)
        e->result[k] = complex   ? emit_complex(g, first + (graph_id)k, second + (graph_id)k)
                       : encoded ? emit_pack(g, first + (graph_id)k, dtype)
                                 : first + (graph_id)k;
}

/* ---- transposes. A cotangent of a complex number is that of its real part plus i times that of its imaginary part. ---------------- */

static graph_id part_of(graph *g, const char *name, graph_id x) {
    return graph_emit_with(g, name, 1, &x, 0, NULL);
}

static void transpose_complex(graph_rule *rule) {
    rule->out[0] = part_of(rule->g, rule->operand ? "imag" : "real", rule->cotangent[0]);
}
static void transpose_real(graph_rule *rule) {
    graph_id c = rule->cotangent[0];
    rule->out[0] = emit_complex(rule->g, c, graph_full_like(rule->g, c, 0));
}
static void transpose_imag(graph_rule *rule) {
    graph_id c = rule->cotangent[0];
    rule->out[0] = emit_complex(rule->g, graph_full_like(rule->g, c, 0), c);
}
static void transpose_as_pairs(graph_rule *rule) {
    rule->out[0] = part_of(rule->g, "as_complex", rule->cotangent[0]);
}
static void transpose_as_complex(graph_rule *rule) {
    rule->out[0] = part_of(rule->g, "as_pairs", rule->cotangent[0]);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

#define ROW(name_, class_name_, count_, linear_, operands_, dtypes_, infer_, field_, function_, transpose_, samples_, \
            doc_)                                                                                                     \
    static const graph_op row_##name_ = {                                                                             \
        .name = #name_,                                                                                               \
        .class_ = class_name_,                                                                                        \
        .min_inputs = count_,                                                                                         \
        .max_inputs = count_,                                                                                         \
        .linear = linear_,                                                                                            \
        .results = 1,                                                                                                 \
        .operands = operands_,                                                                                        \
        .dtypes = dtypes_,                                                                                            \
        .infer = infer_,                                                                                              \
        .field_ = function_,                                                                                          \
        .transpose = transpose_,                                                                                      \
        .jointly = (count_) > 1,                                                                                      \
        .samples = samples_,                                                                                          \
        .doc = doc_,                                                                                                  \
    };

ROW(complex, GRAPH_INJECTIVE, 2, 0, "real imag", "f32", infer_complex, compute, compute_complex, transpose_complex,
    "complex(T[5, 7], T[5, 7])", "real + i imag, c64, of two f32 of one shape. StableHLO complex.")
ROW(real, GRAPH_INJECTIVE, 1, 1, "x", "c64", infer_part, compute, compute_real, transpose_real, "real(T[5, 7])",
    "Real part of c64, f32. StableHLO real.")
ROW(imag, GRAPH_INJECTIVE, 1, 1, "x", "c64", infer_part, compute, compute_imag, transpose_imag, "imag(T[5, 7])",
    "Imaginary part of c64, f32. StableHLO imag.")
ROW(conj, GRAPH_COMPOSITE, 1, 1, "x", "c64", infer_conj, expand, expand_conj, NULL, "conj(T[5, 7])",
    "Complex conjugate: the imaginary part with the other sign. NumPy conj.")
ROW(angle, GRAPH_COMPOSITE, 1, 0, "x", "c64", infer_part, expand, expand_angle, NULL, "angle(T[5, 7])",
    "Argument of c64, f32 from -pi to pi: atan2(imag, real). NumPy angle.")
ROW(as_pairs, GRAPH_INJECTIVE, 1, 1, "x", "c64", infer_as_pairs, compute, compute_pairs, transpose_as_pairs,
    "as_pairs(T[5, 7])", "c64[...] as f32[..., 2]: real part, imaginary part. PyTorch view_as_real.")
ROW(as_complex, GRAPH_INJECTIVE, 1, 1, "x", "f32", infer_as_complex, compute, compute_pairs, transpose_as_complex,
    "as_complex(T[5, 2])", "f32[..., 2] as c64[...]: pairs of real and imaginary part. PyTorch view_as_complex.")

static const graph_op row_unpack_bits = {
    .name = "unpack_bits",
    .aliases = "unpack_nibbles",
    .class_ = GRAPH_INJECTIVE,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "x",
    .dtypes = "i4 u4 i2 u2 f4e2m1 f8e8m0",
    .infer = infer_unpack,
    .compute = compute_unpack,
    GRAPH_NO_GRADIENT,
    .bound = GRAPH_REFERENCE(graph_bound_codes),
    .samples = "unpack_bits(T[5, 7])",
    .doc =
        "The elements' bits, each in a byte of its own: i4 and i2 as i8 and u4 and u2 as u8, what cast to them does; of f4e2m1 and f8e8m0 "
        "the codes as u8.",
};

static const graph_op row_pack_bits = {
    .name = "pack_bits",
    .aliases = "pack_nibbles",
    .class_ = GRAPH_INJECTIVE,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "x",
    .dtypes = "i8 u8",
    .attribute = {{"dtype", GRAPH_ATTR_DTYPE, NULL, NULL,
                   "element type of the result: i4, u4, i2, u2, f4e2m1 or f8e8m0"}},
    .infer = infer_pack,
    .compute = compute_pack,
    GRAPH_NO_GRADIENT,
    .bound = GRAPH_REFERENCE(graph_bound_codes),
    .samples = "pack_bits(T[5, 7], dtype=i4)\npack_bits(T[5, 7], dtype=f8e8m0)\npack_bits(T[5, 7], dtype=u2)",
    .doc =
        "The low bits of i8 or u8 as elements of i4, u4, i2 or u2, as cast of integers takes them; of f4e2m1 and f8e8m0 codes.",
};

const graph_op *const graph_ops_stored[] = {&row_complex,   &row_real,     &row_imag,       &row_conj,
                                            &row_angle,     &row_as_pairs, &row_as_complex, &row_unpack_bits,
                                            &row_pack_bits, NULL};
