/* Schedule rules of the cpu target: region -> schedule text, by analysis of accesses alone; no rule depends on operators. In order:
 *   inline   cheap maps are inlined into their readers
 *   expand   an axis i becomes two, group and member, if an operand of a contraction is indexed by i/n
 *   collapse neighbouring axes across which all accesses are contiguous become one
 *   group    a stage whose readers all run in the loops of one root joins them, if it can share loops there
 *   chain    two contractions with row operations between them: each block of rows passes through all stages (attention)
 *   sweep    contractions whose products are read by others along either axis, in blocks of one axis (derivatives of attention)
 *   scan     cumulative folds, and scatters
 *   reduce   large reductions in two steps: chunks of long rows, blocks of rows for many columns; sums of columns beside a root's rows
 *   tile     operands of register tiles are laid out, copied or cut; sums by lanes
 *   rows     partial results of rows, by lanes
 *   points   operands of maps by positions in a small tile are copied, transposed
 *   roots    each root is scheduled by one of the families in rules_roots.c */
#include "targets/cpu/rules.h"
#include "targets/cpu/cpu.h"
#include "tir/inline_cost.h"

static void make_groups(rules *r);

void rules_rewrite(rules *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tir_rewrite_line(r->schedule, r->region, format, arguments);
    va_end(arguments);
    if (r->group) make_groups(r); /* not before inlining is done, which does not use groups */
}

void rules_lay_out_last(rules *r, const char *name, int axis) {
    const tir_stage *stage = &r->region->stages.data[rules_stage_named(r, name)];
    rules_rewrite(r, "layout %s (%s%s)", name, tir_dimensions_but(r->arena, stage, tir_axis_bit(axis)),
                  stage->axis[axis].name);
}

int rules_axis_of(const tir_stage *stage, tir_axis_role role) {
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].role == role) return a;
    return -1;
}

/* ---- inline */

static bool reads_contraction(rules *r, int s) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) {
        int producer = r->region->tensors.data[access[i].tensor].stage;
        if (producer >= 0 && rules_is_contraction(r, producer)) return true;
    }
    return false;
}

/* Has stage `more` several points for each point of the other stage? */
static bool has_more_points(const rules *r, int more, const tir_stage *stage) {
    const tir_stage *reader = &r->region->stages.data[more];
    int axes = 0;
    for (int a = 0; a < stage->space; a++) axes -= rules_extent(r, &stage->axis[a]) != 1;
    for (int a = 0; a < reader->space; a++) axes += rules_extent(r, &reader->axis[a]) != 1;
    return axes > 0;
}

/* Do 16 rows of the stage's result (a row: its last axis) fit in L1? Then rows are computed together. */
static bool is_short_row(const rules *r, const tir_stage *stage) {
    enum { ROWS = 16 };
    int64_t extent = stage->space ? rules_extent(r, &stage->axis[stage->space - 1]) : -1;
    int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    return extent >= 0 && extent * size <= r->machine->l1 / ROWS;
}

/* Is stage s computed from the reductions of a row and read either along that row or, if the row is short, by another reduction? Then it is
 * computed once per row, in vectors of the values of several rows. False if the region has a contraction. */
static bool is_row_statistic(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    bool reduced = false, along = false;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed) continue;
        if (rules_is_contraction(r, q)) return false; /* row and column of a tile */
        int count = rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++) {
            int producer = r->region->tensors.data[access[i].tensor].stage;
            if (q == s && producer >= 0) reduced = reduced || r->region->stages.data[producer].kind == TIR_REDUCE;
            if (producer != s) continue;
            along = along || has_more_points(r, q, stage);
            along = along || (r->region->stages.data[q].kind == TIR_REDUCE && is_short_row(r, stage));
        }
    }
    return reduced && along;
}

/* Is the first stage that reads the tensor a reduction, or a scatter's updates, of which each loop's axis alone is a subscript of the load?
 * Then each element is loaded once. */
static bool is_read_once(rules *r, uint32_t tensor) {
    rules_access access[RULES_ACCESSES];
    tir_pool *pool = r->region->pool;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        int count = stage->removed ? 0 : rules_accesses(r, q, access, RULES_ACCESSES), at = 0;
        while (at < count && access[at].tensor != tensor) at++;
        if (at == count) continue;
        if (stage->kind != TIR_REDUCE && stage->kind != TIR_SCATTER) return false;
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            const bool selected =
                a < stage->space && !tir_is_parallel(stage, a); /* by the data: no loop of the updates */
            bool stands = selected || rules_extent(r, &stage->axis[a]) == 1;
            for (int d = 0; d < r->region->tensors.data[tensor].rank; d++)
                stands = stands || tir_operand(pool, access[at].load, d) == stage->axis[a].var;
            if (!stands) return false;
        }
        return true;
    }
    return false;
}

