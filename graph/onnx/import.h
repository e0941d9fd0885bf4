/* Importing: a model's nodes become nodes of a graph, each by a row of the tables in rows_*.c. Shared by the files of this
 * folder.
 *
 * A value of the model is *known* if its elements are numbers or index expressions over the graph's symbols: constants, shapes,
 * and values computed from them (sizes.c). Such values become tensors of the graph only if a row reads them as tensors, so that
 * arithmetic on sizes never becomes a kernel, and rows that need sizes (Reshape, Slice, ...) find them. */
#ifndef GRAPH_ONNX_IMPORT_H
#define GRAPH_ONNX_IMPORT_H

#include "graph/build.h"
#include "graph/onnx/model.h"
#include "graph/registry.h"

enum {
    ONNX_OPSET_LAST = 27,
    ONNX_MICROSOFT_LAST = 1,
    /* Greatest number of elements of a known value, and of one that a walk is asked for. */
    ONNX_KNOWN_MAX = 256,
    ONNX_ASKED_MAX = 1 << 16
};

/* One element of a known value: index / over or, for floats (index 0), `number`. over is 1 for integers and bools; for floats that depend on sizes,
 * the element is the quotient rounded to the element type. */
typedef struct onnx_number {
    tir_expr index;
    int64_t over;
    double number;
} onnx_number;

typedef struct onnx_known {
    dlc_dtype dtype;
    int rank;
    int64_t dims[DLC_MAX_RANK];
    int64_t count;
    onnx_number *element;
    /* In a walk: it was computed from data or sizes of this run. As a tensor it is an input of the part that reads it, not a constant, so that
     * programs of other runs do not depend on it. */
    bool varies;
} onnx_known;

typedef struct onnx_value {
    onnx_bytes name;
    /* 0: not emitted in the graph yet */
    graph_id id;
    /* The tensor, if the value is an initializer or a Constant node's; else NULL. */
    const onnx_tensor *stored;
    /* The known elements; NULL: not known, or not yet read from `stored`. */
    const onnx_known *known;
    /* The list, optional, strings or map that the value is (structure.h); NULL: it is a tensor of numbers, or `stored` has strings. */
    const struct onnx_structure *structure;
    /* It is an operand of a function that the caller omits: nodes that read it omit theirs. */
    bool omitted;
} onnx_value;

/* Names that nodes of one graph or function may use: its own, and those of the enclosing graph. */
typedef struct onnx_names_scope {
    struct onnx_names_scope *outer;
    lib_vec(onnx_value *) values;
    lib_map by_name;
} onnx_names_scope;

/* The operands and attributes of the call of a model-local function whose body is being imported. */
typedef struct onnx_call {
    const struct onnx_call *outer;
    const onnx_node *node;
    const onnx_function *function;
    int depth;
} onnx_call;

/* A run's input tensor, for whose rank, sizes or elements a model is imported. */
typedef struct onnx_arrived {
    int rank;
    /* -1: the import does not depend on this size */
    int64_t dim[DLC_MAX_RANK];
    /* The tensor, if its elements are known at import: it then is no input of the graph. Compact, in host memory, of the file's element type.
     * NULL: the import does not depend on its elements. */
    const DLTensor *value;
} onnx_arrived;

enum { ONNX_NEEDED_MAX = 64, ONNX_NEEDED_FLOATS_MAX = 8 };

/* After a refused import: the inputs of the main graph whose elements may make it possible. */
typedef struct onnx_needs {
    /* By input: its elements may be needed. At most ONNX_NEEDED_MAX integers or bools, or ONNX_NEEDED_FLOATS_MAX floats. */
    bool *content;
    /* node: a node was refused, not the model as a whole. walk: only a walk can import that node. */
    bool node, walk;
} onnx_needs;

/* ---- walks
 *
 * In a walk, a model is imported while it runs: values of the graph have tensors, its inputs and those computed so far. So the elements of
 * any value can be computed and read, and only the branch of an If that is taken and the iterations of a Loop that run are imported. Each
 * iteration has a graph of its own, which ends with it. Implemented by jit/onnx_walk.c; all functions raise in the scope of the graph's arena. */

/* A stacked result of a loop. */
typedef struct onnx_stack onnx_stack;

