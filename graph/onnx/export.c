/* The core of the exporter: names, sizes, constants, inputs and outputs, expansion of operators that have no row; helpers of rows. */
#include "graph/onnx/export.h"

#include "graph/build.h"
#include "graph/onnx/model.h"

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

const onnx_export_row *const onnx_export_tables[] = {onnx_export_rows,
                                                     onnx_export_rows_structure,
                                                     onnx_export_rows_reduce,
                                                     onnx_export_rows_contract,
                                                     onnx_export_rows_control,
                                                     onnx_export_rows_none,
                                                     NULL};

const onnx_export_row *onnx_export_row_of(const graph_op *op) {
    if (op->host) return NULL;
    for (const onnx_export_row *const *table = onnx_export_tables; *table; table++)
        for (const onnx_export_row *row = *table; row->row; row++)
            if (strcmp(row->row, op->name) == 0) return row;
    return NULL;
}

onnx_export_class onnx_export_class_of(const graph_op *op, const char **why) {
    const onnx_export_row *row = onnx_export_row_of(op);
    *why = row ? row->why : NULL;
    if (row) return row->why ? ONNX_EXPORT_NONE : ONNX_EXPORT_NATIVE;
    if (op->expand || graph_op_has_scalar(op)) return ONNX_EXPORT_EXPANSION;
    *why = op->host ? "it is an operator of the host" : "no form in ONNX is defined for it";
    return ONNX_EXPORT_NONE;
}

static bool takes(const graph *g, const graph_node *node, const onnx_export_row *row) {
    return !row->types || !node->inputs || !node->input[0] ||
           onnx_takes(row->types, graph_shape_of(g, node->input[0])->dtype);
}

/* Is the node a primitive on narrow floats that the row's ONNX operator does not take? It is computed in f32, as libdlc does. */
static bool is_widened(const graph *g, const graph_node *node, const onnx_export_row *row) {
    return !takes(g, node, row) && !node->op->expand && onnx_takes(row->types, DLC_F32) &&
           lib_dtype_is_narrow_float(graph_shape_of(g, node->input[0])->dtype);
}

/* Attributes are f32 in the file. False: the node computes in f64 and has an attribute that f32 would round. */
static bool numbers_fit(const graph *g, const graph_node *node, const onnx_export_row *row) {
    if ((!row->op && !node->op->expand) || !node->inputs || graph_shape_of(g, node->input[0])->dtype != DLC_F64)
        return true;
    for (int i = 0; node->op->attribute[i].name; i++)
        if (node->op->attribute[i].kind == GRAPH_ATTR_FLOAT &&
            (double)(float)node->attribute[i].number != node->attribute[i].number)
            return false;
    return true;
}

/* Is the node exported by its row, or refused with the row's reason? Otherwise it is expanded. */
static bool is_kept(const graph *g, const graph_node *node) {
    const onnx_export_row *row = onnx_export_row_of(node->op);
    if (!row) return false;
    if (row->why) return true;
    if (!takes(g, node, row) && !is_widened(g, node, row)) return false;
    return numbers_fit(g, node, row) && (!row->fits || row->fits(g, node));
}

static bool expands(const graph *g, const graph_node *node) {
    return !is_kept(g, node) && (graph_expands(node) || graph_is_on_stored(g, node));
}

/* ---- messages ----------------------------------------------------------------------------------------------------------- */

const char *onnx_export_describe(lib_arena *arena, const graph *g, const graph_node *node) {
    for (int i = 0; i < node->results; i++) {
        const graph_value *value = &g->values.data[node->first + (graph_id)i];
        const char *name = value->called ? value->called : value->name;
        if (name) return lib_arena_format(arena, "%s \"%.80s\"", node->op->name, name);
    }
    for (uint32_t o = 0; o < g->outputs.count; o++)
        if (graph_node_of(g, g->outputs.data[o]) == node && g->output_names.data[o])
            return lib_arena_format(arena, "%s \"%.80s\"", node->op->name, g->output_names.data[o]);
    return lib_arena_format(arena, "%s %%%u", node->op->name, node->first);
}

void onnx_refuse(onnx_export *ex, const char *format, ...) {
    va_list arguments;
    ex->refusals++;
    lib_text_format(&ex->refused, "\n  %s: ", ex->node ? onnx_export_describe(ex->arena, ex->g, ex->node) : "graph");
    va_start(arguments, format);
    lib_text_format_v(&ex->refused, format, arguments);
    va_end(arguments);
}

void onnx_need(onnx_export *ex, int opset) {
    if (ex->needed < opset) ex->needed = opset;
}

int32_t onnx_element_for(dlc_dtype dtype) {
    if (dtype == DLC_C64) dtype = DLC_F32; /* pairs */
    for (int32_t t = 1; onnx_element_of(t); t++)
        if (onnx_element_of(t)->dtype == (int)dtype) return t;
    return 0;
}

