/* Operators on small matrices, batched over leading axes: triangular solve, Cholesky, QR, symmetric eigenproblem. Each is a fold
 * whose state is the matrix: step t eliminates column t, or does one round of rotations. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

/* ---- folds over a matrix */

typedef struct matrix_fold {
    graph_compute *c;
    tir_pool *pool;
    tir_dtype dtype;
    uint32_t fold; /* stage */
    int free;      /* axes that steps do not mix */
    tir_expr free_extent[DLC_MAX_RANK];
    int states;
    uint32_t state[TIR_MAX_STATE];
    tir_expr t; /* in the step stage that is open */
    tir_expr axis[TIR_MAX_AXES];
} matrix_fold;

static matrix_fold open_fold(graph_compute *c, int free, const tir_expr *free_extent, tir_expr steps) {
    matrix_fold f = {.c = c, .pool = c->pool, .dtype = (tir_dtype)c->operand_shape[0].dtype, .free = free};
    memcpy(f.free_extent, free_extent, (size_t)free * sizeof *free_extent);
    tir_region_stage(c->region, TIR_FOLD, c->name, free, NULL, free_extent, 1, (const char *[]){"t"}, &steps);
    f.fold = c->region->stages.count - 1;
    return f;
}

/* A state with dimensions of its own behind the free ones; zeros at first. */
static void add_state(matrix_fold *f, int own, const tir_expr *extent) {
    tir_region *region = f->c->region;
    tir_expr zero = tir_float(f->pool, f->dtype, 0);
    uint32_t id = tir_stage_value(region, &region->stages.data[f->fold], zero, zero, 0);
    tir_tensor *tensor = &region->tensors.data[id];
    for (int i = 0; i < own; i++) tensor->extent[tensor->rank++] = extent[i];
    tensor->layout = tir_layout_identity(tensor->rank);
    f->state[f->states++] = id;
}

/* A stage of each step, over the free axes, the step f->t, and `own` further axes: f->axis without the step. */
static tir_stage *open_step(matrix_fold *f, tir_stage_kind kind, int own, const tir_expr *extent, int reduce,
                            const tir_expr *reduce_extent) {
    tir_region *region = f->c->region;
    const tir_stage *fold = &region->stages.data[f->fold];
    tir_expr all[TIR_MAX_AXES];
    memcpy(all, f->free_extent, (size_t)f->free * sizeof *all);
    all[f->free] = fold->axis[f->free].extent;
    for (int i = 0; i < own; i++) all[f->free + 1 + i] = extent[i];
    tir_stage *stage =
        tir_region_stage(region, kind, f->c->name, f->free + 1 + own, NULL, all, reduce, NULL, reduce_extent);
    stage->fold = (int32_t)f->fold;
    f->t = stage->axis[f->free].var;
    for (int a = 0; a < f->free + own + reduce; a++) f->axis[a] = stage->axis[a < f->free ? a : a + 1].var;
    return stage;
}

/* Element of a tensor with the free axes and own indices: of a state, an operand, or in this step of one of its stages. */
static tir_expr load_own(const matrix_fold *f, uint32_t tensor, int own, const tir_expr *index) {
    const tir_region *region = f->c->region;
    int32_t producer = region->tensors.data[tensor].stage;
    bool step = producer >= 0 && region->stages.data[producer].fold == (int32_t)f->fold;
    tir_expr all[DLC_MAX_RANK];
    memcpy(all, f->axis, (size_t)f->free * sizeof *all);
    if (step) all[f->free] = f->t;
    for (int i = 0; i < own; i++) all[f->free + step + i] = index[i];
    return tir_region_load(f->c->region, tensor, all);
}

static tir_expr load2(const matrix_fold *f, uint32_t tensor, tir_expr i, tir_expr j) {
    return load_own(f, tensor, 2, (tir_expr[]){i, j});
}
static tir_expr load1(const matrix_fold *f, uint32_t tensor, tir_expr i) {
    return load_own(f, tensor, 1, &i);
}
static tir_expr load0(const matrix_fold *f, uint32_t tensor) {
    return load_own(f, tensor, 0, NULL);
}

/* The state after each step is that of a step's tensor. */
static void close_fold(matrix_fold *f, const uint32_t *next) {
    tir_region *region = f->c->region;
    tir_stage *fold = &region->stages.data[f->fold];
    for (int s = 0; s < f->states; s++) {
        tir_expr index[DLC_MAX_RANK];
        int rank = region->tensors.data[next[s]].rank;
        for (int i = 0; i < rank; i++) index[i] = i <= f->free ? fold->axis[i].var : tir_index(f->pool, 0);
        tir_expr value = tir_region_load(region, next[s], index);
        region->stages.data[f->fold].value[s] = value;
    }
}

/* What a step starts from: an operand at first, then the state. */
static tir_expr first_or(const matrix_fold *f, tir_expr first, tir_expr state) {
    return tir_select(f->pool, tir_eq(f->pool, f->t, tir_index(f->pool, 0)), first, state);
}

static int matrix_rank(const graph_infer *infer, int operand) {
    int rank = infer->operand[operand].rank;
    if (rank < 2)
        graph_infer_fail(infer, "operand %d has rank %d, expected a matrix and any leading axes", operand, rank);
    return rank;
}

static void infer_square(const graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    graph_infer_equal(infer, a->dim[rank - 2], a->dim[rank - 1], "rows and columns");
}

/* ---- cholesky --------------------------------------------------------------------------------------------------- */

enum { CHOLESKY_UPPER };

static void infer_cholesky(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->operand[0];
}

