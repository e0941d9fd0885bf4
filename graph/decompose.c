/* Decomposition: composites are replaced by what they expand to, until only primitives are left; sub-graphs included.
 */
#include "graph/internal.h"

enum { ROUNDS_MAX = 16 }; /* composites may expand to composites; deeper means that one contains itself */

static void pass_expand(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        if (!live[i]) continue;
        const graph_node *node = &walk->from->nodes.data[i];
        const bool stored = graph_is_on_stored(walk->from, node);
        if (!graph_expands(node) && !stored) {
            graph_walk_node(walk, i);
            continue;
        }
        graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
        graph_walk_attributes(walk, node, attribute);
        graph_expand expand = {.g = walk->to,
                               .op = node->op,
                               .inputs = node->inputs,
                               .input = graph_walk_inputs(walk, node),
                               .attribute = attribute,
                               .result = LIB_NEW_ARRAY(walk->to->arena, graph_id, (size_t)node->results)};
        if (stored)
            graph_expand_stored(&expand, node->results);
        else
            node->op->expand(&expand);
        graph_walk_record(walk, node, expand.result);
    }
}

static bool has_composites(const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (graph_expands(&g->nodes.data[i]) || graph_is_on_stored(g, &g->nodes.data[i])) return true;
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (has_composites(g->subgraphs.data[i])) return true;
    return false;
}

graph *graph_decompose(lib_arena *arena, const graph *g) {
    graph *now = graph_walk_run(arena, g, g->phase, NULL, pass_expand, NULL);
    for (int round = 1; has_composites(now); round++) {
        if (round == ROUNDS_MAX)
            lib_raise(arena->scope, DLC_INTERNAL, "composites still expand after %d rounds", round);
        now = graph_walk_run(arena, now, g->phase, NULL, pass_expand, NULL);
    }
    return now;
}
