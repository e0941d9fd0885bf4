/* The verifier of the graph IR. Invariants, cited by number in its messages:
 *   1  a node's results are consecutive values that point back at it
 *   2  operands come before the node; 0 only for operands that may be left out
 *   3  the number of operands is one that the row allows
 *   4  attributes are in range: dtypes usable, choices, constants and sub-graphs exist
 *   5  shapes: usable dtype, rank 0..DLC_MAX_RANK, dimensions are index expressions of the pool, numbers not negative
 *   6  `inputs` are the results of the `input` nodes, in order
 *   7  outputs are values of the graph, as many as output names
 *   8  a constant node has as many bytes as its shape requires
 *   9  sub-graphs name this graph as their parent and share its pool
 *  10  symbols are distinct parameters of the pool, in its order; only outermost graphs have symbols and constraints
 *  11  the pool has no symbol that is not one of the outermost graph's */
#include "graph/internal.h"

typedef struct verifier {
    lib_scope *scope;
    const graph *g;
} verifier;

static _Noreturn void broken(const verifier *v, int invariant, uint32_t node, const char *what) {
    const char *name = node < v->g->nodes.count ? v->g->nodes.data[node].op->name : "the graph";
    lib_raise(v->scope, DLC_INTERNAL, "graph invariant %d is broken at node %u (%s): %s", invariant, node, name, what);
}

static void check_dim(const verifier *v, uint32_t node, tir_expr dim) {
    int64_t extent;
    if (!dim || dim >= v->g->pool->nodes.count) broken(v, 5, node, "a dimension is no expression of the pool");
    if (tir_dtype_of(v->g->pool, dim) != TIR_INDEX) broken(v, 5, node, "a dimension is no index expression");
    if (tir_is_const(v->g->pool, dim, &extent) && extent < 0) broken(v, 5, node, "a dimension is negative");
}

static void check_results(const verifier *v, uint32_t index) {
    const graph *g = v->g;
    const graph_node *node = &g->nodes.data[index];
    for (int k = 0; k < node->results; k++) {
        graph_id id = node->first + (graph_id)k;
        if (id == 0 || id >= g->values.count) broken(v, 1, index, "a result is not there");
        const graph_value *value = &g->values.data[id];
        if (value->node != index || value->result != k) broken(v, 1, index, "a result points at another node");
        const graph_shape *shape = &value->shape;
        if ((unsigned)shape->dtype >= DLC_DTYPE_COUNT || !lib_dtypes[shape->dtype].usable)
            broken(v, 5, index, "a result's dtype is not usable");
        if (shape->rank < 0 || shape->rank > DLC_MAX_RANK) broken(v, 5, index, "a result's rank is out of range");
        for (int i = 0; i < shape->rank; i++) check_dim(v, index, shape->dim[i]);
    }
}

static void check_operands(const verifier *v, uint32_t index) {
    const graph_node *node = &v->g->nodes.data[index];
    if (node->inputs < node->op->min_inputs || (node->op->max_inputs >= 0 && node->inputs > node->op->max_inputs))
        broken(v, 3, index, "the row does not allow so many operands");
    for (int i = 0; i < node->inputs; i++) {
        char name[32];
        bool optional;
        graph_op_operand(node->op, i, name, &optional);
        if (!node->input[i] && !optional) broken(v, 2, index, "an operand that is required is left out");
        if (node->input[i] >= v->g->values.count || (node->results > 0 && node->input[i] >= node->first))
            broken(v, 2, index, "an operand does not come before the node");
    }
}

static void check_constant(const verifier *v, uint32_t index) {
    const graph *g = v->g;
    const graph_node *node = &g->nodes.data[index];
    const graph_shape *shape = graph_shape_of(g, node->first);
    size_t size = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent = 0;
        if (!tir_is_const(g->pool, shape->dim[i], &extent)) broken(v, 8, index, "a dimension is no number");
        size *= (size_t)extent;
    }
    if (lib_dtype_bytes(shape->dtype, size) != g->constants.data[node->attribute[0].integer].size)
        broken(v, 8, index, "sizes differ");
}

