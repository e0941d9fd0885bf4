/* The public functions on ONNX models, <dlc/onnx.h>. Reading and importing are in graph/onnx/, which ONNX=no leaves out of the build. */
#include <dlc/onnx.h>

#include "jit/jit.h"

#ifdef DLC_ONNX
#include "graph/onnx/structure.h"
#include "jit/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

dlc_status jit_onnx_fail(dlc_context *context, dlc_status status, const char *call, const char *what) {
    lib_error error;
    lib_fail(&error, status, "%s: %s", call, what);
    return jit_fail(context, &error);
}

const char *jit_onnx_tensor_fault(const DLTensor *tensor, char *text) {
    int64_t count;
    if (!tensor) return "is NULL";
    if (tensor->ndim < 0 || tensor->ndim > DLC_MAX_RANK) {
        snprintf(text, JIT_ONNX_FAULT, "has rank %d, expected 0 to %d", tensor->ndim, DLC_MAX_RANK);
        return text;
    }
    if (tensor->ndim && !tensor->shape) return "has no shape array";
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] < 0) {
            snprintf(text, JIT_ONNX_FAULT, "has size %" PRId64 " along axis %d", tensor->shape[d], d);
            return text;
        }
    if (!lib_tensor_count(tensor, &count)) return "has more elements than memory can hold";
    if (count && !tensor->data) return "has no data";
    return lib_tensor_is_addressable(tensor) ? NULL : "has strides, and elements of less than a byte";
}

void jit_onnx_release(dlc_onnx_model *model) {
    if (atomic_fetch_sub(&model->references, 1) != 1) return;
    for (size_t i = 0; i < model->external.count; i++) jit_mapped_close(&model->external.data[i].file);
    lib_arena_free(&model->file_arena);
    jit_mapped_close(&model->file);
    lib_arena_free(&model->arena);
    jit_onnx_free_hosted(model);
    lib_mutex_destroy(&model->hosted_mutex);
    dlc_context *context = model->context;
    lib_release(&context->allocator, model, sizeof *model, _Alignof(dlc_onnx_model));
    jit_context_release(context);
}

void jit_onnx_keep(dlc_onnx_model *model) {
    atomic_fetch_add(&model->references, 1);
}

static void keep_holder(graph_holder *holder) {
    jit_onnx_keep((dlc_onnx_model *)(void *)holder);
}
static void release_holder(graph_holder *holder) {
    jit_onnx_release((dlc_onnx_model *)(void *)holder);
}

static void let_go_of_pages(graph_holder *holder, const void *bytes, size_t size) {
    const dlc_onnx_model *model = (dlc_onnx_model *)(void *)holder;
    jit_mapped_let_go(&model->file, bytes, size);
    for (size_t i = 0; i < model->external.count; i++) jit_mapped_let_go(&model->external.data[i].file, bytes, size);
}

void dlc_onnx_destroy(dlc_onnx_model *model) {
    lib_call call;
    if (!model) return;
    dlc_context *context = model->context;
    if (!graph_call_to_destroy(context, &call)) return;
    jit_onnx_release(model);
    graph_call_destroyed(context, &call);
}

/* Gets the external data of a location from the host's callback; raises if the callback fails. */
static void ask_host(const dlc_onnx_model *model, jit_mapped *file, const char *location) {
    const void *bytes = NULL;
    size_t size = 0;
    const dlc_status status = model->external_data(model->external_user, location, &bytes, &size);
    if (status != DLC_OK)
        lib_raise(model->file_arena.scope, (int)status < 0 || status > DLC_INTERNAL ? DLC_INVALID_ARGUMENT : status,
                  "options.external does not give %s: %s", location, lib_status_text(status));
    if (!bytes && size)
        lib_raise(model->file_arena.scope, DLC_INVALID_ARGUMENT, "options.external gives %zu bytes at NULL for %s",
                  size, location);
    *file = (jit_mapped){.bytes = bytes, .size = size};
}

