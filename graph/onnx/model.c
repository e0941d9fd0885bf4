/* Tables of the messages, and checks of the file's internal consistency. */
#include "graph/onnx/model.h"

/* ---- tables -------------------------------------------------------------------------------------------------------- */

static const onnx_message message_graph, message_type, message_attribute;

#define ONE(type, number_, name_, kind_, member, ...) \
    { .name = name_, .number = number_, .kind = kind_, .offset = offsetof(type, member), __VA_ARGS__ }
#define MANY(type, number_, name_, kind_, member, ...) \
    ONE(type, number_, name_, kind_, member, .repeated = true, __VA_ARGS__)
#define OF(message_) .message = &(message_)
#define CHOICE(type) .oneof = offsetof(type, which)
#define MESSAGE(variable, type, name_, ...)                                                                            \
    static const onnx_field variable##_fields[] = {__VA_ARGS__};                                                       \
    static const onnx_message variable = {name_, sizeof(type), sizeof variable##_fields / sizeof variable##_fields[0], \
                                          variable##_fields}

MESSAGE(message_entry, onnx_entry, "StringStringEntryProto", ONE(onnx_entry, 1, "key", ONNX_BYTES, key, ),
        ONE(onnx_entry, 2, "value", ONNX_BYTES, value, ));

MESSAGE(message_tensor, onnx_tensor, "TensorProto", MANY(onnx_tensor, 1, "dims", ONNX_INT64, dims, ),
        ONE(onnx_tensor, 2, "data_type", ONNX_INT32, data_type, ),
        MANY(onnx_tensor, 4, "float_data", ONNX_FLOAT, float_data, ),
        MANY(onnx_tensor, 5, "int32_data", ONNX_INT32, int32_data, ),
        MANY(onnx_tensor, 6, "string_data", ONNX_BYTES, string_data, ),
        MANY(onnx_tensor, 7, "int64_data", ONNX_INT64, int64_data, ), ONE(onnx_tensor, 8, "name", ONNX_BYTES, name, ),
        ONE(onnx_tensor, 9, "raw_data", ONNX_BYTES, raw_data, ),
        MANY(onnx_tensor, 10, "double_data", ONNX_DOUBLE, double_data, ),
        MANY(onnx_tensor, 11, "uint64_data", ONNX_INT64, uint64_data, ),
        ONE(onnx_tensor, 12, "doc_string", ONNX_BYTES, doc_string, ),
        MANY(onnx_tensor, 13, "external_data", ONNX_MESSAGE, external_data, OF(message_entry)),
        ONE(onnx_tensor, 14, "data_location", ONNX_INT32, data_location, ),
        MANY(onnx_tensor, 16, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)));

MESSAGE(message_sparse, onnx_sparse, "SparseTensorProto",
        ONE(onnx_sparse, 1, "values", ONNX_MESSAGE, values, OF(message_tensor)),
        ONE(onnx_sparse, 2, "indices", ONNX_MESSAGE, indices, OF(message_tensor)),
        MANY(onnx_sparse, 3, "dims", ONNX_INT64, dims, ));

MESSAGE(message_dimension, onnx_dimension, "Dimension",
        ONE(onnx_dimension, 1, "dim_value", ONNX_INT64, value, CHOICE(onnx_dimension)),
        ONE(onnx_dimension, 2, "dim_param", ONNX_BYTES, parameter, CHOICE(onnx_dimension)),
        ONE(onnx_dimension, 3, "denotation", ONNX_BYTES, denotation, ));

MESSAGE(message_shape, onnx_shape, "TensorShapeProto",
        MANY(onnx_shape, 1, "dim", ONNX_MESSAGE, dims, OF(message_dimension)));

MESSAGE(message_tensor_type, onnx_tensor_type, "TypeProto.Tensor",
        ONE(onnx_tensor_type, 1, "elem_type", ONNX_INT32, element, ),
        ONE(onnx_tensor_type, 2, "shape", ONNX_MESSAGE, shape, OF(message_shape)));

MESSAGE(message_nested_type, onnx_nested_type, "TypeProto.Sequence",
        ONE(onnx_nested_type, 1, "elem_type", ONNX_MESSAGE, element, OF(message_type)));

MESSAGE(message_map_type, onnx_map_type, "TypeProto.Map", ONE(onnx_map_type, 1, "key_type", ONNX_INT32, key, ),
        ONE(onnx_map_type, 2, "value_type", ONNX_MESSAGE, value, OF(message_type)));

MESSAGE(message_type, onnx_type, "TypeProto",
        ONE(onnx_type, 1, "tensor_type", ONNX_MESSAGE, tensor, CHOICE(onnx_type), OF(message_tensor_type)),
        ONE(onnx_type, 4, "sequence_type", ONNX_MESSAGE, sequence, CHOICE(onnx_type), OF(message_nested_type)),
        ONE(onnx_type, 5, "map_type", ONNX_MESSAGE, map, CHOICE(onnx_type), OF(message_map_type)),
        ONE(onnx_type, 6, "denotation", ONNX_BYTES, denotation, ),
        ONE(onnx_type, 8, "sparse_tensor_type", ONNX_MESSAGE, sparse, CHOICE(onnx_type), OF(message_tensor_type)),
        ONE(onnx_type, 9, "optional_type", ONNX_MESSAGE, optional, CHOICE(onnx_type), OF(message_nested_type)));

