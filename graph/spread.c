/* Sums of values that are spread: padded with zeros between any two elements, as derivatives of strided slices and of poolings are. An element
 * of the sum is in one phase of the stride, which few of the values reach. The phases are summed apart, without the zeros, and interleaved,
 * as those of a transposed convolution are (ops_transposed.c). The bits are the same: a zero is added where others were. */
#include "graph/build.h"
#include "graph/internal.h"

enum { PADS_LOW, PADS_HIGH, PADS_INTERIOR, PHASES_MOST = 64 };

/* By value of the old graph: the first spread value of a sum of them, of no further readers; 0: none. */
typedef struct spreads {
    graph_id *first;
    const uint32_t *readers;
    /* by node: it is such a sum, and not a part of a longer one */
    bool *whole;
} spreads;

/* A sum of spread values, and the axes along which they are. */
typedef struct sum {
    graph_walk *walk;
    graph_shape shape;
    int axis[DLC_MAX_RANK], axes;
    int64_t stride[DLC_MAX_RANK];
    /* all values are in one phase */
    bool together;
} sum;

static int64_t of_list(const graph_node *pad, int which, int axis) {
    const graph_attribute *list = &pad->attribute[which];
    return list->count ? list->list[axis] : 0;
}

static const graph_node *node_of(const graph *g, graph_id value) {
    return &g->nodes.data[g->values.data[value].node];
}

/* Is the value a tensor with zeros between its elements? Along axes of known size. */
static bool is_spread(const graph *g, const graph_node *node) {
    if (node->op->structure != GRAPH_PADS) return false;
    const graph_shape *x = &g->values.data[node->input[0]].shape;
    double fill;
    int64_t phases = 1, size;
    int rank = x->rank;
    if (!graph_is_number(g, node->input[1], &fill) || fill != 0 || __builtin_signbit(fill)) return false;
    for (int i = 0; i < x->rank; i++) {
        const int64_t between = of_list(node, PADS_INTERIOR, i);
        if (between && (!tir_is_const(g->pool, x->dim[i], &size) || size == 0)) return false;
        if (between >= PHASES_MOST || (phases *= between + 1) > PHASES_MOST) return false;
        rank += between > 0;
    }
    return phases > 1 && rank <= DLC_MAX_RANK;
}

static bool same_strides(const graph *g, graph_id a, graph_id b) {
    for (int i = 0; i < g->values.data[a].shape.rank; i++)
        if (of_list(node_of(g, a), PADS_INTERIOR, i) != of_list(node_of(g, b), PADS_INTERIOR, i)) return false;
    return true;
}

static bool is_sum(const graph_node *node) {
    return graph_map_operation(node->op) == TIR_ADD && node->inputs == 2;
}

static void find_sums(const graph *g, spreads *all, const bool *live) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (!live[i]) continue;
        if (is_spread(g, node)) all->first[node->first] = node->first;
        if (!is_sum(node)) continue;
        const graph_id x = all->first[node->input[0]], y = all->first[node->input[1]];
        if (!x || !y || !same_strides(g, x, y) || all->readers[node->input[0]] > 1 || all->readers[node->input[1]] > 1)
            continue;
        all->first[node->first] = x;
        all->whole[i] = true;
        for (int k = 0; k < 2; k++) all->whole[g->values.data[node->input[k]].node] = false;
    }
}

/* The elements of a spread value in a phase, whose first is phase[k] along axis k; 0: none are there. */
static graph_id spread_in_phase(const sum *s, const graph_node *pad, const int64_t *phase) {
    graph *g = s->walk->to;
    int64_t low[DLC_MAX_RANK], high[DLC_MAX_RANK];
    for (int i = 0; i < s->shape.rank; i++) low[i] = of_list(pad, PADS_LOW, i), high[i] = of_list(pad, PADS_HIGH, i);
    for (int k = 0; k < s->axes; k++) {
        const int i = s->axis[k];
        const int64_t stride = s->stride[k], before = tir_floor_div(low[i] - phase[k], stride);
        if (before * stride != low[i] - phase[k]) return 0;
        /* of n elements in a phase of n + more */
        const int64_t more = -tir_floor_div(-(low[i] + high[i] - (stride - 1)), stride);
        low[i] = before, high[i] = more - before;
    }
    const graph_id *input = graph_walk_inputs(s->walk, pad);
    return graph_pad(g, input[0], input[1], low, high);
}

