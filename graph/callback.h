/* Calls of functions that the host registered, and registration: shared by api_extend.c and by the operators of ONNX models
 * (jit/onnx_host.c). */
#ifndef GRAPH_CALLBACK_H
#define GRAPH_CALLBACK_H

#include "graph/api_internal.h"
#include "graph/internal.h"
#include "graph/rewrite.h"

/* An attribute of an ONNX node. */
typedef struct graph_named_attribute {
    /* its kind: that of `attribute` for numbers, strings without zero bytes and lists of integers; CONSTANT: only `value` is set */
    graph_attribute_spec spec;
    graph_attribute attribute;
    dlc_onnx_value value;
} graph_named_attribute;

/* An ONNX node as the host's functions see it. */
typedef struct graph_host_node {
    int version;
    int inputs, results;
    /* [inputs] by operand of the ONNX node: the index of that operand in the graph's node; -1: it was left out */
    const int *place;
    int named_count;
    const graph_named_attribute *named;
} graph_host_node;

typedef struct graph_host_functions {
    dlc_operator_shape *shape;
    dlc_operator_expand *expand;
    dlc_operator_call *call;
    dlc_operator_gradient *gradient;
    dlc_rule_replace *replace;
    dlc_pass_function *pass;
    dlc_schedule_function *schedule;
    /* SCHEDULE: name of the current region */
    const char *region;
    /* the ONNX node, if the definition's row was made for this one node; else NULL */
    const graph_host_node *node;
} graph_host_functions;

struct dlc_callback {
    const graph_definition *definition;
    /* error reported by the function */
    lib_error error;
    dlc_graph *graph;
    bool builds;
    /* passes: handle of the old graph, read-only */
    dlc_graph *old;
    const graph_walk *walk;
    /* row whose specs describe `attribute` */
    const graph_op *op;
    const graph_attribute *attribute;
    int inputs, results;
    const graph_id *input;
    /* rules of differentiation: results[], and their cotangents; NULL: this function has none */
    const graph_id *result, *cotangent;
    graph_infer *infer;
    const graph_match *match;
    lib_arena *arena;
    const char *schedule;
    /* of ONNX nodes */
    int version;
    int named_count;
    const graph_named_attribute *named;
    struct onnx_import *importer;
    /* receives the results that the function sets by dlc_callback_tensor and dlc_callback_strings (jit/onnx_host.c); NULL: this function
     * may not call them */
    struct onnx_host_results *given;
};

/* NULL: none of that name. */
const graph_named_attribute *graph_callback_named(const dlc_callback *callback, const char *name);
/* A handle for the graph, which graph_handle_return ends. Raises in the arena's scope. */
dlc_graph *graph_callback_borrow(const graph_definition *definition, const graph *g, lib_arena *arena, graph_use use);
/* Ends a call that returned `status`: sets callback->error to the first error of the callback's graph, else to that of the function;
 * if there is none, sets ids[i] to the id of values[i] in the graph; 0: no value. */
void graph_callback_settle(dlc_callback *callback, dlc_status status, int count, const dlc_value *values,
                           graph_id *ids);

/* The shape rule of a row whose definition has functions.shape. */
void graph_infer_by_host(graph_infer *infer);

/* ---- registration */

typedef struct graph_registration {
    dlc_context *context;
    graph_definition *definition;
    const void *options;
} graph_registration;

/* The argument of the host's functions, and the host's function that releases it; common to all kinds of registration. */
typedef struct graph_owner {
    void *user;
    void (*release)(void *user);
} graph_owner;

/* Checks `given`, the struct_size of the options, against `size`, and registers the definition that define(r) fills in. */
dlc_status graph_register(graph_registration *r, graph_owner o, const char *call, graph_definition_kind kind,
                          const char *name, size_t given, size_t size, void (*define)(graph_registration *r));
#define GRAPH_REGISTER(call, kind, define)                           \
    graph_registration r = {.context = context, .options = options}; \
    graph_owner o = {NULL, NULL};                                    \
    const char *name = NULL;                                         \
    if (options && options->struct_size == sizeof *options) {        \
        o = (graph_owner){options->user, options->release};          \
        name = options->name;                                        \
    }                                                                \
    return graph_register(&r, o, call, kind, name, options ? options->struct_size : 0, sizeof *options, define)

#endif
