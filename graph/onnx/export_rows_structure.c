/* Rows that move elements: shapes, slices, padding, gathers and scatters. */
#include "graph/onnx/export.h"

#include "graph/build.h"

/* ---- complex numbers as pairs along a last dimension, bits of narrow types ------------------------------------------------------ */

static void export_part(onnx_export *ex, int64_t part) {
    onnx_label *y = ONNX_ADD(ex, "Gather", onnx_in(ex, 0), onnx_whole(ex, DLC_I64, part));
    onnx_set(ex, "axis", -1);
    onnx_export_give_label(ex, 0, y);
}
static void export_real(onnx_export *ex) {
    export_part(ex, 0);
}
static void export_imag(onnx_export *ex) {
    export_part(ex, 1);
}

static void export_complex(onnx_export *ex) {
    const int64_t last = -1;
    onnx_label *real = onnx_unsqueezed(ex, onnx_in(ex, 0), 1, &last);
    onnx_label *imag = onnx_unsqueezed(ex, onnx_in(ex, 1), 1, &last);
    onnx_label *y = ONNX_ADD(ex, "Concat", real, imag);
    onnx_set(ex, "axis", -1);
    onnx_export_give_label(ex, 0, y);
}

/* The result is the operand: both have one form in the file. */
static void export_same(onnx_export *ex) {
    onnx_export_give_label(ex, 0, onnx_in(ex, 0));
}

static bool has_codes(dlc_dtype dtype) {
    return dtype == DLC_F4E2M1 || dtype == DLC_F8E8M0;
}

/* unpack_bits and pack_bits of integers of 2 and 4 bits: a Cast to or from whole bytes gives the same numbers. */
static void export_bits_as_numbers(onnx_export *ex) {
    const dlc_dtype from = onnx_in_shape(ex, 0)->dtype, to = onnx_result_shape(ex, 0)->dtype;
    if (has_codes(from) || has_codes(to))
        onnx_refuse(ex, "ONNX has no operator for the bits of %s", lib_dtypes[has_codes(from) ? from : to].name);
    onnx_export_give_label(ex, 0, onnx_to(ex, onnx_in(ex, 0), onnx_result_shape(ex, 0)->dtype));
}

/* ---- shapes --------------------------------------------------------------------------------------------------------------------- */

static void export_reshape(onnx_export *ex) {
    const graph_shape *y = onnx_result_shape(ex, 0);
    onnx_export_give_label(ex, 0, onnx_shaped(ex, onnx_in(ex, 0), y->rank, y->dim));
}

static void export_transpose(onnx_export *ex) {
    const graph_attribute *permutation = onnx_row_attribute(ex, "permutation");
    int64_t axes[DLC_MAX_RANK];
    for (int d = 0; d < permutation->count; d++)
        axes[d] = permutation->list[d] < 0 ? permutation->list[d] + permutation->count : permutation->list[d];
    onnx_export_give_label(ex, 0, onnx_transposed(ex, onnx_in(ex, 0), permutation->count, axes));
}

/* Gives the result its narrow form: x with dimensions of 1 inserted where the result repeats, after x's first axis; ONNX's broadcasting,
 * aligned at the last dimension, does the rest. */
static void export_broadcast(onnx_export *ex) {
    const graph_attribute *axes = onnx_row_attribute(ex, "axes");
    const graph_shape *y = onnx_result_shape(ex, 0);
    int64_t permutation[DLC_MAX_RANK], ones[DLC_MAX_RANK];
    int from[DLC_MAX_RANK], rank = 0, missing = 0, first = -1;
    for (int d = 0; d < y->rank; d++) from[d] = -1;
    for (int i = 0; i < axes->count; i++) from[axes->list[i] < 0 ? axes->list[i] + y->rank : axes->list[i]] = i;
    for (int d = 0; d < y->rank; d++) {
        if (from[d] >= 0) permutation[rank++] = from[d];
        if (from[d] >= 0 && first < 0) first = d;
        if (from[d] < 0 && first >= 0) ones[missing++] = d - first;
    }
    onnx_label *x = onnx_transposed(ex, onnx_in(ex, 0), rank, permutation);
    onnx_give_narrow(ex, 0, onnx_unsqueezed(ex, x, missing, ones));
}

