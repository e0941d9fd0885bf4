/* Winograd's minimal filtering of windows of 3 x 3 (Lavin & Gray 2015, "Fast Algorithms for Convolutional Neural Networks"): tiles of
 * t x t outputs of a convolution of stride 1, t = 2 or 4, are computed from (t+2) x (t+2) inputs d and the window g as
 *
 *   A^T [ (G g G^T) .* (B^T d B) ] A
 *
 * The sum over channels is inside the brackets: one contraction for each of (t+2)^2 points. winograd_input is B^T d B of all
 * tiles, winograd_output A^T [] A; graph/winograd.c puts them around a dot_general. Both transform rows, then columns, as maps that
 * compare the position in the tile; after unrolling only the sums are left. */
#include "graph/build.h"
#include "graph/ops_common.h"

enum { TILE, INPUT_LOW, INPUT_HIGH, OUTPUT_SHAPE = 1, POINTS = 6 };

static int tile_of(const graph_attribute *attribute) {
    return attribute[TILE].integer ? 4 : 2;
}

/* ---- shapes */

/* Outputs of a window of 3 along a dimension. */
static tir_expr outputs_of(const graph_infer *infer, int dim, int64_t low, int64_t high) {
    tir_pool *pool = infer->g->pool;
    tir_expr size = graph_infer_sum(infer, infer->operand[0].dim[dim], tir_index(pool, low + high - 2));
    graph_infer_at_most(infer, tir_index(pool, 1), size, "no window of 3 fits");
    return size;
}

static tir_expr tiles_of(const graph_infer *infer, tir_expr n, tir_expr h, tir_expr w, int tile) {
    tir_pool *pool = infer->g->pool;
    tir_expr t = tir_index(pool, tile);
    return graph_infer_product(infer, 3, (tir_expr[]){n, tir_ceil_div(pool, h, t), tir_ceil_div(pool, w, t)});
}

static void infer_winograd_input(graph_infer *infer) {
    const graph_attribute *low = &infer->attribute[INPUT_LOW], *high = &infer->attribute[INPUT_HIGH];
    int tile = tile_of(infer->attribute);
    tir_expr points = tir_index(infer->g->pool, tile + 2), size[2];
    graph_infer_rank(infer, 0, 4);
    graph_infer_list(infer, low, 2, "low");
    graph_infer_list(infer, high, 2, "high");
    for (int i = 0; i < 2; i++) {
        int64_t before = low->count ? low->list[i] : 0, after = high->count ? high->list[i] : 0;
        if (before < 0 || after < 0 || before > 2 || after > 2)
            graph_infer_fail(infer, "padding of dimension %d is %lld and %lld, expected 0 to 2", 2 + i,
                             (long long)before, (long long)after);
        size[i] = outputs_of(infer, 2 + i, before, after);
    }
    const graph_shape *x = &infer->operand[0];
    infer->result[0] =
        (graph_shape){.dtype = x->dtype,
                      .rank = 4,
                      .dim = {points, points, tiles_of(infer, x->dim[0], size[0], size[1], tile), x->dim[1]}};
}

static void infer_winograd_output(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[OUTPUT_SHAPE];
    int tile = tile_of(infer->attribute);
    const graph_shape *m = &infer->operand[0];
    graph_infer_rank(infer, 0, 4);
    if (shape->count != 3) graph_infer_fail(infer, "shape has %d entries, expected batch, rows, columns", shape->count);
    tir_expr points = tir_index(infer->g->pool, tile + 2);
    graph_infer_equal(infer, m->dim[0], points, "points of a column and tile + 2");
    graph_infer_equal(infer, m->dim[1], points, "points of a row and tile + 2");
    graph_infer_equal(infer, m->dim[2], tiles_of(infer, shape->dims[0], shape->dims[1], shape->dims[2], tile),
                      "tiles and those of shape");
    infer->result[0] =
        (graph_shape){.dtype = m->dtype, .rank = 4, .dim = {shape->dims[0], m->dim[3], shape->dims[1], shape->dims[2]}};
}

