/* Singular values and vectors, and operators based on them. A matrix is reduced to bidiagonal form by reflections, in blocks of columns
 * as in eigh. The symmetric tridiagonal matrix of twice the size, with zeros on the diagonal and the bidiagonal elements next to it, has
 * plus and minus the singular values as eigenvalues (Golub & Kahan 1965): divide and conquer finds them. Then a QR factorisation makes
 * vectors of small singular values orthogonal, too. */
#include "graph/matrix.h"

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

enum { PANEL = 32 };

/* ---- bidiagonal form ---------------------------------------------------------------------------------------------- */

typedef struct bidiagonal {
    /* [..., n] of the bidiagonal b: b[i, i], b[i, i + 1] (the last one is 0) */
    graph_id diagonal, beside;
    /* reflections [..., count, m] and [..., count, n], whose products l and r give a = l b r^T */
    graph_id left, right;
} bidiagonal;

/* The current block of reflections: after it a becomes a - v^T y - x^T u. v, x [..., PANEL, m]; y, u [..., PANEL, n]. */
typedef struct block {
    graph_id v, y, x, u;
} block;

static graph_id times(graph *g, graph_id row, graph_id first, graph_id second) {
    return graph_matmul(g, graph_matmul(g, row, matrix_transpose(g, first)), second);
}

/* Sets row t of *b: a reflection that makes column s of a zero after element s, then one that makes row s zero after element s + 1
 * (LAPACK's labrd). Vectors are rows [..., 1, m or n]. at: a transposed, so that both products read rows. */
static void next_reflections(graph *g, graph_id a, graph_id at, block *b, graph_id t, graph_id s) {
    tir_expr one = tir_index(g->pool, 1);
    graph_id column = slice_at(g, at, s, 2, one);
    graph_id taken = graph_matmul(g, matrix_transpose(g, slice_at(g, b->y, s, 1, one)), b->v);
    taken = graph_add(g, taken, graph_matmul(g, matrix_transpose(g, slice_at(g, b->u, s, 1, one)), b->x));
    column = graph_sub(g, column, taken);
    column = graph_select(g, graph_lt(g, s, graph_dimension(g, DLC_I32, matrix_dim(g, a, 1))), column,
                          graph_scalar_like(g, column, 0));
    graph_id v = matrix_reflector_of(g, column, s);
    graph_id y = graph_sub(g, graph_matmul(g, v, a), graph_add(g, times(g, v, b->v, b->y), times(g, v, b->x, b->u)));
    graph_id row = slice_at(g, a, s, 2, one);
    b->v = update_at(g, b->v, v, t, 2);
    b->y = update_at(g, b->y, y, t, 2);
    taken = graph_matmul(g, matrix_transpose(g, slice_at(g, b->v, s, 1, one)), b->y);
    taken = graph_add(g, taken, graph_matmul(g, matrix_transpose(g, slice_at(g, b->x, s, 1, one)), b->u));
    row = graph_sub(g, row, taken);
    row = graph_select(g, graph_lt(g, s, graph_dimension(g, DLC_I32, matrix_dim(g, a, 1))), row,
                       graph_scalar_like(g, row, 0));
    graph_id u = matrix_reflector_of(g, row, graph_add_number(g, s, 1));
    graph_id x = graph_sub(g, graph_matmul(g, u, at), graph_add(g, times(g, u, b->y, b->v), times(g, u, b->u, b->x)));
    b->x = update_at(g, b->x, x, t, 2);
    b->u = update_at(g, b->u, u, t, 2);
}