/* The sum in a phase; 0: no value reaches it. *all: every one does. */
static graph_id sum_in_phase(const sum *s, graph_id value, const int64_t *phase, bool *all) {
    const graph_node *node = node_of(s->walk->from, value);
    if (node->op->structure == GRAPH_PADS) {
        const graph_id some = spread_in_phase(s, node, phase);
        *all = *all && some;
        return some;
    }
    const graph_id x = sum_in_phase(s, node->input[0], phase, all), y = sum_in_phase(s, node->input[1], phase, all);
    return x && y ? graph_add(s->walk->to, x, y) : x ? x : y;
}

/* Phases from axis number k on, interleaved; behind each of these axes stands one for its phases. */
static graph_id interleaved(sum *s, graph_id value, int k, int64_t *phase) {
    graph *g = s->walk->to;
    if (k < s->axes) {
        graph_id part[PHASES_MOST];
        for (int64_t p = 0; p < s->stride[k]; p++) {
            phase[k] = p;
            part[p] = interleaved(s, value, k + 1, phase);
        }
        return graph_concat(g, (int)s->stride[k], part, s->axis[k] + k + 1);
    }
    bool all = true;
    const graph_id x = sum_in_phase(s, value, phase, &all);
    s->together = s->together || all;
    tir_expr dims[DLC_MAX_RANK];
    int rank = 0;
    for (int i = 0, axis = 0; i < s->shape.rank; i++) {
        const bool spread = axis < s->axes && s->axis[axis] == i;
        const tir_expr stride = tir_index(g->pool, spread ? s->stride[axis] : 1);
        dims[rank++] = tir_ceil_div(g->pool, s->shape.dim[i], stride);
        if (spread) dims[rank++] = tir_index(g->pool, 1);
        axis += spread;
    }
    return x ? graph_reshape(g, x, rank, dims) : graph_full(g, s->shape.dtype, rank, dims, 0);
}

static void emit_sum(graph_walk *walk, const spreads *all, const graph_node *node) {
    graph *g = walk->to;
    const graph_id first = all->first[node->first];
    sum s = {.walk = walk, .shape = walk->from->values.data[node->first].shape};
    int64_t phase[DLC_MAX_RANK];
    tir_expr whole[DLC_MAX_RANK], start[DLC_MAX_RANK];
    for (int i = 0; i < s.shape.rank; i++) {
        const int64_t stride = of_list(node_of(walk->from, first), PADS_INTERIOR, i) + 1;
        s.shape.dim[i] = graph_walk_dim(walk, s.shape.dim[i]);
        start[i] = tir_index(g->pool, 0);
        whole[i] = tir_mul(g->pool, tir_ceil_div(g->pool, s.shape.dim[i], tir_index(g->pool, stride)),
                           tir_index(g->pool, stride));
        if (stride > 1) s.axis[s.axes] = i, s.stride[s.axes++] = stride;
    }
    graph_id x = interleaved(&s, node->first, 0, phase);
    if (!s.together) x = graph_add_number(g, x, 0);
    x = graph_slice(g, graph_reshape(g, x, s.shape.rank, whole), start, s.shape.dim, NULL);
    graph_walk_record(walk, node, &x);
}

static void pass(graph_walk *walk) {
    const graph *from = walk->from;
    lib_arena *arena = walk->to->arena;
    const bool *live = graph_live_nodes(arena, from);
    spreads all = {LIB_NEW_ARRAY(arena, graph_id, from->values.count), graph_count_readers(arena, from, live),
                   LIB_NEW_ARRAY(arena, bool, from->nodes.count)};
    find_sums(from, &all, live);
    for (uint32_t i = 0; i < from->nodes.count; i++) {
        if (!live[i]) continue;
        if (all.whole[i])
            emit_sum(walk, &all, &from->nodes.data[i]);
        else
            graph_walk_node(walk, i);
    }
}

graph *graph_join_spread(lib_arena *arena, const graph *g) {
    return graph_any_node(g, is_spread) ? graph_walk_run(arena, g, g->phase, NULL, pass, NULL) : (graph *)(uintptr_t)g;
}
