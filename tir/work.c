/* Lower bounds of a region's operations and bytes, for profiles; independent of the schedule. */
#include "tir/region.h"

typedef struct work_count {
    const tir_region *region;
    /* parameters, by variable id */
    uint64_t *variables;
    /* points of the current stage */
    double points;
    /* operations of one of its points */
    double operations;
    /* by tensor: number of element loads, repeated ones included */
    double *touched;
} work_count;

static tir_expr count_node(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    work_count *count = user;
    const tir_node *node = tir_get(pool, e);
    switch (node->op) {
    case TIR_LOAD: count->touched[node->bits] += count->points; break;
    case TIR_CONST:
    case TIR_VAR:
    case TIR_ACC:
    case TIR_OTHER:
    case TIR_SELECT:
    case TIR_CAST:
    case TIR_BITCAST: break;
    case TIR_MULADD:
    case TIR_FMA: count->operations += 2; break;
    default: /* what decides whether a point counts is no arithmetic on elements */
        if (node->dtype != TIR_INDEX && node->dtype != DLC_BOOL && !(tir_ops[node->op].flags & TIR_COMPARES))
            count->operations += 1;
        break;
    }
    return rebuilt;
}

static void count_expr(work_count *count, tir_expr e) {
    if (e) tir_rewrite(count->region->pool, e, count_node, count);
}

static double size_of(const work_count *count, tir_expr extent) {
    tir_evaluator evaluator = {.variables = count->variables};
    int64_t size = (int64_t)tir_evaluate(count->region->pool, extent, &evaluator);
    return size > 0 ? (double)size : 0;
}

static double count_points(const work_count *count, const tir_stage *stage, int first, int end) {
    double points = 1;
    for (int a = first; a < end; a++) points *= size_of(count, stage->axis[a].extent);
    return points;
}

static bool moves(const tir_stage *stage, int axis) {
    return stage->kind == TIR_SCATTER && stage->index[axis] != stage->axis[axis].var;
}

static double count_stage(work_count *count, const tir_stage *stage) {
    count->operations = 0;
    count->points = count_points(count, stage, stage->space, stage->space + stage->reduce);
    for (int a = 0; a < stage->space; a++) /* updates of a scatter run along the axes that the index leaves unchanged */
        if (!moves(stage, a)) count->points *= size_of(count, stage->axis[a].extent);
    for (int c = 0; c < stage->count; c++) count_expr(count, stage->value[c]);
    count_expr(count, stage->predicate);
    for (int d = 0; d < stage->space && stage->kind == TIR_SCATTER; d++) count_expr(count, stage->index[d]);
    double operations = count->operations * count->points, updates = count->points;
    count->points = count_points(count, stage, 0, stage->space);
    bool initial = stage->kind == TIR_FOLD || (stage->kind == TIR_SCATTER && !stage->in_place);
    for (int c = 0; c < stage->count && initial; c++) count_expr(count, stage->initial[c]);
    for (int c = 0; c < stage->count; c++)
        count->touched[stage->tensor[c]] += stage->in_place ? updates : count->points;
    return operations;
}

void tir_region_work(lib_arena *arena, const tir_region *region, const int64_t *params, double *operations,
                     double *bytes) {
    work_count count = {.region = region};
    count.variables = LIB_NEW_ARRAY(arena, uint64_t, region->pool->variables.count + 1);
    count.touched = LIB_NEW_ARRAY(arena, double, region->tensors.count + 1);
    for (uint32_t p = 0; p < region->params.count; p++)
        count.variables[tir_var_id(region->pool, region->params.data[p])] = (uint64_t)params[p];
    *operations = *bytes = 0;
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed) *operations += count_stage(&count, &region->stages.data[s]);
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        const tir_tensor *tensor = &region->tensors.data[t];
        if (tensor->argument < 0) continue;
        double elements = 1;
        for (int d = 0; d < tensor->rank; d++) elements *= size_of(&count, tensor->extent[d]);
        if (count.touched[t] < elements) elements = count.touched[t];
        *bytes += elements * (double)lib_dtype_size(tensor->dtype);
    }
}
