/* Factorisations by blocks of columns: LU and the operators based on it, QR. A primitive with one step per column factors a block of
 * columns (a panel); the expansion then updates the rest of the matrix by products, in a loop over blocks. */
#include "graph/bound.h"
#include "graph/matrix.h"

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

enum { BLOCK = 32 }; /* columns */

/* ---- lu_panel ----------------------------------------------------------------------------------------------------- */

static void infer_lu_panel(graph_infer *infer) {
    graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    graph_infer_dtype(infer, 1, DLC_I32);
    graph_infer_rank(infer, 1, 0);
    infer->result[0] = infer->result[1] = *a;
    infer->result[1].rank = rank - 1;
    infer->result[1].dtype = DLC_I32;
}

typedef struct lu_step {
    matrix_fold f;
    tir_expr m, both[2];
    /* tensors of the matrix and of the order of its rows when the step begins */
    uint32_t now, order;
    /* tensor of the pivot's row, i64 */
    uint32_t pivot;
} lu_step;

/* The step's column: t, limited to the last one. A fold has at least two steps, since its next state is read: a matrix of one column has a
 * second step without a column. */
static tir_expr lu_column(lu_step *s) {
    return tir_min(s->f.pool, s->f.t, tir_sub(s->f.pool, s->both[1], tir_index(s->f.pool, 1)));
}

/* The row that step t makes the pivot's: operand 1 plus t. */
static tir_expr lu_row(lu_step *s) {
    return tir_add(s->f.pool, matrix_offset(s->f.c, s->m), s->f.t);
}
static tir_expr lu_pivot(lu_step *s) {
    tir_pool *pool = s->f.pool;
    return graph_limited_index(pool, load0(&s->f, s->pivot), tir_index(pool, 0),
                               tir_sub(pool, s->m, tir_index(pool, 1)));
}
/* The row that stands in row i after the step has swapped lu_row and the pivot's row; i itself if there is nothing to swap. */
static tir_expr lu_source(lu_step *s, tir_expr i) {
    tir_pool *pool = s->f.pool;
    tir_expr row = lu_row(s), pivot = lu_pivot(s), wide = tir_cast(pool, DLC_I64, i);
    tir_expr here = tir_eq(pool, wide, tir_cast(pool, DLC_I64, row)),
             there = tir_eq(pool, wide, tir_cast(pool, DLC_I64, pivot));
    tir_expr some = tir_and(pool, tir_lt(pool, row, s->m), tir_lt(pool, s->f.t, s->both[1]));
    there = tir_and(pool, there, some), here = tir_and(pool, here, some);
    return tir_select(pool, here, pivot,
                      tir_select(pool, there, tir_min(pool, row, tir_sub(pool, s->m, tir_index(pool, 1))), i));
}

/* Sets s->pivot to the first row with the largest element of the step's column, from lu_row on; NaN counts as infinite. */
static void lu_find(lu_step *s) {
    matrix_fold *f = &s->f;
    tir_pool *pool = f->pool;
    tir_expr infinity = tir_float(pool, f->dtype, (double)INFINITY);
    uint32_t most = 0;
    for (int which = 0; which < 2; which++) {
        tir_stage *stage = open_step(f, TIR_REDUCE, 0, NULL, 1, &s->m);
        tir_expr i = f->axis[f->free], x = load2(f, s->now, i, lu_column(s)), row = lu_row(s);
        tir_expr size = tir_select(pool, tir_eq(pool, x, x), tir_unary(pool, TIR_ABS, x), infinity);
        tir_expr below = tir_le(pool, row, i);
        if (which == 0) {
            most = tir_stage_reduce(f->c->region, stage, TIR_MAX,
                                    tir_select(pool, below, size, tir_float(pool, f->dtype, -1)));
        } else {
            tir_expr is_most = tir_and(pool, below, tir_eq(pool, size, load0(f, most)));
            s->pivot =
                tir_stage_reduce(f->c->region, stage, TIR_MIN,
                                 tir_select(pool, is_most, tir_cast(pool, DLC_I64, i), tir_highest(pool, DLC_I64)));
        }
    }
}

/* A panel without columns, or with one row: nothing is swapped or eliminated. */
static void empty_lu_panel(graph_compute *c) {
    for (int result = 0; result < 2; result++) {
        const graph_shape *y = &c->result_shape[result];
        tir_expr index[DLC_MAX_RANK];
        tir_stage *stage = graph_map_stage(c, y, index);
        tir_expr value = result ? tir_cast(c->pool, DLC_I32, index[y->rank - 1]) : graph_operand_load(c, 0, index);
        c->result[result] = tir_stage_value(c->region, stage, value, 0, 0);
    }
}

