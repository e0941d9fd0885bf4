/* Operators that the host defines for ONNX models, dlc_onnx_register: how their nodes are imported, and what their functions may ask for.
 * A node becomes the graph that its expansion builds; or the results of its C function, called during the import (if all operands are
 * known, or in a walk); or, if the function has a shape rule, a node of the graph, with a row in the operator table that the model owns. */
#include <dlc/onnx.h>

#include "jit/jit.h"

#ifdef DLC_ONNX
#include "graph/callback.h"
#include "graph/onnx/structure.h"
#include "jit/onnx.h"

#include <limits.h>
#include <string.h>

/* Limits of nodes of graphs, whose calls use arrays of this size on the stack. */
enum { OPERANDS_MAX = 64, RESULTS_MAX = 32 };

/* The functions of a definition. `functions` is the first member, since shape rules and expansions of other operators have only these. */
typedef struct host_operator {
    graph_host_functions functions;
    dlc_onnx_call *call;
    bool has_effects;
    /* names of the attributes that nodes may have, separated by blanks; NULL: any */
    const char *attributes;
} host_operator;

/* A node of such an operator, in the arena of its own definition: if graphs call it, it has a row as if it were registered for it alone. */
struct hosted_node {
    /* Must be the first member: invoke converts the row's pointer to it to this struct. */
    graph_definition definition;
    struct hosted_node *next;
    const graph_definition *registered;
    graph_host_node node;
    graph_host_functions functions;
    /* The file's node and the attributes that it was made of. A node in a function of the file can have other attributes and operands in
     * each call of the function: each combination is a hosted_node. */
    const onnx_node *of;
    const onnx_attribute *const *attributes;
    const char *shown;
};

typedef struct host_result {
    /* In runs: the output's tensor, with the shape of the shape rule. NULL (in imports): the function decides. */
    DLTensor *fixed;
    bool given;
    /* In imports: the result. */
    DLTensor tensor;
    graph_id id;
    const onnx_structure *strings;
} host_result;

/* The results that a call of the host's function has given so far. */
typedef struct onnx_host_results {
    /* NULL: a run, whose results are fixed */
    onnx_import *im;
    int count;
    host_result *result;
} onnx_host_results;

static const host_operator *operator_of(const graph_definition *definition) {
    return definition->functions;
}

/* ---- attributes -------------------------------------------------------------------------------------------------------- */

static dlc_onnx_value tensor_value(lib_arena *arena, dlc_dtype dtype, int rank, const int64_t *dims, const void *data) {
    DLTensor *tensor = LIB_NEW(arena, DLTensor);
    *tensor = (DLTensor){.data = (void *)(uintptr_t)data,
                         .device = {kDLCPU, 0},
                         .ndim = rank,
                         .dtype = lib_dtype_to_dlpack(dtype),
                         .shape = lib_arena_copy(arena, dims, (size_t)rank * sizeof *dims)};
    return (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = tensor};
}

static dlc_onnx_value strings_value(lib_arena *arena, int rank, const int64_t *dims, const onnx_bytes *text) {
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= dims[d];
    dlc_onnx_string *strings = LIB_NEW_ARRAY(arena, dlc_onnx_string, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) strings[i] = (dlc_onnx_string){text[i].data, text[i].size};
    return (dlc_onnx_value){.kind = DLC_ONNX_STRINGS,
                            .rank = rank,
                            .dims = lib_arena_copy(arena, dims, (size_t)rank * sizeof *dims),
                            .strings = strings};
}

static dlc_onnx_value stored_value(onnx_import *im, lib_arena *arena, const onnx_tensor *tensor) {
    const int rank = (int)tensor->dims.count;
    if (tensor->dims.count > DLC_MAX_RANK || onnx_is_external(tensor))
        onnx_fail(im, DLC_UNSUPPORTED, "an attribute that is a tensor of more than %d dimensions, or of external data",
                  DLC_MAX_RANK);
    if (tensor->data_type == ONNX_STRING)
        return strings_value(arena, rank, tensor->dims.data, tensor->string_data.data);
    const dlc_dtype dtype = onnx_dtype(im, tensor->data_type);
    const onnx_bytes bytes = onnx_tensor_data(arena, tensor).bytes;
    const size_t size = lib_dtype_is_packed(dtype) ? 1 : lib_dtype_size(dtype);
    const void *data = bytes.data;
    if ((uintptr_t)data % size) data = memcpy(lib_arena_take_aligned(arena, bytes.size, 64), data, bytes.size);
    return tensor_value(arena, dtype, rank, tensor->dims.data, data);
}

