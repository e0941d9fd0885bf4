/* Where long work asks whether it shall go on: loops that ask after so many iterations, such that between two questions lies a bounded
 * amount of work, whatever the sizes, and so much of it that asking costs nothing to speak of. Work is counted in operations, by the structure
 * of the loops; where an extent is a parameter, by its largest value. An operation of a vec loop is done on as many elements at once as the
 * target says; loads and stores of elements that do not lie side by side count one by one, since each may be a miss of all caches.
 *
 * A poll is no part of the kernel: it changes no result. A run that is to end leaves the phase at the next one, and what it wrote so
 * far is undefined. */
#ifndef TIR_POLLS_H
#define TIR_POLLS_H

#include "tir/loop.h"

enum {
    /* Operations between two polls of compiled code: some tenths of a millisecond, some milliseconds where each waits for memory. A loop in
     * which a poll lies is emitted otherwise than without (a bound that changes, a second exit), which may cost a few per cent of it: so
     * that it is not the innermost loops of small problems. */
    TIR_POLL_WORK = 1 << 19,
    /* Likewise of the interpreter, about a millisecond. */
    TIR_POLL_WORK_INTERPRETED = 1 << 15
};

typedef struct tir_polls tir_polls;
/* In `arena`; work: operations between polls; lanes: elements of 32 bits that a vec loop computes at once. */
tir_polls *tir_polls_new(lib_arena *arena, const tir_kernel *kernel, int64_t work, int lanes);
/* Iterations of the loop's variable after which it asks; 0: it does not. */
int64_t tir_polls_of_loop(const tir_polls *polls, const tir_stmt *loop);
int64_t tir_polls_of_tasks(const tir_polls *polls, int phase);

#endif