static void export_concat(onnx_export *ex) {
    onnx_label **part = LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)ex->node->inputs + 1);
    for (int i = 0; i < ex->node->inputs; i++) part[i] = onnx_in(ex, i);
    onnx_label *y = onnx_add(ex, "Concat", ex->node->inputs, part);
    onnx_set(ex, "axis", onnx_row_axis(ex, "axis", onnx_result_shape(ex, 0)->rank));
    onnx_export_give_label(ex, 0, y);
}

static void export_tile(onnx_export *ex) {
    const graph_attribute *repeats = onnx_row_attribute(ex, "repeats");
    onnx_label *sizes = onnx_sizes(ex, repeats->count, repeats->dims);
    onnx_export_give_label(ex, 0, ONNX_ADD(ex, "Tile", onnx_in(ex, 0), sizes));
}

static void export_trilu(onnx_export *ex) {
    onnx_label *y = ONNX_ADD(ex, "Trilu", onnx_in(ex, 0), onnx_whole(ex, DLC_I64, onnx_row_int(ex, "diagonal")));
    onnx_set(ex, "upper", onnx_row_int(ex, "upper"));
    onnx_export_give_label(ex, 0, y);
}

static void export_depth_to_space(onnx_export *ex) {
    onnx_label *y = ONNX_ADD(ex, "DepthToSpace", onnx_in(ex, 0));
    onnx_set(ex, "blocksize", onnx_row_int(ex, "block"));
    onnx_set_text(ex, "mode", onnx_row_int(ex, "mode") ? "CRD" : "DCR");
    onnx_export_give_label(ex, 0, y);
}

static bool is_depth_first(const graph *g, const graph_node *node) {
    (void)g;
    return onnx_attribute_named(node, "mode")->integer == 0;
}

/* ---- slices and padding --------------------------------------------------------------------------------------------------------- */

static void export_reverse(onnx_export *ex) {
    const graph_attribute *axes = onnx_row_attribute(ex, "axes");
    int64_t ones[DLC_MAX_RANK], ends[DLC_MAX_RANK];
    if (axes->count == 0) {
        onnx_export_give_label(ex, 0, onnx_in(ex, 0));
        return;
    }
    for (int i = 0; i < axes->count; i++) ones[i] = -1, ends[i] = INT64_MIN;
    onnx_label *from = onnx_list(ex, axes->count, ones), *to = onnx_list(ex, axes->count, ends);
    onnx_export_give_label(
        ex, 0, ONNX_ADD(ex, "Slice", onnx_in(ex, 0), from, to, onnx_list(ex, axes->count, axes->list), from));
}

static void export_slice(onnx_export *ex) {
    const graph_attribute *start = onnx_row_attribute(ex, "start"), *stop = onnx_row_attribute(ex, "stop"),
                          *step = onnx_row_attribute(ex, "step");
    const graph_shape *x = onnx_in_shape(ex, 0);
    tir_expr from[DLC_MAX_RANK], to[DLC_MAX_RANK];
    int64_t axes[DLC_MAX_RANK], steps[DLC_MAX_RANK], value;
    int count = 0;
    bool strided = false;
    for (int d = 0; d < x->rank; d++) {
        const int64_t own = step->count ? step->list[d] : 1;
        const bool whole =
            own == 1 && tir_is_const(ex->g->pool, start->dims[d], &value) && value == 0 && stop->dims[d] == x->dim[d];
        if (whole) continue;
        from[count] = start->dims[d], to[count] = stop->dims[d], axes[count] = d, steps[count] = own;
        strided |= own != 1;
        count++;
    }
    onnx_label *y = onnx_in(ex, 0);
    if (count) {
        onnx_label *lows = onnx_sizes(ex, count, from), *highs = onnx_sizes(ex, count, to);
        y = ONNX_ADD(ex, "Slice", y, lows, highs, onnx_list(ex, count, axes),
                     strided ? onnx_list(ex, count, steps) : NULL);
    }
    onnx_export_give_label(ex, 0, y);
}

