/* Private interface of the graph layer's core files. */
#ifndef GRAPH_INTERNAL_H
#define GRAPH_INTERNAL_H

#include "graph/op.h"

/* ---- attributes by kind (attribute.c) */
int graph_choice_count(const char *choices);
int64_t graph_choice_find(const char *choices, const char *word); /* -1: unknown */
const char *graph_choice_word(const char *choices, int64_t index, size_t *length);
graph_attribute graph_attribute_default(graph *g, const graph_attribute_spec *spec); /* the spec must have a default */
graph_attribute graph_attribute_parse(graph *g, lib_lexer *lexer, const graph_attribute_spec *spec);
void graph_attribute_print(lib_text *text, const graph *g, const graph_attribute_spec *spec,
                           const graph_attribute *attribute); /* not SUBGRAPH */
bool graph_attribute_equal(const graph_attribute_spec *spec, const graph_attribute *a, const graph_attribute *b);
uint64_t graph_attribute_hash(const graph_attribute_spec *spec, const graph_attribute *attribute, uint64_t seed);
graph_attribute graph_attribute_copy(lib_arena *arena, const graph_attribute_spec *spec,
                                     const graph_attribute *attribute);
tir_expr graph_parse_dim(graph *g, lib_lexer *lexer);             /* unknown names become symbols */
void graph_check_nesting(const graph *g, const lib_lexer *lexer); /* raises if g may not have sub-graphs */
graph *graph_parse_into(graph *g, lib_lexer *lexer);              /* text.c: from `{` */

/* ---- graph.c */
/* graph_emit on input[inputs]; messages show written[inputs], the operands that the caller gave, of the same dtypes. */
graph_id graph_emit_written(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_id *written,
                            const graph_attribute *attributes);
int graph_result_count(const graph *g, graph_id first); /* of the node for which emit returned `first` */
bool graph_is_source(const graph_op *op);               /* `input` or `constant` */
/* Adds a constant of another graph, whose bytes both graphs share; returns its number. */
uint32_t graph_add_constant_as(graph *g, graph_constant constant);
/* Transfers the caller's reference to the arena, which releases it when it is freed. */
void graph_bytes_own(lib_arena *arena, graph_bytes *bytes);

/* ---- element types that are stored in another form than they are computed in: c64 and codes (ops_stored.c)
 *
 * Is the row's own definition for operands and results of such types? */
bool graph_op_stores(const graph_op *op);
/* Is the node on values of such types, and its row's definition not? It is then expanded (graph_expand_stored), as composites are. */
bool graph_is_on_stored(const graph *g, const graph_node *node);
void graph_expand_stored(graph_expand *expand, int results);

/* ---- walking an old graph into a new one (walk.c): the basis of all passes. A pass is a function that goes through the nodes of
 * `from` in order, emits nodes into `to`, and records for each old value the new one. It runs for the graph and, when a node with
 * sub-graphs is carried over, for each sub-graph. */
typedef struct graph_walk {
    const graph *from;
    graph *to;
    /* by value of `from`: the value of `to`; 0: none yet */
    graph_id *map;
    /* by variable of from->pool: its expression in to->pool; shared by all sub-graphs; NULL: both graphs have the same pool */
    tir_expr *variables;
    /* by origin list of `from`: 1 + the list of `to`; 0: not imported yet. NULL: from and to have the same outermost graph, or `from`
     * has no names */
    uint32_t *origins;
    /* first value of `to` that was emitted after the last recorded result */
    graph_id recorded;
    void (*pass)(struct graph_walk *walk);
    /* the pass's data */
    void *user;
    /* the pass has set the new graph's outputs itself */
    bool own_outputs;
    /* `from` is not used afterwards: sub-graphs of its sub-graphs are moved to `to` unchanged, if `from` owns them */
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
/* The operands' values in the new graph, in its arena. */
graph_id *graph_walk_inputs(const graph_walk *walk, const graph_node *node);
void graph_walk_node(graph_walk *walk, uint32_t node); /* emits it again */
/* Expands nodes until `expands` is false for all; where it is true, graph_has_expansion must be. graph_decompose expands all nodes for
 * which graph_has_expansion is true. */
graph *graph_expand_all(lib_arena *arena, const graph *g, bool (*expands)(const graph *g, const graph_node *node));
bool graph_has_expansion(const graph *g, const graph_node *node);
/* Emits the expansion of a node of `from`, for which graph_has_expansion is true, into e->g. g, input and attribute are set: the node's in
 * that graph. Sets the rest; raises DLC_INTERNAL if a result does not have the shape that `infer` gave. */
void graph_expand_node(graph_expand *e, const graph *from, const graph_node *node);
void graph_walk_record(graph_walk *walk, const graph_node *node,
                       const graph_id *results); /* maps its results; copies names, also to intermediate values */
/* By node, in `arena`: an output or an impure node depends on it, or it is impure or an input. */
bool *graph_live_nodes(lib_arena *arena, const graph *g);
/* Is there such a node in the graph or its sub-graphs? */
bool graph_any_node(const graph *g, bool (*is)(const graph *g, const graph_node *node));
/* Marks, too, all nodes that marked ones depend on. */
void graph_mark_operands(const graph *g, bool *marked);
/* By value, in `arena`: number of live readers, outputs included. */
uint32_t *graph_count_readers(lib_arena *arena, const graph *g, const bool *live);
/* By node, in `arena`: operations per element of values computed only from positions and numbers by a few cheap integer operators
 * (triangular and band masks), which are cheaper than memory. 0: other nodes. */
uint8_t *graph_index_costs(lib_arena *arena, const graph *g);
/* By node, in `arena`: operations per element of integers and bools computed from positions and broadcast values, such as a mask by
 * lengths, and from at most one bool that is read elementwise; 0: other nodes. Equal to index_costs where that is not 0. */
uint8_t *graph_mask_costs(lib_arena *arena, const graph *g, const uint8_t *index_costs);
/* Is the node cheaper to recompute than to read from memory? Then it is not moved out of a loop or into the init graph. */
bool graph_stays_behind(const graph_node *node, uint8_t index_cost);
/* By node, in `arena`: it depends on constants only, so that it is equal in every run, and its shapes are numbers. */
bool *graph_fixed_nodes(lib_arena *arena, const graph *g);
/* A walk between graphs of one outermost graph, by which nodes are then emitted one by one; nodes with sub-graphs take all of these. */
graph_walk graph_walk_between(const graph *from, graph *to);
/* Emits the body's nodes into `to`, its inputs being `inputs`; sets outputs[] to its outputs. */
void graph_inline(const graph *body, graph *to, const graph_id *inputs, graph_id *outputs);
void graph_walk_live(graph_walk *walk); /* a pass: emits all live nodes again */
void graph_walk_all(graph_walk *walk);  /* a pass: emits all nodes again */

#endif
