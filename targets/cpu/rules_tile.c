/* Register tiles: reductions computed at the points of their root. One axis (v) runs along vectors, one (u) is repeated over broadcasts;
 * MR rows of NV vectors of accumulators stay in registers while the reduction loops run. How many of each: rules_tile_size.c; the loops
 * around the tile: rules_tile_loops.c. */
#include "targets/cpu/rules_tile.h"
#include "targets/cpu/units.h"

#include <math.h>

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

/* Is the tensor stored in panels along the dimension that `axis` indexes? Returns the panel's width, that of all its parts (choose_streams in
 * rules_tile_prepare.c), 0 if not. The steps that a unit takes at once may be stored inside. */
int64_t rules_panel_width(const rules *r, const rules_access *access, tir_expr axis) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    if (tir_layout_is_identity(&t->layout)) return 0;
    for (int i = t->layout.count - 1; i >= 0 && i >= t->layout.count - 2; i--) {
        const tir_layout_part *part = &t->layout.part[i];
        if (part->divisor != 1 || part->modulus == 0) return 0;
        if (tir_operand(r->region->pool, access->load, part->dim) != axis) continue;
        int64_t width = part->modulus;
        for (int k = 0; k < i; k++)
            if (t->layout.part[k].dim == part->dim && t->layout.part[k].modulus) width *= t->layout.part[k].modulus;
        return width;
    }
    return 0;
}

/* Can the accessed tensor be laid out along the axis, in groups of `width` steps (0: of any number)? The axis must index a dimension in such groups,
 * the same in all reads of the tensor by this stage that use it: then one layout serves them. */
static bool lies_along(const rules *r, const rules_access *access, int count, const rules_access *which, tir_expr axis,
                       int width) {
    const tir_tensor *t = &r->region->tensors.data[which->tensor];
    int dim = -1;
    for (int i = 0; i < count && t->rank >= 2; i++)
        for (int d = 0; d < t->rank && access[i].tensor == which->tensor; d++) {
            const tir_expr subscript = tir_operand(r->region->pool, access[i].load, d);
            if (!tir_uses(r->region->pool, subscript, axis)) continue;
            if (dim >= 0 && d != dim) return false;
            if (width ? !rules_steps_in(r, &access[i], d, axis, width) : subscript != axis) return false;
            dim = d;
        }
    return dim >= 0;
}

/* Do the operands that depend on axis v not depend on axis `a`? *stride: the largest distance in memory along `a`. */
static bool is_repeated(int v, int a, const rules_access *access, int count, int64_t *stride) {
    *stride = 0;
    for (int i = 0; i < count; i++) {
        if (rules_depends(&access[i], v) && rules_depends(&access[i], a)) return false;
        int64_t step = access[i].stride[a] < 0 ? -access[i].stride[a] : access[i].stride[a];
        if (step > *stride) *stride = step;
    }
    return true;
}

/* The axis to repeat over broadcasts: the vector operands do not depend on it. Of the axes long enough to fill the registers the one with
 * the smallest distance in memory, else the longest; -1: none. */
