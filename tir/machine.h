/* Facts about the machine that schedules, cost models, graph passes and lowering may read: what it has, how fast it is. From CPUID, sysfs,
 * the driver, and by the processor's name, never from timing, so that schedules are reproducible. A zeroed POD without padding: the bytes
 * before `units` are hashed into kernel keys. */
#ifndef TIR_MACHINE_H
#define TIR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { TIR_LEVELS = 4 /* of memory: L1, L2, L3, main memory */ };

/* Speed of one core, in cycles. A vector has machine->vector_bytes; shorter ones count like whole vectors. */
typedef struct tir_rates {
    /* instructions per cycle: floating-point vector instructions (multiply, add, fused), vector instructions of any kind, loads and stores
     * of vectors, instructions of any kind */
    double fma, vector, load, store, issue;
    /* loads of vectors per cycle while lines arrive in L1, over the time of a kernel */
    double load_sustained;
    /* instructions per cycle that add products of pairs of bf16, if the machine has such a unit */
    double dot_bf16;
    /* operands of a register tile's multiplications that are loaded per cycle, whole vectors and single elements */
    double operand;
    /* bytes per cycle that divisions of f32, and of f64, produce */
    double divide, divide_f64;
    /* cycles until the result of a floating-point instruction can be used */
    double latency;
    /* instructions that can run ahead of a stalled one; lines on their way to L1 at once */
    double window, misses;
    /* bytes per cycle that are read from a level of memory: sequentially, and by lines that are far apart */
    double bandwidth[TIR_LEVELS], distant[TIR_LEVELS];
    /* cycles per vector that multiplications stream from L2: of a panel, and of rows side by side, whose prefetches are not as far ahead */
    double panel_vector, rows_vector;
    /* cycles for a store of a vector beyond L2, for a row of an operand whose page is not in the TLB, and for a line that lines of the same
     * set have evicted from L2; for which the hardware prefetcher stops at the end of a page that is read from memory */
    double store_beyond_l2, page_miss, set_miss, page_stop;
    /* cycles that a step of a register tile waits for a line from L2 that is not the one after the step before's; 0: arithmetic hides them */
    double line_miss;
    /* rows of a product that are computed in the time in which the other operand's line comes from L3 */
    double streamed_rows;
    /* sequential streams by which memory is read fastest; 1: one is as fast as several. More: the hardware prefetches only about twice as
     * many (tir_prefetches_few) */
    double streams;
    /* part of a cache that keeps data while other data streams through it */
    double kept;
    /* part of the time of a less busy execution unit that the busiest one does not hide */
    double exposed_units;
    /* the same of computation ([0]) and of each level of memory, where another of them takes longest */
    double exposed[TIR_LEVELS];
    /* cycles to enter and leave a loop, for a task, for a phase, and in addition for a phase on several threads */
    double loop, task, phase, join;
    /* cycles to start a register tile (its first products wait for operands), the same if its results are written beyond L2, and if it needs
     * no broadcast operand; for each line of memory that it loads sums from, or stores them to */
    double tile, tile_beyond_l2, tile_unbroadcast, tile_line;
} tir_rates;

typedef struct tir_machine {
    /* "cpu", "interp", ... */
    char target[16];
    /* processor name for people and the code generator */
    char name[64];
    /* number of the instruction set, if the target's machines have such numbers (cuda: 10 * major + minor of the compute capability) */
    int32_t architecture;
    /* 64, 32, 16; 0: no vectors */
    int32_t vector_bytes;
    /* 32, 16 */
    int32_t vector_registers;
    /* 1: fused multiply-add exists: muladd becomes fma */
    int32_t fma;
    /* 1: execution units are half a vector wide: an instruction on a whole vector takes two cycles */
    int32_t half_units;
    /* 1: masked loads and stores of every dtype are cheap */
    int32_t masked;
    /* 1: if the last vectors of two rows in registers are at most half full, it pays to keep both in one */
    int32_t row_pairs;
    /* 1: x * 2^floor(n) of f32 is an instruction: ldexp stays */
    int32_t scales;
    /* data cache bytes; l3: the share of one core */
    int64_t l1, l2, l3;
    /* cache line bytes */
    int32_t line;
    /* associativity of l1 and l2; 0: unknown */
    int32_t l1_ways, l2_ways;
    /* bytes of a page, and number of pages whose addresses the first TLB holds */
    int32_t page, tlb_pages;
    /* usable by this process */
    int32_t cores;
    /* CPUs; else 0 */
    tir_rates rates;
    /* GPUs; else 0 */
    /* bytes per block, at most */
    int64_t shared_memory;
    /* threads that run in lockstep */
    int32_t warp;
    /* threads of a block, at most */
    int32_t block_threads;
    /* 32-bit registers of a thread, at most */
    int32_t thread_registers;
    /* number of multiprocessors */
    int32_t multiprocessors;
    /* all: which of `units` the machine has, bits of tir_unit.machines; 0: none */
    int64_t unit_bits;
    /* the rows of the target (tir/unit.h), up to one without a name; NULL: none. A constant of the library's */
    const struct tir_unit *units;
} tir_machine;

/* Does the hardware prefetch few streams, so that operands are better read by whole rows, or long pieces of them, than by short pieces of many
 * rows, even if these are prefetched by instructions? */
static inline bool tir_prefetches_few(const tir_machine *machine) {
    return machine->rates.streams > 1;
}

#endif
