/* The core of the importer: names, order, functions, constants, inputs and outputs; the helpers of rows. */
#include "graph/onnx/import.h"

#include "graph/onnx/control.h"
#include "graph/onnx/structure.h"

#include "graph/internal.h"
#include "graph/origin.h"

enum { FUNCTION_NESTING = 32 };

/* ---- errors -------------------------------------------------------------------------------------------------------- */

void onnx_fail(onnx_import *im, dlc_status status, const char *format, ...) {
    lib_text text;
    va_list arguments;
    lib_text_init(&text, im->g->arena);
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    lib_raise(im->g->arena->scope, status, "%s", text.data);
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static uint64_t hash_name(onnx_bytes name) {
    return lib_hash_name(name.data, name.size);
}

static onnx_value *find_in(const onnx_names_scope *scope, onnx_bytes name) {
    const uint64_t hash = hash_name(name);
    for (uint32_t at = lib_map_first(&scope->by_name, hash); at != LIB_MAP_END;
         at = lib_map_next(&scope->by_name, hash, at)) {
        onnx_value *value = scope->values.data[scope->by_name.slots[at].value];
        if (value->name.size == name.size && memcmp(value->name.data, name.data, name.size) == 0) return value;
    }
    return NULL;
}

onnx_value *onnx_find_value(const onnx_import *im, onnx_bytes name) {
    for (const onnx_names_scope *scope = im->scope; scope; scope = scope->outer) {
        onnx_value *value = find_in(scope, name);
        if (value) return value;
    }
    return NULL;
}

onnx_value *onnx_define(onnx_import *im, onnx_bytes name) {
    lib_arena *arena = im->g->arena;
    if (find_in(im->scope, name))
        onnx_fail(im, DLC_PARSE_ERROR, "the name %s is given to two values", onnx_shown(arena, name));
    onnx_value *value = LIB_NEW(arena, onnx_value);
    value->name = name;
    lib_map_insert(arena, &im->scope->by_name, hash_name(name), im->scope->values.count);
    lib_vec_push(arena, &im->scope->values, value);
    return value;
}

void onnx_define_initializers(onnx_import *im, const onnx_graph *of) {
    for (size_t i = 0; i < of->initializers.count; i++)
        onnx_define(im, of->initializers.data[i].name)->stored = &of->initializers.data[i];
    for (size_t i = 0; i < of->sparse_initializers.count; i++)
        onnx_define(im, of->sparse_initializers.data[i].dense->name)->stored = of->sparse_initializers.data[i].dense;
}

char *onnx_text_copy(onnx_import *im, onnx_bytes text, const char *what) {
    if (text.size && memchr(text.data, 0, text.size))
        onnx_fail(im, DLC_PARSE_ERROR, "%s %s holds a NUL", what, onnx_shown(im->g->arena, text));
    char *copy = lib_arena_take(im->g->arena, text.size + 1);
    if (text.size) memcpy(copy, text.data, text.size);
    return copy;
}

/* ---- attributes ---------------------------------------------------------------------------------------------------- */

bool onnx_same(onnx_bytes a, onnx_bytes b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static const onnx_attribute *find_attribute(const onnx_attribute *list, size_t count, onnx_bytes name, size_t *index) {
    for (size_t i = 0; i < count; i++)
        if (onnx_same(list[i].name, name)) {
            if (index) *index = i;
            return &list[i];
        }
    return NULL;
}

/* Resolves a reference to an attribute of the enclosing function: the caller's value, or, if it gives none or refers to one that was not
 * given to it, the function's default; NULL: omitted. */
static const onnx_attribute *resolve(const onnx_call *call, const onnx_attribute *attribute) {
    if (!attribute || !attribute->reference.size) return attribute;
    if (!call) return NULL;
    const onnx_function *function = call->function;
    const onnx_attribute *value =
        resolve(call->outer,
                find_attribute(call->node->attributes.data, call->node->attributes.count, attribute->reference, NULL));
    if (!value)
        value = find_attribute(function->attribute_defaults.data, function->attribute_defaults.count,
                               attribute->reference, NULL);
    return value && value->reference.size ? NULL : value;
}

const onnx_attribute *onnx_attribute_at(const onnx_import *im, size_t i) {
    return resolve(im->call, &im->node->attributes.data[i]);
}

const onnx_attribute *onnx_attribute_find(onnx_import *im, const char *name, onnx_attribute_type type) {
    size_t index = 0;
    const onnx_attribute *own =
        find_attribute(im->node->attributes.data, im->node->attributes.count, (onnx_bytes){name, strlen(name)}, &index);
    if (!own) return NULL;
    if (index < 64) im->asked |= UINT64_C(1) << index;
    const onnx_attribute *attribute = resolve(im->call, own);
    if (attribute && onnx_attribute_type_of(attribute) != type)
        onnx_fail(im, DLC_PARSE_ERROR, "attribute %s has the wrong type (%d, not %d)", name,
                  (int)onnx_attribute_type_of(attribute), (int)type);
    return attribute;
}

int64_t onnx_int(onnx_import *im, const char *name, int64_t fallback) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_INT);
    return a ? a->i : fallback;
}

