/* Which values a training step keeps for its backward sweep. Fusion keeps what the backward sweep reads; often others of fewer bytes suffice, from
 * which maps and moves compute it again: a pre-activation in place of the activation and its derivative, what a norm reads in place of what it
 * gives. The values with the fewest bytes are a minimum cut between what is computed once, contractions and sums, and what the backward sweep reads
 * (Chen et al. 2016 recompute by layers; the cut as in PyTorch's partitioner, He 2022). Of equal cuts, the one that computes least again is
 * taken. What is computed again reads what is kept by `again`, across which nothing is fused. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/recompute.h"
#include "graph/sweep.h"

/* ---- maximum flow (Dinic 1970) ---------------------------------------------------------------------------------------- */

#define UNLIMITED (INT64_MAX / 4)
#define UNREACHED UINT32_MAX

/* An arc and its reverse are neighbours: number i and i ^ 1. */
typedef struct arc {
    uint32_t to;
    /* 1 + the next arc from the same place; 0: none */
    uint32_t after;
    int64_t left;
} arc;

typedef struct network {
    lib_arena *arena;
    uint32_t places;
    lib_vec(arc) arcs;
    /* by place: 1 + an arc from it, 0: none; the same of those that are not yet tried; distance from the start */
    uint32_t *first, *next, *level;
    uint32_t *queue;
} network;

static network new_network(lib_arena *arena, uint32_t places) {
    return (network){.arena = arena,
                     .places = places,
                     .first = LIB_NEW_ARRAY(arena, uint32_t, places),
                     .next = LIB_NEW_ARRAY(arena, uint32_t, places),
                     .level = LIB_NEW_ARRAY(arena, uint32_t, places),
                     .queue = LIB_NEW_ARRAY(arena, uint32_t, places)};
}

static void add_arc(network *w, uint32_t from, uint32_t to, int64_t capacity) {
    lib_vec_push(w->arena, &w->arcs, ((arc){to, w->first[from], capacity}));
    w->first[from] = w->arcs.count;
    lib_vec_push(w->arena, &w->arcs, ((arc){from, w->first[to], 0}));
    w->first[to] = w->arcs.count;
}

/* Sets the levels of what can be reached; is the end among it? */
static bool find_levels(network *w, uint32_t start, uint32_t end) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < w->places; p++) w->level[p] = UNREACHED;
    w->level[start] = 0;
    w->queue[count++] = start;
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t i = w->first[w->queue[at]]; i; i = w->arcs.data[i - 1].after) {
            const arc *a = &w->arcs.data[i - 1];
            if (!a->left || w->level[a->to] != UNREACHED) continue;
            w->level[a->to] = w->level[w->queue[at]] + 1;
            w->queue[count++] = a->to;
        }
    return w->level[end] != UNREACHED;
}

/* The next arc from the place that leads one level up; 0: none. */
static uint32_t next_arc(network *w, uint32_t place) {
    uint32_t i = w->next[place];
    while (i && !(w->arcs.data[i - 1].left && w->level[w->arcs.data[i - 1].to] == w->level[place] + 1))
        i = w->arcs.data[i - 1].after;
    return w->next[place] = i;
}

static void push_flow(network *w, uint32_t start, uint32_t end, uint32_t *path) {
    uint32_t place = start, length = 0;
    memcpy(w->next, w->first, w->places * sizeof *w->next);
    for (;;) {
        if (place == end) {
            int64_t least = UNLIMITED;
            for (uint32_t i = 0; i < length; i++)
                if (w->arcs.data[path[i]].left < least) least = w->arcs.data[path[i]].left;
            for (uint32_t i = 0; i < length; i++) {
                w->arcs.data[path[i]].left -= least;
                w->arcs.data[path[i] ^ 1].left += least;
            }
            place = start;
            length = 0;
        }
        const uint32_t i = next_arc(w, place);
        if (i) {
            path[length++] = i - 1;
            place = w->arcs.data[i - 1].to;
        } else if (place == start) {
            return;
        } else {
            w->level[place] = UNREACHED;
            place = w->arcs.data[path[--length] ^ 1].to;
        }
    }
}

/* By place: is it on the end's side of the minimum cut that is closest to the end? */
static bool *cut_off(network *w, uint32_t start, uint32_t end) {
    uint32_t *path = LIB_NEW_ARRAY(w->arena, uint32_t, w->places), count = 0;
    bool *side = LIB_NEW_ARRAY(w->arena, bool, w->places);
    while (find_levels(w, start, end)) push_flow(w, start, end, path);
    side[end] = true;
    w->queue[count++] = end;
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t i = w->first[w->queue[at]]; i; i = w->arcs.data[i - 1].after) {
            const uint32_t from = w->arcs.data[i - 1].to;
            if (side[from] || !w->arcs.data[(i - 1) ^ 1].left) continue;
            side[from] = true;
            w->queue[count++] = from;
        }
    return side;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------- */

