/* Composites that move elements: blocks between channels and space, roll, tile, triangles, the identity matrix. */
#include "graph/build.h"
#include "graph/ops_common.h"

/* ---- depth_to_space, space_to_depth: x [batch, channels, height, width] */

enum { BLOCK_SIZE, BLOCK_MODE };
enum { DEPTH_FIRST, COLUMN_FIRST };
enum { IMAGE_RANK = 4 };

static tir_expr block_of(const graph_infer *infer) {
    int64_t block = infer->attribute[BLOCK_SIZE].integer;
    graph_infer_rank(infer, 0, IMAGE_RANK);
    if (block < 1 || block > 1 << 15)
        graph_infer_fail(infer, "block is %lld, expected 1 to %d", (long long)block, 1 << 15);
    infer->result[0] = infer->operand[0];
    return tir_index(infer->g->pool, block);
}

static void infer_depth_to_space(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    tir_expr block = block_of(infer), square = tir_mul(pool, block, block);
    graph_shape *y = &infer->result[0];
    graph_infer_equal(infer, tir_rem(pool, y->dim[1], square), tir_index(pool, 0),
                      "channels modulo the square of block, and 0,");
    y->dim[1] = tir_div(pool, y->dim[1], square);
    for (int i = 2; i < IMAGE_RANK; i++) y->dim[i] = tir_mul(pool, y->dim[i], block);
}

static void infer_space_to_depth(graph_infer *infer) {
    tir_pool *pool = infer->g->pool;
    tir_expr block = block_of(infer);
    graph_shape *y = &infer->result[0];
    y->dim[1] = tir_mul(pool, y->dim[1], tir_mul(pool, block, block));
    for (int i = 2; i < IMAGE_RANK; i++) {
        graph_infer_equal(infer, tir_rem(pool, y->dim[i], block), tir_index(pool, 0),
                          "height and width modulo block, and 0,");
        y->dim[i] = tir_div(pool, y->dim[i], block);
    }
}

static graph_id rearranged(graph_expand *e, const tir_expr *apart, const int64_t *order, const graph_shape *result) {
    graph_id x = graph_reshape(e->g, e->input[0], IMAGE_RANK + 2, apart);
    return graph_reshape(e->g, graph_transpose(e->g, x, order), IMAGE_RANK, result->dim);
}

static void expand_depth_to_space(graph_expand *e) {
    tir_pool *pool = e->g->pool;
    graph_shape y = *graph_shape_of(e->g, e->input[0]);
    const graph_shape x = y;
    tir_expr block = tir_index(pool, e->attribute[BLOCK_SIZE].integer);
    y.dim[1] = tir_div(pool, x.dim[1], tir_mul(pool, block, block));
    for (int i = 2; i < IMAGE_RANK; i++) y.dim[i] = tir_mul(pool, x.dim[i], block);
    if (e->attribute[BLOCK_MODE].integer == DEPTH_FIRST)
        e->result[0] = rearranged(e, (tir_expr[]){x.dim[0], block, block, y.dim[1], x.dim[2], x.dim[3]},
                                  (int64_t[]){0, 3, 4, 1, 5, 2}, &y);
    else
        e->result[0] = rearranged(e, (tir_expr[]){x.dim[0], y.dim[1], block, block, x.dim[2], x.dim[3]},
                                  (int64_t[]){0, 1, 4, 2, 5, 3}, &y);
}

static void expand_space_to_depth(graph_expand *e) {
    tir_pool *pool = e->g->pool;
    graph_shape y = *graph_shape_of(e->g, e->input[0]);
    const graph_shape x = y;
    tir_expr block = tir_index(pool, e->attribute[BLOCK_SIZE].integer);
    y.dim[1] = tir_mul(pool, x.dim[1], tir_mul(pool, block, block));
    for (int i = 2; i < IMAGE_RANK; i++) y.dim[i] = tir_div(pool, x.dim[i], block);
    bool depth = e->attribute[BLOCK_MODE].integer == DEPTH_FIRST;
    e->result[0] = rearranged(e, (tir_expr[]){x.dim[0], x.dim[1], y.dim[2], block, y.dim[3], block},
                              depth ? (int64_t[]){0, 3, 5, 1, 2, 4} : (int64_t[]){0, 1, 3, 5, 2, 4}, &y);
}

/* ---- roll */

enum { ROLL_SHIFT, ROLL_AXES };