static int repeated_axis(const rules *r, const tir_stage *stage, int v, const rules_access *access, int count) {
    enum { ENOUGH = 6 };
    int best = -1;
    int64_t best_extent = 1, best_stride = 0;
    for (int a = 0; a < stage->space; a++) {
        int64_t extent = rules_known_extent(r, &stage->axis[a]), stride;
        if (a == v || extent <= 1 || !is_repeated(v, a, access, count, &stride)) continue;
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
           rules_steps_in(r, access, inner->dim, axis, (int)inner->modulus);
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

bool rules_is_laid_out_in_place(const tir_tensor *tensor) {
    return tensor->constant && tensor->stage < 0 && tir_layout_is_identity(&tensor->layout);
}

/* An axis of the reduction that is tried as that of a unit's steps. */
typedef struct unit_trial {
    const rules *r;
    const tir_stage *stage;
    const rules_access *access;
    int count;
    const tir_unit *unit;
    /* axes of the tile's vectors and of the unit's steps; points of the axis of rows */
    int v, axis;
    int64_t rows;
    /* tensors to be laid out, as in rules_tile_shape */
    uint32_t pack, steps;
} unit_trial;

/* Are the unit's steps contiguous in the broadcast operand as it is? */
static bool has_steps_in_place(const unit_trial *u, const rules_access *access) {
    const int width = tir_unit_width(u->unit);
    const int64_t extent = rules_known_extent(u->r, &u->stage->axis[u->axis]);
    bool ends = extent % width != 0; /* the last steps are after the end: cheap if operands are padded there */
    if (runs_in_blocks(u->r, access, u->stage->axis[u->axis].var, width)) return true;
    return access->stride[u->axis] == 1 && (!ends || extent >= 2 * width);
}

/* Lays out the broadcast operand by the unit's steps; false: impossible, or it is not used often enough. */
static bool lay_out_steps(unit_trial *u, const rules_access *access) {
    enum { USES = 48 };
    const tir_tensor *tensor = &u->r->region->tensors.data[access->tensor];
    bool known = tensor->constant || uses_of_element(u->r, u->stage, tensor) >= (double)USES;
    const tir_expr steps = u->stage->axis[u->axis].var;
    if (!known || !lies_along(u->r, u->access, u->count, access, steps, tir_unit_width(u->unit))) return false;
    if (u->steps != UINT32_MAX && u->steps != access->tensor) return false;
    u->steps = access->tensor;
    return true;
}

/* Are the unit's steps innermost in the panels of the vector operand? */
static bool has_steps_in_panels(const unit_trial *u, const rules_access *access) {
    const tir_layout *layout = &u->r->region->tensors.data[access->tensor].layout;
    const tir_layout_part *inner = &layout->part[layout->count - 1];
    const int width = tir_unit_width(u->unit);
    return inner->modulus == width && rules_steps_in(u->r, access, inner->dim, u->stage->axis[u->axis].var, width);
}

/* Packs the vector operand for the unit; false: impossible, or there are too few rows. */
static bool pack_for_unit(unit_trial *u, const rules_access *access) {
    enum { ROWS = 8 };
    const tir_expr steps = u->stage->axis[u->axis].var, columns = u->stage->axis[u->v].var;
    if (!lies_along(u->r, u->access, u->count, access, steps, tir_unit_width(u->unit)) ||
        !lies_along(u->r, u->access, u->count, access, columns, 0))
        return false;
    if (u->pack != UINT32_MAX && u->pack != access->tensor) return false;
    if (!u->r->region->tensors.data[access->tensor].constant && u->rows < ROWS) return false;
    u->pack = access->tensor;
    return true;
}

static bool fit_operand(unit_trial *u, const rules_access *access) {
    bool broadcast = !rules_depends(access, u->v);
    if (broadcast && has_steps_in_place(u, access)) return true;
    if (u->r->region->tensors.data[access->tensor].output)
        return false; /* its layout is the caller's, and a copy would become the output */
    if (broadcast) return lay_out_steps(u, access);
    if (rules_panel_width(u->r, access, u->stage->axis[u->v].var)) return has_steps_in_panels(u, access);
    return pack_for_unit(u, access);
}

/* Fits the operands to a unit along axis `a`: its steps must be contiguous in the broadcast operand, and innermost in panels
 * of the vector operand. Operands given at run time are packed for it if they are used often enough. False: impossible. */
static bool fit_unit(rules *r, int s, rules_tile_shape *t, const tir_unit *unit, int a, const rules_access *access,
                     int count, int64_t rows) {
    unit_trial u = {.r = r,
                    .stage = &r->region->stages.data[s],
                    .access = access,
                    .count = count,
                    .unit = unit,
                    .v = t->v,
                    .axis = a,
                    .rows = rows,
                    .pack = t->pack,
                    .steps = UINT32_MAX};
    for (int i = 0; i < count; i++)
        if (!fit_operand(&u, &access[i])) return false;
    if (is_read_both_ways(t->v, access, count)) return false; /* one layout cannot serve both accesses */
    if (u.pack != t->pack) t->pack_copy = true;
    t->pack = u.pack;
    t->steps = u.steps;
    t->steps_copy = u.steps != UINT32_MAX && !rules_is_laid_out_in_place(&r->region->tensors.data[u.steps]);
    t->unit = unit;
    t->unit_axis = a;
    return true;
}

/* Fits a dot-product unit to the stage, along the first axis that wastes less than half of its steps. */
static bool try_unit(rules *r, int s, rules_tile_shape *t, const tir_unit *unit, const rules_access *access, int count,
                     int64_t rows) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_expr left, right;
    if (!tir_machine_has(r->machine, unit) || unit->executor != TIR_BY_THREAD ||
        !tir_unit_match(unit, r->region->pool, stage, &left, &right))
        return false;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t extent = rules_known_extent(r, &stage->axis[a]);
        if (rules_round_up(extent, tir_unit_width(unit)) >= 2 * extent) continue;
        if (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) continue;
        if (fit_unit(r, s, t, unit, a, access, count, rows)) return true;
    }
    return false;
}

