/* Shared by the families of maps: macros of rows, their scalars, references and samples. A map is out[i...] = f(a[i...], b[i...],
 * ...); a row's `scalar` or `operation` is the whole definition, and graph_compute_row makes the stage. Operands have one shape: broadcasting is
 * done by explicit nodes before a map is emitted. Arithmetic is that of tir: total, integers wrap, f16 and bf16 round after every
 * operator. */
#ifndef GRAPH_OPS_MAP_H
#define GRAPH_OPS_MAP_H

#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- scalars */

#define SCALAR(name)                                                                                          \
    static tir_expr scalar_##name(tir_pool *pool, __attribute__((unused)) tir_dtype dtype, const tir_expr *x, \
                                  __attribute__((unused)) const graph_attribute *attribute)

/* An expression of operands a and b in f32 or f64: narrow floats are widened first and rounded once. */
#define WIDENED(name, expression)                   \
    SCALAR(name) {                                  \
        tir_expr a = graph_map_widened(pool, x[0]); \
        return tir_cast(pool, dtype, expression);   \
    }
#define WIDENED_BINARY(name, expression)                                               \
    SCALAR(name) {                                                                     \
        tir_expr a = graph_map_widened(pool, x[0]), b = graph_map_widened(pool, x[1]); \
        return tir_cast(pool, dtype, expression);                                      \
    }
static inline tir_expr graph_map_widened(tir_pool *pool, tir_expr x) {
    return tir_cast(pool, (tir_dtype)graph_sum_dtype((dlc_dtype)tir_dtype_of(pool, x)), x);
}

/* ---- references: one function of numbers per row; t is the dtype of the first operand */

#ifdef DLC_REFERENCE

typedef double (*number_function)(dlc_dtype t, const double *x);

static inline void graph_reference_map(const graph_reference *r, number_function f) {
    int64_t count = graph_reference_count(&r->result[0]);
    for (int64_t i = 0; i < count; i++) {
        double x[3] = {0};
        for (int k = 0; k < r->inputs; k++) x[k] = r->operand[k].data[i];
        r->result[0].data[i] = f(r->operand[0].dtype, x);
    }
}

#define REFERENCE(name, expression)                             \
    static double number_##name(dlc_dtype t, const double *x) { \
        (void)t;                                                \
        return expression;                                      \
    }                                                           \
    static void reference_##name(const graph_reference *r) {    \
        graph_reference_map(r, number_##name);                  \
    }

/* Integers compute on the low 64 bits and wrap to their width. */
static inline uint64_t word(double x) {
    return graph_reference_word(x);
}
#define INTEGER(t, integer_expression, number_expression) \
    (graph_reference_integral(t) ? graph_reference_wrap(t, integer_expression) : (number_expression))

#endif

/* ---- rows. Samples of one, two and three operands; the first is large enough for all pairs of special values. */

#define UNARY(name)                                                                                 \
    name "(T[17, 23])\n" name "(T[])\n" name "(T[1])\n" name "(T[3, 0, 2])\n" name "(T[67])\n" name \
         "(T[2, 1, 3, 1, 2, 5])"
#define BINARY(name)                                                                                                 \
    name "(T[17, 23], T[17, 23])\n" name "(T[], T[])\n" name "(T[1], T[1])\n" name "(T[3, 0, 2], T[3, 0, 2])\n" name \
         "(T[67], T[67])\n" name "(T[2, 1, 3, 1, 2, 5], T[2, 1, 3, 1, 2, 5])"
#define TERNARY(name)                                                        \
    name "(T[17, 23], T[17, 23], T[17, 23])\n" name "(T[], T[], T[])\n" name \
         "(T[3, 0, 2], T[3, 0, 2], T[3, 0, 2])\n" name "(T[1, 13, 5], T[1, 13, 5], T[1, 13, 5])"
#define CONDITION(name)                                                            \
    name "(bool[17, 23], T[17, 23], T[17, 23])\n" name "(bool[], T[], T[])\n" name \
         "(bool[3, 0, 2], T[3, 0, 2], T[3, 0, 2])\n" name "(bool[1, 13, 5], T[1, 13, 5], T[1, 13, 5])"

#define SEMIGROUP (GRAPH_COMMUTES | GRAPH_ASSOCIATIVE)
#define LATTICE (GRAPH_COMMUTES | GRAPH_ASSOCIATIVE | GRAPH_IDEMPOTENT)

/* `number` and `names` of operands; PLAIN: of one tir operation. Results of integer and bool dtype are exact regardless of the
 * tolerance. */
#define MAP_ROW(name_, number, names)                                                                                 \
    .name = #name_, .class_ = GRAPH_MAP, .min_inputs = number, .max_inputs = number, .results = 1, .operands = names, \
    .reference = GRAPH_REFERENCE(reference_##name_)
#define MAP(name_, number, names) MAP_ROW(name_, number, names), .scalar = scalar_##name_
#define PLAIN(name_, number, names, operation_) MAP_ROW(name_, number, names), .operation = operation_

#endif
