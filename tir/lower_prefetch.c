/* Prefetches: statements that fetch cache lines of a tensor before the iteration that reads them. `tile`: during a reduction, lines that the
 * tile loads and stores after it, because a core stalls once more of its loads and stores miss than it can keep outstanding. */
#include "tir/lower.h"

typedef struct prefetch_walk {
    tir_lowering *l;
    int stage;
    const tir_prefetch *prefetch;
    /* variable of the loop */
    tir_expr moved;
    bool done;
} prefetch_walk;

static int64_t elements_of_line(const prefetch_walk *walk) {
    const tir_lowering *l = walk->l;
    int64_t line = l->options && l->options->machine ? l->options->machine->line : 0;
    return (line ? line : 64) / (int64_t)lib_dtype_size(l->region->tensors.data[walk->prefetch->tensor].dtype);
}

/* Raises if e loads from a tensor that the open loops compute: a later iteration's values do not exist yet. Other loads in the address of a
 * prefetched element are allowed (they are guarded if their index may be out of bounds). */
static tir_expr refuse_open(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    prefetch_walk *walk = user;
    tir_lowering *l = walk->l;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD) return rebuilt;
    const tir_tensor *index = &l->region->tensors.data[node->bits];
    if (index->stage >= 0 && tir_plan_of(l, index->stage)->open)
        tir_schedule_raise(
            &l->state, "prefetch of %s in stage %s: where its elements are, %s, is computed in the same loops",
            l->region->tensors.data[walk->prefetch->tensor].name, tir_stage_of(l, walk->stage)->name, index->name);
    return rebuilt;
}

/* carry: the loop around the moved one, if it is in the same task; its variable, 0: none. Raises unless the moved loop runs over a whole axis of
 * known size, *extent. */
static tir_expr loop_around(const prefetch_walk *walk, int64_t *extent) {
    tir_lowering *l = walk->l;
    const tir_stage_plan *plan = tir_plan_of(l, walk->prefetch->moved_stage);
    const tir_stage *stage = tir_stage_of(l, walk->prefetch->moved_stage);
    const tir_axis_node *moved = &plan->nodes.data[walk->prefetch->moved];
    tir_expr around = 0;
    if (moved->parent >= 0 || moved->slow >= 0 || !tir_is_const(l->pool, stage->axis[moved->axis].extent, extent))
        tir_schedule_raise(&l->state,
                           "prefetch in stage %s: carry needs a loop over a whole axis of known size, not %s",
                           stage->name, moved->name);
    for (uint32_t k = 0; k < plan->order.count && plan->order.data[k] != walk->prefetch->moved; k++) {
        const tir_axis_node *node = &plan->nodes.data[plan->order.data[k]];
        if (node->value && tir_op_of(l->pool, node->value) == TIR_VAR) around = node->parallel ? 0 : node->value;
    }
    return around;
}

/* Sets to[] to what the variables from[], the moved loop's and perhaps that of the loop around it, are in the later iteration; returns their
 * number. */
static int later_iteration(const prefetch_walk *walk, tir_expr from[2], tir_expr to[2]) {
    tir_pool *pool = walk->l->pool;
    int64_t extent;
    from[0] = walk->moved;
    to[0] = tir_add(pool, walk->moved, tir_index(pool, walk->prefetch->ahead));
    from[1] = walk->prefetch->carry ? loop_around(walk, &extent) : 0;
    if (!from[1] || extent < 1) return 1;
    const tir_expr iterations = tir_index(pool, extent);
    to[1] = tir_add(pool, from[1], tir_div(pool, to[0], iterations));
    to[0] = tir_rem(pool, to[0], iterations);
    return 2;
}

/* Index of the load's element with the variables `from` replaced by `to`, in the later iteration; returns the rank. */
static int prefetched_element(prefetch_walk *walk, tir_expr load, int count, const tir_expr *from, const tir_expr *to,
                              tir_expr *index) {
    tir_lowering *l = walk->l;
    tir_expr logical[DLC_MAX_RANK], now[2], later[2];
    const int moved = later_iteration(walk, now, later);
    for (int d = 0; d < l->region->tensors.data[walk->prefetch->tensor].rank; d++) {
        logical[d] = tir_substitute(l->pool, tir_operand(l->pool, load, d), count, from, to);
        logical[d] = tir_substitute(l->pool, logical[d], moved, now, later);
        tir_rewrite(l->pool, logical[d], refuse_open, walk);
        logical[d] = tir_lower_translate(l, walk->stage, logical[d], NULL);
    }
    return tir_lower_physical(l, walk->prefetch->tensor, logical, index);
}