static void choose_unit(rules *r, int s, rules_tile_shape *t, const rules_access *access, int count, int64_t rows,
                        bool pinned) {
    const rules_tile_shape without = *t;
    for (const tir_unit *unit = r->machine->units; unit && unit->name; unit++)
        if (try_unit(r, s, t, unit, access, count, rows)) break;
    const tir_unit *fitting = t->unit;
    if (!fitting) return;
    const char *stage = r->region->stages.data[s].name;
    const bool slow = cpu_unit_multiplications(r->machine, fitting->op) > tir_unit_width(fitting);
    const bool by_unit = pinned && tir_is_pinned(r->schedule, stage, "unit", fitting->name),
               by_none = pinned && tir_is_pinned(r->schedule, stage, "unit", "none");
    if (by_none || (slow && !by_unit)) *t = without;
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

/* Average number of L1 lines that a vector load along an axis touches: two unless the vector begins at the start of a line. */
static double lines_of_vectors(const rules *r, const tir_stage *stage, const int64_t *stride, int axes, int v,
                               int64_t lanes) {
    int64_t bytes = r->machine->vector_bytes, line = r->machine->line, begin;
    if (bytes <= 0 || line * lanes < bytes) return 1;
    begin = line = line * lanes / bytes; /* elements */
    for (int a = 0; a < axes; a++) {
        int64_t step = stride[a] == RULES_IRREGULAR ? 1 : stride[a];
        if (a == v || rules_known_extent(r, &stage->axis[a]) == 1) continue;
        begin = tir_gcd(step, begin);
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
    int *stages, count = rules_members(r, owner, &stages);
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
    if (!rules_is_laid_out_in_place(&r->region->tensors.data[which->tensor])) return false;
    if (!lies_along(r, access, count, which, axis, 0)) return false;
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

/* ---- an axis of vectors */

/* An axis of a reduction that is tried as the axis of vectors: the tile, and the facts from which rules_size_tile chooses its size. */
typedef struct trial {
    rules *r;
    /* the reduction, and its loads */
    int s, v;
    const tir_stage *stage;
    const rules_access *access;
    int count;
    /* it is a contraction; the sizes that are pinned (tir/choice.h) hold */
    bool heavy, pinned;
    rules_tile_shape *t;
    rules_tile_problem p;
    /* an operand can be loaded in vectors along v; windows slide along v in one */
    bool vector_operand, window;
    /* how many times longer a step takes because of loads that are no vectors; lines of L1 that a vector load touches */
    double penalty, lines;
    /* points of the axes that are not the tile's */
    double rest;
    /* cycles to copy the broadcast operand, widened */
    double copying;
} trial;

static bool begin(trial *a) {
    const rules *r = a->r;
    const tir_axis *axis = &a->stage->axis[a->v];
    rules_tile_problem *p = &a->p;
    *p = (rules_tile_problem){.m = 1,
                              .instructions = 1,
                              .multiplications = 1,
                              .heavy = a->heavy,
                              .steps = reduction_steps(r, a->stage),
                              .unrolled_points = 1,
                              .unrolled_span = 1,
                              .window = 1,
                              .row_step = 1,
                              .window_step = 1,
                              .lines_per_load = 1};
    if (a->pinned) {
        p->columns = tir_pinned_number(r->schedule, a->stage->name, "columns");
        p->rows = tir_pinned_number(r->schedule, a->stage->name, "rows");
        p->only_inside = tir_is_pinned(r->schedule, a->stage->name, "steps_inside", "yes");
        p->only_outside = tir_is_pinned(r->schedule, a->stage->name, "steps_inside", "no");
        p->only_full = tir_is_pinned(r->schedule, a->stage->name, "tail", "mask");
        p->only_narrow = tir_is_pinned(r->schedule, a->stage->name, "tail", "peel");
    }
    *a->t = (rules_tile_shape){.v = a->v, .u = -1, .lanes = 1, .pack = UINT32_MAX, .steps = UINT32_MAX, .shared = -1};
    for (int i = 0; i < TILE_WITH; i++) a->t->with[i] = UINT32_MAX;
    if (rules_known_extent(r, axis) == 1) return false;
    p->n_varies = rules_extent(r, axis) < 0;
    p->n = p->n_varies ? rules_usual_extent(r, axis) : covered_extent(r, a->s, a->v);
    a->t->lanes = lanes_in_registers(a->r, a->s, a->t, p);
    return true;
}

/* Would panels of the operand, whose rows are shorter than a vector, be mostly padding that is streamed from beyond L2, and once or twice? Masked
 * loads read it as it is (28x216671 by 216671x7: 2.7 to 1.6 ms). */
static bool is_mostly_padding(const trial *a, const rules_access *access) {
    const rules *r = a->r;
    const int64_t columns = rules_extent(r, &a->stage->axis[a->v]);
    const double bytes = rules_tensor_bytes(r, &r->region->tensors.data[access->tensor]);
    double rows = 1;
    for (int u = 0; u < a->stage->space; u++)
        if (u != a->v && access->stride[u] == 0) rows *= (double)rules_known_extent(r, &a->stage->axis[u]);
    return rows <= 2 * r->machine->vector_registers && r->machine->masked && access->stride[a->v] == 1 &&
           2 * columns < a->t->lanes && bytes / (double)columns * (double)a->t->lanes > (double)r->machine->l2;
}

/* Notes in *a->t that the operand gets panels along v; false: it does not. */
static bool takes_panels(trial *a, const rules_access *access) {
    const rules *r = a->r;
    const tir_axis *axis = &a->stage->axis[a->v];
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    const bool known = rules_extent(r, axis) >= 0; /* panels are made along axes of known extent only */
    if (!a->heavy || (known && is_mostly_padding(a, access))) return false;
    if (known && a->t->pack == UINT32_MAX && (tensor->constant || access->stride[a->v] != 1) && !tensor->output &&
        lies_along(r, a->access, a->count, access, axis->var, 0)) {
        a->t->pack = access->tensor;
        a->t->pack_copy = !rules_is_laid_out_in_place(tensor);
        return true;
    }
    return lies_with(r, a->access, a->count, access, axis->var, a->t);
}

/* An operand that is contiguous along v as it is. */
static void take_vectors(trial *a, const rules_access *access) {
    const rules *r = a->r;
    const int axes = a->stage->space + a->stage->reduce;
    const double lines = lines_of_vectors(r, a->stage, access->stride, axes, a->v, a->t->lanes);
    if (lines > a->lines) a->lines = lines;
    for (int k = a->stage->space; k < axes && a->heavy; k++)
        a->window = a->window ||
                    (rules_known_extent(r, &a->stage->axis[k]) > 1 && rules_is_window(r, a->stage, access, a->v, k));
}

/* How vectors along v load an operand that depends on v; false: they cannot. */
static bool take_operand(trial *a, const rules_access *access) {
    enum { GATHER = 12 }; /* of a gather, over a load's time */
    const int64_t stride = access->stride[a->v], width = rules_panel_width(a->r, access, a->stage->axis[a->v].var);
    const bool close = stride > 1 && stride <= RULES_CLOSE, panels = !width && takes_panels(a, access);
    if (width) a->p.panel = width;
    a->vector_operand = a->vector_operand || width || panels || stride == 1 || close;
    if (width || panels) return true;
    if (stride == 1)
        take_vectors(a, access);
    else
        a->penalty *= close ? (double)stride + 1 : (double)GATHER; /* several vectors for each load, and a shuffle */
    a->p.gathers = a->p.gathers || stride != 1;
    return stride == 1 || close || !a->heavy;
}

/* Finds the axis of rows: one that repeats the vector operand, or one whose points are computed side by side. */
static void find_rows(trial *a) {
    rules *r = a->r;
    rules_tile_shape *t = a->t;
    rules_tile_problem *p = &a->p;
    t->u = a->heavy ? repeated_axis(r, a->stage, a->v, a->access, a->count) : -1;
    if (t->u < 0 && (a->heavy || p->panel || rules_has_window(r, a->s, a->access, a->count))) {
        t->u = rules_separate_axis(r, a->stage, a->v, a->heavy, a->access, a->count);
        p->separate = t->separate = t->u >= 0;
        t->light = t->separate && !a->heavy;
        if (p->separate) t->shared = rules_shared_axis(r, a->stage, t, a->access, a->count, p);
    }
    p->m_varies = t->u >= 0 && rules_extent(r, &a->stage->axis[t->u]) < 0;
    if (t->u >= 0) p->m = p->m_varies ? rules_usual_extent(r, &a->stage->axis[t->u]) : covered_extent(r, a->s, t->u);
    for (int i = 0; i < a->count && t->u >= 0; i++) {
        const int64_t stride = a->access[i].stride[t->u];
        const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[a->access[i].tensor].dtype);
        const int64_t bytes = stride == RULES_IRREGULAR ? 0 : (stride < 0 ? -stride : stride) * size;
        if (bytes > p->row_bytes) p->row_bytes = bytes;
    }
}

/* Counts the instructions of a step of the reduction other than its products (masks, conversions), and the steps: with a dot-product unit, one
 * instruction takes several. */
static void count_instructions(trial *a) {
    rules *r = a->r;
    rules_tile_shape *t = a->t;
    rules_tile_problem *p = &a->p;
    p->mask_cycles = rules_mask_cycles(r, a->stage, a->v, a->access, a->count);
    if (a->heavy && !p->separate) p->lines_per_load = a->lines;
    if (a->heavy && !p->separate && t->u >= 0) {
        p->prepared = prepared_instructions(r, a->stage, a->v, t->u);
        p->prepared_rows = prepared_instructions(r, a->stage, t->u, a->v);
    }
    if (!p->separate) choose_unit(r, a->s, t, a->access, a->count, p->m, a->pinned);
    if (!t->unit) return;
    p->instructions = cpu_unit_instructions(t->unit->op);
    p->multiplications = cpu_unit_multiplications(r->machine, t->unit->op);
    const rules_operand_tile tile = {.v = a->v, .u = t->u, .nr = t->lanes};
    p->prepared += t->pack != UINT32_MAX && !t->pack_copy && rules_widened_dtype(r, a->s, t->pack, t->unit);
    p->prepared_rows += !t->steps_copy && rules_converts_rows(r, a->s, &tile, t->unit, &a->copying) ? 2 : 0;
    const int64_t extent = rules_known_extent(r, &a->stage->axis[t->unit_axis]), width = tir_unit_width(t->unit);
    p->steps = p->steps / (double)extent * (double)(rules_round_up(extent, width) / width);
}

/* The values that are live at once in the tile, of the reduction and of stages attached to it. */
static void count_values(trial *a) {
    const rules *r = a->r;
    rules_tile_problem *p = &a->p;
    const int owner = r->group[a->s].owner;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed || q == owner || r->group[q].owner != owner) continue;
        p->attached++;
        p->sums += q != a->s && rules_is_contraction(r, q) && rules_pointwise(r, q);
    }
    if (p->attached < 1) p->attached = 1;
    p->sums++;
    const int64_t live = live_tiles(a->r, a->s, a->t, p);
    if (live > p->sums) p->sums = live;
}

