/* The public builder: handles, inputs, constants, outputs, sub-graphs, questions about values, text. The operators'
 * functions are generated (gen_ops.c) and call graph_api_emit (api_emit.c). */
#include "graph/api.h"

#include "graph/api_internal.h"
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/origin.h"

#include <math.h>
#include <stdio.h>

/* ---- handles --------------------------------------------------------------------------------------------------- */

void graph_handles_init(graph_handles *handles) {
    *handles = (graph_handles){.next_serial = 1};
    lib_mutex_init(&handles->mutex);
    graph_registry_init(&handles->registry);
}

static void release_holders(dlc_graph *handle) {
    for (uint32_t i = 0; i < handle->holders.count; i++) handle->holders.data[i]->release(handle->holders.data[i]);
    handle->holders.count = 0;
}

static void reset_handle(dlc_graph *handle) {
    if (handle->attachment.data) handle->attachment.release(handle->attachment.data);
    handle->attachment.data = NULL;
    release_holders(handle);
    for (int i = 0; i < 2; i++) lib_arena_free(&handle->own_arena[i]);
    handle->g = NULL;
    handle->serial = 0;
}

void graph_handles_close(graph_handles *handles) {
    for (dlc_graph *handle = handles->all; handle; handle = handle->next_all) reset_handle(handle);
}

void graph_handles_free(graph_handles *handles, const dlc_allocator *allocator) {
    for (dlc_graph *handle = handles->all, *next; handle; handle = next) {
        next = handle->next_all;
        reset_handle(handle);
        lib_release(allocator, handle, sizeof *handle, _Alignof(dlc_graph));
    }
    graph_registry_free(&handles->registry, allocator);
    lib_mutex_destroy(&handles->mutex);
}

/* Retains the holder for the outermost graph, unless that has retained it. An error is raised before anything changes. */
static void hold(dlc_graph *handle, graph_holder *holder) {
    while (handle->parent) handle = handle->parent;
    for (uint32_t i = handle->holders.count; i-- > 0;)
        if (handle->holders.data[i] == holder) return;
    lib_vec_push(handle->arena, &handle->holders, holder);
    holder->keep(holder);
}

static uint32_t next_serial(graph_handles *handles) {
    uint32_t serial = handles->next_serial++;
    if (handles->next_serial == 0) handles->next_serial = 1;
    return serial;
}

/* A handle without a graph yet; NULL when the allocator refuses. */
static dlc_graph *take_handle(dlc_context *context, dlc_graph *parent) {
    graph_handles *handles = graph_context_handles(context);
    const dlc_allocator *allocator = graph_context_allocator(context);
    lib_mutex_lock(&handles->mutex);
    dlc_graph *handle = handles->free;
    if (handle) {
        handles->free = handle->next_free;
    } else {
        handle = lib_allocate_zeroed(allocator, sizeof *handle, _Alignof(dlc_graph));
        if (handle) {
            handle->next_all = handles->all;
            handles->all = handle;
        }
    }
    if (handle) {
        dlc_graph *next_all = handle->next_all;
        *handle = (dlc_graph){.context = context, .parent = parent, .next_all = next_all};
        handle->serial = next_serial(handles);
        for (int i = 0; i < 2; i++) lib_arena_init(&handle->own_arena[i], allocator, NULL);
        handle->arena = parent ? parent->arena : &handle->own_arena[0];
    }
    lib_mutex_unlock(&handles->mutex);
    return handle;
}

static void give_handle(dlc_graph *handle) {
    graph_handles *handles = graph_context_handles(handle->context);
    reset_handle(handle);
    lib_mutex_lock(&handles->mutex);
    handle->next_free = handles->free;
    handles->free = handle;
    lib_mutex_unlock(&handles->mutex);
}

uint32_t graph_handle_serial(const dlc_graph *handle) {
    return handle->serial;
}

bool graph_handle_live(const dlc_graph *handle) {
    return handle && handle->serial != 0;
}
const graph *graph_of_handle(const dlc_graph *handle) {
    return handle->g;
}
dlc_context *graph_handle_context(const dlc_graph *handle) {
    return handle->context;
}

void graph_handle_attach(dlc_graph *handle, graph_attachment attachment) {
    handle->attachment = attachment;
    handle->g->keeps_dimensions = true;
}
void *graph_handle_attached(const dlc_graph *handle) {
    return handle->attachment.data;
}

/* ---- scopes and errors ----------------------------------------------------------------------------------------- */

