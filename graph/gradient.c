/* Walks up (cotangents) and down (tangents) between values of a graph; see gradient.h.
 *
 * A walk first lists the nodes between the two sets of values in topological order, from the results down. Composites without a rule of their
 * own are expanded on the way, in place: their expansion is emitted into the graph, and derivatives pass from a composite's results to those of
 * its expansion. When the program is compiled, the composite expands to the same nodes again, which are then one. */
#include "graph/gradient.h"

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/notation.h"
#include "graph/sweep.h"

typedef struct way {
    graph *g;
    lib_arena *arena;
    /* begins messages */
    const char *call;
    /* first node and value that can move; the arrays below begin there */
    uint32_t first_node;
    graph_id first_value;
    /* by value: it depends on one of the values with respect to which is differentiated, through numbers */
    lib_vec(bool) moves;
    /* by node; listed: it is in the order */
    lib_vec(bool) visited, listed;
    /* by node: the results of its expansion; NULL: it is not expanded */
    lib_vec(graph_id *) expansion;
    /* by node: the one above, from which it was first visited; UINT32_MAX: it has one of the values that are differentiated */
    lib_vec(uint32_t) above;
    /* nodes from the results down, each after all that it depends on */
    lib_vec(uint32_t) order;
    /* by value, after the order is known: cotangents or tangents; 0: none so far */
    graph_id *derivative;
    graph_map_pool *maps;
} way;

static bool is_number(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) || dtype == DLC_C64;
}

static bool moves(const way *w, graph_id value) {
    return value >= w->first_value && w->moves.data[value - w->first_value];
}

/* ---- what moves ---------------------------------------------------------------------------------------------------- */

/* Extends the arrays to the graph's present nodes. Results move if an operand does, and values that are `given` (by value from the first one
 * on; NULL: none). */
static void spread(way *w, const bool *given) {
    const graph *g = w->g;
    for (uint32_t i = w->first_node + w->visited.count; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        bool moving = false;
        for (int k = 0; k < node->inputs && !node->op->flat; k++) moving = moving || moves(w, node->input[k]);
        for (int r = 0; r < node->results; r++) {
            const graph_id value = node->first + (graph_id)r;
            const bool counts = moving && is_number(graph_shape_of(g, value)->dtype);
            lib_vec_push(w->arena, &w->moves, counts || (given && given[value - w->first_value]));
        }
        lib_vec_push(w->arena, &w->visited, false);
        lib_vec_push(w->arena, &w->listed, false);
        lib_vec_push(w->arena, &w->expansion, NULL);
        lib_vec_push(w->arena, &w->above, UINT32_MAX);
    }
}

/* maps: of the walk that this one is part of; NULL: none */
static way begin(graph *g, const char *call, graph_map_pool *maps, int count, const graph_id *wrt) {
    way w = {.g = g, .arena = g->arena, .call = call, .first_node = g->nodes.count, .maps = maps};
    for (int i = 0; i < count; i++) {
        const uint32_t node = g->values.data[wrt[i]].node;
        if (node < w.first_node) w.first_node = node;
    }
    w.first_value = count ? g->nodes.data[w.first_node].first : (graph_id)g->values.count;
    /* Not of the whole graph: rules begin walks of their own, on its last values. */
    bool *given = LIB_NEW_ARRAY(g->arena, bool, g->values.count - w.first_value);
    for (int i = 0; i < count; i++) given[wrt[i] - w.first_value] = true;
    if (!maps) w.maps = graph_new_map_pool(g->arena);
    spread(&w, given);
    return w;
}

/* ---- the way down -------------------------------------------------------------------------------------------------- */

/* Does the node name a size that the run counts? Its expansion beside it would count it again. */
static bool counts(const graph_node *node) {
    return (node->op->algebra & GRAPH_COUNTS) || (node->op->structure == GRAPH_BRANCHES && graph_expands(node));
}

/* Is the rule of operand k `transpose`? */
static bool is_transposed(const graph_op *op, int k) {
    return op->transpose && (op->jointly || op->linear >> k & 1);
}

