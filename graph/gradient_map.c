/* Derivatives of maps: the scalar of the row is differentiated in a pool of its own (tir/derivative.h), and the derivative becomes nodes. Each
 * operator of scalar expressions is a row. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "tir/derivative.h"

enum { OPERANDS_MAX = 8 };

/* A derivative in `pool`, whose leaves stand for values of the graph. */
typedef struct translation {
    graph *g;
    tir_pool pool;
    int leaves;
    tir_expr leaf[OPERANDS_MAX + 1];
    graph_id value[OPERANDS_MAX + 1];
    /* by expression: its value; 0: none yet */
    graph_id *made;
} translation;

graph_id graph_multiply_no_nan(graph *g, graph_id a, graph_id b) {
    return graph_emit_broadcast(g, graph_op_find("multiply_no_nan"), 2, (graph_id[]){a, b}, NULL);
}

/* Rows whose names are not those of the operators. */
static const char *row_of(tir_op op) {
    switch (op) {
    case TIR_SHL: return "shift_left";
    case TIR_SHR: return "shift_right_arithmetic";
    case TIR_NORMAL_TAIL: return "normal_cdf";
    default: return tir_ops[op].text;
    }
}

static double constant_of(const tir_pool *pool, tir_expr e) {
    const tir_dtype dtype = tir_dtype_of(pool, e);
    int64_t integer;
    if (tir_is_const(pool, e, &integer)) return (double)integer;
    const uint64_t bits = tir_get(pool, e)->bits;
    double number;
    float single;
    if (dtype == DLC_F64) {
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    const uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, sizeof single);
    return (double)single;
}

