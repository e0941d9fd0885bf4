/* Text form of graphs: printed and parsed back, structurally equal. One statement per line (line ends mean nothing):
 *
 *   graph {
 *     symbol n in 1..4096 multiple 8 varies       # only for symbols with a hint
 *     require n = m "message"                     # constraints
 *     input x: f32[n, 64]                         # input "any name" x: ... when the name is no identifier
 *     w = constant f32[64, 10] {"0000803f..."}    # hexadecimal bytes; up to 16 elements as numbers {1, 2.5}
 *     y = dot(x, w)                               # attributes: axes=[0, 1], keep=true, dtype=f32, shape=[n, 2], then=graph { }
 *     values, indices = some_operator(y, _, axis=1)   # several results; _: an operand left out
 *     name y "own" from "a", "b"                  # the value's own name and its origins (origin.h); name y: y is both
 *     forward:                                    # what follows is of this sweep (sweep.h), until the next label: backward:, update:
 *     output y                                    # output "any name" = y
 *   }
 * Values without a usable name are printed as v<id>. A sub-graph may use values that enclosing graphs define before it: each becomes
 * an input of the sub-graph after its own, and an operand of the operator after the written ones. Printing shows these inputs and
 * operands. */
#include "graph/build.h"
#include "graph/capture.h"
#include "graph/internal.h"
#include "graph/origin.h"
#include "graph/sweep.h"

#include <math.h>
#include <stdio.h>

enum { NUMBERS_MAX = 16 }; /* constants of at most this many elements are printed as numbers */

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Is the identifier a statement's keyword or of the form v<id>? */
static bool is_reserved(const char *name) {
    static const char *const words[] = {"graph", "symbol", "require", "input", "output", "constant"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0) return true;
    return name[0] == 'v' && name[1] && strspn(name + 1, "0123456789") == strlen(name + 1);
}

typedef struct printer {
    lib_text *text;
    const graph *g;
    /* hash of a name -> the value that is printed with it */
    lib_map used;
    int indent;
    /* [nodes] their sweeps; NULL: none are printed */
    const uint8_t *sweeps;
    /* set where a constant was shortened; NULL: all bytes are printed */
    bool *elided;
} printer;

/* The name that the value is printed with; NULL: none, or an earlier value has it. */
static const char *printed_name(const printer *p, graph_id value) {
    const char *name = graph_shown_name(p->g, value);
    if (!graph_is_identifier(name) || is_reserved(name)) return NULL;
    uint32_t at = lib_map_first(&p->used, lib_hash_string(name));
    return at != LIB_MAP_END && p->used.slots[at].value == value ? name : NULL;
}

static void collect_names(printer *p) {
    for (graph_id value = 1; value < p->g->values.count; value++) {
        const char *name = graph_shown_name(p->g, value);
        if (name && lib_map_first(&p->used, lib_hash_string(name)) == LIB_MAP_END)
            lib_map_insert(p->text->arena, &p->used, lib_hash_string(name), value);
    }
}

static void print_value(printer *p, graph_id value) {
    const char *name = value ? printed_name(p, value) : "_";
    if (name)
        lib_text_add(p->text, name);
    else
        lib_text_format(p->text, "v%u", value);
}

/* ---- printing -------------------------------------------------------------------------------------------------- */

static void print_shape(lib_text *text, const graph *g, const graph_shape *shape, bool whole) {
    lib_text_format(text, "%s[", lib_dtypes[shape->dtype].name);
    for (int i = 0; i < shape->rank; i++) {
        if (i) lib_text_add(text, ", ");
        if (whole)
            tir_print_expr(text, g->pool, shape->dim[i], NULL);
        else
            tir_describe_expr(text, g->pool, shape->dim[i]);
    }
    lib_text_add(text, "]");
}

void graph_print_shape(lib_text *text, const graph *g, const graph_shape *shape) {
    print_shape(text, g, shape, true);
}

