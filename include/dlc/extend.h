/* Extending libdlc from outside: operators, rewrite rules, passes and schedules of the host's own. <dlc/extend.h> is included on its
 * own and needs nothing of the library but the installed headers; examples/extend.c shows all four.
 *
 *   operator   a name, operands, attributes, a shape rule, and what it means: a tensor expression, an expansion into other operators
 *              by the public builder, or a C function. From then on it is like one of the library's: dlc_apply and dlc_graph_parse
 *              know it, graphs with it print and parse back, its operands are checked with the same messages, equal nodes become one,
 *              and it is compiled into the kernels around it on every target (a C function is called between kernels, on the host, as
 *              dlc_custom_call is: a registered operator adds the shape rule, the name and the attributes; for a function that one
 *              graph needs once, dlc_custom_register remains the shorter way)
 *   rule       what it looks for and what takes its place, as text, or made by a function
 *   pass       a function that is asked about every node of a graph that is compiled, and may put something else in its place
 *   schedule   a function that is asked how a kernel is to be computed, in the form of the dump "schedule"
 *
 * What is registered belongs to a context and stays until that is destroyed; graphs and programs made before see it from their next
 * step on: operators when they are applied, rules and passes from the next dlc_compile on, schedules from the next binding of shapes
 * on. Names are unique by kind; an operator of the library cannot be replaced. A registration that fails leaves nothing behind.
 *
 * Ownership   strings and arrays are copied. `user` is handed to the functions and stays the host's; `release`, if given, is called
 *             with it when the context is destroyed, or before a registration that failed returns (but not if struct_size is
 *             wrong: then nothing behind it is looked at).
 * Threads     registering is allowed at any time, on any thread, also while others build, compile and run. Shape rules are called on the
 *             thread that builds, compiles or binds shapes (dlc_run, dlc_prepare, dumps), expansions on the one that compiles, C
 *             functions on the one that runs; functions of rules and passes on the one inside dlc_compile; those of schedules on the
 *             one that binds or dumps (with background_compile also the library's own). None is called while the library holds a
 *             lock that another call would need, and several threads may be in one function at once if the host has several
 *             there. A function may call the library: the builder with the graph that its callback gives it, and everything else on
 *             other objects; but one that is called while shapes are bound (shape rules, schedules) cannot bind others of the same
 *             context, only run what is bound already: DLC_INVALID_ARGUMENT.
 * Errors      a function returns DLC_OK or dlc_callback_fail(...), whose message the caller of the library gets with the name of what
 *             was registered. It must not leave by longjmp or a C++ exception. */
#ifndef DLC_EXTEND_H
#define DLC_EXTEND_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- nodes of a graph ------------------------------------------------------------------------------------------------- */

/* A node, for reading. Valid as long as its graph; inside of functions until they return. */
typedef struct dlc_node {
    const dlc_graph *graph;
    uint32_t index;
    uint32_t serial;
} dlc_node;

/* Nodes stand before those that use their values. 0 for a graph that is NULL or destroyed. */
DLC_API int dlc_graph_node_count(const dlc_graph *graph);
DLC_API dlc_node dlc_graph_node(const dlc_graph *graph, int index); /* out of range: a node that is none */
DLC_API dlc_node dlc_value_node(dlc_value value);                   /* that the value is a result of */
DLC_API bool dlc_node_ok(dlc_node node);
/* The operator's name ("input" and "constant" are operators, too); "" for a node that is none. */
DLC_API const char *dlc_node_operator(dlc_node node);
DLC_API int dlc_node_input_count(dlc_node node);
/* A value that says dtype and shape by dlc_value_dtype, dlc_value_rank, dlc_value_dim; not ok where an operand was left out. */
DLC_API dlc_value dlc_node_input(dlc_node node, int input);
DLC_API int dlc_node_result_count(dlc_node node);
DLC_API dlc_value dlc_node_result(dlc_node node, int result);
/* Attributes by name, defaults included. False: there is none of that name and kind; *value stays as it is. */
DLC_API bool dlc_node_integer(dlc_node node, const char *name, int64_t *value); /* also bool (0, 1) and element types */
DLC_API bool dlc_node_number(dlc_node node, const char *name,
                             double *value); /* floating-point attributes, and integers */
