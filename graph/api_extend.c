/* <dlc/extend.h>: registration, and calls of registered functions. A host function gets a handle (graph_handle_borrow) to the
 * graph that the compiler is building, valid during the call. No error propagates through host functions: builder calls catch
 * raised errors, and these are raised again here after the function has returned. */
#include "graph/api_internal.h"
#include "graph/build.h"
#include "graph/callback.h"
#include "graph/gradient.h"
#include "graph/internal.h"
#include "graph/notation.h"

#include <stdio.h>

enum { OPERANDS_MAX = DLC_MAX_RANK, RESULTS_MAX = 8, ATTRIBUTES_MAX = 11 };

static const graph_host_functions *functions_of(const graph_definition *definition) {
    return definition->functions;
}

/* ---- queries of callbacks ---------------------------------------------------------------------------------------- */

dlc_context *dlc_callback_context(const dlc_callback *callback) {
    return callback ? callback->definition->context : NULL;
}

bool graph_is_status(dlc_status status) {
    return (unsigned)status <= DLC_INTERNAL;
}

dlc_status dlc_callback_fail(dlc_callback *callback, dlc_status status, const char *message) {
    if (status == DLC_OK || !graph_is_status(status)) status = DLC_INTERNAL;
    if (!callback) return status;
    return lib_fail(&callback->error, status, "%s", message ? message : "it failed");
}

dlc_graph *dlc_callback_graph(dlc_callback *callback) {
    return callback && callback->builds ? callback->graph : NULL;
}

int dlc_callback_input_count(const dlc_callback *callback) {
    return callback ? callback->inputs : 0;
}

dlc_value dlc_callback_input(const dlc_callback *callback, int input) {
    if (!callback || !callback->graph || input < 0 || input >= callback->inputs || !callback->input[input])
        return (dlc_value){NULL, 0, 0};
    return graph_handle_value(callback->graph, callback->input[input]);
}

static dlc_value value_among(const dlc_callback *callback, const graph_id *values, int result) {
    if (!values || result < 0 || result >= callback->results || !values[result]) return (dlc_value){NULL, 0, 0};
    return graph_handle_value(callback->graph, values[result]);
}

dlc_value dlc_callback_result(const dlc_callback *callback, int result) {
    return value_among(callback, callback ? callback->result : NULL, result);
}

dlc_value dlc_callback_cotangent(const dlc_callback *callback, int result) {
    return value_among(callback, callback ? callback->cotangent : NULL, result);
}

dlc_value dlc_callback_match(const dlc_callback *callback, const char *name) {
    for (int i = 0; callback && name && callback->match && i < callback->match->values; i++)
        if (strcmp(callback->match->value[i].name, name) == 0)
            return graph_handle_value(callback->graph, callback->match->value[i].value);
    return graph_poison();
}

dlc_value dlc_callback_value(const dlc_callback *callback, dlc_value old) {
    bool known = callback && callback->walk && old.graph == callback->old && dlc_value_ok(old);
    graph_id now = known ? callback->walk->map[old.id] : 0;
    return now ? graph_handle_value(callback->graph, now) : graph_poison();
}

typedef struct copy_arguments {
    const char *text;
    const char **copy;
} copy_arguments;

static void copy_text(dlc_graph *handle, void *arguments) {
    const copy_arguments *a = arguments;
    *a->copy = lib_arena_string(handle->arena, a->text);
}

dlc_status dlc_callback_set_schedule(dlc_callback *callback, const char *schedule) {
    if (!callback || !callback->arena || !schedule)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT,
                                 "dlc_callback_set_schedule: no text, or no schedule is asked for");
    copy_arguments a = {schedule, &callback->schedule};
    dlc_graph scope = {.context = callback->definition->context,
                       .arena = callback->arena}; /* catches errors of copying */
    if (graph_handle_work(&scope, copy_text, &a) == DLC_OK) return DLC_OK;
    return dlc_callback_fail(callback, scope.error.status, scope.error.message);
}

/* ---- attributes ------------------------------------------------------------------------------------------------ */

/* The attribute of that name and its *spec; NULL: there is none. */
static const graph_attribute *attribute_named(const graph_op *op, const graph_attribute *attributes, const char *name,
                                              const graph_attribute_spec **spec) {
    int at = op && attributes && name ? graph_op_attribute(op, name) : -1;
    if (at < 0) return NULL;
    *spec = &op->attribute[at];
    return &attributes[at];
}

static bool get_integer(const graph_attribute_spec *spec, const graph_attribute *attribute, int64_t *value) {
    bool fits = attribute &&
                (spec->kind == GRAPH_ATTR_INTEGER || spec->kind == GRAPH_ATTR_BOOL || spec->kind == GRAPH_ATTR_DTYPE);
    if (fits && value) *value = attribute->integer;
    return fits;
}

static bool get_number(const graph_attribute_spec *spec, const graph_attribute *attribute, double *value) {
    bool real = attribute && spec->kind == GRAPH_ATTR_FLOAT, whole = attribute && spec->kind == GRAPH_ATTR_INTEGER;
    if (value && (real || whole)) *value = real ? attribute->number : (double)attribute->integer;
    return real || whole;
}

static bool get_string(const graph_attribute_spec *spec, const graph_attribute *attribute, const char **value,
                       size_t *length) {
    size_t size = 0;
    const char *text = NULL;
    if (attribute && spec->kind == GRAPH_ATTR_STRING) text = attribute->string, size = strlen(text);
    if (attribute && spec->kind == GRAPH_ATTR_ENUM) text = graph_choice_word(spec->choices, attribute->integer, &size);
    if (text && value) *value = text;
    if (text && length) *length = size;
    return text != NULL;
}

