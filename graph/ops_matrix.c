/* Operators on small matrices, batched over leading axes: substitution, Cholesky, QR, determinants. Each is a fold whose state is
 * the matrix: step t eliminates column t. Algorithms by blocks of columns are in ops_factor.c. */
#include "graph/bound.h"
#include "graph/matrix.h"

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

/* ---- cholesky --------------------------------------------------------------------------------------------------- */

enum { CHOLESKY_UPPER };

static void infer_cholesky(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->operand[0];
}

/* Step t divides column t by the root of its pivot, then subtracts the outer product of that column with itself from the later columns. */
static void compute_cholesky(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *a = &c->operand_shape[0];
    bool upper = c->attribute[CHOLESKY_UPPER].integer;
    int free = a->rank - 2;
    tir_expr n = a->dim[free], both[2] = {n, n};
    matrix_fold f = open_fold(c, free, a->dim, n);
    add_state(&f, 2, both);
    tir_stage *stage = open_step(&f, TIR_MAP, 2, both, 0, NULL);
    tir_expr i = f.axis[free], j = f.axis[free + 1];
    tir_expr given = load2(&f, c->operand[0], upper ? j : i, upper ? i : j);
    uint32_t now = tir_stage_value(c->region, stage, first_or(&f, given, load2(&f, f.state[0], i, j)), 0, 0);
    stage = open_step(&f, TIR_MAP, 1, &n, 0, NULL);
    tir_expr pivot = load2(&f, now, f.t, f.t), zero = tir_float(pool, f.dtype, 0);
    pivot = tir_select(pool, tir_lt(pool, zero, pivot), pivot, tir_float(pool, f.dtype, NAN));
    pivot = tir_unary(pool, TIR_SQRT, pivot);
    i = f.axis[free];
    tir_expr below = tir_div(pool, load2(&f, now, i, f.t), pivot);
    uint32_t column = tir_stage_value(c->region, stage, tir_select(pool, tir_eq(pool, i, f.t), pivot, below), 0, 0);
    stage = open_step(&f, TIR_MAP, 2, both, 0, NULL);
    i = f.axis[free], j = f.axis[free + 1];
    tir_expr old = load2(&f, now, i, j), own = load1(&f, column, i);
    tir_expr less = tir_muladd(pool, tir_unary(pool, TIR_NEG, own), load1(&f, column, j), old);
    tir_expr next = tir_select(pool, tir_eq(pool, j, f.t), own, tir_select(pool, tir_lt(pool, f.t, j), less, old));
    next = tir_select(pool, tir_le(pool, j, i), next, old);
    uint32_t after = tir_stage_value(c->region, stage, next, 0, 0);
    close_fold(&f, &after);
    stage = graph_map_stage(c, a, f.axis);
    i = f.axis[upper ? free + 1 : free], j = f.axis[upper ? free : free + 1];
    c->result[0] = tir_stage_value(c->region, stage,
                                   tir_select(pool, tir_le(pool, j, i), load2(&f, f.state[0], i, j), zero), 0, 0);
}

/* ---- triangular solve -------------------------------------------------------------------------------------------- */

void matrix_infer_substitution(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0], *b = &infer->operand[1];
    graph_infer_same_dtype(infer, 0, 2);
    infer_square(infer);
    int rank = matrix_rank(infer, 1);
    graph_infer_rank(infer, 0, rank);
    for (int d = 0; d < rank - 2; d++) graph_infer_equal(infer, a->dim[d], b->dim[d], "leading dimensions");
    graph_infer_equal(infer, a->dim[rank - 1], b->dim[infer->attribute[SOLVE_LEFT].integer ? rank - 2 : rank - 1],
                      "rows of a and those of b (columns, where a stands right)");
    infer->result[0] = *b;
}

/* One definition for lower and upper, left and right, plain and transposed: the state is the unknowns k in the order of solution, for
 * each line (column, or row) of b. */