/* ---- transforms of one row: `x` holds its points. What results share is one expression. */

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

/* The one of `count` values that is at `position`. */
static tir_expr choose(tir_pool *pool, tir_expr position, int count, const tir_expr *values) {
    tir_expr chosen = values[count - 1];
    for (int i = count - 2; i >= 0; i--)
        chosen = tir_select(pool, tir_eq(pool, position, tir_index(pool, i)), values[i], chosen);
    return chosen;
}

/* ---- compute definitions */

typedef struct tile_place {
    /* of a tile: its number in each */
    tir_expr batch, row, column;
} tile_place;

static tile_place place_of(tir_pool *pool, tir_expr tile, tir_expr rows, tir_expr columns) {
    return (tile_place){tir_div(pool, tile, tir_mul(pool, rows, columns)),
                        tir_rem(pool, tir_div(pool, tile, columns), rows), tir_rem(pool, tile, columns)};
}

/* Element of x, or zero in the padding. */
static tir_expr padded_element(graph_compute *c, tir_expr batch, tir_expr channel, tir_expr row, tir_expr column) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr index[4] = {batch, channel, row, column}, guard = 0;
    for (int d = 2; d < 4; d++) {
        tir_expr inside[2] = {tir_le(pool, tir_index(pool, 0), index[d]), tir_lt(pool, index[d], x->dim[d])};
        for (int k = 0; k < 2; k++)
            if (tir_prove(pool, inside[k]) != TIR_YES) guard = guard ? tir_and(pool, guard, inside[k]) : inside[k];
    }
    tir_expr zero = tir_float(pool, (tir_dtype)x->dtype, 0);
    if (!guard) return graph_operand_load(c, 0, index);
    return tir_region_load_guarded(c->region, c->operand[0], index, guard, zero);
}

/* rows [a, tile, column of the tile, c], then the result [a, b, tile, c]. */
static void compute_winograd_input(graph_compute *c) {
    static const char *const names[2][4] = {{"a", "t", "x", "c"}, {"a", "b", "t", "c"}};
    tir_pool *pool = c->pool;
    int tile = tile_of(c->attribute);
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    const row_pool r = {pool, (tir_dtype)y->dtype};
    int64_t low[2] = {0}, high[2] = {0};
    for (int i = 0; i < 2; i++) {
        if (c->attribute[INPUT_LOW].count) low[i] = c->attribute[INPUT_LOW].list[i];
        if (c->attribute[INPUT_HIGH].count) high[i] = c->attribute[INPUT_HIGH].list[i];
    }
    tir_expr size[2], step = tir_index(pool, tile), value[POINTS], load[POINTS], index[4];
    for (int i = 0; i < 2; i++)
        size[i] = tir_ceil_div(pool, tir_add(pool, x->dim[2 + i], tir_index(pool, low[i] + high[i] - 2)), step);
    tir_expr extent[4] = {y->dim[0], y->dim[2], y->dim[1], y->dim[3]};
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names[0], extent, 0, NULL, NULL);
    tir_expr axis[4];
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    tile_place at = place_of(pool, axis[1], size[0], size[1]);
    for (int i = 0; i < tile + 2; i++)
        load[i] = padded_element(
            c, at.batch, axis[3], tir_add(pool, tir_mul(pool, at.row, step), tir_index(pool, i - low[0])),
            tir_add(pool, tir_mul(pool, at.column, step), tir_sub(pool, axis[2], tir_index(pool, low[1]))));
    input_row(&r, tile, load, value);
    uint32_t rows = tir_stage_value(c->region, stage, choose(pool, axis[0], tile + 2, value), 0, 0);
    stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names[1], y->dim, 0, NULL, NULL);
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    index[0] = axis[0], index[1] = axis[2], index[3] = axis[3];
    for (int i = 0; i < tile + 2; i++) {
        index[2] = tir_index(pool, i);
        load[i] = tir_region_load(c->region, rows, index);
    }
    input_row(&r, tile, load, value);
    c->result[0] = tir_stage_value(c->region, stage, choose(pool, axis[1], tile + 2, value), 0, 0);
}

