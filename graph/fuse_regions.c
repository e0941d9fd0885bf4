/* Turns clusters into regions: a cluster's nodes with copies of the cheap nodes that they read, inputs, outputs, a name. Lists the
 * regions in an order in which they can run. */
#include "graph/fuse_internal.h"

#include <stdlib.h>

bool graph_is_scalar_constant(const graph *g, graph_id value) {
    const graph_constant *constant = graph_constant_of(g, value);
    dlc_dtype dtype = graph_shape_of(g, value)->dtype;
    return constant && constant->size == lib_dtype_size(dtype) && !lib_dtype_is_stored_otherwise(dtype);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void graph_fuse_sort(fuse_nodes *nodes) {
    qsort(nodes->data, nodes->count, sizeof *nodes->data, ascending);
}

/* Marks the cluster's nodes and copies of all cheap nodes they read. */
static void mark_nodes(fuser *f, const fuse_nodes *core) {
    fuse_nodes nodes = {0};
    f->mark++;
    for (uint32_t i = 0; i < core->count; i++) {
        f->inside[core->data[i]] = f->mark;
        lib_vec_push(f->arena, &nodes, core->data[i]);
    }
    for (uint32_t i = 0; i < nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[nodes.data[i]];
        for (int k = 0; k < node->inputs; k++) {
            if (!node->input[k]) continue;
            uint32_t below = f->g->values.data[node->input[k]].node;
            if (f->role[below] != FUSE_CHEAP || f->inside[below] == f->mark) continue;
            f->inside[below] = f->mark;
            lib_vec_push(f->arena, &nodes, below);
        }
    }
}

/* The first cheap operand's node that has this mark; UINT32_MAX: none. */
static uint32_t cheap_operand(const fuser *f, const graph_node *node, uint32_t mark) {
    for (int k = 0; k < node->inputs; k++) {
        if (!node->input[k]) continue;
        uint32_t below = f->g->values.data[node->input[k]].node;
        if (f->role[below] == FUSE_CHEAP && f->inside[below] == mark) return below;
    }
    return UINT32_MAX;
}

/* Lists the marked nodes: those of the cluster in ascending order, each after the copies that it is the first to read. So equal clusters
 * have equal lists, although the graph has one node for a value that several of them copy. */
static fuse_nodes list_nodes(fuser *f, const fuse_nodes *core) {
    fuse_nodes nodes = {0}, waiting = {0}, ascending_core = {0};
    const uint32_t marked = f->mark++; /* listed nodes get the new mark */
    for (uint32_t i = 0; i < core->count; i++) lib_vec_push(f->arena, &ascending_core, core->data[i]);
    graph_fuse_sort(&ascending_core);
    for (uint32_t i = 0; i < ascending_core.count; i++) {
        lib_vec_push(f->arena, &waiting, ascending_core.data[i]);
        while (waiting.count) {
            const uint32_t index = waiting.data[waiting.count - 1];
            const uint32_t below = cheap_operand(f, &f->g->nodes.data[index], marked);
            if (below != UINT32_MAX) {
                lib_vec_push(f->arena, &waiting, below);
                continue;
            }
            waiting.count--;
            if (f->inside[index] == f->mark) continue;
            f->inside[index] = f->mark;
            lib_vec_push(f->arena, &nodes, index);
        }
    }
    return nodes;
}

static graph_region_kind region_kind(const fuser *f, const fuse_nodes *core) {
    const graph_node *node = &f->g->nodes.data[core->data[0]];
    if (core->count == 1 && node->op->class_ == GRAPH_OPAQUE) return GRAPH_REGION_OPAQUE;
    if (core->count == 1 && node->op->class_ == GRAPH_CONTROL) return GRAPH_REGION_CONTROL;
    if (core->count == 1 && graph_fuse_is_view(f, node)) return GRAPH_REGION_VIEW;
    return GRAPH_REGION_KERNEL;
}

/* The names of the first four core nodes, and of all contractions after those, joined by _. */
static const char *region_name(const fuser *f, const graph_region *region) {
    enum { MOST = 4 };
    lib_text text;
    lib_text_init(&text, f->arena);
    int named_so_far = 0;
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_op *op = f->g->nodes.data[region->nodes[i]].op;
        if (f->role[region->nodes[i]] == FUSE_CHEAP && region->node_count > 1) continue;
        if (named_so_far++ >= MOST && op->class_ != GRAPH_CONTRACT) continue;
        lib_text_format(&text, "%s%s", text.length ? "_" : "", op->name);
    }
    return text.data;
}

/* Does a node outside the current region, or the host, read the value? */
static bool is_wanted(const fuser *f, uint32_t node, graph_id value) {
    for (uint32_t k = 0; k < f->users[node].count; k++) {
        const fuse_edge *e = &f->edges.data[f->users[node].data[k]];
        if (e->operand >= 0 && e->value == value && f->inside[e->user] != f->mark) return true;
    }
    return f->output[value];
}

static void find_inputs(fuser *f, graph_region *region) {
    const graph *g = f->g;
    lib_vec(graph_id) inputs = {0};
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_node *node = &g->nodes.data[region->nodes[i]];
        for (int k = 0; k < node->inputs; k++) {
            graph_id value = node->input[k];
            bool listed = !value || f->inside[g->values.data[value].node] == f->mark;
            if (!listed && region->kind == GRAPH_REGION_KERNEL) listed = graph_is_scalar_constant(g, value);
            if (listed || f->read[value] == f->mark) continue;
            f->read[value] = f->mark;
            lib_vec_push(f->arena, &inputs, value);
        }
    }
    region->inputs = inputs.data;
    region->input_count = inputs.count;
}

