/* The notation of registered operators: a shape rule,
 *
 *     T[n, k], T[k, m] -> T[n, m]
 *
 * and a tensor expression, one statement or several separated by `;`, the last ones of which are the results,
 *
 *     out[i, j] = sum(k, x[i, k] * w[k, j])
 *
 * <dlc/extend.h> defines both. Shape rules of rows and their compute definitions are read from the same text in the same
 * way, over the graph's pool or the region's: an index runs over the dimension that it indexes, a reduction is a stage over the axes
 * that its body uses. The shape rule checks that all accesses are inside their operands, so that compute never reads
 * outside. */
#ifndef GRAPH_NOTATION_H
#define GRAPH_NOTATION_H

#include "graph/registry.h"

/* Of a definition whose op has name, operands and attributes: parses both texts (either may be NULL) and sets what follows from them:
 * results, class, samples, shape rule, compute definition. Raises DLC_PARSE_ERROR or DLC_INVALID_ARGUMENT. */
void graph_notation_define(graph_definition *definition, const char *shape, const char *expression);

/* Tries the expression on operands of any size; raises what is wrong with it for all element types. Call it last. */
void graph_notation_try(graph_definition *definition);

/* The shape rule alone; for rows whose meaning is something else. */
void graph_notation_infer(graph_infer *infer);

#endif
