/* Attribute values by kind: defaults, text, equality, hash, copy. Only this file and the checks of emit (graph.c) switch over
 * graph_attribute_kind. */
#include "graph/internal.h"

/* ---- words of an enumeration ----------------------------------------------------------------------------------- */

const char *graph_choice_word(const char *choices, int64_t index, size_t *length) {
    const char *word = choices;
    for (;; index--) {
        *length = strcspn(word, " ");
        if (index == 0 || !*length) return word;
        word += *length;
        word += strspn(word, " ");
    }
}

int graph_choice_count(const char *choices) {
    int count = 0;
    for (size_t length; graph_choice_word(choices, count, &length), length; count++) {
    }
    return count;
}

int64_t graph_choice_find(const char *choices, const char *wanted) {
    size_t length;
    int64_t i = 0;
    for (const char *word; word = graph_choice_word(choices, i, &length), length; i++)
        if (strlen(wanted) == length && memcmp(word, wanted, length) == 0) return i;
    return -1;
}

/* ---- parsing --------------------------------------------------------------------------------------------------- */

static tir_expr symbol_by_name(void *user, const char *name) {
    tir_expr symbol = graph_symbol_named(user, name);
    graph_outermost(user)->symbols.data[graph_find_symbol(user, name)].mentions++;
    return symbol;
}

tir_expr graph_parse_dim(graph *g, lib_lexer *lexer) {
    tir_names names = {.variable = symbol_by_name, .user = g};
    return tir_parse_expr(g->pool, lexer, &names, TIR_INDEX);
}

static void parse_list(graph *g, lib_lexer *lexer, bool dims, graph_attribute *out) {
    lib_vec(int64_t) integers = {0};
    lib_vec(tir_expr) expressions = {0};
    lib_lexer_expect(lexer, "[");
    while (!lib_lexer_accept(lexer, "]")) {
        if (out->count++) lib_lexer_expect(lexer, ",");
        if (dims)
            lib_vec_push(g->arena, &expressions, graph_parse_dim(g, lexer));
        else
            lib_vec_push(g->arena, &integers, lib_lexer_integer(lexer));
    }
    out->list = integers.data;
    out->dims = expressions.data;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

static int64_t parse_constant(graph *g, lib_lexer *lexer) {
    lib_lexer_expect(lexer, "{");
    if (lexer->kind != LIB_STRING) lib_lexer_raise(lexer, "expected a string of hexadecimal bytes");
    size_t size = lexer->text_length / 2;
    uint8_t *bytes = lib_arena_take(g->arena, size);
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(lexer->text[2 * i]), low = hex_digit(lexer->text[2 * i + 1]);
        if (high < 0 || low < 0) lib_lexer_raise(lexer, "byte %zu of the constant is not two digits 0-9 a-f", i);
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    if (lexer->text_length % 2) lib_lexer_raise(lexer, "odd number of hexadecimal digits");
    lib_lexer_next(lexer);
    lib_lexer_expect(lexer, "}");
    return graph_add_constant(g, bytes, size, false);
}

static int64_t parse_word(lib_lexer *lexer, const graph_attribute_spec *spec) {
    const char *word = lib_lexer_name(lexer);
    if (spec->kind == GRAPH_ATTR_BOOL) {
        if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) return *word == 't';
        lib_lexer_raise(lexer, "%s=%s: expected true or false", spec->name, word);
    }
    if (spec->kind == GRAPH_ATTR_ENUM) {
        int64_t index = graph_choice_find(spec->choices, word);
        if (index < 0) {
            lib_nearest nearest = lib_nearest_to(word);
            lib_nearest_try_list(&nearest, spec->choices);
            lib_lexer_raise(lexer, "%s=%s: expected one of: %s%s", spec->name, word, spec->choices,
                            lib_nearest_hint(&nearest));
        }
        return index;
    }
    dlc_dtype dtype;
    if (!lib_dtype_parse(word, &dtype)) {
        lib_nearest nearest = lib_dtype_nearest(word);
        lib_lexer_raise(lexer, "%s=%s: expected an element type%s", spec->name, word, lib_nearest_hint(&nearest));
    }
    return dtype;
}

void graph_check_nesting(const graph *g, const lib_lexer *lexer) {
    const int most = graph_outermost(g)->nesting;
    if (most && g->depth >= most)
        lib_raise(g->arena->scope, DLC_BUDGET_EXCEEDED,
                  "%s:%d: sub-graphs are nested deeper than limits.nesting = %d allows", lexer->source, lexer->line,
                  most);
}

graph_attribute graph_attribute_parse(graph *g, lib_lexer *lexer, const graph_attribute_spec *spec) {
    graph_attribute out = {.given = true};
    switch (spec->kind) {
    case GRAPH_ATTR_INTEGER: out.integer = lib_lexer_integer(lexer); break;
    case GRAPH_ATTR_FLOAT: out.number = lib_lexer_number(lexer); break;
    case GRAPH_ATTR_BOOL:
    case GRAPH_ATTR_DTYPE:
    case GRAPH_ATTR_ENUM: out.integer = parse_word(lexer, spec); break;
    case GRAPH_ATTR_STRING:
        if (lexer->kind != LIB_STRING) lib_lexer_raise(lexer, "%s: expected a string in quotes", spec->name);
        out.string = lib_arena_string(g->arena, lexer->text);
        lib_lexer_next(lexer);
        break;
    case GRAPH_ATTR_INTEGERS: parse_list(g, lexer, false, &out); break;
    case GRAPH_ATTR_DIMS: parse_list(g, lexer, true, &out); break;
    case GRAPH_ATTR_SUBGRAPH:
        lib_lexer_expect(lexer, "graph");
        graph_check_nesting(g, lexer);
        graph_parse_into(graph_new_subgraph(g, &out.integer), lexer);
        break;
    case GRAPH_ATTR_CONSTANT: out.integer = parse_constant(g, lexer); break;
    }
    return out;
}