typedef struct keeping {
    const graph *g;
    lib_arena *arena;
    const bool *live;
    /* by node: it is a source, or computed in the forward sweep from such alone, or by maps and moves from such */
    bool *early;
    /* by value: it is not kept for those that are not early, but computed again */
    bool *again;
    /* by node: its own value is needed, its value computed again */
    bool *once, *twice;
    /* by value of the new graph, of a value of g: computed again; as what is computed again reads it; 0: not so far */
    graph_id *copy, *reads;
} keeping;

static bool is_source(const graph_node *node) {
    return node->op->class_ == GRAPH_SOURCE;
}

/* Of the same bits whenever it is computed, for next to nothing. */
static bool is_cheap(const graph_node *node) {
    return !node->impure && node->results == 1 &&
           (node->op->class_ == GRAPH_MAP ||
            (node->op->class_ == GRAPH_INJECTIVE && node->op->structure != GRAPH_UNSTRUCTURED));
}

static uint32_t node_of(const keeping *k, graph_id value) {
    return k->g->values.data[value].node;
}

static void find_early(keeping *k, const uint8_t *sweeps) {
    for (uint32_t n = 0; n < k->g->nodes.count; n++) {
        const graph_node *node = &k->g->nodes.data[n];
        bool early = is_source(node) || is_cheap(node) || (sweeps[n] == GRAPH_SWEEP_FORWARD && !node->impure);
        for (int i = 0; early && i < node->inputs; i++) early = !node->input[i] || k->early[node_of(k, node->input[i])];
        k->early[n] = early;
    }
}

/* Bytes, with a symbol as 64. */
static int64_t bytes_of(const keeping *k, const uint64_t *sizes, graph_id value) {
    const graph_shape *shape = graph_shape_of(k->g, value);
    const tir_evaluator evaluator = {.variables = sizes};
    int64_t bytes = (int64_t)lib_dtype_size(shape->dtype);
    for (int d = 0; d < shape->rank; d++) {
        const int64_t size = (int64_t)tir_evaluate(k->g->pool, shape->dim[d], &evaluator);
        if (size <= 0) return 0;
        bytes = bytes > (INT64_C(1) << 40) / size ? INT64_C(1) << 40 : bytes * size;
    }
    return bytes;
}

/* Places of the network: the start, the end, and two of each value, before and behind its bytes. */
enum { START, END };
static uint32_t before(graph_id value) {
    return 2 * value;
}
static uint32_t behind(graph_id value) {
    return 2 * value + 1;
}

static void add_early(const keeping *k, network *w, const graph_node *node, const int64_t *bytes) {
    for (int r = 0; r < node->results; r++) {
        const graph_id value = node->first + (graph_id)r;
        add_arc(w, before(value), behind(value), bytes[value]);
        if (!is_cheap(node)) add_arc(w, START, before(value), UNLIMITED);
        for (int i = 0; is_cheap(node) && i < node->inputs; i++)
            if (node->input[i] && !is_source(graph_node_of(k->g, node->input[i])))
                add_arc(w, behind(node->input[i]), before(value), UNLIMITED);
    }
}

/* What contractions and sums read is in memory for them; others would be written for the backward sweep alone, which counts half as much again. */
static void add_writes(const keeping *k, int64_t *bytes) {
    const graph *g = k->g;
    bool *stored = LIB_NEW_ARRAY(k->arena, bool, (size_t)g->values.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        for (int i = 0; k->live[n] && k->early[n] && !is_cheap(node) && i < node->inputs; i++)
            stored[node->input[i]] = true;
    }
    for (graph_id v = 1; v < g->values.count; v++)
        if (!stored[v]) bytes[v] += bytes[v] / 2;
}

static void choose(keeping *k) {
    const graph *g = k->g;
    network w = new_network(k->arena, 2 * g->values.count + 2);
    int64_t *bytes = LIB_NEW_ARRAY(k->arena, int64_t, (size_t)g->values.count + 1);
    uint64_t *sizes = LIB_NEW_ARRAY(k->arena, uint64_t, (size_t)g->pool->variables.count + 1);
    bool *read = LIB_NEW_ARRAY(k->arena, bool, (size_t)g->values.count + 1);
    for (uint32_t v = 0; v < g->pool->variables.count; v++) sizes[v] = 64;
    for (graph_id v = 1; v < g->values.count; v++) bytes[v] = bytes_of(k, sizes, v);
    add_writes(k, bytes);
    for (uint32_t o = 0; o < g->outputs.count; o++) bytes[g->outputs.data[o]] = 0; /* kept for the host */
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (!k->live[n] || is_source(node)) continue;
        if (k->early[n]) add_early(k, &w, node, bytes);
        for (int i = 0; i < node->inputs && !k->early[n]; i++) {
            const graph_id value = node->input[i];
            if (!value || read[value] || !k->early[node_of(k, value)] || is_source(graph_node_of(g, value))) continue;
            read[value] = true;
            add_arc(&w, behind(value), END, UNLIMITED);
        }
    }
    const bool *side = cut_off(&w, START, END);
    for (graph_id v = 1; v < g->values.count; v++) k->again[v] = side[before(v)] && side[behind(v)];
}