static void check_attributes(const verifier *v, uint32_t index) {
    const graph *g = v->g;
    const graph_node *node = &g->nodes.data[index];
    for (int i = 0; node->op->attribute[i].name; i++) {
        const graph_attribute_spec *spec = &node->op->attribute[i];
        int64_t limit = INT64_MAX, value = node->attribute[i].integer;
        if (spec->kind == GRAPH_ATTR_DTYPE) limit = DLC_DTYPE_COUNT;
        if (spec->kind == GRAPH_ATTR_ENUM) limit = graph_choice_count(spec->choices);
        if (spec->kind == GRAPH_ATTR_SUBGRAPH) limit = g->subgraphs.count;
        if (spec->kind == GRAPH_ATTR_CONSTANT) limit = g->constants.count;
        if (limit < INT64_MAX && (value < 0 || value >= limit)) broken(v, 4, index, spec->name);
        for (int k = 0; spec->kind == GRAPH_ATTR_DIMS && k < node->attribute[i].count; k++)
            if (!node->attribute[i].dims[k] || node->attribute[i].dims[k] >= g->pool->nodes.count)
                broken(v, 4, index, spec->name);
    }
    if (graph_is_constant(node)) check_constant(v, index);
}

static void check_lists(const verifier *v) {
    const graph *g = v->g;
    uint32_t inputs = 0, none = UINT32_MAX;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        if (!graph_is_input(&g->nodes.data[i])) continue;
        if (inputs >= g->inputs.count || g->inputs.data[inputs] != g->nodes.data[i].first)
            broken(v, 6, i, "not where it belongs in the list of inputs");
        if (g->nodes.data[i].attribute[0].integer != inputs) broken(v, 6, i, "its index is not its position");
        inputs++;
    }
    if (inputs != g->inputs.count) broken(v, 6, none, "more inputs than input nodes");
    if (g->outputs.count != g->output_names.count) broken(v, 7, none, "outputs and their names differ in number");
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (g->outputs.data[i] == 0 || g->outputs.data[i] >= g->values.count)
            broken(v, 7, none, "an output is no value");
}

static void check_symbols(const verifier *v) {
    const graph *g = v->g;
    const uint32_t none = UINT32_MAX;
    if (g->parent && (g->symbols.count || g->constraints.count))
        broken(v, 10, none, "a sub-graph has symbols of its own");
    for (uint32_t i = 0; i < g->symbols.count; i++) {
        if (tir_op_of(g->pool, g->symbols.data[i].var) != TIR_VAR) broken(v, 10, none, g->symbols.data[i].name);
        if (tir_variable_of(g->pool, g->symbols.data[i].var)->kind != TIR_VAR_PARAM)
            broken(v, 10, none, g->symbols.data[i].name);
        if (i && tir_var_id(g->pool, g->symbols.data[i].var) <= tir_var_id(g->pool, g->symbols.data[i - 1].var))
            broken(v, 10, none, g->symbols.data[i].name);
    }
}

/* Checks that every parameter of the pool is a symbol of the outermost graph, so that dimensions use no others. */
static void check_pool(const verifier *v) {
    const graph *outer = graph_outermost(v->g);
    uint32_t next = 0; /* of the symbols, whose variables ascend */
    for (uint32_t i = 0; i < v->g->pool->variables.count; i++) {
        if (v->g->pool->variables.data[i].kind != TIR_VAR_PARAM) continue;
        bool known = next < outer->symbols.count && tir_var_id(outer->pool, outer->symbols.data[next].var) == i;
        if (!known) broken(v, 11, UINT32_MAX, v->g->pool->variables.data[i].name);
        next++;
    }
}

void graph_verify(lib_scope *scope, const graph *g) {
    verifier v = {scope, g};
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        check_operands(&v, i);
        check_results(&v, i);
        check_attributes(&v, i);
    }
    check_lists(&v);
    check_symbols(&v);
    if (!g->parent) check_pool(&v);
    for (uint32_t i = 0; i < g->subgraphs.count; i++) {
        const graph *inner = g->subgraphs.data[i];
        if (inner->parent != g || inner->pool != g->pool)
            broken(&v, 9, UINT32_MAX, "a sub-graph has another parent or pool");
        graph_verify(scope, inner);
    }
}
