/* Lower bounds of a region's operations and bytes, for profiles; independent of the schedule. */
#include "tir/region.h"

/* Element loads of a tensor at each point of a stage: of its updates, or of its initial values. */
typedef struct work_loads {
    uint32_t stage, tensor;
    bool initial;
    double count;
} work_loads;

struct tir_work {
    /* [stages] operations of one point */
    double *operations;
    lib_vec(work_loads) loads;
};

/* ---- counting */

typedef struct work_counter {
    lib_arena *arena;
    tir_work *work;
    uint32_t stage;
    bool initial;
} work_counter;

static void count_load(work_counter *c, uint32_t tensor) {
    for (uint32_t i = c->work->loads.count; i-- > 0 && c->work->loads.data[i].stage == c->stage;) {
        work_loads *known = &c->work->loads.data[i];
        if (known->tensor != tensor || known->initial != c->initial) continue;
        known->count += 1;
        return;
    }
    lib_vec_push(c->arena, &c->work->loads, ((work_loads){c->stage, tensor, c->initial, 1}));
}

static tir_expr count_node(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    work_counter *c = user;
    const tir_node *node = tir_get(pool, e);
    double operations = 0;
    switch (node->op) {
    case TIR_LOAD: count_load(c, (uint32_t)node->bits); break;
    case TIR_CONST:
    case TIR_VAR:
    case TIR_ACC:
    case TIR_OTHER:
    case TIR_SELECT:
    case TIR_PICK:
    case TIR_CAST:
    case TIR_BITCAST: break;
    case TIR_MULADD:
    case TIR_FMA: operations = 2; break;
    default: /* what decides whether a point counts is no arithmetic on elements */
        operations = node->dtype != TIR_INDEX && node->dtype != DLC_BOOL && !(tir_ops[node->op].flags & TIR_COMPARES);
    }
    if (!c->initial) c->work->operations[c->stage] += operations;
    return rebuilt;
}

static void count_expr(work_counter *c, const tir_region *region, tir_expr e) {
    if (e) tir_rewrite(region->pool, e, count_node, c);
}

static void count_stage(work_counter *c, const tir_region *region, const tir_stage *stage) {
    const bool initial = stage->kind == TIR_FOLD || (stage->kind == TIR_SCATTER && !stage->in_place);
    c->initial = false;
    for (int i = 0; i < stage->count; i++) count_expr(c, region, stage->value[i]);
    count_expr(c, region, stage->predicate);
    for (int d = 0; d < stage->space && stage->kind == TIR_SCATTER; d++) count_expr(c, region, stage->index[d]);
    c->initial = true;
    for (int i = 0; i < stage->count && initial; i++) count_expr(c, region, stage->initial[i]);
}

const tir_work *tir_work_of(lib_arena *arena, const tir_region *region) {
    tir_work *work = LIB_NEW(arena, tir_work);
    work_counter c = {.arena = arena, .work = work};
    work->operations = LIB_NEW_ARRAY(arena, double, region->stages.count + 1);
    for (; c.stage < region->stages.count; c.stage++)
        if (!region->stages.data[c.stage].removed) count_stage(&c, region, &region->stages.data[c.stage]);
    return work;
}

/* ---- sizes */

typedef struct work_sizes {
    const tir_region *region;
    /* parameters, by variable id */
    uint64_t *variables;
} work_sizes;

static double size_of(const work_sizes *sizes, tir_expr extent) {
    tir_evaluator evaluator = {.variables = sizes->variables};
    int64_t size;
    if (!tir_is_const(sizes->region->pool, extent, &size))
        size = (int64_t)tir_evaluate(sizes->region->pool, extent, &evaluator);
    return size > 0 ? (double)size : 0;
}

static double count_points(const work_sizes *sizes, const tir_stage *stage, int first, int end) {
    double points = 1;
    for (int a = first; a < end; a++) points *= size_of(sizes, stage->axis[a].extent);
    return points;
}

static bool moves(const tir_stage *stage, int axis) {
    return stage->kind == TIR_SCATTER && stage->index[axis] != stage->axis[axis].var;
}

/* Points of the stage's updates: those of a scatter run along the axes that the index leaves unchanged. */
static double count_updates(const work_sizes *sizes, const tir_stage *stage) {
    double points = count_points(sizes, stage, stage->space, stage->space + stage->reduce);
    for (int a = 0; a < stage->space; a++)
        if (!moves(stage, a)) points *= size_of(sizes, stage->axis[a].extent);
    return points;
}

void tir_region_work(lib_arena *arena, const tir_region *region, const tir_work *work, const int64_t *params,
                     double *operations, double *bytes) {
    work_sizes sizes = {.region = region};
    sizes.variables = LIB_NEW_ARRAY(arena, uint64_t, region->pool->variables.count + 1);
    double *touched = LIB_NEW_ARRAY(arena, double, region->tensors.count + 1); /* element loads, repeated ones too */
    for (uint32_t p = 0; p < region->params.count; p++)
        sizes.variables[tir_var_id(region->pool, region->params.data[p])] = (uint64_t)params[p];
    *operations = *bytes = 0;
    for (uint32_t s = 0, l = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        if (stage->removed) continue;
        const double updates = count_updates(&sizes, stage), points = count_points(&sizes, stage, 0, stage->space);
        *operations += work->operations[s] * updates;
        for (; l < work->loads.count && work->loads.data[l].stage == s; l++)
            touched[work->loads.data[l].tensor] +=
                work->loads.data[l].count * (work->loads.data[l].initial ? points : updates);
        for (int c = 0; c < stage->count; c++) touched[stage->tensor[c]] += stage->in_place ? updates : points;
    }
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        const tir_tensor *tensor = &region->tensors.data[t];
        if (tensor->argument < 0) continue;
        double elements = 1;
        for (int d = 0; d < tensor->rank; d++) elements *= size_of(&sizes, tensor->extent[d]);
        if (touched[t] < elements) elements = touched[t];
        *bytes += elements * (double)lib_dtype_size(tensor->dtype);
    }
}
