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

/* ---- qr ---------------------------------------------------------------------------------------------------------- */

static void infer_qr(graph_infer *infer) {
    const graph_shape *a = &infer->operand[0];
    int rank = matrix_rank(infer, 0);
    tir_expr both = tir_min(infer->g->pool, a->dim[rank - 2], a->dim[rank - 1]);
    infer->result[0] = infer->result[1] = *a;
    infer->result[0].dim[rank - 1] = both;
    infer->result[1].dim[rank - 2] = both;
}

/* Reflections of [a | 1], which becomes [r | q^T] (Householder 1958): step t brings column t onto the t-th axis. */
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
    stage = open_step(f, TIR_REDUCE, 0, NULL, 1, &m); /* over its largest element, the column's squares are in range */
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
    stage =
        open_step(f, TIR_MAP, 0, NULL, 0, NULL); /* where the column goes: to the far side, so that nothing cancels */
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
        tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, y->rank, NULL, y->dim, 0, NULL, NULL);
        for (int d = 0; d < y->rank; d++) f.axis[d] = stage->axis[d].var;
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

/* The product of what stands on the diagonal after the reflections, each of which changes its sign. */
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

/* ---- eigh --------------------------------------------------------------------------------------------------------- */

enum { JACOBI_SWEEPS };

static void infer_jacobi(graph_infer *infer) {
    int64_t sweeps = infer->attribute[JACOBI_SWEEPS].integer;
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_same_shape(infer, 0, 2);
    infer_square(infer);
    if (sweeps < 1 || sweeps > 1000) graph_infer_fail(infer, "%lld sweeps, expected 1 to 1000", (long long)sweeps);
    infer->result[0] = infer->result[1] = infer->operand[0];
}

/* An element beside the diagonal is as good as zero where it is no more than this times the roots of its row's and its column's elements of
 * the diagonal: half of the distance of numbers at 1. */
static double negligible_part(dlc_dtype dtype) {
    return ldexp(1, -lib_float_of(dtype).digits);
}

/* With whom row i is rotated in round t: a round-robin tournament, in which all meet once in n - 1 rounds (n even; else one sits
 * out, who is his own partner). */
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

/* Cosine and sine of the rotation that makes a[i, partner] zero; both of a pair come to the same, with opposite sines. Where that element is
 * negligible they are 1 and 0, which change no bit: a matrix without others stays as it is, however many rounds follow. */
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

/* Columns j and its partner of row i mix. */
static tir_expr mixed(const matrix_fold *f, uint32_t tensor, const uint32_t rotation[2], tir_expr i, tir_expr j,
                      tir_expr p) {
    tir_pool *pool = f->pool;
    return tir_muladd(pool, load2(f, tensor, i, j), load1(f, rotation[0], j),
                      tir_mul(pool, load2(f, tensor, i, p), load1(f, rotation[1], j)));
}

/* Of one row: there is nobody to rotate it with. */
static void compute_single(graph_compute *c) {
    for (int result = 0; result < 2; result++) {
        const graph_shape *y = &c->result_shape[result];
        tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, y->rank, NULL, y->dim, 0, NULL, NULL);
        tir_expr index[DLC_MAX_RANK];
        for (int d = 0; d < y->rank; d++) index[d] = stage->axis[d].var;
        c->result[result] = tir_stage_value(c->region, stage, graph_operand_load(c, result, index), 0, 0);
    }
}

/* Jacobi 1846: the matrix is turned by rotations of all pairs of rows and columns again and again, of n/2 pairs at a time. */
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
        tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, y->rank, NULL, y->dim, 0, NULL, NULL);
        for (int d = 0; d < y->rank; d++) f.axis[d] = stage->axis[d].var;
        tir_expr value = load2(&f, f.state[result], f.axis[free], f.axis[free + 1]);
        c->result[result] = tir_stage_value(c->region, stage, value, 0, 0);
    }
}

static void infer_eigh(graph_infer *infer) {
    infer_square(infer);
    infer->result[0] = infer->result[1] = infer->operand[0];
    infer->result[0].rank--;
}

/* x, NaN where the matrix that it is of is not finite. finite: over its leading axes */
static graph_id of_finite(graph *g, graph_id x, graph_id finite) {
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t axes[DLC_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) axes[d] = d;
    finite = graph_broadcast(g, finite, shape.rank, shape.dim, axes);
    return graph_select(g, finite, x, graph_full_like(g, x, NAN));
}