static int32_t element_of(onnx_export *ex, dlc_dtype dtype) {
    const int32_t element = onnx_element_for(dtype);
    if (!element) onnx_refuse(ex, "ONNX has no element type %s", lib_dtypes[dtype].name);
    if (lib_dtype_is_f8(dtype)) onnx_need(ex, 19);
    if (lib_dtype_is_packed(dtype)) onnx_need(ex, 21);
    if (dtype == DLC_F4E2M1) onnx_need(ex, 23);
    if (dtype == DLC_F8E8M0) onnx_need(ex, 24);
    if (dtype == DLC_I2 || dtype == DLC_U2) onnx_need(ex, 25);
    return element;
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

/* Takes the name; false: it is in use. */
static bool take_name(onnx_export *ex, const char *text) {
    const uint64_t hash = lib_hash_string(text);
    for (uint32_t at = lib_map_first(&ex->names, hash); at != LIB_MAP_END; at = lib_map_next(&ex->names, hash, at))
        if (strcmp(ex->name_texts.data[ex->names.slots[at].value], text) == 0) return false;
    lib_map_insert(ex->arena, &ex->names, hash, ex->name_texts.count);
    lib_vec_push(ex->arena, &ex->name_texts, text);
    return true;
}

/* A new name that begins with `base`. */
static const char *fresh(onnx_export *ex, const char *base) {
    const char *text;
    do text = lib_arena_format(ex->arena, "%s_%u", base, ++ex->next);
    while (!take_name(ex, text));
    return text;
}

static onnx_label *label_new(onnx_export *ex, const char *text, const onnx_out_graph *home) {
    onnx_label *label = LIB_NEW(ex->arena, onnx_label);
    label->text = text;
    label->home = home;
    return label;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

onnx_label *onnx_add(onnx_export *ex, const char *op, int inputs, onnx_label *const *input) {
    onnx_out_node *node = LIB_NEW(ex->arena, onnx_out_node);
    node->op = op;
    while (inputs && !input[inputs - 1]) inputs--;
    for (int i = 0; i < inputs; i++) lib_vec_push(ex->arena, &node->inputs, input[i]);
    lib_vec_push(ex->arena, &ex->out->nodes, node);
    ex->last = node;
    onnx_label *result = onnx_add_result(ex);
    node->name = result->text;
    return result;
}

void onnx_add_input(onnx_export *ex, onnx_label *input) {
    lib_vec_push(ex->arena, &ex->last->inputs, input);
}

onnx_label *onnx_add_result(onnx_export *ex) {
    onnx_label *label = label_new(ex, fresh(ex, ex->last->op), ex->out);
    lib_vec_push(ex->arena, &ex->last->outputs, label);
    return label;
}

static onnx_out_attribute *attribute_new(onnx_export *ex, const char *name, onnx_out_kind kind) {
    onnx_out_attribute attribute = {.name = name, .kind = kind};
    lib_vec_push(ex->arena, &ex->last->attributes, attribute);
    return &ex->last->attributes.data[ex->last->attributes.count - 1];
}

void onnx_set(onnx_export *ex, const char *name, int64_t integer) {
    attribute_new(ex, name, ONNX_OUT_INT)->integer = integer;
}
void onnx_set_number(onnx_export *ex, const char *name, double number) {
    attribute_new(ex, name, ONNX_OUT_FLOAT)->number = (float)number;
}
void onnx_set_text(onnx_export *ex, const char *name, const char *text) {
    attribute_new(ex, name, ONNX_OUT_STRING)->string = text;
}
void onnx_set_list(onnx_export *ex, const char *name, int count, const int64_t *list) {
    onnx_out_attribute *attribute = attribute_new(ex, name, ONNX_OUT_INTS);
    attribute->integers = lib_arena_copy(ex->arena, list, (size_t)count * sizeof *list);
    attribute->count = count;
}
void onnx_set_graph(onnx_export *ex, const char *name, const onnx_out_graph *inner) {
    attribute_new(ex, name, ONNX_OUT_GRAPH)->graph = inner;
}

/* ---- constants ------------------------------------------------------------------------------------------------------------ */

static void describe_dims(onnx_out_tensor *tensor, dlc_dtype dtype, int rank, const int64_t *dims) {
    for (int d = 0; d < rank; d++) tensor->dim[d] = dims[d];
    tensor->rank = rank;
    if (dtype == DLC_C64) tensor->dim[tensor->rank++] = 2;
}

/* Adds an initializer to the main graph, whose names sub-graphs can use. The bytes are not copied. */
static onnx_label *add_tensor(onnx_export *ex, const char *base, dlc_dtype dtype, int rank, const int64_t *dims,
                              const void *bytes, size_t size) {
    onnx_out_tensor tensor = {.element = element_of(ex, dtype), .bytes = bytes, .size = size};
    describe_dims(&tensor, dtype, rank, dims);
    onnx_label *label = label_new(ex, fresh(ex, base), NULL);
    tensor.label = label;
    lib_vec_push(ex->arena, &ex->main->initializers, tensor);
    return label;
}

static size_t bytes_of(dlc_dtype dtype, int rank, const int64_t *dims) {
    size_t count = 1;
    for (int d = 0; d < rank; d++) count *= (size_t)dims[d];
    return lib_dtype_bytes(dtype, count);
}

static bool is_tensor(const onnx_out_tensor *tensor, const onnx_out_tensor *other) {
    return tensor->element == other->element && tensor->rank == other->rank && tensor->size == other->size &&
           memcmp(tensor->dim, other->dim, sizeof tensor->dim) == 0 &&
           (!tensor->size || memcmp(tensor->bytes, other->bytes, tensor->size) == 0);
}

onnx_label *onnx_export_constant(onnx_export *ex, dlc_dtype dtype, int rank, const int64_t *dims, const void *bytes) {
    const size_t size = bytes_of(dtype, rank, dims);
    onnx_out_tensor tensor = {.element = element_of(ex, dtype), .bytes = bytes, .size = size};
    describe_dims(&tensor, dtype, rank, dims);
    const uint64_t hash = lib_hash64(size ? bytes : "", size, (uint64_t)dtype << 8 | (uint64_t)rank);
    for (uint32_t at = lib_map_first(&ex->small, hash); at != LIB_MAP_END; at = lib_map_next(&ex->small, hash, at)) {
        const onnx_out_tensor *known = &ex->main->initializers.data[ex->small.slots[at].value];
        if (is_tensor(known, &tensor)) return (onnx_label *)known->label;
    }
    lib_map_insert(ex->arena, &ex->small, hash, ex->main->initializers.count);
    return add_tensor(ex, "constant", dtype, rank, dims, lib_arena_copy(ex->arena, bytes, size), size);
}

onnx_label *onnx_number(onnx_export *ex, dlc_dtype dtype, double number) {
    uint64_t element = 0;
    lib_element_set_f64(dtype, &element, number);
    return onnx_export_constant(ex, dtype, 0, NULL, &element);
}

onnx_label *onnx_whole(onnx_export *ex, dlc_dtype dtype, int64_t number) {
    uint64_t element = 0;
    lib_element_set_i64(dtype, &element, number);
    return onnx_export_constant(ex, dtype, 0, NULL, &element);
}

onnx_label *onnx_list(onnx_export *ex, int count, const int64_t *list) {
    return onnx_export_constant(ex, DLC_I64, 1, (int64_t[]){count}, list);
}

bool onnx_is_nonzero(const onnx_export *ex, const onnx_label *x) {
    enum { SMALL = 64 };
    for (uint32_t i = 0; !x->home && i < ex->main->initializers.count; i++) {
        const onnx_out_tensor *tensor = &ex->main->initializers.data[i];
        if (tensor->label != x || tensor->size > SMALL) continue;
        const dlc_dtype dtype = (dlc_dtype)onnx_element_of(tensor->element)->dtype;
        for (size_t at = 0; at < tensor->size; at += lib_dtype_size(dtype))
            if (lib_element_get_f64(dtype, (const char *)tensor->bytes + at) == 0) return false;
        return true;
    }
    return false;
}

static void export_constant(onnx_export *ex) {
    const graph_shape *shape = onnx_result_shape(ex, 0);
    const graph_constant *constant = graph_constant_of(ex->g, ex->node->first);
    int64_t dims[DLC_MAX_RANK] = {0};
    for (int d = 0; d < shape->rank; d++) tir_is_const(ex->g->pool, shape->dim[d], &dims[d]);
    const void *bytes = graph_constant_bytes(ex->arena->scope, constant);
    enum { SMALL = 64 };
    const graph_value *value = &ex->g->values.data[ex->node->first];
    const char *base = value->called ? value->called : value->name;
    if (constant->size <= SMALL && !base)
        onnx_export_give_label(ex, 0, onnx_export_constant(ex, shape->dtype, shape->rank, dims, bytes));
    else
        onnx_export_give_label(
            ex, 0, add_tensor(ex, base ? base : "weight", shape->dtype, shape->rank, dims, bytes, constant->size));
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------------- */

/* If the dimension is c * symbol + k, makes it the symbol's source, unless the symbol has one that is as simple. */
static void note_dimension(onnx_export *ex, onnx_label *value, int axis, tir_expr dim) {
    tir_term term;
    int64_t constant;
    const tir_pool *pool = ex->g->pool;
    if (tir_terms(pool, dim, &term, 1, &constant) != 1 || tir_op_of(pool, term.atom) != TIR_VAR) return;
    onnx_symbol_source *source = &ex->symbol[tir_var_id(pool, term.atom)];
    const bool plain = term.coefficient == 1 && constant == 0;
    if (source->value && (source->coefficient == 1 || !plain)) return;
    if (source->size) return;
    *source = (onnx_symbol_source){value, axis, term.coefficient, constant, NULL};
}

static void note_dimensions(onnx_export *ex, graph_id id, onnx_label *label) {
    const graph_shape *shape = graph_shape_of(ex->g, id);
    for (int d = 0; d < shape->rank; d++) note_dimension(ex, label, d, shape->dim[d]);
}

static onnx_label *symbol_size(onnx_export *ex, void *user, const tir_pool *pool, tir_expr variable) {
    onnx_symbol_source *source = &ex->symbol[tir_var_id(pool, variable)];
    (void)user;
    if (source->size) return source->size;
    if (!source->value) {
        onnx_refuse(ex, "size %s is the size of no input", tir_variable_of(pool, variable)->name);
        return onnx_list(ex, 1, (int64_t[]){1});
    }
    onnx_label *size = ONNX_ADD(ex, "Shape", source->value);
    onnx_set(ex, "start", source->axis);
    onnx_set(ex, "end", source->axis + 1);
    if (source->constant) size = ONNX_ADD(ex, "Sub", size, onnx_list(ex, 1, &source->constant));
    if (source->coefficient != 1) size = ONNX_ADD(ex, "Div", size, onnx_list(ex, 1, &source->coefficient));
    source->size = size;
    return size;
}

onnx_label *onnx_size(onnx_export *ex, tir_expr size) {
    int64_t value;
    if (tir_is_const(ex->g->pool, size, &value)) return onnx_list(ex, 1, &value);
    const uint64_t hash = size; /* ids are unique, and never 0 */
    uint32_t at = lib_map_first(&ex->sizes, hash);
    if (at != LIB_MAP_END) return ex->size_labels.data[ex->sizes.slots[at].value];
    onnx_out_graph *out = ex->out;
    onnx_out_node *last = ex->last;
    ex->out = ex->main;
    onnx_label *label = onnx_expression(ex, ex->g->pool, size, symbol_size, NULL);
    ex->out = out;
    ex->last = last;
    lib_map_insert(ex->arena, &ex->sizes, hash, ex->size_labels.count);
    lib_vec_push(ex->arena, &ex->size_labels, label);
    return label;
}

onnx_label *onnx_sizes(onnx_export *ex, int count, const tir_expr *dims) {
    int64_t numbers[DLC_MAX_RANK + 1] = {0};
    onnx_label *part[DLC_MAX_RANK + 1];
    bool known = true;
    for (int d = 0; d < count; d++) known &= tir_is_const(ex->g->pool, dims[d], &numbers[d]);
    if (known) return onnx_list(ex, count, numbers);
    for (int d = 0; d < count; d++) part[d] = onnx_size(ex, dims[d]);
    if (count == 1) return part[0];
    onnx_label *all = onnx_add(ex, "Concat", count, part);
    onnx_set(ex, "axis", 0);
    return all;
}

/* ---- frequent nodes -------------------------------------------------------------------------------------------------------- */

onnx_label *onnx_to(onnx_export *ex, onnx_label *x, dlc_dtype dtype) {
    onnx_label *y = ONNX_ADD(ex, "Cast", x);
    onnx_set(ex, "to", element_of(ex, dtype));
    if (lib_dtype_is_f8(dtype)) onnx_set(ex, "saturate", 0);
    return y;
}

dlc_dtype onnx_wide_dtype(dlc_dtype dtype) {
    return lib_dtype_is_narrow_float(dtype) ? DLC_F32 : dtype;
}

onnx_label *onnx_typed(onnx_export *ex, const char *op, uint32_t types, dlc_dtype dtype, bool compares, int inputs,
                       onnx_label *const *input) {
    onnx_label *wide[8];
    if (onnx_takes(types, dtype)) return onnx_add(ex, op, inputs, input);
    if (!lib_dtype_is_narrow_float(dtype) || inputs > 8) {
        onnx_refuse(ex, "ONNX's %s does not take %s", op, lib_dtypes[dtype].name);
        return input[0];
    }
    for (int i = 0; i < inputs; i++) wide[i] = onnx_to(ex, input[i], DLC_F32);
    onnx_label *y = onnx_add(ex, op, inputs, wide);
    return compares ? y : onnx_to(ex, y, dtype);
}

onnx_label *onnx_shaped(onnx_export *ex, onnx_label *x, int rank, const tir_expr *dims) {
    bool zero = false;
    for (int d = 0; d < rank; d++) zero |= tir_range(ex->g->pool, dims[d]).low <= 0;
    onnx_label *sizes = onnx_sizes(ex, rank, dims), *y = ONNX_ADD(ex, "Reshape", x, sizes);
    if (zero) onnx_set(ex, "allowzero", 1);
    return y;
}

onnx_label *onnx_stretched(onnx_export *ex, onnx_label *x, int rank, const tir_expr *dims) {
    onnx_label *sizes = onnx_sizes(ex, rank, dims);
    return ONNX_ADD(ex, "Expand", x, sizes);
}

onnx_label *onnx_transposed(onnx_export *ex, onnx_label *x, int rank, const int64_t *permutation) {
    bool same = true;
    for (int d = 0; d < rank; d++) same &= permutation[d] == d;
    if (same) return x;
    onnx_label *y = ONNX_ADD(ex, "Transpose", x);
    onnx_set_list(ex, "perm", rank, permutation);
    return y;
}

onnx_label *onnx_unsqueezed(onnx_export *ex, onnx_label *x, int count, const int64_t *axes) {
    return count ? ONNX_ADD(ex, "Unsqueeze", x, onnx_list(ex, count, axes)) : x;
}

onnx_label *onnx_squeezed(onnx_export *ex, onnx_label *x, int count, const int64_t *axes) {
    return count ? ONNX_ADD(ex, "Squeeze", x, onnx_list(ex, count, axes)) : x;
}

onnx_label *onnx_sliced(onnx_export *ex, onnx_label *x, int axis, onnx_label *from, onnx_label *to) {
    return ONNX_ADD(ex, "Slice", x, from, to, onnx_list(ex, 1, (int64_t[]){axis}));
}

onnx_label *onnx_cropped(onnx_export *ex, onnx_label *x, int first, int rank, const graph_attribute *low,
                         const graph_attribute *high) {
    int64_t from[DLC_MAX_RANK], to[DLC_MAX_RANK], axes[DLC_MAX_RANK];
    int count = 0;
    for (int d = 0; d < rank; d++) {
        const int64_t before = low->count ? low->list[d] : 0, after = high->count ? high->list[d] : 0;
        if (before >= 0 && after >= 0) continue;
        from[count] = before < 0 ? -before : 0, to[count] = after < 0 ? after : INT64_MAX, axes[count++] = first + d;
    }
    if (!count) return x;
    return ONNX_ADD(ex, "Slice", x, onnx_list(ex, count, from), onnx_list(ex, count, to), onnx_list(ex, count, axes));
}

onnx_label *onnx_clamped(onnx_export *ex, onnx_label *x, onnx_label *low, onnx_label *high) {
    return ONNX_ADD(ex, "Min", ONNX_ADD(ex, "Max", x, low), high);
}

onnx_label *onnx_export_counted(onnx_export *ex, tir_expr size) {
    onnx_label *scalar = ONNX_ADD(ex, "Squeeze", onnx_size(ex, size), onnx_list(ex, 1, (int64_t[]){0}));
    return ONNX_ADD(ex, "Range", onnx_whole(ex, DLC_I64, 0), scalar, onnx_whole(ex, DLC_I64, 1));
}

/* ---- operands and results ---------------------------------------------------------------------------------------------------- */

static onnx_label *value_of(onnx_export *ex, graph_id id) {
    if (!ex->value[id] && ex->narrow[id]) {
        const graph_shape *shape = graph_shape_of(ex->g, id);
        const bool narrow = lib_dtype_is_f8(shape->dtype); /* which Expand does not take */
        onnx_label *x = narrow ? onnx_to(ex, ex->narrow[id], DLC_F32) : ex->narrow[id];
        x = onnx_stretched(ex, x, shape->rank, shape->dim);
        ex->value[id] = narrow ? onnx_to(ex, x, shape->dtype) : x;
    }
    return ex->value[id];
}

static bool widens(const onnx_export *ex, dlc_dtype dtype) {
    return ex->widened && lib_dtype_is_narrow_float(dtype);
}

onnx_label *onnx_in(onnx_export *ex, int i) {
    if (i >= ex->node->inputs || !ex->node->input[i]) return NULL;
    onnx_label *x = value_of(ex, ex->node->input[i]);
    return widens(ex, onnx_in_shape(ex, i)->dtype) ? onnx_to(ex, x, DLC_F32) : x;
}

dlc_dtype onnx_in_dtype(const onnx_export *ex, int i) {
    const dlc_dtype dtype = onnx_in_shape(ex, i)->dtype;
    return widens(ex, dtype) ? DLC_F32 : dtype;
}

void onnx_in_maps(onnx_export *ex, onnx_label **input) {
    bool full = false;
    for (int i = 0; i < ex->node->inputs; i++) full |= !ex->narrow[ex->node->input[i]];
    for (int i = 0; i < ex->node->inputs; i++) {
        onnx_label *narrow = ex->narrow[ex->node->input[i]];
        input[i] = full && narrow && !ex->widened ? narrow : onnx_in(ex, i);
    }
}

void onnx_export_give_label(onnx_export *ex, int i, onnx_label *label) {
    const graph_id id = ex->node->first + (graph_id)i;
    const graph_value *value = &ex->g->values.data[id];
    if (widens(ex, value->shape.dtype)) label = onnx_to(ex, label, value->shape.dtype);
    ex->value[id] = label;
    if (value->called && label->home && !label->output && take_name(ex, value->called))
        label->text = lib_arena_string(ex->arena, value->called);
    if (ex->out == ex->main) note_dimensions(ex, id, label);
}

void onnx_give_narrow(onnx_export *ex, int i, onnx_label *label) {
    const graph_id id = ex->node->first + (graph_id)i;
    const dlc_dtype dtype = graph_shape_of(ex->g, id)->dtype;
    ex->narrow[id] = widens(ex, dtype) ? onnx_to(ex, label, dtype) : label;
}

const graph_attribute *onnx_attribute_named(const graph_node *node, const char *name) {
    return &node->attribute[graph_op_attribute(node->op, name)];
}

int onnx_row_axis(const onnx_export *ex, const char *name, int rank) {
    const int64_t axis = onnx_row_int(ex, name);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- nodes of the graph --------------------------------------------------------------------------------------------------------- */

/* Sets the ONNX attribute `to` to the current node's attribute `name`. */
static void translate(onnx_export *ex, const char *name, const char *to) {
    const int at = graph_op_attribute(ex->node->op, name);
    const graph_attribute_spec *spec = &ex->node->op->attribute[at];
    const graph_attribute *a = &ex->node->attribute[at];
    size_t length;
    switch (spec->kind) {
    case GRAPH_ATTR_FLOAT: onnx_set_number(ex, to, a->number); break;
    case GRAPH_ATTR_STRING: onnx_set_text(ex, to, a->string); break;
    case GRAPH_ATTR_INTEGERS: onnx_set_list(ex, to, a->count, a->list); break;
    case GRAPH_ATTR_DTYPE: onnx_set(ex, to, element_of(ex, (dlc_dtype)a->integer)); break;
    case GRAPH_ATTR_ENUM: {
        const char *word = graph_choice_word(spec->choices, a->integer, &length);
        onnx_set_text(ex, to, lib_arena_format(ex->arena, "%.*s", (int)length, word));
        break;
    }
    default: onnx_set(ex, to, a->integer);
    }
}

/* Sets the ONNX attributes of a list such as "slope:alpha axis": own name, and after a colon ONNX's name if it differs. */
static void translate_all(onnx_export *ex, const char *list) {
    while (list && *list) {
        const size_t length = strcspn(list, " "), own = strcspn(list, ": ");
        const char *name = lib_arena_format(ex->arena, "%.*s", (int)own, list);
        translate(ex, name,
                  own < length ? lib_arena_format(ex->arena, "%.*s", (int)(length - own - 1), list + own + 1) : name);
        list += length + (list[length] == ' ');
    }
}

static void export_plain(onnx_export *ex) {
    const onnx_export_row *row = ex->row;
    onnx_label *input[16];
    if (ex->node->op->class_ == GRAPH_MAP)
        onnx_in_maps(ex, input);
    else
        for (int i = 0; i < ex->node->inputs && i < 16; i++) input[i] = onnx_in(ex, i);
    onnx_label *y = onnx_add(ex, row->op, ex->node->inputs, input);
    translate_all(ex, row->attributes);
    onnx_label *more[8] = {0};
    for (int i = 1; i < ex->node->results && i < 8; i++) more[i] = onnx_add_result(ex);
    onnx_export_give_label(ex, 0, y);
    for (int i = 1; i < ex->node->results && i < 8; i++) onnx_export_give_label(ex, i, more[i]);
}

/* After a refusal: gives results without a name an empty label, so that export can continue. */
static void give_nothing(onnx_export *ex) {
    for (int i = 0; i < ex->node->results; i++)
        if (!ex->value[ex->node->first + (graph_id)i] && !ex->narrow[ex->node->first + (graph_id)i])
            ex->value[ex->node->first + (graph_id)i] = label_new(ex, "", NULL);
}

/* Have all results no elements? They are exported as constants, since implementations often refuse to compute such nodes. */
static bool is_empty(const graph *g, const graph_node *node) {
    for (int i = 0; i < node->results; i++) {
        const graph_shape *shape = graph_shape_of(g, node->first + (graph_id)i);
        bool empty = false;
        int64_t size;
        for (int d = 0; d < shape->rank; d++) empty |= tir_is_const(g->pool, shape->dim[d], &size) && size == 0;
        if (!empty || !onnx_takes(ONNX_ALL, shape->dtype)) return false;
    }
    return node->results > 0 && !node->impure;
}

static void export_empty(onnx_export *ex) {
    for (int i = 0; i < ex->node->results; i++) {
        const graph_shape *shape = onnx_result_shape(ex, i);
        onnx_export_give_label(ex, i, onnx_stretched(ex, onnx_whole(ex, shape->dtype, 0), shape->rank, shape->dim));
    }
}

static void export_node(onnx_export *ex, const graph_node *node) {
    const char *why;
    ex->node = node;
    ex->widened = false;
    ex->row = onnx_export_row_of(node->op);
    if (strcmp(node->op->name, "constant") == 0) {
        export_constant(ex);
        return;
    }
    if (onnx_export_class_of(node->op, &why) != ONNX_EXPORT_NONE && is_empty(ex->g, node)) {
        export_empty(ex);
        return;
    }
    const bool kept = is_kept(ex->g, node), map = graph_op_has_scalar(node->op);
    ex->widened = kept && is_widened(ex->g, node, ex->row);
    if (kept && !ex->row->why) {
        if (ex->row->since) onnx_need(ex, ex->row->since);
        if (ex->row->export)
            ex->row->export(ex);
        else
            export_plain(ex);
    } else if (!kept && map)
        onnx_export_scalar(ex);
    else if (onnx_export_class_of(node->op, &why) == ONNX_EXPORT_NONE)
        onnx_refuse(ex, "%s", why);
    else if (node->inputs)
        onnx_refuse(ex, "not of %s, or not with these attributes", lib_dtypes[onnx_in_shape(ex, 0)->dtype].name);
    else
        onnx_refuse(ex, "not with these attributes");
    give_nothing(ex);
}

/* The state that belongs to one graph. */
typedef struct frame {
    const graph *g;
    onnx_label **value, **narrow;
    const uint32_t *reads;
    const graph_node *node;
    const onnx_export_row *row;
    bool widened;
} frame;

static const uint32_t *count_reads(const onnx_export *ex, const graph *g) {
    const bool *live = graph_live_nodes(ex->arena, g);
    uint32_t *reads = LIB_NEW_ARRAY(ex->arena, uint32_t, (size_t)g->values.count + 1);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (int k = 0; live[i] && k < g->nodes.data[i].inputs; k++) reads[g->nodes.data[i].input[k]]++;
    for (uint32_t o = 0; o < g->outputs.count; o++) reads[g->outputs.data[o]]++;
    return reads;
}

static frame enter(onnx_export *ex, const graph *g) {
    const frame outer = {ex->g, ex->value, ex->narrow, ex->reads, ex->node, ex->row, ex->widened};
    ex->g = g;
    ex->reads = count_reads(ex, g);
    ex->value = LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)g->values.count + 1);
    ex->narrow = LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)g->values.count + 1);
    return outer;
}