/* For each axis of the stage: its variable, and its first and last point as seen from the open loops. Returns the number of axes. The last tile
 * of a space axis counts as a whole one: the number of its points, as an expression of the tile's number, would be negative for the tile after
 * it, which the last iteration prefetches. */
static int axes_ends(prefetch_walk *walk, tir_expr *from, tir_expr *first, tir_expr *last) {
    tir_lowering *l = walk->l;
    tir_stage *stage = tir_stage_of(l, walk->stage);
    int axes = stage->space + stage->reduce;
    for (int a = 0; a < axes; a++) {
        tir_span view = tir_axis_view(&l->state, walk->stage, a);
        const tir_interval points = tir_range(l->pool, view.extent);
        if (a < stage->space && points.low < points.high && points.high <= INT32_MAX)
            view.extent = tir_index(l->pool, points.high);
        from[a] = stage->axis[a].var;
        first[a] = view.low;
        last[a] = tir_sub(l->pool, tir_add(l->pool, view.low, view.extent), tir_index(l->pool, 1));
    }
    return axes;
}

static void append_line(prefetch_walk *walk, const tir_expr *index, int rank, tir_expr offset) {
    tir_lowering *l = walk->l;
    tir_expr moved[TIR_MAX_PHYSICAL_RANK];
    memcpy(moved, index, (size_t)rank * sizeof *moved);
    moved[rank - 1] = tir_add(l->pool, index[rank - 1], offset);
    tir_stmt *stmt = tir_lower_append(l, TIR_PREFETCH);
    stmt->prefetch.buffer = l->home[walk->prefetch->tensor];
    stmt->prefetch.rank = rank;
    stmt->prefetch.index = tir_lower_copy_indices(l, moved, rank);
    stmt->prefetch.level = walk->prefetch->level;
    stmt->prefetch.write = walk->prefetch->tile && l->region->tensors.data[walk->prefetch->tensor].stage >= 0;
}

/* The number of elements of the slice from index `first` to `last`; 0: the slice is not contiguous, or its size is unknown. Of iterations with
 * different numbers of rows, the most: what is beyond the others is fetched unnecessarily. */
static int64_t run_length(prefetch_walk *walk, const tir_expr *first, const tir_expr *last, int rank) {
    tir_lowering *l = walk->l;
    const tir_buffer *buffer = &l->kernel->buffers.data[l->home[walk->prefetch->tensor]];
    int64_t run = 1;
    bool whole = true;
    for (int d = rank - 1; d >= 0; d--) {
        int64_t extent, stride;
        const tir_interval spans = tir_range(l->pool, tir_sub(l->pool, last[d], first[d]));
        const int64_t span = spans.high;
        if (span < 0 || span > INT32_MAX) return 0;
        if (span == 0) {
            whole = whole && tir_is_number(l->pool, buffer->extent[d], 1);
            continue;
        }
        if (!whole || !tir_is_const(l->pool, buffer->stride[d], &stride) || stride != run) return 0;
        run *= span + 1;
        whole = spans.low == span && tir_is_const(l->pool, buffer->extent[d], &extent) && span + 1 == extent;
    }
    return run;
}

/* Prefetches the cache lines from the first to the last element that the later iteration loads, of a contiguous slice or along the innermost
 * dimension; if these are too far apart (16 lines), only the first one's. */
