/* Bytes that cross each level of memory. If the footprint of one iteration of a loop fits a cache, the next iteration hits there, and all
 * iterations together load each line once; otherwise each iteration loads its lines anew. The outermost loop stands for repeated runs: a
 * kernel whose data fits, together with what other kernels touch in between, finds it cached by the previous run. */
#include "targets/cpu/cost.h"

#include <math.h>

/* A number of elements and the distance between them. */
typedef struct step {
    double stride, trips;
} step;

static int add_step(step *steps, int count, double stride, double trips) {
    stride = fabs(stride);
    if (stride == 0 || trips <= 1) return count;
    int at = count;
    for (; at > 0 && steps[at - 1].stride > stride; at--) steps[at] = steps[at - 1];
    steps[at] = (step){stride, trips};
    return count + 1;
}

/* The access' steps along a loop, at most two, inner one first. */
static int steps_of(const cost_pace *pace, double trips, step pair[2]) {
    const bool jumps = pace->run > 0 && pace->run < trips;
    int count = add_step(pair, 0, pace->stride, jumps ? pace->run : trips);
    if (!jumps || pace->jump == 0) return count;
    pair[count] = (step){fabs(pace->jump), trips / pace->run};
    return count + 1;
}

/* The bytes that an access touches while some of the loops around it run, each byte counted once: `pieces` runs of `run` contiguous bytes.
 * `share`: a page of memory has a fixed number of cache lines; the part of these line positions at which the access' lines lie. Lines at one
 * position map to one set of L1, and, since pages are placed at random, to one of few sets of L2. */
typedef struct extent {
    double run, pieces, share;
} extent;

enum { LINES = 64 }; /* offsets of lines in a page that are told apart */

/* The offsets, as bits, of the lines at `some` offsets repeated `trips` times, a stride apart. */
static uint64_t repeat_lines(const cost_nest *nest, uint64_t some, double stride, double trips) {
    uint64_t all = some;
    if (stride >= COST_IRREGULAR || stride != floor(stride)) return UINT64_MAX;
    for (int64_t i = 1; (double)i < trips && i <= LINES && ~all; i++) {
        const int by = (int)(fmod((double)i * stride, nest->page) / nest->page * (double)LINES);
        all |= by ? some << by | some >> (LINES - by) : some;
    }
    return all;
}

static extent extent_of(const cost_nest *nest, const cost_access *a, int count) {
    step steps[2 * COST_LOOPS], pair[2];
    extent e = {.run = a->bytes, .pieces = 1};
    int used = 0, loop = a->loop, at = 0;
    for (int i = 0; i < count && loop > 0; i++, loop = nest->loops.data[loop].parent) {
        const int more = steps_of(&a->pace[i], nest->loops.data[loop].trips, pair);
        for (int k = 0; k < more; k++) used = add_step(steps, used, pair[k].stride, pair[k].trips);
    }
    /* ascending: parts that overlap or share lines are one run */
    for (; at < used && steps[at].stride <= fmax(e.run, nest->line); at++)
        e.run += steps[at].stride * (steps[at].trips - 1);
    const double lines = e.run / nest->page * (double)LINES;
    uint64_t some = lines < (double)LINES - 1 ? (UINT64_C(2) << (int)lines) - 1 : UINT64_MAX;
    step row = {0, 1}; /* equidistant runs, which a further step may overlap: the rows of a window that moves by rows */
    for (; at < used; at++) {
        const double apart = row.stride > 0 ? steps[at].stride / row.stride : 0;
        if (steps[at].stride <= fmax(e.run, nest->line))
            e.run += steps[at].stride * (steps[at].trips - 1);
        else if (apart == floor(apart) && apart >= 1 && apart <= row.trips)
            row.trips += apart * (steps[at].trips - 1);
        else
            e.pieces *= row.trips, row = steps[at];
        some = repeat_lines(nest, some, steps[at].stride, steps[at].trips);
    }
    e.pieces *= row.trips;
    for (; some; some &= some - 1) e.share += 1.0 / (double)LINES;
    return e;
}

/* Bytes in whole lines. */
static double bytes_of(const cost_nest *nest, const cost_access *a, const extent *e) {
    const double bytes = e->pieces * fmax(e->run, nest->line), all = nest->buffer_bytes[a->buffer];
    return bytes < all ? bytes : all;
}

/* Stores of tiles: adds to *run the runs that it has reached, of those beside it. */
static void merge_streams(step *beside, int *count, double *run, double *streams) {
    for (int k = 0; k < *count;) {
        if (beside[k].stride > *run) {
            k++;
            continue;
        }
        *run += beside[k].stride * (beside[k].trips - 1);
        *streams /= beside[k].trips;
        beside[k] = beside[--*count];
        k = 0;
    }
}

/* Bytes that the access reads or writes one after the other, all loops run, while it has no more streams than the hardware prefetches.
 * *loops: number of loops around it, up to the one that begins more of them. */
