/* Additions of values that are 0 but where a scatter adds: updates of a table by the gradient of its look-ups, for example.
 *
 *   x - scatter_add(0, indices, u) * c -> scatter_add(x, indices, -(u * c))    c: one number for all elements
 *
 * On the left, the whole table is written three times and read twice; on the right, an update in place touches the rows that are indexed. It
 * holds for all maps that are linear in the scattered operand, by the column of their row, while their other operands are one number each, and
 * for sums of such values: each of these is 0 where no update is. A momentum's average, a square or a decay are not, and stay dense.
 *
 * What differs: several updates of one place are added to x one after the other, in the order of their indices, instead of to 0 first; and c
 * multiplies each of them, instead of their sum. So the sum x + u1*c + u2*c + ... has its terms in another order, with a rounding for each
 * product, as when numbers move from a contraction's operands to its result (factors.c); that is why the pass belongs to the inference form. An update
 * that is less than half a unit in the last place of x gets lost alone, where a sum of many of them does not: the pass leaves scatters with
 * more than half as many updates as the table has elements, types narrower than f32, and values with other readers as they are. */
#include "graph/build.h"
#include "graph/inference.h"
#include "graph/internal.h"

enum { DEPTH_MAX = 16 };

typedef struct scattering {
    const graph *from;
    /* by value of `from` */
    const uint32_t *readers;
} scattering;

static bool is_scatter_add(const graph_node *node) {
    const int combine = graph_op_attribute(node->op, "combine");
    return node->op->class_ == GRAPH_SCATTER && combine >= 0 &&
           node->attribute[combine].integer == graph_choice_find(node->op->attribute[combine].choices, "add");
}

/* Has `updates` at most half as many elements as the table, for all values of the symbols? */
static bool is_sparse(const graph *g, graph_id table, graph_id updates) {
    const graph_shape *x = graph_shape_of(g, table), *u = graph_shape_of(g, updates);
    double least = 1, most = 1;
    for (int i = 0; i < x->rank; i++) least *= (double)tir_range(g->pool, x->dim[i]).low;
    for (int i = 0; i < u->rank; i++) most *= (double)tir_range(g->pool, u->dim[i]).high;
    return 2 * most <= least;
}

/* The value of one element that all elements of `value` are; 0: they may differ. */
static graph_id one_number(const graph *g, graph_id value) {
    const graph_node *node = graph_node_of(g, value);
    if (node->op->structure != GRAPH_REPEATS) return 0;
    const graph_shape *shape = graph_shape_of(g, node->input[0]);
    for (int i = 0; i < shape->rank; i++)
        if (!tir_is_number(g->pool, shape->dim[i], 1)) return 0;
    return node->input[0];
}

/* The operand in which the map is linear while its others are one number each; -1: there is none. */
static int linear_operand(const graph *g, const graph_node *node) {
    for (int k = 0; node->op->class_ == GRAPH_MAP && k < node->inputs; k++) {
        bool others = node->op->linear >> k & 1;
        for (int i = 0; i < node->inputs && others; i++)
            others = i == k || (node->input[i] && one_number(g, node->input[i]));
        if (others && !one_number(g, node->input[k])) return k;
    }
    return -1;
}

static bool adds(const graph_node *node) {
    return graph_map_operation(node->op) == TIR_ADD || graph_map_operation(node->op) == TIR_SUB;
}

/* Is the value 0 but where scatters add to it, and read by nothing but the sum? */
static bool is_scattered(const scattering *s, graph_id value, int depth) {
    const graph *g = s->from;
    const graph_node *node = graph_node_of(g, value);
    const dlc_dtype dtype = graph_shape_of(g, value)->dtype;
    double number;
    if (depth == DEPTH_MAX || s->readers[value] != 1 || (dtype != DLC_F32 && dtype != DLC_F64)) return false;
    if (is_scatter_add(node)) {
        const graph_id x = node->input[0];
        const bool from_zero = graph_is_number(g, x, &number) && number == 0;
        return is_sparse(g, x, node->input[2]) && (from_zero || is_scattered(s, x, depth + 1));
    }
    if (adds(node)) return is_scattered(s, node->input[0], depth + 1) && is_scattered(s, node->input[1], depth + 1);
    const int k = linear_operand(g, node);
    return k >= 0 && graph_shape_of(g, node->input[k])->dtype == dtype && is_scattered(s, node->input[k], depth + 1);
}

