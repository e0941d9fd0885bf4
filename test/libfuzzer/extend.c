/* Tensor expressions of <dlc/extend.h>: the first line is the shape rule (empty: none), the rest the expression of an operator of two
 * operands, which is then used in a graph and compiled for the interpreter. */
#include <dlc/dlc.h>
#include <dlc/extend.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "graph {\n input x: f32[4, 3]\n input w: f32[3, 4]\n y = fuzzed(x, w)\n output \"y\" = y\n}\n";

static void use(dlc_context *context) {
    static const int64_t x[] = {4, 3}, w[] = {3, 4};
    dlc_graph *graph;
    dlc_program *program;
    if (dlc_graph_parse(context, text, sizeof text - 1, &graph) != DLC_OK) return;
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    compile.budget_ms = 200;
    compile.budget_bytes = 64 << 20;
    if (dlc_compile(context, graph, &compile, &program) == DLC_OK) {
        dlc_prepare(program, (const int64_t *const[]){x, w}, (const int[]){2, 2}, 2);
        dlc_program_destroy(program);
    }
    dlc_graph_destroy(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "interp";
    dlc_context *context;
    char *copy = malloc(size + 1);
    if (!copy) return 0;
    memcpy(copy, data, size);
    copy[size] = 0;
    char *line = strchr(copy, '\n');
    if (line && dlc_context_create(&options, &context) == DLC_OK) {
        *line = 0;
        dlc_operator_options given = DLC_OPERATOR_OPTIONS_INIT;
        given.name = "fuzzed";
        given.operands = "x w";
        given.dtypes = "number";
        given.shape = copy[0] ? copy : NULL;
        given.expression = line + 1;
        if (dlc_operator_register(context, &given) == DLC_OK) use(context);
        dlc_context_destroy(context);
    }
    free(copy);
    return 0;
}
