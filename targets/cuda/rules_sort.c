/* Sorts by merging (tir/schedule_sort.c). A block makes the passes up to runs of 1,024 elements in shared memory, for several lines if
 * these are short; each other pass is a phase, with a thread for each element. */
#include "targets/cuda/rules.h"

enum { CHIP_PASSES = 10, BLOCK = 256 };

static const char *pass_name(const cuda_rules *r, const cuda_sort *sort, int pass) {
    return lib_arena_format(r->arena, "%s_%d", sort->name, pass);
}

static const char *search_name(const cuda_rules *r, const char *pass) {
    return lib_arena_format(r->arena, "%s_first", pass);
}

void cuda_prepare_sorts(cuda_rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (stage->removed || stage->kind != TIR_SORT) continue;
        const char *name = stage->name;
        cuda_sort sort = {.name = cuda_fresh_name(r, name, "runs")};
        cuda_rewrite(r, "merge %s -> %s", name, sort.name);
        while (cuda_stage_named(r, pass_name(r, &sort, sort.passes + 1)) >= 0) sort.passes++;
        sort.chip = sort.passes < CHIP_PASSES ? sort.passes : CHIP_PASSES;
        for (int pass = 0; pass <= sort.passes; pass++) {
            const char *made = pass_name(r, &sort, pass);
            cuda_mark_done(r, made);
            if (pass) cuda_mark_done(r, search_name(r, made));
        }
        lib_vec_push(r->arena, &r->sorts, sort);
        s = (uint32_t)cuda_stage_named(r, name);
    }
}

/* An axis of a pass, and how many of its points a block has. */
typedef struct sort_axis {
    const char *name;
    /* most points of a block */
    int64_t points;
    bool varies;
} sort_axis;

/* Threads run along the axes, fastest along the last one, as far as there are threads; the other points are iterations of loops inside
 * `around`. The thread that has an element searches for its position. */
static void share_points(cuda_rules *r, const char *pass, const char *around, int count, const sort_axis *axis) {
    const char *lane[3];
    int64_t room = BLOCK;
    lib_text order;
    lib_text_init(&order, r->arena);
    lib_text_format(&order, "%s", around);
    for (int a = count - 1; a >= 0; a--) {
        const int64_t threads = cuda_least(axis[a].points, room);
        for (room /= threads; room & (room - 1);)
            room &= room - 1; /* runs and lines are powers of two: tiles divide them */
        lane[a] = axis[a].name;
        if (threads == axis[a].points && !axis[a].varies) continue;
        const char *turn = lib_arena_format(r->arena, "%s_turn", axis[a].name);
        lane[a] = lib_arena_format(r->arena, "%s_lane", axis[a].name);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask%s", pass, axis[a].name, (long long)threads, turn,
                         lane[a], axis[a].varies ? " full" : "");
        lib_text_format(&order, " %s", turn);
    }
    for (int a = 0; a < count; a++) lib_text_format(&order, " %s", lane[a]);
    tir_schedule_add(r->schedule, "order %s:%s", pass, order.data);
    for (int a = 0; a < count; a++) tir_schedule_add(r->schedule, "thread %s.%s", pass, lane[a]);
    const char *search = search_name(r, pass);
    if (cuda_stage_named(r, search) < 0) return;
    tir_schedule_add(r->schedule, "at %s %s.%s", search, pass, lane[count - 1]);
    tir_schedule_add(r->schedule, "store %s reg", search);
}

static sort_axis place_axis(cuda_rules *r, const char *pass, int64_t span) {
    const int64_t places = cuda_extent(r, &cuda_stage_of(r, pass)->axis[2]);
    return (sort_axis){"place", places < 0 ? span : places, places < 0};
}

static void schedule_chip(cuda_rules *r, const cuda_sort *sort) {
    const char *root = pass_name(r, sort, sort->chip);
    const int64_t span = INT64_C(1) << sort->chip, lines = cuda_extent(r, &cuda_stage_of(r, root)->axis[1]);
    int64_t block_lines = 1;
    while (sort->chip == sort->passes && block_lines * span < 1 << CHIP_PASSES && (lines < 0 || block_lines < lines))
        block_lines *= 2;
    tir_schedule_add(r->schedule, "split %s.line %lld -> lines row mask full", root, (long long)block_lines);
    share_points(r, root, " run lines", 2, (sort_axis[]){{"row", block_lines, false}, place_axis(r, root, span)});
    tir_schedule_add(r->schedule, "par %s.run %s.lines", root, root);
    for (int pass = sort->chip - 1; pass >= 0; pass--) {
        const char *name = pass_name(r, sort, pass);
        tir_schedule_add(r->schedule, "at %s %s.lines", name, root);
        tir_schedule_add(r->schedule, "store %s shared", name);
        share_points(r, name, "", 3,
                     (sort_axis[]){{"run", span >> pass, false},
                                   {"line", block_lines, false},
                                   place_axis(r, name, INT64_C(1) << pass)});
    }
}

void cuda_schedule_sort(cuda_rules *r, const cuda_sort *sort) {
    schedule_chip(r, sort);
    for (int pass = sort->chip + 1; pass <= sort->passes; pass++) {
        const char *name = pass_name(r, sort, pass);
        const cuda_inside inside = {search_name(r, name), name};
        lib_vec_push(r->arena, &r->inside, inside);
        cuda_schedule_points(r, cuda_stage_named(r, name));
    }
}