static onnx_label *padded(onnx_export *ex, onnx_label *x, onnx_label *value, int rank, const int64_t *low,
                          const int64_t *high) {
    int64_t pads[2 * DLC_MAX_RANK];
    bool any = false;
    for (int d = 0; d < rank; d++) pads[d] = low[d], pads[rank + d] = high[d], any |= low[d] || high[d];
    return any ? ONNX_ADD(ex, "Pad", x, onnx_list(ex, 2 * rank, pads), value) : x;
}

/* x with `count` copies of value between its elements along the axis: they are padded along a new dimension, which is merged with the axis; those
 * after the last element are cut off. Updates *shape. */
static onnx_label *interleaved(onnx_export *ex, onnx_label *x, onnx_label *value, graph_shape *shape, int axis,
                               int64_t count) {
    const int64_t behind = axis + 1, none = 0, end = -count;
    int64_t pads[2 * (DLC_MAX_RANK + 1)] = {0};
    pads[shape->rank + 1 + behind] = count;
    x = onnx_unsqueezed(ex, x, 1, &behind);
    x = ONNX_ADD(ex, "Pad", x, onnx_list(ex, 2 * (shape->rank + 1), pads), value);
    tir_pool *pool = ex->g->pool;
    shape->dim[axis] = tir_mul(pool, shape->dim[axis], tir_index(pool, count + 1));
    x = onnx_sliced(ex, onnx_shaped(ex, x, shape->rank, shape->dim), axis, onnx_list(ex, 1, &none),
                    onnx_list(ex, 1, &end));
    shape->dim[axis] = tir_max(pool, tir_sub(pool, shape->dim[axis], tir_index(pool, count)), tir_index(pool, 0));
    return x;
}

static void export_pad(onnx_export *ex) {
    const graph_attribute *low = onnx_row_attribute(ex, "low"), *high = onnx_row_attribute(ex, "high"),
                          *interior = onnx_row_attribute(ex, "interior");
    graph_shape shape = *onnx_in_shape(ex, 0);
    onnx_label *x = onnx_in(ex, 0), *value = onnx_in(ex, 1);
    for (int d = 0; d < interior->count; d++)
        if (interior->list[d]) x = interleaved(ex, x, value, &shape, d, interior->list[d]);
    onnx_export_give_label(ex, 0, padded(ex, x, value, shape.rank, low->list, high->list));
}

enum { EDGE, REFLECT, WRAP };

/* The index of the element of an axis of n elements for padded position i, i64[...]: the nearest (EDGE), cyclic (WRAP), or reflected one. */
static onnx_label *repeated(onnx_export *ex, int64_t mode, onnx_label *i, tir_expr n) {
    tir_pool *pool = ex->g->pool;
    const tir_expr one = tir_index(pool, 1), last = tir_sub(pool, n, one);
    if (mode == EDGE) return onnx_clamped(ex, i, onnx_whole(ex, DLC_I64, 0), onnx_size(ex, last));
    if (mode == WRAP) return ONNX_ADD(ex, "Mod", i, onnx_size(ex, n));
    onnx_label *period = onnx_size(ex, tir_max(pool, tir_mul(pool, last, tir_index(pool, 2)), one));
    i = ONNX_ADD(ex, "Mod", i, period);
    return ONNX_ADD(ex, "Min", i, ONNX_ADD(ex, "Sub", period, i));
}

/* Can ONNX's Pad pad so: no negative padding, no WRAP, and reflections shorter than the axis? */
static bool is_plain(const onnx_export *ex, int64_t mode, tir_expr n, int64_t low, int64_t high) {
    int64_t size;
    if (low < 0 || high < 0 || mode == WRAP) return false;
    return mode == EDGE || (tir_is_const(ex->g->pool, n, &size) && low < size && high < size);
}

