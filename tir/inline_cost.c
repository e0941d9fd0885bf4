/* The cost of inlining; see inline_cost.h. */
#include "tir/inline_cost.h"
#include "tir/extent.h"
#include "tir/readers.h"

typedef struct operation_count {
    /* only operations that depend on this variable count; 0: all */
    tir_expr innermost;
    int operations, heavy;
} operation_count;

static tir_expr count_operation(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    operation_count *count = user;
    const tir_node *node = tir_get(pool, e);
    if (node->dtype == TIR_INDEX || node->op == TIR_LOAD) return rebuilt;
    if (count->innermost && !tir_uses(pool, e, count->innermost)) return rebuilt;
    count->operations += node->count > 0;
    count->heavy += (tir_ops[node->op].flags & TIR_MATH) != 0 || node->op == TIR_DIV || node->op == TIR_SQRT;
    return rebuilt;
}

bool tir_may_inline(const tir_region *region, int s) {
    const tir_stage *stage = &region->stages.data[s];
    if (stage->removed || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) return false;
    return !region->tensors.data[stage->tensor[0]].output;
}

static void add_reader(const tir_region *region, int s, int q, tir_inline_cost *cost) {
    const tir_stage *stage = &region->stages.data[s], *reader = &region->stages.data[q];
    const int here = reader->removed ? 0 : tir_loads_of(region, q, stage->tensor[0]);
    if (!here) return;
    const int64_t own = tir_points(region, stage, 0, stage->space),
                  its = tir_points(region, reader, 0, reader->space + reader->reduce);
    cost->loads += here;
    cost->most = here > cost->most ? here : cost->most;
    cost->reduced = cost->reduced || reader->kind != TIR_MAP;
    cost->more = cost->more || its < 0 || its > own;
    cost->stateful = cost->stateful || reader->kind == TIR_FOLD || reader->kind == TIR_SCATTER;
    cost->stepped = cost->stepped || reader->fold >= 0;
}

tir_inline_cost tir_inline_cost_of(const tir_region *region, int s, bool by_lanes) {
    const tir_stage *stage = &region->stages.data[s];
    operation_count count = {0};
    for (int a = 0; a < stage->space && by_lanes; a++)
        if (tir_axis_extent(region, &stage->axis[a]) != 1) count.innermost = stage->axis[a].var;
    tir_rewrite(region->pool, stage->value[0], count_operation, &count);
    tir_inline_cost cost = {.operations = count.operations, .heavy = count.heavy};
    for (int q = 0; q < (int)region->stages.count; q++) add_reader(region, s, q, &cost);
    return cost;
}