/* Does the row say itself how it differentiates with respect to all operands that move? */
static bool has_rule(const way *w, const graph_node *node, bool reverse) {
    const graph_op *op = node->op;
    if (graph_is_on_stored(w->g, node) || (reverse && op->refused) || counts(node)) return false;
    if (op->jvp || op->partial || graph_op_has_scalar(op) || (op->vjp && reverse)) return true;
    bool all = true;
    for (int k = 0; k < node->inputs; k++)
        if (moves(w, node->input[k])) all = all && is_transposed(op, k);
    return all;
}

static const char *described(const graph *g, uint32_t node) {
    const graph_node *n = &g->nodes.data[node];
    const graph_value *value = &g->values.data[n->first];
    const char *name = value->called ? value->called : value->name;
    return name ? name : n->op->name;
}

typedef struct step {
    uint32_t node;
    int next;
} step;
typedef lib_vec(step) steps;

/* "loss <- mean <- while <- w": the nodes from the result down to this one, and on to a value that is differentiated with respect to. */
static const char *way_text(const way *w, uint32_t index) {
    enum { SHOWN = 12 };
    lib_text text;
    lib_vec(uint32_t) up = {0};
    lib_text_init(&text, w->arena);
    for (uint32_t i = index; i != UINT32_MAX; i = w->above.data[i - w->first_node]) lib_vec_push(w->arena, &up, i);
    for (uint32_t i = 0; i < up.count; i++) {
        if (i >= SHOWN / 2 && i + SHOWN / 2 < up.count) {
            if (i == SHOWN / 2) lib_text_add(&text, " <- ...");
            continue;
        }
        lib_text_format(&text, "%s%s", i ? " <- " : "", described(w->g, up.data[up.count - 1 - i]));
    }
    uint32_t at = index;
    for (bool down = true; down;) {
        const graph_node *node = &w->g->nodes.data[at];
        down = false;
        for (int k = 0; k < node->inputs && !down; k++) {
            if (!moves(w, node->input[k])) continue;
            at = w->g->values.data[node->input[k]].node;
            down = true;
        }
    }
    if (at != index) lib_text_format(&text, " <- %s", described(w->g, at));
    return text.data;
}

_Noreturn static void refuse(const way *w, uint32_t index, bool reverse) {
    const graph_op *op = w->g->nodes.data[index].op;
    lib_raise(w->arena->scope, DLC_UNSUPPORTED, "%s: %s (node %u) has no %s, on the way %s%s%s", w->call, op->name,
              index, reverse ? "gradient" : "tangent", way_text(w, index), op->refused ? ": " : "",
              op->refused ? op->refused : "");
}

static bool has_subgraph(const graph_op *op) {
    bool has = false;
    for (int a = 0; op->attribute[a].name; a++) has = has || op->attribute[a].kind == GRAPH_ATTR_SUBGRAPH;
    return has;
}

/* Calls work(argument) for node `index`. If the call raises, the message gets the way to the node: of operators that the host defined, unless
 * the message has a way already (the host's rule itself asked for derivatives); and of operators with sub-graphs, in front of the way inside. */
static void work_for(const way *w, uint32_t index, void (*work)(void *argument), void *argument) {
    const graph_op *op = w->g->nodes.data[index].op;
    lib_scope *const outer = w->arena->scope;
    lib_scope inner;
    if (!op->host && !has_subgraph(op)) {
        work(argument);
        return;
    }
    w->arena->scope = &inner;
    if (LIB_ENTER(&inner)) work(argument);
    w->arena->scope = outer;
    if (inner.error.status == DLC_OK) return;
    const bool placed = strstr(inner.error.message, ", on the way ") != NULL;
    if (lib_is_circumstance(inner.error.status) || (placed && op->host)) lib_raise_error(outer, &inner.error);
    if (placed) { /* in a sub-graph, by a walk of its own, which is called as the row is */
        const size_t call = strlen(op->name);
        const char *message = inner.error.message;
        if (strncmp(message, op->name, call) == 0 && strncmp(message + call, ": ", 2) == 0) message += call + 2;
        lib_raise(outer, inner.error.status, "%s: in %s (node %u), on the way %s: %s", w->call, op->name, index,
                  way_text(w, index), message);
    }
    if (!op->host) lib_raise_error(outer, &inner.error);
    lib_raise(outer, inner.error.status, "%s: operator %s (node %u): %s, on the way %s", w->call, op->name, index,
              inner.error.message, way_text(w, index));
}

