/* Cost of a region, by its stages' vector accesses. All stages of a region are vectorised along one *family* of axes: two axes
 * are in one family if they index the same dimension of some tensor, or one stage writes the dimension that the other reads. For
 * each family the model counts vectors, and for each access the cost of one vector: a broadcast, a contiguous vector, one block,
 * or elements gathered one by one; only the last three depend on the tensor's layout. Absolute numbers are rough; only the sign
 * of large differences between layouts must be right. */
#include "graph/layout_cost.h"
#include "tir/unit.h"

enum { TERMS = 16, USUAL_EXTENT = 64, ROWS_OF_TILE = 4, NEAR = 4 };

/* Cycles for one vector. */
static const double cost_broadcast = 0.5, cost_block = 0.5, cost_contiguous = 0.75, cost_gather = 20, cost_store = 1,
                    cost_transposed_store = 8, cost_scatter = 24, cost_horizontal = 8, cost_steps = 2;
/* Operands of a register tile are reused: a broadcast by all vectors of a row, a vector by all rows. */
static const double share_broadcast = 0.25, share_vector = 0.1;
static const double penalty_masked = 1.9; /* factor if a predicate masks the vectorised axis (padding) */

int64_t graph_extent(const tir_region *region, tir_expr extent) {
    int64_t value;
    return tir_is_const(region->pool, extent, &value) ? value : USUAL_EXTENT;
}

int graph_block_lanes(const tir_machine *machine, dlc_dtype dtype) {
    int size = (int)lib_dtype_size(dtype);
    if (dtype == DLC_BOOL) return 0;
    return machine->vector_bytes / (size < 4 ? 4 : size); /* narrow types are computed and summed in 32 bits */
}

/* ---- loads */

typedef struct load_list {
    tir_expr *loads;
    int count;
} load_list;

static tir_expr meet_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_list *list = user;
    if (tir_op_of(pool, e) != TIR_LOAD || list->count < 0) return rebuilt;
    for (int i = 0; i < list->count; i++)
        if (list->loads[i] == e) return rebuilt;
    if (list->count == LAYOUT_LOADS)
        list->count = -1;
    else
        list->loads[list->count++] = e;
    return rebuilt;
}

int graph_stage_loads(tir_region *region, const tir_stage *stage, tir_expr *loads) {
    load_list list = {loads, 0};
    for (int c = 0; c < stage->count; c++) tir_rewrite(region->pool, stage->value[c], meet_load, &list);
    if (stage->predicate) tir_rewrite(region->pool, stage->predicate, meet_load, &list);
    return list.count;
}

bool graph_stage_contracts(const tir_region *region, const tir_stage *stage) {
    if (stage->kind != TIR_REDUCE || stage->count != 1) return false;
    return tir_op_of(region->pool, stage->value[0]) == TIR_MULADD &&
           tir_op_of(region->pool, tir_operand(region->pool, stage->value[0], 2)) == TIR_ACC;
}

static int rank_of(const tir_pool *pool, tir_expr load) {
    const tir_node *node = tir_get(pool, load);
    return node->count - (node->guarded ? 2 : 0);
}

static uint32_t tensor_of(const tir_pool *pool, tir_expr load) {
    return (uint32_t)tir_get(pool, load)->bits;
}

static tir_expr count_operation(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_node *node = tir_get(pool, e);
    if (node->dtype != TIR_INDEX && node->op != TIR_LOAD && node->count) ++*(int *)user;
    return rebuilt;
}

static double operations(tir_region *region, const tir_stage *stage) {
    int count = 0;
    for (int c = 0; c < stage->count; c++) tir_rewrite(region->pool, stage->value[c], count_operation, &count);
    return count;
}

/* ---- families of axes: union-find over the dimensions of tensors and the reduction axes of stages */

typedef struct families {
    tir_region *region;
    uint32_t *parent;
    /* first slot of reduction axes; the slots before it are of tensors' dimensions */
    uint32_t reduce_first;
    tir_expr (*loads)[LAYOUT_LOADS];
    /* by stage */
    int *load_count;
} families;

static uint32_t root_of(families *f, uint32_t at) {
    while (f->parent[at] != at) at = f->parent[at] = f->parent[f->parent[at]];
    return at;
}