graph_multiple graph_multiple_text(int64_t multiple) {
    graph_multiple m = {""};
    if (multiple > 1) snprintf(m.text, sizeof m.text, ", a multiple of %lld", (long long)multiple);
    return m;
}

void graph_describe_shape(lib_text *text, const graph *g, const graph_shape *shape) {
    print_shape(text, g, shape, false);
}

static void line(printer *p) {
    lib_text_add(p->text, "\n");
    for (int i = 0; i < p->indent; i++) lib_text_add(p->text, "  ");
}

static void print_graph(printer *p);

/* A sub-graph in one sweep is not labelled. */
static void print_subgraph(printer *p, const graph_node *node, const graph *inner) {
    printer nested = {.text = p->text, .g = inner, .indent = p->indent, .elided = p->elided};
    const unsigned within = p->sweeps ? p->sweeps[node - p->g->nodes.data] : 0;
    if (!within || graph_sweeps_are_many(within)) nested.sweeps = graph_sweeps(p->text->arena, inner, 0);
    print_graph(&nested);
}

static void print_attribute(printer *p, const graph_node *node, int i) {
    const graph_attribute_spec *spec = &node->op->attribute[i];
    lib_text_format(p->text, "%s=", spec->name);
    if (spec->kind == GRAPH_ATTR_SUBGRAPH)
        print_subgraph(p, node, p->g->subgraphs.data[node->attribute[i].integer]);
    else
        graph_attribute_print(p->text, p->g, spec, &node->attribute[i]);
}

/* Prints the constant as numbers, if these parse back to the same bits; else prints nothing and returns false. */
static bool print_numbers(printer *p, dlc_dtype dtype, const graph_constant *constant) {
    size_t size = lib_dtype_size(dtype), count = constant->size / size;
    if (count > NUMBERS_MAX || lib_dtype_is_stored_otherwise(dtype)) return false;
    const char *bytes = graph_constant_bytes(p->text->arena->scope, constant);
    for (size_t i = 0; i < count; i++) {
        uint64_t element = 0, again = 0;
        memcpy(&element, bytes + i * size, size);
        double number = lib_element_get_f64(dtype, &element);
        if (lib_dtype_is_float(dtype))
            lib_element_set_f64(dtype, &again, number != number ? (double)NAN : number);
        else
            lib_element_set_i64(dtype, &again, lib_element_get_i64(dtype, &element));
        if (memcmp(&element, &again, size) != 0) return false;
    }
    lib_text_add(p->text, "{");
    for (size_t i = 0; i < count; i++) {
        const void *element = bytes + i * size;
        if (i) lib_text_add(p->text, ", ");
        if (lib_dtype_is_float(dtype))
            lib_text_float(p->text, lib_element_get_f64(dtype, element), dtype);
        else
            lib_text_format(p->text, "%lld", (long long)lib_element_get_i64(dtype, element));
    }
    lib_text_add(p->text, "}");
    return true;
}

static void print_input(printer *p, const graph_node *node) {
    const graph_value *value = &p->g->values.data[node->first];
    lib_text_add(p->text, "input ");
    if (value->name && !printed_name(p, node->first)) {
        lib_text_quoted(p->text, value->name);
        lib_text_add(p->text, " ");
    }
    print_value(p, node->first);
    lib_text_add(p->text, ": ");
    graph_print_shape(p->text, p->g, &value->shape);
}

/* If constants are to be shortened and this one is large: prints its first bytes only, and returns true. */
static bool print_start(printer *p, const graph_constant *constant) {
    enum { SHOWN = 16 };
    if (!p->elided || constant->size <= 2 * SHOWN) return false;
    const uint8_t *head = constant->described ? constant->head : graph_constant_bytes(p->text->arena->scope, constant);
    lib_text_add(p->text, "{\"");
    for (int i = 0; i < SHOWN; i++) lib_text_format(p->text, "%02x", (unsigned)head[i]);
    lib_text_add(p->text, "...\"}");
    return *p->elided = true;
}