static void infer_roll(graph_infer *infer) {
    const graph_attribute *shift = &infer->attribute[ROLL_SHIFT], *axes = &infer->attribute[ROLL_AXES];
    graph_infer_axes(infer, axes, infer->operand[0].rank, "axes");
    if (shift->count != axes->count)
        graph_infer_fail(infer, "shift has %d entries, expected one for each of %d axes", shift->count, axes->count);
    infer->result[0] = infer->operand[0];
}

/* Splits the axis at n - s mod n and swaps the two parts. */
static void expand_roll(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    graph_id y = e->input[0];
    const graph_shape x = *graph_shape_of(g, y);
    for (int k = 0; k < e->attribute[ROLL_AXES].count; k++) {
        int axis = graph_axis_of(e->attribute[ROLL_AXES].list[k], x.rank);
        tir_expr n = x.dim[axis], size = tir_max(pool, n, tir_index(pool, 1));
        tir_expr by = tir_rem(pool, tir_index(pool, e->attribute[ROLL_SHIFT].list[k]), size);
        by = tir_rem(pool, tir_add(pool, by, size), size);
        tir_expr cut = tir_max(pool, tir_sub(pool, n, by), tir_index(pool, 0));
        graph_id parts[] = {graph_slice_axis(g, y, axis, cut, n),
                            graph_slice_axis(g, y, axis, tir_index(pool, 0), cut)};
        y = graph_concat(g, 2, parts, axis);
    }
    e->result[0] = y;
}

/* ---- tile */

static void infer_tile(graph_infer *infer) {
    const graph_attribute *repeats = &infer->attribute[0];
    const graph_shape *x = &infer->operand[0];
    if (repeats->count != x->rank)
        graph_infer_fail(infer, "repeats has %d entries, expected one for each of %d dimensions", repeats->count,
                         x->rank);
    if (2 * x->rank > DLC_MAX_RANK)
        graph_infer_fail(infer, "x has rank %d, expected at most %d", x->rank, DLC_MAX_RANK / 2);
    infer->result[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), repeats->dims[i], "a repetition is negative");
        infer->result[0].dim[i] = graph_infer_product(infer, 2, (tir_expr[]){repeats->dims[i], x->dim[i]});
    }
}

static void expand_tile(graph_expand *e) {
    graph *g = e->g;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    tir_expr wide[DLC_MAX_RANK], flat[DLC_MAX_RANK];
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < x.rank; i++) {
        wide[2 * i] = e->attribute[0].dims[i];
        wide[2 * i + 1] = x.dim[i];
        flat[i] = tir_mul(g->pool, wide[2 * i], x.dim[i]);
        axes[i] = 2 * i + 1;
    }
    e->result[0] = graph_reshape(g, graph_broadcast(g, e->input[0], 2 * x.rank, wide, axes), x.rank, flat);
}

/* ---- trilu, eye: element (i, j) of a matrix, and its diagonal j - i */

enum { TRILU_UPPER, TRILU_DIAGONAL };

/* j - i - diagonal, i64 of shape dims[2]: 0 on that diagonal of a matrix, above 0 to its right. Diagonals that no matrix has count
 * as the furthest, so that nothing overflows. */
static graph_id from_diagonal(graph *g, const tir_expr *dims, int64_t diagonal) {
    const int64_t furthest = INT64_C(1) << 61;
    diagonal = diagonal < -furthest ? -furthest : diagonal > furthest ? furthest : diagonal;
    graph_id i = graph_iota(g, DLC_I64, 2, dims, 0), j = graph_iota(g, DLC_I64, 2, dims, 1);
    return graph_sub(g, j, graph_add(g, i, graph_scalar_i64(g, DLC_I64, diagonal)));
}

static void infer_trilu(graph_infer *infer) {
    if (infer->operand[0].rank < 2)
        graph_infer_fail(infer, "x has rank %d, expected at least 2", infer->operand[0].rank);
    infer->result[0] = infer->operand[0];
}

static void expand_trilu(graph_expand *e) {
    graph *g = e->g;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    graph_id apart = from_diagonal(g, x.dim + x.rank - 2, e->attribute[TRILU_DIAGONAL].integer);
    graph_id zero = graph_scalar_i64(g, DLC_I64, 0);
    graph_id kept = e->attribute[TRILU_UPPER].integer ? graph_ge(g, apart, zero) : graph_le(g, apart, zero);
    kept = graph_broadcast_to(g, kept, x.rank, x.dim);
    e->result[0] = graph_select(g, kept, e->input[0], graph_full(g, x.dtype, x.rank, x.dim, 0));
}

