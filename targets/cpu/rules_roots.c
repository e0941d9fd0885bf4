/* Roots: a family of rules schedules each root and all stages in its loops. Which one is a choice, `loops`, among the families that take
 * the root. */
#include "targets/cpu/rules.h"

typedef struct family {
    const char *name;
    /* false: it refuses the root */
    bool (*schedule)(rules *r, int root);
} family;

/* Families for a root with the stages in its loops. The last two are wide: they also take roots of others. All others exclude one another,
 * so that their order means nothing. */
static const family of_groups[] = {{"fold", rules_fold},
                                   {"scatter", rules_scatter},
                                   {"sort", rules_sort},
                                   {"columns", rules_columns},
                                   {"points", rules_enumerated_tile},
                                   {"lanes", rules_lanes_loops},
                                   {"blocks", rules_blocks},
                                   {"cut", rules_cut_loops},
                                   {"tile", rules_tile},
                                   {"chosen", rules_chosen},
                                   {"interleaved", rules_interleaved_rows},
                                   {"short_rows", rules_short_rows},
                                   {"passes", rules_enumerated_rows},
                                   {"rows", rules_rows}};

/* The same for maps that these leave, whose loops are their own. The last two are wide; `straight` takes any map. */
static const family of_maps[] = {
    {"beside", rules_map_beside},         {"steps", rules_map_steps},      {"panels", rules_map_panels},
    {"transposed", rules_map_transposed}, {"chosen", rules_map_chosen},    {"permuted", rules_map_permuted},
    {"mixed", rules_map_mixed},           {"fused", rules_map_short_rows}, {"straight", rules_map_straight}};

enum { FAMILIES = sizeof of_groups / sizeof *of_groups, OF_MAPS = sizeof of_maps / sizeof *of_maps };

/* Lets the family schedule the root. Returns whether it does; one that refuses leaves no text. */
static bool schedule_by(rules *r, const family *by, int root) {
    const size_t length = r->schedule->text.length;
    if (by->schedule(r, root)) return true;
    tir_schedule_cut(r->schedule, length);
    return false;
}

/* Would the family take the root? Its loops are written into a schedule that is thrown away, with the choices that hold for the real one. */
static bool takes(rules *r, const family *by, int root) {
    tir_schedule *schedule = r->schedule, trial;
    rules_group *group = r->group;
    rules_beside *beside = r->beside.data;
    tir_choices choices = {.arena = r->arena, .pins = schedule->choices->pins, .decided = schedule->choices->decided};
    tir_schedule_init(&trial, r->arena);
    trial.choices = &choices;
    r->schedule = &trial;
    r->group = LIB_NEW_ARRAY(r->arena, rules_group, r->region->stages.count + 1);
    memcpy(r->group, group, r->region->stages.count * sizeof *group);
    r->beside.data = LIB_NEW_ARRAY(r->arena, rules_beside, r->beside.count + 1);
    if (r->beside.count) memcpy(r->beside.data, beside, r->beside.count * sizeof *beside);
    const bool taken = by->schedule(r, root);
    r->schedule = schedule;
    r->group = group;
    r->beside.data = beside;
    return taken;
}

/* Schedules the root by one of the families: the first that takes it, or another one that is pinned. False: none takes it. */
static bool schedule_by_one_of(rules *r, int root, const family *families, int count) {
    const char *stage = r->region->stages.data[root].name, *names[FAMILIES];
    int by[FAMILIES], candidates = 0;
    if (!tir_is_asked(r->schedule, stage, "loops")) {
        for (int i = 0; i < count; i++)
            if (schedule_by(r, &families[i], root)) return true;
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (!takes(r, &families[i], root)) continue;
        names[candidates] = families[i].name;
        by[candidates++] = i;
    }
    if (!candidates) return false;
    return schedule_by(r, &families[by[tir_choose_word(r->schedule, stage, "loops", candidates, names, 0)]], root);
}

/* Schedules a stage for which there is no family: all space axes of a reduction are parallel. */
static void schedule_plain(rules *r, int root) {
    const tir_stage *stage = &r->region->stages.data[root];
    for (int a = 0; a < stage->space && stage->kind == TIR_REDUCE; a++)
        tir_schedule_add(r->schedule, "par %s.%s", stage->name, stage->axis[a].name);
}

void rules_root(rules *r, int root) {
    if (schedule_by_one_of(r, root, of_groups, FAMILIES)) return;
    if (r->region->stages.data[root].kind == TIR_MAP)
        schedule_by_one_of(r, root, of_maps, OF_MAPS);
    else
        schedule_plain(r, root);
}
