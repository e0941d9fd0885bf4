/* The writer: a model in Protocol Buffers' wire format (protobuf.dev, "Encoding"). The length of a message precedes it, so each message is
 * first measured, then written, by the same function. */
#include "graph/onnx/write.h"

/* sink NULL: only counts. */
typedef struct writer {
    const onnx_sink *sink;
    uint64_t size;
    bool failed;
    const onnx_out_model *model;
} writer;

static void put(writer *w, const void *bytes, size_t size) {
    w->size += size;
    if (w->sink && size && !w->failed) w->failed = !w->sink->put(w->sink->user, bytes, size);
}

static void put_varint(writer *w, uint64_t value) {
    uint8_t bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7) bytes[count++] = (uint8_t)(value | 0x80);
    bytes[count++] = (uint8_t)value;
    put(w, bytes, count);
}

enum { VARINT = 0, LENGTH = 2, FIXED32 = 5 };

static void put_tag(writer *w, uint32_t field, uint32_t wire) {
    put_varint(w, (uint64_t)field << 3 | wire);
}
static void put_int(writer *w, uint32_t field, int64_t value) {
    put_tag(w, field, VARINT);
    put_varint(w, (uint64_t)value);
}
static void put_bytes(writer *w, uint32_t field, const void *bytes, size_t size) {
    put_tag(w, field, LENGTH);
    put_varint(w, size);
    put(w, bytes, size);
}
static void put_text(writer *w, uint32_t field, const char *text) {
    put_bytes(w, field, text, strlen(text));
}

/* The file's floats and raw data are little endian. */
static void put_number(writer *w, float number) {
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(bits >> 8 * i);
    put(w, bytes, sizeof bytes);
}

typedef void put_fields(writer *w, const void *message);

static uint64_t size_of(const writer *w, put_fields *fields, const void *message) {
    writer counting = {.model = w->model};
    fields(&counting, message);
    return counting.size;
}

static void put_message(writer *w, uint32_t field, put_fields *fields, const void *message) {
    const uint64_t size = size_of(w, fields, message);
    put_tag(w, field, LENGTH);
    put_varint(w, size);
    if (w->sink)
        fields(w, message);
    else
        w->size += size;
}

/* ---- messages: the numbers are those of onnx.proto ------------------------------------------------------------------- */

static void put_dim(writer *w, const void *message) {
    const onnx_out_dim *dim = message;
    if (dim->symbol)
        put_text(w, 2, dim->symbol);
    else
        put_int(w, 1, dim->value);
}

static void put_shape(writer *w, const void *message) {
    const onnx_out_value *value = message;
    for (int d = 0; d < value->rank; d++) put_message(w, 1, put_dim, &value->dim[d]);
}

static void put_tensor_type(writer *w, const void *message) {
    const onnx_out_value *value = message;
    put_int(w, 1, value->element);
    put_message(w, 2, put_shape, value);
}

static void put_type(writer *w, const void *message) {
    put_message(w, 1, put_tensor_type, message);
}

static void put_value(writer *w, const void *message) {
    const onnx_out_value *value = message;
    put_text(w, 1, value->label->text);
    put_message(w, 2, put_type, value);
}

typedef struct entry {
    const char *key, *text;
    uint64_t number;
} entry;

static void put_entry(writer *w, const void *message) {
    const entry *e = message;
    char digits[24];
    size_t at = sizeof digits;
    put_text(w, 1, e->key);
    if (e->text) {
        put_text(w, 2, e->text);
        return;
    }
    uint64_t rest = e->number;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    put_bytes(w, 2, digits + at, sizeof digits - at);
}

enum { DATA_TYPE = 2, RAW_DATA = 9, FILLING_LEAST = 2, FILLING = ONNX_RAW_ALIGNMENT + 2 * FILLING_LEAST - 1 };

/* Writes `bytes` bytes of filling, at least 2: the element type, repeated. Of a field that occurs repeatedly, readers take the last value. */
static void fill(writer *w, int64_t element, size_t bytes) {
    for (; bytes > 3; bytes -= 2) put_int(w, DATA_TYPE, element);
    put_tag(w, DATA_TYPE, VARINT);
    if (bytes == 3)
        put(w, (const uint8_t[]){(uint8_t)(element | 0x80), 0}, 2); /* two digits of the same number */
    else
        put_varint(w, (uint64_t)element);
}

static size_t varint_size(uint64_t value) {
    size_t count = 1;
    for (; value >= 0x80; value >>= 7) count++;
    return count;
}

/* Writes large raw data at a multiple of the alignment in the file, with filling before and after, together always FILLING bytes, so that
 * the message's size does not depend on its position. */
static void put_aligned(writer *w, const onnx_out_tensor *tensor) {
    const uint64_t at = w->size + FILLING_LEAST + 1 + varint_size(tensor->size);
    const size_t before = FILLING_LEAST + (size_t)((ONNX_RAW_ALIGNMENT - at % ONNX_RAW_ALIGNMENT) % ONNX_RAW_ALIGNMENT);
    fill(w, tensor->element, before);
    put_bytes(w, RAW_DATA, tensor->bytes, tensor->size);
    fill(w, tensor->element, FILLING - before);
}

