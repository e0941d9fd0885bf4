/* Mutations of a model by the meaning of its fields: numbers, lists and constants that no exporter writes, in messages that stay readable.
 * Integers of attributes, dimensions and constants become extreme ones; lists get shorter, longer, or name an entry twice; constants get
 * another rank; operands and results are dropped, doubled and exchanged; inputs of the graph become constants. */
#ifndef TEST_ONNX_MUTATE_MODEL_H
#define TEST_ONNX_MUTATE_MODEL_H

#include "onnx/mutate.h"

#include <math.h>

/* What a field is. */
typedef enum mutate_kind {
    KIND_OTHER,
    KIND_MODEL,
    KIND_GRAPH,
    KIND_FUNCTION,
    KIND_NODE,
    KIND_ATTRIBUTE,
    KIND_TENSOR,
    KIND_VALUE,
    KIND_TYPE,
    KIND_TENSOR_TYPE,
    KIND_SHAPE,
    KIND_DIM,
    KIND_OPERAND,
    KIND_INTEGERS,
    KIND_FLOATS,
} mutate_kind;

/* The field of that number in a message of kind `in`. */
static const struct mutate_meaning {
    mutate_kind in;
    unsigned number;
    mutate_kind kind;
} mutate_meanings[] = {
    {KIND_MODEL, 7, KIND_GRAPH},      {KIND_MODEL, 25, KIND_FUNCTION},    {KIND_GRAPH, 1, KIND_NODE},
    {KIND_GRAPH, 5, KIND_TENSOR},     {KIND_GRAPH, 11, KIND_VALUE},       {KIND_FUNCTION, 7, KIND_NODE},
    {KIND_NODE, 1, KIND_OPERAND},     {KIND_NODE, 2, KIND_OPERAND},       {KIND_NODE, 5, KIND_ATTRIBUTE},
    {KIND_ATTRIBUTE, 2, KIND_FLOATS}, {KIND_ATTRIBUTE, 3, KIND_INTEGERS}, {KIND_ATTRIBUTE, 5, KIND_TENSOR},
    {KIND_ATTRIBUTE, 6, KIND_GRAPH},  {KIND_ATTRIBUTE, 7, KIND_FLOATS},   {KIND_ATTRIBUTE, 8, KIND_INTEGERS},
    {KIND_VALUE, 2, KIND_TYPE},       {KIND_TYPE, 1, KIND_TENSOR_TYPE},   {KIND_TENSOR_TYPE, 2, KIND_SHAPE},
    {KIND_SHAPE, 1, KIND_DIM},        {KIND_DIM, 1, KIND_INTEGERS},
};

static inline mutate_kind kind_of(const mutate_fields *f, int field) {
    if (field < 0) return KIND_MODEL;
    const mutate_kind in = kind_of(f, f->field[field].parent);
    for (size_t i = 0; in && i < sizeof mutate_meanings / sizeof *mutate_meanings; i++)
        if (mutate_meanings[i].in == in && mutate_meanings[i].number == f->field[field].number)
            return mutate_meanings[i].kind;
    return KIND_OTHER;
}

static inline int64_t extreme_integer(uint64_t *random) {
    static const int64_t numbers[] = {INT64_MIN,
                                      INT64_MIN + 1,
                                      INT64_MAX,
                                      INT64_MAX - 1,
                                      INT32_MIN,
                                      INT32_MAX,
                                      INT64_C(1) << 62,
                                      UINT32_MAX,
                                      -1,
                                      -2,
                                      -3,
                                      0,
                                      -(INT64_C(1) << 40),
                                      1,
                                      2,
                                      3,
                                      1 << 20,
                                      7,
                                      INT64_C(1) << 32,
                                      -100,
                                      1000000007,
                                      8,
                                      INT64_C(1) << 40};
    return numbers[mutate_below(random, sizeof numbers / sizeof *numbers)];
}

static inline double extreme_number(uint64_t *random) {
    static const double numbers[] = {
        0,          -0.0, 1, -1, 0.5, 1e-30, -1e-30, 1e10, -1e10, 1e30, 3, 1e300, (double)INFINITY, -(double)INFINITY,
        (double)NAN};
    return numbers[mutate_below(random, sizeof numbers / sizeof *numbers)];
}

/* ---- lists of elements ------------------------------------------------------------------------------------------------ */

enum { ELEMENTS_MAX = 96 };

typedef struct elements {
    int64_t number[ELEMENTS_MAX];
    size_t count;
} elements;