static void print_constant(printer *p, const graph_node *node) {
    const graph_shape *shape = graph_shape_of(p->g, node->first);
    const graph_constant *constant = &p->g->constants.data[node->attribute[0].integer];
    print_value(p, node->first);
    lib_text_add(p->text, " = constant ");
    graph_print_shape(p->text, p->g, shape);
    lib_text_add(p->text, " ");
    if (!print_numbers(p, shape->dtype, constant) && !print_start(p, constant))
        graph_attribute_print(p->text, p->g, &node->op->attribute[0], &node->attribute[0]);
}

static void print_operator(printer *p, const graph_node *node) {
    for (int i = 0; i < node->results; i++) {
        if (i) lib_text_add(p->text, ", ");
        print_value(p, node->first + (graph_id)i);
    }
    lib_text_format(p->text, "%s%s(", node->results ? " = " : "", node->op->name);
    int inputs = node->inputs;
    while (inputs > node->op->min_inputs && !node->input[inputs - 1]) inputs--;
    const char *separator = "";
    for (int i = 0; i < inputs; i++, separator = ", ") {
        lib_text_add(p->text, separator);
        print_value(p, node->input[i]);
    }
    for (int i = 0; node->op->attribute[i].name; i++) {
        if (!node->attribute[i].given) continue;
        lib_text_add(p->text, separator);
        print_attribute(p, node, i);
        separator = ", ";
    }
    lib_text_add(p->text, ")");
    for (int i = 0; i < node->results; i++) {
        lib_text_add(p->text, i ? ", " : "  # ");
        graph_describe_shape(p->text, p->g, graph_shape_of(p->g, node->first + (graph_id)i)); /* a comment */
    }
}

static void print_node(printer *p, const graph_node *node) {
    if (graph_is_input(node))
        print_input(p, node);
    else if (graph_is_constant(node))
        print_constant(p, node);
    else
        print_operator(p, node);
}

/* Prints a `name` statement for each result that has an own name or origins. `name y` alone: y is its own name and its only
 * origin. */
static void print_names(printer *p, const graph_node *node) {
    const graph *outer = graph_outermost(p->g);
    for (int r = 0; r < node->results; r++) {
        graph_id id = node->first + (graph_id)r;
        const graph_value *value = &p->g->values.data[id];
        const graph_origins none = {0}, *list = value->origins ? &outer->origins.data[value->origins] : &none;
        if (!list->count && !list->more && !value->called) continue;
        const char *printed = printed_name(p, id);
        bool only = list->count == 1 && value->called && outer->origin_names.data[list->name[0]] == value->called;
        line(p);
        lib_text_add(p->text, "name ");
        print_value(p, id);
        if (only && printed && !value->name) continue;
        if (value->called) {
            lib_text_add(p->text, " ");
            lib_text_quoted(p->text, value->called);
        }
        for (uint32_t i = 0; i < list->count; i++) {
            lib_text_add(p->text, i ? ", " : " from ");
            lib_text_quoted(p->text, outer->origin_names.data[list->name[i]]);
        }
        if (list->more) lib_text_add(p->text, ", more");
    }
}

static void print_symbol(printer *p, const graph_symbol *symbol) {
    const tir_variable *variable = tir_variable_of(p->g->pool, symbol->var);
    if (!symbol->varies && variable->low == 0 && variable->high == GRAPH_SYMBOL_MAX && variable->multiple == 1) return;
    line(p);
    lib_text_format(p->text, "symbol %s in %lld..%lld", symbol->name, (long long)variable->low,
                    (long long)variable->high);
    if (variable->multiple != 1) lib_text_format(p->text, " multiple %lld", (long long)variable->multiple);
    if (symbol->varies) lib_text_add(p->text, " varies");
}

static void print_output(printer *p, uint32_t i) {
    graph_id value = p->g->outputs.data[i];
    const char *name = p->g->output_names.data[i], *printed = printed_name(p, value);
    line(p);
    lib_text_add(p->text, "output ");
    if (name && (!printed || strcmp(name, printed) != 0)) {
        lib_text_quoted(p->text, name);
        lib_text_add(p->text, " = ");
    }
    print_value(p, value);
}

