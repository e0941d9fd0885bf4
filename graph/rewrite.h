/* Rewrite rules of the host: a pattern and a replacement in the notation of operators in text graphs, nested,
 *
 *     log(softmax(x, axis=a))  ->  log_softmax(x, axis=a)
 *
 * <dlc/extend.h> defines their meaning. A replacement may be a function of the host instead. */
#ifndef GRAPH_REWRITE_H
#define GRAPH_REWRITE_H

#include "graph/registry.h"

enum { GRAPH_MATCH_NAMES = 32 };

/* A match of a rule's pattern: the values and attributes that the pattern's names stand for. */
typedef struct graph_match {
    graph *g;
    /* the value that is replaced */
    graph_id root;
    int values, attributes;
    struct {
        const char *name;
        graph_id value;
    } value[GRAPH_MATCH_NAMES];
    struct {
        const char *name;
        const graph_attribute_spec *spec;
        const graph_attribute *attribute;
    } attribute[GRAPH_MATCH_NAMES];
} graph_match;

/* The value that replaces match->root; 0: the rule does not apply after all. May raise. */
typedef graph_id graph_replace(const graph_definition *rule, const graph_match *match);

/* Parses both texts (replacement NULL: `replace` makes it) for graphs with that registry; sets definition->rule. Raises
 * DLC_PARSE_ERROR or DLC_INVALID_ARGUMENT. */
void graph_rule_define(graph_definition *definition, graph_registry *registry, const char *pattern,
                       const char *replacement, graph_replace *replace);

/* Raises unless `is` has the element type and shape of `was`; sizes that depend on symbols are compared at bind. */
void graph_require_same_shape(graph *g, graph_id was, graph_id is);

/* Applies the rules of the graph's registry until none applies, in at most 16 passes; returns g itself if none applied. Raises
 * DLC_INVALID_ARGUMENT, with the rule's name, if a replacement has another element type or shape, or if the graph grows too much.
 * *steps (steps may be NULL): number of matching steps, for tests of its growth. */
graph *graph_apply_rules(lib_arena *arena, const graph *g, uint64_t *steps);

#endif