enum { EYE_SHAPE, EYE_DTYPE, EYE_DIAGONAL };

static void infer_eye(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[EYE_SHAPE];
    if (shape->count != 2) graph_infer_fail(infer, "shape has %d entries, expected 2", shape->count);
    infer->result[0] = (graph_shape){.dtype = (dlc_dtype)infer->attribute[EYE_DTYPE].integer, .rank = 2};
    for (int i = 0; i < 2; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension is negative");
        infer->result[0].dim[i] = shape->dims[i];
    }
}

static void expand_eye(graph_expand *e) {
    graph *g = e->g;
    graph_id apart = from_diagonal(g, e->attribute[EYE_SHAPE].dims, e->attribute[EYE_DIAGONAL].integer);
    e->result[0] =
        graph_cast(g, graph_eq(g, apart, graph_scalar_i64(g, DLC_I64, 0)), (dlc_dtype)e->attribute[EYE_DTYPE].integer);
}

/* ---- references: element by element */

#ifdef DLC_REFERENCE

/* The channel of the deep tensor for an element (channel, row, column) of the shallow one, which has `channels` channels. */
static int64_t deep_channel(const graph_reference *r, int64_t channel, int64_t channels, int64_t row, int64_t column) {
    int64_t block = r->attribute[BLOCK_SIZE].integer, part = row % block * block + column % block;
    return r->attribute[BLOCK_MODE].integer == DEPTH_FIRST ? part * channels + channel : channel * block * block + part;
}

static void reference_blocks(const graph_reference *r, const graph_reference_tensor *shallow,
                             const graph_reference_tensor *deep, bool deepens) {
    int64_t at[DLC_MAX_RANK] = {0}, block = r->attribute[BLOCK_SIZE].integer;
    GRAPH_REFERENCE_EACH(shallow, at) {
        int64_t to[] = {at[0], deep_channel(r, at[1], shallow->dim[1], at[2], at[3]), at[2] / block, at[3] / block};
        double *one = &shallow->data[graph_reference_at(shallow, at)],
               *other = &deep->data[graph_reference_at(deep, to)];
        if (deepens)
            *other = *one;
        else
            *one = *other;
    }
}
static void reference_depth_to_space(const graph_reference *r) {
    reference_blocks(r, &r->result[0], &r->operand[0], false);
}
static void reference_space_to_depth(const graph_reference *r) {
    reference_blocks(r, &r->operand[0], &r->result[0], true);
}

static void reference_roll(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t at[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, at) {
        for (int i = 0; i < x->rank; i++) to[i] = at[i];
        for (int k = 0; k < r->attribute[ROLL_AXES].count; k++) {
            int64_t axis = graph_axis_of(r->attribute[ROLL_AXES].list[k], x->rank);
            int64_t n = x->dim[axis];
            to[axis] = ((at[axis] + r->attribute[ROLL_SHIFT].list[k]) % n + n) % n;
        }
        r->result[0].data[graph_reference_at(x, to)] = x->data[graph_reference_at(x, at)];
    }
}

