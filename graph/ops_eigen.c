/* Symmetric eigenproblems. Small matrices are diagonalised by rotations (jacobi). Larger ones are reduced to tridiagonal form by
 * reflections, which are applied to the rest of the matrix as one product for each block of columns. Tridiagonal ones are solved by
 * divide and conquer, in levels that merge neighbouring blocks of all matrices at once (Cuppen 1981; Gu & Eisenstat 1995). */
#include "graph/bound.h"
#include "graph/matrix.h"

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

/* ---- jacobi ------------------------------------------------------------------------------------------------------- */

enum { JACOBI_SWEEPS };

static void infer_jacobi(graph_infer *infer) {
    int64_t sweeps = infer->attribute[JACOBI_SWEEPS].integer;
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_same_shape(infer, 2);
    infer_square(infer);
    if (sweeps < 1 || sweeps > 1000) graph_infer_fail(infer, "%lld sweeps, expected 1 to 1000", (long long)sweeps);
    infer->result[0] = infer->result[1] = infer->operand[0];
}

/* Half of the distance of numbers at 1: an off-diagonal element a[i, j] is negligible if it is at most this times
 * sqrt(|a[i, i] a[j, j]|). */
static double negligible_part(dlc_dtype dtype) {
    return ldexp(1, -lib_float_of(dtype).digits);
}

/* Adds a stage with the partner of each row in round t of a round-robin tournament: each pair meets once in n - 1 rounds (n even; for odd
 * n, n rounds, in each of which one row is idle: its own partner). */
static uint32_t add_partners(matrix_fold *f, tir_expr n) {
    tir_pool *pool = f->pool;
    tir_expr one = tir_index(pool, 1), two = tir_index(pool, 2), even = tir_mul(pool, tir_ceil_div(pool, n, two), two);
    tir_expr last = tir_max(pool, tir_sub(pool, even, one), one);
    tir_stage *stage = open_step(f, TIR_MAP, 1, &n, 0, NULL);
    tir_expr i = f->axis[f->free], round = tir_rem(pool, f->t, last);
#define VALUE(e) tir_cast(pool, DLC_I64, e)
    tir_expr other = VALUE(tir_rem(pool, tir_sub(pool, tir_add(pool, round, last), i), last));
    other = tir_select(pool, tir_eq(pool, other, VALUE(i)), VALUE(last), other);
    tir_expr fixed = VALUE(tir_rem(pool, tir_mul(pool, round, tir_div(pool, even, two)), last));
    other = tir_select(pool, tir_eq(pool, VALUE(i), VALUE(last)), fixed, other);
    other = tir_select(pool, tir_lt(pool, other, VALUE(n)), other, VALUE(i));
#undef VALUE
    return tir_stage_value(f->c->region, stage, other, 0, 0);
}

static tir_expr partner_of(const matrix_fold *f, uint32_t partners, tir_expr i, tir_expr n) {
    tir_pool *pool = f->pool;
    tir_expr last = tir_sub(pool, n, tir_index(pool, 1));
    return tir_max(pool, tir_min(pool, tir_cast(pool, TIR_INDEX, load1(f, partners, i)), last), tir_index(pool, 0));
}

/* Adds stages with cosine and sine, by row i, of the rotation that makes a[i, partner] zero; the two rows of a pair get opposite sines. If
 * the element is negligible, they are 1 and 0, which change no bit: a converged matrix stays unchanged in further rounds. */
static void add_rotation(matrix_fold *f, uint32_t now, uint32_t partners, tir_expr n, uint32_t rotation[2]) {
    tir_pool *pool = f->pool;
    tir_expr zero = tir_float(pool, f->dtype, 0), one = tir_float(pool, f->dtype, 1);
    for (int part = 0; part < 2; part++) {
        tir_stage *stage = open_step(f, TIR_MAP, 1, &n, 0, NULL);
        tir_expr i = f->axis[f->free], p = partner_of(f, partners, i, n);
        tir_expr off = load2(f, now, tir_max(pool, i, p), tir_min(pool, i, p));
        tir_expr ratio = tir_div(pool, tir_sub(pool, load2(f, now, p, p), load2(f, now, i, i)),
                                 tir_mul(pool, off, tir_float(pool, f->dtype, 2)));
        tir_expr magnitude = tir_max(pool, ratio, tir_unary(pool, TIR_NEG, ratio));
        tir_expr root = tir_unary(pool, TIR_SQRT, tir_muladd(pool, ratio, ratio, one));
        tir_expr tangent = tir_div(pool, one, tir_add(pool, magnitude, root)),
                 minus = tir_unary(pool, TIR_NEG, tangent);
        tir_expr first = tir_lt(pool, tir_cast(pool, DLC_I64, i), tir_cast(pool, DLC_I64, p));
        tangent =
            tir_select(pool, tir_lt(pool, zero, ratio), tangent,
                       tir_select(pool, tir_lt(pool, ratio, zero), minus, tir_select(pool, first, tangent, minus)));
        tir_expr least = tir_float(pool, f->dtype, negligible_part((dlc_dtype)f->dtype));
        for (int side = 0; side < 2; side++) {
            tir_expr own = side ? p : i, size = tir_unary(pool, TIR_ABS, load2(f, now, own, own));
            least = tir_mul(pool, least, tir_unary(pool, TIR_SQRT, size));
        }
        tangent = tir_select(pool, tir_le(pool, tir_unary(pool, TIR_ABS, off), least), zero, tangent);
        tangent = tir_select(pool, tir_eq(pool, tir_cast(pool, DLC_I64, i), tir_cast(pool, DLC_I64, p)), zero, tangent);
        tir_expr cosine = tir_div(pool, one, tir_unary(pool, TIR_SQRT, tir_muladd(pool, tangent, tangent, one)));
        tir_expr value = part ? tir_unary(pool, TIR_NEG, tir_mul(pool, tangent, cosine)) : cosine;
        rotation[part] = tir_stage_value(f->c->region, stage, value, 0, 0);
    }
}