static void expand_notation(void *argument) {
    graph_notation_expand(argument);
}

/* Emits the expansion of node `index` into the graph. */
static void expand(way *w, uint32_t index) {
    const graph_node node = w->g->nodes.data[index];
    graph_expand e = {
        .g = w->g, .op = node.op, .inputs = node.inputs, .input = node.input, .attribute = node.attribute};
    if (!graph_is_on_stored(w->g, &node) && graph_notation_has_rows(node.op)) {
        e.result = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)node.results);
        work_for(w, index, expand_notation, &e);
    } else {
        graph_expand_node(&e, w->g, &node);
    }
    w->expansion.data[index - w->first_node] = e.result;
    spread(w, NULL);
}

/* The next node below the one at the top of the stack that is to be visited; UINT32_MAX: none. */
static uint32_t next_below(const way *w, step *top) {
    const graph_node *node = &w->g->nodes.data[top->node];
    const graph_id *expansion = w->expansion.data[top->node - w->first_node];
    const graph_id *below = expansion ? expansion : node->input;
    const int count = expansion ? node->results : node->inputs;
    while (top->next < count) {
        const graph_id value = below[top->next++];
        if (!moves(w, value)) continue;
        const uint32_t index = w->g->values.data[value].node;
        if (!w->visited.data[index - w->first_node]) return index;
        if (!w->listed.data[index - w->first_node]) /* one of those above */
            lib_raise(w->arena->scope, DLC_INVALID_ARGUMENT,
                      "%s: the expansion of %s (node %u) contains it, on the way %s", w->call,
                      w->g->nodes.data[index].op->name, index, way_text(w, index));
    }
    return UINT32_MAX;
}

/* Is a result of the node one of the values whose operands are of no interest: nothing below it moves? */
static bool is_end(const way *w, const graph_node *node) {
    for (int k = 0; k < node->inputs && !node->op->flat; k++)
        if (moves(w, node->input[k])) return false;
    return true;
}

/* Appends the node and all nodes below it that move to the order. */
static void visit(way *w, uint32_t index, bool reverse) {
    steps stack = {0};
    while (index != UINT32_MAX) {
        w->visited.data[index - w->first_node] = true;
        if (stack.count) w->above.data[index - w->first_node] = stack.data[stack.count - 1].node;
        lib_vec_push(w->arena, &stack, ((step){index, 0}));
        const graph_node *node = &w->g->nodes.data[index];
        if (!is_end(w, node) && !has_rule(w, node, reverse)) {
            if ((!graph_has_expansion(w->g, node) && !graph_notation_has_rows(node->op)) || counts(node))
                refuse(w, index, reverse);
            expand(w, index);
        }
        while (stack.count && (index = next_below(w, &stack.data[stack.count - 1])) == UINT32_MAX) {
            const uint32_t above = stack.data[--stack.count].node;
            lib_vec_push(w->arena, &w->order, above);
            w->listed.data[above - w->first_node] = true;
        }
    }
}

static void find_order(way *w, int results, const graph_id *y, bool reverse) {
    for (int i = 0; i < results; i++) {
        if (!y[i] || !moves(w, y[i])) continue;
        const uint32_t index = w->g->values.data[y[i]].node;
        if (!w->visited.data[index - w->first_node]) visit(w, index, reverse);
    }
    w->derivative = LIB_NEW_ARRAY(w->arena, graph_id, w->g->values.count - w->first_value);
}

/* ---- rules --------------------------------------------------------------------------------------------------------- */

