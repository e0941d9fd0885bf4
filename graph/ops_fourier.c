/* Discrete Fourier transforms. dft expands to a contraction with the transform's matrix if that is small or the length is a symbol;
 * for lengths without large prime factors to fft, which has passes of mixed radix; else to a convolution, by transforms of a power of
 * two (Bluestein). Complex numbers are pairs, real part first, along the last axis. */
#include "graph/build.h"
#include "graph/codelet.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#include <stdlib.h>
#endif

enum { PASSES_MAX = 8 };

/* ---- fft -------------------------------------------------------------------------------------------------------- */

enum { FFT_RADICES, FFT_INVERSE };

typedef struct passes {
    int count, sign;
    int64_t points;
    /* by pass: its radix, and the number of points that the passes after it transform */
    int64_t radix[PASSES_MAX], rest[PASSES_MAX];
    /* by pass: index of its first twiddle factor */
    int64_t twiddle[PASSES_MAX + 1];
} passes;

static passes passes_of(int count, const int64_t *radix, bool inverse) {
    passes p = {.count = count, .sign = inverse ? 1 : -1, .points = 1};
    for (int i = count - 1; i >= 0; i--) {
        p.radix[i] = radix[i];
        p.rest[i] = p.points;
        p.points *= radix[i];
    }
    for (int i = 0; i < count; i++) p.twiddle[i + 1] = p.twiddle[i] + (i + 1 < count ? p.radix[i] * p.rest[i] : 0);
    return p;
}

static void infer_fft(graph_infer *infer) {
    const graph_attribute *radices = &infer->attribute[FFT_RADICES];
    const graph_shape *x = &infer->operand[0];
    tir_pool *pool = infer->g->pool;
    int64_t parts = 0;
    graph_infer_rank(infer, 0, 3);
    graph_infer_rank(infer, 1, 2);
    if (radices->count < 1 || radices->count > PASSES_MAX)
        graph_infer_fail(infer, "%d radices, expected 1 to %d", radices->count, PASSES_MAX);
    for (int i = 0; i < radices->count; i++)
        if (radices->list[i] < 2 || radices->list[i] > GRAPH_CODELET_MAX)
            graph_infer_fail(infer, "radix %lld, expected 2 to %d", (long long)radices->list[i], GRAPH_CODELET_MAX);
    if (!tir_is_const(pool, x->dim[2], &parts) || parts < 1 || parts > 2)
        graph_infer_fail(infer, "the last dimension of x holds the parts of a number: expected 1 or 2");
    passes p = passes_of(radices->count, radices->list, false);
    graph_infer_equal(infer, x->dim[1], tir_index(pool, p.points), "points and the product of the radices");
    graph_infer_equal(infer, infer->operand[1].dim[0], tir_index(pool, 2), "parts of a factor and 2");
    graph_infer_equal(infer, infer->operand[1].dim[1], tir_index(pool, p.twiddle[p.count]), "factors and those needed");
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = x->dtype, .rank = p.count + 2, .dim = {x->dim[0]}};
    for (int i = 0; i < p.count; i++) y->dim[1 + i] = tir_index(pool, p.radix[p.count - 1 - i]);
    y->dim[p.count + 1] = tir_index(pool, 2);
}

/* Loads the points x[] that pass i transforms at a point of its stage with these axes. */
static void read_points(const graph_compute *c, const passes *p, int i, uint32_t from, const tir_expr *axis,
                        graph_complex *x) {
    tir_pool *pool = c->pool;
    bool last = i + 1 == p->count;
    const tir_expr *earlier = axis + (last ? 2 : 4);
    tir_expr index[PASSES_MAX + 3];
    int64_t parts = 2;
    if (i == 0) tir_is_const(pool, c->operand_shape[0].dim[2], &parts);
    for (int r = 0; r < p->radix[i]; r++) {
        tir_expr place = tir_index(pool, r * p->rest[i]), part[2] = {0};
        if (!last) place = tir_add(pool, place, axis[2]);
        for (int q = 0; q < parts; q++) {
            index[0] = axis[0];
            index[i == 0 ? 2 : 1] = tir_index(pool, q);
            index[i == 0 ? 1 : 2] = place;
            for (int d = 0; d < i; d++) index[3 + d] = earlier[d];
            part[q] = tir_region_load(c->region, from, index);
        }
        x[r] = (graph_complex){part[0], part[1]};
    }
}

/* Pass i reads [batch, part, r*rest + p, earlier k ...] (the first one x), and makes [batch, part, p, k, earlier k ...]: sum over
 * r of element r, rotated by r k/radix of a turn, times the factor of k and p. The last one has parts innermost and no p. */
