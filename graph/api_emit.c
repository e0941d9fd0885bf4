/* The common path of all generated operator functions: finds the graph of the operands, captures values of enclosing graphs,
 * completes sub-graphs, and emits. */
#include "graph/api_call.h"
#include "graph/api_internal.h"
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/origin.h"

/* ---- captures -------------------------------------------------------------------------------------------------- */

graph_id graph_handle_resolve(dlc_graph *handle, dlc_value value, const char *what) {
    lib_scope *scope = handle->arena->scope;
    if (!dlc_value_ok(value))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: a value of a graph that was destroyed, or no value at all", what);
    if (value.graph == handle) return value.id;
    if (!handle->parent)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: a value of another graph; expected values of this graph%s", what,
                  " (in a sub-graph also of the graphs around it)");
    const graph_id outer = graph_handle_resolve(handle->parent, value, what);
    return graph_capture_value(handle->g, handle->parent->g, &handle->captures, outer);
}

/* ---- sub-graphs ------------------------------------------------------------------------------------------------ */

static int64_t complete_subgraph(graph *g, const dlc_graph *sub, const graph_captured *captured) {
    const graph_unfinished unfinished = {sub->g, sub->parameters.count, sub->parameters.data, &sub->captures};
    return graph_complete_subgraph(g, &unfinished, captured);
}

/* ---- attributes ------------------------------------------------------------------------------------------------ */

static graph_attribute convert_attribute(dlc_graph *handle, const graph_op *op, const graph_attribute_spec *spec,
                                         const graph_api_attribute *given) {
    graph *g = handle->g;
    lib_scope *scope = g->arena->scope;
    graph_attribute out = {.given = given->given,
                           .integer = given->integer,
                           .number = given->number,
                           .string = given->string,
                           .list = given->list,
                           .count = given->count};
    if (!given->given) return out;
    if (spec->kind == GRAPH_ATTR_STRING && !given->string)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: %s is NULL, expected a string", op->name, spec->name);
    if (spec->kind != GRAPH_ATTR_DIMS) return out;
    if (given->count < 0 || given->count > DLC_MAX_RANK || (given->count && !given->dims))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: %s: %d dimensions were given, expected 0 to %d", op->name,
                  spec->name, given->count, DLC_MAX_RANK);
    tir_expr *dims = LIB_NEW_ARRAY(g->arena, tir_expr, (size_t)given->count);
    for (int i = 0; i < given->count; i++) dims[i] = graph_api_dim(g, &given->dims[i], op->name);
    out.dims = dims;
    return out;
}

/* ---- emit ------------------------------------------------------------------------------------------------------ */

typedef struct emit_arguments {
    const graph_op *op;
    const graph_api_call *call;
} emit_arguments;

static void check_subgraph(const dlc_graph *handle, const emit_arguments *a, int i) {
    const dlc_graph *sub = a->call->attributes[i].subgraph;
    const char *attribute = a->op->attribute[i].name;
    if (!graph_handle_live(sub))
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT, "%s: sub-graph `%s` is NULL or destroyed", a->op->name,
                  attribute);
    if (sub->parent != handle)
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT,
                  "%s: `%s` is not a sub-graph (dlc_subgraph) of the graph that the operands belong to", a->op->name,
                  attribute);
}

typedef lib_vec(graph_id) operand_list;

static void push_operands(dlc_graph *handle, const char *name, int count, const dlc_value *values, operand_list *out) {
    if (count < 0 || (count && !values))
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT, "%s: %d operands at %s", name, count,
                  values ? "a count below 0" : "NULL");
    for (int i = 0; i < count; i++) {
        graph_id id = values[i].graph ? graph_handle_resolve(handle, values[i], name) : 0;
        lib_vec_push(handle->arena, out, id);
    }
}