static void leave(onnx_export *ex, const frame *outer) {
    ex->g = outer->g, ex->value = outer->value, ex->narrow = outer->narrow, ex->reads = outer->reads;
    ex->node = outer->node, ex->row = outer->row, ex->widened = outer->widened;
}

static void export_nodes(onnx_export *ex) {
    const bool *live = graph_live_nodes(ex->arena, ex->g);
    for (uint32_t i = 0; i < ex->g->nodes.count; i++)
        if (live[i] && strcmp(ex->g->nodes.data[i].op->name, "input") != 0) export_node(ex, &ex->g->nodes.data[i]);
    ex->node = NULL;
}

void onnx_inline(onnx_export *ex, const graph *g, onnx_label *const *inputs, onnx_label **result) {
    const frame outer = enter(ex, g);
    for (uint32_t i = 0; i < g->inputs.count; i++) ex->value[g->inputs.data[i]] = inputs[i];
    export_nodes(ex);
    for (uint32_t i = 0; i < g->outputs.count; i++) result[i] = value_of(ex, g->outputs.data[i]);
    leave(ex, &outer);
}

/* ---- inputs, outputs -------------------------------------------------------------------------------------------------------------- */

onnx_out_graph *onnx_begin_graph(onnx_export *ex, const char *name) {
    onnx_out_graph *made = LIB_NEW(ex->arena, onnx_out_graph);
    made->name = name;
    return made;
}