static uint32_t dimension_slot(uint32_t tensor, int dim) {
    return tensor * DLC_MAX_RANK + (uint32_t)dim;
}

/* The slot of an axis; a space axis has the slot of the dimension that its stage writes. */
static uint32_t axis_slot(const families *f, uint32_t stage, int axis) {
    const tir_stage *s = &f->region->stages.data[stage];
    if (axis < s->space) return dimension_slot(s->tensor[0], axis);
    return f->reduce_first + stage * TIR_MAX_AXES + (uint32_t)(axis - s->space);
}

static families find_families(lib_arena *arena, tir_region *region) {
    uint32_t stages = region->stages.count, dims = region->tensors.count * DLC_MAX_RANK;
    families f = {.region = region, .reduce_first = dims};
    f.parent = LIB_NEW_ARRAY(arena, uint32_t, dims + stages * TIR_MAX_AXES);
    f.loads = lib_arena_array(arena, stages + 1, sizeof *f.loads);
    f.load_count = LIB_NEW_ARRAY(arena, int, stages + 1);
    for (uint32_t i = 0; i < dims + stages * TIR_MAX_AXES; i++) f.parent[i] = i;
    for (uint32_t s = 0; s < stages; s++) {
        const tir_stage *stage = &region->stages.data[s];
        if (stage->removed) continue;
        for (int c = 1; c < stage->count; c++)
            for (int a = 0; a < stage->space; a++)
                f.parent[root_of(&f, dimension_slot(stage->tensor[c], a))] = root_of(&f, axis_slot(&f, s, a));
        f.load_count[s] = graph_stage_loads(region, stage, f.loads[s]);
        for (int i = 0; i < f.load_count[s]; i++)
            for (int d = 0; d < rank_of(region->pool, f.loads[s][i]); d++)
                for (int a = 0; a < stage->space + stage->reduce; a++)
                    if (tir_operand(region->pool, f.loads[s][i], d) == stage->axis[a].var)
                        f.parent[root_of(&f, dimension_slot(tensor_of(region->pool, f.loads[s][i]), d))] =
                            root_of(&f, axis_slot(&f, s, a));
    }
    return f;
}

/* ---- one access */

/* Row-major stride of the load along the axis; INT64_MAX: not constant. */
static int64_t plain_stride(const tir_region *region, tir_expr load, tir_expr axis) {
    const tir_pool *pool = region->pool;
    const tir_tensor *tensor = &region->tensors.data[tensor_of(pool, load)];
    int64_t stride = 1, step = 0, constant;
    for (int d = tensor->rank - 1; d >= 0; d--) {
        tir_term terms[TERMS];
        int count = tir_terms(pool, tir_operand(pool, load, d), terms, TERMS, &constant);
        if (count < 0) return INT64_MAX;
        for (int t = 0; t < count; t++) {
            if (terms[t].atom == axis)
                step += terms[t].coefficient * stride;
            else if (tir_uses(pool, terms[t].atom, axis))
                return INT64_MAX;
        }
        stride *= graph_extent(region, tensor->extent[d]);
    }
    return step;
}

/* The factor for the cost of a contraction's load, whose operands a register tile reuses. */
static double tile_share(const tir_region *region, const tir_stage *stage, tir_expr load, int axis) {
    if (!tir_uses(region->pool, load, stage->axis[axis].var)) return share_broadcast;
    for (int a = 0; a < stage->space; a++)
        if (a != axis && graph_extent(region, stage->axis[a].extent) >= ROWS_OF_TILE &&
            !tir_uses(region->pool, load, stage->axis[a].var))
            return share_vector;
    return 1;
}

static double plain_load(const tir_region *region, const tir_stage *stage, tir_expr load, int axis, bool heavy) {
    const tir_pool *pool = region->pool;
    const tir_tensor *tensor = &region->tensors.data[tensor_of(pool, load)];
    int64_t step = plain_stride(region, load, stage->axis[axis].var);
    if (step == 0) return cost_broadcast;
    if (step == 1) return cost_contiguous;
    if (!heavy && step > 1 && step <= NEAR) return cost_contiguous * (double)(step + 1); /* loads, and shuffles */
    bool packed = heavy && (tensor->constant || tile_share(region, stage, load, axis) < 1);
    for (int d = 0; d < tensor->rank && packed; d++) /* packed to the kernel's layout: beforehand, or by a copy */
        if (tir_operand(pool, load, d) == stage->axis[axis].var) return cost_block;
    return cost_gather;
}

