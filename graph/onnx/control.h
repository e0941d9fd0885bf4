/* The importer's interface for control flow: names and nodes of nested graphs. */
#ifndef GRAPH_ONNX_CONTROL_H
#define GRAPH_ONNX_CONTROL_H

#include "graph/onnx/import.h"

bool onnx_same(onnx_bytes a, onnx_bytes b);
/* A terminated copy of the text; raises if it contains NUL. what: its name in the message. */
char *onnx_text_copy(onnx_import *im, onnx_bytes text, const char *what);
/* Looks up a name in the current and enclosing scopes; NULL: none. */
onnx_value *onnx_find_value(const onnx_import *im, onnx_bytes name);
/* Defines a value in the current scope; raises if the name is taken. */
onnx_value *onnx_define(onnx_import *im, onnx_bytes name);
/* Defines the initializers of a graph. */
void onnx_define_initializers(onnx_import *im, const onnx_graph *of);
/* The value as a tensor of the current graph. */
graph_id onnx_id_of(onnx_import *im, onnx_value *value);
/* The value's elements; NULL: not known. */
const onnx_known *onnx_known_of(onnx_import *im, onnx_value *value);
/* The value's elements, which a walk computes if they are not known; NULL: not known. */
const onnx_known *onnx_ask(onnx_import *im, onnx_value *value);
/* The value's shape; as onnx_operand_shape. */
graph_shape onnx_shape_of(onnx_import *im, onnx_value *value);
/* Imports the nodes of a nested graph into the current graph, with these values as its inputs. Sets outputs[] to its first `wanted`
 * outputs. */
void onnx_import_inline(onnx_import *im, const onnx_graph *part, const onnx_value *inputs, size_t wanted,
                        onnx_value *outputs);
/* A stored tensor as a constant of g: borrowed if it is aligned in the file, else copied. */
graph_id onnx_make_constant(onnx_import *im, graph *g, const onnx_tensor *tensor);
void onnx_import_nodes(onnx_import *im, const onnx_node *nodes, size_t count);

/* ---- operators (operators.c) */

/* The version of the operators of a domain that the model, or the current function, was written for; 0: not given. */
int onnx_opset_of(const onnx_model *model, const onnx_function *function, onnx_bytes domain);
/* The domain of that name; NULL: no operator of it is known. */
const onnx_domain *onnx_find_domain(onnx_bytes name);
/* The domain's row of that name for the version; NULL: there is none, or domain is NULL. */
const onnx_row *onnx_find_row_named(const onnx_domain *domain, onnx_bytes name, int opset);
/* How a node is imported: as a call of a function of the model, by a row, or by an operator of the host; all NULL: not at all. */
typedef struct onnx_meaning {
    const onnx_function *function;
    const onnx_row *row;
    const graph_definition *registered;
} onnx_meaning;
onnx_meaning onnx_meaning_of(const onnx_model *model, const graph_registry *registry, const onnx_node *node, int opset);

/* ---- nested graphs (rows_control.c) */

/* Values of enclosing graphs that a nested one uses. */
typedef lib_vec(onnx_value *) onnx_captures;

/* Adds to *all the values of graphs around `body` that `part` reads; part: the body, or a graph nested in it. */
void onnx_find_captures(onnx_import *im, onnx_captures *all, const onnx_graph *body, const onnx_graph *part);
/* Imports the initializers and nodes of a graph into the current scope. */
void onnx_import_body(onnx_import *im, const onnx_graph *part);
/* An output of the body as a value of the current graph. */
onnx_value *onnx_body_output(onnx_import *im, const onnx_graph *part, size_t i);
const onnx_graph *onnx_graph_attribute(onnx_import *im, const char *name);
/* Is the value declared with rank 1? Numbers of iterations and conditions may have shape [1]. */
bool onnx_is_list(const onnx_value_info *info);
/* The current node as an onnx_place, for messages about nodes that are imported inside of it. iteration: of a loop; -1: none. */
onnx_place *onnx_place_of(onnx_import *im, int64_t iteration);
/* After the nodes of a nested graph: the enclosing node is the current one again. */
void onnx_end_part(onnx_import *im, const onnx_import *saved);

/* ---- walks (walk.c) */

/* A stored tensor as a constant of the current graph; in a walk its bytes are shared with other runs (onnx_store). */
graph_id onnx_make_stored(onnx_import *im, const onnx_tensor *tensor);
/* Computes the sizes of the node's results that depend on data, so that no shape has symbols. */
void onnx_settle_results(onnx_import *im);
/* After folding: marks the known result as varying if it was computed from varying values or from sizes. */
void onnx_vary_result(onnx_import *im);
/* A known value with the same elements that varies. */
const onnx_known *onnx_varying(onnx_import *im, const onnx_known *known);

/* An operand of a Scan that is taken element by element. */
typedef struct onnx_walked_sequence {
    onnx_value *value;
    int axis;
    bool backwards;
} onnx_walked_sequence;

/* A Loop or Scan whose iterations are imported one by one, each into a graph of its own. */
typedef struct onnx_walked_loop {
    onnx_walk *walk;
    const onnx_graph *body;
    onnx_captures all;
    /* It is a Loop: the body's inputs begin with iteration number and condition, its outputs with the condition. */
    bool counts;
    size_t carried, sequences, stacks;
    /* [sequences] */
    const onnx_walked_sequence *sequence;
    /* Number of elements of each sequence. */
    int64_t length;
    /* home: the graph of the node; before: the graph of the previous iteration, at first home. */
    graph *home, *before;
    /* [carried] Values of `before`. */
    onnx_value **carry;
    /* [stacks] */
    onnx_stack **stack;
    onnx_place *place;
} onnx_walked_loop;

/* Begins the walk of the current node, whose operands from `first` on are carried values, then sequences. */
onnx_walked_loop onnx_begin_walk(onnx_import *im, bool counts, size_t first, size_t carried, size_t sequences);
/* Computes the values that the iterations read from the enclosing graph. */
void onnx_evaluate_taken(onnx_import *im, const onnx_walked_loop *w);
/* Imports and computes an iteration; returns whether the loop goes on. */
bool onnx_walk_iteration(onnx_import *im, onnx_walked_loop *w, int64_t iteration);
/* Gives the node its results: the last carried values and the stacks. */
void onnx_give_walked(onnx_import *im, const onnx_walked_loop *w);
/* Computes a condition; raises if it is not known. */
bool onnx_is_true(onnx_import *im, onnx_value *condition);
/* Imports the node by import(im). In a walk, if that fails because the node cannot be imported so, uses walk(im), in later runs at once. */
void onnx_import_or_walk(onnx_import *im, void (*import)(onnx_import *im), void (*walk)(onnx_import *im));

#endif
