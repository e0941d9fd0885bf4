/* Winograd's minimal filtering of windows of 3 or of 3 x 3 (Lavin & Gray 2015, "Fast Algorithms for Convolutional Neural Networks"):
 * tiles of t x t outputs of a convolution of stride 1, t = 2 or 4, are computed from (t+2) x (t+2) inputs d and the window g as
 *
 *   A^T [ (G g G^T) .* (B^T d B) ] A
 *
 * Products are summed over channels inside the brackets: a contraction for each of the (t+2)^2 points. winograd_input computes B^T d B of
 * all tiles, winograd_output A^T [..] A; graph/winograd.c puts them around a dot_general. Both transform rows, then columns, by maps that
 * select a sum by the position in the tile; unrolling removes the selection. A signal has one such dimension: A^T [(G g) .* (B^T d)].
 *
 * Elements of a signal's dilated window are e apart, and so are those of a tile: tile k begins at k / e * t * e + k % e. */
#include "graph/build.h"
#include "graph/ops_common.h"
#include "graph/winograd.h"

enum {
    TILE,
    INPUT_LOW,
    INPUT_HIGH,
    INPUT_DILATION,
    OUTPUT_SHAPE = 1,
    OUTPUT_DILATION,
    POINTS = 6,
    MOST_DIMS = 2 /* along which windows extend */
};

static int tile_of(const graph_attribute *attribute) {
    return attribute[TILE].integer ? 4 : 2;
}

/* Of padding. */
static int64_t entry_of(const graph_attribute *list, int dim) {
    return list->count ? list->list[dim] : 0;
}

/* ---- shapes */

/* Number of outputs of a window of 3 along a dimension of x; margin: padding less the window's extent. */
static tir_expr outputs_of(const graph_infer *infer, int dim, int64_t margin) {
    tir_pool *pool = infer->g->pool;
    tir_expr size = graph_infer_sum(infer, infer->operand[0].dim[2 + dim], tir_index(pool, margin));
    graph_infer_at_most(infer, tir_index(pool, 1), size, "no window of 3 fits");
    return size;
}

/* Tiles along a dimension. */
static tir_expr tiles_along(tir_pool *pool, tir_expr size, int64_t tile, int64_t apart) {
    return tir_mul(pool, tir_ceil_div(pool, size, tir_index(pool, tile * apart)), tir_index(pool, apart));
}

/* Tiles of a batch. */
static tir_expr tiles_of(const graph_infer *infer, int dims, tir_expr batch, const tir_expr *size, int64_t apart) {
    tir_expr factor[1 + MOST_DIMS] = {batch};
    const int64_t tile = tile_of(infer->attribute);
    for (int i = 0; i < dims; i++) factor[1 + i] = tiles_along(infer->g->pool, size[i], tile, apart);
    return graph_infer_product(infer, 1 + dims, factor);
}

/* The distance of a window's elements. */
static int64_t checked_dilation(const graph_infer *infer, int which, int dims) {
    const int64_t apart = infer->attribute[which].integer, most = dims == 1 ? GRAPH_WINOGRAD_DILATION : 1;
    if (apart < 1 || apart > most)
        graph_infer_fail(infer, "dilation is %lld, expected 1 to %lld with a result of rank %d", (long long)apart,
                         (long long)most, dims + 2);
    return apart;
}

static void infer_winograd_input(graph_infer *infer) {
    const graph_attribute *attribute = infer->attribute, *low = &attribute[INPUT_LOW], *high = &attribute[INPUT_HIGH];
    const graph_shape *x = &infer->operand[0];
    const int dims = x->rank - 2;
    tir_expr size[MOST_DIMS];
    if (dims < 1 || dims > MOST_DIMS) graph_infer_fail(infer, "x has rank %d, expected 3 or 4", x->rank);
    graph_infer_list(infer, low, dims, "low");
    graph_infer_list(infer, high, dims, "high");
    const int64_t apart = checked_dilation(infer, INPUT_DILATION, dims), reach = 2 * apart;
    for (int i = 0; i < dims; i++) {
        const int64_t before = entry_of(low, i), after = entry_of(high, i);
        if (before < 0 || after < 0 || before > reach || after > reach)
            graph_infer_fail(infer, "padding of dimension %d is %lld and %lld, expected 0 to %lld", 2 + i,
                             (long long)before, (long long)after, (long long)reach);
        size[i] = outputs_of(infer, i, before + after - reach);
    }
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = x->dtype, .rank = x->rank};
    for (int i = 0; i < dims; i++) y->dim[i] = tir_index(infer->g->pool, tile_of(attribute) + 2);
    y->dim[dims] = tiles_of(infer, dims, x->dim[0], size, apart);
    y->dim[dims + 1] = x->dim[1];
}

