/* Registers of threads: which dimensions of a REG or STACK buffer choose the thread that owns an element. It follows from the stores of
 * a phase: a dimension indexed by a thread variable, or that a collective statement spreads over the lanes of a warp. The verifier and
 * emission read it. */
#ifndef TIR_REGISTERS_H
#define TIR_REGISTERS_H

#include "tir/loop.h"

enum { TIR_THREAD_LOOPS = 8 }; /* nested, at most */

typedef struct tir_thread_loop { /* that is open */
    tir_expr var;
    int64_t stride; /* threads of one iteration */
} tir_thread_loop;

typedef struct tir_thread_loops {
    tir_thread_loop loop[TIR_THREAD_LOOPS];
    int count;
} tir_thread_loops;

typedef struct tir_registers {
    bool owned[16];
    int64_t stride[16]; /* of the owned dimensions: threads from one index to the next */
    bool any;
    uint32_t mixed; /* bit d: the index of dimension d mixes threads and elements of one thread, or two maps disagree */
    int64_t group;  /* each group of so many threads has registers of its own; 0: the block has */
    int64_t alike;  /* so many neighbouring threads have an element, each for itself; 0: one has */
} tir_registers;

static inline bool tir_is_register(const tir_buffer *buffer) {
    return buffer->scope == TIR_SCOPE_REG || buffer->scope == TIR_SCOPE_STACK;
}

/* Fills `registers`, one for each buffer of the kernel. */
void tir_find_registers(tir_kernel *kernel, const tir_phase *phase, tir_registers *registers);

/* The thread's number in its block, by the loops that are open; and that of the thread that owns an element: of those that are alike the
 * one that stands among them as the reader does. */
tir_expr tir_thread_number(tir_pool *pool, const tir_thread_loops *threads);
tir_expr tir_owner(tir_pool *pool, const tir_thread_loops *threads, const tir_registers *registers, int rank,
                   const tir_expr *index);
/* The element's place in the array of each thread. */
tir_expr tir_register_place(tir_pool *pool, const tir_buffer *buffer, const tir_registers *registers,
                            const tir_expr *index);

/* Why a collective statement is not one: a place that its lanes do not hold as the row says, NULL: it is. What threads run it is
 * known from the loops around; `registers` of all buffers. */
const char *tir_collective_flaw(tir_kernel *kernel, const tir_stmt *stmt, const tir_thread_loops *threads,
                                const tir_registers *registers);

#endif