MESSAGE(message_value_info, onnx_value_info, "ValueInfoProto", ONE(onnx_value_info, 1, "name", ONNX_BYTES, name, ),
        ONE(onnx_value_info, 2, "type", ONNX_MESSAGE, type, OF(message_type)),
        ONE(onnx_value_info, 3, "doc_string", ONNX_BYTES, doc_string, ),
        MANY(onnx_value_info, 4, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)));

MESSAGE(message_attribute, onnx_attribute, "AttributeProto", ONE(onnx_attribute, 1, "name", ONNX_BYTES, name, ),
        ONE(onnx_attribute, 2, "f", ONNX_FLOAT, f, ), ONE(onnx_attribute, 3, "i", ONNX_INT64, i, ),
        ONE(onnx_attribute, 4, "s", ONNX_BYTES, s, ), ONE(onnx_attribute, 5, "t", ONNX_MESSAGE, t, OF(message_tensor)),
        ONE(onnx_attribute, 6, "g", ONNX_MESSAGE, g, OF(message_graph)),
        MANY(onnx_attribute, 7, "floats", ONNX_FLOAT, floats, ), MANY(onnx_attribute, 8, "ints", ONNX_INT64, ints, ),
        MANY(onnx_attribute, 9, "strings", ONNX_BYTES, strings, ),
        MANY(onnx_attribute, 10, "tensors", ONNX_MESSAGE, tensors, OF(message_tensor)),
        MANY(onnx_attribute, 11, "graphs", ONNX_MESSAGE, graphs, OF(message_graph)),
        ONE(onnx_attribute, 13, "doc_string", ONNX_BYTES, doc_string, ),
        ONE(onnx_attribute, 14, "tp", ONNX_MESSAGE, tp, OF(message_type)),
        MANY(onnx_attribute, 15, "type_protos", ONNX_MESSAGE, types, OF(message_type)),
        ONE(onnx_attribute, 20, "type", ONNX_INT32, type, ),
        ONE(onnx_attribute, 21, "ref_attr_name", ONNX_BYTES, reference, ),
        ONE(onnx_attribute, 22, "sparse_tensor", ONNX_MESSAGE, sparse, OF(message_sparse)),
        MANY(onnx_attribute, 23, "sparse_tensors", ONNX_MESSAGE, sparses, OF(message_sparse)));

MESSAGE(message_node, onnx_node, "NodeProto", MANY(onnx_node, 1, "input", ONNX_BYTES, inputs, ),
        MANY(onnx_node, 2, "output", ONNX_BYTES, outputs, ), ONE(onnx_node, 3, "name", ONNX_BYTES, name, ),
        ONE(onnx_node, 4, "op_type", ONNX_BYTES, operator, ),
        MANY(onnx_node, 5, "attribute", ONNX_MESSAGE, attributes, OF(message_attribute)),
        ONE(onnx_node, 6, "doc_string", ONNX_BYTES, doc_string, ), ONE(onnx_node, 7, "domain", ONNX_BYTES, domain, ),
        ONE(onnx_node, 8, "overload", ONNX_BYTES, overload, ),
        MANY(onnx_node, 9, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)));

MESSAGE(message_annotation, onnx_annotation, "TensorAnnotation",
        ONE(onnx_annotation, 1, "tensor_name", ONNX_BYTES, tensor, ),
        MANY(onnx_annotation, 2, "quant_parameter_tensor_names", ONNX_MESSAGE, parameters, OF(message_entry)));

MESSAGE(message_graph, onnx_graph, "GraphProto", MANY(onnx_graph, 1, "node", ONNX_MESSAGE, nodes, OF(message_node)),
        ONE(onnx_graph, 2, "name", ONNX_BYTES, name, ),
        MANY(onnx_graph, 5, "initializer", ONNX_MESSAGE, initializers, OF(message_tensor)),
        ONE(onnx_graph, 10, "doc_string", ONNX_BYTES, doc_string, ),
        MANY(onnx_graph, 11, "input", ONNX_MESSAGE, inputs, OF(message_value_info)),
        MANY(onnx_graph, 12, "output", ONNX_MESSAGE, outputs, OF(message_value_info)),
        MANY(onnx_graph, 13, "value_info", ONNX_MESSAGE, values, OF(message_value_info)),
        MANY(onnx_graph, 14, "quantization_annotation", ONNX_MESSAGE, annotations, OF(message_annotation)),
        MANY(onnx_graph, 15, "sparse_initializer", ONNX_MESSAGE, sparse_initializers, OF(message_sparse)),
        MANY(onnx_graph, 16, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)));

MESSAGE(message_opset, onnx_opset, "OperatorSetIdProto", ONE(onnx_opset, 1, "domain", ONNX_BYTES, domain, ),
        ONE(onnx_opset, 2, "version", ONNX_INT64, version, ));