static void compute_lu_panel(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *a = &c->operand_shape[0];
    const int free = a->rank - 2;
    int64_t size;
    if (tir_is_number(pool, a->dim[free + 1], 0) || (tir_is_const(pool, a->dim[free], &size) && size <= 1)) {
        empty_lu_panel(c);
        return;
    }
    lu_step s = {.m = a->dim[free], .both = {a->dim[free], a->dim[free + 1]}};
    matrix_fold *f = &s.f;
    *f = open_fold(c, free, a->dim, tir_max(pool, tir_min(pool, s.both[0], s.both[1]), tir_index(pool, 2)));
    add_state(f, 2, s.both);
    add_state_of(f, DLC_I32, 1, &s.m);
    tir_stage *stage = open_step(f, TIR_MAP, 2, s.both, 0, NULL);
    tir_expr i = f->axis[free], j = f->axis[free + 1];
    s.now = tir_stage_value(c->region, stage, first_or(f, load2(f, c->operand[0], i, j), load2(f, f->state[0], i, j)),
                            0, 0);
    stage = open_step(f, TIR_MAP, 1, &s.m, 0, NULL);
    i = f->axis[free];
    s.order =
        tir_stage_value(c->region, stage, first_or(f, tir_cast(pool, DLC_I32, i), load1(f, f->state[1], i)), 0, 0);
    lu_find(&s);
    stage = open_step(f, TIR_MAP, 1, &s.m, 0, NULL); /* the multiple of the pivot row subtracted from each row */
    tir_expr over = load2(f, s.now, lu_pivot(&s), lu_column(&s)), zero = tir_float(pool, f->dtype, 0);
    tir_expr factor = tir_div(pool, load2(f, s.now, lu_source(&s, f->axis[free]), lu_column(&s)), over);
    factor = tir_select(pool, tir_eq(pool, over, zero), zero, factor);
    uint32_t factors = tir_stage_value(c->region, stage, factor, 0, 0), next[2];
    stage = open_step(f, TIR_MAP, 2, s.both, 0, NULL);
    i = f->axis[free], j = f->axis[free + 1];
    tir_expr old = load2(f, s.now, lu_source(&s, i), j), own = load1(f, factors, i);
    tir_expr less = tir_muladd(pool, tir_unary(pool, TIR_NEG, own), load2(f, s.now, lu_pivot(&s), j), old);
    tir_expr value = tir_select(pool, tir_lt(pool, f->t, j), less, tir_select(pool, tir_eq(pool, j, f->t), own, old));
    next[0] = tir_stage_value(
        c->region, stage,
        tir_select(pool, tir_and(pool, tir_lt(pool, f->t, s.both[1]), tir_lt(pool, lu_row(&s), i)), value, old), 0, 0);
    stage = open_step(f, TIR_MAP, 1, &s.m, 0, NULL);
    next[1] = tir_stage_value(c->region, stage, load1(f, s.order, lu_source(&s, f->axis[free])), 0, 0);
    close_fold(f, next);
    for (int result = 0; result < 2; result++) {
        const graph_shape *y = &c->result_shape[result];
        stage = graph_map_stage(c, y, f->axis);
        tir_expr element = load_own(f, f->state[result], 2 - result, f->axis + free);
        c->result[result] = tir_stage_value(c->region, stage, element, 0, 0);
    }
}

/* ---- by blocks ---------------------------------------------------------------------------------------------------- */

static bool is_at_most(const graph *g, tir_expr size, int64_t most) {
    int64_t number;
    return tir_is_const(g->pool, size, &number) && number <= most;
}

/* l (below the diagonal) and u, in one matrix [..., m, n]: their product is a with its rows in the order of *order. */
static graph_id emit_lu(graph *g, graph_id a, graph_id *order) {
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    tir_expr m = shape.dim[rank - 2], n = shape.dim[rank - 1], least = tir_min(pool, m, n),
             width = tir_index(pool, BLOCK);
    if (is_at_most(g, least, 2 * BLOCK)) {
        graph_id first = graph_emit_with(g, "lu_panel", 2, (graph_id[]){a, graph_scalar_i64(g, DLC_I32, 0)}, 0, NULL);
        *order = first + 1;
        return first;
    }
    tir_expr trips = tir_ceil_div(pool, tir_max(pool, least, tir_index(pool, 1)), width),
             whole = tir_mul(pool, trips, width);
    tir_expr rows = tir_max(pool, m, whole), columns = tir_max(pool, n, whole);
    graph_id padded = update_at(g, zeros_like_of(g, a, m, columns), a, graph_scalar_i64(g, DLC_I32, 0), 1);
    padded = update_at(g, zeros_like_of(g, a, rows, columns), padded, graph_scalar_i64(g, DLC_I32, 0), 2);
    graph_shape line = shape;
    line.rank--, line.dtype = DLC_I32, line.dim[rank - 2] = rows;
    graph_id places = graph_iota(g, DLC_I32, line.rank, line.dim, line.rank - 1);
    matrix_loop loop = open_loop(g, trips, 2, (graph_id[]){padded, places});
    graph *body = loop.body;
    graph_id start = graph_mul_number(body, loop.inner[0], BLOCK), now = loop.inner[1];
    graph_id behind = graph_add_number(body, start, BLOCK);
    graph_id panel =
        graph_emit_with(body, "lu_panel", 2, (graph_id[]){slice_at(body, now, start, 1, width), start}, 0, NULL);
    graph_shape all = *graph_shape_of(body, now);
    now =
        graph_gather_elements(body, now, graph_broadcast_to(body, as_column(body, panel + 1), rank, all.dim), rank - 2);
    graph_id next[2] = {0, graph_gather_elements(body, loop.inner[2], panel + 1, rank - 2)};
    now = update_at(body, now, panel, start, 1);
    graph_id top = slice_at(body, now, start, 2, width), corner = slice_at(body, panel, start, 2, width);
    const graph_setting unit = graph_set_bool("unit", true);
    graph_id solved = graph_emit_with(body, "substitute", 2, (graph_id[]){corner, top}, 1, &unit);
    graph_id right = graph_ge(body, as_row(body, index_vector(body, columns)), behind),
             below = graph_ge(body, as_column(body, index_vector(body, rows)), behind);
    solved = graph_select(body, right, solved, graph_full_like(body, solved, 0));
    now = update_at(body, now, graph_select(body, right, solved, top), start, 2);
    graph_id left = graph_select(body, below, panel, graph_full_like(body, panel, 0));
    next[0] = graph_sub(body, now, graph_matmul(body, left, solved));
    graph_id result[2];
    close_loop(&loop, 2, next, result);
    const tir_expr zero = tir_index(pool, 0);
    *order = graph_slice_axis(g, result[1], rank - 2, zero, m);
    return graph_slice_axis(g, graph_slice_axis(g, result[0], rank - 1, zero, n), rank - 2, zero, m);
}

