/* Which values are blocked, and along which dimension.
 *
 *   candidates  values that one kernel writes and only kernels read
 *   dimensions  a contraction proposes the dimensions of its operands that it contracts (channels of an image), and the dimension
 *               of its result that only its constant operand has (features); a proposal spreads to other candidates through stages
 *               that index both values by the same axis (windows, maps, depthwise convolutions). A last dimension cannot be blocked,
 *               but proposals spread from it; the host's own blocks (host_layout.h) are fixed proposals
 *   decisions   regions that share candidates form a group. In each group the best of two local searches, from all row-major and
 *               from all blocked, is taken if it saves enough of the total cost, or of the cost of regions without contractions; the
 *               cost is that of layout_cost.c, summed over the regions. Unless it saves much, the target's cost model must agree
 *
 * This file is independent of operators: it reads only the stages made by compute definitions. */
#include "graph/layout.h"
#include "graph/layout_cost.h"

#include "graph/internal.h"

enum { NO_DIM = -1, ROUNDS = 8 };
/* Least saving as a fraction of the group's cost; least_light_saving: of the cost of the group's regions without contractions, which the
 * model predicts better. */
static const double least_saving = 0.02, least_light_saving = 0.25;
/* If the saving is greater, the target's cost model is not consulted. */
static const double sure_saving = 0.1, sure_light_saving = 0.5;

typedef struct decider {
    lib_arena *arena;
    const graph *g;
    graph_regions *regions;
    const graph_layout_options *options;
    /* by value: layout expressed by the host's moves (host_layout.h); NULL: row-major, or to be decided */
    const tir_layout *const *given;
    /* by value */
    bool *candidate;
    /* by value: proposed dimension; NO_DIM: none */
    int8_t *dim;
    /* by region: its computation; NULL: no argument is a candidate */
    tir_region **computed;
    /* by region: its cost as a function of `blocked` */
    layout_model *model;
    /* by value: the current decision */
    bool *blocked;
    /* by value: parent in the union-find forest of groups; a root is its own parent */
    uint32_t *group;
} decider;

/* ---- candidates */

static int64_t known_extent(const graph *g, tir_expr dim) {
    int64_t extent;
    return tir_is_const(g->pool, dim, &extent) ? extent : -1;
}

static bool is_kernel(const graph_region *region) {
    return region->kind == GRAPH_REGION_KERNEL;
}

static void find_candidates(decider *d) {
    const graph *g = d->g;
    d->candidate = LIB_NEW_ARRAY(d->arena, bool, g->values.count + 1);
    for (uint32_t r = 0; r < d->regions->count; r++) {
        const graph_region *region = &d->regions->data[r];
        for (uint32_t o = 0; o < region->output_count; o++) {
            const graph_shape *shape = graph_shape_of(g, region->outputs[o]);
            d->candidate[region->outputs[o]] = is_kernel(region) && shape->rank >= 2 &&
                                               !lib_dtype_is_stored_otherwise(shape->dtype) &&
                                               graph_block_lanes(d->options->machine, shape->dtype) > 1;
        }
    }
    for (uint32_t r = 0; r < d->regions->count; r++)
        for (uint32_t i = 0; i < d->regions->data[r].input_count && !is_kernel(&d->regions->data[r]); i++)
            d->candidate[d->regions->data[r].inputs[i]] = false;
    for (uint32_t o = 0; o < g->outputs.count; o++) d->candidate[g->outputs.data[o]] = false;
    for (graph_id v = 1; v < g->values.count; v++)
        if (d->given[v]) d->candidate[v] = graph_block_lanes(d->options->machine, graph_shape_of(g, v)->dtype) > 1;
}

/* Is there a contraction with a result of rank 3 or more, and a candidate? Otherwise layouts do not matter. */
static bool is_worth_a_look(const decider *d) {
    bool reduces = false, found = false;
    for (uint32_t r = 0; r < d->regions->count; r++) {
        const graph_region *region = &d->regions->data[r];
        for (uint32_t n = 0; n < region->node_count; n++) {
            const graph_node *node = &d->g->nodes.data[region->nodes[n]];
            reduces = reduces || (node->op->class_ == GRAPH_CONTRACT && graph_shape_of(d->g, node->first)->rank > 2);
        }
        for (uint32_t o = 0; o < region->output_count; o++) found = found || d->candidate[region->outputs[o]];
    }
    return reduces && found;
}

