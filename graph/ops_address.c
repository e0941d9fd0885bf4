/* Composites whose addresses are given by a formula or by data: reversed sequences, positions in sorted lines, images assembled
 * from columns, axes cropped or padded around their centre. Gathers and scatters keep indices in range. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- reverse_sequence */

enum { REVERSE_AXIS, REVERSE_BATCH };

static void infer_reverse_sequence(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *lengths = &infer->operand[1];
    int axis = graph_infer_axis(infer, infer->attribute[REVERSE_AXIS].integer, x->rank, "axis");
    int batch = graph_infer_axis(infer, infer->attribute[REVERSE_BATCH].integer, x->rank, "batch_axis");
    if (axis == batch) graph_infer_fail(infer, "axis and batch_axis are both %d", axis);
    if (lengths->dtype != DLC_I32 && lengths->dtype != DLC_I64)
        graph_infer_fail(infer, "lengths is %s, expected i32 or i64", lib_dtypes[lengths->dtype].name);
    graph_infer_rank(infer, 1, 1);
    graph_infer_equal(infer, lengths->dim[0], x->dim[batch], "number of lengths and of sequences");
    infer->result[0] = *x;
}

static void expand_reverse_sequence(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    int axis = graph_axis_of(e->attribute[REVERSE_AXIS].integer, shape.rank);
    int64_t batch = graph_axis_of(e->attribute[REVERSE_BATCH].integer, shape.rank);
    graph_id all = graph_dimension(g, DLC_I64, shape.dim[axis]);
    graph_id length = graph_min(g, graph_cast(g, e->input[1], DLC_I64), all);
    length = graph_broadcast(g, length, shape.rank, shape.dim, &batch);
    graph_id at = graph_iota(g, DLC_I64, shape.rank, shape.dim, axis);
    graph_id turned = graph_sub(g, graph_sub(g, length, graph_whole_number(g, 1)), at);
    graph_id from = graph_select(g, graph_lt(g, at, length), turned, at);
    e->result[0] = graph_gather_elements(g, e->input[0], from, axis);
}

/* ---- search_sorted: the position at which a value would be inserted into a sorted line */

enum { SEARCH_RIGHT, SEARCH_DTYPE };

static void infer_search_sorted(graph_infer *infer) {
    const graph_shape *line = &infer->operand[0], *values = &infer->operand[1];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[SEARCH_DTYPE].integer;
    graph_infer_same_dtype(infer, 0, 2);
    if (line->rank < 1) graph_infer_fail(infer, "sorted has rank 0, expected at least 1");
    if (dtype != DLC_I32 && dtype != DLC_I64)
        graph_infer_fail(infer, "dtype is %s, expected i32 or i64", lib_dtypes[dtype].name);
    if (line->rank > 1) {
        graph_infer_rank(infer, 1, line->rank);
        for (int i = 0; i < line->rank - 1; i++)
            graph_infer_equal(infer, line->dim[i], values->dim[i], "leading dimensions of sorted and values");
    }
    graph_infer_sum(infer, line->dim[line->rank - 1], tir_index(infer->g->pool, 1));
    infer->result[0] = *values;
    infer->result[0].dtype = dtype;
}

/* Binary search, without a loop: for falling k, the position grows by 2^k if the element before the new position comes before the value.
 * Steps that the size, once it is bound, rules out are folded away. */
static void expand_search_sorted(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    graph_id line = e->input[0], values = e->input[1];
    const graph_shape lines = *graph_shape_of(g, line), shape = *graph_shape_of(g, values);
    const int last = lines.rank - 1;
    tir_expr size = lines.dim[last];
    const tir_interval range = tir_range(pool, size);
    graph_id place = graph_full(g, DLC_I64, shape.rank, shape.dim, 0), all = graph_dimension(g, DLC_I64, size);
    if (range.low < 1) { /* gathers need at least one element */
        int64_t none[DLC_MAX_RANK] = {0}, one[DLC_MAX_RANK] = {0};
        one[last] = 1;
        line = graph_pad(g, line, graph_scalar_like(g, line, 0), none, one);
    }
    for (int k = 61; k >= 0; k--) {
        if (INT64_C(1) << k > range.high) continue;
        graph_id next = graph_add(g, place, graph_whole_number(g, INT64_C(1) << k));
        graph_id at = graph_sub(g, next, graph_whole_number(g, 1));
        graph_id element = lines.rank > 1 ? graph_gather_elements(g, line, at, last) : graph_gather(g, line, at, last);
        graph_id before = e->attribute[SEARCH_RIGHT].integer ? graph_not(g, graph_is_before(g, values, element))
                                                             : graph_is_before(g, element, values);
        place = graph_select(g, graph_and(g, graph_le(g, next, all), before), next, place);
    }
    e->result[0] = graph_cast(g, place, (dlc_dtype)e->attribute[SEARCH_DTYPE].integer);
}

