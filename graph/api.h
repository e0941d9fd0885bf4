/* Internals of the public builder: graph handles, the functions behind generated operator functions, and callbacks that the layer
 * above implements.
 *
 * Handles are recycled, and freed only with their context, which the host's graphs retain: a dlc_value of a destroyed graph still
 * points at a handle, whose serial number shows that the value is stale. Builder calls open a scope, emit into the handle's
 * graph, and record the first error in the handle and its parents; errors without a graph go to the calling thread's slot. */
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
/* Destroys remaining graphs and their attachments; called before jit's own state is destroyed. */
void graph_handles_close(graph_handles *handles);
/* Frees all handles and releases the host's registrations. allocator: the context's. */
void graph_handles_free(graph_handles *handles, const dlc_allocator *allocator);

/* ---- implemented by jit (unit tests of the builder have stubs) */
const dlc_allocator *graph_context_allocator(dlc_context *context);
graph_handles *graph_context_handles(dlc_context *context);
/* The host's graphs retain their context. */
void graph_context_keep(dlc_context *context);
void graph_context_release(dlc_context *context);
/* The owner of the host function's argument `user`; NULL: the host keeps `user` itself. */
graph_holder *graph_context_holder_of(dlc_custom_function *function, void *user);
const dlc_limits *graph_context_limits(const dlc_context *context); /* all fields set */
const lib_log *graph_context_log(const dlc_context *context);
/* lib_call_enter, counted among the context's callers, with the host's stack size. */
dlc_status graph_context_enter(dlc_context *context, lib_call *call, size_t need, lib_error *error);
/* Puts the error into the calling thread's slot (context NULL: the slot of calls without one) and returns its status.
 */
dlc_status graph_context_fail(dlc_context *context, const lib_error *error);
/* Error of a call that got NULL for an object: appends the message of the calling thread's last failed call, which probably should
 * have created the object. */
void graph_context_add_cause(lib_error *error);

/* ---- every public call, except runs of bound plans, begins with one of these */

/* graph_context_enter; an error is recorded for the calling thread, and its status returned. */
dlc_status graph_call_begin(dlc_context *context, lib_call *call, size_t need);
/* Begins a public call that ends when the function returns. If the call must not continue, the function returns the status, or
 * `otherwise`. */
#define GRAPH_CALL(context, need)                                                          \
    __attribute__((cleanup(lib_call_leave))) lib_call public_call_;                        \
    const dlc_status public_call_status_ = graph_call_begin(context, &public_call_, need); \
    if (public_call_status_ != DLC_OK) return public_call_status_
#define GRAPH_CALL_OR(context, need, otherwise)                     \
    __attribute__((cleanup(lib_call_leave))) lib_call public_call_; \
    if (graph_call_begin(context, &public_call_, need) != DLC_OK) return otherwise
/* Begins and ends a call that destroys objects, perhaps the context itself. False: the process is a forked child that must not
 * destroy them; the call does nothing. */
bool graph_call_to_destroy(dlc_context *context, lib_call *call);
void graph_call_destroyed(dlc_context *context, lib_call *call);

/* ---- for jit */
/* Runs the host's passes in the order of registration: its late passes if `late`, else the others (api_extend.c). Returns g itself
 * if there are none. Raises. */
graph *graph_apply_passes(lib_arena *arena, const graph *g, bool late);
/* The result of the host's schedule function, in `arena`; NULL: none. Raises. */
const char *graph_ask_schedule(const graph_definition *definition, lib_arena *arena, const dlc_region *region);
const graph *graph_of_handle(const dlc_graph *handle);
dlc_context *graph_handle_context(const dlc_graph *handle);
bool graph_handle_live(const dlc_graph *handle);         /* false: destroyed */
dlc_status graph_handle_status(const dlc_graph *handle); /* of its first error; does not record it for the thread */
uint32_t graph_handle_serial(const dlc_graph *handle);   /* in the graph's values; 0: destroyed */
void graph_handle_record(dlc_graph *handle, const lib_error *error); /* only the first error is recorded */
/* State that jit attaches to an eager graph of the host, whose parts are evaluated one by one; released with the graph. data NULL:
 * none. */
typedef struct graph_attachment {
    void *data;
    void (*release)(void *data);
} graph_attachment;
void graph_handle_attach(dlc_graph *handle, graph_attachment attachment);
void *graph_handle_attached(const dlc_graph *handle);
/* Adds `count` unnamed inputs; input i has the element type and shape of like[i]; ids[i] becomes its id. Errors are recorded. */
dlc_status graph_handle_inputs(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids);
/* Resets the graph: it then contains only inputs as by graph_handle_inputs, and the host's functions; all earlier values are stale,
 * and its error is cleared. On failure sets *error, records nothing and leaves the graph unchanged. */
dlc_status graph_handle_renew(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids,
                              lib_error *error);
/* Creates a graph of the host and fills it by fill(g, user), which reads `input` bytes of data, runs in a scope and may raise.
 * holder: owner of constants used in place, retained by the graph; may be NULL. An error is recorded, and nothing created. */
dlc_status graph_handle_make(dlc_context *context, size_t input, void (*fill)(graph *g, void *user), void *user,
                             graph_holder *holder, dlc_graph **handle);
/* A named constant. Its bytes belong to `holder`, which the graph retains, or are copied (NULL). */
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
/* Is each element of the value the number 0, whatever the inputs are? */
bool graph_handle_is_zero(dlc_value value);

/* Is the number a valid status? Host functions may return any number. */
bool graph_is_status(dlc_status status);
/* A string that dlc_text_free frees; NULL: out of memory. */
char *graph_text_new(const dlc_allocator *allocator, const char *data, size_t length);

#endif
