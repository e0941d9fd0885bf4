/* Stages whose order is determined by data or by a state. Cumulative folds along contiguous memory use blocks of one vector, whose
 * pairwise sums are independent; a few long folds are first cut into blocks that are tasks. Folds across rows keep the state of all
 * columns in L1 and read memory row by row, or, if rows are short, keep it in registers. Updates of a scatter use vectors along the axes that the index does not choose. Each line of a
 * sort is a task; short lines are sorted by counting, in vectors. */
#include "targets/cpu/rules.h"

enum {
    LANES_MOST = 16,
    PIECE = 65536,       /* points of a task of a long fold, at least */
    ROWS_FEW = 16,       /* if there are fewer lines than this, they are cut into pieces */
    COLUMNS_MOST = 4096, /* number of columns whose state fits in L1 */
    VECTORS = 4
};

/* ---- rewrites */

/* Points of a piece of a long fold: of whole vectors, and as many in the last piece as in the others but for a few. Blocks of a shorter last
 * piece would be masked off whole, and a processor takes hundreds of cycles for an access that is masked off on an unmapped page. */
static int64_t even_piece(int64_t length, int64_t lanes) {
    const int64_t count = length / PIECE, piece = (length + count - 1) / count;
    return (piece + lanes - 1) / lanes * lanes;
}

void rules_prepare_scan(rules *r, int s) {
    const tir_stage *fold = &r->region->stages.data[s];
    int time, step = tir_cumulative_step(r->region, s, &time);
    if (step < 0 && rules_prepare_batch(r, s)) return;
    if (step < 0 || rules_role_of(r, s) != RULES_NO_PART || !tir_is_contiguous_along(r->region, step, time)) return;
    int64_t lanes = rules_lanes(r, step), length = rules_extent(r, &fold->axis[fold->space]);
    if (lanes > LANES_MOST) lanes = LANES_MOST;
    const bool is_short = rules_extent_limit(r, &fold->axis[fold->space]) < lanes;
    if (lanes < 2 || is_short || fold->space + 2 > DLC_MAX_RANK) return;
    const char *name = fold->name, *axis = fold->axis[fold->space].name;
    const int64_t rows = tir_points(r->region, fold, 0, fold->space);
    if (!tir_choose_yes(r->schedule, name, "scan", true)) return;
    rules_set_role(r, name, RULES_SCAN);
    if (length >= 2 * PIECE && fold->space + 3 <= DLC_MAX_RANK &&
        tir_choose_yes(r->schedule, name, "pieces", rows >= 0 && rows < ROWS_FEW)) {
        const char *totals = rules_fresh_name(r, name, "_t"), *before = rules_fresh_name(r, name, "_o");
        rules_set_role(r, before, RULES_WHOLE); /* few points */
        rules_rewrite(r, "block %s.%s %lld -> %s %s piece in", name, axis, (long long)even_piece(length, lanes), totals,
                      before);
        axis = "in";
    }
    rules_rewrite(r, "scan %s.%s %lld -> %s block lane", name, axis, (long long)lanes, rules_fresh_name(r, name, "_l"));
}

/* ---- loops */

/* Schedules the steps of a scan, in registers: the levels of the tree, and the sums by lanes. */
static void scan_steps(rules *r, int fold) {
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (step->removed || step->fold != fold) continue;
        const int along = tir_scan_axis(r->region, q);
        const bool sums = rules_axis_of(step, TIR_AXIS_LANE) < 0 && rules_axis_of(step, TIR_AXIS_BLOCK) < 0;
        tir_schedule_add(r->schedule, "store %s reg", step->name);
        if (along >= 0) tir_schedule_add(r->schedule, "vec %s.%s", step->name, step->axis[along].name);
        if (sums) rules_store_past_caches(r, step);
    }
}

static void schedule_scan(rules *r, int s) {
    const tir_stage *fold = &r->region->stages.data[s];
    rules_nest nest = {.r = r, .stage = fold};
    int64_t length = rules_extent(r, &fold->axis[fold->space]), lanes = LANES_MOST;
    for (int a = 0; a < fold->space; a++)
        rules_add_loop(&nest, fold->axis[a].name, rules_extent(r, &fold->axis[a]), false);
    rules_form_tasks(&nest, length < 0 ? RULES_TASK_POINTS : length * lanes, RULES_TASK_POINTS);
    tir_schedule_add(r->schedule, "store %s reg", fold->name);
    scan_steps(r, s);
}

