/* The list of the host's registrations; see registry.h. */
#include "graph/registry.h"

void graph_registry_init(graph_registry *registry) {
    lib_mutex_init(&registry->mutex);
    atomic_init(&registry->newest, NULL);
}

void graph_registry_free(graph_registry *registry, const dlc_allocator *allocator) {
    for (graph_definition *at = atomic_load(&registry->newest), *next; at; at = next) {
        next = at->next;
        if (at->release) at->release(at->user);
        graph_definition_free(at, allocator);
    }
    lib_mutex_destroy(&registry->mutex);
}

graph_definition *graph_definition_new(const dlc_allocator *allocator, graph_definition_kind kind) {
    graph_definition *definition = lib_allocate_zeroed(allocator, sizeof *definition, _Alignof(graph_definition));
    if (!definition) return NULL;
    definition->kind = kind;
    lib_arena_init(&definition->arena, allocator, NULL);
    return definition;
}

void graph_definition_free(graph_definition *definition, const dlc_allocator *allocator) {
    lib_arena_free(&definition->arena);
    lib_release(allocator, definition, sizeof *definition, _Alignof(graph_definition));
}

static const graph_definition *first(const graph_registry *registry) {
    return atomic_load_explicit(&((graph_registry *)(uintptr_t)registry)->newest, memory_order_acquire);
}

const graph_definition *graph_registry_find(const graph_registry *registry, const char *name) {
    for (const graph_definition *at = registry ? first(registry) : NULL; at; at = at->next)
        if (at->kind == GRAPH_OPERATOR && strcmp(at->name, name) == 0) return at;
    return NULL;
}

static bool is_text(const char *text, const char *data, size_t size) {
    return strlen(text) == size && memcmp(text, size ? data : "", size) == 0;
}

const graph_definition *graph_registry_find_onnx(const graph_registry *registry, const char *domain, size_t domain_size,
                                                 const char *name, size_t name_size, int version) {
    for (const graph_definition *at = registry ? first(registry) : NULL; at; at = at->next)
        if (at->kind == GRAPH_ONNX_OPERATOR && at->since <= version && version <= at->until &&
            is_text(at->name, name, name_size) && is_text(at->domain, domain, domain_size))
            return at;
    return NULL;
}

static bool clash(const graph_definition *a, const graph_definition *b) {
    if (a->kind != b->kind || strcmp(a->name, b->name) != 0) return false;
    if (a->kind != GRAPH_ONNX_OPERATOR) return true;
    return strcmp(a->domain, b->domain) == 0 && a->since <= b->until && b->since <= a->until;
}

bool graph_registry_add(graph_registry *registry, graph_definition *definition) {
    lib_mutex_lock(&registry->mutex);
    bool is_new = true;
    for (const graph_definition *at = first(registry); at && is_new; at = at->next) is_new = !clash(at, definition);
    if (is_new) {
        definition->next = atomic_load_explicit(&registry->newest, memory_order_relaxed);
        atomic_store_explicit(&registry->newest, definition, memory_order_release);
    }
    lib_mutex_unlock(&registry->mutex);
    return is_new;
}

const graph_definition *const *graph_registry_list(lib_arena *arena, const graph_registry *registry,
                                                   graph_definition_kind kind) {
    const graph_definition *newest = registry ? first(registry) : NULL;
    size_t count = 0;
    for (const graph_definition *at = newest; at; at = at->next) count += at->kind == kind;
    const graph_definition **list = LIB_NEW_ARRAY(arena, const graph_definition *, count + 1);
    for (const graph_definition *at = newest; at; at = at->next)
        if (at->kind == kind) list[--count] = at;
    return list;
}

/* ---- operators ------------------------------------------------------------------------------------------------- */

const graph_op *graph_find_op(const graph *g, const char *name) {
    const graph_op *op = graph_op_find(name);
    if (op) return op;
    const graph_definition *definition = graph_registry_find(graph_outermost(g)->registry, name);
    return definition ? &definition->op : graph_op_find_alias(name);
}

lib_nearest graph_nearest_op(const graph *g, const char *name) {
    lib_nearest nearest = lib_nearest_to(name);
    const char *word;
    size_t length;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            for (int i = 0; (length = graph_op_alias(*row, i, &word)) != 0; i++)
                lib_nearest_try(&nearest, word, length);
    const graph_registry *registry = graph_outermost(g)->registry;
    for (const graph_definition *at = registry ? first(registry) : NULL; at; at = at->next)
        if (at->kind == GRAPH_OPERATOR) lib_nearest_try(&nearest, at->name, strlen(at->name));
    return nearest;
}

void graph_check_operator_name(lib_arena *arena, const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz", all[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    static const char *const words[] = {"graph", "symbol", "require", "input", "output", "constant"};
    if (!name || !name[0]) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "an operator needs a name");
    if (strlen(name) > 63 || !strchr(letters, *name) || strspn(name, all) != strlen(name))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                  "\"%s\" is no name for an operator: expected a-z, then a-z, 0-9 and _, at most 63 characters", name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "\"%s\" is a word of the text form of graphs", name);
    if (graph_op_find(name))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "there is an operator %s in the library: it cannot be replaced",
                  name);
}
