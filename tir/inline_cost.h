/* What schedule rules weigh before they inline a map: what its value costs, and who would compute it again. */
#ifndef TIR_INLINE_COST_H
#define TIR_INLINE_COST_H

#include "tir/region.h"

typedef struct tir_inline_cost {
    /* of one value: operations on elements; divisions, roots and functions among them */
    int operations, heavy;
    /* distinct loads of the value in all stages; in one */
    int loads, most;
    /* a reader is no map: it would compute the value once per point of its iteration space; a reader has more points than the map */
    bool reduced, more;
    /* a reader is a fold or a scatter; one of a fold's steps */
    bool stateful, stepped;
} tir_inline_cost;

/* Could the stage be inlined: is it a map of one value that is neither an output nor a fold's step? */
bool tir_may_inline(const tir_region *region, int stage);
/* What inlining it means. by_lanes: the stage's last axis of several points is the innermost loop, out of which operations that do not
 * depend on it are moved; they are not counted. False: each point is a thread's. */
tir_inline_cost tir_inline_cost_of(const tir_region *region, int stage, bool by_lanes);

#endif