/* The free axis of a fold with one step along which that step's accesses are contiguous; -1: none. */
static int column_axis(rules *r, int s, int *step) {
    const tir_stage *fold = &r->region->stages.data[s];
    *step = -1;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed || r->region->stages.data[q].fold != s) continue;
        if (*step >= 0) return -1;
        *step = q;
    }
    if (*step < 0 || fold->count != 1 || r->region->stages.data[*step].kind != TIR_MAP) return -1;
    if (r->region->tensors.data[fold->tensor[0]].rank != fold->space) return -1;
    const tir_expr next = fold->value[0];
    if (r->region->tensors.data[tir_get(r->region->pool, next)->bits].stage != *step) return -1;
    for (int a = 0; a < fold->space; a++)
        for (int d = 0; d < r->region->stages.data[*step].space; d++)
            if (tir_operand(r->region->pool, next, d) == fold->axis[a].var &&
                tir_is_contiguous_along(r->region, *step, d) && rules_extent(r, &fold->axis[a]) != 1)
                return a;
    return -1;
}

/* Columns of a task: as many as L1 can hold the state of; fewer if threads would be idle and each has enough to do. */
static int64_t columns_of_task(const rules *r, const tir_stage *fold, int v, int64_t width) {
    const int64_t columns = rules_extent(r, &fold->axis[v]), length = rules_extent(r, &fold->axis[fold->space]);
    const int64_t points = tir_points(r->region, fold, 0, fold->space), tasks = 2 * r->threads;
    if (r->threads < 2 || columns <= 0 || points <= 0 || length <= 0) return COLUMNS_MOST;
    const int64_t others = points / columns, share = (points + tasks - 1) / tasks,
                  whole = (share + width - 1) / width * width;
    const bool idle = others * ((columns + COLUMNS_MOST - 1) / COLUMNS_MOST) < tasks;
    return idle && whole < columns && whole * length >= RULES_TASK_POINTS ? whole : COLUMNS_MOST;
}

/* Columns whose state registers hold, beside that of the step; 0: longer rows are rather read one after the other (Zen 5, 2,000 rows of 2,000:
 * 2.1 times as long in blocks of columns, which are pages apart), and a varying number of vectors is not in registers. */
static int64_t columns_in_registers(const rules *r, const tir_stage *fold, int v, int64_t lanes) {
    enum { BLOCKS = 4 };
    const int64_t columns = rules_extent(r, &fold->axis[v]), fit = lanes * (r->machine->vector_registers / 2),
                  most = columns_of_task(r, fold, v, lanes * VECTORS), block = fit < most ? fit : most;
    if (columns < 0 || columns > BLOCKS * fit || r->region->tensors.data[fold->tensor[0]].output) return 0;
    return columns < block ? columns : block;
}

/* Schedules the loops of a fold across contiguous columns, one row after the other, for one block of columns after the other, whose state is in
 * registers. */
static void schedule_blocks_of_columns(rules *r, const tir_stage *fold, const tir_stage *step, int v, int64_t block,
                                       const char *others) {
    const char *name = fold->name, *time = fold->axis[fold->space].name;
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", name, fold->axis[v].name, (long long)block);
    tir_schedule_add(r->schedule, "par %s.v_o", name);
    tir_schedule_add(r->schedule, "order %s:%s v_o %s v_i", name, others, time);
    tir_schedule_add(r->schedule, "vec %s.v_i", name);
    tir_schedule_add(r->schedule, "store %s reg", name);
    tir_schedule_add(r->schedule, "at %s %s.%s", step->name, name, time);
}

/* The same for as many columns at once as L1 can hold the state of. */
static void schedule_rows_of_columns(rules *r, const tir_stage *fold, const tir_stage *step, int v,
                                     const char *others) {
    const char *name = fold->name, *column = fold->axis[v].name, *pieces = "";
    const int64_t width = rules_lanes(r, (int)(step - r->region->stages.data)) * VECTORS,
                  most = columns_of_task(r, fold, v, width);
    if (tir_range(r->region->pool, fold->axis[v].extent).high > most) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_p v_t peel", name, column, (long long)most);
        tir_schedule_add(r->schedule, "par %s.v_p", name);
        pieces = " v_p";
        column = "v_t";
    }
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", name, column, (long long)width);
    tir_schedule_add(r->schedule, "order %s:%s%s %s v_o v_i", name, others, pieces, fold->axis[fold->space].name);
    tir_schedule_add(r->schedule, "vec %s.v_i", name);
    tir_schedule_add(r->schedule, "at %s %s.v_o", step->name, name);
}

