/* Mixed precision: values of a graph again, with products in a narrow float type; see precision.h.
 *
 * Two walks over the nodes below the values. The first goes down: it lists the nodes in topological order and emits the expansions of
 * composites that hold products. From the results back to the operands it is then known of each value whether something reads it in f32.
 * The second emits the nodes that change, each once: products on narrow operands, and rows that follow in the narrow type if only
 * products read them, through further rows that follow. */
#include "graph/precision.h"

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/ops_common.h"

typedef enum treatment {
    /* stays as it is, with all that it depends on: sources, effects, counted sizes */
    KEPT,
    /* a sum of products that becomes narrow */
    PRODUCT,
    /* a composite that is replaced by its expansion */
    EXPANDED,
    FOLLOWING,
    /* computed in the types of its operands */
    WIDE
} treatment;

/* A node after it was visited. */
typedef struct visit {
    bool done;
    /* it is in the order */
    bool listed;
    treatment treatment;
    /* EXPANDED: the results of the expansion */
    graph_id *expansion;
} visit;

/* A value below the results. */
typedef struct fate {
    /* it is read in its own type; a product reads it */
    bool wide, narrow;
    /* the value again; 0: not emitted */
    graph_id as_wide, as_narrow;
} fate;

typedef struct mixture {
    graph *g;
    dlc_dtype narrow;
    /* by node */
    lib_vec(visit) visits;
    /* nodes, each after all that it depends on */
    lib_vec(uint32_t) order;
    /* by value, after the order is known */
    fate *fate;
} mixture;

static bool is_f32(const graph *g, graph_id value) {
    return value && graph_shape_of(g, value)->dtype == DLC_F32;
}

/* ---- what becomes of a node ------------------------------------------------------------------------------------------ */

/* Does the node count a size of the run? A second node would count it again. */
static bool is_counting(const graph_node *node) {
    return (node->op->algebra & GRAPH_COUNTS) || node->op->structure == GRAPH_CUTS ||
           (node->op->structure == GRAPH_BRANCHES && graph_expands(node));
}

static bool has_f32_operand(const graph *g, const graph_node *node) {
    for (int k = 0; k < node->inputs; k++)
        if (is_f32(g, node->input[k])) return true;
    return false;
}

/* Is at most one f32 operand not a number? Else narrow operands would take more conversions than the result. */
static bool has_one_operand(const graph *g, const graph_node *node) {
    double number;
    int others = 0;
    for (int k = 0; k < node->inputs; k++)
        others += is_f32(g, node->input[k]) && !graph_is_number(g, node->input[k], &number);
    return others <= 1;
}

static treatment treatment_of(const graph *g, const graph_node *node) {
    const graph_op *op = node->op;
    if (node->inputs == 0 || node->impure || is_counting(node)) return KEPT;
    if (op->precision == GRAPH_WIDE || graph_is_on_stored(g, node) || !is_f32(g, node->first)) return WIDE;
    if (op->precision == GRAPH_FOLLOWS) return has_one_operand(g, node) ? FOLLOWING : WIDE;
    if (!has_f32_operand(g, node)) return WIDE;
    return graph_op_attribute(op, "result") >= 0 ? PRODUCT : EXPANDED;
}

/* Is an operand's value rounded if the node is computed narrow? (A mask of attention, which has a type of its own, is not.) */
static bool is_rounded(const mixture *m, const graph_node *node, int operand) {
    return is_f32(m->g, node->input[operand]) && graph_op_operand_is_typed(node->op, operand);
}

/* ---- down --------------------------------------------------------------------------------------------------------------- */

static void expand(mixture *m, uint32_t index) {
    const graph_node node = m->g->nodes.data[index];
    graph_expand e = {.g = m->g, .input = node.input, .attribute = node.attribute};
    graph_expand_node(&e, m->g, &node);
    m->visits.data[index].expansion = e.result;
}

static void enter(mixture *m, uint32_t index) {
    while (m->visits.count < m->g->nodes.count) lib_vec_push(m->g->arena, &m->visits, ((visit){0}));
    m->visits.data[index].done = true;
    m->visits.data[index].treatment = treatment_of(m->g, &m->g->nodes.data[index]);
    if (m->visits.data[index].treatment == EXPANDED) expand(m, index);
    while (m->visits.count < m->g->nodes.count) lib_vec_push(m->g->arena, &m->visits, ((visit){0}));
}

