/* Forward sweep, backward sweep and update: marks, and which node belongs where. See sweep.h. */
#include "graph/sweep.h"

#include "graph/op.h"
#include "graph/origin.h"

void graph_mark_sweep(graph *g, graph_id first, uint32_t count, unsigned sweep) {
    const uint32_t list = sweep ? graph_origin_swept(g, sweep) : 0;
    for (graph_id v = first; v < first + count; v++) graph_origins_add(g, v, list);
}

unsigned graph_sweep_marks(const graph *g, graph_id value) {
    const uint32_t list = g->values.data[value].origins;
    return list ? graph_outermost(g)->origins.data[list].sweeps : 0;
}

static unsigned marks_of_node(const graph *g, const graph_node *node) {
    unsigned marks = 0;
    for (int r = 0; r < node->results; r++) marks |= graph_sweep_marks(g, node->first + (graph_id)r);
    return marks;
}

/* Are there derivatives among the nodes or in their sub-graphs? */
static bool has_derivatives(const graph *g) {
    for (graph_id v = 1; v < g->values.count; v++)
        if (graph_sweep_marks(g, v) & GRAPH_SWEEP_BACKWARD) return true;
    for (uint32_t s = 0; s < g->subgraphs.count; s++)
        if (has_derivatives(g->subgraphs.data[s])) return true;
    return false;
}

static bool branches_have_derivatives(const graph *g, const graph_node *node) {
    for (int i = 0; node->op->attribute[i].name; i++)
        if (node->op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH &&
            has_derivatives(g->subgraphs.data[node->attribute[i].integer]))
            return true;
    return false;
}

/* By marks and operands; 0: neither marked nor computed from derivatives. */
static unsigned found_from_operands(const graph *g, const uint8_t *sweeps, const graph_node *node) {
    const unsigned marks = marks_of_node(g, node);
    if (marks & GRAPH_SWEEP_FORWARD) return GRAPH_SWEEP_FORWARD;
    if (marks) return marks;
    if (node->op->class_ == GRAPH_CONTROL && branches_have_derivatives(g, node))
        return GRAPH_SWEEP_FORWARD | GRAPH_SWEEP_BACKWARD;
    for (int k = 0; k < node->inputs; k++)
        if (sweeps[g->values.data[node->input[k]].node] & (GRAPH_SWEEP_BACKWARD | GRAPH_SWEEP_UPDATE))
            return GRAPH_SWEEP_UPDATE;
    return 0;
}

/* The earliest sweep of a set. */
static unsigned earliest(unsigned set) {
    return set & (0U - set);
}

bool graph_sweeps_are_many(unsigned sweeps) {
    return sweeps != earliest(sweeps);
}

uint8_t *graph_sweeps(lib_arena *arena, const graph *g, unsigned within) {
    const bool inherits = within && !graph_sweeps_are_many(within);
    if (!inherits && !has_derivatives(g)) return NULL;
    uint8_t *sweeps = LIB_NEW_ARRAY(arena, uint8_t, (size_t)g->nodes.count + 1);
    uint8_t *readers = LIB_NEW_ARRAY(arena, uint8_t, (size_t)g->nodes.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (node->op->class_ == GRAPH_SOURCE) continue;
        sweeps[n] = (uint8_t)(inherits ? within : found_from_operands(g, sweeps, node));
    }
    /* What is not marked belongs to its first reader: masks of the forward sweep, the rate of an update. */
    for (uint32_t n = g->nodes.count; n-- > 0;) {
        const graph_node *node = &g->nodes.data[n];
        if (node->op->class_ == GRAPH_SOURCE) continue;
        if (!sweeps[n]) sweeps[n] = (uint8_t)(readers[n] ? earliest(readers[n]) : GRAPH_SWEEP_FORWARD);
        for (int k = 0; k < node->inputs; k++) readers[g->values.data[node->input[k]].node] |= sweeps[n];
    }
    return sweeps;
}

unsigned graph_region_sweeps(const graph *g, const uint8_t *sweeps, const graph_region *region) {
    unsigned all = 0, written = 0;
    for (uint32_t n = 0; sweeps && n < region->node_count; n++) all |= sweeps[region->nodes[n]];
    for (uint32_t o = 0; sweeps && o < region->output_count; o++)
        written |= sweeps[g->values.data[region->outputs[o]].node];
    return written & GRAPH_SWEEP_FORWARD ? all : all & ~(unsigned)GRAPH_SWEEP_FORWARD;
}

const char *graph_sweeps_text(unsigned sweeps) {
    static const char *const text[GRAPH_SWEEPS] = {"",
                                                   "forward",
                                                   "backward",
                                                   "forward and backward",
                                                   "update",
                                                   "forward and update",
                                                   "backward and update",
                                                   "forward, backward and update"};
    return text[sweeps];
}