typedef struct onnx_walk {
    /* Makes tensor i of onnx_options.arrived the tensor of value `id` of g. Raises DLC_INVALID_ARGUMENT if it has another element type or
     * shape. */
    void (*attach)(struct onnx_walk *walk, graph *g, size_t i, graph_id id);
    /* Computes values, together. */
    void (*evaluate)(struct onnx_walk *walk, graph *g, int count, const graph_id *ids);
    /* Computes a value, whose shape has no symbols, and copies its elements. */
    void (*read)(struct onnx_walk *walk, graph *g, graph_id id, void *elements);
    /* A new value of `to` with the tensor of value `id` of `from`, which is computed if need be. */
    graph_id (*share)(struct onnx_walk *walk, graph *from, graph_id id, graph *to);
    /* The tensor of a value, which is computed if need be: compact, in host memory, valid as long as g. */
    const DLTensor *(*view)(struct onnx_walk *walk, graph *g, graph_id id);
    /* A new value whose elements the caller writes to *tensor, which is compact, in host memory. */
    graph_id (*make)(struct onnx_walk *walk, graph *g, const graph_shape *shape, DLTensor **tensor);
    /* A new value with these elements, which are copied. */
    graph_id (*hold)(struct onnx_walk *walk, graph *g, const graph_shape *shape, const void *elements);
    /* A key for the random numbers of a node without a seed, different in each call. */
    int64_t (*draw)(struct onnx_walk *walk);
    /* open: an empty graph, whose errors are raised in the scope of `outer`; raises if the run is over its time or cancelled. close: ends it. */
    graph *(*open)(struct onnx_walk *walk, const graph *outer);
    void (*close)(struct onnx_walk *walk, graph *g);
    /* stack: an empty stack, which ends with the run. push: appends an element, of the shape of the elements before it. finish: a new value of g
     * that stacks all elements; without any, it has dimension 0, then those of `none`. */
    onnx_stack *(*stack)(struct onnx_walk *walk, graph *g);
    void (*push)(struct onnx_walk *walk, onnx_stack *stack, graph *g, graph_id element);
    graph_id (*finish)(struct onnx_walk *walk, onnx_stack *stack, graph *g, const graph_shape *none);
} onnx_walk;

/* State that all imports of a walked model share, in the arena of `g`. */
typedef struct onnx_store {
    /* A graph with the stored tensors as constants, so that they are converted, copied (if they are not aligned) and hashed only once. */
    graph *g;
    lib_vec(const onnx_tensor *) tensors;
    /* By tensor: its value in g. */
    lib_vec(graph_id) constants;
    /* by_tensor: the tensor's index. walked: nodes of loops that no row of the operator table can run. */
    lib_map by_tensor, walked;
} onnx_store;

typedef struct onnx_options {
    /* Values for names of dimensions; name NULL ends the list. */
    const dlc_dim *dims;
    int dim_count;
    /* Inputs whose elements are given, which do not become inputs of the graph. Compact, in host memory, of the file's element types. */
    const char *const *value_names;
    const DLTensor *const *values;
    int value_count;
    bool newer_opset;
    /* Names of the outputs that the graph has. [output_count]; NULL: all */
    const char *const *outputs;
    int output_count;
    /* The run's tensors, in the order of the inputs of the main graph that are no initializers, those of a list one after the other; NULL: the
     * import is for no run. An input without a rank in the file takes the tensor's. */
    const onnx_arrived *arrived;
    /* By input of the main graph: the host's value for it, a tensor without elements, a list, an optional or a map; NULL: all are tensors. */
    const dlc_onnx_value *const *given;
    /* Receives the description of the outputs; NULL: all are tensors, each an output of the graph. */
    struct onnx_results *results;
    /* Set if the import is refused because of a node; may be NULL. */
    onnx_needs *needs;
    /* NULL: no walk. */
    onnx_walk *walk;
    onnx_store *store;
} onnx_options;

/* An enclosing node, for messages. */
typedef struct onnx_place {
    const struct onnx_place *outer;
    const onnx_node *node;
    size_t index;
    /* -1: no loop */
    int64_t iteration;
} onnx_place;

