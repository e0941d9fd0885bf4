/* Typed helpers over graph_emit: emission by name, sources, broadcasting. See build.h. */
#include "graph/build.h"

#include "graph/internal.h"

/* ---- emission by name ------------------------------------------------------------------------------------------ */

graph_setting graph_set_integer(const char *name, int64_t integer) {
    return (graph_setting){name, {.integer = integer, .given = true}};
}
graph_setting graph_set_bool(const char *name, bool value) {
    return graph_set_integer(name, value);
}
graph_setting graph_set_float(const char *name, double number) {
    return (graph_setting){name, {.number = number, .given = true}};
}
graph_setting graph_set_string(const char *name, const char *string) {
    return (graph_setting){name, {.string = string, .given = true}};
}
graph_setting graph_set_list(const char *name, int count, const int64_t *list) {
    return (graph_setting){name, {.list = list, .count = count, .given = true}};
}
graph_setting graph_set_dims(const char *name, int count, const tir_expr *dims) {
    return (graph_setting){name, {.dims = dims, .count = count, .given = true}};
}

graph_id graph_emit_with(graph *g, const char *name, int inputs, const graph_id *input, int settings,
                         const graph_setting *setting) {
    const graph_op *op = graph_find_op(g, name);
    if (!op) lib_raise(g->arena->scope, DLC_INTERNAL, "there is no operator %s", name);
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute] = {0};
    for (int i = 0; i < settings; i++) {
        int at = graph_op_attribute(op, setting[i].name);
        if (at < 0) lib_raise(g->arena->scope, DLC_INTERNAL, "operator %s has no attribute %s", name, setting[i].name);
        attribute[at] = setting[i].value;
    }
    return graph_emit(g, op, inputs, input, attribute);
}

/* ---- broadcasting: shapes align at the last axis; 1 stretches -------------------------------------------------- */

/* Widens `to` so that `with` broadcasts to it. Dimensions that are neither equal nor 1 are left unchanged: the row's shape rule
 * reports them. */
static void join_shapes(const graph *g, graph_shape *to, const graph_shape *with) {
    while (to->rank < with->rank) {
        memmove(to->dim + 1, to->dim, (size_t)to->rank * sizeof *to->dim);
        to->dim[0] = with->dim[with->rank - 1 - to->rank];
        to->rank++;
    }
    for (int i = 1; i <= with->rank; i++)
        if (tir_is_number(g->pool, to->dim[to->rank - i], 1)) to->dim[to->rank - i] = with->dim[with->rank - i];
}

/* Broadcasts scalars and dimensions of 1 to `shape`; other mismatches are left to the row's shape rule. */
static graph_id stretch(graph *g, graph_id x, const graph_shape *shape) {
    const graph_shape *own = graph_shape_of(g, x);
    bool same = own->rank == shape->rank;
    tir_expr dim[DLC_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        int from = i - (shape->rank - own->rank);
        dim[i] = from < 0 || tir_is_number(g->pool, own->dim[from], 1) ? shape->dim[i] : own->dim[from];
        same &= from >= 0 && dim[i] == own->dim[from];
    }
    return same ? x : graph_broadcast_to(g, x, shape->rank, dim);
}

graph_id graph_emit_broadcast(graph *g, const graph_op *op, int inputs, const graph_id *input,
                              const graph_attribute *attributes) {
    enum { MOST = 8 };
    graph_shape shape = {.rank = 0};
    graph_id stretched[MOST];
    if (op->class_ != GRAPH_MAP || inputs < 2 || inputs > MOST) return graph_emit(g, op, inputs, input, attributes);
    for (int i = 0; i < inputs; i++) {
        /* emit reports the error */
        if (input[i] >= g->values.count) return graph_emit(g, op, inputs, input, attributes);
        if (input[i]) join_shapes(g, &shape, graph_shape_of(g, input[i]));
    }
    for (int i = 0; i < inputs; i++) stretched[i] = input[i] ? stretch(g, input[i], &shape) : 0;
    return graph_emit_written(g, op, inputs, stretched, input, attributes);
}

static graph_id emit_map(graph *g, const char *name, int inputs, const graph_id *input) {
    const graph_op *op = graph_op_find(name);
    if (!op) lib_raise(g->arena->scope, DLC_INTERNAL, "there is no operator %s", name);
    return graph_emit_broadcast(g, op, inputs, input, NULL);
}