static void compute_solve(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *b = &c->operand_shape[1];
    bool left = c->attribute[SOLVE_LEFT].integer, transposed = c->attribute[SOLVE_TRANSPOSE].integer != !left;
    bool backwards = c->attribute[SOLVE_UPPER].integer != transposed;
    int rank = b->rank, free = rank - 1, batch = rank - 2;
    tir_expr n = b->dim[left ? batch : batch + 1], extent[DLC_MAX_RANK], last = tir_sub(pool, n, tir_index(pool, 1));
    memcpy(extent, b->dim, (size_t)batch * sizeof *extent);
    extent[batch] = b->dim[left ? batch + 1 : batch];
    matrix_fold f = open_fold(c, free, extent, n);
    add_state(&f, 1, &n);
    tir_stage *stage = open_step(&f, TIR_MAP, 1, &n, 0, NULL);
    tir_expr index[DLC_MAX_RANK], k = f.axis[free];
    memcpy(index, f.axis, (size_t)batch * sizeof *index);
#define PLACE(e) (backwards ? tir_sub(pool, last, e) : (e))
    index[left ? batch : batch + 1] = PLACE(k);
    index[left ? batch + 1 : batch] = f.axis[batch];
    tir_expr given = graph_operand_load(c, 1, index);
    uint32_t now = tir_stage_value(c->region, stage, first_or(&f, given, load1(&f, f.state[0], k)), 0, 0);
    stage = open_step(&f, TIR_MAP, 0, NULL, 0, NULL);
    memcpy(index, f.axis, (size_t)batch * sizeof *index);
    index[batch] = index[batch + 1] = PLACE(f.t);
    tir_expr found = load1(&f, now, f.t);
    if (!c->attribute[SOLVE_UNIT].integer) found = tir_div(pool, found, graph_operand_load(c, 0, index));
    uint32_t solved = tir_stage_value(c->region, stage, found, 0, 0);
    stage = open_step(&f, TIR_MAP, 1, &n, 0, NULL);
    k = f.axis[free];
    memcpy(index, f.axis, (size_t)batch * sizeof *index);
    index[transposed ? batch + 1 : batch] = PLACE(k);
    index[transposed ? batch : batch + 1] = PLACE(f.t);
#undef PLACE
    tir_expr old = load1(&f, now, k), x = load0(&f, solved);
    tir_expr less = tir_muladd(pool, tir_unary(pool, TIR_NEG, graph_operand_load(c, 0, index)), x, old);
    tir_expr next = tir_select(pool, tir_eq(pool, k, f.t), x, tir_select(pool, tir_lt(pool, f.t, k), less, old));
    uint32_t after = tir_stage_value(c->region, stage, next, 0, 0);
    close_fold(&f, &after);
    stage = graph_map_stage(c, b, index);
    memcpy(f.axis, index, (size_t)batch * sizeof *index);
    f.axis[batch] = index[left ? batch + 1 : batch];
    k = index[left ? batch : batch + 1];
    if (backwards) k = tir_sub(pool, last, k);
    c->result[0] = tir_stage_value(c->region, stage, load1(&f, f.state[0], k), 0, 0);
}

/* ---- qr ---------------------------------------------------------------------------------------------------------- */

void matrix_infer_qr(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    tir_expr both = tir_min(infer->g->pool, a->dim[rank - 2], a->dim[rank - 1]);
    infer->result[0] = infer->result[1] = *a;
    infer->result[0].dim[rank - 1] = both;
    infer->result[1].dim[rank - 2] = both;
}

/* Adds the steps of reflections of [a | 1], which becomes [r | q^T] (Householder 1958): step t maps column t to the t-th axis. Returns the
 * tensor of the next state. */
