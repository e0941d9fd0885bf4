/* What the files of the graph layer's core share and nobody else needs. */
#ifndef GRAPH_INTERNAL_H
#define GRAPH_INTERNAL_H

#include "graph/op.h"

/* ---- attributes by kind (attribute.c) */
int graph_choice_count(const char *choices);
int64_t graph_choice_find(const char *choices, const char *word); /* -1: it is none */
const char *graph_choice_word(const char *choices, int64_t index, size_t *length);
graph_attribute graph_attribute_default(graph *g, const graph_attribute_spec *spec); /* of a spec that has one */
graph_attribute graph_attribute_parse(graph *g, lib_lexer *lexer, const graph_attribute_spec *spec);
void graph_attribute_print(lib_text *text, const graph *g, const graph_attribute_spec *spec,
                           const graph_attribute *attribute); /* not SUBGRAPH */
bool graph_attribute_equal(const graph_attribute_spec *spec, const graph_attribute *a, const graph_attribute *b);
uint64_t graph_attribute_hash(const graph_attribute_spec *spec, const graph_attribute *attribute, uint64_t seed);
graph_attribute graph_attribute_copy(lib_arena *arena, const graph_attribute_spec *spec,
                                     const graph_attribute *attribute);
tir_expr graph_parse_dim(graph *g, lib_lexer *lexer);             /* unknown names become symbols */
void graph_check_nesting(const graph *g, const lib_lexer *lexer); /* raises where g may have no sub-graph */
graph *graph_parse_into(graph *g, lib_lexer *lexer);              /* text.c: from `{` */

/* ---- graph.c */
/* graph_emit of operands that were made from those that the caller wrote, of which messages speak: as many, of the same dtypes. */
graph_id graph_emit_written(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_id *written,
                            const graph_attribute *attributes);
int graph_result_count(const graph *g, graph_id first); /* of the node that emit returned `first` for */
bool graph_is_source(const graph_op *op);               /* `input` or `constant` */
void graph_constrain(graph *g, tir_expr left, tir_expr right, const char *message); /* records once */
/* Shares the bytes of a constant of another graph. */
uint32_t graph_add_constant_as(graph *g, graph_constant constant);
/* Kept once, which the arena releases with its memory. */
void graph_bytes_own(lib_arena *arena, graph_bytes *bytes);

/* ---- element types that are stored otherwise than computed with (ops_stored.c)
 *
 * Is it a row other than those that are made for them? Then it is expanded, as composites are. */
bool graph_is_on_stored(const graph *g, const graph_node *node);
void graph_expand_stored(graph_expand *expand, int results);

/* ---- walking an old graph into a new one (walk.c): what all passes stand on.
 * A pass is a function that emits, for the nodes of `from` in order, something into `to` and records where values went.
 * It is run for the graph and, when a node with sub-graphs is carried over, for each of those. */
typedef struct graph_walk {
    const graph *from;
    graph *to;
    /* by value of `from`; 0: not there */
    graph_id *map;
    /* by variable of from->pool: what it is in to->pool; shared by all sub-graphs; NULL: one pool */
    tir_expr *variables;
    /* by list of `from`: 1 + the list of `to`; 0: not imported yet. NULL: one outermost graph, or no names */
    uint32_t *origins;
    /* values of `to` from here on came up since a result was recorded */
    graph_id recorded;
    void (*pass)(struct graph_walk *walk);
    /* of the pass */
    void *user;
    /* the pass has set the new graph's outputs itself */
    bool own_outputs;
    /* `from` is given up: sub-graphs of its sub-graphs become those of `to` as they are, where they are from's own */
    bool moves_inner;
} graph_walk;

/* Runs the pass into a new graph in `arena` with its own pool; symbols (in order), constraints and outputs are carried
 * over. values: NULL, or as for graph_bind: symbols with a value become numbers. */
graph *graph_walk_run(lib_arena *arena, const graph *from, uint32_t phase, const int64_t *values,
                      void (*pass)(graph_walk *walk), void *user);
void graph_walk_into(
    graph_walk *walk); /* from, to, variables and pass are set: runs the pass and carries outputs over */
tir_expr graph_walk_dim(const graph_walk *walk, tir_expr dim);
void graph_walk_attributes(graph_walk *walk, const graph_node *node, graph_attribute *out); /* one per spec */
void graph_walk_attribute(graph_walk *walk, const graph_node *node, int which, graph_attribute *out);
/* Where the operands went, in the new graph's arena. */
graph_id *graph_walk_inputs(const graph_walk *walk, const graph_node *node);
void graph_walk_node(graph_walk *walk, uint32_t node); /* emits it again */
void graph_walk_record(graph_walk *walk, const graph_node *node,
                       const graph_id *results); /* maps its results; carries names, also to what was made on the way */
/* Nodes that outputs and impure nodes need, and all inputs; by node index, in `arena`. */
bool *graph_live_nodes(lib_arena *arena, const graph *g);
/* By node, in `arena`: operations that one element costs where it is made of nothing but positions and numbers, by a few cheap
 * operators on integers (masks of triangles and bands): cheaper than memory. 0: other nodes. */
uint8_t *graph_index_costs(lib_arena *arena, const graph *g);
/* By node: likewise of integers and bools that compare or add positions and values that are stretched along some of them, as a mask by
 * lengths is; a bool that is read as it lies may be combined with one. graph_index_costs where that is not 0. */
uint8_t *graph_mask_costs(lib_arena *arena, const graph *g, const uint8_t *index_costs);
/* Of what is computed once in another place: it is cheaper made again than kept. */
bool graph_stays_behind(const graph_node *node, uint8_t index_cost);
/* By node, in `arena`: is it the same at every run, and are its shapes numbers? */
bool *graph_fixed_nodes(lib_arena *arena, const graph *g);
void graph_walk_live(graph_walk *walk); /* a pass: emits all live nodes again */
void graph_walk_all(graph_walk *walk);  /* a pass: emits all nodes again */

#endif
