/* Names of values given by hosts and files, for messages only. No key, hash, order or decision depends on a name.
 *
 * graph_value.called is a value's own name. Its origins are the names of the host's values that it implements: a pass that
 * replaces values passes their names on to the new ones (graph_walk_record), so that a kernel can be traced back to the host's
 * graph. A list also has the marks of its values' part of a training step (sweep.h). Names and lists are stored without duplicates in the outermost graph. */
#ifndef GRAPH_ORIGIN_H
#define GRAPH_ORIGIN_H

#include "graph/graph.h"

/* The list with only this name. */
uint32_t graph_origin_named(graph *g, const char *name);
/* The list with no name and these marks of sweep.h. */
uint32_t graph_origin_swept(graph *g, uint32_t sweeps);
/* Copies a list of another graph to `to`. */
uint32_t graph_origins_import(graph *to, const graph *from, uint32_t list);
/* Adds the names of a list of g to the value's origins. */
void graph_origins_add(graph *g, graph_id value, uint32_t list);
void graph_origins_cut(graph *g, graph_id value); /* marks its list as truncated */
/* Gives the value its own name, unless it has one, and that name as an origin. The name is copied. */
void graph_name_value(graph *g, graph_id value, const char *name);
/* Sets the value's own name, but no origin. NULL: no name. */
void graph_call_value(graph *g, graph_id value, const char *name);
/* The name shown in messages; NULL: none. */
static inline const char *graph_shown_name(const graph *g, graph_id value) {
    const graph_value *v = &g->values.data[value];
    return v->name ? v->name : v->called;
}

/* Prints an identifier unchanged, any other name in quotes; names above 80 bytes are shortened. */
void graph_print_name(lib_text *text, const char *name);
/* " of a, b, ..." in `arena`: the origins of the values that nodes[count] compute; origins of moves and constants only if there are no
 * others. "": no names. */
const char *graph_origins_of_nodes(lib_arena *arena, const graph *g, const uint32_t *nodes, uint32_t count);
/* Is the name an identifier of the text form? */
bool graph_is_identifier(const char *name);

#endif
