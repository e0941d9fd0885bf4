/* Bounds of all values of a graph (graph/bound.h), from those of its inputs, through sub-graphs and expansions. */
#include "graph/bound.h"

#include <math.h>

static graph_bound of_constant(const graph_constant *constant, const graph_shape *shape) {
    graph_bound y = {.low = INFINITY, .high = -INFINITY, .integral = true};
    if (lib_dtype_is_packed(shape->dtype)) return graph_bound_of_dtype(shape->dtype);
    const dlc_dtype dtype = shape->dtype == DLC_C64 ? DLC_F32 : shape->dtype;
    const size_t size = lib_dtype_size(dtype);
    for (size_t at = 0; at + size <= constant->size; at += size) {
        double x = lib_element_get_f64(dtype, (const char *)constant->bytes + at);
        y.special |= !isfinite(x);
        if (isfinite(x)) y.low = fmin(y.low, x), y.high = fmax(y.high, x);
        y.integral &= isfinite(x) && x == floor(x) && fabs(x) <= 256;
    }
    if (y.low > y.high) y.low = y.high = 0;
    return y;
}

/* `if`, `while`, `scan`: exact if all operands and sub-graphs are exact; an inexact loop has no bound. */
static graph_bound of_control(const graph_bound_node *b) {
    graph_bound y = graph_bound_join(b), *in = LIB_NEW_ARRAY(b->arena, graph_bound, (size_t)b->inputs + 1);
    const bool loop = b->op->structure != GRAPH_BRANCHES;
    for (int i = 0; i < b->inputs; i++) {
        in[i] = b->in[i];
        if (!loop) continue;
        graph_bound any = graph_bound_within(INFINITY);
        any.error = in[i].error;
        any.special = true;
        in[i] = any;
    }
    for (int s = 0; b->op->attribute[s].name; s++) {
        if (b->op->attribute[s].kind != GRAPH_ATTR_SUBGRAPH) continue;
        const graph *sub = b->g->subgraphs.data[b->node->attribute[s].integer];
        graph_bound *value = LIB_NEW_ARRAY(b->arena, graph_bound, sub->values.count + 1);
        graph_bound_values(b->arena, sub, loop ? in : in + 1, b->excess, value);
        for (uint32_t o = 0; o < sub->outputs.count; o++) y.error = fmax(y.error, value[sub->outputs.data[o]].error);
    }
    graph_bound result = graph_bound_within(INFINITY);
    result.error = loop && y.error > 0 ? INFINITY : y.error;
    result.special = true;
    return result;
}

/* The default rule by class, for rows without `bound`. */
static graph_bound of_class(const graph_bound_node *b) {
    switch (b->op->class_) {
    case GRAPH_SOURCE: return graph_bound_of_dtype(b->y->dtype);
    case GRAPH_MAP: return graph_bound_map(b);
    case GRAPH_INJECTIVE: return graph_bound_picked(b);
    case GRAPH_REDUCE: return graph_bound_sum(b);
    case GRAPH_CONTRACT: return graph_bound_contraction(b);
    case GRAPH_SCATTER: return graph_bound_scatter(b);
    case GRAPH_CONTROL: return of_control(b);
    default: return graph_bound_same_steps(b);
    }
}

/* Composites, and rows on elements stored in parts: the bounds of their expansion. */
static void of_expansion(const graph_bound_node *b, graph_bound *results) {
    const graph_node *node = b->node;
    graph *g = graph_new(b->arena, b->g->pool);
    graph_id *input = LIB_NEW_ARRAY(b->arena, graph_id, (size_t)b->inputs + 1);
    graph_bound *in = LIB_NEW_ARRAY(b->arena, graph_bound, (size_t)b->inputs + 1);
    int inputs = 0;
    for (int i = 0; i < b->inputs; i++) {
        if (!node->input[i]) continue;
        input[i] = graph_new_input(g, lib_arena_format(b->arena, "x%d", i), graph_bound_shape(b, i));
        in[inputs++] = b->in[i];
    }
    graph_expand expand = {.g = g, .input = input, .attribute = node->attribute};
    graph_expand_node(&expand, b->g, node);
    graph_bound *values = LIB_NEW_ARRAY(b->arena, graph_bound, g->values.count + 1);
    graph_bound_values(b->arena, g, in, b->excess, values);
    for (int i = 0; i < node->results; i++) results[i] = values[expand.result[i]];
}

/* Has the composite no rule of its own, or complex results, for which no rule is meant? */
static bool is_expanded(const graph_bound_node *b) {
    return b->op->class_ == GRAPH_COMPOSITE && (!b->op->bound || b->y->dtype == DLC_C64);
}

/* Sets results[i] to y; results of another, integer or bool dtype (indices) to that dtype's range, without a bound if y is inexact. */
static void of_results(const graph_bound_node *b, graph_bound y, graph_bound *results) {
    if (isnan(y.error)) y.error = INFINITY;
    for (int i = 0; i < b->node->results; i++) {
        const dlc_dtype dtype = graph_shape_of(b->g, b->node->first + (graph_id)i)->dtype;
        results[i] = y;
        if (i == 0 || dtype == b->y->dtype || lib_dtype_is_float(dtype)) continue;
        results[i] = graph_bound_of_dtype(dtype);
        results[i].error = y.error > 0 ? INFINITY : 0;
    }
}

void graph_bound_values(lib_arena *arena, const graph *g, const graph_bound *inputs, bool excess, graph_bound *values) {
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (node->results == 0) continue;
        graph_bound *in = LIB_NEW_ARRAY(arena, graph_bound, (size_t)node->inputs + 1), *results = &values[node->first];
        for (int i = 0; i < node->inputs; i++) in[i] = node->input[i] ? values[node->input[i]] : (graph_bound){0};
        const graph_bound_node b = {.arena = arena,
                                    .g = g,
                                    .node = node,
                                    .op = node->op,
                                    .in = in,
                                    .inputs = node->inputs,
                                    .x = node->inputs && node->input[0] ? graph_shape_of(g, node->input[0]) : NULL,
                                    .y = graph_shape_of(g, node->first),
                                    .excess = excess};
        const graph_constant *constant = graph_constant_of(g, node->first);
        if (graph_is_input(node))
            *results = inputs[node->attribute[0].integer];
        else if (constant)
            *results = of_constant(constant, b.y);
        else if (graph_is_on_stored(g, node) || is_expanded(&b))
            of_expansion(&b, results);
        else
            of_results(&b, node->op->bound ? node->op->bound(&b) : of_class(&b), results);
    }
}
