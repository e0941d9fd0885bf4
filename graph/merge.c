/* Scans over the same operands whose iterations compute the same carries become one, with the stacks of all: reverse mode adds to a scan the
 * stacks that it reads. Bodies are compared by putting them into one graph, where equal nodes are one. */
#include "graph/build.h"
#include "graph/internal.h"

/* A scan of the old graph, which becomes part of a merged one. */
typedef struct member {
    const graph_node *node;
    uint32_t index;
    /* outputs of its body, in the merged body */
    graph_id *output;
    int carries, sequences, conditional, stacks;
} member;

typedef struct merged_scan {
    graph *body;
    lib_vec(member) members;
    /* the merged body's stacks, and their directions */
    lib_vec(graph_id) element;
    lib_vec(int64_t) reverse;
} merged_scan;

/* By node of the old graph: its results, if a scan before it was merged with it. */
typedef struct merging {
    graph_id **results;
} merging;

static int64_t direction_of(const graph_node *node, int i) {
    const graph_attribute *reverse = &node->attribute[GRAPH_SCAN_REVERSE];
    return reverse->count ? reverse->list[i] : 0;
}

static bool is_scan(const graph_node *node) {
    return node->op->structure == GRAPH_SCANS && !node->impure;
}

/* Have both the same operands, and pass through them in the same way? */
static bool may_merge(const graph_node *a, const graph_node *b) {
    if (!is_scan(b) || a->op != b->op || a->inputs != b->inputs) return false;
    for (int i = 0; i < a->inputs; i++)
        if (a->input[i] != b->input[i]) return false;
    for (int i = 0; a->op->attribute[i].name; i++)
        if (i != GRAPH_SCAN_BODY && i != GRAPH_SCAN_REVERSE &&
            !graph_attribute_equal(&a->op->attribute[i], &a->attribute[i], &b->attribute[i]))
            return false;
    for (int64_t i = 0; i < a->attribute[GRAPH_SCAN_SEQUENCES].integer; i++)
        if (direction_of(a, (int)i) != direction_of(b, (int)i)) return false;
    return true;
}

/* Puts the body of a scan into the merged one. */
static member read_member(graph_walk *walk, merged_scan *s, uint32_t index) {
    const graph_node *node = &walk->from->nodes.data[index];
    graph_attribute copied;
    graph_walk_attribute(walk, node, GRAPH_SCAN_BODY, &copied);
    const graph *body = walk->to->subgraphs.data[copied.integer];
    member m = {.node = node,
                .index = index,
                .output = LIB_NEW_ARRAY(walk->to->arena, graph_id, body->outputs.count),
                .carries = (int)node->attribute[GRAPH_SCAN_CARRIES].integer,
                .sequences = (int)node->attribute[GRAPH_SCAN_SEQUENCES].integer,
                .conditional = node->attribute[GRAPH_SCAN_CONDITIONAL].integer != 0};
    m.stacks = (int)body->outputs.count - m.carries - m.conditional;
    if (s->body->inputs.count == 0)
        for (uint32_t i = 0; i < body->inputs.count; i++)
            graph_new_input(s->body, NULL, graph_shape_of(body, body->inputs.data[i]));
    graph_inline(body, s->body, s->body->inputs.data, m.output);
    return m;
}

/* The number of the stack of this element and direction, which is added if there is none. */
static int stack_of(lib_arena *arena, merged_scan *s, graph_id element, int64_t reverse) {
    for (uint32_t i = 0; i < s->element.count; i++)
        if (s->element.data[i] == element && s->reverse.data[i] == reverse) return (int)i;
    lib_vec_push(arena, &s->element, element);
    lib_vec_push(arena, &s->reverse, reverse);
    return (int)s->element.count - 1;
}

