/* Rows that say how derivatives pass, and what derivatives are made of (graph/gradient.h). */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_map.h"

SCALAR(stop_gradient) {
    (void)pool, (void)dtype, (void)attribute;
    return x[0];
}
SCALAR(again) {
    (void)pool, (void)dtype, (void)attribute;
    return x[0];
}
SCALAR(multiply_no_nan) {
    (void)attribute;
    const tir_expr a = graph_map_widened(pool, x[0]), b = graph_map_widened(pool, x[1]);
    const tir_expr zero = tir_int(pool, tir_dtype_of(pool, a), 0);
    return tir_cast(pool, dtype, tir_select(pool, tir_eq(pool, a, zero), zero, tir_mul(pool, a, b)));
}

static void transpose_again(graph_rule *rule) {
    rule->out[0] = rule->cotangent[0];
}
static void transpose_multiply(graph_rule *rule) {
    const graph_id c = rule->cotangent[0], other = graph_rule_operand(rule, 1 - rule->operand);
    rule->out[0] = rule->operand ? graph_multiply_no_nan(rule->g, other, c) : graph_multiply_no_nan(rule->g, c, other);
}

#ifdef DLC_REFERENCE
REFERENCE(stop_gradient, x[0])
REFERENCE(again, x[0])
REFERENCE(multiply_no_nan, x[0] == 0 ? 0 : x[0] * x[1])
#endif

static const graph_op row_stop_gradient = {
    MAP(stop_gradient, 1, "x"),
    .dtypes = "all",
    GRAPH_NO_GRADIENT,
    .linear = 1,
    .infer = graph_infer_map,
    .bound = GRAPH_REFERENCE(graph_bound_same_steps),
    .precision = GRAPH_FOLLOWS,
    .samples = UNARY("stop_gradient"),
    .doc =
        "x, which derivatives treat as a constant: none passes to what x was computed from. JAX lax.stop_gradient, PyTorch detach.",
};
static const graph_op row_again = {
    MAP(again, 1, "x"),
    .structure = GRAPH_SAME,
    .dtypes = "all",
    GRAPH_LINEAR(1, transpose_again),
    .attribute = {{"stream", GRAPH_ATTR_INTEGER, NULL, "auto", "tells calls on one value apart"}},
    .infer = graph_infer_map,
    .samples = "again(T[17, 23], stream=1)\nagain(T[], stream=2)\nagain(T[3, 0], stream=3)",
    .doc =
        "x, as a value of its own: nodes on it are not merged with equal nodes on x, so that they are computed again.",
};
static const graph_op row_multiply_no_nan = {
    MAP(multiply_no_nan, 2, "a b"),
    .aliases = "mul_no_nan",
    .dtypes = "float",
    GRAPH_LINEAR(3, transpose_multiply),
    .tolerance = 0.5,
    .infer = graph_infer_map,
    .samples = BINARY("multiply_no_nan"),
    .doc =
        "a*b; 0 where a is 0, even if b is infinite or NaN. Derivatives are products of this kind: what has no influence on a result "
        "has derivative 0. TensorFlow math.multiply_no_nan (whose operands are exchanged).",
};

const graph_op *const graph_ops_gradient[] = {&row_stop_gradient, &row_again, &row_multiply_no_nan, NULL};