static graph_rule rule_of(const way *w, uint32_t index) {
    const graph_node *node = &w->g->nodes.data[index];
    return (graph_rule){.g = w->g,
                        .op = node->op,
                        .inputs = node->inputs,
                        .results = node->results,
                        .input = node->input,
                        .attribute = node->attribute,
                        .first = node->first,
                        .maps = w->maps};
}

typedef struct application {
    graph_rule *rule;
    void (*function)(graph_rule *rule);
} application;

static void apply_work(void *argument) {
    const application *a = argument;
    a->function(a->rule);
}

static void apply(const way *w, uint32_t index, graph_rule *rule, void (*function)(graph_rule *rule)) {
    work_for(w, index, apply_work, &(application){rule, function});
}

graph_id graph_rule_operand(const graph_rule *rule, int operand) {
    return graph_widen(rule->g, rule->input[operand]);
}

graph_id graph_rule_result(const graph_rule *rule, int result) {
    return graph_widen(rule->g, rule->first + (graph_id)result);
}

/* A rule of a row must give a derivative of the value's shape and type. */
static graph_id checked(const way *w, const graph_op *op, graph_id derivative, graph_id value) {
    const graph_shape *is = graph_shape_of(w->g, derivative), *of = graph_shape_of(w->g, value);
    bool same = is->rank == of->rank && is->dtype == graph_tangent_dtype(of->dtype);
    for (int d = 0; same && d < is->rank; d++) same = tir_equal(w->g->pool, is->dim[d], of->dim[d]) != TIR_NO;
    if (same) return derivative;
    lib_text text;
    lib_text_init(&text, w->arena);
    graph_describe_shape(&text, w->g, is);
    lib_text_add(&text, " for ");
    graph_describe_shape(&text, w->g, of);
    lib_raise(w->arena->scope, op->host ? DLC_INVALID_ARGUMENT : DLC_INTERNAL,
              "%s: the rule of %s gave a derivative %s", w->call, op->name, text.data);
}

/* ---- cotangents, up ------------------------------------------------------------------------------------------------ */

static void add_cotangent(way *w, const graph_op *op, graph_id value, graph_id cotangent) {
    if (!cotangent || !moves(w, value)) return;
    graph_id *sum = &w->derivative[value - w->first_value];
    cotangent = checked(w, op, cotangent, value);
    *sum = *sum ? graph_add(w->g, *sum, cotangent) : cotangent;
}

static void walk_up(way *w, int results, const graph_id *y, const graph_id *cotangents, int count, const graph_id *wrt,
                    graph_id *out);

/* The row's rule for tangents is applied to placeholders, and what it emits, which is linear in them, differentiated. */
void graph_rule_transpose_tangents(graph_rule *rule) {
    graph *g = rule->g;
    const size_t inputs = (size_t)rule->inputs;
    graph_id *tangent = LIB_NEW_ARRAY(g->arena, graph_id, inputs), *holder = LIB_NEW_ARRAY(g->arena, graph_id, inputs);
    graph_id *moved = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->results),
             *out = LIB_NEW_ARRAY(g->arena, graph_id, inputs);
    int count = 0;
    for (int k = 0; k < rule->inputs; k++) {
        if (!rule->wanted[k]) continue;
        const graph_id like = graph_rule_operand(rule, k);
        tangent[k] = holder[count++] = graph_emit_with(g, "again", 1, &like, 0, NULL);
    }
    graph_rule forward = *rule;
    forward.cotangent = NULL;
    forward.tangent = tangent;
    forward.out = moved;
    rule->op->jvp(&forward);
    way w = begin(g, rule->op->name, rule->maps, count, holder);
    find_order(&w, rule->results, moved, true);
    walk_up(&w, rule->results, moved, rule->cotangent, count, holder, out);
    for (int k = rule->inputs; k-- > 0;)
        if (rule->wanted[k]) rule->out[k] = out[--count];
}

