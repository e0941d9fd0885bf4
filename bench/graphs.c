/* Cases as text, for programs that measure them elsewhere (bench/gpu): one JSON line each with the graph as dlc_graph_parse reads it,
 * whose operands are all inputs, and what is known of them. */
#include "bench/graphs.h"

#include <string.h>

static void print_string(const char *text, FILE *to) {
    putc('"', to);
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", to);
        else if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else
            putc(*text, to);
    }
    putc('"', to);
}

static void print_operands(const char *key, const bench_operand *operands, int count, FILE *to) {
    fprintf(to, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        const bench_operand *o = &operands[i];
        fprintf(to, "%s{\"dtype\":\"%s\",\"low\":%.9g,\"high\":%.9g,\"dims\":[", i ? "," : "", dlc_dtype_name(o->dtype),
                o->low, o->high);
        for (int d = 0; d < o->rank; d++) fprintf(to, "%s%lld", d ? "," : "", (long long)o->dims[d]);
        fputs("]}", to);
    }
    fputs("]", to);
}

/* False: no operator covers the line, or its graph has a mistake. */
static bool print_graph(dlc_context *context, const bench_shape *shape, FILE *to) {
    const bench_case_kind *kind = bench_case_find(shape);
    static bench_builder b;
    dlc_graph *graph = NULL;
    char *text = NULL;
    if (!kind || dlc_graph_create(context, &graph) != DLC_OK) return false;
    bench_case_describe(&b, kind->build, shape, graph, NULL, NULL);
    bool good = dlc_graph_status(graph) == DLC_OK && dlc_graph_print(graph, &text) == DLC_OK;
    if (good) {
        fputs("{\"case\":", to);
        print_string(shape->text, to);
        fprintf(to, ",\"kind\":\"%s\",\"name\":\"%s\",\"flops\":%.17g,\"bytes\":%.17g", shape->kind, shape->name,
                b.problem.flops, b.problem.bytes);
        print_operands("inputs", b.problem.operands, b.problem.operand_count, to);
        print_operands("outputs", b.problem.results, b.problem.result_count, to);
        fputs(",\"graph\":", to);
        print_string(text, to);
        fputs("}\n", to);
    }
    dlc_text_free(context, text);
    dlc_graph_destroy(graph);
    return good;
}

int bench_graphs_print(const bench_shape *shapes, int count, FILE *to) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    int failures = 0;
    options.target = "interp"; /* nothing is compiled */
    if (dlc_context_create(&options, &context) != DLC_OK) return count;
    for (int i = 0; i < count; i++) {
        if (print_graph(context, &shapes[i], to)) continue;
        fprintf(stderr, "no graph: %s\n", shapes[i].text);
        failures++;
    }
    dlc_context_destroy(context);
    return failures;
}