static bool get_list(const graph_attribute_spec *spec, const graph_attribute *attribute, const int64_t **list,
                     int *count) {
    if (!attribute || spec->kind != GRAPH_ATTR_INTEGERS) return false;
    if (list) *list = attribute->list;
    if (count) *count = attribute->count;
    return true;
}

const graph_named_attribute *graph_callback_named(const dlc_callback *c, const char *name) {
    for (int i = 0; c && name && i < c->named_count; i++)
        if (strcmp(c->named[i].spec.name, name) == 0) return &c->named[i];
    return NULL;
}

/* The attribute that `name` stands for in a callback: a name in the rule's pattern, an attribute of the ONNX node, or of the row. */
static const graph_attribute *attribute_of(const dlc_callback *c, const char *name, const graph_attribute_spec **spec) {
    for (int i = 0; c && name && c->match && i < c->match->attributes; i++)
        if (strcmp(c->match->attribute[i].name, name) == 0) {
            *spec = c->match->attribute[i].spec;
            return c->match->attribute[i].attribute;
        }
    const graph_named_attribute *named = graph_callback_named(c, name);
    if (named) *spec = &named->spec;
    if (named) return &named->attribute;
    return c ? attribute_named(c->op, c->attribute, name, spec) : NULL;
}

bool dlc_callback_integer(const dlc_callback *callback, const char *name, int64_t *value) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_of(callback, name, &spec);
    return get_integer(spec, attribute, value);
}

bool dlc_callback_number(const dlc_callback *callback, const char *name, double *value) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_of(callback, name, &spec);
    return get_number(spec, attribute, value);
}

bool dlc_callback_string(const dlc_callback *callback, const char *name, const char **value, size_t *length) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_of(callback, name, &spec);
    return get_string(spec, attribute, value, length);
}

bool dlc_callback_list(const dlc_callback *callback, const char *name, const int64_t **list, int *count) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_of(callback, name, &spec);
    return get_list(spec, attribute, list, count);
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

int dlc_graph_node_count(const dlc_graph *handle) {
    return graph_handle_live(handle) ? (int)handle->g->nodes.count : 0;
}

dlc_node dlc_graph_node(const dlc_graph *handle, int index) {
    if (index < 0 || index >= dlc_graph_node_count(handle)) return (dlc_node){NULL, 0, 0};
    return (dlc_node){handle, (uint32_t)index, handle->serial};
}

dlc_node dlc_value_node(dlc_value value) {
    if (!dlc_value_ok(value)) return (dlc_node){NULL, 0, 0};
    return (dlc_node){value.graph, value.graph->g->values.data[value.id].node, value.serial};
}

bool dlc_node_ok(dlc_node node) {
    return graph_handle_live(node.graph) && node.serial == node.graph->serial &&
           node.index < node.graph->g->nodes.count;
}

static const graph_node *node_of(dlc_node node) {
    return dlc_node_ok(node) ? &node.graph->g->nodes.data[node.index] : NULL;
}

const char *dlc_node_operator(dlc_node node) {
    const graph_node *n = node_of(node);
    return n ? n->op->name : "";
}

int dlc_node_input_count(dlc_node node) {
    const graph_node *n = node_of(node);
    return n ? n->inputs : 0;
}

int dlc_node_result_count(dlc_node node) {
    const graph_node *n = node_of(node);
    return n ? n->results : 0;
}

static dlc_value value_of(dlc_node node, graph_id id) {
    return id ? graph_handle_value((dlc_graph *)(uintptr_t)node.graph, id) : (dlc_value){NULL, 0, 0};
}

dlc_value dlc_node_input(dlc_node node, int input) {
    const graph_node *n = node_of(node);
    return n && input >= 0 && input < n->inputs ? value_of(node, n->input[input]) : (dlc_value){NULL, 0, 0};
}

dlc_value dlc_node_result(dlc_node node, int result) {
    const graph_node *n = node_of(node);
    return n && result >= 0 && result < n->results ? value_of(node, n->first + (graph_id)result)
                                                   : (dlc_value){NULL, 0, 0};
}

static const graph_attribute *attribute_in(dlc_node node, const char *name, const graph_attribute_spec **spec) {
    const graph_node *n = node_of(node);
    return n ? attribute_named(n->op, n->attribute, name, spec) : NULL;
}

bool dlc_node_integer(dlc_node node, const char *name, int64_t *value) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_in(node, name, &spec);
    return get_integer(spec, attribute, value);
}

bool dlc_node_number(dlc_node node, const char *name, double *value) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_in(node, name, &spec);
    return get_number(spec, attribute, value);
}

bool dlc_node_string(dlc_node node, const char *name, const char **value, size_t *length) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_in(node, name, &spec);
    return get_string(spec, attribute, value, length);
}

bool dlc_node_list(dlc_node node, const char *name, const int64_t **list, int *count) {
    const graph_attribute_spec *spec = NULL;
    const graph_attribute *attribute = attribute_in(node, name, &spec);
    return get_list(spec, attribute, list, count);
}

const void *dlc_value_constant(dlc_value value, size_t *bytes) {
    const graph_constant *constant = dlc_value_ok(value) ? graph_constant_of(value.graph->g, value.id) : NULL;
    if (!constant) return NULL;
    if (bytes) *bytes = constant->size;
    const graph_holder *holder = constant->holder;
    return holder && holder->read ? holder->read(constant->holder, constant->bytes) : constant->bytes;
}

/* ---- any operator by its name ---------------------------------------------------------------------------------- */

typedef struct apply_arguments {
    const char *name;
    int settings;
    const dlc_setting *setting;
    /* by dlc_apply, which gives the result itself */
    bool single;
    const graph_op *op;
    graph_api_attribute attribute[sizeof((graph_op *)0)->attribute / sizeof *((graph_op *)0)->attribute];
} apply_arguments;