/* Element (i, j) after the rotation of column j and its partner p. */
static tir_expr mixed(const matrix_fold *f, uint32_t tensor, const uint32_t rotation[2], tir_expr i, tir_expr j,
                      tir_expr p) {
    tir_pool *pool = f->pool;
    return tir_muladd(pool, load2(f, tensor, i, j), load1(f, rotation[0], j),
                      tir_mul(pool, load2(f, tensor, i, p), load1(f, rotation[1], j)));
}

/* Matrices of at most one row, which have no pairs to rotate: the results are the operands. */
static void compute_single(graph_compute *c) {
    for (int result = 0; result < 2; result++) {
        const graph_shape *y = &c->result_shape[result];
        tir_expr index[DLC_MAX_RANK];
        tir_stage *stage = graph_map_stage(c, y, index);
        c->result[result] = tir_stage_value(c->region, stage, graph_operand_load(c, result, index), 0, 0);
    }
}

/* Jacobi 1846: repeated sweeps of rotations of all pairs of rows and columns, n/2 pairs at a time. */
static void compute_jacobi(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *a = &c->operand_shape[0];
    int free = a->rank - 2;
    tir_expr n = a->dim[free], both[2] = {n, n}, one = tir_index(pool, 1), two = tir_index(pool, 2);
    int64_t size;
    if (tir_is_const(pool, n, &size) && size <= 1) {
        compute_single(c);
        return;
    }
    tir_expr rounds = tir_sub(pool, tir_mul(pool, tir_ceil_div(pool, n, two), two), one);
    rounds = tir_mul(pool, tir_max(pool, rounds, one), tir_index(pool, c->attribute[JACOBI_SWEEPS].integer));
    matrix_fold f = open_fold(c, free, a->dim, rounds);
    uint32_t now[2], next[2], rotation[2];
    for (int s = 0; s < 2; s++) add_state(&f, 2, both);
    for (int s = 0; s < 2; s++) {
        tir_stage *stage = open_step(&f, TIR_MAP, 2, both, 0, NULL);
        tir_expr i = f.axis[free], j = f.axis[free + 1], first = load2(&f, c->operand[s], i, j);
        now[s] = tir_stage_value(c->region, stage, first_or(&f, first, load2(&f, f.state[s], i, j)), 0, 0);
    }
    uint32_t partners = add_partners(&f, n);
    add_rotation(&f, now[0], partners, n, rotation);
    for (int s = 0; s < 2; s++) {
        tir_stage *stage = open_step(&f, TIR_MAP, 2, both, 0, NULL);
        tir_expr i = f.axis[free], j = f.axis[free + 1], p = partner_of(&f, partners, j, n);
        tir_expr value = mixed(&f, now[s], rotation, i, j, p);
        if (s == 0) { /* rows, too */
            tir_expr q = partner_of(&f, partners, i, n);
            value = tir_muladd(pool, value, load1(&f, rotation[0], i),
                               tir_mul(pool, mixed(&f, now[0], rotation, q, j, p), load1(&f, rotation[1], i)));
            tir_expr met = tir_eq(pool, tir_cast(pool, DLC_I64, q), tir_cast(pool, DLC_I64, j)),
                     zero = tir_float(pool, f.dtype, 0);
            met = tir_and(pool, met, tir_binary(pool, TIR_NE, load1(&f, rotation[1], i), zero));
            value = tir_select(pool, met, zero, value);
        }
        next[s] = tir_stage_value(c->region, stage, value, 0, 0);
    }
    close_fold(&f, next);
    for (int result = 0; result < 2; result++) {
        const graph_shape *y = &c->result_shape[result];
        tir_stage *stage = graph_map_stage(c, y, f.axis);
        tir_expr value = load2(&f, f.state[result], f.axis[free], f.axis[free + 1]);
        c->result[result] = tir_stage_value(c->region, stage, value, 0, 0);
    }
}

/* ---- tridiagonal form --------------------------------------------------------------------------------------------- */

enum { PANEL = 32 };

/* [w; v] for pairs [v; w], both [..., 2 PANEL, n]. */
static graph_id other_halves(graph *g, graph_id pairs) {
    tir_pool *pool = g->pool;
    const int axis = graph_shape_of(g, pairs)->rank - 2;
    tir_expr zero = tir_index(pool, 0), half = tir_index(pool, PANEL), all = tir_index(pool, 2 * PANEL);
    return graph_concat(
        g, 2, (graph_id[]){graph_slice_axis(g, pairs, axis, half, all), graph_slice_axis(g, pairs, axis, zero, half)},
        axis);
}

/* x (v^T w + w^T v) for x [..., 1, n] and pairs [v; w]: that much is subtracted from x a when the pairs update a. */
static graph_id times_pairs(graph *g, graph_id x, graph_id pairs) {
    graph_id parts = graph_matmul(g, pairs, matrix_transpose(g, x));
    return graph_matmul(g, matrix_transpose(g, other_halves(g, parts)), pairs);
}

/* Updates column s of a by the previous pairs, and sets result[0] to its reflection v, result[1] to w: h a h = a - v w^T - w v^T, where
 * h = 1 - v v^T, w = p - (p^T v / 2) v, p = a v (LAPACK's latrd). Vectors are rows [..., 1, n] here. */
static void next_pair(graph *g, graph_id a, graph_id pairs, graph_id s, graph_id result[2]) {
    tir_expr one = tir_index(g->pool, 1);
    graph_id column = slice_at(g, a, s, 2, one), taken = other_halves(g, slice_at(g, pairs, s, 1, one));
    column = graph_sub(g, column, graph_matmul(g, matrix_transpose(g, taken), pairs));
    graph_id v = matrix_reflector_of(g, column, graph_add_number(g, s, 1));
    graph_id p = graph_sub(g, graph_matmul(g, v, a), times_pairs(g, v, pairs));
    const int64_t axis = graph_shape_of(g, v)->rank - 1;
    graph_id along = graph_reduce_sum(g, graph_mul(g, p, v), 1, &axis, true);
    result[0] = v;
    result[1] = graph_sub(g, p, graph_mul(g, graph_mul_number(g, along, 0.5), v));
}