dlc_status graph_fail_without_graph(dlc_context *context, dlc_status status, const char *message) {
    lib_error error = {.status = status};
    lib_fail(&error, status, "%s", message);
    return graph_context_fail(context, &error);
}

void graph_handle_record(dlc_graph *handle, const lib_error *error) {
    for (dlc_graph *at = handle; at; at = at->parent)
        if (at->error.status == DLC_OK) at->error = *error;
    graph_context_fail(handle->context, &handle->error);
}

/* Appends the host's open scope to the message. */
static void add_scope(lib_error *error, const char *names) {
    enum { SHOWN = 160 };
    char shown[4 * SHOWN + 8];
    lib_quote(shown, sizeof shown, names, SHOWN);
    lib_fail(error, error->status, "%s (in scope %s)", error->message, shown);
}

static dlc_status record_failure(dlc_graph *handle, lib_error *error) {
    const char *names = handle->context ? graph_handle_scope(handle) : NULL;
    if (names) add_scope(error, names);
    graph_handle_record(handle, error);
    return handle->error.status;
}

dlc_status graph_call_begin(dlc_context *context, lib_call *call, size_t need) {
    lib_error error;
    if (graph_context_enter(context, call, need, &error) == DLC_OK) return DLC_OK;
    return graph_context_fail(context, &error);
}

bool graph_call_to_destroy(dlc_context *context, lib_call *call) {
    lib_error ignored;
    if (graph_context_enter(context, call, 0, &ignored) != DLC_OK) return false;
    graph_context_keep(context);
    return true;
}

void graph_call_destroyed(dlc_context *context, lib_call *call) {
    lib_call_leave(call);
    graph_context_release(context);
}

/* graph_handle_work for a call with `input` bytes of data, which raise its memory limit. */
static dlc_status work_on(dlc_graph *handle, size_t input, void (*work)(dlc_graph *handle, void *arguments),
                          void *arguments) {
    lib_scope scope, *outer = handle->arena->scope; /* not NULL if a callback of the host builds inside a pass */
    lib_allowance allowance;
    lib_call call;
    if (graph_context_enter(handle->context, &call, LIB_STACK_CALL, &scope.error) != DLC_OK)
        return record_failure(handle, &scope.error);
    lib_allowance_begin(&allowance, handle->arena, graph_context_limits(handle->context), input);
    handle->arena->scope = &scope;
    lib_fp_state state = lib_fp_enter(); /* folding must not depend on how the host rounds */
    if (LIB_ENTER(&scope)) {
        lib_arena_ask(handle->arena);
        work(handle, arguments);
    }
    lib_fp_restore(state);
    handle->arena->scope = outer;
    lib_allowance_end(&allowance, handle->arena);
    lib_call_leave(&call);
    return scope.error.status == DLC_OK ? DLC_OK : record_failure(handle, &scope.error);
}

dlc_status graph_handle_work(dlc_graph *handle, void (*work)(dlc_graph *handle, void *arguments), void *arguments) {
    return work_on(handle, 0, work, arguments);
}

dlc_value graph_handle_value(dlc_graph *handle, graph_id id) {
    return (dlc_value){handle, id, handle->serial};
}

dlc_value graph_poison(void) {
    return (dlc_value){NULL, UINT32_MAX, 0};
}

/* ---- create, destroy ------------------------------------------------------------------------------------------- */

static void make_graph(dlc_graph *handle, void *arguments) {
    (void)arguments;
    if (handle->parent) {
        const int most = graph_context_limits(handle->context)->nesting;
        if (handle->parent->g->depth >= most)
            lib_raise(handle->arena->scope, DLC_BUDGET_EXCEEDED,
                      "dlc_subgraph: sub-graphs are nested deeper than limits.nesting = %d allows", most);
        handle->g = graph_new_inside(handle->parent->g);
    } else {
        handle->g = graph_new(handle->arena, NULL);
        handle->g->registry = &graph_context_handles(handle->context)->registry;
    }
}

static dlc_status new_graph(dlc_context *context, dlc_graph *parent, dlc_graph **out, lib_error *error) {
    lib_call call __attribute__((cleanup(lib_call_leave)));
    LIB_TRY(graph_context_enter(context, &call, LIB_STACK_CALL, error));
    dlc_graph *handle = take_handle(context, parent);
    if (!handle) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a graph");
    if (graph_handle_work(handle, make_graph, NULL) != DLC_OK) {
        *error = handle->error;
        give_handle(handle);
        return error->status;
    }
    if (!parent) graph_context_keep(context);
    *out = handle;
    return DLC_OK;
}