/* Does a loaded value index the tensor's last axis in any stage? The tensor is then computed in memory order. */
static bool is_chosen_from(rules *r, uint32_t tensor) {
    const int last = r->region->tensors.data[tensor].rank - 1;
    tir_pool *pool = r->region->pool;
    rules_access access[RULES_ACCESSES];
    for (int q = 0; q < (int)r->region->stages.count && last >= 0; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        int count = stage->removed ? 0 : rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++)
            if (access[i].tensor == tensor && tir_has_load(pool, tir_operand(pool, access[i].load, last), 0))
                return true;
    }
    return false;
}

/* Does stage s, inlined into a reduction of interleaved rows that reads it, load an operand in another order, as one value for all of the
 * rows? The reduction would then not be computed by lanes along points and rows. */
static bool breaks_interleaving(rules *r, int s) {
    const uint32_t tensor = r->region->stages.data[s].tensor[0];
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        if (stage->removed || stage->kind != TIR_REDUCE || !tir_loads_of(r->region, q, tensor)) continue;
        if (!rules_may_interleave(r, q)) continue;
        rules after = *r;
        after.region = tir_try_line(NULL, r->region, "inline %s", r->region->stages.data[s].name);
        if (after.region && !rules_may_interleave(&after, q)) return true;
    }
    return false;
}

/* Is the stage better computed in loops of its own than where its readers load it? */
static bool is_better_apart(rules *r, int s, const tir_inline_cost *cost) {
    /* once, in the contraction's tiles */
    if (cost->reduced && (cost->loads > 1 || cost->more) && reads_contraction(r, s)) return true;
    if (cost->heavy && is_row_statistic(r, s)) return true;
    if (cost->reduced && breaks_interleaving(r, s)) return true;
    return cost->operations && is_chosen_from(r, r->region->stages.data[s].tensor[0]);
}

/* Is it to be inlined: is it loaded in one place (a reduction must load each element once), or is it a few cheap operations? */
static bool worth_inlining(rules *r, int s) {
    enum { CHEAP = 4 };
    const uint32_t tensor = r->region->stages.data[s].tensor[0];
    const tir_inline_cost cost = tir_inline_cost_of(r->region, s, true);
    const bool once = cost.loads == 1 && (!cost.reduced || is_read_once(r, tensor));
    if (cost.most > 2 || (cost.stateful && !once) || rules_loses_positions(r, s)) return false;
    if (is_better_apart(r, s, &cost)) return false;
    return once || (!cost.heavy && cost.operations <= CHEAP);
}

/* Does stage s read along another axis than the last, one of them as long as half a vector at least? */
static bool is_transposition(rules *r, int s) {
    enum { CLOSE = 8 /* elements: such strides are loaded by vectors and shuffles */ };
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t least = rules_lanes(r, s) / 2;
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES), last = stage->space - 1;
    if (count != 1 || last < 1 || rules_known_extent(r, &stage->axis[last]) < least) return false;
    if (access[0].stride[last] >= -CLOSE && access[0].stride[last] <= CLOSE) return false;
    for (int a = 0; a < last; a++)
        if (access[0].stride[a] == 1 && rules_known_extent(r, &stage->axis[a]) >= least) return true;
    return false;
}

/* Is the tensor read by a map of several operands? Transposed in registers is then none of them: the other form is a copy of its own. */
static bool is_one_of_several(rules *r, uint32_t tensor) {
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        rules_access access[RULES_ACCESSES];
        if (stage->removed || stage->kind != TIR_MAP || !tir_loads_of(r->region, q, tensor)) continue;
        if (rules_accesses(r, q, access, RULES_ACCESSES) > 1) return true;
    }
    return false;
}

/* Inlines maps, or not, as the rules or a pin say. */
static bool inline_map(rules *r, int s, bool by_rule) {
    const char *name = r->region->stages.data[s].name;
    if (is_transposition(r, s) && is_one_of_several(r, r->region->stages.data[s].tensor[0]))
        tir_doubt(r->schedule, name, "inline", "no");
    if (!tir_choose_yes(r->schedule, name, "inline", by_rule)) return false;
    rules_rewrite(r, "inline %s", name);
    return true;
}