/* The steps of a window that are unrolled, and whether their loops may be inside of the loop over rows. Long axes of a sum whose rows are taps (a
 * gradient of weights) count as if they were, so that such sums go by lanes, unless tiles were measured to be faster (Zen 3: 3 to 64
 * channels, 7x7 at stride 2, 224x224, eight images 117 -> 49 ms). */
static void find_unrolled_steps(trial *a) {
    enum { WIDEST = 32 /* of a window */ };
    const tir_stage *stage = a->stage;
    const rules_tile_shape *t = a->t;
    rules_tile_problem *p = &a->p;
    p->inner_steps = a->heavy && !p->separate && !t->unit;
    for (int k = stage->space; k < stage->space + stage->reduce && t->u >= 0; k++) {
        if (!rules_meets(a->r, stage, k, stage->axis[t->u].var)) continue;
        const bool rolled = !rules_unrolls_step(a->r, stage, k, t);
        p->inner_steps = p->inner_steps && !rolled;
        if (rolled && (rules_known_extent(a->r, &stage->axis[k]) <= WIDEST || a->r->machine->rates.line_miss > 0))
            continue;
        p->unrolled_points *= rules_known_extent(a->r, &stage->axis[k]);
        p->unrolled_span *= rules_window_span(a->r, stage, k, a->access, a->count, t);
    }
    p->inner_steps = p->inner_steps && p->unrolled_points > 1;
}