static void append_own_lines(prefetch_walk *walk, tir_expr load) {
    tir_lowering *l = walk->l;
    tir_expr from[TIR_MAX_AXES], first[TIR_MAX_AXES], last[TIR_MAX_AXES];
    tir_expr index[TIR_MAX_PHYSICAL_RANK], end[TIR_MAX_PHYSICAL_RANK];
    int axes = axes_ends(walk, from, first, last);
    int rank = prefetched_element(walk, load, axes, from, first, index);
    prefetched_element(walk, load, axes, from, last, end);
    int64_t width, step = elements_of_line(walk);
    if (rank == 0) return;
    width = run_length(walk, index, end, rank) - 1;
    /* the last chunk of a row may be shorter: lines beyond it are fetched unnecessarily */
    if (width < 0) width = tir_range(l->pool, tir_sub(l->pool, end[rank - 1], index[rank - 1])).high;
    if (width < 0 || width >= 16 * step) width = 0;
    for (int64_t at = 0; at <= width; at += step) append_line(walk, index, rank, tir_index(l->pool, at));
}

/* ---- shared: the later iteration's loads are divided among the iterations of the loops between the moved loop and the prefetch: of the
 * outermost `count` of these loops, as many as possible such that all their iterations together load one contiguous run. */

typedef struct inner_loops {
    /* outermost first */
    tir_expr var[TIR_MAX_AXES];
    int count;
} inner_loops;

/* Lists the open loops inside the moved one: their variables have greater ids. */
static void find_inner_loops(prefetch_walk *walk, inner_loops *inner) {
    tir_lowering *l = walk->l;
    for (uint32_t s = 0; s < l->region->stages.count; s++) {
        tir_stage_plan *plan = tir_plan_of(l, (int)s);
        for (uint32_t n = 0; n < plan->nodes.count; n++) {
            tir_expr value = plan->nodes.data[n].value;
            if (!value || tir_op_of(l->pool, value) != TIR_VAR || value <= walk->moved) continue;
            if (inner->count == TIR_MAX_AXES) tir_schedule_raise(&l->state, "prefetch: too many loops share it");
            int at = inner->count++;
            for (; at > 0 && inner->var[at - 1] > value; at--) inner->var[at] = inner->var[at - 1];
            inner->var[at] = value;
        }
    }
}

/* The number of the current iteration of the first `count` loops, counted through the whole nest. Sets *parts to the number of iterations,
 * low[i] and high[i] to the bounds of loop i's variable. 0: the bounds or the number are too large or unknown. */
static tir_expr position_in(prefetch_walk *walk, const inner_loops *inner, int count, tir_expr *low, tir_expr *high,
                            int64_t *parts) {
    tir_lowering *l = walk->l;
    tir_expr position = tir_index(l->pool, 0);
    *parts = 1;
    for (int i = 0; i < count; i++) {
        tir_interval range = tir_range(l->pool, inner->var[i]);
        if (range.low < -INT32_MAX || range.high > INT32_MAX || range.high - range.low >= INT32_MAX / *parts) return 0;
        low[i] = tir_index(l->pool, range.low);
        high[i] = tir_index(l->pool, range.high);
        position = tir_mul(l->pool, position, tir_index(l->pool, range.high - range.low + 1));
        position = tir_add(l->pool, position, tir_sub(l->pool, inner->var[i], low[i]));
        *parts *= range.high - range.low + 1;
    }
    return position;
}

/* Divides the run that all iterations of the first `count` loops load together among them, and fetches the current iteration's part. False:
 * the elements are not a contiguous run of constant size. */