static uint32_t reflect_columns(matrix_fold *f, const tir_expr *extent) {
    graph_compute *c = f->c;
    tir_pool *pool = c->pool;
    int free = f->free;
    tir_expr m = extent[0], n = c->operand_shape[0].dim[free + 1], zero = tir_float(pool, f->dtype, 0),
             one = tir_float(pool, f->dtype, 1), index[DLC_MAX_RANK];
    tir_stage *stage = open_step(f, TIR_MAP, 2, extent, 0, NULL);
    tir_expr i = f->axis[free], j = f->axis[free + 1];
    memcpy(index, f->axis, (size_t)(free + 2) * sizeof *index);
    tir_expr unit = tir_select(pool, tir_eq(pool, j, tir_add(pool, n, i)), one, zero);
    tir_expr given = tir_region_load_guarded(c->region, c->operand[0], index, tir_lt(pool, j, n), unit);
    uint32_t now = tir_stage_value(c->region, stage, first_or(f, given, load2(f, f->state[0], i, j)), 0, 0);
    /* divided by its largest element, so that the column's squares are in range */
    stage = open_step(f, TIR_REDUCE, 0, NULL, 1, &m);
    tir_expr below = load2(f, now, f->axis[free], f->t);
    below = tir_max(pool, below, tir_unary(pool, TIR_NEG, below));
    below = tir_select(pool, tir_le(pool, f->t, f->axis[free]), below, zero);
    uint32_t most = tir_stage_reduce(c->region, stage, TIR_MAX, below);
    stage = open_step(f, TIR_MAP, 1, &m, 0, NULL);
    i = f->axis[free];
    tir_expr largest = load0(f, most), share = tir_div(pool, load2(f, now, i, f->t), largest);
    tir_expr nothing = tir_or(pool, tir_lt(pool, i, f->t), tir_eq(pool, largest, zero));
    uint32_t scaled = tir_stage_value(c->region, stage, tir_select(pool, nothing, zero, share), 0, 0);
    stage = open_step(f, TIR_REDUCE, 0, NULL, 1, &m);
    below = load1(f, scaled, f->axis[free]);
    uint32_t square = tir_stage_contract(c->region, stage, below, below);
    stage = open_step(f, TIR_MAP, 0, NULL, 0, NULL); /* the target of the column: the sign that avoids cancellation */
    tir_expr pivot = load1(f, scaled, f->t), norm = tir_unary(pool, TIR_SQRT, load0(f, square));
    tir_expr aim = tir_select(pool, tir_lt(pool, zero, pivot), tir_unary(pool, TIR_NEG, norm), norm);
    uint32_t target = tir_stage_value(c->region, stage, aim, 0, 0);
    stage = open_step(f, TIR_MAP, 0, NULL, 0, NULL);
    tir_expr length = tir_sub(pool, load0(f, square), tir_mul(pool, load1(f, scaled, f->t), load0(f, target)));
    tir_expr inverse = tir_select(pool, tir_eq(pool, length, zero), zero, tir_div(pool, one, length));
    uint32_t factor = tir_stage_value(c->region, stage, inverse, 0, 0);
    stage = open_step(f, TIR_MAP, 1, &m, 0, NULL);
    i = f->axis[free];
    tir_expr value = load1(f, scaled, i);
    value = tir_select(pool, tir_eq(pool, i, f->t), tir_sub(pool, value, load0(f, target)), value);
    uint32_t normal = tir_stage_value(c->region, stage, tir_select(pool, tir_lt(pool, i, f->t), zero, value), 0, 0);
    stage = open_step(f, TIR_REDUCE, 1, &extent[1], 1, &m);
    i = f->axis[free + 1];
    uint32_t along = tir_stage_contract(c->region, stage, load1(f, normal, i), load2(f, now, i, f->axis[free]));
    stage = open_step(f, TIR_MAP, 2, extent, 0, NULL);
    i = f->axis[free], j = f->axis[free + 1];
    value = tir_mul(pool, load1(f, along, j), load0(f, factor));
    value = tir_muladd(pool, tir_unary(pool, TIR_NEG, load1(f, normal, i)), value, load2(f, now, i, j));
    return tir_stage_value(c->region, stage, value, 0, 0);
}