/* Diagonals [..., n] of a [..., n, n] */
static graph_id diagonal_of(graph *g, graph_id a) {
    const graph_shape shape = *graph_shape_of(g, a);
    const int64_t column = shape.rank - 1;
    graph_id i = graph_iota(g, DLC_I32, shape.rank, shape.dim, shape.rank - 2),
             j = graph_iota(g, DLC_I32, shape.rank, shape.dim, shape.rank - 1);
    return graph_reduce_sum(g, graph_select(g, graph_eq(g, i, j), a, graph_full_like(g, a, 0)), 1, &column, false);
}

/* Is an element below the diagonal of any matrix more than negligible? NaN counts as none. */
static graph_id is_unfinished(graph *g, graph_id a) {
    const graph_shape shape = *graph_shape_of(g, a);
    const int rank = shape.rank;
    graph_id i = graph_iota(g, DLC_I32, rank, shape.dim, rank - 2),
             j = graph_iota(g, DLC_I32, rank, shape.dim, rank - 1);
    graph_id size = graph_sqrt(g, graph_abs(g, diagonal_of(g, a))),
             least = graph_scalar_like(g, a, negligible_part(shape.dtype));
    least = graph_mul(g, least, graph_broadcast_to(g, graph_expand_dims(g, size, rank - 1), rank, shape.dim));
    least = graph_mul(g, least, graph_broadcast_to(g, graph_expand_dims(g, size, rank - 2), rank, shape.dim));
    graph_id beyond = graph_and(g, graph_lt(g, j, i), graph_gt(g, graph_abs(g, a), least));
    return graph_reduce_or(g, beyond, 0, NULL, false);
}

/* What rotations leave of a (symmetric) and their product: sweeps until nothing beside the diagonal counts. Repeated eigenvalues and graded
 * matrices take 40 of them at n = 1,000; what never ends (there is rounding noise at the least numbers) does at the limit. */
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
    if (tir_is_const(g->pool, shape.dim[rank - 1], &extent) && extent <= 2) return; /* a rotation does it */
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