static void print_graph(printer *p) {
    const graph *g = p->g;
    collect_names(p);
    lib_text_add(p->text, "graph {");
    p->indent++;
    for (uint32_t i = 0; i < g->symbols.count; i++) print_symbol(p, &g->symbols.data[i]);
    for (uint32_t i = 0; i < g->constraints.count; i++) {
        line(p);
        lib_text_add(p->text, "require ");
        tir_print_expr(p->text, g->pool, g->constraints.data[i].left, NULL);
        lib_text_add(p->text, " = ");
        tir_print_expr(p->text, g->pool, g->constraints.data[i].right, NULL);
        lib_text_add(p->text, " ");
        lib_text_quoted(p->text, g->constraints.data[i].message);
    }
    unsigned sweep = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        line(p);
        if (p->sweeps && p->sweeps[i] && p->sweeps[i] != sweep) {
            sweep = p->sweeps[i];
            lib_text_format(p->text, "%s:", graph_sweeps_text(sweep));
            line(p);
        }
        print_node(p, &g->nodes.data[i]);
        print_names(p, &g->nodes.data[i]);
    }
    for (uint32_t i = 0; i < g->outputs.count; i++) print_output(p, i);
    p->indent--;
    line(p);
    lib_text_add(p->text, "}");
}

void graph_print(lib_text *text, const graph *g) {
    printer p = {.text = text, .g = g, .sweeps = graph_sweeps(text->arena, g, 0)};
    print_graph(&p);
    lib_text_add(text, "\n");
}

bool graph_print_elided(lib_text *text, const graph *g) {
    bool elided = false;
    printer p = {.text = text, .g = g, .sweeps = graph_sweeps(text->arena, g, 0), .elided = &elided};
    print_graph(&p);
    lib_text_add(text, "\n");
    return elided;
}

void graph_print_node(lib_text *text, const graph *g, uint32_t node) {
    printer p = {.text = text, .g = g};
    collect_names(&p);
    print_node(&p, &g->nodes.data[node]);
    lib_text_add(text, graph_origins_of_nodes(text->arena, g, &node, 1));
}

/* ---- parsing --------------------------------------------------------------------------------------------------- */

typedef struct parser {
    graph *g;
    lib_lexer *lexer;
    /* parser of the enclosing graph, whose values a sub-graph may use; NULL: none */
    struct parser *enclosing;
    /* the values of enclosing graphs that this graph uses */
    graph_captures captures;
    /* inputs other than captures */
    lib_vec(graph_id) parameters;
    /* hash of a name -> index into bound */
    lib_map names;
    struct {
        const char *name;
        graph_id value;
    } * bound;
    uint32_t bound_count, bound_capacity;
    /* line of the statement */
    int line;
    /* of the label before it; 0: there is none */
    unsigned sweep;
} parser;

static graph_id find_value(const parser *p, const char *name) {
    uint64_t hash = lib_hash_string(name);
    for (uint32_t at = lib_map_first(&p->names, hash); at != LIB_MAP_END; at = lib_map_next(&p->names, hash, at))
        if (strcmp(p->bound[p->names.slots[at].value].name, name) == 0) return p->bound[p->names.slots[at].value].value;
    return 0;
}

static void bind_name(parser *p, const char *name, graph_id value) {
    if (strcmp(name, "_") == 0) return;
    if (find_value(p, name)) lib_lexer_raise(p->lexer, "value %s is defined twice", name);
    if (p->bound_count == p->bound_capacity)
        p->bound = lib_vec_grow(p->g->arena, p->bound, p->bound_count, &p->bound_capacity, 1, sizeof *p->bound);
    p->bound[p->bound_count].name = name;
    p->bound[p->bound_count].value = value;
    lib_map_insert(p->g->arena, &p->names, lib_hash_string(name), p->bound_count++);
    if (!p->g->values.data[value].name && !is_reserved(name)) p->g->values.data[value].name = name;
}