static uint32_t add_pass(graph_compute *c, const passes *p, int i, uint32_t from) {
    static const char *const digits[PASSES_MAX] = {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"};
    tir_pool *pool = c->pool;
    bool last = i + 1 == p->count;
    const char *names[PASSES_MAX + 3] = {"b", "c", "p"};
    tir_expr extent[PASSES_MAX + 3] = {c->operand_shape[0].dim[0], tir_index(pool, 2), tir_index(pool, p->rest[i])};
    int at = last ? 1 : 3, k_at = at, part_at = 1;
    for (int d = i; d >= 0; d--) {
        names[at] = digits[d];
        extent[at++] = tir_index(pool, p->radix[d]);
    }
    if (last) {
        names[part_at = at] = "c";
        extent[at++] = tir_index(pool, 2);
    }
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, at, names, extent, 0, NULL, NULL);
    tir_expr axis[PASSES_MAX + 3], index[PASSES_MAX + 3];
    for (int a = 0; a < at; a++) axis[a] = stage->axis[a].var;
    graph_complex x[GRAPH_CODELET_MAX], y[GRAPH_CODELET_MAX];
    read_points(c, p, i, from, axis, x);
    tir_dtype dtype = (tir_dtype)c->operand_shape[0].dtype;
    graph_codelet(pool, dtype, (int)p->radix[i], p->sign, x, y);
    tir_expr re[GRAPH_CODELET_MAX], im[GRAPH_CODELET_MAX], k = axis[k_at];
    for (int r = 0; r < p->radix[i]; r++) {
        re[r] = y[r].re;
        im[r] = y[r].im ? y[r].im : tir_float(pool, dtype, 0);
    }
    tir_expr value[2] = {tir_pick(pool, k, (int)p->radix[i], re), tir_pick(pool, k, (int)p->radix[i], im)};
    if (!last) {
        tir_expr turned[2], factor[2];
        index[1] = tir_add(pool, tir_index(pool, p->twiddle[i]),
                           tir_add(pool, tir_mul(pool, k, tir_index(pool, p->rest[i])), axis[2]));
        for (int q = 0; q < 2; q++) {
            index[0] = tir_index(pool, q);
            factor[q] = graph_operand_load(c, 1, index);
        }
        tir_expr across = tir_unary(pool, TIR_NEG, tir_mul(pool, value[1], factor[1]));
        turned[0] = tir_muladd(pool, value[0], factor[0], across);
        turned[1] = tir_muladd(pool, value[0], factor[1], tir_mul(pool, value[1], factor[0]));
        for (int q = 0; q < 2; q++) /* number 0 is not rotated */
            value[q] = tir_select(pool, tir_eq(pool, k, tir_index(pool, 0)), value[q], turned[q]);
    } else if (p->sign > 0) {
        tir_expr scale = tir_float(pool, dtype, 1.0 / (double)p->points);
        for (int q = 0; q < 2; q++) value[q] = tir_mul(pool, value[q], scale);
    }
    return tir_stage_value(c->region, stage, tir_pick(pool, axis[part_at], 2, value), 0, 0);
}

static void compute_fft(graph_compute *c) {
    const graph_attribute *radices = &c->attribute[FFT_RADICES];
    passes p = passes_of(radices->count, radices->list, c->attribute[FFT_INVERSE].integer);
    uint32_t tensor = c->operand[0];
    for (int i = 0; i < p.count; i++) tensor = add_pass(c, &p, i, tensor);
    c->result[0] = tensor;
}

/* ---- dft -------------------------------------------------------------------------------------------------------- */

enum { DFT_AXIS, DFT_INVERSE, DFT_ONESIDED, DFT_LENGTH };
enum {
    CONTRACTION_MOST = 32,       /* up to this many points a contraction is faster than passes */
    CONTRACTION_MOST_PRIME = 128 /* up to this many points it is faster than Bluestein's convolution */
};

/* The transform of a dft node. */
typedef struct transform {
    graph *g;
    int rank, axis;
    int sign;
    /* inverse and onesided: from half of the points, to real numbers */
    bool hermitian;
    /* number of points that are transformed, and of results that are kept */
    tir_expr points, bins;
    /* `points` as a number; -1: it depends on a symbol */
    int64_t length;
} transform;

static bool has_parts(tir_pool *pool, const graph_shape *x, int64_t *parts) {
    return x->rank >= 1 && tir_is_const(pool, x->dim[x->rank - 1], parts) && (*parts == 1 || *parts == 2);
}

static tir_expr half_of(tir_pool *pool, tir_expr points) {
    return tir_add(pool, tir_div(pool, points, tir_index(pool, 2)), tir_index(pool, 1));
}

/* Number of points of the transform, where `size` is x's size along the axis. */
static tir_expr points_of(tir_pool *pool, const graph_attribute *a, tir_expr size) {
    if (a[DFT_LENGTH].integer) return tir_index(pool, a[DFT_LENGTH].integer);
    if (!a[DFT_INVERSE].integer || !a[DFT_ONESIDED].integer) return size;
    return tir_mul(pool, tir_index(pool, 2), tir_sub(pool, size, tir_index(pool, 1)));
}

static void check_onesided(const graph_infer *infer, bool inverse, int64_t parts) {
    if (!inverse && parts != 1) graph_infer_fail(infer, "onesided: expected real numbers, one part each");
    if (inverse && parts != 2) graph_infer_fail(infer, "onesided inverse: expected complex numbers");
}

static void infer_dft(graph_infer *infer) {
    const graph_attribute *a = infer->attribute;
    const graph_shape *x = &infer->operand[0];
    tir_pool *pool = infer->g->pool;
    int64_t parts = 0;
    if (x->rank < 2 || !has_parts(pool, x, &parts))
        graph_infer_fail(infer, "expected an axis to transform and a last one of 1 (real) or 2 (complex numbers)");
    int axis = graph_infer_axis(infer, a[DFT_AXIS].integer, x->rank, "axis");
    bool inverse = a[DFT_INVERSE].integer, onesided = a[DFT_ONESIDED].integer;
    if (axis == x->rank - 1) graph_infer_fail(infer, "the last axis holds the parts of numbers");
    if (a[DFT_LENGTH].integer < 0 || a[DFT_LENGTH].integer > INT32_MAX)
        graph_infer_fail(infer, "length is %lld, expected 1 to %d, or 0 for that of the axis",
                         (long long)a[DFT_LENGTH].integer, INT32_MAX);
    if (onesided) check_onesided(infer, inverse, parts);
    tir_expr points = points_of(pool, a, x->dim[axis]);
    graph_infer_at_most(infer, tir_index(pool, 1), points, "no points to transform");
    if (tir_is_const(pool, points, &parts) && parts > INT32_MAX)
        graph_infer_fail(infer, "%lld points, expected at most %d", (long long)parts, INT32_MAX);
    infer->result[0] = *x;
    infer->result[0].dim[axis] = onesided && !inverse ? half_of(pool, points) : points;
    infer->result[0].dim[x->rank - 1] = tir_index(pool, onesided && inverse ? 1 : 2);
}

