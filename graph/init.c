/* The init graph: values that depend on constants only are computed once per program, not in every run (converted weights, folded
 * normalisations too large for graph_fold). Broadcasts, iotas, reshapes, slices and values computed from positions only stay in the
 * main graph, because storing their results is not worthwhile. Conversions of large weights to a wider type, and dequantisations, stay
 * there too: they run in the contraction that reads them, so that only the narrow weights are stored. */
#include "graph/build.h"
#include "graph/internal.h"

#include <math.h>

typedef struct split {
    /* by node: it is equal in every run, and its shapes are numbers */
    bool *fixed;
    /* by node: the main graph computes it */
    bool *wanted;
    /* by node: part of a conversion of narrow weights for contractions */
    bool *widens;
    /* by node: graph_index_costs */
    uint8_t *index_cost;
    /* by value: an output of the init graph */
    bool *kept;
    /* the init graph's outputs, ascending */
    lib_vec(graph_id) outputs;
} split;

static bool has_numbers_only(const graph *g, const graph_node *node) {
    int64_t ignored;
    for (int k = 0; k < node->results; k++) {
        const graph_shape *shape = graph_shape_of(g, node->first + (graph_id)k);
        for (int i = 0; i < shape->rank; i++)
            if (!tir_is_const(g->pool, shape->dim[i], &ignored)) return false;
    }
    for (int i = 0; node->op->attribute[i].name; i++)
        for (int k = 0; node->op->attribute[i].kind == GRAPH_ATTR_DIMS && k < node->attribute[i].count; k++)
            if (!tir_is_const(g->pool, node->attribute[i].dims[k], &ignored)) return false;
    return true;
}

static bool is_fixed(const graph *g, const graph_node *node, const bool *fixed) {
    if (graph_is_constant(node)) return true;
    if (graph_is_input(node) || node->impure) return false;
    if (node->op->class_ == GRAPH_OPAQUE || node->op->class_ == GRAPH_CONTROL) return false;
    for (int i = 0; i < node->inputs; i++)
        if (node->input[i] && !fixed[g->values.data[node->input[i]].node]) return false;
    return has_numbers_only(g, node);
}

bool *graph_fixed_nodes(lib_arena *arena, const graph *g) {
    bool *fixed = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1);
    for (uint32_t i = 0; i < g->nodes.count; i++) fixed[i] = is_fixed(g, &g->nodes.data[i], fixed);
    return fixed;
}

bool graph_stays_behind(const graph_node *node, uint8_t index_cost) {
    return index_cost || graph_is_repeatable(node->op);
}

static bool stays_behind(const graph *g, const split *s, uint32_t index) {
    return s->widens[index] || graph_stays_behind(&g->nodes.data[index], s->index_cost[index]);
}

/* ---- weights that stay narrow */

enum { WIDE_LEAST = 64 << 10 }; /* bytes; smaller weights are converted once */

static double bytes_of(const graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    double bytes = lib_dtypes[shape->dtype].bits / 8.0;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent;
        bytes *= tir_is_const(g->pool, shape->dim[i], &extent) ? (double)extent : INFINITY;
    }
    return bytes;
}

/* May each run compute the node within a contraction: is it a map or a move, of elements that can be loaded as vectors? */
static bool may_run_later(const graph *g, const split *s, uint32_t index) {
    const graph_node *node = &g->nodes.data[index];
    for (int k = 0; k < node->inputs; k++)
        if (node->input[k] && lib_dtype_is_stored_otherwise(graph_shape_of(g, node->input[k])->dtype)) return false;
    return node->op->class_ == GRAPH_MAP || graph_stays_behind(node, s->index_cost[index]);
}

/* A traversal of a node's operands. */
typedef struct sources {
    /* the node, then the nodes it depends on for which may_run_later is true */
    lib_vec(uint32_t) nodes;
    /* by node and by value: number of the last traversal that visited it */
    uint32_t *by_node, *by_value;
    uint32_t walk;
} sources;

/* Sets found->nodes for node `index`; returns the bytes of the distinct values that those nodes read and that must be stored. */
static double find_sources(lib_arena *arena, const graph *g, const split *s, uint32_t index, sources *found) {
    double bytes = 0;
    found->walk++;
    found->nodes.count = 0;
    lib_vec_push(arena, &found->nodes, index);
    for (uint32_t i = 0; i < found->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[found->nodes.data[i]];
        for (int k = 0; k < node->inputs; k++) {
            graph_id value = node->input[k];
            uint32_t below = value ? g->values.data[value].node : 0;
            if (!value || found->by_node[below] == found->walk || found->by_value[value] == found->walk) continue;
            if (!graph_is_constant(&g->nodes.data[below]) && may_run_later(g, s, below)) {
                found->by_node[below] = found->walk;
                lib_vec_push(arena, &found->nodes, below);
            } else {
                found->by_value[value] = found->walk;
                bytes += bytes_of(g, value);
            }
        }
    }
    return bytes;
}

/* By node: of the nodes that run every time, only contractions over axes read it, and it is no output. */
static bool *find_contracted(lib_arena *arena, const graph *g, const split *s, const bool *live) {
    bool *contracted = LIB_NEW_ARRAY(arena, bool, g->nodes.count), *other = LIB_NEW_ARRAY(arena, bool, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (int k = 0; live[i] && !s->fixed[i] && k < node->inputs; k++) {
            uint32_t below = node->input[k] ? g->values.data[node->input[k]].node : i;
            if (below != i) *(node->op->structure == GRAPH_CONTRACTS ? &contracted[below] : &other[below]) = true;
        }
    }
    for (uint32_t i = 0; i < g->outputs.count; i++) other[g->values.data[g->outputs.data[i]].node] = true;
    for (uint32_t i = 0; i < g->nodes.count; i++) contracted[i] = contracted[i] && !other[i];
    return contracted;
}

