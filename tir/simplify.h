/* Internal to tir/expr.c, simplify.c, fold.c, range.c and rewrite.c: construction of nodes, and index expressions as sums.
 */
#ifndef TIR_SIMPLIFY_H
#define TIR_SIMPLIFY_H

#include "tir/expr.h"

/* The node as given, found or appended: no simplification. */
tir_expr tir_intern(tir_pool *pool, tir_op op, tir_dtype dtype, uint64_t bits, bool guarded, int count,
                    const tir_expr *operands);

/* An equal expression, simplified by the rules of fold.c and simplify.c; what tir_make does after checking dtypes. */
tir_expr tir_simplify(tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands); /* fold.c */
tir_expr tir_simplify_index(tir_pool *pool, tir_op op, int count, const tir_expr *operands);            /* simplify.c */
tir_expr tir_simplify_compare(tir_pool *pool, tir_op op, tir_expr a, tir_expr b);                       /* simplify.c */

/* ---- sums: constant + sum coefficient*atom, atoms strictly ascending, no coefficient 0 */
#define TIR_SUM_LOCAL 12
typedef struct tir_sum {
    /* `local`, or an array of the arena: a tir_sum is not copied by assignment */
    tir_term *terms;
    int count, capacity;
    int64_t constant;
    tir_term local[TIR_SUM_LOCAL];
} tir_sum;

void tir_sum_init(tir_sum *sum, int64_t constant);
void tir_sum_add(tir_pool *pool, tir_sum *sum, tir_expr e, int64_t scale);
void tir_sum_add_term(tir_pool *pool, tir_sum *sum, tir_expr atom, int64_t coefficient);
void tir_sum_remove(tir_sum *sum, int at);
tir_interval tir_sum_range(const tir_pool *pool, const tir_sum *sum);

/* ---- facts and intervals (range.c) */
tir_facts tir_facts_of(const tir_pool *pool, tir_expr e);
tir_facts tir_facts_compute(const tir_pool *pool, const tir_node *node, const tir_expr *operands);
tir_interval tir_interval_add(tir_interval a, tir_interval b);
tir_interval tir_interval_scale(tir_interval a, int64_t scale);

/* If e is a constant: sets *value and returns true. e: an index expression. */
static inline bool tir_const_index(const tir_pool *pool, tir_expr e, int64_t *value) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_CONST) return false;
    *value = (int64_t)node->bits;
    return true;
}

#endif