/* The bidiagonal form of a [..., m, n], where m >= n. */
static bidiagonal emit_bidiagonal(graph *g, graph_id a) {
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, a);
    tir_expr m = shape.dim[shape.rank - 2], n = shape.dim[shape.rank - 1], width = tir_index(pool, PANEL);
    tir_expr trips = tir_ceil_div(pool, n, width), whole = tir_mul(pool, trips, width);
    matrix_loop loop =
        open_loop(g, trips, 3, (graph_id[]){a, zeros_like_of(g, a, whole, m), zeros_like_of(g, a, whole, n)});
    graph *body = loop.body;
    graph_id start = graph_mul_number(body, loop.inner[0], PANEL), now = loop.inner[1], next[3], last[4];
    graph_id tall = zeros_like_of(body, now, width, m), wide = zeros_like_of(body, now, width, n);
    graph_id values[] = {tall, wide, tall, wide, now, matrix_transpose(body, now), start};
    matrix_loop columns = open_loop(body, width, 7, values);
    graph *inside = columns.body;
    const graph_id *in = columns.inner;
    block b = {in[1], in[2], in[3], in[4]};
    next_reflections(inside, in[5], in[6], &b, in[0], graph_add(inside, in[7], in[0]));
    close_loop(&columns, 4, (graph_id[]){b.v, b.y, b.x, b.u}, last);
    next[0] = graph_sub(body, now, graph_matmul(body, matrix_transpose(body, last[0]), last[1]));
    next[0] = graph_sub(body, next[0], graph_matmul(body, matrix_transpose(body, last[2]), last[3]));
    next[1] = update_at(body, loop.inner[2], last[0], start, 2);
    next[2] = update_at(body, loop.inner[3], last[3], start, 2);
    close_loop(&loop, 3, next, last);
    const int64_t row = shape.rank - 2;
    graph_id i = index_vector(g, m), j = index_vector(g, n), zero = graph_full_like(g, last[0], 0);
    graph_id on = graph_eq(g, as_column(g, i), as_row(g, j)),
             above = graph_eq(g, as_column(g, graph_add_number(g, i, 1)), as_row(g, j));
    bidiagonal y = {.left = last[1], .right = last[2]};
    y.diagonal = graph_reduce_sum(g, graph_select(g, on, last[0], zero), 1, &row, false);
    graph_id shifted =
        graph_reduce_sum(g, graph_select(g, above, last[0], zero), 1, &row, false); /* b[j - 1, j] at j */
    graph_id next_one =
        graph_min(g, graph_add_number(g, j, 1), graph_dimension(g, DLC_I32, tir_sub(pool, n, tir_index(pool, 1))));
    graph_id is_last = graph_eq(g, next_one, j);
    y.beside =
        graph_select(g, is_last, graph_scalar_like(g, shifted, 0), graph_gather(g, shifted, next_one, shape.rank - 2));
    return y;
}

/* ---- svd ---------------------------------------------------------------------------------------------------------- */

static void infer_svd(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    tir_expr least = tir_min(infer->g->pool, a->dim[rank - 2], a->dim[rank - 1]);
    for (int k = 0; k < 3; k++) infer->result[k] = *a;
    infer->result[0].dim[rank - 1] = least;
    infer->result[1].dim[rank - 2] = least, infer->result[1].rank--;
    infer->result[2].dim[rank - 2] = least;
}

/* a and b, both [..., n], as [..., 2 n]: a[0], b[0], a[1], ... */
static graph_id interleaved(graph *g, graph_id a, graph_id b) {
    graph_shape shape = *graph_shape_of(g, a);
    graph_id both = graph_concat(g, 2, (graph_id[]){as_column(g, a), as_column(g, b)}, shape.rank);
    shape.dim[shape.rank - 1] = tir_mul(g->pool, shape.dim[shape.rank - 1], tir_index(g->pool, 2));
    return graph_reshape(g, both, shape.rank, shape.dim);
}

/* Rows first, first + 2, ... of x [..., 2 n, columns]. */
static graph_id every_other_row(graph *g, graph_id x, int first) {
    const graph_shape *shape = graph_shape_of(g, x);
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    int64_t step[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) {
        const bool here = d == shape->rank - 2;
        start[d] = tir_index(g->pool, here ? first : 0);
        stop[d] = shape->dim[d];
        step[d] = here ? 2 : 1;
    }
    return graph_slice(g, x, start, stop, step);
}

/* Sets *values to the singular values [..., n] of b, and side[] to its vectors u and v (columns), from the n largest of the 2 n eigenvalues.
 * The vectors have length 1, except those of tiny values. */