/* Does the node read its operand k? Of an `if`, a branch may have inputs that none of its outputs needs. */
static bool reads(const graph *g, const graph_node *node, int k) {
    if (node->op->structure != GRAPH_BRANCHES || k == 0) return true;
    for (int b = 0; b < 2; b++) {
        const graph *branch = g->subgraphs.data[node->attribute[b].integer];
        bool *read = LIB_NEW_ARRAY(g->arena, bool, branch->nodes.count);
        for (uint32_t o = 0; o < branch->outputs.count; o++)
            read[branch->values.data[branch->outputs.data[o]].node] = true;
        graph_mark_operands(branch, read);
        if (read[branch->values.data[branch->inputs.data[k - 1]].node]) return true;
    }
    return false;
}

/* Does a value depend on the placeholders, which are the first nodes of the walk, whatever the operators between them are? */
static bool depends(const graph *g, uint32_t first_node, int count, const graph_id *holder, graph_id value) {
    const graph_id first = count ? g->nodes.data[first_node].first : (graph_id)g->values.count;
    bool *known = LIB_NEW_ARRAY(g->arena, bool, g->values.count - first); /* by value from the first one on */
    for (int i = 0; i < count; i++) known[holder[i] - first] = true;
    for (uint32_t i = first_node; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        bool any = false;
        for (int k = 0; k < node->inputs; k++)
            any = any || (node->input[k] >= first && known[node->input[k] - first] && reads(g, node, k));
        for (int r = 0; any && r < node->results; r++) known[node->first + (graph_id)r - first] = true;
    }
    return value >= first && known[value - first];
}

/* The row's rule for cotangents is applied to placeholders, and what it emits, which is linear in them, transposed: the results' tangents
 * are the cotangents of the placeholders if the tangents of the operands are those of what was emitted. */
void graph_rule_transpose_cotangents(graph_rule *rule) {
    graph *g = rule->g;
    const size_t inputs = (size_t)rule->inputs, results = (size_t)rule->results;
    graph_id *cotangent = LIB_NEW_ARRAY(g->arena, graph_id, results),
             *holder = LIB_NEW_ARRAY(g->arena, graph_id, results);
    graph_id *back = LIB_NEW_ARRAY(g->arena, graph_id, inputs), *out = LIB_NEW_ARRAY(g->arena, graph_id, results);
    bool *wanted = LIB_NEW_ARRAY(g->arena, bool, inputs);
    int count = 0;
    for (int r = 0; r < rule->results; r++) {
        if (!is_number(graph_shape_of(g, rule->first + (graph_id)r)->dtype)) continue;
        const graph_id like = graph_rule_result(rule, r);
        cotangent[r] = holder[count++] = graph_emit_with(g, "again", 1, &like, 0, NULL);
    }
    for (int k = 0; k < rule->inputs; k++) wanted[k] = rule->tangent[k] != 0;
    graph_rule backward = *rule;
    backward.tangent = NULL;
    backward.cotangent = cotangent;
    backward.wanted = wanted;
    backward.out = back;
    rule->op->vjp(&backward);
    way w = begin(g, rule->op->name, rule->maps, count, holder);
    find_order(&w, rule->inputs, back, true);
    walk_up(&w, rule->inputs, back, rule->tangent, count, holder, out);
    for (int r = 0, next = 0; r < rule->results; r++) {
        if (!cotangent[r]) continue;
        rule->out[r] = out[next++];
        if (depends(g, w.first_node, count, holder, rule->out[r]))
            lib_raise(g->arena->scope, DLC_UNSUPPORTED,
                      "%s has no tangents: its cotangents are no linear function of those of its results",
                      rule->op->name);
    }
}

