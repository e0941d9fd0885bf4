/* Graph IR: immutable, hash-consed nodes in a dense array; value ids; array order is topological order.
 *
 * A node owns `results` consecutive values; input ids are smaller than a node's own first value. Dimensions are index
 * expressions in the graph's pool; symbols are TIR_VAR_PARAM variables. The one constructor is graph_emit: check -> infer ->
 * fold -> hash-cons -> append. A pass walks an old graph and emits into a new one. All functions run inside the scope of the
 * graph's arena (see lib/lib.h); the public builder (api.c) opens it. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "lib/lib.h"
#include "tir/expr.h"

typedef uint32_t graph_id; /* a value; 0: none */
typedef struct graph graph;
typedef struct graph_op graph_op; /* a row of the operator table, graph/op.h */

typedef struct graph_shape {
    dlc_dtype dtype;
    int rank;
    /* index expressions in graph->pool */
    tir_expr dim[DLC_MAX_RANK];
} graph_shape;

/* Attribute value; the operator's attribute spec selects the member. */
typedef struct graph_attribute {
    /* integer, bool, dtype, enumeration (index of the word), sub-graph number, constant number */
    int64_t integer;
    /* float */
    double number;
    /* string */
    const char *string;
    /* integer list */
    const int64_t *list;
    /* dimension list (index expressions) */
    const tir_expr *dims;
    /* of list or dims */
    int32_t count;
    /* false: the spec's default was filled in (not printed) */
    bool given;
} graph_attribute;

typedef struct graph_node {
    const graph_op *op;
    int32_t inputs, results;
    /* 0: an omitted optional operand */
    const graph_id *input;
    /* one per spec of the row */
    const graph_attribute *attribute;
    /* first result */
    graph_id first;
    /* the row is impure, or a node of a sub-graph */
    bool impure;
    uint64_t hash;
} graph_node;

typedef struct graph_value {
    graph_shape shape;
    /* index into graph->nodes */
    uint32_t node;
    /* index of the result */
    int32_t result;
    /* list of names (origin.h); 0: none */
    uint32_t origins;
    /* of inputs, and in the text form; may be NULL */
    const char *name;
    /* name given by the host (dlc_name) or a file; may be NULL. For messages only, see origin.h */
    const char *called;
} graph_value;

enum { GRAPH_ORIGINS_MAX = 8 };
/* a list of names and marks, see origin.h; compared as bytes */
typedef struct graph_origins {
    uint32_t count;
    /* 1: the list is truncated */
    uint32_t more;
    /* marks of sweep.h */
    uint32_t sweeps;
    /* ascending indices into graph->origin_names; 0 after the last */
    uint32_t name[GRAPH_ORIGINS_MAX];
} graph_origins;

/* First member of a reference-counted object that owns bytes or functions of a graph (a file, a dlc_native, graph_bytes, a weight
 * of jit). The host's graph retains the owner of everything it was given, a program the owners of what it still uses. All
 * functions are thread-safe. */
typedef struct graph_holder {
    void (*keep)(struct graph_holder *holder);
    void (*release)(struct graph_holder *holder);
    /* For bytes that may move: returns the current address of the bytes whose original address was `bytes`, valid while the holder
     * is retained; NULL: out of memory. If the pointer itself is NULL, the bytes never move. */
    const void *(*read)(struct graph_holder *holder, const void *bytes);
    /* Hint that these bytes will hardly be read again. The pointer may be NULL: the hint is ignored. */
    void (*idle)(struct graph_holder *holder, const void *bytes, size_t size);
} graph_holder;

/* Bytes of a constant; large ones are keyed by identity. */
typedef struct graph_constant {
    /* Row-major without gaps. If the holder has `read`: the original address, which only identifies the bytes and must not be
     * dereferenced; graph_constant_bytes gives the current one. */
    const void *bytes;
    size_t size;
    /* The bytes belong to the host or the holder, not to the arena. */
    bool borrowed;
    /* Hash of the bytes; `by_place`, of borrowed and large ones: of their address and size. */
    uint64_t identity;
    bool by_place;
    /* Owner of the bytes; NULL: the arena, or, if borrowed, the host, which keeps them. */
    graph_holder *holder;
    /* graph_constant_describe has set the fields below, which summarise the bytes. */
    bool described;
    /* Least period of the bytes: 1, 2, 4 or 8; 0: none of these. */
    uint8_t period;
    /* The first bytes. */
    uint8_t head[16];
} graph_constant;

