/* Hoists loop-invariant code: values that the body (or condition) of a loop computes only from captures and constants are
 * computed once before the loop, and become captures. Those that are constant move on to the init graph (init.c). Inner loops
 * hoist into the enclosing body, from which the next round hoists further. */
#include "graph/build.h"
#include "graph/internal.h"

enum { ROUNDS_MAX = 8 }; /* in more deeply nested loops some code is not hoisted completely */

/* a value of a sub-graph */
typedef struct moved {
    /* number of the sub-graph in the old graph */
    int64_t subgraph;
    graph_id inner, outer;
} moved;

typedef struct loop {
    const graph_node *node;
    /* number of the current sub-graph in the old graph */
    int64_t subgraph;
    /* by node of the sub-graph: it stays in the loop */
    bool *wanted;
    /* hoisted values of all sub-graphs of the loop */
    lib_vec(moved) values;
    /* the pass's flag: something was moved */
    bool *moves_any;
} loop;

static bool is_loop(const graph_node *node) {
    return node->op->structure == GRAPH_LOOPS || node->op->structure == GRAPH_SCANS;
}

/* Index of the first input of the loop's sub-graphs that is a capture; it and all later inputs are loop-invariant. */
static int64_t first_capture(const graph_node *node) {
    if (node->op->structure == GRAPH_LOOPS) return node->results;
    return node->attribute[GRAPH_SCAN_CARRIES].integer + node->attribute[GRAPH_SCAN_SEQUENCES].integer;
}

static bool is_invariant(const graph *g, const graph_node *node, int64_t captures, const bool *invariant) {
    if (graph_is_input(node)) return node->attribute[0].integer >= captures;
    if (node->op->class_ == GRAPH_OPAQUE || node->op->class_ == GRAPH_CONTROL || node->impure) return false;
    for (int k = 0; k < node->inputs; k++)
        if (node->input[k] && !invariant[g->values.data[node->input[k]].node]) return false;
    return true;
}

static void keep(lib_arena *arena, loop *l, graph_id value) {
    for (uint32_t i = 0; i < l->values.count; i++)
        if (l->values.data[i].subgraph == l->subgraph && l->values.data[i].inner == value) return;
    lib_vec_push(arena, &l->values, ((moved){l->subgraph, value, 0}));
}

/* Sets l->wanted to the nodes that stay in sub-graph g, and adds the values that are computed before the loop to l->values. */
static void divide(lib_arena *arena, const graph *g, loop *l) {
    const bool *live = graph_live_nodes(arena, g);
    const uint8_t *index_cost = graph_index_costs(arena, g);
    bool *invariant = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1);
    bool *wanted = l->wanted = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        invariant[i] = is_invariant(g, node, first_capture(l->node), invariant);
        wanted[i] = live[i] && (!invariant[i] || graph_is_input(node));
    }
    for (uint32_t o = 0; o < g->outputs.count; o++) wanted[g->values.data[g->outputs.data[o]].node] = true;
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        for (int k = 0; wanted[i] && k < node->inputs; k++) {
            uint32_t below = node->input[k] ? g->values.data[node->input[k]].node : i;
            if (wanted[below]) continue;
            if (graph_stays_behind(&g->nodes.data[below], index_cost[below]))
                wanted[below] = true;
            else
                keep(arena, l, node->input[k]);
        }
    }
}

/* Emits the nodes that compute the hoisted values of one sub-graph before the loop. */
static void lift(graph_walk *walk, const graph *inner, loop *l, uint32_t first) {
    graph_walk above = *walk;
    above.from = inner;
    above.map = LIB_NEW_ARRAY(walk->to->arena, graph_id, inner->values.count + 1);
    bool *needed = LIB_NEW_ARRAY(walk->to->arena, bool, inner->nodes.count + 1);
    for (uint32_t i = 0; i < inner->inputs.count; i++) above.map[inner->inputs.data[i]] = walk->map[l->node->input[i]];
    for (uint32_t i = first; i < l->values.count; i++) needed[inner->values.data[l->values.data[i].inner].node] = true;
    graph_mark_operands(inner, needed);
    for (uint32_t i = 0; i < inner->nodes.count; i++)
        if (needed[i] && !graph_is_input(&inner->nodes.data[i])) graph_walk_node(&above, i);
    for (uint32_t i = first; i < l->values.count; i++) l->values.data[i].outer = above.map[l->values.data[i].inner];
}

