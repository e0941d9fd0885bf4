/* Element types stored in another form than kernels compute in: complex numbers as pairs of f32, 4-bit integers two to a byte.
 * Kernels see the former as f32 with an additional last dimension, the latter as bytes (graph_stored). Only the rows here compute
 * on them; all other rows are expanded to operate on parts of their operands (graph_expand_stored). */
#include "graph/build.h"
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

/* A map stage over the elements' axes and, with `pairs`, one for the two parts. */
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
    tir_expr real = graph_operand_load(c, 0, axis), imag = graph_operand_load(c, 1, axis);
    tir_expr first = tir_eq(c->pool, axis[y->rank], tir_index(c->pool, 0));
    c->result[0] = tir_stage_value(c->region, stage, tir_select(c->pool, first, real, imag), 0, 0);
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

/* Conversion between f32[..., 2] and c64[...], which are the same to kernels. */
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

/* ---- integers of 4 bits --------------------------------------------------------------------------------------------- */

static void infer_unpack(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = infer->operand[0].dtype == DLC_I4 ? DLC_I8 : DLC_U8;
}

static void infer_pack(graph_infer *infer) {
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = infer->operand[0].dtype == DLC_I8 ? DLC_I4 : DLC_U4;
}

/* Shifts the nibble to the byte's high end and then, with sign or zero extension, to its low end. */
static tir_expr unpacked(graph_compute *c, const tir_expr *axis) {
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    tir_expr at = tir_index(pool, 0), two = tir_index(pool, 2), four = tir_int(pool, (tir_dtype)y->dtype, 4);
    for (int i = 0; i < y->rank; i++) at = tir_add(pool, tir_mul(pool, at, y->dim[i]), axis[i]);
    tir_expr place = tir_div(pool, at, two), low = tir_eq(pool, tir_rem(pool, at, two), tir_index(pool, 0));
    tir_expr byte = tir_cast(pool, (tir_dtype)y->dtype, graph_operand_load(c, 0, &place));
    tir_expr high = tir_select(pool, low, tir_binary(pool, TIR_SHL, byte, four), byte);
    return tir_binary(pool, TIR_SHR, high, four);
}

static void compute_unpack(graph_compute *c) {
    graph_compute_elements(c, unpacked);
}

/* Indices of element `at` in row-major order. */
static void indices_of(tir_pool *pool, const graph_shape *x, tir_expr at, tir_expr *index) {
    for (int i = x->rank - 1; i > 0; i--) {
        /* avoids a zero divisor for empty tensors, which are never read */
        tir_expr extent = tir_max(pool, x->dim[i], tir_index(pool, 1));
        index[i] = tir_rem(pool, at, extent);
        at = tir_div(pool, at, extent);
    }
    if (x->rank) index[0] = at;
}

static void compute_pack(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr count = tir_index(pool, 1), two = tir_index(pool, 2), index[DLC_MAX_RANK];
    for (int i = 0; i < x->rank; i++) count = tir_mul(pool, count, x->dim[i]);
    tir_expr bytes = tir_ceil_div(pool, count, two);
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 1, NULL, &bytes, 0, NULL, NULL);
    tir_expr at = tir_mul(pool, stage->axis[0].var, two), next = tir_add(pool, at, tir_index(pool, 1));
    indices_of(pool, x, at, index);
    tir_expr low = tir_cast(pool, DLC_U8, graph_operand_load(c, 0, index));
    tir_expr inside = tir_lt(pool, next, count);
    indices_of(pool, x, next, index);
    tir_expr high =
        tir_region_load_guarded(c->region, c->operand[0], index, inside, tir_int(pool, (tir_dtype)x->dtype, 0));
    low = tir_and(pool, low, tir_int(pool, DLC_U8, 15));
    high = tir_binary(pool, TIR_SHL, tir_cast(pool, DLC_U8, high), tir_int(pool, DLC_U8, 4));
    c->result[0] = tir_stage_value(c->region, stage, tir_or(pool, low, high), 0, 0);
}

static graph_id emit_unpack(graph *g, graph_id x) {
    return graph_emit_with(g, "unpack_nibbles", 1, &x, 0, NULL);
}
static graph_id emit_pack(graph *g, graph_id x) {
    return graph_emit_with(g, "pack_nibbles", 1, &x, 0, NULL);
}

/* ---- other rows on such elements ------------------------------------------------------------------------------------ */