static void cotangents_of_operands(way *w, uint32_t index, const graph_id *cotangent) {
    graph_rule rule = rule_of(w, index);
    const graph_op *op = rule.op;
    bool *wanted = LIB_NEW_ARRAY(w->arena, bool, (size_t)rule.inputs), by_tangents = false;
    graph_id *out = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)rule.inputs);
    rule.cotangent = cotangent;
    rule.wanted = wanted;
    for (int k = 0; k < rule.inputs; k++) wanted[k] = rule.input[k] && moves(w, rule.input[k]);
    if (op->vjp) {
        rule.out = out;
        apply(w, index, &rule, op->vjp);
        for (int k = 0; k < rule.inputs; k++)
            if (wanted[k]) add_cotangent(w, op, rule.input[k], out[k]);
        return;
    }
    for (int k = 0; k < rule.inputs; k++) {
        if (!wanted[k]) continue;
        graph_id one = 0;
        rule.operand = k;
        rule.out = &one;
        if (is_transposed(op, k))
            op->transpose(&rule);
        else if (!op->jvp)
            one = graph_map_scaled(&rule, cotangent[0]);
        else {
            by_tangents = true;
            continue;
        }
        wanted[k] = false;
        add_cotangent(w, op, rule.input[k], one);
    }
    if (!by_tangents) return;
    rule.out = out;
    graph_rule_transpose_tangents(&rule);
    for (int k = 0; k < rule.inputs; k++)
        if (wanted[k]) add_cotangent(w, op, rule.input[k], out[k]);
}

static void go_up(way *w, uint32_t index) {
    const graph_node copy = w->g->nodes.data[index], *node = &copy; /* emitting moves the nodes */
    const graph_id *expansion = w->expansion.data[index - w->first_node];
    graph_id *cotangent = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)node->results);
    bool any = false;
    for (int r = 0; r < node->results; r++) {
        cotangent[r] = w->derivative[node->first + (graph_id)r - w->first_value];
        any = any || cotangent[r];
    }
    if (!any || is_end(w, node)) return;
    if (!expansion) {
        cotangents_of_operands(w, index, cotangent);
        return;
    }
    for (int r = 0; r < node->results; r++) add_cotangent(w, node->op, expansion[r], cotangent[r]);
}

/* After find_order. */
static void walk_up(way *w, int results, const graph_id *y, const graph_id *cotangents, int count, const graph_id *wrt,
                    graph_id *out) {
    for (int i = 0; i < results; i++)
        if (y[i]) add_cotangent(w, graph_node_of(w->g, y[i])->op, y[i], cotangents[i]);
    for (uint32_t i = w->order.count; i-- > 0;) go_up(w, w->order.data[i]);
    for (int i = 0; i < count; i++) out[i] = w->derivative[wrt[i] - w->first_value];
}

void graph_vjp(graph *g, const char *call, int results, const graph_id *y, const graph_id *cotangents, int count,
               const graph_id *wrt, graph_id *out) {
    way w = begin(g, call, NULL, count, wrt);
    find_order(&w, results, y, true);
    for (uint32_t i = 0; i < w.order.count; i++) {
        const graph_node *node = &g->nodes.data[w.order.data[i]];
        graph_mark_sweep(g, node->first, (uint32_t)node->results, GRAPH_SWEEP_FORWARD);
    }
    const graph_id first = g->values.count;
    walk_up(&w, results, y, cotangents, count, wrt, out);
    graph_mark_sweep(g, first, g->values.count - first, GRAPH_SWEEP_BACKWARD);
}

/* ---- tangents, down ------------------------------------------------------------------------------------------------ */

/* The tangent of a linear row: the row on the tangents. Operands that are held are widened as tangents are. Of a row that is linear in
 * all operands together, those that do not move become zeros; of one that is linear in each alone, the sum over the operands. */
static graph_id emit_linear(way *w, const graph_rule *rule, const graph_id *tangent, int only) {
    graph *g = w->g;
    graph_id *input = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)rule->inputs);
    for (int k = 0; k < rule->inputs; k++) {
        if (!rule->input[k]) continue;
        input[k] = graph_rule_operand(rule, k);
        const bool jointly = rule->op->jointly && is_number(graph_shape_of(g, input[k])->dtype);
        if (jointly || k == only) input[k] = tangent[k] ? tangent[k] : graph_full_like(g, input[k], 0);
    }
    return graph_emit(g, rule->op, rule->inputs, input, rule->attribute);
}