/* The graph's value of that name, or that of the nearest enclosing graph, which then becomes an input of the graph; 0: none. */
static graph_id find_or_capture(parser *p, const char *name) {
    graph_id value = find_value(p, name), outer = value || !p->enclosing ? 0 : find_or_capture(p->enclosing, name);
    if (!outer) return value;
    value = graph_capture_value(p->g, p->enclosing->g, &p->captures, outer);
    bind_name(p, name, value);
    return value;
}

static graph_id parse_value(parser *p) {
    const char *name = lib_lexer_name(p->lexer);
    if (strcmp(name, "_") == 0) return 0;
    graph_id value = find_or_capture(p, name);
    if (!value) {
        lib_nearest nearest = lib_nearest_to(name);
        for (const parser *around = p; around; around = around->enclosing)
            for (uint32_t i = 0; i < around->bound_count; i++)
                lib_nearest_try(&nearest, around->bound[i].name, strlen(around->bound[i].name));
        lib_lexer_raise(p->lexer, "value %s is not defined before this line%s", name, lib_nearest_hint(&nearest));
    }
    return value;
}

static graph_shape parse_shape(parser *p) {
    graph_shape shape = {0};
    char *word = lib_lexer_name(p->lexer);
    if (!lib_dtype_parse(word, &shape.dtype)) {
        lib_nearest nearest = lib_dtype_nearest(word);
        lib_lexer_raise(p->lexer, "%s is not an element type%s", word, lib_nearest_hint(&nearest));
    }
    lib_lexer_expect(p->lexer, "[");
    while (!lib_lexer_accept(p->lexer, "]")) {
        if (shape.rank) lib_lexer_expect(p->lexer, ",");
        if (shape.rank == DLC_MAX_RANK) lib_lexer_raise(p->lexer, "more than %d dimensions", DLC_MAX_RANK);
        shape.dim[shape.rank++] = graph_parse_dim(p->g, p->lexer);
    }
    return shape;
}

static char *parse_string(parser *p) {
    if (p->lexer->kind != LIB_STRING) lib_lexer_raise(p->lexer, "expected a string in quotes");
    char *string = lib_arena_string(p->g->arena, p->lexer->text);
    lib_lexer_next(p->lexer);
    return string;
}

static void parse_symbol(parser *p) {
    char *name = lib_lexer_name(p->lexer);
    tir_expr var = graph_symbol_named(p->g, name);
    tir_variable *variable = &p->g->pool->variables.data[tir_var_id(p->g->pool, var)];
    lib_lexer_expect(p->lexer, "in");
    variable->low = lib_lexer_integer(p->lexer);
    lib_lexer_expect(p->lexer, ".");
    lib_lexer_expect(p->lexer, ".");
    variable->high = lib_lexer_integer(p->lexer);
    if (lib_lexer_accept(p->lexer, "multiple")) variable->multiple = lib_lexer_integer(p->lexer);
    if (variable->low < 0 || variable->high < variable->low || variable->multiple < 1)
        lib_lexer_raise(p->lexer, "symbol %s: expected 0 <= low <= high and a multiple of at least 1", name);
    graph *outer = graph_outermost(p->g);
    for (uint32_t i = 0; i < outer->symbols.count; i++)
        if (outer->symbols.data[i].var == var) outer->symbols.data[i].varies = lib_lexer_accept(p->lexer, "varies");
}

static void parse_require(parser *p) {
    tir_expr left = graph_parse_dim(p->g, p->lexer);
    lib_lexer_expect(p->lexer, "=");
    tir_expr right = graph_parse_dim(p->g, p->lexer);
    graph_require_equal(p->g, left, right, "%s", parse_string(p));
}