/* Schedules a fold across contiguous columns, in vectors. False: it is no such fold. */
static bool schedule_columns(rules *r, int s) {
    const tir_stage *fold = &r->region->stages.data[s];
    int step, v = column_axis(r, s, &step);
    if (v < 0) return false;
    const char *name = fold->name, *step_name = r->region->stages.data[step].name;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < fold->space; a++) {
        if (a == v) continue;
        lib_text_format(&order, " %s", fold->axis[a].name);
        tir_schedule_add(r->schedule, "par %s.%s", name, fold->axis[a].name);
    }
    const int64_t block = columns_in_registers(r, fold, v, rules_lanes(r, step));
    const char *others = order.data ? order.data : "";
    if (block)
        schedule_blocks_of_columns(r, fold, &r->region->stages.data[step], v, block, others);
    else
        schedule_rows_of_columns(r, fold, &r->region->stages.data[step], v, others);
    tir_schedule_add(r->schedule, "store %s reg", step_name);
    rules_store_past_caches(r, &r->region->stages.data[step]);
    for (int d = 0; d < r->region->stages.data[step].space; d++)
        if (tir_operand(r->region->pool, fold->value[0], d) == fold->axis[v].var)
            tir_schedule_add(r->schedule, "vec %s.%s", step_name, r->region->stages.data[step].axis[d].name);
    return true;
}

/* Vectorises a step that computes the next state along the state's own axis. */
static void schedule_own_axis(rules *r, const tir_stage *step) {
    const tir_axis *last = &step->axis[step->space - 1];
    int64_t extent = rules_extent(r, last), width = rules_lanes(r, (int)(step - r->region->stages.data)) * VECTORS;
    rules_vectorise(r, step->name, last->name, extent, width, "vo", "vi");
}

/* Points of a row of the step: of its lanes and its reduction; -1: varying. */
static int64_t row_points(const rules *r, const tir_stage *step) {
    const int lane = rules_axis_of(step, TIR_AXIS_LANE);
    const int64_t lanes = lane < 0 ? 1 : rules_extent(r, &step->axis[lane]);
    const int64_t steps = tir_points(r->region, step, step->space, step->space + step->reduce);
    return lanes < 0 || steps < 0 ? -1 : lanes * steps;
}

/* Schedules a step of a fold whose steps reduce rows. */
static void schedule_row_step(rules *r, const tir_stage *fold, const tir_stage *step) {
    const int lane = rules_axis_of(step, TIR_AXIS_LANE);
    if (lane < 0 && step->kind == TIR_MAP && step->space > fold->space + 1) {
        schedule_own_axis(r, step);
        return;
    }
    tir_schedule_add(r->schedule, "store %s reg", step->name);
    if (lane < 0) return;
    tir_schedule_add(r->schedule, "order %s:%s %s", step->name, tir_loops_but(r->arena, step, tir_axis_bit(lane)),
                     step->axis[lane].name);
    tir_schedule_add(r->schedule, "vec %s.%s", step->name, step->axis[lane].name);
    if (step->kind == TIR_REDUCE && step->predicate) tir_schedule_add(r->schedule, "clip %s.step", step->name);
}

/* Does the state have axes of its own? Loops index them, so that it cannot be in registers. */
static bool has_own_axes(const rules *r, const tir_stage *fold) {
    bool own = false;
    for (int c = 0; c < fold->count; c++) own = own || r->region->tensors.data[fold->tensor[c]].rank > fold->space;
    return own;
}

/* Makes tasks of the rows of a fold, each step of which has so many points (-1: varying). */
static void share_rows(rules *r, const tir_stage *fold, int64_t points) {
    rules_nest nest = {.r = r, .stage = fold};
    const int64_t trips = rules_extent(r, &fold->axis[fold->space]);
    for (int a = 0; a < fold->space; a++)
        rules_add_loop(&nest, fold->axis[a].name, rules_extent(r, &fold->axis[a]), false);
    rules_form_tasks(&nest, points < 0 || trips < 0 ? RULES_TASK_POINTS : points * trips, RULES_TASK_POINTS);
}

