/* The graph and its one constructor, graph_emit: check -> infer -> fold -> hash-cons -> append; symbols, constraints and
 * constants. A failed emit leaves the graph unchanged (but not the arena's usage). */
#include "graph/graph.h"
#include "graph/internal.h"
#include "graph/op.h"
#include "graph/sizes.h"

graph *graph_new(lib_arena *arena, tir_pool *pool) {
    graph *g = LIB_NEW(arena, graph);
    g->arena = arena;
    if (!pool) {
        pool = LIB_NEW(arena, tir_pool);
        tir_pool_init(pool, arena);
    }
    g->pool = pool;
    g->phase = GRAPH_BUILD;
    lib_vec_push(arena, &g->values, (graph_value){0}); /* id 0: none */
    return g;
}

/* Raises the heights of g and its enclosing graphs to `height`, `height` + 1, ... where they are smaller. */
static void raise_heights(graph *g, int height) {
    for (; g && g->height < height; g = g->parent) g->height = height++;
}

graph *graph_new_inside(graph *parent) {
    graph *g = graph_new(parent->arena, parent->pool);
    g->parent = parent;
    g->depth = parent->depth + 1;
    g->phase = parent->phase;
    return g;
}

int64_t graph_add_subgraph(graph *parent, graph *g) {
    lib_vec_push(parent->arena, &parent->subgraphs, g);
    raise_heights(parent, g->height + 1);
    return parent->subgraphs.count - 1;
}

graph *graph_new_subgraph(graph *parent, int64_t *number) {
    lib_stack_require(parent->arena->scope, LIB_STACK_CALL); /* passes recurse over nested graphs */
    graph *g = graph_new_inside(parent);
    *number = graph_add_subgraph(parent, g);
    return g;
}

size_t graph_stack(const graph *g) {
    return LIB_STACK_CALL + (size_t)g->height * LIB_STACK_NESTED;
}

/* ---- symbols and constraints ----------------------------------------------------------------------------------- */

uint32_t graph_find_symbol(const graph *g, const char *name) {
    const graph *outer = graph_outermost(g);
    const lib_map *map = &outer->symbols_by_name;
    uint64_t hash = lib_hash_string(name);
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at)) {
        uint32_t symbol = map->slots[at].value;
        if (symbol < outer->symbols.count && strcmp(outer->symbols.data[symbol].name, name) == 0) return symbol;
    }
    return UINT32_MAX;
}

uint32_t *graph_symbols_by_variable(lib_arena *arena, const graph *g) {
    uint32_t *symbols = LIB_NEW_ARRAY(arena, uint32_t, (size_t)g->pool->variables.count + 1);
    for (uint32_t s = 0; s < g->symbols.count; s++) symbols[tir_var_id(g->pool, g->symbols.data[s].var)] = s + 1;
    return symbols;
}

bool graph_is_input_size(const graph *g, tir_expr symbol) {
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const graph_shape *shape = graph_shape_of(g, g->inputs.data[i]);
        for (int d = 0; d < shape->rank; d++)
            if (shape->dim[d] == symbol) return true;
    }
    return false;
}

tir_expr graph_symbol_named(graph *g, const char *name) {
    graph *outer = graph_outermost(g);
    uint32_t known = graph_find_symbol(outer, name);
    if (known != UINT32_MAX) return outer->symbols.data[known].var;
    const char *copy = lib_arena_string(outer->arena, name);
    tir_expr var = tir_var(outer->pool, copy, TIR_VAR_PARAM, TIR_INDEX, 0, GRAPH_SYMBOL_MAX);
    lib_vec_reserve(outer->arena, &outer->symbols, 1);
    lib_map_insert(outer->arena, &outer->symbols_by_name, lib_hash_string(name), outer->symbols.count);
    lib_vec_push(outer->arena, &outer->symbols, ((graph_symbol){.var = var, .name = copy}));
    return var;
}