static bool append_part(prefetch_walk *walk, tir_expr load, const inner_loops *inner, int count) {
    tir_lowering *l = walk->l;
    tir_stage_plan *plan = tir_plan_of(l, walk->stage);
    tir_expr from[TIR_MAX_AXES], first[TIR_MAX_AXES], last[TIR_MAX_AXES], low[TIR_MAX_AXES], high[TIR_MAX_AXES];
    tir_expr index[TIR_MAX_PHYSICAL_RANK], end[TIR_MAX_PHYSICAL_RANK];
    int64_t parts, step = elements_of_line(walk);
    tir_expr position = position_in(walk, inner, count, low, high, &parts);
    if (!position) return false;
    int axes = axes_ends(walk, from, first, last);
    const tir_stage *stage = tir_stage_of(l, walk->stage);
    const bool whole = count == inner->count && walk->prefetch->moved_stage != walk->stage;
    for (int a = 0; a < axes; a++) { /* the whole range of each axis */
        const tir_axis_node *node = &plan->nodes.data[plan->root[a]];
        if ((node->clip && !node->value) || (whole && a >= stage->space)) {
            first[a] = tir_index(l->pool, 0); /* some iteration reaches each of its points */
            last[a] = tir_sub(l->pool, stage->axis[a].extent, tir_index(l->pool, 1));
        }
        first[a] = tir_substitute(l->pool, first[a], count, inner->var, low);
        last[a] = tir_substitute(l->pool, last[a], count, inner->var, high);
    }
    int rank = prefetched_element(walk, load, axes, from, first, index);
    prefetched_element(walk, load, axes, from, last, end);
    int64_t run = rank ? run_length(walk, index, end, rank) : 0, part = (run + parts - 1) / parts;
    if (run == 0) return false;
    if (part > step) part = (part + step - 1) / step * step;
    position = tir_mul(l->pool, position, tir_index(l->pool, part));
    for (int64_t at = 0; at < part; at += step)
        append_line(walk, index, rank, tir_add(l->pool, position, tir_index(l->pool, at)));
    return true;
}

static void append_share(prefetch_walk *walk, tir_expr load) {
    inner_loops inner = {.count = 0};
    find_inner_loops(walk, &inner);
    int count = inner.count;
    while (count >= 0 && !append_part(walk, load, &inner, count)) count--;
    if (count < 0)
        tir_schedule_raise(&walk->l->state, "prefetch: what an iteration reads of %s is not a run of memory",
                           walk->l->region->tensors.data[walk->prefetch->tensor].name);
}

/* ---- of a tile's other operands and of its results -------------------------------------------------------------------------- */

typedef struct tile_access {
    prefetch_walk *walk;
    /* a stage whose points the tile covers, and its load of the tensor; 0: its result */
    int stage;
    tir_expr load;
} tile_access;

static void note_load(void *user, tir_expr load) {
    tile_access *access = user;
    if (!access->load && tir_get(access->walk->l->pool, load)->bits == access->walk->prefetch->tensor)
        access->load = load;
}

/* Does an iteration of the loop compute points of the stage? It may be attached at the loop, or at one inside it. */
static bool is_in_tile(const prefetch_walk *walk, int s) {
    const tir_stage_plan *plan = tir_plan_of(walk->l, s);
    const tir_stage_plan *owner = tir_plan_of(walk->l, walk->prefetch->moved_stage);
    if (tir_stage_of(walk->l, s)->removed || s == walk->stage) return false;
    if (s == walk->prefetch->moved_stage) return true;
    bool inside = false;
    for (uint32_t k = 0; k < owner->order.count && plan->at_stage == walk->prefetch->moved_stage; k++) {
        inside = inside || owner->order.data[k] == walk->prefetch->moved;
        if (inside && owner->order.data[k] == plan->at_node) return true;
    }
    return false;
}

static tile_access find_tile_access(prefetch_walk *walk) {
    tir_lowering *l = walk->l;
    const tir_tensor *tensor = &l->region->tensors.data[walk->prefetch->tensor];
    tile_access access = {walk, tensor->stage, 0};
    for (int s = 0; tensor->stage < 0 && s < (int)l->region->stages.count && !access.load; s++) {
        access.stage = s;
        if (is_in_tile(walk, s)) tir_stage_loads(l->state.region, s, note_load, &access);
    }
    if (tensor->stage < 0 ? !access.load : !is_in_tile(walk, tensor->stage))
        tir_schedule_raise(
            &l->state, "prefetch of %s in stage %s: no other stage in that loop of %s loads or stores it", tensor->name,
            tir_stage_of(l, walk->stage)->name, tir_stage_of(l, walk->prefetch->moved_stage)->name);
    return access;
}

/* The axis of the stage along which the accessed elements are contiguous; -1: none. */
static int contiguous_axis(const tile_access *access) {
    tir_lowering *l = access->walk->l;
    const tir_tensor *tensor = &l->region->tensors.data[access->walk->prefetch->tensor];
    const tir_stage *stage = tir_stage_of(l, access->stage);
    const bool plain = tir_layout_is_identity(&tensor->layout);
    const tir_layout_part *inner = plain ? NULL : &tensor->layout.part[tensor->layout.count - 1];
    if (tensor->rank == 0 || (inner && inner->divisor != 1)) return -1;
    const int dim = inner ? inner->dim : tensor->rank - 1;
    if (!access->load) return dim;
    for (int a = 0; a < stage->space; a++)
        if (stage->axis[a].var == tir_operand(l->pool, access->load, dim)) return a;
    return -1;
}

