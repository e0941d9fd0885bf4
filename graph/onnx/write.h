/* A model to be written as an ONNX file: nodes and tensors as C structs in an arena, and the writer of their encoding. Field numbers are
 * those of onnx.proto of ONNX 1.22. Tensors point at the bytes of constants, which are written from there. */
#ifndef GRAPH_ONNX_WRITE_H
#define GRAPH_ONNX_WRITE_H

#include "graph/graph.h"

typedef struct onnx_out_graph onnx_out_graph;

/* The name of a value. All users share it by pointer, so that a value can be renamed when it becomes an output. */
typedef struct onnx_label {
    const char *text;
    /* The graph whose node computes the value; NULL: it is an input or an initializer. */
    const onnx_out_graph *home;
    /* It is the name of an output. */
    bool output;
} onnx_label;

typedef enum onnx_out_kind {
    ONNX_OUT_FLOAT = 1,
    ONNX_OUT_INT = 2,
    ONNX_OUT_STRING = 3,
    ONNX_OUT_GRAPH = 5,
    ONNX_OUT_FLOATS = 6,
    ONNX_OUT_INTS = 7,
    ONNX_OUT_STRINGS = 8
} onnx_out_kind;

typedef struct onnx_out_attribute {
    const char *name;
    /* The attribute's type in the file. */
    onnx_out_kind kind;
    float number;
    int64_t integer;
    const char *string;
    const onnx_out_graph *graph;
    /* Lists, of `count`. */
    int count;
    const float *floats;
    const int64_t *integers;
    const char *const *strings;
} onnx_out_attribute;

typedef struct onnx_out_node {
    const char *op;
    /* A unique name for readers. */
    const char *name;
    /* NULL: an operand or result that is left out. */
    lib_vec(onnx_label *) inputs, outputs;
    lib_vec(onnx_out_attribute) attributes;
} onnx_out_node;

typedef struct onnx_out_dim {
    int64_t value;
    /* Not NULL: a symbol or an expression, in place of the value. */
    const char *symbol;
} onnx_out_dim;

typedef struct onnx_out_value {
    const onnx_label *label;
    int32_t element;
    int rank;
    onnx_out_dim dim[DLC_MAX_RANK + 1];
} onnx_out_value;

typedef struct onnx_out_tensor {
    const onnx_label *label;
    int32_t element;
    int rank;
    int64_t dim[DLC_MAX_RANK + 1];
    const void *bytes;
    size_t size;
    /* The bytes are in the file of external data, from `offset` on. */
    bool external;
    uint64_t offset;
} onnx_out_tensor;

struct onnx_out_graph {
    const char *name;
    lib_vec(onnx_out_node *) nodes;
    lib_vec(onnx_out_tensor) initializers;
    lib_vec(onnx_out_value) inputs, outputs;
};

typedef struct onnx_out_model {
    int ir_version, opset;
    const char *producer;
    /* The name of the file with external data, beside the model's. */
    const char *location;
    const onnx_out_graph *graph;
} onnx_out_model;

/* Receives bytes in order; false: they could not be written. */
typedef struct onnx_sink {
    bool (*put)(void *user, const void *bytes, size_t size);
    void *user;
} onnx_sink;

/* Raw data of ONNX_RAW_LARGE bytes or more are aligned in the model's file. */
enum { ONNX_RAW_ALIGNMENT = 64, ONNX_RAW_LARGE = 4096 };
/* Makes tensors of more than `larger_than` bytes external, at offsets that are multiples of ONNX_EXTERNAL_ALIGNMENT. Returns the size of the
 * file of external data. */
enum { ONNX_EXTERNAL_ALIGNMENT = 64 };
uint64_t onnx_place_external(onnx_out_graph *whole, size_t larger_than);
/* Bytes of the model's file. */
uint64_t onnx_model_size(const onnx_out_model *model);
/* False if the sink fails. Allocates nothing. */
bool onnx_write_model(const onnx_out_model *model, const onnx_sink *sink);
bool onnx_write_external(const onnx_out_graph *whole, const onnx_sink *sink);

#endif
