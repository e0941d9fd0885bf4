/* Decomposition: composites are replaced by their expansions until only primitives are left; sub-graphs included. */
#include "graph/internal.h"

/* Composites may expand to composites. Exceeding these limits of depth or growth means that a composite's expansion contains itself. */
enum { ROUNDS_MAX = 16, GROWTH = 64, GROWTH_LEAST = 1 << 10 };

/* Raises unless result r of the expansion has the type, the rank and, where both are numbers, the sizes that `infer` gave the node. */
static void check_result(const graph_expand *e, int r, const graph *from, const graph_node *node) {
    const graph *g = e->g;
    const graph_shape *wanted = graph_shape_of(from, node->first + (graph_id)r), *got;
    int64_t a, b;
    if (!e->result[r])
        lib_raise(g->arena->scope, DLC_INTERNAL, "the expansion of %s has not set result %d", e->op->name, r);
    got = graph_shape_of(g, e->result[r]);
    bool same = got->dtype == wanted->dtype && got->rank == wanted->rank;
    for (int d = 0; same && d < got->rank; d++)
        same = !tir_is_const(g->pool, got->dim[d], &a) || !tir_is_const(from->pool, wanted->dim[d], &b) || a == b;
    if (same) return;
    lib_text text;
    lib_text_init(&text, g->arena);
    graph_describe_shape(&text, g, got);
    lib_text_add(&text, ", its infer ");
    graph_describe_shape(&text, from, wanted);
    lib_raise(g->arena->scope, DLC_INTERNAL, "the expansion of %s gave %s", e->op->name, text.data);
}

void graph_expand_node(graph_expand *e, const graph *from, const graph_node *node) {
    e->op = node->op;
    e->inputs = node->inputs;
    e->result = LIB_NEW_ARRAY(e->g->arena, graph_id, (size_t)node->results);
    if (graph_is_on_stored(from, node))
        graph_expand_stored(e, node->results);
    else
        node->op->expand(e);
    for (int r = 0; r < node->results; r++) check_result(e, r, from, node);
}

static void expand_node(graph_walk *walk, const graph_node *node) {
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    graph_walk_attributes(walk, node, attribute);
    graph_expand expand = {.g = walk->to, .input = graph_walk_inputs(walk, node), .attribute = attribute};
    graph_expand_node(&expand, walk->from, node);
    graph_walk_record(walk, node, expand.result);
}

/* A pass: replaces each live node for which `expands` is true by its expansion, one level deep, and copies the others. */
static void walk_expanding(graph_walk *walk, bool (*expands)(const graph *g, const graph_node *node)) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        if (expands(walk->from, node))
            expand_node(walk, node);
        else
            graph_walk_node(walk, i);
    }
}

bool graph_has_expansion(const graph *g, const graph_node *node) {
    return graph_expands(node) || graph_is_on_stored(g, node);
}

typedef struct choice {
    bool (*expands)(const graph *g, const graph_node *node);
} choice;

static void pass_expand(graph_walk *walk) {
    const choice *chosen = walk->user;
    walk_expanding(walk, chosen->expands);
}

/* The operator of a node that is still to be expanded; NULL: there is none. */
static const graph_op *composite_in(const graph *g, const choice *chosen) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (chosen->expands(g, &g->nodes.data[i])) return g->nodes.data[i].op;
    for (uint32_t i = 0; i < g->subgraphs.count; i++) {
        const graph_op *op = composite_in(g->subgraphs.data[i], chosen);
        if (op) return op;
    }
    return NULL;
}

graph *graph_expand_all(lib_arena *arena, const graph *g, bool (*expands)(const graph *g, const graph_node *node)) {
    choice chosen = {expands};
    graph *now = graph_walk_run(arena, g, g->phase, NULL, pass_expand, &chosen);
    const graph_op *op;
    for (int round = 1; (op = composite_in(now, &chosen)) != NULL; round++) {
        /* operators of the host may be recursive */
        bool grows = op->host && now->nodes.count / GROWTH > g->nodes.count + GROWTH_LEAST;
        if (round == ROUNDS_MAX || grows)
            lib_raise(arena->scope, op->host ? DLC_INVALID_ARGUMENT : DLC_INTERNAL,
                      "operator %s still expands after %d rounds: it seems to contain itself", op->name, round);
        now = graph_walk_run(arena, now, g->phase, NULL, pass_expand, &chosen);
    }
    return now;
}

graph *graph_decompose(lib_arena *arena, const graph *g) {
    return graph_expand_all(arena, g, graph_has_expansion);
}