static void compute_qr(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *a = &c->operand_shape[0];
    int free = a->rank - 2;
    tir_expr n = a->dim[free + 1], extent[2] = {a->dim[free], tir_add(pool, n, a->dim[free])};
    matrix_fold f = open_fold(c, free, a->dim, c->result_shape[0].dim[free + 1]);
    add_state(&f, 2, extent);
    uint32_t next = reflect_columns(&f, extent);
    close_fold(&f, &next);
    for (int result = 0; result < 2;
         result++) { /* rows of r with a negative diagonal, and their columns of q, change signs */
        const graph_shape *y = &c->result_shape[result];
        tir_stage *stage = graph_map_stage(c, y, f.axis);
        tir_expr i = f.axis[free], j = f.axis[free + 1], k = result ? i : j, zero = tir_float(pool, f.dtype, 0);
        tir_expr value = load2(&f, f.state[0], k, result ? j : tir_add(pool, n, i));
        tir_expr negative = tir_lt(pool, load2(&f, f.state[0], k, k), zero);
        value = tir_select(pool, negative, tir_unary(pool, TIR_NEG, value), value);
        if (result) value = tir_select(pool, tir_le(pool, i, j), value, zero);
        c->result[result] = tir_stage_value(c->region, stage, value, 0, 0);
    }
}

/* ---- det -------------------------------------------------------------------------------------------------------- */

static void infer_det(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->operand[0];
    infer->result[0].rank -= 2;
}

/* The product of the negated diagonal after the reflections, each of which changes the determinant's sign. */
static void compute_det(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *a = &c->operand_shape[0];
    int free = a->rank - 2;
    tir_expr n = a->dim[free], both[2] = {n, n};
    matrix_fold f = open_fold(c, free, a->dim, n);
    add_state(&f, 2, both);
    uint32_t next = reflect_columns(&f, both);
    close_fold(&f, &next);
    tir_stage *stage = tir_region_stage(c->region, TIR_REDUCE, c->name, free, NULL, a->dim, 1, NULL, &n);
    for (int d = 0; d < free; d++) f.axis[d] = stage->axis[d].var;
    tir_expr k = stage->axis[free].var, element = tir_unary(pool, TIR_NEG, load2(&f, f.state[0], k, k));
    c->result[0] = tir_stage_reduce(c->region, stage, TIR_MUL, element);
}

/* ---- references */

#ifdef DLC_REFERENCE
/* Row by row: element (i, j) less the dot product of the elements to the left of column j in rows i and j. */
static void reference_cholesky(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    bool upper = r->attribute[CHOLESKY_UPPER].integer;
    int64_t n = a->dim[a->rank - 1], count = graph_reference_count(a);
    for (int64_t b = 0; n > 0 && b < count; b += n * n) {
        const double *x = a->data + b;
        double *y = r->result[0].data + b;
#define AT(m, i, j) ((m)[upper ? (j)*n + (i) : (i)*n + (j)])
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = AT(x, i, j);
                for (int64_t k = 0; k < j; k++) sum -= AT(y, i, k) * AT(y, j, k);
                if (i == j)
                    AT(y, i, j) = sum > 0 ? sqrt(sum) : NAN;
                else
                    AT(y, i, j) = sum / AT(y, j, j);
            }
#undef AT
    }
}

/* Substitution, starting at the row with a single unknown. */
void matrix_reference_substitution(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0], *b = &r->operand[1];
    bool left = r->attribute[SOLVE_LEFT].integer, upper = r->attribute[SOLVE_UPPER].integer,
         transpose = r->attribute[SOLVE_TRANSPOSE].integer, unit = r->attribute[SOLVE_UNIT].integer;
    int64_t n = a->dim[a->rank - 1], rows = b->dim[b->rank - 2], columns = b->dim[b->rank - 1];
    bool swapped = transpose == left; /* the equations are about columns of a */
    bool down = upper == swapped;     /* the first equation has a single unknown */
    int64_t size = rows * columns, batch = size ? graph_reference_count(b) / size : 0;
    for (int64_t at = 0; at < batch; at++)
        for (int64_t line = 0; n > 0 && line < (left ? columns : rows); line++) {
            const double *m = a->data + at * n * n;
            double *y = r->result[0].data + at * size;
            const double *x = b->data + at * size;
            for (int64_t step = 0; step < n; step++) {
                int64_t i = down ? step : n - 1 - step;
                double sum = x[left ? i * columns + line : line * columns + i];
                for (int64_t k = down ? 0 : i + 1; k < (down ? i : n); k++)
                    sum -= (swapped ? m[k * n + i] : m[i * n + k]) * y[left ? k * columns + line : line * columns + k];
                y[left ? i * columns + line : line * columns + i] = unit ? sum : sum / m[i * n + i];
            }
        }
}
/* Subtracts from column [m] its part along the unit vector q, whose elements are `stride` apart; returns its factor. */
static double subtract_along(double *column, const double *q, int64_t stride, int64_t m) {
    double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += q[i * stride] * column[i];
    for (int64_t i = 0; i < m; i++) column[i] -= sum * q[i * stride];
    return sum;
}