static void infer_winograd_output(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[OUTPUT_SHAPE];
    const graph_shape *m = &infer->operand[0];
    const int dims = m->rank - 2;
    tir_expr points = tir_index(infer->g->pool, tile_of(infer->attribute) + 2);
    if (dims < 1 || dims > MOST_DIMS) graph_infer_fail(infer, "m has rank %d, expected 3 or 4", m->rank);
    if (shape->count != 1 + dims)
        graph_infer_fail(infer, "shape has %d entries, expected batch and %s", shape->count,
                         dims == 1 ? "the number of elements" : "rows, columns");
    const int64_t apart = checked_dilation(infer, OUTPUT_DILATION, dims);
    for (int i = 0; i < dims; i++)
        graph_infer_equal(infer, m->dim[i], points,
                          i + 1 < dims ? "points of a column and tile + 2" : "points of a row and tile + 2");
    graph_infer_equal(infer, m->dim[dims], tiles_of(infer, dims, shape->dims[0], shape->dims + 1, apart),
                      "tiles and those of shape");
    graph_shape *y = &infer->result[0];
    *y = (graph_shape){.dtype = m->dtype, .rank = m->rank, .dim = {shape->dims[0], m->dim[dims + 1]}};
    for (int i = 0; i < dims; i++) y->dim[2 + i] = shape->dims[1 + i];
}

/* ---- transforms of one row, x[]: common parts of the results are one expression. */

typedef struct row_pool {
    tir_pool *pool;
    tir_dtype dtype;
} row_pool;

static tir_expr times(const row_pool *r, double factor, tir_expr x, tir_expr plus) {
    return tir_muladd(r->pool, tir_float(r->pool, r->dtype, factor), x, plus);
}

/* B^T x: t + 2 results. */
static void input_row(const row_pool *r, int tile, const tir_expr *x, tir_expr *out) {
    tir_pool *p = r->pool;
    if (tile == 2) {
        out[0] = tir_sub(p, x[0], x[2]);
        out[1] = tir_add(p, x[1], x[2]);
        out[2] = tir_sub(p, x[2], x[1]);
        out[3] = tir_sub(p, x[1], x[3]);
        return;
    }
    tir_expr even = times(r, -4, x[2], x[4]), odd = times(r, -4, x[1], x[3]);
    tir_expr outer = tir_sub(p, x[4], x[2]), inner = tir_sub(p, x[3], x[1]);
    out[0] = times(r, 4, x[0], times(r, -5, x[2], x[4]));
    out[1] = tir_add(p, even, odd);
    out[2] = tir_sub(p, even, odd);
    out[3] = times(r, 2, inner, outer);
    out[4] = times(r, -2, inner, outer);
    out[5] = times(r, 4, x[1], times(r, -5, x[3], x[5]));
}

/* A^T x: t results. */
static void output_row(const row_pool *r, int tile, const tir_expr *x, tir_expr *out) {
    tir_pool *p = r->pool;
    tir_expr sum = tir_add(p, x[1], x[2]), difference = tir_sub(p, x[1], x[2]);
    if (tile == 2) {
        out[0] = tir_add(p, x[0], sum);
        out[1] = tir_sub(p, difference, x[3]);
        return;
    }
    tir_expr sum2 = tir_add(p, x[3], x[4]), difference2 = tir_sub(p, x[3], x[4]);
    out[0] = tir_add(p, tir_add(p, x[0], sum), sum2);
    out[1] = times(r, 2, difference2, difference);
    out[2] = times(r, 4, sum2, sum);
    out[3] = tir_add(p, times(r, 8, difference2, difference), x[5]);
}

/* ---- compute definitions */

/* Where a tile is: its batch element, and its number along each dimension. */
typedef struct tile_place {
    tir_expr batch, number[MOST_DIMS];
} tile_place;