dlc_status dlc_graph_create(dlc_context *context, dlc_graph **handle) {
    if (handle) *handle = NULL;
    if (!context || !handle)
        return graph_fail_without_graph(context, DLC_INVALID_ARGUMENT, "dlc_graph_create: context or graph is NULL");
    lib_error error;
    return new_graph(context, NULL, handle, &error) == DLC_OK ? DLC_OK : graph_context_fail(context, &error);
}

/* Returns the handle and those of its sub-graphs to the free list, sub-graphs first, without recursion. */
static void give_all(dlc_graph *handle) {
    for (dlc_graph *at = handle; at;) {
        if (at->first_child) {
            at = at->first_child;
            continue;
        }
        dlc_graph *parent = at->parent;
        if (parent) parent->first_child = at->next_sibling;
        give_handle(at);
        at = at == handle ? NULL : parent;
    }
}

void dlc_graph_destroy(dlc_graph *handle) {
    if (!graph_handle_live(handle) || handle->parent) return; /* sub-graphs belong to their parent */
    if (handle->use != GRAPH_OWN) return;                     /* belongs to the call that runs a host function */
    dlc_context *context = handle->context;
    lib_call call;
    if (!graph_call_to_destroy(context, &call)) return;
    give_all(handle);
    graph_context_release(context);
    graph_call_destroyed(context, &call); /* the handle may be gone with it */
}

dlc_graph *graph_handle_borrow(dlc_context *context, const graph *g, lib_arena *arena, graph_use use) {
    dlc_graph *handle = take_handle(context, NULL);
    if (!handle) return NULL;
    handle->use = use;
    handle->arena = arena;
    handle->g = (graph *)(uintptr_t)g;
    return handle;
}

void graph_handle_return(dlc_graph *handle) {
    if (handle->use == GRAPH_BORROWED) handle->g->scope = 0; /* what the function left open */
    give_all(handle);
}

dlc_graph *dlc_subgraph(dlc_graph *parent) {
    if (!graph_handle_live(parent)) {
        graph_fail_without_graph(NULL, DLC_INVALID_ARGUMENT, "dlc_subgraph: the parent is NULL or destroyed");
        return NULL;
    }
    if (parent->use == GRAPH_READ) {
        graph_handle_usable(parent, "dlc_subgraph", true);
        return NULL;
    }
    dlc_graph *child = NULL;
    lib_error error;
    if (new_graph(parent->context, parent, &child, &error) != DLC_OK) {
        graph_handle_record(parent, &error);
        return NULL;
    }
    child->next_sibling = parent->first_child;
    parent->first_child = child;
    return child;
}

dlc_status graph_handle_status(const dlc_graph *handle) {
    return graph_handle_live(handle) ? handle->error.status : DLC_INVALID_ARGUMENT;
}

dlc_status dlc_graph_status(const dlc_graph *handle) {
    if (!graph_handle_live(handle))
        return graph_fail_without_graph(NULL, DLC_INVALID_ARGUMENT, "dlc_graph_status: the graph is NULL or destroyed");
    return handle->error.status == DLC_OK ? DLC_OK : graph_context_fail(handle->context, &handle->error);
}

const char *dlc_graph_message(const dlc_graph *handle) {
    return graph_handle_live(handle) ? handle->error.message : "the graph is NULL or destroyed";
}

/* ---- inputs, constants, outputs -------------------------------------------------------------------------------- */

bool graph_handle_usable(dlc_graph *handle, const char *call, bool own) {
    lib_error error;
    if (graph_handle_live(handle)) {
        if (handle->use == GRAPH_OWN || (handle->use == GRAPH_BORROWED && !own)) return true;
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: this graph can be %s here", call,
                 handle->use == GRAPH_READ ? "read only" : "given values, no inputs, outputs or symbols");
        graph_handle_record(handle, &error);
        return false;
    }
    lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: the graph is NULL or destroyed", call);
    graph_context_fail(NULL, &error);
    return false;
}

static bool usable(dlc_graph *handle, const char *call) {
    return graph_handle_usable(handle, call, false);
}

/* dim.name may be a symbol or an expression of symbols, as dlc_value_dim gives it. */
tir_expr graph_api_dim(graph *g, const dlc_dim *dim, const char *of) {
    if (!dim->name) return tir_index(g->pool, dim->value);
    char source[160]; /* for messages */
    lib_lexer lexer;
    snprintf(source, sizeof source, "%.64s: \"%.64s\"", of, dim->name);
    lib_lexer_init(&lexer, g->arena, source, dim->name, strlen(dim->name));
    lib_lexer_next(&lexer);
    tir_expr e = graph_parse_dim(g, &lexer);
    if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "expected a symbol or an expression of symbols");
    return e;
}