/* Sets result[] to the diagonal and off-diagonal [..., n] (its last element is 0) of q^T a q, tridiagonal for symmetric a, and
 * *reflections [..., count, n] to those whose product is q. By blocks of columns: all of a is updated after a block, within it only the
 * column whose reflection is next. */
static void emit_tridiagonal(graph *g, graph_id a, graph_id result[2], graph_id *reflections) {
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, a);
    tir_expr n = shape.dim[shape.rank - 1], width = tir_index(pool, PANEL), trips = tir_ceil_div(pool, n, width);
    matrix_loop loop = open_loop(g, trips, 2, (graph_id[]){a, zeros_like_of(g, a, tir_mul(pool, trips, width), n)});
    graph *body = loop.body;
    graph_id start = graph_mul_number(body, loop.inner[0], PANEL), next[2], last[2], pair[2];
    graph_id none = zeros_like_of(body, loop.inner[1], tir_index(pool, 2 * PANEL), n);
    matrix_loop columns = open_loop(body, width, 3, (graph_id[]){none, loop.inner[1], start});
    graph *inside = columns.body;
    next_pair(inside, columns.inner[2], columns.inner[1], graph_add(inside, columns.inner[3], columns.inner[0]), pair);
    graph_id pairs = update_at(inside, columns.inner[1], pair[0], columns.inner[0], 2);
    pairs = update_at(inside, pairs, pair[1], graph_add_number(inside, columns.inner[0], PANEL), 2);
    close_loop(&columns, 1, &pairs, &pairs);
    next[0] =
        graph_sub(body, loop.inner[1], graph_matmul(body, matrix_transpose(body, pairs), other_halves(body, pairs)));
    graph_id v = graph_slice_axis(body, pairs, shape.rank - 2, tir_index(pool, 0), width);
    next[1] = update_at(body, loop.inner[2], v, start, 2);
    close_loop(&loop, 2, next, last);
    const int64_t row = shape.rank - 2;
    graph_id i = index_vector(g, n);
    /* selects row j + 1 of column j */
    graph_id below = graph_eq(g, as_column(g, graph_add_number(g, i, -1)), as_row(g, i));
    result[0] = matrix_diagonal(g, last[0]);
    result[1] = graph_reduce_sum(g, graph_select(g, below, last[0], graph_full_like(g, last[0], 0)), 1, &row, false);
    *reflections = last[1];
}

/* ---- divide and conquer ------------------------------------------------------------------------------------------- */

/* One level, which merges the two halves of each block of 2 * half rows. d: eigenvalues of the halves, which were separated by removing the
 * element e between them; v: their eigenvectors (columns, zero outside of the half). diag(d) + rho z z^T has the eigenvalues of the block.
 * Eigenvalue j stays in column j; so all conditions are masks of pairs (i, j) in matrices [..., n, n]. */
typedef struct level {
    graph *g;
    tir_expr n;
    dlc_dtype dtype;
    /* [..., n], [..., n, n] */
    graph_id d, v;
    /* block: number of the block of row j, [n]; together: i and j are in one block, [n, n] */
    graph_id block, together;
    /* [..., n] */
    graph_id rho, z;
    /* [..., n] z[j] is not negligible; else eigenvalue and vector j stay as they are */
    graph_id live;
    /* [..., n, n] i and j are live mates: their d is equal within rounding */
    graph_id mates;
    /* the value used for d[j]: the largest of j's mates' */
    graph_id pole;
    /* j is the last of its mates, which represents all of them */
    graph_id active;
    /* norm of the part of z of j's mates */
    graph_id zeta;
    /* rho * zeta^2 if j is active, else 0 */
    graph_id weight;
    /* eigenvalue j, if j is active: origin + offset, where origin is the nearest pole */
    graph_id origin, offset;
} level;

static graph_id masked(const level *l, graph_id mask, graph_id x, double other) {
    return graph_select(l->g, mask, x, graph_scalar_like(l->g, x, other));
}
/* Reduces x [..., i, j] over i. */
static graph_id over_rows(const level *l, graph_id (*reduce)(graph *, graph_id, int, const int64_t *, bool),
                          graph_id x) {
    const int64_t row = graph_shape_of(l->g, x)->rank - 2;
    return reduce(l->g, x, 1, &row, false);
}
static graph_id sum_rows(const level *l, graph_id mask, graph_id x) {
    return over_rows(l, graph_reduce_sum, masked(l, mask, x, 0));
}

/* Sets block, together, and, from the rows of v on both sides of the middle of each block, rho and z. */
static void tear(level *l, graph_id half, graph_id beside) {
    graph *g = l->g;
    graph_id i = index_vector(g, l->n), size = graph_add(g, half, half);
    graph_id last = graph_dimension(g, DLC_I32, tir_sub(g->pool, l->n, tir_index(g->pool, 1)));
    l->block = graph_div(g, i, size);
    l->together = graph_eq(g, as_column(g, l->block), as_row(g, l->block));
    graph_id cut = graph_add(g, graph_mul(g, l->block, size), half), has = graph_le(g, cut, last);
    graph_id low = graph_min(g, cut, last), side[2] = {graph_add_number(g, low, -1), low};
    side[0] = graph_max(g, side[0], graph_scalar_i64(g, DLC_I32, 0));
    const graph_shape shape = *graph_shape_of(g, l->v);
    graph_shape line = shape;
    line.dim[shape.rank - 2] = tir_index(g->pool, 1);
    graph_id e = masked(l, has, graph_gather(g, beside, side[0], shape.rank - 2), 0), row[2];
    for (int s = 0; s < 2; s++) {
        graph_id at = graph_broadcast_to(g, as_row(g, side[s]), shape.rank, line.dim);
        row[s] = graph_squeeze(g, graph_gather_elements(g, l->v, at, shape.rank - 2), shape.rank - 2);
    }
    row[1] = graph_select(g, graph_lt(g, e, graph_scalar_like(g, e, 0)), graph_neg(g, row[1]), row[1]);
    l->rho = graph_mul_number(g, graph_abs(g, e), 2);
    l->z = graph_mul_number(g, graph_add(g, row[0], row[1]), sqrt(0.5));
}