static void emit_singular(graph *g, const bidiagonal *b, graph_id *values, graph_id side[2]) {
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, b->diagonal);
    const int rank = shape.rank;
    tir_expr n = shape.dim[rank - 1], zero = tir_index(pool, 0);
    /* places v[0], u[0], v[1], u[1], ...: b[i, i] couples v[i] and u[i], b[i, i + 1] couples u[i] and v[i + 1] */
    graph_id beside = interleaved(g, b->diagonal, b->beside), pair[2];
    matrix_tridiagonal_eigen(g, graph_full_like(g, beside, 0), beside, pair);
    const graph_setting falling = graph_set_bool("descending", true);
    graph_id ordered = graph_emit_with(g, "sort", 1, &pair[0], 1, &falling),
             which = graph_cast(g, ordered + 1, DLC_I32);
    *values = graph_slice_axis(g, ordered, rank - 1, zero, n);
    *values = graph_max(g, *values, graph_scalar_like(g, *values, 0));
    which = graph_slice_axis(g, which, rank - 1, zero, n);
    graph_shape all = *graph_shape_of(g, pair[1]);
    all.dim[rank] = n;
    graph_id vectors =
        graph_gather_elements(g, pair[1], graph_broadcast_to(g, as_row(g, which), rank + 1, all.dim), rank);
    const int64_t row = rank - 1;
    for (int s = 0; s < 2; s++) { /* u, then v */
        graph_id x = every_other_row(g, vectors, 1 - s);
        graph_id length = graph_sqrt(g, graph_reduce_sum(g, graph_mul(g, x, x), 1, &row, true));
        length = graph_max(g, length, graph_scalar_like(g, length, shape.dtype == DLC_F64 ? 0x1p-500 : 0x1p-60));
        graph_id qr[2];
        matrix_qr(g, graph_div(g, x, length), qr);
        side[s] = qr[0];
    }
}

static void emit_svd(graph *g, graph_id a, graph_id result[3]) {
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    tir_expr m = shape.dim[rank - 2], n = shape.dim[rank - 1];
    bidiagonal b = emit_bidiagonal(g, a);
    graph_id side[2];
    emit_singular(g, &b, &result[1], side);
    graph_id u = update_at(g, zeros_like_of(g, a, m, n), side[0], graph_scalar_i64(g, DLC_I32, 0), 2);
    result[0] = matrix_apply_all(g, b.left, u, PANEL);
    result[2] = matrix_apply_all(g, b.right, side[1], PANEL);
}

/* x [..., m, n] zero-padded to [..., rows, columns] */
static graph_id extended(graph *g, graph_id x, tir_expr rows, tir_expr columns) {
    graph_id start = graph_scalar_i64(g, DLC_I32, 0);
    x = update_at(g, zeros_like_of(g, x, matrix_dim(g, x, 2), columns), x, start, 1);
    return update_at(g, zeros_like_of(g, x, rows, columns), x, start, 2);
}
static graph_id first_of(graph *g, graph_id x, tir_expr rows, tir_expr columns) {
    const int rank = graph_shape_of(g, x)->rank;
    tir_expr zero = tir_index(g->pool, 0);
    return graph_slice_axis(g, graph_slice_axis(g, x, rank - 2, zero, rows), rank - 1, zero, columns);
}

/* The svd for symbolic sizes: only a run can tell whether the matrix is wide; so the transposition and the swap of results are selected. */
static void emit_unknown(graph *g, graph_id a, graph_id result[3]) {
    tir_pool *pool = g->pool;
    tir_expr m = matrix_dim(g, a, 2), n = matrix_dim(g, a, 1), least = tir_min(pool, m, n), one = tir_index(pool, 1);
    tir_expr most = tir_max(pool, tir_max(pool, m, n), one), columns = tir_max(pool, least, one);
    graph_id tall = graph_ge(g, graph_dimension(g, DLC_I64, m), graph_dimension(g, DLC_I64, n)), part[3];
    graph_id square = extended(g, a, most, most);
    square = graph_select(g, tall, square, matrix_transpose(g, square));
    emit_svd(g, first_of(g, square, most, columns), part);
    graph_id v = extended(g, part[2], most, columns);
    result[0] = first_of(g, graph_select(g, tall, part[0], v), m, least);
    result[1] = graph_slice_axis(g, part[1], graph_shape_of(g, part[1])->rank - 1, tir_index(pool, 0), least);
    result[2] = first_of(g, graph_select(g, tall, v, part[0]), n, least);
}