typedef struct tensor_arguments {
    const char *name;
    dlc_dtype dtype;
    int rank;
    const dlc_dim *dims;
    const int64_t *shape;
    const void *bytes;
    bool borrow;
    /* of the bytes; NULL: none */
    graph_holder *holder;
    graph_id result;
} tensor_arguments;

static bool has_parameter(const dlc_graph *handle, const char *name) {
    const lib_map *map = &handle->parameters_by_name;
    uint64_t hash = lib_hash_string(name);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at)) {
        const char *other = handle->g->values.data[handle->parameters.data[map->slots[at].value]].name;
        if (other && strcmp(other, name) == 0) return true;
    }
    return false;
}

static void add_parameter(dlc_graph *handle, graph_id value) {
    const char *name = handle->g->values.data[value].name;
    if (name)
        lib_map_insert(handle->g->arena, &handle->parameters_by_name, lib_hash_string(name), handle->parameters.count);
    lib_vec_push(handle->g->arena, &handle->parameters, value);
}

static void make_input(dlc_graph *handle, void *arguments) {
    tensor_arguments *a = arguments;
    graph *g = handle->g;
    lib_scope *scope = g->arena->scope;
    const char *name = a->name ? a->name : "(no name)";
    char what[64];
    snprintf(what, sizeof what, "input %.56s", name);
    if (a->rank < 0 || a->rank > DLC_MAX_RANK || (a->rank && !a->dims))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "input %s: rank is %d, expected 0 to %d and as many dims", name, a->rank,
                  DLC_MAX_RANK);
    if (a->name && has_parameter(handle, a->name))
        lib_raise(scope, DLC_INVALID_ARGUMENT, "input %s: there is an input of this name already", name);
    graph_shape shape = {.dtype = a->dtype, .rank = a->rank};
    for (int i = 0; i < a->rank; i++) {
        if (!a->dims[i].name && a->dims[i].value < 0)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "input %s: dimension %d is %lld, expected 0 or more, or a symbol",
                      name, i, (long long)a->dims[i].value);
        shape.dim[i] = graph_api_dim(g, &a->dims[i], what);
    }
    lib_vec_reserve(g->arena, &handle->parameters, 1);
    a->result = graph_new_input(g, a->name, &shape);
    add_parameter(handle, a->result);
}

dlc_value dlc_input(dlc_graph *handle, const char *name, dlc_dtype dtype, int rank, const dlc_dim *dims) {
    if (!graph_handle_usable(handle, "dlc_input", true)) return graph_poison();
    tensor_arguments a = {.name = name, .dtype = dtype, .rank = rank, .dims = dims};
    return graph_handle_work(handle, make_input, &a) == DLC_OK ? graph_handle_value(handle, a.result) : graph_poison();
}

/* ---- graphs made anew ------------------------------------------------------------------------------------------- */

typedef struct like_arguments {
    int count;
    const DLTensor *const *like;
    graph_id *ids;
} like_arguments;

static void make_inputs_in(graph *g, const like_arguments *a) {
    for (int i = 0; i < a->count; i++) {
        const DLTensor *like = a->like[i];
        graph_shape shape = {.rank = like->ndim};
        lib_dtype_from_dlpack(like->dtype, &shape.dtype);
        for (int d = 0; d < like->ndim; d++) shape.dim[d] = tir_index(g->pool, like->shape[d]);
        a->ids[i] = graph_new_input(g, NULL, &shape);
    }
}

static void make_inputs(dlc_graph *handle, void *arguments) {
    make_inputs_in(handle->g, arguments);
}

dlc_status graph_handle_inputs(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids) {
    if (!graph_handle_usable(handle, "dlc_eager_tensor", true)) return DLC_INVALID_ARGUMENT;
    return graph_handle_work(handle, make_inputs, &(like_arguments){count, like, ids});
}

static graph *anew(lib_arena *arena, const graph *old, const like_arguments *a) {
    graph *g = graph_new(arena, NULL);
    g->registry = old->registry;
    g->keeps_dimensions = old->keeps_dimensions;
    for (uint32_t i = 0; i < old->customs.count; i++) graph_add_custom(g, &old->customs.data[i]);
    make_inputs_in(g, a);
    return g;
}

