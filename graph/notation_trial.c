/* The trial of a registered operator's tensor expression when it is defined, on operands of symbolic sizes: mistakes are told then, not when a
 * graph has the operator first; and facts of maps that rows of the table state (operation, linearity) are read from the expression. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/notation_text.h"

#include <stdlib.h>

/* ---- facts of maps -------------------------------------------------------------------------------------------------- */

typedef struct map_facts {
    tir_op operation;
    bool reversed;
    uint32_t linear;
    /* by how many element types so far; is one of them a float's? */
    int dtypes;
    bool real;
} map_facts;

/* Of e in the elements of operand k: 0: it does not depend on them, 1: it is linear, 2: neither. */
static int degree_of(const tir_pool *pool, tir_expr e, uint32_t k) {
    const tir_node *node = tir_get(pool, e);
    int a = 0, b = 0;
    if (node->op == TIR_LOAD) return node->bits == k;
    for (int i = 0; i < node->count; i++) {
        const int degree = degree_of(pool, tir_operand(pool, e, i), k);
        *(i ? &b : &a) = i > 1 && degree < b ? b : degree;
    }
    switch (node->op) {
    case TIR_NEG: return a;
    case TIR_ADD:
    case TIR_SUB: return a == b ? a : 2;
    case TIR_MUL: return a + b < 2 ? a + b : 2;
    case TIR_DIV: return b ? 2 : a;
    default: return a || b ? 2 : 0;
    }
}

/* The operation that the value is of the elements of all operands, in order or, of two, *reversed; 0: none. */
static tir_op operation_of(const tir_pool *pool, tir_expr value, int operands, tir_dtype dtype, bool *reversed) {
    const tir_node *node = tir_get(pool, value);
    bool in_order = node->count == operands;
    *reversed = in_order && operands == 2;
    for (int i = 0; i < node->count; i++) {
        const tir_node *x = tir_get(pool, tir_operand(pool, value, i));
        const bool loads = x->op == TIR_LOAD && x->dtype == dtype;
        in_order = in_order && loads && x->bits == (uint64_t)i;
        *reversed = *reversed && loads && x->bits == (uint64_t)(1 - i);
    }
    const bool keeps = node->dtype == dtype || (tir_ops[node->op].flags & TIR_COMPARES);
    return keeps && (in_order || *reversed) ? (tir_op)node->op : (tir_op)0;
}

/* Adds the facts of the map for this element type; a fact that does not hold for all types is dropped. */
static void add_facts(map_facts *facts, const tir_pool *pool, tir_expr value, int operands, tir_dtype dtype) {
    bool reversed;
    uint32_t linear = 0;
    const tir_op operation = operation_of(pool, value, operands, dtype, &reversed);
    for (int k = 0; k < operands; k++) linear |= (uint32_t)(degree_of(pool, value, (uint32_t)k) == 1) << k;
    const bool real = lib_dtype_is_float((dlc_dtype)dtype);
    const bool same = !facts->dtypes++ || (operation == facts->operation && reversed == facts->reversed);
    facts->operation = same ? operation : (tir_op)0;
    facts->reversed = same && operation && reversed;
    facts->linear = !real ? facts->linear : facts->real ? facts->linear & linear : linear;
    facts->real |= real;
}

/* ---- the trial ------------------------------------------------------------------------------------------------------ */

static tir_expr trial_symbol(graph *g, const char *name, const char *operand, int dimension) {
    return graph_symbol_named(g, name ? name : lib_arena_format(g->arena, "%s.%d", operand, dimension));
}

static graph_shape trial_shape(graph *g, const graph_notation *n, int operand, const char *name, dlc_dtype dtype) {
    const notation_tensor *p = &n->operand[operand];
    graph_shape shape = {.dtype = dtype};
    if (n->has_shape) {
        if (p->leading) shape.dim[shape.rank++] = trial_symbol(g, "...", name, 0);
        lib_dtype_parse(p->dtype, &shape.dtype);
        for (int d = 0; d < p->rank && shape.rank < DLC_MAX_RANK; d++) {
            bool number = p->dim[d].text[strspn(p->dim[d].text, "0123456789 ")] == 0 && strlen(p->dim[d].text) < 18;
            shape.dim[shape.rank++] = number ? tir_index(g->pool, strtoll(p->dim[d].text, NULL, 10))
                                             : trial_symbol(g, p->dim[d].is_name ? p->dim[d].text : NULL, name, d);
        }
        return shape;
    }
    for (int s = 0; s < n->statements; s++)
        for (uint32_t i = 0; i < n->statement[s].accesses.count; i++) {
            const notation_access *a = &n->statement[s].accesses.data[i];
            if (strcmp(a->tensor, name) != 0) continue;
            shape.rank = 0;
            if (a->leading) shape.dim[shape.rank++] = trial_symbol(g, "...", name, 0);
            for (int d = 0; d < a->count && shape.rank < DLC_MAX_RANK; d++)
                shape.dim[shape.rank++] = trial_symbol(g, a->index[d], name, d);
            return shape;
        }
    return shape;
}