/* svd; wide matrices are transposed before. */
static void expand_svd(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    graph_id a = e->input[0];
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    tir_expr m = shape.dim[rank - 2], n = shape.dim[rank - 1], least = tir_min(pool, m, n);
    int64_t rows, columns, axes[2] = {rank - 2, rank - 1};
    const bool known = tir_is_const(pool, m, &rows) && tir_is_const(pool, n, &columns), wide = known && rows < columns;
    if (known && (rows < columns ? rows : columns) == 0) {
        e->result[0] = zeros_like_of(g, a, m, least);
        e->result[1] = graph_squeeze(g, zeros_like_of(g, a, tir_index(pool, 1), least), rank - 2);
        e->result[2] = zeros_like_of(g, a, least, n);
        return;
    }
    graph_id finite = graph_emit_with(g, "is_finite", 1, &a, 0, NULL), result[3];
    finite = graph_reduce_and(g, finite, 2, axes, true);
    a = graph_select(g, finite, a, graph_scalar_like(g, a, 0));
    graph_id scale = matrix_scale(g, a);
    a = graph_div(g, a, scale);
    if (known)
        emit_svd(g, wide ? matrix_transpose(g, a) : a, result);
    else
        emit_unknown(g, a, result);
    graph_id u = wide ? result[2] : result[0], v = wide ? result[0] : result[2],
             nan = graph_scalar_like(g, a, (double)NAN);
    /* the entry of largest magnitude of each u is positive */
    graph_id negative = as_row(g, matrix_negative_columns(g, u));
    e->result[0] = graph_select(g, finite, graph_select(g, negative, graph_neg(g, u), u), nan);
    graph_id s = graph_mul(g, result[1], graph_squeeze(g, scale, rank - 1));
    e->result[1] = graph_select(g, graph_squeeze(g, finite, rank - 1), s, nan);
    e->result[2] = graph_select(g, finite, matrix_transpose(g, graph_select(g, negative, graph_neg(g, v), v)), nan);
}

/* ---- pinv, lstsq -------------------------------------------------------------------------------------------------- */

enum { PINV_TOLERANCE };

static void infer_pinv(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    infer->result[0] = *a;
    infer->result[0].dim[rank - 2] = a->dim[rank - 1];
    infer->result[0].dim[rank - 1] = a->dim[rank - 2];
}

/* Sets *left to v diag(1 / s) and *right to u^T, with 0 instead of 1 / s for singular values that are negligible by the tolerance. */
static void emit_inverse_parts(graph *g, graph_id a, double tolerance, graph_id *left, graph_id *right) {
    graph_id u = graph_emit_with(g, "svd", 1, &a, 0, NULL), s = u + 1, zero = graph_scalar_like(g, a, 0);
    const graph_shape shape = *graph_shape_of(g, a);
    const int64_t last = shape.rank - 2;
    graph_id most = graph_reduce_max(g, s, 1, &last, true), least = graph_mul_number(g, most, tolerance);
    if (tolerance < 0) {
        tir_expr size = tir_max(g->pool, shape.dim[shape.rank - 2], shape.dim[shape.rank - 1]);
        least = graph_mul(g, graph_mul_number(g, most, shape.dtype == DLC_F64 ? 0x1p-52 : 0x1p-23),
                          graph_dimension(g, shape.dtype, size));
    }
    graph_id counts = graph_or(g, graph_gt(g, s, least), graph_ne(g, s, s)); /* NaN stays */
    graph_id inverse = graph_select(g, counts, graph_div(g, graph_scalar_like(g, a, 1), s), zero);
    *left = graph_mul(g, matrix_transpose(g, u + 2), as_row(g, inverse));
    *right = matrix_transpose(g, u);
}

static void expand_pinv(graph_expand *e) {
    graph_id left, right;
    emit_inverse_parts(e->g, e->input[0], e->attribute[PINV_TOLERANCE].number, &left, &right);
    e->result[0] = graph_matmul(e->g, left, right);
}

static void infer_lstsq(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0], *b = &infer->operand[1];
    graph_infer_same_dtype(infer, 0, 2);
    int rank = matrix_rank(infer, 0);
    graph_infer_rank(infer, 1, rank);
    for (int d = 0; d < rank - 2; d++) graph_infer_equal(infer, a->dim[d], b->dim[d], "leading dimensions");
    graph_infer_equal(infer, a->dim[rank - 2], b->dim[rank - 2], "rows of a and of b");
    infer->result[0] = *b;
    infer->result[0].dim[rank - 2] = a->dim[rank - 1];
}

static void expand_lstsq(graph_expand *e) {
    graph_id left, right;
    emit_inverse_parts(e->g, e->input[0], e->attribute[PINV_TOLERANCE].number, &left, &right);
    e->result[0] = graph_matmul(e->g, left, graph_matmul(e->g, right, e->input[1]));
}

/* ---- references */

#ifdef DLC_REFERENCE