/* Deflation: sets live, mates, pole, active, zeta and weight. Not active are numbers with small z, and all but one of those with equal d (a
 * reflection makes the z of the others zero). */
static void deflate(level *l) {
    graph *g = l->g;
    const double unit = l->dtype == DLC_F64 ? 0x1p-53 : 0x1p-24, least = l->dtype == DLC_F64 ? 0x1p-1000 : 0x1p-120;
    graph_id size = over_rows(l, graph_reduce_max, masked(l, l->together, as_column(g, graph_abs(g, l->d)), 0));
    graph_id much = graph_mul_number(g, graph_max(g, size, l->rho), 8 * unit);
    much = graph_max(g, much, graph_scalar_like(g, much, least));
    l->live = graph_gt(g, graph_mul(g, l->rho, graph_abs(g, l->z)), much);
    graph_id bin = graph_floor(g, graph_div(g, l->d, much));
    l->mates = graph_and(g, l->together, graph_eq(g, as_column(g, bin), as_row(g, bin)));
    l->mates = graph_and(g, l->mates, graph_and(g, as_column(g, l->live), as_row(g, l->live)));
    graph_id i = index_vector(g, l->n), later = graph_gt(g, as_column(g, i), as_row(g, i));
    later = over_rows(l, graph_reduce_or, graph_and(g, l->mates, later));
    l->active = graph_and(g, l->live, graph_not(g, later));
    l->pole = over_rows(l, graph_reduce_max, masked(l, l->mates, as_column(g, l->d), -(double)INFINITY));
    l->pole = graph_select(g, l->live, l->pole, l->d);
    l->zeta = graph_sqrt(g, sum_rows(l, l->mates, as_column(g, graph_mul(g, l->z, l->z))));
    l->weight = masked(l, l->active, graph_mul(g, l->rho, graph_mul(g, l->zeta, l->zeta)), 0);
}

/* The secular function 1 + sum over i of weight[i] / (pole[i] - x[j]), where x = origin + offset, by j; its zeros are the eigenvalues. */
static graph_id secular(const level *l, graph *g, graph_id together, graph_id weight, graph_id pole, graph_id origin,
                        graph_id offset) {
    graph_id distance = graph_sub(g, graph_sub(g, as_column(g, pole), as_row(g, origin)), as_row(g, offset));
    graph_id counts = graph_and(g, together, graph_gt(g, as_column(g, weight), graph_scalar_like(g, weight, 0)));
    graph_id term = graph_div(g, as_column(g, weight), distance);
    term = graph_select(g, counts, term, graph_scalar_like(g, term, 0));
    const int64_t row = graph_shape_of(g, term)->rank - 2;
    (void)l;
    return graph_add_number(g, graph_reduce_sum(g, term, 1, &row, false), 1);
}