double onnx_float(onnx_import *im, const char *name, double fallback) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_FLOAT);
    return a ? (double)a->f : fallback;
}

const char *onnx_string(onnx_import *im, const char *name, const char *fallback) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_STRING);
    return a ? onnx_text_copy(im, a->s, name) : fallback;
}

const int64_t *onnx_ints(onnx_import *im, const char *name, int *count) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_INTS);
    if (a && a->ints.count > 1 << 20)
        onnx_fail(im, DLC_UNSUPPORTED, "attribute %s has %zu numbers", name, a->ints.count);
    *count = a ? (int)a->ints.count : 0;
    return a ? a->ints.data : NULL;
}

const float *onnx_floats(onnx_import *im, const char *name, int *count) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_FLOATS);
    if (a && a->floats.count > 1 << 20)
        onnx_fail(im, DLC_UNSUPPORTED, "attribute %s has %zu numbers", name, a->floats.count);
    *count = a ? (int)a->floats.count : 0;
    return a ? a->floats.data : NULL;
}

int onnx_choice(onnx_import *im, const char *name, const char *words, const char *fallback) {
    const char *word = onnx_string(im, name, fallback);
    const size_t length = strlen(word);
    int index = 0;
    for (const char *at = words; *at; index++) {
        const size_t size = strcspn(at, " ");
        if (size == length && memcmp(at, word, size) == 0) return index;
        at += size + (at[size] == ' ');
    }
    onnx_fail(im, DLC_UNSUPPORTED, "attribute %s is \"%.80s\"; known: %s", name, word, words);
}

void onnx_ignore(onnx_import *im, const char *name) {
    size_t index;
    if (find_attribute(im->node->attributes.data, im->node->attributes.count, (onnx_bytes){name, strlen(name)},
                       &index) &&
        index < 64)
        im->asked |= UINT64_C(1) << index;
}

dlc_dtype onnx_dtype(onnx_import *im, int64_t data_type) {
    const onnx_element *element = data_type < 0 || data_type > 1000 ? NULL : onnx_element_of((int32_t)data_type);
    if (!element) onnx_fail(im, DLC_PARSE_ERROR, "element type %lld, which ONNX does not have", (long long)data_type);
    if (element->dtype < 0) onnx_fail(im, DLC_UNSUPPORTED, "libdlc has no element type %s", element->name);
    return (dlc_dtype)element->dtype;
}

dlc_dtype onnx_dtype_attribute(onnx_import *im, const char *name, dlc_dtype fallback) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_INT);
    return a ? onnx_dtype(im, a->i) : fallback;
}

int onnx_axis(onnx_import *im, int64_t axis, int rank, bool past) {
    const int64_t positive = axis < 0 ? axis + rank + past : axis;
    if (positive < 0 || positive >= rank + past)
        onnx_fail(im, DLC_PARSE_ERROR, "axis %lld of a tensor of rank %d", (long long)axis, rank);
    return (int)positive;
}

int64_t *onnx_axis_list(onnx_import *im, const int64_t *given, int count, int rank) {
    int64_t *axes = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)count + 1);
    uint32_t named = 0;
    for (int i = 0; i < count; i++) {
        const int axis = onnx_axis(im, given ? given[i] : i, rank, false);
        if (named >> axis & 1) onnx_fail(im, DLC_PARSE_ERROR, "axis %d twice", axis);
        named |= UINT32_C(1) << axis;
        axes[i] = axis;
    }
    return axes;
}