static void parse_input(parser *p) {
    char *given = p->lexer->kind == LIB_STRING ? parse_string(p) : NULL;
    char *name = lib_lexer_name(p->lexer);
    lib_lexer_expect(p->lexer, ":");
    graph_shape shape = parse_shape(p);
    const char *kept = given ? given : is_reserved(name) ? NULL : name;
    graph_id input = graph_new_input(p->g, kept, &shape);
    lib_vec_push(p->g->arena, &p->parameters, input);
    bind_name(p, name, input);
}

/* name VALUE ["its own"] [from "origin", "origin" ..., more]. False: not such a statement, but a definition of a value `name`. */
static bool parse_names(parser *p) {
    lib_lexer ahead = *p->lexer;
    lib_lexer_next(&ahead);
    if (!lib_lexer_is(p->lexer, "name") || ahead.kind != LIB_NAME) return false;
    *p->lexer = ahead;
    graph_id value = parse_value(p);
    if (!value) lib_lexer_raise(p->lexer, "only a value has a name");
    graph *g = p->g;
    const char *written = g->values.data[value].name;
    bool has_own = p->lexer->kind == LIB_STRING;
    const char *own = has_own ? parse_string(p) : written;
    bool listed = lib_lexer_accept(p->lexer, "from");
    if (has_own || !listed) {
        if (!own) lib_lexer_raise(p->lexer, "expected a name in quotes, or `from`");
        graph_call_value(g, value, own);
        /* the written name was the value's own name */
        if (written && strcmp(written, own) == 0 && !graph_is_input(graph_node_of(g, value)))
            g->values.data[value].name = NULL;
        if (!has_own) graph_origins_add(g, value, graph_origin_named(g, own));
    }
    for (bool more = listed; more; more = lib_lexer_accept(p->lexer, ",")) {
        if (lib_lexer_accept(p->lexer, "more")) {
            graph_origins_cut(g, value);
            break;
        }
        graph_origins_add(g, value, graph_origin_named(g, parse_string(p)));
    }
    return true;
}

static void parse_output(parser *p) {
    char *name = p->lexer->kind == LIB_STRING ? parse_string(p) : NULL;
    if (name) lib_lexer_expect(p->lexer, "=");
    graph_id value = parse_value(p);
    if (!value) lib_lexer_raise(p->lexer, "an output must be a value");
    graph_new_output(p->g, name ? name : p->g->values.data[value].name, value);
}

/* {1, 2.5, -inf} or {"hex"} */
static graph_id parse_constant(parser *p) {
    static const graph_attribute_spec bytes = {.name = "value", .kind = GRAPH_ATTR_CONSTANT};
    graph *g = p->g;
    graph_shape shape = parse_shape(p);
    lib_lexer ahead = *p->lexer;
    lib_lexer_expect(&ahead, "{");
    graph_attribute value;
    if (ahead.kind == LIB_STRING) {
        value = graph_attribute_parse(g, p->lexer, &bytes);
    } else if (lib_dtype_is_stored_otherwise(shape.dtype)) {
        lib_lexer_raise(&ahead, "constants of %s are given as bytes in hexadecimal: {\"...\"}",
                        lib_dtypes[shape.dtype].name);
    } else {
        *p->lexer = ahead;
        uint64_t element[NUMBERS_MAX];
        size_t size = lib_dtype_size(shape.dtype), count = 0;
        for (; !lib_lexer_accept(p->lexer, "}"); count++) {
            if (count) lib_lexer_expect(p->lexer, ",");
            if (count == NUMBERS_MAX)
                lib_lexer_raise(p->lexer, "more than %d numbers: give bytes in hexadecimal", NUMBERS_MAX);
            void *at = (char *)element + count * size;
            if (lib_dtype_is_float(shape.dtype))
                lib_element_set_f64(shape.dtype, at, lib_lexer_number(p->lexer));
            else
                lib_element_set_i64(shape.dtype, at, lib_lexer_integer(p->lexer));
        }
        value = (graph_attribute){.integer = graph_add_constant(g, element, count * size, false)};
    }
    return graph_emit_with(g, "constant", 0, NULL, 3,
                           (graph_setting[]){graph_set_integer("value", value.integer),
                                             graph_set_integer("dtype", shape.dtype),
                                             graph_set_dims("shape", shape.rank, shape.dim)});
}