/* x truncated or zero-padded along the axis to `size`. */
static graph_id fit_axis(graph *g, graph_id x, int axis, tir_expr size) {
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t have, want;
    if (shape.dim[axis] == size) return x;
    if (tir_is_const(g->pool, shape.dim[axis], &have) && tir_is_const(g->pool, size, &want) && want <= have)
        return graph_slice_axis(g, x, axis, tir_index(g->pool, 0), size);
    graph_shape zeros = shape; /* a symbol may be larger or smaller: pad first, then truncate */
    zeros.dim[axis] = size;
    graph_id both[2] = {x, graph_full(g, shape.dtype, zeros.rank, zeros.dim, 0)};
    return graph_slice_axis(g, graph_concat(g, 2, both, axis), axis, tir_index(g->pool, 0), size);
}

/* x as [batch, points along `axis`, parts], where batch has all other axes. */
static graph_id to_rows(graph *g, graph_id x, int axis) {
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t order[DLC_MAX_RANK];
    int count = 0;
    tir_expr batch = tir_index(g->pool, 1);
    for (int i = 0; i < shape.rank - 1; i++)
        if (i != axis) {
            order[count++] = i;
            batch = tir_mul(g->pool, batch, shape.dim[i]);
        }
    order[count++] = axis;
    order[count] = shape.rank - 1;
    if (axis != shape.rank - 2) x = graph_transpose(g, x, order);
    return graph_reshape(g, x, 3, (tir_expr[]){batch, shape.dim[axis], shape.dim[shape.rank - 1]});
}

/* The inverse of to_rows, for a result y of the transform. like: the shape that x had before to_rows. */
static graph_id from_rows(graph *g, graph_id y, int axis, const graph_shape *like) {
    const graph_shape rows = *graph_shape_of(g, y);
    int64_t order[DLC_MAX_RANK];
    graph_shape shape = {.rank = like->rank};
    int count = 0;
    for (int i = 0; i < like->rank - 1; i++)
        if (i != axis) shape.dim[count++] = like->dim[i];
    shape.dim[count++] = rows.dim[1];
    shape.dim[count] = rows.dim[2];
    y = graph_reshape(g, y, shape.rank, shape.dim);
    if (axis == like->rank - 2) return y;
    for (int i = 0; i < like->rank - 1; i++) order[i] = i < axis ? i : i == axis ? like->rank - 2 : i - 1;
    order[like->rank - 1] = like->rank - 1;
    return graph_transpose(g, y, order);
}

/* The transform's matrix [points n, parts a, results k, parts b]: the cosine of n k / points + sign (a - b) / 4 turns, because i is a
 * quarter of a turn. */
static graph_id transform_matrix(const transform *t, dlc_dtype dtype, int64_t parts, tir_expr from, tir_expr to,
                                 int64_t result_parts) {
    graph *g = t->g;
    tir_pool *pool = g->pool;
    const tir_expr dims[4] = {from, tir_index(pool, parts), to, tir_index(pool, result_parts)};
    graph_id at[4], points = graph_dimension(g, DLC_I64, t->points), four = graph_scalar_i64(g, DLC_I64, 4);
    for (int i = 0; i < 4; i++) at[i] = graph_iota(g, DLC_I64, 4, dims, i);
    graph_id quarters = graph_mul(g, graph_sub(g, at[1], at[3]), graph_scalar_i64(g, DLC_I64, t->sign));
    graph_id whole = graph_mul(g, points, four);
    graph_id turn = graph_mul(g, graph_rem(g, graph_mul(g, at[0], at[2]), points), four);
    turn = graph_rem(g, graph_add(g, turn, graph_add(g, graph_mul(g, quarters, points), whole)), whole);
    graph_id angle = graph_div(g, graph_cast(g, turn, DLC_F64), graph_cast(g, whole, DLC_F64));
    graph_id value = graph_cos(g, graph_mul_number(g, angle, 6.283185307179586476925));
    if (t->hermitian) { /* each point except the first and the middle one counts twice */
        graph_id doubled = graph_mul(g, at[0], graph_scalar_i64(g, DLC_I64, 2));
        graph_id zero = graph_scalar_i64(g, DLC_I64, 0);
        graph_id single = graph_eq(g, graph_rem(g, doubled, points), zero);
        value = graph_mul_number(g, value, 2);
        value =
            graph_mul(g, value, graph_select(g, single, graph_scalar(g, DLC_F64, 0.5), graph_scalar(g, DLC_F64, 1)));
    }
    if (t->sign > 0) value = graph_div(g, value, graph_cast(g, points, DLC_F64));
    value = graph_cast(g, value, dtype);
    return graph_reshape(g, value, 2, (tir_expr[]){tir_mul(pool, dims[0], dims[1]), tir_mul(pool, dims[2], dims[3])});
}

