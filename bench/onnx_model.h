/* Writes an ONNX model in memory: the protobuf wire format of the few messages that a graph needs, for peers that read ONNX. Independent
 * of libdlc. */
#ifndef BENCH_ONNX_MODEL_H
#define BENCH_ONNX_MODEL_H

#include "bench/bench.h"

typedef struct onnx_bytes {
    uint8_t *data;
    size_t size, room;
} onnx_bytes;

/* rank -1: not declared. */
typedef struct onnx_dims {
    int rank;
    int64_t dims[DLC_MAX_RANK];
} onnx_dims;

/* A model under construction. Operands are x0, x1...: constants are initializers, the others inputs; results are y0, y1... */
typedef struct onnx_model {
    onnx_bytes bytes;
    /* position of the graph's message in `bytes` */
    size_t graph;
    /* as declared */
    onnx_dims inputs[BENCH_MAX_OPERANDS], outputs[BENCH_MAX_RESULTS];
    /* out of memory, or malformed */
    bool failed;
    /* positions in `bytes` of the node whose body is being written, of its attribute, of the body */
    size_t body[3];
} onnx_model;

/* Starts a new model. Operators of the domains "" and com.microsoft may be used. */
void onnx_begin(onnx_model *m);
/* Starts a model with an older opset, of which a reader may support more operators. */
void onnx_begin_as(onnx_model *m, int opset_version);
/* Completes the model in `bytes`. */
void onnx_end(onnx_model *m);
void onnx_release(onnx_model *m);

/* An operand with the case's dimensions, or with others of the same product. Once for each operand that the graph uses. */
void onnx_operand(onnx_model *m, const bench_problem *problem, int index);
void onnx_operand_as(onnx_model *m, const bench_problem *problem, int index, int rank, const int64_t *dims);
/* All operands with the case's dimensions. */
void onnx_operands(onnx_model *m, const bench_problem *problem);
/* onnx_result_as: a result with other dimensions than the case's; onnx_results: all results with the case's dimensions. */
void onnx_result_as(onnx_model *m, const bench_problem *problem, int index, int rank, const int64_t *dims);
void onnx_results(onnx_model *m, const bench_problem *problem);

/* An initializer. rank 0: a scalar. */
void onnx_floats(onnx_model *m, const char *name, int rank, const int64_t *dims, const float *values);
void onnx_scalar(onnx_model *m, const char *name, double value);
/* count 0: a scalar. */
void onnx_zeros(onnx_model *m, const char *name, dlc_dtype dtype, int64_t count);
void onnx_integers(onnx_model *m, const char *name, int count, const int64_t *values);

/* One node: "Gemm", "x0 x1 x2", "y0", "alpha=1.0 transB=1". Names are separated by single spaces, `_` is an input that is left out.
 * An attribute's type follows from its value: 1 is an integer, 1.0 a float, [1,2] integers, other text a string. A type
 * that begins with '@' is of the domain com.microsoft. `attributes` may be NULL. */
void onnx_node(onnx_model *m, const char *type, const char *inputs, const char *outputs, const char *attributes);
/* A node with a graph as attribute `body`: the nodes of the body, and its f32 inputs and outputs, are written between these calls. */
void onnx_begin_body(onnx_model *m, const char *type, const char *inputs, const char *outputs, const char *attributes);
void onnx_body_value(onnx_model *m, bool input, const char *name, int rank, const int64_t *dims);
void onnx_end_body(onnx_model *m);
/* TensorProto.DataType; 0: not used here. */
int onnx_element_type(dlc_dtype dtype);
/* "[1,2,3]" for attributes. */
const char *onnx_list(char *text, size_t size, int count, const int64_t *values);

/* onnx_cases.c: writes the graph of a case in the given way. False if there is none. */
enum { ONNX_WAYS = 4 };
bool onnx_write_case(onnx_model *m, const bench_problem *problem, int way, char *note, size_t note_size);

/* onnx_blocks.c: blocks (blocks.h), with attention as one operator of opset 23, by nodes, as ONNX Runtime's own operator. */
void onnx_block_operator(onnx_model *m, const bench_problem *problem);
void onnx_block_nodes(onnx_model *m, const bench_problem *problem);
void onnx_block_multi_head(onnx_model *m, const bench_problem *problem);

#endif
