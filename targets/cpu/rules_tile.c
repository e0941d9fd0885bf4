/* Register tiles: reductions computed at the points of their root. One axis (v) runs along vectors, one (u) is repeated over broadcasts;
 * MR rows of NV vectors of accumulators stay in registers while the reduction loops run. How many of each: rules_tile_size.c; the loops
 * around the tile: rules_tile_loops.c. */
#include "targets/cpu/rules_tile.h"

/* Relative cost of vectors along the rows of padded images: masks at the edges, whose steps vectors along channels skip. Measured over 30
 * convolutions: 1.0 to 1.2 for rows of 48 to 256 points, 1.2 to 1.5 for shorter ones. */
static double edges_cost(int64_t row) {
    const double cost = 1.05 + 10 / (double)row, most = 1.45;
    return cost < most ? cost : most;
}

/* Points that tiles cover along a space axis of stage s: with the padding, if the owner's result is stored in blocks. */
static int64_t covered_extent(const rules *r, int s, int axis) {
    int64_t extent = rules_known_extent(r, &r->region->stages.data[s].axis[axis]);
    int owner = r->group[s].owner, label = r->group[s].label[axis];
    if (label < 0) return extent;
    int64_t stored = rules_stored_extent(r, owner, label);
    return stored > extent ? stored : extent;
}

static double reduction_steps(const rules *r, const tir_stage *s) {
    double steps = 1;
    for (int a = s->space; a < s->space + s->reduce; a++) steps *= (double)rules_known_extent(r, &s->axis[a]);
    return steps;
}

/* Is the tensor stored in panels along the dimension that `axis` indexes? Returns the panel's width, 0 if not. The steps that a unit
 * takes at once may be stored inside. */
int64_t rules_panel_width(const rules *r, const rules_access *access, tir_expr axis) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    if (tir_layout_is_identity(&t->layout)) return 0;
    for (int i = t->layout.count - 1; i >= 0 && i >= t->layout.count - 2; i--) {
        const tir_layout_part *part = &t->layout.part[i];
        if (part->divisor != 1 || part->modulus == 0) return 0;
        if (tir_operand(r->region->pool, access->load, part->dim) == axis) return part->modulus;
    }
    return 0;
}

/* The dimension that the axis alone indexes in a load; -1: none. */
static int plain_subscript(const rules *r, const rules_access *access, tir_expr axis) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    for (int d = 0; d < t->rank; d++)
        if (tir_operand(r->region->pool, access->load, d) == axis) return d;
    return -1;
}

/* Can the accessed tensor be laid out along the axis? The axis must be a dimension by itself, the same in all reads of the tensor by this
 * stage that use it: then one layout serves them. */
static bool lies_along(const rules *r, const rules_access *access, int count, const rules_access *which,
                       tir_expr axis) {
    const tir_tensor *t = &r->region->tensors.data[which->tensor];
    const int dim = plain_subscript(r, which, axis);
    for (int i = 0; i < count && t->rank >= 2; i++)
        for (int d = 0; d < t->rank && access[i].tensor == which->tensor; d++) {
            const tir_expr subscript = tir_operand(r->region->pool, access[i].load, d);
            if (tir_uses(r->region->pool, subscript, axis) && (d != dim || subscript != axis)) return false;
        }
    return dim >= 0 && t->rank >= 2;
}

/* The axis to repeat over broadcasts: the vector operands do not depend on it. Of the axes long enough to fill the registers the one with
 * the smallest distance in memory, else the longest; -1: none. */
static int repeated_axis(const rules *r, const tir_stage *stage, int v, const rules_access *access, int count) {
    enum { ENOUGH = 6 };
    int best = -1;
    int64_t best_extent = 1, best_stride = 0;
    for (int a = 0; a < stage->space; a++) {
        int64_t extent = rules_known_extent(r, &stage->axis[a]), stride = 0;
        bool reused = a != v && extent > 1;
        for (int i = 0; i < count && reused; i++) {
            if (rules_depends(&access[i], v) && rules_depends(&access[i], a)) reused = false;
            int64_t step = access[i].stride[a] < 0 ? -access[i].stride[a] : access[i].stride[a];
            if (step > stride) stride = step;
        }
        if (!reused) continue;
        bool enough = extent >= ENOUGH, had_enough = best_extent >= ENOUGH;
        if (best >= 0 && enough == had_enough && (enough ? stride > best_stride : extent < best_extent)) continue;
        if (best >= 0 && had_enough && !enough) continue;
        best = a;
        best_extent = extent;
        best_stride = stride;
    }
    return best;
}

/* Are the unit's steps along an axis contiguous inside blocks of the broadcast operand? */
static bool runs_in_blocks(const rules *r, const rules_access *access, tir_expr axis, int width) {
    const tir_layout *layout = &r->region->tensors.data[access->tensor].layout;
    if (tir_layout_is_identity(layout)) return false;
    const tir_layout_part *inner = &layout->part[layout->count - 1];
    return inner->divisor == 1 && inner->modulus > 0 && inner->modulus % width == 0 &&
           tir_operand(r->region->pool, access->load, inner->dim) == axis;
}