static graph_id by_contraction(const transform *t, graph_id x) {
    graph *g = t->g;
    tir_pool *pool = g->pool;
    const graph_shape shape = *graph_shape_of(g, x);
    int64_t parts = 2, result_parts = t->hermitian ? 1 : 2;
    tir_is_const(pool, shape.dim[2], &parts);
    tir_expr to = t->hermitian ? t->points : t->bins;
    graph_id matrix = transform_matrix(t, shape.dtype, parts, shape.dim[1], to, result_parts);
    x = graph_reshape(g, x, 2, (tir_expr[]){shape.dim[0], tir_mul(pool, shape.dim[1], shape.dim[2])});
    return graph_reshape(g, graph_matmul(g, x, matrix), 3,
                         (tir_expr[]){shape.dim[0], to, tir_index(pool, result_parts)});
}

/* Sets radix[] for length n and returns their number; 0: n has a prime factor above 13. Powers of two are split evenly, larger ones first. */
static int find_radices(int64_t n, int64_t radix[PASSES_MAX]) {
    static const int64_t odd[] = {13, 11, 7, 5, 9, 3};
    int twos = 0, count = 0;
    while (n % 2 == 0) n /= 2, twos++;
    for (int left = (twos + 3) / 4; left > 0; left--) {
        int here = (twos + left - 1) / left;
        radix[count++] = INT64_C(1) << here;
        twos -= here;
    }
    for (int i = 0; i < 6; i++)
        for (; n % odd[i] == 0; n /= odd[i]) {
            if (count == PASSES_MAX) return 0;
            radix[count++] = odd[i];
        }
    return n == 1 ? count : 0;
}

static graph_id real_literal(graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const double *values) {
    return graph_cast(g, graph_literal(g, DLC_F64, rank, shape, values), dtype);
}

/* The factors exp(sign 2 pi i p k / points left), by pass, k, p. */
static graph_id twiddle_factors(graph *g, dlc_dtype dtype, const passes *p) {
    int64_t total = p->twiddle[p->count], at = 0;
    double *values = LIB_NEW_ARRAY(g->arena, double, (size_t)(2 * total + 1));
    for (int i = 0; i + 1 < p->count; i++)
        for (int64_t k = 0; k < p->radix[i]; k++)
            for (int64_t j = 0; j < p->rest[i]; j++, at++) {
                values[at] = graph_turn_cosine(j * k, p->radix[i] * p->rest[i]);
                values[total + at] = p->sign * graph_turn_sine(j * k, p->radix[i] * p->rest[i]);
            }
    return real_literal(g, dtype, 2, (int64_t[]){2, total}, values);
}

static graph_id by_passes(graph *g, graph_id x, bool inverse, int count, const int64_t *radix) {
    const passes p = passes_of(count, radix, inverse);
    const graph_shape shape = *graph_shape_of(g, x);
    graph_id inputs[2] = {x, twiddle_factors(g, shape.dtype, &p)};
    graph_id y =
        graph_emit_with(g, "fft", 2, inputs, 2,
                        (graph_setting[]){graph_set_list("radices", count, radix), graph_set_bool("inverse", inverse)});
    return graph_reshape(g, y, 3, (tir_expr[]){shape.dim[0], shape.dim[1], tir_index(g->pool, 2)});
}

static graph_id part_of(graph *g, graph_id x, int part) {
    int last = graph_shape_of(g, x)->rank - 1;
    return graph_slice_axis(g, x, last, tir_index(g->pool, part), tir_index(g->pool, part + 1));
}

/* Complex a times complex b; a may be real, with one part. */
static graph_id complex_product(graph *g, graph_id a, graph_id b) {
    int last = graph_shape_of(g, a)->rank - 1;
    int64_t parts = 2;
    tir_is_const(g->pool, graph_shape_of(g, a)->dim[last], &parts);
    graph_id re = part_of(g, a, 0), p[2] = {graph_mul(g, re, part_of(g, b, 0)), graph_mul(g, re, part_of(g, b, 1))};
    if (parts == 2) {
        graph_id im = part_of(g, a, 1);
        p[0] = graph_sub(g, p[0], graph_mul(g, im, part_of(g, b, 1)));
        p[1] = graph_add(g, p[1], graph_mul(g, im, part_of(g, b, 0)));
    }
    return graph_concat(g, 2, p, last);
}

/* The transform by a convolution, itself by transforms of a power of two (Bluestein 1970): n k = (n^2 + k^2 - (k - n)^2) / 2. */
static graph_id by_convolution(const transform *t, graph_id x) {
    graph *g = t->g;
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    int64_t n = t->length, m = 1, radix[PASSES_MAX];
    while (m < 2 * n - 1) m *= 2;
    double *turns = LIB_NEW_ARRAY(g->arena, double, (size_t)(2 * n)),
           *filter = LIB_NEW_ARRAY(g->arena, double, (size_t)(2 * m));
    for (int64_t k = 0; k < n; k++) {
        int64_t square = k * k % (2 * n); /* halves of a turn over n */
        double re = graph_turn_cosine(square, 2 * n), im = t->sign * graph_turn_sine(square, 2 * n);
        turns[2 * k] = re, turns[2 * k + 1] = im;
        filter[2 * k] = re, filter[2 * k + 1] = -im;
        if (k) filter[2 * (m - k)] = re, filter[2 * (m - k) + 1] = -im;
    }
    int count = find_radices(m, radix);
    graph_id turn = real_literal(g, dtype, 3, (int64_t[]){1, n, 2}, turns);
    graph_id response = graph_literal(g, DLC_F64, 3, (int64_t[]){1, m, 2}, filter);
    response = graph_cast(g, by_passes(g, response, false, count, radix), dtype);
    graph_id y = fit_axis(g, complex_product(g, x, turn), 1, tir_index(g->pool, m));
    y = complex_product(g, by_passes(g, y, false, count, radix), response);
    y = fit_axis(g, by_passes(g, y, true, count, radix), 1, tir_index(g->pool, n));
    y = complex_product(g, y, turn);
    return t->sign < 0 ? y : graph_mul_number(g, y, 1.0 / (double)n);
}