static void emit_work(dlc_graph *handle, void *arguments) {
    const emit_arguments *a = arguments;
    const graph_api_call *call = a->call;
    graph *g = handle->g;
    const graph_op *op = a->op;
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute] = {0};
    graph_captured captured = {0};
    operand_list input = {0};
    if (call->bad_options)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                  "%s: options have no struct_size: set them up with the _INIT macro", op->name);
    for (int i = 0; op->attribute[i].name; i++) {
        attribute[i] = convert_attribute(handle, op, &op->attribute[i], &call->attributes[i]);
        if (op->attribute[i].kind != GRAPH_ATTR_SUBGRAPH) continue;
        check_subgraph(handle, a, i);
        graph_collect_captures(g->arena, &call->attributes[i].subgraph->captures, &captured);
    }
    for (int i = 0; op->attribute[i].name; i++)
        if (op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH)
            attribute[i].integer = complete_subgraph(g, call->attributes[i].subgraph, &captured);
    push_operands(handle, op->name, call->inputs, call->input, &input);
    push_operands(handle, op->name, call->more, call->more_input, &input);
    for (uint32_t i = 0; i < captured.values.count; i++) lib_vec_push(g->arena, &input, captured.values.data[i]);
    graph_id first = graph_emit_broadcast(g, op, (int)input.count, input.data, attribute);
    int results = op->results == 1 ? 1 : graph_result_count(g, first);
    if (results != call->count || (results && !call->results))
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: room for %d results was given, expected %d", op->name,
                  call->results ? call->count : 0, results);
    uint32_t scope = graph_outermost(g)->scope;
    for (int i = 0; i < results; i++) {
        if (scope) graph_origins_add(g, first + (graph_id)i, scope); /* the value may have existed before */
        call->results[i] = graph_handle_value(handle, first + (graph_id)i);
    }
}

static int depth_of(const dlc_graph *handle) {
    int depth = 0;
    for (; handle->parent; handle = handle->parent) depth++;
    return depth;
}

/* Sets *target to the candidate if that is nested deeper. Arguments of other graphs must be of enclosing ones, which
 * graph_handle_resolve checks. */
static void consider(dlc_graph **target, dlc_graph *candidate) {
    if (!graph_handle_live(candidate)) return;
    if (!*target || depth_of(candidate) > depth_of(*target)) *target = candidate;
}

/* False: an operand is poison; its error is already recorded. */
static bool consider_operands(dlc_graph **target, int count, const dlc_value *values) {
    for (int i = 0; values && i < count; i++) {
        if (!values[i].graph && values[i].id) return false;
        if (values[i].graph && dlc_value_ok(values[i])) consider(target, values[i].graph);
    }
    return true;
}

void graph_api_emit(const graph_api_call *call) {
    graph_api_emit_row(graph_op_find(call->name), call);
}

void graph_api_emit_row(const graph_op *op, const graph_api_call *call) {
    emit_arguments a = {op, call};
    for (int i = 0; call->results && i < call->count; i++) call->results[i] = graph_poison();
    dlc_graph *target = NULL;
    consider(&target, call->graph);
    if (!consider_operands(&target, call->inputs, call->input)) return;
    if (!consider_operands(&target, call->more, call->more_input)) return;
    for (int i = 0; a.op->attribute[i].name; i++) {
        const dlc_graph *sub = call->attributes[i].subgraph;
        if (!graph_handle_live(sub)) continue;
        if (sub->error.status != DLC_OK) return;
        consider(&target, sub->parent);
    }
    lib_error error;
    if (target && target->use == GRAPH_READ) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: this graph can be read only here", call->name);
        graph_handle_record(target, &error);
        return;
    }
    if (target) {
        graph_handle_work(target, emit_work, &a);
        return;
    }
    lib_fail(&error, DLC_INVALID_ARGUMENT,
             "%s: no argument belongs to a living graph: values are left out or of destroyed "
             "graphs, or the graph is NULL",
             call->name);
    graph_context_fail(NULL, &error);
}

bool graph_api_options(void *to, const void *from, size_t size) {
    size_t known;
    if (!from) return true;
    memcpy(&known, from, sizeof known); /* struct_size comes first */
    if (known < sizeof known) return false;
    memcpy(to, from, known < size ? known : size);
    return true;
}