static void tangents_of_linear(way *w, graph_rule *rule, const graph_id *tangent, const bool *which) {
    const bool jointly = rule->op->jointly;
    for (int k = 0; k < rule->inputs; k++) {
        if (!which[k]) continue;
        graph_id first = emit_linear(w, rule, tangent, k);
        for (int r = 0; r < rule->results; r++) {
            graph_id now = first + (graph_id)r;
            const dlc_dtype dtype = graph_shape_of(w->g, rule->first + (graph_id)r)->dtype;
            if (!is_number(dtype)) continue;
            now = graph_cast(w->g, now, graph_tangent_dtype(dtype));
            rule->out[r] = rule->out[r] ? graph_add(w->g, rule->out[r], now) : now;
        }
        if (jointly) return;
    }
}

static void tangents_of_results(way *w, uint32_t index, const graph_id *tangent, graph_id *out) {
    graph_rule rule = rule_of(w, index);
    const graph_op *op = rule.op;
    bool *which = LIB_NEW_ARRAY(w->arena, bool, (size_t)rule.inputs), any = false;
    graph_id *rest = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)rule.inputs);
    rule.out = out;
    for (int k = 0; k < rule.inputs; k++) {
        which[k] = tangent[k] && is_transposed(op, k);
        rest[k] = which[k] ? 0 : tangent[k];
        any = any || rest[k];
    }
    if (any && op->jvp) {
        rule.tangent = rest;
        apply(w, index, &rule, op->jvp);
    }
    tangents_of_linear(w, &rule, tangent, which);
    for (int k = 0; any && !op->jvp && k < rule.inputs; k++) {
        if (!rest[k]) continue;
        rule.operand = k;
        graph_id part = graph_map_scaled(&rule, rest[k]);
        if (part) out[0] = out[0] ? graph_add(w->g, out[0], part) : part;
    }
}

static void go_down(way *w, uint32_t index) {
    const graph_node copy = w->g->nodes.data[index], *node = &copy; /* emitting moves the nodes */
    const graph_id *expansion = w->expansion.data[index - w->first_node];
    graph_id *tangent = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)node->inputs);
    graph_id *out = LIB_NEW_ARRAY(w->arena, graph_id, (size_t)node->results);
    bool any = false;
    for (int k = 0; k < node->inputs; k++) {
        tangent[k] = moves(w, node->input[k]) ? w->derivative[node->input[k] - w->first_value] : 0;
        any = any || tangent[k];
    }
    if (expansion) {
        for (int r = 0; r < node->results; r++)
            out[r] = moves(w, expansion[r]) ? w->derivative[expansion[r] - w->first_value] : 0;
    } else if (any && !node->op->flat) {
        tangents_of_results(w, index, tangent, out);
    }
    for (int r = 0; r < node->results; r++) {
        const graph_id value = node->first + (graph_id)r;
        graph_id *known = &w->derivative[value - w->first_value];
        if (!out[r] || !moves(w, value)) continue;
        out[r] = checked(w, node->op, out[r], value);
        *known = *known ? graph_add(w->g, *known, out[r]) : out[r]; /* its own tangent was given */
    }
}

void graph_jvp(graph *g, const char *call, int count, const graph_id *x, const graph_id *tangents, int results,
               const graph_id *y, graph_id *out) {
    way w = begin(g, call, NULL, count, x);
    find_order(&w, results, y, false);
    for (int i = 0; i < count; i++) {
        graph_id *sum = &w.derivative[x[i] - w.first_value];
        *sum = *sum ? graph_add(g, *sum, tangents[i]) : tangents[i];
    }
    for (uint32_t i = 0; i < w.order.count; i++) {
        /* Tangents belong to the sweep of what they are tangents of. */
        const graph_id above = g->nodes.data[w.order.data[i]].first, first = g->values.count;
        go_down(&w, w.order.data[i]);
        graph_mark_sweep(g, first, g->values.count - first, graph_sweep_marks(g, above));
    }
    for (int i = 0; i < results; i++) out[i] = moves(&w, y[i]) ? w.derivative[y[i] - w.first_value] : 0;
}