/* Step t: column t over the root of its pivot, then its product off the columns behind it. */
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
    stage = tir_region_stage(c->region, TIR_MAP, c->name, a->rank, NULL, a->dim, 0, NULL, NULL);
    for (int d = 0; d < a->rank; d++) f.axis[d] = stage->axis[d].var;
    i = f.axis[upper ? free + 1 : free], j = f.axis[upper ? free : free + 1];
    c->result[0] = tir_stage_value(c->region, stage,
                                   tir_select(pool, tir_le(pool, j, i), load2(&f, f.state[0], i, j), zero), 0, 0);
}

/* ---- triangular solve -------------------------------------------------------------------------------------------- */

enum { SOLVE_LEFT, SOLVE_UPPER, SOLVE_TRANSPOSE, SOLVE_UNIT };

static void infer_solve(graph_infer *infer) {
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

/* Lower and upper, left and right, plain and transposed are one: unknown k of the order in which they are found, line l of b. */
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
    stage = tir_region_stage(c->region, TIR_MAP, c->name, rank, NULL, b->dim, 0, NULL, NULL);
    for (int d = 0; d < rank; d++) index[d] = stage->axis[d].var;
    memcpy(f.axis, index, (size_t)batch * sizeof *index);
    f.axis[batch] = index[left ? batch + 1 : batch];
    k = index[left ? batch : batch + 1];
    if (backwards) k = tir_sub(pool, last, k);
    c->result[0] = tir_stage_value(c->region, stage, load1(&f, f.state[0], k), 0, 0);
}

/* ---- references */

#ifdef DLC_REFERENCE
/* Row by row: each element less the product of what stands left of it in both rows. */
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

/* Unknown by unknown, from the side where the row has one only. */
static void reference_solve(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0], *b = &r->operand[1];
    bool left = r->attribute[SOLVE_LEFT].integer, upper = r->attribute[SOLVE_UPPER].integer,
         transpose = r->attribute[SOLVE_TRANSPOSE].integer, unit = r->attribute[SOLVE_UNIT].integer;
    int64_t n = a->dim[a->rank - 1], rows = b->dim[b->rank - 2], columns = b->dim[b->rank - 1];
    bool swapped = transpose == left; /* the equations are about columns of a */
    bool down = upper == swapped;     /* the first unknown stands alone */
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
#endif

/* ---- rows */

static const graph_op row_cholesky = {
    .name = "cholesky",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "a",
    .dtypes = "f32 f64",
    .attribute = {{"upper", GRAPH_ATTR_BOOL, NULL, "false",
                   "reads the upper triangle of a, and gives u with a = u^T u"}},
    .infer = infer_cholesky,
    .compute = compute_cholesky,
    .reference = GRAPH_REFERENCE(reference_cholesky),
    .tolerance = 64,
    .samples =
        "cholesky(T[1, 1] in 1..9)\ncholesky(T[3, 2, 2])\ncholesky(T[2, 2, 3, 3], upper=true)\ncholesky(T[5, 0, 0])",
    .doc =
        "The lower triangular l with positive diagonal and a = l l^T, for each symmetric positive definite matrix of a [..., n, "
        "n], zeros above. Only the lower triangle of a is read. Where a pivot is not positive (a is not positive "
        "definite), it and what depends on it are NaN. For small matrices: a step for each column. StableHLO cholesky.",
};

static const graph_op row_triangular_solve = {
    .name = "triangular_solve",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 2,
    .max_inputs = 2,
    .results = 1,
    .operands = "a b",
    .dtypes = "f32 f64",
    .attribute = {{"left", GRAPH_ATTR_BOOL, NULL, "true", "a stands left: op(a) x = b; else x op(a) = b"},
                  {"upper", GRAPH_ATTR_BOOL, NULL, "false", "a is upper triangular; the other triangle is not read"},
                  {"transpose", GRAPH_ATTR_BOOL, NULL, "false", "op(a) is a transposed"},
                  {"unit", GRAPH_ATTR_BOOL, NULL, "false", "the diagonal counts as ones and is not read"}},
    .infer = infer_solve,
    .compute = compute_solve,
    .reference = GRAPH_REFERENCE(reference_solve),
    .tolerance = 1024,
    .samples =
        "triangular_solve(T[3, 3] in 1..3, T[3, 5])\ntriangular_solve(T[2, 4, 4] in 1..3, T[2, 4, 2], upper=true)\n"
        "triangular_solve(T[3, 3] in 1..3, T[3, 2], transpose=true)\n"
        "triangular_solve(T[3, 3] in 1..3, T[3, 2], upper=true, transpose=true, unit=true)\n"
        "triangular_solve(T[2, 3, 3] in 1..3, T[2, 5, 3], left=false)\n"
        "triangular_solve(T[3, 3] in 1..3, T[4, 3], left=false, upper=true)\n"
        "triangular_solve(T[3, 3] in 1..3, T[4, 3], left=false, transpose=true)\n"
        "triangular_solve(T[3, 3] in 1..3, T[4, 3], left=false, upper=true, transpose=true)\n"
        "triangular_solve(T[1, 1], T[1, 17])\ntriangular_solve(T[0, 0], T[0, 3])\n"
        "triangular_solve(T[2, 2, 2, 2] in 1..3, T[2, 2, 2, 20], unit=true)",
    .doc =
        "x with op(a) x = b or x op(a) = b, a [..., n, n] triangular, by substitution; b [..., n, columns] or [..., rows, "
        "n]. A zero on the diagonal divides: infinities or NaN, no error. For small matrices: a step for each "
        "unknown. StableHLO triangular_solve.",
};

const graph_op *const graph_ops_matrix[] = {&row_triangular_solve, &row_cholesky, NULL};