/* ---- triangular_solve ---------------------------------------------------------------------------------------------- */

/* By blocks of unknowns: subtracts the known unknowns' part from b, then substitutes. The last block starts early enough to be
 * full, and recomputes some unknowns. */
static void expand_triangular_solve(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const bool left = e->attribute[SOLVE_LEFT].integer, turned = e->attribute[SOLVE_TRANSPOSE].integer != !left;
    const bool upper = e->attribute[SOLVE_UPPER].integer != turned, unit = e->attribute[SOLVE_UNIT].integer;
    tir_expr n = matrix_dim(g, e->input[0], 1), width = tir_min(pool, n, tir_index(pool, BLOCK));
    if (is_at_most(g, n, 2 * BLOCK)) {
        const graph_setting same[] = {
            graph_set_bool("left", left), graph_set_bool("upper", e->attribute[SOLVE_UPPER].integer),
            graph_set_bool("transpose", e->attribute[SOLVE_TRANSPOSE].integer), graph_set_bool("unit", unit)};
        e->result[0] = graph_emit_with(g, "substitute", 2, e->input, 4, same);
        return;
    }
    graph_id a = turned ? matrix_transpose(g, e->input[0]) : e->input[0],
             b = left ? e->input[1] : matrix_transpose(g, e->input[1]);
    graph_id i = index_vector(g, n), down = as_column(g, i), across = as_row(g, i);
    a = graph_select(g, upper ? graph_le(g, down, across) : graph_le(g, across, down), a, graph_full_like(g, a, 0));
    matrix_loop loop =
        open_loop(g, tir_ceil_div(pool, n, tir_index(pool, BLOCK)), 3, (graph_id[]){graph_full_like(g, b, 0), a, b});
    graph *body = loop.body;
    graph_id last = graph_dimension(body, DLC_I32, tir_sub(pool, n, width)),
             start = graph_mul_number(body, loop.inner[0], BLOCK);
    start = upper ? graph_max(body, graph_sub(body, last, start), graph_scalar_i64(body, DLC_I32, 0))
                  : graph_min(body, start, last);
    graph_id rows = slice_at(body, loop.inner[2], start, 2, width), column = as_row(body, index_vector(body, n));
    graph_id own = graph_and(body, graph_ge(body, column, start),
                             graph_lt(body, column, graph_add(body, start, graph_dimension(body, DLC_I32, width))));
    graph_id others = graph_select(body, own, graph_full_like(body, rows, 0), rows);
    graph_id rest =
        graph_sub(body, slice_at(body, loop.inner[3], start, 2, width), graph_matmul(body, others, loop.inner[1]));
    const graph_setting kind[] = {graph_set_bool("upper", upper), graph_set_bool("unit", unit)};
    rest = graph_emit_with(body, "substitute", 2, (graph_id[]){slice_at(body, rows, start, 1, width), rest}, 2, kind);
    graph_id next = update_at(body, loop.inner[1], rest, start, 2), x;
    close_loop(&loop, 1, &next, &x);
    e->result[0] = left ? x : matrix_transpose(g, x);
}

/* ---- lu, solve, inverse, slogdet ---------------------------------------------------------------------------------- */

static void infer_lu(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    tir_expr least = tir_min(infer->g->pool, a->dim[rank - 2], a->dim[rank - 1]);
    for (int k = 0; k < 3; k++) infer->result[k] = *a;
    infer->result[0].dim[rank - 1] = least;
    infer->result[1].dim[rank - 2] = least;
    infer->result[2].rank--;
    infer->result[2].dtype = DLC_I32;
}

static void expand_lu(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const int rank = shape.rank;
    tir_expr m = shape.dim[rank - 2], n = shape.dim[rank - 1], zero = tir_index(g->pool, 0),
             least = tir_min(g->pool, m, n);
    graph_id both = emit_lu(g, e->input[0], &e->result[2]);
    graph_id l = graph_slice_axis(g, both, rank - 1, zero, least);
    e->result[0] = graph_add(g, matrix_triangle(g, l, false), unit_like(g, l, m, least));
    e->result[1] = matrix_triangle(g, graph_slice_axis(g, both, rank - 2, zero, least), true);
}

static void infer_linear_solve(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0], *b = &infer->operand[1];
    graph_infer_same_dtype(infer, 0, 2);
    infer_square(infer);
    int rank = matrix_rank(infer, 1);
    graph_infer_rank(infer, 0, rank);
    for (int d = 0; d < rank - 2; d++) graph_infer_equal(infer, a->dim[d], b->dim[d], "leading dimensions");
    graph_infer_equal(infer, a->dim[rank - 1], b->dim[rank - 2], "rows of a and of b");
    infer->result[0] = *b;
}

