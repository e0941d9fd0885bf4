/* A random graph with the gradients of the sum of its outputs by its inputs, on request in mixed precision, or with those of the sum of these
 * gradients. */
#ifndef TEST_FUZZ_GENERATE_GRADIENT_H
#define TEST_FUZZ_GENERATE_GRADIENT_H

#include "fuzz/case.h"
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/precision.h"

/* The sum of the elements of the outputs from number `first` on; 0: none of them is of a float type. */
static inline graph_id gen_sum_of_outputs(graph *g, uint32_t first) {
    graph_id sum = 0;
    for (uint32_t i = first; i < g->outputs.count; i++) {
        if (!lib_dtype_is_float(graph_shape_of(g, g->outputs.data[i])->dtype)) continue;
        const graph_id part =
            graph_cast(g, graph_reduce_sum(g, graph_widen(g, g->outputs.data[i]), 0, NULL, false), DLC_F32);
        sum = sum ? graph_add(g, sum, part) : part;
    }
    return sum;
}

/* The graph with a first output, the sum of the others' elements, if `mixed` with products in bf16; NULL: none of them is of a float type. */
static inline graph *gen_with_loss(lib_arena *arena, const graph *from, bool mixed) {
    graph *g = graph_copy(arena, from);
    graph_id loss = gen_sum_of_outputs(g, 0);
    if (!loss) return NULL;
    if (mixed) graph_mix_precision(g, DLC_BF16, 1, &loss, &loss);
    graph_new_output(g, "loss", loss);
    const uint32_t last = g->outputs.count - 1;
    g->outputs.data[last] = g->outputs.data[0];
    g->outputs.data[0] = loss;
    g->output_names.data[last] = g->output_names.data[0];
    g->output_names.data[0] = "loss";
    return g;
}

/* The graph, whose outputs from number `first` on are gradients, with the gradients of their sum in place of all outputs. */
static inline graph *gen_second_order(lib_arena *arena, graph *g, uint32_t first) {
    const graph_id loss = gen_sum_of_outputs(g, first);
    if (!loss) return g;
    g->outputs.count = g->output_names.count = 1;
    g->outputs.data[0] = loss;
    return graph_add_gradients(arena, g);
}

/* The text with gradients, of order 1 or 2; NULL: it has none, because of its types or of an operator that does not differentiate. Another error than that is
 * put into `refused`. Caller frees. */
static inline char *gen_with_gradients(const char *text, bool mixed, int order, char refused[CASE_MESSAGE]) {
    lib_scope scope;
    lib_arena arena;
    char *volatile out = NULL;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_text printed;
        const char *body = strchr(text, '\n') + 1; /* after the line that says how to run it */
        lib_lexer_init(&lexer, &arena, "generated", body, strlen(body));
        const graph *g = gen_with_loss(&arena, graph_parse(&arena, &lexer), mixed);
        if (g && g->inputs.count + 2 * g->outputs.count < CASE_TENSORS) {
            const uint32_t outputs = g->outputs.count;
            graph *with = graph_add_gradients(&arena, g);
            g = order == 2 ? gen_second_order(&arena, with, outputs) : with;
            lib_text_init(&printed, &arena);
            lib_text_add_bytes(&printed, text, (size_t)(body - text));
            graph_print(&printed, g);
            out = strdup(printed.data);
        }
    } else if (scope.error.status != DLC_UNSUPPORTED) {
        snprintf(refused, CASE_MESSAGE, "gradients: %s\n%s", scope.error.message, text);
    }
    lib_arena_free(&arena);
    return out;
}

#endif
