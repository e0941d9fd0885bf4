/* The host's registrations with a context: operators, rewrite rules, passes, schedules, operators of ONNX models. A definition is built
 * and checked, and then prepended to a list that readers traverse without a lock; it stays unchanged until the context is freed. Nodes,
 * programs and schedules point to definitions. Only api_extend.c (and jit) access the host's functions in them. */
#ifndef GRAPH_REGISTRY_H
#define GRAPH_REGISTRY_H

#include "graph/op.h"

#include <stdatomic.h>

typedef enum graph_definition_kind {
    GRAPH_OPERATOR,
    GRAPH_RULE,
    GRAPH_PASS,
    GRAPH_SCHEDULE,
    GRAPH_ONNX_OPERATOR
} graph_definition_kind;

struct onnx_import;                           /* onnx/import.h */
typedef struct graph_notation graph_notation; /* notation.h */
typedef struct graph_rule graph_rule;         /* rewrite.h */

typedef struct graph_definition {
    /* the previously registered one */
    struct graph_definition *next;
    graph_definition_kind kind;
    const char *name;
    /* ONNX_OPERATOR: first and last version of the operator set of this domain */
    const char *domain;
    int since, until;
    /* owns the definition and all its data */
    lib_arena arena;
    struct dlc_context *context;
    /* OPERATOR: an owner of the definition, which programs retain; NULL: the context owns it */
    graph_holder *holder;
    /* OPERATOR */
    graph_op op;
    /* OPERATOR: NULL: the host's functions define shapes and results */
    const graph_notation *notation;
    /* RULE */
    const graph_rule *rule;
    /* PASS: it runs after composites are expanded, not before */
    bool late;
    /* OPERATOR: true while graph_notation_try checks the expression */
    bool trial;
    /* the host's functions, see api_extend.c */
    const void *functions;
    /* OPERATOR: a C function of the host; NULL: none. */
    dlc_status (*invoke)(const struct graph_definition *definition, const graph_custom *custom, int inputs,
                         const DLTensor *const *input, int outputs, DLTensor *const *output, lib_error *error);
    void *user;
    /* may be NULL */
    void (*release)(void *user);
    /* ONNX_OPERATOR: adds to the graph what the importer's current ONNX node computes (graph/onnx/import.h) */
    void (*import)(struct onnx_import *importer, const struct graph_definition *definition);
} graph_definition;

typedef struct graph_registry {
    /* serialises additions */
    lib_mutex mutex;
    _Atomic(graph_definition *) newest;
} graph_registry;

void graph_registry_init(graph_registry *registry);
void graph_registry_free(graph_registry *registry,
                         const dlc_allocator *allocator); /* calls release of each, newest first */
/* A definition to fill in, whose arena has no scope; NULL: out of memory. The caller adds it to the registry, or frees it by
 * graph_definition_free, which does not call `release`. */
graph_definition *graph_definition_new(const dlc_allocator *allocator, graph_definition_kind kind);
void graph_definition_free(graph_definition *definition, const dlc_allocator *allocator);
/* False: a definition of that kind and name exists; for operators of ONNX models, of that domain too and for one of the versions. */
bool graph_registry_add(graph_registry *registry, graph_definition *definition);
/* The operator of that name; NULL: none. */
const graph_definition *graph_registry_find(const graph_registry *registry, const char *name);
/* The operator of ONNX models of that domain, name and version; strings with their sizes. NULL: none. */
const graph_definition *graph_registry_find_onnx(const graph_registry *registry, const char *domain, size_t domain_size,
                                                 const char *name, size_t name_size, int version);
/* All definitions of the kind, in the order of registration, NULL-terminated, in `arena`. */
const graph_definition *const *graph_registry_list(lib_arena *arena, const graph_registry *registry,
                                                   graph_definition_kind kind);

/* Raises unless `name` is valid for an operator: [a-z][a-z0-9_]*, at most 63 characters, not one of the table or of the text form. */
void graph_check_operator_name(lib_arena *arena, const char *name);

#endif