/* A map between the scatter and the sum; `operand` is the scattered one; NULL: a change of sign. */
typedef struct step {
    const graph_node *node;
    int operand;
    const struct step *next;
} step;

/* The updates after the steps, in the new graph: before they repeat or change their shape, so that no more elements than necessary are
 * computed. */
static graph_id stepped(graph_walk *walk, graph_id updates, const step *first) {
    graph *g = walk->to;
    const graph_node *move = graph_node_of(g, updates);
    if (first && (move->op->structure == GRAPH_REPEATS || move->op->structure == GRAPH_REGROUPS)) {
        const graph_op *op = move->op;
        const graph_attribute *attribute = move->attribute;
        const graph_id moved = stepped(walk, move->input[0], first);
        return graph_emit(g, op, 1, &moved, attribute);
    }
    const graph_shape shape = *graph_shape_of(g, updates);
    for (const step *at = first; at; at = at->next) {
        if (!at->node) {
            updates = graph_neg(g, updates);
            continue;
        }
        graph_attribute attribute[sizeof at->node->op->attribute / sizeof *at->node->op->attribute];
        graph_walk_attributes(walk, at->node, attribute);
        graph_id *input = graph_walk_inputs(walk, at->node);
        for (int i = 0; i < at->node->inputs; i++) {
            const graph_id number = i == at->operand ? 0 : walk->map[one_number(walk->from, at->node->input[i])];
            input[i] =
                number ? graph_broadcast(g, graph_reshape(g, number, 0, NULL), shape.rank, shape.dim, NULL) : updates;
        }
        updates = graph_emit(g, at->node->op, at->node->inputs, input, attribute);
    }
    return updates;
}

/* x + what the steps make of the scattered value, in the new graph. */
static graph_id add_scattered(graph_walk *walk, graph_id x, graph_id value, const step *steps) {
    const graph_node *node = graph_node_of(walk->from, value);
    if (is_scatter_add(node)) {
        graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
        double number;
        if (!graph_is_number(walk->from, node->input[0], &number)) x = add_scattered(walk, x, node->input[0], steps);
        graph_walk_attributes(walk, node, attribute);
        graph_id *input = graph_walk_inputs(walk, node);
        input[0] = x;
        input[2] = stepped(walk, input[2], steps);
        return graph_emit(walk->to, node->op, node->inputs, input, attribute);
    }
    if (adds(node)) {
        const step negated = {NULL, 0, steps};
        x = add_scattered(walk, x, node->input[0], steps);
        return add_scattered(walk, x, node->input[1], graph_map_operation(node->op) == TIR_SUB ? &negated : steps);
    }
    const int k = linear_operand(walk->from, node);
    return add_scattered(walk, x, node->input[k], &(step){node, k, steps});
}

/* The sum, as a scatter onto its other operand; 0: neither operand is scattered. */
static graph_id scatter_onto(graph_walk *walk, const scattering *s, const graph_node *node) {
    const bool subtracts = graph_map_operation(node->op) == TIR_SUB;
    if (!adds(node)) return 0;
    for (int k = 1; k >= subtracts; k--)
        if (is_scattered(s, node->input[k], 0))
            return add_scattered(walk, walk->map[node->input[1 - k]], node->input[k],
                                 subtracts ? &(step){NULL, 0, NULL} : NULL);
    return 0;
}

static void pass_scatter(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    const scattering s = {walk->from, graph_count_readers(walk->to->arena, walk->from, live)};
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        const graph_id result = scatter_onto(walk, &s, node);
        if (result)
            graph_walk_record(walk, node, &result);
        else
            graph_walk_node(walk, i);
    }
}

graph *graph_scatter_onto_sums(lib_arena *arena, const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (is_scatter_add(&g->nodes.data[i])) return graph_walk_run(arena, g, g->phase, NULL, pass_scatter, NULL);
    return (graph *)(uintptr_t)g;
}