/* Ascending: what is number k comes to place k; the largest entry of each vector is made positive. */
static void expand_eigh(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int rank = shape.rank;
    int64_t order[DLC_MAX_RANK], row = rank - 2, column = rank - 1;
    for (int d = 0; d < rank; d++) order[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    graph_id i = graph_iota(g, DLC_I32, rank, shape.dim, rank - 2),
             j = graph_iota(g, DLC_I32, rank, shape.dim, rank - 1), turned[2];
    graph_id a = graph_select(g, graph_le(g, j, i), e->input[0], graph_transpose(g, e->input[0], order));
    add_sweeps(g, a, turned);
    graph_id d = diagonal_of(g, turned[0]), v = turned[1];
    graph_id down = graph_broadcast_to(g, graph_expand_dims(g, d, rank - 1), rank, shape.dim),
             across = graph_broadcast_to(g, graph_expand_dims(g, d, rank - 2), rank, shape.dim);
    /* place of number i: how many j come before it */
    graph_id tied = graph_and(g, graph_not(g, graph_is_before(g, down, across)), graph_lt(g, j, i));
    graph_id before = graph_cast(g, graph_or(g, graph_is_before(g, across, down), tied), DLC_I32);
    graph_id place = graph_reduce_sum(g, before, 1, &column, true);
    graph_id chosen = graph_eq(g, graph_broadcast_to(g, place, rank, shape.dim), j); /* [number, place] */
    graph_id zero = graph_full_like(g, down, 0);
    graph_id finite = graph_emit_with(g, "is_finite", 1, &a, 0, NULL);
    finite = graph_reduce_and(g, finite, 2, (int64_t[]){row, column}, false);
    graph_id w = graph_reduce_sum(g, graph_select(g, chosen, down, zero), 1, &row, false);
    e->result[0] = of_finite(g, w, finite);
    graph_shape cube = {.rank = rank + 1};
    for (int k = 0; k < rank; k++) cube.dim[k] = shape.dim[k];
    cube.dim[rank] = shape.dim[rank - 1]; /* [row, number, place] */
    graph_id all = graph_broadcast_to(g, graph_expand_dims(g, v, rank), cube.rank, cube.dim);
    graph_id which = graph_broadcast_to(g, graph_expand_dims(g, chosen, rank - 2), cube.rank, cube.dim);
    v = graph_reduce_sum(g, graph_select(g, which, all, graph_full_like(g, all, 0)), 1, &column, false);
    graph_id size = graph_abs(g, v), most = graph_reduce_max(g, size, 1, &row, true);
    most = graph_broadcast_to(g, most, rank, shape.dim);
    graph_id largest =
        graph_reduce_max(g, graph_select(g, graph_eq(g, size, most), v, graph_neg(g, most)), 1, &row, true);
    graph_id negative = graph_lt(g, largest, graph_full_like(g, largest, 0));
    v = graph_select(g, graph_broadcast_to(g, negative, rank, shape.dim), graph_neg(g, v), v);
    e->result[1] = of_finite(g, v, finite);
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
/* Gram and Schmidt, twice over: columns less what they have of those before. */
static void reference_qr(const graph_reference *r) {
    const graph_reference_tensor *a = &r->operand[0];
    int64_t m = a->dim[a->rank - 2], n = a->dim[a->rank - 1], most = m < n ? m : n;
    int64_t size = m * n, batch = size ? graph_reference_count(a) / size : 0;
    for (int64_t b = 0; b < batch; b++) {
        const double *x = a->data + b * m * n;
        double *q = r->result[0].data + b * m * most, *u = r->result[1].data + b * most * n;
        for (int64_t j = 0; j < n; j++) {
            double *column = malloc((size_t)m * sizeof *column), norm = 0;
            for (int64_t i = 0; column && i < m; i++) column[i] = x[i * n + j];
            for (int round = 0; column && round < 2; round++)
                for (int64_t k = 0; k < most && k < j; k++) {
                    double sum = 0;
                    for (int64_t i = 0; i < m; i++) sum += q[i * most + k] * column[i];
                    for (int64_t i = 0; i < m; i++) column[i] -= sum * q[i * most + k];
                    u[k * n + j] += sum;
                }
            for (int64_t i = 0; column && i < m; i++) norm += column[i] * column[i];
            if (j < most) u[j * n + j] = sqrt(norm);
            for (int64_t i = 0; column && i < m && j < most; i++) q[i * most + j] = column[i] / sqrt(norm);
            free(column);
        }
    }
}

enum { REFERENCE_SIZE = 16 };

/* Along the first row, minors by themselves. */
static double minors(const double *a, int64_t width, int64_t n) {
    double m[REFERENCE_SIZE * REFERENCE_SIZE], sum = n ? 0 : 1;
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 1; i < n; i++)
            for (int64_t k = 0; k < n - 1; k++) m[(i - 1) * (n - 1) + k] = a[i * width + k + (k >= j)];
        sum += (j % 2 ? -1 : 1) * a[j] * minors(m, n - 1, n - 1);
    }
    return sum;
}

static void reference_det(const graph_reference *r) {
    int64_t n = r->operand[0].dim[r->operand[0].rank - 1];
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = minors(r->operand[0].data + i * n * n, n, n);
}

/* Eigenvalues below x: negative pivots of a - x (Sylvester). */
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

/* y = (a - x)^-1 y, of length 1; eliminated with the largest pivots. */
static void iterate_inverse(const double *a, int64_t n, double x, double *y) {
    double m[REFERENCE_SIZE][REFERENCE_SIZE], norm = 0;
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
    for (int64_t i = 0; i < n; i++) norm = fmax(norm, fabs(y[i]));
    for (int64_t i = 0; i < n; i++) y[i] /= norm;
    norm = 0;
    for (int64_t i = 0; i < n; i++) norm += y[i] * y[i];
    for (int64_t i = 0; i < n; i++) y[i] /= sqrt(norm);
}

/* Samples of one row: there is nothing to rotate. */
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
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .samples =
        "cholesky(T[1, 1] in 1..9)\ncholesky(T[3, 2, 2])\ncholesky(T[2, 2, 3, 3], upper=true)\ncholesky(T[5, 0, 0])",
    .doc =
        "The lower triangular l with positive diagonal and a = l l^T, for each symmetric positive definite matrix of a [..., n, "
        "n], zeros above. Only the lower triangle of a is read. Where a pivot is not positive (a is not positive "
        "definite), it and what depends on it are NaN. For small matrices: a step for each column. StableHLO cholesky.",
};

