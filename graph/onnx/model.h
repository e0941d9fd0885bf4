/* The messages of an ONNX file as C structs. Source: onnx.proto of ONNX 1.22 (IR version 13), whose names the members have.
 *
 * `present` has a bit for each field, in the order of the tables in model.c (ONNX_HAS tests by name). Strings and data refer to
 * the file. The reader checks form: encoding, sizes of data against dimensions, element types, nesting. The importer checks
 * meaning: names are defined, operators exist, operands fit. */
#ifndef GRAPH_ONNX_MODEL_H
#define GRAPH_ONNX_MODEL_H

#include "graph/onnx/wire.h"

/* X(value in the file, name in ONNX, dlc_dtype or -1: libdlc has no such type, bits of an element; 0: strings) */
#define ONNX_ELEMENT_TABLE(X)                  \
    X(1, "float", DLC_F32, 32)                 \
    X(2, "uint8", DLC_U8, 8)                   \
    X(3, "int8", DLC_I8, 8)                    \
    X(4, "uint16", DLC_U16, 16)                \
    X(5, "int16", DLC_I16, 16)                 \
    X(6, "int32", DLC_I32, 32)                 \
    X(7, "int64", DLC_I64, 64)                 \
    X(8, "string", -1, 0)                      \
    X(9, "bool", DLC_BOOL, 8)                  \
    X(10, "float16", DLC_F16, 16)              \
    X(11, "double", DLC_F64, 64)               \
    X(12, "uint32", DLC_U32, 32)               \
    X(13, "uint64", DLC_U64, 64)               \
    X(14, "complex64", DLC_C64, 64)            \
    X(15, "complex128", -1, 128)               \
    X(16, "bfloat16", DLC_BF16, 16)            \
    X(17, "float8e4m3fn", DLC_F8E4M3FN, 8)     \
    X(18, "float8e4m3fnuz", DLC_F8E4M3FNUZ, 8) \
    X(19, "float8e5m2", DLC_F8E5M2, 8)         \
    X(20, "float8e5m2fnuz", DLC_F8E5M2FNUZ, 8) \
    X(21, "uint4", DLC_U4, 4)                  \
    X(22, "int4", DLC_I4, 4)                   \
    X(23, "float4e2m1", DLC_F4E2M1, 4)         \
    X(24, "float8e8m0", DLC_F8E8M0, 8)         \
    X(25, "uint2", DLC_U2, 2)                  \
    X(26, "int2", DLC_I2, 2)

typedef struct onnx_element {
    const char *name;
    int dtype;
    int bits;
} onnx_element;

enum { ONNX_STRING = 8 };

/* NULL: unknown element type. */
const onnx_element *onnx_element_of(int32_t data_type);

typedef struct onnx_entry {
    uint32_t present;
    onnx_bytes key, value;
} onnx_entry;

typedef ONNX_LIST(onnx_entry) onnx_entries;
typedef ONNX_LIST(onnx_bytes) onnx_names;
typedef ONNX_LIST(int64_t) onnx_int64s;

typedef struct onnx_tensor {
    uint32_t present;
    onnx_int64s dims;
    int32_t data_type;
    ONNX_LIST(float) float_data;
    ONNX_LIST(int32_t) int32_data;
    onnx_names string_data;
    onnx_int64s int64_data;
    onnx_bytes name, raw_data, doc_string;
    ONNX_LIST(double) double_data;
    onnx_int64s uint64_data;
    onnx_entries external_data;
    int32_t data_location;
    onnx_entries metadata;
} onnx_tensor;

typedef struct onnx_sparse {
    uint32_t present;
    onnx_tensor *values, *indices;
    onnx_int64s dims;
    /* The dense tensor of the same elements and name. */
    onnx_tensor *dense;
} onnx_sparse;

/* A dimension: `which` 1: value, 2: parameter, 0: neither, any size. */
typedef struct onnx_dimension {
    uint32_t present;
    int which;
    int64_t value;
    onnx_bytes parameter, denotation;
} onnx_dimension;

typedef struct onnx_shape {
    uint32_t present;
    ONNX_LIST(onnx_dimension) dims;
} onnx_shape;

typedef struct onnx_tensor_type {
    uint32_t present;
    int32_t element;
    /* NULL: any rank */
    onnx_shape *shape;
} onnx_tensor_type;