/* Records the constraint, once. */
static void constrain(graph *g, tir_expr left, tir_expr right, const char *message) {
    graph *outer = graph_outermost(g);
    lib_map *map = &outer->constraints_by_sides;
    uint64_t hash = left < right ? (uint64_t)left << 32 | right : (uint64_t)right << 32 | left;
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at)) {
        if (map->slots[at].value >= outer->constraints.count) continue; /* constraints may have been removed */
        const graph_constraint *known = &outer->constraints.data[map->slots[at].value];
        if ((known->left == left && known->right == right) || (known->left == right && known->right == left)) return;
    }
    lib_map_insert(outer->arena, map, hash, outer->constraints.count);
    lib_vec_push(outer->arena, &outer->constraints, ((graph_constraint){left, right, message}));
}

void graph_require_equal(graph *g, tir_expr left, tir_expr right, const char *format, ...) {
    tir_truth truth = left == right ? TIR_YES : tir_equal(g->pool, left, right);
    if (truth == TIR_YES) return;
    lib_text text;
    lib_text_init(&text, g->arena);
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    if (truth == TIR_UNKNOWN) {
        constrain(g, left, right, text.data);
        return;
    }
    lib_text_add(&text, "; they are ");
    tir_describe_expr(&text, g->pool, left);
    lib_text_add(&text, " and ");
    tir_describe_expr(&text, g->pool, right);
    lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s", text.data);
}

/* ---- constants ------------------------------------------------------------------------------------------------- */

/* A borrowed constant of more bytes is identified by address and size, any other constant by a hash of its bytes. */
enum { IDENTITY_BY_CONTENT_MAX = 1 << 16 };

/* May the bytes move? The original address, which identifies them, may then have been reused by other memory. */
static bool may_move(const graph_constant *constant) {
    return constant->holder && constant->holder->read;
}

static bool has_same_bytes(lib_scope *scope, const graph_constant *a, const graph_constant *b) {
    if (a->identity != b->identity || a->size != b->size) return false;
    if (a->bytes == b->bytes && (a->holder == b->holder || (!may_move(a) && !may_move(b)))) return true;
    return memcmp(graph_constant_bytes(scope, a), graph_constant_bytes(scope, b), a->size) == 0;
}

/* Index of an equal constant; UINT32_MAX: none. */
static uint32_t find_constant(graph *g, const graph_constant *constant) {
    const lib_map *map = &g->constants_by_identity;
    for (uint32_t at = lib_map_first(map, constant->identity); at != LIB_MAP_END;
         at = lib_map_next(map, constant->identity, at)) {
        graph_constant *known = &g->constants.data[map->slots[at].value];
        if (!has_same_bytes(g->arena->scope, known, constant)) continue;
        if (known->bytes == constant->bytes && !known->holder) known->holder = constant->holder;
        return map->slots[at].value;
    }
    return UINT32_MAX;
}

static uint32_t append_constant(graph *g, graph_constant constant) {
    lib_vec_reserve(g->arena, &g->constants, 1);
    lib_map_insert(g->arena, &g->constants_by_identity, constant.identity, g->constants.count);
    lib_vec_push(g->arena, &g->constants, constant);
    return g->constants.count - 1;
}

uint32_t graph_add_constant_as(graph *g, graph_constant constant) {
    uint32_t known = find_constant(g, &constant);
    return known != UINT32_MAX ? known : append_constant(g, constant);
}

/* Replaces constant->bytes by a copy: of large constants in a graph_bytes, which graphs and programs can share, else in the arena. */
static void copy_bytes(graph *g, graph_constant *constant) {
    void *copy;
    if (constant->size < GRAPH_BYTES_LEAST) {
        copy = lib_arena_take_aligned(g->arena, constant->size, 64);
    } else {
        graph_bytes *shared = graph_bytes_new(g->arena->allocator, constant->size);
        if (!shared)
            lib_raise(g->arena->scope, DLC_OUT_OF_MEMORY, "out of memory: a constant of %zu bytes", constant->size);
        graph_bytes_own(g->arena, shared);
        constant->holder = graph_bytes_holder(shared);
        constant->borrowed = true;
        copy = graph_bytes_data(shared);
    }
    if (constant->size) memcpy(copy, constant->bytes, constant->size);
    constant->bytes = copy;
}