static void export_pad_repeat(onnx_export *ex) {
    static const char *const modes[] = {"edge", "reflect", "wrap"};
    const int64_t mode = onnx_row_int(ex, "mode");
    const graph_shape *x = onnx_in_shape(ex, 0), *y = onnx_result_shape(ex, 0);
    const int64_t *low = onnx_row_attribute(ex, "low")->list, *high = onnx_row_attribute(ex, "high")->list;
    onnx_label *label = onnx_in(ex, 0);
    bool plain = true;
    for (int d = 0; d < x->rank; d++) plain &= is_plain(ex, mode, x->dim[d], low[d], high[d]);
    if (plain) {
        onnx_label *made = padded(ex, label, NULL, x->rank, low, high);
        if (made != label) onnx_set_text(ex, "mode", modes[mode]);
        label = made;
    }
    for (int d = 0; d < x->rank && !plain; d++) {
        if (!low[d] && !high[d]) continue;
        onnx_label *i = ONNX_ADD(ex, "Sub", onnx_export_counted(ex, y->dim[d]), onnx_whole(ex, DLC_I64, low[d]));
        label = ONNX_ADD(ex, "Gather", label, repeated(ex, mode, i, x->dim[d]));
        onnx_set(ex, "axis", d);
    }
    onnx_export_give_label(ex, 0, label);
}

static void export_cut(onnx_export *ex) {
    onnx_label *count = onnx_to(ex, onnx_in(ex, 0), DLC_I64), *zero = onnx_list(ex, 1, (int64_t[]){0});
    count = onnx_unsqueezed(ex, count, 1, (int64_t[]){0});
    for (int i = 1; i < ex->node->inputs; i++)
        onnx_export_give_label(ex, i - 1, onnx_sliced(ex, onnx_in(ex, i), 0, zero, count));
}

/* ---- gathers ----------------------------------------------------------------------------------------------------------------------- */

/* The operand as i64; u64 beyond i64 become the greatest i64. */
static onnx_label *as_i64(onnx_export *ex, int operand) {
    const dlc_dtype dtype = onnx_in_shape(ex, operand)->dtype;
    onnx_label *x = onnx_in(ex, operand);
    if (dtype == DLC_U64) x = ONNX_ADD(ex, "Min", x, onnx_whole(ex, DLC_U64, INT64_MAX));
    return dtype == DLC_I64 ? x : onnx_to(ex, x, DLC_I64);
}

/* Are the indices constants from 0 to the dimension less 1? */
static bool are_inside(const onnx_export *ex, int operand, tir_expr dim) {
    const graph_constant *constant = graph_constant_of(ex->g, ex->node->input[operand]);
    const dlc_dtype dtype = onnx_in_shape(ex, operand)->dtype;
    int64_t size;
    if (!constant || !tir_is_const(ex->g->pool, dim, &size)) return false;
    const char *bytes = graph_constant_bytes(ex->arena->scope, constant);
    for (size_t at = 0; at < constant->size; at += lib_dtype_size(dtype)) {
        const int64_t index = lib_element_get_i64(dtype, bytes + at);
        if (index < 0 || index >= size) return false;
    }
    return true;
}

static onnx_label *last_index(onnx_export *ex, tir_expr dim) {
    return onnx_size(ex, tir_sub(ex->g->pool, dim, tir_index(ex->g->pool, 1)));
}

/* The indices as i64, clamped to the dimension. */
static onnx_label *clamped_indices(onnx_export *ex, int operand, tir_expr dim) {
    onnx_label *x = as_i64(ex, operand), *zero = onnx_whole(ex, DLC_I64, 0);
    return are_inside(ex, operand, dim) ? x : onnx_clamped(ex, x, zero, last_index(ex, dim));
}

/* x with rank 0 again if `rank` is 0: Min and Max with i64[1] have made it i64[1]. */
static onnx_label *of_rank(onnx_export *ex, onnx_label *x, int rank) {
    return rank ? x : ONNX_ADD(ex, "Reshape", x, onnx_list(ex, 0, NULL));
}

static void export_gather(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0);
    const int axis = onnx_row_axis(ex, "axis", x->rank);
    onnx_label *indices = of_rank(ex, clamped_indices(ex, 1, x->dim[axis]), onnx_in_shape(ex, 1)->rank);
    onnx_label *y = ONNX_ADD(ex, "Gather", onnx_in(ex, 0), indices);
    onnx_set(ex, "axis", axis);
    onnx_export_give_label(ex, 0, y);
}