static parser *parse_nested(graph *g, lib_lexer *lexer, parser *enclosing);

/* Adds the sub-graphs of an operator to the graph and sets attribute[i]->integer to their numbers. If one captures a value, all get
 * inputs for all captured values, which *captured lists. */
static void finish_subgraphs(parser *p, int count, parser *const *sub, graph_attribute *const *attribute,
                             graph_captured *captured) {
    for (int i = 0; i < count; i++) graph_collect_captures(p->g->arena, &sub[i]->captures, captured);
    for (int i = 0; i < count; i++) {
        const graph_unfinished unfinished = {sub[i]->g, sub[i]->parameters.count, sub[i]->parameters.data,
                                             &sub[i]->captures};
        attribute[i]->integer = captured->values.count ? graph_complete_subgraph(p->g, &unfinished, captured)
                                                       : graph_add_subgraph(p->g, sub[i]->g);
    }
}

static parser *parse_subgraph(parser *p) {
    lib_lexer_expect(p->lexer, "graph");
    graph_check_nesting(p->g, p->lexer);
    lib_stack_require(p->g->arena->scope, LIB_STACK_CALL); /* passes are inside of each other as the graphs are */
    return parse_nested(graph_new_inside(p->g), p->lexer, p);
}

/* name ( operands, key=value ... ) */
static graph_id parse_operator(parser *p, const char *name) {
    const graph_op *op = graph_find_op(p->g, name);
    if (!op) {
        lib_nearest nearest = graph_nearest_op(p->g, name);
        lib_lexer_raise(p->lexer, "there is no operator %s%s", name, lib_nearest_hint(&nearest));
    }
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute] = {0};
    lib_vec(graph_id) input = {0};
    enum { SUBGRAPHS = sizeof attribute / sizeof *attribute };
    parser *sub[SUBGRAPHS];
    graph_attribute *of_sub[SUBGRAPHS];
    graph_captured captured = {0};
    int subgraphs = 0;
    bool attributes_began = false;
    lib_lexer_expect(p->lexer, "(");
    for (bool first = true; !lib_lexer_accept(p->lexer, ")"); first = false) {
        if (!first) lib_lexer_expect(p->lexer, ",");
        lib_lexer ahead = *p->lexer;
        char *word = lib_lexer_name(&ahead);
        if (!lib_lexer_accept(&ahead, "=")) {
            if (attributes_began) lib_lexer_raise(p->lexer, "operands come before attributes");
            lib_vec_push(p->g->arena, &input, parse_value(p));
            continue;
        }
        attributes_began = true;
        int at = graph_op_attribute(op, word);
        if (at < 0) {
            const graph_hint hint = graph_attribute_hint(op, word);
            lib_lexer_raise(p->lexer, "operator %s has no attribute %s%s", name, word, hint.text);
        }
        if (attribute[at].given) lib_lexer_raise(p->lexer, "attribute %s is given twice", word);
        *p->lexer = ahead;
        if (op->attribute[at].kind == GRAPH_ATTR_SUBGRAPH) {
            attribute[at].given = true;
            of_sub[subgraphs] = &attribute[at];
            sub[subgraphs++] = parse_subgraph(p);
        } else {
            attribute[at] = graph_attribute_parse(p->g, p->lexer, &op->attribute[at]);
        }
    }
    finish_subgraphs(p, subgraphs, sub, of_sub, &captured);
    for (uint32_t i = 0; i < captured.values.count; i++) lib_vec_push(p->g->arena, &input, captured.values.data[i]);
    return graph_emit_broadcast(p->g, op, (int)input.count, input.data, attribute);
}