MESSAGE(message_function, onnx_function, "FunctionProto", ONE(onnx_function, 1, "name", ONNX_BYTES, name, ),
        MANY(onnx_function, 4, "input", ONNX_BYTES, inputs, ), MANY(onnx_function, 5, "output", ONNX_BYTES, outputs, ),
        MANY(onnx_function, 6, "attribute", ONNX_BYTES, attributes, ),
        MANY(onnx_function, 7, "node", ONNX_MESSAGE, nodes, OF(message_node)),
        ONE(onnx_function, 8, "doc_string", ONNX_BYTES, doc_string, ),
        MANY(onnx_function, 9, "opset_import", ONNX_MESSAGE, opsets, OF(message_opset)),
        ONE(onnx_function, 10, "domain", ONNX_BYTES, domain, ),
        MANY(onnx_function, 11, "attribute_proto", ONNX_MESSAGE, attribute_defaults, OF(message_attribute)),
        MANY(onnx_function, 12, "value_info", ONNX_MESSAGE, values, OF(message_value_info)),
        ONE(onnx_function, 13, "overload", ONNX_BYTES, overload, ),
        MANY(onnx_function, 14, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)));

MESSAGE(message_training, onnx_training, "TrainingInfoProto",
        ONE(onnx_training, 1, "initialization", ONNX_MESSAGE, initialization, OF(message_graph)),
        ONE(onnx_training, 2, "algorithm", ONNX_MESSAGE, algorithm, OF(message_graph)),
        MANY(onnx_training, 3, "initialization_binding", ONNX_MESSAGE, initialization_bindings, OF(message_entry)),
        MANY(onnx_training, 4, "update_binding", ONNX_MESSAGE, update_bindings, OF(message_entry)));

MESSAGE(message_model, onnx_model, "ModelProto", ONE(onnx_model, 1, "ir_version", ONNX_INT64, ir_version, ),
        ONE(onnx_model, 2, "producer_name", ONNX_BYTES, producer_name, ),
        ONE(onnx_model, 3, "producer_version", ONNX_BYTES, producer_version, ),
        ONE(onnx_model, 4, "domain", ONNX_BYTES, domain, ),
        ONE(onnx_model, 5, "model_version", ONNX_INT64, model_version, ),
        ONE(onnx_model, 6, "doc_string", ONNX_BYTES, doc_string, ),
        ONE(onnx_model, 7, "graph", ONNX_MESSAGE, graph, OF(message_graph)),
        MANY(onnx_model, 8, "opset_import", ONNX_MESSAGE, opsets, OF(message_opset)),
        MANY(onnx_model, 14, "metadata_props", ONNX_MESSAGE, metadata, OF(message_entry)),
        MANY(onnx_model, 20, "training_info", ONNX_MESSAGE, trainings, OF(message_training)),
        MANY(onnx_model, 25, "functions", ONNX_MESSAGE, functions, OF(message_function)));

const onnx_element *onnx_element_of(int32_t data_type) {
    static const onnx_element elements[] = {
#define X(value, name, dtype, bits) [value] = {name, dtype, bits},
        ONNX_ELEMENT_TABLE(X)
#undef X
    };
    if (data_type < 1 || data_type >= (int32_t)(sizeof elements / sizeof elements[0])) return NULL;
    return &elements[data_type];
}

/* ---- locations, for messages ------------------------------------------------------------------------------------------- */

/* A graph or function that is checked; a nested graph also has the node and the attribute whose value it is. */
typedef struct model_place {
    const struct model_place *outer;
    const onnx_node *node;
    size_t node_index;
    const onnx_attribute *attribute;
    /* "graph", "function", ...; of the outermost ones */
    const char *kind;
    onnx_bytes name;
    int depth;
} model_place;

typedef struct model_work {
    const onnx_graph *graph;
    const onnx_function *function;
    const model_place *place;
} model_work;

typedef struct model_check {
    lib_arena *arena;
    const onnx_files *files;
    lib_vec(model_work) work;
    const model_place *place;
    /* What is checked at the moment, for messages; NULL: none. `what`: what the tensor is, such as "initializer". */
    const onnx_node *node;
    size_t node_index;
    const onnx_attribute *attribute;
    const onnx_tensor *tensor;
    const char *what;
    uint64_t nodes;
} model_check;

const char *onnx_shown(lib_arena *arena, onnx_bytes bytes) {
    enum { SHOWN = 80 };
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_add(&text, "\"");
    for (size_t i = 0; i < bytes.size && i < SHOWN;) {
        const unsigned char *at = (const unsigned char *)bytes.data + i;
        const size_t length = lib_utf8_length(at, bytes.size - i);
        if (length == 0 || *at < ' ' || *at == 127)
            lib_text_format(&text, "\\x%02x", *at), i++;
        else {
            if (*at == '"' || *at == '\\') lib_text_add(&text, "\\");
            lib_text_add_bytes(&text, (const char *)at, length), i += length;
        }
    }
    lib_text_add(&text, bytes.size > SHOWN ? "...\"" : "\"");
    return text.data;
}

bool onnx_is(onnx_bytes bytes, const char *text) {
    const size_t size = strlen(text);
    return bytes.size == size && (size == 0 || memcmp(bytes.data, text, size) == 0);
}

static void print_node(lib_text *text, const onnx_node *node, size_t index) {
    lib_text_format(text, " > node %zu", index);
    if (node->name.size) lib_text_format(text, " %s", onnx_shown(text->arena, node->name));
    lib_text_format(text, " (%s)", onnx_shown(text->arena, node->operator));
}

static void print_attribute(lib_text *text, const onnx_attribute *attribute) {
    lib_text_format(text, ", attribute %s", onnx_shown(text->arena, attribute->name));
}

