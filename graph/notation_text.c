/* Texts of shape rules and tensor expressions; see notation_text.h. */
#include "graph/notation_text.h"

enum { STATEMENTS = 32 };

bool graph_notation_accept_leading(lib_lexer *lexer) {
    if (!lib_lexer_accept(lexer, ".")) return false;
    lib_lexer_expect(lexer, ".");
    lib_lexer_expect(lexer, ".");
    return true;
}

/* Where the current token begins. */
static const char *token_at(const lib_lexer *lexer) {
    return lexer->kind == LIB_END ? lexer->end : lexer->at - lexer->text_length;
}

/* ---- shape rules */

typedef struct size_name {
    const char *name;
    tir_expr var;
} size_name;

typedef struct shape_reader {
    lib_lexer lexer;
    lib_arena *arena;
    tir_pool *pool;
    const graph_op *op;
    /* sizes named by the operands so far */
    lib_vec(size_name) sizes;
} shape_reader;

static tir_expr find_size(const shape_reader *r, const char *name) {
    for (uint32_t i = 0; i < r->sizes.count; i++)
        if (strcmp(r->sizes.data[i].name, name) == 0) return r->sizes.data[i].var;
    return 0;
}

static tir_expr any_variable(void *user, const char *name) {
    const shape_reader *r = user;
    int at = graph_op_attribute(r->op, name);
    tir_expr size = find_size(r, name);
    if (size) return size;
    return at >= 0 && r->op->attribute[at].kind == GRAPH_ATTR_BOOL ? tir_bool(r->pool, true) : 0;
}

/* Stands for any attribute: a value without special properties. */
static bool any_number(void *user, const char *name, bool *fraction, int64_t *integer, double *number) {
    const shape_reader *r = user;
    int at = find_size(r, name) ? -1 : graph_op_attribute(r->op, name);
    if (at < 0) return false;
    *fraction = r->op->attribute[at].kind == GRAPH_ATTR_FLOAT;
    *number = (double)(*integer = 1009);
    return *fraction || r->op->attribute[at].kind == GRAPH_ATTR_INTEGER;
}

/* Reports arithmetic errors, which lack a position, at the size's position. */
static void check_size(shape_reader *r) {
    const tir_names names = {.variable = any_variable, .number = any_number, .user = r};
    const lib_lexer begin = r->lexer;
    lib_scope *const outer = r->arena->scope;
    lib_scope inner;
    r->arena->scope = &inner;
    if (LIB_ENTER(&inner)) tir_parse_expr(r->pool, &r->lexer, &names, TIR_INDEX);
    r->arena->scope = outer;
    if (inner.error.status == DLC_OK) return;
    if (inner.error.status != DLC_INVALID_ARGUMENT) lib_raise_error(outer, &inner.error);
    lib_lexer_raise(&begin, "%s", inner.error.message);
}

/* Reads a dimension; the first plain occurrence of a name in an operand defines the size. */
static notation_dim read_dim(shape_reader *r, bool of_operand) {
    lib_lexer *lexer = &r->lexer, ahead = *lexer;
    const char *from = token_at(lexer);
    lib_lexer_next(&ahead);
    notation_dim dim = {.is_name = lexer->kind == LIB_NAME && (lib_lexer_is(&ahead, ",") || lib_lexer_is(&ahead, "]"))};
    if (dim.is_name) dim.text = lib_arena_string(r->arena, lexer->text);
    if (dim.is_name && of_operand && !find_size(r, dim.text) && graph_op_attribute(r->op, dim.text) < 0) {
        tir_expr var = tir_var(r->pool, dim.text, TIR_VAR_PARAM, TIR_INDEX, 0, GRAPH_SYMBOL_MAX);
        lib_vec_push(r->arena, &r->sizes, ((size_name){dim.text, var}));
        lib_lexer_next(lexer);
        return dim;
    }
    if (lib_lexer_is(lexer, ".")) lib_lexer_raise(lexer, "`...` stands before all dimensions");
    check_size(r);
    if (!dim.is_name) dim.text = lib_arena_format(r->arena, "%.*s", (int)(token_at(lexer) - from), from);
    return dim;
}

static void read_pattern(shape_reader *r, notation_tensor *p, bool of_operand) {
    p->dtype = lib_lexer_name(&r->lexer);
    lib_lexer_expect(&r->lexer, "[");
    for (bool first = true; !lib_lexer_accept(&r->lexer, "]"); first = false) {
        if (!first) lib_lexer_expect(&r->lexer, ",");
        if (first && graph_notation_accept_leading(&r->lexer)) {
            p->leading = true;
            continue;
        }
        if (p->rank == DLC_MAX_RANK) lib_lexer_raise(&r->lexer, "more than %d dimensions", DLC_MAX_RANK);
        p->dim[p->rank++] = read_dim(r, of_operand);
    }
}

static int read_patterns(shape_reader *r, notation_tensor *out, bool of_operands) {
    int count = 0;
    do {
        if (count == DLC_MAX_RANK) lib_lexer_raise(&r->lexer, "more than %d tensors", DLC_MAX_RANK);
        read_pattern(r, &out[count++], of_operands);
    } while (lib_lexer_accept(&r->lexer, ","));
    return count;
}