typedef struct onnx_type onnx_type;

/* Of a sequence and of an optional: `element`. */
typedef struct onnx_nested_type {
    uint32_t present;
    onnx_type *element;
} onnx_nested_type;

typedef struct onnx_map_type {
    uint32_t present;
    int32_t key;
    onnx_type *value;
} onnx_map_type;

typedef enum onnx_type_kind {
    ONNX_TYPE_NONE = 0,
    ONNX_TYPE_TENSOR = 1,
    ONNX_TYPE_SEQUENCE = 4,
    ONNX_TYPE_MAP = 5,
    ONNX_TYPE_SPARSE = 8,
    ONNX_TYPE_OPTIONAL = 9
} onnx_type_kind;

struct onnx_type {
    uint32_t present;
    /* onnx_type_kind: selects the member */
    int which;
    onnx_tensor_type *tensor, *sparse;
    onnx_nested_type *sequence, *optional;
    onnx_map_type *map;
    onnx_bytes denotation;
};

typedef struct onnx_value_info {
    uint32_t present;
    onnx_bytes name, doc_string;
    onnx_type *type;
    onnx_entries metadata;
} onnx_value_info;

typedef enum onnx_attribute_type {
    ONNX_UNDEFINED,
    ONNX_ATTRIBUTE_FLOAT,
    ONNX_ATTRIBUTE_INT,
    ONNX_ATTRIBUTE_STRING,
    ONNX_ATTRIBUTE_TENSOR,
    ONNX_ATTRIBUTE_GRAPH,
    ONNX_ATTRIBUTE_FLOATS,
    ONNX_ATTRIBUTE_INTS,
    ONNX_ATTRIBUTE_STRINGS,
    ONNX_ATTRIBUTE_TENSORS,
    ONNX_ATTRIBUTE_GRAPHS,
    ONNX_ATTRIBUTE_SPARSE,
    ONNX_ATTRIBUTE_SPARSES,
    ONNX_ATTRIBUTE_TYPE,
    ONNX_ATTRIBUTE_TYPES,
    ONNX_ATTRIBUTE_TYPE_COUNT
} onnx_attribute_type;

typedef struct onnx_graph onnx_graph;

typedef struct onnx_attribute {
    uint32_t present;
    onnx_bytes name;
    /* Within a function: the function's attribute that gives the value. */
    onnx_bytes reference;
    onnx_bytes doc_string;
    /* Absent in files of IR version 1 and 2, which onnx_attribute_type_of handles. */
    int32_t type;
    float f;
    int64_t i;
    onnx_bytes s;
    onnx_tensor *t;
    onnx_graph *g;
    onnx_sparse *sparse;
    onnx_type *tp;
    ONNX_LIST(float) floats;
    onnx_int64s ints;
    onnx_names strings;
    ONNX_LIST(onnx_tensor) tensors;
    ONNX_LIST(onnx_graph) graphs;
    ONNX_LIST(onnx_sparse) sparses;
    ONNX_LIST(onnx_type) types;
} onnx_attribute;

typedef struct onnx_node {
    uint32_t present;
    /* Names of values; an empty one is an omitted optional operand. */
    onnx_names inputs, outputs;
    onnx_bytes name, operator, domain, overload, doc_string;
    ONNX_LIST(onnx_attribute) attributes;
    onnx_entries metadata;
} onnx_node;

typedef struct onnx_annotation {
    uint32_t present;
    onnx_bytes tensor;
    onnx_entries parameters;
} onnx_annotation;

struct onnx_graph {
    uint32_t present;
    ONNX_LIST(onnx_node) nodes;
    onnx_bytes name, doc_string;
    ONNX_LIST(onnx_tensor) initializers;
    ONNX_LIST(onnx_sparse) sparse_initializers;
    ONNX_LIST(onnx_value_info) inputs, outputs, values;
    ONNX_LIST(onnx_annotation) annotations;
    onnx_entries metadata;
};

typedef struct onnx_opset {
    uint32_t present;
    /* Empty or absent: the standard's operators, as "ai.onnx" is. */
    onnx_bytes domain;
    int64_t version;
} onnx_opset;