/* The points of the stage in the open iteration. The only axis with several but the contiguous one; -1: none, several, or of unknown
 * size. */
static int tile_rows(prefetch_walk *walk, int stage, int along, tir_expr *low, int64_t *extent) {
    enum { MOST = 4096 };
    tir_lowering *l = walk->l;
    int rows = -1;
    if (stage != walk->prefetch->moved_stage) tir_stage_region(&l->state, stage);
    for (int a = 0; a < tir_stage_of(l, stage)->space; a++) {
        const tir_span view = tir_axis_view(&l->state, stage, a);
        low[a] = tir_lower_translate(l, stage, view.low, NULL);
        extent[a] =
            tir_range(l->pool, view.extent).high; /* of all iterations; lines beyond are fetched unnecessarily */
        if (extent[a] < 1 || extent[a] > MOST) return -1;
        if (extent[a] == 1 || a == along) continue;
        if (rows >= 0) return -1;
        rows = a;
    }
    return rows;
}

/* Elements that divide the place of the element in its line: it begins so many, twice as many, .. elements after the line. */
static int64_t places_apart(prefetch_walk *walk, const tir_expr *index, int rank) {
    tir_lowering *l = walk->l;
    const tir_buffer *buffer = &l->kernel->buffers.data[l->home[walk->prefetch->tensor]];
    int64_t apart = elements_of_line(walk);
    for (int d = 0; d < rank; d++) {
        int64_t each = tir_multiple_of(l->pool, tir_mul(l->pool, index[d], buffer->stride[d]));
        while (each) {
            const int64_t rest = apart % each;
            apart = each;
            each = rest;
        }
    }
    return apart;
}

/* Lines of `count` elements, as many as there are if the first is anywhere where it may be. */
static int64_t count_lines(prefetch_walk *walk, const tir_expr *index, int rank, int64_t count) {
    const int64_t step = elements_of_line(walk), last = (count - 1) % step;
    return (count + step - 1) / step + (last >= places_apart(walk, index, rank));
}

/* The element that the tile's point `low` stores or loads; returns the rank. */
static int element_of_tile(const tile_access *access, const tir_expr *low, tir_expr *index) {
    prefetch_walk *walk = access->walk;
    tir_lowering *l = walk->l;
    const tir_stage *stage = tir_stage_of(l, access->stage);
    tir_expr logical[DLC_MAX_RANK], from[DLC_MAX_RANK];
    for (int a = 0; a < stage->space; a++) from[a] = stage->axis[a].var;
    for (int d = 0; d < l->region->tensors.data[walk->prefetch->tensor].rank; d++) {
        logical[d] = access->load
                         ? tir_substitute(l->pool, tir_operand(l->pool, access->load, d), stage->space, from, low)
                         : low[d];
        tir_rewrite(l->pool, logical[d], refuse_open, walk);
    }
    return tir_lower_physical(l, walk->prefetch->tensor, logical, index);
}

/* How the lines of a tile are spread over iterations. */
typedef struct line_plan {
    /* of a row; elements from one to the next */
    int64_t lines, apart;
    /* lines of an iteration; such parts of a row; iterations for a part */
    int64_t together, parts, each;
} line_plan;

/* The neighbouring lines of a row together. If a row straddles lines, one after the other as far as there are iterations: it has more lines
 * than data, and a line that is on its way delays those that ask for it again. */
static line_plan plan_lines(int64_t lines, int64_t step, int64_t count, int64_t rows, int64_t iterations) {
    const bool straddles = lines > 1 && (lines - 1) * step >= count;
    line_plan plan = {.lines = lines, .apart = step, .together = lines, .each = 1};
    if (straddles) {
        plan.apart = (count + lines - 3) / (lines - 1); /* from the first to the last element */
        plan.together = 1;
        while (plan.together < lines && (lines + plan.together - 1) / plan.together * rows > iterations)
            plan.together++;
    }
    plan.parts = (lines + plan.together - 1) / plan.together;
    while (2 * plan.each * plan.parts * rows <= iterations) plan.each *= 2;
    return plan;
}

