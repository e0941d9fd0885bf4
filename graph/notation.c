/* Shape rules and tensor expressions of registered operators; see notation.h. */
#include "graph/build.h"
#include "graph/gradient_stage.h"
#include "graph/internal.h"
#include "graph/notation_text.h"
#include "graph/ops_common.h"

#include <stdlib.h>

enum {
    NESTING = 16,
    TERMS = 32,
    STATEMENTS = 32,
    FIRST_STAGE = 1 << 20 /* provisional stage numbers if there is no region */
};

/* ---- interpretation over a pool ------------------------------------------------------------------------------- */

typedef struct binding {
    const char *name;
    tir_expr value;
} binding;

typedef struct index_variable {
    const char *name;
    tir_expr var, extent;
} index_variable;

typedef struct known_tensor {
    const char *name;
    uint32_t id;
    graph_shape shape;
    /* a stage, not an operand; and then its element at the indices in scope */
    bool stage;
    tir_expr value;
} known_tensor;

typedef struct interpreter {
    const graph_notation *n;
    const graph_op *op;
    lib_arena *arena;
    tir_pool *pool;
    /* the shape rule's argument; NULL: stages are built */
    const graph_infer *infer;
    /* the compute definition's argument; NULL: in a shape rule, or if rows are emitted */
    graph_compute *compute;
    /* of derivatives: stages become rows; NULL: they do not */
    graph_stage_tensors *rows;
    const graph_attribute *attribute;
    int operands;
    const graph_shape *operand;
    lib_vec(binding) dims;
    struct {
        const char *name;
        dlc_dtype dtype;
    } dtype[DLC_MAX_RANK];
    int dtypes;
    bool leading_known;
    int leading_count;
    tir_expr leading[DLC_MAX_RANK];
    lib_vec(known_tensor) tensors;
    /* indices in scope: leading axes, axes, indices of enclosing reductions */
    lib_vec(index_variable) scope;
    const notation_statement *statement;
    tir_names names;
    int nesting;
} interpreter;

