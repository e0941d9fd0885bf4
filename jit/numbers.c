/* One kernel for regions that differ only in numbers, as layers of a quantised network do in their scales. The numbers in which regions of one
 * plan differ become inputs of these regions, constants of one element, which their kernel reads from memory; a region without another of its
 * form keeps all its numbers in the code, and so do regions for which the target's rules would write another schedule. Results are the
 * same bits: a number is an operand of the same operations (graph/numbers.c). */
#include "jit/internal.h"

/* A region with numbers. */
typedef struct numbered {
    graph_region *region;
    graph_id *numbers;
    uint32_t count;
    /* hash of its computation if all numbers are inputs */
    lib_hash128 form;
    /* next one of the same form; UINT32_MAX: none */
    uint32_t next;
    bool first;
} numbered;

typedef struct sharer {
    jit_build *build;
    lib_vec(numbered) regions;
} sharer;

/* The region's computation with these numbers as inputs; valid until the next one. */
static tir_region *build_form(const jit_build *build, const graph_region *region, uint32_t count,
                              const graph_id *numbers) {
    lib_arena *arena = build->passing ? build->passing : build->work;
    if (build->passing) lib_arena_reset(build->passing);
    graph_region with = *region;
    graph_region_read_numbers(arena, &with, count, numbers);
    tir_region *form = graph_region_build(arena, build->bound, &with, jit_is_constant, (void *)build);
    form->excess_precision = !build->program->options.no_excess_precision;
    return form;
}

/* Lists the regions with numbers, and links those of one form. */
static void find_forms(sharer *s, graph_regions *regions) {
    lib_arena *work = s->build->work;
    lib_map latest = {0}; /* by form: the last region of that form */
    for (uint32_t r = 0; r < regions->count; r++) {
        numbered new = {.region = &regions->data[r], .next = UINT32_MAX, .first = true};
        if (new.region->kind == GRAPH_REGION_KERNEL)
            new.count = graph_region_numbers(work, s->build->bound, new.region, &new.numbers);
        if (!new.count) continue;
        new.form = tir_region_hash(build_form(s->build, new.region, new.count, new.numbers));
        for (uint32_t at = lib_map_first(&latest, new.form.low); at != LIB_MAP_END && new.first;
             at = lib_map_next(&latest, new.form.low, at)) {
            numbered *before = &s->regions.data[latest.slots[at].value];
            if (memcmp(&before->form, &new.form, sizeof new.form) != 0 || before->next != UINT32_MAX) continue;
            before->next = s->regions.count;
            new.first = false;
        }
        lib_map_insert(work, &latest, new.form.low, s->regions.count);
        lib_vec_push(work, &s->regions, new);
    }
}

/* differs[k]: do the regions of this form differ in number k? Returns in how many numbers they do. */
static uint32_t find_differences(const sharer *s, const numbered *first, bool *differs) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < first->count; k++) {
        for (uint32_t i = first->next; i != UINT32_MAX && !differs[k]; i = s->regions.data[i].next)
            differs[k] = s->regions.data[i].numbers[k] != first->numbers[k];
        count += differs[k];
    }
    return count;
}

/* Removes from the region's list the numbers that are equal in all regions of its form. */
static void keep_differing(numbered *region, const bool *differs) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < region->count; k++)
        if (differs[k]) region->numbers[kept++] = region->numbers[k];
    region->count = kept;
}

static lib_text schedule_of(const jit_build *build, const graph_region *region, uint32_t count,
                            const graph_id *numbers) {
    const dlc_context *context = build->program->context;
    tir_region *form = build_form(build, region, count, numbers);
    tir_schedule schedule;
    tir_schedule_init(&schedule, form->arena);
    context->target->schedule(&context->machine, context->width, tir_region_canonical(form->arena, form), &schedule);
    return schedule.text;
}

/* Do the target's rules schedule the kernel that reads the numbers as they do the one that has them in its code? */
static bool is_scheduled_alike(const jit_build *build, const numbered *region) {
    if (!build->program->context->target->schedule) return true;
    const lib_text text = schedule_of(build, region->region, 0, NULL);
    const char *literal = lib_arena_format(build->work, "%.*s", (int)text.length, text.length ? text.data : "");
    const lib_text other = schedule_of(build, region->region, region->count, region->numbers);
    return other.length == text.length && (!other.length || memcmp(other.data, literal, other.length) == 0);
}

static void share_form(sharer *s, uint32_t first) {
    lib_arena *work = s->build->work;
    bool *differs = LIB_NEW_ARRAY(work, bool, s->regions.data[first].count);
    if (!find_differences(s, &s->regions.data[first], differs)) return;
    for (uint32_t i = first; i != UINT32_MAX; i = s->regions.data[i].next) keep_differing(&s->regions.data[i], differs);
    if (!is_scheduled_alike(s->build, &s->regions.data[first])) return;
    for (uint32_t i = first; i != UINT32_MAX; i = s->regions.data[i].next) {
        const numbered *region = &s->regions.data[i];
        graph_region_read_numbers(work, region->region, region->count, region->numbers);
    }
}

void jit_share_numbers(jit_build *build, graph_regions *regions) {
    sharer s = {.build = build};
    find_forms(&s, regions);
    for (uint32_t i = 0; i < s.regions.count; i++)
        if (s.regions.data[i].first) share_form(&s, i);
}