/* Average number of reduction steps that use an element of the tensor. */
static double uses_of_element(const rules *r, const tir_stage *stage, const tir_tensor *tensor) {
    double uses = reduction_steps(r, stage);
    for (int a = 0; a < stage->space; a++) uses *= (double)rules_known_extent(r, &stage->axis[a]);
    for (int d = 0; d < tensor->rank; d++) {
        int64_t extent;
        if (tir_is_const(r->region->pool, tensor->extent[d], &extent) && extent > 0) uses /= (double)extent;
    }
    return uses;
}

/* Does one access to a tensor depend on the axis and another one not? */
static bool is_read_both_ways(int axis, const rules_access *access, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            if (access[i].tensor == access[k].tensor && rules_depends(&access[i], axis) &&
                !rules_depends(&access[k], axis))
                return true;
    return false;
}

/* Can the tensor itself get the layout: is it a constant without one? Stages that read it in another layout get copies. */
static bool is_laid_out_in_place(const tir_tensor *tensor) {
    return tensor->constant && tensor->stage < 0 && tir_layout_is_identity(&tensor->layout);
}

/* Fits the operands to a unit along axis `a`: its steps must be contiguous in the broadcast operand, and innermost in panels
 * of the vector operand. Operands given at run time are packed for it if they are used often enough. False: impossible. */
static bool fit_unit(rules *r, int s, rules_tile_shape *t, const tir_unit *unit, int a, const rules_access *access,
                     int count, int64_t rows) {
    enum { ROWS = 8, USES = 48 };
    const tir_stage *stage = &r->region->stages.data[s];
    tir_expr axis = stage->axis[a].var;
    int64_t extent = rules_known_extent(r, &stage->axis[a]);
    bool ends = extent % unit->width != 0; /* the last steps are after the end: cheap if operands are padded there */
    uint32_t pack = t->pack, steps = UINT32_MAX;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        bool broadcast = !rules_depends(&access[i], t->v);
        if (broadcast && runs_in_blocks(r, &access[i], axis, unit->width)) continue;
        if (broadcast && access[i].stride[a] == 1 && (!ends || extent >= 2 * unit->width)) continue;
        if (tensor->output) return false; /* its layout is the caller's, and a copy would become the output */
        if (broadcast) {
            bool known = tensor->constant || uses_of_element(r, stage, tensor) >= (double)USES;
            if (!known || !lies_along(r, access, count, &access[i], axis)) return false;
            if (steps != UINT32_MAX && steps != access[i].tensor) return false;
            steps = access[i].tensor;
        } else if (rules_panel_width(r, &access[i], stage->axis[t->v].var)) {
            const tir_layout_part *inner = &tensor->layout.part[tensor->layout.count - 1];
            if (inner->modulus != unit->width || tir_operand(r->region->pool, access[i].load, inner->dim) != axis)
                return false;
        } else {
            if (!lies_along(r, access, count, &access[i], axis) ||
                !lies_along(r, access, count, &access[i], stage->axis[t->v].var))
                return false;
            if ((pack != UINT32_MAX && pack != access[i].tensor) || (!tensor->constant && rows < ROWS)) return false;
            pack = access[i].tensor;
        }
    }
    if (is_read_both_ways(t->v, access, count)) return false; /* one layout cannot serve both accesses */
    if (pack != t->pack) t->pack_copy = true;
    t->pack = pack;
    t->steps = steps;
    t->steps_copy = steps != UINT32_MAX && !is_laid_out_in_place(&r->region->tensors.data[steps]);
    t->unit = unit;
    t->unit_axis = a;
    return true;
}

/* Chooses a dot-product unit of the machine, along the first axis that wastes less than half of its steps. */
static void find_unit(rules *r, int s, rules_tile_shape *t, const rules_access *access, int count, int64_t rows) {
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_unit *unit = tir_unit_for(r->machine->units, r->region->pool, stage);
    for (int a = stage->space; unit && a < stage->space + stage->reduce; a++) {
        int64_t extent = rules_known_extent(r, &stage->axis[a]);
        if (rules_round_up(extent, unit->width) >= 2 * extent) continue;
        if (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) continue;
        if (fit_unit(r, s, t, unit, a, access, count, rows)) return;
    }
}

static void choose_unit(rules *r, int s, rules_tile_shape *t, const rules_access *access, int count, int64_t rows,
                        bool pinned) {
    const rules_tile_shape without = *t;
    find_unit(r, s, t, access, count, rows);
    const tir_unit *fitting = t->unit;
    if (pinned && tir_is_pinned(r->schedule, r->region->stages.data[s].name, "unit", "none")) *t = without;
    t->fitting = fitting;
}

/* Distance in memory between neighbouring results along a space axis; 0: unknown. */
static int64_t stored_bytes_apart(rules *r, int s, int axis) {
    int root = r->group[s].root, label = r->group[s].label[axis];
    bool elsewhere = root != s && label >= 0 && label < r->region->stages.data[root].space;
    int stage = elsewhere ? root : s;
    int64_t stride = rules_store_stride(r, stage, elsewhere ? label : axis);
    if (stride == RULES_IRREGULAR) return 0;
    return stride * (int64_t)lib_dtype_size(r->region->tensors.data[r->region->stages.data[stage].tensor[0]].dtype);
}

