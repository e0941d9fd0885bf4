/* Shared by the matrix operators (graph/ops_matrix.c, ops_factor.c, ops_eigen.c, ops_svd.c). For compute definitions: folds whose
 * state is a matrix, of which each step eliminates a column. For expansions: loops over blocks of columns, and small helpers. */
#ifndef GRAPH_MATRIX_H
#define GRAPH_MATRIX_H

#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

/* ---- folds over a matrix */

typedef struct matrix_fold {
    graph_compute *c;
    tir_pool *pool;
    tir_dtype dtype;
    /* stage number of the fold */
    uint32_t fold;
    /* free axes (of a batch): a fold of its own runs at each of their points */
    int free;
    tir_expr free_extent[DLC_MAX_RANK];
    int states;
    uint32_t state[TIR_MAX_STATE];
    /* the step index, in the open step stage */
    tir_expr t;
    tir_expr axis[TIR_MAX_AXES];
} matrix_fold;

static inline matrix_fold open_fold(graph_compute *c, int free, const tir_expr *free_extent, tir_expr steps) {
    matrix_fold f = {.c = c, .pool = c->pool, .dtype = (tir_dtype)c->operand_shape[0].dtype, .free = free};
    memcpy(f.free_extent, free_extent, (size_t)free * sizeof *free_extent);
    tir_region_stage(c->region, TIR_FOLD, c->name, free, NULL, free_extent, 1, (const char *[]){"t"}, &steps);
    f.fold = c->region->stages.count - 1;
    return f;
}

/* Adds a state with `own` dimensions after the free ones; initially zero. */
static inline void add_state_of(matrix_fold *f, tir_dtype dtype, int own, const tir_expr *extent) {
    tir_region *region = f->c->region;
    tir_expr zero = lib_dtype_is_float((dlc_dtype)dtype) ? tir_float(f->pool, dtype, 0) : tir_int(f->pool, dtype, 0);
    uint32_t id = tir_stage_value(region, &region->stages.data[f->fold], zero, zero, 0);
    tir_tensor *tensor = &region->tensors.data[id];
    for (int i = 0; i < own; i++) tensor->extent[tensor->rank++] = extent[i];
    tensor->layout = tir_layout_identity(tensor->rank);
    f->state[f->states++] = id;
}
static inline void add_state(matrix_fold *f, int own, const tir_expr *extent) {
    add_state_of(f, f->dtype, own, extent);
}

/* A stage of the fold's step over the free axes, the step axis and `own` further axes, then `reduce` reduction axes. Sets f->t to
 * the variable of the step axis and f->axis to those of the other axes. */
