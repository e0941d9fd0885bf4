/* Walking an old graph into a new one: the basis of every pass. The old graph and its pool are only read, so that several threads
 * may bind one graph at once. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/origin.h"
#include "graph/segment.h"

bool graph_is_source(const graph_op *op) {
    return op->structure == GRAPH_ARRIVES || op->structure == GRAPH_STORED;
}

/* ---- symbols, constraints, dimensions -------------------------------------------------------------------------- */

tir_expr graph_walk_dim(const graph_walk *walk, tir_expr dim) {
    if (!walk->variables) return dim;
    return tir_import(walk->to->pool, walk->from->pool, dim, walk->variables);
}

static void carry_symbol(graph_walk *walk, const graph_symbol *symbol, int64_t value) {
    const tir_variable *variable = tir_variable_of(walk->from->pool, symbol->var);
    uint32_t id = tir_var_id(walk->from->pool, symbol->var);
    graph *to = walk->to;
    if (value != INT64_MIN) {
        if (value < variable->low || value > variable->high || value % variable->multiple != 0)
            lib_raise(to->arena->scope, DLC_INVALID_ARGUMENT, "dimension %s is %lld: expected %lld to %lld%s",
                      symbol->name, (long long)value, (long long)variable->low, (long long)variable->high,
                      graph_multiple_text(variable->multiple).text);
        walk->variables[id] = tir_index(to->pool, value);
        return;
    }
    tir_expr var = graph_symbol_named(to, symbol->name);
    tir_variable *own = &to->pool->variables.data[tir_var_id(to->pool, var)];
    own->low = variable->low;
    own->high = variable->high;
    own->multiple = variable->multiple;
    to->symbols.data[to->symbols.count - 1].varies = symbol->varies;
    walk->variables[id] = var;
}