static double blocked_load(const tir_pool *pool, const tir_stage *stage, tir_expr load, int axis, int dim) {
    tir_expr var = stage->axis[axis].var;
    bool other = false;
    for (int d = 0; d < rank_of(pool, load); d++)
        other = other || (d != dim && tir_uses(pool, tir_operand(pool, load, d), var));
    if (other) return cost_gather;
    if (!tir_uses(pool, tir_operand(pool, load, dim), var)) return cost_broadcast;
    return tir_operand(pool, load, dim) == var ? cost_block : cost_gather;
}

/* ---- one stage */

typedef struct costing {
    lib_arena *arena;
    families *f;
    const tir_machine *machine;
    const layout_argument *arguments;
    uint32_t count;
    bool has_reduction, heavy;
    layout_way *way;
} costing;

static const layout_argument *argument_of(const costing *c, uint32_t tensor) {
    for (uint32_t i = 0; i < c->count; i++)
        if (c->arguments[i].tensor == tensor) return &c->arguments[i];
    return NULL;
}

static void add_access(costing *c, uint32_t tensor, double times, double plain, double blocked) {
    const layout_argument *argument = argument_of(c, tensor);
    if (!argument) {
        c->way->base += times * plain;
        return;
    }
    for (uint32_t t = 0; t < c->way->terms.count; t++) {
        layout_term *term = &c->way->terms.data[t];
        if (term->choice != argument->choice) continue;
        term->plain += times * plain;
        term->blocked += times * blocked;
        return;
    }
    lib_vec_push(c->arena, &c->way->terms, ((layout_term){argument->choice, times * plain, times * blocked}));
}

static int last_long_axis(const tir_region *region, const tir_stage *stage) {
    for (int a = stage->space - 1; a >= 0; a--)
        if (graph_extent(region, stage->axis[a].extent) > 1) return a;
    return -1;
}

/* Do axes a and a + 1 of the map together step evenly through the operand of each load, so that they can be one loop? */
static bool is_straight(const tir_region *region, const tir_stage *stage, const tir_expr *loads, int count, int a) {
    int64_t extent = graph_extent(region, stage->axis[a + 1].extent);
    for (int i = 0; i < count; i++) {
        int64_t fast = plain_stride(region, loads[i], stage->axis[a + 1].var);
        int64_t slow = plain_stride(region, loads[i], stage->axis[a].var);
        if (fast == INT64_MAX || slow == INT64_MAX || slow != fast * extent) return false;
    }
    return true;
}

/* Number of vectors of `lanes` elements; a remainder of at most half a vector counts half if units are half a vector wide. */
static double whole_vectors(const costing *c, int64_t elements, int lanes) {
    int64_t rest = elements % lanes;
    double halves = c->machine->half_units && rest * 2 <= lanes ? 0.5 : 1;
    return (double)(elements / lanes) + (rest ? halves : 0);
}

/* Vectors that cover the stage's points, not counting reduction steps. */
static double vectors_along(costing *c, uint32_t s, int axis, int lanes) {
    const tir_region *region = c->f->region;
    const tir_stage *stage = &region->stages.data[s];
    int fused = axis;
    int64_t along = axis < 0 ? 1 : graph_extent(region, stage->axis[axis].extent);
    bool fuses = !c->has_reduction && axis == last_long_axis(region, stage);
    while (fuses && fused > 0 && is_straight(region, stage, c->f->loads[s], c->f->load_count[s], fused - 1))
        along *= graph_extent(region, stage->axis[--fused].extent);
    double vectors = whole_vectors(c, along, lanes);
    for (int a = 0; a < stage->space; a++)
        if (a < fused || a > axis) vectors *= (double)graph_extent(region, stage->axis[a].extent);
    return vectors;
}