graph_attribute graph_attribute_default(graph *g, const graph_attribute_spec *spec) {
    graph_attribute out = {0};
    if (spec->kind == GRAPH_ATTR_STRING) {
        out.string = spec->initial;
        return out;
    }
    if (strcmp(spec->initial, "[]") == 0 || !*spec->initial) return out;
    /* the most frequent kinds: without copies by the lexer */
    if (spec->kind == GRAPH_ATTR_BOOL || spec->kind == GRAPH_ATTR_ENUM) {
        out.integer = spec->kind == GRAPH_ATTR_BOOL ? strcmp(spec->initial, "true") == 0
                                                    : graph_choice_find(spec->choices, spec->initial);
        return out;
    }
    lib_lexer lexer;
    lib_lexer_init(&lexer, g->arena, spec->name, spec->initial, strlen(spec->initial));
    lib_lexer_next(&lexer);
    out = graph_attribute_parse(g, &lexer, spec);
    out.given = false;
    return out;
}

/* ---- printing -------------------------------------------------------------------------------------------------- */

static void print_constant(lib_text *text, const graph_constant *constant) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = graph_constant_bytes(text->arena->scope, constant);
    lib_text_add(text, "{\"");
    for (size_t i = 0; i < constant->size;) {
        char buffer[512];
        size_t length = 0;
        for (; i < constant->size && length < sizeof buffer; i++) {
            buffer[length++] = digits[bytes[i] >> 4];
            buffer[length++] = digits[bytes[i] & 15];
        }
        lib_text_add_bytes(text, buffer, length);
    }
    lib_text_add(text, "\"}");
}

void graph_attribute_print(lib_text *text, const graph *g, const graph_attribute_spec *spec,
                           const graph_attribute *attribute) {
    size_t length;
    const char *word;
    switch (spec->kind) {
    case GRAPH_ATTR_SUBGRAPH:
    case GRAPH_ATTR_INTEGER: lib_text_format(text, "%lld", (long long)attribute->integer); break;
    case GRAPH_ATTR_FLOAT: lib_text_float(text, attribute->number, DLC_F64); break;
    case GRAPH_ATTR_BOOL: lib_text_add(text, attribute->integer ? "true" : "false"); break;
    case GRAPH_ATTR_DTYPE: lib_text_add(text, lib_dtypes[attribute->integer].name); break;
    case GRAPH_ATTR_ENUM:
        word = graph_choice_word(spec->choices, attribute->integer, &length);
        lib_text_add_bytes(text, word, length);
        break;
    case GRAPH_ATTR_STRING: lib_text_quoted(text, attribute->string); break;
    case GRAPH_ATTR_INTEGERS:
    case GRAPH_ATTR_DIMS:
        lib_text_add(text, "[");
        for (int i = 0; i < attribute->count; i++) {
            if (i) lib_text_add(text, ", ");
            if (spec->kind == GRAPH_ATTR_DIMS)
                tir_print_expr(text, g->pool, attribute->dims[i], NULL);
            else
                lib_text_format(text, "%lld", (long long)attribute->list[i]);
        }
        lib_text_add(text, "]");
        break;
    case GRAPH_ATTR_CONSTANT: print_constant(text, &g->constants.data[attribute->integer]); break;
    }
}

/* ---- equality, hash, copy -------------------------------------------------------------------------------------- */

/* The bytes that identify an attribute's value; *size: their number. Dimensions are hash-consed, so their ids identify them; floats are
 * compared by bits, so that -0 differs from 0, and NaN equals itself. */
static const void *content(const graph_attribute_spec *spec, const graph_attribute *attribute, size_t *size) {
    switch (spec->kind) {
    case GRAPH_ATTR_FLOAT: return *size = sizeof attribute->number, &attribute->number;
    case GRAPH_ATTR_STRING: return *size = strlen(attribute->string), attribute->string;
    case GRAPH_ATTR_INTEGERS: return *size = (size_t)attribute->count * sizeof *attribute->list, attribute->list;
    case GRAPH_ATTR_DIMS: return *size = (size_t)attribute->count * sizeof *attribute->dims, attribute->dims;
    default: return *size = sizeof attribute->integer, &attribute->integer;
    }
}

bool graph_attribute_equal(const graph_attribute_spec *spec, const graph_attribute *a, const graph_attribute *b) {
    size_t size, other;
    const void *x = content(spec, a, &size), *y = content(spec, b, &other);
    return size == other && (size == 0 || memcmp(x, y, size) == 0);
}

uint64_t graph_attribute_hash(const graph_attribute_spec *spec, const graph_attribute *attribute, uint64_t seed) {
    size_t size;
    const void *bytes = content(spec, attribute, &size);
    return lib_hash64(bytes, size, seed);
}

graph_attribute graph_attribute_copy(lib_arena *arena, const graph_attribute_spec *spec,
                                     const graph_attribute *attribute) {
    graph_attribute copy = *attribute;
    size_t size;
    const void *bytes = content(spec, attribute, &size);
    if (spec->kind == GRAPH_ATTR_STRING) copy.string = lib_arena_string(arena, attribute->string);
    if (spec->kind == GRAPH_ATTR_INTEGERS) copy.list = lib_arena_copy(arena, bytes, size);
    if (spec->kind == GRAPH_ATTR_DIMS) copy.dims = lib_arena_copy(arena, bytes, size);
    return copy;
}
