/* Derivatives of maps: the scalar of the row is differentiated in a pool of its own (tir/derivative.h), and the derivative becomes nodes. Each
 * operator of scalar expressions is a row. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "tir/arith.h"
#include "tir/derivative.h"

enum { OPERANDS_MAX = 8 };

/* The derivative of e with respect to `leaf`, y being its value. */
typedef struct known {
    tir_expr e, leaf, y, derivative;
} known;

/* Scalars and their derivatives, in one pool for all maps of a walk: equal rows give equal expressions. */
struct graph_map_pool {
    tir_pool pool;
    /* leaf k of each element type, operands and, last, the result; 0: not made yet */
    tir_expr leaf[OPERANDS_MAX + 1][DLC_DTYPE_COUNT];
    /* derivatives, by a hash of what they are of */
    lib_map by_hash;
    lib_vec(known) derivatives;
    /* by expression: its value for the present map, 0: none; those that have one, and those to be visited */
    lib_vec(graph_id) value;
    lib_vec(tir_expr) valued, stack;
};

/* Expressions as nodes of a graph. */
typedef struct translation {
    graph *g;
    graph_map_pool *maps;
    tir_pool *pool;
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
    int64_t integer;
    return tir_is_const(pool, e, &integer) ? (double)integer
                                           : tir_bits_to_f64(tir_dtype_of(pool, e), tir_get(pool, e)->bits);
}

graph_id graph_emit_scalar(graph *g, const tir_pool *pool, tir_expr e, const graph_id *x) {
    const tir_op op = tir_op_of(pool, e);
    const dlc_dtype dtype = (dlc_dtype)tir_dtype_of(pool, e);
    int64_t integer;
    if (op == TIR_CONST)
        return lib_dtype_is_float(dtype)         ? graph_scalar(g, dtype, constant_of(pool, e))
               : tir_is_const(pool, e, &integer) ? graph_scalar_i64(g, dtype, integer)
                                                 : graph_scalar_i64(g, dtype, (int64_t)tir_get(pool, e)->bits);
    if (op == TIR_CAST) return graph_cast(g, x[0], dtype);
    if (op == TIR_MULADD) return graph_add(g, graph_mul(g, x[0], x[1]), x[2]);
    if (op == TIR_BITCAST)
        return graph_emit_with(g, "bit_cast", 1, x, 1, (graph_setting[]){graph_set_integer("dtype", dtype)});
    const graph_op *row = graph_op_find(row_of(op));
    if (!row) lib_raise(g->arena->scope, DLC_INTERNAL, "there is no operator %s for a derivative", tir_ops[op].text);
    return graph_emit_broadcast(g, row, tir_get(pool, e)->count, x, NULL);
}

/* Emits the node of one expression, whose operands have been made. */
static graph_id emit(translation *t, tir_expr e) {
    graph_id x[OPERANDS_MAX] = {0};
    for (int k = 0; k < tir_get(t->pool, e)->count; k++) x[k] = t->maps->value.data[tir_operand(t->pool, e, k)];
    return graph_emit_scalar(t->g, t->pool, e, x);
}

static void set_value(graph_map_pool *maps, tir_expr e, graph_id value) {
    maps->value.data[e] = value;
    lib_vec_push(maps->pool.arena, &maps->valued, e);
}

/* The value of an expression: operands first. */
static graph_id translate(translation *t, tir_expr e) {
    graph_map_pool *maps = t->maps;
    lib_vec_push(maps->pool.arena, &maps->stack, e);
    while (maps->stack.count) {
        const tir_expr top = maps->stack.data[maps->stack.count - 1];
        const uint32_t before = maps->stack.count;
        for (int k = 0; !maps->value.data[top] && k < tir_get(t->pool, top)->count; k++) {
            const tir_expr below = tir_operand(t->pool, top, k);
            if (!maps->value.data[below]) lib_vec_push(maps->pool.arena, &maps->stack, below);
        }
        if (maps->stack.count > before) continue;
        if (!maps->value.data[top]) set_value(maps, top, emit(t, top));
        maps->stack.count--;
    }
    return maps->value.data[e];
}

static bool is_zero(const translation *t, tir_expr e) {
    return tir_op_of(t->pool, e) == TIR_CONST && constant_of(t->pool, e) == 0;
}

static bool is_finite(const translation *t, tir_expr e) {
    if (tir_op_of(t->pool, e) == TIR_SELECT)
        return is_finite(t, tir_operand(t->pool, e, 1)) && is_finite(t, tir_operand(t->pool, e, 2));
    return tir_op_of(t->pool, e) == TIR_CONST && constant_of(t->pool, e) - constant_of(t->pool, e) == 0;
}