static graph_id bits_of(graph *g, graph_id x, dlc_dtype dtype) {
    return graph_emit_with(g, "bit_cast", 1, &x, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
}

/* Sets origin and offset. Between two poles the secular function ascends from -inf to inf: bisection finds the offset from the nearer pole,
 * at most half of the distance. It halves the bits of the offset, so that small offsets are as exact as large ones. */
static void find_roots(level *l) {
    enum { ORIGIN = 4, SIDE, POLE, WEIGHT, BLOCKS };
    graph *g = l->g;
    const bool wide = l->dtype == DLC_F64;
    const dlc_dtype key = wide ? DLC_I64 : DLC_I32;
    graph_id above = graph_gt(g, as_column(g, l->pole), as_row(g, l->pole));
    above = graph_and(g, graph_and(g, above, l->together), as_column(g, l->active));
    graph_id next = over_rows(l, graph_reduce_min, masked(l, above, as_column(g, l->pole), (double)INFINITY));
    graph_id is_last = graph_eq(g, next, graph_scalar_like(g, next, (double)INFINITY));
    graph_id all = graph_mul_number(g, sum_rows(l, l->together, as_column(g, l->weight)), 1.0009765625);
    graph_id half = graph_select(g, is_last, all, graph_mul_number(g, graph_sub(g, next, l->pole), 0.5));
    graph_id middle = secular(l, g, l->together, l->weight, l->pole, l->pole, half);
    graph_id low_side = graph_or(g, is_last, graph_ge(g, middle, graph_scalar_like(g, middle, 0)));
    l->origin = graph_select(g, low_side, l->pole, next);
    graph_id one = graph_full_like(g, half, 1), side = graph_select(g, low_side, one, graph_neg(g, one));
    graph_id tiny = graph_full_like(g, half, wide ? 0x1p-500 : 0x1p-90);
    half = graph_max(g, half, tiny);
    graph_id start[] = {bits_of(g, tiny, key), bits_of(g, half, key), l->origin, side, l->pole, l->weight, l->block};
    matrix_loop loop = open_loop(g, tir_index(g->pool, wide ? 62 : 31), 7, start);
    graph *body = loop.body;
    graph_id low = loop.inner[1], high = loop.inner[2];
    graph_id difference = graph_sub(body, high, low), one_bit = graph_scalar_i64(body, key, 1);
    graph_id tried =
        graph_add(body, low,
                  graph_emit_with(body, "shift_right_arithmetic", 2,
                                  (graph_id[]){difference, graph_broadcast_like(body, one_bit, difference)}, 0, NULL));
    graph_id block = loop.inner[7], together = graph_eq(body, as_column(body, block), as_row(body, block));
    graph_id offset = graph_mul(body, bits_of(body, tried, l->dtype), loop.inner[4]);
    graph_id value = secular(l, body, together, loop.inner[6], loop.inner[5], loop.inner[3], offset);
    value = graph_mul(
        body, value,
        /* from the lower pole the root is where the function is not negative, from the upper pole where it is */
        loop.inner[4]);
    graph_id beyond = graph_ge(body, value, graph_scalar_like(body, value, 0));
    graph_id bounds[2] = {graph_select(body, beyond, low, tried), graph_select(body, beyond, tried, high)}, found[2];
    close_loop(&loop, 2, bounds, found);
    l->offset = graph_mul(g, bits_of(g, found[1], l->dtype), side);
}

/* The matrix [..., n, n] by which v is multiplied to get the blocks' eigenvectors. z is recomputed (Loewner's formula) so that the offsets
 * found are exact roots for it; then the vectors are orthogonal however close roots are (Gu & Eisenstat 1995). */
static graph_id vectors_of(level *l) {
    graph *g = l->g;
    graph_id distance = graph_sub(g, as_column(g, l->pole), as_row(g, l->origin));
    distance = graph_sub(g, distance, as_row(g, l->offset)); /* pole i minus root j */
    graph_id gap = graph_sub(g, as_column(g, l->pole), as_row(g, l->pole)), one = graph_scalar_like(g, gap, 1);
    graph_id factor = graph_abs(g, graph_div(g, distance, graph_select(g, l->mates, one, gap)));
    factor = masked(l, graph_and(g, l->together, as_row(g, l->active)), factor, 1);
    const int64_t column = graph_shape_of(g, factor)->rank - 1;
    graph_id again = graph_sqrt(g, graph_reduce_prod(g, factor, 1, &column, false)); /* |z| sqrt(rho) */
    graph_id share = graph_div(g, l->z, l->zeta); /* component of a mate in their representative */
    graph_id raw = graph_div(g, as_column(g, again), distance);
    graph_id counts = graph_and(g, l->together, as_column(g, l->active));
    graph_id length = graph_sqrt(g, sum_rows(l, counts, graph_mul(g, raw, raw)));
    graph_id root = graph_div(g, graph_mul(g, raw, as_column(g, share)), as_row(g, length));
    root = masked(l, graph_and(g, l->together, as_column(g, l->live)), root, 0);
    /* other mates: columns of the reflection that maps their part of z onto the last of them */
    graph_id last = sum_rows(l, graph_and(g, l->mates, as_column(g, l->active)), as_column(g, l->z));
    graph_id far = graph_select(g, graph_lt(g, last, graph_scalar_like(g, last, 0)), graph_neg(g, l->zeta), l->zeta);
    graph_id normal = graph_add(g, l->z, masked(l, l->active, far, 0));
    graph_id norm = graph_mul(g, l->zeta, graph_add(g, l->zeta, graph_abs(g, last)));
    graph_id i = index_vector(g, l->n);
    graph_id unit = graph_cast(g, graph_eq(g, as_column(g, i), as_row(g, i)), l->dtype);
    graph_id turned = graph_div(g, graph_mul(g, as_column(g, normal), as_row(g, l->z)), as_row(g, norm));
    turned = graph_sub(g, unit, masked(l, l->mates, turned, 0));
    graph_id kept = graph_select(g, as_row(g, l->live), turned, unit);
    return graph_select(g, as_row(g, l->active), root, kept);
}

/* Merges blocks of `half` rows, then of twice as many, and so on. pair: d [..., n] and v [..., n, n] of the blocks, which become those of the
 * whole matrices. beside: the off-diagonal. */
static void join_levels(graph *g, graph_id half, graph_id beside, graph_id pair[2]) {
    tir_expr n = matrix_dim(g, beside, 1);
    int64_t condition_number, body_number;
    graph *condition = graph_new_subgraph(g, &condition_number), *body = graph_new_subgraph(g, &body_number);
    graph_id outer[4] = {half, pair[0], pair[1], beside}, inner[4];
    for (int k = 0; k < 4; k++) inner[k] = graph_new_input(condition, NULL, graph_shape_of(g, outer[k]));
    graph_new_output(condition, NULL, graph_lt(condition, inner[0], graph_dimension(condition, DLC_I32, n)));
    for (int k = 0; k < 4; k++) inner[k] = graph_new_input(body, NULL, graph_shape_of(g, outer[k]));
    level l = {.g = body, .n = n, .dtype = graph_shape_of(g, beside)->dtype, .d = inner[1], .v = inner[2]};
    tear(&l, inner[0], inner[3]);
    deflate(&l);
    find_roots(&l);
    graph_id turned = graph_matmul(body, l.v, vectors_of(&l));
    graph_new_output(body, NULL, graph_add(body, inner[0], inner[0]));
    graph_new_output(body, NULL, graph_select(body, l.active, graph_add(body, l.origin, l.offset), l.pole));
    graph_new_output(body, NULL, turned);
    const graph_setting graphs[] = {graph_set_integer("condition", condition_number),
                                    graph_set_integer("body", body_number)};
    graph_id first = graph_emit_with(g, "while", 4, outer, 2, graphs);
    pair[0] = first + 1;
    pair[1] = first + 2;
}

/* An identity matrix for each vector of x [..., n] */
static graph_id units_of(graph *g, graph_id x) {
    graph_shape shape = *graph_shape_of(g, x);
    tir_expr n = shape.dim[shape.rank - 1];
    shape.dim[shape.rank++] = n;
    graph_id i = index_vector(g, n);
    return graph_broadcast_to(g, graph_cast(g, graph_eq(g, as_column(g, i), as_row(g, i)), shape.dtype), shape.rank,
                              shape.dim);
}

/* Number of rows of the leaves, the separate matrices on which the first levels work, for matrices of n rows. */
static tir_expr leaf_of(tir_pool *pool, tir_expr n) {
    enum { LEAF = 128 };
    return tir_max(pool, tir_min(pool, n, tir_index(pool, LEAF)), tir_index(pool, 1));
}

/* x [..., n], zero-padded to a multiple of the leaf, as [..., count, leaf] */
static graph_id in_leaves(graph *g, graph_id x) {
    tir_pool *pool = g->pool;
    graph_shape shape = *graph_shape_of(g, x);
    tir_expr n = shape.dim[shape.rank - 1], leaf = leaf_of(pool, n), count = tir_ceil_div(pool, n, leaf);
    shape.dim[shape.rank - 1] = tir_mul(pool, count, leaf);
    x = update_at(g, graph_full(g, shape.dtype, shape.rank, shape.dim, 0), x, graph_scalar_i64(g, DLC_I32, 0), 1);
    shape.dim[shape.rank - 1] = count;
    shape.dim[shape.rank++] = leaf;
    return graph_reshape(g, x, shape.rank, shape.dim);
}

/* v [..., count, leaf, leaf] as blocks on the diagonal of a matrix of n rows */
static graph_id on_diagonal(graph *g, graph_id v, tir_expr n) {
    tir_pool *pool = g->pool;
    graph_shape shape = *graph_shape_of(g, v);
    tir_expr leaf = shape.dim[shape.rank - 1], whole = tir_mul(pool, shape.dim[shape.rank - 3], leaf);
    shape.rank--, shape.dim[shape.rank - 2] = whole, shape.dim[shape.rank - 1] = leaf;
    v = graph_reshape(g, v, shape.rank, shape.dim);
    v = graph_slice_axis(g, v, shape.rank - 2, tir_index(pool, 0), n); /* [..., n, leaf] */
    graph_id i = index_vector(g, n), size = graph_dimension(g, DLC_I32, leaf), block = graph_div(g, i, size);
    v = graph_gather(g, v, graph_rem(g, i, size), shape.rank - 1);
    return graph_select(g, graph_eq(g, as_column(g, block), as_row(g, block)), v, graph_scalar_like(g, v, 0));
}

/* Levels up to LEAF rows work on separate matrices of that many rows (in_leaves), the others on the whole matrices. */
void matrix_tridiagonal_eigen(graph *g, graph_id diagonal, graph_id beside, graph_id result[2]) {
    const graph_shape line = *graph_shape_of(g, diagonal);
    const int last = line.rank - 1;
    tir_expr n = line.dim[last];
    int64_t size;
    graph_id i = index_vector(g, n), zero = graph_scalar_i64(g, DLC_I32, 0), one = graph_scalar_i64(g, DLC_I32, 1);
    /* each off-diagonal element e is removed: |e| is subtracted from the diagonal elements on both sides */
    graph_id magnitude = graph_abs(g, beside), before = graph_max(g, graph_add_number(g, i, -1), zero);
    graph_id left = graph_gather(g, magnitude, before, last);
    left = graph_select(g, graph_eq(g, i, zero), graph_scalar_like(g, left, 0), left);
    result[0] = graph_sub(g, graph_sub(g, diagonal, magnitude), left);
    if (line.rank + 2 > DLC_MAX_RANK || (tir_is_const(g->pool, n, &size) && size <= 256)) {
        result[1] = units_of(g, result[0]);
        join_levels(g, one, beside, result);
        return;
    }
    graph_id leaf[2] = {in_leaves(g, result[0])};
    leaf[1] = units_of(g, leaf[0]);
    join_levels(g, one, in_leaves(g, beside), leaf);
    graph_shape whole = line;
    whole.dim[last] = tir_mul(g->pool, matrix_dim(g, leaf[0], 2), leaf_of(g->pool, n));
    result[0] = graph_slice_axis(g, graph_reshape(g, leaf[0], whole.rank, whole.dim), last, tir_index(g->pool, 0), n);
    result[1] = on_diagonal(g, leaf[1], n);
    join_levels(g, graph_dimension(g, DLC_I32, leaf_of(g->pool, n)), beside, result);
}

/* ---- eigh --------------------------------------------------------------------------------------------------------- */

static void infer_eigh(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->result[1] = infer->operand[0];
    infer->result[0].rank--;
}

/* x, with NaN for matrices that are not finite; finite: bool over x's leading axes. */
static graph_id of_finite(graph *g, graph_id x, graph_id finite) {
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t axes[DLC_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) axes[d] = d;
    finite = graph_broadcast(g, finite, shape.rank, shape.dim, axes);
    return graph_select(g, finite, x, graph_full_like(g, x, NAN));
}

/* Does any matrix have a non-negligible element below the diagonal? NaN counts as negligible. */
static graph_id is_unfinished(graph *g, graph_id a) {
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    graph_id i = graph_iota(g, DLC_I32, rank, shape.dim, rank - 2),
             j = graph_iota(g, DLC_I32, rank, shape.dim, rank - 1);
    graph_id size = graph_sqrt(g, graph_abs(g, matrix_diagonal(g, a))),
             least = graph_scalar_like(g, a, negligible_part(shape.dtype));
    least = graph_mul(g, least, graph_broadcast_to(g, graph_expand_dims(g, size, rank - 1), rank, shape.dim));
    least = graph_mul(g, least, graph_broadcast_to(g, graph_expand_dims(g, size, rank - 2), rank, shape.dim));
    graph_id beyond = graph_and(g, graph_lt(g, j, i), graph_gt(g, graph_abs(g, a), least));
    return graph_reduce_or(g, beyond, 0, NULL, false);
}

/* Rotates symmetric a in sweeps until all off-diagonal elements are negligible; result: the matrix then, and the product of rotations.
 * Repeated eigenvalues and graded matrices take 40 sweeps at n = 1,000; matrices that never converge (rounding noise at the
 * smallest numbers) stop at the limit. */
static void add_sweeps(graph *g, graph_id a, graph_id result[2]) {
    enum { A, V, DONE, OPERANDS, FIRST = 3, LIMIT = 100 };
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    int64_t extent, condition_number, body_number;
    graph_id i = graph_iota(g, DLC_I32, rank, shape.dim, rank - 2),
             j = graph_iota(g, DLC_I32, rank, shape.dim, rank - 1);
    graph_id outer[OPERANDS] = {a, graph_cast(g, graph_eq(g, i, j), shape.dtype), graph_scalar_i64(g, DLC_I32, 0)},
             inner[OPERANDS];
    graph_setting sweeps = graph_set_integer("sweeps", FIRST);
    result[A] = outer[A] = graph_emit_with(g, "jacobi", 2, outer, 1, &sweeps);
    result[V] = outer[V] = outer[A] + 1;
    if (tir_is_const(g->pool, shape.dim[rank - 1], &extent) && extent <= 2) return; /* one rotation suffices */
    graph *condition = graph_new_subgraph(g, &condition_number), *body = graph_new_subgraph(g, &body_number);
    for (int k = 0; k < OPERANDS; k++) inner[k] = graph_new_input(condition, NULL, graph_shape_of(g, outer[k]));
    graph_id goes = graph_and(condition, is_unfinished(condition, inner[A]),
                              graph_lt(condition, inner[DONE], graph_scalar_i64(condition, DLC_I32, LIMIT)));
    graph_new_output(condition, NULL, goes);
    for (int k = 0; k < OPERANDS; k++) inner[k] = graph_new_input(body, NULL, graph_shape_of(g, outer[k]));
    inner[A] = graph_emit_with(body, "jacobi", 2, inner, 0, NULL);
    inner[V] = inner[A] + 1;
    inner[DONE] = graph_add_number(body, inner[DONE], 1);
    for (int k = 0; k < OPERANDS; k++) graph_new_output(body, NULL, inner[k]);
    const graph_setting graphs[] = {graph_set_integer("condition", condition_number),
                                    graph_set_integer("body", body_number)};
    graph_id first = graph_emit_with(g, "while", OPERANDS, outer, 2, graphs);
    result[A] = first + A;
    result[V] = first + V;
}

/* Sets result[] to the eigenvalues and eigenvectors, unordered, of a, which is symmetric, finite and of moderate magnitude. */
static void emit_eigen(graph *g, graph_id a, graph_id result[2]) {
    enum { SMALL = 32 };
    int64_t extent;
    if (tir_is_const(g->pool, matrix_dim(g, a, 1), &extent) && extent <= SMALL) {
        graph_id turned[2];
        add_sweeps(g, a, turned);
        result[0] = matrix_diagonal(g, turned[0]);
        result[1] = turned[1];
        return;
    }
    graph_id line[2], reflections, inner[2];
    emit_tridiagonal(g, a, line, &reflections);
    matrix_tridiagonal_eigen(g, line[0], line[1], inner);
    result[0] = inner[0];
    result[1] = matrix_apply_all(g, reflections, inner[1], PANEL);
}

/* A power of two near the largest magnitude of each matrix, [..., 1, 1]; 1 for zeros. */
graph_id matrix_scale(graph *g, graph_id a) {
    const graph_shape shape = *graph_shape_of(g, a);
    const bool wide = shape.dtype == DLC_F64;
    const dlc_dtype key = wide ? DLC_I64 : DLC_I32;
    const int64_t axes[2] = {shape.rank - 2, shape.rank - 1};
    graph_id most = graph_reduce_max(g, graph_abs(g, a), 2, axes, true);
    graph_id bits =
        graph_and(g, bits_of(g, most, key), graph_scalar_i64(g, key, wide ? INT64_C(0x7fe0000000000000) : 0x7f000000));
    graph_id power = bits_of(g, bits, shape.dtype), zero = graph_scalar_like(g, power, 0);
    return graph_select(g, graph_gt(g, power, zero), power, graph_full_like(g, power, 1));
}

/* Is the entry of largest magnitude of each column negative? [..., n] */
graph_id matrix_negative_columns(graph *g, graph_id v) {
    const int64_t row = graph_shape_of(g, v)->rank - 2;
    graph_id size = graph_abs(g, v), most = graph_reduce_max(g, size, 1, &row, true);
    graph_id largest =
        graph_reduce_max(g, graph_select(g, graph_eq(g, size, most), v, graph_neg(g, most)), 1, &row, false);
    return graph_lt(g, largest, graph_full_like(g, largest, 0));
}

static void expand_eigh(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int rank = shape.rank;
    int64_t axes[2] = {rank - 2, rank - 1};
    graph_id i = index_vector(g, shape.dim[rank - 1]);
    graph_id a =
        graph_select(g, graph_le(g, as_row(g, i), as_column(g, i)), e->input[0], matrix_transpose(g, e->input[0]));
    graph_id finite = graph_emit_with(g, "is_finite", 1, &a, 0, NULL), pair[2];
    finite = graph_reduce_and(g, finite, 2, axes, false);
    a = graph_select(g, graph_expand_dims(g, as_column(g, finite), rank - 1), a, graph_scalar_like(g, a, 0));
    graph_id scale = matrix_scale(g, a);
    emit_eigen(g, matrix_at_least_one(g, graph_div(g, a, scale)), pair);
    tir_expr zero = tir_index(g->pool, 0), n = shape.dim[rank - 1];
    pair[0] = graph_slice_axis(g, pair[0], rank - 2, zero, n);
    pair[1] = graph_slice_axis(g, graph_slice_axis(g, pair[1], rank - 2, zero, n), rank - 1, zero, n);
    graph_id ordered = graph_emit_with(g, "sort", 1, &pair[0], 0, NULL), which = graph_cast(g, ordered + 1, DLC_I32);
    graph_id w = graph_mul(g, ordered, graph_squeeze(g, scale, rank - 1));
    graph_id v = graph_gather_elements(g, pair[1], graph_broadcast_to(g, as_row(g, which), rank, shape.dim), rank - 1);
    v = graph_select(g, as_row(g, matrix_negative_columns(g, v)), graph_neg(g, v), v);
    e->result[0] = of_finite(g, w, finite);
    e->result[1] = of_finite(g, v, finite);
}

/* ---- references */

#ifdef DLC_REFERENCE
enum { REFERENCE_SIZE = 16 };

/* The number of eigenvalues of a below x: that of negative pivots of a - x (Sylvester). */
static int64_t count_below(const double *a, int64_t n, double x) {
    double m[REFERENCE_SIZE][REFERENCE_SIZE];
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) m[i][j] = a[(i > j ? i : j) * n + (i > j ? j : i)] - (i == j ? x : 0);
    for (int64_t k = 0; k < n; k++) {
        if (m[k][k] == 0) m[k][k] = 1e-300;
        below += m[k][k] < 0;
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = k + 1; j < n; j++) m[i][j] -= m[i][k] * m[k][j] / m[k][k];
    }
    return below;
}