/* Are results contiguous along a space axis, or in blocks, where they are stored? */
static bool stores_along(rules *r, int s, int axis) {
    int root = r->group[s].root, label = r->group[s].label[axis];
    if (root == s && !r->region->tensors.data[r->region->stages.data[s].tensor[0]].output)
        return true; /* no reader needs an order */
    if (root != s && label >= 0 && label < r->region->stages.data[root].space)
        return rules_stores_vectors(r, root, label);
    return rules_stores_vectors(r, s, axis);
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (a % b) {
        int64_t rest = a % b;
        a = b;
        b = rest < 0 ? -rest : rest;
    }
    return b;
}

/* Average number of L1 lines that a vector load along an axis touches: two unless the vector begins at the start of a line. */
static double lines_of_vectors(const rules *r, const tir_stage *stage, const int64_t *stride, int axes, int v,
                               int64_t lanes) {
    int64_t bytes = r->machine->vector_bytes, line = r->machine->line, begin;
    if (bytes <= 0 || line * lanes < bytes) return 1;
    begin = line = line * lanes / bytes; /* elements */
    for (int a = 0; a < axes; a++) {
        int64_t step = stride[a] == RULES_IRREGULAR ? 1 : stride[a];
        if (a == v || rules_known_extent(r, &stage->axis[a]) == 1) continue;
        begin = common_divisor(step, begin);
    }
    return 1 + (double)lanes / (double)line * (1 - (double)begin / (double)line);
}

/* Vector registers for the values of stage `member` at `columns` points along axis v of reduction s, of one row of its tile; 0 if they are
 * in memory. */
static int64_t row_registers(const rules *r, int s, int v, int member, int64_t columns) {
    int64_t points[TIR_MAX_AXES];
    const tir_stage *stage = &r->region->stages.data[member];
    const int label = r->group[s].label[v];
    const int along = member == s ? v : label < 0 ? -1 : rules_axis_labelled(r, member, label);
    for (int a = 0; a < stage->space; a++) points[a] = a == along ? columns : 1;
    return rules_fits_registers(r, stage, along) ? rules_registers(r, member, points, along) : 0;
}

/* Vector registers for the values live at once in the tile of reduction s and of the maps around it, of one row of `columns` points. */
static int64_t live_registers(rules *r, int s, const rules_tile_shape *t, int64_t columns) {
    const int owner = r->group[s].owner;
    int *stages = LIB_NEW_ARRAY(r->arena, int, r->region->stages.count + 1), count = rules_members(r, owner, stages);
    int64_t *vectors = LIB_NEW_ARRAY(r->arena, int64_t, (size_t)count + 1);
    int transposed = rules_transposed_copy(r, owner); /* from there on, one row of the tile at a time is live */
    if (transposed < 0 && rules_crossings(r, s, t)) transposed = s + 1;
    for (int i = 0; i < count; i++)
        if (rules_pointwise(r, stages[i]) && (transposed < 0 || stages[i] < transposed))
            vectors[i] = row_registers(r, s, t->v, stages[i], columns);
    stages[count] = owner;
    return rules_live(r, stages, vectors, count + 1);
}

/* Columns of a tile whose rows are `lanes` wide. */
static int64_t columns_of(const rules_tile_problem *p, int64_t lanes) {
    return p->n < lanes && !p->n_varies ? p->n : lanes;
}

/* Elements of the tile's vectors: of whole ones, or fewer if the maps' values, of wider types, exceed the registers in a single row. */
static int64_t lanes_in_registers(rules *r, int s, const rules_tile_shape *t, const rules_tile_problem *p) {
    int64_t lanes = rules_lanes_along(r, s, t->v);
    while (lanes > 1 && live_registers(r, s, t, columns_of(p, lanes)) > r->machine->vector_registers - 2) lanes /= 2;
    return lanes;
}

/* The values live at once, as a number of tiles of the reduction's own values. */
static int64_t live_tiles(rules *r, int s, const rules_tile_shape *t, const rules_tile_problem *p) {
    const int64_t columns = p->panel ? p->panel : columns_of(p, t->lanes);
    const int64_t sums = (columns + t->lanes - 1) / t->lanes;
    return (live_registers(r, s, t, columns) + sums - 1) / sums;
}

/* Notes in *t a further constant to be laid out along v like the packed one; false: impossible or not needed. */
static bool lies_with(const rules *r, const rules_access *access, int count, const rules_access *which, tir_expr axis,
                      rules_tile_shape *t) {
    if (t->pack == UINT32_MAX || t->pack_copy || which->tensor == t->pack) return false;
    if (!is_laid_out_in_place(&r->region->tensors.data[which->tensor])) return false;
    if (!lies_along(r, access, count, which, axis)) return false;
    for (int i = 0; i < TILE_WITH; i++) {
        if (t->with[i] != UINT32_MAX && t->with[i] != which->tensor) continue;
        t->with[i] = which->tensor;
        return true;
    }
    return false;
}

typedef struct preparation {
    /* variables */
    tir_expr along, across;
    int64_t instructions;
} preparation;

static tir_expr meet_preparation(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    preparation *p = user;
    const tir_node *node = tir_get(pool, e);
    if (node->dtype == TIR_INDEX || node->op == TIR_LOAD || !node->count) return rebuilt;
    const tir_dtype from = tir_dtype_of(pool, tir_operand(pool, e, 0));
    const bool widens = node->op == TIR_CAST && from != TIR_INDEX && lib_dtype_is_float((dlc_dtype)from);
    if (widens || !lib_dtype_is_float((dlc_dtype)node->dtype)) return rebuilt; /* shuffles and shifts use other ports */
    if (tir_uses(pool, e, p->along) && !tir_uses(pool, e, p->across)) p->instructions++;
    return rebuilt;
}