/* Fetches the lines of one row after the other in the iterations of the loops between the tile's and the prefetch. */
static void append_tile_lines(prefetch_walk *walk) {
    enum { MOST = 16 };
    tir_lowering *l = walk->l;
    const tile_access access = find_tile_access(walk);
    tir_expr low[DLC_MAX_RANK], index[TIR_MAX_PHYSICAL_RANK], least[TIR_MAX_AXES], greatest[TIR_MAX_AXES];
    int64_t extent[DLC_MAX_RANK], step = elements_of_line(walk), iterations;
    const int along = contiguous_axis(&access);
    const int rows = along < 0 ? -1 : tile_rows(walk, access.stage, along, low, extent);
    if (l->home[walk->prefetch->tensor] == UINT32_MAX || rows < 0 || extent[along] > MOST * step) return;
    inner_loops inner = {.count = 0};
    find_inner_loops(walk, &inner);
    const tir_expr position = position_in(walk, &inner, inner.count, least, greatest, &iterations);
    const tir_expr top = low[rows], begin = low[along];
    if (!position || !inner.count) return;
    low[rows] = tir_add(l->pool, top, position); /* any row: which places in a line do rows begin at? */
    const int rank = element_of_tile(&access, low, index);
    if (!rank) return;
    const int64_t lines = count_lines(walk, index, rank, extent[along]);
    const line_plan plan = plan_lines(lines, step, extent[along], extent[rows], iterations);
    const tir_expr part = tir_div(l->pool, position, tir_index(l->pool, plan.each));
    const tir_expr row = tir_div(l->pool, part, tir_index(l->pool, plan.parts));
    const tir_expr first = tir_rem(l->pool, part, tir_index(l->pool, plan.parts)); /* in units of `together` */
    low[rows] = tir_add(l->pool, top, tir_min(l->pool, row, tir_index(l->pool, extent[rows] - 1)));
    for (int64_t i = 0; i < plan.together; i++) {
        tir_expr line = tir_mul(l->pool, first, tir_index(l->pool, plan.together));
        line = tir_min(l->pool, tir_add(l->pool, line, tir_index(l->pool, i)), tir_index(l->pool, plan.lines - 1));
        low[along] = tir_add(l->pool, begin, tir_mul(l->pool, line, tir_index(l->pool, plan.apart)));
        element_of_tile(&access, low, index);
        append_line(walk, index, rank, tir_index(l->pool, 0));
    }
}

static void append_prefetch_load(void *user, tir_expr load) {
    prefetch_walk *walk = user;
    if (walk->done || tir_get(walk->l->pool, load)->bits != walk->prefetch->tensor) return;
    if (walk->l->home[walk->prefetch->tensor] == UINT32_MAX) return;
    if (walk->prefetch->shared)
        append_share(walk, load);
    else
        append_own_lines(walk, load);
    walk->done = true;
}

void tir_lower_prefetches(tir_lowering *l, int s, int leaf) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (uint32_t i = 0; i < plan->prefetches.count; i++) {
        const tir_prefetch *prefetch = &plan->prefetches.data[i];
        if (prefetch->node != leaf) continue;
        tir_axis_node *moved = &tir_plan_of(l, prefetch->moved_stage)->nodes.data[prefetch->moved];
        if (!moved->value)
            tir_schedule_raise(&l->state, "prefetch in loop %s of stage %s: loop %s of stage %s is not around it",
                               plan->nodes.data[leaf].name, tir_stage_of(l, s)->name, moved->name,
                               tir_stage_of(l, prefetch->moved_stage)->name);
        prefetch_walk walk = {l, s, prefetch, moved->value, false};
        if (prefetch->tile) append_tile_lines(&walk);
        if (prefetch->tile || tir_op_of(l->pool, moved->value) != TIR_VAR)
            continue; /* a single iteration: no later one exists */
        tir_stage_loads(l->state.region, s, append_prefetch_load, &walk);
    }
}
