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
    /* of the first one of its form: the last one; of others UINT32_MAX */
    uint32_t last;
} numbered;

typedef struct sharer {
    jit_build *build;
    /* keeps decisions; NULL: nothing does */
    const graph_fuse_costs *costs;
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

/* The first region of the form; NULL: none yet. */
static numbered *find_first(sharer *s, const lib_map *firsts, const lib_hash128 *form) {
    for (uint32_t at = lib_map_first(firsts, form->low); at != LIB_MAP_END; at = lib_map_next(firsts, form->low, at)) {
        numbered *first = &s->regions.data[firsts->slots[at].value];
        if (memcmp(&first->form, form, sizeof *form) == 0) return first;
    }
    return NULL;
}

/* Lists the regions with numbers, and links those of one form. */
static void find_forms(sharer *s, graph_regions *regions) {
    lib_arena *work = s->build->work;
    lib_map firsts = {0}; /* by form */
    for (uint32_t r = 0; r < regions->count; r++) {
        const uint32_t here = s->regions.count;
        numbered new = {.region = &regions->data[r], .next = UINT32_MAX, .last = UINT32_MAX};
        if (new.region->kind == GRAPH_REGION_KERNEL)
            new.count = graph_region_numbers(work, s->build->bound, new.region, &new.numbers);
        if (!new.count) continue;
        new.form = tir_region_hash(build_form(s->build, new.region, new.count, new.numbers));
        numbered *first = find_first(s, &firsts, &new.form);
        if (first) {
            s->regions.data[first->last].next = here;
            first->last = here;
        } else {
            new.last = here;
            lib_map_insert(work, &firsts, new.form.low, here);
        }
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

/* The schedule by the target's rules, in the memory of `build`; NULL: they have none. */
static const char *schedule_of(const jit_build *build, const graph_region *region, uint32_t count,
                               const graph_id *numbers) {
    const dlc_context *context = build->program->context;
    tir_region *form = build_form(build, region, count, numbers);
    lib_arena *arena = form->arena;
    lib_scope *outer = arena->scope, scope;
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    arena->scope = &scope;
    if (LIB_ENTER(&scope))
        context->target->schedule(&context->machine, context->width, tir_region_canonical(arena, form), &schedule);
    arena->scope = outer;
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(outer, &scope.error);
    if (scope.error.status != DLC_OK) return NULL;
    const int length = (int)schedule.text.length;
    return lib_arena_format(build->work, "%.*s", length, length ? schedule.text.data : "");
}

/* Do the target's rules schedule the kernel that reads the numbers as they do the one that has them in its code? */
static bool is_scheduled_alike(const jit_build *build, const numbered *region) {
    if (!build->program->context->target->schedule) return true;
    const char *literal = schedule_of(build, region->region, 0, NULL);
    const char *read = schedule_of(build, region->region, region->count, region->numbers);
    return literal && read && strcmp(literal, read) == 0;
}

/* The same as far as it is known from before: scheduling a contraction twice takes a millisecond. */
static bool may_share(const sharer *s, const numbered *region, const bool *differs, uint32_t numbers) {
    const dlc_context *context = s->build->program->context;
    const struct {
        lib_hash128 form, machine;
        uint64_t width;
    } asked = {region->form, context->machine_hash, (uint64_t)context->width};
    lib_hash128 question = lib_hash_bytes(differs, numbers * sizeof *differs, (lib_hash128){numbers, 4});
    uint32_t alike;
    question = lib_hash_bytes(&asked, sizeof asked, question);
    if (s->costs && s->costs->recall(s->costs->user, &question, &alike) && alike <= 1) return alike;
    alike = is_scheduled_alike(s->build, region);
    if (s->costs) s->costs->record(s->costs->user, &question, alike);
    return alike;
}

static void share_form(sharer *s, uint32_t first) {
    lib_arena *work = s->build->work;
    const uint32_t numbers = s->regions.data[first].count;
    bool *differs = LIB_NEW_ARRAY(work, bool, numbers);
    if (!find_differences(s, &s->regions.data[first], differs)) return;
    for (uint32_t i = first; i != UINT32_MAX; i = s->regions.data[i].next) keep_differing(&s->regions.data[i], differs);
    if (!may_share(s, &s->regions.data[first], differs, numbers)) return;
    for (uint32_t i = first; i != UINT32_MAX; i = s->regions.data[i].next) {
        const numbered *region = &s->regions.data[i];
        graph_region_read_numbers(work, region->region, region->count, region->numbers);
    }
}

void jit_share_numbers(jit_build *build, graph_regions *regions, const graph_fuse_costs *costs) {
    sharer s = {.build = build, .costs = costs};
    find_forms(&s, regions);
    for (uint32_t i = 0; i < s.regions.count; i++)
        if (s.regions.data[i].last != UINT32_MAX) share_form(&s, i);
}