/* Keeps only the holders of the new graph's host functions, in kept[], and releases the others. kept has room for all. */
static void keep_holders_of_functions(dlc_graph *handle, graph_holder **kept) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < handle->holders.count; i++) {
        graph_holder *holder = handle->holders.data[i];
        bool used = false;
        for (uint32_t c = 0; c < handle->g->customs.count; c++) used |= handle->g->customs.data[c].holder == holder;
        if (used)
            kept[count++] = holder;
        else
            holder->release(holder);
    }
    handle->holders.data = kept;
    handle->holders.capacity = handle->holders.count + 1;
    handle->holders.count = count;
}

dlc_status graph_handle_renew(dlc_graph *handle, int count, const DLTensor *const *like, graph_id *ids,
                              lib_error *error) {
    graph_handles *handles = graph_context_handles(handle->context);
    lib_arena *old = handle->arena, *arena = &handle->own_arena[old == handle->own_arena];
    like_arguments a = {count, like, ids};
    graph_holder **volatile kept = NULL;
    const char **volatile scopes = NULL;
    lib_scope scope;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        graph *g = anew(arena, handle->g, &a);
        kept = LIB_NEW_ARRAY(arena, graph_holder *, handle->holders.count + 1);
        scopes = LIB_NEW_ARRAY(arena, const char *, handle->scopes.count + 1);
        for (uint32_t i = 0; i < handle->scopes.count; i++) scopes[i] = lib_arena_string(arena, handle->scopes.data[i]);
        if (handle->scopes.count) g->scope = graph_origin_named(g, scopes[handle->scopes.count - 1]);
        while (handle->first_child) give_all(handle->first_child);
        handle->g = g;
    }
    arena->scope = NULL;
    if (scope.error.status != DLC_OK) {
        *error = scope.error;
        lib_arena_free(arena);
        return error->status;
    }
    keep_holders_of_functions(handle, kept);
    handle->scopes.data = scopes;
    handle->scopes.capacity = handle->scopes.count + 1;
    lib_arena_free(old);
    handle->arena = arena;
    handle->error.status = DLC_OK;
    handle->error.message[0] = 0;
    memset(&handle->parameters, 0, sizeof handle->parameters);
    memset(&handle->parameters_by_name, 0, sizeof handle->parameters_by_name);
    memset(&handle->captures, 0, sizeof handle->captures);
    lib_mutex_lock(&handles->mutex);
    handle->serial = next_serial(handles);
    lib_mutex_unlock(&handles->mutex);
    return DLC_OK;
}

/* ---- constants and outputs --------------------------------------------------------------------------------------- */

static void make_constant(dlc_graph *handle, void *arguments) {
    tensor_arguments *a = arguments;
    if (a->rank > 0 && !a->shape)
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT, "constant: shape is NULL for rank %d", a->rank);
    if (a->holder) hold(handle, a->holder);
    a->result = graph_literal_of(handle->g, a->dtype, a->rank, a->shape, a->bytes, a->borrow);
    const graph_node *node = graph_node_of(handle->g, a->result);
    graph_constant *constant = &handle->g->constants.data[node->attribute[0].integer];
    if (a->holder && constant->bytes == a->bytes) constant->holder = a->holder;
    if (a->name && *a->name) graph_name_value(handle->g, a->result, a->name);
}

/* A lower bound of the bytes that the host passes, to be copied; 0: borrowed, or the shape is invalid, which is reported later. */
static size_t given_bytes(const tensor_arguments *a) {
    size_t size = 1;
    for (int i = 0; i < a->rank && i < DLC_MAX_RANK && a->shape; i++)
        if (a->shape[i] < 0 || !lib_size_multiply(size, (size_t)a->shape[i], &size)) return 0;
    return a->borrow ? 0 : size;
}

static dlc_value new_constant(dlc_graph *handle, tensor_arguments a, const char *call) {
    if (!usable(handle, call)) return graph_poison();
    dlc_status status = work_on(handle, given_bytes(&a), make_constant, &a);
    return status == DLC_OK ? graph_handle_value(handle, a.result) : graph_poison();
}

dlc_value dlc_constant(dlc_graph *handle, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes) {
    return new_constant(handle, (tensor_arguments){.dtype = dtype, .rank = rank, .shape = shape, .bytes = bytes},
                        "dlc_constant");
}