/* rows [row of the tile, b, tile, c], then the result [n, c, h, w]. */
static void compute_winograd_output(graph_compute *c) {
    static const char *const names[2][4] = {{"i", "b", "t", "c"}, {"n", "c", "h", "w"}};
    tir_pool *pool = c->pool;
    int tile = tile_of(c->attribute);
    const graph_shape *m = &c->operand_shape[0], *y = &c->result_shape[0];
    const row_pool r = {pool, (tir_dtype)y->dtype};
    tir_expr step = tir_index(pool, tile), value[POINTS], load[POINTS];
    tir_expr rows = tir_ceil_div(pool, y->dim[2], step), columns = tir_ceil_div(pool, y->dim[3], step);
    tir_expr extent[4] = {step, m->dim[1], m->dim[2], m->dim[3]}, axis[4];
    tir_stage *stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names[0], extent, 0, NULL, NULL);
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    for (int i = 0; i < tile + 2; i++)
        load[i] = graph_operand_load(c, 0, (tir_expr[]){tir_index(pool, i), axis[1], axis[2], axis[3]});
    output_row(&r, tile, load, value);
    uint32_t first = tir_stage_value(c->region, stage, choose(pool, axis[0], tile, value), 0, 0);
    stage = tir_region_stage(c->region, TIR_MAP, c->name, 4, names[1], y->dim, 0, NULL, NULL);
    for (int a = 0; a < 4; a++) axis[a] = stage->axis[a].var;
    tir_expr number = tir_add(pool, tir_mul(pool, axis[0], rows), tir_div(pool, axis[2], step));
    number = tir_add(pool, tir_mul(pool, number, columns), tir_div(pool, axis[3], step));
    for (int i = 0; i < tile + 2; i++)
        load[i] = tir_region_load(c->region, first,
                                  (tir_expr[]){tir_rem(pool, axis[2], step), tir_index(pool, i), number, axis[1]});
    output_row(&r, tile, load, value);
    c->result[0] = tir_stage_value(c->region, stage, choose(pool, tir_rem(pool, axis[3], step), tile, value), 0, 0);
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

static void reference_winograd_input(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, low[2] = {0}, high[2] = {0}, tile = tile_of(r->attribute);
    for (int i = 0; i < 2; i++) {
        if (r->attribute[INPUT_LOW].count) low[i] = r->attribute[INPUT_LOW].list[i];
        if (r->attribute[INPUT_HIGH].count) high[i] = r->attribute[INPUT_HIGH].list[i];
    }
    int64_t rows = (x->dim[2] + low[0] + high[0] - 2 + tile - 1) / tile,
            columns = (x->dim[3] + low[1] + high[1] - 2 + tile - 1) / tile;
    if (graph_reference_count(y) == 0) return;
    do {
        double sum = 0;
        for (int i = 0; i < tile + 2; i++)
            for (int k = 0; k < tile + 2; k++) {
                int64_t from[4] = {to[2] / (rows * columns), to[3], to[2] / columns % rows * tile + i - low[0],
                                   to[2] % columns * tile + k - low[1]};
                double factor = input_matrix[tile == 4][to[0]][i] * input_matrix[tile == 4][to[1]][k];
                if (factor == 0 || from[2] < 0 || from[2] >= x->dim[2] || from[3] < 0 || from[3] >= x->dim[3]) continue;
                sum += factor * x->data[graph_reference_at(x, from)];
            }
        y->data[graph_reference_at(y, to)] = sum;
    } while (graph_reference_next(y, to));
}