/* Reference-counted bytes of a constant, shared by graphs and programs. The object may outlive the bytes: see graph_bytes_drop. */
typedef struct graph_bytes graph_bytes;
enum { GRAPH_BYTES_LEAST = 64 << 10 /* smaller constants are copied by each user */ };

/* left == right, checked when sizes are bound; if they differ, bind fails with the message of the operator that requires it. */
typedef struct graph_constraint {
    tir_expr left, right;
    const char *message;
} graph_constraint;

typedef struct graph_symbol {
    /* TIR_VAR_PARAM; its variable holds range and multiple */
    tir_expr var;
    const char *name;
    /* the host expects many values: kernels take it as a parameter from the start (dlc_symbol_varies) */
    bool varies;
    /* number of uses in dimensions and attributes of the host or of a text */
    uint32_t mentions;
} graph_symbol;

/* A host function, called by custom_call and custom_effect. All tensors are row-major without gaps, and outputs are allocated. */
typedef void graph_custom_call(void *user, int inputs, const DLTensor *const *input, int outputs,
                               DLTensor *const *output);
typedef struct graph_custom {
    const char *name;
    graph_custom_call *call;
    void *user;
    /* owner of `user`; NULL: the host keeps it */
    graph_holder *holder;
    /* For an operator registered by the host, in place of `call`: the row and the node's attributes. */
    const graph_op *op;
    const graph_attribute *attribute;
} graph_custom;

struct graph {
    lib_arena *arena;
    /* shared by a graph and its sub-graphs */
    tir_pool *pool;
    /* sub-graphs: the enclosing graph */
    graph *parent;
    /* number of enclosing graphs */
    int depth;
    /* levels of sub-graphs nested below it */
    int height;
    lib_vec(graph_node) nodes;
    /* [0] unused */
    lib_vec(graph_value) values;
    /* without duplicates */
    lib_vec(graph_constant) constants;
    lib_map constants_by_identity;
    /* large borrowed constants, by a hash of their first and last bytes */
    lib_map constants_by_ends;
    /* values of `input` nodes, in order */
    lib_vec(graph_id) inputs;
    lib_vec(graph_id) outputs;
    lib_vec(const char *) output_names;
    /* of the outermost graph */
    lib_vec(graph_symbol) symbols;
    lib_map symbols_by_name, outputs_by_name, constraints_by_sides;
    lib_vec(graph_constraint) constraints;
    lib_vec(graph *) subgraphs;
    /* of the outermost graph */
    lib_vec(graph_custom) customs;
    /* of the outermost graph: the host's registrations; NULL: none. Kept by all passes */
    struct graph_registry *registry;
    lib_map cons;
    /* Of the outermost graph: names of values and lists of names, without duplicates (origin.h). */
    lib_vec(const char *) origin_names;
    /* [0]: none */
    lib_vec(graph_origins) origins;
    lib_map origin_names_by_hash, origins_by_hash;
    /* of the outermost graph: origin list for new values; 0: none */
    uint32_t scope;
    /* of the outermost graph, while it is parsed or built: limit of the nesting of sub-graphs; 0: none */
    int nesting;
    /* of the outermost graph: while it is built, sources such as `dimension` are not folded to constants. Set for eager graphs: parts
     * that differ only in the numbers of `dimension` nodes then differ only in sizes (sizes.h) and can share a program */
    bool keeps_dimensions;
    /* of the outermost graph: hosts' rules of differentiation that are being called, one from within the other */
    int rules;
    /* GRAPH_BUILD, GRAPH_SIMPLIFY, GRAPH_BOUND: selects the rewrite rules that emit applies */
    uint32_t phase;
    /* counter for rng streams and effect tokens */
    uint32_t next_stream;
    /* of the outermost graph: how often rules or folding replaced an emitted node */
    uint32_t rewrites;
};

enum { GRAPH_BUILD = 1, GRAPH_SIMPLIFY = 2, GRAPH_BOUND = 4 };

graph *graph_new(lib_arena *arena, tir_pool *pool); /* empty; pool NULL: one of its own */
/* Sub-graphs share the parent's pool and symbols; *number is what a SUBGRAPH attribute holds. `if`, `while`: all operands (of `if`:
 * those after the condition) are the inputs of every sub-graph, in order. The outputs of a `while`'s body are its first operands in
 * the next iteration, and finally its results; the other operands are captures, equal in all iterations. The operands of `scan` are
 * carries, sequences and captures; for a sequence, the body's input is one element of it. */
