/* Where values live during a run. Every value that a region writes is an output buffer of the run or a piece of the plan's arena;
 * two values may share bytes when their lifetimes (in regions) do not meet. Views share their operand's place. Largest first, at
 * the lowest offset that is free over the whole lifetime: near optimal for layer chains, quadratic in the number of values. */
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

/* The value whose bytes `value` shows (through views). */
static graph_id root_of(const jit_build *build, graph_id value) {
    while (build->view_of[value]) value = build->view_of[value];
    return value;
}

static void find_views(jit_build *build) {
    build->view_of = LIB_NEW_ARRAY(build->work, graph_id, build->bound->values.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind == GRAPH_REGION_VIEW) build->view_of[region->outputs[0]] = region->inputs[0];
    }
}

/* Outputs that a region writes go straight to the run's output buffer; the others are copied at the end. */
static void place_outputs(jit_build *build) {
    const graph *g = build->bound;
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        graph_id root = root_of(build, g->outputs.data[o]);
        if (build->place[root].kind == JIT_PLACE_NONE && build->produced[root])
            build->place[root] = (jit_place){.kind = JIT_PLACE_OUTPUT, .number = (int32_t)o};
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

static uint32_t collect_values(jit_build *build, interval *intervals) {
    uint32_t *number = LIB_NEW_ARRAY(build->work, uint32_t, build->bound->values.count + 1), count = 0;
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind != GRAPH_REGION_VIEW; o++) {
            graph_id value = region->outputs[o];
            if (build->place[value].kind != JIT_PLACE_NONE) continue;
            intervals[count] = (interval){value, r, r, round_up((int64_t)jit_value_bytes(build, value)), 0, NULL};
            number[value] = ++count;
        }
        for (uint32_t i = 0; i < region->input_count; i++) {
            uint32_t n = number[root_of(build, region->inputs[i])];
            if (n) intervals[n - 1].end = r;
        }
    }
    for (uint32_t o = 0; o < build->bound->outputs.count; o++) { /* copied after the last region */
        uint32_t n = number[root_of(build, build->bound->outputs.data[o])];
        if (n) intervals[n - 1].end = build->regions.count;
    }
    return count;
}

void jit_plan_memory(jit_build *build) {
    find_views(build);
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
    for (uint32_t v = 1; v < build->bound->values.count; v++)
        if (build->view_of[v]) build->place[v] = build->place[root_of(build, v)];
}