/* ---- gradients ----------------------------------------------------------------------------------------------------- */

void graph_gradient(graph *g, const char *call, graph_id loss, int count, const graph_id *wrt, graph_id *gradients) {
    const graph_shape *shape = graph_shape_of(g, loss);
    tir_expr elements = tir_index(g->pool, 1);
    for (int d = 0; d < shape->rank; d++) elements = tir_mul(g->pool, elements, shape->dim[d]);
    if (!lib_dtype_is_float(shape->dtype) || !tir_is_number(g->pool, elements, 1)) {
        lib_text text;
        lib_text_init(&text, g->arena);
        graph_describe_shape(&text, g, shape);
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: the loss is %s, expected one element of a float type",
                  call, text.data);
    }
    const graph_id seed = graph_full(g, graph_tangent_dtype(shape->dtype), shape->rank, shape->dim, 1);
    graph_vjp(g, call, 1, &loss, &seed, count, wrt, gradients);
    for (int i = 0; i < count; i++) {
        const dlc_dtype dtype = graph_shape_of(g, wrt[i])->dtype;
        gradients[i] = gradients[i] ? graph_cast(g, gradients[i], dtype) : graph_full_like(g, wrt[i], 0);
    }
}

/* ---- passes -------------------------------------------------------------------------------------------------------- */

/* The inputs, or outputs, that are of a float type: values[count]. */
static int of_numbers(const graph *g, uint32_t all, const graph_id *from, graph_id *values) {
    int count = 0;
    for (uint32_t i = 0; i < all; i++)
        if (is_number(graph_shape_of(g, from[i])->dtype)) values[count++] = from[i];
    return count;
}

static const char *named(graph *g, graph_id value, const char *what) {
    const char *name = g->values.data[value].name;
    return lib_arena_format(g->arena, "%s.%s", name ? name : lib_arena_format(g->arena, "v%u", value), what);
}

graph *graph_add_gradients(lib_arena *arena, const graph *g) {
    graph *out = graph_copy(arena, g);
    graph_id *wrt = LIB_NEW_ARRAY(arena, graph_id, out->inputs.count),
             *gradient = LIB_NEW_ARRAY(arena, graph_id, out->inputs.count);
    const int count = of_numbers(out, out->inputs.count, out->inputs.data, wrt);
    if (out->outputs.count == 0) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "gradient: the graph has no output");
    graph_gradient(out, "gradient", out->outputs.data[0], count, wrt, gradient);
    for (int i = 0; i < count; i++) graph_new_output(out, named(out, wrt[i], "gradient"), gradient[i]);
    return out;
}

graph *graph_add_tangents(lib_arena *arena, const graph *g) {
    graph *out = graph_copy(arena, g);
    const uint32_t outputs = out->outputs.count, inputs = out->inputs.count;
    graph_id *x = LIB_NEW_ARRAY(arena, graph_id, inputs), *tangent = LIB_NEW_ARRAY(arena, graph_id, inputs);
    graph_id *y = LIB_NEW_ARRAY(arena, graph_id, outputs), *moved = LIB_NEW_ARRAY(arena, graph_id, outputs);
    const int count = of_numbers(out, inputs, out->inputs.data, x),
              results = of_numbers(out, outputs, out->outputs.data, y);
    for (int i = 0; i < count; i++) {
        graph_shape shape = *graph_shape_of(out, x[i]);
        const dlc_dtype dtype = shape.dtype;
        tangent[i] =
            graph_cast(out, graph_new_input(out, named(out, x[i], "tangent"), &shape), graph_tangent_dtype(dtype));
    }
    graph_jvp(out, "tangent", count, x, tangent, results, y, moved);
    for (int i = 0; i < results; i++) {
        const dlc_dtype dtype = graph_shape_of(out, y[i])->dtype;
        moved[i] = moved[i] ? graph_cast(out, moved[i], dtype) : graph_full_like(out, y[i], 0);
        graph_new_output(out, lib_arena_format(arena, "%s.tangent", out->output_names.data[i]), moved[i]);
    }
    return out;
}
