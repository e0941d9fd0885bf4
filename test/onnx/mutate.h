/* Mutations of a model. Its bytes are taken as nested messages of Protocol Buffers, whatever their types: fields are dropped, doubled,
 * moved, given the contents of others, or changed, and the lengths of the messages around them stay right. Some mutations change
 * bytes without regard to messages. */
#ifndef TEST_ONNX_MUTATE_H
#define TEST_ONNX_MUTATE_H

#include "onnx/encode.h"
#include "random.h"

#include <stdbool.h>

enum { MUTATE_FIELDS = 1 << 16 };

/* A field from its tag at `at`; a length, if it has one, at `length`; its contents are body..end. */
typedef struct mutate_field {
    size_t at, length, body, end;
    unsigned number, wire;
    /* The field whose contents it is part of; -1: the whole. */
    int parent;
} mutate_field;

typedef struct mutate_fields {
    mutate_field field[MUTATE_FIELDS];
    int count;
} mutate_fields;

static inline size_t mutate_below(uint64_t *state, size_t n) {
    return n ? test_random(state) % n : 0;
}

/* ---- fields */

static inline bool read_varint(const message *m, size_t *at, size_t end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = m->data[(*at)++];
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* The field at `at`, within `end`. */
static inline bool read_field(const message *m, size_t at, size_t end, mutate_field *f) {
    uint64_t tag, size = 0;
    f->at = at;
    if (!read_varint(m, &at, end, &tag) || tag >> 3 == 0 || tag >> 3 > 1 << 20) return false;
    f->number = (unsigned)(tag >> 3), f->wire = tag & 7, f->length = f->body = at;
    switch (f->wire) {
    case 0:
        if (!read_varint(m, &at, end, &size)) return false;
        f->end = at;
        return true;
    case 1: size = 8; break;
    case 2:
        if (!read_varint(m, &at, end, &size)) return false;
        f->body = at;
        break;
    case 5: size = 4; break;
    default: return false;
    }
    if (size > end - f->body) return false;
    f->end = f->body + size;
    return true;
}

/* The fields from..end as children of `parent`; none if the bytes are no message. */
static inline void list_message(mutate_fields *f, const message *m, size_t from, size_t end, int parent) {
    const int first = f->count;
    while (from < end && f->count < MUTATE_FIELDS) {
        mutate_field *next = &f->field[f->count];
        if (!read_field(m, from, end, next)) {
            f->count = first;
            return;
        }
        next->parent = parent;
        f->count++;
        from = next->end;
    }
}

static inline void list_fields(mutate_fields *f, const message *m) {
    f->count = 0;
    list_message(f, m, 0, m->size, -1);
    for (int i = 0; i < f->count; i++)
        if (f->field[i].wire == 2) list_message(f, m, f->field[i].body, f->field[i].end, i);
}

/* ---- changes */

static inline void replace_bytes(message *m, size_t from, size_t to, const void *bytes, size_t size) {
    const size_t tail = m->size - to, whole = from + size + tail;
    if (whole > m->room) m->data = realloc(m->data, m->room = 2 * whole);
    memmove(m->data + from + size, m->data + to, tail);
    if (size) memcpy(m->data + from, bytes, size);
    m->size = whole;
}

/* from..to within the contents of `parent` becomes `bytes`; lengths around it follow. `bytes` are not those of m. */
static inline void splice(message *m, const mutate_fields *f, int parent, size_t from, size_t to, const void *bytes,
                          size_t size) {
    size_t grown = size - (to - from); /* modulo 2^64 */
    replace_bytes(m, from, to, bytes, size);
    for (int i = parent; i >= 0; i = f->field[i].parent) {
        const mutate_field *p = &f->field[i];
        message length = {0};
        add_varint(&length, p->end - p->body + grown);
        replace_bytes(m, p->length, p->body, length.data, length.size);
        grown += length.size - (p->body - p->length);
        free(length.data);
    }
}

static inline message copy_of(const message *m, size_t from, size_t to) {
    message copy = {0};
    add_bytes(&copy, m->data + from, to - from);
    return copy;
}

static inline uint64_t mutated_number(uint64_t *random, uint64_t old) {
    static const int64_t numbers[] = {0,   1,   2,     3,         -1,        -2,         4,         7,         8,
                                      11,  13,  16,    27,        64,        127,        128,       255,       256,
                                      999, -64, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 20};
    switch (mutate_below(random, 4)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return old ^ UINT64_C(1) << mutate_below(random, 64);
    default: return (uint64_t)numbers[mutate_below(random, sizeof numbers / sizeof *numbers)];
    }
}

/* Another number, or other bytes. */
static inline void change_contents(message *m, const mutate_fields *f, const mutate_field *field, uint64_t *random) {
    message contents = copy_of(m, field->body, field->end);
    size_t from = field->body;
    if (field->wire == 0) {
        uint64_t old;
        size_t at = field->body;
        read_varint(m, &at, field->end, &old);
        contents.size = 0;
        add_varint(&contents, mutated_number(random, old));
    } else if (contents.size) {
        const size_t at = mutate_below(random, contents.size);
        const size_t kept = field->wire == 2 ? mutate_below(random, 4) : 0;
        if (kept == 1) contents.size = at;
        if (kept == 2) contents.size = 0;
        if (kept == 3) add_bytes(&contents, "0123456789abcdef", 1 + mutate_below(random, 16));
        if (kept == 0) contents.data[at] ^= (unsigned char)(1u << mutate_below(random, 8));
    }
    if (field->wire == 2) { /* with a length of its own */
        message whole = {0};
        add_varint(&whole, contents.size);
        add_bytes(&whole, contents.data, contents.size);
        free(contents.data);
        contents = whole, from = field->length;
    }
    splice(m, f, field->parent, from, field->end, contents.data, contents.size);
    free(contents.data);
}

static inline void change_bytes(message *m, uint64_t *random) {
    const size_t at = mutate_below(random, m->size);
    const unsigned char byte = (unsigned char)test_random(random);
    switch (mutate_below(random, 4)) {
    case 0: m->data[at] = byte; break;
    case 1: m->data[at] ^= (unsigned char)(1u << mutate_below(random, 8)); break;
    case 2: replace_bytes(m, at, at, &byte, 1); break;
    default: replace_bytes(m, at, at + 1, NULL, 0); break;
    }
    if (mutate_below(random, 50) == 0) m->size = at;
}

/* A field of that number and wire type, or any. */
static inline const mutate_field *another(const mutate_fields *f, const mutate_field *like, uint64_t *random) {
    const int first = (int)mutate_below(random, (size_t)f->count);
    for (int i = 0; i < f->count; i++) {
        const mutate_field *other = &f->field[(first + i) % f->count];
        if (other != like && other->number == like->number && other->wire == like->wire) return other;
    }
    return &f->field[first];
}

/* One mutation. */
static inline void mutate(message *m, mutate_fields *f, uint64_t *random) {
    if (!m->size) add_bytes(m, "\x08", 1);
    list_fields(f, m);
    const size_t change = mutate_below(random, 9);
    if (!f->count || change == 0) {
        change_bytes(m, random);
        return;
    }
    const mutate_field *field = &f->field[mutate_below(random, (size_t)f->count)];
    const mutate_field *other = another(f, field, random);
    message own = copy_of(m, field->at, field->end), theirs = copy_of(m, other->at, other->end);
    switch (change) {
    case 1: splice(m, f, field->parent, field->at, field->end, NULL, 0); break;
    case 2: splice(m, f, field->parent, field->at, field->at, own.data, own.size); break;
    case 3: /* moved, or the other one's twin */
    case 4: splice(m, f, field->parent, field->at, field->end, theirs.data, theirs.size); break;
    case 5: splice(m, f, field->parent, field->end, field->end, theirs.data, theirs.size); break;
    default: change_contents(m, f, field, random); break;
    }
    free(own.data), free(theirs.data);
}

#endif
