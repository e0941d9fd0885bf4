/* Scatters. Updates of one element are made in their order, so each element belongs to one thread. If updates have elements along some
 * axis: a block has a tile of the result in shared memory, its threads run along that axis, and all updates are read one after the other.
 * Otherwise each thread has one element in a register. If there are too many elements for that to pay, or if the result shares the buffer
 * of its initial values, threads run along the axis only (rules_maps.c). */
#include "targets/cuda/rules.h"

/* Lays out the tile with the axis of threads innermost: neighbouring threads access neighbouring words, whichever elements they update. */
static void lay_out_tile(cuda_rules *r, const cuda_scatter *s) {
    const tir_stage *sums = cuda_stage_of(r, s->sums);
    if (s->lane == sums->space - 1) return;
    cuda_rewrite(r, "layout %s (%s%s)", cuda_tensor_name(r, s->sums),
                 tir_dimensions_but(r->arena, sums, tir_axis_bit(s->lane)), sums->axis[s->lane].name);
}

/* Sets the axes of the scatter and their points. False: an extent is unknown or 0, or data selects no axis. */
static bool measure_axes(cuda_rules *r, const tir_stage *stage, cuda_scatter *scatter) {
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        const int64_t extent = cuda_extent(r, &stage->axis[a]);
        const bool along = a < stage->space && tir_is_parallel(stage, a);
        if (extent < 1) return false;
        if (a >= stage->space)
            scatter->updates *= extent;
        else if (along)
            scatter->along *= extent;
        else if (scatter->tiled >= 0)
            scatter->other_places *= extent;
        if (along) scatter->lane = a;
        if (a < stage->space && !along && scatter->tiled < 0) {
            scatter->tiled = a;
            scatter->places = extent;
        }
    }
    return scatter->tiled >= 0;
}

bool cuda_prepare_scatter(cuda_rules *r, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    cuda_scatter scatter = {
        .sums = name, .lane = -1, .tiled = -1, .updates = 1, .places = 1, .other_places = 1, .along = 1};
    if (stage->kind != TIR_SCATTER || stage->in_place || stage->count != 1 || stage->space == 0) return false;
    if (!measure_axes(r, stage, &scatter)) return false;
    scatter.size = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    scatter.lanes = scatter.lane < 0 ? 1 : cuda_extent(r, &stage->axis[scatter.lane]);
    const bool pays = cuda_model_scatter(r->machine, &scatter);
    if (scatter.tile < 1 || !tir_choose_yes(r->schedule, name, "owned", pays)) return false;
    scatter.tile = tir_choose_power(r->schedule, name, "tile", 1, scatter.tile, scatter.tile);
    scatter.root = cuda_fresh_name(r, name, "out");
    cuda_rewrite(r, "copy %s -> %s", r->region->tensors.data[stage->tensor[0]].name, scatter.root);
    if (scatter.lane >= 0) lay_out_tile(r, &scatter);
    cuda_mark_done(r, name);
    cuda_mark_done(r, scatter.root);
    lib_vec_push(r->arena, &r->scatters, scatter);
    return true;
}

/* Schedules a scatter with a thread for each element of the result. */
static void schedule_places(cuda_rules *r, const cuda_scatter *s) {
    enum { BLOCK = 256 };
    const tir_stage *root = cuda_stage_of(r, s->root);
    const char *last = tir_fuse_axes(r->schedule, root, 0, root->space - 1);
    tir_schedule_add(r->schedule, "split %s.%s %d -> block lane mask", s->root, last, BLOCK);
    tir_schedule_add(r->schedule, "par %s.block", s->root);
    tir_schedule_add(r->schedule, "thread %s.lane", s->root);
    tir_schedule_add(r->schedule, "at %s %s.lane", s->sums, s->root);
    tir_schedule_add(r->schedule, "store %s reg", s->sums);
}

void cuda_schedule_scatter(cuda_rules *r, const cuda_scatter *s) {
    const tir_stage *root = cuda_stage_of(r, s->root), *sums = cuda_stage_of(r, s->sums);
    lib_text order;
    if (s->lane < 0) {
        schedule_places(r, s);
        return;
    }
    tir_schedule_add(r->schedule, "split %s.%s %lld -> tile within mask", s->root, root->axis[s->tiled].name,
                     (long long)s->tile);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> block lane mask", s->root, root->axis[s->lane].name,
                     (long long)s->lanes);
    lib_text_init(&order, r->arena);
    for (int a = 0; a < root->space; a++)
        if (a != s->lane && tir_is_parallel(sums, a)) {
            lib_text_format(&order, " %s", root->axis[a].name);
            tir_schedule_add(r->schedule, "par %s.%s", s->root, root->axis[a].name);
        }
    lib_text_add(&order, " tile block lane within");
    for (int a = 0; a < root->space; a++)
        if (a != s->tiled && !tir_is_parallel(sums, a)) lib_text_format(&order, " %s", root->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s", s->root, order.data);
    tir_schedule_add(r->schedule, "par %s.tile %s.block", s->root, s->root);
    tir_schedule_add(r->schedule, "thread %s.lane", s->root);
    tir_schedule_add(r->schedule, "at %s %s.block", s->sums, s->root);
    tir_schedule_add(r->schedule, "store %s shared", s->sums);
    const char *lane = sums->axis[s->lane].name;
    tir_schedule_add(r->schedule, "order %s: %s%s", s->sums, lane,
                     tir_loops_but(r->arena, sums, tir_axis_bit(s->lane)));
    tir_schedule_add(r->schedule, "thread %s.%s", s->sums, lane);
}