static onnx_out_value port(onnx_export *ex, const onnx_label *label, const graph_shape *shape) {
    onnx_out_value value = {.label = label, .element = element_of(ex, shape->dtype), .rank = shape->rank};
    for (int d = 0; d < shape->rank; d++) {
        lib_text text;
        if (tir_is_const(ex->g->pool, shape->dim[d], &value.dim[d].value)) continue;
        lib_text_init(&text, ex->arena);
        tir_print_expr(&text, ex->g->pool, shape->dim[d], NULL);
        value.dim[d].symbol = text.data;
    }
    if (shape->dtype == DLC_C64) value.dim[value.rank++].value = 2;
    return value;
}

onnx_label *onnx_add_graph_input(onnx_export *ex, const char *base, const graph_shape *shape) {
    onnx_label *label = label_new(ex, fresh(ex, base), NULL);
    lib_vec_push(ex->arena, &ex->out->inputs, port(ex, label, shape));
    return label;
}

/* The value, or an Identity of it, computed in the current graph and not yet one of its outputs; marks it as an output. */
static onnx_label *own_result(onnx_export *ex, onnx_label *value) {
    if (value->home != ex->out || value->output) value = ONNX_ADD(ex, "Identity", value);
    value->output = true;
    return value;
}

void onnx_add_graph_output(onnx_export *ex, onnx_label *value, const graph_shape *shape) {
    lib_vec_push(ex->arena, &ex->out->outputs, port(ex, own_result(ex, value), shape));
}

