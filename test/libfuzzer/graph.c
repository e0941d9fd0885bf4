/* Text of a graph: parsed, compiled for the interpreter and bound, all within a small budget. Nothing is run. */
#include <dlc/dlc.h>

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "interp";
    dlc_context *context;
    if (dlc_context_create(&options, &context) != DLC_OK) return 0;
    dlc_graph *graph;
    if (dlc_graph_parse(context, (const char *)data, size, &graph) == DLC_OK) {
        char *text;
        if (dlc_graph_print(graph, &text) == DLC_OK) dlc_text_free(context, text);
        dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
        compile.budget_ms = 200;
        compile.budget_bytes = 64 << 20;
        dlc_program *program;
        if (dlc_compile(context, graph, &compile, &program) == DLC_OK) {
            dlc_prepare(program, NULL, NULL, 0); /* refused where the graph has inputs */
            dlc_program_destroy(program);
        }
        dlc_graph_destroy(graph);
    }
    dlc_context_destroy(context);
    return 0;
}