/* ---- col2im: sums overlapping blocks into images */

enum { COLUMNS_IMAGE, COLUMNS_BLOCK, COLUMNS_STRIDE, COLUMNS_LOW, COLUMNS_HIGH, COLUMNS_DILATION };
enum { COLUMNS_LIMIT = 1 << 20 }; /* limit for the numbers in its lists */

/* Number of blocks along dimension i of the image. */
static tir_expr blocks_along(const graph_infer *infer, int i) {
    tir_pool *pool = infer->g->pool;
    const graph_attribute *a = infer->attribute;
    int64_t span = graph_list_entry(&a[COLUMNS_DILATION], i, 1) * (a[COLUMNS_BLOCK].list[i] - 1) + 1;
    int64_t more = graph_list_entry(&a[COLUMNS_LOW], i, 0) + graph_list_entry(&a[COLUMNS_HIGH], i, 0) - span;
    tir_expr room = graph_infer_sum(infer, a[COLUMNS_IMAGE].dims[i], tir_index(pool, more));
    graph_infer_at_most(infer, tir_index(pool, 0), room, "a block is larger than the padded image");
    tir_expr steps = tir_div(pool, room, tir_index(pool, graph_list_entry(&a[COLUMNS_STRIDE], i, 1)));
    return tir_add(pool, steps, tir_index(pool, 1));
}

static void infer_col2im(graph_infer *infer) {
    static const struct {
        int attribute;
        const char *name;
        int64_t least;
    } lists[] = {{COLUMNS_BLOCK, "block", 1},
                 {COLUMNS_STRIDE, "stride", 1},
                 {COLUMNS_LOW, "low", 0},
                 {COLUMNS_HIGH, "high", 0},
                 {COLUMNS_DILATION, "dilation", 1}};
    tir_pool *pool = infer->g->pool;
    const graph_shape *x = &infer->operand[0];
    const graph_attribute *image = &infer->attribute[COLUMNS_IMAGE];
    const int dims = image->count;
    graph_infer_rank(infer, 0, 3);
    if (dims < 1 || 2 * dims > DLC_MAX_RANK)
        graph_infer_fail(infer, "image has %d dimensions, expected 1 to %d", dims, DLC_MAX_RANK / 2);
    if (infer->attribute[COLUMNS_BLOCK].count != dims)
        graph_infer_fail(infer, "block has %d entries, expected %d", infer->attribute[COLUMNS_BLOCK].count, dims);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const graph_attribute *list = &infer->attribute[lists[k].attribute];
        graph_infer_list(infer, list, dims, lists[k].name);
        for (int i = 0; i < list->count; i++)
            if (list->list[i] < lists[k].least || list->list[i] > COLUMNS_LIMIT)
                graph_infer_fail(infer, "%s of dimension %d is %lld, expected %lld to %d", lists[k].name, i,
                                 (long long)list->list[i], (long long)lists[k].least, COLUMNS_LIMIT);
    }
    tir_expr elements = tir_index(pool, 1), blocks[DLC_MAX_RANK];
    for (int i = 0; i < dims; i++) {
        tir_expr own[2] = {elements, tir_index(pool, infer->attribute[COLUMNS_BLOCK].list[i])};
        elements = graph_infer_product(infer, 2, own);
        graph_infer_at_most(infer, tir_index(pool, 0), image->dims[i], "a dimension of image is negative");
        blocks[i] = blocks_along(infer, i);
    }
    graph_infer_equal(infer, x->dim[2], graph_infer_product(infer, dims, blocks),
                      "columns of x and blocks of the image");
    tir_expr channels = tir_div(pool, x->dim[1], elements);
    graph_infer_equal(infer, x->dim[1], tir_mul(pool, channels, elements),
                      "rows of x and a multiple of a block's elements");
    graph_infer_product(infer, dims, image->dims);
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = 2 + dims, .dim = {x->dim[0], channels}};
    for (int i = 0; i < dims; i++) infer->result[0].dim[2 + i] = image->dims[i];
}