/* The full spectrum of real numbers: its first half, then the conjugates. */
static graph_id all_points(graph *g, graph_id x, int64_t n) {
    tir_pool *pool = g->pool;
    int64_t half = n / 2 + 1, axis = 1;
    if (n - half == 0) return x;
    graph_id mirrored = graph_slice_axis(g, x, 1, tir_index(pool, 1), tir_index(pool, n - half + 1));
    mirrored = graph_reverse(g, mirrored, 1, &axis);
    graph_id parts[2] = {part_of(g, mirrored, 0), graph_neg(g, part_of(g, mirrored, 1))};
    return graph_concat(g, 2, (graph_id[]){x, graph_concat(g, 2, parts, 2)}, 1);
}

static graph_id transform_rows(const transform *t, graph_id x) {
    graph *g = t->g;
    int64_t radix[PASSES_MAX];
    int count = t->length > CONTRACTION_MOST ? find_radices(t->length, radix) : 0;
    if (!count && t->length <= CONTRACTION_MOST_PRIME) return by_contraction(t, x);
    if (t->hermitian) x = all_points(g, x, t->length);
    graph_id y = count ? by_passes(g, x, t->sign > 0, count, radix) : by_convolution(t, x);
    if (t->hermitian) return part_of(g, y, 0);
    return fit_axis(g, y, 1, t->bins);
}

static void expand_dft(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    bool inverse = a[DFT_INVERSE].integer, onesided = a[DFT_ONESIDED].integer;
    transform t = {.g = g,
                   .axis = graph_axis_of(a[DFT_AXIS].integer, shape.rank),
                   .sign = inverse ? 1 : -1,
                   .hermitian = inverse && onesided,
                   .length = -1};
    t.points = t.bins = points_of(pool, a, shape.dim[t.axis]);
    if (onesided && !inverse) t.bins = half_of(pool, t.points);
    tir_is_const(pool, t.points, &t.length);
    graph_id x = fit_axis(g, graph_widen(g, e->input[0]), t.axis, t.hermitian ? half_of(pool, t.points) : t.points);
    graph_id y = transform_rows(&t, to_rows(g, x, t.axis));
    e->result[0] = graph_cast(g, from_rows(g, y, t.axis, &shape), shape.dtype);
}

/* ---- stft ------------------------------------------------------------------------------------------------------- */

enum { STFT_STEP, STFT_LENGTH, STFT_ONESIDED };

/* Number of elements of a frame: the attribute, or the window's size; window NULL: none. */
static tir_expr frame_length(tir_pool *pool, const graph_attribute *a, const graph_shape *window) {
    return a[STFT_LENGTH].integer || !window ? tir_index(pool, a[STFT_LENGTH].integer) : window->dim[0];
}

static tir_expr frame_count(tir_pool *pool, tir_expr size, tir_expr length, int64_t step) {
    return tir_add(pool, tir_div(pool, tir_sub(pool, size, length), tir_index(pool, step)), tir_index(pool, 1));
}

/* Checks the attributes with the distance and length of frames; window NULL: none. */
static void check_frames(const graph_infer *infer, const graph_shape *window) {
    const graph_attribute *a = infer->attribute;
    if (a[STFT_STEP].integer < 1 || a[STFT_STEP].integer > INT32_MAX)
        graph_infer_fail(infer, "frame_step is %lld, expected 1 to %d", (long long)a[STFT_STEP].integer, INT32_MAX);
    if (a[STFT_LENGTH].integer < 0 || a[STFT_LENGTH].integer > INT32_MAX || (!a[STFT_LENGTH].integer && !window))
        graph_infer_fail(infer, "frame_length is %lld, expected 1 to %d, or a window",
                         (long long)a[STFT_LENGTH].integer, INT32_MAX);
}

static void infer_stft(graph_infer *infer) {
    const graph_attribute *a = infer->attribute;
    const graph_shape *x = &infer->operand[0], *window = infer->inputs > 1 ? &infer->operand[1] : NULL;
    tir_pool *pool = infer->g->pool;
    int64_t parts = 0;
    if (window && window->rank < 0) window = NULL;
    graph_infer_rank(infer, 0, 3);
    if (window) graph_infer_rank(infer, 1, 1);
    if (window) graph_infer_same_dtype(infer, 0, 2);
    if (!has_parts(pool, x, &parts)) graph_infer_fail(infer, "expected a last axis of 1 (real) or 2 (complex numbers)");
    if (a[STFT_ONESIDED].integer && parts != 1)
        graph_infer_fail(infer, "onesided: expected real numbers, one part each");
    check_frames(infer, window);
    tir_expr length = frame_length(pool, a, window);
    if (window) graph_infer_equal(infer, window->dim[0], length, "elements of the window and of a frame");
    graph_infer_at_most(infer, tir_index(pool, 1), length, "frames without elements");
    graph_infer_at_most(infer, length, x->dim[1], "the signal is shorter than a frame");
    tir_expr bins = a[STFT_ONESIDED].integer ? half_of(pool, length) : length;
    infer->result[0] = (graph_shape){
        .dtype = x->dtype,
        .rank = 4,
        .dim = {x->dim[0], frame_count(pool, x->dim[1], length, a[STFT_STEP].integer), bins, tir_index(pool, 2)}};
}

