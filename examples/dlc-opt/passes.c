/* Graph passes by name, one after the other, and the graph after each of them. The graph is parsed a second time here: the tool has its
 * own copy of the passes, in addition to those of the library that runs programs. */
#include "dlc-opt.h"

#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/graph.h"
#include "graph/precision.h"
#include "tir/expr.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- dimensions ---------------------------------------------------------------------------------------------------- */

/* The value that --dims gives the symbol; -1: none. */
static int64_t symbol_value(const options *o, const char *name) {
    const char *value = part_value(o->dims, o->dim_count, name);
    return value ? strtoll(value, NULL, 0) : -1;
}

/* Each --dims must name a symbol of inputs: counted sizes are unknown before a run. */
static bool dims_exist(const graph *g, const options *o) {
    for (int i = 0; i < o->dim_count; i++) {
        size_t length = strcspn(o->dims[i], "=");
        const graph_symbol *found = NULL;
        for (uint32_t s = 0; s < g->symbols.count && !found; s++)
            if (part_value(&o->dims[i], 1, g->symbols.data[s].name)) found = &g->symbols.data[s];
        if (found && graph_is_input_size(g, found->var)) continue;
        fprintf(stderr,
                found ? "dlc-opt: --dims %s: no input has %.*s, a run counts it\n"
                      : "dlc-opt: --dims %s: the graph has no symbol %.*s\n",
                o->dims[i], (int)length, o->dims[i]);
        return false;
    }
    return true;
}

/* Sets values[g->symbols.count]; INT64_MIN: a counted size. False: a size is missing or wrong. */
static bool symbol_values(const graph *g, const options *o, int64_t *values) {
    if (!dims_exist(g, o)) return false;
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        const char *name = g->symbols.data[s].name;
        values[s] = graph_is_input_size(g, g->symbols.data[s].var) ? symbol_value(o, name) : INT64_MIN;
        if (values[s] != -1) continue;
        fprintf(stderr, "dlc-opt: what is %s? Say --dims %s=NUMBER\n", name, name);
        return false;
    }
    return true;
}

static const graph *read_graph(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", text, strlen(text));
    return graph_parse(arena, &lexer);
}

static bool shapes_of(const graph *g, const options *o, shapes *out) {
    int64_t *values = calloc(g->symbols.count + 1, sizeof *values);
    uint64_t *variables = calloc(g->pool->variables.count + 1, sizeof *variables);
    bool good = values && variables && symbol_values(g, o, values);
    if (g->inputs.count > OPTIONS_MAX) {
        fprintf(stderr, "dlc-opt: more than %d inputs\n", OPTIONS_MAX);
        good = false;
    }
    for (uint32_t s = 0; good && s < g->symbols.count; s++)
        variables[tir_var_id(g->pool, g->symbols.data[s].var)] = (uint64_t)values[s];
    out->count = good ? (int)g->inputs.count : 0;
    for (int i = 0; i < out->count; i++) {
        const graph_shape *shape = graph_shape_of(g, g->inputs.data[i]);
        const tir_evaluator evaluator = {.variables = variables};
        out->rank[i] = shape->rank;
        out->dtype[i] = shape->dtype;
        out->pointer[i] = out->dim[i];
        for (int d = 0; d < shape->rank; d++)
            out->dim[i][d] = (int64_t)tir_evaluate(g->pool, shape->dim[d], &evaluator);
    }
    free(values);
    free(variables);
    return good;
}

bool input_shapes(const char *text, const options *o, shapes *out) {
    volatile bool good = false; /* set after LIB_ENTER */
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope))
        good = shapes_of(read_graph(&arena, text), o, out);
    else
        fprintf(stderr, "dlc-opt: %s\n", scope.error.message);
    lib_arena_free(&arena);
    return good;
}

/* ---- passes -------------------------------------------------------------------------------------------------------- */

static graph *pass_bind(lib_arena *arena, const graph *g, const int64_t *values) {
    return graph_bind(arena, g, values);
}
static graph *pass_decompose(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    return graph_decompose(arena, g);
}
static graph *pass_simplify(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    return graph_simplify(arena, g);
}
static graph *pass_init(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    graph *init = NULL, *rest = NULL;
    graph_split_init(arena, g, &init, &rest);
    return rest;
}
static graph *pass_gradient(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    return graph_add_gradients(arena, g);
}
static graph *pass_jvp(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    return graph_add_tangents(arena, g);
}
static graph *pass_mixed_precision(lib_arena *arena, const graph *g, const int64_t *values) {
    (void)values;
    return graph_with_mixed_precision(arena, g, DLC_BF16);
}

static const struct {
    const char *name, *doc;
    bool needs_values;
    graph *(*run)(lib_arena *arena, const graph *g, const int64_t *values);
} passes[] = {
    {"decompose", "composites become primitives", false, pass_decompose},
    {"simplify", "rewrite rules, common sub-expressions, dead code", false, pass_simplify},
    {"init", "what depends on constants alone is split off; the rest", false, pass_init},
    {"bind", "numbers for symbols", true, pass_bind},
    {"gradient", "outputs x.gradient: derivatives of the first output by each float input", false, pass_gradient},
    {"jvp", "inputs x.tangent, outputs y.tangent: directional derivatives of the outputs", false, pass_jvp},
    {"mixed_precision", "products of f32 become products of bf16 with f32 sums", false, pass_mixed_precision},
};

void list_passes(void) {
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) printf("    %-15s %s\n", passes[i].name, passes[i].doc);
}

static void run_passes(lib_arena *arena, const graph *g, const options *o, const int64_t *values) {
    char name[32];
    for (const char *at = o->passes; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ","), i = 0;
        if (length < sizeof name) snprintf(name, sizeof name, "%.*s", (int)length, at);
        while (i < sizeof passes / sizeof *passes && (length >= sizeof name || strcmp(passes[i].name, name) != 0)) i++;
        if (i == sizeof passes / sizeof *passes)
            lib_raise(arena->scope, DLC_NOT_FOUND, "no pass is called %.*s; --help lists them", (int)length, at);
        if (passes[i].needs_values && !values)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "pass %s needs --dims for all symbols of inputs", name);
        g = passes[i].run(arena, g, values);
        graph_verify(arena->scope, g);
        lib_text text;
        lib_text_init(&text, arena);
        graph_print(&text, g);
        printf("# after %s\n%s\n", name, text.data);
        at += length;
    }
}

/* Skips the passes that need sizes if --dims leaves symbols without a value. */
static bool passes_of(lib_arena *arena, const graph *g, const options *o) {
    int64_t *values = LIB_NEW_ARRAY(arena, int64_t, g->symbols.count + 1);
    bool bound = true;
    if (!dims_exist(g, o)) return false;
    for (uint32_t s = 0; bound && s < g->symbols.count; s++) {
        values[s] =
            graph_is_input_size(g, g->symbols.data[s].var) ? symbol_value(o, g->symbols.data[s].name) : INT64_MIN;
        bound = values[s] != -1;
    }
    run_passes(arena, g, o, bound ? values : NULL);
    return true;
}

bool print_passes(const char *text, const options *o) {
    volatile bool good = false; /* set after LIB_ENTER */
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope))
        good = passes_of(&arena, read_graph(&arena, text), o);
    else
        fprintf(stderr, "dlc-opt: %s\n", scope.error.message);
    lib_arena_free(&arena);
    return good;
}