static onnx_bytes open_external(void *user, onnx_bytes location) {
    dlc_onnx_model *model = user;
    lib_arena *arena = &model->file_arena;
    const lib_map *map = &model->external_by_location;
    const uint64_t hash = lib_hash_name(location.data, location.size);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at)) {
        const external_file *known = &model->external.data[map->slots[at].value];
        if (known->location.size == location.size && memcmp(known->location.data, location.data, location.size) == 0)
            return (onnx_bytes){(const char *)known->file.bytes, known->file.size};
    }
    lib_vec_push(arena, &model->external, ((external_file){.location = location}));
    jit_mapped *file = &model->external.data[model->external.count - 1].file;
    const char *path = lib_arena_format(arena, "%.*s", (int)location.size, location.data);
    if (model->external_data)
        ask_host(model, file, path);
    else
        jit_mapped_open_beneath(file, arena, model->folder, path, model->read);
    lib_map_insert(arena, &model->external_by_location, hash, (uint32_t)model->external.count - 1);
    model->size += file->size;
    return (onnx_bytes){(const char *)file->bytes, file->size};
}

/* The name of initializer i of a graph, dense ones first, then sparse ones. */
static onnx_bytes initializer_name(const onnx_graph *g, size_t i) {
    const size_t dense = g->initializers.count;
    return i < dense ? g->initializers.data[i].name : g->sparse_initializers.data[i - dense].dense->name;
}

static bool is_initializer(const onnx_graph *g, const lib_map *initializers, onnx_bytes name) {
    const uint64_t hash = lib_hash_name(name.data, name.size);
    for (uint32_t at = lib_map_first(initializers, hash); at != LIB_MAP_END;
         at = lib_map_next(initializers, hash, at)) {
        const onnx_bytes known = initializer_name(g, initializers->slots[at].value);
        if (known.size == name.size && memcmp(known.data, name.data, name.size) == 0) return true;
    }
    return false;
}

static const char *text_of(lib_arena *arena, onnx_bytes text) {
    char *copy = lib_arena_array(arena, text.size + 1, 1);
    if (text.size) memcpy(copy, text.data, text.size);
    return copy;
}

static void add_port(dlc_onnx_model *model, dlc_onnx_side side, const onnx_value_info *info, size_t place) {
    jit_onnx_port *port = &model->ports[side][model->port_count[side]++];
    const onnx_shape *shape = info->type && info->type->which == ONNX_TYPE_TENSOR ? info->type->tensor->shape : NULL;
    *port =
        (jit_onnx_port){.name = text_of(&model->arena, info->name), .type = info->type, .place = place, .state = -1};
    port->type_text = onnx_type_text(&model->arena, info->type);
    for (size_t d = 0; shape && d < shape->dims.count && d < DLC_MAX_RANK; d++)
        if (shape->dims.data[d].which == 2) port->parameter[d] = text_of(&model->arena, shape->dims.data[d].parameter);
}

static dlc_onnx_kind kind_of(const onnx_type *type) {
    switch (type ? type->which : ONNX_TYPE_NONE) {
    case ONNX_TYPE_TENSOR: return type->tensor->element == ONNX_STRING ? DLC_ONNX_STRINGS : DLC_ONNX_TENSOR;
    case ONNX_TYPE_SEQUENCE: return DLC_ONNX_SEQUENCE;
    case ONNX_TYPE_MAP: return DLC_ONNX_MAP;
    default: return DLC_ONNX_NONE;
    }
}

static dlc_onnx_port describe(const jit_onnx_port *p) {
    const onnx_type *type = p->type;
    const bool optional = type && type->which == ONNX_TYPE_OPTIONAL, tensor = type && type->which == ONNX_TYPE_TENSOR;
    const onnx_element *element = tensor ? onnx_element_of(type->tensor->element) : NULL;
    dlc_onnx_port port = {.name = p->name,
                          .kind = kind_of(optional ? type->optional->element : type),
                          .optional = optional,
                          .type = p->type_text,
                          .dtype = element ? element->dtype : -1,
                          .rank = -1,
                          .state = p->state};
    if (!tensor || !type->tensor->shape || type->tensor->shape->dims.count > DLC_MAX_RANK) return port;
    port.rank = (int)type->tensor->shape->dims.count;
    for (int d = 0; d < port.rank; d++) {
        const onnx_dimension *dim = &type->tensor->shape->dims.data[d];
        port.dims[d] = (dlc_dim){dim->which == 1 && dim->value > 0 ? dim->value : -1, p->parameter[d]};
    }
    return port;
}

