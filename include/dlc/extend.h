/* Extending libdlc from outside: operators, rewrite rules, passes and schedules of the host. <dlc/extend.h> can be included on its
 * own and needs only the installed headers; examples/extend.c shows all four.
 *
 *   operator   a name, operands, attributes, a shape rule, and a definition: a tensor expression, an expansion into other operators
 *              by the public builder, or a C function. Once registered it behaves like an operator of the library: dlc_apply and
 *              dlc_graph_parse find it, graphs with it print and parse back, its operands are checked with the same messages, equal
 *              nodes are merged, and it is compiled into the surrounding kernels on every target (a C function is called between kernels,
 *              on the host, as by dlc_custom_call: a registered operator adds the shape rule, the name and the attributes; for a function
 *              that one graph needs once, dlc_custom_register remains simpler)
 *   rule       a pattern and its replacement, as text, or a replacement made by a function
 *   pass       a function called for every node of a graph that is compiled, which may replace the node
 *   schedule   a function called for a kernel, which may return its schedule in the form of the dump "schedule"
 *
 * dlc_onnx_register of <dlc/onnx.h> registers operators of ONNX models, with the same callbacks.
 *
 * Registrations belong to a context and stay until it is destroyed. Graphs and programs made before use them from their next
 * step on: operators when they are applied, rules and passes from the next dlc_compile, schedules from the next binding of
 * shapes. Names are unique by kind; an operator of the library cannot be replaced. A registration that fails changes nothing.
 *
 * Ownership   Strings and arrays are copied. `user` is passed to the functions and belongs to the host; `release`, if given, is called
 *             with it when the context is destroyed, or before a failed registration returns (but not if struct_size is
 *             wrong: then no member after it is read).
 * Threads     Registering is allowed at any time, on any thread, also while others build, compile and run. Shape rules are called on the
 *             thread that builds, compiles or binds shapes (dlc_run, dlc_prepare, dumps), expansions on the one that compiles or asks for
 *             derivatives, gradients on the latter, C functions on the one that runs; functions of rules and passes on the one inside dlc_compile; those of schedules on the
 *             one that binds or dumps (with background_compile also the library's own). No function is called while the library holds a
 *             lock that another call would need, and several threads may be in one function at once if the host calls the library from
 *             several. A function may call the library: the builder with the graph that its callback gives it, and everything else on
 *             other objects; but a function called while shapes are bound (shape rules, schedules) cannot bind others of the same
 *             context (DLC_INVALID_ARGUMENT), only run shapes that are already bound.
 * Errors      A function returns DLC_OK or dlc_callback_fail(...); the caller of the library gets this message with the name of the
 *             registration. It must not leave by longjmp or a C++ exception. */
#ifndef DLC_EXTEND_H
#define DLC_EXTEND_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- nodes of a graph ------------------------------------------------------------------------------------------------- */

/* A node, for reading. Valid as long as its graph; the nodes passed to functions until these return. */
typedef struct dlc_node {
    const dlc_graph *graph;
    uint32_t index;
    uint32_t serial;
} dlc_node;

/* Nodes precede the nodes that use their values. 0 for a graph that is NULL or destroyed. */
DLC_API int dlc_graph_node_count(const dlc_graph *graph);
DLC_API dlc_node dlc_graph_node(const dlc_graph *graph, int index); /* out of range: an invalid node */
DLC_API dlc_node dlc_value_node(dlc_value value);                   /* the node whose result the value is */
DLC_API bool dlc_node_ok(dlc_node node);
/* The operator's name ("input" and "constant" are operators, too); "" for an invalid node. */
DLC_API const char *dlc_node_operator(dlc_node node);
DLC_API int dlc_node_input_count(dlc_node node);
/* A value with dtype and shape for dlc_value_dtype, dlc_value_rank, dlc_value_dim; not ok if the operand was left out. */
DLC_API dlc_value dlc_node_input(dlc_node node, int input);
DLC_API int dlc_node_result_count(dlc_node node);
DLC_API dlc_value dlc_node_result(dlc_node node, int result);
/* Attributes by name, defaults included. False: no attribute of that name and kind; *value is unchanged. */
DLC_API bool dlc_node_integer(dlc_node node, const char *name, int64_t *value); /* also bool (0, 1) and element types */
DLC_API bool dlc_node_number(dlc_node node, const char *name,
                             double *value); /* floating-point attributes, and integers */