typedef struct step {
    uint32_t node;
    int next;
} step;

/* The next node below that is to be visited; UINT32_MAX: none. */
static uint32_t next_below(const mixture *m, step *top) {
    const graph_node *node = &m->g->nodes.data[top->node];
    const visit *v = &m->visits.data[top->node];
    const graph_id *below = v->treatment == EXPANDED ? v->expansion : node->input;
    const int count = v->treatment == EXPANDED ? node->results : v->treatment == KEPT ? 0 : node->inputs;
    while (top->next < count) {
        const graph_id value = below[top->next++];
        const uint32_t index = value ? m->g->values.data[value].node : UINT32_MAX;
        if (value && !m->visits.data[index].done) return index;
        if (value && !m->visits.data[index].listed) /* one of those above */
            lib_raise(m->g->arena->scope, DLC_INVALID_ARGUMENT, "the expansion of %s (node %u) contains it",
                      m->g->nodes.data[index].op->name, index);
    }
    return UINT32_MAX;
}

static void go_down(mixture *m, graph_id value) {
    lib_vec(step) stack = {0};
    uint32_t index = m->g->values.data[value].node;
    if (index < m->visits.count && m->visits.data[index].done) return;
    while (index != UINT32_MAX) {
        enter(m, index);
        lib_vec_push(m->g->arena, &stack, ((step){index, 0}));
        while (stack.count && (index = next_below(m, &stack.data[stack.count - 1])) == UINT32_MAX) {
            const uint32_t above = stack.data[--stack.count].node;
            lib_vec_push(m->g->arena, &m->order, above);
            m->visits.data[above].listed = true;
        }
    }
}

/* ---- who reads what ------------------------------------------------------------------------------------------------------ */

static void mark_node(mixture *m, uint32_t index) {
    const graph_node *node = &m->g->nodes.data[index];
    const visit *v = &m->visits.data[index];
    const fate *own = &m->fate[node->first];
    for (int r = 0; v->treatment == EXPANDED && r < node->results; r++) {
        m->fate[v->expansion[r]].wide |= own[r].wide;
        m->fate[v->expansion[r]].narrow |= own[r].narrow;
    }
    if (v->treatment == EXPANDED || v->treatment == KEPT) return;
    const bool narrow = v->treatment == PRODUCT || (v->treatment == FOLLOWING && !own->wide);
    for (int k = 0; k < node->inputs; k++) {
        if (!node->input[k]) continue;
        if (narrow && is_rounded(m, node, k))
            m->fate[node->input[k]].narrow = true;
        else
            m->fate[node->input[k]].wide = true;
    }
}

/* ---- up ------------------------------------------------------------------------------------------------------------------ */

static bool is_changed_inside(const graph *body);

static bool is_changed_node(const graph *g, const graph_node *node) {
    const treatment t = treatment_of(g, node);
    if (t == PRODUCT || t == EXPANDED) return true;
    for (int i = 0; t == WIDE && node->op->attribute[i].name; i++)
        if (node->op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH &&
            is_changed_inside(g->subgraphs.data[node->attribute[i].integer]))
            return true;
    return false;
}

/* Is there something in a sub-graph that becomes narrow? */
static bool is_changed_inside(const graph *body) {
    for (uint32_t i = 0; i < body->nodes.count; i++)
        if (is_changed_node(body, &body->nodes.data[i])) return true;
    return false;
}

/* The number of a sub-graph of m->g that computes what `body` does; its inputs and outputs keep their types. */
static int64_t emit_body(const mixture *m, const graph *body) {
    graph *g = m->g, *copy = graph_new_inside(g);
    graph_id *input = LIB_NEW_ARRAY(g->arena, graph_id, body->inputs.count);
    graph_id *output = LIB_NEW_ARRAY(g->arena, graph_id, body->outputs.count);
    int64_t number;
    for (uint32_t i = 0; i < body->inputs.count; i++)
        input[i] = graph_new_input(copy, body->values.data[body->inputs.data[i]].name,
                                   graph_shape_of(body, body->inputs.data[i]));
    graph_inline(body, copy, input, output);
    graph_mix_precision(copy, m->narrow, (int)body->outputs.count, output, output);
    for (uint32_t i = 0; i < body->outputs.count; i++) graph_new_output(copy, body->output_names.data[i], output[i]);
    graph_walk walk = {.from = copy, .to = graph_new_subgraph(g, &number), .pass = graph_walk_live};
    graph_walk_into(&walk);
    return number;
}