static const char *port_name(onnx_export *ex, const char *given, const char *base, uint32_t number) {
    const char *name = given ? lib_arena_string(ex->arena, given) : lib_arena_format(ex->arena, "%s_%u", base, number);
    if (!take_name(ex, name))
        lib_raise(ex->arena->scope, DLC_INVALID_ARGUMENT,
                  "%s \"%.80s\": another input or output has this name, which ONNX does not allow", base, name);
    return name;
}

static void export_main(onnx_export *ex, const graph *g) {
    onnx_label **output = LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)g->outputs.count + 1);
    const char **name = LIB_NEW_ARRAY(ex->arena, const char *, (size_t)g->outputs.count + 1);
    ex->main = ex->out = onnx_begin_graph(ex, "main");
    ex->symbols = g->pool->variables.count;
    ex->symbol = LIB_NEW_ARRAY(ex->arena, onnx_symbol_source, (size_t)ex->symbols + 1);
    enter(ex, g);
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const graph_id id = g->inputs.data[i];
        onnx_label *label = label_new(ex, port_name(ex, g->values.data[id].name, "input", i), NULL);
        ex->value[id] = label;
        lib_vec_push(ex->arena, &ex->out->inputs, port(ex, label, graph_shape_of(g, id)));
        note_dimensions(ex, id, label);
    }
    for (uint32_t i = 0; i < g->outputs.count; i++) name[i] = port_name(ex, g->output_names.data[i], "output", i);
    export_nodes(ex);
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        output[i] = own_result(ex, value_of(ex, g->outputs.data[i]));
        output[i]->text = name[i];
        lib_vec_push(ex->arena, &ex->out->outputs, port(ex, output[i], graph_shape_of(g, g->outputs.data[i])));
    }
}