static bool reads_candidate(const decider *d, const graph_region *region) {
    for (uint32_t i = 0; i < region->input_count; i++)
        if (d->candidate[region->inputs[i]]) return true;
    for (uint32_t o = 0; o < region->output_count; o++)
        if (d->candidate[region->outputs[o]]) return true;
    return false;
}

/* Does the stage use one result of a reduction at many of its points, as in a row chain? */
static bool spreads_result(tir_region *region, const tir_stage *stage) {
    tir_expr loads[LAYOUT_LOADS];
    int count = graph_stage_loads(region, stage, loads);
    for (int i = 0; i < count; i++) {
        int32_t producer = region->tensors.data[tir_get(region->pool, loads[i])->bits].stage;
        if (producer < 0 || region->stages.data[producer].kind != TIR_REDUCE) continue;
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (graph_extent(region, stage->axis[a].extent) > 1 &&
                !tir_uses(region->pool, loads[i], stage->axis[a].var))
                return true;
    }
    return count < 0;
}

/* Does the region require row-major arguments? True for folds, scatters, stages with several values, and row chains. */
static bool is_rigid(tir_region *region) {
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        if (stage->removed) continue;
        if (stage->count != 1 || (stage->kind != TIR_MAP && stage->kind != TIR_REDUCE)) return true;
        if (spreads_result(region, stage)) return true;
    }
    return false;
}

static graph_id value_of(const graph_region *region, const tir_tensor *tensor) {
    if (tensor->argument < 0) return 0;
    uint32_t argument = (uint32_t)tensor->argument;
    return argument < region->input_count ? region->inputs[argument] : region->outputs[argument - region->input_count];
}

static void compute_regions(decider *d) {
    d->computed = LIB_NEW_ARRAY(d->arena, tir_region *, d->regions->count + 1);
    for (uint32_t r = 0; r < d->regions->count; r++) {
        const graph_region *region = &d->regions->data[r];
        if (!is_kernel(region) || !reads_candidate(d, region)) continue;
        d->computed[r] = graph_region_build(d->arena, d->g, region, d->options->is_constant, d->options->user);
        if (!is_rigid(d->computed[r])) continue;
        for (uint32_t i = 0; i < region->input_count; i++) d->candidate[region->inputs[i]] = false;
        for (uint32_t o = 0; o < region->output_count; o++) d->candidate[region->outputs[o]] = false;
    }
}

/* ---- dimensions */

static bool is_last(const decider *d, graph_id value, int dim) {
    const graph_shape *shape = graph_shape_of(d->g, value);
    for (int i = dim + 1; i < shape->rank; i++)
        if (known_extent(d->g, shape->dim[i]) != 1) return false;
    return true;
}

/* Can the dimension be blocked: is its extent known and is it not the last one? */
static bool can_block(const decider *d, graph_id value, int dim) {
    return known_extent(d->g, graph_shape_of(d->g, value)->dim[dim]) >= 2 && !is_last(d, value, dim);
}

/* Proposes the dimension of an argument, if it is a candidate without a proposal. A last dimension, which cannot be blocked, is proposed
 * too, so that it spreads to values in which it is not the last; a dimension that can be blocked replaces it. */
static void propose(decider *d, const graph_region *region, const tir_tensor *tensor, int dim) {
    graph_id value = value_of(region, tensor);
    if (!value || !d->candidate[value]) return;
    const int before = d->dim[value];
    if (before == NO_DIM ? can_block(d, value, dim) || is_last(d, value, dim)
                         : is_last(d, value, before) && can_block(d, value, dim))
        d->dim[value] = (int8_t)dim;
}

/* The dimension proposed for a tensor of a region: for candidates d->dim, for other tensors `inside`; NO_DIM: none. */
static int proposed(const decider *d, const graph_region *region, const tir_region *computed, uint32_t tensor,
                    const int8_t *inside) {
    graph_id value = value_of(region, &computed->tensors.data[tensor]);
    return value && d->candidate[value] ? d->dim[value] : inside[tensor];
}

static void set_proposed(decider *d, const graph_region *region, const tir_region *computed, uint32_t tensor, int dim,
                         int8_t *inside) {
    if (dim == NO_DIM) return;
    if (inside[tensor] == NO_DIM) inside[tensor] = (int8_t)dim;
    propose(d, region, &computed->tensors.data[tensor], dim);
}