static void reference_tile(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, at) {
        for (int i = 0; i < x->rank; i++) from[i] = at[i] % x->dim[i];
        y->data[graph_reference_at(y, at)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_trilu(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int64_t at[DLC_MAX_RANK] = {0}, k = r->attribute[TRILU_DIAGONAL].integer;
    GRAPH_REFERENCE_EACH(x, at) {
        int64_t apart = at[x->rank - 1] - at[x->rank - 2], i = graph_reference_at(x, at);
        bool kept = r->attribute[TRILU_UPPER].integer ? apart >= k : apart <= k;
        r->result[0].data[i] = kept ? x->data[i] : 0;
    }
}

static void reference_eye(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    for (int64_t i = 0; i < graph_reference_count(y); i++)
        y->data[i] = i % y->dim[1] - i / y->dim[1] == r->attribute[EYE_DIAGONAL].integer;
}

#endif

/* ---- rows */

#define FORM(name_, inputs_, operands_, dtypes_) \
    COMPOSITE_ROW(name_, inputs_, inputs_, 1, operands_, dtypes_), .infer = infer_##name_
#define BLOCK_ATTRIBUTES                                                                        \
    {"block", GRAPH_ATTR_INTEGER, NULL, NULL, "side of the blocks"}, {                          \
        "mode", GRAPH_ATTR_ENUM, "depth_first column_first", "depth_first",                     \
            "which varies slowest in the deep channels: the place in the block, or the channel" \
    }

static const graph_op row_depth_to_space = {
    FORM(depth_to_space, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {BLOCK_ATTRIBUTES},
    .samples = "depth_to_space(T[2, 8, 3, 5], block=2)\ndepth_to_space(T[1, 18, 2, 3], block=3, mode=column_first)\n"
               "depth_to_space(T[0, 4, 2, 2], block=2)\ndepth_to_space(T[1, 3, 2, 2], block=1)",
    .doc =
        "Channels in blocks of block^2 become squares of space: x [batch, block^2*channels, height, width]; y[n, c, h*block + i, w*block + j] = x[n, (i*block + j)*channels + c, h, w], with column_first x[n, (c*block + i)*block + j, h, w]. mode=column_first is "
        "PixelShuffle. ONNX DepthToSpace (DCR, CRD).",
};
static const graph_op row_space_to_depth = {
    FORM(space_to_depth, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {BLOCK_ATTRIBUTES},
    .samples = "space_to_depth(T[2, 2, 6, 10], block=2)\nspace_to_depth(T[1, 2, 6, 9], block=3, mode=column_first)\n"
               "space_to_depth(T[1, 0, 4, 2], block=2)",
    .doc = "Squares of space become channels, the inverse of depth_to_space: x [batch, channels, height, width]. ONNX "
           "SpaceToDepth; mode=column_first is PixelUnshuffle.",
};
static const graph_op row_roll = {
    FORM(roll, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"shift", GRAPH_ATTR_INTEGERS, NULL, NULL, "by how many elements, one for each of the axes"},
                  {"axes", GRAPH_ATTR_INTEGERS, NULL, NULL, "axes to roll"}},
    .bound = GRAPH_REFERENCE(graph_bound_picked),
    .samples = "roll(T[5, 7], shift=[2, -3], axes=[0, 1])\nroll(T[13], shift=[40], axes=[-1])\n"
               "roll(T[3, 0], shift=[1], axes=[1])\nroll(T[4, 3], shift=[0], axes=[0])\nroll(T[], shift=[], axes=[])",
    .doc = "y[(i + shift) mod n] = x[i] along each of the axes. NumPy roll.",
};
static const graph_op row_tile = {
    FORM(tile, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"repeats", GRAPH_ATTR_DIMS, NULL, NULL, "how often x stands along each dimension"}},
    .bound = GRAPH_REFERENCE(graph_bound_picked),
    .samples = "tile(T[3, 5], repeats=[2, 3])\ntile(T[7], repeats=[1])\ntile(T[2, 1, 3], repeats=[1, 4, 2])\n"
               "tile(T[3, 2], repeats=[0, 2])\ntile(T[], repeats=[])",
    .doc = "x repeated side by side: y[i...] = x[i mod d...]. ONNX Tile.",
};
static const graph_op row_trilu = {
    FORM(trilu, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"upper", GRAPH_ATTR_BOOL, NULL, "true",
                   "keep what lies on and above the diagonal; else on and below"},
                  {"diagonal", GRAPH_ATTR_INTEGER, NULL, "0", "number of the diagonal: column less row"}},
    .bound = GRAPH_REFERENCE(graph_bound_picked),
    .samples =
        "trilu(T[5, 7])\ntrilu(T[2, 6, 4], upper=false, diagonal=-1)\ntrilu(T[3, 3], diagonal=2)\ntrilu(T[0, 3])\n"
        "trilu(T[3, 3], diagonal=-9223372036854775807)\ntrilu(T[3, 3], upper=false, diagonal=9223372036854775807)",
    .doc = "Matrices of the last two dimensions with 0 below (or above) a diagonal. ONNX Trilu.",
};
static const graph_op row_eye = {
    FORM(eye, 0, "", NULL),
    GRAPH_NO_GRADIENT,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "rows and columns"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"},
                  {"diagonal", GRAPH_ATTR_INTEGER, NULL, "0", "number of the diagonal: column less row"}},
    .samples =
        "eye(shape=[5, 7])\neye(shape=[4, 4], dtype=i32, diagonal=1)\neye(shape=[3, 5], dtype=bool, diagonal=-2)\n"
        "eye(shape=[0, 3])",
    .doc = "1 on a diagonal, else 0. ONNX EyeLike.",
};

const graph_op *const graph_ops_rearrange[] = {
    &row_depth_to_space, &row_space_to_depth, &row_roll, &row_tile, &row_trilu, &row_eye, NULL};