/* ---- versions --------------------------------------------------------------------------------------------------------------------- */

static const struct version { int opset, ir; } versions[] = {{17, 8}, {20, 9}, {21, 10}, {23, 11}};
enum { VERSIONS = sizeof versions / sizeof versions[0] };

static void raise_refusals(const onnx_export *ex) {
    lib_raise(ex->arena->scope, DLC_UNSUPPORTED, "%d %s cannot be exported:%s", ex->refusals,
              ex->refusals == 1 ? "value" : "values", ex->refused.data);
}

onnx_out_model *onnx_export_graph(lib_arena *arena, const graph *g, const onnx_export_options *options) {
    const graph *rows = graph_expand_all(arena, g, expands); /* all nodes have a form of their own, or none */
    int at = 0;
    while (options->opset && at < VERSIONS && versions[at].opset != options->opset) at++;
    if (at == VERSIONS)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "opset %d: expected 0, 17, 20, 21 or 23", options->opset);
    for (;; at++) {
        onnx_export ex = {.arena = arena, .opset = versions[at].opset};
        lib_text_init(&ex.refused, arena);
        export_main(&ex, rows);
        if (ex.refusals) raise_refusals(&ex);
        if (ex.needed <= ex.opset) {
            onnx_out_model *model = LIB_NEW(arena, onnx_out_model);
            *model = (onnx_out_model){.ir_version = versions[at].ir,
                                      .opset = ex.opset,
                                      .producer = options->producer ? options->producer : "libdlc",
                                      .graph = ex.main};
            return model;
        }
        if (options->opset || at + 1 == VERSIONS)
            lib_raise(arena->scope, DLC_UNSUPPORTED, "operator set %d does not hold this graph, which needs %d",
                      ex.opset, ex.needed);
    }
}
