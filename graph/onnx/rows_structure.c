/* Rows of operators that move elements: shapes, slices, joins, padding. */
#include "graph/onnx/control.h"

static tir_expr number(const onnx_import *im, int64_t value) {
    return tir_index(im->g->pool, value);
}

/* ---- shapes --------------------------------------------------------------------------------------------------------- */

static bool is_number(const onnx_import *im, tir_expr e, int64_t value) {
    int64_t own;
    return tir_is_const(im->g->pool, e, &own) && own == value;
}

static void import_reshape(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const bool zero_copies = !onnx_int(im, "allowzero", 0);
    tir_expr dims[DLC_MAX_RANK];
    int rank;
    onnx_ignore(im, "consumed_inputs");
    if (im->opset < 5) {
        const int64_t *given = onnx_ints(im, "shape", &rank);
        for (int d = 0; d < rank && d < DLC_MAX_RANK; d++) dims[d] = number(im, given[d]);
    } else {
        const tir_expr *given = onnx_operand_sizes(im, 1, &rank);
        for (int d = 0; d < rank && d < DLC_MAX_RANK; d++) dims[d] = given[d];
    }
    if (rank > DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank);
    for (int d = 0; d < rank; d++) {
        if (!zero_copies || !is_number(im, dims[d], 0)) continue;
        if (d >= x.rank)
            onnx_fail(im, DLC_PARSE_ERROR, "dimension %d is to be that of an operand of rank %d", d, x.rank);
        dims[d] = x.dim[d];
    }
    onnx_give(im, 0, graph_reshape(im->g, onnx_operand(im, 0), rank, dims));
}

static tir_expr product(const onnx_import *im, const graph_shape *shape, int from, int to) {
    tir_expr all = number(im, 1);
    for (int d = from; d < to; d++) all = tir_mul(im->g->pool, all, shape->dim[d]);
    return all;
}

static void import_flatten(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 1), x.rank, onnx_int(im, "axis", 1) >= 0);
    onnx_give(im, 0,
              graph_reshape(im->g, onnx_operand(im, 0), 2,
                            (tir_expr[]){product(im, &x, 0, axis), product(im, &x, axis, x.rank)}));
}

static void import_squeeze(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    tir_expr dims[DLC_MAX_RANK];
    int count, rank = 0;
    const int64_t *axes = onnx_axes(im, 13, 1, x.rank, &count);
    for (int d = 0; d < x.rank; d++) {
        int64_t size;
        if (!axes && !tir_is_const(im->g->pool, x.dim[d], &size))
            onnx_fail(im, DLC_UNSUPPORTED, "no axes are given, and whether axis %d has size 1 depends on sizes", d);
        bool goes = !axes && size == 1;
        for (int i = 0; i < count; i++) goes |= axes[i] == d;
        if (!goes) dims[rank++] = x.dim[d];
    }
    onnx_give(im, 0, graph_reshape(im->g, onnx_operand(im, 0), rank, dims));
}

static void import_unsqueeze(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    int count;
    const int64_t *given = im->opset >= 13 ? onnx_operand_integers(im, 1, &count) : onnx_ints(im, "axes", &count);
    const int rank = x.rank + count;
    tir_expr dims[DLC_MAX_RANK] = {0};
    if (rank > DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank);
    const int64_t *axes = onnx_axis_list(im, given, count, rank);
    for (int i = 0; i < count; i++) dims[axes[i]] = number(im, 1);
    for (int d = 0, from = 0; d < rank; d++)
        if (!dims[d]) dims[d] = x.dim[from++];
    onnx_give(im, 0, graph_reshape(im->g, onnx_operand(im, 0), rank, dims));
}