static void find_widening(lib_arena *arena, const graph *g, split *s, const bool *live) {
    const bool *contracted = find_contracted(arena, g, s, live);
    sources found = {.by_node = LIB_NEW_ARRAY(arena, uint32_t, g->nodes.count),
                     .by_value = LIB_NEW_ARRAY(arena, uint32_t, g->values.count)};
    s->widens = LIB_NEW_ARRAY(arena, bool, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (!contracted[i] || !s->fixed[i] || node->op->class_ != GRAPH_MAP || !may_run_later(g, s, i)) continue;
        double wide = bytes_of(g, node->first);
        if (wide < (double)WIDE_LEAST || 2 * find_sources(arena, g, s, i, &found) > wide) continue;
        for (uint32_t k = 0; k < found.nodes.count; k++) s->widens[found.nodes.data[k]] = true;
    }
}

/* Is the operand a broadcast of at most 64 MiB that the contraction `user` reads? It is stored, although other broadcasts are not:
 * contractions pack constant operands and read other operands from memory, where an unstored broadcast is not. */
static bool is_stored_operand(const graph *g, const graph_node *user, graph_id operand) {
    const double most = 64 << 20;
    return user->op->class_ == GRAPH_CONTRACT && graph_node_of(g, operand)->op->structure == GRAPH_REPEATS &&
           bytes_of(g, operand) <= most;
}

/* Determines the init graph's outputs, from the last node to the first. */
static void find_outputs(lib_arena *arena, const graph *g, split *s) {
    const bool *live = graph_live_nodes(arena, g);
    bool *wanted = s->wanted = LIB_NEW_ARRAY(arena, bool, g->nodes.count);
    s->fixed = graph_fixed_nodes(arena, g);
    s->index_cost = graph_index_costs(arena, g);
    find_widening(arena, g, s, live);
    s->kept = LIB_NEW_ARRAY(arena, bool, g->values.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) wanted[i] = live[i] && !s->fixed[i];
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        uint32_t node = g->values.data[g->outputs.data[i]].node;
        if (!s->fixed[node]) continue;
        if (stays_behind(g, s, node))
            wanted[node] = true;
        else
            s->kept[g->outputs.data[i]] = true;
    }
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        for (int k = 0; wanted[i] && k < node->inputs; k++) {
            uint32_t below = node->input[k] ? g->values.data[node->input[k]].node : i;
            if (!s->fixed[below] || below == i) continue;
            if (stays_behind(g, s, below) && !is_stored_operand(g, node, node->input[k]))
                wanted[below] = true;
            else
                s->kept[node->input[k]] = true;
        }
    }
    for (graph_id value = 1; value < g->values.count; value++)
        if (s->kept[value]) lib_vec_push(arena, &s->outputs, value);
}

/* Emits the nodes that the outputs need, all of which are fixed. */
static void pass_init(graph_walk *walk) {
    const split *s = walk->user;
    const graph *from = walk->from;
    bool *needed = LIB_NEW_ARRAY(walk->to->arena, bool, from->nodes.count);
    for (uint32_t i = 0; i < s->outputs.count; i++) needed[from->values.data[s->outputs.data[i]].node] = true;
    graph_mark_operands(from, needed);
    for (uint32_t i = 0; i < from->nodes.count; i++)
        if (needed[i]) graph_walk_node(walk, i);
    walk->own_outputs = true;
    for (uint32_t i = 0; i < s->outputs.count; i++) graph_new_output(walk->to, NULL, walk->map[s->outputs.data[i]]);
}

/* Emits the ordinary inputs, then one input per output of the init graph, then the remaining nodes. */
static void pass_rest(graph_walk *walk) {
    const split *s = walk->user;
    const graph *from = walk->from;
    for (uint32_t i = 0; i < from->inputs.count; i++)
        graph_walk_node(walk, from->values.data[from->inputs.data[i]].node);
    for (uint32_t i = 0; i < s->outputs.count; i++) {
        const graph_value *value = &from->values.data[s->outputs.data[i]];
        graph_shape shape = value->shape;
        for (int k = 0; k < shape.rank; k++) shape.dim[k] = graph_walk_dim(walk, shape.dim[k]);
        walk->map[s->outputs.data[i]] = graph_new_input(walk->to, value->name, &shape);
    }
    walk->pass = graph_walk_all; /* of sub-graphs */
    for (uint32_t i = 0; i < from->nodes.count; i++)
        if (s->wanted[i] && !graph_is_input(&from->nodes.data[i])) graph_walk_node(walk, i);
}

void graph_split_init(lib_arena *arena, const graph *g, graph **init, graph **rest) {
    split s = {0};
    *init = NULL;
    find_outputs(arena, g, &s);
    if (s.outputs.count) {
        *init = graph_walk_run(arena, g, g->phase, NULL, pass_init, &s);
        (*init)->symbols.count = (*init)->constraints.count =
            0; /* it runs once, without inputs that would determine sizes */
    }
    *rest = graph_walk_run(arena, g, g->phase, NULL, pass_rest, &s);
}
