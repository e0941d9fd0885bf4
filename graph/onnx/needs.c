/* What an import that failed would have to know: the small inputs on whose elements the node depends that could not be imported. */
#include "graph/onnx/control.h"

typedef struct trace {
    onnx_import *im;
    const onnx_graph *main;
    /* Names still to be followed. */
    lib_vec(onnx_bytes) names;
    /* Name -> its maker: a node of the main graph, for its results, or, numbered after the nodes, an input. */
    lib_map makers;
    bool *seen;
} trace;

static uint64_t hash_of(onnx_bytes name) {
    return lib_hash_name(name.data, name.size);
}

static void push(trace *t, onnx_bytes name) {
    if (name.size) lib_vec_push(t->im->g->arena, &t->names, name);
}

/* Adds the names that the node and graphs nested in it read. Names defined within nested graphs have no maker, and are ignored later. */
static void push_reads(trace *t, const onnx_node *node) {
    for (size_t i = 0; i < node->inputs.count; i++) push(t, node->inputs.data[i]);
    for (size_t a = 0; a < node->attributes.count; a++) {
        const onnx_graph *inner = node->attributes.data[a].g;
        for (size_t n = 0; inner && n < inner->nodes.count; n++) push_reads(t, &inner->nodes.data[n]);
    }
}

/* The type of the tensors in values of that type; NULL: there are none, or they are in maps. */
static const onnx_tensor_type *tensor_in(const onnx_type *type) {
    while (type && (type->which == ONNX_TYPE_SEQUENCE || type->which == ONNX_TYPE_OPTIONAL))
        type = type->which == ONNX_TYPE_SEQUENCE ? type->sequence->element : type->optional->element;
    return type && type->which == ONNX_TYPE_TENSOR ? type->tensor : NULL;
}

/* May the input's elements be asked for: are they few, as far as the file declares its shape, and of a type that shapes are computed from? The
 * runner checks the actual number. */
static bool is_small(const onnx_value_info *info) {
    const onnx_tensor_type *type = tensor_in(info->type);
    if (!type || !type->shape || type->shape->dims.count > 1) return false;
    const onnx_dimension *dim = type->shape->dims.count ? &type->shape->dims.data[0] : NULL;
    const int64_t count = dim && dim->which == 1 && dim->value > 0 ? dim->value : 1;
    const onnx_element *element = onnx_element_of(type->element);
    if (!element || element->dtype < 0 || element->bits < 8) return false;
    return count <= (lib_dtype_is_float((dlc_dtype)element->dtype) ? ONNX_NEEDED_FLOATS_MAX : ONNX_NEEDED_MAX);
}

static void follow(trace *t, onnx_bytes name, onnx_needs *needs) {
    const uint64_t hash = hash_of(name);
    for (uint32_t at = lib_map_first(&t->makers, hash); at != LIB_MAP_END; at = lib_map_next(&t->makers, hash, at)) {
        const size_t maker = t->makers.slots[at].value;
        if (t->seen[maker]) continue;
        t->seen[maker] = true;
        if (maker < t->main->nodes.count) {
            push_reads(t, &t->main->nodes.data[maker]);
        } else {
            const size_t input = maker - t->main->nodes.count;
            if (onnx_same(t->main->inputs.data[input].name, name) && is_small(&t->main->inputs.data[input]))
                needs->content[input] = true;
        }
    }
}

void onnx_find_needs(onnx_import *im, const onnx_node *node, onnx_needs *needs) {
    lib_arena *arena = im->g->arena;
    trace t = {.im = im, .main = im->model->graph};
    const size_t nodes = t.main->nodes.count, inputs = t.main->inputs.count;
    t.seen = LIB_NEW_ARRAY(arena, bool, nodes + inputs + 1);
    for (size_t n = 0; n < nodes; n++)
        for (size_t i = 0; i < t.main->nodes.data[n].outputs.count; i++)
            if (t.main->nodes.data[n].outputs.data[i].size)
                lib_map_insert(arena, &t.makers, hash_of(t.main->nodes.data[n].outputs.data[i]), (uint32_t)n);
    for (size_t i = 0; i < inputs; i++)
        lib_map_insert(arena, &t.makers, hash_of(t.main->inputs.data[i].name), (uint32_t)(nodes + i));
    needs->node = true;
    push_reads(&t, node);
    while (t.names.count) follow(&t, t.names.data[--t.names.count], needs);
}