dlc_value dlc_constant_borrow(dlc_graph *handle, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes) {
    return new_constant(
        handle, (tensor_arguments){.dtype = dtype, .rank = rank, .shape = shape, .bytes = bytes, .borrow = true},
        "dlc_constant_borrow");
}

dlc_value graph_handle_constant(dlc_graph *handle, const graph_named_constant *c) {
    tensor_arguments a = {.name = c->name, .dtype = c->dtype, .rank = c->rank, .shape = c->shape, .bytes = c->bytes};
    if (graph_handle_live(handle)) {
        const dlc_graph *outer = handle;
        while (outer->parent) outer = outer->parent;
        /* A graph of the compiler cannot retain the holder until the program does: it gets a copy of the bytes. */
        a.borrow = c->holder && outer->use == GRAPH_OWN;
        if (a.borrow) a.holder = c->holder;
    }
    return new_constant(handle, a, c->call);
}

static bool is_usable_dtype(dlc_dtype dtype) {
    return (unsigned)dtype < DLC_DTYPE_COUNT && lib_dtypes[dtype].usable;
}

dlc_value dlc_scalar(dlc_graph *handle, dlc_dtype dtype, double number) {
    uint64_t element = 0;
    lib_fp_state state = lib_fp_enter(); /* to nearest, whatever the host's mode is */
    if (is_usable_dtype(dtype) && lib_dtype_is_integer(dtype)) number = nearbyint(number);
    if (is_usable_dtype(dtype)) lib_element_set_f64(dtype, &element, number);
    lib_fp_restore(state);
    return new_constant(handle, (tensor_arguments){.dtype = dtype, .bytes = &element}, "dlc_scalar");
}

dlc_value dlc_scalar_i64(dlc_graph *handle, dlc_dtype dtype, int64_t number) {
    uint64_t element = 0;
    lib_fp_state state = lib_fp_enter();
    if (is_usable_dtype(dtype)) lib_element_set_i64(dtype, &element, number);
    lib_fp_restore(state);
    return new_constant(handle, (tensor_arguments){.dtype = dtype, .bytes = &element}, "dlc_scalar_i64");
}

typedef struct output_arguments {
    const char *name;
    dlc_value value;
} output_arguments;

static bool has_output(const graph *g, const char *name) {
    const lib_map *map = &g->outputs_by_name;
    uint64_t hash = lib_hash_string(name);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at))
        if (strcmp(g->output_names.data[map->slots[at].value], name) == 0) return true;
    return false;
}

static void make_output(dlc_graph *handle, void *arguments) {
    output_arguments *a = arguments;
    graph *g = handle->g;
    const char *name = a->name ? a->name : "(no name)";
    if (!a->value.graph) {
        lib_error error;
        lib_fail(&error, DLC_INVALID_ARGUMENT, "output %s: the value is none: an earlier call failed", name);
        graph_context_add_cause(&error); /* counts where no earlier mistake is recorded in the graph */
        lib_raise_error(g->arena->scope, &error);
    }
    if (a->name && has_output(g, a->name))
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "output %s: there is an output of this name already", name);
    graph_new_output(g, a->name, graph_handle_resolve(handle, a->value, "output"));
}

dlc_status dlc_output(dlc_graph *handle, const char *name, dlc_value value) {
    if (!graph_handle_usable(handle, "dlc_output", true)) return DLC_INVALID_ARGUMENT;
    output_arguments a = {name, value};
    return graph_handle_work(handle, make_output, &a);
}

/* ---- symbols --------------------------------------------------------------------------------------------------- */

typedef struct symbol_arguments {
    const char *name;
    int64_t low, high, multiple;
} symbol_arguments;

static void hint_symbol(dlc_graph *handle, void *arguments) {
    const symbol_arguments *a = arguments;
    graph *outer = graph_outermost(handle->g);
    lib_scope *scope = outer->arena->scope;
    if (!a->name) lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_symbol_varies: name is NULL");
    int64_t high = a->high ? a->high : GRAPH_SYMBOL_MAX, multiple = a->multiple ? a->multiple : 1;
    if (a->low < 0 || high < a->low || high > GRAPH_SYMBOL_MAX || multiple < 1)
        lib_raise(
            scope, DLC_INVALID_ARGUMENT,
            "symbol %s: range %lld..%lld, multiple %lld: expected 0 <= low <= high <= 2^40 and a positive multiple",
            a->name, (long long)a->low, (long long)high, (long long)multiple);
    tir_expr e = graph_api_dim(outer, &(dlc_dim){0, a->name}, "dlc_symbol_varies");
    for (uint32_t i = 0; i < outer->symbols.count; i++) {
        if (outer->symbols.data[i].var != e) continue;
        tir_variable *variable = &outer->pool->variables.data[tir_var_id(outer->pool, e)];
        variable->low = a->low;
        variable->high = high;
        variable->multiple = multiple;
        outer->symbols.data[i].varies = true;
        outer->symbols.data[i].mentions--; /* a hint is no use of it */
        return;
    }
    lib_raise(scope, DLC_INVALID_ARGUMENT, "symbol %s: expected one name", a->name);
}