static _Noreturn void fail(const interpreter *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(const interpreter *t, const char *format, ...) {
    lib_text text;
    lib_text_init(&text, t->arena);
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    if (t->infer) graph_infer_fail(t->infer, "%s", text.data);
    /* the shape rule should have rejected it */
    lib_raise(t->arena->scope, DLC_INTERNAL, "%s: %s", t->op->name, text.data);
}

static void require_equal(const interpreter *t, tir_expr a, tir_expr b, const char *format, const char *name) {
    if (t->infer) graph_infer_equal(t->infer, a, b, lib_arena_format(t->arena, format, name));
}

static tir_expr find_dim(const interpreter *t, const char *name) {
    for (uint32_t i = 0; i < t->dims.count; i++)
        if (strcmp(t->dims.data[i].name, name) == 0) return t->dims.data[i].value;
    return 0;
}

static int find_attribute(const interpreter *t, const char *name, graph_attribute_kind kind) {
    int at = graph_op_attribute(t->op, name);
    return at >= 0 && t->op->attribute[at].kind == kind ? at : -1;
}

/* ---- names of dimensions, attributes, element types */

static tir_expr named_variable(void *user, const char *name) {
    const interpreter *t = user;
    for (uint32_t i = t->scope.count; i-- > 0;)
        if (strcmp(t->scope.data[i].name, name) == 0) return t->scope.data[i].var;
    tir_expr dim = find_dim(t, name);
    if (dim) return dim;
    int at = find_attribute(t, name, GRAPH_ATTR_BOOL);
    return at >= 0 ? tir_bool(t->pool, t->attribute[at].integer != 0) : 0;
}

static bool named_number(void *user, const char *name, bool *fraction, int64_t *integer, double *number) {
    const interpreter *t = user;
    for (uint32_t i = 0; i < t->scope.count; i++)
        if (strcmp(t->scope.data[i].name, name) == 0) return false;
    if (find_dim(t, name)) return false;
    int whole = find_attribute(t, name, GRAPH_ATTR_INTEGER), real = find_attribute(t, name, GRAPH_ATTR_FLOAT);
    *fraction = whole < 0;
    if (whole >= 0) *integer = t->attribute[whole].integer, *number = (double)*integer;
    if (real >= 0) *number = t->attribute[real].number;
    return whole >= 0 || real >= 0;
}

static bool find_dtype(const interpreter *t, const char *name, dlc_dtype *out) {
    for (int i = 0; i < t->dtypes; i++)
        if (strcmp(t->dtype[i].name, name) == 0) {
            *out = t->dtype[i].dtype;
            return true;
        }
    int at = find_attribute(t, name, GRAPH_ATTR_DTYPE);
    if (at >= 0) *out = (dlc_dtype)t->attribute[at].integer;
    return at >= 0 || lib_dtype_parse(name, out);
}

static bool named_dtype(void *user, const char *name, tir_dtype *out) {
    dlc_dtype dtype;
    if (!find_dtype(user, name, &dtype)) return false;
    *out = (tir_dtype)dtype;
    return true;
}

/* The size that a dimension of a shape rule has, by the names bound so far. */
static tir_expr read_size(interpreter *t, const notation_dim *dim) {
    lib_lexer lexer;
    const tir_names names = {.variable = named_variable, .number = named_number, .user = t};
    lib_lexer_init(&lexer, t->arena, t->op->name, dim->text, strlen(dim->text));
    lib_lexer_next(&lexer);
    lib_scope *const outer = t->arena->scope;
    lib_scope inner;
    tir_expr size = 0;
    t->arena->scope = &inner;
    if (LIB_ENTER(&inner)) size = tir_parse_expr(t->pool, &lexer, &names, TIR_INDEX);
    t->arena->scope = outer;
    if (inner.error.status == DLC_INVALID_ARGUMENT) /* arithmetic error for these attributes */
        fail(t, "dimension `%s`: %s", dim->text, inner.error.message);
    if (inner.error.status != DLC_OK) lib_raise_error(outer, &inner.error);
    return size;
}

/* ---- operands */

static void bind_dtype(interpreter *t, int operand, const char *word) {
    dlc_dtype expected, dtype = t->operand[operand].dtype;
    if (find_dtype(t, word, &expected)) {
        if (expected == dtype) return;
        char name[32];
        bool optional;
        graph_op_operand(t->op, operand, name, &optional);
        fail(t, "operand `%s` is %s, expected %s", name, lib_dtypes[dtype].name, lib_dtypes[expected].name);
    }
    t->dtype[t->dtypes].name = word;
    t->dtype[t->dtypes++].dtype = dtype;
}

static void bind_leading(interpreter *t, int count, const tir_expr *dims, const char *name) {
    if (!t->leading_known) {
        t->leading_known = true;
        t->leading_count = count;
        for (int i = 0; i < count; i++) t->leading[i] = dims[i];
        return;
    }
    if (count != t->leading_count)
        fail(t, "operand `%s` has %d leading dimensions, expected %d as the operands before it", name, count,
             t->leading_count);
    for (int i = 0; i < count; i++) require_equal(t, t->leading[i], dims[i], "sizes of the leading dimensions%s", "");
}

static void bind_operand(interpreter *t, int i) {
    const notation_tensor *p = &t->n->operand[i];
    const graph_shape *shape = &t->operand[i];
    char name[32];
    bool optional;
    if (shape->rank < 0) return; /* omitted operand */
    graph_op_operand(t->op, i, name, &optional);
    if (p->leading ? shape->rank < p->rank : shape->rank != p->rank)
        fail(t, "operand `%s` has rank %d, expected %d%s", name, shape->rank, p->rank, p->leading ? " or more" : "");
    bind_dtype(t, i, p->dtype);
    int leading = shape->rank - p->rank;
    if (p->leading) bind_leading(t, leading, shape->dim, name);
    for (int d = 0; d < p->rank; d++) {
        tir_expr dim = shape->dim[leading + d];
        if (p->dim[d].is_name && !named_variable(t, p->dim[d].text) && graph_op_attribute(t->op, p->dim[d].text) < 0)
            lib_vec_push(t->arena, &t->dims, ((binding){p->dim[d].text, dim}));
        else
            require_equal(t, dim, read_size(t, &p->dim[d]), "sizes of dimension `%s`", p->dim[d].text);
    }
}

static void bind_operands(interpreter *t) {
    for (int i = 0; i < t->operands && t->n->has_shape; i++) bind_operand(t, i);
    if (t->n->has_shape || t->operands == 0) return;
    if (t->infer) graph_infer_same_dtype(t->infer, 0, t->operands);
    t->dtype[t->dtypes].name = "T";
    t->dtype[t->dtypes++].dtype = t->operand[0].dtype;
}

static graph_shape shape_of_result(interpreter *t, const notation_tensor *p) {
    graph_shape shape = {.rank = 0};
    if (!find_dtype(t, p->dtype, &shape.dtype)) fail(t, "%s is no element type, and no operand's", p->dtype);
    if (p->leading && t->leading_count + p->rank > DLC_MAX_RANK)
        fail(t, "the result has more than %d dimensions", DLC_MAX_RANK);
    for (int i = 0; p->leading && i < t->leading_count; i++) shape.dim[shape.rank++] = t->leading[i];
    for (int i = 0; i < p->rank; i++) shape.dim[shape.rank++] = read_size(t, &p->dim[i]);
    return shape;
}

/* ---- tensors and indices of a statement */

static const known_tensor *find_tensor(const interpreter *t, const char *name) {
    for (uint32_t i = 0; i < t->tensors.count; i++)
        if (strcmp(t->tensors.data[i].name, name) == 0) return &t->tensors.data[i];
    return NULL;
}

static const known_tensor *tensor_of(const interpreter *t, uint32_t id) {
    for (uint32_t i = 0; i < t->tensors.count; i++)
        if (t->tensors.data[i].id == id) return &t->tensors.data[i];
    fail(t, "a tensor is not there");
}

static bool named_tensor(void *user, const char *name, uint32_t *id, tir_dtype *dtype, int *rank) {
    const known_tensor *tensor = find_tensor(user, name);
    if (!tensor) return false;
    *id = tensor->id;
    *dtype = (tir_dtype)tensor->shape.dtype;
    *rank = tensor->shape.rank;
    return true;
}

static void check_accesses(interpreter *t) {
    for (uint32_t i = 0; i < t->statement->accesses.count; i++) {
        const notation_access *a = &t->statement->accesses.data[i];
        const known_tensor *tensor = find_tensor(t, a->tensor);
        if (!tensor) {
            lib_nearest nearest = lib_nearest_to(a->tensor);
            for (uint32_t k = 0; k < t->tensors.count; k++)
                lib_nearest_try(&nearest, t->tensors.data[k].name, strlen(t->tensors.data[k].name));
            fail(t, "%s[...]: there is no operand and no statement before that is called so%s", a->tensor,
                 lib_nearest_hint(&nearest));
        }
        int rank = tensor->shape.rank;
        if (a->leading ? rank < a->count : rank != a->count)
            fail(t, "`%s` has rank %d, and is read at %d%s", a->tensor, rank, a->count,
                 a->count == 1 ? " index" : " indices");
        if (a->leading) bind_leading(t, rank - a->count, tensor->shape.dim, a->tensor);
    }
}

/* The extent of an index: `given` if not 0, else that of the dimensions that are indexed by it alone; 0: there is none. All must be
 * equal. */
static tir_expr extent_of(interpreter *t, const char *index, tir_expr given) {
    tir_expr extent = given;
    for (uint32_t i = 0; i < t->statement->accesses.count; i++) {
        const notation_access *a = &t->statement->accesses.data[i];
        for (int d = 0; d < a->count; d++) {
            if (!a->index[d] || strcmp(a->index[d], index) != 0) continue;
            const known_tensor *tensor = find_tensor(t, a->tensor);
            tir_expr dim = tensor->shape.dim[tensor->shape.rank - a->count + d];
            if (extent) require_equal(t, extent, dim, "sizes that index `%s` runs over", index);
            if (!extent) extent = dim;
        }
    }
    return extent;
}

static void push_index(interpreter *t, const char *name, tir_expr extent) {
    if (t->scope.count == TIR_MAX_AXES) fail(t, "more than %d indices at once", TIR_MAX_AXES);
    int64_t high = tir_range(t->pool, extent).high;
    tir_expr var = tir_var(t->pool, name, TIR_VAR_AXIS, TIR_INDEX, 0, high > 0 ? high - 1 : 0);
    lib_vec_push(t->arena, &t->scope, ((index_variable){name, var, extent}));
}

/* ---- bounds */

static const index_variable *variable_in_scope(const interpreter *t, tir_expr e) {
    for (uint32_t i = 0; i < t->scope.count; i++)
        if (t->scope.data[i].var == e) return &t->scope.data[i];
    return NULL;
}

/* Does the expression consist of numbers and symbols only? */
static bool is_fixed(const interpreter *t, tir_expr e) {
    const tir_node *node = tir_get(t->pool, e);
    if (node->op == TIR_LOAD || variable_in_scope(t, e)) return false;
    for (int i = 0; i < node->count; i++)
        if (!is_fixed(t, tir_operand(t->pool, e, i))) return false;
    return true;
}

/* Sets *low and *high to the least and greatest value of an index expression; false: it is no sum of indices and sizes. */
static bool ends_of(const interpreter *t, tir_expr index, tir_expr *low, tir_expr *high) {
    tir_term term[TERMS];
    int64_t constant;
    tir_pool *pool = t->pool;
    int terms = tir_terms(pool, index, term, TERMS, &constant);
    if (terms < 0) return false;
    *low = *high = tir_index(pool, constant);
    for (int i = 0; i < terms; i++) {
        const index_variable *variable = variable_in_scope(t, term[i].atom);
        tir_expr coefficient = tir_index(pool, term[i].coefficient), last = term[i].atom;
        if (!variable && !is_fixed(t, last)) return false;
        if (variable) last = tir_sub(pool, variable->extent, tir_index(pool, 1));
        tir_expr product = tir_mul(pool, last, coefficient);
        if (!variable || term[i].coefficient > 0) *high = tir_add(pool, *high, product);
        if (!variable || term[i].coefficient < 0) *low = tir_add(pool, *low, product);
    }
    return true;
}

static tir_expr inside(const interpreter *t, tir_expr index, tir_expr extent) {
    tir_expr above = tir_le(t->pool, tir_index(t->pool, 0), index), below = tir_lt(t->pool, index, extent);
    return tir_and(t->pool, above, below);
}

static void check_inside(const interpreter *t, tir_expr index, tir_expr extent, const char *name, int dimension) {
    const index_variable *variable = variable_in_scope(t, index);
    if (variable && variable->extent == extent) return;
    tir_expr low, high;
    const char *where = lib_arena_format(t->arena, "`%s` is read outside of its dimension %d", name, dimension);
    if (ends_of(t, index, &low, &high)) {
        if (low == tir_index(t->pool, 0) &&
            tir_equal(t->pool, tir_add(t->pool, high, tir_index(t->pool, 1)), extent) == TIR_YES)
            return;
        graph_infer_at_most(t->infer, tir_index(t->pool, 0), low, where);
        graph_infer_at_most(t->infer, tir_add(t->pool, high, tir_index(t->pool, 1)), extent, where);
        return;
    }
    if (tir_prove(t->pool, inside(t, index, extent)) == TIR_YES || t->op->host->trial) return;
    lib_text text;
    lib_text_init(&text, t->arena);
    tir_describe_expr(&text, t->pool, index);
    fail(t,
         "`%s` is read at %s in dimension %d: that this lies inside of it cannot be shown; say what is read outside: "
         "%s[... where true else 0]",
         name, strchr(text.data, '[') ? "an element of another tensor" : text.data, dimension, name);
}

/* A load. If it has a guard, it yields `other` where the guard is false or the index is outside of the tensor; without a guard, the shape
 * rule checks that the index is inside. */
static tir_expr make_load(void *user, uint32_t id, int rank, const tir_expr *index, tir_expr guard, tir_expr other) {
    interpreter *t = user;
    const known_tensor *tensor = tensor_of(t, id);
    for (int d = 0; d < rank; d++) {
        if (guard)
            guard = tir_and(t->pool, guard, inside(t, index[d], tensor->shape.dim[d]));
        else if (t->infer)
            check_inside(t, index[d], tensor->shape.dim[d], tensor->name, d);
    }
    return tir_load(t->pool, id, (tir_dtype)tensor->shape.dtype, rank, index, guard, other);
}

/* `...` in x[..., i]: the leading axes of the statement. */
static int leading_indices(void *user, lib_lexer *lexer, uint32_t id, tir_expr *index) {
    interpreter *t = user;
    if (!t->statement->leading) lib_lexer_raise(lexer, "`...` on the right needs one on the left");
    graph_notation_accept_leading(lexer);
    for (int i = 0; i < t->leading_count; i++) index[i] = t->scope.data[i].var;
    (void)id; /* check_accesses has checked their number */
    return t->leading_count;
}

/* ---- expressions */

static void check_node(const interpreter *t, const tir_node *node, tir_dtype operand) {
    const char *name = tir_ops[node->op].text;
    bool of_float = operand < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)operand);
    switch (node->op) {
    case TIR_ACC:
    case TIR_OTHER:
    case TIR_PICK:
    case TIR_FMA:
    case TIR_LDEXP:
    case TIR_DOT2_BF16:
    case TIR_DOT2_I16:
    case TIR_DOT4_U8I8: fail(t, "%s is no function of tensor expressions", name);
    case TIR_ADD:
    case TIR_SUB:
    case TIR_MUL:
    case TIR_DIV:
    case TIR_REM:
    case TIR_NEG:
    case TIR_ABS:
    case TIR_MULADD:
        if (operand == DLC_BOOL) fail(t, "%s is of numbers, not of bool", name);
        break;
    case TIR_AND:
    case TIR_OR:
    case TIR_XOR:
    case TIR_NOT:
    case TIR_SHL:
    case TIR_SHR:
    case TIR_MULHI:
        if (of_float) fail(t, "%s is of integers, not of %s", name, tir_dtype_name(operand));
        break;
    case TIR_SQRT:
    case TIR_FLOOR:
    case TIR_CEIL:
    case TIR_TRUNC:
    case TIR_ROUND:
        if (!of_float) fail(t, "%s is of floating-point numbers, not of %s", name, tir_dtype_name(operand));
        break;
    default:
        if ((tir_ops[node->op].flags & TIR_MATH) && !of_float && !(node->op == TIR_POW && operand != DLC_BOOL))
            fail(t, "%s is of floating-point numbers, not of %s", name, tir_dtype_name(operand));
    }
}