static void expand_stft(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    graph_id window = e->inputs > 1 ? e->input[1] : 0;
    tir_expr length = frame_length(pool, a, window ? graph_shape_of(g, window) : NULL);
    const tir_expr frames[2] = {frame_count(pool, shape.dim[1], length, a[STFT_STEP].integer), length};
    graph_id start =
        graph_mul(g, graph_iota(g, DLC_I64, 2, frames, 0), graph_scalar_i64(g, DLC_I64, a[STFT_STEP].integer));
    graph_id x = graph_widen(g, e->input[0]);
    x = graph_gather(g, x, graph_add(g, start, graph_iota(g, DLC_I64, 2, frames, 1)), 1);
    if (window) {
        const graph_shape framed = *graph_shape_of(g, x);
        const int64_t along = 2;
        x = graph_mul(g, x, graph_broadcast(g, graph_widen(g, window), 4, framed.dim, &along));
    }
    const graph_setting settings[2] = {graph_set_integer("axis", 2),
                                       graph_set_bool("onesided", a[STFT_ONESIDED].integer)};
    e->result[0] = graph_cast(g, graph_emit_with(g, "dft", 1, &x, 2, settings), shape.dtype);
}

/* ---- references: the defining sums */

#ifdef DLC_REFERENCE
static void reference_fft(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *w = &r->operand[1];
    const passes p =
        passes_of(r->attribute[FFT_RADICES].count, r->attribute[FFT_RADICES].list, r->attribute[FFT_INVERSE].integer);
    int64_t n = p.points, parts = x->dim[2], total = p.twiddle[p.count];
    double *from = malloc((size_t)(2 * n) * sizeof *from), *to = malloc((size_t)(2 * n) * sizeof *to);
    for (int64_t b = 0; from && to && b < x->dim[0]; b++) {
        for (int64_t j = 0; j < n; j++)
            for (int64_t q = 0; q < 2; q++) from[2 * j + q] = q < parts ? x->data[(b * n + j) * parts + q] : 0;
        int64_t done = 1;
        for (int i = 0; i < p.count; done *= p.radix[i++])
            for (int64_t at = 0; at < n; at++) { /* at = (place, k, direction) */
                int64_t q = at % done, k = at / done % p.radix[i], place = at / done / p.radix[i];
                double re = 0, im = 0;
                for (int64_t j = 0; j < p.radix[i]; j++) {
                    const double *e = &from[2 * ((j * p.rest[i] + place) * done + q)];
                    double angle = p.sign * 6.283185307179586476925 * (double)(j * k % p.radix[i]) / (double)p.radix[i];
                    re += e[0] * cos(angle) - e[1] * sin(angle);
                    im += e[0] * sin(angle) + e[1] * cos(angle);
                }
                const double *factor = &w->data[p.twiddle[i] + k * p.rest[i] + place];
                bool turned = k > 0 && i + 1 < p.count;
                to[2 * at] = turned ? re * factor[0] - im * factor[total] : re;
                to[2 * at + 1] = turned ? re * factor[total] + im * factor[0] : im;
                if (at + 1 == n) memcpy(from, to, (size_t)(2 * n) * sizeof *from);
            }
        for (int64_t j = 0; j < 2 * n; j++)
            r->result[0].data[b * 2 * n + j] = from[j] * (p.sign > 0 ? 1 / (double)n : 1);
    }
    free(from);
    free(to);
}

/* Sets out[] to the complex point `at` of a line of `size` elements: 0 beyond them, or, if hermitian, of half a spectrum of n points the
 * conjugates beyond the half. */
static void reference_point(const double *line, int64_t step, int64_t parts, int64_t size, int64_t at, int64_t n,
                            bool hermitian, double out[2]) {
    bool mirrored = hermitian && at > n / 2;
    if (mirrored) at = n - at;
    bool inside = at < size && (!hermitian || at <= n / 2);
    out[0] = inside ? line[at * step] : 0;
    out[1] = inside && parts == 2 ? line[at * step + 1] : 0;
    if (mirrored) out[1] = -out[1];
}