/* x with a x = b */
static graph_id solution_of(graph *g, graph_id a, graph_id b) {
    const graph_shape shape = *graph_shape_of(g, b);
    graph_id order, both = emit_lu(g, a, &order);
    b = graph_gather_elements(g, b, graph_broadcast_to(g, as_column(g, order), shape.rank, shape.dim), shape.rank - 2);
    const graph_setting unit = graph_set_bool("unit", true), upper = graph_set_bool("upper", true);
    b = graph_emit_with(g, "triangular_solve", 2, (graph_id[]){both, b}, 1, &unit);
    return graph_emit_with(g, "triangular_solve", 2, (graph_id[]){both, b}, 1, &upper);
}

static void expand_linear_solve(graph_expand *e) {
    e->result[0] = solution_of(e->g, e->input[0], e->input[1]);
}

static void infer_inverse(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->operand[0];
}

static void expand_inverse(graph_expand *e) {
    tir_expr n = matrix_dim(e->g, e->input[0], 1);
    e->result[0] = solution_of(e->g, e->input[0], unit_like(e->g, e->input[0], n, n));
}

static void infer_slogdet(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->operand[0];
    infer->result[0].rank -= 2;
    infer->result[1] = infer->result[0];
}

/* The determinant's sign is that of the diagonal's product, changed by each inversion of the rows' permutation. */
static void expand_slogdet(graph_expand *e) {
    graph *g = e->g;
    graph_id order, both = emit_lu(g, e->input[0], &order), d = matrix_diagonal(g, both);
    const int rank = graph_shape_of(g, both)->rank;
    const int64_t last = rank - 2, pairs[2] = {rank - 2, rank - 1};
    graph_id i = index_vector(g, matrix_dim(g, both, 1));
    graph_id turned =
        graph_and(g, graph_lt(g, as_column(g, i), as_row(g, i)), graph_gt(g, as_column(g, order), as_row(g, order)));
    graph_id odd = graph_reduce_sum(g, graph_cast(g, turned, DLC_I32), 2, pairs, false);
    odd = graph_ne(g, graph_and(g, odd, graph_scalar_i64(g, DLC_I32, 1)), graph_scalar_i64(g, DLC_I32, 0));
    graph_id sign = graph_reduce_prod(g, graph_sign(g, d), 1, &last, false);
    e->result[0] = graph_select(g, odd, graph_neg(g, sign), sign);
    e->result[1] = graph_reduce_sum(g, graph_log(g, graph_abs(g, d)), 1, &last, false);
}

/* ---- qr ----------------------------------------------------------------------------------------------------------- */

/* The reflections [..., BLOCK, m] that, one after the other, make columns start, start + 1, ... of a zero below the diagonal. */
static graph_id reflect_block(graph *g, graph_id a, graph_id start) {
    tir_pool *pool = g->pool;
    tir_expr m = matrix_dim(g, a, 2), n = matrix_dim(g, a, 1), width = tir_min(pool, n, tir_index(pool, BLOCK)),
             one = tir_index(pool, 1);
    /* start of the slice, clamped */
    graph_id first = graph_min(g, start, graph_dimension(g, DLC_I32, tir_sub(pool, n, width)));
    graph_id rows = matrix_transpose(g, slice_at(g, a, first, 1, width));
    graph_id start_values[] = {rows, zeros_like_of(g, a, tir_index(pool, BLOCK), m), start, first};
    matrix_loop loop = open_loop(g, tir_index(pool, BLOCK), 4, start_values);
    graph *body = loop.body;
    graph_id pivot = graph_add(body, loop.inner[3], loop.inner[0]),
             x = slice_at(body, loop.inner[1], graph_sub(body, pivot, loop.inner[4]), 2, one);
    x = graph_select(body, graph_lt(body, pivot, graph_dimension(body, DLC_I32, n)), x, graph_scalar_like(body, x, 0));
    graph_id v = matrix_reflector_of(body, x, pivot), next[2], last[2];
    graph_id along = graph_matmul(body, loop.inner[1], matrix_transpose(body, v));
    next[0] = graph_sub(body, loop.inner[1], graph_mul(body, along, v));
    next[1] = update_at(body, loop.inner[2], v, loop.inner[0], 2);
    close_loop(&loop, 2, next, last);
    return last[1];
}

void matrix_qr(graph *g, graph_id a, graph_id result[2]) {
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    tir_expr m = shape.dim[rank - 2], n = shape.dim[rank - 1], least = tir_min(pool, m, n);
    if (is_at_most(g, least, BLOCK)) {
        result[0] = graph_emit_with(g, "qr_columns", 1, &a, 0, NULL);
        result[1] = result[0] + 1;
        return;
    }
    tir_expr trips = tir_ceil_div(pool, tir_max(pool, least, tir_index(pool, 1)), tir_index(pool, BLOCK)),
             whole = tir_mul(pool, trips, tir_index(pool, BLOCK));
    a = matrix_at_least_one(g, a);
    tir_expr rows = matrix_dim(g, a, 2), from = tir_index(pool, 0);
    matrix_loop loop = open_loop(g, trips, 2, (graph_id[]){a, zeros_like_of(g, a, whole, rows)});
    graph *body = loop.body;
    graph_id start = graph_mul_number(body, loop.inner[0], BLOCK), next[2];
    graph_id v = reflect_block(body, loop.inner[1], start);
    next[0] = matrix_apply_reflectors(body, v, loop.inner[1], true);
    next[1] = update_at(body, loop.inner[2], v, start, 2);
    graph_id turned[2], zero = graph_scalar_like(g, a, 0);
    close_loop(&loop, 2, next, turned);
    graph_id r = graph_slice_axis(g, graph_slice_axis(g, turned[0], rank - 2, from, least), rank - 1, from, n);
    graph_id q = matrix_apply_all(g, turned[1], unit_like(g, a, rows, least), BLOCK);
    q = graph_slice_axis(g, q, rank - 2, from, m);
    r = matrix_triangle(g, r, true);
    /* rows of r with a negative diagonal, and their columns of q, change signs */
    graph_id negative = graph_lt(g, matrix_diagonal(g, graph_slice_axis(g, r, rank - 1, from, least)), zero);
    result[0] = graph_select(g, as_row(g, negative), graph_neg(g, q), q);
    result[1] = graph_select(g, as_column(g, negative), graph_neg(g, r), r);
}