static void carry_constraints(graph_walk *walk) {
    for (uint32_t i = 0; i < walk->from->constraints.count; i++) {
        const graph_constraint *constraint = &walk->from->constraints.data[i];
        tir_expr left = graph_walk_dim(walk, constraint->left), right = graph_walk_dim(walk, constraint->right);
        graph_require_equal(walk->to, left, right, "%s", constraint->message);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

void graph_walk_into(graph_walk *walk) {
    const graph *from = walk->from;
    graph *to = walk->to;
    walk->map = LIB_NEW_ARRAY(to->arena, graph_id, from->values.count);
    walk->recorded = to->values.count;
    lib_vec_reserve(to->arena, &to->nodes, from->nodes.count); /* most passes emit about as many */
    lib_vec_reserve(to->arena, &to->values, from->values.count);
    walk->pass(walk);
    for (uint32_t i = 0; !walk->own_outputs && i < from->outputs.count; i++)
        graph_new_output(to, from->output_names.data[i], walk->map[from->outputs.data[i]]);
}

static int64_t carry_subgraph(graph_walk *walk, graph *inner) {
    int64_t number;
    if (walk->moves_inner && inner->parent == walk->from) {
        inner->parent = walk->to;
        return graph_add_subgraph(walk->to, inner);
    }
    graph_walk nested = *walk;
    nested.from = inner;
    nested.own_outputs = false;
    nested.to = graph_new_subgraph(walk->to, &number);
    graph_walk_into(&nested);
    return number;
}

static uint32_t carry_constant(graph_walk *walk, int64_t number) {
    return graph_add_constant_as(walk->to, walk->from->constants.data[number]);
}

void graph_walk_attribute(graph_walk *walk, const graph_node *node, int which, graph_attribute *out) {
    lib_arena *arena = walk->to->arena;
    const graph_attribute_spec *spec = &node->op->attribute[which];
    const graph_attribute *old = &node->attribute[which];
    *out = graph_attribute_copy(arena, spec, old);
    if (spec->kind == GRAPH_ATTR_SUBGRAPH)
        out->integer = carry_subgraph(walk, walk->from->subgraphs.data[old->integer]);
    if (spec->kind == GRAPH_ATTR_CONSTANT) out->integer = carry_constant(walk, old->integer);
    if (spec->kind != GRAPH_ATTR_DIMS || old->count == 0) return;
    tir_expr *dims = LIB_NEW_ARRAY(arena, tir_expr, (size_t)old->count);
    for (int k = 0; k < old->count; k++) dims[k] = graph_walk_dim(walk, old->dims[k]);
    out->dims = dims;
}

void graph_walk_attributes(graph_walk *walk, const graph_node *node, graph_attribute *out) {
    for (int i = 0; node->op->attribute[i].name; i++) graph_walk_attribute(walk, node, i, &out[i]);
}

graph_id *graph_walk_inputs(const graph_walk *walk, const graph_node *node) {
    graph_id *input = LIB_NEW_ARRAY(walk->to->arena, graph_id, (size_t)node->inputs);
    for (int i = 0; i < node->inputs; i++) input[i] = walk->map[node->input[i]];
    return input;
}

static uint32_t carry_origins(graph_walk *walk, uint32_t list) {
    if (!list) return 0;
    if (!walk->origins) return graph_origins_import(walk->to, walk->from, list);
    if (!walk->origins[list]) walk->origins[list] = graph_origins_import(walk->to, walk->from, list) + 1;
    return walk->origins[list] - 1;
}

/* Adds the origins of value `old` to its replacement `now`, and to values without origins that were emitted since the last record;
 * `now` gets its own name if it has none. */
static void record_origins(graph_walk *walk, graph_id old, graph_id now) {
    graph *to = walk->to;
    uint32_t list = carry_origins(walk, walk->from->values.data[old].origins);
    for (graph_id v = walk->recorded; list && v < to->values.count; v++)
        if (!to->values.data[v].origins && graph_node_of(to, v)->op->class_ != GRAPH_SOURCE)
            to->values.data[v].origins = list;
    if (list) graph_origins_add(to, now, list);
    graph_call_value(to, now, walk->from->values.data[old].called);
    walk->recorded = to->values.count;
}

static void record(graph_walk *walk, const graph_node *node, int result, graph_id now) {
    graph_id old = node->first + (graph_id)result;
    walk->map[old] = now;
    record_origins(walk, old, now);
    const char *name = walk->from->values.data[old].name;
    graph_value *value = &walk->to->values.data[now];
    if (name && !value->name) value->name = lib_arena_string(walk->to->arena, name);
}

void graph_walk_record(graph_walk *walk, const graph_node *node, const graph_id *results) {
    for (int i = 0; i < node->results; i++) record(walk, node, i, results[i]);
}

void graph_walk_node(graph_walk *walk, uint32_t index) {
    const graph_node *node = &walk->from->nodes.data[index];
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    graph_walk_attributes(walk, node, attribute);
    enum { FEW = 8 };
    graph_id few[FEW], *input = node->inputs <= FEW ? few : graph_walk_inputs(walk, node);
    for (int i = 0; input == few && i < node->inputs; i++) few[i] = walk->map[node->input[i]];
    graph_id first = graph_emit(walk->to, node->op, node->inputs, input, attribute);
    for (int i = 0; i < node->results; i++) record(walk, node, i, first + (graph_id)i);
}

static void spread_life(const graph *g, bool *live) {
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        live[i] = live[i] || node->impure;
        for (int k = 0; live[i] && k < node->inputs; k++)
            if (node->input[k]) live[g->values.data[node->input[k]].node] = true;
    }
}

bool *graph_live_nodes(lib_arena *arena, const graph *g) {
    bool *live = LIB_NEW_ARRAY(arena, bool, g->nodes.count);
    for (uint32_t i = 0; i < g->outputs.count; i++) live[g->values.data[g->outputs.data[i]].node] = true;
    for (uint32_t i = 0; i < g->inputs.count; i++) live[g->values.data[g->inputs.data[i]].node] = true;
    do spread_life(g, live);
    while (graph_revive_cuts(g, live));
    return live;
}

bool graph_any_node(const graph *g, bool (*is)(const graph *g, const graph_node *node)) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (is(g, &g->nodes.data[i])) return true;
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (graph_any_node(g->subgraphs.data[i], is)) return true;
    return false;
}

void graph_mark_operands(const graph *g, bool *marked) {
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        for (int k = 0; marked[i] && k < node->inputs; k++)
            if (node->input[k]) marked[g->values.data[node->input[k]].node] = true;
    }
}