static const graph_op row_triangular_solve = {
    .name = "triangular_solve",
    .aliases = "solve_triangular",
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
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
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

static const graph_op row_qr = {
    .name = "qr",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 2,
    .operands = "a",
    .dtypes = "f32 f64",
    .infer = infer_qr,
    .compute = compute_qr,
    .reference = GRAPH_REFERENCE(reference_qr),
    .tolerance = 4096,
    .bound = GRAPH_REFERENCE(graph_bound_any_order),
    .samples = "qr(T[3, 3])\nqr(T[2, 5, 3])\nqr(T[2, 4])\nqr(T[1, 1])\nqr(T[4, 1])\nqr(T[0, 3, 2])\nqr(T[3, 0])",
    .doc =
        "a = q r for each matrix of a [..., m, n]: q [..., m, k] with orthonormal columns, r [..., k, n] upper triangular, k the "
        "smaller of m and n. The diagonal of r is not negative, which determines both where the first k columns are "
        "independent. By reflections; a column longer than the type's largest number / (4 sqrt(m)) may make its matrix's results NaN. "
        "For small matrices: a step for each column. NumPy linalg.qr (reduced), with that choice of signs.",
};

static const graph_op row_det = {
    .name = "det",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "a",
    .dtypes = "f32 f64",
    .infer = infer_det,
    .compute = compute_det,
    .reference = GRAPH_REFERENCE(reference_det),
    .tolerance = 256,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .samples =
        "det(T[3, 3])\ndet(T[2, 5, 5])\ndet(T[2, 3, 2, 2])\ndet(T[1, 1])\ndet(T[4, 0, 0])\ndet(T[0, 3, 3])\ndet(T[7, 7])",
    .doc =
        "Determinants [...] of square matrices a [..., n, n]; 1 of a matrix of nothing. By reflections, as qr: errors are small "
        "beside the product of the lengths of a's columns, which must not be near the type's largest number. For small matrices: a step for each column. ONNX Det.",
};

static const graph_op row_jacobi = {
    .name = "jacobi",
    .class_ = GRAPH_CONTRACT,
    .min_inputs = 2,
    .max_inputs = 2,
    .results = 2,
    .operands = "a v",
    .dtypes = "f32 f64",
    .attribute = {{"sweeps", GRAPH_ATTR_INTEGER, NULL, "1", "how often each pair of rows is rotated"}},
    .infer = infer_jacobi,
    .compute = compute_jacobi,
    .reference = GRAPH_REFERENCE(reference_jacobi),
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_fused_steps),
    .samples = "jacobi(T[1, 1], T[1, 1])\njacobi(T[2, 1, 1], T[2, 1, 1], sweeps=2)\njacobi(T[0, 3, 3], T[0, 3, 3])",
    .doc =
        "Symmetric matrices a [..., n, n] turned by rotations, u^T a u, and v u: what eigh repeats until nothing beside the diagonal counts, "
        "where the first result's diagonal holds eigenvalues, and, if v began as the unit matrix, the columns of the second are "
        "eigenvectors. Rows are paired as in a round-robin tournament, n/2 pairs at a time, each rotated so that its element becomes zero, "
        "but for those whose element e of rows i and j is negligible: |e| <= sqrt(|a[i, i]|) sqrt(|a[j, j]|) / 2^24 in f32, / 2^53 in f64. "
        "Jacobi 1846; Brent & Luk 1985; Demmel & Veselic 1992.",
};

static const graph_op row_eigh = {
    .name = "eigh",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 2,
    .operands = "a",
    .dtypes = "f32 f64",
    .infer = infer_eigh,
    .expand = expand_eigh,
    .reference = GRAPH_REFERENCE(reference_eigh),
    .tolerance = 256,
    .samples = "eigh(T[3, 3])\neigh(T[1, 1])\neigh(T[2, 2, 2])\neigh(T[2, 5, 5])\neigh(T[0, 2, 2])",
    .doc =
        "Eigenvalues w [..., n], ascending, and orthonormal eigenvectors, columns of v [..., n, n], of symmetric matrices: a v = v "
        "diag(w). Only the lower triangle of a [..., n, n] is read. The entry of largest magnitude of each vector is "
        "positive (one of them, where several are as large). Vectors of equal eigenvalues are some basis. All results of a matrix whose "
        "triangle holds NaN or an infinity are NaN; so may be those of one with entries beyond the type's largest number / (8 n). "
        "By rotations (jacobi), in sweeps until each element beside the diagonal is negligible there: repeated eigenvalues and graded matrices "
        "are as right as others. For small matrices: a sweep takes 12 n^3 operations, ordinary matrices 6 to 12 sweeps, others up to 40. "
        "NumPy linalg.eigh, with that choice of signs.",
};

const graph_op *const graph_ops_matrix[] = {&row_triangular_solve, &row_cholesky, &row_qr, &row_det,
                                            &row_jacobi,           &row_eigh,     NULL};