static void expand_qr(graph_expand *e) {
    matrix_qr(e->g, e->input[0], e->result);
}

/* ---- expm --------------------------------------------------------------------------------------------------------- */

/* 2^-s by its bits; s i32 [..., 1, 1], 0 to 126 (f64: 1,022). */
static graph_id power_of_half(graph *g, graph_id s, dlc_dtype dtype) {
    const bool wide = dtype == DLC_F64;
    const dlc_dtype key = wide ? DLC_I64 : DLC_I32;
    graph_id exponent = graph_sub(g, graph_scalar_i64(g, key, wide ? 1023 : 127), graph_cast(g, s, key));
    graph_id bits = graph_mul(g, exponent, graph_scalar_i64(g, key, INT64_C(1) << (wide ? 52 : 23)));
    return graph_emit_with(g, "bit_cast", 1, &bits, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
}

/* The Pade approximation of exp(a) with coefficients b: (v + u) / (v - u), where v has the even powers of a and u the odd ones. */
static graph_id pade(graph *g, graph_id a, const double *b, int degree) {
    tir_expr n = matrix_dim(g, a, 1);
    graph_id unit = unit_like(g, a, n, n), power[4] = {unit, graph_matmul(g, a, a)}, sum[2];
    power[2] = graph_matmul(g, power[1], power[1]);
    power[3] = graph_matmul(g, power[2], power[1]);
    for (int odd = 0; odd < 2; odd++) {
        graph_id low = graph_mul_number(g, unit, b[odd]), high = 0;
        for (int k = 1; k < 4; k++) {
            low = graph_add(g, low, graph_mul_number(g, power[k], b[2 * k + odd]));
            if (degree < 13) continue;
            graph_id term = graph_mul_number(g, power[k], b[6 + 2 * k + odd]);
            high = high ? graph_add(g, high, term) : term;
        }
        sum[odd] = high ? graph_add(g, graph_matmul(g, power[3], high), low) : low;
    }
    graph_id u = graph_matmul(g, a, sum[1]);
    return solution_of(g, graph_sub(g, sum[0], u), graph_add(g, sum[0], u));
}

/* exp(a / 2^s), squared s times (Higham 2005); each matrix of a batch has its own s. */
static void expand_expm(graph_expand *e) {
    static const double wide_terms[] = {64764752532480000,
                                        32382376266240000,
                                        7771770303897600,
                                        1187353796428800,
                                        129060195264000,
                                        10559470521600,
                                        670442572800,
                                        33522128640,
                                        1323241920,
                                        40840800,
                                        960960,
                                        16380,
                                        182,
                                        1};
    static const double terms[] = {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1};
    graph *g = e->g;
    graph_id a = e->input[0];
    const graph_shape shape = *graph_shape_of(g, a);
    const bool wide = shape.dtype == DLC_F64;
    /* greatest norm for which the approximation is accurate */
    const double largest = wide ? 5.371920351148152 : 3.92572478313866;
    const int64_t row = shape.rank - 2, column = shape.rank - 1;
    graph_id norm = graph_reduce_max(g, graph_reduce_sum(g, graph_abs(g, a), 1, &row, true), 1, &column, true);
    graph_id s =
        graph_ceil(g, graph_mul_number(g, graph_log(g, graph_mul_number(g, norm, 1 / largest)), 1.4426950408889634));
    s = graph_select(g, graph_gt(g, norm, graph_scalar_like(g, norm, largest)), s, graph_scalar_like(g, norm, 0));
    s = graph_cast(g, graph_min(g, s, graph_scalar_like(g, s, wide ? 1020 : 120)), DLC_I32);
    graph_id x = pade(g, graph_mul(g, a, power_of_half(g, s, shape.dtype)), wide ? wide_terms : terms, wide ? 13 : 7);
    int64_t condition_number, body_number;
    graph *condition = graph_new_subgraph(g, &condition_number), *body = graph_new_subgraph(g, &body_number);
    graph_id outer[3] = {graph_scalar_i64(g, DLC_I32, 0), x, s}, inner[3];
    for (int k = 0; k < 3; k++) inner[k] = graph_new_input(condition, NULL, graph_shape_of(g, outer[k]));
    graph_new_output(condition, NULL,
                     graph_reduce_or(condition, graph_lt(condition, inner[0], inner[2]), 0, NULL, false));
    for (int k = 0; k < 3; k++) inner[k] = graph_new_input(body, NULL, graph_shape_of(g, outer[k]));
    graph_new_output(body, NULL, graph_add_number(body, inner[0], 1));
    graph_new_output(
        body, NULL,
        graph_select(body, graph_lt(body, inner[0], inner[2]), graph_matmul(body, inner[1], inner[1]), inner[1]));
    const graph_setting graphs[] = {graph_set_integer("condition", condition_number),
                                    graph_set_integer("body", body_number)};
    e->result[0] = graph_emit_with(g, "while", 3, outer, 2, graphs) + 1;
}

/* ---- references */

#ifdef DLC_REFERENCE

/* lu_panel of one matrix a [m, n] in place: column t is eliminated by row first + t. order[m]: the resulting order of rows. */
static void eliminate(double *a, double *order, int64_t m, int64_t n, int64_t first) {
    for (int64_t i = 0; i < m; i++) order[i] = (double)i;
    for (int64_t t = 0; t < n && first + t < m; t++) {
        int64_t row = first + t, pivot = row;
        for (int64_t i = row; i < m; i++)
            if (fabs(a[i * n + t]) > fabs(a[pivot * n + t])) pivot = i;
        for (int64_t j = 0; j < n && pivot != row; j++) {
            double swap = a[row * n + j];
            a[row * n + j] = a[pivot * n + j], a[pivot * n + j] = swap;
        }
        double swap = order[row];
        order[row] = order[pivot], order[pivot] = swap;
        for (int64_t i = row + 1; i < m; i++) {
            double factor = a[row * n + t] == 0 ? 0 : a[i * n + t] / a[row * n + t];
            for (int64_t j = t + 1; j < n; j++) a[i * n + j] -= factor * a[row * n + j];
            a[i * n + t] = factor;
        }
    }
}

static int64_t matrices_of(const graph_reference_tensor *a) {
    int64_t count = 1;
    for (int d = 0; d < a->rank - 2; d++) count *= a->dim[d];
    return count;
}

static void reference_lu_panel(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], first = (int64_t)r->operand[1].data[0];
    first = first < 0 || m == 0 ? 0 : first < m ? first : m - 1;
    for (int64_t b = 0; b < matrices_of(a); b++) {
        for (int64_t i = 0; i < m * n; i++) r->result[0].data[b * m * n + i] = a->data[b * m * n + i];
        eliminate(r->result[0].data + b * m * n, r->result[1].data + b * m, m, n, first);
    }
}

