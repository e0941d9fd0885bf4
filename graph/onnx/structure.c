/* Values that are no tensors of numbers (structure.h): their kinds, their making, and their description for the host. */
#include "graph/onnx/structure.h"

/* ---- kinds ---------------------------------------------------------------------------------------------------------- */

onnx_form onnx_form_of(const onnx_value *value) {
    if (value->structure) return value->structure->form;
    return value->stored && value->stored->data_type == ONNX_STRING ? ONNX_STRINGS : ONNX_NUMBERS;
}

const char *onnx_form_text(onnx_form form) {
    static const char *const texts[] = {
        "a tensor", "strings", "strings", "a sequence", "an optional without a value", "a map", "a sequence of maps"};
    return texts[form];
}

void onnx_refuse_structure(onnx_import *im, const onnx_value *value) {
    const onnx_form form = onnx_form_of(value);
    const bool text = form == ONNX_STRINGS || form == ONNX_WRITTEN;
    onnx_fail(im,
              text                 ? DLC_UNSUPPORTED
              : form == ONNX_EMPTY ? DLC_INVALID_ARGUMENT
                                   : DLC_PARSE_ERROR,
              "value %s is %s; a tensor of numbers is needed", onnx_shown(im->g->arena, value->name),
              onnx_form_text(form));
}

onnx_value *onnx_elements_of(onnx_import *im, onnx_value *value) {
    const onnx_structure *strings = onnx_strings_of(im, value);
    if (strings) return strings->part;
    return onnx_form_of(value) == ONNX_WRITTEN ? value->structure->part : NULL;
}

int onnx_element_type(onnx_import *im, onnx_value *value) {
    switch (onnx_form_of(value)) {
    case ONNX_NUMBERS: return (int)onnx_shape_of(im, value).dtype;
    case ONNX_STRINGS:
    case ONNX_WRITTEN: return ONNX_TEXT;
    default: return ONNX_ANY;
    }
}

int onnx_element_of_type(const onnx_type *type) {
    if (!type || type->which != ONNX_TYPE_TENSOR) return ONNX_ANY;
    const onnx_element *element = onnx_element_of(type->tensor->element);
    if (type->tensor->element == ONNX_STRING) return ONNX_TEXT;
    return element && element->dtype >= 0 ? element->dtype : ONNX_ANY;
}

const char *onnx_element_name(int element) {
    return element == ONNX_ANY ? "any type" : element == ONNX_TEXT ? "string" : lib_dtypes[element].name;
}

static const char *element_text(int32_t data_type) {
    const onnx_element *element = onnx_element_of(data_type);
    return element ? element->name : "?";
}

static void add_type(lib_text *text, const onnx_type *type) {
    switch (type ? type->which : ONNX_TYPE_NONE) {
    case ONNX_TYPE_TENSOR: lib_text_format(text, "tensor(%s)", element_text(type->tensor->element)); return;
    case ONNX_TYPE_SPARSE: lib_text_format(text, "sparse_tensor(%s)", element_text(type->sparse->element)); return;
    case ONNX_TYPE_SEQUENCE: lib_text_add(text, "seq("), add_type(text, type->sequence->element); break;
    case ONNX_TYPE_OPTIONAL: lib_text_add(text, "optional("), add_type(text, type->optional->element); break;
    case ONNX_TYPE_MAP:
        lib_text_format(text, "map(%s,", element_text(type->map->key)), add_type(text, type->map->value);
        break;
    default: lib_text_add(text, "of no type"); return;
    }
    lib_text_add(text, ")");
}

const char *onnx_type_text(lib_arena *arena, const onnx_type *type) {
    lib_text text;
    lib_text_init(&text, arena);
    add_type(&text, type);
    return text.data;
}

/* ---- making ---------------------------------------------------------------------------------------------------------- */

onnx_structure *onnx_structure_new(onnx_import *im, onnx_form form, size_t count) {
    onnx_structure *s = LIB_NEW(im->g->arena, onnx_structure);
    *s = (onnx_structure){.form = form, .element = ONNX_ANY, .count = count};
    s->part = LIB_NEW_ARRAY(im->g->arena, onnx_value, count + 1);
    return s;
}

void onnx_give_structure(onnx_import *im, size_t i, const onnx_structure *structure) {
    if (onnx_wants(im, i)) im->result[i]->structure = structure;
}

void onnx_give_value(onnx_import *im, size_t i, const onnx_value *value) {
    if (onnx_wants(im, i)) onnx_take_value(im->result[i], value);
}

/* ---- to the host ------------------------------------------------------------------------------------------------------- */

/* Describes a tensor of numbers: as an output of the graph, or, if it is a constant, by a copy of its bytes, so that no kernel is needed. */
static void describe_numbers(onnx_import *im, onnx_result *to, onnx_value *value, const char *name) {
    onnx_results *all = im->options->results;
    const graph_id id = onnx_id_of(im, value);
    const graph_constant *constant = graph_constant_of(im->g, id);
    const graph_shape shape = *graph_shape_of(im->g, id);
    size_t count = 1;
    to->output = -1, to->dtype = shape.dtype, to->rank = shape.rank;
    if (!constant) {
        to->output = all->outputs++;
        graph_new_output(im->g, name, id);
        return;
    }
    for (int d = 0; d < shape.rank; d++) {
        tir_is_const(im->g->pool, shape.dim[d], &to->dims[d]);
        count *= (size_t)to->dims[d];
    }
    to->bytes = lib_arena_copy(all->arena, graph_constant_bytes(im->g->arena->scope, constant),
                               lib_dtype_bytes(shape.dtype, count));
}

static void describe(onnx_import *im, onnx_result *to, onnx_value *value, const char *name) {
    lib_arena *arena = im->options->results->arena;
    const onnx_structure *s = onnx_strings_of(im, value);
    if (!s) s = value->structure;
    to->form = s ? s->form : ONNX_NUMBERS;
    if (!s) {
        describe_numbers(im, to, value, name);
        return;
    }
    to->count = s->count, to->words = s->words;
    to->part = LIB_NEW_ARRAY(arena, onnx_result, s->count + 1);
    for (size_t i = 0; i < s->count; i++)
        describe(im, &to->part[i], &s->part[i],
                 s->form == ONNX_LIST ? lib_arena_format(im->g->arena, "%s.%zu", name, i) : name);
    onnx_bytes *word = LIB_NEW_ARRAY(arena, onnx_bytes, s->words + 1);
    for (size_t i = 0; i < s->words; i++)
        word[i] = (onnx_bytes){lib_arena_copy(arena, s->word[i].data, s->word[i].size), s->word[i].size};
    to->word = word;
}

void onnx_describe_result(onnx_import *im, size_t i, onnx_value *value, const char *name) {
    describe(im, &im->options->results->result[i], value, name);
}
