/* Rows that gather and scatter by indices. ONNX's negative indices count from the end, which libdlc's operators do not support. */
#include "graph/onnx/import.h"

graph_id onnx_from_start(onnx_import *im, size_t i, tir_expr size) {
    const onnx_known *known = onnx_operand_known(im, i);
    const graph_id indices = onnx_operand(im, i);
    bool natural = known != NULL;
    int64_t value;
    for (int64_t k = 0; known && k < known->count; k++)
        natural &= known->element[k].index && tir_is_const(im->g->pool, known->element[k].index, &value) && value >= 0;
    if (natural || lib_dtypes[graph_shape_of(im->g, indices)->dtype].class_ == 'u') return indices;
    const dlc_dtype dtype = graph_shape_of(im->g, indices)->dtype;
    const graph_id zero = graph_scalar_i64(im->g, dtype, 0),
                   extent = graph_cast(im->g, graph_dimension(im->g, DLC_I64, size), dtype);
    return graph_select(im->g, graph_lt(im->g, indices, zero), graph_add(im->g, indices, extent), indices);
}

/* onnx_from_start for tuples of indices along the last dimension, whose elements are indices of the axes from `first` on. */
static graph_id tuples_from_start(onnx_import *im, size_t i, const graph_shape *x, int first) {
    const graph_id indices = onnx_operand(im, i);
    const graph_shape shape = *graph_shape_of(im->g, indices);
    int64_t width;
    if (shape.rank < 1 || !tir_is_const(im->g->pool, shape.dim[shape.rank - 1], &width) || width > x->rank - first)
        onnx_fail(im, DLC_UNSUPPORTED, "indices whose last dimension is not known, or too large");
    onnx_known *known = onnx_known_of_dims(im, (int)width, x->dim + first);
    known->varies = true; /* as sizes do in a walk */
    const graph_id extents = graph_cast(im->g, onnx_make_known(im, known), shape.dtype),
                   zero = graph_scalar_i64(im->g, shape.dtype, 0);
    return graph_select(im->g, graph_lt(im->g, indices, zero), graph_add(im->g, indices, extents), indices);
}

static void import_gather(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), x.rank, false);
    onnx_give(im, 0, graph_gather(im->g, onnx_operand(im, 0), onnx_from_start(im, 1, x.dim[axis]), axis));
}

static void import_gather_elements(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), x.rank, false);
    onnx_give(im, 0, graph_gather_elements(im->g, onnx_operand(im, 0), onnx_from_start(im, 1, x.dim[axis]), axis));
}

static void import_gather_nd(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int64_t batch = onnx_int(im, "batch_dims", 0);
    if (batch < 0 || batch >= x.rank)
        onnx_fail(im, DLC_PARSE_ERROR, "batch_dims %lld of an operand of rank %d", (long long)batch, x.rank);
    const graph_setting s = graph_set_integer("batch", batch);
    onnx_give(im, 0,
              onnx_emit(im, "gather_nd", 2, (graph_id[]){onnx_operand(im, 0), tuples_from_start(im, 1, &x, (int)batch)},
                        1, &s));
}

/* The attribute `combine` of libdlc's scatters; none: the update replaces the element. */
static int combine_of(onnx_import *im) {
    return onnx_choice(im, "reduction", "none add mul min max", "none");
}

static void import_scatter_elements(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), x.rank, false);
    const graph_setting s[] = {graph_set_integer("axis", axis), graph_set_integer("combine", combine_of(im))};
    onnx_give(im, 0,
              onnx_emit(im, "scatter_elements", 3,
                        (graph_id[]){onnx_operand(im, 0), onnx_from_start(im, 1, x.dim[axis]), onnx_operand(im, 2)}, 2,
                        s));
}

static void import_scatter_nd(onnx_import *im) {
    const graph_shape x = onnx_operand_shape(im, 0);
    const graph_setting s = graph_set_integer("combine", combine_of(im));
    onnx_give(im, 0,
              onnx_emit(im, "scatter_nd", 3,
                        (graph_id[]){onnx_operand(im, 0), tuples_from_start(im, 1, &x, 0), onnx_operand(im, 2)}, 1,
                        &s));
}

/* The depth of OneHot, which may be a float. */
static tir_expr depth_of(onnx_import *im) {
    const onnx_known *known = onnx_operand_asked(im, 1);
    if (!known || known->count != 1 || known->element[0].index) return onnx_operand_size(im, 1);
    const double depth = known->element[0].number;
    if (!(depth >= 0 && depth < 0x1p40)) onnx_fail(im, DLC_PARSE_ERROR, "a depth of %g", depth);
    return tir_index(im->g->pool, (int64_t)depth);
}

static void import_one_hot(onnx_import *im) {
    const tir_expr depth = depth_of(im);
    graph_id ids = onnx_operand(im, 0);
    const dlc_dtype dtype = graph_shape_of(im->g, ids)->dtype;
    const dlc_dtype whole = dtype == DLC_U64 ? DLC_U64 : DLC_I64; /* narrower ones may not hold the depth */
    ids = graph_cast(im->g, ids, whole);
    const graph_id extent = graph_cast(im->g, graph_dimension(im->g, DLC_I64, depth), whole);
    if (lib_dtypes[whole].class_ == 'i')
        ids = graph_select(im->g, graph_lt(im->g, ids, graph_scalar_i64(im->g, whole, 0)),
                           graph_add(im->g, ids, extent), ids);
    const int64_t axis = onnx_axis(im, onnx_int(im, "axis", -1), graph_shape_of(im->g, ids)->rank, true);
    const graph_id hot = ONNX_WITH(im, "one_hot", ids, graph_set_dims("depth", 1, &depth),
                                   graph_set_integer("axis", axis), graph_set_integer("dtype", DLC_BOOL));
    const graph_id values = onnx_operand(im, 2);
    tir_expr bound[3] = {tir_index(im->g->pool, 0), tir_index(im->g->pool, 1), tir_index(im->g->pool, 2)};
    const graph_id off = graph_reshape(im->g, graph_slice_axis(im->g, values, 0, bound[0], bound[1]), 0, NULL);
    const graph_id on = graph_reshape(im->g, graph_slice_axis(im->g, values, 0, bound[1], bound[2]), 0, NULL);
    onnx_give(im, 0, graph_select(im->g, hot, on, off));
}

const onnx_row onnx_rows_index[] = {
    {"Gather", 1, 0, import_gather, NULL},
    {"GatherElements", 11, 0, import_gather_elements, NULL},
    {"GatherND", 11, 0, import_gather_nd, NULL},
    {"OneHot", 9, 0, import_one_hot, NULL},
    {"Scatter", 9, 0, import_scatter_elements, NULL},
    {"ScatterElements", 11, 0, import_scatter_elements, NULL},
    {"ScatterND", 11, 0, import_scatter_nd, NULL},
    {0},
};