static void reference_lu(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], least = m < n ? m : n;
    double *both = malloc((size_t)(m * n + 1) * sizeof *both);
    for (int64_t b = 0; both && b < matrices_of(a); b++) {
        for (int64_t i = 0; i < m * n; i++) both[i] = a->data[b * m * n + i];
        eliminate(both, r->result[2].data + b * m, m, n, 0);
        for (int64_t i = 0; i < m; i++)
            for (int64_t k = 0; k < least; k++)
                r->result[0].data[(b * m + i) * least + k] = i == k ? 1 : i > k ? both[i * n + k] : 0;
        for (int64_t k = 0; k < least; k++)
            for (int64_t j = 0; j < n; j++) r->result[1].data[(b * least + k) * n + j] = j < k ? 0 : both[k * n + j];
    }
    free(both);
}

/* Exchanges rows and unknowns of the equations m [n, w] so that m[t, t] is the largest element from there on.
 * unknown[n]: the order of unknowns. */
static void pivot_fully(double *m, int64_t *unknown, int64_t t, int64_t n, int64_t w) {
    int64_t row = t, column = t;
    for (int64_t i = t; i < n; i++)
        for (int64_t j = t; j < n; j++)
            if (fabs(m[i * w + j]) > fabs(m[row * w + column])) row = i, column = j;
    for (int64_t j = 0; j < w; j++) {
        double swap = m[t * w + j];
        m[t * w + j] = m[row * w + j], m[row * w + j] = swap;
    }
    for (int64_t i = 0; i < n; i++) {
        double swap = m[i * w + t];
        m[i * w + t] = m[i * w + column], m[i * w + column] = swap;
    }
    int64_t other = unknown[t];
    unknown[t] = unknown[column], unknown[column] = other;
}

/* x [n, k] with a x = b, by Gauss-Jordan elimination with full pivoting. */
static void solve_fully(const double *a, const double *b, double *x, int64_t n, int64_t k) {
    double *m = malloc((size_t)(n * (n + k) + 1) * sizeof *m);
    int64_t *unknown = malloc((size_t)(n + 1) * sizeof *unknown), w = n + k;
    for (int64_t i = 0; m && unknown && i < n; i++) {
        unknown[i] = i;
        for (int64_t j = 0; j < w; j++) m[i * w + j] = j < n ? a[i * n + j] : b[i * k + j - n];
    }
    for (int64_t t = 0; m && unknown && t < n; t++) {
        pivot_fully(m, unknown, t, n, w);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = w - 1; j >= t && i != t; j--) m[i * w + j] -= m[i * w + t] / m[t * w + t] * m[t * w + j];
    }
    for (int64_t i = 0; m && unknown && i < n; i++)
        for (int64_t j = 0; j < k; j++) x[unknown[i] * k + j] = m[i * w + n + j] / m[i * w + i];
    free(m);
    free(unknown);
}

static void reference_linear_solve(const graph_reference *r) {
    const graph_reference_tensor *b = &r->operand[1];
    int64_t n = b->dim[b->rank - 2], k = b->dim[b->rank - 1];
    for (int64_t at = 0; at < matrices_of(b); at++)
        solve_fully(r->operand[0].data + at * n * n, b->data + at * n * k, r->result[0].data + at * n * k, n, k);
}

static void reference_inverse(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t n = a->dim[a->rank - 1];
    double *unit = calloc((size_t)(n * n + 1), sizeof *unit);
    for (int64_t i = 0; unit && i < n; i++) unit[i * n + i] = 1;
    for (int64_t at = 0; unit && at < matrices_of(a); at++)
        solve_fully(a->data + at * n * n, unit, r->result[0].data + at * n * n, n, n);
    free(unit);
}

