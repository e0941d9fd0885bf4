/* Copies and parts of regions, see recompute.h. */
#include "graph/recompute.h"

#include "graph/op.h"

static bool may_repeat(const graph_node *node) {
    if (node->impure) return false;
    switch (node->op->class_) {
    case GRAPH_SOURCE:
    case GRAPH_MAP:
    case GRAPH_CONTRACT: return true;
    case GRAPH_INJECTIVE: return node->op->structure != GRAPH_UNSTRUCTURED;
    case GRAPH_REDUCE: return node->op->structure == GRAPH_FOLDS || node->op->structure == GRAPH_FOLDS_WINDOWS;
    case GRAPH_SCATTER:
    case GRAPH_OPAQUE:
    case GRAPH_CONTROL:
    case GRAPH_COMPOSITE: break;
    }
    return false;
}

bool graph_may_recompute(const graph *bound, const graph_region *region) {
    bool may = region->kind == GRAPH_REGION_KERNEL;
    for (uint32_t n = 0; n < region->node_count; n++) may = may && may_repeat(&bound->nodes.data[region->nodes[n]]);
    return may;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

typedef struct part {
    lib_arena *arena;
    const graph *g;
    const graph_region *region;
    /* by number of the region's node */
    bool *needed;
    /* by value, a set: what the needed nodes read */
    lib_map read;
} part;

static bool is_read(const part *p, graph_id value) {
    return lib_map_first(&p->read, value) != LIB_MAP_END;
}

static void read_value(part *p, graph_id value) {
    if (value && !is_read(p, value)) lib_map_insert(p->arena, &p->read, value, value);
}

/* Bit k of the set is for region->outputs[k]. */
static bool is_among(const graph_region *region, uint64_t outputs, graph_id value) {
    bool among = false;
    for (uint32_t o = 0; o < region->output_count && o < 64; o++)
        among = among || (outputs >> o & 1 && region->outputs[o] == value);
    return among;
}

static void find_needed(part *p, uint64_t wanted, uint64_t given) {
    for (uint32_t n = p->region->node_count; n-- > 0;) {
        const graph_node *node = &p->g->nodes.data[p->region->nodes[n]];
        for (int k = 0; k < node->results; k++) {
            const graph_id value = node->first + (graph_id)k;
            p->needed[n] = p->needed[n] || is_among(p->region, wanted, value) ||
                           (is_read(p, value) && !is_among(p->region, given, value));
        }
        for (int k = 0; p->needed[n] && k < node->inputs; k++) read_value(p, node->input[k]);
    }
}

graph_region graph_region_part(lib_arena *arena, const graph *bound, const graph_region *region, uint64_t wanted,
                               uint64_t given) {
    part p = {.arena = arena, .g = bound, .region = region};
    p.needed = LIB_NEW_ARRAY(arena, bool, (size_t)region->node_count + 1);
    find_needed(&p, wanted, given);
    graph_region out = *region;
    uint32_t *nodes = LIB_NEW_ARRAY(arena, uint32_t, (size_t)region->node_count + 1);
    graph_id *inputs = LIB_NEW_ARRAY(arena, graph_id, (size_t)region->input_count + region->output_count + 1);
    graph_id *outputs = LIB_NEW_ARRAY(arena, graph_id, (size_t)region->output_count + 1);
    out.node_count = out.input_count = out.output_count = out.number_count = 0;
    for (uint32_t n = 0; n < region->node_count; n++)
        if (p.needed[n]) nodes[out.node_count++] = region->nodes[n];
    const uint32_t first_number = region->input_count - region->number_count;
    for (uint32_t i = 0; i < first_number; i++)
        if (is_read(&p, region->inputs[i])) inputs[out.input_count++] = region->inputs[i];
    for (uint32_t o = 0; o < region->output_count && o < 64; o++) {
        if (wanted >> o & 1) outputs[out.output_count++] = region->outputs[o];
        if (given >> o & 1 && is_read(&p, region->outputs[o])) inputs[out.input_count++] = region->outputs[o];
    }
    for (uint32_t i = first_number; i < region->input_count; i++) {
        if (!is_read(&p, region->inputs[i])) continue;
        inputs[out.input_count++] = region->inputs[i];
        out.number_count++;
    }
    if (out.node_count < region->node_count) out.name = lib_arena_format(arena, "%s_part", region->name);
    out.nodes = nodes;
    out.inputs = inputs;
    out.outputs = outputs;
    return out;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

graph *graph_extend(lib_arena *arena, const graph *bound) {
    graph *g = lib_arena_copy(arena, bound, sizeof *bound);
    g->arena = arena;
    g->nodes.data = NULL;
    g->values.data = NULL;
    g->nodes.count = g->nodes.capacity = g->values.count = g->values.capacity = 0;
    lib_vec_reserve(arena, &g->nodes, bound->nodes.count + bound->nodes.count / 2);
    lib_vec_reserve(arena, &g->values, bound->values.count + bound->values.count / 2);
    for (uint32_t n = 0; n < bound->nodes.count; n++) lib_vec_push(arena, &g->nodes, bound->nodes.data[n]);
    for (uint32_t v = 0; v < bound->values.count; v++) lib_vec_push(arena, &g->values, bound->values.data[v]);
    graph_id *outputs = lib_arena_copy(arena, bound->outputs.data, (size_t)bound->outputs.count * sizeof *outputs);
    g->outputs.data = outputs;
    return g;
}

/* Values of the region and the graph's values that stand for them in the copy. */
static graph_id now_of(const lib_map *now, graph_id value) {
    const uint32_t at = lib_map_first(now, value);
    return at == LIB_MAP_END ? value : now->slots[at].value;
}

static uint32_t copy_node(graph *g, uint32_t index, lib_map *now) {
    graph_node node = g->nodes.data[index];
    graph_id *input = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)node.inputs + 1);
    const graph_id first = node.first;
    for (int k = 0; k < node.inputs; k++) input[k] = node.input[k] ? now_of(now, node.input[k]) : 0;
    node.input = input;
    node.first = g->values.count;
    for (int k = 0; k < node.results; k++) {
        graph_value value = g->values.data[first + (graph_id)k];
        value.node = g->nodes.count;
        lib_map_insert(g->arena, now, first + (graph_id)k, g->values.count);
        lib_vec_push(g->arena, &g->values, value);
    }
    lib_vec_push(g->arena, &g->nodes, node);
    return g->nodes.count - 1;
}

graph_region graph_region_copy(graph *g, const graph_region *region, const graph_id *inputs) {
    graph_region out = *region;
    lib_map now = {0};
    uint32_t *nodes = LIB_NEW_ARRAY(g->arena, uint32_t, (size_t)region->node_count + 1);
    graph_id *outputs = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)region->output_count + 1);
    for (uint32_t i = 0; i < region->input_count; i++) lib_map_insert(g->arena, &now, region->inputs[i], inputs[i]);
    for (uint32_t n = 0; n < region->node_count; n++) nodes[n] = copy_node(g, region->nodes[n], &now);
    for (uint32_t o = 0; o < region->output_count; o++) outputs[o] = now_of(&now, region->outputs[o]);
    out.nodes = nodes;
    out.inputs = lib_arena_copy(g->arena, inputs, (size_t)region->input_count * sizeof *inputs);
    out.outputs = outputs;
    return out;
}