const int64_t *onnx_axes(onnx_import *im, int operand_since, size_t at, int rank, int *count) {
    const int64_t *given;
    if (im->opset >= operand_since)
        given = onnx_has(im, at) ? onnx_operand_integers(im, at, count) : (*count = 0, NULL);
    else
        given = onnx_ints(im, "axes", count);
    return given ? onnx_axis_list(im, given, *count, rank) : NULL;
}

/* ---- operands and results ------------------------------------------------------------------------------------------ */

graph_id onnx_make_constant(onnx_import *im, graph *g, const onnx_tensor *tensor) {
    const onnx_data data = onnx_tensor_data(im->g->arena, tensor);
    const dlc_dtype dtype = onnx_dtype(im, tensor->data_type);
    if (onnx_is_external(tensor))
        onnx_fail(im, DLC_UNSUPPORTED, "constant %s has external data, which dlc_onnx_open reads",
                  onnx_shown(im->g->arena, tensor->name));
    if (tensor->dims.count > DLC_MAX_RANK)
        onnx_fail(im, DLC_UNSUPPORTED, "a constant of %zu dimensions; at most %d", tensor->dims.count, DLC_MAX_RANK);
    /* Large ones at any address; the others, whose elements rules of the host may read, only if they are aligned to their elements. */
    const bool in_place =
        im->holder && data.bytes.data == tensor->raw_data.data &&
        (data.bytes.size >= GRAPH_BYTES_LEAST || (uintptr_t)data.bytes.data % lib_dtype_size(dtype) == 0);
    const graph_id id =
        graph_literal_of(g, dtype, (int)tensor->dims.count, tensor->dims.data, data.bytes.data, in_place);
    graph_constant *constant = &g->constants.data[graph_node_of(g, id)->attribute[0].integer];
    if (in_place && constant->bytes == data.bytes.data) constant->holder = im->holder;
    return id;
}

graph_id onnx_id_of(onnx_import *im, onnx_value *value) {
    if (!value->id && onnx_form_of(value) != ONNX_NUMBERS) onnx_refuse_structure(im, value);
    if (!value->id && value->stored)
        value->id =
            im->options->store ? onnx_make_stored(im, value->stored) : onnx_make_constant(im, im->g, value->stored);
    if (!value->id && value->known) value->id = onnx_make_known(im, value->known);
    if (!value->id)
        onnx_fail(im, DLC_PARSE_ERROR, "operand %s is not defined before it is used",
                  onnx_shown(im->g->arena, value->name));
    return value->id;
}

const onnx_known *onnx_known_of(onnx_import *im, onnx_value *value) {
    if (!value->known && value->stored) value->known = onnx_known_of_tensor(im, value->stored);
    return value->known;
}

graph_id onnx_operand(onnx_import *im, size_t i) {
    return onnx_has(im, i) ? onnx_id_of(im, im->operand[i]) : 0;
}

graph_id onnx_operand_or_scalar(onnx_import *im, size_t i) {
    const graph_id id = onnx_operand(im, i);
    int64_t count;
    if (!id || graph_shape_of(im->g, id)->rank != 1) return id;
    const bool one = tir_is_const(im->g->pool, graph_shape_of(im->g, id)->dim[0], &count) && count == 1;
    return one ? graph_reshape(im->g, id, 0, NULL) : id;
}

graph_shape onnx_operand_shape(onnx_import *im, size_t i) {
    if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
    return onnx_shape_of(im, im->operand[i]);
}

graph_shape onnx_shape_of(onnx_import *im, onnx_value *value) {
    onnx_value *elements = onnx_elements_of(im, value);
    if (elements) return onnx_shape_of(im, elements);
    if (value->id) return *graph_shape_of(im->g, value->id);
    const onnx_known *known = onnx_known_of(im, value);
    if (!known) return *graph_shape_of(im->g, onnx_id_of(im, value));
    graph_shape shape = {.dtype = known->dtype, .rank = known->rank};
    for (int d = 0; d < known->rank; d++) shape.dim[d] = tir_index(im->g->pool, known->dims[d]);
    return shape;
}