/* Instructions per step, on the multiplying ports, that convert the operand which depends on axis `along` of the tile and not on axis
 * `across`. */
static int64_t prepared_instructions(rules *r, const tir_stage *stage, int along, int across) {
    preparation p = {.along = stage->axis[along].var, .across = stage->axis[across].var};
    tir_rewrite(r->region->pool, stage->value[0], meet_preparation, &p);
    return p.instructions;
}

/* Cycles to copy an operand to panels, by vectors along its last dimension, which are transposed where panels lie across it. */
static double packing_cycles(const rules *r, const tir_tensor *packed, int64_t lanes) {
    const double each = 1.2; /* cycles per element, vectors being whole */
    int64_t row;
    double elements = rules_tensor_bytes(r, packed) / (double)lib_dtype_size(packed->dtype);
    if (!tir_is_const(r->region->pool, packed->extent[packed->rank - 1], &row) || row < 1) return each * elements;
    return each * elements * (double)rules_round_up(row, lanes) / (double)row;
}

/* Evaluates axis v as the vector axis; false: impossible. `pinned`: with the sizes that are pinned (tir/choice.h). */
static bool try_axis(rules *r, int s, int v, const rules_access *access, int count, bool pinned, rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    bool heavy = rules_is_contraction(r, s), vector_operand = false, window = false;
    rules_tile_problem p = {.m = 1,
                            .heavy = heavy,
                            .steps = reduction_steps(r, stage),
                            .unrolled_points = 1,
                            .unrolled_span = 1,
                            .window = 1,
                            .row_step = 1,
                            .window_step = 1,
                            .lines_per_load = 1};
    if (pinned) {
        p.columns = tir_pinned_number(r->schedule, stage->name, "columns");
        p.rows = tir_pinned_number(r->schedule, stage->name, "rows");
        p.only_inside = tir_is_pinned(r->schedule, stage->name, "steps_inside", "yes");
        p.only_outside = tir_is_pinned(r->schedule, stage->name, "steps_inside", "no");
    }
    double penalty = 1, lines = 1;
    tir_expr axis = stage->axis[v].var;
    *t = (rules_tile_shape){.v = v, .u = -1, .lanes = 1, .pack = UINT32_MAX, .steps = UINT32_MAX, .shared = -1};
    for (int i = 0; i < TILE_WITH; i++) t->with[i] = UINT32_MAX;
    if (rules_known_extent(r, &stage->axis[v]) == 1) return false;
    p.n_varies = rules_extent(r, &stage->axis[v]) < 0;
    p.n = p.n_varies ? rules_usual_extent(r, &stage->axis[v]) : covered_extent(r, s, v);
    t->lanes = lanes_in_registers(r, s, t, &p);
    const bool known = rules_extent(r, &stage->axis[v]) >= 0; /* panels are made along axes of known extent only */
    for (int i = 0; i < count; i++) {
        int64_t stride = access[i].stride[v], width = rules_panel_width(r, &access[i], axis);
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (stride == 0) continue;
        if (width) {
            p.panel = width;
            vector_operand = true;
        } else if (heavy && known && t->pack == UINT32_MAX && (tensor->constant || stride != 1) && !tensor->output &&
                   lies_along(r, access, count, &access[i], axis)) {
            t->pack = access[i].tensor;
            t->pack_copy = !is_laid_out_in_place(tensor);
            vector_operand = true;
        } else if (heavy && lies_with(r, access, count, &access[i], axis, t)) {
            vector_operand = true;
        } else if (stride == 1) {
            double each = lines_of_vectors(r, stage, access[i].stride, stage->space + stage->reduce, v, t->lanes);
            vector_operand = true;
            if (each > lines) lines = each;
            for (int a = stage->space; a < stage->space + stage->reduce && heavy; a++)
                window = window ||
                         (rules_known_extent(r, &stage->axis[a]) > 1 && rules_is_window(r, stage, &access[i], v, a));
        } else if (stride > 1 && stride <= RULES_CLOSE) { /* several vectors per load, and a shuffle */
            vector_operand = true;
            penalty *= (double)stride + 1;
        } else if (heavy) {
            return false;
        } else {
            penalty *= 12; /* gathers */
        }
    }
    if (!vector_operand && heavy) return false;
    t->u = heavy ? repeated_axis(r, stage, v, access, count) : -1;
    if (t->u < 0 && (heavy || p.panel || rules_has_window(r, s, access, count))) {
        t->u = rules_separate_axis(r, stage, v, heavy, access, count);
        p.separate = t->separate = t->u >= 0;
        t->light = t->separate && !heavy;
        if (p.separate) t->shared = rules_shared_axis(r, stage, t, access, count, &p);
    }
    p.mask_cycles = rules_mask_cycles(r, stage, v, access, count);
    if (heavy && !p.separate) p.lines_per_load = lines;
    if (heavy && !p.separate && t->u >= 0) {
        p.prepared = prepared_instructions(r, stage, v, t->u);
        p.prepared_rows = prepared_instructions(r, stage, t->u, v);
    }
    p.m_varies = t->u >= 0 && rules_extent(r, &stage->axis[t->u]) < 0;
    if (t->u >= 0) p.m = p.m_varies ? rules_usual_extent(r, &stage->axis[t->u]) : covered_extent(r, s, t->u);
    if (!p.separate) choose_unit(r, s, t, access, count, p.m, pinned);
    if (t->unit) {
        int64_t extent = rules_known_extent(r, &stage->axis[t->unit_axis]), width = t->unit->width;
        p.steps = p.steps / (double)extent * (double)(rules_round_up(extent, width) / width);
    }
    for (int i = 0; i < count && t->u >= 0; i++) {
        int64_t stride = access[i].stride[t->u];
        int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[access[i].tensor].dtype);
        if (stride == RULES_IRREGULAR) continue;
        int64_t bytes = (stride < 0 ? -stride : stride) * size;
        if (bytes > p.row_bytes) p.row_bytes = bytes;
    }
    for (int q = 0; q < (int)r->region->stages.count; q++) /* stages that keep values of the tile in registers */
        if (!r->region->stages.data[q].removed && q != r->group[s].owner && r->group[q].owner == r->group[s].owner) {
            p.attached++;
            p.sums += q != s && rules_is_contraction(r, q) && rules_pointwise(r, q);
        }
    if (p.attached < 1) p.attached = 1;
    p.sums++;
    const int64_t live = live_tiles(r, s, t, &p);
    if (live > p.sums) p.sums = live;
    p.inner_steps = heavy && !p.separate && !t->unit;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (t->u >= 0 && rules_meets(r, stage, a, stage->axis[t->u].var)) {
            p.unrolled_points *= rules_known_extent(r, &stage->axis[a]);
            p.unrolled_span *= rules_window_span(r, stage, a, access, count, t);
            p.inner_steps = p.inner_steps && rules_unrolls_step(r, stage, a, t);
        }
    p.inner_steps = p.inner_steps && p.unrolled_points > 1;
    double rest = 1;
    for (int a = 0; a < stage->space; a++)
        if (a != v && a != t->u) rest *= (double)covered_extent(r, s, a);
    double bytes = (double)p.n * (double)p.m * rest * r->machine->vector_bytes / (double)t->lanes;
    p.exceeds_l2 = bytes > (double)r->machine->l2;
    p.exceeds_l3 = 2 * bytes > (double)r->machine->l3;
    p.strided = !stores_along(r, s, v);
    p.transposed = p.strided && t->u >= 0 && stores_along(r, s, t->u);
    if (p.transposed) p.crossings = rules_crossings(r, s, t);
    if (p.strided) p.lane_bytes = stored_bytes_apart(r, s, v);
    if (!p.strided && t->u >= 0) p.result_bytes = stored_bytes_apart(r, s, t->u);
    p.edge_predicate = heavy && !p.separate && stage->predicate && tir_uses(r->region->pool, stage->predicate, axis);
    p.row_pairs = r->machine->row_pairs && heavy && t->u >= 0 && !p.separate && !t->unit && !p.edge_predicate;
    rules_size_tile(r, t, &p);
    if (t->shared >= 0) { /* with few registers, more rows without shared loads may be faster */
        rules_tile_problem again = p;
        rules_tile_shape other = *t;
        again.window = again.row_step = again.window_step = 1;
        other.shared = -1;
        rules_size_tile(r, &other, &again);
        if (other.cycles < t->cycles) *t = other;
    }
    double store = !p.strided ? 1 : p.transposed ? 0 : rules_scatter_cycles(r, &p, t->lanes);
    if (p.edge_predicate && window && r->machine->masked)
        penalty *= edges_cost(p.n);
    else if (stage->predicate && tir_uses(r->region->pool, stage->predicate, axis))
        penalty *= (window ? 1.2 : 1) * 1.8; /* masked lanes */
    double vectors = (double)p.m * (double)((p.n + t->lanes - 1) / t->lanes);
    t->cycles = (t->cycles * p.steps * penalty + vectors * store) * rest;
    if (t->pack_copy) { /* packing touches the operand once; not worth it for an operand that is used once */
        if ((double)p.m * rest < 4) return false;
        t->cycles += packing_cycles(r, &r->region->tensors.data[t->pack], t->lanes);
    }
    return true;
}