/* Pairs of prefixes (begins) or suffixes: a state's output and input often have names that differ only in such a pair. */
static const struct {
    bool begins;
    const char *output, *input;
} state_names[] = {
    {true, "present", "past"}, {true, "present", "past_key_values"},
    {false, "_out", "_in"},    {false, "_out", ""},
    {false, "N", ""},          {false, "n", "0"},
    {false, "n", ""},
};
enum { STATE_NAMES = sizeof state_names / sizeof *state_names };

/* The name of the input that belongs to output name `output` by this row of state_names; NULL: the row does not apply. */
static const char *state_name(lib_arena *arena, const char *output, int row) {
    const char *part = state_names[row].output, *input = state_names[row].input;
    const size_t all = strlen(output), own = strlen(part);
    if (all < own || memcmp(state_names[row].begins ? output : output + all - own, part, own) != 0) return NULL;
    return state_names[row].begins ? lib_arena_format(arena, "%s%s", input, output + own)
                                   : lib_arena_format(arena, "%.*s%s", (int)(all - own), output, input);
}

/* Can the output come back as the input? They must have one element type and one rank (or unknown ranks), and differ in size on one axis
 * at most. */
static bool suit_each_other(const dlc_onnx_port *in, const dlc_onnx_port *out) {
    int other = 0;
    if (in->dtype < 0 || in->dtype != out->dtype) return false;
    if (in->rank < 0 || out->rank < 0) return true;
    for (int d = 0; d < in->rank && in->rank == out->rank; d++) {
        const dlc_dim *a = &in->dims[d], *b = &out->dims[d];
        other +=
            a->name && b->name ? strcmp(a->name, b->name) != 0 : a->value >= 0 && b->value >= 0 && a->value != b->value;
    }
    return in->rank == out->rank && other <= 1;
}

static void find_state(dlc_onnx_model *model, const lib_map *inputs, int output, const char *name) {
    jit_onnx_port *out = &model->ports[DLC_ONNX_OUTPUT][output];
    const uint64_t hash = lib_hash_string(name);
    for (uint32_t at = lib_map_first(inputs, hash); at != LIB_MAP_END; at = lib_map_next(inputs, hash, at)) {
        const int input = (int)inputs->slots[at].value;
        jit_onnx_port *in = &model->ports[DLC_ONNX_INPUT][input];
        if (strcmp(in->name, name) != 0) continue;
        const dlc_onnx_port from = describe(in), to = describe(out);
        if (in->state < 0 && suit_each_other(&from, &to)) in->state = output, out->state = input;
        return;
    }
}

static void find_states(dlc_onnx_model *model) {
    lib_map inputs = {0};
    for (int i = 0; i < model->port_count[DLC_ONNX_INPUT]; i++)
        lib_map_insert(&model->arena, &inputs, lib_hash_string(model->ports[DLC_ONNX_INPUT][i].name), (uint32_t)i);
    for (int o = 0; o < model->port_count[DLC_ONNX_OUTPUT]; o++)
        for (int row = 0; row < STATE_NAMES && model->ports[DLC_ONNX_OUTPUT][o].state < 0; row++) {
            const char *name = state_name(&model->arena, model->ports[DLC_ONNX_OUTPUT][o].name, row);
            if (name) find_state(model, &inputs, o, name);
        }
}

static void list_ports(dlc_onnx_model *model) {
    const onnx_graph *g = model->model->graph;
    lib_map initializers = {0};
    for (size_t i = 0; i < g->initializers.count + g->sparse_initializers.count; i++) {
        const onnx_bytes name = initializer_name(g, i);
        if (!is_initializer(g, &initializers, name))
            lib_map_insert(&model->arena, &initializers, lib_hash_name(name.data, name.size), (uint32_t)i);
    }
    model->ports[DLC_ONNX_INPUT] = LIB_NEW_ARRAY(&model->arena, jit_onnx_port, g->inputs.count + 1);
    model->ports[DLC_ONNX_OUTPUT] = LIB_NEW_ARRAY(&model->arena, jit_onnx_port, g->outputs.count + 1);
    for (size_t i = 0; i < g->inputs.count; i++)
        if (!is_initializer(g, &initializers, g->inputs.data[i].name))
            add_port(model, DLC_ONNX_INPUT, &g->inputs.data[i], i);
    for (size_t i = 0; i < g->outputs.count; i++) add_port(model, DLC_ONNX_OUTPUT, &g->outputs.data[i], i);
    find_states(model);
}