graph_id onnx_operand_of_rank(onnx_import *im, size_t i, int rank) {
    const int own = onnx_operand_rank(im, i);
    if (own != rank) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu has rank %d, expected %d", i, own, rank);
    return onnx_operand(im, i);
}

const onnx_known *onnx_operand_known(onnx_import *im, size_t i) {
    return onnx_has(im, i) ? onnx_known_of(im, im->operand[i]) : NULL;
}

const tir_expr *onnx_operand_sizes(onnx_import *im, size_t i, int *count) {
    const onnx_known *known = onnx_operand_asked(im, i);
    if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
    if (onnx_form_of(im->operand[i]) != ONNX_NUMBERS) onnx_refuse_structure(im, im->operand[i]);
    if (!known)
        onnx_fail(im, DLC_UNSUPPORTED, "operand %zu, %s, decides a shape and depends on data", i,
                  onnx_shown(im->g->arena, im->operand[i]->name));
    tir_expr *sizes = LIB_NEW_ARRAY(im->g->arena, tir_expr, (size_t)known->count + 1);
    for (int64_t k = 0; k < known->count; k++) {
        if (!known->element[k].index || known->element[k].over != 1)
            onnx_fail(im, DLC_UNSUPPORTED, "operand %zu, %s, is no list of integers", i,
                      onnx_shown(im->g->arena, im->operand[i]->name));
        sizes[k] = known->element[k].index;
    }
    *count = (int)known->count;
    return sizes;
}

const int64_t *onnx_operand_integers(onnx_import *im, size_t i, int *count) {
    const tir_expr *sizes = onnx_operand_sizes(im, i, count);
    int64_t *integers = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)*count + 1);
    for (int k = 0; k < *count; k++)
        if (!tir_is_const(im->g->pool, sizes[k], &integers[k]))
            onnx_fail(im, DLC_UNSUPPORTED, "operand %zu, %s, depends on a size that is not given", i,
                      onnx_shown(im->g->arena, im->operand[i]->name));
    return integers;
}

static void check_single(onnx_import *im, size_t i, int count) {
    if (count != 1) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu has %d elements in place of one", i, count);
}

tir_expr onnx_operand_size(onnx_import *im, size_t i) {
    int count;
    const tir_expr *sizes = onnx_operand_sizes(im, i, &count);
    check_single(im, i, count);
    return sizes[0];
}

int64_t onnx_operand_integer(onnx_import *im, size_t i, int64_t fallback) {
    int count;
    if (!onnx_has(im, i)) return fallback;
    const int64_t *integers = onnx_operand_integers(im, i, &count);
    check_single(im, i, count);
    return integers[0];
}

bool onnx_operand_is_constant(onnx_import *im, size_t i) {
    const onnx_known *known = onnx_operand_known(im, i);
    return known && onnx_known_is_constant(im, known);
}

double onnx_operand_float(onnx_import *im, size_t i, double fallback) {
    const onnx_known *known = onnx_operand_asked(im, i);
    int64_t integer;
    if (!onnx_has(im, i)) return fallback;
    if (!known || known->count != 1 || !onnx_known_is_constant(im, known))
        onnx_fail(im, DLC_UNSUPPORTED, "operand %zu, %s, is no number that is known at import", i,
                  onnx_shown(im->g->arena, im->operand[i]->name));
    if (!known->element[0].index) return known->element[0].number;
    tir_is_const(im->g->pool, known->element[0].index, &integer);
    return (double)integer / (double)known->element[0].over;
}

void onnx_give(onnx_import *im, size_t i, graph_id id) {
    if (!onnx_wants(im, i)) return;
    im->result[i]->id = id;
}

void onnx_give_known(onnx_import *im, size_t i, const onnx_known *known) {
    if (onnx_wants(im, i)) im->result[i]->known = known;
}

