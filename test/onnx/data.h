/* Data of ONNX's test cases, read independently of the library: tensors, strings, sequences, optionals and maps in files. What is read belongs to
 * a list that data_release frees. */
#ifndef TEST_ONNX_DATA_H
#define TEST_ONNX_DATA_H

#include <dlc/onnx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

typedef struct data_block {
    struct data_block *next;
} data_block;
static data_block *data_blocks;

/* Zeroed. */
static inline void *data_new(size_t size) {
    data_block *block = calloc(1, 16 + size);
    block->next = data_blocks;
    data_blocks = block;
    return (char *)block + 16;
}

static inline void data_release(void) {
    for (data_block *next; data_blocks; data_blocks = next) {
        next = data_blocks->next;
        free(data_blocks);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------ */

typedef struct file_bytes {
    unsigned char *data;
    size_t size;
} file_bytes;

static inline file_bytes read_file(const char *path) {
    file_bytes b = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file) return b;
    fseek(file, 0, SEEK_END);
    b.size = (size_t)ftell(file);
    b.data = data_new(b.size + 1);
    rewind(file);
    if (fread(b.data, 1, b.size, file) != b.size) b.size = 0;
    fclose(file);
    return b;
}

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static inline uint64_t varint(cursor *c) {
    uint64_t value = 0;
    for (int shift = 0; c->at < c->end && shift < 64; shift += 7) {
        value |= (uint64_t)(*c->at & 127) << shift;
        if (*c->at++ < 128) break;
    }
    return value;
}

/* A field of a message: its number, and its value or payload. */
typedef struct data_field {
    int number, wire;
    uint64_t value;
    cursor payload;
} data_field;

static inline data_field next_field(cursor *c) {
    const uint64_t tag = varint(c);
    data_field f = {(int)(tag >> 3), (int)(tag & 7), 0, *c};
    if (f.wire == 0) {
        f.value = varint(c);
    } else if (f.wire == 5 || f.wire == 1) {
        const size_t size = f.wire == 5 ? 4 : 8;
        memcpy(&f.value, c->at, size), c->at += size;
    } else {
        const size_t size = (size_t)varint(c);
        f.payload = (cursor){c->at, c->at + size};
        c->at += size;
    }
    return f;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

/* A tensor; `type` is ONNX's number, data are compact, elements of 4 and 2 bits two and four to a byte, the lowest first. */
typedef struct tensor {
    DLTensor view; /* first, so that it leads to the rest */
    int64_t shape[16];
    int type;
    size_t count;
    char *data;
} tensor;

static const struct {
    DLDataType dtype;
    /* where typed data stand: f, i, l, d, u */
    char field;
} types[] = {[1] = {{kDLFloat, 32, 1}, 'f'},
             [2] = {{kDLUInt, 8, 1}, 'i'},
             [3] = {{kDLInt, 8, 1}, 'i'},
             [4] = {{kDLUInt, 16, 1}, 'i'},
             [5] = {{kDLInt, 16, 1}, 'i'},
             [6] = {{kDLInt, 32, 1}, 'i'},
             [7] = {{kDLInt, 64, 1}, 'l'},
             [9] = {{kDLBool, 8, 1}, 'i'},
             [10] = {{kDLFloat, 16, 1}, 'i'},
             [11] = {{kDLFloat, 64, 1}, 'd'},
             [12] = {{kDLUInt, 32, 1}, 'u'},
             [13] = {{kDLUInt, 64, 1}, 'u'},
             [16] = {{kDLBfloat, 16, 1}, 'i'},
             [17] = {{kDLFloat8_e4m3fn, 8, 1}, 'i'},
             [18] = {{kDLFloat8_e4m3fnuz, 8, 1}, 'i'},
             [19] = {{kDLFloat8_e5m2, 8, 1}, 'i'},
             [20] = {{kDLFloat8_e5m2fnuz, 8, 1}, 'i'},
             [21] = {{kDLUInt, 4, 1}, 'i'},
             [22] = {{kDLInt, 4, 1}, 'i'},
             [23] = {{kDLFloat4_e2m1fn, 4, 1}, 'i'},
             [24] = {{kDLFloat8_e8m0fnu, 8, 1}, 'i'},
             [25] = {{kDLUInt, 2, 1}, 'i'},
             [26] = {{kDLInt, 2, 1}, 'i'}};
enum { TYPES = sizeof types / sizeof types[0] };

static inline size_t bytes_of(size_t count, int bits) {
    return (count * (size_t)bits + 7) / 8;
}

static inline void append(tensor *t, size_t *size, uint64_t bits, size_t element) {
    if (*size + element > bytes_of(t->count, types[t->type].dtype.bits)) return;
    memcpy(t->data + *size, &bits, element);
    *size += element;
}

/* Dimensions, element type and the pieces of typed data of a message. */
typedef struct message_data {
    tensor *t;
    cursor raw;
    data_field piece[64];
    size_t pieces;
    /* Strings. */
    cursor *string;
    size_t strings;
} message_data;

static inline message_data read_fields(cursor c) {
    message_data m = {.t = data_new(sizeof(tensor))};
    m.t->count = 1;
    m.string = data_new(((size_t)(c.end - c.at) / 2 + 1) * sizeof *m.string);
    while (c.at < c.end) {
        const data_field f = next_field(&c);
        if (f.number == 1 && f.wire == 0) m.t->shape[m.t->view.ndim++ & 15] = (int64_t)f.value;
        if (f.number == 1 && f.wire == 2)
            for (cursor p = f.payload; p.at < p.end;) m.t->shape[m.t->view.ndim++ & 15] = (int64_t)varint(&p);
        if (f.number == 2) m.t->type = (int)f.value;
        if (f.number == 6) m.string[m.strings++] = f.payload;
        if (f.number == 9) m.raw = f.payload;
        const bool typed = f.number == 4 || f.number == 5 || f.number == 7 || f.number == 10 || f.number == 11;
        if (typed && m.pieces < 64) m.piece[m.pieces++] = f;
    }
    return m;
}

static inline char field_letter(int number) {
    return number == 4 ? 'f' : number == 5 ? 'i' : number == 7 ? 'l' : number == 10 ? 'd' : 'u';
}

/* Fills the tensor from the message. False: it is no tensor, or its type is not compared here. */
static inline bool fill_tensor(const message_data *m, size_t limit) {
    tensor *t = m->t;
    if (t->type < 1 || t->type >= TYPES || !types[t->type].dtype.bits || t->view.ndim > 12) return false;
    const size_t element = bytes_of(1, types[t->type].dtype.bits); /* of what is stored at once */
    for (int d = 0; d < t->view.ndim && t->count <= limit; d++) t->count *= (size_t)t->shape[d];
    if (t->count > limit) return false;
    t->data = data_new((t->count + 1) * element);
    const size_t raw = (size_t)(m->raw.end - m->raw.at);
    if (m->raw.at && raw == bytes_of(t->count, types[t->type].dtype.bits)) memcpy(t->data, m->raw.at, raw);
    size_t filled = 0;
    for (size_t i = 0; i < m->pieces && !m->raw.at; i++) {
        const data_field *f = &m->piece[i];
        if (field_letter(f->number) != types[t->type].field) continue;
        if (f->wire != 2) append(t, &filled, f->value, element);
        for (cursor p = f->payload; f->wire == 2 && p.at < p.end;) {
            uint64_t value = 0;
            if (f->number == 4)
                memcpy(&value, p.at, 4), p.at += 4;
            else if (f->number == 10)
                memcpy(&value, p.at, 8), p.at += 8;
            else
                value = varint(&p);
            append(t, &filled, value, element);
        }
    }
    t->view.data = t->data;
    t->view.device = (DLDevice){kDLCPU, 0};
    t->view.dtype = types[t->type].dtype;
    t->view.shape = t->shape;
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static inline bool read_tensor_value(cursor c, dlc_onnx_value *to) {
    const message_data m = read_fields(c);
    if (m.t->type == 8) {
        dlc_onnx_string *string = data_new((m.strings + 1) * sizeof *string);
        for (size_t i = 0; i < m.strings; i++)
            string[i] = (dlc_onnx_string){(const char *)m.string[i].at, (size_t)(m.string[i].end - m.string[i].at)};
        *to = (dlc_onnx_value){.kind = DLC_ONNX_STRINGS, .rank = m.t->view.ndim, .dims = m.t->shape, .strings = string};
        return true;
    }
    *to = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = &m.t->view};
    return fill_tensor(&m, 16 * (size_t)(c.end - c.at) + 64);
}

static inline bool read_value(cursor c, const char *type, dlc_onnx_value *to);

/* type: of the elements, as fields of a SequenceProto have them. */
static inline bool read_sequence(cursor c, const char *type, dlc_onnx_value *to) {
    dlc_onnx_value *element = data_new(((size_t)(c.end - c.at) / 2 + 1) * sizeof *element);
    size_t count = 0;
    while (c.at < c.end) {
        const data_field f = next_field(&c);
        if (f.number >= 3 && f.number <= 7 && !read_value(f.payload, type, &element[count++])) return false;
    }
    *to = (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = count, .elements = element};
    return true;
}

/* Reads a value of a type in ONNX's notation. False: this program does not read such types. */
static inline bool read_value(cursor c, const char *type, dlc_onnx_value *to) {
    if (strncmp(type, "tensor(", 7) == 0) return read_tensor_value(c, to);
    if (strncmp(type, "seq(", 4) == 0) return read_sequence(c, type + 4, to);
    if (strncmp(type, "optional(", 9) != 0) return false;
    *to = (dlc_onnx_value){.kind = DLC_ONNX_NONE};
    while (c.at < c.end) {
        const data_field f = next_field(&c);
        if (f.number >= 3 && f.number <= 7) return read_value(f.payload, type + 9, to);
    }
    return true;
}

static inline bool read_value_file(const char *path, const char *type, dlc_onnx_value *to) {
    const file_bytes file = read_file(path);
    return file.data && read_value((cursor){file.data, file.data + file.size}, type, to);
}

#endif