enum { /* attributes of `scan` */
       GRAPH_SCAN_BODY,
       GRAPH_SCAN_CARRIES,
       GRAPH_SCAN_SEQUENCES,
       GRAPH_SCAN_LENGTH,
       GRAPH_SCAN_REVERSE,
       GRAPH_SCAN_CONDITIONAL
};
enum { GRAPH_FORWARD, GRAPH_BACKWARD }; /* attributes of `with_gradient`: its row describes their inputs */
graph *graph_new_subgraph(graph *parent, int64_t *number);
/* The two steps of graph_new_subgraph: create the graph, without a number; give it its number in `parent`. */
graph *graph_new_inside(graph *parent);
int64_t graph_add_subgraph(graph *parent, graph *g);
/* Stack bytes that a pass over the graph needs: after checking for them, a pass may recurse over sub-graphs. */
size_t graph_stack(const graph *g);
static inline graph *graph_outermost(const graph *g) {
    while (g->parent) g = g->parent;
    return (graph *)g;
}
static inline const graph_node *graph_node_of(const graph *g, graph_id value) {
    return &g->nodes.data[g->values.data[value].node];
}
static inline const graph_shape *graph_shape_of(const graph *g, graph_id value) {
    return &g->values.data[value].shape;
}

/* The constructor. attributes: one per spec of the row, or NULL if it has none. Returns the first result's id. Raises
 * DLC_INVALID_ARGUMENT with operator, operands and what was expected. */
graph_id graph_emit(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_attribute *attributes);
/* Passes and expansions emit by name and by typed helpers: graph/build.h. An attribute with `given` false takes the row's default
 * (a required one raises); one that equals the default becomes not given. Omitted trailing operands are filled with 0: a node has
 * max_inputs operands, unless its row is variadic. */
/* A constant node with the value of a node on constants, by the row's compute definition; 0: not worthwhile or impossible (fold.c). */
graph_id graph_fold(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_attribute *attributes,
                    const graph_shape *result);
/* The value by which a rewrite rule of g->phase replaces a node that is about to be made; 0: no rule applies (simplify.c). */
graph_id graph_rewrite(graph *g, const graph_op *op, int inputs, const graph_id *input,
                       const graph_attribute *attributes, const graph_shape *result);