static int subscript_of(const tir_region *region, tir_expr load, int rank, tir_expr var) {
    for (int i = 0; i < rank; i++)
        if (tir_operand(region->pool, load, i) == var) return i;
    return NO_DIM;
}

/* Proposes the contracted dimensions of the tensors that a contraction reads, and its result's dimensions of features. */
static void propose_by_contraction(decider *d, const graph_region *region, tir_region *computed, const tir_stage *stage,
                                   const tir_expr *loads, int count, int8_t *inside) {
    const tir_pool *pool = computed->pool;
    for (int i = 0; i < count; i++) {
        uint32_t read = (uint32_t)tir_get(pool, loads[i])->bits;
        const tir_tensor *tensor = &computed->tensors.data[read];
        for (int a = stage->space; a < stage->space + stage->reduce && !tensor->constant; a++) {
            int dim = subscript_of(computed, loads[i], tensor->rank, stage->axis[a].var);
            set_proposed(d, region, computed, read, dim, inside);
        }
        /* features: axes that only the constant operand has */
        for (int a = 0; a < stage->space && tensor->constant; a++) {
            bool shared = false;
            for (int k = 0; k < count; k++) shared = shared || (k != i && tir_uses(pool, loads[k], stage->axis[a].var));
            if (shared || !tir_uses(pool, loads[i], stage->axis[a].var)) continue;
            set_proposed(d, region, computed, stage->tensor[0], a, inside);
        }
    }
}

/* Spreads proposals through one stage: tensors indexed by the same axis get the same proposed dimension. */
static void spread_through(decider *d, const graph_region *region, tir_region *computed, const tir_stage *stage,
                           const tir_expr *loads, int count, int8_t *inside) {
    const tir_pool *pool = computed->pool;
    uint32_t out = stage->tensor[0];
    for (int i = 0; i < count; i++) {
        uint32_t in = (uint32_t)tir_get(pool, loads[i])->bits;
        int rank = computed->tensors.data[in].rank, of_in = proposed(d, region, computed, in, inside),
            of_out = proposed(d, region, computed, out, inside);
        for (int a = 0; a < stage->space && of_in != NO_DIM; a++)
            if (stage->axis[a].var == tir_operand(pool, loads[i], of_in))
                set_proposed(d, region, computed, out, a, inside);
        if (of_out != NO_DIM && !computed->tensors.data[in].constant)
            set_proposed(d, region, computed, in, subscript_of(computed, loads[i], rank, stage->axis[of_out].var),
                         inside);
    }
}

static void propose_in_region(decider *d, uint32_t r) {
    tir_region *computed = d->computed[r];
    if (!computed) return;
    tir_expr loads[LAYOUT_LOADS];
    int8_t *inside = LIB_NEW_ARRAY(d->arena, int8_t, computed->tensors.count + 1);
    memset(inside, NO_DIM, computed->tensors.count + 1);
    for (uint32_t pass = 0; pass < 2; pass++) /* down, then up */
        for (uint32_t n = 0; n < computed->stages.count; n++) {
            const tir_stage *stage = &computed->stages.data[pass ? computed->stages.count - 1 - n : n];
            int count = stage->removed || stage->count != 1 ? 0 : graph_stage_loads(computed, stage, loads);
            if (count <= 0) continue;
            if (graph_stage_contracts(computed, stage))
                propose_by_contraction(d, &d->regions->data[r], computed, stage, loads, count, inside);
            spread_through(d, &d->regions->data[r], computed, stage, loads, count, inside);
        }
}

static void choose_dimensions(decider *d) {
    d->dim = LIB_NEW_ARRAY(d->arena, int8_t, d->g->values.count + 1);
    memset(d->dim, NO_DIM, d->g->values.count + 1);
    for (graph_id v = 1; v < d->g->values.count; v++)
        if (d->given[v]) d->dim[v] = (int8_t)d->given[v]->part[d->given[v]->count - 1].dim;
    for (uint32_t r = 0; r < d->regions->count; r++) propose_in_region(d, r);
    for (uint32_t r = d->regions->count; r-- > 0;) propose_in_region(d, r);
    for (graph_id v = 1; v < d->g->values.count; v++)
        d->candidate[v] = d->candidate[v] && d->dim[v] != NO_DIM && can_block(d, v, d->dim[v]);
}