static void put_tensor(writer *w, const void *message) {
    const onnx_out_tensor *tensor = message;
    for (int d = 0; d < tensor->rank; d++) put_int(w, 1, tensor->dim[d]);
    put_int(w, DATA_TYPE, tensor->element);
    put_text(w, 8, tensor->label->text);
    if (!tensor->external) {
        if (tensor->size >= ONNX_RAW_LARGE)
            put_aligned(w, tensor);
        else
            put_bytes(w, RAW_DATA, tensor->bytes, tensor->size);
        return;
    }
    put_message(w, 13, put_entry, &(entry){"location", w->model->location, 0});
    put_message(w, 13, put_entry, &(entry){"offset", NULL, tensor->offset});
    put_message(w, 13, put_entry, &(entry){"length", NULL, tensor->size});
    put_int(w, 14, 1);
}

static void put_graph(writer *w, const void *message);

static void put_attribute(writer *w, const void *message) {
    const onnx_out_attribute *a = message;
    put_text(w, 1, a->name);
    switch (a->kind) {
    case ONNX_OUT_FLOAT: put_tag(w, 2, FIXED32), put_number(w, a->number); break;
    case ONNX_OUT_INT: put_int(w, 3, a->integer); break;
    case ONNX_OUT_STRING: put_text(w, 4, a->string); break;
    case ONNX_OUT_GRAPH: put_message(w, 6, put_graph, a->graph); break;
    case ONNX_OUT_FLOATS:
        for (int i = 0; i < a->count; i++) put_tag(w, 7, FIXED32), put_number(w, a->floats[i]);
        break;
    case ONNX_OUT_INTS:
        for (int i = 0; i < a->count; i++) put_int(w, 8, a->integers[i]);
        break;
    case ONNX_OUT_STRINGS:
        for (int i = 0; i < a->count; i++) put_text(w, 9, a->strings[i]);
        break;
    }
    put_int(w, 20, a->kind);
}

static void put_node(writer *w, const void *message) {
    const onnx_out_node *node = message;
    for (uint32_t i = 0; i < node->inputs.count; i++)
        put_text(w, 1, node->inputs.data[i] ? node->inputs.data[i]->text : "");
    for (uint32_t i = 0; i < node->outputs.count; i++)
        put_text(w, 2, node->outputs.data[i] ? node->outputs.data[i]->text : "");
    if (node->name) put_text(w, 3, node->name);
    put_text(w, 4, node->op);
    for (uint32_t i = 0; i < node->attributes.count; i++) put_message(w, 5, put_attribute, &node->attributes.data[i]);
}

static void put_graph(writer *w, const void *message) {
    const onnx_out_graph *whole = message;
    for (uint32_t i = 0; i < whole->nodes.count; i++) put_message(w, 1, put_node, whole->nodes.data[i]);
    put_text(w, 2, whole->name);
    for (uint32_t i = 0; i < whole->initializers.count; i++)
        put_message(w, 5, put_tensor, &whole->initializers.data[i]);
    for (uint32_t i = 0; i < whole->inputs.count; i++) put_message(w, 11, put_value, &whole->inputs.data[i]);
    for (uint32_t i = 0; i < whole->outputs.count; i++) put_message(w, 12, put_value, &whole->outputs.data[i]);
}

static void put_opset(writer *w, const void *message) {
    put_text(w, 1, "");
    put_int(w, 2, *(const int *)message);
}

static void put_model(writer *w, const void *message) {
    const onnx_out_model *model = message;
    put_int(w, 1, model->ir_version);
    put_text(w, 2, model->producer);
    put_message(w, 7, put_graph, model->graph);
    put_message(w, 8, put_opset, &model->opset);
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

uint64_t onnx_model_size(const onnx_out_model *model) {
    writer w = {.model = model};
    put_model(&w, model);
    return w.size;
}

bool onnx_write_model(const onnx_out_model *model, const onnx_sink *sink) {
    writer w = {.model = model, .sink = sink};
    put_model(&w, model);
    return !w.failed;
}

static uint64_t aligned(uint64_t offset) {
    return (offset + ONNX_EXTERNAL_ALIGNMENT - 1) / ONNX_EXTERNAL_ALIGNMENT * ONNX_EXTERNAL_ALIGNMENT;
}

uint64_t onnx_place_external(onnx_out_graph *whole, size_t larger_than) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < whole->initializers.count; i++) {
        onnx_out_tensor *tensor = &whole->initializers.data[i];
        if (tensor->size <= larger_than) continue;
        tensor->external = true;
        tensor->offset = aligned(end);
        end = tensor->offset + tensor->size;
    }
    return end;
}

bool onnx_write_external(const onnx_out_graph *whole, const onnx_sink *sink) {
    static const char zeros[ONNX_EXTERNAL_ALIGNMENT];
    uint64_t at = 0;
    for (uint32_t i = 0; i < whole->initializers.count; i++) {
        const onnx_out_tensor *tensor = &whole->initializers.data[i];
        if (!tensor->external) continue;
        if (tensor->offset > at && !sink->put(sink->user, zeros, (size_t)(tensor->offset - at))) return false;
        if (!sink->put(sink->user, tensor->bytes, tensor->size)) return false;
        at = tensor->offset + tensor->size;
    }
    return true;
}