void onnx_give_operand(onnx_import *im, size_t i, size_t k) {
    if (!onnx_wants(im, i)) return;
    if (!onnx_has(im, k)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", k);
    onnx_take_value(im->result[i], im->operand[k]);
}

graph_id onnx_emit(onnx_import *im, const char *op, int inputs, const graph_id *input, int settings,
                   const graph_setting *setting) {
    const graph_op *row = graph_find_op(im->g, op);
    if (row && row->class_ == GRAPH_MAP && inputs > 1 && settings == 0)
        return graph_emit_broadcast(im->g, row, inputs, input, NULL);
    return graph_emit_with(im->g, op, inputs, input, settings, setting);
}

graph_id onnx_unary(onnx_import *im, const char *op, graph_id x) {
    return onnx_emit(im, op, 1, &x, 0, NULL);
}

graph_id onnx_binary(onnx_import *im, const char *op, graph_id a, graph_id b) {
    return onnx_emit(im, op, 2, (graph_id[]){a, b}, 0, NULL);
}

/* x with its last axis moved to position 1 if `first`, else with axis 1 moved to the end. */
static graph_id move_channels(onnx_import *im, graph_id x, bool first) {
    const int rank = graph_shape_of(im->g, x)->rank;
    int64_t permutation[DLC_MAX_RANK] = {0};
    if (rank < 2) onnx_fail(im, DLC_PARSE_ERROR, "an operand of rank %d has no channels", rank);
    for (int d = 1; d < rank; d++) permutation[d] = first ? (d == 1 ? rank - 1 : d - 1) : (d == rank - 1 ? 1 : d + 1);
    return graph_transpose(im->g, x, permutation);
}

graph_id onnx_channels_first(onnx_import *im, graph_id x) {
    return move_channels(im, x, true);
}

graph_id onnx_channels_last(onnx_import *im, graph_id x) {
    return move_channels(im, x, false);
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static void bind_operands(onnx_import *im, const onnx_node *node) {
    im->operand = LIB_NEW_ARRAY(im->g->arena, onnx_value *, node->inputs.count + 1);
    for (size_t i = 0; i < node->inputs.count; i++) {
        if (!node->inputs.data[i].size) continue;
        im->operand[i] = onnx_find_value(im, node->inputs.data[i]);
        if (!im->operand[i])
            onnx_fail(im, DLC_PARSE_ERROR, "operand %zu, %s, is defined nowhere", i,
                      onnx_shown(im->g->arena, node->inputs.data[i]));
        if (im->operand[i]->omitted) im->operand[i] = NULL;
    }
    im->result = LIB_NEW_ARRAY(im->g->arena, onnx_value *, node->outputs.count + 1);
    for (size_t i = 0; i < node->outputs.count; i++)
        if (node->outputs.data[i].size) im->result[i] = onnx_define(im, node->outputs.data[i]);
}

static void check_attributes(onnx_import *im) {
    for (size_t i = 0; i < im->node->attributes.count; i++)
        if (i >= 64 || !(im->asked >> i & 1))
            onnx_fail(im, DLC_UNSUPPORTED, "attribute %s is not known for this operator in opset %d",
                      onnx_shown(im->g->arena, im->node->attributes.data[i].name), im->opset);
}

/* Imports the body of a model-local function in place of the current node, which calls it. */
static void import_call(onnx_import *im, const onnx_function *function) {
    const onnx_node *node = im->node;
    onnx_value **operand = im->operand, **result = im->result;
    onnx_names_scope inner = {.outer = NULL}, *outer = im->scope;
    const onnx_call *before = im->call;
    onnx_call *call = LIB_NEW(im->g->arena, onnx_call); /* which messages of errors inside read */
    *call = (onnx_call){before, node, function, before ? before->depth + 1 : 1};
    if (call->depth > FUNCTION_NESTING)
        onnx_fail(im, DLC_BUDGET_EXCEEDED, "functions call each other more than %d deep", FUNCTION_NESTING);
    if (node->inputs.count > function->inputs.count || node->outputs.count > function->outputs.count)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu operands and %zu results of a function that has %zu and %zu",
                  node->inputs.count, node->outputs.count, function->inputs.count, function->outputs.count);
    im->scope = &inner, im->call = call;
    for (size_t i = 0; i < function->inputs.count; i++) {
        onnx_value *value = onnx_define(im, function->inputs.data[i]);
        value->omitted = i >= node->inputs.count || !operand[i];
        if (!value->omitted) onnx_take_value(value, operand[i]);
    }
    onnx_import_nodes(im, function->nodes.data, function->nodes.count);
    for (size_t i = 0; i < node->outputs.count; i++) {
        if (!result[i]) continue;
        const onnx_value *value = find_in(&inner, function->outputs.data[i]);
        if (!value)
            onnx_fail(im, DLC_PARSE_ERROR, "result %s of the function is defined nowhere",
                      onnx_shown(im->g->arena, function->outputs.data[i]));
        onnx_take_value(result[i], value);
    }
    im->scope = outer, im->call = before, im->node = node;
}

/* Imports the node by a one-to-one row: the operator row->op with the same operands. */
static void import_renamed(onnx_import *im, const onnx_row *row) {
    const int count = (int)onnx_operands(im);
    graph_id *input = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)count + 1);
    for (int i = 0; i < count; i++) input[i] = onnx_operand(im, (size_t)i);
    onnx_give(im, 0, onnx_emit(im, row->op, count, input, 0, NULL));
}