/* ---- sources --------------------------------------------------------------------------------------------------- */

graph_id graph_new_input(graph *g, const char *name, const graph_shape *shape) {
    name = lib_arena_string(g->arena, name);
    graph_id value = graph_emit_with(g, "input", 0, NULL, 3,
                                     (graph_setting[]){graph_set_integer("index", g->inputs.count),
                                                       graph_set_integer("dtype", shape->dtype),
                                                       graph_set_dims("shape", shape->rank, shape->dim)});
    g->values.data[value].name = name;
    return value;
}

void graph_new_output(graph *g, const char *name, graph_id value) {
    name = lib_arena_string(g->arena, name);
    lib_vec_reserve(g->arena, &g->outputs, 1);
    lib_vec_reserve(g->arena, &g->output_names, 1);
    if (name) lib_map_insert(g->arena, &g->outputs_by_name, lib_hash_string(name), g->outputs.count);
    g->outputs.data[g->outputs.count++] = value;
    g->output_names.data[g->output_names.count++] = name;
}

/* A constant node for constant number `value`. */
static graph_id emit_constant(graph *g, uint32_t value, dlc_dtype dtype, int rank, const int64_t *shape) {
    tir_expr dim[DLC_MAX_RANK];
    for (int i = 0; i < rank && i < DLC_MAX_RANK; i++) dim[i] = tir_index(g->pool, shape[i]);
    return graph_emit_with(g, "constant", 0, NULL, 3,
                           (graph_setting[]){graph_set_integer("value", value), graph_set_integer("dtype", dtype),
                                             graph_set_dims("shape", rank, dim)});
}

/* Size in bytes of a literal; raises for invalid shapes. */
static size_t literal_size(const graph *g, dlc_dtype dtype, int rank, const int64_t *shape) {
    if (rank < 0 || rank > DLC_MAX_RANK)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "constant: rank %d, expected 0 to %d", rank, DLC_MAX_RANK);
    if ((unsigned)dtype >= DLC_DTYPE_COUNT || !lib_dtypes[dtype].usable)
        lib_raise(g->arena->scope, (unsigned)dtype < DLC_DTYPE_COUNT ? DLC_UNSUPPORTED : DLC_INVALID_ARGUMENT,
                  "constant: element type %d (%s) is not supported", (int)dtype,
                  (unsigned)dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].name : "none");
    size_t size = lib_dtype_size(dtype), count = 1;
    for (int i = 0; i < rank; i++, count = size / lib_dtype_size(dtype))
        if (shape[i] < 0 || !lib_size_multiply(size, (size_t)shape[i], &size))
            lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                      "constant: dimension %d is %lld: negative, or too large in all", i, (long long)shape[i]);
    return lib_dtype_bytes(dtype, count);
}

graph_id graph_literal_of(graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes, bool borrow) {
    size_t size = literal_size(g, dtype, rank, shape);
    if (size && !bytes)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "constant: bytes is NULL, expected %zu bytes", size);
    return emit_constant(g, graph_add_constant(g, bytes, size, borrow), dtype, rank, shape);
}

graph_id graph_literal(graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes) {
    return graph_literal_of(g, dtype, rank, shape, bytes, false);
}

graph_id graph_scalar(graph *g, dlc_dtype dtype, double number) {
    literal_size(g, dtype, 0, NULL);
    uint64_t element = 0;
    lib_element_set_f64(dtype, &element, number);
    return graph_literal(g, dtype, 0, NULL, &element);
}

graph_id graph_scalar_i64(graph *g, dlc_dtype dtype, int64_t number) {
    literal_size(g, dtype, 0, NULL);
    uint64_t element = 0;
    lib_element_set_i64(dtype, &element, number);
    return graph_literal(g, dtype, 0, NULL, &element);
}

graph_id graph_whole_number(graph *g, int64_t number) {
    return graph_scalar_i64(g, DLC_I64, number);
}

graph_id graph_scalar_like(graph *g, graph_id x, double number) {
    return graph_scalar(g, graph_shape_of(g, x)->dtype, number);
}

