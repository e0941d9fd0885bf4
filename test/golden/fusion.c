/* test/golden/fusion/x.txt: a graph, and the kernels that it becomes for the rows n = 1, 16, 64 and 512 on the machines of machines.c; a
 * line for each choice of kernels, with the letters of the machines that make it. The cost model decides about joins in doubt. The order of the
 * nodes in the graph is the host's: on the first machine, with most rows, the graph in other orders must become as many kernels, else a line
 * tells. (Joins in doubt are undone one after the other: which of nearly equal ones are kept may depend on the order.) */
#ifdef DLC_TARGET_cpu
#include "golden/files.h"
#include "golden/fixed.h"
#include "random.h"

#include "graph/api.h"
#include "tir/expr.h"

#include <dlc/dlc.h>

#include <ctype.h>

enum { INPUTS = 16, LINES = 64, ORDERS = 3 };

typedef struct shapes {
    int64_t dim[INPUTS][DLC_MAX_RANK];
    const int64_t *pointer[INPUTS];
    int rank[INPUTS];
} shapes;

/* Every symbol is n. */
static shapes *shapes_of(lib_arena *arena, const graph *g, int64_t n) {
    shapes *out = LIB_NEW(arena, shapes);
    uint64_t *variables = LIB_NEW_ARRAY(arena, uint64_t, g->pool->variables.count + 1);
    for (uint32_t s = 0; s < g->symbols.count; s++)
        variables[tir_var_id(g->pool, g->symbols.data[s].var)] = (uint64_t)n;
    const tir_evaluator evaluator = {.variables = variables};
    for (uint32_t i = 0; i < g->inputs.count && i < INPUTS; i++) {
        const graph_shape *shape = graph_shape_of(g, g->inputs.data[i]);
        out->pointer[i] = out->dim[i];
        out->rank[i] = shape->rank;
        for (int d = 0; d < shape->rank; d++)
            out->dim[i][d] = (int64_t)tir_evaluate(g->pool, shape->dim[d], &evaluator);
    }
    return out;
}

static void check(lib_arena *arena, dlc_context *context, dlc_status status) {
    if (status != DLC_OK) lib_raise(arena->scope, status, "%s", dlc_error_message(context));
}

/* Names of the kernels in the text of the stage "regions". */
static const char *kernels_in(lib_arena *arena, const char *regions) {
    static const char word[] = "kernel ";
    lib_text text;
    lib_text_init(&text, arena);
    for (const char *at = regions; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, word, sizeof word - 1) == 0)
            lib_text_format(&text, "%s%.*s", text.length ? " | " : "", (int)strcspn(at + sizeof word - 1, "\n"),
                            at + sizeof word - 1);
        if (!*at) break;
    }
    return text.length ? text.data : "none";
}

static const char *kernels_of(lib_arena *arena, dlc_context *context, const char *input, int64_t n) {
    dlc_graph *handle;
    dlc_program *program;
    char *text;
    check(arena, context, dlc_graph_parse(context, input, strlen(input), &handle));
    const shapes *s = shapes_of(arena, graph_of_handle(handle), n);
    check(arena, context, dlc_compile(context, handle, NULL, &program));
    check(arena, context,
          dlc_program_dump(program, "regions", s->pointer, s->rank, dlc_program_input_count(program), &text));
    const char *found = kernels_in(arena, text);
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    dlc_graph_destroy(handle);
    return found;
}

static const char *on_machine(lib_arena *arena, const golden_machine *machine, const char *input, int64_t n) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *volatile context = NULL;
    dlc_context *made;
    const char *volatile found = NULL;
    lib_scope *outer = arena->scope, scope;
    options.target = "null";
    golden_fix_machine(machine);
    check(arena, NULL, dlc_context_create(&options, &made));
    context = made;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) found = kernels_of(arena, context, input, n);
    arena->scope = outer;
    dlc_context_destroy(context); /* also the programs and graphs that an error left */
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
    return found;
}