static void export_gather_elements(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0);
    const int axis = onnx_row_axis(ex, "axis", x->rank);
    onnx_label *y = ONNX_ADD(ex, "GatherElements", onnx_in(ex, 0), clamped_indices(ex, 1, x->dim[axis]));
    onnx_set(ex, "axis", axis);
    onnx_export_give_label(ex, 0, y);
}

/* The number of axes that an entry of the indices addresses. */
static int addressed(const onnx_export *ex, int operand) {
    const graph_shape *indices = onnx_in_shape(ex, operand);
    int64_t count = 0;
    tir_is_const(ex->g->pool, indices->dim[indices->rank - 1], &count);
    return (int)count;
}

static void export_gather_nd(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0);
    const int batch = (int)onnx_row_int(ex, "batch"), count = addressed(ex, 1);
    tir_expr last[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) last[i] = tir_sub(ex->g->pool, x->dim[batch + i], tir_index(ex->g->pool, 1));
    onnx_label *indices = as_i64(ex, 1);
    if (count == 0) {
        onnx_refuse(ex, "indices that address no axis");
        return;
    }
    indices = onnx_clamped(ex, indices, onnx_whole(ex, DLC_I64, 0), onnx_sizes(ex, count, last));
    onnx_label *y = ONNX_ADD(ex, "GatherND", onnx_in(ex, 0), indices);
    if (batch) onnx_set(ex, "batch_dims", batch);
    onnx_export_give_label(ex, 0, y);
}

/* ---- windows at a position that is computed -------------------------------------------------------------------------------------------- */

typedef struct place {
    int count;
    int axis[DLC_MAX_RANK];
    /* By entry: the indices along the axis, i64[size]. */
    onnx_label *index[DLC_MAX_RANK];
} place;

/* The window of size[] at the start that the operand gives: for each axis the indices start + 0, 1, ..., start clamped so that the window is
 * inside x. */
static place place_of(onnx_export *ex, int operand, const graph_shape *x, const tir_expr *size) {
    const graph_attribute *axes = onnx_row_attribute(ex, "axes");
    place p = {.count = axes->count ? axes->count : x->rank};
    onnx_label *start = as_i64(ex, operand), *zero = onnx_whole(ex, DLC_I64, 0);
    if (onnx_in_shape(ex, operand)->rank == 0) start = onnx_unsqueezed(ex, start, 1, (int64_t[]){0});
    for (int i = 0; i < p.count; i++) {
        const int64_t given = axes->count ? axes->list[i] : i;
        p.axis[i] = (int)(given < 0 ? given + x->rank : given);
        onnx_label *own = ONNX_ADD(ex, "Gather", start, onnx_list(ex, 1, (int64_t[]){i}));
        own = onnx_clamped(ex, own, zero, onnx_size(ex, tir_sub(ex->g->pool, x->dim[p.axis[i]], size[i])));
        p.index[i] = ONNX_ADD(ex, "Add", own, onnx_export_counted(ex, size[i]));
    }
    return p;
}

static void export_dynamic_slice(onnx_export *ex) {
    const place p = place_of(ex, 1, onnx_in_shape(ex, 0), onnx_row_attribute(ex, "size")->dims);
    onnx_label *y = onnx_in(ex, 0);
    for (int i = 0; i < p.count; i++) {
        y = ONNX_ADD(ex, "Gather", y, p.index[i]);
        onnx_set(ex, "axis", p.axis[i]);
    }
    onnx_export_give_label(ex, 0, y);
}

/* The permutation that brings those axes to the front, and its inverse. */
static void to_front(int rank, int count, const int *axis, int64_t *permutation, int64_t *inverse) {
    int at = 0;
    for (int i = 0; i < count; i++) permutation[at++] = axis[i];
    for (int d = 0; d < rank; d++) {
        bool taken = false;
        for (int i = 0; i < count; i++) taken |= axis[i] == d;
        if (!taken) permutation[at++] = d;
    }
    for (int d = 0; d < rank; d++) inverse[permutation[d]] = d;
}