static bool is_c64(const graph *g, graph_id x) {
    return x && graph_shape_of(g, x)->dtype == DLC_C64;
}
static bool is_packed(const graph *g, graph_id x) {
    return x && lib_dtype_is_packed(graph_shape_of(g, x)->dtype);
}

extern const graph_op *const graph_ops_stored[];

static bool is_own(const graph_op *op) {
    for (const graph_op *const *row = graph_ops_stored; *row; row++)
        if (*row == op) return true;
    return false;
}

bool graph_is_on_stored(const graph *g, const graph_node *node) {
    const bool sums = strcmp(node->op->name, "dot_general") == 0 || strcmp(node->op->name, "reduce_sum") == 0;
    if ((node->op->class_ != GRAPH_MAP && node->op->class_ != GRAPH_INJECTIVE && !sums) || is_own(node->op))
        return false;
    bool stored = false;
    for (int i = 0; i < node->inputs; i++) stored |= is_c64(g, node->input[i]) || is_packed(g, node->input[i]);
    for (int k = 0; k < node->results; k++)
        stored |= lib_dtype_is_stored_otherwise(graph_shape_of(g, node->first + (graph_id)k)->dtype);
    return stored;
}

/* Emits the row on one part of its complex operands, or on unpacked 4-bit operands. */
static graph_id emit_of_parts(graph_expand *e, int part) {
    graph_id *input = LIB_NEW_ARRAY(e->g->arena, graph_id, (size_t)e->inputs);
    for (int i = 0; i < e->inputs; i++) {
        graph_id x = e->input[i];
        input[i] = is_c64(e->g, x) ? emit_part(e->g, x, part) : is_packed(e->g, x) ? emit_unpack(e->g, x) : x;
    }
    return graph_emit(e->g, e->op, e->inputs, input, e->attribute);
}

