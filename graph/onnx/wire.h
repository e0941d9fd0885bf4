/* Protocol Buffers' wire format, read by tables into C structs, without copying strings and bytes. Source: "Encoding", the
 * format's specification at protobuf.dev.
 *
 * A message type is a table of its fields: number, kind, where the value goes in the C struct. Reading trusts nothing: every
 * length is checked against what encloses it, nesting and memory are limited, there is no recursion. Where the format leaves the
 * behaviour open, we follow the reference implementation: the last value of a singular field counts, several occurrences of a
 * singular message are merged, repeated numbers may be packed or not, unknown fields are skipped. Groups and known fields in an
 * invalid wire type are rejected: no writer produces either. */
#ifndef GRAPH_ONNX_WIRE_H
#define GRAPH_ONNX_WIRE_H

#include "lib/lib.h"

/* Bytes in the file or in the arena; not terminated, and may contain NUL. data NULL: the field is absent. */
typedef struct onnx_bytes {
    const char *data;
    size_t size;
} onnx_bytes;

/* A repeated field: elements in the arena, or in the file if their encoding there equals the C representation. */
#define ONNX_LIST(type)   \
    struct {              \
        const type *data; \
        size_t count;     \
    }

typedef enum onnx_kind {
    /* varint: int64_t; int32 and enums are cut to 32 bits and extended by their sign */
    ONNX_INT64,
    ONNX_INT32,
    /* 4 and 8 bytes, little endian: float, double */
    ONNX_FLOAT,
    ONNX_DOUBLE,
    /* onnx_bytes */
    ONNX_BYTES,
    /* a struct of another message type; a singular one by a pointer, NULL: absent */
    ONNX_MESSAGE
} onnx_kind;

typedef struct onnx_message onnx_message;

typedef struct onnx_field {
    /* For error messages. */
    const char *name;
    uint32_t number;
    onnx_kind kind;
    /* An ONNX_LIST of the kind's C type at `offset`, in place of one value. */
    bool repeated;
    /* Part of a oneof, of whose fields the last one counts: offset of an int that receives its number. 0: not in a oneof. */
    uint16_t oneof;
    uint16_t offset;
    /* ONNX_MESSAGE: its type. */
    const onnx_message *message;
} onnx_field;

struct onnx_message {
    const char *name;
    /* sizeof the C struct; at offset 0 it has a uint32_t whose bit i is set if field i was present. */
    size_t size;
    int field_count;
    /* ascending numbers */
    const onnx_field *fields;
};

/* Nested messages: a legitimate model needs four levels for each level of sub-graphs. */
enum { ONNX_WIRE_NESTING = 128 };

/* Reads `bytes` as a message of that type into a new struct. Raises DLC_PARSE_ERROR with byte offset and path of fields;
 * DLC_BUDGET_EXCEEDED beyond the nesting or the arena's limit. The result refers to the bytes. */
void *onnx_wire_read(lib_arena *arena, const onnx_message *type, onnx_bytes bytes);

#endif
