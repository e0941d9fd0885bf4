/* Internal to the interpreter: bank conflicts of shared memory, and sectors of device memory. Threads run one after another; a warp's
 * access combines the same access of each lane at the same time step. */
#ifndef TIR_INTERPRET_BANKS_H
#define TIR_INTERPRET_BANKS_H

#include "tir/interpret.h"

typedef struct tir_bank_note {
    /* which access of the program */
    const void *key;
    const tir_stmt *stmt;
    /* time step; equal for accesses that become one vector, if their elements are adjacent */
    uint64_t run;
    int64_t address;
    int32_t thread, bytes;
    /* device memory, not shared */
    bool memory;
} tir_bank_note;

/* of one access */
typedef struct tir_bank_total {
    const void *key;
    const tir_stmt *stmt;
    int64_t conflicts;
} tir_bank_total;

typedef struct tir_banks {
    lib_arena *arena;
    /* of the running thread loop */
    lib_vec(tir_bank_note) notes;
    lib_vec(tir_bank_total) totals;
    int64_t accesses, conflicts;
    int64_t requests, sectors, excess;
    /* the open time step, 0: none; time steps so far */
    uint64_t run, runs;
    void *scratch;
    uint32_t scratch_count;
} tir_banks;

static inline void tir_banks_add(tir_banks *banks, const tir_bank_note *note) {
    lib_vec_push(banks->arena, &banks->notes, *note);
    if (!note->run) banks->notes.data[banks->notes.count - 1].run = ++banks->runs;
}
void tir_banks_end(tir_banks *banks); /* of a thread loop, or a collective statement */
void tir_banks_report(const tir_banks *banks, const tir_kernel *kernel, tir_bank_report *report);

#endif
