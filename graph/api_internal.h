/* Shared by the files of the public builder (api*.c). */
#ifndef GRAPH_API_INTERNAL_H
#define GRAPH_API_INTERNAL_H

#include "graph/api.h"
#include "graph/api_call.h"
#include "graph/capture.h"

/* Who a handle's graph belongs to. Host functions get handles of the compiler's graphs. */
typedef enum graph_use {
    GRAPH_OWN,      /* the host's own */
    GRAPH_BORROWED, /* the compiler's: the host may not make inputs or outputs */
    GRAPH_READ      /* the compiler's, read-only */
} graph_use;

struct dlc_graph {
    dlc_context *context;
    graph_use use;
    /* of sub-graphs */
    dlc_graph *parent;
    dlc_graph *first_child, *next_sibling;
    dlc_graph *next_all, *next_free;
    /* 0: destroyed */
    uint32_t serial;
    /* of outermost graphs: the arena in use, and one in which graph_handle_renew builds the next graph */
    lib_arena own_arena[2];
    /* the outermost graph's */
    lib_arena *arena;
    graph_attachment attachment;
    graph *g;
    /* of outermost graphs: owners of bytes and functions, each retained once */
    lib_vec(graph_holder *) holders;
    /* of outermost graphs: full names of the open scopes, outermost first */
    lib_vec(const char *) scopes;
    /* inputs made by dlc_input; other inputs are captures */
    lib_vec(graph_id) parameters;
    lib_map parameters_by_name;
    graph_captures captures;
    /* the first error */
    lib_error error;
};

/* A handle for a graph of the compiler, with memory from `arena`, valid until it is returned together with the sub-graphs that
 * the host made in it. NULL: out of memory. */
dlc_graph *graph_handle_borrow(dlc_context *context, const graph *g, lib_arena *arena, graph_use use);
void graph_handle_return(dlc_graph *handle);
/* May a builder call use the handle? If not, an error is recorded. `own`: the call changes the graph's interface (inputs, outputs). */
bool graph_handle_usable(dlc_graph *handle, const char *call, bool own);
/* The full name of the host's innermost open scope; NULL: none. */
const char *graph_handle_scope(const dlc_graph *handle);
/* Runs `work` in a scope; records an error. */
dlc_status graph_handle_work(dlc_graph *handle, void (*work)(dlc_graph *handle, void *arguments), void *arguments);
dlc_status graph_fail_without_graph(dlc_context *context, dlc_status status, const char *message);
/* The id of the value in the handle's graph. A value of an enclosing graph is captured; a value of another graph raises. */
graph_id graph_handle_resolve(dlc_graph *handle, dlc_value value, const char *what);
/* A dimension that the host gave; `of` names in messages what it is a dimension of. */
tir_expr graph_api_dim(graph *g, const dlc_dim *dim, const char *of);
void graph_api_emit_row(const graph_op *op, const graph_api_call *call); /* graph_api_emit with the row of call->name */

#endif