/* Rotates pairs of columns of w [m, n], m >= n, until all are orthogonal (Hestenes): w = u diag(s) v^T becomes u diag(s); sets v [n, n]. */
static void turn_columns(double *w, double *v, int64_t m, int64_t n) {
    for (int64_t i = 0; i < n * n; i++) v[i] = i / n == i % n;
    for (int sweep = 0; sweep < 60; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double a = 0, b = 0, c = 0;
                for (int64_t i = 0; i < m; i++)
                    a += w[i * n + p] * w[i * n + p], b += w[i * n + q] * w[i * n + q],
                        c += w[i * n + p] * w[i * n + q];
                if (c == 0) continue;
                double ratio = (b - a) / (2 * c), t = (ratio < 0 ? -1 : 1) / (fabs(ratio) + sqrt(1 + ratio * ratio));
                double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
                for (int64_t i = 0; i < m + n; i++) {
                    double *row = i < m ? w + i * n : v + (i - m) * n, x = row[p], y = row[q];
                    row[p] = cosine * x - sine * y, row[q] = sine * x + cosine * y;
                }
            }
}

/* Sets w to a [m, n] or, if that has more columns than rows, to its transpose. */
static void copy_tall(const double *a, int64_t m, int64_t n, double *w) {
    int64_t k = m < n ? m : n, rows = m < n ? n : m;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++) w[i * k + j] = m < n ? a[j * n + i] : a[i * n + j];
}

/* The longest column of w [rows, k], the first of equals; *most: the square of its length. */
static int64_t longest_column(const double *w, int64_t rows, int64_t k, double *most) {
    int64_t best = 0;
    *most = -1;
    for (int64_t j = 0; j < k; j++) {
        double square = 0;
        for (int64_t i = 0; i < rows; i++) square += w[i * k + j] * w[i * k + j];
        if (square > *most) best = j, *most = square;
    }
    return best;
}

/* Negates a column u of a matrix [m, k] and the row vt [n] if the column's largest element is negative. */
static void choose_sign(double *u, int64_t m, int64_t k, double *vt, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < m; i++)
        if (fabs(u[i * k]) > fabs(largest)) largest = u[i * k];
    for (int64_t i = 0; i < m && largest < 0; i++) u[i * k] *= -1;
    for (int64_t i = 0; i < n && largest < 0; i++) vt[i] *= -1;
}

/* Sets u [m, k], s [k] and vt [k, n] for a [m, n] of full rank, k = min(m, n). */
static void decompose(const double *a, int64_t m, int64_t n, double *u, double *s, double *vt) {
    int64_t k = m < n ? m : n, rows = m < n ? n : m;
    double *w = malloc((size_t)(rows * k + k * k + 2) * sizeof *w), *v = w + rows * k;
    if (w) {
        copy_tall(a, m, n, w);
        turn_columns(w, v, rows, k);
    }
    for (int64_t place = 0; w && place < k; place++) {
        double most;
        int64_t best = longest_column(w, rows, k, &most);
        s[place] = sqrt(most);
        for (int64_t i = 0; i < rows; i++)
            (m < n ? vt + place * n + i : u + i * k + place)[0] = w[i * k + best] / s[place];
        for (int64_t i = 0; i < k; i++) (m < n ? u + i * k + place : vt + place * n + i)[0] = v[i * k + best];
        for (int64_t i = 0; i < rows; i++) w[i * k + best] = 0;
        choose_sign(u + place, m, k, vt + place * n, n);
        for (int64_t j = 0; j < k; j++)
            if (j == best)
                for (int64_t i = 0; i < rows; i++) w[i * k + j] = 0;
    }
    free(w);
}

static void reference_svd(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], k = m < n ? m : n, count = graph_reference_count(a);
    for (int64_t b = 0; m * n > 0 && b < count / (m * n); b++)
        decompose(a->data + b * m * n, m, n, r->result[0].data + b * m * k, r->result[1].data + b * k,
                  r->result[2].data + b * k * n);
}

/* Sets y [n, m] to the pseudo-inverse of a [m, n] of full rank. */
static void invert(const double *a, int64_t m, int64_t n, double *y) {
    int64_t k = m < n ? m : n;
    double *u = calloc((size_t)(m * k + k + k * n + 1), sizeof *u), *s = u + m * k, *vt = s + k;
    if (u) decompose(a, m, n, u, s, vt);
    for (int64_t i = 0; u && i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t t = 0; t < k; t++) sum += vt[t * n + i] / s[t] * u[j * k + t];
            y[i * m + j] = sum;
        }
    free(u);
}

static void reference_pinv(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], count = graph_reference_count(a);
    for (int64_t b = 0; m * n > 0 && b < count / (m * n); b++)
        invert(a->data + b * m * n, m, n, r->result[0].data + b * m * n);
}