/* The positions of all elements of the window, i64[size[0], ..., count]. */
static onnx_label *grid_of(onnx_export *ex, const place *p, const tir_expr *size) {
    onnx_label *part[DLC_MAX_RANK];
    tir_expr dims[DLC_MAX_RANK + 1];
    for (int i = 0; i < p->count; i++) dims[i] = size[i];
    dims[p->count] = tir_index(ex->g->pool, 1);
    for (int i = 0; i < p->count; i++) {
        int64_t behind[DLC_MAX_RANK];
        for (int k = 0; k < p->count - i; k++) behind[k] = k + 1;
        part[i] = onnx_stretched(ex, onnx_unsqueezed(ex, p->index[i], p->count - i, behind), p->count + 1, dims);
    }
    if (p->count == 1) return part[0];
    onnx_label *grid = onnx_add(ex, "Concat", p->count, part);
    onnx_set(ex, "axis", p->count);
    return grid;
}

static void export_dynamic_update(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0), *update = onnx_in_shape(ex, 1);
    const graph_attribute *axes = onnx_row_attribute(ex, "axes");
    tir_expr size[DLC_MAX_RANK];
    int64_t permutation[DLC_MAX_RANK], inverse[DLC_MAX_RANK];
    for (int i = 0; i < (axes->count ? axes->count : x->rank); i++) {
        const int64_t axis = axes->count ? axes->list[i] : i;
        size[i] = update->dim[axis < 0 ? axis + x->rank : axis];
    }
    const place p = place_of(ex, 2, x, size);
    if (p.count == 0) {
        onnx_export_give_label(ex, 0, onnx_in(ex, 1));
        return;
    }
    to_front(x->rank, p.count, p.axis, permutation, inverse);
    onnx_label *to = onnx_transposed(ex, onnx_in(ex, 0), x->rank, permutation);
    onnx_label *from = onnx_transposed(ex, onnx_in(ex, 1), x->rank, permutation);
    onnx_label *y = ONNX_ADD(ex, "ScatterND", to, grid_of(ex, &p, size), from);
    onnx_export_give_label(ex, 0, onnx_transposed(ex, y, x->rank, inverse));
}

/* ---- scatters -------------------------------------------------------------------------------------------------------------------------- */

enum { SET, ADD, MUL, MIN, MAX, AND, OR, XOR };

/* Bools are combined as numbers: and is the least, or the greatest, xor the sum modulo 2. */
typedef struct scattering {
    int combine;
    bool logical, possible;
    onnx_label *x, *updates;
    /* The value's shape; one row more along the first axes, for updates that are dropped. */
    graph_shape shape;
} scattering;

static scattering begin_scatter(onnx_export *ex, onnx_label *x, onnx_label *updates) {
    scattering s = {.combine = (int)onnx_row_int(ex, "combine"), .possible = true, .shape = *onnx_in_shape(ex, 0)};
    s.logical = s.shape.dtype == DLC_BOOL && s.combine != SET;
    s.possible = s.logical || s.combine < AND;
    if (!s.possible) onnx_refuse(ex, "ONNX's scatters combine no bits of integers");
    if (s.combine >= MIN) onnx_need(ex, 18);
    s.x = s.logical ? onnx_to(ex, x, DLC_I32) : x;
    s.updates = s.logical ? onnx_to(ex, updates, DLC_I32) : updates;
    return s;
}

static void set_reduction(onnx_export *ex, const scattering *s) {
    static const char *const words[] = {NULL, "add", "mul", "min", "max", "min", "max", "add"};
    if (words[s->combine]) onnx_set_text(ex, "reduction", words[s->combine]);
}

/* x padded by one element at the end of these axes, to which dropped updates are written. */
static onnx_label *with_room(onnx_export *ex, onnx_label *x, int rank, int count, const int *axis) {
    int64_t pads[2 * DLC_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) pads[rank + axis[i]] = 1;
    return ONNX_ADD(ex, "Pad", x, onnx_list(ex, 2 * rank, pads));
}