/* ---- decisions */

static graph_id group_of(decider *d, graph_id value) {
    while (d->group[value] != value) value = d->group[value] = d->group[d->group[value]];
    return value;
}

static void make_models(decider *d) {
    d->model = LIB_NEW_ARRAY(d->arena, layout_model, d->regions->count + 1);
    for (uint32_t r = 0; r < d->regions->count; r++) {
        const graph_region *region = &d->regions->data[r];
        tir_region *computed = d->computed[r];
        if (!computed || !reads_candidate(d, region)) continue;
        layout_argument *arguments =
            LIB_NEW_ARRAY(d->arena, layout_argument, region->input_count + region->output_count + 1);
        uint32_t count = 0;
        for (uint32_t t = 0; t < computed->tensors.count; t++) {
            graph_id value = value_of(region, &computed->tensors.data[t]);
            if (!value || !d->candidate[value]) continue;
            arguments[count++] = (layout_argument){t, d->dim[value], value};
            d->group[group_of(d, arguments[0].choice)] = group_of(d, value);
        }
        d->model[r] = graph_layout_model(d->arena, computed, d->options->machine, arguments, count);
    }
}

/* The group of the region's candidates; 0: it has none. */
static graph_id group_of_region(decider *d, const graph_region *region) {
    for (uint32_t i = 0; i < region->input_count; i++)
        if (d->candidate[region->inputs[i]]) return group_of(d, region->inputs[i]);
    for (uint32_t o = 0; o < region->output_count; o++)
        if (d->candidate[region->outputs[o]]) return group_of(d, region->outputs[o]);
    return 0;
}

typedef struct value_group {
    lib_vec(graph_id) values;
    lib_vec(uint32_t) regions;
} value_group;

static double cost_of(const decider *d, const value_group *group) {
    double cost = 0;
    for (uint32_t i = 0; i < group->regions.count; i++)
        cost += graph_layout_cost(&d->model[group->regions.data[i]], d->blocked);
    return cost;
}

/* Cost of the group's regions without contractions. */
static double light_cost_of(const decider *d, const value_group *group) {
    double cost = 0;
    for (uint32_t i = 0; i < group->regions.count; i++)
        if (!d->model[group->regions.data[i]].contracts)
            cost += graph_layout_cost(&d->model[group->regions.data[i]], d->blocked);
    return cost;
}

static bool touches(const graph_region *region, graph_id value) {
    for (uint32_t i = 0; i < region->input_count; i++)
        if (region->inputs[i] == value) return true;
    for (uint32_t o = 0; o < region->output_count; o++)
        if (region->outputs[o] == value) return true;
    return false;
}

static double cost_around(const decider *d, const value_group *group, graph_id value) {
    double cost = 0;
    for (uint32_t i = 0; i < group->regions.count; i++)
        if (touches(&d->regions->data[group->regions.data[i]], value))
            cost += graph_layout_cost(&d->model[group->regions.data[i]], d->blocked);
    return cost;
}

/* Local search: flips one value at a time while the cost decreases, except values in the host's blocks. Returns the cost. */
static double descend(decider *d, const value_group *group) {
    bool changed = true;
    for (int round = 0; round < ROUNDS && changed; round++) {
        changed = false;
        for (uint32_t i = 0; i < group->values.count; i++) {
            graph_id value = group->values.data[i];
            if (d->given[value]) continue;
            double before = cost_around(d, group, value);
            d->blocked[value] = !d->blocked[value];
            if (cost_around(d, group, value) < before * 0.999)
                changed = true;
            else
                d->blocked[value] = !d->blocked[value];
        }
    }
    return cost_of(d, group);
}

static void set_all(decider *d, const value_group *group, bool blocked) {
    for (uint32_t i = 0; i < group->values.count; i++)
        d->blocked[group->values.data[i]] = blocked || d->given[group->values.data[i]];
}

static const tir_layout *blocked_layout(const decider *d, graph_id value);