/* Adds the expression to the set; false: it is there already. */
static bool add_to_set(lib_arena *arena, lib_map *set, tir_expr e) {
    const uint64_t hash = lib_hash_mix(0, e);
    for (uint32_t at = lib_map_first(set, hash); at != LIB_MAP_END; at = lib_map_next(set, hash, at))
        if (set->slots[at].value == e) return false;
    lib_map_insert(arena, set, hash, e);
    return true;
}

/* Rejects expressions that the parser accepts but stages must not contain; without recursion. */
static void check_expression(interpreter *t, tir_expr root) {
    lib_vec(tir_expr) stack = {0};
    lib_map seen = {0}; /* few of the expressions of the graph's pool */
    if (!t->infer) return;
    lib_vec_push(t->arena, &stack, root);
    while (stack.count) {
        tir_expr e = stack.data[--stack.count];
        if (!add_to_set(t->arena, &seen, e)) continue;
        const tir_node *node = tir_get(t->pool, e);
        check_node(t, node, node->count ? tir_dtype_of(t->pool, tir_operand(t->pool, e, 0)) : node->dtype);
        bool divides = (node->op == TIR_DIV || node->op == TIR_REM) && node->dtype == TIR_INDEX;
        if (divides && !t->op->host->trial && tir_range(t->pool, tir_operand(t->pool, e, 1)).low < 1)
            fail(t, "an index is divided by what may be 0 or less: expected a number or a size above 0");
        for (int i = 0; i < node->count; i++) lib_vec_push(t->arena, &stack, tir_operand(t->pool, e, i));
    }
}