static void list_notes(dlc_onnx_model *model) {
    const onnx_entries *entries = &model->model->metadata;
    model->notes = LIB_NEW_ARRAY(&model->arena, const char *, 2 * entries->count + 1);
    model->note_count = entries->count;
    for (size_t i = 0; i < entries->count; i++) {
        model->notes[2 * i] = text_of(&model->arena, entries->data[i].key);
        model->notes[2 * i + 1] = text_of(&model->arena, entries->data[i].value);
    }
}

/* The folder of a path: the path without its last component. */
static const char *folder_of(lib_arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? lib_arena_format(arena, "%.*s", (int)(slash == path ? 1 : slash - path), path) : ".";
}

static const dlc_onnx_options default_options = DLC_ONNX_OPTIONS_INIT;

/* Opens a model from the file at `path` or, path NULL, from bytes in memory. */
static dlc_status open_model(dlc_context *context, const char *path, const dlc_onnx_options *options, const void *bytes,
                             size_t size, const char *call, dlc_onnx_model **out) {
    GRAPH_CALL(context, LIB_STACK_CALL);
    dlc_onnx_model *model = lib_allocate_zeroed(&context->allocator, sizeof *model, _Alignof(dlc_onnx_model));
    if (!model) return jit_onnx_fail(context, DLC_OUT_OF_MEMORY, call, "memory was refused");
    model->holder = (graph_holder){.keep = keep_holder, .release = release_holder, .idle = let_go_of_pages};
    model->context = context;
    jit_context_keep(context);
    atomic_init(&model->references, 1);
    lib_mutex_init(&model->hosted_mutex);
    lib_arena_init(&model->arena, &context->allocator, &model->scope);
    lib_arena_init(&model->file_arena, &context->allocator, &model->scope);
    model->read = options->read;
    model->external_data = options->external, model->external_user = options->external_user;
    const onnx_files files = {open_external, model};
    lib_allowance allowance = {.limits = NULL};
    if (LIB_ENTER(&model->scope)) {
        if (path) {
            jit_mapped_open(&model->file, &model->file_arena, path, model->read);
            model->folder = folder_of(&model->file_arena, path);
        } else
            model->file = (jit_mapped){.bytes = bytes, .size = size};
        if (options->folder) model->folder = lib_arena_format(&model->file_arena, "%s", options->folder);
        model->size = model->file.size;
        lib_allowance_begin(&allowance, &model->arena, &context->limits, model->file.size);
        lib_arena_ask(&model->arena);
        model->model = onnx_model_read(&model->arena, (onnx_bytes){(const char *)model->file.bytes, model->file.size},
                                       path || options->folder || options->external ? &files : NULL);
        list_ports(model);
        list_notes(model);
    }
    lib_allowance_end(&allowance, &model->arena);
    if (model->scope.error.status == DLC_OK) {
        *out = model;
        return DLC_OK;
    }
    lib_error error;
    lib_fail(&error, model->scope.error.status, "%s%s%s", path ? path : "", path ? ": " : "",
             model->scope.error.message);
    jit_onnx_release(model);
    return jit_fail(context, &error);
}

static dlc_status check_options(dlc_context *context, const dlc_onnx_options *options, const char *call) {
    if (!options || options->struct_size == sizeof *options) return DLC_OK;
    return jit_onnx_fail(context, DLC_INVALID_ARGUMENT, call,
                         "options.struct_size is not that of this version: use DLC_ONNX_OPTIONS_INIT");
}

dlc_status dlc_onnx_open(dlc_context *context, const char *path, const dlc_onnx_options *options,
                         dlc_onnx_model **model) {
    if (model) *model = NULL;
    if (!context || !path || !model)
        return jit_onnx_fail(context, DLC_INVALID_ARGUMENT, "dlc_onnx_open",
                             "context, path or the place for the model is NULL");
    LIB_TRY(check_options(context, options, "dlc_onnx_open"));
    return open_model(context, path, options ? options : &default_options, NULL, 0, "dlc_onnx_open", model);
}