graph_id graph_full(graph *g, dlc_dtype dtype, int rank, const tir_expr *dims, double number) {
    return graph_broadcast_to(g, graph_scalar(g, dtype, number), rank, dims);
}

graph_id graph_full_like(graph *g, graph_id x, double number) {
    graph_shape shape = *graph_shape_of(g, x);
    return graph_full(g, shape.dtype, shape.rank, shape.dim, number);
}

graph_id graph_iota(graph *g, dlc_dtype dtype, int rank, const tir_expr *dims, int axis) {
    return graph_emit_with(g, "iota", 0, NULL, 3,
                           (graph_setting[]){graph_set_integer("dtype", dtype), graph_set_dims("shape", rank, dims),
                                             graph_set_integer("axis", axis)});
}

graph_id graph_dimension(graph *g, dlc_dtype dtype, tir_expr size) {
    return graph_emit_with(g, "dimension", 0, NULL, 2,
                           (graph_setting[]){graph_set_dims("size", 1, &size), graph_set_integer("dtype", dtype)});
}

/* Number of elements of x over the axes (none: all), as a rank-0 value of x's dtype: the divisor of a mean. */
static graph_id count_of(graph *g, graph_id x, int count, const int64_t *axes) {
    const graph_shape *shape = graph_shape_of(g, x);
    tir_expr product = tir_index(g->pool, 1);
    if (count == 0)
        for (int i = 0; i < shape->rank; i++) product = tir_mul(g->pool, product, shape->dim[i]);
    for (int i = 0; i < count; i++)
        product = tir_mul(g->pool, product, shape->dim[axes[i] < 0 ? axes[i] + shape->rank : axes[i]]);
    return graph_dimension(g, shape->dtype, product);
}

const graph_constant *graph_constant_of(const graph *g, graph_id value) {
    const graph_node *node = graph_node_of(g, value);
    return graph_is_constant(node) ? &g->constants.data[node->attribute[0].integer] : NULL;
}

