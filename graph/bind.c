/* Binding: re-emits the graph with numbers for symbols. Shapes are inferred again, constraints are checked with their operator's
 * message, and nodes that became constant are folded. Symbols kept as parameters, and constraints on them, stay in the bound graph;
 * each run checks those constraints. */
#include "graph/internal.h"

graph *graph_bind(lib_arena *arena, const graph *g, const int64_t *values) {
    return graph_walk_run(arena, g, GRAPH_BOUND, values, graph_walk_live, NULL);
}