typedef lib_vec(const char *) stage_names;

/* Inlines the maps that are worth it, and appends their names to `inlined`; again after one was inlined: of two maps that load a value at the
 * same place, one is in the other now, and the value is loaded once. */
static void inline_by_rule(rules *r, stage_names *inlined) {
    for (bool again = true; again;) {
        again = false;
        for (uint32_t s = 0; s < r->region->stages.count; s++) {
            const char *name = r->region->stages.data[s].name;
            if (!tir_may_inline(r->region, (int)s) || !inline_map(r, (int)s, worth_inlining(r, (int)s))) continue;
            lib_vec_push(r->arena, inlined, name);
            again = true;
        }
    }
}

/* The names of the maps that the rules inline if nothing is pinned, in their order. */
static stage_names inlined_by_rule(const rules *r) {
    rules trial = *r;
    tir_schedule schedule;
    stage_names inlined = {0};
    tir_schedule_init(&schedule, r->arena);
    trial.schedule = &schedule;
    trial.region = tir_region_copy(r->arena, r->region);
    inline_by_rule(&trial, &inlined);
    return inlined;
}

/* With pins, the order is that without them, so that the rules' own answers, pinned, give their schedule. */
static void inline_maps(rules *r) {
    stage_names inlined = {0};
    if (!tir_has_pins(r->schedule)) {
        inline_by_rule(r, &inlined);
        return;
    }
    inlined = inlined_by_rule(r);
    for (uint32_t i = 0; i < inlined.count; i++) {
        const int s = rules_stage_named(r, inlined.data[i]);
        if (s >= 0 && tir_may_inline(r->region, s)) inline_map(r, s, true);
    }
    for (uint32_t s = 0; s < r->region->stages.count; s++) /* the others, and those that a pin keeps */
        if (tir_may_inline(r->region, (int)s)) inline_map(r, (int)s, false);
}

/* ---- expand */

typedef struct group_search {
    const tir_stage *stage;
    /* -1: none found */
    int axis;
    int64_t size;
} group_search;

static tir_expr find_quotient(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    group_search *search = user;
    const tir_node *node = tir_get(pool, e);
    int64_t extent, size;
    if (node->op != TIR_DIV || !tir_is_const(pool, tir_operand(pool, e, 1), &size)) return rebuilt;
    for (int a = 0; a < search->stage->space && search->axis < 0; a++) {
        if (tir_operand(pool, e, 0) != search->stage->axis[a].var) continue;
        if (!tir_is_const(pool, search->stage->axis[a].extent, &extent) || extent % size || extent <= size) continue;
        search->axis = a;
        search->size = size;
    }
    return rebuilt;
}

static bool may_expand(const rules *r, const tir_stage *stage) {
    if (stage->fold >= 0 || stage->space == DLC_MAX_RANK || stage->space + stage->reduce == TIR_MAX_AXES) return false;
    for (int k = 0; k < stage->count; k++)
        if (!tir_layout_is_identity(&r->region->tensors.data[stage->tensor[k]].layout)) return false;
    return true;
}

/* If an operand of a contraction is indexed by i/n (a convolution of channels in groups), splits axis i into i/n and i%n: only along the
 * second axis is that operand reused. */
static void expand_groups(rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (stage->removed || !rules_is_contraction(r, (int)s) || !may_expand(r, stage)) continue;
        group_search search = {.stage = stage, .axis = -1};
        tir_rewrite(r->region->pool, stage->value[0], find_quotient, &search);
        if (search.axis < 0) continue;
        rules_rewrite(r, "expand %s.%s %lld -> group member", stage->name, stage->axis[search.axis].name,
                      (long long)search.size);
    }
}

/* ---- collapse */

static int count_axes(const tir_region *region) {
    int count = 0;
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed) count += region->stages.data[s].space + region->stages.data[s].reduce;
    return count;
}

/* Are all tensors stored in row-major order? */
static bool is_row_major(const rules *r) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++)
        if (!tir_layout_is_identity(&r->region->tensors.data[t].layout)) return false;
    return true;
}

