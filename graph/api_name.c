/* Names of values given by hosts, and their scopes. */
#include "graph/api_internal.h"
#include "graph/internal.h"
#include "graph/origin.h"

static dlc_graph *outermost(dlc_graph *handle) {
    while (handle->parent) handle = handle->parent;
    return handle;
}

const char *graph_handle_scope(const dlc_graph *handle) {
    while (handle->parent) handle = handle->parent;
    return handle->scopes.count ? handle->scopes.data[handle->scopes.count - 1] : NULL;
}

/* "scope.name" */
static const char *inside(const dlc_graph *handle, const char *name) {
    const char *scope = graph_handle_scope(handle);
    return scope ? lib_arena_format(handle->arena, "%s.%s", scope, name) : name;
}

/* New values get the innermost scope as origin. */
static void enter_scope(dlc_graph *outer) {
    const char *scope = graph_handle_scope(outer);
    outer->g->scope = scope ? graph_origin_named(outer->g, scope) : 0;
}

static void check_name(const dlc_graph *handle, const char *call, const char *name) {
    if (!name || !*name)
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT, "%s: the name is %s, expected one character or more",
                  call, name ? "empty" : "NULL");
}

typedef struct name_arguments {
    dlc_value value;
    const char *name;
} name_arguments;

static void name_value(dlc_graph *handle, void *arguments) {
    const name_arguments *a = arguments;
    check_name(handle, "dlc_name", a->name);
    if (!dlc_value_ok(a->value))
        lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_name: a value of a graph that was destroyed, or no value at all");
    graph_value *value = &handle->g->values.data[a->value.id];
    if (value->origins == graph_outermost(handle->g)->scope) value->origins = 0; /* the full name includes the scope */
    graph_name_value(handle->g, a->value.id, inside(handle, a->name));
}

dlc_value dlc_name(dlc_value value, const char *name) {
    if (!value.graph) return value; /* an earlier error */
    if (!graph_handle_usable(value.graph, "dlc_name", false)) return graph_poison();
    name_arguments a = {value, name};
    return graph_handle_work(value.graph, name_value, &a) == DLC_OK || dlc_value_ok(value) ? value : graph_poison();
}

static void push_scope(dlc_graph *handle, void *arguments) {
    dlc_graph *outer = outermost(handle);
    const char *name = arguments;
    check_name(handle, "dlc_scope_push", name);
    name = lib_arena_string(outer->arena, inside(outer, name));
    graph_origin_named(outer->g, name); /* so that entering the scope allocates nothing */
    lib_vec_push(outer->arena, &outer->scopes, name);
    enter_scope(outer);
}

static void pop_scope(dlc_graph *handle, void *arguments) {
    dlc_graph *outer = outermost(handle);
    (void)arguments;
    if (!outer->scopes.count) lib_raise(handle->arena->scope, DLC_INVALID_ARGUMENT, "dlc_scope_pop: no scope is open");
    outer->scopes.count--;
    enter_scope(outer);
}

dlc_status dlc_scope_push(dlc_graph *handle, const char *name) {
    if (!graph_handle_usable(handle, "dlc_scope_push", false)) return DLC_INVALID_ARGUMENT;
    return graph_handle_work(handle, push_scope, (void *)(uintptr_t)name);
}

dlc_status dlc_scope_pop(dlc_graph *handle) {
    if (!graph_handle_usable(handle, "dlc_scope_pop", false)) return DLC_INVALID_ARGUMENT;
    return graph_handle_work(handle, pop_scope, NULL);
}
