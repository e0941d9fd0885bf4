/* Folds whose state has axes of its own (factorisations, recurrences over matrices): a block of threads for each point of the fold's free
 * axes, step after step. The threads share the points of each step and of the state; steps are stored in shared memory while there is
 * room. */
#include "targets/cuda/rules.h"

enum { MOST_THREADS = 256 };

/* The largest number of points of a component of the state along its own axes; -1: unknown. */
static int64_t own_points(const cuda_rules *r, const tir_stage *fold) {
    int64_t most = 1;
    for (int c = 0; c < fold->count; c++) {
        const tir_tensor *state = &r->region->tensors.data[fold->tensor[c]];
        const int64_t points = tir_elements(r->region, state, fold->space);
        if (points < 0) return -1;
        if (points > most) most = points;
    }
    return most;
}

/* ---- axes of the fold along which the axes of a step run */

static int time_of(const tir_stage *fold, const tir_stage *step, const tir_step_axes *axes) {
    for (int a = 0; a < step->space; a++)
        if (axes->along[a] == fold->space) return a;
    return -1;
}

/* ---- the rule */

bool cuda_prepare_state(cuda_rules *r, const char *name) {
    enum {
        LEAST = 4 /* points of a step */,
        FILLING = 1024 /* number of folds that keep a multiprocessor busy with a thread each */
    };
    const int s = cuda_stage_named(r, name);
    const tir_stage *fold = &r->region->stages.data[s];
    if (fold->kind != TIR_FOLD || own_points(r, fold) < LEAST) return false;
    const int64_t folds = tir_points(r->region, fold, 0, fold->space);
    if (folds < 1 || cuda_extent(r, &fold->axis[fold->space]) < 1) return false;
    if (folds >= FILLING * (int64_t)r->machine->multiprocessors) return false;
    const tir_step_axes *axes = tir_fold_axes(r->arena, r->region, s);
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (step->removed || step->fold != s) continue;
        if (step->kind != TIR_MAP && step->kind != TIR_REDUCE) return false;
        if (time_of(fold, step, &axes[q]) < 0) return false; /* its points per time step are unknown */
        for (int a = 0; a < step->space + step->reduce; a++)
            if (cuda_extent(r, &step->axis[a]) < 1) return false;
    }
    cuda_mark_done(r, name);
    lib_vec_push(r->arena, &r->states, name);
    return true;
}

/* Schedules threads along a step's own axes; returns the bytes of its result along them. */
static int64_t schedule_step(cuda_rules *r, const tir_stage *step, const tir_step_axes *axes, int64_t threads) {
    const char *run = NULL;
    int64_t points = 1;
    lib_text order;
    lib_text_init(&order, r->arena);
    lib_text_add(&order, "");
    for (int a = 0; a < step->space; a++)
        if (axes->along[a] >= 0) lib_text_format(&order, " %s", step->axis[a].name);
    int own = 0, axis[TIR_MAX_AXES];
    for (int a = 0; a < step->space; a++)
        if (axes->along[a] < 0) axis[own++] = a;
    for (int i = 0; i < own; i++) points *= cuda_extent(r, &step->axis[axis[i]]);
    /* The own axes are neighbours, so that they can be fused. */
    const bool last = own > 0 && axis[own - 1] == axis[0] + own - 1;
    if (points > 1 && last) {
        run = tir_fuse_axes(r->schedule, step, axis[0], axis[own - 1]);
        if (points > threads) {
            tir_schedule_add(r->schedule, "split %s.%s %lld -> turn lane mask", step->name, run, (long long)threads);
            run = "lane";
            lib_text_add(&order, " turn");
        }
        lib_text_format(&order, " %s", run);
        for (int a = step->space; a < step->space + step->reduce; a++)
            lib_text_format(&order, " %s", step->axis[a].name);
        tir_schedule_add(r->schedule, "order %s:%s", step->name, order.data);
        tir_schedule_add(r->schedule, "thread %s.%s", step->name, run);
    }
    int64_t bytes = 0;
    for (int c = 0; c < step->count; c++)
        bytes += points * (int64_t)lib_dtype_size(r->region->tensors.data[step->tensor[c]].dtype);
    return bytes;
}

static void store(cuda_rules *r, const char *name, int64_t bytes, int64_t *room) {
    const bool fits = bytes <= *room;
    if (fits) *room -= bytes;
    tir_schedule_add(r->schedule, "store %s %s", name, fits ? "shared" : "local");
}

void cuda_schedule_state(cuda_rules *r, const char *name) {
    enum { ROOM = 40 << 10 };
    const int s = cuda_stage_named(r, name);
    const tir_stage *fold = cuda_stage_of(r, name);
    const tir_step_axes *axes = tir_fold_axes(r->arena, r->region, s);
    const int64_t points = own_points(r, fold);
    const int64_t threads = cuda_least(cuda_power_above(points), MOST_THREADS);
    int64_t room = ROOM, bytes = 0;
    for (int a = 0; a < fold->space; a++) tir_schedule_add(r->schedule, "par %s.%s", name, fold->axis[a].name);
    tir_schedule_add(r->schedule, "thread %s state %lld", name, (long long)threads);
    for (int c = 0; c < fold->count; c++)
        bytes += points * (int64_t)lib_dtype_size(r->region->tensors.data[fold->tensor[c]].dtype);
    store(r, name, bytes, &room);
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *step = &r->region->stages.data[q];
        if (step->removed || step->fold != s) continue;
        store(r, step->name, schedule_step(r, step, &axes[q], threads), &room);
    }
}