/* Is the operand indexed by several space axes longer than 1, or by several such reduction axes? */
static bool is_indexed_by_several(const rules *r, const tir_stage *stage, const rules_access *operand) {
    int spaces = 0, steps = 0;
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (operand->stride[a] != 0 && rules_extent(r, &stage->axis[a]) != 1) ++*(a < stage->space ? &spaces : &steps);
    return spaces > 1 || steps > 1;
}

/* Is stage s like a 1x1 convolution over channel-first images given at run time, that is, a matrix product for each image? False if types
 * or layouts call for dot-product units or blocks of channels, which need vectors along channels. */
static bool has_point_window(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), points = 0;
    bool along = false;
    if (!stage->space || !is_row_major(r)) return false;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) points += rules_extent(r, &stage->axis[a]) == 1;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor->dtype != r->region->tensors.data[stage->tensor[0]].dtype) return false;
        along = along || (!tensor->constant && access[i].stride[stage->space - 1] == 1);
        /* such a constant rules collapsing out: its layout needs its dimensions separate */
        if (tensor->constant && is_indexed_by_several(r, stage, &access[i])) return false;
    }
    return along && points && points == stage->reduce - 1 && !stage->predicate;
}

/* Is stage s a sum of products over points of neighbouring axes that are one sequence in memory for each operand (tokens of all sequences: the
 * derivative by weights)? All operands are given at run time and stored in row-major order. */
static bool sums_over_sequence(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (stage->reduce < 2 || stage->predicate || !is_row_major(r)) return false;
    for (int i = 0; i < count; i++) {
        if (r->region->tensors.data[access[i].tensor].constant) return false;
        for (int a = stage->space; a + 1 < stage->space + stage->reduce; a++) {
            const int64_t inner = rules_extent(r, &stage->axis[a + 1]), step = access[i].stride[a + 1];
            if (inner < 0 || step <= 0 || access[i].stride[a] != step * inner) return false;
        }
    }
    return count > 0;
}

/* Merges neighbouring axes wherever accesses allow it: fewer, longer loops. Does nothing if the region has a contraction, whose axes its
 * tiles and layouts refer to, except one with a point window or over a sequence. */
static void collapse_axes(rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++)
        if (!r->region->stages.data[s].removed && rules_is_contraction(r, (int)s) && !has_point_window(r, (int)s) &&
            !sums_over_sequence(r, (int)s))
            return;
    const int before = count_axes(r->region);
    const size_t length = r->schedule->text.length;
    rules_rewrite(r, "collapse");
    if (count_axes(r->region) == before) tir_schedule_cut(r->schedule, length);
}

bool rules_ends_by_data(const rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (!stage->removed && stage->kind == TIR_REDUCE && tir_has_load(r->region->pool, stage->predicate, 0))
            return true;
    }
    return false;
}

/* Gives a predicate (`where`) to reductions whose end is loaded from memory (the length of a padded sequence or of a cache): points after
 * the end are skipped. Ends that depend on positions alone are left to the rules for chains. */
static void find_ends(rules *r) {
    bool numbers = false; /* has the region an integer input, which could end a loop? */
    for (uint32_t t = 0; t < r->region->tensors.count; t++) {
        const tir_tensor *tensor = &r->region->tensors.data[t];
        numbers = numbers || (tensor->stage < 0 && lib_dtype_is_integer(tensor->dtype));
    }
    if (!numbers) return;
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (stage->removed || stage->kind != TIR_REDUCE || stage->predicate) continue;
        if (tir_has_load(r->region->pool, tir_where_condition(r->region, (int)s), 0))
            rules_rewrite(r, "where %s", stage->name);
    }
}

/* ---- groups */

/* Sets label[d], for each axis d of `producer`, to the label of the consumer's axis that alone subscripts dimension d in all loads; -1:
 * none. Returns whether the consumer reads the producer. */
static bool label_through(rules *r, int producer, int consumer, int *label) {
    const tir_stage *reader = &r->region->stages.data[consumer];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, consumer, access, RULES_ACCESSES);
    bool reads = false;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor->stage != producer) continue;
        for (int d = 0; d < tensor->rank; d++) {
            int here = -1;
            for (int a = 0; a < reader->space; a++)
                if (reader->axis[a].var == tir_operand(r->region->pool, access[i].load, d))
                    here = r->group[consumer].label[a];
            label[d] = !reads || label[d] == here ? here : -1;
        }
        reads = true;
    }
    return reads;
}