/* By kind of attribute: the kind of setting that it takes, and what messages expect. */
static const struct setting_of {
    dlc_setting_kind kind;
    const char *expected;
} setting_of[] = {
    [GRAPH_ATTR_INTEGER] = {DLC_SETTING_INTEGER, "an integer"},
    [GRAPH_ATTR_FLOAT] = {DLC_SETTING_NUMBER, "a number"},
    [GRAPH_ATTR_BOOL] = {DLC_SETTING_INTEGER, "true or false, an integer"},
    [GRAPH_ATTR_DTYPE] = {DLC_SETTING_INTEGER, "an element type, an integer"},
    [GRAPH_ATTR_ENUM] = {DLC_SETTING_STRING, "a word, a string"},
    [GRAPH_ATTR_STRING] = {DLC_SETTING_STRING, "a string"},
    [GRAPH_ATTR_INTEGERS] = {DLC_SETTING_LIST, "a list of integers"},
    [GRAPH_ATTR_DIMS] = {DLC_SETTING_DIMS, "dimensions"},
    [GRAPH_ATTR_SUBGRAPH] = {DLC_SETTING_SUBGRAPH, "a sub-graph"},
    [GRAPH_ATTR_CONSTANT] = {(dlc_setting_kind)0, "a function of its own"},
};

static void check_kind(lib_scope *scope, const graph_op *op, const graph_attribute_spec *spec, const dlc_setting *s) {
    static const char *const names[] = {"nothing",    "an integer", "a number", "a string", "a list of integers",
                                        "dimensions", "a sub-graph"};
    const struct setting_of *of = &setting_of[spec->kind];
    if (s->kind && s->kind == of->kind) return;
    if (spec->kind == GRAPH_ATTR_FLOAT && s->kind == DLC_SETTING_INTEGER) return;
    lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: attribute %s is set to %s, expected %s", op->name, s->name,
              (unsigned)s->kind < sizeof names / sizeof *names ? names[s->kind] : "what is no kind of setting",
              of->expected);
}

static void find_operator(dlc_graph *handle, void *arguments) {
    apply_arguments *a = arguments;
    lib_scope *scope = handle->arena->scope;
    if (!a->name) lib_raise(scope, DLC_NOT_FOUND, "dlc_apply: the operator's name is NULL");
    const graph_op *op = a->op = graph_find_op(handle->g, a->name);
    if (!op) {
        lib_nearest nearest = graph_nearest_op(handle->g, a->name);
        lib_raise(scope, DLC_NOT_FOUND, "dlc_apply: there is no operator %s%s", a->name, lib_nearest_hint(&nearest));
    }
    if (graph_is_source(op))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_apply: %s has a function of its own", op->name);
    if (a->single && op->results > 1)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_apply: %s has %d results: use dlc_apply_all", op->name,
                  op->results);
    if (a->settings < 0 || (a->settings && !a->setting))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: %d settings at NULL, or a count below 0", op->name, a->settings);
    for (int i = 0; i < a->settings; i++) {
        const dlc_setting *s = &a->setting[i];
        int at = s->name ? graph_op_attribute(op, s->name) : -1;
        if (at < 0) {
            const graph_hint hint = graph_attribute_hint(op, s->name);
            lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: there is no attribute %s%s", op->name,
                      s->name ? s->name : "without a name", hint.text);
        }
        if (a->attribute[at].given)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: attribute %s is given twice", op->name, s->name);
        check_kind(scope, op, &op->attribute[at], s);
        a->attribute[at] =
            (graph_api_attribute){true, s->integer, s->number, s->string, s->count, s->list, s->dims, s->subgraph};
        if (op->attribute[at].kind != GRAPH_ATTR_ENUM || !s->string) continue;
        a->attribute[at].integer = graph_choice_find(op->attribute[at].choices, s->string);
        if (a->attribute[at].integer < 0) {
            lib_nearest nearest = lib_nearest_to(s->string);
            lib_nearest_try_list(&nearest, op->attribute[at].choices);
            lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: %s is \"%s\", expected one of: %s%s", op->name, s->name,
                      s->string, op->attribute[at].choices, lib_nearest_hint(&nearest));
        }
    }
}

static void apply(dlc_graph *handle, apply_arguments *a, int input_count, const dlc_value *inputs, int result_count,
                  dlc_value *results) {
    for (int i = 0; results && i < result_count; i++) results[i] = graph_poison();
    if (!graph_handle_live(handle)) {
        graph_fail_without_graph(NULL, DLC_INVALID_ARGUMENT, "dlc_apply: the graph is NULL or destroyed");
        return;
    }
    if (graph_handle_work(handle, find_operator, a) != DLC_OK) return;
    const graph_api_call call = {.name = a->op->name,
                                 .graph = handle,
                                 .more = input_count,
                                 .more_input = inputs,
                                 .attributes = a->attribute,
                                 .count = result_count,
                                 .results = results};
    graph_api_emit_row(a->op, &call);
}

void dlc_apply_all(dlc_graph *handle, const char *name, int input_count, const dlc_value *inputs, int setting_count,
                   const dlc_setting *settings, int result_count, dlc_value *results) {
    apply_arguments a = {.name = name, .settings = setting_count, .setting = settings};
    apply(handle, &a, input_count, inputs, result_count, results);
}

dlc_value dlc_apply(dlc_graph *handle, const char *name, int input_count, const dlc_value *inputs, int setting_count,
                    const dlc_setting *settings) {
    apply_arguments a = {.name = name, .settings = setting_count, .setting = settings, .single = true};
    dlc_value result;
    apply(handle, &a, input_count, inputs, 1, &result);
    return result;
}

/* ---- calling --------------------------------------------------------------------------------------------------- */