/* A hash of the first and last bytes of a large constant, without reading the others. */
static uint64_t hash_of_ends(const char *bytes, size_t size) {
    enum { END = 256 };
    return lib_hash_mix(lib_hash64(bytes, END, size), lib_hash64(bytes + size - END, END, size));
}

/* Adds a large borrowed constant. Its bytes are compared with those of at most one other constant, of equal first and last bytes, so that
 * they are read once at most. */
static uint32_t borrow_constant(graph *g, graph_constant constant) {
    const uint64_t ends = hash_of_ends(constant.bytes, constant.size);
    constant.identity = lib_hash_mix((uint64_t)(uintptr_t)constant.bytes, constant.size);
    constant.by_place = true;
    uint32_t known = find_constant(g, &constant), at = lib_map_first(&g->constants_by_ends, ends);
    if (known != UINT32_MAX) return known;
    if (at != LIB_MAP_END) {
        known = g->constants_by_ends.slots[at].value;
        const graph_constant *alike = &g->constants.data[known];
        if (alike->size == constant.size &&
            memcmp(graph_constant_bytes(g->arena->scope, alike), constant.bytes, constant.size) == 0)
            return known;
    }
    lib_map_insert(g->arena, &g->constants_by_ends, ends, g->constants.count);
    return append_constant(g, constant);
}

uint32_t graph_add_constant(graph *g, const void *bytes, size_t size, bool borrow) {
    graph_constant constant = {.bytes = bytes, .size = size, .borrowed = borrow};
    if (borrow && size > IDENTITY_BY_CONTENT_MAX) return borrow_constant(g, constant);
    constant.identity = lib_hash64(bytes, size, size);
    uint32_t known = find_constant(g, &constant);
    if (known != UINT32_MAX) return known;
    if (!borrow) copy_bytes(g, &constant);
    return append_constant(g, constant);
}

/* ---- emit: check ----------------------------------------------------------------------------------------------- */