static dlc_onnx_value stored_list(onnx_import *im, lib_arena *arena, const onnx_attribute *a) {
    dlc_onnx_value *element = LIB_NEW_ARRAY(arena, dlc_onnx_value, a->tensors.count + 1);
    for (size_t i = 0; i < a->tensors.count; i++) element[i] = stored_value(im, arena, &a->tensors.data[i]);
    return (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = a->tensors.count, .elements = element};
}

static dlc_onnx_value value_of_attribute(onnx_import *im, lib_arena *arena, const onnx_attribute *a) {
    switch (onnx_attribute_type_of(a)) {
    case ONNX_ATTRIBUTE_INT: return tensor_value(arena, DLC_I64, 0, NULL, &a->i);
    case ONNX_ATTRIBUTE_FLOAT: return tensor_value(arena, DLC_F32, 0, NULL, &a->f);
    case ONNX_ATTRIBUTE_STRING: return strings_value(arena, 0, NULL, &a->s);
    case ONNX_ATTRIBUTE_INTS: return tensor_value(arena, DLC_I64, 1, (int64_t[]){(int64_t)a->ints.count}, a->ints.data);
    case ONNX_ATTRIBUTE_FLOATS:
        return tensor_value(arena, DLC_F32, 1, (int64_t[]){(int64_t)a->floats.count}, a->floats.data);
    case ONNX_ATTRIBUTE_STRINGS:
        return strings_value(arena, 1, (int64_t[]){(int64_t)a->strings.count}, a->strings.data);
    case ONNX_ATTRIBUTE_TENSOR: return stored_value(im, arena, a->t);
    case ONNX_ATTRIBUTE_TENSORS: return stored_list(im, arena, a);
    default:
        onnx_fail(im, DLC_UNSUPPORTED,
                  "attribute %s is a graph, a type or a sparse tensor, which functions of the host do not get",
                  onnx_shown(im->g->arena, a->name));
    }
}

/* Sets the kind and value that dlc_callback_integer and similar functions return; kind GRAPH_ATTR_CONSTANT: none of these. */
static void take_plain(lib_arena *arena, graph_named_attribute *to, const onnx_attribute *a) {
    to->spec.kind = GRAPH_ATTR_CONSTANT;
    switch (onnx_attribute_type_of(a)) {
    case ONNX_ATTRIBUTE_INT: to->spec.kind = GRAPH_ATTR_INTEGER, to->attribute.integer = a->i; return;
    case ONNX_ATTRIBUTE_FLOAT: to->spec.kind = GRAPH_ATTR_FLOAT, to->attribute.number = (double)a->f; return;
    case ONNX_ATTRIBUTE_STRING:
        if (a->s.size > INT_MAX || (a->s.size && memchr(a->s.data, 0, a->s.size))) return;
        to->spec.kind = GRAPH_ATTR_STRING;
        to->attribute.string = lib_arena_format(arena, "%.*s", (int)a->s.size, a->s.size ? a->s.data : "");
        return;
    case ONNX_ATTRIBUTE_INTS:
        if (a->ints.count > INT_MAX) return;
        to->spec.kind = GRAPH_ATTR_INTEGERS;
        to->attribute.list = a->ints.data, to->attribute.count = (int)a->ints.count;
        return;
    default: return;
    }
}

static bool is_word_of(onnx_bytes name, const char *words) {
    for (const char *at = words + strspn(words, " "); *at; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        if (size == name.size && memcmp(at, name.data, size) == 0) return true;
        at += size;
    }
    return false;
}

/* list[i]: attribute i of the current node; NULL: it refers to an attribute that the caller of the enclosing function leaves out. */
static const onnx_attribute **resolved(const onnx_import *im) {
    const size_t count = im->node->attributes.count;
    const onnx_attribute **list = LIB_NEW_ARRAY(im->g->arena, const onnx_attribute *, count + 1);
    for (size_t i = 0; i < count; i++) list[i] = onnx_attribute_at(im, i);
    return list;
}