dlc_graph *graph_callback_borrow(const graph_definition *definition, const graph *g, lib_arena *arena, graph_use use) {
    dlc_graph *handle = graph_handle_borrow(definition->context, g, arena, use);
    if (!handle) lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: a graph's handle");
    return handle;
}

void graph_callback_settle(dlc_callback *c, dlc_status status, int count, const dlc_value *values, graph_id *ids) {
    lib_error *error = &c->error;
    if (c->graph && c->graph->error.status != DLC_OK)
        *error = c->graph->error;
    else if (status == DLC_OK || error->status != DLC_OK)
        ; /* no error, or the one reported by dlc_callback_fail, which takes precedence over the returned status */
    else if (graph_is_status(status))
        lib_fail(error, status, "it failed: %s", lib_status_text(status));
    else
        lib_fail(error, DLC_INTERNAL, "it returned %d, which is no status", (int)status);
    for (int i = 0; i < count && error->status == DLC_OK; i++) {
        ids[i] = 0;
        if (!values[i].graph && !values[i].id) continue;
        if (dlc_value_ok(values[i]) && values[i].graph == c->graph)
            ids[i] = values[i].id;
        else
            lib_fail(error, DLC_INVALID_ARGUMENT, "result %d is no value of the graph that it was to build in", i);
    }
}

static _Noreturn void raise_from(const dlc_callback *c, lib_scope *scope, const char *what) {
    lib_raise(scope, c->error.status, "%s %s: %s", what, c->definition->name, c->error.message);
}

/* Sets operands, results and attributes of the callback to those of the ONNX node, of which operands may be left out. */
static void take_node(dlc_callback *c, const graph_host_node *node, lib_arena *arena) {
    graph_id *all = LIB_NEW_ARRAY(arena, graph_id, (size_t)node->inputs + 1);
    for (int i = 0; i < node->inputs; i++) all[i] = node->place[i] < 0 ? 0 : c->input[node->place[i]];
    c->inputs = node->inputs, c->input = all, c->results = node->results;
    c->version = node->version, c->named = node->named, c->named_count = node->named_count;
}

/* Sets result shapes by the host's function; the number of results may vary. */
void graph_infer_by_host(graph_infer *infer) {
    const graph_definition *d = infer->op->host;
    dlc_callback c = {.definition = d, .op = infer->op, .attribute = infer->attribute, .infer = infer};
    for (int i = 0; i < infer->results; i++) infer->result[i].rank = -1;
    c.inputs = infer->inputs;
    c.input = infer->input;
    if (functions_of(d)->node) take_node(&c, functions_of(d)->node, infer->g->arena);
    c.graph = graph_callback_borrow(d, infer->g, infer->g->arena, GRAPH_READ);
    graph_callback_settle(&c, functions_of(d)->shape(d->user, &c), 0, NULL, NULL);
    graph_handle_return(c.graph);
    if (lib_is_circumstance(c.error.status)) lib_raise_error(infer->g->arena->scope, &c.error);
    if (c.error.status != DLC_OK) graph_infer_raise(infer, c.error.status, c.error.message);
    for (int i = 0; i < infer->results; i++)
        if (infer->result[i].rank < 0) graph_infer_fail(infer, "its shape rule has not set result %d", i);
}

typedef struct shape_arguments {
    dlc_callback *callback;
    int result, rank;
    dlc_dtype dtype;
    const dlc_dim *dims;
} shape_arguments;

static void set_shape(dlc_graph *handle, void *arguments) {
    const shape_arguments *a = arguments;
    graph_infer *infer = a->callback->infer;
    lib_scope *scope = handle->arena->scope;
    if (!infer || a->result < 0 || a->result >= infer->results)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_callback_set_shape: result %d does not exist", a->result);
    if ((unsigned)a->dtype >= DLC_DTYPE_COUNT || !lib_dtypes[a->dtype].usable)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_callback_set_shape: %d is no supported element type",
                  (int)a->dtype);
    if (a->rank < 0 || a->rank > DLC_MAX_RANK || (a->rank && !a->dims))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_callback_set_shape: rank is %d, expected 0 to %d, and dimensions",
                  a->rank, DLC_MAX_RANK);
    graph_shape shape = {.dtype = a->dtype, .rank = a->rank};
    for (int i = 0; i < a->rank; i++) shape.dim[i] = graph_api_dim(handle->g, &a->dims[i], "dlc_callback_set_shape");
    infer->result[a->result] = shape;
}

dlc_status dlc_callback_set_shape(dlc_callback *callback, int result, dlc_dtype dtype, int rank, const dlc_dim *dims) {
    if (!callback || !callback->infer)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "dlc_callback_set_shape: this is no shape rule");
    shape_arguments a = {callback, result, rank, dtype, dims};
    return graph_handle_work(callback->graph, set_shape, &a);
}

/* Raises unless the expansion's results have the shapes of the shape rule; sizes that depend on symbols are compared at bind. */
static void check_expansion(const graph_expand *e) {
    graph *g = e->g;
    graph_infer infer = {
        .g = g, .op = e->op, .inputs = e->inputs, .input = e->input, .written = e->input, .attribute = e->attribute};
    infer.operand = LIB_NEW_ARRAY(g->arena, graph_shape, (size_t)e->inputs);
    for (int i = 0; i < e->inputs; i++)
        infer.operand[i] = e->input[i] ? *graph_shape_of(g, e->input[i]) : (graph_shape){.rank = -1};
    infer.results = e->op->results;
    infer.result = LIB_NEW_ARRAY(g->arena, graph_shape, (size_t)infer.results);
    e->op->infer(&infer);
    for (int r = 0; r < infer.results; r++) {
        const graph_shape *wanted = &infer.result[r], got = *graph_shape_of(g, e->result[r]);
        lib_text text;
        lib_text_init(&text, g->arena);
        lib_text_format(&text, "operator %s: result %d of the expansion is ", e->op->name, r);
        graph_describe_shape(&text, g, &got);
        lib_text_add(&text, ", by the shape rule ");
        graph_describe_shape(&text, g, wanted);
        bool same = got.dtype == wanted->dtype && got.rank == wanted->rank;
        for (int i = 0; same && i < got.rank; i++) same = tir_equal(g->pool, got.dim[i], wanted->dim[i]) != TIR_NO;
        if (!same) lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s", text.data);
        for (int i = 0; i < got.rank; i++) graph_require_equal(g, got.dim[i], wanted->dim[i], "%s", text.data);
    }
}