static tile_place place_of(tir_pool *pool, int dims, tir_expr tile, const tir_expr *counts) {
    tile_place place;
    for (int i = dims; i-- > 0;) {
        place.number[i] = tir_rem(pool, tile, counts[i]);
        tile = tir_div(pool, tile, counts[i]);
    }
    place.batch = tile;
    return place;
}

/* The index, counted from the start of the padding, of the element at `position` of tile `number` along a dimension. */
static tir_expr element_of(tir_pool *pool, tir_expr number, tir_expr position, int64_t tile, int64_t dilation) {
    tir_expr apart = tir_index(pool, dilation);
    tir_expr first = tir_mul(pool, tir_div(pool, number, apart), tir_index(pool, tile * dilation));
    tir_expr within = tir_add(pool, tir_mul(pool, position, apart), tir_rem(pool, number, apart));
    return tir_add(pool, first, within);
}

/* Element of x, or zero in the padding. */
static tir_expr padded_element(graph_compute *c, const tir_expr *index) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr guard = 0;
    for (int d = 2; d < x->rank; d++) {
        tir_expr inside[2] = {tir_le(pool, tir_index(pool, 0), index[d]), tir_lt(pool, index[d], x->dim[d])};
        for (int k = 0; k < 2; k++)
            if (tir_prove(pool, inside[k]) != TIR_YES) guard = guard ? tir_and(pool, guard, inside[k]) : inside[k];
    }
    tir_expr zero = tir_float(pool, (tir_dtype)x->dtype, 0);
    if (!guard) return graph_operand_load(c, 0, index);
    return tir_region_load_guarded(c->region, c->operand[0], index, guard, zero);
}

/* The map that transforms tiles along their first dimension: [a, tile, c], for images [a, tile, column of the tile, c]. */
static uint32_t compute_first_input(graph_compute *c) {
    static const char *const names[MOST_DIMS][4] = {{"a", "t", "c"}, {"a", "t", "x", "c"}};
    tir_pool *pool = c->pool;
    const graph_attribute *attribute = c->attribute;
    const int tile = tile_of(attribute), dims = c->operand_shape[0].rank - 2;
    const int64_t apart = attribute[INPUT_DILATION].integer;
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    const row_pool r = {pool, (tir_dtype)y->dtype};
    tir_expr counts[MOST_DIMS], value[POINTS], load[POINTS], axis[4];
    for (int i = 0; i < dims; i++) {
        const int64_t margin = entry_of(&attribute[INPUT_LOW], i) + entry_of(&attribute[INPUT_HIGH], i) - 2 * apart;
        counts[i] = tiles_along(pool, tir_add(pool, x->dim[2 + i], tir_index(pool, margin)), tile, apart);
    }
    tir_expr extent[4] = {y->dim[0], y->dim[dims]};
    if (dims == 2) extent[2] = y->dim[1];
    extent[dims + 1] = y->dim[dims + 1];
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, dims + 2, names[dims - 1], extent, 0, NULL, NULL);
    for (int a = 0; a < dims + 2; a++) axis[a] = stage->axis[a].var;
    tile_place at = place_of(pool, dims, axis[1], counts);
    for (int i = 0; i < tile + 2; i++) {
        tir_expr index[2 + MOST_DIMS] = {at.batch, axis[dims + 1]};
        for (int d = 0; d < dims; d++) {
            tir_expr position = d == 0 ? tir_index(pool, i) : axis[2];
            tir_expr element = element_of(pool, at.number[d], position, tile, apart);
            index[2 + d] = tir_sub(pool, element, tir_index(pool, entry_of(&attribute[INPUT_LOW], d)));
        }
        load[i] = padded_element(c, index);
    }
    input_row(&r, tile, load, value);
    return tir_stage_value(c->region, stage, tir_pick(pool, axis[0], tile + 2, value), 0, 0);
}

/* For signals the first map is the result; for images a second map transforms along the second dimension: [a, b, tile, c]. */
static void compute_winograd_input(graph_compute *c) {
    static const char *const names[] = {"a", "b", "t", "c"};
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    const row_pool r = {pool, (tir_dtype)y->dtype};
    const int tile = tile_of(c->attribute);
    tir_expr value[POINTS], load[POINTS], axis[4];
    uint32_t rows = compute_first_input(c);
    if (y->rank == 3) {
        c->result[0] = rows;
        return;
    }
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names, y->dim, 0, NULL, NULL);
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    for (int i = 0; i < tile + 2; i++)
        load[i] = tir_region_load(c->region, rows, (tir_expr[]){axis[0], axis[2], tir_index(pool, i), axis[3]});
    input_row(&r, tile, load, value);
    c->result[0] = tir_stage_value(c->region, stage, tir_pick(pool, axis[1], tile + 2, value), 0, 0);
}