_Noreturn static void fail(model_check *c, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(model_check *c, dlc_status status, const char *format, ...) {
    const model_place *chain[ONNX_GRAPH_NESTING + 2];
    int count = 0;
    lib_text text;
    va_list arguments;
    lib_text_init(&text, c->arena);
    for (const model_place *p = c->place; p && count < ONNX_GRAPH_NESTING + 2; p = p->outer) chain[count++] = p;
    for (int i = count - 1; i >= 0; i--) {
        const model_place *p = chain[i];
        const bool elided = i < count - 2 && i > 2;
        if (!p->outer)
            lib_text_format(&text, "%s %s", p->kind, onnx_shown(c->arena, p->name));
        else if (elided)
            lib_text_add(&text, i == count - 3 ? " > ..." : "");
        else {
            print_node(&text, p->node, p->node_index);
            print_attribute(&text, p->attribute);
        }
    }
    if (c->node) print_node(&text, c->node, c->node_index);
    if (c->attribute) print_attribute(&text, c->attribute);
    if (c->tensor)
        lib_text_format(&text, "%s%s %s", text.length ? ", " : "", c->what, onnx_shown(c->arena, c->tensor->name));
    if (text.length) lib_text_add(&text, ": ");
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    lib_raise(c->arena->scope, status, "%s", text.data);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

typedef enum data_field { NO_DATA, RAW, FLOATS, INT32S, STRINGS, INT64S, DOUBLES, UINT64S } data_field;

static const char *const data_field_names[] = {"no data",     "raw_data",   "float_data",  "int32_data",
                                               "string_data", "int64_data", "double_data", "uint64_data"};

/* The typed field that stores an element type's data if they are not raw. */
static data_field typed_field(int32_t data_type) {
    switch (data_type) {
    case 1:
    case 14: return FLOATS;
    case 7: return INT64S;
    case 8: return STRINGS;
    case 11:
    case 15: return DOUBLES;
    case 12:
    case 13: return UINT64S;
    default: return INT32S;
    }
}

static size_t field_count(const onnx_tensor *t, data_field field) {
    switch (field) {
    case RAW: return t->raw_data.size;
    case FLOATS: return t->float_data.count;
    case INT32S: return t->int32_data.count;
    case STRINGS: return t->string_data.count;
    case INT64S: return t->int64_data.count;
    case DOUBLES: return t->double_data.count;
    case UINT64S: return t->uint64_data.count;
    default: return 0;
    }
}

static data_field data_field_of(const onnx_tensor *t) {
    for (data_field field = RAW; field <= UINT64S; field++)
        if (field_count(t, field)) return field;
    return NO_DATA;
}

/* The number of entries of a field (raw_data: bytes) that `count` elements take. */
static uint64_t numbers_of(const onnx_element *element, data_field field, uint64_t count) {
    if (field == RAW) return count / 8 * (uint64_t)element->bits + (count % 8 * (uint64_t)element->bits + 7) / 8;
    if (element->bits && element->bits < 8)
        return count / (uint64_t)(8 / element->bits) + (count % (uint64_t)(8 / element->bits) != 0);
    return element == onnx_element_of(14) || element == onnx_element_of(15) ? 2 * count : count;
}

/* The number of elements; -1: a dimension is negative, or the number of bytes overflows. */
static int64_t count_elements(const onnx_int64s *dims) {
    int64_t count = 1;
    bool empty = false;
    for (size_t i = 0; i < dims->count; i++) {
        if (dims->data[i] < 0) return -1;
        empty |= dims->data[i] == 0;
    }
    for (size_t i = 0; i < dims->count && !empty; i++)
        if (__builtin_mul_overflow(count, dims->data[i], &count) || count > INT64_MAX / 16) return -1;
    return empty ? 0 : count;
}

bool onnx_is_external(const onnx_tensor *tensor) {
    return tensor->data_location == 1;
}

static const char *print_dims(lib_arena *arena, const onnx_int64s *dims) {
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_add(&text, "[");
    for (size_t i = 0; i < dims->count && i < 16; i++)
        lib_text_format(&text, "%s%lld", i ? ", " : "", (long long)dims->data[i]);
    lib_text_add(&text, dims->count > 16 ? ", ...]" : "]");
    return text.data;
}

static void check_data(model_check *c, const onnx_tensor *t, const onnx_element *element, int64_t count) {
    const data_field field = data_field_of(t), typed = typed_field(t->data_type);
    if (field == NO_DATA && count == 0) return;
    if (field != typed && (field != RAW || t->data_type == ONNX_STRING))
        fail(c, DLC_PARSE_ERROR, "%s%s has %s, not %s%s", element->name, print_dims(c->arena, &t->dims),
             data_field_names[field], t->data_type == ONNX_STRING ? "" : "raw_data or ", data_field_names[typed]);
    const uint64_t wanted = numbers_of(element, field, (uint64_t)count);
    if (field_count(t, field) != wanted)
        fail(c, DLC_PARSE_ERROR, "%s has %zu %s, but %s%s takes %llu", data_field_names[field], field_count(t, field),
             field == RAW ? "bytes" : "elements", element->name, print_dims(c->arena, &t->dims),
             (unsigned long long)wanted);
}

onnx_external onnx_external_of(lib_arena *arena, const onnx_tensor *tensor) {
    onnx_external external = {.length = -1};
    for (size_t i = 0; i < tensor->external_data.count; i++) {
        const onnx_entry *entry = &tensor->external_data.data[i];
        const bool offset = onnx_is(entry->key, "offset");
        if (onnx_is(entry->key, "location")) external.location = entry->value;
        if (!offset && !onnx_is(entry->key, "length")) continue;
        int64_t number = 0;
        bool good = entry->value.size > 0;
        for (size_t k = 0; k < entry->value.size && good; k++) {
            const int digit = entry->value.data[k] - '0';
            good = digit >= 0 && digit <= 9 && !__builtin_mul_overflow(number, 10, &number) &&
                   !__builtin_add_overflow(number, digit, &number);
        }
        if (!good)
            lib_raise(arena->scope, DLC_PARSE_ERROR, "tensor %s: %s %s of its external data is no number",
                      onnx_shown(arena, tensor->name), offset ? "offset" : "length", onnx_shown(arena, entry->value));
        *(offset ? &external.offset : &external.length) = number;
    }
    if (!external.location.size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "tensor %s: its external data have no location",
                  onnx_shown(arena, tensor->name));
    return external;
}

bool onnx_is_location(onnx_bytes location) {
    if (!location.size || location.size > ONNX_NAME_MAX || location.data[0] == '/' ||
        (location.size > 1 && location.data[1] == ':'))
        return false;
    for (size_t at = 0, length; at <= location.size; at += length + 1) {
        const char *name = location.data + at;
        for (length = 0; at + length < location.size && name[length] != '/'; length++)
            if (name[length] == 0 || name[length] == '\\') return false;
        if (onnx_is((onnx_bytes){name, length}, "..")) return false;
    }
    return true;
}

static void check_external(model_check *c, const onnx_tensor *t, const onnx_element *element, int64_t count) {
    if (t->data_type == ONNX_STRING) fail(c, DLC_PARSE_ERROR, "strings cannot be external data");
    if (data_field_of(t) != NO_DATA)
        fail(c, DLC_PARSE_ERROR, "it has external data and %s", data_field_names[data_field_of(t)]);
    const onnx_external external = onnx_external_of(c->arena, t);
    const uint64_t wanted = numbers_of(element, RAW, (uint64_t)count);
    if (external.length >= 0 && (uint64_t)external.length != wanted)
        fail(c, DLC_PARSE_ERROR, "external data of %lld bytes, but %s%s takes %llu", (long long)external.length,
             element->name, print_dims(c->arena, &t->dims), (unsigned long long)wanted);
    if (!onnx_is_location(external.location))
        fail(c, DLC_PARSE_ERROR,
             "the location of its external data, %s, is no relative path beneath the model's folder",
             onnx_shown(c->arena, external.location));
    if (!c->files) return;
    const onnx_bytes file = c->files->open(c->files->user, external.location);
    const uint64_t rest = (uint64_t)external.offset <= file.size ? file.size - (uint64_t)external.offset : 0;
    if (rest < wanted || (external.length < 0 && rest != wanted))
        fail(c, DLC_PARSE_ERROR, "%s of %zu bytes has %llu from byte %lld on, but %s%s takes %llu",
             onnx_shown(c->arena, external.location), file.size, (unsigned long long)rest, (long long)external.offset,
             element->name, print_dims(c->arena, &t->dims), (unsigned long long)wanted);
    onnx_tensor *resolved = (onnx_tensor *)(uintptr_t)t; /* the arena's, not yet given out */
    resolved->raw_data = (onnx_bytes){wanted ? file.data + external.offset : NULL, (size_t)wanted};
    resolved->data_location = 0;
}

static void check_tensor(model_check *c, const onnx_tensor *t, const char *what) {
    const onnx_element *element = onnx_element_of(t->data_type);
    const int64_t count = count_elements(&t->dims);
    c->tensor = t, c->what = what;
    if (!element) fail(c, DLC_PARSE_ERROR, "element type %d, which ONNX does not have", t->data_type);
    if (t->name.size > ONNX_NAME_MAX) fail(c, DLC_BUDGET_EXCEEDED, "a name of %zu bytes", t->name.size);
    if (count < 0) fail(c, DLC_PARSE_ERROR, "dimensions %s are negative or too large", print_dims(c->arena, &t->dims));
    if (t->data_location < 0 || t->data_location > 1)
        fail(c, DLC_PARSE_ERROR, "data_location %d, which ONNX does not have", t->data_location);
    if (onnx_is_external(t))
        check_external(c, t, element, count);
    else
        check_data(c, t, element, count);
    c->tensor = NULL;
}

/* Integers of a typed field as elements of `bytes` bytes each; bool as 0 or 1. */
static void convert(char *to, const onnx_tensor *t, data_field field, size_t numbers, size_t bytes) {
    for (size_t i = 0; i < numbers; i++) {
        int64_t value = field == INT32S   ? t->int32_data.data[i]
                        : field == INT64S ? t->int64_data.data[i]
                                          : t->uint64_data.data[i];
        if (t->data_type == 9) value = value != 0;
        memcpy(to + i * bytes, &value, bytes);
    }
}

/* The bytes of bools as 0 or 1: a copy, in which other bytes are 1, if there are any. */
static const char *checked_bools(lib_arena *arena, const char *bytes, size_t size) {
    bool good = true;
    for (size_t i = 0; i < size; i++) good &= (unsigned char)bytes[i] <= 1;
    if (good) return bytes;
    char *copy = lib_arena_array(arena, size, 1);
    for (size_t i = 0; i < size; i++) copy[i] = bytes[i] != 0;
    return copy;
}

onnx_data onnx_tensor_data(lib_arena *arena, const onnx_tensor *t) {
    onnx_data data = {onnx_element_of(t->data_type), count_elements(&t->dims), {NULL, 0}};
    if (t->data_type == ONNX_STRING) return data;
    data.bytes.size = (size_t)numbers_of(data.element, RAW, (uint64_t)data.count);
    if (onnx_is_external(t)) return data;
    const data_field field = data_field_of(t);
    if (field == RAW)
        data.bytes.data =
            t->data_type == 9 ? checked_bools(arena, t->raw_data.data, data.bytes.size) : t->raw_data.data;
    else if (field == FLOATS)
        data.bytes.data = (const char *)t->float_data.data;
    else if (field == DOUBLES)
        data.bytes.data = (const char *)t->double_data.data;
    else {
        char *to = lib_arena_array(arena, data.bytes.size ? data.bytes.size : 1, 1);
        const size_t numbers = field_count(t, field);
        if (numbers) convert(to, t, field, numbers, data.element->bits < 8 ? 1 : (size_t)data.element->bits / 8);
        data.bytes.data = to;
    }
    return data;
}

/* The row-major position in the dense tensor of value i of the sparse one; -1: its index is out of range. */
static int64_t place_of(const onnx_sparse *s, const char *indices, int64_t i, int64_t count) {
    const bool flat = s->indices->dims.count == 1;
    const size_t parts = flat ? 1 : s->dims.count;
    int64_t at = 0;
    for (size_t d = 0; d < parts; d++) {
        int64_t index;
        memcpy(&index, indices + ((size_t)i * parts + d) * sizeof index, sizeof index);
        const int64_t extent = flat ? count : s->dims.data[d];
        if (index < 0 || index >= extent) return -1;
        at = at * extent + index;
    }
    return at < count ? at : -1;
}

static void make_dense(model_check *c, const onnx_sparse *s) {
    const onnx_data values = onnx_tensor_data(c->arena, s->values), indices = onnx_tensor_data(c->arena, s->indices);
    const size_t size = (size_t)values.element->bits / 8;
    const int64_t count = count_elements(&s->dims);
    int64_t last = -1;
    if ((uint64_t)count > (uint64_t)ONNX_DENSE_MAX / size)
        fail(c, DLC_BUDGET_EXCEEDED, "a sparse tensor of dimensions %s takes more than 1 GiB",
             print_dims(c->arena, &s->dims));
    char *dense = lib_arena_array(c->arena, (size_t)count + 1, size);
    for (int64_t i = 0; i < values.count; i++) {
        const int64_t at = place_of(s, indices.bytes.data, i, count);
        if (at <= last)
            fail(c, DLC_PARSE_ERROR, "index %lld lies outside of %s or is not above the one before", (long long)i,
                 print_dims(c->arena, &s->dims));
        memcpy(dense + (size_t)at * size, values.bytes.data + (size_t)i * size, size);
        last = at;
    }
    onnx_sparse *made = (onnx_sparse *)(uintptr_t)s; /* the arena's, not yet given out */
    made->dense = LIB_NEW(c->arena, onnx_tensor);
    *made->dense = (onnx_tensor){.name = s->values->name,
                                 .data_type = s->values->data_type,
                                 .dims = s->dims,
                                 .raw_data = {dense, (size_t)count * size}};
}

static void check_sparse(model_check *c, const onnx_sparse *s, const char *what) {
    if (!s->values || !s->indices) fail(c, DLC_PARSE_ERROR, "%s: a sparse tensor without values or indices", what);
    check_tensor(c, s->values, what);
    check_tensor(c, s->indices, what);
    c->tensor = s->values;
    if (count_elements(&s->dims) < 0)
        fail(c, DLC_PARSE_ERROR, "dimensions %s are negative or too large", print_dims(c->arena, &s->dims));
    if (s->values->dims.count != 1 || s->indices->data_type != 7 || onnx_is_external(s->values) ||
        onnx_is_external(s->indices) || onnx_element_of(s->values->data_type)->bits < 8)
        fail(c, DLC_PARSE_ERROR, "a sparse tensor has values [n] of whole bytes and int64 indices, both in the file");
    const onnx_int64s *indices = &s->indices->dims;
    const int64_t points = count_elements(&s->values->dims);
    const bool flat = indices->count == 1 && indices->data[0] == points;
    if (!flat && (indices->count != 2 || indices->data[0] != points || indices->data[1] != (int64_t)s->dims.count))
        fail(c, DLC_PARSE_ERROR, "%lld values of a sparse tensor of dimensions %s have indices %s", (long long)points,
             print_dims(c->arena, &s->dims), print_dims(c->arena, indices));
    make_dense(c, s);
    c->tensor = NULL;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

/* Numbers of fields in message_attribute's table. */
enum { HAS_F = 1, HAS_I = 2 };

/* The type of the value that the attribute has. */
static onnx_attribute_type type_of_value(const onnx_attribute *a) {
    return a->g                       ? ONNX_ATTRIBUTE_GRAPH
           : a->t                     ? ONNX_ATTRIBUTE_TENSOR
           : a->sparse                ? ONNX_ATTRIBUTE_SPARSE
           : a->tp                    ? ONNX_ATTRIBUTE_TYPE
           : a->floats.count          ? ONNX_ATTRIBUTE_FLOATS
           : a->ints.count            ? ONNX_ATTRIBUTE_INTS
           : a->strings.count         ? ONNX_ATTRIBUTE_STRINGS
           : a->tensors.count         ? ONNX_ATTRIBUTE_TENSORS
           : a->graphs.count          ? ONNX_ATTRIBUTE_GRAPHS
           : a->sparses.count         ? ONNX_ATTRIBUTE_SPARSES
           : a->types.count           ? ONNX_ATTRIBUTE_TYPES
           : a->s.data                ? ONNX_ATTRIBUTE_STRING
           : a->present & 1u << HAS_F ? ONNX_ATTRIBUTE_FLOAT
           : a->present & 1u << HAS_I ? ONNX_ATTRIBUTE_INT
                                      : ONNX_UNDEFINED;
}

onnx_attribute_type onnx_attribute_type_of(const onnx_attribute *a) {
    if (a->type || a->reference.size) return (onnx_attribute_type)a->type;
    return type_of_value(a);
}

static void check_name(model_check *c, onnx_bytes name, const char *what) {
    if (name.size > ONNX_NAME_MAX)
        fail(c, DLC_BUDGET_EXCEEDED, "%s %s: a name of %zu bytes", what, onnx_shown(c->arena, name), name.size);
}

static void check_later(model_check *c, const onnx_graph *graph, const onnx_attribute *attribute) {
    model_place *place = LIB_NEW(c->arena, model_place);
    *place = (model_place){.outer = c->place,
                           .node = c->node,
                           .node_index = c->node_index,
                           .attribute = attribute,
                           .depth = c->place->depth + 1};
    if (place->depth > ONNX_GRAPH_NESTING)
        fail(c, DLC_BUDGET_EXCEEDED, "more than %d graphs inside of each other", ONNX_GRAPH_NESTING);
    lib_vec_push(c->arena, &c->work, ((model_work){graph, NULL, place}));
}

/* Is the type one of a single message that the attribute does not have? */
static bool lacks_message(const onnx_attribute *a, onnx_attribute_type type) {
    return (type == ONNX_ATTRIBUTE_TENSOR && !a->t) || (type == ONNX_ATTRIBUTE_GRAPH && !a->g) ||
           (type == ONNX_ATTRIBUTE_SPARSE && !a->sparse) || (type == ONNX_ATTRIBUTE_TYPE && !a->tp);
}

static void check_attribute(model_check *c, const onnx_attribute *a) {
    c->attribute = a;
    if (!a->name.size) fail(c, DLC_PARSE_ERROR, "it has no name");
    check_name(c, a->name, "attribute");
    if (a->type < 0 || a->type >= ONNX_ATTRIBUTE_TYPE_COUNT)
        fail(c, DLC_PARSE_ERROR, "type %d, which ONNX does not have", a->type);
    const onnx_attribute_type type = onnx_attribute_type_of(a);
    if (type == ONNX_UNDEFINED && !a->reference.size) fail(c, DLC_PARSE_ERROR, "it has neither a type nor a value");
    if (!a->reference.size && lacks_message(a, type)) fail(c, DLC_PARSE_ERROR, "it has no value of its type");
    if (a->t) check_tensor(c, a->t, "tensor");
    if (a->sparse) check_sparse(c, a->sparse, "sparse tensor");
    for (size_t i = 0; i < a->tensors.count; i++) check_tensor(c, &a->tensors.data[i], "tensor");
    for (size_t i = 0; i < a->sparses.count; i++) check_sparse(c, &a->sparses.data[i], "sparse tensor");
    if (a->g) check_later(c, a->g, a);
    for (size_t i = 0; i < a->graphs.count; i++) check_later(c, &a->graphs.data[i], a);
    c->attribute = NULL;
}

static void check_nodes(model_check *c, const onnx_node *nodes, size_t count) {
    for (size_t n = 0; n < count; n++) {
        const onnx_node *node = &nodes[n];
        c->node = node, c->node_index = n;
        if (++c->nodes > ONNX_NODES_MAX) fail(c, DLC_BUDGET_EXCEEDED, "more than %d nodes", ONNX_NODES_MAX);
        if (!node->operator.size) fail(c, DLC_PARSE_ERROR, "a node without op_type");
        check_name(c, node->operator, "operator");
        check_name(c, node->domain, "domain");
        check_name(c, node->name, "node");
        for (size_t i = 0; i < node->inputs.count; i++) check_name(c, node->inputs.data[i], "operand");
        for (size_t i = 0; i < node->outputs.count; i++) check_name(c, node->outputs.data[i], "result");
        for (size_t i = 0; i < node->attributes.count; i++) check_attribute(c, &node->attributes.data[i]);
    }
    c->node = NULL;
}

static void check_values(model_check *c, const onnx_value_info *values, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++) {
        if (!values[i].name.size) fail(c, DLC_PARSE_ERROR, "%s %zu has no name", what, i);
        check_name(c, values[i].name, what);
    }
}

static void check_graph(model_check *c, const onnx_graph *graph) {
    check_values(c, graph->inputs.data, graph->inputs.count, "input");
    check_values(c, graph->outputs.data, graph->outputs.count, "output");
    for (size_t i = 0; i < graph->initializers.count; i++) {
        if (!graph->initializers.data[i].name.size) fail(c, DLC_PARSE_ERROR, "initializer %zu has no name", i);
        check_tensor(c, &graph->initializers.data[i], "initializer");
    }
    for (size_t i = 0; i < graph->sparse_initializers.count; i++) {
        check_sparse(c, &graph->sparse_initializers.data[i], "sparse initializer");
        if (!graph->sparse_initializers.data[i].dense->name.size)
            fail(c, DLC_PARSE_ERROR, "sparse initializer %zu has no name", i);
    }
    check_nodes(c, graph->nodes.data, graph->nodes.count);
}

static bool same(onnx_bytes a, onnx_bytes b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static uint64_t hash_function(onnx_bytes name, onnx_bytes domain, onnx_bytes overload) {
    const uint64_t of_name = lib_hash_name(name.data, name.size), of_domain = lib_hash_name(domain.data, domain.size),
                   of_overload = lib_hash_name(overload.data, overload.size);
    return lib_hash_mix(lib_hash_mix(of_name, of_domain), of_overload);
}

const onnx_function *onnx_find_function(const onnx_model *model, onnx_bytes name, onnx_bytes domain,
                                        onnx_bytes overload) {
    const lib_map *map = &model->functions_by_name;
    if (!map->count) return NULL;
    const uint64_t hash = hash_function(name, domain, overload);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at)) {
        const onnx_function *f = &model->functions.data[map->slots[at].value];
        if (same(f->name, name) && same(f->domain, domain) && same(f->overload, overload)) return f;
    }
    return NULL;
}

/* Raises if two functions have one name, domain and overload. */
static void map_functions(model_check *c, onnx_model *model) {
    for (size_t i = 0; i < model->functions.count; i++) {
        const onnx_function *f = &model->functions.data[i];
        if (onnx_find_function(model, f->name, f->domain, f->overload))
            fail(c, DLC_PARSE_ERROR, "two functions are called %s", onnx_shown(c->arena, f->name));
        lib_map_insert(c->arena, &model->functions_by_name, hash_function(f->name, f->domain, f->overload),
                       (uint32_t)i);
    }
}

static void check_opsets(model_check *c, size_t count) {
    if (count > ONNX_OPSETS_MAX)
        fail(c, DLC_BUDGET_EXCEEDED, "more than %d versions of operators (opset_import)", ONNX_OPSETS_MAX);
}

static void check_function(model_check *c, const onnx_function *function) {
    if (!function->name.size) fail(c, DLC_PARSE_ERROR, "a function without a name");
    check_opsets(c, function->opsets.count);
    for (size_t i = 0; i < function->attribute_defaults.count; i++)
        check_attribute(c, &function->attribute_defaults.data[i]);
    check_nodes(c, function->nodes.data, function->nodes.count);
}

static void check_all(model_check *c) {
    while (c->work.count) {
        const model_work work = c->work.data[--c->work.count];
        c->place = work.place, c->node = NULL;
        if (work.graph)
            check_graph(c, work.graph);
        else
            check_function(c, work.function);
    }
}

static void start(model_check *c, const onnx_graph *graph, const onnx_function *function, const char *kind) {
    model_place *place = LIB_NEW(c->arena, model_place);
    *place = (model_place){.kind = kind, .name = graph ? graph->name : function->name, .depth = 1};
    lib_vec_push(c->arena, &c->work, ((model_work){graph, function, place}));
}

const onnx_model *onnx_model_read(lib_arena *arena, onnx_bytes bytes, const onnx_files *files) {
    onnx_model *model = onnx_wire_read(arena, &message_model, bytes);
    model_check c = {.arena = arena, .files = files};
    if (!(model->present & 1)) fail(&c, DLC_PARSE_ERROR, "no ir_version: this is no ONNX model");
    if (model->ir_version < ONNX_IR_FIRST || model->ir_version > ONNX_IR_LAST)
        fail(&c, DLC_UNSUPPORTED, "IR version %lld; libdlc reads %d to %d", (long long)model->ir_version, ONNX_IR_FIRST,
             ONNX_IR_LAST);
    if (!model->graph) fail(&c, DLC_PARSE_ERROR, "the model has no graph");
    if (!model->opsets.count)
        fail(&c, DLC_PARSE_ERROR, "the model says nothing of its operators' versions (opset_import)");
    check_opsets(&c, model->opsets.count);
    map_functions(&c, model);
    for (size_t i = model->functions.count; i-- > 0;) start(&c, NULL, &model->functions.data[i], "function");
    for (size_t i = model->trainings.count; i-- > 0;) {
        if (model->trainings.data[i].algorithm) start(&c, model->trainings.data[i].algorithm, NULL, "training graph");
        if (model->trainings.data[i].initialization)
            start(&c, model->trainings.data[i].initialization, NULL, "training graph");
    }
    start(&c, model->graph, NULL, "graph");
    check_all(&c);
    return model;
}

const onnx_tensor *onnx_tensor_read(lib_arena *arena, onnx_bytes bytes) {
    const onnx_tensor *tensor = onnx_wire_read(arena, &message_tensor, bytes);
    model_check c = {.arena = arena};
    check_tensor(&c, tensor, "tensor");
    return tensor;
}
