/* Rewrites for rows on chip (rules_rows.c): a reduction along a row that is contiguous is divided into lanes, and the lanes are added by a
 * tree. */
#include "targets/cpu/rules.h"

/* Does the operand depend on a reduction axis? */
static bool is_walked(const tir_stage *stage, const rules_access *access) {
    bool walked = false;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) walked = walked || access->stride[a] != 0;
    return walked;
}

/* Do vectors along the space axis load whole ones of all operands that are walked? */
static bool allows_vectors(const tir_stage *stage, const rules_access *access, int count, int axis) {
    bool any = false, all = true;
    for (int i = 0; i < count; i++) {
        if (!is_walked(stage, &access[i])) continue;
        any = any || access[i].stride[axis] == 1;
        all = all && (access[i].stride[axis] == 0 || access[i].stride[axis] == 1);
    }
    return any && all;
}

/* Accesses that vectors along the axis do not load whole, nor as one value. */
static int gathered_along(const rules_access *access, int count, int axis) {
    int gathered = 0;
    for (int i = 0; i < count; i++) gathered += access[i].stride[axis] != 0 && !rules_in_line(&access[i], axis);
    return gathered;
}

/* The reduction axis whose points are contiguous, in either direction, in an access and as many others as possible, if no space axis allows
 * vectors; -1: none. */
static int lane_axis(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = -1, gathered = 0;
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || !stage->reduce) return -1;
    for (int a = 0; a < stage->space; a++)
        if (rules_extent(r, &stage->axis[a]) != 1 && allows_vectors(stage, access, count, a)) return -1;
    for (int i = 0; i < count; i++)
        for (int a = stage->space; a < stage->space + stage->reduce; a++) {
            const int others = gathered_along(access, count, a);
            if (!rules_in_line(&access[i], a) || (axis >= 0 && others > gathered)) continue;
            axis = a;
            gathered = others;
        }
    return axis >= 0 && rules_is_short_row(r, s, rules_extent(r, &stage->axis[axis])) ? -1 : axis;
}

void rules_prepare_rows(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_role role = rules_role_of(r, s);
    bool wanted = role == RULES_NO_PART || role == RULES_CHUNK;
    wanted = wanted && !(stage->fold >= 0 ? rules_is_contraction(r, s) : rules_tileable(r, s));
    if (wanted && rules_prepare_interleaved(r, s)) return;
    int axis = wanted ? lane_axis(r, s) : -1;
    if (axis < 0) return;
    const bool varies = rules_extent(r, &stage->axis[axis]) < 0; /* then a short row takes a single step */
    int64_t extent = rules_extent_limit(r, &stage->axis[axis]), lanes = rules_lanes(r, s), count = lanes;
    while (count < 4 * lanes && (varies ? count < extent : count * 2 <= extent)) count *= 2;
    if (extent > 0 && extent < lanes) {
        count = 4;
        while (count < extent) count *= 2;
    }
    const char *name = stage->name;
    const char *part = rules_fresh_name(r, name, "_p");
    if (rules_is_contraction(r, s)) rules_set_role(r, part, RULES_LANES);
    rules_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", name, stage->axis[axis].name, (long long)count, part);
    rules_rewrite(r, "tree %s.lane", name);
}