/* Where results go: their size, and how they are stored. */
static void find_results(trial *a) {
    rules *r = a->r;
    const rules_tile_shape *t = a->t;
    rules_tile_problem *p = &a->p;
    a->rest = 1;
    for (int k = 0; k < a->stage->space; k++)
        if (k != a->v && k != t->u) a->rest *= (double)covered_extent(r, a->s, k);
    const double bytes = (double)p->n * (double)p->m * a->rest * (double)r->machine->vector_bytes / (double)t->lanes;
    p->exceeds_l2 = bytes > (double)r->machine->l2;
    p->exceeds_l3 = 2 * bytes > (double)r->machine->l3;
    p->strided = !stores_along(r, a->s, a->v);
    p->transposed = p->strided && t->u >= 0 && stores_along(r, a->s, t->u);
    if (p->transposed) p->crossings = rules_crossings(r, a->s, t);
    if (p->strided) p->lane_bytes = stored_bytes_apart(r, a->s, a->v);
    if (!p->strided && t->u >= 0) p->result_bytes = stored_bytes_apart(r, a->s, t->u);
}

/* Does the reduction's predicate depend on the column? */
static bool has_edges(const trial *a) {
    return a->stage->predicate && tir_uses(a->r->region->pool, a->stage->predicate, a->stage->axis[a->v].var);
}