static const struct {
    const char *name;
    tir_op op;
    /* the name is also a function of two elements */
    bool also_map;
} reductions[] = {{"sum", TIR_ADD, false}, {"prod", TIR_MUL, false}, {"max", TIR_MAX, true},
                  {"min", TIR_MIN, true},  {"all", TIR_AND, false},  {"any", TIR_OR, false}};

static bool indexes_alone(const interpreter *t, const char *name) {
    for (uint32_t i = 0; i < t->statement->accesses.count; i++) {
        const notation_access *a = &t->statement->accesses.data[i];
        for (int d = 0; d < a->count; d++)
            if (a->index[d] && strcmp(a->index[d], name) == 0) return true;
    }
    return false;
}

/* Does a new index begin here: a name not in scope, before `,`, `:` or `where`? In max(n, ...) and min(n, ...), which may also be of two
 * elements, the name of a size or an attribute is an index only if it indexes a tensor. */
static bool begins_index(interpreter *t, const lib_lexer *lexer, bool also_map) {
    bool fraction;
    int64_t integer;
    double number;
    const char *name = lexer->text;
    if (lexer->kind != LIB_NAME || strcmp(name, "true") == 0 || strcmp(name, "false") == 0) return false;
    for (uint32_t i = 0; i < t->scope.count; i++)
        if (strcmp(t->scope.data[i].name, name) == 0) return false;
    lib_lexer ahead = *lexer;
    lib_lexer_next(&ahead);
    if (lib_lexer_is(&ahead, ":") || lib_lexer_is(&ahead, "where")) return true;
    bool known = named_variable(t, name) || named_number(t, name, &fraction, &integer, &number);
    return lib_lexer_is(&ahead, ",") && (!also_map || !known || indexes_alone(t, name));
}

