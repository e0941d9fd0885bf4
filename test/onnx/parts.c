#include "onnx/parts.h"

#include <stdbool.h>

typedef struct span {
    const unsigned char *at, *end;
} span;

/* A field: its bytes with the tag, and of a message or string the payload. */
typedef struct field {
    unsigned number, wire;
    span whole, payload;
} field;

static uint64_t take_varint(span *from) {
    uint64_t value = 0;
    for (int shift = 0; from->at < from->end && shift < 64; shift += 7) {
        value |= (uint64_t)(*from->at & 127) << shift;
        if (*from->at++ < 128) break;
    }
    return value;
}

/* False: there are no more fields. */
static bool take_field(span *rest, field *f) {
    if (rest->at >= rest->end) return false;
    f->whole.at = rest->at;
    const uint64_t tag = take_varint(rest);
    f->number = (unsigned)(tag >> 3), f->wire = (unsigned)(tag & 7);
    uint64_t size = f->wire == 5 ? 4 : f->wire == 1 ? 8 : 0;
    if (f->wire == 0) take_varint(rest);
    if (f->wire == 2) size = take_varint(rest);
    if (size > (uint64_t)(rest->end - rest->at)) size = (uint64_t)(rest->end - rest->at);
    f->payload = (span){rest->at, rest->at + size};
    rest->at = f->whole.end = f->payload.end;
    return true;
}

/* The n-th field of that number; empty: there is none. */
static span part_of(span of, unsigned number, int n) {
    for (field f; take_field(&of, &f);)
        if (f.number == number && f.wire == 2 && n-- == 0) return f.payload;
    return (span){NULL, NULL};
}

static bool same(span a, span b) {
    return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

static span span_of(const void *bytes, size_t size) {
    return (span){bytes, (const unsigned char *)bytes + size};
}

/* onnx.proto's numbers of fields. */
enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, NODE_OPERATOR = 4, NODE_DOMAIN = 7 };
enum { TENSOR_NAME = 8, VALUE_NAME = 1, DIM_VALUE = 1, DIM_PARAMETER = 2 };

void parts_operator(const void *model, size_t size, char *text, size_t room) {
    const span graph = part_of(span_of(model, size), MODEL_GRAPH, 0), node = part_of(graph, GRAPH_NODE, 0);
    *text = 0;
    if (!node.at || part_of(graph, GRAPH_NODE, 1).at) return;
    const span name = part_of(node, NODE_OPERATOR, 0), domain = part_of(node, NODE_DOMAIN, 0);
    const int in = (int)(domain.end - domain.at);
    const bool standard = in == 0 || (in == 7 && memcmp(domain.at, "ai.onnx", 7) == 0);
    snprintf(text, room, "%.*s%s%.*s", standard ? 0 : in, (const char *)domain.at, standard ? "" : ".",
             (int)(name.end - name.at), (const char *)name.at);
}

/* From a model to the sizes of its inputs: graph, input, type, tensor, shape, dimension. */
static const unsigned path_to_sizes[] = {MODEL_GRAPH, GRAPH_INPUT, 2, 1, 2, 1};
enum { SIZES_DEPTH = sizeof path_to_sizes / sizeof path_to_sizes[0] };

static bool is_initializer(span graph, span input) {
    span initializer;
    for (int i = 0; (initializer = part_of(graph, GRAPH_INITIALIZER, i)).at; i++)
        if (same(part_of(initializer, TENSOR_NAME, 0), part_of(input, VALUE_NAME, 0))) return true;
    return false;
}

static message name_size(span dimension, int *freed) {
    message to = {0};
    char name[32];
    for (field f; take_field(&dimension, &f);) {
        if (f.number == DIM_VALUE && f.wire == 0) {
            snprintf(name, sizeof name, "free_%d", (*freed)++);
            add_text(&to, DIM_PARAMETER, name);
        } else
            add_bytes(&to, f.whole.at, (size_t)(f.whole.end - f.whole.at));
    }
    return to;
}

static message free_below(span of, int depth, int *freed) {
    message to = {0};
    if (depth == SIZES_DEPTH) return name_size(of, freed);
    span rest = of;
    for (field f; take_field(&rest, &f);) {
        const bool on_path = f.number == path_to_sizes[depth] && f.wire == 2;
        if (on_path && !(f.number == GRAPH_INPUT && depth == 1 && is_initializer(of, f.payload)))
            add_message(&to, f.number, free_below(f.payload, depth + 1, freed));
        else
            add_bytes(&to, f.whole.at, (size_t)(f.whole.end - f.whole.at));
    }
    return to;
}

message parts_free_sizes(const void *model, size_t size, int *freed) {
    *freed = 0;
    return free_below(span_of(model, size), 0, freed);
}