static void reference_lstsq(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0], *x = &r->operand[1];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], k = x->dim[x->rank - 1], count = graph_reference_count(a);
    double *inverse = malloc((size_t)(m * n + 1) * sizeof *inverse);
    for (int64_t b = 0; inverse && m * n > 0 && b < count / (m * n); b++) {
        invert(a->data + b * m * n, m, n, inverse);
        for (int64_t i = 0; i < n * k; i++)
            for (int64_t t = 0; t < m; t++)
                r->result[0].data[b * n * k + i] += inverse[i / k * m + t] * x->data[(b * m + t) * k + i % k];
    }
    free(inverse);
}
#endif

/* ---- rows */

#define TOLERANCE_ATTRIBUTE                                                                                                              \
    {                                                                                                                                    \
        "tolerance", GRAPH_ATTR_FLOAT, NULL, "-1",                                                                                       \
            "singular values of up to this times the largest count as zero; below 0: the larger size times the distance of numbers at 1" \
    }

static const graph_op row_svd = {
    MATRIX_ROW(svd, GRAPH_COMPOSITE, 1, 3, "a"),
    .jvp = matrix_tangent_svd,
    .infer = infer_svd,
    .expand = expand_svd,
    .reference = GRAPH_REFERENCE(reference_svd),
    .tolerance = 2048,
    .samples =
        "svd(T[3, 3])\nsvd(T[2, 5, 3])\nsvd(T[2, 4])\nsvd(T[1, 1] in 1..2)\nsvd(T[4, 1])\nsvd(T[0, 3, 2])\nsvd(T[3, 0])",
    .doc =
        "a = u diag(s) vt for each matrix of a [..., m, n]: u [..., m, k] with orthonormal columns, s [..., k] descending and not negative, vt "
        "[..., k, n] with orthonormal rows, k the smaller of m and n. The entry of largest magnitude of each column of u is positive (one of "
        "them, where several are as large). Vectors of equal singular values, and of those that are zero, are some basis. Errors are small "
        "beside the largest singular value. All results of a matrix that holds NaN or an infinity are NaN. By reflections to bidiagonal form "
        "and divide and conquer on the tridiagonal matrix of twice the size (Golub & Kahan 1965; Gu & Eisenstat 1995). NumPy linalg.svd "
        "(full_matrices=False), with that choice of signs; where only s is an output, vectors are not brought back.",
};

static const graph_op row_pinv = {
    MATRIX_ROW(pinv, GRAPH_COMPOSITE, 1, 1, "a"),
    .aliases = "pseudo_inverse",
    .attribute = {TOLERANCE_ATTRIBUTE},
    .jvp = matrix_tangent_pinv,
    .infer = infer_pinv,
    .expand = expand_pinv,
    .reference = GRAPH_REFERENCE(reference_pinv),
    .tolerance = 65536,
    .samples =
        "pinv(T[3, 3])\npinv(T[2, 5, 3])\npinv(T[2, 4], tolerance=0.0001)\npinv(T[1, 1] in 1..2)\npinv(T[0, 3, 2])",
    .doc =
        "Moore-Penrose inverse [..., n, m] of matrices a [..., m, n], by svd. NumPy linalg.pinv, PyTorch linalg.pinv.",
};

static const graph_op row_lstsq = {
    MATRIX_ROW(lstsq, GRAPH_COMPOSITE, 2, 1, "a b"),
    .aliases = "least_squares",
    .attribute = {TOLERANCE_ATTRIBUTE},
    GRAPH_LINEAR(2, matrix_transpose_lstsq),
    .jvp = matrix_tangent_lstsq,
    .infer = infer_lstsq,
    .expand = expand_lstsq,
    .reference = GRAPH_REFERENCE(reference_lstsq),
    .tolerance = 65536,
    .samples =
        "lstsq(T[3, 3], T[3, 2])\nlstsq(T[2, 5, 3], T[2, 5, 1])\nlstsq(T[2, 4], T[2, 3])\nlstsq(T[1, 1] in 1..2, T[1, 5])",
    .doc =
        "x [..., n, columns] for which a x is nearest to b, for a [..., m, n], b [..., m, columns]; of several the shortest. By svd. NumPy "
        "linalg.lstsq (its first result).",
};

const graph_op *const graph_ops_svd[] = {&row_svd, &row_pinv, &row_lstsq, NULL};