/* Reads the indices of a reduction, up to the `,` before its body; returns its predicate, or 0. */
static tir_expr read_indices(interpreter *t, lib_lexer *lexer, bool also_map) {
    do {
        const char *name = lib_lexer_name(lexer);
        tir_expr given = lib_lexer_accept(lexer, ":") ? tir_parse_expr(t->pool, lexer, &t->names, TIR_INDEX) : 0;
        if (given && !is_fixed(t, given)) lib_lexer_raise(lexer, "the size of index %s depends on other indices", name);
        if (given && t->infer)
            graph_infer_at_most(t->infer, tir_index(t->pool, 0), given,
                                lib_arena_format(t->arena, "the size of index `%s` is negative", name));
        tir_expr extent = extent_of(t, name, given);
        if (!extent)
            lib_lexer_raise(lexer, "what index %s runs over is not known: it indexes nothing alone; say %s: SIZE", name,
                            name);
        push_index(t, name, extent);
        if (lib_lexer_accept(lexer, "where")) {
            tir_expr predicate = tir_parse_expr(t->pool, lexer, &t->names, DLC_BOOL);
            lib_lexer_expect(lexer, ",");
            check_expression(t, predicate);
            return predicate;
        }
        lib_lexer_expect(lexer, ",");
    } while (begins_index(t, lexer, also_map));
    return 0;
}

typedef struct reduction {
    tir_op op;
    /* index in the scope of the reduction's first index; the indices from there to the end are its own */
    uint32_t first;
    tir_expr lift, predicate;
    /* dtype of the accumulator */
    tir_dtype dtype;
} reduction;

static uint32_t make_reduction(interpreter *t, const reduction *r, int space, const uint32_t *used) {
    tir_region *region = t->compute->region;
    const char *name[TIR_MAX_AXES];
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], extent[TIR_MAX_AXES];
    int axes = 0;
    for (; axes < space; axes++) {
        name[axes] = t->scope.data[used[axes]].name;
        from[axes] = t->scope.data[used[axes]].var;
        extent[axes] = t->scope.data[used[axes]].extent;
    }
    for (uint32_t i = r->first; i < t->scope.count; i++, axes++) {
        name[axes] = t->scope.data[i].name;
        from[axes] = t->scope.data[i].var;
        extent[axes] = t->scope.data[i].extent;
    }
    tir_stage *stage = tir_region_stage(region, TIR_REDUCE, t->compute->name, space, name, extent, axes - space,
                                        name + space, extent + space);
    for (int i = 0; i < axes; i++) to[i] = stage->axis[i].var;
    if (r->predicate) stage->predicate = tir_substitute(t->pool, r->predicate, axes, from, to);
    tir_expr lift = r->lift;
    if (r->op == TIR_ADD && tir_op_of(t->pool, lift) == TIR_MUL) {
        tir_expr a = tir_cast(t->pool, r->dtype, tir_operand(t->pool, lift, 0));
        tir_expr b = tir_cast(t->pool, r->dtype, tir_operand(t->pool, lift, 1));
        return tir_stage_contract(region, stage, tir_substitute(t->pool, a, axes, from, to),
                                  tir_substitute(t->pool, b, axes, from, to));
    }
    lift = tir_substitute(t->pool, tir_cast(t->pool, r->dtype, lift), axes, from, to);
    return tir_stage_reduce(region, stage, r->op, lift);
}

/* Emits the rows of a stage over these indices of the scope, the last ones being those of the reduction; its number is that of the tensor. */
static uint32_t emit_rows(interpreter *t, graph_stage *stage, const uint32_t *used) {
    for (int i = 0; i < stage->axes; i++) {
        stage->var[i] = t->scope.data[used[i]].var;
        stage->extent[i] = t->scope.data[used[i]].extent;
    }
    const graph_id value = graph_emit_stage(t->rows, stage);
    lib_vec_push(t->arena, &t->rows->value, value);
    return t->rows->value.count - 1;
}

static uint32_t emit_reduction(interpreter *t, const reduction *r, int space, uint32_t *used) {
    graph_stage stage = {.space = space, .op = r->op, .body = r->lift, .predicate = r->predicate};
    stage.dtype = (dlc_dtype)r->dtype;
    stage.axes = space;
    for (uint32_t i = r->first; i < t->scope.count; i++) used[stage.axes++] = i;
    return emit_rows(t, &stage, used);
}

/* Makes the reduction's stage, over the enclosing indices that its body depends on, and loads its value at these. */
static tir_expr reduced_value(interpreter *t, const reduction *r) {
    uint32_t used[TIR_MAX_AXES];
    tir_expr index[TIR_MAX_AXES];
    int space = 0;
    for (uint32_t i = 0; i < r->first; i++) {
        tir_expr var = t->scope.data[i].var;
        if (!tir_uses(t->pool, r->lift, var) && !(r->predicate && tir_uses(t->pool, r->predicate, var))) continue;
        index[space] = var;
        used[space++] = i;
    }
    if (space > DLC_MAX_RANK) fail(t, "a reduction depends on more than %d indices", DLC_MAX_RANK);
    uint32_t id = t->compute ? make_reduction(t, r, space, used)
                  : t->rows  ? emit_reduction(t, r, space, used)
                             : (uint32_t)FIRST_STAGE + t->pool->nodes.count;
    return tir_load(t->pool, id, r->dtype, space, index, 0, 0);
}