/* The best tile; with `pinned`, of those that are pinned (tir/choice.h). */
static bool choose_tile(rules *r, int s, bool pinned, rules_tile_shape *best) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    bool found = false, wanted = false;
    uint32_t vectors = 0;
    if (count == RULES_ACCESSES) return false;
    int prepared = -1;
    for (uint32_t i = 0; i < r->prepared.count; i++)
        if (rules_stage_named(r, r->prepared.data[i].stage) == s) prepared = r->prepared.data[i].axis;
    for (int v = stage->space - 1; v >= 0; v--) {
        rules_tile_shape t;
        if (prepared >= 0 && prepared != v) continue;
        if (!try_axis(r, s, v, access, count, pinned, &t)) continue;
        const bool here = pinned && tir_is_pinned(r->schedule, stage->name, "vector", stage->axis[v].name);
        if (!found || here || (!wanted && t.cycles < best->cycles)) *best = t;
        wanted = wanted || here;
        vectors |= 1u << v;
        found = true;
    }
    if (found) best->vectors = vectors;
    if (!found || rules_is_contraction(r, s)) return found;
    for (int i = 0; i < count;
         i++) /* light reductions of long rows need unit strides, otherwise lanes along the row are better */
        if (access[i].stride[best->v] != 0 && access[i].stride[best->v] != 1) {
            for (int a = stage->space; a < stage->space + stage->reduce; a++)
                if (rules_in_line(&access[i], a) && !rules_is_window(r, stage, &access[i], best->v, a) &&
                    !rules_is_short_row(r, s, rules_known_extent(r, &stage->axis[a])))
                    return false;
        }
    return true;
}