static void expand_by_host(graph_expand *e) {
    const graph_definition *d = e->op->host;
    lib_scope *scope = e->g->arena->scope;
    uint32_t before = e->g->nodes.count;
    dlc_value results[RESULTS_MAX] = {{NULL, 0, 0}};
    dlc_callback c = {.definition = d, .op = e->op, .attribute = e->attribute, .builds = true};
    c.inputs = e->inputs;
    c.input = e->input;
    c.graph = graph_callback_borrow(d, e->g, e->g->arena, GRAPH_BORROWED);
    dlc_status status = functions_of(d)->expand(d->user, &c, e->op->results, results);
    graph_callback_settle(&c, status, e->op->results, results, e->result);
    graph_handle_return(c.graph);
    if (c.error.status != DLC_OK) raise_from(&c, scope, "operator");
    for (int r = 0; r < e->op->results; r++)
        if (!e->result[r])
            lib_raise(scope, DLC_INVALID_ARGUMENT, "operator %s: the expansion has not set result %d", e->op->name, r);
    for (uint32_t i = before; i < e->g->nodes.count; i++)
        if (e->g->nodes.data[i].op == e->op)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "operator %s: its expansion contains itself", e->op->name);
    check_expansion(e);
}

/* The results of a node, and their cotangents: zeros where a result has no influence, none where it is of no float type. */
static void take_results(dlc_callback *c, const graph_rule *rule) {
    graph *g = rule->g;
    graph_id *result = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->results),
             *cotangent = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->results);
    for (int r = 0; r < rule->results; r++) {
        const dlc_dtype dtype = graph_shape_of(g, result[r] = rule->first + (graph_id)r)->dtype;
        cotangent[r] = rule->cotangent[r];
        if (!cotangent[r] && (lib_dtype_is_float(dtype) || dtype == DLC_C64))
            cotangent[r] = graph_full_like(g, graph_rule_result(rule, r), 0);
    }
    c->results = rule->results, c->result = result, c->cotangent = cotangent;
}

/* Raises unless the cotangent has the shape of its operand, and its element type or that of derivatives. */
static void check_cotangent(const graph_rule *rule, int operand, graph_id cotangent) {
    graph *g = rule->g;
    const graph_shape *is = graph_shape_of(g, cotangent), *of = graph_shape_of(g, rule->input[operand]);
    char name[32];
    bool optional, same = is->rank == of->rank;
    lib_text text;
    lib_text_init(&text, g->arena);
    graph_op_operand(rule->op, operand, name, &optional);
    lib_text_format(&text, "its gradient has set the cotangent of operand %s to ", name);
    graph_describe_shape(&text, g, is);
    lib_text_add(&text, ", expected ");
    graph_describe_shape(&text, g, of);
    same = same && (is->dtype == of->dtype || is->dtype == graph_tangent_dtype(of->dtype));
    for (int d = 0; same && d < is->rank; d++) same = tir_equal(g->pool, is->dim[d], of->dim[d]) != TIR_NO;
    if (!same) lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s", text.data);
    for (int d = 0; d < is->rank; d++) graph_require_equal(g, is->dim[d], of->dim[d], "%s", text.data);
}

/* Cotangents by the host's function. A rule may ask for derivatives, of other operators or of its own on other operands; one that does so
 * without end is refused at a depth. */
static void differentiate_by_host(graph_rule *rule) {
    enum { DEPTH = 16 };
    const graph_definition *d = rule->op->host;
    graph *g = rule->g, *outermost = graph_outermost(g);
    const uint32_t names = outermost->scope;
    dlc_value *values = LIB_NEW_ARRAY(g->arena, dlc_value, (size_t)rule->inputs);
    graph_id *ids = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->inputs);
    if (outermost->rules == DEPTH)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                  "its gradient, or that of an operator in it, asks for its own gradient, deeper than %d", DEPTH);
    dlc_callback c = {.definition = d, .op = rule->op, .attribute = rule->attribute, .builds = true};
    c.inputs = rule->inputs;
    c.input = rule->input;
    take_results(&c, rule);
    c.graph = graph_callback_borrow(d, g, g->arena, GRAPH_BORROWED);
    outermost->rules++;
    const dlc_status status = functions_of(d)->gradient(d->user, &c, rule->inputs, values);
    outermost->rules--;
    graph_callback_settle(&c, status, rule->inputs, values, ids);
    graph_handle_return(c.graph);
    outermost->scope = names;
    if (c.error.status != DLC_OK) lib_raise_error(g->arena->scope, &c.error);
    for (int k = 0; k < rule->inputs; k++) {
        if (!ids[k] || !rule->wanted[k]) continue;
        check_cotangent(rule, k, ids[k]);
        rule->out[k] = graph_widen(g, ids[k]);
    }
}

/* Called at run time, without scope or arena. */
static dlc_status invoke_by_host(const graph_definition *d, const graph_custom *custom, int inputs,
                                 const DLTensor *const *input, int outputs, DLTensor *const *output, lib_error *error) {
    dlc_callback c = {.definition = d, .op = custom->op, .attribute = custom->attribute};
    graph_callback_settle(&c, functions_of(d)->call(d->user, &c, inputs, input, outputs, output), 0, NULL, NULL);
    if (c.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, c.error.status, "operator %s: %s", d->name, c.error.message);
}