static graph_id cast_stored(graph *g, graph_id x, dlc_dtype to) {
    dlc_dtype from = graph_shape_of(g, x)->dtype;
    if (from == to) return x;
    if (is_packed(g, x)) return graph_cast(g, emit_unpack(g, x), to);
    if (to == DLC_C64) {
        const graph_shape *shape = graph_shape_of(g, x);
        return emit_complex(g, graph_cast(g, x, DLC_F32), graph_full(g, DLC_F32, shape->rank, shape->dim, 0));
    }
    bool is_signed = to == DLC_I4;
    if (lib_dtype_is_float(from))
        x = graph_clamp(g, graph_scalar(g, DLC_I32, is_signed ? -8 : 0), graph_cast(g, x, DLC_I32),
                        graph_scalar(g, DLC_I32, is_signed ? 7 : 15));
    return emit_pack(g, graph_cast(g, x, is_signed ? DLC_I8 : DLC_U8));
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

/* By the larger part of the divisor, so that no square overflows: Smith, "Algorithm 116", 1962. */
static graph_id complex_quotient(graph *g, complex_value a, complex_value b) {
    graph_id swap = graph_lt(g, graph_abs(g, b.real), graph_abs(g, b.imag));
    graph_id large = graph_select(g, swap, b.imag, b.real), small = graph_select(g, swap, b.real, b.imag);
    graph_id first = graph_select(g, swap, a.imag, a.real), second = graph_select(g, swap, a.real, a.imag);
    graph_id ratio = graph_div(g, small, large), divisor = graph_add(g, large, graph_mul(g, small, ratio));
    graph_id real = graph_div(g, graph_add(g, first, graph_mul(g, second, ratio)), divisor);
    graph_id imag = graph_div(g, graph_sub(g, second, graph_mul(g, first, ratio)), divisor);
    return emit_complex(g, real, graph_select(g, swap, graph_neg(g, imag), imag));
}

/* Scaled by the larger part, so that no square overflows; infinity if a part is infinite. */
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

/* Operators that do not act on both parts separately; 0: it does. */
static graph_id expand_complex(graph_expand *e) {
    graph *g = e->g;
    const char *name = e->op->name;
    if (strcmp(name, "mul") == 0) return complex_product(g, parts_of(g, e->input[0]), parts_of(g, e->input[1]));
    if (strcmp(name, "div") == 0) return complex_quotient(g, parts_of(g, e->input[0]), parts_of(g, e->input[1]));
    if (strcmp(name, "dot_general") == 0) return complex_contraction(e);
    if (strcmp(name, "abs") == 0) return complex_magnitude(g, parts_of(g, e->input[0]));
    if (strcmp(name, "exp") == 0) return complex_exponential(g, parts_of(g, e->input[0]));
    return 0;
}

void graph_expand_stored(graph_expand *e, int results) {
    graph *g = e->g;
    if (strcmp(e->op->name, "cast") == 0) {
        e->result[0] = cast_stored(g, e->input[0], (dlc_dtype)e->attribute[0].integer);
        return;
    }
    bool packed = false, complex = false;
    for (int i = 0; i < e->inputs; i++) packed |= is_packed(g, e->input[i]), complex |= is_c64(g, e->input[i]);
    graph_id own = complex ? expand_complex(e) : 0;
    if (own) {
        e->result[0] = own;
        return;
    }
    graph_id first = emit_of_parts(e, 0), second = complex ? emit_of_parts(e, 1) : 0;
    for (int k = 0; k < results; k++)
        e->result[k] = complex  ? emit_complex(g, first + (graph_id)k, second + (graph_id)k)
                       : packed ? emit_pack(g, first + (graph_id)k)
                                : first + (graph_id)k;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

#define ROW(name_, class_name_, count_, operands_, dtypes_, infer_, field_, function_, gradient_, samples_, doc_) \
    static const graph_op row_##name_ = {                                                                         \
        .name = #name_,                                                                                           \
        .class_ = class_name_,                                                                                    \
        .min_inputs = count_,                                                                                     \
        .max_inputs = count_,                                                                                     \
        .results = 1,                                                                                             \
        .operands = operands_,                                                                                    \
        .dtypes = dtypes_,                                                                                        \
        .infer = infer_,                                                                                          \
        .field_ = function_,                                                                                      \
        .vjp = gradient_,                                                                                         \
        .jvp = gradient_,                                                                                         \
        .samples = samples_,                                                                                      \
        .doc = doc_,                                                                                              \
    };

ROW(complex, GRAPH_INJECTIVE, 2, "real imag", "f32", infer_complex, compute, compute_complex, NULL,
    "complex(T[5, 7], T[5, 7])", "real + i imag, c64, of two f32 of one shape. StableHLO complex.")
ROW(real, GRAPH_INJECTIVE, 1, "x", "c64", infer_part, compute, compute_real, NULL, "real(T[5, 7])",
    "Real part of c64, f32. StableHLO real.")
ROW(imag, GRAPH_INJECTIVE, 1, "x", "c64", infer_part, compute, compute_imag, NULL, "imag(T[5, 7])",
    "Imaginary part of c64, f32. StableHLO imag.")
ROW(conj, GRAPH_COMPOSITE, 1, "x", "c64", infer_conj, expand, expand_conj, NULL, "conj(T[5, 7])",
    "Complex conjugate: the imaginary part with the other sign. NumPy conj.")
ROW(angle, GRAPH_COMPOSITE, 1, "x", "c64", infer_part, expand, expand_angle, NULL, "angle(T[5, 7])",
    "Argument of c64, f32 from -pi to pi: atan2(imag, real). NumPy angle.")
ROW(as_pairs, GRAPH_INJECTIVE, 1, "x", "c64", infer_as_pairs, compute, compute_pairs, NULL, "as_pairs(T[5, 7])",
    "c64[...] as f32[..., 2]: real part, imaginary part. PyTorch view_as_real.")
ROW(as_complex, GRAPH_INJECTIVE, 1, "x", "f32", infer_as_complex, compute, compute_pairs, NULL, "as_complex(T[5, 2])",
    "f32[..., 2] as c64[...]: pairs of real and imaginary part. PyTorch view_as_complex.")
ROW(unpack_nibbles, GRAPH_INJECTIVE, 1, "x", "i4 u4", infer_unpack, compute, compute_unpack, graph_no_gradient,
    "unpack_nibbles(T[5, 7])", "i4 as i8, u4 as u8: what cast to them does.")
ROW(pack_nibbles, GRAPH_INJECTIVE, 1, "x", "i8 u8", infer_pack, compute, compute_pack, graph_no_gradient,
    "pack_nibbles(T[5, 7])", "The low four bits of i8 as i4, of u8 as u4: what cast to them does.")

const graph_op *const graph_ops_stored[] = {&row_complex,      &row_real,     &row_imag,       &row_conj,
                                            &row_angle,        &row_as_pairs, &row_as_complex, &row_unpack_nibbles,
                                            &row_pack_nibbles, NULL};
