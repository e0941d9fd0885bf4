/* The protobuf wire format (varints, fixed 32 bits, length-delimited) of ONNX's messages, after onnx.proto3. Lengths of nested messages are
 * written as varints of fixed width, padded with continuation bits, so that they can be filled in afterwards. */
#include "bench/onnx_model.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, DELIMITED = 2, FIXED32 = 5, LENGTH_BYTES = 5 };

/* Field numbers. */
enum { MODEL_IR_VERSION = 1, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_TYPE = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_S = 4,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_GRAPH = 5, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum {
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1
};

/* The newest versions that the operators here need; run times of later versions read them, too. */
enum { IR_VERSION = 10, OPSET = 23 };

/* ---- the wire format ------------------------------------------------------------------------------------------------------------- */

static void append(onnx_model *m, const void *data, size_t size) {
    onnx_bytes *b = &m->bytes;
    if (m->failed) return;
    if (b->size + size > b->room) {
        size_t room = (b->size + size) * 3 / 2 + 256;
        uint8_t *larger = realloc(b->data, room);
        if (!larger) {
            m->failed = true;
            return;
        }
        b->data = larger, b->room = room;
    }
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void varint(onnx_model *m, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    append(m, bytes, n);
}

static void tag(onnx_model *m, int field, int wire) {
    varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

static void integer(onnx_model *m, int field, int64_t value) {
    tag(m, field, VARINT);
    varint(m, (uint64_t)value);
}

static void bytes(onnx_model *m, int field, const void *data, size_t size) {
    tag(m, field, DELIMITED);
    varint(m, size);
    append(m, data, size);
}

static void text(onnx_model *m, int field, const char *value) {
    bytes(m, field, value, strlen(value));
}

/* Begins a nested message; returns its start, which end() takes. */
static size_t begin(onnx_model *m, int field) {
    static const uint8_t room[LENGTH_BYTES];
    tag(m, field, DELIMITED);
    append(m, room, sizeof room);
    return m->bytes.size;
}

static void end(onnx_model *m, size_t start) {
    if (m->failed) return;
    uint64_t length = m->bytes.size - start;
    for (int i = 0; i < LENGTH_BYTES; i++)
        m->bytes.data[start - LENGTH_BYTES + (size_t)i] =
            (uint8_t)((length >> (7 * i) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* ---- messages ---------------------------------------------------------------------------------------------------------------------- */

int onnx_element_type(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F32: return 1;
    case DLC_U8: return 2;
    case DLC_I8: return 3;
    case DLC_I32: return 6;
    case DLC_I64: return 7;
    case DLC_BOOL: return 9;
    case DLC_F16: return 10;
    case DLC_F64: return 11;
    case DLC_BF16: return 16;
    case DLC_I4: return 22;
    default: return 0;
    }
}

static void element_type(onnx_model *m, int field, dlc_dtype dtype) {
    int type = onnx_element_type(dtype);
    if (!type) m->failed = true;
    integer(m, field, type);
}

static void tensor(onnx_model *m, const char *name, dlc_dtype dtype, int rank, const int64_t *dims, const void *data,
                   size_t size) {
    size_t message = begin(m, GRAPH_INITIALIZER);
    for (int i = 0; i < rank; i++) integer(m, TENSOR_DIMS, dims[i]);
    element_type(m, TENSOR_TYPE, dtype);
    text(m, TENSOR_NAME, name);
    bytes(m, TENSOR_RAW, data, size);
    end(m, message);
}

static void value(onnx_model *m, int field, const char *name, dlc_dtype dtype, int rank, const int64_t *dims) {
    size_t message = begin(m, field);
    text(m, VALUE_NAME, name);
    size_t type = begin(m, VALUE_TYPE), of_tensor = begin(m, TYPE_TENSOR);
    element_type(m, TENSOR_ELEMENT, dtype);
    size_t shape = begin(m, TENSOR_SHAPE);
    for (int i = 0; i < rank; i++) {
        size_t dim = begin(m, SHAPE_DIM);
        integer(m, DIM_VALUE, dims[i]);
        end(m, dim);
    }
    end(m, shape);
    end(m, of_tensor);
    end(m, type);
    end(m, message);
}

void onnx_begin(onnx_model *m) {
    onnx_begin_as(m, OPSET);
}

void onnx_begin_as(onnx_model *m, int opset_version) {
    static const char *const domains[] = {"", "com.microsoft"};
    const int64_t versions[] = {opset_version, 1};
    *m = (onnx_model){0};
    for (int i = 0; i < BENCH_MAX_OPERANDS; i++) m->inputs[i].rank = -1;
    for (int i = 0; i < BENCH_MAX_RESULTS; i++) m->outputs[i].rank = -1;
    integer(m, MODEL_IR_VERSION, IR_VERSION);
    for (int i = 0; i < 2; i++) {
        size_t opset = begin(m, MODEL_OPSET);
        text(m, OPSET_DOMAIN, domains[i]);
        integer(m, OPSET_VERSION, versions[i]);
        end(m, opset);
    }
    m->graph = begin(m, MODEL_GRAPH);
    text(m, GRAPH_NAME, "case");
}

void onnx_end(onnx_model *m) {
    end(m, m->graph);
}

void onnx_release(onnx_model *m) {
    free(m->bytes.data);
    *m = (onnx_model){0};
}

void onnx_operand_as(onnx_model *m, const bench_problem *problem, int index, int rank, const int64_t *dims) {
    const bench_operand *o = &problem->operands[index];
    char name[16];
    snprintf(name, sizeof name, "x%d", index);
    if (o->constant) {
        tensor(m, name, o->dtype, rank, dims, o->data, o->bytes);
        return;
    }
    value(m, GRAPH_INPUT, name, o->dtype, rank, dims);
    m->inputs[index] = (onnx_dims){.rank = rank};
    memcpy(m->inputs[index].dims, dims, (size_t)rank * sizeof *dims);
}

void onnx_operand(onnx_model *m, const bench_problem *problem, int index) {
    onnx_operand_as(m, problem, index, problem->operands[index].rank, problem->operands[index].dims);
}

void onnx_operands(onnx_model *m, const bench_problem *problem) {
    for (int i = 0; i < problem->operand_count; i++) onnx_operand(m, problem, i);
}

void onnx_result_as(onnx_model *m, const bench_problem *problem, int index, int rank, const int64_t *dims) {
    char name[16];
    snprintf(name, sizeof name, "y%d", index);
    value(m, GRAPH_OUTPUT, name, problem->results[index].dtype, rank, dims);
    m->outputs[index] = (onnx_dims){.rank = rank};
    memcpy(m->outputs[index].dims, dims, (size_t)rank * sizeof *dims);
}

void onnx_results(onnx_model *m, const bench_problem *problem) {
    for (int i = 0; i < problem->result_count; i++)
        onnx_result_as(m, problem, i, problem->results[i].rank, problem->results[i].dims);
}

void onnx_floats(onnx_model *m, const char *name, int rank, const int64_t *dims, const float *values) {
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    tensor(m, name, DLC_F32, rank, dims, values, count * sizeof *values);
}

void onnx_scalar(onnx_model *m, const char *name, double number) {
    onnx_floats(m, name, 0, NULL, &(const float){(float)number});
}

void onnx_zeros(onnx_model *m, const char *name, dlc_dtype dtype, int64_t count) {
    size_t size = (size_t)(count ? count : 1) * bench_dtype_bytes(dtype);
    void *zeros = calloc(1, size);
    if (zeros)
        tensor(m, name, dtype, count > 0, &count, zeros, size);
    else
        m->failed = true;
    free(zeros);
}

void onnx_integers(onnx_model *m, const char *name, int count, const int64_t *values) {
    tensor(m, name, DLC_I64, 1, &(const int64_t){count}, values, (size_t)count * sizeof *values);
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------------------- */

static void names(onnx_model *m, int field, const char *list) {
    char copy[256], *rest = copy;
    if (strlen(list) >= sizeof copy) m->failed = true;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL;) text(m, field, strcmp(name, "_") ? name : "");
}

/* Writes an attribute, given as "key=value". */
static void attribute(onnx_model *m, char *pair) {
    char *equals = strchr(pair, '=');
    if (!equals) {
        m->failed = true;
        return;
    }
    *equals = 0;
    const char *word = equals + 1;
    char *after_integer, *after_number;
    long long whole = strtoll(word, &after_integer, 10);
    float number = strtof(word, &after_number);
    size_t message = begin(m, NODE_ATTRIBUTE);
    text(m, ATTRIBUTE_NAME, pair);
    if (*word == '[') {
        int64_t values[DLC_MAX_RANK];
        int count = bench_numbers(word, values);
        for (int i = 0; i < count; i++) integer(m, ATTRIBUTE_INTS, values[i]);
        integer(m, ATTRIBUTE_TYPE, TYPE_INTS);
    } else if (*word && !*after_integer) {
        integer(m, ATTRIBUTE_I, whole);
        integer(m, ATTRIBUTE_TYPE, TYPE_INT);
    } else if (*word && !*after_number) {
        tag(m, ATTRIBUTE_F, FIXED32);
        append(m, &number, sizeof number); /* little-endian, like every machine that this runs on */
        integer(m, ATTRIBUTE_TYPE, TYPE_FLOAT);
    } else {
        text(m, ATTRIBUTE_S, word);
        integer(m, ATTRIBUTE_TYPE, TYPE_STRING);
    }
    end(m, message);
}

/* Writes a node but does not end its message. */
static size_t begin_node(onnx_model *m, const char *type, const char *inputs, const char *outputs,
                         const char *attributes) {
    bool microsoft = type[0] == '@';
    char copy[256] = "", *rest = copy;
    if (attributes && strlen(attributes) >= sizeof copy) m->failed = true;
    if (attributes) snprintf(copy, sizeof copy, "%s", attributes);
    size_t message = begin(m, GRAPH_NODE);
    names(m, NODE_INPUT, inputs);
    names(m, NODE_OUTPUT, outputs);
    text(m, NODE_TYPE, type + microsoft);
    if (microsoft) text(m, NODE_DOMAIN, "com.microsoft");
    for (char *pair; (pair = strtok_r(rest, " ", &rest)) != NULL;) attribute(m, pair);
    return message;
}

void onnx_node(onnx_model *m, const char *type, const char *inputs, const char *outputs, const char *attributes) {
    end(m, begin_node(m, type, inputs, outputs, attributes));
}

void onnx_begin_body(onnx_model *m, const char *type, const char *inputs, const char *outputs, const char *attributes) {
    m->body[0] = begin_node(m, type, inputs, outputs, attributes);
    m->body[1] = begin(m, NODE_ATTRIBUTE);
    text(m, ATTRIBUTE_NAME, "body");
    integer(m, ATTRIBUTE_TYPE, TYPE_GRAPH);
    m->body[2] = begin(m, ATTRIBUTE_GRAPH);
    text(m, GRAPH_NAME, "body");
}

void onnx_body_value(onnx_model *m, bool input, const char *name, int rank, const int64_t *dims) {
    value(m, input ? GRAPH_INPUT : GRAPH_OUTPUT, name, DLC_F32, rank, dims);
}

void onnx_end_body(onnx_model *m) {
    for (int i = 2; i >= 0; i--) end(m, m->body[i]);
}

const char *onnx_list(char *to, size_t size, int count, const int64_t *values) {
    size_t used = (size_t)snprintf(to, size, "[");
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(to + used, size - used, "%s%lld", i ? "," : "", (long long)values[i]);
    if (used < size) snprintf(to + used, size - used, "]");
    return to;
}