/* sum(k, l where k <= l, body) */
static tir_expr named_call(void *user, lib_lexer *lexer, const char *name, tir_dtype want) {
    interpreter *t = user;
    size_t row = 0, rows = sizeof reductions / sizeof *reductions;
    while (row < rows && strcmp(reductions[row].name, name) != 0) row++;
    if (row == rows) return 0;
    if (!begins_index(t, lexer, reductions[row].also_map)) {
        if (reductions[row].also_map) return 0;
        lib_lexer_raise(lexer, "%s: expected the name of an index that is new here", name);
    }
    if (++t->nesting > NESTING) lib_lexer_raise(lexer, "reductions are nested deeper than %d", NESTING);
    reduction r = {.op = reductions[row].op, .first = t->scope.count};
    r.predicate = read_indices(t, lexer, reductions[row].also_map);
    bool logic = r.op == TIR_AND || r.op == TIR_OR;
    r.lift = tir_parse_expr(t->pool, lexer, &t->names, logic ? (tir_dtype)DLC_BOOL : want);
    lib_lexer_expect(lexer, ")");
    check_expression(t, r.lift);
    tir_dtype dtype = tir_dtype_of(t->pool, r.lift);
    if (dtype == TIR_INDEX) lib_lexer_raise(lexer, "%s of an index: cast it, cast.i64(...)", name);
    if (dtype == DLC_BOOL && !logic) lib_lexer_raise(lexer, "%s of bool: cast it, or use any or all", name);
    bool adds = r.op == TIR_ADD || r.op == TIR_MUL;
    r.dtype = adds ? (tir_dtype)graph_sum_dtype((dlc_dtype)dtype) : dtype;
    tir_expr value = reduced_value(t, &r);
    t->scope.count = r.first;
    t->nesting--;
    return tir_cast(t->pool, dtype, value);
}

/* ---- statements */

static void open_axes(interpreter *t, const notation_statement *s, const graph_shape *given) {
    t->scope.count = 0;
    int leading = s->leading ? t->leading_count : 0;
    if (leading + s->axes > DLC_MAX_RANK) fail(t, "%s has more than %d dimensions", s->name, DLC_MAX_RANK);
    for (int i = 0; i < leading; i++)
        push_index(t, lib_arena_format(t->arena, "%s_%d", s->name, i), given ? given->dim[i] : t->leading[i]);
    for (int i = 0; i < s->axes; i++) {
        tir_expr extent = extent_of(t, s->axis[i], given ? given->dim[leading + i] : 0);
        if (!extent)
            fail(t,
                 "what index `%s` of %s runs over is not known: it indexes nothing alone, and there is no shape rule",
                 s->axis[i], s->name);
        push_index(t, s->axis[i], extent);
    }
}

/* The tensor of the statement's value: that of a reduction, if the value is just that at all axes, else of a new map stage. */
static uint32_t make_tensor(interpreter *t, tir_expr value, uint32_t stages_before) {
    tir_region *region = t->compute->region;
    const tir_node *node = tir_get(t->pool, value);
    bool whole = node->op == TIR_LOAD && !node->guarded && node->count == t->scope.count;
    whole = whole && region->tensors.data[node->bits].stage >= (int32_t)stages_before;
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], extent[TIR_MAX_AXES];
    const char *name[TIR_MAX_AXES];
    int axes = (int)t->scope.count;
    for (int i = 0; i < axes; i++) {
        whole = whole && tir_operand(t->pool, value, i) == t->scope.data[i].var;
        from[i] = t->scope.data[i].var;
        extent[i] = t->scope.data[i].extent;
        name[i] = t->scope.data[i].name;
    }
    if (whole) return (uint32_t)node->bits;
    tir_stage *stage = tir_region_stage(region, TIR_MAP, t->compute->name, axes, name, extent, 0, NULL, NULL);
    for (int i = 0; i < axes; i++) to[i] = stage->axis[i].var;
    return tir_stage_value(region, stage, tir_substitute(t->pool, value, axes, from, to), 0, 0);
}

static uint32_t emit_statement(interpreter *t, tir_expr value, dlc_dtype dtype) {
    graph_stage stage = {.space = (int)t->scope.count, .axes = (int)t->scope.count, .body = value, .dtype = dtype};
    uint32_t used[TIR_MAX_AXES];
    for (uint32_t i = 0; i < t->scope.count; i++) used[i] = i;
    return emit_rows(t, &stage, used);
}

/* given: the known part of the result's shape, if the statement is a result; else NULL. */
static known_tensor read_value(interpreter *t, const notation_statement *s, const graph_shape *given) {
    uint32_t before = t->compute ? t->compute->region->stages.count : 0;
    t->statement = s;
    if (find_tensor(t, s->name)) fail(t, "%s is an operand or a statement already", s->name);
    check_accesses(t);
    open_axes(t, s, given);
    lib_lexer lexer;
    lib_lexer_init(&lexer, t->arena, t->op->name, s->text, s->length);
    lexer.line_start = s->line_start;
    lexer.next_line = s->line;
    lib_lexer_next(&lexer);
    tir_expr value = tir_parse_expr(t->pool, &lexer, &t->names, given ? (tir_dtype)given->dtype : TIR_ANY_DTYPE);
    if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "expected `;` or the end");
    check_expression(t, value);
    if (tir_dtype_of(t->pool, value) == TIR_INDEX) fail(t, "%s is an index: cast it, cast.i64(...)", s->name);
    known_tensor tensor = {
        .name = s->name, .stage = true, .id = (uint32_t)FIRST_STAGE + t->pool->nodes.count, .value = value};
    tensor.shape.dtype = (dlc_dtype)tir_dtype_of(t->pool, value);
    tensor.shape.rank = (int)t->scope.count;
    for (uint32_t i = 0; i < t->scope.count; i++) tensor.shape.dim[i] = t->scope.data[i].extent;
    if (t->compute) tensor.id = make_tensor(t, value, before);
    if (t->rows) tensor.id = emit_statement(t, value, tensor.shape.dtype);
    return tensor;
}