/* Scales y [n] to length 1, without overflow on the way. */
static void normalise(double *y, int64_t n) {
    double norm = 0;
    for (int64_t i = 0; i < n; i++) norm = fmax(norm, fabs(y[i]));
    for (int64_t i = 0; i < n; i++) y[i] /= norm;
    norm = 0;
    for (int64_t i = 0; i < n; i++) norm += y[i] * y[i];
    for (int64_t i = 0; i < n; i++) y[i] /= sqrt(norm);
}

/* Replaces y by (a - x)^-1 y, normalised, by elimination with largest pivots. */
static void iterate_inverse(const double *a, int64_t n, double x, double *y) {
    double m[REFERENCE_SIZE][REFERENCE_SIZE];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) m[i][j] = a[(i > j ? i : j) * n + (i > j ? j : i)] - (i == j ? x : 0);
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k; i < n; i++)
            if (fabs(m[i][k]) > fabs(m[pivot][k])) pivot = i;
        for (int64_t j = 0; j < n; j++) {
            double swap = m[k][j];
            m[k][j] = m[pivot][j], m[pivot][j] = swap;
        }
        double swap = y[k];
        y[k] = y[pivot], y[pivot] = swap;
        if (m[k][k] == 0) m[k][k] = 1e-300;
        for (int64_t i = k + 1; i < n; i++) {
            double factor = m[i][k] / m[k][k];
            for (int64_t j = k; j < n; j++) m[i][j] -= factor * m[k][j];
            y[i] -= factor * y[k];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++) y[i] -= m[i][j] * y[j];
        y[i] /= m[i][i];
    }
    normalise(y, n);
}