/* Translates labels relative to the map that owns `contraction` into labels relative to the root. */
static void relabel(const rules *r, int contraction, int *label, int count) {
    const rules_group *owner = &r->group[r->group[contraction].owner];
    for (int d = 0; d < count; d++)
        if (label[d] >= 0) label[d] = owner->label[label[d]];
}

/* Is the stage's work small enough for a single task? Then one loop around the root may hold all of it. */
static bool is_small(const rules *r, const tir_stage *stage) {
    enum { POINTS = 32768 };
    const int64_t points = tir_points(r->region, stage, 0, stage->space + stage->reduce);
    return points >= 0 && points <= POINTS;
}

static bool has_label(const int *label, int count, int axis) {
    for (int b = 0; b < count; b++)
        if (label[b] == axis) return true;
    return false;
}

/* May stage s run inside the root's loops: do the two share an axis of several points, or has neither an axis that the other lacks? Or, if
 * one task is enough for both: is s a single point, or partial results by lanes? */
static bool may_join(rules *r, int s, int root, const int *label) {
    const tir_stage *stage = &r->region->stages.data[s], *top = &r->region->stages.data[root];
    int shared = 0, missing = 0;
    for (int a = 0; a < top->space; a++) {
        if (rules_extent(r, &top->axis[a]) == 1) continue;
        const bool has = has_label(label, stage->space, a);
        shared += has;
        missing += !has;
    }
    bool own = false, lanes = false; /* s has an axis of several points without a label; such an axis of lanes */
    for (int b = 0; b < stage->space; b++) {
        if (label[b] >= 0 || rules_extent(r, &stage->axis[b]) == 1) continue;
        own = true;
        lanes = lanes || stage->axis[b].role == TIR_AXIS_LANE;
    }
    bool one_task = rules_role_of(r, root) == RULES_CHUNK || (is_small(r, stage) && is_small(r, top));
    if (!shared && top->space && one_task && (!own || lanes)) return true;
    return shared > 0 || (!missing && !own);
}

/* Attaches contraction s to the only stage that reads it, if that is a map that reads it point by point: s runs in the map's register
 * tiles, or in those of the map's root if the map itself runs there point by point (an output that another map reads). Otherwise s is a
 * root. */
static void own_contraction(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_group *group = &r->group[s];
    int reader = -1, label[TIR_MAX_AXES];
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        rules_group kept = r->group[q];
        if (r->region->stages.data[q].removed) continue;
        for (int a = 0; a < r->region->stages.data[q].space; a++)
            r->group[q].label[a] = a; /* relative to the reader itself */
        int here[TIR_MAX_AXES];
        bool reads = label_through(r, s, q, here);
        r->group[q] = kept;
        if (reads && reader >= 0) return;
        if (reads) memcpy(label, here, sizeof label);
        if (reads) reader = q;
    }
    if (reader < 0 || r->region->stages.data[reader].kind != TIR_MAP) return;
    memcpy(group->label, label, sizeof label);
    group->owner = reader;
    group->root = r->group[reader].root;
    if (!rules_pointwise(r, s)) {
        group->owner = group->root = s;
        for (int a = 0; a < stage->space; a++) group->label[a] = a;
        return;
    }
    if (r->group[reader].owner != group->root || !rules_pointwise(r, reader)) return;
    group->owner = group->root;
    for (int a = 0; a < stage->space; a++)
        if (label[a] >= 0) group->label[a] = r->group[reader].label[label[a]];
}

/* The interval that a load reads along one dimension, as a function of the root's axes: it begins at low + sum of coefficient*axis and has
 * `span` elements. */
typedef struct reach {
    tir_expr low, span;
    int count, axis[TIR_MAX_AXES];
    int64_t coefficient[TIR_MAX_AXES];
} reach;

/* The root's axis with which axis `a` of stage q shares a loop; -1: none. */
static int root_label(const rules *r, int q, int a) {
    const rules_group *group = &r->group[q];
    int label = group->label[a];
    return label >= 0 && group->owner != group->root ? r->group[group->owner].label[label] : label;
}

/* Adds an axis that varies inside a point of the root, times c, to the interval. */
static void add_inner_axis(tir_pool *pool, reach *found, const tir_axis *axis, int64_t c) {
    tir_expr last = tir_sub(pool, axis->extent, tir_index(pool, 1));
    if (c < 0) found->low = tir_add(pool, found->low, tir_mul(pool, last, tir_index(pool, c)));
    found->span = tir_add(pool, found->span, tir_mul(pool, last, tir_index(pool, c < 0 ? -c : c)));
}

