/* What api.c and api_emit.c share. */
#ifndef GRAPH_API_INTERNAL_H
#define GRAPH_API_INTERNAL_H

#include "graph/api.h"
#include "graph/api_call.h"
#include "graph/capture.h"

/* Handles that functions of the host get for graphs of the compiler's. */
typedef enum graph_use {
    GRAPH_OWN,      /* the host's own */
    GRAPH_BORROWED, /* its inputs and outputs are not the host's to make */
    GRAPH_READ      /* to be read only */
} graph_use;

struct dlc_graph {
    dlc_context *context;
    graph_use use;
    /* sub-graphs */
    dlc_graph *parent;
    dlc_graph *first_child, *next_sibling;
    dlc_graph *next_all, *next_free;
    /* 0: destroyed */
    uint32_t serial;
    /* of outermost graphs: one in use, the other to build anew in (graph_handle_renew) */
    lib_arena own_arena[2];
    /* the outermost graph's */
    lib_arena *arena;
    graph_attachment attachment;
    graph *g;
    /* of outermost graphs: each is kept once */
    lib_vec(graph_holder *) holders;
    /* of outermost graphs: their whole names, outermost first */
    lib_vec(const char *) scopes;
    /* inputs made by dlc_input; the others are captures */
    lib_vec(graph_id) parameters;
    lib_map parameters_by_name;
    graph_captures captures;
    /* the first one */
    lib_error error;
};

/* A handle for a graph of the compiler's, memory from `arena`, until it is given back with the sub-graphs that the host made of it.
 * NULL: no memory. */
dlc_graph *graph_handle_borrow(dlc_context *context, const graph *g, lib_arena *arena, graph_use use);
void graph_handle_return(dlc_graph *handle);
/* False: the handle of a builder call is of no use for it, which is recorded. `own`: the call changes what the graph is to the outside. */
bool graph_handle_usable(dlc_graph *handle, const char *call, bool own);
/* The whole name of the innermost scope of the host's; NULL: none is open. */
const char *graph_handle_scope(const dlc_graph *handle);
/* Runs `work` in a scope; records an error. */
dlc_status graph_handle_work(dlc_graph *handle, void (*work)(dlc_graph *handle, void *arguments), void *arguments);
/* The same for a call that is given so many bytes: its limits grow with them. */
dlc_status graph_handle_work_on(dlc_graph *handle, size_t input, void (*work)(dlc_graph *handle, void *arguments),
                                void *arguments);
dlc_status graph_fail_without_graph(dlc_context *context, dlc_status status, const char *message);
/* The value as one of handle's graph: itself, or captured from an enclosing graph; raises for others. */
graph_id graph_handle_resolve(dlc_graph *handle, dlc_value value, const char *what);
/* A host's dimension; `of` says in messages what it is of. */
tir_expr graph_api_dim(graph *g, const dlc_dim *dim, const char *of);
void graph_api_emit_row(const graph_op *op, const graph_api_call *call); /* graph_api_emit with the row of call->name */

#endif
