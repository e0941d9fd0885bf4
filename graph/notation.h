/* The notation of registered operators: a shape rule,
 *
 *     T[n, k], T[k, m] -> T[n, m]
 *
 * and a tensor expression, one statement or several separated by `;`, the last ones of which are the results,
 *
 *     out[i, j] = sum(k, x[i, k] * w[k, j])
 *
 * <dlc/extend.h> defines both. One interpretation of the expression serves the shape rule, over the graph's pool, and the compute
 * definition, over the region's: an index runs over the dimension that it indexes, a reduction is a stage over the axes that its
 * body uses. The shape rule checks that all accesses are inside their operands, so that kernels never read outside. */
#ifndef GRAPH_NOTATION_H
#define GRAPH_NOTATION_H

#include "graph/registry.h"

/* Parses both texts (either may be NULL) and completes definition->op, whose name, operands and attributes are set, by the results,
 * class, samples, shape rule and compute definition. Raises DLC_PARSE_ERROR or DLC_INVALID_ARGUMENT. */
void graph_notation_define(graph_definition *definition, const char *shape, const char *expression);

/* The value of the first statement's elements on operands of these shapes, as an expression of g's pool: operand k is loaded from buffer k. */
tir_expr graph_notation_value(graph *g, const graph_op *op, const graph_notation *n, const graph_shape *operand);

/* notation_trial.c: interprets the expression for operands of symbolic sizes, by element type; if all fail, raises the error. Sets the operation and the
 * linearity of the row, if it is a map without attributes. Call it last. */
void graph_notation_try(graph_definition *definition);

/* Is the row defined by an expression? Then its results by rows of the table, which differentiate. */
bool graph_notation_has_rows(const graph_op *op);
void graph_notation_expand(graph_expand *expand);

#endif
