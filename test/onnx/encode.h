/* Messages of Protocol Buffers, written field by field for tests, right or wrong. */
#ifndef TEST_ONNX_ENCODE_H
#define TEST_ONNX_ENCODE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct message {
    unsigned char *data;
    size_t size, room;
} message;

static inline void add_bytes(message *m, const void *bytes, size_t size) {
    if (m->size + size > m->room) m->data = realloc(m->data, m->room = 2 * (m->size + size) + 64);
    if (size) memcpy(m->data + m->size, bytes, size);
    m->size += size;
}

static inline void add_varint(message *m, uint64_t value) {
    do {
        const unsigned char byte = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        add_bytes(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static inline void add_tag(message *m, unsigned field, unsigned wire) {
    add_varint(m, (uint64_t)field << 3 | wire);
}

static inline void add_int(message *m, unsigned field, int64_t value) {
    add_tag(m, field, 0);
    add_varint(m, (uint64_t)value);
}

static inline void add_float(message *m, unsigned field, float value) {
    add_tag(m, field, 5);
    add_bytes(m, &value, 4);
}

static inline void add_data(message *m, unsigned field, const void *bytes, size_t size) {
    add_tag(m, field, 2);
    add_varint(m, size);
    add_bytes(m, bytes, size);
}

static inline void add_text(message *m, unsigned field, const char *text) {
    add_data(m, field, text, strlen(text));
}

/* Adds `part` as a field and frees it. */
static inline void add_message(message *m, unsigned field, message part) {
    add_data(m, field, part.data, part.size);
    free(part.data);
}

/* ---- parts of ONNX models ------------------------------------------------------------------------------------------- */

static inline message tensor_of(const char *name, int type, int rank, const int64_t *dims) {
    message t = {0};
    for (int i = 0; i < rank; i++) add_int(&t, 1, dims[i]);
    add_int(&t, 2, type);
    if (name) add_text(&t, 8, name);
    return t;
}

static inline message value_of(const char *name, int type, const char *dimension) {
    message v = {0}, t = {0}, tensor_type = {0}, shape = {0}, dim = {0};
    add_text(&v, 1, name);
    add_text(&dim, 2, dimension);
    add_message(&shape, 1, dim);
    add_int(&tensor_type, 1, type);
    add_message(&tensor_type, 2, shape);
    add_message(&t, 1, tensor_type);
    add_message(&v, 2, t);
    return v;
}

/* A value whose dimensions are words: numbers, names, "*" for none of both; "-": no shape at all. */
static inline message port_of(const char *name, int type, const char *dims) {
    message v = {0}, t = {0}, declared = {0}, shape = {0};
    char text[64], *rest = text;
    snprintf(text, sizeof text, "%s", dims);
    for (char *word; (word = strtok_r(rest, " ", &rest)) && strcmp(word, "-") != 0;) {
        message dim = {0};
        if (*word >= '0' && *word <= '9')
            add_int(&dim, 1, strtoll(word, NULL, 10));
        else if (*word != '*')
            add_text(&dim, 2, word);
        add_message(&shape, 1, dim);
    }
    add_text(&v, 1, name);
    add_int(&declared, 1, type);
    if (strcmp(dims, "-") != 0) add_message(&declared, 2, shape);
    add_message(&t, 1, declared);
    add_message(&v, 2, t);
    return v;
}

static inline message node_of(const char *operator, const char * input, const char *output) {
    message n = {0};
    add_text(&n, 1, input);
    add_text(&n, 2, output);
    add_text(&n, 4, operator);
    return n;
}

/* OPERATOR OUTPUT INPUT... */
static inline message node_line(const char *line) {
    message node = {0};
    char text[128], *rest = text;
    snprintf(text, sizeof text, "%s", line);
    const char *operator= strtok_r(rest, " ", &rest), *output = strtok_r(rest, " ", &rest);
    for (char *input; (input = strtok_r(rest, " ", &rest));) add_text(&node, 1, input);
    add_text(&node, 2, output);
    add_text(&node, 4, operator);
    return node;
}

/* A graph without nodes. */
static inline message started(void) {
    message g = {0};
    add_text(&g, 2, "main");
    return g;
}

/* A graph of that node, x -> y; frees it. */
static inline message graph_of(message node) {
    message g = {0};
    add_message(&g, 1, node);
    add_text(&g, 2, "main");
    add_message(&g, 11, value_of("x", 1, "n"));
    add_message(&g, 12, value_of("y", 1, "n"));
    return g;
}

static inline message model_of(message g) {
    message m = {0}, opset = {0};
    add_int(&m, 1, 8);
    add_text(&m, 2, "test");
    add_message(&m, 7, g);
    add_int(&opset, 2, 17);
    add_message(&m, 8, opset);
    return m;
}

#endif