static inline tir_stage *open_step(matrix_fold *f, tir_stage_kind kind, int own, const tir_expr *extent, int reduce,
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

/* An element of a state, an operand, or a stage of the current step, at the current point of the free axes and index[own]. */
static inline tir_expr load_own(const matrix_fold *f, uint32_t tensor, int own, const tir_expr *index) {
    const tir_region *region = f->c->region;
    int32_t producer = region->tensors.data[tensor].stage;
    bool step = producer >= 0 && region->stages.data[producer].fold == (int32_t)f->fold;
    tir_expr all[DLC_MAX_RANK];
    memcpy(all, f->axis, (size_t)f->free * sizeof *all);
    if (step) all[f->free] = f->t;
    for (int i = 0; i < own; i++) all[f->free + step + i] = index[i];
    return tir_region_load(f->c->region, tensor, all);
}

static inline tir_expr load2(const matrix_fold *f, uint32_t tensor, tir_expr i, tir_expr j) {
    return load_own(f, tensor, 2, (tir_expr[]){i, j});
}
static inline tir_expr load1(const matrix_fold *f, uint32_t tensor, tir_expr i) {
    return load_own(f, tensor, 1, &i);
}
static inline tir_expr load0(const matrix_fold *f, uint32_t tensor) {
    return load_own(f, tensor, 0, NULL);
}

/* Closes the fold: next[i] is the tensor of a step's stage that becomes state i in the next step. */
static inline void close_fold(matrix_fold *f, const uint32_t *next) {
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

/* `first` in step 0, `state` in later steps. */
static inline tir_expr first_or(const matrix_fold *f, tir_expr first, tir_expr state) {
    return tir_select(f->pool, tir_eq(f->pool, f->t, tir_index(f->pool, 0)), first, state);
}

static inline int matrix_rank(const graph_infer *infer, int operand) {
    int rank = infer->operand[operand].rank;
    if (rank < 2)
        graph_infer_fail(infer, "operand %d has rank %d, expected a matrix and any leading axes", operand, rank);
    if (rank == DLC_MAX_RANK) /* kernels have an axis of steps beside those of the operand */
        graph_infer_fail(infer, "operand %d has rank %d, expected %d at most for matrices", operand, rank,
                         DLC_MAX_RANK - 1);
    return rank;
}

static inline void infer_square(const graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    graph_infer_equal(infer, a->dim[rank - 2], a->dim[rank - 1], "rows and columns");
}

/* ---- loops: `while` with a counter */

enum { MATRIX_LOOP_MOST = 12 };

/* Value 0 is the counter, i32: 0, 1, ...; then come the carried values, then the loop-invariant ones. */
typedef struct matrix_loop {
    graph *g, *body;
    int64_t condition_number, body_number;
    int count;
    /* values in g */
    graph_id outer[MATRIX_LOOP_MOST];
    /* the same in the body */
    graph_id inner[MATRIX_LOOP_MOST];
} matrix_loop;

/* Opens a loop of `trips` iterations on values[count], which are loop.inner[1 + i] in the body. The caller emits the body into
 * loop.body, then calls close_loop. */
static inline matrix_loop open_loop(graph *g, tir_expr trips, int count, const graph_id *values) {
    matrix_loop loop = {.g = g, .count = count + 1};
    graph *condition = graph_new_subgraph(g, &loop.condition_number);
    loop.body = graph_new_subgraph(g, &loop.body_number);
    loop.outer[0] = graph_scalar_i64(g, DLC_I32, 0);
    for (int i = 0; i < count; i++) loop.outer[i + 1] = values[i];
    graph_id counter = 0;
    for (int i = 0; i <= count; i++) {
        const graph_shape shape = *graph_shape_of(g, loop.outer[i]);
        graph_id seen = graph_new_input(condition, NULL, &shape);
        if (i == 0) counter = seen;
        loop.inner[i] = graph_new_input(loop.body, NULL, &shape);
    }
    graph_new_output(condition, NULL, graph_lt(condition, counter, graph_dimension(condition, DLC_I32, trips)));
    return loop;
}

/* next[carried]: the carried values of the next iteration. result[carried] receives their values after the last one. */
static inline void close_loop(matrix_loop *loop, int carried, const graph_id *next, graph_id *result) {
    graph_new_output(loop->body, NULL, graph_add_number(loop->body, loop->inner[0], 1));
    for (int i = 0; i < carried; i++) graph_new_output(loop->body, NULL, next[i]);
    const graph_setting graphs[] = {graph_set_integer("condition", loop->condition_number),
                                    graph_set_integer("body", loop->body_number)};
    graph_id first = graph_emit_with(loop->g, "while", loop->count, loop->outer, 2, graphs);
    for (int i = 0; i < carried; i++) result[i] = first + 1 + (graph_id)i;
}

/* ---- values: matrices [..., m, n] and vectors [..., n] of a graph */

static inline tir_expr matrix_dim(const graph *g, graph_id x, int from_end) {
    const graph_shape *shape = graph_shape_of(g, x);
    return shape->dim[shape->rank - from_end];
}
/* x [..., n] as [..., n, 1] and as [..., 1, n] */
static inline graph_id as_column(graph *g, graph_id x) {
    return graph_expand_dims(g, x, graph_shape_of(g, x)->rank);
}
static inline graph_id as_row(graph *g, graph_id x) {
    return graph_expand_dims(g, x, graph_shape_of(g, x)->rank - 1);
}
static inline graph_id matrix_transpose(graph *g, graph_id x) {
    const int rank = graph_shape_of(g, x)->rank;
    int64_t order[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) order[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    return graph_transpose(g, x, order);
}
/* 0, 1, ... [n], i32 */
static inline graph_id index_vector(graph *g, tir_expr n) {
    return graph_iota(g, DLC_I32, 1, &n, 0);
}
/* The identity matrix [m, n] for each of the leading dimensions of x. */
static inline graph_id unit_like(graph *g, graph_id x, tir_expr m, tir_expr n) {
    graph_shape shape = *graph_shape_of(g, x);
    shape.dim[shape.rank - 2] = m;
    shape.dim[shape.rank - 1] = n;
    graph_id i = as_column(g, index_vector(g, m)), j = as_row(g, index_vector(g, n));
    return graph_broadcast_to(g, graph_cast(g, graph_eq(g, i, j), shape.dtype), shape.rank, shape.dim);
}
static inline graph_id zeros_like_of(graph *g, graph_id x, tir_expr m, tir_expr n) {
    graph_shape shape = *graph_shape_of(g, x);
    shape.dim[shape.rank - 2] = m;
    shape.dim[shape.rank - 1] = n;
    return graph_full(g, shape.dtype, shape.rank, shape.dim, 0);
}
/* slice_at: x[..., start : start + size] along axis rank - from_end; update_at: x with that slice replaced by `update`. start: i32
 * of rank 0. */
static inline graph_id slice_at(graph *g, graph_id x, graph_id start, int from_end, tir_expr size) {
    const int64_t axis = -from_end;
    return graph_emit_with(g, "dynamic_slice", 2, (graph_id[]){x, start}, 2,
                           (graph_setting[]){graph_set_dims("size", 1, &size), graph_set_list("axes", 1, &axis)});
}
static inline graph_id update_at(graph *g, graph_id x, graph_id update, graph_id start, int from_end) {
    const int64_t axis = -from_end;
    return graph_emit_with(g, "dynamic_update_slice", 3, (graph_id[]){x, update, start}, 1,
                           (graph_setting[]){graph_set_list("axes", 1, &axis)});
}

/* ---- reflections: h = 1 - v v^T with v^T v = 2, or v = 0 for the identity ------------------ */

/* Operand 1, i32 of rank 0, as an index from 0 to limit - 1. */
tir_expr matrix_offset(graph_compute *c, tir_expr limit);
/* v [..., 1, n] of the reflection that zeroes the elements of x [..., 1, n] after element `pivot` (i32 of rank 0) and leaves the
 * elements before it unchanged. */
graph_id matrix_reflector_of(graph *g, graph_id x, graph_id pivot);
/* a [..., m, n], padded with zeros to at least one row and one column: loop bodies are bound even if they never run. */
graph_id matrix_at_least_one(graph *g, graph_id a);
/* The product of the reflections v [..., width, m], in order (transposed: in reverse order), times x [..., m, n]. */
graph_id matrix_apply_reflectors(graph *g, graph_id v, graph_id x, bool transposed);
/* matrix_apply_reflectors, not transposed, for a multiple of `block` reflections, `block` of them at a time. */
graph_id matrix_apply_all(graph *g, graph_id v, graph_id x, int block);

/* ---- rows defined in terms of each other: substitute and triangular_solve, qr_columns and qr ------------------------ */

enum { SOLVE_LEFT, SOLVE_UPPER, SOLVE_TRANSPOSE, SOLVE_UNIT };
#define MATRIX_SOLVE_ATTRIBUTES                                                                             \
    {"left", GRAPH_ATTR_BOOL, NULL, "true", "a stands left: op(a) x = b; else x op(a) = b"},                \
        {"upper", GRAPH_ATTR_BOOL, NULL, "false", "a is upper triangular; the other triangle is not read"}, \
        {"transpose", GRAPH_ATTR_BOOL, NULL, "false", "op(a) is a transposed"}, {                           \
        "unit", GRAPH_ATTR_BOOL, NULL, "false", "the diagonal counts as ones and is not read"               \
    }
void matrix_infer_substitution(graph_infer *infer);
void matrix_infer_qr(graph_infer *infer);
#ifdef DLC_REFERENCE
void matrix_reference_substitution(const graph_reference *r);
void matrix_reference_qr(const graph_reference *r);
/* The determinant of a [n, n], n <= 8, in rows of `width` elements, by Laplace expansion along the first row, recursively. */
double matrix_reference_minors(const double *a, int64_t width, int64_t n);
#endif

#define MATRIX_ROW(name_, class__, inputs_, results_, operands_)                                          \
    .name = #name_, .class_ = class__, .min_inputs = inputs_, .max_inputs = inputs_, .results = results_, \
    .operands = operands_, .dtypes = "f32 f64"

/* ---- values (matrix.c, ops_factor.c, ops_eigen.c) --------------------------------------------------------------------- */

graph_id matrix_diagonal(graph *g, graph_id a);             /* [..., n] of a [..., n, n] */
graph_id matrix_triangle(graph *g, graph_id a, bool upper); /* a on and above, or below the diagonal; else zeros */

/* ---- rules of differentiation (matrix_gradient.c) ---------------------------------------------------------------------- */

void matrix_tangent_cholesky(graph_rule *rule);
void matrix_transpose_substitution(graph_rule *rule);
void matrix_tangent_substitution(graph_rule *rule);
void matrix_tangent_qr(graph_rule *rule);
void matrix_tangent_lu(graph_rule *rule);
void matrix_transpose_solve(graph_rule *rule);
void matrix_tangent_solve(graph_rule *rule);
void matrix_tangent_inverse(graph_rule *rule);
void matrix_tangent_det(graph_rule *rule);
void matrix_tangent_slogdet(graph_rule *rule);
void matrix_tangent_expm(graph_rule *rule);
void matrix_cotangent_expm(graph_rule *rule);
void matrix_tangent_eigh(graph_rule *rule);
void matrix_tangent_svd(graph_rule *rule);
void matrix_tangent_pinv(graph_rule *rule);
void matrix_transpose_lstsq(graph_rule *rule);
void matrix_tangent_lstsq(graph_rule *rule);
void matrix_qr(graph *g, graph_id a, graph_id result[2]); /* as the row */
/* Is the entry of largest magnitude of each column negative? [..., n] */
graph_id matrix_negative_columns(graph *g, graph_id v);
/* A power of two near the largest magnitude of each matrix, [..., 1, 1]; 1 for zeros. */
graph_id matrix_scale(graph *g, graph_id a);
/* Eigenvalues [..., n], in no order, and eigenvectors of tridiagonal matrices: diagonal and off-diagonal [..., n] (its last
 * element is 0). */
void matrix_tridiagonal_eigen(graph *g, graph_id diagonal, graph_id beside, graph_id result[2]);

#endif