static onnx_label *without_room(onnx_export *ex, onnx_label *y, int count, const int *axis) {
    int64_t from[DLC_MAX_RANK] = {0}, to[DLC_MAX_RANK], axes[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) to[i] = -1, axes[i] = axis[i];
    return ONNX_ADD(ex, "Slice", y, onnx_list(ex, count, from), onnx_list(ex, count, to), onnx_list(ex, count, axes));
}

/* The indices, where those out of range are `size`: the position to which dropped updates are written. */
static onnx_label *dropped_outside(onnx_export *ex, int operand, onnx_label *size) {
    onnx_label *indices = ONNX_ADD(ex, "Min", as_i64(ex, operand), size);
    return ONNX_ADD(ex, "Where", ONNX_ADD(ex, "Less", indices, onnx_whole(ex, DLC_I64, 0)), size, indices);
}

static void end_scatter(onnx_export *ex, const scattering *s, onnx_label *y) {
    if (s->logical && s->combine == XOR) y = ONNX_ADD(ex, "Mod", y, onnx_whole(ex, DLC_I32, 2));
    onnx_export_give_label(ex, 0, s->logical ? onnx_to(ex, y, DLC_BOOL) : y);
}

static void export_scatter_elements(onnx_export *ex) {
    scattering s = begin_scatter(ex, onnx_in(ex, 0), onnx_in(ex, 2));
    const int axis = onnx_row_axis(ex, "axis", s.shape.rank);
    const bool inside = are_inside(ex, 1, s.shape.dim[axis]);
    if (!s.possible) return;
    onnx_label *indices = inside ? as_i64(ex, 1) : NULL;
    if (!inside) {
        indices = dropped_outside(ex, 1, onnx_size(ex, s.shape.dim[axis]));
        s.x = with_room(ex, s.x, s.shape.rank, 1, &axis);
    }
    onnx_label *y = ONNX_ADD(ex, "ScatterElements", s.x, indices, s.updates);
    onnx_set(ex, "axis", axis);
    set_reduction(ex, &s);
    end_scatter(ex, &s, inside ? y : without_room(ex, y, 1, &axis));
}

static onnx_label *scatter_nd(onnx_export *ex, const scattering *s, onnx_label *indices, int count) {
    int axis[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) axis[i] = i;
    onnx_label *x = with_room(ex, s->x, s->shape.rank, count, axis);
    onnx_label *y = ONNX_ADD(ex, "ScatterND", x, indices, s->updates);
    set_reduction(ex, s);
    return without_room(ex, y, count, axis);
}

static void export_scatter_nd(onnx_export *ex) {
    scattering s = begin_scatter(ex, onnx_in(ex, 0), onnx_in(ex, 2));
    const int count = addressed(ex, 1);
    if (count == 0) onnx_refuse(ex, "indices that address no axis");
    if (!s.possible || count == 0) return;
    onnx_label *indices = dropped_outside(ex, 1, onnx_sizes(ex, count, s.shape.dim));
    end_scatter(ex, &s, scatter_nd(ex, &s, indices, count));
}

/* Exports scatter by ScatterND: x is transposed so that the axis comes first, the updates so that the axes of the indices do. */
static void export_scatter(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0), *indices = onnx_in_shape(ex, 1), *updates = onnx_in_shape(ex, 2);
    const int axis = onnx_row_axis(ex, "axis", x->rank);
    int64_t permutation[DLC_MAX_RANK], inverse[DLC_MAX_RANK], ignored[DLC_MAX_RANK];
    int own[DLC_MAX_RANK];
    const int64_t last = -1;
    for (int i = 0; i < indices->rank; i++) own[i] = axis + i;
    to_front(updates->rank, indices->rank, own, permutation, ignored);
    onnx_label *rows = onnx_transposed(ex, onnx_in(ex, 2), updates->rank, permutation);
    to_front(x->rank, 1, &axis, permutation, inverse);
    scattering s = begin_scatter(ex, onnx_transposed(ex, onnx_in(ex, 0), x->rank, permutation), rows);
    if (!s.possible) return;
    onnx_label *places = dropped_outside(ex, 1, onnx_size(ex, x->dim[axis]));
    places = onnx_unsqueezed(ex, of_rank(ex, places, indices->rank), 1, &last);
    onnx_label *y = scatter_nd(ex, &s, places, 1);
    end_scatter(ex, &s, onnx_transposed(ex, y, x->rank, inverse));
}