static _Noreturn void refuse(const graph *g, const graph_op *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(const graph *g, const graph_op *op, const char *format, ...) {
    lib_text text;
    lib_text_init(&text, g->arena);
    lib_text_format(&text, "%s: ", op->name);
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s", text.data);
}

static void check_dtype_attribute(const graph *g, const graph_op *op, const graph_attribute_spec *spec,
                                  int64_t integer) {
    if (integer < 0 || integer >= DLC_DTYPE_COUNT)
        refuse(g, op, "%s: %lld is not an element type", spec->name, (long long)integer);
    if (!lib_dtypes[integer].usable)
        lib_raise(g->arena->scope, DLC_UNSUPPORTED, "%s: %s: element type %s is reserved and not supported yet",
                  op->name, spec->name, lib_dtypes[integer].name);
    /* expansions of composites are checked node by node */
    if (lib_dtype_is_stored_otherwise((dlc_dtype)integer) && op->class_ != GRAPH_COMPOSITE && !graph_op_stores(op) &&
        (!op->dtypes || !graph_op_accepts(op, (dlc_dtype)integer)))
        refuse(g, op, "%s: no values of %s are computed: cast to it, or make it of its parts", spec->name,
               lib_dtypes[integer].name);
}

/* Only an empty array may be at NULL. */
static bool is_array(int count, const void *data) {
    return count >= 0 && (count == 0 || data);
}

static void check_attribute(const graph *g, const graph_op *op, const graph_attribute_spec *spec,
                            const graph_attribute *attribute) {
    int64_t integer = attribute->integer;
    switch (spec->kind) {
    case GRAPH_ATTR_DTYPE: check_dtype_attribute(g, op, spec, integer); break;
    case GRAPH_ATTR_ENUM:
        if (integer < 0 || integer >= graph_choice_count(spec->choices))
            refuse(g, op, "%s: choice %lld does not exist, expected one of: %s", spec->name, (long long)integer,
                   spec->choices);
        break;
    case GRAPH_ATTR_SUBGRAPH:
        if (integer < 0 || integer >= (int64_t)g->subgraphs.count)
            refuse(g, op, "%s: sub-graph %lld does not exist", spec->name, (long long)integer);
        break;
    case GRAPH_ATTR_CONSTANT:
        if (integer < 0 || integer >= (int64_t)g->constants.count)
            refuse(g, op, "%s: constant %lld does not exist", spec->name, (long long)integer);
        break;
    case GRAPH_ATTR_INTEGERS:
        if (!is_array(attribute->count, attribute->list))
            refuse(g, op, "%s: a list of %d elements%s was given, expected 0 or more", spec->name, attribute->count,
                   attribute->list ? "" : " at NULL");
        break;
    case GRAPH_ATTR_DIMS:
        if (!is_array(attribute->count, attribute->dims) || attribute->count > DLC_MAX_RANK)
            refuse(g, op, "%s: %d dimensions were given, expected 0 to %d", spec->name, attribute->count, DLC_MAX_RANK);
        break;
    case GRAPH_ATTR_STRING:
        if (!attribute->string) refuse(g, op, "%s: no string was given", spec->name);
        break;
    case GRAPH_ATTR_INTEGER:
    case GRAPH_ATTR_FLOAT:
    case GRAPH_ATTR_BOOL: break;
    }
}

/* Sets out[] to the attributes with defaults filled in; a value equal to the default becomes not given. Lists still belong to the
 * caller. Returns the number of attributes. */
static int complete_attributes(graph *g, const graph_op *op, const graph_attribute *given, graph_attribute *out) {
    int count = 0;
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++, count++) {
        graph_attribute *attribute = &out[count];
        *attribute = given ? given[count] : (graph_attribute){0};
        if (spec->initial && strcmp(spec->initial, "auto") == 0) {
            graph *outer = graph_outermost(g);
            if (!attribute->given) *attribute = (graph_attribute){.integer = outer->next_stream, .given = true};
            if (attribute->integer >= outer->next_stream && attribute->integer < UINT32_MAX)
                outer->next_stream = (uint32_t)attribute->integer + 1;
            continue;
        }
        if (attribute->given) check_attribute(g, op, spec, attribute);
        if (!spec->initial) {
            if (!attribute->given) refuse(g, op, "attribute `%s` is required", spec->name);
            continue;
        }
        graph_attribute initial = graph_attribute_default(g, spec);
        if (!attribute->given || graph_attribute_equal(spec, attribute, &initial)) *attribute = initial;
    }
    return count;
}

static void check_operand(const graph *g, const graph_op *op, int operand, graph_id value) {
    const bool given = value && value < g->values.count;
    const dlc_dtype dtype = given ? graph_shape_of(g, value)->dtype : DLC_F32;
    if (given && graph_op_accepts(op, dtype)) return;
    char name[32];
    bool optional;
    graph_op_operand(op, operand, name, &optional);
    if (!value) {
        if (!optional) refuse(g, op, "operand %d (`%s`) is required", operand, name);
        return;
    }
    if (!given) refuse(g, op, "operand %d (`%s`) is not a value of this graph", operand, name);
    if (graph_op_operand_is_typed(op, operand)) {
        lib_text text;
        lib_text_init(&text, g->arena);
        graph_describe_shape(&text, g, graph_shape_of(g, value));
        const char *hint = lib_dtype_is_encoded(dtype)       ? "; cast it first"
                           : lib_dtypes[dtype].class_ == 'c' ? "; take its parts: real, imag"
                                                             : "";
        refuse(g, op, "operand %d (`%s`) is %s, expected one of these element types: %s%s", operand, name, text.data,
               op->dtypes, hint);
    }
}

