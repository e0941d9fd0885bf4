/* test/golden/choices/x.txt: a graph without symbols, and the choices of the cpu target's rules for its kernels on the machine that a line
 * `# machine X` names (machines.c; else the first one): each with the other candidates, and with the cycles predicted for them in
 * multiples of those of the rules' kernel. */
#ifdef DLC_TARGET_cpu
#include "golden/files.h"
#include "golden/fixed.h"

#include "graph/api.h"

#include <dlc/dlc.h>

enum { INPUTS = 16 };

static void check(lib_arena *arena, const dlc_context *context, dlc_status status) {
    if (status != DLC_OK) lib_raise(arena->scope, status, "%s", dlc_error_message(context));
}

static const char *choices_of(lib_arena *arena, dlc_context *context, const char *input) {
    const int64_t *shape[INPUTS];
    int64_t dims[INPUTS][DLC_MAX_RANK];
    int rank[INPUTS];
    dlc_graph *handle;
    dlc_program *program;
    char *text;
    check(arena, context, dlc_graph_parse(context, input, strlen(input), &handle));
    const graph *g = graph_of_handle(handle);
    for (uint32_t i = 0; i < g->inputs.count && i < INPUTS; i++) {
        const graph_shape *of = graph_shape_of(g, g->inputs.data[i]);
        shape[i] = dims[i];
        rank[i] = of->rank;
        for (int d = 0; d < of->rank; d++) tir_is_const(g->pool, of->dim[d], &dims[i][d]);
    }
    check(arena, context, dlc_compile(context, handle, NULL, &program));
    check(arena, context, dlc_program_dump(program, "choices", shape, rank, dlc_program_input_count(program), &text));
    const char *found = lib_arena_string(arena, text);
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    dlc_graph_destroy(handle);
    return found;
}

static const golden_machine *machine_for(lib_arena *arena, const char *input) {
    static const char word[] = "# machine ";
    const char *named = strstr(input, word);
    for (int m = 0; named && m < GOLDEN_MACHINES; m++)
        if (golden_machines[m].letter == named[strlen(word)]) return &golden_machines[m];
    if (named) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "unknown machine %c", named[strlen(word)]);
    return &golden_machines[0];
}

static void list_choices(lib_arena *arena, lib_text *out, const char *input) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *volatile context = NULL;
    dlc_context *made;
    lib_scope *outer = arena->scope, scope;
    options.target = "null";
    golden_fix_machine(machine_for(arena, input));
    check(arena, NULL, dlc_context_create(&options, &made));
    context = made;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) lib_text_add(out, choices_of(arena, context, input));
    arena->scope = outer;
    dlc_context_destroy(context); /* also the programs and graphs that an error left */
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
}

int main(void) {
    return golden_run("golden/choices", "test/golden/choices", "==== choices\n", list_choices);
}
#else
int main(void) {
    return 77;
}
#endif