static void add_operands(interpreter *t, const uint32_t *ids) {
    for (int i = 0; i < t->operands; i++) {
        char name[32];
        bool optional;
        graph_op_operand(t->op, i, name, &optional);
        known_tensor tensor = {.name = lib_arena_string(t->arena, name), .shape = t->operand[i]};
        tensor.id = ids ? ids[i] : (uint32_t)i;
        lib_vec_push(t->arena, &t->tensors, tensor);
    }
    t->names = (tir_names){.variable = named_variable,
                           .tensor = named_tensor,
                           .user = t,
                           .dtype = named_dtype,
                           .number = named_number,
                           .call = named_call,
                           .leading = leading_indices,
                           .load = make_load};
}

static const graph_notation *notation_of(const graph_op *op) {
    return op->host->notation;
}

/* Checks that kernels can compute with the element type. */
static void check_computable(const interpreter *t, const graph_shape *shape) {
    if (t->n->statements && shape->rank >= 0 && lib_dtype_is_stored_otherwise(shape->dtype))
        fail(t, "expressions are not of %s: cast it, or take its parts", lib_dtypes[shape->dtype].name);
}

static void infer_from(interpreter *t, graph_infer *infer) {
    const graph_notation *n = t->n;
    for (int i = 0; i < infer->inputs; i++) check_computable(t, &infer->operand[i]);
    bind_operands(t);
    for (int i = 0; i < infer->results && n->has_shape; i++) {
        infer->result[i] = shape_of_result(t, &n->result[i]);
        check_computable(t, &infer->result[i]);
    }
    add_operands(t, NULL);
    for (int i = 0; i < n->statements; i++) {
        int result = i - (n->statements - infer->results);
        bool given = n->has_shape && result >= 0;
        known_tensor tensor = read_value(t, &n->statement[i], given ? &infer->result[result] : NULL);
        if (result >= 0 && !given) infer->result[result] = tensor.shape;
        lib_vec_push(t->arena, &t->tensors, tensor);
    }
}

/* The shape rule of the definition's notation; also for rows that are not computed by its expression. Errors in the expression are raised with
 * the operator and the operands for which they occur. */
static void infer_notation(graph_infer *infer) {
    lib_arena *arena = infer->g->arena;
    lib_scope *const outer = arena->scope;
    lib_scope inner;
    interpreter *t = LIB_NEW(arena, interpreter);
    *t = (interpreter){.n = notation_of(infer->op),
                       .op = infer->op,
                       .arena = arena,
                       .pool = infer->g->pool,
                       .infer = infer,
                       .attribute = infer->attribute,
                       .operands = infer->inputs,
                       .operand = infer->operand};
    arena->scope = &inner;
    if (LIB_ENTER(&inner)) {
        infer_from(t, infer);
        arena->scope = outer;
        return;
    }
    arena->scope = outer;
    if (inner.error.status != DLC_PARSE_ERROR && inner.error.status != DLC_INTERNAL)
        lib_raise_error(outer, &inner.error);
    graph_infer_fail(infer, "%s", inner.error.message);
}

static void compute_notation(graph_compute *compute) {
    const graph_notation *n = notation_of(compute->op);
    interpreter *t = LIB_NEW(compute->region->arena, interpreter);
    *t = (interpreter){.n = n,
                       .op = compute->op,
                       .arena = compute->region->arena,
                       .pool = compute->pool,
                       .compute = compute,
                       .attribute = compute->attribute,
                       .operands = compute->inputs,
                       .operand = compute->operand_shape};
    bind_operands(t);
    add_operands(t, compute->operand);
    for (int i = 0; i < n->statements; i++) {
        int result = i - (n->statements - compute->results);
        known_tensor tensor = read_value(t, &n->statement[i], result >= 0 ? &compute->result_shape[result] : NULL);
        if (result >= 0) compute->result[result] = tensor.id;
        lib_vec_push(t->arena, &t->tensors, tensor);
    }
}

bool graph_notation_has_rows(const graph_op *op) {
    return op->host && op->host->notation && op->host->notation->statements > 0;
}

/* The shape rule's interpretation once more, of which each stage is emitted. */
void graph_notation_expand(graph_expand *e) {
    const graph_notation *n = notation_of(e->op);
    graph *g = e->g;
    interpreter *t = LIB_NEW(g->arena, interpreter);
    graph_stage_tensors rows = {.g = g};
    graph_shape *operand = LIB_NEW_ARRAY(g->arena, graph_shape, (size_t)e->inputs), result;
    uint32_t *ids = LIB_NEW_ARRAY(g->arena, uint32_t, (size_t)e->inputs);
    for (int i = 0; i < e->inputs; i++) {
        operand[i] = *graph_shape_of(g, e->input[i]);
        ids[i] = (uint32_t)i;
        lib_vec_push(g->arena, &rows.value, e->input[i]);
    }
    *t = (interpreter){.n = n,
                       .op = e->op,
                       .arena = g->arena,
                       .pool = g->pool,
                       .rows = &rows,
                       .attribute = e->attribute,
                       .operands = e->inputs,
                       .operand = operand};
    bind_operands(t);
    add_operands(t, ids);
    const int results = n->has_shape ? n->results : 1;
    for (int i = 0; i < n->statements; i++) {
        const int r = i - (n->statements - results);
        const bool given = n->has_shape && r >= 0;
        if (given) result = shape_of_result(t, &n->result[r]);
        const known_tensor tensor = read_value(t, &n->statement[i], given ? &result : NULL);
        if (r >= 0) e->result[r] = rows.value.data[tensor.id];
        lib_vec_push(g->arena, &t->tensors, tensor);
    }
}

/* ---- definition ------------------------------------------------------------------------------------------------ */