bool graph_is_number(const graph *g, graph_id x, double *number) {
    while (graph_node_of(g, x)->op->structure == GRAPH_REPEATS) x = graph_node_of(g, x)->input[0];
    const graph_constant *constant = graph_constant_of(g, x);
    dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    size_t size = lib_dtype_size(dtype);
    if (!constant || constant->size < size || lib_dtype_is_stored_otherwise(dtype)) return false;
    if (constant->described) {
        if (constant->size > size && (!constant->period || constant->period > size)) return false;
        *number = lib_element_get_f64(dtype, constant->head);
        return true;
    }
    const char *bytes = graph_constant_bytes(g->arena->scope, constant);
    for (size_t at = size; at < constant->size; at += size)
        if (memcmp(bytes, bytes + at, size) != 0) return false;
    *number = lib_element_get_f64(dtype, bytes);
    return true;
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

#define X(name)                                   \
    graph_id graph_##name(graph *g, graph_id x) { \
        return emit_map(g, #name, 1, &x);         \
    }
GRAPH_BUILD_UNARY(X)
#undef X
#define X(name)                                               \
    graph_id graph_##name(graph *g, graph_id a, graph_id b) { \
        return emit_map(g, #name, 2, (graph_id[]){a, b});     \
    }
GRAPH_BUILD_BINARY(X)
#undef X

graph_id graph_normal_cdf(graph *g, graph_id x) {
    const graph_setting setting = graph_set_bool("precise", false);
    return graph_emit_with(g, "normal_cdf", 1, &x, 1, &setting);
}

graph_id graph_select(graph *g, graph_id condition, graph_id a, graph_id b) {
    return emit_map(g, "select", 3, (graph_id[]){condition, a, b});
}

graph_id graph_clamp(graph *g, graph_id low, graph_id x, graph_id high) {
    return emit_map(g, "clamp", 3, (graph_id[]){low, x, high});
}

graph_id graph_cast(graph *g, graph_id x, dlc_dtype dtype) {
    if (graph_shape_of(g, x)->dtype == dtype) return x;
    return graph_emit_with(g, "cast", 1, &x, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
}

graph_id graph_widen(graph *g, graph_id x) {
    return graph_cast(g, x, graph_sum_dtype(graph_shape_of(g, x)->dtype));
}

graph_id graph_add_number(graph *g, graph_id x, double number) {
    return graph_add(g, x, graph_scalar_like(g, x, number));
}

graph_id graph_mul_number(graph *g, graph_id x, double number) {
    return graph_mul(g, x, graph_scalar_like(g, x, number));
}

/* ---- structure ------------------------------------------------------------------------------------------------- */

graph_id graph_reshape(graph *g, graph_id x, int rank, const tir_expr *dims) {
    return graph_emit_with(g, "reshape", 1, &x, 1, (graph_setting[]){graph_set_dims("shape", rank, dims)});
}

graph_id graph_transpose(graph *g, graph_id x, const int64_t *permutation) {
    int rank = graph_shape_of(g, x)->rank;
    return graph_emit_with(g, "transpose", 1, &x, 1,
                           (graph_setting[]){graph_set_list("permutation", rank, permutation)});
}

graph_id graph_broadcast(graph *g, graph_id x, int rank, const tir_expr *dims, const int64_t *axes) {
    int own = graph_shape_of(g, x)->rank;
    return graph_emit_with(g, "broadcast", 1, &x, 2,
                           (graph_setting[]){graph_set_dims("shape", rank, dims), graph_set_list("axes", own, axes)});
}

graph_id graph_broadcast_to(graph *g, graph_id x, int rank, const tir_expr *dims) {
    const graph_shape *shape = graph_shape_of(g, x);
    bool same = shape->rank == rank;
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        axes[i] = rank - shape->rank + i;
        same = same && shape->dim[i] == dims[i];
    }
    return same ? x : graph_broadcast(g, x, rank, dims, axes);
}

graph_id graph_broadcast_like(graph *g, graph_id x, graph_id like) {
    graph_shape shape = *graph_shape_of(g, like);
    return graph_broadcast_to(g, x, shape.rank, shape.dim);
}

graph_id graph_expand_dims(graph *g, graph_id x, int axis) {
    graph_shape shape = *graph_shape_of(g, x);
    if (shape.rank >= DLC_MAX_RANK || axis < 0 || axis > shape.rank)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                  "a dimension at %d of a tensor of rank %d: expected 0 to %d, and "
                  "rank below %d",
                  axis, shape.rank, shape.rank, DLC_MAX_RANK);
    memmove(shape.dim + axis + 1, shape.dim + axis, (size_t)(shape.rank - axis) * sizeof *shape.dim);
    shape.dim[axis] = tir_index(g->pool, 1);
    return graph_reshape(g, x, shape.rank + 1, shape.dim);
}

graph_id graph_squeeze(graph *g, graph_id x, int axis) {
    graph_shape shape = *graph_shape_of(g, x);
    if (axis < 0 || axis >= shape.rank || !tir_is_number(g->pool, shape.dim[axis], 1))
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "dimension %d of a tensor of rank %d is not one of size 1",
                  axis, shape.rank);
    memmove(shape.dim + axis, shape.dim + axis + 1, (size_t)(shape.rank - axis - 1) * sizeof *shape.dim);
    return graph_reshape(g, x, shape.rank - 1, shape.dim);
}

graph_id graph_slice(graph *g, graph_id x, const tir_expr *start, const tir_expr *stop, const int64_t *step) {
    int rank = graph_shape_of(g, x)->rank;
    return graph_emit_with(g, "slice", 1, &x, step ? 3 : 2,
                           (graph_setting[]){graph_set_dims("start", rank, start), graph_set_dims("stop", rank, stop),
                                             graph_set_list("step", rank, step)});
}

graph_id graph_slice_axis(graph *g, graph_id x, int axis, tir_expr start, tir_expr stop) {
    const graph_shape *shape = graph_shape_of(g, x);
    tir_expr starts[DLC_MAX_RANK], stops[DLC_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        starts[i] = i == axis ? start : tir_index(g->pool, 0);
        stops[i] = i == axis ? stop : shape->dim[i];
    }
    return graph_slice(g, x, starts, stops, NULL);
}

graph_id graph_is_before(graph *g, graph_id a, graph_id b) {
    graph_id before = graph_lt(g, a, b);
    if (!lib_dtype_is_float(graph_shape_of(g, a)->dtype)) return before;
    return graph_or(g, before, graph_and(g, graph_eq(g, a, a), graph_ne(g, b, b)));
}