/* Adds the root's axis, times c, to those that the interval moves with: in ascending order of coefficients. */
static void add_root_axis(reach *found, int axis, int64_t c) {
    int at = found->count;
    for (; at > 0 && found->coefficient[at - 1] > c; at--) {
        found->coefficient[at] = found->coefficient[at - 1];
        found->axis[at] = found->axis[at - 1];
    }
    found->coefficient[at] = c;
    found->axis[at] = axis;
    found->count++;
}

/* Sets *found for an index of a load in stage q. Axes that vary inside a point of the root (reduction axes, axes read completely, root axes
 * not in the bit mask `shared`) add to the span. False: the index is no sum of terms coefficient*axis. */
static bool find_reach(const rules *r, int q, tir_expr index, uint32_t shared, reach *found) {
    tir_pool *pool = r->region->pool;
    const tir_stage *stage = &r->region->stages.data[q];
    tir_term term[TIR_MAX_AXES];
    int64_t constant;
    int count = tir_terms(pool, index, term, TIR_MAX_AXES, &constant);
    *found = (reach){.low = tir_index(pool, constant), .span = tir_index(pool, 1)};
    for (int i = 0; i < count; i++) {
        int64_t c = term[i].coefficient;
        int a = 0;
        while (a < stage->space + stage->reduce && stage->axis[a].var != term[i].atom) a++;
        if (a == stage->space + stage->reduce) { /* the index contains a size */
            for (int b = 0; b < a; b++)
                if (tir_uses(pool, term[i].atom, stage->axis[b].var)) return false;
            found->low = tir_add(pool, found->low, tir_mul(pool, term[i].atom, tir_index(pool, c)));
            continue;
        }
        int label = a < stage->space ? root_label(r, q, a) : -1;
        bool inside = a >= stage->space || r->group[q].whole >> a & 1 || (label >= 0 && !(shared >> label & 1));
        if (!inside && label < 0) return false;
        if (inside)
            add_inner_axis(pool, found, &stage->axis[a], c);
        else
            add_root_axis(found, label, c);
    }
    return count >= 0;
}

static bool holds_all(tir_pool *pool, tir_expr low, tir_expr end, tir_expr extent) {
    return tir_prove(pool, tir_le(pool, low, tir_index(pool, 0))) == TIR_YES &&
           tir_prove(pool, tir_le(pool, extent, end)) == TIR_YES;
}

/* Do the intervals `pieces`, one for each point of the root's axes in pieces->axis, cover 0 .. extent - 1 without a gap or an overlap? Adds
 * these axes to the bit mask *used; false if one is there already. */
static bool covers(const rules *r, int root, const reach *pieces, tir_expr extent, uint32_t *used) {
    tir_pool *pool = r->region->pool;
    tir_expr span = pieces->span;
    for (int i = 0; i < pieces->count; i++) {
        if (*used >> pieces->axis[i] & 1 || tir_index(pool, pieces->coefficient[i]) != span) return false;
        *used |= 1u << pieces->axis[i];
        span = tir_mul(pool, span, r->region->stages.data[root].axis[pieces->axis[i]].extent);
    }
    return holds_all(pool, pieces->low, tir_add(pool, pieces->low, span), extent);
}

/* All loads of one dimension: intervals that move with the root's axes, and a fixed interval low .. end - 1. */
typedef struct read_axis {
    reach moves;
    /* there are moving intervals; all of them are equal */
    bool any, same;
    /* 0: no fixed interval */
    tir_expr low, end;
} read_axis;

static bool moves_alike(const reach *a, const reach *b) {
    bool same = a->low == b->low && a->span == b->span && a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = a->axis[i] == b->axis[i] && a->coefficient[i] == b->coefficient[i];
    return same;
}

static void add_reach(tir_pool *pool, read_axis *all, const reach *here) {
    tir_expr end = tir_add(pool, here->low, here->span);
    if (here->count) {
        all->same = !all->any || (all->same && moves_alike(&all->moves, here));
        all->moves = *here;
        all->any = true;
        return;
    }
    if (!all->end || tir_prove(pool, tir_lt(pool, here->low, all->low)) == TIR_YES) all->low = here->low;
    if (!all->end || tir_prove(pool, tir_lt(pool, all->end, end)) == TIR_YES) all->end = end;
}