/* Does the shape rule leave operands and result without dimensions behind the leading ones? */
static bool has_leading_only(const graph_notation *n) {
    for (int i = 0; n->has_shape && i < n->operands + 1; i++) {
        const notation_tensor *p = i < n->operands ? &n->operand[i] : &n->result[0];
        if (!p->leading || p->rank) return false;
    }
    return true;
}

static bool is_at_indices(const notation_access *at, const notation_statement *s) {
    if (at->leading != s->leading || at->count != s->axes) return false;
    for (int d = 0; d < at->count; d++)
        if (!at->index[d] || strcmp(at->index[d], s->axis[d]) != 0) return false;
    return true;
}

/* May the name at the lexer be in a map: with what follows, it is no reduction, selection, index or attribute? */
static bool is_name_in_map(const lib_lexer *lexer) {
    lib_lexer ahead = *lexer;
    lib_lexer_next(&ahead);
    for (size_t r = 0; lib_lexer_is(&ahead, "(") && r < sizeof reductions / sizeof *reductions; r++)
        if (!reductions[r].also_map && strcmp(reductions[r].name, lexer->text) == 0) return false;
    if (strcmp(lexer->text, "where") == 0 || lib_lexer_is(&ahead, ":")) return false;
    if (lib_lexer_is(&ahead, "(") && (strcmp(lexer->text, "max") == 0 || strcmp(lexer->text, "min") == 0)) {
        lib_lexer_next(&ahead);
        bool name = ahead.kind == LIB_NAME;
        lib_lexer_next(&ahead);
        if (name && (lib_lexer_is(&ahead, ",") || lib_lexer_is(&ahead, "where")))
            return false; /* an index, or an attribute */
    }
    return true;
}

/* Is the expression a single statement that reads operands only at the result's indices? The row then has class MAP: operands are
 * broadcast, and it is fused like the library's own maps. */
static bool is_map(lib_arena *arena, const graph_notation *n) {
    const notation_statement *s = n->statement;
    if (n->statements != 1 || !has_leading_only(n)) return false;
    int plain = 0, names = 0;
    for (uint32_t a = 0; a < s->accesses.count; a++) {
        const notation_access *at = &s->accesses.data[a];
        if (!is_at_indices(at, s)) return false;
        plain += at->count;
    }
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "", s->text, s->length);
    for (lib_lexer_next(&lexer); lexer.kind != LIB_END; lib_lexer_next(&lexer)) {
        if (lexer.kind != LIB_NAME) continue;
        for (int d = 0; d < s->axes; d++) names += strcmp(lexer.text, s->axis[d]) == 0;
        if (!is_name_in_map(&lexer)) return false;
    }
    return names == plain && s->accesses.count > 0;
}

static void check_counts(lib_arena *arena, const graph_op *op, const graph_notation *n) {
    if (n->has_shape && n->operands != op->max_inputs)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the shape rule has %d operands, there are %d (%s)", n->operands,
                  op->max_inputs, op->operands);
    int results = n->has_shape ? n->results : 1;
    if (n->statements && n->statements < results)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the expression has %d statements for %d results", n->statements,
                  results);
    if (results > TIR_MAX_STATE * 2)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%d results, at most %d", results, TIR_MAX_STATE * 2);
    if (n->statements && op->min_inputs != op->max_inputs)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "operands of an expression cannot be left out");
    for (int r = 0; n->has_shape && n->statements && r < results; r++) {
        const notation_statement *s = &n->statement[n->statements - results + r];
        if (s->axes != n->result[r].rank || s->leading != n->result[r].leading)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%s has %d indices%s, the shape rule's result %d%s", s->name,
                      s->axes, s->leading ? " behind ..." : "", n->result[r].rank,
                      n->result[r].leading ? " behind ..." : "");
    }
}

/* "name(T[], i32[])": shows which operands have the row's element types. */
static const char *sample_of(lib_arena *arena, const graph_op *op, const graph_notation *n) {
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_format(&text, "%s(", op->name);
    for (int i = 0; i < op->max_inputs; i++)
        lib_text_format(&text, "%s%s[]", i ? ", " : "", n->has_shape ? n->operand[i].dtype : "T");
    lib_text_add(&text, ")");
    return text.data;
}

void graph_notation_define(graph_definition *definition, const char *shape, const char *expression) {
    lib_arena *arena = &definition->arena;
    graph_op *op = &definition->op;
    graph_notation *n = LIB_NEW(arena, graph_notation);
    if (shape) graph_notation_read_shape(arena, n, op, shape);
    if (expression) graph_notation_read_expression(arena, n, expression);
    definition->notation = n;
    check_counts(arena, op, n);
    op->results = n->has_shape ? n->results : 1;
    op->samples = sample_of(arena, op, n);
    op->infer = infer_notation;
    if (!expression) return;
    op->compute = compute_notation;
    /* Class REDUCE makes fusion treat the node as a heavy one: maps may follow in its kernel; schedule rules inspect the stages. */
    op->class_ = is_map(arena, n) ? GRAPH_MAP : GRAPH_REDUCE;
}

tir_expr graph_notation_value(graph *g, const graph_op *op, const graph_notation *n, const graph_shape *operand) {
    interpreter *t = LIB_NEW(g->arena, interpreter);
    *t = (interpreter){
        .n = n, .op = op, .arena = g->arena, .pool = g->pool, .operands = op->max_inputs, .operand = operand};
    bind_operands(t);
    add_operands(t, NULL);
    const graph_shape shape = n->has_shape ? shape_of_result(t, &n->result[0]) : (graph_shape){.rank = 0};
    return read_value(t, n->statement, n->has_shape ? &shape : NULL).value;
}
