/* Operators without a tensor operand that every graph needs: run-time inputs, constants, and dimensions as numbers. */
#include "graph/ops_common.h"

static void shape_from_dims(graph_infer *infer, dlc_dtype dtype, const graph_attribute *dims) {
    graph_shape *shape = &infer->result[0];
    shape->dtype = dtype;
    shape->rank = dims->count;
    for (int i = 0; i < dims->count; i++) shape->dim[i] = dims->dims[i];
}

/* ---- input ----------------------------------------------------------------------------------------------------- */

enum { INPUT_INDEX, INPUT_DTYPE, INPUT_SHAPE };

static void input_infer(graph_infer *infer) {
    shape_from_dims(infer, (dlc_dtype)infer->attribute[INPUT_DTYPE].integer, &infer->attribute[INPUT_SHAPE]);
}

static const graph_op input = {
    .name = "input",
    .class_ = GRAPH_SOURCE,
    .structure = GRAPH_ARRIVES,
    .results = 1,
    .dtypes = "all",
    .attribute = {{"index", GRAPH_ATTR_INTEGER, NULL, NULL, "position among the graph's inputs"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, NULL, "element type"},
                  {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions; may hold symbols"}},
    .infer = input_infer,
    GRAPH_NO_GRADIENT,
    .doc = "A tensor that arrives at run time. Written `input x: f32[n, 64]` in the text form."};

/* ---- constant -------------------------------------------------------------------------------------------------- */

enum { CONSTANT_VALUE, CONSTANT_DTYPE, CONSTANT_SHAPE };

static void constant_infer(graph_infer *infer) {
    const graph_attribute *attribute = infer->attribute;
    dlc_dtype dtype = (dlc_dtype)attribute[CONSTANT_DTYPE].integer;
    shape_from_dims(infer, dtype, &attribute[CONSTANT_SHAPE]);
    size_t size = 1;
    for (int i = 0; i < infer->result[0].rank; i++) {
        int64_t extent = -1;
        if (!tir_is_const(infer->g->pool, infer->result[0].dim[i], &extent) || extent < 0 ||
            !lib_size_multiply(size, (size_t)extent, &size))
            graph_infer_fail(infer, "dimension %d of a constant must be a number, not negative, and the size must fit",
                             i);
    }
    size = lib_dtype_bytes(dtype, size);
    if (size != infer->g->constants.data[attribute[CONSTANT_VALUE].integer].size)
        graph_infer_fail(infer, "the shape needs %zu bytes, the constant has %zu", size,
                         infer->g->constants.data[attribute[CONSTANT_VALUE].integer].size);
}

static const graph_op constant = {
    .name = "constant",
    .class_ = GRAPH_SOURCE,
    .structure = GRAPH_STORED,
    .results = 1,
    .dtypes = "all",
    .attribute = {{"value", GRAPH_ATTR_CONSTANT, NULL, NULL, "the bytes, compact row-major"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, NULL, "element type"},
                  {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions; numbers"}},
    .infer = constant_infer,
    GRAPH_NO_GRADIENT,
    .doc =
        "A tensor known when the graph is built. Written `c = constant f32[2, 2] {1, 2, 3, 4}` in the text form, or with "
        "one hexadecimal string of its bytes."};

/* ---- dimension ------------------------------------------------------------------------------------------------- */

enum { DIMENSION_SIZE, DIMENSION_DTYPE };

static void dimension_infer(graph_infer *infer) {
    if (infer->attribute[DIMENSION_SIZE].count != 1)
        graph_infer_fail(infer, "size has %d dimensions, expected 1", infer->attribute[DIMENSION_SIZE].count);
    infer->result[0] = (graph_shape){.dtype = (dlc_dtype)infer->attribute[DIMENSION_DTYPE].integer};
}

static void dimension_compute(graph_compute *compute) {
    const graph_shape *shape = compute->result_shape;
    tir_stage *stage = tir_region_stage(compute->region, TIR_MAP, compute->name, 0, NULL, NULL, 0, NULL, NULL);
    tir_expr size = compute->attribute[DIMENSION_SIZE].dims[0];
    compute->result[0] =
        tir_stage_value(compute->region, stage, tir_cast(compute->pool, (tir_dtype)shape->dtype, size), 0, 0);
}

#ifdef DLC_REFERENCE
static void dimension_reference(const graph_reference *r) {
    r->result[0].data[0] = (double)r->attribute[DIMENSION_SIZE].list[0];
}
#endif

static const graph_op dimension = {
    .name = "dimension",
    .class_ = GRAPH_SOURCE,
    .structure = GRAPH_POSITIONS,
    .results = 1,
    .dtypes = "number",
    .attribute = {{"size", GRAPH_ATTR_DIMS, NULL, NULL, "one index expression over the graph's symbols"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "i64", "element type of the result"}},
    .infer = dimension_infer,
    .compute = dimension_compute,
    GRAPH_NO_GRADIENT,
    .reference = GRAPH_REFERENCE(dimension_reference),
    .tolerance = 0.5,
    .bound = GRAPH_REFERENCE(graph_bound_positions),
    .samples = "dimension(size=[7], dtype=T)\ndimension(size=[0], dtype=T)\ndimension(size=[101], dtype=T)",
    .doc =
        "The value of an expression of dimensions as a rank-0 tensor, for example the number of elements that a mean divides "
        "by. Converted to dtype as `cast` does."};

const graph_op *const graph_ops_source[] = {&input, &constant, &dimension, NULL};