/* The power series for a / 1,024, squared ten times. */
static void reference_expm(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t n = a->dim[a->rank - 1], size = n * n;
    double *term = malloc((size_t)(2 * size + 1) * sizeof *term), *product = term + size;
    for (int64_t at = 0; term && size && at < matrices_of(a); at++) {
        const double *x = a->data + at * size;
        double *y = r->result[0].data + at * size;
        for (int64_t i = 0; i < size; i++) y[i] = term[i] = i / n == i % n;
        for (int step = 1; step < 40; step++) { /* 30 terms, then ten squares */
            const double *left = step <= 29 ? term : y, *right = step <= 29 ? x : y;
            for (int64_t i = 0; i < size; i++) {
                product[i] = 0;
                for (int64_t k = 0; k < n; k++) product[i] += left[i / n * n + k] * right[k * n + i % n];
                if (step <= 29) product[i] /= 1024.0 * step;
            }
            for (int64_t i = 0; i < size; i++) *(step <= 29 ? &term[i] : &y[i]) = product[i];
            for (int64_t i = 0; i < size && step <= 29; i++) y[i] += term[i];
        }
    }
    free(term);
}

static void reference_slogdet(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t n = a->dim[a->rank - 1];
    for (int64_t at = 0; at < matrices_of(a); at++) {
        double det = matrix_reference_minors(a->data + at * n * n, n, n);
        r->result[0].data[at] = det > 0 ? 1 : det < 0 ? -1 : det;
        r->result[1].data[at] = log(fabs(det));
    }
}
#endif

/* ---- rows */

static const graph_op row_lu_panel = {
    MATRIX_ROW(lu_panel, GRAPH_CONTRACT, 2, 2, "a first"),
    .refused = "lu is made of it: differentiate that",
    .infer = infer_lu_panel,
    .compute = compute_lu_panel,
    .reference = GRAPH_REFERENCE(reference_lu_panel),
    .bound = GRAPH_REFERENCE(graph_bound_any_order),
    .tolerance = 1024,
    .samples =
        "lu_panel(T[3, 3], i32[] in 0..1)\nlu_panel(T[2, 5, 3], i32[] in 0..3)\nlu_panel(T[2, 4], i32[] in 0..2)\n"
        "lu_panel(T[1, 1], i32[] in 0..1)\nlu_panel(T[0, 3, 2], i32[] in 0..1)\nlu_panel(T[3, 0], i32[] in 0..1)\n"
        "lu_panel(T[0, 3], i32[] in 0..1)\nlu_panel(T[7, 2] in -1..2, i32[] in 0..3)",
    .doc =
        "Columns of matrices a [..., m, n] eliminated by rows from number first on (i32 of rank 0), column t by row first + t, which before "
        "changes places with the row of the largest element on or below it: the matrix with the factors below those pivots, and the "
        "numbers of the rows of a that stand in its rows, i32 [..., m]. Where all those elements are zero, nothing is done. What lu is made of, "
        "a step for each column. LAPACK getf2.",
};

static const graph_op row_triangular_solve = {
    MATRIX_ROW(triangular_solve, GRAPH_COMPOSITE, 2, 1, "a b"),
    .aliases = "solve_triangular",
    .attribute = {MATRIX_SOLVE_ATTRIBUTES},
    GRAPH_LINEAR(2, matrix_transpose_substitution),
    .jvp = matrix_tangent_substitution,
    .infer = matrix_infer_substitution,
    .expand = expand_triangular_solve,
    .reference = GRAPH_REFERENCE(matrix_reference_substitution),
    .bound = GRAPH_REFERENCE(graph_bound_any_order), /* with a symbol for n, by blocks already from 33 unknowns on */
    .tolerance = 1024,
    .samples =
        "triangular_solve(T[3, 3] in 1..3, T[3, 5])\ntriangular_solve(T[2, 4, 4] in 1..3, T[2, 4, 2], upper=true)\n"
        "triangular_solve(T[3, 3] in 1..3, T[3, 2], transpose=true)\n"
        "triangular_solve(T[2, 3, 3] in 1..3, T[2, 5, 3], left=false)\ntriangular_solve(T[0, 0], T[0, 3])",
    .doc =
        "x with op(a) x = b or x op(a) = b, a [..., n, n] triangular, by substitution; b [..., n, columns] or [..., rows, "
        "n]. A zero on the diagonal divides: infinities or NaN, no error. By blocks of 32 unknowns. StableHLO triangular_solve.",
};

static const graph_op row_lu = {
    MATRIX_ROW(lu, GRAPH_COMPOSITE, 1, 3, "a"),
    .jvp = matrix_tangent_lu,
    .infer = infer_lu,
    .expand = expand_lu,
    .reference = GRAPH_REFERENCE(reference_lu),
    .tolerance = 1024,
    .samples =
        "lu(T[3, 3])\nlu(T[2, 5, 3])\nlu(T[2, 4])\nlu(T[1, 1])\nlu(T[5, 1])\nlu(T[2, 5, 1])\nlu(T[0, 3, 2])\nlu(T[3, 0])\nlu(T[0, 3])",
    .doc =
        "l [..., m, k], lower triangular with ones on its diagonal, u [..., k, n], upper triangular, and the order of rows p, i32 [..., m], "
        "with a[p] = l u for each matrix of a [..., m, n], k the smaller of m and n. Gauss with partial pivoting: the largest element of "
        "what is left of the column, the first of equals, so no element of l is above 1. Of a singular matrix an element of u's diagonal "
        "is 0, and l is still finite. NaN and infinities spread over their matrix. By blocks of 32 columns. SciPy linalg.lu (p_indices, "
        "inverted: a = (l u)[argsort(p)]), PyTorch linalg.lu; LAPACK getrf.",
};

