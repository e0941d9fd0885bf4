/* test/golden/programs/x.txt: a graph, sizes of its symbols, and what becomes of them: regions, and the plan with the places of values.
 * On the interp target, whose plans are the same on every machine. */
#include "golden/files.h"

#include "graph/api.h"
#include "tir/expr.h"

#include <dlc/dlc.h>
#include <stdlib.h>

static const char sizes_mark[] = "==== sizes\n";
enum { INPUTS = 16 };

typedef struct shapes {
    int64_t dim[INPUTS][DLC_MAX_RANK];
    const int64_t *pointer[INPUTS];
    int rank[INPUTS];
} shapes;

/* "n=7" on a line of its own for every symbol. */
static void read_shapes(lib_arena *arena, const graph *g, const char *sizes, shapes *out) {
    uint64_t *variables = LIB_NEW_ARRAY(arena, uint64_t, g->pool->variables.count + 1);
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        const char *line = strstr(sizes, lib_arena_format(arena, "%s=", g->symbols.data[s].name));
        if (!line) lib_raise(arena->scope, DLC_PARSE_ERROR, "no size for symbol %s", g->symbols.data[s].name);
        variables[tir_var_id(g->pool, g->symbols.data[s].var)] = strtoull(strchr(line, '=') + 1, NULL, 10);
    }
    const tir_evaluator evaluator = {.variables = variables};
    for (uint32_t i = 0; i < g->inputs.count && i < INPUTS; i++) {
        const graph_shape *shape = graph_shape_of(g, g->inputs.data[i]);
        out->pointer[i] = out->dim[i];
        out->rank[i] = shape->rank;
        for (int d = 0; d < shape->rank; d++)
            out->dim[i][d] = (int64_t)tir_evaluate(g->pool, shape->dim[d], &evaluator);
    }
}

static void check(lib_arena *arena, dlc_context *context, dlc_status status) {
    if (status != DLC_OK) lib_raise(arena->scope, status, "%s", dlc_error_message(context));
}

static void dump(lib_arena *arena, dlc_context *context, lib_text *out, const char *input) {
    static const char *const stages[] = {"regions", "plan"};
    const char *mark = strstr(input, sizes_mark);
    dlc_graph *handle;
    dlc_program *program;
    shapes *s = LIB_NEW(arena, shapes);
    check(arena, context, dlc_graph_parse(context, input, mark ? (size_t)(mark - input) : strlen(input), &handle));
    read_shapes(arena, graph_of_handle(handle), mark ? mark : "", s);
    check(arena, context, dlc_compile(context, handle, NULL, &program));
    for (int i = 0; i < 2; i++) {
        char *text;
        check(arena, context,
              dlc_program_dump(program, stages[i], s->pointer, s->rank, dlc_program_input_count(program), &text));
        lib_text_format(out, "%s%s", i ? "==== plan\n" : "", text);
        dlc_text_free(context, text);
    }
    dlc_program_destroy(program);
    dlc_graph_destroy(handle);
}

static void dump_program(lib_arena *arena, lib_text *out, const char *input) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *volatile context = NULL;
    dlc_context *made;
    lib_scope *outer = arena->scope, scope;
    options.target = "interp";
    check(arena, NULL, dlc_context_create(&options, &made));
    context = made;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) dump(arena, context, out, input);
    arena->scope = outer;
    dlc_context_destroy(context); /* also the programs and graphs that an error left */
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
}

int main(void) {
    return golden_run("golden/programs", "test/golden/programs", "==== regions\n", dump_program);
}