static void import_by_row(onnx_import *im, const onnx_row *row) {
    im->row = row;
    if (row->import)
        row->import(im);
    else
        import_renamed(im, row);
}

void onnx_import_as(onnx_import *im, const char *name, int opset) {
    const onnx_row *row = onnx_find_row_named(onnx_domain_at(0), (onnx_bytes){name, strlen(name)}, opset);
    const int own = im->opset;
    if (!row) onnx_fail(im, DLC_INTERNAL, "there is no operator %s in opset %d", name, opset);
    im->opset = opset;
    import_by_row(im, row);
    im->opset = own;
}

void onnx_import_with(onnx_import *im, const char *name, int opset, int count, const graph_id *operands) {
    lib_arena *arena = im->g->arena;
    const onnx_node *node = im->node;
    onnx_value **operand = im->operand;
    onnx_node *own = LIB_NEW(arena, onnx_node);
    *own = *node;
    own->inputs.count = (size_t)count;
    own->inputs.data = LIB_NEW_ARRAY(arena, onnx_bytes, (size_t)count + 1);
    im->node = own;
    im->operand = LIB_NEW_ARRAY(arena, onnx_value *, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        if (!operands[i]) continue;
        im->operand[i] = LIB_NEW(arena, onnx_value);
        im->operand[i]->id = operands[i];
    }
    onnx_import_as(im, name, opset);
    im->node = node, im->operand = operand;
}

graph_id onnx_apply(onnx_import *im, const char *name, int opset, int count, const graph_id *operands) {
    lib_arena *arena = im->g->arena;
    const onnx_node *node = im->node;
    onnx_value **result = im->result, *y = LIB_NEW(arena, onnx_value);
    onnx_node *own = LIB_NEW(arena, onnx_node);
    *own = *node;
    own->outputs.count = 1, own->outputs.data = LIB_NEW_ARRAY(arena, onnx_bytes, 1);
    im->node = own, im->result = &y;
    onnx_import_with(im, name, opset, count, operands);
    im->node = node, im->result = result;
    return onnx_id_of(im, y);
}

static void name_results(onnx_import *im, const onnx_node *node) {
    for (size_t i = 0; i < node->outputs.count; i++) {
        const onnx_value *value = im->result[i];
        if (!value || !value->id || im->call) continue;
        if (!memchr(value->name.data, 0, value->name.size))
            graph_name_value(im->g, value->id, onnx_text_copy(im, value->name, "a name"));
    }
}

static void import_unless_folded(onnx_import *im, const onnx_row *row) {
    const onnx_words *words = onnx_begin_move(im);
    if (!onnx_fold(im)) {
        import_by_row(im, row);
        check_attributes(im);
    }
    if (onnx_walks(im)) onnx_settle_results(im);
    if (words) onnx_end_move(im, words);
}

static void import_registered(onnx_import *im, const graph_definition *definition) {
    definition->import(im, definition);
    if (onnx_walks(im)) onnx_settle_results(im);
}

