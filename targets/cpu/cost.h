/* The cost model of the cpu target: what a kernel costs, from its loop IR and the machine's rates. Cycles follow from machine facts alone,
 * so that rules that compare alternatives by them are reproducible. */
#ifndef TARGETS_CPU_COST_H
#define TARGETS_CPU_COST_H

#include "targets/target.h"

/* Sets the rates, from the other facts (machine.c). */
void cpu_set_rates(tir_machine *machine);

/* ---- caches (cost_time.c) */

/* Capacity of a level of memory; the last one is unlimited. */
double cost_level_bytes(const tir_machine *machine, int level);

/* If `rows` rows are `row_bytes` apart, of each of which so many neighbouring cache lines are used: by how many the lines that map to one set
 * of L1 exceed its ways; 0: they fit. */
int64_t cost_crowd(const tir_machine *machine, int64_t rows, int64_t row_bytes, int lines);

/* Cycles that a step of a reduction loses because `rows` streams, `row_bytes` apart, map to the same sets of L1: a set with more streams
 * than ways loses each line before the line's next element is read. */
double cost_conflicts(const tir_machine *machine, int64_t rows, int64_t row_bytes);

/* ---- work (cost.c) and its time (cost_time.c) */

/* Work of a kernel's loops, over all iterations. */
typedef struct cost_work {
    /* numbers of instructions */
    double fma, vector, load, store, instructions;
    /* cycles if all data were in L1: throughput and dependence chains, loop by loop */
    double issue_cycles;
    /* bytes transferred from the level, those of short pieces that are far apart counted more, as they take longer; [0] is not counted */
    double traffic[TIR_LEVELS];
    /* of the kind of instruction that takes most time: operations on elements; number of instructions */
    double operations, counted;
    double tasks, phases;
    /* of phases of a single task: their cycles, included in issue_cycles; their number */
    double single_cycles, single_phases;
} cost_work;

/* Sets *work to the work of one run on one thread; asked NULL: of a kernel without parameters that runs alone. Allocates in `arena`. */
void cost_count(lib_arena *arena, const tir_machine *machine, const tir_kernel *kernel, const target_work *asked,
                cost_work *work);
/* Cycles of a run on cost->threads threads. */
void cost_cycles(const tir_machine *machine, const cost_work *work, target_cost *cost);

/* target.cost, target.cycles_per_ns */
void cpu_cost(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work, int count,
              target_cost *cost);
double cpu_cycles_per_ns(target_device *device);

/* cost_memory.c: loops and accesses of a kernel as a tree, and the bytes that cross each level of memory. */
enum { COST_LOOPS = 24 }; /* most loops around a statement; deeper ones are not distinguished */

typedef struct cost_loop {
    /* -1: none */
    int parent;
    double trips;
    /* a serial loop is this loop or inside it */
    bool serial_inside;
} cost_loop;

/* How an access advances from one iteration of a loop to the next. */
typedef struct cost_pace {
    /* bytes from one iteration to the next; COST_IRREGULAR: depends on data */
    double stride;
    /* number of iterations at this stride, after which the next such run begins `jump` bytes after the beginning of this one; 0: all
     * iterations */
    double run;
    double jump;
} cost_pace;

typedef struct cost_access {
    /* innermost loop around the access */
    int loop;
    uint32_t buffer;
    /* address in the first iteration of all loops, within the buffer; COST_UNKNOWN: data decide it */
    int64_t first;
    /* of an element */
    double bytes;
    bool store, past_caches;
    /* number of loops around the access; pace[0] is that of the innermost */
    int count;
    cost_pace pace[COST_LOOPS];
} cost_access;
#define COST_IRREGULAR 1e30
#define COST_UNKNOWN INT64_MIN

typedef struct cost_nest {
    lib_arena *arena;
    /* [0] stands for runs of the kernel */
    lib_vec(cost_loop) loops;
    lib_vec(cost_access) accesses;
    /* by buffer; prefetched: by instructions */
    double *buffer_bytes;
    bool *prefetched;
    uint32_t buffers;
    /* bytes of a cache line, and of a page */
    double line, page;
    /* see target_work */
    double beside, handed;
} cost_nest;

void cost_traffic(const cost_nest *nest, const tir_machine *machine, double *traffic);

#endif