static void export_reverse_sequence(onnx_export *ex) {
    const graph_shape *x = onnx_in_shape(ex, 0);
    const int time = onnx_row_axis(ex, "axis", x->rank), batch = onnx_row_axis(ex, "batch_axis", x->rank);
    onnx_label *lengths = as_i64(ex, 1);
    lengths = onnx_clamped(ex, lengths, onnx_whole(ex, DLC_I64, 0), onnx_size(ex, x->dim[time]));
    onnx_label *y = ONNX_ADD(ex, "ReverseSequence", onnx_in(ex, 0), lengths);
    onnx_set(ex, "time_axis", time);
    onnx_set(ex, "batch_axis", batch);
    onnx_export_give_label(ex, 0, y);
}

static bool is_time_and_batch(const graph *g, const graph_node *node) {
    const int rank = graph_shape_of(g, node->input[0])->rank;
    const int64_t time = onnx_attribute_named(node, "axis")->integer,
                  batch = onnx_attribute_named(node, "batch_axis")->integer;
    const int64_t a = time < 0 ? time + rank : time, b = batch < 0 ? batch + rank : batch;
    return a + b == 1;
}

const onnx_export_row onnx_export_rows_structure[] = {
    {.row = "complex", .export = export_complex},
    {.row = "real", .export = export_real},
    {.row = "imag", .export = export_imag},
    {.row = "as_pairs", .export = export_same},
    {.row = "as_complex", .export = export_same},
    {.row = "unpack_bits", .since = 21, .export = export_bits_as_numbers},
    {.row = "pack_bits", .since = 21, .export = export_bits_as_numbers},
    {.row = "reshape", .export = export_reshape, .types = ONNX_ALL},
    {.row = "transpose", .export = export_transpose, .types = ONNX_ALL},
    {.row = "broadcast", .export = export_broadcast, .types = ONNX_ALL},
    {.row = "concat", .export = export_concat, .types = ONNX_ALL},
    {.row = "tile", .export = export_tile, .types = ONNX_ALL},
    {.row = "trilu", .export = export_trilu, .types = ONNX_ALL},
    {.row = "depth_to_space", .export = export_depth_to_space, .types = ONNX_ALL},
    {.row = "space_to_depth",
     .op = "SpaceToDepth",
     .attributes = "block:blocksize",
     .types = ONNX_ALL,
     .fits = is_depth_first},
    {.row = "reverse", .export = export_reverse, .types = ONNX_ALL},
    {.row = "slice", .export = export_slice, .types = ONNX_ALL},
    {.row = "pad", .export = export_pad, .types = ONNX_ALL},
    {.row = "pad_repeat", .export = export_pad_repeat, .types = ONNX_ALL},
    {.row = "cut", .export = export_cut},
    {.row = "gather", .export = export_gather, .types = ONNX_ALL},
    {.row = "gather_elements", .export = export_gather_elements, .types = ONNX_ALL},
    {.row = "gather_nd", .export = export_gather_nd, .types = ONNX_ALL},
    {.row = "dynamic_slice", .export = export_dynamic_slice, .types = ONNX_ALL},
    {.row = "dynamic_update_slice", .export = export_dynamic_update, .types = ONNX_ALL},
    {.row = "scatter", .export = export_scatter, .types = ONNX_ALL},
    {.row = "scatter_elements", .export = export_scatter_elements, .types = ONNX_ALL},
    {.row = "scatter_nd", .export = export_scatter_nd, .types = ONNX_ALL},
    {.row = "reverse_sequence", .export = export_reverse_sequence, .types = ONNX_ALL, .fits = is_time_and_batch},
    {0},
};
