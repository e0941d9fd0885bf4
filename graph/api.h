/* The public builder's inside: graph handles, how generated operator functions emit, and what the layer above provides.
 *
 * Handles are recycled, never freed before their context, which graphs of the host's keep: a dlc_value of a destroyed graph always points at a handle,
 * whose serial tells that the value is stale. Builder calls open a scope, emit into the handle's graph, and record the
 * first error in the handle and its parents; errors without a graph go to the calling thread's slot. */
#ifndef GRAPH_API_H
#define GRAPH_API_H

#include "graph/registry.h"

#include <dlc/dlc.h>
#include <dlc/extend.h>

/* Member of dlc_context (jit/jit.h). Thread-safe. */
typedef struct graph_handles {
    lib_mutex mutex;
    /* every handle ever made, in use or not */
    dlc_graph *all;
    dlc_graph *free;
    uint32_t next_serial;
    graph_registry registry;
} graph_handles;
void graph_handles_init(graph_handles *handles);
/* Destroys what was left, with what jit has attached: before jit's own things go. */
void graph_handles_close(graph_handles *handles);
/* Destroys what was left, too, and releases what the host registered. allocator: the context's. */
void graph_handles_free(graph_handles *handles, const dlc_allocator *allocator);

/* ---- implemented by jit (tests of the builder alone bring their own) */
const dlc_allocator *graph_context_allocator(dlc_context *context);
graph_handles *graph_context_handles(dlc_context *context);
/* A graph of the host's keeps its context. */
void graph_context_keep(dlc_context *context);
void graph_context_release(dlc_context *context);
/* What the `user` of a host function belongs to; NULL: the host keeps it. */
graph_holder *graph_context_holder_of(dlc_custom_function *function, void *user);
const dlc_limits *graph_context_limits(const dlc_context *context); /* complete */
/* lib_call_enter among the context's callers, with what the host said of its stacks. */
dlc_status graph_context_enter(dlc_context *context, lib_call *call, size_t need, lib_error *error);
/* Puts the error into the calling thread's slot (context NULL: the slot of calls without one) and returns its status.
 */
dlc_status graph_context_fail(dlc_context *context, const lib_error *error);
/* Of a call that was given no object: adds to its message that of the calling thread's last failed call, which may have been to make it. */
void graph_context_add_cause(lib_error *error);

/* ---- public calls that do more than run what is bound begin with one of these */

/* The same, an error being told to the calling thread. */
dlc_status graph_call_begin(dlc_context *context, lib_call *call, size_t need);
/* For the rest of the function, which returns the status where the call may not go on, or `otherwise`. */
#define GRAPH_CALL(context, need)                                                          \
    __attribute__((cleanup(lib_call_leave))) lib_call public_call_;                        \
    const dlc_status public_call_status_ = graph_call_begin(context, &public_call_, need); \
    if (public_call_status_ != DLC_OK) return public_call_status_
#define GRAPH_CALL_OR(context, need, otherwise)                     \
    __attribute__((cleanup(lib_call_leave))) lib_call public_call_; \
    if (graph_call_begin(context, &public_call_, need) != DLC_OK) return otherwise
/* Calls that destroy, the context itself perhaps. False: in a forked child that cannot, nothing is done. */
bool graph_call_to_destroy(dlc_context *context, lib_call *call);
void graph_call_destroyed(dlc_context *context, lib_call *call);

/* ---- for jit */
/* The host's passes, in order (api_extend.c); g itself when there are none. `late`: those behind decomposition. Raises. */
graph *graph_apply_passes(lib_arena *arena, const graph *g, bool late);
/* What a schedule function of the host says, in `arena`; NULL: nothing. Raises. */
const char *graph_ask_schedule(const graph_definition *definition, lib_arena *arena, const dlc_region *region);
const graph *graph_of_handle(const dlc_graph *handle);
dlc_context *graph_handle_context(const dlc_graph *handle);
bool graph_handle_live(const dlc_graph *handle);                     /* false: destroyed */
dlc_status graph_handle_status(const dlc_graph *handle);             /* of its first mistake; tells nobody */
uint32_t graph_handle_serial(const dlc_graph *handle);               /* of its values; 0: destroyed */
void graph_handle_record(dlc_graph *handle, const lib_error *error); /* the first one stays */
/* What jit keeps beside a graph of the host's (eager graphs); released when the graph is destroyed. data NULL: nothing. */
typedef struct graph_attachment {
    void *data;
    void (*release)(void *data);
} graph_attachment;
void graph_handle_attach(dlc_graph *handle, graph_attachment attachment);
void *graph_handle_attached(const dlc_graph *handle);
/* Inputs without names as a host makes them, of the element types and shapes given; ids[i] of those. Errors are recorded. */
dlc_status graph_handle_inputs(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids);
/* Makes the graph anew: nothing in it but such inputs and the host's functions, and all values so far become stale, mistakes forgotten. An
 * error leaves it as it was, and is not recorded. */
dlc_status graph_handle_renew(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids,
                              lib_error *error);
/* A graph of the host's that `fill` makes from `input` bytes, in a scope; it may raise. holder: of constants in place, which the graph keeps;
 * may be NULL. The error is told, and nothing is made. */
dlc_status graph_handle_make(dlc_context *context, size_t input, void (*fill)(graph *g, void *user), void *user,
                             graph_holder *holder, dlc_graph **handle);
/* A constant that has a name of its own; of bytes that belong to `holder`, which the graph keeps, or that are copied (NULL). */
typedef struct graph_named_constant {
    const char *call, *name;
    dlc_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *bytes;
    graph_holder *holder;
} graph_named_constant;
dlc_value graph_handle_constant(dlc_graph *handle, const graph_named_constant *constant);
dlc_value graph_handle_value(dlc_graph *handle, graph_id id);
dlc_value graph_poison(void);

/* The functions of a host may return any number. */
bool graph_is_status(dlc_status status);
/* A string that dlc_text_free releases; NULL when the allocator refuses. */
char *graph_text_new(const dlc_allocator *allocator, const char *data, size_t length);

#endif