/* Schedules a fold whose steps reduce rows, by lanes and a tree in registers; rows are tasks. False: no step has lanes. */
static bool schedule_row_steps(rules *r, int s) {
    const tir_stage *fold = &r->region->stages.data[s];
    bool lanes = false;
    int64_t points = 1;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (step->removed || step->fold != s) continue;
        const int64_t row = row_points(r, step);
        lanes = lanes || rules_axis_of(step, TIR_AXIS_LANE) >= 0;
        points = points < 0 || row < 0 ? -1 : row > points ? row : points;
    }
    if (!lanes) return false;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (!step->removed && step->fold == s) schedule_row_step(r, fold, step);
    }
    share_rows(r, fold, points);
    if (!has_own_axes(r, fold)) tir_schedule_add(r->schedule, "store %s reg", fold->name);
    return true;
}

bool rules_fold(rules *r, int s) {
    if (r->region->stages.data[s].kind != TIR_FOLD) return false;
    if (rules_role_of(r, s) == RULES_SCAN)
        schedule_scan(r, s);
    else if (rules_role_of(r, s) == RULES_BATCH)
        rules_batch(r, s);
    else if (!schedule_row_steps(r, s) && !schedule_columns(r, s))
        share_rows(r, &r->region->stages.data[s], 1);
    return true;
}

/* ---- scatter */

/* Schedules a scatter: one update after the other, at the indices in the data; the axes that the index does not affect are inner loops, in
 * vectors. False: the stage is no scatter. */
bool rules_scatter(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind != TIR_SCATTER) return false;
    int last = -1; /* last axis that the data selects */
    for (int a = 0; a < stage->space; a++)
        if (!tir_is_parallel(stage, a)) last = a;
    lib_text order;
    lib_text_init(&order, r->arena);
    rules_nest nest = {.r = r, .stage = stage};
    int64_t inner = 1;
    for (int a = 0; a <= last; a++) {
        lib_text_format(&order, " %s", stage->axis[a].name);
        rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        lib_text_format(&order, " %s", stage->axis[a].name);
    for (int a = last + 1; a < stage->space; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        inner = inner < 0 || extent < 0 ? -1 : inner * extent;
        lib_text_format(&order, " %s", stage->axis[a].name);
    }
    if (!order.length) return true;
    tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data);
    rules_form_tasks(&nest, inner, RULES_TASK_POINTS);
    int v = stage->space - 1;
    if (v <= last || rules_store_stride(r, s, v) != 1) return true;
    int64_t extent = rules_extent(r, &stage->axis[v]), width = rules_lanes(r, s) * VECTORS;
    rules_vectorise(r, stage->name, stage->axis[v].name, extent, width, "vo", "vi");
    return true;
}

/* ---- sort */

/* Is sorting by n^2 comparisons in vectors cheaper than passes over elements and counters (tir/lower_sort.c)? Cycles, measured for lines of 3 to
 * 128 elements of 8 to 64 bits. */
static bool sorts_by_rank(rules *r, const tir_stage *stage) {
    enum { ELEMENT = 4, DIGIT = 8, MOVE = 7, COUNTERS = 160, MOST = 4096 };
    const int64_t n = rules_extent(r, &stage->axis[stage->space]), size = stage->bits > 32 ? 8 : 4;
    const int64_t lanes = r->machine->vector_bytes / size, passes = (stage->bits + DIGIT - 1) / DIGIT;
    const int64_t compare = size == 4 || r->machine->masked ? 3 : 5; /* of two vectors */
    if (n < 0 || n >= MOST) return false;
    const int64_t vectors = (n + lanes - 1) / lanes * (r->machine->half_units ? 2 : 1);
    return tir_choose_yes(r->schedule, stage->name, "rank",
                          n * (vectors * compare + ELEMENT) < passes * (n * MOVE + COUNTERS));
}

void rules_prepare_sorts(rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (stage->removed || stage->kind != TIR_SORT || !sorts_by_rank(r, stage)) continue;
        rules_rewrite(r, "rank %s -> %s %s", stage->name, rules_fresh_name(r, stage->name, "_k"),
                      rules_fresh_name(r, stage->name, "_r"));
        s += 2;
    }
}

bool rules_sort(rules *r, int s) {
    enum { WORK = 32 }; /* work per element, in points of a map */
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind != TIR_SORT) return false;
    rules_nest nest = {.r = r, .stage = stage};
    int64_t n = rules_extent(r, &stage->axis[stage->space]);
    for (int a = 0; a + 1 < stage->space; a++)
        rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
    if (stage->space > 1) rules_form_tasks(&nest, n < 0 ? RULES_TASK_POINTS : n * WORK, RULES_TASK_POINTS);
    return true;
}