static void reference_dft(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    bool inverse = r->attribute[DFT_INVERSE].integer, onesided = r->attribute[DFT_ONESIDED].integer;
    const int axis = graph_axis_of(r->attribute[DFT_AXIS].integer, x->rank);
    int64_t size = x->dim[axis], parts = x->dim[x->rank - 1], inner = 1, n = r->attribute[DFT_LENGTH].integer;
    if (!n) n = inverse && onesided ? 2 * (size - 1) : size;
    for (int i = axis + 1; i < x->rank - 1; i++) inner *= x->dim[i];
    int64_t to_parts = y->dim[y->rank - 1], results = y->dim[axis];
    for (int64_t at = 0; at < graph_reference_count(y) / to_parts; at++) {
        int64_t column = at % inner, k = at / inner % results, line = at / inner / results;
        const double *from = x->data + (line * size * inner + column) * parts;
        double re = 0, im = 0, e[2];
        for (int64_t j = 0; j < n; j++) {
            reference_point(from, inner * parts, parts, size, j, n, inverse && onesided, e);
            double angle = (inverse ? 1 : -1) * 6.283185307179586476925 * (double)(j * k % n) / (double)n;
            re += e[0] * cos(angle) - e[1] * sin(angle);
            im += e[0] * sin(angle) + e[1] * cos(angle);
        }
        y->data[at * to_parts] = inverse ? re / (double)n : re;
        if (to_parts == 2) y->data[at * to_parts + 1] = inverse ? im / (double)n : im;
    }
}
static void reference_stft(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *window = &r->operand[1], *y = &r->result[0];
    bool windowed = graph_reference_given(r, 1);
    int64_t step = r->attribute[STFT_STEP].integer, n = r->attribute[STFT_LENGTH].integer, parts = x->dim[2];
    if (!n) n = window->dim[0];
    for (int64_t at = 0; at < graph_reference_count(y) / 2; at++) {
        int64_t k = at % y->dim[2], frame = at / y->dim[2] % y->dim[1], line = at / y->dim[2] / y->dim[1];
        double re = 0, im = 0;
        for (int64_t j = 0; j < n; j++) {
            const double *from = x->data + (line * x->dim[1] + frame * step + j) * parts;
            double angle = -6.283185307179586476925 * (double)(j * k % n) / (double)n;
            double factor = windowed ? window->data[j] : 1, b = parts == 2 ? from[1] : 0;
            re += factor * (from[0] * cos(angle) - b * sin(angle));
            im += factor * (from[0] * sin(angle) + b * cos(angle));
        }
        y->data[2 * at] = re;
        y->data[2 * at + 1] = im;
    }
}
#endif

/* ---- transposes */

/* dft(c) along x's axis. */
static graph_id transformed(const graph_rule *rule, graph_id c, int axis, bool inverse, bool onesided) {
    return graph_emit_with(rule->g, "dft", 1, &c, 3,
                           (graph_setting[]){graph_set_integer("axis", axis), graph_set_bool("inverse", inverse),
                                             graph_set_bool("onesided", onesided)});
}

/* The axis cut, or with zeros behind, to `size`. */
static graph_id resized(graph *g, graph_id x, int axis, tir_expr size) {
    graph_shape rest = *graph_shape_of(g, x);
    const tir_expr own = rest.dim[axis], none = tir_index(g->pool, 0);
    if (tir_prove(g->pool, tir_le(g->pool, size, own)) != TIR_YES) {
        rest.dim[axis] = tir_max(g->pool, tir_sub(g->pool, size, own), none);
        x = graph_concat(g, 2, (graph_id[]){x, graph_full(g, rest.dtype, rest.rank, rest.dim, 0)}, axis);
    }
    return graph_slice_axis(g, x, axis, none, size);
}

/* With w = exp(-2 pi i / n): the transpose of sums over j of x[j] w^(jk), of pairs of real and imaginary part, is the sum over k of c[k] w^(-jk),
 * n times the inverse transform; that of the inverse the transform over n. Of real x, the real part. onesided: the results that are
 * not given are zeros; inverse, each number stands for two but for the first and the middle one. */
static void transpose_dft(graph_rule *rule) {
    graph *g = rule->g;
    tir_pool *pool = g->pool;
    const graph_shape x = *graph_shape_of(g, rule->input[0]), y = *graph_shape_of(g, rule->first);
    const int axis = graph_axis_of(rule->attribute[DFT_AXIS].integer, x.rank), last = x.rank - 1;
    const bool inverse = rule->attribute[DFT_INVERSE].integer != 0,
               onesided = rule->attribute[DFT_ONESIDED].integer != 0;
    const int64_t length = rule->attribute[DFT_LENGTH].integer;
    tir_expr n = length ? tir_index(pool, length) : onesided && inverse ? y.dim[axis] : x.dim[axis];
    graph_id c = rule->cotangent[0];
    const graph_id count = graph_dimension(g, graph_shape_of(g, c)->dtype, n);
    if (onesided && !inverse) c = resized(g, c, axis, n);
    c = transformed(rule, c, axis, !inverse, onesided && inverse);
    if (!inverse) {
        c = graph_mul(g, c, count);
    } else {
        c = graph_div(g, c, count);
        if (onesided) { /* k = 0 and, of an even n, n/2 count once */
            const graph_shape own = *graph_shape_of(g, c);
            const graph_id k = graph_iota(g, DLC_I64, own.rank, own.dim, axis), zero = graph_scalar_i64(g, DLC_I64, 0);
            const graph_id twice = graph_mul_number(g, k, 2);
            const graph_id once = graph_or(g, graph_eq(g, k, zero), graph_eq(g, twice, graph_dimension(g, DLC_I64, n)));
            c = graph_select(g, once, c, graph_mul_number(g, c, 2));
        }
    }
    if (tir_is_number(pool, x.dim[last], 1)) c = graph_slice_axis(g, c, last, tir_index(pool, 0), tir_index(pool, 1));
    rule->out[0] = resized(g, c, axis, x.dim[axis]);
}

/* ---- rows */