static void check_inputs(const graph *g, const graph_op *op, int inputs, const graph_id *input) {
    if (inputs < op->min_inputs || (op->max_inputs >= 0 && inputs > op->max_inputs)) {
        if (op->max_inputs == op->min_inputs)
            refuse(g, op, "%d operands were given, expected %d (%s)", inputs, op->min_inputs, op->operands);
        if (op->max_inputs < 0)
            refuse(g, op, "%d operands were given, expected at least %d (%s)", inputs, op->min_inputs, op->operands);
        refuse(g, op, "%d operands were given, expected %d to %d (%s)", inputs, op->min_inputs, op->max_inputs,
               op->operands);
    }
    for (int i = 0; i < inputs; i++) check_operand(g, op, i, input[i]);
}

/* Checks that the rank is in range, no known dimension negative, and the result at most 2^60 bytes, unknown dimensions counted as 1. */
static void check_result(const graph_infer *infer, const graph_shape *shape) {
    if (shape->rank < 0 || shape->rank > DLC_MAX_RANK)
        graph_infer_fail(infer, "the result has rank %d, expected 0 to %d", shape->rank, DLC_MAX_RANK);
    int64_t bytes = (int64_t)lib_dtype_size(shape->dtype);
    bool empty = false, fits = true;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent = 0;
        if (!tir_is_const(infer->g->pool, shape->dim[i], &extent)) continue;
        if (extent < 0) graph_infer_fail(infer, "dimension %d of the result is %lld", i, (long long)extent);
        empty |= extent == 0;
        fits &= !__builtin_mul_overflow(bytes, extent ? extent : 1, &bytes);
    }
    if (!empty && (!fits || bytes > INT64_C(1) << 60)) graph_infer_fail(infer, "the result is larger than 2^60 bytes");
}

enum { FEW = 4 };

/* Runs the row's shape rule and checks the results. few: zeroed space for the shapes of FEW operands, then of FEW results. */
static void infer_shapes(graph_infer *infer, graph_shape *few) {
    graph *g = infer->g;
    infer->operand = infer->inputs <= FEW ? few : LIB_NEW_ARRAY(g->arena, graph_shape, (size_t)infer->inputs);
    for (int i = 0; i < infer->inputs; i++)
        infer->operand[i] = infer->input[i] ? *graph_shape_of(g, infer->input[i]) : (graph_shape){.rank = -1};
    infer->results = infer->op->results;
    infer->result = infer->results <= FEW ? few + FEW : LIB_NEW_ARRAY(g->arena, graph_shape, (size_t)infer->results);
    infer->op->infer(infer);
    for (int i = 0; i < infer->results; i++) check_result(infer, &infer->result[i]);
}

/* ---- emit: hash-cons and append -------------------------------------------------------------------------------- */

static uint64_t node_hash(const graph_op *op, int inputs, const graph_id *input, const graph_attribute *attribute) {
    uint64_t hash = lib_hash64(op->name, strlen(op->name), (uint64_t)inputs);
    hash = lib_hash64(input, (size_t)inputs * sizeof *input, hash);
    for (int i = 0; op->attribute[i].name; i++) hash = graph_attribute_hash(&op->attribute[i], &attribute[i], hash);
    return hash;
}

static bool node_equal(const graph_node *node, const graph_op *op, int inputs, const graph_id *input,
                       const graph_attribute *attribute) {
    if (node->op != op || node->inputs != inputs) return false;
    if (inputs && memcmp(node->input, input, (size_t)inputs * sizeof *input) != 0) return false;
    for (int i = 0; op->attribute[i].name; i++)
        if (!graph_attribute_equal(&op->attribute[i], &node->attribute[i], &attribute[i])) return false;
    return true;
}