/* Samples have one row: there is nothing to rotate. */
static void reference_jacobi(const graph_reference *r) {
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) r->result[k].data[i] = r->operand[k].data[i];
}

static void reference_eigh(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t n = a->dim[a->rank - 1], batch = n ? graph_reference_count(a) / (n * n) : 0;
    for (int64_t at = 0; at < batch * n; at++) {
        const double *x = a->data + at / n * n * n;
        double bound = 1, y[REFERENCE_SIZE], largest = 0;
        for (int64_t i = 0; i < n * n; i++) bound += fabs(x[i]);
        double low = -bound, high = bound;
        for (int step = 0; step < 200; step++) {
            double middle = (low + high) / 2;
            if (count_below(x, n, middle) > at % n)
                high = middle;
            else
                low = middle;
        }
        r->result[0].data[at] = low;
        for (int64_t i = 0; i < n; i++) y[i] = 1 + 0.1 * (double)i;
        for (int step = 0; step < 4; step++) iterate_inverse(x, n, low + 1e-12 * bound, y);
        for (int64_t i = 0; i < n; i++)
            if (fabs(y[i]) > fabs(largest)) largest = y[i];
        for (int64_t i = 0; i < n; i++) r->result[1].data[at / n * n * n + i * n + at % n] = largest < 0 ? -y[i] : y[i];
    }
}
#endif