/* Can vectors have lanes beyond the last column, which are not stored, and are masks expensive? Panels are padded; other operands of four bytes and
 * more an element are loaded with masks, where there are any (AVX2), or lane by lane. */
static bool fills_vectors(const trial *a) {
    enum { LEAST = 4 /* bytes of an element */ };
    const tir_tensor *tensors = a->r->region->tensors.data;
    if (a->r->machine->masked || !a->heavy || a->p.separate || a->p.strided || a->p.edge_predicate) return false;
    if (lib_dtype_size(tensors[a->stage->tensor[0]].dtype) < LEAST) return false;
    for (int i = 0; i < a->count; i++) {
        const uint32_t tensor = a->access[i].tensor;
        if (a->access[i].stride[a->v] == 0 || tensor == a->t->pack || a->p.panel) continue;
        if (lib_dtype_size(tensors[tensor].dtype) < LEAST) return false;
    }
    return true;
}

/* Chooses the size. If rows share loads, also without that: with few registers, more rows may be faster. */
static void choose_size(trial *a) {
    rules_tile_problem *p = &a->p, again;
    rules_tile_shape *t = a->t, other;
    p->edge_predicate = a->heavy && !p->separate && has_edges(a);
    p->fills_vectors = fills_vectors(a);
    p->row_pairs = a->r->machine->row_pairs && a->heavy && t->u >= 0 && !p->separate && !t->unit && !p->edge_predicate;
    rules_size_tile(a->r, t, p);
    if (t->shared < 0) return;
    again = *p;
    other = *t;
    again.window = again.row_step = again.window_step = 1;
    other.shared = -1;
    rules_size_tile(a->r, &other, &again);
    if (other.cycles < t->cycles) *t = other;
}

/* Points of the axes on which the broadcast operand does not depend, other than the tile's: at each it is read again. */
static double rereads(const trial *a) {
    double times = 1;
    for (int k = 0; k < a->stage->space; k++) {
        bool depends = k == a->v || k == a->t->u;
        for (int i = 0; i < a->count && !depends; i++)
            depends = !rules_depends(&a->access[i], a->v) && rules_depends(&a->access[i], k);
        if (!depends) times *= (double)rules_known_extent(a->r, &a->stage->axis[k]);
    }
    return times;
}

/* Cycles to read a broadcast operand that exceeds L1 again, from L2 or L3. Its rows are as many streams, whose misses arithmetic does not
 * hide. With vectors along a batch of images it is the weights of all channels, once for each point of the images (measured: 3x3
 * convolutions of eight images took 1.5 to 2.4 times as long as with vectors along channels). */
static double rereading_cycles(const trial *a) {
    const tir_machine *machine = a->r->machine;
    if (!a->heavy || a->p.separate || a->t->u < 0) return 0;
    const double bytes = rules_slice_bytes(a->r, a->s, a->t, false, a->t->u);
    if (bytes <= (double)machine->l1) return 0;
    const int level = bytes <= machine->rates.kept * (double)machine->l2 ? 1 : 2;
    return (rereads(a) - 1) * bytes / machine->rates.bandwidth[level];
}