dlc_status dlc_onnx_parse(dlc_context *context, const void *bytes, size_t size, const dlc_onnx_options *options,
                          dlc_onnx_model **model) {
    if (model) *model = NULL;
    if (!context || (!bytes && size) || !model)
        return jit_onnx_fail(context, DLC_INVALID_ARGUMENT, "dlc_onnx_parse",
                             "context, bytes or the place for the model is NULL");
    LIB_TRY(check_options(context, options, "dlc_onnx_parse"));
    return open_model(context, NULL, options ? options : &default_options, bytes ? bytes : "", size, "dlc_onnx_parse",
                      model);
}

int dlc_onnx_port_count(const dlc_onnx_model *model, dlc_onnx_side side) {
    return model && (side == DLC_ONNX_INPUT || side == DLC_ONNX_OUTPUT) ? model->port_count[side] : 0;
}

const jit_onnx_port *jit_onnx_structured_port(const dlc_onnx_model *model) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < model->port_count[side]; i++) {
            const jit_onnx_port *port = &model->ports[side][i];
            if (port->type && kind_of(port->type) != DLC_ONNX_TENSOR && port->type->which != ONNX_TYPE_NONE)
                return port;
        }
    return NULL;
}

dlc_status dlc_onnx_port_at(const dlc_onnx_model *model, dlc_onnx_side side, int index, dlc_onnx_port *port) {
    if (!port || index < 0 || index >= dlc_onnx_port_count(model, side))
        return jit_onnx_fail(model ? model->context : NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_port_at",
                             "there is no such port, or no place for it");
    *port = describe(&model->ports[side][index]);
    return DLC_OK;
}

const char *dlc_onnx_note(const dlc_onnx_model *model, const char *key) {
    for (size_t i = 0; model && key && i < model->note_count; i++)
        if (strcmp(model->notes[2 * i], key) == 0) return model->notes[2 * i + 1];
    return NULL;
}

dlc_status dlc_onnx_check(dlc_onnx_model *model, char **text) {
    if (text) *text = NULL;
    if (!model || !text)
        return jit_onnx_fail(model ? model->context : NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_check",
                             "model or the place for the text is NULL");
    GRAPH_CALL(model->context, LIB_STACK_CALL);
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &model->context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_text list;
        lib_text_init(&list, &arena);
        onnx_check_model(&list, model->model, &model->context->handles.registry);
        *text = graph_text_new(&model->context->allocator, list.data ? list.data : "", list.length);
        if (!*text) lib_raise(&scope, DLC_OUT_OF_MEMORY, "dlc_onnx_check: memory was refused");
    }
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK ? DLC_OK : jit_fail(model->context, &scope.error);
}

typedef struct import_arguments {
    dlc_onnx_model *model;
    const onnx_options *options;
} import_arguments;

static void import(graph *g, void *user) {
    const import_arguments *a = user;
    onnx_import im = {.g = g, .model = a->model->model, .options = a->options, .holder = &a->model->holder};
    onnx_import_graph(&im);
}

dlc_status jit_onnx_import(dlc_onnx_model *model, const onnx_options *options, dlc_graph **made) {
    import_arguments a = {model, options};
    return graph_handle_make(model->context, model->size, import, &a, &model->holder, made);
}

/* Has the graph an input of this name? Inputs that are also initializers count. */
static bool has_input(const onnx_graph *g, const char *name) {
    for (size_t i = 0; i < g->inputs.count; i++)
        if (onnx_is(g->inputs.data[i].name, name)) return true;
    return false;
}

/* Checks one of options.values. */
static dlc_status check_value(const dlc_onnx_model *model, const char *name, const DLTensor *value) {
    char text[JIT_ONNX_FAULT], what[LIB_MESSAGE_MAX];
    const bool known = name && has_input(model->model->graph, name);
    const char *fault = jit_onnx_tensor_fault(value, text);
    if (!fault && (value->device.device_type != kDLCPU || !lib_tensor_is_compact(value)))
        fault = "is no compact tensor in host memory";
    if (known && !fault) return DLC_OK;
    if (known)
        snprintf(what, sizeof what, "the value of input %s %s", name, fault);
    else
        snprintf(what, sizeof what, "options.value_names: the model has no input called %s", name ? name : "NULL");
    return jit_onnx_fail(model->context, name && !known ? DLC_NOT_FOUND : DLC_INVALID_ARGUMENT, "dlc_onnx_graph", what);
}