/* Cycles of the group's regions in the current layouts, by the target's cost model; false: no prediction. */
static bool predict_group(decider *d, const value_group *group, double cycles[GRAPH_FUSE_WIDTHS]) {
    const tir_layout **layouts = lib_arena_array(d->arena, d->g->values.count + 1, sizeof *layouts);
    for (graph_id v = 1; v < d->g->values.count; v++) layouts[v] = d->given[v];
    for (uint32_t i = 0; i < group->values.count; i++) {
        const graph_id v = group->values.data[i];
        if (!d->given[v] && d->blocked[v]) layouts[v] = blocked_layout(d, v);
    }
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] = 0;
    for (uint32_t i = 0; i < group->regions.count; i++) {
        graph_region region = d->regions->data[group->regions.data[i]];
        double of_region[GRAPH_FUSE_WIDTHS];
        region.layouts = layouts;
        if (!d->options->costs->predict(d->options->costs->user, &region, NULL, of_region)) return false;
        for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] += of_region[w];
    }
    return true;
}

/* Hash of everything that the decision depends on, except the machine. */
static lib_hash128 hash_of_group(const decider *d, const value_group *group) {
    lib_hash128 hash = {group->regions.count, 2};
    for (uint32_t i = 0; i < group->regions.count; i++) {
        const graph_region *region = &d->regions->data[group->regions.data[i]];
        const lib_hash128 form =
            tir_region_hash(graph_region_form(d->arena, d->g, region, d->options->is_constant, d->options->user));
        hash = lib_hash_bytes(&form, sizeof form, hash);
        for (uint32_t k = 0; k < region->input_count; k++)
            hash = lib_hash_bytes(&d->blocked[region->inputs[k]], sizeof *d->blocked, hash);
        for (uint32_t k = 0; k < region->output_count; k++)
            hash = lib_hash_bytes(&d->blocked[region->outputs[k]], sizeof *d->blocked, hash);
    }
    return hash;
}

/* Are the group's kernels faster in the current layouts than row-major, by the target's cost model? True if there is no model. */
static bool is_predicted_faster(decider *d, const value_group *group) {
    const graph_fuse_costs *costs = d->options->costs;
    const double even = 1.01;
    double blocked[GRAPH_FUSE_WIDTHS], plain[GRAPH_FUSE_WIDTHS];
    bool *kept = LIB_NEW_ARRAY(d->arena, bool, group->values.count + 1);
    uint32_t slower;
    if (!costs) return true;
    const graph_region *first = &d->regions->data[group->regions.data[0]];
    const lib_hash128 question = costs->identify(costs->user, first, hash_of_group(d, group));
    if (costs->recall(costs->user, &question, &slower) && slower <= 1) return !slower;
    if (!predict_group(d, group, blocked)) return true;
    for (uint32_t i = 0; i < group->values.count; i++) kept[i] = d->blocked[group->values.data[i]];
    set_all(d, group, false);
    const bool known = predict_group(d, group, plain);
    for (uint32_t i = 0; i < group->values.count; i++) d->blocked[group->values.data[i]] = kept[i];
    slower = known && !(blocked[0] < plain[0]);
    for (int w = 1; w < GRAPH_FUSE_WIDTHS && known; w++) slower = slower || blocked[w] > plain[w] * even;
    costs->record(costs->user, &question, slower);
    return !slower;
}

static void decide_group(decider *d, const value_group *group) {
    set_all(d, group, d->options->all);
    if (d->options->all) return;
    double plain = cost_of(d, group), light = light_cost_of(d, group), from_plain = descend(d, group);
    bool *kept = LIB_NEW_ARRAY(d->arena, bool, group->values.count + 1);
    for (uint32_t i = 0; i < group->values.count; i++) kept[i] = d->blocked[group->values.data[i]];
    set_all(d, group, true);
    const double all = cost_of(d, group);
    double best = descend(d, group);
    if (from_plain < best) {
        best = from_plain;
        for (uint32_t i = 0; i < group->values.count; i++) d->blocked[group->values.data[i]] = kept[i];
    }
    const double light_best = light_cost_of(d, group);
    const bool pays =
        best <= plain * (1 - least_saving) || (best < plain && light_best < light * (1 - least_light_saving));
    const bool sure = best <= plain * (1 - sure_saving) || light_best < light * (1 - sure_light_saving);
    if (pays && (sure || is_predicted_faster(d, group))) return;
    /* If costs are about equal, the target's cost model decides: it knows more about accesses to channels that are far apart. */
    set_all(d, group, true);
    const bool close = all < plain * (1 + least_saving);
    if (!close || !d->options->costs || !is_predicted_faster(d, group)) set_all(d, group, false);
}