static graph_id emit_merged(graph_walk *walk, merged_scan *s) {
    graph *to = walk->to;
    const member *first = &s->members.data[0];
    graph_attribute attribute[sizeof first->node->op->attribute / sizeof *first->node->op->attribute] = {{0}};
    int64_t *reverse = LIB_NEW_ARRAY(to->arena, int64_t, (size_t)first->sequences + s->element.count);
    for (int i = 0; first->node->op->attribute[i].name; i++)
        if (i != GRAPH_SCAN_BODY) graph_walk_attribute(walk, first->node, i, &attribute[i]);
    for (int i = 0; i < first->carries + first->conditional; i++) graph_new_output(s->body, NULL, first->output[i]);
    for (uint32_t i = 0; i < s->element.count; i++) graph_new_output(s->body, NULL, s->element.data[i]);
    for (int i = 0; i < first->sequences; i++) reverse[i] = direction_of(first->node, i);
    for (uint32_t i = 0; i < s->element.count; i++) reverse[first->sequences + (int)i] = s->reverse.data[i];
    attribute[GRAPH_SCAN_BODY] = graph_set_integer("body", graph_add_subgraph(to, s->body)).value;
    attribute[GRAPH_SCAN_REVERSE] = graph_set_list("reverse", first->sequences + (int)s->element.count, reverse).value;
    return graph_emit(to, first->node->op, first->node->inputs, graph_walk_inputs(walk, first->node), attribute);
}

/* Merges the scan with later ones; false: there are none. */
static bool merge(graph_walk *walk, merging *all, uint32_t index) {
    const graph *from = walk->from;
    lib_arena *arena = walk->to->arena;
    merged_scan s = {.body = NULL};
    for (uint32_t i = index + 1; i < from->nodes.count; i++) {
        if (all->results[i] || !may_merge(&from->nodes.data[index], &from->nodes.data[i])) continue;
        if (!s.body) {
            s.body = graph_new_inside(walk->to);
            const member own = read_member(walk, &s, index);
            lib_vec_push(arena, &s.members, own);
        }
        const member m = read_member(walk, &s, i), *first = &s.members.data[0];
        bool same = true;
        for (int k = 0; k < m.carries + m.conditional; k++) same = same && m.output[k] == first->output[k];
        if (same) lib_vec_push(arena, &s.members, m);
    }
    if (s.members.count < 2) return false;
    for (uint32_t i = 0; i < s.members.count; i++) {
        member *m = &s.members.data[i];
        graph_id *results = all->results[m->index] = LIB_NEW_ARRAY(arena, graph_id, (size_t)m->node->results);
        for (int k = 0; k < m->carries; k++) results[k] = (graph_id)k;
        for (int k = 0; k < m->stacks; k++) {
            const int stack = stack_of(arena, &s, m->output[m->carries + m->conditional + k],
                                       direction_of(m->node, m->sequences + k));
            results[m->carries + k] = (graph_id)(m->carries + stack);
        }
    }
    const graph_id base = emit_merged(walk, &s);
    for (uint32_t i = 0; i < s.members.count; i++) {
        const member *m = &s.members.data[i];
        graph_id *results = all->results[m->index];
        if (m->conditional) results[m->carries + m->stacks] = (graph_id)m->carries + s.element.count;
        for (int k = 0; k < m->node->results; k++) results[k] += base;
    }
    return true;
}

static void pass_merge(graph_walk *walk) {
    const graph *from = walk->from;
    const bool *live = graph_live_nodes(walk->to->arena, from);
    merging all = {LIB_NEW_ARRAY(walk->to->arena, graph_id *, from->nodes.count)};
    for (uint32_t i = 0; i < from->nodes.count; i++) {
        const graph_node *node = &from->nodes.data[i];
        if (!live[i]) continue;
        if (all.results[i] || (is_scan(node) && merge(walk, &all, i)))
            graph_walk_record(walk, node, all.results[i]);
        else
            graph_walk_node(walk, i);
    }
}

graph *graph_merge_scans(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, pass_merge, NULL);
}