/* One entry is changed, doubled, added, taken away, or exchanged with another. */
static inline void change_elements(elements *e, int64_t extreme, uint64_t *random) {
    const size_t at = mutate_below(random, e->count), other = mutate_below(random, e->count);
    const bool longer = e->count < ELEMENTS_MAX;
    switch (mutate_below(random, 7)) {
    case 0:
        if (longer) e->number[e->count++] = extreme;
        return;
    case 1: /* twice, also many times */
        for (size_t n = 1 + mutate_below(random, 3) * 8; e->count && n > 0 && e->count < ELEMENTS_MAX; n--, e->count++)
            e->number[e->count] = e->number[at];
        return;
    case 2: e->count -= e->count > 0; return;
    case 3:
        if (mutate_below(random, 4) == 0) e->count = 0;
        return;
    case 4:
        if (e->count) e->number[at] = e->number[other];
        return;
    default:
        if (e->count) e->number[at] = extreme;
    }
}

/* The varints of a field: one, or a packed list. */
static inline void change_integers(message *m, const mutate_fields *f, const mutate_field *field, uint64_t *random) {
    elements e = {.count = 0};
    message list = {0};
    uint64_t number;
    size_t at = field->body;
    while (at < field->end && e.count < ELEMENTS_MAX && read_varint(m, &at, field->end, &number))
        e.number[e.count++] = (int64_t)number;
    if (field->wire == 0) { /* further entries are fields of their own */
        const bool again = field->number == 8 && mutate_below(random, 2);
        for (size_t n = again ? 1 + mutate_below(random, 3) * 8 : 1; n > 0; n--)
            add_int(&list, field->number, again && mutate_below(random, 2) ? e.number[0] : extreme_integer(random));
        splice(m, f, field->parent, again ? field->end : field->at, field->end, list.data, list.size);
    } else {
        message packed = {0};
        change_elements(&e, extreme_integer(random), random);
        for (size_t i = 0; i < e.count; i++) add_varint(&packed, (uint64_t)e.number[i]);
        add_message(&list, field->number, packed);
        splice(m, f, field->parent, field->at, field->end, list.data, list.size);
    }
    free(list.data);
}

static inline void change_floats(message *m, const mutate_fields *f, const mutate_field *field, uint64_t *random) {
    const float number = (float)extreme_number(random);
    const size_t count = (field->end - field->body) / 4;
    if (count) memcpy(m->data + field->body + 4 * mutate_below(random, count), &number, 4);
    (void)f;
}

/* ---- constants -------------------------------------------------------------------------------------------------------- */

