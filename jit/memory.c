/* Storage of values during a run. Every value that a region writes is stored in an output buffer of the run or in a part of the
 * plan's arena; two values may share bytes if their lifetimes (in regions) do not overlap. Values stored inside others
 * (sharing.c) move with them. Values are placed one after the other, each at the lowest offset that is free over its whole lifetime: largest
 * first, which is near optimal for chains of layers; if that needs more bytes than are ever live at once, other orders are tried. */
#include "jit/internal.h"

#define ARENA_MOST (INT64_C(1) << 47) /* end of the address space; values and scratch have at most 2^46 bytes */

typedef struct interval {
    /* 0: the interval is scratch of one region */
    graph_id value;
    /* regions, inclusive */
    uint32_t begin, end;
    int64_t bytes, offset;
    /* of scratch: receives the offset */
    int64_t *place;
    /* number of the last query that found it */
    uint32_t found;
} interval;

static int64_t round_up(int64_t bytes) {
    return (bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
}

/* Places homes that are whole outputs in the run's output buffers; other outputs are copied at the end. */
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

/* By bytes times lifetime, largest first. */
static int by_area(const void *a, const void *b) {
    const interval *x = a, *y = b;
    const double one = (double)x->bytes * (x->end - x->begin + 1), two = (double)y->bytes * (y->end - y->begin + 1);
    return one != two ? (one < two ? 1 : -1) : by_size(a, b);
}

static int by_time(const void *a, const void *b) {
    const interval *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : by_size(a, b);
}

static int by_offset(const void *a, const void *b) {
    const interval *x = *(interval *const *)a, *y = *(interval *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Finds the placed intervals that are live at a time: a segment tree over the regions. An interval is stored in the fewest nodes
 * that cover its lifetime. */
typedef struct placed_link {
    interval *interval;
    /* 0: none */
    uint32_t next;
} placed_link;

typedef struct placed_tree {
    lib_arena *arena;
    /* a power of two */
    uint32_t leaves;
    /* [2 * leaves] in links */
    uint32_t *first;
    lib_vec(placed_link) links;
    uint32_t query;
} placed_tree;

static placed_tree new_tree(lib_arena *arena, uint32_t times) {
    placed_tree tree = {.arena = arena, .leaves = 1};
    while (tree.leaves < times) tree.leaves *= 2;
    tree.first = LIB_NEW_ARRAY(arena, uint32_t, 2 * (size_t)tree.leaves);
    lib_vec_push(arena, &tree.links, ((placed_link){0}));
    return tree;
}

static void link_interval(placed_tree *tree, uint32_t node, interval *in) {
    placed_link link = {in, tree->first[node]};
    tree->first[node] = tree->links.count;
    lib_vec_push(tree->arena, &tree->links, link);
}

static void insert_interval(placed_tree *tree, interval *in) {
    uint32_t low = in->begin + tree->leaves, high = in->end + tree->leaves + 1;
    for (; low < high; low /= 2, high /= 2) {
        if (low & 1) link_interval(tree, low++, in);
        if (high & 1) link_interval(tree, --high, in);
    }
}

/* Collects the placed intervals whose lifetime overlaps that of `wanted`, without duplicates. */
static uint32_t find_meeting(placed_tree *tree, const interval *wanted, interval **meeting) {
    uint32_t count = 0;
    tree->query++;
    for (uint32_t low = wanted->begin + tree->leaves, high = wanted->end + tree->leaves; low; low /= 2, high /= 2)
        for (uint32_t node = low; node <= high; node++)
            for (uint32_t at = tree->first[node]; at; at = tree->links.data[at].next) {
                interval *in = tree->links.data[at].interval;
                if (in->found == tree->query) continue;
                in->found = tree->query;
                meeting[count++] = in;
            }
    return count;
}

/* Lowest offset at which the wanted bytes fit between the placed intervals with overlapping lifetimes. */
static int64_t find_gap(placed_tree *tree, const interval *wanted, interval **meeting) {
    uint32_t count = find_meeting(tree, wanted, meeting);
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
                intervals[count] = (interval){home, r, r, round_up((int64_t)jit_value_bytes(build, home)), 0, NULL, 0};
                number[home] = ++count;
            }
            intervals[number[home] - 1].end = r;
        }
        for (uint32_t i = 0; i < region->input_count; i++) {
            uint32_t n = number[jit_home(build, region->inputs[i], NULL)];
            if (n) intervals[n - 1].end = r;
        }
    }
    for (uint32_t o = 0; o < build->bound->outputs.count; o++) { /* outputs are copied after the last region */
        uint32_t n = number[jit_home(build, build->bound->outputs.data[o], NULL)];
        if (n) intervals[n - 1].end = build->regions.count;
    }
    return count;
}