DLC_API bool dlc_node_string(dlc_node node, const char *name, const char **value,
                             size_t *length); /* also words of a choice */
DLC_API bool dlc_node_list(dlc_node node, const char *name, const int64_t **list, int *count);
/* Elements of a constant, compact; NULL for other values. */
DLC_API const void *dlc_value_constant(dlc_value value, size_t *bytes);

/* ---- any operator by its name ------------------------------------------------------------------------------------------- */

/* What a setting holds. An attribute takes the kind that is its own, a floating-point one integers, too. */
typedef enum dlc_setting_kind {
    DLC_SETTING_INTEGER = 1, /* integer, bool, element type */
    DLC_SETTING_NUMBER,
    DLC_SETTING_STRING, /* also the word of a choice */
    DLC_SETTING_LIST,
    DLC_SETTING_DIMS,
    DLC_SETTING_SUBGRAPH
} dlc_setting_kind;

/* An attribute, set up by those below. */
typedef struct dlc_setting {
    const char *name;
    dlc_setting_kind kind;
    /* Integer, bool, element type */
    int64_t integer;
    /* Floating point */
    double number;
    /* String, or the word of a choice */
    const char *string;
    /* Of list or dims */
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

/* The operator of that name, of the library or registered, or found as the reference says (sigmoid, MatMul, cumsum), with its operands in order (DLC_NONE: left out) and the attributes that do
 * not have their defaults. Operands of elementwise ones broadcast. The result; poison after an error, which the graph keeps like
 * those of all builder calls. */
DLC_API dlc_value dlc_apply(dlc_graph *graph, const char *name, int input_count, const dlc_value *inputs,
                            int setting_count, const dlc_setting *settings);
/* The same for operators with other than one result: as many as it has are written to results[result_count]. */
DLC_API void dlc_apply_all(dlc_graph *graph, const char *name, int input_count, const dlc_value *inputs,
                           int setting_count, const dlc_setting *settings, int result_count, dlc_value *results);

/* ---- what functions are called with ------------------------------------------------------------------------------------- */

typedef struct dlc_callback dlc_callback; /* one call of one function; gone when it returns */

DLC_API dlc_context *dlc_callback_context(const dlc_callback *callback);
/* The status, with a message (copied; NULL: none) for the caller of the library. DLC_OK counts as DLC_INTERNAL. */
DLC_API dlc_status dlc_callback_fail(dlc_callback *callback, dlc_status status, const char *message);
/* The graph to build in: of expansions, rules and passes; NULL in others. It takes all builder calls but dlc_input, dlc_output and
 * dlc_symbol_varies (its sub-graphs take those), and is gone when the function returns. A mistake in it is an error of the function,
 * whatever that returns. */
DLC_API dlc_graph *dlc_callback_graph(dlc_callback *callback);
/* Shape rules, expansions: the operands and attributes. In shape rules operands can be read only. */
DLC_API int dlc_callback_input_count(const dlc_callback *callback);
DLC_API dlc_value dlc_callback_input(const dlc_callback *callback, int input);
/* Attributes of the node, also in C functions; as dlc_node_integer and its like. */
DLC_API bool dlc_callback_integer(const dlc_callback *callback, const char *name, int64_t *value);
DLC_API bool dlc_callback_number(const dlc_callback *callback, const char *name, double *value);
DLC_API bool dlc_callback_string(const dlc_callback *callback, const char *name, const char **value, size_t *length);
DLC_API bool dlc_callback_list(const dlc_callback *callback, const char *name, const int64_t **list, int *count);
/* Shape rules: a result. Dimensions may be expressions of symbols, as dlc_value_dim gives them ({0, "2*n + 1"}). */
DLC_API dlc_status dlc_callback_set_shape(dlc_callback *callback, int result, dlc_dtype dtype, int rank,
                                          const dlc_dim *dims);
/* Rules: what a name of the pattern stands for; attributes by dlc_callback_integer and its like. Not ok: no value of that name. */
DLC_API dlc_value dlc_callback_match(const dlc_callback *callback, const char *name);
/* Schedules: the answer; the text is copied. */
DLC_API dlc_status dlc_callback_set_schedule(dlc_callback *callback, const char *schedule);
/* Passes: what a value of the graph that is read has become in the one that is built. */
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
 * compiled; must depend on operands' shapes and attributes alone. */
typedef dlc_status dlc_operator_shape(void *user, dlc_callback *callback);
/* Builds the results from the operands in dlc_callback_graph: results[result_count], dtypes and shapes as the shape rule says. */
typedef dlc_status dlc_operator_expand(void *user, dlc_callback *callback, int result_count, dlc_value *results);
/* Fills the outputs. All tensors are compact, in host memory. Depends on nothing but inputs and attributes, unless has_effects is
 * set; then it is called once per run, in the order of the graph. */
typedef dlc_status dlc_operator_call(void *user, dlc_callback *callback, int input_count, const DLTensor *const *inputs,
                                     int output_count, DLTensor *const *outputs);

/* An operator. Of `expression`, `expand` and `call` just one is set.
 *
 * Shape rule: what operands must be, and what results are.
 *     T[n, k], T[k, m] -> T[n, m]          one tensor for each operand, element type and dimensions
 * T is any of `dtypes`, one for all; another name that is no element type stands for a second one (`M[n] -> ...`), without limits; a
 * name of a DTYPE attribute for that. A dimension of an operand is a new name, which stands for the size there, or a number, a name
 * or an expression that the size must equal; of a result, an expression of names, numbers and integer attributes: (n + 2*pad)/stride.
 * `...` in front stands for any number of leading dimensions, the same for all that have it: T[..., n, k]. Sizes that cannot be
 * compared yet, since they are symbols, are compared when shapes are bound.
 *
 * Expression: statements separated by `;`. The last ones are the results, in order, as many as the shape rule has (without one: one);
 * the others name what those after them use. For example (T[..., n, k], T[m, k] -> T[..., n, m], and a softmax)
 *     y[..., i, j] = sum(k, x[..., i, k] * w[j, k])
 *     m[..., i] = max(j, x[..., i, j]);  e[..., i, j] = exp(x[..., i, j] - m[..., i]);
 *         y[..., i, j] = e[..., i, j] / sum(k, e[..., i, k])
 * An index runs over what it indexes alone; where that is several dimensions they must agree. An index of a result takes what the
 * shape rule says; one that indexes nothing alone and has no shape rule is a mistake, of a reduction it is given a size: sum(k: 3,
 * x[i + k] * w[k]). Reductions sum, prod, max, min, any, all have one index or several, and a condition: sum(k, l where k <= l, ...);
 * sums and products of f16 and bf16 are kept in f32, as the library's are, and exact products summed. Operators + - * / % and
 * comparisons, && ||, functions of the operator table's names (exp, sqrt, tanh, min(a, b), select(c, a, b), pow, ...),
 * cast.f32(x), cast.T(x), cast.index(x). Sizes and indices are index expressions (cast.T(i) makes them numbers); attributes are
 * literals. There are no other conversions.
 * What is read must lie inside: x[i - 1] is refused where that cannot be shown. x[i - 1 where c else v] reads v where c does
 * not hold, and outside of x: x[i - 1 where true else 0] is x with zeros around it, table[cast.index(ids[i]) where true else 0] a
 * gather that no index harms.
 * An expression that reads every operand where it writes (y[...] = x[...] * alpha + b[...]) is elementwise: operands broadcast. */
typedef struct dlc_operator_options {
    size_t struct_size;
    /* [a-z][a-z0-9_]*, at most 63 characters */
    const char *name;
    /* names, separated by blanks: "x w [bias]"; those in brackets may be left out, and stand last. At least 1, at most
     * 12 */
    const char *operands;
    /* What T may be, separated by blanks: f16 bf16 f32 ..., or the classes any number float int signed unsigned; NULL:
     * any */
    const char *dtypes;
    /* NULL: none; at most 11 */
    const dlc_operator_attribute *attributes;
    /* Shape rule as text; NULL: by shape_function, or what the expression says */
    const char *shape;
    dlc_operator_shape *shape_function;
    /* With shape_function: of results, at most 8; 0: 1 */
    int result_count;
    const char *expression;
    dlc_operator_expand *expand;
    dlc_operator_call *call;
    /* Of call */
    bool has_effects;
    void *user;
    void (*release)(void *user);
    /* NULL: none */
    const char *doc;
} dlc_operator_options;
#define DLC_OPERATOR_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_operator_options)

/* DLC_INVALID_ARGUMENT: a name that is taken or is none, a rule or expression that does not hold together; DLC_PARSE_ERROR: text that
 * cannot be read. The message says where. */
DLC_API dlc_status dlc_operator_register(dlc_context *context, const dlc_operator_options *options);

/* ---- rewrite rules -------------------------------------------------------------------------------------------------------- */

/* *replacement: a value of dlc_callback_graph; left as it is (none): the rule does not apply after all. */
typedef dlc_status dlc_rule_replace(void *user, dlc_callback *callback, dlc_value *replacement);

/* Pattern: operators of one result as in text graphs, nested: "log(softmax(x, axis=a))". A name stands for any value, a name that
 * stands twice for the same one; a number for a constant all of whose elements equal it. Operators that commute are tried both ways;
 * where names that stand twice make that a search without end, it ends after 16384 steps at a node, and the rule does not apply there.
 * At most 256 names, numbers and operators. Attributes that are left out must have their defaults; a name in place of an attribute's
 * value stands for whatever it is.
 * Replacement: the same with the pattern's names, "log_softmax(x, axis=a)"; or one of them alone, "x". Numbers get the element type
 * of the operands beside them; elementwise operators broadcast.
 * Rules are applied when a graph is compiled, in the order of registration: to the graph as the host built it, operators that
 * expand included, and again when those are expanded and the library has simplified. Each is applied until none fits, at most 16
 * times over a graph. The library checks that a replacement has dtype and shape of what it replaces; otherwise dlc_compile
 * fails with the rule's name. That its value is the same is for the host to know. */
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

/* Asked for every node that outputs need but inputs and constants, operands first, of sub-graphs before the node that holds them.
 * results[result_count] come as the node made again in dlc_callback_graph, of operands that are replaced already: left so, they are
 * kept; others, of the same dtypes and shapes, take their place. The old graph may be read all over by way of node. */
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

/* a kernel to be; valid during the call */
typedef struct dlc_region {
    /* Main operators joined, as in the dump "regions" */
    const char *name;
    /* Of what it computes, names apart, as in the dump "schedule" */
    uint64_t hash;
    /* What it computes, as the dump "stages" shows it */
    const char *stages;
    /* "cpu", "interp", "cuda", ... */
    const char *target;
    /* The machine: 0 where something is not known */
    int cores;
    /* Width of vectors */
    int vector_bytes;
    /* Bytes of the caches */
    int64_t l1, l2, l3;
} dlc_region;

/* Answers by dlc_callback_set_schedule with the directives, as the dump "schedule" shows them without their `region` line, or not at
 * all: not this region. */
typedef dlc_status dlc_schedule_function(void *user, dlc_callback *callback, const dlc_region *region);

typedef struct dlc_schedule_options {
    size_t struct_size;
    const char *name;
    /* Asked for regions of this name only; NULL: for all */
    const char *region;
    dlc_schedule_function *function;
    void *user;
    void (*release)(void *user);
} dlc_schedule_options;
#define DLC_SCHEDULE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_schedule_options)

/* Asked when a kernel is needed for shapes that are bound, in the order of registration, after dlc_compile_options.schedule: the first
 * answer counts. Kernels are kept by what they compute and by the answer's text, so that a changed answer is a new kernel; it must
 * depend on the region alone. A schedule that does not fit is an error of binding, with its line. Regions without an answer have the
 * target's rules. */
DLC_API dlc_status dlc_schedule_register(dlc_context *context, const dlc_schedule_options *options);

#ifdef __cplusplus
}
#endif
#endif