static void parse_definition(parser *p) {
    lib_vec(char *) names = {0};
    do lib_vec_push(p->g->arena, &names, lib_lexer_name(p->lexer));
    while (lib_lexer_accept(p->lexer, ","));
    if (names.count == 1 && lib_lexer_is(p->lexer, "(")) { /* no results */
        parse_operator(p, names.data[0]);
        return;
    }
    lib_lexer_expect(p->lexer, "=");
    char *op = lib_lexer_name(p->lexer);
    graph_id first = strcmp(op, "constant") == 0 ? parse_constant(p) : parse_operator(p, op);
    int results = graph_result_count(p->g, first);
    if ((int)names.count > results)
        lib_lexer_raise(p->lexer, "%s has %d results, %u names were given", op, results, names.count);
    for (uint32_t i = 0; i < names.count; i++) bind_name(p, names.data[i], first + i);
}

/* "backward:", "forward and backward:". False: not a label. */
static bool parse_label(parser *p) {
    lib_lexer ahead = *p->lexer;
    unsigned sweep = 0, next;
    do {
        next = lib_lexer_accept(&ahead, "forward")    ? GRAPH_SWEEP_FORWARD
               : lib_lexer_accept(&ahead, "backward") ? GRAPH_SWEEP_BACKWARD
               : lib_lexer_accept(&ahead, "update")   ? GRAPH_SWEEP_UPDATE
                                                      : 0;
        sweep |= next;
    } while (next && lib_lexer_accept(&ahead, "and"));
    if (!next || !lib_lexer_accept(&ahead, ":")) return false;
    *p->lexer = ahead;
    p->sweep = sweep;
    return true;
}

/* Marks the values from `first` on as the label says; what depends on derivatives, or has some inside, needs no mark. */
static void mark(parser *p, graph_id first) {
    if (p->sweep == GRAPH_SWEEP_FORWARD || p->sweep == GRAPH_SWEEP_BACKWARD)
        graph_mark_sweep(p->g, first, p->g->values.count - first, p->sweep);
}

static void parse_statements(parser *p) {
    lib_lexer_expect(p->lexer, "{");
    while (!lib_lexer_accept(p->lexer, "}")) {
        const graph_id first = p->g->values.count;
        p->line = p->lexer->line;
        if (lib_lexer_accept(p->lexer, "symbol"))
            parse_symbol(p);
        else if (lib_lexer_accept(p->lexer, "require"))
            parse_require(p);
        else if (lib_lexer_accept(p->lexer, "input"))
            parse_input(p);
        else if (lib_lexer_accept(p->lexer, "output"))
            parse_output(p);
        else if (!parse_label(p) && !parse_names(p))
            parse_definition(p);
        mark(p, first);
    }
}

/* Adds the line of the text to errors raised by emit. */
static parser *parse_nested(graph *g, lib_lexer *lexer, parser *enclosing) {
    lib_arena *arena = g->arena;
    parser *p = LIB_NEW(arena, parser);
    p->g = g;
    p->lexer = lexer;
    p->enclosing = enclosing;
    lib_scope *const outer = arena->scope;
    lib_scope inner;
    arena->scope = &inner;
    if (LIB_ENTER(&inner)) {
        parse_statements(p);
        arena->scope = outer;
        return p;
    }
    arena->scope = outer;
    if (inner.error.status != DLC_INVALID_ARGUMENT) lib_raise_error(outer, &inner.error);
    lib_raise(outer, DLC_INVALID_ARGUMENT, "%s:%d: %s", lexer->source, p->line, inner.error.message);
}

graph *graph_parse_into(graph *g, lib_lexer *lexer) {
    return parse_nested(g, lexer, NULL)->g;
}

void graph_parse_in(graph *g, lib_lexer *lexer) {
    lexer->dotted_names = true;
    if (lexer->at == lexer->start) lib_lexer_next(lexer);
    lib_lexer_expect(lexer, "graph");
    graph_parse_into(g, lexer);
}

graph *graph_parse(lib_arena *arena, lib_lexer *lexer) {
    graph *g = graph_new(arena, NULL);
    graph_parse_in(g, lexer);
    return g;
}
