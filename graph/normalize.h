/* Shared by the rows that normalise: x, less its mean if it is centred, divided by the root of its mean square plus epsilon; the tangents
 * of that, which take two sums; and p-norms. */
#ifndef GRAPH_NORMALIZE_H
#define GRAPH_NORMALIZE_H

#include "graph/op.h"

/* x, the result's shape, and a number for each of its channels, along the axis, in all other operands. */
void graph_infer_channels(graph_infer *infer, int64_t axis);

typedef struct graph_normal {
    /* ascending; over which means are; none: x is its own mean */
    int count;
    int64_t axes[DLC_MAX_RANK];
    bool centred;
    /* n = x less its mean, times factor, which has 1 in place of each of the axes, or is without them */
    graph_id factor, n;
} graph_normal;

graph_normal graph_normalise(graph *g, graph_id x, int count, const int64_t *axes, double epsilon, bool centred);
/* The tangent of n where x moves along d: factor*(d - mean(d) - n*mean(n*d)), without mean(d) if x is not centred. Factors and
 * signs are applied to the means: transposed, they are sums of the cotangent itself, as the cotangents of a bias and a scale are. A scale that does not vary over
 * the axes may be part of the factor. */
graph_id graph_normal_tangent(graph *g, const graph_normal *normal, graph_id d);
/* The tangent of n*scale + bias: scale 0 is 1, and tangents that are 0 are those of what does not move. All broadcast to n. */
graph_id graph_scaled_tangent(graph *g, graph_id n, graph_id scale, graph_id d_n, graph_id d_scale, graph_id d_bias);

/* ---- p-norms: p = 1, 2, ... */

void graph_infer_power(const graph_infer *infer, int64_t p);
graph_id graph_norm_powers(graph *g, graph_id x, int64_t p); /* |x|^p */
graph_id graph_norm_root(graph *g, graph_id sum, int64_t p);

#endif