static const graph_op row_solve = {
    MATRIX_ROW(solve, GRAPH_COMPOSITE, 2, 1, "a b"),
    GRAPH_LINEAR(2, matrix_transpose_solve),
    .jvp = matrix_tangent_solve,
    .infer = infer_linear_solve,
    .expand = expand_linear_solve,
    .reference = GRAPH_REFERENCE(reference_linear_solve),
    .tolerance = 4096,
    .samples =
        "solve(T[3, 3], T[3, 2])\nsolve(T[2, 4, 4], T[2, 4, 1])\nsolve(T[1, 1] in 1..2, T[1, 5])\nsolve(T[0, 0], T[0, 3])\n"
        "solve(T[0, 2, 2], T[0, 2, 2])\nsolve(T[3, 3], T[3, 0])",
    .doc =
        "x [..., n, columns] with a x = b, for square matrices a [..., n, n] and b [..., n, columns] of the same leading dimensions: by lu and "
        "substitution. Where a is singular, x holds infinities or NaN, and no error is told; where it nearly is, x is as wrong as the "
        "condition of a makes it. NumPy linalg.solve, whose vectors b are columns here; PyTorch linalg.solve; LAPACK gesv.",
};

static const graph_op row_inverse = {
    MATRIX_ROW(inverse, GRAPH_COMPOSITE, 1, 1, "a"),
    .aliases = "inv",
    .jvp = matrix_tangent_inverse,
    .infer = infer_inverse,
    .expand = expand_inverse,
    .reference = GRAPH_REFERENCE(reference_inverse),
    .tolerance = 4096,
    .samples = "inverse(T[3, 3])\ninverse(T[2, 4, 4])\ninverse(T[1, 1] in 1..2)\ninverse(T[0, 0])\ninverse(T[0, 2, 2])",
    .doc =
        "Inverses of square matrices a [..., n, n]: solve(a, 1). To solve equations solve is faster and more exact. Of a singular "
        "matrix infinities or NaN, no error. NumPy linalg.inv, PyTorch linalg.inv.",
};

static const graph_op row_slogdet = {
    MATRIX_ROW(slogdet, GRAPH_COMPOSITE, 1, 2, "a"),
    .jvp = matrix_tangent_slogdet,
    .infer = infer_slogdet,
    .expand = expand_slogdet,
    .reference = GRAPH_REFERENCE(reference_slogdet),
    .tolerance = 1024,
    .samples =
        "slogdet(T[3, 3])\nslogdet(T[2, 4, 4])\nslogdet(T[1, 1] in 1..2)\nslogdet(T[2, 0, 0])\nslogdet(T[0, 2, 2])",
    .doc =
        "Sign (1, -1; 0 of a singular matrix) and logarithm of the magnitude (-inf then) of the determinants of a [..., n, n], both "
        "[...]: for determinants beyond the range of the type. By lu. NumPy linalg.slogdet.",
};

static const graph_op row_expm = {
    MATRIX_ROW(expm, GRAPH_COMPOSITE, 1, 1, "a"),
    .aliases = "matrix_exp",
    .jvp = matrix_tangent_expm,
    .vjp = matrix_cotangent_expm,
    .infer = infer_inverse,
    .expand = expand_expm,
    .reference = GRAPH_REFERENCE(reference_expm),
    .tolerance = 4096,
    .samples =
        "expm(T[3, 3])\nexpm(T[2, 4, 4] in -6..6)\nexpm(T[1, 1])\nexpm(T[0, 0])\nexpm(T[0, 2, 2])\nexpm(T[2, 2, 2] in -1..0.5)",
    .doc =
        "Exponentials of square matrices a [..., n, n]: 1 + a + a a / 2 + ... By scaling and squaring of an approximation of degree 13 (f32: 7). Errors "
        "are small beside the largest element of the result for matrices without much cancellation. SciPy linalg.expm, PyTorch "
        "matrix_exp; Higham 2005.",
};

static const graph_op row_qr = {
    MATRIX_ROW(qr, GRAPH_COMPOSITE, 1, 2, "a"),
    .jvp = matrix_tangent_qr,
    .infer = matrix_infer_qr,
    .expand = expand_qr,
    .reference = GRAPH_REFERENCE(matrix_reference_qr),
    .tolerance = 4096,
    .samples = "qr(T[3, 3])\nqr(T[2, 5, 3])\nqr(T[2, 4])\nqr(T[4, 1])\nqr(T[0, 3, 2])\nqr(T[3, 0])",
    .doc =
        "a = q r for each matrix of a [..., m, n]: q [..., m, k] with orthonormal columns, r [..., k, n] upper triangular, k the "
        "smaller of m and n. The diagonal of r is not negative, which determines both where the first k columns are "
        "independent. By reflections, 32 columns at a time; a column longer than the type's largest number / (4 sqrt(m)) may make its "
        "matrix's results NaN. NumPy linalg.qr (reduced), with that choice of signs.",
};

const graph_op *const graph_ops_factor[] = {
    &row_lu_panel, &row_triangular_solve, &row_lu, &row_solve, &row_inverse, &row_slogdet, &row_expm, &row_qr, NULL};
