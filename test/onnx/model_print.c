#include "onnx/model_print.h"

#include <zlib.h>

/* "..." with \xNN for all but printable ASCII, for '"' and for '\'. */
static void quote(lib_text *t, onnx_bytes bytes) {
    lib_text_add(t, " \"");
    for (size_t i = 0; i < bytes.size; i++) {
        const unsigned char c = (unsigned char)bytes.data[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\')
            lib_text_format(t, "\\x%02x", c);
        else
            lib_text_add_bytes(t, (const char *)&c, 1);
    }
    lib_text_add(t, "\"");
}

static void print_names(lib_text *t, const onnx_names *names) {
    for (size_t i = 0; i < names->count; i++) quote(t, names->data[i]);
}

static void print_numbers(lib_text *t, const onnx_int64s *numbers) {
    for (size_t i = 0; i < numbers->count; i++) lib_text_format(t, " %lld", (long long)numbers->data[i]);
}

static void print_entries(lib_text *t, const char *what, const onnx_entries *entries) {
    for (size_t i = 0; i < entries->count; i++) {
        lib_text_add(t, what);
        quote(t, entries->data[i].key);
        quote(t, entries->data[i].value);
        lib_text_add(t, "\n");
    }
}

static uLong checksum(const onnx_tensor *tensor, onnx_data data) {
    uLong sum = crc32(0, NULL, 0);
    if (tensor->data_type != ONNX_STRING) return crc32(sum, (const Bytef *)data.bytes.data, (uInt)data.bytes.size);
    for (size_t i = 0; i < tensor->string_data.count; i++) {
        const uint64_t size = tensor->string_data.data[i].size;
        sum = crc32(sum, (const Bytef *)&size, sizeof size);
        sum = crc32(sum, (const Bytef *)tensor->string_data.data[i].data, (uInt)size);
    }
    return sum;
}

void print_tensor(lib_text *t, const onnx_tensor *tensor) {
    const onnx_data data = onnx_tensor_data(t->arena, tensor);
    lib_text_add(t, "tensor");
    quote(t, tensor->name);
    lib_text_format(t, " %d [", tensor->data_type);
    print_numbers(t, &tensor->dims);
    lib_text_format(t, " ] %lld %08lx\n", (long long)data.count, data.count ? checksum(tensor, data) : 0);
    print_entries(t, "external", &tensor->external_data);
    print_entries(t, "metadata", &tensor->metadata);
}

static void print_sparse(lib_text *t, const onnx_sparse *sparse) {
    lib_text_add(t, "sparse [");
    print_numbers(t, &sparse->dims);
    lib_text_add(t, " ]\n");
    print_tensor(t, sparse->values);
    print_tensor(t, sparse->indices);
}

static void print_tensor_type(lib_text *t, const char *what, const onnx_tensor_type *type) {
    lib_text_format(t, " %s %d", what, type->element);
    if (!type->shape) return;
    lib_text_add(t, " [");
    for (size_t i = 0; i < type->shape->dims.count; i++) {
        const onnx_dimension *d = &type->shape->dims.data[i];
        if (d->which == 1)
            lib_text_format(t, " %lld", (long long)d->value);
        else if (d->which == 2)
            quote(t, d->parameter);
        else
            lib_text_add(t, " ?");
        if (d->denotation.size) quote(t, d->denotation);
    }
    lib_text_add(t, " ]");
}

static void print_type(lib_text *t, const onnx_type *type) {
    if (!type) {
        lib_text_add(t, " none");
        return;
    }
    switch ((onnx_type_kind)type->which) {
    case ONNX_TYPE_TENSOR: print_tensor_type(t, "tensor", type->tensor); break;
    case ONNX_TYPE_SPARSE: print_tensor_type(t, "sparse", type->sparse); break;
    case ONNX_TYPE_SEQUENCE: lib_text_add(t, " sequence"), print_type(t, type->sequence->element); break;
    case ONNX_TYPE_OPTIONAL: lib_text_add(t, " optional"), print_type(t, type->optional->element); break;
    case ONNX_TYPE_MAP: lib_text_format(t, " map %d", type->map->key), print_type(t, type->map->value); break;
    default: lib_text_add(t, " none"); break;
    }
    if (type->denotation.size) quote(t, type->denotation);
}

static void print_values(lib_text *t, const char *what, const onnx_value_info *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        lib_text_add(t, what);
        quote(t, values[i].name);
        print_type(t, values[i].type);
        lib_text_add(t, "\n");
        print_entries(t, "metadata", &values[i].metadata);
    }
}

static void print_graph(lib_text *t, const onnx_graph *graph);

static void print_float(lib_text *t, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    lib_text_format(t, " %08x", bits);
}