static double stream_of(const cost_nest *nest, const cost_access *a, int *loops) {
    enum { STREAMS = 32 };
    double run = a->bytes, streams = 1;
    step beside[2 * COST_LOOPS];
    int loop = a->loop, count = 0;
    for (*loops = 0; *loops < a->count && loop > 0; loop = nest->loops.data[loop].parent) {
        step pair[2];
        const int more = steps_of(&a->pace[*loops], nest->loops.data[loop].trips, pair);
        ++*loops;
        for (int k = 0; k < more; k++) {
            if (pair[k].stride <=
                fmax(run, nest->line)) /* a clipped loop's trips are a mean: the longest leave no gaps */
                run += pair[k].stride * (ceil(pair[k].trips) - 1);
            else if ((streams *= pair[k].trips) > (double)STREAMS)
                return run;
            else
                beside[count++] = pair[k];
        }
        if (a->store) merge_streams(beside, &count, &run, &streams);
    }
    return run;
}

/* Number of loops around the access that are inside `loop`; -1: the access is not inside it. */
static int loops_below(const cost_nest *nest, const cost_access *a, int loop) {
    int count = 0;
    for (int at = a->loop; at >= 0; at = nest->loops.data[at].parent, count++)
        if (at == loop) return count;
    return -1;
}

typedef struct traffic {
    const cost_nest *nest;
    const tir_machine *machine;
    /* of memory: traffic from this level */
    int level;
    /* by buffer */
    double *reads, *writes, *slow;
    /* by access: how much longer than sequential bytes its bytes take */
    double *slowness;
    /* by access: what it touches in the loops that are counted */
    extent *here;
    /* by access: see find_likes */
    int *like;
    /* capacity of the level above */
    double size, write_cost;
    /* that level has sets of known size; this one is the last */
    bool sets, last;
} traffic;

/* Does the access store a tile of a reduction, of so few lines that they arrive while the next tile is computed? */
static bool waits_for_none(const cost_nest *nest, const cost_access *a, const tir_rates *rates) {
    int loop = a->loop, inside = 0;
    bool computes = false;
    for (; loop > 0 && !nest->loops.data[loop].serial_inside; loop = nest->loops.data[loop].parent) inside++;
    for (uint32_t q = 0; q < nest->loops.count && a->store; q++)
        computes = computes || (nest->loops.data[q].parent == loop && nest->loops.data[q].serial_inside);
    if (!computes) return false;
    const extent tile = extent_of(nest, a, inside);
    return tile.pieces * ceil(tile.run / nest->line) <= rates->misses;
}

/* How much longer than sequential bytes the access' bytes take from this level: short pieces that are far apart, and even more those whose
 * lines evict each other from L1 before their neighbours are read. */
static double slowness_of(const traffic *t, const cost_access *a) {
    const cost_nest *nest = t->nest;
    const tir_rates *rates = &t->machine->rates;
    int loops;
    const double stream = stream_of(nest, a, &loops), least = fmax(stream, nest->line);
    const extent e = extent_of(nest, a, loops);
    if (stream >= nest->page || nest->prefetched[a->buffer] || a->past_caches || waits_for_none(nest, a, rates))
        return 1;
    const bool crowded = e.share < 1 && e.pieces * least > e.share * (double)t->machine->l1;
    return rates->bandwidth[t->level] / rates->distant[t->level] * (crowded ? 1 + 2 * nest->line / least : 1);
}

/* The buffer's part of union_bytes, from the sums over its accesses in t->reads, t->writes and t->slow. */
static double union_of_buffer(const traffic *t, uint32_t b, bool moved) {
    double all = t->nest->buffer_bytes[b], read = t->reads[b] < all ? t->reads[b] : all,
           written = t->writes[b] < all ? t->writes[b] : all, both = t->reads[b] + t->writes[b];
    if (moved) return ((read > written ? read : 0) + written * t->write_cost) * (both > 0 ? 1 + t->slow[b] / both : 1);
    return read > written ? read : written;
}

/* Does access i, inside of `loop`, touch the same bytes as an earlier one, in another of the loops inside `loop` (rows that are read in several
 * passes)? Their extents are in t->here. */
static bool is_met(const traffic *t, int i, int loop) {
    const cost_access *access = t->nest->accesses.data, *a = &access[i];
    const int below = loops_below(t->nest, a, loop), around = a->count - below;
    for (int k = t->like[i]; k >= 0; k = t->like[k]) {
        const int there = loops_below(t->nest, &access[k], loop);
        if (there < 0 || access[k].loop == a->loop || access[k].count - there != around) continue;
        if (t->here[k].run == t->here[i].run && t->here[k].pieces == t->here[i].pieces &&
            memcmp(&access[k].pace[there], &a->pace[below], (size_t)around * sizeof *a->pace) == 0)
            return true;
    }
    return false;
}

/* Sets like[i]: the last access before i of the same kind, with the same first address; -1: none. */
static void find_likes(const cost_nest *nest, int *like) {
    const cost_access *access = nest->accesses.data;
    for (int i = 0; i < (int)nest->accesses.count; i++) {
        int k = access[i].first == COST_UNKNOWN ? -1 : i - 1;
        while (k >= 0 && (access[k].buffer != access[i].buffer || access[k].first != access[i].first ||
                          access[k].store != access[i].store))
            k--;
        like[i] = k;
    }
}