/* Sets q [m, k] and u [k, n], before zero, to the factors of x [m, n], k = min(m, n): Gram-Schmidt orthogonalisation,
 * applied twice. */
static void orthogonalise(const double *x, double *q, double *u, int64_t m, int64_t n) {
    int64_t most = m < n ? m : n;
    for (int64_t j = 0; j < n; j++) {
        double *column = malloc((size_t)m * sizeof *column), norm = 0;
        for (int64_t i = 0; column && i < m; i++) column[i] = x[i * n + j];
        for (int round = 0; column && round < 2; round++)
            for (int64_t k = 0; k < most && k < j; k++) u[k * n + j] += subtract_along(column, q + k, most, m);
        for (int64_t i = 0; column && i < m; i++) norm += column[i] * column[i];
        if (j < most) u[j * n + j] = sqrt(norm);
        for (int64_t i = 0; column && i < m && j < most; i++) q[i * most + j] = column[i] / sqrt(norm);
        free(column);
    }
}

void matrix_reference_qr(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], most = m < n ? m : n;
    int64_t size = m * n, batch = size ? graph_reference_count(a) / size : 0;
    for (int64_t b = 0; b < batch; b++)
        orthogonalise(a->data + b * m * n, r->result[0].data + b * m * most, r->result[1].data + b * most * n, m, n);
}

double matrix_reference_minors(const double *a, int64_t width, int64_t n) {
    double m[64], sum = n ? 0 : 1;
    for (int64_t j = 0; j < n && n <= 8; j++) {
        for (int64_t i = 1; i < n; i++)
            for (int64_t k = 0; k < n - 1; k++) m[(i - 1) * (n - 1) + k] = a[i * width + k + (k >= j)];
        sum += (j % 2 ? -1 : 1) * a[j] * matrix_reference_minors(m, n - 1, n - 1);
    }
    return sum;
}

static void reference_det(const graph_reference *r) {
    int64_t n = r->operand[0].dim[r->operand[0].rank - 1];
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = matrix_reference_minors(r->operand[0].data + i * n * n, n, n);
}

#endif

/* ---- rows */

static const graph_op row_cholesky = {
    PRIMITIVE_ROW(cholesky, GRAPH_CONTRACT, 1, 1, 1, "a", "f32 f64"),
    .attribute = {{"upper", GRAPH_ATTR_BOOL, NULL, "false",
                   "reads the upper triangle of a, and gives u with a = u^T u"}},
    .jvp = matrix_tangent_cholesky,
    .infer = infer_cholesky,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .tolerance = 64,
    .samples =
        "cholesky(T[1, 1] in 1..9)\ncholesky(T[3, 2, 2])\ncholesky(T[2, 2, 3, 3], upper=true)\ncholesky(T[5, 0, 0])",
    .doc =
        "The lower triangular l with positive diagonal and a = l l^T, for each symmetric positive definite matrix of a [..., n, "
        "n], zeros above. Only the lower triangle of a is read. Where a pivot is not positive (a is not positive "
        "definite), it and what depends on it are NaN. For small matrices: a step for each column. StableHLO cholesky.",
};