/* Records the choices that *t consists of, and makes the last one: do the last columns get a narrower tile? */
static void record_tile(rules *r, int s, rules_tile_shape *t) {
    static const char *const tails[] = {"mask", "peel"}, *const sides[] = {"no", "yes"};
    const tir_stage *stage = &r->region->stages.data[s];
    const char *axes[TIR_MAX_AXES], *unit[] = {"none", t->fitting ? t->fitting->name : NULL};
    int count = 0, along = 0;
    if (!r->schedule->choices) return;
    for (int a = 0; a < stage->space; a++) {
        if (!(t->vectors >> a & 1)) continue;
        if (a == t->v) along = count;
        axes[count++] = stage->axis[a].name;
    }
    tir_record_word(r->schedule, stage->name, "vector", count, axes, along);
    tir_record_number(r->schedule, stage->name, "columns", t->columns, t->nr);
    if (t->u >= 0) tir_record_number(r->schedule, stage->name, "rows", (tir_numbers){1, t->rows, 1}, t->mr);
    if (t->inner_steps) tir_record_word(r->schedule, stage->name, "steps_inside", 2, sides, t->steps_inside);
    if (t->fitting) tir_record_word(r->schedule, stage->name, "unit", 2, unit, t->unit != NULL);
    const int64_t n = rules_extent(r, &stage->axis[t->v]);
    if (n > t->nr && n % t->nr) t->peel = tir_choose_word(r->schedule, stage->name, "tail", 2, tails, t->peel);
}

bool rules_choose_tile(rules *r, int s, rules_tile_shape *t) {
    if (!choose_tile(r, s, true, t)) return false;
    record_tile(r, s, t);
    return true;
}

/* Replaces *t by the best tile that has the pinned choices, if there is one, and records the choices of *t. The rules' model of a tile does
 * not include the cache misses of rows that are scattered in memory; for such a tile, the rules doubt the axis of its vectors. */
static void choose_pinned_tile(rules *r, int s, rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_tile_shape pinned;
    if (rules_is_contraction(r, s) && !stage->predicate && t->u >= 0 && rules_rows_are_scattered(r, s, t->v, t->u))
        for (int a = 0; a < stage->space; a++)
            if (a != t->v && t->vectors >> a & 1) tir_doubt(r->schedule, stage->name, "vector", stage->axis[a].name);
    if (tir_has_pins(r->schedule) && choose_tile(r, s, true, &pinned)) *t = pinned;
    record_tile(r, s, t);
}

bool rules_tileable(rules *r, int stage) {
    rules_tile_shape t;
    if (rules_is_interleaved(r, stage)) return false;
    return r->region->stages.data[stage].kind == TIR_REDUCE && choose_tile(r, stage, false, &t);
}

/* ---- rewrites */

const char *rules_fresh_name(const rules *r, const char *base, const char *suffix) {
    return tir_region_fresh_name(r->arena, r->region, base, suffix);
}

int rules_stage_named(const rules *r, const char *name) {
    return tir_region_find_stage(r->region, name);
}

int rules_axis_of(const tir_stage *stage, tir_axis_role role) {
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].role == role) return a;
    return -1;
}

/* Lays out an operand. In panels: (v/NR, other dimensions in order, v%NR); for a unit (.., k/2, .., v%NR, k%2), and its broadcast operand
 * (.., k/2, .., k%2). Dimensions of loops outside of the panels (batches) come first, so that memory is read in order. */
static void pack_operand(rules *r, int s, const rules_tile_shape *t, uint32_t tensor) {
    const tir_tensor *packed = &r->region->tensors.data[tensor];
    const tir_stage *reader = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), first = 0;
    while (first < count && access[first].tensor != tensor) first++;
    if (first == count) return;
    const char *names[DLC_MAX_RANK];
    bool outside[DLC_MAX_RANK] = {false};
    int panel = -1, steps = -1; /* the dimension of vectors; that of a unit's steps */
    tir_dimension_names(r->arena, r->region, tensor, names);
    for (int i = first; i < count; i++) /* an operand may be read twice */
        for (int d = 0; d < packed->rank && access[i].tensor == tensor; d++) {
            tir_expr subscript = tir_operand(r->region->pool, access[i].load, d);
            for (int b = 0; b < reader->space; b++)
                outside[d] = outside[d] || (b != t->v && reader->axis[b].var == subscript);
            if (subscript == reader->axis[t->v].var) panel = d;
            if (t->unit && subscript == reader->axis[t->unit_axis].var) steps = d;
        }
    if (panel < 0 && steps < 0) return;
    lib_text parts;
    lib_text_init(&parts, r->arena);
    for (int d = 0; d < packed->rank; d++) {
        outside[d] = outside[d] && panel >= 0 && d != panel && d != steps; /* a tensor may be both operands */
        if (outside[d]) lib_text_format(&parts, "%s, ", names[d]);
    }
    if (panel >= 0) lib_text_format(&parts, "%s/%lld", names[panel], (long long)t->nr);
    for (int d = 0; d < packed->rank; d++) {
        const char *comma = parts.length ? ", " : "";
        if (d == steps)
            lib_text_format(&parts, "%s%s/%d", comma, names[d], t->unit->width);
        else if (d != panel && !outside[d])
            lib_text_format(&parts, "%s%s", comma, names[d]);
    }
    if (panel >= 0) lib_text_format(&parts, ", %s%%%lld", names[panel], (long long)t->nr);
    if (steps >= 0) lib_text_format(&parts, ", %s%%%d", names[steps], t->unit->width);
    rules_rewrite(r, "layout %s (%s)", packed->name, parts.data);
}

