/* The cost model of the cpu target: what instructions and bytes cost on a machine (rates), and what a kernel costs (from its loop IR).
 * Rates are in cycles and follow from machine facts alone, so that rules that compare alternatives by them are reproducible. */
#ifndef TARGETS_CPU_COST_H
#define TARGETS_CPU_COST_H

#include "targets/target.h"

enum { COST_LEVELS = 4 /* L1, L2, L3, memory */ };

/* What a core does per cycle. A vector is machine->vector_bytes long; narrower values count like whole vectors. */
typedef struct cost_rates {
    /* units are half a vector wide: a whole vector takes two cycles */
    bool halves;
    /* floating-point vectors: multiply, add, fused */
    double fma;
    /* vector instructions of any kind */
    double vector;
    /* vectors */
    double load;
    /* vectors */
    double store;
    /* instructions of any kind */
    double issue;
    /* cycles until the result of a floating-point instruction can be used */
    double latency;
    /* instructions that can run ahead of a stalled one */
    double window;
    /* bytes of the level; the last is unlimited */
    double size[COST_LEVELS];
    /* bytes per cycle from the level */
    double bandwidth[COST_LEVELS];
} cost_rates;

void cost_rates_of(const tir_machine *machine, cost_rates *rates);

/* Of `rows` lines, `row_bytes` apart, how many map to one set of L1 in excess of its ways. */
int64_t cost_crowd(const tir_machine *machine, int64_t rows, int64_t row_bytes);

/* Cycles that a step of a reduction loses because `rows` streams, `row_bytes` apart, map to the same sets of L1: if there are more
 * streams than ways, each line is evicted before its next element is read. */
double cost_conflicts(const tir_machine *machine, int64_t rows, int64_t row_bytes);

/* Work of a kernel's loops, over all iterations. */
typedef struct cost_work {
    /* numbers of instructions */
    double fma, vector, load, store, instructions;
    /* all data in L1: throughput and dependence chains, loop by loop */
    double issue_cycles;
    /* bytes transferred from the level; [0] is not counted */
    double traffic[COST_LEVELS];
    /* operations on elements in the most expensive kind of instruction; number of those instructions */
    double operations, counted;
    double tasks, phases;
} cost_work;

/* cost.c: one run on one thread; asked NULL: of a kernel without parameters that runs alone. Allocates in `arena`. */
void cost_count(lib_arena *arena, const tir_machine *machine, const tir_kernel *kernel, const target_work *asked,
                cost_work *work);
/* Cycles of a run on `threads` threads. */
double cost_cycles(const tir_machine *machine, const cost_work *work, int threads);

/* target.cost, target.cycles_per_ns */
void cpu_cost(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work, int count,
              target_cost *cost);
double cpu_cycles_per_ns(target_device *device);

/* cost_memory.c: loops and accesses of a kernel as a tree, and the bytes that cross each level of memory. */
enum { COST_LOOPS = 24 }; /* around a statement; deeper ones are not distinguished */

typedef struct cost_loop {
    /* -1: none */
    int parent;
    double trips, entries;
} cost_loop;

/* Distance between the elements that an access reaches in consecutive iterations of a loop. */
typedef struct cost_pace {
    /* bytes from one iteration to the next; COST_IRREGULAR: depends on data */
    double stride;
    /* iterations at this stride; the next run begins `jump` bytes after the beginning of this one. 0: all */
    double run;
    double jump;
} cost_pace;

typedef struct cost_access {
    /* innermost loop around it */
    int loop;
    uint32_t buffer;
    /* of an element */
    double bytes;
    bool store, past_caches;
    /* number of loops around it, listed below from the innermost outwards */
    int count;
    cost_pace pace[COST_LOOPS];
} cost_access;
#define COST_IRREGULAR 1e30

typedef struct cost_nest {
    lib_arena *arena;
    /* [0] stands for runs of the kernel */
    lib_vec(cost_loop) loops;
    lib_vec(cost_access) accesses;
    /* by buffer */
    double *buffer_bytes;
    uint32_t buffers;
    /* see target_work */
    double beside, handed;
} cost_nest;

void cost_traffic(const cost_nest *nest, const cost_rates *rates, double *traffic);

#endif