/* Does the predicate of `reader` leave all elements that `index` reaches to be read? Its only condition on axes of the index may be index <
 * extent. */
static bool reads_to_the_end(const rules *r, const tir_stage *reader, tir_expr index, tir_expr extent) {
    enum { TERMS = 16 };
    tir_pool *pool = r->region->pool;
    tir_expr terms[TERMS];
    int count = reader->predicate ? tir_conjuncts(pool, reader->predicate, terms, TERMS) : 0;
    for (int i = 0; i < count; i++)
        for (int a = 0; a < reader->space + reader->reduce && terms[i] != tir_lt(pool, index, extent); a++)
            if (tir_uses(pool, terms[i], reader->axis[a].var) && tir_uses(pool, index, reader->axis[a].var))
                return false;
    return count >= 0;
}

/* Adds the loads of stage s in stage q to read[a], for each axis a of s. Returns, as a bit mask, the axes of which a
 * load reads no interval, or not all of it. */
static uint32_t add_reads(rules *r, int s, int q, uint32_t shared, read_axis *read) {
    const tir_stage *stage = &r->region->stages.data[s], *reader = &r->region->stages.data[q];
    tir_pool *pool = r->region->pool;
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, q, access, RULES_ACCESSES);
    uint32_t unknown = 0;
    for (int i = 0; i < count; i++)
        for (int a = 0; a < stage->space && r->region->tensors.data[access[i].tensor].stage == s; a++) {
            tir_expr index = tir_operand(pool, access[i].load, a);
            reach here;
            if (find_reach(r, q, index, shared, &here) && reads_to_the_end(r, reader, index, stage->axis[a].extent))
                add_reach(pool, &read[a], &here);
            else
                unknown |= 1u << a;
        }
    return unknown;
}

/* If axes of stage s share the root's loops as `label` says: is each point of s computed exactly once? Sets bit a of *whole if all readers
 * together read axis a completely at each point of the root. */
static bool is_computed_once(rules *r, int s, int root, const int *label, uint32_t *whole) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_pool *pool = r->region->pool;
    read_axis read[TIR_MAX_AXES] = {{.any = false}};
    uint32_t used = 0, shared = 0, unknown = 0;
    bool once = true;
    *whole = 0;
    for (int a = 0; a < stage->space; a++) shared |= label[a] < 0 ? 0 : 1u << label[a];
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        const bool inside = !r->region->stages.data[q].removed && r->group[q].root == root;
        if (inside) unknown |= add_reads(r, s, q, shared, read);
    }
    for (int a = 0; a < stage->space; a++) {
        tir_expr extent = stage->axis[a].extent;
        if (read[a].end && holds_all(pool, read[a].low, read[a].end, extent))
            *whole |= 1u << a;
        else
            once = once && !(unknown >> a & 1) && !read[a].end && read[a].any && read[a].same &&
                   covers(r, root, &read[a].moves, extent, &used);
    }
    return once;
}

static bool is_copy_of_input(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_node *value = stage->count == 1 ? tir_get(r->region->pool, stage->value[0]) : NULL;
    return stage->kind == TIR_MAP && value && value->op == TIR_LOAD && !value->guarded &&
           r->region->tensors.data[value->bits].stage < 0;
}

/* Has the stage loops of its own, whoever reads it? A packed copy of an input is made once, in a phase of its own. */
static bool is_apart(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const rules_role role = rules_role_of(r, s);
    if (stage->removed || stage->fold >= 0 || (stage->kind != TIR_MAP && stage->kind != TIR_REDUCE)) return true;
    return is_copy_of_input(r, s) || (role > RULES_WHOLE && role < RULES_LANES);
}

static double points_of(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    double points = 1;
    for (int a = 0; a < stage->space; a++) points *= (double)rules_known_extent(r, &stage->axis[a]);
    return points;
}

/* Does every reader of stage s outside of the loops of `most` run after these, over no more points than s? A reader that precedes `most` in the
 * region may have a phase of its own before it, although its group's root follows: not every family attaches the root's members. */
static bool others_follow(rules *r, int s, int most) {
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed || !tir_reads(r->region, q, s)) continue;
        const int root = r->group[q].root;
        if (root != most && (q < most || points_of(r, root) > points_of(r, s))) return false;
    }
    return true;
}

