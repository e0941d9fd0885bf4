/* Schedule rules of the cuda target: region -> schedule text, by analysis of accesses alone; no rule depends on operators. In order:
 *   inline   cheap maps go into their readers
 *   collapse axes that all accesses run straight through become one
 *   sort     merges of runs, those of up to 1,024 elements on chip
 *   chain    contraction, rows, contraction: a fold over blocks of keys
 *   tile     contractions: tiles of a block in shared memory, of a thread in registers
 *   window   short sums of overlapping neighbours: a thread has all that it reads in registers
 *   rows     a root with reductions of its rows: a warp or a block works on each row, which stays on chip
 *   points   the rest: a thread for each point, or for a vector of neighbours */
#include "targets/cuda/rules.h"
#include "targets/cuda/cuda.h"
#include "tir/inline_cost.h"

void cuda_rewrite(cuda_rules *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tir_rewrite_line(r->schedule, r->region, format, arguments);
    va_end(arguments);
}

bool cuda_try_rewrite(cuda_rules *r, bool *good, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tir_region *after = *good ? tir_try_line_v(r->schedule, r->region, format, arguments) : NULL;
    va_end(arguments);
    if (after) r->region = after;
    return *good = after != NULL;
}

int cuda_axis_of(const tir_stage *stage, int32_t id) {
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].id == id) return a;
    return -1;
}

int cuda_tile_axis_of(const cuda_tile *tile, int32_t id) {
    for (int a = 0; a < tile->count; a++)
        if (tile->axis[a].id == id) return a;
    return -1;
}

const char *cuda_fresh_name(const cuda_rules *r, const char *base, const char *suffix) {
    return tir_region_fresh_name(r->arena, r->region, base, lib_arena_format(r->arena, "_%s", suffix));
}

bool cuda_is_done(const cuda_rules *r, const char *name) {
    const int stage = cuda_stage_named(r, name);
    for (uint32_t i = 0; i < r->done.count; i++)
        if (cuda_is_stage(r, stage, r->done.data[i])) return true;
    return stage < 0;
}

void cuda_mark_done(cuda_rules *r, const char *stage) {
    lib_vec_push(r->arena, &r->done, stage);
}

const char *cuda_tensor_name(const cuda_rules *r, const char *stage) {
    return r->region->tensors.data[r->region->stages.data[cuda_stage_named(r, stage)].tensor[0]].name;
}

const char *cuda_copy_root(cuda_rules *r, const char *root) {
    const tir_stage *stage = cuda_stage_of(r, root);
    const tir_tensor *needed = NULL;
    int count = 0;
    if (stage->kind != TIR_REDUCE) return root;
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *tensor = &r->region->tensors.data[stage->tensor[c]];
        const bool used =
            tensor->output || tir_is_read_by_others(r->region, cuda_stage_named(r, root), stage->tensor[c]);
        count += used;
        if (used) needed = tensor;
    }
    if (count != 1) return root;
    const char *name = cuda_fresh_name(r, needed->name, "out");
    cuda_mark_done(r, root);
    cuda_rewrite(r, "copy %s -> %s", needed->name, name);
    return name;
}

/* ---- inline */

/* Is the map read once by a stage that has no more points, or is it a few cheap operations? */
static bool worth_inlining(const tir_inline_cost *cost) {
    enum { CHEAP = 4 };
    if (cost->most > 2) return false;
    return (!cost->heavy && cost->operations <= CHEAP && cost->loads <= 4) || (cost->loads == 1 && !cost->more);
}

static void inline_maps(cuda_rules *r) {
    for (int s = (int)r->region->stages.count - 1; s >= 0; s--) {
        const char *name = r->region->stages.data[s].name;
        if (!tir_may_inline(r->region, s)) continue;
        const tir_inline_cost cost = tir_inline_cost_of(r->region, s, false);
        if (!cost.loads || cost.stateful || cost.stepped) continue;
        if (tir_choose_yes(r->schedule, name, "inline", worth_inlining(&cost))) cuda_rewrite(r, "inline %s", name);
    }
}

/* ---- all */

/* If the stage adds up pieces: records that it is computed inside the map that reads it. */
static bool goes_inside(cuda_rules *r, const char *name) {
    const int stage = cuda_stage_named(r, name);
    bool sum = false;
    for (uint32_t i = 0; i < r->sums.count; i++) sum = sum || cuda_is_stage(r, stage, r->sums.data[i]);
    const int reader = sum ? cuda_reader_of(r, stage) : -1;
    if (reader < 0) return false;
    cuda_inside inside = {name, r->region->stages.data[reader].name};
    lib_vec_push(r->arena, &r->inside, inside);
    return true;
}