/* The current node as the host's functions see it, in `arena`. */
static graph_host_node describe(onnx_import *im, lib_arena *arena, const host_operator *o) {
    const size_t count = im->node->attributes.count, operands = onnx_operands(im);
    if (operands > 1 << 16 || im->node->outputs.count > 1 << 16 || count > 1 << 16)
        onnx_fail(im, DLC_UNSUPPORTED, "more than 65536 operands, results or attributes of an operator of the host");
    graph_named_attribute *named = LIB_NEW_ARRAY(arena, graph_named_attribute, count + 1);
    const onnx_attribute **list = resolved(im);
    int *place = LIB_NEW_ARRAY(arena, int, operands + 1), named_count = 0, present = 0;
    for (size_t i = 0; i < count; i++) {
        const onnx_bytes name = im->node->attributes.data[i].name;
        if (o->attributes && !is_word_of(name, o->attributes))
            onnx_fail(im, DLC_UNSUPPORTED, "the host's operator has no attribute %s", onnx_shown(im->g->arena, name));
        if (!list[i]) continue;
        graph_named_attribute *to = &named[named_count++];
        to->spec.name = lib_arena_format(arena, "%.*s", (int)name.size, name.size ? name.data : "");
        take_plain(arena, to, list[i]);
        to->value = value_of_attribute(im, arena, list[i]);
    }
    for (size_t i = 0; i < operands; i++) place[i] = onnx_has(im, i) ? present++ : -1;
    return (graph_host_node){.version = im->opset,
                             .inputs = (int)operands,
                             .results = (int)im->node->outputs.count,
                             .place = place,
                             .named_count = named_count,
                             .named = named};
}

static dlc_callback callback_of(const struct hosted_node *hosted) {
    const graph_host_node *node = &hosted->node;
    return (dlc_callback){.definition = hosted->registered,
                          .inputs = node->inputs,
                          .results = node->results,
                          .version = node->version,
                          .named = node->named,
                          .named_count = node->named_count};
}

/* ---- what functions ask for ---------------------------------------------------------------------------------------------- */

int dlc_callback_opset(const dlc_callback *callback) {
    return callback ? callback->version : 0;
}

int dlc_callback_result_count(const dlc_callback *callback) {
    return callback ? callback->results : 0;
}

const dlc_onnx_value *dlc_callback_attribute(const dlc_callback *callback, const char *name) {
    const graph_named_attribute *named = graph_callback_named(callback, name);
    return named ? &named->value : NULL;
}

/* Runs `work` of the importer, called by a function of the host. False: work has raised, and its error is now the callback's. */
static bool work_for(dlc_callback *callback, onnx_import *im, void (*work)(onnx_import *im, void *arguments),
                     void *arguments) {
    lib_arena *arena = im->g->arena;
    lib_scope *outer = arena->scope, scope;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) work(im, arguments);
    arena->scope = outer;
    if (scope.error.status != DLC_OK) callback->error = scope.error;
    return scope.error.status == DLC_OK;
}

typedef struct elements_arguments {
    int input;
    const int64_t *list;
    int count;
} elements_arguments;

static void find_elements(onnx_import *im, void *arguments) {
    elements_arguments *a = arguments;
    if (a->input < 0) onnx_fail(im, DLC_INVALID_ARGUMENT, "dlc_callback_elements: operand %d", a->input);
    a->list = onnx_operand_integers(im, (size_t)a->input, &a->count);
}

bool dlc_callback_elements(dlc_callback *callback, int input, const int64_t **list, int *count) {
    elements_arguments a = {.input = input};
    if (!callback || !callback->importer) {
        dlc_callback_fail(callback, DLC_INVALID_ARGUMENT,
                          "dlc_callback_elements: this is no expansion of an ONNX node");
        return false;
    }
    if (!work_for(callback, callback->importer, find_elements, &a)) return false;
    if (list) *list = a.list;
    if (count) *count = a.count;
    return true;
}

/* ---- results of calls ------------------------------------------------------------------------------------------------------ */

/* The fault of the shape that a function of the host gave for a result, as a message; NULL: it has none. */
static const char *shape_fault(int rank, const int64_t *shape) {
    if (rank < 0 || rank > DLC_MAX_RANK || (rank && !shape))
        return "a result has a rank below 0 or above 12, or no shape";
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(count, shape[d] ? shape[d] : 1, &count) || count > INT64_C(1) << 56)
            return "a result has a dimension below 0, or too many elements";
    return NULL;
}

/* Result number `result`, to be given now. NULL: the arguments are wrong or it has been given already, which fails the callback. */
static host_result *result_at(dlc_callback *callback, int result, int rank, const int64_t *shape) {
    const char *wrong;
    if (!callback || !callback->given)
        wrong = "results are given by functions that compute ONNX nodes";
    else if (result < 0 || result >= callback->given->count)
        wrong = "there is no such result";
    else if (callback->given->result[result].given)
        wrong = "a result is given twice";
    else
        wrong = shape_fault(rank, shape);
    if (!wrong) return &callback->given->result[result];
    dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, wrong);
    return NULL;
}