typedef struct onnx_import {
    graph *g;
    const onnx_model *model;
    const onnx_options *options;
    /* Owner of constants used in place; NULL: constants are copied. */
    graph_holder *holder;
    onnx_names_scope *scope;
    const onnx_call *call;
    /* The current node and its location, for messages and for the functions below. */
    const onnx_node *node;
    size_t node_index;
    /* The node of the main graph that is being imported, and the number of calls and nested graphs in it that enclose the current node. */
    const onnx_node *main_node;
    int depth;
    /* The nodes with graphs imported in place that enclose the current node, innermost first; NULL: none. */
    const onnx_place *within;
    const struct onnx_row *row;
    int opset;
    onnx_value **operand;
    /* Bit i: attribute i of the node was read. */
    uint64_t asked;
    onnx_value **result;
    /* Inputs made so far, in the order of the model's, for the caller. */
    lib_vec(graph_id) inputs;
    /* The names of dimensions in the main graph's inputs (inputs.c), listed when the first axis without one is met. */
    lib_map parameters;
    lib_vec(onnx_bytes) parameter_names;
    bool parameters_listed;
    /* Number of symbols that could not be called as their input and axis are. */
    int renamed;
    /* Number of tensors of onnx_options.arrived that inputs have taken so far. */
    size_t arrived;
    /* Number of nodes imported so far from unrolled loops (rows_sequence.c). */
    size_t unrolled;
    /* Greatest number of elements of a known value; larger while places of strings are moved (text.c). 0: ONNX_KNOWN_MAX. */
    int64_t known_max;
} onnx_import;

/* A row: the operator of a domain in versions since..until (0: up to the newest). */
typedef struct onnx_row {
    const char *name;
    int since, until;
    void (*import)(onnx_import *im);
    /* For one-to-one rows without attributes: the row of libdlc's operator table with the same operands. */
    const char *op;
} onnx_row;

/* An operator that is not imported, and why. */
typedef struct onnx_refusal {
    const char *name, *reason;
} onnx_refusal;

/* The operators of a domain. */
typedef struct onnx_domain {
    /* "": the standard's, which files also call "ai.onnx" */
    const char *name;
    /* Newest version of its operators that libdlc knows. */
    int last;
    /* NULL-terminated tables of rows, each ended by a row without a name. */
    const onnx_row *const *tables;
    /* Ended by one without a name; NULL: none. */
    const onnx_refusal *refused;
} onnx_domain;

/* Tables of rows, each ended by a row without a name. */
extern const onnx_row onnx_rows_attention[], onnx_rows_preview[], onnx_rows_map[], onnx_rows_structure[],
    onnx_rows_reduce[], onnx_rows_contract[], onnx_rows_window[], onnx_rows_normalize[], onnx_rows_index[],
    onnx_rows_recurrent[], onnx_rows_other[], onnx_rows_control[], onnx_rows_state[], onnx_rows_random[],
    onnx_rows_learn[], onnx_rows_svm[], onnx_rows_trees[], onnx_rows_training[], onnx_rows_microsoft[],
    onnx_rows_microsoft_attention[], onnx_rows_microsoft_quantized[], onnx_rows_sequence[], onnx_rows_text[],
    onnx_rows_ngrams[], onnx_rows_dictionary[];
extern const onnx_refusal onnx_refused_standard[], onnx_refused_microsoft[];

/* The domains in turn; NULL: past the last. */
const onnx_domain *onnx_domain_at(size_t i);
/* A row of that domain and name for some of these versions; NULL: none. */
const onnx_row *onnx_find_row(const char *domain, const char *name, int since, int until);

/* Imports the model's main graph into an empty graph. Raises with the node's location: DLC_UNSUPPORTED for what libdlc cannot do
 * (all such operators at once, before any node is emitted), DLC_PARSE_ERROR for a model that contradicts itself,
 * DLC_INVALID_ARGUMENT for options. */
void onnx_import_graph(onnx_import *im);
/* Sets *needs for a node that was refused: the small inputs of the main graph on which it depends (needs.c). */
void onnx_find_needs(onnx_import *im, const onnx_node *node, onnx_needs *needs);
/* The text of dlc_onnx_check: a line for each operator that has no row and is not registered; empty: none. */
void onnx_check_model(lib_text *text, const onnx_model *model, const graph_registry *registry);