/* GRAPH_SYMBOL_MAX is the range of symbols without a hint. */
#define GRAPH_SYMBOL_MAX (INT64_C(1) << 40)
tir_expr graph_symbol_named(graph *g, const char *name);      /* found or created */
uint32_t graph_find_symbol(const graph *g, const char *name); /* its index; UINT32_MAX: there is none */
/* An array in `arena`, by number of the pool's variable: 1 + the index of the symbol; 0: the variable is no symbol. */
uint32_t *graph_symbols_by_variable(lib_arena *arena, const graph *g);
/* Is the symbol itself a dimension of an input, so that a run's tensors determine its value? */
bool graph_is_input_size(const graph *g, tir_expr symbol);
/* Raises with the message if left and right differ for all values of the symbols; if that is unknown, records a constraint. */
void graph_require_equal(graph *g, tir_expr left, tir_expr right, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Functions for custom_call (ops_control.c). Adding the same function again is allowed, another one with its name is an error.
 * find: NULL if unknown. */
void graph_add_custom(graph *g, const graph_custom *custom);
const graph_custom *graph_find_custom(const graph *g, const char *name);
/* graph_custom_of: the function that an opaque node calls, with strings in `arena`; raises DLC_NOT_FOUND. graph_custom_invoke: calls
 * it, which writes the outputs; or returns its status and sets *error. */
graph_custom graph_custom_of(lib_arena *arena, const graph *g, const graph_node *node);
dlc_status graph_custom_invoke(const graph_custom *custom, int inputs, const DLTensor *const *input, int outputs,
                               DLTensor *const *output, lib_error *error);
uint32_t graph_add_constant(graph *g, const void *bytes, size_t size, bool borrow);
/* bytes.c: allocates uninitialised bytes with one reference; NULL: out of memory. */
graph_bytes *graph_bytes_new(const dlc_allocator *allocator, size_t size);
void *graph_bytes_data(graph_bytes *bytes);
graph_holder *graph_bytes_holder(graph_bytes *bytes);
graph_bytes *graph_bytes_of(graph_holder *holder); /* NULL: the holder is another object */
/* A reference is a share of the object and a share of its bytes. drop: gives up the share of the bytes, which are freed with the last
 * such share, while the object's address still identifies them. take: takes a share of the bytes again; false: they are freed.
 * forget: gives up the share of the object after drop. */
void graph_bytes_drop(graph_bytes *bytes);
bool graph_bytes_take(graph_bytes *bytes);
void graph_bytes_forget(graph_bytes *bytes);
/* The current address of the constant's row-major elements. Raises if memory is refused. */
const void *graph_constant_bytes(lib_scope *scope, const graph_constant *constant);
/* Sets the constant's fields that summarise its bytes. */
void graph_constant_describe(lib_scope *scope, graph_constant *constant);

/* ---- text (text.c): prints and parses back, structurally equal:
 *   graph {
 *     input  x: f32[n, 64]
 *     w = constant f32[64, 10] {...}            # hex, or numbers when small
 *     y = dot(x, w)                              # operators by row name; attributes key=value
 *     output y
 *   } */
void graph_print(lib_text *text, const graph *g);
/* graph_print, except that of constants above 32 bytes that are not printed as numbers only the first 16 bytes are printed, then
 * "...", which does not parse. True: there was such a constant. */
bool graph_print_elided(lib_text *text, const graph *g);
void graph_print_shape(lib_text *text, const graph *g, const graph_shape *shape); /* f32[n, 64] */
/* For messages about the range of a symbol: "", or ", a multiple of 8". */
typedef struct graph_multiple {
    char text[48];
} graph_multiple;
graph_multiple graph_multiple_text(int64_t multiple);
void graph_describe_shape(lib_text *text, const graph *g,
                          const graph_shape *shape);                  /* for messages: long dimensions are shortened */
void graph_print_node(lib_text *text, const graph *g, uint32_t node); /* one line, no newline */
graph *graph_parse(lib_arena *arena, lib_lexer *lexer);
void graph_parse_in(graph *g, lib_lexer *lexer);     /* the same into an empty graph */
void graph_verify(lib_scope *scope, const graph *g); /* verify.c; numbered invariants; raises DLC_INTERNAL */
lib_hash128 graph_hash(const graph *g);              /* structure and constant identities */

/* A copy in another arena that shares only borrowed constants with g. */
graph *graph_copy(lib_arena *arena, const graph *g);
/* graph_copy, but first calls `adopt` for each constant, also of sub-graphs. If adopt returns true, the constant is not copied: adopt
 * may have set its holder, and keeps a reference to its bytes. */
graph *graph_copy_to(lib_arena *arena, const graph *g, bool (*adopt)(void *user, graph_constant *constant), void *user);

/* ---- passes (each returns a new graph in `arena` and shares constants) */
graph *graph_hoist(lib_arena *arena, const graph *g); /* moves loop-invariant code out of loops */
graph *graph_merge_scans(lib_arena *arena,
                         const graph *g); /* scans of the same carries over the same operands are one */
/* Sums of values padded between their elements become interleaved phases (spread.c). */
graph *graph_join_spread(lib_arena *arena, const graph *g);
graph *graph_decompose(lib_arena *arena, const graph *g); /* composites expand, sub-graphs included */
graph *graph_simplify(lib_arena *arena, const graph *g);  /* rules, CSE, dead code; to a fixpoint of at most 8 rounds */
/* Re-emits with symbol values: values[i] for symbols[i], or INT64_MIN to keep symbol i as a run-time parameter (varying).
 * Checks the constraints. */
graph *graph_bind(lib_arena *arena, const graph *g, const int64_t *values);
/* Output number `output` is concat(input number `input`, ...) along `axis`, and both share a buffer. room: index of the symbol of g
 * that is the buffer's size along the axis. */
typedef struct graph_growth {
    int output, input, axis;
    uint32_t room;
} graph_growth;
/* Is output number `output` concat(input number `input`, ...) of elements stored as such, in bytes of their own? Sets *axis. */
bool graph_grows(const graph *g, int output, int input, int *axis);
/* Replaces the input and the output of each pair by the whole buffer: the concat becomes an update of the buffer behind the input's
 * elements, and readers of input or output read slices of the buffer. */
graph *graph_give_room(lib_arena *arena, const graph *g, int count, const graph_growth *growth);
/* Splits off the computations that depend on constants only: *init is the init graph (outputs: the values that the rest needs),
 * and the rest has these values as inputs after the ordinary ones. *init NULL: nothing is worth splitting off. */
void graph_split_init(lib_arena *arena, const graph *g, graph **init, graph **rest);

#endif