/* Emits the node of one expression, whose operands have been made. */
static graph_id emit(translation *t, tir_expr e) {
    const tir_op op = tir_op_of(&t->pool, e);
    const dlc_dtype dtype = (dlc_dtype)tir_dtype_of(&t->pool, e);
    graph_id x[OPERANDS_MAX] = {0};
    int64_t integer;
    if (op == TIR_CONST)
        return lib_dtype_is_float(dtype) ? graph_scalar(t->g, dtype, constant_of(&t->pool, e))
               : tir_is_const(&t->pool, e, &integer)
                   ? graph_scalar_i64(t->g, dtype, integer)
                   : graph_scalar_i64(t->g, dtype, (int64_t)tir_get(&t->pool, e)->bits);
    for (int k = 0; k < tir_get(&t->pool, e)->count; k++) x[k] = t->made[tir_operand(&t->pool, e, k)];
    if (op == TIR_CAST) return graph_cast(t->g, x[0], dtype);
    if (op == TIR_MULADD) return graph_add(t->g, graph_mul(t->g, x[0], x[1]), x[2]);
    if (op == TIR_BITCAST)
        return graph_emit_with(t->g, "bit_cast", 1, x, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
    const graph_op *row = graph_op_find(row_of(op));
    if (!row) lib_raise(t->g->arena->scope, DLC_INTERNAL, "there is no operator %s for a derivative", tir_ops[op].text);
    return graph_emit_broadcast(t->g, row, tir_get(&t->pool, e)->count, x, NULL);
}

/* The value of an expression. */
static graph_id translate(translation *t, tir_expr e) {
    bool *used = LIB_NEW_ARRAY(t->g->arena, bool, e + 1);
    used[e] = true;
    for (tir_expr i = e; i > 0; i--)
        for (int k = 0; used[i] && !t->made[i] && k < tir_get(&t->pool, i)->count; k++)
            used[tir_operand(&t->pool, i, k)] = true;
    for (tir_expr i = 1; i <= e; i++)
        if (used[i] && !t->made[i]) t->made[i] = emit(t, i);
    return t->made[e];
}

static bool is_zero(const translation *t, tir_expr e) {
    return tir_op_of(&t->pool, e) == TIR_CONST && constant_of(&t->pool, e) == 0;
}

static bool is_finite(const translation *t, tir_expr e) {
    if (tir_op_of(&t->pool, e) == TIR_SELECT)
        return is_finite(t, tir_operand(&t->pool, e, 1)) && is_finite(t, tir_operand(&t->pool, e, 2));
    return tir_op_of(&t->pool, e) == TIR_CONST && constant_of(&t->pool, e) - constant_of(&t->pool, e) == 0;
}

/* given * e: where e is a selection, given is selected; where the derivative may be infinite or NaN, 0 stays 0. */
static graph_id times(translation *t, graph_id given, tir_expr e) {
    if (tir_op_of(&t->pool, e) == TIR_CONST) {
        const double number = constant_of(&t->pool, e);
        return number == 1 ? given : number == -1 ? graph_neg(t->g, given) : graph_mul_number(t->g, given, number);
    }
    if (tir_op_of(&t->pool, e) == TIR_SELECT) {
        const tir_expr a = tir_operand(&t->pool, e, 1), b = tir_operand(&t->pool, e, 2);
        const graph_id condition = translate(t, tir_operand(&t->pool, e, 0)), zero = graph_scalar_like(t->g, given, 0);
        return graph_select(t->g, condition, is_zero(t, a) ? zero : times(t, given, a),
                            is_zero(t, b) ? zero : times(t, given, b));
    }
    const graph_id factor = translate(t, e);
    return is_finite(t, e) ? graph_mul(t->g, given, factor) : graph_multiply_no_nan(t->g, given, factor);
}

static tir_expr add_leaf(translation *t, graph_id value) {
    const tir_dtype dtype = (tir_dtype)graph_shape_of(t->g, value)->dtype;
    t->value[t->leaves] = value;
    return t->leaf[t->leaves++] = tir_var(&t->pool, "x", TIR_VAR_LET, dtype, 0, 0);
}

graph_id graph_map_scaled(const graph_rule *rule, graph_id given) {
    graph *g = rule->g;
    if (rule->op->partial) {
        graph_id factor = 0;
        graph_rule own = *rule;
        own.out = &factor;
        own.op->partial(&own);
        if (!factor) return 0;
        if (graph_shape_of(g, factor)->dtype == DLC_BOOL)
            return graph_select(g, factor, given, graph_scalar_like(g, given, 0));
        return graph_multiply_no_nan(g, given, factor);
    }
    translation t = {.g = g};
    tir_expr operands[OPERANDS_MAX];
    if (rule->inputs > OPERANDS_MAX)
        lib_raise(g->arena->scope, DLC_INTERNAL, "%s: a map of %d operands", rule->op->name, rule->inputs);
    tir_pool_init(&t.pool, g->arena);
    for (int k = 0; k < rule->inputs; k++) operands[k] = rule->input[k] ? add_leaf(&t, graph_rule_operand(rule, k)) : 0;
    const graph_id result = graph_rule_result(rule, 0);
    const tir_expr y = add_leaf(&t, result);
    const tir_dtype dtype = (tir_dtype)graph_shape_of(g, result)->dtype;
    const tir_expr e = graph_op_scalar(rule->op, &t.pool, dtype, operands, rule->attribute);
    const tir_expr derivative = tir_derivative(&t.pool, e, operands[rule->operand], y);
    if (!derivative || is_zero(&t, derivative)) return 0;
    t.made = LIB_NEW_ARRAY(g->arena, graph_id, derivative + 1);
    for (int i = 0; i < t.leaves; i++)
        if (t.leaf[i] <= derivative) t.made[t.leaf[i]] = t.value[i];
    /* a map may change the type: products are computed in the result's */
    const graph_id like = rule->cotangent ? graph_rule_operand(rule, rule->operand) : result;
    given = graph_cast(g, given, (dlc_dtype)dtype);
    return graph_cast(g, times(&t, given, derivative), graph_shape_of(g, like)->dtype);
}