DLC_API bool dlc_node_string(dlc_node node, const char *name, const char **value,
                             size_t *length); /* also words of a choice */
DLC_API bool dlc_node_list(dlc_node node, const char *name, const int64_t **list, int *count);
/* Elements of a constant, compact; NULL for other values. Those of 64 KiB and more, and borrowed ones, need not be aligned to the
 * elements. */
DLC_API const void *dlc_value_constant(dlc_value value, size_t *bytes);

/* ---- any operator by its name ------------------------------------------------------------------------------------------- */

/* What a setting holds. An attribute takes its own kind; a floating-point one takes integers, too. */
typedef enum dlc_setting_kind {
    DLC_SETTING_INTEGER = 1, /* integer, bool, element type */
    DLC_SETTING_NUMBER,
    DLC_SETTING_STRING, /* also the word of a choice */
    DLC_SETTING_LIST,
    DLC_SETTING_DIMS,
    DLC_SETTING_SUBGRAPH
} dlc_setting_kind;

/* An attribute; use the constructors below. */
typedef struct dlc_setting {
    const char *name;
    dlc_setting_kind kind;
    /* Integer, bool, element type */
    int64_t integer;
    /* Floating point */
    double number;
    /* String, or the word of a choice */
    const char *string;
    /* Of the list or dims */
    int count;
    const int64_t *list;
    const dlc_dim *dims;
    dlc_graph *subgraph;
} dlc_setting;
static inline dlc_setting dlc_set_integer(const char *name, int64_t value) {
    dlc_setting setting = {name, DLC_SETTING_INTEGER, value, (double)value, NULL, 0, NULL, NULL, NULL};
    return setting;
}
static inline dlc_setting dlc_set_number(const char *name, double value) {
    dlc_setting setting = {name, DLC_SETTING_NUMBER, 0, value, NULL, 0, NULL, NULL, NULL};
    return setting;
}
static inline dlc_setting dlc_set_string(const char *name, const char *value) {
    dlc_setting setting = {name, DLC_SETTING_STRING, 0, 0, value, 0, NULL, NULL, NULL};
    return setting;
}
static inline dlc_setting dlc_set_list(const char *name, int count, const int64_t *list) {
    dlc_setting setting = {name, DLC_SETTING_LIST, 0, 0, NULL, count, list, NULL, NULL};
    return setting;
}
static inline dlc_setting dlc_set_dims(const char *name, int count, const dlc_dim *dims) {
    dlc_setting setting = {name, DLC_SETTING_DIMS, 0, 0, NULL, count, NULL, dims, NULL};
    return setting;
}
static inline dlc_setting dlc_set_subgraph(const char *name, dlc_graph *subgraph) {
    dlc_setting setting = {name, DLC_SETTING_SUBGRAPH, 0, 0, NULL, 0, NULL, NULL, subgraph};
    return setting;
}

/* Applies the operator of that name, of the library or registered, or found as the reference says (sigmoid, MatMul, cumsum), to its
 * operands in order (DLC_NONE: left out) with the attributes that do not have their defaults. Operands of elementwise operators broadcast.
 * Returns the result; poison after an error, which the graph records like those of all builder calls. */
DLC_API dlc_value dlc_apply(dlc_graph *graph, const char *name, int input_count, const dlc_value *inputs,
                            int setting_count, const dlc_setting *settings);
/* The same for operators with zero or several results, which are written to results[result_count]. */
DLC_API void dlc_apply_all(dlc_graph *graph, const char *name, int input_count, const dlc_value *inputs,
                           int setting_count, const dlc_setting *settings, int result_count, dlc_value *results);

/* ---- arguments of callbacks --------------------------------------------------------------------------------------------- */

typedef struct dlc_callback dlc_callback; /* one call of one function; valid until it returns */

DLC_API dlc_context *dlc_callback_context(const dlc_callback *callback);
/* The status, with a message (copied; NULL: none) for the caller of the library. DLC_OK counts as DLC_INTERNAL. */
DLC_API dlc_status dlc_callback_fail(dlc_callback *callback, dlc_status status, const char *message);
/* The graph to build in, for expansions, gradients, rules and passes; NULL in other functions. It takes all builder calls but dlc_input, dlc_output
 * and dlc_symbol_varies (its sub-graphs take those), and is destroyed when the function returns. A mistake in it is an error of the
 * function, whatever it returns. */