typedef struct tensor_arguments {
    host_result *to;
    dlc_dtype dtype;
    int rank;
    const int64_t *shape;
} tensor_arguments;

static void make_tensor(onnx_import *im, void *arguments) {
    const tensor_arguments *a = arguments;
    onnx_walk *walk = onnx_walks(im) ? im->options->walk : NULL;
    graph_shape shape = {.dtype = a->dtype, .rank = a->rank};
    DLTensor *made = &a->to->tensor;
    for (int d = 0; walk && d < a->rank; d++) shape.dim[d] = tir_index(im->g->pool, a->shape[d]);
    if (walk) {
        a->to->id = walk->make(walk, im->g, &shape, &made);
        a->to->tensor = *made;
        return;
    }
    *made = *tensor_value(im->g->arena, a->dtype, a->rank, a->shape, NULL).tensor;
    made->data = lib_arena_take_aligned(im->g->arena, lib_tensor_bytes(made) + 1, 64);
}

static bool has_shape(const DLTensor *tensor, dlc_dtype dtype, int rank, const int64_t *shape) {
    const DLDataType type = lib_dtype_to_dlpack(dtype);
    bool same = tensor->ndim == rank && memcmp(&tensor->dtype, &type, sizeof type) == 0;
    for (int d = 0; same && d < rank; d++) same = tensor->shape[d] == shape[d];
    return same;
}

DLTensor *dlc_callback_tensor(dlc_callback *callback, int result, dlc_dtype dtype, int rank, const int64_t *shape) {
    tensor_arguments a = {result_at(callback, result, rank, shape), dtype, rank, shape};
    if (!a.to) return NULL;
    if ((unsigned)dtype >= DLC_DTYPE_COUNT || !lib_dtypes[dtype].usable) {
        dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "a result of no supported element type");
        return NULL;
    }
    if (a.to->fixed && !has_shape(a.to->fixed, dtype, rank, shape)) {
        dlc_callback_fail(callback, DLC_INVALID_ARGUMENT,
                          "a result has another element type or shape than its shape rule says");
        return NULL;
    }
    if (!a.to->fixed && !work_for(callback, callback->given->im, make_tensor, &a)) return NULL;
    a.to->given = true;
    return a.to->fixed ? a.to->fixed : &a.to->tensor;
}

typedef struct strings_arguments {
    host_result *to;
    int rank;
    const int64_t *shape;
    const dlc_onnx_string *strings;
} strings_arguments;

static void make_strings(onnx_import *im, void *arguments) {
    const strings_arguments *a = arguments;
    lib_arena *arena = im->g->arena;
    const int64_t count = onnx_count((size_t)a->rank, a->shape, ONNX_WORDS_MAX);
    if (count < 0) onnx_fail(im, DLC_BUDGET_EXCEEDED, "more than %d strings", (int)ONNX_WORDS_MAX);
    onnx_bytes *text = LIB_NEW_ARRAY(arena, onnx_bytes, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        const dlc_onnx_string *from = a->strings ? &a->strings[i] : NULL;
        if (!from || (from->size && !from->data))
            onnx_fail(im, DLC_INVALID_ARGUMENT, "string %lld of a result is NULL", (long long)i);
        text[i] = (onnx_bytes){lib_arena_copy(arena, from->data, from->size), from->size};
    }
    a->to->strings = onnx_strings_new(im, a->rank, a->shape, text);
}

dlc_status dlc_callback_strings(dlc_callback *callback, int result, int rank, const int64_t *shape,
                                const dlc_onnx_string *strings) {
    strings_arguments a = {result_at(callback, result, rank, shape), rank, shape, strings};
    if (!a.to) return DLC_INVALID_ARGUMENT;
    if (a.to->fixed)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT,
                                 "a result is strings, by its shape rule it is a tensor");
    if (!work_for(callback, callback->given->im, make_strings, &a)) return callback->error.status;
    a.to->given = true;
    return DLC_OK;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------------- */

static void call_host(dlc_callback *c, const host_operator *o, const dlc_onnx_value *const *inputs) {
    const int cancelability = lib_cancel_off();
    graph_callback_settle(c, o->call(c->definition->user, c, c->inputs, inputs, c->results), 0, NULL, NULL);
    lib_cancel_restore(cancelability);
}