/* ---- other orders */

static bool is_letter(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Does the text have the word? */
static bool has_word(const char *text, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || !is_letter(at[-1])) && !is_letter(at[length])) return true;
    return false;
}

/* A line of a node: `  name = operator(...)`. */
typedef struct node_line {
    const char *name, *text;
} node_line;

/* Reads a node's line; false: it is none. */
static bool read_node(lib_arena *arena, node_line *node, const char *line, size_t length) {
    node->text = lib_arena_format(arena, "%.*s\n", (int)length, line);
    const char *begin = node->text + strspn(node->text, " "), *sign = strstr(begin, " = ");
    if (!sign || strncmp(begin, "output ", 7) == 0) return false;
    node->name = lib_arena_format(arena, "%.*s", (int)(sign - begin), begin);
    return true;
}

/* The graph's text with its nodes in another order, in which each still follows those that it reads. */
static const char *in_other_order(lib_arena *arena, const char *input, uint64_t seed) {
    node_line nodes[LINES], swap;
    int count = 0;
    lib_text out, end;
    lib_text_init(&out, arena);
    lib_text_init(&end, arena);
    for (const char *at = input; *at;) {
        const size_t length = strcspn(at, "\n");
        if (count < LINES && read_node(arena, &nodes[count], at, length))
            count++;
        else
            lib_text_format(count ? &end : &out, "%.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    for (int placed = 0; placed < count; placed++) {
        int ready[LINES], choices = 0;
        for (int i = placed; i < count; i++) {
            bool waits = false;
            for (int k = placed; k < count; k++)
                waits = waits || (k != i && has_word(strchr(nodes[i].text, '='), nodes[k].name));
            if (!waits) ready[choices++] = i;
        }
        const int chosen = ready[test_random(&seed) % (uint64_t)choices];
        swap = nodes[placed];
        nodes[placed] = nodes[chosen];
        nodes[chosen] = swap;
        lib_text_add(&out, nodes[placed].text);
    }
    lib_text_add(&out, end.data ? end.data : "");
    return out.data;
}

static int count_of(const char *kernels) {
    int count = 1;
    for (const char *at = strchr(kernels, '|'); at; at = strchr(at + 1, '|')) count++;
    return count;
}

static void compare_orders(lib_arena *arena, lib_text *out, const char *input, int64_t n, const char *expected) {
    for (uint64_t seed = 1; seed <= ORDERS; seed++) {
        const char *turned = in_other_order(arena, input, seed);
        const char *found = on_machine(arena, &golden_machines[0], turned, n);
        if (count_of(found) != count_of(expected))
            lib_text_format(out, "n=%-4lld in another order: %s\n%s", (long long)n, found, turned);
    }
}

static void list_kernels(lib_arena *arena, lib_text *out, const char *input) {
    static const int64_t rows[] = {1, 16, 64, 512};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *found[GOLDEN_MACHINES];
        for (int m = 0; m < GOLDEN_MACHINES; m++) found[m] = on_machine(arena, &golden_machines[m], input, rows[i]);
        for (int m = 0; m < GOLDEN_MACHINES; m++) {
            char letters[GOLDEN_MACHINES + 1] = "";
            bool first = true;
            for (int k = 0, at = 0; k < GOLDEN_MACHINES; k++) {
                bool same = strcmp(found[k], found[m]) == 0;
                first = first && !(same && k < m);
                letters[at++] = same ? golden_machines[k].letter : ' ';
            }
            if (first) lib_text_format(out, "n=%-4lld %s  %s\n", (long long)rows[i], letters, found[m]);
        }
        if (i + 1 == sizeof rows / sizeof *rows) compare_orders(arena, out, input, rows[i], found[0]);
    }
}

int main(void) {
    return golden_run("golden/fusion", "test/golden/fusion", "==== kernels\n", list_kernels);
}
#else
int main(void) {
    return 77;
}
#endif