/* Places values that are stored in others. */
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

/* The largest number of bytes live at one time: no placement needs less. (Meaningless if it overflows; such an arena is refused anyway.) */
static int64_t count_live(jit_build *build, const interval *intervals, uint32_t count) {
    build->peak = 0;
    uint64_t *change = LIB_NEW_ARRAY(build->work, uint64_t, (size_t)build->regions.count + 2), live = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        change[intervals[i].begin] += (uint64_t)intervals[i].bytes;
        change[intervals[i].end + 1] -= (uint64_t)intervals[i].bytes;
    }
    for (uint32_t r = 0; r <= build->regions.count; r++) {
        live += change[r];
        if (live <= most) continue;
        most = live;
        build->peak = r;
    }
    return (int64_t)most;
}

typedef int order(const void *a, const void *b);

/* Bytes of the arena with the intervals placed one after the other. */
static int64_t place_all(jit_build *build, interval *intervals, uint32_t count) {
    interval **meeting = LIB_NEW_ARRAY(build->work, interval *, (size_t)count + 1);
    placed_tree tree = new_tree(build->work, build->regions.count + 1);
    int64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        interval *in = &intervals[i];
        in->found = 0;
        in->offset = find_gap(&tree, in, meeting);
        if (in->bytes) insert_interval(&tree, in);
        if (in->offset > ARENA_MOST - in->bytes)
            lib_raise(build->work->scope, DLC_INVALID_ARGUMENT,
                      "the values between kernels need more than 2^47 bytes at these shapes");
        if (in->offset + in->bytes > total) total = in->offset + in->bytes;
    }
    return total;
}

/* The interval that ends highest goes first. */
static void promote_highest(interval *intervals, uint32_t count) {
    uint32_t highest = 0;
    for (uint32_t i = 1; i < count; i++)
        if (intervals[i].offset + intervals[i].bytes > intervals[highest].offset + intervals[highest].bytes)
            highest = i;
    const interval first = intervals[highest];
    memmove(intervals + 1, intervals, highest * sizeof *intervals);
    intervals[0] = first;
}

/* Tries the orders, and then, from the best one on, to place first what was highest, until hardly more than what is live at once is
 * needed. The more intervals, the fewer attempts. */
static int64_t place_best(jit_build *build, interval *intervals, uint32_t count, int64_t live) {
    static order *const orders[] = {by_size, by_area, by_time};
    enum { ORDERS = sizeof orders / sizeof *orders, PROMOTIONS = 128, EFFORT = 1 << 13, NEGLIGIBLE = 64 };
    const uint32_t most = count ? EFFORT / count : 0, promotions = most < PROMOTIONS ? most : PROMOTIONS;
    interval *best = LIB_NEW_ARRAY(build->work, interval, (size_t)count + 1);
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < ORDERS + promotions && least > live + (i < ORDERS ? 0 : live / NEGLIGIBLE); i++) {
        if (i == ORDERS) memcpy(intervals, best, count * sizeof *best);
        if (i < ORDERS)
            qsort(intervals, count, sizeof *intervals, orders[i]);
        else
            promote_highest(intervals, count);
        const int64_t total = place_all(build, intervals, count);
        if (total < least) memcpy(best, intervals, count * sizeof *best);
        if (total < least) least = total;
    }
    memcpy(intervals, best, count * sizeof *best);
    return least;
}

void jit_plan_memory(jit_build *build) {
    place_outputs(build);
    uint32_t limit = build->bound->values.count + build->scratch_count + 1;
    interval *intervals = LIB_NEW_ARRAY(build->work, interval, limit);
    uint32_t count = collect_values(build, intervals);
    for (uint32_t s = 0; s < build->scratch_count; s++) {
        const jit_scratch *scratch = &build->scratch[s];
        const bool always = scratch->region == GRAPH_NONE;
        intervals[count++] = (interval){.begin = always ? 0 : scratch->region,
                                        .end = always ? build->regions.count : scratch->region,
                                        .bytes = round_up(scratch->bytes),
                                        .place = scratch->offset};
    }
    const int64_t live = count_live(build, intervals, count), total = place_best(build, intervals, count, live);
    for (uint32_t i = 0; i < count; i++)
        if (intervals[i].value)
            build->place[intervals[i].value] = (jit_place){.kind = JIT_PLACE_ARENA, .offset = intervals[i].offset};
        else
            *intervals[i].place = intervals[i].offset;
    build->plan->arena_bytes = total;
    build->plan->live_bytes = live;
    /* A device's arena is allocated for each run. */
    build->plan->shares_arena = total >= JIT_ARENA_SHARED || build->program->context->target->runtime != NULL;
    place_linked(build);
}