/* Element types by ONNX's numbers: bytes of an element. */
static inline size_t element_bytes(int64_t type) {
    static const unsigned char bytes[] = {
        [1] = 4, [2] = 1, [3] = 1, [4] = 2, [5] = 2, [6] = 4, [7] = 8, [9] = 1, [10] = 2, [11] = 8, [12] = 4, [13] = 8};
    return type > 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static inline bool is_float(int64_t type) {
    return type == 1 || type == 11;
}

/* An extreme element, as its bits. */
static inline int64_t extreme_element(int64_t type, uint64_t *random) {
    const double number = extreme_number(random);
    const float narrow = (float)number;
    int64_t bits = 0;
    if (!is_float(type)) return extreme_integer(random);
    memcpy(&bits, type == 1 ? (const void *)&narrow : &number, element_bytes(type));
    return bits;
}

typedef struct constant {
    int64_t type;
    int rank;
    /* Where the name lies in the model. */
    size_t name, name_end;
    elements elements;
} constant;

/* Reads a small tensor; false: it is none, or its elements are of a type without a plain form. */
static inline bool read_constant(const message *m, const mutate_fields *f, int tensor, constant *c) {
    *c = (constant){.rank = 0};
    for (int i = 0; i < f->count; i++) {
        const mutate_field *part = &f->field[i];
        uint64_t number = 0;
        size_t at = part->body;
        if (part->parent != tensor) continue;
        if (part->number == 1) c->rank++;
        if (part->number == 2 && read_varint(m, &at, part->end, &number)) c->type = (int64_t)number;
        if (part->number == 8) c->name = part->body, c->name_end = part->end;
    }
    const size_t bytes = element_bytes(c->type);
    for (int i = 0; bytes && i < f->count; i++) {
        const mutate_field *part = &f->field[i];
        if (part->parent != tensor) continue;
        const size_t step = part->number == 9 ? bytes : part->number == 4 ? 4 : part->number == 10 ? 8 : 0;
        for (size_t at = part->body; at < part->end && c->elements.count < ELEMENTS_MAX;) {
            uint64_t number = 0;
            if (step && step <= part->end - at)
                memcpy(&number, m->data + at, step), at += step;
            else if ((part->number != 5 && part->number != 7) || !read_varint(m, &at, part->end, &number))
                break;
            c->elements.number[c->elements.count++] = (int64_t)number;
        }
    }
    return bytes != 0;
}

/* The tensor with its elements as raw data, as a list, or, if it was none, mostly of the rank it had. */
static inline message write_constant(const message *m, const constant *c, uint64_t *random) {
    message t = {0}, raw = {0};
    const size_t bytes = element_bytes(c->type);
    const int64_t count = (int64_t)c->elements.count;
    int rank = mutate_below(random, 4) ? c->rank : (int)mutate_below(random, 10);
    if (rank == 0 && count != 1) rank = 1;
    for (int d = 0; d < rank; d++) add_int(&t, 1, d + 1 == rank ? count : 1);
    add_int(&t, 2, c->type);
    add_data(&t, 8, m->data + c->name, c->name_end - c->name);
    for (int64_t i = 0; i < count; i++) add_bytes(&raw, &c->elements.number[i], bytes);
    add_message(&t, 9, raw);
    return t;
}

static inline void change_constant(message *m, const mutate_fields *f, int tensor, uint64_t *random) {
    constant c;
    if (!read_constant(m, f, tensor, &c)) return;
    change_elements(&c.elements, extreme_element(c.type, random), random);
    message whole = {0};
    const mutate_field *field = &f->field[tensor];
    add_message(&whole, field->number, write_constant(m, &c, random));
    splice(m, f, field->parent, field->at, field->end, whole.data, whole.size);
    free(whole.data);
}

/* A constant for an input of the graph: of its name and element type. */
static inline void fix_input(message *m, const mutate_fields *f, int value, uint64_t *random) {
    constant c = {.type = 7, .rank = 1};
    message whole = {0};
    int parent = f->field[value].parent;
    for (int i = 0; i < f->count; i++) {
        const mutate_field *part = &f->field[i];
        uint64_t type;
        size_t at = part->body;
        if (part->parent == value && part->number == 1) c.name = part->body, c.name_end = part->end;
        if (part->number != 1 || part->wire != 0 || part->parent < 0 || kind_of(f, part->parent) != KIND_TENSOR_TYPE)
            continue;
        const int in = f->field[part->parent].parent;
        if (in >= 0 && f->field[in].parent == value && read_varint(m, &at, part->end, &type)) c.type = (int64_t)type;
    }
    if (!element_bytes(c.type)) return;
    for (size_t n = mutate_below(random, 5); n > 0; n--)
        c.elements.number[c.elements.count++] =
            mutate_below(random, 2) ? extreme_element(c.type, random) : (int64_t)mutate_below(random, 4);
    add_message(&whole, 5, write_constant(m, &c, random));
    splice(m, f, parent, f->field[value].at, f->field[value].at, whole.data, whole.size);
    free(whole.data);
}

/* ---- operands and results ---------------------------------------------------------------------------------------------- */

static inline int any_of_kind(const mutate_fields *f, mutate_kind kind, uint64_t *random) {
    const int first = (int)mutate_below(random, (size_t)f->count);
    for (int i = 0; i < f->count; i++)
        if (kind_of(f, (first + i) % f->count) == kind) return (first + i) % f->count;
    return -1;
}

/* An operand or result is omitted, taken away, doubled, or takes the place of another. */
static inline void change_operand(message *m, const mutate_fields *f, const mutate_field *field, uint64_t *random) {
    const int from = any_of_kind(f, KIND_OPERAND, random);
    message name = copy_of(m, f->field[from].body, f->field[from].end), whole = {0};
    const size_t change = mutate_below(random, 5);
    if (change == 0) name.size = 0;
    if (change != 1) add_data(&whole, field->number, name.data, name.size);
    splice(m, f, field->parent, change == 2 ? field->end : field->at, field->end, whole.data, whole.size);
    free(name.data), free(whole.data);
}

/* One mutation, half of them by meaning. */
static inline void mutate_model(message *m, mutate_fields *f, uint64_t *random) {
    static const mutate_kind kinds[] = {KIND_INTEGERS, KIND_INTEGERS, KIND_TENSOR, KIND_TENSOR,
                                        KIND_VALUE,    KIND_OPERAND,  KIND_FLOATS};
    if (mutate_below(random, 2)) {
        mutate(m, f, random);
        return;
    }
    list_fields(f, m);
    if (!f->count) return;
    const mutate_kind kind = kinds[mutate_below(random, sizeof kinds / sizeof *kinds)];
    const int field = any_of_kind(f, kind, random);
    if (field < 0) return;
    switch (kind) {
    case KIND_INTEGERS: change_integers(m, f, &f->field[field], random); break;
    case KIND_FLOATS: change_floats(m, f, &f->field[field], random); break;
    case KIND_TENSOR: change_constant(m, f, field, random); break;
    case KIND_VALUE: fix_input(m, f, field, random); break;
    default: change_operand(m, f, &f->field[field], random); break;
    }
}

#endif
