/* Binding: the graph again, with numbers for symbols. Rows infer anew, constraints are checked with their operator's
 * message, and what numbers make foldable folds. Symbols kept as parameters stay symbols of the bound graph;
 * constraints among them stay too, for the run to check. */
#include "graph/internal.h"

graph *graph_bind(lib_arena *arena, const graph *g, const int64_t *values) {
    return graph_walk_run(arena, g, GRAPH_BOUND, values, graph_walk_live, NULL);
}