/* Outputs in ascending order of values; opaque and control nodes output all results, used or not. */
static void find_outputs(fuser *f, graph_region *region) {
    lib_vec(graph_id) outputs = {0};
    bool all = region->kind == GRAPH_REGION_OPAQUE || region->kind == GRAPH_REGION_CONTROL;
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_node *node = &f->g->nodes.data[region->nodes[i]];
        if (f->role[region->nodes[i]] != FUSE_CORE) continue;
        for (int k = 0; k < node->results; k++) {
            graph_id value = node->first + (graph_id)k;
            if (all || is_wanted(f, region->nodes[i], value)) lib_vec_push(f->arena, &outputs, value);
        }
    }
    region->outputs = outputs.data;
    region->output_count = outputs.count;
}

graph_region graph_fuse_region_of(fuser *f, const fuse_nodes *core) {
    mark_nodes(f, core);
    fuse_nodes nodes = list_nodes(f, core);
    graph_region region = {.kind = region_kind(f, core),
                           .nodes = nodes.data,
                           .node_count = nodes.count,
                           .layouts = f->given.layouts,
                           .machine = f->machine};
    region.name = region_name(f, &region);
    find_inputs(f, &region);
    find_outputs(f, &region);
    return region;
}

typedef struct region_lists {
    lib_vec(graph_region) regions;
    /* by value: the region whose output it is; UINT32_MAX: none */
    uint32_t *region_of;
} region_lists;

static void list_region(fuser *f, const fuse_cluster *c, region_lists *lists) {
    graph_region region = graph_fuse_region_of(f, &c->nodes);
    for (uint32_t i = 0; i < c->nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[c->nodes.data[i]];
        for (int k = 0; k < node->results; k++) lists->region_of[node->first + (graph_id)k] = lists->regions.count;
    }
    lib_vec_push(f->arena, &lists->regions, region);
}

/* Makes region names unique: dot_general, dot_general_2, ... Schedules refer to names. */
static void number_names(fuser *f, graph_regions *regions) {
    lib_map firsts = {0}; /* name -> the first region of that name */
    uint32_t *bearers = LIB_NEW_ARRAY(f->arena, uint32_t, regions->count);
    for (uint32_t i = 0; i < regions->count; i++) {
        graph_region *region = &regions->data[i];
        uint32_t first = i;
        if (!region->name) continue;
        uint64_t hash = lib_hash_string(region->name);
        for (uint32_t at = lib_map_first(&firsts, hash); at != LIB_MAP_END; at = lib_map_next(&firsts, hash, at))
            if (strcmp(regions->data[firsts.slots[at].value].name, region->name) == 0) first = firsts.slots[at].value;
        if (++bearers[first] == 1)
            lib_map_insert(f->arena, &firsts, hash, i);
        else
            region->name = lib_arena_format(f->arena, "%s_%u", region->name, bearers[first]);
    }
}

/* By region: the impure region that must run before it; UINT32_MAX: none. */
static uint32_t *impure_before(fuser *f, const region_lists *lists) {
    uint32_t *before = LIB_NEW_ARRAY(f->arena, uint32_t, lists->regions.count), previous = UINT32_MAX;
    for (uint32_t i = 0; i < lists->regions.count; i++) {
        bool impure = graph_fuse_is_impure(f, lists->regions.data[i].nodes[0]);
        before[i] = impure ? previous : UINT32_MAX;
        if (impure) previous = i;
    }
    return before;
}

/* Topological order by depth-first search, without recursion. */
static graph_regions in_running_order(fuser *f, const region_lists *lists) {
    uint32_t count = lists->regions.count;
    graph_regions out = {.data = LIB_NEW_ARRAY(f->arena, graph_region, count)};
    const uint32_t *before = impure_before(f, lists);
    uint8_t *done = LIB_NEW_ARRAY(f->arena, uint8_t, count); /* 1: on the stack, 2: emitted */
    uint32_t *next = LIB_NEW_ARRAY(f->arena, uint32_t, count);
    uint32_t *stack = LIB_NEW_ARRAY(f->arena, uint32_t, count);
    for (uint32_t root = 0; root < count; root++) {
        uint32_t depth = 0;
        if (!done[root]) stack[depth++] = root, done[root] = 1;
        while (depth) {
            uint32_t at = stack[depth - 1], step = next[at]++;
            const graph_region *region = &lists->regions.data[at];
            if (step > region->input_count) {
                done[at] = 2;
                depth--;
                out.data[out.count++] = *region;
                continue;
            }
            uint32_t below = step == region->input_count ? before[at] : lists->region_of[region->inputs[step]];
            if (below == UINT32_MAX || done[below] == 2) continue;
            if (done[below] == 1)
                lib_raise(f->arena->scope, DLC_INTERNAL, "fusion: regions depend on each other in a cycle");
            done[below] = 1;
            stack[depth++] = below;
        }
    }
    return out;
}

graph_regions graph_fuse_list_regions(fuser *f) {
    const graph *g = f->g;
    region_lists lists = {.region_of = LIB_NEW_ARRAY(f->arena, uint32_t, g->values.count)};
    for (uint32_t i = 0; i < g->values.count; i++) lists.region_of[i] = UINT32_MAX;
    for (uint32_t i = 0; i < f->clusters.count; i++)
        if (f->clusters.data[i].nodes.count) list_region(f, &f->clusters.data[i], &lists);
    graph_regions regions = in_running_order(f, &lists);
    number_names(f, &regions);
    regions.layouts = f->given.layouts;
    return regions;
}
