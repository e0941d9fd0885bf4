#include "graph/backward_slice.h"

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/segment.h"

typedef struct part_walk {
    graph_part *part;
    /* by value: it is known and can be an input of the part */
    bool *is_input;
    /* by node: the part needs it */
    bool *needed;
} part_walk;

/* Can the known value be an input: is each dimension a number or a plain symbol? An expression would leave its symbols undetermined;
 * the value is recomputed instead. */
static bool can_be_input(const graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    for (int d = 0; d < shape->rank; d++) {
        int64_t size;
        bool plain = tir_is_const(g->pool, shape->dim[d], &size);
        for (uint32_t s = 0; s < g->symbols.count && !plain; s++) plain = shape->dim[d] == g->symbols.data[s].var;
        if (!plain) return false;
    }
    return true;
}

/* Sets is_input of the node's wanted results; true: some of them are no inputs. */
static bool mark_inputs(const graph *g, part_walk *w, const graph_node *node, const bool *wanted) {
    bool computes = false;
    for (int k = 0; k < node->results; k++) {
        graph_id value = node->first + (graph_id)k;
        if (!wanted[value]) continue;
        w->is_input[value] = w->part->known[value] && can_be_input(g, value);
        computes = computes || !w->is_input[value];
    }
    return computes;
}

/* Sets is_input and needed, in one sweep from the last node to the first. */
static void mark_needed(lib_arena *arena, const graph *g, part_walk *w) {
    const graph_part *part = w->part;
    w->is_input = LIB_NEW_ARRAY(arena, bool, g->values.count);
    w->needed = LIB_NEW_ARRAY(arena, bool, g->nodes.count);
    bool *wanted = LIB_NEW_ARRAY(arena, bool, g->values.count);
    for (int i = 0; i < part->count; i++) wanted[part->values[i]] = true;
    for (uint32_t n = g->nodes.count; n-- > 0;) {
        const graph_node *node = &g->nodes.data[n];
        const bool kept = part->keeps_inputs && graph_is_input(node);
        const bool computes = mark_inputs(g, w, node, wanted);
        const bool needed = kept || (n >= part->effects_done && node->impure) || computes;
        w->needed[n] = needed;
        for (int k = 0; needed && k < node->results; k++) w->is_input[node->first + (graph_id)k] = false;
        if (needed && !kept && graph_is_input(node))
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "input %s has no tensor: values of an eager graph come from dlc_eager_tensor",
                      g->values.data[node->first].name ? g->values.data[node->first].name : "(no name)");
        for (int k = 0; needed && k < node->inputs; k++)
            if (node->input[k]) wanted[node->input[k]] = true;
    }
}

static void pass_part(graph_walk *walk) {
    const part_walk *w = walk->user;
    graph_part *part = w->part;
    const graph *g = walk->from;
    if (g->parent) { /* a sub-graph of a needed node: copied unchanged */
        graph_walk_all(walk);
        return;
    }
    graph_id *inputs = LIB_NEW_ARRAY(walk->to->arena, graph_id, g->values.count);
    part->inputs = inputs;
    walk->own_outputs = true;
    for (graph_id v = 1; v < g->values.count; v++) {
        if (!w->is_input[v]) continue;
        graph_shape shape = *graph_shape_of(g, v);
        for (int d = 0; d < shape.rank; d++) shape.dim[d] = graph_walk_dim(walk, shape.dim[d]);
        walk->map[v] = graph_new_input(walk->to, NULL, &shape);
        inputs[part->input_count++] = v;
    }
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        if (w->needed[n]) graph_walk_node(walk, n);
    }
    for (int i = 0; i < part->count; i++)
        graph_new_output(walk->to, lib_arena_format(walk->to->arena, "%d", i), walk->map[part->values[i]]);
}

static bool is_told(const graph *g, tir_expr symbol) {
    return graph_is_counted(g, symbol) || graph_is_input_size(g, symbol);
}

/* Drops constraints on symbols that the part's inputs do not determine. */
static void drop_constraints(graph *g) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->constraints.count; i++) {
        const graph_constraint constraint = g->constraints.data[i];
        bool keep = true;
        for (uint32_t s = 0; s < g->symbols.count && keep; s++)
            keep = is_told(g, g->symbols.data[s].var) || (!tir_uses(g->pool, constraint.left, g->symbols.data[s].var) &&
                                                          !tir_uses(g->pool, constraint.right, g->symbols.data[s].var));
        if (keep) g->constraints.data[kept++] = constraint;
    }
    g->constraints.count = kept;
}

void graph_cut_part(lib_arena *arena, const graph *g, graph_part *part) {
    part_walk w = {.part = part};
    part->input_count = 0;
    mark_needed(arena, g, &w);
    part->graph = graph_walk_run(arena, g, g->phase, NULL, pass_part, &w);
    drop_constraints(part->graph);
}

graph *graph_identity(lib_arena *arena, const DLTensor *like) {
    graph *g = graph_new(arena, NULL);
    graph_shape shape = {.rank = like->ndim};
    lib_dtype_from_dlpack(like->dtype, &shape.dtype);
    for (int d = 0; d < like->ndim; d++) shape.dim[d] = tir_index(g->pool, like->shape[d]);
    graph_new_output(g, "0", graph_new_input(g, NULL, &shape));
    return g;
}
