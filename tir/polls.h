/* Cancellation checks (polls): loops that check the cancel flag after so many iterations, such that the work between two checks is
 * bounded, whatever the sizes, and large enough that the checks' cost is negligible. Work is counted in operations, by the structure
 * of the loops; an extent that is a parameter counts with its largest value. An operation of a vec loop processes as many elements at once
 * as the target's vectors hold; loads and stores of non-adjacent elements count one by one, since each may miss all caches.
 *
 * A check is not part of the kernel: it changes no result. A cancelled run leaves the phase at the next check, and its results so
 * far are undefined. */
#ifndef TIR_POLLS_H
#define TIR_POLLS_H

#include "tir/loop.h"

enum {
    /* Operations between two checks of compiled code: some tenths of a millisecond, some milliseconds if each is latency-bound. A loop with
     * a check compiles to different code (a variable bound, a second exit), which may cost a few per cent: the value is large enough
     * that the innermost loops of small problems have none. */
    TIR_POLL_WORK = 1 << 19,
    /* The same for the interpreter, about a millisecond. */
    TIR_POLL_WORK_INTERPRETED = 1 << 15
};

typedef struct tir_polls tir_polls;
/* In `arena`; work: operations between checks; lanes: elements of 32 bits that a vec loop computes at once. */
tir_polls *tir_polls_new(lib_arena *arena, const tir_kernel *kernel, int64_t work, int lanes);
/* By how much the loop's variable, or the task's number, grows between two checks; 0: it has no checks. */
int64_t tir_polls_of_loop(const tir_polls *polls, const tir_stmt *loop);
int64_t tir_polls_of_tasks(const tir_polls *polls, int phase);

#endif