typedef struct onnx_function {
    uint32_t present;
    onnx_bytes name, domain, overload, doc_string;
    onnx_names inputs, outputs;
    /* Attributes without and with default values. */
    onnx_names attributes;
    ONNX_LIST(onnx_attribute) attribute_defaults;
    ONNX_LIST(onnx_node) nodes;
    ONNX_LIST(onnx_opset) opsets;
    ONNX_LIST(onnx_value_info) values;
    onnx_entries metadata;
} onnx_function;

typedef struct onnx_training {
    uint32_t present;
    onnx_graph *initialization, *algorithm;
    onnx_entries initialization_bindings, update_bindings;
} onnx_training;

typedef struct onnx_model {
    uint32_t present;
    int64_t ir_version, model_version;
    onnx_bytes producer_name, producer_version, domain, doc_string;
    onnx_graph *graph;
    ONNX_LIST(onnx_opset) opsets;
    onnx_entries metadata;
    ONNX_LIST(onnx_training) trainings;
    ONNX_LIST(onnx_function) functions;
    /* Of onnx_model_read: their places in the list, for onnx_find_function. */
    lib_map functions_by_name;
} onnx_model;

enum {
    ONNX_IR_FIRST = 3,
    ONNX_IR_LAST = 13,
    ONNX_GRAPH_NESTING = 32,
    ONNX_NODES_MAX = 4 << 20,
    ONNX_OPSETS_MAX = 1 << 10,
    ONNX_NAME_MAX = 64 << 10,
    /* Bytes of a sparse tensor as a dense one. */
    ONNX_DENSE_MAX = 1 << 30
};

/* The model's function of that name, domain and overload; NULL: there is none. */
const onnx_function *onnx_find_function(const onnx_model *model, onnx_bytes name, onnx_bytes domain,
                                        onnx_bytes overload);

/* The files with external data. `open` returns the bytes of the file at a location, a relative path without ".."; they stay as long as the
 * model. It raises in the arena's scope. */
typedef struct onnx_files {
    onnx_bytes (*open)(void *user, onnx_bytes location);
    void *user;
} onnx_files;

/* Reads and checks a model, which refers to the bytes. Each sparse tensor gets a dense one. External data become raw_data in place; with files
 * NULL they stay external, and cannot be imported. Raises DLC_PARSE_ERROR (encoding, sizes of data, missing fields), DLC_UNSUPPORTED (an
 * unknown version of the format), DLC_BUDGET_EXCEEDED (the limits above, the arena's). */
const onnx_model *onnx_model_read(lib_arena *arena, onnx_bytes bytes, const onnx_files *files);

/* Reads and checks a file that is one tensor, or one sequence or optional of the type given: data of ONNX's test cases. */
const onnx_tensor *onnx_tensor_read(lib_arena *arena, onnx_bytes bytes);

/* The elements of a tensor that are in the model file itself. */
typedef struct onnx_data {
    const onnx_element *element;
    /* Product of the dims. */
    int64_t count;
    /* (count * bits + 7) / 8 bytes, elements as a libdlc tensor has them (of less than 8 bits packed from the low bits up), of
     * any alignment: raw data point into the file, typed fields are converted. Strings, and data that stayed external: NULL. */
    onnx_bytes bytes;
} onnx_data;
/* The data of a checked tensor. Raises DLC_OUT_OF_MEMORY. */
onnx_data onnx_tensor_data(lib_arena *arena, const onnx_tensor *tensor);

/* The location of external data, from the entries of external_data. */
typedef struct onnx_external {
    onnx_bytes location;
    int64_t offset;
    /* -1: to the end of the file */
    int64_t length;
} onnx_external;
bool onnx_is_external(const onnx_tensor *tensor);
onnx_external onnx_external_of(lib_arena *arena, const onnx_tensor *tensor);
/* Is it a relative path beneath a folder, without "..", drive or backslash? */
bool onnx_is_location(onnx_bytes location);

/* The attribute's type, by `type` or else by the member that is present; ONNX_UNDEFINED: a reference. */
onnx_attribute_type onnx_attribute_type_of(const onnx_attribute *attribute);

/* The bytes as text for messages: at most 80 of them, escaped if they are not UTF-8. */
const char *onnx_shown(lib_arena *arena, onnx_bytes bytes);
bool onnx_is(onnx_bytes bytes, const char *text);

#endif