static void reference_winograd_output(const graph_reference *r) {
    const graph_reference_tensor *m = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, tile = tile_of(r->attribute);
    int64_t rows = (y->dim[2] + tile - 1) / tile, columns = (y->dim[3] + tile - 1) / tile;
    if (graph_reference_count(y) == 0) return;
    do {
        double sum = 0;
        for (int64_t a = 0; a < tile + 2; a++)
            for (int64_t b = 0; b < tile + 2; b++) {
                int64_t from[4] = {a, b, (to[0] * rows + to[2] / tile) * columns + to[3] / tile, to[1]};
                double factor = output_matrix[tile == 4][to[2] % tile][a] * output_matrix[tile == 4][to[3] % tile][b];
                if (factor != 0) sum += factor * m->data[graph_reference_at(m, from)];
            }
        y->data[graph_reference_at(y, to)] = sum;
    } while (graph_reference_next(y, to));
}
#endif

/* ---- rows */

#define TILE_ATTRIBUTE \
    { "tile", GRAPH_ATTR_ENUM, "two four", NULL, "rows and columns of a tile" }

static const graph_op row_winograd_input = {
    .name = "winograd_input",
    .class_ = GRAPH_REDUCE,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "x",
    .dtypes = "f32 f64",
    .attribute = {TILE_ATTRIBUTE,
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before rows and columns, 0 to 2; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after rows and columns, 0 to 2; empty: 0"}},
    .infer = infer_winograd_input,
    .compute = compute_winograd_input,
    .reference = GRAPH_REFERENCE(reference_winograd_input),
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_winograd),
    .samples = "winograd_input(T[1, 3, 8, 8], tile=four, low=[1, 1], high=[1, 1])\n"
               "winograd_input(T[2, 17, 7, 5], tile=two, low=[1, 0], high=[0, 1])\n"
               "winograd_input(T[2, 5, 3, 9], tile=four)\nwinograd_input(T[1, 1, 1, 1], tile=two, low=[2, 2])\n"
               "winograd_input(T[1, 32, 14, 14], tile=four, low=[1, 1], high=[1, 1])",
    .doc =
        "B^T d B for each tile d of (t + 2) x (t + 2) elements of x [n, c, h, w], t apart, t = 2 or 4: the first step of a "
        "convolution of windows of 3 x 3 and stride 1. Result [t + 2, t + 2, tiles, c], tiles by batch, row and "
        "column; padding and what lies behind the last element counts as zeros. Lavin & Gray 2015.",
};

static const graph_op row_winograd_output = {
    .name = "winograd_output",
    .class_ = GRAPH_REDUCE,
    .min_inputs = 1,
    .max_inputs = 1,
    .results = 1,
    .operands = "m",
    .dtypes = "f32 f64",
    .attribute = {TILE_ATTRIBUTE, {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "batch, rows and columns of the result"}},
    .infer = infer_winograd_output,
    .compute = compute_winograd_output,
    .reference = GRAPH_REFERENCE(reference_winograd_output),
    .tolerance = 64,
    .bound = GRAPH_REFERENCE(graph_bound_winograd),
    .samples = "winograd_output(T[6, 6, 4, 5], tile=four, shape=[1, 8, 8])\n"
               "winograd_output(T[4, 4, 24, 3], tile=two, shape=[2, 7, 5])\n"
               "winograd_output(T[6, 6, 6, 32], tile=four, shape=[2, 4, 9])\n"
               "winograd_output(T[4, 4, 1, 1], tile=two, shape=[1, 1, 1])",
    .doc =
        "A^T m A for each tile of points m [t + 2, t + 2, tiles, c], t = 2 or 4: the last step of a convolution of windows of "
        "3 x 3 and stride 1. Result [n, c, h, w], whose tiles of t x t are those of m by batch, row and column. Lavin "
        "& Gray 2015.",
};

const graph_op *const graph_ops_winograd[] = {&row_winograd_input, &row_winograd_output, NULL};