static graph_id replace_by_host(const graph_definition *d, const graph_match *match) {
    dlc_value result = {NULL, 0, 0};
    graph_id id = 0;
    dlc_callback c = {.definition = d, .match = match, .builds = true};
    c.graph = graph_callback_borrow(d, match->g, match->g->arena, GRAPH_BORROWED);
    graph_callback_settle(&c, functions_of(d)->replace(d->user, &c, &result), 1, &result, &id);
    graph_handle_return(c.graph);
    if (c.error.status != DLC_OK) lib_raise_error(match->g->arena->scope, &c.error);
    return id;
}

const char *graph_ask_schedule(const graph_definition *d, lib_arena *arena, const dlc_region *region) {
    dlc_callback c = {.definition = d, .arena = arena};
    const graph_host_functions *functions = functions_of(d);
    if (functions->region && strcmp(functions->region, region->name) != 0) return NULL;
    graph_callback_settle(&c, functions->schedule(d->user, &c, region), 0, NULL, NULL);
    if (c.error.status != DLC_OK) raise_from(&c, arena->scope, "schedule");
    return c.schedule;
}

/* ---- passes ---------------------------------------------------------------------------------------------------- */

static void ask_pass(graph_walk *walk, uint32_t index) {
    const graph_definition *d = walk->user;
    const graph_node *node = &walk->from->nodes.data[index];
    lib_arena *arena = walk->to->arena;
    dlc_value *results = LIB_NEW_ARRAY(arena, dlc_value, (size_t)node->results);
    graph_id *ids = LIB_NEW_ARRAY(arena, graph_id, (size_t)node->results);
    dlc_callback c = {.definition = d, .walk = walk, .builds = true};
    c.graph = graph_callback_borrow(d, walk->to, arena, GRAPH_BORROWED);
    c.old = graph_handle_borrow(d->context, walk->from, arena, GRAPH_READ);
    if (!c.old) {
        graph_handle_return(c.graph);
        lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: a graph's handle");
    }
    for (int i = 0; i < node->results; i++)
        results[i] = graph_handle_value(c.graph, walk->map[node->first + (graph_id)i]);
    dlc_node asked = dlc_graph_node(c.old, (int)index);
    graph_callback_settle(&c, functions_of(d)->pass(d->user, &c, asked, node->results, results), node->results, results,
                          ids);
    graph_handle_return(c.old);
    graph_handle_return(c.graph);
    if (c.error.status != DLC_OK) raise_from(&c, arena->scope, "pass");
    for (int i = 0; i < node->results; i++) {
        graph_id was = walk->map[node->first + (graph_id)i];
        if (!ids[i])
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "pass %s: result %d of %s is none", d->name, i,
                      node->op->name);
        if (ids[i] != was) graph_require_same_shape(walk->to, was, ids[i]);
    }
    graph_walk_record(walk, node, ids);
}

static void pass_by_host(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        if (!live[i]) continue;
        graph_walk_node(walk, i);
        if (!graph_is_source(walk->from->nodes.data[i].op)) ask_pass(walk, i);
    }
}

/* Runs the pass; errors are reported with its name. */
static graph *run_pass(lib_arena *arena, const graph *g, const graph_definition *d) {
    lib_scope *const outer = arena->scope;
    lib_scope inner;
    graph *volatile next = NULL;
    arena->scope = &inner;
    if (LIB_ENTER(&inner)) next = graph_walk_run(arena, g, g->phase, NULL, pass_by_host, (void *)(uintptr_t)d);
    arena->scope = outer;
    if (next) return next;
    if (strncmp(inner.error.message, "pass ", 5) == 0) lib_raise_error(outer, &inner.error);
    lib_raise(outer, inner.error.status, "pass %s: %s", d->name, inner.error.message);
}

graph *graph_apply_passes(lib_arena *arena, const graph *g, bool late) {
    const graph_definition *const *pass = graph_registry_list(arena, g->registry, GRAPH_PASS);
    for (; *pass; pass++)
        if ((*pass)->late == late) g = run_pass(arena, g, *pass);
    return (graph *)(uintptr_t)g;
}

/* ---- registration ---------------------------------------------------------------------------------------------- */

static void check_words(lib_arena *arena, const char *dtypes) {
    for (const char *word = dtypes; *word; word += strspn(word, " ")) {
        graph_op one = {.dtypes = lib_arena_format(arena, "%.*s", (int)strcspn(word, " "), word)};
        bool any = false;
        for (dlc_dtype d = 0; d < DLC_DTYPE_COUNT; d++) any = any || graph_op_accepts(&one, d);
        if (!any && *one.dtypes)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "dtypes: \"%s\" is no supported element type and no class of them", one.dtypes);
        word += strcspn(word, " ");
    }
}

static bool is_word(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t length = strlen(name);
    if (!length || length > 30 || !strchr(letters, *name)) return false;
    for (const char *c = name; *c; c++)
        if (!strchr(letters, *c) && !strchr("0123456789", *c)) return false;
    return true;
}