static void import_transpose(onnx_import *im) {
    const int rank = onnx_operand_rank(im, 0);
    int64_t permutation[DLC_MAX_RANK];
    int count;
    const int64_t *given = onnx_ints(im, "perm", &count);
    if (given && count != rank) onnx_fail(im, DLC_PARSE_ERROR, "perm has %d axes, the operand %d", count, rank);
    for (int d = 0; d < rank; d++) permutation[d] = rank - 1 - d;
    onnx_give(
        im, 0,
        graph_transpose(im->g, onnx_operand(im, 0), given ? onnx_axis_list(im, given, count, rank) : permutation));
}

/* A dimension of 1 on either side, of x or of the given shape, is broadcast. */
static void import_expand(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    int count;
    const tir_expr *given = onnx_operand_sizes(im, 1, &count);
    const int rank = count > x.rank ? count : x.rank;
    tir_expr dims[DLC_MAX_RANK];
    if (rank > DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank);
    for (int d = 0; d < rank; d++) {
        const int a = d - (rank - x.rank), b = d - (rank - count);
        const bool own = b < 0 || is_number(im, given[b], 1);
        dims[d] = own && a >= 0 ? x.dim[a] : given[b];
    }
    onnx_give(im, 0, graph_broadcast_to(im->g, onnx_operand(im, 0), rank, dims));
}

static void import_tile(onnx_import *im) {
    int count;
    const tir_expr *repeats = onnx_operand_sizes(im, 1, &count);
    onnx_give(im, 0, ONNX_WITH(im, "tile", onnx_operand(im, 0), graph_set_dims("repeats", count, repeats)));
}

static void import_concat(onnx_import *im) {
    const int count = (int)onnx_operands(im);
    graph_id *parts = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)count + 1);
    if (!count) onnx_fail(im, DLC_PARSE_ERROR, "it has no operands");
    for (int i = 0; i < count; i++) parts[i] = onnx_operand(im, (size_t)i);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 1), onnx_operand_rank(im, 0), false);
    onnx_give(im, 0,
              count == 1 ? parts[0]
                         : onnx_emit(im, "concat", count, parts, 1,
                                     &(graph_setting){"axis", {.integer = axis, .given = true}}));
}

static void import_split(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int parts = (int)im->node->outputs.count, axis = onnx_axis(im, onnx_int(im, "axis", 0), x.rank, false);
    if (!parts) onnx_fail(im, DLC_PARSE_ERROR, "it has no results");
    tir_pool *pool = im->g->pool;
    const tir_expr *sizes = NULL;
    int count = parts;
    if (im->opset >= 13 || (im->opset < 2 && onnx_has(im, 1))) {
        if (onnx_has(im, 1)) sizes = onnx_operand_sizes(im, 1, &count);
    } else {
        const int64_t *given = onnx_ints(im, "split", &count);
        tir_expr *own = LIB_NEW_ARRAY(im->g->arena, tir_expr, (size_t)count + 1);
        for (int i = 0; i < count; i++) own[i] = number(im, given[i]);
        sizes = given ? own : NULL;
        count = given ? count : parts;
    }
    if (onnx_int(im, "num_outputs", parts) != parts || count != parts)
        onnx_fail(im, DLC_PARSE_ERROR, "%d results of a split into %d", parts, count);
    const tir_expr each = tir_ceil_div(pool, x.dim[axis], number(im, parts));
    tir_expr start = number(im, 0);
    for (int i = 0; i < parts; i++) {
        tir_expr stop = sizes ? tir_add(pool, start, sizes[i]) : tir_min(pool, tir_add(pool, start, each), x.dim[axis]);
        if (i + 1 == parts && sizes)
            graph_require_equal(im->g, stop, x.dim[axis], "split: its parts have not the size of the axis together");
        if (onnx_wants(im, (size_t)i))
            onnx_give(im, (size_t)i, graph_slice_axis(im->g, onnx_operand(im, 0), axis, start, stop));
        start = stop;
    }
}

/* ---- slices --------------------------------------------------------------------------------------------------------- */

/* Does the expression have symbols that the shapes of the inputs do not give, such as counts? */
static bool is_counted(const onnx_import *im, tir_expr e) {
    const graph *g = graph_outermost(im->g);
    for (uint32_t s = 0; s < g->symbols.count; s++)
        if (tir_uses(g->pool, e, g->symbols.data[s].var) && !graph_is_input_size(g, g->symbols.data[s].var))
            return true;
    return false;
}