uint32_t *graph_count_readers(lib_arena *arena, const graph *g, const bool *live) {
    uint32_t *readers = LIB_NEW_ARRAY(arena, uint32_t, g->values.count);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (int k = 0; live[i] && k < g->nodes.data[i].inputs; k++) readers[g->nodes.data[i].input[k]]++;
    for (uint32_t i = 0; i < g->outputs.count; i++) readers[g->outputs.data[i]]++;
    return readers;
}

/* Has the node a single result, of no float type, as indices and masks have? */
static bool may_be_index(const graph *g, const graph_node *node) {
    return node->results == 1 && !lib_dtype_is_float(graph_shape_of(g, node->first)->dtype);
}

static uint8_t index_cost(const graph *g, const graph_node *node, const uint8_t *costs) {
    enum { MOST = 8 };
    static const bool cheap[TIR_OP_COUNT] = {
        [TIR_ADD] = true, [TIR_SUB] = true, [TIR_MIN] = true, [TIR_MAX] = true, [TIR_AND] = true, [TIR_OR] = true,
        [TIR_NOT] = true, [TIR_EQ] = true,  [TIR_NE] = true,  [TIR_LT] = true,  [TIR_LE] = true,  [TIR_NEG] = true};
    double number;
    if (!may_be_index(g, node)) return 0;
    if (node->op->structure == GRAPH_POSITIONS) return 1;
    if (graph_is_constant(node)) return graph_is_number(g, node->first, &number);
    bool map = cheap[graph_map_operation(node->op)];
    int cost = map;
    for (int k = 0; k < node->inputs && (map || graph_is_index_change(node->op)); k++) {
        uint8_t below = node->input[k] ? costs[g->values.data[node->input[k]].node] : 0;
        if (!below) return 0;
        cost += below;
    }
    return cost <= MOST ? (uint8_t)cost : 0;
}

uint8_t *graph_index_costs(lib_arena *arena, const graph *g) {
    uint8_t *costs = LIB_NEW_ARRAY(arena, uint8_t, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) costs[i] = index_cost(g, &g->nodes.data[i], costs);
    return costs;
}

/* Is the value a broadcast to at least `times` as many elements, so that its reads stay in cache? */
static bool is_stretched(const graph *g, graph_id value) {
    const double times = 8;
    const graph_node *node = graph_node_of(g, value);
    if (node->op->structure != GRAPH_REPEATS) return false;
    const graph_shape *from = graph_shape_of(g, node->input[0]), *to = graph_shape_of(g, value);
    double before = 1, after = 1;
    for (int i = 0; i < from->rank; i++) before *= (double)tir_range(g->pool, from->dim[i]).high;
    for (int i = 0; i < to->rank; i++) after *= (double)tir_range(g->pool, to->dim[i]).high;
    return times * before <= after;
}

static uint8_t mask_cost(const graph *g, const graph_node *node, const uint8_t *index_costs, const uint8_t *costs) {
    enum { MOST = 8 };
    static const bool maps[TIR_OP_COUNT] = {
        [TIR_ADD] = true, [TIR_SUB] = true, [TIR_MIN] = true, [TIR_MAX] = true, [TIR_AND] = true,
        [TIR_OR] = true,  [TIR_NOT] = true, [TIR_LT] = true,  [TIR_LE] = true,  [TIR_CAST] = true};
    const uint32_t index = (uint32_t)(node - g->nodes.data);
    if (index_costs[index] || !may_be_index(g, node)) return index_costs[index];
    if (graph_is_index_change(node->op)) return costs[g->values.data[node->input[0]].node];
    int cost = 1, positions = 0, read = 0;
    for (int k = 0; k < node->inputs; k++) {
        if (!node->input[k]) return 0;
        const uint8_t below = costs[g->values.data[node->input[k]].node];
        const dlc_dtype dtype = graph_shape_of(g, node->input[k])->dtype;
        positions += below > 0;
        read += !below && !is_stretched(g, node->input[k]);
        cost += below ? below : 1;
        if (lib_dtype_is_float(dtype) || (read && !below && dtype != DLC_BOOL)) return 0;
    }
    return maps[graph_map_operation(node->op)] && positions && read <= 1 && cost <= MOST ? (uint8_t)cost : 0;
}