static void pass_hoist(graph_walk *walk);

static void pass_node(graph_walk *walk, uint32_t index);

/* Emits a sub-graph with an additional input for each value hoisted from any sub-graph of the loop. */
static void pass_branch(graph_walk *walk) {
    loop *l = walk->user;
    const graph *from = walk->from;
    for (uint32_t i = 0; i < from->inputs.count; i++)
        graph_walk_node(walk, from->values.data[from->inputs.data[i]].node);
    for (uint32_t i = 0; i < l->values.count; i++) {
        const moved *m = &l->values.data[i];
        graph_id input = graph_new_input(walk->to, NULL, graph_shape_of(walk->to->parent, m->outer));
        if (m->subgraph == l->subgraph) walk->map[m->inner] = input;
    }
    walk->pass = pass_hoist; /* for nested sub-graphs */
    walk->user = l->moves_any;
    const bool *wanted = l->wanted;
    for (uint32_t i = 0; i < from->nodes.count; i++)
        if (wanted[i] && !graph_is_input(&from->nodes.data[i])) pass_node(walk, i);
}

static int64_t emit_branch(graph_walk *walk, loop *l) {
    int64_t number;
    graph_walk nested = *walk;
    nested.from = walk->from->subgraphs.data[l->subgraph];
    nested.own_outputs = false;
    nested.to = graph_new_subgraph(walk->to, &number);
    nested.pass = pass_branch;
    nested.user = l;
    loop ignored = {.node = l->node, .subgraph = l->subgraph};
    divide(walk->to->arena, nested.from, &ignored); /* the nodes that stay */
    l->wanted = ignored.wanted;
    graph_walk_into(&nested);
    return number;
}

static void emit_loop(graph_walk *walk, loop *l) {
    graph *to = walk->to;
    const graph_node *node = l->node;
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute] = {0};
    for (int i = 0; node->op->attribute[i].name; i++) {
        if (node->op->attribute[i].kind != GRAPH_ATTR_SUBGRAPH) {
            graph_walk_attribute(walk, node, i, &attribute[i]);
            continue;
        }
        l->subgraph = node->attribute[i].integer;
        attribute[i] = (graph_attribute){.integer = emit_branch(walk, l), .given = true};
    }
    int count = node->inputs + (int)l->values.count;
    graph_id *input = LIB_NEW_ARRAY(to->arena, graph_id, (size_t)count + 1);
    for (int i = 0; i < node->inputs; i++) input[i] = walk->map[node->input[i]];
    for (uint32_t i = 0; i < l->values.count; i++) input[(uint32_t)node->inputs + i] = l->values.data[i].outer;
    graph_id first = graph_emit(to, node->op, count, input, attribute);
    graph_id *results = LIB_NEW_ARRAY(to->arena, graph_id, (size_t)node->results + 1);
    for (int i = 0; i < node->results; i++) results[i] = first + (graph_id)i;
    graph_walk_record(walk, node, results);
}

static void pass_node(graph_walk *walk, uint32_t index) {
    const graph_node *node = &walk->from->nodes.data[index];
    loop l = {.node = node, .moves_any = walk->user};
    for (int i = 0; is_loop(node) && node->op->attribute[i].name; i++) {
        if (node->op->attribute[i].kind != GRAPH_ATTR_SUBGRAPH) continue;
        const graph *inner = walk->from->subgraphs.data[l.subgraph = node->attribute[i].integer];
        uint32_t first = l.values.count;
        divide(walk->to->arena, inner, &l);
        if (l.values.count > first) lift(walk, inner, &l, first);
    }
    if (!l.values.count) {
        graph_walk_node(walk, index);
        return;
    }
    *l.moves_any = true;
    emit_loop(walk, &l);
}

static void pass_hoist(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++)
        if (live[i]) pass_node(walk, i);
}

graph *graph_hoist(lib_arena *arena, const graph *g) {
    bool any = true;
    const graph *now = g;
    for (int round = 0; any && round < ROUNDS_MAX; round++) {
        any = false;
        now = graph_walk_run(arena, now, now->phase, NULL, pass_hoist, &any);
    }
    return (graph *)(uintptr_t)now;
}