/* Is the index, which is no number, negative? If that depends on sizes, it is assumed: a difference of sizes is a position, a negated size counts from
 * the end. */
static bool is_negative(onnx_import *im, tir_expr index) {
    if (tir_range(im->g->pool, index).high <= 0) return onnx_assume(im, index, TIR_UNBOUNDED_LOW, -1);
    return !onnx_assume(im, index, 0, TIR_UNBOUNDED_HIGH);
}

/* An index of Slice as a position in low..n, n being after the last element: negative ones count from the end, and all are clamped. */
static tir_expr position(onnx_import *im, tir_expr index, tir_expr n, int64_t low) {
    tir_pool *p = im->g->pool;
    const tir_expr zero = number(im, 0), one = number(im, 1), least = number(im, low);
    int64_t value;
    const bool constant = tir_is_const(p, index, &value);
    if (constant && value >= INT64_C(1) << 40) return n;
    if (constant && value <= -(INT64_C(1) << 40)) return least;
    const tir_interval range = tir_range(p, index);
    if (range.low < 0 && range.high >= 0 && is_counted(im, index)) { /* no import can know its sign */
        const tir_expr from_end = tir_max(p, tir_add(p, n, tir_min(p, index, zero)), least),
                       is_from_end = tir_min(p, tir_max(p, tir_sub(p, zero, index), zero), one);
        return tir_add(p, tir_mul(p, is_from_end, from_end),
                       tir_mul(p, tir_sub(p, one, is_from_end), tir_min(p, tir_max(p, index, zero), n)));
    }
    const bool negative = constant ? value < 0 : is_negative(im, index);
    return negative ? tir_max(p, tir_add(p, n, index), least) : tir_min(p, index, n);
}

typedef struct slice {
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    int64_t step[DLC_MAX_RANK], reversed[DLC_MAX_RANK];
    int reversals;
} slice;

static void slice_axis(onnx_import *im, slice *s, int axis, tir_expr n, tir_expr start, tir_expr end, int64_t step) {
    tir_pool *pool = im->g->pool;
    const tir_expr one = number(im, 1), last = tir_sub(pool, n, one);
    int64_t value;
    if (step == 0 || step <= INT32_MIN || step > INT32_MAX)
        onnx_fail(im, DLC_PARSE_ERROR, "a step of %lld", (long long)step);
    if (step < 0) { /* backwards: the mirrored axis forwards, from last - start to last - end */
        const bool to_first = tir_is_const(pool, end, &value) && value <= -(INT64_C(1) << 31);
        const tir_expr from = tir_min(pool, position(im, start, n, 0), last),
                       to = to_first ? number(im, -1) : tir_min(pool, position(im, end, n, -1), last);
        s->start[axis] = tir_sub(pool, last, from);
        s->stop[axis] = tir_sub(pool, last, to);
        s->reversed[s->reversals++] = axis;
    } else {
        s->start[axis] = position(im, start, n, 0);
        s->stop[axis] = position(im, end, n, 0);
    }
    s->stop[axis] = tir_max(pool, s->stop[axis], s->start[axis]);
    s->step[axis] = step < 0 ? -step : step;
}

