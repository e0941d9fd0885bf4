/* Inputs of the main graph: sizes, elements that the options give, and the tensors in structured values. Its outputs. */
#include "graph/onnx/control.h"
#include "graph/onnx/structure.h"

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

static bool is_symbol(onnx_bytes name) {
    for (size_t i = 0; i < name.size; i++) {
        const char c = name.data[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_', digit = c >= '0' && c <= '9';
        if (!letter && !(digit && i)) return false;
    }
    return name.size > 0;
}

/* The text as an identifier: other characters become _. */
static const char *identifier_of(onnx_import *im, const char *text) {
    char *copy = lib_arena_format(im->g->arena, "%s", text);
    for (char *c = copy; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9' && c > copy))) *c = '_';
    return copy;
}

static bool is_parameter(const onnx_import *im, onnx_bytes name) {
    const uint64_t hash = lib_hash_name(name.data, name.size);
    for (uint32_t at = lib_map_first(&im->parameters, hash); at != LIB_MAP_END;
         at = lib_map_next(&im->parameters, hash, at))
        if (onnx_same(im->parameter_names.data[im->parameters.slots[at].value], name)) return true;
    return false;
}

static void list_parameters(onnx_import *im) {
    const onnx_graph *main = im->model->graph;
    im->parameters_listed = true;
    for (size_t i = 0; i < main->inputs.count; i++) {
        const onnx_type *type = main->inputs.data[i].type;
        const onnx_shape *shape = type && type->which == ONNX_TYPE_TENSOR ? type->tensor->shape : NULL;
        for (size_t d = 0; shape && d < shape->dims.count; d++) {
            const onnx_bytes name = shape->dims.data[d].parameter;
            if (shape->dims.data[d].which != 2 || !name.size || is_parameter(im, name)) continue;
            lib_map_insert(im->g->arena, &im->parameters, lib_hash_name(name.data, name.size),
                           im->parameter_names.count);
            lib_vec_push(im->g->arena, &im->parameter_names, name);
        }
    }
}

/* The text as an identifier that is no symbol so far: names of inputs that differ may be one identifier, or begin alike. */
static const char *new_symbol(onnx_import *im, const char *text) {
    const char *base = identifier_of(im, text), *name = base;
    if (!im->parameters_listed) list_parameters(im);
    while (graph_find_symbol(im->g, name) != UINT32_MAX || is_parameter(im, (onnx_bytes){name, strlen(name)}))
        name = lib_arena_format(im->g->arena, "%s__%d", base, ++im->renamed);
    return name;
}

/* The size that the options give for a dimension, by its name in the file or by its symbol `made` (may be NULL); -1: none. */
static int64_t size_given(onnx_import *im, const onnx_dimension *dim, const char *made) {
    for (int i = 0; i < im->options->dim_count; i++) {
        const dlc_dim *given = &im->options->dims[i];
        if (dim && dim->which == 2 && onnx_is(dim->parameter, given->name)) return given->value;
        if (made && strcmp(identifier_of(im, given->name), made) == 0) return given->value;
    }
    return -1;
}

/* The dimension's size or symbol. Without a name that is an identifier it becomes a symbol named after input and axis. element: the tensor is an
 * element of a list. */
static tir_expr dimension_of(onnx_import *im, const onnx_dimension *dim, const char *input, int axis, bool element,
                             const onnx_arrived *arrived) {
    if (dim && dim->which == 1 && dim->value > 0) return tir_index(im->g->pool, dim->value);
    const bool named = dim && dim->which == 2 && is_symbol(dim->parameter);
    const char *own = lib_arena_format(im->g->arena, element ? "%.64s__%d" : "%.64s_%d", input, axis),
               *name = named ? onnx_text_copy(im, dim->parameter, "dimension") : new_symbol(im, own);
    const int64_t given = size_given(im, dim, named || element ? NULL : name);
    if (given >= 0) return tir_index(im->g->pool, given);
    if (arrived && arrived->dim[axis] >= 0) return tir_index(im->g->pool, arrived->dim[axis]);
    return graph_symbol_named(im->g, name);
}

/* Raises unless elements that are given at import have the rank and the fixed sizes that the file declares. Other inputs are checked by the
 * program. */
static void check_shape(onnx_import *im, const onnx_shape *declared, int rank, const int64_t *dims, const char *name) {
    if (declared && declared->dims.count != (size_t)rank)
        onnx_fail(im, DLC_INVALID_ARGUMENT, "input %s has rank %d, expected %zu", name, rank, declared->dims.count);
    for (int d = 0; declared && d < rank; d++) {
        const onnx_dimension *dim = &declared->dims.data[d];
        if (dim->which == 1 && dim->value > 0 && dim->value != dims[d])
            onnx_fail(im, DLC_INVALID_ARGUMENT, "input %s: dimension %d is %lld, expected %lld", name, d,
                      (long long)dims[d], (long long)dim->value);
    }
}

static void check_given(onnx_import *im, const onnx_tensor_type *type, const DLTensor *given, const char *name) {
    const dlc_dtype wanted = onnx_dtype(im, type->element);
    dlc_dtype dtype;
    if (!lib_dtype_from_dlpack(given->dtype, &dtype) || dtype != wanted)
        onnx_fail(im, DLC_INVALID_ARGUMENT, "input %s has not the element type of the file, %s", name,
                  tir_dtype_name((tir_dtype)wanted));
    check_shape(im, type->shape, given->ndim, given->shape, name);
}

/* Makes the graph's input for a tensor that has arrived, or its known elements. element: of a list, whose named sizes differ. */
static void import_tensor(onnx_import *im, onnx_value *to, const onnx_tensor_type *type, const char *name,
                          bool element) {
    const onnx_arrived *arrived = im->options->arrived ? &im->options->arrived[im->arrived++] : NULL;
    const onnx_shape *declared = type->shape;
    if (arrived && arrived->value) {
        check_given(im, type, arrived->value, name);
        to->known = onnx_known_of_view(im, arrived->value, &to->id);
        return;
    }
    if (!declared && !arrived) onnx_fail(im, DLC_UNSUPPORTED, "input %s has no rank in the file", name);
    const size_t rank = declared ? declared->dims.count : (size_t)arrived->rank;
    if (rank > DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "input %s has %zu dimensions", name, rank);
    graph_shape shape = {.dtype = onnx_dtype(im, type->element), .rank = (int)rank};
    for (int d = 0; d < (int)rank; d++) {
        const onnx_dimension *dim = declared ? &declared->dims.data[d] : NULL;
        shape.dim[d] = dimension_of(im, element && dim && dim->which == 2 ? NULL : dim, name, d, element, arrived);
    }
    to->id = graph_new_input(im->g, name, &shape);
    if (onnx_walks(im)) im->options->walk->attach(im->options->walk, im->g, im->arrived - 1, to->id);
    lib_vec_push(im->g->arena, &im->inputs, to->id);
}

/* ---- other values --------------------------------------------------------------------------------------------------------- */

static const onnx_bytes *texts_of(onnx_import *im, size_t count, const dlc_onnx_string *string) {
    onnx_bytes *text = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, count + 1);
    for (size_t i = 0; i < count; i++)
        text[i] = (onnx_bytes){lib_arena_copy(im->g->arena, string[i].data, string[i].size), string[i].size};
    return text;
}

/* declared: NULL if the file declares no shape, as for the keys of a map. */
static void import_strings(onnx_import *im, onnx_value *to, const dlc_onnx_value *given, const onnx_shape *declared,
                           const char *name) {
    size_t count = 1;
    check_shape(im, declared, given->rank, given->dims, name);
    for (int d = 0; d < given->rank; d++) count *= (size_t)given->dims[d];
    to->structure = onnx_strings_new(im, given->rank, given->dims, texts_of(im, count, given->strings));
}

static void import_given(onnx_import *im, onnx_value *to, const onnx_type *type, const dlc_onnx_value *given,
                         const char *name, bool element);

static void import_list(onnx_import *im, onnx_value *to, const onnx_type *type, const dlc_onnx_value *given,
                        const char *name) {
    onnx_structure *list = onnx_structure_new(im, ONNX_LIST, given->count);
    list->element = onnx_element_of_type(type);
    for (size_t i = 0; i < given->count; i++) {
        const char *own = lib_arena_format(im->g->arena, "%s.%zu", name, i);
        import_given(im, &list->part[i], type, &given->elements[i], own, true);
    }
    to->structure = list;
}

/* Imports a map: its keys are known, its values are a list of the same length. */
static void import_map(onnx_import *im, onnx_value *to, const onnx_map_type *type, const dlc_onnx_value *given,
                       const char *name) {
    const dlc_onnx_value *keys = &given->elements[0], *values = &given->elements[1];
    onnx_structure *map = onnx_structure_new(im, ONNX_MAP, 2);
    if (keys->kind == DLC_ONNX_STRINGS)
        import_strings(im, &map->part[0], keys, NULL, name);
    else
        map->part[0] = onnx_value_of(im, DLC_I64, 1, keys->tensor->shape, keys->tensor->data);
    if (values->kind == DLC_ONNX_STRINGS) {
        import_strings(im, &map->part[1], values, NULL, name);
    } else {
        const onnx_tensor_type list = {.element = type->value->tensor->element};
        import_tensor(im, &map->part[1], &list, lib_arena_format(im->g->arena, "%s.values", name), true);
    }
    to->structure = map;
}

/* Imports a given value. It is of that type, which jit/onnx_values.c has checked. */
static void import_given(onnx_import *im, onnx_value *to, const onnx_type *type, const dlc_onnx_value *given,
                         const char *name, bool element) {
    if (type->which == ONNX_TYPE_OPTIONAL && given->kind != DLC_ONNX_NONE) type = type->optional->element;
    switch (given->kind) {
    case DLC_ONNX_NONE: to->structure = onnx_structure_new(im, ONNX_EMPTY, 0); break;
    case DLC_ONNX_TENSOR: import_tensor(im, to, type->tensor, name, element); break;
    case DLC_ONNX_STRINGS: import_strings(im, to, given, type->tensor->shape, name); break;
    case DLC_ONNX_SEQUENCE: import_list(im, to, type->sequence->element, given, name); break;
    case DLC_ONNX_MAP: import_map(im, to, type->map, given, name); break;
    }
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------- */

/* The elements that the options give for the input; NULL: none. */
static const DLTensor *value_named(const onnx_import *im, const onnx_value_info *info) {
    const onnx_options *o = im->options;
    for (int i = 0; i < o->value_count; i++)
        if (onnx_is(info->name, o->value_names[i])) return o->values[i];
    return NULL;
}

void onnx_import_input(onnx_import *im, const onnx_value_info *info) {
    const onnx_options *o = im->options;
    const onnx_type *type = info->type;
    const DLTensor *named = value_named(im, info);
    const char *name = onnx_text_copy(im, info->name, "input");
    onnx_value *value = onnx_define(im, info->name);
    const bool tensor = type && type->which == ONNX_TYPE_TENSOR && type->tensor->element != ONNX_STRING;
    if (named && tensor) {
        check_given(im, type->tensor, named, name);
        value->known = onnx_known_of_view(im, named, &value->id);
    } else if (o->given)
        import_given(im, value, type, o->given[info - im->model->graph->inputs.data], name, false);
    else if (tensor)
        import_tensor(im, value, type->tensor, name, false);
    else
        onnx_fail(im, DLC_UNSUPPORTED, "input %s is %s, which only dlc_onnx_run_values takes", name,
                  onnx_type_text(im->g->arena, type));
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------ */

/* Does the caller want that output? */
static bool is_wanted(const onnx_import *im, onnx_bytes name) {
    for (int i = 0; i < im->options->output_count; i++)
        if (onnx_is(name, im->options->outputs[i])) return true;
    return !im->options->outputs;
}

void onnx_check_wanted(onnx_import *im) {
    const onnx_graph *main = im->model->graph;
    for (int i = 0; i < im->options->output_count; i++) {
        size_t k = 0;
        while (k < main->outputs.count && !onnx_is(main->outputs.data[k].name, im->options->outputs[i])) k++;
        if (k == main->outputs.count)
            onnx_fail(im, DLC_NOT_FOUND, "the model has no output called %s", im->options->outputs[i]);
    }
}

void onnx_import_outputs(onnx_import *im) {
    const onnx_graph *main = im->model->graph;
    for (size_t i = 0; i < main->outputs.count; i++) {
        if (!is_wanted(im, main->outputs.data[i].name)) continue;
        onnx_value *value = onnx_find_value(im, main->outputs.data[i].name);
        if (!value)
            onnx_fail(im, DLC_PARSE_ERROR, "output %s is defined nowhere",
                      onnx_shown(im->g->arena, main->outputs.data[i].name));
        const char *name = onnx_text_copy(im, value->name, "output");
        if (im->options->results)
            onnx_describe_result(im, i, value, name);
        else
            graph_new_output(im->g, name, onnx_id_of(im, value));
    }
}