/* ---- rows */

static const graph_op row_jacobi = {
    PRIMITIVE_ROW(jacobi, GRAPH_CONTRACT, 2, 2, 2, "a v", "f32 f64"),
    .attribute = {{"sweeps", GRAPH_ATTR_INTEGER, NULL, "1", "how often each pair of rows is rotated"}},
    .refused = "eigh is made of it: differentiate that",
    .infer = infer_jacobi,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .tolerance = 64,
    .samples = "jacobi(T[1, 1], T[1, 1])\njacobi(T[2, 1, 1], T[2, 1, 1], sweeps=2)\njacobi(T[0, 3, 3], T[0, 3, 3])",
    .doc =
        "Symmetric matrices a [..., n, n] turned by rotations, u^T a u, and v u: what eigh repeats until nothing beside the diagonal counts, "
        "where the first result's diagonal holds eigenvalues, and, if v began as the unit matrix, the columns of the second are "
        "eigenvectors. Rows are paired as in a round-robin tournament, n/2 pairs at a time, each rotated so that its element becomes zero, "
        "but for those whose element e of rows i and j is negligible: |e| <= sqrt(|a[i, i]|) sqrt(|a[j, j]|) / 2^24 in f32, / 2^53 in f64. "
        "Jacobi 1846; Brent & Luk 1985; Demmel & Veselic 1992.",
};

static const graph_op row_eigh = {
    COMPOSITE_ROW(eigh, 1, 1, 2, "a", "f32 f64"),
    .jvp = matrix_tangent_eigh,
    .infer = infer_eigh,
    .tolerance = 256,
    .samples = "eigh(T[3, 3])\neigh(T[1, 1])\neigh(T[2, 2, 2])\neigh(T[2, 5, 5])\neigh(T[0, 2, 2])",
    .doc =
        "Eigenvalues w [..., n], ascending, and orthonormal eigenvectors, columns of v [..., n, n], of symmetric matrices: a v = v "
        "diag(w). Only the lower triangle of a [..., n, n] is read. The entry of largest magnitude of each vector is "
        "positive (one of them, where several are as large). Vectors of equal eigenvalues are some basis. All results of a matrix whose "
        "triangle holds NaN or an infinity are NaN; so may be those of one with entries beyond the type's largest number / (8 n). "
        "Up to n = 32 by rotations (jacobi), in sweeps until each element beside the diagonal is negligible there; others by reflections to "
        "tridiagonal form and divide and conquer (Gu & Eisenstat 1995). Errors are small beside the largest eigenvalue, whatever "
        "eigenvalues are repeated. "
        "NumPy linalg.eigh, with that choice of signs.",
};

const graph_op *const graph_ops_eigen[] = {&row_jacobi, &row_eigh, NULL};