/* Calls the host's function as a step of a run. */
static dlc_status invoke(const graph_definition *d, const graph_custom *custom, int inputs,
                         const DLTensor *const *input, int outputs, DLTensor *const *output, lib_error *error) {
    const struct hosted_node *hosted = (const struct hosted_node *)(const void *)d;
    const graph_host_node *node = &hosted->node;
    dlc_onnx_value value[OPERANDS_MAX];
    const dlc_onnx_value *list[OPERANDS_MAX] = {NULL};
    host_result result[RESULTS_MAX] = {0};
    onnx_host_results given = {.count = outputs, .result = result};
    dlc_callback c = callback_of(hosted);
    (void)custom, (void)inputs;
    c.given = &given;
    for (int o = 0; o < outputs; o++) result[o].fixed = output[o];
    for (int i = 0; i < node->inputs; i++) {
        if (node->place[i] >= 0) value[i] = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = input[node->place[i]]};
        list[i] = node->place[i] < 0 ? NULL : &value[i];
    }
    call_host(&c, operator_of(hosted->registered), list);
    for (int o = 0; o < outputs && c.error.status == DLC_OK; o++)
        if (!result[o].given) lib_fail(&c.error, DLC_INVALID_ARGUMENT, "the function has not given result %d", o);
    if (c.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, c.error.status, "%s: %s", hosted->shown, c.error.message);
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------------- */

static void free_hosted(const dlc_allocator *allocator, struct hosted_node *hosted) {
    lib_arena_free(&hosted->definition.arena);
    lib_release(allocator, hosted, sizeof *hosted, _Alignof(struct hosted_node));
}

void jit_onnx_free_hosted(dlc_onnx_model *model) {
    for (int i = 0; i < JIT_ONNX_HOSTED_LISTS; i++)
        for (struct hosted_node *at = model->hosted[i], *next; at; at = next) {
            next = at->next;
            free_hosted(&model->context->allocator, at);
        }
}

/* A name for a node's row, unique in the model: the operator's name, a number, and the node's name. */
static const char *row_name(lib_arena *arena, const onnx_node *node, size_t number) {
    enum { SHOWN = 60 };
    const int size = node->name.size < SHOWN ? (int)node->name.size : SHOWN;
    char *name = lib_arena_format(arena, "%.*s.%zu%s%.*s", (int)node->operator.size, node->operator.data, number,
                                  size ? "." : "", size, size ? node->name.data : "");
    for (char *at = name; *at; at++)
        if (*at <= ' ' || strchr("(),\"\\=", *at)) *at = '_';
    return name;
}

static void fill_hosted(onnx_import *im, struct hosted_node *hosted, const graph_definition *registered,
                        size_t number) {
    const host_operator *o = operator_of(registered);
    graph_definition *d = &hosted->definition;
    lib_arena *arena = &d->arena;
    hosted->registered = registered, hosted->of = im->node;
    hosted->node = describe(im, arena, o);
    hosted->attributes = lib_arena_copy(arena, resolved(im), im->node->attributes.count * sizeof(void *));
    hosted->shown = lib_arena_format(arena, "node %zu %s (%s)", im->node_index, onnx_shown(arena, im->node->name),
                                     onnx_shown(arena, im->node->operator));
    hosted->functions = (graph_host_functions){.shape = o->functions.shape, .node = &hosted->node};
    d->kind = GRAPH_OPERATOR, d->name = d->op.name = row_name(arena, im->node, number);
    d->context = registered->context, d->user = registered->user;
    d->functions = &hosted->functions, d->invoke = invoke, d->holder = im->holder;
    d->op.class_ = GRAPH_OPAQUE, d->op.algebra = o->has_effects ? GRAPH_IMPURE : 0;
    d->op.max_inputs = -1, d->op.results = hosted->node.results;
    d->op.operands = "x", d->op.dtypes = "all", d->op.doc = "";
    d->op.infer = graph_infer_by_host, d->op.host = d;
    d->op.refused = "register it with an expansion";
}

/* Makes a hosted_node for the current node; the caller adds it to the model. */
static struct hosted_node *new_hosted(onnx_import *im, const dlc_allocator *allocator,
                                      const graph_definition *registered, size_t number) {
    lib_scope *outer = im->g->arena->scope, scope;
    struct hosted_node *hosted = lib_allocate_zeroed(allocator, sizeof *hosted, _Alignof(struct hosted_node));
    if (!hosted) onnx_fail(im, DLC_OUT_OF_MEMORY, "memory was refused");
    lib_arena_init(&hosted->definition.arena, allocator, &scope);
    im->g->arena->scope = &scope;
    if (LIB_ENTER(&scope)) fill_hosted(im, hosted, registered, number);
    im->g->arena->scope = outer;
    hosted->definition.arena.scope = NULL;
    if (scope.error.status == DLC_OK) return hosted;
    free_hosted(allocator, hosted);
    lib_raise_error(outer, &scope.error);
}