static void take_operands(lib_arena *arena, graph_op *op, const char *operands) {
    bool optional = false, before = false;
    char name[32], other[32];
    if (!operands || !operands[strspn(operands, " ")])
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "operands: expected their names");
    lib_text text;
    lib_text_init(&text, arena);
    for (const char *word = operands + strspn(operands, " "); *word; word += strspn(word, " ")) {
        int length = (int)strcspn(word, " ");
        lib_text_format(&text, "%s%.*s", text.length ? " " : "", length, word);
        word += length;
        op->max_inputs++;
    }
    op->operands = text.data;
    if (op->max_inputs > OPERANDS_MAX)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%d operands, at most %d", op->max_inputs, OPERANDS_MAX);
    for (int i = 0; i < op->max_inputs; i++) {
        graph_op_operand(op, i, name, &optional);
        if (before && !optional)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "operand %s follows one that may be left out: those stand last", name);
        if (!is_word(name)) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "operands: \"%s\" is no name", name);
        op->min_inputs += !optional;
        before = optional;
        for (int k = 0; k < i; k++) {
            bool ignored;
            graph_op_operand(op, k, other, &ignored);
            if (strcmp(name, other) == 0)
                lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "two operands are called %s", name);
        }
    }
}

/* Raises if the kind of the attribute has no such choices, or no such default. */
static void check_choices_and_default(lib_arena *arena, const graph_attribute_spec *spec) {
    if (spec->kind == GRAPH_ATTR_ENUM &&
        (!spec->choices || !is_word(lib_arena_format(arena, "%.*s", (int)strcspn(spec->choices, " "), spec->choices))))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute %s: expected choices, words separated by blanks",
                  spec->name);
    if (spec->initial && strcmp(spec->initial, "auto") == 0 && spec->kind != GRAPH_ATTR_STRING &&
        spec->kind != GRAPH_ATTR_ENUM)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute %s: \"auto\" is no value of it", spec->name);
    if (spec->initial && spec->kind != GRAPH_ATTR_STRING && spec->kind != GRAPH_ATTR_INTEGERS && !*spec->initial)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute %s: its default is empty; NULL: it has none",
                  spec->name);
    if (spec->kind == GRAPH_ATTR_ENUM && spec->initial && graph_choice_find(spec->choices, spec->initial) < 0)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute %s: its default \"%s\" is none of its choices: %s",
                  spec->name, spec->initial, spec->choices);
}

static void take_attributes(lib_arena *arena, graph_op *op, const dlc_operator_attribute *given) {
    static const graph_attribute_kind kinds[] = {GRAPH_ATTR_INTEGER, GRAPH_ATTR_FLOAT, GRAPH_ATTR_BOOL,
                                                 GRAPH_ATTR_DTYPE,   GRAPH_ATTR_ENUM,  GRAPH_ATTR_STRING,
                                                 GRAPH_ATTR_INTEGERS};
    graph *scratch = graph_new(arena, NULL);
    for (int i = 0; given && given[i].name; i++) {
        graph_attribute_spec spec = {.name = lib_arena_string(arena, given[i].name),
                                     .choices = lib_arena_string(arena, given[i].choices),
                                     .initial = lib_arena_string(arena, given[i].initial)};
        if (i == ATTRIBUTES_MAX)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "more than %d attributes", ATTRIBUTES_MAX);
        if (!is_word(spec.name) || graph_op_attribute(op, spec.name) >= 0)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute \"%s\" is no name, or there twice", spec.name);
        if ((unsigned)given[i].kind >= sizeof kinds / sizeof *kinds)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "attribute %s: kind %d does not exist", spec.name,
                      (int)given[i].kind);
        spec.kind = kinds[given[i].kind];
        check_choices_and_default(arena, &spec);
        if (spec.initial) graph_attribute_default(scratch, &spec); /* raises if it does not parse */
        op->attribute[i] = spec;
    }
}

static void check_meaning(lib_scope *scope, const dlc_operator_options *o) {
    int meanings = (o->expression != NULL) + (o->expand != NULL) + (o->call != NULL);
    if (meanings != 1)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%d of expression, expand and call are set, expected one", meanings);
    if (o->shape && o->shape_function)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "shape and shape_function are both set, expected one");
    if (o->expression && o->shape_function)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "an expression's shape rule is text, or what it says itself");
    if (!o->shape && !o->shape_function && !o->expression)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "there is no shape rule: set shape or shape_function");
    if (o->result_count < 0 || o->result_count > RESULTS_MAX)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "result_count is %d, expected 0 to %d", o->result_count, RESULTS_MAX);
    if (o->gradient && o->has_effects)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "gradient is set for a function that has effects");
    if (o->has_effects && !o->call)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "has_effects is set, and there is no C function that could have any");
}

static void define_operator(graph_registration *r) {
    const dlc_operator_options *o = r->options;
    graph_definition *d = r->definition;
    lib_arena *arena = &d->arena;
    graph_op *op = &d->op;
    graph_check_operator_name(arena, o->name);
    check_meaning(arena->scope, o);
    d->name = op->name = lib_arena_string(arena, o->name);
    op->host = d;
    op->doc = o->doc ? lib_arena_string(arena, o->doc) : "";
    op->dtypes = o->dtypes && o->dtypes[strspn(o->dtypes, " ")] ? lib_arena_string(arena, o->dtypes) : "any";
    check_words(arena, op->dtypes);
    take_operands(arena, op, o->operands);
    take_attributes(arena, op, o->attributes);
    d->trial = true;
    op->class_ = o->call ? GRAPH_OPAQUE : GRAPH_COMPOSITE;
    graph_notation_define(d, o->shape, o->expression);
    if (o->has_effects) op->algebra = GRAPH_IMPURE;
    if (o->expand) op->expand = expand_by_host, op->precision = GRAPH_NARROW;
    if (o->call) d->invoke = invoke_by_host;
    if (o->call && !o->gradient)
        op->refused = o->has_effects ? "it has effects" : "set `gradient` in its dlc_operator_options";
    if (o->gradient) op->vjp = differentiate_by_host, op->jvp = graph_rule_transpose_cotangents;
    if (o->shape_function) {
        op->results = o->result_count ? o->result_count : 1;
        op->infer = graph_infer_by_host;
    }
    graph_host_functions *functions = LIB_NEW(arena, graph_host_functions);
    *functions = (graph_host_functions){
        .shape = o->shape_function, .expand = o->expand, .call = o->call, .gradient = o->gradient};
    d->functions = functions;
    if (o->expression) graph_notation_try(d);
    d->trial = false;
}