/* Lays out an operand for the tile, or a copy of the operand. */
static void pack(rules *r, const char *reader, const rules_tile_shape *t, const char *operand, bool copy) {
    if (copy) {
        const char *source = operand;
        operand = rules_fresh_name(r, source, "_panels");
        if (t->inside) rules_prepare_panels(r, reader, operand);
        rules_rewrite(r, "copy %s -> %s", source, operand);
    }
    pack_operand(r, rules_stage_named(r, reader), t, tir_region_find_tensor(r->region, operand));
}

/* Stores the stage's results (the accumulators) with the vector axis innermost, so that a vector is contiguous. */
static void vectors_last(rules *r, int s, int v) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (v == stage->space - 1) return;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v) lib_text_format(&order, "%s, ", stage->axis[a].name);
    rules_rewrite(r, "layout %s (%s%s)", stage->name, order.data, stage->axis[v].name);
}

/* Adds copies of the stage's outputs, or of its result if it is a root: the copy has the caller's layout, the accumulators can have another
 * one. */
static void copy_outputs(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const char *source[TIR_MAX_STATE];
    int count = 0;
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *value = &r->region->tensors.data[stage->tensor[c]];
        if (value->output) source[count++] = value->name;
    }
    if (count == 0 && r->group[s].root == s) source[count++] = stage->name;
    for (int c = 0; c < count; c++)
        rules_rewrite(r, "copy %s -> %s", source[c], rules_fresh_name(r, source[c], "_out"));
}

/* Chooses the order in which the tile reads a vector operand that is given at run time. */
static rules_operand_access choose_operand_access(rules *r, int s, rules_tile_shape *t,
                                                  rules_operand_tile *operand_tile) {
    const tir_stage *stage = &r->region->stages.data[s];
    operand_tile->n = rules_extent(r, &stage->axis[t->v]);
    operand_tile->m = t->u < 0 ? 1 : rules_extent(r, &stage->axis[t->u]);
    if (t->pack != UINT32_MAX || t->unit || operand_tile->n < 0 || operand_tile->m < 0) return RULES_OPERAND_IN_PLACE;
    rules_operand_access kind = rules_choose_operand_access(r, s, operand_tile);
    if (kind != RULES_OPERAND_PANELS) return kind;
    t->pack = tir_region_find_tensor(r->region, operand_tile->operand);
    t->pack_copy = t->inside = true;
    return kind;
}

void rules_prepare_tile(rules *r, int s) {
    const char *name = r->region->stages.data[s].name;
    if (r->region->stages.data[s].kind != TIR_REDUCE || r->region->stages.data[s].fold >= 0) return;
    if (rules_role_of(r, s) > RULES_WHOLE || rules_is_interleaved(r, s)) return;
    rules_tile_shape t;
    rules_lanes_tile lanes = {0};
    static const char *const forms[] = {"tile", "lanes"};
    bool found = choose_tile(r, s, false, &t);
    double cycles = rules_lanes_cost(r, s, &lanes);
    bool by_lanes = cycles < (found ? rules_overlap_l3(t.cycles, lanes.l3_cycles) : 1e300);
    if (found && cycles < 1e300) by_lanes = tir_choose_word(r->schedule, name, "form", 2, forms, by_lanes);
    if (by_lanes) {
        rules_choose_lanes(r, s, &lanes);
        copy_outputs(r, s);
        rules_prepare_lanes(r, rules_stage_named(r, name), &lanes);
        return;
    }
    if (!found) return;
    choose_pinned_tile(r, s, &t);
    lib_vec_push(r->arena, &r->prepared, ((rules_prepared){name, t.v}));
    rules_operand_tile operand_tile = {.v = t.v, .u = t.u, .nr = t.nr, .mr = t.mr, .lanes = t.lanes};
    rules_operand_access kind = choose_operand_access(r, s, &t, &operand_tile);
    copy_outputs(r, s);
    s = rules_stage_named(r, name);
    if (kind == RULES_OPERAND_ROW_BLOCKS) {
        rules_prepare_blocks(r, s, &operand_tile);
        return;
    }
    vectors_last(r, s, t.v);
    if (rules_extent(r, &r->region->stages.data[s].axis[t.v]) < 0) return;
    const char *panels = t.pack == UINT32_MAX ? NULL : r->region->tensors.data[t.pack].name;
    const char *steps = t.steps == UINT32_MAX ? NULL : r->region->tensors.data[t.steps].name, *with[TILE_WITH];
    for (int i = 0; i < TILE_WITH; i++)
        with[i] = t.with[i] == UINT32_MAX ? NULL : r->region->tensors.data[t.with[i]].name;
    for (int i = 0; i < TILE_WITH; i++)
        if (with[i]) pack(r, name, &t, with[i], false);
    if (panels) pack(r, name, &t, panels, t.pack_copy);
    if (steps) pack(r, name, &t, steps, t.steps_copy);
    if (kind == RULES_OPERAND_IN_PLACE && !t.unit) rules_copy_rows(r, rules_stage_named(r, name), &operand_tile);
    if (kind == RULES_OPERAND_IN_PLACE) rules_prepare_cut(r, name, &t);
    rules_prepare_transposed(r, rules_stage_named(r, name), &t);
}