/* Emits the operator on operands of symbolic sizes and this element type. Required numbers are 1, which is valid as factor and
 * divisor; required lists and strings are empty. */
static void try_with(graph_definition *definition, dlc_dtype dtype, map_facts *facts) {
    const graph_op *op = &definition->op;
    graph *g = graph_new(&definition->arena, NULL);
    graph_id input[DLC_MAX_RANK];
    graph_shape shape[DLC_MAX_RANK];
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute] = {0};
    for (int i = 0; op->attribute[i].name; i++)
        if (!op->attribute[i].initial)
            attribute[i] = (graph_attribute){.given = true, .integer = 1, .number = 1, .string = ""};
    for (int i = 0; op->attribute[i].name; i++)
        if (!op->attribute[i].initial && op->attribute[i].kind == GRAPH_ATTR_DTYPE) attribute[i].integer = dtype;
    for (int i = 0; i < op->max_inputs; i++) {
        char name[32];
        bool optional;
        graph_op_operand(op, i, name, &optional);
        shape[i] = trial_shape(g, definition->notation, i, name, dtype);
        input[i] = graph_new_input(g, name, &shape[i]);
    }
    for (int i = 0; op->attribute[i].name; i++)
        if (op->attribute[i].kind == GRAPH_ATTR_ENUM && !op->attribute[i].initial) attribute[i].integer = 0;
    graph_emit_broadcast(g, op, op->max_inputs, input, attribute);
    if (facts)
        add_facts(facts, g->pool, graph_notation_value(g, op, definition->notation, shape), op->max_inputs,
                  (tir_dtype)dtype);
}

static bool try_guarded(graph_definition *definition, dlc_dtype dtype, map_facts *facts, lib_error *error) {
    lib_scope *const outer = definition->arena.scope;
    lib_scope inner;
    definition->arena.scope = &inner;
    if (LIB_ENTER(&inner)) try_with(definition, dtype, facts);
    definition->arena.scope = outer;
    *error = inner.error;
    if (inner.error.status == DLC_OUT_OF_MEMORY) lib_raise_error(outer, &inner.error);
    return inner.error.status == DLC_OK;
}

/* Does the shape rule name element types other than T and concrete ones? Such a name may be any type, so that a trial with one type
 * proves nothing about others. */
static bool has_types_of_its_own(const graph_notation *n) {
    dlc_dtype dtype;
    for (int i = 0; n->has_shape && i < n->operands; i++)
        if (strcmp(n->operand[i].dtype, "T") != 0 && !lib_dtype_parse(n->operand[i].dtype, &dtype)) return true;
    return false;
}

void graph_notation_try(graph_definition *definition) {
    graph_op *op = &definition->op;
    if (!definition->notation->statements || has_types_of_its_own(definition->notation)) return;
    lib_error first = {.status = DLC_OK}, error;
    map_facts facts = {0};
    /* an attribute's value decides what an expression is */
    const bool learns = op->class_ == GRAPH_MAP && !op->attribute[0].name;
    bool good = false;
    for (int i = -1; i < DLC_DTYPE_COUNT && (!good || learns); i++) {
        const dlc_dtype dtype = i < 0 ? DLC_F32 : (dlc_dtype)i;
        if (!graph_op_accepts(op, dtype) || (i >= 0 && dtype == DLC_F32)) continue;
        good |= try_guarded(definition, dtype, learns ? &facts : NULL, &error);
        if (first.status == DLC_OK) first = error;
    }
    if (!good && first.status != DLC_OK) lib_raise_error(definition->arena.scope, &first);
    if (!facts.dtypes) return;
    op->operation = facts.operation;
    op->reversed = facts.reversed;
    op->linear = facts.linear;
}