/* given * e: where e is a selection, given is selected; where the derivative may be infinite or NaN, 0 stays 0. */
static graph_id times(translation *t, graph_id given, tir_expr e) {
    if (tir_op_of(t->pool, e) == TIR_CONST) {
        const double number = constant_of(t->pool, e);
        return number == 1 ? given : number == -1 ? graph_neg(t->g, given) : graph_mul_number(t->g, given, number);
    }
    if (tir_op_of(t->pool, e) == TIR_SELECT) {
        const tir_expr a = tir_operand(t->pool, e, 1), b = tir_operand(t->pool, e, 2);
        const graph_id condition = translate(t, tir_operand(t->pool, e, 0)), zero = graph_scalar_like(t->g, given, 0);
        return graph_select(t->g, condition, is_zero(t, a) ? zero : times(t, given, a),
                            is_zero(t, b) ? zero : times(t, given, b));
    }
    const graph_id factor = translate(t, e);
    return is_finite(t, e) ? graph_mul(t->g, given, factor) : graph_multiply_no_nan(t->g, given, factor);
}

graph_map_pool *graph_new_map_pool(lib_arena *arena) {
    graph_map_pool *maps = LIB_NEW(arena, graph_map_pool);
    tir_pool_init(&maps->pool, arena);
    return maps;
}

/* Leaf number `number`, of the value's element type. */
static tir_expr leaf_for(graph_map_pool *maps, const graph *g, int number, graph_id value) {
    const dlc_dtype dtype = graph_shape_of(g, value)->dtype;
    tir_expr *leaf = &maps->leaf[number][dtype];
    if (!*leaf) *leaf = tir_var(&maps->pool, "x", TIR_VAR_LET, (tir_dtype)dtype, 0, 0);
    return *leaf;
}

static tir_expr derivative_of(graph_map_pool *maps, tir_expr e, tir_expr leaf, tir_expr y) {
    const uint64_t hash = lib_hash_mix(lib_hash_mix(e, leaf), y);
    for (uint32_t at = lib_map_first(&maps->by_hash, hash); at != LIB_MAP_END;
         at = lib_map_next(&maps->by_hash, hash, at)) {
        const known *k = &maps->derivatives.data[maps->by_hash.slots[at].value];
        if (k->e == e && k->leaf == leaf && k->y == y) return k->derivative;
    }
    const known made = {e, leaf, y, tir_derivative(&maps->pool, e, leaf, y)};
    lib_map_insert(maps->pool.arena, &maps->by_hash, hash, maps->derivatives.count);
    lib_vec_push(maps->pool.arena, &maps->derivatives, made);
    return made.derivative;
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
    graph_map_pool *maps = rule->maps;
    translation t = {g, maps, &maps->pool};
    tir_expr operands[OPERANDS_MAX];
    graph_id given_values[OPERANDS_MAX + 1];
    if (rule->inputs > OPERANDS_MAX)
        lib_raise(g->arena->scope, DLC_INTERNAL, "%s: a map of %d operands", rule->op->name, rule->inputs);
    for (int k = 0; k < rule->inputs; k++) {
        given_values[k] = rule->input[k] ? graph_rule_operand(rule, k) : 0;
        operands[k] = rule->input[k] ? leaf_for(maps, g, k, given_values[k]) : 0;
    }
    const graph_id result = graph_rule_result(rule, 0);
    const tir_expr y = leaf_for(maps, g, OPERANDS_MAX, result);
    const tir_dtype dtype = (tir_dtype)graph_shape_of(g, result)->dtype;
    const tir_expr e = graph_op_scalar(rule->op, &maps->pool, dtype, operands, rule->attribute);
    const tir_expr derivative = derivative_of(maps, e, operands[rule->operand], y);
    if (!derivative || is_zero(&t, derivative)) return 0;
    while (maps->value.count < maps->pool.nodes.count) lib_vec_push(maps->pool.arena, &maps->value, 0);
    for (int k = 0; k < rule->inputs; k++)
        if (operands[k]) set_value(maps, operands[k], given_values[k]);
    set_value(maps, y, result);
    /* a map may change the type: products are computed in the result's */
    const graph_id like = rule->cotangent ? given_values[rule->operand] : result;
    given = graph_cast(g, given, (dlc_dtype)dtype);
    given = graph_cast(g, times(&t, given, derivative), graph_shape_of(g, like)->dtype);
    for (uint32_t i = 0; i < maps->valued.count; i++) maps->value.data[maps->valued.data[i]] = 0;
    maps->valued.count = 0;
    return given;
}
