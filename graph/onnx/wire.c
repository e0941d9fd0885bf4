/* Reading messages. Each is traversed twice: the first pass checks the encoding and counts repeated fields, the second one fills
 * arrays of exactly that size. Nested messages are put on a work list and read later, so that nesting takes no stack. */
#include "graph/onnx/wire.h"

typedef enum wire_type { WIRE_VARINT, WIRE_FIXED64, WIRE_LENGTH, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 } wire_type;

/* The field and message that contain a message, for errors. */
typedef struct wire_place {
    const struct wire_place *outer;
    const onnx_field *field;
    size_t index;
    int depth;
} wire_place;

/* A message to be read. */
typedef struct wire_work {
    const onnx_message *type;
    onnx_bytes bytes;
    char *target;
    /* NULL: the outermost one */
    const wire_place *place;
} wire_work;

typedef struct wire_reader {
    lib_arena *arena;
    onnx_bytes file;
    lib_vec(wire_work) work;
    /* The current message and the position in it. */
    wire_work now;
    const unsigned char *at, *end;
} wire_reader;

/* One field as it stands in the file. */
typedef struct wire_value {
    uint32_t number;
    wire_type type;
    /* WIRE_VARINT and fixed ones: the bits */
    uint64_t bits;
    /* WIRE_LENGTH: the payload */
    onnx_bytes bytes;
    const unsigned char *start;
} wire_value;

static void print_path(lib_text *text, const wire_place *place) {
    const wire_place *chain[ONNX_WIRE_NESTING + 1];
    int count = 0;
    for (; place && count <= ONNX_WIRE_NESTING; place = place->outer) chain[count++] = place;
    for (int i = count - 1; i >= 0; i--) {
        const bool elided = i < count - 8 && i > 8;
        if (elided)
            lib_text_add(text, i == count - 9 ? "..." : "");
        else {
            lib_text_add(text, chain[i]->field->name);
            if (chain[i]->field->repeated) lib_text_format(text, "[%zu]", chain[i]->index);
            lib_text_add(text, i ? "." : "");
        }
    }
}

_Noreturn static void fail(wire_reader *r, const unsigned char *where, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void fail(wire_reader *r, const unsigned char *where, dlc_status status, const char *format, ...) {
    lib_text text;
    va_list arguments;
    va_start(arguments, format);
    lib_text_init(&text, r->arena);
    const unsigned char *first = (const unsigned char *)r->file.data;
    /* Merged messages are in the arena, not in the file. */
    if (where >= first && where <= first + r->file.size)
        lib_text_format(&text, "byte %zu", (size_t)(where - first));
    else
        lib_text_add(&text, "merged message");
    lib_text_format(&text, ", in %s%s", r->now.type->name, r->now.place ? " " : "");
    print_path(&text, r->now.place);
    lib_text_add(&text, ": ");
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    lib_raise(r->arena->scope, status, "%s", text.data);
}

static uint64_t read_varint(wire_reader *r, const char *what) {
    const unsigned char *start = r->at;
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at == r->end) fail(r, start, DLC_PARSE_ERROR, "%s ends in the midst of a number", what);
        const unsigned char byte = *r->at++;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    fail(r, start, DLC_PARSE_ERROR, "a number of more than 64 bits");
}

static uint64_t read_fixed(wire_reader *r, size_t size) {
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < size)
        fail(r, r->at, DLC_PARSE_ERROR, "a number of %zu bytes, of which only %zu are left", size,
             (size_t)(r->end - r->at));
    for (size_t i = 0; i < size; i++) value |= (uint64_t)r->at[i] << (8 * i);
    r->at += size;
    return value;
}

static const char *const wire_names[] = {"a varint",           "8 bytes", "bytes with a length", "a group",
                                         "the end of a group", "4 bytes"};

/* For a message about a field that no ONNX file has: a hint if it is at the first byte, because the file is then no ONNX file; else "". */
static const char *another_file(const wire_reader *r, const wire_value *v) {
    return (const char *)v->start == r->file.data ? ": the file begins as none of ONNX's does" : "";
}

static wire_value read_value(wire_reader *r) {
    wire_value v = {.start = r->at};
    const uint64_t tag = read_varint(r, "the message");
    if (tag >> 3 == 0 || tag >> 3 >= 1u << 29)
        fail(r, v.start, DLC_PARSE_ERROR, "%llu is no field number%s", (unsigned long long)tag >> 3,
             another_file(r, &v));
    v.number = (uint32_t)(tag >> 3);
    v.type = (wire_type)(tag & 7);
    switch (v.type) {
    case WIRE_VARINT: v.bits = read_varint(r, "a field"); return v;
    case WIRE_FIXED64: v.bits = read_fixed(r, 8); return v;
    case WIRE_FIXED32: v.bits = read_fixed(r, 4); return v;
    case WIRE_LENGTH: {
        const uint64_t size = read_varint(r, "a length");
        if (size > (uint64_t)(r->end - r->at))
            fail(r, v.start, DLC_PARSE_ERROR, "field %u wants %llu bytes, of which %zu are left", v.number,
                 (unsigned long long)size, (size_t)(r->end - r->at));
        v.bytes = (onnx_bytes){(const char *)r->at, (size_t)size};
        r->at += size;
        return v;
    }
    default:
        fail(r, v.start, DLC_PARSE_ERROR, "field %u has wire type %d, which ONNX does not use%s", v.number, (int)v.type,
             another_file(r, &v));
    }
}