static void need(keeping *k, const graph_node *node, bool again) {
    for (int i = 0; i < node->inputs; i++) {
        if (!node->input[i]) continue;
        bool *needed = again && k->again[node->input[i]] ? k->twice : k->once;
        needed[node_of(k, node->input[i])] = true;
    }
}

static void find_needed(keeping *k) {
    const graph *g = k->g;
    for (uint32_t o = 0; o < g->outputs.count; o++) k->once[node_of(k, g->outputs.data[o])] = true;
    for (uint32_t n = g->nodes.count; n-- > 0;) {
        const graph_node *node = &g->nodes.data[n];
        k->once[n] = k->once[n] || is_source(node) || (k->live[n] && !k->early[n]);
        if (k->once[n]) need(k, node, !k->early[n]);
        if (k->twice[n]) need(k, node, true);
    }
}

/* ---- the new graph -------------------------------------------------------------------------------------------------------- */

static graph_id read_again(keeping *k, graph_walk *walk, graph_id value) {
    if (!value || k->copy[value]) return value ? k->copy[value] : 0;
    const graph_node *node = graph_node_of(k->g, value);
    const graph_id now = walk->map[value];
    if (is_source(node) && !graph_is_input(node)) return now;
    if (!k->reads[value]) k->reads[value] = graph_emit_with(walk->to, "again", 1, &now, 0, NULL);
    return k->reads[value];
}

static void copy_node(keeping *k, graph_walk *walk, const graph_node *node) {
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    graph_id *input = LIB_NEW_ARRAY(k->arena, graph_id, (size_t)node->inputs + 1);
    graph_walk_attributes(walk, node, attribute);
    const graph_id first = walk->to->values.count;
    for (int i = 0; i < node->inputs; i++) input[i] = read_again(k, walk, node->input[i]);
    k->copy[node->first] = graph_emit(walk->to, node->op, node->inputs, input, attribute);
    graph_mark_sweep(walk->to, first, walk->to->values.count - first, GRAPH_SWEEP_BACKWARD);
    walk->recorded = walk->to->values.count;
}

/* Nodes that are early do not depend on others. */
static void emit_all(keeping *k, graph_walk *walk) {
    const graph *g = k->g;
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (k->early[n] && k->once[n]) graph_walk_node(walk, n);
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (k->twice[n]) copy_node(k, walk, &g->nodes.data[n]);
    graph_id *once = LIB_NEW_ARRAY(k->arena, graph_id, (size_t)g->values.count + 1);
    memcpy(once, walk->map, g->values.count * sizeof *once);
    for (graph_id v = 1; v < g->values.count; v++)
        if (k->copy[v]) walk->map[v] = k->copy[v];
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (!k->early[n] && k->once[n]) graph_walk_node(walk, n);
    for (graph_id v = 1; v < g->values.count; v++)
        if (once[v]) walk->map[v] = once[v];
}

/* Sub-graphs stay. */
static void pass(graph_walk *walk) {
    const graph *g = walk->from;
    lib_arena *arena = walk->to->arena;
    const uint8_t *sweeps = graph_sweeps(arena, g, 0);
    const size_t nodes = (size_t)g->nodes.count + 1, values = (size_t)g->values.count + 1;
    if (!sweeps || g->parent) {
        graph_walk_all(walk);
        return;
    }
    keeping k = {.g = g,
                 .arena = arena,
                 .live = graph_live_nodes(arena, g),
                 .early = LIB_NEW_ARRAY(arena, bool, nodes),
                 .again = LIB_NEW_ARRAY(arena, bool, values),
                 .once = LIB_NEW_ARRAY(arena, bool, nodes),
                 .twice = LIB_NEW_ARRAY(arena, bool, nodes),
                 .copy = LIB_NEW_ARRAY(arena, graph_id, values),
                 .reads = LIB_NEW_ARRAY(arena, graph_id, values)};
    find_early(&k, sweeps);
    choose(&k);
    find_needed(&k);
    emit_all(&k, walk);
}

graph *graph_keep_least(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, pass, NULL);
}