/* Position in its tile of the element at `index`. */
static tir_expr position_of(graph_compute *c, tir_expr index) {
    tir_expr apart = tir_index(c->pool, c->attribute[OUTPUT_DILATION].integer);
    return tir_rem(c->pool, tir_div(c->pool, index, apart), tir_index(c->pool, tile_of(c->attribute)));
}

/* Number of the tile of the element at `index`. */
static tir_expr tile_at(graph_compute *c, tir_expr batch, const tir_expr *index) {
    tir_pool *pool = c->pool;
    const int64_t tile = tile_of(c->attribute), apart = c->attribute[OUTPUT_DILATION].integer;
    tir_expr number = batch;
    for (int i = 0; i < c->result_shape[0].rank - 2; i++) {
        tir_expr first = tir_mul(pool, tir_div(pool, index[i], tir_index(pool, tile * apart)), tir_index(pool, apart));
        tir_expr along = tir_add(pool, first, tir_rem(pool, index[i], tir_index(pool, apart)));
        number = tir_mul(pool, number, tiles_along(pool, c->result_shape[0].dim[2 + i], tile, apart));
        number = tir_add(pool, number, along);
    }
    return number;
}

/* For images, the map that transforms tiles along their first dimension: [row of the tile, b, tile, c]. */
static uint32_t compute_first_output(graph_compute *c) {
    static const char *const names[] = {"i", "b", "t", "c"};
    tir_pool *pool = c->pool;
    const graph_shape *m = &c->operand_shape[0];
    const row_pool r = {pool, (tir_dtype)m->dtype};
    const int tile = tile_of(c->attribute);
    tir_expr extent[4] = {tir_index(pool, tile), m->dim[1], m->dim[2], m->dim[3]}, axis[4];
    tir_expr value[POINTS], load[POINTS];
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names, extent, 0, NULL, NULL);
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    for (int i = 0; i < tile + 2; i++)
        load[i] = graph_operand_load(c, 0, (tir_expr[]){tir_index(pool, i), axis[1], axis[2], axis[3]});
    output_row(&r, tile, load, value);
    return tir_stage_value(c->region, stage, tir_pick(pool, axis[0], tile, value), 0, 0);
}

/* The map that transforms along the last dimension, at the positions of the result [n, c, ...]. */
static void compute_winograd_output(graph_compute *c) {
    static const char *const names[MOST_DIMS][4] = {{"n", "c", "w"}, {"n", "c", "h", "w"}};
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    const row_pool r = {pool, (tir_dtype)y->dtype};
    const int tile = tile_of(c->attribute), last = y->rank - 3; /* of the dimensions of windows */
    const bool image = last == 1;
    tir_expr value[POINTS], load[POINTS], axis[4];
    const uint32_t first = image ? compute_first_output(c) : 0;
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, y->rank, names[last], y->dim, 0, NULL, NULL);
    for (int a = 0; a < y->rank; a++) axis[a] = stage->axis[a].var;
    tir_expr number = tile_at(c, axis[0], axis + 2);
    for (int i = 0; i < tile + 2; i++) {
        tir_expr point = tir_index(pool, i);
        load[i] = image
                      ? tir_region_load(c->region, first, (tir_expr[]){position_of(c, axis[2]), point, number, axis[1]})
                      : graph_operand_load(c, 0, (tir_expr[]){point, number, axis[1]});
    }
    output_row(&r, tile, load, value);
    c->result[0] = tir_stage_value(c->region, stage, tir_pick(pool, position_of(c, axis[2 + last]), tile, value), 0, 0);
}

/* ---- references: the matrices of the paper */

#ifdef DLC_REFERENCE
static const double input_matrix[2][POINTS][POINTS] = {{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
                                                       {{4, 0, -5, 0, 1, 0},
                                                        {0, -4, -4, 1, 1, 0},
                                                        {0, 4, -4, -1, 1, 0},
                                                        {0, -2, -1, 2, 1, 0},
                                                        {0, 2, -1, -2, 1, 0},
                                                        {0, 4, 0, -5, 0, 1}}};
static const double output_matrix[2][POINTS][POINTS] = {
    {{1, 1, 1, 0}, {0, 1, -1, -1}},
    {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}}};