/* The root in whose loops all readers of stage s run. If there are several roots, and s is a reduction: the one with most points, provided
 * that all other readers come later and have no more points than s, which they read from memory (updates by statistics of rows). -1: there
 * is none. Sets *kept: others read s from memory. */
static int common_root(rules *r, int s, bool *kept) {
    enum { NONE = -1 };
    int most = NONE;
    *kept = false;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed || !tir_reads(r->region, q, s)) continue;
        const int root = r->group[q].root;
        *kept = *kept || (most >= 0 && root != most);
        if (most < 0 || points_of(r, root) > points_of(r, most)) most = root;
    }
    const bool reduction = r->region->stages.data[s].kind == TIR_REDUCE || rules_ends_tree(r, s);
    if (!*kept) return most;
    return reduction && points_of(r, most) > points_of(r, s) && others_follow(r, s, most) ? most : NONE;
}

/* Sets label[a] to the root's axis along which all stages in its loops that read s read axis a of it, -1: none; returns the last of them. */
static int label_readers(rules *r, int s, int root, int *label) {
    const int space = r->region->stages.data[s].space;
    int reader = -1;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        int here[TIR_MAX_AXES];
        if (r->region->stages.data[q].removed || r->group[q].root != root || !label_through(r, s, q, here)) continue;
        if (r->group[q].owner != r->group[q].root) relabel(r, q, here, space);
        for (int a = 0; a < space; a++) label[a] = reader < 0 || label[a] == here[a] ? here[a] : -1;
        reader = q;
    }
    return reader;
}

static void make_groups(rules *r) {
    r->group = LIB_NEW_ARRAY(r->arena, rules_group, r->region->stages.count + 1);
    for (int s = (int)r->region->stages.count - 1; s >= 0; s--) {
        rules_group *group = &r->group[s];
        int label[TIR_MAX_AXES];
        bool kept;
        group->root = group->owner = s;
        for (int a = 0; a < r->region->stages.data[s].space; a++) group->label[a] = a;
        if (is_apart(r, s)) continue;
        const bool cut = rules_role_of(r, s) == RULES_CUT;
        if (!cut && rules_is_contraction(r, s)) {
            own_contraction(r, s);
            continue;
        }
        const int root = common_root(r, s, &kept);
        if (root < 0 || r->region->stages.data[root].kind != TIR_MAP) continue;
        const int reader = label_readers(r, s, root, label);
        if (r->region->stages.data[root].fold >= 0) continue; /* a step of a fold is placed already */
        if (!may_join(r, s, root, label)) continue;
        if (!is_computed_once(r, s, root, label, &group->whole) && (kept || tir_has_output(r->region, s))) continue;
        group->root = root;
        group->owner = cut ? reader : root;
        memcpy(group->label, label, sizeof label);
    }
}

/* ---- the schedule */

/* Does the stage have loops of its own? */
static bool is_root(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const rules_role role = rules_role_of(r, s);
    return !stage->removed && r->group[s].root == s && stage->fold < 0 && role != RULES_ROWS && role != RULES_INSIDE &&
           role != RULES_BESIDE;
}

/* Is the stage scheduled as part of a chain or a sweep? */
static bool is_placed(rules *r, int s) {
    return rules_in_chain(r, s) || rules_in_sweep(r, s);
}

void cpu_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    static void (*const prepare[])(rules *, int) = {rules_prepare_scan, rules_prepare_reduce, rules_prepare_tile,
                                                    rules_prepare_rows, rules_prepare_enumerated_tile};
    rules r = {
        .machine = machine, .threads = threads, .region = region, .schedule = schedule, .arena = schedule->arena};
    if (!machine->vector_bytes || tir_has_empty_axis(region)) return;
    inline_maps(&r);
    find_ends(&r);
    rules_prepare_sorts(&r);
    expand_groups(&r);
    collapse_axes(&r);
    make_groups(&r);
    rules_prepare_chains(&r);
    rules_prepare_sweeps(&r);
    for (size_t p = 0; p < sizeof prepare / sizeof *prepare; p++)
        for (uint32_t s = 0; s < region->stages.count; s++)
            if (!region->stages.data[s].removed && !is_placed(&r, (int)s)) prepare[p](&r, (int)s);
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (is_root(&r, (int)s) && !rules_chained(&r, (int)s) && !rules_swept(&r, (int)s) && !is_placed(&r, (int)s))
            rules_root(&r, (int)s);
    rules_sum_alone(&r);
}