static int find_field(const onnx_message *type, uint32_t number) {
    int low = 0, high = type->field_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (type->fields[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < type->field_count && type->fields[low].number == number ? low : -1;
}

static wire_type own_wire_type(onnx_kind kind) {
    switch (kind) {
    case ONNX_INT64:
    case ONNX_INT32: return WIRE_VARINT;
    case ONNX_FLOAT: return WIRE_FIXED32;
    case ONNX_DOUBLE: return WIRE_FIXED64;
    default: return WIRE_LENGTH;
    }
}

static size_t element_size(const onnx_field *field) {
    switch (field->kind) {
    case ONNX_INT64: return sizeof(int64_t);
    case ONNX_INT32: return sizeof(int32_t);
    case ONNX_FLOAT: return sizeof(float);
    case ONNX_DOUBLE: return sizeof(double);
    case ONNX_BYTES: return sizeof(onnx_bytes);
    default: return field->message->size;
    }
}

static bool is_packed(const onnx_field *field, const wire_value *v) {
    return field->repeated && v->type == WIRE_LENGTH && own_wire_type(field->kind) != WIRE_LENGTH;
}

/* The number of numbers in a packed field. */
static size_t packed_count(wire_reader *r, const onnx_field *field, const wire_value *v) {
    const size_t fixed = field->kind == ONNX_FLOAT ? 4 : field->kind == ONNX_DOUBLE ? 8 : 0;
    size_t count = 0;
    if (fixed) {
        if (v->bytes.size % fixed)
            fail(r, v->start, DLC_PARSE_ERROR, "field %s has %zu bytes of numbers of %zu bytes", field->name,
                 v->bytes.size, fixed);
        return v->bytes.size / fixed;
    }
    for (size_t i = 0; i < v->bytes.size; i++) count += (unsigned char)v->bytes.data[i] < 128;
    if (v->bytes.size && (unsigned char)v->bytes.data[v->bytes.size - 1] >= 128)
        fail(r, v->start, DLC_PARSE_ERROR, "field %s ends in the midst of a number", field->name);
    return count;
}

/* The first pass' counts for a field, and the second pass' progress. */
typedef struct wire_count {
    /* Occurrences of the field, and how many the second pass has read. */
    size_t pieces, met;
    /* Elements of a repeated field, and how many are stored. */
    size_t count, stored;
    /* For occurrences with a length: their total bytes, and the position of the last one. */
    size_t bytes;
    const char *last;
    /* Destination of elements, or of the concatenated occurrences of a singular message; NULL: used in place in the file. */
    char *data;
} wire_count;

enum { MAX_FIELDS = 24 };

static void store_number(const onnx_field *field, char *to, uint64_t bits) {
    const uint32_t half = (uint32_t)bits;
    const int64_t whole = (int64_t)bits;
    const int32_t cut = (int32_t)half;
    switch (field->kind) {
    case ONNX_INT64: memcpy(to, &whole, sizeof whole); break;
    case ONNX_INT32: memcpy(to, &cut, sizeof cut); break;
    case ONNX_FLOAT: memcpy(to, &half, sizeof half); break;
    default: memcpy(to, &bits, sizeof bits); break;
    }
}

static void store_packed(wire_reader *r, const onnx_field *field, wire_count *c, const wire_value *v) {
    const size_t size = element_size(field);
    if (field->kind == ONNX_FLOAT || field->kind == ONNX_DOUBLE) {
        memcpy(c->data + c->stored * size, v->bytes.data, v->bytes.size);
        c->stored += v->bytes.size / size;
        return;
    }
    const unsigned char *at = r->at, *end = r->end;
    r->at = (const unsigned char *)v->bytes.data;
    r->end = r->at + v->bytes.size;
    while (r->at < r->end) store_number(field, c->data + c->stored++ * size, read_varint(r, field->name));
    r->at = at, r->end = end;
}

static void read_later(wire_reader *r, const onnx_field *field, size_t index, char *target, onnx_bytes bytes) {
    wire_place *place = LIB_NEW(r->arena, wire_place);
    *place = (wire_place){r->now.place, field, index, r->now.place ? r->now.place->depth + 1 : 1};
    if (place->depth > ONNX_WIRE_NESTING)
        fail(r, (const unsigned char *)bytes.data, DLC_BUDGET_EXCEEDED, "more than %d messages inside of each other",
             ONNX_WIRE_NESTING);
    lib_vec_push(r->arena, &r->work, ((wire_work){field->message, bytes, target, place}));
}

/* Puts a nested message on the work list; several occurrences of a singular one are merged by concatenating their bytes. */
static void store_message(wire_reader *r, const onnx_field *field, wire_count *c, const wire_value *v) {
    onnx_bytes bytes = v->bytes;
    if (c->pieces > 1) {
        if (bytes.size) memcpy(c->data + c->stored, bytes.data, bytes.size);
        c->stored += bytes.size;
        if (c->met < c->pieces) return;
        bytes = (onnx_bytes){c->data, c->bytes};
    }
    char *target = lib_arena_take(r->arena, field->message->size);
    memcpy(r->now.target + field->offset, &target, sizeof target);
    read_later(r, field, 0, target, bytes);
}

static void store(wire_reader *r, const onnx_field *field, wire_count *c, const wire_value *v) {
    c->met++;
    if (field->oneof) memcpy(r->now.target + field->oneof, &(int){(int)field->number}, sizeof(int));
    if (is_packed(field, v)) {
        if (c->data) store_packed(r, field, c, v);
        return;
    }
    if (field->kind == ONNX_MESSAGE && !field->repeated) {
        store_message(r, field, c, v);
        return;
    }
    char *to = field->repeated ? c->data + c->stored * element_size(field) : r->now.target + field->offset;
    if (field->kind == ONNX_MESSAGE)
        read_later(r, field, c->stored, to, v->bytes);
    else if (field->kind == ONNX_BYTES)
        memcpy(to, &v->bytes, sizeof v->bytes);
    else
        store_number(field, to, v->bits);
    c->stored++;
}

static void count_fields(wire_reader *r, wire_count *counts, uint32_t *present) {
    const onnx_message *type = r->now.type;
    while (r->at < r->end) {
        const wire_value v = read_value(r);
        const int f = find_field(type, v.number);
        if (f < 0) continue;
        const onnx_field *field = &type->fields[f];
        const bool packed = is_packed(field, &v);
        if (!packed && v.type != own_wire_type(field->kind))
            fail(r, v.start, DLC_PARSE_ERROR, "field %s is %s in place of %s", field->name, wire_names[v.type],
                 wire_names[own_wire_type(field->kind)]);
        *present |= 1u << f;
        counts[f].pieces++;
        counts[f].count += packed ? packed_count(r, field, &v) : 1;
        counts[f].bytes += v.bytes.size;
        counts[f].last = packed ? v.bytes.data : NULL;
    }
}

/* Fixed-size numbers in a single packed field that is aligned in the file are used in place. */
static bool stays_in_file(const onnx_field *field, const wire_count *c) {
    return (field->kind == ONNX_FLOAT || field->kind == ONNX_DOUBLE) && c->pieces == 1 && c->last &&
           (uintptr_t)c->last % element_size(field) == 0;
}

static void make_arrays(wire_reader *r, wire_count *counts) {
    const onnx_message *type = r->now.type;
    for (int f = 0; f < type->field_count; f++) {
        const onnx_field *field = &type->fields[f];
        wire_count *c = &counts[f];
        if (!field->repeated) {
            if (field->kind == ONNX_MESSAGE && c->pieces > 1) c->data = lib_arena_array(r->arena, c->bytes + 1, 1);
            continue;
        }
        if (!c->count) continue;
        if (!stays_in_file(field, c)) c->data = lib_arena_array(r->arena, c->count, element_size(field));
        const ONNX_LIST(void) list = {c->data ? c->data : c->last, c->count};
        memcpy(r->now.target + field->offset, &list, sizeof list);
    }
}

static void read_message(wire_reader *r) {
    const onnx_message *type = r->now.type;
    wire_count counts[MAX_FIELDS] = {{0}};
    uint32_t present = 0;
    const unsigned char *start = (const unsigned char *)r->now.bytes.data, *end = start + r->now.bytes.size;
    r->at = start, r->end = end;
    count_fields(r, counts, &present);
    memcpy(r->now.target, &present, sizeof present);
    make_arrays(r, counts);
    r->at = start, r->end = end;
    while (r->at < r->end) {
        const wire_value v = read_value(r);
        const int f = find_field(type, v.number);
        if (f >= 0) store(r, &type->fields[f], &counts[f], &v);
    }
}

/* The work list is a stack. Reversing it makes messages be read in file order, so that the first error in the file is reported. */
static void reverse(wire_work *work, uint32_t count) {
    for (uint32_t i = 0; i < count / 2; i++) {
        const wire_work swapped = work[i];
        work[i] = work[count - 1 - i];
        work[count - 1 - i] = swapped;
    }
}

void *onnx_wire_read(lib_arena *arena, const onnx_message *type, onnx_bytes bytes) {
    wire_reader r = {.arena = arena, .file = bytes};
    void *result = lib_arena_take(arena, type->size);
    lib_vec_push(arena, &r.work, ((wire_work){type, bytes, result, NULL}));
    while (r.work.count) {
        const uint32_t first = --r.work.count;
        r.now = r.work.data[first];
        read_message(&r);
        reverse(r.work.data + first, r.work.count - first);
    }
    return result;
}
