/* Folds. A cumulative fold, whose step combines the state with another value by an associative operator, is cut into pieces if there are
 * too few threads: the pieces' totals are reduced, then folded, and the results are the states with which the pieces begin. Along
 * contiguous memory, a warp takes 32 points at a time by pairwise sums. All other folds: a thread for each free point (rules_maps.c), one
 * point of time after the other. */
#include "targets/cuda/rules.h"

/* Cuts the fold into pieces, and schedules the fold over the pieces' totals. */
static void cut(cuda_rules *r, const char *name, int64_t piece, bool along) {
    const tir_stage *fold = cuda_stage_of(r, name);
    const char *totals = cuda_fresh_name(r, name, "total"), *before = cuda_fresh_name(r, name, "before");
    cuda_rewrite(r, "block %s.%s %lld -> %s %s piece in", name, fold->axis[fold->space].name, (long long)piece, totals,
                 before);
    if ((along || !cuda_prepare_columns(r, totals, true)) && !cuda_prepare_reduction(r, totals))
        cuda_prepare_points(r, totals);
    if (!cuda_is_done(r, totals)) lib_vec_push(r->arena, &r->roots, totals);
    if (!cuda_prepare_scan(r, before)) lib_vec_push(r->arena, &r->roots, before);
}

/* Prepares a fold with threads along the axis along which its step stores contiguously. False: that is the last axis, or short, and threads
 * along all free points do as well (rules_maps.c). */
static bool prepare_across(cuda_rules *r, const char *name) {
    enum { SECTOR = 8 }; /* elements that memory moves at once */
    const int s = cuda_stage_named(r, name);
    const tir_stage *fold = &r->region->stages.data[s];
    const tir_step_axes *axes = tir_fold_axes(r->arena, r->region, s);
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        tir_access store;
        if (step->removed || step->fold != s) continue;
        tir_store_access(r->region, q, &store);
        for (int d = 0; d < step->space; d++) {
            const int along = axes[q].along[d];
            if (store.stride[d] != 1 || along < 0 || along >= fold->space - 1) continue;
            if (cuda_extent(r, &fold->axis[along]) < SECTOR) continue;
            cuda_scan scan = {.fold = name, .axis = along};
            cuda_mark_done(r, name);
            lib_vec_push(r->arena, &r->scans, scan);
            return true;
        }
    }
    return false;
}

static void schedule_across(cuda_rules *r, const cuda_scan *scan) {
    enum { BLOCK = 256 };
    const tir_stage *fold = cuda_stage_of(r, scan->fold);
    int64_t lanes = 1;
    while (lanes < BLOCK && lanes < cuda_extent(r, &fold->axis[scan->axis])) lanes *= 2;
    tir_schedule_add(r->schedule, "split %s.%s %lld -> block lane mask", scan->fold, fold->axis[scan->axis].name,
                     (long long)lanes);
    const uint32_t inner = tir_axis_bit(scan->axis) | tir_axis_bit(fold->space);
    tir_schedule_add(r->schedule, "order %s:%s block lane %s", scan->fold, tir_loops_but(r->arena, fold, inner),
                     fold->axis[fold->space].name);
    for (int a = 0; a < fold->space; a++)
        if (a != scan->axis) tir_schedule_add(r->schedule, "par %s.%s", scan->fold, fold->axis[a].name);
    tir_schedule_add(r->schedule, "par %s.block", scan->fold);
    tir_schedule_add(r->schedule, "thread %s.lane", scan->fold);
}

bool cuda_prepare_scan(cuda_rules *r, const char *name) {
    const int s = cuda_stage_named(r, name);
    const tir_stage *fold = &r->region->stages.data[s];
    int time, step = tir_cumulative_step(r->region, s, &time);
    if (step < 0 || fold->space + 3 > DLC_MAX_RANK) return false;
    const bool along = tir_is_contiguous_along(r->region, step, time);
    const int64_t length = cuda_extent(r, &fold->axis[fold->space]),
                  points = tir_points(r->region, fold, 0, fold->space);
    if (length < 0 || points < 1) return false;
    const tir_numbers pieces = {TIR_WARP, length, TIR_WARP};
    const int64_t by_rule = cuda_model_piece(r->machine, points, length, along);
    const int64_t piece = tir_choose_number(r->schedule, name, "piece", pieces, by_rule);
    const bool cuts = piece < length;
    if (cuts) cut(r, name, piece, along);
    if (!along) return prepare_across(r, name);
    if (length < TIR_WARP) return false;
    cuda_scan scan = {.fold = name, .levels = cuda_fresh_name(r, name, "pairs")};
    cuda_rewrite(r, "scan %s.%s %d -> %s block lane", name, cuts ? "in" : fold->axis[fold->space].name, TIR_WARP,
                 scan.levels);
    cuda_mark_done(r, name);
    lib_vec_push(r->arena, &r->scans, scan);
    return true;
}

void cuda_schedule_scan(cuda_rules *r, const cuda_scan *scan) {
    enum { WARPS = 8 };
    if (!scan->levels) {
        schedule_across(r, scan);
        return;
    }
    const int s = cuda_stage_named(r, scan->fold);
    const tir_stage *fold = &r->region->stages.data[s];
    const char *name = scan->fold, *row = NULL;
    for (int a = 0; a < fold->space; a++) {
        const char *fused = row ? lib_arena_format(r->arena, "row%d", a) : fold->axis[a].name;
        if (row) tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> %s", name, row, name, fold->axis[a].name, fused);
        row = fused;
    }
    if (row) {
        tir_schedule_add(r->schedule, "split %s.%s %d -> set warp mask", name, row, WARPS);
        tir_schedule_add(r->schedule, "par %s.set", name);
        tir_schedule_add(r->schedule, "thread %s.warp", name);
    }
    tir_schedule_add(r->schedule, "store %s reg", name);
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (step->removed || step->fold != s) continue;
        const int lane = tir_scan_axis(r->region, q);
        tir_schedule_add(r->schedule, "store %s reg", step->name);
        if (lane >= 0) tir_schedule_add(r->schedule, "thread %s.%s", step->name, step->axis[lane].name);
    }
}