static graph_id gather(graph *g, const char *row, graph_id x, graph_id indices, int axis) {
    graph_setting along = graph_set_integer("axis", axis);
    return graph_emit_with(g, row, 2, (graph_id[]){x, indices}, 1, &along);
}

graph_id graph_gather(graph *g, graph_id x, graph_id indices, int axis) {
    return gather(g, "gather", x, indices, axis);
}

graph_id graph_gather_elements(graph *g, graph_id x, graph_id indices, int axis) {
    return gather(g, "gather_elements", x, indices, axis);
}

graph_id graph_scatter_add(graph *g, graph_id x, graph_id indices, graph_id updates, int axis) {
    return graph_emit_with(
        g, "scatter", 3, (graph_id[]){x, indices, updates}, 2,
        (graph_setting[]){graph_set_integer("axis", axis), graph_set_integer("combine", 1 /* add */)});
}

graph_id graph_pad(graph *g, graph_id x, graph_id value, const int64_t *low, const int64_t *high) {
    int rank = graph_shape_of(g, x)->rank;
    return graph_emit_with(g, "pad", 2, (graph_id[]){x, value}, 2,
                           (graph_setting[]){graph_set_list("low", rank, low), graph_set_list("high", rank, high)});
}

graph_id graph_concat(graph *g, int count, const graph_id *values, int axis) {
    return graph_emit_with(g, "concat", count, values, 1, (graph_setting[]){graph_set_integer("axis", axis)});
}

graph_id graph_reverse(graph *g, graph_id x, int count, const int64_t *axes) {
    return graph_emit_with(g, "reverse", 1, &x, 1, (graph_setting[]){graph_set_list("axes", count, axes)});
}

/* ---- reductions and contraction -------------------------------------------------------------------------------- */

static graph_id reduce(graph *g, const char *name, graph_id x, int count, const int64_t *axes, bool keep) {
    return graph_emit_with(g, name, 1, &x, 2,
                           (graph_setting[]){graph_set_list("axes", count, axes), graph_set_bool("keep", keep)});
}

#define X(name)                                                                                     \
    graph_id graph_reduce_##name(graph *g, graph_id x, int count, const int64_t *axes, bool keep) { \
        return reduce(g, "reduce_" #name, x, count, axes, keep);                                    \
    }
GRAPH_BUILD_REDUCE(X)
#undef X

graph_id graph_reduce_mean(graph *g, graph_id x, int count, const int64_t *axes, bool keep) {
    dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    if (lib_dtype_is_narrow_float(dtype)) x = graph_cast(g, x, DLC_F32); /* so that neither sum nor count overflows */
    graph_id sum = graph_reduce_sum(g, x, count, axes, keep);
    return graph_cast(g, graph_div(g, sum, count_of(g, x, count, axes)), dtype);
}

graph_id graph_contract_as(graph *g, graph_id a, graph_id b, int batch, const int64_t *a_batch, const int64_t *b_batch,
                           int contract, const int64_t *a_contract, const int64_t *b_contract, int64_t result) {
    return graph_emit_with(
        g, "dot_general", 2, (graph_id[]){a, b}, 5,
        (graph_setting[]){graph_set_list("batch_x", batch, a_batch), graph_set_list("batch_w", batch, b_batch),
                          graph_set_list("contract_x", contract, a_contract),
                          graph_set_list("contract_w", contract, b_contract), graph_set_integer("result", result)});
}

graph_id graph_contract(graph *g, graph_id a, graph_id b, int batch, const int64_t *a_batch, const int64_t *b_batch,
                        int contract, const int64_t *a_contract, const int64_t *b_contract) {
    return graph_contract_as(g, a, b, batch, a_batch, b_batch, contract, a_contract, b_contract, 0); /* same */
}

graph_id graph_matmul(graph *g, graph_id a, graph_id b) {
    return graph_emit_with(g, "matmul", 2, (graph_id[]){a, b}, 0, NULL);
}

graph_id graph_softmax(graph *g, graph_id x, int axis) {
    return graph_emit_with(g, "softmax", 1, &x, 1, (graph_setting[]){graph_set_integer("axis", axis)});
}