/* Tiles by dimension. */
typedef struct reference_tiling {
    int dims, tile;
    int64_t apart, count[MOST_DIMS];
} reference_tiling;

/* Of what a convolution gives: sizes [n, c, ...], and `margin` more along each dimension of windows. */
static reference_tiling tiling_of(const graph_reference *r, const graph_reference_tensor *image, const int64_t *margin,
                                  int64_t apart) {
    reference_tiling t = {.dims = image->rank - 2, .tile = tile_of(r->attribute), .apart = apart};
    for (int i = 0; i < t.dims; i++)
        t.count[i] = (image->dim[2 + i] + margin[i] + t.tile * apart - 1) / (t.tile * apart) * apart;
    return t;
}

/* The sum over the points of a tile, each times matrix[own[i]][k] for its index k along every dimension i. */
static double sum_of_points(const reference_tiling *t, const double matrix[POINTS][POINTS], const int64_t *own,
                            double (*point)(void *user, const int64_t *at), void *user) {
    double sum = 0;
    const int64_t points = t->tile + 2, all = t->dims == 2 ? points * points : points;
    for (int64_t k = 0; k < all; k++) {
        const int64_t at[MOST_DIMS] = {t->dims == 2 ? k / points : k, k % points};
        double factor = 1;
        for (int i = 0; i < t->dims; i++) factor *= matrix[own[i]][at[i]];
        if (factor != 0) sum += factor * point(user, at);
    }
    return sum;
}

typedef struct reference_place {
    const graph_reference *r;
    reference_tiling tiling;
    /* of the element that is computed */
    int64_t to[DLC_MAX_RANK];
} reference_place;

static double input_point(void *user, const int64_t *at) {
    const reference_place *p = user;
    const reference_tiling *t = &p->tiling;
    const graph_reference_tensor *x = &p->r->operand[0];
    int64_t from[DLC_MAX_RANK] = {0}, number = p->to[t->dims];
    bool inside = true;
    for (int i = t->dims; i-- > 0; number /= t->count[i]) {
        const int64_t along = number % t->count[i], apart = t->apart;
        from[2 + i] =
            along / apart * t->tile * apart + at[i] * apart + along % apart - entry_of(&p->r->attribute[INPUT_LOW], i);
        inside = inside && from[2 + i] >= 0 && from[2 + i] < x->dim[2 + i];
    }
    from[0] = number;
    from[1] = p->to[t->dims + 1];
    return inside ? x->data[graph_reference_at(x, from)] : 0;
}

static void reference_winograd_input(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    const int64_t apart = r->attribute[INPUT_DILATION].integer;
    int64_t margin[MOST_DIMS];
    for (int i = 0; i < MOST_DIMS && i < y->rank - 2; i++)
        margin[i] = entry_of(&r->attribute[INPUT_LOW], i) + entry_of(&r->attribute[INPUT_HIGH], i) - 2 * apart;
    reference_place p = {r, tiling_of(r, &r->operand[0], margin, apart), {0}};
    int64_t *to = p.to;
    GRAPH_REFERENCE_EACH(y, to)
        y->data[graph_reference_at(y, to)] =
            sum_of_points(&p.tiling, input_matrix[p.tiling.tile == 4], to, input_point, &p);
}

static double output_point(void *user, const int64_t *at) {
    const reference_place *p = user;
    const reference_tiling *t = &p->tiling;
    const graph_reference_tensor *m = &p->r->operand[0];
    int64_t from[DLC_MAX_RANK] = {0}, number = p->to[0];
    for (int i = 0; i < t->dims; i++) {
        const int64_t index = p->to[2 + i], apart = t->apart;
        from[i] = at[i];
        number = number * t->count[i] + index / (t->tile * apart) * apart + index % apart;
    }
    from[t->dims] = number;
    from[t->dims + 1] = p->to[1];
    return m->data[graph_reference_at(m, from)];
}

