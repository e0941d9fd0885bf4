/* The operator table. A family of operators is one file, graph/ops_<family>.c, with a row per operator that holds everything
 * about it: name, operands, attributes, class, shape rule, compute definition in tir, expansion, rules of differentiation, an
 * independent f64 reference (tests only), samples, documentation. From the rows come lookup, text form, verification, the
 * public <dlc/ops.h> and its functions, the conformance tests and the operator reference. Adding an operator = adding a row.
 * Semantics follow StableHLO where it has the operator. */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include "graph/graph.h"
#include "tir/machine.h"
#include "tir/region.h"

typedef enum graph_class {
    GRAPH_SOURCE,    /* input, constant, iota, rng: no tensor operand */
    GRAPH_MAP,       /* elementwise; operands and result have one shape (broadcasts are explicit nodes inside the IR) */
    GRAPH_INJECTIVE, /* every result element is one operand element or a fill: reshape, transpose, slice, pad, gather... */
    GRAPH_REDUCE,    /* reductions, arg-reductions, windows, cumulative sums */
    GRAPH_CONTRACT, /* sums of products: contraction, convolution, passes of a Fourier transform */
    GRAPH_SCATTER,  /* scatter, dynamic-update-slice */
    GRAPH_OPAQUE,   /* custom call: a region of its own */
    GRAPH_CONTROL,  /* if, while, scan, cut */
    GRAPH_COMPOSITE /* only expands */
} graph_class;

/* What the class leaves open: how the elements of the result come from those of the operands. Passes ask for the structure, never for
 * a name. It says what the operands are and which attributes come first, by the names given here; passes may emit the node again with
 * other operands and attributes of that meaning. */
typedef enum graph_structure {
    /* none of the others */
    GRAPH_UNSTRUCTURED,
    /* SOURCE: `index dtype shape`, arrives at run time or from the enclosing graph */
    GRAPH_ARRIVES,
    /* `value dtype shape`: bytes of the graph */
    GRAPH_STORED,
    /* computed from positions and sizes alone */
    GRAPH_POSITIONS,
    /* MAP: operand 0, as a value of its own. What stands on the one is not merged with what stands on the other, nor in one kernel */
    GRAPH_SAME,
    /* INJECTIVE, moves of operand 0. `shape axes`: axis i of the operand is axis axes[i] of the result, and repeats if it has size 1, as
     * the other axes of the result do */
    GRAPH_REPEATS,
    /* `start stop step`: a range of each axis */
    GRAPH_SELECTS,
    /* `shape`: the same elements in row-major order */
    GRAPH_REGROUPS,
    /* `permutation`: for each axis of the result that of the operand */
    GRAPH_PERMUTES,
    /* `axis`: rows beside the axis, at the positions of operand 1 along it */
    GRAPH_LOOKS_UP,
    /* elements at positions computed from those of the result and from the further operands */
    GRAPH_PICKS,
    /* `axis`: all operands, one after the other */
    GRAPH_JOINS,
    /* `low high interior`: operand 1 around and between the elements */
    GRAPH_PADS,
    /* REDUCE. `axes`: the elements along these axes (none: all) are joined to one by `operation` */
    GRAPH_FOLDS,
    /* `op window stride low high dilation`: the elements of each window are joined to one */
    GRAPH_FOLDS_WINDOWS,
    /* CONTRACT: sums of products of operands x and w. `batch_x batch_w contract_x contract_w result`: over pairs of axes; the result has
     * the axes of the batch, of x, of w */
    GRAPH_CONTRACTS,
    /* `stride low high dilation groups result`: x [batch, channels, ...], w [channels of the result, channels of a group, window...] */
    GRAPH_CONVOLVES,
    /* CONTROL, over sub-graphs; graph.h describes the operands. `then otherwise`: one of two */
    GRAPH_BRANCHES,
    /* `condition body`: while the condition holds */
    GRAPH_LOOPS,
    /* GRAPH_SCAN_...: for the elements of sequences */
    GRAPH_SCANS,
    /* `size`: names a size that the run counts */
    GRAPH_CUTS
} graph_structure;

/* Algebraic properties for rewrite rules. */
enum {
    GRAPH_COMMUTES = 1,
    GRAPH_ASSOCIATIVE = 2,
    GRAPH_IDEMPOTENT = 4,
    GRAPH_INVOLUTION = 8,
    GRAPH_IMPURE = 16,
    GRAPH_COUNTS = 32, /* composites: a size of the result is counted, by a `cut` in the expansion (graph/segment.h) */
    GRAPH_BY_NUMBERS = 64 /* composites: the expansion is faster for numeric than for symbolic sizes */
};