static void import_slice(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    int count[4] = {0};
    const tir_expr *starts, *ends;
    const int64_t *axes = NULL, *steps = NULL;
    if (im->opset < 10) {
        const int64_t *s = onnx_ints(im, "starts", &count[0]), *e = onnx_ints(im, "ends", &count[1]);
        tir_expr *own = LIB_NEW_ARRAY(im->g->arena, tir_expr, (size_t)(count[0] + count[1]) + 1);
        for (int i = 0; i < count[0]; i++) own[i] = number(im, s[i]);
        for (int i = 0; i < count[1]; i++) own[count[0] + i] = number(im, e[i]);
        starts = own, ends = own + count[0];
        axes = onnx_ints(im, "axes", &count[2]);
    } else {
        starts = onnx_operand_sizes(im, 1, &count[0]), ends = onnx_operand_sizes(im, 2, &count[1]);
        if (onnx_has(im, 3)) axes = onnx_operand_integers(im, 3, &count[2]);
        if (onnx_has(im, 4)) steps = onnx_operand_integers(im, 4, &count[3]);
    }
    if (count[0] != count[1] || (axes && count[2] != count[0]) || (steps && count[3] != count[0]))
        onnx_fail(im, DLC_PARSE_ERROR, "%d starts, %d ends, %d axes, %d steps", count[0], count[1], count[2], count[3]);
    slice s = {.reversals = 0};
    axes = onnx_axis_list(im, axes, count[0], x.rank);
    for (int d = 0; d < x.rank; d++) s.start[d] = number(im, 0), s.stop[d] = x.dim[d], s.step[d] = 1;
    for (int i = 0; i < count[0]; i++) {
        const int axis = (int)axes[i];
        slice_axis(im, &s, axis, x.dim[axis], starts[i], ends[i], steps ? steps[i] : 1);
    }
    graph_id y = onnx_operand(im, 0);
    if (s.reversals) y = graph_reverse(im->g, y, s.reversals, s.reversed);
    onnx_give(im, 0, graph_slice(im->g, y, s.start, s.stop, s.step));
}

/* ---- padding -------------------------------------------------------------------------------------------------------- */

static const int64_t *pads_of(onnx_import *im, int *count) {
    if (im->opset < 2) return onnx_ints(im, "paddings", count);
    if (im->opset < 11) return onnx_ints(im, "pads", count);
    return onnx_operand_integers(im, 1, count);
}

/* x without the elements that negative pads remove; these pads become 0. */
static graph_id cropped(onnx_import *im, graph_id x, int64_t *low, int64_t *high) {
    const graph_shape shape = *graph_shape_of(im->g, x);
    tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
    bool same = true;
    for (int d = 0; d < shape.rank; d++) {
        if (low[d] < INT32_MIN || high[d] < INT32_MIN)
            onnx_fail(im, DLC_PARSE_ERROR, "pads of axis %d are too small", d);
        same &= low[d] >= 0 && high[d] >= 0;
        start[d] = number(im, low[d] < 0 ? -low[d] : 0);
        stop[d] = high[d] < 0 ? tir_add(im->g->pool, shape.dim[d], number(im, high[d])) : shape.dim[d];
        low[d] = low[d] < 0 ? 0 : low[d], high[d] = high[d] < 0 ? 0 : high[d];
    }
    return same ? x : graph_slice(im->g, x, start, stop, NULL);
}

/* Where both is asked of an axis, elements are removed before others are repeated, as ONNX Runtime does; the standard does not say. */
static void import_pad(onnx_import *im) {
    const int rank = onnx_operand_rank(im, 0);
    const int mode = onnx_choice(im, "mode", "constant edge reflect wrap", "constant");
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    int count, axis_count = rank;
    const int64_t *pads = pads_of(im, &count),
                  *axes = onnx_has(im, 3) ? onnx_operand_integers(im, 3, &axis_count) : NULL;
    graph_id x = onnx_operand(im, 0);
    if (count != 2 * axis_count) onnx_fail(im, DLC_PARSE_ERROR, "%d pads for %d axes", count, axis_count);
    axes = onnx_axis_list(im, axes, axis_count, rank);
    for (int i = 0; i < axis_count; i++) low[axes[i]] = pads[i], high[axes[i]] = pads[axis_count + i];
    if (mode) {
        onnx_ignore(im, "value");
        if (mode > 1) x = cropped(im, x, low, high);
        onnx_give(im, 0,
                  ONNX_WITH(im, "pad_repeat", x, graph_set_list("low", rank, low), graph_set_list("high", rank, high),
                            graph_set_integer("mode", mode - 1)));
        return;
    }
    graph_id value = graph_scalar_like(im->g, x, im->opset < 11 ? onnx_float(im, "value", 0) : 0);
    if (onnx_has(im, 2)) value = graph_reshape(im->g, onnx_operand(im, 2), 0, NULL);
    onnx_give(im, 0, graph_pad(im->g, x, value, low, high));
}