static void reference_winograd_output(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    static const int64_t no_margin[MOST_DIMS] = {0};
    reference_place p = {r, tiling_of(r, y, no_margin, r->attribute[OUTPUT_DILATION].integer), {0}};
    int64_t *to = p.to;
    GRAPH_REFERENCE_EACH(y, to) {
        int64_t own[MOST_DIMS];
        for (int i = 0; i < p.tiling.dims; i++) own[i] = to[2 + i] / p.tiling.apart % p.tiling.tile;
        y->data[graph_reference_at(y, to)] =
            sum_of_points(&p.tiling, output_matrix[p.tiling.tile == 4], own, output_point, &p);
    }
}
#endif

/* ---- rows */

#define TILE_ATTRIBUTE \
    { "tile", GRAPH_ATTR_ENUM, "two four", NULL, "results of a tile along each dimension of the windows" }
#define DILATION_ATTRIBUTE \
    { "dilation", GRAPH_ATTR_INTEGER, NULL, "1", "distance of the elements of a signal's window" }

static const graph_op row_winograd_input = {
    PRIMITIVE_ROW(winograd_input, GRAPH_REDUCE, 1, 1, 1, "x", "f32 f64"),
    .linear = 1,
    .attribute = {TILE_ATTRIBUTE,
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]",
                   "padding before rows and columns, 0 to 2 * dilation; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]",
                   "padding after rows and columns, 0 to 2 * dilation; empty: 0"},
                  DILATION_ATTRIBUTE},
    .refused = "convolutions become it when a program is compiled: differentiate those",
    .infer = infer_winograd_input,
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_winograd),
    .samples = "winograd_input(T[1, 3, 8, 8], tile=four, low=[1, 1], high=[1, 1])\n"
               "winograd_input(T[2, 17, 7, 5], tile=two, low=[1, 0], high=[0, 1])\n"
               "winograd_input(T[2, 5, 3, 9], tile=four)\nwinograd_input(T[1, 1, 1, 1], tile=two, low=[2, 2])\n"
               "winograd_input(T[1, 32, 14, 14], tile=four, low=[1, 1], high=[1, 1])\n"
               "winograd_input(T[2, 16, 37], tile=four, low=[1], high=[1])\n"
               "winograd_input(T[2, 17, 37], tile=two, low=[3], high=[6], dilation=3)",
    .doc =
        "B^T d B for each tile d of (t + 2) x (t + 2) elements of x [n, c, h, w], t apart, t = 2 or 4: the first step of a "
        "convolution of windows of 3 x 3 and stride 1. Result [t + 2, t + 2, tiles, c], tiles by batch, row and "
        "column; padding and what lies behind the last element counts as zeros. Of a signal x [n, c, w], tiles of t + 2 elements: "
        "B^T d, [t + 2, tiles, c]; with a dilation e, the elements of a tile are e apart, and e tiles are interleaved. Lavin & Gray 2015.",
};

static const graph_op row_winograd_output = {
    PRIMITIVE_ROW(winograd_output, GRAPH_REDUCE, 1, 1, 1, "m", "f32 f64"),
    .linear = 1,
    .attribute = {TILE_ATTRIBUTE,
                  {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "batch, rows and columns of the result"},
                  DILATION_ATTRIBUTE},
    .refused = "convolutions become it when a program is compiled: differentiate those",
    .infer = infer_winograd_output,
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_winograd),
    .samples = "winograd_output(T[6, 6, 4, 5], tile=four, shape=[1, 8, 8])\n"
               "winograd_output(T[4, 4, 24, 3], tile=two, shape=[2, 7, 5])\n"
               "winograd_output(T[6, 6, 6, 32], tile=four, shape=[2, 4, 9])\n"
               "winograd_output(T[4, 4, 1, 1], tile=two, shape=[1, 1, 1])\n"
               "winograd_output(T[6, 20, 16], tile=four, shape=[2, 37])\n"
               "winograd_output(T[4, 42, 17], tile=two, shape=[2, 37], dilation=3)",
    .doc =
        "A^T m A for each tile of points m [t + 2, t + 2, tiles, c], t = 2 or 4: the last step of a convolution of windows of "
        "3 x 3 and stride 1. Result [n, c, h, w], whose tiles of t x t are those of m by batch, row and column. Of points [t + 2, "
        "tiles, c] the signal [n, c, w]; with a dilation e, the elements of a tile are e apart. Lavin & Gray 2015.",
};

const graph_op *const graph_ops_winograd[] = {&row_winograd_input, &row_winograd_output, NULL};