/* What mixed precision does with f32 values (graph/precision.h). */
typedef enum graph_precision {
    /* computed as they are */
    GRAPH_WIDE,
    /* sums of products: of narrow operands, with f32 results. A row without the attribute `result` is expanded, since it holds such rows */
    GRAPH_NARROW,
    /* rounding the operands to a narrower type gives the bits that rounding the results gives */
    GRAPH_FOLLOWS
} graph_precision;

typedef enum graph_attribute_kind {
    GRAPH_ATTR_INTEGER,
    GRAPH_ATTR_FLOAT,
    GRAPH_ATTR_BOOL,
    GRAPH_ATTR_DTYPE,
    GRAPH_ATTR_ENUM,
    GRAPH_ATTR_STRING,
    GRAPH_ATTR_INTEGERS, /* list */
    GRAPH_ATTR_DIMS,     /* list of dimensions, may hold symbols */
    GRAPH_ATTR_SUBGRAPH, /* number in graph->subgraphs */
    GRAPH_ATTR_CONSTANT  /* number in graph->constants */
} graph_attribute_kind;

typedef struct graph_attribute_spec {
    const char *name;
    graph_attribute_kind kind;
    /* ENUM: words separated by spaces */
    const char *choices;
    /* text of the default: 0, 1.5, true, f32, word, [1, 2], [] (also for DIMS); NULL: required; "auto" (integers): the graph's
     * next unused number (rng streams) */
    const char *initial;
    const char *doc;
} graph_attribute_spec;

/* Shape rule: reads operand shapes and attributes, writes results. Raises DLC_INVALID_ARGUMENT through graph_infer_fail (which
 * adds operator and operand shapes to the message). */
typedef struct graph_infer {
    graph *g;
    const graph_op *op;
    int inputs;
    const graph_id *input;
    /* [inputs] as given by the caller, before broadcasting, for messages */
    const graph_id *written;
    /* [inputs]; rank -1: omitted optional operand */
    graph_shape *operand;
    const graph_attribute *attribute;
    /* [results]; to be written */
    graph_shape *result;
    /* preset to the row's number; -1: set by graph_infer_results */
    int results;
} graph_infer;
_Noreturn void graph_infer_raise(const graph_infer *infer, dlc_status status,
                                 const char *message); /* graph_infer_fail with another status */