static void import_node(onnx_import *im, const onnx_node *node, size_t index) {
    const onnx_function *within = im->call ? im->call->function : NULL;
    im->node = node, im->node_index = index, im->asked = 0;
    if (im->depth == 1) im->main_node = node;
    im->opset = onnx_opset_of(im->model, within, node->domain);
    bind_operands(im, node);
    const onnx_meaning is = onnx_meaning_of(im->model, graph_outermost(im->g)->registry, node, im->opset);
    if (is.function) { /* a model's own definition takes precedence over ours */
        import_call(im, is.function);
        return;
    }
    if (is.row)
        import_unless_folded(im, is.row);
    else if (is.registered)
        import_registered(im, is.registered);
    else
        onnx_fail(im, DLC_UNSUPPORTED, "there is no such operator in opset %d", im->opset);
    name_results(im, node);
}

typedef struct made {
    onnx_bytes name;
    size_t node;
} made;

/* The results of nodes. */
typedef struct producers {
    lib_map by_name;
    lib_vec(made) all;
} producers;

/* The value of that name that a node makes; NULL: none does. */
static const made *find_made(const producers *p, onnx_bytes name) {
    const uint64_t hash = hash_name(name);
    for (uint32_t at = lib_map_first(&p->by_name, hash); at != LIB_MAP_END; at = lib_map_next(&p->by_name, hash, at)) {
        const made *value = &p->all.data[p->by_name.slots[at].value];
        if (onnx_same(value->name, name)) return value;
    }
    return NULL;
}

/* Raises if two results have one name. */
static void list_producers(onnx_import *im, const onnx_node *nodes, size_t count, producers *p) {
    lib_arena *arena = im->g->arena;
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < nodes[n].outputs.count; i++) {
            const onnx_bytes name = nodes[n].outputs.data[i];
            if (!name.size) continue;
            if (find_made(p, name)) {
                im->node = &nodes[n], im->node_index = n;
                onnx_fail(im, DLC_PARSE_ERROR, "the name %s is given to two values", onnx_shown(arena, name));
            }
            lib_map_insert(arena, &p->by_name, hash_name(name), p->all.count);
            lib_vec_push(arena, &p->all, ((made){name, n}));
        }
}

/* Topological order of the nodes, in linear time (Kahn 1962). The file's own order is kept if it is topological, as it should be. */
static size_t *order_nodes(onnx_import *im, const onnx_node *nodes, size_t count) {
    lib_arena *arena = im->g->arena;
    size_t *order = LIB_NEW_ARRAY(arena, size_t, count + 1), *waiting = LIB_NEW_ARRAY(arena, size_t, count + 1),
           done = 0;
    typedef struct reader {
        size_t node;
        uint32_t next;
    } reader;
    lib_vec(reader) readers = {0};
    producers results = {{0}, {0}};
    uint32_t *first = LIB_NEW_ARRAY(arena, uint32_t, count + 1);
    list_producers(im, nodes, count, &results);
    lib_vec_push(arena, &readers, ((reader){0, 0}));
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < nodes[n].inputs.count; i++) {
            const made *value = find_made(&results, nodes[n].inputs.data[i]);
            if (!value) continue;
            waiting[n]++;
            lib_vec_push(arena, &readers, ((reader){n, first[value->node]}));
            first[value->node] = readers.count - 1;
        }
    /* An ordered list stays unchanged: nodes are taken from the front while they have no unresolved operands. */
    bool *taken = LIB_NEW_ARRAY(arena, bool, count + 1);
    size_t *ready = LIB_NEW_ARRAY(arena, size_t, count + 1), ready_count = 0;
    for (size_t n = 0; n < count || ready_count;) {
        const size_t now = ready_count ? ready[--ready_count] : n++;
        if (taken[now] || waiting[now]) continue;
        taken[now] = true;
        order[done++] = now;
        for (uint32_t r = first[now]; r; r = readers.data[r].next)
            if (--waiting[readers.data[r].node] == 0 && readers.data[r].node < n)
                ready[ready_count++] = readers.data[r].node;
    }
    for (size_t n = 0; n < count && done < count; n++)
        if (!taken[n]) {
            im->node = &nodes[n], im->node_index = n;
            onnx_fail(im, DLC_PARSE_ERROR, "it reads what depends on its own result");
        }
    return order;
}

