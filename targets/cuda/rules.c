/* Schedule rules of the cuda target: region -> schedule text, by analysis of accesses alone; no rule knows an operator. */
#include "targets/cuda/rules.h"
#include "targets/cuda/cuda.h"

enum { BLOCK = 256 };

static int64_t extent_of(const rules *r, const tir_axis *axis) {
    int64_t extent;
    return tir_is_const(r->region->pool, axis->extent, &extent) ? extent : -1;
}

/* Updates of a scatter run along the space axes that the index leaves alone. */
static bool runs_along(const tir_stage *stage, int axis) {
    return stage->kind != TIR_SCATTER || stage->index[axis] == stage->axis[axis].var;
}

/* A thread for each point of the result; what is reduced or carried runs in order inside. Right for every stage. */
static void schedule_points(rules *r, const tir_stage *stage) {
    const char *axis[TIR_MAX_AXES], *name = stage->name;
    int count = 0;
    bool constant = true, whole = true;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++) {
        if (!runs_along(stage, a)) {
            whole = false; /* what is fused must be neighbours */
            continue;
        }
        constant = constant && extent_of(r, &stage->axis[a]) >= 0;
        axis[count++] = stage->axis[a].name;
    }
    if (count == 0) return;
    const char *last = axis[count - 1];
    if (constant && whole) {
        for (int a = count - 1; a > 0; a--) {
            const char *fused = lib_arena_format(r->arena, "f%d", a);
            tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> %s", name, axis[a - 1], name, last, fused);
            last = fused;
        }
        count = 1;
    }
    tir_schedule_add(r->schedule, "split %s.%s %d -> block lane mask", name, last, BLOCK);
    if (!whole) {
        for (int a = 0; a + 1 < count; a++) lib_text_format(&order, " %s", axis[a]);
        lib_text_add(&order, " block lane");
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (a >= stage->space || !runs_along(stage, a)) lib_text_format(&order, " %s", stage->axis[a].name);
        tir_schedule_add(r->schedule, "order %s:%s", name, order.data);
    }
    for (int a = 0; a + 1 < count; a++) tir_schedule_add(r->schedule, "par %s.%s", name, axis[a]);
    tir_schedule_add(r->schedule, "par %s.block", name);
    tir_schedule_add(r->schedule, "thread %s.lane", name);
}

void cuda_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)threads;
    rules r = {.machine = machine, .region = region, .schedule = schedule, .arena = schedule->arena};
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed && region->stages.data[s].fold < 0)
            schedule_points(&r, &region->stages.data[s]);
}