static void decide(decider *d) {
    uint32_t count = d->g->values.count;
    d->blocked = LIB_NEW_ARRAY(d->arena, bool, count + 1);
    d->group = LIB_NEW_ARRAY(d->arena, uint32_t, count + 1);
    for (graph_id v = 0; v < count; v++) d->group[v] = v;
    make_models(d);
    value_group *groups = LIB_NEW_ARRAY(d->arena, value_group, count + 1);
    for (graph_id v = 1; v < count; v++)
        if (d->candidate[v]) lib_vec_push(d->arena, &groups[group_of(d, v)].values, v);
    for (uint32_t r = 0; r < d->regions->count; r++) {
        graph_id group = group_of_region(d, &d->regions->data[r]);
        if (group) lib_vec_push(d->arena, &groups[group].regions, r);
    }
    for (graph_id v = 1; v < count; v++)
        if (groups[v].values.count) decide_group(d, &groups[v]);
}

/* ---- layouts */

/* (n, c/16, h, w, c%16) */
static const tir_layout *blocked_layout(const decider *d, graph_id value) {
    const graph_shape *shape = graph_shape_of(d->g, value);
    tir_layout *layout = LIB_NEW(d->arena, tir_layout);
    int dim = d->dim[value], lanes = graph_block_lanes(d->options->machine, shape->dtype);
    layout->rank = (int16_t)shape->rank;
    for (int i = 0; i < shape->rank; i++)
        layout->part[layout->count++] = (tir_layout_part){(int16_t)i, i == dim ? lanes : 1, 0};
    layout->part[layout->count++] = (tir_layout_part){(int16_t)dim, 1, lanes};
    return layout;
}

void graph_assign_layouts(lib_arena *arena, const graph *bound, graph_regions *regions,
                          const graph_layout_options *options) {
    decider d = {.arena = arena, .g = bound, .regions = regions, .options = options, .given = regions->layouts};
    find_candidates(&d);
    if (!is_worth_a_look(&d)) return;
    compute_regions(&d);
    choose_dimensions(&d);
    decide(&d);
    const tir_layout **layouts = lib_arena_array(arena, bound->values.count + 1, sizeof *layouts);
    for (graph_id v = 1; v < bound->values.count; v++)
        if (d.given[v])
            layouts[v] = d.given[v];
        else if (d.candidate[v] && d.blocked[v])
            layouts[v] = blocked_layout(&d, v);
    regions->layouts = layouts;
    for (uint32_t r = 0; r < regions->count; r++) regions->data[r].layouts = layouts;
}

/* Does one kernel write the value, or a view give it, and do only kernels and views read it? */
static bool may_have_layout(const graph *bound, const graph_regions *regions, graph_id v) {
    int writers = 0;
    bool given = false; /* a view of the host's blocks makes the value */
    bool plain = regions->layouts[v]->rank != graph_shape_of(bound, v)->rank;
    for (uint32_t r = 0; r < regions->count; r++) {
        const graph_region *region = &regions->data[r];
        for (uint32_t o = 0; o < region->output_count; o++) writers += region->outputs[o] == v && is_kernel(region);
        bool view = region->kind == GRAPH_REGION_VIEW && touches(region, v);
        given = given || (view && region->outputs[0] == v);
        plain = plain || (!is_kernel(region) && !view && touches(region, v));
    }
    for (uint32_t o = 0; o < bound->outputs.count; o++) plain = plain || bound->outputs.data[o] == v;
    return !plain && writers + given == 1;
}

void graph_verify_layouts(lib_scope *scope, const graph *bound, const graph_regions *regions) {
    for (graph_id v = 1; v < bound->values.count && regions->layouts; v++) {
        const tir_layout *layout = regions->layouts[v];
        const char *what = bound->values.data[v].name ? bound->values.data[v].name : graph_node_of(bound, v)->op->name;
        if (!layout) continue;
        tir_layout_verify(scope, layout, what);
        if (!may_have_layout(bound, regions, v))
            lib_raise(
                scope, DLC_INTERNAL,
                "layout of %s: only a value that one kernel writes, or a view gives, and kernels or views read may have one",
                what);
    }
}