dlc_status dlc_symbol_varies(dlc_graph *handle, const char *name, int64_t low, int64_t high, int64_t multiple) {
    if (!graph_handle_usable(handle, "dlc_symbol_varies", true)) return DLC_INVALID_ARGUMENT;
    symbol_arguments a = {name, low, high, multiple};
    return graph_handle_work(handle, hint_symbol, &a);
}

/* ---- host functions ------------------------------------------------------------------------------------------------------------------ */

typedef struct custom_arguments {
    const char *name;
    dlc_custom_function *function;
    void *user;
} custom_arguments;

static void add_custom(dlc_graph *handle, void *arguments) {
    const custom_arguments *a = arguments;
    graph_holder *holder = graph_context_holder_of(a->function, a->user);
    if (holder) hold(handle, holder);
    graph_add_custom(handle->g,
                     &(graph_custom){.name = a->name, .call = a->function, .user = a->user, .holder = holder});
}

dlc_status dlc_custom_register(dlc_graph *handle, const char *name, dlc_custom_function *function, void *user) {
    if (!graph_handle_usable(handle, "dlc_custom_register", true)) return DLC_INVALID_ARGUMENT;
    custom_arguments a = {name, function, user};
    return graph_handle_work(handle, add_custom, &a);
}

/* ---- questions about values ------------------------------------------------------------------------------------ */

bool dlc_value_ok(dlc_value value) {
    return graph_handle_live(value.graph) && value.serial == value.graph->serial && value.id > 0 &&
           value.id < value.graph->g->values.count;
}

/* The value's shape; NULL: it is poison or stale. */
static const graph_shape *shape_of(dlc_value value) {
    return dlc_value_ok(value) ? graph_shape_of(value.graph->g, value.id) : NULL;
}

dlc_dtype dlc_value_dtype(dlc_value value) {
    const graph_shape *shape = shape_of(value);
    return shape ? shape->dtype : DLC_DTYPE_COUNT;
}

int dlc_value_rank(dlc_value value) {
    const graph_shape *shape = shape_of(value);
    return shape ? shape->rank : -1;
}

typedef struct dim_arguments {
    tir_expr dim;
    const char *text;
} dim_arguments;

static void print_dim(dlc_graph *handle, void *arguments) {
    dim_arguments *a = arguments;
    lib_text text;
    lib_text_init(&text, handle->arena);
    tir_print_expr(&text, handle->g->pool, a->dim, NULL);
    a->text = text.data;
}

dlc_dim dlc_value_dim(dlc_value value, int axis) {
    const graph_shape *shape = shape_of(value);
    if (!shape || axis < -shape->rank || axis >= shape->rank) return (dlc_dim){-1, NULL};
    dim_arguments a = {.dim = shape->dim[axis < 0 ? axis + shape->rank : axis]};
    int64_t number;
    if (tir_is_const(value.graph->g->pool, a.dim, &number)) return (dlc_dim){number, NULL};
    graph_handle_work(value.graph, print_dim, &a);
    return (dlc_dim){-1, a.text};
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* Before the characters of a text that dlc_text_free frees, also after the context is gone. */
typedef struct text_header {
    _Alignas(16) size_t length;
    dlc_allocator allocator;
} text_header;

char *graph_text_new(const dlc_allocator *allocator, const char *data, size_t length) {
    text_header *header = lib_allocate(allocator, sizeof *header + length + 1, _Alignof(text_header));
    if (!header) return NULL;
    *header = (text_header){length, *allocator};
    char *text = (char *)(header + 1);
    if (length) memcpy(text, data, length);
    text[length] = 0;
    return text;
}

void dlc_text_free(dlc_context *context, char *text) {
    (void)context;
    if (!text) return;
    text_header *header = (text_header *)(void *)text - 1;
    const dlc_allocator allocator = header->allocator;
    lib_release(&allocator, header, sizeof *header + header->length + 1, _Alignof(text_header));
}

static void print_into(lib_arena *arena, const graph *g, bool elide, const dlc_allocator *allocator, char **out) {
    lib_text text;
    lib_text_init(&text, arena);
    if (elide)
        graph_print_elided(&text, g);
    else
        graph_print(&text, g);
    *out = graph_text_new(allocator, text.data, text.length);
    if (!*out) lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: a text of %zu bytes", text.length);
}

/* Bytes of the graph's constants, its sub-graphs' included; the depth of sub-graphs is limited. */
static size_t constant_bytes(const graph *g) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < g->constants.count; i++) bytes += g->constants.data[i].size;
    for (uint32_t i = 0; i < g->subgraphs.count; i++) bytes += constant_bytes(g->subgraphs.data[i]);
    return bytes;
}