static bool is_of(const onnx_import *im, const struct hosted_node *hosted, const graph_definition *registered,
                  const onnx_attribute *const *attributes) {
    const size_t size = im->node->attributes.count * sizeof(void *);
    bool same = hosted->of == im->node && hosted->registered == registered && hosted->node.version == im->opset &&
                (!size || memcmp(hosted->attributes, attributes, size) == 0);
    for (size_t i = 0; same && i < onnx_operands(im); i++) same = onnx_has(im, i) == (hosted->node.place[i] >= 0);
    return same;
}

static struct hosted_node **list_of(dlc_onnx_model *model, const onnx_node *node) {
    return &model->hosted[lib_hash64(&node, sizeof(void *), 0) % JIT_ONNX_HOSTED_LISTS];
}

/* The hosted_node of the current node with these attributes in the list; NULL: none. The model's mutex is held. */
static struct hosted_node *find_hosted(const onnx_import *im, struct hosted_node *list,
                                       const graph_definition *registered, const onnx_attribute *const *attributes) {
    for (struct hosted_node *at = list; at; at = at->next)
        if (is_of(im, at, registered, attributes)) return at;
    return NULL;
}

/* The hosted_node of the current node: found or made. Imports on several threads get the same one. */
static struct hosted_node *hosted_node_of(onnx_import *im, const graph_definition *registered) {
    dlc_onnx_model *model = (dlc_onnx_model *)(void *)im->holder;
    const dlc_allocator *allocator = &model->context->allocator;
    const onnx_attribute *const *attributes = resolved(im);
    struct hosted_node **list = list_of(model, im->node), *known, *made;
    lib_mutex_lock(&model->hosted_mutex);
    known = find_hosted(im, *list, registered, attributes);
    lib_mutex_unlock(&model->hosted_mutex);
    if (known) return known;
    made = new_hosted(im, allocator, registered, atomic_fetch_add(&model->hosted_count, 1));
    lib_mutex_lock(&model->hosted_mutex);
    known = find_hosted(im, *list, registered, attributes);
    if (!known) made->next = *list, *list = made;
    lib_mutex_unlock(&model->hosted_mutex);
    if (known) free_hosted(allocator, made);
    return known ? known : made;
}

/* ---- calls while a model is imported ----------------------------------------------------------------------------------------- */

/* Raises the error of the host's function as that of the import. Only errors of circumstances (lib_is_circumstance) get the node's name
 * here. / */
static _Noreturn void raise_from(onnx_import *im, const lib_error *error) {
    if (!lib_is_circumstance(error->status)) lib_raise_error(im->g->arena->scope, error);
    onnx_fail(im, error->status, "node %zu %s (%s): %s", im->node_index, onnx_shown(im->g->arena, im->node->name),
              onnx_shown(im->g->arena, im->node->operator), error->message);
}

/* The tensor of a value that is known during the import: any value in a walk, else a constant. */
static const DLTensor *tensor_now(onnx_import *im, graph_id id) {
    if (onnx_walks(im)) return im->options->walk->view(im->options->walk, im->g, id);
    const graph_shape *shape = graph_shape_of(im->g, id);
    int64_t dims[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) tir_is_const(im->g->pool, shape->dim[d], &dims[d]);
    return tensor_value(im->g->arena, shape->dtype, shape->rank, dims,
                        graph_constant_bytes(im->g->arena->scope, graph_constant_of(im->g, id)))
        .tensor;
}

static bool is_text(const onnx_value *value) {
    const onnx_form form = onnx_form_of(value);
    return form == ONNX_STRINGS || form == ONNX_WRITTEN;
}

/* list[i]: operand i as the host's function gets it; NULL: it is left out. */
static const dlc_onnx_value **take_operands(onnx_import *im) {
    lib_arena *arena = im->g->arena;
    const size_t count = onnx_operands(im);
    const dlc_onnx_value **list = LIB_NEW_ARRAY(arena, const dlc_onnx_value *, count + 1);
    dlc_onnx_value *value = LIB_NEW_ARRAY(arena, dlc_onnx_value, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (!onnx_has(im, i)) continue;
        list[i] = &value[i];
        if (is_text(im->operand[i])) {
            const onnx_known *places;
            const onnx_bytes *text = onnx_operand_texts(im, i, &places);
            value[i] = strings_value(arena, places->rank, places->dims, text);
        } else {
            value[i] = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = tensor_now(im, onnx_operand(im, i))};
        }
    }
    return list;
}