/* ---- generated tensors -------------------------------------------------------------------------------------------- */

static void import_constant_of_shape(onnx_import *im) {
    int rank;
    const tir_expr *dims = onnx_operand_sizes(im, 0, &rank);
    const onnx_attribute *a = onnx_attribute_find(im, "value", ONNX_ATTRIBUTE_TENSOR);
    if (rank > DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", rank);
    graph_id value = graph_scalar(im->g, DLC_F32, 0);
    if (a) {
        if (onnx_count(a->t->dims.count, a->t->dims.data, INT64_MAX) != 1)
            onnx_fail(im, DLC_UNSUPPORTED, "its value is no single number");
        value = graph_reshape(im->g, onnx_make_constant(im, im->g, a->t), 0, NULL);
    }
    onnx_give(im, 0, graph_broadcast_to(im->g, value, rank, dims));
}

/* The number of elements of a range whose start and limit are numbers. */
static tir_expr count_of_numbers(onnx_import *im, double step) {
    const double span = (onnx_operand_float(im, 1, 0) - onnx_operand_float(im, 0, 0)) / step;
    if (!(span < 0x1p40)) onnx_fail(im, DLC_UNSUPPORTED, "a range of %g numbers", span);
    int64_t whole = span > 0 ? (int64_t)span : 0;
    whole += span > (double)whole;
    return number(im, whole);
}

/* The number of elements of a range by index expressions: start and limit may depend on symbols. */
static tir_expr count_of_sizes(onnx_import *im, double step) {
    const tir_expr from = onnx_operand_size(im, 0), to = onnx_operand_size(im, 1);
    if (!(step > 0 && step < 0x1p40) || step != (double)(int64_t)step)
        onnx_fail(im, DLC_UNSUPPORTED, "a step that is no positive number known at import");
    return tir_max(im->g->pool, tir_ceil_div(im->g->pool, tir_sub(im->g->pool, to, from), number(im, (int64_t)step)),
                   number(im, 0));
}

/* start + i * delta; the number of elements must be known. A step that is omitted, as com.microsoft's may be, is 1. Floats of 16 bits are computed in
 * stash_type and rounded once. */
static void import_range(onnx_import *im) {
    const onnx_known *start = onnx_operand_asked(im, 0), *limit = onnx_operand_asked(im, 1),
                     *delta = onnx_operand_asked(im, 2);
    const bool stepped = onnx_has(im, 2);
    if (!start || !limit || start->count != 1 || limit->count != 1 || (stepped && (!delta || delta->count != 1)))
        onnx_fail(im, DLC_UNSUPPORTED, "how many numbers there are depends on data");
    tir_expr count;
    const double step = !stepped || onnx_known_is_constant(im, delta) ? onnx_operand_float(im, 2, 1) : 0;
    if (onnx_known_is_constant(im, start) && onnx_known_is_constant(im, limit) && step != 0)
        count = count_of_numbers(im, step);
    else
        count = count_of_sizes(im, step);
    const dlc_dtype stash = onnx_dtype_attribute(im, "stash_type", DLC_F32),
                    wide = lib_dtype_is_narrow_float(start->dtype) ? stash : start->dtype;
    graph_id place = graph_iota(im->g, wide, 1, &count, 0);
    if (stepped) place = onnx_binary(im, "mul", place, graph_cast(im->g, onnx_operand(im, 2), wide));
    place = onnx_binary(im, "add", graph_cast(im->g, onnx_operand(im, 0), wide), place);
    onnx_give(im, 0, graph_cast(im->g, place, start->dtype));
}

static void import_eye_like(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const dlc_dtype dtype = onnx_dtype_attribute(im, "dtype", x.dtype);
    if (x.rank != 2) onnx_fail(im, DLC_PARSE_ERROR, "an operand of rank %d in place of a matrix", x.rank);
    onnx_give(im, 0,
              onnx_emit(im, "eye", 0, NULL, 3,
                        (graph_setting[]){graph_set_dims("shape", 2, x.dim), graph_set_integer("dtype", dtype),
                                          graph_set_integer("diagonal", onnx_int(im, "k", 0))}));
}

static void import_trilu(onnx_import *im) {
    onnx_give(im, 0,
              ONNX_WITH(im, "trilu", onnx_operand(im, 0), graph_set_bool("upper", onnx_int(im, "upper", 1) != 0),
                        graph_set_integer("diagonal", onnx_operand_integer(im, 1, 0))));
}

static void import_depth_to_space(onnx_import *im) {
    const int mode = im->opset < 11 ? 0 : onnx_choice(im, "mode", "DCR CRD", "DCR");
    onnx_give(im, 0,
              ONNX_WITH(im, "depth_to_space", onnx_operand(im, 0),
                        graph_set_integer("block", onnx_int(im, "blocksize", 1)), graph_set_integer("mode", mode)));
}

static void import_space_to_depth(onnx_import *im) {
    onnx_give(
        im, 0,
        ONNX_WITH(im, "space_to_depth", onnx_operand(im, 0), graph_set_integer("block", onnx_int(im, "blocksize", 1))));
}

static void import_center_crop_pad(onnx_import *im) {
    int count, axis_count;
    const tir_expr *shape = onnx_operand_sizes(im, 1, &count);
    const int64_t *axes = onnx_ints(im, "axes", &axis_count);
    onnx_give(im, 0,
              ONNX_WITH(im, "center_crop_pad", onnx_operand(im, 0), graph_set_dims("shape", count, shape),
                        graph_set_list("axes", axis_count, axes)));
}

static void import_reverse_sequence(onnx_import *im) {
    const graph_setting settings[] = {graph_set_integer("axis", onnx_int(im, "time_axis", 0)),
                                      graph_set_integer("batch_axis", onnx_int(im, "batch_axis", 1))};
    onnx_give(
        im, 0,
        onnx_emit(im, "reverse_sequence", 2, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1)}, 2, settings));
}