void onnx_import_nodes(onnx_import *im, const onnx_node *nodes, size_t count) {
    const size_t *order = order_nodes(im, nodes, count);
    im->depth++;
    for (size_t i = 0; i < count; i++) import_node(im, &nodes[order[i]], order[i]);
    im->depth--;
}

/* ---- inputs and outputs -------------------------------------------------------------------------------------------- */

static void import_main(onnx_import *im) {
    const onnx_graph *main = im->model->graph;
    onnx_names_scope scope = {.outer = NULL};
    im->scope = &scope;
    onnx_check_wanted(im);
    onnx_define_initializers(im, main);
    for (size_t i = 0; i < main->inputs.count; i++)
        if (!find_in(&scope, main->inputs.data[i].name)) onnx_import_input(im, &main->inputs.data[i]);
    onnx_import_nodes(im, main->nodes.data, main->nodes.count);
    im->node = NULL;
    onnx_import_outputs(im);
}

static void check_versions(onnx_import *im) {
    const onnx_model *model = im->model;
    for (size_t i = 0; i < model->opsets.count; i++) {
        const onnx_opset *o = &model->opsets.data[i];
        const onnx_domain *domain = onnx_find_domain(o->domain);
        if (domain && o->version > domain->last && !im->options->newer_opset)
            onnx_fail(im, DLC_UNSUPPORTED,
                      "opset %lld%s%s; libdlc knows operators up to opset %d (newer_opset: take them as of that)",
                      (long long)o->version, *domain->name ? " of domain " : "", domain->name, domain->last);
    }
    lib_text text;
    lib_text_init(&text, im->g->arena);
    onnx_check_model(&text, model, im->g->registry);
    if (text.length) onnx_fail(im, DLC_UNSUPPORTED, "operators that libdlc does not import: %s", text.data);
}

static void add_enclosing(onnx_import *im, lib_text *text, const onnx_place *place) {
    if (!place) return;
    add_enclosing(im, text, place->outer);
    lib_text_format(text, "node %zu %s (%s)", place->index, onnx_shown(im->g->arena, place->node->name),
                    onnx_shown(im->g->arena, place->node->operator));
    if (place->iteration >= 0) lib_text_format(text, " iteration %lld", (long long)place->iteration);
    lib_text_add(text, ": ");
}

/* Adds the error's location to its message: the current node, the nodes that enclose it, and the calls of functions that it is in. */
static void add_place(onnx_import *im, lib_error *error) {
    char *message = lib_arena_string(im->g->arena, error->message);
    lib_text text;
    lib_text_init(&text, im->g->arena);
    add_enclosing(im, &text, im->within);
    if (im->node) {
        lib_text_format(&text, "node %zu %s (%s, opset %d): ", im->node_index, onnx_shown(im->g->arena, im->node->name),
                        onnx_shown(im->g->arena, im->node->operator), im->opset);
        for (const onnx_call *call = im->call; call; call = call->outer)
            lib_text_format(&text, "in function %s: ", onnx_shown(im->g->arena, call->function->name));
    }
    lib_text_add(&text, message);
    lib_fail(error, error->status, "%s", text.data);
}

static void import_in_scope(onnx_import *im, lib_scope *scope) {
    im->g->arena->scope = scope;
    if (im->options->results) im->options->results->arena->scope = scope;
    if (LIB_ENTER(scope)) {
        check_versions(im);
        import_main(im);
    }
}

void onnx_import_graph(onnx_import *im) {
    graph *main = im->g;
    lib_arena *arena = main->arena, *kept = im->options->results ? im->options->results->arena : NULL;
    lib_scope *outer = arena->scope, *outer_kept = kept ? kept->scope : NULL, scope;
    import_in_scope(im, &scope);
    arena->scope = outer;
    if (kept) kept->scope = outer_kept;
    im->g = main;
    if (scope.error.status != DLC_OK) {
        const bool refused = !lib_is_circumstance(scope.error.status);
        if (refused && im->options->needs && im->main_node) onnx_find_needs(im, im->main_node, im->options->needs);
        if (refused) add_place(im, &scope.error);
        lib_raise_error(outer, &scope.error);
    }
}