static void check_result(const shape_reader *r, const graph_notation *n, const notation_tensor *result) {
    dlc_dtype dtype;
    int at = graph_op_attribute(r->op, result->dtype);
    bool known = lib_dtype_parse(result->dtype, &dtype) || (at >= 0 && r->op->attribute[at].kind == GRAPH_ATTR_DTYPE);
    bool leading = !result->leading;
    for (int i = 0; i < n->operands; i++) {
        known = known || strcmp(n->operand[i].dtype, result->dtype) == 0;
        leading = leading || n->operand[i].leading;
    }
    if (!known) lib_lexer_raise(&r->lexer, "%s is no element type, and no operand's", result->dtype);
    if (!leading) lib_lexer_raise(&r->lexer, "no operand has the `...` of the result");
}

void graph_notation_read_shape(lib_arena *arena, graph_notation *n, const graph_op *op, const char *text) {
    shape_reader r = {.arena = arena, .op = op, .pool = LIB_NEW(arena, tir_pool)};
    tir_pool_init(r.pool, arena);
    lib_lexer_init(&r.lexer, arena, "shape", text, strlen(text));
    lib_lexer_next(&r.lexer);
    n->has_shape = true;
    n->operands = lib_lexer_is(&r.lexer, "->") ? 0 : read_patterns(&r, n->operand, true);
    lib_lexer_expect(&r.lexer, "->");
    n->results = read_patterns(&r, n->result, false);
    for (int i = 0; i < n->results; i++) check_result(&r, n, &n->result[i]);
    if (r.lexer.kind != LIB_END) lib_lexer_raise(&r.lexer, "expected the end of the shape rule");
}

/* ---- expressions */

typedef struct reader {
    lib_arena *arena;
    lib_lexer lexer;
} reader;

/* Adds an index of this many tokens, if any. name: the first one, if it is a name. */
static void add_index(const lib_lexer *lexer, notation_access *a, int tokens, const char *name) {
    if (tokens && a->count == DLC_MAX_RANK) lib_lexer_raise(lexer, "more than %d indices", DLC_MAX_RANK);
    if (tokens) a->index[a->count++] = tokens == 1 ? name : NULL;
}

/* Records a possible tensor access NAME [ indices ], without consuming it. */
static void note_access(reader *r, notation_statement *s) {
    lib_lexer ahead = r->lexer;
    notation_access a = {.tensor = lib_lexer_name(&ahead)};
    if (!lib_lexer_accept(&ahead, "[")) return;
    int depth = 0, tokens = 0;
    const char *name = NULL;
    a.leading = graph_notation_accept_leading(&ahead);
    if (a.leading) lib_lexer_accept(&ahead, ",");
    for (; ahead.kind != LIB_END; lib_lexer_next(&ahead)) {
        bool closes = depth == 0 && (lib_lexer_is(&ahead, "]") || lib_lexer_is(&ahead, "where"));
        if (closes || (depth == 0 && lib_lexer_is(&ahead, ","))) {
            add_index(&ahead, &a, tokens, name);
            if (closes) break;
            tokens = 0;
            name = NULL;
            continue;
        }
        depth += lib_lexer_is(&ahead, "(") || lib_lexer_is(&ahead, "[");
        depth -= lib_lexer_is(&ahead, ")") || lib_lexer_is(&ahead, "]");
        if (tokens++ == 0 && ahead.kind == LIB_NAME) name = lib_arena_string(r->arena, ahead.text);
    }
    lib_vec_push(r->arena, &s->accesses, a);
}

static void read_statement(reader *r, notation_statement *s) {
    lib_lexer *lexer = &r->lexer;
    s->name = lib_lexer_name(lexer);
    lib_lexer_expect(lexer, "[");
    for (bool first = true; !lib_lexer_accept(lexer, "]"); first = false) {
        if (!first) lib_lexer_expect(lexer, ",");
        if (first && graph_notation_accept_leading(lexer)) {
            s->leading = true;
            continue;
        }
        if (s->axes == DLC_MAX_RANK) lib_lexer_raise(lexer, "more than %d indices", DLC_MAX_RANK);
        s->axis[s->axes] = lib_lexer_name(lexer);
        for (int i = 0; i < s->axes; i++)
            if (strcmp(s->axis[i], s->axis[s->axes]) == 0) lib_lexer_raise(lexer, "index %s stands twice", s->axis[i]);
        s->axes++;
    }
    lib_lexer_expect(lexer, "=");
    s->text = token_at(lexer);
    s->line_start = lexer->line_start;
    s->line = lexer->line;
    for (; lexer->kind != LIB_END && !lib_lexer_is(lexer, ";"); lib_lexer_next(lexer))
        if (lexer->kind == LIB_NAME) note_access(r, s);
    s->length = (size_t)(token_at(lexer) - s->text);
}

void graph_notation_read_expression(lib_arena *arena, graph_notation *n, const char *text) {
    reader r = {.arena = arena};
    const char *copy = lib_arena_string(arena, text);
    lib_lexer_init(&r.lexer, arena, "expression", copy, strlen(copy));
    lib_lexer_next(&r.lexer);
    n->statement = LIB_NEW_ARRAY(arena, notation_statement, STATEMENTS);
    while (r.lexer.kind != LIB_END) {
        if (n->statements == STATEMENTS) lib_lexer_raise(&r.lexer, "more than %d statements", STATEMENTS);
        read_statement(&r, &n->statement[n->statements]);
        for (int i = 0; i < n->statements; i++)
            if (strcmp(n->statement[i].name, n->statement[n->statements].name) == 0)
                lib_lexer_raise(&r.lexer, "%s is defined twice", n->statement[i].name);
        n->statements++;
        if (r.lexer.kind != LIB_END) lib_lexer_expect(&r.lexer, ";");
    }
    if (!n->statements) lib_lexer_raise(&r.lexer, "expected a statement: out[i, j] = ...");
}