/* The row-major position in the image of each element of each block, -1 on padding: flat [count], in the order [block..., blocks...] of
 * both[2 * dims]. */
static graph_id block_places(graph_expand *e, int dims, const tir_expr *both, tir_expr count) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    graph_id place = graph_whole_number(g, 0), inside = 0;
    for (int i = 0; i < dims; i++) {
        graph_id step = graph_whole_number(g, graph_list_entry(&a[COLUMNS_STRIDE], i, 1));
        graph_id apart = graph_whole_number(g, graph_list_entry(&a[COLUMNS_DILATION], i, 1));
        graph_id at = graph_add(g, graph_mul(g, graph_iota(g, DLC_I64, 2 * dims, both, dims + i), step),
                                graph_mul(g, graph_iota(g, DLC_I64, 2 * dims, both, i), apart));
        at = graph_sub(g, at, graph_whole_number(g, graph_list_entry(&a[COLUMNS_LOW], i, 0)));
        graph_id size = graph_dimension(g, DLC_I64, a[COLUMNS_IMAGE].dims[i]);
        graph_id own = graph_and(g, graph_ge(g, at, graph_whole_number(g, 0)), graph_lt(g, at, size));
        inside = inside ? graph_and(g, inside, own) : own;
        place = graph_add(g, graph_mul(g, place, size), at);
    }
    return graph_reshape(g, graph_select(g, inside, place, graph_whole_number(g, -1)), 1, &count);
}

static void expand_col2im(graph_expand *e) {
    enum { COMBINE_ADD = 1 };
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape x = *graph_shape_of(g, e->input[0]);
    const int dims = a[COLUMNS_IMAGE].count;
    graph_infer none = {.g = g, .op = e->op, .inputs = e->inputs, .input = e->input, .attribute = a};
    tir_expr both[DLC_MAX_RANK], elements = tir_index(pool, 1), pixels = tir_index(pool, 1);
    for (int i = 0; i < dims; i++) {
        both[i] = tir_index(pool, a[COLUMNS_BLOCK].list[i]);
        both[dims + i] = blocks_along(&none, i);
        elements = tir_mul(pool, elements, both[i]);
        pixels = tir_mul(pool, pixels, a[COLUMNS_IMAGE].dims[i]);
    }
    tir_expr channels = tir_div(pool, x.dim[1], elements), count = tir_mul(pool, elements, x.dim[2]);
    graph_id columns = graph_reshape(g, graph_widen(g, e->input[0]), 3, (tir_expr[]){x.dim[0], channels, count});
    graph_id empty = graph_full(g, graph_shape_of(g, columns)->dtype, 3, (tir_expr[]){x.dim[0], channels, pixels}, 0);
    graph_setting setting[] = {graph_set_integer("axis", 2), graph_set_integer("combine", COMBINE_ADD)};
    graph_id y =
        graph_emit_with(g, "scatter", 3, (graph_id[]){empty, block_places(e, dims, both, count), columns}, 2, setting);
    graph_shape image = {.rank = 2 + dims, .dim = {x.dim[0], channels}};
    for (int i = 0; i < dims; i++) image.dim[2 + i] = a[COLUMNS_IMAGE].dims[i];
    e->result[0] = graph_cast(g, graph_reshape(g, y, image.rank, image.dim), x.dtype);
}

/* ---- center_crop_pad */

enum { CENTER_SHAPE, CENTER_AXES };