/* Cycles that the tiles wait for a broadcast operand each step of which is in another line, if L1 does not hold these lines until the next tile
 * (Zen 3, 1x1 convolutions to 2048 channels of 7x7 images: 13 cycles a step, 7.6 with vectors along the images). */
static double scattered_cycles(const trial *a) {
    const tir_machine *machine = a->r->machine;
    const tir_stage *stage = a->stage;
    const rules_tile_shape *t = a->t;
    const double line = (double)machine->line;
    int step = -1;
    for (int k = stage->space; k < stage->space + stage->reduce; k++) {
        if (rules_extent(a->r, &stage->axis[k]) == 1) continue;
        if (step >= 0) return 0; /* a window's steps share lines */
        step = k;
    }
    if (!a->heavy || a->p.separate || t->u < 0 || step < 0 || a->p.steps * line <= (double)machine->l1 / 2) return 0;
    for (int i = 0; i < a->count; i++) {
        const int64_t stride = a->access[i].stride[step];
        const double bytes = (double)lib_dtype_size(a->r->region->tensors.data[a->access[i].tensor].dtype);
        if (a->access[i].stride[a->v] != 0 || a->access[i].stride[t->u] == 0 || stride == RULES_IRREGULAR) continue;
        if (fabs((double)stride) * bytes < line) continue;
        const double tiles = (double)((a->p.m + t->mr - 1) / t->mr) * (double)((a->p.n + t->nr - 1) / t->nr);
        return tiles * a->p.steps * a->rest * machine->rates.line_miss;
    }
    return 0;
}

/* Cycles of all tiles, operands that are read again and stores included. */
static void count_cycles(trial *a) {
    const double MASKED = 1.8, WINDOW = 1.2; /* of masked lanes, and of those whose masks depend on a window's step */
    const rules_tile_problem *p = &a->p;
    rules_tile_shape *t = a->t;
    const double store = !p->strided ? 1 : p->transposed ? 0 : rules_scatter_cycles(a->r, p, t->lanes);
    const double vectors = (double)p->m * (double)((p->n + t->lanes - 1) / t->lanes);
    if (p->edge_predicate && a->window && a->r->machine->masked)
        a->penalty *= edges_cost(p->n);
    else if (has_edges(a))
        a->penalty *= (a->window ? WINDOW : 1) * MASKED;
    t->cycles = (t->cycles * p->steps * a->penalty + vectors * store) * a->rest + rereading_cycles(a) +
                scattered_cycles(a) + a->copying;
}

/* The best tile with vectors along v; false: there is none. */
static bool try_axis(rules *r, int s, int v, const rules_access *access, int count, bool pinned, rules_tile_shape *t) {
    enum { USES = 4 }; /* fewest points that use an element of an operand that is copied into panels */
    trial a = {.r = r,
               .s = s,
               .v = v,
               .stage = &r->region->stages.data[s],
               .access = access,
               .count = count,
               .heavy = rules_is_contraction(r, s),
               .pinned = pinned,
               .t = t,
               .penalty = 1,
               .lines = 1};
    if (!begin(&a)) return false;
    for (int i = 0; i < count; i++)
        if (access[i].stride[v] != 0 && !take_operand(&a, &access[i])) return false;
    if (!a.vector_operand && a.heavy) return false;
    find_rows(&a);
    count_instructions(&a);
    count_values(&a);
    find_unrolled_steps(&a);
    find_results(&a);
    choose_size(&a);
    count_cycles(&a);
    if (!t->pack_copy) return true;
    t->cycles += packing_cycles(r, &r->region->tensors.data[t->pack], t->lanes);
    return (double)a.p.m * a.rest >= (double)USES;
}

/* ---- the best axis */

/* A reduction without products over a long row needs unit strides: otherwise lanes along the row are better. */
static bool suits_lanes(const rules *r, int s, int v, const rules_access *access, int count) {
    const tir_stage *stage = &r->region->stages.data[s];
    for (int i = 0; i < count; i++)
        for (int a = stage->space; a < stage->space + stage->reduce; a++)
            if (access[i].stride[v] != 0 && access[i].stride[v] != 1 && rules_in_line(&access[i], a) &&
                !rules_is_window(r, stage, &access[i], v, a) &&
                !rules_is_short_row(r, s, rules_known_extent(r, &stage->axis[a])))
                return true;
    return false;
}

