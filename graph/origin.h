/* Names of values, for people: what hosts and files call them. No key, hash, order or decision depends on a name.
 *
 * graph_value.called is a value's own name. Its origins are the names of all values that it is computed for: a pass that makes several
 * values of one, or one of several, gives them the names of those (graph_walk_record), so that a kernel can be traced back to what the
 * host wrote. Names and lists of them are kept once, in the outermost graph. */
#ifndef GRAPH_ORIGIN_H
#define GRAPH_ORIGIN_H

#include "graph/graph.h"

/* The list of one name. */
uint32_t graph_origin_named(graph *g, const char *name);
/* A list that holds both, or as many as a list takes: the names that were given first. */
uint32_t graph_origins_join(graph *g, uint32_t a, uint32_t b);
/* A list of another graph's names in `to`. */
uint32_t graph_origins_import(graph *to, const graph *from, uint32_t list);
void graph_origins_add(graph *g, graph_id value, uint32_t list);
void graph_origins_cut(graph *g, graph_id value); /* there were more than its list takes */
/* Gives the value its own name, unless it has one, and that name as an origin. The name is copied. */
void graph_name_value(graph *g, graph_id value, const char *name);
/* The own name alone, of a value of another graph, too. NULL: none. */
void graph_call_value(graph *g, graph_id value, const char *name);
/* What people know the value by; NULL: nothing. */
static inline const char *graph_shown_name(const graph *g, graph_id value) {
    const graph_value *v = &g->values.data[value];
    return v->name ? v->name : v->called;
}

/* An identifier as it is, anything else in quotes; a name of more than 80 bytes is shortened. */
void graph_print_name(lib_text *text, const char *name);
/* " of a, b, ..." in `arena`, the names of all values that these nodes compute; moves and constants count where there is nothing else.
 * "": no names. */
const char *graph_origins_of_nodes(lib_arena *arena, const graph *g, const uint32_t *nodes, uint32_t count);
/* Identifiers of the text form. */
bool graph_is_identifier(const char *name);

#endif