static void take_name(graph_definition *d, const char *name) {
    if (!name || !*name) lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "it needs a name");
    d->name = lib_arena_string(&d->arena, name);
}

static void define_rule(graph_registration *r) {
    const dlc_rule_options *o = r->options;
    graph_definition *d = r->definition;
    take_name(d, o->name);
    if (!o->pattern) lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "there is no pattern");
    if (!o->replacement == !o->replace)
        lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "expected a replacement or a function, one of them");
    graph_host_functions *functions = LIB_NEW(&d->arena, graph_host_functions);
    functions->replace = o->replace;
    d->functions = functions;
    graph_rule_define(d, &graph_context_handles(r->context)->registry, o->pattern, o->replacement, replace_by_host);
}

static void define_pass(graph_registration *r) {
    const dlc_pass_options *o = r->options;
    graph_definition *d = r->definition;
    take_name(d, o->name);
    if (!o->function) lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "there is no function");
    if (o->position != DLC_PASS_FIRST && o->position != DLC_PASS_SIMPLIFIED)
        lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "position %d does not exist", (int)o->position);
    graph_host_functions *functions = LIB_NEW(&d->arena, graph_host_functions);
    functions->pass = o->function;
    d->functions = functions;
    d->late = o->position == DLC_PASS_SIMPLIFIED;
}

static void define_schedule(graph_registration *r) {
    const dlc_schedule_options *o = r->options;
    graph_definition *d = r->definition;
    take_name(d, o->name);
    if (!o->function) lib_raise(d->arena.scope, DLC_INVALID_ARGUMENT, "there is no function");
    graph_host_functions *functions = LIB_NEW(&d->arena, graph_host_functions);
    *functions = (graph_host_functions){.schedule = o->function, .region = lib_arena_string(&d->arena, o->region)};
    d->functions = functions;
}

static dlc_status define_guarded(graph_registration *r, void (*define)(graph_registration *r), lib_error *error) {
    lib_scope scope;
    r->definition->arena.scope = &scope;
    if (LIB_ENTER(&scope)) define(r);
    r->definition->arena.scope = NULL;
    *error = scope.error;
    return scope.error.status;
}

/* Ends a failed registration: frees the definition, calls the host's `release`, and records the error. name: of the definition, put
 * before the message unless that begins with it; NULL: unknown. */
static dlc_status fail(graph_registration *r, graph_owner o, const char *call, const char *name, lib_error *error) {
    lib_error full;
    char which[64] = "";
    const char *said = error->message + (*error->message == '"');
    size_t length = name ? strlen(name) : 0;
    bool begins = length && strncmp(said, name, length) == 0 && strchr("(:\"", said[length]);
    if (length && !begins) snprintf(which, sizeof which, "%.61s: ", name);
    if (r->definition) graph_definition_free(r->definition, graph_context_allocator(r->context));
    if (o.release) o.release(o.user);
    lib_fail(&full, error->status, "%s: %s%s", call, which, error->message);
    return graph_context_fail(r->context, &full);
}

dlc_status graph_register(graph_registration *r, graph_owner o, const char *call, graph_definition_kind kind,
                          const char *name, size_t given, size_t size, void (*define)(graph_registration *r)) {
    lib_error error = {.status = DLC_OK};
    lib_call public_call __attribute__((cleanup(lib_call_leave))) = {.entered = false};
    if (!r->context || !r->options) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "context or options is NULL");
        return fail(r, o, call, NULL, &error);
    }
    if (given != size) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "options.struct_size is %zu, expected %zu (use the _INIT macro)", given,
                 size);
        return fail(r, (graph_owner){NULL, NULL}, call, NULL, &error);
    }
    if (graph_context_enter(r->context, &public_call, LIB_STACK_CALL, &error) != DLC_OK)
        return fail(r, o, call, name, &error);
    r->definition = graph_definition_new(graph_context_allocator(r->context), kind);
    if (!r->definition) {
        lib_fail(&error, DLC_OUT_OF_MEMORY, "out of memory: a definition");
        return fail(r, o, call, name, &error);
    }
    r->definition->context = r->context;
    r->definition->user = o.user;
    r->definition->release = o.release;
    if (define_guarded(r, define, &error) != DLC_OK) return fail(r, o, call, name, &error);
    if (graph_registry_add(&graph_context_handles(r->context)->registry, r->definition)) return DLC_OK;
    lib_fail(&error, DLC_INVALID_ARGUMENT, "one is registered under the name %s already%s", r->definition->name,
             kind == GRAPH_ONNX_OPERATOR ? ", for this domain and some of these versions" : "");
    return fail(r, o, call, name, &error);
}

dlc_status dlc_operator_register(dlc_context *context, const dlc_operator_options *options) {
    GRAPH_REGISTER("dlc_operator_register", GRAPH_OPERATOR, define_operator);
}

dlc_status dlc_rule_register(dlc_context *context, const dlc_rule_options *options) {
    GRAPH_REGISTER("dlc_rule_register", GRAPH_RULE, define_rule);
}

dlc_status dlc_pass_register(dlc_context *context, const dlc_pass_options *options) {
    GRAPH_REGISTER("dlc_pass_register", GRAPH_PASS, define_pass);
}

dlc_status dlc_schedule_register(dlc_context *context, const dlc_schedule_options *options) {
    GRAPH_REGISTER("dlc_schedule_register", GRAPH_SCHEDULE, define_schedule);
}