/* The axis that the stage was prepared for; -1: none. */
static int prepared_axis(const rules *r, int s) {
    int axis = -1;
    for (uint32_t i = 0; i < r->prepared.count; i++)
        if (rules_stage_named(r, r->prepared.data[i].stage) == s) axis = r->prepared.data[i].axis;
    return axis;
}

/* The best tile; with `pinned`, of those that are pinned (tir/choice.h). */
static bool choose_tile(rules *r, int s, bool pinned, rules_tile_shape *best) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    const int prepared = prepared_axis(r, s);
    bool found = false, wanted = false;
    uint32_t vectors = 0;
    if (count == RULES_ACCESSES) return false;
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
    if (!found) return false;
    best->vectors = vectors;
    return rules_is_contraction(r, s) || !suits_lanes(r, s, best->v, access, count);
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
    if (t->fitting && !t->unit)
        tir_doubt(r->schedule, stage->name, "unit", unit[1]); /* it is slow, but converts nothing */
    if (t->fitting) tir_record_word(r->schedule, stage->name, "unit", 2, unit, t->unit != NULL);
    const int64_t n = rules_extent(r, &stage->axis[t->v]);
    if (t->may_be_full) tir_record_word(r->schedule, stage->name, "tail", 2, tails, !t->full);
    if (n <= t->nr || n % t->nr == 0) return;
    /* rules_tile_size.c takes the narrower tile without a price where masks depend on a window's step, or lanes are stored one by one */
    if (t->peel) tir_doubt(r->schedule, stage->name, "tail", tails[0]);
    t->peel = tir_choose_word(r->schedule, stage->name, "tail", 2, tails, t->peel);
}

bool rules_choose_tile(rules *r, int s, rules_tile_shape *t) {
    if (!choose_tile(r, s, true, t)) return false;
    record_tile(r, s, t);
    return true;
}

/* Does each step of the sum read a row of both operands from memory, so that blocks of rows are read (rules_operand.c)? The cost model
 * underestimates tiles that read pieces of rows which are pages apart (Zen 5, 6,230 rows of 1,761 by 29: it expects 2.9 ms, as for blocks; such
 * tiles take 6.3 to 9). */
static bool reads_both_from_memory(rules *r, int s, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_operand_tile tile = {.v = t->v, .u = t->u, .nr = t->nr};
    if (t->u < 0) return false;
    tile.n = rules_extent(r, &stage->axis[t->v]);
    tile.m = rules_extent(r, &stage->axis[t->u]);
    return tile.n > t->nr && tile.m > 0 && rules_reads_both_from_memory(r, s, &tile);
}

/* Is the predicted time of the tile unreliable? The model of tiles does not include cache misses of rows that are scattered in memory, the
 * price of vectors that are gathered or stored lane by lane, nor that of results in parts of vectors. */
static bool is_unsure(rules *r, int s, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (rules_is_contraction(r, s))
        return !stage->predicate && t->u >= 0 &&
               (rules_known_extent(r, &stage->axis[t->v]) < t->lanes || rules_rows_are_scattered(r, s, t->v, t->u) ||
                !rules_stores_vectors(r, s, t->v));
    for (int i = 0; i < count; i++)
        if (access[i].stride[t->v] > RULES_CLOSE || access[i].stride[t->v] < -RULES_CLOSE) return true;
    return false;
}

/* If the rules are unsure, they doubt the axis of the tile's vectors. */
void rules_pin_tile(rules *r, int s, rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_tile_shape pinned;
    for (int a = 0; a < stage->space; a++)
        if (a != t->v && t->vectors >> a & 1 && is_unsure(r, s, t) && !reads_both_from_memory(r, s, t))
            tir_doubt(r->schedule, stage->name, "vector", stage->axis[a].name);
    if (tir_has_pins(r->schedule) && choose_tile(r, s, true, &pinned)) *t = pinned;
    record_tile(r, s, t);
}

bool rules_find_tile(rules *r, int s, rules_tile_shape *t) {
    return choose_tile(r, s, false, t);
}

bool rules_tileable(rules *r, int stage) {
    rules_tile_shape t;
    if (rules_is_interleaved(r, stage)) return false;
    return r->region->stages.data[stage].kind == TIR_REDUCE && choose_tile(r, stage, false, &t);
}
