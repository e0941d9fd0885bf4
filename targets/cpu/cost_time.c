/* From counted work to time: capacities and sets of caches, cycles of a run on several threads, the clock, and the roof that no kernel can be
 * faster than. */
#include "targets/cpu/cost.h"
#include "targets/cpu/cpu.h"

/* ---- caches -------------------------------------------------------------------------------------------------------------- */

double cost_level_bytes(const tir_machine *machine, int level) {
    return level == 0   ? (double)machine->l1
           : level == 1 ? (double)machine->l2
           : level == 2 ? (double)machine->l3
                        : 1e300;
}

int64_t cost_crowd(const tir_machine *machine, int64_t rows, int64_t row_bytes, int lines) {
    enum { ROWS = 32 };
    int64_t ways = machine->l1_ways, line = machine->line, most = 0;
    if (ways <= 0 || row_bytes < line) return 0;
    const int64_t period = machine->l1 / ways, sets = period / line, count = rows < ROWS ? rows : ROWS;
    int64_t set[ROWS];
    if (sets < 1) return 0;
    for (int64_t i = 0; i < count; i++) set[i] = i * row_bytes % period / line;
    for (int64_t i = 0; i < count; i++) {
        int64_t same = 0;
        for (int64_t k = 0; k < count; k++) {
            const int64_t apart = set[i] - set[k]; /* modulo `sets`, without a division */
            same += (apart < 0 ? apart + sets : apart) < lines;
        }
        if (same > most) most = same;
    }
    return most > ways ? most - ways : 0;
}

double cost_conflicts(const tir_machine *machine, int64_t rows, int64_t row_bytes) {
    int64_t crowd = cost_crowd(machine, rows, row_bytes, 1);
    return crowd ? (double)(rows * crowd) / (double)machine->l1_ways : 0;
}

/* ---- cycles -------------------------------------------------------------------------------------------------------------- */

void cost_cycles(const tir_machine *machine, const cost_work *work, target_cost *cost) {
    const tir_rates *rates = &machine->rates;
    const double shared = work->phases - work->single_phases; /* phases */
    double parallel = cost->threads, per_phase = shared > 0 ? (work->tasks - work->single_phases) / shared : 1;
    if (parallel > per_phase) parallel = per_phase;
    if (parallel < 1) parallel = 1;
    int longest = 0;
    cost->level_cycles[0] = work->single_cycles + (work->issue_cycles - work->single_cycles) / parallel;
    for (int i = 1; i < TIR_LEVELS; i++) { /* the last level is shared by all threads */
        cost->level_cycles[i] = work->traffic[i] / rates->bandwidth[i] / (i + 1 < TIR_LEVELS ? parallel : 1);
        if (cost->level_cycles[i] > cost->level_cycles[longest]) longest = i;
    }
    cost->cycles =
        rates->task * work->tasks / parallel + rates->phase * work->phases + (parallel > 1 ? rates->join * shared : 0);
    for (int i = 0; i < TIR_LEVELS; i++) cost->cycles += (i == longest ? 1 : rates->exposed[i]) * cost->level_cycles[i];
}

/* ---- time ---------------------------------------------------------------------------------------------------------------- */

/* Cycles per nanosecond, measured by a chain of multiplications of three cycles each: about 100 us, once per device, at the first request
 * for nanoseconds. */
static double measure_clock(void) {
#if defined(__x86_64__)
    enum { LINKS = 16, ROUNDS = 1024, TRIES = 6 };
    double best = 0;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint64_t start = lib_time_ns(), x = start | 1;
        for (int i = 0; i < ROUNDS; i++)
            for (int k = 0; k < LINKS; k++) __asm__ volatile("imulq %0, %0" : "+r"(x));
        double rate = 3.0 * (double)(LINKS * ROUNDS) / (double)(lib_time_ns() - start + 1);
        if (rate > best) best = rate;
    }
    return best > 0.5 && best < 10 ? best : 3;
#else
    return 3;
#endif
}

double cpu_cycles_per_ns(target_device *device) {
    uint32_t mhz = atomic_load_explicit(&device->clock_mhz, memory_order_relaxed);
    if (!mhz) {
        mhz = (uint32_t)(measure_clock() * 1e3);
        atomic_store_explicit(&device->clock_mhz, mhz, memory_order_relaxed);
    }
    return mhz * 1e-3;
}

/* Lower bound of the time on this machine: operations at the peak of the kernel's kind of arithmetic, bytes at the bandwidth of the
 * caches that they fit. */
static double roof_cycles(const tir_machine *machine, const cost_work *counted, const target_work *work, int threads) {
    const double lanes = machine->vector_bytes / 4.0;
    double parallel = threads > 1 ? threads : 1, memory = 0, left = work->bytes;
    double per_instruction = counted->counted > 0 ? counted->operations / counted->counted : 2 * lanes;
    for (int i = 0; i < TIR_LEVELS && left > 0; i++) {
        bool shared = i + 2 >= TIR_LEVELS;
        double fits = cost_level_bytes(machine, i) * (shared ? 1 : parallel), here = fits < left ? fits : left;
        memory += here / machine->rates.bandwidth[i] / (shared ? 1 : parallel);
        left -= here;
    }
    double arithmetic = work->operations / (per_instruction * machine->rates.fma * parallel);
    return arithmetic > memory ? arithmetic : memory;
}

void cpu_cost(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work, int count,
              target_cost *cost) {
    cost_work counted;
    cost_count(arena, &device->machine, kernel, work, &counted);
    for (int i = 0; i < count; i++) {
        cost_cycles(&device->machine, &counted, &cost[i]);
        cost[i].roof_cycles = roof_cycles(&device->machine, &counted, work, cost[i].threads);
    }
}