/* In a walk: computes all operands that are tensors, as one part. */
static void evaluate_operands(onnx_import *im) {
    graph_id *ids = LIB_NEW_ARRAY(im->g->arena, graph_id, onnx_operands(im) + 1);
    int count = 0;
    for (size_t i = 0; i < onnx_operands(im); i++)
        if (onnx_has(im, i) && !is_text(im->operand[i])) ids[count++] = onnx_operand(im, i);
    im->options->walk->evaluate(im->options->walk, im->g, count, ids);
}

static void give_result(onnx_import *im, size_t i, const host_result *result) {
    dlc_dtype dtype;
    if (!onnx_wants(im, i)) return;
    if (!result->given) onnx_fail(im, DLC_INVALID_ARGUMENT, "the function has not given result %zu", i);
    if (result->strings || result->id) {
        onnx_give_structure(im, i, result->strings);
        onnx_give(im, i, result->id);
        return;
    }
    lib_dtype_from_dlpack(result->tensor.dtype, &dtype);
    const onnx_value value = onnx_value_of(im, dtype, result->tensor.ndim, result->tensor.shape, result->tensor.data);
    onnx_give_value(im, i, &value);
}

static void call_now(onnx_import *im, const struct hosted_node *hosted) {
    onnx_host_results given = {.im = im, .count = hosted->node.results};
    dlc_callback c = callback_of(hosted);
    given.result = LIB_NEW_ARRAY(im->g->arena, host_result, (size_t)given.count + 1);
    c.given = &given;
    if (onnx_walks(im)) evaluate_operands(im);
    call_host(&c, operator_of(hosted->registered), take_operands(im));
    if (c.error.status != DLC_OK) raise_from(im, &c.error);
    for (int i = 0; i < given.count; i++) give_result(im, (size_t)i, &given.result[i]);
}

/* ---- nodes of graphs ----------------------------------------------------------------------------------------------------------- */

static void emit(onnx_import *im, struct hosted_node *hosted) {
    graph_id *ids = LIB_NEW_ARRAY(im->g->arena, graph_id, onnx_operands(im) + 1);
    int count = 0;
    if (onnx_operands(im) > OPERANDS_MAX || im->node->outputs.count > RESULTS_MAX)
        onnx_fail(im, DLC_UNSUPPORTED, "more than %d operands or %d results of an operator of the host", OPERANDS_MAX,
                  RESULTS_MAX);
    for (size_t i = 0; i < onnx_operands(im); i++)
        if (onnx_has(im, i)) ids[count++] = onnx_operand(im, i);
    const graph_id first = graph_emit(im->g, &hosted->definition.op, count, ids, NULL);
    for (size_t i = 0; i < im->node->outputs.count; i++) onnx_give(im, i, first + (graph_id)i);
}

/* ---- import ------------------------------------------------------------------------------------------------------------------- */

/* *text: some operand is strings; *known: the elements of all tensors are known. Raises for operands that are neither tensors nor
 * strings. */
static void look_at_operands(onnx_import *im, bool *text, bool *known) {
    *text = false, *known = true;
    for (size_t i = 0; i < onnx_operands(im); i++) {
        if (!onnx_has(im, i)) continue;
        const bool strings = is_text(im->operand[i]);
        *text |= strings;
        if (!strings) *known &= graph_constant_of(im->g, onnx_operand(im, i)) != NULL;
    }
}

static void import_call(onnx_import *im, const graph_definition *d) {
    const host_operator *o = operator_of(d);
    bool text, known;
    look_at_operands(im, &text, &known);
    if (onnx_walks(im) || (known && !o->has_effects)) {
        call_now(im, hosted_node_of(im, d));
        return;
    }
    if (o->functions.shape && !text) {
        emit(im, hosted_node_of(im, d));
        return;
    }
    if (im->options->needs) im->options->needs->walk = true;
    onnx_fail(im, DLC_UNSUPPORTED, "a function of the host computes it, %s: walks of runners alone call it",
              text ? "of strings and of what a run computes" : "and there is no shape function");
}