static int centred_axes(const graph_attribute *attribute, int rank, int *axes) {
    const graph_attribute *list = &attribute[CENTER_AXES];
    int count = list->count ? list->count : rank;
    for (int i = 0; i < count; i++) axes[i] = list->count ? graph_axis_of(list->list[i], rank) : i;
    return count;
}

static void infer_center_crop_pad(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[CENTER_SHAPE];
    int axes[DLC_MAX_RANK], rank = infer->operand[0].rank;
    graph_infer_axes(infer, &infer->attribute[CENTER_AXES], rank, "axes");
    int count = centred_axes(infer->attribute, rank, axes);
    if (shape->count != count)
        graph_infer_fail(infer, "shape has %d entries, expected one for each of %d axes", shape->count, count);
    infer->result[0] = infer->operand[0];
    for (int i = 0; i < count; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension of shape is negative");
        infer->result[0].dim[axes[i]] = shape->dims[i];
    }
}

/* x with a zero appended along the axis, so that a gather always has an element. */
static graph_id with_one_more(graph *g, graph_id x, int64_t axis) {
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    high[axis] = 1;
    return graph_pad(g, x, graph_scalar_like(g, x, 0), low, high);
}

/* Element i of n along an axis is x's element i + (size - n)/2, the division truncating; 0 outside of x. */
static void expand_center_crop_pad(graph_expand *e) {
    graph *g = e->g;
    int axes[DLC_MAX_RANK], rank = graph_shape_of(g, e->input[0])->rank;
    const int count = centred_axes(e->attribute, rank, axes);
    graph_id y = e->input[0];
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i];
        tir_expr to = e->attribute[CENTER_SHAPE].dims[i], from = graph_shape_of(g, y)->dim[axis];
        if (tir_equal(g->pool, to, from) == TIR_YES) continue;
        graph_id size = graph_dimension(g, DLC_I64, from), apart = graph_sub(g, size, graph_dimension(g, DLC_I64, to));
        graph_id at = graph_add(g, graph_iota(g, DLC_I64, 1, &to, 0), graph_div(g, apart, graph_whole_number(g, 2)));
        graph_id inside = graph_and(g, graph_ge(g, at, graph_whole_number(g, 0)), graph_lt(g, at, size));
        if (tir_range(g->pool, from).low < 1) y = with_one_more(g, y, axis);
        y = graph_gather(g, y, at, (int)axis);
        const graph_shape shape = *graph_shape_of(g, y);
        inside = graph_broadcast(g, inside, shape.rank, shape.dim, &axis);
        y = graph_select(g, inside, y, graph_full_like(g, y, 0));
    }
    e->result[0] = y;
}

/* ---- references */

#ifdef DLC_REFERENCE