static const graph_op row_fft = {
    PRIMITIVE_ROW(fft, GRAPH_CONTRACT, 2, 2, 1, "x factors", "f32 f64"),
    .linear = 1,
    .attribute = {{"radices", GRAPH_ATTR_INTEGERS, NULL, NULL, "1 to 8 numbers of 2 to 32, whose product is n"},
                  {"inverse", GRAPH_ATTR_BOOL, NULL, "false",
                   "passes have positive exponents, and results are over n; factors are taken as given"}},
    .refused = "dft is made of it: differentiate that",
    .infer = infer_fft,
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_fft),
    .samples = "fft(T[3, 8, 2], T[2, 8], radices=[2, 4])\nfft(T[2, 15, 1], T[2, 15], radices=[5, 3], inverse=true)\n"
               "fft(T[1, 4, 2], T[2, 0], radices=[4])\nfft(T[1, 256, 2], T[2, 256], radices=[16, 16])\n"
               "fft(T[2, 128, 2], T[2, 144], radices=[8, 4, 4], inverse=true)\n"
               "fft(T[0, 6, 2], T[2, 6], radices=[3, 2])\nfft(T[1, 77, 2], T[2, 77], radices=[11, 7])",
    .doc =
        "Discrete Fourier transforms of the rows of x [batch, n, 1 or 2], pairs of real and imaginary part or real "
        "numbers, in passes of the radices r: what dft becomes. Pass i sees a row as [r, m, s], m the product of the radices "
        "after it, s of those before, and makes [m, r, s]: y[p, k, q] = f[k, p] * sum over j of x[j, p, q] exp(-2 "
        "pi i j k / r); factors f [2, those of all passes but the last, by pass, k, p] are real and imaginary parts, for a "
        "Fourier transform exp(-2 pi i p k / (r m)), for an inverse one exp(2 pi i p k / (r m)); for k = 0 f is 1 whatever it holds. Result [batch, "
        "last radix, ..., first radix, 2], whose middle axes are n. Cooley & Tukey 1965, Stockham's order.",
};

static const graph_op row_dft = {
    COMPOSITE_ROW(dft, 1, 1, 1, "x", "float"),
    .algebra = GRAPH_BY_NUMBERS,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-2", "axis to transform; not the last"},
                  {"inverse", GRAPH_ATTR_BOOL, NULL, "false", "positive exponents, and results over n"},
                  {"onesided", GRAPH_ATTR_BOOL, NULL, "false",
                   "of real numbers only results 0 to n/2; inverse: from those to real numbers"},
                  {"length", GRAPH_ATTR_INTEGER, NULL, "0",
                   "n: x is cut or takes zeros; 0: the size of the axis, of a onesided inverse twice that less 2"}},
    GRAPH_LINEAR(1, transpose_dft),
    .infer = infer_dft,
    .tolerance = 16,
    .bound = GRAPH_REFERENCE(graph_bound_dft),
    .samples =
        "dft(T[3, 8, 2])\ndft(T[2, 5, 1])\ndft(T[2, 7, 3, 2], axis=1, inverse=true)\ndft(T[2, 12, 1], onesided=true)\n"
        "dft(T[2, 7, 2], inverse=true, onesided=true)\ndft(T[2, 4, 2], inverse=true, onesided=true, length=7)\n"
        "dft(T[3, 40, 2])\ndft(T[2, 2, 100, 1], axis=-2, onesided=true)\ndft(T[45, 2, 2], axis=0, inverse=true)\n"
        "dft(T[2, 33, 2], inverse=true, onesided=true)\ndft(T[1, 37, 2])\ndft(T[1, 131, 2], inverse=true)\n"
        "dft(T[2, 1, 2])\ndft(T[2, 9, 2], length=4)\ndft(T[2, 30, 1], length=48, onesided=true)\ndft(T[0, 64, 2])\n"
        "dft(f32[16, 1024, 2])\ndft(f32[1, 137, 1], onesided=true)\ndft(T[19, 64, 2], inverse=true)",
    .doc =
        "Discrete Fourier transform along an axis of x [..., 1 or 2], real numbers or pairs of real and imaginary part "
        "along the last axis: y[k] = sum over j of x[j] exp(-2 pi i j k / n), inverse with a positive exponent and over "
        "n, of any length n >= 1. onesided: k = 0 to n/2, the others of real numbers are their conjugates; its "
        "inverse takes n/2 + 1 numbers of such a spectrum (imaginary parts of the first and the middle one count for "
        "nothing) to n real ones, [..., 1]. Errors grow with the logarithm of n; with a symbol as length, with n, as does "
        "the time for each result. f16 and bf16 compute in f32. ONNX DFT.",
};

static const graph_op row_stft = {
    COMPOSITE_ROW(stft, 1, 2, 1, "signal [window]", "float"),
    .linear = 3,
    .algebra = GRAPH_BY_NUMBERS,
    .attribute = {{"frame_step", GRAPH_ATTR_INTEGER, NULL, NULL, "elements from one frame to the next"},
                  {"frame_length", GRAPH_ATTR_INTEGER, NULL, "0", "elements of a frame; 0: of the window"},
                  {"onesided", GRAPH_ATTR_BOOL, NULL, "true", "of real numbers only results 0 to frame_length/2"}},
    .infer = infer_stft,
    .tolerance = 16,
    .samples = "stft(T[2, 50, 1], T[16], frame_step=8)\nstft(T[1, 40, 1], frame_step=5, frame_length=12)\n"
               "stft(T[2, 30, 2], T[9], frame_step=4, onesided=false)\n"
               "stft(T[1, 16, 1], T[16], frame_step=3, frame_length=16, onesided=false)\n"
               "stft(T[1, 200, 1], T[64], frame_step=32)\nstft(T[0, 8, 1], T[4], frame_step=2)",
    .doc =
        "Fourier transforms of frames of a signal [batch, length, 1 or 2], frame_step apart, each times the window "
        "[frame_length]: result [batch, frames, bins, 2], frames = (length - frame_length)/frame_step + 1 rounded down: "
        "there is no padding; each as dft has it. ONNX STFT.",
};

const graph_op *const graph_ops_fourier[] = {&row_fft, &row_dft, &row_stft, NULL};