_Noreturn void graph_infer_fail(const graph_infer *infer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Checks a == b now, or, if that depends on symbols, by a constraint at bind. */
void graph_infer_equal(const graph_infer *infer, tir_expr a, tir_expr b, const char *what);
/* graph_infer_equal for the contracted axes of a product: the last one of operand 0 (x) and axis `axis` of operand 1 (w). If w would
 * fit transposed, the message says this and adds `remedy`. */
void graph_infer_inner(const graph_infer *infer, int axis, const char *what, const char *remedy);

/* Helpers of shape rules (op.c). Before the shape rule runs, emit checks the number of operands, and that operands written as T in
 * the row's first sample have a dtype of `dtypes`. */
int graph_infer_axis(const graph_infer *infer, int64_t axis, int rank,
                     const char *what); /* -rank..rank-1 -> 0..rank-1 */
/* The axes as a bit set; negative ones count from the end. Raises if an axis is out of range or occurs twice. */
uint32_t graph_infer_axes(const graph_infer *infer, const graph_attribute *axes, int rank, const char *what);
void graph_infer_same_dtype(const graph_infer *infer, int first,
                            int count); /* operands first..first+count-1, omitted ones skipped */
void graph_infer_dtype(const graph_infer *infer, int operand, dlc_dtype expected);
void graph_infer_rank(const graph_infer *infer, int operand, int expected);
void graph_infer_same_shape(const graph_infer *infer, int count); /* dimensions equal now or at bind */
void graph_infer_map(graph_infer *infer);                         /* one dtype, one shape: also the result's */
void graph_infer_compare(graph_infer *infer);                     /* likewise, result bool */
/* For rows with results -1: sets infer->results, and allocates infer->result, which it returns. */
graph_shape *graph_infer_results(graph_infer *infer, int results);

/* Argument of a compute definition, which adds stages to a region. operand[i] is the region's tensor with the operand's elements
 * (GRAPH_NONE: omitted); the definition sets result[i] to the tensor of each result. Shapes are index expressions over the region's
 * pool: constants, or parameters for varying symbols. */
#define GRAPH_NONE UINT32_MAX
typedef struct graph_compute {
    tir_region *region;
    /* region->pool */
    tir_pool *pool;
    const graph_op *op;
    int inputs, results;
    const uint32_t *operand;
    /* dims in region->pool */
    const graph_shape *operand_shape;
    const graph_shape *result_shape;
    /* lists of dimensions are in region->pool */
    const graph_attribute *attribute;
    uint32_t *result;
    /* the row's name, for stages */
    const char *name;
    /* for choosing among definitions with identical results; NULL: unknown */
    const tir_machine *machine;
} graph_compute;

/* Argument of a composite's expansion, which emits other operators into g and sets result[i]. */
typedef struct graph_expand {
    graph *g;
    const graph_op *op;
    int inputs;
    const graph_id *input;
    const graph_attribute *attribute;
    /* to be written */
    graph_id *result;
} graph_expand;

/* Argument of a row's f64 reference, which is independent of tir: dense row-major f64 arrays (integers and bools as numbers). Compiled
 * only with DLC_REFERENCE (tests). */
typedef struct graph_reference_tensor {
    dlc_dtype dtype;
    int rank;
    int64_t dim[DLC_MAX_RANK];
    double *data;
} graph_reference_tensor;
typedef struct graph_reference {
    int inputs, results;
    /* rank -1: omitted */
    const graph_reference_tensor *operand;
    /* lists of dimensions are numbers here, in the member `list` */
    const graph_attribute *attribute;
    /* shapes set, data allocated, zeroed */
    graph_reference_tensor *result;
} graph_reference;
/* Result of a row's error rule: graph/bound.h, for tests. */
typedef struct graph_bound graph_bound;
typedef struct graph_bound_node graph_bound_node;

/* Largest error of a map's results for exact operands in f32 and in f64, which test/api/map_ulp_test.c measures and the operator
 * reference publishes: in units in the last place of the exact result, or of `least` where that is larger (near zeros of the function,
 * where no relative bound holds). Narrow floats are computed in f32 and rounded once. All zero: only `tolerance` applies. */
typedef struct graph_accuracy {
    double f32, f64, least;
} graph_accuracy;

/* Argument of a row's rules of differentiation: graph/gradient.h. */
typedef struct graph_rule graph_rule;

#ifdef DLC_REFERENCE
#define GRAPH_REFERENCE(function) function
#else
#define GRAPH_REFERENCE(function) NULL
#endif

/* Samples for conformance, as lines of graph text without dtypes fixed: "T" stands for each dtype of `dtypes`, e.g.
 *   "add(T[3, 5], T[3, 5])"   "reduce_sum(T[4, 1, 7], axes=[0, 2])"   "gather(T[10, 3], i32[4] in 0..10)"
 * `in a..b` limits random data, `in a..b special` keeps the special numbers of that range; default ranges are by dtype. One sample per line. */
struct graph_op {
    /* text form and public name: dlc_<name> */
    const char *name;
    /* Other names by which lookup finds the row, those of ONNX, NumPy and PyTorch, separated by spaces; NULL: none. */
    const char *aliases;
    graph_class class_;
    graph_structure structure;
    uint32_t algebra;
    /* MAP: the one tir operation of the operands' elements that an element of the result is; `reversed`: of them in reverse order.
     * GRAPH_FOLDS: what joins two elements. 0: more than one operation, or none */
    tir_op operation;
    bool reversed;
    /* Bit k: the row is linear in operand k, the others held fixed: f(s*x + t*y) = s*f(x) + t*f(y) for all results that are floats, apart
     * from roundings. (x + c is not, for a c other than 0.) */
    uint32_t linear;
    /* max -1: variadic (public: count and array) */
    int min_inputs, max_inputs;
    /* -1: set by the shape rule */
    int results;
    /* names for messages and docs: "x w [bias]" */
    const char *operands;
    /* accepted T: "f16 bf16 f32 f64", "float", "number", "int", "any", "all", "bool" (see op.c) */
    const char *dtypes;
    /* ends at name NULL */
    graph_attribute_spec attribute[12];
    void (*infer)(graph_infer *infer);
    /* primitives */
    void (*compute)(graph_compute *compute);
    /* rows for which graph_expands is true */
    void (*expand)(graph_expand *expand);
    /* MAP: result element, if it is not just `operation`, or attributes modify that */
    tir_expr (*scalar)(tir_pool *pool, tir_dtype dtype, const tir_expr *operands, const graph_attribute *attribute);
    /* ---- how the row differentiates: see graph/gradient.h, which says in which order these count. Composites with none of them
     * differentiate by their expansion, maps by their scalar. */
    /* GRAPH_NO_GRADIENT: results are integers, bools or bits, step functions, or independent of numbers: the derivative is 0 or none */
    bool flat;
    /* `transpose` is for the operands of `linear`, or, with `jointly`, for all of a float type, in which the row is linear together (concat) */
    bool jointly;
    void (*transpose)(graph_rule *rule);
    void (*jvp)(graph_rule *rule);
    void (*vjp)(graph_rule *rule);
    void (*partial)(graph_rule *rule);
    /* why there is no reverse mode, and what to use instead; NULL: there is one */
    const char *refused;
    graph_precision precision;
    void (*reference)(const graph_reference *reference);
    /* Error propagation, if it differs from the default of the class: graph/bound.h. */
    graph_bound (*bound)(const graph_bound_node *node);
    /* The published error bound. */
    graph_accuracy accuracy;
    /* Error of the interpreter that conformance tests allow, in ulp of the result's dtype (for reductions, times the number of terms).
     * 0: follows from `accuracy`; see graph_op_tolerance. */
    double tolerance;
    const char *samples;
    /* what the operator computes, with shapes and dtypes; the names of the operators of ONNX, NumPy ... that it follows */
    const char *doc;
    /* for a row registered by the host (registry.h); NULL: a row of the table */
    const struct graph_definition *host;
};

#define GRAPH_NO_GRADIENT .flat = true
#define GRAPH_LINEAR(operands, transpose_) .linear = operands, .transpose = transpose_
#define GRAPH_JOINTLY_LINEAR(transpose_) .jointly = true, .transpose = transpose_

/* The public functions of a row are generated into <dlc/ops.h>, whose first comment describes their parameters. */

/* Runs the row's `compute`; for a row without, adds the map stage out[i...] = graph_op_scalar(operands[i...]). */
void graph_compute_row(graph_compute *compute);
/* Is the row a map defined by `scalar` or `operation`? */
bool graph_op_has_scalar(const graph_op *op);
/* Then the result's element, of type `dtype`. */
tir_expr graph_op_scalar(const graph_op *op, tir_pool *pool, tir_dtype dtype, const tir_expr *operands,
                         const graph_attribute *attribute);

const graph_op *graph_op_find(const char *name); /* only in the table; NULL: unknown */
/* The row with this name or alias, ignoring case and underscores (Sigmoid, HardSwish, cumsum); NULL: none. */
const graph_op *graph_op_find_alias(const char *name);
/* Sets *word to the row's name (i = 0) or its alias i - 1 and returns the word's length; 0: there is none. */
size_t graph_op_alias(const graph_op *op, int i, const char **word);
/* The row of that name in the table, else the one that the host registered (registry.h), else the one with that alias; NULL: none. */
const graph_op *graph_find_op(const graph *g, const char *name);
/* For messages about an unknown name: the operator with the most similar name. */
lib_nearest graph_nearest_op(const graph *g, const char *name);
/* The end of a message about an unknown name of an attribute: the most similar one, or, if none is, those that `op` has. */
typedef struct graph_hint {
    char text[256];
} graph_hint;
graph_hint graph_attribute_hint(const graph_op *op, const char *name);
extern const graph_op *const *const graph_op_families[]; /* NULL-terminated list of NULL-terminated rows (op.c) */
bool graph_op_accepts(const graph_op *op, dlc_dtype dtype);
/* The row's tolerance in ulp of results of that dtype: `tolerance` if it is set, else one that follows from `accuracy`. */
double graph_op_tolerance(const graph_op *op, dlc_dtype dtype);
bool graph_expands(const graph_node *node); /* a composite, `with_gradient`, or an `if` with named sizes */
int graph_op_attribute(const graph_op *op, const char *name); /* index of the spec; -1: none */
bool graph_is(const graph *g, graph_id value, const char *op_name);
void graph_op_operand(const graph_op *op, int operand, char name[32], bool *optional); /* from `operands` */
bool graph_op_operand_is_typed(const graph_op *op, int operand); /* it is a T in the first sample */

/* `operation` of a map; 0: none, or no map. */
static inline tir_op graph_map_operation(const graph_op *op) {
    return op->class_ == GRAPH_MAP ? op->operation : (tir_op)0;
}
/* Is the row a move that loads do by another index? */
static inline bool graph_is_index_change(const graph_op *op) {
    return op->structure >= GRAPH_REPEATS && op->structure <= GRAPH_REGROUPS;
}
/* A constant, values of positions, or such a move: cheaper to compute again than to store and read. */
static inline bool graph_is_repeatable(const graph_op *op) {
    return op->structure == GRAPH_STORED || op->structure == GRAPH_POSITIONS || graph_is_index_change(op);
}
static inline bool graph_is_constant(const graph_node *node) {
    return node->op->structure == GRAPH_STORED;
}
static inline bool graph_is_input(const graph_node *node) {
    return node->op->structure == GRAPH_ARRIVES;
}

/* The accumulator type of sums: f32 for narrower floats, else the dtype itself. */
static inline dlc_dtype graph_sum_dtype(dlc_dtype dtype) {
    return lib_dtype_is_narrow_float(dtype) ? DLC_F32 : dtype;
}

#endif