static void reference_reverse_sequence(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    int axis = graph_axis_of(r->attribute[REVERSE_AXIS].integer, x->rank),
        batch = graph_axis_of(r->attribute[REVERSE_BATCH].integer, x->rank);
    int64_t at[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(x, at) {
        int64_t length = (int64_t)r->operand[1].data[at[batch]];
        if (length > x->dim[axis]) length = x->dim[axis];
        memcpy(from, at, sizeof from);
        if (at[axis] < length) from[axis] = length - 1 - at[axis];
        r->result[0].data[graph_reference_at(x, at)] = x->data[graph_reference_at(x, from)];
    }
}

static void reference_search_sorted(const graph_reference *r) {
    const graph_reference_tensor *line = &r->operand[0], *values = &r->operand[1];
    const int64_t n = line->dim[line->rank - 1], m = values->rank ? values->dim[values->rank - 1] : 1;
    for (int64_t i = 0; i < graph_reference_count(values); i++) {
        const double *from = line->data + (line->rank > 1 ? i / m * n : 0), v = values->data[i];
        int64_t low = 0, high = n; /* the same steps as the expansion, which define the result for unsorted lines */
        for (int64_t step = INT64_C(1) << 40; step; step /= 2) {
            if (low + step > high) continue;
            double a = from[low + step - 1];
            bool less = a < v || (isnan(v) && !isnan(a)), more = v < a || (isnan(a) && !isnan(v));
            if (r->attribute[SEARCH_RIGHT].integer ? !more : less) low += step;
        }
        r->result[0].data[i] = (double)low;
    }
}

static void reference_col2im(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    const graph_attribute *a = r->attribute;
    const int dims = y->rank - 2;
    int64_t blocks[DLC_MAX_RANK], elements = 1, to[DLC_MAX_RANK];
    for (int i = 0; i < dims; i++) {
        int64_t span = graph_list_entry(&a[COLUMNS_DILATION], i, 1) * (a[COLUMNS_BLOCK].list[i] - 1) + 1;
        blocks[i] = (y->dim[2 + i] + graph_list_entry(&a[COLUMNS_LOW], i, 0) +
                     graph_list_entry(&a[COLUMNS_HIGH], i, 0) - span) /
                        graph_list_entry(&a[COLUMNS_STRIDE], i, 1) +
                    1;
        elements *= a[COLUMNS_BLOCK].list[i];
    }
    for (int64_t at = 0; at < graph_reference_count(x); at++) {
        int64_t column = at % x->dim[2], row = at / x->dim[2] % x->dim[1], k = row % elements;
        bool inside = true;
        to[0] = at / x->dim[2] / x->dim[1];
        to[1] = row / elements;
        for (int i = dims - 1; i >= 0; i--) {
            to[2 + i] = column % blocks[i] * graph_list_entry(&a[COLUMNS_STRIDE], i, 1) +
                        k % a[COLUMNS_BLOCK].list[i] * graph_list_entry(&a[COLUMNS_DILATION], i, 1) -
                        graph_list_entry(&a[COLUMNS_LOW], i, 0);
            inside = inside && to[2 + i] >= 0 && to[2 + i] < y->dim[2 + i];
            column /= blocks[i], k /= a[COLUMNS_BLOCK].list[i];
        }
        if (!inside) continue;
        double *target = &y->data[graph_reference_at(y, to)];
        *target =
            graph_reference_integral(x->dtype)
                ? graph_reference_wrap(x->dtype, graph_reference_word(*target) + graph_reference_word(x->data[at]))
                : *target + x->data[at];
    }
}

static void reference_center_crop_pad(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    int64_t to[DLC_MAX_RANK] = {0}, from[DLC_MAX_RANK];
    GRAPH_REFERENCE_EACH(y, to) {
        bool inside = true;
        for (int i = 0; i < x->rank; i++) {
            int64_t cut = x->dim[i] > y->dim[i] ? (x->dim[i] - y->dim[i]) / 2 : -((y->dim[i] - x->dim[i]) / 2);
            from[i] = to[i] + cut;
            inside = inside && from[i] >= 0 && from[i] < x->dim[i];
        }
        y->data[graph_reference_at(y, to)] = inside ? x->data[graph_reference_at(x, from)] : 0;
    }
}

#endif

/* ---- rows */

#define FORM(name_, inputs_, operands_, dtypes_) \
    COMPOSITE_ROW(name_, inputs_, inputs_, 1, operands_, dtypes_), .infer = infer_##name_

static const graph_op row_reverse_sequence = {
    FORM(reverse_sequence, 2, "x lengths", "any"),
    .linear = 1,
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "0", "axis that the sequences run along"},
                  {"batch_axis", GRAPH_ATTR_INTEGER, NULL, "1", "axis of the sequences"}},
    .samples =
        "reverse_sequence(T[7, 3], i64[3] in 0..8)\nreverse_sequence(T[3, 11, 2], i32[3] in -2..15, axis=1, batch_axis=0)\n"
        "reverse_sequence(T[2, 3, 5], i64[2] in 0..6, axis=-1, batch_axis=0)\nreverse_sequence(T[0, 3], i64[3])\n"
        "reverse_sequence(T[1, 1], i32[1] in 0..2)",
    .doc =
        "y[t, b, ...] = x[lengths[b] - 1 - t, b, ...] for t < lengths[b], else x[t, b, ...]: the first elements of each sequence "
        "in reverse order. lengths: i32 or i64 [sequences]; beyond the axis they are its size. ONNX ReverseSequence.",
};
static const graph_op row_search_sorted = {
    FORM(search_sorted, 2, "sorted values", "number"),
    GRAPH_NO_GRADIENT,
    .attribute = {{"right", GRAPH_ATTR_BOOL, NULL, "false", "behind elements that equal the value; else before them"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "i64", "of the result: i32 or i64"}},
    .samples = "search_sorted(T[1] in 1..3, T[5, 7] in 0..4)\nsearch_sorted(T[1], T[13], right=true, dtype=i32)\n"
               "search_sorted(T[0], T[3, 2])\nsearch_sorted(T[2, 1] in 1..3, T[2, 9] in 0..4, right=true)\n"
               "search_sorted(T[37] in 1..2, T[11] in 0..3)\nsearch_sorted(T[100] in 0..1, T[] in 0..1, right=true)\n"
               "search_sorted(T[3, 2, 8] in 0..1, T[3, 2, 0])\nsearch_sorted(T[16] in 1..2, T[17] in 1..2, right=true)",
    .doc =
        "How many elements of a line of sorted come before values: y[i...] is the first place in the line at which the value can "
        "be put and the line stays in ascending order (right: the last). sorted [n], for values of any shape, or "
        "[..., n] for values [..., m] with the same leading dimensions; NaN comes last, as sort orders it. Of a line that "
        "is not in order the result is some place of 0 to n. By halves: log2(n) steps. NumPy searchsorted; PyTorch searchsorted, "
        "bucketize.",
};
static const graph_op row_col2im = {
    FORM(col2im, 1, "x", "number"),
    .linear = 1,
    .attribute = {{"image", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the images"},
                  {"block", GRAPH_ATTR_INTEGERS, NULL, NULL, "size of a block along each of them"},
                  {"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the blocks; empty: 1"},
                  {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before the image, which is dropped; empty: 0"},
                  {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after the image, which is dropped; empty: 0"},
                  {"dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a block; empty: 1"}},
    .tolerance = 1,
    .samples = "col2im(T[1, 5, 5], image=[5, 5], block=[1, 5])\ncol2im(T[2, 18, 12], image=[5, 6], block=[3, 3])\n"
               "col2im(T[1, 8, 12], image=[5, 6], block=[2, 2], stride=[2, 2], low=[1, 1], high=[0, 1])\n"
               "col2im(T[2, 3, 7], image=[11], block=[3], dilation=[2])\n"
               "col2im(T[1, 8, 8], image=[3, 3, 3], block=[2, 2, 2])\ncol2im(T[0, 4, 4], image=[3, 3], block=[2, 2])",
    .doc =
        "Images put together from their blocks, overlapping elements added in the order of rows of x and then of blocks: x "
        "[batch, channels * elements of a block, blocks], both in row-major order, result [batch, channels, image...]. The "
        "opposite of taking blocks out. f16 and bf16 add in f32 and round once. ONNX Col2Im; PyTorch Fold.",
};
static const graph_op row_center_crop_pad = {
    FORM(center_crop_pad, 1, "x", "any"),
    .linear = 1,
    .precision = GRAPH_FOLLOWS,
    .attribute = {{"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result along the axes"},
                  {"axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes that shape speaks of; empty: all"}},
    .samples = "center_crop_pad(T[10, 7], shape=[5, 12])\ncenter_crop_pad(T[3, 11, 2], shape=[4], axes=[1])\n"
               "center_crop_pad(T[2, 3], shape=[7, 4], axes=[-1, 0])\ncenter_crop_pad(T[], shape=[])\n"
               "center_crop_pad(T[5, 0], shape=[3, 0])\ncenter_crop_pad(T[1], shape=[8])\n"
               "center_crop_pad(T[2, 0], shape=[3, 4])",
    .doc =
        "The middle of x where it is larger than shape, x in the middle of zeros where it is smaller: along an axis of size s, "
        "element i of n is that of x at i + (s - n)/2, truncated; an empty axis becomes zeros. ONNX CenterCropPad.",
};

const graph_op *const graph_ops_address[] = {&row_reverse_sequence, &row_search_sorted, &row_col2im,
                                             &row_center_crop_pad, NULL};
