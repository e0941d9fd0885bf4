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

/* Index of the load's element with the variables `from` replaced by `to`, in the later iteration; returns the rank. */
static int prefetched_element(prefetch_walk *walk, tir_expr load, int count, const tir_expr *from, const tir_expr *to,
                              tir_expr *index) {
    tir_lowering *l = walk->l;
    tir_expr logical[DLC_MAX_RANK];
    tir_expr later = tir_add(l->pool, walk->moved, tir_index(l->pool, walk->prefetch->ahead));
    for (int d = 0; d < l->region->tensors.data[walk->prefetch->tensor].rank; d++) {
        logical[d] = tir_substitute(l->pool, tir_operand(l->pool, load, d), count, from, to);
        logical[d] = tir_substitute(l->pool, logical[d], 1, &walk->moved, &later);
        tir_rewrite(l->pool, logical[d], refuse_open, walk);
        logical[d] = tir_lower_translate(l, walk->stage, logical[d], NULL);
    }
    return tir_lower_physical(l, walk->prefetch->tensor, logical, index);
}

/* For each axis of the stage: its variable, and its first and last point as seen from the open loops. Returns the number of axes. */
static int axes_ends(prefetch_walk *walk, tir_expr *from, tir_expr *first, tir_expr *last) {
    tir_lowering *l = walk->l;
    tir_stage *stage = tir_stage_of(l, walk->stage);
    int axes = stage->space + stage->reduce;
    for (int a = 0; a < axes; a++) {
        tir_span view = tir_axis_view(&l->state, walk->stage, a);
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

/* Prefetches the cache lines from the first to the last element that the later iteration loads, along the innermost dimension; if these are
 * too far apart (16 lines), only the first one's. */
static void append_own_lines(prefetch_walk *walk, tir_expr load) {
    tir_lowering *l = walk->l;
    tir_expr from[TIR_MAX_AXES], first[TIR_MAX_AXES], last[TIR_MAX_AXES];
    tir_expr index[TIR_MAX_PHYSICAL_RANK], end[TIR_MAX_PHYSICAL_RANK];
    int axes = axes_ends(walk, from, first, last);
    int rank = prefetched_element(walk, load, axes, from, first, index);
    prefetched_element(walk, load, axes, from, last, end);
    int64_t width, step = elements_of_line(walk);
    if (rank == 0) return;
    /* the last chunk of a row may be shorter: lines beyond it are fetched unnecessarily */
    width = tir_range(l->pool, tir_sub(l->pool, end[rank - 1], index[rank - 1])).high;
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

/* The number of elements of the slice from index `first` to `last`; 0: the slice is not contiguous, or its size is not constant. */
static int64_t run_length(prefetch_walk *walk, const tir_expr *first, const tir_expr *last, int rank) {
    tir_lowering *l = walk->l;
    const tir_buffer *buffer = &l->kernel->buffers.data[l->home[walk->prefetch->tensor]];
    int64_t run = 1;
    bool whole = true;
    for (int d = rank - 1; d >= 0; d--) {
        int64_t span, extent, stride;
        if (!tir_is_const(l->pool, tir_sub(l->pool, last[d], first[d]), &span) || span < 0) return 0;
        if (span == 0) {
            whole = whole && tir_is_const(l->pool, buffer->extent[d], &extent) && extent == 1;
            continue;
        }
        if (!whole || !tir_is_const(l->pool, buffer->stride[d], &stride) || stride != run) return 0;
        run *= span + 1;
        whole = tir_is_const(l->pool, buffer->extent[d], &extent) && span + 1 == extent;
    }
    return run;
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
    for (int a = 0; a < axes; a++) { /* the whole range of each axis */
        if (plan->nodes.data[plan->root[a]].clip && !plan->nodes.data[plan->root[a]].value) {
            first[a] = tir_index(l->pool, 0); /* some iteration reaches each of its points */
            last[a] = tir_sub(l->pool, tir_stage_of(l, walk->stage)->axis[a].extent, tir_index(l->pool, 1));
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
        if (is_in_tile(walk, s)) tir_stage_loads(&l->state, s, note_load, &access);
    }
    if (tensor->stage < 0 ? !access.load : !is_in_tile(walk, tensor->stage))
        tir_schedule_raise(
            &l->state, "prefetch of %s in stage %s: no other stage in that loop of %s loads or stores it", tensor->name,
            tir_stage_of(l, walk->stage)->name, tir_stage_of(l, walk->prefetch->moved_stage)->name);
    return access;
}

/* low, extent: the ranges of the stage's axes in the open iteration of the moved loop. Returns the only axis before the last that has
 * several points; -1: there is none, there are several, or an extent is unknown or above 4096. */
static int tile_rows(prefetch_walk *walk, int stage, tir_expr *low, int64_t *extent) {
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
        if (extent[a] == 1 || a == tir_stage_of(l, stage)->space - 1) continue;
        if (rows >= 0) return -1;
        rows = a;
    }
    return rows;
}

/* Fetches the lines of one row of the tile; the iterations of the loops between the moved loop and the prefetch choose the row, in order.
 * A row may begin anywhere in a line. */
static void append_tile_lines(prefetch_walk *walk) {
    enum { MOST = 16 };
    tir_lowering *l = walk->l;
    const tile_access access = find_tile_access(walk);
    const tir_stage *stage = tir_stage_of(l, access.stage);
    tir_expr low[DLC_MAX_RANK], logical[DLC_MAX_RANK], index[TIR_MAX_PHYSICAL_RANK], from[DLC_MAX_RANK];
    tir_expr least[TIR_MAX_AXES], greatest[TIR_MAX_AXES];
    int64_t extent[DLC_MAX_RANK], step = elements_of_line(walk), iterations, each = 1;
    const int rows = tile_rows(walk, access.stage, low, extent), last = stage->space - 1;
    if (l->home[walk->prefetch->tensor] == UINT32_MAX || rows < 0 || extent[last] > MOST * step) return;
    inner_loops inner = {.count = 0};
    find_inner_loops(walk, &inner);
    tir_expr row = position_in(walk, &inner, inner.count, least, greatest, &iterations);
    if (!row || !inner.count) return;
    while (2 * each * extent[rows] <= iterations) each *= 2; /* iterations for a row */
    row = tir_min(l->pool, tir_div(l->pool, row, tir_index(l->pool, each)), tir_index(l->pool, extent[rows] - 1));
    low[rows] = tir_add(l->pool, low[rows], row);
    for (int a = 0; a < stage->space; a++) from[a] = stage->axis[a].var;
    for (int d = 0; d < l->region->tensors.data[walk->prefetch->tensor].rank; d++) {
        logical[d] = access.load
                         ? tir_substitute(l->pool, tir_operand(l->pool, access.load, d), stage->space, from, low)
                         : low[d];
        tir_rewrite(l->pool, logical[d], refuse_open, walk);
    }
    const int rank = tir_lower_physical(l, walk->prefetch->tensor, logical, index);
    for (int64_t at = 0; rank && at < extent[last]; at += step) append_line(walk, index, rank, tir_index(l->pool, at));
    if (rank && extent[last] % step > 1) append_line(walk, index, rank, tir_index(l->pool, extent[last] - 1));
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
        tir_stage_loads(&l->state, s, append_prefetch_load, &walk);
    }
}