static double store_cost(const costing *c, const tir_tensor *tensor, int axis) {
    int64_t stride = 1;
    for (int d = tensor->rank - 1; d > axis; d--) stride *= graph_extent(c->f->region, tensor->extent[d]);
    return stride == 1 ? cost_store : c->heavy ? cost_transposed_store : cost_scatter;
}

static void add_stores(costing *c, const tir_stage *stage, int axis, double vectors) {
    for (int k = 0; k < stage->count; k++) {
        const tir_tensor *tensor = &c->f->region->tensors.data[stage->tensor[k]];
        const layout_argument *argument = argument_of(c, stage->tensor[k]);
        if (!tensor->output) continue;
        if (axis < 0 || axis >= stage->space) /* scalar: one element for each point */
            add_access(c, stage->tensor[k], vectors, cost_store, cost_store);
        else
            add_access(c, stage->tensor[k], vectors, store_cost(c, tensor, axis),
                       argument && argument->dim == axis ? cost_store : cost_scatter);
    }
}

/* Dot-product instructions take adjacent reduction steps. Adds the cost of copying the broadcast operand so that its steps are
 * adjacent: 0 if the operand is blocked along the reduction axis, is constant, or already has these steps adjacent. */
static void add_steps(costing *c, const tir_stage *stage, tir_expr load, int axis) {
    const tir_region *region = c->f->region;
    const tir_tensor *tensor = &region->tensors.data[tensor_of(region->pool, load)];
    const layout_argument *argument = argument_of(c, tensor_of(region->pool, load));
    if (tensor->constant || tir_uses(region->pool, load, stage->axis[axis].var)) return;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        for (int d = 0; d < tensor->rank; d++) {
            if (tir_operand(region->pool, load, d) != stage->axis[a].var) continue;
            if (plain_stride(region, load, stage->axis[a].var) == 1) return;
            double vectors = 1;
            for (int i = 0; i < tensor->rank; i++) vectors *= (double)graph_extent(region, tensor->extent[i]);
            vectors /= graph_block_lanes(c->machine, DLC_F32);
            add_access(c, tensor_of(region->pool, load), vectors, cost_steps,
                       argument && argument->dim == d ? 0 : cost_steps);
            return;
        }
}

/* Adds the cost of the stage's loads, `times` each. unit: the unit that multiplies them; NULL: none. */
static void add_loads(costing *c, uint32_t s, int axis, double times, bool heavy, const tir_unit *unit) {
    tir_region *region = c->f->region;
    const tir_stage *stage = &region->stages.data[s];
    for (int i = 0; i < c->f->load_count[s]; i++) {
        tir_expr load = c->f->loads[s][i];
        if (region->tensors.data[tensor_of(region->pool, load)].argument < 0) continue; /* stays in registers */
        const layout_argument *argument = argument_of(c, tensor_of(region->pool, load));
        double share = heavy && axis >= 0 ? tile_share(region, stage, load, axis) : 1;
        double plain = axis < 0 ? cost_broadcast : plain_load(region, stage, load, axis, heavy), blocked = plain;
        if (argument && axis >= 0) blocked = blocked_load(region->pool, stage, load, axis, argument->dim);
        add_access(c, tensor_of(region->pool, load), times * share, plain, blocked);
        if (unit && axis >= 0) add_steps(c, stage, load, axis);
    }
}

/* Adds the cost of a stage vectorised along `axis`; -1: scalar. */
static void add_stage(costing *c, uint32_t s, int axis) {
    tir_region *region = c->f->region;
    const tir_stage *stage = &region->stages.data[s];
    bool heavy = graph_stage_contracts(region, stage);
    int lanes = graph_block_lanes(c->machine, DLC_F32);
    if (axis < 0) lanes = 1;
    double points = vectors_along(c, s, axis < stage->space ? axis : -1, axis < stage->space ? lanes : 1), steps = 1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t extent = graph_extent(region, stage->axis[a].extent);
        steps *= a == axis ? (double)((extent + lanes - 1) / lanes) : (double)extent;
    }
    double times = points * steps, each = 0.5;
    const tir_unit *unit = heavy ? tir_unit_for(c->machine, TIR_BY_THREAD, region->pool, stage) : NULL;
    if (heavy && c->machine->rates.fma > 0) each = 1 / c->machine->rates.fma;
    if (unit) times /= tir_unit_width(unit);
    if (axis >= 0 && stage->predicate && tir_uses(region->pool, stage->predicate, stage->axis[axis].var))
        times *= penalty_masked;
    c->way->base += times * each * (heavy ? 1 : operations(region, stage));
    if (axis >= stage->space) c->way->base += points * cost_horizontal;
    add_loads(c, s, axis, times, heavy, unit);
    add_stores(c, stage, axis, points);
}

