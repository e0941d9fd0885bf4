/* Where long work asks whether it shall go on: loops that ask after so many iterations, such that between two questions lies a bounded
 * amount of work, whatever the sizes, and so much of it that asking costs nothing to speak of. Work is counted in operations on one
 * element, by the structure of the loops; where an extent is a parameter, by its largest value.
 *
 * A poll is no part of the kernel: it changes no result. A run that is to end leaves the phase at the next one, and what it wrote so
 * far is undefined. */
#ifndef TIR_POLLS_H
#define TIR_POLLS_H

#include "tir/loop.h"

/* Operations between two polls of a thread, about: a tenth of a millisecond of scalar code, some microseconds of vectors. */
enum { TIR_POLL_WORK = 1 << 18 };

typedef struct tir_polls tir_polls;
/* In `arena`; work: operations between polls, TIR_POLL_WORK but for tests. */
tir_polls *tir_polls_new(lib_arena *arena, const tir_kernel *kernel, int64_t work);
/* Iterations of the loop's variable after which it asks; 0: it does not. */
int64_t tir_polls_of_loop(const tir_polls *polls, const tir_stmt *loop);
int64_t tir_polls_of_tasks(const tir_polls *polls, int phase);

#endif