static graph_id wide_of(const mixture *m, graph_id value) {
    return value ? m->fate[value].as_wide : 0;
}

/* The value in the narrow type; a value that was widened from it is not rounded again. */
static graph_id narrow_of(mixture *m, graph_id value) {
    fate *f = &m->fate[value];
    double number;
    if (f->as_narrow) return f->as_narrow;
    if (graph_is_number(m->g, value, &number)) {
        const graph_shape shape = *graph_shape_of(m->g, value);
        return f->as_narrow = graph_full(m->g, m->narrow, shape.rank, shape.dim, number);
    }
    const graph_node *node = graph_node_of(m->g, f->as_wide);
    if (graph_map_operation(node->op) == TIR_CAST && graph_shape_of(m->g, node->input[0])->dtype == m->narrow)
        return f->as_narrow = node->input[0];
    return f->as_narrow = graph_cast(m->g, f->as_wide, m->narrow);
}

/* Sets attribute[], one for each spec, for the node emitted anew. */
static void attributes_of(const mixture *m, const graph_node *node, bool product, graph_attribute *attribute) {
    for (int i = 0; node->op->attribute[i].name; i++) {
        attribute[i] = node->attribute[i];
        if (node->op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH)
            attribute[i].integer = emit_body(m, m->g->subgraphs.data[attribute[i].integer]);
    }
    if (product)
        attribute[graph_op_attribute(node->op, "result")] = graph_set_integer("result", GRAPH_RESULT_F32).value;
}

static void emit_node(mixture *m, uint32_t index) {
    const graph_node copy = m->g->nodes.data[index], *node = &copy; /* emitting moves the nodes */
    const visit v = m->visits.data[index];
    fate *own = &m->fate[node->first];
    const bool follows = v.treatment == FOLLOWING && !own->wide, narrow = follows || v.treatment == PRODUCT;
    if (v.treatment == EXPANDED) {
        for (int r = 0; r < node->results; r++) {
            const fate *other = &m->fate[v.expansion[r]];
            own[r].as_wide = other->as_wide;
            own[r].as_narrow = other->as_narrow;
        }
        return;
    }
    graph_id *input = LIB_NEW_ARRAY(m->g->arena, graph_id, (size_t)node->inputs), first = node->first;
    bool same = v.treatment == KEPT || !is_changed_node(m->g, node);
    for (int k = 0; v.treatment != KEPT && k < node->inputs; k++) {
        if (!node->input[k]) continue;
        input[k] = narrow && is_rounded(m, node, k) ? narrow_of(m, node->input[k]) : wide_of(m, node->input[k]);
        same = same && input[k] == node->input[k];
    }
    if (!same) {
        graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
        attributes_of(m, node, v.treatment == PRODUCT, attribute);
        first = graph_emit(m->g, node->op, node->inputs, input, attribute);
    }
    for (int r = 0; r < node->results; r++) {
        graph_value *values = m->g->values.data, *now = &values[first + (graph_id)r];
        if (!now->origins) now->origins = values[node->first + (graph_id)r].origins;
        if (follows)
            own[r].as_narrow = first + (graph_id)r;
        else
            own[r].as_wide = first + (graph_id)r;
    }
}

void graph_mix_precision(graph *g, dlc_dtype narrow, int count, const graph_id *y, graph_id *out) {
    mixture m = {.g = g, .narrow = narrow};
    for (int i = 0; i < count; i++) go_down(&m, y[i]);
    m.fate = LIB_NEW_ARRAY(g->arena, fate, g->values.count);
    for (int i = 0; i < count; i++) m.fate[y[i]].wide = true;
    for (uint32_t i = m.order.count; i-- > 0;) mark_node(&m, m.order.data[i]);
    for (uint32_t i = 0; i < m.order.count; i++) emit_node(&m, m.order.data[i]);
    for (int i = 0; i < count; i++) out[i] = wide_of(&m, y[i]);
}

static graph *live_part(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, graph_walk_live, NULL);
}

graph *graph_with_mixed_precision(lib_arena *arena, const graph *g, dlc_dtype narrow) {
    graph *out = graph_copy(arena, g);
    graph_mix_precision(out, narrow, (int)out->outputs.count, out->outputs.data, out->outputs.data);
    return live_part(arena, out);
}