static bool is_impure(const graph *g, const graph_op *op, const graph_attribute *attribute) {
    bool impure = op->algebra & GRAPH_IMPURE;
    for (int i = 0; op->attribute[i].name; i++) {
        if (op->attribute[i].kind != GRAPH_ATTR_SUBGRAPH) continue;
        const graph *inner = g->subgraphs.data[attribute[i].integer];
        for (uint32_t n = 0; n < inner->nodes.count; n++) impure = impure || inner->nodes.data[n].impure;
    }
    return impure;
}

static graph_id find_node(const graph *g, const graph_infer *infer, uint64_t hash) {
    for (uint32_t at = lib_map_first(&g->cons, hash); at != LIB_MAP_END; at = lib_map_next(&g->cons, hash, at)) {
        const graph_node *node = &g->nodes.data[g->cons.slots[at].value];
        if (node_equal(node, infer->op, infer->inputs, infer->input, infer->attribute)) return node->first;
    }
    return 0;
}

static graph_id append_node(const graph_infer *infer, bool impure, uint64_t hash) {
    graph *g = infer->g;
    int attributes = 0;
    while (infer->op->attribute[attributes].name) attributes++;
    graph_attribute *own = LIB_NEW_ARRAY(g->arena, graph_attribute, (size_t)attributes);
    for (int i = 0; i < attributes; i++)
        own[i] = graph_attribute_copy(g->arena, &infer->op->attribute[i], &infer->attribute[i]);
    graph_node node = {.op = infer->op,
                       .inputs = infer->inputs,
                       .results = infer->results,
                       .attribute = own,
                       .impure = impure,
                       .hash = hash};
    node.input = lib_arena_copy(g->arena, infer->input, (size_t)infer->inputs * sizeof *infer->input);
    node.first = g->values.count;
    bool is_input = infer->op->structure == GRAPH_ARRIVES;
    /* everything that can raise comes before the first change */
    lib_vec_reserve(g->arena, &g->values, (uint32_t)infer->results);
    lib_vec_reserve(g->arena, &g->nodes, 1);
    if (is_input) lib_vec_reserve(g->arena, &g->inputs, 1);
    lib_map_insert(g->arena, &g->cons, hash, g->nodes.count);
    uint32_t origins = graph_outermost(g)->scope;
    for (int i = 0; i < infer->results; i++)
        g->values.data[g->values.count++] =
            (graph_value){.shape = infer->result[i], .node = g->nodes.count, .result = i, .origins = origins};
    g->nodes.data[g->nodes.count++] = node;
    if (is_input) g->inputs.data[g->inputs.count++] = node.first;
    return node.first;
}

/* Checks the contract of rules and folding: same dtype and shape. */
static void check_replacement(const graph_infer *infer, graph_id value) {
    const graph_shape *a = &infer->result[0], *b = graph_shape_of(infer->g, value);
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i] || tir_equal(infer->g->pool, a->dim[i], b->dim[i]) != TIR_NO;
    if (!same)
        lib_raise(infer->g->arena->scope, DLC_INTERNAL, "a rewrite of %s changed its shape or dtype", infer->op->name);
}

graph_id graph_emit(graph *g, const graph_op *op, int inputs, const graph_id *input,
                    const graph_attribute *attributes) {
    return graph_emit_written(g, op, inputs, input, input, attributes);
}