static const graph_op row_substitute = {
    .name = "substitute",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 2,
    .max_inputs = 2,
    .results = 1,
    .operands = "a b",
    .dtypes = "f32 f64",
    .attribute = {MATRIX_SOLVE_ATTRIBUTES},
    GRAPH_LINEAR(2, matrix_transpose_substitution),
    .jvp = matrix_tangent_substitution,
    .infer = matrix_infer_substitution,
    .compute = compute_solve,
    .reference = GRAPH_REFERENCE(matrix_reference_substitution),
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .tolerance = 1024,
    .samples = "substitute(T[3, 3] in 1..3, T[3, 5])\nsubstitute(T[2, 4, 4] in 1..3, T[2, 4, 2], upper=true)\n"
               "substitute(T[3, 3] in 1..3, T[3, 2], transpose=true)\n"
               "substitute(T[3, 3] in 1..3, T[3, 2], upper=true, transpose=true, unit=true)\n"
               "substitute(T[2, 3, 3] in 1..3, T[2, 5, 3], left=false)\n"
               "substitute(T[3, 3] in 1..3, T[4, 3], left=false, upper=true)\n"
               "substitute(T[3, 3] in 1..3, T[4, 3], left=false, transpose=true)\n"
               "substitute(T[3, 3] in 1..3, T[4, 3], left=false, upper=true, transpose=true)\n"
               "substitute(T[1, 1], T[1, 17])\nsubstitute(T[0, 0], T[0, 3])\n"
               "substitute(T[2, 2, 2, 2] in 1..3, T[2, 2, 2, 20], unit=true)",
    .doc =
        "x with op(a) x = b or x op(a) = b, a [..., n, n] triangular, by substitution; b [..., n, columns] or [..., rows, "
        "n]. A zero on the diagonal divides: infinities or NaN, no error. For small matrices: a step for each "
        "unknown: what triangular_solve does with a block. StableHLO triangular_solve.",
};

static const graph_op row_qr_columns = {
    .name = "qr_columns",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 2,
    .operands = "a",
    .dtypes = "f32 f64",
    .jvp = matrix_tangent_qr,
    .infer = matrix_infer_qr,
    .compute = compute_qr,
    .reference = GRAPH_REFERENCE(matrix_reference_qr),
    .bound = GRAPH_REFERENCE(graph_bound_any_order),
    .tolerance = 4096,
    .samples =
        "qr_columns(T[3, 3])\nqr_columns(T[2, 5, 3])\nqr_columns(T[2, 4])\nqr_columns(T[1, 1])\nqr_columns(T[4, 1])\n"
        "qr_columns(T[0, 3, 2])\nqr_columns(T[3, 0])",
    .doc =
        "a = q r for each matrix of a [..., m, n]: q [..., m, k] with orthonormal columns, r [..., k, n] upper triangular, k the "
        "smaller of m and n. The diagonal of r is not negative, which determines both where the first k columns are "
        "independent. By reflections; a column longer than the type's largest number / (4 sqrt(m)) may make its matrix's results NaN. "
        "For small matrices: a step for each column. NumPy linalg.qr (reduced), with that choice of signs.",
};

static const graph_op row_det = {
    PRIMITIVE_ROW(det, GRAPH_CONTRACT, 1, 1, 1, "a", "f32 f64"),
    .jvp = matrix_tangent_det,
    .infer = infer_det,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .tolerance = 256,
    .samples =
        "det(T[3, 3])\ndet(T[2, 5, 5])\ndet(T[2, 3, 2, 2])\ndet(T[1, 1])\ndet(T[4, 0, 0])\ndet(T[0, 3, 3])\ndet(T[7, 7])",
    .doc =
        "Determinants [...] of square matrices a [..., n, n]; 1 of a matrix of nothing. By reflections, as qr: errors are small "
        "beside the product of the lengths of a's columns, which must not be near the type's largest number. For small matrices: a step for each column. ONNX Det.",
};

const graph_op *const graph_ops_matrix[] = {&row_substitute, &row_cholesky, &row_qr_columns, &row_det, NULL};