dlc_status dlc_graph_print(const dlc_graph *handle, char **text) {
    return dlc_graph_print_with(handle, NULL, text);
}

dlc_status dlc_graph_print_with(const dlc_graph *handle, const dlc_print_options *given, char **text) {
    dlc_print_options options = DLC_PRINT_OPTIONS_INIT;
    if (text) *text = NULL;
    if (!text || !graph_handle_live(handle))
        return graph_fail_without_graph(graph_handle_live(handle) ? handle->context : NULL, DLC_INVALID_ARGUMENT,
                                        "dlc_graph_print: text is NULL, or the graph is NULL or destroyed");
    if (!graph_api_options(&options, given, sizeof options))
        return graph_fail_without_graph(
            handle->context, DLC_INVALID_ARGUMENT,
            "dlc_graph_print: options have no struct_size: set them up with the _INIT macro");
    const dlc_allocator *allocator = graph_context_allocator(handle->context);
    lib_scope scope;
    lib_arena arena;
    lib_allowance allowance;
    GRAPH_CALL(handle->context, graph_stack(handle->g));
    lib_arena_init(&arena, allocator, &scope);
    /* A graph's memory is many times the text that it came from: it counts once. Constants may lie elsewhere. */
    const size_t constants = options.elide_constants ? 0 : constant_bytes(handle->g);
    lib_allowance_begin(&allowance, &arena, graph_context_limits(handle->context),
                        handle->arena->total / LIB_LIMIT_MEMORY_PER_BYTE + constants);
    if (LIB_ENTER(&scope)) print_into(&arena, handle->g, options.elide_constants, allocator, text);
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK ? DLC_OK : graph_context_fail(handle->context, &scope.error);
}

/* Arguments of graph_handle_make. All inputs that `fill` makes count as made by the host. */
typedef struct fill_arguments {
    void (*fill)(graph *g, void *user);
    void *user;
    graph_holder *holder;
} fill_arguments;

static void fill_graph(dlc_graph *handle, void *arguments) {
    const fill_arguments *a = arguments;
    if (a->holder) hold(handle, a->holder);
    a->fill(handle->g, a->user);
    for (uint32_t i = 0; i < handle->g->inputs.count; i++) add_parameter(handle, handle->g->inputs.data[i]);
}

dlc_status graph_handle_make(dlc_context *context, size_t input, void (*fill)(graph *g, void *user), void *user,
                             graph_holder *holder, dlc_graph **handle) {
    dlc_graph *made = NULL;
    lib_error error;
    if (new_graph(context, NULL, &made, &error) != DLC_OK) return graph_context_fail(context, &error);
    const dlc_status status = work_on(made, input, fill_graph, &(fill_arguments){fill, user, holder});
    if (status == DLC_OK)
        *handle = made;
    else
        dlc_graph_destroy(made);
    return status;
}

typedef struct parse_arguments {
    dlc_context *context;
    const char *text;
    size_t size;
} parse_arguments;

static void parse_text(graph *g, void *arguments) {
    const parse_arguments *a = arguments;
    lib_lexer lexer;
    g->nesting = graph_context_limits(a->context)->nesting;
    lib_lexer_init(&lexer, g->arena, "<text>", a->text, a->size);
    graph_parse_in(g, &lexer);
    if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "expected the end after the graph");
}

dlc_status dlc_graph_parse(dlc_context *context, const char *text, size_t size, dlc_graph **handle) {
    if (handle) *handle = NULL;
    if (!context || !handle || (!text && size))
        return graph_fail_without_graph(context, DLC_INVALID_ARGUMENT,
                                        "dlc_graph_parse: context, text or graph is NULL");
    parse_arguments a = {context, text ? text : "", size};
    return graph_handle_make(context, size, parse_text, &a, NULL, handle);
}