graph_id graph_emit_written(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_id *written,
                            const graph_attribute *attributes) {
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute];
    complete_attributes(g, op, attributes, attribute);
    check_inputs(g, op, inputs, written);
    if (op->max_inputs > inputs) { /* omitted trailing optional operands */
        graph_id *full = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)op->max_inputs);
        if (inputs) memcpy(full, input, (size_t)inputs * sizeof *input);
        for (int i = inputs; i < op->max_inputs; i++) check_operand(g, op, i, 0);
        written = written == input ? full : written;
        input = full;
        inputs = op->max_inputs;
    }
    graph_infer infer = {
        .g = g, .op = op, .inputs = inputs, .input = input, .written = written, .attribute = attribute};
    uint64_t hash = node_hash(op, inputs, input, attribute);
    bool impure = is_impure(g, op, attribute);
    graph_id known = impure ? 0 : find_node(g, &infer, hash);
    if (known) return known;
    graph_shape few[2 * FEW] = {0};
    infer_shapes(&infer, few);
    if (op->results == 1 && !impure) {
        graph_id folded = graph_fold(g, op, inputs, input, attribute, infer.result);
        if (!folded) folded = graph_rewrite(g, op, inputs, input, attribute, infer.result);
        if (folded) {
            graph_outermost(g)->rewrites++;
            check_replacement(&infer, folded);
            return folded;
        }
    }
    return append_node(&infer, impure, hash);
}

/* `first` of a node without results (an impure call) is one past the last value, as long as no other value is emitted. */
int graph_result_count(const graph *g, graph_id first) {
    if (first >= g->values.count) return 0;
    return g->values.data[first].result == 0 ? graph_node_of(g, first)->results : 1;
}

/* ---- hash of the whole ----------------------------------------------------------------------------------------- */

static lib_hash128 hash_nodes(const graph *g, bool sizes);

/* Equal hashes of graphs are taken for equal graphs, so bytes are digested, unless their place says which they are. */
static void describe_constant(lib_text *text, const graph *g, const graph_constant *constant) {
    const lib_hash128 none = {0, 0};
    const lib_hash128 digest = constant->by_place
                                   ? (lib_hash128){constant->identity, 0}
                                   : lib_digest(graph_constant_bytes(g->arena->scope, constant), constant->size, none);
    lib_text_format(text, "%llx:%llx:%zu,", (unsigned long long)digest.low, (unsigned long long)digest.high,
                    constant->size);
}

/* Unlike node hashes, this hash must not depend on ids in the graph's pool: dimensions are hashed as text. */
static void describe_node(lib_text *text, const graph *g, const graph_node *node, bool sizes) {
    lib_text_format(text, "%s(", node->op->name);
    for (int i = 0; i < node->inputs; i++) lib_text_format(text, "%u,", node->input[i]);
    for (int i = 0; node->op->attribute[i].name; i++) {
        const graph_attribute_spec *spec = &node->op->attribute[i];
        if (spec->kind == GRAPH_ATTR_CONSTANT) {
            const graph_constant *constant = &g->constants.data[node->attribute[i].integer];
            describe_constant(text, g, constant);
        } else if (spec->kind == GRAPH_ATTR_SUBGRAPH) {
            lib_hash128 inner = hash_nodes(g->subgraphs.data[node->attribute[i].integer], sizes);
            lib_text_format(text, "%llx%llx,", (unsigned long long)inner.low, (unsigned long long)inner.high);
        } else if (spec->kind == GRAPH_ATTR_DIMS && !sizes) {
            lib_text_format(text, "%d,", node->attribute[i].count);
        } else {
            graph_attribute_print(text, g, spec, &node->attribute[i]);
            lib_text_add(text, ",");
        }
    }
    lib_text_add(text, ")");
}

static lib_hash128 hash_nodes(const graph *g, bool sizes) {
    lib_text text;
    lib_text_init(&text, g->arena);
    lib_hash128 hash = {0, 0};
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        text.length = 0;
        describe_node(&text, g, &g->nodes.data[i], sizes);
        hash = lib_digest(text.data, text.length, hash);
    }
    return lib_digest(g->outputs.data, g->outputs.count * sizeof *g->outputs.data, hash);
}

lib_hash128 graph_hash(const graph *g) {
    return hash_nodes(g, true);
}

lib_hash128 graph_hash_but_sizes(const graph *g) {
    return hash_nodes(g, false);
}