uint8_t *graph_mask_costs(lib_arena *arena, const graph *g, const uint8_t *index_costs) {
    uint8_t *costs = LIB_NEW_ARRAY(arena, uint8_t, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) costs[i] = mask_cost(g, &g->nodes.data[i], index_costs, costs);
    return costs;
}

void graph_walk_live(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++)
        if (live[i]) graph_walk_node(walk, i);
}

void graph_walk_all(graph_walk *walk) {
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) graph_walk_node(walk, i);
}

graph *graph_walk_run(lib_arena *arena, const graph *from, uint32_t phase, const int64_t *values,
                      void (*pass)(graph_walk *walk), void *user) {
    graph_walk walk = {.from = from, .to = graph_new(arena, NULL), .pass = pass, .user = user};
    walk.to->phase = phase;
    if (graph_outermost(from)->origins.count)
        walk.origins = LIB_NEW_ARRAY(arena, uint32_t, graph_outermost(from)->origins.count);
    walk.to->next_stream = from->next_stream;
    walk.to->registry = from->registry;
    walk.to->keeps_dimensions = from->keeps_dimensions;
    walk.variables = LIB_NEW_ARRAY(arena, tir_expr, from->pool->variables.count);
    for (uint32_t i = 0; i < from->symbols.count; i++)
        carry_symbol(&walk, &from->symbols.data[i], values ? values[i] : INT64_MIN);
    carry_constraints(&walk);
    for (uint32_t i = 0; i < from->customs.count; i++) graph_add_custom(walk.to, &from->customs.data[i]);
    graph_walk_into(&walk);
    if (lib_environment_verify() > 1) graph_verify(arena->scope, walk.to);
    return walk.to;
}

/* ---- parts of one outermost graph --------------------------------------------------------------------------------- */

static void pass_nothing(graph_walk *walk) {
    (void)walk;
}

graph_walk graph_walk_between(const graph *from, graph *to) {
    graph_walk walk = {.from = from, .to = to, .pass = pass_nothing, .own_outputs = true};
    graph_walk_into(&walk);
    walk.pass = graph_walk_all; /* of nested sub-graphs */
    walk.own_outputs = false;
    return walk;
}

void graph_inline(const graph *body, graph *to, const graph_id *inputs, graph_id *outputs) {
    graph_walk walk = graph_walk_between(body, to);
    for (uint32_t i = 0; i < body->inputs.count; i++) walk.map[body->inputs.data[i]] = inputs[i];
    for (uint32_t i = 0; i < body->nodes.count; i++)
        if (!walk.map[body->nodes.data[i].first] || body->nodes.data[i].results == 0) graph_walk_node(&walk, i);
    for (uint32_t i = 0; i < body->outputs.count; i++) outputs[i] = walk.map[body->outputs.data[i]];
}

/* ---- copy ------------------------------------------------------------------------------------------------------ */

typedef struct adopter {
    bool (*adopt)(void *user, graph_constant *constant);
    void *user;
} adopter;

static void copy_constant(lib_arena *arena, graph_constant *constant) {
    graph_bytes *shared = graph_bytes_of(constant->holder);
    if (shared) {
        constant->holder->keep(constant->holder);
        graph_bytes_own(arena, shared);
    }
    if (constant->borrowed) return;
    void *bytes = lib_arena_take_aligned(arena, constant->size, 64);
    if (constant->size) memcpy(bytes, constant->bytes, constant->size);
    constant->bytes = bytes;
}

static void pass_copy(graph_walk *walk) {
    const adopter *by = walk->user;
    graph_walk_all(walk);
    for (uint32_t i = 0; i < walk->to->constants.count; i++) {
        graph_constant *constant = &walk->to->constants.data[i];
        if (!by || !by->adopt(by->user, constant)) copy_constant(walk->to->arena, constant);
    }
}

graph *graph_copy(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, pass_copy, NULL);
}

graph *graph_copy_to(lib_arena *arena, const graph *g, bool (*adopt)(void *user, graph_constant *constant),
                     void *user) {
    return graph_walk_run(arena, g, g->phase, NULL, pass_copy, &(adopter){adopt, user});
}
