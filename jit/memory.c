/* Where values live during a run. Every value that a region writes is an output buffer of the run or a piece of the plan's arena;
 * two values may share bytes when their lifetimes (in regions) do not meet. Values that others hold (sharing.c) come along. Largest
 * first, at the lowest offset that is free over the whole lifetime: near optimal for layer chains, quadratic in the number of values. */
#include "jit/internal.h"

typedef struct interval {
    graph_id value;      /* 0: scratch of one region */
    uint32_t begin, end; /* regions, inclusive */
    int64_t bytes, offset;
    int64_t *place; /* scratch: where the offset goes */
} interval;

static int64_t round_up(int64_t bytes) {
    return (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
}

/* A home that a region writes goes straight to the run's output buffer when it is all of an output; other outputs are copied at
 * the end. */
static void place_outputs(jit_build *build) {
    const graph *g = build->bound;
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        int64_t offset;
        graph_id home = jit_home(build, g->outputs.data[o], &offset);
        if (build->place[home].kind != JIT_PLACE_NONE || !build->produced[home] || offset) continue;
        if (jit_value_bytes(build, home) != jit_value_bytes(build, g->outputs.data[o])) continue;
        build->place[home] = (jit_place){.kind = JIT_PLACE_OUTPUT, .number = (int32_t)o};
    }
}

static int by_size(const void *a, const void *b) {
    const interval *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : 0;
}

static int by_offset(const void *a, const void *b) {
    const interval *x = *(interval *const *)a, *y = *(interval *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Lowest offset at which `bytes` fit between the placed intervals that live at the same time. */
static int64_t find_gap(const interval *all, uint32_t placed, const interval *wanted, interval **meeting) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < placed; i++)
        if (all[i].begin <= wanted->end && wanted->begin <= all[i].end && all[i].bytes)
            meeting[count++] = (interval *)&all[i];
    qsort(meeting, count, sizeof *meeting, by_offset);
    int64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (meeting[i]->offset - at >= wanted->bytes) break;
        if (meeting[i]->offset + meeting[i]->bytes > at) at = meeting[i]->offset + meeting[i]->bytes;
    }
    return at;
}

/* Lifetimes of homes: from the first region that writes into one to the last that reads there. */
static uint32_t collect_values(jit_build *build, interval *intervals) {
    uint32_t *number = LIB_NEW_ARRAY(build->work, uint32_t, build->bound->values.count + 1), count = 0;
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind != GRAPH_REGION_VIEW; o++) {
            graph_id home = jit_home(build, region->outputs[o], NULL);
            if (build->place[home].kind != JIT_PLACE_NONE) continue;
            if (!number[home]) {
                intervals[count] = (interval){home, r, r, round_up((int64_t)jit_value_bytes(build, home)), 0, NULL};
                number[home] = ++count;
            }
            intervals[number[home] - 1].end = r;
        }
        for (uint32_t i = 0; i < region->input_count; i++) {
            uint32_t n = number[jit_home(build, region->inputs[i], NULL)];
            if (n) intervals[n - 1].end = r;
        }
    }
    for (uint32_t o = 0; o < build->bound->outputs.count; o++) { /* copied after the last region */
        uint32_t n = number[jit_home(build, build->bound->outputs.data[o], NULL)];
        if (n) intervals[n - 1].end = build->regions.count;
    }
    return count;
}

/* Values that lie in others. */
static void place_linked(jit_build *build) {
    for (uint32_t v = 1; v < build->bound->values.count; v++) {
        if (!build->links[v].base) continue;
        int64_t offset;
        jit_place place = build->place[jit_home(build, v, &offset)];
        if (place.kind == JIT_PLACE_CONSTANT)
            place.pointer = place.pointer ? (char *)place.pointer + offset : NULL;
        else
            place.offset += offset;
        build->place[v] = place;
    }
}

void jit_plan_memory(jit_build *build) {
    place_outputs(build);
    uint32_t limit = build->bound->values.count + build->scratch_count + 1;
    interval *intervals = LIB_NEW_ARRAY(build->work, interval, limit);
    interval **meeting = LIB_NEW_ARRAY(build->work, interval *, limit);
    uint32_t count = collect_values(build, intervals);
    for (uint32_t s = 0; s < build->scratch_count; s++) {
        const jit_scratch *scratch = &build->scratch[s];
        intervals[count++] =
            (interval){0, scratch->region, scratch->region, round_up(scratch->bytes), 0, scratch->offset};
    }
    qsort(intervals, count, sizeof *intervals, by_size);
    int64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        interval *in = &intervals[i];
        in->offset = find_gap(intervals, i, in, meeting);
        if (in->offset + in->bytes > total) total = in->offset + in->bytes;
        if (in->value)
            build->place[in->value] = (jit_place){.kind = JIT_PLACE_ARENA, .offset = in->offset};
        else
            *in->place = in->offset;
    }
    build->plan->arena_bytes = total;
    /* A device's arena is taken for each run. */
    build->plan->shares_arena = total >= JIT_ARENA_SHARED || build->program->context->target->runtime != NULL;
    place_linked(build);
}