DLC_API dlc_graph *dlc_callback_graph(dlc_callback *callback);
/* Shape rules, expansions, gradients: the operands and attributes. In shape rules operands are read-only. */
DLC_API int dlc_callback_input_count(const dlc_callback *callback);
DLC_API dlc_value dlc_callback_input(const dlc_callback *callback, int input);
/* Attributes of the node, also in C functions; like dlc_node_integer and its siblings. */
DLC_API bool dlc_callback_integer(const dlc_callback *callback, const char *name, int64_t *value);
DLC_API bool dlc_callback_number(const dlc_callback *callback, const char *name, double *value);
DLC_API bool dlc_callback_string(const dlc_callback *callback, const char *name, const char **value, size_t *length);
DLC_API bool dlc_callback_list(const dlc_callback *callback, const char *name, const int64_t **list, int *count);
/* Shape rules: sets a result. Dimensions may be expressions of symbols, as dlc_value_dim returns them ({0, "2*n + 1"}). */
DLC_API dlc_status dlc_callback_set_shape(dlc_callback *callback, int result, dlc_dtype dtype, int rank,
                                          const dlc_dim *dims);
/* Gradients: the results of the node, and their cotangents, of the results' shapes: zeros where a result has no influence, not ok where it is
 * of no float type; f32 for results of f16, bf16 and 8-bit floats, else of their type. */
DLC_API dlc_value dlc_callback_result(const dlc_callback *callback, int result);
DLC_API dlc_value dlc_callback_cotangent(const dlc_callback *callback, int result);
/* Rules: the value that a name of the pattern matched; for attributes use dlc_callback_integer and its siblings. Not ok: no value of that
 * name. */
DLC_API dlc_value dlc_callback_match(const dlc_callback *callback, const char *name);
/* Schedules: sets the result; the text is copied. */
DLC_API dlc_status dlc_callback_set_schedule(dlc_callback *callback, const char *schedule);
/* Passes: the value in the new graph that corresponds to a value of the old graph. */
DLC_API dlc_value dlc_callback_value(const dlc_callback *callback, dlc_value old);

/* ---- operators ---------------------------------------------------------------------------------------------------------- */

typedef enum dlc_attribute_kind {
    DLC_ATTRIBUTE_INTEGER,
    DLC_ATTRIBUTE_NUMBER, /* floating point */
    DLC_ATTRIBUTE_BOOL,
    DLC_ATTRIBUTE_DTYPE,
    DLC_ATTRIBUTE_CHOICE, /* one of the words in `choices` */
    DLC_ATTRIBUTE_STRING,
    DLC_ATTRIBUTE_LIST /* of integers */
} dlc_attribute_kind;

typedef struct dlc_operator_attribute {
    /* NULL: end of the list */
    const char *name;
    dlc_attribute_kind kind;
    /* CHOICE: words separated by blanks */
    const char *choices;
    /* Default as text: 1, 0.5, true, f32, word, [1, 2]; NULL: the attribute is required */
    const char *initial;
} dlc_operator_attribute;

/* Sets the shape of every result by dlc_callback_set_shape, or fails. Called when nodes are made, several times while a graph is
 * compiled; must depend only on the operands' shapes and the attributes. */
typedef dlc_status dlc_operator_shape(void *user, dlc_callback *callback);
/* Builds the results from the operands in dlc_callback_graph: results[result_count], dtypes and shapes must match the shape rule. */
typedef dlc_status dlc_operator_expand(void *user, dlc_callback *callback, int result_count, dlc_value *results);
/* Builds the cotangents of the operands in dlc_callback_graph, from dlc_callback_input, dlc_callback_result and dlc_callback_cotangent:
 * cotangents[input_count], of the operands' shapes, and of their types or f32 for narrower floats; left unset (none): no derivative passes to
 * the operand, as where that is of no float type. They are linear in the results' cotangents, which is what forward mode transposes. May
 * use the operator itself, and derivatives of others (<dlc/gradient.h>). */
typedef dlc_status dlc_operator_gradient(void *user, dlc_callback *callback, int input_count, dlc_value *cotangents);
/* Fills the outputs. All tensors are compact, in host memory; inputs[input_count] are all operands, NULL where one is left out. Depends only on inputs and attributes, unless has_effects is
 * set; then it is called once per run, in the order of the graph. */
typedef dlc_status dlc_operator_call(void *user, dlc_callback *callback, int input_count, const DLTensor *const *inputs,
                                     int output_count, DLTensor *const *outputs);