/* ---- the region */

static int axis_in(families *f, uint32_t stage, uint32_t family) {
    const tir_stage *s = &f->region->stages.data[stage];
    for (int a = 0; a < s->space + s->reduce; a++)
        if (graph_extent(f->region, s->axis[a].extent) > 1 && root_of(f, axis_slot(f, stage, a)) == family) return a;
    return last_long_axis(f->region, s);
}

/* Adds the cost of padding: values blocked along the vectors are computed in whole blocks. */
static void add_padding(costing *c, uint32_t family) {
    const tir_region *region = c->f->region;
    double cost = c->way->base;
    for (uint32_t i = 0; i < c->count; i++) {
        const layout_argument *argument = &c->arguments[i];
        const tir_tensor *tensor = &region->tensors.data[argument->tensor];
        if (!tensor->output || root_of(c->f, dimension_slot(argument->tensor, argument->dim)) != family) continue;
        int64_t extent = graph_extent(region, tensor->extent[argument->dim]);
        int lanes = graph_block_lanes(c->machine, tensor->dtype);
        double padded = (double)((extent + lanes - 1) / lanes) / whole_vectors(c, extent, lanes);
        add_access(c, argument->tensor, 1, 0, cost * (padded - 1));
    }
}

static void add_way(costing *c, layout_model *model, uint32_t family) {
    layout_way way = {0};
    c->way = &way;
    for (uint32_t s = 0; s < c->f->region->stages.count; s++)
        if (!c->f->region->stages.data[s].removed) add_stage(c, s, axis_in(c->f, s, family));
    add_padding(c, family);
    lib_vec_push(c->arena, &model->ways, way);
}

layout_model graph_layout_model(lib_arena *arena, tir_region *region, const tir_machine *machine,
                                const layout_argument *arguments, uint32_t count) {
    families f = find_families(arena, region);
    costing c = {.arena = arena, .f = &f, .machine = machine, .arguments = arguments, .count = count};
    layout_model model = {0};
    lib_vec(uint32_t) seen = {0};
    for (uint32_t s = 0; s < region->stages.count; s++) {
        if (region->stages.data[s].removed) continue;
        if (f.load_count[s] < 0) return model; /* too many loads for the model */
        c.has_reduction = c.has_reduction || region->stages.data[s].kind == TIR_REDUCE;
        c.heavy = c.heavy || graph_stage_contracts(region, &region->stages.data[s]);
    }
    model.contracts = c.heavy;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        for (int a = 0; a < stage->space + stage->reduce && !stage->removed; a++) {
            if (graph_extent(region, stage->axis[a].extent) <= 1) continue;
            if (a >= stage->space && c.heavy) continue; /* contractions keep rows of results in registers */
            uint32_t family = root_of(&f, axis_slot(&f, s, a));
            bool known = false;
            for (uint32_t i = 0; i < seen.count; i++) known = known || seen.data[i] == family;
            if (known) continue;
            lib_vec_push(arena, &seen, family);
            add_way(&c, &model, family);
        }
    }
    return model;
}

double graph_layout_cost(const layout_model *model, const bool *blocked) {
    double best = 0;
    for (uint32_t w = 0; w < model->ways.count; w++) {
        const layout_way *way = &model->ways.data[w];
        double cost = way->base;
        for (uint32_t t = 0; t < way->terms.count; t++)
            cost += blocked[way->terms.data[t].choice] ? way->terms.data[t].blocked : way->terms.data[t].plain;
        if (w == 0 || cost < best) best = cost;
    }
    return best;
}