static void import_folded(onnx_import *im) {
    onnx_fail(im, DLC_INTERNAL, "it should have been computed at import");
}

const onnx_row onnx_rows_structure[] = {
    {"CenterCropPad", 18, 0, import_center_crop_pad, NULL},
    {"Concat", 1, 0, import_concat, NULL},
    {"Constant", 1, 0, import_folded, NULL},
    {"ConstantOfShape", 9, 0, import_constant_of_shape, NULL},
    {"DepthToSpace", 1, 0, import_depth_to_space, NULL},
    {"Expand", 8, 0, import_expand, NULL},
    {"EyeLike", 9, 0, import_eye_like, NULL},
    {"Flatten", 1, 0, import_flatten, NULL},
    {"Pad", 1, 0, import_pad, NULL},
    {"Range", 11, 0, import_range, NULL},
    {"Reshape", 1, 0, import_reshape, NULL},
    {"ReverseSequence", 10, 0, import_reverse_sequence, NULL},
    {"Shape", 1, 0, import_folded, NULL},
    {"Size", 1, 0, import_folded, NULL},
    {"Slice", 1, 0, import_slice, NULL},
    {"SpaceToDepth", 1, 0, import_space_to_depth, NULL},
    {"Split", 1, 0, import_split, NULL},
    {"Squeeze", 1, 0, import_squeeze, NULL},
    {"Tile", 6, 0, import_tile, NULL},
    {"Transpose", 1, 0, import_transpose, NULL},
    {"Trilu", 14, 0, import_trilu, NULL},
    {"Unsqueeze", 1, 0, import_unsqueeze, NULL},
    {0},
};
