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

/* Bytes, each counted once and in whole lines, that an access touches while the innermost `count` loops around it run. */
static double footprint(const cost_nest *nest, const cost_access *a, int count) {
    step steps[2 * COST_LOOPS];
    double run = a->bytes, pieces = 1;
    int used = 0, loop = a->loop;
    for (int i = 0; i < count && loop > 0; i++, loop = nest->loops.data[loop].parent) {
        const double trips = nest->loops.data[loop].trips;
        const bool jumps = a->pace[i].run > 0 && a->pace[i].run < trips;
        used = add_step(steps, used, a->pace[i].stride, jumps ? a->pace[i].run : trips);
        if (jumps) used = add_step(steps, used, a->pace[i].jump, trips / a->pace[i].run);
    }
    for (int i = 0; i < used; i++) { /* ascending: parts that overlap or share lines are one run */
        if (steps[i].stride <= fmax(run, nest->line))
            run += steps[i].stride * (steps[i].trips - 1);
        else
            pieces *= steps[i].trips;
    }
    double bytes = pieces * fmax(run, nest->line), all = nest->buffer_bytes[a->buffer];
    return bytes < all ? bytes : all;
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
    /* by buffer */
    double *reads, *writes;
    double size, write_cost;
    bool last;
} traffic;

/* Bytes, each counted once, of all accesses inside `loop`, in one iteration (`whole` false) or all iterations of it. `moved`: bytes moved
 * to and from the level, written lines being written back. */
static double union_bytes(traffic *t, int loop, bool whole, bool moved) {
    const cost_nest *nest = t->nest;
    double sum = 0;
    memset(t->reads, 0, nest->buffers * sizeof *t->reads);
    memset(t->writes, 0, nest->buffers * sizeof *t->writes);
    for (uint32_t i = 0; i < nest->accesses.count; i++) {
        const cost_access *a = &nest->accesses.data[i];
        int below = loops_below(nest, a, loop);
        if (below < 0) continue;
        double bytes = footprint(nest, a, below + whole);
        if (a->store)
            t->writes[a->buffer] += moved && t->last && a->past_caches ? bytes / t->write_cost : bytes;
        else
            t->reads[a->buffer] += bytes;
    }
    for (uint32_t b = 0; b < nest->buffers; b++) {
        double all = nest->buffer_bytes[b], read = t->reads[b] < all ? t->reads[b] : all,
               written = t->writes[b] < all ? t->writes[b] : all;
        if (moved)
            sum += (read > written ? read : 0) + written * t->write_cost;
        else
            sum += read > written ? read : written;
    }
    return sum;
}

/* Fraction of the `touched` bytes that a cache of `size` bytes does not hold until the next run; caches are not strictly LRU. */
static double missing(double size, double touched) {
    return touched > size ? 1 - 0.7 * size / touched : 0;
}

/* Bytes moved per run of a kernel whose data fits the cache. Operands that another kernel has just written are still there. */
static double traffic_of_runs(traffic *t, double touched) {
    const double handed = t->nest->handed, missed = missing(t->size, touched + t->nest->beside);
    double moved = missed > 0 ? union_bytes(t, 0, false, true) : 0;
    return moved > handed ? (moved - handed) * missed : 0;
}

/* Bytes moved by all iterations of `loop`, in one iteration of the loop around it. */
static double loop_traffic(traffic *t, int loop) {
    const cost_nest *nest = t->nest;
    double touched = union_bytes(t, loop, false, false), sum = 0;
    if (touched <= t->size) return loop > 0 ? union_bytes(t, loop, true, true) : traffic_of_runs(t, touched);
    for (uint32_t l = (uint32_t)loop + 1; l < nest->loops.count; l++)
        if (nest->loops.data[l].parent == loop) sum += loop_traffic(t, (int)l);
    for (uint32_t i = 0; i < nest->accesses.count; i++)
        if (nest->accesses.data[i].loop == loop) sum += nest->line;
    return sum * (loop > 0 ? nest->loops.data[loop].trips : missing(t->size, touched + nest->beside));
}

void cost_traffic(const cost_nest *nest, const tir_machine *machine, double *result) {
    traffic t = {.nest = nest};
    t.reads = LIB_NEW_ARRAY(nest->arena, double, nest->buffers + 1);
    t.writes = LIB_NEW_ARRAY(nest->arena, double, nest->buffers + 1);
    result[0] = 0;
    for (int level = 1; level < TIR_LEVELS; level++) {
        t.size = cost_level_bytes(machine, level - 1);
        t.last = level == TIR_LEVELS - 1;
        t.write_cost = t.last ? 2 : 1; /* a written line is read first and written back later */
        result[level] = loop_traffic(&t, 0);
    }
}