/* ---- loops */

/* Clips loops of the reduction to the points that its predicate allows (of a padded image, those inside); short loops are unrolled where
 * masks then become compile-time facts. */
static void clip_reduction(rules *r, int s, const rules_tile_shape *t, bool unrolled) {
    const tir_stage *stage = &r->region->stages.data[s];
    for (int a = stage->space; a < stage->space + stage->reduce && stage->predicate; a++) {
        if (!tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) continue;
        bool vector = rules_meets(r, stage, a, stage->axis[t->v].var);
        int64_t extent = rules_extent(r, &stage->axis[a]);
        if (vector) { /* if masks are expensive, masks of a step are better known at compile time */
            if (rules_edges_cost(r, stage, t))
                tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
            if (!r->machine->masked && extent > 0 && extent <= 8 && !unrolled)
                tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
            continue;
        }
        tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
        if (rules_unrolls_step(r, stage, a, t) && a != t->shared && !unrolled)
            tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    }
}

/* The axes of the reduction, as bits, whose loops run inside of the loop over the tile's rows. */
static uint32_t inside_axes(const rules *r, const tir_stage *stage, const rules_tile_shape *t) {
    uint32_t axes = 0;
    for (int a = stage->space; a < stage->space + stage->reduce && t->steps_inside; a++)
        if (rules_unrolls_step(r, stage, a, t)) axes |= 1u << a;
    return axes;
}

/* Appends those axes of the reduction that are in `axes`; an axis that is cut stands for its parts outside of the tile. */
static void order_reduction(lib_text *order, const tir_stage *stage, const rules_tile_shape *t, bool main,
                            uint32_t axes) {
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (axes >> a & 1)
            lib_text_format(order, " %s",
                            main && t->unit && a == t->unit_axis                ? "s_o"
                            : main && t->blocks_axis > 0 && a == t->blocks_axis ? "s_o s_i"
                                                                                : stage->axis[a].name);
}

void rules_attach_to_tile(rules *r, int s, const char *owner, const char *loop, int v_label, int u_label,
                          const rules_tile_shape *t, bool main) {
    const tir_stage *stage = &r->region->stages.data[s];
    int v = rules_axis_labelled(r, s, v_label), u = u_label < 0 ? -1 : rules_axis_labelled(r, s, u_label);
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, owner, loop);
    if (rules_fits_registers(r, stage, v)) tir_schedule_add(r->schedule, "store %s reg", stage->name);
    const tir_unit *unit = main ? t->unit : NULL;
    if (unit)
        tir_schedule_add(r->schedule, "split %s.%s %d -> s_o s_i mask", stage->name, stage->axis[t->unit_axis].name,
                         unit->width);
    bool blocks = main && t->blocks_axis > 0;
    if (blocks)
        tir_schedule_add(r->schedule, "split %s.%s %lld -> s_o s_i mask", stage->name, stage->axis[t->blocks_axis].name,
                         (long long)t->block);
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v && a != u) lib_text_format(&order, " %s", stage->axis[a].name);
    int shared = main ? t->shared : -1;
    const uint32_t masking = main ? rules_masking_axes(r, s, t) : 0, inside = main ? inside_axes(r, stage, t) : 0,
                   outside = ~inside & ~(shared < 0 ? 0 : 1u << shared);
    order_reduction(&order, stage, t, main, masking & outside);
    order_reduction(&order, stage, t, main, ~masking & outside);
    if (shared >= 0) lib_text_format(&order, " %s", stage->axis[shared].name);
    if (u >= 0) lib_text_format(&order, " %s", stage->axis[u].name);
    order_reduction(&order, stage, t, main, inside);
    if (v >= 0) lib_text_format(&order, " %s", stage->axis[v].name);
    if (unit) lib_text_add(&order, " s_i");
    tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data ? order.data : "");
    if (unit)
        tir_schedule_add(r->schedule, "unit %s.s_i %s%s%s", stage->name, unit->name,
                         unit->deviations[0] ? " deviates " : "", unit->deviations);
    if (v >= 0) tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[v].name);
    if (u >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[u].name);
    if (shared >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[shared].name);
    bool unrolled = main && rules_unroll_window(r, stage, t);
    if (main && stage->predicate) clip_reduction(r, s, t, unrolled);
    if (blocks)
        tir_schedule_add(r->schedule, "prefetch %s at %s.s_i %s.s_o+1 L1 shared",
                         r->region->tensors.data[t->blocks].name, stage->name, stage->name);
}