static void prepare(cuda_rules *r, const char *root) {
    const int stage = cuda_stage_named(r, root);
    for (uint32_t i = 0; i < r->sums.count; i++)
        if (cuda_is_stage(r, stage, r->sums.data[i])) return;
    if (cuda_is_done(r, root) || cuda_prepare_reduction(r, root) || cuda_prepare_rows(r, root)) return;
    if (!cuda_prepare_scan(r, root) && !cuda_prepare_state(r, root) && !cuda_prepare_scatter(r, root) &&
        !cuda_prepare_transposition(r, root))
        cuda_prepare_points(r, root);
}

/* The schedule of a region with an empty stage: a thread for each point of every other stage, since tiles and rows of size 0 are
 * undefined. */
static void schedule_plainly(cuda_rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        bool points = !stage->removed && stage->fold < 0 && stage->kind != TIR_SORT;
        for (int a = 0; a < stage->space; a++) points = points && cuda_extent(r, &stage->axis[a]) != 0;
        if (points) cuda_schedule_points(r, (int)s);
    }
}

/* Makes all rewrites, which precede all loops. Roots choose their kind first, from the last one backward. */
static void prepare_all(cuda_rules *r) {
    inline_maps(r);
    cuda_rewrite(r, "collapse");
    cuda_prepare_sorts(r);
    for (uint32_t s = r->region->stages.count; s-- > 0;)
        if (s < r->region->stages.count && !cuda_is_done(r, r->region->stages.data[s].name))
            cuda_prepare_chain(r, (int)s);
    const tir_region *region = r->region;
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed && region->stages.data[s].fold < 0)
            lib_vec_push(r->arena, &r->roots, region->stages.data[s].name);
    for (uint32_t n = r->roots.count; n-- > 0;)
        if (!cuda_is_done(r, r->roots.data[n])) cuda_prepare_tile(r, cuda_stage_named(r, r->roots.data[n]));
    for (uint32_t n = r->roots.count; n-- > 0;)
        if (!cuda_is_done(r, r->roots.data[n])) cuda_prepare_window(r, r->roots.data[n]);
    for (uint32_t n = r->roots.count; n-- > 0;) prepare(r, r->roots.data[n]);
}

/* Adds the loops of all that was prepared. */
static void schedule_all(cuda_rules *r) {
    for (uint32_t n = 0; n < r->sorts.count; n++) cuda_schedule_sort(r, &r->sorts.data[n]);
    for (uint32_t n = 0; n < r->chains.count; n++) cuda_schedule_chain(r, &r->chains.data[n]);
    for (uint32_t t = 0; t < r->tiles.count; t++) cuda_schedule_tile(r, &r->tiles.data[t]);
    for (uint32_t w = 0; w < r->windows.count; w++) cuda_schedule_window(r, &r->windows.data[w]);
    for (uint32_t g = 0; g < r->rows.count; g++) cuda_schedule_rows(r, &r->rows.data[g]);
    for (uint32_t g = 0; g < r->columns.count; g++) cuda_schedule_columns(r, &r->columns.data[g]);
    for (uint32_t n = 0; n < r->scans.count; n++) cuda_schedule_scan(r, &r->scans.data[n]);
    for (uint32_t n = 0; n < r->states.count; n++) cuda_schedule_state(r, r->states.data[n]);
    for (uint32_t n = 0; n < r->scatters.count; n++) cuda_schedule_scatter(r, &r->scatters.data[n]);
    for (uint32_t t = 0; t < r->transpositions.count; t++) cuda_schedule_transposition(r, &r->transpositions.data[t]);
    for (uint32_t n = 0; n < r->roots.count; n++)
        if (!cuda_is_done(r, r->roots.data[n]) && !goes_inside(r, r->roots.data[n]))
            cuda_schedule_points(r, cuda_stage_named(r, r->roots.data[n]));
}

void cuda_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)threads;
    cuda_rules r = {.machine = machine, .region = region, .schedule = schedule, .arena = schedule->arena};
    if (tir_has_empty_axis(region)) {
        schedule_plainly(&r);
        return;
    }
    prepare_all(&r);
    schedule_all(&r);
}