static dlc_status check_graph_options(const dlc_onnx_model *model, const dlc_onnx_graph_options *options) {
    if (options->struct_size != sizeof *options || options->dim_count < 0 || (options->dim_count && !options->dims) ||
        options->output_count < 0 || (options->output_count && !options->outputs) || options->value_count < 0 ||
        (options->value_count && (!options->value_names || !options->values)))
        return jit_onnx_fail(
            model->context, DLC_INVALID_ARGUMENT, "dlc_onnx_graph",
            "options.struct_size is not that of this version (use DLC_ONNX_GRAPH_OPTIONS_INIT), a count is below 0, or a list "
            "is NULL");
    for (int i = 0; i < options->dim_count; i++)
        if (!options->dims[i].name || options->dims[i].value < 0)
            return jit_onnx_fail(model->context, DLC_INVALID_ARGUMENT, "dlc_onnx_graph",
                                 "options.dims has a dimension without a name, or below 0");
    for (int i = 0; i < options->value_count; i++)
        LIB_TRY(check_value(model, options->value_names[i], options->values[i]));
    return DLC_OK;
}

dlc_status dlc_onnx_graph(dlc_onnx_model *model, const dlc_onnx_graph_options *options, dlc_graph **made) {
    static const dlc_onnx_graph_options defaults = DLC_ONNX_GRAPH_OPTIONS_INIT;
    if (made) *made = NULL;
    if (!model || !made)
        return jit_onnx_fail(model ? model->context : NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_graph",
                             "model or the place for the graph is NULL");
    if (!options) options = &defaults;
    LIB_TRY(check_graph_options(model, options));
    return jit_onnx_import(model,
                           &(onnx_options){.dims = options->dims,
                                           .dim_count = options->dim_count,
                                           .value_names = options->value_names,
                                           .values = options->values,
                                           .value_count = options->value_count,
                                           .newer_opset = options->newer_opset,
                                           .outputs = options->outputs,
                                           .output_count = options->output_count},
                           made);
}

#else

static dlc_status refuse(dlc_context *context, const char *call) {
    lib_error error;
    lib_fail(&error, DLC_UNSUPPORTED, "%s: this build of libdlc has no ONNX", call);
    return jit_fail(context, &error);
}

dlc_status dlc_onnx_open(dlc_context *context, const char *path, const dlc_onnx_options *options,
                         dlc_onnx_model **model) {
    (void)path, (void)options;
    if (model) *model = NULL;
    return refuse(context, "dlc_onnx_open");
}
dlc_status dlc_onnx_parse(dlc_context *context, const void *bytes, size_t size, const dlc_onnx_options *options,
                          dlc_onnx_model **model) {
    (void)bytes, (void)size, (void)options;
    if (model) *model = NULL;
    return refuse(context, "dlc_onnx_parse");
}
void dlc_onnx_destroy(dlc_onnx_model *model) {
    (void)model;
}
const char *dlc_onnx_note(const dlc_onnx_model *model, const char *key) {
    (void)model, (void)key;
    return NULL;
}
dlc_status dlc_onnx_check(dlc_onnx_model *model, char **text) {
    (void)model;
    if (text) *text = NULL;
    return refuse(NULL, "dlc_onnx_check");
}
dlc_status dlc_onnx_graph(dlc_onnx_model *model, const dlc_onnx_graph_options *options, dlc_graph **made) {
    (void)model, (void)options;
    if (made) *made = NULL;
    return refuse(NULL, "dlc_onnx_graph");
}
int dlc_onnx_port_count(const dlc_onnx_model *model, dlc_onnx_side side) {
    (void)model, (void)side;
    return 0;
}
dlc_status dlc_onnx_port_at(const dlc_onnx_model *model, dlc_onnx_side side, int index, dlc_onnx_port *port) {
    (void)model, (void)side, (void)index, (void)port;
    return refuse(NULL, "dlc_onnx_port_at");
}
#endif