/* Bytes, each counted once, of all accesses inside `loop`, in one iteration (`whole` false) or all iterations of it. `moved`: bytes moved
 * to and from the level, written lines being written back, slow ones counted more; else the room that they need in the cache above. */
static double union_bytes(traffic *t, int loop, bool whole, bool moved) {
    const cost_nest *nest = t->nest;
    double sum = 0, crowded = 0;
    for (uint32_t b = 0; b < nest->buffers; b++) t->reads[b] = t->writes[b] = t->slow[b] = 0;
    for (uint32_t i = 0; i < nest->accesses.count; i++) {
        const cost_access *a = &nest->accesses.data[i];
        int below = loops_below(nest, a, loop);
        if (below < 0) continue;
        t->here[i] = extent_of(nest, a, below + whole);
        if (is_met(t, (int)i, loop)) continue;
        const double bytes = bytes_of(nest, a, &t->here[i]);
        if (moved) t->slow[a->buffer] += bytes * (t->slowness[i] - 1);
        if (t->sets) crowded = fmax(crowded, bytes / t->here[i].share);
        if (a->store)
            t->writes[a->buffer] += moved && t->last && a->past_caches ? bytes / t->write_cost : bytes;
        else
            t->reads[a->buffer] += bytes;
    }
    for (uint32_t b = 0; b < nest->buffers; b++) sum += union_of_buffer(t, b, moved);
    return moved ? sum : fmax(sum, crowded);
}

/* Fraction of the `touched` bytes that a cache of `size` bytes does not hold until the next run; caches are not strictly LRU. */
static double missing(double size, double touched) {
    return touched > size ? 1 - 0.7 * size / touched : 0;
}

/* Bytes that the kernel moves in each run, of the `moved` that it would move if nothing of the `touched` bytes were left of the run before.
 * Operands that another kernel has just written are still there. */
static double traffic_of_runs(traffic *t, double touched, double moved) {
    const cost_nest *nest = t->nest;
    const double missed = missing(t->size, touched + nest->beside);
    double read = 0, slow = 0; /* of what is only read: bytes, and how many more the slow ones count */
    if (nest->handed == 0) return moved * missed;
    union_bytes(t, 0, false, true);
    for (uint32_t b = 0; b < nest->buffers; b++) {
        const double bytes = fmin(t->reads[b], nest->buffer_bytes[b]);
        if (t->writes[b] > 0 || bytes == 0) continue;
        read += bytes;
        slow += bytes * t->slow[b] / t->reads[b];
    }
    const double handed = fmin(nest->handed, read) * (read > 0 ? 1 + slow / read : 0);
    return fmax(moved - handed, 0) * missed;
}

/* Bytes moved by all iterations of `loop`, in one iteration of the loop around it. A loop nest without serial loops
 * moves each line once: its iterations keep shared lines in registers, as a transposition does. */
static double loop_traffic(traffic *t, int loop) {
    const cost_nest *nest = t->nest;
    double touched = union_bytes(t, loop, false, false), sum = 0;
    const bool once = touched <= t->size || !nest->loops.data[loop].serial_inside;
    if (once && loop > 0) return union_bytes(t, loop, true, true);
    if (once) return traffic_of_runs(t, touched, union_bytes(t, 0, false, true));
    for (uint32_t l = (uint32_t)loop + 1; l < nest->loops.count; l++)
        if (nest->loops.data[l].parent == loop) sum += loop_traffic(t, (int)l);
    for (uint32_t i = 0; i < nest->accesses.count; i++)
        if (nest->accesses.data[i].loop == loop) sum += nest->line * t->slowness[i];
    return loop > 0 ? sum * nest->loops.data[loop].trips : traffic_of_runs(t, touched, sum);
}

void cost_traffic(const cost_nest *nest, const tir_machine *machine, double *result) {
    traffic t = {.nest = nest, .machine = machine};
    t.reads = LIB_NEW_ARRAY(nest->arena, double, nest->buffers + 1);
    t.writes = LIB_NEW_ARRAY(nest->arena, double, nest->buffers + 1);
    t.slow = LIB_NEW_ARRAY(nest->arena, double, nest->buffers + 1);
    t.here = LIB_NEW_ARRAY(nest->arena, extent, nest->accesses.count + 1);
    t.like = LIB_NEW_ARRAY(nest->arena, int, nest->accesses.count + 1);
    find_likes(nest, t.like);
    t.slowness = LIB_NEW_ARRAY(nest->arena, double, nest->accesses.count + 1);
    result[0] = 0;
    for (int level = 1; level < TIR_LEVELS; level++) {
        t.level = level;
        t.size = cost_level_bytes(machine, level - 1);
        t.sets = (level == 1 && machine->l1_ways) || (level == 2 && machine->l2_ways);
        t.last = level == TIR_LEVELS - 1;
        t.write_cost = t.last ? 2 : 1; /* a written line is read first and written back later */
        for (uint32_t i = 0; i < nest->accesses.count; i++) t.slowness[i] = slowness_of(&t, &nest->accesses.data[i]);
        result[level] = loop_traffic(&t, 0);
    }
}