static void print_attribute(lib_text *t, const onnx_attribute *a) {
    const onnx_attribute_type type = onnx_attribute_type_of(a);
    lib_text_add(t, "attribute");
    quote(t, a->name);
    lib_text_format(t, " %d", (int)type);
    if (a->reference.size) {
        lib_text_add(t, " of");
        quote(t, a->reference);
        lib_text_add(t, "\n");
        return;
    }
    if (type == ONNX_ATTRIBUTE_FLOAT) print_float(t, a->f);
    if (type == ONNX_ATTRIBUTE_INT) lib_text_format(t, " %lld", (long long)a->i);
    if (type == ONNX_ATTRIBUTE_STRING) quote(t, a->s);
    for (size_t i = 0; i < a->floats.count; i++) print_float(t, a->floats.data[i]);
    print_numbers(t, &a->ints);
    print_names(t, &a->strings);
    if (a->tp) print_type(t, a->tp);
    for (size_t i = 0; i < a->types.count; i++) print_type(t, &a->types.data[i]);
    lib_text_add(t, "\n");
    if (a->t) print_tensor(t, a->t);
    for (size_t i = 0; i < a->tensors.count; i++) print_tensor(t, &a->tensors.data[i]);
    if (a->sparse) print_sparse(t, a->sparse);
    for (size_t i = 0; i < a->sparses.count; i++) print_sparse(t, &a->sparses.data[i]);
    if (a->g) print_graph(t, a->g);
    for (size_t i = 0; i < a->graphs.count; i++) print_graph(t, &a->graphs.data[i]);
}

static void print_nodes(lib_text *t, const onnx_node *nodes, size_t count) {
    for (size_t n = 0; n < count; n++) {
        lib_text_add(t, "node");
        quote(t, nodes[n].domain);
        quote(t, nodes[n].operator);
        quote(t, nodes[n].overload);
        quote(t, nodes[n].name);
        lib_text_add(t, " :");
        print_names(t, &nodes[n].inputs);
        lib_text_add(t, " ->");
        print_names(t, &nodes[n].outputs);
        lib_text_add(t, "\n");
        for (size_t i = 0; i < nodes[n].attributes.count; i++) print_attribute(t, &nodes[n].attributes.data[i]);
        print_entries(t, "metadata", &nodes[n].metadata);
    }
}

/* Graphs are at most ONNX_GRAPH_NESTING deep. */
static void print_graph(lib_text *t, const onnx_graph *graph) {
    lib_text_add(t, "graph");
    quote(t, graph->name);
    lib_text_add(t, "\n");
    print_values(t, "input", graph->inputs.data, graph->inputs.count);
    print_values(t, "output", graph->outputs.data, graph->outputs.count);
    print_values(t, "value", graph->values.data, graph->values.count);
    for (size_t i = 0; i < graph->initializers.count; i++) print_tensor(t, &graph->initializers.data[i]);
    for (size_t i = 0; i < graph->sparse_initializers.count; i++) print_sparse(t, &graph->sparse_initializers.data[i]);
    print_nodes(t, graph->nodes.data, graph->nodes.count);
    for (size_t i = 0; i < graph->annotations.count; i++) {
        lib_text_add(t, "annotation");
        quote(t, graph->annotations.data[i].tensor);
        lib_text_add(t, "\n");
        print_entries(t, "parameter", &graph->annotations.data[i].parameters);
    }
    print_entries(t, "metadata", &graph->metadata);
    lib_text_add(t, "end\n");
}

static void print_opsets(lib_text *t, const onnx_opset *opsets, size_t count) {
    for (size_t i = 0; i < count; i++) {
        lib_text_add(t, "opset");
        quote(t, opsets[i].domain);
        lib_text_format(t, " %lld\n", (long long)opsets[i].version);
    }
}

void print_model(lib_text *t, const onnx_model *model) {
    lib_text_format(t, "model %lld %lld", (long long)model->ir_version, (long long)model->model_version);
    quote(t, model->producer_name);
    quote(t, model->producer_version);
    quote(t, model->domain);
    lib_text_add(t, "\n");
    print_opsets(t, model->opsets.data, model->opsets.count);
    print_entries(t, "metadata", &model->metadata);
    print_graph(t, model->graph);
    for (size_t i = 0; i < model->functions.count; i++) {
        const onnx_function *f = &model->functions.data[i];
        lib_text_add(t, "function");
        quote(t, f->domain);
        quote(t, f->name);
        quote(t, f->overload);
        lib_text_add(t, " :");
        print_names(t, &f->inputs);
        lib_text_add(t, " ->");
        print_names(t, &f->outputs);
        lib_text_add(t, " with");
        print_names(t, &f->attributes);
        lib_text_add(t, "\n");
        print_opsets(t, f->opsets.data, f->opsets.count);
        for (size_t k = 0; k < f->attribute_defaults.count; k++) print_attribute(t, &f->attribute_defaults.data[k]);
        print_values(t, "value", f->values.data, f->values.count);
        print_nodes(t, f->nodes.data, f->nodes.count);
        print_entries(t, "metadata", &f->metadata);
        lib_text_add(t, "end\n");
    }
    for (size_t i = 0; i < model->trainings.count; i++) {
        lib_text_add(t, "training\n");
        if (model->trainings.data[i].initialization) print_graph(t, model->trainings.data[i].initialization);
        if (model->trainings.data[i].algorithm) print_graph(t, model->trainings.data[i].algorithm);
        print_entries(t, "initialize", &model->trainings.data[i].initialization_bindings);
        print_entries(t, "update", &model->trainings.data[i].update_bindings);
    }
}