/* An operator. Exactly one of `expression`, `expand` and `call` is set.
 *
 * Shape rule: the operands' required shapes, and the results' shapes.
 *     T[n, k], T[k, m] -> T[n, m]          one tensor for each operand, element type and dimensions
 * T is any of `dtypes`, the same everywhere; another name that is no element type is a second, unrestricted one (`M[n] -> ...`); the
 * name of a DTYPE attribute is its value. A dimension of an operand is a new name, which is bound to the size there, or a number, a name
 * or an expression that the size must equal; a dimension of a result is an expression of names, numbers and integer attributes:
 * (n + 2*pad)/stride. A leading `...` is any number of dimensions, the same for all tensors that have it: T[..., n, k]. Sizes that cannot
 * be compared yet, since they are symbols, are compared when shapes are bound.
 *
 * Expression: statements separated by `;`. The last ones are the results, in order, as many as the shape rule has (without one: one);
 * earlier ones name intermediate tensors. For example (T[..., n, k], T[m, k] -> T[..., n, m], and a softmax)
 *     y[..., i, j] = sum(k, x[..., i, k] * w[j, k])
 *     m[..., i] = max(j, x[..., i, j]);  e[..., i, j] = exp(x[..., i, j] - m[..., i]);
 *         y[..., i, j] = e[..., i, j] / sum(k, e[..., i, k])
 * The range of an index is the dimension that it alone indexes; if these are several dimensions they must agree. An index of a result has
 * the range that the shape rule gives. An index that indexes no dimension alone and has no shape rule is an error; for a reduction index a
 * size can be given: sum(k: 3, x[i + k] * w[k]). Reductions sum, prod, max, min, any, all have one index or several, and optionally a
 * condition: sum(k, l where k <= l, ...); sums and products of f16 and bf16 accumulate in f32, as the library's do, and exact products are
 * summed. Operators + - * / % and comparisons, && ||, functions of the operator table's names (exp, sqrt, tanh, min(a, b),
 * select(c, a, b), pow, ...), cast.f32(x), cast.T(x), cast.index(x). Sizes and indices are index expressions (cast.T(i) converts them
 * to numbers); attributes are literals. There are no other conversions.
 * Reads must be in bounds: x[i - 1] is refused if this cannot be proven. x[i - 1 where c else v] is v if c is
 * false or the index is out of bounds: x[i - 1 where true else 0] is x padded with zeros, table[cast.index(ids[i]) where true else 0] a
 * gather that is safe for every index.
 * Derivatives (<dlc/gradient.h>) follow from the expression: of any order, in both modes.
 * An expression that reads every operand at the index that it writes (y[...] = x[...] * alpha + b[...]) is elementwise: operands
 * broadcast. */
typedef struct dlc_operator_options {
    size_t struct_size;
    /* [a-z][a-z0-9_]*, at most 63 characters */
    const char *name;
    /* Names, separated by blanks: "x w [bias]"; those in brackets may be left out, and come last. At least 1, at most
     * 12 */
    const char *operands;
    /* The element types of T, separated by blanks: f16 bf16 f32 ..., or the classes any number float int signed unsigned; NULL:
     * any */
    const char *dtypes;
    /* NULL: none; at most 11 */
    const dlc_operator_attribute *attributes;
    /* Shape rule as text; NULL: by shape_function, or derived from the expression */
    const char *shape;
    dlc_operator_shape *shape_function;
    /* With shape_function: number of results, at most 8; 0: 1 */
    int result_count;
    const char *expression;
    dlc_operator_expand *expand;
    dlc_operator_call *call;
    /* How the operator differentiates (<dlc/gradient.h>). NULL: an expansion as what it expands to, an expression by its functions and
     * subscripts, a C function not at all */
    dlc_operator_gradient *gradient;
    /* Of `call` */
    bool has_effects;
    void *user;
    void (*release)(void *user);
    /* NULL: none */
    const char *doc;
} dlc_operator_options;
#define DLC_OPERATOR_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_operator_options)

/* DLC_INVALID_ARGUMENT: a name that is taken or invalid, an inconsistent rule or expression; DLC_PARSE_ERROR: malformed text.
 * The message has the position. */
DLC_API dlc_status dlc_operator_register(dlc_context *context, const dlc_operator_options *options);

/* ---- rewrite rules -------------------------------------------------------------------------------------------------------- */

/* *replacement: a value of dlc_callback_graph; left unset (none): the rule does not apply. */
typedef dlc_status dlc_rule_replace(void *user, dlc_callback *callback, dlc_value *replacement);