static void import_expansion(onnx_import *im, const graph_definition *d) {
    lib_arena *arena = im->g->arena;
    dlc_callback c = callback_of(hosted_node_of(im, d));
    const int count = c.results;
    graph_id *operands = LIB_NEW_ARRAY(arena, graph_id, (size_t)c.inputs + 1),
             *ids = LIB_NEW_ARRAY(arena, graph_id, (size_t)count + 1);
    dlc_value *results = LIB_NEW_ARRAY(arena, dlc_value, (size_t)count + 1);
    for (int i = 0; i < c.inputs; i++) operands[i] = onnx_operand(im, (size_t)i);
    c.builds = true, c.input = operands, c.importer = im;
    c.graph = graph_callback_borrow(d, im->g, arena, GRAPH_BORROWED);
    const dlc_status status = operator_of(d)->functions.expand(d->user, &c, count, results);
    graph_callback_settle(&c, status, count, results, ids);
    graph_handle_return(c.graph);
    if (c.error.status != DLC_OK) raise_from(im, &c.error);
    for (int i = 0; i < count; i++) {
        if (onnx_wants(im, (size_t)i) && !ids[i])
            onnx_fail(im, DLC_INVALID_ARGUMENT, "the expansion has not set result %d", i);
        onnx_give(im, (size_t)i, ids[i]);
    }
}

/* ---- registration ------------------------------------------------------------------------------------------------------------- */

static void check_options(lib_scope *scope, const dlc_onnx_operator_options *o, const char *domain) {
    if (!o->name || !*o->name) lib_raise(scope, DLC_INVALID_ARGUMENT, "it needs a name");
    if (o->since < 0 || o->until < 0 || (o->until && o->until < o->since))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "versions %d to %d are no range", o->since, o->until);
    if (!o->expand == !o->call)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "expected one of expand and call, %s set",
                  o->call ? "both are" : "none is");
    if (!o->call && (o->shape_function || o->has_effects))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "shape_function and has_effects are for call");
    const onnx_row *own = onnx_find_row(domain, o->name, o->since, o->until ? o->until : INT_MAX);
    if (own)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "libdlc imports this operator itself, as of version %d", own->since);
}

static void define(graph_registration *r) {
    const dlc_onnx_operator_options *o = r->options;
    graph_definition *d = r->definition;
    lib_arena *arena = &d->arena;
    const char *domain = o->domain && strcmp(o->domain, "ai.onnx") != 0 ? o->domain : "";
    host_operator *functions = LIB_NEW(arena, host_operator);
    check_options(arena->scope, o, domain);
    *functions = (host_operator){.functions = {.shape = o->shape_function, .expand = o->expand},
                                 .call = o->call,
                                 .has_effects = o->has_effects,
                                 .attributes = lib_arena_string(arena, o->attributes)};
    d->name = lib_arena_string(arena, o->name), d->domain = lib_arena_string(arena, domain);
    d->since = o->since, d->until = o->until ? o->until : INT_MAX;
    d->functions = functions;
    d->import = o->call ? import_call : import_expansion;
}

dlc_status dlc_onnx_register(dlc_context *context, const dlc_onnx_operator_options *options) {
    GRAPH_REGISTER("dlc_onnx_register", GRAPH_ONNX_OPERATOR, define);
}

#else

dlc_status dlc_onnx_register(dlc_context *context, const dlc_onnx_operator_options *options) {
    lib_error error;
    if (options && options->struct_size == sizeof *options && options->release) options->release(options->user);
    lib_fail(&error, DLC_UNSUPPORTED, "dlc_onnx_register: this build of libdlc has no ONNX");
    return jit_fail(context, &error);
}
int dlc_callback_opset(const dlc_callback *callback) {
    (void)callback;
    return 0;
}
int dlc_callback_result_count(const dlc_callback *callback) {
    (void)callback;
    return 0;
}
const dlc_onnx_value *dlc_callback_attribute(const dlc_callback *callback, const char *name) {
    (void)callback, (void)name;
    return NULL;
}
bool dlc_callback_elements(dlc_callback *callback, int input, const int64_t **list, int *count) {
    (void)callback, (void)input, (void)list, (void)count;
    return false;
}
DLTensor *dlc_callback_tensor(dlc_callback *callback, int result, dlc_dtype dtype, int rank, const int64_t *shape) {
    (void)callback, (void)result, (void)dtype, (void)rank, (void)shape;
    return NULL;
}
dlc_status dlc_callback_strings(dlc_callback *callback, int result, int rank, const int64_t *shape,
                                const dlc_onnx_string *strings) {
    (void)callback, (void)result, (void)rank, (void)shape, (void)strings;
    return DLC_UNSUPPORTED;
}
#endif
