/* Registers of threads: which dimensions of a REG or STACK buffer determine the thread that owns an element, as decided by the stores of a
 * phase: a dimension is owned if stores index it by a thread variable, or if a collective statement distributes it over the lanes of a
 * warp. Used by the verifier and the emitters. */
#ifndef TIR_REGISTERS_H
#define TIR_REGISTERS_H

#include "tir/loop.h"

enum { TIR_THREAD_LOOPS = 8 }; /* maximum nesting */

/* an open thread loop */
typedef struct tir_thread_loop {
    tir_expr var;
    /* threads of one iteration */
    int64_t stride;
} tir_thread_loop;

typedef struct tir_thread_loops {
    tir_thread_loop loop[TIR_THREAD_LOOPS];
    int count;
} tir_thread_loops;

typedef struct tir_registers {
    bool owned[16];
    /* of the owned dimensions: threads from one index to the next */
    int64_t stride[16];
    bool any;
    /* bit d: the index of dimension d mixes threads and elements of one thread, or two maps disagree */
    uint32_t mixed;
    /* each group of this many threads has its own copy of the buffer; 0: one copy per block */
    int64_t group;
    /* replicas: this many neighbouring threads each hold a copy of an element; 0: one thread does */
    int64_t alike;
} tir_registers;

static inline bool tir_is_register(const tir_buffer *buffer) {
    return buffer->scope == TIR_SCOPE_REG || buffer->scope == TIR_SCOPE_STACK;
}

/* Fills `registers`, one for each buffer of the kernel. */
void tir_find_registers(tir_kernel *kernel, const tir_phase *phase, tir_registers *registers);

/* The number of the running thread in its block, from the open thread loops. */
tir_expr tir_thread_number(tir_pool *pool, const tir_thread_loops *threads);
/* The number of the thread that owns the element at `index`. If `alike` replicas hold it, the one whose position among the replicas is the
 * reader's number modulo `alike`. */
tir_expr tir_owner(tir_pool *pool, const tir_thread_loops *threads, const tir_registers *registers, int rank,
                   const tir_expr *index);
/* The index of the element in its owner's register array. */
tir_expr tir_register_place(tir_pool *pool, const tir_buffer *buffer, const tir_registers *registers,
                            const tir_expr *index);

/* Why a collective statement is invalid (its lanes do not hold an operand as its unit requires); NULL: it is valid.
 * `threads`: the open loops around it; `registers`: of all buffers. */
const char *tir_collective_flaw(tir_kernel *kernel, const tir_stmt *stmt, const tir_thread_loops *threads,
                                const tir_registers *registers);

#endif