/* Pattern: operators with one result as in text graphs, nested: "log(softmax(x, axis=a))". A name matches any value, a repeated
 * name the same value; a number matches a constant all of whose elements equal it. Commutative operators are tried in both orders;
 * if repeated names make this search too long, it stops after 16384 steps at a node, and the rule does not apply there.
 * At most 256 names, numbers and operators. Attributes that are left out must have their defaults; a name in place of an attribute's
 * value matches any value.
 * Replacement: the same with the pattern's names, "log_softmax(x, axis=a)"; or one name alone, "x". Numbers get the element type
 * of the other operands; elementwise operators broadcast.
 * Rules are applied when a graph is compiled, in the order of registration: to the graph as the host built it, with
 * unexpanded operators, and again after expansion and the library's simplification. Each is applied until it no longer matches, at
 * most 16 times over a graph. The library checks that a replacement has the dtype and shape of the replaced value; otherwise dlc_compile
 * fails with the rule's name. The host must ensure that the value is the same. */
typedef struct dlc_rule_options {
    size_t struct_size;
    const char *name;
    const char *pattern;
    /* NULL: made by the function */
    const char *replacement;
    dlc_rule_replace *replace;
    void *user;
    void (*release)(void *user);
} dlc_rule_options;
#define DLC_RULE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_rule_options)

DLC_API dlc_status dlc_rule_register(dlc_context *context, const dlc_rule_options *options);

/* ---- passes --------------------------------------------------------------------------------------------------------------- */

/* Called for every node that outputs need except inputs and constants, operands first, sub-graphs before the node that holds them.
 * results[result_count] initially hold the node rebuilt in dlc_callback_graph from its replaced operands: left unchanged, they are
 * kept; other values of the same dtypes and shapes replace them. The whole old graph may be read through node. */
typedef dlc_status dlc_pass_function(void *user, dlc_callback *callback, dlc_node node, int result_count,
                                     dlc_value *results);

typedef enum dlc_pass_position {
    DLC_PASS_FIRST,     /* the graph as the host built it */
    DLC_PASS_SIMPLIFIED /* composites and expansions are expanded, the library's and the host's rules applied */
} dlc_pass_position;

typedef struct dlc_pass_options {
    size_t struct_size;
    const char *name;
    dlc_pass_position position;
    dlc_pass_function *function;
    void *user;
    void (*release)(void *user);
} dlc_pass_options;
#define DLC_PASS_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_pass_options)

/* Passes run at every dlc_compile of the context, in the order of registration. */
DLC_API dlc_status dlc_pass_register(dlc_context *context, const dlc_pass_options *options);

/* ---- schedules ------------------------------------------------------------------------------------------------------------- */

/* A kernel to be scheduled; valid during the call */
typedef struct dlc_region {
    /* Its main operators, joined, as in the dump "regions" */
    const char *name;
    /* Of its computation without names, as in the dump "schedule" */
    uint64_t hash;
    /* Its computation, as in the dump "stages" */
    const char *stages;
    /* "cpu", "interp", "cuda", ... */
    const char *target;
    /* The machine; 0: not known */
    int cores;
    /* Width of vectors */
    int vector_bytes;
    /* Bytes of the caches */
    int64_t l1, l2, l3;
} dlc_region;

/* Returns directives by dlc_callback_set_schedule, as in the dump "schedule" without the `region` line, or choices for the target's rules, as
 * in the dump "choices", or sets nothing for a region that it does not schedule. */
typedef dlc_status dlc_schedule_function(void *user, dlc_callback *callback, const dlc_region *region);

typedef struct dlc_schedule_options {
    size_t struct_size;
    const char *name;
    /* Called for regions of this name only; NULL: for all */
    const char *region;
    dlc_schedule_function *function;
    void *user;
    void (*release)(void *user);
} dlc_schedule_options;
#define DLC_SCHEDULE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_schedule_options)

/* Called when a kernel is needed for shapes that are bound, in the order of registration, after dlc_compile_options.schedule: the first
 * schedule set is used. Kernels are cached by their computation and the schedule's text, so a changed schedule is a new kernel; it must
 * depend on the region alone. A schedule that does not fit is an error of binding, with its line. Regions without one use the
 * target's rules. */
DLC_API dlc_status dlc_schedule_register(dlc_context *context, const dlc_schedule_options *options);

#ifdef __cplusplus
}
#endif
#endif
