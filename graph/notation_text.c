/* Texts of shape rules and tensor expressions; see notation_text.h. */
#include "graph/notation_text.h"

enum { STATEMENTS = 32 };

typedef struct reader {
    lib_arena *arena;
    lib_lexer lexer;
} reader;

static void start(reader *r, lib_arena *arena, const char *source, const char *text, size_t size) {
    r->arena = arena;
    lib_lexer_init(&r->lexer, arena, source, text, size);
    lib_lexer_next(&r->lexer);
}

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

/* The text up to a `,` or `]` outside of all parentheses. */
static notation_dim read_dim(reader *r) {
    const char *from = token_at(&r->lexer);
    notation_dim dim = {.is_name = r->lexer.kind == LIB_NAME};
    int tokens = 0, depth = 0;
    for (; r->lexer.kind != LIB_END; tokens++) {
        if (depth == 0 && (lib_lexer_is(&r->lexer, ",") || lib_lexer_is(&r->lexer, "]"))) break;
        depth += lib_lexer_is(&r->lexer, "(");
        depth -= lib_lexer_is(&r->lexer, ")");
        lib_lexer_next(&r->lexer);
    }
    if (tokens == 0) lib_lexer_raise(&r->lexer, "expected a dimension");
    dim.is_name = dim.is_name && tokens == 1;
    dim.text = lib_arena_format(r->arena, "%.*s", (int)(token_at(&r->lexer) - from), from);
    if (dim.is_name) dim.text = lib_arena_format(r->arena, "%.*s", (int)strcspn(dim.text, " \t\n\r"), dim.text);
    return dim;
}

static void read_pattern(reader *r, notation_tensor *p) {
    p->dtype = lib_lexer_name(&r->lexer);
    lib_lexer_expect(&r->lexer, "[");
    for (bool first = true; !lib_lexer_accept(&r->lexer, "]"); first = false) {
        if (!first) lib_lexer_expect(&r->lexer, ",");
        if (first && graph_notation_accept_leading(&r->lexer)) {
            p->leading = true;
            continue;
        }
        if (p->rank == DLC_MAX_RANK) lib_lexer_raise(&r->lexer, "more than %d dimensions", DLC_MAX_RANK);
        p->dim[p->rank++] = read_dim(r);
    }
}

static int read_patterns(reader *r, notation_tensor *out) {
    int count = 0;
    do {
        if (count == DLC_MAX_RANK) lib_lexer_raise(&r->lexer, "more than %d tensors", DLC_MAX_RANK);
        read_pattern(r, &out[count++]);
    } while (lib_lexer_accept(&r->lexer, ","));
    return count;
}

void graph_notation_read_shape(lib_arena *arena, graph_notation *n, const char *text) {
    reader r;
    start(&r, arena, "shape", text, strlen(text));
    n->has_shape = true;
    n->operands = lib_lexer_is(&r.lexer, "->") ? 0 : read_patterns(&r, n->operand);
    lib_lexer_expect(&r.lexer, "->");
    n->results = read_patterns(&r, n->result);
    if (r.lexer.kind != LIB_END) lib_lexer_raise(&r.lexer, "expected the end of the shape rule");
}

/* Notes an access to what may be a tensor, without moving on: NAME [ indices ]. */
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
            if (tokens && a.count == DLC_MAX_RANK) lib_lexer_raise(&ahead, "more than %d indices", DLC_MAX_RANK);
            if (tokens) a.index[a.count++] = tokens == 1 ? name : NULL;
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
    reader r;
    const char *copy = lib_arena_string(arena, text);
    start(&r, arena, "expression", copy, strlen(copy));
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
