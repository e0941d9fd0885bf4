/* Names of a region: canonical ones for schedule rules, their hash, and look-up. schedule_show.c translates the text of schedules
 * between canonical and original names. */
#include "tir/region.h"

static void name_axes(tir_region *region, tir_stage *stage) {
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        tir_axis *axis = &stage->axis[a];
        const bool reduce = a >= stage->space;
        axis->name = lib_arena_format(region->arena, "%c%d", reduce ? 'k' : 'i', reduce ? a - stage->space : a);
        axis->id = region->axis_ids++;
        axis->role = TIR_AXIS_PLAIN;
    }
}

tir_region *tir_region_canonical(lib_arena *arena, const tir_region *original) {
    tir_region *region = tir_region_copy(arena, original);
    int inputs = 0;
    region->axis_ids = 0;
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (region->tensors.data[t].stage < 0) region->tensors.data[t].name = lib_arena_format(arena, "x%d", inputs++);
    for (uint32_t s = 0; s < region->stages.count; s++) {
        tir_stage *stage = &region->stages.data[s];
        stage->name = lib_arena_format(arena, "s%u", s);
        name_axes(region, stage);
        for (int c = 0; c < stage->count; c++)
            region->tensors.data[stage->tensor[c]].name =
                c ? lib_arena_format(arena, "%sv%d", stage->name, c) : stage->name;
    }
    return region;
}

lib_hash128 tir_region_hash_names(const tir_region *region) {
    lib_hash128 hash = {3, 4};
    for (uint32_t t = 0; t < region->tensors.count; t++)
        hash = lib_hash_bytes(region->tensors.data[t].name, strlen(region->tensors.data[t].name), hash);
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        hash = lib_hash_bytes(stage->name, strlen(stage->name), hash);
        for (int a = 0; a < stage->space + stage->reduce; a++)
            hash = lib_hash_bytes(stage->axis[a].name, strlen(stage->axis[a].name), hash);
    }
    return hash;
}

int tir_region_find_stage(const tir_region *region, const char *name) {
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed && strcmp(region->stages.data[s].name, name) == 0) return (int)s;
    return -1;
}

uint32_t tir_region_find_tensor(const tir_region *region, const char *name) {
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (strcmp(region->tensors.data[t].name, name) == 0) return t;
    return UINT32_MAX;
}

const char *tir_region_fresh_name(lib_arena *arena, const tir_region *region, const char *base, const char *suffix) {
    const char *name = lib_arena_format(arena, "%s%s", base, suffix);
    for (int n = 1; tir_region_has_name(region, name); n++) name = lib_arena_format(arena, "%s%s%d", base, suffix, n);
    return name;
}