/* Imports the node as the standard's operator `name` of version `opset`: for rows of other domains with the same operands and attributes. */
void onnx_import_as(onnx_import *im, const char *name, int opset);
/* onnx_import_as with these operands instead of the node's; 0: an omitted operand. */
void onnx_import_with(onnx_import *im, const char *name, int opset, int count, const graph_id *operands);
/* onnx_import_with, except that it returns the operator's first result instead of giving the node results. */
graph_id onnx_apply(onnx_import *im, const char *name, int opset, int count, const graph_id *operands);

/* ---- helpers of rows ------------------------------------------------------------------------------------------------- */

_Noreturn void onnx_fail(onnx_import *im, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline size_t onnx_operands(const onnx_import *im) {
    return im->node->inputs.count;
}
/* Is operand i present? */
static inline bool onnx_has(const onnx_import *im, size_t i) {
    return i < im->node->inputs.count && im->operand[i];
}
/* Is this a walk, and the current graph one whose values can be computed during the import, no sub-graph? */
static inline bool onnx_walks(const onnx_import *im) {
    return im->options->walk && !im->g->parent;
}
/* Is result i used? */
static inline bool onnx_wants(const onnx_import *im, size_t i) {
    return i < im->node->outputs.count && im->result[i];
}
/* Operand i as a tensor of the graph; 0: omitted. */
graph_id onnx_operand(onnx_import *im, size_t i);
/* Operand i as a tensor; one of shape [1] with rank 0, which rows take for one scale or zero point of all elements. 0: omitted. */
graph_id onnx_operand_or_scalar(onnx_import *im, size_t i);
/* The shape of operand i, which must be present. Emits nothing. If the operand is strings, the dtype means nothing. */
graph_shape onnx_operand_shape(onnx_import *im, size_t i);
static inline int onnx_operand_rank(onnx_import *im, size_t i) {
    return onnx_operand_shape(im, i).rank;
}
/* Operand i, which must be present, as a tensor of this rank. */
graph_id onnx_operand_of_rank(onnx_import *im, size_t i, int rank);
/* The elements of operand i; NULL: not known. */
const onnx_known *onnx_operand_known(onnx_import *im, size_t i);
/* The elements of operand i for a row that needs them: a walk computes them; NULL: not known. If the element type is not followed
 * (onnx_is_followed), the value does not become known to other nodes. */
const onnx_known *onnx_operand_asked(onnx_import *im, size_t i);
/* The elements of operand i as index expressions in g's pool; raises if they are not known. A walk computes them. */
const tir_expr *onnx_operand_sizes(onnx_import *im, size_t i, int *count);
/* The elements of operand i as integers; raises if they are not known or depend on symbols. A walk computes them. */
const int64_t *onnx_operand_integers(onnx_import *im, size_t i, int *count);
/* The only element of operand i; raises if it has another number of elements. onnx_operand_integer: if it is omitted, the fallback. */
tir_expr onnx_operand_size(onnx_import *im, size_t i);
int64_t onnx_operand_integer(onnx_import *im, size_t i, int64_t fallback);
double onnx_operand_float(onnx_import *im, size_t i, double fallback);
/* Is operand i known, and free of symbols? */
bool onnx_operand_is_constant(onnx_import *im, size_t i);

void onnx_give(onnx_import *im, size_t i, graph_id id);
void onnx_give_known(onnx_import *im, size_t i, const onnx_known *known);
/* Makes result i another name of operand k. */
void onnx_give_operand(onnx_import *im, size_t i, size_t k);
/* Makes `to` another name of `from`. */
static inline void onnx_take_value(onnx_value *to, const onnx_value *from) {
    to->id = from->id, to->stored = from->stored, to->known = from->known;
    to->structure = from->structure, to->omitted = from->omitted;
}

/* The node's attribute, or the value given by the enclosing function's caller; NULL: neither. Marks the attribute as read: unread
 * attributes are an error, since they would be ignored. */
const onnx_attribute *onnx_attribute_find(onnx_import *im, const char *name, onnx_attribute_type type);
/* Attribute i of the node, or, if it refers to an attribute of the enclosing function, the caller's value; NULL: the caller gives none. */
const onnx_attribute *onnx_attribute_at(const onnx_import *im, size_t i);
int64_t onnx_int(onnx_import *im, const char *name, int64_t fallback);
double onnx_float(onnx_import *im, const char *name, double fallback);
/* The string attribute, copied and terminated; raises if it contains NUL. */
const char *onnx_string(onnx_import *im, const char *name, const char *fallback);
/* The list; NULL and *count 0: the attribute is absent. */
const int64_t *onnx_ints(onnx_import *im, const char *name, int *count);
const float *onnx_floats(onnx_import *im, const char *name, int *count);
/* The index of the attribute's string among words separated by blanks; raises for another one. */
int onnx_choice(onnx_import *im, const char *name, const char *words, const char *fallback);
/* Marks an attribute that is irrelevant for inference as read. */
void onnx_ignore(onnx_import *im, const char *name);
dlc_dtype onnx_dtype(onnx_import *im, int64_t data_type);
dlc_dtype onnx_dtype_attribute(onnx_import *im, const char *name, dlc_dtype fallback);

/* The axis as 0..rank-1, or, with `past`, up to rank; a negative axis counts from the end. Raises if it is out of range. */
int onnx_axis(onnx_import *im, int64_t axis, int rank, bool past);
/* A list of different axes of a tensor of that rank, each as by onnx_axis; given NULL: the first `count`. Raises if one is there twice. */
int64_t *onnx_axis_list(onnx_import *im, const int64_t *given, int count, int rank);
/* onnx_axis_list, from operand `at`, or, before version operand_since, from attribute `axes`; NULL and *count 0: none were given. */
const int64_t *onnx_axes(onnx_import *im, int operand_since, size_t at, int rank, int *count);

/* Emits a row of the operator table by name, with settings; returns the first result. Operands of maps broadcast like NumPy. */
graph_id onnx_emit(onnx_import *im, const char *op, int inputs, const graph_id *input, int settings,
                   const graph_setting *setting);
/* onnx_emit with one operand, with two operands, and (ONNX_WITH) with one operand and settings. */
graph_id onnx_unary(onnx_import *im, const char *op, graph_id x);
graph_id onnx_binary(onnx_import *im, const char *op, graph_id a, graph_id b);
#define ONNX_WITH(im, op, x, ...)                                                                                    \
    onnx_emit((im), (op), 1, (graph_id[]){x}, (int)(sizeof((graph_setting[]){__VA_ARGS__}) / sizeof(graph_setting)), \
              (graph_setting[]){__VA_ARGS__})

/* onnx_channels_first: x [batch, spatial..., channels] as [batch, channels, spatial...]; onnx_channels_last: back. */
graph_id onnx_channels_first(onnx_import *im, graph_id x);
graph_id onnx_channels_last(onnx_import *im, graph_id x);
/* A new symbol for a size that depends on data, named after the node's result. Raises in sub-graphs, so that a walk takes the loop apart. */
tir_expr onnx_counted(onnx_import *im);
/* Operand i, indices of an axis of that size, with `size` added to indices below 0, which count from the end. */
graph_id onnx_from_start(onnx_import *im, size_t i, tir_expr size);

/* ---- known values (sizes.c) */
/* Tries to compute the node's results from known operands. False: kernels must compute them. */
bool onnx_fold(onnx_import *im);
/* The number of elements of a shape; -1: a dimension is negative, or there are more than `most`. */
int64_t onnx_count(size_t rank, const int64_t *dims, int64_t most);
onnx_known *onnx_known_new(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims);
onnx_known *onnx_known_of_dims(onnx_import *im, int count, const tir_expr *dims);
/* The known value of a stored tensor; NULL: too large, or of an unsupported type. */
const onnx_known *onnx_known_of_tensor(onnx_import *im, const onnx_tensor *tensor);
/* The known value of elements in memory. */
onnx_known *onnx_known_of_elements(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims,
                                   const void *elements);
/* Are all elements free of symbols? */
bool onnx_known_is_constant(const onnx_import *im, const onnx_known *known);
/* Is arithmetic on known values of the element type computed at import? */
bool onnx_is_followed(dlc_dtype dtype);
/* Assumes low <= index <= high for the sizes that arrive: what cannot be proved becomes a constraint, and a runner imports anew where it does not
 * hold. False: it holds for no sizes. */
bool onnx_assume(onnx_import *im, tir_expr index, int64_t low, int64_t high);
/* The known value of a tensor of the host; if it is too large, it is copied and *made is a constant of the graph. */
const onnx_known *onnx_known_of_view(onnx_import *im, const DLTensor *view, graph_id *made);
graph_id onnx_make_known(onnx_import *im, const onnx_known *known);

#endif
